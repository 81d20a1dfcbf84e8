/* Every worker writes one byte to every other in each interval: its longest recent delay, as on an
 * overloaded machine a process may get no core for a while. */
#include "fabric/mesh/heartbeat.h"

#include <stdatomic.h>

#include "base/thread.h"

#define INTERVAL 0.1  /* seconds */
#define MEMORY   10.0 /* seconds for which a delay is remembered */
#define UNIT     0.01 /* seconds in one unit of the byte */

struct ls_heartbeat {
    ls_transport *transport;
    const ls_transport_table *table;
    ls_connection **connections;
    pthread_mutex_t mutex;    /* guards `added` and `ended` */
    ls_connection **added;    /* by rank: replaces the connection in `connections` */
    ls_connection_end *ended; /* by rank: how the newest connection ended */
    ls_want *wants;
    int *ranks;
    int size;
    double limit;
    _Atomic(double) *heard; /* by rank: time of the last byte */
    _Atomic(double) last;   /* when this thread was last awake */
    _Atomic(double) delay;  /* longest delay of this thread in the last MEMORY seconds */
    double delayed_at;
    atomic_uchar *said; /* by rank: delay in its last byte, in units */
    atomic_bool slept, ends;
    pthread_t thread;
    bool started;
};

static void end_connection(ls_heartbeat *b, int rank, ls_connection_end how)
{
    pthread_mutex_lock(&b->mutex);
    if (!b->added[rank])
        b->ended[rank] = how;
    pthread_mutex_unlock(&b->mutex);
    b->table->hang_up(b->connections[rank]);
    b->connections[rank] = NULL;
}

/* The last byte that arrived is the peer's delay. */
static void listen_to(ls_heartbeat *b, int rank)
{
    char sink[256];
    size_t moved = 1;
    while (moved > 0) {
        if (b->table->read(b->connections[rank], &(struct iovec){ sink, sizeof(sink) }, 1, &moved) != LS_OK) {
            end_connection(b, rank, ls_connection_how_ended(b->table, b->connections[rank]));
            return;
        }
        if (moved == 0)
            return;
        atomic_store(&b->said[rank], (unsigned char)sink[moved - 1]);
        atomic_store(&b->heard[rank], b->table->now(b->transport));
    }
}

/* A connection that accepts no byte is not broken: the peer or the network is stopped. After a
 * failed write, reading shows how the connection ended. */
static void beat(ls_heartbeat *b)
{
    size_t moved;
    double units = atomic_load(&b->delay) / UNIT;
    unsigned char said = units < 255 ? (unsigned char)units : 255;
    for (int r = 0; r < b->size; r++) {
        if (!b->connections[r] || b->table->write(b->connections[r], &(struct iovec){ &said, 1 }, 1, &moved) == LS_OK)
            continue;
        listen_to(b, r);
        if (b->connections[r])
            end_connection(b, r, LS_CONNECTION_BROKEN);
    }
}

static void note_delay(ls_heartbeat *b, double now)
{
    double slept = now - atomic_load(&b->last), delay = slept - INTERVAL;
    if (slept > b->limit)
        atomic_store(&b->slept, true);
    if (delay > atomic_load(&b->delay) || now - b->delayed_at > MEMORY) {
        atomic_store(&b->delay, delay > 0 ? delay : 0);
        b->delayed_at = now;
    }
    atomic_store(&b->last, now);
}

static void take_added(ls_heartbeat *b)
{
    for (int r = 0; r < b->size; r++) {
        pthread_mutex_lock(&b->mutex);
        ls_connection *connection = b->added[r], *before = b->connections[r];
        if (connection)
            b->connections[r] = connection;
        b->added[r] = NULL;
        pthread_mutex_unlock(&b->mutex);
        if (connection && before)
            b->table->hang_up(before);
    }
}

static int list_wants(ls_heartbeat *b)
{
    int count = 0;
    for (int r = 0; r < b->size; r++)
        if (b->connections[r]) {
            b->ranks[count] = r;
            b->wants[count++] = (ls_want){ .connection = b->connections[r], .read = true };
        }
    return count;
}

