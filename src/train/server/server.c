/* A parameter server. It applies pushes in the order of arrival, unless staleness.c makes them
 * wait. For each push it writes the journal, applies it, writes the record and sends ACK, in this
 * order, all in the caller's thread. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/grow.h"
#include "nn/model.h"
#include "train/server/staleness.h"
#include "train/server/servers.h"
#include "train/checkpoint/checkpoint.h"
#include "train/server/journal.h"
#include "train/server/record.h"
#include "train/server/shards.h"

/* The server rewrites the journal, beginning with its current state, when the journal is larger
 * than this and than two states. */
#define LOG_BYTES ((int64_t)64 << 20)

typedef struct server {
    ls_server_session *session;
    int index;
    ls_state_shard *shard; /* NULL: no state yet */
    ls_staleness reads;
    ls_applied applied;
    ls_ps_message *pulls, *pushes; /* waiting, in order of arrival */
    size_t pull_count, pull_room, push_count, push_room;
    ls_ps_message *early; /* pushes that arrived before this server had its state */
    size_t early_count, early_room;
    /* Duplicates of waiting pushes, without payloads; their senders get an ACK, too. */
    ls_ps_message *duplicates;
    size_t duplicate_count, duplicate_room;
    ls_payload *newest; /* weights of the newest version; NULL: not copied yet */
    double rate;        /* learning rate that a callback set; NAN: none */
    char id[LS_RUN_ID];
    bool has_journal, records;
    ls_journal journal;
    ls_record_writer record;
    bool chief_connected, over;
    bool failed; /* applies no more pushes; the chief ends the job */
    double lost_at;
    ls_error end;
} server;

static const ls_strategy *strategy_of(const server *s)
{
    return &s->session->options->strategy;
}

static size_t push_bytes(const server *s)
{
    return s->session->reads_bytes + ls_state_shards_push_bytes(s->session->shards, s->index);
}

/* Reports the last error to the chief, which then ends the job. */
static void fail(server *s, ls_status status)
{
    if (!s->failed)
        (void)ls_server_session_send_text(
            s->session, &(ls_ps_message){ .rank = 0, .kind = LS_PS_FAIL, .fail = { status } }, ls_last_error());
    s->failed = true;
    ls_clear_error();
}

/* ---- The record ---- */

static ls_status make_head(server *s, ls_record_head *head)
{
    const ls_fit_options *o = s->session->options;
    ls_facts facts;
    *head = (ls_record_head){ .server = s->index,
                              .servers = s->session->servers,
                              .staleness = o->strategy.staleness,
                              .accumulate = ls_state_shard_every(s->shard),
                              .scale_rate = o->strategy.scale_by_staleness,
                              .version = ls_state_shard_version(s->shard) };
    snprintf(head->id, sizeof(head->id), "%s", s->id);
    LS_TRY(ls_state_shard_sha256(s->shard, head->sha256));
    LS_TRY(ls_facts_make(s->session->job, &facts));
    head->job = json_pack("{s:O,s:O,s:O}", "job", facts.job, "fit", facts.fit, "bits", facts.bits);
    head->own = o->record.own ? json_loads(o->record.own, 0, NULL) : NULL;
    ls_facts_free(&facts);
    return head->job ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for the description of this job");
}

/* Opens the record. again: the server restarted and continues its file. */
static ls_status open_record(server *s, bool again)
{
    const char *file = s->session->options->record.path;
    char path[PATH_MAX];
    ls_record_head head;
    if (!file)
        return LS_OK;
    LS_TRY(ls_record_path(file, s->index, path));
    LS_TRY(make_head(s, &head));
    ls_status status =
        again ? ls_record_continue(&s->record, path, &head, -1) : ls_record_create(&s->record, path, &head);
    json_decref(head.job);
    json_decref(head.own);
    s->records = status == LS_OK;
    return ls_fail_within(status, "the record of server %d", s->index);
}

/* After a restart, skips pushes that the record has already. */
static ls_status record(server *s, const ls_journal_push *push, int64_t version, double rate)
{
    ls_record_push r = { .version = version,
                         .worker = (int)push->worker,
                         .epoch = push->epoch,
                         .batch = push->batch,
                         .run = push->run,
                         .read = push->bytes,
                         .rate = rate };
    if (!s->records || version <= s->record.version)
        return LS_OK;
    if (ls_state_shard_version(s->shard) == version)
        LS_TRY(ls_state_shard_sha256(s->shard, r.sha256));
    return ls_record_add(&s->record, &r);
}

/* ---- Pushes ---- */

