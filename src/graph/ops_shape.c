/* Ops that move elements. Each rejects uses that would mix samples: the batch axis stays axis 0. */
#include <string.h>

#include "graph/claim.h"
#include "graph/rules.h"

static ls_batch_use use_of(bool per_sample)
{
    return per_sample ? LS_USE_KEEPS : LS_USE_WHOLE;
}

ls_status ls_shape_gather_batch(ls_tensor *node)
{
    if (!node->in[0]->per_sample)
        return ls_fail(LS_ERR_SHAPE, "the tensor has no batch axis to gather");
    ls_rule_like_first(node);
    node->per_sample = false;
    node->use = LS_USE_REDUCES;
    return LS_OK;
}

ls_tensor *ls_op_gather_batch(ls_tensor *x)
{
    LS_CLAIM_TENSORS(x);
    return ls_node_make1(LS_OP_gather_batch, x, ls_no_attrs());
}

void ls_grad_gather_batch(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    (void)y;
    dx[0] = ls_op_scatter_batch(dy);
}

ls_status ls_shape_scatter_batch(ls_tensor *node)
{
    const ls_tensor *x = node->in[0];
    if (x->per_sample || x->shape.rank == 0 || x->shape.dims[0] != LS_BATCH)
        return ls_fail(LS_ERR_SHAPE,
                       "the input must be a whole tensor with one row per sample (from ls_op_gather_batch)");
    ls_rule_like_first(node);
    node->per_sample = true;
    node->use = LS_USE_KEEPS;
    return LS_OK;
}

ls_tensor *ls_op_scatter_batch(ls_tensor *x)
{
    LS_CLAIM_TENSORS(x);
    return ls_node_make1(LS_OP_scatter_batch, x, ls_no_attrs());
}

void ls_grad_scatter_batch(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    (void)y;
    dx[0] = ls_op_gather_batch(dy);
}

/* Product of the known sizes, and number of LS_BATCH sizes. */
static bool known_product(const ls_shape *shape, int64_t *product, int *batches)
{
    *batches = 0;
    for (int i = 0; i < shape->rank; i++)
        *batches += shape->dims[i] == LS_BATCH;
    return ls_shape_count(shape, 1, product);
}

/* On entry node->shape is the requested shape. */
ls_status ls_shape_reshape(ls_tensor *node)
{
    const ls_tensor *x = node->in[0];
    ls_shape wanted = node->shape;
    int64_t from, to;
    int from_batches, to_batches, open = -1;
    char text[LS_SHAPE_TEXT];
    if (wanted.rank < 0 || wanted.rank > LS_MAX_RANK)
        return ls_fail(LS_ERR_SHAPE, "rank %d: must be from 0 to %d", wanted.rank, LS_MAX_RANK);
    for (int i = 0; i < wanted.rank; i++) {
        if (wanted.dims[i] != LS_REMAINING)
            continue;
        if (open >= 0)
            return ls_fail(LS_ERR_SHAPE, "only one axis can be LS_REMAINING");
        open = i;
        wanted.dims[i] = 1;
    }
    if (!known_product(&wanted, &to, &to_batches) || !known_product(&x->shape, &from, &from_batches))
        return ls_fail(LS_ERR_SHAPE, "shape %s is invalid", ls_shape_format(&node->shape, text));
    if (open >= 0 && to > 0 && from % to == 0) {
        wanted.dims[open] = from / to;
        to = from;
    }
    if (x->per_sample && (wanted.rank == 0 || wanted.dims[0] != LS_BATCH))
        return ls_mixes("the new shape must keep the batch axis as axis 0 (LS_BATCH)");
    if (from != to || from_batches != to_batches)
        return ls_fail(LS_ERR_SHAPE, "%lld elements%s do not fit shape %s", (long long)from,
                       from_batches ? " per sample" : "", ls_shape_format(&node->shape, text));
    ls_rule_like_first(node);
    node->shape = wanted;
    return LS_OK;
}

ls_tensor *ls_op_reshape(ls_tensor *x, ls_shape shape)
{
    LS_CLAIM_TENSORS(x);
    if (!ls_tensor_is_error(x) && ls_shape_equal(&x->shape, &shape))
        return x;
    return ls_node_make(NULL, &(ls_node_spec){ .op = LS_OP_reshape, .in = &x, .input_count = 1, .shape = shape });
}

