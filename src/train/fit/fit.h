/* One call of ls_fit: its state, and what its files share.
 *
 *   fit.c        the loop over epochs and steps, the synchronous method, and the end of a fit
 *   fit_open.c   everything before the first step
 *   fit_async.c  the method of asynchronous parameter servers (train/server) */
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

/* A batch of training data, and what the log shows of its step. */
typedef struct ls_fit_batch {
    ls_batch_view view; /* synchronous method only */
    int64_t samples;
    int lanes;
    double loss; /* set by `count` */
} ls_fit_batch;

/* How batches are trained. For each batch, the loop calls get, run, count and finish; between them
 * it calls callbacks and reports the step. A batch that is not finite stops the fit and is not
 * counted. */
typedef struct ls_fit_method {
    ls_status (*check)(const ls_fit_state *f); /* refuses options that do not apply */
    ls_status (*open)(ls_fit_state *f);        /* called before the first epoch */
    /* Gets the next batch. *end: the epoch has none, or the fit is stopped. */
    ls_status (*get)(ls_fit_state *f, ls_fit_batch *batch, bool *end);
    ls_status (*run)(ls_fit_state *f, ls_fit_batch *batch);
    /* Adds the batch to the results, the position and the counts of steps. */
    ls_status (*count)(ls_fit_state *f, ls_fit_batch *batch);
    /* Decides whether to stop, and saves a checkpoint if one is due. */
    ls_status (*finish)(ls_fit_state *f);
    void (*close)(ls_fit_state *f, const ls_error *failure);
    bool has_state; /* after each step the model has its state, so that the log can hash it */
} ls_fit_method;

extern const ls_fit_method ls_fit_synchronous, ls_fit_asynchronous;

/* State of the asynchronous method, in the chief. */
typedef struct ls_fit_async {
    ls_server_session session;
    ls_chief *chief;    /* NULL: not open */
    ls_chief_done done; /* the current batch */
    int64_t allowed;    /* batches of this fit that may be handed out */
    bool halting;       /* waits until all batches that were handed out are done */
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
    bool in_pass;          /* a pass over the data is open */
    int64_t step;          /* steps since the model was compiled */
    int64_t made;          /* steps of this fit */
    ls_progress progress;
    ls_train_log *log;
    ls_history *history;
    ls_results results, val_results;
    bool stopped, validated;
    bool whole; /* the last epoch is complete */
    ls_callback_list callbacks;
    const char *reason;
    bool rate_shown;               /* the first line of progress was printed */
    double start, rate;            /* time when training began; learning rate of the last step */
    double delay;                  /* ls_cores_delay at that time */
    ls_fit_facts facts;            /* for checkpoints */
    bool clean;                    /* the state is consistent: it may be saved if the fit fails */
    bool chief;                    /* this worker prints, logs and saves */
    unsigned generation;           /* generation of the membership when last checked */
    bool joins;                    /* joins a fit that runs already */
    bool over;                     /* joined after the fit had ended, or was stopped before */
    ls_worker_times workers, pace; /* of this epoch; since lanes were last distributed */
    ls_fit_status *status;
    double epoch_start, looked; /* time when the epoch began; time of the last look at workers */
};

static inline ls_context *ls_fit_context(const ls_fit_state *f)
{
    return ls_model_graph(f->job->model)->context;
}

/* ---- The loop (fit.c) ---- */

ls_status ls_fit_call_back(ls_fit_state *f, ls_moment when, int64_t epoch);
void ls_fit_stop(ls_fit_state *f, const char *reason);
/* Returns whether training ends here: a callback or a signal stopped it, or max_steps is reached. In
 * a cluster, a signal to one worker stops all workers at the same step. */
bool ls_fit_should_stop(ls_fit_state *f);
/* Ends training before a step that was not finite, which changed nothing, or fails without
 * ls_terminate_on_nan. */
ls_status ls_fit_refuse_step(ls_fit_state *f);
/* Lets workers join, and fails if too few are left. All workers call it at the same step. */
ls_status ls_fit_welcome(ls_fit_state *f);

/* ---- Opening (fit_open.c) ---- */

/* Chooses the method, checks the options that depend on it, and connects the workers. */
ls_status ls_fit_prepare(ls_fit_state *f, ls_dataset *data);
/* Open the data, and put the job at its position: all that a process needs that neither prints,
 * logs nor saves. */
ls_status ls_fit_open_data(ls_fit_state *f, ls_dataset *data);
void ls_fit_begin_job(ls_fit_state *f);
/* Opens everything, and joins the other workers or resumes from a checkpoint. Sets f->over if there
 * is nothing left to join. */
ls_status ls_fit_open(ls_fit_state *f, ls_dataset *data);
/* Starts the log, compares the workers and opens the method. *ends: a signal arrived before the
 * first step, or all steps are made. */
ls_status ls_fit_start(ls_fit_state *f, bool *ends);
/* Opens what only the chief has: progress, timeline and status file. */
void ls_fit_open_as_chief(ls_fit_state *f);

/* ---- Asynchronous parameter servers (fit_async.c) ---- */

/* Runs a server, or a worker that is not the chief. */
ls_status ls_fit_serve(ls_fit_state *f, ls_dataset *data);

#endif
