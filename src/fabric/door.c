/* How workers meet. Each waits at an address that follows from its user, job and rank, calls on all lower ranks, and is
 * called on by all higher ones; both sides say HELLO and compare. The addresses are abstract ones: they go with the
 * process, and nothing is left behind. Only processes of the same user are let in. */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sha256.h"
#include "base/text.h"
#include "fabric/mesh.h"

#define MOST_ABOUT  4096 /* bytes of a HELLO's text */
#define MOST_GUESTS 64   /* callers that have not said who they are; the oldest has to go when there are more */
#define CALL_AGAIN  10   /* milliseconds until those that are not there yet are called again */
#define BACKLOG     512

/* One HELLO on its way in. */
typedef struct hello {
    int fd;
    size_t got;
    struct {
        ls_frame head;
        char about[MOST_ABOUT + 1];
    } in;
} hello;

typedef struct door {
    ls_mesh *mesh;
    const ls_cluster_options *options;
    int number;
    const char *about;
    int listener;
    double end;    /* when the waiting is over */
    hello *hellos; /* of lower ranks that were called on, by rank; then those of guests, oldest first */
    int guests;
} door;

ls_status ls_mesh_address(const ls_cluster_options *options, int number, int rank, struct sockaddr_un *out,
                          unsigned *bytes)
{
    char hex[65];
    LS_TRY(ls_sha256_of(options->job, strlen(options->job), hex));
    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    int length = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "lockstep-%lu-%.32s-%d-%d",
                          (unsigned long)geteuid(), hex, number, rank);
    *bytes = (unsigned)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    return LS_OK;
}

static ls_status open_socket(int *out)
{
    *out = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return *out >= 0 ? LS_OK : ls_fail(LS_ERR_PEER, "no socket for the other workers: %s", strerror(errno));
}

static ls_status open_listener(door *d)
{
    struct sockaddr_un address;
    unsigned bytes;
    int rank = d->options->rank;
    LS_TRY(ls_mesh_address(d->options, d->number, rank, &address, &bytes));
    LS_TRY(open_socket(&d->listener));
    if (bind(d->listener, (struct sockaddr *)&address, bytes) < 0)
        return errno == EADDRINUSE
                   ? ls_fail(LS_ERR_STATE,
                             "another process is worker %d of job \"%s\" already: give each worker a rank of its own, "
                             "and each job another name",
                             rank, d->options->job)
                   : ls_fail(LS_ERR_PEER, "cannot wait for the other workers: %s", strerror(errno));
    if (listen(d->listener, BACKLOG) < 0)
        return ls_fail(LS_ERR_PEER, "cannot wait for the other workers: %s", strerror(errno));
    return LS_OK;
}

static bool is_same_user(int fd)
{
    struct ucred who;
    socklen_t bytes = sizeof(who);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && who.uid == geteuid();
}

