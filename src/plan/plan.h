/* A plan: a part of a graph compiled for one batch size. Read DESIGN's words first: lane, micro-batch, segment, task,
 * join.
 *
 * Passes, in order, each a file: nodes.c (what is needed, who uses it), kinds.c (which kind of device a node is for),
 * fusion.c (nodes to groups), segments.c (levels between joins, natural segments, what is kept and what is computed
 * again; then the map is asked, with stages.c, and may cut natural segments between groups), kernels.c (a kernel for
 * each group, micro-batches), steps.c (lists of joins, prepared weights, whole steps and updates), memory.c (lifetimes
 * to offsets), traffic.c (what a step moves), phases.c (the order of work). Placement (placement.c) is what each device
 * must have for its part.
 *
 * Groups, kernels, micro-batches and sums are functions of graph, kinds, batch, lanes and the bit class alone: no map
 * can change them. */
#ifndef LS_PLAN_PLAN_H
#define LS_PLAN_PLAN_H

#include "base/arena.h"
#include "base/log.h"
#include "base/text.h"
#include "graph/node.h"
#include "plan/map.h"

#define LS_MICRO_BYTES ((size_t)1 << 20) /* the nominal cache; decides no bit */
#define LS_ALIGN       64
#define LS_TILE        16384 /* elements of a tile of an update or an elementwise op on whole tensors */
#define LS_MAX_LANES   16384 /* the stack has room for a tree of so many */

/* ---- Kernels, as the plan sees them ---- */

typedef struct ls_kernel ls_kernel;
typedef struct ls_group ls_group;
typedef struct ls_plan ls_plan;

/* One call: some samples of a per-sample group, one tile of a whole one, or all of it. */
typedef struct ls_kernel_call {
    const void *const *in; /* the group's inputs, at the call's first sample where they are per-sample */
    void *out;
    void *const *slots; /* apply: the variable's slots */
    int64_t samples;    /* in this call; 1 for whole groups */
    int64_t first;      /* position of the first in the batch */
    int64_t batch;      /* samples in the whole batch */
    int64_t lane;       /* samples in the lane */
    int64_t from_lane;  /* position of the first in its lane */
    bool ends_lane;     /* the lane's last samples are among these */
    /* Of a reduction: `out` is the lane's, from call to call: where samples came before, it goes on from there. Of one
     * that chains: where a block that stays open is. */
    void *chain;
    int64_t from, to; /* elements of the tile, where the kernel is tiled */
    uint64_t seed, run;
    int worker;
    void *scratch;
    bool *large; /* apply in place: set when a number that was written is not LS_RANGE_SAFE */
} ls_kernel_call;

/* What a kernel wants done once a step to a whole input before any call: a weight in another format. */
typedef struct ls_prepare {
    int input;    /* of the group */
    size_t bytes; /* of the prepared form; 0: nothing to prepare */
    ls_status (*run)(ls_kernel *kernel, const void *from, void *to, int worker, void *scratch);
    bool (*same)(const ls_kernel *a, const ls_kernel *b); /* one prepared form serves both (a and b have this `run`) */
} ls_prepare;

struct ls_kernel {
    const char *name;
    const char *layout; /* of the prepared input, "" if plain */
    ls_status (*run)(ls_kernel *kernel, const ls_kernel_call *call);
    void (*destroy)(ls_kernel *kernel);
    size_t scratch_bytes;
    ls_prepare prepare;
    /* Of a reduction: the partials' own format, and how the joined one becomes the value. 0, NULL: the value's. */
    size_t partial_bytes;
    /* Of one with a format of its own: the value's format to it. */
    void (*pack)(ls_kernel *kernel, const void *value, void *to);
    /* Of a reduction: it leaves a block open from call to call, in `chain`, as large as a partial (docs/bits.md). */
    bool chains;
    ls_status (*finish)(ls_kernel *kernel, const void *joined, void *out, int worker, void *scratch);
    bool tiled;   /* takes ranges of output elements, of a whole value */
    int64_t tile; /* elements of a tile, from the shape alone; 0: LS_TILE */
    /* Elements of an input that tiles are ranges of, when the value is a single sum of them: a call for the whole
     * (to == 0) follows the last tile and adds up what tiles have left with the kernel. 0: ranges of the output. */
    int64_t tiled_input;
    bool in_place;   /* out may be the same array as in[0], where both have one size */
    bool falls_back; /* a reference kernel, in a context that did not ask for these */
    const ls_group *group;
};

