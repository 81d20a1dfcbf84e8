/* Batch and layer normalization.
 *
 * `moments` reduces the batch to sums and sums of squares per channel (f64 [2,C]); `batch_norm`
 * normalizes each sample with them. Its gradient includes the path through the moments, so
 * `moments` needs none.
 *
 * With statistics per lane (by_lane) each sample is normalized with its own lane's sums; the joined
 * sums are the same and give the moving averages and the gradients of gamma and beta. */
#include "base/fpmode.h"
#include "graph/claim.h"
#include "graph/rules.h"

static ls_status need_channels(const ls_tensor *x)
{
    if (x->shape.rank < 2)
        return ls_fail(LS_ERR_SHAPE, "the input must have at least 2 axes, the last one for the channels (got %d)",
                       x->shape.rank);
    if (x->shape.dims[x->shape.rank - 1] == LS_BATCH)
        return ls_fail(LS_ERR_SHAPE, "the number of channels must be known");
    return LS_OK;
}

static void moments_shape(ls_tensor *node, const ls_tensor *from)
{
    node->dtype = LS_F64;
    node->shape = LS_SHAPE(2, from->shape.dims[from->shape.rank - 1]);
    node->per_sample = false;
    node->use = from->per_sample ? LS_USE_REDUCES : LS_USE_WHOLE;
}

ls_status ls_shape_moments(ls_tensor *node)
{
    LS_TRY(ls_need_real(node, 0));
    LS_TRY(need_channels(node->in[0]));
    moments_shape(node, node->in[0]);
    return LS_OK;
}

static ls_status need_vector(const ls_tensor *node, int input, const char *what)
{
    char text[LS_SHAPE_TEXT];
    const ls_tensor *x = node->in[0], *v = node->in[input];
    int64_t channels = x->shape.dims[x->shape.rank - 1];
    LS_TRY(ls_need_whole(node, input, what));
    if (v->dtype != x->dtype || v->shape.rank != 1 || v->shape.dims[0] != channels)
        return ls_fail(LS_ERR_SHAPE, "%s is %s %s; expected %s (%lld,)", what, ls_dtype_name(v->dtype),
                       ls_shape_format(&v->shape, text), ls_dtype_name(x->dtype), (long long)channels);
    return LS_OK;
}

/* Inputs: x, moments, gamma, beta. */
ls_status ls_shape_batch_norm(ls_tensor *node)
{
    LS_TRY(need_vector(node, 2, "gamma"));
    LS_TRY(need_vector(node, 3, "beta"));
    ls_rule_like_first(node);
    return LS_OK;
}

/* Inputs: dy, x, moments. Output: sums of dy and of dy times the normalized x. */
ls_status ls_shape_batch_norm_grad_moments(ls_tensor *node)
{
    moments_shape(node, node->in[0]);
    return LS_OK;
}

/* Inputs: dy, x, moments, gamma, output of batch_norm_grad_moments. */
ls_status ls_shape_batch_norm_grad_input(ls_tensor *node)
{
    ls_rule_like_first(node);
    return LS_OK;
}

/* Returns row 0 or 1 of f64 [2,C] as [C]. */
static ls_tensor *moment(ls_tensor *moments, int row)
{
    int64_t channels = moments->shape.dims[1];
    return ls_op_reshape(ls_op_slice(moments, LS_AXES(row, 0), LS_AXES(1, channels)), LS_SHAPE(channels));
}

void ls_grad_batch_norm(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_tensor *x = y->in[0], *moments = y->in[1], *gamma = y->in[2];
    ls_attrs attr = y->attr;
    ls_tensor *sums = ls_node_make(NULL, &(ls_node_spec){ .op = LS_OP_batch_norm_grad_moments,
                                                          .in = (ls_tensor *[]){ dy, x, moments },
                                                          .input_count = 3,
                                                          .attr = attr });
    dx[0] = ls_node_make(NULL, &(ls_node_spec){ .op = LS_OP_batch_norm_grad_input,
                                                .in = (ls_tensor *[]){ dy, x, moments, gamma, sums },
                                                .input_count = 5,
                                                .attr = attr });
    dx[2] = ls_op_cast(moment(sums, 1), x->dtype);
    dx[3] = ls_op_cast(moment(sums, 0), x->dtype);
}

