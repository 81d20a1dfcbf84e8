/* Recurrent cells: one node computes a whole sequence, another the gradient of its input. Both keep
 * samples apart and sum nothing over steps: the gradients of the weights are ordinary products of
 * their values (recurrent.h). */
#include "graph/recurrent.h"

#include "graph/claim.h"
#include "graph/rules.h"

/* Inputs: p, kernel, then the bias and the mask if there are any. */
static int mask_input(const ls_tensor *node)
{
    return node->attr.recurrent.masked ? node->input_count - 1 : -1;
}

static ls_status need_mask(const ls_tensor *node, const ls_tensor *p)
{
    char have[LS_SHAPE_TEXT], need[LS_SHAPE_TEXT];
    if (mask_input(node) < 0)
        return LS_OK;
    const ls_tensor *mask = node->in[mask_input(node)];
    ls_shape shape = LS_SHAPE(p->shape.dims[0], p->shape.dims[1]);
    if (mask->dtype != LS_BOOL || !ls_shape_equal(&mask->shape, &shape) || mask->per_sample != p->per_sample)
        return ls_fail(LS_ERR_SHAPE, "the mask is %s %s; expected bool %s", ls_dtype_name(mask->dtype),
                       ls_shape_format(&mask->shape, have), ls_shape_format(&shape, need));
    return LS_OK;
}

static ls_status need_weight(const ls_tensor *node, int input, const char *what, ls_shape shape)
{
    char have[LS_SHAPE_TEXT], need[LS_SHAPE_TEXT];
    const ls_tensor *w = node->in[input];
    LS_TRY(ls_need_whole(node, input, what));
    if (w->dtype != node->in[0]->dtype || !ls_shape_equal(&w->shape, &shape))
        return ls_fail(LS_ERR_SHAPE, "%s is %s %s; expected %s %s", what, ls_dtype_name(w->dtype),
                       ls_shape_format(&w->shape, have), ls_dtype_name(node->in[0]->dtype),
                       ls_shape_format(&shape, need));
    return LS_OK;
}

ls_status ls_shape_recurrent(ls_tensor *node)
{
    const ls_tensor *p = node->in[0];
    ls_cell_parts parts = ls_cell_parts_of((ls_cell)node->attr.recurrent.cell);
    LS_TRY(ls_need_real(node, 0));
    LS_TRY(ls_need_rank(node, 0, 3));
    int64_t steps = p->shape.dims[1], width = p->shape.dims[2], units = width / parts.gates;
    if (steps < 1 || units < 1 || units * parts.gates != width)
        return ls_fail(LS_ERR_SHAPE,
                       "the input has %lld steps of %lld numbers; there must be at least one step, of "
                       "%d numbers for each unit",
                       (long long)steps, (long long)width, parts.gates);
    LS_TRY(need_weight(node, 1, "the recurrent kernel", LS_SHAPE(units, width)));
    if (node->attr.recurrent.biased)
        LS_TRY(need_weight(node, 2, "the recurrent bias", LS_SHAPE(width)));
    LS_TRY(need_mask(node, p));
    ls_rule_like_first(node);
    node->shape.dims[2] = units * parts.value;
    return LS_OK;
}

/* Inputs: the gradient of h, kernel, the value of `recurrent`, then the mask if there is one. */
ls_status ls_shape_recurrent_grad(ls_tensor *node)
{
    ls_rule_like_first(node);
    node->shape.dims[2] *= ls_cell_parts_of((ls_cell)node->attr.recurrent.cell).gradient;
    return LS_OK;
}

/* The products with the kernel. */
double ls_flops_recurrent(const ls_tensor *node)
{
    const ls_shape *kernel = &node->in[1]->shape;
    return 2.0 * (double)node->shape.dims[1] * (double)kernel->dims[0] * (double)kernel->dims[1];
}

/* Part `first` and the `count - 1` parts after it, of `units` numbers each. */
static ls_tensor *take_parts(ls_tensor *x, int64_t units, int first, int count)
{
    return ls_op_slice(x, LS_AXES(0, 0, units * first), LS_AXES(-1, -1, units * count));
}

