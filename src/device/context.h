/* The context: what devices, runs and logs of one job share. */
#ifndef LS_DEVICE_CONTEXT_H
#define LS_DEVICE_CONTEXT_H

#include "base/log.h"
#include "lockstep/device.h"

struct ls_context {
    ls_logger log;
};

#endif
