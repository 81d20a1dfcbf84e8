/* lockstep/train.h: compile, fit, evaluate and predict, as in Keras.
 *
 * ls_fit is a loop over one traced step, made of calls that programs can use too:
 * ls_model_trace, ls_loss_value, ls_apply_gradients, ls_eval_rows. The batch size is that of the
 * whole batch, and results do not depend on the devices. */
#ifndef LOCKSTEP_TRAIN_H
#define LOCKSTEP_TRAIN_H

#include "lockstep/data.h"
#include "lockstep/nn.h"
#include "lockstep/strategy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Compiling ---- */

#define LS_MAX_OUTPUTS 8 /* maximum number of outputs of a model that is trained */

/* Loss and metrics of one of several outputs. The data then has a label for each output with a
 * loss. Results are named as in Keras: "loss" (the weighted sum), "<output>_loss" (without its
 * weight) and "<output>_<metric>". */
typedef struct ls_output {
    /* none: the output is not trained, and the data has no labels for it */
    ls_loss loss;
    double weight;           /* weight of its loss in the total (default 1; LS_ZERO: 0) */
    ls_metrics_list metrics; /* metrics of this output (default none) */
} ls_output;

typedef struct ls_compile_options {
    int ls_first;
    ls_optimizer optimizer;  /* none: evaluation only */
    ls_loss loss;            /* loss of each output */
    ls_metrics_list metrics; /* metrics of each output (default none) */
    /* One for each of the model's outputs, in order, instead of loss and metrics. */
    const ls_output *outputs;
    size_t output_count;
} ls_compile_options;

/* Sets optimizer, loss and metrics: ls_compile(model, .optimizer = ls_adam(), .loss =
 * ls_sparse_categorical_crossentropy(), .metrics = ls_metrics(...)). Makes the optimizer's slots
 * and copies names. Calling it again restarts the optimizer. Do not call it inside LS_SCOPE of the
 * model's graph. With several outputs:
 * .outputs = ls_outputs({ .loss = ls_mean_squared_error(), .weight = 0.3 }, { .loss = ... }). */
#define ls_outputs(...)                                                                                                \
    (const ls_output[]){ __VA_ARGS__ }, .output_count = sizeof((const ls_output[]){ __VA_ARGS__ }) / sizeof(ls_output)
#define ls_compile(model, ...) ls_compile_with(model, (ls_compile_options){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_status ls_compile_with(ls_model *model, ls_compile_options options);

/* ---- Built-in callbacks ---- */

/* Names, options, defaults and meanings are Keras's; the constructors are below ls_callback. Specs
 * are plain structs and need no freeing. ls_fit makes, frees and saves the state of callbacks. A
 * monitored name that training does not produce is an error before the first step. NaN is never an
 * improvement. If a file can no longer be written (a full disk), a warning is printed and training
 * continues. Messages go to the output of progress. */

typedef enum ls_callback_kind {
    LS_CALLBACK_FUNCTIONS = 0, /* functions of the user */
    LS_CALLBACK_EARLY_STOPPING,
    LS_CALLBACK_CSV_LOGGER,
    LS_CALLBACK_TENSORBOARD,
    LS_CALLBACK_MODEL_CHECKPOINT,
    LS_CALLBACK_REDUCE_LR_ON_PLATEAU,
    LS_CALLBACK_LEARNING_RATE_SCHEDULER,
    LS_CALLBACK_TERMINATE_ON_NAN,
} ls_callback_kind;

typedef enum ls_monitor_mode {
    LS_MODE_AUTO = 0, /* minimize losses and errors, maximize other metrics */
    LS_MODE_MIN,
    LS_MODE_MAX,
} ls_monitor_mode;

/* Stops training at the end of an epoch, but not of the first one, as in Keras, when `patience`
 * epochs have not improved: ls_early_stopping("val_accuracy", .patience = 3,
 * .restore_best_weights = true). */