ls_tensor *ls_op_recurrent(ls_tensor *p, const ls_recurrent *options)
{
    ls_tensor *in[4] = { p, options->kernel };
    int count = 2;
    if (options->bias)
        in[count++] = options->bias;
    if (options->mask)
        in[count++] = options->mask;
    ls_attrs attr = { .recurrent = { .cell = options->cell,
                                     .activation = options->activation,
                                     .recurrent_activation = options->recurrent_activation,
                                     .reverse = options->reverse,
                                     .biased = options->bias != NULL,
                                     .masked = options->mask != NULL } };
    ls_tensor *y =
        ls_node_make(NULL, &(ls_node_spec){ .op = LS_OP_recurrent, .in = in, .input_count = count, .attr = attr });
    return ls_tensor_is_error(y) ? y : take_parts(y, options->kernel->shape.dims[0], 0, 1);
}

/* h of the step before, 0 before the first. */
static ls_tensor *state_before(ls_tensor *y, int64_t units)
{
    int64_t steps = y->shape.dims[1];
    bool reverse = y->attr.recurrent.reverse;
    ls_tensor *h = ls_op_slice(y, LS_AXES(0, reverse, 0), LS_AXES(-1, steps - 1, units));
    return ls_op_pad(h, LS_AXES(0, !reverse, 0), LS_AXES(0, reverse, 0), 0);
}

static ls_tensor *weight_gradient(ls_tensor *state, ls_tensor *gates)
{
    ls_attrs attr = { .matmul = { .transpose_a = true, .sum_leading = true } };
    return ls_node_make2(LS_OP_matmul, state, gates, attr);
}

/* gates: the gradient of the state's part of each gate. */
static ls_tensor *kernel_gradient(ls_tensor *y, ls_tensor *gates, int64_t units)
{
    ls_tensor *kernel = y->in[1];
    bool before = y->attr.recurrent.cell == LS_CELL_GRU;
    if (y->shape.dims[1] == 1) /* a first step does not use the kernel */
        return ls_op_broadcast_like(ls_scalar_like(kernel, 0), kernel);
    ls_tensor *h = state_before(y, units);
    if (!before)
        return weight_gradient(h, gates);
    ls_tensor *parts[] = { weight_gradient(h, take_parts(gates, units, 0, 2)),
                           weight_gradient(take_parts(y, units, 3, 1), take_parts(gates, units, 2, 1)) };
    return ls_op_concat(parts, 2, 1);
}

/* ls_op_recurrent takes h alone out of the value, so its gradient is that of a slice: what was cut
 * out is all that is needed of it. */
static ls_tensor *state_gradient(ls_tensor *y, ls_tensor *dy, int64_t units)
{
    bool cut = dy->op == LS_OP_slice_grad && dy->in[0]->shape.dims[1] == y->shape.dims[1] &&
               dy->in[0]->shape.dims[2] == units && dy->attr.slice.begin[2] == 0;
    return cut ? dy->in[0] : take_parts(dy, units, 0, 1);
}

void ls_grad_recurrent(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    int64_t units = y->in[1]->shape.dims[0];
    ls_tensor *in[4] = { state_gradient(y, dy, units), y->in[1], y, NULL };
    int mask = mask_input(y);
    if (mask > 0)
        in[3] = y->in[mask];
    ls_tensor *both = ls_node_make(
        NULL,
        &(ls_node_spec){ .op = LS_OP_recurrent_grad, .in = in, .input_count = mask > 0 ? 4 : 3, .attr = y->attr });
    dx[0] = both;
    ls_tensor *gates = both;
    if (y->attr.recurrent.cell == LS_CELL_GRU_RESET_AFTER && !ls_tensor_is_error(both)) {
        dx[0] = take_parts(both, units, 0, 3);
        gates = ls_op_concat((ls_tensor *[]){ take_parts(both, units, 0, 2), take_parts(both, units, 3, 1) }, 2, 2);
    }
    if (!ls_tensor_is_error(both))
        dx[1] = kernel_gradient(y, gates, units);
    if (y->attr.recurrent.biased)
        dx[2] = gates;
}
