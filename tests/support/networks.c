/* Small networks that tests train: see networks.h. */
#include "networks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "base/sha256.h"
#include "base/text.h"

const char *network_name(network_kind kind)
{
    static const char *const names[] = { "cnn", "mlp", "residual" };
    return names[kind];
}

/* ---- Layers ---- */

/* Glorot uniform. */
static ls_tensor *weight(network *n, ls_shape shape, int64_t in, int64_t out)
{
    ls_philox_key key = ls_random_key(7, LS_RANDOM_INIT, (uint32_t)n->trained_count, 0);
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        count *= shape.dims[i];
    float *data = calloc((size_t)count, sizeof(*data)), limit = sqrtf(6.0f / (float)(in + out));
    for (int64_t i = 0; data && i < count; i++)
        data[i] = (2 * ls_random_unit_f32(ls_random_block(key, 0, 0, (uint32_t)i).word[0]) - 1) * limit;
    ls_tensor *variable = ls_op_variable(n->graph, NULL, LS_F32, shape, .data = data);
    free(data);
    n->trained[n->trained_count++] = variable;
    return variable;
}

static ls_tensor *vector(network *n, int64_t count, float value, bool trained)
{
    float *data = calloc((size_t)count, sizeof(*data));
    for (int64_t i = 0; data && i < count; i++)
        data[i] = value;
    ls_tensor *variable = ls_op_variable(n->graph, NULL, LS_F32, LS_SHAPE(count), .data = data, .frozen = !trained);
    free(data);
    if (trained)
        n->trained[n->trained_count++] = variable;
    return variable;
}

/* The next nodes belong to the next layer's device. */
static void next_layer(network *n)
{
    const char *device = n->places ? n->places->device(n->places->user, n->layers) : NULL;
    n->layers++;
    ls_device_scope_close(&n->scope);
    if (device)
        n->scope = ls_device_scope_open(n->graph, device);
}

static ls_tensor *conv(network *n, ls_tensor *x, int64_t out, int64_t size, int64_t stride, ls_padding padding)
{
    int64_t in = ls_tensor_shape(x).dims[3];
    next_layer(n);
    ls_tensor *kernel = weight(n, LS_SHAPE(size, size, in, out), size * size * in, size * size * out);
    return ls_op_conv2d(x, kernel, .stride = { stride, stride }, .padding = padding);
}

static ls_tensor *dense(network *n, ls_tensor *x, int64_t out)
{
    int64_t in = ls_tensor_shape(x).dims[1];
    next_layer(n);
    ls_tensor *w = weight(n, LS_SHAPE(in, out), in, out);
    return ls_op_add(ls_op_matmul(x, w), vector(n, out, 0, true));
}

static ls_tensor *norm(network *n, ls_tensor *x)
{
    int64_t channels = ls_tensor_shape(x).dims[3];
    ls_tensor *updates[2] = { NULL, NULL };
    ls_tensor *gamma = vector(n, channels, 1, true), *beta = vector(n, channels, 0, true);
    ls_tensor *mean = vector(n, channels, 0, false), *variance = vector(n, channels, 1, false);
    ls_tensor *y = ls_op_batch_norm(x, gamma, beta, mean, variance, .training = true, .updates = updates);
    n->extra[n->extra_count++] = updates[0];
    n->extra[n->extra_count++] = updates[1];
    return y;
}

/* ---- Networks ---- */

static ls_tensor *cnn(network *n, ls_tensor *x)
{
    x = ls_op_relu(ls_op_add(conv(n, x, 16, 3, 1, LS_VALID), vector(n, 16, 0, true)));
    x = ls_op_max_pool2d(x, { 2, 2 });
    x = ls_op_relu(ls_op_add(conv(n, x, 32, 3, 1, LS_VALID), vector(n, 32, 0, true)));
    x = ls_op_max_pool2d(x, { 2, 2 });
    return dense(n, ls_op_flatten(x), NETWORK_CLASSES);
}

