/* The node behind every tensor, the graph that owns it, and the table of ops. Builders are in ops_*.c, one file a
 * family; each op's shape rule, gradient rule and builder stand side by side there. Start reading at ls_node_make. */
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
    LS_OP_ERROR = LS_OP_COUNT, /* what a wrong call returns; it is in no table */
} ls_op;

typedef enum ls_batch_rule { LS_BATCH_LEAF, LS_BATCH_KEEPS, LS_BATCH_REDUCES, LS_BATCH_BY_USE } ls_batch_rule;
typedef enum ls_kernel_types { LS_KERNEL_NONE, LS_KERNEL_REAL, LS_KERNEL_NUMBER, LS_KERNEL_BYTES } ls_kernel_types;

/* What planning and running must know of an op; ops.def says what each means. */
typedef enum ls_trait {
    LS_TRAIT_CHEAP = 1 << 0,
    LS_TRAIT_CHEAP_WITH_WHOLE = 1 << 1,
    LS_TRAIT_VIEW = 1 << 2,
    LS_TRAIT_OUTSIDE = 1 << 3,
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
} ls_trait;

/* Attributes: a union of the families of attrs.def. */
typedef struct ls_variable ls_variable;
typedef struct ls_constant_data {
    const void *bytes;
    size_t count; /* of bytes */
} ls_constant_data;

#define LS_FIELD_i64      int64_t
#define LS_FIELD_f64      double
#define LS_FIELD_flag     bool
#define LS_FIELD_data     ls_constant_data
#define LS_FIELD_variable ls_variable *
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

typedef enum ls_attr_type { LS_ATTR_i64, LS_ATTR_f64, LS_ATTR_flag, LS_ATTR_data, LS_ATTR_variable } ls_attr_type;
typedef struct ls_attr_field {
    const char *name;
    ls_attr_type type;
    int count;
    size_t offset; /* in ls_attrs */
} ls_attr_field;

typedef struct ls_op_info {
    const char *name;
    int inputs; /* LS_ANY: one or more */
    const ls_attr_field *fields;
    int field_count;
    ls_batch_rule batch;
    ls_kernel_types kernel;
    ls_status (*shape)(ls_tensor *node);
    void (*gradient)(ls_tensor *y, ls_tensor *dy, ls_tensor **dx); /* ls_grad_zero, ls_grad_missing: see ops.def */
    double (*flops)(const ls_tensor *node);
    unsigned traits; /* of ls_trait */
} ls_op_info;

#define LS_ANY (-1)
extern const ls_op_info ls_ops[LS_OP_COUNT];

/* Numbers in a field of this node: one for each axis of its input, where the field has as many as axes can be. */
int ls_attr_count(const ls_tensor *node, const ls_attr_field *field);

/* ---- Nodes ---- */

/* What a node does to the samples of its inputs. Whole inputs only: LS_USE_WHOLE. */
typedef enum ls_batch_use { LS_USE_WHOLE, LS_USE_KEEPS, LS_USE_REDUCES } ls_batch_use;

#define LS_ANY_DEVICE (-1)

/* State that outlives a run. */
struct ls_variable {
    ls_tensor *node; /* the node that reads it */
    void *data;      /* row-major, 64-byte aligned; NULL: still to be made (ls_graph.fill); in: */
    struct ls_block *block;
    int device; /* that the block belongs to */
    size_t bytes;
    uint32_t number; /* creation order within the graph */
    uint32_t mark;   /* equal to graph->mark when the run under way writes it */
    bool trainable;
    uint64_t version; /* changes with every write; no two variables of a graph ever have the same */
    uint64_t in_host; /* the version that `data` has; an older one: another device has the newest */
};

/* The newest value to `data`, from the device that has it. */
ls_status ls_variable_sync_to_host(ls_variable *variable);

/* It has a new value: in `data`, or on other devices alone. */
void ls_variable_written(ls_variable *variable, bool in_host);

/* The value of one run, kept with the tensor. */
typedef struct ls_held {
    void *data; /* NULL: none yet; in: */
    struct ls_block *block;
    size_t bytes;
    int64_t batch; /* samples in that run; -1 when it had no batch axis */
    bool valid;
} ls_held;

