/* Where the time of a fit goes, by device. */
#ifndef LS_TRAIN_JOB_TIMES_H
#define LS_TRAIN_JOB_TIMES_H

#include "train/job/job.h"
#include "base/text.h"

ls_status ls_fit_seconds_make(const ls_context *ctx, const ls_task_map *map, ls_fit_seconds **out);
void ls_fit_seconds_free(ls_fit_seconds *seconds);
ls_device_seconds *ls_fit_seconds_list(ls_fit_seconds *seconds); /* by device, for runs to add to */
void ls_fit_seconds_begin_epoch(ls_fit_seconds *seconds);
/* What the fit took, in all; delay: of ls_cores_delay. */
void ls_fit_seconds_note(ls_fit_seconds *seconds, const ls_times *times, double wall, int64_t steps, double delay);

/* ,"devices":[{"name":"cpu:0","busy":1.5,"data":0.1,"joins":0.2,"idle":0.3,"other":0.1}]: of the fit, or of the epoch
 * at hand, whose times are given; nothing for NULL. */
void ls_fit_seconds_put(const ls_fit_seconds *seconds, const ls_context *ctx, bool epoch, const ls_times *times,
                        ls_text *text);

/* One sentence where more devices do not help, judged by what was measured; nothing where they do, or may. */
void ls_fit_seconds_advise(const ls_fit_seconds *seconds, ls_text *text);

#endif
