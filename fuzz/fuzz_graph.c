/* Random graphs with gradients. The input is a little program: each of its bytes adds an op to a
 * pool of tensors. One device and two must agree bit for bit; the fast kernels and the reference
 * ones within a tolerance, and exactly in what is NaN or infinite. Some inputs put NaN, infinities
 * and subnormal numbers among the values. */
#include <float.h>
#include <math.h>

#include "fuzz.h"

#define POOL      12
#define VARIABLES 8
#define FETCHES   (2 + VARIABLES)
#define OPS       20
#define MOST      65536 /* floats of all fetches */
#define TOLERANCE 2e-3
#define HUGE_SIZE 1e30 /* beyond this, which sum overflows first is chance */

typedef struct program {
    fuzz_input in;
    ls_graph *graph;
    ls_tensor *pool[POOL], *variables[VARIABLES];
    size_t pool_count, variable_count;
    int products; /* left: sizes must not explode */
    uint32_t random;
    unsigned special; /* 0: only plain values */
    float jitter;
} program;

typedef struct outcome {
    ls_status status;
    size_t count;
    float *values;
} outcome;

/* ---- Values ---- */

static float next_value(program *p)
{
    static const float odd[] = { NAN, INFINITY, -INFINITY, FLT_MIN / 8, -0.0f };
    p->random = p->random * 1664525u + 1013904223u;
    unsigned r = p->random >> 8;
    if (p->special > 0 && r % 97 == 0)
        return odd[(p->special - 1) % 5];
    float value = (float)((int)(r % 257) - 128) / 64;
    return value + p->jitter * (float)((int)(r % 101) - 50) / 50;
}

static void fill(program *p, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = next_value(p);
}

static ls_tensor *variable(program *p, ls_shape shape)
{
    float values[4096];
    size_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        count *= (size_t)shape.dims[i];
    if (p->variable_count == VARIABLES || count > sizeof values / sizeof *values)
        return NULL;
    fill(p, values, count);
    for (size_t i = 0; i < count; i++)
        values[i] /= 4;
    ls_tensor *v = ls_op_variable(p->graph, NULL, LS_F32, shape, .data = values);
    return p->variables[p->variable_count++] = v;
}

/* ---- Ops ---- */

static ls_tensor *pick(program *p)
{
    return p->pool[fuzz_take(&p->in, (unsigned)p->pool_count)];
}

/* Another tensor of the same shape; the tensor itself if there is none. */
static ls_tensor *pick_like(program *p, ls_tensor *x)
{
    ls_shape a = ls_tensor_shape(x);
    for (size_t i = fuzz_take(&p->in, POOL), n = 0; n < p->pool_count; n++) {
        ls_tensor *other = p->pool[(i + n) % p->pool_count];
        ls_shape b = ls_tensor_shape(other);
        if (a.rank == b.rank && memcmp(a.dims, b.dims, sizeof a.dims[0] * (size_t)a.rank) == 0)
            return other;
    }
    return x;
}

static ls_tensor *convolution(program *p, ls_tensor *x, const ls_shape *s, bool depthwise)
{
    int64_t side = 1 + 2 * fuzz_take(&p->in, 2), out = 1 + fuzz_take(&p->in, 18), stride = 1 + fuzz_take(&p->in, 2);
    ls_padding padding = fuzz_take(&p->in, 2) ? LS_SAME : LS_VALID;
    if (s->rank != 4 || (padding == LS_VALID && (s->dims[1] < side || s->dims[2] < side)))
        return NULL;
    int64_t channels = s->dims[3];
    ls_tensor *kernel = variable(p, LS_SHAPE(side, side, depthwise ? 1 : channels, depthwise ? channels : out));
    if (!kernel)
        return NULL;
    return ls_op_conv2d(x, kernel, .stride = { stride, stride }, .padding = padding,
                        .groups = depthwise ? channels : 1);
}

static ls_tensor *dense(program *p, ls_tensor *x, const ls_shape *s)
{
    int64_t units = 1 + fuzz_take(&p->in, 33);
    if (s->rank != 2)
        return NULL;
    ls_tensor *kernel = variable(p, LS_SHAPE(s->dims[1], units)), *bias = variable(p, LS_SHAPE(units));
    return kernel && bias ? ls_op_add(ls_op_matmul(x, kernel), bias) : NULL;
}

