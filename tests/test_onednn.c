/* The CPU's oneDNN kernels against plain loops in double, with guard zones around everything they may write; their bits
 * under any OMP_NUM_THREADS; many threads on one operation. What oneDNN runs on are threads of their own, as in the
 * library: the main thread's OpenMP belongs to the user. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cpu/onednn.h"
#include "base/sha256.h"
#include "skip.h"

extern void omp_set_num_threads(int count);
extern int omp_get_max_threads(void);

/* ---- a library thread, and how it tells what went wrong (cmocka's asserts are for the main thread) ---- */

typedef struct work {
    bool (*body)(struct work *work);
    ls_dnn *dnn;
    char error[600];
    void *data;
} work;

#define WORKERS 4

static bool bad(work *w, const char *format, ...) LS_PRINTF(2, 3);
static bool bad(work *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(w->error, sizeof w->error, format, args);
    va_end(args);
    return false;
}

#define GOOD(w, call)                                                                                                  \
    do {                                                                                                               \
        if ((call) != LS_OK)                                                                                           \
            return bad(w, "line %d: %s", __LINE__, ls_last_error());                                                   \
    } while (0)

static void *work_thread(void *at)
{
    work *w = at;
    ls_dnn_enter_thread();
    if (ls_dnn_open(WORKERS, &w->dnn) != LS_OK) {
        bad(w, "%s", ls_last_error());
        return NULL;
    }
    if (!w->body(w) && w->error[0] == '\0')
        bad(w, "failed");
    ls_dnn_close(w->dnn);
    return NULL;
}

static bool on_library_thread(work *w)
{
    pthread_t thread;
    w->error[0] = '\0';
    if (pthread_create(&thread, NULL, work_thread, w) != 0)
        return bad(w, "no thread");
    pthread_join(thread, NULL);
    return w->error[0] == '\0';
}

static void must(bool (*body)(work *))
{
    work w = { .body = body };
    if (!on_library_thread(&w))
        fail_msg("%s", w.error);
}

/* ---- arrays between guard zones ---- */

#define GUARD 64 /* floats; the array behind it starts at a multiple of 64 bytes, or one float behind one */

typedef struct array {
    float *memory, *data;
    int64_t count;
} array;

static const uint32_t guard_bits = 0x7fc0dead; /* a NaN */

static uint32_t random_state = 1;

static float random_float(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (float)(int32_t)random_state / 2147483648.0f;
}

static int64_t random_of(int64_t count)
{
    return (int64_t)((random_float() + 1) / 2 * (float)count) % count;
}

static array array_new(int64_t count, bool aligned)
{
    array a = { .count = count };
    size_t floats = (size_t)count + 2 * GUARD + 16;
    a.memory = aligned_alloc(64, floats * sizeof(float) / 64 * 64 + 64);
    if (a.memory == NULL)
        abort();
    for (size_t i = 0; i < floats; i++)
        memcpy(&a.memory[i], &guard_bits, sizeof guard_bits);
    a.data = a.memory + GUARD + (aligned ? 0 : 1);
    return a;
}

static array array_random(int64_t count)
{
    array a = array_new(count, false);
    for (int64_t i = 0; i < count; i++)
        a.data[i] = random_float();
    return a;
}

static array array_bytes(size_t bytes)
{
    return array_new((int64_t)(bytes + 3) / 4, true);
}

static bool guarded(const array *a)
{
    int64_t start = a->data - a->memory;
    for (int64_t i = 0; i < a->count + 2 * GUARD + 16; i++)
        if ((i < start || i >= start + a->count) && memcmp(&a->memory[i], &guard_bits, sizeof guard_bits) != 0)
            return false;
    return true;
}

static void array_free(array *a)
{
    free(a->memory);
    *a = (array){ 0 };
}

/* ---- convolutions by their definition ---- */

typedef struct sums {
    double *value, *size; /* of each element: the sum, and the sum of the absolute values */
    int64_t count;
} sums;

static sums sums_new(int64_t count)
{
    return (sums){ calloc((size_t)count, sizeof(double)), calloc((size_t)count, sizeof(double)), count };
}

static void sums_add(sums *s, int64_t at, double term)
{
    s->value[at] += term;
    s->size[at] += fabs(term);
}

static void sums_free(sums *s)
{
    free(s->value);
    free(s->size);
}

static int64_t count_x(const ls_dnn_conv *v)
{
    return v->n * v->h * v->w * v->c;
}

static int64_t count_y(const ls_dnn_conv *v)
{
    return v->n * v->oh * v->ow * v->o;
}

static int64_t count_kernel(const ls_dnn_conv *v)
{
    return v->kh * v->kw * (v->c / v->groups) * v->o;
}

/* Every (x, kernel, y) that meet: calls visit with their places. */
typedef void visitor(void *user, int64_t x, int64_t kernel, int64_t y);

static void visit_pixel(const ls_dnn_conv *v, int64_t pixel, int64_t cell, int64_t y, visitor *visit, void *user)
{
    int64_t in = v->c / v->groups, out = v->o / v->groups;
    for (int64_t o = 0; o < v->o; o++)
        for (int64_t i = 0; i < in; i++)
            visit(user, pixel * v->c + o / out * in + i, (cell * in + i) * v->o + o, y * v->o + o);
}

