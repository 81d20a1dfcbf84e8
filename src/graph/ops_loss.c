/* Losses with one value per sample: they reduce the last axis. All but sparse cross-entropy and CTC
 * are built from other ops. */
#include "base/fpmode.h"
#include "graph/claim.h"
#include "graph/rules.h"

#define LS_CLIP 1e-7 /* Keras's epsilon for probabilities */

static ls_tensor *last_mean(ls_tensor *x)
{
    return ls_op_reduce_mean(x, LS_AXES(-1), false);
}

static ls_tensor *last_sum(ls_tensor *x)
{
    return ls_op_reduce_sum(x, LS_AXES(-1), false);
}

/* Broadcasting would hide mistakes: [N] and [N,1] would give [N,N]. */
static ls_tensor *check_pair(const char *what, ls_tensor *targets, ls_tensor *predictions)
{
    char t[LS_SHAPE_TEXT], p[LS_SHAPE_TEXT];
    ls_status status = LS_OK;
    if (ls_tensor_is_error(predictions))
        return predictions;
    if (targets && ls_tensor_is_error(targets))
        return targets;
    const ls_shape *shape = &predictions->shape;
    if (!targets)
        status = ls_fail(LS_ERR_INVALID, "the targets are NULL");
    else if (!ls_shape_equal(&targets->shape, shape) || targets->per_sample != predictions->per_sample)
        status = ls_fail(LS_ERR_SHAPE, "the targets have shape %s and the predictions %s; they must be equal",
                         ls_shape_format(&targets->shape, t), ls_shape_format(shape, p));
    else if (shape->rank - (predictions->per_sample ? 1 : 0) < 1)
        status =
            ls_fail(LS_ERR_SHAPE, "shape %s has no axis to reduce besides the batch axis", ls_shape_format(shape, p));
    return status == LS_OK ? NULL : ls_node_error(predictions->graph, status, what);
}

/* The logits if `scores` is the output of `op` (softmax: over the last axis), else NULL. */
static ls_tensor *logits_of(ls_tensor *scores, ls_op op)
{
    if (scores->op != op)
        return NULL;
    bool last = op != LS_OP_softmax || scores->attr.axis.axis == scores->shape.rank - 1;
    return last ? scores->in[0] : NULL;
}

/* Inputs: logits [..,C], labels [..]. */
ls_status ls_shape_sparse_cross_entropy(ls_tensor *node)
{
    const ls_tensor *logits = node->in[0], *labels = node->in[1];
    LS_TRY(ls_need_real(node, 0));
    if (!ls_dtype_is_integer(labels->dtype) && labels->dtype != LS_U8)
        return ls_fail(LS_ERR_DTYPE, "labels are %s; they must be int32, int64 or uint8", ls_dtype_name(labels->dtype));
    ls_shape expected = logits->shape;
    if (expected.rank < 1 || (logits->per_sample && expected.rank < 2))
        return ls_fail(LS_ERR_SHAPE, "the logits need an axis of classes besides the batch axis");
    if (expected.dims[expected.rank - 1] == 0)
        return ls_fail(LS_ERR_SHAPE, "there are no classes");
    expected.rank--;
    if (!ls_shape_equal(&expected, &labels->shape) || logits->per_sample != labels->per_sample) {
        char a[LS_SHAPE_TEXT], b[LS_SHAPE_TEXT];
        return ls_fail(LS_ERR_SHAPE, "labels have shape %s; expected %s", ls_shape_format(&labels->shape, a),
                       ls_shape_format(&expected, b));
    }
    ls_rule_like_first(node);
    node->shape = expected;
    return LS_OK;
}

