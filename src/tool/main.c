/* lockstep: the command. Finds the subcommand, reads its options, runs it. */
#include "tool/tool.h"

#include <signal.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
enum { DONE = 0, FAILED = 1, WRONG_USE = 2, STOPPED = 128 };

static const tool_command *const commands[] = { &tool_train,   &tool_evaluate, &tool_predict, &tool_verify,
                                                &tool_summary, &tool_export,   &tool_diff,    &tool_report,
                                                &tool_devices, &tool_doctor,   &tool_launch,  &tool_top,
                                                &tool_replay,  &tool_tokenize, &tool_key,     &tool_list };

/* Environment variables of Lockstep that are not flags. */
static const char *const other_variables[] = { "LOCKSTEP_DATA",    "LOCKSTEP_ISA",          "LOCKSTEP_VISIBLE_DEVICES",
                                               "LOCKSTEP_RANK",    "LOCKSTEP_WORLD_SIZE",   "LOCKSTEP_RENDEZVOUS",
                                               "LOCKSTEP_RESTART", "LOCKSTEP_LAUNCHER",     "LOCKSTEP_LISTEN",
                                               "LOCKSTEP_CACHE",   "LOCKSTEP_OPENCL_PARTS", "LOCKSTEP_CUDA_PATH" };

static int fail(int status)
{
    fflush(stdout);
    fprintf(stderr, "lockstep: %s\n", ls_last_error());
    return status;
}

static void print_help(void)
{
    printf("Lockstep %s trains neural networks, with the same bits on any devices.\n\n", LS_VERSION);
    printf("usage: lockstep COMMAND [arguments]\n\n");
    for (size_t i = 0; i < COUNT(commands); i++)
        printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
    printf("\nA MODEL is");
    for (size_t i = 0; ls_model_builtin_name(i) != NULL; i++)
        printf(" %s,", ls_model_builtin_name(i));
    printf(
        "\nor a file of Keras 3: the output of model.to_json(), or a .keras file, which includes weights.\n"
        "`lockstep COMMAND --help` lists the options of a command. Each option can also be set by an environment\n"
        "variable: LOCKSTEP_BATCH_SIZE=256 is --batch-size 256.\n"
        "Exit status: 0 success, 1 failure (diff: the files differ), 2 usage error, 128 + N stopped early by signal N\n"
        "(130: Ctrl+C).\n");
}

static ls_status add_tables(const tool_command *command, ls_options *options, tool_settings *settings)
{
    for (size_t i = 0; command->tables[i] != NULL; i++)
        LS_TRY(ls_options_add(options, command->tables[i], settings));
    return ls_options_add(options, &tool_common_flags, settings);
}

static int print_command_help(const tool_command *command)
{
    ls_options options = { 0 };
    tool_settings settings = { 0 };
    ls_text text = { 0 };
    if (add_tables(command, &options, &settings) != LS_OK)
        return fail(FAILED);
    ls_options_help(&options, 0, &text);
    printf("usage: lockstep %s%s%s [options]\n%s\n", command->name, command->arguments[0] ? " " : "",
           command->arguments, command->details);
    printf("\n%s", ls_text_get(&text));
    ls_text_free(&text);
    ls_options_free(&options);
    return DONE;
}

/* Rejects misspelled variables, for every command. */
static ls_status check_environment(void)
{
    const ls_option_table *tables[COUNT(commands) * TOOL_MOST_TABLES + 1];
    size_t count = 0;
    for (size_t i = 0; i < COUNT(commands); i++)
        for (size_t k = 0; commands[i]->tables[k] != NULL; k++)
            tables[count++] = commands[i]->tables[k];
    tables[count++] = &tool_common_flags;
    LS_TRY(ls_options_check_environment(tables, count, other_variables, COUNT(other_variables)));
    return ls_check_environment();
}

/* Explains that `--` is missing before the program that `launch` starts. */
static ls_status parse(const tool_command *command, int argc, const char *const *argv, ls_options *options)
{
    ls_status status = ls_options_parse(options, argc, argv);
    if (status == LS_OK || !command->starts_program || options->positional_count == 0)
        return status;
    return ls_fail(status, "%s: -- is missing before the program '%s': write lockstep %s %s (%s)", command->name,
                   options->positional[0], command->name, command->arguments, ls_last_error());
}