#define HIDDEN 370 /* the middle weight is heavy: levels of several segments, joins and updates of several chunks */

static ls_tensor *mlp(network *n, ls_tensor *x)
{
    n->rate = ls_op_input(n->graph, "rate", LS_F32, LS_SCALAR);
    x = ls_op_dropout(ls_op_relu(dense(n, ls_op_flatten(x), HIDDEN)), n->rate);
    x = ls_op_dropout(ls_op_relu(dense(n, x, HIDDEN)), n->rate);
    return dense(n, x, NETWORK_CLASSES);
}

static ls_tensor *block(network *n, ls_tensor *x, int64_t channels, int64_t stride, bool project)
{
    ls_tensor *shortcut = project ? norm(n, conv(n, x, channels, 1, stride, LS_VALID)) : x;
    ls_tensor *y = ls_op_relu(norm(n, conv(n, x, channels, 3, stride, LS_SAME)));
    y = norm(n, conv(n, y, channels, 3, 1, LS_SAME));
    return ls_op_relu(ls_op_add(y, shortcut));
}

static ls_tensor *residual(network *n, ls_tensor *x)
{
    x = ls_op_relu(norm(n, conv(n, x, 16, 3, 1, LS_SAME)));
    x = ls_op_max_pool2d(x, { 3, 3 }, { 2, 2 }, LS_EXPLICIT, { 1, 1, 1, 1 });
    x = block(n, x, 16, 1, false);
    x = block(n, x, 32, 2, true);
    return dense(n, ls_op_global_average_pool2d(x), NETWORK_CLASSES);
}

static ls_tensor *slot(network *n, ls_tensor *w)
{
    return ls_op_variable(n->graph, NULL, LS_F32, ls_tensor_shape(w), .frozen = true);
}

static ls_tensor *update(network *n, size_t i, ls_tensor *rate, ls_tensor *step)
{
    ls_tensor *w = n->trained[i], *g = n->gradients[i], *a = slot(n, w);
    if (n->kind == NETWORK_CNN)
        return ls_op_apply(w, g, LS_APPLY_ADAM, .learning_rate = rate, .step = step, .slots = { a, slot(n, w) },
                           .beta_1 = 0.9, .beta_2 = 0.999, .epsilon = 1e-7);
    return ls_op_apply(w, g, LS_APPLY_MOMENTUM, .learning_rate = rate, .slots = { a }, .momentum = 0.9);
}

/* Loss, gradients, updates. */
static ls_status finish(network *n)
{
    ls_tensor *parts[2 * NETWORK_VARIABLES + 1];
    size_t count = 0;
    n->loss = ls_op_reduce_mean(ls_op_sparse_cross_entropy(n->labels, n->logits, LS_LOGITS), LS_ALL_AXES, false);
    LS_TRY(ls_gradients(n->loss, n->trained, n->trained_count, n->gradients));
    ls_tensor *rate = ls_op_scalar(n->graph, LS_F32, n->kind == NETWORK_CNN ? 0.001 : 0.02);
    ls_tensor *taken = ls_op_variable(n->graph, "taken", LS_F32, LS_SCALAR, .frozen = true);
    ls_tensor *next = ls_op_assign_add(taken, ls_op_scalar(n->graph, LS_F32, 1));
    for (size_t i = 0; i < n->trained_count; i++)
        parts[count++] = update(n, i, rate, next);
    for (size_t i = 0; i < n->extra_count; i++)
        parts[count++] = n->extra[i];
    parts[count++] = next;
    n->step = ls_op_group(parts, count);
    return ls_graph_status(n->graph);
}

ls_status network_create(ls_context *ctx, network_kind kind, network *out)
{
    return network_create_sized(ctx, kind, kind == NETWORK_MLP ? 8 : 12, out);
}

