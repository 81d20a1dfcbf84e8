/* A simulated world: whose turn it is, the time, and the events of workers. The transport itself is
 * in sim_lines.c. */
#include "sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "sim_world.h"

#define CALL_COST  1e-6 /* simulated seconds of a call; so a loop that only asks for the time comes to an end */
#define BUSY       1e-3 /* simulated seconds that others go on between two calls, at most */
#define LATE_CALLS 10000

_Thread_local ls_sim_worker *ls_sim_own_worker;

/* ---- Making a world ---- */

static const ls_transport_table *transport_of_thread(void)
{
    return ls_sim_own_worker ? &ls_transport_sim : NULL;
}

ls_status ls_sim_create(const ls_sim_settings *settings, ls_sim **out)
{
    ls_sim *sim = calloc(1, sizeof(*sim));
    if (!sim)
        return ls_fail(LS_ERR_MEMORY, "no memory for a simulated world");
    ls_transport_for_test = transport_of_thread;
    sim->settings = *settings;
    ls_sim_settings *s = &sim->settings;
    s->least_delay = s->least_delay > 0 ? s->least_delay : 50e-6;
    s->most_delay = s->most_delay > 0 ? s->most_delay : 2e-3;
    s->limit = s->limit > 0 ? s->limit : 600;
    s->window = s->window ? s->window : 65536;
    sim->random = s->seed;
    sim->hash = 0xcbf29ce484222325;
    sem_init(&sim->finished, 0, 0);
    *out = sim;
    return LS_OK;
}

void ls_sim_destroy(ls_sim *sim)
{
    if (!sim)
        return;
    ls_sim_free_lines(sim);
    for (int w = 0; w < sim->worker_count; w++) {
        sem_destroy(&sim->workers[w]->turn);
        free(sim->workers[w]);
    }
    sem_destroy(&sim->finished);
    ls_text_free(&sim->story);
    free(sim->events);
    free(sim->splits);
    free(sim);
}

ls_status ls_sim_add_worker(ls_sim *sim, double begins, ls_sim_work work, void *user)
{
    if (sim->worker_count == LS_MAX_SIM_WORKERS)
        return ls_fail(LS_ERR_INVALID, "a simulated world has at most %d workers", LS_MAX_SIM_WORKERS);
    ls_sim_worker *w = calloc(1, sizeof(*w));
    if (!w)
        return ls_fail(LS_ERR_MEMORY, "no memory for a simulated worker");
    *w = (ls_sim_worker){
        .sim = sim, .number = sim->worker_count, .work = work, .user = user, .at = begins, .vanished = INFINITY
    };
    sem_init(&w->turn, 0, 0);
    sim->workers[sim->worker_count++] = w;
    return LS_OK;
}

ls_status ls_sim_add_event(ls_sim *sim, const ls_sim_event *event)
{
    if (event->fate != LS_SIM_SPLIT || event->call > 0)
        if (event->worker < 0 || event->worker >= sim->worker_count)
            return ls_fail(LS_ERR_INVALID, "a simulated event befalls worker %d of %d", event->worker,
                           sim->worker_count);
    LS_TRY(ls_grow(&sim->events, sim->event_count, &sim->event_room, sizeof(*sim->events)));
    sim->events[sim->event_count++] = *event;
    return LS_OK;
}

/* ---- Chance: splitmix64 ---- */

uint64_t ls_sim_random(ls_sim *sim, uint64_t below)
{
    uint64_t x = sim->random += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return (x ^ (x >> 31)) % below;
}

static double random_up_to(ls_sim *sim, double most)
{
    return most * (double)ls_sim_random(sim, 1 << 20) * 0x1p-20;
}

double ls_sim_delay(ls_sim *sim)
{
    const ls_sim_settings *s = &sim->settings;
    double delay = s->least_delay + random_up_to(sim, s->most_delay - s->least_delay);
    return ls_sim_random(sim, 32) == 0 ? 10 * delay : delay;
}

/* ---- What happened ---- */

