/* The simulated transport: listeners and lines of a simulated world. Bytes of a line arrive in
 * order, those of different lines as chance has it. */
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "sim_world.h"

#define CONNECT_LIMIT 3.0 /* simulated seconds after which a line that was never answered ends */

/* ---- When things arrive ---- */

double ls_sim_arrival(const ls_sim *sim, const ls_sim_worker *from, const ls_sim_worker *to, double time)
{
    if (time > from->vanished || time > to->vanished)
        return INFINITY;
    for (size_t i = 0; i < sim->split_count; i++) {
        const ls_sim_split *s = &sim->splits[i];
        bool leaves = s->side >> from->number & 1, enters = s->side >> to->number & 1;
        bool stopped = s->one_way ? leaves && !enters : leaves != enters;
        if (stopped && time > s->begins && time < s->ends)
            return ls_sim_arrival(sim, from, to, s->ends);
    }
    return time;
}

static double sooner(double a, double b)
{
    return a < b ? a : b;
}

/* The bytes that arrive at this end of a connection. */
static const ls_sim_way *incoming(const ls_connection *line)
{
    return &line->wire->ways[!line->side];
}

static double arrival(const ls_connection *line, double time)
{
    return time < INFINITY ? ls_sim_arrival(line->worker->sim, line->wire->ends[!line->side].worker, line->worker, time)
                           : INFINITY;
}

static double ends_at(const ls_connection *line)
{
    const ls_sim_way *in = incoming(line);
    return sooner(in->aborted ? in->ends : arrival(line, in->ends), line->gives_up);
}

static double readable_at(const ls_connection *line)
{
    const ls_sim_way *in = incoming(line);
    double end = ends_at(line);
    return in->held > 0 ? sooner(arrival(line, in->packets[in->packet_first].time), line->gives_up) : end;
}

static double writable_at(const ls_connection *line)
{
    const ls_sim_way *out = &line->wire->ways[line->side];
    return out->held < line->worker->sim->settings.window ? 0 : ends_at(line);
}

static double caller_at(const ls_transport *transport)
{
    const ls_sim *sim = transport->worker->sim;
    double first = INFINITY;
    for (size_t i = 0; i < sim->wire_count; i++) {
        const ls_sim_wire *wire = sim->wires[i];
        if (wire->listener == transport)
            first = sooner(first, arrival(&wire->ends[1], wire->call_arrives));
    }
    return first;
}

static double want_at(const ls_transport *transport, const ls_want *want)
{
    if (!want->connection)
        return caller_at(transport);
    double at = ends_at(want->connection);
    at = want->read ? sooner(at, readable_at(want->connection)) : at;
    return want->write ? sooner(at, writable_at(want->connection)) : at;
}

double ls_sim_ready_at(const ls_sim_worker *w)
{
    double first = INFINITY;
    for (int i = 0; i < w->want_count; i++)
        first = sooner(first, want_at(w->waits_at, &w->wants[i]));
    return first;
}

void ls_sim_describe_waits(const ls_sim_worker *w, ls_text *out)
{
    ls_text_add(out, "waits ");
    if (w->at < INFINITY)
        ls_text_add(out, "until %.6f s ", w->at);
    ls_text_add(out, w->want_count ? "for" : "for nothing");
    for (int i = 0; i < w->want_count; i++) {
        const ls_want *want = &w->wants[i];
        ls_text_put(out, i ? ", " : " ");
        if (!want->connection)
            ls_text_put(out, "a caller");
        else
            ls_text_add(out, "worker %d (line %d%s%s)",
                        want->connection->wire->ends[!want->connection->side].worker->number,
                        want->connection->wire->number, want->read ? ", to read" : "", want->write ? ", to write" : "");
    }
}

/* ---- The bytes of a way ---- */

static void drop_first_packet(ls_sim_way *way)
{
    if (++way->packet_first < way->packet_count / 2 + 1)
        return;
    way->packet_count -= way->packet_first;
    if (way->packet_count > 0)
        memmove(way->packets, way->packets + way->packet_first, way->packet_count * sizeof(*way->packets));
    way->packet_first = 0;
}

static void put_bytes(ls_sim_way *way, size_t window, const unsigned char *bytes, size_t count)
{
    size_t at = (way->first + way->held) % window, before = window - at;
    before = before < count ? before : count;
    memcpy(way->ring + at, bytes, before);
    memcpy(way->ring, bytes + before, count - before);
    way->held += count;
}

static void take_bytes(ls_sim_way *way, size_t window, unsigned char *bytes, size_t count)
{
    size_t before = window - way->first;
    before = before < count ? before : count;
    memcpy(bytes, way->ring + way->first, before);
    memcpy(bytes + before, way->ring, count - before);
    way->first = (way->first + count) % window;
    way->held -= count;
}

