/* The networks of torchvision.models, so that its weights give its predictions: padding, epsilon,
 * momentum, initializers and the order of layers are torchvision's. Layers with weights have its
 * names ("features.0.0"), which need no table when weights are loaded; residual networks have
 * Keras's, which layout_torch.c converts. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "nn/builtin.h"

/* Normal with variance 2 / fan-out. PyTorch counts all channels of a depthwise kernel, as Keras's
 * fan-in does. */
#define HE                                                                                                             \
    {                                                                                                                  \
        .kind = LS_INIT_VARIANCE_UNTRUNCATED, .a = 2, .b = LS_FAN_OUT                                                  \
    }
#define HE_DEPTHWISE                                                                                                   \
    {                                                                                                                  \
        .kind = LS_INIT_VARIANCE_UNTRUNCATED, .a = 2, .b = LS_FAN_IN                                                   \
    }

typedef struct label {
    char text[64];
} label;

/* Lives until the end of the full expression, and a model copies names. */
__attribute__((format(printf, 1, 2))) static label name(const char *format, ...)
{
    label l;
    va_list list;
    va_start(list, format);
    vsnprintf(l.text, sizeof l.text, format, list);
    va_end(list);
    return l;
}

/* ---- Parts ---- */

static ls_symbol activate(ls_symbol x, ls_activation activation)
{
    return activation == LS_LINEAR ? x : ls_symbol_call(x.model, ls_activation_layer(activation), x);
}

static ls_symbol normalize(ls_symbol x, const char *named)
{
    return ls_symbol_call(x.model, ls_batch_normalization(.epsilon = 1e-5, .momentum = 0.9, .name = named), x);
}

/* A kernel of odd size, with zeros on all sides that keep the image's size at stride 1.
 * filters 0: depthwise */
static ls_symbol convolve(ls_symbol x, const char *named, int64_t filters, int64_t size, int64_t stride, bool bias)
{
    int64_t pad = size / 2;
#define CONVOLUTION(initializer)                                                                                       \
    .padding = LS_EXPLICIT, .zero_padding = { pad, pad, pad, pad }, .no_bias = !bias,                                  \
    .kernel_initializer = initializer, .name = named
    const ls_initializer he = HE, depthwise = HE_DEPTHWISE;
    return filters ? ls_symbol_call(x.model, ls_conv2d(filters, size, stride, CONVOLUTION(he)), x)
                   : ls_symbol_call(x.model, ls_depthwise_conv2d(size, stride, CONVOLUTION(depthwise)), x);
#undef CONVOLUTION
}

/* torchvision's Conv2dNormActivation: NAME.0 and NAME.1. */
static ls_symbol convolve_normalized(ls_symbol x, const char *named, int64_t filters, int64_t size, int64_t stride,
                                     ls_activation activation)
{
    x = convolve(x, name("%s.0", named).text, filters, size, stride, false);
    return activate(normalize(x, name("%s.1", named).text), activation);
}

static ls_symbol pool_3_by_2(ls_symbol x, const char *named)
{
    ls_layer pool = ls_max_pool2d(3, 2, .padding = LS_EXPLICIT, .zero_padding = { 1, 1, 1, 1 }, .name = named);
    return ls_symbol_call(x.model, pool, x);
}

static ls_symbol average(ls_symbol x)
{
    return ls_symbol_call(x.model, ls_global_average_pool2d(.name = "avg_pool"), x);
}

/* x + f(x), where f(x) is dropped for some samples in training. */
static ls_symbol add_residual(ls_symbol x, ls_symbol y, double drop)
{
    if (drop > 0)
        y = ls_symbol_call(x.model, ls_stochastic_depth(drop), y);
    return ls_symbol_call(x.model, ls_add(), x, y);
}

static ls_status begin(const ls_builtin_maker *m, ls_symbol *x)
{
    ls_model *model;
    LS_TRY(ls_functional_begin(m->ctx, m->name, &model));
    *x = ls_symbol_input(model, ls_input(.shape = m->input));
    return LS_OK;
}

/* dropout 0: none */
static ls_status end(const ls_builtin_maker *m, ls_symbol x, double dropout, const char *named, ls_model **out)
{
    ls_model *model = x.model;
    if (dropout > 0)
        x = ls_symbol_call(model, ls_dropout(dropout), x);
    x = ls_symbol_call(model, ls_dense(m->classes, .activation = LS_SOFTMAX, .name = named), x);
    ls_status status = ls_functional_end(model, x);
    if (status == LS_OK)
        *out = model;
    else
        ls_model_destroy(model);
    return status;
}

