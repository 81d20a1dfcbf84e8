/* lockstep/train.h: compile, fit, evaluate and predict, as in Keras. Includes callback.h and
 * loop.h.
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

/* ---- Fit ---- */

typedef struct ls_callback ls_callback; /* callback.h */
typedef struct ls_history ls_history;   /* below */

typedef enum ls_verbose {
    LS_VERBOSE_AUTO = 0, /* progress bar on a terminal, otherwise a line per epoch */
    LS_VERBOSE_SILENT,
    LS_VERBOSE_BAR,
    LS_VERBOSE_LINES,
} ls_verbose;

/* A timeline of each thread of each device, in every process of a cluster, for ui.perfetto.dev or
 * chrome://tracing. Written completely or not at all at the end, also if training is stopped or
 * fails. Holds some 260,000 events; later steps are omitted, with a warning. */
typedef struct ls_trace_options {
    const char *path;              /* file to write (default none) */
    int64_t first_step, last_step; /* counted from 1 over all epochs (default 0: first, last) */
} ls_trace_options;

/* A record of the gradients that each asynchronous parameter server applied, in order, with their
 * versions. Server 0 writes FILE, server 1 FILE.1, ... `lockstep replay FILE` and ls_replay repeat
 * the training bit for bit. */
typedef struct ls_record_options {
    const char *path; /* file to write (default none) */
    const char *own;  /* JSON object to store: what the program needs to set up this job again */
} ls_record_options;

/* Asynchronous parameter servers. */
typedef struct ls_async_options {
    /* Folder where servers keep what they need to restart; each must find its own files again
     * (default: LOCKSTEP_JOURNAL, which lockstep launch sets). "", or none set: the job ends when
     * a server is lost. */
    const char *journal;
} ls_async_options;

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
    /* Folder for checkpoints (default none); see Checkpoints below. */
    const char *checkpoint;
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
    bool continue_last;
    /* Small file for `lockstep top` with live progress: workers, epoch, step, and
     * which worker holds up the others (default none). A thread rewrites it every
     * second; it is removed at the end. */
    const char *status;
    /* In a cluster: every N steps a second worker computes one randomly chosen lane
     * too. If the results differ, training ends with LS_ERR_PEER, which names both
     * workers (default 0: never). */
    int64_t audit;
    bool profile;             /* measures the time of ops for ls_explain_profile (default false) */
    ls_trace_options trace;   /* a timeline: .trace.path = "trace.json" */
    ls_record_options record; /* a record for ls_replay: .record.path = "run.record" */
    ls_async_options async;   /* how servers restart: .async.journal = "DIR" */
} ls_fit_options;

/* Trains the model: ls_fit(model, data, .epochs = 10, .batch_size = 4096). uint8 features become
 * float32; images among them (3 axes or more with the batch axis) are divided by 255, unless the
 * model begins with a Rescaling or Normalization or takes uint8; the log records which. Returns
 * LS_ERR_NOT_FINITE before an update that is not finite (see ls_terminate_on_nan). After any
 * failure the weights are those of the last good step. If the log can no longer be written, a
 * warning is printed. */
#define ls_fit(...)                                                                                                    \
    ls_fit_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                                          \
                (ls_fit_options){ .ls_first = 0, LS_AFTER_2_(__VA_ARGS__, ) })
LS_API ls_status ls_fit_with(ls_model *model, ls_dataset *data, ls_fit_options options);

/* Trains on arrays in memory, which the caller keeps: ls_fit_arrays(model, x, y, .epochs = 10) */
#define ls_fit_arrays(...)                                                                                             \
    ls_fit_arrays_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ), LS_ARGUMENT_3_(__VA_ARGS__, ),    \
                       (ls_fit_options){ .ls_first = 0, LS_AFTER_3_(__VA_ARGS__, ) })
LS_API ls_status ls_fit_arrays_with(ls_model *model, ls_array x, ls_array y, ls_fit_options options);

/* Describes the memory that ls_fit with these options would need on each device, without
 * training. Sets *fits (may be NULL); if it does not fit, the text has the largest batch that
 * does. The caller frees the text.
 *     ls_explain_fit(model, data, &fits, &text, .batch_size = 4096) */
#define ls_explain_fit(...)                                                                                            \
    ls_explain_fit_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                                  \
                        (ls_fit_options){ .ls_first = 0, LS_AFTER_4_(__VA_ARGS__, ) }, LS_ARGUMENT_3_(__VA_ARGS__, ),  \
                        LS_ARGUMENT_4_(__VA_ARGS__, ))
