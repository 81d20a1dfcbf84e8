/* How workers meet. At the beginning each calls on all lower ranks, and is called on by all higher ones; both sides say
 * HELLO and compare. One that comes later, or comes back, finds a job that has begun: a HELLO says so, and who its
 * members are. It calls on all of these, who look at their doors between two things that they do together. Then it is a
 * newcomer, and may ask to be let in (members.c). */
#include <string.h>

#include "base/text.h"
#include "fabric/mesh.h"

#define MOST_ABOUT   4096 /* bytes of a HELLO's text */
#define MOST_GUESTS  64   /* callers that have not said who they are; the oldest has to go when there are more */
#define CALL_AGAIN   0.01 /* seconds until those that are not there yet are called again */
#define ASK_HIGHER   0.2 /* seconds until higher ranks are asked whether the job has begun, and between two questions */
#define TELL_REFUSED 10.0 /* seconds between two lines about callers that were not let in */
#define LOOK_AGAIN   2.0  /* seconds until a newcomer that has not met all members asks anew who they are */

/* One line on which HELLOs are under way. */
typedef struct hello {
    ls_line *at;
    size_t sent, got;
    bool speaks;  /* this side says its own: */
    ls_frame out; /* its head; sequence 1: of a line for signs of life */
    ls_frame in;
    char about[MOST_ABOUT + 1]; /* of the other side */
} hello;

struct ls_door {
    ls_mesh *mesh;
    ls_cluster_options copy;
    const ls_cluster_options *options; /* that copy */
    char about[MOST_ABOUT + 1];
    double end;     /* of the waiting for those with whom the job begins */
    double asked;   /* when higher ranks were */
    double tell_at; /* from then on callers that were not let in are told of again */
    hello *hellos;  /* of ranks that were called on; for signs of life likewise; of guests, oldest first */
    int lines;      /* to each other worker */
    int guests;
    ls_want *wants;
    char why[300]; /* the last line that was called and ended */

    bool joins; /* the job has begun without this worker; its members: */
    uint64_t members[LS_MAX_CLUSTER / 64];
    uint32_t epoch;
    double since; /* when that was learnt */
};

static void forget(const ls_door *d, hello *h)
{
    if (!h->at)
        return;
    d->mesh->table->hang_up(h->at);
    *h = (hello){ 0 };
}

/* ---- Calling and being called on ---- */

/* Whether a worker is one of those that begin the job. */
static bool begins(const ls_door *d, int rank)
{
    return rank < d->mesh->peers.count;
}

static bool has_line(const ls_door *d, int rank, int line)
{
    return line ? d->mesh->links[rank].lives : d->mesh->links[rank].line != NULL;
}

static hello *call_to(const ls_door *d, int rank, int line)
{
    return &d->hellos[line * d->options->size + rank];
}

static void say(const ls_door *d, hello *h, int line)
{
    const ls_mesh *mesh = d->mesh;
    h->speaks = true;
    h->out = ls_mesh_frame(mesh, LS_FRAME_HELLO, "");
    h->out.number = (uint64_t)d->options->size;
    h->out.sequence = (uint64_t)line;
    h->out.bytes = strlen(d->about);
    if (!mesh->begun)
        return;
    h->out.tag = mesh->since[mesh->peers.rank];
    ls_mesh_put_members(mesh, &h->out);
}

/* Lower ranks, all the time. Higher ones now and then: they call themselves, unless the job has begun. */
static bool should_call(const ls_door *d, int rank, bool asks)
{
    if (rank == d->options->rank || d->mesh->begun)
        return false;
    if (d->joins)
        return ls_has_bit(d->members, rank);
    return asks || (rank < d->options->rank && begins(d, rank));
}

static ls_status call_on_all(ls_door *d)
{
    double now = d->mesh->table->now(d->mesh->transport);
    bool asks = !d->mesh->begun && now - d->asked >= ASK_HIGHER;
    if (asks)
        d->asked = now;
    for (int line = 0; line < d->lines; line++)
        for (int r = 0; r < d->options->size; r++) {
            hello *h = call_to(d, r, line);
            if (h->at || has_line(d, r, line) || !should_call(d, r, asks))
                continue;
            LS_TRY(d->mesh->table->call(d->mesh->transport, r, &h->at));
            if (h->at)
                say(d, h, line);
        }
    return LS_OK;
}

static hello *guest(const ls_door *d, int index)
{
    return &d->hellos[2 * d->options->size + index];
}

static void drop_guest(ls_door *d, int index)
{
    forget(d, guest(d, index));
    memmove(guest(d, index), guest(d, index + 1), (size_t)(d->guests - index - 1) * sizeof(hello));
    *guest(d, --d->guests) = (hello){ 0 }; /* it has moved */
}

