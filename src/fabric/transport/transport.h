/* A transport: it accepts calls from workers and has connections, each to one worker: ordered bytes
 * in both directions, never blocking. protocol/, mesh/ and messages/ do the rest.
 *
 * One thread at a time may use a connection; others may use and wait for other connections. */
#ifndef LS_FABRIC_TRANSPORT_TRANSPORT_H
#define LS_FABRIC_TRANSPORT_TRANSPORT_H

#include <sys/uio.h>

#include "base/status.h"
#include "lockstep/cluster.h"

typedef struct ls_transport ls_transport;
typedef struct ls_connection ls_connection;

/* An event to wait for; `ready`: it may have happened. An ended connection is ready. */
typedef struct ls_want {
    ls_connection *connection; /* NULL: an incoming call, or `bell` */
    /* With connection NULL: a readable descriptor (shm, unix, tcp only); 0: none. */
    int bell;
    bool read, write;
    bool ready;
} ls_want;

/* How a connection ended. */
typedef enum ls_connection_end {
    LS_CONNECTION_OPEN,
    LS_CONNECTION_CLOSED, /* by the peer, properly */
    LS_CONNECTION_DIED,   /* by the kernel of the peer's ended process */
    LS_CONNECTION_GONE,   /* closed or died: unknown */
    LS_CONNECTION_BROKEN, /* reset, timed out, unreachable: the peer may run and blame this side */
} ls_connection_end;

typedef struct ls_transport_table {
    const char *name;
    bool elastic;    /* workers may come and go */
    bool heartbeats; /* a thread sends them; false: sent while workers wait */
    /* Bytes to exchange at once: few stay in the cache, many keep the connection busy. */
    size_t slice;

    /* Listens as worker options->rank. number: of this cluster in the process; contexts with
     * different numbers do not meet. */
    ls_status (*open)(const ls_cluster_options *options, int number, ls_transport **out);
    void (*close)(ls_transport *transport); /* after all connections are closed */

    /* NULL: the worker does not listen yet. The connection may still be in progress; if that fails,
     * it ends. */
    ls_status (*call)(ls_transport *transport, int rank, ls_connection **out);
    /* Returns a caller or NULL: a process of the same user on this machine, or one with the job's
     * key. */
    ls_status (*answer)(ls_transport *transport, ls_connection **out);

    /* Move what they can without waiting. LS_ERR_PEER: the connection has ended. */
    ls_status (*write)(ls_connection *connection, const struct iovec *parts, int count, size_t *moved);
    ls_status (*read)(ls_connection *connection, const struct iovec *parts, int count, size_t *moved);
    void (*hang_up)(ls_connection *connection); /* bytes written before are still delivered */
    /* How a connection ended whose read failed. NULL: LS_CONNECTION_GONE. */
    ls_connection_end (*how_ended)(const ls_connection *connection);

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

/* For tests: the transport of the calling thread; NULL: by the options. */
extern const ls_transport_table *(*ls_transport_for_test)(void);

#define LS_NEEDS_KEY                                                                                                   \
    "the transport tcp needs the job's key: `lockstep key FILE` makes one; give every worker the file, or a "          \
    "copy of it, by LOCKSTEP_KEY_FILE"

#endif
