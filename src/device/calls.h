/* Thread-safe backend calls: one at a time per device. */
#ifndef LS_DEVICE_CALLS_H
#define LS_DEVICE_CALLS_H

#include "device/device.h"

ls_status ls_device_alloc(ls_device *device, size_t bytes, void **memory);
void ls_device_free(ls_device *device, void *memory);
ls_status ls_device_upload(ls_device *device, void *memory, size_t offset, const void *from, size_t bytes);
ls_status ls_device_download(ls_device *device, void *memory, size_t offset, void *to, size_t bytes);
ls_status ls_device_copy(ls_device *to_device, void *to, size_t to_offset, ls_device *from_device, void *from,
                         size_t from_offset, size_t bytes);
ls_status ls_device_plan_create(ls_device *device, const ls_program *program, void **plan);
void ls_device_plan_scratch(ls_device *device, const void *plan, ls_plan_scratch *out);
ls_status ls_device_use_scratch(ls_device *device, ls_memory_place at, size_t bytes);
ls_status ls_device_plan_run(ls_device *device, void *plan, const ls_program_run *run);
ls_status ls_device_plan_run_lanes(ls_device *device, void *plan, const ls_program_run *runs, int count);
void ls_device_plan_destroy(ls_device *device, void *plan);
ls_status ls_device_join(ls_device *device, const ls_join_call *call);
ls_status ls_device_join_lanes(ls_device *device, const ls_join_lanes_call *call);
/* Transfers between the context's devices of one kind. Locks all of them. */
ls_status ls_devices_transfer(ls_device *devices, int count, int kind, const ls_transfer *list, int transfers);

ls_status ls_device_finite(ls_device *device, ls_dtype dtype, ls_memory_place from, int64_t count, bool *out);
ls_status ls_device_finite_all(ls_device *device, const ls_finite_call *list, int count, bool *out);
ls_status ls_device_sync(ls_device *device);

#endif
