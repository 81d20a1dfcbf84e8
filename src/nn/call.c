/* Traces: adding the nodes of one pass over a model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fpmode.h"
#include "base/text.h"
#include "graph/claim.h"
#include "graph/init.h"
#include "graph/rules.h"
#include "graph/shared_weights.h"
#include "nn/model.h"

ls_status ls_layer_fail_within(ls_layer_kind kind, const char *name, ls_tensor *const *inputs, size_t count,
                               ls_status status)
{
    ls_text text = { 0 };
    char shape[LS_SHAPE_TEXT];
    ls_text_add(&text, "layer \"%s\" (%s)", name, ls_layer_info_of(kind)->class_name);
    for (size_t i = 0; i < count; i++)
        ls_text_add(&text, "%s%s", i ? ", " : " on ", ls_shape_format(&inputs[i]->shape, shape));
    status = ls_fail_within(status, "%s", ls_text_get(&text));
    ls_text_free(&text);
    return status;
}

/* ---- Variables ---- */

static ls_status fill_weight(const ls_model_layer *layer, size_t i, uint64_t seed)
{
    const ls_weight *weight = &layer->weight[i];
    const ls_init_key key = { .seed = seed, .layer = (uint32_t)layer->number, .number = (uint32_t)i };
    float *data = layer->variable[i]->attr.variable.variable->data;
    LS_TRY(ls_init_fill(weight->initializer, weight->dtype, &weight->shape, key, data));
    for (int64_t k = 0; k < weight->ones; k++)
        data[weight->ones_from + k] = 1;
    return LS_OK;
}

/* On first use, so that a model that is only described needs no memory. */
static ls_status fill_variables(ls_graph *graph)
{
    LS_OWN_FP_MODE;
    ls_model *model = graph->fill_user;
    for (size_t v = 0; v < model->variable_count; v++) {
        const ls_model_layer *layer = model->variables[v].layer;
        size_t i = model->variables[v].index;
        ls_variable *variable = layer->variable[i]->attr.variable.variable;
        if (variable->data)
            continue;
        LS_TRY(ls_variable_take(graph, variable, layer->variable[i]->name));
        LS_TRY(fill_weight(layer, i, model->seed));
    }
    graph->fill = NULL;
    return LS_OK;
}

static ls_status make_variable(ls_model *model, ls_model_layer *layer, size_t i)
{
    const ls_weight *weight = &layer->weight[i];
    ls_text name = { 0 };
    LS_TRY(ls_init_check(weight->initializer, weight->dtype, &weight->shape));
    LS_TRY(ls_weight_check(weight));
    const char *const parts[] = { weight->inner, weight->cell, weight->name };
    ls_text_put(&name, layer->name);
    for (size_t k = 0; k < sizeof(parts) / sizeof(parts[0]); k++)
        if (parts[k])
            ls_text_add(&name, "/%s", parts[k]);
    ls_tensor *variable =
        ls_variable_later(model->graph, ls_text_get(&name), weight->dtype, weight->shape, weight->trainable);
    ls_text_free(&name);
    LS_TRY(ls_tensor_check(variable));
    variable->attr.variable.variable->constraint = weight->constraint;
    variable->attr.variable.variable->rate = weight->rate;
    layer->variable[i] = variable;
    LS_TRY(ls_grow(&model->variables, model->variable_count, &model->variable_room, sizeof(*model->variables)));
    model->variables[model->variable_count++] = (ls_model_variable_at){ layer, i };
    model->graph->fill = fill_variables;
    model->graph->fill_user = model;
    return LS_OK;
}

ls_status ls_model_make_variables(ls_model *model, ls_model_layer *layer, int device)
{
    ls_status status = LS_OK;
    int outer = model->graph->device;
    model->graph->device = device;
    for (size_t i = 0; i < layer->weight_count && status == LS_OK; i++)
        status = make_variable(model, layer, i);
    model->graph->device = outer;
    layer->built = status == LS_OK;
    return status;
}

