/* A plan: a part of a graph, compiled for one batch size. docs/design.md defines lane, micro-batch,
 * segment, task and join.
 *
 * The passes, in order, each in its own file:
 *   nodes.c     which nodes are needed, and their users
 *   kinds.c     the kind of device for each node
 *   fusion.c    fuses nodes into groups
 *   segments.c  levels between joins; natural segments; which values are kept and which recomputed.
 *               Then asks the map (with stages.c), which may cut natural segments between groups
 *   kernels.c   a kernel for each group; micro-batches
 *   steps.c     lists of joins, prepared weights, whole steps and updates
 *   memory.c    assigns offsets from lifetimes
 *   traffic.c   bytes that a step moves
 *   phases.c    the order of work
 *
 * placement.c then computes what each device needs for its part.
 *
 * Groups, kernels, micro-batches and sums depend only on graph, kinds, batch, lanes and the bit
 * class. No map can change them. */
#ifndef LS_PLAN_PLAN_H
#define LS_PLAN_PLAN_H

#include "base/arena.h"
#include "base/log.h"
#include "base/text.h"
#include "graph/node.h"
#include "plan/map.h"

#define LS_MICRO_BYTES ((size_t)1 << 20) /* Nominal cache size; does not affect any bits. */
#define LS_ALIGN       64
/* Elements per tile of an update, or of an elementwise op on whole tensors. */
#define LS_TILE      16384
#define LS_MAX_LANES 16384 /* Limited by the stack space for a tree over the lanes. */

/* ---- Kernels, as the plan sees them ---- */

typedef struct ls_kernel ls_kernel;
typedef struct ls_group ls_group;
typedef struct ls_plan ls_plan;

/* One call of a kernel: some samples of a per-sample group, or a tile or all of a whole group. */
typedef struct ls_kernel_call {
    /* Per-sample inputs start at the call's first sample. */
    const void *const *in;
    /* Reductions: the lane's partial, which later calls continue. */
    void *out;
    void *const *slots; /* Op apply: the variable's slots. */
    int64_t samples;    /* Samples in this call; 1 for whole groups. */
    int64_t first;      /* Index of the first sample in the batch. */
    int64_t batch;
    int64_t lane;      /* Samples in the lane. */
    int64_t from_lane; /* Index of the first sample within its lane. */
    bool ends_lane;
    /* Memory for the block that stays open between calls, if the kernel chains. */
    void *chain;
    int64_t from, to; /* Range of elements of a tile. */
    uint64_t seed, run;
    int thread;
    void *scratch;
    bool *large; /* Op apply in place: set if a written number is not LS_RANGE_SAFE. */
} ls_kernel_call;

/* Preparation of a whole input that a kernel does once a step, such as reordering a weight. */
typedef struct ls_prepare {
    int input;
    size_t bytes; /* Bytes of the prepared form; 0: nothing to prepare. */
    ls_status (*run)(ls_kernel *kernel, const void *from, void *to, int thread, void *scratch);
    /* Whether two kernels with this `run` can share a prepared form. */
    bool (*same)(const ls_kernel *a, const ls_kernel *b);
} ls_prepare;

struct ls_kernel {
    const char *name;
    const char *layout; /* Layout of the prepared input; "" if plain. */
    ls_status (*run)(ls_kernel *kernel, const ls_kernel_call *call);
    void (*destroy)(ls_kernel *kernel);
    size_t scratch_bytes;
    ls_prepare prepare;
    /* Reductions: size of a partial in the kernel's own format; 0: the value's format. */
    size_t partial_bytes;
    /* Own format only: converts from the value's format. */
    void (*pack)(ls_kernel *kernel, const void *value, void *to);
    /* Reductions: a block stays open between calls (docs/bits.md). */
    bool chains;
    /* Own format only: converts the joined partial; NULL: it is the value. */
    ls_status (*finish)(ls_kernel *kernel, const void *joined, void *out, int thread, void *scratch);
    bool tiled;   /* Accepts ranges of output elements of a whole value. */
    int64_t tile; /* Elements per tile, from the shape alone; 0: LS_TILE. */
    /* Size of the input that tiles divide, for a value that is one sum of it; 0: tiles divide the
     * output. A call for the whole (to == 0) after the last tile adds up what the tiles stored in
     * the kernel. */
    int64_t tiled_input;
    bool in_place;   /* `out` may be in[0] if the sizes are equal. */
    bool falls_back; /* A reference kernel that the context did not request. */
    const ls_group *group;
};

