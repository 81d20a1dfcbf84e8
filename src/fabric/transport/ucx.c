/* UCX: shared memory, RDMA and other fabrics. For trusted networks only: nothing is encrypted.
 *
 * Workers first connect by another transport (the inner one): Unix sockets on one machine, or tcp
 * with the job's key if there is a rendezvous. Over it both sides exchange UCX addresses and tags,
 * and its end is the end of the connection. Bytes are UCX messages (message_stream.h). UCX's header
 * is needed at build time; its library is loaded when first used. */
#include "fabric/transport/ucx.h"

#if !defined(LS_NO_UCX) && defined(__has_include)
#if __has_include(<ucp/api/ucp.h>)
#define HAS_UCX
#endif
#endif

#ifndef HAS_UCX

bool ls_ucx_is_there(const char **why)
{
    *why = "this library was built without UCX (Debian: libucx-dev; then build it again)";
    return false;
}

static ls_status ucx_open(const ls_cluster_options *options, int number, ls_transport **out)
{
    const char *why;
    (void)options, (void)number, (void)out;
    ls_ucx_is_there(&why);
    return ls_fail(LS_ERR_UNSUPPORTED, "the transport ucx is not available: %s", why);
}

const ls_transport_table ls_transport_ucx = { .name = "ucx", .open = ucx_open };

#else

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>

#include "base/clock.h"
#include "fabric/transport/message_stream.h"

#define LIBRARY      "libucp.so.0"
#define MAGIC        0x7863754cu /* "Lucx" */
#define MOST_ADDRESS 8192        /* bytes */
#define BYE          'b'
#define BYE_LIMIT    1.0 /* seconds from the peer's BYE until its last message */
#define CLOSE_LIMIT  1.0

/* ---- The library ---- */

#define FUNCTION(name) __typeof__(&name) name
static struct {
    FUNCTION(ucp_config_read);
    FUNCTION(ucp_config_release);
    FUNCTION(ucp_init_version);
    FUNCTION(ucp_cleanup);
    FUNCTION(ucp_worker_create);
    FUNCTION(ucp_worker_destroy);
    FUNCTION(ucp_worker_progress);
    FUNCTION(ucp_worker_get_address);
    FUNCTION(ucp_worker_release_address);
    FUNCTION(ucp_ep_create);
    FUNCTION(ucp_ep_flush_nbx);
    FUNCTION(ucp_ep_close_nbx);
    FUNCTION(ucp_tag_send_nbx);
    FUNCTION(ucp_tag_recv_nbx);
    FUNCTION(ucp_tag_recv_request_test);
    FUNCTION(ucp_request_check_status);
    FUNCTION(ucp_request_cancel);
    FUNCTION(ucp_request_free);
    bool loaded;
} api;
#undef FUNCTION

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static bool load_all(void)
{
#define ROW(name)                                                                                                      \
    {                                                                                                                  \
#name, &api.name                                                                                               \
    }
    static const struct {
        const char *name;
        void *to;
    } names[] = { ROW(ucp_config_read),
                  ROW(ucp_config_release),
                  ROW(ucp_init_version),
                  ROW(ucp_cleanup),
                  ROW(ucp_worker_create),
                  ROW(ucp_worker_destroy),
                  ROW(ucp_worker_progress),
                  ROW(ucp_worker_get_address),
                  ROW(ucp_worker_release_address),
                  ROW(ucp_ep_create),
                  ROW(ucp_ep_flush_nbx),
                  ROW(ucp_ep_close_nbx),
                  ROW(ucp_tag_send_nbx),
                  ROW(ucp_tag_recv_nbx),
                  ROW(ucp_tag_recv_request_test),
                  ROW(ucp_request_check_status),
                  ROW(ucp_request_cancel),
                  ROW(ucp_request_free) };
#undef ROW
    /* By default UCX catches signals, patches memory functions and prints messages about lost
     * workers. It reads these options from the environment only; the user's values are kept.
     * Its rendezvous protocol is off: UCX 1.13 sometimes cancels it while connections are
     * opened. */
    setenv("UCX_HANDLE_ERRORS", "none", 0);
    setenv("UCX_MEM_EVENTS", "no", 0);
    setenv("UCX_LOG_LEVEL", "fatal", 0);
    setenv("UCX_WARN_UNUSED_ENV_VARS", "no", 0);
    setenv("UCX_RNDV_THRESH", "inf", 0);
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    bool all = library;
    for (size_t i = 0; all && i < sizeof(names) / sizeof(*names); i++) {
        void *found = dlsym(library, names[i].name);
        memcpy(names[i].to, &found, sizeof(found));
        all = found;
    }
    return all; /* never unloaded: it has threads */
}