static ls_status answer_all(ls_door *d)
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
static hearing listen_to(ls_door *d, hello *h)
{
    const size_t head = sizeof(h->in);
    for (;;) {
        size_t wanted = h->got < head ? head : head + h->in.bytes, moved = 0;
        if (h->got >= head && h->got == wanted) {
            h->about[h->in.bytes] = '\0';
            return HEARD_ALL;
        }
        char *to = h->got < head ? (char *)&h->in + h->got : h->about + (h->got - head);
        if (d->mesh->table->read(h->at, &(struct iovec){ to, wanted - h->got }, 1, &moved) != LS_OK) {
            snprintf(d->why, sizeof(d->why), "%s", ls_last_error());
            return HEARD_NONSENSE;
        }
        if (moved == 0)
            return HEARD_PART;
        h->got += moved;
        if (h->got == head && !is_ours(&h->in))
            return HEARD_NONSENSE;
    }
}

static bool has_spoken(const hello *h)
{
    return h->speaks && h->sent == sizeof(h->out) + h->out.bytes;
}

/* A line that does not take it has ended, or will. */
static void speak(const ls_door *d, hello *h)
{
    const size_t head = sizeof(h->out), all = head + h->out.bytes;
    size_t moved = 0;
    struct iovec parts[2];
    int n = 0;
    if (h->sent == all)
        return;
    if (h->sent < head)
        parts[n++] = (struct iovec){ (char *)&h->out + h->sent, head - h->sent };
    size_t from = h->sent < head ? 0 : h->sent - head;
    parts[n++] = (struct iovec){ (char *)d->about + from, h->out.bytes - from };
    if (d->mesh->table->write(h->at, parts, n, &moved) == LS_OK)
        h->sent += moved;
}

static ls_status compare(const ls_door *d, const hello *h)
{
    const ls_cluster_options *o = d->options;
    char about[MOST_ABOUT + 1];
    if (h->in.version != LS_FRAME_VERSION)
        return ls_fail(LS_ERR_PEER, "worker %u speaks version %u of the protocol, worker %d (this one) version %d",
                       h->in.from, h->in.version, o->rank, LS_FRAME_VERSION);
    if (h->in.number != (uint64_t)o->size)
        return ls_fail(LS_ERR_PEER, "worker %u is one of %llu, worker %d (this one) is one of %d", h->in.from,
                       (unsigned long long)h->in.number, o->rank, o->size);
    memcpy(about, h->about, sizeof(about));
    ls_make_printable(about, strlen(about));
    if (strcmp(h->about, d->about) != 0)
        return ls_fail(LS_ERR_PEER,
                       "workers would not compute the same bits: worker %u has %s; worker %d (this one) has %s",
                       h->in.from, about, o->rank, d->about);
    return LS_OK;
}

void ls_door_learn(ls_door *d, const ls_frame *in)
{
    bool first = !d->joins; /* whomever it has met up to now was at the door itself */
    d->joins = true;
    d->epoch = in->epoch;
    d->since = d->mesh->table->now(d->mesh->transport);
    memcpy(d->members, in->members, sizeof(d->members));
    for (int r = 0; r < d->options->size; r++)
        if (first || !ls_has_bit(d->members, r))
            ls_mesh_hang_up(d->mesh, r);
}

/* What a member of a job that has begun says of it. */
static void learn(ls_door *d, const ls_frame *in)
{
    if (in->tag == 0 || in->tag > UINT32_MAX)
        return;
    d->mesh->since[in->from] = (uint32_t)in->tag;
    if (!d->joins || in->epoch > d->epoch)
        ls_door_learn(d, in);
}

/* The line is one to that rank from now on. */
static void meet(ls_door *d, hello *h)
{
    int rank = (int)h->in.from;
    if (h->out.sequence == 0)
        ls_mesh_meet(d->mesh, rank, h->at);
    else
        ls_mesh_hear_life(d->mesh, rank, h->at);
    *h = (hello){ 0 };
}

/* A line that this worker called. One that ended, or did not begin properly, is called again; so is a higher rank that
 * has not begun. */
static ls_status hear_called(ls_door *d, int rank, int line)
{
    hello *h = call_to(d, rank, line);
    speak(d, h);
    hearing heard = listen_to(d, h);
    if (heard == HEARD_NONSENSE || (heard == HEARD_ALL && h->in.from != (uint32_t)rank)) {
        forget(d, h);
    } else if (heard == HEARD_ALL && has_spoken(h)) {
        LS_TRY(compare(d, h));
        learn(d, &h->in);
        bool wanted = d->joins ? h->in.tag > 0 && ls_has_bit(d->members, rank)
                               : rank < d->options->rank && begins(d, d->options->rank);
        if (wanted && !has_line(d, rank, line))
            meet(d, h);
        else
            forget(d, h);
    }
    return LS_OK;
}