static void visit_all(const ls_dnn_conv *v, visitor *visit, void *user)
{
    for (int64_t y = 0; y < v->n * v->oh * v->ow; y++) {
        int64_t n = y / (v->oh * v->ow), top = y / v->ow % v->oh * v->stride[0], left = y % v->ow * v->stride[1];
        for (int64_t cell = 0; cell < v->kh * v->kw; cell++) {
            int64_t h = top + cell / v->kw * v->dilation[0] - v->pad[0];
            int64_t w = left + cell % v->kw * v->dilation[1] - v->pad[2];
            if (h >= 0 && h < v->h && w >= 0 && w < v->w)
                visit_pixel(v, (n * v->h + h) * v->w + w, cell, y, visit, user);
        }
    }
}

typedef struct reference {
    const float *x, *kernel, *dy;
    sums y, dx, dkernel;
} reference;

static void meet(void *user, int64_t x, int64_t kernel, int64_t y)
{
    reference *r = user;
    sums_add(&r->y, y, (double)r->x[x] * r->kernel[kernel]);
    sums_add(&r->dx, x, (double)r->dy[y] * r->kernel[kernel]);
    sums_add(&r->dkernel, kernel, (double)r->dy[y] * r->x[x]);
}

/* ---- comparing ---- */

static bool close_to(work *w, const char *what, const array *got, const sums *want)
{
    int64_t zeros = 0;
    for (int64_t i = 0; i < got->count; i++) {
        zeros += got->data[i] == 0;
        if (!(fabs(got->data[i] - want->value[i]) <= 2e-6 * want->size[i] + 1e-30))
            return bad(w, "%s: element %lld is %.9g instead of %.9g", what, (long long)i, got->data[i], want->value[i]);
    }
    if (zeros > got->count * 0.95)
        return bad(w, "%s: mistrusted: %lld of %lld are zero", what, (long long)zeros, (long long)got->count);
    if (!guarded(got))
        return bad(w, "%s: wrote beside its output", what);
    return true;
}

static void conv_name(const ls_dnn_conv *v, char *text, size_t size)
{
    snprintf(
        text, size, "[%d,%d,%d,%d] by %dx%d to [%d,%d,%d] stride %d,%d dilation %d,%d pad %d,%d,%d,%d groups %d%s%s",
        (int)v->n, (int)v->h, (int)v->w, (int)v->c, (int)v->kh, (int)v->kw, (int)v->oh, (int)v->ow, (int)v->o,
        (int)v->stride[0], (int)v->stride[1], (int)v->dilation[0], (int)v->dilation[1], (int)v->pad[0], (int)v->pad[1],
        (int)v->pad[2], (int)v->pad[3], (int)v->groups, v->bias ? " bias" : "", v->relu ? " relu" : "");
}

/* ---- one convolution, all three ways ---- */

typedef struct trial {
    work *w;
    ls_dnn_conv conv;
    array x, kernel, bias, dy;
    reference want;
    int made[3], refused[3];
} trial;

typedef ls_status maker(ls_dnn *, const ls_dnn_conv *, const ls_dnn_op *, ls_dnn_op **);

/* Packs the kernel for `op`, and sees that unpacking gives the same kernel. */
static bool pack(trial *t, const ls_dnn_op *op, array *packed)
{
    ls_dnn_op *there, *back;
    GOOD(t->w, ls_dnn_reorder_from_hwio(t->w->dnn, op, &there));
    GOOD(t->w, ls_dnn_reorder_to_hwio(t->w->dnn, op, &back));
    array again = array_new(t->kernel.count, false);
    array scratch = array_bytes(ls_dnn_op_scratch_bytes(there)), scratch2 = array_bytes(ls_dnn_op_scratch_bytes(back));
    *packed = array_bytes(ls_dnn_op_weights_bytes(op));
    GOOD(t->w, ls_dnn_run_reorder(there, 0, t->kernel.data, packed->data, scratch.data));
    GOOD(t->w, ls_dnn_run_reorder(back, 0, packed->data, again.data, scratch2.data));
    bool same = memcmp(again.data, t->kernel.data, (size_t)again.count * sizeof(float)) == 0;
    bool whole = guarded(packed) && guarded(&again) && guarded(&scratch) && guarded(&scratch2);
    bool plain = ls_dnn_op_weights_are_hwio(op);
    if (plain && memcmp(packed->data, t->kernel.data, (size_t)again.count * sizeof(float)) != 0)
        same = false;
    array_free(&again);
    array_free(&scratch);
    array_free(&scratch2);
    ls_dnn_op_destroy(there);
    ls_dnn_op_destroy(back);
    return same && whole ? true : bad(t->w, "the kernel changed on its way to packed and back, or guards did");
}

static bool try_forward(trial *t, ls_dnn_op *op)
{
    array packed, y = array_new(count_y(&t->conv), false), scratch = array_bytes(ls_dnn_op_scratch_bytes(op));
    if (!pack(t, op, &packed))
        return false;
    GOOD(t->w, ls_dnn_run_forward(op, 1, t->x.data, packed.data, t->bias.data, y.data, scratch.data));
    sums want = sums_new(y.count);
    for (int64_t i = 0; i < y.count; i++) {
        sums_add(&want, i, t->want.y.value[i]);
        want.size[i] = t->want.y.size[i];
        if (t->conv.bias)
            sums_add(&want, i, t->bias.data[i % t->conv.o]);
        if (t->conv.relu && want.value[i] < 0)
            want.value[i] = 0;
    }
    bool good = close_to(t->w, "forward", &y, &want);
    if (good && (!guarded(&scratch) || !guarded(&packed)))
        good = bad(t->w, "forward: wrote beside its scratch or kernel");
    sums_free(&want);
    array_free(&packed);
    array_free(&y);
    array_free(&scratch);
    return good;
}