static ls_status create(ls_context *ctx, network_kind kind, int64_t size, const network_places *places, network *out)
{
    *out = (network){ .kind = kind, .size = size, .places = places };
    out->channels = kind == NETWORK_RESIDUAL ? 3 : 1;
    LS_TRY(ls_graph_create(ctx, &out->graph, .seed = 11));
    out->images = ls_op_input(out->graph, "images", LS_U8, LS_SHAPE(LS_BATCH, out->size, out->size, out->channels));
    out->labels = ls_op_input(out->graph, "labels", LS_U8, LS_SHAPE(LS_BATCH));
    ls_tensor *x = ls_op_scale(ls_op_cast(out->images, LS_F32), 1 / 255.0);
    out->logits = kind == NETWORK_CNN ? cnn(out, x) : kind == NETWORK_MLP ? mlp(out, x) : residual(out, x);
    ls_device_scope_close(&out->scope);
    out->places = NULL;
    ls_status status = finish(out);
    if (status != LS_OK)
        network_destroy(out);
    return status;
}

ls_status network_create_sized(ls_context *ctx, network_kind kind, int64_t size, network *out)
{
    return create(ctx, kind, size, NULL, out);
}

ls_status network_create_placed(ls_context *ctx, network_kind kind, const network_places *places, network *out)
{
    return create(ctx, kind, kind == NETWORK_MLP ? 8 : 12, places, out);
}

void network_destroy(network *n)
{
    ls_graph_destroy(n->graph);
    n->graph = NULL;
}

ls_status network_set(network *n, const ls_run_settings *settings)
{
    ls_runs *runs = NULL;
    LS_TRY(ls_runs_of(n->graph, &runs));
    ls_runs_clear(runs);
    runs->settings = *settings;
    return LS_OK;
}

/* ---- Data ---- */

/* A class is a bright spot somewhere, under noise. */
static void make_sample(const network *n, uint32_t sample, uint64_t step, uint8_t *image, uint8_t *label)
{
    ls_philox_key key = ls_random_key(5, LS_RANDOM_TEST, 0, 0);
    int64_t pixels = n->size * n->size * n->channels;
    *label = (uint8_t)(ls_random_block(key, step, sample, 0).word[0] % NETWORK_CLASSES);
    for (int64_t i = 0; i < pixels; i++)
        image[i] = (uint8_t)(ls_random_block(key, step, sample, (uint32_t)i + 1).word[0] >> 25);
    for (int64_t i = *label * pixels / NETWORK_CLASSES; i < (*label + 1) * pixels / NETWORK_CLASSES; i++)
        image[i] = (uint8_t)(image[i] + 128);
}

ls_status network_batch_make(const network *n, int64_t batch, uint64_t step, network_batch *out)
{
    int64_t pixels = n->size * n->size * n->channels;
    *out = (network_batch){ .rate = 0.3f };
    out->images = calloc((size_t)(batch * pixels) + 1, 1);
    out->labels = calloc((size_t)batch + 1, 1);
    if (!out->images || !out->labels) {
        network_batch_free(out);
        return ls_fail(LS_ERR_MEMORY, "no memory for %lld samples", (long long)batch);
    }
    for (int64_t i = 0; i < batch; i++)
        make_sample(n, (uint32_t)i, step, out->images + i * pixels, out->labels + i);
    ls_shape shape = LS_SHAPE(batch, n->size, n->size, n->channels);
    out->feeds[out->feed_count++] = (ls_feed){ n->images, ls_array_of(LS_U8, shape, out->images) };
    out->feeds[out->feed_count++] = (ls_feed){ n->labels, ls_array_of(LS_U8, LS_SHAPE(batch), out->labels) };
    if (n->rate)
        out->feeds[out->feed_count++] = (ls_feed){ n->rate, ls_array_of(LS_F32, LS_SCALAR, &out->rate) };
    return LS_OK;
}

void network_batch_free(network_batch *batch)
{
    free(batch->images);
    free(batch->labels);
    batch->images = batch->labels = NULL;
}

