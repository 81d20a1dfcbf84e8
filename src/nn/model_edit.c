/* Settings of a finished model, such as a built-in one, that can change until it is first
 * traced. */
#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include "device/context.h"
#include "graph/claim.h"
#include "nn/model.h"

/* Existing nodes would not change, so parts of the model would disagree. */
static ls_status need_untraced(const ls_model *model, const char *call)
{
    LS_TRY(ls_model_need_ready(model, call));
    LS_TRY(ls_context_begin(model->context, call));
    if (model->job)
        return ls_fail(LS_ERR_STATE,
                       "%s: model \"%s\" is compiled or has predicted; call this before that, on a new model", call,
                       model->name);
    if (model->graph->node_count > model->graph->variable_count)
        return ls_fail(LS_ERR_STATE,
                       "%s: the graph of model \"%s\" has nodes beside the model's variables; call this before the "
                       "model is traced, or after the scope of the trace has ended",
                       call, model->name);
    return LS_OK;
}

/* ---- Devices ---- */

/* A nested model stands for itself and all of its layers, which follow it. */
static size_t last_inside(const ls_model *model, const ls_model_layer *layer)
{
    size_t last = (size_t)layer->number;
    while (last + 1 < model->layer_count && ls_model_layer_is_inside(model->layers[last + 1], layer))
        last++;
    return last;
}

static ls_status find_range(const ls_model *model, const char *first, const char *last, size_t *from, size_t *to)
{
    *from = 0;
    *to = model->layer_count ? model->layer_count - 1 : 0;
    ls_model_layer *layer;
    if (first) {
        LS_TRY(ls_model_find_layer(model, first, &layer));
        *from = (size_t)layer->number;
    }
    if (last) {
        LS_TRY(ls_model_find_layer(model, last, &layer));
        *to = last_inside(model, layer);
    }
    if (*from > *to)
        return ls_fail(LS_ERR_INVALID, "model \"%s\": layer \"%s\" comes after \"%s\"; name the earlier layer first",
                       model->name, model->layers[*from]->name, model->layers[*to]->name);
    return LS_OK;
}

/* Allocates memory for variables that have some, before anything changes, so that the device's
 * limits apply. */
static ls_status take_blocks(ls_model *model, size_t from, size_t to, int device, struct ls_block **blocks)
{
    for (size_t v = 0; v < model->variable_count; v++) {
        const ls_model_layer *layer = model->variables[v].layer;
        ls_tensor *node = layer->variable[model->variables[v].index];
        ls_variable *variable = node->attr.variable.variable;
        if ((size_t)layer->number < from || (size_t)layer->number > to || !variable->data)
            continue;
        LS_TRY(ls_variable_sync_to_host(variable));
        LS_TRY(ls_context_take(model->context, device, variable->bytes, node->name, &blocks[v]));
    }
    return LS_OK;
}

static void move_layers(ls_model *model, size_t from, size_t to, int device, struct ls_block **blocks)
{
    for (size_t v = 0; v < model->variable_count; v++) {
        const ls_model_layer *layer = model->variables[v].layer;
        ls_tensor *node = layer->variable[model->variables[v].index];
        ls_variable *variable = node->attr.variable.variable;
        if ((size_t)layer->number < from || (size_t)layer->number > to)
            continue;
        if (blocks[v]) {
            memcpy(ls_context_data(model->context, blocks[v]), variable->data, variable->bytes);
            ls_context_give(model->context, variable->device, variable->block);
            variable->block = blocks[v];
            variable->data = ls_context_data(model->context, blocks[v]);
        }
        variable->device = node->device = device;
    }
    for (size_t i = from; i <= to; i++)
        model->layers[i]->device = device;
}

static ls_status place_layers(ls_model *model, size_t from, size_t to, int device)
{
    struct ls_block **blocks = calloc(model->variable_count + 1, sizeof(*blocks));
    ls_status status = blocks ? take_blocks(model, from, to, device, blocks)
                              : ls_fail(LS_ERR_MEMORY, "no memory for a list of %zu variables", model->variable_count);
    if (status == LS_OK)
        move_layers(model, from, to, device, blocks);
    for (size_t v = 0; status != LS_OK && blocks && v < model->variable_count; v++)
        ls_context_give(model->context, device, blocks[v]);
    free(blocks);
    return status;
}

ls_status ls_model_set_device(ls_model *model, const char *first_layer, const char *last_layer, const char *device)
{
    LS_CLAIM(ls_model_claimed(model));
    int index;
    size_t from, to;
    LS_TRY(need_untraced(model, "ls_model_set_device"));
    if (!device)
        return ls_fail(LS_ERR_INVALID, "ls_model_set_device: the device is NULL");
    LS_TRY(ls_fail_within(ls_context_device(model->context, device, &index), "ls_model_set_device"));
    LS_TRY(find_range(model, first_layer, last_layer, &from, &to));
    return place_layers(model, from, to, index);
}

