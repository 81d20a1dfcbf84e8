/* lockstep replay: the record contains the command that wrote it (describe_call in train.c), which
 * defines the job. */
#include "tool/tool.h"

#include <string.h>
#include <unistd.h>

/* ---- The job in the record ---- */

/* Tables of flags that define the job, except those in not_kept. */
static const ls_option_table *const kept_tables[] = { &tool_data_flags,    &tool_model_flags,     &tool_shape_flags,
                                                      &tool_loss_flags,    &tool_optimizer_flags, &tool_batch_flags,
                                                      &tool_training_flags };
static const char *const not_kept[] = { "--verbose", "--audit", "--dry-run" };

static bool is_kept(const char *flag)
{
    for (size_t i = 0; i < sizeof not_kept / sizeof *not_kept; i++)
        if (strcmp(flag, not_kept[i]) == 0)
            return false;
    return true;
}

/* Finds a file that was named relative to the folder of the recorded command. */
static const char *find_file(const char *name, const char *folder, ls_options *options)
{
    char path[PATH_MAX];
    if (!name || name[0] == '/' || access(name, F_OK) == 0 ||
        snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path || access(path, F_OK) != 0)
        return name;
    const char *copy = ls_arena_strdup(&options->arena, path);
    return copy ? copy : name;
}

static ls_status copy_job(ls_options *options, tool_settings *settings, ls_options *recorded, const tool_settings *old,
                          const char *folder)
{
    if (recorded->positional_count != 1)
        return ls_fail(LS_ERR_DATA, "record '%s': the recorded command has %zu models; expected 1", settings->files[0],
                       recorded->positional_count);
    settings->model = ls_arena_strdup(&options->arena, recorded->positional[0]);
    if (old->schedule)
        settings->schedule = ls_arena_strdup(&options->arena, old->schedule);
    if (!settings->model || (old->schedule && !settings->schedule))
        return ls_fail(LS_ERR_MEMORY, "no memory for the names of a job");
    for (size_t i = 0; i < sizeof kept_tables / sizeof *kept_tables; i++)
        for (size_t k = 0; k < kept_tables[i]->count; k++)
            if (is_kept(kept_tables[i]->rows[k].flag))
                LS_TRY(ls_options_copy_value(options, recorded, kept_tables[i]->rows[k].flag));
    LS_TRY(ls_options_copy_value(options, recorded, "--lanes"));
    settings->model = find_file(settings->model, folder, options);
    settings->data = find_file(settings->data, folder, options);
    settings->weights = find_file(settings->weights, folder, options);
    settings->table = find_file(settings->table, folder, options);
    return LS_OK;
}

static ls_status parse_recorded(const char *const *words, int count, ls_options *recorded, tool_settings *old)
{
    for (size_t i = 0; tool_train.tables[i] != NULL; i++)
        LS_TRY(ls_options_add(recorded, tool_train.tables[i], old));
    LS_TRY(ls_options_add(recorded, &tool_common_flags, old));
    return ls_options_parse(recorded, count, words);
}

static ls_status read_arguments(ls_options *options, tool_settings *settings, const ls_json_at *list,
                                const char *folder)
{
    size_t count = ls_json_count(list);
    const char **words = calloc(count + 1, sizeof *words);
    ls_options recorded = { 0 };
    tool_settings old = { .devices = "1" };
    ls_json_at word;
    ls_status status = words ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for %zu arguments", count);
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        status = ls_json_element(list, i, &word);
        if (status == LS_OK)
            status = ls_json_string(&word, &words[i]);
    }
    if (status == LS_OK)
        status = parse_recorded(words, (int)count, &recorded, &old);
    if (status == LS_OK)
        status = copy_job(options, settings, &recorded, &old, folder);
    ls_options_free(&recorded);
    free(words);
    return ls_fail_within(status, "record '%s': its command", settings->files[0]);
}

