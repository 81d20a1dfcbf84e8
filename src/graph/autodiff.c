/* Walks back from the loss and appends each op's backward nodes. A gradient rule (ls_grad_*) is the
 * plain formula; sums over broadcast axes are added here. */
#include <stdlib.h>
#include <string.h>

#include "base/fpmode.h"
#include "graph/claim.h"
#include "graph/rules.h"

/* `order`: nodes that the loss needs, each after its inputs; the other arrays are indexed by it. */
typedef struct walk {
    ls_tensor **order;
    size_t count;
    ls_tensor **gradient; /* so far; NULL: none */
    bool *needed;         /* depends on one of the variables */
} walk;

/* Returns g, a gradient of `input`, in the input's shape. */
static ls_tensor *fit(ls_tensor *g, const ls_tensor *input)
{
    if (ls_tensor_is_error(g))
        return g;
    if (ls_shape_equal(&g->shape, &input->shape) && g->per_sample == input->per_sample)
        return g;
    int64_t mask = 0;
    int extra = g->shape.rank - input->shape.rank;
    if (extra < 0)
        return ls_op_broadcast_like(g, input);
    for (int i = 0; i < g->shape.rank; i++)
        if (i < extra || (input->shape.dims[i - extra] == 1 && g->shape.dims[i] != 1))
            mask |= (int64_t)1 << i;
    if (mask == 0)
        return ls_op_broadcast_like(g, input);
    return ls_op_reshape(ls_op_reduce_sum(g, ls_axes_of_mask(mask), true), input->shape);
}

static ls_status step_back(walk *w, ls_tensor *y, ls_tensor *dy)
{
    const ls_op_info *info = &ls_ops[y->op];
    ls_tensor *few[8] = { NULL }, **dx = few;
    char label[LS_NODE_TEXT];
    if (info->gradient == ls_grad_zero)
        return LS_OK;
    if (info->gradient == ls_grad_missing)
        return ls_fail(LS_ERR_UNSUPPORTED, "ls_gradients: there is no gradient rule for the op %s (tensor %s)",
                       ls_tensor_op(y), ls_node_label(y, label));
    if (y->input_count > 8 && !(dx = calloc((size_t)y->input_count, sizeof(*dx))))
        return ls_fail(LS_ERR_MEMORY, "ls_gradients: no memory for %d gradients", y->input_count);
    y->graph->device = y->device; /* inherited by gradient nodes */
    y->graph->layer = y->layer;
    y->graph->origin = y->origin;
    info->gradient(y, dy, dx);
    ls_status status = LS_OK;
    for (int i = 0; i < y->input_count && status == LS_OK; i++) {
        ls_tensor *input = y->in[i];
        if (!dx[i] || !w->needed[input->position])
            continue;
        ls_tensor *g = fit(dx[i], input), **sum = &w->gradient[input->position];
        *sum = *sum ? ls_op_add(*sum, g) : g;
        if (ls_tensor_is_error(*sum))
            status = ls_fail((*sum)->status, "ls_gradients: %s", (*sum)->message);
    }
    if (dx != few)
        free(dx);
    return status;
}

