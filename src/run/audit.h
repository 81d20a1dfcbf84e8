/* Audits: a lane of a run that two workers of a cluster compute, whose partials are compared. A worker that computes
 * something wrong, without failing, is found by nothing else: all others take what it sends. */
#ifndef LS_RUN_AUDIT_H
#define LS_RUN_AUDIT_H

#include "run/executor_private.h"

/* A run begins and ends. Which lane is audited, and by whom, follows from the seed and the run's number: it is the same
 * on all workers. */
void ls_audit_begin(ls_executor *e);
void ls_audit_end(ls_executor *e);

/* Whether this worker computes a lane of another one. */
static inline bool ls_audit_is_foreign(const ls_executor *e, int lane)
{
    return e->audited >= 0 && lane == e->audited && e->auditor == e->plan->options.worker;
}

/* A unit of a lane is done; its partials are where it made them: those on another device come to the host's room. */
ls_status ls_audit_lane(ls_executor *e, const ls_unit *unit, int worker);

/* All levels are done: what both made of the lane is compared, by all. */
ls_status ls_audit_compare(ls_executor *e);

#endif
