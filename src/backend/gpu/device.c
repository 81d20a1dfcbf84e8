/* A device that runs kernels of this folder, as a backend (lockstep/backend.h): one queue, in order; what was asked for
 * is done later, and waited for by download, finite and sync. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/gpu/driver.h"
#include "base/work.h"

#define STAGES     16 /* uploads that may wait in a queue */
#define PENDING    64 /* programs that may have found something wrong, and were not asked yet */
#define FAULT_AT   0  /* in the device's own buffer, in bytes */
#define FLAGS_AT   256
#define OWN_BYTES  (FLAGS_AT + LS_GPU_FLAGS)
#define STEPS_MOST (1 << 20) /* of a program: faults name theirs beside its number among the pending */

/* Host memory on its way to the device, until `done`. */
typedef struct stage {
    void *bytes;
    size_t room;
    void *done; /* NULL: nothing waits */
} stage;

typedef struct plan {
    ls_program program;
} plan;

typedef struct device {
    const ls_gpu_driver *driver;
    void *own_device; /* the driver's */
    const char *name;
    const ls_gpu_tuning *tuning;
    ls_gpu_kernels *kernels;
    void *own;     /* memory: a fault, and flags of `finite` */
    void *scratch; /* memory for partial sums; the largest that any plan needs */
    size_t scratch_bytes;
    stage stages[STAGES];
    int next_stage;
    struct {
        const plan *plan;
        ls_program_run run;
    } pending[PENDING];
    int pending_count;
} device;

/* ---- Opening ---- */

static void *host_alloc(device *d, size_t bytes)
{
    return d->driver->host_alloc ? d->driver->host_alloc(d->own_device, bytes) : malloc(bytes);
}

static void host_free(device *d, void *bytes)
{
    if (!d->driver->host_free)
        free(bytes);
    else if (bytes)
        d->driver->host_free(d->own_device, bytes);
}

void ls_gpu_close(void *device_)
{
    device *d = device_;
    d->driver->finish(d->own_device);
    for (int i = 0; i < STAGES; i++) {
        if (d->stages[i].done)
            d->driver->wait(d->own_device, d->stages[i].done);
        host_free(d, d->stages[i].bytes);
    }
    if (d->own)
        d->driver->free(d->own_device, d->own);
    if (d->scratch)
        d->driver->free(d->own_device, d->scratch);
    ls_gpu_kernels_destroy(d->kernels);
    d->driver->close(d->own_device);
    free(d);
}

/* Writes a few bytes, and waits. */
static ls_status write_now(device *d, void *memory, size_t offset, const void *from, size_t bytes)
{
    void *done = NULL;
    LS_TRY(d->driver->write(d->own_device, memory, offset, from, bytes, &done));
    return d->driver->wait(d->own_device, done);
}

ls_status ls_gpu_open(const ls_gpu_opening *opening, void **out)
{
    static const char zeros[OWN_BYTES];
    device *d = calloc(1, sizeof(*d));
    if (!d) {
        opening->driver->close(opening->device);
        return ls_fail(LS_ERR_MEMORY, "no memory for %s", opening->name);
    }
    d->driver = opening->driver;
    d->own_device = opening->device;
    d->name = opening->name;
    d->tuning = opening->tuning;
    d->kernels = ls_gpu_kernels_create(opening);
    ls_status status = d->kernels ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for kernels");
    if (status == LS_OK)
        status = d->driver->alloc(d->own_device, OWN_BYTES, &d->own);
    if (status == LS_OK)
        status = write_now(d, d->own, 0, zeros, OWN_BYTES);
    if (status != LS_OK) {
        ls_gpu_close(d);
        return status;
    }
    *out = d;
    return LS_OK;
}

/* ---- Memory ---- */

ls_status ls_gpu_alloc(void *device_, size_t bytes, void **memory)
{
    device *d = device_;
    return ls_fail_within(d->driver->alloc(d->own_device, bytes, memory), "%zu bytes", bytes);
}

void ls_gpu_free(void *device_, void *memory)
{
    device *d = device_;
    d->driver->finish(d->own_device);
    d->driver->free(d->own_device, memory);
}

/* The next piece of host memory that nothing waits in. */
static ls_status next_stage(device *d, size_t bytes, stage **out)
{
    stage *s = &d->stages[d->next_stage];
    d->next_stage = (d->next_stage + 1) % STAGES;
    if (s->done) {
        void *done = s->done;
        s->done = NULL;
        LS_TRY(d->driver->wait(d->own_device, done));
    }
    if (s->room < bytes) {
        host_free(d, s->bytes);
        s->bytes = host_alloc(d, bytes);
        s->room = s->bytes ? bytes : 0;
        if (!s->bytes)
            return ls_fail(LS_ERR_MEMORY, "no host memory for %zu bytes on their way to %s", bytes, d->name);
    }
    *out = s;
    return LS_OK;
}

