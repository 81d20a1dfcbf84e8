/* lockstep/strategy.h: how work is distributed over devices.
 *
 * A training step consists of tasks (some layers for one lane of the batch) and joins (sums
 * over lanes). A strategy maps tasks to devices and parts of joins to their owners, nothing
 * else, so no strategy changes a bit of a result. Pass it to ls_fit, ls_evaluate or
 * ls_predict, or set it for a graph. */
#ifndef LOCKSTEP_STRATEGY_H
#define LOCKSTEP_STRATEGY_H

#include "lockstep/device.h"
#include "lockstep/run.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ls_strategy_kind {
    /* Mirrored over all devices of the fastest kind. */
    LS_STRATEGY_DEFAULT = 0,
    /* Runs everything on one device. */
    LS_STRATEGY_ONE_DEVICE,
    /* Distributes lanes; every device has a copy of the variables and updates it itself. */
    LS_STRATEGY_MIRRORED,
    /* Distributes lanes; the first device joins, updates, and copies the
     * variables to the others. */
    LS_STRATEGY_DATA_PARALLEL,
    /* Distributes layers. */
    LS_STRATEGY_MODEL_PARALLEL,
    /* Distributes layers; lanes follow each other from stage to stage. */
    LS_STRATEGY_PIPELINE,
    /* Mirrored over the devices of every worker of the cluster. */
    LS_STRATEGY_MULTI_WORKER,
    /* Multi-worker, with servers that join, or that apply gradients as they arrive. */
    LS_STRATEGY_PARAMETER_SERVER,
} ls_strategy_kind;

#define LS_MAX_STALENESS 1000000000 /* versions; effectively unlimited */

/* Selects the devices that join the partial gradients of all devices. */
typedef enum ls_all_reduce {
    /* Every device joins a part of the vector and sends it to the others. */
    LS_ALL_REDUCE_SHARDED = 0,
    /* Pairs of devices join, then pairs of pairs, and so on; the first device sends the result. */
    LS_ALL_REDUCE_HIERARCHICAL_COPY,
    /* The first device joins everything and sends the result. */
    LS_ALL_REDUCE_TO_ONE,
} ls_all_reduce;

/* Order of the lanes in a pipeline. */
typedef enum ls_pipeline_order {
    /* Starts a lane's backward pass as soon as possible: few lanes in flight, little memory. */
    LS_ONE_FORWARD_ONE_BACKWARD = 0,
    /* Runs all lanes forward, then all backward: all lanes are in flight. */
    LS_FILL_DRAIN,
} ls_pipeline_order;

typedef struct ls_strategy {
    ls_strategy_kind kind;
    int ls_first;
    /* Devices: "gpu:0,gpu:1", "cpu:0-3", "cpu:0,opencl:0". NULL: all of the
     * fastest kind (one-device: one). */
    const char *devices;
    /* The same as a list from ls_list_logical_devices, instead of `devices`. */
    const ls_device_info *list;
    size_t list_count;        /* number of devices in `list` */
    ls_all_reduce all_reduce; /* which devices join gradients (default sharded) */
    /* Number of parts that the layers are divided into by cost, for layers without a
     * device of their own (default: the number of devices). Devices beyond `stages` hold
     * more replicas of all stages. */
    int stages;
    ls_pipeline_order order; /* order of lanes in a pipeline (default 1F1B) */
    /* Share of the lanes for each replica: "3:1"; "auto": by the measured speed of each device
     * and worker; NULL: equal shares. */
    const char *work_split;
    /* Parameter-server: maximum age of a gradient in versions; 0: synchronous. */
    int64_t staleness;
    /* Parameter-server: divides the learning rate of a gradient that is n > 1 versions old by n. */
    bool scale_by_staleness;
    /* Parameter-server: a worker reads weights and pushes gradients while it computes; gradients
     * are a version older. */
    bool overlap;
} ls_strategy;

#ifndef __cplusplus /* cplusplus.h has them as functions */
#define ls_one_device(...)     ((ls_strategy){ .kind = LS_STRATEGY_ONE_DEVICE, .ls_first = 0, __VA_ARGS__ })
#define ls_mirrored(...)       ((ls_strategy){ .kind = LS_STRATEGY_MIRRORED, .ls_first = 0, __VA_ARGS__ })
#define ls_data_parallel(...)  ((ls_strategy){ .kind = LS_STRATEGY_DATA_PARALLEL, .ls_first = 0, __VA_ARGS__ })
#define ls_model_parallel(...) ((ls_strategy){ .kind = LS_STRATEGY_MODEL_PARALLEL, .ls_first = 0, __VA_ARGS__ })
#define ls_pipeline(...)       ((ls_strategy){ .kind = LS_STRATEGY_PIPELINE, .ls_first = 0, __VA_ARGS__ })
#endif

/* Mirrored over the devices of every worker of the cluster. This is also the default strategy of
 * a context in a cluster, and every other strategy is distributed over the workers too. In
 * addition, it returns LS_ERR_STATE if the environment (TF_CONFIG, torchrun, mpirun, srun)
 * describes a cluster that the context has not joined, so that workers do not train separately
 * by mistake. Without a cluster it is ls_mirrored. */
#ifndef __cplusplus
#define ls_multi_worker(...) ((ls_strategy){ .kind = LS_STRATEGY_MULTI_WORKER, .ls_first = 0, __VA_ARGS__ })
#endif

/* With staleness 0, the workers compute lanes of the same batch and the servers join them; the
 * bits are those of every other strategy. .staleness = 8 is asynchronous: each worker computes its
 * own batches at its own pace, and a server applies gradients in arrival order, but none that is
 * more than 8 versions old. Workers may join and leave while ls_fit runs, and servers may restart.
 * In other workers and in servers, ls_fit returns when the chief's has ended, with the same
 * weights. With .record.path, ls_replay repeats every step (docs/parameter-servers.md). */

/* Workers compute and parameter servers join or apply gradients. Start servers with lockstep
 * launch --servers 1, "ps" tasks of TF_CONFIG, LOCKSTEP_SERVERS, or .servers of
 * ls_cluster_options. Returns LS_ERR_STATE in a cluster without servers. Without a cluster it is
 * ls_mirrored. */
#ifndef __cplusplus
#define ls_parameter_server(...) ((ls_strategy){ .kind = LS_STRATEGY_PARAMETER_SERVER, .ls_first = 0, __VA_ARGS__ })
#endif

/* Sets the default strategy of a graph's runs: ls_eval, ls_eval_rows and reading a tensor. */
LS_API ls_status ls_graph_set_strategy(ls_graph *graph, ls_strategy strategy);

/* Returns the number of replicas that share the lanes of a batch: devices for mirrored and
 * data-parallel, replicas of a pipeline, otherwise 1. Multi-worker and parameter-server multiply
 * the devices by the workers that started the cluster. Use it to compute batch sizes; the
 * library scales nothing by it. */
LS_API ls_status ls_strategy_replicas(ls_context *ctx, ls_strategy strategy, int *out);

/* Checks that all devices have equal copies of a graph's variables (weights, slots, metrics) by
 * SHA-256. Returns LS_ERR_DEVICE with the name and device of the first that differs. CPU devices
 * share one copy. Sets *copies (may be NULL) to the number of copies that were compared. */
LS_API ls_status ls_strategy_check(ls_graph *graph, int64_t *copies);

#ifdef __cplusplus
}
#endif
#endif
