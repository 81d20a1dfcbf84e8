/* Convolutions and pools over images [N,H,W,C] with kernels [H,W,in/groups,out]. The two gradients
 * of a convolution are ops whose gradients are convolutions again. Nodes hold computed padding:
 * top, bottom, left, right. */
#include <string.h>

#include "graph/claim.h"
#include "graph/rules.h"

/* Negative if the window does not fit. */
static int64_t output_size(int64_t size, int64_t window, int64_t stride, int64_t dilation, int64_t before,
                           int64_t after)
{
    int64_t span = (window - 1) * dilation + 1, room = size + before + after - span;
    return room < 0 ? -1 : room / stride + 1;
}

/* TensorFlow's SAME: ceil(size / stride) outputs; the extra cell of an odd total is at the end. */
static void same_padding(int64_t size, int64_t window, int64_t stride, int64_t dilation, int64_t *before,
                         int64_t *after)
{
    int64_t span = (window - 1) * dilation + 1, outputs = (size + stride - 1) / stride;
    int64_t total = (outputs - 1) * stride + span - size;
    total = total < 0 ? 0 : total;
    *before = total / 2;
    *after = total - *before;
}

#define LS_MAX_SPATIAL ((int64_t)1 << 31)

/* Fills in defaults and the padding for an image of size[2]. */
static ls_status resolve(ls_attrs *attr, const int64_t size[2], ls_padding padding, const int64_t pad[4])
{
    for (int i = 0; i < 2; i++) {
        int64_t *stride = &attr->window.stride[i], *dilation = &attr->window.dilation[i];
        int64_t window = attr->window.window[i];
        *dilation = *dilation == 0 ? 1 : *dilation;
        if (window < 1 || window > LS_MAX_SPATIAL || *stride < 1 || *stride > LS_MAX_SPATIAL || *dilation < 1 ||
            *dilation > LS_MAX_SPATIAL)
            return ls_fail(LS_ERR_SHAPE, "axis %d: window %lld, stride %lld, dilation %lld: each must be at least 1",
                           i + 1, (long long)window, (long long)*stride, (long long)*dilation);
        int64_t *before = &attr->window.pad[2 * i], *after = &attr->window.pad[2 * i + 1];
        *before = *after = 0;
        if (padding == LS_SAME) {
            same_padding(size[i], window, *stride, *dilation, before, after);
        } else if (padding == LS_EXPLICIT) {
            if (pad[2 * i] < 0 || pad[2 * i] > LS_MAX_SPATIAL || pad[2 * i + 1] < 0 || pad[2 * i + 1] > LS_MAX_SPATIAL)
                return ls_fail(LS_ERR_SHAPE, "axis %d: padding must be at least 0 (got %lld and %lld)", i + 1,
                               (long long)pad[2 * i], (long long)pad[2 * i + 1]);
            *before = pad[2 * i];
            *after = pad[2 * i + 1];
        } else if (padding != LS_VALID) {
            return ls_fail(LS_ERR_INVALID, "unknown padding %d", (int)padding);
        }
        if (output_size(size[i], window, *stride, *dilation, *before, *after) < 1)
            return ls_fail(
                LS_ERR_SHAPE,
                "axis %d: a window of %lld (dilation %lld) does not fit into %lld pixels padded by %lld and %lld",
                i + 1, (long long)window, (long long)*dilation, (long long)size[i], (long long)*before,
                (long long)*after);
    }
    return LS_OK;
}

static ls_status need_image(const ls_tensor *x)
{
    if (x->shape.rank != 4)
        return ls_fail(LS_ERR_SHAPE, "images must have 4 axes, [N,H,W,C]; this one has %d", x->shape.rank);
    if (!ls_dtype_is_real(x->dtype))
        return ls_fail(LS_ERR_DTYPE, "images are %s; they must be float32 or float64: cast them first",
                       ls_dtype_name(x->dtype));
    for (int i = 1; i < 4; i++)
        if (x->shape.dims[i] == LS_BATCH || x->shape.dims[i] > LS_MAX_SPATIAL)
            return ls_fail(LS_ERR_SHAPE, "axis %d of an image needs a known size below 2^31", i);
    return LS_OK;
}

