/* Models: layers with their variables, and a way to call them.
 *
 * The variables live in the model's graph; they get memory and initial values when these are first needed. Shapes are
 * found by tracing the model once in another graph, the *draft*, where inputs stand in for variables; it is thrown
 * away, so that the model's own graph holds variables alone until someone traces the model there. */
#ifndef LS_NN_MODEL_H
#define LS_NN_MODEL_H

#include "base/grow.h"
#include "nn/layer.h"

typedef enum ls_model_kind { LS_MODEL_SEQUENTIAL, LS_MODEL_FUNCTIONAL, LS_MODEL_CUSTOM } ls_model_kind;

/* A layer of a model. */
typedef struct ls_model_layer {
    ls_layer
        spec; /* settled; its name is the model's own copy, its device is below. LS_LAYER_NONE: a weight by itself */
    const char *name;
    int64_t number;  /* creation order within the model: keys initial values */
    int64_t unnamed; /* which of the layers of its kind that were given no name; -1: it was given one */
    int device;      /* index in the context; LS_ANY_DEVICE: none was asked for */
    int64_t random;  /* of a dropout: keys its masks, with the number of the call within a trace */
    bool built;
    ls_weight weight[LS_MAX_WEIGHTS];
    ls_tensor *variable[LS_MAX_WEIGHTS]; /* in the model's graph */
    size_t weight_count;
    ls_shape output; /* of its last call */
    ls_dtype output_dtype;
    /* of the trace under way */
    ls_tensor *stand_in[LS_MAX_WEIGHTS];
    int64_t calls;
} ls_model_layer;

/* One call of a layer in a sequential or functional model; a symbol is the index of one. */
typedef struct ls_model_call {
    ls_model_layer *layer;
    int64_t number; /* which call of its layer */
    int *inputs;    /* other calls */
    size_t input_count;
    ls_tensor *value; /* of the trace under way */
    bool needed;
} ls_model_call;

typedef struct ls_model_variable {
    ls_model_layer *layer;
    size_t index; /* within the layer */
} ls_model_variable_at;

struct ls_model {
    ls_model_kind kind;
    ls_context *context;
    ls_graph *graph, *draft; /* draft: while the model is made */
    ls_arena arena;          /* names, calls' inputs */
    const char *name;
    uint64_t seed;
    bool ready;
    ls_status status; /* the first error of its making */
    const char *message;

    ls_model_layer **layers;
    size_t layer_count, layer_room;
    ls_model_variable_at *variables;
    size_t variable_count, variable_room;
    ls_tensor **trainable; /* NULL: nobody asked yet */
    ls_model_call *calls;  /* not of custom models */
    size_t call_count, call_room;

    ls_model_layer **inputs; /* of kind LS_LAYER_INPUT */
    size_t input_count, input_room;
    int *outputs; /* calls; NULL in custom models */
    ls_shape *output_shapes;
    const char **output_names; /* of custom models */
    size_t output_count;

    ls_call_function function;
    void *user;

    const char *at_work; /* the call that uses it now: inside it must be neither compiled nor destroyed */
    struct ls_job *job;  /* what the train layer keeps for a compiled model, and how it ends */
    void (*drop_job)(void *job);
};

/* What calls claim that use a model (graph/claim.h). */
static inline ls_graph *ls_model_claimed(const ls_model *model)
{
    return model ? model->graph : NULL;
}

/* The state of one trace. */
struct ls_call {
    ls_model *model;
    ls_graph *graph;
    bool training;
    bool making;                     /* in the draft: layers may be new, variables have stand-ins */
    int64_t unnamed[LS_LAYER_KINDS]; /* layers without a name met so far */
    ls_tensor **updates;
    size_t update_count, update_room;
    double activation_bytes; /* of a sample: what layers gave that is not their input, maybe in another shape */
};

/* ---- Making (model.c) ---- */

ls_status ls_model_create(ls_context *ctx, ls_model_kind kind, const char *name, ls_model **out);

/* Finds or makes the layer of a spec. `share`: a name that is taken means that layer, if it is the same, not an error.
 */
ls_status ls_model_add_layer(ls_model *model, const ls_layer *spec, int64_t unnamed, bool share, ls_model_layer **out);

/* Finds or makes the weight of that name that belongs to the model itself: a layer of no kind with one weight. */
ls_status ls_model_add_weight(ls_model *model, const char *name, const ls_weight *weight, bool making,
                              ls_model_layer **out);

/* ---- Traces (call.c) ---- */

void ls_call_begin(ls_call *call, ls_model *model, ls_graph *graph, bool training, bool making);
void ls_call_end(ls_call *call); /* frees what nobody took */

/* The nodes of one call. The message names the layer and the shapes it was called on. */
ls_status ls_call_apply(ls_call *call, ls_model_layer *layer, ls_tensor *const *inputs, size_t count, ls_tensor **out);

/* Fails with "layer "conv2d" (Conv2D): " before the last error, and " on (batch, 28, 28)" when there are inputs. */
ls_status ls_layer_blame(ls_layer_kind kind, const char *name, ls_tensor *const *inputs, size_t count,
                         ls_status status);

/* Every node of the model, for these inputs of `call`'s graph. */
ls_status ls_model_run_calls(ls_model *model, ls_call *call, ls_tensor *const *inputs, ls_tensor **outputs);

/* Inputs in the model's shapes and types. */
ls_status ls_model_make_inputs(const ls_model *model, ls_graph *graph, ls_tensor **out);

ls_status ls_model_need_ready(const ls_model *model, const char *what);

#endif