static ls_tensor *pool2d(program *p, ls_tensor *x, const ls_shape *s, bool max)
{
    int64_t side = 2 + fuzz_take(&p->in, 2), stride = 1 + fuzz_take(&p->in, 2);
    ls_padding padding = fuzz_take(&p->in, 2) ? LS_SAME : LS_VALID;
    if (s->rank != 4 || s->dims[1] < side || s->dims[2] < side)
        return NULL;
    if (max)
        return ls_op_max_pool2d(x, .window = { side, side }, .stride = { stride, stride }, .padding = padding);
    return ls_op_average_pool2d(x, .window = { side, side }, .stride = { stride, stride }, .padding = padding);
}

static ls_tensor *batch_norm(program *p, ls_tensor *x, const ls_shape *s)
{
    int64_t channels = s->dims[s->rank - 1];
    ls_tensor *gamma = variable(p, LS_SHAPE(channels)), *beta = variable(p, LS_SHAPE(channels));
    return gamma && beta ? ls_op_batch_norm(x, .gamma = gamma, .beta = beta, .training = true) : NULL;
}

static ls_tensor *bias(program *p, ls_tensor *x, const ls_shape *s)
{
    ls_tensor *b = variable(p, LS_SHAPE(s->dims[s->rank - 1]));
    return b ? ls_op_add(x, b) : NULL;
}

/* One op of the program; NULL where it does not fit. */
static ls_tensor *make_op(program *p)
{
    unsigned op = fuzz_take(&p->in, OPS);
    ls_tensor *x = pick(p);
    ls_shape s = ls_tensor_shape(x);
    switch (op) {
    case 0:
    case 1:
        return convolution(p, x, &s, op == 1);
    case 2:
        return dense(p, x, &s);
    case 3:
    case 4:
        return ls_op_relu(x);
    case 5:
        return ls_op_tanh(x);
    case 6:
        return ls_op_sigmoid(x);
    case 7:
        return ls_op_add(x, pick_like(p, x));
    case 8:
        return p->products-- > 0 ? ls_op_mul(x, pick_like(p, x)) : NULL;
    case 9:
        return ls_op_sub(x, pick_like(p, x));
    case 10:
        return ls_op_maximum(x, pick_like(p, x));
    case 11:
    case 12:
        return pool2d(p, x, &s, op == 11);
    case 13:
        return s.rank == 4 ? ls_op_flatten(x) : NULL;
    case 14:
        return batch_norm(p, x, &s);
    case 15:
        return ls_op_softmax(x, -1);
    case 16:
        return ls_op_leaky_relu(x, 0.25);
    case 17:
        return bias(p, x, &s);
    case 18:
        return s.rank == 4 ? ls_op_global_average_pool2d(x) : NULL;
    default:
        return ls_op_dropout(x, ls_op_scalar(p->graph, LS_F32, 0.25));
    }
}

static void make_ops(program *p)
{
    while (p->in.left > 0 && p->pool_count < POOL) {
        ls_tensor *y = make_op(p);
        if (y && !ls_tensor_is_error(y))
            p->pool[p->pool_count++] = y;
    }
}

/* ---- Runs ---- */

static ls_status run(program *p, int64_t batch, float *images, outcome *out)
{
    ls_tensor *x = p->pool[0], *y = p->pool[p->pool_count - 1], *fetches[FETCHES] = { y };
    size_t count = 2;
    fetches[1] = ls_op_reduce_mean(ls_op_mul(y, y), LS_ALL_AXES, false);
    ls_tensor *gradients[VARIABLES];
    ls_status status =
        ls_gradients_with(fetches[1], p->variables, p->variable_count, (ls_gradients_options){ 0 }, gradients);
    for (size_t i = 0; i < p->variable_count && status == LS_OK; i++)
        if (gradients[i])
            fetches[count++] = gradients[i];
    ls_feed feed = { x, ls_array_of(LS_F32, LS_SHAPE(batch, 6, 6, 3), images) };
    if (status == LS_OK)
        status = ls_eval(p->graph, &feed, 1, fetches, count);
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        ls_array value;
        status = ls_value(fetches[i], &value);
        size_t n = 1;
        for (int d = 0; status == LS_OK && d < value.shape.rank; d++)
            n *= (size_t)value.shape.dims[d];
        if (status != LS_OK || out->count + n > MOST)
            break;
        memcpy(out->values + out->count, value.data, n * sizeof(float));
        out->count += n;
    }
    return status;
}

