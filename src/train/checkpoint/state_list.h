/* The list of everything that a checkpoint must save. */
#ifndef LS_TRAIN_CHECKPOINT_STATE_LIST_H
#define LS_TRAIN_CHECKPOINT_STATE_LIST_H

#include "train/job/job.h"

typedef enum ls_state_entry_kind {
    LS_STATE_VARIABLE, /* trainable variables in creation order, then the others */
    LS_STATE_SLOT,     /* in creation order; the step is last */
    LS_STATE_NUMBER,   /* one or more numbers: the bytes at `data` */
    /* numbers that must be equal, and are not restored */
    LS_STATE_FIXED,
    LS_STATE_CALLBACK, /* state of a callback, from its save function */
} ls_state_entry_kind;

/* A text has `bytes` bytes. */
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
    bool of_fit; /* LS_STATE_FIXED: exists and is compared only in a fit */
    ls_variable *variable;
    void *data;
    size_t bytes;
    const ls_callback *callback;
    char text[48]; /* buffer for generated names */
} ls_state_entry;

/* free() the list. */
ls_status ls_job_list(ls_job *job, ls_state_entry **out, size_t *count);

/* The bytes of all entries, in memory. Load a snapshot in on_train_begin of a fit over the same
 * data; the fit then continues as the saved one. One that does not match changes nothing. */
typedef struct ls_state_entry_bytes {
    char *name;
    ls_state_entry_kind kind;
    ls_dtype dtype; /* dtype of a variable or a slot */
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
