/* The bit class: everything that determines the bits of a run except the graph, its data and the
 * lanes. A canary, a small training step, is run and hashed to prove it. The self-check
 * (self_check.h) covers what the canary cannot detect. */
#include <stdlib.h>
#include <string.h>

#include "backend/kinds.h"
#include "base/fpmode.h"
#include "base/philox.h"
#include "base/sha256.h"
#include "base/text.h"
#include "lockstep/run.h"
#include "run/runtime.h"
#include "run/self_check.h"

/* Version of docs/bits.md; increases with every change of bits. */
#define DEFINITION 5

#define SAMPLES 5
#define SIZE    10
#define CLASSES 4

#define VARIABLES 6

static void fill(float *to, size_t count, uint32_t stream)
{
    ls_philox_key key = ls_random_key(0, LS_RANDOM_TEST, stream, 0);
    for (size_t i = 0; i < count; i++)
        to[i] = ls_random_unit_f32(ls_random_block(key, 0, 0, (uint32_t)(i / 4)).word[i % 4]) - 0.5f;
}

/* The first convolution has few channels, the second a vector of them. */
static ls_tensor *build(ls_graph *graph, ls_tensor **x, ls_tensor **labels, ls_tensor *variables[VARIABLES])
{
    float values[3 * 3 * 16 * 16];
    const ls_shape shapes[VARIABLES] = { LS_SHAPE(3, 3, 3, 16), LS_SHAPE(16),    LS_SHAPE(3, 3, 16, 16),
                                         LS_SHAPE(16),          LS_SHAPE(64, 4), LS_SHAPE(4) };
    ls_tensor *gradients[VARIABLES] = { NULL }, *updates[VARIABLES + 1];
    for (uint32_t i = 0; i < VARIABLES; i++) {
        fill(values, sizeof(values) / sizeof(*values), i);
        variables[i] = ls_op_variable(graph, NULL, LS_F32, shapes[i], .data = values);
    }
    *x = ls_op_input(graph, "x", LS_F32, LS_SHAPE(LS_BATCH, SIZE, SIZE, 3));
    *labels = ls_op_input(graph, "labels", LS_I32, LS_SHAPE(LS_BATCH));
    ls_tensor *y = ls_op_relu(ls_op_add(ls_op_conv2d(*x, variables[0]), variables[1]));
    y = ls_op_max_pool2d(y, { 2, 2 });
    y = ls_op_flatten(ls_op_relu(ls_op_add(ls_op_conv2d(y, variables[2]), variables[3])));
    y = ls_op_add(ls_op_matmul(y, variables[4]), variables[5]);
    ls_tensor *loss = ls_op_reduce_mean(ls_op_sparse_cross_entropy(*labels, y, LS_LOGITS), LS_ALL_AXES, false);
    if (ls_gradients(loss, variables, VARIABLES, gradients) != LS_OK)
        return NULL;
    ls_tensor *rate = ls_op_scalar(graph, LS_F32, 0.1);
    for (int i = 0; i < VARIABLES; i++) {
        ls_tensor *slot = ls_op_variable(graph, NULL, LS_F32, shapes[i], .frozen = true);
        updates[i] = ls_op_apply(variables[i], gradients[i], LS_APPLY_MOMENTUM, .learning_rate = rate,
                                 .slots = { slot }, .momentum = 0.9);
    }
    updates[VARIABLES] = loss;
    return ls_op_group(updates, VARIABLES + 1);
}

static ls_status hash_variables(ls_tensor *const *variables, char hex[65])
{
    ls_sha256 *hash = NULL;
    LS_TRY(ls_sha256_begin(&hash));
    ls_status status = LS_OK;
    for (int i = 0; i < VARIABLES && status == LS_OK; i++) {
        ls_array value;
        int64_t count = 0;
        status = ls_value(variables[i], &value);
        if (status == LS_OK && ls_shape_count(&value.shape, 0, &count))
            status = ls_sha256_add(hash, value.data, (size_t)count * sizeof(float));
    }
    if (status == LS_OK)
        return ls_sha256_end(hash, hex);
    ls_sha256_destroy(hash);
    return status;
}

