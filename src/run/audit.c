/* Chooses a lane and two workers, hashes what each computes, and compares. */
#include "run/audit.h"

#include <string.h>

#include "base/hash.h"
#include "base/philox.h"
#include "run/exchange.h"
#include "run/partials.h"
#include "run/peers.h"

static bool has_samples(const ls_plan *plan, int lane)
{
    return ls_lane_first(plan->batch, plan->lanes, lane) < ls_lane_first(plan->batch, plan->lanes, lane + 1);
}

/* Returns -1 if no lane has samples. */
static int choose_lane(const ls_plan *plan, uint32_t random)
{
    int count = 0;
    for (int lane = 0; lane < plan->lanes; lane++)
        count += has_samples(plan, lane);
    for (int lane = 0, left = count > 0 ? (int)(random % (uint32_t)count) : 0; count > 0; lane++)
        if (has_samples(plan, lane) && left-- == 0)
            return lane;
    return -1;
}

void ls_audit_begin(ls_executor *e)
{
    const ls_plan *plan = e->plan;
    int workers = plan->options.workers;
    bool audits = e->audits && e->exchange && workers > 1;
    e->audited = -1;
    e->audits = false;
    if (!audits)
        return;
    ls_philox_block random = ls_random_block(ls_random_key(e->seed, LS_RANDOM_AUDIT, 0, 0), e->run, 0, 0);
    e->audited = choose_lane(plan, random.word[0]);
    if (e->audited < 0)
        return;
    for (e->owner = 0; ls_plan_worker_first(plan, e->owner + 1) <= e->audited;)
        e->owner++;
    e->auditor = (e->owner + 1 + (int)(random.word[1] % (uint32_t)(workers - 1))) % workers;
    e->audit[0] = e->audit[1] = 0;
    for (int p = 0; p < e->phase_count && ls_audit_is_foreign(e, e->audited); p++)
        if (plan->phases[p].kind == LS_PHASE_LANES)
            ls_units_add_lane(e, &plan->phases[p], &e->phases[p], e->audited);
}

void ls_audit_end(ls_executor *e)
{
    for (int p = 0; p < e->phase_count && ls_audit_is_foreign(e, e->audited); p++)
        if (e->plan->phases[p].kind == LS_PHASE_LANES)
            ls_units_drop_lane(&e->phases[p], e->audited);
    e->audited = -1;
}

/* Hashes in the value's format: a kernel's own may contain padding. */
static ls_status hash_partial(ls_executor *e, int join, const char *partial, int thread)
{
    const ls_join *j = &e->plan->joins[join];
    ls_kernel *kernel = j->group->kernel;
    size_t bytes = (size_t)j->plain * ls_dtype_bytes(j->dtype);
    ls_hash hash;
    uint64_t out[2];
    if (kernel->finish) {
        LS_TRY(kernel->finish(kernel, partial, e->audit_buffer, thread, NULL));
        partial = e->audit_buffer;
    }
    ls_hash_begin(&hash);
    ls_hash_add(&hash, &join, sizeof(join));
    ls_hash_add(&hash, partial, bytes);
    ls_hash_end(&hash, out);
    /* Independent of the order: devices of different kinds have different segments. */
    e->audit[0] += out[0];
    e->audit[1] += out[1];
    return LS_OK;
}

static bool changes_bits(const ls_executor *e)
{
    return e->mutation == LS_MUTATE_BIT || e->mutation == LS_MUTATE_LAST_BIT;
}

/* Test mutation: a bit of the first byte, or of the last one if it has the value's format. */
static void change_bit(const ls_executor *e, const ls_join *join, char *partial)
{
    size_t bytes = (size_t)join->plain * ls_dtype_bytes(join->dtype);
    if (e->mutation == LS_MUTATE_BIT)
        partial[0] ^= 1;
    else if (!join->group->kernel->finish && bytes > 0)
        partial[bytes - 1] ^= 1;
}

/* Units of a lane run one after the other, so no lock is needed. */
ls_status ls_audit_lane(ls_executor *e, const ls_unit *u, int thread)
{
    ls_driver *driver = e->drivers[u->device];
    if (u->lane != e->audited && (!changes_bits(e) || driver))
        return LS_OK;
    for (int s = u->index; driver && s < u->index + u->count; s++)
        LS_TRY(ls_driver_bring_home(driver, e, s, u->lane));
    for (int i = 0; i < e->plan->join_count; i++) {
        const ls_join *join = &e->plan->joins[i];
        int s = join->group->segment;
        char *slot = s >= u->index && s < u->index + u->count ? ls_partials_of(e, s, u->lane) : NULL;
        if (slot && changes_bits(e))
            change_bit(e, join, slot + join->partial);
        if (slot && u->lane == e->audited)
            LS_TRY(hash_partial(e, i, slot + join->partial, thread));
    }
    return LS_OK;
}

ls_status ls_audit_compare(ls_executor *e)
{
    ls_peers *peers = e->plan->graph->context->peers;
    uint64_t found[2][2];
    if (e->audited < 0)
        return LS_OK;
    memcpy(found[e->auditor == e->plan->options.worker], e->audit, sizeof(e->audit));
    LS_TRY(ls_exchange_audit(e, found));
    if (found[0][0] == found[1][0] && found[0][1] == found[1][1])
        return LS_OK;
    ls_status status =
        ls_fail(LS_ERR_PEER,
                "audit: worker %d and worker %d disagree on lane %d (of %d, run %llu): hashes "
                "%016llx%016llx and %016llx%016llx; one of them computes wrong results",
                peers->members[e->owner], peers->members[e->auditor], e->audited, e->plan->lanes,
                (unsigned long long)e->run, (unsigned long long)found[0][0], (unsigned long long)found[0][1],
                (unsigned long long)found[1][0], (unsigned long long)found[1][1]);
    if (peers->end_all)
        peers->end_all(peers);
    return status;
}
