/* The context: what devices, runs and logs of one job share. */
#ifndef LS_DEVICE_CONTEXT_H
#define LS_DEVICE_CONTEXT_H

#include <sys/types.h>

#include "base/log.h"
#include "device/device.h"
#include "device/host_memory.h"
#include "device/names.h"
#include "graph/context.h"

struct ls_context {
    ls_logger log;
    ls_context_options options;
    pthread_mutex_t mutex; /* of opening, of the making of the runtime, and of copies */
    /* Held from the first call for a device that is not a CPU to the one that says how it went: a failure is told to
     * who asked for the work, not to another graph's run. Taken before the crew; a thread may take it again. */
    pthread_mutex_t devices_mutex;
    const char *opened_by; /* the call that opened it; NULL: it is still to be configured */
    pid_t process;         /* that made it */
    int graph_count;       /* that were not destroyed yet */
    int at_work;           /* calls that it must outlive, */
    const char *last_call; /* and one of them, for messages */
    bool closed;           /* while it had graphs: it goes with the last of them */

    ls_kind kinds[LS_MAX_KINDS];
    int kind_count;
    ls_physical *physical; /* NULL: not looked for yet (physical.c) */
    int physical_count;
    ls_cores allowed; /* that the process and its environment leave */
    ls_cores cores;   /* of these, what CPU devices use */
    ls_host_memory memory;

    ls_device *devices; /* once open (open.c) */
    int device_count, cpu_count, device_room;
    bool crowded; /* more CPU workers than cores */

    bool hard_placement, log_placement;
    ls_copy_info *copies;
    size_t copy_count, copy_room;

    char *bit_class;            /* NULL until ls_bit_class has found it; in a cluster before the workers meet */
    bool evaluator;             /* it follows checkpoints of others (lockstep/cluster.h) */
    bool joined;                /* by a call, or by our own environment: others are not to be asked */
    int worker, worker_count;   /* which of a cluster it is, and of how many; of 1, or 0 of 0: of none */
    struct ls_cluster *cluster; /* that it is one of; NULL: none (src/fabric/mesh/cluster.h) */
    struct ls_peers *peers;     /* other workers of a cluster; NULL: this process is alone (src/run/peers.h) */
    struct ls_runtime *runtime; /* threads and kernels, made when first needed (src/run/runtime.c) */
    void (*close_runtime)(struct ls_runtime *runtime);
};

/* The physical devices, looked for at the first call. The mutex is held. */
ls_status ls_context_look(ls_context *ctx);

/* The same, and of kinds that sleep those that are in a text, or (NULL) all. */
ls_status ls_context_look_for(ls_context *ctx, const char *names);

/* Whether a text names a kind, as far as can be told without reading it: "opencl:0", "/gpu:1" (CUDA). */
bool ls_context_names_kind(const ls_context *ctx, const char *names, int kind);

/* Which worker this is, and kinds with the number of their devices: for reading names. */
static inline int ls_context_worker(const ls_context *ctx)
{
    return ctx->worker_count > 1 ? ctx->worker : LS_NO_WORKER;
}
int ls_context_kinds(const ls_context *ctx, bool logical, ls_kind_count out[LS_MAX_KINDS]);

/* The logical device of a name; of a list of names, indices that the caller frees. */
ls_status ls_context_device(ls_context *ctx, const char *name, int *out);
ls_status ls_context_device_list(ls_context *ctx, const char *names, int **out, int *count);

/* "cpu:0": how people write the name of a logical device; returns `out`. */
#define LS_SHORT_NAME 32
const char *ls_device_short_name(const ls_context *ctx, int device, char out[LS_SHORT_NAME]);

/* Whether it has devices that are no CPUs. */
static inline bool ls_context_has_others(const ls_context *ctx)
{
    return ctx->device_count > ctx->cpu_count;
}

/* Worker threads of all CPU devices, and whether each is bound to a core: where it can have one of its own. */
static inline int ls_context_cpu_workers(const ls_context *ctx)
{
    const ls_device *last = &ctx->devices[ctx->cpu_count - 1];
    return last->first_worker + last->worker_count;
}
static inline bool ls_context_binds_workers(const ls_context *ctx)
{
    return ctx->cores.bind && ls_context_cpu_workers(ctx) <= ctx->cores.count;
}

/* Counts a copy of a tensor between two devices. */
void ls_context_count_copy(ls_context *ctx, const char *tensor, int from, int to, size_t bytes);

void ls_context_close_devices(ls_context *ctx);

/* The kinds that the library brings, beside the CPU: src/backend/kinds.c. */
void ls_context_add_own_kinds(ls_context *ctx);

/* The kind whose kernels are its vendor's; 0: all kernels are our own. */
int ls_context_vendor_kind(const ls_context *ctx);

/* Of a context with such a kind, in src/backend/kinds.c. When its devices were opened: there must be some, and they
 * must be equal enough to have the same bits. For the bit class: "vendor: cuBLAS 13.0.2 and ...". */
ls_status ls_context_check_vendor(const ls_context *ctx);
void ls_context_describe_vendor(const ls_context *ctx, struct ls_text *out);

/* How many contexts this process has opened. */
int ls_contexts_opened(void);

/* What a context asks of the layer of clusters. The answers are in src/fabric/mesh/cluster.c. When it is made: whether the
 * environment says that it is one of a cluster. When it was opened: meeting the others. At its end. */
ls_status ls_context_look_for_cluster(ls_context *ctx, const char *call);
bool ls_context_meets_later(const ls_context *ctx); /* not when it is opened, but when it must */
ls_status ls_context_meet_cluster(ls_context *ctx);
void ls_context_leave_cluster(ls_context *ctx);

#endif