typedef struct ls_early_stopping_options {
    int ls_first;
    const char *monitor; /* result to monitor (default "val_loss") */
    double min_delta;    /* smaller changes are not an improvement (default 0) */
    /* epochs without improvement before training stops (default 0) */
    int64_t patience;
    bool verbose;         /* reports that it stopped, and which epoch's weights it restores */
    ls_monitor_mode mode; /* whether smaller or larger is better (default LS_MODE_AUTO) */
    /* only improvements that beat this value reset the patience (default none; LS_ZERO: 0) */
    double baseline;
    /* Ends training with the weights of the best epoch, even if it was not stopped early; but
     * not if .stop ended it or it failed, because it may continue later. */
    bool restore_best_weights;
    int64_t start_from_epoch; /* ignores epochs before this one (default 0) */
} ls_early_stopping_options;

/* Writes a CSV file with Keras's bytes, a header and a line per epoch: "epoch" from 0, then all
 * names in alphabetical order, NA for values that an epoch does not have.
 * ls_csv_logger("log.csv") */
typedef struct ls_csv_logger_options {
    int ls_first;
    const char *path;      /* file to write */
    const char *separator; /* one character (default ",") */
    bool append;           /* appends to an existing file; writes a header only if it is empty */
} ls_csv_logger_options;

/* Writes event files for TensorBoard to log_dir/train and log_dir/validation, with Keras's tags:
 * epoch_loss, epoch_accuracy, epoch_learning_rate by epoch from 0; batch_loss, ... by step;
 * evaluation_loss_vs_iterations, ... ls_tensorboard("logs/run-1", .update_freq = 1) */
typedef struct ls_tensorboard_options {
    int ls_first;
    const char *log_dir; /* default "logs"; created if missing */
    int64_t update_freq; /* N: every N steps too (default 0: only at the end of epochs) */
} ls_tensorboard_options;

/* Saves the weights at the end of each epoch, or of each that is the best so far:
 * ls_model_checkpoint("weights-{epoch:02d}-{val_loss:.3f}.safetensors", .save_best_only = true).
 * The path may contain {epoch}, from 1, and every result, formatted as in Python; {{ is a brace.
 * Creates missing folders. */
typedef struct ls_model_checkpoint_options {
    int ls_first;
    const char *path;     /* pattern of the file's name */
    const char *monitor;  /* result for save_best_only (default "val_loss") */
    bool verbose;         /* prints a line for each file (default false) */
    bool save_best_only;  /* saves only the best epochs so far (default false) */
    ls_monitor_mode mode; /* whether smaller or larger is better (default LS_MODE_AUTO) */
    /* N: every N steps, and the path may contain {batch}, from 1 (default 0: every epoch). */
    int64_t save_freq;
    /* saves only better results than this (default none; LS_ZERO: 0) */
    double initial_value_threshold;
} ls_model_checkpoint_options;

/* Multiplies the learning rate by `factor` when `patience` epochs have not improved:
 * ls_reduce_lr_on_plateau(.factor = 0.5, .patience = 3). From its position in the list on, the
 * logs of an epoch also have "learning_rate". */
typedef struct ls_reduce_lr_on_plateau_options {
    int ls_first;
    const char *monitor;  /* result to monitor (default "val_loss") */
    double factor;        /* default 0.1; LS_ZERO: 0 */
    int64_t patience;     /* epochs without improvement before a reduction (default 10) */
    bool verbose;         /* prints a line for each reduction (default false) */
    ls_monitor_mode mode; /* whether smaller or larger is better (default LS_MODE_AUTO) */
    double min_delta;     /* smaller changes are not an improvement (default 0.0001; LS_ZERO: 0) */
    int64_t cooldown;     /* epochs after a reduction that do not count (default 0) */
    double min_lr;        /* lower bound of the learning rate (default 0) */
} ls_reduce_lr_on_plateau_options;

/* Sets the learning rate of each epoch at its beginning. The function gets the epoch, from 0,
 * and the current rate: ls_learning_rate_scheduler(halve). (A schedule by steps belongs to the
 * optimizer: ls_adam(.schedule = ls_cosine_decay(...)).) */
typedef struct ls_learning_rate_scheduler_options {
    int ls_first;
    double (*schedule)(void *user, int64_t epoch, double rate);
    void *user;   /* passed to `schedule` */
    bool verbose; /* prints the rate of each epoch (default false) */
} ls_learning_rate_scheduler_options;

