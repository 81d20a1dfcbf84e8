#include "fabric/protocol/frame.h"

ls_status ls_frame_check(const ls_frame *frame, int from, unsigned kinds, uint64_t most)
{
    if (frame->magic != LS_FRAME_MAGIC || frame->version != LS_FRAME_VERSION || frame->from != (uint32_t)from ||
        frame->kind >= LS_FRAME_KINDS || !(kinds >> frame->kind & 1))
        return ls_fail(LS_ERR_PEER,
                       "worker %d sent an invalid frame (magic %08x, version %u, kind %u, from %u; this is version %d)",
                       from, frame->magic, frame->version, frame->kind, frame->from, LS_FRAME_VERSION);
    if (frame->bytes > most)
        return ls_fail(LS_ERR_PEER, "worker %d announced %llu bytes in a frame of kind %u; the limit is %llu", from,
                       (unsigned long long)frame->bytes, frame->kind, (unsigned long long)most);
    return LS_OK;
}

ls_status ls_frame_write(const ls_transport_table *table, ls_connection *to, const ls_frame *frame, const void *body,
                         size_t *done)
{
    const size_t head = sizeof(*frame);
    size_t moved = 0, from = *done > head ? *done - head : 0;
    struct iovec parts[2];
    int count = 0;
    if (*done < head)
        parts[count++] = (struct iovec){ (char *)frame + *done, head - *done };
    if (frame->bytes > from)
        parts[count++] = (struct iovec){ (char *)body + from, (size_t)frame->bytes - from };
    LS_TRY(table->write(to, parts, count, &moved));
    *done += moved;
    return LS_OK;
}

ls_status ls_frame_read(const ls_transport_table *table, ls_connection *from, ls_frame *frame, void *body, size_t *done)
{
    const size_t head = sizeof(*frame);
    size_t moved = 0;
    struct iovec part = { (char *)frame + *done, head - *done };
    if (*done >= head)
        part = (struct iovec){ (char *)body + (*done - head), (size_t)frame->bytes - (*done - head) };
    LS_TRY(table->read(from, &part, 1, &moved));
    *done += moved;
    return LS_OK;
}
