/* Matrix products of any shape without sums over leading axes. Multiplies rows of the first
 * operand, packed if it is transposed, by packed panels of the second. kernels_dense.c is faster
 * for a single weight matrix.
 *
 * Every element is one chain over the index of its sum (docs/bits.md). */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/ref/ref.h"

/* Rows of a tile, and of a packed piece of the first operand. */
#define TILE_ROWS 64
#define PIECE     512 /* steps of a sum packed together */

typedef struct scratch {
    const float *in[TILE_ROWS + LS_GEMM_MOST_ROWS];
    float *out[TILE_ROWS + LS_GEMM_MOST_ROWS];
    float nowhere[LS_GEMM_PANEL]; /* output of the padding rows of the last tile */
    float b[PIECE * LS_GEMM_PANEL], a[TILE_ROWS * PIECE];
} scratch;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Counted from the last leading axis; 1 if the operand lacks it. */
static int64_t leading_size(const ls_shape *x, int i)
{
    int at = x->rank - 3 - i;
    return at < 0 ? 1 : x->dims[at];
}

/* Steps are 0 where an operand is broadcast. */
static void set_leading(ls_cpu_product *p, const ls_shape shape[2])
{
    p->rank = (shape[0].rank > shape[1].rank ? shape[0].rank : shape[1].rank) - 2;
    int64_t step[2] = { p->m * p->k, p->k * p->n };
    for (int i = 0; i < p->rank; i++) {
        ls_cpu_leading *axis = &p->leading[p->rank - 1 - i];
        int64_t size[2] = { leading_size(&shape[0], i), leading_size(&shape[1], i) };
        *axis = (ls_cpu_leading){ .size = size[0] == 1 ? size[1] : size[0],
                                  .a = size[0] == 1 ? 0 : step[0],
                                  .b = size[1] == 1 ? 0 : step[1] };
        step[0] *= size[0], step[1] *= size[1];
    }
}

ls_cpu_product ls_cpu_product_of(const ls_tensor *node, int64_t batch, int64_t samples)
{
    ls_shape shape[2];
    for (int i = 0; i < 2; i++)
        shape[i] = ls_ref_shape(node->in[i], batch < 0 ? 0 : batch, samples);
    bool ta = node->attr.matmul.transpose_a, tb = node->attr.matmul.transpose_b;
    const int64_t *a = &shape[0].dims[shape[0].rank - 2], *b = &shape[1].dims[shape[1].rank - 2];
    ls_cpu_product p = { .m = a[ta ? 1 : 0],
                         .k = a[ta ? 0 : 1],
                         .n = b[tb ? 0 : 1],
                         .a_row = ta ? 1 : a[1],
                         .a_column = ta ? a[1] : 1,
                         .b_row = tb ? 1 : b[1],
                         .b_column = tb ? b[1] : 1 };
    set_leading(&p, shape);
    return p;
}

int64_t ls_cpu_product_matrices(const ls_cpu_product *p)
{
    int64_t count = 1;
    for (int i = 0; i < p->rank; i++)
        count *= p->leading[i].size;
    return count;
}

void ls_cpu_product_at(const ls_cpu_product *p, int64_t matrix, int64_t *a, int64_t *b)
{
    *a = *b = 0;
    for (int i = p->rank - 1; i >= 0; i--) {
        const ls_cpu_leading *axis = &p->leading[i];
        *a += matrix % axis->size * axis->a;
        *b += matrix % axis->size * axis->b;
        matrix /= axis->size;
    }
}

/* Merges the last leading axes into the rows if the first operand's rows continue and the second
 * operand is the same. */
static void fold_rows(ls_cpu_product *p)
{
    for (; p->rank > 0; p->rank--) {
        const ls_cpu_leading *last = &p->leading[p->rank - 1];
        if (last->size != 1 && (last->a != p->m * p->a_row || last->b != 0))
            return;
        p->m *= last->size;
    }
}

static void pack_b(const ls_gemm *gemm, const ls_cpu_product *p, const float *from, int64_t count, int64_t width,
                   scratch *r)
{
    if (p->b_column == 1) {
        gemm->copy_panel(r->b, from, p->b_row, count, width);
        return;
    }
    if (width % LS_GEMM_VECTOR != 0)
        memset(r->b, 0, (size_t)(count * ls_gemm_padded(width)) * sizeof(*r->b));
    gemm->transpose(r->b, ls_gemm_padded(width), from, p->b_column, width, count);
}

