/* The schedule of a replay: reads the records of all servers (record.h), checks that they are
 * consistent, and sorts their pushes into an order in which one process can compute them. */
#ifndef LS_TRAIN_SERVER_REPLAY_SCHEDULE_H
#define LS_TRAIN_SERVER_REPLAY_SCHEDULE_H

#include "train/server/record.h"

/* A gradient: computed once, applied by one or more servers. */
typedef struct ls_replay_schedule_gradient {
    const ls_record_push *push; /* one of its pushes: has the batch, run and versions read */
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
    /* [version - first version]: number of gradients that read it */
    size_t *readers[LS_MAX_SERVERS];
} ls_replay_schedule;

/* Reads FILE, FILE.1, ..., one for each server. Fails, and names the place, if: a file is missing;
 * a version was read but never made; a read is older than the staleness bound allows; a server
 * applied a batch twice; or pushes depend on each other in a cycle. Accepts an incomplete last
 * record and ignores it. */
ls_status ls_replay_schedule_read(const char *file, ls_replay_schedule *out);
void ls_replay_schedule_free(ls_replay_schedule *schedule);

/* Describes the position of a push: "record 'FILE.1', line 12, at byte 3402". */
#define LS_PUSH_TEXT (PATH_MAX + 80)
const char *ls_replay_schedule_where(const ls_replay_schedule *schedule, int server, size_t push,
                                     char text[LS_PUSH_TEXT]);

#endif