static ls_status read_options(const tool_command *command, int argc, const char *const *argv, ls_options *options,
                              tool_settings *settings)
{
    LS_TRY(add_tables(command, options, settings));
    LS_TRY(check_environment());
    LS_TRY(ls_options_environment(options));
    /* LOCKSTEP_DATA is the folder to search for data, not the value of --data */
    settings->data = NULL;
    LS_TRY(parse(command, argc, argv, options));
    bool any = command->takes_files == TOOL_ANY_FILES;
    size_t taken = any ? options->positional_count : command->takes_model ? 1 : command->takes_files;
    if (options->positional_count > taken)
        return ls_fail(LS_ERR_INVALID, "%s: unexpected argument '%s'", command->name, options->positional[taken]);
    if (!any && options->positional_count < command->takes_files)
        return ls_fail(LS_ERR_INVALID, "%s: %zu file%s needed: lockstep %s %s", command->name, command->takes_files,
                       command->takes_files == 1 ? " is" : "s are", command->name, command->arguments);
    settings->files = options->positional;
    settings->file_count = command->takes_files > 0 ? options->positional_count : 0;
    settings->model = command->takes_model && options->positional_count > 0 ? options->positional[0] : NULL;
    if (command->complete)
        LS_TRY(command->complete(options, settings));
    if (command->takes_model)
        LS_TRY(tool_check_model(options, settings));
    return command->check ? command->check(options, settings) : LS_OK;
}

static int run(const tool_command *command, int argc, const char *const *argv)
{
    ls_options options = { 0 };
    tool_settings settings = { .devices = "1", .arguments = argv, .argument_count = argc };
    int result = DONE;
    if (read_options(command, argc, argv, &options, &settings) != LS_OK) {
        result = fail(WRONG_USE);
    } else {
        bool chief = true;
        /* Opening a context reports the error. */
        if (tool_is_chief(&settings, &chief) == LS_OK && !chief)
            tool_mute();
        if (settings.print_options) {
            ls_text text = { 0 };
            ls_options_print(&options, &text);
            printf("%s", ls_text_get(&text));
            ls_text_free(&text);
        }
        if (settings.verbose != LS_VERBOSE_SILENT && !tool_is_muted())
            ls_show_work(stderr); /* standard output is for results */
        int stopped_by = 0;
        if (command->run(&settings, &stopped_by) != LS_OK)
            result = fail(command->compares ? WRONG_USE : FAILED);
        else if (stopped_by == TOOL_DIFFERENT)
            result = FAILED;
        else if (stopped_by <= TOOL_STATUS(0))
            result = TOOL_STATUS(stopped_by);
        else if (stopped_by != 0)
            result = STOPPED + stopped_by;
    }
    ls_options_free(&options);
    return result;
}

static const tool_command *find_command(const char *name)
{
    const char *names[COUNT(commands)];
    for (size_t i = 0; i < COUNT(commands); i++) {
        names[i] = commands[i]->name;
        if (strcmp(name, names[i]) == 0)
            return commands[i];
    }
    ls_name_advice advice = ls_suggest_name(name, names, COUNT(commands));
    if (name[0] == '-')
        ls_fail(LS_ERR_INVALID, "unknown option %s; the options before a command are --help and --version", name);
    else
        ls_fail(LS_ERR_INVALID, "unknown command %s%s", name,
                advice.text[0] ? advice.text : "; `lockstep --help` lists the commands");
    return NULL;
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (is_help(argv[i]))
            return true;
    return false;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        ls_fail(LS_ERR_INVALID, "a command is needed; `lockstep --help` lists them");
        return fail(WRONG_USE);
    }
    bool help = is_help(argv[1]) || strcmp(argv[1], "help") == 0;
    if (help && argc == 2) {
        print_help();
        return DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("lockstep %s\n", LS_VERSION);
        return DONE;
    }
    const tool_command *command = find_command(argv[help ? 2 : 1]);
    if (command == NULL)
        return fail(WRONG_USE);
    if (help || asks_for_help(argc - 2, argv + 2))
        return print_command_help(command);
    return run(command, argc - 2, (const char *const *)(argv + 2));
}

int main(int argc, char **argv)
{
    tool_open_descriptors();
    tool_begin_signals();
    /* A write beyond the file size limit fails, without a signal. */
    tool_ignore_signal(SIGXFSZ);
    setvbuf(stdout, NULL, _IOLBF, 0); /* a progress file shows each line as soon as it is written */
    int result = dispatch(argc, argv);
    if ((fflush(stdout) != 0 || ferror(stdout)) && result == DONE) {
        ls_fail(LS_ERR_IO, "cannot write to standard output");
        result = fail(FAILED);
    }
    return result;
}
