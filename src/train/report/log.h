/* The training log: JSON lines (docs/log.md). */
#ifndef LS_TRAIN_REPORT_LOG_H
#define LS_TRAIN_REPORT_LOG_H

#include "train/report/worker_times.h"
#include "train/job/job.h"

/* Opening a log can fail. A later write error only logs a warning, then and at the end. */
typedef struct ls_train_log ls_train_log;
typedef struct ls_log_mode {
    bool append; /* append to the log of an earlier run */
    bool quiet;  /* another worker writes; keep the last records */
} ls_log_mode;
ls_status ls_train_log_open(const char *path, ls_log_mode mode, ls_context *ctx, ls_train_log **out);
/* Continues the log of a chief that was lost: writes the records that are missing, and none twice.
 * Logs a warning if the file cannot be reached. */
void ls_train_log_take_over(ls_train_log *log);
/* Claims the lease for a new generation of the membership. */
void ls_train_log_renew_lease(ls_train_log *log);
/* Identifies the run of a log. A worker that joins receives it, because it may take over the
 * log. */
#define LS_LOG_ID 144
void ls_train_log_run_id(const ls_train_log *log, char id[LS_LOG_ID]);
void ls_train_log_join_run(ls_train_log *log, const char id[LS_LOG_ID]);
/* Whether the lost chief logged this checkpoint; true without a log. */
bool ls_train_log_has_checkpoint(const ls_train_log *log, int64_t step);

typedef struct ls_start_facts {
    int64_t batch_size, epochs;
    int lanes;          /* for a full batch */
    const int *devices; /* devices with work */
    int device_count;
    uint64_t seed;
    const ls_dataset *data; /* training data, prepared; NULL: unknown */
} ls_start_facts;
ls_status ls_train_log_start(ls_train_log *log, ls_job *job, const ls_start_facts *facts);

typedef struct ls_step_facts {
    int64_t step, samples;
    double loss, learning_rate;
    int lanes;
    const char *hash; /* NULL: not requested */
} ls_step_facts;
void ls_train_log_step(ls_train_log *log, const ls_step_facts *facts);

typedef struct ls_epoch_facts {
    const ls_job *job;
    int64_t epoch, steps;                   /* epoch from 0; steps: done in it */
    bool whole;                             /* false: the epoch was cut short */
    double seconds;                         /* without the validation */
    double learning_rate;                   /* rate of the last step */
    const ls_times *times;                  /* times of this epoch */
    const ls_worker_times *workers;         /* times of workers in this epoch */
    const ls_results *results, *validation; /* validation may be NULL */
    double validation_seconds;
} ls_epoch_facts;
void ls_train_log_epoch(ls_train_log *log, const ls_epoch_facts *facts);

/* For a checkpoint of another process. */
void ls_train_log_evaluation(ls_train_log *log, int64_t step, double seconds, const ls_results *results);

typedef struct ls_checkpoint_event {
    int64_t step;
    double seconds; /* to write it */
    size_t bytes;
    double waited;     /* seconds that training has waited for checkpoints so far */
    const char *error; /* NULL: saved */
} ls_checkpoint_event;
void ls_train_log_checkpoint(ls_train_log *log, const ls_checkpoint_event *event);
/* other_bits: allowed differences; NULL: none. */
void ls_train_log_resume(ls_train_log *log, const char *from, int64_t step, const char *other_bits);

/* Writes the last record and closes the file. `error` may be NULL. */
typedef struct ls_end_facts {
    const char *reason, *error;
    double seconds;
    const ls_times *times; /* times of the whole fit */
} ls_end_facts;
void ls_train_log_close(ls_train_log *log, ls_job *job, const ls_end_facts *facts);

#endif
