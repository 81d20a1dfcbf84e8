/* Elementwise ops, with dropout. autodiff.c adds the sums over broadcast axes to gradients. */
#include "graph/claim.h"
#include "graph/rules.h"

static ls_tensor *unary(ls_op op, ls_tensor *x)
{
    return ls_node_make1(op, x, ls_no_attrs());
}

static ls_tensor *binary(ls_op op, ls_tensor *a, ls_tensor *b)
{
    return ls_node_make2(op, a, b, ls_no_attrs());
}

static ls_status need_number(const ls_tensor *node, int input)
{
    ls_dtype dtype = node->in[input]->dtype;
    if (ls_dtype_is_real(dtype) || ls_dtype_is_integer(dtype))
        return LS_OK;
    return ls_fail(LS_ERR_DTYPE, "input %d is %s; it must be float32, float64, int32 or int64: cast it first", input,
                   ls_dtype_name(dtype));
}

ls_status ls_shape_number(ls_tensor *node)
{
    LS_TRY(need_number(node, 0));
    ls_rule_like_first(node);
    return LS_OK;
}

ls_status ls_shape_real(ls_tensor *node)
{
    LS_TRY(ls_need_real(node, 0));
    ls_rule_like_first(node);
    return LS_OK;
}

ls_status ls_shape_binary(ls_tensor *node)
{
    LS_TRY(need_number(node, 0));
    LS_TRY(ls_need_same_dtype(node));
    node->dtype = node->in[0]->dtype;
    return ls_rule_broadcast(node, 0, 2);
}

ls_status ls_shape_binary_real(ls_tensor *node)
{
    LS_TRY(ls_need_real(node, 0));
    return ls_shape_binary(node);
}

ls_status ls_shape_compare(ls_tensor *node)
{
    LS_TRY(ls_shape_binary(node));
    node->dtype = LS_BOOL;
    return LS_OK;
}

ls_status ls_shape_select(ls_tensor *node)
{
    if (node->in[0]->dtype != LS_BOOL)
        return ls_fail(LS_ERR_DTYPE, "the condition is %s; it must be bool", ls_dtype_name(node->in[0]->dtype));
    if (node->in[1]->dtype != node->in[2]->dtype)
        return ls_fail(LS_ERR_DTYPE, "the choices differ in type: %s and %s", ls_dtype_name(node->in[1]->dtype),
                       ls_dtype_name(node->in[2]->dtype));
    node->dtype = node->in[1]->dtype;
    return ls_rule_broadcast(node, 0, 3);
}

ls_status ls_shape_same_pair(ls_tensor *node)
{
    LS_TRY(ls_need_real(node, 0));
    LS_TRY(ls_need_same_dtype(node));
    if (!ls_shape_equal(&node->in[0]->shape, &node->in[1]->shape) || node->in[0]->per_sample != node->in[1]->per_sample)
        return ls_fail(LS_ERR_SHAPE, "both inputs must have the same shape");
    ls_rule_like_first(node);
    return LS_OK;
}

ls_status ls_shape_cast(ls_tensor *node)
{
    ls_dtype dtype = node->dtype;
    ls_rule_like_first(node);
    node->dtype = dtype;
    return LS_OK;
}

ls_tensor *ls_op_cast(ls_tensor *x, ls_dtype dtype)
{
    LS_CLAIM_TENSORS(x);
    if (x && x->op != LS_OP_ERROR && (unsigned)dtype >= LS_DTYPE_COUNT)
        return ls_node_error(x->graph, ls_fail(LS_ERR_DTYPE, "unknown type %d", (int)dtype), "cast");
    if (x && x->op != LS_OP_ERROR && x->dtype == dtype)
        return x;
    return ls_node_make(NULL, &(ls_node_spec){ .op = LS_OP_cast, .in = &x, .input_count = 1, .dtype = dtype });
}

void ls_grad_cast(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    if (ls_dtype_is_real(y->in[0]->dtype) && ls_dtype_is_real(y->dtype))
        dx[0] = ls_op_cast(dy, y->in[0]->dtype);
}

ls_tensor *ls_op_stop_gradient(ls_tensor *x)
{
    LS_CLAIM_TENSORS(x);
    return unary(LS_OP_stop_gradient, x);
}

