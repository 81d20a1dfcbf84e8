/* MPI, for workers that mpirun started. Open MPI's library is loaded at run time; the part of its
 * binary interface in use is declared here. (MPICH has another one.)
 *
 * A connection is a pair of message streams (message_stream.h) with tags of their own, in a
 * communicator of Lockstep's. A tag has the cluster's number, the connection's, which the caller
 * chose, and a bit for the direction. Number 0 is for calls.
 *
 * MPI is not elastic: mpirun ends the others when a worker is lost. */
#include "fabric/transport/mpi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "fabric/transport/message_stream.h"

/* ---- Open MPI's interface ---- */

#define LIBRARY         "libmpi.so.40" /* Open MPI 1.10 to 5 */
#define ANY_SOURCE      (-1)
#define ONE_AT_A_TIME   2 /* MPI_THREAD_SERIALIZED */
#define CONNECTION_BITS 12
#define MOST_CLUSTERS   (1 << 18) /* tags are positive ints */
#define TAG(number, connection, caller)                                                                                \
    (((unsigned)(number) << CONNECTION_BITS | (unsigned)(connection)) << 1 | (caller))

typedef void *handle;
typedef struct mpi_status {
    int source, tag, error, cancelled;
    size_t bytes;
} mpi_status;

static struct {
    int (*initialized)(int *flag);
    int (*query)(int *provided);
    int (*start)(int *argc, char ***argv, int required, int *provided);
    int (*finalize)(void);
    int (*rank)(handle comm, int *rank);
    int (*size)(handle comm, int *size);
    int (*duplicate)(handle comm, handle *out);
    int (*set_errors)(handle comm, handle how);
    int (*send)(const void *data, int count, handle type, int to, int tag, handle comm, handle *request);
    int (*start_receive)(void *data, int count, handle type, int from, int tag, handle comm, handle *request);
    int (*receive)(void *data, int count, handle type, int from, int tag, handle comm, mpi_status *status);
    int (*probe)(int from, int tag, handle comm, int *flag, mpi_status *status);
    int (*test)(handle *request, int *flag, mpi_status *status);
    int (*cancel)(handle *request);
    int (*wait)(handle *request, mpi_status *status);
    int (*count)(const mpi_status *status, handle type, int *count);
    handle world, byte, return_errors, comm;
    int own_rank, own_size;
    bool loaded, started, ours;
} mpi;

static pthread_mutex_t mpi_mutex = PTHREAD_MUTEX_INITIALIZER; /* held during every MPI call */
static atomic_int lines_open;
/* Closed connections whose peer never received the last messages. */
static ls_message_stream *unfinished;

static bool load(void)
{
    static const struct {
        const char *name;
        void *to;
    } names[] = {
        { "MPI_Initialized", &mpi.initialized },
        { "MPI_Query_thread", &mpi.query },
        { "MPI_Init_thread", &mpi.start },
        { "MPI_Finalize", &mpi.finalize },
        { "MPI_Comm_rank", &mpi.rank },
        { "MPI_Comm_size", &mpi.size },
        { "MPI_Comm_dup", &mpi.duplicate },
        { "MPI_Comm_set_errhandler", &mpi.set_errors },
        { "MPI_Isend", &mpi.send },
        { "MPI_Irecv", &mpi.start_receive },
        { "MPI_Recv", &mpi.receive },
        { "MPI_Iprobe", &mpi.probe },
        { "MPI_Test", &mpi.test },
        { "MPI_Cancel", &mpi.cancel },
        { "MPI_Wait", &mpi.wait },
        { "MPI_Get_count", &mpi.count },
        { "ompi_mpi_comm_world", &mpi.world },
        { "ompi_mpi_byte", &mpi.byte },
        { "ompi_mpi_errors_return", &mpi.return_errors },
    };
    if (mpi.loaded)
        return true;
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL); /* for its plugins' symbols */
    bool all = library;
    for (size_t i = 0; all && i < sizeof(names) / sizeof(*names); i++) {
        void *found = dlsym(library, names[i].name);
        memcpy(names[i].to, &found, sizeof(found));
        all = found;
    }
    if (library && !all)
        dlclose(library);
    mpi.loaded = all;
    return all;
}

bool ls_mpi_is_there(void)
{
    pthread_mutex_lock(&mpi_mutex);
    bool there = load();
    pthread_mutex_unlock(&mpi_mutex);
    return there;
}

/* After the loss of a worker MPI_Finalize would wait forever; mpirun sees the exit status. */
static void finalize(void)
{
    if (mpi.ours && atomic_load(&lines_open) == 0 && !unfinished)
        mpi.finalize();
}

