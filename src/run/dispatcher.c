/* Decides which thread runs which unit, and when. Phases follow each other; units of a phase run in
 * parallel. Each thread belongs to a device and takes its units: on the CPU directly, elsewhere
 * through the driver.
 *
 * In a phase of lanes a unit is a series of segments of one lane on one device; it waits for the
 * lane's previous unit. A lane begins when every device that it visits has a free frame for it
 * (src/plan/inflight.c proves that this cannot deadlock). The most advanced lane goes first: it
 * frees its frame soonest. With a map that fills, the least advanced goes first.
 *
 * After a unit fails, only units before it in the order of units still run, so the reported failure
 * is always the same one. Later lanes give back their frames and slots. */
#include <string.h>

#include "base/clock.h"
#include "run/audit.h"
#include "run/executor_private.h"
#include "run/partials.h"

#define SPINS 2000

static const ls_phase *phase_at(const ls_executor *e, int phase)
{
    return &e->plan->phases[phase];
}

static bool is_cpu(const ls_executor *e, int device)
{
    return e->placement->ctx->devices[device].kind == LS_CPU;
}

/* ---- Lanes ---- */

static int *frame_of(const ls_executor *e, int device, int lane)
{
    return &e->frame_of[(size_t)device * (size_t)e->plan->lanes + (size_t)lane];
}

static void begin_lanes(ls_executor *e, const ls_phase *phase)
{
    int lanes = e->plan->lanes;
    memset(e->lane, 0, (size_t)lanes * sizeof(*e->lane));
    e->in_flight_count = 0;
    for (int d = 0; d < e->devices; d++) {
        e->next_begin[d] = 0;
        e->frame_count[d] = e->placement->places[d].frames;
        for (int i = 0; i < e->frame_count[d]; i++)
            e->free_frames[d * lanes + i] = e->frame_count[d] - 1 - i;
        for (int lane = 0; lane < lanes; lane++)
            *frame_of(e, d, lane) = -1;
    }
    ls_partials_begin(e, phase->first, phase->count);
}

/* It must be the next lane of every device that it visits, with a free frame on each. */
static bool can_begin(const ls_executor *e, const ls_phase_units *w, int lane)
{
    for (int i = w->visits_first[lane]; i < w->visits_first[lane + 1]; i++) {
        int d = w->visits[i], next = d * e->plan->lanes + e->next_begin[d];
        if (w->order[next] != lane || e->frame_count[d] == 0)
            return false;
    }
    return true;
}

static void begin_lane(ls_executor *e, const ls_phase_units *w, int lane)
{
    for (int i = w->visits_first[lane]; i < w->visits_first[lane + 1]; i++) {
        int d = w->visits[i];
        e->next_begin[d]++;
        *frame_of(e, d, lane) = e->free_frames[d * e->plan->lanes + --e->frame_count[d]];
    }
    e->lane[lane].begun = true;
    e->in_flight[e->in_flight_count++] = lane;
}

static void end_lane(ls_executor *e, const ls_phase_units *w, int lane)
{
    for (int i = w->visits_first[lane]; i < w->visits_first[lane + 1]; i++) {
        int d = w->visits[i], *frame = frame_of(e, d, lane);
        e->free_frames[d * e->plan->lanes + e->frame_count[d]++] = *frame;
        *frame = -1;
    }
    int at = 0;
    while (e->in_flight[at] != lane)
        at++;
    e->in_flight[at] = e->in_flight[--e->in_flight_count];
}

/* Returns the number of units to run: up to the first failed one. */
static int unit_end(const ls_executor *e, const ls_phase_units *w)
{
    return e->failure.status == LS_OK || e->failed_phase != e->phase ? w->count : e->failed_unit;
}

