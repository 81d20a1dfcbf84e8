/* The tests' GPU backend: what it counts, the queue of a device, and the thread that works it off.
 * See gpu_private.h. / */
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "gpu_private.h"

/* ---- What it counts ---- */

static const char *const call_names[GPU_CALLS] = { "open", "alloc",  "upload",      "download", "copy",
                                                   "join", "finite", "plan_create", "plan_run", "sync" };

const char *gpu_call_name(gpu_call call)
{
    return call_names[call];
}

gpu_counts gpu_counted(gpu *g)
{
    pthread_mutex_lock(&g->mutex);
    gpu_counts counts = g->counts;
    pthread_mutex_unlock(&g->mutex);
    return counts;
}

static void set_failure(gpu *g, gpu_call call, failure f)
{
    pthread_mutex_lock(&g->mutex);
    g->failures[call] = f;
    pthread_mutex_unlock(&g->mutex);
}

void gpu_fail_next(gpu *g, gpu_call call, int nth)
{
    set_failure(g, call, (failure){ .in = nth });
}

void gpu_fail_late(gpu *g, gpu_call call, int nth)
{
    bool queued = call == GPU_UPLOAD || call == GPU_COPY || call == GPU_JOIN || call == GPU_RUN;
    set_failure(g, call, (failure){ .in = nth, .late = queued });
}

void gpu_lose(gpu *g, int device, gpu_call call, int nth)
{
    pthread_mutex_lock(&g->mutex);
    g->losses[device] = (loss){ .call = call, .in = nth };
    pthread_mutex_unlock(&g->mutex);
}

bool gpu_is_lost(gpu *g, int device, gpu_call call)
{
    pthread_mutex_lock(&g->mutex);
    loss *l = &g->losses[device];
    l->lost = l->lost || (l->in > 0 && l->call == call && --l->in == 0);
    bool lost = l->lost;
    pthread_mutex_unlock(&g->mutex);
    return lost;
}

bool gpu_count_call(gpu *g, gpu_call call, size_t bytes, bool *late)
{
    pthread_mutex_lock(&g->mutex);
    g->counts.calls[call]++;
    g->counts.bytes[call] += bytes;
    failure *f = &g->failures[call];
    bool fails = f->in > 0 && --f->in == 0;
    *late = fails && f->late;
    pthread_mutex_unlock(&g->mutex);
    return fails && !*late;
}

void gpu_count_change(gpu *g, int *count, int by)
{
    pthread_mutex_lock(&g->mutex);
    *count += by;
    pthread_mutex_unlock(&g->mutex);
}

bool gpu_count_memory(device *d, size_t bytes, bool taken)
{
    gpu *g = d->gpu;
    size_t *used = &g->used[d->number];
    pthread_mutex_lock(&g->mutex);
    bool fits = !taken || bytes <= g->settings.memory - *used;
    if (fits) {
        *used += taken ? bytes : 0 - bytes;
        g->counts.memory += taken ? bytes : 0 - bytes;
        g->counts.buffers += taken ? 1 : -1;
    }
    pthread_mutex_unlock(&g->mutex);
    return fits;
}

ls_status gpu_misuse(device *d, const char *format, ...)
{
    char text[MESSAGE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    gpu_count_change(d->gpu, &d->gpu->counts.misuses, 1);
    return ls_backend_fail(LS_ERR_INTERNAL, "GPU:%d is misused: %s", d->number, text);
}

void gpu_hold(gpu *g, bool held)
{
    pthread_mutex_lock(&g->mutex);
    g->held = held;
    pthread_cond_broadcast(&g->let_go);
    pthread_mutex_unlock(&g->mutex);
}

static void wait_while_held(gpu *g)
{
    pthread_mutex_lock(&g->mutex);
    while (g->held)
        pthread_cond_wait(&g->let_go, &g->mutex);
    pthread_mutex_unlock(&g->mutex);
}

/* ---- A device's queue, as callers see it ---- */

command *gpu_claim(device *d, kind kind)
{
    pthread_mutex_lock(&d->mutex);
    while (d->asked - d->done == d->length)
        pthread_cond_wait(&d->changed, &d->mutex);
    command *c = &d->ring[d->asked % d->length];
    pthread_mutex_unlock(&d->mutex);
    *c = (command){ .kind = kind, .staging = c->staging, .staging_bytes = c->staging_bytes };
    return c;
}

void gpu_post(device *d)
{
    pthread_mutex_lock(&d->mutex);
    d->asked++;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->mutex);
}

void gpu_wait_idle(device *d)
{
    pthread_mutex_lock(&d->mutex);
    while (d->done < d->asked)
        pthread_cond_wait(&d->changed, &d->mutex);
    pthread_mutex_unlock(&d->mutex);
}

ls_status gpu_wait_and_tell(device *d)
{
    gpu_wait_idle(d);
    pthread_mutex_lock(&d->mutex);
    ls_status status = d->status;
    d->status = LS_OK;
    pthread_mutex_unlock(&d->mutex);
    return status == LS_OK ? LS_OK : ls_backend_fail(status, "%s", d->message); /* idle: it is not written */
}

ls_status gpu_stage(device *d, command *c, size_t bytes)
{
    if (bytes > c->staging_bytes) {
        unsigned char *staging = realloc(c->staging, bytes);
        if (!staging)
            return ls_backend_fail(LS_ERR_MEMORY, "GPU:%d: no host memory for %zu bytes on the way", d->number, bytes);
        c->staging = staging;
        c->staging_bytes = bytes;
    }
    return LS_OK;
}

/* ---- The thread ---- */

