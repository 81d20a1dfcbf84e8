/* Matrix products summed over the batch or leading axes: gradients of matrices that many samples
 * share. Positions, one for each matrix and step k, are split into blocks (backend/blocks.h) and
 * packed into panels for both operands; the output is a sum of their outer products. */
#include <string.h>

#include "backend/blocks.h"
#include "backend/cpu/cpu.h"

#define TILE_ROWS LS_GEMM_PANEL /* rows of a tile of a whole sum */
/* Outputs with more elements are written without caching. */
#define STREAM ((int64_t)128 << 10)

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

typedef struct operand {
    const float *data;
    int64_t step;    /* floats from position to position */
    int64_t columns; /* m or n */
    int64_t column;  /* floats from column to column */
} operand;

typedef struct sum {
    const ls_gemm *gemm;
    /* Leading axes whose positions continue are merged into k. */
    ls_cpu_product p;
    operand a, b;
    float *out, *chain; /* at the first row of the tile */
} sum;

/* Packs `count` positions of one matrix as positions `at`, at + 1, ... of a block of `all`:
 * [panels][all][64]. The last panel may be narrower, padded with zeros to whole vectors. */
static void pack(const ls_gemm *gemm, const operand *x, float *to, const float *from, int64_t at, int64_t count,
                 int64_t all)
{
    for (int64_t column = 0; column < x->columns; column += LS_GEMM_PANEL) {
        int64_t width = least(x->columns - column, LS_GEMM_PANEL), padded = ls_gemm_padded(width);
        float *panel = to + column * all + at * padded;
        if (x->column == 1) {
            gemm->copy_panel(panel, from + column, x->step, count, width);
            continue;
        }
        if (padded != width)
            memset(panel, 0, (size_t)(count * padded) * sizeof(*panel));
        gemm->transpose(panel, padded, from + column * x->column, x->column, width, count);
    }
}

static void pack_block(const sum *s, const ls_block_part *block, float *a, float *b)
{
    for (int64_t at = 0, count; at < block->count; at += count) {
        int64_t matrix = (block->first + at) / s->p.k, k = (block->first + at) % s->p.k, a_at, b_at;
        count = least(block->count - at, s->p.k - k);
        ls_cpu_product_at(&s->p, matrix, &a_at, &b_at);
        pack(s->gemm, &s->a, a, s->a.data + a_at + k * s->a.step, at, count, block->count);
        pack(s->gemm, &s->b, b, s->b.data + b_at + k * s->b.step, at, count, block->count);
    }
}

static void multiply_block(const sum *s, const ls_block_part *block, float *a)
{
    int64_t m = s->a.columns, n = s->b.columns, count = block->count;
    float *b = a + ls_gemm_padded(m) * count, *out = block->closes ? s->out : s->chain;
    bool lines = ((uintptr_t)out | (uintptr_t)n * sizeof(float)) % (LS_GEMM_VECTOR * sizeof(float)) == 0;
    ls_gemm_run all = { .count = (int32_t)count };
    ls_gemm_outer t = { .runs = &all, .run_count = 1, .c_step = n, .add = block->closes && block->adds };
    t.stream = lines && !t.add && block->closes && m * n >= STREAM;
    pack_block(s, block, a, b);
    for (int64_t row = 0; row < m; row += LS_GEMM_PANEL)
        for (int64_t column = 0; column < n; column += LS_GEMM_PANEL) {
            int64_t height = least(m - row, LS_GEMM_PANEL), width = least(n - column, LS_GEMM_PANEL);
            int64_t vectors = ls_gemm_vectors(width), most = s->gemm->outer_rows[vectors];
            t.a_step = ls_gemm_padded(height), t.b_step = ls_gemm_padded(width);
            t.columns = width % LS_GEMM_VECTOR ? width : 0;
            t.b = t.ahead = b + column * count;
            for (int64_t i = 0; i < height; i += most) {
                int64_t at = (row + i) * n + column;
                t.a = a + row * count + i;
                t.c = out + at, t.start = block->opens ? NULL : s->chain + at;
                s->gemm->outer_tile(least(height - i, most), vectors, &t);
            }
        }
    s->gemm->stream_end();
}

