/* A training job drawn from a seed: model, data pipeline, optimizer, callbacks and options of
 * ls_fit. Everything goes through the public API. The same seed gives the same job in every
 * process, so workers draw it by themselves. Linked into every test program; test_random_jobs.c
 * uses it. */
#ifndef TESTS_RANDOM_JOB_H
#define TESTS_RANDOM_JOB_H

#include "lockstep.h"

/* Random numbers from a seed. */
typedef struct draws {
    uint64_t state;
} draws;
draws draws_from(uint64_t seed, uint64_t stream);
uint32_t draw(draws *d, uint32_t count); /* 0 to count - 1 */
bool chance(draws *d, uint32_t percent);

#define RANDOM_JOB_INPUTS  2
#define RANDOM_JOB_OUTPUTS 2

typedef enum input_kind { INPUT_IMAGE_U8, INPUT_IMAGE, INPUT_VECTOR, INPUT_IDS, INPUT_KINDS } input_kind;
typedef enum target_kind { TARGET_SPARSE, TARGET_ONE_HOT, TARGET_BINARY, TARGET_NUMBERS, TARGET_KINDS } target_kind;
typedef enum source_kind { SOURCE_ARRAYS, SOURCE_GENERATOR, SOURCE_KINDS } source_kind;

/* Stages between the source and ls_fit, in this order. */
typedef struct random_pipeline {
    source_kind source;
    bool map, map_threads, skip, shard, shuffle, repeat, batch, drop_remainder, prefetch;
} random_pipeline;

typedef struct random_job {
    uint64_t seed;
    int inputs, outputs;
    input_kind input[RANDOM_JOB_INPUTS];
    target_kind target[RANDOM_JOB_OUTPUTS];
    ls_norm_statistics statistics; /* statistics of all batch norms */
    ls_optimizer optimizer;
    int64_t samples, batch, epochs, steps_per_epoch, max_steps; /* max_steps: 0: no limit */
    int lanes;
    bool sample_weights, class_weights, validation_data, validation_split;
    random_pipeline pipeline;
    bool own_callback, scheduler, early_stopping, plateau, csv;
} random_job;

void random_job_draw(uint64_t seed, random_job *out);
void random_job_describe(const random_job *job, char *out, size_t bytes);

/* How one run of a job differs from the others. None of it may change a bit. */
typedef struct random_run {
    ls_strategy strategy;
    int64_t audit;
    int64_t cut;        /* the run ends after this step, with a checkpoint; 0: it does not */
    bool resume;        /* goes on from the checkpoint of a run that was cut */
    const char *folder; /* for its log, CSV file and checkpoints; checkpoints are in the parent folder */
} random_run;

/* Trains, evaluates and predicts. Returns one line for each step (its state hash), each epoch's
 * results, the final state, the evaluation and the predictions; a failure is a line, too. free()
 * it. NULL: no memory. */
char *random_job_run(const random_job *job, ls_context *ctx, const random_run *run);

#endif
