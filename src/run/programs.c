/* Creates programs: converts operands to slots in the backend's rooms. */
#include "run/programs.h"

#include <stdlib.h>

#include "device/calls.h"
#include "device/scratch.h"

ls_status ls_programs_explain(const ls_programs *p, const ls_step *step, const char *what, ls_status status)
{
    char label[LS_NODE_TEXT];
    const ls_tensor *node = step->group->root;
    /* An update has no name of its own; use its variable's. */
    bool updates = ls_node_is(node, LS_TRAIT_UPDATES);
    return ls_fail_within(status, "%s (op %s): %s %s",
                          ls_node_label(updates ? node->attr.apply.variable->node : node, label), ls_tensor_op(node),
                          what, p->device->name);
}

static ls_program_slot kept_slot(const ls_programs *p, const ls_operand *o)
{
    const ls_kept *kept = &p->placement->plan->kept[o->offset];
    bool framed = kept->framed;
    return (ls_program_slot){ .room = framed ? LS_ROOM_LANE : LS_ROOM_PLAN,
                              .offset = p->place->kept[o->offset] + (framed ? 0 : p->place->kept_at),
                              .unit = o->unit,
                              .per_sample =
                                  /* A lane's partial is stored where its first sample would be. */
                              !kept->by_lane || !framed,
                              .kept = !framed };
}

static ls_program_slot slot_of(const ls_programs *p, const ls_operand *o)
{
    const ls_plan_node *node = &p->placement->plan->nodes[o->value];
    ls_program_slot slot = { .room = LS_ROOM_PLAN, .unit = o->unit, .per_sample = o->per_sample };
    if (o->storage == LS_KEPT)
        return kept_slot(p, o);
    if (o->storage == LS_PARTIAL) {
        slot.room = LS_ROOM_PARTIALS;
        slot.offset = o->offset;
    } else if (o->storage == LS_MICRO) {
        slot.room = LS_ROOM_TASK;
        slot.offset = p->place->micro + o->offset;
    } else if (ls_is_staged(o)) {
        slot.room = LS_ROOM_TASK;
        slot.offset = p->place->staging[o->value];
    } else if (node->group < 0 && node->node->op == LS_OP_variable) {
        slot.room = LS_ROOM_STATE;
        slot.offset = ls_state_offset(p->state, node->node->attr.variable.variable);
    } else {
        slot.offset = p->place->whole[o->value];
    }
    return slot;
}

static ls_program_slot *add_state(const ls_programs *p, const ls_tensor *node, ls_program_slot *slot,
                                  ls_program_step *step)
{
    ls_variable *written[LS_MAX_WRITES];
    step->state_count = ls_node_writes(node, written);
    step->state = slot;
    step->new_state = slot + step->state_count;
    for (int k = 0; k < step->state_count; k++) {
        ls_program_slot one = { .room = LS_ROOM_STATE,
                                .offset = ls_state_offset(p->state, written[k]),
                                .unit = written[k]->bytes };
        slot[k] = one;
        one.room = LS_ROOM_NEW_STATE;
        slot[step->state_count + k] = one;
    }
    step->out = step->new_state[0];
    return slot + 2 * step->state_count;
}

