/* The log of a training: JSON lines (docs/log.md). */
#ifndef LS_TRAIN_REPORT_LOG_H
#define LS_TRAIN_REPORT_LOG_H

#include "train/report/worker_times.h"
#include "train/job/job.h"

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
