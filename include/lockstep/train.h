/* lockstep/train.h: compile, fit, evaluate, predict, as in Keras.
 *
 * ls_fit is a loop over one traced step function, in calls that users have, too: ls_model_trace, ls_loss_value,
 * ls_apply_gradients, ls_eval_rows. The batch size is the global one and results do not depend on the devices. */
#ifndef LOCKSTEP_TRAIN_H
#define LOCKSTEP_TRAIN_H

#include "lockstep/data.h"
#include "lockstep/nn.h"
#include "lockstep/strategy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Compiling ---- */

#define LS_MAX_OUTPUTS 8 /* that a model which is trained may have */

/* What one of several outputs is trained on. */
typedef struct ls_output {
    ls_loss loss;  /* none: the output is not trained, and the data has no labels for it */
    double weight; /* of its loss in the sum of all; 0: 1, LS_ZERO: 0 */
    ls_metrics_list metrics;
} ls_output;

typedef struct ls_compile_options {
    int ls_first;
    ls_optimizer optimizer; /* none: evaluation only */
    ls_loss loss;           /* of each output */
    ls_metrics_list metrics;
    const ls_output *outputs; /* in place of loss and metrics: one for each of the model's outputs, in order */
    size_t output_count;
} ls_compile_options;

/* ls_compile(model, .optimizer = ls_adam(), .loss = ls_sparse_categorical_crossentropy(), .metrics = ls_metrics(...)).
 * Of several outputs: .outputs = ls_outputs({ .loss = ls_mean_squared_error(), .weight = 0.3 }, { .loss = ... }). The
 * data then has a label for each that has a loss; results are "loss" (their weighted sum), "<output>_loss" for each,
 * without its weight, and "<output>_<metric>", as in Keras. The optimizer's slots are made here. Names are copied. May
 * be called again; the optimizer then starts anew. Not inside LS_SCOPE of the model's graph. */
#define ls_outputs(...)                                                                                                \
    (const ls_output[]){ __VA_ARGS__ }, .output_count = sizeof((const ls_output[]){ __VA_ARGS__ }) / sizeof(ls_output)
#define ls_compile(model, ...) ls_compile_with(model, (ls_compile_options){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_status ls_compile_with(ls_model *model, ls_compile_options options);

/* ---- Built-in callbacks: specs ---- */

/* Names, options, defaults and meanings are Keras's; the constructors stand below, behind ls_callback. A spec is a
 * plain struct by value: nothing to free. What it must remember while training is made by ls_fit, saved with the job,
 * and freed by ls_fit. A monitored name that training does not give is an error before the first step. A value that is
 * not a number is never better than another. A file that cannot be written any more (a full disk) is a warning:
 * training goes on. Messages go where progress goes. */

typedef enum ls_callback_kind {
    LS_CALLBACK_FUNCTIONS = 0, /* the user's own */
    LS_CALLBACK_EARLY_STOPPING,
    LS_CALLBACK_CSV_LOGGER,
    LS_CALLBACK_TENSORBOARD,
    LS_CALLBACK_MODEL_CHECKPOINT,
    LS_CALLBACK_REDUCE_LR_ON_PLATEAU,
    LS_CALLBACK_LEARNING_RATE_SCHEDULER,
    LS_CALLBACK_TERMINATE_ON_NAN,
} ls_callback_kind;

typedef enum ls_monitor_mode {
    LS_MODE_AUTO = 0, /* losses and errors shall fall, other metrics rise */
    LS_MODE_MIN,
    LS_MODE_MAX,
} ls_monitor_mode;

/* ls_early_stopping("val_accuracy", .patience = 3, .restore_best_weights = true): training stops at the end of an epoch
 * when `patience` epochs have brought nothing better. Not in its first epoch, as in Keras. */
typedef struct ls_early_stopping_options {
    int ls_first;
    const char *monitor; /* NULL: "val_loss" */
    double min_delta;    /* a change below it is no improvement */
    int64_t patience;
    bool verbose; /* tells that it stopped, and whose weights are restored */
    ls_monitor_mode mode;
    double baseline; /* improvements that do not reach it do not end the waiting; 0: none, LS_ZERO: 0 */
    /* Training ends with the weights of the best epoch, even when it was not stopped; but not when .stop ended it, or
     * it failed: then it may go on later. */
    bool restore_best_weights;
    int64_t start_from_epoch; /* epochs before it are not looked at */
} ls_early_stopping_options;

