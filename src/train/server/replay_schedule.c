/* Reads the records of all servers and orders their pushes, before a replay computes anything. */
#include "train/server/replay_schedule.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "train/server/record.h"

/* ---- Reading ---- */

const char *ls_replay_schedule_where(const ls_replay_schedule *s, int server, size_t push, char text[LS_PUSH_TEXT])
{
    snprintf(text, LS_PUSH_TEXT, "record '%s', line %zu, at byte %lld", s->paths[server], push + 2,
             (long long)s->records[server].offsets[push]);
    return text;
}

static ls_status read_one(ls_replay_schedule *s, int server)
{
    const ls_record_head *first = &s->records[0].head, *head = &s->records[server].head;
    ls_status status = ls_record_read(s->paths[server], &s->records[server]);
    if (status == LS_ERR_NOT_FOUND)
        return ls_fail(status, "the record of server %d of %d is missing: there is no '%s'", server,
                       server > 0 ? first->servers : 1, s->paths[server]);
    LS_TRY(status);
    if (head->server != server)
        return ls_fail(LS_ERR_DATA, "'%s' is the record of server %d, not of server %d%s", s->paths[server],
                       head->server, server,
                       server == 0 ? ": give the file of server 0, whose name the others have" : "");
    return server > 0 ? ls_record_compare(first, s->paths[0], head, s->paths[server], true) : LS_OK;
}

static ls_status read_all(ls_replay_schedule *s, const char *file)
{
    s->records = calloc(LS_MAX_SERVERS, sizeof(*s->records));
    s->paths = calloc(LS_MAX_SERVERS, sizeof(*s->paths));
    if (!s->records || !s->paths)
        return ls_fail(LS_ERR_MEMORY, "no memory for the records of %d servers", LS_MAX_SERVERS);
    s->servers = 1;
    for (int i = 0; i < s->servers; i++) {
        LS_TRY(ls_record_path(file, i, s->paths[i]));
        LS_TRY(read_one(s, i));
        s->servers = s->records[0].head.servers;
    }
    return LS_OK;
}

/* ---- Checking reads ---- */

static ls_status check_read(const ls_replay_schedule *s, int server, size_t push, int of)
{
    const ls_record_push *p = &s->records[server].pushes[push];
    const ls_record *other = &s->records[of];
    char where[LS_PUSH_TEXT];
    if (p->read[of] < other->head.version || p->read[of] > other->version)
        return ls_fail(LS_ERR_DATA, "%s: version %lld of server %d was read, but '%s' has versions %lld to %lld%s",
                       ls_replay_schedule_where(s, server, push, where), (long long)p->read[of], of, s->paths[of],
                       (long long)other->head.version, (long long)other->version,
                       other->torn ? ", and an incomplete record after them" : "");
    if (of == server && p->version - 1 - p->read[of] > other->head.staleness)
        return ls_fail(LS_ERR_DATA,
                       "%s: version %lld was made from version %lld, which exceeds the staleness bound of %lld",
                       ls_replay_schedule_where(s, server, push, where), (long long)p->version, (long long)p->read[of],
                       (long long)other->head.staleness);
    return LS_OK;
}

static ls_status check_reads(const ls_replay_schedule *s)
{
    for (int i = 0; i < s->servers; i++)
        for (size_t k = 0; k < s->records[i].count; k++)
            for (int of = 0; of < s->servers; of++)
                LS_TRY(check_read(s, i, k, of));
    return LS_OK;
}

/* ---- Matching pushes and gradients ---- */

typedef struct ref {
    const ls_record_push *push;
    int server, servers;
    size_t index;
} ref;

