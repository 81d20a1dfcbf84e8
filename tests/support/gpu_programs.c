/* The tests' GPU backend: programs, and what is wrong with a run of one. See gpu_private.h. */
#include <stdio.h>

#include "gpu_private.h"

/* ---- Programs ---- */

static void free_plan(plan *p)
{
    free(p->in);
    free(p->state);
    free(p->new_state);
    free(p);
}

/* Every step can be done. The most inputs and the most values of state that one has. */
static ls_status check_program(device *d, const ls_program *program, int *most_inputs, int *most_state)
{
    *most_inputs = *most_state = 0;
    for (int i = 0; i < program->step_count; i++) {
        const ls_tensor *node = program->steps[i].node;
        int inputs = ls_tensor_input_count(node), count = program->steps[i].state_count;
        if (!d->gpu->table.supports(d->gpu, node))
            return gpu_misuse(d, "%s: it has no %s", gpu_node_name(node), ls_tensor_op(node));
        if ((strcmp(ls_tensor_op(node), "apply") == 0) != (count > 0))
            return gpu_misuse(d, "%s: %s with %d values of state", gpu_node_name(node), ls_tensor_op(node), count);
        *most_inputs = inputs > *most_inputs ? inputs : *most_inputs;
        *most_state = count > *most_state ? count : *most_state;
    }
    return LS_OK;
}

static plan *allocate_plan(int inputs, int state)
{
    plan *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->in = calloc((size_t)inputs + 1, sizeof *p->in);
    p->state = calloc((size_t)state + 1, sizeof *p->state);
    p->new_state = calloc((size_t)state + 1, sizeof *p->new_state);
    if (!p->in || !p->state || !p->new_state) {
        free_plan(p);
        return NULL;
    }
    return p;
}

static ls_status make_plan(device *d, const ls_program *program, void **out)
{
    int inputs, state;
    ls_status status = check_program(d, program, &inputs, &state);
    if (status != LS_OK)
        return status;
    plan *p = allocate_plan(inputs, state);
    if (!p)
        return ls_backend_fail(LS_ERR_MEMORY, "GPU:%d: no memory for a plan of %d steps", d->number,
                               program->step_count);
    p->owner = d;
    p->program = *program;
    gpu_count_change(d->gpu, &d->gpu->counts.plans, 1);
    *out = p;
    return LS_OK;
}

ls_status gpu_plan_create(void *device_, const ls_program *program, void **out)
{
    device *d = device_;
    bool late;
    ls_status status = gpu_enter_call(d, GPU_PLAN, 0, &late);
    if (status == LS_OK) {
        status = make_plan(d, program, out);
        gpu_leave(d);
    }
    return status;
}

void gpu_plan_destroy(void *device_, void *plan_)
{
    device *d = device_;
    plan *p = plan_;
    if (gpu_enter(d) != LS_OK)
        return;
    if (p->owner != d) {
        gpu_misuse(d, "a plan of another device is destroyed");
    } else {
        gpu_wait_idle(d);
        free_plan(p);
        gpu_count_change(d->gpu, &d->gpu->counts.plans, -1);
    }
    gpu_leave(d);
}

/* A run that is looked at before it is queued. */
typedef struct check {
    device *d;
    const ls_program_run *run;
    buffer *room[LS_ROOM_COUNT];
    range used[LS_ROOM_COUNT]; /* bytes of each room, from the first to the last */
} check;

static range range_of(const check *k, const ls_program_slot *slot)
{
    return (range){ k->room[slot->room], gpu_slot_begin(slot, k->run), gpu_slot_end(slot, k->run) };
}

/* Its room has memory, and it lies in it. */
static ls_status check_slot(check *k, const ls_tensor *node, const char *what, int number, const ls_program_slot *slot)
{
    if ((int)slot->room < 0 || slot->room >= LS_ROOM_COUNT || !k->room[slot->room])
        return gpu_misuse(k->d, "%s: %s %d is in room %d, which has no memory", gpu_node_name(node), what, number,
                          (int)slot->room);
    range r = range_of(k, slot), *used = &k->used[slot->room];
    if (r.end > r.at->size)
        return gpu_misuse(k->d, "%s: %s %d ends at %zu of a buffer of %zu", gpu_node_name(node), what, number, r.end,
                          r.at->size);
    if (!used->at)
        *used = r;
    used->begin = r.begin < used->begin ? r.begin : used->begin;
    used->end = r.end > used->end ? r.end : used->end;
    return LS_OK;
}

static ls_status check_slots(check *k, const ls_tensor *node, const char *what, const ls_program_slot *slots, int count)
{
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < count; i++)
        status = check_slot(k, node, what, i, &slots[i]);
    return status;
}

