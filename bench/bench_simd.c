/* Speed of the vector kernels by instruction set: the best of several interleaved runs, in GB/s of
 * memory that must at least be read and written. "L2": arrays that fit into the second cache, as a
 * micro-batch does; "memory": arrays far larger than any cache. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/simd.h"
#include "base/clock.h"

#define L2_FLOATS     (96 * 1024)
#define MEMORY_FLOATS (16 * 1024 * 1024)
#define CHANNELS      64
#define BLOCK         256 /* positions */
#define LANES         8

typedef struct arrays {
    float *x, *y, *z, *v; /* n floats each */
    size_t n;
    float row[8][2048];
    double sums[4096];
    float chains[2 * CHANNELS];
} arrays;

/* ---- Measured functions: each returns the bytes it moves ---- */

static double relu(const ls_simd *t, arrays *a)
{
    t->relu(a->y, a->x, a->n);
    return 8.0 * (double)a->n;
}

static double add(const ls_simd *t, arrays *a)
{
    t->add(a->y, a->x, a->z, a->n);
    return 12.0 * (double)a->n;
}

static double exponential(const ls_simd *t, arrays *a)
{
    t->exp(a->y, a->x, a->n);
    return 8.0 * (double)a->n;
}

static double gelu(const ls_simd *t, arrays *a)
{
    t->gelu(a->y, a->x, a->n);
    return 8.0 * (double)a->n;
}

static double range(const ls_simd *t, arrays *a)
{
    a->sums[0] = t->range(a->x, a->n);
    return 4.0 * (double)a->n;
}

static double sum_squares(const ls_simd *t, arrays *a)
{
    a->sums[0] = t->sum_squares(a->x, a->n);
    return 4.0 * (double)a->n;
}

static double join(const ls_simd *t, arrays *a)
{
    size_t n = a->n / LANES - 1040; /* not a power of two, so that lanes use different sets of the caches */
    const float *lane[LANES];
    for (size_t i = 0; i < LANES; i++)
        lane[i] = a->x + i * n;
    t->join_f32(a->y, lane, LANES, 0, n);
    return 4.0 * (double)n * (LANES + 1);
}

static double channel_sum(const ls_simd *t, arrays *a)
{
    for (size_t at = 0; at + BLOCK <= a->n / CHANNELS; at += BLOCK)
        t->channel_sum(a->row[0], a->x + at * CHANNELS, &(size_t){ BLOCK }, 1, CHANNELS);
    return 4.0 * (double)a->n;
}

static double moments(const ls_simd *t, arrays *a)
{
    for (size_t at = 0; at + BLOCK <= a->n / CHANNELS; at += BLOCK)
        t->moments(a->sums, a->x + at * CHANNELS, BLOCK, CHANNELS);
    return 4.0 * (double)a->n;
}

static double batch_norm(const ls_simd *t, arrays *a)
{
    t->batch_norm(a->y, a->x, a->row[0], a->row[1], a->row[2], a->n / CHANNELS, CHANNELS, true);
    return 8.0 * (double)a->n;
}

static double batch_norm_add(const ls_simd *t, arrays *a)
{
    t->batch_norm_add(a->y, a->x, a->row[0], a->row[1], a->row[2], a->z, a->n / CHANNELS, CHANNELS, true);
    return 12.0 * (double)a->n;
}

static double grad_moments(const ls_simd *t, arrays *a)
{
    for (size_t at = 0; at + BLOCK <= a->n / CHANNELS; at += BLOCK)
        t->batch_norm_grad_moments(a->chains, a->z + at * CHANNELS, a->x + at * CHANNELS, a->row[0], a->row[1],
                                   a->row[2], a->row[3], NAN, NULL, BLOCK, CHANNELS);
    return 8.0 * (double)a->n;
}

static double grad_input(const ls_simd *t, arrays *a)
{
    t->batch_norm_grad_input(a->y, a->z, a->x, a->row[0], a->row[1], a->row[2], a->row[3], NAN, NULL, a->row[4],
                             a->row[5], a->n / CHANNELS, CHANNELS);
    return 12.0 * (double)a->n;
}