struct ls_tensor {
    ls_graph *graph;
    uint32_t id; /* creation order: inputs have smaller numbers */
    ls_op op;
    ls_dtype dtype;
    ls_batch_use use;
    bool per_sample;
    ls_shape shape;
    int input_count;
    ls_tensor **in;
    ls_attrs attr;
    const char *name;          /* full name, or NULL */
    ls_tensor *next_same_hash; /* in the graph's table of names */
    const char *message;       /* of an error tensor */
    ls_status status;
    ls_held held;
    const char *layer; /* of a model that made it, or its gradient: for labels; NULL: none */
    bool guards;       /* a loss: where it is not finite, the run fails before any variable is changed */
    bool aside;        /* sums of a metric: what is computed for them alone must not change how the rest is computed */
    uint32_t origin;   /* the id of the node that it is, or is the gradient of */
    int device;        /* that was asked for: an index in the context; LS_ANY_DEVICE: none was */
    int placed;        /* where it was run last, of several devices the first; LS_ANY_DEVICE: not yet */
    uint32_t mark;     /* for walks over the graph: equal to graph->mark when visited */
    int32_t position;  /* in a walk: an index that the walker gives */
};

typedef struct ls_node_spec {
    ls_op op;
    ls_tensor *const *in;
    int input_count;
    ls_dtype dtype;  /* where the op cannot infer it */
    ls_shape shape;  /* likewise: what was asked for */
    bool per_sample; /* of leaves */
    ls_attrs attr;
} ls_node_spec;

/* Makes a node after its op's shape rule has agreed; otherwise returns the graph's error tensor with the rule's
 * message, to which op and inputs are added. An error among the inputs is returned as it is. `graph` may be NULL with
 * inputs. */
ls_tensor *ls_node_make(ls_graph *graph, const ls_node_spec *spec);
ls_tensor *ls_node_make1(ls_op op, ls_tensor *x, ls_attrs attr);
ls_tensor *ls_node_make2(ls_op op, ls_tensor *a, ls_tensor *b, ls_attrs attr);

/* An error tensor with the last error's message, prefixed by `what`. */
ls_tensor *ls_node_error(ls_graph *graph, ls_status status, const char *what);

/* The graph of the first input that has one; NULL if none does. */
ls_graph *ls_graph_of(ls_tensor *const *in, int count);

/* "w", or "matmul:12", or "dense_1/matmul:12": for messages. Returns text. */
#define LS_NODE_TEXT 128
const char *ls_node_label(const ls_tensor *node, char text[LS_NODE_TEXT]);

/* The variables a node writes when it is run; returns how many (at most LS_MAX_WRITES). The first is its value. */
#define LS_MAX_WRITES 3
int ls_node_writes(const ls_tensor *node, ls_variable *out[LS_MAX_WRITES]);

/* Whether the node's op has a trait. Not for error tensors. */
static inline bool ls_node_is(const ls_tensor *node, ls_trait trait)
{
    return ls_ops[node->op].traits & trait;
}

/* Constants, inputs and variables: the run supplies the value. */
static inline bool ls_node_is_given(const ls_tensor *node)
{
    return ls_ops[node->op].kernel == LS_KERNEL_NONE;
}

/* The tensor that is weights: an input, or the node itself where it sums up their gradient; NULL: there is none. */
const ls_tensor *ls_node_weights(const ls_tensor *node);

/* Slots of an update by that rule, with a momentum or without; -1: there is no such rule. */
int ls_apply_slots(ls_apply_rule rule, bool momentum);

/* Which inputs of an `apply` are the step, and the predicate that says whether anything is changed; -1: there is none.
 * The first two are the gradient and the learning rate. */
int ls_apply_step(const ls_tensor *node);
int ls_apply_when(const ls_tensor *node);

/* Whether the predicate among these values of its inputs is false: the update changes nothing. */
bool ls_apply_is_left_out(const ls_tensor *node, const void *const *in);

