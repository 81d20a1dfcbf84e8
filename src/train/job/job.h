/* A job is what a fit is made of: a compiled model, where it is in the data, its settings, the functions traced from
 * it, and one list of everything that must be saved (saved.c).
 *
 * A *function* is a set of nodes for one kind of data: inputs to feed, and what to fetch. A training step is made of
 * two, GRADIENTS and APPLY. GRADIENTS writes nothing: it gives the loss, the joined gradients, the batch's own
 * statistics for moving averages and the sums of metrics. APPLY does every write: variables, slots, moving averages,
 * the step and the counter of random numbers, behind the check that all is finite. Together they are one plan, as fit
 * runs them; apart, APPLY is fed with what GRADIENTS gave. The bits are the same (step.c). */
#ifndef LS_TRAIN_JOB_JOB_H
#define LS_TRAIN_JOB_JOB_H

#include "base/arena.h"
#include "base/terminal.h"
#include "base/work.h"
#include "lockstep/cluster.h"
#include "lockstep/train.h"
#include "nn/optimizer.h"
#include "run/runs.h"

typedef struct ls_job ls_job;
typedef struct ls_fit_seconds ls_fit_seconds;

/* ---- Functions (trace.c) ---- */

typedef enum ls_function_kind { LS_FUNCTION_TRAIN, LS_FUNCTION_EVALUATE, LS_FUNCTION_PREDICT } ls_function_kind;

/* The two halves of a training step, traced when they are first run apart. */
typedef struct ls_halves {
    ls_tensor **fetches; /* of GRADIENTS: losses and metrics, then what is passed on */
    size_t fetch_count;
    ls_tensor **passed; /* a part of fetches: the loss, gradients, statistics */
    ls_tensor **inputs; /* of APPLY: one for each */
    size_t passed_count;
    ls_tensor *samples, *learning_rate; /* inputs of APPLY, too */
    ls_tensor *apply[2];                /* its fetches: the loss that is checked, and the update */
} ls_halves;

/* What a training step is traced from. */
typedef struct ls_step_nodes {
    ls_tensor **variables, **gradients; /* trainable ones; a gradient may be NULL */
    size_t count;
    ls_tensor **updates; /* assignments of moving averages */
    size_t update_count;
} ls_step_nodes;

typedef struct ls_function {
    ls_function_kind kind;
    ls_element_spec spec;                 /* of batched elements */
    size_t class_count;                   /* of class weights; 0: classes are not weighted */
    size_t output;                        /* of the model's, of a predict function */
    ls_tensor *inputs[LS_MAX_COMPONENTS]; /* by component */
    ls_tensor *learning_rate;             /* to be fed, of a train function */
    ls_tensor *class_weights;             /* likewise, where classes are weighted */
    /* loss, those of several outputs, metrics, and of a train function the step; of a predict function the output */
    ls_tensor *fetches[LS_MAX_RESULTS + 1];
    size_t fetch_count;
    ls_tensor *loss, *losses[LS_MAX_OUTPUTS], *sums[LS_MAX_METRICS];
    ls_step_nodes step; /* of a train function */
    ls_halves halves;   /* likewise; no fetches: not traced yet */
} ls_function;

#define LS_MAX_FUNCTIONS 8

/* The function for data of that spec, traced at the first call. */
typedef struct ls_function_choice {
    size_t class_count, output; /* as in ls_function */
} ls_function_choice;
ls_status ls_job_function(ls_job *job, ls_function_kind kind, const ls_element_spec *spec, ls_function_choice choice,
                          ls_function **out);
ls_status ls_function_halve(ls_job *job, ls_function *function);
void ls_function_free(ls_function *function);

/* ---- The job ---- */

/* How the runs of one call are made: lanes (0: as the model's graph has them) and the strategy's map. They go with each
 * run and are a part of what its plan is found by, so calls inside others disturb nothing. */
typedef struct ls_settings {
    ls_run_settings run;
    int *lists;    /* of the map */
    bool of_graph; /* they were the graph's */
} ls_settings;
ls_status ls_settings_make(const ls_job *job, const ls_strategy *strategy, int lanes, ls_settings *out);
ls_status ls_settings_follow(const ls_job *job, const ls_strategy *strategy,
                             ls_settings *settings); /* speeds known by now */
void ls_settings_free(ls_settings *settings);

/* An output that is trained, and how. */
typedef struct ls_target {
    size_t output;
    ls_loss loss;
    double weight;
} ls_target;

/* Where a fit is. */
typedef struct ls_position {
    int64_t epoch, step; /* steps done of this epoch */
    int64_t pass, batch; /* batches taken of this pass over the data */
} ls_position;

/* Results of an epoch so far: sums over samples (results.c). */
typedef struct ls_tally {
    double loss, losses[LS_MAX_OUTPUTS]; /* times samples */
    int64_t samples, steps;
    double *sums[LS_MAX_METRICS];
} ls_tally;

struct ls_job {
    ls_model *model;
    ls_arena arena; /* copies of names */
    ls_optimizer optimizer;
    ls_target targets[LS_MAX_OUTPUTS]; /* by label */
    size_t target_count;
    ls_metric metrics[LS_MAX_METRICS];
    size_t metric_target[LS_MAX_METRICS], metric_count;
    const char *names[LS_MAX_RESULTS]; /* of results */
    size_t name_count;

    ls_scope scope;              /* everything traced ends with it */
    const ls_scope_frame *frame; /* that scope: traces are made in no other */
    ls_function functions[LS_MAX_FUNCTIONS];
    int function_count;
    bool apart; /* steps are run as two halves: tests, and whatever stands between the two */

    ls_optimizer_state state; /* slots and the step */
    double rate;              /* that was set; NAN: the optimizer's */
    ls_position position;
    ls_tally tally;
    uint64_t data_seed;
    int64_t batch_size; /* of the fit at work, or the last one */
    int64_t fitted;     /* the same, whatever was trained by hand since; 0: there was no fit */
    int64_t lanes;      /* that were asked for */
    int64_t lane_norms; /* batch norms that normalise by lane */
    const ls_callback *callbacks;
    size_t callback_count;
    ls_times times;
    int used_lanes; /* of the last training step */
    /* Checkpoints (checkpoint.h) */
    const struct ls_fit_facts *fit;     /* the fit at work; NULL: there is none */
    struct ls_checkpoint_writer *saver; /* that it saves with, or NULL */
    const struct ls_file_ops *file_ops; /* that they are written with; NULL: the system's */
    ls_fit_seconds *seconds;            /* of the fit at work, or the last one; NULL: there was none */
    bool fitting;                       /* a fit is at work */
    int64_t audit;                      /* in every so manieth step of it a lane is computed twice; 0: in none */
    ls_timeline *timeline;              /* of the fit at work; NULL: none is kept */
};

/* A call begins that uses the model's compiled state; fails when it has none, or when another call is at work on the
 * model and this one must not be inside it (`alone`). */
typedef struct ls_use {
    const char *outer; /* the call that was at work before */
    ls_job *job;
} ls_use;
ls_status ls_use_begin(ls_use *use, ls_model *model, const char *call, bool alone);
ls_status ls_use_for_prediction(ls_use *use, ls_model *model, const char *call); /* it need not be compiled */
void ls_use_end(ls_use *use);

#endif