static outcome run_in(ls_context *ctx, const uint8_t *data, size_t size, float jitter)
{
    static float images[16 * 6 * 6 * 3];
    program p = { .in = { data, size }, .products = 2, .jitter = jitter };
    outcome out = { .values = malloc(MOST * sizeof(float)) };
    FUZZ_CHECK(out.values, "no memory");
    int64_t batch = 1 + fuzz_take(&p.in, 16);
    int lanes = (int)fuzz_take(&p.in, 12);
    p.special = fuzz_take(&p.in, 16) % 6; /* 0 to 5 */
    p.random = fuzz_take(&p.in, 65536);
    FUZZ_CHECK(ls_graph_create(ctx, &p.graph, .seed = 7) == LS_OK, "%s", ls_last_error());
    FUZZ_CHECK(ls_graph_set_lanes(p.graph, lanes) == LS_OK, "%s", ls_last_error());
    fill(&p, images, (size_t)batch * 6 * 6 * 3);
    p.pool[p.pool_count++] = ls_op_input(p.graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 6, 6, 3));
    make_ops(&p);
    out.status = run(&p, batch, images, &out);
    fuzz_status(out.status);
    ls_graph_destroy(p.graph);
    return out;
}

/* ---- Comparing ---- */

static bool alike(float a, float b, float scale)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    if (fabsf(a) > HUGE_SIZE || fabsf(b) > HUGE_SIZE)
        return signbit(a) == signbit(b) && fabsf(a) > HUGE_SIZE / 10 && fabsf(b) > HUGE_SIZE / 10;
    return fabsf(a - b) <= TOLERANCE * scale;
}

/* The first element that differs, or -1. */
static long first_difference(const outcome *a, const outcome *b)
{
    float scale = 1;
    for (size_t i = 0; i < a->count; i++)
        if (isfinite(b->values[i]) && fabsf(b->values[i]) < HUGE_SIZE)
            scale = fmaxf(scale, fabsf(b->values[i]));
    for (size_t i = 0; i < a->count; i++)
        if (!alike(a->values[i], b->values[i], scale))
            return (long)i;
    return -1;
}

/* A kink (a ReLU near 0, two equal values under a maximum) may go either way; with values moved a
 * little it does not. So a difference counts when it stays. */
static void compare_with_reference(const uint8_t *data, size_t size)
{
    static const float jitters[] = { 0, 1e-2f, 3e-2f };
    long at = -1;
    float fast = 0, plain = 0;
    for (size_t i = 0; i < 3; i++) {
        outcome a = run_in(fuzz_context(1, false), data, size, jitters[i]);
        outcome b = run_in(fuzz_context(1, true), data, size, jitters[i]);
        FUZZ_CHECK(a.status == b.status && a.count == b.count, "fast: %s, reference: %s", ls_status_name(a.status),
                   ls_status_name(b.status));
        at = first_difference(&a, &b);
        fast = at < 0 ? 0 : a.values[at];
        plain = at < 0 ? 0 : b.values[at];
        free(a.values);
        free(b.values);
        if (at < 0)
            return;
    }
    fuzz_broken("element %ld is %g, the reference has %g", at, fast, plain);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 6 || size > 256)
        return 0;
    outcome one = run_in(fuzz_context(1, false), data, size, 0), two = run_in(fuzz_context(2, false), data, size, 0);
    FUZZ_CHECK(one.status == two.status && one.count == two.count, "one device: %s, two: %s",
               ls_status_name(one.status), ls_status_name(two.status));
    for (size_t i = 0; i < one.count; i++) /* the bits of a NaN are not defined */
        FUZZ_CHECK(memcmp(&one.values[i], &two.values[i], sizeof(float)) == 0 ||
                       (isnan(one.values[i]) && isnan(two.values[i])),
                   "element %zu is %g on one device and %g on two", i, one.values[i], two.values[i]);
    free(one.values);
    free(two.values);
    compare_with_reference(data, size);
    return 0;
}
