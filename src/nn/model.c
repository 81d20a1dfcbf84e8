/* Building models: layers and their names; custom models; queries. */
#include "base/fpmode.h"
#include "device/context.h"
#include "nn/model.h"

#include <string.h>

#include "base/names.h"
#include "base/text.h"
#include "graph/claim.h"

/* ---- Life ---- */

ls_status ls_model_create(ls_context *ctx, ls_model_kind kind, const char *name, ls_model **out)
{
    static const char *const names[] = { "sequential", "functional", "model" };
    static const char *const calls[] = { "ls_sequential", "ls_functional_begin", "ls_custom" };
    if (!ctx || !out)
        return ls_fail(LS_ERR_INVALID, "the context or the model pointer (out) is NULL");
    if (name && !ls_is_utf8(name))
        return ls_fail(LS_ERR_INVALID, "%s: the name \"%s\" is not UTF-8, so no file could store it; use another",
                       calls[kind], name);
    LS_TRY(ls_context_begin(ctx, calls[kind]));
    ls_model *model = calloc(1, sizeof(*model));
    if (!model)
        return ls_fail(LS_ERR_MEMORY, "no memory for a model");
    model->kind = kind;
    model->context = ctx;
    model->name = ls_arena_strdup(&model->arena, name && *name ? name : names[kind]);
    ls_status status = model->name ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for a model");
    if (status == LS_OK)
        status = ls_graph_create(ctx, &model->graph);
    if (status == LS_OK)
        status = ls_graph_create(ctx, &model->draft);
    if (status == LS_OK)
        model->graph->owner = model->draft->owner = model->name;
    if (status != LS_OK) {
        ls_model_destroy(model);
        return status;
    }
    *out = model;
    return LS_OK;
}

void ls_model_destroy_graph(ls_graph *graph)
{
    if (graph)
        graph->owner = NULL;
    ls_graph_destroy(graph);
}

void ls_model_destroy(ls_model *model)
{
    if (!model || ls_context_is_inherited(model->context) || !ls_claim_to_destroy(model->graph, __func__))
        return;
    if (model->at_work) {
        ls_claim_end(&(ls_claim){ .graph = model->graph });
        ls_context_refuse(model->context,
                          "ls_model_destroy: %s is at work on model \"%s\"; destroy it after that has returned",
                          model->at_work, model->name);
        return;
    }
    if (model->job)
        model->drop_job(model->job);
    ls_model_destroy_graph(model->draft);
    ls_model_leave_graph(model);
    for (size_t i = 0; i < model->layer_count; i++)
        free(model->layers[i]);
    free(model->layers);
    free(model->variables);
    free(model->calls);
    free(model->inputs);
    free(model->outputs);
    free(model->output_shapes);
    ls_arena_free(&model->arena);
    free(model);
}

ls_status ls_model_keep_error(ls_model *model, ls_status status)
{
    if (status != LS_OK && model->status == LS_OK) {
        model->status = status;
        model->message = ls_arena_strdup(&model->arena, ls_last_error());
    }
    return status;
}

ls_status ls_model_kept_error(const ls_model *model)
{
    return ls_fail(model->status, "%s", model->message ? model->message : "no memory");
}

ls_status ls_model_need_ready(const ls_model *model, const char *what)
{
    if (!model)
        return ls_fail(LS_ERR_INVALID, "%s: the model is NULL", what);
    if (model->status != LS_OK)
        return ls_model_kept_error(model);
    if (!model->ready)
        return ls_fail(LS_ERR_STATE, "%s: model \"%s\" is not finished; call ls_functional_end first", what,
                       model->name);
    return LS_OK;
}

/* ---- Layers and their names ---- */

ls_model_layer *ls_model_find(const ls_model *model, const char *name)
{
    for (size_t i = 0; i < model->layer_count; i++)
        if (strcmp(model->layers[i]->name, name) == 0)
            return model->layers[i];
    return NULL;
}

