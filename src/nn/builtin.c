/* The built-in models. Classifiers end in softmax; cross-entropy losses use the logits before
 * it. */
#include <stdio.h>
#include <string.h>

#include "base/fpmode.h"
#include "base/names.h"
#include "base/status.h"
#include "device/context.h"
#include "nn/model.h"

/* torchvision's initializer for residual networks: normal with variance 2 / fan-out. */
#define HE .kernel_initializer = { .kind = LS_INIT_VARIANCE_UNTRUNCATED, .a = 2, .b = LS_FAN_OUT }

typedef struct maker {
    ls_context *ctx;
    const char *name;
    ls_shape input;
    int64_t classes;
} maker;

static ls_status linear(const maker *m, ls_model **out)
{
    return ls_sequential(m->ctx, m->name, out, ls_input(.shape = m->input), ls_dense(1));
}

static ls_status mlp(const maker *m, ls_model **out)
{
    return ls_sequential(m->ctx, m->name, out, ls_input(.shape = m->input), ls_flatten(),
                         ls_dense(128, .activation = LS_RELU), ls_dense(m->classes, .activation = LS_SOFTMAX));
}

static ls_status mnist_cnn(const maker *m, ls_model **out)
{
    return ls_sequential(m->ctx, m->name, out, ls_input(.shape = m->input), ls_conv2d(16, 3, .activation = LS_RELU),
                         ls_max_pool2d(2), ls_conv2d(32, 3, .activation = LS_RELU), ls_max_pool2d(2), ls_flatten(),
                         ls_dense(m->classes, .activation = LS_SOFTMAX));
}

static ls_status mnist_cnn_wide(const maker *m, ls_model **out)
{
#define WIDE(filters) ls_conv2d(filters, 3, .padding = LS_SAME, .activation = LS_RELU, .no_bias = true)
    return ls_sequential(m->ctx, m->name, out, ls_input(.shape = m->input),                /* */
                         WIDE(64), ls_max_pool2d(2, .padding = LS_SAME), ls_dropout(0.2),  /* keep 0.8 */
                         WIDE(64), ls_max_pool2d(2, .padding = LS_SAME), ls_dropout(0.2),  /* */
                         WIDE(128), ls_max_pool2d(2, .padding = LS_SAME), ls_dropout(0.2), /* */
                         ls_flatten(), ls_dense(2400, .activation = LS_RELU, .no_bias = true), ls_dropout(0.5),
                         ls_dense(m->classes, .activation = LS_SOFTMAX, .no_bias = true));
#undef WIDE
}

/* ---- Residual networks ---- */

typedef struct label {
    char text[64];
} label;

static label join(const char *name, const char *part)
{
    label l;
    snprintf(l.text, sizeof(l.text), "%.40s_%.20s", name, part);
    return l;
}

/* Padding, epsilon and momentum are torchvision's. */
static ls_symbol convolve(ls_symbol x, label name, int64_t filters, int64_t size, int64_t stride, bool relu)
{
    int64_t pad = size / 2;
    label conv = join(name.text, "conv"), norm = join(name.text, "bn"), act = join(name.text, "relu");
    ls_layer convolution = ls_conv2d(filters, size, stride, .padding = LS_EXPLICIT, .no_bias = true,
                                     .zero_padding = { pad, pad, pad, pad }, HE, .name = conv.text);
    ls_symbol y = ls_symbol_call(x.model, convolution, x);
    y = ls_symbol_call(x.model, ls_batch_normalization(.epsilon = 1e-5, .momentum = 0.9, .name = norm.text), y);
    return relu ? ls_symbol_call(x.model, ls_activation_layer(LS_RELU, .name = act.text), y) : y;
}

/* Two 3x3 convolutions, the first with the stride; or a bottleneck: 1x1, 3x3 with the stride, 1x1
 * to four times the channels. */
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

static ls_status resnet(const maker *m, const int blocks[4], bool bottleneck, ls_model **out)
{
    ls_model *model;
    LS_TRY(ls_functional_begin(m->ctx, m->name, &model));
    ls_symbol x = ls_symbol_input(model, ls_input(.shape = m->input));
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
    x = ls_symbol_call(model, ls_dense(m->classes, .activation = LS_SOFTMAX, .name = "predictions"), x);
    ls_status status = ls_functional_end(model, x);
    if (status != LS_OK) {
        ls_model_destroy(model);
        return status;
    }
    *out = model;
    return LS_OK;
}

