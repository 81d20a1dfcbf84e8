/* The schedule of a replay: the pushes of all servers, in an order in which one process can compute
 * them. */
#ifndef LS_TRAIN_SERVER_REPLAY_SCHEDULE_H
#define LS_TRAIN_SERVER_REPLAY_SCHEDULE_H

#include "train/server/record.h"

/* A gradient: computed once, applied by one or more servers. */
typedef struct ls_replay_schedule_gradient {
    const ls_record_push *push; /* one of its pushes */
    size_t uses;                /* number of its pushes */
} ls_replay_schedule_gradient;

/* One push of one server. */
typedef struct ls_replay_schedule_step {
    int server;
    size_t push, gradient;
} ls_replay_schedule_step;

typedef struct ls_replay_schedule {
    int servers;
    ls_record *records;
    char (*paths)[PATH_MAX];
    ls_replay_schedule_gradient *gradients; /* sorted by epoch, then batch */
    size_t gradient_count;
    ls_replay_schedule_step *steps; /* in execution order */
    size_t step_count;
    size_t *readers[LS_MAX_SERVERS]; /* [version - first version]: gradients that read it */
} ls_replay_schedule;

/* Reads FILE, FILE.1, ..., one for each server. Fails if one is missing, if a version was read but
 * never made, or older than the staleness bound allows, if a server applied a batch twice, or if
 * pushes depend on each other in a cycle. */
ls_status ls_replay_schedule_read(const char *file, ls_replay_schedule *out);
void ls_replay_schedule_free(ls_replay_schedule *schedule);

/* Describes the position of a push: "record 'FILE.1', line 12, at byte 3402". */
#define LS_PUSH_TEXT (PATH_MAX + 80)
const char *ls_replay_schedule_where(const ls_replay_schedule *schedule, int server, size_t push,
                                     char text[LS_PUSH_TEXT]);

#endif
