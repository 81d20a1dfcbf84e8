/* Exchanging pieces over the connections of a mesh. All connections are served at the same time by one loop around
 * poll(), so pieces of any size pass each other; nothing is allocated. */
#include "fabric/mesh.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"

#define MOST_PARTS 64  /* pieces handed to the system in one call */
#define SLEPT      1.0 /* seconds beyond its limit after which poll() was held up: this process was stopped itself */
#define GOES_ON    2.0 /* seconds that an exchange goes on with the others when a worker has failed */
#define LONG_POLL  1e6 /* milliseconds, at most */

static ls_status exchange_pieces(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count);

ls_status ls_mesh_create(const ls_cluster_options *options, ls_mesh **out)
{
    ls_mesh *mesh = calloc(1, sizeof(*mesh));
    size_t size = (size_t)options->size;
    if (mesh) {
        mesh->links = calloc(size, sizeof(*mesh->links));
        mesh->polls = calloc(size, sizeof(*mesh->polls));
    }
    if (!mesh || !mesh->links || !mesh->polls) {
        if (mesh) {
            free(mesh->links);
            free(mesh->polls);
        }
        free(mesh);
        return ls_fail(LS_ERR_MEMORY, "no memory for the connections of %d workers", options->size);
    }
    pthread_mutex_init(&mesh->mutex, NULL);
    mesh->peers.rank = options->rank;
    mesh->peers.size = options->size;
    mesh->peers.exchange = exchange_pieces;
    mesh->join_limit = options->join_limit > 0 ? options->join_limit : 30;
    mesh->silence_limit = options->silence_limit > 0 ? options->silence_limit : 60;
    for (size_t r = 0; r < size; r++)
        mesh->links[r].fd = -1;
    *out = mesh;
    return LS_OK;
}

void ls_mesh_free(ls_mesh *mesh)
{
    if (!mesh)
        return;
    for (int r = 0; r < mesh->peers.size; r++)
        if (mesh->links[r].fd >= 0)
            close(mesh->links[r].fd);
    pthread_mutex_destroy(&mesh->mutex);
    free(mesh->links);
    free(mesh->polls);
    free(mesh);
}

static ls_frame make_frame(const ls_mesh *mesh, ls_frame_kind kind, const char *what)
{
    ls_frame frame = { .magic = LS_FRAME_MAGIC,
                       .version = LS_FRAME_VERSION,
                       .kind = (uint16_t)kind,
                       .from = (uint32_t)mesh->peers.rank,
                       .sequence = mesh->sequence };
    snprintf(frame.what, sizeof(frame.what), "%s", what);
    return frame;
}

/* ---- The end of a mesh ---- */

