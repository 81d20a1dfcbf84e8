/* Sends the timelines of all workers to the chief. Each worker finds how far its clock is ahead of
 * the chief's, then sends its events as text, with times on the chief's clock. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "run/peers.h"
#include "run/timeline.h"

#define ROUNDS   8
#define TOGETHER ((size_t)64 << 20)          /* Bytes of all workers together. */
#define TAG(n)   (0x74696d656c696e00u + (n)) /* "timelin", then the number of the call. */

/* Clock values that the chief sends. */
typedef struct word {
    /* When the chief began this exchange, ended the previous round, began its timeline. */
    double asked, answered, zero;
} word;

/* A worker's time lies between two of the chief: its clock is ahead by own - answered to own -
 * asked. */
typedef struct span {
    double least, most;
} span;

static void narrow(span *s, double asked, double own, double answered)
{
    s->least = fmax(s->least, own - answered);
    s->most = fmin(s->most, own - asked);
}

/* In each round the chief sends its time, every worker reads its clock, and the chief reads its own
 * when all have answered. */
static ls_status compare_clocks(ls_peers *peers, const ls_timeline *t, span *s, double *zero)
{
    bool chief = peers->members[0] == peers->rank;
    word said = { .zero = t ? ls_timeline_zero(t) : 0 };
    double asked = 0, own = 0;
    *s = (span){ -DBL_MAX, DBL_MAX };
    for (int i = 0; i <= ROUNDS; i++) {
        if (chief)
            said.asked = ls_clock_now();
        ls_piece piece = { peers->members[0], LS_ALL_WORKERS, &said, sizeof(said) };
        LS_TRY(peers->exchange(peers, TAG(0), "the clocks of timelines", &piece, 1));
        if (i > 0)
            narrow(s, asked, own, said.answered);
        asked = said.asked;
        own = ls_clock_now();
        LS_TRY(peers->exchange(peers, TAG(1), "the clocks of timelines", NULL, 0));
        if (chief)
            said.answered = ls_clock_now();
    }
    *zero = said.zero;
    return peers->commit(peers, (uint64_t[2]){ TAG(0), 0 }, "the clocks of timelines");
}

/* 0 if that is within the bounds: on one machine there is one clock. */
static double shift_of(const span *s)
{
    return s->least <= 0 && s->most >= 0 ? 0 : s->least + (s->most - s->least) / 2;
}

/* Sent by a worker before its text. */
typedef struct about {
    uint64_t bytes;
    double bound;
} about;

typedef struct gathering {
    ls_peers *peers;
    ls_timeline *own;
    ls_text text;     /* This worker's events, as sent to the chief. */
    size_t most;      /* Largest size for one worker, in bytes. */
    about *all;       /* By rank. */
    ls_piece *pieces; /* Room for one piece of each worker. */
} gathering;

static ls_status gather_sizes(const gathering *g)
{
    for (int r = 0; r < g->peers->size; r++)
        g->pieces[r] = (ls_piece){ r, LS_ALL_WORKERS, &g->all[r], sizeof(g->all[r]) };
    LS_TRY(ls_peers_share(g->peers, TAG(2), "the sizes of timelines", g->pieces, (size_t)g->peers->size));
    /* A worker that was lost meanwhile may have sent a part. */
    for (int r = 0; r < g->peers->size; r++)
        if (!ls_peers_has(g->peers, r))
            g->all[r] = (about){ 0 };
    return LS_OK;
}

/* The chief stores the texts in `room`; NULL on the others. */
static ls_status send_texts(const gathering *g, char *room)
{
    ls_peers *peers = g->peers;
    size_t count = 0, at = 0;
    for (int i = 1; i < peers->count; i++) {
        int r = peers->members[i];
        if (g->all[r].bytes == 0 || (!room && peers->rank != r))
            continue;
        g->pieces[count++] = (ls_piece){ r, peers->members[0], room ? room + at : g->text.data, g->all[r].bytes };
        at += g->all[r].bytes;
    }
    if (room)
        room[at] = '\0';
    LS_TRY(peers->exchange(peers, TAG(3), "timelines", g->pieces, count));
    return peers->commit(peers, (uint64_t[2]){ TAG(3), 0 }, "timelines");
}

static ls_status gather_texts(const gathering *g)
{
    ls_peers *peers = g->peers;
    size_t bytes = 0;
    double worst = 0;
    char *room = NULL;
    ls_status status;
    for (int r = 0; r < peers->size; r++) {
        if (g->all[r].bytes > g->most)
            return ls_fail(LS_ERR_PEER, "worker %d sent a timeline of %llu bytes: the maximum is %zu", r,
                           (unsigned long long)g->all[r].bytes, g->most);
        bytes += g->all[r].bytes;
        worst = fmax(worst, g->all[r].bound);
    }
    do { /* The chief may change when this is repeated. */
        if (peers->members[0] == peers->rank && !room)
            room = malloc(bytes + 1);
        if (peers->members[0] == peers->rank && !room)
            return ls_fail(LS_ERR_MEMORY, "no memory for the timelines of %d workers, %zu bytes", peers->count, bytes);
        status = send_texts(g, room);
    } while (status != LS_OK && ls_peers_again(peers));
    if (room && status == LS_OK && g->own)
        ls_timeline_take_others(g->own, room, worst);
    else
        free(room);
    return status;
}

static ls_status gather(gathering *g)
{
    ls_peers *peers = g->peers;
    ls_timeline_clock clock;
    span s;
    ls_status status;
    do
        status = compare_clocks(peers, g->own, &s, &clock.zero);
    while (status != LS_OK && ls_peers_again(peers));
    LS_TRY(status);
    clock.shift = shift_of(&s);
    if (g->own && peers->members[0] != peers->rank && ls_timeline_describe(g->own, &clock, g->most, &g->text) == LS_OK)
        g->all[peers->rank] = (about){ g->text.length, (s.most - s.least) / 2 };
    LS_TRY(gather_sizes(g));
    return gather_texts(g);
}

ls_status ls_timeline_gather(ls_timeline *t, ls_peers *peers)
{
    size_t size = (size_t)peers->size;
    gathering g = { .peers = peers, .own = t, .most = TOGETHER / size };
    g.all = calloc(size, sizeof(*g.all));
    g.pieces = calloc(size, sizeof(*g.pieces));
    ls_status status =
        g.all && g.pieces ? gather(&g) : ls_fail(LS_ERR_MEMORY, "no memory for the timelines of workers");
    ls_text_free(&g.text);
    free(g.all);
    free(g.pieces);
    return status;
}
