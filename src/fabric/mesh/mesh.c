/* Sends and receives packets. A waiting thread serves all connections at once, so packets of any
 * size pass each other without deadlock, and nothing is allocated. */
#include "fabric/mesh/mesh.h"

#include <string.h>

#include "base/text.h"

#define MOST_PARTS 64 /* parts passed to the transport in one call */

static const char zeros[65536];

/* ---- Creation ---- */

_Static_assert(LS_MOST_PEERS == LS_MAX_CLUSTER, "one number of workers");

ls_status ls_mesh_create(const ls_cluster_options *options, ls_mesh **out)
{
    size_t size = (size_t)options->size;
    int begin = options->begin > 0 ? options->begin : options->size;
    ls_mesh *mesh = calloc(1, sizeof(*mesh));
    if (!mesh)
        return ls_fail(LS_ERR_MEMORY, "no memory for the connections of %d workers", options->size);
    pthread_mutex_init(&mesh->mutex, NULL);
    mesh->links = calloc(size, sizeof(*mesh->links));
    mesh->wants = calloc(size, sizeof(*mesh->wants));
    mesh->heartbeats = calloc(size, sizeof(*mesh->heartbeats));
    mesh->members = calloc(size, sizeof(*mesh->members));
    mesh->readies = calloc(size, sizeof(*mesh->readies));
    mesh->states = calloc(size, sizeof(*mesh->states));
    mesh->lost = calloc(size, sizeof(*mesh->lost));
    mesh->processes = calloc(size, sizeof(*mesh->processes));
    mesh->since = calloc(size, sizeof(*mesh->since));
    mesh->joins = calloc(size, sizeof(*mesh->joins));
    mesh->seconds = calloc(size, sizeof(*mesh->seconds));
    mesh->weights = calloc(size, sizeof(*mesh->weights));
    mesh->peers = (ls_peers){ .rank = options->rank,
                              .size = options->size,
                              .members = mesh->members,
                              .seconds = mesh->seconds,
                              .weights = mesh->weights,
                              .waits_for = &mesh->waits_for,
                              .count = begin,
                              .first_server = begin - options->servers,
                              .servers = options->servers,
                              .least = options->least,
                              .new_member = -1,
                              .generation = 1,
                              .exchange = ls_mesh_exchange,
                              .post = ls_mesh_post,
                              .settle = ls_mesh_settle,
                              .move_on = ls_mesh_move_on,
                              .commit = ls_mesh_commit,
                              .give_up = ls_mesh_give_up,
                              .end_all = ls_mesh_end_all,
                              .welcome = ls_mesh_welcome,
                              .join = ls_mesh_join };
    atomic_store(&mesh->waits_for, -1);
    mesh->join_limit = options->join_limit > 0 ? options->join_limit : 30;
    mesh->silence_limit = options->silence_limit > 0 ? options->silence_limit : 1;
    if (!mesh->links || !mesh->wants || !mesh->heartbeats || !mesh->members || !mesh->readies || !mesh->states ||
        !mesh->lost || !mesh->processes || !mesh->since || !mesh->joins || !mesh->seconds || !mesh->weights) {
        ls_mesh_free(mesh);
        return ls_fail(LS_ERR_MEMORY, "no memory for the connections of %d workers", options->size);
    }
    for (int r = 0; r < options->size; r++) {
        mesh->members[r] = r;
        mesh->since[r] = r < mesh->peers.count;
        mesh->lost[r] = r < mesh->peers.count || r == mesh->peers.rank ? LS_NOT_LOST : LS_LOST_LEFT;
        if (r < mesh->peers.count)
            ls_set_bit(mesh->confirmed, r);
    }
    *out = mesh;
    return LS_OK;
}

void ls_mesh_free(ls_mesh *mesh)
{
    if (!mesh)
        return;
    for (int r = 0; mesh->links && r < mesh->peers.size; r++)
        if (mesh->links[r].connection)
            mesh->table->hang_up(mesh->links[r].connection);
    ls_heartbeat_stop(mesh->heartbeat);
    /* All NULL if the heartbeat thread owned them. */
    for (int r = 0; mesh->heartbeats && r < mesh->peers.size; r++)
        if (mesh->heartbeats[r])
            mesh->table->hang_up(mesh->heartbeats[r]);
    ls_handshake_close(mesh->handshake);
    if (mesh->transport)
        mesh->table->close(mesh->transport);
    pthread_mutex_destroy(&mesh->mutex);
    free(mesh->links);
    free(mesh->wants);
    free(mesh->heartbeats);
    free(mesh->members);
    free(mesh->readies);
    free(mesh->states);
    free(mesh->lost);
    free(mesh->processes);
    free(mesh->since);
    free(mesh->joins);
    free(mesh->seconds);
    free(mesh->weights);
    free(mesh);
}

