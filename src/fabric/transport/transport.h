/* Interface of a transport. It accepts calls from other workers and has connections, each to one
 * worker: ordered bytes in both directions, never blocking. The protocol on them (handshake,
 * frames, heartbeats, lost workers) is the same for all transports: see mesh/ and messages/.
 *
 * One thread at a time may use a connection. Different threads may use, and wait for, different
 * connections. */
#ifndef LS_FABRIC_TRANSPORT_TRANSPORT_H
#define LS_FABRIC_TRANSPORT_TRANSPORT_H

#include <sys/uio.h>

#include "base/status.h"
#include "lockstep/cluster.h"

typedef struct ls_transport ls_transport;   /* its struct begins with a pointer to its table */
typedef struct ls_connection ls_connection; /* its struct begins with a pointer to its table */

/* An event to wait for. `ready`: it may have happened. A connection that has ended is ready
 * for reading and writing. */
typedef struct ls_want {
    ls_connection *connection; /* NULL: an incoming call, or `bell` */
    /* With connection NULL: a descriptor that becomes readable (shm, unix, tcp only); 0: none. */
    int bell;
    bool read, write;
    bool ready;
} ls_want;

/* How a connection ended. */
typedef enum ls_connection_end {
    LS_CONNECTION_OPEN,
    LS_CONNECTION_CLOSED, /* the peer closed it: it runs, or ended after a proper close */
    LS_CONNECTION_DIED,   /* the peer's process has ended: its kernel closed it */
    LS_CONNECTION_GONE,   /* the peer closed it or ended: this transport cannot distinguish */
    LS_CONNECTION_BROKEN, /* reset, timed out, unreachable: the peer may run and blame this side */
} ls_connection_end;

typedef struct ls_transport_table {
    const char *name;
    bool elastic; /* workers may come and go; false: a lost worker ends the job */
    bool beats;   /* heartbeats have a thread; false: workers send them while they wait */
    /* Bytes of a long vector to exchange at once: few stay in the cache, many keep the connection
     * busy. */
    size_t slice;

    /* Starts listening as worker options->rank. number: of this cluster in the process; contexts
     * with different numbers do not meet. */
    ls_status (*open)(const ls_cluster_options *options, int number, ls_transport **out);
    void (*close)(ls_transport *transport); /* after all connections are closed */

    /* Connects to a worker. NULL: it does not listen yet, call again later. The connection may
     * still be in progress; if it fails, it ends. */
    ls_status (*call)(ls_transport *transport, int rank, ls_connection **out);
    /* Returns the connection of a caller, or NULL. The caller is authenticated: a process of the
     * same user on this machine, or one with the job's key. */
    ls_status (*answer)(ls_transport *transport, ls_connection **out);

    /* Move what can be moved without waiting, maybe nothing. LS_ERR_PEER: the connection has
     * ended. */
    ls_status (*write)(ls_connection *connection, const struct iovec *parts, int count, size_t *moved);
    ls_status (*read)(ls_connection *connection, const struct iovec *parts, int count, size_t *moved);
    void (*hang_up)(ls_connection *connection); /* bytes written before are still delivered if possible */
    /* Returns how a connection ended whose read failed. NULL means LS_CONNECTION_GONE: within one
     * machine connections do not break. */
    ls_connection_end (*how_ended)(const ls_connection *connection);

    /* Waits at most `seconds` for one of the events. */
    ls_status (*wait)(ls_transport *transport, ls_want *wants, int count, double seconds);
    double (*now)(ls_transport *transport); /* seconds of a monotonic clock */

    /* Returns whether callers were refused since the last call, and why. May be NULL. */
    bool (*refused)(ls_transport *transport, char *why, size_t bytes);
} ls_transport_table;

extern const ls_transport_table ls_transport_shm;  /* one user on one machine, by shared memory */
extern const ls_transport_table ls_transport_unix; /* the same by Unix sockets only */
extern const ls_transport_table ls_transport_tcp;  /* any machines, with the job's key */
extern const ls_transport_table ls_transport_mpi;  /* workers that mpirun started */
extern const ls_transport_table ls_transport_ucx;  /* trusted fabrics */

static inline ls_connection_end ls_connection_how_ended(const ls_transport_table *table,
                                                        const ls_connection *connection)
{
    return table->how_ended ? table->how_ended(connection) : LS_CONNECTION_GONE;
}

ls_status ls_transport_choose(const ls_cluster_options *options, const ls_transport_table **out);

/* Hook for tests: the transport of the calling thread, in place of the options'; NULL: as they
 * say. */
extern const ls_transport_table *(*ls_transport_for_test)(void);

#define LS_NEEDS_KEY                                                                                                   \
    "workers that meet over tcp need the job's key: `lockstep key FILE` makes one; give every worker the file, or a "  \
    "copy of it, by LOCKSTEP_KEY_FILE"

#endif
