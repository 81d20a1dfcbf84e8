/* lockstep/device.h: contexts, their devices, and what runs where.
 *
 * A context owns devices. There is no global runtime: several may be open at once, with other devices and limits.
 * Physical devices are what the machine has; a context is configured, and opened: then it has logical devices, which
 * graphs are run on. */
#ifndef LOCKSTEP_DEVICE_H
#define LOCKSTEP_DEVICE_H

#include "lockstep/base.h"
#include "lockstep/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LS_MAX_WORKERS 1024
#define LS_MIB(n)      ((size_t)(n) << 20)

/* ---- Contexts ---- */

/* Whose kernels CUDA devices use for matrix products and convolutions. With those of the vendor, cuBLAS and cuDNN, all
 * work must be on CUDA devices of one kind, and results have bits of their own: checkpoints and workers of the other
 * set are refused (docs/gpu.md). Where they cannot be had, opening the context fails. */
typedef enum ls_kernels {
    LS_KERNELS_DEFAULT, /* what LOCKSTEP_KERNELS says, own or vendor; not set: own */
    LS_KERNELS_OWN,
    LS_KERNELS_VENDOR,
} ls_kernels;

typedef struct ls_context_options {
    ls_log_level log_level; /* 0: warnings and errors */
    ls_log_sink log_sink;   /* NULL: standard error */
    void *log_user;
    int cpu_devices; /* CPU devices that share the cores out; 0: one */
    int threads;     /* worker threads of all of them together; 0: one for each core this process may use */
    bool reference;  /* every op runs on the CPU's plain reference kernels; devices of other kinds are not used */
    ls_kernels kernels;
} ls_context_options;

/* options NULL: the defaults. Graphs and models made in the context are destroyed before it is closed; if not, it takes
 * no more work and ends with the last of them. A context belongs to the process that made it: in a child that was
 * forked, calls are refused with LS_ERR_STATE, and destroying what came from the parent does nothing. */
LS_API ls_status ls_context_open(const ls_context_options *options, ls_context **out);

/* The same, but the context can still be configured. The first call that needs its devices opens it: listing logical
 * devices, making a graph or a model. */
LS_API ls_status ls_context_create(const ls_context_options *options, ls_context **out);
LS_API void ls_context_close(ls_context *ctx);

/* Whether LOCKSTEP_ISA, which limits the vector instructions that kernels use, is a name that this machine can run. The
 * first run checks it too; a program may want to know at once. */
LS_API ls_status ls_check_environment(void);

/* ---- Devices ----
 * Names are TensorFlow's: "/job:localhost/replica:0/task:0/device:GPU:1", "/device:CPU:0", "/gpu:0"; also "gpu:0",
 * "cuda:1"; where several may be named, lists and ranges: "cpu:0-3,gpu:1". Worker 3 of a cluster shows its devices as
 * "/job:worker/replica:0/task:3/device:CPU:0" and takes that name, too; those of other workers are refused. */

typedef struct ls_device_info {
    char name[80]; /* "/physical_device:GPU:0", or logical: "/job:localhost/replica:0/task:0/device:GPU:0"; of
                      worker 3 of a cluster, "/job:worker/replica:0/task:3/device:GPU:0" */
    char kind[16]; /* "CPU" */
    int number;    /* the N of GPU:N */
    int physical;  /* logical: the number of the physical device it is, or is a part of */
    size_t memory; /* bytes; of a physical device: what it has, 0: not known; of a logical one: its limit, 0: none */
    bool growth;   /* takes memory as it is needed, not at opening */
    bool visible;
    int cores;       /* of a CPU */
    char about[256]; /* which model; of a CPU: why so many cores */
} ls_device_info;

/* Of a kind ("CPU", "GPU"), or of all (NULL); free() the list. */
LS_API ls_status ls_list_physical_devices(ls_context *ctx, const char *kind, ls_device_info **out, size_t *count);
LS_API ls_status ls_list_logical_devices(ls_context *ctx, const char *kind, ls_device_info **out, size_t *count);

/* A list of names, read, for a program that configures its devices as a user named them. CPU devices need not be there
 * yet: ls_set_logical_devices makes as many as are wanted. Others must be. free() the list. */
typedef struct ls_device_name {
    char kind[16];
    int number;
} ls_device_name;
LS_API ls_status ls_read_device_names(ls_context *ctx, const char *names, ls_device_name **out, size_t *count);

/* What was found of the drivers that devices other than CPUs need, a line each, and why what was not: "OpenCL: 1 device
 * of Portable Computing Language", "OpenCL: none (libOpenCL.so.1: cannot open shared object file ...)". free() it. */
