/* A job is what a fit is made of: a compiled model, where it is in the data, its settings, the functions traced from
 * it, and one list of everything that must be saved (saved.c).
 *
 * A *function* is a set of nodes for one kind of data: inputs to feed, and what to fetch. A training step is made of
 * two, GRADIENTS and APPLY. GRADIENTS writes nothing: it gives the loss, the joined gradients, the batch's own
 * statistics for moving averages and the sums of metrics. APPLY does every write: variables, slots, moving averages,
 * the step and the counter of random numbers, behind the check that all is finite. Together they are one plan, as fit
 * runs them; apart, APPLY is fed with what GRADIENTS gave. The bits are the same (step.c). */
#ifndef LS_TRAIN_JOB_H
#define LS_TRAIN_JOB_H

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
    struct ls_saver *saver;             /* that it saves with, or NULL */
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

/* ---- Where a fit's time goes, by device (times.c) ---- */

ls_status ls_fit_seconds_make(const ls_context *ctx, const ls_map *map, ls_fit_seconds **out);
void ls_fit_seconds_free(ls_fit_seconds *seconds);
ls_device_seconds *ls_fit_seconds_list(ls_fit_seconds *seconds); /* by device, for runs to add to */
void ls_fit_seconds_begin_epoch(ls_fit_seconds *seconds);
/* What the fit took, in all; delay: of ls_cores_delay. */
void ls_fit_seconds_note(ls_fit_seconds *seconds, const ls_times *times, double wall, int64_t steps, double delay);

/* ,"devices":[{"name":"cpu:0","busy":1.5,"data":0.1,"joins":0.2,"idle":0.3,"other":0.1}]: of the fit, or of the epoch
 * at hand, whose times are given; nothing for NULL. */
void ls_fit_seconds_put(const ls_fit_seconds *seconds, const ls_context *ctx, bool epoch, const ls_times *times,
                        ls_text *text);

/* One sentence where more devices do not help, judged by what was measured; nothing where they do, or may. */
void ls_fit_seconds_advise(const ls_fit_seconds *seconds, ls_text *text);

/* ---- The workers of a cluster, as the chief sees them (workers.c) ---- */

typedef struct ls_worker_time {
    int rank, lanes; /* lanes of a whole batch */
    int place;       /* among the members */
    double seconds;  /* of its own work in this epoch: not waiting for other workers */
} ls_worker_time;
typedef struct ls_worker_times {
    int lanes;                     /* the most that a step of this epoch had */
    double before[LS_MAX_CLUSTER]; /* by rank: what was counted when the epoch began */
    int64_t steps;                 /* counted since then */
    unsigned epoch;                /* of the members, then */
    double speed[LS_MAX_CLUSTER];  /* by rank: lanes a second, when it last had some; 0: not known */
    int count; /* those that are there and no parameter servers, by place; 0: this process is alone, or no chief */
    ls_worker_time list[LS_MAX_CLUSTER];
} ls_worker_times;
void ls_worker_times_begin(ls_worker_times *times, const ls_context *ctx); /* an epoch */
void ls_worker_times_step(ls_worker_times *times, int lanes);
void ls_worker_times_take(ls_worker_times *times, const ls_context *ctx); /* makes the list */
/* Who holds up the others, with more than *factor times the median's work: set to how many times; NULL: nobody. */
const ls_worker_time *ls_worker_times_slowest(const ls_worker_times *times, double *factor);
/* The same for whoever watches: the rank, of a worker that takes a little longer than the others; -1: none does. */
int ls_worker_times_last(const ls_worker_times *times);
/* "4 workers, waiting for 3"; without a slow one "4 workers". */
#define LS_WORKERS_TEXT 64
void ls_worker_times_text(const ls_worker_times *times, char text[LS_WORKERS_TEXT]);
/* Lanes go to workers by their speed since this was last called (or begun): all workers call it, with their own times,
 * and have the same lanes behind it. */