ls_status ls_model_find_layer(const ls_model *model, const char *name, ls_model_layer **out)
{
    *out = ls_model_find(model, name);
    if (*out)
        return LS_OK;
    const char **names = malloc((model->layer_count + 1) * sizeof(*names));
    if (!names)
        return ls_fail(LS_ERR_MEMORY, "no memory for the names of %zu layers", model->layer_count);
    for (size_t i = 0; i < model->layer_count; i++)
        names[i] = model->layers[i]->name;
    ls_status status = ls_fail(LS_ERR_NOT_FOUND, "model \"%s\" has no layer \"%s\"%s", model->name, name,
                               ls_advise_name(name, names, model->layer_count).text);
    free(names);
    return status;
}

static ls_model_layer *find_unnamed(const ls_model *model, ls_layer_kind kind, int64_t unnamed)
{
    for (size_t i = 0; i < model->layer_count; i++)
        if (model->layers[i]->spec.kind == kind && model->layers[i]->unnamed == unnamed)
            return model->layers[i];
    return NULL;
}

static ls_status check_name(const char *what, const char *name)
{
    bool good = *name != 0 && ls_is_utf8(name);
    for (const char *c = name; *c; c++)
        good = good && (unsigned char)*c > ' ' && *c != ':' && *c != '"' && *c != '/';
    return good ? LS_OK
                : ls_fail(
                      LS_ERR_INVALID,
                      "\"%s\" is not a valid name of a %s; it must be UTF-8 without spaces, slashes, colons and quotes",
                      name, what);
}

/* Whether a layer inside a wrapper has the name, perhaps after "forward_". */
static bool is_inner_name(const ls_model *model, const char *name)
{
    static const char forward[] = "forward_";
    for (size_t i = 0; i < model->layer_count; i++) {
        const ls_layer *inner = ls_wrapper_inner(&model->layers[i]->spec);
        const char *own = inner ? inner->options.name : "";
        if (strcmp(own, name) == 0 ||
            (strncmp(own, forward, sizeof(forward) - 1) == 0 && strcmp(own + sizeof(forward) - 1, name) == 0))
            return true;
    }
    return false;
}

static const char *free_name(ls_model *model, const char *base, int64_t from)
{
    for (;; from++) {
        char name[64];
        snprintf(name, sizeof(name), from ? "%s_%lld" : "%s", base, (long long)from);
        if (!ls_model_find(model, name) && !is_inner_name(model, name))
            return ls_arena_strdup(&model->arena, name);
    }
}

/* A nested model without a name of its own has the default name of its class. */
static const char *base_of(const ls_layer *resolved)
{
    return resolved->kind == LS_LAYER_MODEL && resolved->nested.model ? resolved->nested.model->name
                                                                      : ls_layer_info_of(resolved->kind)->base;
}

/* Copies the layers inside a wrapper, which the caller owns. */
static ls_status own_inner(ls_model *model, ls_layer *spec)
{
    const ls_layer *inner = ls_wrapper_inner(spec);
    const char *name = inner && !inner->options.name ? free_name(model, base_of(inner), 0) : "";
    if (inner && inner->options.name)
        LS_TRY(check_name("layer", inner->options.name));
    return name ? ls_wrapper_own(spec, name, &model->arena) : ls_fail(LS_ERR_MEMORY, "no memory for a layer");
}

static ls_status use_again(ls_model_layer *layer, const ls_layer *resolved, bool share)
{
    if (!share)
        return ls_fail(LS_ERR_INVALID, "another layer of the model has this name; choose another");
    if (!ls_layer_is_same(&layer->spec, resolved))
        return ls_fail(LS_ERR_INVALID, "a %s with other options was called before by this name; choose another name",
                       ls_layer_info_of(layer->spec.kind)->class_name);
    return LS_OK;
}

