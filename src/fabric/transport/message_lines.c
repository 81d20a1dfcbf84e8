/* Byte streams over messages: see message_lines.h. */
#include "fabric/transport/message_lines.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

#define SPIN        50e-6  /* seconds of waiting without a pause */
#define MOST_PAUSE  250000 /* nanoseconds; the longest pause */
#define CLOSE_LIMIT 1.0    /* seconds to finish transfers when closing */

/* ---- Creation ---- */

static char *out_memory(const ls_message_line *line, int slot)
{
    return line->memory + (size_t)slot * LS_MESSAGE_BYTES;
}

static char *in_memory(const ls_message_line *line, int slot)
{
    return out_memory(line, LS_MESSAGE_SLOTS + slot);
}

ls_status ls_message_line_make(const ls_transport_table *table, const ls_message_library *library,
                               ls_message_line **out)
{
    ls_message_line *line = calloc(1, sizeof(*line));
    char *memory = malloc((size_t)2 * LS_MESSAGE_SLOTS * LS_MESSAGE_BYTES);
    if (!line || !memory) {
        free(line);
        free(memory);
        return ls_fail(LS_ERR_MEMORY, "no memory for a connection");
    }
    *line = (ls_message_line){ .table = table, .library = library, .memory = memory };
    *out = line;
    return LS_OK;
}

static ls_status post(ls_message_line *line, int slot)
{
    LS_TRY(line->library->receive(line, in_memory(line, slot), LS_MESSAGE_BYTES, &line->in[slot].request));
    line->in[slot].busy = true;
    return LS_OK;
}

ls_status ls_message_line_open(ls_message_line *line)
{
    for (int i = 0; i < LS_MESSAGE_SLOTS; i++)
        LS_TRY(post(line, i));
    line->open = true;
    return LS_OK;
}

/* Continues to open the connection. */
static bool is_open(ls_message_line *line)
{
    if (!line->open && !line->ended && line->library->prepare && line->library->prepare(line) != LS_OK)
        line->ended = line->deaf = true;
    return line->open && !line->ended;
}

/* ---- Sending ---- */