ls_packet ls_mesh_packet(const ls_mesh *mesh, ls_packet_kind kind, const char *what)
{
    ls_packet packet = { .magic = LS_PACKET_MAGIC,
                         .version = LS_PACKET_VERSION,
                         .kind = (uint16_t)kind,
                         .from = (uint32_t)mesh->peers.rank,
                         .generation = mesh->peers.generation,
                         .number = mesh->number,
                         .sequence = mesh->sequence };
    snprintf(packet.what, sizeof(packet.what), "%s", what);
    return packet;
}

const char *ls_packet_says(const ls_packet *packet, char text[LS_PACKET_WHAT])
{
    snprintf(text, LS_PACKET_WHAT, "%.*s", LS_PACKET_WHAT - 1, packet->what);
    ls_make_printable(text, strlen(text));
    return text;
}

void ls_mesh_put_members(const ls_mesh *mesh, ls_packet *packet)
{
    memset(packet->members, 0, sizeof(packet->members));
    for (int i = 0; i < mesh->peers.count; i++)
        ls_set_bit(packet->members, mesh->peers.members[i]);
}

void ls_mesh_meet(ls_mesh *mesh, int rank, ls_connection *connection)
{
    bool has_heartbeat = mesh->links[rank].has_heartbeat;
    mesh->links[rank] = (ls_link){ .connection = connection,
                                   .has_heartbeat = has_heartbeat,
                                   .heard = mesh->table->now(mesh->transport) };
    mesh->lost[rank] = LS_NOT_LOST;
    mesh->changes++;
    mesh->readies[rank] = mesh->states[rank] = mesh->joins[rank] = (ls_packet){ 0 };
}

void ls_mesh_add_heartbeat(ls_mesh *mesh, int rank, ls_connection *connection)
{
    mesh->links[rank].has_heartbeat = true;
    if (mesh->heartbeat)
        ls_heartbeat_add(mesh->heartbeat, rank, connection);
    else
        mesh->heartbeats[rank] = connection;
}

/* ---- Sending ---- */

static void begin_packet(ls_link *link)
{
    link->out_head = 0;
    link->out_piece = link->out_from = 0;
    link->padding = false;
    link->out_left = link->out_count > 0 ? link->out[0].bytes : 0;
}

ls_status ls_mesh_send(ls_mesh *mesh, int rank, const ls_packet *packet)
{
    ls_link *link = &mesh->links[rank];
    if (!link->connection || link->write_failed)
        return LS_OK; /* reading will find the end of the connection */
    if (link->out_count == LS_MOST_QUEUED)
        return ls_fail(LS_ERR_INTERNAL, "%d packets wait for worker %d", link->out_count, rank);
    link->out[link->out_count++] = *packet;
    if (link->out_count == 1)
        begin_packet(link);
    return LS_OK;
}

bool ls_mesh_is_sent(const ls_link *link)
{
    return !link->connection || link->write_failed || link->out_count == 0;
}

const ls_exchange_at *ls_mesh_exchange_of(const ls_mesh *mesh, const ls_packet *packet)
{
    for (int i = 0; i < LS_MOST_UNDER_WAY; i++)
        if (mesh->at[i].going && mesh->at[i].head.sequence == packet->sequence)
            return &mesh->at[i];
    return NULL;
}

static int list_pieces(const ls_exchange_at *at, int from, int to, size_t piece, size_t offset, struct iovec *parts,
                       int n)
{
    for (size_t i = piece; i < at->count && n < MOST_PARTS; i++) {
        const ls_piece *p = &at->pieces[i];
        if (ls_piece_goes(p, from, to) && p->bytes > offset)
            parts[n++] = (struct iovec){ (char *)p->data + offset, p->bytes - offset };
        offset = 0;
    }
    return n;
}

