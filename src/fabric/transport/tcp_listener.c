/* Incoming calls. Anyone can call, so callers are limited in number and time (TCP_MEET_LIMIT) and
 * cost little until they are authenticated. If there are too many, the oldest one without a
 * preamble is dropped, then the oldest without the key. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "fabric/transport/tcp.h"

#define MOST_ACCEPTED 256   /* in one step; other work gets its turn */
#define NO_MORE_FILES 0.1   /* seconds until accept is tried again without descriptors */
#define LEAVING       0.002 /* seconds between looks at closing connections */
#define LONGEST_SLEEP 10.0
#define MOST_POLLS    (3 + TCP_MOST_GUESTS + LS_MAX_CLUSTER)

/* Keeps the reason of the last refused caller that was a worker, else of the first. */
static void note_refused(ls_tcp *tcp, const char *why, bool worker)
{
    if (tcp->refused++ == 0 || worker)
        snprintf(tcp->refused_why, sizeof(tcp->refused_why), "%s", why);
}

static tcp_line *remove_guest(ls_tcp *tcp, int i)
{
    tcp_line *line = tcp->guests[i];
    tcp->guest_count--;
    memmove(tcp->guests + i, tcp->guests + i + 1, (size_t)(tcp->guest_count - i) * sizeof(*tcp->guests));
    return line;
}

/* false: all callers are authenticated. */
static bool send_one_away(ls_tcp *tcp)
{
    for (int shaking = 0; shaking < 2; shaking++)
        for (int i = 0; i < tcp->guest_count; i++)
            if (tcp->guests[i]->state == TCP_HEARING || (shaking && tcp->guests[i]->state < TCP_OPEN)) {
                char why[200], address[LS_ADDRESS_CHARS];
                snprintf(why, sizeof(why), "a caller from %s made room for others: it had not said who it is",
                         ls_address_print(&tcp->guests[i]->there, address));
                note_refused(tcp, why, false);
                ls_tcp_line_free(remove_guest(tcp, i));
                return true;
            }
    return false;
}

static void accept_some(ls_tcp *tcp)
{
    if (ls_clock_now() < tcp->accept_again)
        return;
    for (int i = 0; i < MOST_ACCEPTED; i++) {
        tcp_line *line;
        ls_address there = { .bytes = sizeof(there.v6) };
        if (tcp->guest_count == TCP_MOST_GUESTS && !send_one_away(tcp))
            return;
        int fd = accept4(tcp->listener, &there.any, &there.bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            if (!send_one_away(tcp))
                tcp->accept_again = ls_clock_now() + NO_MORE_FILES;
            return;
        }
        if (fd < 0 && errno == EAGAIN)
            return;
        if (fd >= 0 && ls_tcp_line_answer(tcp, fd, &there, &line) == LS_OK) {
            tcp->guests[tcp->guest_count++] = line;
            ls_tcp_line_step(line); /* reads its preamble: silent callers are dropped first */
        }
    }
}

/* Replaces the worker's earlier connection for queries, which is lost. */
static void seat_at_desk(ls_tcp *tcp, tcp_line *line)
{
    tcp_line **seat = &tcp->desks[line->opening.from];
    ls_tcp_line_free(*seat);
    *seat = line;
}

static void ring(int bell)
{
    uint64_t one = 1;
    if (write(bell, &one, sizeof(one)) < 0) {
        /* it is readable already */
    }
}

static void silence(int bell)
{
    uint64_t count;
    if (read(bell, &count, sizeof(count)) < 0) {
        /* it was not readable */
    }
}

static bool has_caller(const ls_tcp *tcp)
{
    for (int i = 0; i < tcp->guest_count; i++)
        if (tcp->guests[i]->state == TCP_OPEN)
            return true;
    return false;
}

/* ---- The thread ---- */

static void look_after_guests(ls_tcp *tcp)
{
    for (int i = 0; i < tcp->guest_count;) {
        tcp_line *line = tcp->guests[i];
        ls_tcp_line_step(line);
        if (line->state == TCP_OPEN && !line->learned) {
            ls_tcp_learn(tcp, &line->opening);
            line->learned = true;
        }
        if (line->state == TCP_ENDED) {
            note_refused(tcp, line->why, line->opening.version > 0);
            ls_tcp_line_free(remove_guest(tcp, i));
        } else if (line->state == TCP_OPEN && line->opening.kind == LS_PREAMBLE_ASK) {
            seat_at_desk(tcp, remove_guest(tcp, i));
        } else {
            i++;
        }
    }
}

