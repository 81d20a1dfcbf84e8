/* An exchange: every worker has one frame for every other one. */
#include "fabric/mesh.h"

/* Workers that do something else are at fault both: nobody can go on. */
static ls_status explain_difference(const ls_mesh *mesh, int rank, const ls_frame *theirs)
{
    const ls_frame *own = &mesh->at.head;
    char what[LS_FRAME_WHAT];
    return ls_fail(
        LS_ERR_PEER,
        "workers do not do the same: worker %d is at \"%s\" (exchange %llu, tag %016llx), worker %d at \"%s\" "
        "(exchange %llu, tag %016llx)",
        mesh->peers.rank, own->what, (unsigned long long)own->sequence, (unsigned long long)own->tag, rank,
        ls_frame_says(theirs, what), (unsigned long long)theirs->sequence, (unsigned long long)theirs->tag);
}

static uint64_t bytes_between(const ls_mesh *mesh, int from, int to)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < mesh->at.count; i++)
        if (ls_piece_goes(&mesh->at.pieces[i], from, to))
            bytes += mesh->at.pieces[i].bytes;
    return bytes;
}

ls_status ls_mesh_judge(ls_mesh *mesh, int rank, ls_reading *out)
{
    const ls_frame *h = &mesh->links[rank].in, *own = &mesh->at.head;
    if (h->epoch != mesh->peers.epoch || mesh->regroup) {
        *out = h->epoch > mesh->peers.epoch ? LS_HOLDS : LS_SKIPS; /* its announcement is here already */
        return LS_OK;
    }
    if (h->sequence > mesh->sequence) { /* it is ahead; what comes next will show whether it does the same */
        *out = LS_HOLDS;
        return LS_OK;
    }
    *out = LS_TAKES;
    if (!mesh->at.going || mesh->links[rank].arrived || h->sequence < mesh->sequence || h->tag != own->tag)
        return explain_difference(mesh, rank, h);
    uint64_t expected = bytes_between(mesh, rank, mesh->peers.rank);
    if (h->bytes != expected)
        return ls_fail(LS_ERR_PEER, "\"%s\": worker %d sends %llu bytes, worker %d expects %llu", own->what, rank,
                       (unsigned long long)h->bytes, mesh->peers.rank, (unsigned long long)expected);
    return LS_OK;
}

/* A worker that has said it is ready, and sent nothing, will not come. */
static ls_status check_readies(const ls_mesh *mesh)
{
    for (int i = 0; i < mesh->peers.count; i++) {
        int r = mesh->peers.members[i];
        const ls_frame *ready = &mesh->readies[r];
        if (r != mesh->peers.rank && ready->kind && !mesh->links[r].arrived && ready->sequence < mesh->sequence)
            return explain_difference(mesh, r, ready);
    }
    return LS_OK;
}

static ls_status begin(ls_mesh *mesh, uint64_t tag, const char *what, const ls_piece *pieces, size_t count)
{
    mesh->sequence++;
    mesh->at = (ls_exchange_at){ .pieces = pieces, .count = count, .going = true };
    ls_frame *head = &mesh->at.head;
    *head = ls_mesh_frame(mesh, LS_FRAME_PIECES, what);
    head->tag = tag;
    for (size_t i = 0; i < count; i++) {
        int from = pieces[i].from, to = pieces[i].to;
        if (from < 0 || from >= mesh->peers.size || to < LS_ALL_WORKERS || to >= mesh->peers.size)
            return ls_fail(LS_ERR_INTERNAL, "\"%s\": piece %zu goes from worker %d to %d of %d", what, i, from, to,
                           mesh->peers.size);
    }
    for (int i = 0; i < mesh->peers.count; i++) {
        int r = mesh->peers.members[i];
        mesh->links[r].arrived = r == mesh->peers.rank;
        if (r == mesh->peers.rank)
            continue;
        ls_frame frame = *head;
        frame.bytes = bytes_between(mesh, mesh->peers.rank, r);
        LS_TRY(ls_mesh_send(mesh, r, &frame));
    }
    ls_mesh_push(mesh);
    return ls_mesh_look_again(mesh);
}

/* Of several that are missing, whoever was not heard of for longest is waited for: the others may be held up by it. */
static bool is_over(ls_mesh *mesh)
{
    int missing = -1;
    for (int i = 0; i < mesh->peers.count; i++) {
        int r = mesh->peers.members[i];
        const ls_link *link = &mesh->links[r];
        if ((!link->arrived || !ls_mesh_is_sent(link)) &&
            (missing < 0 || ls_mesh_heard(mesh, r) < ls_mesh_heard(mesh, missing)))
            missing = r;
    }
    atomic_store_explicit(&mesh->waits_for, missing, memory_order_relaxed);
    return missing < 0;
}

static ls_status exchange(ls_mesh *mesh, uint64_t tag, const char *what, const ls_piece *pieces, size_t count)
{
    if (!mesh->regroup)
        LS_TRY(begin(mesh, tag, what, pieces, count));
    ls_mesh_wait_begins(mesh);
    while (!mesh->regroup && !is_over(mesh)) {
        LS_TRY(ls_mesh_wait(mesh));
        LS_TRY(check_readies(mesh));
    }
    if (mesh->regroup)
        return ls_mesh_regroup(mesh);
    mesh->at = (ls_exchange_at){ 0 };
    return LS_OK;
}

ls_status ls_mesh_exchange(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count)
{
    ls_mesh *mesh = (ls_mesh *)peers;
    ls_status status = ls_mesh_enter(mesh);
    if (status == LS_OK)
        status = exchange(mesh, tag, what, pieces, count);
    return ls_mesh_exit(mesh, status);
}
