/* Models: layers with their variables, and how to call them. The variables live in the model's
 * graph and get memory and initial values on first use. Shapes are inferred by tracing the model
 * once in another graph, the *draft*, where inputs stand in for variables, so the model's graph
 * holds only variables until it is traced. */
#ifndef LS_NN_MODEL_H
#define LS_NN_MODEL_H

#include "base/grow.h"
#include "nn/layer.h"

typedef enum ls_model_kind { LS_MODEL_SEQUENTIAL, LS_MODEL_FUNCTIONAL, LS_MODEL_CUSTOM } ls_model_kind;

typedef struct ls_model_layer {
    ls_layer
        /* Resolved. The name is the model's copy; the device is below. LS_LAYER_NONE: a weight that
         * belongs to the model itself. */
        spec;
    const char *name;
    int64_t number; /* creation order within the model; keys initial values */
    /* index among the unnamed layers of its kind; -1: the user named it */
    int64_t unnamed;
    int device; /* index in the context, or LS_ANY_DEVICE */
    /* keys random numbers, with the number of the call within a trace */
    int64_t random;
    bool built;
    ls_weight weight[LS_MAX_WEIGHTS];
    bool learns[LS_MAX_WEIGHTS];         /* trainable unless the layer is frozen */
    ls_tensor *variable[LS_MAX_WEIGHTS]; /* in the model's graph */
    size_t weight_count;
    struct ls_model_layer *inside; /* the model layer that contains it; NULL: none */
    ls_model *inner;               /* LS_LAYER_MODEL: its calls; `root` of it is this model */
    ls_shape output;               /* shape that the last call returned */
    ls_dtype output_dtype;
    /* The current trace: tensors in place of the variables, and calls so far. */
    ls_tensor *stand_in[LS_MAX_WEIGHTS];
    int64_t calls;
    size_t updates[2]; /* index + 1 in the call's list; 0: none */
    /* Ids of the updates of the last trace in the step of that number (ls_graph.tracing). */
    uint32_t last_update[2];
    uint64_t updated_in;
} ls_model_layer;

/* One call of a layer; a symbol is the index of a call. If the layer has several outputs, a row for
 * each follows the call, in order; these rows have no inputs. */
typedef struct ls_model_call {
    ls_model_layer *layer;
    int64_t number; /* index among the calls of its layer */
    int *inputs;    /* indices of other calls */
    size_t input_count;
    int output;       /* index among the outputs of the layer */
    ls_tensor *value; /* output in the current trace */
    bool needed;
} ls_model_call;

typedef struct ls_model_variable {
    ls_model_layer *layer;
    size_t index; /* within the layer */
} ls_model_variable_at;

/* Layers of a model whose copies a functional model has. */
typedef struct ls_model_source {
    const ls_model *source;
    int *calls; /* by call of the source: the copy; -1: none */
    struct ls_model_source *next;
} ls_model_source;

struct ls_model {
    ls_model_kind kind;
    /* Nested model: the model that owns graph, layers and memory, and its layer. NULL: no other */
    ls_model *root;
    ls_model_layer *container;
    ls_context *context;
    ls_graph *graph, *draft; /* draft: only while the model is being built */
    ls_arena arena;          /* names, calls' inputs */
    const char *name;
    /* Names of the variables in the graph begin with the model's name: it joined another model. */
    bool has_joined;
    ls_model *beside; /* the next of the models that share the graph, in a ring; NULL: no other */
    uint64_t seed;
    bool ready;
    ls_status status; /* first error while building the model */
    const char *message;

    ls_model_layer **layers; /* also those of nested models, each after its container */
    size_t layer_count, layer_room;
    ls_model_variable_at *variables;
    size_t variable_count, variable_room;
    ls_tensor **trainable; /* NULL: not listed yet */
    ls_model_call *calls;  /* unused in custom models */
    size_t call_count, call_room;
    ls_model_source *sources; /* only while the model is being built */

    ls_model_layer **inputs; /* layers of kind LS_LAYER_INPUT */
    size_t input_count, input_room;
    int *outputs; /* indices of calls; NULL in custom models */
    ls_shape *output_shapes;
    const char **output_names; /* custom models only */
    size_t output_count;

    ls_call_function function;
    void *user;

    /* Call that is using the model, which must not be compiled or destroyed meanwhile. */
    const char *at_work;
    struct ls_job *job; /* belongs to the train layer, if compiled; drop_job destroys it */
    void (*drop_job)(void *job);
};

static inline ls_graph *ls_model_claimed(const ls_model *model)
{
    return model ? model->graph : NULL;
}

struct ls_call {
    ls_model *model;
    ls_graph *graph;
    bool training;
    bool making;                     /* building the draft: may add layers, uses stand-ins */
    int64_t unnamed[LS_LAYER_KINDS]; /* unnamed layers so far, by kind */
    ls_tensor **updates;
    size_t update_count, update_room;
    ls_tensor *penalty; /* sum of the activity regularizers so far; NULL: none */
    /* Bytes per sample of layer outputs that are not a reshaped input. */
    double activation_bytes;
};