bool ls_ucx_is_there(const char **why)
{
    pthread_mutex_lock(&loading);
    api.loaded = api.loaded || load_all();
    pthread_mutex_unlock(&loading);
    *why = "UCX's library (" LIBRARY "; Debian: libucx0) is not found";
    return api.loaded;
}

/* ---- State of a worker ---- */

typedef struct ucx_transport {
    const ls_transport_table *table;
    const ls_transport_table *inner_table;
    ls_transport *inner;
    ls_connection *caller; /* incoming call that is not answered yet; or NULL */
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    pthread_mutex_t mutex; /* around every UCX call */
    unsigned tags;         /* given to connections so far */
    /* A worker was lost. UCX may then abort the process when it is stopped (1.13: "Assertion
     * `req->flags & UCP_REQUEST_FLAG_RELEASED' failed"), and still uses memory of connections.
     * So everything stays allocated. */
    atomic_bool harmed;
    ls_message_stream *unfinished;
    struct ucx_transport *next;
} ucx_transport;

static ucx_transport *kept; /* harmed transports; referenced, so not leaks */

/* First message of both sides; the UCX address follows. */
typedef struct greeting {
    uint32_t magic, tag, bytes;
} greeting;

typedef struct ucx_connection {
    ls_connection *connection; /* connection of the inner transport */
    ucp_ep_h endpoint;
    size_t said, heard; /* bytes sent and received of the greetings */
    greeting own, theirs;
    char address[MOST_ADDRESS];
    bool gone;  /* the inner connection has ended */
    double bye; /* when the peer's BYE arrived; 0: not yet */
} ucx_connection;

static ucx_transport *transport_of(const ls_message_stream *connection)
{
    return (ucx_transport *)connection->transport;
}

/* Reading and writing report that the connection ended. */
static ls_status check(ucx_transport *t, ucs_status_t status)
{
    if (status == UCS_OK || status == UCS_INPROGRESS)
        return LS_OK;
    atomic_store(&t->harmed, true);
    return LS_ERR_PEER;
}

static ls_status keep_request(ucx_transport *t, ucs_status_ptr_t result, void **request)
{
    *request = UCS_PTR_IS_PTR(result) ? result : NULL;
    return UCS_PTR_IS_ERR(result) ? check(t, UCS_PTR_STATUS(result)) : LS_OK;
}

static ls_status ucx_send(ls_message_stream *connection, const void *data, size_t bytes, void **request)
{
    ucx_transport *t = transport_of(connection);
    ucp_request_param_t how = { .op_attr_mask = 0 };
    pthread_mutex_lock(&t->mutex);
    ucs_status_ptr_t result =
        api.ucp_tag_send_nbx(((ucx_connection *)connection->inner)->endpoint, data, bytes, connection->out_tag, &how);
    pthread_mutex_unlock(&t->mutex);
    return keep_request(t, result, request);
}

static ls_status ucx_receive(ls_message_stream *connection, void *data, size_t room, void **request)
{
    ucx_transport *t = transport_of(connection);
    ucp_request_param_t how = { .op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL };
    pthread_mutex_lock(&t->mutex);
    ucs_status_ptr_t result = api.ucp_tag_recv_nbx(t->worker, data, room, connection->in_tag, UINT64_MAX, &how);
    pthread_mutex_unlock(&t->mutex);
    return keep_request(t, result, request);
}

static ls_status ucx_test(ls_message_stream *connection, void **request, bool receives, bool *done, size_t *bytes)
{
    ucx_transport *t = transport_of(connection);
    ucp_tag_recv_info_t info = { .length = 0 };
    ucs_status_t status = UCS_OK;
    pthread_mutex_lock(&t->mutex);
    api.ucp_worker_progress(t->worker);
    if (*request)
        status = receives ? api.ucp_tag_recv_request_test(*request, &info) : api.ucp_request_check_status(*request);
    *done = status != UCS_INPROGRESS;
    *bytes = info.length;
    if (*done && *request) {
        api.ucp_request_free(*request);
        *request = NULL;
    }
    pthread_mutex_unlock(&t->mutex);
    return check(t, status);
}