ls_status ls_model_initialize(ls_model *model, uint64_t seed)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    LS_TRY(ls_model_need_ready(model, "ls_model_initialize"));
    LS_TRY(ls_graph_fill(model->graph));
    LS_TRY(ls_writes_begin(model->graph, model->graph->variables, model->graph->variable_count));
    ls_status status = LS_OK;
    for (size_t v = 0; v < model->variable_count && status == LS_OK; v++) {
        const ls_model_layer *layer = model->variables[v].layer;
        size_t i = model->variables[v].index;
        status = fill_weight(layer, i, seed);
        ls_variable_written(layer->variable[i]->attr.variable.variable, true);
    }
    ls_writes_end(model->graph);
    LS_TRY(status);
    model->seed = model->graph->seed = seed;
    model->graph->run = model->graph->step = 0;
    return LS_OK;
}

/* ---- One call ---- */

void ls_call_begin(ls_call *call, ls_model *model, ls_graph *graph, bool training, bool making)
{
    *call = (ls_call){ .model = model, .graph = graph, .training = training, .making = making };
    for (size_t i = 0; i < model->layer_count; i++) {
        model->layers[i]->calls = 0;
        memset(model->layers[i]->updates, 0, sizeof(model->layers[i]->updates));
        memset(model->layers[i]->stand_in, 0, sizeof(model->layers[i]->stand_in));
    }
}

void ls_call_end(ls_call *call)
{
    free(call->updates);
    call->updates = NULL;
    call->update_count = call->update_room = 0;
}

static ls_status find_weights(ls_model_layer *layer, const ls_shape *input)
{
    ls_layer thawed = layer->spec;
    thawed.options.frozen = false;
    if (thawed.kind != LS_LAYER_NONE) /* a weight of the model itself is known */
        LS_TRY(ls_layer_weights(&thawed, input, layer->weight, &layer->weight_count));
    for (size_t i = 0; i < layer->weight_count; i++) {
        layer->learns[i] = layer->weight[i].trainable;
        layer->weight[i].trainable = layer->learns[i] && !layer->spec.options.frozen;
    }
    return LS_OK;
}

static ls_status weights_of(ls_call *call, ls_model_layer *layer, const ls_shape *input, ls_tensor *const **out)
{
    if (!layer->built) {
        if (!call->making)
            return ls_fail(
                LS_ERR_STATE,
                "the layer was not called when the model was made; the function must call the same layers every time");
        LS_TRY(find_weights(layer, input));
        LS_TRY(ls_model_make_variables(call->model, layer, call->graph->device));
    }
    for (size_t i = 0; call->making && i < layer->weight_count; i++)
        if (!layer->stand_in[i]) {
            layer->stand_in[i] = ls_op_input(call->graph, NULL, layer->weight[i].dtype, layer->weight[i].shape);
            LS_TRY(ls_tensor_check(layer->stand_in[i]));
        }
    *out = call->making ? layer->stand_in : layer->variable;
    return LS_OK;
}

static void note_output(ls_call *call, ls_model_layer *layer, const ls_tensor *x, const ls_tensor *y)
{
    int64_t count;
    layer->output = y->shape;
    layer->output_dtype = y->dtype;
    if (x != y && y->op != LS_OP_reshape && ls_shape_count(&y->shape, 1, &count))
        call->activation_bytes += (double)count * (double)ls_dtype_bytes(y->dtype);
}

/* The update of an earlier call of the layer in this trace, or in this step if no scope has ended
 * it; NULL: none. */
static ls_tensor *earlier_update(const ls_call *call, const ls_model_layer *layer, int i)
{
    const ls_graph *graph = call->graph;
    uint32_t id = layer->last_update[i];
    if (layer->updates[i])
        return call->updates[layer->updates[i] - 1];
    bool same_step = !call->making && graph->tracing && layer->updated_in == graph->tracing && id < graph->node_count;
    ls_tensor *update = same_step ? graph->nodes[id] : NULL;
    return update && update->op == LS_OP_assign && update->layer == layer->name ? update : NULL;
}