static void advance(const ls_exchange_at *at, int from, int to, size_t *piece, size_t *offset, size_t bytes)
{
    while (bytes > 0) {
        const ls_piece *p = &at->pieces[*piece];
        size_t rest = ls_piece_goes(p, from, to) ? p->bytes - *offset : 0;
        if (bytes < rest) {
            *offset += bytes;
            return;
        }
        bytes -= rest;
        ++*piece;
        *offset = 0;
    }
}

static int list_zeros(uint64_t bytes, struct iovec *parts, int n)
{
    for (; bytes > 0 && n < MOST_PARTS; n++) {
        size_t some = bytes < sizeof(zeros) ? (size_t)bytes : sizeof(zeros);
        parts[n] = (struct iovec){ (void *)zeros, some };
        bytes -= some;
    }
    return n;
}

static void next_packet(ls_link *link)
{
    memmove(link->out, link->out + 1, (size_t)--link->out_count * sizeof(*link->out));
    begin_packet(link);
}

static int list_out(const ls_mesh *mesh, int rank, struct iovec *parts)
{
    const ls_link *link = &mesh->links[rank];
    int n = 0;
    if (link->out_head < sizeof(ls_packet))
        parts[n++] = (struct iovec){ (char *)link->out + link->out_head, sizeof(ls_packet) - link->out_head };
    if (link->padding)
        return list_zeros(link->out_left, parts, n);
    return link->out_left > 0 ? list_pieces(ls_mesh_exchange_of(mesh, &link->out[0]), mesh->peers.rank, rank,
                                            link->out_piece, link->out_from, parts, n)
                              : n;
}

/* If writing fails, reading finds out why. */
static void write_some(ls_mesh *mesh, int rank)
{
    ls_link *link = &mesh->links[rank];
    while (link->out_count > 0 && !link->write_failed) {
        struct iovec parts[MOST_PARTS];
        size_t moved = 0;
        link->write_failed = mesh->table->write(link->connection, parts, list_out(mesh, rank, parts), &moved) != LS_OK;
        if (link->write_failed || moved == 0)
            return;
        size_t head = sizeof(ls_packet) - link->out_head;
        head = head < moved ? head : moved;
        link->out_head += head;
        moved -= head;
        link->out_left -= moved;
        if (!link->padding && moved > 0)
            advance(ls_mesh_exchange_of(mesh, &link->out[0]), mesh->peers.rank, rank, &link->out_piece, &link->out_from,
                    moved);
        if (link->out_head == sizeof(ls_packet) && link->out_left == 0)
            next_packet(link);
    }
}

void ls_mesh_push(ls_mesh *mesh)
{
    for (int r = 0; r < mesh->peers.size; r++)
        if (mesh->links[r].connection)
            write_some(mesh, r);
}

void ls_mesh_hang_up(ls_mesh *mesh, int rank)
{
    ls_link *link = &mesh->links[rank];
    link->has_heartbeat = false;
    if (!mesh->heartbeat && mesh->heartbeats[rank]) { /* else the heartbeat thread notices the end itself */
        mesh->table->hang_up(mesh->heartbeats[rank]);
        mesh->heartbeats[rank] = NULL;
    }
    if (!link->connection)
        return;
    write_some(mesh, rank); /* packets still in the queue */
    mesh->table->hang_up(link->connection);
    link->connection = NULL;
}

/* ---- Receiving ---- */

static ls_status check_head(const ls_mesh *mesh, int rank)
{
    const ls_packet *h = &mesh->links[rank].in;
    const unsigned kinds = (1u << LS_PACKET_MESSAGE) - (1u << LS_PACKET_PIECES);
    return ls_packet_check(h, rank, kinds, h->kind == LS_PACKET_PIECES ? UINT64_MAX : 0);
}

static void expect_head(ls_link *link)
{
    link->reading = LS_READS_HEAD;
    link->in_head = 0;
}

static void end_body(ls_link *link)
{
    if (link->reading == LS_TAKES)
        link->taken = link->in.sequence;
    expect_head(link);
}

static ls_status begin_body(ls_mesh *mesh, int rank)
{
    ls_link *link = &mesh->links[rank];
    LS_TRY(ls_mesh_classify_packet(mesh, rank, &link->reading));
    link->in_left = link->in.bytes;
    link->in_piece = link->in_from = 0;
    if (link->in_left == 0 && link->reading != LS_HOLDS)
        end_body(link);
    return LS_OK;
}

