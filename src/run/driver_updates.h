/* Updates and checks for finite values that a driver runs. */
#ifndef LS_RUN_DRIVER_UPDATES_H
#define LS_RUN_DRIVER_UPDATES_H

#include "run/driver_private.h"

/* ls_driver_add_check adds an array to d->checks; ls_driver_check_finite checks all of them in one
 * call and sets d->finite. The caller sets d->check_count to 0 before. */
ls_status ls_driver_add_check(ls_driver *d, ls_dtype dtype, ls_memory_place from, int64_t count);
ls_status ls_driver_check_finite(ls_driver *d);

/* Units of LS_PHASE_UPDATE and LS_PHASE_CHECK. */
ls_status ls_driver_run_updates(ls_driver *d, ls_executor *e, const ls_unit *u, int thread);
ls_status ls_driver_run_check(ls_driver *d, ls_executor *e, const ls_unit *u, int thread);

#endif