static ls_status check_conv(const ls_attrs *attr, const ls_shape *x, const ls_shape *kernel, ls_shape *y)
{
    int64_t groups = attr->window.groups;
    if (groups < 1 || x->dims[3] % groups != 0 || kernel->dims[3] % groups != 0)
        return ls_fail(LS_ERR_SHAPE, "%lld groups do not divide %lld channels in and %lld out", (long long)groups,
                       (long long)x->dims[3], (long long)kernel->dims[3]);
    if (kernel->dims[2] != x->dims[3] / groups)
        return ls_fail(LS_ERR_SHAPE, "the kernel has %lld input channels, the image has %lld in %lld groups",
                       (long long)kernel->dims[2], (long long)x->dims[3], (long long)groups);
    *y = *x;
    for (int i = 0; i < 2; i++)
        y->dims[i + 1] = output_size(x->dims[i + 1], kernel->dims[i], attr->window.stride[i], attr->window.dilation[i],
                                     attr->window.pad[2 * i], attr->window.pad[2 * i + 1]);
    y->dims[3] = kernel->dims[3];
    return LS_OK;
}

/* Inputs: x, kernel. */
ls_status ls_shape_conv2d(ls_tensor *node)
{
    ls_shape y;
    LS_TRY(ls_need_same_dtype(node));
    LS_TRY(ls_need_rank(node, 1, 4));
    LS_TRY(ls_need_whole(node, 1, "the kernel"));
    LS_TRY(check_conv(&node->attr, &node->in[0]->shape, &node->in[1]->shape, &y));
    ls_rule_like_first(node);
    node->shape = y;
    return LS_OK;
}

ls_tensor *ls_op_conv2d_with(ls_tensor *x, ls_conv2d_op options)
{
    LS_CLAIM_TENSORS(x);
    ls_tensor *kernel = options.kernel, *in[] = { x, kernel };
    ls_attrs attr = { .window = { .groups = options.groups ? options.groups : 1 } };
    if (ls_tensor_is_error(x) || ls_tensor_is_error(kernel))
        return ls_node_make2(LS_OP_conv2d, x, kernel, attr);
    ls_status status = need_image(x);
    if (status == LS_OK && kernel->shape.rank != 4)
        status = ls_fail(LS_ERR_SHAPE, "kernels must have 4 axes, [H,W,in,out]; this one has %d", kernel->shape.rank);
    if (status == LS_OK && kernel->per_sample)
        status = ls_fail(LS_ERR_SHAPE, "the kernel must be whole, but it has a batch axis");
    for (int i = 0; i < 2 && status == LS_OK; i++)
        if (kernel->shape.dims[i] == LS_BATCH)
            status = ls_fail(LS_ERR_SHAPE, "axis %d of the kernel is the batch axis, whose size is not known", i);
    if (status == LS_OK) {
        for (int i = 0; i < 2; i++) {
            attr.window.window[i] = kernel->shape.dims[i];
            attr.window.stride[i] = options.stride[i] ? options.stride[i] : 1;
            attr.window.dilation[i] = options.dilation[i];
        }
        status = resolve(&attr, &x->shape.dims[1], options.padding, options.pad);
    }
    if (status != LS_OK)
        return ls_node_error(x->graph, status, "conv2d");
    return ls_node_make(NULL, &(ls_node_spec){ .op = LS_OP_conv2d, .in = in, .input_count = 2, .attr = attr });
}

static ls_tensor *conv_node(ls_op op, ls_tensor *a, ls_tensor *b, ls_attrs attr, const ls_tensor *shaped_like)
{
    ls_tensor *in[] = { a, b };
    return ls_node_make(NULL, &(ls_node_spec){ .op = op,
                                               .in = in,
                                               .input_count = 2,
                                               .shape = shaped_like ? shaped_like->shape : LS_SCALAR,
                                               .attr = attr });
}

void ls_grad_conv2d(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_tensor *x = y->in[0], *kernel = y->in[1];
    dx[0] = conv_node(LS_OP_conv2d_grad_input, kernel, dy, y->attr, x);
    dx[1] = conv_node(LS_OP_conv2d_grad_kernel, x, dy, y->attr, kernel);
}