static bool try_backward_data(trial *t, ls_dnn_op *op)
{
    array packed, dx = array_new(count_x(&t->conv), false), scratch = array_bytes(ls_dnn_op_scratch_bytes(op));
    if (!pack(t, op, &packed))
        return false;
    GOOD(t->w, ls_dnn_run_backward_data(op, 2, t->dy.data, packed.data, dx.data, scratch.data));
    bool good = close_to(t->w, "backward data", &dx, &t->want.dx);
    if (good && (!guarded(&scratch) || !guarded(&packed)))
        good = bad(t->w, "backward data: wrote beside its scratch or kernel");
    array_free(&packed);
    array_free(&dx);
    array_free(&scratch);
    return good;
}

static bool bias_is_right(trial *t, const array *dbias)
{
    sums want = sums_new(t->conv.o);
    for (int64_t i = 0; i < count_y(&t->conv); i++)
        sums_add(&want, i % t->conv.o, t->dy.data[i]);
    bool good = !t->conv.bias || close_to(t->w, "bias gradient", dbias, &want);
    sums_free(&want);
    return good;
}

static bool try_backward_weights(trial *t, ls_dnn_op *op)
{
    array packed = array_bytes(ls_dnn_op_weights_bytes(op)), plain = array_new(count_kernel(&t->conv), false);
    array dbias = array_new(t->conv.o, false), scratch = array_bytes(ls_dnn_op_scratch_bytes(op));
    GOOD(t->w, ls_dnn_run_backward_weights(op, 3, t->x.data, t->dy.data, packed.data, dbias.data, scratch.data));
    ls_dnn_op *back;
    GOOD(t->w, ls_dnn_reorder_to_hwio(t->w->dnn, op, &back));
    array scratch2 = array_bytes(ls_dnn_op_scratch_bytes(back));
    GOOD(t->w, ls_dnn_run_reorder(back, 0, packed.data, plain.data, scratch2.data));
    bool good = close_to(t->w, "backward weights", &plain, &t->want.dkernel) && bias_is_right(t, &dbias);
    if (good && (!guarded(&scratch) || !guarded(&packed) || !guarded(&dbias)))
        good = bad(t->w, "backward weights: wrote beside its scratch, packed gradient or bias");
    ls_dnn_op_destroy(back);
    array_free(&packed);
    array_free(&plain);
    array_free(&dbias);
    array_free(&scratch);
    array_free(&scratch2);
    return good;
}

static bool try_kinds(trial *t)
{
    maker *const make[] = { ls_dnn_conv_forward, ls_dnn_conv_backward_data, ls_dnn_conv_backward_weights };
    bool (*const attempt[])(trial *, ls_dnn_op *) = { try_forward, try_backward_data, try_backward_weights };
    for (int kind = 0; kind < 3; kind++) {
        ls_dnn_op *op;
        ls_status status = make[kind](t->w->dnn, &t->conv, NULL, &op);
        if (status == LS_ERR_UNSUPPORTED) {
            t->refused[kind]++;
            continue;
        }
        GOOD(t->w, status);
        t->made[kind]++;
        bool good = attempt[kind](t, op);
        char conv[200], error[sizeof t->w->error];
        if (!good) {
            conv_name(&t->conv, conv, sizeof conv);
            snprintf(error, sizeof error, "%.300s", t->w->error);
            bad(t->w, "%s: %.60s: %s", conv, ls_dnn_op_name(op), error);
        }
        ls_dnn_op_destroy(op);
        if (!good)
            return false;
    }
    return true;
}

static bool try_conv(trial *t)
{
    const ls_dnn_conv *v = &t->conv;
    t->x = array_random(count_x(v));
    t->dy = array_random(count_y(v));
    t->kernel = array_random(count_kernel(v));
    t->bias = array_random(v->o);
    t->want = (reference){ t->x.data,
                           t->kernel.data,
                           t->dy.data,
                           .y = sums_new(count_y(v)),
                           .dx = sums_new(count_x(v)),
                           .dkernel = sums_new(count_kernel(v)) };
    visit_all(v, meet, &t->want);
    bool good = try_kinds(t);
    sums_free(&t->want.y);
    sums_free(&t->want.dx);
    sums_free(&t->want.dkernel);
    array_free(&t->x);
    array_free(&t->dy);
    array_free(&t->kernel);
    array_free(&t->bias);
    return good;
}

/* ---- which convolutions ---- */

/* Output size and padding of an axis, as TensorFlow's SAME (what is odd goes to the end) or with given padding. */
static void place_axis(ls_dnn_conv *v, int axis, bool same, int64_t before, int64_t after)
{
    int64_t size = axis == 0 ? v->h : v->w, cells = axis == 0 ? v->kh : v->kw;
    int64_t reach = (cells - 1) * v->dilation[axis] + 1, out;
    if (same) {
        out = (size + v->stride[axis] - 1) / v->stride[axis];
        int64_t pad = (out - 1) * v->stride[axis] + reach - size;
        before = pad > 0 ? pad / 2 : 0;
        after = pad > 0 ? pad - before : 0;
    }
    out = (size + before + after - reach) / v->stride[axis] + 1;
    v->pad[2 * axis] = before;
    v->pad[2 * axis + 1] = after;
    *(axis == 0 ? &v->oh : &v->ow) = out;
}

