/* The command `lockstep diff`. */
#include "tool/tool.h"

/* If only one of the files is a .keras file, it is the model for both. */
static const char *model_among(const char *const files[2])
{
    bool first = ls_ends_with(files[0], ".keras"), second = ls_ends_with(files[1], ".keras");
    return first == second ? NULL : first ? files[0] : files[1];
}

static ls_status check(const ls_options *options, tool_settings *settings)
{
    settings->model = settings->diff_model ? settings->diff_model : model_among(settings->files);
    if (settings->model)
        LS_TRY(tool_check_model(options, settings));
    return tool_check_devices(options, settings);
}

static ls_status diff(const tool_settings *settings, tool_session *session, int *different)
{
    char *text;
    bool equal;
    LS_TRY(tool_open_context(settings, session));
    if (settings->model)
        LS_TRY(tool_open_model(settings, session));
    LS_TRY(ls_weights_diff(settings->files[0], settings->files[1], session->model, &equal, &text));
    tool_print_lines(text);
    free(text);
    *different = equal ? 0 : TOOL_DIFFERENT;
    return LS_OK;
}

static ls_status run(const tool_settings *settings, int *stopped_by)
{
    tool_session session = { 0 };
    ls_status status = diff(settings, &session, stopped_by);
    tool_close(&session);
    return status;
}

const tool_command tool_diff = {
    .name = "diff",
    .arguments = "A B",
    .summary = "show how two weight files differ, or that no bit does",
    .details = "Compares two weight files of any formats: names, types, shapes, the largest difference and where it "
               "is. Prints\n"
               "\"equal bits\" if no bit differs. Exit status: 0 equal, 1 different, 2 failure. Files of different "
               "layouts need\n"
               "--model, unless one of them is a .keras file.",
    .takes_files = 2,
    .compares = true,
    .tables = { &tool_diff_flags, &tool_shape_flags },
    .check = check,
    .run = run,
};