static int by_i64(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int by_batch(const ref *a, const ref *b)
{
    int order = by_i64(a->push->epoch, b->push->epoch);
    return order ? order : by_i64(a->push->batch, b->push->batch);
}

static int by_gradient(const void *one, const void *two)
{
    const ref *a = one, *b = two;
    int order = by_batch(a, b);
    for (int i = 0; order == 0 && i < a->servers; i++)
        order = by_i64(a->push->read[i], b->push->read[i]);
    return order;
}

static int by_gradient_and_server(const void *one, const void *two)
{
    const ref *a = one, *b = two;
    int order = by_gradient(a, b);
    return order ? order : a->server - b->server;
}

/* Checks that each server applied a batch only once, and that each batch has one run counter. */
static ls_status check_batches(const ls_replay_schedule *s, const ref *refs, size_t count)
{
    size_t seen[LS_MAX_SERVERS] = { 0 }; /* 1 + index of the last ref of this server */
    char one[LS_PUSH_TEXT], two[LS_PUSH_TEXT];
    for (size_t i = 0, first = 0; i < count; i++) {
        if (by_batch(&refs[i], &refs[first]) != 0)
            first = i;
        const ref *r = &refs[i], *f = &refs[first];
        if (r->push->run != f->push->run)
            return ls_fail(LS_ERR_DATA, "batch %lld of epoch %lld has run counter %lld in %s, but %lld in %s",
                           (long long)r->push->batch, (long long)r->push->epoch, (long long)f->push->run,
                           ls_replay_schedule_where(s, f->server, f->index, one), (long long)r->push->run,
                           ls_replay_schedule_where(s, r->server, r->index, two));
        size_t before = seen[r->server];
        if (before > first)
            return ls_fail(LS_ERR_DATA, "server %d applied batch %lld of epoch %lld twice: %s, and line %zu", r->server,
                           (long long)r->push->batch, (long long)r->push->epoch,
                           ls_replay_schedule_where(s, r->server, refs[before - 1].index, one), r->index + 2);
        seen[r->server] = i + 1;
    }
    return LS_OK;
}

/* Sets by_push[server][push] to the index of its gradient. */
static ls_status match(ls_replay_schedule *s, ref *refs, size_t **by_push)
{
    size_t count = 0;
    for (int i = 0; i < s->servers; i++)
        for (size_t k = 0; k < s->records[i].count; k++)
            refs[count++] = (ref){ &s->records[i].pushes[k], i, s->servers, k };
    qsort(refs, count, sizeof(*refs), by_gradient_and_server);
    LS_TRY(check_batches(s, refs, count));
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || by_gradient(&refs[i - 1], &refs[i]) != 0)
            s->gradients[s->gradient_count++] = (ls_replay_schedule_gradient){ .push = refs[i].push };
        s->gradients[s->gradient_count - 1].uses++;
        by_push[refs[i].server][refs[i].index] = s->gradient_count - 1;
    }
    return LS_OK;
}

static ls_status count_readers(ls_replay_schedule *s)
{
    for (int i = 0; i < s->servers; i++) {
        const ls_record *r = &s->records[i];
        s->readers[i] = calloc((size_t)(r->version - r->head.version) + 1, sizeof(*s->readers[i]));
        if (!s->readers[i])
            return ls_fail(LS_ERR_MEMORY, "no memory for the versions of server %d", i);
        for (size_t g = 0; g < s->gradient_count; g++)
            s->readers[i][s->gradients[g].push->read[i] - r->head.version]++;
    }
    return LS_OK;
}

/* ---- Ordering ---- */

typedef struct ordering {
    ls_replay_schedule *s;
    size_t **by_push;
    bool *begun;                     /* by gradient: some server has applied it */
    size_t next[LS_MAX_SERVERS];     /* index of the next push */
    int64_t version[LS_MAX_SERVERS]; /* last version made */
} ordering;

static const ls_record_push *next_push(const ordering *o, int server)
{
    const ls_record *r = &o->s->records[server];
    return o->next[server] < r->count ? &r->pushes[o->next[server]] : NULL;
}

/* Returns a server that has not made a version that the push reads, or -1. */
static int waits_for(const ordering *o, const ls_record_push *push)
{
    for (int i = 0; i < o->s->servers; i++)
        if (push->read[i] > o->version[i])
            return i;
    return -1;
}

/* Returns the server whose push is next, or -1. Prefers gradients that are already computed, then
 * earlier batches. */