/* Starts MPI once per process. A program that has started MPI itself ends it. */
static ls_status start(void)
{
    int flag = 0, provided = 0;
    if (mpi.started)
        return LS_OK;
    mpi.initialized(&flag);
    if (!flag && mpi.start(NULL, NULL, ONE_AT_A_TIME, &provided) != 0)
        return ls_fail(LS_ERR_PEER, "MPI did not start");
    if (flag)
        mpi.query(&provided);
    mpi.ours = !flag;
    if (mpi.ours)
        atexit(finalize);
    if (provided < ONE_AT_A_TIME)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "MPI was initialized for a single thread (level %d): initialize it with MPI_THREAD_SERIALIZED, "
                       "or let this library initialize it",
                       provided);
    if (mpi.duplicate(mpi.world, &mpi.comm) != 0 || mpi.set_errors(mpi.comm, mpi.return_errors) != 0 ||
        mpi.rank(mpi.comm, &mpi.own_rank) != 0 || mpi.size(mpi.comm, &mpi.own_size) != 0)
        return ls_fail(LS_ERR_PEER, "MPI cannot duplicate its communicator");
    mpi.started = true;
    return LS_OK;
}

/* ---- Messages ---- */

/* Reading and writing report that the connection ended. */
static ls_status check(int error)
{
    return error == 0 ? LS_OK : LS_ERR_PEER;
}

static ls_status mpi_send(ls_message_stream *connection, const void *data, size_t bytes, void **request)
{
    pthread_mutex_lock(&mpi_mutex);
    int error = mpi.send(data, (int)bytes, mpi.byte, connection->rank, (int)connection->out_tag, mpi.comm, request);
    pthread_mutex_unlock(&mpi_mutex);
    return check(error);
}

static ls_status mpi_receive(ls_message_stream *connection, void *data, size_t room, void **request)
{
    pthread_mutex_lock(&mpi_mutex);
    int error =
        mpi.start_receive(data, (int)room, mpi.byte, connection->rank, (int)connection->in_tag, mpi.comm, request);
    pthread_mutex_unlock(&mpi_mutex);
    return check(error);
}

static ls_status mpi_test(ls_message_stream *connection, void **request, bool receives, bool *done, size_t *bytes)
{
    mpi_status status;
    int flag = 0, count = 0;
    (void)connection;
    pthread_mutex_lock(&mpi_mutex);
    int error = mpi.test(request, &flag, &status);
    if (error == 0 && flag && receives)
        error = mpi.count(&status, mpi.byte, &count);
    pthread_mutex_unlock(&mpi_mutex);
    LS_TRY(check(error));
    *done = flag;
    *bytes = count > 0 ? (size_t)count : 0;
    return LS_OK;
}

static void mpi_cancel(ls_message_stream *connection, void **request)
{
    mpi_status status;
    (void)connection;
    pthread_mutex_lock(&mpi_mutex);
    if (mpi.cancel(request) == 0)
        mpi.wait(request, &status);
    pthread_mutex_unlock(&mpi_mutex);
}

/* ---- The transport ---- */

typedef struct mpi_transport {
    const ls_transport_table *table;
    int number;
    int called[LS_MAX_CLUSTER]; /* by rank: calls that this worker made */
} mpi_transport;

static bool is_called(ls_transport *transport)
{
    mpi_status status;
    int flag = 0;
    pthread_mutex_lock(&mpi_mutex);
    int error = mpi.probe(ANY_SOURCE, (int)TAG(((mpi_transport *)transport)->number, 0, 1), mpi.comm, &flag, &status);
    pthread_mutex_unlock(&mpi_mutex);
    return error == 0 && flag;
}

static const ls_message_library library = {
    .send = mpi_send, .receive = mpi_receive, .test = mpi_test, .cancel = mpi_cancel, .is_called = is_called
};

static ls_status mpi_open(const ls_cluster_options *options, int number, ls_transport **out)
{
    pthread_mutex_lock(&mpi_mutex);
    ls_status status = load() ? start()
                              : ls_fail(LS_ERR_UNSUPPORTED,
                                        "the transport mpi needs Open MPI's library (%s), which was not found; other "
                                        "transports do not need it",
                                        LIBRARY);
    pthread_mutex_unlock(&mpi_mutex);
    LS_TRY(status);
    if (mpi.own_rank != options->rank || mpi.own_size != options->size)
        return ls_fail(
            LS_ERR_INVALID,
            "this is worker %d of %d, but rank %d of %d in MPI: start the workers with mpirun to use the transport mpi",
            options->rank, options->size, mpi.own_rank, mpi.own_size);
    if (options->least > 0 || (options->begin > 0 && options->begin < options->size))
        return ls_fail(LS_ERR_UNSUPPORTED, "the transport mpi does not support LOCKSTEP_ELASTIC, as workers cannot "
                                           "join or leave: use LOCKSTEP_TRANSPORT=shm (one machine) or tcp");
    if (number >= MOST_CLUSTERS)
        return ls_fail(LS_ERR_UNSUPPORTED, "%d clusters of one process are more than MPI has tags for", number);
    mpi_transport *t = calloc(1, sizeof(*t));
    if (!t)
        return ls_fail(LS_ERR_MEMORY, "no memory for the connections of a worker");
    *t = (mpi_transport){ .table = &ls_transport_mpi, .number = number };
    *out = (ls_transport *)t;
    return LS_OK;
}