/* As in Keras, a later call continues from the moving statistics of an earlier one. */
static ls_status note_update(ls_call *call, ls_model_layer *layer, int i, ls_tensor *update)
{
    if (!update)
        return LS_OK;
    ls_tensor *earlier = earlier_update(call, layer, i);
    if (earlier)
        earlier->superseded = true;
    layer->last_update[i] = update->id;
    layer->updated_in = call->graph->tracing;
    if (layer->updates[i] == 0) {
        LS_TRY(ls_grow(&call->updates, call->update_count, &call->update_room, sizeof(ls_tensor *)));
        layer->updates[i] = ++call->update_count;
    }
    call->updates[layer->updates[i] - 1] = update;
    return LS_OK;
}

/* Checks an input of a model. */
static ls_status check_fit(const ls_model_layer *input, const ls_tensor *x)
{
    char have[LS_SHAPE_TEXT], need[LS_SHAPE_TEXT];
    bool fits = x->shape.rank == input->output.rank;
    for (int a = 1; fits && a < x->shape.rank; a++)
        fits = x->shape.dims[a] == input->output.dims[a];
    if (!fits)
        return ls_fail(LS_ERR_SHAPE, "the tensor is %s; the model takes %s", ls_shape_format(&x->shape, have),
                       ls_shape_format(&input->output, need));
    if (x->dtype != input->spec.input.dtype)
        return ls_fail(LS_ERR_DTYPE, "the tensor is %s; the model takes %s; convert it with ls_op_cast",
                       ls_dtype_name(x->dtype), ls_dtype_name(input->spec.input.dtype));
    return LS_OK;
}

static ls_status run_calls(ls_model *model, ls_call *call, ls_tensor *const *inputs);

static ls_status apply_nested(ls_call *call, ls_model_layer *layer, ls_tensor *const *inputs, size_t count,
                              ls_tensor **out)
{
    ls_model *inner = layer->inner;
    if (count != inner->input_count)
        return ls_fail(LS_ERR_INVALID, "the model has %zu inputs; %zu were given", inner->input_count, count);
    for (size_t i = 0; i < count; i++)
        LS_TRY(ls_fail_within(check_fit(inner->inputs[i], inputs[i]), "input %zu (\"%s\")", i, inner->inputs[i]->name));
    layer->calls++;
    LS_TRY(run_calls(inner, call, inputs));
    *out = ls_call_output(layer, 0);
    layer->output = (*out)->shape;
    layer->output_dtype = (*out)->dtype;
    return LS_OK;
}

ls_tensor *ls_call_output(const ls_model_layer *layer, size_t output)
{
    return layer->inner->calls[layer->inner->outputs[output]].value;
}

static ls_status apply(ls_call *call, ls_model_layer *layer, ls_tensor *const *inputs, size_t count, ls_tensor **out)
{
    if (layer->spec.kind == LS_LAYER_INPUT)
        return ls_fail(LS_ERR_INVALID, "an input is not called; pass it as an input of another layer");
    if (count == 0)
        return ls_fail(LS_ERR_INVALID, "the layer is called without an input");
    for (size_t i = 0; i < count; i++)
        if (inputs[i]->graph != call->graph)
            return ls_fail(LS_ERR_INVALID, "input %zu belongs to another graph; use tensors of this trace", i);
    if (layer->inner)
        return apply_nested(call, layer, inputs, count, out);
    ls_layer_pass pass = { .inputs = inputs,
                           .input_count = count,
                           .training = call->training,
                           .update = !call->making,
                           .random_layer = layer->random,
                           .random_call = layer->calls++ };
    for (int i = 0; i < 2; i++)
        pass.earlier[i] = earlier_update(call, layer, i);
    LS_TRY(weights_of(call, layer, &inputs[0]->shape, &pass.weights));
    LS_TRY(ls_layer_pass_make(&layer->spec, &pass, out));
    for (int i = 0; i < 2; i++)
        LS_TRY(note_update(call, layer, i, pass.updates[i]));
    if (pass.penalty)
        call->penalty = call->penalty ? ls_op_add(call->penalty, pass.penalty) : pass.penalty;
    if (call->making)
        note_output(call, layer, inputs[0], *out);
    return LS_OK;
}

