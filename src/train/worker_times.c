/* The workers of a cluster, as the chief sees them: how long each is at its own work, and who holds up the others. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "device/context.h"
#include "run/peers.h"
#include "train/job.h"

#define SLOW        1.5 /* times the median: such a worker is named, */
#define SLOW_MOMENT 0.1 /* if it holds up the others for so many seconds of an epoch */
#define HOLDS_UP    1.2 /* times the median: whoever watches is told */

void ls_worker_times_begin(ls_worker_times *times, const ls_context *ctx)
{
    const ls_peers *peers = ctx->peers;
    times->lanes = times->count = 0;
    if (peers && peers->seconds)
        memcpy(times->before, peers->seconds, (size_t)peers->size * sizeof(*times->before));
}

void ls_worker_times_step(ls_worker_times *times, int lanes)
{
    times->lanes = lanes > times->lanes ? lanes : times->lanes;
}

void ls_worker_times_take(ls_worker_times *times, const ls_context *ctx)
{
    const ls_peers *peers = ctx->peers;
    times->count = 0;
    if (!peers || !peers->seconds || peers->members[0] != peers->rank)
        return;
    for (int i = 0; i < peers->count; i++) {
        int rank = peers->members[i], first = ls_worker_first(peers->count, times->lanes, i);
        times->list[times->count++] =
            (ls_worker_time){ .rank = rank,
                              .lanes = ls_worker_first(peers->count, times->lanes, i + 1) - first,
                              .seconds = peers->seconds[rank] - times->before[rank] };
    }
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Of two in the middle the lower one: of two workers, the faster. 0: nobody has lanes. */
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

/* One that has more lanes than others takes longer, and is not slow; one that has fewer is not slow either while it is
 * done before the others. So both count: the time, and the time of a lane. */
const ls_worker_time *ls_worker_times_slowest(const ls_worker_times *times, double *factor)
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
    const ls_worker_time *slow = ls_worker_times_slowest(times, &factor);
    if (slow && slow->seconds * (1 - 1 / factor) > SLOW_MOMENT)
        ls_log_write(&ctx->log, LS_LOG_WARNING,
                     "worker %d: %.1f times the median of %d workers in epoch %" PRId64
                     ", %.2f s of its own work: the others wait for it",
                     slow->rank, factor, times->count, epoch + 1, slow->seconds);
}

int ls_worker_times_last(const ls_worker_times *times)
{
    double factor = HOLDS_UP;
    const ls_worker_time *slow = ls_worker_times_slowest(times, &factor);
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