/* Largest magnitude in an array. */
typedef enum ls_range {
    LS_RANGE_SAFE,     /* Every number is below LS_SAFE_LIMIT (float32), or an integer. */
    LS_RANGE_LARGE,    /* Every number is finite. */
    LS_RANGE_INFINITE, /* At least one is infinite or NaN. */
} ls_range;

/* Updates of smaller float32 numbers cannot overflow if update_is_safe accepts the scalars. */
#define LS_SAFE_LIMIT 0x1p40f

/* The host's backend (backend/host.h): kernels, and operations in host memory without one. */
typedef struct ls_kernel_source {
    void *backend;
    void (*close)(void *backend);
    /* Whether these nodes may become one group. */
    bool (*can_fuse)(void *backend, const ls_group *group);
    /* Creates the kernel of a group for these sample counts (1 for whole groups). */
    ls_status (*make)(void *backend, const ls_group *group, const int64_t *samples, int sample_kinds, ls_kernel **out);
    /* Joins partials by the fixed tree, elements from <= i < to. T[a,b) is the lane's value if b-a
     * is 1, else T[a,a+k) + T[a+k,b), k the largest power of two below b-a. NULL: an empty lane.
     * dst may be one of the lanes. Returns the range of the results. */
    ls_range (*join_lanes)(void *backend, ls_join_kind kind, ls_dtype dtype, void *dst, const void *const *lane,
                           int lanes, size_t from, size_t to);
    /* Joins src, from the lanes that follow, to the right of dst. */
    void (*join_next)(void *backend, ls_join_kind kind, ls_dtype dtype, void *dst, const void *src, size_t count);
    ls_range (*range)(void *backend, ls_dtype dtype, const void *x, size_t count);
    /* Whether the scalars of an update rule out an overflow, if gradient and state are
     * LS_RANGE_SAFE and the same update wrote the state. */
    bool (*update_is_safe)(void *backend, const ls_tensor *node, const void *const *in);
    /* Computes elements of an update without writing them. Returns the first variable, as numbered
     * by ls_node_writes, that would not be finite; -1: none. */
    int (*try_update)(void *backend, const ls_tensor *node, const void *const *in, int64_t from, int64_t to);
} ls_kernel_source;

/* ---- Nodes and groups ---- */

typedef enum ls_placed {
    LS_PLACED_FASTEST, /* The fastest kind with a kernel (default). */
    LS_PLACED_ASKED,
    LS_PLACED_NO_KERNEL, /* On the CPU because the requested kind has no kernel. */
    LS_PLACED_STATE,     /* On the CPU because it writes variables. */
    LS_PLACED_GRADIENT,  /* An update: on the device of its gradient. */
    LS_PLACED_GROUP,     /* With the first node of its group. */
} ls_placed;

typedef struct ls_plan_node {
    const ls_tensor *node;
    /* Plan nodes; they differ from node->in where an equal value serves better. */
    int *in;
    int users;
    bool fetched;
    /* Only metrics need it: it must not affect other nodes. */
    bool aside;
    int group; /* -1: a leaf, or absorbed into another node. */
    int kind;  /* Kind of device. */
    /* Its lanes may run on every kind in the map; kind is LS_CPU. */
    bool spread;
    int device; /* LS_ANY_DEVICE: any of its kind. */
    ls_placed reason;
    int wanted; /* The requested kind, which has no kernel. */
} ls_plan_node;