static int choose(const ordering *o)
{
    int best = -1;
    size_t best_gradient = 0;
    for (int i = 0; i < o->s->servers; i++) {
        const ls_record_push *push = next_push(o, i);
        if (!push || waits_for(o, push) >= 0)
            continue;
        size_t gradient = o->by_push[i][o->next[i]];
        bool better =
            best < 0 || (o->begun[gradient] != o->begun[best_gradient] ? o->begun[gradient] : gradient < best_gradient);
        if (better) {
            best = i;
            best_gradient = gradient;
        }
    }
    return best;
}

static ls_status fail_cycle(const ordering *o)
{
    char one[LS_PUSH_TEXT], two[LS_PUSH_TEXT];
    int a = 0;
    while (!next_push(o, a))
        a++;
    int b = waits_for(o, next_push(o, a));
    return ls_fail(
        LS_ERR_DATA,
        "pushes wait for each other: %s reads version %lld of server %d, which comes after %s, which waits, too",
        ls_replay_schedule_where(o->s, a, o->next[a], one), (long long)next_push(o, a)->read[b], b,
        ls_replay_schedule_where(o->s, b, o->next[b], two));
}

static ls_status put_in_order(ordering *o, size_t count)
{
    ls_replay_schedule *s = o->s;
    for (int i = 0; i < s->servers; i++)
        o->version[i] = s->records[i].head.version;
    while (s->step_count < count) {
        int server = choose(o);
        if (server < 0)
            return fail_cycle(o);
        const ls_record_push *push = next_push(o, server);
        size_t gradient = o->by_push[server][o->next[server]];
        s->steps[s->step_count++] = (ls_replay_schedule_step){ server, o->next[server], gradient };
        o->begun[gradient] = true;
        if (push->sha256[0])
            o->version[server] = push->version;
        o->next[server]++;
    }
    return LS_OK;
}

/* ---- The schedule ---- */

static ls_status arrange(ls_replay_schedule *s)
{
    size_t count = 0, *by_push[LS_MAX_SERVERS] = { NULL };
    for (int i = 0; i < s->servers; i++)
        count += s->records[i].count;
    ref *refs = calloc(count + 1, sizeof(*refs));
    bool *begun = calloc(count + 1, sizeof(*begun));
    s->gradients = calloc(count + 1, sizeof(*s->gradients));
    s->steps = calloc(count + 1, sizeof(*s->steps));
    size_t *all = calloc(count + 1, sizeof(*all));
    ls_status status = LS_OK;
    if (!refs || !begun || !s->gradients || !s->steps || !all)
        status = ls_fail(LS_ERR_MEMORY, "no memory for a schedule of %zu pushes", count);
    for (size_t i = 0, used = 0; i < (size_t)s->servers && all; used += s->records[i++].count)
        by_push[i] = all + used;
    ordering o = { .s = s, .by_push = by_push, .begun = begun };
    if (status == LS_OK)
        status = match(s, refs, by_push);
    if (status == LS_OK)
        status = count_readers(s);
    if (status == LS_OK)
        status = put_in_order(&o, count);
    free(refs);
    free(begun);
    free(all);
    return status;
}

ls_status ls_replay_schedule_read(const char *file, ls_replay_schedule *out)
{
    ls_replay_schedule s = { .servers = 0 };
    ls_status status = read_all(&s, file);
    if (status == LS_OK)
        status = check_reads(&s);
    if (status == LS_OK)
        status = arrange(&s);
    if (status == LS_OK)
        *out = s;
    else
        ls_replay_schedule_free(&s);
    return status;
}

void ls_replay_schedule_free(ls_replay_schedule *s)
{
    for (int i = 0; s->records && i < LS_MAX_SERVERS; i++)
        ls_record_free(&s->records[i]);
    for (int i = 0; i < LS_MAX_SERVERS; i++)
        free(s->readers[i]);
    free(s->records);
    free(s->paths);
    free(s->gradients);
    free(s->steps);
    *s = (ls_replay_schedule){ .servers = 0 };
}