static bool can_write(ls_message_line *line)
{
    ls_message_slot *slot = &line->out[line->out_next];
    bool done = true;
    size_t bytes;
    if (!slot->busy)
        return is_open(line) && !line->deaf;
    if (line->library->test(line, &slot->request, false, &done, &bytes) != LS_OK)
        line->deaf = done = true;
    if (!done && line->library->is_gone && line->library->is_gone(line))
        line->deaf = true;
    slot->busy = !done;
    return done && is_open(line) && !line->deaf;
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

static bool send_slot(ls_message_line *line, size_t bytes)
{
    ls_message_slot *slot = &line->out[line->out_next];
    slot->busy = true;
    if (line->library->send(line, out_memory(line, line->out_next), bytes, &slot->request) != LS_OK) {
        slot->busy = false;
        line->deaf = true;
        return false;
    }
    line->out_next = (line->out_next + 1) % LS_MESSAGE_SLOTS;
    return true;
}

ls_status ls_message_line_write(ls_connection *of, const struct iovec *parts, int count, size_t *moved)
{
    ls_message_line *line = (ls_message_line *)of;
    *moved = 0;
    while (can_write(line)) {
        size_t bytes = fill(out_memory(line, line->out_next), parts, count, *moved);
        if (bytes == 0)
            return LS_OK;
        if (!send_slot(line, bytes))
            break;
        *moved += bytes;
    }
    return (line->ended || line->deaf) && *moved == 0 ? ended() : LS_OK;
}

/* ---- Receiving ---- */

/* Bytes that the peer sent before it ended are read first. */
static bool can_read(ls_message_line *line)
{
    ls_message_slot *slot = &line->in[line->in_next];
    bool done = false;
    if (line->in_bytes > 0)
        return true;
    if (!is_open(line))
        return false;
    bool gone = line->library->is_gone && line->library->is_gone(line);
    if (line->library->test(line, &slot->request, true, &done, &line->in_bytes) != LS_OK) {
        slot->busy = false;
        line->in_bytes = 0;
        line->ended = true;
        return false;
    }
    if (!done) {
        line->in_bytes = 0;
        line->ended = gone;
        return false;
    }
    slot->busy = false;
    line->in_at = 0;
    line->ended = line->in_bytes == 0;
    return line->in_bytes > 0;
}

static size_t take(ls_message_line *line, void *data, size_t bytes)
{
    size_t left = line->in_bytes - line->in_at;
    bytes = bytes < left ? bytes : left;
    memcpy(data, in_memory(line, line->in_next) + line->in_at, bytes);
    line->in_at += bytes;
    if (line->in_at < line->in_bytes)
        return bytes;
    line->in_bytes = 0;
    if (post(line, line->in_next) != LS_OK)
        line->ended = true;
    line->in_next = (line->in_next + 1) % LS_MESSAGE_SLOTS;
    return bytes;
}

ls_status ls_message_line_read(ls_connection *of, const struct iovec *parts, int count, size_t *moved)
{
    ls_message_line *line = (ls_message_line *)of;
    *moved = 0;
    for (int i = 0; i < count; i++)
        for (size_t done = 0; done < parts[i].iov_len;) {
            if (!can_read(line))
                return line->ended && *moved == 0 ? ended() : LS_OK;
            size_t bytes = take(line, (char *)parts[i].iov_base + done, parts[i].iov_len - done);
            done += bytes;
            *moved += bytes;
        }
    return LS_OK;
}

/* ---- Waiting ---- */

static bool look(ls_transport *transport, const ls_message_library *library, ls_want *wants, int count)
{
    bool any = false;
    if (library->progress)
        library->progress(transport);
    for (int i = 0; i < count; i++) {
        ls_message_line *line = (ls_message_line *)wants[i].line;
        if (!line)
            wants[i].ready = library->is_called(transport);
        else
            wants[i].ready = (wants[i].read && can_read(line)) || (wants[i].write && can_write(line)) ||
                             ((wants[i].read || wants[i].write) && line->ended) || (wants[i].write && line->deaf);
        any |= wants[i].ready;
    }
    return any;
}

ls_status ls_message_lines_wait(ls_transport *transport, const ls_message_library *library, ls_want *wants, int count,
                                double seconds)
{
    double begun = ls_clock_now(), now = begun;
    struct timespec pause = { 0, 10000 };
    while (!look(transport, library, wants, count) && now < begun + seconds) {
        if (now < begun + SPIN) {
            sched_yield();
        } else {
            nanosleep(&pause, NULL);
            pause.tv_nsec = pause.tv_nsec * 2 < MOST_PAUSE ? pause.tv_nsec * 2 : MOST_PAUSE;
        }
        now = ls_clock_now();
    }
    return LS_OK;
}

/* ---- The end ---- */

static bool all_sent(ls_message_line *line)
{
    bool all = true;
    for (int i = 0; i < LS_MESSAGE_SLOTS; i++) {
        ls_message_slot *slot = &line->out[i];
        bool done = false;
        size_t bytes;
        if (slot->busy && line->library->test(line, &slot->request, false, &done, &bytes) != LS_OK)
            done = true; /* it failed, so it is over */
        slot->busy = slot->busy && !done;
        all &= !slot->busy;
    }
    return all;
}

bool ls_message_line_end(ls_message_line *line)
{
    double end = ls_clock_now() + CLOSE_LIMIT;
    bool said = !line->open || line->ended || line->deaf, sent = all_sent(line);
    while (!(sent && said) && ls_clock_now() < end) {
        if (!said && can_write(line))
            said = send_slot(line, 0);
        said |= line->ended || line->deaf;
        sent = all_sent(line);
        if (!sent)
            nanosleep(&(struct timespec){ 0, 50000 }, NULL);
    }
    for (int i = 0; i < LS_MESSAGE_SLOTS; i++)
        if (line->in[i].busy)
            line->library->cancel(line, &line->in[i].request);
    memset(line->in, 0, sizeof(line->in));
    line->open = false;
    line->ended = line->deaf = true;
    return sent;
}

void ls_message_line_free(ls_message_line *line)
{
    free(line->memory);
    free(line);
}
