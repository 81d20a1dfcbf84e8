/* Scratch memory that a device's programs use while they run, in addition to their buffers
 * (plan_scratch in lockstep/backend.h). */
#ifndef LS_DEVICE_SCRATCH_H
#define LS_DEVICE_SCRATCH_H

#include "device/device.h"

/* Reserves at least `bytes` bytes for a plan until it calls ls_device_give_scratch. Fails with
 * LS_ERR_MEMORY if the limit is exceeded. */
ls_status ls_device_take_scratch(ls_device *device, size_t bytes);
void ls_device_give_scratch(ls_device *device);

/* Returns whether the last reservation failed. */
bool ls_device_lacks_scratch(ls_device *device);

#endif