ls_status ls_call_apply(ls_call *call, ls_model_layer *layer, ls_tensor *const *inputs, size_t count, ls_tensor **out)
{
    int outer = call->graph->device;
    const char *outer_layer = call->graph->layer;
    if (layer->device != LS_ANY_DEVICE)
        call->graph->device = layer->device;
    call->graph->layer = layer->name;
    ls_status status = apply(call, layer, inputs, count, out);
    call->graph->device = outer;
    call->graph->layer = outer_layer;
    return status == LS_OK ? LS_OK : ls_layer_fail_within(layer->spec.kind, layer->name, inputs, count, status);
}

/* ---- Explicit calls in custom models ---- */

static ls_status call_many(ls_call *call, const ls_layer *spec, ls_tensor *const *inputs, size_t count, ls_tensor **out)
{
    ls_model_layer *layer;
    int64_t unnamed = -1;
    if (!spec->options.name && (unsigned)spec->kind < LS_LAYER_KINDS)
        unnamed = call->unnamed[spec->kind]++;
    LS_TRY(ls_model_add_layer(call->model, spec, unnamed, true, &layer));
    return ls_call_apply(call, layer, inputs, count, out);
}

ls_tensor *ls_layer_call_many(ls_call *call, ls_layer layer, ls_tensor *const *inputs, size_t count)
{
    LS_CLAIM_TO_BUILD(call ? ls_model_claimed(call->model) : NULL);
    LS_OWN_FP_MODE;
    if (!call)
        return NULL;
    for (size_t i = 0; inputs && i < count; i++)
        if (inputs[i] && ls_tensor_is_error(inputs[i]))
            return inputs[i];
    ls_tensor *out = NULL;
    ls_status status = LS_OK;
    for (size_t i = 0; i < count && status == LS_OK; i++)
        if (!inputs || !inputs[i])
            status = ls_fail(LS_ERR_INVALID, "layer \"%s\" (%s): input %zu is NULL",
                             layer.options.name ? layer.options.name : ls_layer_info_of(layer.kind)->base,
                             ls_layer_info_of(layer.kind)->class_name, i);
    if (status == LS_OK)
        status = call_many(call, &layer, inputs, count, &out);
    return status == LS_OK ? out : ls_node_error(call->graph, status, NULL);
}

ls_tensor *ls_layer_call(ls_call *call, ls_layer layer, ls_tensor *x)
{
    LS_CLAIM_TO_BUILD(call ? ls_model_claimed(call->model) : NULL);
    LS_OWN_FP_MODE;
    return ls_layer_call_many(call, layer, &x, 1);
}

static ls_status own_weight(ls_call *call, const char *name, const ls_weight_options *o, ls_tensor **out)
{
    ls_model_layer *layer;
    ls_tensor *const *weights;
    ls_weight weight = {
        .shape = o->shape, .initializer = o->initializer, .regularizer = o->regularizer, .trainable = !o->frozen
    };
    weight.constraint = o->constraint;
    LS_TRY(ls_init_resolve("initializer", &weight.initializer, (ls_initializer){ .kind = LS_INIT_GLOROT_UNIFORM }));
    LS_TRY(ls_weight_check(&weight));
    LS_TRY(ls_model_add_weight(call->model, name, &weight, call->making, &layer));
    LS_TRY(weights_of(call, layer, NULL, &weights));
    *out = weights[0];
    return LS_OK;
}

ls_tensor *ls_call_variable_with(ls_call *call, const char *name, ls_weight_options options)
{
    LS_CLAIM_TO_BUILD(call ? ls_model_claimed(call->model) : NULL);
    LS_OWN_FP_MODE;
    ls_tensor *out = NULL;
    if (!call)
        return NULL;
    ls_status status = name ? own_weight(call, name, &options, &out) : ls_fail(LS_ERR_INVALID, "the name is NULL");
    if (status == LS_OK)
        return out;
    status = ls_fail_within(status, "weight \"%s\" of model \"%s\"", name ? name : "", call->model->name);
    return ls_node_error(call->graph, status, NULL);
}

bool ls_call_is_training(const ls_call *call)
{
    return call && call->training;
}

/* ---- The whole model ---- */