LS_API ls_status ls_format_drivers(char **out);

/* What this process may use of the machine's cores, and what CPU devices do with them. */
typedef struct ls_cpu_info {
    int cores;        /* that CPU devices use */
    int quota;        /* cores that the cgroup's quota gives time for; 0: there is no quota */
    int workers;      /* worker threads of all CPU devices; where there are more than cores, they take turns */
    size_t l2;        /* bytes of a core's L2 cache; 0: not known */
    char reason[256]; /* "2 cores", "1 of 2 cores: affinity mask" */
} ls_cpu_info;
LS_API ls_status ls_get_cpu_info(ls_context *ctx, ls_cpu_info *out);

/* The cores, by the system's numbers, that the workers of a logical CPU device are bound to; *count is 0 where they are
 * not bound. free() the list. */
LS_API ls_status ls_list_device_cores(ls_context *ctx, const char *device, int **out, size_t *count);

/* ---- Configuring, before a context is opened. Names are those of physical devices ---- */

/* Only these are used, and the CPU, which is always there: "gpu:0", "gpu:0,gpu:2"; "": the CPU alone. Cores of the CPU
 * may be chosen, by the system's numbers: "cpu:0[2-3]". What LOCKSTEP_VISIBLE_DEVICES says is the default. */
LS_API ls_status ls_set_visible_devices(ls_context *ctx, const char *devices);

/* On: memory is taken as it is needed, and kept. Off (the default of devices with a limit): the limit is reserved at
 * opening. */
LS_API ls_status ls_set_memory_growth(ls_context *ctx, const char *devices, bool growth);

/* One physical device becomes `count` logical ones. Parts of the CPU share its cores out. */
typedef struct ls_logical_device {
    size_t memory_limit; /* bytes; 0: none for a CPU, an equal share of what is left for others */
} ls_logical_device;
LS_API ls_status ls_set_logical_devices(ls_context *ctx, const char *device, const ls_logical_device *parts,
                                        size_t count);

/* ---- What runs where ---- */

/* Nodes made inside belong to that device:
 *     LS_WITH_DEVICE(graph, "/gpu:1") { ... }        nested as you like; also ends on break and return.
 * Other nodes go to the fastest kind of device that has a kernel for them, gradients to where their tensors are. ""
 * means the same, inside another such block. A wrong name becomes the graph's error (ls_graph_status). */
typedef struct ls_device_scope {
    ls_graph *graph;
    int outer;
    bool open;
} ls_device_scope;

LS_API ls_device_scope ls_device_scope_open(ls_graph *graph, const char *device);
LS_API void ls_device_scope_close(ls_device_scope *scope);
#define LS_WITH_DEVICE(graph, device)                                                                                  \
    for (ls_device_scope ls_device_scope_                                                                              \
         __attribute__((cleanup(ls_device_scope_close))) = ls_device_scope_open(graph, device);                        \
         ls_device_scope_.open; ls_device_scope_close(&ls_device_scope_))

/* Soft (the default): an op that its device has no kernel for goes to the CPU, with a line in the log. Hard: that is an
 * error. Applies to plans compiled later; so does ls_set_log_placement. */
LS_API ls_status ls_set_hard_placement(ls_context *ctx, bool hard);

/* Every compiled op is logged: "Executing op MatMul in device /job:localhost/replica:0/task:0/device:GPU:0". */
LS_API ls_status ls_set_log_placement(ls_context *ctx, bool on);

/* ---- Memory and copies ---- */

typedef struct ls_memory_info {
    size_t in_use, peak; /* by variables, values and plans */
    size_t reserved;     /* taken from the device: what is in use, and what is kept for later */
    size_t limit;        /* 0: none */
} ls_memory_info;

/* Of a logical device. */
LS_API ls_status ls_get_memory_info(ls_context *ctx, const char *device, ls_memory_info *out);

/* What is in use, by name, largest first, as text; free() it. */
LS_API ls_status ls_format_memory(ls_context *ctx, const char *device, char **out);

/* Copies between devices since the context was opened. */
typedef struct ls_copy_info {
    char tensor[128]; /* "dense/kernel", "relu:12" */
    int from, to;     /* indices in the list of all logical devices */
    int64_t times;
    size_t bytes; /* of all times together */
} ls_copy_info;
LS_API ls_status ls_list_copies(ls_context *ctx, ls_copy_info **out, size_t *count); /* free() the list */

#ifdef __cplusplus
}
#endif
#endif