/* ls_csv_logger("log.csv"): a header and a line an epoch, with Keras's bytes: "epoch" from 0, then all names in the
 * order of their letters, NA for what an epoch does not have. */
typedef struct ls_csv_logger_options {
    int ls_first;
    const char *path;
    const char *separator; /* one character; NULL: "," */
    bool append;           /* to the file that is there; a header is written where it is empty */
} ls_csv_logger_options;

/* ls_tensorboard("logs/run-1", .update_freq = 1): event files for TensorBoard in the folders logs/run-1/train and
 * logs/run-1/validation, with Keras's tags: epoch_loss, epoch_accuracy, epoch_learning_rate by epoch, from 0;
 * batch_loss,
 * ... by step; evaluation_loss_vs_iterations, ... */
typedef struct ls_tensorboard_options {
    int ls_first;
    const char *log_dir; /* NULL: "logs"; made where it is not there */
    int64_t update_freq; /* 0: epochs alone; N: every Nth step, too */
} ls_tensorboard_options;

/* ls_model_checkpoint("weights-{epoch:02d}-{val_loss:.3f}.safetensors", .save_best_only = true): the weights in a file
 * at the end of each epoch, or of each that is better than all before. The name may have {epoch}, from 1, and every
 * value, written as Python does it; {{ is a brace. Folders are made. */
typedef struct ls_model_checkpoint_options {
    int ls_first;
    const char *path;
    const char *monitor; /* of save_best_only; NULL: "val_loss" */
    bool verbose;
    bool save_best_only;
    ls_monitor_mode mode;
    int64_t save_freq;              /* 0: every epoch; N: every N steps, and the name may have {batch}, from 1 */
    double initial_value_threshold; /* only what is better is saved; 0: none, LS_ZERO: 0 */
} ls_model_checkpoint_options;

/* ls_reduce_lr_on_plateau(.factor = 0.5, .patience = 3): the learning rate times `factor` when `patience` epochs have
 * brought nothing better. From it on the logs of an epoch also have "learning_rate". */
typedef struct ls_reduce_lr_on_plateau_options {
    int ls_first;
    const char *monitor; /* NULL: "val_loss" */
    double factor;       /* 0: 0.1; LS_ZERO: 0 */
    int64_t patience;    /* 0: 10 */
    bool verbose;
    ls_monitor_mode mode;
    double min_delta; /* a change below it is no improvement; 0: 0.0001, LS_ZERO: 0 */
    int64_t cooldown; /* epochs after a reduction in which none are counted */
    double min_lr;
} ls_reduce_lr_on_plateau_options;

/* ls_learning_rate_scheduler(halve): asked for the rate of each epoch as it begins, with the epoch, from 0, and the
 * rate so far. (A schedule by steps belongs to the optimizer: ls_adam(.schedule = ls_cosine_decay(...)).) */
typedef struct ls_learning_rate_scheduler_options {
    int ls_first;
    double (*schedule)(void *user, int64_t epoch, double rate);
    void *user;
    bool verbose;
} ls_learning_rate_scheduler_options;

/* ls_terminate_on_nan(): a step whose loss or update is not finite ends training with LS_OK, and a warning. Without it
 * that is LS_ERR_NOT_FINITE. The weights are those of the last good step either way: the bad one changes nothing. */
typedef struct ls_terminate_on_nan_options {
    int ls_first;
} ls_terminate_on_nan_options;

typedef union ls_callback_spec {
    ls_early_stopping_options early_stopping;
    ls_csv_logger_options csv_logger;
    ls_tensorboard_options tensorboard;
    ls_model_checkpoint_options model_checkpoint;
    ls_reduce_lr_on_plateau_options reduce_lr_on_plateau;
    ls_learning_rate_scheduler_options learning_rate_scheduler;
    ls_terminate_on_nan_options terminate_on_nan;
} ls_callback_spec;

/* ---- Callbacks ---- */

/* What is known at a call: names and values, "loss" first, then metrics, then "val_loss", ... At on_test_batch_end and
 * on_test_end the names have no "val_". */
typedef struct ls_logs {
    size_t count;
    const char *const *names;
    const double *values;
    int64_t epoch;    /* from 0 */
    int64_t step;     /* steps that are done, over all epochs */
    int64_t samples;  /* seen in this epoch, or by this evaluation */
    int64_t batch;    /* of this epoch, evaluation or prediction, from 0: of calls with "batch" in their name */
    bool cut;         /* on_epoch_end: the epoch ended before its last step; it is not counted, and may go on later */
    bool interrupted; /* on_epoch_end, on_train_end: .stop of ls_fit ended training */
} ls_logs;