/* Returns the first unit of this device's next lane; -1: that lane cannot begin. */
static int next_lane_unit(const ls_executor *e, const ls_phase_units *w, int device, int end)
{
    int next = device * e->plan->lanes + e->next_begin[device];
    if (next == w->order_end[device])
        return -1;
    int lane = w->order[next], unit = w->first[lane];
    return unit < end && w->units[unit].device == device && can_begin(e, w, lane) ? unit : -1;
}

static int begin_next_lane(ls_executor *e, const ls_phase_units *w, int device, int end)
{
    int unit = next_lane_unit(e, w, device, end);
    if (unit >= 0)
        begin_lane(e, w, w->units[unit].lane);
    return unit;
}

/* Returns the next unit of the most advanced lane in flight (least advanced if the map fills); -1:
 * none. */
static int furthest_unit(const ls_executor *e, const ls_phase_units *w, int device, int end, bool fills)
{
    int best = -1, far = 0;
    for (int i = 0; i < e->in_flight_count; i++) {
        int v = e->in_flight[i], done = e->lane[v].done, unit = w->first[v] + done;
        if (e->lane[v].running || unit >= end || w->units[unit].device != device)
            continue;
        if (best < 0 || (fills ? done < far : done > far) || (done == far && unit < best)) {
            far = done;
            best = unit;
        }
    }
    return best;
}

/* Returns a unit of a lane in flight, or of a lane that can begin; -1: none now. */
static int find_lane_unit(ls_executor *e, int device)
{
    const ls_phase_units *w = &e->phases[e->phase];
    /* Without a thread pool, lanes run one after the other. */
    bool fills = e->plan->options.map.fills && e->thread_pool;
    int end = unit_end(e, w), best = fills ? begin_next_lane(e, w, device, end) : -1;
    if (best < 0)
        best = furthest_unit(e, w, device, end, fills);
    if (best < 0 && !fills)
        best = begin_next_lane(e, w, device, end);
    if (best >= 0) {
        const ls_unit *u = &w->units[best];
        e->lane[u->lane].running = true;
        ls_partials_claim(e, device, u->index, u->count, u->lane);
    }
    return best;
}

/* Adds, to units[0], units with the same segments of the next lanes that can begin, except lanes
 * that continue on another device. Returns the number of units. */
static int find_more_lanes(ls_executor *e, int device, int *units)
{
    const ls_phase_units *w = &e->phases[e->phase];
    const ls_unit *first = &w->units[units[0]];
    int most = e->placement->places[device].together, end = unit_end(e, w), count = 1, lanes = e->plan->lanes;
    if (w->end[first->lane] - w->first[first->lane] != 1)
        return 1;
    while (count < most && device * lanes + e->next_begin[device] < w->order_end[device]) {
        int lane = w->order[device * lanes + e->next_begin[device]];
        const ls_unit *u = &w->units[w->first[lane]];
        if (w->end[lane] - w->first[lane] != 1 || u->index != first->index || u->count != first->count ||
            begin_next_lane(e, w, device, end) < 0)
            break;
        units[count++] = w->first[lane];
        e->lane[lane].running = true;
        ls_partials_claim(e, device, u->index, u->count, lane);
    }
    return count;
}

static bool is_started(const ls_executor *e, const ls_phase_units *w, int unit)
{
    const ls_lane *lane = &e->lane[w->units[unit].lane];
    int number = unit - w->first[w->units[unit].lane];
    return number < lane->done || (number == lane->done && lane->running);
}

static void give_up_lanes(ls_executor *e, const ls_phase *phase, const ls_phase_units *w)
{
    int end = unit_end(e, w);
    for (int i = e->in_flight_count; i-- > 0;) {
        int v = e->in_flight[i];
        if (!e->lane[v].running && w->first[v] + e->lane[v].done >= end)
            end_lane(e, w, v);
    }
    ls_partials_fail(e, phase->first, phase->count, w->units[e->failed_unit].lane);
}

