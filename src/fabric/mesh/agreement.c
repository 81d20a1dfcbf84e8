/* How workers agree to begin a job, and what the launcher reports meanwhile (handshake.h). */
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/text.h"
#include "fabric/mesh/handshake.h"
#include "fabric/start/launcher.h"

#define MEET_AGAIN 0.5 /* seconds for the others to send MET after a loss before BEGIN */

/* Returns the worker that sends BEGIN. */
static int first_of(const ls_handshake *hs)
{
    const ls_peers *p = &hs->mesh->peers;
    int i = 0;
    while (i < p->count - 1 && hs->mesh->lost[p->members[i]])
        i++;
    return p->members[i];
}

/* ---- Agreeing on the workers that begin ---- */

static uint64_t draw_mark(void)
{
    uint64_t mark = 0;
    if (getrandom(&mark, sizeof(mark), GRND_NONBLOCK) != (ssize_t)sizeof(mark))
        mark = (uint64_t)(1e9 * ls_clock_now()) ^ (uint64_t)getpid() << 32;
    return mark;
}

static void hash_group(const ls_handshake *hs, uint64_t out[2])
{
    const ls_peers *p = &hs->mesh->peers;
    ls_hash hash;
    ls_hash_begin(&hash);
    for (int i = 0; i < p->count; i++) {
        int r = p->members[i];
        uint64_t parts[2] = { (uint64_t)r, r == p->rank ? hs->mark : hs->marks[r] };
        ls_hash_add(&hash, parts, sizeof(parts));
    }
    ls_hash_end(&hash, out);
}

static bool is_of_group(const ls_handshake *hs, const ls_packet *packet)
{
    return memcmp(packet->hash, hs->group, sizeof(hs->group)) == 0;
}

static ls_packet make_group_packet(const ls_handshake *hs, ls_packet_kind kind)
{
    ls_packet packet = ls_mesh_packet(hs->mesh, kind, "");
    memcpy(packet.hash, hs->group, sizeof(hs->group));
    return packet;
}

/* Starts over with a new mark. Workers that have met this one receive LEFT and do the same. */
static void meet_again(ls_handshake *hs)
{
    ls_mesh *mesh = hs->mesh;
    ls_packet leaves = ls_mesh_packet(mesh, LS_PACKET_LEFT, "it starts the handshake again");
    for (int r = 0; r < hs->options->size; r++) {
        (void)ls_mesh_send(mesh, r, &leaves); /* the peer sees the connection end */
        ls_mesh_hang_up(mesh, r);
        mesh->lost[r] = ls_handshake_begins(hs, r) || r == hs->options->rank ? LS_NOT_LOST : LS_LOST_LEFT;
        mesh->readies[r] = mesh->states[r] = (ls_packet){ 0 };
    }
    for (int i = 0; i < hs->hellos.call_count; i++)
        ls_hello_forget(&hs->hellos, &hs->hellos.calls[i]);
    while (hs->hellos.caller_count > 0)
        ls_hello_drop_caller(&hs->hellos, 0);
    mesh->regroup = false;
    hs->met = false;
    hs->lost_at = 0;
    hs->mark = draw_mark();
}

void ls_handshake_report_chief(ls_handshake *hs)
{
    if (!hs || hs->chief || hs->mesh->peers.members[0] != hs->options->rank)
        return;
    hs->chief = true;
    ls_launcher_report_chief(hs->options);
}

static ls_status begin(ls_handshake *hs, ls_packet packet)
{
    ls_mesh *mesh = hs->mesh;
    mesh->begun = true;
    mesh->peers.job = packet.hash[0];
    ls_mesh_confirm_members(mesh);
    ls_handshake_report_chief(hs);
    for (int r = 0; r < mesh->peers.size; r++)
        if (mesh->readies[r].kind == LS_PACKET_MET)
            mesh->readies[r] = (ls_packet){ 0 };
    for (int i = 0; i < mesh->peers.count; i++)
        if (mesh->peers.members[i] != mesh->peers.rank)
            LS_TRY(ls_mesh_forward(mesh, mesh->peers.members[i], packet));
    ls_mesh_push(mesh);
    return LS_OK;
}

void ls_handshake_handle(ls_handshake *hs, int rank, const ls_packet *packet)
{
    if (!hs || hs->mesh->begun || hs->joins)
        return;
    if (packet->kind == LS_PACKET_MET)
        hs->mesh->readies[rank] = *packet;
    else if (hs->met && is_of_group(hs, packet) && hs->begin.kind == 0)
        hs->begin = *packet;
}

