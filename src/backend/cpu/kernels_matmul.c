/* Matrix products that are no dense layer's: of whole values, in tiles of rows, and of a matrix for each sample or
 * several (attention). Every element is one chain over the sum's index: pieces of panels of the second operand are
 * packed, rows of the first are broadcast from where they are, or packed where it is transposed. */
#include <string.h>

#include "backend/cpu/cpu.h"

#define TILE_ROWS 64  /* of a product without a batch axis, and of what is packed of the first operand */
#define PIECE     512 /* of a sum */

/* One product: out [m,n] = a [m,k] b [k,n], operands with their own steps. */
typedef struct matmul {
    ls_cpu_kernel base;
    int64_t m, n, k;
    int64_t a_row, a_column, b_row, b_column;
    int64_t matrices; /* for each sample */
    int64_t a_matrix, b_matrix;
} matmul;

typedef struct room {
    const float *in[TILE_ROWS + LS_GEMM_MOST_ROWS];
    float *out[TILE_ROWS + LS_GEMM_MOST_ROWS];
    float nowhere[LS_GEMM_PANEL]; /* where rows go that fill up the last tile */
    float b[PIECE * LS_GEMM_PANEL], a[TILE_ROWS * PIECE];
} room;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void pack_b(const matmul *p, const float *b, int64_t k, int64_t count, int64_t column, int64_t width, room *r)
{
    const ls_gemm *gemm = p->base.cpu->gemm;
    const float *from = b + k * p->b_row + column * p->b_column;
    if (p->b_column == 1) {
        gemm->copy_panel(r->b, from, p->b_row, count, width);
        return;
    }
    if (width % LS_GEMM_VECTOR != 0)
        memset(r->b, 0, (size_t)(count * ls_gemm_padded(width)) * sizeof(*r->b));
    gemm->transpose(r->b, ls_gemm_padded(width), from, p->b_column, width, count);
}

/* Where rows of a piece of a's are. */
static void place_rows(const matmul *p, const float *a, int64_t k, int64_t count, int64_t row, int64_t rows, room *r)
{
    bool packed = p->a_column != 1;
    if (packed)
        p->base.cpu->gemm->transpose(r->a, PIECE, a + k * p->a_column + row, p->a_column, count, rows);
    for (int64_t i = 0; i < rows + LS_GEMM_MOST_ROWS; i++) {
        int64_t at = least(i, rows - 1);
        r->in[i] = packed ? r->a + at * PIECE : a + (row + at) * p->a_row + k;
    }
}

static void multiply_rows(const matmul *p, ls_gemm_rows t, int64_t column, int64_t width, float *out, int64_t rows,
                          room *r)
{
    const ls_gemm *gemm = p->base.cpu->gemm;
    int64_t vectors = ls_gemm_vectors(width);
    for (int64_t i = 0; i < rows + LS_GEMM_MOST_ROWS; i++)
        r->out[i] = i < rows ? out + i * p->n + column : r->nowhere;
    t.columns = width % LS_GEMM_VECTOR ? width : 0;
    t.b = t.ahead = r->b;
    for (int64_t i = 0, size; i < rows; i += size) {
        size = gemm->rows_tile_size(rows - i, vectors);
        t.in = r->in + i, t.out = r->out + i;
        gemm->rows_tile(size, vectors, &t);
    }
}

/* Rows first .. first + rows - 1 of a product; out is where the first one goes. */
static void multiply(const matmul *p, const float *a, const float *b, const float *bias, float *out, int64_t first,
                     int64_t rows, room *r)
{
    for (int64_t column = 0; column < p->n; column += LS_GEMM_PANEL) {
        int64_t width = least(p->n - column, LS_GEMM_PANEL);
        for (int64_t k = 0; k < p->k; k += PIECE) {
            int64_t count = least(p->k - k, PIECE);
            bool last = k + count == p->k;
            ls_gemm_run all = { .count = (int32_t)count };
            ls_gemm_rows t = { .runs = &all, .run_count = 1, .add = k > 0, .relu = last && p->base.group->relu };
            t.bias = last && bias ? bias + column : NULL;
            pack_b(p, b, k, count, column, width, r);
            for (int64_t row = 0; row < rows; row += TILE_ROWS) {
                int64_t some = least(rows - row, TILE_ROWS);
                place_rows(p, a, k, count, first + row, some, r);
                multiply_rows(p, t, column, width, out + row * p->n, some, r);
            }
        }
    }
}