/* false: CLOSE_LIMIT is over. */
static bool finish(ucx_transport *t, void *request)
{
    double end = ls_clock_now() + CLOSE_LIMIT;
    ucs_status_t status = UCS_INPROGRESS;
    while (status == UCS_INPROGRESS && ls_clock_now() < end) {
        pthread_mutex_lock(&t->mutex);
        api.ucp_worker_progress(t->worker);
        status = api.ucp_request_check_status(request);
        if (status != UCS_INPROGRESS)
            api.ucp_request_free(request);
        pthread_mutex_unlock(&t->mutex);
        if (status == UCS_INPROGRESS)
            nanosleep(&(struct timespec){ 0, 20000 }, NULL);
    }
    return status != UCS_INPROGRESS;
}

static void ucx_cancel(ls_message_stream *connection, void **request)
{
    ucx_transport *t = transport_of(connection);
    if (!*request)
        return;
    pthread_mutex_lock(&t->mutex);
    api.ucp_request_cancel(t->worker, *request);
    pthread_mutex_unlock(&t->mutex);
    finish(t, *request);
}

/* ---- Opening a connection ---- */

static ls_status say(const ucx_transport *t, ucx_connection *u)
{
    size_t moved = 0, head = sizeof(u->own);
    struct iovec parts[2];
    int n = 0;
    if (u->said < head)
        parts[n++] = (struct iovec){ (char *)&u->own + u->said, head - u->said };
    size_t from = u->said > head ? u->said - head : 0;
    parts[n++] = (struct iovec){ (char *)t->address + from, t->address_bytes - from };
    if (u->said < head + t->address_bytes)
        LS_TRY(t->inner_table->write(u->connection, parts, n, &moved));
    u->said += moved;
    return LS_OK;
}

/* Checks the head before it reads the address that follows. */
static ls_status hear(const ucx_transport *t, ucx_connection *u)
{
    for (size_t moved = 1; moved > 0; u->heard += moved) {
        size_t head = sizeof(u->theirs), all = head + u->theirs.bytes;
        if (u->heard >= head && (u->theirs.magic != MAGIC || u->theirs.bytes == 0 || u->theirs.bytes > MOST_ADDRESS))
            return ls_fail(LS_ERR_PEER, "it did not send its UCX address");
        if (u->heard >= head && u->heard == all)
            return LS_OK;
        struct iovec part = u->heard < head ? (struct iovec){ (char *)&u->theirs + u->heard, head - u->heard }
                                            : (struct iovec){ u->address + (u->heard - head), all - u->heard };
        LS_TRY(t->inner_table->read(u->connection, &part, 1, &moved));
    }
    return LS_OK;
}

/* Errors of an endpoint are noticed by its sends. */
static void ignore(void *user, ucp_ep_h endpoint, ucs_status_t status)
{
    (void)user, (void)endpoint, (void)status;
}

static ls_status connect_to(ucx_transport *t, ucx_connection *u)
{
    ucp_ep_params_t params = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                             UCP_EP_PARAM_FIELD_ERR_HANDLER,
                               .address = (const ucp_address_t *)u->address,
                               .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                               .err_handler = { .cb = ignore } };
    pthread_mutex_lock(&t->mutex);
    ucs_status_t status = api.ucp_ep_create(t->worker, &params, &u->endpoint);
    pthread_mutex_unlock(&t->mutex);
    if (status != UCS_OK)
        u->endpoint = NULL;
    return check(t, status);
}

static ls_status ucx_prepare(ls_message_stream *connection)
{
    ucx_transport *t = transport_of(connection);
    ucx_connection *u = connection->inner;
    LS_TRY(say(t, u));
    LS_TRY(hear(t, u));
    if (u->said < sizeof(u->own) + t->address_bytes || u->heard < sizeof(u->theirs) ||
        u->heard < sizeof(u->theirs) + u->theirs.bytes)
        return LS_OK;
    LS_TRY(connect_to(t, u));
    connection->out_tag = u->theirs.tag;
    return ls_message_stream_open(connection);
}

/* After the greeting the inner connection carries only BYE; without it, the peer was killed. */
static bool ucx_is_gone(ls_message_stream *connection)
{
    const ucx_transport *t = transport_of(connection);
    ucx_connection *u = connection->inner;
    char byte = 0;
    size_t moved = 1;
    while (!u->gone && moved > 0) {
        u->gone = t->inner_table->read(u->connection, &(struct iovec){ &byte, 1 }, 1, &moved) != LS_OK;
        if (!u->gone && moved > 0 && byte == BYE)
            u->bye = ls_clock_now();
    }
    if (u->gone && u->bye == 0)
        atomic_store(&transport_of(connection)->harmed, true);
    return u->gone && (u->bye == 0 || ls_clock_now() > u->bye + BYE_LIMIT);
}