static ls_status check_arguments(ls_tensor *loss, ls_tensor *const *variables, size_t count,
                                 const ls_gradients_options *options, ls_tensor **out)
{
    if (!loss || (count > 0 && (!variables || !out)))
        return ls_fail(LS_ERR_INVALID, "ls_gradients: loss, variables or out is NULL");
    if (loss->op == LS_OP_ERROR)
        return ls_fail(loss->status, "%s", loss->message);
    if (!ls_dtype_is_real(loss->dtype))
        return ls_fail(LS_ERR_DTYPE, "ls_gradients: the loss is %s; it must be float32 or float64",
                       ls_dtype_name(loss->dtype));
    for (size_t i = 0; i < count; i++) {
        if (!variables[i])
            return ls_fail(LS_ERR_INVALID, "ls_gradients: variable %zu is NULL", i);
        if (variables[i]->op == LS_OP_ERROR)
            return ls_fail(variables[i]->status, "%s", variables[i]->message);
        if (variables[i]->graph != loss->graph)
            return ls_fail(LS_ERR_INVALID, "ls_gradients: variable %zu belongs to another graph", i);
        if (!ls_dtype_is_real(variables[i]->dtype)) {
            char label[LS_NODE_TEXT];
            return ls_fail(LS_ERR_DTYPE, "ls_gradients: %s is %s; only floats have gradients",
                           ls_node_label(variables[i], label), ls_dtype_name(variables[i]->dtype));
        }
    }
    const ls_tensor *c = options->cotangent;
    if (c && c->op == LS_OP_ERROR)
        return ls_fail(c->status, "%s", c->message);
    if (c && (c->graph != loss->graph || c->dtype != loss->dtype || !ls_shape_equal(&c->shape, &loss->shape) ||
              c->per_sample != loss->per_sample))
        return ls_fail(LS_ERR_SHAPE, "ls_gradients: the cotangent must have the loss's graph, type and shape");
    return LS_OK;
}

static void mark_needed(walk *w, ls_tensor *const *variables, size_t count, uint32_t mark)
{
    for (size_t i = 0; i < w->count; i++)
        w->order[i]->position = (int32_t)i;
    for (size_t i = 0; i < count; i++)
        if (variables[i]->mark == mark)
            w->needed[variables[i]->position] = true;
    for (size_t i = 0; i < w->count; i++)
        for (int k = 0; k < w->order[i]->input_count && !w->needed[i]; k++)
            w->needed[i] = w->needed[w->order[i]->in[k]->position];
}

static ls_status walk_back(walk *w, ls_tensor *loss, const ls_gradients_options *options)
{
    if (!w->needed[loss->position])
        return LS_OK;
    w->gradient[loss->position] =
        options->cotangent ? options->cotangent : ls_op_broadcast_like(ls_scalar_like(loss, 1), loss);
    for (size_t i = w->count; i-- > 0;)
        if (w->needed[i] && w->gradient[i])
            LS_TRY(step_back(w, w->order[i], w->gradient[i]));
    return LS_OK;
}

ls_status ls_gradients_with(ls_tensor *loss, ls_tensor *const *variables, size_t count, ls_gradients_options options,
                            ls_tensor **out)
{
    LS_CLAIM(loss ? loss->graph : NULL);
    LS_OWN_FP_MODE;
    LS_TRY(check_arguments(loss, variables, count, &options, out));
    walk w = { 0 };
    LS_TRY(ls_graph_order(loss->graph, &loss, 1, NULL, NULL, &w.order, &w.count));
    /* Building nodes starts no new walk, so these marks stay valid below. */
    uint32_t mark = loss->graph->mark;
    w.gradient = calloc(w.count, sizeof(*w.gradient));
    w.needed = calloc(w.count, sizeof(*w.needed));
    ls_status status = LS_OK;
    if (!w.gradient || !w.needed)
        status = ls_fail(LS_ERR_MEMORY, "ls_gradients: no memory for %zu nodes", w.count);
    int outer = loss->graph->device;
    const char *outer_layer = loss->graph->layer;
    int64_t outer_origin = loss->graph->origin;
    if (status == LS_OK) {
        mark_needed(&w, variables, count, mark);
        status = walk_back(&w, loss, &options);
    }
    loss->graph->device = outer;
    loss->graph->layer = outer_layer;
    loss->graph->origin = outer_origin;
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        ls_tensor *v = variables[i];
        out[i] = v->mark == mark ? w.gradient[v->position] : NULL;
        if (!out[i] && options.zeros)
            out[i] = ls_op_broadcast_like(ls_scalar_like(v, 0), v);
    }
    free(w.order);
    free(w.gradient);
    free(w.needed);
    return status;
}

ls_status ls_gradients(ls_tensor *loss, ls_tensor *const *variables, size_t count, ls_tensor **out)
{
    LS_CLAIM(loss ? loss->graph : NULL);
    return ls_gradients_with(loss, variables, count, (ls_gradients_options){ .cotangent = NULL }, out);
}