/* How large the numbers of an array are. */
typedef enum ls_range {
    LS_RANGE_SAFE,     /* every magnitude is below LS_SAFE_LIMIT (float32; integers always) */
    LS_RANGE_LARGE,    /* every number is finite */
    LS_RANGE_INFINITE, /* one is an infinity or NaN */
} ls_range;

/* Updates of float32 numbers below this magnitude cannot overflow, given sensible scalars (update_is_safe). */
#define LS_SAFE_LIMIT 0x1p40f

/* Where kernels come from, and the few things that runs do in the host's memory without one: the host's backend
 * (backend/host.h). */
typedef struct ls_kernel_source {
    void *backend;
    void (*close)(void *backend);
    /* May these nodes become one group? */
    bool (*can_fuse)(void *backend, const ls_group *group);
    /* The kernel of a group for the given sample counts (1 for whole groups). */
    ls_status (*make)(void *backend, const ls_group *group, const int64_t *samples, int sample_kinds, ls_kernel **out);
    /* The tree over `lanes` partials, dst[i] for from <= i < to: T[a,b) is the lane's own value if b-a is 1, else
     * T[a,a+k) + T[a+k,b), k the largest power of two below b-a. NULL: an empty lane, which has no value. dst may be
     * one of the lanes. Returns the range of the results. */
    ls_range (*join_lanes)(void *backend, ls_join_kind kind, ls_dtype dtype, void *dst, const void *const *lane,
                           int lanes, size_t from, size_t to);
    /* dst = dst with src joined on its right: the lanes that follow. */
    void (*join_next)(void *backend, ls_join_kind kind, ls_dtype dtype, void *dst, const void *src, size_t count);
    ls_range (*range)(void *backend, ls_dtype dtype, const void *x, size_t count);
    /* Whether the scalars of an update (op apply) rule out an overflow, as long as its gradient and its state are
     * LS_RANGE_SAFE and this same update wrote the state. */
    bool (*update_is_safe)(void *backend, const ls_tensor *node, const void *const *in);
    /* Computes elements from..to-1 of an update, which is not left out, and writes nothing. Returns the first variable,
     * as ls_node_writes numbers them, that would not be finite; -1: all would be. */
    int (*try_update)(void *backend, const ls_tensor *node, const void *const *in, int64_t from, int64_t to);
} ls_kernel_source;

/* ---- Nodes and groups ---- */

/* Why a node is where it is. */
typedef enum ls_placed {
    LS_PLACED_FASTEST,   /* nothing was asked for: the fastest kind with a kernel */
    LS_PLACED_ASKED,     /* by a device scope */
    LS_PLACED_NO_KERNEL, /* the CPU, because the kind that was wanted has no kernel */
    LS_PLACED_STATE,     /* the CPU, which writes variables */
    LS_PLACED_GRADIENT,  /* an update: where its gradient is */
    LS_PLACED_GROUP,     /* with the first node of its group */
} ls_placed;

/* A node of the graph as far as this plan is concerned. */
typedef struct ls_plan_node {
    const ls_tensor *node;
    int *in; /* plan nodes; may differ from node->in where an equal value serves better */
    int users;
    bool fetched;
    bool aside;  /* computed for the sums of metrics alone: it must not change how anything else is computed */
    int group;   /* that computes it; -1: a leaf, or absorbed */
    int kind;    /* of device */
    bool spread; /* its lanes may go to devices of every kind that the map names: all have a kernel; kind is LS_CPU */
    int device;  /* that was asked for and can be; LS_ANY_DEVICE: any of its kind */
    ls_placed reason;
    int wanted; /* the kind without a kernel */
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
    LS_FUSE_SQUARES,           /* cast to float64 + square + reduce_sum of a whole tensor: a squared norm */
} ls_fusion;

#define LS_GROUP_NODES 4

struct ls_group {
    ls_fusion fusion;
    const ls_tensor *nodes[LS_GROUP_NODES]; /* in order; the last is the group's value */
    int node_count;
    const ls_tensor *root;
    int value; /* the root's plan node */
    int *in;   /* plan nodes, by the role that the fusion gives them */
    int in_count;
    bool bias, relu, residual;
    bool masked;     /* a gradient behind a ReLU: the mask is its output, the group's last input */
    bool per_sample; /* works on samples: keeps or reduces them */
    bool reduces;
    bool cheap; /* computed again where it is needed in another segment, not kept */
    int cheap_depth;
    bool alias;    /* its value is its input's bytes: nothing to do */
    bool in_place; /* an update written straight to its variable when the step is known good */
    bool needed;   /* somebody looks at its value, or it writes */
    bool kept;     /* its samples are kept for other segments, or fetched */
    int kind;      /* of device */
    bool spread;   /* as its node: lanes are on devices of several kinds */
    int device;    /* asked for by its first node; of a whole group: the map's word. LS_ANY_DEVICE: none */
    int level;
    int segment;   /* that computes it; -1: it is whole, or computed wherever it is needed */
    int join;      /* of a reduction */
    int lane_kept; /* of a reduction: the kept value that is each lane's own part; -1: nobody reads it */
    int prepared;  /* the weight its kernel wants in another form */
    ls_kernel *kernel;
    const ls_plan *plan;
};

