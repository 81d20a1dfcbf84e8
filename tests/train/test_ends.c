/* Every kind of run ends, and with the same bits, whatever the batch size, lanes, devices and
 * cores: values fetched for each sample, for the whole batch, or both; picked rows; eager reads;
 * predict, evaluate, fit. Each kind runs in a process of its own under a time limit, and says in
 * shared memory where it is: a hang is a failure with a name. */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/sha256.h"
#include "base/status.h"
#include "check.h"
#include "lockstep.h"
#include "sanitized.h"

#define SIDE    6
#define CLASSES 4
#define MOST    1000
#define LIMIT   (SANITIZED ? 240 : 30) /* seconds, for one kind on one set of cores */

static const int batches[] = { 1, 7, 33, 128, 256, 512, MOST }, lanes_list[] = { 0, 1, 2, 3, 32, 64, 128 },
                 devices_list[] = { 1, 2, 3, 8 };
#define BATCHES (SANITIZED ? 4 : LENGTH(batches))
#define LANES   (SANITIZED ? 4 : LENGTH(lanes_list))

static uint8_t pixels[MOST * SIDE * SIDE];
static int32_t labels[MOST];
static int64_t rows[MOST];

/* Results of the child for its parent. The first process stores the hashes, the later ones
 * compare. */
typedef struct notes {
    int batch, lanes, devices;
    char text[512];
    char hash[LENGTH(batches)][LENGTH(lanes_list)][65];
} notes;

typedef struct place {
    ls_context *ctx;
    int64_t batch;
    int lanes;
} place;

typedef ls_status (*run_kind)(const place *at, ls_sha256 *hash);

static ls_status hash_value(ls_tensor *t, ls_sha256 *hash)
{
    ls_array value;
    LS_TRY(ls_value(t, &value));
    int64_t count = 1;
    for (int i = 0; i < value.shape.rank; i++)
        count *= value.shape.dims[i];
    return ls_sha256_add(hash, value.data, (size_t)count * sizeof(float));
}

/* ---- Kinds ---- */

typedef struct small_graph {
    ls_graph *graph;
    ls_tensor *x, *y, *outputs, *loss;
} small_graph;

static ls_status small_graph_make(const place *at, small_graph *out)
{
    LS_TRY(ls_graph_create(at->ctx, &out->graph));
    ls_graph *g = out->graph;
    out->x = ls_op_input(g, "x", LS_U8, LS_SHAPE(LS_BATCH, SIDE, SIDE, 1));
    out->y = ls_op_input(g, "y", LS_I32, LS_SHAPE(LS_BATCH));
    float kernel[9 * 5], dense[5 * CLASSES];
    for (size_t i = 0; i < LENGTH(kernel); i++)
        kernel[i] = (float)((i * 7) % 11) / 16 - 0.3f;
    for (size_t i = 0; i < LENGTH(dense); i++)
        dense[i] = (float)((i * 5) % 13) / 16 - 0.4f;
    ls_tensor *image = ls_op_mul(ls_op_cast(out->x, LS_F32), ls_op_scalar(g, LS_F32, 1.0 / 255));
    ls_tensor *conv = ls_op_relu(ls_op_conv2d(image, ls_op_constant(g, LS_F32, LS_SHAPE(3, 3, 1, 5), kernel)));
    ls_tensor *mean = ls_op_reduce_mean(conv, LS_AXES(1, 2), false);
    out->outputs = ls_op_matmul(mean, ls_op_constant(g, LS_F32, LS_SHAPE(5, CLASSES), dense));
    out->loss = ls_loss_value(ls_sparse_categorical_crossentropy(.from_logits = true), out->y, out->outputs, NULL);
    return ls_graph_set_lanes(g, at->lanes);
}

/* which: bit 0 the outputs of each sample, bit 1 the loss. */
static ls_status eval_kind(const place *at, int which, bool picked, ls_sha256 *hash)
{
    small_graph s = { 0 };
    ls_status status = small_graph_make(at, &s);
    int64_t n = picked ? MOST : at->batch;
    ls_feed feeds[] = { { s.x, ls_array_of(LS_U8, LS_SHAPE(n, SIDE, SIDE, 1), pixels) },
                        { s.y, ls_array_of(LS_I32, LS_SHAPE(n), labels) } };
    ls_tensor *fetches[] = { which & 1 ? s.outputs : s.loss, s.loss };
    size_t feed_count = which & 2 ? 2 : 1, count = which == 3 ? 2 : 1;
    for (int i = 0; i < 2 && status == LS_OK; i++)
        status = picked ? ls_eval_rows(s.graph, feeds, feed_count, rows, at->batch, fetches, count)
                        : ls_eval(s.graph, feeds, feed_count, fetches, count);
    for (size_t i = 0; i < count && status == LS_OK; i++)
        status = hash_value(fetches[i], hash);
    if (s.graph)
        ls_graph_destroy(s.graph);
    return status;
}