/* Lists what to poll for; *end: until when. */
static int list_polls(const ls_tcp *tcp, struct pollfd *out, double *end)
{
    int count = 0;
    bool full = tcp->guest_count == TCP_MOST_GUESTS; /* with authenticated callers */
    for (int i = 0; i < tcp->guest_count; i++) {
        const tcp_line *line = tcp->guests[i];
        if (line->state == TCP_OPEN)
            continue;
        full = false;
        out[count++] = (struct pollfd){ .fd = line->fd, .events = ls_tcp_line_events(line) };
        *end = line->end < *end ? line->end : *end;
    }
    out[count++] = (struct pollfd){ .fd = tcp->wake, .events = POLLIN };
    if (ls_clock_now() >= tcp->accept_again && !full)
        out[count++] = (struct pollfd){ .fd = tcp->listener, .events = POLLIN };
    else if (tcp->accept_again < *end && !full)
        *end = tcp->accept_again;
    if (tcp->desk)
        out[count++] = (struct pollfd){ .fd = tcp->desk->fd, .events = ls_tcp_line_events(tcp->desk) };
    for (int r = 0; r < LS_MAX_CLUSTER; r++)
        if (tcp->desks[r])
            out[count++] = (struct pollfd){ .fd = tcp->desks[r]->fd, .events = POLLIN };
    return count;
}

static void *keep_door(void *user)
{
    ls_tcp *tcp = user;
    struct pollfd polls[MOST_POLLS];
    pthread_mutex_lock(&tcp->mutex);
    while (!tcp->closing) {
        accept_some(tcp);
        look_after_guests(tcp);
        ls_tcp_desks_step(tcp);
        ls_tcp_leave_some(tcp);
        if (has_caller(tcp) || tcp->news)
            ring(tcp->bell);
        double end = ls_clock_now() + (tcp->leaving_count > 0 ? LEAVING : LONGEST_SLEEP);
        int count = list_polls(tcp, polls, &end);
        pthread_mutex_unlock(&tcp->mutex);
        double left = end - ls_clock_now();
        poll(polls, (nfds_t)count, left > 0 ? (int)(1000 * left) + 1 : 0);
        silence(tcp->wake);
        pthread_mutex_lock(&tcp->mutex);
    }
    pthread_mutex_unlock(&tcp->mutex);
    return NULL;
}

ls_status ls_tcp_door_open(ls_tcp *tcp)
{
    tcp->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    tcp->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (tcp->bell < 0 || tcp->wake < 0)
        return ls_fail(LS_ERR_PEER, "no descriptor for this worker's door: %s", strerror(errno));
    int error = ls_thread_start(&tcp->thread, keep_door, tcp);
    tcp->has_thread = error == 0;
    return error == 0 ? LS_OK : ls_fail(LS_ERR_MEMORY, "no thread for this worker's door: %s", strerror(error));
}

void ls_tcp_door_wake(ls_tcp *tcp)
{
    ring(tcp->wake);
}

/* ---- Called by other threads ---- */

bool ls_tcp_door_look(ls_tcp *tcp)
{
    bool ready = has_caller(tcp) || tcp->news;
    tcp->news = false;
    if (!ready)
        silence(tcp->bell);
    return ready;
}

tcp_line *ls_tcp_door_take(ls_tcp *tcp)
{
    for (int i = 0; i < tcp->guest_count; i++)
        if (tcp->guests[i]->state == TCP_OPEN) {
            if (tcp->guest_count == TCP_MOST_GUESTS)
                ls_tcp_door_wake(tcp); /* there is room again */
            return remove_guest(tcp, i);
        }
    return NULL;
}

void ls_tcp_door_close(ls_tcp *tcp)
{
    if (tcp->has_thread) {
        pthread_mutex_lock(&tcp->mutex);
        tcp->closing = true;
        pthread_mutex_unlock(&tcp->mutex);
        ls_tcp_door_wake(tcp);
        pthread_join(tcp->thread, NULL);
    }
    while (tcp->guest_count > 0)
        ls_tcp_line_free(remove_guest(tcp, tcp->guest_count - 1));
    for (int r = 0; r < LS_MAX_CLUSTER; r++)
        ls_tcp_line_free(tcp->desks[r]);
    ls_tcp_line_free(tcp->desk);
    int *files[] = { &tcp->listener, &tcp->bell, &tcp->wake };
    for (int i = 0; i < 3; i++)
        if (*files[i] >= 0)
            close(*files[i]);
}