/* Ends training with LS_OK and a warning when the loss or update of a step is not
 * finite; without it ls_fit returns LS_ERR_NOT_FINITE. In both cases the weights are
 * those of the last good step. */
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

/* Results passed to a callback: "loss", then metrics, then "val_loss", ... In on_test_batch_end
 * and on_test_end the names have no "val_". The library owns it; it is valid during the call. */
typedef struct ls_logs {
    size_t count;
    const char *const *names;
    const double *values;
    int64_t epoch;   /* from 0 */
    int64_t step;    /* completed steps of all epochs */
    int64_t samples; /* number of samples so far in this epoch or evaluation */
    /* Batch index in the epoch, evaluation or prediction, from 0; only in calls
     * with "batch" in their name. */
    int64_t batch;
    /* on_epoch_end: the epoch ended before its last step; it does not
     * count and may continue later */
    bool cut;
    bool interrupted; /* on_epoch_end, on_train_end: .stop of ls_fit ended training */
} ls_logs;

/* clang-format off */
/* Callback events, in Keras's order:
 *     on_train_begin
 *         on_epoch_begin
 *             on_batch_begin, on_batch_end                 a training step
 *             on_test_begin                                validation, ls_evaluate with .callbacks
 *                 on_test_batch_begin, on_test_batch_end
 *             on_test_end
 *         on_epoch_end
 *     on_train_end
 *     on_predict_begin                                     ls_predict with .callbacks
 *         on_predict_batch_begin, on_predict_batch_end
 *     on_predict_end
 *
 * Each may be NULL. Setting *stop ends training after the current step or epoch. Any status but
 * LS_OK ends ls_fit with that status; the message is that of the library call that failed
 * inside, or of ls_backend_fail. A callback may evaluate, query, save and load the model.
 * Compiling, training or destroying it, or closing its context, returns LS_ERR_STATE. */
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
    /* Save the callback's own state with checkpoints (`bytes` from malloc; the library
     * frees it), and restore it. */
    ls_status (*save)(void *user, void **bytes, size_t *count);
    ls_status (*load)(void *user, const void *bytes, size_t count);
    /* Not 0: a built-in callback, made by a constructor below; it has no functions of its own. */
    ls_callback_kind kind;
    ls_callback_spec of;
} ls_callback;

/* Lists callbacks, which are called in this order: ls_fit(model, data, .callbacks =
 * ls_callbacks(ls_early_stopping(.patience = 3), mine)). */
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

/* Return the learning rate of the next step, and set it for all later steps. Callbacks may use
 * them. A rate that comes from a schedule cannot be set. */
LS_API ls_status ls_learning_rate(ls_model *model, double *out);
LS_API ls_status ls_set_learning_rate(ls_model *model, double rate);

/* ---- History: results by name and epoch, from ls_fit's .history; the caller destroys it ---- */

typedef struct ls_history ls_history;
LS_API size_t ls_history_epochs(const ls_history *history);
LS_API size_t ls_history_count(const ls_history *history);
LS_API const char *ls_history_name(const ls_history *history, size_t index);
LS_API ls_status ls_history_value(const ls_history *history, const char *name, size_t epoch, double *out);
LS_API void ls_history_destroy(ls_history *history);

/* ---- Fit ---- */

typedef enum ls_verbose {
    LS_VERBOSE_AUTO = 0, /* progress bar on a terminal, otherwise a line per epoch */
    LS_VERBOSE_SILENT,
    LS_VERBOSE_BAR,
    LS_VERBOSE_LINES,
} ls_verbose;

