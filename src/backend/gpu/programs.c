/* Programs of plans: compiling, warming up, running (device.h). */
#include <stdlib.h>
#include <string.h>

#include "backend/gpu/device.h"
#include "base/work.h"

#define ALIGNMENT      256 /* alignment of scratch memory, as libraries require */
#define ALIGNED(bytes) (((bytes) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT)
/* Partial sums at once, over all lanes. */
#define PARTS_MOST     ((size_t)64 << 20)
#define PARTS_SHARE    8 /* at most 1/8 of the memory limit */
#define WORKSPACE_MOST ((size_t)1 << 30)
/* a workspace is at most 1/4 of the memory limit */
#define WORKSPACE_SHARE 4

/* Kept because the next run often has the same launches. */
typedef struct last_run {
    ls_gpu_saved launches;
    ls_program_run *runs;
    int count; /* lanes; 0: none */
    int pending;
    ls_memory_place scratch;
    bool checks;
} last_run;

typedef struct plan {
    ls_program program;
    size_t scratch;                /* bytes per lane */
    size_t shared;                 /* bytes of the library's workspace for all lanes */
    int scratch_step, shared_step; /* that need the most */
    ls_gpu_chain_steps *chains;
    int chain_count;
    last_run last;
    bool updates; /* only updates */
} plan;

/* Launches the kernel with nothing to do, because drivers finish compiling at the first launch. */
static ls_status warm_launch(void *user, const ls_gpu_launch *launch)
{
    device *d = user;
    ls_gpu_kernel_of kernel;
    bool first;
    ls_work_report("compiling kernels for", d->name, 0, 0);
    LS_TRY(ls_gpu_record_add(d->record, (ls_gpu_kernel_of){ .which = -1 }, launch, 0));
    if (launch->is_call)
        return LS_OK;
    LS_TRY(ls_gpu_kernel(d->kernels, launch->module, launch->kernel, &kernel, &first));
    if (!first)
        return LS_OK;
    ls_gpu_grid idle = { .kernel = launch->kernel,
                         .places = ls_gpu_places(&kernel, launch),
                         .table = { d->own, ZEROS_AT },
                         .items = { 1, 1 },
                         .lanes = 1,
                         .group = ls_gpu_group_of(d, launch) };
    for (int i = 0; i < idle.places; i++)
        idle.memory[i] = d->own;
    LS_TRY(d->driver->launch(d->own_device, kernel.handle, &idle));
    return ls_fail_within(d->driver->finish(d->own_device), "%s: kernel %s does not run", d->name, launch->kernel);
}

/* With the scratch limits that follow from the device's memory limit. */
static ls_gpu_lowering lowering_for(device *d, const plan *p, ls_gpu_launcher *launch, int lane)
{
    size_t limit = p->program.limit;
    ls_gpu_lowering l = ls_gpu_lowering_of(d, launch, lane);
    l.lanes = p->program.lanes;
    l.scratch.offset += (size_t)lane * p->scratch;
    l.parts_limit = (int64_t)(limit > 0 && limit / PARTS_SHARE < PARTS_MOST ? limit / PARTS_SHARE : PARTS_MOST);
    l.workspace_limit = ls_gpu_workspace_limit(limit);
    return l;
}

size_t ls_gpu_workspace_limit(size_t limit)
{
    size_t most = WORKSPACE_MOST;
    while (limit > 0 && most > limit / WORKSPACE_SHARE)
        most /= 2;
    return most;
}

/* Joins of lanes, checks and small uploads. Few strategies join between devices, so these are left
 * out. */
static ls_status warm_joins(device *d)
{
    ls_gpu_lowering l = ls_gpu_lowering_of(d, warm_launch, 0);
    ls_memory_place own = { d->own, 0 };
    for (int i = 0; i < 2; i++) {
        ls_dtype dtype = i ? LS_F64 : LS_F32;
        ls_join_lanes_call call = {
            .kind = LS_JOIN_SUM, .dtype = dtype, .count = 1, .lane = &own, .lanes = 1, .to = own
        };
        LS_TRY(ls_gpu_join_lanes(&l, &call, d->tree));
    }
    ls_gpu_flat nothing = { .n = 0 };
    LS_TRY(warm_launch(d, &(ls_gpu_launch){ .module = LS_GPU_MOVES,
                                            .kernel = "scatter",
                                            .place = { own, own },
                                            .places = 2,
                                            .numbers = &nothing,
                                            .size = sizeof(nothing),
                                            .items = { 1, 1 } }));
    return ls_gpu_finite(&l, LS_F32, own, 1, own, 1);
}

