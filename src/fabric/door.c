/* How workers meet. Each calls on all lower ranks, and is called on by all higher ones; both sides say HELLO and
 * compare. */
#include <string.h>

#include "base/text.h"
#include "fabric/mesh.h"

#define MOST_ABOUT  4096 /* bytes of a HELLO's text */
#define MOST_GUESTS 64   /* callers that have not said who they are; the oldest has to go when there are more */
#define CALL_AGAIN  0.01 /* seconds until those that are not there yet are called again */

typedef struct greeting {
    ls_frame head;
    char about[MOST_ABOUT + 1];
} greeting;

/* One line on which HELLOs are under way. */
typedef struct hello {
    ls_line *at;
    size_t sent, got;
    bool speaks; /* this side says its own: */
    int line;    /* 0, or 1: for signs of life */
    greeting in;
} hello;

typedef struct door {
    ls_mesh *mesh;
    const ls_cluster_options *options;
    greeting own[2]; /* by line */
    size_t own_bytes;
    double end; /* when the waiting is over */
    hello
        *hellos; /* of lower ranks that were called on, by rank; for signs of life, by rank; of guests, oldest first */
    int lines;   /* to each other worker */
    int guests;
    ls_want *wants;
    char why[300]; /* the last line to a lower rank that ended */
} door;

static void forget(const door *d, hello *h)
{
    if (h->at)
        d->mesh->table->hang_up(h->at);
    *h = (hello){ 0 };
}

/* ---- Calling and being called on ---- */

static bool has_line(const door *d, int rank, int line)
{
    return line ? d->mesh->alive[rank] != NULL : d->mesh->links[rank].met;
}

static hello *call_to(const door *d, int rank, int line)
{
    return &d->hellos[line * d->options->size + rank];
}

static ls_status call_on_all(door *d)
{
    for (int line = 0; line < d->lines; line++)
        for (int r = 0; r < d->options->rank; r++) {
            hello *h = call_to(d, r, line);
            if (has_line(d, r, line) || h->at)
                continue;
            LS_TRY(d->mesh->table->call(d->mesh->transport, r, &h->at));
            h->speaks = true;
            h->line = line;
        }
    return LS_OK;
}

static hello *guest(const door *d, int index)
{
    return &d->hellos[2 * d->options->size + index];
}

static void drop_guest(door *d, int index)
{
    forget(d, guest(d, index));
    memmove(guest(d, index), guest(d, index + 1), (size_t)(d->guests - index - 1) * sizeof(hello));
    *guest(d, --d->guests) = (hello){ 0 }; /* it has moved */
}

static ls_status answer_all(door *d)
{
    for (;;) {
        ls_line *line;
        LS_TRY(d->mesh->table->answer(d->mesh->transport, &line));
        if (!line)
            return LS_OK;
        if (d->guests == MOST_GUESTS)
            drop_guest(d, 0);
        guest(d, d->guests++)->at = line;
    }
}

/* ---- HELLOs ---- */

typedef enum hearing { HEARD_PART, HEARD_ALL, HEARD_NONSENSE } hearing;

static bool is_ours(const ls_frame *head)
{
    return head->magic == LS_FRAME_MAGIC && head->kind == LS_FRAME_HELLO && head->bytes <= MOST_ABOUT &&
           head->from < LS_MAX_CLUSTER && head->number <= LS_MAX_CLUSTER;
}

/* The head is looked at before anything behind it is read. */
static hearing listen_to(door *d, hello *h)
{
    const ls_frame *head = &h->in.head;
    for (;;) {
        size_t wanted = h->got < sizeof(*head) ? sizeof(*head) : sizeof(*head) + head->bytes, moved = 0;
        if (h->got >= sizeof(*head) && h->got == wanted) {
            h->in.about[head->bytes] = '\0';
            return HEARD_ALL;
        }
        struct iovec part = { (char *)&h->in + h->got, wanted - h->got };
        if (d->mesh->table->read(h->at, &part, 1, &moved) != LS_OK) {
            snprintf(d->why, sizeof(d->why), "%s", ls_last_error());
            return HEARD_NONSENSE;
        }
        if (moved == 0)
            return HEARD_PART;
        h->got += moved;
        if (h->got == sizeof(*head) && !is_ours(head))
            return HEARD_NONSENSE;
    }
}

