/* Work of each worker of a cluster, as the chief measures it. */
#ifndef LS_TRAIN_REPORT_WORKER_TIMES_H
#define LS_TRAIN_REPORT_WORKER_TIMES_H

#include "train/job/job.h"
#include "base/text.h"

typedef struct ls_worker_time {
    int rank, lanes; /* lanes of a whole batch */
    int place;       /* among the members */
    double seconds;  /* of its own work in this epoch: not waiting for other workers */
} ls_worker_time;
typedef struct ls_worker_times {
    int lanes;                     /* the most that a step of this epoch had */
    double before[LS_MAX_CLUSTER]; /* by rank: what was counted when the epoch began */
    int64_t steps;                 /* counted since then */
    unsigned epoch;                /* of the members, then */
    double speed[LS_MAX_CLUSTER];  /* by rank: lanes a second, when it last had some; 0: not known */
    int count; /* those that are there and no parameter servers, by place; 0: this process is alone, or no chief */
    ls_worker_time list[LS_MAX_CLUSTER];
} ls_worker_times;
void ls_worker_times_begin(ls_worker_times *times, const ls_context *ctx); /* an epoch */
void ls_worker_times_step(ls_worker_times *times, int lanes);
void ls_worker_times_take(ls_worker_times *times, const ls_context *ctx); /* makes the list */
/* Who holds up the others, with more than *factor times the median's work: set to how many times; NULL: nobody. */
const ls_worker_time *ls_worker_times_slowest(const ls_worker_times *times, double *factor);
/* The same for whoever watches: the rank, of a worker that takes a little longer than the others; -1: none does. */
int ls_worker_times_last(const ls_worker_times *times);
/* "4 workers, waiting for 3"; without a slow one "4 workers". */
#define LS_WORKERS_TEXT 64
void ls_worker_times_text(const ls_worker_times *times, char text[LS_WORKERS_TEXT]);
/* Lanes go to workers by their speed since this was last called (or begun): all workers call it, with their own times,
 * and have the same lanes behind it. */
ls_status ls_worker_times_split(ls_worker_times *times, ls_context *ctx);
/* One line that names it. */
void ls_worker_times_report(const ls_worker_times *times, ls_context *ctx, int64_t epoch);
/* ,"workers":[{"rank":0,"lanes":2,"seconds":1.5}], or nothing. */
void ls_worker_times_put(const ls_worker_times *times, ls_text *text);

#endif