typedef enum ls_fusion {
    LS_FUSE_NONE,
    LS_FUSE_CONV,              /* conv2d [+ bias] [+ relu] */
    LS_FUSE_DENSE,             /* matmul [+ bias] [+ relu] */
    LS_FUSE_RELU_POOL,         /* relu + max_pool2d */
    LS_FUSE_POOL_RELU_GRAD,    /* max_pool2d_grad + relu_grad */
    LS_FUSE_NORM,              /* batch_norm [+ residual] [+ relu] */
    LS_FUSE_NORM_AND,          /* batch_norm + capped_relu, silu or silu_grad */
    LS_FUSE_NORM_GRAD_MOMENTS, /* relu_grad or capped_relu_grad + batch_norm_grad_moments */
    LS_FUSE_NORM_GRAD_INPUT,   /* relu_grad or capped_relu_grad + batch_norm_grad_input */
    LS_FUSE_MASKED_ADD,        /* relu_grad + add */
    /* cast to float64 + square + reduce_sum: a squared norm */
    LS_FUSE_SQUARES,
} ls_fusion;

#define LS_GROUP_NODES 4

struct ls_group {
    ls_fusion fusion;
    /* In order of computation; the last is the group's value. */
    const ls_tensor *nodes[LS_GROUP_NODES];
    int node_count;
    const ls_tensor *root;
    int value; /* Plan node of the root. */
    int *in;   /* Plan nodes, in the order that the fusion defines. */
    int in_count;
    bool bias, relu, residual;
    /* A ReLU's gradient is fused in: the ReLU's output, its mask, is the last input. */
    bool masked;
    bool per_sample;
    bool reduces;
    bool cheap; /* Recomputed where it is read instead of kept. */
    int cheap_depth;
    bool alias; /* Has the bytes of its input: nothing to compute. */
    /* An update that writes its variable once the step is known to be good. */
    bool in_place;
    bool needed; /* Its value is used, or it writes a variable. */
    bool kept;   /* Its samples are kept for other segments, or fetched. */
    int kind;    /* Kind of device. */
    bool spread; /* As in its node. */
    /* Requested, or the map's choice for a whole group; LS_ANY_DEVICE: none. */
    int device;
    int level;
    /* -1: whole, or computed wherever it is needed. */
    int segment;
    int join; /* Reductions: index of the join. */
    /* Reductions: kept value with each lane's own partial; -1: not used. */
    int lane_kept;
    int prepared;
    ls_kernel *kernel;
    const ls_plan *plan;
};

/* ---- Values ---- */

typedef enum ls_storage {
    LS_EXTERNAL, /* Fed, constant or variable. */
    LS_WHOLE,    /* One for the run. */
    LS_KEPT,     /* Samples that several segments use. */
    LS_MICRO,    /* One micro-batch, in the thread's arena. */
    LS_PARTIAL,  /* A lane's partial of a reduction. */
} ls_storage;

typedef struct ls_operand {
    int value; /* Plan node. */
    ls_storage storage;
    size_t offset; /* Offset in its storage; for LS_KEPT, index of the kept value. */
    size_t unit;   /* Bytes per sample, or of the whole value. */
    bool per_sample;
} ls_operand;

/* A group in a segment, or among the whole steps. */
typedef struct ls_step {
    ls_group *group;
    ls_operand *in;
    ls_operand out;
    /* Offset, in the thread's arena, of the block that a chaining kernel leaves open. */
    size_t chain;
    /* Updates that are not in place: offsets of the new slots among whole values. */
    size_t slots[2];
    bool reads_input; /* Reads fed samples. */
    /* Step of the segment whose output memory this one uses. */
    int room;
} ls_step;

typedef struct ls_segment {
    int level;
    int index;
    int kind;
    bool spread; /* As in its groups. */
    int64_t micro;
    ls_step *steps;
    int step_count;
    size_t micro_bytes; /* Bytes of a thread's arena. */
    size_t slot_bytes;  /* Bytes of a lane's partials; 0: no reductions. */
} ls_segment;

/* A value whose samples several segments read. If all are of one level it is framed: stored in the
 * lane's frame while the lane is in flight. Others are stored for the whole batch. */
typedef struct ls_kept {
    int value;    /* Plan node. */
    size_t unit;  /* Bytes per sample. */
    bool by_lane; /* A lane's partial; `unit` is its total size. */
    bool framed;
    int first, last; /* Levels (framed: segments) in which it is live, inclusive. */
} ls_kept;

