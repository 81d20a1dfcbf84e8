/* Offsets and sizes of what a placement has on each device. */
#include "plan/pack.h"
#include "plan/placement.h"

static ls_status place_kept(ls_placement *p, int device)
{
    const ls_plan *plan = p->plan;
    ls_place *place = &p->places[device];
    for (int lane = 0; lane < plan->lanes; lane++)
        if (place->row[lane] >= 0) {
            place->row[lane] = place->samples;
            place->samples +=
                ls_lane_first(plan->batch, plan->lanes, lane + 1) - ls_lane_first(plan->batch, plan->lanes, lane);
        }
    return ls_plan_pack_kept(plan, place->samples, place->here, place->kept, &place->kept_bytes, &place->frame_bytes);
}

/* ---- The block of a device that is not a CPU ---- */

typedef struct packing {
    ls_placement *p;
    ls_place *place;
    ls_packer packer;
    size_t staging_bytes;
} packing;

/* A lane's samples of an input, or a whole value until its last reader. Variables are in the
 * device's state. */
static ls_status add_operand(packing *k, const ls_operand *o)
{
    const ls_plan *plan = k->p->plan;
    size_t *offset = &k->place->whole[o->value];
    int group = plan->nodes[o->value].group;
    if (ls_is_staged(o)) {
        if (k->place->staging[o->value] == LS_NOT_HERE) {
            k->place->staging[o->value] = k->staging_bytes;
            k->staging_bytes += ls_size_align(o->unit * (size_t)ls_plan_lane_samples(plan), LS_ALIGN);
        }
        return LS_OK;
    }
    bool whole = o->storage == LS_EXTERNAL || o->storage == LS_WHOLE;
    if (!whole || *offset != LS_NOT_HERE || (group < 0 && plan->nodes[o->value].node->op == LS_OP_variable))
        return LS_OK;
    *offset = 0;
    return group < 0 ? ls_packer_add(&k->packer, 0, plan->levels, o->unit, offset)
                     : ls_packer_add(&k->packer, plan->groups[group].level, plan->whole_last[group], o->unit, offset);
}

static ls_status add_step(packing *k, const ls_step *step)
{
    for (int i = 0; i < step->group->in_count; i++)
        LS_TRY(add_operand(k, &step->in[i]));
    return step->out.storage == LS_WHOLE ? add_operand(k, &step->out) : LS_OK;
}

static ls_status add_steps(packing *k, int device, size_t *micro)
{
    const ls_plan *plan = k->p->plan;
    for (int s = 0; s < plan->segment_count; s++) {
        if (!ls_runs_on(k->p, s, device))
            continue;
        *micro = plan->segments[s].micro_bytes > *micro ? plan->segments[s].micro_bytes : *micro;
        for (int i = 0; i < plan->segments[s].step_count; i++)
            LS_TRY(add_step(k, &plan->segments[s].steps[i]));
    }
    for (int i = 0; i < plan->whole_count; i++)
        if (ls_whole_runs_on(k->p, i, device))
            LS_TRY(add_step(k, &plan->whole_steps[i]));
    for (int i = 0; i < plan->update_count; i++)
        for (int n = 0; ls_updates_on(k->p, i, device) && n < plan->updates[i].group->in_count; n++)
            LS_TRY(add_operand(k, &plan->updates[i].in[n]));
    return LS_OK;
}

/* For other devices' partials. A device has at most two blocks for each level of the tree. */
static size_t receive_bytes(const ls_placement *p, const ls_join *join, int64_t elements, int device)
{
    size_t blocks = 0;
    for (int d = 0; d < p->ctx->device_count; d++)
        if (d != device)
            blocks += (size_t)ls_placement_blocks(p, join->group->segment, d);
    return blocks * ls_size_align((size_t)elements * ls_dtype_bytes(join->dtype), LS_ALIGN);
}

/* The value of each join that this device owns a part of, and memory for received partials: of all
 * joins of a level if they arrive in one transfer. */