static ls_status eval_samples(const place *at, ls_sha256 *hash)
{
    return eval_kind(at, 1, false, hash);
}

static ls_status eval_whole(const place *at, ls_sha256 *hash)
{
    return eval_kind(at, 2, false, hash);
}

static ls_status eval_both(const place *at, ls_sha256 *hash)
{
    return eval_kind(at, 3, false, hash);
}

static ls_status eval_picked(const place *at, ls_sha256 *hash)
{
    return eval_kind(at, 1, true, hash);
}

static ls_status eager(const place *at, ls_sha256 *hash)
{
    ls_graph *g = NULL;
    LS_TRY(ls_graph_create(at->ctx, &g));
    ls_status status = ls_graph_set_lanes(g, at->lanes);
    ls_tensor *x = ls_op_cast(ls_op_constant(g, LS_U8, LS_SHAPE(at->batch, SIDE * SIDE), pixels), LS_F32);
    ls_tensor *y = ls_op_relu(ls_op_matmul(x, x, .transpose_b = true));
    if (status == LS_OK)
        status = hash_value(ls_op_reduce_sum(y, LS_AXES(0), false), hash);
    if (status == LS_OK)
        status = hash_value(y, hash);
    ls_graph_destroy(g);
    return status;
}

typedef struct trained {
    ls_model *model;
    ls_dataset *data;
} trained;

static ls_status trained_make(const place *at, trained *out)
{
    LS_TRY(ls_sequential(at->ctx, "cnn", &out->model, ls_input(SIDE, SIDE, 1), ls_conv2d(5, 3, .activation = LS_RELU),
                         ls_batch_normalization(), ls_flatten(), ls_dropout(0.25),
                         ls_dense(CLASSES, .activation = LS_SOFTMAX)));
    LS_TRY(ls_compile(out->model, .optimizer = ls_adam(), .loss = ls_sparse_categorical_crossentropy(),
                      .metrics = ls_metrics(ls_accuracy())));
    int64_t n = at->batch + at->batch / 2; /* a full batch and a short one */
    if (n > MOST)
        n = MOST;
    out->data = ls_from_tensor_slices(ls_array_of(LS_U8, LS_SHAPE(n, SIDE, SIDE, 1), pixels),
                                      ls_array_of(LS_I32, LS_SHAPE(n), labels), .keep = LS_KEEP_BORROWED);
    return LS_OK;
}

static void trained_end(trained *t)
{
    ls_dataset_destroy(t->data);
    ls_model_destroy(t->model);
}

static ls_status predict(const place *at, ls_sha256 *hash)
{
    trained t = { 0 };
    ls_array out = { 0 };
    ls_status status = trained_make(at, &t);
    if (status == LS_OK)
        status = ls_predict(t.model, t.data, &out, .batch_size = at->batch);
    if (status == LS_OK)
        status = ls_sha256_add(hash, out.data, (size_t)out.shape.dims[0] * CLASSES * sizeof(float));
    free(out.data);
    trained_end(&t);
    return status;
}

static ls_status evaluate(const place *at, ls_sha256 *hash)
{
    trained t = { 0 };
    ls_results results = { 0 };
    ls_status status = trained_make(at, &t);
    if (status == LS_OK)
        status = ls_evaluate(t.model, t.data, &results, .batch_size = at->batch, .lanes = at->lanes);
    if (status == LS_OK)
        status = ls_sha256_add(hash, results.values, results.count * sizeof(double));
    trained_end(&t);
    return status;
}

static ls_status fit(const place *at, ls_sha256 *hash)
{
    trained t = { 0 };
    char hex[65];
    ls_status status = trained_make(at, &t);
    if (status == LS_OK)
        status = ls_fit(t.model, t.data, .batch_size = at->batch, .lanes = at->lanes, .verbose = LS_VERBOSE_SILENT);
    if (status == LS_OK)
        status = ls_model_state_sha256(t.model, hex);
    if (status == LS_OK)
        status = ls_sha256_add(hash, hex, 64);
    trained_end(&t);
    return status;
}

