/* Matrix products by their definition (docs/bits.md), in tiles: each element is a chain in the
 * order of k; in sums over leading axes or the batch, one chain per block of positions. */
#include <string.h>

#include "backend/blocks.h"
#include "backend/ref/array.h"
#include "backend/ref/real.h"

#define ROWS    16
#define COLUMNS 128
#define DEPTH   32

/* Strides of one matrix of a [m,k] and of b [k,n] after the transposes. */
typedef struct product {
    int64_t m, n, k;
    int64_t a_row, a_column, b_row, b_column;
} product;

typedef struct tile {
    int64_t row, rows, column, columns; /* rows and columns of the output */
    real sum[ROWS][COLUMNS];
} tile;

/* a's rows times b's columns for k in from .. to-1. */
static void add_product(const product *p, tile *t, const real *a, const real *b, int64_t from, int64_t to)
{
    /* The inner loop is contiguous even if b is transposed. */
    real packed[DEPTH][COLUMNS];
    for (int64_t k = from; k < to; k += DEPTH) {
        int64_t depth = ls_ref_at_most(to - k, DEPTH);
        for (int64_t d = 0; d < depth; d++)
            for (int64_t j = 0; j < t->columns; j++)
                packed[d][j] = b[(k + d) * p->b_row + (t->column + j) * p->b_column];
        for (int64_t i = 0; i < t->rows; i++) {
            for (int64_t d = 0; d < depth; d++) {
                real factor = a[(t->row + i) * p->a_row + (k + d) * p->a_column];
                for (int64_t j = 0; j < t->columns; j++)
                    t->sum[i][j] = real_madd(factor, packed[d][j], t->sum[i][j]);
            }
        }
    }
}

static void load_tile(const product *p, tile *t, const real *from)
{
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++)
            t->sum[i][j] = from ? from[(t->row + i) * p->n + t->column + j] : 0;
}

static void store_tile(const product *p, const tile *t, bool add, real *out)
{
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++) {
            real *to = &out[(t->row + i) * p->n + t->column + j];
            *to = add ? *to + t->sum[i][j] : t->sum[i][j];
        }
}

typedef void tile_function(const product *p, tile *t, void *user);

static void each_tile(const product *p, tile_function *compute, void *user)
{
    tile t;
    for (t.row = 0; t.row < p->m; t.row += ROWS)
        for (t.column = 0; t.column < p->n; t.column += COLUMNS) {
            t.rows = ls_ref_at_most(p->m - t.row, ROWS);
            t.columns = ls_ref_at_most(p->n - t.column, COLUMNS);
            compute(p, &t, user);
        }
}

/* One output matrix [m,n]: a times b. */
typedef struct single {
    const real *a, *b;
    real *out;
} single;

static void multiply(const product *p, tile *t, void *user)
{
    const single *s = user;
    load_tile(p, t, NULL);
    add_product(p, t, s->a, s->b, 0, p->k);
    store_tile(p, t, false, s->out);
}

/* The sum over leading axes, in blocks. A sample is an index of the first of these axes or, without
 * leading axes, one k. */
typedef struct sum {
    const ls_ref_call *call;
    ls_ref_walk *leading;
    ls_blocks blocks;
    int64_t samples;
} sum;

/* Positions of one pair of matrices, from number `at` on. Their block may end among them. */
static void add_positions(const product *p, tile *t, const sum *s, const real *a, const real *b, int64_t at,
                          ls_block_part *block)
{
    const ls_ref_call *call = s->call;
    for (int64_t k = 0; k < p->k;) {
        if (at + k >= block->first + block->count) {
            ls_blocks_next(&s->blocks, call->from_lane, s->samples, !call->goes_on, block);
            load_tile(p, t, block->opens ? NULL : call->chain);
        }
        int64_t end = ls_ref_at_most(p->k, block->first + block->count - at);
        add_product(p, t, a, b, k, end);
        k = end;
        if (at + k == block->first + block->count)
            store_tile(p, t, block->closes && block->adds, block->closes ? call->out.data : call->chain);
    }
}

