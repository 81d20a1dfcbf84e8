/* How a job's state is cut: shared by parts.c (the whole model) and part.c (one part of it). */
#ifndef LS_TRAIN_SERVER_SHARDS_PRIVATE_H
#define LS_TRAIN_SERVER_SHARDS_PRIVATE_H

#include "graph/node.h"
#include "train/server/shards.h"
#include "train/job/job.h"
#include "train/server/record.h"

#define LS_PARTS_ALIGN 64 /* bytes: each piece begins at a multiple */

typedef enum ls_state_shards_kind {
    LS_PARTS_TRAINED,  /* has a gradient */
    LS_PARTS_AVERAGED, /* each step assigns it a new value */
    LS_PARTS_FIXED,    /* stays as it is */
} ls_state_shards_kind;

typedef struct ls_state_shards_entry {
    ls_variable *variable; /* of the model */
    ls_state_shards_kind kind;
    size_t element; /* bytes */
    int64_t count;
    ls_tensor *const *slot; /* of the optimizer: ls_state_shards.slots of them; NULL: not trainable */
    ls_tensor *gradient;    /* clipped; of an average the new value; NULL: none */
} ls_state_shards_entry;

/* Elements of one variable that one part has, and where they are in its bytes. */
typedef struct ls_state_shards_piece {
    size_t entry;
    int64_t first, count;
    size_t weights, push; /* in what is pulled and pushed */
    size_t state;         /* its slots, in the whole state */
} ls_state_shards_piece;

struct ls_state_shards {
    ls_job *job;
    ls_function *function;
    int servers;
    ls_state_shards_entry *entries; /* trainable variables first */
    size_t entry_count, trained;
    size_t slots, counters;           /* of each trainable variable; of the optimizer, an i64 each */
    ls_state_shards_piece *pieces;    /* part by part: */
    size_t first[LS_MAX_SERVERS + 1]; /* where part s begins */
    size_t weight_bytes[LS_MAX_SERVERS], push_bytes[LS_MAX_SERVERS], state_bytes[LS_MAX_SERVERS];
    ls_tensor **fetches; /* of a worker's run: losses and metrics, gradients, new averages */
    size_t fetch_count;
};

#endif
