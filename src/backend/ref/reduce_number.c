/* Reductions over axes, argmax and top-k. Sums over the batch are in blocks (docs/bits.md); other
 * real sums are in double, rounded once. Integer sums wrap around. */
#include "backend/blocks.h"
#include "backend/ref/array.h"
#include "backend/ref/interleaved.h"
#include "backend/ref/real.h"

#define TILE 64

/* Walks over the kept and over the reduced axes. */
typedef struct axes_split {
    ls_ref_walk kept, gone;
} axes_split;

static void split_axes(axes_split *split, const ls_ref_call *call)
{
    const ls_shape *shape = &call->in[0].shape;
    int64_t strides[LS_MAX_RANK], kept_strides[LS_MAX_RANK], gone_strides[LS_MAX_RANK];
    ls_shape kept = { 0 }, gone = { 0 };
    ls_shape_strides(shape, strides);
    for (int i = 0; i < shape->rank; i++) {
        bool goes = call->node->attr.reduce.axes >> i & 1;
        ls_shape *to = goes ? &gone : &kept;
        (goes ? gone_strides : kept_strides)[to->rank] = strides[i];
        to->dims[to->rank++] = shape->dims[i];
    }
    ls_ref_walk_begin(&split->kept, &kept);
    ls_ref_walk_add(&split->kept, 0, kept_strides);
    ls_ref_walk_begin(&split->gone, &gone);
    ls_ref_walk_add(&split->gone, 0, gone_strides);
}

/* Reduces n outputs together, which are often close in the input, `pitch` apart. Each takes its
 * elements in row-major order. */
typedef void tile_function(const ls_ref_call *call, ls_ref_walk *gone, const real *in, int64_t pitch, int64_t n,
                           real *out);

static ls_status each_tile(const ls_ref_call *call, tile_function *reduce)
{
    axes_split split;
    split_axes(&split, call);
    real *out = call->out.data;
    while (ls_ref_walk_row(&split.kept)) {
        const real *in = (const real *)call->in[0].data + split.kept.offset[0];
        for (int64_t j = 0; j < split.kept.length; j += TILE) {
            int64_t n = ls_ref_at_most(split.kept.length - j, TILE);
            reduce(call, &split.gone, in + j * split.kept.step[0], split.kept.step[0], n, out);
            out += n;
        }
    }
    return LS_OK;
}

static bool goes_on(const ls_ref_call *call)
{
    return call->node->use == LS_USE_REDUCES && call->from_lane > 0;
}