static ls_dnn_conv conv_of(int64_t n, int64_t size, int64_t c, int64_t cells, int64_t o, int64_t stride,
                           int64_t dilation, int64_t groups, bool same)
{
    ls_dnn_conv v = { .n = n, .h = size, .w = size, .c = c, .kh = cells, .kw = cells, .o = o, .groups = groups };
    for (int axis = 0; axis < 2; axis++) {
        v.stride[axis] = stride;
        v.dilation[axis] = dilation;
    }
    place_axis(&v, 0, same, 0, 0);
    place_axis(&v, 1, same, 0, 0);
    v.bias = true;
    return v;
}

/* Each channel count, stride and batch size at least once, and the shapes that others found trouble with. */
static bool named_convolutions(trial *t)
{
    const ls_dnn_conv convs[] = {
        conv_of(3, 28, 1, 3, 16, 1, 1, 1, false),  conv_of(7, 13, 16, 3, 32, 1, 1, 1, false),
        conv_of(1, 13, 16, 3, 32, 1, 1, 1, false), conv_of(1, 32, 3, 7, 64, 2, 1, 1, true),
        conv_of(3, 14, 3, 3, 20, 2, 1, 1, true),   conv_of(7, 9, 20, 3, 33, 1, 1, 1, true),
        conv_of(3, 10, 33, 5, 20, 2, 1, 1, true),  conv_of(1, 11, 16, 3, 16, 3, 1, 1, true),
        conv_of(3, 12, 33, 1, 3, 1, 1, 1, false),  conv_of(3, 12, 64, 1, 128, 2, 1, 1, false),
        conv_of(7, 9, 1, 3, 1, 1, 1, 1, true),     conv_of(3, 13, 16, 3, 20, 1, 2, 1, true),
        conv_of(1, 15, 20, 3, 16, 1, 3, 1, false), conv_of(3, 9, 16, 3, 16, 1, 1, 16, true),
        conv_of(3, 9, 33, 3, 33, 2, 1, 33, true),  conv_of(1, 12, 20, 5, 20, 1, 2, 20, true),
        conv_of(3, 9, 20, 3, 20, 1, 1, 5, true),   conv_of(3, 9, 32, 3, 64, 1, 1, 2, true),
        conv_of(3, 9, 16, 3, 32, 1, 1, 16, true),  conv_of(2, 9, 20, 3, 20, 3, 2, 5, true),
        conv_of(1, 1, 33, 1, 16, 1, 1, 1, false),  conv_of(7, 5, 3, 5, 3, 1, 1, 3, true),
        conv_of(3, 14, 3, 1, 20, 2, 1, 1, false),  conv_of(3, 15, 4, 1, 8, 2, 1, 1, false),
        conv_of(2, 13, 13, 1, 16, 2, 1, 1, false), conv_of(2, 14, 256, 1, 20, 1, 1, 1, false),
    };
    for (size_t i = 0; i < sizeof convs / sizeof *convs; i++) {
        t->conv = convs[i];
        t->conv.relu = i % 2 == 1;
        if (!try_conv(t))
            return false;
    }
    return true;
}

static ls_dnn_conv random_conv(void)
{
    const int64_t channels[] = { 1, 3, 16, 20, 33, 48 }, batches[] = { 1, 3, 7 };
    ls_dnn_conv v = { .n = batches[random_of(3)], .c = channels[random_of(6)], .o = channels[random_of(6)] };
    v.groups = 1;
    switch (random_of(4)) {
    case 0: /* depthwise, with one or two outputs a channel */
        v.groups = v.c;
        v.o = v.c * (1 + random_of(2));
        break;
    case 1:
        for (int64_t g = 2; g <= 5; g++)
            if (v.c % g == 0 && v.o % g == 0)
                v.groups = g;
        break;
    }
    v.h = 6 + random_of(9);
    v.w = 6 + random_of(9);
    v.kh = 1 + random_of(4);
    v.kw = 1 + random_of(4);
    for (int axis = 0; axis < 2; axis++) {
        v.stride[axis] = 1 + random_of(3);
        v.dilation[axis] = random_of(3) == 0 ? 2 : 1;
        if (((axis == 0 ? v.kh : v.kw) - 1) * v.dilation[axis] + 1 > 6)
            v.dilation[axis] = 1;
        int64_t most = axis == 0 ? v.kh : v.kw;
        place_axis(&v, axis, random_of(2) == 0, random_of(most), random_of(most));
    }
    v.bias = random_of(2) == 0;
    v.relu = random_of(2) == 0;
    return v;
}

/* Of the weights of a kernel with more cells than the image, or of an image with wide strides, many gradients are
 * zero with reason. */
static bool worth_trying(const ls_dnn_conv *v)
{
    return v->stride[0] * v->stride[1] <= 4 || v->kh * v->kw >= 4;
}

static bool random_convolutions(trial *t)
{
    random_state = 20240501;
    for (int done = 0; done < 150;) {
        t->conv = random_conv();
        if (!worth_trying(&t->conv))
            continue;
        if (!try_conv(t))
            return false;
        done++;
    }
    return true;
}

/* Most are done by oneDNN; a test that only sees refusals tests nothing. */
static bool mostly_made(const trial *t)
{
    for (int kind = 0; kind < 3; kind++)
        if (t->made[kind] < 4 * t->refused[kind])
            return bad(t->w, "of kind %d oneDNN made %d and refused %d", kind, t->made[kind], t->refused[kind]);
    return true;
}

static bool convolve_named(work *w)
{
    trial t = { .w = w };
    return named_convolutions(&t) && mostly_made(&t);
}

