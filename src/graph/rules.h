/* Declarations of the rules that ops.def names, generated from it, so that a missing rule fails at
 * link time; and helpers of rules. */
#ifndef LS_GRAPH_RULES_H
#define LS_GRAPH_RULES_H

#include "graph/node.h"

/* C allows repeated declarations of shared rules. */
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

/* Checks that fail with a message. ls_mixes always fails: the op would mix samples. */
ls_status ls_need_real(const ls_tensor *node, int input);
ls_status ls_need_same_dtype(const ls_tensor *node);
ls_status ls_need_rank(const ls_tensor *node, int input, int rank);
ls_status ls_need_whole(const ls_tensor *node, int input, const char *what);
ls_status ls_mixes(const char *how);

/* Gives the output the type, shape and per_sample of input 0. */
void ls_rule_like_first(ls_tensor *node);

/* Sets shape, per_sample and use of the node from two or more broadcast inputs. */
ls_status ls_rule_broadcast(ls_tensor *node, int first_input, int count);

/* Converts an axis that may count from the end to 0..rank-1; fails if there is none. */
ls_status ls_rule_axis(const ls_shape *shape, int64_t axis, int64_t *out);

ls_tensor *ls_scalar_like(ls_tensor *x, double value);

/* Broadcasts x to the shape of `like`, per-sample if `like` is. ls_op_broadcast sees only the
 * shape, in which a gathered batch (whole) looks per-sample. */
ls_tensor *ls_op_broadcast_like(ls_tensor *x, const ls_tensor *like);

/* Checks that x is a float tensor [N,H,W,C] whose sizes are known. */
ls_status ls_need_image(const ls_tensor *x);
#define LS_MAX_SPATIAL ((int64_t)1 << 31) /* rows or columns of an image */

/* Appends an axis of size 1. */
ls_tensor *ls_op_with_last_axis(ls_tensor *x);

/* Axes whose bits are set. */
ls_axes ls_axes_of_mask(int64_t mask);

/* Dropout with an explicit key: a layer's call draws the same masks however often it is traced. */
ls_tensor *ls_op_dropout_keyed(ls_tensor *x, ls_tensor *rate, int64_t layer, int64_t call);
/* The same for normal numbers, float32. */
ls_tensor *ls_op_random_normal_keyed(ls_graph *graph, ls_shape shape, double mean, double deviation, int64_t layer,
                                     int64_t call);

/* Random numbers with an explicit key; op: random_uniform or random_normal. */
ls_tensor *ls_op_random_keyed(ls_graph *graph, ls_op op, ls_shape shape, double a, double b, int64_t layer,
                              int64_t call);

/* The gradient of a convolution's images as an op of its own. x has the shape of the convolution's
 * output, the result has images of `size`. The padding must be LS_EXPLICIT. */
ls_tensor *ls_op_conv2d_transpose(ls_tensor *x, ls_conv2d_op options, const int64_t size[2]);

/* Builders that only gradients use. */
ls_tensor *ls_op_relu_grad(ls_tensor *dy, ls_tensor *x, double slope);
ls_tensor *ls_op_capped_relu_grad(ls_tensor *dy, ls_tensor *x, double limit);
ls_tensor *ls_op_silu_grad(ls_tensor *dy, ls_tensor *x);

#endif
