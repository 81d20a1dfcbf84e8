/* A model as a layer of another model: copies of its layers, weights and calls. */
#include <string.h>

#include "base/text.h"
#include "graph/claim.h"
#include "nn/layer_family.h"
#include "nn/model.h"

/* ---- The layer ---- */

static bool has_default_name(const ls_model *model)
{
    return strcmp(model->name, model->kind == LS_MODEL_SEQUENTIAL ? "sequential" : "functional") == 0;
}

static ls_status resolve_nested(ls_layer *layer)
{
    const ls_model *model = layer->nested.model;
    if (!model)
        return ls_fail(LS_ERR_INVALID, "the model is NULL; pass a finished model to ls_nested");
    LS_TRY(ls_model_need_ready(model, "ls_nested"));
    if (model->kind == LS_MODEL_CUSTOM)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "model \"%s\" is a custom model; only Sequential and Functional models can be nested; call its "
                       "function in that of a custom model",
                       model->name);
    if (!layer->options.name && !has_default_name(model))
        layer->options.name = model->name;
    return LS_OK;
}

static const ls_layer_info kinds[] = {
    { .kind = LS_LAYER_MODEL,
      .class_name = "Model",
      .base = "model",
      .function = "ls_nested",
      .resolve = resolve_nested,
      .many = true },
};

const ls_layer_family ls_nested_family = { .kinds = kinds, .kind_count = 1 };

/* ---- Queries ---- */

const char *ls_model_layer_own_name(const ls_model_layer *layer)
{
    return layer->inside ? layer->name + strlen(layer->inside->name) + 1 : layer->name;
}

const char *ls_model_layer_class(const ls_model_layer *layer)
{
    if (layer->inner)
        return layer->inner->kind == LS_MODEL_SEQUENTIAL ? "Sequential" : "Functional";
    const char *name = ls_layer_info_of(layer->spec.kind)->class_name;
    if (layer->spec.kind == LS_LAYER_REGISTERED)
        ls_registered_find(layer->spec.registered.class_name, &name, NULL);
    return name;
}

const char *ls_model_layer_base(const ls_model_layer *layer)
{
    if (layer->inner)
        return layer->inner->kind == LS_MODEL_SEQUENTIAL ? "sequential" : "functional";
    const char *base = ls_layer_info_of(layer->spec.kind)->base;
    if (layer->spec.kind == LS_LAYER_REGISTERED)
        ls_registered_find(layer->spec.registered.class_name, NULL, &base);
    return base;
}

bool ls_model_layer_is_inside(const ls_model_layer *layer, const ls_model_layer *container)
{
    for (; layer; layer = layer->inside)
        if (layer == container)
            return true;
    return false;
}

int64_t ls_model_layer_parameters(const ls_model *model, const ls_model_layer *layer)
{
    const ls_model *root = ls_model_root(model);
    int64_t sum = 0, count;
    for (size_t v = 0; v < root->variable_count; v++) {
        const ls_model_variable_at *at = &root->variables[v];
        if (ls_model_layer_is_inside(at->layer, layer) &&
            ls_shape_count(&at->layer->weight[at->index].shape, 1, &count))
            sum += count;
    }
    return sum;
}

/* ---- Copies ---- */

static ls_status no_memory(const ls_model *source)
{
    return ls_fail(LS_ERR_MEMORY, "no memory for a copy of model \"%s\"", source->name);
}

static ls_status copy_value(ls_model *model, const ls_tensor *from, ls_tensor *to)
{
    ls_variable *old = from->attr.variable.variable, *new = to->attr.variable.variable;
    if (!old->data)
        return LS_OK; /* gets its initial value later, like the variable of a new layer */
    LS_TRY(ls_variable_sync_to_host(old));
    LS_TRY(ls_variable_take(model->graph, new, to->name));
    memcpy(new->data, old->data, old->bytes);
    ls_variable_written(new, true);
    return LS_OK;
}

static ls_status copy_weights(ls_model *model, const ls_model_layer *from, ls_model_layer *to, int device)
{
    memcpy(to->weight, from->weight, sizeof(to->weight));
    memcpy(to->learns, from->learns, sizeof(to->learns));
    to->weight_count = from->weight_count;
    for (size_t i = 0; i < to->weight_count; i++)
        to->weight[i].trainable = to->learns[i] && !to->spec.options.frozen;
    LS_TRY(ls_model_make_variables(model, to, device));
    for (size_t i = 0; i < to->weight_count; i++)
        LS_TRY(copy_value(model, from->variable[i], to->variable[i]));
    return LS_OK;
}