void ls_grad_reshape(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_reshape(dy, y->in[0]->shape);
}

ls_tensor *ls_op_flatten(ls_tensor *x)
{
    LS_CLAIM_TENSORS(x);
    bool per_sample = ls_tensor_is_per_sample(x);
    return ls_op_reshape(x, per_sample ? LS_SHAPE(LS_BATCH, LS_REMAINING) : LS_SHAPE(LS_REMAINING));
}

ls_tensor *ls_op_with_last_axis(ls_tensor *x)
{
    if (ls_tensor_is_error(x))
        return x;
    ls_shape shape = x->shape;
    if (shape.rank < LS_MAX_RANK)
        shape.dims[shape.rank] = 1;
    shape.rank++;
    return ls_op_reshape(x, shape);
}

ls_status ls_shape_transpose(ls_tensor *node)
{
    const ls_tensor *x = node->in[0];
    int64_t *of = node->attr.permutation.of;
    unsigned seen = 0;
    ls_shape shape = { .rank = x->shape.rank };
    for (int i = 0; i < x->shape.rank; i++) {
        LS_TRY(ls_rule_axis(&x->shape, of[i], &of[i]));
        if (seen >> of[i] & 1)
            return ls_fail(LS_ERR_SHAPE, "axis %lld is given twice in the permutation", (long long)of[i]);
        seen |= 1u << of[i];
        shape.dims[i] = x->shape.dims[of[i]];
    }
    if (x->per_sample && of[0] != 0)
        return ls_mixes("the permutation moves the batch axis away from axis 0");
    ls_rule_like_first(node);
    node->shape = shape;
    return LS_OK;
}

ls_tensor *ls_op_transpose(ls_tensor *x, ls_axes permutation)
{
    LS_CLAIM_TENSORS(x);
    if (!ls_tensor_is_error(x) && permutation.count != x->shape.rank)
        return ls_node_error(x->graph,
                             ls_fail(LS_ERR_SHAPE, "the permutation has %d axes, but the tensor has %d",
                                     permutation.count, x->shape.rank),
                             "transpose");
    ls_attrs attr = ls_no_attrs();
    memcpy(attr.permutation.of, permutation.axis, sizeof(attr.permutation.of));
    return ls_node_make1(LS_OP_transpose, x, attr);
}

void ls_grad_transpose(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_axes inverse = { .count = y->shape.rank };
    for (int i = 0; i < y->shape.rank; i++)
        inverse.axis[y->attr.permutation.of[i]] = i;
    dx[0] = ls_op_transpose(dy, inverse);
}

/* On entry node->shape is the requested shape. */
ls_status ls_shape_broadcast(ls_tensor *node)
{
    const ls_tensor *x = node->in[0];
    const ls_shape *to = &node->shape;
    char a[LS_SHAPE_TEXT], b[LS_SHAPE_TEXT];
    bool fits = to->rank <= LS_MAX_RANK && x->shape.rank <= to->rank;
    for (int i = 0; fits && i < x->shape.rank; i++) {
        int64_t from = x->shape.dims[i], wanted = to->dims[i + to->rank - x->shape.rank];
        fits = from == wanted || from == 1;
    }
    if (!fits)
        return ls_fail(LS_ERR_SHAPE, "shape %s does not broadcast to %s", ls_shape_format(&x->shape, a),
                       ls_shape_format(to, b));
    if (x->per_sample && x->shape.rank != to->rank)
        return ls_mixes("broadcasting would move the batch axis away from axis 0");
    if (!x->per_sample && x->shape.rank == to->rank && to->rank > 0 && x->shape.dims[0] == LS_BATCH && node->per_sample)
        return ls_mixes("a gathered batch does not have one row per sample (use ls_op_scatter_batch)");
    node->dtype = x->dtype;
    node->use = use_of(node->per_sample);
    return LS_OK;
}

static ls_tensor *broadcast(ls_tensor *x, ls_shape shape, bool per_sample)
{
    if (!ls_tensor_is_error(x) && ls_shape_equal(&x->shape, &shape) && x->per_sample == per_sample)
        return x;
    return ls_node_make(
        NULL,
        &(ls_node_spec){ .op = LS_OP_broadcast, .in = &x, .input_count = 1, .shape = shape, .per_sample = per_sample });
}