/* A line that does not take it has ended, or will. */
static void speak(const door *d, hello *h)
{
    size_t moved = 0;
    const greeting *own = &d->own[h->line];
    struct iovec part = { (char *)own + h->sent, d->own_bytes - h->sent };
    if (h->sent < d->own_bytes && d->mesh->table->write(h->at, &part, 1, &moved) == LS_OK)
        h->sent += moved;
}

static ls_status compare(const door *d, const hello *h)
{
    const ls_cluster_options *o = d->options;
    const ls_frame *head = &h->in.head;
    char about[MOST_ABOUT + 1];
    if (head->version != LS_FRAME_VERSION)
        return ls_fail(LS_ERR_PEER, "worker %u speaks version %u of the protocol, worker %d (this one) version %d",
                       head->from, head->version, o->rank, LS_FRAME_VERSION);
    if (head->number != (uint64_t)o->size)
        return ls_fail(LS_ERR_PEER, "worker %u is one of %llu, worker %d (this one) is one of %d", head->from,
                       (unsigned long long)head->number, o->rank, o->size);
    memcpy(about, h->in.about, sizeof(about));
    ls_make_printable(about, strlen(about));
    if (strcmp(h->in.about, d->own[0].about) != 0)
        return ls_fail(LS_ERR_PEER,
                       "workers would not compute the same bits: worker %u has %s; worker %d (this one) has %s",
                       head->from, about, o->rank, d->own[0].about);
    return LS_OK;
}

/* The line is the link to that rank from now on. */
static void meet(const door *d, hello *h)
{
    ls_link *link = &d->mesh->links[h->in.head.from];
    if (h->line == 0) {
        link->line = h->at;
        link->met = true;
    } else {
        d->mesh->alive[h->in.head.from] = h->at;
    }
    *h = (hello){ 0 };
}

/* A line to a lower rank. One that ended, or did not begin properly, is called again. */
static ls_status hear_lower(door *d, int rank, int line)
{
    hello *h = call_to(d, rank, line);
    speak(d, h);
    hearing heard = listen_to(d, h);
    if (heard == HEARD_NONSENSE || (heard == HEARD_ALL && h->in.head.from != (uint32_t)rank))
        forget(d, h);
    else if (heard == HEARD_ALL && h->sent == d->own_bytes) {
        LS_TRY(compare(d, h));
        meet(d, h);
    }
    return LS_OK;
}

/* *gone: the guest is one no more. It is answered before anything is compared: the other side is told the difference,
 * too. */
static ls_status hear_guest(door *d, int index, bool *gone)
{
    hello *h = guest(d, index);
    hearing heard = h->speaks ? HEARD_ALL : listen_to(d, h);
    *gone = heard == HEARD_NONSENSE;
    if (heard == HEARD_ALL) {
        uint32_t from = h->in.head.from;
        *gone = from <= (uint32_t)d->options->rank || from >= (uint32_t)d->options->size;
        h->speaks = true;
        h->line = h->in.head.sequence == 1;
        if (!*gone || from > (uint32_t)d->options->rank)
            speak(d, h);
        if (h->sent == d->own_bytes) {
            LS_TRY(compare(d, h));
            if (!*gone && !has_line(d, (int)from, h->line))
                meet(d, h);
            *gone = true;
        }
    }
    if (*gone)
        drop_guest(d, index);
    return LS_OK;
}

/* ---- All of it ---- */

static bool is_complete(const door *d)
{
    for (int line = 0; line < d->lines; line++)
        for (int r = 0; r < d->options->size; r++)
            if (r != d->options->rank && !has_line(d, r, line))
                return false;
    return true;
}

static ls_status name_missing(const door *d)
{
    ls_text names = { 0 };
    char strangers[400] = "";
    int missing = 0, size = d->options->size;
    if (d->mesh->table->refused)
        d->mesh->table->refused(d->mesh->transport, strangers, sizeof(strangers));
    for (int r = 0; r < size; r++)
        if (r != d->options->rank && !d->mesh->links[r].met)
            ls_text_add(&names, "%s%d", missing++ ? ", " : "", r);
    ls_status status = ls_fail(
        LS_ERR_PEER, "worker%s %s of %d did not come within %g s (this is worker %d of job \"%s\")%s%s%s%s",
        missing == 1 ? "" : "s", ls_text_get(&names), size, d->mesh->join_limit, d->options->rank, d->options->job,
        d->why[0] ? "; the last call: " : "", d->why, strangers[0] ? "; at this worker's door: " : "", strangers);
    ls_text_free(&names);
    return status;
}

