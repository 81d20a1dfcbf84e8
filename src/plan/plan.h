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

/* One call of a kernel: some samples of a per-sample group, or one tile or all of a whole group. */
typedef struct ls_kernel_call {
    /* Inputs of the group; per-sample inputs start at the call's first sample. */
    const void *const *in;
    /* Reductions: the lane's partial; calls after its first samples continue it. */
    void *out;
    void *const *slots; /* Op apply: the variable's slots. */
    int64_t samples;    /* Samples in this call; 1 for whole groups. */
    int64_t first;      /* Index of the first sample in the batch. */
    int64_t batch;      /* Samples in the batch. */
    int64_t lane;       /* Samples in the lane. */
    int64_t from_lane;  /* Index of the first sample within its lane. */
    bool ends_lane;     /* This call includes the lane's last sample. */
    /* Kernels that chain: memory for the block that stays open between calls. */
    void *chain;
    int64_t from, to; /* Elements of the tile, if the kernel is tiled. */
    uint64_t seed, run;
    int worker;
    void *scratch;
    bool *large; /* Op apply in place: set when a written number is not LS_RANGE_SAFE. */
} ls_kernel_call;

/* What a kernel does with a whole input once a step, before any call: for example reorder a
 * weight. */
typedef struct ls_prepare {
    int input;    /* Index of the group's input. */
    size_t bytes; /* Size of the prepared form; 0: nothing to prepare. */
    ls_status (*run)(ls_kernel *kernel, const void *from, void *to, int worker, void *scratch);
    /* Whether a and b, which have this same `run`, can share one prepared form. */
    bool (*same)(const ls_kernel *a, const ls_kernel *b);
} ls_prepare;

struct ls_kernel {
    const char *name;
    const char *layout; /* Layout of the prepared input; "" if plain. */
    ls_status (*run)(ls_kernel *kernel, const ls_kernel_call *call);
    void (*destroy)(ls_kernel *kernel);
    size_t scratch_bytes;
    ls_prepare prepare;
    /* Reductions: bytes of a partial in the kernel's own format; 0: the value's format. */
    size_t partial_bytes;
    /* Own format only: converts from the value's format. */
    void (*pack)(ls_kernel *kernel, const void *value, void *to);
    /* Reductions: a block stays open between calls, in `chain`, as large as a partial
     * (docs/bits.md). */
    bool chains;
    /* Own format only: converts the joined partial to the value; NULL: it is the value. */
    ls_status (*finish)(ls_kernel *kernel, const void *joined, void *out, int worker, void *scratch);
    bool tiled;   /* Accepts ranges of output elements of a whole value. */
    int64_t tile; /* Elements per tile, derived only from the shape; 0: LS_TILE. */
    /* Elements of an input of which the value is a single sum; tiles divide that input. A call for
     * the whole (to == 0) follows the last tile and adds up what the tiles stored in the kernel. 0:
     * tiles divide the output. */
    int64_t tiled_input;
    bool in_place;   /* `out` may be the same array as in[0] if the sizes are equal. */
    bool falls_back; /* A reference kernel that the context did not request. */
    const ls_group *group;
};

/* Magnitude of the numbers in an array. */
typedef enum ls_range {
    LS_RANGE_SAFE,     /* Every magnitude is below LS_SAFE_LIMIT (float32); integers always are. */
    LS_RANGE_LARGE,    /* Every number is finite. */
    LS_RANGE_INFINITE, /* At least one number is infinite or NaN. */
} ls_range;

/* Updates of smaller float32 numbers cannot overflow if update_is_safe accepts the scalars. */
#define LS_SAFE_LIMIT 0x1p40f

/* Source of kernels, and of the few operations that runs do in host memory without one: the host's
 * backend (backend/host.h). */