/* The inner connection knows how the peer's process ended; UCX does not. */
static ls_connection_end ucx_how_ended(const ls_connection *of)
{
    ls_message_stream *connection = (ls_message_stream *)of;
    const ucx_connection *u = connection->inner;
    if (!connection->open || !u)
        return LS_CONNECTION_BROKEN;
    (void)ucx_is_gone(connection);
    if (!u->gone)
        return LS_CONNECTION_BROKEN;
    return u->bye > 0 ? LS_CONNECTION_CLOSED
                      : ls_connection_how_ended(transport_of(connection)->inner_table, u->connection);
}

static void ucx_progress(ls_transport *transport)
{
    ucx_transport *t = (ucx_transport *)transport;
    pthread_mutex_lock(&t->mutex);
    api.ucp_worker_progress(t->worker);
    pthread_mutex_unlock(&t->mutex);
}

static bool ucx_is_called(ls_transport *transport)
{
    ucx_transport *t = (ucx_transport *)transport;
    if (!t->caller && t->inner_table->answer(t->inner, &t->caller) != LS_OK)
        t->caller = NULL;
    return t->caller;
}

static const ls_message_library library = { .send = ucx_send,
                                            .receive = ucx_receive,
                                            .test = ucx_test,
                                            .cancel = ucx_cancel,
                                            .progress = ucx_progress,
                                            .is_called = ucx_is_called,
                                            .prepare = ucx_prepare,
                                            .is_gone = ucx_is_gone };

/* ---- Connections ---- */

static bool wait_for(ucx_transport *t, ucs_status_ptr_t result)
{
    return !UCS_PTR_IS_PTR(result) || finish(t, result);
}

/* Delivers all messages first. Does nothing if a worker was lost. */
static bool close_endpoint(ucx_transport *t, const ucx_connection *u)
{
    ucp_request_param_t flush = { .op_attr_mask = 0 };
    ucp_request_param_t close = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE };
    if (!u->endpoint || atomic_load(&t->harmed))
        return true;
    pthread_mutex_lock(&t->mutex);
    ucs_status_ptr_t result = api.ucp_ep_flush_nbx(u->endpoint, &flush);
    pthread_mutex_unlock(&t->mutex);
    if (!wait_for(t, result))
        return false;
    pthread_mutex_lock(&t->mutex);
    result = api.ucp_ep_close_nbx(u->endpoint, &close);
    pthread_mutex_unlock(&t->mutex);
    return wait_for(t, result);
}

static void ucx_hang_up(ls_connection *of)
{
    ls_message_stream *connection = (ls_message_stream *)of;
    ucx_transport *t = transport_of(connection);
    ucx_connection *u = connection->inner;
    size_t moved;
    ls_error before;
    ls_error_keep(&before, LS_ERR_PEER); /* keep the caller's error message */
    if (connection->open)
        (void)t->inner_table->write(u->connection, &(struct iovec){ (char[]){ BYE }, 1 }, 1, &moved);
    bool sent = ls_message_stream_end(connection) && close_endpoint(t, u);
    t->inner_table->hang_up(u->connection);
    free(u);
    (void)ls_error_give(&before);
    if (sent) {
        ls_message_stream_free(connection);
        return;
    }
    pthread_mutex_lock(&t->mutex);
    atomic_store(&t->harmed, true);
    connection->inner = t->unfinished;
    t->unfinished = connection;
    pthread_mutex_unlock(&t->mutex);
}

/* Takes ownership of the inner connection. */
static ls_status make_connection(ucx_transport *t, ls_connection *inner, ls_connection **out)
{
    ls_message_stream *connection = NULL;
    ucx_connection *u = calloc(1, sizeof(*u));
    ls_status status = u ? ls_message_stream_make(&ls_transport_ucx, &library, &connection)
                         : ls_fail(LS_ERR_MEMORY, "no memory for a connection");
    if (status != LS_OK) {
        free(u);
        t->inner_table->hang_up(inner);
        return status;
    }
    connection->transport = (ls_transport *)t;
    connection->inner = u;
    connection->in_tag = ++t->tags;
    u->connection = inner;
    u->own = (greeting){ MAGIC, connection->in_tag, (uint32_t)t->address_bytes };
    *out = (ls_connection *)connection;
    return LS_OK;
}

