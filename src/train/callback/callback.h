/* Callbacks at work: the list that one call has (callback.c), and what built-in ones are made of: a file each, a row in
 * callback.c's table, and monitor.c for those that watch a value. */
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

/* What a callback may know before it is first called. */
typedef struct ls_callback_facts {
    ls_job *job;
    const char *call; /* "ls_fit" */
    bool trains, validates;
    FILE *out;  /* for messages; NULL: they are not told */
    bool *ends; /* of ls_fit: set when a loaded state says that training had ended */
} ls_callback_facts;

typedef struct ls_callback_list ls_callback_list;
struct ls_callback_list {
    ls_callback_facts facts;
    ls_callback *all; /* copies; a built-in one has its functions and its state now */
    size_t count;
    int64_t epoch; /* that is told where evaluations are a part of it */
};

/* Checks the specs and makes what they need. `facts` is copied. */
ls_status ls_callbacks_open(ls_callback_list *list, const ls_callback *specs, size_t count,
                            const ls_callback_facts *facts);
/* Returns `status`, with its message: a file that could not be closed is a warning. */
ls_status ls_callbacks_close(ls_callback_list *list, ls_status status);

/* What is told at a moment; results may be NULL. */
typedef struct ls_callback_event {
    const ls_results *results, *validation;
    int64_t epoch, batch, step;
    bool cut, interrupted;
} ls_callback_event;
/* `stop` may be NULL; it is set when a callback asks to stop. A list that is NULL or empty does nothing. */
ls_status ls_callbacks_call(ls_callback_list *list, ls_moment when, const ls_callback_event *told, bool *stop);

/* The worker that wrote files is lost: this one goes on with them, or with new ones. */
void ls_callbacks_go_on(ls_callback_list *list);

/* Whether one of them is of that kind. */
bool ls_callbacks_have(const ls_callback_list *list, ls_callback_kind kind);

/* ---- Built-in ones ---- */

typedef struct ls_builtin {
    const char *name; /* Keras's, in small letters: for messages */
    /* Checks the spec and fills the functions of `out`, and `user` with a state from calloc, which close frees. */
    ls_status (*open)(const ls_callback_spec *spec, const ls_callback_facts *facts, ls_callback *out);
    void (*close)(void *user);
    bool only_writes; /* files: training is the same without it */
    /* Of those: where ls_callback_is_quiet, the state is kept as if files were written; from this call on they are.
     * What cannot be written is a warning. May be NULL. */
    void (*go_on)(void *user);
} ls_builtin;
extern const ls_builtin ls_builtin_early_stopping, ls_builtin_csv_logger, ls_builtin_tensorboard,
    ls_builtin_model_checkpoint, ls_builtin_plateau, ls_builtin_scheduler;

ls_status ls_builtin_state(const char *name, size_t bytes, void **out); /* calloc, or a message */

ls_logger *ls_callback_log(const ls_callback_facts *facts);

/* Whether another worker of the cluster prints and writes files: asked anew each time, for its loss changes it. */
bool ls_callback_is_quiet(const ls_callback_facts *facts);
/* Where messages go; NULL: they are not told, or not by this worker. */
FILE *ls_callback_out(const ls_callback_facts *facts);

/* A file could not be written: a warning, with the last error as its reason; training goes on. */
void ls_callback_warn(const ls_callback_facts *facts, const char *name, const char *path);

/* A number as Python writes it: 0.5, 1.0, 1e-07, nan. */
void ls_put_python_f64(ls_text *text, double value);

/* ---- A value that is watched (monitor.c) ---- */

typedef struct ls_monitor {
    const char *name;
    bool rises;       /* larger is better */
    double min_delta; /* not negative */
} ls_monitor;

/* Fails when the call gives no value of that name. */
ls_status ls_monitor_open(ls_monitor *monitor, const char *callback, const char *name, ls_monitor_mode mode,
                          double min_delta, const ls_callback_facts *facts);
/* The value at this moment; false: there is none. */
bool ls_monitor_value(const ls_monitor *monitor, const ls_logs *logs, double *out);
/* Whether `value` is better than `than`, NAN for none, by min_delta. A NaN is never better. */
bool ls_monitor_is_better(const ls_monitor *monitor, double value, double than);

/* All names that the call gives, "loss, accuracy, val_loss": for messages; and whether it gives one. */
bool ls_callback_gives(const ls_callback_facts *facts, const char *name);
void ls_callback_names(const ls_callback_facts *facts, ls_text *out);

/* What a callback saves: the name that it watches, numbers, and perhaps more bytes. Loading checks name and sizes. */
typedef struct ls_callback_bytes {
    const char *monitor;
    void *numbers;
    size_t number_bytes;
    void *more;
    size_t more_bytes;
} ls_callback_bytes;
ls_status ls_callback_pack(const ls_callback_bytes *parts, void **bytes, size_t *count);
ls_status ls_callback_unpack(const ls_callback_bytes *parts, const char *callback, const void *bytes, size_t count);

/* "early_stopping"; of the user's own, "functions". */
const char *ls_callback_name(const ls_callback *callback);
/* Whether the callback that a state is saved for, by its name behind LS_STATE_CALLBACKS, only writes files: it may come
 * and go between a run and the one that goes on. */
#define LS_STATE_CALLBACKS "callback/"
bool ls_callback_may_differ(const char *name);

#endif
