/* What a compiled model carries: its specs, the functions traced from it, the optimizer's progress. A *function* is a
 * set of nodes for one kind of data: inputs to feed, and what to fetch. */
#ifndef LS_TRAIN_TRAINING_H
#define LS_TRAIN_TRAINING_H

#include "lockstep/train.h"
#include "run/runs.h"

typedef enum ls_function_kind { LS_FUNCTION_TRAIN, LS_FUNCTION_EVALUATE, LS_FUNCTION_PREDICT } ls_function_kind;

typedef struct ls_function {
    ls_function_kind kind;
    ls_element_spec spec;                 /* of batched elements */
    size_t class_count;                   /* of class weights; 0: classes are not weighted */
    ls_tensor *inputs[LS_MAX_COMPONENTS]; /* by component */
    ls_tensor *learning_rate;             /* to be fed, of a train function */
    ls_tensor *class_weights;             /* likewise, where classes are weighted */
    ls_tensor *fetches[LS_MAX_METRICS + 2];
    size_t fetch_count; /* loss, metrics, and of a train function the step; of a predict function the output */
    ls_tensor *loss, *sums[LS_MAX_METRICS];
} ls_function;

#define LS_MAX_FUNCTIONS 8

typedef struct ls_training {
    ls_model *model;
    ls_compile_options options;
    ls_scope scope;                /* everything traced ends with it */
    const ls_scope_frame *frame;   /* that scope: traces are made in no other */
    const ls_fit_options *fitting; /* of the fit at work; NULL: none */
    ls_function functions[LS_MAX_FUNCTIONS];
    int function_count;
    int64_t step;     /* updates so far: what schedules count */
    int *device_list; /* of the strategy */
    int device_count;
    ls_times times;
} ls_training;

/* A call begins that uses the model's compiled state; fails when it has none, or when another call is at work on the
 * model and this one must not be inside it (`alone`). */
typedef struct ls_use {
    const char *outer; /* the call that was at work before */
    ls_training *training;
} ls_use;
ls_status ls_use_begin(ls_use *use, ls_model *model, const char *call, bool alone);
ls_status ls_use_for_prediction(ls_use *use, ls_model *model, const char *call); /* it need not be compiled */
void ls_use_end(ls_use *use);

/* The function for data of that spec, traced at the first call. */
ls_status ls_training_function(ls_training *training, ls_function_kind kind, const ls_element_spec *spec,
                               size_t class_count, ls_function **out);

/* Runs it on one element: rows of arrays in memory, or the arrays themselves (rows NULL). */
typedef struct ls_batch_view {
    const ls_element *element;
    const int64_t *rows;
    int64_t samples;
} ls_batch_view;
ls_status ls_function_run(ls_training *training, ls_function *function, const ls_batch_view *batch,
                          const double *class_weights, size_t class_count);

/* Labels of a batch that are class numbers: reals among them must be whole (labels.c). rows as in ls_batch_view. */
ls_status ls_check_class_labels(const ls_array *labels, const int64_t *rows, int64_t samples);

/* Sets lanes and the map from tasks to devices for the runs that follow. */
ls_status ls_training_place(ls_training *training, const ls_strategy *strategy, int lanes);

/* The devices of a strategy; free() the list. */
ls_status ls_device_list(const ls_strategy *strategy, ls_context *ctx, int **list, int *count);

/* ---- Passes over data (passes.c) ---- */

/* One pass after another over a dataset, as batches. */
typedef struct ls_passes {
    ls_dataset *dataset; /* batched; its own handle */
    ls_element_spec spec;
    int64_t steps; /* of a pass; LS_UNKNOWN, LS_INFINITE */
    bool in_rows;
    ls_rows *rows;
    ls_iterator *iterator;
} ls_passes;

ls_status ls_passes_open(ls_passes *passes, ls_dataset *data, int64_t batch_size, bool shuffle, uint64_t seed);
ls_status ls_passes_begin(ls_passes *passes, uint64_t epoch);
ls_status ls_passes_next(ls_passes *passes, ls_batch_view *out, bool *end);
void ls_passes_close(ls_passes *passes);

/* ---- Results of a pass: sums over samples ---- */

typedef struct ls_tally {
    const ls_compile_options *options;
    double loss; /* times samples */
    int64_t samples, steps;
    double *sums[LS_MAX_METRICS];
} ls_tally;

ls_status ls_tally_begin(ls_tally *tally, const ls_compile_options *options);
ls_status ls_tally_add(ls_tally *tally, const ls_function *function, int64_t samples);
void ls_tally_results(const ls_tally *tally, ls_results *out);
void ls_tally_end(ls_tally *tally);

/* One more epoch; the history is made with the first. */
ls_status ls_history_add(ls_history **history, const ls_results *results, const ls_results *validation);

/* One pass of evaluation. */
ls_status ls_training_evaluate(ls_training *training, ls_passes *passes, ls_results *out);

/* ---- Progress and logs ---- */

typedef struct ls_progress {
    FILE *out;
    bool bar, lines; /* neither: silent */
    int64_t steps;   /* of the epoch; negative: not known */
    double start, drawn;
    double first_step; /* seconds that the first step took: not counted in the time a step */
    int64_t done;
    bool open_line; /* a bar is drawn, without a newline after it */
} ls_progress;

void ls_progress_open(ls_progress *progress, FILE *out, ls_verbose verbose);
void ls_progress_epoch(ls_progress *progress, int64_t epoch, int64_t epochs, int64_t steps);
void ls_progress_step(ls_progress *progress, int64_t done, const ls_results *results);
void ls_progress_end(ls_progress *progress, const ls_results *results, const ls_results *validation);
void ls_progress_break(ls_progress *progress); /* ends a bar that is not at its end, for another line to follow */

/* A log that cannot be opened is an error. One that cannot be written any more is not: it is told as a warning, once
 * then and once at the end, and training goes on. */
typedef struct ls_train_log ls_train_log;
ls_status ls_train_log_open(const char *path, ls_logger *logger, ls_train_log **out);
ls_status ls_train_log_start(ls_train_log *log, ls_training *training, const ls_fit_options *options,
                             int64_t batch_size, int64_t epochs);
void ls_train_log_step(ls_train_log *log, int64_t step, double loss, int64_t samples, const char *hash);
void ls_train_log_epoch(ls_train_log *log, int64_t epoch, double seconds, double validation_seconds,
                        const ls_results *results, const ls_results *validation, const ls_times *times);
void ls_train_log_close(ls_train_log *log, ls_model *model, const char *reason);

#endif
