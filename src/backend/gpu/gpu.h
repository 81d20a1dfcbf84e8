/* What devices with kernels of src/backend/gpu share, whoever runs them: the kernels' source, and how a step of a
 * program becomes launches of kernels. A backend compiles modules, and launches what it is told to, in order.
 *
 * The result has the bits of docs/bits.md, whatever the tile shapes and the sizes of work groups: sums are split only
 * at the blocks of that page, whose parts are stored and added in order by a second kernel. */
#ifndef LS_BACKEND_GPU_GPU_H
#define LS_BACKEND_GPU_GPU_H

#include "backend/ref/ref.h"
#include "lockstep/backend.h"

typedef int64_t i64;
typedef uint64_t u64;
#include "backend/gpu/calls.h"

/* ---- Source ---- */

/* Kernels are compiled module by module, when a plan first needs one. */
typedef enum ls_gpu_module {
    LS_GPU_ELEMENTWISE,
    LS_GPU_MOVES,
    LS_GPU_PRODUCTS,
    LS_GPU_POOLS,
    LS_GPU_SUMS,
    LS_GPU_NORM,
    LS_GPU_SOFTMAX,
    LS_GPU_RANDOM,
    LS_GPU_UPDATE,
    LS_GPU_CHAINS, /* chain.cl; each chain is a module of its own behind it */
    LS_GPU_COMMON, /* what most networks need, of any of them: so that it is compiled at once, and the rest rarely */
    LS_GPU_DEEPER, /* what many need beside it */
    LS_GPU_MODULES,
} ls_gpu_module;

const char *ls_gpu_module_name(ls_gpu_module module);

/* Where a kernel is found: in LS_GPU_COMMON or LS_GPU_DEEPER, or in the module that it is told of in; under its own
 * name, or as number `which` of `small`. */
typedef struct ls_gpu_found {
    ls_gpu_module module;
    const char *name;
    int which;  /* -1: it is a kernel of its own */
    int places; /* of small; 0: as many as the launch has */
} ls_gpu_found;
ls_gpu_found ls_gpu_find_kernel(const char *name, ls_gpu_module module);

/* Its whole text, prelude first; the caller frees it. NULL: no memory. */
char *ls_gpu_source(ls_gpu_module module);

/* The same with texts before and behind it. */
char *ls_gpu_source_with(ls_gpu_module module, const char *before, const char *behind);

/* Tile shapes and sizes of work groups, by device. */
typedef struct ls_gpu_tuning {
    const char *name;
    int vector; /* columns that an item of a product has: 1, 4, 8 or 16 */
    int rows;   /* and rows */
    bool wide;  /* an item may have two such vectors */
    int group;  /* items of a work group */
    int heavy;  /* the same, of kernels whose items have much to do */
} ls_gpu_tuning;

extern const ls_gpu_tuning ls_gpu_tuning_cpu, ls_gpu_tuning_cpu_512, ls_gpu_tuning_gpu;

/* ---- Calls of a vendor's library ----
 * A driver may have one (cuBLAS, cuDNN): what it takes is then no kernel of ours but a call for each lane, whatever the
 * number of lanes and devices, so that the bits do not depend on these. They are other bits than those of docs/bits.md.
 */

typedef enum ls_gpu_call_kind {
    LS_GPU_CALL_PRODUCT,          /* a, b, out */
    LS_GPU_CALL_CONV,             /* x, kernel, y; kernels are [out,kh,kw,group_in] here */
    LS_GPU_CALL_CONV_GRAD_INPUT,  /* kernel, dy, dx */
    LS_GPU_CALL_CONV_GRAD_KERNEL, /* x, dy, gradient of the kernel */
} ls_gpu_call_kind;

/* Products of matrices: a [m,k] (transposed: [k,m]) times b [k,n] ([n,k]), for each place of the leading axes, array 0
 * of the walk is a and 1 is b. sums: one matrix comes out, their sum. */
typedef struct ls_gpu_matrices {
    i64 m, n, k, transpose_a, transpose_b, sums;
    ls_gpu_walk leading;
} ls_gpu_matrices;

