/* The source of the kernels of src/backend/gpu, and the lowering of a program's steps to launches,
 * which a backend executes in order.
 *
 * Results have the bits of docs/bits.md for all tile shapes and work group sizes: sums are split
 * only at its blocks; a second kernel adds the partial sums in order. */
#ifndef LS_BACKEND_GPU_GPU_H
#define LS_BACKEND_GPU_GPU_H

#include "backend/ref/ref.h"
#include "lockstep/backend.h"

typedef int64_t i64;
typedef uint64_t u64;
#include "backend/gpu/calls.h"

/* ---- Source ---- */

/* Compiled when a plan first needs one. */
typedef enum ls_gpu_module {
    LS_GPU_ELEMENTWISE,
    LS_GPU_MOVES,
    LS_GPU_PRODUCTS,
    LS_GPU_POOLS,
    LS_GPU_WARP,
    LS_GPU_ATTENTION,
    LS_GPU_CTC,
    LS_GPU_RECURRENT,
    LS_GPU_SUMS,
    LS_GPU_NORM,
    LS_GPU_SOFTMAX,
    LS_GPU_RANDOM,
    LS_GPU_NORMAL,
    LS_GPU_UPDATE,
    LS_GPU_CHAINS, /* chain.cl; each chain is a module based on it */
    /* Kernels of any module that most networks need, compiled at once. */
    LS_GPU_COMMON,
    LS_GPU_DEEPER, /* kernels that many networks need */
    LS_GPU_MODULES,
} ls_gpu_module;

const char *ls_gpu_module_name(ls_gpu_module module);

/* A kernel is in LS_GPU_COMMON, LS_GPU_DEEPER or its own module; under its own name, or as number
 * `which` of `small`. */
typedef struct ls_gpu_found {
    ls_gpu_module module;
    const char *name;
    int which;  /* -1: a separate kernel */
    int places; /* places in `small`; 0: as many as the launch has */
} ls_gpu_found;
ls_gpu_found ls_gpu_find_kernel(const char *name, ls_gpu_module module);

/* Source of a module, prelude first. The caller frees it. NULL: no memory. */
char *ls_gpu_source(ls_gpu_module module);

/* With texts before and after it. */
char *ls_gpu_source_with(ls_gpu_module module, const char *before, const char *behind);

/* Tile shapes and work group sizes per kind of device. */
typedef struct ls_gpu_tuning {
    const char *name;
    int vector; /* columns of a product per item: 1, 4, 8 or 16 */
    int rows;   /* rows of a product per item */
    bool wide;  /* two such vectors per item are possible */
    int group;  /* items per work group */
    int heavy;  /* the same with much work per item */
} ls_gpu_tuning;

extern const ls_gpu_tuning ls_gpu_tuning_cpu, ls_gpu_tuning_cpu_512, ls_gpu_tuning_gpu;

/* ---- Calls of a vendor's library ----
 * A driver may have one (cuBLAS, cuDNN). Ops that it accepts become one library call per lane, so
 * that the bits, which are not those of docs/bits.md, do not depend on the number of lanes and
 * devices. */

typedef enum ls_gpu_call_kind {
    LS_GPU_CALL_PRODUCT,          /* a, b, out */
    LS_GPU_CALL_CONV,             /* x, kernel, y; here kernels are [out,kh,kw,group_in] */
    LS_GPU_CALL_CONV_GRAD_INPUT,  /* kernel, dy, dx */
    LS_GPU_CALL_CONV_GRAD_KERNEL, /* x, dy, gradient of the kernel */
} ls_gpu_call_kind;

/* a [m,k] (transposed: [k,m]) times b [k,n] ([n,k]) for each index of the leading axes; array 0 of
 * the walk is a, 1 is b. sums: the output is the sum of all products. */
typedef struct ls_gpu_matrices {
    i64 m, n, k, transpose_a, transpose_b, sums;
    ls_gpu_walk leading;
} ls_gpu_matrices;