/* ---- ResNet ---- */

static ls_symbol resnet_part(ls_symbol x, const char *named, int64_t filters, int64_t size, int64_t stride, bool relu)
{
    x = convolve(x, name("%s_conv", named).text, filters, size, stride, false);
    x = normalize(x, name("%s_bn", named).text);
    return relu ? ls_symbol_call(x.model, ls_activation_layer(LS_RELU, .name = name("%s_relu", named).text), x) : x;
}

/* Two 3x3 convolutions, the first with the stride; or a bottleneck: 1x1, 3x3 with the stride, 1x1
 * to four times the channels. */
static ls_symbol resnet_block(ls_symbol x, const char *named, int64_t channels, int64_t stride, bool bottleneck,
                              bool project)
{
    ls_symbol shortcut = x, y = x;
    int64_t wide = bottleneck ? 4 * channels : channels;
    if (project)
        shortcut = resnet_part(x, name("%s_0", named).text, wide, 1, stride, false);
    y = resnet_part(y, name("%s_1", named).text, channels, bottleneck ? 1 : 3, bottleneck ? 1 : stride, true);
    y = resnet_part(y, name("%s_2", named).text, channels, 3, bottleneck ? stride : 1, bottleneck);
    if (bottleneck)
        y = resnet_part(y, name("%s_3", named).text, wide, 1, 1, false);
    y = ls_symbol_call(x.model, ls_add(.name = name("%s_add", named).text), shortcut, y);
    return ls_symbol_call(x.model, ls_activation_layer(LS_RELU, .name = name("%s_out", named).text), y);
}

ls_status ls_builtin_resnet(const ls_builtin_maker *m, ls_model **out)
{
    static const struct {
        int variant, blocks[4];
        bool bottleneck;
    } rows[] = { { 18, { 2, 2, 2, 2 }, false },
                 { 34, { 3, 4, 6, 3 }, false },
                 { 50, { 3, 4, 6, 3 }, true },
                 { 101, { 3, 4, 23, 3 }, true },
                 { 152, { 3, 8, 36, 3 }, true } };
    size_t row = 0;
    while (rows[row].variant != m->variant)
        row++;
    bool bottleneck = rows[row].bottleneck;
    ls_symbol x;
    LS_TRY(begin(m, &x));
    x = pool_3_by_2(resnet_part(x, "conv1", 64, 7, 2, true), "pool1");
    for (int s = 0; s < 4; s++)
        for (int b = 0; b < rows[row].blocks[s]; b++)
            x = resnet_block(x, name("conv%d_block%d", s + 2, b + 1).text, 64 << s, s > 0 && b == 0 ? 2 : 1, bottleneck,
                             b == 0 && (s > 0 || bottleneck));
    return end(m, average(x), 0, "predictions", out);
}

/* ---- VGG ---- */

enum { VGG_POOLED = 7 };

/* Sizes whose mean over equal windows, of images enlarged by 7 if they are smaller, is PyTorch's
 * AdaptiveAvgPool2d(7). */
static bool vgg_pools(int64_t size)
{
    return size == 1 || size == 2 || (size > 0 && size % VGG_POOLED == 0);
}

static ls_status check_vgg(const ls_builtin_maker *m, int64_t size[2])
{
    char text[LS_SHAPE_TEXT];
    for (int i = 0; i < 2; i++)
        size[i] = m->input.dims[i] / 32;
    if (vgg_pools(size[0]) && vgg_pools(size[1]))
        return LS_OK;
    return ls_fail(LS_ERR_SHAPE,
                   "built-in model \"%s\": the input is %s; height and width must be 32 to 95, 224 to 255, or 224 n "
                   "to 224 n + 31, so that features can be pooled to 7x7",
                   m->name, ls_shape_format(&m->input, text));
}

