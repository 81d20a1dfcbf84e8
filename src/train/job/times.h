/* Where the time of a fit goes, per device. */
#ifndef LS_TRAIN_JOB_TIMES_H
#define LS_TRAIN_JOB_TIMES_H

#include "train/job/job.h"
#include "base/text.h"

ls_status ls_fit_seconds_make(const ls_context *ctx, const ls_task_map *map, ls_fit_seconds **out);
void ls_fit_seconds_free(ls_fit_seconds *seconds);
/* Per device; runs add to it. */
ls_device_seconds *ls_fit_seconds_list(ls_fit_seconds *seconds);
void ls_fit_seconds_begin_epoch(ls_fit_seconds *seconds);
/* `delay` comes from ls_cores_delay. */
void ls_fit_seconds_note(ls_fit_seconds *seconds, const ls_times *times, double wall, int64_t steps, double delay);

/* Writes
 *     ,"devices":[{"name":"cpu:0","busy":1.5,"data":0.1,"joins":0.2,"idle":0.3,"other":0.1}]
 * for the fit or the current epoch, whose `times` it gets; nothing if `seconds` is NULL. */
void ls_fit_seconds_put(const ls_fit_seconds *seconds, const ls_context *ctx, bool epoch, const ls_times *times,
                        ls_text *text);

/* Writes a sentence if the measurements show that several devices do not help. */
void ls_fit_seconds_advise(const ls_fit_seconds *seconds, ls_text *text);

#endif
