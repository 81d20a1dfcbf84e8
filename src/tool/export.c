/* The command `lockstep export`. */
#include "tool/tool.h"

static ls_status check(const ls_options *options, tool_settings *settings)
{
    if (settings->output == NULL)
        return ls_fail(LS_ERR_INVALID, "--output is needed: FILE.safetensors, FILE.npz, FILE.weights.h5 or FILE.keras");
    LS_TRY(tool_check_devices(options, settings));
    return tool_check_outputs(settings);
}

static ls_status export(const tool_settings *settings, tool_session *session)
{
    ls_layout layout = settings->layout == 1 ? LS_LAYOUT_TORCH : LS_LAYOUT_KERAS;
    char number[32];
    LS_TRY(tool_check_writable("--output", settings->output));
    LS_TRY(tool_open_context(settings, session));
    LS_TRY(tool_open_model(settings, session));
    LS_TRY(ls_model_save_weights(session->model, settings->output, .layout = layout));
    printf("%s: %zu arrays of %s, %s numbers, in the layout of %s\n", settings->output,
           ls_model_variable_count(session->model), ls_model_name(session->model),
           tool_number(ls_model_parameter_count(session->model), number),
           layout == LS_LAYOUT_TORCH ? "PyTorch" : "Keras");
    return LS_OK;
}

static ls_status run(const tool_settings *settings, int *stopped_by)
{
    (void)stopped_by;
    tool_session session = { 0 };
    ls_status status = export(settings, &session);
    tool_close(&session);
    return status;
}

const tool_command tool_export = {
    .name = "export",
    .arguments = "MODEL --weights FILE --output FILE",
    .summary = "write a model's weights in another format or layout",
    .details = "Writes a model's weights in the format that the ending of --output names, and in the layout of Keras "
               "or PyTorch. The\n"
               "names in --weights show its layout. Without --weights, the model is untrained.",
    .takes_model = true,
    .tables = { &tool_model_flags, &tool_shape_flags, &tool_export_flags },
    .check = check,
    .run = run,
};