/* ---- Trainable layers ---- */

static void set_trainable(ls_model_layer *layer, bool trainable)
{
    layer->spec.options.frozen = !trainable;
    for (size_t i = 0; i < layer->weight_count; i++) {
        layer->weight[i].trainable = layer->learns[i] && trainable;
        layer->variable[i]->attr.variable.variable->trainable = layer->weight[i].trainable;
    }
}

static bool matches(const char *pattern, const ls_model_layer *layer)
{
    for (; layer; layer = layer->inside)
        if (fnmatch(pattern, layer->name, 0) == 0)
            return true;
    return false;
}

static ls_status check_pattern(const ls_model *model, const char *pattern, const char *call, const char *option)
{
    LS_TRY(need_untraced(model, call));
    if (!pattern)
        return ls_fail(LS_ERR_INVALID, "%s: the pattern is NULL", call);
    if (model->kind == LS_MODEL_CUSTOM)
        return ls_fail(LS_ERR_UNSUPPORTED, "%s: model \"%s\" is a custom model; %s", call, model->name, option);
    return LS_OK;
}

static ls_status no_layer(const ls_model *model, const char *pattern)
{
    ls_model_layer *layer;
    return strpbrk(pattern, "*?[") ? ls_fail(LS_ERR_NOT_FOUND,
                                             "model \"%s\": no layer matches \"%s\"; see "
                                             "ls_model_summary or `lockstep summary` for their names",
                                             model->name, pattern)
                                   : ls_model_find_layer(model, pattern, &layer);
}

ls_status ls_model_set_trainable(ls_model *model, const char *pattern, bool trainable)
{
    LS_CLAIM(ls_model_claimed(model));
    size_t found = 0;
    LS_TRY(check_pattern(model, pattern, "ls_model_set_trainable", "set .frozen of its layers in its function"));
    for (size_t i = 0; i < model->layer_count; i++) {
        ls_model_layer *layer = model->layers[i];
        if (!matches(pattern, layer))
            continue;
        found++;
        set_trainable(layer, trainable);
        /* A nested model is frozen only while all of its layers are. */
        for (ls_model_layer *outer = layer->inside; outer && trainable; outer = outer->inside)
            outer->spec.options.frozen = false;
    }
    return found > 0 ? LS_OK : no_layer(model, pattern);
}

/* ---- Rates of layers ---- */

ls_status ls_model_set_rate(ls_model *model, const char *pattern, double factor)
{
    LS_CLAIM(ls_model_claimed(model));
    size_t found = 0;
    LS_TRY(check_pattern(model, pattern, "ls_model_set_rate", "use an optimizer for each group of its variables"));
    if (!(factor > 0 && isfinite(factor)))
        return ls_fail(LS_ERR_INVALID,
                       "ls_model_set_rate: the factor of \"%s\" is %g; it must be positive and finite (0: use "
                       "ls_model_set_trainable(model, \"%s\", false) instead, --freeze on the command line)",
                       pattern, factor, pattern);
    for (size_t i = 0; i < model->layer_count; i++) {
        ls_model_layer *layer = model->layers[i];
        if (!matches(pattern, layer))
            continue;
        found++;
        for (size_t k = 0; k < layer->weight_count; k++) {
            layer->weight[k].rate = factor;
            layer->variable[k]->attr.variable.variable->rate = factor;
        }
    }
    return found > 0 ? LS_OK : no_layer(model, pattern);
}

/* ---- Statistics of batch norms ---- */

ls_status ls_model_set_norm_statistics(ls_model *model, ls_norm_statistics statistics)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_TRY(need_untraced(model, "ls_model_set_norm_statistics"));
    if ((unsigned)statistics > LS_PER_LANE)
        return ls_fail(LS_ERR_INVALID,
                       "ls_model_set_norm_statistics: there are no statistics %d; use LS_PER_BATCH or LS_PER_LANE",
                       (int)statistics);
    if (model->kind == LS_MODEL_CUSTOM)
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "ls_model_set_norm_statistics: model \"%s\" is a custom model; set .statistics of each batch norm "
            "in its function",
            model->name);
    for (size_t i = 0; i < model->layer_count; i++)
        if (model->layers[i]->spec.kind == LS_LAYER_BATCH_NORMALIZATION)
            model->layers[i]->spec.norm.statistics = statistics;
    return LS_OK;
}

size_t ls_model_norm_count(const ls_model *model, ls_norm_statistics statistics)
{
    LS_CLAIM_OR(ls_model_claimed(model), 0);
    size_t count = 0;
    for (size_t i = 0; model && i < model->layer_count; i++) {
        const ls_layer *spec = &model->layers[i]->spec;
        count +=
            spec->kind == LS_LAYER_BATCH_NORMALIZATION && !spec->options.frozen && spec->norm.statistics == statistics;
    }
    return count;
}