/* ---- Values ---- */

typedef enum ls_storage {
    LS_OUTSIDE, /* fed, constant or a variable: the run knows where */
    LS_WHOLE,   /* one for the run */
    LS_KEPT,    /* samples that several segments look at: of the batch, or in the lane's frame */
    LS_MICRO,   /* a worker's own: one micro-batch */
    LS_PARTIAL, /* a lane's part of a reduction */
} ls_storage;

typedef struct ls_operand {
    int value; /* plan node */
    ls_storage storage;
    size_t offset;   /* in its storage; of a kept value: its number in the list of kept values */
    size_t unit;     /* bytes of a sample, or of the whole */
    bool per_sample; /* moves on with the samples */
} ls_operand;

/* A group at work in a segment, or among the whole ones. */
typedef struct ls_step {
    ls_group *group;
    ls_operand *in;
    ls_operand out;
    size_t
        chain; /* of a kernel that chains: where a block stays that a micro-batch leaves open, in the worker's arena */
    size_t slots[2];  /* of an update that is not in place: new slot values, in the whole arena */
    bool reads_input; /* samples that were fed */
    int room;         /* the step of its segment whose room its output has: its own, or that of what it overwrites */
} ls_step;

typedef struct ls_segment {
    int level;
    int index; /* among all segments */
    int kind;
    bool spread; /* as its groups */
    int64_t micro;
    ls_step *steps;
    int step_count;
    size_t micro_bytes; /* a worker's arena for it */
    size_t slot_bytes;  /* of a lane's partials of its reductions; 0: it has none */
} ls_segment;

/* A value whose samples several segments look at. One that only segments of one level look at is in the lane's frame:
 * room for the lanes in flight. Others are there for the whole batch. Where lanes are is a matter of placement. */
typedef struct ls_kept {
    int value;    /* plan node */
    size_t unit;  /* bytes of a sample */
    bool by_lane; /* a lane's part of a reduction: `unit` is all of it */
    bool framed;
    int first, last; /* levels in which it is there, both included; of a framed one: segments */
} ls_kept;

/* A batch reduction: partials by lane, then the tree. */
typedef struct ls_join {
    ls_group *group;
    ls_join_kind kind;
    ls_dtype dtype;
    int level;
    bool shared;    /* each worker of a cluster joins a part and sends it to all; otherwise every one joins all */
    bool late;      /* nobody looks at it for two levels: workers exchange its parts while these are computed */
    int64_t count;  /* elements of a partial */
    size_t bytes;   /* of a partial */
    int64_t plain;  /* elements of a partial on a device that is not a CPU: those of the value */
    size_t partial; /* offset in a lane's slot of the segment */
    size_t stride;  /* room for it there */
    size_t joined;  /* offset in the whole arena of the joined partial */
    ls_operand out; /* the value, after `finish` where there is one */
} ls_join;

/* A weight in the form its kernel wants. */
typedef struct ls_prepared {
    ls_group *group; /* the first that asked; others with the same layout share it */
    int value;
    size_t offset; /* in the whole arena */
    int level, last;
} ls_prepared;

/* A new value and where it goes once the run has succeeded. */
typedef struct ls_write {
    ls_variable *variable;
    ls_operand from;
    const ls_tensor *writer;
} ls_write;