/* One label is not a class: the run ends with an error. */
static ls_status wrong_label(const place *at, ls_sha256 *hash)
{
    trained t = { 0 };
    ls_status status = trained_make(at, &t);
    labels[at->batch / 2] = 99;
    if (status == LS_OK)
        status = ls_fit(t.model, t.data, .batch_size = at->batch, .lanes = at->lanes, .verbose = LS_VERBOSE_SILENT);
    labels[at->batch / 2] = 0;
    trained_end(&t);
    if (status == LS_ERR_DATA)
        return ls_sha256_add(hash, "", 0);
    return ls_fail(LS_ERR_INTERNAL, "a label of 99 gave %s", ls_status_name(status));
}

static const struct {
    const char *name;
    run_kind run;
} kinds[] = {
    { "eval of every sample's output", eval_samples },
    { "eval of the batch's loss", eval_whole },
    { "eval of both", eval_both },
    { "eval of picked rows", eval_picked },
    { "eager", eager },
    { "predict", predict },
    { "evaluate", evaluate },
    { "fit", fit },
    { "fit that fails", wrong_label },
};

/* ---- Processes ---- */

static ls_status run_hashed(run_kind run, const place *at, char hex[65])
{
    ls_sha256 *hash = NULL;
    LS_TRY(ls_sha256_begin(&hash));
    ls_status status = run(at, hash);
    ls_status ended = ls_sha256_end(hash, hex);
    return status == LS_OK ? ended : status;
}

/* In the child: all sizes, in one context for each number of devices. */
static int run_all(run_kind run, notes *n)
{
    for (size_t d = 0; d < LENGTH(devices_list); d++) {
        place at = { 0 };
        n->devices = devices_list[d];
        ls_status status =
            ls_context_open(&(ls_context_options){ .cpu_devices = n->devices, .log_level = LS_LOG_ERROR }, &at.ctx);
        for (size_t b = 0; b < BATCHES && status == LS_OK; b++)
            for (size_t l = 0; l < LANES && status == LS_OK; l++) {
                char hex[65] = "", *first = n->hash[b][l];
                at.batch = n->batch = batches[b];
                at.lanes = n->lanes = lanes_list[l];
                status = run_hashed(run, &at, hex);
                if (status == LS_OK && !*first)
                    memcpy(first, hex, 65);
                else if (status == LS_OK && strcmp(first, hex) != 0)
                    return snprintf(n->text, sizeof n->text, "other bits than on one device and one core"), 1;
            }
        if (status != LS_OK)
            return snprintf(n->text, sizeof n->text, "%s: %s", ls_status_name(status), ls_last_error()), 1;
        ls_context_close(at.ctx);
    }
    return 0;
}

/* The process keeps to `count` of its cores, or to all if it has fewer. */
static void use_cores(int count)
{
    cpu_set_t have, use;
    CPU_ZERO(&use);
    if (sched_getaffinity(0, sizeof have, &have) != 0)
        return;
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&use) < count; i++)
        if (CPU_ISSET(i, &have))
            CPU_SET(i, &use);
    sched_setaffinity(0, sizeof use, &use);
}

static void kind_ends(void **state)
{
    size_t kind = (size_t)(uintptr_t)*state;
    notes *n = mmap(NULL, sizeof *n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(n, MAP_FAILED);
    for (int cores = 1; cores <= 2; cores++) {
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            alarm(LIMIT);
            use_cores(cores);
            _exit(run_all(kinds[kind].run, n));
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFSIGNALED(status))
            snprintf(n->text, sizeof n->text, "%s (signal %d)", WTERMSIG(status) == SIGALRM ? "timed out" : "crashed",
                     WTERMSIG(status));
        if (status != 0)
            fail_msg("batch %d, %d lanes, %d devices, %d cores: %s", n->batch, n->lanes, n->devices, cores, n->text);
    }
    munmap(n, sizeof *n);
}

int main(void)
{
    for (int i = 0; i < MOST * SIDE * SIDE; i++)
        pixels[i] = (uint8_t)((uint32_t)i * 2654435761u >> 24);
    for (int i = 0; i < MOST; i++) {
        labels[i] = i * 7 % CLASSES;
        rows[i] = (int64_t)i * 7 % MOST;
    }
    struct CMUnitTest tests[LENGTH(kinds)];
    for (size_t i = 0; i < LENGTH(kinds); i++)
        tests[i] = (struct CMUnitTest){ kinds[i].name, kind_ends, NULL, NULL, (void *)(uintptr_t)i };
    return cmocka_run_group_tests_name("runs end", tests, NULL, NULL);
}