/* 2x2 over 24 x 24 with c channels (mnist-cnn has 16 and 32). */
static ls_simd_pool pool_2x2(const arrays *a, int64_t c)
{
    return (ls_simd_pool){ .n = (int64_t)a->n / (24 * 24 * c),
                           .h = 24,
                           .w = 24,
                           .c = c,
                           .oh = 12,
                           .ow = 12,
                           .kh = 2,
                           .kw = 2,
                           .sh = 2,
                           .sw = 2 };
}

static double max_pool(const ls_simd *t, arrays *a)
{
    ls_simd_pool v = pool_2x2(a, 32);
    t->max_pool2d(a->y, a->x, &v, true);
    return 4.0 * 1.25 * (double)(v.n * v.h * v.w * v.c);
}

static double max_pool_grad(const ls_simd *t, arrays *a)
{
    ls_simd_pool v = pool_2x2(a, 32);
    t->max_pool2d_grad(a->y, a->x, a->z, &v, true);
    return 4.0 * 2.25 * (double)(v.n * v.h * v.w * v.c);
}

static double max_pool_16(const ls_simd *t, arrays *a)
{
    ls_simd_pool v = pool_2x2(a, 16);
    t->max_pool2d(a->y, a->x, &v, true);
    return 4.0 * 1.25 * (double)(v.n * v.h * v.w * v.c);
}

static double max_pool_grad_16(const ls_simd *t, arrays *a)
{
    ls_simd_pool v = pool_2x2(a, 16);
    t->max_pool2d_grad(a->y, a->x, a->z, &v, true);
    return 4.0 * 2.25 * (double)(v.n * v.h * v.w * v.c);
}

/* As in ResNet: 3x3, stride 2, padded. */
static ls_simd_pool pool_3x3(const arrays *a)
{
    return (ls_simd_pool){ .n = (int64_t)a->n / (32 * 32 * 64),
                           .h = 32,
                           .w = 32,
                           .c = 64,
                           .oh = 16,
                           .ow = 16,
                           .kh = 3,
                           .kw = 3,
                           .sh = 2,
                           .sw = 2,
                           .pad_top = 1,
                           .pad_left = 1 };
}

static double max_pool_3x3(const ls_simd *t, arrays *a)
{
    ls_simd_pool v = pool_3x3(a);
    t->max_pool2d(a->y, a->x, &v, false);
    return 4.0 * 1.25 * (double)(v.n * v.h * v.w * v.c);
}

static double max_pool_3x3_grad(const ls_simd *t, arrays *a)
{
    ls_simd_pool v = pool_3x3(a);
    t->max_pool2d_grad(a->y, a->x, a->z, &v, false);
    return 4.0 * 2.25 * (double)(v.n * v.h * v.w * v.c);
}

static double adam(const ls_simd *t, arrays *a)
{
    ls_tensor node = { .op = LS_OP_apply, .input_count = 3 };
    node.attr.apply.rule = LS_APPLY_ADAM;
    node.attr.apply.beta_1 = 0.9;
    node.attr.apply.beta_2 = 0.999;
    node.attr.apply.epsilon = 1e-7;
    ls_ref_update_f32 u = ls_ref_update_scalars_f32(&node, 1e-6f, 3);
    t->update(LS_APPLY_ADAM, a->x, a->z, a->y, a->v, 0, a->n, &u);
    return 28.0 * (double)a->n;
}

static double momentum(const ls_simd *t, arrays *a)
{
    ls_ref_update_f32 u = { .rate = 1e-6f, .momentum = 0.9f };
    t->update(LS_APPLY_MOMENTUM, a->x, a->z, a->y, NULL, 0, a->n, &u);
    return 20.0 * (double)a->n;
}

static double dropout(const ls_simd *t, arrays *a)
{
    size_t each = 4096;
    t->dropout(a->y, a->x, (ls_philox_key){ { 1, 2 } }, 3, 0, a->n / each, each, 0.3f);
    return 8.0 * (double)a->n;
}

