/* Warps: images whose pixels are moved by an affine map. The op is linear in the image, apart from
 * the fill value, so the gradient of its gradient is a warp again. */
#include <math.h>

#include "graph/claim.h"
#include "graph/rules.h"

/* Inputs: x, matrix. */
ls_status ls_shape_warp(ls_tensor *node)
{
    const ls_tensor *x = node->in[0], *matrix = node->in[1];
    LS_TRY(ls_need_same_dtype(node));
    LS_TRY(ls_need_rank(node, 1, 2));
    if (matrix->shape.dims[1] != 6)
        return ls_fail(LS_ERR_SHAPE, "a matrix has 6 numbers; this one has %lld", (long long)matrix->shape.dims[1]);
    if (matrix->per_sample != x->per_sample || matrix->shape.dims[0] != x->shape.dims[0])
        return ls_fail(LS_ERR_SHAPE, "there must be one matrix per image: axes 0 must be equal");
    ls_rule_like_first(node);
    for (int i = 0; i < 2; i++)
        node->shape.dims[i + 1] = node->attr.warp.size[i];
    return LS_OK;
}

static ls_status resolve(const ls_tensor *x, const ls_warp_op *options, ls_attrs *attr)
{
    LS_TRY(ls_need_image(x));
    *attr = (ls_attrs){ .warp = { .interpolation = options->interpolation ? options->interpolation : LS_BILINEAR,
                                  .fill_mode = options->fill_mode ? options->fill_mode : LS_FILL_CONSTANT,
                                  .fill_value = options->fill_value } };
    if (attr->warp.interpolation != LS_NEAREST && attr->warp.interpolation != LS_BILINEAR)
        return ls_fail(LS_ERR_INVALID, "unknown interpolation %d; use LS_NEAREST or LS_BILINEAR",
                       (int)options->interpolation);
    if (attr->warp.fill_mode < LS_FILL_CONSTANT || attr->warp.fill_mode > LS_FILL_WRAP)
        return ls_fail(LS_ERR_INVALID,
                       "unknown fill mode %d; use LS_FILL_CONSTANT, LS_FILL_NEAREST, LS_FILL_REFLECT or LS_FILL_WRAP",
                       (int)options->fill_mode);
    if (!isfinite(options->fill_value))
        return ls_fail(LS_ERR_INVALID, "the fill value is %g; it must be finite", options->fill_value);
    for (int i = 0; i < 2; i++) {
        int64_t have = x->shape.dims[i + 1], size = options->size[i] ? options->size[i] : have;
        if (size < 0 || size > LS_MAX_SPATIAL)
            return ls_fail(LS_ERR_SHAPE, "axis %d: %lld pixels; 1 to 2^31 are possible", i + 1, (long long)size);
        if (have == 0 && size > 0)
            return ls_fail(LS_ERR_SHAPE, "axis %d of the images has no pixels", i + 1);
        attr->warp.size[i] = size;
    }
    return LS_OK;
}

ls_tensor *ls_op_warp_with(ls_tensor *x, ls_warp_op options)
{
    LS_CLAIM_TENSORS(x);
    ls_attrs attr = ls_no_attrs();
    if (ls_tensor_is_error(x) || ls_tensor_is_error(options.matrix))
        return ls_node_make2(LS_OP_warp, x, options.matrix, attr);
    ls_status status = resolve(x, &options, &attr);
    if (status != LS_OK)
        return ls_node_error(x->graph, status, "warp");
    return ls_node_make2(LS_OP_warp, x, options.matrix, attr);
}

void ls_grad_warp(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_tensor *in[] = { dy, y->in[1] };
    dx[0] = ls_node_make(
        NULL, &(ls_node_spec){
                  .op = LS_OP_warp_grad, .in = in, .input_count = 2, .shape = y->in[0]->shape, .attr = y->attr });
}

/* Inputs: dy, matrix; node->shape is x's. */
ls_status ls_shape_warp_grad(ls_tensor *node)
{
    ls_shape shape = node->shape;
    ls_rule_like_first(node);
    node->shape = shape;
    return LS_OK;
}

void ls_grad_warp_grad(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_attrs attr = y->attr;
    attr.warp.fill_value = 0;
    dx[0] = ls_node_make2(LS_OP_warp, dy, y->in[1], attr);
}
