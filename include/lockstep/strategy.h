/* lockstep/strategy.h: how work is spread over devices.
 *
 * A training step is a set of tasks, each a run of layers for one lane of the batch, and joins, where lanes meet. A
 * strategy is a map from tasks to devices and from parts of joins to their owners, and never anything else: none of
 * them changes a bit of any result. It is an argument of ls_fit, ls_evaluate and ls_predict, or belongs to a graph. */
#ifndef LOCKSTEP_STRATEGY_H
#define LOCKSTEP_STRATEGY_H

#include "lockstep/device.h"
#include "lockstep/run.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ls_strategy_kind {
    LS_STRATEGY_DEFAULT = 0, /* mirrored over all devices of the fastest kind */
    LS_STRATEGY_ONE_DEVICE,
    LS_STRATEGY_MIRRORED,         /* lanes are dealt out; every device has the variables and updates them itself */
    LS_STRATEGY_DATA_PARALLEL,    /* lanes are dealt out; the first device joins, updates, and hands the variables on */
    LS_STRATEGY_MODEL_PARALLEL,   /* layers are dealt out */
    LS_STRATEGY_PIPELINE,         /* the same, with lanes following each other from stage to stage */
    LS_STRATEGY_MULTI_WORKER,     /* mirrored over the devices of every worker of the cluster */
    LS_STRATEGY_PARAMETER_SERVER, /* the same, with servers that join, or apply gradients as they come */
} ls_strategy_kind;

#define LS_MAX_STALENESS 1000000000 /* versions: as good as no bound */

/* Who joins the parts of a gradient that devices have made. */
typedef enum ls_all_reduce {
    LS_ALL_REDUCE_SHARDED = 0,       /* every device owns a part of the vector, joins it and sends it to the others */
    LS_ALL_REDUCE_HIERARCHICAL_COPY, /* neighbours join by twos, then their results, ...; the first device sends */
    LS_ALL_REDUCE_TO_ONE,            /* the first device joins everything and sends it */
} ls_all_reduce;

/* In which order the lanes of a pipeline move. */
typedef enum ls_pipeline_order {
    LS_ONE_FORWARD_ONE_BACKWARD = 0, /* a lane goes back as soon as it can: few lanes are in flight, little memory */
    LS_FILL_DRAIN,                   /* all lanes go forward, then all go back: all are in flight */
} ls_pipeline_order;

typedef struct ls_strategy {
    ls_strategy_kind kind;
    int ls_first;
    const char *devices; /* "gpu:0,gpu:1", "cpu:0-3", "cpu:0,opencl:0"; NULL: all of the fastest (of one device: one) */
    const ls_device_info *list; /* in place of names: what ls_list_logical_devices gave */
    size_t list_count;
    ls_all_reduce all_reduce;
    int stages; /* parts that layers are cut into, by the cost of their work, where layers have no device of their own;
                   0: as many as devices. Devices beyond stages are further replicas of all of them */
    ls_pipeline_order order;
    const char *work_split; /* of lanes over replicas: "3:1"; "auto": by how fast each device was, and each worker of
                               a cluster; NULL: evenly */
    /* Of parameter-server: */
    int64_t staleness;       /* how many versions behind a gradient may be; 0: none, synchronous */
    bool scale_by_staleness; /* the learning rate of a gradient n versions behind is divided by n */
    bool overlap;            /* a worker reads and pushes while it computes: its gradients are a version older */
} ls_strategy;

#define ls_one_device(...)     ((ls_strategy){ .kind = LS_STRATEGY_ONE_DEVICE, .ls_first = 0, __VA_ARGS__ })
#define ls_mirrored(...)       ((ls_strategy){ .kind = LS_STRATEGY_MIRRORED, .ls_first = 0, __VA_ARGS__ })
#define ls_data_parallel(...)  ((ls_strategy){ .kind = LS_STRATEGY_DATA_PARALLEL, .ls_first = 0, __VA_ARGS__ })
#define ls_model_parallel(...) ((ls_strategy){ .kind = LS_STRATEGY_MODEL_PARALLEL, .ls_first = 0, __VA_ARGS__ })
#define ls_pipeline(...)       ((ls_strategy){ .kind = LS_STRATEGY_PIPELINE, .ls_first = 0, __VA_ARGS__ })

/* ls_fit(model, data, .strategy = ls_multi_worker()): mirrored over the devices of every worker. That is the default of
 * a context that is in a cluster, as are all other strategies shared out over its workers; what this one adds: where
 * the environment (TF_CONFIG, torchrun, mpirun, srun) tells of a cluster that the context has not joined, it is an
 * error, LS_ERR_STATE, and no training of each worker by itself. Without a cluster it is ls_mirrored. */
#define ls_multi_worker(...) ((ls_strategy){ .kind = LS_STRATEGY_MULTI_WORKER, .ls_first = 0, __VA_ARGS__ })

/* ls_fit(model, data, .strategy = ls_parameter_server()): workers compute, parameter servers join (lockstep launch
 * --servers 1, "ps" tasks of TF_CONFIG, LOCKSTEP_SERVERS, .servers of ls_cluster_options). With staleness 0 all workers
 * compute lanes of the same batch, servers join them, a part each, and the bits are those of any other strategy. In a
 * cluster without servers it is an error, LS_ERR_STATE; without a cluster it is ls_mirrored.
 *
 * .staleness = 8: asynchronous. Each worker computes batches of its own, at its own pace; a server applies gradients as
 * they come, never one that was computed from weights more than 8 versions old. Workers come and go while ls_fit runs,
 * and servers come back. ls_fit in worker 0, the chief, is as ever; in other workers and in servers it returns when
 * that one has ended, with the same weights. With .record of ls_fit every step can be had again:
 * docs/parameter-servers.md.
 */
#define ls_parameter_server(...) ((ls_strategy){ .kind = LS_STRATEGY_PARAMETER_SERVER, .ls_first = 0, __VA_ARGS__ })

/* The strategy of all runs of a graph that are not told another: of ls_eval, ls_eval_rows, and of reading a tensor. */
LS_API ls_status ls_graph_set_strategy(ls_graph *graph, ls_strategy strategy);

/* Among how many the lanes of a batch are dealt out: the devices of mirrored and data-parallel, the replicas of a
 * pipeline, 1 of the others; of multi-worker and parameter-server the devices times the workers that the cluster began
 * with. For the arithmetic of batch sizes; nothing is ever scaled by it. */
LS_API ls_status ls_strategy_replicas(ls_context *ctx, ls_strategy strategy, int *out);

/* Proves that what devices have of a graph's variables is equal: weights, optimizer slots, metrics, all there are. The
 * SHA-256 of every copy that is up to date is compared with that of the others; the first that differs is told by name
 * and device, with LS_ERR_DEVICE. CPU devices share the one copy in the host's memory. *copies (may be NULL): how many
 * copies were compared. */
LS_API ls_status ls_strategy_check(ls_graph *graph, int64_t *copies);

#ifdef __cplusplus
}
#endif
#endif
