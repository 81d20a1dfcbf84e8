/* Rejects missing, unknown or contradictory arguments before anything runs (exit status 2). */
#include "tool/tool.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_MODELS 64

static ls_status check_shape(const ls_options *options, tool_settings *settings, bool is_builtin)
{
    static const char *const flags[] = { "--input", "--classes" };
    ls_shape shape;
    for (size_t i = 0; !is_builtin && i < 2; i++)
        if (ls_options_source(options, flags[i]) == LS_OPTION_FROM_COMMAND_LINE)
            return ls_fail(LS_ERR_INVALID, "%s is for built-in models only; MODEL %s is a file that has its own",
                           flags[i], settings->model);
    if (!is_builtin) {
        settings->input = NULL;
        settings->classes = 0;
    }
    return settings->input ? tool_input_shape(settings->input, &shape) : LS_OK;
}

ls_status tool_check_model(const ls_options *options, tool_settings *settings)
{
    const char *names[MOST_MODELS], *name;
    size_t count = 0;
    ls_text list = { 0 };
    for (; count < MOST_MODELS && (name = ls_model_builtin_name(count)) != NULL; count++) {
        names[count] = name;
        ls_text_add(&list, "%s%s", count ? ", " : "", name);
        if (settings->model && strcmp(settings->model, name) == 0) {
            ls_text_free(&list);
            return check_shape(options, settings, true);
        }
    }
    ls_status status = LS_OK;
    if (settings->model == NULL)
        status =
            ls_fail(LS_ERR_INVALID, "a MODEL is needed: %s, or a .json or .keras file of Keras", ls_text_get(&list));
    else if (access(settings->model, F_OK) != 0 && strpbrk(settings->model, "./"))
        status = ls_fail(LS_ERR_INVALID, "MODEL %s: no such file", settings->model);
    else if (access(settings->model, F_OK) != 0)
        status = ls_fail(LS_ERR_INVALID, "unknown MODEL %s; there are %s, and Keras files, .json and .keras%s",
                         settings->model, ls_text_get(&list), ls_suggest_name(settings->model, names, count).text);
    ls_text_free(&list);
    return status == LS_OK ? check_shape(options, settings, false) : status;
}

ls_status tool_check_data(const tool_settings *settings)
{
    if (settings->data == NULL || settings->data[0] == '\0')
        return ls_fail(
            LS_ERR_INVALID,
            "--data is needed: fashion-mnist, mnist, a folder of images or IDX files, FILE.npz, X.npy,Y.npy, "
            "FILE.csv, FILE.tsv, shards-{000..009}.tar or synthetic:28x28x1,classes=10,count=1000, or "
            "synthetic:count=1000 with the model's own sizes");
    return tool_check_data_flags(settings);
}

ls_status tool_check_loss(const ls_options *options, tool_settings *settings)
{
    ls_metrics_list metrics;
    ls_loss_kind kind = tool_loss_kind(settings);
    bool is_entropy = kind == LS_LOSS_NONE || tool_has_logits(kind);
    settings->from_logits_given = tool_given(options, "--from-logits");
    if (settings->from_logits && !is_entropy && tool_is_overridden(options, "--from-logits", "--loss"))
        settings->from_logits = false;
    if (settings->from_logits && !is_entropy)
        return ls_fail(LS_ERR_INVALID, "--from-logits cannot be used with --loss %s: only cross-entropies have logits",
                       tool_loss_name(kind));
    double *weights = NULL;
    size_t count = 0;
    ls_status status = settings->class_weights ? tool_class_weights(settings->class_weights, &weights, &count) : LS_OK;
    free(weights);
    LS_TRY(status);
    return settings->metrics ? tool_metrics(settings->metrics, &metrics) : LS_OK;
}