/* *same: all have met the same processes. */
static bool all_have_met(const ls_handshake *hs, bool *same)
{
    const ls_peers *p = &hs->mesh->peers;
    bool all = true;
    *same = true;
    for (int i = 0; i < p->count; i++) {
        int r = p->members[i];
        const ls_packet *met = &hs->mesh->readies[r];
        all &= met->kind != 0 || r == p->rank || hs->mesh->lost[r];
        *same &= met->kind == 0 || is_of_group(hs, met);
    }
    return all;
}

static ls_status send_met(ls_handshake *hs)
{
    if (!hs->met) {
        hs->met = true;
        hash_group(hs, hs->group);
        hs->met_sent_to = hs->options->rank;
    }
    if (hs->met_sent_to == first_of(hs) || first_of(hs) == hs->options->rank)
        return LS_OK;
    ls_packet packet = make_group_packet(hs, LS_PACKET_MET);
    hs->met_sent_to = first_of(hs);
    LS_TRY(ls_mesh_send(hs->mesh, hs->met_sent_to, &packet));
    ls_mesh_push(hs->mesh);
    return LS_OK;
}

/* A worker was lost that not all have met, or it has started over. */
static bool is_broken(ls_handshake *hs)
{
    const ls_mesh *mesh = hs->mesh;
    if (!mesh->regroup)
        return false;
    for (int i = 0; i < mesh->peers.count; i++)
        if (mesh->lost[mesh->peers.members[i]] == LS_LOST_LEFT)
            return true;
    double now = mesh->table->now(mesh->transport);
    hs->lost_at = hs->lost_at > 0 ? hs->lost_at : now;
    return !hs->met || (first_of(hs) == hs->options->rank && now - hs->lost_at > MEET_AGAIN);
}

static ls_status agree(ls_handshake *hs)
{
    bool same;
    if (hs->joins)
        return LS_OK;
    LS_TRY(ls_mesh_turn(hs->mesh, 0));
    if (hs->begin.kind)
        return begin(hs, hs->begin);
    if (is_broken(hs))
        meet_again(hs);
    if (hs->met || ls_handshake_is_complete(hs))
        LS_TRY(send_met(hs));
    if (!hs->met || first_of(hs) != hs->options->rank)
        return LS_OK;
    bool all = all_have_met(hs, &same);
    if (!same) {
        snprintf(hs->why, sizeof(hs->why), "workers are connected to different processes of the same rank");
        meet_again(hs);
    } else if (all) {
        return begin(hs, make_group_packet(hs, LS_PACKET_BEGIN));
    }
    return LS_OK;
}

/* ---- Reports of the launcher ---- */

/* *left: workers that remain, without servers. */
static int count_gone(const ls_handshake *hs, const uint64_t *gone, int *left, ls_text *names)
{
    int count = 0;
    *left = 0;
    for (int r = 0; r < hs->options->size; r++)
        if (ls_handshake_begins(hs, r) && (r == hs->options->rank || !ls_has_bit(gone, r)))
            *left += !ls_peers_is_server(&hs->mesh->peers, r);
        else if (ls_handshake_begins(hs, r))
            ls_text_add(names, "%s%d", count++ ? ", " : "", r);
    return count;
}

static void do_without(ls_handshake *hs, const uint64_t *gone)
{
    for (int r = 0; r < hs->options->size; r++)
        if (r != hs->options->rank && ls_has_bit(gone, r))
            ls_clear_bit(hs->begins, r);
    ls_mesh_set_members(hs->mesh, hs->begins);
    hs->gone_at = 0;
    meet_again(hs);
}

/* Begins without the workers that ended if enough remain (options->least), else fails. After MET it
 * waits MEET_AGAIN seconds first, as the others may begin anyway. */
static ls_status check_launcher(ls_handshake *hs)
{
    ls_text names = { 0 };
    ls_status status = LS_OK;
    uint64_t gone[LS_MAX_CLUSTER / 64];
    double now = hs->mesh->table->now(hs->mesh->transport);
    if (hs->launcher < 0 || hs->mesh->begun || hs->joins)
        return LS_OK;
    ls_launcher_read(hs->launcher, gone);
    int left, count = count_gone(hs, gone, &left, &names);
    hs->gone_at = count == 0 ? 0 : hs->gone_at > 0 ? hs->gone_at : now;
    if (count == 0 || (hs->met && now - hs->gone_at < MEET_AGAIN)) {
        /* nothing to do, or not yet */
    } else if (hs->options->least > 0 && left >= hs->options->least) {
        do_without(hs, gone);
    } else {
        status =
            ls_fail(LS_ERR_PEER,
                    "worker%s %s of %d ended before all workers had connected, and will not be started again (this is "
                    "worker %d of job \"%s\")",
                    count == 1 ? "" : "s", ls_text_get(&names), hs->options->size, hs->options->rank, hs->options->job);
    }
    ls_text_free(&names);
    return status;
}

