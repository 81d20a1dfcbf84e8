/* Ops of C functions (ls_op_custom): values, gradients, one result on any devices, under any
 * strategy and on any number of workers; what their functions see; failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "folder.h"
#include "lockstep.h"
#include "lockstep/backend.h"
#include "machine.h"

/* ---- bend: y[j] = (a[j] x[2j] + x[2j+1]^2) (1 + k), of x [2n], a whole a [n], an integer ---- */

static double get(const void *data, ls_dtype dtype, int64_t i)
{
    return dtype == LS_F32   ? ((const float *)data)[i]
           : dtype == LS_F64 ? ((const double *)data)[i]
                             : ((const int32_t *)data)[i];
}

static void put(void *data, ls_dtype dtype, int64_t i, double value)
{
    if (dtype == LS_F32)
        ((float *)data)[i] = (float)value;
    else
        ((double *)data)[i] = value;
}

static ls_status bend_shape(const ls_custom_sample *s, ls_dtype *dtype, ls_shape *shape, void *user)
{
    (void)dtype, (void)user;
    if (s->inputs || s->input_count != 3 || s->shapes[0].rank != 1 || s->shapes[0].dims[0] % 2 != 0) {
        snprintf(s->message, LS_CUSTOM_MESSAGE_BYTES, "bend takes pairs of numbers, not %lld",
                 (long long)s->shapes[0].dims[0]);
        return LS_ERR_SHAPE;
    }
    shape->dims[0] /= 2;
    return LS_OK;
}

static ls_status bend(const ls_custom_sample *s, void *out, void *user)
{
    (void)user;
    const void *x = s->inputs[0], *a = s->inputs[1];
    double factor = 1 + get(s->inputs[2], s->dtypes[2], 0);
    if (s->output.rank != 1 || 2 * s->output.dims[0] != s->shapes[0].dims[0] || s->dtypes[2] != LS_I32)
        return LS_ERR_INTERNAL;
    for (int64_t j = 0; j < s->output.dims[0]; j++) {
        double even = get(x, s->dtypes[0], 2 * j), odd = get(x, s->dtypes[0], 2 * j + 1);
        put(out, s->dtypes[0], j, (get(a, s->dtypes[1], j) * even + odd * odd) * factor);
    }
    return LS_OK;
}

static ls_status bend_gradient(const ls_custom_sample *s, const void *dy, int input, void *dx, void *user)
{
    (void)user;
    const void *x = s->inputs[0], *a = s->inputs[1];
    double factor = 1 + get(s->inputs[2], s->dtypes[2], 0);
    for (int64_t j = 0; j < s->output.dims[0]; j++) {
        double d = get(dy, s->dtypes[0], j) * factor;
        if (input == 1) {
            put(dx, s->dtypes[1], j, d * get(x, s->dtypes[0], 2 * j));
            continue;
        }
        put(dx, s->dtypes[0], 2 * j, d * get(a, s->dtypes[1], j));
        put(dx, s->dtypes[0], 2 * j + 1, d * 2 * get(x, s->dtypes[0], 2 * j + 1));
    }
    return LS_OK;
}

static ls_tensor *bent(ls_tensor *x, ls_tensor *a, ls_tensor *k)
{
    return ls_op_custom("bend", .inputs = { x, a, k }, .forward = bend, .gradient = bend_gradient, .shape = bend_shape);
}

/* ---- Values and gradients ---- */

#define BATCH 5
#define PAIRS 3

typedef struct point {
    double x[BATCH * 2 * PAIRS], a[PAIRS];
    int32_t k[BATCH];
} point;

static point start(void)
{
    point p;
    for (int i = 0; i < BATCH * 2 * PAIRS; i++)
        p.x[i] = (double)(i * 37 % 23) / 11 - 1;
    for (int i = 0; i < PAIRS; i++)
        p.a[i] = 0.5 - i;
    for (int i = 0; i < BATCH; i++)
        p.k[i] = i % 3;
    return p;
}

/* The sum of (y + 0.3)^2, and its gradients of x and a unless they are NULL. whole: no input has a
 * batch axis, and only the first sample counts. */
