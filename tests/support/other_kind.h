/* Tests for devices of any kind that has the CPU's bits: whole trainings, on one, on two, and
 * beside the CPU; a steady step that moves neither weight nor gradient to the host; messages about
 * data as the CPU has them. */
#ifndef TESTS_OTHER_KIND_H
#define TESTS_OTHER_KIND_H

#include "lockstep/backend.h"
#include "lockstep/data.h"
#include "lockstep/nn.h"
#include "networks.h"

typedef struct other_kind {
    const char *first, *second, *both; /* "cuda:0", "cuda:1", "cuda:0-1" */
    /* A context in which these devices are visible; false: there are none. */
    bool (*open)(const ls_context_options *options, const char *devices, ls_context **out);
} other_kind;

/* A context with these devices; "": the default ones. */
ls_context *other_open(const other_kind *k, const char *devices);

typedef struct other_job {
    network_kind kind;
    int64_t batch;
    int lanes;
    const char *places[2]; /* devices of even layers and of odd ones; NULL: not set */
} other_job;

#define OTHER_STEPS 2

/* The hash of the weights after some steps. */
void other_train(const other_kind *k, other_job *j, const char *devices, char hash[65]);

void other_trains_as_the_cpu(const other_kind *k);
void other_shares_layers_with_the_cpu(const other_kind *k);
/* Nothing but what always does runs on the CPU. */
void other_trains_sequences_and_augmented_images(const other_kind *k);
void other_moves_no_weights(const other_kind *k);
void other_tells_a_wrong_label(const other_kind *k);
void other_launches_all_lanes_at_once(const other_kind *k);
void other_runs_as_many_lanes_as_fit(const other_kind *k);
void other_fuses_chains(const other_kind *k);
void other_adds_gathered_rows_in_order(const other_kind *k);
void other_counts_scratch_memory(const other_kind *k);
void other_runs_fewer_lanes_for_scratch_memory(const other_kind *k);
void other_replaces_scratch_memory_in_use(const other_kind *k);

/* Two steps of the residual network in this context, which is closed. */
ls_status other_two_steps(ls_context *ctx, char hash[65]);

/* ---- A training that a device is lost in ---- */

typedef struct other_training {
    ls_context *ctx;
    ls_model *model;
    ls_dataset *data;
} other_training;

/* The context is closed with it. wide: a layer that is large enough for each device to join a part
 * of its gradient. */
void other_training_open(other_training *t, ls_context *ctx, bool wide);
void other_training_close(other_training *t);
ls_status other_training_fit(other_training *t, const char *devices, int64_t max_steps, bool continue_last);

/* After this number of steps on these devices; the context is closed. */
void other_training_hash(ls_context *ctx, const char *devices, int64_t steps, char hex[65]);

/* For a backend with the functions of backend/gpu/driver.h. */
void other_keeps_the_order(const ls_backend *b);
void other_joins_together(const ls_backend *b);
void other_runs_again(const ls_backend *b);
void other_checks_many_at_once(const ls_backend *b);

#endif