/* A reduction over the batch: a partial for each lane, then the tree. */
typedef struct ls_join {
    ls_group *group;
    ls_join_kind kind;
    ls_dtype dtype;
    int level;
    /* Each worker of a cluster joins a part and sends it to all. */
    bool shared;
    /* Not read for two levels: workers exchange its parts meanwhile. */
    bool late;
    int64_t count;
    size_t bytes;
    /* Elements on other devices than CPUs: those of the value. `count` and `bytes`: of a CPU's
     * partial. */
    int64_t plain;
    size_t partial; /* Offset in a lane's slot of the segment. */
    size_t stride;
    size_t joined;  /* Offset among whole values. */
    ls_operand out; /* After `finish`. */
} ls_join;

/* A weight in the form that a kernel wants. */
typedef struct ls_prepared {
    ls_group *group; /* The first that asked for it; others with the same layout share it. */
    int value;
    size_t offset;
    int level, last;
} ls_prepared;

/* An assignment, made once the run has succeeded. */
typedef struct ls_write {
    ls_variable *variable;
    ls_operand from;
    const ls_tensor *writer;
} ls_write;

typedef enum ls_phase_kind {
    LS_PHASE_WHOLE,   /* Steps on whole tensors, one after the other. */
    LS_PHASE_TILES,   /* One step on whole tensors, in tiles. */
    LS_PHASE_PREPARE, /* Converts weights to their kernels' formats. */
    LS_PHASE_LANES,   /* Tasks (segment, lane) of a level. */
    /* Copies partials of other devices to the host, which joins them. */
    LS_PHASE_HOME,
    /* One round of the tree: joins pairs of blocks from two devices. */
    LS_PHASE_PAIR,
    /* Sends partials to their owners by the backend's `transfer`. */
    LS_PHASE_GATHER,
    /* Sends partials to the workers of a cluster that join them. */
    LS_PHASE_EXCHANGE,
    LS_PHASE_JOIN, /* In chunks, or each part by its owner. */
    /* Each worker joins a part and sends it to all. */
    LS_PHASE_REDUCE,
    LS_PHASE_SETTLE, /* Waits for what was posted after the previous level. */
    /* Posts late partials, and late results of the previous level, to be sent during the next. */
    LS_PHASE_POST,
    LS_PHASE_SHARE,   /* Sends what owners have joined to its readers. */
    LS_PHASE_FINISH,  /* Converts joined partials to values. */
    LS_PHASE_COLLECT, /* Fetched samples of other workers. */
    /* All workers commit; the run changes nothing before. */
    LS_PHASE_COMMIT,
    LS_PHASE_GUARD, /* Checks that losses are finite. */
    /* Checks gradients of in-place updates, and new values on the CPU. */
    LS_PHASE_CHECK,
    LS_PHASE_UPDATE, /* In-place updates, in tiles. */
    LS_PHASE_KINDS,
} ls_phase_kind;

typedef struct ls_phase {
    ls_phase_kind kind;
    int level;
    int first, count; /* Whole steps, prepared weights, segments, joins or updates. */
    int size;         /* Round of pairs: lanes in a pair of blocks. */
} ls_phase;

typedef struct ls_plan_options {
    int64_t batch;       /* -1: no batch axis. */
    int lanes;           /* 0: as ls_plan_lanes decides. */
    bool unfused;        /* No fusion. */
    bool cut_everywhere; /* Each group is a segment, as in the finest placement. */
    int64_t micro;       /* 0: derived from sizes. */
    /* Space after every value that detects a kernel writing too far. */
    bool guards;
    /* Joins lanes only at the end of a level, where tests mutate the tree. */
    bool every_partial;
    /* Memory for one more lane, of another worker. */
    bool audits;
    /* Prepared weights share memory with nothing else, so that the next run can use them. */
    bool keeps_prepared;
    ls_task_map map;
    int worker, workers; /* Index and number of workers in a cluster; 0, 0: no cluster. */
    /* By worker: relative share of lanes; 0: none, it joins for all. NULL: equal shares, and all
     * join. Used only while the plan is made. */
    const uint32_t *weights;
} ls_plan_options;

