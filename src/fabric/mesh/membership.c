/* Membership, commits and the loss of workers. The coordinator is the first member: members are
 * sorted by the generation in which they joined, then by rank.
 *
 * A collective (a run, or a call that all workers make) ends with a commit. A worker that has all
 * its data sends READY to the coordinator, which sends COMMIT when all members are READY. So no
 * worker is more than one commit ahead.
 *
 * When a worker is lost, the remaining members abandon the collective and send each other their
 * progress and the workers they have lost (STATE). The first of them announces the remaining
 * members, and whether the collective is committed: it is if one of them saw COMMIT, or all are
 * READY, as then every member has the data. Otherwise all repeat it, with the same bits: so workers
 * never have to agree on values. */
#include <string.h>

#include "base/text.h"
#include "fabric/mesh/mesh.h"

#define RECONNECT_POLL   0.01 /* seconds between handshake polls while a connection is broken */
#define RECONNECT_MOMENT 0.5  /* seconds for all connections of one worker to come back together */

void ls_mesh_set_members(ls_mesh *mesh, const uint64_t *bits)
{
    int count = 0;
    for (int r = 0; r < mesh->peers.size; r++) {
        if (!ls_has_bit(bits, r))
            continue;
        int at = count++;
        for (; at > 0 && mesh->since[mesh->members[at - 1]] > mesh->since[r]; at--)
            mesh->members[at] = mesh->members[at - 1];
        mesh->members[at] = r;
    }
    mesh->peers.count = count;
}

/* ---- Waiting ---- */

void ls_mesh_lose(ls_mesh *mesh, int rank, ls_absence how, const char *why)
{
    if (mesh->lost[rank])
        return;
    mesh->lost[rank] = how;
    mesh->changes++;
    if (!ls_peers_has(&mesh->peers, rank))
        return;
    if (!mesh->regroup)
        snprintf(mesh->why, sizeof(mesh->why), "worker %d of %d is lost: %s", rank, mesh->peers.size, why);
    mesh->regroup = true;
}

void ls_mesh_wait_begins(ls_mesh *mesh)
{
    double now = mesh->table->now(mesh->transport);
    for (int i = 0; i < mesh->peers.count; i++)
        mesh->links[mesh->peers.members[i]].heard = now;
    mesh->beat = now;
}

ls_status ls_mesh_beat(ls_mesh *mesh)
{
    double now = mesh->table->now(mesh->transport);
    if (now - mesh->beat < LS_BEAT_EVERY)
        return LS_OK;
    mesh->beat = now;
    ls_packet beat = ls_mesh_packet(mesh, LS_PACKET_BEAT, "");
    for (int r = 0; r < mesh->peers.size; r++)
        if (mesh->links[r].connection && mesh->links[r].out_count == 0)
            LS_TRY(ls_mesh_send(mesh, r, &beat));
    ls_mesh_push(mesh);
    return LS_OK;
}

double ls_mesh_heard(const ls_mesh *mesh, int rank)
{
    double heard = mesh->links[rank].heard, beat = mesh->heartbeat ? ls_heartbeat_heard(mesh->heartbeat, rank) : 0;
    return beat > heard ? beat : heard;
}

/* Except peers that this worker stopped reading (LS_HOLDS). */
static void check_silence(ls_mesh *mesh, double now)
{
    char why[64];
    for (int i = 0; i < mesh->peers.count; i++) {
        int r = mesh->peers.members[i];
        const ls_link *link = &mesh->links[r];
        double limit = mesh->silence_limit + (mesh->heartbeat ? ls_heartbeat_patience(mesh->heartbeat, r) : 0);
        if (r == mesh->peers.rank || !link->connection || link->reading == LS_HOLDS || mesh->lost[r] ||
            now - ls_mesh_heard(mesh, r) <= limit)
            continue;
        snprintf(why, sizeof(why), "it was silent for %.2g s", limit);
        ls_mesh_lose(mesh, r, LS_LOST_SILENT, why);
    }
}

