/* Inside of the tcp transport: tcp.c is its table, tcp_line.c one connection, tcp_door.c who calls, rendezvous.c where
 * others wait. Everything of the transport that several lines share is under its mutex; a line that was handed out is
 * its user's. */
#ifndef LS_FABRIC_TRANSPORT_TCP_H
#define LS_FABRIC_TRANSPORT_TCP_H

#include <poll.h>
#include <pthread.h>

#include "fabric/transport/preamble.h"
#include "fabric/transport/tls.h"
#include "fabric/transport/transport.h"

#define TCP_MOST_GUESTS  64   /* callers that are not let in yet; somebody has to go when there are more */
#define TCP_MOST_LEAVING 64   /* lines that were hung up and whose last bytes are on their way */
#define TCP_ASKED_BYTES  4    /* of a question for an address: the rank */
#define TCP_TOLD_BYTES   22   /* of its answer: the rank, and a packed address */
#define TCP_MEET_LIMIT   10.0 /* seconds from calling until a line is open */

/* ---- Lines ---- */

/* On its way, a caller goes through all of these; who was called begins with hearing. */
typedef enum tcp_state { TCP_CONNECTING, TCP_SAYING, TCP_HEARING, TCP_SHAKING, TCP_OPEN, TCP_ENDED } tcp_state;

typedef struct ls_tcp ls_tcp;
typedef struct tcp_line {
    const ls_transport_table *table;
    ls_tcp *tcp;
    int fd;
    tcp_state state;
    bool caller;                            /* this side called */
    bool refused;                           /* who called is told why it is not let in, and then it ends */
    double end;                             /* by when it must be open, or gone */
    ls_address there;                       /* of the other side */
    ls_preamble opening;                    /* what was said, or heard */
    unsigned char bytes[LS_PREAMBLE_BYTES]; /* the opening, then the reply; or the other way round */
    size_t done;
    unsigned char said[LS_PREAMBLE_BYTES]; /* the opening again: the secret is made of it */
    ls_secured *secured;
    bool wants_write; /* TCP_SHAKING: that is what it waits for */
    bool learned;     /* a guest's address is known */
    bool goodbye;     /* close_notify was sent */
    bool deaf;        /* nothing can be written any more; what the other side said before can still be read */
    bool drained;     /* the last read found nothing more */
    bool owed;        /* of the unfinished record one byte was not counted yet: see ls_tcp_line_write */
    size_t record;    /* bytes in the buffer that are on their way */
    unsigned char *buffer;
    char why[300]; /* it ended, or is deaf */
} tcp_line;

ls_status ls_tcp_line_call(ls_tcp *tcp, ls_preamble_kind kind, int rank, const ls_address *there, tcp_line **out);
ls_status ls_tcp_line_answer(ls_tcp *tcp, int fd, const ls_address *there, tcp_line **out); /* takes the socket */
void ls_tcp_line_free(tcp_line *line);
/* Goes on as far as it can without waiting. */
void ls_tcp_line_step(tcp_line *line);
/* What it waits for until it is open. */
short ls_tcp_line_events(const tcp_line *line);
bool ls_tcp_line_flush(tcp_line *line); /* whether nothing is on its way any more */
ls_status ls_tcp_line_write(ls_connection *line, const struct iovec *parts, int count, size_t *moved);
ls_status ls_tcp_line_read(ls_connection *line, const struct iovec *parts, int count, size_t *moved);
void ls_tcp_line_hang_up(ls_connection *line);
ls_connection_end ls_tcp_line_how_ended(const ls_connection *line);
/* Lines that were hung up; under the mutex. */
void ls_tcp_leave_some(ls_tcp *tcp);

/* ---- The transport ---- */

/* Where a worker waits, as far as it is known. */
typedef struct tcp_place {
    ls_address address; /* bytes 0: not known */
    bool stale;         /* nobody was there */
    bool asked;         /* worker 0 was; under way */
    double ask_again, call_again;
    int turn; /* which of several addresses is next */
} tcp_place;

struct ls_tcp {
    const ls_transport_table *table;
    ls_cluster_options options;
    ls_preamble own; /* as if this worker called itself: job, number, its rank and address */
    ls_key *key;
    ls_tls *tls;
    pthread_mutex_t mutex;

    pthread_t thread; /* of the door */
    bool has_thread, closing;
    int bell, wake; /* eventfds: to those who wait, and to the thread */
    int listener;
    double accept_again;               /* when there were no descriptors left */
    tcp_line *guests[TCP_MOST_GUESTS]; /* oldest first */
    int guest_count;
    tcp_line *leaving[TCP_MOST_LEAVING];
    int leaving_count;
    long refused; /* callers that were not let in; since the last question */
    char refused_why[300];

    /* rendezvous.c */
    ls_address meeting[LS_MOST_ADDRESSES]; /* tcp://: of worker 0 */
    int meeting_count;
    char folder[256]; /* file:// */
    tcp_place places[LS_MAX_CLUSTER];
    tcp_line *desk; /* to worker 0, who is asked for addresses */
    double desk_again;
    unsigned char told[TCP_TOLD_BYTES];
    size_t told_done;
    bool news;                       /* an address came since the last look */
    tcp_line *desks[LS_MAX_CLUSTER]; /* of worker 0: of those who ask */
};

/* ---- The door (tcp_door.c) ---- */

/* A thread of its own lets callers in, answers who asks for addresses and sees last bytes off, whatever the workers are
 * doing. `bell` can be read when somebody waits to be answered, or an address has become known. */
ls_status ls_tcp_door_open(ls_tcp *tcp);
void ls_tcp_door_close(ls_tcp *tcp);
void ls_tcp_door_wake(ls_tcp *tcp); /* there is something new to look after */
/* Under the mutex: whether the bell has rung, which then is silent again; and who waits, NULL: nobody. */
bool ls_tcp_door_look(ls_tcp *tcp);
tcp_line *ls_tcp_door_take(ls_tcp *tcp);

/* ---- Where others wait (rendezvous.c); all under the mutex ---- */

/* Finds the place to meet, opens the listener and says where it is. */
ls_status ls_tcp_meet(ls_tcp *tcp);
void ls_tcp_unmeet(ls_tcp *tcp);
/* bytes 0: it is not known yet. */
ls_status ls_tcp_find(ls_tcp *tcp, int rank, ls_address *out);
void ls_tcp_learn(ls_tcp *tcp, const ls_preamble *opening); /* of one who has the key */
/* Answers those who ask, and hears what worker 0 answered. */
void ls_tcp_desks_step(ls_tcp *tcp);

#endif
