/* Checks and defaults that families of layers share, and parts of their calls. */
#include "nn/layer_family.h"

#include <math.h>

#include "graph/rules.h"

const ls_initializer ls_zeros = { .kind = LS_INIT_ZEROS }, ls_ones = { .kind = LS_INIT_ONES };

void ls_resolve_number(double *value, double preset)
{
    *value = *value == 0 ? preset : *value == LS_ZERO ? 0 : *value;
}

ls_status ls_resolve_activation(ls_activation activation)
{
    return ls_activation_name(activation)
               ? LS_OK
               : ls_fail(LS_ERR_INVALID, "there is no activation number %d; use LS_RELU, LS_SOFTMAX, ...",
                         (int)activation);
}

ls_status ls_resolve_sizes(const char *name, int64_t pair[2], int axes, int64_t argument, int64_t preset)
{
    if (axes == 1 && pair[1] != 0)
        return ls_fail(LS_ERR_INVALID, "%s is { %lld, %lld }; this layer takes one number", name, (long long)pair[0],
                       (long long)pair[1]);
    if (pair[0] != 0 || pair[1] != 0) {
        if (argument != 0)
            return ls_fail(LS_ERR_INVALID, "%s is given twice: as %lld and as { %lld, %lld }", name,
                           (long long)argument, (long long)pair[0], (long long)pair[1]);
        pair[0] = pair[0] ? pair[0] : pair[1];
        pair[1] = pair[1] ? pair[1] : pair[0];
    } else {
        pair[0] = pair[1] = argument ? argument : preset;
    }
    if (pair[0] < 1 || pair[1] < 1)
        return ls_fail(LS_ERR_INVALID, "%s is (%lld, %lld); both numbers must be at least 1", name, (long long)pair[0],
                       (long long)pair[1]);
    pair[1] = axes == 1 ? 1 : pair[1];
    return LS_OK;
}

ls_status ls_resolve_sample(const ls_layer_options *o, ls_shape *shape)
{
    const int64_t argument[] = { o->first, o->second, o->third, o->fourth };
    int count = 4;
    while (count > 0 && argument[count - 1] == 0)
        count--;
    if (shape->rank < 0 || shape->rank > LS_MAX_RANK - 1)
        return ls_fail(LS_ERR_SHAPE, "shape has %d axes; it can have %d besides the batch axis", shape->rank,
                       LS_MAX_RANK - 1);
    if (shape->rank > 0 && count > 0)
        return ls_fail(LS_ERR_INVALID, "the shape is given twice: by numbers and as .shape");
    for (int i = 0; i < count; i++)
        shape->dims[shape->rank++] = argument[i];
    return LS_OK;
}

ls_status ls_check_regularizer(const char *name, const ls_regularizer *value)
{
    if (!(value->l1 >= 0 && isfinite(value->l1) && value->l2 >= 0 && isfinite(value->l2)))
        return ls_fail(LS_ERR_INVALID, "%s: l1 is %g and l2 is %g; both must be finite and at least 0", name, value->l1,
                       value->l2);
    return LS_OK;
}

ls_status ls_check_padding(ls_padding padding, const int64_t zero_padding[4], int axes)
{
    if (padding != LS_VALID && padding != LS_SAME && padding != LS_EXPLICIT)
        return ls_fail(LS_ERR_INVALID, "padding is %d; it must be LS_VALID, LS_SAME or LS_EXPLICIT", (int)padding);
    for (int i = 0; i < 4; i++)
        if (zero_padding[i] < 0 || (padding != LS_EXPLICIT && zero_padding[i] != 0))
            return ls_fail(LS_ERR_INVALID,
                           "zero_padding is (%lld, %lld, %lld, %lld); it needs padding = LS_EXPLICIT and numbers of at "
                           "least 0",
                           (long long)zero_padding[0], (long long)zero_padding[1], (long long)zero_padding[2],
                           (long long)zero_padding[3]);
    if (axes == 1 && (zero_padding[2] != 0 || zero_padding[3] != 0))
        return ls_fail(LS_ERR_INVALID, "zero_padding has more than two numbers; this layer takes { begin, end }");
    return LS_OK;
}

ls_status ls_check_positive(const char *name, int64_t value)
{
    if (value < 1)
        return ls_fail(LS_ERR_INVALID, "%s is %lld; it must be at least 1", name, (long long)value);
    return LS_OK;
}

ls_status ls_weight_check(const ls_weight *weight)
{
    char text[LS_SHAPE_TEXT];
    if (weight->shape.rank < 0 || weight->shape.rank > LS_MAX_RANK)
        return ls_fail(LS_ERR_SHAPE, "the shape has %d axes; it can have %d", weight->shape.rank, LS_MAX_RANK);
    for (int i = 0; i < weight->shape.rank; i++)
        if (weight->shape.dims[i] < 1)
            return ls_fail(LS_ERR_SHAPE, "the shape is %s; every size must be known and at least 1",
                           ls_shape_format(&weight->shape, text));
    return ls_check_regularizer("regularizer", &weight->regularizer);
}