typedef struct ls_kernel_source {
    void *backend;
    void (*close)(void *backend);
    /* Whether these nodes may become one group. */
    bool (*can_fuse)(void *backend, const ls_group *group);
    /* Creates the kernel of a group for the given sample counts (1 for whole groups). */
    ls_status (*make)(void *backend, const ls_group *group, const int64_t *samples, int sample_kinds, ls_kernel **out);
    /* Joins `lanes` partials by the fixed tree, for elements from <= i < to. T[a,b) is the lane's
     * value if b-a is 1, else T[a,a+k) + T[a+k,b), k the largest power of two below b-a. NULL: an
     * empty lane. dst may be one of the lanes. Returns the range of the results. */
    ls_range (*join_lanes)(void *backend, ls_join_kind kind, ls_dtype dtype, void *dst, const void *const *lane,
                           int lanes, size_t from, size_t to);
    /* Joins src, from the lanes that follow, to the right of dst. */
    void (*join_next)(void *backend, ls_join_kind kind, ls_dtype dtype, void *dst, const void *src, size_t count);
    ls_range (*range)(void *backend, ls_dtype dtype, const void *x, size_t count);
    /* Whether the scalars of an update (op apply) rule out an overflow, if gradient and state are
     * LS_RANGE_SAFE and this same update wrote the state. */
    bool (*update_is_safe)(void *backend, const ls_tensor *node, const void *const *in);
    /* Computes elements from..to-1 of an update without writing them; not for an update that is
     * left out. Returns the first variable, numbered as in ls_node_writes, that would not be
     * finite; -1: all would be. */
    int (*try_update)(void *backend, const ls_tensor *node, const void *const *in, int64_t from, int64_t to);
} ls_kernel_source;

/* ---- Nodes and groups ---- */

/* Reason for a node's placement. */
typedef enum ls_placed {
    LS_PLACED_FASTEST,   /* By default: the fastest kind with a kernel. */
    LS_PLACED_ASKED,     /* Requested by a device scope. */
    LS_PLACED_NO_KERNEL, /* On the CPU because the requested kind has no kernel. */
    LS_PLACED_STATE,     /* On the CPU because it writes variables. */
    LS_PLACED_GRADIENT,  /* An update: on the device of its gradient. */
    LS_PLACED_GROUP,     /* With the first node of its group. */
} ls_placed;

typedef struct ls_plan_node {
    const ls_tensor *node;
    /* Plan nodes; may differ from node->in where an equal value serves better. */
    int *in;
    int users;
    bool fetched;
    /* Only metrics need it: it must not change how anything else is computed. */
    bool aside;
    int group; /* Group that computes it; -1: a leaf, or absorbed into another node. */
    int kind;  /* Kind of device. */
    /* Its lanes may run on every kind that the map names: all have a kernel; kind is LS_CPU. */
    bool spread;
    int device; /* The requested device, if possible; LS_ANY_DEVICE: any of its kind. */
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
    LS_FUSE_NORM_GRAD_MOMENTS, /* relu_grad + batch_norm_grad_moments */
    LS_FUSE_NORM_GRAD_INPUT,   /* relu_grad + batch_norm_grad_input */
    LS_FUSE_MASKED_ADD,        /* relu_grad + add */
    /* cast to float64 + square + reduce_sum of a whole tensor: a squared norm. */
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
    /* A ReLU's gradient is fused in: the mask is the ReLU's output, the group's last input. */
    bool masked;
    bool per_sample; /* Maps or reduces samples. */
    bool reduces;
    bool cheap; /* Recomputed in other segments instead of kept. */
    int cheap_depth;
    bool alias; /* The bytes are those of its input: nothing to compute. */
    /* An update that writes directly to its variable, once the step is known to be good. */
    bool in_place;
    bool needed; /* Its value is used, or it writes a variable. */
    bool kept;   /* Its samples are kept for other segments, or fetched. */
    int kind;    /* Kind of device. */
    bool spread; /* As in its node. */
    /* Requested by its first node; for a whole group, the map's choice. LS_ANY_DEVICE: none. */
    int device;
    int level;
    /* -1: a whole group, or computed wherever it is needed. */
    int segment;
    int join; /* Reductions: index of the join. */
    /* Reductions: the kept value with each lane's own partial; -1: not used. */
    int lane_kept;
    int prepared; /* Index in plan->prepared. */
    ls_kernel *kernel;
    const ls_plan *plan;
};

