/* Callbacks. Each built-in one has its own file and a row in the table of callback.c; monitor.c
 * helps those that watch a value. */
#ifndef LS_TRAIN_CALLBACK_CALLBACK_H
#define LS_TRAIN_CALLBACK_CALLBACK_H

#include "base/append.h"
#include "base/text.h"
#include "train/job/job.h"

/* ---- The list of one call ---- */

typedef enum ls_moment {
    LS_TRAIN_BEGIN,
    LS_EPOCH_BEGIN,
    LS_BATCH_BEGIN,
    LS_BATCH_END,
    LS_EPOCH_END,
    LS_TRAIN_END,
    LS_TEST_BEGIN,
    LS_TEST_BATCH_BEGIN,
    LS_TEST_BATCH_END,
    LS_TEST_END,
    LS_PREDICT_BEGIN,
    LS_PREDICT_BATCH_BEGIN,
    LS_PREDICT_BATCH_END,
    LS_PREDICT_END,
} ls_moment;

typedef struct ls_callback_facts {
    ls_job *job;
    const char *call; /* API function: "ls_fit" */
    bool trains, validates;
    FILE *out;  /* for messages; NULL: print none */
    bool *ends; /* set to true if a loaded state had already stopped training; may be NULL */
} ls_callback_facts;

typedef struct ls_callback_list ls_callback_list;
struct ls_callback_list {
    ls_callback_facts facts;
    ls_callback *all; /* copies; built-in ones have functions and state */
    size_t count;
    int64_t epoch; /* epoch of the fit, for evaluations inside it */
};

/* Copies `facts`. */
ls_status ls_callbacks_open(ls_callback_list *list, const ls_callback *specs, size_t count,
                            const ls_callback_facts *facts);
/* Returns `status` and keeps its message. Warns if a file could not be closed. */
ls_status ls_callbacks_close(ls_callback_list *list, ls_status status);

/* Results may be NULL. */
typedef struct ls_callback_event {
    const ls_results *results, *validation;
    int64_t epoch, batch, step;
    bool cut, interrupted;
} ls_callback_event;
/* Sets *stop (may be NULL) if a callback asks to stop. `list` may be NULL. */
ls_status ls_callbacks_call(ls_callback_list *list, ls_moment when, const ls_callback_event *event, bool *stop);

/* Continues the files of a chief that was lost, or starts new ones. */
void ls_callbacks_take_over(ls_callback_list *list);

/* Whether a callback takes the gradients of the first step of this epoch, and hands them over. */
bool ls_callbacks_want_gradients(const ls_callback_list *list, int64_t epoch);
ls_status ls_callbacks_gradients(ls_callback_list *list, int64_t epoch, const ls_step_nodes *step);

bool ls_callbacks_have(const ls_callback_list *list, ls_callback_kind kind);

/* ---- Built-in callbacks ---- */

typedef struct ls_builtin {
    const char *name; /* Keras's name in lower case, for messages */
    /* Sets the functions of `out`, and `user` to a state from calloc that `close` frees. */
    ls_status (*open)(const ls_callback_spec *spec, const ls_callback_facts *facts, ls_callback *out);
    void (*close)(void *user);
    bool only_writes; /* training does not depend on it */
    /* Optional: called when this worker replaces a lost chief. Until then the callback keeps its
     * state as if it wrote files; from then on it writes them. Logs a warning if it cannot. */
    void (*take_over)(void *user);
    /* Optional: whether it takes the gradients of the first step of an epoch, from 0, and takes them,
     * when their tensors hold values. All workers answer the same. */
    bool (*wants_gradients)(const void *user, int64_t epoch);
    ls_status (*on_gradients)(void *user, int64_t epoch, const ls_step_nodes *step);
} ls_builtin;
extern const ls_builtin ls_builtin_early_stopping, ls_builtin_csv_logger, ls_builtin_tensorboard,
    ls_builtin_model_checkpoint, ls_builtin_plateau, ls_builtin_scheduler;

ls_status ls_builtin_state(const char *name, size_t bytes, void **out);

ls_logger *ls_callback_log(const ls_callback_facts *facts);

/* Whether another worker prints and writes files. Ask each time: that worker may be lost. */
bool ls_callback_is_quiet(const ls_callback_facts *facts);
/* NULL if this worker prints nothing. */
FILE *ls_callback_out(const ls_callback_facts *facts);

/* Warns that a file could not be written because of the last error. */
void ls_callback_warn(const ls_callback_facts *facts, const char *name, const char *path);

/* As Python does: 0.5, 1.0, 1e-07, nan. */
void ls_put_python_f64(ls_text *text, double value);

/* ---- Monitored values (monitor.c) ---- */

typedef struct ls_monitor {
    const char *name;
    bool rises;       /* larger is better */
    double min_delta; /* not negative */
} ls_monitor;

/* Fails if the call has no value of this name. */
ls_status ls_monitor_open(ls_monitor *monitor, const char *callback, const char *name, ls_monitor_mode mode,
                          double min_delta, const ls_callback_facts *facts);
/* Returns false if there is no value. */
bool ls_monitor_value(const ls_monitor *monitor, const ls_logs *logs, double *out);
/* Better than `than` (NAN: none) by more than min_delta. A NaN is never better. */
bool ls_monitor_is_better(const ls_monitor *monitor, double value, double than);

/* The values of a call, and their names for messages: "loss, accuracy, val_loss". */
bool ls_callback_has_value(const ls_callback_facts *facts, const char *name);
void ls_callback_names(const ls_callback_facts *facts, ls_text *out);

/* Saved state: the monitored name, numbers, optional further bytes. Loading checks name and
 * sizes. */
typedef struct ls_callback_bytes {
    const char *monitor;
    void *numbers;
    size_t number_bytes;
    void *more;
    size_t more_bytes;
} ls_callback_bytes;
ls_status ls_callback_pack(const ls_callback_bytes *parts, void **bytes, size_t *count);
ls_status ls_callback_unpack(const ls_callback_bytes *parts, const char *callback, const void *bytes, size_t count);

/* "early_stopping"; "functions" for the user's own callbacks. */
const char *ls_callback_name(const ls_callback *callback);
/* Whether a callback only writes files, so that a resumed run may add or drop it; `name` is that of
 * its state without the prefix. */
#define LS_STATE_CALLBACKS "callback/"
bool ls_callback_may_differ(const char *name);

#endif
