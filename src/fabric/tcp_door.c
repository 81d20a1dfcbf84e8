/* Who calls at the door. Anybody may: a guest has a bounded time to say who it is and to show that it has the key,
 * costs little until then, and there are only so many of them. When there are more, the oldest one goes that has not
 * said anything yet, then the oldest that has not shown the key. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/tcp.h"

#define MOST_ACCEPTED 256 /* in one step: guests have their turn, too */
#define NO_MORE_FILES 0.1 /* seconds until it is tried again when there was no descriptor for a guest */

static void note_refused(ls_tcp *tcp, const char *why)
{
    tcp->refused++;
    snprintf(tcp->refused_why, sizeof(tcp->refused_why), "%s", why);
}

static tcp_line *remove_guest(ls_tcp *tcp, int i)
{
    tcp_line *line = tcp->guests[i];
    tcp->guest_count--;
    memmove(tcp->guests + i, tcp->guests + i + 1, (size_t)(tcp->guest_count - i) * sizeof(*tcp->guests));
    return line;
}

/* false: all of them have the key. */
static bool send_one_away(ls_tcp *tcp)
{
    for (int shaking = 0; shaking < 2; shaking++)
        for (int i = 0; i < tcp->guest_count; i++)
            if (tcp->guests[i]->state == TCP_HEARING || (shaking && tcp->guests[i]->state < TCP_OPEN)) {
                char why[200], address[LS_ADDRESS_CHARS];
                snprintf(why, sizeof(why), "a caller from %s made room for others: it had not said who it is",
                         ls_address_print(&tcp->guests[i]->there, address));
                note_refused(tcp, why);
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
        if (fd >= 0 && ls_tcp_line_answer(tcp, fd, &there, &line) == LS_OK)
            tcp->guests[tcp->guest_count++] = line;
    }
}

/* Somebody who wants to ask has its place at the desk; one who comes again has lost the line before. */
static void seat_at_desk(ls_tcp *tcp, tcp_line *line)
{
    tcp_line **seat = &tcp->desks[line->opening.from];
    ls_tcp_line_free(*seat);
    *seat = line;
}

bool ls_tcp_door_step(ls_tcp *tcp)
{
    bool any = false;
    accept_some(tcp);
    for (int i = 0; i < tcp->guest_count;) {
        tcp_line *line = tcp->guests[i];
        ls_tcp_line_step(line);
        if (line->state == TCP_OPEN && !line->learned) {
            ls_tcp_learn(tcp, &line->opening);
            line->learned = true;
        }
        if (line->state == TCP_ENDED) {
            note_refused(tcp, line->why);
            ls_tcp_line_free(remove_guest(tcp, i));
        } else if (line->state == TCP_OPEN && line->opening.kind == LS_OPENING_ASK) {
            seat_at_desk(tcp, remove_guest(tcp, i));
        } else {
            any |= line->state == TCP_OPEN;
            i++;
        }
    }
    ls_tcp_desks_step(tcp);
    ls_tcp_leave_some(tcp);
    return any;
}

tcp_line *ls_tcp_door_take(ls_tcp *tcp)
{
    for (int i = 0; i < tcp->guest_count; i++)
        if (tcp->guests[i]->state == TCP_OPEN)
            return remove_guest(tcp, i);
    return NULL;
}

int ls_tcp_door_polls(const ls_tcp *tcp, struct pollfd *out, double *end)
{
    int count = 0;
    if (ls_clock_now() >= tcp->accept_again)
        out[count++] = (struct pollfd){ .fd = tcp->listener, .events = POLLIN };
    else if (tcp->accept_again < *end)
        *end = tcp->accept_again;
    for (int i = 0; i < tcp->guest_count; i++) {
        const tcp_line *line = tcp->guests[i];
        if (line->state == TCP_OPEN)
            continue;
        out[count++] = (struct pollfd){ .fd = line->fd, .events = ls_tcp_line_events(line) };
        *end = line->end < *end ? line->end : *end;
    }
    if (tcp->desk)
        out[count++] = (struct pollfd){ .fd = tcp->desk->fd, .events = ls_tcp_line_events(tcp->desk) };
    for (int r = 0; r < LS_MAX_CLUSTER; r++)
        if (tcp->desks[r])
            out[count++] = (struct pollfd){ .fd = tcp->desks[r]->fd, .events = POLLIN };
    return count;
}

void ls_tcp_door_close(ls_tcp *tcp)
{
    while (tcp->guest_count > 0)
        ls_tcp_line_free(remove_guest(tcp, tcp->guest_count - 1));
    for (int r = 0; r < LS_MAX_CLUSTER; r++)
        ls_tcp_line_free(tcp->desks[r]);
    ls_tcp_line_free(tcp->desk);
    if (tcp->listener >= 0)
        close(tcp->listener);
}
