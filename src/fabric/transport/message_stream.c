/* Byte streams over messages: see message_stream.h. */
#include "fabric/transport/message_stream.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

#define SPIN        50e-6  /* seconds of waiting without a pause */
#define MAX_PAUSE   250000 /* nanoseconds; the longest pause */
#define CLOSE_LIMIT 1.0    /* seconds to finish transfers when closing */

/* ---- Creation ---- */

static char *out_memory(const ls_message_stream *connection, int slot)
{
    return connection->memory + (size_t)slot * LS_MESSAGE_BYTES;
}

static char *in_memory(const ls_message_stream *connection, int slot)
{
    return out_memory(connection, LS_MESSAGE_SLOTS + slot);
}

ls_status ls_message_stream_make(const ls_transport_table *table, const ls_message_library *library,
                                 ls_message_stream **out)
{
    ls_message_stream *connection = calloc(1, sizeof(*connection));
    char *memory = malloc((size_t)2 * LS_MESSAGE_SLOTS * LS_MESSAGE_BYTES);
    if (!connection || !memory) {
        free(connection);
        free(memory);
        return ls_fail(LS_ERR_MEMORY, "no memory for a connection");
    }
    *connection = (ls_message_stream){ .table = table, .library = library, .memory = memory };
    *out = connection;
    return LS_OK;
}

static ls_status start_receive(ls_message_stream *connection, int slot)
{
    LS_TRY(connection->library->receive(connection, in_memory(connection, slot), LS_MESSAGE_BYTES,
                                        &connection->in[slot].request));
    connection->in[slot].busy = true;
    return LS_OK;
}

ls_status ls_message_stream_open(ls_message_stream *connection)
{
    for (int i = 0; i < LS_MESSAGE_SLOTS; i++)
        LS_TRY(start_receive(connection, i));
    connection->open = true;
    return LS_OK;
}

/* Continues to open the connection. */
static bool is_open(ls_message_stream *connection)
{
    if (!connection->open && !connection->ended && connection->library->prepare &&
        connection->library->prepare(connection) != LS_OK)
        connection->ended = connection->write_failed = true;
    return connection->open && !connection->ended;
}

/* ---- Sending ---- */

static bool can_write(ls_message_stream *connection)
{
    ls_message_slot *slot = &connection->out[connection->out_next];
    bool done = true;
    size_t bytes;
    if (!slot->busy)
        return is_open(connection) && !connection->write_failed;
    if (connection->library->test(connection, &slot->request, false, &done, &bytes) != LS_OK)
        connection->write_failed = done = true;
    if (!done && connection->library->is_gone && connection->library->is_gone(connection))
        connection->write_failed = true;
    slot->busy = !done;
    return done && is_open(connection) && !connection->write_failed;
}

/* Copies as much of the parts as a slot holds, starting at byte `from`. */
static size_t fill(char *memory, const struct iovec *parts, int count, size_t from)
{
    size_t used = 0;
    for (int i = 0; i < count && used < LS_MESSAGE_BYTES; i++) {
        if (from >= parts[i].iov_len) {
            from -= parts[i].iov_len;
            continue;
        }
        size_t bytes = parts[i].iov_len - from, room = LS_MESSAGE_BYTES - used;
        bytes = bytes < room ? bytes : room;
        memcpy(memory + used, (const char *)parts[i].iov_base + from, bytes);
        used += bytes;
        from = 0;
    }
    return used;
}

static ls_status ended(void)
{
    return ls_fail(LS_ERR_PEER, "its connection ended");
}

static bool send_slot(ls_message_stream *connection, size_t bytes)
{
    ls_message_slot *slot = &connection->out[connection->out_next];
    slot->busy = true;
    if (connection->library->send(connection, out_memory(connection, connection->out_next), bytes, &slot->request) !=
        LS_OK) {
        slot->busy = false;
        connection->write_failed = true;
        return false;
    }
    connection->out_next = (connection->out_next + 1) % LS_MESSAGE_SLOTS;
    return true;
}

ls_status ls_message_stream_write(ls_connection *of, const struct iovec *parts, int count, size_t *moved)
{
    ls_message_stream *connection = (ls_message_stream *)of;
    *moved = 0;
    while (can_write(connection)) {
        size_t bytes = fill(out_memory(connection, connection->out_next), parts, count, *moved);
        if (bytes == 0)
            return LS_OK;
        if (!send_slot(connection, bytes))
            break;
        *moved += bytes;
    }
    return (connection->ended || connection->write_failed) && *moved == 0 ? ended() : LS_OK;
}

/* ---- Receiving ---- */

