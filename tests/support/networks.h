/* Small networks that tests of plans and runs train: built from ops by hand, data and initial
 * weights from Philox, so that every run of a test sees the same numbers. Nothing here asserts:
 * threads other than the main one use it too. */
#ifndef TESTS_NETWORKS_H
#define TESTS_NETWORKS_H

#include "graph/node.h"
#include "lockstep/device.h"
#include "lockstep/run.h"
#include "run/runs.h"

typedef enum network_kind {
    NETWORK_CNN,      /* the first seed's, on 12x12x1 images: two convolutions with max pools, a dense layer; Adam */
    NETWORK_MLP,      /* two hidden layers with dropout, its rate fed; SGD with momentum */
    NETWORK_RESIDUAL, /* 12x12x3: stem, two residual blocks, batch norm over the whole batch; SGD with momentum */
    NETWORK_KINDS,
} network_kind;

const char *network_name(network_kind kind);

#define NETWORK_VARIABLES 64
#define NETWORK_CLASSES   10

typedef struct network {
    network_kind kind;
    ls_graph *graph;
    ls_tensor *images, *labels; /* uint8 */
    ls_tensor *rate;            /* dropout rate; NULL: none */
    ls_tensor *logits, *loss;
    ls_tensor *step; /* all updates, as one group */
    ls_tensor *trained[NETWORK_VARIABLES], *gradients[NETWORK_VARIABLES];
    size_t trained_count;
    ls_tensor *extra[NETWORK_VARIABLES]; /* updates of moving statistics */
    size_t extra_count;
    int64_t size, channels;              /* side and channels of an image */
    bool picked;                         /* samples are fed as rows of a set in another order */
    const struct network_places *places; /* while it is made */
    int layers;                          /* convolutions and dense layers so far */
    ls_device_scope scope;               /* device scope of the current layer */
} network;

/* Where layers belong: a device by the layer's number (a convolution or a dense layer, and all up
 * to the next); NULL: nothing is said. */
typedef struct network_places {
    const char *(*device)(void *user, int layer);
    void *user;
} network_places;

ls_status network_create(ls_context *ctx, network_kind kind, network *out);
ls_status network_create_sized(ls_context *ctx, network_kind kind, int64_t size, network *out); /* other images */
ls_status network_create_placed(ls_context *ctx, network_kind kind, const network_places *places, network *out);
void network_destroy(network *n);

/* Changes how the graph is run; ends its plans. */
ls_status network_set(network *n, const ls_run_settings *settings);

/* The samples of step `step`. Sample i of a step is the same in a batch of any size. */
typedef struct network_batch {
    uint8_t *images, *labels;
    float rate;
    ls_feed feeds[3];
    size_t feed_count;
} network_batch;
ls_status network_batch_make(const network *n, int64_t batch, uint64_t step, network_batch *out);
void network_batch_free(network_batch *batch);

/* One training step; loss and step are fetched. */
ls_status network_step(network *n, int64_t batch, uint64_t step);

/* Trains; the hash is over the loss of every step and then all variables in the order of their
 * creation. */
ls_status network_train(network *n, int64_t batch, int steps, char hex[65]);

/* The hash of all variables and the run counter. */
ls_status network_state(const network *n, char hex[65]);

/* The executor of a step's plan, for this many samples. */
ls_status network_executor(network *n, int64_t batch, ls_executor **out);

/* The list (node, kernel, layout, micro-batch) of a step; free() it. */
ls_status network_list(network *n, int64_t batch, char **out);

#endif