struct ls_plan {
    ls_arena arena; /* Owns everything below. */
    ls_graph *graph;
    ls_plan_options options;
    ls_kernel_source source;
    /* The host does all joins and updates: for maps with several kinds, and for clusters, which
     * exchange data in host memory. */
    bool at_home;
    int64_t batch;
    /* Number V of lanes, including empty ones. */
    int lanes;
    int *worker_first; /* By worker: its first lane; one more entry at the end. */
    /* By worker: which of the join_parts parts of a shared join it joins; -1: none. */
    int *join_part;
    int join_parts;
    bool has_servers; /* Some workers have no lanes and join for all. */

    ls_plan_node *nodes;
    int node_count;
    uint32_t newest; /* Largest node id; the plan is dropped with that node. */
    int *fetches;
    int fetch_count;

    ls_group *groups; /* Topologically sorted. */
    int group_count;
    int levels;

    ls_segment *segments;
    int segment_count;
    int *task_device;     /* By segment and lane: the map's device. */
    ls_step *whole_steps; /* Sorted by level. */
    int whole_count;
    ls_join *joins; /* Sorted by level; late joins last. */
    int join_count;
    ls_prepared *prepared; /* Sorted by level. */
    int prepared_count;
    ls_step *updates; /* In-place updates. */
    int update_count;
    /* Plan nodes that must be finite before anything is written. */
    int *guards;
    int guard_count;
    ls_phase *phases;
    int phase_count;
    ls_kept *kept;
    int kept_count;

    ls_operand *value_of; /* By plan node, if whole or kept. */
    int *whole_last;      /* By group: last level that reads it. */
    /* By plan node: offset of an input's picked rows in a thread's staging memory. */
    size_t *staging;

    size_t whole_bytes;
    /* Bytes of a lane's partials, in the level with the most. */
    size_t slot_bytes;
    /* Bytes of a lane in flight, if all its tasks are on one device. */
    size_t frame_bytes;
    /* Bytes of a thread: micro-batches, scratch, picked rows. */
    size_t thread_bytes, scratch_bytes, staging_bytes;
    size_t kept_bytes; /* Bytes if all lanes are on one device. */
    double flops;
    /* Lower bound of the bytes that a step moves. */
    double traffic_bytes;
    ls_write *writes;
    int write_count;
    int max_inputs;
};

/* ---- Passes ---- */

ls_status ls_plan_create(ls_graph *graph, ls_tensor *const *fetches, size_t fetch_count,
                         bool (*stop)(const ls_tensor *, void *), void *user, ls_plan_options options,
                         ls_kernel_source source, ls_plan **out);
void ls_plan_destroy(ls_plan *plan);

ls_status ls_plan_nodes(ls_plan *plan, ls_tensor *const *order, size_t count, ls_tensor *const *fetches,
                        size_t fetch_count, bool (*stop)(const ls_tensor *, void *), void *user);
ls_status ls_plan_kinds(ls_plan *plan);
ls_status ls_plan_fuse(ls_plan *plan);
ls_status ls_plan_segments(ls_plan *plan);
/* By group, after natural segments are known. */
ls_status ls_plan_stages(ls_plan *plan, int *stage, int *asked);
ls_status ls_plan_kernels(ls_plan *plan);
ls_status ls_plan_steps(ls_plan *plan);
ls_status ls_plan_memory(ls_plan *plan);
ls_status ls_plan_count_traffic(ls_plan *plan);
ls_status ls_plan_phases(ls_plan *plan);

/* Assigns offsets to the kept values in `here` (NULL: all) on a device with `samples` samples.
 * Framed values get offsets in a frame. */
ls_status ls_plan_pack_kept(const ls_plan *plan, int64_t samples, const bool *here, size_t *offsets, size_t *bytes,
                            size_t *frame_bytes);

/* Returns the default number of lanes V; plan.c has the rule. */
int ls_plan_lanes(double flops_per_sample, double parameters, int64_t batch);