ls_status tool_check_optimizer(const ls_options *options, tool_settings *settings)
{
    ls_optimizer_kind kind = tool_optimizer(settings).kind;
    const char *name = tool_optimizer_name(settings);
    bool takes_momentum = kind == LS_OPTIMIZER_SGD || kind == LS_OPTIMIZER_RMSPROP ||
                          kind == LS_OPTIMIZER_RMSPROP_TF1 || kind == LS_OPTIMIZER_MUON;
    if (!takes_momentum && tool_is_overridden(options, "--momentum", "--optimizer"))
        settings->momentum = 0;
    if (kind != LS_OPTIMIZER_SGD && tool_is_overridden(options, "--nesterov", "--optimizer"))
        settings->nesterov = false;
    if (settings->momentum > 0 && !takes_momentum)
        return ls_fail(LS_ERR_INVALID,
                       "--momentum cannot be used with --optimizer %s: only sgd, rmsprop, rmsprop-tf1 and muon take it",
                       name);
    if (settings->nesterov && kind != LS_OPTIMIZER_SGD)
        return ls_fail(LS_ERR_INVALID, "--nesterov cannot be used with --optimizer %s: only sgd takes it", name);
    if (kind == LS_OPTIMIZER_RMSPROP_TF1 && !(settings->lr > 0))
        return ls_fail(LS_ERR_INVALID, "--optimizer rmsprop-tf1 needs --lr: it has no learning rate of its own");
    if ((settings->clipvalue > 0) + (settings->clipnorm > 0) + (settings->global_clipnorm > 0) > 1)
        return ls_fail(LS_ERR_INVALID,
                       "only one of --clipvalue (%g), --clipnorm (%g) and --global-clipnorm (%g) can be "
                       "used",
                       settings->clipvalue, settings->clipnorm, settings->global_clipnorm);
    if (settings->nesterov && !(settings->momentum > 0))
        return ls_fail(LS_ERR_INVALID, "--nesterov needs a --momentum above 0");
    if (settings->lr > 0 && !((float)settings->lr >= FLT_MIN && (float)settings->lr <= FLT_MAX))
        return ls_fail(LS_ERR_INVALID, "--lr %g: updates are computed in float32, whose numbers go from %g to %g",
                       settings->lr, (double)FLT_MIN, (double)FLT_MAX);
    return LS_OK;
}

ls_status tool_check_batch(const ls_options *options, tool_settings *settings)
{
    settings->epochs_given = tool_given(options, "--epochs");
    if (!tool_given(options, "--batch-size") || settings->batch_size_per_device == 0)
        return LS_OK;
    if (tool_is_overridden(options, "--batch-size-per-device", "--batch-size"))
        settings->batch_size_per_device = 0;
    else if (!tool_is_overridden(options, "--batch-size", "--batch-size-per-device"))
        return ls_fail(LS_ERR_INVALID,
                       "--batch-size %lld and --batch-size-per-device %lld contradict each other: give one",
                       (long long)settings->batch_size, (long long)settings->batch_size_per_device);
    return LS_OK;
}

/* ---- Strategies ---- */

bool tool_has_stages(ls_strategy_kind kind)
{
    return kind == LS_STRATEGY_MODEL_PARALLEL || kind == LS_STRATEGY_PIPELINE;
}

static bool shares_batch(ls_strategy_kind kind)
{
    return kind != LS_STRATEGY_ONE_DEVICE;
}

static bool reduces(ls_strategy_kind kind)
{
    return kind == LS_STRATEGY_MIRRORED || kind == LS_STRATEGY_PARAMETER_SERVER || tool_has_stages(kind);
}

static bool has_servers(ls_strategy_kind kind)
{
    return kind == LS_STRATEGY_PARAMETER_SERVER;
}

static bool is_pipeline(ls_strategy_kind kind)
{
    return kind == LS_STRATEGY_PIPELINE;
}

/* Flags that only some strategies take. */
static const struct {
    const char *name, *whose;
    bool (*goes_with)(ls_strategy_kind kind);
} strategy_flags[] = {
    { "--stages", "only model-parallel and pipeline have stages", tool_has_stages },
    { "--replicas", "only model-parallel and pipeline have replicas of stages; the others use --devices",
      tool_has_stages },
    { "--all-reduce", "with this strategy the first device joins gradients", reduces },
    { "--pipeline", "it sets the order of lanes in a pipeline", is_pipeline },
    { "--work-split", "one device computes the whole batch", shares_batch },
    { "--staleness", "only gradients of parameter-server can be stale", has_servers },
    { "--scale-by-staleness", "only gradients of parameter-server can be stale", has_servers },
    { "--overlap", "only workers of parameter-server read and push weights", has_servers },
    { "--record", "it records what the servers of parameter-server apply", has_servers },
};