/* A shape that begins with LS_BATCH makes a per-sample tensor. */
ls_tensor *ls_op_broadcast(ls_tensor *x, ls_shape shape)
{
    LS_CLAIM_TENSORS(x);
    return broadcast(x, shape, shape.rank > 0 && shape.dims[0] == LS_BATCH);
}

ls_tensor *ls_op_broadcast_like(ls_tensor *x, const ls_tensor *like)
{
    return broadcast(x, like->shape, like->per_sample);
}

void ls_grad_broadcast(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    (void)y;
    dx[0] = dy; /* autodiff.c sums over the broadcast axes */
}

ls_status ls_shape_concat(ls_tensor *node)
{
    const ls_tensor *first = node->in[0];
    int64_t *axis = &node->attr.axis.axis, total = 0;
    LS_TRY(ls_need_same_dtype(node));
    LS_TRY(ls_rule_axis(&first->shape, *axis, axis));
    if (first->per_sample && *axis == 0)
        return ls_mixes("concatenating along the batch axis");
    for (int i = 0; i < node->input_count; i++) {
        const ls_tensor *x = node->in[i];
        bool fits = x->shape.rank == first->shape.rank && x->per_sample == first->per_sample;
        for (int d = 0; fits && d < first->shape.rank; d++)
            fits = d == *axis || x->shape.dims[d] == first->shape.dims[d];
        if (!fits)
            return ls_fail(LS_ERR_SHAPE, "input %d differs from input 0 in an axis other than axis %lld", i,
                           (long long)*axis);
        if (x->shape.dims[*axis] == LS_BATCH)
            return ls_fail(LS_ERR_UNSUPPORTED, "axis %lld of a gathered batch has no known size", (long long)*axis);
        total += x->shape.dims[*axis]; /* cannot overflow: each size is below 2^56 */
    }
    ls_rule_like_first(node);
    node->shape.dims[*axis] = total;
    return LS_OK;
}

ls_tensor *ls_op_concat(ls_tensor *const *parts, size_t count, int axis)
{
    LS_CLAIM_TO_BUILD(parts ? ls_graph_of(parts, (int)count) : NULL);
    if (!parts || count == 0)
        return NULL;
    if (count > 65535) {
        ls_graph *graph = ls_graph_of(parts, 65535);
        return graph ? ls_node_error(graph, ls_fail(LS_ERR_INVALID, "%zu parts are too many", count), "concat") : NULL;
    }
    ls_attrs attr = { .axis = { .axis = axis } };
    return ls_node_make(NULL,
                        &(ls_node_spec){ .op = LS_OP_concat, .in = parts, .input_count = (int)count, .attr = attr });
}

static ls_tensor *slice_of(ls_tensor *x, int64_t axis, int64_t begin, int64_t size)
{
    ls_axes begins = { .count = x->shape.rank }, sizes = { .count = x->shape.rank };
    for (int i = 0; i < x->shape.rank; i++)
        sizes.axis[i] = -1;
    begins.axis[axis] = begin;
    sizes.axis[axis] = size;
    return ls_op_slice(x, begins, sizes);
}

void ls_grad_concat(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    int64_t axis = y->attr.axis.axis, begin = 0;
    for (int i = 0; i < y->input_count; i++) {
        int64_t size = y->in[i]->shape.dims[axis];
        dx[i] = slice_of(dy, axis, begin, size);
        begin += size;
    }
}