/* Only JOIN and BEAT are allowed. */
static void take_joining_head(ls_mesh *mesh, int rank)
{
    ls_link *link = &mesh->links[rank];
    bool asks = link->in.kind == LS_PACKET_JOIN || link->in.kind == LS_PACKET_BEAT;
    expect_head(link);
    if (check_head(mesh, rank) == LS_OK && asks) {
        ls_mesh_handle_joining(mesh, rank, &link->in);
        return;
    }
    ls_mesh_hang_up(mesh, rank);
    ls_mesh_lose(mesh, rank, LS_LOST_LEFT, "");
}

static ls_status take_head(ls_mesh *mesh, int rank)
{
    ls_link *link = &mesh->links[rank];
    if (!ls_peers_has(&mesh->peers, rank)) {
        take_joining_head(mesh, rank);
        return LS_OK;
    }
    LS_TRY(check_head(mesh, rank));
    if (link->in.kind == LS_PACKET_PIECES)
        return begin_body(mesh, rank);
    expect_head(link);
    return ls_mesh_handle(mesh, rank, &link->in);
}

static int list_in(const ls_mesh *mesh, int rank, char *sink, size_t room, struct iovec *parts)
{
    ls_link *link = &mesh->links[rank];
    if (link->reading == LS_READS_HEAD) {
        parts[0] = (struct iovec){ (char *)&link->in + link->in_head, sizeof(ls_packet) - link->in_head };
        return 1;
    }
    if (link->reading == LS_TAKES)
        return list_pieces(ls_mesh_exchange_of(mesh, &link->in), rank, mesh->peers.rank, link->in_piece, link->in_from,
                           parts, 0);
    parts[0] = (struct iovec){ sink, link->in_left < room ? (size_t)link->in_left : room };
    return 1;
}

static ls_status read_part(ls_mesh *mesh, int rank, bool *more)
{
    ls_link *link = &mesh->links[rank];
    struct iovec parts[MOST_PARTS];
    char sink[16384];
    size_t moved = 0;
    *more = false;
    if (mesh->table->read(link->connection, parts, list_in(mesh, rank, sink, sizeof(sink), parts), &moved) != LS_OK) {
        static const ls_absence absences[] = { [LS_CONNECTION_CLOSED] = LS_LOST_BROKEN,
                                               [LS_CONNECTION_DIED] = LS_LOST_DEAD,
                                               [LS_CONNECTION_GONE] = LS_LOST_ENDED,
                                               [LS_CONNECTION_BROKEN] = LS_LOST_BROKEN };
        ls_connection_end how = ls_connection_how_ended(mesh->table, link->connection);
        ls_mesh_hang_up(mesh, rank);
        ls_mesh_lose(mesh, rank, absences[how], ls_last_error());
        return LS_OK;
    }
    *more = moved > 0;
    if (*more)
        link->heard = mesh->table->now(mesh->transport);
    if (link->reading == LS_READS_HEAD) {
        link->in_head += moved;
        return link->in_head == sizeof(ls_packet) ? take_head(mesh, rank) : LS_OK;
    }
    link->in_left -= moved;
    if (link->reading == LS_TAKES)
        advance(ls_mesh_exchange_of(mesh, &link->in), rank, mesh->peers.rank, &link->in_piece, &link->in_from, moved);
    if (link->in_left == 0)
        end_body(link);
    return LS_OK;
}

static ls_status read_some(ls_mesh *mesh, int rank)
{
    bool more = true;
    while (more && mesh->links[rank].connection && mesh->links[rank].reading != LS_HOLDS)
        LS_TRY(read_part(mesh, rank, &more));
    return LS_OK;
}

/* ---- Sending and receiving ---- */