ls_status ls_model_make_inputs(const ls_model *model, ls_graph *graph, ls_tensor **out)
{
    for (size_t i = 0; i < model->input_count; i++) {
        out[i] = ls_op_input(graph, NULL, model->inputs[i]->spec.input.dtype, model->inputs[i]->output);
        LS_TRY(ls_tensor_check(out[i]));
    }
    return LS_OK;
}

static ls_status run_calls(ls_model *model, ls_call *call, ls_tensor *const *inputs)
{
    ls_tensor **in = NULL;
    size_t room = 0, next = 0;
    ls_status status = LS_OK;
    for (size_t c = 0; c < model->call_count && status == LS_OK; c++) {
        ls_model_call *at = &model->calls[c];
        if (at->layer->spec.kind == LS_LAYER_INPUT) {
            at->value = inputs[next++];
            continue;
        }
        if (at->output > 0) {
            at->value = ls_call_output(at->layer, (size_t)at->output);
            continue;
        }
        if (at->input_count > room) {
            free(in);
            room = at->input_count;
            in = malloc(room * sizeof(ls_tensor *));
            if (!in) {
                status = ls_fail(LS_ERR_MEMORY, "no memory for %zu inputs of a layer", room);
                break;
            }
        }
        for (size_t i = 0; i < at->input_count; i++)
            in[i] = model->calls[at->inputs[i]].value;
        status = ls_call_apply(call, at->layer, in, at->input_count, &at->value);
    }
    free(in);
    return status;
}

static ls_status run_function(ls_model *model, ls_call *call, ls_tensor *const *inputs, ls_tensor **outputs)
{
    for (size_t i = 0; i < model->output_count; i++)
        outputs[i] = NULL;
    model->function(call, inputs, outputs, model->user);
    for (size_t i = 0; i < model->output_count; i++) {
        if (!outputs[i])
            return ls_fail(LS_ERR_INVALID, "the function did not set output %zu", i);
        LS_TRY(ls_tensor_check(outputs[i]));
        if (outputs[i]->graph != call->graph)
            return ls_fail(LS_ERR_INVALID, "output %zu belongs to another graph; use tensors of this trace", i);
    }
    return LS_OK;
}

ls_status ls_model_run_calls(ls_model *model, ls_call *call, ls_tensor *const *inputs, ls_tensor **outputs)
{
    if (model->kind == LS_MODEL_CUSTOM)
        return run_function(model, call, inputs, outputs);
    LS_TRY(run_calls(model, call, inputs));
    for (size_t i = 0; i < model->output_count; i++)
        outputs[i] = model->calls[model->outputs[i]].value;
    return LS_OK;
}

/* ---- Traces for users ---- */

static ls_status check_input(const ls_model *model, size_t i, const ls_tensor *x)
{
    LS_TRY(ls_tensor_check(x));
    if (x->graph != model->graph)
        return ls_fail(LS_ERR_INVALID, "the tensor belongs to another graph; make it in ls_model_graph(model)");
    return check_fit(model->inputs[i], x);
}

static ls_status check_inputs(const ls_model *model, ls_tensor *const *inputs)
{
    for (size_t i = 0; i < model->input_count; i++) {
        ls_status status = check_input(model, i, inputs[i]);
        LS_TRY(ls_fail_within(status, "model \"%s\", input %zu (\"%s\")", model->name, i, model->inputs[i]->name));
    }
    return LS_OK;
}

/* The mean of |cosine| over all pairs of rows, or of columns. */
static ls_status orthogonal_penalty(ls_tensor *w, bool columns, ls_tensor **out)
{
    int64_t size = w->shape.dims[columns ? 1 : 0], *diagonal;
    ls_tensor *squares = ls_op_reduce_sum(ls_op_square(w), LS_AXES(columns ? 0 : 1), true);
    ls_tensor *unit = ls_op_mul(w, ls_op_rsqrt(ls_op_maximum(squares, ls_scalar_like(squares, 1e-14))));
    ls_tensor *product = ls_op_matmul(unit, .b = unit, .transpose_a = columns, .transpose_b = !columns);
    diagonal = calloc((size_t)size, sizeof(*diagonal));
    if (!diagonal)
        return ls_fail(LS_ERR_MEMORY, "no memory for an orthogonal regularizer of %lld vectors", (long long)size);
    for (int64_t i = 0; i < size; i++)
        diagonal[i] = i;
    ls_tensor *eye = ls_op_one_hot(ls_op_constant(w->graph, LS_I64, LS_SHAPE(size), diagonal), w->dtype, size);
    free(diagonal);
    ls_tensor *others = ls_op_mul(product, ls_op_sub(ls_scalar_like(eye, 1), eye));
    double pairs = (double)size * (double)(size - 1) / 2;
    *out = ls_op_scale(ls_op_reduce_sum(ls_op_abs(others), LS_ALL_AXES, false), pairs > 0 ? 0.5 / pairs : 0);
    return LS_OK;
}

