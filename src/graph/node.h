/* Nodes (a tensor is the output of a node), the graph that owns them, and the table of ops. Shape
 * rule, gradient rule and builder of an op stand together in ops_*.c. */
#ifndef LS_GRAPH_NODE_H
#define LS_GRAPH_NODE_H

#include <stdatomic.h>

#include "base/arena.h"
#include "base/status.h"
#include "graph/shape.h"
#include "lockstep/graph.h"

/* ---- Ops ---- */

typedef enum ls_op {
#define OP(id, inputs, attributes, batch, kernel, shape, gradient, flops, traits) LS_OP_##id,
#include "graph/ops.def"
#undef OP
    LS_OP_COUNT,
    LS_OP_ERROR = LS_OP_COUNT, /* returned by a failed builder; not in ls_ops */
} ls_op;

typedef enum ls_batch_rule { LS_BATCH_LEAF, LS_BATCH_KEEPS, LS_BATCH_REDUCES, LS_BATCH_BY_USE } ls_batch_rule;
typedef enum ls_kernel_types { LS_KERNEL_NONE, LS_KERNEL_REAL, LS_KERNEL_NUMBER, LS_KERNEL_BYTES } ls_kernel_types;

/* Explained in ops.def. */
typedef enum ls_trait {
    LS_TRAIT_CHEAP = 1 << 0,
    LS_TRAIT_CHEAP_WITH_WHOLE = 1 << 1,
    LS_TRAIT_VIEW = 1 << 2,
    LS_TRAIT_EXTERNAL = 1 << 3,
    LS_TRAIT_WRITES = 1 << 4,
    LS_TRAIT_UPDATES = 1 << 5,
    LS_TRAIT_ORDERS = 1 << 6,
    LS_TRAIT_CPU = 1 << 7,
    LS_TRAIT_GATHERS = 1 << 8,
    LS_TRAIT_JOIN_MAX = 1 << 9,
    LS_TRAIT_JOIN_MIN = 1 << 10,
    LS_TRAIT_PRODUCT = 1 << 11,
    LS_TRAIT_WEIGHTS_0 = 1 << 12,
    LS_TRAIT_WEIGHTS_1 = 1 << 13,
    LS_TRAIT_WEIGHTS_OUT = 1 << 14,
    LS_TRAIT_REREADS = 1 << 15,
    LS_TRAIT_CUSTOM = 1 << 16,
} ls_trait;

/* A union of the families in attrs.def. */
typedef struct ls_variable ls_variable;
typedef struct ls_constant_data {
    const void *bytes;
    size_t count; /* in bytes */
} ls_constant_data;

/* An op that a program defines. */
typedef struct ls_custom_functions {
    const char *name, *gradient_name; /* "swish", "swish_grad" */
    ls_custom_op op;
} ls_custom_functions;

#define LS_FIELD_i64      int64_t
#define LS_FIELD_f64      double
#define LS_FIELD_flag     bool
#define LS_FIELD_data     ls_constant_data
#define LS_FIELD_variable ls_variable *
#define LS_FIELD_custom   const ls_custom_functions *
typedef union ls_attrs {
#define FAMILY_BEGIN(family)               struct {
#define FIELD(family, type, field)         LS_FIELD_##type field;
#define FIELDS(family, type, field, count) LS_FIELD_##type field[count];
#define FAMILY_END(family)                                                                                             \
    char end;                                                                                                          \
    }                                                                                                                  \
    family;
#include "graph/attrs.def"
#undef FAMILY_BEGIN
#undef FIELD
#undef FIELDS
#undef FAMILY_END
} ls_attrs;

typedef enum ls_attr_type {
    LS_ATTR_i64,
    LS_ATTR_f64,
    LS_ATTR_flag,
    LS_ATTR_data,
    LS_ATTR_variable,
    LS_ATTR_custom
} ls_attr_type;
typedef struct ls_attr_field {
    const char *name;
    ls_attr_type type;
    int count;
    size_t offset; /* offset in ls_attrs */
} ls_attr_field;

typedef struct ls_op_info {
    const char *name;
    int inputs; /* LS_ANY: one or more */
    const ls_attr_field *fields;
    int field_count;
    ls_batch_rule batch;
    ls_kernel_types kernel;
    ls_status (*shape)(ls_tensor *node);
    /* See ops.def for ls_grad_zero and ls_grad_missing. */
    void (*gradient)(ls_tensor *y, ls_tensor *dy, ls_tensor **dx);
    double (*flops)(const ls_tensor *node);
    unsigned traits; /* bits of ls_trait */
} ls_op_info;

#define LS_ANY (-1)
extern const ls_op_info ls_ops[LS_OP_COUNT];

/* A field with LS_MAX_RANK values has one for each axis of input 0. */
int ls_attr_count(const ls_tensor *node, const ls_attr_field *field);

/* ---- Nodes ---- */