/* ---- Values ---- */

typedef enum ls_storage {
    LS_EXTERNAL, /* Fed, constant or variable: the run supplies the address. */
    LS_WHOLE,    /* One for the run. */
    LS_KEPT,     /* Samples used by several segments: kept for the batch, or in the lane's frame. */
    LS_MICRO,    /* One micro-batch, in the thread's own memory. */
    LS_PARTIAL,  /* A lane's partial of a reduction. */
} ls_storage;

typedef struct ls_operand {
    int value; /* Plan node. */
    ls_storage storage;
    size_t offset;   /* Offset in its storage; for LS_KEPT, index in the list of kept values. */
    size_t unit;     /* Bytes per sample, or of the whole value. */
    bool per_sample; /* The address advances with the samples. */
} ls_operand;

/* A group to compute in a segment, or among the whole steps. */
typedef struct ls_step {
    ls_group *group;
    ls_operand *in;
    ls_operand out;
    /* Kernels that chain: offset, in the thread's arena, of the block that a micro-batch leaves
     * open. */
    size_t chain;
    /* Updates that are not in place: offsets of the new slot values in the whole arena. */
    size_t slots[2];
    bool reads_input; /* Reads fed samples. */
    /* Step of the segment whose output memory this one uses: its own, or that of the input it
     * overwrites. */
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
    size_t micro_bytes; /* Size of a thread's arena for it. */
    size_t slot_bytes;  /* Size of a lane's partials of its reductions; 0: it has none. */
} ls_segment;

/* A value whose samples several segments read. If all of them are of one level it is framed: stored
 * in the lane's frame, for lanes in flight. Others are stored for the whole batch. Placement
 * chooses the devices of lanes. */
typedef struct ls_kept {
    int value;    /* Plan node. */
    size_t unit;  /* Bytes per sample. */
    bool by_lane; /* A lane's partial of a reduction: `unit` is its total size. */
    bool framed;
    int first, last; /* First and last level (framed: segment) in which it is live, inclusive. */
} ls_kept;

/* A reduction over the batch: a partial for each lane, then the tree. */
typedef struct ls_join {
    ls_group *group;
    ls_join_kind kind;
    ls_dtype dtype;
    int level;
    /* Each worker of a cluster joins a part and sends it to all; otherwise each joins
     * everything. */
    bool shared;
    /* Not read for two levels: workers exchange its parts meanwhile. */
    bool late;
    int64_t count;
    size_t bytes;
    /* Elements on a device that is not a CPU: as many as the value has. `count` and `bytes` are
     * those of a CPU's partial. */
    int64_t plain;
    size_t partial; /* Offset in a lane's slot of the segment. */
    size_t stride;  /* Bytes reserved for it in the slot. */
    size_t joined;  /* Offset of the joined partial in the whole arena. */
    ls_operand out; /* The value, after `finish` if the kernel has one. */
} ls_join;

/* A weight in the form that a kernel wants. */
typedef struct ls_prepared {
    ls_group *group; /* The first group that asked for it; others with the same layout share it. */
    int value;
    size_t offset;
    int level, last;
} ls_prepared;

/* A new value and the variable that receives it once the run has succeeded. */
typedef struct ls_write {
    ls_variable *variable;
    ls_operand from;
    const ls_tensor *writer;
} ls_write;

