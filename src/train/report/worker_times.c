/* Measures the work of each worker, finds the one that holds up the others, and assigns lanes by
 * speed. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "device/context.h"
#include "run/peers.h"
#include "train/job/job.h"
#include "train/report/worker_times.h"

#define SLOW 1.5 /* multiples of the median from which to warn */
/* seconds per epoch that a worker must delay the others */
#define SLOW_MOMENT 0.5
/* multiples of the median to show in live progress */
#define HOLDS_UP 1.2

void ls_worker_times_begin(ls_worker_times *times, const ls_context *ctx)
{
    const ls_peers *peers = ctx->peers;
    times->lanes = times->count = 0;
    times->steps = 0;
    times->generation = peers ? peers->generation : 0;
    if (peers && peers->seconds)
        memcpy(times->before, peers->seconds, (size_t)peers->size * sizeof(*times->before));
}

void ls_worker_times_step(ls_worker_times *times, int lanes)
{
    times->lanes = lanes > times->lanes ? lanes : times->lanes;
    times->steps++;
}

void ls_worker_times_take(ls_worker_times *times, const ls_context *ctx)
{
    const ls_peers *peers = ctx->peers;
    times->count = 0;
    if (!peers || !peers->seconds || peers->members[0] != peers->rank)
        return;
    int first[LS_MAX_CLUSTER + 1];
    uint32_t room[LS_MAX_CLUSTER];
    const uint32_t *weights = ls_peers_weights(peers, room);
    ls_share_lanes(weights, peers->count, times->lanes, first);
    for (int i = 0; i < peers->count; i++) {
        int rank = peers->members[i];
        if (weights && weights[i] == 0) /* a parameter server */
            continue;
        times->list[times->count++] = (ls_worker_time){ .rank = rank,
                                                        .member = i,
                                                        .lanes = first[i + 1] - first[i],
                                                        .seconds = peers->seconds[rank] - times->before[rank] };
    }
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Returns the median of the workers with lanes, the lower of two middle values; 0: none has
 * lanes. */
static double median(const ls_worker_times *times, bool of_a_lane)
{
    double values[LS_MAX_CLUSTER];
    size_t count = 0;
    for (int i = 0; i < times->count; i++) {
        const ls_worker_time *t = &times->list[i];
        if (t->lanes > 0)
            values[count++] = of_a_lane ? t->seconds / t->lanes : t->seconds;
    }
    qsort(values, count, sizeof(*values), ascending);
    return count > 0 ? values[(count - 1) / 2] : 0;
}

/* Returns the worker that holds up the others most, if it takes more than *factor times the median,
 * and sets *factor to its ratio. A worker with more lanes takes longer but is not slow; one with
 * fewer is not slow as long as it finishes first. So the smaller ratio counts: of the total time or
 * of the time per lane. */
static const ls_worker_time *find_slowest(const ls_worker_times *times, double *factor)
{
    const ls_worker_time *found = NULL;
    double all = median(times, false), lane = median(times, true), most = *factor;
    for (int i = 0; i < times->count && all > 0 && lane > 0; i++) {
        const ls_worker_time *t = &times->list[i];
        double a = t->seconds / all, b = t->lanes > 0 ? t->seconds / t->lanes / lane : 0, both = a < b ? a : b;
        if (both > most) {
            most = both;
            found = t;
        }
    }
    *factor = most;
    return found;
}

void ls_worker_times_report(const ls_worker_times *times, ls_context *ctx, int64_t epoch)
{
    double factor = SLOW;
    const ls_worker_time *slow = find_slowest(times, &factor);
    if (slow && slow->seconds * (1 - 1 / factor) > SLOW_MOMENT)
        ls_log_write(&ctx->log, LS_LOG_WARNING,
                     "worker %d holds up the others: it took %.1f times the median of %d workers in epoch %" PRId64
                     " (%.2f s of its own work)",
                     slow->rank, factor, times->count, epoch + 1, slow->seconds);
}

int ls_worker_times_last(const ls_worker_times *times)
{
    double factor = HOLDS_UP;
    const ls_worker_time *slow = find_slowest(times, &factor);
    return slow ? slow->rank : -1;
}

void ls_worker_times_text(const ls_worker_times *times, char text[LS_WORKERS_TEXT])
{
    int last = ls_worker_times_last(times);
    if (times->count == 0)
        text[0] = '\0';
    else if (last >= 0)
        snprintf(text, LS_WORKERS_TEXT, "%d workers, waiting for %d", times->count, last);
    else
        snprintf(text, LS_WORKERS_TEXT, "%d worker%s", times->count, times->count == 1 ? "" : "s");
}

void ls_worker_times_put(const ls_worker_times *times, ls_text *text)
{
    for (int i = 0; i < times->count; i++) {
        const ls_worker_time *t = &times->list[i];
        ls_text_add(text, "%s{\"rank\":%d,\"lanes\":%d,\"seconds\":", i ? "," : ",\"workers\":[", t->rank, t->lanes);
        ls_text_put_f64(text, t->seconds);
        ls_text_put(text, "}");
    }
    if (times->count > 0)
        ls_text_put(text, "]");
}

/* ---- Lanes by speed ---- */

#define PARTS 1000 /* weight of the fastest worker */
/* reassign lanes only if a step then takes less than this part of its time */
#define GAIN     0.9
#define FORGIVES 1.1
#define MEASURED 10 /* fewest steps to measure */

/* Returns the time of the slowest worker with these weights. */
static double longest(const ls_worker_times *times, const double *speed, const uint32_t *weights)
{
    int first[LS_MAX_CLUSTER + 1];
    double most = 0;
    ls_share_lanes(weights, times->count, times->lanes, first);
    for (int i = 0; i < times->count; i++) {
        double seconds = (first[i + 1] - first[i]) / speed[i];
        most = seconds > most ? seconds : most;
    }
    return most;
}

/* Averaged with earlier measurements. A worker without lanes is assumed to be a bit faster each
 * time, so that it gets lanes again. */
static double speed_of(ls_worker_times *times, const ls_worker_time *t)
{
    double *known = &times->speed[t->rank];
    if (t->lanes == 0)
        return *known *= FORGIVES;
    double now = t->seconds > 0 ? t->lanes * (double)times->steps / t->seconds : 0;
    return *known = *known > 0 ? (*known + now) / 2 : now;
}

/* Returns false if steps would hardly be faster. A worker that never had lanes is assumed to be as
 * fast as the slowest one. */
static bool find_weights(ls_worker_times *times, uint32_t *weights)
{
    double speed[LS_MAX_CLUSTER], most = 0, least = 0, now = 0;
    for (int i = 0; i < times->count; i++) {
        const ls_worker_time *t = &times->list[i];
        speed[i] = speed_of(times, t);
        most = speed[i] > most ? speed[i] : most;
        least = speed[i] > 0 && (least == 0 || speed[i] < least) ? speed[i] : least;
        now = t->seconds > now && t->lanes > 0 ? t->seconds : now;
    }
    for (int i = 0; i < times->count && most > 0; i++) {
        speed[i] = speed[i] > 0 ? speed[i] : least;
        double part = speed[i] / most * PARTS;
        weights[i] = part < 1 ? 1 : (uint32_t)(part + 0.5);
    }
    if (most == 0 || !(longest(times, speed, weights) * (double)times->steps < GAIN * now))
        return false;
    /* list index to member index; parameter servers are in between */
    for (int i = times->count; i-- > 0;)
        weights[times->list[i].member] = weights[i];
    return true;
}

static void report_split(const ls_worker_times *times, ls_context *ctx)
{
    ls_text text = { 0 };
    int first[LS_MAX_CLUSTER + 1];
    uint32_t room[LS_MAX_CLUSTER];
    ls_share_lanes(ls_peers_weights(ctx->peers, room), ctx->peers->count, times->lanes, first);
    for (int i = 0; i < ctx->peers->count; i++)
        ls_text_add(&text, "%s%d: %d", i ? ", " : "", ctx->peers->members[i], first[i + 1] - first[i]);
    ls_log_write(&ctx->log, LS_LOG_INFO, "new lanes by worker: %s", ls_text_get(&text));
    ls_text_free(&text);
}

ls_status ls_worker_times_split(ls_worker_times *times, ls_context *ctx)
{
    uint32_t weights[LS_MAX_CLUSTER] = { 0 };
    ls_peers *peers = ctx->peers;
    bool found = false;
    if (!peers)
        return LS_OK;
    unsigned split = peers->split;
    if (peers->generation != times->generation) { /* members changed; the lanes are even again */
        ls_worker_times_begin(times, ctx);
    } else if (times->steps >= MEASURED) {
        ls_worker_times_take(times, ctx);
        found = times->count > 0 && find_weights(times, weights);
    }
    LS_TRY(ls_peers_weigh(peers, found ? weights : NULL));
    if (peers->split != split && found)
        report_split(times, ctx);
    if (times->steps >= MEASURED)
        ls_worker_times_begin(times, ctx);
    return LS_OK;
}