ls_tensor *ls_op_sparse_cross_entropy(ls_tensor *labels, ls_tensor *scores, ls_scores kind)
{
    LS_CLAIM_TENSORS(labels, scores);
    if (ls_tensor_is_error(scores))
        return scores;
    if (kind == LS_PROBABILITIES) {
        ls_tensor *logits = logits_of(scores, LS_OP_softmax);
        scores = logits ? logits : ls_op_log(ls_op_clip(scores, LS_CLIP, 1 - LS_CLIP));
    }
    return ls_node_make2(LS_OP_sparse_cross_entropy, scores, labels, ls_no_attrs());
}

void ls_grad_sparse_cross_entropy(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_tensor *in[] = { y->in[0], y->in[1], dy };
    dx[0] = ls_node_make(NULL, &(ls_node_spec){ .op = LS_OP_sparse_cross_entropy_grad, .in = in, .input_count = 3 });
}

/* Inputs: logits, labels, dy. */
ls_status ls_shape_sparse_cross_entropy_grad(ls_tensor *node)
{
    ls_rule_like_first(node);
    return LS_OK;
}

/* f = (softmax - one_hot) dy: gradients of the logits through the softmax, and of dy. */
void ls_grad_sparse_cross_entropy_grad(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_tensor *logits = y->in[0], *labels = y->in[1], *weight = ls_op_with_last_axis(y->in[2]);
    ls_tensor *p = ls_op_softmax(logits, -1);
    ls_tensor *g = ls_op_mul(dy, weight);
    dx[0] = ls_op_mul(p, ls_op_sub(g, ls_op_reduce_sum(ls_op_mul(p, g), LS_AXES(-1), true)));
    int64_t classes = logits->shape.dims[logits->shape.rank - 1];
    dx[2] = last_sum(ls_op_mul(dy, ls_op_sub(p, ls_op_one_hot(labels, logits->dtype, classes))));
}

/* Normalizes and clips probabilities as Keras does. */
ls_tensor *ls_op_cross_entropy(ls_tensor *labels, ls_tensor *scores, ls_scores kind)
{
    LS_CLAIM_TENSORS(labels, scores);
    ls_tensor *error = check_pair("cross_entropy", labels, scores);
    if (error || !scores)
        return error;
    ls_tensor *log_p;
    ls_tensor *logits = kind == LS_LOGITS ? scores : logits_of(scores, LS_OP_softmax);
    if (logits) {
        log_p = ls_op_log_softmax(logits, -1);
    } else {
        ls_tensor *p = ls_op_div(scores, ls_op_reduce_sum(scores, LS_AXES(-1), true));
        log_p = ls_op_log(ls_op_clip(p, LS_CLIP, 1 - LS_CLIP));
    }
    return ls_op_neg(last_sum(ls_op_mul(labels, log_p)));
}

/* max(z,0) - z y + log(1 + e^-|z|) never overflows. Built with select, so that the gradient at z =
 * 0, where an untrained model starts, is the correct 1/2 - y. */
ls_tensor *ls_op_binary_cross_entropy(ls_tensor *labels, ls_tensor *scores, ls_scores kind)
{
    LS_CLAIM_TENSORS(labels, scores);
    ls_tensor *error = check_pair("binary_cross_entropy", labels, scores);
    if (error || !scores)
        return error;
    ls_tensor *z = kind == LS_LOGITS ? scores : logits_of(scores, LS_OP_sigmoid);
    if (z) {
        ls_tensor *zero = ls_scalar_like(z, 0), *positive = ls_op_compare(z, LS_GREATER_EQUAL, zero);
        ls_tensor *tail = ls_op_softplus(ls_op_select(positive, ls_op_neg(z), z));
        return last_mean(ls_op_add(ls_op_sub(ls_op_select(positive, z, zero), ls_op_mul(z, labels)), tail));
    }
    ls_tensor *p = ls_op_clip(scores, LS_CLIP, 1 - LS_CLIP), *one = ls_scalar_like(p, 1);
    ls_tensor *hit = ls_op_mul(labels, ls_op_log(p));
    ls_tensor *miss = ls_op_mul(ls_op_sub(one, labels), ls_op_log(ls_op_sub(one, p)));
    return ls_op_neg(last_mean(ls_op_add(hit, miss)));
}

