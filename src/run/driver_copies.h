/* Copies that a driver makes; each counts as time and bytes of the current unit. */
#ifndef LS_RUN_DRIVER_COPIES_H
#define LS_RUN_DRIVER_COPIES_H

#include "run/driver_private.h"

/* A lane's task; `number` selects its memory. */
typedef struct ls_driver_task {
    int segment, lane, number;
    int64_t first, samples;
} ls_driver_task;

/* Offsets in the driver's block. */
size_t ls_driver_task_at(const ls_driver *d, const ls_driver_task *t);
size_t ls_driver_frame_at(const ls_driver *d, const ls_executor *e, int lane);
size_t ls_driver_partials_at(const ls_driver *d, const ls_executor *e, int segment, int lane);

/* Copy between host memory and an offset in the driver's block. */
ls_status ls_driver_upload(ls_driver *d, size_t offset, const void *from, size_t bytes);
ls_status ls_driver_download(ls_driver *d, size_t offset, void *to, size_t bytes);

/* Copies from another device of the same backend, via `host` if necessary. */
ls_status ls_driver_fetch(ls_driver *d, int value, const ls_driver *other, size_t there, size_t here, void *host,
                          size_t bytes);

/* Counts the copy that was just made. */
void ls_driver_count_copy(const ls_driver *d, int value, int from, int to, size_t bytes);

/* Copies a whole value once a run, a constant only once. State is already there. */
ls_status ls_driver_bring_whole(ls_driver *d, ls_executor *e, const ls_operand *o, int thread);

/* Copies inputs of a step that are not there yet. */
ls_status ls_driver_bring_inputs(ls_driver *d, ls_executor *e, const ls_step *step, int thread,
                                 const ls_driver_task *t);

/* Copies a lane's output to the host if others need it. */
ls_status ls_driver_give_kept(ls_driver *d, ls_executor *e, const ls_step *step, const ls_driver_task *t);

#endif