static void note_failure(ls_executor *e, int phase, int unit, ls_status status)
{
    if (e->failure.status != LS_OK && (e->failed_phase < phase || (e->failed_phase == phase && e->failed_unit <= unit)))
        return;
    ls_error_keep(&e->failure, status);
    e->failed_phase = phase;
    e->failed_unit = unit;
}

/* Allows the partials of a unit to be joined with their neighbours. */
static ls_status complete_unit(ls_executor *e, const ls_unit *u, int thread)
{
    for (int s = u->index; s < u->index + u->count; s++)
        if (ls_audit_is_foreign(e, u->lane))
            ls_partials_drop(e, s, u->lane);
        else
            LS_TRY(ls_partials_complete(e, s, u->lane, thread));
    return LS_OK;
}

static ls_status complete_units(ls_executor *e, const ls_unit *units, const int *which, int count, int thread)
{
    int *lanes = e->complete + thread * e->plan->lanes;
    for (int s = units[which[0]].index; s < units[which[0]].index + units[which[0]].count; s++) {
        int own = 0;
        for (int i = 0; i < count; i++)
            if (ls_audit_is_foreign(e, units[which[i]].lane))
                ls_partials_drop(e, s, units[which[i]].lane);
            else
                lanes[own++] = units[which[i]].lane;
        LS_TRY(ls_partials_complete_lanes(e, s, lanes, own, thread));
    }
    return LS_OK;
}

static void end_lane_unit(ls_executor *e, const ls_phase_units *w, int lane)
{
    e->lane[lane].running = false;
    e->lane[lane].done++;
    if (w->first[lane] + e->lane[lane].done == w->end[lane])
        end_lane(e, w, lane);
}

/* On error, units from position `failed` on did not succeed. */
static void end_lane_units(ls_executor *e, const int *which, int count, int failed, int thread, ls_status status)
{
    const ls_phase_units *w = &e->phases[e->phase];
    int good = status == LS_OK ? count : failed;
    if (status != LS_OK)
        note_failure(e, e->phase, which[failed], status);
    status = good == 0   ? LS_OK
             : count > 1 ? complete_units(e, w->units, which, good, thread)
                         : complete_unit(e, &w->units[which[0]], thread);
    if (status != LS_OK)
        note_failure(e, e->phase, which[0], status);
    for (int i = 0; i < count; i++)
        end_lane_unit(e, w, w->units[which[i]].lane);
    if (e->failure.status != LS_OK)
        give_up_lanes(e, phase_at(e, e->phase), w);
}

/* ---- Phases ---- */

static bool is_skipped(const ls_executor *e, int phase)
{
    return e->phases[phase].count == 0 || (e->is_prepared && phase_at(e, phase)->kind == LS_PHASE_PREPARE);
}

static void start_phase(ls_executor *e)
{
    memset(e->next, 0, (size_t)(e->devices + 1) * sizeof(*e->next));
    e->done = 0;
    for (; e->phase < e->plan->phase_count && is_skipped(e, e->phase); e->phase++)
        if (phase_at(e, e->phase)->kind == LS_PHASE_LANES)
            /* All lanes are other workers'. */
            begin_lanes(e, phase_at(e, e->phase));
    if (e->phase == e->plan->phase_count)
        return;
    if (phase_at(e, e->phase)->kind == LS_PHASE_LANES)
        begin_lanes(e, phase_at(e, e->phase));
    if (phase_at(e, e->phase)->kind == LS_PHASE_UPDATE && ls_executor_begin_writes(e) != LS_OK)
        note_failure(e, e->phase, 0, LS_ERR_MEMORY);
}

static bool is_at_end(const ls_executor *e, const ls_phase_units *w, int queue)
{
    return w->queue_first[queue] + e->next[queue] == w->queue_first[queue + 1];
}

/* Returns -1 at the end of the queue. */
static int take_next(ls_executor *e, const ls_phase_units *w, int queue)
{
    return is_at_end(e, w, queue) ? -1 : w->queue[w->queue_first[queue] + e->next[queue]++];
}