ls_tensor *ls_op_add(ls_tensor *a, ls_tensor *b)
{
    LS_CLAIM_TENSORS(a, b);
    return binary(LS_OP_add, a, b);
}

void ls_grad_add(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    (void)y;
    dx[0] = dy;
    dx[1] = dy;
}

ls_tensor *ls_op_sub(ls_tensor *a, ls_tensor *b)
{
    LS_CLAIM_TENSORS(a, b);
    return binary(LS_OP_sub, a, b);
}

void ls_grad_sub(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    (void)y;
    dx[0] = dy;
    dx[1] = ls_op_neg(dy);
}

ls_tensor *ls_op_mul(ls_tensor *a, ls_tensor *b)
{
    LS_CLAIM_TENSORS(a, b);
    return binary(LS_OP_mul, a, b);
}

void ls_grad_mul(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_mul(dy, y->in[1]);
    dx[1] = ls_op_mul(dy, y->in[0]);
}

ls_tensor *ls_op_div(ls_tensor *a, ls_tensor *b)
{
    LS_CLAIM_TENSORS(a, b);
    return binary(LS_OP_div, a, b);
}

void ls_grad_div(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_div(dy, y->in[1]);
    dx[1] = ls_op_neg(ls_op_div(ls_op_mul(dy, y), y->in[1]));
}

ls_tensor *ls_op_pow(ls_tensor *a, ls_tensor *b)
{
    LS_CLAIM_TENSORS(a, b);
    return binary(LS_OP_pow, a, b);
}

/* d/da = b a^(b-1), 0 if b is 0 (PyTorch); d/db = a^b log a, 0 if a <= 0 (TensorFlow) */
void ls_grad_pow(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_tensor *a = y->in[0], *b = y->in[1];
    ls_tensor *zero = ls_scalar_like(a, 0), *one = ls_scalar_like(a, 1);
    ls_tensor *slope = ls_op_mul(b, ls_op_pow(a, ls_op_sub(b, one)));
    dx[0] = ls_op_mul(dy, ls_op_select(ls_op_compare(b, LS_EQUAL, zero), zero, slope));
    ls_tensor *positive = ls_op_compare(a, LS_GREATER, zero);
    ls_tensor *log_a = ls_op_select(positive, ls_op_log(ls_op_select(positive, a, one)), zero);
    dx[1] = ls_op_mul(dy, ls_op_mul(y, log_a));
}

ls_tensor *ls_op_maximum(ls_tensor *a, ls_tensor *b)
{
    LS_CLAIM_TENSORS(a, b);
    return binary(LS_OP_maximum, a, b);
}

ls_tensor *ls_op_minimum(ls_tensor *a, ls_tensor *b)
{
    LS_CLAIM_TENSORS(a, b);
    return binary(LS_OP_minimum, a, b);
}

static void grad_extreme(ls_tensor *y, ls_tensor *dy, ls_relation a_wins, ls_tensor **dx)
{
    ls_tensor *mask = ls_op_compare(y->in[0], a_wins, y->in[1]), *zero = ls_scalar_like(dy, 0);
    dx[0] = ls_op_select(mask, dy, zero);
    dx[1] = ls_op_select(mask, zero, dy);
}

void ls_grad_maximum(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    grad_extreme(y, dy, LS_GREATER_EQUAL, dx);
}

void ls_grad_minimum(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    grad_extreme(y, dy, LS_LESS_EQUAL, dx);
}

ls_tensor *ls_op_scale(ls_tensor *x, double factor)
{
    LS_CLAIM_TENSORS(x);
    return ls_tensor_is_error(x) ? x : ls_op_mul(x, ls_scalar_like(x, factor));
}

ls_tensor *ls_op_shift(ls_tensor *x, double amount)
{
    LS_CLAIM_TENSORS(x);
    return ls_tensor_is_error(x) ? x : ls_op_add(x, ls_scalar_like(x, amount));
}