/* A reset heartbeat connection to a running worker counts as broken. */
static void check_heartbeats(ls_mesh *mesh)
{
    for (int i = 0; mesh->heartbeat && i < mesh->peers.count; i++) {
        int r = mesh->peers.members[i];
        if (r == mesh->peers.rank || !mesh->links[r].connection || !mesh->links[r].has_heartbeat || mesh->lost[r] ||
            ls_heartbeat_how_ended(mesh->heartbeat, r) != LS_CONNECTION_BROKEN)
            continue;
        ls_mesh_hang_up(mesh, r);
        ls_mesh_lose(mesh, r, LS_LOST_BROKEN, "its heartbeat connection broke");
    }
}

/* Returns whether this process was stopped so long that others may have lost it. */
static bool was_held_up(ls_mesh *mesh, double late)
{
    return mesh->heartbeat ? ls_heartbeat_slept(mesh->heartbeat) : late > mesh->silence_limit;
}

static void note_sleep(ls_mesh *mesh)
{
    mesh->slept = true;
    mesh->slept_in = mesh->number;
}

/* If this process itself was stopped, the silence of others proves nothing. */
ls_status ls_mesh_wait(ls_mesh *mesh)
{
    double before = mesh->table->now(mesh->transport);
    LS_TRY(ls_mesh_turn(mesh, mesh->reconnects ? RECONNECT_POLL : LS_BEAT_EVERY));
    double now = mesh->table->now(mesh->transport);
    if (mesh->over.status != LS_OK)
        return ls_error_give(&mesh->over);
    if (was_held_up(mesh, now - before - LS_BEAT_EVERY)) {
        note_sleep(mesh);
        ls_mesh_wait_begins(mesh);
    }
    check_silence(mesh, now);
    check_heartbeats(mesh);
    return mesh->heartbeat ? LS_OK : ls_mesh_beat(mesh);
}

/* ---- Receiving ---- */

/* Every member forwards an announcement before anything else of that generation. So a STATE of a
 * later generation comes from a faster worker, and is kept until this one has caught up. */
static void handle_state(ls_mesh *mesh, int rank, const ls_packet *packet)
{
    if (packet->generation < mesh->peers.generation)
        return;
    mesh->states[rank] = *packet;
    if (packet->generation > mesh->peers.generation)
        return;
    if (ls_has_bit(packet->members, mesh->peers.rank))
        ls_mesh_lose(mesh, rank, LS_LOST_SILENT, "it considers this worker lost");
    if (!mesh->regroup)
        snprintf(mesh->why, sizeof(mesh->why), "worker %d has lost another worker", rank);
    mesh->regroup = true;
}

void ls_mesh_confirm_members(ls_mesh *mesh)
{
    memset(mesh->confirmed, 0, sizeof(mesh->confirmed));
    for (int i = 0; i < mesh->peers.count; i++)
        ls_set_bit(mesh->confirmed, mesh->peers.members[i]);
}

ls_status ls_mesh_handle(ls_mesh *mesh, int rank, const ls_packet *packet)
{
    char why[LS_PACKET_WHAT];
    bool current = packet->generation == mesh->peers.generation && packet->number == mesh->number;
    if (mesh->peers.joins && packet->kind != LS_PACKET_OVER && packet->kind != LS_PACKET_LEFT) {
        ls_mesh_handle_while_joining(mesh, rank, packet);
        return LS_OK;
    }
    switch ((ls_packet_kind)packet->kind) {
    case LS_PACKET_READY:
        if (current)
            mesh->readies[rank] = *packet;
        return LS_OK;
    case LS_PACKET_COMMIT:
        if (current && mesh->ready) {
            mesh->committed = true;
            mesh->peers.granted |= packet->requests;
            ls_mesh_confirm_members(mesh);
        }
        return LS_OK;
    case LS_PACKET_STATE:
        handle_state(mesh, rank, packet);
        return LS_OK;
    case LS_PACKET_ANNOUNCE:
        if (packet->generation == mesh->peers.generation + 1) {
            if (!mesh->regroup)
                snprintf(mesh->why, sizeof(mesh->why), "worker %d reports that the members have changed", rank);
            mesh->announced = *packet;
            mesh->regroup = true;
        }
        return LS_OK;
    case LS_PACKET_OVER:
        return ls_fail(LS_ERR_PEER, "worker %d gave up: %s", rank, ls_packet_says(packet, why));
    case LS_PACKET_LEFT:
        ls_mesh_lose(mesh, rank, LS_LOST_LEFT, ls_packet_says(packet, why));
        return LS_OK;
    case LS_PACKET_MET:
    case LS_PACKET_BEGIN:
        ls_handshake_handle(mesh->handshake, rank, packet);
        return LS_OK;
    default:
        return LS_OK;
    }
}

