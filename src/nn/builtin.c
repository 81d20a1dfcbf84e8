/* The built-in models. Classifiers end in softmax; cross-entropy losses use the logits before
 * it. */
#include <string.h>

#include "base/fpmode.h"
#include "base/names.h"
#include "base/status.h"
#include "device/context.h"
#include "nn/builtin.h"

static ls_status linear(const ls_builtin_maker *m, ls_model **out)
{
    return ls_sequential(m->ctx, m->name, out, ls_input(.shape = m->input), ls_dense(1));
}

static ls_status mlp(const ls_builtin_maker *m, ls_model **out)
{
    return ls_sequential(m->ctx, m->name, out, ls_input(.shape = m->input), ls_flatten(),
                         ls_dense(128, .activation = LS_RELU), ls_dense(m->classes, .activation = LS_SOFTMAX));
}

static ls_status mnist_cnn(const ls_builtin_maker *m, ls_model **out)
{
    return ls_sequential(m->ctx, m->name, out, ls_input(.shape = m->input), ls_conv2d(16, 3, .activation = LS_RELU),
                         ls_max_pool2d(2), ls_conv2d(32, 3, .activation = LS_RELU), ls_max_pool2d(2), ls_flatten(),
                         ls_dense(m->classes, .activation = LS_SOFTMAX));
}

static ls_status mnist_cnn_wide(const ls_builtin_maker *m, ls_model **out)
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

/* ---- By name ---- */

static const struct {
    const char *name;
    ls_status (*make)(const ls_builtin_maker *m, ls_model **out);
    ls_shape input;
    int64_t classes; /* 0: not a classifier */
    int64_t least;   /* minimum image height and width; 0: samples of any rank */
    int variant;     /* argument of ls_builtin_maker */
} models[] = {
    { "linear", linear, { 1, { 1 } }, 0, 0, 0 },
    { "mlp", mlp, { 3, { 28, 28, 1 } }, 10, 0, 0 },
    /* unpadded: sizes 10 8 4 2 1 */
    { "mnist-cnn", mnist_cnn, { 3, { 28, 28, 1 } }, 10, 10, 0 },
    { "mnist-cnn-wide", mnist_cnn_wide, { 3, { 28, 28, 1 } }, 10, 1, 0 },
#define IMAGES(size) { 3, { size, size, 3 } }, 1000
    /* padded: 1x1 stays 1x1 */
    { "resnet18", ls_builtin_resnet, IMAGES(224), 1, 18 },
    { "resnet34", ls_builtin_resnet, IMAGES(224), 1, 34 },
    { "resnet50", ls_builtin_resnet, IMAGES(224), 1, 50 },
    { "resnet101", ls_builtin_resnet, IMAGES(224), 1, 101 },
    { "resnet152", ls_builtin_resnet, IMAGES(224), 1, 152 },
    { "vgg11", ls_builtin_vgg, IMAGES(224), 32, 11 },
    { "vgg13", ls_builtin_vgg, IMAGES(224), 32, 13 },
    { "vgg16", ls_builtin_vgg, IMAGES(224), 32, 16 },
    { "vgg19", ls_builtin_vgg, IMAGES(224), 32, 19 },
    { "mobilenet_v2", ls_builtin_mobilenet_v2, IMAGES(224), 1, 0 },
    /* sizes 29 15 8 4 2 1 */
    { "densenet121", ls_builtin_densenet, IMAGES(224), 29, 121 },
    { "densenet169", ls_builtin_densenet, IMAGES(224), 29, 169 },
    { "densenet201", ls_builtin_densenet, IMAGES(224), 29, 201 },
    { "efficientnet_b0", ls_builtin_efficientnet, IMAGES(224), 1, 0 },
    { "efficientnet_b1", ls_builtin_efficientnet, IMAGES(240), 1, 1 },
    { "efficientnet_b2", ls_builtin_efficientnet, IMAGES(288), 1, 2 },
    { "efficientnet_b3", ls_builtin_efficientnet, IMAGES(300), 1, 3 },
    { "efficientnet_b4", ls_builtin_efficientnet, IMAGES(380), 1, 4 },
    { "convnext_tiny", ls_builtin_convnext, IMAGES(224), 32, 0 },
    { "convnext_small", ls_builtin_convnext, IMAGES(224), 32, 1 },
    { "convnext_base", ls_builtin_convnext, IMAGES(224), 32, 2 },
#undef IMAGES
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
    const ls_builtin_maker m = { .ctx = ctx,
                                 .name = models[index].name,
                                 .input = options->input.rank ? options->input : models[index].input,
                                 .classes = options->classes ? options->classes : models[index].classes,
                                 .variant = models[index].variant };
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
