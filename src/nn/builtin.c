/* The built-in models. Classifiers end in softmax, as Keras's do; a cross-entropy takes the logits before it, so
 * training loses nothing by it. */
#include <stdio.h>
#include <string.h>

#include "base/fpmode.h"
#include "base/names.h"
#include "base/status.h"
#include "nn/model.h"

/* Of residual networks, torchvision's: normal, variance 2 by the fan out. */
#define HE .kernel_initializer = { .kind = LS_INIT_VARIANCE_UNTRUNCATED, .a = 2, .b = LS_FAN_OUT }

static ls_status linear(ls_context *ctx, const char *name, ls_model **out)
{
    return ls_sequential(ctx, name, out, ls_input(1), ls_dense(1));
}

static ls_status mlp(ls_context *ctx, const char *name, ls_model **out)
{
    return ls_sequential(ctx, name, out, ls_input(28, 28, 1), ls_flatten(), ls_dense(128, .activation = LS_RELU),
                         ls_dense(10, .activation = LS_SOFTMAX));
}

static ls_status mnist_cnn(ls_context *ctx, const char *name, ls_model **out)
{
    return ls_sequential(ctx, name, out, ls_input(28, 28, 1), ls_conv2d(16, 3, .activation = LS_RELU), ls_max_pool2d(2),
                         ls_conv2d(32, 3, .activation = LS_RELU), ls_max_pool2d(2), ls_flatten(),
                         ls_dense(10, .activation = LS_SOFTMAX));
}

static ls_status mnist_cnn_wide(ls_context *ctx, const char *name, ls_model **out)
{
#define WIDE(filters) ls_conv2d(filters, 3, .padding = LS_SAME, .activation = LS_RELU, .use_bias = LS_OFF)
    return ls_sequential(ctx, name, out, ls_input(28, 28, 1),                              /* */
                         WIDE(64), ls_max_pool2d(2, .padding = LS_SAME), ls_dropout(0.2),  /* keep 0.8 */
                         WIDE(64), ls_max_pool2d(2, .padding = LS_SAME), ls_dropout(0.2),  /* */
                         WIDE(128), ls_max_pool2d(2, .padding = LS_SAME), ls_dropout(0.2), /* */
                         ls_flatten(), ls_dense(2400, .activation = LS_RELU, .use_bias = LS_OFF), ls_dropout(0.5),
                         ls_dense(10, .activation = LS_SOFTMAX, .use_bias = LS_OFF));
#undef WIDE
}

/* ---- Residual networks ---- */

/* The names of a block's layers are Keras's: "conv2_block1_1_conv". */
typedef struct label {
    char text[64];
} label;

static label join(const char *name, const char *part)
{
    label l;
    snprintf(l.text, sizeof(l.text), "%.40s_%.20s", name, part);
    return l;
}

/* Convolution, batch norm and, if asked, ReLU. Padding as torchvision's: half the kernel on every side; likewise the
 * epsilon and momentum of batch norm. */
static ls_symbol convolve(ls_symbol x, label name, int64_t filters, int64_t size, int64_t stride, bool relu)
{
    int64_t pad = size / 2;
    label conv = join(name.text, "conv"), norm = join(name.text, "bn"), act = join(name.text, "relu");
    ls_layer convolution = ls_conv2d(filters, size, stride, .padding = LS_EXPLICIT, .use_bias = LS_OFF,
                                     .zero_padding = { pad, pad, pad, pad }, HE, .name = conv.text);
    ls_symbol y = ls_symbol_call(x.model, convolution, x);
    y = ls_symbol_call(x.model, ls_batch_normalization(.epsilon = 1e-5, .momentum = 0.9, .name = norm.text), y);
    return relu ? ls_symbol_call(x.model, ls_activation_layer(LS_RELU, .name = act.text), y) : y;
}