/* Returns -1 if there is none now. */
static int find_unit(ls_executor *e, int device)
{
    const ls_phase_units *w = &e->phases[e->phase];
    if (phase_at(e, e->phase)->kind == LS_PHASE_LANES)
        return find_lane_unit(e, device);
    int own = take_next(e, w, device);
    return own < 0 && is_cpu(e, device) ? take_next(e, w, e->devices) : own;
}

static bool has_unit(const ls_executor *e, int device)
{
    const ls_phase_units *w = &e->phases[e->phase];
    int end = unit_end(e, w);
    if (phase_at(e, e->phase)->kind == LS_PHASE_LANES)
        return furthest_unit(e, w, device, end, false) >= 0 || next_lane_unit(e, w, device, end) >= 0;
    return !is_at_end(e, w, device) || (is_cpu(e, device) && !is_at_end(e, w, e->devices));
}

/* Whether this device gets more units, before the failed one if any. */
static bool has_more(const ls_executor *e, int device)
{
    if (e->phase >= e->plan->phase_count)
        return false;
    if (e->failure.status == LS_OK)
        return true;
    if (e->phase != e->failed_phase || phase_at(e, e->phase)->kind != LS_PHASE_LANES)
        return false;
    const ls_phase_units *w = &e->phases[e->phase];
    for (int i = 0; i < e->failed_unit; i++)
        if (w->units[i].device == device && !is_started(e, w, i))
            return true;
    return false;
}

/* ---- Threads ---- */

/* Whether idle threads spin before they sleep. */
static bool spins(const ls_executor *e, int device)
{
    return is_cpu(e, device) && !ls_thread_pool_is_crowded(e->thread_pool);
}

/* Wakes sleeping threads. Devices that spin are always woken: a unit may come soon. Others only if
 * they have a unit or are at the end, as most wake-ups would find nothing. */
static void signal_progress(ls_executor *e)
{
    atomic_fetch_add_explicit(&e->progress, 1, memory_order_release);
    for (int d = 0; d < e->devices; d++)
        if (e->sleepers[d].count > 0 && (spins(e, d) || !has_more(e, d) || has_unit(e, d)))
            pthread_cond_broadcast(&e->sleepers[d].wake);
}

/* The mutex is held on entry and exit. */
static void wait_for_progress(ls_executor *e, int device)
{
    int seen = atomic_load_explicit(&e->progress, memory_order_relaxed);
    if (spins(e, device)) {
        pthread_mutex_unlock(&e->mutex);
        for (int i = 0; i < SPINS && atomic_load_explicit(&e->progress, memory_order_acquire) == seen; i++)
            __builtin_ia32_pause();
        pthread_mutex_lock(&e->mutex);
    }
    if (atomic_load_explicit(&e->progress, memory_order_relaxed) == seen) {
        e->sleepers[device].count++;
        pthread_cond_wait(&e->sleepers[device].wake, &e->mutex);
        e->sleepers[device].count--;
    }
}

static void count_work(ls_meter *m, ls_phase_kind kind, double seconds)
{
    *(kind < LS_PHASE_HOME ? &m->busy : &m->joins) += seconds;
    m->lanes += kind == LS_PHASE_LANES ? seconds : 0;
}

static void count_waiting(ls_meter *m, ls_phase_kind kind, double seconds)
{
    m->waiting += seconds;
    m->idle += kind == LS_PHASE_LANES ? seconds : 0;
    m->joins += kind >= LS_PHASE_HOME ? seconds : 0;
}

static ls_status run_units(ls_executor *e, const ls_phase *phase, const int *which, int count, int thread, int *failed)
{
    const ls_unit *units = e->phases[e->phase].units, *u = &units[which[0]];
    ls_driver *driver = u->device >= 0 ? e->drivers[u->device] : NULL;
    *failed = 0;
    if (!driver)
        return ls_host_run(e, phase, u, thread);
    if (count == 1)
        return ls_driver_run(driver, e, phase, u, thread);
    const ls_unit **list = e->together + thread * e->plan->lanes;
    for (int i = 0; i < count; i++)
        list[i] = &units[which[i]];
    return ls_driver_run_lanes(driver, e, list, count, thread, failed);
}