/* Sets the addresses of the rows of a piece. */
static void place_rows(const ls_gemm *gemm, const ls_cpu_product *p, const float *from, int64_t count, int64_t rows,
                       scratch *r)
{
    bool packed = p->a_column != 1;
    if (packed)
        gemm->transpose(r->a, PIECE, from, p->a_column, count, rows);
    for (int64_t i = 0; i < rows + LS_GEMM_MOST_ROWS; i++) {
        int64_t at = least(i, rows - 1);
        r->in[i] = packed ? r->a + at * PIECE : from + at * p->a_row;
    }
}

static void multiply_rows(const ls_gemm *gemm, const ls_cpu_product *p, ls_gemm_rows t, int64_t width, float *out,
                          int64_t rows, scratch *r)
{
    int64_t vectors = ls_gemm_vectors(width);
    for (int64_t i = 0; i < rows + LS_GEMM_MOST_ROWS; i++)
        r->out[i] = i < rows ? out + i * p->n : r->nowhere;
    t.columns = width % LS_GEMM_VECTOR ? width : 0;
    t.b = t.ahead = r->b;
    for (int64_t i = 0, size; i < rows; i += size) {
        size = gemm->rows_tile_size(rows - i, vectors);
        t.in = r->in + i, t.out = r->out + i;
        gemm->rows_tile(size, vectors, &t);
    }
}

/* An empty sum is +0. */
static void multiply(const ls_cpu_kernel *kernel, const ls_cpu_product *p, const float *a, const float *b,
                     const float *bias, float *out, int64_t rows, scratch *r)
{
    const ls_gemm *gemm = kernel->cpu->gemm;
    for (int64_t column = 0; column < p->n; column += LS_GEMM_PANEL) {
        int64_t width = least(p->n - column, LS_GEMM_PANEL), k = 0;
        do {
            int64_t count = least(p->k - k, PIECE);
            bool last = k + count == p->k;
            ls_gemm_run all = { .count = (int32_t)count };
            ls_gemm_rows t = { .runs = &all, .run_count = 1, .add = k > 0 };
            t.relu = last && kernel->group->relu;
            t.bias = last && bias ? bias + column : NULL;
            pack_b(gemm, p, b + k * p->b_row + column * p->b_column, count, width, r);
            for (int64_t row = 0; row < rows; row += TILE_ROWS) {
                int64_t some = least(rows - row, TILE_ROWS);
                place_rows(gemm, p, a + row * p->a_row + k * p->a_column, count, some, r);
                multiply_rows(gemm, p, t, width, out + row * p->n + column, some, r);
            }
            k += count;
        } while (k < p->k);
    }
}

/* Rows are counted across all matrices: a call has all rows of its samples, or a tile. */
static ls_status run(ls_kernel *kernel, const ls_kernel_call *call)
{
    const ls_cpu_kernel *self = (const ls_cpu_kernel *)kernel;
    const ls_group *group = self->group;
    ls_cpu_product p = ls_cpu_product_of(group->nodes[0], call->batch, call->samples);
    fold_rows(&p);
    int64_t row = 0, end = ls_cpu_product_matrices(&p) * p.m;
    if (call->to > 0)
        row = call->from / p.n, end = call->to / p.n;
    for (int64_t rows; row < end && p.n > 0; row += rows) {
        int64_t inside = row % p.m, a, b;
        rows = least(end - row, p.m - inside);
        ls_cpu_product_at(&p, row / p.m, &a, &b);
        multiply(self, &p, (const float *)call->in[0] + a + inside * p.a_row, (const float *)call->in[1] + b,
                 group->bias ? call->in[2] : NULL, (float *)call->out + row * p.n, rows, call->scratch);
    }
    return LS_OK;
}

bool ls_cpu_takes_matmul(const ls_tensor *node)
{
    return node->op == LS_OP_matmul && node->dtype == LS_F32;
}

ls_status ls_cpu_make_matmul(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out)
{
    (void)samples, (void)kinds;
    const ls_tensor *node = group->nodes[0];
    if (!ls_cpu_takes_matmul(node) || node->attr.matmul.sum_leading || node->use == LS_USE_REDUCES)
        return ls_cpu_pass();
    ls_cpu_kernel *kernel = ls_cpu_kernel_new(cpu, group, sizeof(*kernel), "rows by panels", run);
    if (!kernel)
        return LS_ERR_MEMORY;
    kernel->base.scratch_bytes = sizeof(scratch);
    if (!group->per_sample) {
        ls_cpu_product p = ls_cpu_product_of(node, group->plan->batch, 1);
        fold_rows(&p);
        /* Whole matrices, or part of one. */
        int64_t rows = p.m > 0 && p.m < TILE_ROWS ? TILE_ROWS / p.m * p.m : TILE_ROWS;
        kernel->base.tiled = p.n > 0 && ls_cpu_product_matrices(&p) * p.m > rows;
        kernel->base.tile = rows * p.n;
    }
    *out = &kernel->base;
    return LS_OK;
}
