/* How bytes get from one worker to another. A transport has a door, at which other workers call, and lines: connections
 * to one other worker each, with bytes in order both ways, that never block. All that is said over lines (who is who,
 * frames, heartbeats, who is lost) is the same for every transport and not its business.
 *
 * A line is used by one thread at a time; different threads may use different lines, and wait for different ones. */
#ifndef LS_FABRIC_TRANSPORT_TRANSPORT_H
#define LS_FABRIC_TRANSPORT_TRANSPORT_H

#include <sys/uio.h>

#include "base/status.h"
#include "lockstep/cluster.h"

typedef struct ls_transport ls_transport;   /* its own struct begins with `const ls_transport_table *table` */
typedef struct ls_connection ls_connection; /* likewise */

/* What somebody waits for; `ready` is set where it may be there. A line that has ended is ready for everything. */
typedef struct ls_want {
    ls_connection *line; /* NULL: a caller at the door, or: */
    int bell;            /* this descriptor can be read, one of whoever waits (shm, unix and tcp alone); 0: none */
    bool read, write;
    bool ready;
} ls_want;

/* How a connection ended. */
typedef enum ls_connection_end {
    LS_CONNECTION_OPEN,
    LS_CONNECTION_CLOSED, /* the peer closed it: it runs, or ended after a proper goodbye */
    LS_CONNECTION_DIED,   /* the peer's process has ended: its kernel closed the connection */
    LS_CONNECTION_GONE,   /* the peer closed it or ended: this transport cannot tell which */
    LS_CONNECTION_BROKEN, /* reset, timed out, unreachable: the peer may run and see it the other way round */
} ls_connection_end;

typedef struct ls_transport_table {
    const char *name;
    bool elastic; /* workers may come and go; otherwise a lost worker is the end of the job */
    bool beats;   /* a thread of its own gives signs of life; otherwise workers do while they wait */
    size_t slice; /* bytes of a long vector that are best under way at once: few fill the cache, many the line */

    /* Opens the door of worker options->rank. number: the how manieth cluster of this process it is, for contexts of
     * one job do not meet each other's. */
    ls_status (*open)(const ls_cluster_options *options, int number, ls_transport **out);
    void (*close)(ls_transport *transport); /* after its lines */

    /* A line to a worker's door. NULL: nobody is there yet, ask again in a moment. A line may still be on its way, or
     * turn out to lead nowhere: then it ends. */
    ls_status (*call)(ls_transport *transport, int rank, ls_connection **out);
    /* A line from somebody who called; NULL: there is nobody. Strangers are not let in: who comes has shown that it is
     * of the same user on this machine, or has the job's key. */
    ls_status (*answer)(ls_transport *transport, ls_connection **out);

    /* Move what can be moved at once, maybe nothing. LS_ERR_PEER: the line has ended, with the reason. */
    ls_status (*write)(ls_connection *line, const struct iovec *parts, int count, size_t *moved);
    ls_status (*read)(ls_connection *line, const struct iovec *parts, int count, size_t *moved);
    void (*hang_up)(ls_connection *line); /* what was written still arrives, where that is possible */
    /* How a line ended whose read failed. NULL: LS_CONNECTION_GONE, for transports inside one machine, where nothing
     * breaks a connection. */
    ls_connection_end (*how_ended)(const ls_connection *line);

    /* Returns when something of the list may be there, or after so many seconds. */
    ls_status (*wait)(ls_transport *transport, ls_want *wants, int count, double seconds);
    double (*now)(ls_transport *transport); /* seconds, of a clock that only goes forward */

    /* Whether callers were not let in since the last question, and why; NULL: such a transport has none. */
    bool (*refused)(ls_transport *transport, char *why, size_t bytes);
} ls_transport_table;

extern const ls_transport_table ls_transport_shm;  /* processes of one user on one machine, by shared memory */
extern const ls_transport_table ls_transport_unix; /* the same by Unix sockets alone */
extern const ls_transport_table ls_transport_tcp;  /* any machines, with the job's key */
extern const ls_transport_table ls_transport_mpi;  /* workers that mpirun started */
extern const ls_transport_table ls_transport_ucx;  /* fabrics that one trusts */

static inline ls_connection_end ls_connection_how_ended(const ls_transport_table *table, const ls_connection *line)
{
    return table->how_ended ? table->how_ended(line) : LS_CONNECTION_GONE;
}

/* The one that the options ask for. */
ls_status ls_transport_choose(const ls_cluster_options *options, const ls_transport_table **out);

/* Set by tests: returns the transport of the calling thread, in place of what the options say; NULL: what they say. */
extern const ls_transport_table *(*ls_transport_for_test)(void);

#define LS_NEEDS_KEY                                                                                                   \
    "workers that meet over tcp need the job's key: `lockstep key FILE` makes one; give every worker the file, or a "  \
    "copy of it, by LOCKSTEP_KEY_FILE"

#endif
