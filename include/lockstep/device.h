/* lockstep/device.h: contexts, their devices, and the placement of ops.
 *
 * A context owns devices. There is no global runtime: several contexts may be open at once, with
 * different devices and limits. Physical devices are the hardware. A context is configured, then
 * opened; it then has logical devices, which run graphs. */
#ifndef LOCKSTEP_DEVICE_H
#define LOCKSTEP_DEVICE_H

#include "lockstep/base.h"
#include "lockstep/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LS_MAX_THREADS 1024 /* maximum number of threads, and of CPU devices */
#define LS_MIB(n)      ((size_t)(n) << 20)

/* ---- Contexts ---- */

/* Kernels that CUDA devices use for matrix products and convolutions: this library's, or the
 * vendor's cuBLAS and cuDNN. With the vendor's, all work must be on CUDA devices of one kind,
 * results have other bits, and checkpoints and workers of the other set are refused
 * (docs/gpu.md). Opening the context fails if the vendor's libraries are missing. */
typedef enum ls_kernels {
    LS_KERNELS_DEFAULT, /* value of LOCKSTEP_KERNELS, "own" or "vendor"; if unset: own */
    LS_KERNELS_OWN,
    LS_KERNELS_VENDOR,
} ls_kernels;

typedef struct ls_context_options {
    ls_log_level log_level; /* least severe level that is logged (default 0: warnings and errors) */
    ls_log_sink log_sink;   /* receives log lines (default NULL: standard error) */
    void *log_user;         /* passed to log_sink */
    /* Number of CPU devices that share the cores (default 1). */
    int cpu_devices;
    /* Number of threads of all CPU devices together (default: one per usable core). */
    int threads;
    /* Runs every op on the CPU's reference kernels and uses no other device. */
    bool reference;
    ls_kernels kernels; /* kernels of CUDA devices (default LS_KERNELS_DEFAULT) */
} ls_context_options;

/* Opens a context with these options; NULL: the defaults. Destroy its graphs and models before
 * closing it; otherwise it takes no more work and is freed with the last of them. A context
 * belongs to the process that made it: in a forked child its calls return LS_ERR_STATE, and
 * destroying objects of the parent does nothing. */
LS_API ls_status ls_context_open(const ls_context_options *options, ls_context **out);

/* Creates a context that can still be configured. The first call that needs its devices opens
 * it, such as listing logical devices or making a graph or a model. The caller closes it. */
LS_API ls_status ls_context_create(const ls_context_options *options, ls_context **out);
/* Closes a context and frees its devices, or does so when its last graph or model is destroyed. */
LS_API void ls_context_close(ls_context *ctx);

/* Returns an error if LOCKSTEP_ISA, the limit on vector instructions, names none that this
 * machine can run. The first run checks this too; use this call to find out early. */
LS_API ls_status ls_check_environment(void);

/* ---- Devices ----
 * Names are TensorFlow's: "/job:localhost/replica:0/task:0/device:GPU:1", "/device:CPU:0",
 * "/gpu:0". Short names are "gpu:0" and "cuda:1"; lists and ranges, where several are allowed:
 * "cpu:0-3,gpu:1". The devices of worker 3 of a cluster are named
 * "/job:worker/replica:0/task:3/device:CPU:0". A worker refuses the names of other workers'
 * devices. */

typedef struct ls_device_info {
    /* "/physical_device:GPU:0", or for a logical device
     * "/job:localhost/replica:0/task:0/device:GPU:0". In worker 3 of a cluster:
     * "/job:worker/replica:0/task:3/device:GPU:0". */
    char name[80];
    char kind[16]; /* "CPU" */
    int number;    /* the N of GPU:N */
    /* Logical device: number of the physical device that it is, or is a part of. */
    int physical;
    /* Bytes. Physical device: memory it has, 0 if unknown. Logical device: its limit, 0 if none. */
    size_t memory;
    /* Allocates memory on demand, not when the context opens. */
    bool growth;
    bool visible;
    int cores; /* number of cores of a CPU */
    /* Model name. For a CPU: why it has this number of cores. */
    char about[256];
} ls_device_info;

/* List the devices of one kind ("CPU", "GPU"), or of all kinds (NULL).
 * The caller frees the list. */
LS_API ls_status ls_list_physical_devices(ls_context *ctx, const char *kind, ls_device_info **out, size_t *count);
LS_API ls_status ls_list_logical_devices(ls_context *ctx, const char *kind, ls_device_info **out, size_t *count);

/* Parses a list of device names, for programs that configure the devices that a user
 * names. CPU devices need not exist yet (ls_set_logical_devices makes them); others must.
 * The caller frees the list. */
typedef struct ls_device_name {
    char kind[16];
    int number;
} ls_device_name;
LS_API ls_status ls_read_device_names(ls_context *ctx, const char *names, ls_device_name **out, size_t *count);

