/* Workers that come while a job runs, or come back.
 *
 * A newcomer has met all members at their doors. It tells all of them (JOIN) which epoch and members it knows, and
 * which call of ls_fit it waits in. When the coordinator finds that this is still so, it wishes for a welcome, which
 * goes along with a commit like other wishes; all members then come together between two steps (ls_mesh_welcome), and
 * instead of a commit the coordinator announces a new epoch with the newcomer among its members. One that knows too
 * little is told (MEMBERS), and asks again.
 *
 * As ever an announcement goes from everyone to everyone. A newcomer believes it only when all members that it has not
 * lost have passed it on: otherwise the one that made it may have been lost with it, and the others have announced
 * something else. */
#include <string.h>

#include "fabric/mesh/mesh.h"

/* ---- Members ---- */

static ls_status tell_members(ls_mesh *mesh, int rank)
{
    ls_frame frame = ls_mesh_frame(mesh, LS_FRAME_MEMBERS, "");
    ls_mesh_put_members(mesh, &frame);
    frame.tag = mesh->peers.fit;
    mesh->joins[rank] = (ls_frame){ 0 };
    return ls_mesh_send(mesh, rank, &frame);
}

static bool knows_members(const ls_mesh *mesh, const ls_frame *join)
{
    ls_frame own = { 0 };
    ls_mesh_put_members(mesh, &own);
    return join->epoch == mesh->peers.epoch && memcmp(own.members, join->members, sizeof(own.members)) == 0;
}

int ls_mesh_find_newcomer(ls_mesh *mesh)
{
    for (int r = 0; r < mesh->peers.size; r++) {
        const ls_frame *join = &mesh->joins[r];
        if (join->kind == 0 || !mesh->links[r].line || ls_peers_has(&mesh->peers, r) || join->tag > mesh->peers.fit)
            continue;
        if (join->tag == mesh->peers.fit && knows_members(mesh, join))
            return r;
        if (tell_members(mesh, r) != LS_OK) /* too much is under way to it */
            ls_mesh_hang_up(mesh, r);
    }
    return -1;
}

void ls_mesh_hear_newcomer(ls_mesh *mesh, int rank, const ls_frame *frame)
{
    if (frame->kind == LS_FRAME_JOIN)
        mesh->joins[rank] = *frame;
}

ls_status ls_mesh_welcome(ls_peers *peers)
{
    ls_mesh *mesh = (ls_mesh *)peers;
    ls_status status = ls_mesh_enter(mesh);
    if (status == LS_OK) {
        mesh->waits_until = mesh->table->now(mesh->transport) + mesh->join_limit;
        status = ls_mesh_commit_or_welcome(mesh, (uint64_t[2]){ 0, 0 }, "a welcome");
        mesh->waits_until = 0;
    }
    return ls_mesh_exit(mesh, status);
}

/* ---- Newcomers ---- */

void ls_mesh_come_later(ls_mesh *mesh, const uint64_t *members, uint32_t epoch)
{
    mesh->peers.joins = true;
    mesh->peers.epoch = epoch;
    mesh->leaves = true; /* what fails here is this worker's alone */
    ls_mesh_set_members(mesh, members);
}

void ls_mesh_hear_as_newcomer(ls_mesh *mesh, int rank, const ls_frame *frame)
{
    ls_peers *p = &mesh->peers;
    if (frame->kind == LS_FRAME_MEMBERS && frame->epoch >= p->epoch) {
        mesh->their_fit = frame->tag;
        mesh->asked = false;
        mesh->told = mesh->table->now(mesh->transport);
        mesh->announced = (ls_frame){ 0 };
        p->epoch = frame->epoch;
        ls_handshake_learn(mesh->door, frame);
        ls_mesh_set_members(mesh, frame->members);
    } else if (frame->kind == LS_FRAME_ANNOUNCE && frame->epoch == p->epoch + 1 &&
               ls_has_bit(frame->members, p->rank)) {
        if (mesh->announced.kind == 0)
            memset(mesh->heard_from, 0, sizeof(mesh->heard_from));
        mesh->announced = *frame;
        ls_set_bit(mesh->heard_from, rank);
    } else if (frame->kind == LS_FRAME_STATE && frame->epoch == p->epoch + 1) {
        mesh->states[rank] = *frame; /* of the epoch that it is let in with */
    }
}