static void empty_way(ls_sim_way *way)
{
    free(way->ring);
    free(way->packets);
    way->ring = NULL;
    way->packets = NULL;
    way->first = way->held = way->packet_first = way->packet_count = way->packet_room = 0;
}

/* The last bytes in flight are lost, any number of them, or all. */
static void lose_bytes(ls_sim *sim, const ls_connection *receiver, ls_sim_way *way, bool all)
{
    size_t arrived = 0, p = way->packet_first;
    while (p < way->packet_count && arrival(receiver, way->packets[p].time) <= sim->now)
        arrived += way->packets[p++].bytes;
    size_t lost = all ? way->held - arrived : ls_sim_random(sim, way->held - arrived + 1);
    way->held -= lost;
    while (lost > 0) {
        ls_sim_packet *last = &way->packets[way->packet_count - 1];
        size_t part = last->bytes < lost ? last->bytes : lost;
        last->bytes -= part;
        lost -= part;
        way->packet_count -= last->bytes == 0;
    }
}

/* ---- Ends of lines ---- */

static void end_way(ls_sim *sim, ls_sim_wire *wire, int side, bool broken)
{
    ls_sim_way *way = &wire->ways[side];
    double at = sim->now + ls_sim_delay(sim);
    if (way->ends < INFINITY)
        return;
    if (broken)
        lose_bytes(sim, &wire->ends[!side], way, false);
    way->ends = at > way->last ? at : way->last;
    way->broken = broken;
}

/* This end takes part no more: what comes to it is lost. */
static void close_end(ls_connection *end)
{
    end->closed = true;
    empty_way(&end->wire->ways[!end->side]);
}

static void cut_wire(ls_sim *sim, ls_sim_wire *wire)
{
    end_way(sim, wire, 0, true);
    end_way(sim, wire, 1, true);
}

void ls_sim_cut(ls_sim *sim, int worker, int other)
{
    for (size_t i = 0; i < sim->wire_count; i++) {
        int a = sim->wires[i]->ends[0].worker->number, b = sim->wires[i]->ends[1].worker->number;
        if ((a == worker && (other < 0 || b == other)) || (b == worker && (other < 0 || a == other)))
            cut_wire(sim, sim->wires[i]);
    }
}

/* As a firewall that resets connections, or `ss -K` on both machines. */
static void abort_wire(ls_sim *sim, ls_sim_wire *wire)
{
    for (int side = 0; side < 2; side++) {
        ls_sim_way *way = &wire->ways[side];
        if (way->ends < INFINITY)
            continue;
        lose_bytes(sim, &wire->ends[!side], way, true);
        way->ends = sim->now + ls_sim_delay(sim);
        way->broken = way->aborted = true;
    }
}

void ls_sim_cut_across(ls_sim *sim, uint32_t side)
{
    for (size_t i = 0; i < sim->wire_count; i++) {
        const ls_connection *ends = sim->wires[i]->ends;
        if ((side >> ends[0].worker->number ^ side >> ends[1].worker->number) & 1)
            abort_wire(sim, sim->wires[i]);
    }
}

/* A connection to a listener that is closed ends. */
static void close_listener(ls_sim *sim, ls_transport *listener, bool silently)
{
    listener->open = false;
    for (size_t i = 0; i < sim->wire_count; i++) {
        ls_sim_wire *wire = sim->wires[i];
        if (wire->listener != listener)
            continue;
        wire->listener = NULL;
        if (silently) {
            wire->ends[0].gives_up = sim->now + CONNECT_LIMIT;
            continue;
        }
        end_way(sim, wire, 1, false);
        close_end(&wire->ends[1]);
    }
}

void ls_sim_end_lines(ls_sim_worker *w, bool silently)
{
    ls_sim *sim = w->sim;
    for (size_t i = 0; i < sim->wire_count; i++)
        for (int side = 0; side < 2; side++) {
            ls_connection *end = &sim->wires[i]->ends[side];
            if (end->worker != w || !end->in_use || end->closed)
                continue;
            end->closed = true;
            if (!silently) {
                end_way(sim, sim->wires[i], side, ls_sim_random(sim, 2) == 0);
                close_end(end);
            }
        }
    for (size_t i = 0; i < sim->listener_count; i++)
        if (sim->listeners[i]->worker == w && sim->listeners[i]->open) {
            close_listener(sim, sim->listeners[i], silently);
            sim->listeners[i]->open = silently; /* no error reports its absence */
        }
}