ls_status ls_gpu_upload(void *device_, void *memory, size_t offset, const void *from, size_t bytes)
{
    device *d = device_;
    stage *s;
    LS_TRY(next_stage(d, bytes, &s));
    memcpy(s->bytes, from, bytes);
    return d->driver->write(d->own_device, memory, offset, s->bytes, bytes, &s->done);
}

/* What programs have found wrong with their data since they were last asked. */
static ls_status tell_faults(device *d)
{
    static const ls_gpu_fault none;
    ls_gpu_fault fault;
    if (d->pending_count == 0)
        return LS_OK;
    d->pending_count = 0;
    LS_TRY(d->driver->read(d->own_device, d->own, FAULT_AT, &fault, sizeof(fault)));
    if (fault.kind == LS_GPU_FAULT_NONE)
        return LS_OK;
    LS_TRY(write_now(d, d->own, FAULT_AT, &none, sizeof(none)));
    const ls_program *program = &d->pending[fault.step / STEPS_MOST].plan->program;
    const ls_program_step *step = &program->steps[fault.step % STEPS_MOST];
    return ls_gpu_fault_status(&fault, step, &d->pending[fault.step / STEPS_MOST].run);
}

ls_status ls_gpu_download(void *device_, void *memory, size_t offset, void *to, size_t bytes)
{
    device *d = device_;
    LS_TRY(tell_faults(d));
    return d->driver->read(d->own_device, memory, offset, to, bytes);
}

ls_status ls_gpu_copy_from(void *to_device, void *to, size_t to_offset, void *from_device, void *from,
                           size_t from_offset, size_t bytes)
{
    device *d = to_device, *other = from_device;
    stage *s;
    if (!d->driver->reaches || d->driver->reaches(d->own_device, other->own_device))
        return d->driver->copy(d->own_device, to, to_offset, other->own_device, from, from_offset, bytes);
    LS_TRY(next_stage(d, bytes, &s));
    LS_TRY(d->driver->read(other->own_device, from, from_offset, s->bytes, bytes));
    return d->driver->write(d->own_device, to, to_offset, s->bytes, bytes, &s->done);
}

/* ---- Launches ---- */

static ls_status launch_kernel(device *d, void *kernel, const ls_gpu_launch *launch)
{
    return d->driver->launch(d->own_device, kernel, launch, launch->heavy ? d->tuning->heavy : d->tuning->group);
}

static ls_status run_launch(void *user, const ls_gpu_launch *launch)
{
    device *d = user;
    void *kernel;
    bool first;
    LS_TRY(ls_gpu_kernel(d->kernels, launch->module, launch->kernel, &kernel, &first));
    return launch_kernel(d, kernel, launch);
}

/* Compiles the kernel, and lets it run with nothing to do: drivers finish compiling when a kernel is first run. */
static ls_status warm_launch(void *user, const ls_gpu_launch *launch)
{
    static const unsigned char zeros[2048];
    device *d = user;
    void *kernel;
    bool first;
    ls_work_tell("compiling kernels for", d->name, 0, 0); /* shown from the second second on */
    LS_TRY(ls_gpu_kernel(d->kernels, launch->module, launch->kernel, &kernel, &first));
    if (!first)
        return LS_OK;
    ls_gpu_launch idle = *launch;
    idle.numbers = zeros;
    idle.items[0] = idle.items[1] = 1;
    for (int i = 0; i < idle.places; i++)
        idle.place[i] = (ls_memory_place){ d->own, 0 };
    LS_TRY(launch_kernel(d, kernel, &idle));
    return ls_fail_within(d->driver->finish(d->own_device), "%s: kernel %s does not run", d->name, launch->kernel);
}

static ls_gpu_lowering lowering_of(device *d, ls_gpu_launcher *launch)
{
    return (ls_gpu_lowering){
        .tuning = d->tuning, .launch = launch, .user = d, .scratch = { d->scratch, 0 }, .fault = { d->own, FAULT_AT }
    };
}

/* ---- Programs ---- */

static ls_status need_scratch(device *d, size_t bytes)
{
    void *larger = NULL;
    if (bytes <= d->scratch_bytes)
        return LS_OK;
    LS_TRY(ls_fail_within(d->driver->alloc(d->own_device, bytes, &larger), "%zu bytes for partial sums", bytes));
    d->driver->finish(d->own_device);
    if (d->scratch)
        d->driver->free(d->own_device, d->scratch);
    d->scratch = larger;
    d->scratch_bytes = bytes;
    return LS_OK;
}