#define REDUCE(op, type, initial, next)                                                                                \
    static void tile_##op(const ls_ref_call *call, ls_ref_walk *gone, const real *in, int64_t pitch, int64_t n,        \
                          real *out)                                                                                   \
    {                                                                                                                  \
        type total[TILE];                                                                                              \
        for (int64_t j = 0; j < n; j++)                                                                                \
            total[j] = goes_on(call) ? (type)out[j] : initial;                                                         \
        for (ls_ref_walk_restart(gone); ls_ref_walk_row(gone);) {                                                      \
            for (int64_t i = 0; i < gone->length; i++) {                                                               \
                const real *xs = in + gone->offset[0] + i * gone->step[0];                                             \
                for (int64_t j = 0; j < n; j++) {                                                                      \
                    real x = xs[j * pitch];                                                                            \
                    total[j] = next;                                                                                   \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        for (int64_t j = 0; j < n; j++)                                                                                \
            out[j] = (real)total[j];                                                                                   \
    }

REDUCE(sum, real_sum, 0, total[j] + (real_sum)x)
REDUCE(max, real, REAL_LOWEST, real_max(total[j], x))
REDUCE(min, real, REAL_HIGHEST, real_min(total[j], x))

ls_status LS_REF(reduce_max)(const ls_ref_call *call)
{
    return each_tile(call, tile_max);
}

ls_status LS_REF(reduce_min)(const ls_ref_call *call)
{
    return each_tile(call, tile_min);
}

/* ---- Sums over the batch: a chain for each block of positions ---- */

/* Positions are the elements of the reduced axes, the last of which is a row. */
static ls_blocks blocks_of(const ls_ref_call *call)
{
    const ls_shape *shape = &call->in[0].shape;
    int64_t rows = 1, width = 1;
    for (int i = 1; i < shape->rank; i++)
        if (call->node->attr.reduce.axes >> i & 1) {
            rows *= width;
            width = shape->dims[i];
        }
    return ls_blocks_of(rows, width);
}

static void load_chains(const ls_block_part *block, const real *chain, int64_t n, real_bits *total)
{
    for (int64_t j = 0; j < n; j++)
        total[j] = block->opens ? 0 : (real_bits)chain[j];
}

static void store_chains(const ls_block_part *block, const real_bits *total, int64_t n, real *chain, real *out)
{
    for (int64_t j = 0; j < n; j++)
        if (!block->closes)
            chain[j] = (real)total[j];
        else
            out[j] = (real)(block->adds ? (real_bits)out[j] + total[j] : total[j]);
}

static void tile_blocks(const ls_ref_call *call, ls_ref_walk *gone, const real *in, int64_t pitch, int64_t n, real *out)
{
    ls_blocks blocks = blocks_of(call);
    ls_block_part block = { 0 };
    real *chain = call->goes_on || call->from_lane > 0 ? (real *)call->chain + (out - (real *)call->out.data) : NULL;
    real_bits total[TILE];
    int64_t at = 0, samples = call->in[0].shape.dims[0];
    for (int64_t j = 0; j < n && samples * blocks.sample == 0 && call->from_lane == 0; j++)
        out[j] = 0; /* empty sums */
    for (ls_ref_walk_restart(gone); ls_ref_walk_row(gone);) {
        for (int64_t i = 0; i < gone->length; i++, at++) {
            const real *xs = in + gone->offset[0] + i * gone->step[0];
            if (at == block.first + block.count) {
                ls_blocks_next(&blocks, call->from_lane, samples, !call->goes_on, &block);
                load_chains(&block, chain, n, total);
            }
            for (int64_t j = 0; j < n; j++)
                total[j] += (real_bits)xs[j * pitch];
            if (at + 1 == block.first + block.count)
                store_chains(&block, total, n, chain, out);
        }
    }
}

/* ---- Sums of elements side by side ---- */

#if LS_REAL_IS_FLOAT
#define BLOCK 4096

/* Whether the elements of each sum are contiguous. */
static bool is_contiguous(const ls_ref_call *call)
{
    const ls_shape *shape = &call->in[0].shape;
    bool gone = false;
    for (int i = 0; i < shape->rank; i++) {
        bool goes = call->node->attr.reduce.axes >> i & 1;
        if (gone && !goes && shape->dims[i] != 1)
            return false;
        gone = gone || (goes && shape->dims[i] != 1);
    }
    return true;
}

/* Blocks of 4,096 with 16 interleaved sums each, added in order. */
static double sum_contiguous(const real *x, int64_t n)
{
    double sum = 0;
    for (int64_t at = 0; at < n; at += BLOCK) {
        ls_ref_interleaved sums = { { 0 } };
        for (int64_t i = 0, count = ls_ref_at_most(n - at, BLOCK); i < count; i++)
            sums.part[i % LS_REF_PARTS] += x[at + i];
        sum += ls_ref_interleaved_total(&sums);
    }
    return sum;
}

static ls_status sum_runs(const ls_ref_call *call)
{
    int64_t outputs = ls_ref_elements(&call->out), n = outputs ? ls_ref_elements(&call->in[0]) / outputs : 0;
    for (int64_t i = 0; i < outputs; i++)
        ((real *)call->out.data)[i] = (real)sum_contiguous((const real *)call->in[0].data + i * n, n);
    return LS_OK;
}
#endif

ls_status LS_REF(reduce_sum)(const ls_ref_call *call)
{
    if (call->node->use == LS_USE_REDUCES)
        return each_tile(call, tile_blocks);
#if LS_REAL_IS_FLOAT
    if (is_contiguous(call))
        return sum_runs(call);
#endif
    return each_tile(call, tile_sum);
}

/* in [outer, n, inner], out [outer, inner] */
ls_status LS_REF(argmax)(const ls_ref_call *call)
{
    const ls_shape *shape = &call->in[0].shape;
    int axis = (int)call->node->attr.axis.axis;
    int64_t outer = ls_ref_extent(shape, 0, axis), n = shape->dims[axis];
    int64_t inner = ls_ref_extent(shape, axis + 1, shape->rank);
    int64_t *out = call->out.data;
    for (int64_t r = 0; r < outer * inner; r++) {
        const real *x = (const real *)call->in[0].data + r / inner * n * inner + r % inner;
        int64_t best = 0;
        for (int64_t i = 1; i < n; i++)
            if (real_before(x[i * inner], x[best * inner]))
                best = i;
        out[r] = best;
    }
    return LS_OK;
}

/* ---- The k largest of the last axis; of equal values the lower index comes first ---- */

static void insert_value(real *list, int64_t k, int64_t held, real x)
{
    int64_t at = held < k ? held : k - 1;
    for (; at > 0 && real_before(x, list[at - 1]); at--)
        list[at] = list[at - 1];
    list[at] = x;
}

static void insert_index(int64_t *list, int64_t k, int64_t held, const real *row, int64_t index)
{
    int64_t at = held < k ? held : k - 1;
    for (; at > 0 && real_before(row[index], row[list[at - 1]]); at--)
        list[at] = list[at - 1];
    list[at] = index;
}

/* in [rows, n], out [rows, k] */
ls_status LS_REF(top_k)(const ls_ref_call *call)
{
    const ls_shape *shape = &call->in[0].shape;
    int64_t k = call->node->attr.count.count, rows = ls_ref_extent(shape, 0, shape->rank - 1);
    int64_t n = shape->dims[shape->rank - 1];
    for (int64_t r = 0; r < rows; r++) {
        const real *x = (const real *)call->in[0].data + r * n;
        real *list = (real *)call->out.data + r * k;
        for (int64_t i = 0; i < n; i++)
            if (i < k || (k > 0 && real_before(x[i], list[k - 1])))
                insert_value(list, k, i, x[i]);
    }
    return LS_OK;
}

ls_status LS_REF(top_k_indices)(const ls_ref_call *call)
{
    const ls_shape *shape = &call->in[0].shape;
    int64_t k = call->node->attr.count.count, rows = ls_ref_extent(shape, 0, shape->rank - 1);
    int64_t n = shape->dims[shape->rank - 1];
    for (int64_t r = 0; r < rows; r++) {
        const real *x = (const real *)call->in[0].data + r * n;
        int64_t *list = (int64_t *)call->out.data + r * k;
        for (int64_t i = 0; i < n; i++)
            if (i < k || (k > 0 && real_before(x[i], x[list[k - 1]])))
                insert_index(list, k, i, x, i);
    }
    return LS_OK;
}
