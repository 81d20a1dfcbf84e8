/* An OpenCL device as a backend (lockstep/backend.h): one queue, in order; what was asked for is done later, and waited
 * for by download, finite and sync. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backend/opencl/opencl.h"
#include "base/work.h"
#include "device/context.h"

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
    ls_cl_event done; /* NULL: nothing waits */
} stage;

typedef struct plan {
    ls_program program;
} plan;

typedef struct device {
    const ls_opencl_device *what;
    const ls_cl *cl;
    ls_cl_queue queue;
    ls_opencl_programs *programs;
    ls_cl_mem own;     /* a fault, and flags of `finite` */
    ls_cl_mem scratch; /* for partial sums; the largest that any plan needs */
    size_t scratch_bytes;
    stage stages[STAGES];
    int next_stage;
    struct {
        const plan *plan;
        ls_program_run run;
    } pending[PENDING];
    int pending_count;
} device;

static ls_status failed(const device *d, const char *what, int32_t error)
{
    char why[64];
    bool memory = error == LS_CL_MEM_OBJECT_ALLOCATION_FAILURE || error == LS_CL_OUT_OF_HOST_MEMORY;
    return ls_fail(memory ? LS_ERR_MEMORY : LS_ERR_DEVICE, "%s: %s: %s", d->what->name, what,
                   ls_opencl_error(error, why));
}

#define CL_TRY(d, what, call)                                                                                          \
    do {                                                                                                               \
        int32_t cl_error_ = (call);                                                                                    \
        if (cl_error_ != LS_CL_SUCCESS)                                                                                \
            return failed(d, what, cl_error_);                                                                         \
    } while (0)

/* ---- Finding devices ---- */

static int opencl_probe(void *user)
{
    (void)user;
    return ls_opencl_get()->count;
}

static ls_status opencl_query(void *user, int number, ls_backend_device *out)
{
    const ls_opencl_device *d = &ls_opencl_get()->devices[number];
    (void)user;
    snprintf(out->about, sizeof(out->about), "%.70s; OpenCL: %.40s, driver %.20s%s%s", d->name, d->platform, d->driver,
             d->wide ? "" : "; no float64, so no kernels",
             d->subnormals ? "" : "; no float32 subnormals, so bits of its own");
    out->memory = d->memory;
    out->growth = true;
    out->only_named = d->cpu;
    return LS_OK;
}

/* Of several devices the least that all have. */
static bool opencl_supports(void *user, const ls_tensor *node)
{
    const ls_opencl *all = ls_opencl_get();
    bool rounded = true, wide = true;
    (void)user;
    for (int i = 0; i < all->count; i++) {
        rounded = rounded && all->devices[i].rounded;
        wide = wide && all->devices[i].wide;
    }
    return wide && ls_gpu_supports(node, rounded);
}

static void opencl_close(void *device_)
{
    device *d = device_;
    if (d->queue)
        d->cl->Finish(d->queue);
    for (int i = 0; i < STAGES; i++) {
        if (d->stages[i].done)
            d->cl->ReleaseEvent(d->stages[i].done);
        free(d->stages[i].bytes);
    }
    if (d->own)
        d->cl->ReleaseMemObject(d->own);
    if (d->scratch)
        d->cl->ReleaseMemObject(d->scratch);
    ls_opencl_programs_destroy(d->programs);
    if (d->queue)
        d->cl->ReleaseCommandQueue(d->queue);
    free(d);
}

static ls_status open_queue(device *d)
{
    static const char zeros[OWN_BYTES];
    int32_t error = 0;
    d->queue = d->cl->CreateCommandQueue(d->what->context, d->what->id, 0, &error);
    if (!d->queue)
        return failed(d, "no queue", error);
    d->own = d->cl->CreateBuffer(d->what->context, LS_CL_MEM_READ_WRITE, OWN_BYTES, NULL, &error);
    if (!d->own)
        return failed(d, "no memory", error);
    CL_TRY(d, "writing", d->cl->EnqueueWriteBuffer(d->queue, d->own, 1, 0, OWN_BYTES, zeros, 0, NULL, NULL));
    return LS_OK;
}