/* Of all zeros before it is filled: calls are compared byte by byte. Behind its places comes one for the workspace. */
typedef struct ls_gpu_call {
    i64 kind; /* ls_gpu_call_kind */
    size_t workspace;
    union {
        ls_gpu_matrices matrices;
        ls_gpu_window window;
    } of;
} ls_gpu_call;

/* Bytes that the workspace of a call may have on a device with this limit of memory (0: none): 1 GiB, or the largest
 * power of two that is at most a quarter of the limit. It decides which algorithms are taken, and so the bits: it does
 * not depend on what else is in memory. */
size_t ls_gpu_workspace_limit(size_t limit);

/* Whether the library takes a call, with a workspace of no more than it has when it is asked; then its workspace. */
typedef ls_status ls_gpu_asker(void *user, ls_gpu_call *call, bool *can);

/* ---- Launches ---- */

typedef struct ls_gpu_launch {
    ls_gpu_module module;
    const char *kernel;
    ls_memory_place place[LS_GPU_PLACES];
    int places;
    const void *numbers; /* a struct of calls.h */
    size_t size;
    int64_t items[2]; /* along the axes of the grid */
    bool heavy;       /* an item has much to do */
    bool is_call;     /* of the library, in place of a kernel: `numbers` is an ls_gpu_call */
} ls_gpu_launch;

typedef ls_status ls_gpu_launcher(void *user, const ls_gpu_launch *launch);

enum { LS_GPU_MADE_SWAPPED = 1, LS_GPU_MADE_KERNEL = 2 };

/* How steps are lowered: for a run, or only to find out what it takes. */
typedef struct ls_gpu_lowering {
    const ls_gpu_tuning *tuning;
    ls_gpu_launcher *launch;
    ls_gpu_asker *ask; /* NULL: there is no library */
    void *user;
    ls_memory_place scratch; /* of at least what `needs` said for as many samples */
    size_t first_scratch;    /* offset of the first lane's, in the same memory */
    ls_memory_place fault;   /* an ls_gpu_fault, zeros before the first run */
    size_t needs;            /* bytes of scratch: the most so far */
    ls_memory_place shared;  /* the library's workspace, of all lanes: their calls come one after the other */
    size_t shared_needs;     /* its bytes: the most so far */
    int64_t parts_limit;     /* bytes of parts of a sum that are stored at once, of all lanes; no bit depends on it */
    size_t workspace_limit;  /* bytes that the workspace of one call may have */
    int lanes;               /* that are run together, at most: each has scratch of its own */
    unsigned *made;          /* what lanes before it have made for all, in this step: LS_GPU_MADE_...; NULL: nothing */
    int step;                /* that is at hand */
    bool checks;             /* something may be wrong with the data: look at `fault` */
    bool random;             /* something depends on the number of the run */
} ls_gpu_lowering;

/* Whether there are kernels for a node. rounded: the device divides floats and takes their roots with one rounding. */
bool ls_gpu_supports(const ls_tensor *node, bool rounded);

ls_status ls_gpu_lower(ls_gpu_lowering *l, const ls_program_step *step, const ls_program_run *run);

/* What `join`, `join_lanes` and `finite` of a backend launch. A join's left operand is at `to` already. finite leaves
 * so many bytes at `flags`, at most LS_GPU_FLAGS, all 0 where all is well. */
ls_status ls_gpu_join(ls_gpu_lowering *l, const ls_join_call *call);
/* tree: room for an ls_gpu_tree and 2 numbers a lane. */
ls_status ls_gpu_join_lanes(ls_gpu_lowering *l, const ls_join_lanes_call *call, i64 *tree);
#define LS_GPU_FLAGS 1024
ls_status ls_gpu_finite(ls_gpu_lowering *l, ls_dtype dtype, ls_memory_place from, int64_t count, ls_memory_place flags,
                        int64_t flag_count);

/* The message of a fault that a run of `step` left. */
ls_status ls_gpu_fault_status(const ls_gpu_fault *fault, const ls_program_step *step);

/* Launches of all devices of this process so far; several lanes' are one. */
int64_t ls_gpu_launches(void);
void ls_gpu_count_launches(int count);

#endif