/* Whether it is made of, or made with, the statistics of each lane by itself. */
bool ls_node_is_by_lane(const ls_tensor *node);

/* Multiply-adds count two. LS_BATCH counts as one sample. */
double ls_node_flops(const ls_tensor *node);

/* ---- Graphs ---- */

typedef struct ls_scope_frame ls_scope_frame;

struct ls_graph {
    ls_context *context;
    const char *owner; /* the name of the model it belongs to, and ends with; NULL: it is the user's */
    uint64_t seed;
    /* Runs that succeeded, in two counters that key random numbers: `step` counts those that write a trainable
     * variable, `run` the others. So an evaluation, a prediction or a value read between two steps changes no step. */
    uint64_t run, step;
    ls_arena arena; /* nodes, attributes, names */
    ls_tensor **nodes;
    size_t node_count, node_room;
    ls_variable **variables;
    size_t variable_count, variable_room;
    ls_tensor **names; /* hash table, chained through next_same_hash */
    size_t name_room;
    const char *prefix; /* of the open name scopes, with its slash; "" outside */
    int device;         /* of the open device scopes; LS_ANY_DEVICE outside */
    bool alone;         /* its runs are this process's, and no reason for workers to meet */
    bool reference;     /* the CPU runs it with the reference kernels */
    const char *layer;  /* whose call is being traced; NULL outside */
    int64_t origin;     /* of the gradients being made; -1 outside */
    ls_scope_frame *scope;
    uint64_t scopes;       /* opened so far */
    ls_tensor *error;      /* the first, or NULL */
    uint32_t random_count; /* numbers the layers that draw random numbers */
    uint32_t mark;
    ls_status (*fill)(ls_graph *graph); /* gives memory and values to variables that have none yet; NULL: all have */
    void *fill_user;
    struct ls_runs *runs; /* what the run layer keeps for this graph (compiled plans, settings), and how it is told */
    void (*trim_runs)(ls_graph *graph, size_t nodes); /* only that many nodes are left */
    void (*drop_runs)(ls_graph *graph);
    struct {
        _Atomic(const void *) thread;          /* that uses the graph; NULL: none */
        _Atomic(const char *) call;            /* that it made first */
        int depth;                             /* of its calls within calls */
    } claim;                                   /* claim.h */
    uint64_t writes;                           /* of variables, so far: their versions */
    ls_status (*bring)(ls_variable *variable); /* how the run layer brings a variable's newest value to the host */
};

/* Registers a node under prefix + name. */
ls_status ls_graph_name(ls_graph *graph, ls_tensor *node, const char *name);
ls_status ls_graph_add_node(ls_graph *graph, ls_tensor *node);
ls_status ls_graph_add_variable(ls_graph *graph, ls_variable *variable);

/* A variable without memory and value, for as long as nobody needs them: a model that is only described costs nothing.
 * Who makes one sets graph->fill, which calls ls_variable_take for each and forgets itself when all are done. */
ls_tensor *ls_variable_later(ls_graph *graph, const char *name, ls_dtype dtype, ls_shape shape, bool trainable);
ls_status ls_variable_take(ls_graph *graph, ls_variable *variable, const char *name);

/* Called before any variable's data is looked at. */
static inline ls_status ls_graph_fill(ls_graph *graph)
{
    return graph->fill ? graph->fill(graph) : LS_OK;
}

/* The innermost open scope, by a number that is never used again (0: none is open); and whether one has not ended. */
uint64_t ls_scope_number(const ls_graph *graph);
bool ls_scope_is_open(const ls_graph *graph, uint64_t number);

/* A fresh mark: no node carries it. */
uint32_t ls_graph_next_mark(ls_graph *graph);

/* The nodes that `roots` need, in the order of their creation: each after its inputs. *out is the caller's to free.
 * `stop` (may be NULL) says of a node that its inputs are not needed. */
ls_status ls_graph_order(ls_graph *graph, ls_tensor *const *roots, size_t count,
                         bool (*stop)(const ls_tensor *, void *), void *user, ls_tensor ***out, size_t *out_count);

#endif