static ls_symbol pool_to_7(ls_symbol x, const int64_t size[2])
{
    int64_t factor[2], window[2];
    for (int i = 0; i < 2; i++) {
        bool small = size[i] < VGG_POOLED;
        factor[i] = small ? VGG_POOLED : 1;
        window[i] = small ? size[i] : size[i] / VGG_POOLED;
    }
    if (factor[0] * factor[1] > 1)
        x = ls_symbol_call(x.model, ls_up_sampling2d(.size = { factor[0], factor[1] }), x);
    if (window[0] * window[1] > 1)
        x = ls_symbol_call(x.model, ls_average_pool2d(.pool_size = { window[0], window[1] }), x);
    return x;
}

ls_status ls_builtin_vgg(const ls_builtin_maker *m, ls_model **out)
{
    /* convolutions before each of the five pools */
    static const struct {
        int variant, convolutions[5];
    } rows[] = {
        { 11, { 1, 1, 2, 2, 2 } }, { 13, { 2, 2, 2, 2, 2 } }, { 16, { 2, 2, 3, 3, 3 } }, { 19, { 2, 2, 4, 4, 4 } }
    };
    size_t row = 0;
    while (rows[row].variant != m->variant)
        row++;
    int64_t size[2];
    ls_symbol x;
    LS_TRY(check_vgg(m, size));
    LS_TRY(begin(m, &x));
    int index = 0; /* index in torchvision's Sequential */
    for (int s = 0; s < 5; s++) {
        for (int c = 0; c < rows[row].convolutions[s]; c++, index += 2)
            x = activate(convolve(x, name("features.%d", index).text, s < 3 ? 64 << s : 512, 3, 1, true), LS_RELU);
        x = ls_symbol_call(x.model, ls_max_pool2d(2, .name = name("features.%d", index++).text), x);
    }
    x = ls_symbol_call(x.model, ls_flatten(), pool_to_7(x, size));
    for (int i = 0; i < 6; i += 3) {
        x = ls_symbol_call(x.model, ls_dense(4096, .activation = LS_RELU, .name = name("classifier.%d", i).text), x);
        x = ls_symbol_call(x.model, ls_dropout(0.5), x);
    }
    return end(m, x, 0, "classifier.6", out);
}

/* ---- MobileNetV2 ---- */

/* expansion, channels, blocks, stride */
static const int mobilenet_stages[][4] = { { 1, 16, 1, 1 }, { 6, 24, 2, 2 },  { 6, 32, 3, 2 }, { 6, 64, 4, 2 },
                                           { 6, 96, 3, 1 }, { 6, 160, 3, 2 }, { 6, 320, 1, 1 } };

static ls_symbol inverted_residual(ls_symbol x, int index, int64_t in, const int *stage, int64_t stride)
{
    ls_symbol y = x;
    int part = 0;
    if (stage[0] > 1)
        y = convolve_normalized(y, name("features.%d.conv.%d", index, part++).text, in * stage[0], 1, 1, LS_RELU6);
    y = convolve_normalized(y, name("features.%d.conv.%d", index, part++).text, 0, 3, stride, LS_RELU6);
    y = convolve(y, name("features.%d.conv.%d", index, part).text, stage[1], 1, 1, false);
    y = normalize(y, name("features.%d.conv.%d", index, part + 1).text);
    return stride == 1 && in == stage[1] ? add_residual(x, y, 0) : y;
}

ls_status ls_builtin_mobilenet_v2(const ls_builtin_maker *m, ls_model **out)
{
    ls_symbol x;
    LS_TRY(begin(m, &x));
    x = convolve_normalized(x, "features.0", 32, 3, 2, LS_RELU6);
    int64_t in = 32;
    int index = 1;
    for (size_t s = 0; s < sizeof mobilenet_stages / sizeof *mobilenet_stages; s++)
        for (int b = 0; b < mobilenet_stages[s][2]; b++) {
            const int *stage = mobilenet_stages[s];
            x = inverted_residual(x, index++, in, stage, b == 0 ? stage[3] : 1);
            in = stage[1];
        }
    x = convolve_normalized(x, name("features.%d", index).text, 1280, 1, 1, LS_RELU6);
    return end(m, average(x), 0.2, "classifier.1", out);
}

/* ---- DenseNet ---- */

