/* Audits: two workers compute the same lane, and their partials are compared. Nothing else finds a
 * worker that computes wrong results without failing. */
#ifndef LS_RUN_AUDIT_H
#define LS_RUN_AUDIT_H

#include "run/executor_private.h"

/* The audited lane and its auditor follow from seed and run number. */
void ls_audit_begin(ls_executor *e);
void ls_audit_end(ls_executor *e);

/* Whether this worker computes the lane as an auditor. */
static inline bool ls_audit_is_foreign(const ls_executor *e, int lane)
{
    return e->audited >= 0 && lane == e->audited && e->auditor == e->plan->options.worker;
}

/* Hashes the partials of a unit of the audited lane, after copying them to host memory. */
ls_status ls_audit_lane(ls_executor *e, const ls_unit *unit, int thread);

/* After all levels. */
ls_status ls_audit_compare(ls_executor *e);

#endif