/* ---- Building (model.c) ---- */

/* Finds or creates the layer of a spec. `share`: an equal layer of that name is not an error. */
ls_status ls_model_add_layer(ls_model *model, const ls_layer *spec, int64_t unnamed, bool share, ls_model_layer **out);

/* Finds or creates a weight of the model itself: a layer of kind LS_LAYER_NONE. */
ls_status ls_model_add_weight(ls_model *model, const char *name, const ls_weight *weight, bool making,
                              ls_model_layer **out);

/* Creates a layer with a name of its own (NULL: the default) and no variables. */
ls_status ls_model_make_layer(ls_model *model, const ls_layer *resolved, const char *name, int64_t unnamed,
                              ls_model_layer **out);

/* Creates a model without layers; the caller destroys it. */
ls_status ls_model_create(ls_context *ctx, ls_model_kind kind, const char *name, ls_model **out);
void ls_model_destroy_graph(ls_graph *graph);
/* Adds a layer, whose name must be new; an input. */
ls_status ls_model_new_layer(ls_model *model, const ls_layer *spec, ls_model_layer **out);
ls_status ls_model_add_input(ls_model *model, const ls_layer *spec, ls_model_layer **out);
/* Records the first error while the model is built, and returns it again. */
ls_status ls_model_keep_error(ls_model *model, ls_status status);
ls_status ls_model_kept_error(const ls_model *model);

/* Returns the layer of a name, or NULL; fails with the nearest name if there is none. */
ls_model_layer *ls_model_find(const ls_model *model, const char *name);
ls_status ls_model_find_layer(const ls_model *model, const char *name, ls_model_layer **out);

/* ---- Nested models (nested.c) ---- */

/* Copies the layers of `source`, with their weights, into a layer of kind LS_LAYER_MODEL. */
ls_status ls_nested_fill(ls_model *model, ls_model_layer *container, ls_model *source);
/* Copies a layer with its weights; container: NULL for a layer of the model itself. */
ls_status ls_model_copy_layer(ls_model *model, ls_model_layer *container, const ls_model_layer *from, int device,
                              ls_model_layer **out);
/* Fails if the models belong to different contexts. */
ls_status ls_model_check_source(const ls_model *model, const ls_model *source);

static inline const ls_model *ls_model_root(const ls_model *model)
{
    return model->root ? model->root : model;
}

/* Returns whether a layer of the root belongs to this model itself, not to a model inside. */
static inline bool ls_model_owns(const ls_model *model, const ls_model_layer *layer)
{
    return layer->inside == model->container;
}

/* Name within its model, without those of the models around it. */
const char *ls_model_layer_own_name(const ls_model_layer *layer);
/* Keras's class and default name of a layer; of a nested model "Sequential" or "Functional". */
const char *ls_model_layer_class(const ls_model_layer *layer);
const char *ls_model_layer_base(const ls_model_layer *layer);
/* Elements of the variables of a layer, or of all layers of a nested model. */
int64_t ls_model_layer_parameters(const ls_model *model, const ls_model_layer *layer);
bool ls_model_layer_is_inside(const ls_model_layer *layer, const ls_model_layer *container);

static inline size_t ls_model_layer_outputs(const ls_model_layer *layer)
{
    return layer->inner ? layer->inner->output_count : 1;
}

/* ---- Models that share a graph (shared_graph.c) ---- */

/* Destroys the graph with the last model that uses it. */
void ls_model_leave_graph(ls_model *model);

/* ---- Traces (call.c) ---- */

/* Creates the variables of a layer whose weights are known. */
ls_status ls_model_make_variables(ls_model *model, ls_model_layer *layer, int device);

void ls_call_begin(ls_call *call, ls_model *model, ls_graph *graph, bool training, bool making);
void ls_call_end(ls_call *call); /* frees what was not taken over */

/* Adds the nodes of one call; *out is the first output. */
ls_status ls_call_apply(ls_call *call, ls_model_layer *layer, ls_tensor *const *inputs, size_t count, ls_tensor **out);

/* Adds `layer "conv2d" (Conv2D) on (batch, 28, 28): ` to the last error. */
ls_status ls_layer_fail_within(ls_layer_kind kind, const char *name, ls_tensor *const *inputs, size_t count,
                               ls_status status);

/* Returns an output of the last call of a layer. */
ls_tensor *ls_call_output(const ls_model_layer *layer, size_t output);

ls_status ls_model_run_calls(ls_model *model, ls_call *call, ls_tensor *const *inputs, ls_tensor **outputs);

ls_status ls_model_make_inputs(const ls_model *model, ls_graph *graph, ls_tensor **out);

ls_status ls_model_need_ready(const ls_model *model, const char *what);

#endif