/* Two 3x3 convolutions, the stride in the first; or 1x1, 3x3 with the stride, 1x1 to four times the channels. */
static ls_symbol block(ls_symbol x, const char *name, int64_t channels, int64_t stride, bool bottleneck, bool project)
{
    ls_symbol shortcut = x, y = x;
    int64_t wide = bottleneck ? 4 * channels : channels;
    label add = join(name, "add"), relu = join(name, "out");
    if (project)
        shortcut = convolve(x, join(name, "0"), wide, 1, stride, false);
    y = convolve(y, join(name, "1"), channels, bottleneck ? 1 : 3, bottleneck ? 1 : stride, true);
    y = convolve(y, join(name, "2"), channels, 3, bottleneck ? stride : 1, bottleneck);
    if (bottleneck)
        y = convolve(y, join(name, "3"), wide, 1, 1, false);
    y = ls_symbol_call(x.model, ls_add(.name = add.text), shortcut, y);
    return ls_symbol_call(x.model, ls_activation_layer(LS_RELU, .name = relu.text), y);
}

static ls_status resnet(ls_context *ctx, const char *name, const int blocks[4], bool bottleneck, ls_model **out)
{
    ls_model *model;
    LS_TRY(ls_functional_begin(ctx, name, &model));
    ls_symbol x = ls_symbol_input(model, ls_input(224, 224, 3));
    x = convolve(x, (label){ "conv1" }, 64, 7, 2, true);
    x = ls_symbol_call(model,
                       ls_max_pool2d(3, 2, .padding = LS_EXPLICIT, .zero_padding = { 1, 1, 1, 1 }, .name = "pool1"), x);
    for (int s = 0; s < 4; s++)
        for (int b = 0; b < blocks[s]; b++) {
            char part[64];
            snprintf(part, sizeof(part), "conv%d_block%d", s + 2, b + 1);
            x = block(x, part, 64 << s, s > 0 && b == 0 ? 2 : 1, bottleneck, b == 0 && (s > 0 || bottleneck));
        }
    x = ls_symbol_call(model, ls_global_average_pool2d(.name = "avg_pool"), x);
    x = ls_symbol_call(model, ls_dense(1000, .activation = LS_SOFTMAX, .name = "predictions"), x);
    ls_status status = ls_functional_end(model, x);
    if (status != LS_OK) {
        ls_model_destroy(model);
        return status;
    }
    *out = model;
    return LS_OK;
}

static ls_status resnet18(ls_context *ctx, const char *name, ls_model **out)
{
    return resnet(ctx, name, (const int[]){ 2, 2, 2, 2 }, false, out);
}

static ls_status resnet50(ls_context *ctx, const char *name, ls_model **out)
{
    return resnet(ctx, name, (const int[]){ 3, 4, 6, 3 }, true, out);
}

/* ---- By name ---- */

static const struct {
    const char *name;
    ls_status (*make)(ls_context *ctx, const char *name, ls_model **out);
} models[] = {
    { "linear", linear },       { "mlp", mlp },
    { "mnist-cnn", mnist_cnn }, { "mnist-cnn-wide", mnist_cnn_wide },
    { "resnet18", resnet18 },   { "resnet50", resnet50 },
};
#define MODEL_COUNT (sizeof(models) / sizeof(models[0]))

const char *ls_model_builtin_name(size_t index)
{
    return index < MODEL_COUNT ? models[index].name : NULL;
}

ls_status ls_model_builtin(ls_context *ctx, const char *name, ls_model **out)
{
    LS_OWN_FP_MODE;
    const char *names[MODEL_COUNT];
    if (!ctx || !name || !out)
        return ls_fail(LS_ERR_INVALID, "ls_model_builtin: the %s is NULL",
                       !ctx    ? "context"
                       : !name ? "name"
                               : "place for the model");
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        names[i] = models[i].name;
        if (strcmp(models[i].name, name) == 0)
            return models[i].make(ctx, name, out);
    }
    return ls_fail(LS_ERR_NOT_FOUND, "there is no built-in model \"%s\"; did you mean \"%s\"?", name,
                   ls_nearest_name(name, names, MODEL_COUNT));
}
