/* The reference device: plain C, correct before fast, every op. A kernel computes one node for a slice of the batch.
 *
 * Families: *_real.c is compiled for float and for double, *_number.c also for int32_t and int64_t, the rest once; the
 * column `kernel` of ops.def says which an op has, and a kernel that is missing does not link. What kernels share is in
 * array.h (walks over arrays) and real.h (the element type); the dispatch is in table.c. */
#ifndef LS_BACKEND_REF_H
#define LS_BACKEND_REF_H

#include "graph/node.h"

/* A dense row-major array in host memory; shape has no LS_BATCH left. */
typedef struct ls_ref_array {
    void *data; /* never NULL, not even of an empty array */
    ls_dtype dtype;
    ls_shape shape;
} ls_ref_array;

/* What a node's array is when it has `samples` of a batch: axis 0 of a per-sample one has these, other batch-sized axes
 * have the whole batch's. */
static inline ls_shape ls_ref_shape(const ls_tensor *node, int64_t batch, int64_t samples)
{
    ls_shape shape = ls_shape_at(&node->shape, batch);
    if (node->per_sample)
        shape.dims[0] = samples;
    return shape;
}

typedef struct ls_ref_call {
    const ls_tensor *node;  /* op and attributes; its shapes are symbolic, use those of the arrays */
    ls_ref_array out;       /* never overlaps an input */
    const ls_ref_array *in; /* node->input_count of them; per-sample ones hold this slice's samples */
    const void *state[3];   /* apply: old values of the variable, then of its slots; NULL where there is none */
    void *slots[2];         /* apply: where the new slot values go */
    int64_t batch;          /* samples in the whole batch of the run */
    int64_t lane;           /* samples in the lane */
    int64_t first;          /* position of this slice's first sample in it */
    int64_t from_lane;      /* samples of the lane that came before this slice */
    bool goes_on;           /* samples of the lane follow: a block may stay open in `chain` (backend/blocks.h) */
    void *chain;            /* like `out` */
    uint64_t seed, run;     /* for random numbers */
} ls_ref_call;

typedef ls_status (*ls_ref_kernel)(const ls_ref_call *call);

/* Runs the node's kernel; the caller has checked shapes, so what can fail is the data (a label out of range). A node
 * that reduces the batch goes on with its lane: where samples came before, `out` has what they left. */
ls_status ls_ref_run(const ls_ref_call *call);

/* Whether the node leaves an open block in `chain`; other reductions go on from `out` alone. */
bool ls_ref_chains(const ls_tensor *node);

#endif
