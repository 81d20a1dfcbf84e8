/* Custom training loops: steps are C functions of tensors, traced once for each kind of data. Also
 * distributes datasets. */
#include <stdlib.h>
#include <string.h>

#include "base/fpmode.h"
#include "base/grow.h"
#include "device/context.h"
#include "graph/claim.h"
#include "graph/node.h"
#include "train/fit/custom_loop.h"

/* ---- Tracing ---- */

static ls_shape batched(ls_shape shape)
{
    if (shape.rank > 0)
        shape.dims[0] = LS_BATCH;
    return shape;
}

static bool fits(const ls_traced *t, const ls_element *batch)
{
    bool same = t->input_count == batch->count;
    for (int i = 0; same && i < batch->count; i++) {
        ls_shape shape = batched(batch->component[i].shape);
        same = t->inputs[i]->dtype == batch->component[i].dtype && ls_shape_equal(&t->inputs[i]->shape, &shape);
    }
    return same;
}

static ls_status check_outputs(const ls_loop_step *step, ls_tensor *const *outputs)
{
    for (size_t i = 0; i < step->output_count; i++) {
        if (!outputs[i])
            return ls_fail(LS_ERR_INVALID, "output %zu of %zu was not set", i, step->output_count);
        if (outputs[i]->op == LS_OP_ERROR)
            return ls_fail(outputs[i]->status, "%s", outputs[i]->message);
        if (outputs[i]->graph != step->graph)
            return ls_fail(LS_ERR_INVALID, "output %zu belongs to another graph", i);
    }
    return LS_OK;
}

/* Appends all nodes that write, as one group, to the fetches. */
static ls_status add_writes(ls_loop_step *step, ls_traced *t, size_t from)
{
    const ls_graph *graph = step->graph;
    ls_tensor **writes = calloc(graph->node_count - from + 1, sizeof(*writes));
    ls_variable *written[LS_MAX_WRITES];
    size_t count = 0;
    if (!writes)
        return ls_fail(LS_ERR_MEMORY, "no memory to trace a step");
    for (size_t i = from; i < graph->node_count; i++)
        if (ls_node_writes(graph->nodes[i], written) > 0 && !graph->nodes[i]->superseded)
            writes[count++] = graph->nodes[i];
    if (count > 0)
        t->fetches[t->fetch_count++] = ls_op_group(writes, count);
    free(writes);
    if (t->fetch_count == 0)
        return ls_fail(LS_ERR_INVALID, "the step has no outputs and writes nothing");
    return count > 0 && ls_tensor_is_error(t->fetches[t->fetch_count - 1])
               ? ls_fail(LS_ERR_INTERNAL, "cannot group the writes of a step")
               : LS_OK;
}

static ls_status check_variables(const ls_loop_step *step, size_t before)
{
    const ls_graph *graph = step->graph;
    char label[LS_NODE_TEXT];
    if (step->traced_count == 0 || graph->variable_count == before)
        return LS_OK;
    return ls_fail(LS_ERR_STATE,
                   "it was traced before, for other data, and created variables a second time (%s): give its "
                   "optimizers a .name, and create metrics and variables before the step",
                   ls_node_label(graph->variables[before]->node, label));
}

static ls_status make_inputs(const ls_loop_step *step, ls_traced *t, const ls_element *batch)
{
    for (int i = 0; i < batch->count; i++) {
        t->inputs[i] = ls_op_input(step->graph, NULL, batch->component[i].dtype, batched(batch->component[i].shape));
        if (ls_tensor_is_error(t->inputs[i]))
            return ls_fail(t->inputs[i]->status, "%s", t->inputs[i]->message);
    }
    t->input_count = batch->count;
    return LS_OK;
}