ls_status ls_check_rank(const ls_shape *x, int least, int most, const char *what)
{
    if (x->rank < least || x->rank > most)
        return ls_fail(LS_ERR_SHAPE, "the layer needs %s", what);
    return LS_OK;
}

ls_status ls_check_image(const ls_shape *x)
{
    return ls_check_rank(x, 4, 4, "an input of 4 axes (batch, height, width, channels)");
}

ls_status ls_check_sequence(const ls_shape *x)
{
    return ls_check_rank(x, 3, 3, "an input of 3 axes (batch, steps, channels)");
}

ls_status ls_check_axis(int64_t *axis, const ls_shape *shape)
{
    int64_t from_front = *axis < 0 ? *axis + shape->rank : *axis;
    if (from_front < 0 || from_front >= shape->rank)
        return ls_fail(LS_ERR_SHAPE, "there is no axis %lld of %d axes", (long long)*axis, shape->rank);
    if (from_front == 0)
        return ls_fail(LS_ERR_UNSUPPORTED, "axis %lld is the batch axis; use another", (long long)*axis);
    *axis = from_front;
    return LS_OK;
}

ls_status ls_check_axes(const ls_axes *axes, const ls_shape *shape, ls_axes *out)
{
    int64_t mask = 0;
    if (axes->count < 0 || axes->count > LS_MAX_RANK)
        return ls_fail(LS_ERR_INVALID, "there are %d axes; 0 to %d are possible", axes->count, LS_MAX_RANK);
    for (int i = 0; i < axes->count; i++) {
        int64_t axis = axes->axis[i];
        LS_TRY(ls_check_axis(&axis, shape));
        if (mask & (int64_t)1 << axis)
            return ls_fail(LS_ERR_INVALID, "axis %lld is given twice", (long long)axis);
        mask |= (int64_t)1 << axis;
    }
    *out = ls_axes_of_mask(mask);
    return LS_OK;
}

ls_shape ls_sizes_of_axes(const ls_shape *shape, const ls_axes *axes)
{
    ls_shape sizes = { .rank = axes->count };
    for (int i = 0; i < axes->count; i++)
        sizes.dims[i] = shape->dims[axes->axis[i] < 0 ? axes->axis[i] + shape->rank : axes->axis[i]];
    return sizes;
}

/* ---- Parts of calls ---- */

void ls_add_weight(const ls_layer *layer, const char *name, ls_shape shape, ls_initializer initializer,
                   ls_regularizer regularizer, ls_weight *out, size_t *count)
{
    out[(*count)++] = (ls_weight){ .name = name,
                                   .shape = shape,
                                   .initializer = initializer,
                                   .regularizer = regularizer,
                                   .trainable = !layer->options.frozen };
}

ls_tensor *ls_layer_real(ls_tensor *x)
{
    return ls_tensor_dtype(x) == LS_F32 ? x : ls_op_cast(x, LS_F32);
}

ls_tensor *ls_reshape_samples(ls_tensor *x, const ls_shape *sizes)
{
    ls_shape shape = { .rank = sizes->rank + 1, .dims = { x->shape.dims[0] } };
    for (int i = 0; i < sizes->rank; i++)
        shape.dims[i + 1] = sizes->dims[i];
    return ls_op_reshape(x, shape);
}

ls_tensor *ls_along_axes(ls_tensor *weight, const ls_tensor *x, const ls_axes *axes)
{
    ls_shape shape = { .rank = x->shape.rank };
    int missing = axes->count - weight->shape.rank;
    for (int i = 0; i < shape.rank; i++)
        shape.dims[i] = 1;
    for (int i = missing; i < axes->count; i++)
        shape.dims[axes->axis[i]] = x->shape.dims[axes->axis[i]];
    return ls_op_reshape(weight, shape);
}

/* The maximum stands before the root, so that the gradient of zeros is 0. */
ls_tensor *ls_unit_length(ls_tensor *x, ls_axes axes, double epsilon)
{
    ls_tensor *sum = ls_op_reduce_sum(ls_op_square(x), axes, true);
    return ls_op_mul(x, ls_op_rsqrt(ls_op_maximum(sum, ls_scalar_like(sum, epsilon * epsilon))));
}

ls_tensor *ls_sequence_to_image(ls_tensor *x)
{
    return ls_reshape_samples(x, &LS_SHAPE(1, x->shape.dims[1], x->shape.dims[2]));
}

ls_tensor *ls_image_to_sequence(ls_tensor *x)
{
    return ls_reshape_samples(x, &LS_SHAPE(LS_REMAINING, x->shape.dims[3]));
}