void ls_op_split(ls_tensor *x, int axis, ls_axes sizes, ls_tensor **out)
{
    int64_t plain = 0, begin = 0, total = 0;
    bool fits = true;
    ls_tensor *error = NULL;
    int count = sizes.count < LS_MAX_RANK ? sizes.count : LS_MAX_RANK;
    if (!out)
        return;
    for (int i = 0; i < count; i++)
        out[i] = ls_claim_error();
    LS_CLAIM_OR(x ? x->graph : NULL, );
    if (!ls_tensor_is_error(x)) {
        ls_status status = ls_rule_axis(&x->shape, axis, &plain);
        for (int i = 0; i < count; i++)
            fits = fits && sizes.axis[i] >= 0 && !__builtin_add_overflow(total, sizes.axis[i], &total);
        if (status == LS_OK && sizes.count != count)
            status = ls_fail(LS_ERR_SHAPE, "%d parts; the maximum is %d", sizes.count, LS_MAX_RANK);
        if (status == LS_OK && x->per_sample && plain == 0)
            status = ls_mixes("splitting the batch axis");
        if (status == LS_OK && !(fits && total == x->shape.dims[plain]))
            status = ls_fail(LS_ERR_SHAPE, "the parts add up to %lld, but axis %lld has %lld elements",
                             (long long)(fits ? total : -1), (long long)plain, (long long)x->shape.dims[plain]);
        if (status != LS_OK)
            error = ls_node_error(x->graph, status, "split");
    }
    for (int i = 0; i < count; i++) {
        out[i] = error ? error : ls_tensor_is_error(x) ? x : slice_of(x, plain, begin, sizes.axis[i]);
        begin += error || ls_tensor_is_error(x) ? 0 : sizes.axis[i];
    }
}

/* On entry node->shape holds the sizes. */
ls_status ls_shape_slice(ls_tensor *node)
{
    const ls_tensor *x = node->in[0];
    ls_shape sizes = node->shape;
    const int64_t *begin = node->attr.slice.begin, *step = node->attr.slice.step;
    for (int i = 0; i < x->shape.rank; i++) {
        int64_t size = x->shape.dims[i];
        if (size == LS_BATCH) {
            if (begin[i] != 0 || sizes.dims[i] != LS_BATCH || step[i] != 1)
                return x->per_sample
                           ? ls_mixes("slicing the batch axis")
                           : ls_fail(LS_ERR_UNSUPPORTED, "axis %d is the batch axis, whose size is not known", i);
            continue;
        }
        bool fits = begin[i] >= 0 && begin[i] <= size && sizes.dims[i] >= 0 && step[i] >= 1;
        fits =
            fits && (sizes.dims[i] == 0 || (begin[i] < size && sizes.dims[i] - 1 <= (size - begin[i] - 1) / step[i]));
        if (!fits)
            return ls_fail(LS_ERR_SHAPE, "axis %d: %lld elements from %lld in steps of %lld are not within 0..%lld", i,
                           (long long)sizes.dims[i], (long long)begin[i], (long long)step[i], (long long)size - 1);
    }
    ls_rule_like_first(node);
    node->shape = sizes;
    return LS_OK;
}

static ls_tensor *wrong_count(ls_tensor *x, const char *what, int count)
{
    return ls_node_error(x->graph, ls_fail(LS_ERR_SHAPE, "got %d axes, but the tensor has %d", count, x->shape.rank),
                         what);
}

ls_tensor *ls_op_slice(ls_tensor *x, ls_axes begin, ls_axes size)
{
    LS_CLAIM_TENSORS(x);
    if (ls_tensor_is_error(x))
        return x;
    if (begin.count != x->shape.rank || size.count != x->shape.rank)
        return wrong_count(x, "slice", begin.count != x->shape.rank ? begin.count : size.count);
    ls_attrs attr = ls_no_attrs();
    ls_shape sizes = { .rank = x->shape.rank };
    for (int i = 0; i < x->shape.rank; i++) {
        int64_t whole = x->shape.dims[i];
        attr.slice.begin[i] = begin.axis[i];
        attr.slice.step[i] = 1;
        /* The shape rule rejects a negative begin. */
        int64_t rest = begin.axis[i] < 0 ? 0 : whole - begin.axis[i];
        sizes.dims[i] = size.axis[i] != -1 ? size.axis[i] : whole == LS_BATCH ? LS_BATCH : rest;
    }
    return ls_node_make(NULL,
                        &(ls_node_spec){ .op = LS_OP_slice, .in = &x, .input_count = 1, .shape = sizes, .attr = attr });
}