static void add_to_hash(ls_sim *sim, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        sim->hash = (sim->hash ^ (value >> 8 * i & 255)) * 0x100000001b3;
}

void ls_sim_note(ls_sim_worker *w, const char *what, const ls_connection *line, size_t amount)
{
    ls_sim *sim = w->sim;
    uint64_t time;
    memcpy(&time, &sim->now, sizeof(time));
    add_to_hash(sim, time);
    add_to_hash(sim, (uint64_t)w->number << 32 | (uint64_t)(line ? line->wire->number + 1 : 0));
    add_to_hash(sim, amount);
    if (!sim->settings.story)
        return;
    ls_text_add(&sim->story, "%.6f worker %d, call %lld: %s", sim->now, w->number, (long long)w->calls, what);
    if (line)
        ls_text_add(&sim->story, " %zu (line %d with worker %d)", amount, line->wire->number,
                    line->wire->ends[!line->side].worker->number);
    ls_text_put(&sim->story, "\n");
}

double ls_sim_time(const ls_sim *sim)
{
    return sim->now;
}

uint64_t ls_sim_hash(const ls_sim *sim)
{
    return sim->hash;
}

int64_t ls_sim_calls(const ls_sim *sim, int worker)
{
    return sim->workers[worker]->calls;
}

bool ls_sim_was_killed(const ls_sim *sim, int worker)
{
    return sim->workers[worker]->dead;
}

const char *ls_sim_story(const ls_sim *sim)
{
    return ls_text_get(&sim->story);
}

int ls_sim_self(void)
{
    return ls_sim_own_worker ? ls_sim_own_worker->number : -1;
}

/* ---- The end of a world before its workers' ---- */

static void describe_state(const ls_sim_worker *w, ls_text *out)
{
    if (w->state == LS_SIM_DONE)
        return;
    ls_text_add(out, "; worker %d ", w->number);
    if (w->state == LS_SIM_BEFORE)
        ls_text_add(out, "begins at %g s", w->at);
    else if (w->state == LS_SIM_READY)
        ls_text_add(out, "is busy");
    else
        ls_sim_describe_waits(w, out);
    if (w->frozen > w->sim->now)
        ls_text_add(out, ", stopped until %g s", w->frozen);
}

static void end_world(ls_sim *sim, const char *why)
{
    ls_text text = { 0 };
    ls_text_add(&text, "%s (seed %llu, at %.6f simulated s)", why, (unsigned long long)sim->settings.seed, sim->now);
    for (int w = 0; w < sim->worker_count; w++)
        describe_state(sim->workers[w], &text);
    ls_error_keep(&sim->over, ls_fail(LS_ERR_STATE, "%s", ls_text_get(&text)));
    ls_text_free(&text);
}

ls_status ls_sim_blame(ls_sim_worker *w, const char *format, ...)
{
    ls_sim *sim = w->sim;
    va_list args;
    va_start(args, format);
    ls_fail_v(LS_ERR_INTERNAL, format, args);
    va_end(args);
    ls_status status = ls_fail_within(LS_ERR_INTERNAL, "simulated worker %d, seed %llu, at %.6f s, call %lld",
                                      w->number, (unsigned long long)sim->settings.seed, sim->now, (long long)w->calls);
    if (sim->over.status == LS_OK)
        ls_error_keep(&sim->over, status);
    return status;
}

ls_status ls_sim_is_over(ls_sim_worker *w)
{
    if (w->sim->over.status == LS_OK && !w->dead)
        return LS_OK;
    if (++w->late_calls > LATE_CALLS)
        return ls_sim_blame(w, "it goes on after its end: %d calls of the transport", LATE_CALLS);
    return w->dead ? ls_fail(LS_ERR_STATE, "simulated worker %d was killed", w->number)
                   : ls_fail(LS_ERR_STATE, "the simulated world has ended");
}

/* ---- Events of workers ---- */

static const char *fate_name(ls_sim_fate fate)
{
    static const char *const names[] = { "is killed", "vanishes", "is stopped", "loses lines", "a split begins" };
    return names[fate];
}

