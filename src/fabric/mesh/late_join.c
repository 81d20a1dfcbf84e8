/* Workers that join while a job runs, or come back.
 *
 * A joining worker is connected to all members. It sends them JOIN: the generation, members and fit
 * that it knows. If this is current, the coordinator requests LS_REQUEST_WELCOME. When a commit has
 * granted it, all members call ls_mesh_welcome between two steps, and in place of a commit the
 * coordinator announces a generation with the new member. To an outdated JOIN it replies with
 * MEMBERS, and the worker sends JOIN again.
 *
 * Every member forwards the announcement to every other. A joining worker accepts it only from all
 * members that it has not lost: else its author may be lost, and the others may have announced
 * something else. */
#include <string.h>

#include "fabric/mesh/mesh.h"

/* ---- Members ---- */

static ls_status send_members(ls_mesh *mesh, int rank)
{
    ls_packet packet = ls_mesh_packet(mesh, LS_PACKET_MEMBERS, "");
    ls_mesh_put_members(mesh, &packet);
    packet.tag = mesh->peers.fit;
    mesh->joins[rank] = (ls_packet){ 0 };
    return ls_mesh_send(mesh, rank, &packet);
}

static bool knows_members(const ls_mesh *mesh, const ls_packet *join)
{
    ls_packet own = { 0 };
    ls_mesh_put_members(mesh, &own);
    return join->generation == mesh->peers.generation && memcmp(own.members, join->members, sizeof(own.members)) == 0;
}

int ls_mesh_find_joining(ls_mesh *mesh)
{
    for (int r = 0; r < mesh->peers.size; r++) {
        const ls_packet *join = &mesh->joins[r];
        if (join->kind == 0 || !mesh->links[r].connection || ls_peers_has(&mesh->peers, r) ||
            join->tag > mesh->peers.fit)
            continue;
        if (join->tag == mesh->peers.fit && knows_members(mesh, join))
            return r;
        if (send_members(mesh, r) != LS_OK) /* its queue is full */
            ls_mesh_hang_up(mesh, r);
    }
    return -1;
}

void ls_mesh_handle_joining(ls_mesh *mesh, int rank, const ls_packet *packet)
{
    if (packet->kind == LS_PACKET_JOIN)
        mesh->joins[rank] = *packet;
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

/* ---- Joining workers ---- */

void ls_mesh_start_joining(ls_mesh *mesh, const uint64_t *members, uint32_t generation)
{
    mesh->peers.joins = true;
    mesh->peers.generation = generation;
    mesh->leaves = true; /* a failure here concerns this worker only */
    ls_mesh_set_members(mesh, members);
}

void ls_mesh_handle_while_joining(ls_mesh *mesh, int rank, const ls_packet *packet)
{
    ls_peers *p = &mesh->peers;
    if (packet->kind == LS_PACKET_MEMBERS && packet->generation >= p->generation) {
        mesh->their_fit = packet->tag;
        mesh->asked = false;
        mesh->asked_at = mesh->table->now(mesh->transport);
        mesh->announced = (ls_packet){ 0 };
        p->generation = packet->generation;
        ls_handshake_learn(mesh->handshake, packet);
        ls_mesh_set_members(mesh, packet->members);
    } else if (packet->kind == LS_PACKET_ANNOUNCE && packet->generation == p->generation + 1 &&
               ls_has_bit(packet->members, p->rank)) {
        if (mesh->announced.kind == 0)
            memset(mesh->heard_from, 0, sizeof(mesh->heard_from));
        mesh->announced = *packet;
        ls_set_bit(mesh->heard_from, rank);
    } else if (packet->kind == LS_PACKET_STATE && packet->generation == p->generation + 1) {
        mesh->states[rank] = *packet; /* for the generation that admits this worker */
    }
}

#define PATIENCE 2.0 /* seconds until JOIN is sent without having met all members, who reply with MEMBERS */

static bool should_ask(ls_mesh *mesh, const uint64_t *members)
{
    double now = mesh->table->now(mesh->transport);
    if (mesh->asked)
        return false;
    if (!ls_handshake_has_met(mesh->handshake, members) && now - mesh->asked_at < PATIENCE)
        return false;
    mesh->asked_at = now;
    return true;
}

static ls_status ask(ls_mesh *mesh)
{
    ls_packet packet = ls_mesh_packet(mesh, LS_PACKET_JOIN, "");
    ls_mesh_put_members(mesh, &packet);
    if (!should_ask(mesh, packet.members))
        return LS_OK;
    ls_mesh_set_members(mesh, packet.members); /* sorts them again: `since` is known now */
    memset(packet.members, 0, sizeof(packet.members));
    for (int i = 0; i < mesh->peers.count; i++)
        if (mesh->links[mesh->peers.members[i]].connection)
            ls_set_bit(packet.members, mesh->peers.members[i]);
    packet.tag = mesh->peers.fit;
    mesh->asked = true;
    for (int i = 0; i < mesh->peers.count; i++)
        LS_TRY(ls_mesh_send(mesh, mesh->peers.members[i], &packet));
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
        if (mesh->links[mesh->peers.members[i]].connection && !mesh->lost[mesh->peers.members[i]])
            return false;
    return true;
}

static ls_status enter(ls_mesh *mesh)
{
    ls_packet packet = mesh->announced;
    int new_member;
    mesh->number = packet.number;
    mesh->begun = true;
    mesh->leaves = mesh->slept = false;
    mesh->peers.joins = false;
    memcpy(mesh->confirmed, packet.members, sizeof(mesh->confirmed));
    ls_clear_bit(mesh->confirmed, mesh->peers.rank);
    return ls_mesh_begin_generation(mesh, &packet, &new_member);
}

static ls_status join(ls_mesh *mesh, ls_answer *answer)
{
    *answer = LS_ANSWER_WAIT;
    LS_TRY(ls_handshake_visit(mesh->handshake));
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