/* A last frame to everyone to whom no frame is under way, and then silence. */
static void say_and_close(ls_mesh *mesh, const ls_frame *frame)
{
    for (int r = 0; r < mesh->peers.size; r++) {
        ls_link *link = &mesh->links[r];
        bool between = link->out.head == 0 || (link->out.head == sizeof(ls_frame) && link->out.left == 0);
        if (link->fd < 0)
            continue;
        if (between && send(link->fd, frame, sizeof(*frame), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
            /* it will see the end of the connection */
        }
        close(link->fd);
        link->fd = -1;
    }
}

/* Keeps the failure for all later exchanges, and tells the others who is to blame. */
static ls_status break_up(ls_mesh *mesh, ls_status status)
{
    ls_error_keep(&mesh->broken, status);
    ls_frame frame = make_frame(mesh, LS_FRAME_LOST, ls_last_error());
    say_and_close(mesh, &frame);
    return status;
}

void ls_mesh_close(ls_mesh *mesh)
{
    if (!mesh)
        return;
    ls_frame frame = make_frame(mesh, LS_FRAME_LEFT, "");
    say_and_close(mesh, &frame);
    ls_mesh_free(mesh);
}

/* ---- One exchange ---- */

typedef struct exchange {
    ls_mesh *mesh;
    const ls_piece *pieces;
    size_t count;
    ls_frame head; /* that this worker sends to all */
    double failed; /* when the first failure was seen; 0: there is none */
    ls_error first;
} exchange;

static const char *what_of(const exchange *x)
{
    return x->head.what;
}

/* What is left of a head and of the pieces of worker `from`, as parts for one call of the system. */
static size_t list_parts(const exchange *x, int from, const ls_cursor *c, ls_frame *head, struct iovec *parts)
{
    size_t n = 0, offset = c->offset;
    if (c->head < sizeof(*head))
        parts[n++] = (struct iovec){ (char *)head + c->head, sizeof(*head) - c->head };
    for (size_t i = c->piece; i < x->count && n < MOST_PARTS; i++) {
        const ls_piece *piece = &x->pieces[i];
        if (piece->from == from && piece->bytes > offset)
            parts[n++] = (struct iovec){ (char *)piece->data + offset, piece->bytes - offset };
        offset = 0;
    }
    return n;
}

static void advance(const exchange *x, int from, ls_cursor *c, size_t bytes)
{
    size_t head = sizeof(ls_frame) - c->head;
    head = head < bytes ? head : bytes;
    c->head += head;
    bytes -= head;
    c->left -= bytes;
    while (bytes > 0) {
        const ls_piece *piece = &x->pieces[c->piece];
        size_t rest = piece->from == from ? piece->bytes - c->offset : 0;
        if (bytes < rest) {
            c->offset += bytes;
            return;
        }
        bytes -= rest;
        c->piece++;
        c->offset = 0;
    }
}

static bool is_done(const ls_cursor *c)
{
    return c->head == sizeof(ls_frame) && c->left == 0;
}

/* A worker that does not listen any more has said why, or is gone: what it sent before is read, and tells. */
static void send_some(exchange *x, int rank)
{
    ls_link *link = &x->mesh->links[rank];
    struct iovec parts[MOST_PARTS];
    struct msghdr message = { .msg_iov = parts };
    message.msg_iovlen = list_parts(x, x->mesh->peers.rank, &link->out, &x->head, parts);
    ssize_t sent = sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
        advance(x, x->mesh->peers.rank, &link->out, (size_t)sent);
        link->heard = ls_clock_now();
    } else if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS) {
        link->deaf = true;
    }
}

/* ---- Failures ----
 * A worker that fails is not waited for any more; with the others the exchange goes on, for a moment. So everybody sees
 * with its own eyes who failed first, and the last frame of all, which says why this worker gives up, finds no other
 * frame half sent. */

static void end_link(exchange *x, int rank)
{
    x->mesh->links[rank].ended = true;
    if (x->failed == 0)
        x->failed = ls_clock_now();
}

static void fail_link(exchange *x, int rank, ls_status status)
{
    if (status == LS_OK)
        return;
    if (x->first.status == LS_OK)
        ls_error_keep(&x->first, status);
    end_link(x, rank);
}

/* What a worker said is more than that its connection ended. */
static ls_status tell_failure(exchange *x)
{
    ls_text names = { 0 };
    int count = 0, size = x->mesh->peers.size;
    if (x->first.status != LS_OK)
        return ls_error_give(&x->first);
    for (int r = size - 1; r >= 0; r--)
        if (x->mesh->links[r].ended)
            for (int r = 0; r < size; r++)
                if (x->mesh->links[r].ended)
                    ls_text_add(&names, "%s%d", count++ ? ", " : "", r);
    ls_status status =
        count == 1
            ? ls_fail(LS_ERR_PEER, "worker %s of %d is gone: its connection ended while \"%s\" was exchanged",
                      ls_text_get(&names), size, what_of(x))
            : ls_fail(LS_ERR_PEER, "workers %s of %d are gone: their connections ended while \"%s\" was exchanged",
                      ls_text_get(&names), size, what_of(x));
    ls_text_free(&names);
    return status;
}

/* ---- Receiving ---- */