/* clang-format off */
/* Called at Keras's moments, in this order:
 *     on_train_begin
 *         on_epoch_begin
 *             on_batch_begin, on_batch_end                 a training step
 *             on_test_begin                                the epoch's validation; ls_evaluate with .callbacks
 *                 on_test_batch_begin, on_test_batch_end
 *             on_test_end
 *         on_epoch_end
 *     on_train_end
 *     on_predict_begin, on_predict_batch_begin, on_predict_batch_end, on_predict_end: ls_predict with .callbacks
 *
 * Each may be NULL. Setting *stop ends training after the current step or epoch. Another status than LS_OK ends ls_fit
 * with that status; its message is that of the library's call that failed inside, or what ls_backend_fail was given.
 * Inside, the model may be evaluated, asked, saved and loaded, but neither compiled, trained nor destroyed, nor its
 * context closed: that is refused with LS_ERR_STATE. */
/* clang-format on */
typedef struct ls_callback {
    void *user;
    ls_status (*on_train_begin)(void *user, ls_model *model);
    ls_status (*on_epoch_begin)(void *user, ls_model *model, const ls_logs *logs);
    ls_status (*on_batch_begin)(void *user, ls_model *model, const ls_logs *logs);
    ls_status (*on_batch_end)(void *user, ls_model *model, const ls_logs *logs, bool *stop);
    ls_status (*on_epoch_end)(void *user, ls_model *model, const ls_logs *logs, bool *stop);
    ls_status (*on_train_end)(void *user, ls_model *model, const ls_logs *logs);
    ls_status (*on_test_begin)(void *user, ls_model *model, const ls_logs *logs);
    ls_status (*on_test_batch_begin)(void *user, ls_model *model, const ls_logs *logs);
    ls_status (*on_test_batch_end)(void *user, ls_model *model, const ls_logs *logs);
    ls_status (*on_test_end)(void *user, ls_model *model, const ls_logs *logs);
    ls_status (*on_predict_begin)(void *user, ls_model *model, const ls_logs *logs);
    ls_status (*on_predict_batch_begin)(void *user, ls_model *model, const ls_logs *logs);
    ls_status (*on_predict_batch_end)(void *user, ls_model *model, const ls_logs *logs);
    ls_status (*on_predict_end)(void *user, ls_model *model, const ls_logs *logs);
    /* What the callback itself must remember is saved with the job: bytes from malloc, which the library frees; and
     * given back. */
    ls_status (*save)(void *user, void **bytes, size_t *count);
    ls_status (*load)(void *user, const void *bytes, size_t count);
    ls_callback_kind kind; /* not 0: a built-in one, made by a constructor below; it has no functions of its own */
    ls_callback_spec of;
} ls_callback;

/* ls_fit(model, data, .callbacks = ls_callbacks(ls_early_stopping(.patience = 3), ls_csv_logger("log.csv"), mine)).
 * They are called in that order. */
#define ls_callbacks(...)                                                                                              \
    (const ls_callback[]){ __VA_ARGS__ },                                                                              \
        .callback_count = sizeof((const ls_callback[]){ __VA_ARGS__ }) / sizeof(ls_callback)

#define ls_early_stopping(...)                                                                                         \
    ((ls_callback){ .kind = LS_CALLBACK_EARLY_STOPPING, .of.early_stopping = { .ls_first = 0, __VA_ARGS__ } })
#define ls_csv_logger(...)                                                                                             \
    ((ls_callback){ .kind = LS_CALLBACK_CSV_LOGGER, .of.csv_logger = { .ls_first = 0, __VA_ARGS__ } })
#define ls_tensorboard(...)                                                                                            \
    ((ls_callback){ .kind = LS_CALLBACK_TENSORBOARD, .of.tensorboard = { .ls_first = 0, __VA_ARGS__ } })
#define ls_model_checkpoint(...)                                                                                       \
    ((ls_callback){ .kind = LS_CALLBACK_MODEL_CHECKPOINT, .of.model_checkpoint = { .ls_first = 0, __VA_ARGS__ } })
#define ls_reduce_lr_on_plateau(...)                                                                                   \
    ((ls_callback){ .kind = LS_CALLBACK_REDUCE_LR_ON_PLATEAU,                                                          \
                    .of.reduce_lr_on_plateau = { .ls_first = 0, __VA_ARGS__ } })