/* Releases the mutex while running. */
static void do_units(ls_executor *e, const int *which, int count, int thread)
{
    const ls_phase *phase = phase_at(e, e->phase);
    const ls_unit *units = e->phases[e->phase].units, *u = &units[which[0]];
    int failed;
    pthread_mutex_unlock(&e->mutex);
    double start = ls_clock_now();
    ls_status status = run_units(e, phase, which, count, thread, &failed);
    for (int i = 0; phase->kind == LS_PHASE_LANES && status == LS_OK && i < count; i++)
        status = ls_audit_lane(e, &units[which[i]], thread);
    double end = ls_clock_now(), seconds = end - start;
    e->phase_seconds[thread * LS_PHASE_KINDS + (int)phase->kind] += seconds;
    count_work(&e->meters[thread], phase->kind, seconds);
    if (e->timeline)
        ls_timeline_unit(e, thread, phase, u, start, end);
    pthread_mutex_lock(&e->mutex);
    for (int i = 0; phase->kind == LS_PHASE_LANES && i < count; i++)
        e->lane_flops[u->device] += units[which[i]].flops;
    if (phase->kind == LS_PHASE_LANES)
        e->lane_seconds[u->device] += seconds;
    if (phase->kind == LS_PHASE_LANES)
        end_lane_units(e, which, count, failed, thread, status);
    else if (status != LS_OK)
        note_failure(e, e->phase, which[0], status);
    e->done += count;
    if (e->done == e->phases[e->phase].count) {
        e->phase++;
        start_phase(e);
    }
}

/* Identical units of one phase need no wake-up, but a lane may free what another thread waits
 * for. */
static void thread_loop(void *user, int thread)
{
    ls_executor *e = user;
    int device = e->device_of[thread];
    double begin = ls_clock_now();
    pthread_mutex_lock(&e->mutex);
    while (has_more(e, device)) {
        int index = find_unit(e, device), phase = e->phase;
        if (index < 0) {
            double start = ls_clock_now();
            wait_for_progress(e, device);
            count_waiting(&e->meters[thread], phase_at(e, phase)->kind, ls_clock_now() - start);
            continue;
        }
        int *which = e->taken + thread * e->plan->lanes, count = 1;
        which[0] = index;
        if (phase_at(e, phase)->kind == LS_PHASE_LANES)
            count = find_more_lanes(e, device, which);
        do_units(e, which, count, thread);
        if (e->phase != phase || e->failure.status != LS_OK || e->devices > 1 ||
            phase_at(e, phase)->kind == LS_PHASE_LANES)
            signal_progress(e);
    }
    pthread_mutex_unlock(&e->mutex);
    e->meters[thread].present = ls_clock_now() - begin;
}

/* The calling thread may run units of any device. */
static void run_alone(ls_executor *e)
{
    double begin = ls_clock_now();
    pthread_mutex_lock(&e->mutex); /* Uncontended, but units release it. */
    while (e->phase < e->plan->phase_count && e->failure.status == LS_OK) {
        const ls_phase_units *w = &e->phases[e->phase];
        int index = e->done;
        if (phase_at(e, e->phase)->kind == LS_PHASE_LANES)
            index = find_lane_unit(e, w->units[index].device);
        do_units(e, &index, 1, 0);
    }
    pthread_mutex_unlock(&e->mutex);
    e->meters[0].present = ls_clock_now() - begin;
}

void ls_dispatch(ls_executor *e)
{
    e->failure.status = LS_OK;
    e->phase = 0;
    start_phase(e);
    if (e->thread_pool)
        ls_thread_pool_run(e->thread_pool, e->wanted, thread_loop, e);
    else
        run_alone(e);
}