static void reset_flag(tool_settings *settings, const char *name)
{
    if (strcmp(name, "--stages") == 0)
        settings->stages = 0;
    else if (strcmp(name, "--replicas") == 0)
        settings->replicas = 0;
    else if (strcmp(name, "--all-reduce") == 0)
        settings->all_reduce = LS_ALL_REDUCE_SHARDED;
    else if (strcmp(name, "--pipeline") == 0)
        settings->pipeline = LS_ONE_FORWARD_ONE_BACKWARD;
    else if (strcmp(name, "--staleness") == 0)
        settings->staleness = 0;
    else if (strcmp(name, "--scale-by-staleness") == 0)
        settings->scale_by_staleness = false;
    else if (strcmp(name, "--overlap") == 0)
        settings->overlap = false;
    else if (strcmp(name, "--record") == 0)
        settings->record = NULL;
    else
        settings->work_split = NULL;
}

static ls_status check_strategy(const ls_options *options, tool_settings *settings)
{
    ls_strategy_kind kind = (ls_strategy_kind)settings->strategy;
    if (kind == LS_STRATEGY_DEFAULT)
        kind = settings->place ? LS_STRATEGY_MODEL_PARALLEL : LS_STRATEGY_MIRRORED;
    for (size_t i = 0; i < sizeof strategy_flags / sizeof *strategy_flags; i++) {
        const char *name = strategy_flags[i].name;
        if (!tool_given(options, name) || strategy_flags[i].goes_with(kind))
            continue;
        if (ls_options_source(options, name) == LS_OPTION_FROM_COMMAND_LINE)
            return ls_fail(LS_ERR_INVALID, "%s cannot be used with --strategy %s: %s", name, tool_strategy_name(kind),
                           strategy_flags[i].whose);
        reset_flag(settings, name);
    }
    if (settings->place && kind == LS_STRATEGY_ONE_DEVICE)
        return ls_fail(LS_ERR_INVALID,
                       "--place cannot be used with --strategy one-device: it puts layers on several devices");
    if (settings->place && settings->stages + settings->replicas > 0)
        return ls_fail(LS_ERR_INVALID,
                       "--place cannot be used with --stages or --replicas: it assigns the layers to devices");
    return LS_OK;
}

/* Without --devices, uses as many devices as the stages need. */
static void count_stages(const ls_options *options, tool_settings *settings)
{
    int64_t stages = settings->stages ? settings->stages : 1, replicas = settings->replicas ? settings->replicas : 1;
    if (tool_given(options, "--devices") || stages * replicas == 1 || stages * replicas > LS_MAX_THREADS)
        return;
    snprintf(settings->counted, sizeof settings->counted, "%d", (int)(stages * replicas));
    settings->devices = settings->counted;
}

static ls_status check_shares(const tool_settings *settings, const tool_session *session)
{
    const ls_strategy *s = &session->strategy;
    int replicas;
    if (settings->stages && settings->replicas && settings->stages * settings->replicas != session->devices)
        return ls_fail(LS_ERR_INVALID, "--stages %lld and --replicas %lld need %lld devices; there are %d",
                       (long long)settings->stages, (long long)settings->replicas,
                       (long long)(settings->stages * settings->replicas), session->devices);
    if (settings->replicas && session->devices % settings->replicas != 0)
        return ls_fail(LS_ERR_INVALID, "--replicas %lld: %d devices cannot be divided evenly among them",
                       (long long)settings->replicas, session->devices);
    if (s->stages == 0 && s->work_split == NULL)
        return LS_OK;
    return ls_fail_within(ls_strategy_replicas(session->ctx, *s, &replicas), "--strategy %s",
                          tool_strategy_name(s->kind));
}

