/* The reference device: plain C for every op; correctness before speed. A kernel computes one node
 * for a slice of the batch.
 *
 * *_real.c is compiled for float and double, *_number.c also for int32_t and int64_t, other files
 * once; the column `kernel` of ops.def selects. */
#ifndef LS_BACKEND_REF_H
#define LS_BACKEND_REF_H

#include "graph/node.h"

/* Dense, row-major, in host memory; the shape contains no LS_BATCH. */
typedef struct ls_ref_array {
    void *data; /* never NULL */
    ls_dtype dtype;
    ls_shape shape;
} ls_ref_array;

/* Axis 0 of a per-sample node has size `samples`; other LS_BATCH axes have the whole batch. */
static inline ls_shape ls_ref_shape(const ls_tensor *node, int64_t batch, int64_t samples)
{
    ls_shape shape = ls_shape_at(&node->shape, batch);
    if (node->per_sample)
        shape.dims[0] = samples;
    return shape;
}

typedef struct ls_ref_call {
    const ls_tensor *node;  /* its shapes are symbolic: use the arrays' */
    ls_ref_array out;       /* never overlaps an input */
    const ls_ref_array *in; /* per-sample ones hold this slice */
    const void *state[3];   /* apply: old variable and slots; NULL if absent */
    void *slots[2];         /* apply: new slots */
    int64_t batch;          /* samples of the run */
    int64_t lane;           /* samples in the lane */
    int64_t first;          /* first sample of the slice, in the batch */
    int64_t from_lane;      /* samples before this slice, in the lane */
    /* More samples of the lane follow: a block may stay open in `chain` (backend/blocks.h). */
    bool goes_on;
    void *chain;        /* laid out like `out` */
    uint64_t seed, run; /* for random numbers */
} ls_ref_call;

typedef ls_status (*ls_ref_kernel)(const ls_ref_call *call);

/* The caller has checked shapes, so only data can cause errors (such as a label out of range). A
 * node that reduces the batch continues from `out` if samples of its lane came before. */
ls_status ls_ref_run(const ls_ref_call *call);

/* Whether the node may leave an open block in `chain`; other reductions continue from `out`
 * only. */
bool ls_ref_chains(const ls_tensor *node);

#endif