static ls_status copy_weights(server *s)
{
    if (s->newest)
        return LS_OK;
    LS_TRY(ls_payload_make(ls_state_shards_weight_bytes(s->session->shards, s->index), &s->newest));
    return ls_state_shard_get_weights(s->shard, ls_payload_bytes(s->newest));
}

/* Begins a new version. If a version consists of several pushes, each of them changes the moving
 * averages before the next version is complete; so this copies the weights now, not at the next
 * pull. */
static ls_status publish(server *s)
{
    ls_payload_drop(s->newest);
    s->newest = NULL;
    return ls_state_shard_every(s->shard) > 1 ? copy_weights(s) : LS_OK;
}

static ls_status apply(server *s, const ls_journal_push *push)
{
    double rate;
    int64_t version = ls_state_shard_version(s->shard) + 1;
    const ls_push p = { .read = ((const int64_t *)push->bytes)[s->index],
                        .samples = push->samples,
                        .bytes = (const char *)push->bytes + s->session->reads_bytes };
    LS_TRY(ls_state_shard_rate(s->shard, push->rate, &rate));
    LS_TRY(ls_applied_add(&s->applied, push->ordinal));
    LS_TRY(ls_state_shard_apply(s->shard, &p, rate));
    if (ls_state_shard_version(s->shard) == version)
        LS_TRY(publish(s));
    return record(s, push, version, rate);
}

static ls_status begin_journal(server *s)
{
    ls_journal_state state = { .applied = s->applied, .rate = s->rate };
    if (!s->has_journal)
        return LS_OK;
    state.bytes = malloc(s->journal.state_bytes + 1);
    if (!state.bytes)
        return ls_fail(LS_ERR_MEMORY, "no memory for a copy of server %d's state", s->index);
    ls_status status = ls_state_shard_get_state(s->shard, state.bytes);
    if (status == LS_OK)
        status = ls_journal_begin(&s->journal, &state);
    free(state.bytes);
    return status;
}

/* Writes a push to the journal and applies it. If that fails, removes it from the journal. */
static ls_status apply_new(server *s, const ls_journal_push *push)
{
    int64_t before = s->journal.file.bytes, most = 2 * (int64_t)s->journal.state_bytes;
    if (s->has_journal)
        LS_TRY(ls_journal_add(&s->journal, push));
    ls_status status = apply(s, push);
    if (status != LS_OK && s->has_journal)
        ls_append_truncate(&s->journal.file, before);
    LS_TRY(status);
    bool whole = ls_state_shard_pushes(s->shard) % ls_state_shard_every(s->shard) == 0;
    if (s->has_journal && whole && s->journal.file.bytes > (most > LOG_BYTES ? most : LOG_BYTES))
        return begin_journal(s);
    return LS_OK;
}

static void remove_from(ls_ps_message *list, size_t *count, size_t at)
{
    ls_payload_drop(list[at].body);
    memmove(list + at, list + at + 1, (*count - at - 1) * sizeof(*list));
    (*count)--;
}

static ls_status add_to(ls_ps_message **list, size_t *count, size_t *room, ls_ps_message *message)
{
    LS_TRY(ls_grow(list, *count, room, sizeof(**list)));
    (*list)[(*count)++] = *message;
    message->body = NULL;
    return LS_OK;
}

static ls_status acknowledge(server *s, int rank, int64_t ordinal)
{
    return ls_server_session_send(
        s->session, &(ls_ps_message){ .rank = rank,
                                      .kind = LS_PS_ACK,
                                      .ack = { .ordinal = ordinal, .version = ls_state_shard_version(s->shard) } });
}

/* Sends ACK to the workers that pushed the same batch while it waited. */
static ls_status acknowledge_duplicates(server *s, int64_t ordinal)
{
    for (size_t i = s->duplicate_count; i-- > 0;)
        if (s->duplicates[i].push.ordinal == ordinal) {
            LS_TRY(acknowledge(s, s->duplicates[i].rank, ordinal));
            remove_from(s->duplicates, &s->duplicate_count, i);
        }
    return LS_OK;
}

static ls_status apply_message(server *s, const ls_ps_message *message)
{
    const ls_ps_push *p = &message->push;
    const ls_journal_push push = { .ordinal = p->ordinal,
                                   .epoch = p->epoch,
                                   .batch = p->batch,
                                   .run = p->run,
                                   .samples = p->samples,
                                   .worker = message->rank,
                                   .rate = s->rate,
                                   .bytes = ls_payload_bytes(message->body) };
    LS_TRY(apply_new(s, &push));
    ls_staleness_remove(&s->reads, p->ordinal);
    LS_TRY(acknowledge(s, message->rank, p->ordinal));
    return acknowledge_duplicates(s, p->ordinal);
}