ls_tensor *ls_op_compare(ls_tensor *a, ls_relation relation, ls_tensor *b)
{
    LS_CLAIM_TENSORS(a, b);
    ls_graph *graph = ls_graph_of((ls_tensor *[]){ a, b }, 2);
    if (graph && (unsigned)relation > LS_GREATER_EQUAL)
        return ls_node_error(graph, ls_fail(LS_ERR_INVALID, "unknown relation %d", (int)relation), "compare");
    return ls_node_make2(LS_OP_compare, a, b, (ls_attrs){ .relation = { .relation = relation } });
}

ls_tensor *ls_op_select(ls_tensor *condition, ls_tensor *a, ls_tensor *b)
{
    LS_CLAIM_TENSORS(condition, a, b);
    ls_tensor *in[] = { condition, a, b };
    return ls_node_make(NULL, &(ls_node_spec){ .op = LS_OP_select, .in = in, .input_count = 3 });
}

void ls_grad_select(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    if (!ls_dtype_is_real(y->dtype))
        return;
    ls_tensor *zero = ls_scalar_like(dy, 0);
    dx[1] = ls_op_select(y->in[0], dy, zero);
    dx[2] = ls_op_select(y->in[0], zero, dy);
}

ls_tensor *ls_op_neg(ls_tensor *x)
{
    LS_CLAIM_TENSORS(x);
    return unary(LS_OP_neg, x);
}

void ls_grad_neg(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    (void)y;
    dx[0] = ls_op_neg(dy);
}

ls_tensor *ls_op_abs(ls_tensor *x)
{
    LS_CLAIM_TENSORS(x);
    return unary(LS_OP_abs, x);
}

void ls_grad_abs(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_mul(dy, ls_op_sign(y->in[0]));
}

ls_tensor *ls_op_sign(ls_tensor *x)
{
    LS_CLAIM_TENSORS(x);
    return unary(LS_OP_sign, x);
}

ls_tensor *ls_op_square(ls_tensor *x)
{
    LS_CLAIM_TENSORS(x);
    return unary(LS_OP_square, x);
}

void ls_grad_square(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_mul(dy, ls_op_scale(y->in[0], 2));
}

ls_tensor *ls_op_clip(ls_tensor *x, double low, double high)
{
    LS_CLAIM_TENSORS(x);
    if (!ls_tensor_is_error(x) && !(low <= high))
        return ls_node_error(x->graph, ls_fail(LS_ERR_INVALID, "the range from %g to %g is empty", low, high), "clip");
    return ls_node_make1(LS_OP_clip, x, (ls_attrs){ .range = { .low = low, .high = high } });
}

void ls_grad_clip(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_tensor *x = y->in[0], *zero = ls_scalar_like(dy, 0);
    ls_tensor *above = ls_op_compare(x, LS_GREATER_EQUAL, ls_scalar_like(x, y->attr.range.low));
    ls_tensor *below = ls_op_compare(x, LS_LESS_EQUAL, ls_scalar_like(x, y->attr.range.high));
    dx[0] = ls_op_select(above, ls_op_select(below, dy, zero), zero);
}

ls_tensor *ls_op_exp(ls_tensor *x)
{
    LS_CLAIM_TENSORS(x);
    return unary(LS_OP_exp, x);
}

void ls_grad_exp(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_mul(dy, y);
}

ls_tensor *ls_op_log(ls_tensor *x)
{
    LS_CLAIM_TENSORS(x);
    return unary(LS_OP_log, x);
}

void ls_grad_log(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_div(dy, y->in[0]);
}

ls_tensor *ls_op_sqrt(ls_tensor *x)
{
    LS_CLAIM_TENSORS(x);
    return unary(LS_OP_sqrt, x);
}

void ls_grad_sqrt(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_div(ls_op_scale(dy, 0.5), y);
}

ls_tensor *ls_op_rsqrt(ls_tensor *x)
{
    LS_CLAIM_TENSORS(x);
    return unary(LS_OP_rsqrt, x);
}

/* -1/2 y^3 */
void ls_grad_rsqrt(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_mul(ls_op_scale(dy, -0.5), ls_op_mul(y, ls_op_square(y)));
}

ls_tensor *ls_op_erf(ls_tensor *x)
{
    LS_CLAIM_TENSORS(x);
    return unary(LS_OP_erf, x);
}

