/* Merges joins or updates that touch different memory into one launch (device.h). */
#include <string.h>

#include "backend/gpu/device.h"

void ls_gpu_add_piece(pieces *to, ls_memory_place at, size_t bytes)
{
    if (to->count < MOST_TOGETHER)
        to->list[to->count] = (piece){ at.memory, at.offset, at.offset + bytes };
    to->count++; /* may exceed the maximum */
}

/* Pieces from number `first` on against the first `count` others. */
static bool touch(const pieces *some, int first, const pieces *others, int count)
{
    for (int i = first; i < some->count; i++)
        for (int k = 0; k < count; k++) {
            const piece *a = &some->list[i], *b = &others->list[k];
            if (a->memory == b->memory && a->from < b->end && b->from < a->end)
                return true;
        }
    return false;
}

/* Discards the pieces of pending launches of another kind. */
next_together ls_gpu_next_together(device *d, together_kind kind)
{
    if (d->last.kind != kind)
        d->last.read.count = d->last.written.count = 0;
    return (next_together){ kind, d->last.read.count, d->last.written.count };
}

ls_status ls_gpu_begin_together(device *d, next_together next)
{
    together *t = &d->last;
    int read = next.read, written = next.written;
    bool few = t->read.count <= MOST_TOGETHER && t->written.count <= MOST_TOGETHER;
    if (few && t->kind == next.kind && t->count < TOGETHER && !touch(&t->written, written, &t->written, written) &&
        !touch(&t->written, written, &t->read, read) && !touch(&t->read, read, &t->written, written)) {
        t->count++;
        ls_gpu_record_lane(d->record);
        return LS_OK;
    }
    LS_TRY(ls_gpu_begin_launches(d, TOGETHER));
    t->count = 1;
    if (!few)
        return LS_OK;
    for (int i = 0; i < 2; i++) { /* keep only the new pieces */
        pieces *p = i ? &t->written : &t->read;
        p->count -= i ? written : read;
        memmove(p->list, p->list + (i ? written : read), (size_t)p->count * sizeof(*p->list));
    }
    t->kind = next.kind;
    return LS_OK;
}

ls_status ls_gpu_join_lanes_on(void *device_, const ls_join_lanes_call *call)
{
    device *d = device_;
    for (int v = 0; v < call->lanes; v++)
        if (call->lanes > MOST_LANES || (call->lane[v].memory && call->lane[v].memory != call->to.memory))
            return ls_fail(LS_ERR_INVALID, "%d lanes: up to %d can be joined, in one memory", call->lanes, MOST_LANES);
    next_together next = ls_gpu_next_together(d, JOINS);
    size_t bytes = (size_t)call->count * ls_dtype_bytes(call->dtype);
    for (int v = 0; v < call->lanes; v++)
        if (call->lane[v].memory)
            ls_gpu_add_piece(&d->last.read, call->lane[v], bytes);
    ls_gpu_add_piece(&d->last.written, call->to, bytes);
    LS_TRY(ls_gpu_begin_together(d, next));
    ls_gpu_lowering l = ls_gpu_lowering_of(d, ls_gpu_record_launch, 0);
    return ls_gpu_end_launches(d, ls_gpu_join_lanes(&l, call, d->tree));
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
    LS_TRY(ls_gpu_begin_launches(d, 1));
    ls_gpu_lowering l = ls_gpu_lowering_of(d, ls_gpu_record_launch, 0);
    return ls_gpu_end_launches(d, ls_gpu_join(&l, call));
}