typedef enum ls_phase_kind {
    LS_PHASE_WHOLE,    /* steps on whole tensors, one after the other */
    LS_PHASE_TILES,    /* one step on whole tensors, in tiles */
    LS_PHASE_PREPARE,  /* weights to their formats, side by side */
    LS_PHASE_LANES,    /* the segments of a level: tasks (segment, lane) */
    LS_PHASE_HOME,     /* what other devices have made of a level's joins comes to the host, which joins it */
    LS_PHASE_PAIR,     /* blocks of lanes that two devices have made, by twos: one round of the tree */
    LS_PHASE_GATHER,   /* parts of a level's joins go to their owners, all at once, where a backend has `transfer` */
    LS_PHASE_EXCHANGE, /* what workers of a cluster have of a level goes to who joins it */
    LS_PHASE_JOIN,     /* the joins of a level, in chunks, or each part by its owner */
    LS_PHASE_REDUCE,   /* joins of a level that workers share out: each joins a part, and sends it to all */
    LS_PHASE_SETTLE,   /* what was posted behind the level before is here */
    LS_PHASE_POST,     /* late parts of a level, and what was joined of those before, go while the next is computed */
    LS_PHASE_SHARE,    /* what owners have joined goes to the other devices that look at it */
    LS_PHASE_FINISH,   /* joined partials to values, side by side */
    LS_PHASE_COLLECT,  /* fetched samples of other workers */
    LS_PHASE_COMMIT,   /* every worker has all it needs: from here on the run changes something */
    LS_PHASE_GUARD,    /* losses are finite */
    LS_PHASE_CHECK,    /* gradients of in-place updates are finite, and so are the CPU's new values */
    LS_PHASE_UPDATE,   /* in-place updates, in tiles */
    LS_PHASE_KINDS,
} ls_phase_kind;

typedef struct ls_phase {
    ls_phase_kind kind;
    int level;
    int first, count; /* of whole steps, prepared weights, segments, joins or updates */
    int size;         /* of a round: lanes of a pair of blocks */
} ls_phase;

typedef struct ls_plan_options {
    int64_t batch;       /* -1: no batch axis */
    int lanes;           /* 0: by the rule of ls_plan_lanes */
    bool unfused;        /* every node its own group */
    bool cut_everywhere; /* every group its own segment: what the finest placement would do */
    int64_t micro;       /* 0: by size */
    bool guards;         /* room behind every value, so that the executor can see a kernel write too far */
    bool every_partial;  /* lanes are joined at the end of their level alone: tests mutate the tree there */
    bool audits;         /* room for one more lane, of another worker, among those that run at the same time */
    ls_task_map map;     /* tasks to devices */
    int worker, workers; /* of a cluster: which of how many; 0, 0: this process is alone */
    /* By worker: how many lanes it gets beside the others; 0: none, it joins for all (a parameter server). NULL: all
     * get as many, and join. Read while the plan is made. */
    const uint32_t *weights;
} ls_plan_options;

struct ls_plan {
    ls_arena arena; /* of everything below */
    ls_graph *graph;
    ls_plan_options options;
    ls_kernel_source source;
    /* Joins and updates are the host's, whoever made parts of them: of a map with devices of several kinds, and of the
     * workers of a cluster, which exchange what is in the host's memory. */
    bool at_home;
    int64_t batch;
    int lanes;         /* that have samples or not: lane v holds samples floor(v n / V) .. floor((v+1) n / V) - 1 */
    int *worker_first; /* by worker of a cluster: its first lane; one more at the end */
    int *join_part;    /* by worker: which of join_parts parts of a shared join is its own; -1: none */
    int join_parts;
    bool has_servers; /* some workers have no lanes, and join for all */

    ls_plan_node *nodes;
    int node_count;
    uint32_t newest; /* largest node id: the plan ends when that node does */
    int *fetches;
    int fetch_count;

    ls_group *groups; /* each after those it needs */
    int group_count;
    int levels;

    ls_segment *segments;
    int segment_count;
    int *task_device;     /* by segment and lane: the map's word */
    ls_step *whole_steps; /* by level */
    int whole_count;
    ls_join *joins; /* by level, late ones last */
    int join_count;
    ls_prepared *prepared; /* by level */
    int prepared_count;
    ls_step *updates; /* in place */
    int update_count;
    int *guards; /* plan nodes that must be finite before anything is written: losses, and what fit assigns */
    int guard_count;
    ls_phase *phases;
    int phase_count;
    ls_kept *kept;
    int kept_count;

    ls_operand *value_of; /* by plan node: where its value is for good (whole or kept) */
    int *whole_last;      /* by group: the last level that looks at its whole value */
    size_t *stage;        /* by plan node: where picked rows of a fed input go, in a worker's room for them */

