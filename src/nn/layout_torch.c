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

/* PyTorch has no separable convolutions: their names are those of two convolutions. It has no
 * LayerScale either: in torchvision it is a parameter of the module around it, which has the
 * layer's name. */
static const char *weight_name(ls_layer_kind kind, const char *name)
{
    static const char *const pairs[][2] = {
        { "kernel", "weight" },
        { "embeddings", "weight" },
        { "gamma", "weight" },
        { "beta", "bias" },
        { "moving_mean", "running_mean" },
        { "moving_variance", "running_var" },
        { "scale", "weight" },
        { "alpha", "weight" },
        { "depthwise_kernel", "depthwise.weight" },
        { "pointwise_kernel", "pointwise.weight" },
    };
    if (is_separable(kind) && strcmp(name, "bias") == 0)
        return "pointwise.bias";
    if (kind == LS_LAYER_LAYER_SCALE)
        return "";
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
    if (*weight)
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
        put_name(&text, known ? name : layer->name, weight_name(layer->spec.kind, weight));
    return ls_text_take(&text, &stored->name);
}

/* ---- Element order ---- */

/* The image or sequence whose Flatten produced a call's last axis; rank 0: none. */
typedef ls_shape image;

/* Layers of features in any order, with a weight for each feature or none. */
static bool is_by_feature(ls_layer_kind kind)
{
    switch (kind) {
    case LS_LAYER_BATCH_NORMALIZATION:
    case LS_LAYER_LAYER_NORMALIZATION:
    case LS_LAYER_RMS_NORMALIZATION:
    case LS_LAYER_UNIT_NORMALIZATION:
    case LS_LAYER_NORMALIZATION:
    case LS_LAYER_LAYER_SCALE:
    case LS_LAYER_PRELU:
        return true;
    default:
        return false;
    }
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

/* Goes from the call of a nested model to the call inside that makes its output, and from an input
 * of a nested model to the call outside that makes it. */
static void cross_models(const ls_model **model, int *call)
{
    for (;;) {
        const ls_model *m = *model;
        const ls_model_call *c = &m->calls[*call];
        if (c->layer->inner) {
            *model = c->layer->inner;
            *call = c->layer->inner->outputs[c->output];
            continue;
        }
        if (c->layer->spec.kind != LS_LAYER_INPUT || !m->container)
            return;
        size_t input = 0, outside = 0;
        while (m->inputs[input] != c->layer)
            input++;
        const ls_model *outer = m->container->inside ? m->container->inside->inner : m->root;
        if (outer->call_count == 0)
            return; /* a custom model, which records no calls */
        while (outer->calls[outside].layer != m->container)
            outside++;
        *model = outer;
        *call = outer->calls[outside].inputs[input];
    }
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
        cross_models(&model, &call);
        const ls_model_call *c = &model->calls[call];
        ls_layer_kind kind = c->layer->spec.kind;
        const ls_shape *shape = &c->layer->output;
        if (shape->rank != 3 || shape->dims[1] < 2 || shape->dims[2] < 2)
            return false;
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            if (kinds[i] == kind)
                return true;
        if (c->input_count == 0 || !(ls_layer_info_of(kind)->elementwise || is_by_feature(kind)))
            return false;
        call = c->inputs[0];
    }
}

static ls_status image_of_call(const ls_model *model, const ls_model_call *call, const image *images, image *out)
{
    const ls_model_layer *layer = call->layer;
    const image *in = &images[call->inputs[0]];
    const ls_shape *shape = &model->calls[call->inputs[0]].layer->output;
    bool flattens = layer->spec.kind == LS_LAYER_FLATTEN || layer->spec.kind == LS_LAYER_RESHAPE;
    bool reshapes = layer->spec.kind == LS_LAYER_RESHAPE || layer->spec.kind == LS_LAYER_PERMUTE;
    bool sequence = is_sequence(model, call->inputs[0]);
    *out = (image){ .rank = 0 };
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
    /* A gated linear unit halves the axis. */
    bool same = ls_shape_equal(shape, &layer->output);
    if (same && (ls_layer_info_of(layer->spec.kind)->elementwise || is_by_feature(layer->spec.kind))) {
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
    } else if (is_by_feature(layer->spec.kind) && own.rank == 1 && own.dims[0] > 1 && image->rank > 0) {
        move_image(image, &own, false, stored);
    } else if (layer->spec.kind == LS_LAYER_PRELU) {
        stored->shape = LS_SHAPE(own.dims[own.rank - 1]); /* one alpha for each channel */
    } else if (layer->spec.kind == LS_LAYER_LAYER_SCALE && layer->output.rank == 4) {
        stored->shape = LS_SHAPE(own.dims[0], 1, 1);
    }
}