/* Effect of a node on the samples of its inputs. LS_USE_WHOLE: no input has a batch axis. */
typedef enum ls_batch_use { LS_USE_WHOLE, LS_USE_KEEPS, LS_USE_REDUCES } ls_batch_use;

#define LS_ANY_DEVICE (-1)

/* State that outlives a run. */
struct ls_variable {
    ls_tensor *node; /* reads it */
    /* Row-major, 64-byte aligned, inside `block`; NULL until ls_graph.fill has run. */
    void *data;
    struct ls_block *block;
    int device; /* owner of `block` */
    /* References of views to `block`; NULL: none (shared_weights.h). */
    struct ls_shared_memory *shared;
    bool is_viewed; /* in the list of a view, now or earlier */
    size_t bytes;
    uint32_t number; /* order of creation */
    uint32_t mark;   /* graph->mark if the current run writes the variable */
    bool trainable;
    ls_constraint constraint; /* applied by optimizers after an update */
    double rate;              /* factor of the learning rate; 0: 1 */
    uint64_t version;         /* changes with every write; unique in the graph */
    /* Version of `data`. Older than `version`: only another device has the newest value. */
    uint64_t in_host;
};

/* Copies the newest value to `data`. */
ls_status ls_variable_sync_to_host(ls_variable *variable);

/* Records a new value: in `data`, or (not in_host) only on other devices. */
void ls_variable_written(ls_variable *variable, bool in_host);

/* A computed value that is kept with the tensor. */
typedef struct ls_held {
    void *data; /* inside `block`; NULL before the first run */
    struct ls_block *block;
    size_t bytes;
    int64_t batch; /* samples of that run; -1: no batch axis */
    bool valid;
} ls_held;

struct ls_tensor {
    ls_graph *graph;
    uint32_t id; /* inputs have smaller ids */
    ls_op op;
    ls_dtype dtype;
    ls_batch_use use;
    bool per_sample;
    ls_shape shape;
    int input_count;
    ls_tensor **in;
    ls_attrs attr;
    const char *name;          /* full name, or NULL */
    ls_tensor *next_same_hash; /* chain in the graph's name table */
    const char *message;       /* error tensors only */
    ls_status status;
    ls_held held;
    /* Layer that made the node, or whose gradient it is; NULL: none. */
    const char *layer;
    /* Output of a layer: bool [N,T], false for steps that do not count; NULL: all count. */
    ls_tensor *mask;
    bool guards; /* A loss: if it is not finite, the run fails before it writes a variable. */
    /* Sum of a metric: nodes that only it needs must not change how others are computed. */
    bool aside;
    /* An assignment: a later one in the same step continues from its value, so it must not run. */
    bool superseded;
    uint32_t origin; /* id of the node whose gradient this is, or its own */
    int device;      /* requested, or LS_ANY_DEVICE */
    /* First device of the last run, or LS_ANY_DEVICE. */
    int placed;
    uint32_t mark;    /* graph->mark if the current walk has visited the node */
    int32_t position; /* index in the current walk */
};

typedef struct ls_node_spec {
    ls_op op;
    ls_tensor *const *in;
    int input_count;
    ls_dtype dtype;  /* unless the op infers it */
    ls_shape shape;  /* unless the op infers it */
    bool per_sample; /* leaves only */
    ls_attrs attr;
} ls_node_spec;

/* Creates a node if its op's shape rule accepts it, else an error tensor with the rule's message,
 * op and inputs. Returns an input that is an error tensor. `graph` may be NULL if there are
 * inputs. */
ls_tensor *ls_node_make(ls_graph *graph, const ls_node_spec *spec);
ls_tensor *ls_node_make1(ls_op op, ls_tensor *x, ls_attrs attr);
ls_tensor *ls_node_make2(ls_op op, ls_tensor *a, ls_tensor *b, ls_attrs attr);

/* Creates an error tensor whose message is the last error, prefixed by `what` (may be NULL). */
ls_tensor *ls_node_error(ls_graph *graph, ls_status status, const char *what);

/* Graph of the first input that has one, or NULL. */
ls_graph *ls_graph_of(ls_tensor *const *in, int count);

/* "w", "matmul:12" or "dense_1/matmul:12"; returns `text`. */
#define LS_NODE_TEXT 128
const char *ls_node_label(const ls_tensor *node, char text[LS_NODE_TEXT]);

/* Lists the variables that a node writes; returns their number. The first is the node's value. */
#define LS_MAX_WRITES 3
int ls_node_writes(const ls_tensor *node, ls_variable *out[LS_MAX_WRITES]);

/* The node must not be an error tensor. */
static inline bool ls_node_is(const ls_tensor *node, ls_trait trait)
{
    return ls_ops[node->op].traits & trait;
}

/* Whether the run supplies the value. */
static inline bool ls_node_is_given(const ls_tensor *node)
{
    return ls_ops[node->op].kernel == LS_KERNEL_NONE;
}

