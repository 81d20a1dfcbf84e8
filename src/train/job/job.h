/* The job: state of a compiled model. It holds the traced functions, the settings, and everything
 * that a checkpoint saves (checkpoint/state_list.c).
 *
 * A *function* is a set of nodes for one kind of data: inputs to feed and tensors to fetch. One run
 * of the train function is a training step: it computes the loss, the joined gradients and the sums
 * of metrics, checks that all values are finite, and then does every write: variables, slots,
 * moving averages, the step and the random number counter. Asynchronous workers fetch only what a
 * step computes (ls_job_fetch), and servers do the writes (server/). */
#ifndef LS_TRAIN_JOB_JOB_H
#define LS_TRAIN_JOB_JOB_H

#include "base/arena.h"
#include "base/terminal.h"
#include "base/work.h"
#include "lockstep/cluster.h"
#include "lockstep/train.h"
#include "nn/optimizer.h"
#include "run/eval.h"

typedef struct ls_job ls_job;
typedef struct ls_fit_seconds ls_fit_seconds;

/* ---- Functions (trace.c) ---- */

typedef enum ls_function_kind { LS_FUNCTION_TRAIN, LS_FUNCTION_EVALUATE, LS_FUNCTION_PREDICT } ls_function_kind;

/* Nodes that a training step is built from. */
typedef struct ls_step_nodes {
    ls_tensor **variables, **gradients; /* trainable; a gradient may be NULL */
    size_t count;
    ls_tensor **updates; /* assignments to moving averages */
    size_t update_count;
} ls_step_nodes;

typedef struct ls_function {
    ls_function_kind kind;
    ls_element_spec spec;                 /* types and shapes of the batched elements */
    size_t class_count;                   /* class weights; 0: none */
    size_t output;                        /* predict: index of the model output, or LS_EVERY_OUTPUT */
    ls_tensor *inputs[LS_MAX_COMPONENTS]; /* by component */
    ls_tensor *learning_rate;             /* train: fed with each step */
    ls_tensor *class_weights;             /* fed if class_count > 0 */
    /* The loss; with several outputs, the loss of each; the metrics; the update (train). A predict
     * function fetches its output only. */
    ls_tensor *fetches[LS_MAX_RESULTS + 1];
    size_t fetch_count;
    ls_tensor *loss, *losses[LS_MAX_OUTPUTS], *sums[LS_MAX_METRICS];
    ls_step_nodes step; /* train functions only */
} ls_function;

#define LS_MAX_FUNCTIONS 8

#define LS_EVERY_OUTPUT ((size_t)-1)

/* Returns the function for data of this spec; traces it at the first call. */
typedef struct ls_function_choice {
    size_t class_count, output; /* as in ls_function */
} ls_function_choice;
ls_status ls_job_function(ls_job *job, ls_function_kind kind, const ls_element_spec *spec, ls_function_choice choice,
                          ls_function **out);
void ls_function_free(ls_function *function);

/* ---- The job ---- */

/* Settings for the runs of one call: lanes (0: those of the graph) and the strategy's map. They are
 * part of the key of a plan, so nested calls do not disturb each other. */
typedef struct ls_settings {
    ls_run_settings run;
    int *lists;    /* storage of the map */
    bool of_graph; /* a copy of the graph's own map */
} ls_settings;
ls_status ls_settings_make(const ls_job *job, const ls_strategy *strategy, int lanes, ls_settings *out);
/* Recomputes the map of a strategy with work_split "auto" from the measured speeds of devices. */
ls_status ls_settings_follow(const ls_job *job, const ls_strategy *strategy, ls_settings *settings);
void ls_settings_free(ls_settings *settings);

typedef struct ls_target {
    size_t output;
    ls_loss loss;
    double weight;
} ls_target;

typedef struct ls_position {
    int64_t epoch, step; /* step: done in this epoch */
    int64_t pass, batch; /* batch: taken in this pass over the data */
} ls_position;

/* Sums over the samples of the epoch so far (results.c). */
typedef struct ls_tally {
    double loss, losses[LS_MAX_OUTPUTS]; /* weighted by samples, except losses reduced by sum */
    int64_t samples, steps;
    double *sums[LS_MAX_METRICS];
} ls_tally;

struct ls_job {
    ls_model *model;
    ls_arena arena; /* holds copies of names */
    ls_optimizer optimizer;
    ls_target targets[LS_MAX_OUTPUTS]; /* in the order of the labels */
    size_t target_count;
    ls_metric metrics[LS_MAX_METRICS];
    size_t metric_target[LS_MAX_METRICS], metric_count;
    const char *names[LS_MAX_RESULTS]; /* names of results */
    size_t name_count;

    ls_scope scope; /* owns everything traced */
    /* no other scope may be open when tracing */
    const ls_scope_entry *scope_entry;
    ls_function functions[LS_MAX_FUNCTIONS];
    int function_count;

    ls_optimizer_state state; /* slots and the step */
    double rate;              /* set by ls_set_learning_rate; NAN: the optimizer's rate */
    ls_position position;
    ls_tally tally;
    uint64_t data_seed;
    int64_t batch_size; /* batch size of the last fit or ls_train_on_batch */
    int64_t fitted;     /* batch size of the last fit; 0: none */
    int64_t lanes;      /* as requested for the last fit */
    int64_t lane_norms; /* batch norms that normalize per lane */
    const ls_callback *callbacks;
    size_t callback_count;
    ls_times times;
    int used_lanes; /* in the last training step */
    /* ---- Checkpoints (checkpoint.h) ---- */
    const struct ls_fit_facts *fit; /* the running fit */
    /* NULL: the running fit neither saves nor resumes */
    struct ls_checkpoint_writer *writer;
    const struct ls_file_ops *file_ops; /* NULL: the system's */
    ls_fit_seconds *seconds;            /* seconds of the current or last fit */
    bool fitting;
    /* one lane is computed twice every N steps; 0: never */
    int64_t audit;
    ls_profile *profile;   /* times of ops of the current or last fit; NULL: not measured */
    ls_timeline *timeline; /* timeline of the running fit; NULL: not recorded */
};

/* Begins a call that uses the compiled model. Fails if it is not compiled, or if `alone` is set and
 * another call is running on the model. */
typedef struct ls_use {
    const char *outer; /* the enclosing call; NULL: none */
    ls_job *job;
} ls_use;
ls_status ls_use_begin(ls_use *use, ls_model *model, const char *call, bool alone);
/* For a model that may not be compiled. */
ls_status ls_use_for_prediction(ls_use *use, ls_model *model, const char *call);
void ls_use_end(ls_use *use);

#endif