/* Lowers the step at *step, or the chain or tail that begins there, and advances both. */
static ls_status lower_next(ls_gpu_lowering *l, const plan *p, const ls_program_run *run, int *step, int *chain)
{
    const ls_gpu_chain_steps *c = &p->chains[*chain];
    if (*chain < p->chain_count && c->first == *step) {
        *step += c->count;
        ++*chain;
        return (c->tail ? ls_gpu_lower_tail : ls_gpu_lower_chain)(l, &p->program, c, run);
    }
    return ls_gpu_lower(l, &p->program.steps[(*step)++], run);
}

static ls_status find_chains(device *d, plan *p)
{
    p->chains = calloc((size_t)p->program.step_count + 1, sizeof(*p->chains));
    if (!p->chains)
        return ls_fail(LS_ERR_MEMORY, "no memory for the chains of a program of %d steps", p->program.step_count);
    for (int i = 0; i < p->program.step_count;) {
        ls_gpu_chain_steps *c = &p->chains[p->chain_count];
        bool taken = true;
        int count = ls_gpu_find_tail(&p->program, i, d->driver->ask != NULL, c);
        if (count > 1) {
            p->chain_count++;
        } else if ((count = ls_gpu_find_chain(&p->program, i, c)) > 1) {
            ls_work_report("compiling kernels for", d->name, 0, 0);
            LS_TRY(ls_gpu_kernels_chain(d->kernels, c, &taken));
            c->any = !taken;
            p->chain_count++;
        }
        i += count;
    }
    return LS_OK;
}

/* There are two sizes of lanes, which differ by one sample. */
static ls_status warm_steps(device *d, plan *p, int64_t samples)
{
    ls_gpu_lowering l = lowering_for(d, p, warm_launch, 0);
    ls_program_run run = { .samples = samples, .batch = p->program.batch };
    size_t bytes;
    ls_gpu_record_begin(d->record, p->program.lanes);
    for (int i = 0, chain = 0, step = 0; i < p->program.step_count; step = i) {
        ls_gpu_record_step(d->record);
        LS_TRY(lower_next(&l, p, &run, &i, &chain));
        if (l.needs > p->scratch) {
            p->scratch = l.needs;
            p->scratch_step = step;
        }
        if (l.shared_needs > p->shared) {
            p->shared = l.shared_needs;
            p->shared_step = step;
        }
    }
    (void)ls_gpu_record_table(d->record, &bytes);
    return ls_gpu_need_table(d, bytes);
}

/* The library's workspace follows the lanes' at a multiple of 256. */
static size_t scratch_bytes(const plan *p)
{
    return ALIGNED(p->scratch * (size_t)p->program.lanes);
}

void ls_gpu_plan_scratch(void *device_, const void *plan_, ls_plan_scratch *out)
{
    const plan *p = plan_;
    size_t bytes = scratch_bytes(p) + p->shared;
    (void)device_;
    out->bytes = bytes > 0 ? bytes + ALIGNMENT : 0; /* room to align the start */
    out->step = p->shared > scratch_bytes(p) ? p->shared_step : p->scratch_step;
}

/* Waits: queued work may still use the old memory. */
ls_status ls_gpu_use_scratch(void *device_, ls_memory_place at, size_t bytes)
{
    device *d = device_;
    size_t skipped = ALIGNED(at.offset) - at.offset;
    ls_status status = ls_gpu_send_waiting(d);
    if (status == LS_OK)
        status = d->driver->finish(d->own_device);
    if (status != LS_OK && at.memory)
        return status;
    d->scratch = (ls_memory_place){ at.memory, at.offset + skipped };
    d->scratch_bytes = bytes > skipped ? bytes - skipped : 0;
    return status;
}

static ls_status warm_program(device *d, plan *p)
{
    ls_gpu_record_begin(d->record, 1);
    LS_TRY(warm_joins(d));
    LS_TRY(find_chains(d, p));
    if (p->program.samples > 1)
        LS_TRY(warm_steps(d, p, p->program.samples - 1));
    LS_TRY(warm_steps(d, p, p->program.samples));
    ls_gpu_kernels_keep(d->kernels);
    return LS_OK;
}