static ls_status opencl_open(void *user, int number, void **out)
{
    const ls_opencl *all = ls_opencl_get();
    (void)user;
    device *d = calloc(1, sizeof(*d));
    if (!d || number < 0 || number >= all->count) {
        free(d);
        return ls_fail(LS_ERR_MEMORY, "no memory for OpenCL device %d", number);
    }
    d->what = &all->devices[number];
    d->cl = &all->cl;
    d->programs = ls_opencl_programs_create(d->what);
    ls_status status = d->programs ? open_queue(d) : ls_fail(LS_ERR_MEMORY, "no memory for kernels");
    if (status != LS_OK) {
        opencl_close(d);
        return status;
    }
    *out = d;
    return LS_OK;
}

/* ---- Memory ---- */

static ls_status opencl_alloc(void *device_, size_t bytes, void **memory)
{
    device *d = device_;
    int32_t error = 0;
    ls_cl_mem buffer = d->cl->CreateBuffer(d->what->context, LS_CL_MEM_READ_WRITE, bytes, NULL, &error);
    if (!buffer)
        return ls_fail_within(failed(d, "no buffer", error), "%zu bytes", bytes);
    *memory = buffer;
    return LS_OK;
}

static void opencl_free(void *device_, void *memory)
{
    device *d = device_;
    d->cl->Finish(d->queue);
    d->cl->ReleaseMemObject(memory);
}

/* The next piece of host memory that nothing waits in. */
static ls_status next_stage(device *d, size_t bytes, stage **out)
{
    stage *s = &d->stages[d->next_stage];
    d->next_stage = (d->next_stage + 1) % STAGES;
    if (s->done) {
        int32_t error = d->cl->WaitForEvents(1, &s->done);
        d->cl->ReleaseEvent(s->done);
        s->done = NULL;
        CL_TRY(d, "writing", error);
    }
    if (s->room < bytes) {
        free(s->bytes);
        s->bytes = malloc(bytes);
        s->room = s->bytes ? bytes : 0;
        if (!s->bytes)
            return ls_fail(LS_ERR_MEMORY, "no host memory for %zu bytes on their way to %s", bytes, d->what->name);
    }
    *out = s;
    return LS_OK;
}

static ls_status opencl_upload(void *device_, void *memory, size_t offset, const void *from, size_t bytes)
{
    device *d = device_;
    stage *s;
    LS_TRY(next_stage(d, bytes, &s));
    memcpy(s->bytes, from, bytes);
    CL_TRY(d, "writing", d->cl->EnqueueWriteBuffer(d->queue, memory, 0, offset, bytes, s->bytes, 0, NULL, &s->done));
    return LS_OK;
}

/* What programs have found wrong with their data since they were last asked. */
static ls_status tell_faults(device *d)
{
    static const ls_gpu_fault none;
    ls_gpu_fault fault;
    if (d->pending_count == 0)
        return LS_OK;
    d->pending_count = 0;
    CL_TRY(d, "reading", d->cl->EnqueueReadBuffer(d->queue, d->own, 1, FAULT_AT, sizeof(fault), &fault, 0, NULL, NULL));
    if (fault.kind == LS_GPU_FAULT_NONE)
        return LS_OK;
    CL_TRY(d, "writing", d->cl->EnqueueWriteBuffer(d->queue, d->own, 1, FAULT_AT, sizeof(none), &none, 0, NULL, NULL));
    const ls_program *program = &d->pending[fault.step / STEPS_MOST].plan->program;
    const ls_program_step *step = &program->steps[fault.step % STEPS_MOST];
    return ls_gpu_fault_status(&fault, step, &d->pending[fault.step / STEPS_MOST].run);
}

static ls_status opencl_download(void *device_, void *memory, size_t offset, void *to, size_t bytes)
{
    device *d = device_;
    LS_TRY(tell_faults(d));
    CL_TRY(d, "reading", d->cl->EnqueueReadBuffer(d->queue, memory, 1, offset, bytes, to, 0, NULL, NULL));
    return LS_OK;
}