static ls_status copy_inner(ls_model *model, ls_model_layer *container, const ls_model *source, int device);

ls_status ls_model_copy_layer(ls_model *model, ls_model_layer *container, const ls_model_layer *from, int device,
                              ls_model_layer **out)
{
    ls_text name = { 0 };
    ls_layer spec = from->spec;
    if (container)
        ls_text_add(&name, "%s/", container->name);
    ls_text_put(&name, ls_model_layer_own_name(from));
    spec.options.frozen = spec.options.frozen || (container && container->spec.options.frozen);
    ls_status status = ls_model_make_layer(model, &spec, ls_text_get(&name), -1, out);
    ls_text_free(&name);
    LS_TRY(status);
    ls_model_layer *layer = *out;
    layer->inside = container;
    layer->device = from->device;
    layer->output = from->output;
    layer->output_dtype = from->output_dtype;
    device = from->device == LS_ANY_DEVICE ? device : from->device;
    return from->inner ? copy_inner(model, layer, from->inner, device) : copy_weights(model, from, layer, device);
}

static ls_status copy_calls(ls_model *inner, const ls_model *source, ls_model_layer *const *copies)
{
    ls_arena *arena = &inner->root->arena;
    size_t inputs = source->input_count + 1, outputs = source->output_count + 1;
    inner->calls = ls_arena_alloc(arena, (source->call_count + 1) * sizeof(*inner->calls));
    inner->inputs = ls_arena_alloc(arena, inputs * sizeof(*inner->inputs));
    inner->outputs = ls_arena_alloc(arena, outputs * sizeof(*inner->outputs));
    inner->output_shapes = ls_arena_alloc(arena, outputs * sizeof(*inner->output_shapes));
    if (!inner->calls || !inner->inputs || !inner->outputs || !inner->output_shapes)
        return no_memory(source);
    for (size_t c = 0; c < source->call_count; c++) {
        const ls_model_call *from = &source->calls[c];
        int *in = ls_arena_alloc(arena, (from->input_count + 1) * sizeof(*in));
        if (!in)
            return no_memory(source);
        if (from->input_count > 0)
            memcpy(in, from->inputs, from->input_count * sizeof(*in));
        inner->calls[c] = *from;
        inner->calls[c].layer = copies[from->layer->number];
        inner->calls[c].inputs = in;
        inner->calls[c].value = NULL;
    }
    inner->call_count = source->call_count;
    for (; inner->input_count < source->input_count; inner->input_count++)
        inner->inputs[inner->input_count] = copies[source->inputs[inner->input_count]->number];
    inner->output_count = source->output_count;
    memcpy(inner->outputs, source->outputs, source->output_count * sizeof(*inner->outputs));
    memcpy(inner->output_shapes, source->output_shapes, source->output_count * sizeof(*inner->output_shapes));
    return LS_OK;
}

static ls_status copy_inner(ls_model *model, ls_model_layer *container, const ls_model *source, int device)
{
    const ls_model *owner = ls_model_root(source);
    ls_model *inner = ls_arena_alloc(&model->arena, sizeof(*inner));
    ls_model_layer **copies = calloc(owner->layer_count + 1, sizeof(*copies));
    ls_status status = inner && copies ? LS_OK : no_memory(source);
    for (size_t i = 0; i < owner->layer_count && status == LS_OK; i++)
        if (ls_model_owns(source, owner->layers[i]))
            status = ls_model_copy_layer(model, container, owner->layers[i], device, &copies[i]);
    if (status == LS_OK) {
        *inner = (ls_model){ .kind = source->kind,
                             .root = model,
                             .container = container,
                             .context = model->context,
                             .graph = model->graph,
                             .name = ls_model_layer_own_name(container),
                             .ready = true };
        status = copy_calls(inner, source, copies);
        container->inner = inner;
        container->built = true;
    }
    free(copies);
    return status;
}

ls_status ls_model_check_source(const ls_model *model, const ls_model *source)
{
    if (source->context != model->context)
        return ls_fail(LS_ERR_INVALID, "model \"%s\" belongs to another context; make both models in one context",
                       source->name);
    return LS_OK;
}

ls_status ls_nested_fill(ls_model *model, ls_model_layer *container, ls_model *source)
{
    LS_CLAIM(ls_model_claimed(source));
    LS_TRY(ls_model_check_source(model, source));
    int device = container->device == LS_ANY_DEVICE ? model->draft->device : container->device;
    return copy_inner(model, container, source, device);
}
