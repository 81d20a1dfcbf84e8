/* Functional models, which call layers on symbols, and Sequential ones, which are a chain of them. */
#include <string.h>

#include "base/fpmode.h"
#include "graph/claim.h"
#include "nn/model.h"

/* ---- Calls ---- */

static ls_symbol symbol_error(ls_model *model, ls_status status)
{
    ls_model_keep_error(model, status);
    return (ls_symbol){ .model = model, .index = -1 };
}

static ls_status add_call(ls_model *model, ls_model_layer *layer, const ls_symbol *inputs, size_t count,
                          ls_tensor *value, int *out)
{
    LS_TRY(ls_grow(&model->calls, model->call_count, &model->call_room, sizeof(*model->calls)));
    int *from = ls_arena_alloc(&model->arena, (count ? count : 1) * sizeof(*from));
    if (!from || model->call_count >= INT32_MAX)
        return ls_fail(LS_ERR_MEMORY, "no memory for a call of layer \"%s\"", layer->name);
    for (size_t i = 0; i < count; i++)
        from[i] = inputs[i].index;
    int64_t number = 0;
    for (size_t i = 0; i < model->call_count; i++)
        number += model->calls[i].layer == layer && model->calls[i].output == 0;
    *out = (int)model->call_count;
    model->calls[model->call_count++] =
        (ls_model_call){ .layer = layer, .number = number, .inputs = from, .input_count = count, .value = value };
    return LS_OK;
}

/* The spec of an input of another model, without its name. */
static ls_layer input_like(const ls_model_layer *input)
{
    return ls_input(.shape = input->spec.input.shape, .dtype = input->spec.input.dtype);
}

static ls_status add_output(ls_model *model, int call, size_t output, ls_tensor *value)
{
    LS_TRY(ls_grow(&model->calls, model->call_count, &model->call_room, sizeof(*model->calls)));
    const ls_model_call *main = &model->calls[call];
    model->calls[model->call_count++] =
        (ls_model_call){ .layer = main->layer, .number = main->number, .output = (int)output, .value = value };
    return LS_OK;
}

static ls_status check_symbols(const ls_model *model, const ls_symbol *symbols, size_t count)
{
    if (!symbols || count == 0)
        return ls_fail(LS_ERR_INVALID, "model \"%s\": a layer is called without an input", model->name);
    for (size_t i = 0; i < count; i++)
        if (symbols[i].model != model || symbols[i].index < 0 || (size_t)symbols[i].index >= model->call_count)
            return ls_fail(LS_ERR_INVALID, "model \"%s\": symbol %zu belongs to another model", model->name, i);
    return LS_OK;
}

static bool open_for_calls(ls_model *model)
{
    if (model->status == LS_OK && model->ready)
        ls_model_keep_error(
            model, ls_fail(LS_ERR_STATE, "model \"%s\" is finished; add layers before ls_functional_end", model->name));
    return model->status == LS_OK;
}

static ls_status call_symbols(ls_model *model, ls_model_layer *layer, const ls_symbol *inputs, size_t count, int *out)
{
    ls_tensor **values = malloc(count * sizeof(ls_tensor *)), *y = NULL;
    if (!values)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu inputs of a layer", count);
    for (size_t i = 0; i < count; i++)
        values[i] = model->calls[inputs[i].index].value;
    ls_call call = { .model = model, .graph = model->draft, .making = true };
    ls_status status = ls_call_apply(&call, layer, values, count, &y);
    free(values);
    ls_call_end(&call);
    if (status == LS_OK)
        status = add_call(model, layer, inputs, count, y, out);
    for (size_t i = 1; i < ls_model_layer_outputs(layer) && status == LS_OK; i++)
        status = add_output(model, *out, i, ls_call_output(layer, i));
    return status;
}

ls_status ls_functional_begin(ls_context *ctx, const char *name, ls_model **out)
{
    return ls_model_create(ctx, LS_MODEL_FUNCTIONAL, name, out);
}