static void mpi_close(ls_transport *transport)
{
    free(transport);
}

static void mpi_hang_up(ls_connection *of)
{
    ls_message_stream *connection = (ls_message_stream *)of;
    atomic_fetch_sub(&lines_open, 1);
    if (ls_message_stream_end(connection)) {
        ls_message_stream_free(connection);
        return;
    }
    pthread_mutex_lock(&mpi_mutex);
    connection->inner = unfinished; /* MPI still uses its memory */
    unfinished = connection;
    pthread_mutex_unlock(&mpi_mutex);
}

static ls_status make_connection(ls_transport *transport, int rank, int number, bool caller, ls_connection **out)
{
    ls_message_stream *connection;
    LS_TRY(ls_message_stream_make(&ls_transport_mpi, &library, &connection));
    atomic_fetch_add(&lines_open, 1);
    connection->transport = transport;
    connection->rank = rank;
    connection->out_tag = TAG(((mpi_transport *)transport)->number, number, caller);
    connection->in_tag = TAG(((mpi_transport *)transport)->number, number, !caller);
    if (ls_message_stream_open(connection) != LS_OK) {
        mpi_hang_up((ls_connection *)connection);
        return ls_fail(LS_ERR_PEER, "MPI has no connection to worker %d", rank);
    }
    *out = (ls_connection *)connection;
    return LS_OK;
}

/* Announces a call: a few bytes, which MPI sends at once. */
static ls_status announce_call(const mpi_transport *t, int rank, int number)
{
    handle request;
    mpi_status status;
    pthread_mutex_lock(&mpi_mutex);
    int error = mpi.send(&number, sizeof(number), mpi.byte, rank, (int)TAG(t->number, 0, 1), mpi.comm, &request);
    if (error == 0)
        error = mpi.wait(&request, &status);
    pthread_mutex_unlock(&mpi_mutex);
    return error == 0 ? LS_OK : ls_fail(LS_ERR_PEER, "MPI cannot reach worker %d (its error %d)", rank, error);
}

static ls_status mpi_call(ls_transport *transport, int rank, ls_connection **out)
{
    mpi_transport *t = (mpi_transport *)transport;
    *out = NULL;
    if (t->called[rank] + 1 >= 1 << CONNECTION_BITS)
        return ls_fail(LS_ERR_PEER, "worker %d did not answer %d calls: check whether it still runs", rank,
                       t->called[rank]);
    int number = ++t->called[rank];
    LS_TRY(announce_call(t, rank, number));
    return make_connection(transport, rank, number, true, out);
}

static ls_status mpi_answer(ls_transport *transport, ls_connection **out)
{
    const mpi_transport *t = (const mpi_transport *)transport;
    mpi_status status = { .source = -1 };
    int number = 0;
    *out = NULL;
    if (!is_called(transport))
        return LS_OK;
    pthread_mutex_lock(&mpi_mutex);
    int error =
        mpi.receive(&number, sizeof(number), mpi.byte, ANY_SOURCE, (int)TAG(t->number, 0, 1), mpi.comm, &status);
    pthread_mutex_unlock(&mpi_mutex);
    if (error != 0 || number < 1 || number >= 1 << CONNECTION_BITS || status.source < 0 ||
        status.source >= LS_MAX_CLUSTER)
        return LS_OK; /* not a valid call */
    return make_connection(transport, status.source, number, false, out);
}

static ls_status mpi_wait(ls_transport *transport, ls_want *wants, int count, double seconds)
{
    return ls_message_streams_wait(transport, &library, wants, count, seconds);
}

static double mpi_now(ls_transport *transport)
{
    (void)transport;
    return ls_clock_now();
}

const ls_transport_table ls_transport_mpi = {
    .name = "mpi",
    .elastic = false,
    .heartbeats = true,
    .slice = 256 << 10,
    .open = mpi_open,
    .close = mpi_close,
    .call = mpi_call,
    .answer = mpi_answer,
    .write = ls_message_stream_write,
    .read = ls_message_stream_read,
    .hang_up = mpi_hang_up,
    .wait = mpi_wait,
    .now = mpi_now,
};