static ls_status train_canary(ls_graph *graph, char hex[65])
{
    float pixels[SAMPLES * SIZE * SIZE * 3];
    const int32_t classes[SAMPLES] = { 0, 1, 2, 3, 0 };
    ls_tensor *x, *labels, *variables[VARIABLES], *step = build(graph, &x, &labels, variables);
    fill(pixels, sizeof(pixels) / sizeof(*pixels), 9);
    LS_TRY(ls_graph_status(graph));
    LS_TRY(ls_graph_set_lanes(graph, 3));
    const ls_feed feeds[] = { { x, ls_array_of(LS_F32, LS_SHAPE(SAMPLES, SIZE, SIZE, 3), pixels) },
                              { labels, ls_array_of(LS_I32, LS_SHAPE(SAMPLES), classes) } };
    for (int i = 0; i < 2; i++)
        LS_TRY(ls_eval(graph, feeds, 2, &step, 1));
    return hash_variables(variables, hex);
}

/* Ops without a kernel on the device run on the CPU, as in any run. */
static ls_status run_canary(ls_context *ctx, int device, char hex[65])
{
    ls_graph *graph = NULL;
    LS_TRY(ls_graph_create(ctx, &graph));
    graph->device = device;
    graph->alone = true;
    ls_status status = train_canary(graph, hex);
    ls_graph_destroy(graph);
    return status;
}

/* The first device of each other kind; one with the CPU's bits is not named. */
static ls_status put_canaries(ls_context *ctx, ls_text *text)
{
    char hex[65], other[65];
    LS_TRY(run_canary(ctx, 0, hex));
    ls_text_add(text, "definition %d; canary %.16s", DEFINITION, hex);
    if (ls_context_vendor_kind(ctx)) {
        ls_text_put(text, "; kernels of the ");
        ls_context_describe_vendor(ctx, text);
    }
    for (int d = 1; d < ctx->device_count; d++) {
        if (ctx->devices[d].kind == ctx->devices[d - 1].kind)
            continue;
        LS_TRY(run_canary(ctx, d, other));
        if (strcmp(other, hex) != 0)
            ls_text_add(text, "; %s canary %.16s", ctx->kinds[ctx->devices[d].kind].name, other);
    }
    return LS_OK;
}

/* Stays valid: a context with a runtime does not change devices or kernels. */
static ls_status find_class(ls_context *ctx)
{
    ls_text text = { 0 };
    char *found = NULL;
    ls_status status = put_canaries(ctx, &text);
    if (status == LS_OK)
        status = ls_self_check(ctx, &text);
    if (status != LS_OK) {
        ls_text_free(&text);
        return status;
    }
    LS_TRY(ls_text_take(&text, &found));
    pthread_mutex_lock(&ctx->mutex);
    if (!ctx->bit_class) { /* Another thread may have been faster. */
        ctx->bit_class = found;
        found = NULL;
    }
    pthread_mutex_unlock(&ctx->mutex);
    free(found);
    return LS_OK;
}

static bool is_known(ls_context *ctx)
{
    pthread_mutex_lock(&ctx->mutex);
    bool known = ctx->bit_class != NULL;
    pthread_mutex_unlock(&ctx->mutex);
    return known;
}

/* In a cluster, called before the workers meet: later, a run would involve all of them. */
ls_status ls_bit_class(ls_context *ctx, char **out)
{
    LS_OWN_FP_MODE;
    ls_runtime *runtime = NULL;
    if (!ctx || !out)
        return ls_fail(LS_ERR_INVALID, "ls_bit_class: the context or the output pointer is NULL");
    LS_TRY(ls_context_check(ctx, "ls_bit_class"));
    LS_TRY(ls_runtime_of(ctx, &runtime));
    if (!is_known(ctx))
        LS_TRY(find_class(ctx));
    ls_text copy = { 0 };
    ls_text_put(&copy, ctx->bit_class);
    return ls_text_take(&copy, out);
}
