/* The reference device: plain C for every op; correctness before speed. A kernel computes one node
 * for a slice of the batch.
 *
 * *_real.c is compiled for float and double, *_number.c also for int32_t and int64_t, other files
 * once. The column `kernel` of ops.def selects which kernels an op has; a missing kernel fails at
 * link time. Shared code is in array.h (walks over arrays) and real.h (element type); table.c
 * dispatches. */
#ifndef LS_BACKEND_REF_H
#define LS_BACKEND_REF_H

#include "graph/node.h"

/* A dense row-major array in host memory. The shape contains no LS_BATCH. */
typedef struct ls_ref_array {
    void *data; /* never NULL, even for an empty array */
    ls_dtype dtype;
    ls_shape shape;
} ls_ref_array;

/* Shape of a node's array for `samples` samples of a batch: axis 0 of a per-sample node has size
 * `samples`; other LS_BATCH axes have the whole batch. */
static inline ls_shape ls_ref_shape(const ls_tensor *node, int64_t batch, int64_t samples)
{
    ls_shape shape = ls_shape_at(&node->shape, batch);
    if (node->per_sample)
        shape.dims[0] = samples;
    return shape;
}

typedef struct ls_ref_call {
    const ls_tensor *node;  /* op and attributes; its shapes are symbolic: use the arrays' shapes */
    ls_ref_array out;       /* never overlaps an input */
    const ls_ref_array *in; /* node->input_count arrays; per-sample ones hold this slice */
    const void *state[3];   /* apply: old values of the variable and its slots; NULL if absent */
    void *slots[2];         /* apply: destination of the new slot values */
    int64_t batch;          /* samples in the whole batch of the run */
    int64_t lane;           /* samples in the lane */
    int64_t first;          /* index of this slice's first sample in the batch */
    int64_t from_lane;      /* samples of the lane before this slice */
    /* More samples of the lane follow: a block may stay open in `chain` (backend/blocks.h). */
    bool goes_on;
    void *chain;        /* laid out like `out` */
    uint64_t seed, run; /* for random numbers */
} ls_ref_call;

typedef ls_status (*ls_ref_kernel)(const ls_ref_call *call);

/* Runs the node's kernel. The caller has checked shapes, so only data can cause errors (such as a
 * label out of range). A node that reduces the batch continues with its lane: if samples came
 * before, `out` holds their result. */
ls_status ls_ref_run(const ls_ref_call *call);

/* Whether the node may leave an open block in `chain`; other reductions continue from `out`
 * only. */
bool ls_ref_chains(const ls_tensor *node);

#endif
