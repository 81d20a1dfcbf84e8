/* Memory that programs of a device use while they run, beside their rooms (plan_scratch of lockstep/backend.h). */
#ifndef LS_DEVICE_SCRATCH_H
#define LS_DEVICE_SCRATCH_H

#include "device/device.h"

/* A plan needs so many bytes of it, until it gives them back. Fails with LS_ERR_MEMORY where the limit has no room. */
ls_status ls_device_take_scratch(ls_device *device, size_t bytes);
void ls_device_give_scratch(ls_device *device);

/* Whether it was the last plan that asked for some which did not get it. */
bool ls_device_lacks_scratch(ls_device *device);

#endif