ls_symbol ls_symbol_input(ls_model *model, ls_layer input)
{
    LS_CLAIM_OR(ls_model_claimed(model), ((ls_symbol){ model, -1 }));
    ls_model_layer *layer;
    int index = -1;
    if (!model)
        return (ls_symbol){ .index = -1 };
    if (!open_for_calls(model))
        return (ls_symbol){ model, -1 };
    ls_status status = ls_model_add_input(model, &input, &layer);
    if (status == LS_OK) {
        ls_tensor *value = ls_op_input(model->draft, NULL, layer->output_dtype, layer->output);
        status = ls_tensor_check(value);
        status = status == LS_OK ? add_call(model, layer, NULL, 0, value, &index)
                                 : ls_layer_fail_within(LS_LAYER_INPUT, layer->name, NULL, 0, status);
    }
    return status == LS_OK ? (ls_symbol){ model, index } : symbol_error(model, status);
}

ls_symbol ls_symbol_call_with(ls_model *model, ls_layer layer, const ls_symbol *inputs, size_t count)
{
    LS_CLAIM_OR(ls_model_claimed(model), ((ls_symbol){ model, -1 }));
    LS_OWN_FP_MODE;
    ls_model_layer *made;
    int index = -1;
    if (!model)
        return (ls_symbol){ .index = -1 };
    if (!open_for_calls(model))
        return (ls_symbol){ model, -1 };
    ls_status status = check_symbols(model, inputs, count);
    if (status == LS_OK)
        status = ls_model_new_layer(model, &layer, &made);
    if (status == LS_OK)
        status = call_symbols(model, made, inputs, count, &index);
    return status == LS_OK ? (ls_symbol){ model, index } : symbol_error(model, status);
}

ls_symbol ls_symbol_share_with(ls_symbol symbol, const ls_symbol *inputs, size_t count)
{
    ls_model *model = symbol.model;
    int index = -1;
    LS_CLAIM_OR(ls_model_claimed(model), ((ls_symbol){ model, -1 }));
    if (!model)
        return (ls_symbol){ .index = -1 };
    if (!open_for_calls(model))
        return (ls_symbol){ model, -1 };
    ls_status status = check_symbols(model, &symbol, 1);
    if (status == LS_OK)
        status = check_symbols(model, inputs, count);
    if (status == LS_OK)
        status = call_symbols(model, model->calls[symbol.index].layer, inputs, count, &index);
    return status == LS_OK ? (ls_symbol){ model, index } : symbol_error(model, status);
}

static ls_status find_output(ls_symbol symbol, size_t output, int *out)
{
    LS_TRY(check_symbols(symbol.model, &symbol, 1));
    const ls_model_call *call = &symbol.model->calls[symbol.index];
    size_t count = ls_model_layer_outputs(call->layer);
    if (output >= count)
        return ls_fail(LS_ERR_INVALID, "model \"%s\": layer \"%s\" (%s) has %zu output%s; there is no output %zu",
                       symbol.model->name, call->layer->name, ls_model_layer_class(call->layer), count,
                       count == 1 ? "" : "s", output);
    *out = symbol.index - call->output + (int)output;
    return LS_OK;
}

ls_symbol ls_symbol_output(ls_symbol symbol, size_t output)
{
    ls_model *model = symbol.model;
    int index = -1;
    LS_CLAIM_OR(ls_model_claimed(model), ((ls_symbol){ model, -1 }));
    if (!model)
        return (ls_symbol){ .index = -1 };
    if (!open_for_calls(model))
        return (ls_symbol){ model, -1 };
    ls_status status = find_output(symbol, output, &index);
    return status == LS_OK ? (ls_symbol){ model, index } : symbol_error(model, status);
}

/* ---- Layers of another model ---- */