typedef struct ls_fit_options {
    int ls_first;
    int64_t epochs; /* number of epochs (default 1) */
    /* Samples in the whole batch (default 32). Must be 0, or equal, if the dataset is batched. */
    int64_t batch_size;
    int64_t initial_epoch; /* first epoch, counted from 0 (default 0) */
    /* Steps per epoch (default: one pass over the data). Passes continue from epoch to epoch. */
    int64_t steps_per_epoch;
    int64_t max_steps; /* maximum number of steps in total (default 0: no limit) */
    /* evaluated after each epoch (default NULL: none); the caller keeps it */
    ls_dataset *validation;
    /* fraction of the samples, the last ones, to use for validation (default 0) */
    double validation_split;
    /* default: batch_size. Must be 0, or equal, if the dataset is batched */
    int64_t validation_batch_size;
    /* Keeps the order of samples (default: shuffles data in memory every epoch). */
    bool keep_order;
    uint64_t seed;                /* seed of the order of samples (default 0) */
    const double *class_weights;  /* weight of each class, by label (default NULL: none) */
    size_t class_count;           /* number of class_weights */
    const ls_callback *callbacks; /* set with ls_callbacks(...) (default none) */
    size_t callback_count;
    ls_verbose verbose;       /* progress output (default LS_VERBOSE_AUTO) */
    FILE *output;             /* where progress is printed (default standard output) */
    ls_strategy strategy;     /* distribution of work (default: mirrored) */
    int lanes;                /* number of lanes (default: chosen from the amount of work) */
    const char *log;          /* file for the log, in JSON lines (default none) */
    bool log_hash;            /* logs the hash of parameters and optimizer state for every step */
    const volatile int *stop; /* ends training after the current step when it becomes nonzero */
    ls_history **history;     /* output; the caller destroys it */
    /* Checkpoints; see below. */
    const char *checkpoint; /* folder for checkpoints (default none) */
    /* When to save: "500" or "500steps", "2epochs", "90s", "10min", "2h" (default: every epoch). */
    const char *save_every;
    /* number of newest checkpoints to keep, besides the best (default 3; LS_KEEP_ALL) */
    int keep;
    /* Result that decides which checkpoint is best (default "val_loss", or
     * "loss" without validation). */
    const char *monitor;
    /* Checkpoint to continue from, or folder with checkpoints; "auto":
     * the folder of .checkpoint. */
    const char *resume;
    /* Allows other lanes or another bit class when resuming; the weights will then differ. */
    bool allow_other_bits;
    /* saves after the current step when its value changes; training continues */
    const volatile int *save;
    /* Continues after the last completed step of this model's last ls_fit, which may have ended,
     * stopped or failed, also inside an epoch if data, seed and batch size are the same. Devices
     * and strategy may differ, and the bits are those of an uninterrupted fit: use it to
     * continue without a failed device. */
    bool go_on;
    /* File for a timeline of each thread of each device, in every process of a cluster, for
     * ui.perfetto.dev or chrome://tracing (default none). Written completely or not at all at
     * the end, also if training is stopped or fails. Holds some 260,000 events; later steps are
     * omitted, with a warning. */
    const char *trace;
    /* Steps to trace, counted from 1 over all epochs (default 0: the first, the last). */
    int64_t trace_first, trace_last;
    /* Small file for `lockstep top` with live progress: workers, epoch, step, and
     * which worker holds up the others (default none). A thread rewrites it every
     * second; it is removed at the end. */
    const char *status;
    /* In a cluster: every N steps a second worker computes one randomly chosen lane
     * too. If the results differ, training ends with LS_ERR_PEER, which names both
     * workers (default 0: never). */
    int64_t audit;
    /* Asynchronous parameter servers only: file for a record of the gradients that each server
     * applied, in order, with their versions (default none). Server 0 writes FILE, server 1
     * FILE.1, ... `lockstep replay FILE` repeats the training bit for bit. */
    const char *record;
    /* JSON object stored in the record: what the program needs to set up this job again. */
    const char *record_own;
    /* Folder where servers keep what they need to restart; each must find its own files
     * again (default: LOCKSTEP_JOURNAL, which lockstep launch sets). "", or none set: the
     * job ends when a server is lost. */
    const char *journal;
} ls_fit_options;

/* Trains the model: ls_fit(model, data, .epochs = 10, .batch_size = 4096). uint8 features become
 * float32; images among them (3 axes or more with the batch axis) are divided by 255, unless the
 * model begins with a Rescaling or takes uint8; the log records which. Returns LS_ERR_NOT_FINITE
 * before an update that is not finite (see ls_terminate_on_nan). After any failure the weights are
 * those of the last good step. If the log can no longer be written, a warning is printed. */
#define ls_fit(...)                                                                                                    \
    ls_fit_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                                          \
                (ls_fit_options){ .ls_first = 0, LS_AFTER_2_(__VA_ARGS__, ) })
LS_API ls_status ls_fit_with(ls_model *model, ls_dataset *data, ls_fit_options options);

