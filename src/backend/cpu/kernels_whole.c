/* Reductions of whole float32 tensors, in tiles of outputs: sums (in float64, rounded once), maxima
 * and minima over adjacent axes; squared norms. */
#include <string.h>

#include "backend/cpu/cpu.h"

#define CHUNK 512 /* columns reduced together */

/* x [outer, gone, inner] to y [outer, inner] */
typedef struct whole {
    ls_cpu_kernel base;
    int64_t outer, gone, inner;
} whole;

/* Tiles store the sums of their blocks, which are added in order, as in sum_squares. */
#define BLOCK 4096
typedef struct squares {
    ls_cpu_kernel base;
    size_t elements, blocks;
    double block[];
} squares;
_Static_assert(LS_TILE % BLOCK == 0, "tiles are whole blocks");

static ls_status run_squares(ls_kernel *kernel, const ls_kernel_call *call)
{
    squares *s = (squares *)kernel;
    const ls_simd *simd = ls_simd_of(kernel);
    const float *x = call->in[0];
    size_t to = (size_t)call->to;
    for (size_t i = (size_t)call->from; i < to; i += BLOCK)
        s->block[i / BLOCK] = simd->sum_squares(x + i, to - i < BLOCK ? to - i : BLOCK);
    if (to > 0)
        return LS_OK;
    double sum = 0;
    for (size_t b = 0; b < s->blocks; b++)
        sum += s->block[b];
    *(double *)call->out = s->blocks ? sum : simd->sum_squares(x, s->elements);
    return LS_OK;
}

static ls_status make_squares(ls_cpu *cpu, const ls_group *group, int64_t elements, ls_kernel **out)
{
    /* 0: not tiled */
    size_t blocks = elements > LS_TILE ? ((size_t)elements + BLOCK - 1) / BLOCK : 0;
    squares *s =
        ls_cpu_kernel_new(cpu, group, sizeof(*s) + blocks * sizeof(*s->block), "simd squared norm", run_squares);
    if (!s)
        return LS_ERR_MEMORY;
    s->elements = (size_t)elements;
    s->blocks = blocks;
    s->base.base.tiled = blocks > 0;
    s->base.base.tiled_input = elements;
    *out = &s->base.base;
    return LS_OK;
}

/* Outputs from .. to-1, in runs of at most CHUNK columns with the same outer index. */
typedef void column_kernel(const whole *w, const float *x, float *y, size_t columns);

static ls_status for_runs(const whole *w, const ls_kernel_call *call, column_kernel *reduce)
{
    int64_t end = call->to > 0 ? call->to : w->outer * w->inner;
    for (int64_t at = call->from; at < end;) {
        int64_t o = at / w->inner, i = at % w->inner, n = w->inner - i;
        n = n < end - at ? n : end - at;
        n = n < CHUNK ? n : CHUNK;
        reduce(w, (const float *)call->in[0] + (o * w->gone) * w->inner + i, (float *)call->out + at, (size_t)n);
        at += n;
    }
    return LS_OK;
}

static void sum_columns(const whole *w, const float *x, float *y, size_t columns)
{
    const ls_simd *simd = w->base.cpu->simd;
    double total[CHUNK], next[CHUNK];
    if (w->inner == 1) {
        *y = (float)simd->sum_wide(x, (size_t)w->gone);
        return;
    }
    memset(total, 0, columns * sizeof(*total));
    for (int64_t g = 0; g < w->gone; g++) {
        simd->f32_to_f64(next, x + g * w->inner, columns);
        simd->accumulate_f64(total, next, columns);
    }
    simd->f64_to_f32(y, total, columns);
}

/* Combines the chunks of a contiguous run elementwise, then reduces within one. The first of equal
 * values wins, which matters only for +0 and -0. */
