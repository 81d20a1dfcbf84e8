/* The context: what the devices, runs and logs of one job share. */
#ifndef LS_DEVICE_CONTEXT_H
#define LS_DEVICE_CONTEXT_H

#include <sys/types.h>

#include "base/log.h"
#include "device/device.h"
#include "device/host_memory.h"
#include "device/names.h"
#include "graph/context.h"

/* Calls that a context makes to the layers above: to those that have the built-in kinds of devices
 * and the cluster. */
typedef struct ls_context_hooks {
    void (*add_own_kinds)(ls_context *ctx); /* other than the CPU */
    /* Verifies after opening that a vendor kind has devices with equal bits. */
    ls_status (*check_vendor)(const ls_context *ctx);
    /* Reads the environment when a context is created. */
    ls_status (*look_for_cluster)(ls_context *ctx, const char *call);
    /* Whether to connect when training starts (parameter servers), not when the context is
     * opened. */
    bool (*meets_later)(const ls_context *ctx);
    ls_status (*meet_cluster)(ls_context *ctx); /* connects to the other workers */
    void (*leave_cluster)(ls_context *ctx);
} ls_context_hooks;

/* The only symbol that a lower layer takes from a higher one (src/fabric/mesh/cluster.c). */
extern const ls_context_hooks ls_library_hooks;

struct ls_context {
    const ls_context_calls *calls; /* first: graph/context.h */
    ls_logger log;
    ls_context_options options;
    /* Protects opening, creating the runtime, and the list of copies. */
    pthread_mutex_t mutex;
    /* Held from the first call for a device that is not a CPU until the call that returns its
     * result, so that a failure is reported to the run that caused it. Recursive. Lock it before
     * using the thread pool. */
    pthread_mutex_t devices_mutex;
    /* Call that opened the context; NULL: may still be configured. */
    const char *opened_by;
    pid_t process;         /* process that created the context */
    int graph_count;       /* not destroyed yet */
    int running_calls;     /* calls that must return before the context can be closed */
    const char *last_call; /* one of the running calls, for messages */
    bool closed;           /* closed while it had graphs; freed with the last graph */

    ls_kind kinds[LS_MAX_KINDS];
    int kind_count;
    ls_physical *physical; /* NULL: not enumerated yet */
    int physical_count;
    ls_cores allowed; /* cores that the process and its environment allow */
    ls_cores cores;   /* cores of CPU devices, a subset of `allowed` */
    ls_host_memory memory;

    ls_device *devices; /* NULL: not open */
    int device_count, cpu_count, device_room;
    bool crowded; /* more CPU threads than cores */

    bool hard_placement, log_placement;
    ls_copy_info *copies;
    size_t copy_count, copy_room;

    /* NULL until ls_bit_class computes it; in a cluster, set before the workers meet. */
    char *bit_class;
    bool evaluator; /* follows checkpoints of other processes (lockstep/cluster.h) */
    /* Joined a cluster by a call or by LOCKSTEP_ variables; variables of other launchers are then
     * ignored. */
    bool joined;
    /* worker_count 0 or 1: no cluster. */
    int worker, worker_count;
    /* src/fabric/mesh/cluster.h; NULL: none */
    struct ls_cluster *cluster;
    /* Other workers (src/run/peers.h); NULL: none */
    struct ls_peers *peers;
    struct ls_runtime *runtime; /* created on first use (src/run/runtime.c) */
    void (*close_runtime)(struct ls_runtime *runtime);
};

/* Enumerates the physical devices once. The caller holds the mutex. */
ls_status ls_context_look(ls_context *ctx);

/* Also enumerates the sleeping kinds that occur in `names`; NULL: all. */
ls_status ls_context_look_for(ls_context *ctx, const char *names);

/* Guesses, without parsing, whether a text names a kind: "opencl:0", "/gpu:1" (CUDA). */
bool ls_context_names_kind(const ls_context *ctx, const char *names, int kind);

/* Rank, or LS_NO_WORKER without a cluster. ls_context_kinds lists kinds and numbers of devices, for
 * parsing names. */
static inline int ls_context_worker(const ls_context *ctx)
{
    return ctx->worker_count > 1 ? ctx->worker : LS_NO_WORKER;
}
int ls_context_kinds(const ls_context *ctx, bool logical, ls_kind_count out[LS_MAX_KINDS]);

/* Find the logical device of a name, or those of a list; the caller frees *out. */
ls_status ls_context_device(ls_context *ctx, const char *name, int *out);
ls_status ls_context_device_list(ls_context *ctx, const char *names, int **out, int *count);

/* "cpu:0"; returns `out`. */
#define LS_SHORT_NAME 32
const char *ls_device_short_name(const ls_context *ctx, int device, char out[LS_SHORT_NAME]);

static inline bool ls_context_has_others(const ls_context *ctx)
{
    return ctx->device_count > ctx->cpu_count;
}

/* Threads of all CPU devices. Each is bound to a core if there are enough cores. */
static inline int ls_context_cpu_threads(const ls_context *ctx)
{
    const ls_device *last = &ctx->devices[ctx->cpu_count - 1];
    return last->first_thread + last->thread_count;
}
static inline bool ls_context_binds_threads(const ls_context *ctx)
{
    return ctx->cores.bind && ls_context_cpu_threads(ctx) <= ctx->cores.count;
}

void ls_context_count_copy(ls_context *ctx, const char *tensor, int from, int to, size_t bytes);

void ls_context_close_devices(ls_context *ctx);

/* Kind that uses its vendor's kernels; 0: none. */
int ls_context_vendor_kind(const ls_context *ctx);

/* Number of contexts that this process has opened. */
int ls_contexts_opened(void);

/* Opens the context if necessary, for the public function `call`. */
ls_status ls_context_begin(ls_context *ctx, const char *call);

/* Returns LS_OK if the context is not NULL, not closed, and created by this process. */
ls_status ls_context_check(const ls_context *ctx, const char *call);

/* Marks a call that must end before the context can be closed. outer: the enclosing call, or
 * NULL. */
void ls_context_enter(ls_context *ctx, const char *call);
void ls_context_leave(ls_context *ctx, const char *outer);

#endif