#define ls_learning_rate_scheduler(...)                                                                                \
    ((ls_callback){ .kind = LS_CALLBACK_LEARNING_RATE_SCHEDULER,                                                       \
                    .of.learning_rate_scheduler = { .ls_first = 0, __VA_ARGS__ } })
#define ls_terminate_on_nan() ((ls_callback){ .kind = LS_CALLBACK_TERMINATE_ON_NAN })

/* The learning rate of the next step, and another one for all steps to come: for callbacks, too. A rate that a schedule
 * says cannot be set. */
LS_API ls_status ls_learning_rate(ls_model *model, double *out);
LS_API ls_status ls_set_learning_rate(ls_model *model, double rate);

/* ---- History: a value for each name and epoch ---- */

typedef struct ls_history ls_history;
LS_API size_t ls_history_epochs(const ls_history *history);
LS_API size_t ls_history_count(const ls_history *history);
LS_API const char *ls_history_name(const ls_history *history, size_t index);
LS_API ls_status ls_history_value(const ls_history *history, const char *name, size_t epoch, double *out);
LS_API void ls_history_destroy(ls_history *history);

/* ---- Fit ---- */

typedef enum ls_verbose {
    LS_VERBOSE_AUTO = 0, /* the progress bar on a terminal, a line an epoch elsewhere */
    LS_VERBOSE_SILENT,
    LS_VERBOSE_BAR,
    LS_VERBOSE_LINES,
} ls_verbose;

typedef struct ls_fit_options {
    int ls_first;
    int64_t epochs;          /* 0: 1 */
    int64_t batch_size;      /* samples in the whole batch; 0: 32. A batched dataset has its own; another is an error */
    int64_t initial_epoch;   /* counted from 0 */
    int64_t steps_per_epoch; /* 0: one pass over the data. Passes go on from epoch to epoch, one behind the other */
    int64_t max_steps;       /* in all; 0: no limit */
    ls_dataset *validation;
    double validation_split;       /* the last part of the samples is held back */
    int64_t validation_batch_size; /* 0: batch_size. A batched dataset has its own; another is an error */
    bool keep_order;               /* Do not shuffle. Default: data in memory gets a new permutation every epoch */
    uint64_t seed;                 /* of the order of data */
    const double *class_weights;   /* by label: one for each class */
    size_t class_count;
    const ls_callback *callbacks;
    size_t callback_count;
    ls_verbose verbose;
    FILE *output; /* of progress; NULL: standard output */
    ls_strategy strategy;
    int lanes;                /* 0: chosen from the size of the work */
    const char *log;          /* a file of JSON lines */
    bool log_hash;            /* the hash of parameters and optimizer state with every step */
    const volatile int *stop; /* becomes not 0: training ends after the current step */
    ls_history **history;     /* out; the caller destroys it */
    /* Checkpoints; see below. */
    const char *checkpoint;   /* a folder to save them in; NULL: none are saved */
    const char *save_every;   /* "500" or "500steps", "2epochs", "90s", "10min", "2h"; NULL: every epoch */
    int keep;                 /* so many of the newest stay, and the best; 0: 3, LS_KEEP_ALL: all */
    const char *monitor;      /* the result that says which is best; NULL: "val_loss", without validation "loss" */
    const char *resume;       /* go on from this one, or from the newest of this folder; "auto": of `checkpoint` */
    bool allow_other_bits;    /* resume also where lanes or the bit class are others: the weights will be, too */
    const volatile int *save; /* becomes another number: saved after the current step, and training goes on */
    /* Begin behind the last whole step of this model's last ls_fit, which ended, was stopped or failed: in the middle
     * of an epoch with the same data, seed and batch size. Devices and strategy may be others, and the bits are those
     * of a fit that was not disturbed. So training goes on without a device that failed. */
    bool go_on;
    /* A file that ui.perfetto.dev and chrome://tracing show: what each worker of each device did when; of a cluster,
     * those of every process. Written at the end, whole or not at all, also when training is stopped or fails. It has
     * room for some 260,000 events; steps behind those are left out, and that is said. */
    const char *trace;
    int64_t trace_first, trace_last; /* steps to show, counted from 1 over all epochs; 0: from the first, to the last */
    /* A small file that shows what this fit is at, for `lockstep top`: the workers of a cluster, epoch, step, who is
     * waited for. Written anew each second by a thread, and removed at the end. */
    const char *status;
    /* In a cluster: in every so manieth step one lane, chosen at random, is computed by two workers. Where they differ,
     * LS_ERR_PEER names both. 0: never. */
    int64_t audit;
    /* Of asynchronous parameter servers. Which gradients each server applied, in its order, from which versions: server
     * 0 writes this file, server 1 FILE.1, ... `lockstep replay FILE` trains the same again, bit for bit. */
    const char *record;
    const char *record_own; /* a JSON object that is kept with it: what the program needs to make this job again */
    /* A folder where servers keep what they need to come back when they are lost; every one must find its own again.
     * NULL: that of LOCKSTEP_JOURNAL (lockstep launch sets it); "" or none: the job ends when a server is lost. */
    const char *journal;
} ls_fit_options;