static double loss_at(ls_context *ctx, const point *p, bool whole, double *dx, double *da)
{
    ls_graph *g = NULL;
    double value;
    OK(ls_graph_create(ctx, &g));
    ls_shape of_x = whole ? LS_SHAPE(2 * PAIRS) : LS_SHAPE(LS_BATCH, 2 * PAIRS);
    ls_shape of_k = whole ? LS_SCALAR : LS_SHAPE(LS_BATCH);
    ls_tensor *x = ls_op_input(g, "x", LS_F64, of_x), *k = ls_op_input(g, "k", LS_I32, of_k);
    ls_tensor *a = ls_op_variable(g, "a", LS_F64, LS_SHAPE(PAIRS), .data = p->a);
    ls_tensor *y = bent(x, a, k), *wanted[2] = { x, a }, *fetches[3];
    assert_int_equal(ls_tensor_shape(y).dims[whole ? 0 : 1], PAIRS);
    assert_string_equal(ls_tensor_op(y), "bend");
    fetches[0] = ls_op_reduce_sum(ls_op_square(ls_op_shift(y, 0.3)), LS_ALL_AXES, false);
    OK(ls_gradients(fetches[0], wanted, 2, fetches + 1));
    if (!whole)
        of_x.dims[0] = of_k.dims[0] = BATCH;
    ls_feed feeds[] = { { x, ls_array_of(LS_F64, of_x, p->x) }, { k, ls_array_of(LS_I32, of_k, p->k) } };
    OK(ls_eval(g, feeds, 2, fetches, dx ? 3 : 1));
    OK(ls_read_scalar(fetches[0], &value));
    if (dx) {
        OK(ls_read(fetches[1], dx, (whole ? 1 : BATCH) * 2 * PAIRS * sizeof(double)));
        OK(ls_read(fetches[2], da, PAIRS * sizeof(double)));
    }
    ls_graph_destroy(g);
    return value;
}

static void compare(const char *what, double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-6 * fmax(1, fabs(expected))))
        fail_msg("%s: %.12g, but it should be %.12g", what, found, expected);
}

static void gradients_are_those_of_differences(void **state)
{
    (void)state;
    ls_context *ctx = NULL;
    double dx[BATCH * 2 * PAIRS], da[PAIRS], h = 1e-5;
    OK(ls_context_open(&(ls_context_options){ .cpu_devices = 2 }, &ctx));
    for (int whole = 0; whole < 2; whole++) {
        point p = start();
        double expected = 0;
        for (int s = 0; s < (whole ? 1 : BATCH); s++)
            for (int j = 0; j < PAIRS; j++) {
                const double *x = p.x + s * 2 * PAIRS + 2 * j;
                double y = (p.a[j] * x[0] + x[1] * x[1]) * (1 + p.k[s]);
                expected += (y + 0.3) * (y + 0.3);
            }
        compare("the loss", loss_at(ctx, &p, whole, dx, da), expected);
        for (int i = 0; i < (whole ? 1 : BATCH) * 2 * PAIRS + PAIRS; i++) {
            double *at = i < PAIRS ? &p.a[i] : &p.x[i - PAIRS], before = *at;
            *at = before + h;
            double above = loss_at(ctx, &p, whole, NULL, NULL);
            *at = before - h;
            double below = loss_at(ctx, &p, whole, NULL, NULL);
            *at = before;
            compare(i < PAIRS ? "the gradient of a" : "the gradient of x", i < PAIRS ? da[i] : dx[i - PAIRS],
                    (above - below) / (2 * h));
        }
    }
    ls_context_close(ctx);
}

/* ---- Training: a registered layer, and a loss, of custom ops or of the library's ---- */

static ls_status times(const ls_custom_sample *s, void *out, void *user)
{
    (void)user;
    const float *x = s->inputs[0], *w = s->inputs[1];
    for (int64_t i = 0; i < s->shapes[0].dims[0]; i++)
        ((float *)out)[i] = x[i] * w[i];
    return LS_OK;
}

static ls_status times_gradient(const ls_custom_sample *s, const void *dy, int input, void *dx, void *user)
{
    (void)user;
    const float *other = s->inputs[1 - input], *d = dy;
    for (int64_t i = 0; i < s->shapes[0].dims[0]; i++)
        ((float *)dx)[i] = d[i] * other[i];
    return LS_OK;
}

static bool of_library; /* the same network of the library's ops */

static ls_status factor_weights(const ls_layer_config *config, const ls_shape *input, ls_layer_weight *out,
                                size_t *count, void *user)
{
    (void)config, (void)user;
    out[(*count)++] = (ls_layer_weight){
        "factor", { .shape = LS_SHAPE(input->dims[1]), .initializer = { .kind = LS_INIT_UNIFORM, .a = 0.5, .b = 2 } }
    };
    return LS_OK;
}