/* Kernels do not write what they read, and nothing of a run writes the state that it reads. */
static ls_status check_write(const check *k, const ls_program_step *step, const char *what, int number,
                             const ls_program_slot *slot)
{
    const char *name = gpu_node_name(step->node);
    range to = range_of(k, slot);
    if (slot->room == LS_ROOM_STATE)
        return gpu_misuse(k->d, "%s: %s %d is in the room of the state that the run reads", name, what, number);
    for (int i = 0; i < ls_tensor_input_count(step->node); i++)
        if (gpu_overlap(to, range_of(k, &step->in[i])))
            return gpu_misuse(k->d, "%s: %s %d lies over input %d", name, what, number, i);
    for (int i = 0; i < step->state_count; i++)
        if (gpu_overlap(to, range_of(k, &step->state[i])))
            return gpu_misuse(k->d, "%s: %s %d lies over state %d", name, what, number, i);
    return LS_OK;
}

/* The new state of a step, which only `apply` has. Its first value is the output. */
static ls_status check_new_state(const check *k, const ls_program_step *step)
{
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < step->state_count; i++) {
        range to = range_of(k, &step->new_state[i]), out = range_of(k, &step->out);
        if (i == 0 && (to.at != out.at || to.begin != out.begin || to.end != out.end))
            return gpu_misuse(k->d, "%s: its output is not its new state 0", gpu_node_name(step->node));
        for (int j = 0; j < i; j++)
            if (gpu_overlap(to, range_of(k, &step->new_state[j])))
                return gpu_misuse(k->d, "%s: new state %d lies over new state %d", gpu_node_name(step->node), i, j);
        status = check_write(k, step, "new state", i, &step->new_state[i]);
    }
    return status;
}

static ls_status check_step(check *k, const ls_program_step *step)
{
    const ls_tensor *node = step->node;
    ls_status status = check_slot(k, node, "output", 0, &step->out);
    if (status == LS_OK)
        status = check_slots(k, node, "input", step->in, ls_tensor_input_count(node));
    if (status == LS_OK)
        status = check_slots(k, node, "state", step->state, step->state_count);
    if (status == LS_OK)
        status = check_slots(k, node, "new state", step->new_state, step->state_count);
    if (status == LS_OK)
        status = check_write(k, step, "output", 0, &step->out);
    return status == LS_OK ? check_new_state(k, step) : status;
}

static ls_status find_rooms(check *k)
{
    for (int i = 0; i < LS_ROOM_COUNT; i++) {
        const ls_memory_place *at = &k->run->room[i];
        if (at->memory && !(k->room[i] = gpu_find_bytes(k->d, at->memory, at->offset, 0)))
            return LS_ERR_INTERNAL;
    }
    return LS_OK;
}

static ls_status check_run(check *k, const plan *p)
{
    const ls_program_run *run = k->run;
    ls_status status = find_rooms(k);
    if (status != LS_OK)
        return status;
    if (p->owner != k->d)
        return gpu_misuse(k->d, "a plan of another device is run");
    if (run->samples < 0 || run->samples > p->program.samples || run->row < 0)
        return gpu_misuse(k->d, "%lld samples at row %lld, of a program for %lld", (long long)run->samples,
                          (long long)run->row, (long long)p->program.samples);
    for (int i = 0; status == LS_OK && i < p->program.step_count; i++)
        status = check_step(k, &p->program.steps[i]);
    range old = k->used[LS_ROOM_STATE], new = k->used[LS_ROOM_NEW_STATE];
    if (status == LS_OK && old.at && gpu_overlap(old, new))
        status = gpu_misuse(k->d, "a run's new state, from %zu to %zu, lies over its state, from %zu to %zu", new.begin,
                            new.end, old.begin, old.end);
    return status;
}

static ls_status queue_run(device *d, plan *p, const ls_program_run *run, bool late)
{
    check k = { .d = d, .run = run };
    ls_status status = check_run(&k, p);
    if (status != LS_OK)
        return status;
    command *c = gpu_claim(d, RUN);
    c->fails = late;
    c->plan = p;
    memcpy(c->room, k.room, sizeof c->room);
    c->run = *run;
    gpu_post(d);
    return LS_OK;
}

ls_status gpu_plan_run(void *device_, void *plan_, const ls_program_run *run)
{
    device *d = device_;
    bool late;
    ls_status status = gpu_enter_call(d, GPU_RUN, 0, &late);
    if (status == LS_OK) {
        status = queue_run(d, plan_, run, late);
        gpu_leave(d);
    }
    return status;
}

/* The last lane first: none may need another's room. */
ls_status gpu_plan_run_lanes(void *device_, void *plan_, const ls_program_run *runs, int count)
{
    device *d = device_;
    plan *p = plan_;
    ls_status status = LS_OK;
    if (count < 1 || count > p->program.lanes)
        return gpu_misuse(d, "%d lanes of a program for %d", count, p->program.lanes);
    for (int i = count; i-- > 0 && status == LS_OK;)
        status = gpu_plan_run(d, p, &runs[i]);
    return status;
}

ls_status gpu_sync(void *device_)
{
    device *d = device_;
    bool late;
    ls_status status = gpu_enter_call(d, GPU_SYNC, 0, &late);
    if (status == LS_OK) {
        status = gpu_wait_and_tell(d);
        gpu_leave(d);
    }
    return status;
}