static ls_status ucx_call(ls_transport *transport, int rank, ls_connection **out)
{
    ucx_transport *t = (ucx_transport *)transport;
    ls_connection *inner;
    *out = NULL;
    LS_TRY(t->inner_table->call(t->inner, rank, &inner));
    return inner ? make_connection(t, inner, out) : LS_OK;
}

static ls_status ucx_answer(ls_transport *transport, ls_connection **out)
{
    ucx_transport *t = (ucx_transport *)transport;
    *out = NULL;
    if (!ucx_is_called(transport))
        return LS_OK;
    ls_connection *inner = t->caller;
    t->caller = NULL;
    return make_connection(t, inner, out);
}

/* ---- The transport ---- */

static void ucx_close(ls_transport *transport)
{
    ucx_transport *t = (ucx_transport *)transport;
    if (t->caller)
        t->inner_table->hang_up(t->caller);
    if (t->worker)
        for (int quiet = 0, turns = 0; quiet < 10 && turns < 1000; turns++)
            quiet = api.ucp_worker_progress(t->worker) ? 0 : quiet + 1;
    if (atomic_load(&t->harmed)) {
        t->inner_table->close(t->inner);
        pthread_mutex_lock(&loading);
        t->next = kept;
        kept = t;
        pthread_mutex_unlock(&loading);
        return;
    }
    if (t->address)
        api.ucp_worker_release_address(t->worker, t->address);
    if (t->worker)
        api.ucp_worker_destroy(t->worker);
    if (t->context)
        api.ucp_cleanup(t->context);
    if (t->inner)
        t->inner_table->close(t->inner);
    pthread_mutex_destroy(&t->mutex);
    free(t);
}

static ls_status start(ucx_transport *t)
{
    ucp_params_t what = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG };
    ucp_worker_params_t how = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                .thread_mode = UCS_THREAD_MODE_SERIALIZED };
    ucp_config_t *config;
    ucs_status_t status = api.ucp_config_read(NULL, NULL, &config);
    if (status == UCS_OK) {
        status = api.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &what, config, &t->context);
        api.ucp_config_release(config);
    }
    if (status == UCS_OK)
        status = api.ucp_worker_create(t->context, &how, &t->worker);
    if (status == UCS_OK)
        status = api.ucp_worker_get_address(t->worker, &t->address, &t->address_bytes);
    if (status == UCS_OK && t->address_bytes > MOST_ADDRESS)
        status = UCS_ERR_BUFFER_TOO_SMALL;
    return status == UCS_OK ? LS_OK : ls_fail(LS_ERR_PEER, "UCX did not start (its status %d)", (int)status);
}

static ls_status ucx_open(const ls_cluster_options *options, int number, ls_transport **out)
{
    const char *why;
    if (!ls_ucx_is_there(&why))
        return ls_fail(LS_ERR_UNSUPPORTED, "the transport ucx is not available: %s", why);
    ucx_transport *t = calloc(1, sizeof(*t));
    if (!t)
        return ls_fail(LS_ERR_MEMORY, "no memory for the connections of a worker");
    t->table = &ls_transport_ucx;
    t->inner_table = options->rendezvous[0] ? &ls_transport_tcp : &ls_transport_unix;
    pthread_mutex_init(&t->mutex, NULL);
    ls_status status = t->inner_table->open(options, number, &t->inner);
    if (status == LS_OK)
        status = start(t);
    if (status != LS_OK) {
        ucx_close((ls_transport *)t);
        return status;
    }
    *out = (ls_transport *)t;
    return LS_OK;
}

static ls_status ucx_wait(ls_transport *transport, ls_want *wants, int count, double seconds)
{
    return ls_message_streams_wait(transport, &library, wants, count, seconds);
}

static double ucx_now(ls_transport *transport)
{
    (void)transport;
    return ls_clock_now();
}

static bool ucx_refused(ls_transport *transport, char *why, size_t bytes)
{
    const ucx_transport *t = (const ucx_transport *)transport;
    return t->inner_table->refused && t->inner_table->refused(t->inner, why, bytes);
}

const ls_transport_table ls_transport_ucx = {
    .name = "ucx",
    .elastic = true,
    .heartbeats = true,
    .slice = 256 << 10,
    .open = ucx_open,
    .close = ucx_close,
    .call = ucx_call,
    .answer = ucx_answer,
    .write = ls_message_stream_write,
    .read = ls_message_stream_read,
    .hang_up = ucx_hang_up,
    .how_ended = ucx_how_ended,
    .wait = ucx_wait,
    .now = ucx_now,
    .refused = ucx_refused,
};

#endif