/* Bytes that the peer sent before it ended are read first. */
static bool can_read(ls_message_stream *connection)
{
    ls_message_slot *slot = &connection->in[connection->in_next];
    bool done = false;
    if (connection->in_bytes > 0)
        return true;
    if (!is_open(connection))
        return false;
    bool gone = connection->library->is_gone && connection->library->is_gone(connection);
    if (connection->library->test(connection, &slot->request, true, &done, &connection->in_bytes) != LS_OK) {
        slot->busy = false;
        connection->in_bytes = 0;
        connection->ended = true;
        return false;
    }
    if (!done) {
        connection->in_bytes = 0;
        connection->ended = gone;
        return false;
    }
    slot->busy = false;
    connection->in_at = 0;
    connection->ended = connection->in_bytes == 0;
    return connection->in_bytes > 0;
}

static size_t take(ls_message_stream *connection, void *data, size_t bytes)
{
    size_t left = connection->in_bytes - connection->in_at;
    bytes = bytes < left ? bytes : left;
    memcpy(data, in_memory(connection, connection->in_next) + connection->in_at, bytes);
    connection->in_at += bytes;
    if (connection->in_at < connection->in_bytes)
        return bytes;
    connection->in_bytes = 0;
    if (start_receive(connection, connection->in_next) != LS_OK)
        connection->ended = true;
    connection->in_next = (connection->in_next + 1) % LS_MESSAGE_SLOTS;
    return bytes;
}

ls_status ls_message_stream_read(ls_connection *of, const struct iovec *parts, int count, size_t *moved)
{
    ls_message_stream *connection = (ls_message_stream *)of;
    *moved = 0;
    for (int i = 0; i < count; i++)
        for (size_t done = 0; done < parts[i].iov_len;) {
            if (!can_read(connection))
                return connection->ended && *moved == 0 ? ended() : LS_OK;
            size_t bytes = take(connection, (char *)parts[i].iov_base + done, parts[i].iov_len - done);
            done += bytes;
            *moved += bytes;
        }
    return LS_OK;
}

/* ---- Waiting ---- */

static bool poll_wants(ls_transport *transport, const ls_message_library *library, ls_want *wants, int count)
{
    bool any = false;
    if (library->progress)
        library->progress(transport);
    for (int i = 0; i < count; i++) {
        ls_message_stream *connection = (ls_message_stream *)wants[i].connection;
        if (!connection)
            wants[i].ready = library->is_called(transport);
        else
            wants[i].ready = (wants[i].read && can_read(connection)) || (wants[i].write && can_write(connection)) ||
                             ((wants[i].read || wants[i].write) && connection->ended) ||
                             (wants[i].write && connection->write_failed);
        any |= wants[i].ready;
    }
    return any;
}

ls_status ls_message_streams_wait(ls_transport *transport, const ls_message_library *library, ls_want *wants, int count,
                                  double seconds)
{
    double begun = ls_clock_now(), now = begun;
    struct timespec pause = { 0, 10000 };
    while (!poll_wants(transport, library, wants, count) && now < begun + seconds) {
        if (now < begun + SPIN) {
            sched_yield();
        } else {
            nanosleep(&pause, NULL);
            pause.tv_nsec = pause.tv_nsec * 2 < MAX_PAUSE ? pause.tv_nsec * 2 : MAX_PAUSE;
        }
        now = ls_clock_now();
    }
    return LS_OK;
}

/* ---- Closing ---- */

static bool all_sent(ls_message_stream *connection)
{
    bool all = true;
    for (int i = 0; i < LS_MESSAGE_SLOTS; i++) {
        ls_message_slot *slot = &connection->out[i];
        bool done = false;
        size_t bytes;
        if (slot->busy && connection->library->test(connection, &slot->request, false, &done, &bytes) != LS_OK)
            done = true; /* a failed transfer is finished */
        slot->busy = slot->busy && !done;
        all &= !slot->busy;
    }
    return all;
}

bool ls_message_stream_end(ls_message_stream *connection)
{
    double end = ls_clock_now() + CLOSE_LIMIT;
    bool end_sent = !connection->open || connection->ended || connection->write_failed, sent = all_sent(connection);
    while (!(sent && end_sent) && ls_clock_now() < end) {
        if (!end_sent && can_write(connection))
            end_sent = send_slot(connection, 0);
        end_sent |= connection->ended || connection->write_failed;
        sent = all_sent(connection);
        if (!sent)
            nanosleep(&(struct timespec){ 0, 50000 }, NULL);
    }
    for (int i = 0; i < LS_MESSAGE_SLOTS; i++)
        if (connection->in[i].busy)
            connection->library->cancel(connection, &connection->in[i].request);
    memset(connection->in, 0, sizeof(connection->in));
    connection->open = false;
    connection->ended = connection->write_failed = true;
    return sent;
}

void ls_message_stream_free(ls_message_stream *connection)
{
    free(connection->memory);
    free(connection);
}