/* Trains on arrays in memory, which the caller keeps: ls_fit_arrays(model, x, y, .epochs = 10) */
#define ls_fit_arrays(...)                                                                                             \
    ls_fit_arrays_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ), LS_ARGUMENT_3_(__VA_ARGS__, ),    \
                       (ls_fit_options){ .ls_first = 0, LS_AFTER_3_(__VA_ARGS__, ) })
LS_API ls_status ls_fit_arrays_with(ls_model *model, ls_array x, ls_array y, ls_fit_options options);

/* ---- Data that only one worker of a cluster can read ---- */

/* Returns a dataset whose elements worker `rank` sends to all, with the same bits. All workers
 * call this builder; those without the data pass NULL. Shuffle, batch and map `data` before it.
 * All workers iterate together, so no worker can join later. If worker `rank` is lost,
 * iteration fails, and ls_fit saves a checkpoint and ends. Without a cluster it returns `data`.
 * ctx must outlive the dataset. */
LS_API ls_dataset *ls_from_worker(ls_context *ctx, int rank, ls_dataset *data);

/* ---- Checkpoints ---- */

#define LS_KEEP_ALL (-1)

/* clang-format off */
/* With .checkpoint = "DIR", ls_fit saves everything that decides the following steps, every
 * .save_every and at the end:
 *
 *     DIR/step-00000500/model.safetensors, optimizer.safetensors, state.json
 *     DIR/last, DIR/best             links to the newest one, and to the one with the best .monitor
 *
 * A fit with .resume = "auto" and the same model, data and options continues as if it had not
 * ended: also inside an epoch, on other devices and with another strategy, bit for bit. Devices,
 * strategy, epochs, max_steps, verbose and log may differ; any other difference is an error that
 * names it. Without a checkpoint, training begins from the start, and the log records this.
 *
 * Training waits only for a copy of its state (ls_times.save); a thread writes it. A
 * checkpoint appears when it is complete and on disk; only then are older ones removed. On
 * a full disk the oldest is removed first, but never the best or the only one. If a
 * checkpoint cannot be written, a warning is printed and training continues. If the last
 * one cannot be written, ls_fit returns LS_ERR_UNSAVED: the model has its trained weights,
 * and .history is set. Callbacks save and restore their state with .save and .load, which
 * are called after on_train_begin. */
/* clang-format on */

/* Saves a checkpoint now, in DIR/step-..., for loops by hand and callbacks. Returns when it is
 * on disk. Keeps older ones. */
LS_API ls_status ls_checkpoint_save(ls_model *model, const char *dir);

typedef struct ls_restore_options {
    int ls_first;
    bool allow_other_bits; /* allows other lanes or another bit class (default false) */
} ls_restore_options;

/* Restores weights, optimizer state, and counters of steps and random numbers from a checkpoint,
 * or from the newest complete one in a folder: ls_checkpoint_restore(model, from). The model
 * must be compiled as it was then. A failure changes nothing. */
#define ls_checkpoint_restore(...)                                                                                     \
    ls_checkpoint_restore_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                           \
                               (ls_restore_options){ .ls_first = 0, LS_AFTER_2_(__VA_ARGS__, ) })
LS_API ls_status ls_checkpoint_restore_with(ls_model *model, const char *from, ls_restore_options options);

/* Describes the memory that ls_fit with these options would need on each device, without
 * training. Sets *fits (may be NULL); if it does not fit, the text has the largest batch that
 * does. The caller frees the text.
 *     ls_explain_fit(model, data, &fits, &text, .batch_size = 4096) */
#define ls_explain_fit(...)                                                                                            \
    ls_explain_fit_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                                  \
                        (ls_fit_options){ .ls_first = 0, LS_AFTER_4_(__VA_ARGS__, ) }, LS_ARGUMENT_3_(__VA_ARGS__, ),  \
                        LS_ARGUMENT_4_(__VA_ARGS__, ))
LS_API ls_status ls_explain_fit_with(ls_model *model, ls_dataset *data, ls_fit_options options, bool *fits, char **out);

/* ---- Replay ---- */

