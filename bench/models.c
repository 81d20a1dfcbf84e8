/* The networks of the benchmarks. Initial weights are Glorot uniform from a fixed seed. */
#include "models.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;

static float uniform(void) /* xorshift: any ordinary weights will do */
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (float)(state >> 40) * 0x1p-23f - 1;
}

static ls_tensor *weight(ls_bench_model *m, const char *name, ls_shape shape, int64_t in, int64_t out)
{
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        count *= shape.dims[i];
    float *data = malloc((size_t)count * sizeof(*data)), limit = sqrtf(6.0f / (float)(in + out));
    for (int64_t i = 0; data && i < count; i++)
        data[i] = uniform() * limit;
    ls_tensor *variable = ls_op_variable(m->graph, name, LS_F32, shape, .data = data);
    free(data);
    m->variables[m->variable_count++] = variable;
    return variable;
}

static ls_tensor *vector(ls_bench_model *m, int64_t count, float value, bool trained)
{
    float *data = malloc((size_t)count * sizeof(*data));
    for (int64_t i = 0; data && i < count; i++)
        data[i] = value;
    ls_tensor *variable = ls_op_variable(m->graph, NULL, LS_F32, LS_SHAPE(count), .data = data, .frozen = !trained);
    free(data);
    if (trained)
        m->variables[m->variable_count++] = variable;
    return variable;
}

static ls_tensor *conv(ls_bench_model *m, ls_tensor *x, int64_t out, int64_t size, int64_t stride, ls_padding padding,
                       bool bias)
{
    int64_t in = ls_tensor_shape(x).dims[3], pad = size / 2;
    ls_tensor *kernel = weight(m, NULL, LS_SHAPE(size, size, in, out), size * size * in, size * size * out);
    ls_tensor *y =
        ls_op_conv2d(x, kernel, .stride = { stride, stride }, .padding = padding, .pad = { pad, pad, pad, pad });
    return bias ? ls_op_add(y, vector(m, out, 0, true)) : y;
}

static ls_tensor *dense(ls_bench_model *m, ls_tensor *x, int64_t out)
{
    int64_t in = ls_tensor_shape(x).dims[1];
    return ls_op_add(ls_op_matmul(x, weight(m, NULL, LS_SHAPE(in, out), in, out)), vector(m, out, 0, true));
}

static ls_tensor *norm(ls_bench_model *m, ls_tensor *x)
{
    int64_t channels = ls_tensor_shape(x).dims[3];
    ls_tensor *updates[2];
    ls_tensor *gamma = vector(m, channels, 1, true), *beta = vector(m, channels, 0, true);
    ls_tensor *y = ls_op_batch_norm(x, gamma, beta, vector(m, channels, 0, false), vector(m, channels, 1, false),
                                    .training = true, .statistics = m->statistics, .updates = updates);
    m->extra[m->extra_count++] = updates[0];
    m->extra[m->extra_count++] = updates[1];
    return y;
}

static ls_tensor *mnist_cnn(ls_bench_model *m, ls_tensor *x)
{
    x = ls_op_max_pool2d(ls_op_relu(conv(m, x, 16, 3, 1, LS_VALID, true)), { 2, 2 });
    x = ls_op_max_pool2d(ls_op_relu(conv(m, x, 32, 3, 1, LS_VALID, true)), { 2, 2 });
    return dense(m, ls_op_flatten(x), 10);
}

static ls_tensor *wide_cnn(ls_bench_model *m, ls_tensor *x)
{
    const int64_t channels[] = { 64, 64, 128 };
    ls_tensor *rate = ls_op_scalar(m->graph, LS_F32, 0.2), *hidden_rate = ls_op_scalar(m->graph, LS_F32, 0.5);
    for (int i = 0; i < 3; i++) {
        x = ls_op_relu(conv(m, x, channels[i], 3, 1, LS_SAME, false));
        x = ls_op_dropout(ls_op_max_pool2d(x, { 2, 2 }, .padding = LS_SAME), rate);
    }
    x = ls_op_matmul(ls_op_flatten(x), weight(m, NULL, LS_SHAPE(2048, 2400), 2048, 2400));
    x = ls_op_dropout(ls_op_relu(x), hidden_rate);
    return ls_op_matmul(x, weight(m, NULL, LS_SHAPE(2400, 10), 2400, 10));
}

static ls_tensor *bottleneck(ls_bench_model *m, ls_tensor *x, int64_t channels, int64_t stride, bool project)
{
    ls_tensor *shortcut = project ? norm(m, conv(m, x, 4 * channels, 1, stride, LS_VALID, false)) : x;
    ls_tensor *y = ls_op_relu(norm(m, conv(m, x, channels, 1, 1, LS_VALID, false)));
    y = ls_op_relu(norm(m, conv(m, y, channels, 3, stride, LS_EXPLICIT, false)));
    y = norm(m, conv(m, y, 4 * channels, 1, 1, LS_VALID, false));
    return ls_op_relu(ls_op_add(y, shortcut));
}