static ls_tensor *factor(const ls_layer_config *config, ls_tensor *const *inputs, size_t input_count,
                         ls_tensor *const *weights, bool training, void *user)
{
    (void)config, (void)input_count, (void)training, (void)user;
    if (of_library)
        return ls_op_mul(inputs[0], weights[0]);
    return ls_op_custom("times", .inputs = { inputs[0], weights[0] }, .forward = times, .gradient = times_gradient);
}

static ls_status difference(const ls_custom_sample *s, void *out, void *user)
{
    (void)user;
    *(float *)out = *(const float *)s->inputs[0] - *(const float *)s->inputs[1];
    return LS_OK;
}

static ls_status difference_gradient(const ls_custom_sample *s, const void *dy, int input, void *dx, void *user)
{
    (void)user, (void)s;
    *(float *)dx = input == 0 ? *(const float *)dy : -*(const float *)dy;
    return LS_OK;
}

static ls_tensor *squared(ls_tensor *targets, ls_tensor *predictions, void *user)
{
    (void)user;
    targets = ls_op_reshape(targets, LS_SHAPE(LS_BATCH, 1));
    ls_tensor *d = of_library ? ls_op_sub(predictions, targets)
                              : ls_op_custom("difference", .inputs = { predictions, targets }, .forward = difference,
                                             .gradient = difference_gradient);
    return ls_op_square(d);
}

#define SAMPLES  37
#define FEATURES 6

static float features[SAMPLES * FEATURES], targets[SAMPLES];

static void make_data(void)
{
    for (int i = 0; i < SAMPLES * FEATURES; i++)
        features[i] = (float)(i * 7 % 29) / 13 - 1;
    for (int i = 0; i < SAMPLES; i++)
        targets[i] = features[i * FEATURES] * features[i * FEATURES + 3];
}

typedef struct job {
    ls_strategy strategy;
    int64_t batch;
    int lanes;
} job;

static ls_status train(ls_context *ctx, const job *j, char hash[65])
{
    ls_model *model = NULL;
    ls_status status =
        ls_sequential(ctx, "net", &model, ls_input(FEATURES), ls_dense(FEATURES, .activation = LS_TANH),
                      ls_registered("Factor", "{}", .name = "own"), ls_dense(4, .activation = LS_RELU), ls_dense(1));
    if (status == LS_OK)
        status = ls_compile(model, .optimizer = ls_adam(0.02), .loss = ls_custom_loss(squared));
    if (status == LS_OK)
        status = ls_fit_arrays(model, ls_array_of(LS_F32, LS_SHAPE(SAMPLES, FEATURES), features),
                               ls_array_of(LS_F32, LS_SHAPE(SAMPLES), targets), .epochs = 2,
                               .batch_size = j->batch ? j->batch : 16, .lanes = j->lanes ? j->lanes : 5,
                               .verbose = LS_VERBOSE_SILENT, .strategy = j->strategy);
    if (status == LS_OK)
        status = ls_model_state_sha256(model, hash);
    ls_model_destroy(model);
    return status;
}

static void train_on(int cpus, int gpus, const job *j, char hash[65], const char *log)
{
    machine m;
    machine_create(&m,
                   (machine_settings){
                       .gpu = { .devices = gpus, .memory = LS_MIB(2), .delay = -1 },
                       .options = { .cpu_devices = cpus, .threads = cpus > 2 ? cpus : 2, .log_level = LS_LOG_INFO } });
    OK(train(m.ctx, j, hash));
    if (log)
        machine_has(m.log, log);
    machine_close(&m);
}

static void must_be(const char *expected, int cpus, int gpus, const job *j)
{
    char hash[65];
    train_on(cpus, gpus, j, hash, gpus ? "times: no kernel on GPU, the CPU runs it" : NULL);
    if (strcmp(hash, expected) != 0)
        fail_msg("strategy %d, %d CPUs, %d GPUs, batch %lld, %d lanes: %s instead of %s", (int)j->strategy.kind, cpus,
                 gpus, (long long)j->batch, j->lanes, hash, expected);
}

/* Also the bits of the library's ops: the same formulas, and sums in the same order. The batch of 1
 * and the last batch of 7 samples, of 5 or 16 lanes, leave lanes empty. */