static ls_status make(ls_programs *p, const ls_step *const *steps, int count, int64_t samples, int lanes,
                      ls_compiled *out)
{
    size_t slots = 0;
    for (int i = 0; i < count; i++)
        slots += (size_t)steps[i]->group->in_count + 2 * LS_MAX_WRITES;
    out->steps = calloc((size_t)count + 1, sizeof(*out->steps));
    out->slots = calloc(slots + 1, sizeof(*out->slots));
    if (!out->steps || !out->slots)
        return ls_fail(LS_ERR_MEMORY, "no memory for a program of %d steps", count);
    ls_program_slot *slot = out->slots;
    for (int i = 0; i < count; i++) {
        const ls_group *group = steps[i]->group;
        out->steps[i] = (ls_program_step){ .node = group->root, .in = slot };
        for (int k = 0; k < group->in_count; k++)
            *slot++ = slot_of(p, &steps[i]->in[k]);
        if (ls_node_is(group->root, LS_TRAIT_UPDATES))
            slot = add_state(p, group->root, slot, &out->steps[i]);
        else
            out->steps[i].out = slot_of(p, &steps[i]->out);
    }
    out->program = (ls_program){ .steps = out->steps,
                                 .step_count = count,
                                 .samples = samples,
                                 .lanes = lanes,
                                 .batch = p->placement->plan->batch,
                                 .limit = p->device->limit };
    LS_TRY(
        ls_programs_explain(p, steps[0], "planning for", ls_device_plan_create(p->device, &out->program, &out->plan)));
    ls_plan_scratch needs;
    ls_device_plan_scratch(p->device, out->plan, &needs);
    if (needs.bytes > p->scratch) {
        p->scratch = needs.bytes;
        p->needs = steps[needs.step];
    }
    return LS_OK;
}

static ls_status make_list(ls_programs *p, const ls_step **list)
{
    const ls_plan *plan = p->placement->plan;
    int device = p->device->index, updates = 0;
    for (int s = 0; s < plan->segment_count; s++)
        if (ls_runs_on(p->placement, s, device)) {
            const ls_segment *segment = &plan->segments[s];
            for (int i = 0; i < segment->step_count; i++)
                list[i] = &segment->steps[i];
            LS_TRY(make(p, list, segment->step_count, segment->micro, p->place->together, &p->segments[s]));
        }
    for (int i = 0; i < plan->whole_count; i++)
        if (ls_whole_runs_on(p->placement, i, device)) {
            list[0] = &plan->whole_steps[i];
            LS_TRY(make(p, list, 1, 1, 1, &p->wholes[i]));
        }
    for (int i = 0; i < plan->update_count; i++)
        if (ls_updates_on(p->placement, i, device))
            list[updates++] = &plan->updates[i];
    return updates ? make(p, list, updates, 1, 1, &p->updates) : LS_OK;
}

static ls_status take_scratch(ls_programs *p)
{
    if (p->scratch == 0)
        return LS_OK;
    LS_TRY(ls_programs_explain(p, p->needs, "memory of", ls_device_take_scratch(p->device, p->scratch)));
    p->has_scratch = true;
    return LS_OK;
}

ls_status ls_programs_make(ls_programs *p)
{
    const ls_plan *plan = p->placement->plan;
    size_t most = (size_t)plan->update_count + 1;
    for (int s = 0; s < plan->segment_count; s++)
        most = (size_t)plan->segments[s].step_count > most ? (size_t)plan->segments[s].step_count : most;
    const ls_step **list = calloc(most, sizeof(*list));
    p->segments = calloc((size_t)plan->segment_count + 1, sizeof(*p->segments));
    p->wholes = calloc((size_t)plan->whole_count + 1, sizeof(*p->wholes));
    ls_status status = list && p->segments && p->wholes
                           ? make_list(p, list)
                           : ls_fail(LS_ERR_MEMORY, "no memory for the programs of %s", p->device->name);
    free(list);
    return status == LS_OK ? take_scratch(p) : status;
}

static void free_compiled(const ls_programs *p, ls_compiled *c)
{
    if (c->plan)
        ls_device_plan_destroy(p->device, c->plan);
    free(c->steps);
    free(c->slots);
}

void ls_programs_free(ls_programs *p)
{
    const ls_plan *plan = p->placement->plan;
    for (int s = 0; p->segments && s < plan->segment_count; s++)
        free_compiled(p, &p->segments[s]);
    for (int i = 0; p->wholes && i < plan->whole_count; i++)
        free_compiled(p, &p->wholes[i]);
    free_compiled(p, &p->updates);
    if (p->has_scratch)
        ls_device_give_scratch(p->device);
    free(p->segments);
    free(p->wholes);
}