static ls_status trace(ls_loop_step *step, const ls_element *batch, ls_traced *t)
{
    ls_graph *graph = step->graph;
    size_t nodes = graph->node_count, variables = graph->variable_count;
    t->fetches = calloc(step->output_count + 1, sizeof(ls_tensor *));
    if (!t->fetches)
        return ls_fail(LS_ERR_MEMORY, "no memory to trace a step");
    LS_TRY(make_inputs(step, t, batch));
    step->tracing = true;
    graph->tracing = ++graph->traces;
    step->function(t->inputs, t->fetches, step->user);
    graph->tracing = 0;
    step->tracing = false;
    t->fetch_count = step->output_count;
    LS_TRY(ls_graph_status(step->graph)); /* an update that failed must not be ignored */
    LS_TRY(check_outputs(step, t->fetches));
    LS_TRY(check_variables(step, variables));
    return add_writes(step, t, nodes);
}

static ls_status check_step(const ls_loop_step *step, const ls_element *batch, const char *call)
{
    if (!step || !batch)
        return ls_fail(LS_ERR_INVALID, "%s: step or batch is NULL", call);
    if (step->tracing)
        return ls_fail(LS_ERR_STATE, "%s: must not be called inside the step's own function", call);
    if (batch->count < 1 || batch->count > LS_MAX_COMPONENTS)
        return ls_fail(LS_ERR_INVALID, "%s: the batch has %d components; it must have 1 to %d", call, batch->count,
                       LS_MAX_COMPONENTS);
    for (int i = 0; i < batch->count; i++)
        if (batch->component[i].shape.rank < 0 || batch->component[i].shape.rank > LS_MAX_RANK)
            return ls_fail(LS_ERR_SHAPE, "%s: component %d has rank %d; the limit is %d", call, i,
                           batch->component[i].shape.rank, LS_MAX_RANK);
    if (!ls_scope_is_open(step->graph, step->scope))
        return ls_fail(LS_ERR_STATE, "%s: the scope in which the step was created has ended: create the step again",
                       call);
    return LS_OK;
}

ls_status ls_loop_step_trace(ls_loop_step *step, const ls_element *batch, const char *call, ls_traced **out)
{
    LS_TRY(check_step(step, batch, call));
    LS_TRY(ls_context_check(step->graph->context, call));
    for (size_t i = 0; i < step->traced_count; i++)
        if (fits(step->traced[i], batch)) {
            *out = step->traced[i];
            return LS_OK;
        }
    if (ls_scope_number(step->graph) != step->scope)
        return ls_fail(LS_ERR_STATE,
                       "%s: cannot trace the step while a scope is open, because its nodes would end with the scope: "
                       "run the step once before the scope",
                       call);
    LS_TRY(ls_grow(&step->traced, step->traced_count, &step->traced_room, sizeof(*step->traced)));
    ls_traced *made = calloc(1, sizeof(*made));
    ls_status status = made ? trace(step, batch, made) : ls_fail(LS_ERR_MEMORY, "no memory to trace a step");
    if (status != LS_OK) {
        free(made ? made->fetches : NULL);
        free(made);
        return ls_fail_within(status, "%s: tracing the step", call);
    }
    step->traced[step->traced_count++] = made;
    *out = made;
    return LS_OK;
}

/* ---- Steps ---- */

ls_status ls_loop_step_create(ls_graph *graph, ls_loop_step_function function, void *user, size_t outputs,
                              ls_loop_step **out)
{
    LS_CLAIM(graph);
    if (!graph || !function || !out)
        return ls_fail(LS_ERR_INVALID, "ls_loop_step_create: graph, function or out is NULL");
    LS_TRY(ls_context_check(graph->context, "ls_loop_step_create"));
    if (outputs > LS_MAX_STEP_OUTPUTS)
        return ls_fail(LS_ERR_INVALID, "ls_loop_step_create: %zu outputs are too many; the limit is %d", outputs,
                       LS_MAX_STEP_OUTPUTS);
    ls_loop_step *step = calloc(1, sizeof(*step));
    if (!step)
        return ls_fail(LS_ERR_MEMORY, "no memory for a step");
    *step = (ls_loop_step){
        .graph = graph, .function = function, .user = user, .output_count = outputs, .scope = ls_scope_number(graph)
    };
    *out = step;
    return LS_OK;
}

void ls_loop_step_destroy(ls_loop_step *step)
{
    if (!step)
        return;
    for (size_t i = 0; i < step->traced_count; i++) {
        free(step->traced[i]->fetches);
        free(step->traced[i]);
    }
    free(step->traced);
    free(step);
}

