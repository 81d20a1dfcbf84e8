/* PyTorch's names and layouts. PyTorch's images are [C,H,W] and the sequences of its convolutions
 * [C,T], so the output of a Flatten has another order there: the input axes of the layers after it
 * are permuted, until a layer mixes them. */
#include "nn/layout.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"

/* ---- Names ---- */

static bool is_separable(ls_layer_kind kind)
{
    return kind == LS_LAYER_SEPARABLE_CONV1D || kind == LS_LAYER_SEPARABLE_CONV2D;
}

/* PyTorch has no separable convolutions: their names are those of two convolutions. */
static const char *weight_name(ls_layer_kind kind, const char *name)
{
    static const char *const pairs[][2] = {
        { "kernel", "weight" },
        { "embeddings", "weight" },
        { "gamma", "weight" },
        { "beta", "bias" },
        { "moving_mean", "running_mean" },
        { "moving_variance", "running_var" },
        { "depthwise_kernel", "depthwise.weight" },
        { "pointwise_kernel", "pointwise.weight" },
    };
    if (is_separable(kind) && strcmp(name, "bias") == 0)
        return "pointwise.bias";
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (strcmp(name, pairs[i][0]) == 0)
            return pairs[i][1];
    return name;
}

#define MOST_NAME 64

/* "conv2_block1_0_bn" becomes "layer1.0.downsample.1". Returns false for other names. */
static bool torchvision_name(const char *name, char out[MOST_NAME])
{
    static const struct {
        const char *ours, *theirs;
    } ends[] = { { "conv1_conv", "conv1" }, { "conv1_bn", "bn1" }, { "predictions", "fc" } };
    int stage, block, part, end = 0;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strcmp(name, ends[i].ours) == 0) {
            snprintf(out, MOST_NAME, "%s", ends[i].theirs);
            return true;
        }
    if (sscanf(name, "conv%1d_block%2d_%1d_%n", &stage, &block, &part, &end) != 3 || end == 0 || stage < 2 || block < 1)
        return false;
    bool norm = strcmp(name + end, "bn") == 0;
    if (!norm && strcmp(name + end, "conv") != 0)
        return false;
    if (part == 0)
        snprintf(out, MOST_NAME, "layer%d.%d.downsample.%d", stage - 1, block - 1, norm);
    else
        snprintf(out, MOST_NAME, "layer%d.%d.%s%d", stage - 1, block - 1, norm ? "bn" : "conv", part);
    return true;
}

static bool is_torchvision(const ls_model *model)
{
    char name[MOST_NAME];
    bool begins = false;
    for (size_t i = 0; i < model->layer_count; i++) {
        const ls_model_layer *layer = model->layers[i];
        if (layer->weight_count > 0 && !torchvision_name(layer->name, name))
            return false;
        begins = begins || strcmp(layer->name, "conv1_conv") == 0;
    }
    return begins;
}

/* own: name of the variable, for a custom model's own weights */
static ls_status name_weight(const ls_model_layer *layer, const char *weight, const char *own, bool torchvision,
                             ls_stored_weight *stored)
{
    char name[MOST_NAME];
    ls_text text = { 0 };
    bool known = torchvision && torchvision_name(layer->name, name);
    if (layer->spec.kind == LS_LAYER_NONE)
        ls_text_put(&text, own);
    else
        ls_text_add(&text, "%s.%s", known ? name : layer->name, weight_name(layer->spec.kind, weight));
    return ls_text_take(&text, &stored->name);
}

/* ---- Element order ---- */

/* The image or sequence whose Flatten produced a call's last axis; rank 0: none. */
typedef ls_shape image;

static bool is_norm(ls_layer_kind kind)
{
    return kind == LS_LAYER_BATCH_NORMALIZATION || kind == LS_LAYER_LAYER_NORMALIZATION;
}

static ls_status cannot_convert(const ls_model_layer *layer, const char *where)
{
    return ls_fail(LS_ERR_UNSUPPORTED,
                   "layer \"%s\" (%s) %s, whose elements PyTorch orders in another way, so these weights cannot be "
                   "converted; use the layout keras",
                   layer->name, ls_layer_info_of(layer->spec.kind)->class_name, where);
}

/* [batch,H,W,C] with several channels and pixels, whose order matters. */
static bool is_image(const ls_shape *shape)
{
    return shape->rank == 4 && shape->dims[3] > 1 && shape->dims[1] * shape->dims[2] > 1;
}

/* Whether PyTorch has the output of a call as [C,T]: it comes from a layer over sequences that has
 * channels. */
static bool is_sequence(const ls_model *model, int call)
{
    static const ls_layer_kind kinds[] = { LS_LAYER_CONV1D,           LS_LAYER_CONV1D_TRANSPOSE,
                                           LS_LAYER_DEPTHWISE_CONV1D, LS_LAYER_SEPARABLE_CONV1D,
                                           LS_LAYER_MAX_POOL1D,       LS_LAYER_AVERAGE_POOL1D,
                                           LS_LAYER_ZERO_PADDING1D,   LS_LAYER_CROPPING1D,
                                           LS_LAYER_UP_SAMPLING1D };
    for (;;) {
        const ls_model_call *c = &model->calls[call];
        ls_layer_kind kind = c->layer->spec.kind;
        const ls_shape *shape = &c->layer->output;
        if (shape->rank != 3 || shape->dims[1] < 2 || shape->dims[2] < 2)
            return false;
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            if (kinds[i] == kind)
                return true;
        if (c->input_count == 0 || !(ls_layer_info_of(kind)->elementwise || is_norm(kind)))
            return false;
        call = c->inputs[0];
    }
}