ls_status ls_worker_times_split(ls_worker_times *times, ls_context *ctx);
/* One line that names it. */
void ls_worker_times_report(const ls_worker_times *times, ls_context *ctx, int64_t epoch);
/* ,"workers":[{"rank":0,"lanes":2,"seconds":1.5}], or nothing. */
void ls_worker_times_put(const ls_worker_times *times, ls_text *text);

/* ---- What a fit shows of itself while it runs, to other programs (status.c) ---- */

/* A small file, written anew each second by a thread of its own and removed at the end. One that cannot be written is a
 * warning, and nothing else. */
typedef struct ls_fit_status ls_fit_status;
typedef struct ls_fit_at {
    const char *doing;                  /* "training" */
    int64_t epoch, epochs, step, steps; /* step: done of the epoch; steps: -1: not known */
    double step_seconds;
    double loss;
} ls_fit_at;
void ls_fit_status_open(const char *path, ls_job *job, const char *log, ls_fit_status **out);
void ls_fit_status_note(ls_fit_status *status, const ls_fit_at *at); /* status may be NULL */
void ls_fit_status_workers(ls_fit_status *status, const ls_worker_times *times, int64_t steps);
void ls_fit_status_close(ls_fit_status *status);

/* Whether a signal came, here or to another worker of the cluster: the same on all of them after each run. */
bool ls_job_interrupted(const ls_job *job, const volatile int *stop);

/* All workers begin a fit together; whether a signal came to one of them before. */
ls_status ls_job_begins(const ls_job *job, const volatile int *stop, bool *interrupted);

/* All workers compare what they are about to train, and on which data: what differs is named, on all of them. One line
 * tells which of them have no lanes. Nothing where this process is alone. (workers.c) */
ls_status ls_workers_compare(ls_job *job);
/* What they compare, as a text to free(). */
ls_status ls_workers_describe(ls_job *job, char **out);

/* ---- Running (step.c) ---- */

/* One element: rows of arrays in memory, or the arrays themselves (rows NULL), whose samples may have to be made yet.
 */
typedef struct ls_batch_view {
    const ls_element *element;
    const int64_t *rows;
    int64_t samples;
    struct ls_on_demand *on_demand; /* makes samples; NULL: they are there */
    struct ls_dataset *dataset;     /* that the element is of; NULL: not known */
} ls_batch_view;
ls_status ls_function_run(ls_job *job, ls_function *function, const ls_settings *settings, const ls_batch_view *batch,
                          const double *class_weights);

/* What GRADIENTS gave: views that last until it is run again. */
typedef struct ls_given {
    ls_array *values; /* as ls_halves.passed; free() the array */
    int64_t samples;
} ls_given;
ls_status ls_job_gradients(ls_job *job, ls_function *function, const ls_settings *settings, const ls_batch_view *batch,
                           const double *class_weights, ls_given *out);
/* A run that is a part of the next training step, and writes nothing: these tensors hold what came out. */
ls_status ls_job_fetch(ls_job *job, ls_function *function, const ls_settings *settings, const ls_batch_view *batch,
                       const double *class_weights, ls_tensor *const *fetches, size_t count);
ls_status ls_job_apply(ls_job *job, ls_function *function, const ls_settings *settings, const ls_given *given);

/* Training steps since the model was compiled: batches. */
ls_status ls_job_step(const ls_job *job, int64_t *out);

/* The learning rate of the next step. */
ls_status ls_job_rate(const ls_job *job, double *out);

/* Labels of a batch that are class numbers: reals among them must be whole (labels.c). rows as in ls_batch_view. */
ls_status ls_check_class_labels(const ls_array *labels, const int64_t *rows, int64_t first, int64_t end);

/* Extends the message of a run over the batch that failed with `status`, which is returned: which row of the data has a
 * bad label or a value that is not finite; otherwise advises a smaller learning rate (explain.c). */