/* All rows of a whole product, or a tile of them. */
static ls_status run_whole(ls_kernel *kernel, const ls_kernel_call *call)
{
    const matmul *p = (const matmul *)kernel;
    int64_t first = call->from / p->n, rows = call->to > 0 ? (call->to - call->from) / p->n : p->m;
    multiply(p, call->in[0], call->in[1], p->base.group->bias ? call->in[2] : NULL, (float *)call->out + call->from,
             first, rows, call->scratch);
    return LS_OK;
}

static ls_status run_samples(ls_kernel *kernel, const ls_kernel_call *call)
{
    const matmul *p = (const matmul *)kernel;
    const float *a = call->in[0], *b = call->in[1], *bias = p->base.group->bias ? call->in[2] : NULL;
    float *out = call->out;
    for (int64_t i = 0; i < call->samples * p->matrices; i++)
        multiply(p, a + i * p->a_matrix, b + i * p->b_matrix, bias, out + i * p->m * p->n, 0, p->m, call->scratch);
    return LS_OK;
}

bool ls_cpu_takes_matmul(const ls_tensor *node)
{
    if (node->op != LS_OP_matmul || node->dtype != LS_F32)
        return false;
    for (int i = 0; i < 2; i++) {
        const ls_tensor *x = node->in[i];
        if (x->shape.rank != 2)
            return false;
        for (int k = 0; k < 2;
             k++) /* a gathered batch has sizes that only the run knows; empty ones are the reference's */
            if (x->shape.dims[k] == 0 || x->shape.dims[k] >= INT32_MAX / LS_GEMM_PANEL ||
                (x->shape.dims[k] == LS_BATCH && !(x->per_sample && k == 0)))
                return false;
    }
    bool a = node->in[0]->per_sample, b = node->in[1]->per_sample, reduces = node->use == LS_USE_REDUCES;
    if (a && b)
        return reduces && node->attr.matmul.transpose_a && !node->attr.matmul.transpose_b;
    return !b && !reduces && !(a && node->attr.matmul.transpose_a);
}

/* Matrices of samples: the same axes before them on both sides, or one matrix for all on the right. */
static bool takes_matrices(const ls_tensor *node)
{
    if (node->op != LS_OP_matmul || node->dtype != LS_F32 || node->use == LS_USE_REDUCES ||
        node->attr.matmul.sum_leading || !node->per_sample)
        return false;
    const ls_tensor *a = node->in[0], *b = node->in[1]; /* other nodes may have none */
    if (!a->per_sample || a->shape.rank < 3)
        return false;
    if (b->per_sample ? b->shape.rank != a->shape.rank : b->shape.rank != 2)
        return false;
    for (int i = 0; i < a->shape.rank; i++)
        if ((i > 0 && a->shape.dims[i] < 1) ||
            (i > 0 && i < a->shape.rank - 2 && b->per_sample && b->shape.dims[i] != a->shape.dims[i]))
            return false;
    for (int i = b->per_sample ? 1 : 0; i < b->shape.rank; i++)
        if (b->shape.dims[i] < 1)
            return false;
    return true;
}

static void set_sizes(matmul *p, const ls_tensor *node)
{
    const ls_shape *a = &node->in[0]->shape, *b = &node->in[1]->shape;
    bool ta = node->attr.matmul.transpose_a, tb = node->attr.matmul.transpose_b;
    const int64_t *sa = &a->dims[a->rank - 2], *sb = &b->dims[b->rank - 2];
    p->m = sa[ta ? 1 : 0], p->k = sa[ta ? 0 : 1], p->n = sb[tb ? 0 : 1];
    p->a_row = ta ? 1 : sa[1], p->a_column = ta ? sa[1] : 1;
    p->b_row = tb ? 1 : sb[1], p->b_column = tb ? sb[1] : 1;
    p->matrices = 1;
    for (int i = 1; i < a->rank - 2; i++)
        p->matrices *= a->dims[i];
    p->a_matrix = p->m * p->k;
    p->b_matrix = b->rank > 2 ? p->k * p->n : 0;
}

ls_status ls_cpu_make_matmul(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out)
{
    (void)samples, (void)kinds;
    const ls_tensor *node = group->nodes[0];
    bool whole = ls_cpu_takes_matmul(node) && !group->per_sample;
    if (!whole && !takes_matrices(node))
        return ls_cpu_pass();
    matmul *p = ls_cpu_kernel_new(cpu, group, sizeof(*p), "rows by panels", whole ? run_whole : run_samples);
    if (!p)
        return LS_ERR_MEMORY;
    set_sizes(p, node);
    p->base.base.scratch_bytes = sizeof(room);
    if (whole && p->m > TILE_ROWS) {
        p->base.base.tiled = true;
        p->base.base.tile = TILE_ROWS * p->n;
    }
    *out = &p->base.base;
    return LS_OK;
}
