/* How a job's state is split; for shards.c and shard.c. */
#ifndef LS_TRAIN_SERVER_SHARDS_PRIVATE_H
#define LS_TRAIN_SERVER_SHARDS_PRIVATE_H

#include "graph/node.h"
#include "train/server/shards.h"
#include "train/job/job.h"
#include "train/server/record.h"

#define LS_SHARD_ALIGN 64 /* bytes: alignment of each piece */

typedef enum ls_state_shards_kind {
    LS_SHARD_TRAINED,  /* has a gradient */
    LS_SHARD_AVERAGED, /* assigned by each step (moving averages) */
    LS_SHARD_FIXED,    /* never changes */
} ls_state_shards_kind;

typedef struct ls_state_shards_entry {
    ls_variable *variable; /* in the model */
    ls_state_shards_kind kind;
    size_t element; /* bytes per element */
    int64_t count;
    ls_tensor *const *slot; /* [ls_state_shards.slots] optimizer slots; NULL: not trainable */
    ls_tensor *gradient;    /* clipped; or new value of an average; NULL: none */
} ls_state_shards_entry;

/* Elements of one variable in one shard. */
typedef struct ls_state_shards_piece {
    size_t entry;
    int64_t first, count;
    size_t weights, push; /* byte offsets in what workers pull, and push */
    size_t state;         /* offset of its slots */
} ls_state_shards_piece;

struct ls_state_shards {
    ls_job *job;
    ls_function *function;
    int servers;
    ls_state_shards_entry *entries; /* trainable variables first */
    size_t entry_count, trained;
    size_t slots, counters;           /* slots per trainable variable; counters of the optimizer */
    ls_state_shards_piece *pieces;    /* sorted by shard */
    size_t first[LS_MAX_SERVERS + 1]; /* index of the first piece of shard s */
    size_t weight_bytes[LS_MAX_SERVERS], push_bytes[LS_MAX_SERVERS], state_bytes[LS_MAX_SERVERS];
    ls_tensor **fetches; /* what a worker's step fetches */
    size_t fetch_count;
};

#endif