ls_status ls_explain_failure(const ls_job *job, const ls_function *function, const ls_batch_view *batch,
                             ls_status status);

/* ---- Everything that must be saved (saved.c) ---- */

typedef enum ls_saved_kind {
    LS_SAVED_VARIABLE, /* of the model: trainable ones in creation order, then the others */
    LS_SAVED_SLOT,     /* of the optimizer, in creation order; the step is the last */
    LS_SAVED_NUMBER,   /* one or more numbers: bytes at `data` */
    LS_SAVED_FIXED,    /* the same, but only compared: a job with another value is another job */
    LS_SAVED_CALLBACK, /* of the fit at work: what its save function gives */
} ls_saved_kind;

/* What the bytes of a number are; a text has as many bytes as letters. */
typedef enum ls_saved_type {
    LS_SAVED_I64,
    LS_SAVED_U64,
    LS_SAVED_F64,
    LS_SAVED_INT,
    LS_SAVED_BOOL,
    LS_SAVED_TEXT
} ls_saved_type;

typedef struct ls_saved {
    const char *name;
    ls_saved_kind kind;
    ls_saved_type type;
    bool of_fit; /* a fixed one that only a fit has: it is not compared outside one */
    ls_variable *variable;
    void *data;
    size_t bytes;
    const ls_callback *callback;
    char text[48]; /* of the name, where it is made here */
} ls_saved;

/* "early_stopping"; of the user's own, "functions". */
const char *ls_callback_name(const ls_callback *callback);
/* Whether the callback that a state is saved for, by its name behind LS_SAVED_CALLBACKS, only writes files: it may come
 * and go between a run and the one that goes on. */
#define LS_SAVED_CALLBACKS "callback/"
bool ls_callback_may_differ(const char *name);

/* The list; free() it. */
ls_status ls_job_list(ls_job *job, ls_saved **out, size_t *count);

/* The bytes of all entries, in memory. Saved at any time; loaded in on_train_begin of a fit over the same data, which
 * then goes on as the one that was saved did. A snapshot that does not fit changes nothing. */
typedef struct ls_saved_bytes {
    char *name;
    ls_saved_kind kind;
    ls_dtype dtype; /* of a variable or a slot */
    ls_shape shape;
    void *bytes;
    size_t count;
} ls_saved_bytes;
typedef struct ls_snapshot {
    size_t count;
    ls_saved_bytes *entry;
} ls_snapshot;
ls_status ls_job_save(ls_job *job, ls_snapshot **out);
ls_status ls_job_load(ls_job *job, const ls_snapshot *snapshot);
void ls_snapshot_destroy(ls_snapshot *snapshot);

/* ---- Passes over data (passes.c) ---- */

/* One pass after another over a dataset, as batches. */
typedef struct ls_passes {
    ls_dataset *dataset; /* batched; its own handle */
    ls_element_spec spec;
    int64_t steps;           /* of a pass; LS_UNKNOWN, LS_INFINITE */
    int64_t first;           /* samples of a pass's first batch */
    bool in_rows, on_demand; /* how batches come; otherwise by an iterator */
    ls_rows *rows;
    struct ls_on_demand *makes;
    ls_iterator *iterator;
} ls_passes;

#define LS_DEFAULT_BATCH 32

/* How samples become batches. A dataset that is batched already keeps its batches and its order. */
typedef struct ls_batching {
    const char *option; /* the name of the user's option for `asked`, for messages */
    int64_t asked;      /* samples a batch, as the user asked; 0: not said. Batched data must have this size */
    int64_t otherwise;  /* samples a batch where nothing was asked; 0: LS_DEFAULT_BATCH */
    bool shuffle;       /* where the dataset can be shuffled */
    uint64_t seed;
} ls_batching;

/* In a cluster (of the context, which may be NULL) samples are made on demand, where that is possible. */
ls_status ls_passes_open(ls_passes *passes, const ls_context *ctx, ls_dataset *data, const ls_batching *batching);
ls_status ls_passes_begin(ls_passes *passes, uint64_t epoch);
ls_status ls_passes_next(ls_passes *passes, ls_batch_view *out, bool *end);
void ls_passes_close(ls_passes *passes);