/* A HELLO is smaller than any socket's buffer. */
static bool say_hello(const door *d, int fd)
{
    struct {
        ls_frame head;
        char about[MOST_ABOUT];
    } out = { .head = { .magic = LS_FRAME_MAGIC,
                        .version = LS_FRAME_VERSION,
                        .kind = LS_FRAME_HELLO,
                        .from = (uint32_t)d->options->rank,
                        .number = (uint32_t)d->options->size } };
    size_t length = strlen(d->about), bytes = sizeof(out.head) + length;
    out.head.bytes = length;
    memcpy(out.about, d->about, length);
    return send(fd, &out, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

static void forget(hello *h)
{
    if (h->fd >= 0)
        close(h->fd);
    h->fd = -1;
    h->got = 0;
}

/* ---- Calling on lower ranks ---- */

/* Not there yet is no failure; somebody else's process at that address is. */
static ls_status call_on(door *d, int rank)
{
    struct sockaddr_un address;
    unsigned bytes;
    hello *h = &d->hellos[rank];
    LS_TRY(ls_mesh_address(d->options, d->number, rank, &address, &bytes));
    LS_TRY(open_socket(&h->fd));
    if (connect(h->fd, (struct sockaddr *)&address, bytes) < 0) {
        forget(h);
        return LS_OK;
    }
    if (!is_same_user(h->fd)) {
        forget(h);
        return ls_fail(LS_ERR_PEER, "a process of another user waits at the address of worker %d of job \"%s\"", rank,
                       d->options->job);
    }
    if (!say_hello(d, h->fd))
        forget(h);
    return LS_OK;
}

static ls_status call_on_all(door *d, bool *complete)
{
    *complete = true;
    for (int r = 0; r < d->options->rank; r++) {
        if (!d->mesh->links[r].met && d->hellos[r].fd < 0)
            LS_TRY(call_on(d, r));
        *complete &= d->mesh->links[r].met || d->hellos[r].fd >= 0;
    }
    return LS_OK;
}

/* ---- Being called on ---- */

static hello *guest(door *d, int index)
{
    return &d->hellos[d->options->size + index];
}

static void drop_guest(door *d, int index)
{
    forget(guest(d, index));
    memmove(guest(d, index), guest(d, index + 1), (size_t)(d->guests - index - 1) * sizeof(hello));
    guest(d, --d->guests)->fd = -1; /* it has moved */
}

/* Strangers are not answered. */
static void accept_all(door *d)
{
    for (;;) {
        int fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && errno == EINTR)
            continue;
        if (fd < 0)
            return;
        if (!is_same_user(fd)) {
            close(fd);
            continue;
        }
        if (d->guests == MOST_GUESTS)
            drop_guest(d, 0);
        hello *h = guest(d, d->guests++);
        h->fd = fd;
        h->got = 0;
    }
}

/* ---- HELLOs ---- */

typedef enum hearing { HEARD_PART, HEARD_ALL, HEARD_NONSENSE } hearing;

/* The head is looked at before anything behind it is read. */
static hearing listen_to(hello *h)
{
    const ls_frame *head = &h->in.head;
    for (;;) {
        size_t wanted = h->got < sizeof(*head) ? sizeof(*head) : sizeof(*head) + head->bytes;
        if (h->got == wanted) {
            h->in.about[head->bytes] = '\0';
            return HEARD_ALL;
        }
        ssize_t got = recv(h->fd, (char *)&h->in + h->got, wanted - h->got, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 && errno == EAGAIN ? HEARD_PART : HEARD_NONSENSE;
        h->got += (size_t)got;
        if (h->got == sizeof(*head) &&
            (head->magic != LS_FRAME_MAGIC || head->kind != LS_FRAME_HELLO || head->bytes > MOST_ABOUT ||
             head->from >= LS_MAX_CLUSTER || head->number > LS_MAX_CLUSTER))
            return HEARD_NONSENSE;
    }
}

static ls_status compare(const door *d, const hello *h)
{
    const ls_cluster_options *o = d->options;
    const ls_frame *head = &h->in.head;
    char about[MOST_ABOUT + 1];
    if (head->version != LS_FRAME_VERSION)
        return ls_fail(LS_ERR_PEER, "worker %u speaks version %u of the protocol, worker %d (this one) version %d",
                       head->from, head->version, o->rank, LS_FRAME_VERSION);
    if (head->number != (uint32_t)o->size)
        return ls_fail(LS_ERR_PEER, "worker %u is one of %u, worker %d (this one) is one of %d", head->from,
                       head->number, o->rank, o->size);
    memcpy(about, h->in.about, sizeof(about));
    ls_make_printable(about, strlen(about));
    if (strcmp(h->in.about, d->about) != 0)
        return ls_fail(LS_ERR_PEER,
                       "workers would not compute the same bits: worker %u has %s; worker %d (this one) has %s",
                       head->from, about, o->rank, d->about);
    return LS_OK;
}

/* The connection is the link to that rank from now on. */
static void meet(door *d, hello *h)
{
    ls_link *link = &d->mesh->links[h->in.head.from];
    link->fd = h->fd;
    link->met = true;
    h->fd = -1;
    h->got = 0;
}

static ls_status hear_lower(door *d, int rank)
{
    hello *h = &d->hellos[rank];
    hearing heard = listen_to(h);
    if (heard == HEARD_PART)
        return LS_OK;
    if (heard == HEARD_NONSENSE || h->in.head.from != (uint32_t)rank) {
        forget(h); /* it ended, or has not begun properly: it is called again */
        return LS_OK;
    }
    LS_TRY(compare(d, h));
    meet(d, h);
    return LS_OK;
}

/* *gone: the guest is one no more. */
static ls_status hear_guest(door *d, int index, bool *gone)
{
    hello *h = guest(d, index);
    hearing heard = listen_to(h);
    *gone = heard != HEARD_PART;
    if (heard == HEARD_PART)
        return LS_OK;
    uint32_t from = h->in.head.from;
    if (heard == HEARD_ALL && from > (uint32_t)d->options->rank) {
        bool answered = say_hello(d, h->fd);
        LS_TRY(compare(d, h)); /* after the answer: the other side is told the difference, too */
        if (answered && !d->mesh->links[from].met)
            meet(d, h);
    }
    drop_guest(d, index);
    return LS_OK;
}

/* ---- All of it ---- */

static bool is_complete(const ls_mesh *mesh)
{
    for (int r = 0; r < mesh->peers.size; r++)
        if (r != mesh->peers.rank && !mesh->links[r].met)
            return false;
    return true;
}

static ls_status name_missing(const door *d)
{
    ls_text names = { 0 };
    int missing = 0, size = d->options->size;
    for (int r = 0; r < size; r++)
        if (r != d->options->rank && !d->mesh->links[r].met)
            ls_text_add(&names, "%s%d", missing++ ? ", " : "", r);
    ls_status status = ls_fail(
        LS_ERR_PEER, "worker%s %s of %d did not come within %g s (this is worker %d of job \"%s\")",
        missing == 1 ? "" : "s", ls_text_get(&names), size, d->mesh->join_limit, d->options->rank, d->options->job);
    ls_text_free(&names);
    return status;
}

static int list_polls(const door *d, struct pollfd *polls)
{
    int n = 0;
    polls[n++] = (struct pollfd){ .fd = d->listener, .events = POLLIN };
    for (int i = 0; i < d->options->size + d->guests; i++)
        if (d->hellos[i].fd >= 0)
            polls[n++] = (struct pollfd){ .fd = d->hellos[i].fd, .events = POLLIN };
    return n;
}

static ls_status wait_for_callers(door *d, bool complete)
{
    struct pollfd polls[1 + LS_MAX_CLUSTER + MOST_GUESTS];
    double left = (d->end - ls_clock_now()) * 1000;
    if (left <= 0)
        return name_missing(d);
    double limit = complete || left < CALL_AGAIN ? left + 1 : CALL_AGAIN;
    if (poll(polls, (nfds_t)list_polls(d, polls), limit < 1e6 ? (int)limit : 1000000) < 0 && errno != EINTR)
        return ls_fail(LS_ERR_PEER, "waiting for the other workers failed: %s", strerror(errno));
    return LS_OK;
}

static ls_status hear_all(door *d)
{
    accept_all(d);
    for (int r = 0; r < d->options->rank; r++)
        if (d->hellos[r].fd >= 0)
            LS_TRY(hear_lower(d, r));
    for (int i = 0; i < d->guests;) {
        bool gone = false;
        LS_TRY(hear_guest(d, i, &gone));
        i += !gone;
    }
    return LS_OK;
}

static ls_status meet_all(door *d)
{
    LS_TRY(open_listener(d));
    while (!is_complete(d->mesh)) {
        bool complete;
        LS_TRY(call_on_all(d, &complete));
        LS_TRY(wait_for_callers(d, complete));
        LS_TRY(hear_all(d));
    }
    return LS_OK;
}

ls_status ls_mesh_open(const ls_cluster_options *options, int number, const char *about, ls_mesh **out)
{
    ls_mesh *mesh;
    LS_TRY(ls_mesh_create(options, &mesh));
    size_t count = (size_t)options->size + MOST_GUESTS;
    door d = { .mesh = mesh, .options = options, .number = number, .about = about, .listener = -1 };
    d.end = ls_clock_now() + mesh->join_limit;
    d.hellos = calloc(count, sizeof(*d.hellos));
    ls_status status = d.hellos ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory to meet %d workers", options->size);
    for (size_t i = 0; d.hellos && i < count; i++)
        d.hellos[i].fd = -1;
    if (status == LS_OK && strlen(about) > MOST_ABOUT)
        status =
            ls_fail(LS_ERR_INTERNAL, "the bit class has %zu characters, %d are possible", strlen(about), MOST_ABOUT);
    if (status == LS_OK)
        status = meet_all(&d);
    if (d.listener >= 0)
        close(d.listener);
    for (size_t i = 0; d.hellos && i < count; i++)
        forget(&d.hellos[i]);
    free(d.hellos);
    if (status != LS_OK) {
        ls_mesh_free(mesh);
        return status;
    }
    *out = mesh;
    return LS_OK;
}
