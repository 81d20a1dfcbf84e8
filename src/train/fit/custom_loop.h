/* Steps of custom training loops. */
#ifndef LS_TRAIN_FIT_CUSTOM_LOOP_H
#define LS_TRAIN_FIT_CUSTOM_LOOP_H

#include "lockstep/train.h"
#include "run/eval.h"

#define LS_MAX_STEP_OUTPUTS 1024

/* The nodes that the step function built for one kind of data. */
typedef struct ls_traced {
    ls_tensor *inputs[LS_MAX_COMPONENTS];
    int input_count;
    ls_tensor **fetches; /* the outputs, then the writes, if any */
    size_t fetch_count;
} ls_traced;

struct ls_loop_step {
    ls_graph *graph;
    ls_loop_step_function function;
    void *user;
    size_t output_count;
    uint64_t scope; /* open at creation; tracing needs the same one */
    bool tracing;
    ls_traced **traced;
    size_t traced_count, traced_room;
    const ls_traced *last; /* what the last run used; NULL: none yet */
    int lanes;
};

/* Returns the nodes for such a batch; traces them first if needed. `call` is for messages. */
ls_status ls_loop_step_trace(ls_loop_step *step, const ls_element *batch, const char *call, ls_traced **out);

#endif
