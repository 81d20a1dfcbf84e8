/* How workers find each other's addresses.
 *
 * tcp://host:port: worker 0 listens there. The preamble of every call has the caller's address, so
 * worker 0 learns all of them. Others ask it over a connection of their own: 4 bytes with a rank,
 * 22 bytes in reply. Known addresses stay known without worker 0.
 *
 * file:///folder: every worker has a file there with its addresses, one per line. It removes the
 * file when it leaves; a worker that comes back replaces it. */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "fabric/transport/tcp.h"

#define BACKLOG    512
#define CONTEXTS   16   /* open contexts of a process; worker 0 has a port for each */
#define ASK_AGAIN  0.02 /* seconds until worker 0 is asked again */
#define CALL_AGAIN 0.05 /* seconds until worker 0 is called again */
#define LOOK_AGAIN 0.2  /* seconds until a name is looked up again */
#define MOST_FILE  4096
#define JOIN_LIMIT 30.0 /* seconds to look up names by default */

/* ---- Reading options ---- */

static const char tcp_scheme[] = "tcp://", file_scheme[] = "file://";

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* folder: "" for tcp. */
static ls_status read_rendezvous(const ls_cluster_options *o, ls_host_port *where, const char **folder)
{
    const char *text = o->rendezvous;
    *folder = "";
    if (begins(text, file_scheme) && text[strlen(file_scheme)] == '/') {
        *folder = text + strlen(file_scheme);
        return LS_OK;
    }
    if (begins(text, tcp_scheme) && ls_host_port_read(text + strlen(tcp_scheme), where) && where->port > 0)
        return LS_OK;
    return ls_fail(LS_ERR_INVALID,
                   "the rendezvous \"%s\" is invalid: expected \"tcp://host:2222\", where worker 0 listens, or "
                   "\"file:///folder\", a folder that all workers share",
                   text);
}

static ls_status read_listen(const ls_cluster_options *o, ls_host_port *where)
{
    return ls_host_port_read(o->listen, where)
               ? LS_OK
               : ls_fail(LS_ERR_INVALID, "this worker cannot listen at \"%s\": expected \"host:2222\"", o->listen);
}

/* Retries until the join limit: machines that are just starting may get their names late. */
static ls_status look_up_patiently(const ls_tcp *tcp, const ls_host_port *where, ls_address *out, int *count)
{
    double limit = tcp->options.join_limit > 0 ? tcp->options.join_limit : JOIN_LIMIT;
    double end = ls_clock_now() + limit;
    for (;;) {
        ls_status status = ls_address_look_up(where, out, LS_MOST_ADDRESSES, count);
        if (status == LS_OK || ls_clock_now() > end)
            return status;
        nanosleep(&(struct timespec){ .tv_nsec = (long)(1e9 * LOOK_AGAIN) }, NULL);
    }
}

/* ---- The listener ---- */