bool ls_node_is_by_lane(const ls_tensor *node)
{
    switch (node->op) {
    case LS_OP_moments:
        return node->attr.statistics.by_lane;
    case LS_OP_batch_norm:
    case LS_OP_batch_norm_grad_moments:
    case LS_OP_batch_norm_grad_input:
        return node->attr.norm.by_lane;
    default:
        return false;
    }
}

/* Elements per channel in the whole batch, an f64 scalar. */
static ls_tensor *channel_count(ls_tensor *x)
{
    double known = 1;
    bool batch = false; /* a gathered batch's axis may have moved */
    for (int i = 0; i < x->shape.rank - 1; i++) {
        batch = batch || x->shape.dims[i] == LS_BATCH;
        known *= x->shape.dims[i] == LS_BATCH ? 1 : (double)x->shape.dims[i];
    }
    ls_tensor *scalar = ls_op_scalar(x->graph, LS_F64, known);
    return batch ? ls_op_mul(scalar, ls_op_count(x->graph, LS_F64)) : scalar;
}

/* moving + (value - moving) (1 - momentum), computed in f64; `moving` may be an assignment */
static ls_tensor *follow(ls_tensor *moving, ls_tensor *value, double momentum)
{
    bool again = moving->op == LS_OP_assign;
    ls_tensor *variable = again ? moving->attr.variable.variable->node : moving;
    ls_tensor *old = ls_op_cast(again ? moving->in[0] : moving, LS_F64);
    ls_tensor *change = ls_op_scale(ls_op_sub(value, old), 1 - momentum);
    return ls_op_assign(variable, ls_op_cast(ls_op_add(old, change), ls_tensor_dtype(variable)));
}

static void update_moving(ls_tensor *x, ls_tensor *moments, const ls_batch_norm_op *options)
{
    double momentum = options->momentum != 0 ? options->momentum : 0.99;
    ls_tensor *count = channel_count(x);
    ls_tensor *mean = ls_op_div(moment(moments, 0), count);
    ls_tensor *variance = ls_op_sub(ls_op_div(moment(moments, 1), count), ls_op_square(mean));
    variance = ls_op_maximum(variance, ls_scalar_like(variance, 0));
    if (options->unbiased)
        variance =
            ls_op_mul(variance, ls_op_div(count, ls_op_maximum(ls_op_shift(count, -1), ls_scalar_like(count, 1))));
    options->updates[0] = options->moving_mean ? follow(options->moving_mean, mean, momentum) : NULL;
    options->updates[1] = options->moving_variance ? follow(options->moving_variance, variance, momentum) : NULL;
}

/* Error tensor that names v, unless v is a whole vector of x's channels (NULL). */
static ls_tensor *wrong_vector(ls_tensor *x, ls_tensor *v, const char *what)
{
    char text[LS_SHAPE_TEXT];
    int64_t channels = x->shape.dims[x->shape.rank - 1];
    if (v->op == LS_OP_ERROR)
        return v;
    if (!v->per_sample && v->dtype == x->dtype && v->shape.rank == 1 && v->shape.dims[0] == channels)
        return NULL;
    return ls_node_error(x->graph,
                         ls_fail(LS_ERR_SHAPE, "%s is %s %s; expected %s (%lld,)", what, ls_dtype_name(v->dtype),
                                 ls_shape_format(&v->shape, text), ls_dtype_name(x->dtype), (long long)channels),
                         "batch_norm");
}

/* gamma rsqrt(variance + epsilon) (x - mean) + beta with the moving statistics */
static ls_tensor *inference(ls_tensor *x, ls_tensor *gamma, ls_tensor *beta, const ls_batch_norm_op *options,
                            double epsilon)
{
    if (!options->moving_mean || !options->moving_variance)
        return ls_node_error(x->graph, ls_fail(LS_ERR_INVALID, "inference needs moving_mean and moving_variance"),
                             "batch_norm");
    const char *names[] = { "gamma", "beta", "moving_mean", "moving_variance" };
    ls_tensor *vectors[] = { gamma, beta, options->moving_mean, options->moving_variance };
    for (int i = 0; i < 4; i++) {
        ls_tensor *error = wrong_vector(x, vectors[i], names[i]);
        if (error)
            return error;
    }
    ls_tensor *scale = ls_op_mul(gamma, ls_op_rsqrt(ls_op_shift(options->moving_variance, epsilon)));
    return ls_op_add(ls_op_mul(ls_op_sub(x, options->moving_mean), scale), beta);
}