/* Finds the call whose output is that of a layer. */
static ls_status find_call(const ls_model *source, const char *name, int *out)
{
    size_t calls = 0;
    ls_model_layer *layer;
    LS_TRY(ls_model_find_layer(source, name, &layer));
    if (!ls_model_owns(source, layer))
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "layer \"%s\" is inside the nested model \"%s\"; only outputs of the model's own layers can be used", name,
            layer->inside->name);
    for (size_t c = 0; c < source->call_count; c++)
        if (source->calls[c].layer == layer && source->calls[c].output == 0) {
            *out = (int)c;
            calls++;
        }
    return calls == 1 ? LS_OK
                      : ls_fail(LS_ERR_INVALID,
                                "layer \"%s\" is called %zu times, so it has several outputs; use a "
                                "layer that is called once",
                                name, calls);
}

static ls_status source_of(ls_model *model, ls_model *source, ls_model_source **out)
{
    for (ls_model_source *s = model->sources; s; s = s->next)
        if (s->source == source) {
            *out = s;
            return LS_OK;
        }
    LS_TRY(ls_model_check_source(model, source));
    ls_model_source *s = ls_arena_alloc(&model->arena, sizeof(*s));
    int *calls = ls_arena_alloc(&model->arena, (source->call_count + 1) * sizeof(*calls));
    if (!s || !calls)
        return ls_fail(LS_ERR_MEMORY, "no memory for a copy of model \"%s\"", source->name);
    for (size_t c = 0; c < source->call_count; c++)
        calls[c] = -1;
    *s = (ls_model_source){ .source = source, .calls = calls, .next = model->sources };
    *out = model->sources = s;
    return LS_OK;
}

/* Marks what a call needs and what is not copied yet. Inputs come before the calls that use them. */
static void mark(const ls_model_source *s, int call, bool *needed)
{
    needed[call] = true;
    for (int c = call; c >= 0; c--) {
        const ls_model_call *at = &s->source->calls[c];
        needed[c] = needed[c] && s->calls[c] < 0;
        if (needed[c] && at->output > 0)
            needed[c - at->output] = true;
        for (size_t i = 0; needed[c] && i < at->input_count; i++)
            needed[at->inputs[i]] = true;
    }
}

static ls_status copied_layer(ls_model *model, const ls_model_source *s, const ls_model_layer *from,
                              ls_model_layer **out)
{
    for (size_t c = 0; c < s->source->call_count; c++)
        if (s->source->calls[c].layer == from && s->calls[c] >= 0) {
            *out = model->calls[s->calls[c]].layer;
            return LS_OK;
        }
    if (ls_model_find(model, from->name))
        return ls_fail(LS_ERR_INVALID, "another layer of the model has the name \"%s\"; choose another", from->name);
    return ls_model_copy_layer(model, NULL, from, model->draft->device, out);
}

static ls_status copy_input(ls_model *model, const ls_model_layer *from, int *out)
{
    ls_model_layer *layer;
    ls_layer spec = input_like(from);
    spec.options.name = from->name;
    LS_TRY(ls_model_add_input(model, &spec, &layer));
    ls_tensor *value = ls_op_input(model->draft, NULL, layer->output_dtype, layer->output);
    LS_TRY(ls_tensor_check(value));
    return add_call(model, layer, NULL, 0, value, out);
}

static ls_status copy_call(ls_model *model, ls_model_source *s, int c)
{
    const ls_model_call *at = &s->source->calls[c];
    ls_model_layer *layer;
    if (at->layer->spec.kind == LS_LAYER_INPUT)
        return copy_input(model, at->layer, &s->calls[c]);
    if (at->output > 0) {
        s->calls[c] = s->calls[c - at->output] + at->output;
        return LS_OK;
    }
    ls_symbol *inputs = malloc((at->input_count + 1) * sizeof(*inputs));
    if (!inputs)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu inputs of a layer", at->input_count);
    for (size_t i = 0; i < at->input_count; i++)
        inputs[i] = (ls_symbol){ model, s->calls[at->inputs[i]] };
    ls_status status = copied_layer(model, s, at->layer, &layer);
    if (status == LS_OK)
        status = call_symbols(model, layer, inputs, at->input_count, &s->calls[c]);
    free(inputs);
    return status;
}