/* ls_fit(model, data, .epochs = 10, .batch_size = 4096, .validation = test). Features of uint8 become float32, and
 * images among them, which have 3 axes or more with the batch axis, are divided by 255, unless the model begins with a
 * Rescaling or takes uint8; the log says which. Stops with LS_ERR_NOT_FINITE before an update that is
 * not finite (see ls_terminate_on_nan). Whatever makes it fail, the weights are then those of the last good step. A log
 * that cannot be written any more is a warning, not a failure. */
#define ls_fit(...)                                                                                                    \
    ls_fit_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                                          \
                (ls_fit_options){ .ls_first = 0, LS_AFTER_2_(__VA_ARGS__, ) })
LS_API ls_status ls_fit_with(ls_model *model, ls_dataset *data, ls_fit_options options);

/* The same on arrays in memory, which are borrowed for the call: ls_fit_arrays(model, x, y, .epochs = 10) */
#define ls_fit_arrays(...)                                                                                             \
    ls_fit_arrays_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ), LS_ARGUMENT_3_(__VA_ARGS__, ),    \
                       (ls_fit_options){ .ls_first = 0, LS_AFTER_3_(__VA_ARGS__, ) })
LS_API ls_status ls_fit_arrays_with(ls_model *model, ls_array x, ls_array y, ls_fit_options options);

/* ---- Data that only one worker of a cluster can read ---- */

/* That worker gives its elements to all, with the bits they would have. A builder like those of lockstep/data.h, called
 * on all workers, with NULL for `data` on those that do not have it; shuffle, batch and map `data` before it. Every
 * pass is made by all together, so no worker can come later. When worker `rank` is lost, what iterates fails: ls_fit
 * saves a checkpoint and ends. In a context that is in no cluster: the data itself. ctx must outlive it. */
LS_API ls_dataset *ls_from_worker(ls_context *ctx, int rank, ls_dataset *data);

/* ---- Checkpoints ---- */

#define LS_KEEP_ALL (-1)

/* clang-format off */
/* With .checkpoint = "DIR", ls_fit saves everything that decides the steps to come, every .save_every and at the end:
 *
 *     DIR/step-00000500/model.safetensors, optimizer.safetensors, state.json
 *     DIR/last, DIR/best                     links to the newest one, and to that with the best .monitor
 *
 * A fit with .resume = "auto" and the same model, data and options goes on as if it had not ended: also inside an
 * epoch, on other devices and with another strategy, bit for bit. What differs is refused by name; devices, strategy,
 * epochs, max_steps, verbose and log may differ. Where there is no checkpoint yet, training begins, and the log says
 * so.
 *
 * Training waits for a copy of its state (ls_times.save); a thread writes it. A checkpoint appears when it is whole and
 * on the disk, and only then are older ones removed. On a full disk the oldest is removed first, except the best and
 * the only one. A checkpoint that cannot be written is a warning, and training goes on. When the last one cannot be
 * written, ls_fit returns LS_ERR_UNSAVED: the model has its trained weights, and .history is set. Callbacks that have a
 * memory take part through .save and .load; those are called after on_train_begin. */
/* clang-format on */

/* The checkpoint of this moment, in DIR/step-...; returns when it is on the disk. For loops by hand, and for callbacks.
 * Older ones stay. */
LS_API ls_status ls_checkpoint_save(ls_model *model, const char *dir);

typedef struct ls_restore_options {
    int ls_first;
    bool allow_other_bits;
} ls_restore_options;

/* ls_checkpoint_restore(model, from): weights, optimizer state, counters of steps and random numbers, from that
 * checkpoint or from the newest whole one of that folder. The model is compiled as it was then. A failure changes
 * nothing. */
#define ls_checkpoint_restore(...)                                                                                     \
    ls_checkpoint_restore_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                           \
                               (ls_restore_options){ .ls_first = 0, LS_AFTER_2_(__VA_ARGS__, ) })
