/* Matrix products, tile by tile: sums in double, rounded once, each element's products added in the order of k. */
#include "backend/ref/array.h"
#include "backend/ref/real.h"

#define ROWS    16
#define COLUMNS 128
#define DEPTH   32

/* Sizes, and the strides of one matrix of a [m,k] and of b [k,n] after the transposes asked for. */
typedef struct product {
    int64_t m, n, k;
    int64_t a_row, a_column, b_row, b_column;
} product;

typedef struct tile {
    int64_t row, rows, column, columns; /* of the output */
} tile;

/* Adds a's rows times b's columns to the tile. */
static void add_product(const product *p, const tile *t, const real *a, const real *b, double sum[ROWS][COLUMNS])
{
    double packed[DEPTH][COLUMNS]; /* of b, so that the inner loop runs over neighbours whatever the transpose */
    for (int64_t k = 0; k < p->k; k += DEPTH) {
        int64_t depth = ls_ref_at_most(p->k - k, DEPTH);
        for (int64_t d = 0; d < depth; d++)
            for (int64_t j = 0; j < t->columns; j++)
                packed[d][j] = b[(k + d) * p->b_row + (t->column + j) * p->b_column];
        for (int64_t i = 0; i < t->rows; i++) {
            for (int64_t d = 0; d < depth; d++) {
                double factor = a[(t->row + i) * p->a_row + (k + d) * p->a_column];
                for (int64_t j = 0; j < t->columns; j++)
                    sum[i][j] += factor * packed[d][j];
            }
        }
    }
}

static void clear_tile(const tile *t, double sum[ROWS][COLUMNS])
{
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++)
            sum[i][j] = 0;
}

static void store_tile(const product *p, const tile *t, double sum[ROWS][COLUMNS], real *out)
{
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++)
            out[(t->row + i) * p->n + t->column + j] = (real)sum[i][j];
}

/* One output matrix [m,n]: a times b; with a walk over leading axes, the sum over it of the products. */
static void multiply(const product *p, const real *a, const real *b, ls_ref_walk *leading, real *out)
{
    double sum[ROWS][COLUMNS];
    for (int64_t row = 0; row < p->m; row += ROWS) {
        for (int64_t column = 0; column < p->n; column += COLUMNS) {
            tile t = { row, ls_ref_at_most(p->m - row, ROWS), column, ls_ref_at_most(p->n - column, COLUMNS) };
            clear_tile(&t, sum);
            if (!leading)
                add_product(p, &t, a, b, sum);
            else
                for (ls_ref_walk_restart(leading); ls_ref_walk_row(leading);)
                    for (int64_t i = 0; i < leading->length; i++)
                        add_product(p, &t, a + leading->offset[0] + i * leading->step[0],
                                    b + leading->offset[1] + i * leading->step[1], sum);
            store_tile(p, &t, sum, out);
        }
    }
}

/* A walk over the axes before the last two, broadcast; operand k is input k, in elements. */
static void walk_leading(ls_ref_walk *walk, const ls_ref_array in[2])
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
}

/* in: a [..., m, k], b [..., k, n], the last two axes swapped where transposed; out [..., m, n], or [m, n] when leading
 * axes are summed. */
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
    walk_leading(&leading, call->in);
    real *out = call->out.data;
    if (call->node->attr.matmul.sum_leading) {
        multiply(&p, a->data, b->data, &leading, out);
        return LS_OK;
    }
    while (ls_ref_walk_row(&leading))
        for (int64_t i = 0; i < leading.length; i++, out += p.m * p.n)
            multiply(&p, (const real *)a->data + leading.offset[0] + i * leading.step[0],
                     (const real *)b->data + leading.offset[1] + i * leading.step[1], NULL, out);
    return LS_OK;
}