ls_tensor *ls_op_strided_slice(ls_tensor *x, ls_axes begin, ls_axes end, ls_axes step)
{
    LS_CLAIM_TENSORS(x);
    if (ls_tensor_is_error(x))
        return x;
    int rank = x->shape.rank;
    if (begin.count != rank || end.count != rank || step.count != rank)
        return wrong_count(x, "strided_slice",
                           begin.count != rank ? begin.count
                           : end.count != rank ? end.count
                                               : step.count);
    ls_attrs attr = ls_no_attrs();
    ls_shape sizes = { .rank = rank };
    for (int i = 0; i < rank; i++) {
        int64_t whole = x->shape.dims[i], from = begin.axis[i], to = end.axis[i];
        attr.slice.step[i] = step.axis[i];
        if (whole == LS_BATCH) { /* must be whole, or the shape rule rejects it */
            attr.slice.begin[i] = from;
            sizes.dims[i] = to == LS_BATCH ? LS_BATCH : to;
            continue;
        }
        from = from < 0 ? from + whole : from;
        to = to < 0 ? to + whole : to;
        attr.slice.begin[i] = from;
        sizes.dims[i] = step.axis[i] < 1 || from < 0 || to <= from ? 0 : (to - from - 1) / step.axis[i] + 1;
    }
    return ls_node_make(NULL,
                        &(ls_node_spec){ .op = LS_OP_slice, .in = &x, .input_count = 1, .shape = sizes, .attr = attr });
}

void ls_grad_slice(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_node_make(
        NULL, &(ls_node_spec){
                  .op = LS_OP_slice_grad, .in = &dy, .input_count = 1, .shape = y->in[0]->shape, .attr = y->attr });
}

/* dy where the slice was taken, zeros elsewhere; node->shape is the sliced tensor's. */
ls_status ls_shape_slice_grad(ls_tensor *node)
{
    ls_shape whole = node->shape;
    ls_rule_like_first(node);
    node->shape = whole;
    return LS_OK;
}

void ls_grad_slice_grad(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_node_make(
        NULL,
        &(ls_node_spec){ .op = LS_OP_slice, .in = &dy, .input_count = 1, .shape = y->in[0]->shape, .attr = y->attr });
}

ls_status ls_shape_pad(ls_tensor *node)
{
    const ls_tensor *x = node->in[0];
    ls_shape shape = x->shape;
    for (int i = 0; i < shape.rank; i++) {
        int64_t before = node->attr.pad.before[i], after = node->attr.pad.after[i];
        if (before < 0 || after < 0 || before > (int64_t)1 << 48 || after > (int64_t)1 << 48)
            return ls_fail(LS_ERR_SHAPE, "axis %d: padding must be at least 0 (got %lld and %lld)", i,
                           (long long)before, (long long)after);
        if (shape.dims[i] == LS_BATCH) {
            if (before || after)
                return x->per_sample
                           ? ls_mixes("padding the batch axis")
                           : ls_fail(LS_ERR_UNSUPPORTED, "axis %d is the batch axis, whose size is not known", i);
            continue;
        }
        shape.dims[i] += before + after;
    }
    ls_rule_like_first(node);
    node->shape = shape;
    return LS_OK;
}

ls_tensor *ls_op_pad(ls_tensor *x, ls_axes before, ls_axes after, double value)
{
    LS_CLAIM_TENSORS(x);
    if (ls_tensor_is_error(x))
        return x;
    if (before.count != x->shape.rank || after.count != x->shape.rank)
        return wrong_count(x, "pad", before.count != x->shape.rank ? before.count : after.count);
    ls_attrs attr = { .pad = { .value = value } };
    memcpy(attr.pad.before, before.axis, sizeof(attr.pad.before));
    memcpy(attr.pad.after, after.axis, sizeof(attr.pad.after));
    return ls_node_make1(LS_OP_pad, x, attr);
}

void ls_grad_pad(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    const ls_shape *shape = &y->in[0]->shape;
    ls_axes begin = { .count = shape->rank }, size = { .count = shape->rank };
    for (int i = 0; i < shape->rank; i++) {
        begin.axis[i] = y->attr.pad.before[i];
        size.axis[i] = shape->dims[i];
    }
    dx[0] = ls_op_slice(dy, begin, size);
}

static ls_status need_indices(const ls_tensor *node, int input)
{
    ls_dtype dtype = node->in[input]->dtype;
    if (ls_dtype_is_integer(dtype))
        return LS_OK;
    return ls_fail(LS_ERR_DTYPE, "indices are %s; they must be int32 or int64", ls_dtype_name(dtype));
}

