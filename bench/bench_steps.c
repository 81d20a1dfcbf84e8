/* Time of a training step on synthetic data, beside peers_steps.py (steps.sh runs both in turns):
 *     bench_steps ROW [STEPS [MODEL.json]]
 * Rows: lstm (64 steps of LSTM(128), batch 64), mobilenetv2 and efficientnetb0 (96x96, batch 32;
 * the model as Keras's JSON), gpt-small (6 blocks of 384, context 256, batch 16). Prints the best
 * step and the median in milliseconds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "lockstep.h"

typedef struct gpt {
    int64_t blocks, width, heads, context, vocabulary;
} gpt;
static gpt small = { .blocks = 6, .width = 384, .heads = 6, .context = 256, .vocabulary = 256 };

/* ---- Models ---- */

typedef struct label {
    char text[32];
} label;

static label name_of(int64_t block, const char *what)
{
    label l;
    snprintf(l.text, sizeof(l.text), "h%d_%s", (int)block, what);
    return l;
}

static ls_tensor *dense(ls_call *c, ls_tensor *x, int64_t block, const char *what, int64_t units,
                        ls_activation activation)
{
    return ls_layer_call(c, ls_dense(units, .name = name_of(block, what).text, .activation = activation), x);
}

static ls_tensor *norm(ls_call *c, ls_tensor *x, int64_t block, const char *what)
{
    return ls_layer_call(c, ls_layer_normalization(.name = name_of(block, what).text, .epsilon = 1e-5), x);
}

static ls_tensor *attend(ls_call *c, const gpt *g, ls_tensor *x, int64_t block)
{
    ls_tensor *part[3];
    ls_op_split(dense(c, x, block, "qkv", 3 * g->width, LS_LINEAR), 2, LS_AXES(g->width, g->width, g->width), part);
    x = ls_op_attention(part[0], part[1], part[2], .heads = g->heads, .causal = true);
    return dense(c, x, block, "projection", g->width, LS_LINEAR);
}

/* tokens [N,T] to logits [N,T,V] */
static void call_gpt(ls_call *c, ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    const gpt *g = user;
    ls_initializer normal = { .kind = LS_INIT_NORMAL, .b = 0.02 };
    ls_tensor *tokens = ls_call_variable(c, "tokens", LS_SHAPE(g->vocabulary, g->width), .initializer = normal);
    ls_tensor *places = ls_call_variable(c, "positions", LS_SHAPE(g->context, g->width), .initializer = normal);
    ls_tensor *x = ls_op_add(ls_op_gather(tokens, inputs[0], 0), places);
    for (int64_t i = 0; i < g->blocks; i++) {
        x = ls_op_add(x, attend(c, g, norm(c, x, i, "norm_1"), i));
        ls_tensor *wide = dense(c, norm(c, x, i, "norm_2"), i, "wide", 4 * g->width, LS_GELU);
        x = ls_op_add(x, dense(c, wide, i, "narrow", g->width, LS_LINEAR));
    }
    outputs[0] = ls_op_matmul(norm(c, x, g->blocks, "norm"), tokens, .transpose_b = true);
}

/* A row's model and the shape of its samples. */
static ls_status make(ls_context *ctx, const char *row, const char *json, ls_model **out)
{
    if (strcmp(row, "lstm") == 0)
        return ls_sequential(ctx, "lstm", out, ls_input(64, 128), ls_lstm(128), ls_dense(10));
    if (strcmp(row, "gpt-small") == 0)
        return ls_custom(ctx, "gpt", (ls_layer[]){ ls_input(small.context, .dtype = LS_I32, .name = "input") }, 1, 1,
                         call_gpt, &small, out);
    return ls_model_from_keras_json(ctx, json, out);
}

/* ---- Measuring ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: bench_steps lstm|mobilenetv2|efficientnetb0|gpt-small [STEPS [MODEL.json]]\n");
        return 2;
    }
    const char *row = argv[1], *json = argc > 3 ? argv[3] : "";
    int steps = argc > 2 ? atoi(argv[2]) : 10;
    bool lstm = strcmp(row, "lstm") == 0, text = strcmp(row, "gpt-small") == 0;
    int64_t batch = lstm ? 64 : text ? 16 : 32, classes = lstm ? 10 : text ? 256 : 1000;
    int64_t each = lstm ? 64 * 128 : text ? small.context : 96 * 96 * 3, labels = text ? small.context : 1;
    float *x = calloc((size_t)(batch * each), sizeof(*x));
    int32_t *tokens = (int32_t *)x, *y = calloc((size_t)(batch * labels), sizeof(*y));
    double *seconds = calloc((size_t)steps, sizeof(*seconds));
    ls_context *ctx;
    ls_model *model;
    if (!x || !y || !seconds || steps < 1)
        return 1;
    for (int64_t i = 0; i < batch * each; i++) {
        if (text)
            tokens[i] = (int32_t)(i * 7919 % classes);
        else
            x[i] = (float)(i * 7919 % 1000) / 1000;
    }
    for (int64_t i = 0; i < batch * labels; i++)
        y[i] = (int32_t)(i * 31 % classes);
    LS_CHECK(ls_context_open(NULL, &ctx));
    LS_CHECK(make(ctx, row, json, &model));
    LS_CHECK(ls_compile(
        model, .optimizer = text ? ls_adamw(.learning_rate = 1e-4) : ls_sgd(.learning_rate = 0.001, .momentum = 0.9),
        .loss = ls_sparse_categorical_crossentropy(.from_logits = lstm || text)));
    ls_array in = text   ? ls_array_of(LS_I32, LS_SHAPE(batch, each), tokens)
                  : lstm ? ls_array_of(LS_F32, LS_SHAPE(batch, 64, 128), x)
                         : ls_array_of(LS_F32, LS_SHAPE(batch, 96, 96, 3), x);
    ls_array out = text ? ls_array_of(LS_I32, LS_SHAPE(batch, labels), y) : ls_array_of(LS_I32, LS_SHAPE(batch), y);
    for (int i = -2; i < steps; i++) { /* two to warm up */
        double start = ls_clock_now();
        LS_CHECK(ls_train_on_batch(model, in, out));
        if (i >= 0)
            seconds[i] = ls_clock_now() - start;
    }
    qsort(seconds, (size_t)steps, sizeof(*seconds), by_size);
    printf("lockstep %s: best %.1f ms, median %.1f ms\n", row, 1e3 * seconds[0], 1e3 * seconds[steps / 2]);
    ls_model_destroy(model);
    ls_context_close(ctx);
    free(seconds);
    free(x);
    free(y);
    return 0;
}