static void befall(ls_sim *sim, const ls_sim_event *e)
{
    ls_sim_worker *w = sim->workers[e->fate == LS_SIM_SPLIT && e->call == 0 ? 0 : e->worker];
    if (e->fate != LS_SIM_SPLIT && (w->dead || w->state == LS_SIM_DONE))
        return;
    ls_sim_note(w, fate_name(e->fate), NULL, (size_t)e->fate);
    switch (e->fate) {
    case LS_SIM_KILL:
    case LS_SIM_VANISH:
        w->dead = true;
        w->vanished = e->fate == LS_SIM_VANISH ? sim->now : INFINITY;
        ls_sim_end_lines(w, e->fate == LS_SIM_VANISH);
        break;
    case LS_SIM_STOP:
        w->frozen = sim->now + e->seconds;
        break;
    case LS_SIM_CUT:
        ls_sim_cut(sim, e->worker, e->other);
        break;
    case LS_SIM_SPLIT: /* room was made before the run */
        sim->splits[sim->split_count++] = (ls_sim_split){ e->side, e->one_way, sim->now, sim->now + e->seconds };
        if (e->cuts)
            ls_sim_cut_across(sim, e->side);
        break;
    }
}

static void take_event(ls_sim *sim, size_t index)
{
    ls_sim_event event = sim->events[index];
    sim->events[index] = sim->events[--sim->event_count];
    befall(sim, &event);
}

/* The next event that has a time; sim->event_count: there is none. */
static size_t next_event(const ls_sim *sim)
{
    size_t next = sim->event_count;
    for (size_t i = 0; i < sim->event_count; i++)
        if (sim->events[i].call == 0 && (next == sim->event_count || sim->events[i].time < sim->events[next].time))
            next = i;
    return next;
}

static void take_events_up_to(ls_sim *sim, double time)
{
    size_t next;
    while ((next = next_event(sim)) < sim->event_count && sim->events[next].time <= time) {
        sim->now = sim->events[next].time > sim->now ? sim->events[next].time : sim->now;
        take_event(sim, next);
    }
}

static void take_events_of_call(ls_sim_worker *w)
{
    ls_sim *sim = w->sim;
    for (size_t i = 0; i < sim->event_count;) {
        ls_sim_event *e = &sim->events[i];
        bool now = e->worker == w->number && e->call == w->calls;
        if (now && (w->in_wait || !e->waiting)) {
            take_event(sim, i);
            continue;
        }
        e->call += now; /* it waits for a wait */
        i++;
    }
}

/* ---- Whose turn it is ---- */

static double goes_on_at(const ls_sim_worker *w)
{
    double at = w->at;
    if (w->dead || w->sim->over.status != LS_OK)
        return w->sim->now;
    if (w->state == LS_SIM_WAITING) {
        double ready = ls_sim_ready_at(w);
        at = ready < at ? ready : at;
    }
    at = at > w->frozen ? at : w->frozen;
    return at > w->sim->now ? at : w->sim->now;
}

/* The worker that continues first; any of several at the same time. NULL: none ever does. */
static ls_sim_worker *first_to_go_on(ls_sim *sim, double *time)
{
    ls_sim_worker *found[LS_MAX_SIM_WORKERS];
    int count = 0;
    *time = INFINITY;
    for (int i = 0; i < sim->worker_count; i++) {
        ls_sim_worker *w = sim->workers[i];
        double at = w->state == LS_SIM_DONE ? INFINITY : goes_on_at(w);
        if (at < *time)
            count = 0;
        *time = at < *time ? at : *time;
        if (at == *time && at < INFINITY)
            found[count++] = w;
    }
    return count ? found[ls_sim_random(sim, (uint64_t)count)] : NULL;
}

static bool all_done(const ls_sim *sim)
{
    for (int w = 0; w < sim->worker_count; w++)
        if (sim->workers[w]->state != LS_SIM_DONE)
            return false;
    return true;
}

/* Moves the clock to the next moment at which a worker goes on, and returns it; NULL: all are
 * done. */