/* Whether a caller may be let in, now or later. */
typedef enum welcome { WELCOME, LATER, NEVER } welcome;

static welcome judge_guest(const ls_door *d, const hello *h)
{
    int from = (int)h->in.from, line = h->in.sequence == 1;
    if (from == d->options->rank || from >= d->options->size)
        return NEVER;
    if (d->mesh->begun)
        return ls_peers_has(&d->mesh->peers, from) || has_line(d, from, line) ? LATER : WELCOME;
    return from > d->options->rank && begins(d, from) && !d->joins && !has_line(d, from, line) ? WELCOME : NEVER;
}

/* A guest is answered before anything is compared: the other side is told the difference, too. While a job runs, one
 * that does not fit is sent away; when it begins, nobody can begin. */
static ls_status hear_guest(ls_door *d, int index, bool *gone)
{
    hello *h = guest(d, index);
    hearing heard = h->speaks ? HEARD_ALL : listen_to(d, h);
    *gone = heard == HEARD_NONSENSE;
    ls_status status = LS_OK;
    if (heard == HEARD_ALL) {
        welcome how = judge_guest(d, h);
        if (how == LATER)
            return LS_OK;
        if (!h->speaks)
            say(d, h, h->in.sequence == 1);
        speak(d, h);
        *gone = has_spoken(h);
        if (*gone)
            status = compare(d, h);
        if (*gone && status == LS_OK && how == WELCOME)
            meet(d, h);
    }
    if (*gone)
        drop_guest(d, index);
    if (status == LS_OK || !d->mesh->begun)
        return status;
    if (d->mesh->log)
        ls_log_write(d->mesh->log, LS_LOG_WARNING, "a worker that came later was sent away: %s", ls_last_error());
    return LS_OK;
}

static ls_status hear_all(ls_door *d)
{
    LS_TRY(answer_all(d));
    for (int line = 0; line < d->lines; line++)
        for (int r = 0; r < d->options->size; r++) {
            if (d->mesh->begun)
                forget(d, call_to(d, r, line)); /* a question that needs no answer any more */
            else if (call_to(d, r, line)->at)
                LS_TRY(hear_called(d, r, line));
        }
    for (int i = 0; i < d->guests;) {
        bool gone = false;
        LS_TRY(hear_guest(d, i, &gone));
        i += !gone;
    }
    return LS_OK;
}

/* Who knocks at the door of a job that runs, and is not let in, has been told so; the first is told here, too, and then
 * what has come together in a while. */
static void tell_refused(ls_door *d)
{
    char why[400];
    double now = d->mesh->table->now(d->mesh->transport);
    if (!d->mesh->table->refused || !d->mesh->log || now < d->tell_at ||
        !d->mesh->table->refused(d->mesh->transport, why, sizeof(why)))
        return;
    d->tell_at = now + TELL_REFUSED;
    ls_log_write(d->mesh->log, LS_LOG_WARNING, "at the door of worker %d: %s", d->options->rank, why);
}

ls_status ls_door_visit(ls_door *d)
{
    if (!d)
        return LS_OK;
    tell_refused(d);
    if (!d->mesh->begun)
        LS_TRY(call_on_all(d));
    return hear_all(d);
}

/* ---- All of it ---- */

bool ls_door_has_met(const ls_door *d, const uint64_t *members)
{
    for (int line = 0; line < d->lines; line++)
        for (int r = 0; r < d->options->size; r++)
            if (r != d->options->rank && ls_has_bit(members, r) && !has_line(d, r, line))
                return false;
    return true;
}

static bool is_complete(const ls_door *d)
{
    ls_frame all = { 0 };
    if (d->joins)
        return ls_door_has_met(d, d->members);
    ls_mesh_put_members(d->mesh, &all);
    return begins(d, d->options->rank) && ls_door_has_met(d, all.members);
}

static ls_status name_missing(const ls_door *d)
{
    ls_text names = { 0 };
    char strangers[400] = "";
    int missing = 0, size = d->options->size, expected = d->mesh->peers.count;
    if (d->mesh->table->refused)
        d->mesh->table->refused(d->mesh->transport, strangers, sizeof(strangers));
    for (int r = 0; r < size; r++)
        if (r != d->options->rank && !d->mesh->links[r].line && (d->joins ? ls_has_bit(d->members, r) : r < expected))
            ls_text_add(&names, "%s%d", missing++ ? ", " : "", r);
    ls_status status = ls_fail(
        LS_ERR_PEER, "worker%s %s of %d did not come within %g s (this is worker %d of job \"%s\")%s%s%s%s",
        missing == 1 ? "" : "s", ls_text_get(&names), size, d->mesh->join_limit, d->options->rank, d->options->job,
        d->why[0] ? "; the last call: " : "", d->why, strangers[0] ? "; at this worker's door: " : "", strangers);
    ls_text_free(&names);
    return status;
}

