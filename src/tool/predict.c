/* lockstep predict: writes the model's outputs, or that of a layer. */
#include "tool/tool.h"

#include <inttypes.h>
#include <string.h>

static ls_status check(const ls_options *options, tool_settings *settings)
{
    LS_TRY(tool_check_data(settings));
    if (settings->output == NULL)
        return ls_fail(LS_ERR_INVALID, "--output is needed: FILE.npy, FILE.npz or FILE.csv");
    if (!ls_ends_with(settings->output, ".npy") && !ls_ends_with(settings->output, ".npz") &&
        !ls_ends_with(settings->output, ".csv"))
        return ls_fail(LS_ERR_INVALID, "--output %s: expected a name that ends in .npy, .npz or .csv",
                       settings->output);
    LS_TRY(tool_check_devices(options, settings));
    return tool_check_outputs(settings);
}

/* Writes enough digits to read the same number back. */
static void put_value(ls_text *text, const ls_array *array, int64_t index)
{
    switch (array->dtype) {
    case LS_F32:
        ls_text_add(text, "%.9g", (double)((const float *)array->data)[index]);
        break;
    case LS_F64:
        ls_text_put_f64(text, ((const double *)array->data)[index]);
        break;
    case LS_I32:
        ls_text_add(text, "%" PRId32, ((const int32_t *)array->data)[index]);
        break;
    case LS_I64:
        ls_text_add(text, "%" PRId64, ((const int64_t *)array->data)[index]);
        break;
    case LS_U8:
    case LS_BOOL:
    case LS_DTYPE_COUNT:
        ls_text_add(text, "%d", ((const uint8_t *)array->data)[index]);
        break;
    }
}

/* One line per sample. */
static ls_status write_csv(const char *path, const ls_array *array)
{
    int64_t rows = array->shape.dims[0], columns = 1;
    ls_text text = { 0 };
    for (int i = 1; i < array->shape.rank; i++)
        columns *= array->shape.dims[i];
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) {
            ls_text_put(&text, c ? "," : "");
            put_value(&text, array, r * columns + c);
        }
        ls_text_put(&text, "\n");
    }
    ls_status status = text.failed ? ls_fail(LS_ERR_MEMORY, "no memory for the text of %s", path)
                                   : ls_file_write(path, ls_text_get(&text), text.length);
    ls_text_free(&text);
    return status;
}

/* Outputs that are written, and their names in an .npz file. */
typedef struct outcome {
    const char *path, *set;
    const tool_session *session;
    size_t count;
    ls_array made[LS_MAX_OUTPUTS];
    char name[LS_MAX_OUTPUTS][256];
} outcome;

static ls_status write_arrays(const outcome *o)
{
    const char *names[LS_MAX_OUTPUTS];
    for (size_t i = 0; i < o->count; i++)
        names[i] = o->name[i];
    if (ls_ends_with(o->path, ".npz"))
        return ls_npz_write(o->path, names, o->made, o->count);
    return ls_ends_with(o->path, ".csv") ? write_csv(o->path, &o->made[0]) : ls_npy_write(o->path, o->made[0]);
}

static ls_status write_and_print(void *user)
{
    const outcome *o = user;
    if (!tool_is_muted())
        LS_TRY(write_arrays(o));
    tool_print_untrained(o->session);
    for (size_t k = 0; k < o->count; k++) {
        const ls_array *made = &o->made[k];
        printf("%s: %s of the %s set: (", o->path, o->name[k], o->set);
        for (int i = 0; i < made->shape.rank; i++)
            printf("%s%" PRId64, i ? ", " : "", made->shape.dims[i]);
        printf("%s), %s\n", made->shape.rank == 1 ? "," : "", ls_dtype_name(made->dtype));
    }
    return LS_OK;
}

/* Several outputs of one nested model have its name, so a number is added. */
static void name_output(outcome *o, size_t i)
{
    const char *name = ls_model_output_name(o->session->model, i);
    snprintf(o->name[i], sizeof o->name[i], "%s", name);
    for (size_t k = 0; k < i; k++)
        if (strcmp(o->name[k], name) == 0)
            snprintf(o->name[i], sizeof o->name[i], "%.220s_%zu", name, i);
}

static ls_status predict_all(const tool_settings *settings, tool_session *session, ls_dataset *data, outcome *out)
{
    size_t outputs = ls_ends_with(out->path, ".npz") ? ls_model_output_count(session->model) : 1;
    if (outputs > LS_MAX_OUTPUTS)
        return ls_fail(LS_ERR_UNSUPPORTED, "--output %s: the model has %zu outputs; at most %d can be written",
                       out->path, outputs, LS_MAX_OUTPUTS);
    for (; out->count < outputs; out->count++) {
        name_output(out, out->count);
        LS_TRY(ls_predict(session->model, data, &out->made[out->count], .batch_size = settings->batch_size,
                          .strategy = session->strategy, .lanes = (int)settings->lanes, .index = (int)out->count));
    }
    return LS_OK;
}

static ls_status predict(const tool_settings *settings, tool_session *session)
{
    ls_dataset *data;
    outcome out = { .path = settings->output, .session = session };
    if (!tool_is_muted())
        LS_TRY(tool_check_writable("--output", settings->output));
    LS_TRY(tool_open_context(settings, session));
    LS_TRY(tool_open_model(settings, session));
    if (settings->layer)
        LS_TRY(tool_cut(settings->layer, session));
    LS_TRY(tool_open_set(settings, session, &data, &out.set));
    ls_status status = predict_all(settings, session, data, &out);
    tool_update_mute(session->ctx);
    if (status == LS_OK)
        status = tool_print_once(session->ctx, write_and_print, &out);
    for (size_t i = 0; i < out.count; i++)
        free(out.made[i].data);
    return status;
}

static ls_status run(const tool_settings *settings, int *stopped_by)
{
    (void)stopped_by;
    tool_session session = { 0 };
    ls_status status = predict(settings, &session);
    tool_close(&session);
    return status;
}

const tool_command tool_predict = {
    .name = "predict",
    .arguments = "MODEL --data DATA --weights FILE --output FILE",
    .summary = "write a model's output for every sample to a .npy, .npz or .csv file",
    .details =
        "Writes the model's output for every sample of a set, in order. Without --weights, the model is untrained.",
    .takes_model = true,
    .tables = { &tool_data_flags, &tool_set_flags, &tool_model_flags, &tool_shape_flags, &tool_batch_flags,
                &tool_count_flags, &tool_device_flags, &tool_placement_flags, &tool_output_flags },
    .check = check,
    .run = run,
};