/* Inputs: kernel, dy; node->shape is x's. */
ls_status ls_shape_conv2d_grad_input(ls_tensor *node)
{
    node->dtype = node->in[1]->dtype;
    node->per_sample = node->in[1]->per_sample;
    node->use = node->per_sample ? LS_USE_KEEPS : LS_USE_WHOLE;
    return LS_OK;
}

ls_tensor *ls_op_conv2d_transpose(ls_tensor *x, ls_conv2d_op options, const int64_t size[2])
{
    LS_CLAIM_TENSORS(x);
    ls_tensor *kernel = options.kernel, *in[] = { kernel, x };
    ls_attrs attr = { .window = { .groups = 1 } };
    if (ls_tensor_is_error(x) || ls_tensor_is_error(kernel))
        return ls_node_make2(LS_OP_conv2d_grad_input, kernel, x, attr);
    ls_status status = need_image(x);
    ls_shape image = x->shape, y = x->shape;
    for (int i = 0; i < 2; i++) {
        attr.window.window[i] = kernel->shape.dims[i];
        attr.window.stride[i] = options.stride[i];
        attr.window.dilation[i] = options.dilation[i];
        image.dims[i + 1] = size[i];
        if (status == LS_OK && (size[i] < 1 || size[i] > LS_MAX_SPATIAL))
            status = ls_fail(LS_ERR_SHAPE, "axis %d of the output would have %lld pixels; 1 to 2^31 are possible",
                             i + 1, (long long)size[i]);
    }
    image.dims[3] = kernel->shape.dims[2];
    if (status == LS_OK)
        status = resolve(&attr, size, options.padding, options.pad);
    if (status == LS_OK)
        status = check_conv(&attr, &image, &kernel->shape, &y);
    if (status == LS_OK && !ls_shape_equal(&y, &x->shape))
        status = ls_fail(LS_ERR_SHAPE, "an output of %lld x %lld pixels does not fit the input", (long long)size[0],
                         (long long)size[1]);
    if (status != LS_OK)
        return ls_node_error(x->graph, status, "conv2d_transpose");
    return ls_node_make(
        NULL,
        &(ls_node_spec){ .op = LS_OP_conv2d_grad_input, .in = in, .input_count = 2, .shape = image, .attr = attr });
}

void ls_grad_conv2d_grad_input(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_tensor *kernel = y->in[0], *cotangent = y->in[1];
    dx[0] = conv_node(LS_OP_conv2d_grad_kernel, dy, cotangent, y->attr, kernel);
    dx[1] = conv_node(LS_OP_conv2d, dy, kernel, y->attr, NULL);
}

/* Inputs: x, dy; node->shape is the kernel's. */
ls_status ls_shape_conv2d_grad_kernel(ls_tensor *node)
{
    node->dtype = node->in[0]->dtype;
    node->per_sample = false;
    node->use = node->in[0]->per_sample ? LS_USE_REDUCES : LS_USE_WHOLE;
    return LS_OK;
}

void ls_grad_conv2d_grad_kernel(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_tensor *x = y->in[0], *cotangent = y->in[1];
    dx[0] = conv_node(LS_OP_conv2d_grad_input, dy, cotangent, y->attr, x);
    dx[1] = conv_node(LS_OP_conv2d, x, dy, y->attr, NULL);
}

/* Two operations for each output and each kernel cell that it reads, in all three convolutions. */
double ls_flops_conv2d(const ls_tensor *node)
{
    const ls_tensor *kernel = node->op == LS_OP_conv2d              ? node->in[1]
                              : node->op == LS_OP_conv2d_grad_input ? node->in[0]
                                                                    : node;
    const ls_tensor *output = node->op == LS_OP_conv2d ? node : node->in[1];
    int64_t outputs;
    if (!ls_shape_count(&output->shape, 1, &outputs))
        return 0;
    const int64_t *k = kernel->shape.dims;
    return 2.0 * (double)outputs * (double)k[0] * (double)k[1] * (double)k[2];
}

ls_status ls_shape_pool2d(ls_tensor *node)
{
    const ls_attrs *attr = &node->attr;
    ls_rule_like_first(node);
    for (int i = 0; i < 2; i++)
        node->shape.dims[i + 1] = output_size(node->shape.dims[i + 1], attr->window.window[i], attr->window.stride[i],
                                              1, attr->window.pad[2 * i], attr->window.pad[2 * i + 1]);
    return LS_OK;
}