static ls_tensor *batch_norm(ls_tensor *x, ls_batch_norm_op options)
{
    if (ls_tensor_is_error(x))
        return x;
    ls_status status = need_channels(x);
    if (status == LS_OK && !(options.epsilon >= 0))
        status = ls_fail(LS_ERR_INVALID, "epsilon must be at least 0 (got %g)", options.epsilon);
    if (status == LS_OK && (unsigned)options.statistics > LS_PER_LANE)
        status = ls_fail(LS_ERR_INVALID, "unknown statistics %d", (int)options.statistics);
    if (status == LS_OK && !(options.momentum >= 0 && options.momentum <= 1))
        status = ls_fail(LS_ERR_INVALID, "momentum must be from 0 to 1 (got %g)", options.momentum);
    if (status != LS_OK)
        return ls_node_error(x->graph, status, "batch_norm");
    double epsilon = options.epsilon != 0 ? options.epsilon : 1e-3;
    ls_shape channels = LS_SHAPE(x->shape.dims[x->shape.rank - 1]);
    ls_tensor *gamma = options.gamma ? options.gamma : ls_op_fill(x->graph, x->dtype, channels, 1);
    ls_tensor *beta = options.beta ? options.beta : ls_op_fill(x->graph, x->dtype, channels, 0);
    if (!options.training)
        return inference(x, gamma, beta, &options, epsilon);
    bool by_lane = options.statistics == LS_PER_LANE;
    ls_tensor *moments = ls_node_make1(LS_OP_moments, x, (ls_attrs){ .statistics = { .by_lane = by_lane } });
    ls_tensor *in[] = { x, moments, gamma, beta };
    ls_attrs attr = { .norm = { .epsilon = epsilon, .by_lane = by_lane } };
    ls_tensor *y =
        ls_node_make(x->graph, &(ls_node_spec){ .op = LS_OP_batch_norm, .in = in, .input_count = 4, .attr = attr });
    if (options.updates && !ls_tensor_is_error(y))
        update_moving(x, moments, &options);
    return y;
}

/* Always sets `updates`, after an error to the error tensor, so that running them reports it. */
ls_tensor *ls_op_batch_norm_with(ls_tensor *x, ls_batch_norm_op options)
{
    LS_CLAIM_TENSORS(x);
    LS_OWN_FP_MODE;
    if (options.updates)
        options.updates[0] = options.updates[1] = NULL;
    ls_tensor *y = batch_norm(x, options);
    if (options.updates && ls_tensor_is_error(y))
        options.updates[0] = options.updates[1] = y;
    return y;
}

ls_tensor *ls_op_layer_norm_with(ls_tensor *x, ls_layer_norm_op options)
{
    LS_CLAIM_TENSORS(x);
    LS_OWN_FP_MODE;
    if (ls_tensor_is_error(x))
        return x;
    int count = options.axes ? options.axes : 1, most = x->shape.rank - (x->per_sample ? 1 : 0);
    ls_status status = LS_OK;
    if (!(count >= 1 && count <= most))
        status =
            ls_fail(LS_ERR_SHAPE, "the last %d axes cannot be normalized: the tensor has %d besides its batch axis",
                    count, most);
    else if (!ls_dtype_is_real(x->dtype))
        status = ls_fail(LS_ERR_DTYPE, "the input is %s; it must be float32 or float64", ls_dtype_name(x->dtype));
    else if (!(options.epsilon >= 0))
        status = ls_fail(LS_ERR_INVALID, "epsilon must be at least 0 (got %g)", options.epsilon);
    if (status != LS_OK)
        return ls_node_error(x->graph, status, "layer_norm");
    int64_t mask = 0;
    for (int i = x->shape.rank - count; i < x->shape.rank; i++)
        mask |= (int64_t)1 << i;
    ls_axes axes = ls_axes_of_mask(mask);
    ls_tensor *centred = ls_op_sub(x, ls_op_reduce_mean(x, axes, true));
    ls_tensor *variance = ls_op_reduce_mean(ls_op_square(centred), axes, true);
    double epsilon = options.epsilon != 0 ? options.epsilon : 1e-3;
    ls_tensor *y = ls_op_mul(centred, ls_op_rsqrt(ls_op_shift(variance, epsilon)));
    y = options.gamma ? ls_op_mul(y, options.gamma) : y;
    return options.beta ? ls_op_add(y, options.beta) : y;
}