/* Describes which drivers for devices other than CPUs were found, one per line, or why not:
 * "OpenCL: 1 device of Portable Computing Language", "OpenCL: none (libOpenCL.so.1: cannot open
 * shared object file ...)". The caller frees the text. */
LS_API ls_status ls_format_drivers(char **out);

/* Describes the cores that this process may use, and the threads of its CPU devices. */
typedef struct ls_cpu_info {
    int cores; /* number of cores that CPU devices use */
    int quota; /* number of cores that the cgroup's quota allows; 0: no quota */
    /* Number of threads of all CPU devices. If it exceeds `cores`, they share them. */
    int threads;
    size_t l2;        /* size of a core's L2 cache in bytes; 0: unknown */
    char reason[256]; /* "2 cores", "1 of 2 cores: affinity mask" */
} ls_cpu_info;
LS_API ls_status ls_get_cpu_info(ls_context *ctx, ls_cpu_info *out);

/* Returns the system's numbers of the cores that the threads of a logical CPU device are bound
 * to; *count is 0 if they are not bound. The caller frees the list. */
LS_API ls_status ls_list_device_cores(ls_context *ctx, const char *device, int **out, size_t *count);

/* ---- Configuration, before a context is opened. Names are those of physical devices ---- */

/* Limits the context to these devices and the CPU, which is always used: "gpu:0", "gpu:0,gpu:2";
 * "": only the CPU. "cpu:0[2-3]" selects cores by the system's numbers. The default is
 * LOCKSTEP_VISIBLE_DEVICES. */
LS_API ls_status ls_set_visible_devices(ls_context *ctx, const char *devices);

/* On: allocates memory on demand and keeps it. Off (the default for devices with a limit):
 * reserves the limit when the context opens. */
LS_API ls_status ls_set_memory_growth(ls_context *ctx, const char *devices, bool growth);

/* Divides one physical device into `count` logical ones. Parts of the CPU share its cores. */
typedef struct ls_logical_device {
    /* Bytes; 0: no limit for a CPU, an equal share of the remaining memory for other devices. */
    size_t memory_limit;
} ls_logical_device;
LS_API ls_status ls_set_logical_devices(ls_context *ctx, const char *device, const ls_logical_device *parts,
                                        size_t count);

/* ---- Placement ---- */

/* Places the nodes made inside on a device:
 *     LS_WITH_DEVICE(graph, "/gpu:1") { ... }   blocks may be nested; break and return end them
 * Other nodes go to the fastest kind of device that has a kernel for them, and gradients to the
 * device of their tensors; "" selects this inside another block. A wrong name becomes the
 * graph's error (ls_graph_status). */
typedef struct ls_device_scope {
    ls_graph *graph;
    int outer;
    bool open;
} ls_device_scope;

/* Open and close such a block; LS_WITH_DEVICE calls both. */
LS_API ls_device_scope ls_device_scope_open(ls_graph *graph, const char *device);
LS_API void ls_device_scope_close(ls_device_scope *scope);
#define LS_WITH_DEVICE(graph, device)                                                                                  \
    for (ls_device_scope ls_device_scope_                                                                              \
         __attribute__((cleanup(ls_device_scope_close))) = ls_device_scope_open(graph, device);                        \
         ls_device_scope_.open; ls_device_scope_close(&ls_device_scope_))

/* Hard placement makes it an error if an op's device has no kernel for it. Soft placement
 * (the default) moves the op to the CPU and logs this. Applies to plans compiled later; so
 * does ls_set_log_placement. */
LS_API ls_status ls_set_hard_placement(ls_context *ctx, bool hard);

/* Logs the placement of every op that is compiled: "Executing op MatMul in device
 * /job:localhost/replica:0/task:0/device:GPU:0" (default off). */
LS_API ls_status ls_set_log_placement(ls_context *ctx, bool on);

/* ---- Memory and copies ---- */

typedef struct ls_memory_info {
    size_t in_use, peak; /* bytes used by variables, values and plans: now, and at most */
    size_t reserved;     /* bytes taken from the device: in use, or kept for later */
    size_t limit;        /* bytes; 0: none */
} ls_memory_info;

/* Returns the memory use of a logical device. */
LS_API ls_status ls_get_memory_info(ls_context *ctx, const char *device, ls_memory_info *out);

/* Lists the memory in use by name, largest first. The caller frees the text. */
LS_API ls_status ls_format_memory(ls_context *ctx, const char *device, char **out);

/* Counts copies of a tensor between two devices since the context was opened. */
typedef struct ls_copy_info {
    char tensor[128]; /* "dense/kernel", "relu:12" */
    int from, to;     /* indices in the list of all logical devices */
    int64_t times;
    size_t bytes; /* total bytes of all copies */
} ls_copy_info;
/* Lists the copies between devices. The caller frees the list. */
LS_API ls_status ls_list_copies(ls_context *ctx, ls_copy_info **out, size_t *count);

#ifdef __cplusplus
}
#endif
#endif