static void one_hash_on_any_devices(void **state)
{
    (void)state;
    static const job sizes[] = { { .batch = 16 }, { .batch = 10, .lanes = 16 }, { .batch = 1, .lanes = 3 } };
    char expected[65];
    for (size_t i = 0; i < LENGTH(sizes); i++) {
        job j = sizes[i];
        of_library = true;
        train_on(1, 0, &j, expected, NULL);
        of_library = false;
        must_be(expected, 1, 0, &j);
        must_be(expected, 3, 0, &j);
        j.strategy = ls_mirrored(.all_reduce = LS_ALL_REDUCE_TO_ONE);
        must_be(expected, 2, 0, &j);
        j.strategy = ls_data_parallel();
        must_be(expected, 3, 0, &j);
        j.strategy = ls_model_parallel();
        must_be(expected, 2, 0, &j);
        j.strategy = ls_pipeline();
        must_be(expected, 3, 0, &j);
        j.strategy = ls_mirrored();
        must_be(expected, 1, 2, &j);
    }
}

/* The worker of a cluster of one leaves its hash in a file, where others compare. */
static ls_status compare_hash(int count, const char *hash)
{
    char expected[65] = "";
    FILE *file = fopen(in_folder("hash"), count == 1 ? "w" : "r");
    if (!file || (count == 1 ? fputs(hash, file) < 0 : !fgets(expected, sizeof(expected), file)))
        return ls_backend_fail(LS_ERR_IO, "the file with the hash");
    fclose(file);
    return count == 1 || strcmp(expected, hash) == 0
               ? LS_OK
               : ls_backend_fail(LS_ERR_INTERNAL, "%s instead of %s", hash, expected);
}

static ls_status work(int rank, int count, void *user)
{
    ls_context *ctx = NULL;
    char hash[65];
    (void)rank, (void)user;
    ls_status status = ls_context_open(&(ls_context_options){ .threads = 1 }, &ctx);
    if (status == LS_OK)
        status = train(ctx, &(job){ .batch = 16 }, hash);
    if (status == LS_OK)
        status = compare_hash(count, hash);
    ls_context_close(ctx);
    return status;
}

/* Before this process opens a context. */
static void one_hash_on_workers(void **state)
{
    (void)state;
    OK(ls_spawn(1, work, NULL));
    OK(ls_spawn(3, work, NULL));
}

/* ---- What the functions see ---- */

typedef struct seen {
    int64_t samples;
    double subnormal;
} seen;

static ls_status look(const ls_custom_sample *s, void *out, void *user)
{
    seen *v = user;
    volatile double tiny = 0x1p-1000;
    v->subnormal = tiny * 0x1p-60;
    v->samples++;
    if (*(const float *)s->inputs[0] == 0 && s->index != 3) /* the fourth sample is 0 */
        return LS_ERR_INTERNAL;
    if (s->index % 2 == 0)
        *(float *)out = 7; /* others keep the 0 that is there before */
    return LS_OK;
}

static void functions_see_the_sample_and_the_librarys_mode(void **state)
{
    (void)state;
    ls_context *ctx = NULL;
    ls_graph *g = NULL;
    seen v = { 0 };
    float in[6] = { 1, 2, 3, 0, 5, 6 }, out[6];
    char *dump = NULL;
    OK(ls_context_open(&(ls_context_options){ .cpu_devices = 1, .threads = 1 }, &ctx));
    OK(ls_graph_create(ctx, &g));
    ls_tensor *x = ls_op_input(g, "x", LS_F32, LS_SHAPE(LS_BATCH, 1));
    ls_tensor *y = ls_op_custom("look", .inputs = { x }, .forward = look, .user = &v);
#if defined(__SSE2__)
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* the caller flushes subnormal numbers */
#endif
    ls_status status = ls_eval(g, &(ls_feed){ x, ls_array_of(LS_F32, LS_SHAPE(6, 1), in) }, 1, (ls_tensor *[]){ y }, 1);
#if defined(__SSE2__)
    _mm_setcsr(before);
#endif
    OK(status);
    OK(ls_read(y, out, sizeof(out)));
    assert_int_equal(v.samples, 6);
    assert_true(v.subnormal > 0);
    for (int i = 0; i < 6; i++)
        assert_true(out[i] == (i % 2 == 0 ? 7 : 0));
    OK(ls_graph_dump(g, LS_DUMP_TEXT, &dump));
    machine_has(dump, "look float32 (batch, 1) per-sample");
    free(dump);
    ls_graph_destroy(g);
    ls_context_close(ctx);
}

/* ---- Failures ---- */