static void apply_waiting(server *s)
{
    for (size_t i = 0; i < s->push_count && !s->failed;) {
        int64_t ordinal = s->pushes[i].push.ordinal;
        if (!ls_staleness_may_apply(&s->reads, ordinal, ls_state_shard_pushes(s->shard))) {
            i++;
            continue;
        }
        ls_status status = apply_message(s, &s->pushes[i]);
        if (status != LS_OK) {
            fail(s, status);
            return;
        }
        remove_from(s->pushes, &s->push_count, i);
        i = 0;
    }
}

/* ---- Pulls ---- */

/* Replies to a pull. bound: the staleness bound applies to this read. */
static ls_status send_shard(server *s, const ls_ps_message *message, bool bound)
{
    const ls_ps_pull *pull = &message->pull;
    int64_t version = ls_state_shard_version(s->shard);
    ls_ps_message shard = { .rank = message->rank,
                            .kind = LS_PS_SHARD,
                            .shard = { .ordinal = pull->ordinal, .version = version } };
    if (pull->held != version) {
        LS_TRY(copy_weights(s));
        shard.body = s->newest;
    }
    if (bound)
        LS_TRY(ls_staleness_add(
            &s->reads, (ls_read_entry){ .rank = message->rank, .ordinal = pull->ordinal, .version = version }));
    return ls_server_session_send(s->session, &shard);
}

/* Returns whether this server already has the gradient of this batch, from a worker that was lost
 * since. Another worker then computes the batch for the other servers; its pull need not wait. */
static bool has_gradient(const server *s, int64_t ordinal)
{
    const ls_read_entry *read = ls_staleness_find(&s->reads, ordinal);
    return ls_applied_has(&s->applied, ordinal) || (read && read->arrived);
}

static void send_waiting(server *s)
{
    for (size_t i = 0; i < s->pull_count && !s->failed;) {
        int64_t ordinal = s->pulls[i].pull.ordinal;
        bool bound = !has_gradient(s, ordinal);
        if (bound && !ls_staleness_may_pull(&s->reads, ordinal, ls_state_shard_pushes(s->shard))) {
            i++;
            continue;
        }
        ls_status status = send_shard(s, &s->pulls[i], bound);
        if (status != LS_OK) {
            fail(s, status);
            return;
        }
        remove_from(s->pulls, &s->pull_count, i);
    }
}

static ls_status send_state(server *s, const ls_ps_message *message)
{
    ls_ps_message shard = { .rank = message->rank,
                            .kind = LS_PS_SHARD,
                            .shard = { .ordinal = message->pull.ordinal,
                                       .version = ls_state_shard_version(s->shard),
                                       .whole = 1,
                                       .pushes = ls_state_shard_pushes(s->shard) } };
    LS_TRY(ls_payload_make(ls_state_shards_state_bytes(s->session->shards, s->index), &shard.body));
    ls_status status = ls_state_shard_get_state(s->shard, ls_payload_bytes(shard.body));
    if (status == LS_OK)
        status = ls_server_session_send(s->session, &shard);
    ls_payload_drop(shard.body);
    return status;
}

/* ---- Messages ---- */

static ls_status handle_pull(server *s, ls_ps_message *message)
{
    if (message->pull.whole == 1)
        return s->shard ? send_state(s, message) : LS_OK;
    for (size_t i = s->pull_count; i-- > 0;)
        if (s->pulls[i].pull.ordinal == message->pull.ordinal && s->pulls[i].rank == message->rank)
            remove_from(s->pulls, &s->pull_count, i); /* repeated request */
    return add_to(&s->pulls, &s->pull_count, &s->pull_room, message);
}

static bool is_valid(const server *s, const ls_ps_message *message)
{
    const ls_ps_push *p = &message->push;
    if (!message->body || ls_payload_size(message->body) != push_bytes(s) || p->ordinal < 0 || p->epoch < 0 ||
        p->batch < 0 || p->run < 0 || p->samples < 1)
        return false;
    const int64_t *read = ls_payload_bytes(message->body);
    bool valid = read[s->index] <= ls_state_shard_version(s->shard);
    for (int i = 0; i < s->session->servers; i++)
        valid &= read[i] >= 0;
    return valid;
}

/* After a restart, or if the worker was considered lost, the list has no matching read.
 * The server then accepts the push only if it meets its deadline (staleness.h). */
