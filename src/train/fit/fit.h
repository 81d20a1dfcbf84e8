/* One call of ls_fit: the loop and synchronous steps (fit.c), everything before the first step
 * (fit_open.c), and the steps of asynchronous parameter servers (fit_async.c). */
#ifndef LS_TRAIN_FIT_FIT_H
#define LS_TRAIN_FIT_FIT_H

#include "device/context.h"
#include "nn/model.h"
#include "train/callback/callback.h"
#include "train/checkpoint/checkpoint.h"
#include "train/job/job.h"
#include "train/job/passes.h"
#include "train/job/step.h"
#include "train/report/log.h"
#include "train/report/progress.h"
#include "train/report/status.h"
#include "train/report/worker_times.h"
#include "train/server/servers.h"

typedef struct ls_fit_state ls_fit_state;

typedef struct ls_fit_batch {
    ls_batch_view view; /* synchronous method only */
    int64_t samples;
    int lanes;
    double loss; /* set by `count` */
} ls_fit_batch;

/* How batches are trained. For each batch the loop calls get, run, count and finish, unless the
 * batch is not finite: that stops the fit before count. */
typedef struct ls_fit_method {
    ls_status (*check)(const ls_fit_state *f); /* refuses options; may be NULL */
    ls_status (*open)(ls_fit_state *f);        /* before the first epoch; may be NULL */
    /* *end: the epoch has no more batches, or the fit is stopped. */
    ls_status (*get)(ls_fit_state *f, ls_fit_batch *batch, bool *end);
    ls_status (*run)(ls_fit_state *f, ls_fit_batch *batch);
    /* Adds the batch to the results and the position. */
    ls_status (*count)(ls_fit_state *f, ls_fit_batch *batch);
    /* Decides whether to stop or to save. */
    ls_status (*finish)(ls_fit_state *f);
    void (*close)(ls_fit_state *f, const ls_error *failure); /* may be NULL */
    bool has_state; /* the model has the state after each step, so the log can hash it */
} ls_fit_method;

extern const ls_fit_method ls_fit_synchronous, ls_fit_asynchronous;

typedef struct ls_fit_async {
    ls_server_session session;
    ls_chief *chief;    /* NULL: not open, or this is not the chief */
    ls_chief_done done; /* the current batch */
    int64_t allowed;    /* batches of this fit that may be handed out */
    bool halting;       /* hands out no batches until all are done */
} ls_fit_async;

struct ls_fit_state {
    ls_job *job;
    ls_function *function;
    ls_settings settings;
    const ls_fit_options *options;
    const ls_fit_method *method;
    ls_fit_async async;
    ls_passes data, validation;
    bool validates;
    int64_t epochs, steps; /* steps: per epoch; negative: until the data ends */
    bool in_pass;
    int64_t step; /* steps since the model was compiled */
    int64_t made; /* steps of this fit */
    ls_progress progress;
    ls_train_log *log;
    ls_history *history;
    ls_results results, val_results;
    bool stopped, validated;
    bool whole; /* the epoch is complete */
    ls_callback_list callbacks;
    const char *reason;
    bool rate_shown;
    double start, rate;  /* when training began; learning rate of the last step */
    double delay;        /* ls_cores_delay at that time */
    ls_fit_facts facts;  /* for checkpoints */
    bool clean;          /* the state may be saved if the fit fails */
    bool chief;          /* this worker prints, logs and saves */
    unsigned generation; /* generation of the membership, when last checked */
    bool joins;
    bool over;                     /* joined after the fit had ended, or was stopped before */
    ls_worker_times workers, pace; /* times of this epoch; times since lanes were last distributed */
    ls_fit_status *status;
    double epoch_start, shown_at; /* when the epoch began; when workers were last shown */
};

static inline ls_context *ls_fit_context(const ls_fit_state *f)
{
    return ls_model_graph(f->job->model)->context;
}

/* ---- The loop (fit.c) ---- */

ls_status ls_fit_call_back(ls_fit_state *f, ls_moment when, int64_t epoch);
void ls_fit_stop(ls_fit_state *f, const char *reason);
/* Also checks for signals and max_steps. A signal to one worker stops all at the same step. */
bool ls_fit_should_stop(ls_fit_state *f);
/* Stops before a step that was not finite, or fails without ls_terminate_on_nan. */
ls_status ls_fit_refuse_step(ls_fit_state *f);
/* Lets workers join. Fails if too few are left. */
ls_status ls_fit_welcome(ls_fit_state *f);

/* ---- Opening (fit_open.c) ---- */

/* Chooses the method and connects the workers. */
ls_status ls_fit_prepare(ls_fit_state *f, ls_dataset *data);
/* All that a process needs that neither prints, logs nor saves. */
ls_status ls_fit_open_data(ls_fit_state *f, ls_dataset *data);
void ls_fit_begin_job(ls_fit_state *f);
/* Opens everything, then joins the other workers or resumes from a checkpoint. */
ls_status ls_fit_open(ls_fit_state *f, ls_dataset *data);
/* Starts training. *ends: there is no step to make. */
ls_status ls_fit_start(ls_fit_state *f, bool *ends);
/* Opens what only the chief has: progress, timeline and status file. */
void ls_fit_open_as_chief(ls_fit_state *f);

/* ---- Asynchronous parameter servers (fit_async.c) ---- */

/* For servers, and workers except the chief. */
ls_status ls_fit_serve(ls_fit_state *f, ls_dataset *data);

#endif