/* Only if the positions of both operands continue. */
static void fold_positions(ls_cpu_product *p)
{
    for (; p->rank > 0; p->rank--) {
        const ls_cpu_leading *last = &p->leading[p->rank - 1];
        if (last->size != 1 && (last->a != p->k * p->a_column || last->b != p->k * p->b_row))
            return;
        p->k *= last->size;
    }
}

/* Without leading axes a sample is one position of k; otherwise the first leading axis holds the
 * samples, the others the rows. */
static ls_blocks blocks_of(const ls_tensor *node, const ls_cpu_product *p, int64_t *samples)
{
    int64_t rows = 1;
    bool batch_is_k = node->use == LS_USE_REDUCES && p->rank == 0;
    for (int i = 1; i < p->rank; i++)
        rows *= p->leading[i].size;
    *samples = batch_is_k ? p->k : p->rank > 0 ? p->leading[0].size : 1;
    return batch_is_k ? ls_blocks_of(1, 1) : ls_blocks_of(rows, p->k);
}

/* Elements from .. to-1, which are whole rows. */
static void sum_rows(sum s, const ls_tensor *node, const ls_kernel_call *call, int64_t from, int64_t to)
{
    int64_t samples, row = from / s.p.n;
    ls_blocks blocks = blocks_of(node, &s.p, &samples);
    fold_positions(&s.p);
    s.a = (operand){ (const float *)call->in[0] + row * s.p.a_row, s.p.a_column, (to - from) / s.p.n, s.p.a_row };
    s.b = (operand){ call->in[1], s.p.b_row, s.p.n, s.p.b_column };
    s.out = (float *)call->out + from;
    s.chain = call->chain; /* only sums over the batch have one; these are not tiled */
    if (samples * blocks.sample == 0 && call->from_lane == 0)
        memset(s.out, 0, (size_t)(to - from) * sizeof(*s.out));
    for (ls_block_part b = { 0 }; ls_blocks_next(&blocks, call->from_lane, samples, call->ends_lane, &b);)
        multiply_block(&s, &b, call->scratch);
}

static ls_status run(ls_kernel *kernel, const ls_kernel_call *call)
{
    const ls_cpu_kernel *self = (const ls_cpu_kernel *)kernel;
    const ls_tensor *node = self->group->root;
    sum s = { .gemm = self->cpu->gemm, .p = ls_cpu_product_of(node, call->batch, call->samples) };
    int64_t end = call->to > 0 ? call->to : s.p.m * s.p.n, step = kernel->tiled ? kernel->tile : end;
    /* The scratch memory holds one tile. */
    for (int64_t from = call->from; from < end; from += step)
        sum_rows(s, node, call, from, least(end, from + step));
    return LS_OK;
}

ls_status ls_cpu_make_matmul_sum(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out)
{
    const ls_tensor *node = group->nodes[0];
    bool reduces = node->use == LS_USE_REDUCES;
    if (!ls_cpu_takes_matmul(node) || !(node->attr.matmul.sum_leading || reduces))
        return ls_cpu_pass();
    ls_cpu_kernel *kernel = ls_cpu_kernel_new(cpu, group, sizeof(*kernel), "outer products", run);
    if (!kernel)
        return LS_ERR_MEMORY;
    int64_t most = 1;
    for (int i = 0; i < kinds; i++)
        most = samples[i] > most ? samples[i] : most;
    ls_cpu_product p = ls_cpu_product_of(node, group->plan->batch, most);
    int64_t positions = least(ls_cpu_product_matrices(&p) * p.k, LS_BLOCK), rows = p.m;
    kernel->base.chains = reduces;
    if (!group->per_sample && p.m > TILE_ROWS) {
        kernel->base.tiled = p.n > 0;
        kernel->base.tile = TILE_ROWS * p.n;
        rows = TILE_ROWS;
    }
    kernel->base.scratch_bytes = (size_t)((ls_gemm_padded(rows) + ls_gemm_padded(p.n)) * positions) * sizeof(float);
    *out = &kernel->base;
    return LS_OK;
}