static bool convolve_random(work *w)
{
    trial t = { .w = w };
    return random_convolutions(&t) && mostly_made(&t);
}

static void named_convolutions_agree_with_the_definition(void **state)
{
    (void)state;
    must(convolve_named);
}

static void random_convolutions_agree_with_the_definition(void **state)
{
    (void)state;
    must(convolve_random);
}

/* ---- formats ---- */

static bool agree_on_format(work *w, maker *make)
{
    const int64_t batches[] = { 8, 1, 2, 32 };
    const struct {
        int64_t size, c, o;
    } layers[] = { { 28, 1, 16 }, { 13, 16, 32 }, { 28, 3, 64 }, { 14, 64, 64 }, { 9, 20, 33 } };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        ls_dnn_op *first = NULL;
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            ls_dnn_conv v = conv_of(batches[b], layers[i].size, layers[i].c, 3, layers[i].o, 1, 1, 1, true);
            ls_dnn_op *op;
            GOOD(w, make(w->dnn, &v, first, &op));
            if (first == NULL) {
                first = op;
                continue;
            }
            if (!ls_dnn_same_weights(first, op) || ls_dnn_op_weights_bytes(first) != ls_dnn_op_weights_bytes(op))
                return bad(w, "batch %d of layer %zu has another format", (int)batches[b], i);
            ls_dnn_op_destroy(op);
        }
        ls_dnn_op_destroy(first);
    }
    return true;
}

static bool agree_on_formats(work *w)
{
    return agree_on_format(w, ls_dnn_conv_forward) && agree_on_format(w, ls_dnn_conv_backward_data) &&
           agree_on_format(w, ls_dnn_conv_backward_weights);
}

static void batch_sizes_share_one_format(void **state)
{
    (void)state;
    must(agree_on_formats);
}

static bool wrong_calls(work *w)
{
    ls_dnn_conv v = conv_of(2, 9, 16, 3, 32, 1, 1, 1, true), other = conv_of(2, 9, 16, 5, 32, 1, 1, 1, true);
    ls_dnn_op *op, *second = NULL;
    GOOD(w, ls_dnn_conv_forward(w->dnn, &v, NULL, &op));
    if (ls_dnn_conv_forward(w->dnn, &other, op, &second) != LS_ERR_INVALID)
        return bad(w, "like another kernel is taken");
    v.oh++;
    if (ls_dnn_conv_forward(w->dnn, &v, NULL, &second) != LS_ERR_DEVICE ||
        strstr(ls_last_error(), "[2,9,9,16] by 3x3 to [10,9,32]") == NULL || strstr(ls_last_error(), "status") == NULL)
        return bad(w, "an impossible output: %s", ls_last_error());
    v.oh--;
    v.groups = 3;
    if (ls_dnn_conv_forward(w->dnn, &v, NULL, &second) != LS_ERR_INVALID)
        return bad(w, "3 groups of 16 channels are taken");
    v.groups = 0;
    if (ls_dnn_conv_backward_data(w->dnn, &v, NULL, &second) != LS_ERR_INVALID)
        return bad(w, "0 groups are taken");
    float one = 0;
    if (ls_dnn_run_backward_data(op, 0, &one, &one, &one, &one) != LS_ERR_INTERNAL ||
        ls_dnn_run_forward(op, WORKERS, &one, &one, &one, &one, &one) != LS_ERR_INTERNAL ||
        ls_dnn_run_forward(op, 0, &one, &one, NULL, &one, &one) != LS_ERR_INTERNAL)
        return bad(w, "a wrong run is taken");
    ls_dnn_op_destroy(op);
    ls_dnn_op_destroy(NULL);
    ls_dnn_close(NULL);
    return second == NULL;
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    must(wrong_calls);
}

/* ---- matrix products ---- */

typedef struct product {
    ls_dnn_matmul v;
    array a, b, bias, c;
    sums want;
} product;

static product product_new(const ls_dnn_matmul *v)
{
    int64_t lda = v->lda ? v->lda : v->ta ? v->m : v->k, ldb = v->ldb ? v->ldb : v->tb ? v->k : v->n;
    product p = { .v = *v,
                  .a = array_random(lda * (v->ta ? v->k : v->m)),
                  .bias = array_random(v->n),
                  .b = array_random(ldb * (v->tb ? v->n : v->k)),
                  .c = array_new(v->m * v->n, false),
                  .want = sums_new(v->m * v->n) };
    for (int64_t i = 0; i < v->m * v->n; i++) {
        int64_t row = i / v->n, column = i % v->n;
        for (int64_t k = 0; k < v->k; k++)
            sums_add(&p.want, i,
                     (double)p.a.data[v->ta ? k * lda + row : row * lda + k] *
                         p.b.data[v->tb ? column * ldb + k : k * ldb + column]);
        if (v->bias)
            sums_add(&p.want, i, p.bias.data[column]);
    }
    return p;
}

static void product_free(product *p)
{
    array_free(&p->a);
    array_free(&p->b);
    array_free(&p->bias);
    array_free(&p->c);
    sums_free(&p->want);
}

static const ls_dnn_matmul products[] = {
    { .m = 8, .n = 10, .k = 800 },
    { .m = 8, .n = 10, .k = 800, .bias = true },
    { .m = 1, .n = 33, .k = 77, .bias = true },
    { .m = 7, .n = 20, .k = 33, .lda = 40, .ldb = 21 },
    { .m = 7, .n = 800, .k = 10, .tb = true },
    { .m = 5, .n = 1, .k = 1 },
    { .m = 800, .n = 10, .k = 8, .ta = true },
    { .m = 31, .n = 17, .k = 3, .ta = true, .tb = true, .lda = 35, .ldb = 5 },
    { .m = 64, .n = 128, .k = 784 },
};