#define PATIENCE                                                                                                       \
    2.0 /* seconds until one that could not meet all members asks nevertheless: it is told who they are now */

static bool should_ask(ls_mesh *mesh, const uint64_t *members)
{
    double now = mesh->table->now(mesh->transport);
    if (mesh->asked)
        return false;
    if (!ls_handshake_has_met(mesh->door, members) && now - mesh->told < PATIENCE)
        return false;
    mesh->told = now;
    return true;
}

static ls_status ask(ls_mesh *mesh)
{
    ls_frame frame = ls_mesh_frame(mesh, LS_FRAME_JOIN, "");
    ls_mesh_put_members(mesh, &frame);
    if (!should_ask(mesh, frame.members))
        return LS_OK;
    ls_mesh_set_members(mesh, frame.members); /* since when each is one is known now */
    memset(frame.members, 0, sizeof(frame.members));
    for (int i = 0; i < mesh->peers.count; i++)
        if (mesh->links[mesh->peers.members[i]].line)
            ls_set_bit(frame.members, mesh->peers.members[i]);
    frame.tag = mesh->peers.fit;
    mesh->asked = true;
    for (int i = 0; i < mesh->peers.count; i++)
        LS_TRY(ls_mesh_send(mesh, mesh->peers.members[i], &frame));
    ls_mesh_push(mesh);
    return LS_OK;
}

static bool is_announced(const ls_mesh *mesh)
{
    for (int i = 0; i < mesh->peers.count; i++) {
        int r = mesh->peers.members[i];
        if (!mesh->lost[r] && !ls_has_bit(mesh->heard_from, r))
            return false;
    }
    return mesh->announced.kind != 0;
}

static bool is_alone(const ls_mesh *mesh)
{
    for (int i = 0; i < mesh->peers.count; i++)
        if (mesh->links[mesh->peers.members[i]].line && !mesh->lost[mesh->peers.members[i]])
            return false;
    return true;
}

/* This worker is a member: the newcomer of the epoch that was announced. */
static ls_status enter(ls_mesh *mesh)
{
    ls_frame frame = mesh->announced;
    int newcomer;
    mesh->number = frame.number;
    mesh->begun = true;
    mesh->leaves = mesh->slept = false;
    mesh->peers.joins = false;
    memcpy(mesh->confirmed, frame.members, sizeof(mesh->confirmed));
    ls_clear_bit(mesh->confirmed, mesh->peers.rank);
    return ls_mesh_begin_epoch(mesh, &frame, &newcomer);
}

static ls_status join(ls_mesh *mesh, ls_answer *answer)
{
    *answer = LS_ANSWER_WAIT;
    LS_TRY(ls_handshake_visit(mesh->door));
    LS_TRY(ask(mesh));
    LS_TRY(ls_mesh_wait(mesh));
    if (mesh->their_fit > mesh->peers.fit) {
        *answer = LS_ANSWER_LATER;
        return LS_OK;
    }
    if (is_announced(mesh)) {
        *answer = LS_ANSWER_JOINED;
        return enter(mesh);
    }
    if (is_alone(mesh))
        return ls_fail(LS_ERR_PEER, "the job ended, or its workers were lost, before worker %d could join it",
                       mesh->peers.rank);
    return LS_OK;
}

ls_status ls_mesh_join(ls_peers *peers, ls_answer *answer)
{
    ls_mesh *mesh = (ls_mesh *)peers;
    pthread_mutex_lock(&mesh->mutex);
    ls_status status = ls_error_give(&mesh->over);
    if (status == LS_OK)
        status = join(mesh, answer);
    return ls_mesh_exit(mesh, status);
}