static bool is_update(const ls_program_step *s)
{
    bool whole = s->node->op == LS_OP_apply;
    for (int i = 0; whole && i < s->node->input_count; i++)
        whole = !s->in[i].per_sample;
    for (int i = 0; whole && i < s->state_count; i++)
        whole = !s->state[i].per_sample && !s->new_state[i].per_sample;
    return whole;
}

static bool has_updates(const ls_program *program)
{
    bool all = program->step_count > 0;
    for (int i = 0; all && i < program->step_count; i++)
        all = is_update(&program->steps[i]);
    return all;
}

ls_status ls_gpu_plan_create(void *device_, const ls_program *program, void **out)
{
    device *d = device_;
    if (program->step_count >= STEPS_MOST || program->lanes > MOST_LANES)
        return ls_fail(LS_ERR_UNSUPPORTED, "a program has %d steps for %d lanes", program->step_count, program->lanes);
    plan *p = calloc(1, sizeof(*p));
    if (!p)
        return ls_fail(LS_ERR_MEMORY, "no memory for a program of %d steps", program->step_count);
    ls_status status = ls_gpu_send_waiting(d); /* the record is reused below */
    p->program = *program;
    p->program.lanes = program->lanes > 1 ? program->lanes : 1;
    p->updates = has_updates(program);
    if (p->updates && p->program.lanes < TOGETHER) /* merged updates each need their own scratch */
        p->program.lanes = TOGETHER;
    if (status == LS_OK)
        status = warm_program(d, p);
    ls_work_end();
    if (status != LS_OK) {
        free(p->chains);
        free(p);
        return status;
    }
    *out = p;
    return LS_OK;
}

void ls_gpu_plan_destroy(void *device_, void *plan_)
{
    device *d = device_;
    plan *p = plan_;
    (void)ls_gpu_send_waiting(d);
    d->driver->finish(d->own_device);
    ls_gpu_forget_checks(d, &p->program);
    ls_gpu_saved_free(&p->last.launches);
    free(p->last.runs);
    free(p->chains);
    free(p);
}

/* Whether everything that the launches depend on is the same. */
static bool is_last(const device *d, const plan *p, const ls_program_run *runs, int count)
{
    const last_run *last = &p->last;
    if (last->count != count || last->pending != d->pending_count || last->scratch.memory != d->scratch.memory ||
        last->scratch.offset != d->scratch.offset)
        return false;
    for (int v = 0; v < count; v++) {
        const ls_program_run *a = &last->runs[v], *b = &runs[v];
        if (a->samples != b->samples || a->row != b->row || a->first != b->first || a->batch != b->batch)
            return false;
        for (int i = 0; i < LS_ROOM_COUNT; i++)
            if (a->room[i].memory != b->room[i].memory || a->room[i].offset != b->room[i].offset)
                return false;
    }
    return true;
}

static ls_status save_last(device *d, plan *p, const ls_program_run *runs, int count, bool checks)
{
    last_run *last = &p->last;
    last->count = 0;
    if (!last->runs && !(last->runs = calloc((size_t)p->program.lanes, sizeof(*last->runs))))
        return ls_fail(LS_ERR_MEMORY, "no memory for %d lanes", p->program.lanes);
    LS_TRY(ls_gpu_record_save(d->record, &last->launches));
    memcpy(last->runs, runs, (size_t)count * sizeof(*runs));
    last->pending = d->pending_count;
    last->scratch = d->scratch;
    last->checks = checks;
    last->count = count;
    return LS_OK;
}

static ls_status lower_lanes(device *d, plan *p, const ls_program_run *runs, int count, bool *checks, size_t *needs,
                             size_t *shared)
{
    bool random = false;
    LS_TRY(ls_gpu_begin_launches(d, count));
    for (int i = 0, chain = 0, next = 0, next_chain = 0; i < p->program.step_count; i = next, chain = next_chain) {
        unsigned made = 0;
        ls_gpu_record_step(d->record);
        for (int v = 0; v < count; v++) {
            ls_gpu_lowering l = lowering_for(d, p, ls_gpu_record_launch, v);
            l.made = &made;
            l.shared = (ls_memory_place){ d->scratch.memory, d->scratch.offset + scratch_bytes(p) };
            l.step = d->pending_count * STEPS_MOST + i;
            ls_gpu_record_lane(d->record);
            next = i;
            next_chain = chain;
            LS_TRY(lower_next(&l, p, &runs[v], &next, &next_chain));
            *checks = *checks || l.checks;
            random = random || l.random;
            *needs = l.needs > *needs ? l.needs : *needs;
            *shared = l.shared_needs > *shared ? l.shared_needs : *shared;
        }
    }
    p->last.count = 0;
    return random ? LS_OK : save_last(d, p, runs, count, *checks);
}

