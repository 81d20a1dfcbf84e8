/* Transfer learning: weights that fit, another last layer, frozen layers, a part of a model. */
#include "tool/tool.h"

#include <inttypes.h>
#include <string.h>

ls_status tool_load_weights(const tool_settings *settings, ls_model *model)
{
    char *skipped = NULL;
    if (!settings->weights)
        return LS_OK;
    LS_TRY(
        ls_model_load_weights(model, settings->weights, .skip_mismatch = settings->skip_mismatch, .skipped = &skipped));
    if (skipped) {
        printf("%s: not loaded:\n", settings->weights);
        tool_print_lines(skipped);
    }
    free(skipped);
    return LS_OK;
}

/* The weights are those of the model with its own head, or, after training, with the new one. */
ls_status tool_replace_head(const tool_settings *settings, tool_session *session)
{
    ls_model *with_head = NULL;
    ls_status loaded = tool_load_weights(settings, session->model);
    if (loaded != LS_OK && loaded != LS_ERR_SHAPE)
        return loaded;
    LS_TRY(ls_fail_within(ls_model_replace_head(session->model, settings->head, &with_head), "--head"));
    ls_model_destroy(session->model);
    session->model = with_head;
    return loaded == LS_OK ? LS_OK : tool_load_weights(settings, session->model);
}

/* Calls `set` with each item of a list that is separated by commas. */
static ls_status for_each(const char *flag, const char *list, ls_model *model,
                          ls_status (*set)(ls_model *model, char *item))
{
    char item[256];
    for (const char *at = list; at && *at;) {
        size_t length = strcspn(at, ",");
        if (length == 0 || length >= sizeof item)
            return ls_fail(LS_ERR_INVALID, "%s %s: each pattern must have 1 to %zu characters", flag, list,
                           sizeof item - 1);
        memcpy(item, at, length);
        item[length] = '\0';
        LS_TRY(ls_fail_within(set(model, item), "%s", flag));
        at += length + (at[length] == ',');
    }
    return LS_OK;
}

static ls_status freeze(ls_model *model, char *pattern)
{
    return ls_model_set_trainable(model, pattern, false);
}

static ls_status set_rate(ls_model *model, char *item)
{
    char *equals = strrchr(item, '=');
    double factor;
    if (!equals || equals == item || !ls_parse_f64(equals + 1, &factor))
        return ls_fail(LS_ERR_INVALID,
                       "\"%s\" is not a pattern and a factor; write PATTERN=FACTOR, such as conv5_*=0.1", item);
    *equals = '\0';
    return ls_model_set_rate(model, item, factor);
}

ls_status tool_train_parts(const tool_settings *settings, ls_model *model)
{
    LS_TRY(for_each("--freeze", settings->freeze, model, freeze));
    return for_each("--layer-rate", settings->layer_rate, model, set_rate);
}

/* Only data with names of classes says how many there are. */
ls_status tool_check_classes(const tool_session *session, ls_dataset *data)
{
    const char *const *names;
    int64_t count;
    ls_shape shape = ls_model_output_shape(session->model, 0);
    int64_t outputs = shape.rank > 1 ? shape.dims[shape.rank - 1] : 1;
    LS_TRY(ls_dataset_classes(data, &names, &count));
    if (count <= outputs)
        return LS_OK;
    return ls_fail(LS_ERR_INVALID,
                   "the data has %" PRId64 " classes, but the model only %" PRId64 " outputs; use --head %" PRId64
                   ", or a model for as many",
                   count, outputs, count);
}

ls_status tool_cut(const char *layer, tool_session *session)
{
    ls_model *part = NULL;
    LS_TRY(ls_functional_begin(session->ctx, ls_model_name(session->model), &part));
    ls_status status = ls_functional_end(part, ls_symbol_from(part, session->model, layer));
    if (status != LS_OK) {
        ls_model_destroy(part);
        return ls_fail_within(status, "--layer");
    }
    ls_model_destroy(session->model);
    session->model = part;
    return LS_OK;
}