/* Result of a replay. */
typedef struct ls_replayed {
    int servers, workers; /* number of servers and workers in the record */
    /* gradients computed; versions made and compared, of all servers together */
    int64_t gradients, versions;
    int64_t most_kept; /* maximum number of versions of shards kept at one time */
    /* the record ends in an incomplete entry, which was not replayed */
    bool torn;
    bool stopped; /* options.stop ended the replay early */
} ls_replayed;

/* Repeats in this process what asynchronous parameter servers trained, from the record:
 * ls_replay(model, data, "run.record", &replayed, .batch_size = 32). Model, data and options must
 * be those of the recorded ls_fit, except the strategy; callbacks, logs and checkpoints are
 * ignored. Returns LS_ERR_DATA with the first version of a shard whose SHA-256 differs. The model
 * gets the weights of that training; a failure leaves it unchanged. replayed may be NULL. */
#define ls_replay(...)                                                                                                 \
    ls_replay_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ), LS_ARGUMENT_3_(__VA_ARGS__, ),        \
                   (ls_fit_options){ .ls_first = 0, LS_AFTER_4_(__VA_ARGS__, ) }, LS_ARGUMENT_4_(__VA_ARGS__, ))
LS_API ls_status ls_replay_with(ls_model *model, ls_dataset *data, const char *record, ls_fit_options options,
                                ls_replayed *out);

/* Returns the JSON object that the program stored in the record (record_own of ls_fit). The
 * caller frees it. LS_ERR_NOT_FOUND: there is none. */
LS_API ls_status ls_record_own(const char *record, char **out);

/* ---- Evaluate and predict ---- */

#define LS_MAX_RESULTS (LS_MAX_METRICS + LS_MAX_OUTPUTS + 1)
typedef struct ls_results {
    /* "loss", with several outputs the loss of each, then metrics. Names are valid
     * until the next ls_compile. */
    size_t count;
    const char *names[LS_MAX_RESULTS];
    double values[LS_MAX_RESULTS];
    int64_t samples; /* number of samples, each counted once */
} ls_results;

typedef struct ls_evaluate_options {
    int ls_first;
    ls_results *out;              /* output: results; names last until the next ls_compile */
    int64_t batch_size;           /* default 32. Must be 0, or equal, if the dataset is batched */
    ls_verbose verbose;           /* default: silent */
    FILE *output;                 /* where progress is printed (default standard output) */
    ls_strategy strategy;         /* distribution of work (default: mirrored) */
    int lanes;                    /* number of lanes (default: chosen from the amount of work) */
    const ls_callback *callbacks; /* on_test_begin to on_test_end */
    size_t callback_count;
} ls_evaluate_options;

/* Computes loss and metrics of a dataset: ls_evaluate(model, test, &results, .batch_size = 1000) */
#define ls_evaluate(model, data, ...) ls_evaluate_with(model, data, (ls_evaluate_options){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_status ls_evaluate_with(ls_model *model, ls_dataset *data, ls_evaluate_options options);

/* Evaluates on arrays in memory, which the caller keeps. */
#define ls_evaluate_arrays(...)                                                                                        \
    ls_evaluate_arrays_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                              \
                            LS_ARGUMENT_3_(__VA_ARGS__, ),                                                             \
                            (ls_evaluate_options){ .ls_first = 0, LS_AFTER_3_(__VA_ARGS__, ) })
LS_API ls_status ls_evaluate_arrays_with(ls_model *model, ls_array x, ls_array y, ls_evaluate_options options);

typedef struct ls_predict_options {
    int ls_first;
    int64_t batch_size;           /* default 32. Must be 0, or equal, if the dataset is batched */
    ls_verbose verbose;           /* default: silent */
    FILE *output;                 /* where progress is printed (default standard output) */
    ls_strategy strategy;         /* distribution of work (default: mirrored) */
    int lanes;                    /* number of lanes (default: chosen from the amount of work) */
    int index;                    /* which output of the model (default 0) */
    const ls_callback *callbacks; /* on_predict_begin to on_predict_end */
    size_t callback_count;
} ls_predict_options;

/* Computes an output of the model for every sample, in order: ls_predict(model,
 * test, &predictions, .batch_size = 1000). The caller frees predictions.data. The
 * model need not be compiled. */
