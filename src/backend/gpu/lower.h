/* Shared by the files that lower ops. */
#ifndef LS_BACKEND_GPU_LOWER_H
#define LS_BACKEND_GPU_LOWER_H

#include "backend/blocks.h"
#include "backend/gpu/gpu.h"

/* The step being lowered, with shapes and places of the run. */
typedef struct lowering {
    ls_gpu_lowering *l;
    const ls_program_step *step;
    const ls_program_run *run;
    const ls_tensor *node;
    ls_shape out_shape;
    ls_memory_place out;
    size_t used;            /* bytes of scratch of this step */
    bool biased, rectified; /* following steps that its kernel also does */
    ls_memory_place bias;
} lowering;

typedef ls_status lower_function(lowering *x);

ls_shape ls_gpu_in_shape(const lowering *x, int input);
ls_memory_place ls_gpu_in(const lowering *x, int input);
ls_memory_place ls_gpu_slot(const lowering *x, const ls_program_slot *slot);
int64_t ls_gpu_elements(const ls_shape *shape);
int64_t ls_gpu_extent(const ls_shape *shape, int first, int end);

/* Scratch memory for the rest of this step. */
ls_memory_place ls_gpu_scratch(lowering *x, size_t bytes);

/* "f32" */
const char *ls_gpu_type(ls_dtype dtype);

/* Launches nothing if there are no items. */
ls_status ls_gpu_launch_on(ls_gpu_lowering *l, ls_gpu_module module, const char *kernel, const void *numbers,
                           size_t size, int64_t items, int64_t more_items, bool heavy, int places,
                           const ls_memory_place *place);
#define LAUNCH(x, module, kernel, numbers, items, more, ...)                                                           \
    ls_gpu_launch_on((x)->l, module, kernel, numbers, sizeof(*(numbers)), items, more, false,                          \
                     (int)(sizeof((ls_memory_place[]){ __VA_ARGS__ }) / sizeof(ls_memory_place)),                      \
                     (ls_memory_place[]){ __VA_ARGS__ })
#define LAUNCH_HEAVY(x, module, kernel, numbers, items, more, ...)                                                     \
    ls_gpu_launch_on((x)->l, module, kernel, numbers, sizeof(*(numbers)), items, more, true,                           \
                     (int)(sizeof((ls_memory_place[]){ __VA_ARGS__ }) / sizeof(ls_memory_place)),                      \
                     (ls_memory_place[]){ __VA_ARGS__ })

/* A walk over a shape by strides in elements. Drops axes of size 1 and merges axes that are
 * adjacent in every array. */
ls_gpu_walk ls_gpu_walk_of(const ls_shape *shape, int arrays, int64_t (*strides)[LS_MAX_RANK]);
void ls_gpu_broadcast_strides(const ls_shape *shape, const ls_shape *over, int64_t strides[LS_MAX_RANK]);

ls_status ls_gpu_fill(lowering *x, ls_memory_place at, ls_dtype dtype, int64_t count, double value);

/* Copies a shape's elements, with strides on both sides. */
ls_status ls_gpu_copy(lowering *x, size_t width, const ls_shape *shape, ls_memory_place to, int64_t to_start,
                      const int64_t *to_strides, ls_memory_place from, int64_t from_start, const int64_t *from_strides);

/* A kernel computes partial sums of several blocks of positions, which are then added in order.
 * `blocks` is the part of `numbers`, its struct, that selects the blocks. `place` needs room for
 * one more, the partial sums. */
typedef struct blocks_sum {
    ls_gpu_module module;
    const char *kernel;
    void *numbers;
    size_t size;
    ls_gpu_blocks *blocks;
    int64_t items;
    bool heavy;
    int places;
    int more_places; /* places after the partial sums that the kernel does not use */
    ls_memory_place place[4];
    ls_dtype dtype;   /* type of partial sums and output */
    int64_t elements; /* elements of each of them */
} blocks_sum;
ls_status ls_gpu_sum_blocks(lowering *x, blocks_sum *s);
ls_gpu_blocks ls_gpu_blocks_of(ls_blocks b, int64_t samples, int64_t *count);

/* Whether this lane, the first, computes what all lanes share. */
static inline bool ls_gpu_makes(const lowering *x, unsigned what)
{
    bool first = !x->l->made || !(*x->l->made & what);
    if (x->l->made)
        *x->l->made |= what;
    return first;
}

static inline bool ls_gpu_is_shared(const lowering *x, int input)
{
    const ls_program_slot *slot = &x->step->in[input];
    return !slot->per_sample && (slot->room == LS_ROOM_STATE || slot->room == LS_ROOM_PLAN);
}

/* Transposes input [..., rows, columns] to scratch memory; only once if it is the same for all
 * lanes, so scratch memory whose size depends on the lane comes after it. */
ls_status ls_gpu_swap_last(lowering *x, int input, int64_t matrices, int64_t rows, int64_t columns,
                           ls_memory_place *out);

/* Whether the scores of a sample can be counted in 31 bits. */
bool ls_gpu_attention_fits(const ls_tensor *node);
/* The same for the states of CTC. */
bool ls_gpu_ctc_fits(const ls_tensor *node);

/* Reports an index of an input that is outside 0..size-1; kind: LS_GPU_FAULT_LABEL or _INDEX. */
ls_status ls_gpu_check_indices(lowering *x, int input, int64_t size, int kind);

/* ---- Vendor's library (lower_library.c); *done: the library handles the op ---- */

ls_status ls_gpu_library_conv(lowering *x, ls_gpu_call_kind kind, const ls_gpu_window *v, bool *done);
ls_status ls_gpu_library_matmul(lowering *x, const ls_gpu_product *p, bool sums, bool *done);

lower_function ls_gpu_conv2d, ls_gpu_conv2d_grad_input, ls_gpu_conv2d_grad_kernel, ls_gpu_matmul, ls_gpu_pool,
    ls_gpu_pool_grad, ls_gpu_warp, ls_gpu_warp_grad, ls_gpu_attention_op, ls_gpu_attention_grad, ls_gpu_recurrent_op,
    ls_gpu_recurrent_grad, ls_gpu_normal, ls_gpu_moments, ls_gpu_grad_moments, ls_gpu_norm_input,
    ls_gpu_norm_grad_input, ls_gpu_reduce_sum, ls_gpu_reduce_extreme, ls_gpu_softmax, ls_gpu_cross_entropy,
    ls_gpu_cross_entropy_grad, ls_gpu_ctc_loss, ls_gpu_ctc_grad, ls_gpu_dropout, ls_gpu_uniform, ls_gpu_apply,
    ls_gpu_gather, ls_gpu_gather_grad, ls_gpu_one_hot, ls_gpu_argmax;

#endif