ls_status ls_model_make_layer(ls_model *model, const ls_layer *resolved, const char *own_name, int64_t unnamed,
                              ls_model_layer **out)
{
    int index = LS_ANY_DEVICE;
    if (resolved->options.device)
        LS_TRY(ls_context_device(model->context, resolved->options.device, &index));
    LS_TRY(ls_grow(&model->layers, model->layer_count, &model->layer_room, sizeof(*model->layers)));
    ls_model_layer *layer = calloc(1, sizeof(*layer));
    const char *name =
        own_name ? ls_arena_strdup(&model->arena, own_name) : free_name(model, base_of(resolved), unnamed);
    if (!layer || !name) {
        free(layer);
        return ls_fail(LS_ERR_MEMORY, "no memory for a layer");
    }
    *layer =
        (ls_model_layer){ .spec = *resolved, .name = name, .number = (int64_t)model->layer_count, .unnamed = unnamed };
    layer->spec.options.name = name;
    layer->spec.options.device = NULL; /* owned by the caller; the index replaces it */
    layer->device = index;
    ls_status status = own_inner(model, &layer->spec);
    if (status == LS_OK)
        status = ls_layer_keep_options(&layer->spec, &model->arena);
    if (status != LS_OK) {
        free(layer);
        return status;
    }
    /* Uses the same counter as random ops added to the graph directly. */
    if (ls_layer_info_of(resolved->kind)->random)
        layer->random = model->graph->random_count++;
    model->layers[model->layer_count++] = layer;
    *out = layer;
    return LS_OK;
}

static ls_status add_layer(ls_model *model, const ls_layer *spec, int64_t unnamed, bool share, ls_model_layer **out)
{
    ls_layer resolved;
    LS_TRY(ls_layer_resolve(spec, &resolved));
    if (resolved.options.name)
        LS_TRY(check_name("layer", resolved.options.name));
    ls_model_layer *known = resolved.options.name ? ls_model_find(model, resolved.options.name)
                                                  : find_unnamed(model, resolved.kind, unnamed);
    if (known) {
        *out = known;
        return use_again(known, &resolved, share);
    }
    if (resolved.kind != LS_LAYER_MODEL)
        return ls_model_make_layer(model, &resolved, resolved.options.name, unnamed, out);
    if (model->ready)
        return ls_fail(LS_ERR_STATE,
                       "the layer was not called when the model was made; the function must call the same layers "
                       "every time");
    ls_model *source = resolved.nested.model;
    LS_TRY(ls_model_make_layer(model, &resolved, resolved.options.name, unnamed, out));
    (*out)->spec.nested.model = NULL; /* belongs to the caller */
    return ls_nested_fill(model, *out, source);
}

ls_status ls_model_add_layer(ls_model *model, const ls_layer *spec, int64_t unnamed, bool share, ls_model_layer **out)
{
    ls_status status = add_layer(model, spec, unnamed, share, out);
    if (status == LS_OK)
        return LS_OK;
    const char *name = spec->options.name ? spec->options.name : ls_layer_info_of(spec->kind)->base;
    return ls_layer_fail_within(spec->kind, name, NULL, 0, status);
}

static ls_status make_weight(ls_model *model, const char *name, const ls_weight *weight, ls_model_layer **out)
{
    LS_TRY(check_name("weight", name));
    LS_TRY(ls_grow(&model->layers, model->layer_count, &model->layer_room, sizeof(*model->layers)));
    ls_model_layer *layer = calloc(1, sizeof(*layer));
    const char *copy = ls_arena_strdup(&model->arena, name);
    if (!layer || !copy) {
        free(layer);
        return ls_fail(LS_ERR_MEMORY, "no memory for a weight");
    }
    *layer = (ls_model_layer){ .name = copy,
                               .number = (int64_t)model->layer_count,
                               .unnamed = -1,
                               .device = LS_ANY_DEVICE,
                               .weight = { *weight },
                               .weight_count = 1,
                               .output = weight->shape };
    model->layers[model->layer_count++] = layer;
    *out = layer;
    return LS_OK;
}

ls_status ls_model_add_weight(ls_model *model, const char *name, const ls_weight *weight, bool making,
                              ls_model_layer **out)
{
    char before[LS_SHAPE_TEXT], now[LS_SHAPE_TEXT];
    ls_model_layer *known = ls_model_find(model, name);
    if (!known)
        return making ? make_weight(model, name, weight, out)
                      : ls_fail(LS_ERR_STATE, "the weight was not requested when the model was made; the function must "
                                              "request the same weights every time");
    if (known->spec.kind != LS_LAYER_NONE)
        return ls_fail(LS_ERR_INVALID, "a layer (%s) has this name; choose another",
                       ls_layer_info_of(known->spec.kind)->class_name);
    if (!ls_shape_equal(&known->weight[0].shape, &weight->shape) || known->weight[0].trainable != weight->trainable)
        return ls_fail(LS_ERR_INVALID, "the weight was requested before as %s with shape %s, now as %s with shape %s",
                       known->weight[0].trainable ? "trainable" : "frozen",
                       ls_shape_format(&known->weight[0].shape, before), weight->trainable ? "trainable" : "frozen",
                       ls_shape_format(&weight->shape, now));
    *out = known;
    return LS_OK;
}

