/* The one list of everything that a checkpoint must save. */
#ifndef LS_TRAIN_CHECKPOINT_STATE_LIST_H
#define LS_TRAIN_CHECKPOINT_STATE_LIST_H

#include "train/job/job.h"

typedef enum ls_state_entry_kind {
    LS_STATE_VARIABLE, /* of the model: trainable ones in creation order, then the others */
    LS_STATE_SLOT,     /* of the optimizer, in creation order; the step is the last */
    LS_STATE_NUMBER,   /* one or more numbers: bytes at `data` */
    LS_STATE_FIXED,    /* the same, but only compared: a job with another value is another job */
    LS_STATE_CALLBACK, /* of the fit at work: what its save function gives */
} ls_state_entry_kind;

/* What the bytes of a number are; a text has as many bytes as letters. */
typedef enum ls_state_entry_type {
    LS_STATE_I64,
    LS_STATE_U64,
    LS_STATE_F64,
    LS_STATE_INT,
    LS_STATE_BOOL,
    LS_STATE_TEXT
} ls_state_entry_type;

typedef struct ls_state_entry {
    const char *name;
    ls_state_entry_kind kind;
    ls_state_entry_type type;
    bool of_fit; /* a fixed one that only a fit has: it is not compared outside one */
    ls_variable *variable;
    void *data;
    size_t bytes;
    const ls_callback *callback;
    char text[48]; /* of the name, where it is made here */
} ls_state_entry;

/* The list; free() it. */
ls_status ls_job_list(ls_job *job, ls_state_entry **out, size_t *count);

/* The bytes of all entries, in memory. Saved at any time; loaded in on_train_begin of a fit over the same data, which
 * then goes on as the one that was saved did. A snapshot that does not fit changes nothing. */
typedef struct ls_state_entry_bytes {
    char *name;
    ls_state_entry_kind kind;
    ls_dtype dtype; /* of a variable or a slot */
    ls_shape shape;
    void *bytes;
    size_t count;
} ls_state_entry_bytes;
typedef struct ls_snapshot {
    size_t count;
    ls_state_entry_bytes *entry;
} ls_snapshot;
ls_status ls_job_save(ls_job *job, ls_snapshot **out);
ls_status ls_job_load(ls_job *job, const ls_snapshot *snapshot);
void ls_snapshot_destroy(ls_snapshot *snapshot);

#endif
