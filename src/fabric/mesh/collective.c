/* An exchange: every worker sends one packet to every other. ls_mesh_exchange waits for it;
 * ls_mesh_post starts one, and ls_mesh_settle waits for it later. */
#include "fabric/mesh/mesh.h"

/* Either worker may be wrong, so none can continue. */
static ls_status explain_difference(const ls_mesh *mesh, const ls_packet *own, int rank, const ls_packet *theirs)
{
    char what[LS_PACKET_WHAT];
    return ls_fail(LS_ERR_PEER,
                   "workers diverged: worker %d is at \"%s\" (exchange %llu, tag %016llx), worker %d at \"%s\" "
                   "(exchange %llu, tag %016llx)",
                   mesh->peers.rank, own->what, (unsigned long long)own->sequence, (unsigned long long)own->tag, rank,
                   ls_packet_says(theirs, what), (unsigned long long)theirs->sequence, (unsigned long long)theirs->tag);
}

static uint64_t bytes_between(const ls_exchange_at *at, int from, int to)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < at->count; i++)
        if (ls_piece_goes(&at->pieces[i], from, to))
            bytes += at->pieces[i].bytes;
    return bytes;
}

ls_status ls_mesh_classify_packet(ls_mesh *mesh, int rank, ls_reading *out)
{
    const ls_packet *h = &mesh->links[rank].in;
    if (h->generation != mesh->peers.generation || mesh->regroup) {
        /* Later generation: hold it; the announcement, sent before it, has arrived. */
        *out = h->generation > mesh->peers.generation ? LS_HOLDS : LS_SKIPS;
        return LS_OK;
    }
    if (h->sequence > mesh->sequence) { /* it is ahead; the next exchange will be compared */
        *out = LS_HOLDS;
        return LS_OK;
    }
    *out = LS_TAKES;
    const ls_exchange_at *at = ls_mesh_exchange_of(mesh, h);
    if (!at || h->sequence <= mesh->links[rank].taken || h->tag != at->head.tag)
        return explain_difference(mesh, at ? &at->head : &mesh->at[LS_WAITED_FOR].head, rank, h);
    uint64_t expected = bytes_between(at, rank, mesh->peers.rank);
    if (h->bytes != expected)
        return ls_fail(LS_ERR_PEER, "\"%s\": worker %d sends %llu bytes, worker %d expects %llu", at->head.what, rank,
                       (unsigned long long)h->bytes, mesh->peers.rank, (unsigned long long)expected);
    return LS_OK;
}

/* A worker that is READY without having sent this exchange never will. */
static ls_status check_readies(const ls_mesh *mesh, const ls_packet *head)
{
    for (int i = 0; i < mesh->peers.count; i++) {
        int r = mesh->peers.members[i];
        const ls_packet *ready = &mesh->readies[r];
        if (r != mesh->peers.rank && ready->kind && mesh->links[r].taken < head->sequence &&
            ready->sequence < head->sequence)
            return explain_difference(mesh, head, r, ready);
    }
    return LS_OK;
}

static ls_status begin(ls_mesh *mesh, ls_exchange_at *at, uint64_t tag, const char *what, const ls_piece *pieces,
                       size_t count)
{
    if (at->going)
        return ls_fail(LS_ERR_INTERNAL, "\"%s\" is posted before \"%s\" is settled", what, at->head.what);
    mesh->sequence++;
    *at = (ls_exchange_at){ .pieces = pieces, .count = count, .going = true };
    at->head = ls_mesh_packet(mesh, LS_PACKET_PIECES, what);
    at->head.tag = tag;
    for (size_t i = 0; i < count; i++) {
        int from = pieces[i].from, to = pieces[i].to;
        if (from < 0 || from >= mesh->peers.size || to < LS_ALL_WORKERS || to >= mesh->peers.size)
            return ls_fail(LS_ERR_INTERNAL, "\"%s\": piece %zu goes from worker %d to %d of %d", what, i, from, to,
                           mesh->peers.size);
    }
    for (int i = 0; i < mesh->peers.count; i++) {
        int r = mesh->peers.members[i];
        if (r == mesh->peers.rank)
            continue;
        ls_packet packet = at->head;
        packet.bytes = bytes_between(at, mesh->peers.rank, r);
        LS_TRY(ls_mesh_send(mesh, r, &packet));
    }
    ls_mesh_push(mesh);
    return ls_mesh_resume_held(mesh);
}