/* ---- Commits ---- */

/* Names the workers whose hash differs from the most common one. */
static ls_status compare_hashes(const ls_mesh *mesh, const ls_packet *said, const char *what)
{
    const ls_peers *p = &mesh->peers;
    int best = p->members[0], most = 0;
    for (int i = 0; i < p->count; i++) {
        int same = 0, r = p->members[i];
        for (int k = 0; k < p->count; k++)
            same += memcmp(said[r].hash, said[p->members[k]].hash, sizeof(said->hash)) == 0;
        if (same > most) {
            most = same;
            best = r;
        }
    }
    if (most == p->count)
        return LS_OK;
    ls_text names = { 0 };
    for (int i = 0; i < p->count; i++)
        if (memcmp(said[p->members[i]].hash, said[best].hash, sizeof(said->hash)) != 0)
            ls_text_add(&names, " %d", p->members[i]);
    ls_status status =
        ls_fail(LS_ERR_PEER,
                "workers disagree on the results: of %d workers, %d have the hash %016llx%016llx at \"%s\", but "
                "not worker%s",
                p->count, most, (unsigned long long)said[best].hash[0], (unsigned long long)said[best].hash[1], what,
                ls_text_get(&names));
    ls_text_free(&names);
    return status;
}

/* A worker that has begun another exchange will never be READY. */
static ls_status check_ahead(const ls_mesh *mesh, const char *what)
{
    for (int i = 0; i < mesh->peers.count; i++) {
        int r = mesh->peers.members[i];
        const ls_link *link = &mesh->links[r];
        char theirs[LS_PACKET_WHAT];
        if (r == mesh->peers.rank || mesh->readies[r].kind || link->reading != LS_HOLDS ||
            link->in.generation != mesh->peers.generation)
            continue;
        return ls_fail(LS_ERR_PEER, "workers diverged: worker %d is at the end of \"%s\", worker %d at \"%s\"",
                       mesh->peers.rank, what, r, ls_packet_says(&link->in, theirs));
    }
    return LS_OK;
}

static bool all_said(ls_mesh *mesh, const ls_packet *said)
{
    for (int i = 0; i < mesh->peers.count; i++) {
        int r = mesh->peers.members[i];
        if (r != mesh->peers.rank && !mesh->lost[r] &&
            (said[r].kind == 0 || said[r].generation != mesh->peers.generation)) {
            atomic_store_explicit(&mesh->waits_for, r, memory_order_relaxed);
            return false;
        }
    }
    return true;
}

static ls_status commit_all(ls_mesh *mesh, const char *what)
{
    uint64_t requests = 0;
    LS_TRY(compare_hashes(mesh, mesh->readies, what));
    for (int i = 0; i < mesh->peers.count; i++) {
        const ls_packet *ready = &mesh->readies[mesh->peers.members[i]];
        requests |= ready->requests;
        mesh->seconds[mesh->peers.members[i]] += (double)ready->tag * 1e-9;
    }
    ls_packet packet = ls_mesh_packet(mesh, LS_PACKET_COMMIT, what);
    packet.requests = requests;
    for (int i = 0; i < mesh->peers.count; i++)
        if (mesh->peers.members[i] != mesh->peers.rank)
            LS_TRY(ls_mesh_send(mesh, mesh->peers.members[i], &packet));
    ls_mesh_push(mesh);
    mesh->committed = true;
    mesh->peers.granted |= requests;
    ls_mesh_confirm_members(mesh);
    return LS_OK;
}

