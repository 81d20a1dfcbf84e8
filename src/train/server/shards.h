/* How the state of a job is cut into parts, one for each parameter server, and the two halves of a training step over
 * them. Servers, workers and replays have no other arithmetic than this:
 *
 *     ls_state_shards_gradients   a pure function of the weights in the model, of the batch and of the run counter
 *     ls_state_shard_apply        a pure function of the part, of its version, of the push and of the learning rate
 *
 * Part s holds a range of the elements of all trained variables, one behind the other, and a range of the others'
 * (moving averages); a variable may be cut. Slots go with their elements. A part is a small graph of its own, with a
 * variable for each piece, that the job's optimizer is applied to. Its version is the number of updates made, which is
 * also the step that Adam and schedules count; where gradients are accumulated, several pushes make one version.
 *
 * Gradients are clipped by the worker, on its whole gradient, before they are pushed: norms are those of the model. */
#ifndef LS_TRAIN_SERVER_SHARDS_H
#define LS_TRAIN_SERVER_SHARDS_H

#include "train/job/job.h"
#include "train/server/record.h" /* LS_MAX_SERVERS */
#include "train/job/step.h"

typedef struct ls_state_shards ls_state_shards;
typedef struct ls_state_shard ls_state_shard;

/* The function is a train function of the job; both must outlive it. */
ls_status ls_state_shards_make(ls_job *job, ls_function *function, int servers, ls_state_shards **out);
void ls_state_shards_free(ls_state_shards *parts);

int ls_state_shards_count(const ls_state_shards *parts);
size_t ls_state_shards_weight_bytes(const ls_state_shards *parts, int server); /* variables alone: what workers pull */
size_t ls_state_shards_state_bytes(const ls_state_shards *parts, int server);  /* variables, then slots and counters */
size_t ls_state_shards_push_bytes(const ls_state_shards *parts,
                                  int server); /* gradients, and new values of moving averages */

/* ---- In a worker, or wherever the whole model is ---- */

/* A part into the model, or out of it: variables alone, or with everything of the optimizer. */
ls_status ls_state_shards_put_weights(const ls_state_shards *parts, int server, const void *bytes);
ls_status ls_state_shards_put_state(const ls_state_shards *parts, int server, const void *bytes);
ls_status ls_state_shards_get_state(const ls_state_shards *parts, int server, void *bytes);

typedef struct ls_state_shards_step {
    const ls_settings *settings;
    const ls_batch_view *batch;
    const double *class_weights;
    uint64_t run; /* counter that random numbers are drawn by */
} ls_state_shards_step;

/* pushes[s] has room for ls_state_shards_push_bytes(parts, s), results for ls_results_count numbers. A loss or gradient
 * that is not finite is LS_ERR_NOT_FINITE, by name. The model's weights stay as they are. */
ls_status ls_state_shards_gradients(ls_state_shards *parts, const ls_state_shards_step *step, void *const *pushes,
                                    double *results);

/* ---- In a server ---- */

typedef struct ls_push {
    int64_t read;    /* version of this part that the worker had */
    int64_t samples; /* of the batch */
    const void *bytes;
} ls_push;

/* The part has the state that the model has at this moment. */
ls_status ls_state_shard_create(const ls_state_shards *parts, int server, bool scale_rate, ls_state_shard **out);
void ls_state_shard_destroy(ls_state_shard *part);

/* The learning rate of the next push, before it is scaled: the one that was set (NAN: none was), or the optimizer's. */
ls_status ls_state_shard_rate(const ls_state_shard *part, double set, double *out);

/* Applies a push, or adds it to others of its version. `rate` is that of ls_state_shard_rate; with scale_rate it is
 * divided by the number of versions that were made since the worker read its own. A push that fails changes nothing. */
ls_status ls_state_shard_apply(ls_state_shard *part, const ls_push *push, double rate);

int64_t ls_state_shard_version(const ls_state_shard *part); /* updates made */
int64_t ls_state_shard_pushes(
    const ls_state_shard *part); /* versions times pushes a version, and those of the next one so far */
int64_t ls_state_shard_every(const ls_state_shard *part); /* pushes that make a version */

ls_status ls_state_shard_get_weights(const ls_state_shard *part, void *bytes);
ls_status ls_state_shard_get_state(const ls_state_shard *part, void *bytes);
ls_status ls_state_shard_put_state(ls_state_shard *part, const void *bytes);

/* Of variables, then slots and counters. With one server it is that of ls_model_state_sha256. */
ls_status ls_state_shard_sha256(const ls_state_shard *part, char hex[65]);

#endif