static bool multiply(work *w)
{
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        product p = product_new(&products[i]);
        ls_dnn_op *op;
        GOOD(w, ls_dnn_matmul_create(w->dnn, &p.v, &op));
        array scratch = array_bytes(ls_dnn_op_scratch_bytes(op));
        GOOD(w, ls_dnn_run_matmul(op, 1, p.a.data, p.b.data, p.bias.data, p.c.data, scratch.data));
        if (!close_to(w, "matmul", &p.c, &p.want) || !guarded(&scratch))
            return bad(w, "product %zu: %.300s", i, w->error[0] ? w->error : "wrote beside its scratch");
        ls_dnn_op_destroy(op);
        array_free(&scratch);
        product_free(&p);
    }
    return true;
}

static bool multiply_at_once(work *w)
{
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        if (products[i].bias)
            continue;
        product p = product_new(&products[i]);
        const ls_dnn_matmul *v = &p.v;
        int64_t lda = v->lda ? v->lda : v->ta ? v->m : v->k, ldb = v->ldb ? v->ldb : v->tb ? v->k : v->n;
        for (int beta = 0; beta < 2; beta++) {
            GOOD(w, ls_dnn_sgemm(v->ta, v->tb, v->m, v->n, v->k, p.a.data, lda, p.b.data, ldb, (float)beta, p.c.data,
                                 v->n));
            if (!close_to(w, "sgemm", &p.c, &p.want))
                return bad(w, "product %zu with beta %d: %.300s", i, beta, w->error);
            for (int64_t j = 0; j < p.want.count; j++)
                sums_add(&p.want, j, p.want.value[j]);
        }
        product_free(&p);
    }
    if (ls_dnn_sgemm(false, false, 2, 2, 2, NULL, 1, NULL, 1, 0, NULL, 1) != LS_ERR_DEVICE ||
        strstr(ls_last_error(), "2x2") == NULL)
        return bad(w, "a leading dimension below the width is taken");
    return true;
}

static void products_agree_with_the_definition(void **state)
{
    (void)state;
    must(multiply);
    must(multiply_at_once);
}

/* A row's bits do not depend on how many rows there are, where the header says so. */
static bool rows_alone(work *w)
{
    const int64_t rows[] = { 1, 2, 3, 7, 8, 16, 31, 63, 64 };
    for (int tb = 0; tb < 2; tb++) {
        ls_dnn_matmul v = { .m = 64, .n = 130, .k = 500, .tb = tb };
        product p = product_new(&v);
        array c = array_new(v.m * v.n, false);
        for (int i = (int)(sizeof rows / sizeof *rows) - 1; i >= 0; i--) {
            ls_dnn_op *op;
            v.m = rows[i];
            GOOD(w, ls_dnn_matmul_create(w->dnn, &v, &op));
            array scratch = array_bytes(ls_dnn_op_scratch_bytes(op));
            float *out = v.m == 64 ? p.c.data : c.data;
            GOOD(w, ls_dnn_run_matmul(op, 0, p.a.data, p.b.data, NULL, out, scratch.data));
            bool promised = strncmp(ls_dnn_op_name(op), "brg:", 4) == 0;
            if (promised && memcmp(out, p.c.data, (size_t)(v.m * v.n) * sizeof(float)) != 0)
                return bad(w, "%d rows have other bits than 64", (int)v.m);
            ls_dnn_op_destroy(op);
            array_free(&scratch);
        }
        array_free(&c);
        product_free(&p);
    }
    return true;
}

static void a_row_has_the_same_bits_among_any_others(void **state)
{
    (void)state;
    must(rows_alone);
}

/* ---- threads ---- */

#define ROUNDS 500

typedef struct crowd {
    ls_dnn_op *op;
    int worker;
    const float *x, *dy; /* x is this worker's own */
    array alone, out;    /* the gradient, with nobody else running and among others */
    pthread_barrier_t *start;
    char error[300];
} crowd;

static ls_status crowd_run(crowd *c, float *out, void *scratch)
{
    memset(out, 0xff, ls_dnn_op_weights_bytes(c->op));
    return ls_dnn_run_backward_weights(c->op, c->worker, c->x, c->dy, out, NULL, scratch);
}

static void *crowd_thread(void *at)
{
    crowd *c = at;
    ls_dnn_enter_thread();
    array scratch = array_bytes(ls_dnn_op_scratch_bytes(c->op));
    pthread_barrier_wait(c->start);
    for (int i = 0; i < ROUNDS && c->error[0] == '\0'; i++)
        if (crowd_run(c, c->out.data, scratch.data) != LS_OK)
            snprintf(c->error, sizeof c->error, "%s", ls_last_error());
        else if (memcmp(c->out.data, c->alone.data, ls_dnn_op_weights_bytes(c->op)) != 0)
            snprintf(c->error, sizeof c->error, "round %d has other bits than alone", i);
    if (!guarded(&scratch) || !guarded(&c->out))
        snprintf(c->error, sizeof c->error, "wrote beside its arrays");
    array_free(&scratch);
    return NULL;
}

