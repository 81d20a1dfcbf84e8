/* Splits the state of a job into shards, one for each parameter server, and a training step into
 * two halves. Servers, workers and replays use no other arithmetic:
 *
 *     ls_state_shards_gradients  a pure function of the weights, the batch and the run counter
 *     ls_state_shard_apply       a pure function of the shard, its version, the push and the rate
 *
 * A shard holds a range of the elements of all trainable variables, concatenated, with their slots,
 * and a range of the others (moving averages). It is a small graph of its own, with a variable for
 * each piece, that the job's optimizer updates. Its version is the number of updates made; with
 * gradient accumulation, several pushes make one version.
 *
 * Workers clip the whole gradient before they push it, so norms are those of the whole model. */
#ifndef LS_TRAIN_SERVER_SHARDS_H
#define LS_TRAIN_SERVER_SHARDS_H

#include "train/job/job.h"
#include "train/server/record.h" /* LS_MAX_SERVERS */
#include "train/job/step.h"

typedef struct ls_state_shards ls_state_shards;
typedef struct ls_state_shard ls_state_shard;

/* job and function must outlive *out. */
ls_status ls_state_shards_make(ls_job *job, ls_function *function, int servers, ls_state_shards **out);
void ls_state_shards_free(ls_state_shards *shards);

int ls_state_shards_count(const ls_state_shards *shards);
/* Variables: what workers pull. */
size_t ls_state_shards_weight_bytes(const ls_state_shards *shards, int server);
/* Variables, then slots and counters. */
size_t ls_state_shards_state_bytes(const ls_state_shards *shards, int server);
/* Gradients, and moving averages. */
size_t ls_state_shards_push_bytes(const ls_state_shards *shards, int server);

/* ---- For workers, and all that have the whole model ---- */

/* Copy a shard into or out of the model. */
ls_status ls_state_shards_put_weights(const ls_state_shards *shards, int server, const void *bytes);
ls_status ls_state_shards_put_state(const ls_state_shards *shards, int server, const void *bytes);
ls_status ls_state_shards_get_state(const ls_state_shards *shards, int server, void *bytes);

typedef struct ls_state_shards_step {
    const ls_settings *settings;
    const ls_batch_view *batch;
    const double *class_weights;
    uint64_t run; /* random counter */
} ls_state_shards_step;

/* Computes the pushes of a batch: pushes[s] has ls_state_shards_push_bytes(shards, s) bytes,
 * results has ls_results_count numbers. Returns LS_ERR_NOT_FINITE for a loss or gradient that is
 * not finite. */
ls_status ls_state_shards_gradients(ls_state_shards *shards, const ls_state_shards_step *step, void *const *pushes,
                                    double *results);

/* ---- For servers ---- */

typedef struct ls_push {
    int64_t read; /* version that the worker read */
    int64_t samples;
    const void *bytes;
} ls_push;

/* Creates a shard with the current state of the model. */
ls_status ls_state_shard_create(const ls_state_shards *shards, int server, bool scale_rate, ls_state_shard **out);
void ls_state_shard_destroy(ls_state_shard *shard);

/* Returns `set`, or the optimizer's learning rate for the next push if `set` is NAN. */
ls_status ls_state_shard_rate(const ls_state_shard *shard, double set, double *out);

/* Applies a push, or accumulates it into the next version. scale_rate divides the rate by the
 * number of versions since the worker read. A push that fails changes nothing. */
ls_status ls_state_shard_apply(ls_state_shard *shard, const ls_push *push, double rate);

int64_t ls_state_shard_version(const ls_state_shard *shard); /* updates made */
int64_t ls_state_shard_pushes(const ls_state_shard *shard);  /* all that were applied */
int64_t ls_state_shard_every(const ls_state_shard *shard);   /* pushes per version */

ls_status ls_state_shard_get_weights(const ls_state_shard *shard, void *bytes);
ls_status ls_state_shard_get_state(const ls_state_shard *shard, void *bytes);
ls_status ls_state_shard_put_state(ls_state_shard *shard, const void *bytes);

/* Hash of variables, then slots and counters. With one server, equal to ls_model_state_sha256. */
ls_status ls_state_shard_sha256(const ls_state_shard *shard, char hex[65]);

#endif