static float extreme_of_run(const whole *w, const float *x, bool largest)
{
    ls_simd_binary *better = largest ? w->base.cpu->simd->maximum : w->base.cpu->simd->minimum;
    float best[CHUNK];
    size_t n = (size_t)w->gone, width = n < CHUNK ? n : CHUNK;
    memcpy(best, x, width * sizeof(*best));
    for (size_t i = width; i < n; i += width)
        better(best, best, x + i, n - i < width ? n - i : width);
    for (; width > 1; width = (width + 1) / 2)
        better(best, best, best + (width + 1) / 2, width / 2);
    for (size_t i = 0; best[0] == 0; i++)
        if (x[i] == 0)
            return x[i];
    return best[0];
}

static void extreme_columns(const whole *w, const float *x, float *y, size_t columns, bool largest)
{
    ls_simd_binary *better = largest ? w->base.cpu->simd->maximum : w->base.cpu->simd->minimum;
    if (w->inner == 1) {
        *y = extreme_of_run(w, x, largest);
        return;
    }
    memcpy(y, x, columns * sizeof(*y));
    for (int64_t g = 1; g < w->gone; g++)
        better(y, y, x + g * w->inner, columns);
}

static void max_columns(const whole *w, const float *x, float *y, size_t columns)
{
    extreme_columns(w, x, y, columns, true);
}

static void min_columns(const whole *w, const float *x, float *y, size_t columns)
{
    extreme_columns(w, x, y, columns, false);
}

static ls_status run_sum(ls_kernel *kernel, const ls_kernel_call *call)
{
    return for_runs((const whole *)kernel, call, sum_columns);
}

static ls_status run_max(ls_kernel *kernel, const ls_kernel_call *call)
{
    return for_runs((const whole *)kernel, call, max_columns);
}

static ls_status run_min(ls_kernel *kernel, const ls_kernel_call *call)
{
    return for_runs((const whole *)kernel, call, min_columns);
}

/* The reduced axes must be adjacent, sizes known and nothing empty. */
static bool split_axes(whole *w, const ls_tensor *node)
{
    const ls_shape *x = &node->in[0]->shape;
    int64_t axes = node->attr.reduce.axes, *part[] = { &w->outer, &w->gone, &w->inner };
    int at = 0;
    w->outer = w->gone = w->inner = 1;
    for (int i = 0; i < x->rank; i++) {
        bool goes = axes >> i & 1;
        if (goes && at == 0)
            at = 1;
        else if (!goes && at == 1)
            at = 2;
        else if (goes && at == 2)
            return false;
        if (x->dims[i] < 1)
            return false;
        *part[at] *= x->dims[i];
    }
    return true;
}

ls_status ls_cpu_make_whole(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out)
{
    (void)samples, (void)kinds;
    const ls_tensor *node = group->root, *x = group->nodes[0]->input_count ? group->nodes[0]->in[0] : NULL;
    ls_status (*run)(ls_kernel *, const ls_kernel_call *) = node->op == LS_OP_reduce_sum   ? run_sum
                                                            : node->op == LS_OP_reduce_max ? run_max
                                                            : node->op == LS_OP_reduce_min ? run_min
                                                                                           : NULL;
    whole probe = { .outer = 1, .inner = 1 };
    if (!run || group->per_sample || !x || x->dtype != LS_F32)
        return ls_cpu_pass();
    if (group->fusion == LS_FUSE_SQUARES)
        return make_squares(cpu, group, ls_cpu_elements(group->plan, x), out);
    if (group->node_count != 1 || !split_axes(&probe, node))
        return ls_cpu_pass();
    whole *w = ls_cpu_kernel_new(cpu, group, sizeof(*w), "simd reduce", run);
    if (!w)
        return LS_ERR_MEMORY;
    probe.base = w->base;
    *w = probe;
    w->base.base.tiled = true;
    /* Elements read per tile, or a chunk. */
    int64_t least = w->inner > 1 ? CHUNK : 1, tile = LS_TILE / w->gone;
    w->base.base.tile = tile > least ? tile : least;
    *out = &w->base.base;
    return LS_OK;
}