/* PyTorch's PReLU has one alpha, or one for each channel. */
static ls_status check_prelu(const ls_model_layer *layer, const ls_shape *alpha)
{
    int64_t count;
    if (layer->spec.kind != LS_LAYER_PRELU || !ls_shape_count(alpha, 1, &count) ||
        count == alpha->dims[alpha->rank - 1])
        return LS_OK;
    return ls_fail(LS_ERR_UNSUPPORTED,
                   "layer \"%s\" (PReLU) has an alpha for each element, PyTorch's only one for each channel; use "
                   "shared_axes, or the layout keras",
                   layer->name);
}

/* ---- Recurrent layers ---- */

static bool is_backward(const ls_weight *weight)
{
    return weight->slot && strcmp(weight->slot, "backward_layer") == 0;
}

static bool resets_before(const ls_model_layer *layer, const ls_weight *weight)
{
    const ls_wrapper_options *o = &layer->spec.wrapper;
    const ls_layer *own = !weight->slot ? &layer->spec : is_backward(weight) ? o->backward_layer : o->layer;
    return own->recurrent.reset_before;
}

static ls_status recurrent_name(const ls_model_layer *layer, const ls_weight *weight, const char *part, char **out)
{
    ls_text text = { 0 };
    ls_text_add(&text, "%s.%s_l0%s", layer->name, part, is_backward(weight) ? "_reverse" : "");
    return ls_text_take(&text, out);
}

/* PyTorch has [gates, inputs], a GRU's gates in the order r, z, n in place of Keras's z, r, h, and
 * two biases that it adds: Keras's is the first, and the second is 0. A GRU has two in Keras,
 * too. */
static ls_status recurrent_weight(const ls_model_layer *layer, size_t index, ls_stored_weight *stored)
{
    const ls_weight *weight = &layer->weight[index];
    const ls_shape *own = &weight->shape;
    bool gru = strcmp(weight->cell, "gru_cell") == 0, bias = strcmp(weight->name, "bias") == 0;
    int64_t width = own->dims[own->rank - 1];
    if (resets_before(layer, weight))
        return cannot_convert(layer, "resets before the product (reset_after=False)");
    if (bias) {
        stored->shape = LS_SHAPE(width);
        stored->sums = !gru;
        if (gru) {
            stored->view = LS_SHAPE(2, 3, width / 3);
            memcpy(stored->axes, (int[]){ 0, 1, 2 }, 3 * sizeof(int));
            stored->swapped = 2;
        }
        LS_TRY(recurrent_name(layer, weight, "bias_hh", &stored->second));
        return recurrent_name(layer, weight, "bias_ih", &stored->name);
    }
    stored->shape = LS_SHAPE(width, own->dims[0]);
    stored->view = gru ? LS_SHAPE(own->dims[0], 3, width / 3) : *own;
    memcpy(stored->axes, gru ? (int[]){ 1, 2, 0 } : (int[]){ 1, 0, 0 }, 3 * sizeof(int));
    stored->swapped = gru ? 1 : 0;
    return recurrent_name(layer, weight, strcmp(weight->name, "kernel") == 0 ? "weight_ih" : "weight_hh",
                          &stored->name);
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
        if (layer->weight[model->variables[i].index].cell) {
            status = recurrent_weight(layer, model->variables[i].index, &stored[i]);
            continue;
        }
        stored[i].shape = ls_model_variable(model, i)->shape;
        status = check_prelu(layer, &stored[i].shape);
        if (status != LS_OK)
            break;
        order_weight(layer, weight, &images.of[layer->number], &stored[i]);
        status = name_weight(layer, weight, ls_model_variable_name(model, i), torchvision, &stored[i]);
    }
    free(images.of);
    free(images.called);
    return status;
}