/* Must be zeroed first, because calls are compared bytewise. The workspace is the last place. */
typedef struct ls_gpu_call {
    i64 kind; /* ls_gpu_call_kind */
    size_t workspace;
    union {
        ls_gpu_matrices matrices;
        ls_gpu_window window;
    } of;
} ls_gpu_call;

/* Maximum workspace of a call in bytes under this memory limit (0: none): 1 GiB, or the largest
 * power of two up to a quarter of the limit. Independent of what is in memory, because it decides
 * the algorithms and so the bits. */
size_t ls_gpu_workspace_limit(size_t limit);

/* Sets *can if the library accepts a call within call->workspace, which becomes what it needs. */
typedef ls_status ls_gpu_asker(void *user, ls_gpu_call *call, bool *can);

/* ---- Launches ---- */

typedef struct ls_gpu_launch {
    ls_gpu_module module;
    const char *kernel;
    ls_memory_place place[LS_GPU_PLACES];
    int places;
    const void *numbers; /* a struct of calls.h */
    size_t size;
    int64_t items[2]; /* along the grid's axes */
    bool heavy;       /* much work per item */
    bool is_call;     /* `numbers` is an ls_gpu_call */
} ls_gpu_launch;

typedef ls_status ls_gpu_launcher(void *user, const ls_gpu_launch *launch);

enum { LS_GPU_MADE_SWAPPED = 1, LS_GPU_MADE_KERNEL = 2 };

/* Settings for running steps, or only for finding out what they need. */
typedef struct ls_gpu_lowering {
    const ls_gpu_tuning *tuning;
    ls_gpu_launcher *launch;
    ls_gpu_asker *ask; /* NULL: no library */
    void *user;
    ls_memory_place scratch; /* at least what `needs` gave for as many samples */
    size_t first_scratch;    /* first lane's scratch in the same memory */
    ls_memory_place fault;   /* an ls_gpu_fault, zero at first */
    size_t needs;            /* out: maximum bytes of scratch */
    /* The library's workspace, shared by lanes because their calls run one after another. */
    ls_memory_place shared;
    size_t shared_needs; /* out: maximum bytes of `shared` */
    /* Bytes of partial sums at once, over all lanes; does not affect the bits. */
    int64_t parts_limit;
    size_t workspace_limit; /* bytes of one call */
    int lanes;              /* run together; each has its own scratch */
    /* Results for all lanes that earlier lanes computed in this step (LS_GPU_MADE_...). NULL:
     * none. */
    unsigned *made;
    int step;    /* step being lowered */
    bool checks; /* out: the data may be invalid; check `fault` */
    bool random; /* out: results depend on the run's number */
} ls_gpu_lowering;

/* rounded: the device rounds float division and square root correctly. */
bool ls_gpu_supports(const ls_tensor *node, bool rounded);

ls_status ls_gpu_lower(ls_gpu_lowering *l, const ls_program_step *step, const ls_program_run *run);

/* Launches of a backend's `join`, `join_lanes` and `finite`. The left operand of a join is at `to`.
 * finite writes flag_count bytes to `flags`, at most LS_GPU_FLAGS; all are 0 if all values are
 * finite. */
ls_status ls_gpu_join(ls_gpu_lowering *l, const ls_join_call *call);
/* tree: room for an ls_gpu_tree and 2 numbers per lane. */
ls_status ls_gpu_join_lanes(ls_gpu_lowering *l, const ls_join_lanes_call *call, i64 *tree);
#define LS_GPU_FLAGS 1024
ls_status ls_gpu_finite(ls_gpu_lowering *l, ls_dtype dtype, ls_memory_place from, int64_t count, ls_memory_place flags,
                        int64_t flag_count);

/* Fails with the message of a fault of `step`. */
ls_status ls_gpu_fault_status(const ls_gpu_fault *fault, const ls_program_step *step);

/* Launches of all devices of this process; a merged launch counts once. */
int64_t ls_gpu_launches(void);
void ls_gpu_count_launches(int count);

#endif
