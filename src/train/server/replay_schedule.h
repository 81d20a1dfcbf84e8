/* The schedule of a recorded training: what the records of all its servers say together (record.h), checked, and put
 * into an order in which one process can make it again. */
#ifndef LS_TRAIN_SERVER_REPLAY_SCHEDULE_H
#define LS_TRAIN_SERVER_REPLAY_SCHEDULE_H

#include "train/server/record.h"

/* A gradient: computed once, applied by one or more servers. */
typedef struct ls_recording_gradient {
    const ls_record_push *push; /* one that applies it: batch, run, versions read */
    size_t uses;                /* pushes that apply it */
} ls_recording_gradient;

/* One push of one server. */
typedef struct ls_recording_step {
    int server;
    size_t push, gradient;
} ls_recording_step;

typedef struct ls_recording {
    int servers;
    ls_record *records;
    char (*paths)[PATH_MAX];
    ls_recording_gradient *gradients; /* by epoch, then by batch */
    size_t gradient_count;
    ls_recording_step *steps; /* in the order in which they are made */
    size_t step_count;
    size_t *readers[LS_MAX_SERVERS]; /* by version behind the first: how many gradients read it */
} ls_recording;

/* Reads FILE, FILE.1, ... as many as there are servers. What is missing or does not fit together is told: a file, a
 * version that was read and never made, one that is older than the bound allows, a batch that a server applied twice,
 * pushes that wait for each other. A last record that was cut short is not a failure: its version is left out. */
ls_status ls_recording_read(const char *file, ls_recording *out);
void ls_recording_free(ls_recording *schedule);

/* "record 'FILE.1', line 12, at byte 3402": where a push stands. */
#define LS_PUSH_TEXT (PATH_MAX + 80)
const char *ls_recording_where(const ls_recording *schedule, int server, size_t push, char text[LS_PUSH_TEXT]);

#endif