LS_API ls_status ls_checkpoint_restore_with(ls_model *model, const char *from, ls_restore_options options);

/* What ls_fit with the same options would need of each device's memory, whether it fits (fits may be NULL), and the
 * largest batch that does if not: a text to free(). Nothing is trained.
 *     ls_explain_fit(model, data, &fits, &text, .batch_size = 4096) */
#define ls_explain_fit(...)                                                                                            \
    ls_explain_fit_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                                  \
                        (ls_fit_options){ .ls_first = 0, LS_AFTER_4_(__VA_ARGS__, ) }, LS_ARGUMENT_3_(__VA_ARGS__, ),  \
                        LS_ARGUMENT_4_(__VA_ARGS__, ))
LS_API ls_status ls_explain_fit_with(ls_model *model, ls_dataset *data, ls_fit_options options, bool *fits, char **out);

/* ---- Replay ---- */

/* What was replayed. */
typedef struct ls_replayed {
    int servers, workers;        /* that the record is of */
    int64_t gradients, versions; /* computed; made and compared, of all servers together */
    int64_t most_kept;           /* versions of parts that had to be kept at one time */
    bool torn;                   /* a last record was cut short: what it was of is not replayed */
    bool stopped;                /* by options.stop, before the end */
} ls_replayed;

/* ls_replay(model, data, "run.record", &replayed, .batch_size = 32): what asynchronous parameter servers trained, made
 * again by this process from the record of it. Model, data and options are those of the ls_fit that was
 * recorded, but for the strategy, which is any that runs in one process: devices change no bit. Whether they are is
 * compared, and what differs is told. The SHA-256 of every version of every server's part is compared with the recorded
 * one; the first that differs is named with LS_ERR_DATA. At the end the model has the weights of that training; after a
 * failure, those it had before. Callbacks, logs and checkpoints of the options are not looked at. replayed may be
 * NULL. */
#define ls_replay(...)                                                                                                 \
    ls_replay_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ), LS_ARGUMENT_3_(__VA_ARGS__, ),        \
                   (ls_fit_options){ .ls_first = 0, LS_AFTER_4_(__VA_ARGS__, ) }, LS_ARGUMENT_4_(__VA_ARGS__, ))
LS_API ls_status ls_replay_with(ls_model *model, ls_dataset *data, const char *record, ls_fit_options options,
                                ls_replayed *out);

/* What the program that wrote the record kept in it (record_own of ls_fit), as JSON; free() it. LS_ERR_NOT_FOUND where
 * it kept nothing. */
LS_API ls_status ls_record_own(const char *record, char **out);

/* ---- Evaluate and predict ---- */

#define LS_MAX_RESULTS (LS_MAX_METRICS + LS_MAX_OUTPUTS + 1)
typedef struct ls_results {
    size_t count; /* "loss", of several outputs that of each, then metrics; names last until the next ls_compile */
    const char *names[LS_MAX_RESULTS];
    double values[LS_MAX_RESULTS];
    int64_t samples; /* each counted once */
} ls_results;

typedef struct ls_evaluate_options {
    int ls_first;
    ls_results *out;
    int64_t batch_size; /* 0: 32. A batched dataset has its own; another is an error */
    ls_verbose verbose; /* 0: silent here */
    FILE *output;
    ls_strategy strategy;
    int lanes;
    const ls_callback *callbacks; /* on_test_begin to on_test_end */
    size_t callback_count;
} ls_evaluate_options;

/* ls_evaluate(model, test, &results, .batch_size = 1000) */
#define ls_evaluate(model, data, ...) ls_evaluate_with(model, data, (ls_evaluate_options){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_status ls_evaluate_with(ls_model *model, ls_dataset *data, ls_evaluate_options options);

#define ls_evaluate_arrays(...)                                                                                        \
    ls_evaluate_arrays_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                              \
                            LS_ARGUMENT_3_(__VA_ARGS__, ),                                                             \
                            (ls_evaluate_options){ .ls_first = 0, LS_AFTER_3_(__VA_ARGS__, ) })
LS_API ls_status ls_evaluate_arrays_with(ls_model *model, ls_array x, ls_array y, ls_evaluate_options options);

typedef struct ls_predict_options {
    int ls_first;
    int64_t batch_size; /* 0: 32. A batched dataset has its own; another is an error */
    ls_verbose verbose; /* 0: silent here */
    FILE *output;
    ls_strategy strategy;
    int lanes;
    int index;                    /* which of the model's outputs */
    const ls_callback *callbacks; /* on_predict_begin to on_predict_end */
    size_t callback_count;
} ls_predict_options;