    size_t whole_bytes;
    size_t slot_bytes;                               /* of a lane's partials, in the level that has most */
    size_t frame_bytes;                              /* of a lane in flight, with all its tasks on one device */
    size_t worker_bytes, scratch_bytes, stage_bytes; /* of a worker's arena: micro-batches, scratch, picked rows */
    size_t kept_bytes;                               /* with all lanes on one device */
    double flops;                                    /* of one step */
    double traffic_bytes; /* that a step moves through kept values, partials and weights, at least */
    ls_write *writes;     /* assignments to be copied to their variables at the end */
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
ls_status ls_plan_stages(ls_plan *plan, int *stage, int *asked); /* by group, once it has a natural segment or none */
ls_status ls_plan_kernels(ls_plan *plan);
ls_status ls_plan_steps(ls_plan *plan);
ls_status ls_plan_memory(ls_plan *plan);
ls_status ls_plan_count_traffic(ls_plan *plan);
ls_status ls_plan_phases(ls_plan *plan);

/* The offsets of kept values on a device that has so many samples of the batch, `here` of them (NULL: all); those of
 * framed values are offsets in a frame. */
ls_status ls_plan_pack_kept(const ls_plan *plan, int64_t samples, const bool *here, size_t *offsets, size_t *bytes,
                            size_t *frame_bytes);

/* The default V for this work: DESIGN, "What else must not depend on the devices". */
int ls_plan_lanes(double flops_per_sample, double parameters, int64_t batch);

static inline int ls_task_device(const ls_plan *plan, int segment, int lane)
{
    return plan->task_device[(size_t)segment * (size_t)plan->lanes + (size_t)lane];
}

/* The lanes of the workers of a cluster: worker w has those from first[w] to first[w+1]. Without weights from floor(w V
 * / N) on; with them so that the slowest, whose lanes are most for its weight, is done as soon as possible. */
void ls_share_lanes(const uint32_t *weights, int workers, int lanes, int *first);
static inline int ls_plan_worker_first(const ls_plan *plan, int worker)
{
    return plan->worker_first[worker];
}

/* Whether joins of devices of a kind are moved between them by the backend's `transfer`. */
bool ls_plan_transfers(const ls_plan *plan, int kind);

/* The elements of a join that a worker of the cluster joins; all, where joins are not shared out. */
void ls_plan_owned(const ls_plan *plan, const ls_join *join, int worker, int64_t *from, int64_t *to);

/* The late joins of a level, which are its last: how many, and the first. */
int ls_plan_late(const ls_plan *plan, int level, int *first);

/* The lanes of this worker; all, where it is alone. */
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

/* Samples of lane v: from floor(v n / V) to floor((v+1) n / V). */
static inline int64_t ls_lane_first(int64_t batch, int lanes, int lane)
{
    return lane * (batch / lanes) + lane * (batch % lanes) / lanes; /* without overflow */
}

/* The list (node, kernel, layout, micro-batch), and the memory: what the plan needs and its largest values. */
ls_status ls_plan_print(const ls_plan *plan, ls_text *text);
ls_status ls_plan_print_memory(const ls_plan *plan, ls_text *text);
void ls_plan_print_largest(const ls_plan *plan, ls_text *text, int most); /* in one line */

/* Memory of the plan's own arena; the failure is reported. */
void *ls_plan_alloc(ls_plan *plan, size_t count, size_t bytes);

static inline bool ls_plan_is_leaf(const ls_tensor *node)
{
    return ls_node_is_given(node);
}

/* Elements of a tile of a whole group. */
static inline int64_t ls_plan_tile(const ls_group *group)
{
    return group->kernel->tile ? group->kernel->tile : LS_TILE;
}

/* The group whose bytes a value is, through views (reshapes); -1: a leaf. And the value itself behind the views. */
int ls_plan_source(const ls_plan *plan, int value);
int ls_plan_source_value(const ls_plan *plan, int value);

/* Whether a group reads of its input k what the lane alone has added to it, not the joined value. */
bool ls_plan_reads_lane(const ls_plan *plan, const ls_group *group, int k);

/* Bytes of a kept value for that many samples of one lane. */
static inline size_t ls_kept_bytes(const ls_kept *kept, int64_t samples)
{
    return kept->by_lane ? kept->unit : kept->unit * (size_t)samples;
}

/* Appends a warning where reference kernels do more than 5 % of the plan's FLOPs, and at least a million: the share,
 * the ops and their shapes (slow.c). Otherwise appends nothing. */
void ls_plan_describe_slow(const ls_plan *plan, ls_text *out);

/* The join whose result, as it is, is the gradient of an update; -1: the gradient is something else. */
int ls_plan_join_of(const ls_plan *plan, const ls_step *update);

/* Bytes of a worker's arena. */
size_t ls_plan_worker_bytes(const ls_plan *plan);

/* Bytes of one sample, or of a whole value. */
size_t ls_plan_unit(const ls_plan *plan, const ls_tensor *node);

/* What tiles of a whole group are ranges of: that many elements. */
static inline int64_t ls_plan_tiled_elements(const ls_plan *plan, const ls_group *group)
{
    int64_t input = group->kernel->tiled_input;
    return input ? input : (int64_t)(ls_plan_unit(plan, group->root) / ls_dtype_bytes(group->root->dtype));
}

#endif