ls_status ls_strategy_run(ls_loop_step *step, const ls_element *batch, ls_tensor **outputs)
{
    LS_CLAIM(step ? step->graph : NULL);
    LS_OWN_FP_MODE;
    ls_traced *t = NULL;
    ls_feed feeds[LS_MAX_COMPONENTS];
    ls_run_report report;
    LS_TRY(ls_loop_step_trace(step, batch, "ls_strategy_run", &t));
    for (int i = 0; i < batch->count; i++)
        feeds[i] = (ls_feed){ t->inputs[i], batch->component[i] };
    const ls_run_request request = { .graph = step->graph,
                                     .feeds = feeds,
                                     .feed_count = (size_t)batch->count,
                                     .fetches = t->fetches,
                                     .fetch_count = t->fetch_count };
    LS_TRY(ls_run(&request, &report));
    step->last = t;
    step->lanes = report.lanes;
    for (size_t i = 0; outputs && i < step->output_count; i++)
        outputs[i] = t->fetches[i];
    return LS_OK;
}

ls_tensor *ls_strategy_reduce(ls_reduction reduction, ls_tensor *value, int axis)
{
    LS_CLAIM_TENSORS(value);
    LS_OWN_FP_MODE;
    if (ls_tensor_is_error(value))
        return value;
    ls_axes axes = { .count = 0 };
    if (reduction != LS_REDUCE_SUM && reduction != LS_REDUCE_MEAN)
        return ls_node_error(
            value->graph,
            ls_fail(LS_ERR_INVALID, "the reduction must be LS_REDUCE_SUM or LS_REDUCE_MEAN (got %d)", (int)reduction),
            "ls_strategy_reduce");
    if (value->per_sample)
        axes.axis[axes.count++] = 0;
    if (axis != LS_NO_AXIS && !(value->per_sample && (axis == 0 || axis == -value->shape.rank)))
        axes.axis[axes.count++] = axis;
    if (axes.count == 0)
        return value;
    return reduction == LS_REDUCE_SUM ? ls_op_reduce_sum(value, axes, false) : ls_op_reduce_mean(value, axes, false);
}

/* ---- Data ---- */

struct ls_distributed {
    ls_dataset *dataset; /* a handle of its own */
    ls_iterator *iterator;
    uint64_t pass;
};

ls_status ls_distribute_dataset(ls_dataset *dataset, ls_distributed **out)
{
    LS_OWN_FP_MODE;
    ls_element_spec spec;
    if (!dataset || !out)
        return ls_fail(LS_ERR_INVALID, "ls_distribute_dataset: dataset or out is NULL");
    LS_TRY(ls_dataset_spec(dataset, &spec));
    if (spec.batch == 0)
        return ls_fail(LS_ERR_INVALID, "ls_distribute_dataset: the dataset has single samples, not batches: use "
                                       "ls_batch(dataset, size, false) with the global batch size");
    ls_distributed *d = calloc(1, sizeof(*d));
    if (!d)
        return ls_fail(LS_ERR_MEMORY, "no memory for a dataset");
    d->dataset = ls_dataset_share(dataset);
    ls_status status = ls_dataset_status(d->dataset);
    if (status != LS_OK) {
        ls_distributed_destroy(d);
        return status;
    }
    *out = d;
    return LS_OK;
}

ls_status ls_distributed_next(ls_distributed *d, const ls_element **out)
{
    LS_OWN_FP_MODE;
    if (!d || !out)
        return ls_fail(LS_ERR_INVALID, "ls_distributed_next: the distributed dataset or out is NULL");
    if (!d->iterator)
        LS_TRY(ls_iterator_create(d->dataset, d->pass, &d->iterator));
    LS_TRY(ls_iterator_next(d->iterator, out));
    if (!*out) {
        ls_iterator_destroy(d->iterator);
        d->iterator = NULL;
        d->pass++;
    }
    return LS_OK;
}

void ls_distributed_destroy(ls_distributed *d)
{
    if (!d)
        return;
    ls_iterator_destroy(d->iterator);
    ls_dataset_destroy(d->dataset);
    free(d);
}