/* ---- What a call that trains begins with (setup.c) ---- */

typedef struct ls_fit_setup {
    ls_settings settings;
    ls_passes data, validation;
    bool validates;
    int64_t epochs, steps; /* steps of an epoch; negative: as many as there are */
    ls_function *function; /* the job's */
} ls_fit_setup;
/* `call` is for messages. */
ls_status ls_fit_set_up(ls_job *job, ls_dataset *data, const ls_fit_options *options, const char *call,
                        ls_fit_setup *out);
void ls_fit_setup_free(ls_fit_setup *setup);

/* ---- Results of a pass ---- */

ls_status ls_tally_begin(ls_tally *tally, const ls_job *job);
void ls_tally_clear(ls_tally *tally, const ls_job *job);
/* What a batch gave: the loss, those of several outputs, then the sums of each metric; and adding that up. */
size_t ls_results_count(const ls_job *job);
ls_status ls_results_read(const ls_job *job, const ls_function *function, double *values);
void ls_tally_add_values(ls_tally *tally, const ls_job *job, const double *values, int64_t samples);
ls_status ls_tally_add(ls_tally *tally, const ls_job *job, const ls_function *function, int64_t samples);
void ls_tally_results(const ls_tally *tally, const ls_job *job, ls_results *out);
void ls_tally_end(ls_tally *tally);

/* One more epoch; the history is made with the first. */
ls_status ls_history_add(ls_history **history, const ls_results *results, const ls_results *validation);
/* One that goes on; values by epoch, then by name, at most 2 * LS_MAX_RESULTS of these. */
ls_status ls_history_make(const char *const *names, size_t count, const double *values, size_t epochs,
                          ls_history **out);

/* ---- Progress and logs ---- */

typedef struct ls_progress {
    ls_terminal terminal;
    bool bar, lines;      /* neither: silent */
    int64_t steps;        /* of the epoch; negative: not known */
    int64_t done, before; /* steps done; of these, before this process came to the epoch */
    double start, drawn;
    double first_step;           /* seconds that the first step took: not counted in the time a step */
    bool open_line;              /* a bar is drawn, without a newline after it */
    const ls_results *results;   /* what the last step gave; NULL: there was none yet */
    char about[LS_WORKERS_TEXT]; /* shown last, on a terminal that has room for it; "" */
    bool watching;               /* work between steps is shown, too, */
    ls_work_watcher outer;       /* in place of this watcher */
} ls_progress;

void ls_progress_open(ls_progress *progress, FILE *out, ls_verbose verbose);
/* Prints the first line of a fit: its optimizer and the learning rate of its first step. */
void ls_progress_rate(ls_progress *progress, const char *optimizer, double rate);
void ls_progress_epoch(ls_progress *progress, int64_t epoch, int64_t epochs, int64_t steps, int64_t done);
void ls_progress_begin(ls_progress *progress, int64_t steps, int64_t done); /* the same without a title */
void ls_progress_step(ls_progress *progress, int64_t done, const ls_results *results);
void ls_progress_end(ls_progress *progress, const ls_results *results, const ls_results *validation);
/* From now on work of this thread (base/work.h) is shown with the bar, until it is closed. */
void ls_progress_watch(ls_progress *progress);
/* Ends a bar that is not at its end, for another line to follow; closing does so, too. */
void ls_progress_break(ls_progress *progress);
void ls_progress_close(ls_progress *progress);

/* Who watches a pass of evaluation. `progress` may be NULL; without a bar of its own it is told as work, by the name
 * `verb`. `callbacks` (callback.h) may be NULL, too. `stop` likewise; when it becomes not 0 the pass ends early:
 * out->count is 0. */