static ls_status listen_at(ls_tcp *tcp, const ls_address *at)
{
    char text[LS_ADDRESS_CHARS];
    int on = 1, off = 0, fd = socket(at->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ls_fail(LS_ERR_PEER, "cannot make a socket for the other workers: %s", strerror(errno));
    /* Connections of an earlier job may still be closing. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (at->any.sa_family == AF_INET6 && ls_address_is_any(at))
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, &at->any, at->bytes) == 0 && listen(fd, BACKLOG) == 0) {
        tcp->listener = fd;
        return LS_OK;
    }
    int error = errno;
    close(fd);
    ls_address_print(at, text);
    if (error == EADDRINUSE)
        return ls_fail(LS_ERR_STATE,
                       "another process listens at %s already: another job, or another worker %d of this one; choose "
                       "another port",
                       text, tcp->options.rank);
    if (error == EADDRNOTAVAIL)
        return ls_fail(LS_ERR_INVALID, "%s is not an address of this machine, where worker %d runs", text,
                       tcp->options.rank);
    return ls_fail(LS_ERR_PEER, "cannot listen for the other workers at %s: %s", text, strerror(error));
}

/* Listens at any address if `where` is a name: it may resolve differently on other machines. */
static ls_status listen_at_name(ls_tcp *tcp, const ls_host_port *where)
{
    ls_address any = { .v6 = { .sin6_family = AF_INET6 }, .bytes = sizeof(any.v6) };
    ls_address any_4 = { .v4 = { .sin_family = AF_INET }, .bytes = sizeof(any_4.v4) };
    ls_address literal, list[LS_MOST_ADDRESSES];
    int count;
    if (ls_address_read(where, &literal))
        return listen_at(tcp, &literal);
    if (ls_host_is_loopback(where->host)) {
        LS_TRY(ls_address_look_up(where, list, LS_MOST_ADDRESSES, &count));
        return listen_at(tcp, &list[0]);
    }
    ls_address_set_port(&any, where->port);
    ls_address_set_port(&any_4, where->port);
    ls_status status = listen_at(tcp, &any);
    /* There may be no IPv6. */
    return status == LS_OK || status == LS_ERR_STATE ? status : listen_at(tcp, &any_4);
}

static ls_status find_own(ls_tcp *tcp, const ls_address *reach)
{
    ls_address bound = { .bytes = sizeof(bound.v6) };
    if (getsockname(tcp->listener, &bound.any, &bound.bytes) < 0)
        return ls_fail(LS_ERR_PEER, "this worker's own address is not known: %s", strerror(errno));
    if (ls_address_is_any(&bound) && reach->bytes > 0) {
        int port = ls_address_port(&bound);
        bound = *reach;
        ls_address_set_port(&bound, port);
    }
    tcp->own.address = bound;
    return LS_OK;
}

/* ---- Meeting at an address ---- */

static ls_status meet_at_address(ls_tcp *tcp, ls_host_port where)
{
    int number = (int)tcp->own.number;
    ls_address reach = { .bytes = 0 };
    ls_host_port listen = where;
    if (where.port + CONTEXTS > 65536)
        return ls_fail(LS_ERR_INVALID,
                       "the rendezvous \"%s\": the port must be at most %d, as each further context of a process uses "
                       "the next port",
                       tcp->options.rendezvous, 65536 - CONTEXTS);
    where.port += number % CONTEXTS;
    if (tcp->options.rank > 0) {
        LS_TRY(look_up_patiently(tcp, &where, tcp->meeting, &tcp->meeting_count));
        for (int i = 0; i < tcp->meeting_count && reach.bytes == 0; i++)
            if (ls_address_towards(&tcp->meeting[i], &reach) != LS_OK && i == tcp->meeting_count - 1)
                return LS_ERR_PEER;
    }
    if (tcp->options.listen[0])
        LS_TRY(read_listen(&tcp->options, &listen));
    if (tcp->options.rank == 0)
        listen.port += number % CONTEXTS;
    else if (number > 0)
        listen.port = 0; /* any port: the others ask for it */
    if (tcp->options.rank == 0 || tcp->options.listen[0])
        LS_TRY(listen_at_name(tcp, &listen));
    else
        LS_TRY(listen_at(tcp, &reach));
    return find_own(tcp, &reach);
}

/* ---- Meeting in a folder ---- */

static void file_of(const ls_tcp *tcp, int rank, char out[PATH_MAX])
{
    char job[2 * LS_JOB_HASH_BYTES + 1];
    for (int i = 0; i < LS_JOB_HASH_BYTES; i++)
        snprintf(job + 2 * i, 3, "%02x", tcp->own.job[i]);
    snprintf(out, PATH_MAX, "%s/lockstep-%.24s-%u-%d", tcp->folder, job, tcp->own.number, rank);
}

static ls_status publish(ls_tcp *tcp)
{
    char path[PATH_MAX], text[LS_ADDRESS_CHARS];
    ls_address list[LS_MOST_ADDRESSES] = { tcp->own.address };
    ls_text lines = { 0 };
    int count = 1;
    if (ls_address_is_any(&list[0]))
        count = ls_address_own(ls_address_port(&tcp->own.address), list, LS_MOST_ADDRESSES);
    for (int i = 0; i < count; i++)
        ls_text_add(&lines, "%s\n", ls_address_print(&list[i], text));
    file_of(tcp, tcp->options.rank, path);
    ls_status status = ls_file_write(path, ls_text_get(&lines), lines.length);
    ls_text_free(&lines);
    if (ls_address_is_any(&tcp->own.address))
        tcp->own.address = (ls_address){ .bytes = 0 }; /* a preamble has room for one */
    return ls_fail_within(status, "the rendezvous \"%s\"", tcp->options.rendezvous);
}

static ls_status meet_in_folder(ls_tcp *tcp, const char *folder)
{
    ls_host_port listen = { "::", 0 };
    snprintf(tcp->folder, sizeof(tcp->folder), "%s", folder);
    if (tcp->options.listen[0]) {
        LS_TRY(read_listen(&tcp->options, &listen));
        listen.port = tcp->own.number > 0 ? 0 : listen.port;
        LS_TRY(listen_at_name(tcp, &listen));
    } else if (listen_at_name(tcp, &listen) != LS_OK) {
        snprintf(listen.host, sizeof(listen.host), "0.0.0.0"); /* there may be no IPv6 */
        LS_TRY(listen_at_name(tcp, &listen));
    }
    LS_TRY(find_own(tcp, &(ls_address){ .bytes = 0 }));
    return publish(tcp);
}

/* Takes the next address in the file. A file that cannot be read counts as missing. */
static void find_in_folder(ls_tcp *tcp, int rank, ls_address *out)
{
    char path[PATH_MAX], *data = NULL, *rest = NULL;
    ls_address list[LS_MOST_ADDRESSES];
    ls_host_port where;
    size_t bytes;
    int count = 0;
    file_of(tcp, rank, path);
    if (ls_file_read(path, MOST_FILE, &data, &bytes) != LS_OK)
        return;
    for (char *line = strtok_r(data, "\n", &rest); line && count < LS_MOST_ADDRESSES;
         line = strtok_r(NULL, "\n", &rest))
        if (ls_host_port_read(line, &where) && where.port > 0 && ls_address_read(&where, &list[count]))
            count++;
    free(data);
    if (count > 0)
        *out = list[tcp->known[rank].turn++ % count];
}

/* ---- Queries: asking ---- */

static void close_query(ls_tcp *tcp)
{
    ls_tcp_connection_free(tcp->query);
    tcp->query = NULL;
    tcp->answer_done = 0;
    tcp->query_again = ls_clock_now() + CALL_AGAIN;
    for (int r = 0; r < LS_MAX_CLUSTER; r++)
        tcp->known[r].asked = false;
}

static ls_address next_meeting(ls_tcp *tcp)
{
    return tcp->meeting[tcp->known[0].turn++ % tcp->meeting_count];
}

static uint32_t rank_in(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void put_rank(unsigned char *bytes, uint32_t rank)
{
    for (int i = 0; i < 4; i++)
        bytes[i] = (unsigned char)(rank >> (24 - 8 * i));
}

static void ask(ls_tcp *tcp, int rank)
{
    tcp_known_address *known = &tcp->known[rank];
    double now = ls_clock_now();
    if (!tcp->query && now >= tcp->query_again) {
        ls_address there = next_meeting(tcp);
        if (ls_tcp_connection_call(tcp, LS_PREAMBLE_ASK, 0, &there, &tcp->query) != LS_OK)
            close_query(tcp);
        ls_tcp_listener_wake(tcp);
    }
    if (!tcp->query || known->asked || now < known->ask_again)
        return;
    unsigned char bytes[TCP_QUERY_BYTES];
    size_t moved = 0;
    put_rank(bytes, (uint32_t)rank);
    if (ls_tcp_connection_write((ls_connection *)tcp->query, &(struct iovec){ bytes, sizeof(bytes) }, 1, &moved) !=
            LS_OK ||
        (moved != 0 && moved != sizeof(bytes)))
        close_query(tcp);
    else
        known->asked = moved > 0;
}

static void take_answer(ls_tcp *tcp)
{
    uint32_t rank = rank_in(tcp->answer);
    ls_address address;
    tcp->answer_done = 0;
    if (rank >= LS_MAX_CLUSTER)
        return;
    tcp_known_address *known = &tcp->known[rank];
    ls_address_unpack(tcp->answer + 4, &address);
    known->asked = false;
    known->ask_again = ls_clock_now() + ASK_AGAIN;
    if (address.bytes > 0) {
        known->address = address;
        known->stale = false;
        tcp->news = true;
    }
}

static void read_answers(ls_tcp *tcp)
{
    size_t moved = 1;
    while (tcp->query && moved > 0) {
        struct iovec part = { tcp->answer + tcp->answer_done, TCP_ANSWER_BYTES - tcp->answer_done };
        bool on_its_way = tcp->query->state < TCP_OPEN;
        moved = 0;
        if (ls_tcp_connection_read((ls_connection *)tcp->query, &part, 1, &moved) != LS_OK) {
            close_query(tcp);
            return;
        }
        tcp->news |= on_its_way && tcp->query->state == TCP_OPEN; /* queries are possible now */
        tcp->answer_done += moved;
        if (tcp->answer_done == TCP_ANSWER_BYTES)
            take_answer(tcp);
    }
}

/* ---- Queries: replies ---- */

/* These are small: if one does not pass at once, the peer is not reading. */
static bool answer_one(ls_tcp *tcp, tcp_connection *connection, bool *again)
{
    unsigned char query[TCP_QUERY_BYTES], answer[TCP_ANSWER_BYTES] = { 0 };
    size_t moved = 0;
    *again = false;
    if (ls_tcp_connection_read((ls_connection *)connection, &(struct iovec){ query, sizeof(query) }, 1, &moved) !=
        LS_OK)
        return false;
    if (moved == 0)
        return true;
    uint32_t rank = rank_in(query);
    if (moved != sizeof(query) || rank >= LS_MAX_CLUSTER)
        return false;
    put_rank(answer, rank);
    ls_address_pack(&tcp->known[rank].address, answer + 4);
    *again = true;
    return ls_tcp_connection_write((ls_connection *)connection, &(struct iovec){ answer, sizeof(answer) }, 1, &moved) ==
               LS_OK &&
           moved == sizeof(answer);
}

void ls_tcp_queries_step(ls_tcp *tcp)
{
    for (int r = 0; r < LS_MAX_CLUSTER; r++) {
        bool again = tcp->queries[r] != NULL;
        while (again)
            if (!answer_one(tcp, tcp->queries[r], &again)) {
                ls_tcp_connection_free(tcp->queries[r]);
                tcp->queries[r] = NULL;
                again = false;
            }
    }
    read_answers(tcp);
}

/* ---- Rendezvous ---- */

ls_status ls_tcp_rendezvous_open(ls_tcp *tcp)
{
    ls_host_port where = { .port = 0 };
    const char *folder;
    LS_TRY(read_rendezvous(&tcp->options, &where, &folder));
    return folder[0] ? meet_in_folder(tcp, folder) : meet_at_address(tcp, where);
}

/* Keeps a file with another port: another worker of this rank has replaced it. */
void ls_tcp_rendezvous_close(ls_tcp *tcp)
{
    char path[PATH_MAX], port[16], *data = NULL;
    ls_address bound = { .bytes = sizeof(bound.v6) };
    size_t bytes;
    if (!tcp->folder[0] || tcp->listener < 0 || getsockname(tcp->listener, &bound.any, &bound.bytes) < 0)
        return;
    snprintf(port, sizeof(port), ":%d\n", ls_address_port(&bound));
    file_of(tcp, tcp->options.rank, path);
    if (ls_file_read(path, MOST_FILE, &data, &bytes) == LS_OK) {
        if (strstr(data, port))
            unlink(path);
        free(data);
    }
}

void ls_tcp_learn(ls_tcp *tcp, const ls_preamble *preamble)
{
    if (preamble->from >= LS_MAX_CLUSTER || preamble->address.bytes == 0)
        return;
    tcp_known_address *known = &tcp->known[preamble->from];
    known->address = preamble->address;
    known->stale = false;
    tcp->news = true;
}

ls_status ls_tcp_find(ls_tcp *tcp, int rank, ls_address *out)
{
    tcp_known_address *known = &tcp->known[rank];
    *out = (ls_address){ .bytes = 0 };
    if (tcp->folder[0]) {
        find_in_folder(tcp, rank, out);
    } else if (tcp->options.rank > 0 && rank == 0) {
        *out = next_meeting(tcp);
    } else {
        if (tcp->options.rank > 0 && (known->address.bytes == 0 || known->stale))
            ask(tcp, rank);
        *out = known->address; /* even a stale one: worker 0 may be lost, and the worker there again */
    }
    return LS_OK;
}