static void end_collective(ls_mesh *mesh)
{
    mesh->slept = mesh->slept && mesh->slept_in == mesh->number;
    mesh->number++;
    mesh->ready = mesh->committed = false;
    mesh->own_work = 0;
    mesh->peers.requests &= ~mesh->peers.granted;
    memset(mesh->readies, 0, (size_t)mesh->peers.size * sizeof(*mesh->readies));
}

static ls_packet ready_packet(const ls_mesh *mesh, const char *what)
{
    ls_packet packet = ls_mesh_packet(mesh, LS_PACKET_READY, what);
    memcpy(packet.hash, mesh->hash, sizeof(packet.hash));
    packet.requests = mesh->peers.requests;
    packet.tag = (uint64_t)(mesh->own_work * 1e9);
    return packet;
}

/* Admits a joining worker in place of a commit. */
static bool takes_in(ls_mesh *mesh, ls_packet *announcement)
{
    if (mesh->waits_until == 0)
        return false;
    int new_member = ls_mesh_find_joining(mesh);
    if (new_member < 0)
        return false;
    *announcement = ls_mesh_packet(mesh, LS_PACKET_ANNOUNCE, "");
    ls_mesh_put_members(mesh, announcement);
    ls_set_bit(announcement->members, new_member);
    announcement->generation++;
    announcement->number = mesh->number;
    return true;
}

static bool is_too_few(const ls_mesh *mesh)
{
    return mesh->waits_until > 0 && ls_peers_workers(&mesh->peers) < mesh->peers.least;
}

/* *decided: false while the coordinator waits for joining workers. */
static ls_status decide(ls_mesh *mesh, const char *what, bool *decided)
{
    ls_packet announcement;
    *decided = true;
    if (takes_in(mesh, &announcement)) {
        for (int i = 1; i < mesh->peers.count; i++)
            LS_TRY(ls_mesh_send(mesh, mesh->peers.members[i], &announcement));
        ls_mesh_push(mesh);
        mesh->announced = announcement;
        mesh->regroup = true;
        mesh->peers.requests &= ~(uint64_t)LS_REQUEST_WELCOME; /* fulfilled */
        return LS_OK;
    }
    if (is_too_few(mesh)) {
        if (mesh->table->now(mesh->transport) < mesh->waits_until) {
            *decided = false;
            return LS_OK;
        }
        mesh->readies[mesh->peers.rank].requests |= LS_REQUEST_TOO_FEW;
    }
    return commit_all(mesh, what);
}

static ls_status wait_for_commit(ls_mesh *mesh, const char *what)
{
    bool coordinates = mesh->peers.members[0] == mesh->peers.rank, decided = false;
    while (!mesh->committed && !mesh->regroup) {
        if (coordinates && all_said(mesh, mesh->readies)) {
            LS_TRY(decide(mesh, what, &decided));
            if (decided)
                break;
        } else if (coordinates) {
            LS_TRY(check_ahead(mesh, what));
        }
        LS_TRY(ls_mesh_wait(mesh));
        if (mesh->waits_until > 0)
            LS_TRY(ls_handshake_visit(mesh->handshake));
    }
    return LS_OK;
}

ls_status ls_mesh_commit_or_welcome(ls_mesh *mesh, const uint64_t hash[2], const char *what)
{
    int coordinator = mesh->peers.members[0];
    LS_TRY(ls_handshake_visit(mesh->handshake));
    if (mesh->peers.count == 1) /* no wait will read the packets of joining workers */
        LS_TRY(ls_mesh_turn(mesh, 0));
    if (coordinator == mesh->peers.rank && ls_mesh_find_joining(mesh) >= 0)
        mesh->peers.requests |= LS_REQUEST_WELCOME;
    memcpy(mesh->hash, hash, sizeof(mesh->hash));
    mesh->ready = true;
    mesh->readies[mesh->peers.rank] = ready_packet(mesh, what);
    if (coordinator != mesh->peers.rank)
        LS_TRY(ls_mesh_send(mesh, coordinator, &mesh->readies[mesh->peers.rank]));
    ls_mesh_push(mesh);
    ls_mesh_wait_begins(mesh);
    LS_TRY(wait_for_commit(mesh, what));
    if (!mesh->committed)
        LS_TRY(ls_mesh_regroup(mesh));
    end_collective(mesh);
    return LS_OK;
}