/* ---- Running ---- */

/* The set is the batch backwards. */
static ls_status step_on_rows(network *n, int64_t batch, network_batch *data, ls_tensor *const *fetches)
{
    size_t pixels = (size_t)(n->size * n->size * n->channels), count = (size_t)batch;
    uint8_t *images = calloc(count * pixels + 1, 1), *labels = calloc(count + 1, 1);
    int64_t *rows = calloc(count + 1, sizeof(*rows));
    ls_status status = images && labels && rows ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for %zu rows", count);
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        memcpy(images + i * pixels, data->images + (count - 1 - i) * pixels, pixels);
        labels[i] = data->labels[count - 1 - i];
        rows[i] = batch - 1 - (int64_t)i;
    }
    data->feeds[0].value.data = images;
    data->feeds[1].value.data = labels;
    if (status == LS_OK)
        status = ls_eval_rows(n->graph, data->feeds, data->feed_count, rows, batch, fetches, 2);
    free(images);
    free(labels);
    free(rows);
    return status;
}

ls_status network_step(network *n, int64_t batch, uint64_t step)
{
    network_batch data;
    ls_tensor *const fetches[] = { n->loss, n->step };
    LS_TRY(network_batch_make(n, batch, step, &data));
    ls_status status =
        n->picked ? step_on_rows(n, batch, &data, fetches) : ls_eval(n->graph, data.feeds, data.feed_count, fetches, 2);
    network_batch_free(&data);
    return status;
}

static ls_status add_variables(const network *n, ls_sha256 *hash)
{
    for (size_t i = 0; i < n->graph->variable_count; i++) {
        LS_TRY(ls_variable_sync_to_host(n->graph->variables[i]));
        LS_TRY(ls_sha256_add(hash, n->graph->variables[i]->data, n->graph->variables[i]->bytes));
    }
    return LS_OK;
}

static ls_status train_and_hash(network *n, int64_t batch, int steps, ls_sha256 *hash)
{
    for (int i = 0; i < steps; i++) {
        float loss = 0;
        LS_TRY(network_step(n, batch, (uint64_t)i));
        LS_TRY(ls_read(n->loss, &loss, sizeof(loss)));
        if (!isfinite(loss))
            return ls_fail(LS_ERR_INTERNAL, "the loss of %s is %g in step %d", network_name(n->kind), (double)loss, i);
        LS_TRY(ls_sha256_add(hash, &loss, sizeof(loss)));
    }
    return add_variables(n, hash);
}

ls_status network_train(network *n, int64_t batch, int steps, char hex[65])
{
    ls_sha256 *hash = NULL;
    LS_TRY(ls_sha256_begin(&hash));
    ls_status status = train_and_hash(n, batch, steps, hash);
    if (status == LS_OK)
        return ls_sha256_end(hash, hex);
    ls_sha256_destroy(hash);
    return status;
}

ls_status network_state(const network *n, char hex[65])
{
    ls_sha256 *hash = NULL;
    LS_TRY(ls_sha256_begin(&hash));
    ls_status status = add_variables(n, hash);
    if (status == LS_OK)
        status = ls_sha256_add(hash, &n->graph->step, sizeof(n->graph->step));
    if (status == LS_OK)
        return ls_sha256_end(hash, hex);
    ls_sha256_destroy(hash);
    return status;
}

ls_status network_executor(network *n, int64_t batch, ls_executor **out)
{
    return ls_runs_get(n->graph, NULL, (ls_tensor *[]){ n->loss, n->step }, 2, batch, out);
}

ls_status network_list(network *n, int64_t batch, char **out)
{
    ls_executor *executor = NULL;
    ls_text text = { 0 };
    LS_TRY(network_executor(n, batch, &executor));
    ls_status status = ls_plan_print(ls_executor_plan(executor), &text);
    if (status == LS_OK)
        return ls_text_take(&text, out);
    ls_text_free(&text);
    return status;
}