ls_status ls_sim_check_end(ls_sim_worker *w)
{
    const ls_sim *sim = w->sim;
    if (ls_sim_is_over(w) != LS_OK)
        return LS_OK;
    for (size_t i = 0; i < sim->wire_count; i++)
        for (int side = 0; side < 2; side++) {
            const ls_connection *end = &sim->wires[i]->ends[side];
            if (end->worker == w && end->in_use && !end->closed)
                return ls_sim_blame(w, "it ended and left line %d with worker %d, which was not hung up",
                                    sim->wires[i]->number, sim->wires[i]->ends[!side].worker->number);
        }
    for (size_t i = 0; i < sim->listener_count; i++)
        if (sim->listeners[i]->worker == w && sim->listeners[i]->open)
            return ls_sim_blame(w, "it ended and left its transport open");
    return LS_OK;
}

void ls_sim_free_lines(ls_sim *sim)
{
    for (size_t i = 0; i < sim->wire_count; i++) {
        empty_way(&sim->wires[i]->ways[0]);
        empty_way(&sim->wires[i]->ways[1]);
        free(sim->wires[i]);
    }
    for (size_t i = 0; i < sim->listener_count; i++)
        free(sim->listeners[i]);
    free(sim->wires);
    free(sim->listeners);
}

/* ---- The transport: listeners ---- */

/* The contexts of a worker are counted here: those of all simulated workers are in one process. */
static ls_status sim_open(const ls_cluster_options *options, int number, ls_transport **out)
{
    (void)number;
    ls_sim_worker *w = ls_sim_own_worker;
    if (!w)
        return ls_fail(LS_ERR_STATE, "transport sim: this thread is no worker of a simulated world");
    ls_sim *sim = w->sim;
    LS_TRY(ls_sim_enter(w));
    LS_TRY(ls_grow(&sim->listeners, sim->listener_count, &sim->listener_room, sizeof(*sim->listeners)));
    ls_transport *t = calloc(1, sizeof(*t));
    if (!t)
        return ls_fail(LS_ERR_MEMORY, "no memory for a simulated listener");
    *t = (ls_transport){ &ls_transport_sim, w, options->rank, w->clusters++, true };
    sim->listeners[sim->listener_count++] = t;
    ls_sim_note(w, "opens", NULL, (size_t)options->rank);
    *out = t;
    return LS_OK;
}

static void sim_close(ls_transport *t)
{
    ls_sim_worker *w = t->worker;
    const ls_sim *sim = w->sim;
    if (ls_sim_enter(w) != LS_OK)
        return;
    for (size_t i = 0; i < sim->wire_count; i++)
        for (int side = 0; side < 2; side++) {
            const ls_connection *end = &sim->wires[i]->ends[side];
            if (end->transport == t && end->in_use && !end->closed) {
                ls_sim_blame(w, "it closed its transport before line %d was hung up", sim->wires[i]->number);
                return;
            }
        }
    ls_sim_note(w, "closes", NULL, 0);
    close_listener(w->sim, t, false);
}

/* The newest listener is that of the worker that returned. */
static ls_transport *find_listener(const ls_sim *sim, int rank, int number)
{
    for (size_t i = sim->listener_count; i-- > 0;)
        if (sim->listeners[i]->rank == rank && sim->listeners[i]->number == number && sim->listeners[i]->open)
            return sim->listeners[i];
    return NULL;
}

static ls_status make_wire(ls_transport *caller, ls_transport *listener, ls_sim_wire **out)
{
    ls_sim *sim = caller->worker->sim;
    LS_TRY(ls_grow(&sim->wires, sim->wire_count, &sim->wire_room, sizeof(*sim->wires)));
    ls_sim_wire *wire = calloc(1, sizeof(*wire));
    if (!wire)
        return ls_fail(LS_ERR_MEMORY, "no memory for a simulated line");
    wire->number = (int)sim->wire_count;
    for (int s = 0; s < 2; s++) {
        ls_transport *t = s ? listener : caller;
        wire->ends[s] =
            (ls_connection){ &ls_transport_sim, t, wire, t->worker, .side = s, .in_use = s == 0, .gives_up = INFINITY };
        wire->ways[s].ends = INFINITY;
    }
    wire->call_arrives = wire->ways[0].last = sim->now + ls_sim_delay(sim);
    sim->wires[sim->wire_count++] = wire;
    *out = wire;
    return LS_OK;
}