#define ls_predict(...)                                                                                                \
    ls_predict_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                                      \
                    (ls_predict_options){ .ls_first = 0, LS_AFTER_3_(__VA_ARGS__, ) }, LS_ARGUMENT_3_(__VA_ARGS__, ))
LS_API ls_status ls_predict_with(ls_model *model, ls_dataset *data, ls_predict_options options, ls_array *out);
/* Predicts from an array in memory, which the caller keeps. */
#define ls_predict_array(...)                                                                                          \
    ls_predict_array_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                                \
                          (ls_predict_options){ .ls_first = 0, LS_AFTER_3_(__VA_ARGS__, ) },                           \
                          LS_ARGUMENT_3_(__VA_ARGS__, ))
LS_API ls_status ls_predict_array_with(ls_model *model, ls_array x, ls_predict_options options, ls_array *out);

/* ---- One step by hand ---- */

typedef struct ls_batch_options {
    int ls_first;
    ls_results *out;             /* results of this batch, before its update */
    ls_array sample_weights;     /* one per sample (default none) */
    const double *class_weights; /* weight of each class, by label (default none) */
    size_t class_count;
    const ls_array *inputs; /* several features and labels; x and y are then (ls_array){ 0 } */
    int input_count;
    const ls_array *targets;
    int target_count;
    ls_strategy strategy; /* distribution of work (default: mirrored) */
    int lanes;            /* number of lanes (default: chosen from the amount of work) */
} ls_batch_options;

/* Makes one training step on all of these samples, as ls_fit does:
 * ls_train_on_batch(model, x, y, &results). */
#define ls_train_on_batch(...)                                                                                         \
    ls_train_on_batch_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                               \
                           LS_ARGUMENT_3_(__VA_ARGS__, ),                                                              \
                           (ls_batch_options){ .ls_first = 0, LS_AFTER_3_(__VA_ARGS__, ) })
LS_API ls_status ls_train_on_batch_with(ls_model *model, ls_array x, ls_array y, ls_batch_options options);

/* ---- Loops by hand ---- */

/* clang-format off */
/* A step is a C function of tensors, written for the whole batch; it does not depend on the
 * number of devices. Like a tf.function it is traced: called once for each kind of data (types,
 * and shapes except the number of samples), and the resulting nodes are run on every batch.
 *     static void train_step(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
 *     {
 *         trainee *t = user;                                      inputs: images, labels
 *         ls_tensor *predictions = ls_model_apply(t->cnn, inputs[0], true);
 *         ls_tensor *losses = ls_loss_per_sample(ls_sparse_categorical_crossentropy(), inputs[1],
 *                                                predictions);
 *         ls_tensor *loss = ls_average_loss(losses, GLOBAL_BATCH_SIZE);
 *         ls_minimize(ls_adam(), loss, NULL);                     or ls_apply_gradients
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
 * All writes of the function (variables, moving averages, metrics) take effect together at the
 * end of the step. A step that fails changes nothing. Results do not depend on the devices, and
 * equal those of ls_fit bit for bit if the work is the same. */
/* clang-format on */
typedef void (*ls_loop_step_function)(ls_tensor *const *inputs, ls_tensor **outputs, void *user);
typedef struct ls_loop_step ls_loop_step;

/* Makes a step for a graph (of a model: ls_model_graph). `outputs` is the number of tensors that
 * the function returns, per-sample or whole, or 0. The step is freed with the current scope or
 * the graph. For a second kind of data the function must not make variables again: give
 * optimizers a name, and make metrics and variables before the step. */
LS_API ls_status ls_loop_step_create(ls_graph *graph, ls_loop_step_function function, void *user, size_t outputs,
                                     ls_loop_step **out);
/* Frees a step before its scope ends. */
LS_API void ls_loop_step_destroy(ls_loop_step *step);

/* Runs one step on a batch, on the devices of the graph's strategy. Components become the
 * function's inputs: those with axes have the batch axis; scalars are whole (for example a
 * learning rate for ls_apply_gradients, after the batch's own components). Sets outputs (may be
 * NULL) to the function's tensors with their values of this run; the graph owns them. */
LS_API ls_status ls_strategy_run(ls_loop_step *step, const ls_element *batch, ls_tensor **outputs);