/* Joins and checks are warm before the first of them is needed. */
static ls_status warm_joins(device *d)
{
    ls_gpu_lowering l = lowering_of(d, warm_launch);
    ls_memory_place own = { d->own, 0 };
    LS_TRY(ls_gpu_join(&l, &(ls_join_call){ .kind = LS_JOIN_SUM, .dtype = LS_F32, .count = 1 }));
    LS_TRY(ls_gpu_join(&l, &(ls_join_call){ .kind = LS_JOIN_SUM, .dtype = LS_F64, .count = 1 }));
    return ls_gpu_finite(&l, LS_F32, own, 1, own);
}

static ls_status warm_program(device *d, const ls_program *program)
{
    ls_gpu_lowering l = lowering_of(d, warm_launch);
    ls_program_run most = { .samples = program->samples, .batch = program->samples };
    LS_TRY(warm_joins(d));
    for (int i = 0; i < program->step_count; i++)
        LS_TRY(ls_gpu_lower(&l, &program->steps[i], &most));
    ls_gpu_kernels_keep(d->kernels);
    return need_scratch(d, l.needs);
}

ls_status ls_gpu_plan_create(void *device_, const ls_program *program, void **out)
{
    device *d = device_;
    if (program->step_count >= STEPS_MOST)
        return ls_fail(LS_ERR_UNSUPPORTED, "a program of %d steps", program->step_count);
    plan *p = calloc(1, sizeof(*p));
    if (!p)
        return ls_fail(LS_ERR_MEMORY, "no memory for a program of %d steps", program->step_count);
    p->program = *program;
    ls_status status = warm_program(d, program);
    ls_work_end();
    if (status != LS_OK) {
        free(p);
        return status;
    }
    *out = p;
    return LS_OK;
}

void ls_gpu_plan_destroy(void *device_, void *plan_)
{
    device *d = device_;
    d->driver->finish(d->own_device);
    for (int i = 0; i < d->pending_count; i++)
        if (d->pending[i].plan == plan_)
            d->pending_count = 0; /* nobody asked: nobody needs to know */
    free(plan_);
}

ls_status ls_gpu_plan_run(void *device_, void *plan_, const ls_program_run *run)
{
    device *d = device_;
    const plan *p = plan_;
    if (d->pending_count == PENDING)
        LS_TRY(tell_faults(d));
    ls_gpu_lowering l = lowering_of(d, run_launch);
    for (int i = 0; i < p->program.step_count; i++) {
        l.step = d->pending_count * STEPS_MOST + i;
        LS_TRY(ls_gpu_lower(&l, &p->program.steps[i], run));
    }
    if (l.checks) {
        d->pending[d->pending_count].plan = p;
        d->pending[d->pending_count++].run = *run;
    }
    return d->driver->flush ? d->driver->flush(d->own_device) : LS_OK;
}

ls_status ls_gpu_join_on(void *device_, const ls_join_call *call)
{
    device *d = device_;
    size_t bytes = (size_t)call->count * ls_dtype_bytes(call->dtype);
    bool in_place = call->to.memory == call->left.memory && call->to.offset == call->left.offset;
    if (!in_place)
        LS_TRY(ls_gpu_copy_from(d, call->to.memory, call->to.offset, d, call->left.memory, call->left.offset, bytes));
    if (!call->right.memory)
        return LS_OK;
    ls_gpu_lowering l = lowering_of(d, run_launch);
    return ls_gpu_join(&l, call);
}

ls_status ls_gpu_is_finite(void *device_, ls_dtype dtype, ls_memory_place from, int64_t count, bool *out)
{
    device *d = device_;
    unsigned char flags[LS_GPU_FLAGS];
    bool finite = true;
    LS_TRY(tell_faults(d));
    if ((dtype == LS_F32 || dtype == LS_F64) && count > 0) {
        ls_gpu_lowering l = lowering_of(d, run_launch);
        LS_TRY(ls_gpu_finite(&l, dtype, from, count, (ls_memory_place){ d->own, FLAGS_AT }));
        LS_TRY(d->driver->read(d->own_device, d->own, FLAGS_AT, flags, sizeof(flags)));
        for (int i = 0; i < LS_GPU_FLAGS; i++)
            finite = finite && !flags[i];
    } else {
        LS_TRY(d->driver->finish(d->own_device));
    }
    *out = finite;
    return LS_OK;
}

ls_status ls_gpu_sync(void *device_)
{
    device *d = device_;
    LS_TRY(d->driver->finish(d->own_device));
    return tell_faults(d);
}