ls_status ls_mesh_commit(ls_peers *peers, const uint64_t hash[2], const char *what)
{
    ls_mesh *mesh = (ls_mesh *)peers;
    ls_status status = ls_mesh_enter(mesh);
    if (status == LS_OK)
        status = ls_mesh_commit_or_welcome(mesh, hash, what);
    return ls_mesh_exit(mesh, status);
}

void ls_mesh_give_up(ls_peers *peers)
{
    ls_mesh *mesh = (ls_mesh *)peers;
    pthread_mutex_lock(&mesh->mutex);
    if (mesh->over.status == LS_OK) {
        ls_error_keep(&mesh->over, LS_ERR_PEER);
        ls_mesh_leave(mesh, mesh->over.message);
    }
    pthread_mutex_unlock(&mesh->mutex);
}

void ls_mesh_end_all(ls_peers *peers)
{
    ls_mesh *mesh = (ls_mesh *)peers;
    pthread_mutex_lock(&mesh->mutex);
    if (mesh->over.status == LS_OK) {
        ls_error_keep(&mesh->over, LS_ERR_PEER);
        ls_mesh_end(mesh, mesh->over.message);
    }
    pthread_mutex_unlock(&mesh->mutex);
}

/* ---- Regrouping after a loss ---- */

static int first_left(const ls_mesh *mesh)
{
    for (int i = 0; i < mesh->peers.count; i++)
        if (!mesh->lost[mesh->peers.members[i]])
            return mesh->peers.members[i];
    return mesh->peers.rank;
}

static ls_packet state_packet(const ls_mesh *mesh)
{
    ls_packet packet = ready_packet(mesh, "");
    packet.kind = LS_PACKET_STATE;
    packet.sequence = mesh->ready;
    packet.tag = mesh->peers.granted;
    memset(packet.members, 0, sizeof(packet.members));
    for (int i = 0; i < mesh->peers.count; i++)
        if (mesh->lost[mesh->peers.members[i]])
            ls_set_bit(packet.members, mesh->peers.members[i]);
    return packet;
}

/* Silent members get it, too. Replaces an older STATE that is still unsent. */
static ls_status send_state(ls_mesh *mesh)
{
    ls_packet state = state_packet(mesh);
    for (int i = 0; i < mesh->peers.count; i++) {
        int r = mesh->peers.members[i];
        ls_link *link = &mesh->links[r];
        int last = link->out_count - 1;
        if (r == mesh->peers.rank)
            continue;
        if (last > 0 && link->out[last].kind == LS_PACKET_STATE)
            link->out[last] = state;
        else
            LS_TRY(ls_mesh_send(mesh, r, &state));
    }
    ls_mesh_push(mesh);
    mesh->states[mesh->peers.rank] = state;
    return LS_OK;
}

/* Returns whether another worker still hears worker `rank`, or none is left to ask. */
static bool may_be_heard(const ls_mesh *mesh, int rank)
{
    const ls_peers *p = &mesh->peers;
    bool heard = false, alone = true;
    for (int i = 0; i < p->count; i++) {
        int r = p->members[i];
        if (r == p->rank || mesh->lost[r])
            continue;
        alone = false;
        heard |= !ls_has_bit(mesh->states[r].members, rank);
    }
    return heard || alone;
}

/* Returns whether a broken connection is likely to come back: to a worker which others still hear,
 * or between two others. A worker that all have lost gets RECONNECT_MOMENT seconds, as all its
 * connections may have broken together. */
static bool should_await_reconnection(const ls_mesh *mesh)
{
    const ls_peers *p = &mesh->peers;
    double waited = mesh->table->now(mesh->transport) - mesh->regroups_since;
    if (waited >= mesh->silence_limit)
        return false;
    bool soon = waited < RECONNECT_MOMENT;
    for (int i = 0; i < p->count; i++) {
        int a = p->members[i];
        if (mesh->lost[a] == LS_LOST_BROKEN && (soon || may_be_heard(mesh, a)))
            return true;
        for (int k = 0; k < p->count && a != p->rank && !mesh->lost[a]; k++)
            if (!mesh->lost[p->members[k]] && ls_has_bit(mesh->states[a].members, p->members[k]))
                return true;
    }
    return false;
}