static void multiply_blocks(const product *p, tile *t, void *user)
{
    const sum *s = user;
    ls_block_part block = { 0 };
    int64_t at = 0;
    for (ls_ref_walk_restart(s->leading); ls_ref_walk_row(s->leading);)
        for (int64_t i = 0; i < s->leading->length; i++, at += p->k)
            add_positions(p, t, s, (const real *)s->call->in[0].data + s->leading->offset[0] + i * s->leading->step[0],
                          (const real *)s->call->in[1].data + s->leading->offset[1] + i * s->leading->step[1], at,
                          &block);
}

/* The broadcast axes before the last two; operand k is input k, in elements. */
static ls_shape walk_leading(ls_ref_walk *walk, const ls_ref_array in[2])
{
    ls_shape lead[2] = { in[0].shape, in[1].shape }, over;
    for (int k = 0; k < 2; k++)
        lead[k].rank -= 2;
    const ls_shape *longer = lead[0].rank >= lead[1].rank ? &lead[0] : &lead[1];
    const ls_shape *shorter = longer == &lead[0] ? &lead[1] : &lead[0];
    over = *longer;
    for (int i = 0; i < shorter->rank; i++) {
        int64_t *size = &over.dims[longer->rank - shorter->rank + i];
        *size = *size == 1 ? shorter->dims[i] : *size;
    }
    ls_ref_walk_begin(walk, &over);
    for (int k = 0; k < 2; k++) {
        int64_t strides[LS_MAX_RANK], matrix = ls_ref_extent(&in[k].shape, lead[k].rank, in[k].shape.rank);
        ls_ref_broadcast_strides(&lead[k], &over, strides);
        for (int i = 0; i < over.rank; i++)
            strides[i] *= matrix;
        ls_ref_walk_add(walk, 0, strides);
    }
    return over;
}

/* in: a [..., m, k], b [..., k, n], last axes swapped if transposed; out [..., m, n], or [m, n] if
 * leading axes are summed. */
ls_status LS_REF(matmul)(const ls_ref_call *call)
{
    const ls_ref_array *a = &call->in[0], *b = &call->in[1];
    bool transpose_a = call->node->attr.matmul.transpose_a, transpose_b = call->node->attr.matmul.transpose_b;
    const int64_t *a_size = &a->shape.dims[a->shape.rank - 2], *b_size = &b->shape.dims[b->shape.rank - 2];
    product p = {
        .m = a_size[transpose_a ? 1 : 0],
        .k = a_size[transpose_a ? 0 : 1],
        .n = b_size[transpose_b ? 0 : 1],
        .a_row = transpose_a ? 1 : a_size[1],
        .a_column = transpose_a ? a_size[1] : 1,
        .b_row = transpose_b ? 1 : b_size[1],
        .b_column = transpose_b ? b_size[1] : 1,
    };
    ls_ref_walk leading;
    ls_shape over = walk_leading(&leading, call->in);
    real *out = call->out.data;
    bool reduces = call->node->use == LS_USE_REDUCES && over.rank == 0;
    if (call->node->attr.matmul.sum_leading || reduces) {
        int64_t rows = ls_ref_extent(&over, over.rank ? 1 : 0, over.rank);
        sum s = { .call = call, .leading = &leading, .samples = reduces ? p.k : over.rank ? over.dims[0] : 1 };
        s.blocks = reduces ? ls_blocks_of(1, 1) : ls_blocks_of(rows, p.k);
        if (s.samples * s.blocks.sample == 0 && call->from_lane == 0)
            memset(out, 0, (size_t)(p.m * p.n) * sizeof(*out));
        each_tile(&p, multiply_blocks, &s);
        return LS_OK;
    }
    while (ls_ref_walk_row(&leading))
        for (int64_t i = 0; i < leading.length; i++, out += p.m * p.n)
            each_tile(&p, multiply,
                      &(single){ (const real *)a->data + leading.offset[0] + i * leading.step[0],
                                 (const real *)b->data + leading.offset[1] + i * leading.step[1], out });
    return LS_OK;
}