typedef struct ls_callback_list ls_callback_list;
typedef struct ls_watchers {
    const char *verb;
    ls_progress *progress;
    ls_callback_list *callbacks;
    const volatile int *stop;
} ls_watchers;
ls_status ls_job_evaluate(ls_job *job, const ls_settings *settings, ls_passes *passes, const ls_watchers *watch,
                          ls_results *out);

/* A log that cannot be opened is an error. One that cannot be written any more is not: it is told as a warning, once
 * then and once at the end, and training goes on. */
typedef struct ls_train_log ls_train_log;
typedef struct ls_log_mode {
    bool append; /* it goes on behind what an earlier run wrote */
    bool quiet;  /* another worker writes it: the last records are kept, for ls_train_log_go_on */
} ls_log_mode;
ls_status ls_train_log_open(const char *path, ls_log_mode mode, ls_context *ctx, ls_train_log **out);
/* The worker that wrote it is lost: this one goes on. Writes what is missing, and nothing twice. A file that cannot be
 * reached is a warning. */
void ls_train_log_go_on(ls_train_log *log);
/* The membership has a new generation: the worker that writes claims its lease for it. */
void ls_train_log_renew_lease(ls_train_log *log);
/* What identifies the run that a log is of; a worker that joins it is told, for it may have to go on with the log. */
#define LS_LOG_ID 144
void ls_train_log_tell_run(const ls_train_log *log, char id[LS_LOG_ID]);
void ls_train_log_join_run(ls_train_log *log, const char id[LS_LOG_ID]);
/* Whether the lost worker told of that checkpoint; true where there is no log. */
bool ls_train_log_has_checkpoint(const ls_train_log *log, int64_t step);

/* What a run is, known before its first step. */
typedef struct ls_start_facts {
    int64_t batch_size, epochs;
    int lanes;          /* of a whole batch */
    const int *devices; /* that have work */
    int device_count;
    uint64_t seed;
} ls_start_facts;
ls_status ls_train_log_start(ls_train_log *log, ls_job *job, const ls_start_facts *facts);

typedef struct ls_step_facts {
    int64_t step, samples;
    double loss, learning_rate;
    int lanes;
    const char *hash; /* NULL: none is asked for */
} ls_step_facts;
void ls_train_log_step(ls_train_log *log, const ls_step_facts *facts);

typedef struct ls_epoch_facts {
    const ls_job *job;
    int64_t epoch, steps;                   /* epoch: from 0; steps: done of it */
    bool whole;                             /* false: it was cut short */
    double seconds;                         /* training: without the validation */
    double learning_rate;                   /* of its last step */
    const ls_times *times;                  /* of this epoch alone */
    const ls_worker_times *workers;         /* likewise */
    const ls_results *results, *validation; /* validation NULL: this epoch has none */
    double validation_seconds;
} ls_epoch_facts;
void ls_train_log_epoch(ls_train_log *log, const ls_epoch_facts *facts);

/* A checkpoint was evaluated, by a process that follows them. */
void ls_train_log_evaluation(ls_train_log *log, int64_t step, double seconds, const ls_results *results);

typedef struct ls_checkpoint_event {
    int64_t step;
    double seconds; /* to write it */
    size_t bytes;
    double waited;     /* all that training has waited for checkpoints so far */
    const char *error; /* NULL: it was saved */
} ls_checkpoint_event;
void ls_train_log_checkpoint(ls_train_log *log, const ls_checkpoint_event *event);
/* other_bits: what was allowed to differ; NULL: nothing. */
void ls_train_log_resume(ls_train_log *log, const char *from, int64_t step, const char *other_bits);

/* The last line, and the file's end. `error`: the message of what failed, or NULL. */
typedef struct ls_end_facts {
    const char *reason, *error;
    double seconds;
    const ls_times *times; /* of the whole fit */
} ls_end_facts;
void ls_train_log_close(ls_train_log *log, ls_job *job, const ls_end_facts *facts);

#endif