/* The head of a frame is there: is it that of the same exchange? */
static ls_status check_head(exchange *x, int rank)
{
    const ls_link *link = &x->mesh->links[rank];
    const ls_frame *h = &link->head;
    char what[LS_FRAME_WHAT];
    int own = x->mesh->peers.rank;
    snprintf(what, sizeof(what), "%.*s", LS_FRAME_WHAT - 1, h->what);
    ls_make_printable(what, strlen(what));
    if (h->magic != LS_FRAME_MAGIC || h->version != LS_FRAME_VERSION || h->from != (uint32_t)rank)
        return ls_fail(LS_ERR_PEER,
                       "worker %d sent a frame that is none of ours (magic %08x, version %u, from %u) while \"%s\" was "
                       "exchanged",
                       rank, h->magic, h->version, h->from, what_of(x));
    if (h->kind == LS_FRAME_LEFT)
        return ls_fail(LS_ERR_PEER, "worker %d of %d has left: it closed its context, and worker %d is at \"%s\"", rank,
                       x->mesh->peers.size, own, what_of(x));
    if (h->kind == LS_FRAME_LOST)
        return ls_fail(LS_ERR_PEER, "worker %d gave up: %s", rank, what);
    if (h->kind != LS_FRAME_PIECES)
        return ls_fail(LS_ERR_PEER, "worker %d sent a frame of unknown kind %u while \"%s\" was exchanged", rank,
                       h->kind, what_of(x));
    if (h->tag != x->head.tag || h->sequence != x->head.sequence)
        return ls_fail(LS_ERR_PEER,
                       "workers do not do the same: worker %d is at \"%s\" (exchange %llu, tag %016llx), worker %d at "
                       "\"%s\" (exchange %llu, tag %016llx)",
                       own, what_of(x), (unsigned long long)x->head.sequence, (unsigned long long)x->head.tag, rank,
                       what, (unsigned long long)h->sequence, (unsigned long long)h->tag);
    if (h->total != x->head.total || h->bytes != link->in.left)
        return ls_fail(LS_ERR_PEER, "\"%s\": worker %d sends %llu bytes of %llu, worker %d expects %llu of %llu",
                       what_of(x), rank, (unsigned long long)h->bytes, (unsigned long long)h->total, own,
                       (unsigned long long)link->in.left, (unsigned long long)x->head.total);
    return LS_OK;
}

static ls_status receive_some(exchange *x, int rank)
{
    ls_link *link = &x->mesh->links[rank];
    struct iovec parts[MOST_PARTS];
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 1 };
    bool at_head = link->in.head < sizeof(ls_frame); /* nothing behind it is taken before it was checked */
    size_t n = list_parts(x, rank, &link->in, &link->head, parts);
    message.msg_iovlen = at_head ? 1 : n;
    ssize_t got = recvmsg(link->fd, &message, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return LS_OK;
    if (got <= 0) {
        end_link(x, rank);
        return LS_OK;
    }
    advance(x, rank, &link->in, (size_t)got);
    link->heard = ls_clock_now();
    return at_head && link->in.head == sizeof(ls_frame) ? check_head(x, rank) : LS_OK;
}

/* Whom to wait for, and for what; false: for nobody. *limit: seconds until somebody was silent for too long. */
static bool list_waits(exchange *x, double *limit)
{
    ls_mesh *mesh = x->mesh;
    double now = ls_clock_now();
    bool any = false;
    *limit = mesh->silence_limit;
    for (int r = 0; r < mesh->peers.size; r++) {
        ls_link *link = &mesh->links[r];
        bool in = !is_done(&link->in), out = !is_done(&link->out) && !link->deaf;
        mesh->polls[r] = (struct pollfd){ .fd = link->fd };
        if (link->fd < 0 || link->ended || (!in && !out)) {
            mesh->polls[r].fd = -1;
            continue;
        }
        mesh->polls[r].events = (short)((in ? POLLIN : 0) | (out ? POLLOUT : 0));
        any = true;
        double left = link->heard + mesh->silence_limit - now;
        *limit = left < *limit ? left : *limit;
    }
    if (x->failed > 0) {
        double left = x->failed + GOES_ON - now;
        any &= left > 0;
        *limit = left < *limit ? left : *limit;
    }
    return any;
}

static void check_silence(exchange *x)
{
    ls_mesh *mesh = x->mesh;
    double now = ls_clock_now();
    for (int r = 0; r < mesh->peers.size; r++) {
        if (mesh->polls[r].fd < 0 || now - mesh->links[r].heard < mesh->silence_limit)
            continue;
        fail_link(x, r,
                  ls_fail(LS_ERR_PEER,
                          "worker %d of %d was silent for %g s while \"%s\" was exchanged: it is stopped, hangs, or "
                          "needs a longer silence_limit",
                          r, mesh->peers.size, mesh->silence_limit, what_of(x)));
    }
}