LS_API ls_status ls_explain_fit_with(ls_model *model, ls_dataset *data, ls_fit_options options, bool *fits, char **out);

/* ---- History: results by name and epoch, from .history of ls_fit ---- */

/* Return the number of epochs, the number of results of an epoch, and their names ("loss",
 * "val_loss", ...; "" after the last), which the history owns. */
LS_API size_t ls_history_epochs(const ls_history *history);
LS_API size_t ls_history_count(const ls_history *history);
LS_API const char *ls_history_name(const ls_history *history, size_t index);
/* Returns a result of an epoch, counted from 0. */
LS_API ls_status ls_history_value(const ls_history *history, const char *name, size_t epoch, double *out);
/* Frees a history; the caller of ls_fit does so. NULL is allowed. */
LS_API void ls_history_destroy(ls_history *history);

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
    /* Output: the sums of the LS_METRIC_CONFUSION among the metrics, num_classes^2 numbers, one row
     * for each target (default NULL: none). confusion_count: the number of numbers. */
    double *confusion;
    size_t confusion_count;
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

/* ---- Predictions while other threads work ---- */

typedef struct ls_predictor ls_predictor;

typedef struct ls_share_options {
    int ls_first;
    bool uint8; /* the inputs are uint8 images, as ls_fit takes them (default false) */
} ls_share_options;

/* Makes a predictor over the weights of a model: ls_model_share(model, &predictor). It computes in
 * the thread that calls it, on the CPU, with the bits of ls_predict. Give each thread its own
 * predictor: all share one copy of the weights, which the model copies only when it writes while
 * they are in use. The caller destroys it, before or after the model. */
#define ls_model_share(...)                                                                                            \
    ls_model_share_with(LS_ARGUMENT_1_(__VA_ARGS__, ),                                                                 \
                        (ls_share_options){ .ls_first = 0, LS_AFTER_2_(__VA_ARGS__, ) },                               \
                        LS_ARGUMENT_2_(__VA_ARGS__, ))
LS_API ls_status ls_model_share_with(ls_model *model, ls_share_options options, ls_predictor **out);

/* Computes all outputs of the model into arrays of the caller, for any number of samples:
 * ls_predictor_run(predictor, &x, 1, &y, 1). Uses the weights of the model's last finished step, or
 * the last ones before the model was destroyed. Allocates only at the first call with a batch size
 * (four sizes are kept) and after the weights changed. */
LS_API ls_status ls_predictor_run(ls_predictor *predictor, const ls_array *inputs, size_t input_count,
                                  const ls_array *outputs, size_t output_count);
/* NULL is allowed. */
LS_API void ls_predictor_destroy(ls_predictor *predictor);

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

/* ---- Data that only one worker of a cluster can read ---- */

/* Returns a dataset whose elements worker `rank` sends to all, with the same bits. All workers
 * call this builder; those without the data pass NULL. Shuffle, batch and map `data` before it.
 * All workers iterate together, so no worker can join later. If worker `rank` is lost,
 * iteration fails, and ls_fit saves a checkpoint and ends. Without a cluster it returns `data`.
 * ctx must outlive the dataset. */
LS_API ls_dataset *ls_from_worker(ls_context *ctx, int rank, ls_dataset *data);

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

/* Returns the JSON object that the program stored in the record (.record.own of ls_fit). The
 * caller frees it. LS_ERR_NOT_FOUND: there is none. */
LS_API ls_status ls_record_own(const char *record, char **out);

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
/* Returns the times of the last fit; zeros before the first. */
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
/* Returns a table of the ops of the last fit with .profile in this process, those with the most
 * time first: seconds of all threads, share, calls, GFLOPS, op and kernel, and which of them
 * are slow reference kernels. "" without .profile. The caller frees the text. */
LS_API ls_status ls_explain_profile(const ls_model *model, char **out);

/* Return the learning rate of the next step, and set it for all later steps. Callbacks may use
 * them. A rate that comes from a schedule cannot be set. */
LS_API ls_status ls_learning_rate(ls_model *model, double *out);
LS_API ls_status ls_set_learning_rate(ls_model *model, double rate);

#ifdef __cplusplus
}
#endif

#include "lockstep/callback.h"
#include "lockstep/loop.h"

#endif
