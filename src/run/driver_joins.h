/* Units of joins; driver.h declares the joins that follow a lane. */
#ifndef LS_RUN_DRIVER_JOINS_H
#define LS_RUN_DRIVER_JOINS_H

#include "run/driver_private.h"

/* LS_PHASE_HOME: copies partials to the host. */
ls_status ls_driver_bring_all_home(ls_driver *d, ls_executor *e, const ls_unit *u);

/* LS_PHASE_PAIR: joins a pair of blocks of lanes. */
ls_status ls_driver_join_pair(ls_driver *d, ls_executor *e, const ls_unit *u, int thread);

/* LS_PHASE_JOIN: joins the parts that this device owns. */
ls_status ls_driver_join_parts(ls_driver *d, ls_executor *e, const ls_unit *u, int thread);

/* LS_PHASE_SHARE: copies the parts of other owners to this device. */
ls_status ls_driver_share(ls_driver *d, ls_executor *e, const ls_unit *u);

/* LS_PHASE_GATHER and LS_PHASE_SHARE of all devices of this kind, in one call of the backend. */
ls_status ls_driver_transfer_all(ls_driver *d, ls_executor *e, const ls_phase *phase, const ls_unit *u);

#endif