static inline int ls_task_device(const ls_plan *plan, int segment, int lane)
{
    return plan->task_device[(size_t)segment * (size_t)plan->lanes + (size_t)lane];
}

/* Divides lanes among workers: worker w gets first[w] .. first[w+1] - 1. Without weights first[w]
 * is floor(w V / N); with weights, minimizes the time of the slowest worker. */
void ls_share_lanes(const uint32_t *weights, int workers, int lanes, int *first);
static inline int ls_plan_worker_first(const ls_plan *plan, int worker)
{
    return plan->worker_first[worker];
}

/* Whether the backend's `transfer` moves joins between devices of a kind. */
bool ls_plan_transfers(const ls_plan *plan, int kind);

/* The elements of a join that a worker joins: all, if it is not shared out. */
void ls_plan_owned(const ls_plan *plan, const ls_join *join, int worker, int64_t *from, int64_t *to);

/* Returns the number of late joins of a level, which are its last, and sets the first. */
int ls_plan_late(const ls_plan *plan, int level, int *first);

/* The lanes of this worker: all of them without a cluster. */
static inline int ls_plan_own_first(const ls_plan *plan)
{
    return plan->options.workers > 0 ? ls_plan_worker_first(plan, plan->options.worker) : 0;
}
static inline int ls_plan_own_end(const ls_plan *plan)
{
    return plan->options.workers > 0 ? ls_plan_worker_first(plan, plan->options.worker + 1) : plan->lanes;
}

/* Samples of the largest lane. */
static inline int64_t ls_plan_lane_samples(const ls_plan *plan)
{
    return plan->batch < 1 ? 0 : (plan->batch + plan->lanes - 1) / plan->lanes;
}

/* First sample of lane v: floor(v n / V). */
static inline int64_t ls_lane_first(int64_t batch, int lanes, int lane)
{
    return lane * (batch / lanes) + lane * (batch % lanes) / lanes; /* Avoids overflow. */
}

/* Print the kernels and micro-batches, the memory, or the largest values in one line. */
ls_status ls_plan_print(const ls_plan *plan, ls_text *text);
ls_status ls_plan_print_memory(const ls_plan *plan, ls_text *text);
void ls_plan_print_largest(const ls_plan *plan, ls_text *text, int most);

/* Allocates from the plan's arena; sets the error on failure. */
void *ls_plan_alloc(ls_plan *plan, size_t count, size_t bytes);

static inline bool ls_plan_is_leaf(const ls_tensor *node)
{
    return ls_node_is_given(node);
}

static inline int64_t ls_plan_tile(const ls_group *group)
{
    return group->kernel->tile ? group->kernel->tile : LS_TILE;
}

/* The group that computes a value, and the value below the views (reshapes); -1: a leaf. */
int ls_plan_source(const ls_plan *plan, int value);
int ls_plan_source_value(const ls_plan *plan, int value);

/* Whether a group's input k is the lane's own partial, not the joined value. */
bool ls_plan_reads_lane(const ls_plan *plan, const ls_group *group, int k);

static inline size_t ls_kept_bytes(const ls_kept *kept, int64_t samples)
{
    return kept->by_lane ? kept->unit : kept->unit * (size_t)samples;
}

/* Appends a warning if reference kernels do more than 5 % of the FLOPs, and at least a million. */
void ls_plan_describe_slow(const ls_plan *plan, ls_text *out);

/* The join whose result, unchanged, is the gradient of an update; -1: none. */
int ls_plan_join_of(const ls_plan *plan, const ls_step *update);

size_t ls_plan_thread_bytes(const ls_plan *plan);

/* Bytes of one sample, or of a whole value. */
size_t ls_plan_unit(const ls_plan *plan, const ls_tensor *node);

static inline int64_t ls_plan_tiled_elements(const ls_plan *plan, const ls_group *group)
{
    int64_t input = group->kernel->tiled_input;
    return input ? input : (int64_t)(ls_plan_unit(plan, group->root) / ls_dtype_bytes(group->root->dtype));
}

#endif