static void *run(void *user)
{
    ls_heartbeat *b = user;
    double next = b->table->now(b->transport);
    while (!atomic_load(&b->ends)) {
        double now = b->table->now(b->transport);
        note_delay(b, now);
        if (now >= next) {
            take_added(b);
            beat(b);
            next = now + INTERVAL;
        }
        int count = list_wants(b);
        if (b->table->wait(b->transport, b->wants, count, next - now) != LS_OK)
            break; /* workers that wait for this one will notice */
        for (int i = 0; i < count; i++)
            if (b->wants[i].ready)
                listen_to(b, b->ranks[i]);
    }
    return NULL;
}

ls_status ls_heartbeat_start(ls_transport *transport, const ls_transport_table *table, ls_connection **connections,
                             int size, double limit, ls_heartbeat **out)
{
    ls_heartbeat *b = calloc(1, sizeof(*b));
    if (b) {
        *b = (ls_heartbeat){
            .transport = transport, .table = table, .connections = connections, .size = size, .limit = limit
        };
        b->wants = calloc((size_t)size, sizeof(*b->wants));
        b->ranks = calloc((size_t)size, sizeof(*b->ranks));
        b->heard = calloc((size_t)size, sizeof(*b->heard));
        b->added = calloc((size_t)size, sizeof(*b->added));
        b->said = calloc((size_t)size, sizeof(*b->said));
        b->ended = calloc((size_t)size, sizeof(*b->ended));
        pthread_mutex_init(&b->mutex, NULL);
        atomic_store(&b->last, table->now(transport));
    }
    if (!b || !b->wants || !b->ranks || !b->heard || !b->added || !b->said || !b->ended ||
        ls_thread_start(&b->thread, run, b) != 0) {
        ls_heartbeat_stop(b);
        return ls_fail(LS_ERR_MEMORY, "cannot start the heartbeat thread for %d workers", size);
    }
    b->started = true;
    *out = b;
    return LS_OK;
}

void ls_heartbeat_stop(ls_heartbeat *b)
{
    if (!b)
        return;
    atomic_store(&b->ends, true);
    if (b->started)
        pthread_join(b->thread, NULL);
    if (b->added)
        take_added(b);
    for (int r = 0; r < b->size; r++)
        if (b->connections[r]) {
            b->table->hang_up(b->connections[r]);
            b->connections[r] = NULL;
        }
    pthread_mutex_destroy(&b->mutex);
    free(b->ended);
    free(b->added);
    free(b->wants);
    free(b->ranks);
    free((void *)b->heard);
    free((void *)b->said);
    free(b);
}

void ls_heartbeat_add(ls_heartbeat *b, int rank, ls_connection *connection)
{
    atomic_store(&b->heard[rank], b->table->now(b->transport));
    pthread_mutex_lock(&b->mutex);
    ls_connection *before = b->added[rank];
    b->added[rank] = connection;
    b->ended[rank] = LS_CONNECTION_OPEN;
    pthread_mutex_unlock(&b->mutex);
    if (before)
        b->table->hang_up(before);
}

ls_connection_end ls_heartbeat_how_ended(ls_heartbeat *b, int rank)
{
    pthread_mutex_lock(&b->mutex);
    ls_connection_end how = b->ended[rank];
    pthread_mutex_unlock(&b->mutex);
    return how;
}

double ls_heartbeat_heard(const ls_heartbeat *b, int rank)
{
    return atomic_load(&b->heard[rank]);
}

/* At most four times the limit: a stopped worker is still noticed. */
double ls_heartbeat_patience(const ls_heartbeat *b, int rank)
{
    double own = atomic_load(&b->delay), said = atomic_load(&b->said[rank]) * UNIT;
    double delay = own > said ? own : said;
    return 4 * (delay < b->limit ? delay : b->limit);
}

/* The thread itself may not have been awake since. */
bool ls_heartbeat_slept(ls_heartbeat *b)
{
    bool late = b->table->now(b->transport) - atomic_load(&b->last) > b->limit;
    return atomic_exchange(&b->slept, false) || late;
}