/* The first failure is kept; what comes after it is carried out all the same. */
LS_PRINTF(3, 4) static void record(device *d, ls_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&d->mutex);
    if (d->status == LS_OK) {
        d->status = status;
        vsnprintf(d->message, sizeof d->message, format, arguments);
    }
    pthread_mutex_unlock(&d->mutex);
    va_end(arguments);
}

static bool has_failed(device *d)
{
    pthread_mutex_lock(&d->mutex);
    bool failed = d->status != LS_OK;
    pthread_mutex_unlock(&d->mutex);
    return failed;
}

const char *gpu_node_name(const ls_tensor *node)
{
    const char *name = ls_tensor_name(node);
    return *name ? name : ls_tensor_op(node);
}

size_t gpu_slot_begin(const ls_program_slot *slot, const ls_program_run *run)
{
    return run->room[slot->room].offset + slot->offset +
           (slot->per_sample && slot->kept ? slot->unit * (size_t)run->row : 0);
}

size_t gpu_slot_end(const ls_program_slot *slot, const ls_program_run *run)
{
    return gpu_slot_begin(slot, run) + slot->unit * (slot->per_sample ? (size_t)run->samples : 1);
}

static void *slot_bytes(const command *c, const ls_program_slot *slot)
{
    return c->room[slot->room]->bytes + gpu_slot_begin(slot, &c->run);
}

static ls_status run_step(const command *c, const ls_program_step *step)
{
    const plan *p = c->plan;
    for (int i = 0; i < ls_tensor_input_count(step->node); i++)
        p->in[i] = slot_bytes(c, &step->in[i]);
    for (int i = 0; i < step->state_count; i++) {
        p->state[i] = slot_bytes(c, &step->state[i]);
        p->new_state[i] = slot_bytes(c, &step->new_state[i]);
    }
    return ls_reference_run(step->node, &c->run, p->in, p->state, slot_bytes(c, &step->out), p->new_state);
}

static void run_program(device *d, const command *c)
{
    const ls_program *program = &c->plan->program;
    for (int i = 0; i < program->step_count; i++) {
        const ls_program_step *step = &program->steps[i];
        ls_status status = run_step(c, step);
        if (status != LS_OK) {
            record(d, status, "GPU:%d: %s: %s", d->number, gpu_node_name(step->node), ls_last_error());
            return;
        }
    }
}

static void run_join(const command *c)
{
    ls_reference_join(c->join.kind, c->join.dtype, c->from->bytes + c->from_offset,
                      c->right ? c->right->bytes + c->join.right.offset : NULL, c->join.count,
                      c->at->bytes + c->offset);
}

/* Integers always are. */
static bool all_finite(const command *c)
{
    const void *at = c->at->bytes + c->offset;
    bool finite = true;
    for (size_t i = 0; c->dtype == LS_F32 && i < c->bytes / sizeof(float); i++)
        finite = finite && isfinite(((const float *)at)[i]);
    for (size_t i = 0; c->dtype == LS_F64 && i < c->bytes / sizeof(double); i++)
        finite = finite && isfinite(((const double *)at)[i]);
    return finite;
}

static void fail_as_told(device *d, const command *c)
{
    if (c->kind == RUN)
        record(d, LS_ERR_DEVICE, "GPU:%d: %s failed, as it was told to", d->number,
               c->plan->program.step_count > 0 ? gpu_node_name(c->plan->program.steps[0].node)
                                               : "a program of no steps");
    else
        record(d, LS_ERR_DEVICE, "GPU:%d: %s failed, as it was told to", d->number,
               c->kind == UPLOAD ? "an upload"
               : c->kind == COPY ? "a copy"
                                 : "a join");
}

static void carry_out(device *d, const command *c)
{
    if (c->fails) {
        fail_as_told(d, c);
        return;
    }
    switch (c->kind) {
    case UPLOAD:
        memcpy(c->at->bytes + c->offset, c->staging, c->bytes);
        break;
    case DOWNLOAD:
        if (!has_failed(d)) /* outputs are set on success alone */
            memcpy(c->to, c->at->bytes + c->offset, c->bytes);
        break;
    case COPY:
        memmove(c->at->bytes + c->offset, c->from->bytes + c->from_offset, c->bytes);
        break;
    case JOIN:
        run_join(c);
        break;
    case FINITE:
        if (!has_failed(d))
            *c->finite = all_finite(c);
        break;
    case RUN:
        run_program(d, c);
        break;
    }
}

static command *next_command(device *d)
{
    pthread_mutex_lock(&d->mutex);
    while (d->done == d->asked && !d->closing)
        pthread_cond_wait(&d->changed, &d->mutex);
    command *c = d->done < d->asked ? &d->ring[d->done % d->length] : NULL;
    pthread_mutex_unlock(&d->mutex);
    return c;
}

static void end_command(device *d)
{
    pthread_mutex_lock(&d->mutex);
    d->done++;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->mutex);
}

/* Sometimes at once, sometimes after others had a turn, sometimes later. */
static void dawdle(device *d)
{
    int delay = d->gpu->settings.delay;
    d->random ^= d->random << 13;
    d->random ^= d->random >> 17;
    d->random ^= d->random << 5;
    if (delay > 0 && d->random % 4 == 0)
        nanosleep(&(struct timespec){ .tv_nsec = 1000L * (long)(d->random / 4 % (uint32_t)delay) }, NULL);
    else if (delay > 0 && d->random % 4 == 1)
        sched_yield();
}

void *gpu_work(void *argument)
{
    device *d = argument;
    command *c;
    while ((c = next_command(d))) {
        dawdle(d);
        wait_while_held(d->gpu);
        carry_out(d, c);
        end_command(d);
    }
    return NULL;
}
