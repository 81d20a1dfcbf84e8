/* Work of each worker of a cluster, as the chief measures it. */
#ifndef LS_TRAIN_REPORT_WORKER_TIMES_H
#define LS_TRAIN_REPORT_WORKER_TIMES_H

#include "train/job/job.h"
#include "base/text.h"

typedef struct ls_worker_time {
    int rank, lanes; /* lanes of a full batch */
    int member;      /* index among the members */
    double seconds;  /* own work in this epoch, without waiting */
} ls_worker_time;
typedef struct ls_worker_times {
    int lanes;                     /* most lanes in a step of this epoch */
    double before[LS_MAX_CLUSTER]; /* by rank: seconds when the epoch began */
    int64_t steps;                 /* since the epoch began */
    unsigned generation;           /* generation of the membership when the epoch began */
    double speed[LS_MAX_CLUSTER];  /* by rank: lanes per second; 0: unknown */
    /* Members in `list`, without parameter servers; 0: no cluster, or not the chief. */
    int count;
    ls_worker_time list[LS_MAX_CLUSTER];
} ls_worker_times;
/* Begins an epoch. */
void ls_worker_times_begin(ls_worker_times *times, const ls_context *ctx);
void ls_worker_times_step(ls_worker_times *times, int lanes);
/* Fills `list`. */
void ls_worker_times_take(ls_worker_times *times, const ls_context *ctx);
/* For display: a worker that takes slightly longer than the others; -1: none. */
int ls_worker_times_last(const ls_worker_times *times);
/* "4 workers, waiting for 3", or "4 workers" if none is slow. */
#define LS_WORKERS_TEXT 64
void ls_worker_times_text(const ls_worker_times *times, char text[LS_WORKERS_TEXT]);
/* Assigns lanes to workers by their speed since the last call. All workers call it and have the
 * same lanes afterwards. */
ls_status ls_worker_times_split(ls_worker_times *times, ls_context *ctx);
/* Warns if a worker is much slower than the others. */
void ls_worker_times_report(const ls_worker_times *times, ls_context *ctx, int64_t epoch);
/* Appends ,"workers":[{"rank":0,"lanes":2,"seconds":1.5}], or nothing. */
void ls_worker_times_put(const ls_worker_times *times, ls_text *text);

#endif
