/* Data errors that programs found, and checks for finite values (device.h). */
#include "backend/gpu/device.h"

ls_status ls_gpu_report_faults(device *d)
{
    static const ls_gpu_fault none[MOST_LANES];
    size_t bytes = (size_t)d->pending_lanes * sizeof(*none);
    int lane = 0;
    if (d->pending_count == 0)
        return LS_OK;
    d->pending_count = 0;
    LS_TRY(d->driver->read(d->own_device, d->own, FAULTS_AT, d->faults, bytes));
    while (lane < d->pending_lanes && d->faults[lane].kind == LS_GPU_FAULT_NONE)
        lane++;
    if (lane == d->pending_lanes)
        return LS_OK;
    LS_TRY(ls_gpu_write_now(d, d->own, FAULTS_AT, none, bytes));
    const ls_gpu_fault *fault = &d->faults[lane];
    return ls_gpu_fault_status(fault, &d->pending[fault->step / STEPS_MOST]->steps[fault->step % STEPS_MOST]);
}

void ls_gpu_check_later(device *d, const ls_program *program, int lanes)
{
    d->pending_lanes = d->pending_count == 0 || lanes > d->pending_lanes ? lanes : d->pending_lanes;
    d->pending[d->pending_count++] = program;
}

void ls_gpu_forget_checks(device *d, const ls_program *program)
{
    for (int i = 0; i < d->pending_count; i++)
        if (d->pending[i] == program)
            (void)ls_gpu_report_faults(d);
}

static bool is_real(const ls_finite_call *call)
{
    return (call->dtype == LS_F32 || call->dtype == LS_F64) && call->count > 0;
}

static size_t flags_of(const ls_finite_call *call)
{
    int64_t wanted = (call->count + 63) / 64;
    return is_real(call) ? (size_t)(wanted < LS_GPU_FLAGS ? wanted : LS_GPU_FLAGS) : 0;
}

/* Values in the same memory share one launch. */
static ls_status record_checks(device *d, const ls_finite_call *list, int count)
{
    size_t at = FLAGS_AT;
    ls_gpu_record_step(d->record);
    for (int i = 0; i < count; i++) {
        ls_gpu_lowering l = ls_gpu_lowering_of(d, ls_gpu_record_launch, 0);
        size_t flags = flags_of(&list[i]);
        ls_gpu_record_lane(d->record);
        if (flags > 0)
            LS_TRY(ls_gpu_finite(&l, list[i].dtype, list[i].from, list[i].count, (ls_memory_place){ d->own, at },
                                 (int64_t)flags));
        at += flags;
    }
    return LS_OK;
}

static ls_status check_some(device *d, const ls_finite_call *list, int count, size_t flags, bool *out)
{
    const unsigned char *flag = d->flags;
    LS_TRY(ls_gpu_begin_launches(d, count));
    LS_TRY(ls_gpu_end_launches(d, record_checks(d, list, count)));
    LS_TRY(ls_gpu_send_launches(d));
    if (flags > 0)
        LS_TRY(d->driver->read(d->own_device, d->own, FLAGS_AT, d->flags, flags));
    for (int i = 0; i < count; i++) {
        const unsigned char *end = flag + flags_of(&list[i]);
        out[i] = true;
        for (; flag < end; flag++)
            out[i] = out[i] && !*flag;
    }
    return LS_OK;
}

ls_status ls_gpu_are_finite(void *device_, const ls_finite_call *list, int count, bool *out)
{
    device *d = device_;
    size_t flags = 0;
    int first = 0;
    LS_TRY(ls_gpu_send_waiting(d));
    LS_TRY(ls_gpu_report_faults(d));
    for (int i = 0; i < count; i++) {
        if (flags + flags_of(&list[i]) > FLAGS) {
            LS_TRY(check_some(d, list + first, i - first, flags, out + first));
            first = i;
            flags = 0;
        }
        flags += flags_of(&list[i]);
    }
    LS_TRY(check_some(d, list + first, count - first, flags, out + first));
    return flags > 0 ? LS_OK : d->driver->finish(d->own_device);
}

ls_status ls_gpu_is_finite(void *device_, ls_dtype dtype, ls_memory_place from, int64_t count, bool *out)
{
    return ls_gpu_are_finite(device_, &(ls_finite_call){ dtype, from, count }, 1, out);
}