typedef enum ls_phase_kind {
    LS_PHASE_WHOLE,   /* Steps on whole tensors, one after the other. */
    LS_PHASE_TILES,   /* One step on whole tensors, in tiles. */
    LS_PHASE_PREPARE, /* Converts weights to their kernels' formats, in parallel. */
    LS_PHASE_LANES,   /* Tasks (segment, lane) of a level. */
    /* Copies other devices' partials of a level to the host, which joins them. */
    LS_PHASE_HOME,
    /* One round of the tree: joins blocks from two devices, pair by pair. */
    LS_PHASE_PAIR,
    /* Sends partials of a level to their owners in one transfer, if a backend has `transfer`. */
    LS_PHASE_GATHER,
    /* Sends what workers of a cluster computed of a level to those that join it. */
    LS_PHASE_EXCHANGE,
    LS_PHASE_JOIN, /* The joins of a level, in chunks, or each part by its owner. */
    /* Joins that workers share out: each joins a part and sends it to all. */
    LS_PHASE_REDUCE,
    LS_PHASE_SETTLE, /* Waits for what was posted after the previous level. */
    /* Posts late partials of a level, and the previous level's late results, to be sent during the
     * next level. */
    LS_PHASE_POST,
    LS_PHASE_SHARE,   /* Sends what owners have joined to the other devices that read it. */
    LS_PHASE_FINISH,  /* Converts joined partials to values, in parallel. */
    LS_PHASE_COLLECT, /* Fetched samples of other workers. */
    /* Every worker has all it needs; the run changes nothing before this. */
    LS_PHASE_COMMIT,
    LS_PHASE_GUARD, /* Checks that losses are finite. */
    /* Checks that gradients of in-place updates, and new values on the CPU, are finite. */
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
    bool unfused;        /* Each node is its own group. */
    bool cut_everywhere; /* Each group is its own segment, as in the finest placement. */
    int64_t micro;       /* Samples per micro-batch; 0: derived from sizes. */
    /* Space after every value, so that the executor detects a kernel that writes too far. */
    bool guards;
    /* Joins lanes only at the end of their level: tests mutate the tree there. */
    bool every_partial;
    /* Memory for one more lane in flight, of another worker. */
    bool audits;
    ls_task_map map;
    int worker, workers; /* Index and number of workers in a cluster; 0, 0: no cluster. */
    /* By worker: relative share of lanes; 0: none, it joins for all (a parameter server). NULL:
     * equal shares, and all join. Used only while the plan is made. */
    const uint32_t *weights;
} ls_plan_options;

struct ls_plan {
    ls_arena arena; /* Memory of everything below. */
    ls_graph *graph;
    ls_plan_options options;
    ls_kernel_source source;
    /* The host does all joins and updates: for maps with devices of several kinds, and for workers
     * of a cluster, which exchange data in host memory. */
    bool at_home;
    int64_t batch;
    /* Number V of lanes, including empty ones: lane v holds samples floor(v n / V) .. floor((v+1) n
     * / V) - 1. */
    int lanes;
    int *worker_first; /* By worker of a cluster: its first lane; one more entry at the end. */
    /* By worker: which of the join_parts parts of a shared join it joins; -1: none. */
    int *join_part;
    int join_parts;
    bool has_servers; /* Some workers have no lanes and join for all. */

    ls_plan_node *nodes;
    int node_count;
    uint32_t newest; /* Largest node id: the plan is dropped together with that node. */
    int *fetches;
    int fetch_count;

    ls_group *groups; /* Topologically sorted. */
    int group_count;
    int levels;

    ls_segment *segments;
    int segment_count;
    int *task_device;     /* By segment and lane: the device that the map chose. */
    ls_step *whole_steps; /* Sorted by level. */
    int whole_count;
    ls_join *joins; /* Sorted by level; late joins last. */
    int join_count;
    ls_prepared *prepared; /* Sorted by level. */
    int prepared_count;
    ls_step *updates; /* In-place updates. */
    int update_count;
    /* Plan nodes that must be finite before anything is written: losses, and what fit assigns. */
    int *guards;
    int guard_count;
    ls_phase *phases;
    int phase_count;
    ls_kept *kept;
    int kept_count;

    ls_operand *value_of; /* By plan node: where its value stays (whole or kept). */
    int *whole_last;      /* By group: last level that reads its whole value. */
    /* By plan node: offset, in a thread's stage, of the picked rows of a fed input. */
    size_t *staging;