/* Until somebody calls or says something; or for a moment, if there is somebody to call again. */
static ls_status wait_for_callers(ls_door *d)
{
    int n = 0;
    bool complete = true;
    double now = d->mesh->table->now(d->mesh->transport), left = d->end - now;
    if (left <= 0)
        return name_missing(d);
    d->wants[n++] = (ls_want){ .line = NULL, .read = true };
    for (int i = 0; i < 2 * d->options->size + d->guests; i++) {
        const hello *h = &d->hellos[i];
        int rank = i % d->options->size, line = i / d->options->size;
        if (h->at)
            d->wants[n++] = (ls_want){ .line = h->at, .read = true, .write = h->speaks && !has_spoken(h) };
        else
            complete &= line >= d->lines || has_line(d, rank, line) || !should_call(d, rank, false);
    }
    double limit = complete ? LS_BEAT_EVERY : CALL_AGAIN;
    LS_TRY(ls_mesh_beat(d->mesh)); /* those that have met all have begun to wait */
    return d->mesh->table->wait(d->mesh->transport, d->wants, n, left < limit ? left : limit);
}

/* The members may have changed meanwhile: they are asked again. */
static void look_again(ls_door *d)
{
    double now = d->mesh->table->now(d->mesh->transport);
    if (!d->joins || now - d->since < LOOK_AGAIN)
        return;
    d->joins = false;
    d->epoch = 0;
    for (int r = 0; r < d->options->size; r++)
        ls_mesh_hang_up(d->mesh, r);
}

static ls_status meet_all(ls_door *d)
{
    while (!is_complete(d)) {
        LS_TRY(call_on_all(d));
        LS_TRY(wait_for_callers(d));
        LS_TRY(hear_all(d));
        look_again(d);
    }
    return LS_OK;
}

static ls_status open_door(ls_door *d, int number, const char *about)
{
    ls_mesh *mesh = d->mesh;
    size_t count = 2 * (size_t)d->options->size + MOST_GUESTS;
    if (strlen(about) > MOST_ABOUT)
        return ls_fail(LS_ERR_INTERNAL, "the bit class has %zu characters, %d are possible", strlen(about), MOST_ABOUT);
    snprintf(d->about, sizeof(d->about), "%s", about);
    d->lines = mesh->table->beats ? 2 : 1;
    d->hellos = calloc(count, sizeof(*d->hellos));
    d->wants = calloc(count + 1, sizeof(*d->wants));
    if (!d->hellos || !d->wants)
        return ls_fail(LS_ERR_MEMORY, "no memory to meet %d workers", d->options->size);
    LS_TRY(mesh->table->open(d->options, number, &mesh->transport));
    d->asked = mesh->table->now(mesh->transport);
    d->end = d->asked + mesh->join_limit;
    return meet_all(d);
}

void ls_door_close(ls_door *d)
{
    if (!d)
        return;
    for (int i = 0; d->hellos && i < 2 * d->options->size + MOST_GUESTS; i++)
        forget(d, &d->hellos[i]);
    free(d->hellos);
    free(d->wants);
    free(d);
}

ls_status ls_mesh_open(const ls_cluster_options *options, int number, const char *about, ls_logger *log, ls_mesh **out)
{
    ls_mesh *mesh;
    LS_TRY(ls_mesh_create(options, &mesh));
    mesh->log = log;
    ls_door *d = mesh->door = calloc(1, sizeof(*d));
    ls_status status = d ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory to meet %d workers", options->size);
    if (d)
        *d = (ls_door){ .mesh = mesh, .copy = *options, .options = &d->copy };
    if (status == LS_OK)
        status = ls_transport_choose(options, &mesh->table);
    if (status == LS_OK)
        status = open_door(d, number, about);
    if (status == LS_OK && mesh->table->beats)
        status =
            ls_beats_start(mesh->transport, mesh->table, mesh->alive, options->size, mesh->silence_limit, &mesh->beats);
    if (status != LS_OK) {
        ls_mesh_free(mesh);
        return status;
    }
    mesh->peers.slice = mesh->table->slice;
    if (d->joins)
        ls_mesh_come_later(mesh, d->members, d->epoch);
    else
        mesh->begun = true;
    *out = mesh;
    return LS_OK;
}