/* Packets are sent and received in order. */
static bool is_done(const ls_link *link, uint64_t sequence)
{
    if (link->taken < sequence)
        return false;
    for (int i = 0; !ls_mesh_is_sent(link) && i < link->out_count; i++)
        if (link->out[i].kind == LS_PACKET_PIECES && link->out[i].sequence <= sequence)
            return false;
    return true;
}

/* Publishes the worker that holds up the exchange: the one not heard from for longest, as it may
 * delay the others. */
static bool is_over(ls_mesh *mesh, uint64_t sequence)
{
    int missing = -1;
    for (int i = 0; i < mesh->peers.count; i++) {
        int r = mesh->peers.members[i];
        if (r != mesh->peers.rank && !is_done(&mesh->links[r], sequence) &&
            (missing < 0 || ls_mesh_heard(mesh, r) < ls_mesh_heard(mesh, missing)))
            missing = r;
    }
    atomic_store_explicit(&mesh->waits_for, missing, memory_order_relaxed);
    return missing < 0;
}

static ls_status finish(ls_mesh *mesh, ls_exchange_at *at)
{
    ls_mesh_wait_begins(mesh);
    while (!mesh->regroup && !is_over(mesh, at->head.sequence)) {
        LS_TRY(ls_mesh_wait(mesh));
        LS_TRY(check_readies(mesh, &at->head));
    }
    if (mesh->regroup)
        return ls_mesh_regroup(mesh);
    *at = (ls_exchange_at){ 0 };
    return LS_OK;
}

ls_status ls_mesh_exchange(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count)
{
    ls_mesh *mesh = (ls_mesh *)peers;
    ls_exchange_at *at = &mesh->at[LS_WAITED_FOR];
    ls_status status = ls_mesh_enter(mesh);
    if (status == LS_OK && !mesh->regroup)
        status = begin(mesh, at, tag, what, pieces, count);
    if (status == LS_OK)
        status = finish(mesh, at);
    return ls_mesh_exit(mesh, status);
}

ls_status ls_mesh_post(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count)
{
    ls_mesh *mesh = (ls_mesh *)peers;
    ls_status status = ls_mesh_enter(mesh);
    if (status == LS_OK)
        status = mesh->regroup ? ls_mesh_regroup(mesh) : begin(mesh, &mesh->at[LS_POSTED], tag, what, pieces, count);
    return ls_mesh_exit(mesh, status);
}

ls_status ls_mesh_settle(ls_peers *peers)
{
    ls_mesh *mesh = (ls_mesh *)peers;
    ls_status status = ls_mesh_enter(mesh);
    if (status == LS_OK && (mesh->regroup || mesh->at[LS_POSTED].going))
        status = finish(mesh, &mesh->at[LS_POSTED]);
    return ls_mesh_exit(mesh, status);
}

/* Errors surface at the next wait. Does nothing without heartbeat connections: those transports are
 * for one thread. */
void ls_mesh_move_on(ls_peers *peers)
{
    ls_mesh *mesh = (ls_mesh *)peers;
    if (!mesh->table->heartbeats || pthread_mutex_trylock(&mesh->mutex) != 0)
        return;
    bool moves = mesh->at[LS_POSTED].going && !mesh->regroup && mesh->over.status == LS_OK;
    ls_status status = moves ? ls_mesh_turn(mesh, 0) : LS_OK;
    if (status != LS_OK)
        (void)ls_mesh_exit(mesh, status);
    else
        pthread_mutex_unlock(&mesh->mutex);
}
