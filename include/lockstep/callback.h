/* lockstep/callback.h: functions that ls_fit, ls_evaluate and ls_predict call, the user's and
 * built-in ones. */
#ifndef LOCKSTEP_CALLBACK_H
#define LOCKSTEP_CALLBACK_H

#include "lockstep/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

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
 * evaluation_loss_vs_iterations, ...; dense/kernel/histogram and dense/kernel/gradient/histogram.
 * ls_tensorboard("logs/run-1", .update_freq = 1, .histogram_freq = 1) */
typedef struct ls_tensorboard_options {
    int ls_first;
    const char *log_dir; /* default "logs"; created if missing */
    int64_t update_freq; /* N: every N steps too (default 0: only at the end of epochs) */
    /* N: in every Nth epoch, from the first, histograms of the weights at its end and of the gradients
     * of its first step, which are computed once more for it (default 0: never). Asynchronous
     * parameter servers do not have them. */
    int64_t histogram_freq;
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

#ifndef __cplusplus /* cplusplus.h has them as functions */
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
#endif

#ifdef __cplusplus
}
#endif
#endif