#define TWO_OVER_SQRT_PI  1.1283791670955125739
#define ONE_OVER_SQRT_2   0.70710678118654752440
#define ONE_OVER_SQRT_2PI 0.39894228040143267794
#define SQRT_2_OVER_PI    0.79788456080286535588

void ls_grad_erf(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_tensor *bell = ls_op_exp(ls_op_neg(ls_op_square(y->in[0])));
    dx[0] = ls_op_mul(dy, ls_op_scale(bell, TWO_OVER_SQRT_PI));
}

ls_tensor *ls_op_relu(ls_tensor *x)
{
    LS_CLAIM_TENSORS(x);
    return unary(LS_OP_relu, x);
}

void ls_grad_relu(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_relu_grad(dy, y->in[0], 0);
}

ls_tensor *ls_op_leaky_relu(ls_tensor *x, double slope)
{
    LS_CLAIM_TENSORS(x);
    return ls_node_make1(LS_OP_leaky_relu, x, (ls_attrs){ .slope = { .slope = slope } });
}

void ls_grad_leaky_relu(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_relu_grad(dy, y->in[0], y->attr.slope.slope);
}

/* dy where x > 0, else slope dy */
ls_tensor *ls_op_relu_grad(ls_tensor *dy, ls_tensor *x, double slope)
{
    return ls_node_make2(LS_OP_relu_grad, dy, x, (ls_attrs){ .slope = { .slope = slope } });
}

void ls_grad_relu_grad(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_relu_grad(dy, y->in[1], y->attr.slope.slope);
}

ls_tensor *ls_op_capped_relu(ls_tensor *x, double limit)
{
    LS_CLAIM_TENSORS(x);
    if (!ls_tensor_is_error(x) && !(limit >= 0))
        return ls_node_error(x->graph, ls_fail(LS_ERR_INVALID, "the limit is %g; it must be at least 0", limit),
                             "capped_relu");
    return ls_node_make1(LS_OP_capped_relu, x, (ls_attrs){ .number = { .value = limit } });
}

/* dy where 0 < x <= limit, else 0 */
ls_tensor *ls_op_capped_relu_grad(ls_tensor *dy, ls_tensor *x, double limit)
{
    return ls_node_make2(LS_OP_capped_relu_grad, dy, x, (ls_attrs){ .number = { .value = limit } });
}

void ls_grad_capped_relu(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_capped_relu_grad(dy, y->in[0], y->attr.number.value);
}

void ls_grad_capped_relu_grad(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_capped_relu_grad(dy, y->in[1], y->attr.number.value);
}

ls_tensor *ls_op_sigmoid(ls_tensor *x)
{
    LS_CLAIM_TENSORS(x);
    return unary(LS_OP_sigmoid, x);
}

/* y (1 - y) */
void ls_grad_sigmoid(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_mul(dy, ls_op_mul(y, ls_op_sub(ls_scalar_like(y, 1), y)));
}

ls_tensor *ls_op_tanh(ls_tensor *x)
{
    LS_CLAIM_TENSORS(x);
    return unary(LS_OP_tanh, x);
}

/* 1 - y^2 */
void ls_grad_tanh(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_mul(dy, ls_op_sub(ls_scalar_like(y, 1), ls_op_square(y)));
}

ls_tensor *ls_op_softplus(ls_tensor *x)
{
    LS_CLAIM_TENSORS(x);
    return unary(LS_OP_softplus, x);
}

void ls_grad_softplus(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_mul(dy, ls_op_sigmoid(y->in[0]));
}

ls_tensor *ls_op_gelu(ls_tensor *x, bool tanh_form)
{
    LS_CLAIM_TENSORS(x);
    return ls_node_make1(LS_OP_gelu, x, (ls_attrs){ .gelu = { .tanh_form = tanh_form } });
}

/* Phi(x) + x phi(x) */
static ls_tensor *gelu_slope(ls_tensor *x)
{
    ls_tensor *cdf = ls_op_scale(ls_op_shift(ls_op_erf(ls_op_scale(x, ONE_OVER_SQRT_2)), 1), 0.5);
    ls_tensor *bell = ls_op_scale(ls_op_exp(ls_op_scale(ls_op_square(x), -0.5)), ONE_OVER_SQRT_2PI);
    return ls_op_add(cdf, ls_op_mul(x, bell));
}