static ls_tensor *pool(ls_op op, ls_tensor *x, const ls_pool2d_op *options)
{
    if (ls_tensor_is_error(x))
        return x;
    ls_attrs attr = { .window = { .groups = 1, .count_padding = options->count_padding } };
    for (int i = 0; i < 2; i++) {
        attr.window.window[i] = options->window[i];
        attr.window.stride[i] = options->stride[i] ? options->stride[i] : options->window[i];
    }
    ls_status status = need_image(x);
    if (status == LS_OK)
        status = resolve(&attr, &x->shape.dims[1], options->padding, options->pad);
    for (int i = 0; status == LS_OK && i < 2; i++)
        if (attr.window.pad[2 * i] >= attr.window.window[i] || attr.window.pad[2 * i + 1] >= attr.window.window[i])
            status =
                ls_fail(LS_ERR_SHAPE, "axis %d: padding of %lld and %lld: a window of %lld could cover only padding",
                        i + 1, (long long)attr.window.pad[2 * i], (long long)attr.window.pad[2 * i + 1],
                        (long long)attr.window.window[i]);
    if (status != LS_OK)
        return ls_node_error(x->graph, status, ls_ops[op].name);
    return ls_node_make1(op, x, attr);
}

ls_tensor *ls_op_max_pool2d_with(ls_tensor *x, ls_pool2d_op options)
{
    LS_CLAIM_TENSORS(x);
    return pool(LS_OP_max_pool2d, x, &options);
}

void ls_grad_max_pool2d(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_node_make2(LS_OP_max_pool2d_grad, y->in[0], dy, y->attr);
}

/* Inputs: x, dy. */
ls_status ls_shape_pool2d_grad(ls_tensor *node)
{
    ls_rule_like_first(node);
    return LS_OK;
}

ls_tensor *ls_op_average_pool2d_with(ls_tensor *x, ls_pool2d_op options)
{
    LS_CLAIM_TENSORS(x);
    return pool(LS_OP_average_pool2d, x, &options);
}

void ls_grad_average_pool2d(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_node_make(
        NULL,
        &(ls_node_spec){
            .op = LS_OP_average_pool2d_grad, .in = &dy, .input_count = 1, .shape = y->in[0]->shape, .attr = y->attr });
}

/* Input: dy; node->shape is x's. */
ls_status ls_shape_average_pool2d_grad(ls_tensor *node)
{
    ls_shape shape = node->shape;
    ls_rule_like_first(node);
    node->shape = shape;
    return LS_OK;
}

void ls_grad_average_pool2d_grad(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_node_make1(LS_OP_average_pool2d, dy, y->attr);
}

double ls_flops_pool2d(const ls_tensor *node)
{
    const ls_tensor *small =
        node->op == LS_OP_max_pool2d || node->op == LS_OP_average_pool2d ? node : node->in[node->input_count - 1];
    int64_t outputs;
    if (!ls_shape_count(&small->shape, 1, &outputs))
        return 0;
    return (double)outputs * (double)node->attr.window.window[0] * (double)node->attr.window.window[1];
}

static ls_tensor *wrong_image(ls_tensor *x, const char *what)
{
    ls_status status = need_image(x);
    return status == LS_OK ? NULL : ls_node_error(x->graph, status, what);
}

ls_tensor *ls_op_global_max_pool2d(ls_tensor *x)
{
    LS_CLAIM_TENSORS(x);
    if (ls_tensor_is_error(x))
        return x;
    ls_tensor *error = wrong_image(x, "global_max_pool2d");
    return error ? error : ls_op_reduce_max(x, LS_AXES(1, 2), false);
}

ls_tensor *ls_op_global_average_pool2d(ls_tensor *x)
{
    LS_CLAIM_TENSORS(x);
    if (ls_tensor_is_error(x))
        return x;
    ls_tensor *error = wrong_image(x, "global_average_pool2d");
    return error ? error : ls_op_reduce_mean(x, LS_AXES(1, 2), false);
}