static ls_status add_joins(packing *k, int device, size_t *receive)
{
    const ls_plan *plan = k->p->plan;
    bool together = ls_plan_transfers(plan, ls_kind_of(k->p, device));
    size_t used = 0;
    for (int i = 0; i < plan->join_count; i++) {
        const ls_join *join = &plan->joins[i];
        used = !together || (i > 0 && plan->joins[i - 1].level != join->level) ? 0 : used;
        k->place->received[i] = used;
        for (int n = 0; n < k->p->joins[i].part_count; n++) {
            const ls_join_part *part = &k->p->joins[i].parts[n];
            if (part->owner != device)
                continue;
            LS_TRY(add_operand(k, &join->out));
            used += receive_bytes(k->p, join, part->to - part->from, device);
            *receive = used > *receive ? used : *receive;
        }
        if (plan->options.map.owners == LS_OWNERS_PAIRS && !plan->at_home &&
            ls_runs_on(k->p, join->group->segment, device)) {
            size_t needed = receive_bytes(k->p, join, join->count, device);
            *receive = needed > *receive ? needed : *receive;
        }
    }
    return LS_OK;
}

/* Order: whole values, kept values, frames, partials, received partials, tasks. */
static ls_status place_block(ls_placement *p, int device)
{
    packing k = { .p = p, .place = &p->places[device] };
    ls_place *place = k.place;
    size_t micro = 0, whole = 0, receive = 0, together = (size_t)place->together;
    ls_status status = add_steps(&k, device, &micro);
    if (status == LS_OK)
        status = add_joins(&k, device, &receive);
    if (status == LS_OK)
        status = ls_packer_pack(&k.packer, &whole);
    ls_packer_free(&k.packer);
    LS_TRY(status);
    place->kept_at = ls_size_align(whole, LS_ALIGN);
    place->frames_at = place->kept_at + ls_size_align(place->kept_bytes, LS_ALIGN);
    place->partials_at = place->frames_at + (size_t)place->frames * place->frame_bytes;
    place->receive = place->partials_at + ls_size_align(place->partial_bytes, LS_ALIGN);
    place->tasks_at = place->receive + ls_size_align(receive, LS_ALIGN);
    place->micro = k.staging_bytes;
    place->task_bytes = k.staging_bytes + ls_size_align(micro, LS_ALIGN);
    place->total_bytes = place->active ? ls_block_bytes(place->tasks_at + together * place->task_bytes + LS_ALIGN) : 0;
    return LS_OK;
}

/* ---- Totals ---- */

/* Memory on the CPU devices in addition to the plan. Memory of old values is reused. */
static void count_fetches(ls_placement *p)
{
    const ls_plan *plan = p->plan;
    for (int i = 0; i < plan->fetch_count; i++) {
        const ls_tensor *node = plan->nodes[plan->fetches[i]].node;
        size_t bytes = ls_plan_unit(plan, node) * (node->per_sample && plan->batch > 0 ? (size_t)plan->batch : 1);
        if (node->op == LS_OP_variable || (node->held.data && node->held.bytes == bytes))
            continue;
        int device = node->device > 0 && node->device < p->ctx->cpu_count ? node->device : 0;
        p->places[device].fetched_bytes +=
            bytes < LS_PAGE ? ls_size_align(bytes ? bytes : 1, LS_ALIGN) : ls_block_bytes(bytes);
    }
}

static void count_needs(ls_placement *p)
{
    const ls_plan *plan = p->plan;
    for (int d = 0; d < p->ctx->device_count; d++) {
        ls_place *place = &p->places[d];
        const ls_device *device = &p->ctx->devices[d];
        size_t threads = !p->threaded ? d == p->home : place->active ? (size_t)device->thread_count : 0;
        if (device->kind != LS_CPU) {
            place->needed_bytes = place->total_bytes;
            /* Rows that its driver picks. CPUs come first, so home's total is already set. */
            if (place->total_bytes > 0)
                p->places[p->home].needed_bytes += ls_block_bytes(plan->staging_bytes);
            if (plan->at_home) /* Its partials of joins, for the host to join. */
                p->places[p->home].needed_bytes += ls_block_bytes(place->partial_bytes);
            continue;
        }
        place->needed_bytes =
            ls_block_bytes(place->kept_bytes) + ls_block_bytes((size_t)place->frames * place->frame_bytes) +
            ls_block_bytes(place->partial_bytes) + threads * ls_block_bytes(ls_plan_thread_bytes(plan));
        if (d == p->home)
            place->needed_bytes += ls_block_bytes(plan->whole_bytes);
    }
}

ls_status ls_placement_memory(ls_placement *p)
{
    for (int d = 0; d < p->ctx->device_count; d++) {
        LS_TRY(place_kept(p, d));
        if (ls_kind_of(p, d) != LS_CPU)
            LS_TRY(place_block(p, d));
    }
    count_needs(p);
    count_fetches(p);
    return LS_OK;
}
