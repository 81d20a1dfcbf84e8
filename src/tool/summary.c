/* The command `lockstep summary`. */
#include "tool/tool.h"

static ls_status run(const tool_settings *settings, int *stopped_by)
{
    (void)stopped_by;
    tool_session session = { 0 };
    char *text = NULL;
    ls_status status = tool_open_context(settings, &session);
    if (status == LS_OK)
        status = tool_open_model(settings, &session);
    if (status == LS_OK)
        status = ls_model_summary(session.model, &text);
    if (status == LS_OK)
        tool_print_lines(text);
    free(text);
    tool_close(&session);
    return status;
}

const tool_command tool_summary = {
    .name = "summary",
    .arguments = "MODEL",
    .summary = "print a model's layers, shapes, parameters, FLOPs and memory",
    .details =
        "Prints a model's layers, output shapes and parameters, then the FLOPs and activation bytes of one sample.",
    .takes_model = true,
    .tables = { &tool_shape_flags },
    .check = tool_check_devices,
    .run = run,
};