static double cross_entropy(const ls_simd *t, arrays *a)
{
    static const uint8_t labels[1024];
    size_t rows = 1024;
    t->sparse_cross_entropy(a->row[6], a->y, a->x, labels, LS_U8, NULL, rows, 10);
    return 8.0 * 10 * (double)rows;
}

static double copy(const ls_simd *t, arrays *a)
{
    (void)t;
    memcpy(a->y, a->x, a->n * sizeof(float));
    return 8.0 * (double)a->n;
}

static const struct row {
    const char *name;
    double (*run)(const ls_simd *, arrays *);
} rows[] = {
    { "memcpy (for comparison)", copy },
    { "relu", relu },
    { "add", add },
    { "exp", exponential },
    { "gelu", gelu },
    { "finite", range },
    { "sum_squares", sum_squares },
    { "join_f32, 8 lanes", join },
    { "channel_sum, 64 channels", channel_sum },
    { "moments, 64 channels", moments },
    { "batch_norm + relu", batch_norm },
    { "batch_norm_add + relu", batch_norm_add },
    { "batch_norm_grad_moments", grad_moments },
    { "batch_norm_grad_input", grad_input },
    { "max_pool 2x2 + relu, 32 ch", max_pool },
    { "max_pool 2x2 grad, 32 ch", max_pool_grad },
    { "max_pool 2x2 + relu, 16 ch", max_pool_16 },
    { "max_pool 2x2 grad, 16 ch", max_pool_grad_16 },
    { "max_pool 3x3/2, 64 ch", max_pool_3x3 },
    { "max_pool 3x3/2 grad, 64 ch", max_pool_3x3_grad },
    { "adam", adam },
    { "momentum", momentum },
    { "dropout", dropout },
    { "cross-entropy, 10 classes", cross_entropy },
};

/* Returns GB/s of one run of at least about a millisecond. */
static double speed(const struct row *row, const ls_simd *table, arrays *a)
{
    double bytes = 0, start = ls_clock_now(), spent;
    do {
        bytes += row->run(table, a);
        spent = ls_clock_now() - start;
    } while (spent < 1.5e-3);
    return bytes / spent * 1e-9;
}

static float *numbers(size_t n, float from)
{
    float *x = aligned_alloc(64, n * sizeof *x);
    uint32_t state = 1;
    for (size_t i = 0; x && i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = from + (float)(state >> 8) * 0x1p-24f;
    }
    return x;
}

static int measure(const char *title, size_t n, const ls_simd *const *tables, int count)
{
    arrays a = { .x = numbers(n, -0.5f), .y = numbers(n, 0), .z = numbers(n, -0.5f), .v = numbers(n, 0), .n = n };
    if (!a.x || !a.y || !a.z || !a.v) {
        fprintf(stderr, "out of memory\n");
        return 1;
    }
    for (int r = 0; r < 8; r++)
        for (int c = 0; c < 2048; c++)
            a.row[r][c] = 0.1f * (float)(r + 1);
    printf("\n%s, GB/s%*s", title, 24 - (int)strlen(title), "");
    for (int t = 0; t < count; t++)
        printf("%10s", tables[t]->name);
    printf("\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double best[3] = { 0, 0, 0 };
        for (int turn = 0; turn < 7; turn++) {
            for (int t = 0; t < count; t++) {
                double got = speed(&rows[i], tables[t], &a);
                best[t] = got > best[t] ? got : best[t];
            }
        }
        printf("%-30s", rows[i].name);
        for (int t = 0; t < count; t++)
            printf("%10.1f", best[t]);
        printf("\n");
    }
    free(a.x);
    free(a.y);
    free(a.z);
    free(a.v);
    return 0;
}

int main(void)
{
    static const char *const names[] = { "base", "avx2", "avx512" };
    const ls_simd *tables[3];
    int count = 0;
    for (int i = 0; i < 3; i++)
        if (ls_simd_named(names[i]))
            tables[count++] = ls_simd_named(names[i]);
    if (measure("L2", L2_FLOATS, tables, count))
        return 1;
    return measure("memory", MEMORY_FLOATS, tables, count);
}
