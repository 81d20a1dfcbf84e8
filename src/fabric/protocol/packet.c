#include "fabric/protocol/packet.h"

ls_status ls_packet_check(const ls_packet *packet, int from, unsigned kinds, uint64_t most)
{
    if (packet->magic != LS_PACKET_MAGIC || packet->version != LS_PACKET_VERSION || packet->from != (uint32_t)from ||
        packet->kind >= LS_PACKET_KINDS || !(kinds >> packet->kind & 1))
        return ls_fail(
            LS_ERR_PEER,
            "worker %d sent an invalid packet (magic %08x, version %u, kind %u, from %u; this is version %d)", from,
            packet->magic, packet->version, packet->kind, packet->from, LS_PACKET_VERSION);
    if (packet->bytes > most)
        return ls_fail(LS_ERR_PEER, "worker %d announced %llu bytes in a packet of kind %u; the limit is %llu", from,
                       (unsigned long long)packet->bytes, packet->kind, (unsigned long long)most);
    return LS_OK;
}

ls_status ls_packet_write(const ls_transport_table *table, ls_connection *to, const ls_packet *packet, const void *body,
                          size_t *done)
{
    const size_t head = sizeof(*packet);
    size_t moved = 0, from = *done > head ? *done - head : 0;
    struct iovec parts[2];
    int count = 0;
    if (*done < head)
        parts[count++] = (struct iovec){ (char *)packet + *done, head - *done };
    if (packet->bytes > from)
        parts[count++] = (struct iovec){ (char *)body + from, (size_t)packet->bytes - from };
    LS_TRY(table->write(to, parts, count, &moved));
    *done += moved;
    return LS_OK;
}

ls_status ls_packet_read(const ls_transport_table *table, ls_connection *from, ls_packet *packet, void *body,
                         size_t *done)
{
    const size_t head = sizeof(*packet);
    size_t moved = 0;
    struct iovec part = { (char *)packet + *done, head - *done };
    if (*done >= head)
        part = (struct iovec){ (char *)body + (*done - head), (size_t)packet->bytes - (*done - head) };
    LS_TRY(table->read(from, &part, 1, &moved));
    *done += moved;
    return LS_OK;
}
