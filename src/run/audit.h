/* Audits: two workers of a cluster compute the same lane, and their partials are compared. Nothing
 * else finds a worker that computes wrong results without failing, because all others use what it
 * sends. */
#ifndef LS_RUN_AUDIT_H
#define LS_RUN_AUDIT_H

#include "run/executor_private.h"

/* Begin and end the audit of a run. The audited lane and its auditor follow from the seed and the
 * run number, so all workers choose the same. */
void ls_audit_begin(ls_executor *e);
void ls_audit_end(ls_executor *e);

/* Returns whether this worker computes the lane as the auditor of another worker. */
static inline bool ls_audit_is_foreign(const ls_executor *e, int lane)
{
    return e->audited >= 0 && lane == e->audited && e->auditor == e->plan->options.worker;
}

/* Hashes the partials of a unit that has just run on the audited lane. Partials on another device
 * are copied to host memory. */
ls_status ls_audit_lane(ls_executor *e, const ls_unit *unit, int thread);

/* After all levels: every worker compares the hashes of the two that computed the lane. */
ls_status ls_audit_compare(ls_executor *e);

#endif