static ls_status copy_from(ls_model *model, ls_model *source, const char *layer, int *out)
{
    int call = -1;
    ls_model_source *s;
    LS_CLAIM(ls_model_claimed(source));
    LS_TRY(ls_model_need_ready(source, "ls_symbol_from"));
    if (!layer)
        return ls_fail(LS_ERR_INVALID, "ls_symbol_from: the layer is NULL");
    if (source->kind == LS_MODEL_CUSTOM)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "model \"%s\" is a custom model; only layers of Sequential and Functional "
                       "models can be copied",
                       source->name);
    LS_TRY(find_call(source, layer, &call));
    LS_TRY(source_of(model, source, &s));
    bool *needed = calloc(source->call_count + 1, sizeof(*needed));
    if (!needed)
        return ls_fail(LS_ERR_MEMORY, "no memory for a copy of model \"%s\"", source->name);
    mark(s, call, needed);
    ls_status status = LS_OK;
    for (int c = 0; c <= call && status == LS_OK; c++)
        if (needed[c])
            status = copy_call(model, s, c);
    free(needed);
    *out = s->calls[call];
    return status;
}

ls_symbol ls_symbol_from(ls_model *model, ls_model *source, const char *layer)
{
    LS_CLAIM_OR(ls_model_claimed(model), ((ls_symbol){ model, -1 }));
    LS_OWN_FP_MODE;
    int index = -1;
    if (!model)
        return (ls_symbol){ .index = -1 };
    if (!open_for_calls(model))
        return (ls_symbol){ model, -1 };
    ls_status status = copy_from(model, source, layer, &index);
    return status == LS_OK ? (ls_symbol){ model, index }
                           : symbol_error(model, ls_fail_within(status, "model \"%s\"", model->name));
}

/* ---- Another last layer ---- */

static ls_status replace_head(ls_model *model, ls_model *source, int64_t units)
{
    const ls_model_call *last = &source->calls[source->outputs[0]];
    ls_layer head = last->layer->spec;
    if (source->output_count != 1 || head.kind != LS_LAYER_DENSE || last->number > 0)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "model \"%s\" has %zu outputs and ends with \"%s\" (%s); it must have one output and end with a "
                       "Dense layer that is called once; copy its layers with ls_symbol_from",
                       source->name, source->output_count, last->layer->name, ls_model_layer_class(last->layer));
    const ls_model_call *before = &source->calls[last->inputs[0]];
    head.options.first = units;
    ls_symbol x = ls_symbol_from(model, source, before->layer->name);
    x = ls_symbol_call(model, head, before->output > 0 ? ls_symbol_output(x, (size_t)before->output) : x);
    return ls_functional_end(model, x);
}

ls_status ls_model_replace_head(ls_model *model, int64_t units, ls_model **out)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    ls_model *made = NULL;
    LS_TRY(ls_model_need_ready(model, "ls_model_replace_head"));
    if (!out || units < 1)
        return ls_fail(LS_ERR_INVALID,
                       "ls_model_replace_head: %lld units, and the model pointer (out) is %s; at least 1 "
                       "unit is needed",
                       (long long)units, out ? "set" : "NULL");
    if (model->kind == LS_MODEL_CUSTOM)
        return ls_fail(LS_ERR_UNSUPPORTED, "ls_model_replace_head: model \"%s\" is a custom model; change its function",
                       model->name);
    LS_TRY(ls_functional_begin(model->context, model->name, &made));
    made->seed = made->graph->seed = model->seed;
    ls_status status = replace_head(made, model, units);
    if (status == LS_OK)
        *out = made;
    else
        ls_model_destroy(made);
    return status;
}

/* ---- The end ---- */