/* Reduces like tf.distribute's reduce, inside a step or outside in an LS_SCOPE: a per-sample
 * tensor to the sum or mean of its samples; a whole tensor has one value everywhere and is
 * returned. `axis` is reduced too, unless it is LS_NO_AXIS. */
#define LS_NO_AXIS (-LS_MAX_RANK - 1)
LS_API ls_tensor *ls_strategy_reduce(ls_reduction reduction, ls_tensor *value, int axis);

/* Iterates a dataset by hand in passes; each pass has its own order if the data is shuffled.
 * The dataset must be batched (ls_batch), with the global batch size. The caller keeps
 * `dataset` and destroys *out. */
typedef struct ls_distributed ls_distributed;
LS_API ls_status ls_distribute_dataset(ls_dataset *dataset, ls_distributed **out);
/* Returns the next batch, valid until the next call. NULL: the pass has ended; the
 * next call begins another. */
LS_API ls_status ls_distributed_next(ls_distributed *data, const ls_element **out);
LS_API void ls_distributed_destroy(ls_distributed *data);

/* Return a replica's part, for inspection, as views without copies; replicas count from 0
 * (ls_strategy_replicas). For a batch: the samples of the replica's lanes. For an output of the
 * last run: its values for those samples, or the whole value, which is the same everywhere. With
 * fewer lanes than replicas some have no samples. */
LS_API ls_status ls_replica_element(ls_loop_step *step, const ls_element *batch, int replica, ls_element *out);
LS_API ls_status ls_replica_value(ls_loop_step *step, size_t output, int replica, ls_array *out);
/* Formats per-replica values like TensorFlow: "PerReplica:{\n  0: tf.Tensor(0.5, shape=(),
 * dtype=float32),\n  1: ...}". The caller frees the text. */
LS_API ls_status ls_format_replicas(ls_loop_step *step, size_t output, char **out);

/* ---- State ---- */

/* Returns the SHA-256 of parameters and optimizer state: the variables in creation order,
 * trainable first, then the optimizer's slots in creation order (see ls_apply_gradients), then
 * its step, an i64; little-endian, without padding. */
LS_API ls_status ls_model_state_sha256(ls_model *model, char hex[65]);

/* Returns the number of training steps (batches) since the model was compiled. */
LS_API ls_status ls_model_steps(ls_model *model, int64_t *out);

/* Time of the last fit in seconds, by activity. */
typedef struct ls_times {
    double data;        /* waiting for the next batch */
    double compute;     /* steps, including `join` */
    double join;        /* joins, checks and updates */
    double other;       /* validation, progress, logs and callbacks, including `save` */
    double save;        /* copies for checkpoints: time that training waited for them */
    double flush;       /* writing the last checkpoint at the end; not part of the other times */
    double moved_bytes; /* not a time: bytes that joins moved between devices */
} ls_times;
LS_API ls_times ls_model_times(const ls_model *model);

/* Time of each device that the last fit used, in seconds, for its average thread. busy, data,
 * joins, idle and other add up to the time of the fit. */
typedef struct ls_device_times {
    char name[80]; /* "/job:localhost/replica:0/task:0/device:CPU:0" */
    int stage;     /* stage of a strategy that divides the model, from 0; -1: none */
    double busy;   /* computing */
    /* part of `busy`: tasks of lanes. idle / (lanes + idle) is the bubble of a pipeline's stage */
    double lanes;
    double data;   /* waiting for the next batch */
    double joins;  /* joins, checks and updates, including waiting for other devices there */
    double idle;   /* nothing to do while other lanes were running */
    double copies; /* part of `busy` and `joins`: copying from and to other devices */
    /* between steps: validation, logs, callbacks, and values that one thread computes for all */
    double other;
} ls_device_times;
/* Returns the times of each device. The caller frees the list. */
LS_API ls_status ls_model_device_times(const ls_model *model, ls_device_times **out, size_t *count);

/* Returns a text with a line per device, and a sentence if more devices did not help ("2 devices
 * are slower than 1 for this model: joins 61 %"), as measured in this fit. The caller frees it. */
LS_API ls_status ls_explain_times(const ls_model *model, char **out);

#ifdef __cplusplus
}
#endif
#endif