ls_tensor *ls_op_mean_squared_error(ls_tensor *targets, ls_tensor *predictions)
{
    LS_CLAIM_TENSORS(targets, predictions);
    ls_tensor *error = check_pair("mean_squared_error", targets, predictions);
    return error || !predictions ? error : last_mean(ls_op_square(ls_op_sub(predictions, targets)));
}

ls_tensor *ls_op_mean_absolute_error(ls_tensor *targets, ls_tensor *predictions)
{
    LS_CLAIM_TENSORS(targets, predictions);
    ls_tensor *error = check_pair("mean_absolute_error", targets, predictions);
    return error || !predictions ? error : last_mean(ls_op_abs(ls_op_sub(predictions, targets)));
}

/* e^2/2 up to delta, then delta |e| - delta^2/2 */
ls_tensor *ls_op_huber(ls_tensor *targets, ls_tensor *predictions, double delta)
{
    LS_CLAIM_TENSORS(targets, predictions);
    LS_OWN_FP_MODE;
    ls_tensor *error = check_pair("huber", targets, predictions);
    if (error || !predictions)
        return error;
    if (!(delta > 0))
        return ls_node_error(predictions->graph, ls_fail(LS_ERR_INVALID, "delta must be above 0 (got %g)", delta),
                             "huber");
    ls_tensor *e = ls_op_sub(predictions, targets), *size = ls_op_abs(e);
    ls_tensor *inner = ls_op_scale(ls_op_square(e), 0.5);
    ls_tensor *outer = ls_op_shift(ls_op_scale(size, delta), -0.5 * delta * delta);
    ls_tensor *near = ls_op_compare(size, LS_LESS_EQUAL, ls_scalar_like(size, delta));
    return last_mean(ls_op_select(near, inner, outer));
}

/* ---- Connectionist temporal classification ---- */

/* Inputs: logits [N,T,C], labels [N,L]. */
ls_status ls_shape_ctc(ls_tensor *node)
{
    const ls_tensor *logits = node->in[0], *labels = node->in[1];
    char a[LS_SHAPE_TEXT], b[LS_SHAPE_TEXT];
    LS_TRY(ls_need_real(node, 0));
    if (!ls_dtype_is_integer(labels->dtype) && labels->dtype != LS_U8)
        return ls_fail(LS_ERR_DTYPE, "labels are %s; they must be int32, int64 or uint8", ls_dtype_name(labels->dtype));
    if (logits->shape.rank != 3 || labels->shape.rank != 2 || logits->shape.dims[0] != labels->shape.dims[0] ||
        logits->per_sample != labels->per_sample)
        return ls_fail(LS_ERR_SHAPE,
                       "labels have shape %s and logits %s; they must be [samples, labels] and [samples, frames, "
                       "classes]",
                       ls_shape_format(&labels->shape, a), ls_shape_format(&logits->shape, b));
    if (logits->shape.dims[1] == 0 || logits->shape.dims[2] == 0)
        return ls_fail(LS_ERR_SHAPE, "logits have shape %s; there must be a frame and a class",
                       ls_shape_format(&logits->shape, a));
    ls_rule_like_first(node);
    node->shape.rank = 1;
    return LS_OK;
}

ls_tensor *ls_op_ctc(ls_tensor *labels, ls_tensor *logits)
{
    LS_CLAIM_TENSORS(labels, logits);
    return ls_node_make2(LS_OP_ctc, logits, labels, ls_no_attrs());
}

void ls_grad_ctc(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_tensor *in[] = { y->in[0], y->in[1], dy };
    dx[0] = ls_node_make(NULL, &(ls_node_spec){ .op = LS_OP_ctc_grad, .in = in, .input_count = 3 });
}

/* Inputs: logits, labels, dy. */
ls_status ls_shape_ctc_grad(ls_tensor *node)
{
    ls_rule_like_first(node);
    return LS_OK;
}