/* Tensor that holds weights: an input, or the node if it computes their gradient. NULL: none. */
const ls_tensor *ls_node_weights(const ls_tensor *node);

/* Number of slots of an update rule; -1: unknown rule. */
int ls_apply_slots(ls_apply_rule rule, bool momentum);

/* Index of the input of an `apply` node that is the step, or the predicate that enables the update;
 * -1: none. */
int ls_apply_step(const ls_tensor *node);
int ls_apply_when(const ls_tensor *node);

/* Whether the predicate is false, so that the update changes nothing. */
bool ls_apply_is_left_out(const ls_tensor *node, const void *const *in);

bool ls_node_is_by_lane(const ls_tensor *node);

/* Floating-point operations: a multiply-add is two; LS_BATCH counts as one sample. */
double ls_node_flops(const ls_tensor *node);

/* ---- Graphs ---- */

typedef struct ls_scope_entry ls_scope_entry;
typedef struct ls_shared_weights ls_shared_weights;

struct ls_graph {
    ls_context *context;
    /* Name of the model that destroys the graph; NULL: the user does. */
    const char *owner;
    uint64_t seed;
    /* Counters of successful runs, which key random numbers. `step` counts runs that write a
     * trainable variable, `run` all others, so that evaluations do not change later steps. */
    uint64_t run, step;
    ls_arena arena; /* nodes, attributes, names */
    ls_tensor **nodes;
    size_t node_count, node_room;
    ls_variable **variables;
    size_t variable_count, variable_room;
    ls_tensor **names; /* hash table of chains (next_same_hash) */
    size_t name_room;
    const char *prefix; /* prefix of the open name scopes, with trailing slash; or "" */
    int device;         /* device of the open device scopes, or LS_ANY_DEVICE */
    /* Runs are local to the process: workers do not synchronize for them. */
    bool alone;
    bool reference;    /* run the reference kernels on the CPU */
    const char *layer; /* layer that is being traced, or NULL */
    int64_t origin;    /* node whose gradients are being built, or -1 */
    uint64_t tracing;  /* number of the step that is being traced, or 0 */
    uint64_t traces;   /* steps traced so far */
    ls_scope_entry *scope;
    uint64_t scopes;       /* opened so far */
    ls_tensor *error;      /* first error tensor, or NULL */
    uint32_t random_count; /* layers that draw random numbers */
    uint32_t mark;
    /* Allocates and initializes variables without memory; NULL: there are none. */
    ls_status (*fill)(ls_graph *graph);
    void *fill_user;
    struct ls_runs *runs; /* plans and settings of the run layer */
    /* Only the first `nodes` nodes remain. */
    void (*trim_runs)(ls_graph *graph, size_t nodes);
    void (*drop_runs)(ls_graph *graph);
    struct {
        _Atomic(const void *) thread;  /* user of the graph, or NULL */
        _Atomic(const char *) call;    /* outermost call of that thread */
        int depth;                     /* nesting of that thread's calls */
    } claim;                           /* claim.h */
    uint64_t writes;                   /* writes to variables so far; source of versions */
    ls_shared_weights *shared_weights; /* NULL: the variables were never shared */
    /* Hook of the run layer for ls_variable_sync_to_host. */
    ls_status (*bring)(ls_variable *variable);
};

/* Registers a node under prefix + name. */
ls_status ls_graph_name(ls_graph *graph, ls_tensor *node, const char *name);
ls_status ls_graph_add_node(ls_graph *graph, ls_tensor *node);
ls_status ls_graph_add_variable(ls_graph *graph, ls_variable *variable);

/* Creates a variable without memory, because a model that is only described needs none.
 * graph->fill, which the caller sets, calls ls_variable_take for each and resets itself to NULL. */
ls_tensor *ls_variable_later(ls_graph *graph, const char *name, ls_dtype dtype, ls_shape shape, bool trainable);
ls_status ls_variable_take(ls_graph *graph, ls_variable *variable, const char *name);

/* Allocates pending variables; call it before reading a variable's data. */
static inline ls_status ls_graph_fill(ls_graph *graph)
{
    return graph->fill ? graph->fill(graph) : LS_OK;
}

/* Ends a scope, whose contents then belong to the scope around it. */
void ls_scope_keep(ls_scope *scope);

/* Unique number of the innermost open scope (0: none); whether the scope with that number is
 * open. */
uint64_t ls_scope_number(const ls_graph *graph);
bool ls_scope_is_open(const ls_graph *graph, uint64_t number);

/* Lists the nodes that `roots` need in order of creation. The caller frees *out. Inputs of a node
 * for which `stop` (may be NULL) returns true are not visited. */
ls_status ls_graph_order(ls_graph *graph, ls_tensor *const *roots, size_t count,
                         bool (*stop)(const ls_tensor *, void *), void *user, ls_tensor ***out, size_t *out_count);

#endif