static ls_status handle_push(server *s, ls_ps_message *message)
{
    int64_t ordinal = message->push.ordinal;
    if (s->failed)
        return LS_OK;
    if (!s->shard)
        return add_to(&s->early, &s->early_count, &s->early_room, message);
    if (!is_valid(s, message))
        return ls_fail(LS_ERR_PEER, "worker %d sent an invalid gradient: it does not belong to this job",
                       message->rank);
    if (ls_applied_has(&s->applied, ordinal))
        return acknowledge(s, message->rank, ordinal);
    const ls_read_entry *read = ls_staleness_find(&s->reads, ordinal);
    int64_t version = ((const int64_t *)ls_payload_bytes(message->body))[s->index];
    if (read && read->arrived) { /* pushed twice: one of the workers was considered lost */
        ls_payload_drop(message->body);
        message->body = NULL;
        return add_to(&s->duplicates, &s->duplicate_count, &s->duplicate_room, message);
    }
    bool known = read && read->rank == message->rank && read->version == version;
    if (!known && !ls_staleness_may_add(&s->reads, ordinal, version, ls_state_shard_pushes(s->shard)))
        return ls_server_session_send(
            s->session, &(ls_ps_message){ .rank = message->rank, .kind = LS_PS_AGAIN, .again = { ordinal } });
    LS_TRY(ls_staleness_add(&s->reads, (ls_read_entry){ message->rank, ordinal, version, true }));
    return add_to(&s->pushes, &s->push_count, &s->push_room, message);
}

static ls_status handle_early(server *s)
{
    ls_status status = LS_OK;
    for (; s->early_count > 0 && status == LS_OK && s->shard; remove_from(s->early, &s->early_count, 0))
        status = handle_push(s, &s->early[0]);
    return status;
}

static void set_bound(server *s)
{
    s->reads.bound = strategy_of(s)->staleness;
    s->reads.every = ls_state_shard_every(s->shard);
}

static ls_status take_state(server *s, const ls_ps_message *message)
{
    size_t bytes = message->body ? ls_payload_size(message->body) : 0;
    if (s->shard)
        return LS_OK;
    if (bytes != ls_state_shards_state_bytes(s->session->shards, s->index) || message->give.first < 0)
        return ls_fail(LS_ERR_PEER, "the chief sent a state of %zu bytes, but the shard of server %d has %zu", bytes,
                       s->index, ls_state_shards_state_bytes(s->session->shards, s->index));
    LS_TRY(ls_state_shard_create(s->session->shards, s->index, strategy_of(s)->scale_by_staleness, &s->shard));
    LS_TRY(ls_state_shard_put_state(s->shard, ls_payload_bytes(message->body)));
    s->applied.below = message->give.first;
    set_bound(s);
    LS_TRY(publish(s));
    LS_TRY(begin_journal(s));
    return open_record(s, false);
}

static ls_status restore_state(void *user, const ls_journal_state *state)
{
    server *s = user;
    LS_TRY(ls_state_shard_create(s->session->shards, s->index, strategy_of(s)->scale_by_staleness, &s->shard));
    LS_TRY(ls_state_shard_put_state(s->shard, state->bytes));
    s->applied.below = state->applied.below;
    for (size_t i = 0; i < state->applied.count; i++)
        LS_TRY(ls_applied_add(&s->applied, state->applied.list[i]));
    s->rate = state->rate;
    set_bound(s);
    LS_TRY(publish(s));
    return open_record(s, true);
}

static ls_status restore_push(void *user, const ls_journal_push *push)
{
    server *s = user;
    s->rate = push->rate;
    return apply(s, push);
}

static ls_status send_have(server *s)
{
    ls_ps_message have = { .rank = 0, .kind = LS_PS_HAVE };
    have.have.state = s->shard != NULL;
    have.have.pushes = s->shard ? ls_state_shard_pushes(s->shard) : 0;
    return ls_server_session_send(s->session, &have);
}

static ls_status begin_run(server *s, const ls_ps_message *message)
{
    const char *folder =
        s->session->options->async.journal ? s->session->options->async.journal : getenv("LOCKSTEP_JOURNAL");
    const ls_journal_reader reader = { restore_state, restore_push, s };
    bool found = false;
    if (s->id[0] == '\0' && message->body && ls_payload_size(message->body) == LS_RUN_ID - 1) {
        memcpy(s->id, ls_payload_bytes(message->body), LS_RUN_ID - 1);
        s->has_journal = folder && folder[0];
        if (s->has_journal) {
            LS_TRY(ls_journal_make(folder, s->id, s->index, ls_state_shards_state_bytes(s->session->shards, s->index),
                                   push_bytes(s), &s->journal));
            LS_TRY(ls_journal_restore(&s->journal, &reader, &found));
        }
        if (found)
            ls_log_always(s->session->log, "server %d restarted from its journal, with %" PRId64 " gradients applied",
                          s->index, ls_state_shard_pushes(s->shard));
        LS_TRY(handle_early(s));
    }
    return send_have(s);
}

