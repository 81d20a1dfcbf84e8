/* The schedule of a recorded training: what the records of all its servers say together (record.h), checked, and put
 * into an order in which one process can make it again. */
#ifndef LS_TRAIN_SERVER_REPLAY_SCHEDULE_H
#define LS_TRAIN_SERVER_REPLAY_SCHEDULE_H

#include "train/server/record.h"

/* A gradient: computed once, applied by one or more servers. */
typedef struct ls_replay_schedule_gradient {
    const ls_record_push *push; /* one that applies it: batch, run, versions read */
    size_t uses;                /* pushes that apply it */
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
    ls_replay_schedule_gradient *gradients; /* by epoch, then by batch */
    size_t gradient_count;
    ls_replay_schedule_step *steps; /* in the order in which they are made */
    size_t step_count;
    size_t *readers[LS_MAX_SERVERS]; /* by version behind the first: how many gradients read it */
} ls_replay_schedule;

/* Reads FILE, FILE.1, ... as many as there are servers. What is missing or does not fit together is told: a file, a
 * version that was read and never made, one that is older than the bound allows, a batch that a server applied twice,
 * pushes that wait for each other. A last record that was cut short is not a failure: its version is left out. */
ls_status ls_replay_schedule_read(const char *file, ls_replay_schedule *out);
void ls_replay_schedule_free(ls_replay_schedule *schedule);

/* "record 'FILE.1', line 12, at byte 3402": where a push stands. */
#define LS_PUSH_TEXT (PATH_MAX + 80)
const char *ls_replay_schedule_where(const ls_replay_schedule *schedule, int server, size_t push,
                                     char text[LS_PUSH_TEXT]);

#endif