static ls_sim_worker *next_worker(ls_sim *sim)
{
    while (!all_done(sim)) {
        double time;
        ls_sim_worker *w = first_to_go_on(sim, &time);
        size_t event = next_event(sim);
        double limit = sim->settings.limit;
        if (event < sim->event_count && sim->events[event].time <= time && sim->events[event].time <= limit) {
            take_events_up_to(sim, sim->events[event].time);
        } else if (!w) {
            end_world(sim, "deadlock: all simulated workers wait and nothing can come");
        } else if (time > limit && sim->over.status == LS_OK) {
            end_world(sim, "the simulated time is over");
        } else {
            sim->now = time;
            return w;
        }
    }
    return NULL;
}

static void await_turn(sem_t *turn)
{
    while (sem_wait(turn) < 0 && errno == EINTR) {
    }
}

static void hand_over(ls_sim *sim, ls_sim_worker *next)
{
    sim->running = next;
    sem_post(next ? &next->turn : &sim->finished);
}

ls_status ls_sim_pass_on(ls_sim_worker *w, ls_sim_state state, double at)
{
    w->state = state;
    w->at = at;
    ls_sim_worker *next = next_worker(w->sim);
    if (next != w) {
        hand_over(w->sim, next);
        await_turn(&w->turn);
    }
    w->state = LS_SIM_READY;
    return ls_sim_is_over(w);
}

ls_status ls_sim_enter(ls_sim_worker *w)
{
    ls_sim *sim = w->sim;
    LS_TRY(ls_sim_is_over(w));
    if (sim->running != w)
        return ls_sim_blame(w, "it calls the transport while it is another worker's turn: by a second thread");
    w->calls++;
    take_events_up_to(sim, sim->now += CALL_COST);
    take_events_of_call(w);
    LS_TRY(ls_sim_is_over(w));
    if (ls_sim_random(sim, 8) == 0 || w->frozen > sim->now)
        return ls_sim_pass_on(w, LS_SIM_READY, sim->now + random_up_to(sim, BUSY));
    return LS_OK;
}

/* ---- Running ---- */

static void *live(void *user)
{
    ls_sim_worker *w = user;
    ls_sim *sim = w->sim;
    await_turn(&w->turn);
    ls_sim_own_worker = w;
    w->state = LS_SIM_READY;
    if (sim->over.status == LS_OK && !w->dead) {
        ls_sim_note(w, "begins", NULL, 0);
        w->work(w->user);
        ls_sim_note(w, "is done", NULL, 0);
        ls_sim_check_end(w); /* a failure ends the world */
        if (!w->dead)
            ls_sim_end_lines(w, false);
    }
    w->state = LS_SIM_DONE;
    hand_over(sim, next_worker(sim));
    return NULL;
}

/* Workers whose thread could not be made are done from the start. */
static ls_status start_threads(ls_sim *sim, int *started)
{
    for (*started = 0; *started < sim->worker_count; ++*started) {
        ls_sim_worker *w = sim->workers[*started];
        if (pthread_create(&w->thread, NULL, live, w) == 0)
            continue;
        for (int i = *started; i < sim->worker_count; i++)
            sim->workers[i]->state = LS_SIM_DONE;
        return ls_fail(LS_ERR_MEMORY, "no thread for simulated worker %d", w->number);
    }
    return LS_OK;
}

ls_status ls_sim_run(ls_sim *sim)
{
    int started;
    if (sim->ran)
        return ls_fail(LS_ERR_STATE, "a simulated world runs once");
    sim->ran = true;
    while (sim->split_room < sim->event_count)
        LS_TRY(ls_grow(&sim->splits, sim->split_room, &sim->split_room, sizeof(*sim->splits)));
    ls_status status = start_threads(sim, &started);
    if (status != LS_OK)
        ls_error_keep(&sim->over, status);
    ls_sim_worker *first = next_worker(sim);
    if (first) {
        hand_over(sim, first);
        await_turn(&sim->finished);
    }
    for (int w = 0; w < started; w++)
        pthread_join(sim->workers[w]->thread, NULL);
    return ls_error_give(&sim->over);
}