static int64_t count_unnamed(const ls_model *model, ls_layer_kind kind)
{
    int64_t count = 0;
    for (size_t i = 0; i < model->layer_count; i++)
        count += model->layers[i]->spec.kind == kind && model->layers[i]->unnamed >= 0;
    return count;
}

ls_status ls_model_new_layer(ls_model *model, const ls_layer *spec, ls_model_layer **out)
{
    return ls_model_add_layer(model, spec, spec->options.name ? -1 : count_unnamed(model, spec->kind), false, out);
}

ls_status ls_model_add_input(ls_model *model, const ls_layer *spec, ls_model_layer **out)
{
    ls_model_layer *layer;
    if (spec->kind != LS_LAYER_INPUT)
        return ls_fail(LS_ERR_INVALID, "model \"%s\": an input must be made by ls_input; this is a %s", model->name,
                       ls_layer_info_of(spec->kind)->class_name);
    LS_TRY(ls_model_new_layer(model, spec, &layer));
    LS_TRY(ls_grow(&model->inputs, model->input_count, &model->input_room, sizeof(*model->inputs)));
    const ls_shape *sizes = &layer->spec.input.shape;
    layer->output = (ls_shape){ .rank = sizes->rank + 1, .dims = { LS_BATCH } };
    for (int i = 0; i < sizes->rank; i++)
        layer->output.dims[i + 1] = sizes->dims[i];
    layer->output_dtype = layer->spec.input.dtype;
    layer->built = true;
    model->inputs[model->input_count++] = layer;
    *out = layer;
    return LS_OK;
}

/* ---- Custom models ---- */

static ls_status draft_custom(ls_model *model, bool training, ls_tensor **inputs, ls_tensor **outputs)
{
    ls_call call;
    ls_call_begin(&call, model, model->draft, training, true);
    ls_status status = ls_model_make_inputs(model, model->draft, inputs);
    if (status == LS_OK)
        status = ls_model_run_calls(model, &call, inputs, outputs);
    ls_call_end(&call);
    return status;
}

static ls_status name_outputs(ls_model *model)
{
    const char **names = ls_arena_alloc(&model->arena, model->output_count * sizeof(*names));
    for (size_t i = 0; names && i < model->output_count; i++) {
        char name[32];
        snprintf(name, sizeof(name), "output_%zu", i + 1);
        if (!(names[i] = ls_arena_strdup(&model->arena, name)))
            names = NULL;
    }
    model->output_names = names;
    return names ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for the names of outputs");
}

static ls_status make_custom(ls_model *model, const ls_layer *inputs, size_t input_count)
{
    ls_model_layer *layer;
    for (size_t i = 0; i < input_count; i++)
        LS_TRY(ls_model_add_input(model, &inputs[i], &layer));
    ls_tensor **tensors = calloc(input_count + model->output_count, sizeof(ls_tensor *));
    model->output_shapes = calloc(model->output_count, sizeof(*model->output_shapes));
    ls_status status = tensors && model->output_shapes ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for a model");
    for (int training = 1; training >= 0 && status == LS_OK; training--)
        status = draft_custom(model, training, tensors, tensors + input_count);
    for (size_t i = 0; i < model->output_count && status == LS_OK; i++)
        model->output_shapes[i] = tensors[input_count + i]->shape;
    free(tensors);
    LS_TRY(status);
    LS_TRY(name_outputs(model));
    ls_model_destroy_graph(model->draft);
    model->draft = NULL;
    model->ready = true;
    return LS_OK;
}