/* x.shape[:axis] + indices.shape + x.shape[axis+1:] */
ls_status ls_shape_gather(ls_tensor *node)
{
    const ls_tensor *x = node->in[0], *indices = node->in[1];
    int64_t *axis = &node->attr.axis.axis;
    LS_TRY(need_indices(node, 1));
    LS_TRY(ls_rule_axis(&x->shape, *axis, axis));
    if (x->per_sample && *axis == 0)
        return ls_mixes("indexing the batch axis");
    if (x->per_sample && indices->per_sample)
        return ls_fail(LS_ERR_UNSUPPORTED, "each sample of a per-sample tensor has its own indices");
    if (indices->per_sample && *axis != 0)
        return ls_mixes("per-sample indices would put the batch axis after others (gather along axis 0)");
    int rank = x->shape.rank - 1 + indices->shape.rank, at = 0;
    if (rank > LS_MAX_RANK)
        return ls_fail(LS_ERR_SHAPE, "the result would have %d axes; the maximum is %d", rank, LS_MAX_RANK);
    ls_shape shape = { .rank = rank };
    for (int i = 0; i < *axis; i++)
        shape.dims[at++] = x->shape.dims[i];
    for (int i = 0; i < indices->shape.rank; i++)
        shape.dims[at++] = indices->shape.dims[i];
    for (int i = (int)*axis + 1; i < x->shape.rank; i++)
        shape.dims[at++] = x->shape.dims[i];
    node->dtype = x->dtype;
    node->shape = shape;
    node->per_sample = x->per_sample || indices->per_sample;
    node->use = use_of(node->per_sample);
    return LS_OK;
}

ls_tensor *ls_op_gather(ls_tensor *x, ls_tensor *indices, int axis)
{
    LS_CLAIM_TENSORS(x, indices);
    return ls_node_make2(LS_OP_gather, x, indices, (ls_attrs){ .axis = { .axis = axis } });
}

/* Adds rows of dy at the indices they came from; node->shape is x's. */
void ls_grad_gather(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_tensor *x = y->in[0], *in[] = { dy, y->in[1] };
    if (!ls_dtype_is_real(x->dtype))
        return;
    int64_t axis = y->attr.axis.axis;
    dx[0] =
        ls_node_make(NULL, &(ls_node_spec){ .op = LS_OP_gather_grad,
                                            .in = in,
                                            .input_count = 2,
                                            .shape = x->shape,
                                            .per_sample = x->per_sample,
                                            .attr = { .axis_size = { .axis = axis, .size = x->shape.dims[axis] } } });
}

ls_status ls_shape_gather_grad(ls_tensor *node)
{
    LS_TRY(ls_need_real(node, 0));
    node->dtype = node->in[0]->dtype;
    node->use = !node->in[0]->per_sample ? LS_USE_WHOLE : node->per_sample ? LS_USE_KEEPS : LS_USE_REDUCES;
    return LS_OK;
}

void ls_grad_gather_grad(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_gather(dy, y->in[1], (int)y->attr.axis_size.axis);
}

/* On entry node->dtype is the requested type, node->shape.dims[0] the depth. */
ls_status ls_shape_one_hot(ls_tensor *node)
{
    const ls_tensor *x = node->in[0];
    int64_t depth = node->shape.dims[0];
    if (x->dtype != LS_U8)
        LS_TRY(need_indices(node, 0));
    if (depth < 1)
        return ls_fail(LS_ERR_SHAPE, "depth must be at least 1 (got %lld)", (long long)depth);
    if (x->shape.rank == LS_MAX_RANK)
        return ls_fail(LS_ERR_SHAPE, "the result would have %d axes; the maximum is %d", LS_MAX_RANK + 1, LS_MAX_RANK);
    node->shape = x->shape;
    node->shape.dims[node->shape.rank++] = depth;
    node->per_sample = x->per_sample;
    node->use = use_of(x->per_sample);
    return LS_OK;
}

ls_tensor *ls_op_one_hot(ls_tensor *indices, ls_dtype dtype, int64_t depth)
{
    LS_CLAIM_TENSORS(indices);
    return ls_node_make(
        NULL, &(ls_node_spec){
                  .op = LS_OP_one_hot, .in = &indices, .input_count = 1, .dtype = dtype, .shape = LS_SHAPE(depth) });
}