/* Flags from the environment yield to those on the command line. */
static ls_status check_one_device(const ls_options *options, tool_settings *settings, int used)
{
    if (settings->strategy != LS_STRATEGY_ONE_DEVICE || used == 1)
        return LS_OK;
    if (tool_is_overridden(options, "--devices", "--strategy"))
        settings->devices = "1";
    else if (tool_is_overridden(options, "--strategy", "--devices"))
        settings->strategy = LS_STRATEGY_MIRRORED;
    else
        return ls_fail(LS_ERR_INVALID, "--strategy one-device cannot be used with the %d devices of --devices %s", used,
                       settings->devices);
    return LS_OK;
}

ls_status tool_check_devices(const ls_options *options, tool_settings *settings)
{
    tool_session session = { 0 };
    if (settings->strategy >= LS_STRATEGY_MULTI_WORKER)
        settings->multi_worker = true;
    if (settings->strategy == LS_STRATEGY_MULTI_WORKER)
        settings->strategy = LS_STRATEGY_MIRRORED;
    LS_TRY(check_strategy(options, settings));
    if (settings->place && !tool_given(options, "--devices"))
        settings->devices = NULL;
    count_stages(options, settings);
    ls_status status = tool_open_context(settings, &session);
    if (status == LS_OK)
        status = check_one_device(options, settings, session.devices);
    if (status == LS_OK)
        status = check_shares(settings, &session);
    tool_close(&session);
    return status;
}

/* Parses "20", "20-40" or "20-". */
ls_status tool_check_trace(const ls_options *options, tool_settings *settings)
{
    long long first = 0, last = 0;
    int used = 0;
    const char *text = settings->trace_steps;
    settings->trace_first = settings->trace_last = 0;
    if (text == NULL)
        return LS_OK;
    if (settings->trace == NULL) {
        if (ls_options_source(options, "--trace-steps") == LS_OPTION_FROM_COMMAND_LINE)
            return ls_fail(LS_ERR_INVALID, "--trace-steps needs --trace FILE: the timeline goes there");
        return LS_OK;
    }
    bool range = sscanf(text, "%9lld-%9lld%n", &first, &last, &used) == 2 && text[used] == '\0';
    if (!range && sscanf(text, "%9lld-%n", &first, &used) == 1 && used > 0 && text[used] == '\0')
        range = true;
    if (!range && sscanf(text, "%9lld%n", &first, &used) == 1 && text[used] == '\0') {
        last = first;
        range = true;
    }
    if (!range || first < 1 || (last != 0 && last < first))
        return ls_fail(LS_ERR_INVALID,
                       "--trace-steps %s: expected a step, as in 20, or a range of steps, as in 20-40 or 20-", text);
    settings->trace_first = first;
    settings->trace_last = last;
    return LS_OK;
}

ls_status tool_check_log(const ls_options *options, tool_settings *settings)
{
    if (settings->log_hash && settings->log == NULL) {
        if (ls_options_source(options, "--log-hash") == LS_OPTION_FROM_COMMAND_LINE)
            return ls_fail(LS_ERR_INVALID, "--log-hash needs --log FILE: the hashes go there");
        settings->log_hash = false;
    }
    return LS_OK;
}

ls_status tool_check_checkpoints(const ls_options *options, tool_settings *settings)
{
    static const char *const flags[] = { "--save-every", "--keep", "--best-by" };
    ls_period period;
    if (!ls_parse_period(settings->save_every, &period))
        return ls_fail(LS_ERR_INVALID, "--save-every %s: expected " LS_PERIODS, settings->save_every);
    for (size_t i = 0; settings->checkpoint == NULL && i < sizeof flags / sizeof *flags; i++)
        if (ls_options_source(options, flags[i]) == LS_OPTION_FROM_COMMAND_LINE)
            return ls_fail(LS_ERR_INVALID, "%s needs --checkpoint DIR", flags[i]);
    if (settings->resume && strcmp(settings->resume, "auto") == 0 && settings->checkpoint == NULL)
        return ls_fail(LS_ERR_INVALID, "--resume needs --checkpoint DIR, or a folder to resume from: --resume DIR");
    if (settings->allow_other_bits && settings->resume == NULL &&
        ls_options_source(options, "--allow-other-bits") == LS_OPTION_FROM_COMMAND_LINE)
        return ls_fail(LS_ERR_INVALID, "--allow-other-bits needs --resume");
    return LS_OK;
}