/* Returns whether this worker, the first that remains, may announce: all remaining members have
 * sent STATE and have lost the earlier members, too, else one of those announces. Any two workers
 * have both lost each other or neither: if only one reports it, the other will follow, or is dead.
 * */
static bool may_announce(ls_mesh *mesh)
{
    const ls_peers *p = &mesh->peers;
    int own = ls_peers_place(p);
    if (!mesh->quorum || !all_said(mesh, mesh->states) || should_await_reconnection(mesh))
        return false;
    for (int i = 0; i < p->count; i++)
        for (int k = 0; k < p->count; k++) {
            int a = p->members[i], b = p->members[k];
            if (a == p->rank || b == p->rank || a == b || mesh->lost[a])
                continue;
            if (mesh->lost[b] ? k < own && !ls_has_bit(mesh->states[a].members, b)
                              : ls_has_bit(mesh->states[a].members, b) != ls_has_bit(mesh->states[b].members, a))
                return false;
        }
    return true;
}

/* If the connection between two remaining workers ended, drops the later one. */
static void part_enemies(ls_mesh *mesh)
{
    const ls_peers *p = &mesh->peers;
    for (int i = 0; i < p->count; i++)
        for (int k = i + 1; k < p->count; k++) {
            int a = p->members[i], b = p->members[k];
            if (a != p->rank && !mesh->lost[a] && !mesh->lost[b] && ls_has_bit(mesh->states[a].members, b))
                ls_mesh_lose(mesh, b, LS_LOST_SILENT, "its connection to another worker ended");
        }
}

/* ---- Quorum ---- */

/* Returns whether a process has certainly ended: its kernel closed the heartbeat connection, its
 * pid on this machine is free, or the launcher saw it end. */
static bool is_proven_dead(ls_mesh *mesh, int rank)
{
    return (mesh->heartbeat && ls_heartbeat_how_ended(mesh->heartbeat, rank) == LS_CONNECTION_DIED) ||
           ls_process_has_ended(&mesh->processes[rank]) || ls_handshake_launcher_saw_end(mesh->handshake, rank);
}

static void look_for_proofs(ls_mesh *mesh)
{
    for (int r = 0; r < mesh->peers.size; r++)
        if (mesh->lost[r] > LS_LOST_DEAD && is_proven_dead(mesh, r))
            mesh->lost[r] = LS_LOST_DEAD;
}

/* Returns whether a lost worker may still run and consider this worker lost. */
static bool is_doubtful(const ls_mesh *mesh, int rank)
{
    return mesh->lost[rank] > LS_LOST_ENDED || (mesh->lost[rank] == LS_LOST_ENDED && mesh->slept);
}

/* Returns whether this side has most of the workers in `bits` that may still run, or half of them
 * with the first. Two sides that have lost each other cannot both have it. */
static bool has_quorum(const ls_mesh *mesh, const uint64_t *bits)
{
    int here = 0, possible = 0, first = -1;
    for (int r = 0; r < mesh->peers.size; r++) {
        if (!ls_has_bit(bits, r) || (mesh->lost[r] && !is_doubtful(mesh, r)))
            continue;
        possible++;
        here += !mesh->lost[r];
        if (first < 0 || mesh->since[r] < mesh->since[first])
            first = r;
    }
    return here * 2 > possible || (here * 2 == possible && !mesh->lost[first]);
}

static bool is_reconnecting(const ls_mesh *mesh)
{
    bool any = false;
    for (int i = 0; i < mesh->peers.count; i++)
        any |= mesh->lost[mesh->peers.members[i]] == LS_LOST_BROKEN;
    return any && mesh->table->now(mesh->transport) - mesh->regroups_since < mesh->silence_limit;
}

/* This side needs a quorum of the members and of the last confirmed ones. A worker that fails here
 * writes nothing more. */