/* Between platforms by way of the host. */
static ls_status copy_far(device *d, void *to, size_t to_offset, const device *other, void *from, size_t from_offset,
                          size_t bytes)
{
    stage *s;
    LS_TRY(next_stage(d, bytes, &s));
    CL_TRY(other, "reading",
           d->cl->EnqueueReadBuffer(other->queue, from, 1, from_offset, bytes, s->bytes, 0, NULL, NULL));
    CL_TRY(d, "writing", d->cl->EnqueueWriteBuffer(d->queue, to, 0, to_offset, bytes, s->bytes, 0, NULL, &s->done));
    return LS_OK;
}

static ls_status opencl_copy(void *to_device, void *to, size_t to_offset, void *from_device, void *from,
                             size_t from_offset, size_t bytes)
{
    device *d = to_device;
    const device *other = from_device;
    if (d->what->context != other->what->context)
        return copy_far(d, to, to_offset, other, from, from_offset, bytes);
    CL_TRY(d, "copying", d->cl->EnqueueCopyBuffer(d->queue, from, to, from_offset, to_offset, bytes, 0, NULL, NULL));
    return LS_OK;
}

/* ---- Launches ---- */

static ls_status set_arguments(device *d, ls_cl_kernel kernel, const ls_gpu_launch *launch)
{
    uint32_t argument = 0;
    for (int i = 0; i < launch->places; i++) {
        ls_cl_mem memory = launch->place[i].memory;
        int64_t offset = (int64_t)launch->place[i].offset;
        CL_TRY(d, launch->kernel, d->cl->SetKernelArg(kernel, argument++, sizeof(memory), &memory));
        CL_TRY(d, launch->kernel, d->cl->SetKernelArg(kernel, argument++, sizeof(offset), &offset));
    }
    CL_TRY(d, launch->kernel, d->cl->SetKernelArg(kernel, argument, launch->size, launch->numbers));
    return LS_OK;
}

static ls_status enqueue(device *d, ls_cl_kernel kernel, const ls_gpu_launch *launch)
{
    size_t group = (size_t)(launch->heavy ? d->what->tuning->heavy : d->what->tuning->group);
    size_t local[2] = { group, 1 };
    size_t global[2] = { ((size_t)launch->items[0] + group - 1) / group * group, (size_t)launch->items[1] };
    CL_TRY(d, launch->kernel, d->cl->EnqueueNDRangeKernel(d->queue, kernel, 2, NULL, global, local, 0, NULL, NULL));
    return LS_OK;
}

static ls_status run_launch(void *user, const ls_gpu_launch *launch)
{
    device *d = user;
    ls_cl_kernel kernel;
    bool first;
    LS_TRY(ls_opencl_kernel(d->programs, launch->module, launch->kernel, &kernel, &first));
    LS_TRY(set_arguments(d, kernel, launch));
    return enqueue(d, kernel, launch);
}

/* Compiles the kernel, and lets it run with nothing to do: drivers finish compiling when a kernel is first run. */
static ls_status warm_launch(void *user, const ls_gpu_launch *launch)
{
    static const unsigned char zeros[2048];
    device *d = user;
    ls_cl_kernel kernel;
    bool first;
    ls_work_tell("compiling kernels for", d->what->name, 0, 0); /* shown from the second second on */
    LS_TRY(ls_opencl_kernel(d->programs, launch->module, launch->kernel, &kernel, &first));
    if (!first)
        return LS_OK;
    ls_gpu_launch idle = *launch;
    idle.numbers = zeros;
    idle.items[0] = idle.items[1] = 1;
    for (int i = 0; i < idle.places; i++)
        idle.place[i] = (ls_memory_place){ d->own, 0 };
    ls_status status = set_arguments(d, kernel, &idle);
    if (status == LS_OK)
        status = enqueue(d, kernel, &idle);
    if (status == LS_OK && d->cl->Finish(d->queue) != LS_CL_SUCCESS)
        status = ls_fail(LS_ERR_DEVICE, "%s: kernel %s does not run", d->what->name, launch->kernel);
    return status;
}

static ls_gpu_lowering lowering_of(device *d, ls_gpu_launcher *launch)
{
    return (ls_gpu_lowering){ .tuning = d->what->tuning,
                              .launch = launch,
                              .user = d,
                              .scratch = { d->scratch, 0 },
                              .fault = { d->own, FAULT_AT } };
}

