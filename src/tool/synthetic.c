/* --data synthetic without sizes: random data that fits the model. */
#include "tool/tool.h"

#include <inttypes.h>
#include <string.h>

#define PREFIX "synthetic"

bool tool_has_model_sizes(const char *data)
{
    size_t length = strlen(PREFIX);
    if (strncmp(data, PREFIX, length) != 0)
        return false;
    if (data[length] == '\0')
        return true;
    if (data[length] != ':')
        return false;
    const char *first = data + length + 1;
    size_t part = strcspn(first, ",");
    return part == 0 || memchr(first, '=', part) != NULL;
}

/* Returns the seed in the options. */
static uint64_t seed_of(const char *options)
{
    const char *at = strstr(options, "seed=");
    char digits[24];
    uint64_t seed = 1;
    if (at != NULL) {
        at += strlen("seed=");
        snprintf(digits, sizeof digits, "%.*s", (int)(strcspn(at, ",") < sizeof digits ? strcspn(at, ",") : 0), at);
        if (!ls_parse_u64(digits, &seed))
            seed = 1; /* the library reports the error */
    }
    return seed;
}

/* Number of classes of the labels; 2 for an output of one number. */
static ls_status classes_of(const ls_model *model, size_t output, int64_t *out)
{
    ls_shape shape = ls_model_output_shape(model, output);
    if (shape.rank > 2)
        return ls_fail(LS_ERR_UNSUPPORTED, "--data synthetic: output \"%s\" has %d axes; only one or two are supported",
                       ls_model_output_name(model, output), shape.rank);
    *out = shape.rank == 2 && shape.dims[1] > 1 ? shape.dims[1] : 2;
    return LS_OK;
}

/* Writes the name that the library parses: "synthetic:28x28x1,classes=10,count=70,seed=1". */
static ls_status describe(const ls_model *model, size_t input, size_t output, const char *options, ls_text *out)
{
    ls_shape shape = ls_model_input_shape(model, input);
    int64_t classes;
    LS_TRY(classes_of(model, output, &classes));
    if (shape.rank < 2)
        return ls_fail(LS_ERR_UNSUPPORTED, "--data synthetic: input \"%s\" has no axes; at least one is needed",
                       ls_model_input_name(model, input));
    ls_text_put(out, PREFIX ":");
    for (int i = 1; i < shape.rank; i++)
        ls_text_add(out, "%s%" PRId64, i > 1 ? "x" : "", shape.dims[i]);
    ls_text_add(out, ",classes=%" PRId64, classes);
    if (options[0] != '\0')
        ls_text_add(out, ",%s", options);
    if (input + output > 0) /* a different seed for each */
        ls_text_add(out, ",seed=%" PRIu64, seed_of(options) + input + 1000 * output);
    return out->failed ? ls_fail(LS_ERR_MEMORY, "no memory for the name of the data") : LS_OK;
}

static ls_status load(const tool_settings *settings, const tool_session *session, size_t input, size_t output,
                      ls_dataset *sets[2])
{
    const char *colon = strchr(settings->data, ':');
    ls_text name = { 0 };
    ls_status status = describe(session->model, input, output, colon ? colon + 1 : "", &name);
    if (status == LS_OK)
        status = ls_load_data(session->ctx, ls_text_get(&name), &sets[0], &sets[1]);
    ls_text_free(&name);
    return status;
}

/* ---- One dataset per input (uses its features) and per output (uses its labels) ---- */

typedef struct parts {
    size_t inputs, outputs;
    ls_dataset *sets[LS_MAX_COMPONENTS][2];
    ls_rows *rows[LS_MAX_COMPONENTS];
} parts;

static void free_parts(parts *p)
{
    for (size_t i = 0; i < p->inputs + p->outputs; i++) {
        ls_dataset_destroy(p->sets[i][0]);
        ls_dataset_destroy(p->sets[i][1]);
    }
}

/* The library adds a channel axis to images without channels; the model decides whether there is
 * one. */
static ls_array in_shape(ls_array array, ls_shape shape)
{
    shape.dims[0] = array.shape.dims[0];
    array.shape = shape;
    return array;
}

static ls_status put_together(parts *p, const ls_model *model, int set, ls_dataset **out)
{
    ls_array arrays[LS_MAX_COMPONENTS];
    ls_status status = LS_OK;
    size_t count = p->inputs + p->outputs, made = 0;
    for (; made < count && status == LS_OK; made++) {
        status = ls_rows_create(p->sets[made][set], 0, &p->rows[made]);
        if (status != LS_OK)
            break;
        const ls_array *found = ls_rows_base(p->rows[made])->component;
        arrays[made] = made < p->inputs ? in_shape(found[0], ls_model_input_shape(model, made)) : found[1];
    }
    if (status == LS_OK) {
        *out = ls_from_tensor_slices(.inputs = arrays, .input_count = (int)p->inputs, .targets = arrays + p->inputs,
                                     .target_count = (int)p->outputs);
        status = ls_dataset_status(*out);
    }
    for (size_t i = 0; i < made; i++)
        ls_rows_destroy(p->rows[i]);
    return status;
}

static ls_status load_all(const tool_settings *settings, tool_session *session)
{
    parts p = { .inputs = ls_model_input_count(session->model), .outputs = ls_model_output_count(session->model) };
    if (p.inputs + p.outputs > LS_MAX_COMPONENTS)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "--data synthetic: %zu inputs and %zu outputs; together at most %d are supported", p.inputs,
                       p.outputs, LS_MAX_COMPONENTS);
    ls_status status = LS_OK;
    for (size_t i = 0; i < p.inputs + p.outputs && status == LS_OK; i++)
        status = load(settings, session, i < p.inputs ? i : 0, i < p.inputs ? 0 : i - p.inputs, p.sets[i]);
    if (status == LS_OK)
        status = put_together(&p, session->model, 0, &session->train);
    if (status == LS_OK)
        status = put_together(&p, session->model, 1, &session->test);
    free_parts(&p);
    return status;
}

ls_status tool_open_synthetic(const tool_settings *settings, tool_session *session)
{
    LS_TRY(load_all(settings, session));
    ls_dataset **unwanted = settings->set == TOOL_SET_TEST    ? &session->train
                            : settings->set == TOOL_SET_TRAIN ? &session->test
                                                              : NULL;
    if (unwanted != NULL) {
        ls_dataset_destroy(*unwanted);
        *unwanted = NULL;
    }
    return LS_OK;
}