    size_t whole_bytes;
    /* Bytes of a lane's partials in the level with the most. */
    size_t slot_bytes;
    /* Bytes of a lane in flight, if all its tasks are on one device. */
    size_t frame_bytes;
    /* Bytes of a thread's arena: micro-batches, scratch, picked rows. */
    size_t thread_bytes, scratch_bytes, staging_bytes;
    size_t kept_bytes; /* Bytes if all lanes are on one device. */
    double flops;
    /* Lower bound of what a step moves through kept values, partials and weights. */
    double traffic_bytes;
    ls_write *writes; /* Assignments to copy to their variables at the end. */
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

/* Assigns offsets to the kept values in `here` (NULL: all) on a device that has `samples` samples
 * of the batch. Framed values get offsets in a frame. */
ls_status ls_plan_pack_kept(const ls_plan *plan, int64_t samples, const bool *here, size_t *offsets, size_t *bytes,
                            size_t *frame_bytes);

/* Returns the default number of lanes V; plan.c has the rule. */
int ls_plan_lanes(double flops_per_sample, double parameters, int64_t batch);

static inline int ls_task_device(const ls_plan *plan, int segment, int lane)
{
    return plan->task_device[(size_t)segment * (size_t)plan->lanes + (size_t)lane];
}

/* Divides lanes among the workers of a cluster: worker w gets first[w] .. first[w+1] - 1. Without
 * weights first[w] is floor(w V / N). With weights, minimizes the time of the slowest worker (lanes
 * divided by weight). */
void ls_share_lanes(const uint32_t *weights, int workers, int lanes, int *first);
static inline int ls_plan_worker_first(const ls_plan *plan, int worker)
{
    return plan->worker_first[worker];
}

/* Whether the backend's `transfer` moves joins between devices of a kind. */
bool ls_plan_transfers(const ls_plan *plan, int kind);

/* The elements of a join that a worker of the cluster joins: all, if the join is not shared out. */
void ls_plan_owned(const ls_plan *plan, const ls_join *join, int worker, int64_t *from, int64_t *to);

/* Returns the number of late joins of a level, which are its last, and the first of them. */
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

/* Prints the list (node, kernel, layout, micro-batch), and the memory: total need and largest
 * values. */
ls_status ls_plan_print(const ls_plan *plan, ls_text *text);
ls_status ls_plan_print_memory(const ls_plan *plan, ls_text *text);
void ls_plan_print_largest(const ls_plan *plan, ls_text *text, int most); /* On one line. */

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

/* The group that computes the bytes of a value, through views (reshapes); -1: a leaf.
 * ls_plan_source_value: the value below the views. */
int ls_plan_source(const ls_plan *plan, int value);
int ls_plan_source_value(const ls_plan *plan, int value);

/* Whether a group's input k is the lane's own partial, not the joined value. */
bool ls_plan_reads_lane(const ls_plan *plan, const ls_group *group, int k);

static inline size_t ls_kept_bytes(const ls_kept *kept, int64_t samples)
{
    return kept->by_lane ? kept->unit : kept->unit * (size_t)samples;
}

/* Appends a warning if reference kernels do more than 5 % of the plan's FLOPs, and at least a
 * million: their share, the ops and their shapes (slow.c). */
void ls_plan_describe_slow(const ls_plan *plan, ls_text *out);

/* The join whose result, unchanged, is the gradient of an update; -1: none. */
int ls_plan_join_of(const ls_plan *plan, const ls_step *update);

/* Size of a thread's arena. */
size_t ls_plan_thread_bytes(const ls_plan *plan);

/* Bytes of one sample, or of a whole value. */
size_t ls_plan_unit(const ls_plan *plan, const ls_tensor *node);

/* Number of elements that tiles divide. */
static inline int64_t ls_plan_tiled_elements(const ls_plan *plan, const ls_group *group)
{
    int64_t input = group->kernel->tiled_input;
    return input ? input : (int64_t)(ls_plan_unit(plan, group->root) / ls_dtype_bytes(group->root->dtype));
}

#endif