static ls_status sim_call(ls_transport *t, int rank, ls_connection **out)
{
    ls_sim_worker *w = t->worker;
    ls_sim *sim = w->sim;
    LS_TRY(ls_sim_enter(w));
    ls_transport *listener = find_listener(sim, rank, t->number);
    if (!listener) {
        ls_sim_note(w, "calls, and nobody is there", NULL, (size_t)rank);
        *out = NULL;
        return LS_OK;
    }
    if (listener->worker == w)
        return ls_sim_blame(w, "it calls itself, rank %d", rank);
    ls_sim_wire *wire;
    LS_TRY(make_wire(t, listener, &wire));
    if (arrival(&wire->ends[1], wire->call_arrives) <= sim->now + CONNECT_LIMIT)
        wire->listener = listener;
    else
        wire->ends[0].gives_up = sim->now + CONNECT_LIMIT;
    *out = &wire->ends[0];
    ls_sim_note(w, "calls", *out, (size_t)rank);
    return LS_OK;
}

/* Any of several callers. */
static ls_status sim_answer(ls_transport *t, ls_connection **out)
{
    ls_sim_worker *w = t->worker;
    ls_sim *sim = w->sim;
    ls_connection *found = NULL;
    uint64_t count = 0;
    LS_TRY(ls_sim_enter(w));
    for (size_t i = 0; i < sim->wire_count; i++) {
        ls_sim_wire *wire = sim->wires[i];
        if (wire->listener == t && arrival(&wire->ends[1], wire->call_arrives) <= sim->now &&
            ls_sim_random(sim, ++count) == 0)
            found = &wire->ends[1];
    }
    if (found) {
        found->wire->listener = NULL;
        found->in_use = true;
    }
    ls_sim_note(w, found ? "answers" : "looks for callers", found, 0);
    *out = found;
    return LS_OK;
}

/* ---- Lines ---- */

static ls_status begin_call(ls_connection *line)
{
    ls_sim_worker *w = line->worker;
    LS_TRY(ls_sim_enter(w));
    return line->closed ? ls_sim_blame(w, "it uses line %d, which it has hung up", line->wire->number) : LS_OK;
}

static ls_status fail_ended(ls_connection *line)
{
    ls_sim_note(line->worker, "finds the end of", line, 0);
    return line->gives_up <= line->worker->sim->now ? ls_fail(LS_ERR_PEER, "nobody answered for %g s", CONNECT_LIMIT)
           : incoming(line)->broken                 ? ls_fail(LS_ERR_PEER, "the connection was reset")
                                                    : ls_fail(LS_ERR_PEER, "the connection has ended");
}

static size_t sum_parts(const struct iovec *parts, int count)
{
    size_t sum = 0;
    for (int i = 0; i < count; i++)
        sum += parts[i].iov_len;
    return sum;
}

/* All that is possible, or less. */
static size_t some_of(ls_sim *sim, size_t possible)
{
    return possible > 1 && ls_sim_random(sim, 4) == 0 ? 1 + ls_sim_random(sim, possible) : possible;
}

static ls_status send_bytes(ls_connection *line, const struct iovec *parts, size_t bytes)
{
    ls_sim *sim = line->worker->sim;
    ls_sim_way *way = &line->wire->ways[line->side];
    size_t window = sim->settings.window, left = bytes;
    double at = sim->now + ls_sim_delay(sim);
    const ls_connection *other = &line->wire->ends[!line->side];
    if ((other->closed && !(other->worker->vanished < INFINITY)) || way->ends < INFINITY || bytes == 0)
        return LS_OK; /* they are lost */
    if (!way->ring && !(way->ring = malloc(window)))
        return ls_fail(LS_ERR_MEMORY, "no memory for a simulated line");
    LS_TRY(ls_grow(&way->packets, way->packet_count, &way->packet_room, sizeof(*way->packets)));
    way->last = at > way->last ? at : way->last;
    way->packets[way->packet_count++] = (ls_sim_packet){ bytes, way->last };
    for (const struct iovec *part = parts; left > 0; part++) {
        size_t n = part->iov_len < left ? part->iov_len : left;
        if (n > 0)
            put_bytes(way, window, part->iov_base, n);
        left -= n;
    }
    return LS_OK;
}

static ls_status sim_write(ls_connection *line, const struct iovec *parts, int count, size_t *moved)
{
    LS_TRY(begin_call(line));
    ls_sim *sim = line->worker->sim;
    if (ends_at(line) <= sim->now)
        return fail_ended(line);
    size_t room = sim->settings.window - line->wire->ways[line->side].held, bytes = sum_parts(parts, count);
    bytes = some_of(sim, bytes < room ? bytes : room);
    LS_TRY(send_bytes(line, parts, bytes));
    ls_sim_note(line->worker, "writes", line, bytes);
    *moved = bytes;
    return LS_OK;
}