static ls_status check_quorum(ls_mesh *mesh)
{
    uint64_t members[LS_MAX_CLUSTER / 64] = { 0 };
    int here = 0;
    if (was_held_up(mesh, 0))
        note_sleep(mesh);
    look_for_proofs(mesh);
    for (int i = 0; i < mesh->peers.count; i++) {
        ls_set_bit(members, mesh->peers.members[i]);
        here += !mesh->lost[mesh->peers.members[i]];
    }
    mesh->quorum = has_quorum(mesh, members) && has_quorum(mesh, mesh->confirmed);
    if (mesh->quorum || is_reconnecting(mesh))
        return LS_OK;
    mesh->leaves = true;
    ls_peers_depose(&mesh->peers);
    return ls_fail(
        LS_ERR_PEER,
        "%s; only %d of %d workers are on this side, and the others may continue; this worker ends and writes "
        "nothing more",
        mesh->why, here, mesh->peers.count);
}

static ls_status announce(ls_mesh *mesh)
{
    const ls_peers *p = &mesh->peers;
    uint64_t number = mesh->number, requests = 0, granted = p->granted;
    bool all_ready = true;
    ls_packet packet = ls_mesh_packet(mesh, LS_PACKET_ANNOUNCE, "");
    part_enemies(mesh);
    mesh->states[p->rank] = state_packet(mesh);
    memset(packet.members, 0, sizeof(packet.members));
    for (int i = 0; i < p->count; i++) {
        int r = p->members[i];
        if (mesh->lost[r])
            continue;
        const ls_packet *s = &mesh->states[r];
        ls_set_bit(packet.members, r);
        if (s->number > number)
            granted = s->tag;
        number = s->number > number ? s->number : number;
        all_ready = all_ready && s->sequence && s->number == mesh->number;
        requests |= s->requests;
    }
    packet.generation++;
    packet.number = all_ready ? number + 1 : number;
    packet.requests = all_ready ? requests : granted;
    mesh->announced = packet;
    for (int i = 0; i < p->count; i++) /* silent workers may hear it, too */
        if (p->members[i] != p->rank)
            LS_TRY(ls_mesh_send(mesh, p->members[i], &packet));
    return LS_OK;
}

static void report(const ls_mesh *mesh, const ls_packet *packet, int new_member, int before)
{
    const ls_peers *p = &mesh->peers;
    if (mesh->log && new_member < 0 && p->count == before)
        ls_log_write(mesh->log, LS_LOG_WARNING, "%s; it is connected again, and the %d workers repeat the step",
                     mesh->why, p->count);
    else if (mesh->log && new_member >= 0 && p->members[0] == p->rank)
        ls_log_always(mesh->log, "worker %d joins; %d of %d go on", new_member, p->count, p->size);
    else if (mesh->log && new_member < 0)
        ls_log_write(mesh->log, LS_LOG_WARNING, "%s; %d of %d go on%s", mesh->why, p->count, p->size,
                     packet->number > mesh->number ? "" : ", and repeat the unfinished step");
}

ls_status ls_mesh_forward(ls_mesh *mesh, int rank, ls_packet packet)
{
    packet.from = (uint32_t)mesh->peers.rank;
    return ls_mesh_send(mesh, rank, &packet);
}

/* Informs workers that are not members any more, and disconnects. */
static ls_status part_from_others(ls_mesh *mesh, const ls_packet *packet)
{
    for (int i = 0; i < mesh->peers.count; i++) {
        int r = mesh->peers.members[i];
        if (ls_has_bit(packet->members, r))
            continue;
        mesh->lost[r] = mesh->lost[r] ? mesh->lost[r] : LS_LOST_SILENT;
        LS_TRY(ls_mesh_forward(mesh, r, *packet));
        ls_mesh_hang_up(mesh, r);
    }
    return LS_OK;
}

static int find_new(const ls_mesh *mesh, const ls_packet *packet)
{
    for (int r = 0; r < mesh->peers.size; r++)
        if (ls_has_bit(packet->members, r) && !ls_peers_has(&mesh->peers, r))
            return r;
    return -1;
}