/* Until somebody calls or says something; or for a moment, if there is somebody to call again. */
static ls_status wait_for_callers(door *d)
{
    int n = 0;
    bool complete = true;
    double left = d->end - d->mesh->table->now(d->mesh->transport);
    if (left <= 0)
        return name_missing(d);
    d->wants[n++] = (ls_want){ .line = NULL, .read = true };
    for (int i = 0; i < 2 * d->options->size + d->guests; i++) {
        const hello *h = &d->hellos[i];
        int rank = i % d->options->size, line = i / d->options->size;
        if (h->at)
            d->wants[n++] = (ls_want){ .line = h->at, .read = true, .write = h->speaks && h->sent < d->own_bytes };
        else
            complete &= line >= d->lines || rank >= d->options->rank || has_line(d, rank, line);
    }
    double limit = complete ? LS_BEAT_EVERY : CALL_AGAIN;
    LS_TRY(ls_mesh_beat(d->mesh)); /* those that have met all have begun to wait */
    return d->mesh->table->wait(d->mesh->transport, d->wants, n, left < limit ? left : limit);
}

static ls_status hear_all(door *d)
{
    LS_TRY(answer_all(d));
    for (int line = 0; line < d->lines; line++)
        for (int r = 0; r < d->options->rank; r++)
            if (call_to(d, r, line)->at)
                LS_TRY(hear_lower(d, r, line));
    for (int i = 0; i < d->guests;) {
        bool gone = false;
        LS_TRY(hear_guest(d, i, &gone));
        i += !gone;
    }
    return LS_OK;
}

static ls_status meet_all(door *d)
{
    while (!is_complete(d)) {
        LS_TRY(call_on_all(d));
        LS_TRY(wait_for_callers(d));
        LS_TRY(hear_all(d));
    }
    return LS_OK;
}

static ls_status open_door(door *d, int number, const char *about)
{
    ls_mesh *mesh = d->mesh;
    size_t count = 2 * (size_t)d->options->size + MOST_GUESTS;
    if (strlen(about) > MOST_ABOUT)
        return ls_fail(LS_ERR_INTERNAL, "the bit class has %zu characters, %d are possible", strlen(about), MOST_ABOUT);
    for (int line = 0; line < 2; line++) {
        d->own[line].head = ls_mesh_frame(mesh, LS_FRAME_HELLO, "");
        d->own[line].head.number = (uint64_t)d->options->size;
        d->own[line].head.sequence = (uint64_t)line;
        d->own[line].head.bytes = strlen(about);
        memcpy(d->own[line].about, about, strlen(about));
    }
    d->lines = mesh->table->beats ? 2 : 1;
    d->own_bytes = sizeof(d->own[0].head) + strlen(about);
    d->hellos = calloc(count, sizeof(*d->hellos));
    d->wants = calloc(count + 1, sizeof(*d->wants));
    if (!d->hellos || !d->wants)
        return ls_fail(LS_ERR_MEMORY, "no memory to meet %d workers", d->options->size);
    LS_TRY(mesh->table->open(d->options, number, &mesh->transport));
    d->end = mesh->table->now(mesh->transport) + mesh->join_limit;
    return meet_all(d);
}

ls_status ls_mesh_open(const ls_cluster_options *options, int number, const char *about, ls_logger *log, ls_mesh **out)
{
    ls_mesh *mesh;
    LS_TRY(ls_mesh_create(options, &mesh));
    mesh->log = log;
    door d = { .mesh = mesh, .options = options };
    ls_status status = ls_transport_choose(options, &mesh->table);
    if (status == LS_OK)
        status = open_door(&d, number, about);
    if (status == LS_OK && mesh->table->beats)
        status =
            ls_beats_start(mesh->transport, mesh->table, mesh->alive, options->size, mesh->silence_limit, &mesh->beats);
    for (int i = 0; d.hellos && i < 2 * options->size + MOST_GUESTS; i++)
        forget(&d, &d.hellos[i]);
    free(d.hellos);
    free(d.wants);
    if (status != LS_OK) {
        ls_mesh_free(mesh);
        return status;
    }
    *out = mesh;
    return LS_OK;
}