static size_t receive_bytes(ls_connection *line, const struct iovec *parts, size_t most)
{
    ls_sim *sim = line->worker->sim;
    ls_sim_way *way = &line->wire->ways[!line->side];
    size_t bytes = 0, left;
    while (bytes < most && way->packet_first < way->packet_count &&
           arrival(line, way->packets[way->packet_first].time) <= sim->now) {
        ls_sim_packet *packet = &way->packets[way->packet_first];
        size_t n = packet->bytes < most - bytes ? packet->bytes : most - bytes;
        bytes += n;
        packet->bytes -= n;
        if (packet->bytes == 0)
            drop_first_packet(way);
    }
    left = bytes;
    for (const struct iovec *part = parts; left > 0; part++) {
        size_t n = part->iov_len < left ? part->iov_len : left;
        if (n > 0)
            take_bytes(way, sim->settings.window, part->iov_base, n);
        left -= n;
    }
    return bytes;
}

static ls_status sim_read(ls_connection *line, const struct iovec *parts, int count, size_t *moved)
{
    LS_TRY(begin_call(line));
    ls_sim *sim = line->worker->sim;
    if (readable_at(line) <= sim->now && incoming(line)->held == 0)
        return fail_ended(line);
    size_t bytes = receive_bytes(line, parts, some_of(sim, sum_parts(parts, count)));
    ls_sim_note(line->worker, "reads", line, bytes);
    *moved = bytes;
    return LS_OK;
}

static void sim_hang_up(ls_connection *line)
{
    ls_sim *sim = line->worker->sim;
    if (begin_call(line) != LS_OK)
        return;
    ls_sim_note(line->worker, "hangs up", line, 0);
    end_way(sim, line->wire, line->side, false);
    close_end(line);
}

/* The kernel reports a killed worker; a machine that vanished is silent. */
static ls_connection_end sim_how_ended(const ls_connection *line)
{
    const ls_sim_worker *other = line->wire->ends[!line->side].worker;
    if (line->worker->sim->settings.local)
        return LS_CONNECTION_GONE;
    if (other->dead && !(other->vanished < INFINITY))
        return LS_CONNECTION_DIED;
    return incoming(line)->broken || line->gives_up < INFINITY ? LS_CONNECTION_BROKEN : LS_CONNECTION_CLOSED;
}

/* ---- Waiting ---- */

/* How many are there. Now and then one is named that is not. */
static int mark_ready(ls_sim *sim, const ls_transport *t, ls_want *wants, int count)
{
    int ready = 0;
    for (int i = 0; i < count; i++) {
        wants[i].ready = want_at(t, &wants[i]) <= sim->now;
        ready += wants[i].ready;
    }
    if (ready == 0 && count > 0 && ls_sim_random(sim, 64) == 0) {
        wants[ls_sim_random(sim, (uint64_t)count)].ready = true;
        ready = 1;
    }
    return ready;
}

static ls_status sim_wait(ls_transport *t, ls_want *wants, int count, double seconds)
{
    ls_sim_worker *w = t->worker;
    ls_sim *sim = w->sim;
    w->in_wait = true;
    ls_status entered = ls_sim_enter(w);
    w->in_wait = false;
    LS_TRY(entered);
    for (int i = 0; i < count; i++)
        if (wants[i].connection && wants[i].connection->closed)
            return ls_sim_blame(w, "it waits for line %d, which it has hung up", wants[i].connection->wire->number);
    if (mark_ready(sim, t, wants, count) == 0 && seconds > 0) {
        w->waits_at = t;
        w->wants = wants;
        w->want_count = count;
        ls_status status = ls_sim_pass_on(w, LS_SIM_WAITING, sim->now + seconds);
        w->wants = NULL;
        w->want_count = 0;
        LS_TRY(status);
        mark_ready(sim, t, wants, count);
    }
    ls_sim_note(w, "has waited", NULL, (size_t)count);
    return LS_OK;
}

/* It also continues for a dead worker, so that its loops with a deadline end. */
static double sim_now(ls_transport *t)
{
    ls_sim_worker *w = t->worker;
    if (w->dead || w->sim->over.status != LS_OK)
        return w->sim->now + 0.1 * (double)++w->late_calls;
    return w->sim->now += 1e-6;
}

const ls_transport_table ls_transport_sim = {
    .name = "sim",
    .elastic = true,
    .slice = 1 << 10,
    .open = sim_open,
    .close = sim_close,
    .call = sim_call,
    .answer = sim_answer,
    .write = sim_write,
    .read = sim_read,
    .hang_up = sim_hang_up,
    .how_ended = sim_how_ended,
    .wait = sim_wait,
    .now = sim_now,
};