static ls_status image_of_call(const ls_model *model, const ls_model_call *call, const image *images, image *out)
{
    const ls_model_layer *layer = call->layer;
    *out = (image){ .rank = 0 };
    if (call->input_count == 0)
        return LS_OK;
    const image *in = &images[call->inputs[0]];
    const ls_shape *shape = &model->calls[call->inputs[0]].layer->output;
    bool flattens = layer->spec.kind == LS_LAYER_FLATTEN || layer->spec.kind == LS_LAYER_RESHAPE;
    bool reshapes = layer->spec.kind == LS_LAYER_RESHAPE || layer->spec.kind == LS_LAYER_PERMUTE;
    bool sequence = is_sequence(model, call->inputs[0]);
    if (flattens && layer->output.rank == 2) {
        *out = is_image(shape) ? LS_SHAPE(shape->dims[1], shape->dims[2], shape->dims[3])
               : sequence      ? LS_SHAPE(shape->dims[1], shape->dims[2])
                               : *in;
        return LS_OK;
    }
    if (reshapes && (is_image(shape) || is_image(&layer->output) || sequence))
        return cannot_convert(layer, "has images or sequences in it");
    bool any = false;
    for (size_t i = 0; i < call->input_count; i++)
        any = any || images[call->inputs[i]].rank > 0;
    if (!any || layer->spec.kind == LS_LAYER_DENSE)
        return LS_OK;
    if (ls_layer_info_of(layer->spec.kind)->elementwise || is_norm(layer->spec.kind)) {
        *out = *in;
        return LS_OK;
    }
    return cannot_convert(layer, "comes after a Flatten of images");
}

/* Finds the image of each layer's input. All calls of a layer with weights must agree. */
static ls_status find_images(const ls_model *model, image *of_layers)
{
    image *images = calloc(model->call_count + 1, sizeof *images);
    ls_status status = images ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for %zu calls", model->call_count);
    for (size_t i = 0; i < model->call_count && status == LS_OK; i++) {
        const ls_model_call *call = &model->calls[i];
        status = image_of_call(model, call, images, &images[i]);
        if (call->input_count == 0)
            continue;
        const image *in = &images[call->inputs[0]];
        image *of_layer = &of_layers[call->layer->number];
        if (status == LS_OK && call->number > 0 && call->layer->weight_count > 0 && !ls_shape_equal(in, of_layer))
            status = cannot_convert(call->layer, "is called on a Flatten of images and on something else");
        *of_layer = *in;
    }
    free(images);
    return status;
}

static void move_image(const image *image, const ls_shape *variable, bool dense, ls_stored_weight *stored)
{
    int at = 0, last = image->rank - 1;
    stored->view = *image;
    if (dense) {
        stored->view.dims[stored->view.rank++] = variable->dims[1];
        stored->axes[at++] = image->rank;
    }
    stored->axes[at++] = last;
    for (int i = 0; i < last; i++)
        stored->axes[at++] = i;
}

/* Puts the channels of a convolution's kernel before its sizes. */
static void move_kernel(const ls_shape *own, bool depthwise, ls_stored_weight *stored)
{
    int in = own->rank - 2, out = own->rank - 1;
    stored->view = *own;
    /* Depthwise kernels [H,W,C,m]: output channel c m + i belongs to input channel c. */
    stored->axes[0] = depthwise ? in : out;
    stored->axes[1] = depthwise ? out : in;
    stored->shape = (ls_shape){ .rank = own->rank };
    stored->shape.dims[0] = depthwise ? own->dims[in] * own->dims[out] : own->dims[out];
    stored->shape.dims[1] = depthwise ? 1 : own->dims[in];
    for (int i = 0; i < in; i++) {
        stored->axes[i + 2] = i;
        stored->shape.dims[i + 2] = own->dims[i];
    }
}

static void order_weight(const ls_model_layer *layer, const char *weight, const image *image, ls_stored_weight *stored)
{
    ls_shape own = stored->shape;
    ls_layer_kind kind = layer->spec.kind;
    bool depthwise = kind == LS_LAYER_DEPTHWISE_CONV2D || kind == LS_LAYER_DEPTHWISE_CONV1D ||
                     (is_separable(kind) && strcmp(weight, "depthwise_kernel") == 0);
    bool kernel = kind != LS_LAYER_NONE && strcmp(weight, "kernel") == 0;
    if ((kernel || is_separable(kind)) && (own.rank == 3 || own.rank == 4)) {
        move_kernel(&own, depthwise, stored);
    } else if (kernel && own.rank == 2) {
        stored->view = own;
        memcpy(stored->axes, (int[]){ 1, 0 }, 2 * sizeof(int));
        stored->shape = LS_SHAPE(own.dims[1], own.dims[0]);
        if (image->rank > 0)
            move_image(image, &own, true, stored);
    } else if (is_norm(layer->spec.kind) && own.rank == 1 && image->rank > 0) {
        move_image(image, &own, false, stored);
    }
}

ls_status ls_torch_weights(const ls_model *model, ls_stored_weight *stored)
{
    bool torchvision = is_torchvision(model);
    image *images = calloc(model->layer_count + 1, sizeof *images);
    ls_status status =
        images ? find_images(model, images) : ls_fail(LS_ERR_MEMORY, "no memory for %zu layers", model->layer_count);
    for (size_t i = 0; i < model->variable_count && status == LS_OK; i++) {
        const ls_model_layer *layer = model->variables[i].layer;
        const char *weight = layer->weight[model->variables[i].index].name;
        if (layer->weight[model->variables[i].index].cell) {
            status = cannot_convert(layer, "has gates and one bias");
            break;
        }
        stored[i].shape = ls_model_variable(model, i)->shape;
        order_weight(layer, weight, &images[layer->number], &stored[i]);
        status = name_weight(layer, weight, ls_model_variable_name(model, i), torchvision, &stored[i]);
    }
    free(images);
    return status;
}