/* With t = tanh(c (x + 0.044715 x^3)): (1 + t)/2 + x/2 (1 - t^2) c (1 + 3 0.044715 x^2) */
static ls_tensor *gelu_tanh_slope(ls_tensor *x)
{
    ls_tensor *square = ls_op_square(x);
    ls_tensor *inner = ls_op_mul(x, ls_op_shift(ls_op_scale(square, 0.044715), 1));
    ls_tensor *t = ls_op_tanh(ls_op_scale(inner, SQRT_2_OVER_PI));
    ls_tensor *inner_slope = ls_op_scale(ls_op_shift(ls_op_scale(square, 3 * 0.044715), 1), SQRT_2_OVER_PI);
    ls_tensor *steep = ls_op_sub(ls_scalar_like(x, 1), ls_op_square(t));
    ls_tensor *right = ls_op_mul(ls_op_scale(x, 0.5), ls_op_mul(steep, inner_slope));
    return ls_op_add(ls_op_scale(ls_op_shift(t, 1), 0.5), right);
}

void ls_grad_gelu(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_mul(dy, y->attr.gelu.tanh_form ? gelu_tanh_slope(y->in[0]) : gelu_slope(y->in[0]));
}

ls_tensor *ls_op_silu(ls_tensor *x)
{
    LS_CLAIM_TENSORS(x);
    return unary(LS_OP_silu, x);
}

void ls_grad_silu(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_silu_grad(dy, y->in[0]);
}

/* dy (s + x s (1 - s)), s = sigmoid(x) */
ls_tensor *ls_op_silu_grad(ls_tensor *dy, ls_tensor *x)
{
    return ls_node_make2(LS_OP_silu_grad, dy, x, (ls_attrs){ 0 });
}

/* By x: dy s (1 - s) (2 + x (1 - 2 s)) */
void ls_grad_silu_grad(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_tensor *x = y->in[1], *s = ls_op_sigmoid(x), *one = ls_scalar_like(x, 1);
    ls_tensor *curve = ls_op_shift(ls_op_mul(x, ls_op_sub(one, ls_op_scale(s, 2))), 2);
    dx[0] = ls_op_silu_grad(dy, x);
    dx[1] = ls_op_mul(ls_op_mul(dy, y->in[0]), ls_op_mul(ls_op_mul(s, ls_op_sub(one, s)), curve));
}

ls_tensor *ls_op_elu(ls_tensor *x, double alpha)
{
    LS_CLAIM_TENSORS(x);
    return ls_node_make1(LS_OP_elu, x, (ls_attrs){ .slope = { .slope = alpha } });
}

/* 1 if x > 0, else alpha e^x; the branch not taken must not overflow. */
void ls_grad_elu(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_tensor *x = y->in[0], *zero = ls_scalar_like(x, 0);
    ls_tensor *decay = ls_op_scale(ls_op_exp(ls_op_minimum(x, zero)), y->attr.slope.slope);
    dx[0] = ls_op_select(ls_op_compare(x, LS_GREATER, zero), dy, ls_op_mul(dy, decay));
}

ls_status ls_shape_dropout(ls_tensor *node)
{
    LS_TRY(ls_need_real(node, 0));
    LS_TRY(ls_need_same_dtype(node));
    if (node->in[1]->shape.rank != 0)
        return ls_fail(LS_ERR_SHAPE, "the rate must be a scalar");
    ls_rule_like_first(node);
    return LS_OK;
}

ls_tensor *ls_op_dropout_keyed(ls_tensor *x, ls_tensor *rate, int64_t layer, int64_t call)
{
    return ls_node_make2(LS_OP_dropout, x, rate, (ls_attrs){ .random = { .layer = layer, .call = call } });
}

ls_tensor *ls_op_dropout(ls_tensor *x, ls_tensor *rate)
{
    LS_CLAIM_TENSORS(x, rate);
    if (ls_tensor_is_error(x))
        return x;
    return ls_op_dropout_keyed(x, rate, x->graph->random_count++, 0);
}

/* The same key reproduces the mask. */
void ls_grad_dropout(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_dropout_keyed(dy, y->in[1], y->attr.random.layer, y->attr.random.call);
}