typedef struct trouble {
    ls_status status;
    bool in_gradient;
    float value; /* instead of a failure */
} trouble;

static ls_status maybe(const ls_custom_sample *s, void *out, void *user)
{
    const trouble *t = user;
    *(float *)out = t->value;
    if (s->index != 4 || t->in_gradient)
        return LS_OK;
    if (t->status == LS_ERR_DATA)
        snprintf(s->message, LS_CUSTOM_MESSAGE_BYTES, "%g is no angle", *(const float *)s->inputs[0]);
    return t->status;
}

static ls_status maybe_not(const ls_custom_sample *s, const void *dy, int input, void *dx, void *user)
{
    const trouble *t = user;
    (void)dy, (void)input;
    *(float *)dx = t->value;
    return s->index == 4 && t->in_gradient ? t->status : LS_OK;
}

/* Runs a step of a function that fails at sample 4 of 6; the variable must not change. */
static void step_fails(trouble t, ls_status status, const char *words, const char *more)
{
    ls_context *ctx = NULL;
    ls_graph *g = NULL;
    float in[6] = { 1, 2, 3, 4, 5, 6 }, w = 2;
    OK(ls_context_open(&(ls_context_options){ .cpu_devices = 2, .threads = 2 }, &ctx));
    OK(ls_graph_create(ctx, &g));
    OK(ls_graph_set_lanes(g, 3));
    ls_tensor *x = ls_op_input(g, "x", LS_F32, LS_SHAPE(LS_BATCH, 1));
    ls_tensor *v = ls_op_variable(g, "v", LS_F32, LS_SHAPE(1), .data = &w);
    ls_tensor *y =
        ls_op_custom("maybe", .inputs = { ls_op_mul(x, v) }, .forward = maybe, .gradient = maybe_not, .user = &t);
    ls_tensor *loss = ls_op_reduce_mean(y, LS_ALL_AXES, false);
    ls_tensor *fetches[] = { loss,
                             ls_minimize(ls_sgd(1), ls_op_add(loss, ls_op_reduce_sum(v, LS_ALL_AXES, false)), NULL) };
    ls_feed feed = { x, ls_array_of(LS_F32, LS_SHAPE(6, 1), in) };
    FAILS(ls_eval(g, &feed, 1, fetches, 2), status, words, more);
    OK(ls_variable_get(v, &w, sizeof(w)));
    assert_true(w == 2);
    ls_graph_destroy(g);
    ls_context_close(ctx);
}

static void a_function_that_fails_stops_the_step(void **state)
{
    (void)state;
    step_fails((trouble){ .status = LS_ERR_DATA }, LS_ERR_DATA, "forward of the op maybe",
               "at sample 4: 10 is no angle");
    step_fails((trouble){ .status = LS_ERR_IO }, LS_ERR_IO, "forward of the op maybe", "at sample 4: LS_ERR_IO");
    step_fails((trouble){ .status = (ls_status)-1 }, LS_ERR_INVALID, "returned -1 at sample 4", "not a status");
    step_fails((trouble){ .status = LS_ERR_DATA, .in_gradient = true }, LS_ERR_DATA, "gradient of the op maybe",
               "at sample 4");
    step_fails((trouble){ .status = LS_OK, .value = NAN }, LS_ERR_NOT_FINITE, "gradient of v is not finite",
               "no variable was changed");
}

static void refused(const ls_tensor *y, ls_status status, const char *words, const char *more)
{
    float value;
    if (!ls_tensor_is_error(y))
        fail_msg("\"%s\" was accepted", words);
    FAILS(ls_read((ls_tensor *)y, &value, sizeof(value)), status, words, more);
}