/* ls_predict(model, test, &predictions, .batch_size = 1000): an output of the model for every sample, in order; free()
 * predictions.data. The model need not be compiled. */
#define ls_predict(...)                                                                                                \
    ls_predict_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                                      \
                    (ls_predict_options){ .ls_first = 0, LS_AFTER_3_(__VA_ARGS__, ) }, LS_ARGUMENT_3_(__VA_ARGS__, ))
LS_API ls_status ls_predict_with(ls_model *model, ls_dataset *data, ls_predict_options options, ls_array *out);
#define ls_predict_array(...)                                                                                          \
    ls_predict_array_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                                \
                          (ls_predict_options){ .ls_first = 0, LS_AFTER_3_(__VA_ARGS__, ) },                           \
                          LS_ARGUMENT_3_(__VA_ARGS__, ))
LS_API ls_status ls_predict_array_with(ls_model *model, ls_array x, ls_predict_options options, ls_array *out);

/* ---- One step by hand ---- */

typedef struct ls_batch_options {
    int ls_first;
    ls_results *out;         /* of this batch, before its update */
    ls_array sample_weights; /* one a sample; left out: none */
    const double *class_weights;
    size_t class_count;
    const ls_array *inputs; /* several features and labels: then x and y are (ls_array){ 0 } */
    int input_count;
    const ls_array *targets;
    int target_count;
    ls_strategy strategy;
    int lanes;
} ls_batch_options;

/* ls_train_on_batch(model, x, y, &results): one training step on all of these samples, as ls_fit makes it. */
#define ls_train_on_batch(...)                                                                                         \
    ls_train_on_batch_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                               \
                           LS_ARGUMENT_3_(__VA_ARGS__, ),                                                              \
                           (ls_batch_options){ .ls_first = 0, LS_AFTER_3_(__VA_ARGS__, ) })
LS_API ls_status ls_train_on_batch_with(ls_model *model, ls_array x, ls_array y, ls_batch_options options);

/* ---- Loops by hand ---- */

/* clang-format off */
/* A step is a C function of tensors, written for the whole batch: how many devices share the work shows nowhere. It is
 * traced, as a tf.function is: called once for each kind of data (types, and shapes but for the number of samples);
 * what it made is kept, and run on every batch.
 *     static void train_step(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
 *     {
 *         trainee *t = user;                                      inputs: images, labels
 *         ls_tensor *predictions = ls_model_apply(t->cnn, inputs[0], true);
 *         ls_tensor *losses = ls_loss_per_sample(ls_sparse_categorical_crossentropy(), inputs[1], predictions);
 *         ls_tensor *loss = ls_average_loss(losses, GLOBAL_BATCH_SIZE);
 *         ls_minimize(ls_adam(), loss, NULL);                     or ls_gradients, then ls_apply_gradients
 *         ls_metric_state_update(&t->accuracy, inputs[1], predictions, NULL);
 *         outputs[0] = ls_strategy_reduce(LS_REDUCE_SUM, loss, LS_NO_AXIS);
 *     }
 *     ...
 *     ls_loop_step_create(ls_model_graph(cnn), train_step, &t, 1, &step);
 *     for (int epoch = 0; epoch < EPOCHS; epoch++)
 *         for (;;) {
 *             LS_CHECK(ls_distributed_next(data, &batch));
 *             if (!batch)
 *                 break;
 *             LS_CHECK(ls_strategy_run(step, batch, &loss));
 *             LS_CHECK(ls_read_scalar(loss, &value));
 *         }
 * All that the function writes is part of the step and happens together at its end: variables, moving averages,
 * metrics. A step that fails changes nothing. Results do not depend on the devices, and are those of ls_fit, bit for
 * bit, where the work is the same. */
/* clang-format on */
typedef void (*ls_loop_step_function)(ls_tensor *const *inputs, ls_tensor **outputs, void *user);
typedef struct ls_loop_step ls_loop_step;

/* For a graph (of a model: ls_model_graph); `outputs` is how many tensors the function gives, per-sample or whole; none
 * is fine, too. The step belongs to the scope that is open now, and ends with it and with its graph. Traced for a
 * second kind of data, the function must not make variables again: optimizers then need a name, and metrics and
 * variables are made before the step. */
LS_API ls_status ls_loop_step_create(ls_graph *graph, ls_loop_step_function function, void *user, size_t outputs,
                                     ls_loop_step **out);
LS_API void ls_loop_step_destroy(ls_loop_step *step);

