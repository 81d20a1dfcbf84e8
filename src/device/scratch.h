/* Memory that a device's programs use while they run, beside their buffers (plan_scratch in
 * lockstep/backend.h). */
#ifndef LS_DEVICE_SCRATCH_H
#define LS_DEVICE_SCRATCH_H

#include "device/device.h"

/* Reserves `bytes` for a plan until ls_device_give_scratch. LS_ERR_MEMORY: over the limit. */
ls_status ls_device_take_scratch(ls_device *device, size_t bytes);
void ls_device_give_scratch(ls_device *device);

/* Whether the last reservation failed. */
bool ls_device_lacks_scratch(ls_device *device);

#endif