static ls_memory_place place_of(const ls_program_run *run, const ls_program_slot *slot)
{
    return (ls_memory_place){ run->room[slot->room].memory, run->room[slot->room].offset + slot->offset };
}

static ls_status record_update(device *d, const plan *p, const ls_program_step *s, const ls_program_run *run)
{
    next_together next = ls_gpu_next_together(d, UPDATES);
    for (int i = 0; i < s->node->input_count; i++)
        ls_gpu_add_piece(&d->last.read, place_of(run, &s->in[i]), s->in[i].unit);
    for (int i = 0; i < s->state_count; i++) {
        ls_gpu_add_piece(&d->last.read, place_of(run, &s->state[i]), s->state[i].unit);
        ls_gpu_add_piece(&d->last.written, place_of(run, &s->new_state[i]), s->new_state[i].unit);
    }
    LS_TRY(ls_gpu_begin_together(d, next));
    ls_gpu_lowering l = lowering_for(d, p, ls_gpu_record_launch, d->last.count - 1);
    return ls_gpu_lower(&l, s, run);
}

static ls_status record_updates(device *d, const plan *p, const ls_program_run *run)
{
    if (d->last.updates_of != p)
        d->last.kind = ALONE; /* another plan's scratch may be elsewhere */
    d->last.updates_of = p;
    for (int i = 0; i < p->program.step_count; i++) {
        ls_status status = record_update(d, p, &p->program.steps[i], run);
        /* The next update may start a new part of the list. */
        LS_TRY(ls_gpu_end_launches(d, status));
    }
    return LS_OK;
}

static ls_status record_lanes(device *d, plan *p, const ls_program_run *runs, int count, bool *checks, size_t *needs,
                              size_t *shared)
{
    if (count == 1 && p->updates)
        return record_updates(d, p, runs);
    if (!is_last(d, p, runs, count))
        return lower_lanes(d, p, runs, count, checks, needs, shared);
    LS_TRY(ls_gpu_begin_launches(d, count));
    *checks = p->last.checks;
    return ls_gpu_record_again(d->record, &p->last.launches);
}

ls_status ls_gpu_plan_run_lanes(void *device_, void *plan_, const ls_program_run *runs, int count)
{
    device *d = device_;
    plan *p = plan_;
    size_t needs = 0, shared = 0;
    bool checks = false;
    if (count > p->program.lanes)
        return ls_fail(LS_ERR_INVALID, "%d lanes of a program that was made for %d", count, p->program.lanes);
    if (d->pending_count == PENDING) {
        LS_TRY(ls_gpu_send_waiting(d));
        LS_TRY(ls_gpu_report_faults(d));
    }
    LS_TRY(ls_gpu_end_launches(d, record_lanes(d, p, runs, count, &checks, &needs, &shared)));
    if (needs > p->scratch || shared > p->shared || scratch_bytes(p) + p->shared > d->scratch_bytes) {
        ls_gpu_record_drop(d->record);
        d->last.kind = ALONE;
        p->last.count = 0;
        return ls_fail(LS_ERR_INTERNAL,
                       "%s: kernels need %zu bytes of scratch memory per lane and %zu for all lanes: %zu and %zu were "
                       "planned, %zu are available",
                       d->name, needs, shared, p->scratch, p->shared, d->scratch_bytes);
    }
    if (checks)
        ls_gpu_check_later(d, &p->program, count);
    if (count == 1)
        return LS_OK;
    LS_TRY(ls_gpu_send_launches(d));
    return d->driver->flush ? d->driver->flush(d->own_device) : LS_OK;
}

ls_status ls_gpu_plan_run(void *device_, void *plan_, const ls_program_run *run)
{
    return ls_gpu_plan_run_lanes(device_, plan_, run, 1);
}
