/* The context: what devices, runs and logs of one job share. */
#ifndef LS_DEVICE_CONTEXT_H
#define LS_DEVICE_CONTEXT_H

#include "base/log.h"
#include "lockstep/device.h"

struct ls_context {
    ls_logger log;
    ls_context_options options;
    struct ls_runtime *runtime; /* threads and kernels, made when first needed (src/run/runtime.c) */
    void (*close_runtime)(struct ls_runtime *runtime);
    pthread_mutex_t mutex; /* of the making of it */
};

#endif