ls_status ls_mesh_turn(ls_mesh *mesh, double seconds)
{
    int count = 0, size = mesh->peers.size;
    int ranks[LS_MAX_CLUSTER];
    for (int r = 0; r < size; r++) {
        ls_link *link = &mesh->links[r];
        ls_want want = { .connection = link->connection,
                         .read = link->reading != LS_HOLDS,
                         .write = !ls_mesh_is_sent(link) };
        if (!link->connection || (!want.read && !want.write))
            continue;
        ranks[count] = r;
        mesh->wants[count++] = want;
    }
    LS_TRY(mesh->table->wait(mesh->transport, mesh->wants, count, seconds));
    for (int i = 0; i < count; i++) {
        ls_link *link = &mesh->links[ranks[i]];
        if (!mesh->wants[i].ready || !link->connection)
            continue;
        if (mesh->wants[i].write)
            write_some(mesh, ranks[i]);
        LS_TRY(read_some(mesh, ranks[i]));
    }
    return LS_OK;
}

ls_status ls_mesh_resume_held(ls_mesh *mesh)
{
    for (int r = 0; r < mesh->peers.size; r++)
        if (mesh->links[r].connection && mesh->links[r].reading == LS_HOLDS)
            LS_TRY(begin_body(mesh, r));
    return LS_OK;
}

/* Keeps packets that are partly sent. */
static void abandon_out(ls_link *link)
{
    bool begun = link->out_head > 0;
    int kept = 0;
    for (int i = 0; i < link->out_count; i++)
        if (link->out[i].kind != LS_PACKET_PIECES || (begun && i == 0))
            link->out[kept++] = link->out[i];
    link->out_count = kept;
    if (begun)
        link->padding = link->out[0].kind == LS_PACKET_PIECES;
    else
        begin_packet(link);
}

void ls_mesh_abandon(ls_mesh *mesh)
{
    for (int r = 0; r < mesh->peers.size; r++) {
        ls_link *link = &mesh->links[r];
        abandon_out(link);
        if (link->reading == LS_TAKES || (link->reading == LS_HOLDS && link->in.generation <= mesh->peers.generation))
            link->reading = LS_SKIPS;
        if (link->reading == LS_SKIPS && link->in_left == 0)
            expect_head(link);
    }
    memset(mesh->at, 0, sizeof(mesh->at));
}

/* ---- The end ---- */

/* A worker with unsent packets may not get it. */
static void send_last_packet(ls_mesh *mesh, const ls_packet *packet)
{
    ls_mesh_abandon(mesh);
    for (int r = 0; r < mesh->peers.size; r++) {
        ls_link *link = &mesh->links[r];
        if (!link->connection)
            continue;
        (void)ls_mesh_send(mesh, r, packet); /* the peer sees the connection end */
        ls_mesh_hang_up(mesh, r);
    }
}

ls_status ls_mesh_enter(ls_mesh *mesh)
{
    pthread_mutex_lock(&mesh->mutex);
    if (mesh->left > 0)
        mesh->own_work += mesh->table->now(mesh->transport) - mesh->left;
    LS_TRY(ls_error_give(&mesh->over));
    if (mesh->peers.joins)
        return ls_fail(LS_ERR_STATE,
                       "worker %d joins a running job: it must call ls_fit, and can call nothing else together with "
                       "the other workers before",
                       mesh->peers.rank);
    return LS_OK;
}

ls_status ls_mesh_exit(ls_mesh *mesh, ls_status status)
{
    if (status != LS_OK && !mesh->peers.again && mesh->over.status == LS_OK) {
        ls_error_keep(&mesh->over, status);
        ls_packet packet = ls_mesh_packet(mesh, mesh->leaves ? LS_PACKET_LEFT : LS_PACKET_OVER, ls_last_error());
        send_last_packet(mesh, &packet);
    }
    if (mesh->over.status != LS_OK)
        status = ls_error_give(&mesh->over);
    atomic_store_explicit(&mesh->waits_for, -1, memory_order_relaxed);
    mesh->left = mesh->table->now(mesh->transport);
    pthread_mutex_unlock(&mesh->mutex);
    return status;
}

void ls_mesh_leave(ls_mesh *mesh, const char *why)
{
    ls_packet packet = ls_mesh_packet(mesh, LS_PACKET_LEFT, why);
    send_last_packet(mesh, &packet);
}

void ls_mesh_end(ls_mesh *mesh, const char *why)
{
    ls_packet packet = ls_mesh_packet(mesh, LS_PACKET_OVER, why);
    send_last_packet(mesh, &packet);
}

void ls_mesh_close(ls_mesh *mesh)
{
    if (!mesh)
        return;
    ls_mesh_leave(mesh, "it closed its context");
    ls_mesh_free(mesh);
}