static bool run_crowd(work *w, crowd crowds[WORKERS])
{
    pthread_t threads[WORKERS];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, WORKERS);
    for (int i = 0; i < WORKERS; i++) {
        crowds[i].start = &start;
        if (pthread_create(&threads[i], NULL, crowd_thread, &crowds[i]) != 0)
            abort();
    }
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
    for (int i = 0; i < WORKERS; i++)
        if (crowds[i].error[0] != '\0')
            return bad(w, "worker %d: %s", i, crowds[i].error);
    return true;
}

static bool share_an_op(work *w)
{
    ls_dnn_conv v = conv_of(4, 13, 20, 3, 33, 1, 1, 1, true);
    v.bias = false;
    ls_dnn_op *op;
    GOOD(w, ls_dnn_conv_backward_weights(w->dnn, &v, NULL, &op));
    array x = array_random(count_x(&v) + WORKERS), dy = array_random(count_y(&v));
    array scratch = array_bytes(ls_dnn_op_scratch_bytes(op));
    crowd crowds[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        crowds[i] = (crowd){ .op = op, .worker = i, .x = x.data + i, .dy = dy.data };
        crowds[i].alone = array_bytes(ls_dnn_op_weights_bytes(op));
        crowds[i].out = array_bytes(ls_dnn_op_weights_bytes(op));
        GOOD(w, crowd_run(&crowds[i], crowds[i].alone.data, scratch.data));
    }
    bool good = run_crowd(w, crowds);
    for (int i = 0; i < WORKERS; i++) {
        array_free(&crowds[i].alone);
        array_free(&crowds[i].out);
    }
    array_free(&x);
    array_free(&dy);
    array_free(&scratch);
    ls_dnn_op_destroy(op);
    return good;
}

static void workers_share_an_operation(void **state)
{
    (void)state;
    must(share_an_op);
}

static bool do_nothing(work *w)
{
    return omp_get_max_threads() == 1 ? true : bad(w, "a library thread sees %d threads", omp_get_max_threads());
}

static void the_callers_openmp_is_left_alone(void **state)
{
    (void)state;
    int before = omp_get_max_threads();
    omp_set_num_threads(3);
    must(do_nothing);
    must(share_an_op);
    assert_int_equal(omp_get_max_threads(), 3);

    ls_dnn *dnn;
    ls_dnn_op *op;
    ls_dnn_conv v = conv_of(1, 9, 16, 3, 16, 1, 1, 1, true);
    float one = 0;
    assert_int_equal(ls_dnn_open(1, &dnn), LS_OK);
    assert_int_equal(ls_dnn_conv_forward(dnn, &v, NULL, &op), LS_ERR_INTERNAL);
    assert_int_equal(ls_dnn_sgemm(false, false, 1, 1, 1, &one, 1, &one, 1, 0, &one, 1), LS_ERR_INTERNAL);
    assert_non_null(strstr(ls_last_error(), "did not enter"));
    ls_dnn_close(dnn);
    assert_int_equal(omp_get_max_threads(), 3);
    omp_set_num_threads(before);
}

/* ---- the same bits under any environment: this program runs itself ---- */

static bool hash_conv(work *w, const ls_dnn_conv *v, ls_sha256 *hash)
{
    array x = array_random(count_x(v)), dy = array_random(count_y(v)), bias = array_random(v->o);
    trial t = { .w = w, .conv = *v, .kernel = array_random(count_kernel(v)) };
    ls_dnn_op *op[3];
    GOOD(w, ls_dnn_conv_forward(w->dnn, v, NULL, &op[0]));
    GOOD(w, ls_dnn_conv_backward_data(w->dnn, v, NULL, &op[1]));
    GOOD(w, ls_dnn_conv_backward_weights(w->dnn, v, NULL, &op[2]));
    array packed[3], y = array_new(count_y(v), false), dx = array_new(count_x(v), false), scratch[3];
    for (int i = 0; i < 3; i++) {
        if (!pack(&t, op[i], &packed[i]))
            return false;
        scratch[i] = array_bytes(ls_dnn_op_scratch_bytes(op[i]));
    }
    GOOD(w, ls_dnn_run_forward(op[0], 0, x.data, packed[0].data, bias.data, y.data, scratch[0].data));
    GOOD(w, ls_dnn_run_backward_data(op[1], 0, dy.data, packed[1].data, dx.data, scratch[1].data));
    GOOD(w, ls_dnn_run_backward_weights(op[2], 0, x.data, dy.data, packed[2].data, bias.data, scratch[2].data));
    const array *results[] = { &y, &dx, &packed[2], &bias };
    for (int i = 0; i < 4; i++)
        GOOD(w, ls_sha256_add(hash, results[i]->data, (size_t)results[i]->count * sizeof(float)));
    array *all[] = { &x,     &dy,        &bias,      &t.kernel, &y,          &dx,
                     packed, packed + 1, packed + 2, scratch,   scratch + 1, scratch + 2 };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        array_free(all[i]);
    for (int i = 0; i < 3; i++)
        ls_dnn_op_destroy(op[i]);
    return true;
}

