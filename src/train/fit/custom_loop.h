/* Steps of loops by hand, as by_hand.c traces them and replicas.c looks at them. */
#ifndef LS_TRAIN_FIT_CUSTOM_LOOP_H
#define LS_TRAIN_FIT_CUSTOM_LOOP_H

#include "lockstep/train.h"
#include "run/runs.h"

#define LS_MAX_STEP_OUTPUTS 1024

/* What the function made for one kind of data. */
typedef struct ls_traced {
    ls_tensor *inputs[LS_MAX_COMPONENTS];
    int input_count;
    ls_tensor **fetches; /* the outputs, then what is written, if anything is */
    size_t fetch_count;
} ls_traced;

struct ls_loop_step {
    ls_graph *graph;
    ls_loop_step_function function;
    void *user;
    size_t output_count;
    uint64_t scope; /* that was open when it was made: nodes are made in no other */
    bool tracing;
    ls_traced **traced;
    size_t traced_count, traced_room;
    /* of the last run; NULL: none yet */
    const ls_traced *last;
    int lanes;
};

/* The nodes for such a batch, traced now if they are not there. `call` is for messages. */
ls_status ls_loop_step_trace(ls_loop_step *step, const ls_element *batch, const char *call, ls_traced **out);

#endif