static ls_status resnet18(const maker *m, ls_model **out)
{
    return resnet(m, (const int[]){ 2, 2, 2, 2 }, false, out);
}

static ls_status resnet50(const maker *m, ls_model **out)
{
    return resnet(m, (const int[]){ 3, 4, 6, 3 }, true, out);
}

/* ---- By name ---- */

static const struct {
    const char *name;
    ls_status (*make)(const maker *m, ls_model **out);
    ls_shape input;
    int64_t classes; /* 0: not a classifier */
    int64_t least;   /* minimum image height and width; 0: samples of any rank */
} models[] = {
    { "linear", linear, { 1, { 1 } }, 0, 0 },
    { "mlp", mlp, { 3, { 28, 28, 1 } }, 10, 0 },
    /* unpadded: sizes 10 8 4 2 1 */
    { "mnist-cnn", mnist_cnn, { 3, { 28, 28, 1 } }, 10, 10 },
    { "mnist-cnn-wide", mnist_cnn_wide, { 3, { 28, 28, 1 } }, 10, 1 },
    /* padded: 1x1 stays 1x1 */
    { "resnet18", resnet18, { 3, { 224, 224, 3 } }, 1000, 1 },
    { "resnet50", resnet50, { 3, { 224, 224, 3 } }, 1000, 1 },
};
#define MODEL_COUNT (sizeof(models) / sizeof(models[0]))

const char *ls_model_builtin_name(size_t index)
{
    return index < MODEL_COUNT ? models[index].name : NULL;
}

static ls_status check_input(size_t index, const ls_shape *input)
{
    const char *name = models[index].name;
    int64_t least = models[index].least;
    char text[LS_SHAPE_TEXT];
    if (input->rank < 0 || input->rank >= LS_MAX_RANK)
        return ls_fail(LS_ERR_SHAPE, "built-in model \"%s\": the input must have 1 to %d sizes (got %d)", name,
                       LS_MAX_RANK - 1, input->rank);
    ls_shape_format(input, text);
    for (int i = 0; i < input->rank; i++)
        if (input->dims[i] < 1)
            return ls_fail(LS_ERR_SHAPE, "built-in model \"%s\": the input is %s; every size must be at least 1", name,
                           text);
    if (least > 0 && input->rank != 3)
        return ls_fail(LS_ERR_SHAPE, "built-in model \"%s\": the input is %s; it must have height, width and channels",
                       name, text);
    if (least > 0 && (input->dims[0] < least || input->dims[1] < least))
        return ls_fail(LS_ERR_SHAPE, "built-in model \"%s\": the input is %s; height and width must be at least %lld",
                       name, text, (long long)least);
    return LS_OK;
}

static ls_status check_classes(size_t index, int64_t classes)
{
    if (classes != 0 && models[index].classes == 0)
        return ls_fail(LS_ERR_INVALID,
                       "built-in model \"%s\": classes is %lld, but the model is not a classifier; remove it",
                       models[index].name, (long long)classes);
    if (classes < 0)
        return ls_fail(LS_ERR_INVALID, "built-in model \"%s\": classes is %lld; it must be at least 1",
                       models[index].name, (long long)classes);
    return LS_OK;
}

static ls_status make_builtin(ls_context *ctx, size_t index, const ls_builtin_options *options, ls_model **out)
{
    if (options->input.rank != 0)
        LS_TRY(check_input(index, &options->input));
    LS_TRY(check_classes(index, options->classes));
    const maker m = { .ctx = ctx,
                      .name = models[index].name,
                      .input = options->input.rank ? options->input : models[index].input,
                      .classes = options->classes ? options->classes : models[index].classes };
    return models[index].make(&m, out);
}

ls_status ls_model_builtin_with(ls_context *ctx, const char *name, ls_builtin_options options, ls_model **out)
{
    LS_OWN_FP_MODE;
    const char *names[MODEL_COUNT];
    if (!ctx || !name || !out)
        return ls_fail(LS_ERR_INVALID, "ls_model_builtin: the %s is NULL",
                       !ctx    ? "context"
                       : !name ? "name"
                               : "model pointer (out)");
    LS_TRY(ls_context_check(ctx, "ls_model_builtin"));
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        names[i] = models[i].name;
        if (strcmp(models[i].name, name) == 0)
            return make_builtin(ctx, i, &options, out);
    }
    return ls_fail(LS_ERR_NOT_FOUND, "there is no built-in model \"%s\"%s", name,
                   ls_advise_name(name, names, MODEL_COUNT).text);
}