/* ---- Programs ---- */

static ls_status need_scratch(device *d, size_t bytes)
{
    int32_t error = 0;
    if (bytes <= d->scratch_bytes)
        return LS_OK;
    ls_cl_mem larger = d->cl->CreateBuffer(d->what->context, LS_CL_MEM_READ_WRITE, bytes, NULL, &error);
    if (!larger)
        return ls_fail_within(failed(d, "no buffer", error), "%zu bytes for partial sums", bytes);
    d->cl->Finish(d->queue);
    if (d->scratch)
        d->cl->ReleaseMemObject(d->scratch);
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
    ls_opencl_programs_keep(d->programs);
    return need_scratch(d, l.needs);
}

static ls_status opencl_plan_create(void *device_, const ls_program *program, void **out)
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

static void opencl_plan_destroy(void *device_, void *plan_)
{
    device *d = device_;
    d->cl->Finish(d->queue);
    for (int i = 0; i < d->pending_count; i++)
        if (d->pending[i].plan == plan_)
            d->pending_count = 0; /* nobody asked: nobody needs to know */
    free(plan_);
}

static ls_status opencl_plan_run(void *device_, void *plan_, const ls_program_run *run)
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
    CL_TRY(d, "flushing", d->cl->Flush(d->queue));
    return LS_OK;
}

static ls_status opencl_join(void *device_, const ls_join_call *call)
{
    device *d = device_;
    size_t bytes = (size_t)call->count * ls_dtype_bytes(call->dtype);
    bool in_place = call->to.memory == call->left.memory && call->to.offset == call->left.offset;
    if (!in_place)
        LS_TRY(opencl_copy(d, call->to.memory, call->to.offset, d, call->left.memory, call->left.offset, bytes));
    if (!call->right.memory)
        return LS_OK;
    ls_gpu_lowering l = lowering_of(d, run_launch);
    return ls_gpu_join(&l, call);
}

static ls_status opencl_finite(void *device_, ls_dtype dtype, ls_memory_place from, int64_t count, bool *out)
{
    device *d = device_;
    unsigned char flags[LS_GPU_FLAGS];
    bool finite = true;
    LS_TRY(tell_faults(d));
    if ((dtype == LS_F32 || dtype == LS_F64) && count > 0) {
        ls_gpu_lowering l = lowering_of(d, run_launch);
        LS_TRY(ls_gpu_finite(&l, dtype, from, count, (ls_memory_place){ d->own, FLAGS_AT }));
        CL_TRY(d, "reading",
               d->cl->EnqueueReadBuffer(d->queue, d->own, 1, FLAGS_AT, sizeof(flags), flags, 0, NULL, NULL));
        for (int i = 0; i < LS_GPU_FLAGS; i++)
            finite = finite && !flags[i];
    } else {
        CL_TRY(d, "waiting", d->cl->Finish(d->queue));
    }
    *out = finite;
    return LS_OK;
}

static ls_status opencl_sync(void *device_)
{
    device *d = device_;
    CL_TRY(d, "waiting", d->cl->Finish(d->queue));
    return tell_faults(d);
}

/* ---- The table ---- */

static const ls_backend functions = {
    .size = sizeof(ls_backend),
    .kind = "OPENCL",
    .probe = opencl_probe,
    .query = opencl_query,
    .supports = opencl_supports,
    .open = opencl_open,
    .close = opencl_close,
    .alloc = opencl_alloc,
    .free = opencl_free,
    .upload = opencl_upload,
    .download = opencl_download,
    .copy = opencl_copy,
    .join = opencl_join,
    .finite = opencl_finite,
    .plan_create = opencl_plan_create,
    .plan_run = opencl_plan_run,
    .plan_destroy = opencl_plan_destroy,
    .sync = opencl_sync,
};

void ls_context_add_own_kinds(ls_context *ctx)
{
    ls_kind *kind = &ctx->kinds[ctx->kind_count++];
    kind->backend = functions;
    kind->asleep = !ls_opencl_is_expected();
    snprintf(kind->name, sizeof(kind->name), "%s", functions.kind);
}
