/* PyTorch's names and layouts. PyTorch's images are [C,H,W], so the output of a Flatten has another
 * order there: the input axes of the layers after it are permuted, until a layer mixes them. */
#include "nn/layout.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"

/* ---- Names ---- */

static const char *weight_name(const char *name)
{
    static const char *const pairs[][2] = {
        { "kernel", "weight" }, { "embeddings", "weight" },        { "gamma", "weight" },
        { "beta", "bias" },     { "moving_mean", "running_mean" }, { "moving_variance", "running_var" },
    };
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

/* PyTorch writes "encoder.dense" for a layer of a nested model. */
static void put_name(ls_text *text, const char *layer, const char *weight)
{
    for (; *layer; layer++)
        ls_text_put_bytes(text, *layer == '/' ? "." : layer, 1);
    ls_text_add(text, ".%s", weight);
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
        put_name(&text, known ? name : layer->name, weight_name(weight));
    return ls_text_take(&text, &stored->name);
}

/* ---- Element order ---- */

/* The image whose Flatten produced a call's last axis; rank 0: none. */
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

static ls_status image_of_call(const ls_model *model, const ls_model_call *call, const image *images, image *out)
{
    const ls_model_layer *layer = call->layer;
    const image *in = &images[call->inputs[0]];
    const ls_shape *shape = &model->calls[call->inputs[0]].layer->output;
    bool reshapes = layer->spec.kind == LS_LAYER_RESHAPE;
    *out = (image){ .rank = 0 };
    if (layer->spec.kind == LS_LAYER_FLATTEN || (reshapes && layer->output.rank == 2)) {
        *out = is_image(shape) ? LS_SHAPE(shape->dims[1], shape->dims[2], shape->dims[3]) : *in;
        return LS_OK;
    }
    if (reshapes && (is_image(shape) || is_image(&layer->output)))
        return cannot_convert(layer, "has images in it");
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

/* The images of all calls so far, by layer of the root. */
typedef struct layer_images {
    image *of;
    bool *called;
} layer_images;

static ls_status find_images(const ls_model *model, const image *inputs, layer_images *layers, image *outputs);

static ls_status find_nested(const ls_model_call *call, const image *images, layer_images *layers, image *out)
{
    const ls_model *inner = call->layer->inner;
    image *in = calloc(inner->input_count + 1, sizeof *in);
    if (!in)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu inputs", inner->input_count);
    for (size_t i = 0; i < call->input_count; i++)
        in[i] = images[call->inputs[i]];
    ls_status status = find_images(inner, in, layers, out);
    free(in);
    return status;
}

/* Finds the image of each layer's input. All calls of a layer with weights must agree. */
static ls_status find_images(const ls_model *model, const image *inputs, layer_images *layers, image *outputs)
{
    size_t next = 0;
    image *images = calloc(model->call_count + 1, sizeof *images);
    ls_status status = images ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for %zu calls", model->call_count);
    for (size_t i = 0; i < model->call_count && status == LS_OK; i++) {
        const ls_model_call *call = &model->calls[i];
        if (call->output > 0)
            continue; /* set by the call */
        if (call->input_count == 0) {
            images[i] = inputs ? inputs[next++] : (image){ .rank = 0 };
            continue;
        }
        const image *in = &images[call->inputs[0]];
        image *of_layer = &layers->of[call->layer->number];
        status = call->layer->inner ? find_nested(call, images, layers, &images[i])
                                    : image_of_call(model, call, images, &images[i]);
        bool again = layers->called[call->layer->number];
        if (status == LS_OK && again && call->layer->weight_count > 0 && !ls_shape_equal(in, of_layer))
            status = cannot_convert(call->layer, "is called on a Flatten of images and on something else");
        layers->called[call->layer->number] = true;
        *of_layer = *in;
    }
    for (size_t i = 0; outputs && i < model->output_count && status == LS_OK; i++)
        outputs[i] = images[model->outputs[i]];
    free(images);
    return status;
}

static void move_image(const image *image, const ls_shape *variable, bool dense, ls_stored_weight *stored)
{
    stored->view = *image;
    if (dense) {
        stored->view.dims[3] = variable->dims[1];
        stored->view.rank = 4;
        memcpy(stored->axes, (int[]){ 3, 2, 0, 1 }, 4 * sizeof(int));
    } else {
        memcpy(stored->axes, (int[]){ 2, 0, 1 }, 3 * sizeof(int));
    }
}

static void order_weight(const ls_model_layer *layer, const char *weight, const image *image, ls_stored_weight *stored)
{
    ls_shape own = stored->shape;
    bool kernel = layer->spec.kind != LS_LAYER_NONE && strcmp(weight, "kernel") == 0;
    /* Depthwise kernels [H,W,C,m]: output channel c m + i belongs to input channel c. */
    if (kernel && own.rank == 4) {
        stored->view = own;
        memcpy(stored->axes, (int[]){ 3, 2, 0, 1 }, 4 * sizeof(int));
        stored->shape = LS_SHAPE(own.dims[3], own.dims[2], own.dims[0], own.dims[1]);
        if (layer->spec.kind == LS_LAYER_DEPTHWISE_CONV2D) {
            memcpy(stored->axes, (int[]){ 2, 3, 0, 1 }, 4 * sizeof(int));
            stored->shape = LS_SHAPE(own.dims[2] * own.dims[3], 1, own.dims[0], own.dims[1]);
        }
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
    layer_images images = { calloc(model->layer_count + 1, sizeof(image)),
                            calloc(model->layer_count + 1, sizeof(bool)) };
    ls_status status = images.of && images.called
                           ? find_images(model, NULL, &images, NULL)
                           : ls_fail(LS_ERR_MEMORY, "no memory for %zu layers", model->layer_count);
    for (size_t i = 0; i < model->variable_count && status == LS_OK; i++) {
        const ls_model_layer *layer = model->variables[i].layer;
        const char *weight = layer->weight[model->variables[i].index].name;
        stored[i].shape = ls_model_variable(model, i)->shape;
        order_weight(layer, weight, &images.of[layer->number], &stored[i]);
        status = name_weight(layer, weight, ls_model_variable_name(model, i), torchvision, &stored[i]);
    }
    free(images.of);
    free(images.called);
    return status;
}