ls_status ls_mesh_begin_generation(ls_mesh *mesh, const ls_packet *packet, int *new_member)
{
    ls_peers *p = &mesh->peers;
    p->generation = packet->generation;
    mesh->sequence = 0;
    for (int r = 0; r < p->size; r++)
        mesh->links[r].taken = 0;
    mesh->regroup = false;
    mesh->announced = (ls_packet){ 0 };
    *new_member = find_new(mesh, packet);
    if (*new_member >= 0) {
        mesh->since[*new_member] = packet->generation;
        p->new_member = *new_member;
    }
    LS_TRY(part_from_others(mesh, packet));
    ls_mesh_set_members(mesh, packet->members);
    ls_handshake_report_chief(mesh->handshake);
    if (p->new_member >= 0 && !ls_peers_has(p, p->new_member))
        p->new_member = -1;
    for (int i = 0; i < p->count; i++) {
        int r = p->members[i];
        mesh->regroup |= mesh->lost[r] || (mesh->states[r].kind && mesh->states[r].generation == p->generation);
        if (r != p->rank && (packet->from != (uint32_t)p->rank || r == *new_member))
            LS_TRY(ls_mesh_forward(mesh, r, *packet));
    }
    ls_mesh_push(mesh);
    memset(mesh->readies, 0, (size_t)p->size * sizeof(*mesh->readies));
    return LS_OK;
}

/* Fails with peers.again if the collective must be repeated. */
static ls_status adopt(ls_mesh *mesh)
{
    int new_member;
    ls_packet packet = mesh->announced;
    ls_peers *p = &mesh->peers;
    mesh->leaves = !ls_has_bit(packet.members, p->rank);
    if (mesh->leaves) {
        ls_peers_depose(p);
        return ls_fail(LS_ERR_PEER,
                       "the other workers go on without worker %d of %d: they did not hear from it for a while",
                       p->rank, p->size);
    }
    if (packet.number > mesh->number + 1 || (packet.number > mesh->number && !mesh->ready) ||
        packet.number < mesh->number)
        return ls_fail(LS_ERR_PEER, "worker %d announced collective %llu, but worker %d is at %llu", packet.from,
                       (unsigned long long)packet.number, p->rank, (unsigned long long)mesh->number);
    int before = p->count;
    LS_TRY(ls_mesh_begin_generation(mesh, &packet, &new_member));
    report(mesh, &packet, new_member, before);
    if (packet.number > mesh->number) {
        p->granted |= packet.requests;
        mesh->committed = true;
        return LS_OK;
    }
    mesh->ready = false;
    p->again = true;
    return ls_fail(LS_ERR_PEER, "%s", new_member >= 0 ? "a worker joins" : mesh->why);
}

/* If all lost members sent LEFT, the job may be ending. */
static bool all_took_leave(const ls_mesh *mesh)
{
    for (int i = 0; i < mesh->peers.count; i++)
        if (mesh->lost[mesh->peers.members[i]] > LS_LOST_LEFT)
            return false;
    return true;
}

ls_status ls_mesh_regroup(ls_mesh *mesh)
{
    unsigned told = mesh->changes - 1;
    if (!mesh->table->elastic && !all_took_leave(mesh))
        return ls_fail(LS_ERR_PEER, "%s; over %s the others cannot go on without it", mesh->why, mesh->table->name);
    ls_mesh_abandon(mesh);
    ls_mesh_wait_begins(mesh);
    mesh->regroups_since = mesh->table->now(mesh->transport);
    while (mesh->announced.kind == 0) {
        if (mesh->committed) /* COMMIT arrived meanwhile */
            return LS_OK;
        LS_TRY(check_quorum(mesh));
        mesh->reconnects = is_reconnecting(mesh);
        LS_TRY(ls_handshake_visit(mesh->handshake));
        if (mesh->changes != told)
            LS_TRY(send_state(mesh));
        told = mesh->changes;
        if (first_left(mesh) == mesh->peers.rank && may_announce(mesh)) {
            LS_TRY(announce(mesh));
            break;
        }
        LS_TRY(ls_mesh_wait(mesh));
    }
    mesh->reconnects = false;
    return adopt(mesh);
}