ls_status ls_custom(ls_context *ctx, const char *name, const ls_layer *inputs, size_t input_count, size_t output_count,
                    ls_call_function function, void *user, ls_model **out)
{
    LS_OWN_FP_MODE;
    ls_model *model;
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_custom: the model pointer (out) is NULL");
    if (!inputs || input_count == 0 || output_count == 0 || !function)
        return ls_fail(LS_ERR_INVALID, "model \"%s\": a custom model must have inputs, outputs and a function",
                       name ? name : "model");
    LS_TRY(ls_model_create(ctx, LS_MODEL_CUSTOM, name, &model));
    model->function = function;
    model->user = user;
    model->output_count = output_count;
    ls_status status = make_custom(model, inputs, input_count);
    if (status != LS_OK) {
        ls_model_destroy(model);
        return status;
    }
    *out = model;
    return LS_OK;
}

/* ---- Queries ---- */

const char *ls_model_name(const ls_model *model)
{
    return model ? model->name : "";
}

ls_graph *ls_model_graph(ls_model *model)
{
    return model ? model->graph : NULL;
}

size_t ls_model_layer_count(const ls_model *model)
{
    return model ? model->layer_count : 0;
}

const char *ls_model_layer_name(const ls_model *model, size_t index)
{
    return model && index < model->layer_count ? model->layers[index]->name : "";
}

size_t ls_model_input_count(const ls_model *model)
{
    return model ? model->input_count : 0;
}

size_t ls_model_output_count(const ls_model *model)
{
    return model ? model->output_count : 0;
}

ls_shape ls_model_input_shape(const ls_model *model, size_t input)
{
    return model && input < model->input_count ? model->inputs[input]->output : LS_SCALAR;
}

ls_dtype ls_model_input_dtype(const ls_model *model, size_t input)
{
    return model && input < model->input_count ? model->inputs[input]->output_dtype : LS_F32;
}

const char *ls_model_input_name(const ls_model *model, size_t input)
{
    return model && input < model->input_count ? model->inputs[input]->name : "";
}

ls_shape ls_model_output_shape(const ls_model *model, size_t output)
{
    return model && model->output_shapes && output < model->output_count ? model->output_shapes[output] : LS_SCALAR;
}

const char *ls_model_output_name(const ls_model *model, size_t output)
{
    if (!model || output >= model->output_count)
        return "";
    if (model->outputs)
        return model->calls[model->outputs[output]].layer->name;
    return model->output_names ? model->output_names[output] : "";
}

static const ls_model_variable_at *variable_at(const ls_model *model, size_t index)
{
    return model && index < model->variable_count ? &model->variables[index] : NULL;
}

size_t ls_model_variable_count(const ls_model *model)
{
    return model ? model->variable_count : 0;
}

ls_tensor *ls_model_variable(const ls_model *model, size_t index)
{
    const ls_model_variable_at *at = variable_at(model, index);
    return at ? at->layer->variable[at->index] : NULL;
}

const char *ls_model_variable_name(const ls_model *model, size_t index)
{
    const char *name = ls_tensor_name(ls_model_variable(model, index));
    return *name && model->has_joined ? name + strlen(model->name) + 1 : name;
}

bool ls_model_variable_is_trainable(const ls_model *model, size_t index)
{
    const ls_model_variable_at *at = variable_at(model, index);
    return at && at->layer->weight[at->index].trainable;
}

ls_tensor *const *ls_model_trainable_variables(ls_model *model, size_t *count)
{
    size_t found = 0;
    if (count)
        *count = 0;
    LS_CLAIM_OR(ls_model_claimed(model), NULL);
    if (!model || !count || !model->ready)
        return NULL;
    if (!model->trainable)
        model->trainable = ls_arena_alloc(&model->arena, (model->variable_count + 1) * sizeof(ls_tensor *));
    for (size_t i = 0; model->trainable && i < model->variable_count; i++)
        if (ls_model_variable_is_trainable(model, i))
            model->trainable[found++] = ls_model_variable(model, i);
    *count = found;
    return model->trainable;
}

int64_t ls_model_parameter_count(const ls_model *model)
{
    int64_t sum = 0, count;
    for (size_t i = 0; model && i < model->variable_count; i++)
        if (ls_shape_count(&model->variables[i].layer->weight[model->variables[i].index].shape, 1, &count))
            sum += count;
    return sum;
}