/* As in Keras, penalizes each trainable variable once, and each output of a call. */
static ls_status regularize(const ls_model *model, const ls_call *call, ls_tensor **out)
{
    ls_tensor *sum = NULL;
    for (size_t v = 0; v < model->variable_count; v++) {
        const ls_weight *weight = &model->variables[v].layer->weight[model->variables[v].index];
        ls_tensor *w = model->variables[v].layer->variable[model->variables[v].index];
        if (!weight->trainable)
            continue;
        sum = ls_penalty(&weight->regularizer, w, sum);
        if (weight->regularizer.orthogonal != 0) {
            ls_tensor *penalty = NULL;
            LS_TRY(orthogonal_penalty(w, weight->regularizer.orthogonal_columns, &penalty));
            penalty = ls_op_scale(penalty, weight->regularizer.orthogonal);
            sum = sum ? ls_op_add(sum, penalty) : penalty;
        }
    }
    if (call->penalty)
        sum = sum ? ls_op_add(sum, call->penalty) : call->penalty;
    if (sum)
        LS_TRY(ls_tensor_check(sum));
    *out = sum;
    return LS_OK;
}

ls_status ls_model_trace(ls_model *model, ls_tensor *const *inputs, bool training, ls_tensor **outputs, ls_trace *trace)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    LS_TRY(ls_model_need_ready(model, "ls_model_trace"));
    if (!inputs || !outputs || (training && !trace))
        return ls_fail(LS_ERR_INVALID, "ls_model_trace: inputs or outputs is NULL, or, in training, trace is NULL");
    LS_TRY(check_inputs(model, inputs));
    ls_tensor *some[8], **results = some, *regularization = NULL;
    if (model->output_count > sizeof(some) / sizeof(some[0]))
        results = malloc(model->output_count * sizeof(ls_tensor *));
    if (!results)
        return ls_fail(LS_ERR_MEMORY, "ls_model_trace: no memory for %zu outputs", model->output_count);
    ls_call call;
    ls_call_begin(&call, model, model->graph, training, false);
    ls_status status = ls_model_run_calls(model, &call, inputs, results);
    if (status == LS_OK && trace)
        status = regularize(model, &call, &regularization);
    if (status == LS_OK) {
        memcpy(outputs, results, model->output_count * sizeof(ls_tensor *));
        if (trace)
            *trace = (ls_trace){ regularization, call.updates, call.update_count };
        else
            free(call.updates);
        call.updates = NULL;
    }
    ls_call_end(&call);
    if (results != some)
        free(results);
    return status;
}

ls_tensor *ls_model_apply(ls_model *model, ls_tensor *x, bool training)
{
    LS_CLAIM_TO_BUILD(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    ls_tensor *y = NULL;
    ls_trace trace = { .updates = NULL };
    if (!model || !model->graph)
        return NULL;
    if (x && ls_tensor_is_error(x))
        return x;
    ls_status status = ls_model_need_ready(model, "ls_model_apply");
    if (status == LS_OK && (model->input_count != 1 || model->output_count != 1))
        status = ls_fail(LS_ERR_INVALID, "model \"%s\" has %zu inputs and %zu outputs; use ls_model_trace", model->name,
                         model->input_count, model->output_count);
    if (status == LS_OK)
        status = ls_model_trace(model, &x, training, &y, &trace);
    free(trace.updates); /* only the array: the graph owns the assignments */
    return status == LS_OK ? y : ls_node_error(model->graph, status, "ls_model_apply");
}