/* Normalization, ReLU, convolution; PyTorch's kaiming_normal_ uses the fan-in. */
static ls_symbol dense_part(ls_symbol x, const char *named, const char *suffix, int64_t filters, int64_t size)
{
    int64_t pad = size / 2;
    const ls_initializer he = { .kind = LS_INIT_VARIANCE_UNTRUNCATED, .a = 2, .b = LS_FAN_IN };
    x = activate(normalize(x, name("%s.norm%s", named, suffix).text), LS_RELU);
    return ls_symbol_call(x.model,
                          ls_conv2d(filters, size, .padding = LS_EXPLICIT, .zero_padding = { pad, pad, pad, pad },
                                    .no_bias = true, .kernel_initializer = he,
                                    .name = name("%s.conv%s", named, suffix).text),
                          x);
}

ls_status ls_builtin_densenet(const ls_builtin_maker *m, ls_model **out)
{
    enum { GROWTH = 32 };
    static const int rows[][5] = { { 121, 6, 12, 24, 16 }, { 169, 6, 12, 32, 32 }, { 201, 6, 12, 48, 32 } };
    size_t row = 0;
    while (rows[row][0] != m->variant)
        row++;
    ls_symbol x;
    LS_TRY(begin(m, &x));
    int64_t channels = 64;
    x = convolve(x, "features.conv0", channels, 7, 2, false);
    x = pool_3_by_2(activate(normalize(x, "features.norm0"), LS_RELU), "features.pool0");
    for (int s = 1; s <= 4; s++) {
        for (int b = 1; b <= rows[row][s]; b++, channels += GROWTH) {
            label layer = name("features.denseblock%d.denselayer%d", s, b);
            ls_symbol y = dense_part(x, layer.text, "1", 4 * GROWTH, 1);
            y = dense_part(y, layer.text, "2", GROWTH, 3);
            x = ls_symbol_call(x.model, ls_concatenate(), x, y);
        }
        if (s == 4)
            break;
        channels /= 2;
        x = dense_part(x, name("features.transition%d", s).text, "", channels, 1);
        x = ls_symbol_call(x.model, ls_average_pool2d(2), x);
    }
    x = activate(normalize(x, "features.norm5"), LS_RELU);
    return end(m, average(x), 0, "classifier", out);
}

/* ---- EfficientNet ---- */

typedef struct efficient_stage {
    int expansion, size, stride, in, out, blocks;
} efficient_stage;

/* Rounds to a multiple of 8, by at most a tenth down. */
static int64_t widen(int channels, double width)
{
    double wanted = channels * width;
    int64_t rounded = (int64_t)(wanted + 4) / 8 * 8;
    rounded = rounded < 8 ? 8 : rounded;
    return (double)rounded < 0.9 * wanted ? rounded + 8 : rounded;
}

static ls_symbol squeeze_and_excite(ls_symbol x, const char *named, int64_t channels, int64_t squeezed)
{
    ls_symbol y = ls_symbol_call(x.model, ls_global_average_pool2d(.keepdims = true), x);
    y = activate(convolve(y, name("%s.fc1", named).text, squeezed, 1, 1, true), LS_SILU);
    y = activate(convolve(y, name("%s.fc2", named).text, channels, 1, 1, true), LS_SIGMOID);
    return ls_symbol_call(x.model, ls_multiply(), x, y);
}

static ls_symbol efficient_block(ls_symbol x, const char *named, const efficient_stage *s, int64_t in, int64_t out,
                                 int64_t stride, double drop)
{
    ls_symbol y = x;
    int part = 0;
    int64_t wide = widen((int)in, s->expansion);
    if (wide != in)
        y = convolve_normalized(y, name("%s.block.%d", named, part++).text, wide, 1, 1, LS_SILU);
    y = convolve_normalized(y, name("%s.block.%d", named, part++).text, 0, s->size, stride, LS_SILU);
    y = squeeze_and_excite(y, name("%s.block.%d", named, part++).text, wide, in / 4 > 1 ? in / 4 : 1);
    y = convolve_normalized(y, name("%s.block.%d", named, part).text, out, 1, 1, LS_LINEAR);
    return stride == 1 && in == out ? add_residual(x, y, drop) : y;
}