/* A layer without an output would never be trained. */
static ls_status check_needed(ls_model *model)
{
    for (size_t i = 0; i < model->output_count; i++)
        model->calls[model->outputs[i]].needed = true;
    for (size_t c = model->call_count; c-- > 0;) {
        const ls_model_call *at = &model->calls[c];
        if (at->output > 0) { /* a call is needed if one of its outputs is */
            model->calls[c - (size_t)at->output].needed |= at->needed;
            continue;
        }
        if (!at->needed && at->layer->spec.kind != LS_LAYER_INPUT)
            return ls_fail(
                LS_ERR_INVALID,
                "model \"%s\": layer \"%s\" (%s) leads to no output; add its output to ls_functional_end or remove it",
                model->name, at->layer->name, ls_layer_info_of(at->layer->spec.kind)->class_name);
        for (size_t i = 0; at->needed && i < at->input_count; i++)
            model->calls[at->inputs[i]].needed = true;
    }
    return LS_OK;
}

static ls_status finish(ls_model *model, const ls_symbol *outputs, size_t count)
{
    if (model->input_count == 0)
        return ls_fail(LS_ERR_INVALID, "model \"%s\" has no input; add one with ls_symbol_input", model->name);
    if (!outputs || count == 0)
        return ls_fail(LS_ERR_INVALID, "model \"%s\" has no output; pass one to ls_functional_end", model->name);
    LS_TRY(check_symbols(model, outputs, count));
    model->outputs = calloc(count, sizeof(*model->outputs));
    model->output_shapes = calloc(count, sizeof(*model->output_shapes));
    if (!model->outputs || !model->output_shapes)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu outputs", count);
    model->output_count = count;
    for (size_t i = 0; i < count; i++) {
        model->outputs[i] = outputs[i].index;
        model->output_shapes[i] = model->calls[outputs[i].index].value->shape;
    }
    LS_TRY(check_needed(model));
    for (size_t c = 0; c < model->call_count; c++)
        model->calls[c].value = NULL;
    ls_model_destroy_graph(model->draft);
    model->draft = NULL;
    model->sources = NULL;
    model->ready = true;
    return LS_OK;
}

ls_status ls_functional_end_with(ls_model *model, const ls_symbol *outputs, size_t count)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    if (!model)
        return ls_fail(LS_ERR_INVALID, "ls_functional_end: the model is NULL");
    if (!open_for_calls(model))
        return ls_model_kept_error(model);
    return ls_model_keep_error(model, finish(model, outputs, count));
}

/* ---- Sequential models ---- */

ls_status ls_sequential_with(ls_context *ctx, const char *name, const ls_layer *layers, size_t count, ls_model **out)
{
    LS_OWN_FP_MODE;
    ls_model *model;
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_sequential: the model pointer (out) is NULL");
    if (!layers || count == 0)
        return ls_fail(LS_ERR_INVALID, "model \"%s\": a sequential model must have layers; there are none",
                       name ? name : "sequential");
    const ls_model *first = layers[0].kind == LS_LAYER_MODEL ? layers[0].nested.model : NULL;
    if (layers[0].kind != LS_LAYER_INPUT && !first)
        return ls_fail(
            LS_ERR_INVALID,
            "model \"%s\": a sequential model must start with ls_input(...) or a nested model; this one starts with %s",
            name ? name : "sequential", ls_layer_info_of(layers[0].kind)->function);
    LS_TRY(ls_model_create(ctx, LS_MODEL_SEQUENTIAL, name, &model));
    ls_symbol x = ls_symbol_input(model, first && first->input_count > 0 ? input_like(first->inputs[0]) : layers[0]);
    for (size_t i = first ? 0 : 1; i < count && x.index >= 0; i++)
        x = ls_symbol_call(model, layers[i], x);
    ls_status status = ls_functional_end(model, x);
    if (status != LS_OK) {
        ls_model_destroy(model);
        return status;
    }
    *out = model;
    return LS_OK;
}