static ls_status wide(const ls_custom_sample *s, ls_dtype *dtype, ls_shape *shape, void *user)
{
    (void)s;
    *dtype = LS_F64;
    *shape = *(const ls_shape *)user;
    return LS_OK;
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    ls_context *ctx = NULL;
    ls_graph *g = NULL, *other = NULL;
    ls_shape negative = LS_SHAPE(2, -3), deep = { .rank = 8, .dims = { 1, 1, 1, 1, 1, 1, 1, 1 } };
    OK(ls_context_open(NULL, &ctx));
    OK(ls_graph_create(ctx, &g));
    OK(ls_graph_create(ctx, &other));
    ls_tensor *x = ls_op_input(g, "x", LS_F32, LS_SHAPE(LS_BATCH, 3)), *w = ls_op_fill(g, LS_F32, LS_SHAPE(3), 1);
    ls_tensor *k = ls_op_fill(g, LS_I32, LS_SCALAR, 1), *gathered = ls_op_gather_batch(x), *grad;
    refused(ls_op_custom("a b", .inputs = { x }, .forward = times), LS_ERR_INVALID, "\"a b\"", "letters");
    refused(ls_op_custom("relu", .inputs = { x }, .forward = times), LS_ERR_INVALID, "relu is an op of the library",
            "another name");
    refused(ls_op_custom("own", .inputs = { x }), LS_ERR_INVALID, "own", "forward is missing");
    refused(ls_op_custom("own", .inputs = { x, NULL, w }, .forward = times), LS_ERR_INVALID, "input 1 is NULL",
            "input 2 is not");
    refused(ls_op_custom("own", .inputs = { x }, .forward = times, .flops = -1), LS_ERR_INVALID, "flops is -1", "own");
    refused(ls_op_custom("own", .inputs = { x, ls_op_fill(other, LS_F32, LS_SHAPE(3), 1) }, .forward = times),
            LS_ERR_INVALID, "input 1", "another graph");
    refused(ls_op_custom("own", .inputs = { gathered }, .forward = times), LS_ERR_UNSUPPORTED,
            "input 0 is a gathered batch", "custom(");
    refused(bent(x, w, k), LS_ERR_SHAPE, "shape of the op bend", "pairs of numbers, not 3");
    refused(ls_op_custom("own", .inputs = { x }, .forward = times, .shape = wide, .user = &negative), LS_ERR_SHAPE,
            "axis 1 to size -3", "shape");
    refused(ls_op_custom("own", .inputs = { x }, .forward = times, .shape = wide, .user = &deep), LS_ERR_SHAPE,
            "set 8 axes", "0 to 7");

    ls_tensor *y = ls_op_custom("own", .inputs = { x, w }, .forward = times);
    assert_false(ls_tensor_is_error(y));
    FAILS(ls_gradients(y, &w, 1, &grad), LS_ERR_UNSUPPORTED, "the op own has no function gradient", ".gradient");
    y = ls_op_custom("own", .inputs = { x, w }, .forward = times, .gradient = times_gradient);
    OK(ls_gradients(y, &w, 1, &grad));
    FAILS(ls_gradients(ls_op_square(grad), &w, 1, &(ls_tensor *){ NULL }), LS_ERR_UNSUPPORTED,
          "no gradient rule for the op own_grad");
    OK(ls_gradients(ls_op_cast(bent(ls_op_fill(g, LS_F32, LS_SHAPE(6), 1), w, k), LS_F32), &w, 1, &grad));
    assert_non_null(grad);
    ls_graph_destroy(g);
    ls_graph_destroy(other);
    ls_context_close(ctx);
}

/* ---- Custom models ---- */

static void own_model(ls_call *call, ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    (void)user;
    ls_tensor *w = ls_call_variable(call, "w", LS_SHAPE(FEATURES));
    outputs[0] = ls_op_custom("times", .inputs = { inputs[0], w }, .forward = times, .gradient = times_gradient);
}

static void a_custom_model_has_no_keras_file(void **state)
{
    (void)state;
    ls_context *ctx = NULL;
    ls_model *model = NULL;
    ls_array predicted = { .data = NULL };
    OK(ls_context_open(NULL, &ctx));
    OK(ls_custom(ctx, "own", (ls_layer[]){ ls_input(FEATURES) }, 1, 1, own_model, NULL, &model));
    OK(ls_predict_array(model, ls_array_of(LS_F32, LS_SHAPE(SAMPLES, FEATURES), features), &predicted));
    free(predicted.data);
    FAILS(ls_model_save_weights(model, "own.keras"), LS_ERR_UNSUPPORTED, "own", "custom");
    ls_model_destroy(model);
    ls_context_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_hash_on_workers),
        cmocka_unit_test(gradients_are_those_of_differences),
        cmocka_unit_test(one_hash_on_any_devices),
        cmocka_unit_test(functions_see_the_sample_and_the_librarys_mode),
        cmocka_unit_test(a_function_that_fails_stops_the_step),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(a_custom_model_has_no_keras_file),
    };
    make_data();
    static const char *const keys[] = { NULL };
    if (ls_register_layer("Factor", (ls_layer_definition){ .keys = keys, .weights = factor_weights, .call = factor }) !=
        LS_OK)
        return 1;
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
