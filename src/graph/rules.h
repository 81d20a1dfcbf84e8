/* The rules that ops.def names, declared from its columns so that a row without its rule does not link; and what rules
 * have in common. */
#ifndef LS_GRAPH_RULES_H
#define LS_GRAPH_RULES_H

#include "graph/node.h"

/* Repeated declarations are fine in C: several rows share a rule. */
#define OP(id, inputs, attributes, batch, kernel, shape_, gradient_, flops_, traits)                                   \
    ls_status ls_shape_##shape_(ls_tensor *node);                                                                      \
    void ls_grad_##gradient_(ls_tensor *y, ls_tensor *dy, ls_tensor **dx);                                             \
    double ls_flops_##flops_(const ls_tensor *node);
#include "graph/ops.def"
#undef OP

static inline ls_attrs ls_no_attrs(void)
{
    return (ls_attrs){ .none = { 0 } };
}

static inline bool ls_dtype_is_real(ls_dtype dtype)
{
    return dtype == LS_F32 || dtype == LS_F64;
}

static inline bool ls_dtype_is_integer(ls_dtype dtype)
{
    return dtype == LS_I32 || dtype == LS_I64;
}

/* Failures that many rules share. */
ls_status ls_need_real(const ls_tensor *node, int input);
ls_status ls_need_same_dtype(const ls_tensor *node);
ls_status ls_need_rank(const ls_tensor *node, int input, int rank);
ls_status ls_need_whole(const ls_tensor *node, int input, const char *what);
ls_status ls_mixes(const char *how);

/* The output is like input 0: type, shape, and whether it is per-sample. */
void ls_rule_like_first(ls_tensor *node);

/* The shape two or more inputs broadcast to; sets node->shape, per_sample and use. */
ls_status ls_rule_broadcast(ls_tensor *node, int first_input, int count);

/* An axis counted from the end made plain; fails when there is no such axis. */
ls_status ls_rule_axis(const ls_shape *shape, int64_t axis, int64_t *out);

/* A scalar of x's type. */
ls_tensor *ls_scalar_like(ls_tensor *x, double value);

/* x spread to the shape of `like`, with a batch axis where that has one. ls_op_broadcast cannot tell a gathered batch,
 * which is whole, from a per-sample tensor of the same shape. */
ls_tensor *ls_op_broadcast_like(ls_tensor *x, const ls_tensor *like);

/* x with one axis of size 1 more at the end. */
ls_tensor *ls_op_with_last_axis(ls_tensor *x);

/* Gradients of the reduce builders use these too: an ls_axes of the bits set in mask. */
ls_axes ls_axes_of_mask(int64_t mask);

/* ls_op_dropout with its key given: the same layer and call draw the same masks, however often they are traced. */
ls_tensor *ls_op_dropout_keyed(ls_tensor *x, ls_tensor *rate, int64_t layer, int64_t call);

/* Builders that only gradients use. */
ls_tensor *ls_op_relu_grad(ls_tensor *dy, ls_tensor *x, double slope);

#endif