static ls_tensor *resnet50(ls_bench_model *m, ls_tensor *x)
{
    const int blocks[] = { 3, 4, 6, 3 };
    x = ls_op_relu(norm(m, conv(m, x, 64, 7, 2, LS_EXPLICIT, false)));
    x = ls_op_max_pool2d(x, { 3, 3 }, { 2, 2 }, LS_EXPLICIT, { 1, 1, 1, 1 });
    for (int s = 0; s < 4; s++)
        for (int b = 0; b < blocks[s]; b++)
            x = bottleneck(m, x, 64 << s, s > 0 && b == 0 ? 2 : 1, b == 0);
    return dense(m, ls_op_global_average_pool2d(x), 1000);
}

typedef enum rule { ADAM, RMSPROP, MOMENTUM } rule;

static ls_tensor *update(ls_bench_model *m, ls_tensor *w, ls_tensor *g, rule r, ls_tensor *rate, ls_tensor *step)
{
    ls_shape shape = ls_tensor_shape(w);
    ls_tensor *a = ls_op_variable(m->graph, NULL, LS_F32, shape, .frozen = true);
    ls_tensor *b = r == ADAM ? ls_op_variable(m->graph, NULL, LS_F32, shape, .frozen = true) : NULL;
    if (r == ADAM)
        return ls_op_apply(w, g, LS_APPLY_ADAM, .learning_rate = rate, .step = step, .slots = { a, b }, .beta_1 = 0.9,
                           .beta_2 = 0.999, .epsilon = 1e-7);
    if (r == RMSPROP)
        return ls_op_apply(w, g, LS_APPLY_RMSPROP, .learning_rate = rate, .slots = { a }, .rho = 0.9, .epsilon = 1e-7);
    return ls_op_apply(w, g, LS_APPLY_MOMENTUM, .learning_rate = rate, .slots = { a }, .momentum = 0.9);
}

/* Loss, gradients, updates. */
static ls_status train(ls_bench_model *m, ls_tensor *logits, rule r, double learning_rate)
{
    ls_tensor *gradients[256], *parts[512];
    size_t count = 0;
    ls_tensor *losses = ls_op_sparse_cross_entropy(m->labels, logits, LS_LOGITS);
    m->loss = ls_op_reduce_mean(losses, LS_ALL_AXES, false);
    ls_status status = ls_gradients(m->loss, m->variables, m->variable_count, gradients);
    if (status != LS_OK)
        return status;
    ls_tensor *rate = ls_op_scalar(m->graph, LS_F32, learning_rate);
    ls_tensor *step = ls_op_variable(m->graph, NULL, LS_F32, LS_SCALAR, .frozen = true);
    ls_tensor *next = ls_op_assign_add(step, ls_op_scalar(m->graph, LS_F32, 1));
    for (size_t i = 0; i < m->variable_count; i++)
        parts[count++] = update(m, m->variables[i], gradients[i], r, rate, next);
    for (size_t i = 0; i < m->extra_count; i++)
        parts[count++] = m->extra[i];
    parts[count++] = next;
    m->step = ls_op_group(parts, count);
    return ls_graph_status(m->graph);
}

ls_status ls_bench_model_create(ls_context *ctx, const char *name, ls_bench_model *out)
{
    bool by_lane = strcmp(name, "resnet50-by-lane") == 0;
    bool resnet = strcmp(name, "resnet50") == 0 || by_lane, wide = strcmp(name, "wide") == 0;
    state = 1;
    *out = (ls_bench_model){ .height = resnet ? 224 : 28, .width = resnet ? 224 : 28, .channels = resnet ? 3 : 1 };
    out->statistics = by_lane ? LS_PER_LANE : LS_PER_BATCH;
    ls_status status = ls_graph_create(ctx, &out->graph, .seed = 1);
    if (status != LS_OK)
        return status;
    out->images = ls_op_input(out->graph, "images", LS_U8, LS_SHAPE(LS_BATCH, out->height, out->width, out->channels));
    out->labels = ls_op_input(out->graph, "labels", LS_U8, LS_SHAPE(LS_BATCH));
    ls_tensor *x = ls_op_scale(ls_op_cast(out->images, LS_F32), 1 / 255.0);
    ls_tensor *logits = resnet ? resnet50(out, x) : wide ? wide_cnn(out, x) : mnist_cnn(out, x);
    return train(out, logits, resnet ? MOMENTUM : wide ? RMSPROP : ADAM, resnet ? 0.1 : 0.001);
}

void ls_bench_model_destroy(ls_bench_model *model)
{
    ls_graph_destroy(model->graph);
}
