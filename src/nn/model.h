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
    ls_tensor *variable[LS_MAX_WEIGHTS]; /* in the model's graph */
    size_t weight_count;
    ls_shape output; /* of the last call */
    ls_dtype output_dtype;
    /* The current trace: tensors in place of the variables, and calls so far. */
    ls_tensor *stand_in[LS_MAX_WEIGHTS];
    int64_t calls;
} ls_model_layer;

/* One call of a layer; a symbol is the index of a call. */
typedef struct ls_model_call {
    ls_model_layer *layer;
    int64_t number; /* index among the calls of its layer */
    int *inputs;    /* indices of other calls */
    size_t input_count;
    ls_tensor *value; /* output in the current trace */
    bool needed;
} ls_model_call;

typedef struct ls_model_variable {
    ls_model_layer *layer;
    size_t index; /* within the layer */
} ls_model_variable_at;

struct ls_model {
    ls_model_kind kind;
    ls_context *context;
    ls_graph *graph, *draft; /* draft: only while the model is being built */
    ls_arena arena;          /* names, calls' inputs */
    const char *name;
    uint64_t seed;
    bool ready;
    ls_status status; /* first error while building the model */
    const char *message;

    ls_model_layer **layers;
    size_t layer_count, layer_room;
    ls_model_variable_at *variables;
    size_t variable_count, variable_room;
    ls_tensor **trainable; /* NULL: not listed yet */
    ls_model_call *calls;  /* unused in custom models */
    size_t call_count, call_room;

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
    struct ls_job *job; /* of the train layer, if compiled; drop_job destroys it */
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

/* ---- Traces (call.c) ---- */

void ls_call_begin(ls_call *call, ls_model *model, ls_graph *graph, bool training, bool making);
void ls_call_end(ls_call *call); /* frees what was not taken over */

/* Adds the nodes of one call. */
ls_status ls_call_apply(ls_call *call, ls_model_layer *layer, ls_tensor *const *inputs, size_t count, ls_tensor **out);

/* Adds `layer "conv2d" (Conv2D) on (batch, 28, 28): ` to the last error. */
ls_status ls_layer_fail_within(ls_layer_kind kind, const char *name, ls_tensor *const *inputs, size_t count,
                               ls_status status);

ls_status ls_model_run_calls(ls_model *model, ls_call *call, ls_tensor *const *inputs, ls_tensor **outputs);

ls_status ls_model_make_inputs(const ls_model *model, ls_graph *graph, ls_tensor **out);

ls_status ls_model_need_ready(const ls_model *model, const char *what);

#endif