ls_status ls_builtin_efficientnet(const ls_builtin_maker *m, ls_model **out)
{
    static const efficient_stage stages[] = { { 1, 3, 1, 32, 16, 1 },  { 6, 3, 2, 16, 24, 2 },
                                              { 6, 5, 2, 24, 40, 2 },  { 6, 3, 2, 40, 80, 3 },
                                              { 6, 5, 1, 80, 112, 3 }, { 6, 5, 2, 112, 192, 4 },
                                              { 6, 3, 1, 192, 320, 1 } };
    static const struct {
        double width, depth, dropout;
    } rows[] = { { 1, 1, 0.2 }, { 1, 1.1, 0.2 }, { 1.1, 1.2, 0.3 }, { 1.2, 1.4, 0.3 }, { 1.4, 1.8, 0.4 } };
    enum { STAGES = sizeof stages / sizeof *stages };
    double width = rows[m->variant].width;
    int blocks[STAGES], all = 0, done = 0;
    for (int s = 0; s < STAGES; s++)
        all += blocks[s] = (int)ceil(stages[s].blocks * rows[m->variant].depth);
    ls_symbol x;
    LS_TRY(begin(m, &x));
    x = convolve_normalized(x, "features.0", widen(32, width), 3, 2, LS_SILU);
    for (int s = 0; s < STAGES; s++)
        for (int b = 0; b < blocks[s]; b++, done++) {
            int64_t wide = widen(stages[s].out, width), in = b == 0 ? widen(stages[s].in, width) : wide;
            x = efficient_block(x, name("features.%d.%d", s + 1, b).text, &stages[s], in, wide,
                                b == 0 ? stages[s].stride : 1, 0.2 * done / all);
        }
    x = convolve_normalized(x, "features.8", 4 * widen(320, width), 1, 1, LS_SILU);
    return end(m, average(x), rows[m->variant].dropout, "classifier.1", out);
}

/* ---- ConvNeXt ---- */

#define SMALL_NORMAL .kernel_initializer = { .kind = LS_INIT_TRUNCATED_NORMAL, .b = 0.02 }

static ls_symbol normalize_layer(ls_symbol x, const char *named)
{
    return ls_symbol_call(x.model, ls_layer_normalization(.epsilon = 1e-6, .name = named), x);
}

static ls_symbol convnext_block(ls_symbol x, const char *named, int64_t channels, double drop)
{
    ls_symbol y = ls_symbol_call(x.model,
                                 ls_depthwise_conv2d(7, .padding = LS_EXPLICIT, .zero_padding = { 3, 3, 3, 3 },
                                                     SMALL_NORMAL, .name = name("%s.block.0", named).text),
                                 x);
    y = normalize_layer(y, name("%s.block.2", named).text);
    y = ls_symbol_call(
        x.model, ls_dense(4 * channels, .activation = LS_GELU, SMALL_NORMAL, .name = name("%s.block.3", named).text),
        y);
    y = ls_symbol_call(x.model, ls_dense(channels, SMALL_NORMAL, .name = name("%s.block.5", named).text), y);
    y = ls_symbol_call(x.model, ls_layer_scale(channels, .name = name("%s.layer_scale", named).text), y);
    return add_residual(x, y, drop);
}

ls_status ls_builtin_convnext(const ls_builtin_maker *m, ls_model **out)
{
    enum { TINY, SMALL, BASE };
    static const struct {
        int64_t channels;
        int blocks[4];
        double drop;
    } rows[] = { [TINY] = { 96, { 3, 3, 9, 3 }, 0.1 },
                 [SMALL] = { 96, { 3, 3, 27, 3 }, 0.4 },
                 [BASE] = { 128, { 3, 3, 27, 3 }, 0.5 } };
    const int *blocks = rows[m->variant].blocks;
    int all = blocks[0] + blocks[1] + blocks[2] + blocks[3], done = 0;
    ls_symbol x;
    LS_TRY(begin(m, &x));
    int64_t channels = rows[m->variant].channels;
    x = ls_symbol_call(x.model, ls_conv2d(channels, 4, 4, SMALL_NORMAL, .name = "features.0.0"), x);
    x = normalize_layer(x, "features.0.1");
    for (int s = 0; s < 4; s++) {
        if (s > 0) {
            channels *= 2;
            x = normalize_layer(x, name("features.%d.0", 2 * s).text);
            x = ls_symbol_call(x.model,
                               ls_conv2d(channels, 2, 2, SMALL_NORMAL, .name = name("features.%d.1", 2 * s).text), x);
        }
        for (int b = 0; b < blocks[s]; b++, done++)
            x = convnext_block(x, name("features.%d.%d", 2 * s + 1, b).text, channels,
                               rows[m->variant].drop * done / (all - 1));
    }
    return end(m, normalize_layer(average(x), "classifier.0"), 0, "classifier.2", out);
}