static ls_status take_state_and_reply(server *s, const ls_ps_message *message)
{
    LS_TRY(take_state(s, message));
    LS_TRY(handle_early(s));
    return send_have(s);
}

static ls_status handle_chief(server *s, ls_ps_message *message)
{
    switch (message->kind) {
    case LS_PS_BEGIN:
        return begin_run(s, message);
    case LS_PS_GIVE:
        return take_state_and_reply(s, message);
    case LS_PS_RATE:
        s->rate = message->rate.value;
        return LS_OK;
    case LS_PS_FINAL:
        return ls_server_session_take_final(s->session, message);
    case LS_PS_OVER:
        s->over = true;
        ls_error_keep(&s->end, ls_server_session_failure(message));
        ls_clear_error();
        return LS_OK;
    default:
        return LS_OK;
    }
}

static void forget_worker(server *s, int rank)
{
    ls_staleness_lose(&s->reads, rank);
    for (size_t i = s->pull_count; i-- > 0;)
        if (s->pulls[i].rank == rank)
            remove_from(s->pulls, &s->pull_count, i);
}

static ls_status handle(server *s, ls_ps_message *message)
{
    if (message->rank == 0 && (message->kind == LS_MESSAGE_MET || message->kind == LS_MESSAGE_LOST)) {
        s->chief_connected = message->kind == LS_MESSAGE_MET;
        s->lost_at = ls_clock_now();
    }
    switch (message->kind) {
    case LS_MESSAGE_MET:
        if (message->rank == 0 && ls_server_session_meet_chief(s->session, message) != LS_OK) {
            s->over = true;
            ls_error_keep(&s->end, LS_ERR_PEER);
        }
        return LS_OK;
    case LS_MESSAGE_LOST:
        forget_worker(s, message->rank);
        return LS_OK;
    case LS_MESSAGE_REFUSED:
        s->over = true;
        ls_error_keep(&s->end,
                      ls_fail(LS_ERR_PEER, "process %d refused this server: %s", message->rank, message->text));
        return LS_OK;
    case LS_PS_PULL:
        return handle_pull(s, message);
    case LS_PS_PUSH:
        return handle_push(s, message);
    default:
        return message->rank == 0 ? handle_chief(s, message) : LS_OK;
    }
}

/* ---- Serving ---- */

static ls_status serve(server *s)
{
    while (!s->over) {
        ls_ps_message message;
        bool got = false;
        LS_TRY(ls_server_session_receive(s->session, 0.2, &message, &got));
        if (got) {
            ls_status status = handle(s, &message);
            ls_payload_drop(message.body);
            if (status != LS_OK)
                fail(s, status);
        }
        if (s->shard && !s->failed) {
            apply_waiting(s);
            send_waiting(s);
        }
        if (!s->over && !s->chief_connected)
            LS_TRY(ls_server_session_check_chief(s->session, s->session->run != 0, s->lost_at));
    }
    return LS_OK;
}

static void release(server *s)
{
    while (s->pull_count > 0)
        remove_from(s->pulls, &s->pull_count, s->pull_count - 1);
    while (s->push_count > 0)
        remove_from(s->pushes, &s->push_count, s->push_count - 1);
    while (s->early_count > 0)
        remove_from(s->early, &s->early_count, s->early_count - 1);
    free(s->pulls);
    free(s->pushes);
    free(s->early);
    free(s->duplicates);
    ls_payload_drop(s->newest);
    ls_staleness_free(&s->reads);
    ls_applied_free(&s->applied);
    ls_state_shard_destroy(s->shard);
    if (s->has_journal)
        ls_journal_close(&s->journal);
}

ls_status ls_serve_as_server(ls_server_session *session)
{
    server s = { .session = session,
                 .rate = NAN,
                 .lost_at = ls_clock_now(),
                 .journal = { .file = LS_APPEND_CLOSED },
                 .record = LS_RECORD_CLOSED };
    ls_status status = ls_server_session_open(session, NULL, NULL);
    s.index = session->cluster.rank - session->first_server;
    if (status == LS_OK)
        status = serve(&s);
    if (status == LS_OK)
        status = ls_error_give(&s.end);
    if (s.records) {
        ls_status closed = ls_record_close(&s.record);
        status = status == LS_OK ? closed : status;
    }
    if (status == LS_OK && s.has_journal)
        ls_journal_remove(&s.journal);
    ls_error why;
    ls_error_keep(&why, status);
    release(&s);
    ls_server_session_close(session);
    return ls_error_give(&why);
}