static bool hash_product(work *w, int64_t m, int64_t n, int64_t k, bool ta, ls_sha256 *hash)
{
    ls_dnn_matmul v = { .m = m, .n = n, .k = k, .ta = ta };
    array a = array_random(m * k), b = array_random(k * n), c = array_new(m * n, false);
    ls_dnn_op *op;
    GOOD(w, ls_dnn_matmul_create(w->dnn, &v, &op));
    array scratch = array_bytes(ls_dnn_op_scratch_bytes(op));
    GOOD(w, ls_dnn_run_matmul(op, 0, a.data, b.data, NULL, c.data, scratch.data));
    GOOD(w, ls_sha256_add(hash, c.data, (size_t)c.count * sizeof(float)));
    GOOD(w, ls_dnn_sgemm(ta, false, m, n, k, a.data, ta ? m : k, b.data, n, 0, c.data, n));
    GOOD(w, ls_sha256_add(hash, c.data, (size_t)c.count * sizeof(float)));
    ls_dnn_op_destroy(op);
    array_free(&a);
    array_free(&b);
    array_free(&c);
    array_free(&scratch);
    return true;
}

/* The shapes that were seen to differ when made under other thread counts. */
static bool hash_all(work *w)
{
    random_state = 7;
    ls_sha256 *hash;
    GOOD(w, ls_sha256_begin(&hash));
    const ls_dnn_conv convs[] = { conv_of(4, 56, 64, 3, 64, 1, 1, 1, true),  conv_of(4, 13, 16, 3, 32, 1, 1, 1, false),
                                  conv_of(8, 13, 16, 3, 32, 1, 1, 1, false), conv_of(32, 13, 16, 3, 32, 1, 1, 1, false),
                                  conv_of(2, 28, 1, 3, 16, 1, 1, 1, false),  conv_of(2, 14, 256, 1, 64, 1, 1, 1, false),
                                  conv_of(2, 14, 48, 3, 48, 1, 1, 48, true) };
    for (size_t i = 0; i < sizeof convs / sizeof *convs; i++)
        if (!hash_conv(w, &convs[i], hash))
            return false;
    if (!hash_product(w, 8, 64, 2048, false, hash) || !hash_product(w, 784, 128, 32, true, hash))
        return false;
    GOOD(w, ls_sha256_end(hash, w->data));
    return true;
}

/* Runs this program with `mode` and one variable of the environment set (NULL: unset); takes what it prints. */
static void run_self(const char *mode, const char *name, const char *value, char *out, size_t size)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], 1);
        if (value != NULL)
            setenv(name, value, 1);
        else
            unsetenv(name);
        execl("/proc/self/exe", "test_onednn", mode, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    size_t got = 0;
    for (ssize_t n; (n = read(ends[0], out + got, size - 1 - got)) > 0;)
        got += (size_t)n;
    out[got] = '\0';
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s with %s=%s: status %x: %s", mode, name, value ? value : "(unset)", (unsigned)status, out);
}

static void bits_do_not_depend_on_the_environment(void **state)
{
    (void)state;
    char first[700], other[700];
    run_self("--hash", "OMP_NUM_THREADS", NULL, first, sizeof first);
    assert_int_equal(strlen(first), 64);
    const char *const counts[] = { "1", "2", "8", "64" };
    for (int i = 0; i < 4; i++) {
        run_self("--hash", "OMP_NUM_THREADS", counts[i], other, sizeof other);
        if (strcmp(other, first) != 0)
            fail_msg("other bits with OMP_NUM_THREADS=%s", counts[i]);
    }
    run_self("--hash", "ONEDNN_DEFAULT_FPMATH_MODE", "ANY", other, sizeof other);
    assert_string_equal(other, first);
}

/* The instruction set is what the environment says, in either spelling, and both are among what decides the bits. */
static void the_instruction_set_is_named_and_can_be_limited(void **state)
{
    (void)state;
    char text[700];
    run_self("--identity", "DNNL_MAX_CPU_ISA", NULL, text, sizeof text);
    assert_memory_equal(text, "oneDNN ", 7);
    if (strstr(text, "avx") == NULL || getenv("ONEDNN_MAX_CPU_ISA") != NULL) /* which goes first */
        SKIP("no AVX here, or a limit is set");
    run_self("--identity", "DNNL_MAX_CPU_ISA", "SSE41", text, sizeof text);
    assert_non_null(strstr(text, " sse41"));
    run_self("--identity", "ONEDNN_MAX_CPU_ISA", "sse41", text, sizeof text);
    assert_non_null(strstr(text, " sse41"));
    char small[8];
    ls_dnn_identity(small, sizeof small);
    assert_string_equal(small, "oneDNN ");
}

static void convolutions_agree_with_less_instructions(void **state)
{
    (void)state;
    char text[700];
    run_self("--convolve", "DNNL_MAX_CPU_ISA", "AVX2", text, sizeof text);
}

static int run_mode(const char *mode)
{
    char result[128] = "";
    work w = { .data = result };
    if (strcmp(mode, "--identity") == 0) {
        ls_dnn_identity(result, sizeof result);
    } else {
        w.body = strcmp(mode, "--hash") == 0 ? hash_all : convolve_named;
        on_library_thread(&w);
    }
    printf("%s%s", w.error, result);
    return w.error[0] == '\0' ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return run_mode(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_convolutions_agree_with_the_definition),
        cmocka_unit_test(random_convolutions_agree_with_the_definition),
        cmocka_unit_test(batch_sizes_share_one_format),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(products_agree_with_the_definition),
        cmocka_unit_test(a_row_has_the_same_bits_among_any_others),
        cmocka_unit_test(workers_share_an_operation),
        cmocka_unit_test(the_callers_openmp_is_left_alone),
        cmocka_unit_test(bits_do_not_depend_on_the_environment),
        cmocka_unit_test(the_instruction_set_is_named_and_can_be_limited),
        cmocka_unit_test(convolutions_agree_with_less_instructions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