/* One step on a batch, on the devices of the graph's strategy. Components become the function's inputs: those with axes
 * have the batch axis, scalars are whole (a learning rate of a schedule, say, behind the batch's own components, for
 * ls_apply_gradients). outputs (may be NULL): the tensors that the function gave, with their values
 * of this run. */
LS_API ls_status ls_strategy_run(ls_loop_step *step, const ls_element *batch, ls_tensor **outputs);

/* What tf.distribute's reduce gives, for use inside a step, or outside in an LS_SCOPE. Of a per-sample tensor: the sum
 * or mean of the samples. A whole tensor has one value everywhere: it stays as it is. An axis is reduced, too. */
#define LS_NO_AXIS (-LS_MAX_RANK - 1)
LS_API ls_tensor *ls_strategy_reduce(ls_reduction reduction, ls_tensor *value, int axis);

/* A dataset to be iterated by hand, in passes: each pass has its own order where the data is shuffled. Its batches are
 * global ones: it must be batched (ls_batch). `dataset` stays the caller's. */
typedef struct ls_distributed ls_distributed;
LS_API ls_status ls_distribute_dataset(ls_dataset *dataset, ls_distributed **out);
/* The next batch, valid until the next call. NULL: the pass has ended, and the next call begins another one. */
LS_API ls_status ls_distributed_next(ls_distributed *data, const ls_element **out);
LS_API void ls_distributed_destroy(ls_distributed *data);

/* What each replica has, for looking at; replicas are counted from 0 (ls_strategy_replicas). Views, no copies: of a
 * batch, the samples that the replica's lanes would compute in this step; of an output of the last run, its values for
 * those samples, or the whole value, which is the same everywhere. With fewer lanes than replicas some have none. */
LS_API ls_status ls_replica_element(ls_loop_step *step, const ls_element *batch, int replica, ls_element *out);
LS_API ls_status ls_replica_value(ls_loop_step *step, size_t output, int replica, ls_array *out);
/* As TensorFlow prints per-replica values: "PerReplica:{\n  0: tf.Tensor(0.5, shape=(), dtype=float32),\n  1: ...}";
 * free() it. */
LS_API ls_status ls_format_replicas(ls_loop_step *step, size_t output, char **out);

/* ---- State ---- */

/* SHA-256 of parameters and optimizer state: bytes of the variables in creation order, trainable then not, of the
 * optimizer's slots in creation order (see ls_apply_gradients), and last its step, an i64; little-endian, without
 * padding. */
LS_API ls_status ls_model_state_sha256(ls_model *model, char hex[65]);

/* Training steps since the model was compiled: batches. */
LS_API ls_status ls_model_steps(ls_model *model, int64_t *out);

/* Where the time of the last fit went, in seconds. */
typedef struct ls_times {
    double data;        /* waiting for the next batch */
    double compute;     /* steps, of which */
    double join;        /* is for joins, checks and updates */
    double other;       /* validation, progress, logs, callbacks, and: */
    double save;        /* copies for checkpoints: as long as training waited for them */
    double flush;       /* and at its end, until the last one was written; this is in none of the others */
    double moved_bytes; /* not a time: what joins moved between devices */
} ls_times;
LS_API ls_times ls_model_times(const ls_model *model);

/* The same for each device that the last fit used, of its average worker; busy, data, joins, idle and other make up
 * the fit's time. */
typedef struct ls_device_times {
    char name[80]; /* "/job:localhost/replica:0/task:0/device:CPU:0" */
    int stage;     /* of a strategy that cuts the model, counted from 0; -1: of none */
    double busy;   /* computing */
    double lanes;  /* of it: tasks of lanes. idle / (lanes + idle) is the bubble of a pipeline's stage */
    double data;   /* waiting for the next batch */
    double joins;  /* joins, checks and updates, with waiting for other devices there */
    double idle;   /* nothing to do while other lanes were under way */
    double copies; /* of busy and joins: copying from and to other devices */
    double other;  /* between steps: validation, logs, callbacks, and values that one worker computes for all */
} ls_device_times;
LS_API ls_status ls_model_device_times(const ls_model *model, ls_device_times **out,
                                       size_t *count); /* free() the list */

/* As text: a line a device, and one sentence where more devices did not help ("2 devices are slower than 1 for this
 * model: joins 61 %"), judged by what was measured in this fit. free() it. */
LS_API ls_status ls_explain_times(const ls_model *model, char **out);

#ifdef __cplusplus
}
#endif
#endif