/* Waits until something can be moved. A process that was itself stopped has no reason to call others silent. */
static ls_status wait_for_some(exchange *x, double limit)
{
    ls_mesh *mesh = x->mesh;
    double milliseconds = limit > 0 ? limit * 1000 + 1 : 0, before = ls_clock_now();
    int ready = poll(mesh->polls, (nfds_t)mesh->peers.size, (int)(milliseconds < LONG_POLL ? milliseconds : LONG_POLL));
    if (ready < 0 && errno != EINTR)
        return ls_fail(LS_ERR_PEER, "waiting for workers at \"%s\" failed: %s", what_of(x), strerror(errno));
    if (ready != 0)
        return LS_OK;
    double now = ls_clock_now();
    if (now - before > milliseconds / 1000 + SLEPT)
        for (int r = 0; r < mesh->peers.size; r++)
            mesh->links[r].heard = now;
    check_silence(x);
    return LS_OK;
}

static void serve(exchange *x, int rank, short events)
{
    ls_link *link = &x->mesh->links[rank];
    if (events & (POLLIN | POLLHUP | POLLERR) && !is_done(&link->in))
        fail_link(x, rank, receive_some(x, rank));
    else if (events & (POLLHUP | POLLERR))
        link->deaf = true;
    if (events & POLLOUT && !link->ended)
        send_some(x, rank);
}

static ls_status move_pieces(exchange *x)
{
    ls_mesh *mesh = x->mesh;
    double limit;
    for (int r = 0; r < mesh->peers.size; r++)
        if (mesh->links[r].fd >= 0)
            send_some(x, r);
    while (list_waits(x, &limit)) {
        LS_TRY(wait_for_some(x, limit));
        for (int r = 0; r < mesh->peers.size; r++)
            if (mesh->polls[r].fd >= 0 && mesh->polls[r].revents)
                serve(x, r, mesh->polls[r].revents);
    }
    return x->failed > 0 ? tell_failure(x) : LS_OK;
}

static ls_status begin(exchange *x)
{
    ls_mesh *mesh = x->mesh;
    double now = ls_clock_now();
    for (int r = 0; r < mesh->peers.size; r++) {
        ls_link *link = &mesh->links[r];
        link->in = link->out = (ls_cursor){ .head = link->fd < 0 ? sizeof(ls_frame) : 0 };
        link->heard = now;
        link->ended = false;
    }
    for (size_t i = 0; i < x->count; i++) {
        int from = x->pieces[i].from;
        if (from < 0 || from >= mesh->peers.size)
            return ls_fail(LS_ERR_INTERNAL, "\"%s\": piece %zu is of worker %d of %d", what_of(x), i, from,
                           mesh->peers.size);
        x->head.total += x->pieces[i].bytes;
        if (from == mesh->peers.rank)
            x->head.bytes += x->pieces[i].bytes;
        else
            mesh->links[from].in.left += x->pieces[i].bytes;
    }
    for (int r = 0; r < mesh->peers.size; r++)
        if (mesh->links[r].fd >= 0)
            mesh->links[r].out.left = x->head.bytes;
    return LS_OK;
}

static ls_status exchange_locked(ls_mesh *mesh, uint64_t tag, const char *what, const ls_piece *pieces, size_t count)
{
    if (mesh->broken.status != LS_OK)
        return ls_error_give(&mesh->broken);
    mesh->sequence++;
    exchange x = { .mesh = mesh, .pieces = pieces, .count = count };
    x.head = make_frame(mesh, LS_FRAME_PIECES, what);
    x.head.tag = tag;
    ls_status status = begin(&x);
    if (status == LS_OK)
        status = move_pieces(&x);
    return status == LS_OK ? LS_OK : break_up(mesh, status);
}

static ls_status exchange_pieces(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count)
{
    ls_mesh *mesh = (ls_mesh *)peers;
    pthread_mutex_lock(&mesh->mutex);
    ls_status status = exchange_locked(mesh, tag, what, pieces, count);
    pthread_mutex_unlock(&mesh->mutex);
    return status;
}