static ls_status complete(ls_options *options, tool_settings *settings)
{
    char *text = NULL;
    json_t *root = NULL;
    ls_json_at list;
    const char *command = "", *folder = "";
    LS_TRY(ls_record_own(settings->files[0], &text));
    ls_status status = ls_json_read_buffer(settings->files[0], text, strlen(text), &root);
    free(text);
    LS_TRY(status);
    ls_json_at at = ls_json_root(root, settings->files[0]);
    status = ls_json_is_object(&at);
    if (status == LS_OK)
        status = ls_json_opt_string(&at, "command", &command);
    if (status == LS_OK && strcmp(command, "train") != 0)
        status = ls_fail(LS_ERR_DATA,
                         "record '%s' was not written by lockstep train: replay it with the program that "
                         "wrote it (ls_replay)",
                         settings->files[0]);
    if (status == LS_OK)
        status = ls_json_opt_string(&at, "folder", &folder);
    if (status == LS_OK)
        status = ls_json_get_array(&at, "arguments", &list);
    if (status == LS_OK)
        status = read_arguments(options, settings, &list, folder);
    json_decref(root);
    return status;
}

static ls_status check(const ls_options *options, tool_settings *settings)
{
    settings->alone = true;
    if (settings->strategy >= LS_STRATEGY_MULTI_WORKER)
        return ls_fail(LS_ERR_INVALID, "--strategy %s: a replay runs in one process; choose another strategy",
                       tool_strategy_name((ls_strategy_kind)settings->strategy));
    LS_TRY(tool_check_model(options, settings));
    LS_TRY(tool_check_data(settings));
    LS_TRY(tool_check_loss(options, settings));
    LS_TRY(tool_check_optimizer(options, settings));
    LS_TRY(tool_check_batch(options, settings));
    LS_TRY(tool_check_devices(options, settings));
    return tool_check_outputs(settings);
}

/* ---- Running ---- */

static ls_status print_outcome(const tool_settings *settings, tool_session *session, const ls_replayed *r)
{
    char hex[65], gradients[32], versions[32];
    ls_results results;
    if (r->stopped)
        printf("stopped by a signal\n");
    printf("replayed: %s gradients of %d worker%s, %s versions of %d server%s%s\n",
           tool_number(r->gradients, gradients), r->workers, r->workers == 1 ? "" : "s",
           tool_number(r->versions, versions), r->servers, r->servers == 1 ? "" : "s",
           r->stopped ? ", incomplete" : ": all hashes match the record");
    if (r->torn)
        printf("the last line of the record is incomplete and was not replayed\n");
    if (session->test && !r->stopped) {
        LS_TRY(ls_evaluate(session->model, session->test, &results, .batch_size = tool_batch_size(settings, session),
                           .strategy = session->strategy, .lanes = (int)settings->lanes));
        tool_print_results("test", &results);
    }
    LS_TRY(ls_model_weights_sha256(session->model, hex));
    printf("weights sha256: %s\n", hex);
    return LS_OK;
}

static ls_status replay(const tool_settings *settings, tool_session *session, int *stopped_by)
{
    ls_fit_options options;
    ls_replayed replayed;
    LS_TRY(tool_open_training(settings, session));
    if (settings->verbose != LS_VERBOSE_SILENT)
        LS_TRY(tool_introduce(settings, session));
    LS_TRY(tool_fit_options(settings, session, &options));
    if (settings->resume) {
        LS_TRY(ls_checkpoint_restore(session->model, settings->resume));
        options.continue_last = true;
    }
    options.stop = tool_catch_signals();
    ls_status status = ls_replay_with(session->model, session->train, settings->files[0], options, &replayed);
    *stopped_by = tool_release_signals();
    return status == LS_OK ? print_outcome(settings, session, &replayed) : status;
}

static ls_status run(const tool_settings *settings, int *stopped_by)
{
    tool_session session = { 0 };
    ls_status status = replay(settings, &session, stopped_by);
    tool_close(&session);
    return status;
}

const tool_command tool_replay = {
    .name = "replay",
    .arguments = "FILE",
    .summary = "repeat a recorded training with parameter servers, bit for bit",
    .details = "Repeats a training that `lockstep train --strategy parameter-server --staleness N --record FILE` "
               "recorded. The files\n"
               "of other servers, FILE.1 and so on, must be beside FILE. Computes the same gradients from the same "
               "versions of the\n"
               "weights, in one process and on any devices, and compares the hash of every version. Exits with status "
               "1 at the first\n"
               "difference. The job is the recorded one, except for the flags that you give.",
    .takes_files = 1,
    .tables = { &tool_replay_flags, &tool_count_flags, &tool_device_flags, &tool_data_flags, &tool_model_flags,
                &tool_shape_flags, &tool_loss_flags, &tool_optimizer_flags, &tool_batch_flags, &tool_training_flags },
    .complete = complete,
    .check = check,
    .run = run,
};