bool ls_handshake_launcher_saw_end(const ls_handshake *hs, int rank)
{
    return hs && ls_launcher_has_seen_end(hs->options, rank);
}

/* ---- Until the job begins ---- */

/* The program must not do anything before BEGIN is sent. */
static ls_status send_begin(ls_handshake *hs)
{
    ls_mesh *mesh = hs->mesh;
    double end = mesh->table->now(mesh->transport) + mesh->silence_limit;
    for (int r = 0; r < hs->options->size && mesh->begun; r++)
        while (!ls_mesh_is_sent(&mesh->links[r]) && mesh->table->now(mesh->transport) < end)
            LS_TRY(ls_mesh_turn(mesh, LS_BEAT_EVERY));
    return LS_OK;
}

static ls_status meet_all(ls_handshake *hs)
{
    hs->mark = draw_mark();
    LS_TRY(agree(hs)); /* a single worker is done here */
    while (!hs->mesh->begun && !(hs->joins && ls_handshake_is_complete(hs))) {
        LS_TRY(ls_handshake_turn(hs));
        LS_TRY(agree(hs));
        LS_TRY(check_launcher(hs));
        ls_handshake_look_again(hs);
    }
    return send_begin(hs);
}

/* Workers that have met this one must not begin without it. */
static void give_up(ls_handshake *hs)
{
    ls_error why;
    ls_error_keep(&why, LS_ERR_PEER);
    if (!hs->mesh->begun && !hs->joins)
        meet_again(hs);
    (void)ls_error_give(&why);
}

static ls_status open_handshake(ls_handshake *hs, int number, const char *about)
{
    ls_mesh *mesh = hs->mesh;
    int size = hs->options->size;
    hs->channels = mesh->table->heartbeats ? 2 : 1;
    LS_TRY(ls_hellos_open(&hs->hellos, mesh->table, hs->options, hs->channels * size, about,
                          "workers would not compute the same bits"));
    hs->wants = calloc((size_t)(hs->channels + 1) * (size_t)size + LS_MOST_CALLERS + 1, sizeof(*hs->wants));
    hs->marks = calloc((size_t)hs->options->size, sizeof(*hs->marks));
    if (!hs->wants || !hs->marks)
        return ls_fail(LS_ERR_MEMORY, "no memory for the handshakes of %d workers", hs->options->size);
    for (int i = 0; i < mesh->peers.count; i++)
        ls_set_bit(hs->begins, mesh->peers.members[i]);
    hs->process = ls_process_self();
    LS_TRY(mesh->table->open(hs->options, number, &mesh->transport));
    hs->hellos.transport = mesh->transport;
    hs->launcher = ls_launcher_open(hs->options);
    hs->asked = mesh->table->now(mesh->transport);
    hs->end = hs->asked + mesh->join_limit;
    ls_status status = meet_all(hs);
    if (status != LS_OK)
        give_up(hs);
    if (hs->launcher >= 0)
        close(hs->launcher);
    hs->launcher = -1;
    return status;
}

void ls_handshake_close(ls_handshake *hs)
{
    if (!hs)
        return;
    ls_hellos_close(&hs->hellos);
    free(hs->wants);
    free(hs->marks);
    free(hs);
}

ls_status ls_mesh_open(const ls_cluster_options *options, int number, const char *about, ls_logger *log, ls_mesh **out)
{
    ls_mesh *mesh;
    LS_TRY(ls_mesh_create(options, &mesh));
    mesh->log = log;
    ls_handshake *hs = mesh->handshake = calloc(1, sizeof(*hs));
    ls_status status = hs ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for the handshakes of %d workers", options->size);
    if (hs)
        *hs = (ls_handshake){ .mesh = mesh, .copy = *options, .options = &hs->copy, .launcher = -1 };
    if (status == LS_OK)
        status = ls_transport_choose(options, &mesh->table);
    if (status == LS_OK)
        status = open_handshake(hs, number, about);
    if (status == LS_OK && mesh->table->heartbeats)
        status = ls_heartbeat_start(mesh->transport, mesh->table, mesh->heartbeats, options->size, mesh->silence_limit,
                                    &mesh->heartbeat);
    if (status != LS_OK) {
        ls_mesh_free(mesh);
        return status;
    }
    mesh->peers.slice = mesh->table->slice;
    if (hs->joins)
        ls_mesh_start_joining(mesh, hs->members, hs->generation);
    *out = mesh;
    return LS_OK;
}
