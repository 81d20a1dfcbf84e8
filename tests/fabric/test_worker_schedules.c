/* The protocol of workers, under seeded schedules of a simulated network: workers die at any call,
 * two at once, stand still, vanish, lose lines and are split from each other, with and without
 * resets of their connections; others come later, or come back. In a third of them some workers are
 * parameter servers. Each worker that is left ends with the bits of one process and has made every
 * step once, at most one side of a split continues, and no worker hangs.
 *
 * LS_SCHEDULES=N runs that many (400 by default), from LS_FIRST_SCHEDULE on; LS_SCHEDULE=SEED one
 * of them, with its story on standard error; LS_SPLIT=SEED one with resets, LS_TWINS=SEED one with
 * two processes of one rank. */
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/philox.h"
#include "device/context.h"
#include "sim.h"
#include "lockstep.h"
#include "run/peers.h"

#define MOST       5 /* workers */
#define MORE       3 /* workers that join later, or return */
#define SAMPLES    13
#define FEATURES   4
#define CLASSES    3
#define MOST_LOG   1000
#define MOST_STEPS 64
#define TWINS      5   /* schedules with two processes of one rank */
#define STOPPED    40  /* schedules with a stopped worker on one machine */
#define REAL_TIME  250 /* seconds that a schedule may take, on a machine that does much else */

static uint8_t features[SAMPLES * FEATURES];
static int32_t labels[SAMPLES];

/* ---- Jobs ---- */

typedef struct job {
    bool normed; /* with joins in mid-step, and some that are posted */
    int lanes, batch, epochs;
} job;

static const job jobs[] = { { false, 4, 4, 2 }, { true, 4, 5, 2 },  { true, 5, 13, 2 },
                            { false, 2, 3, 2 }, { false, 4, 4, 8 }, { true, 4, 5, 6 } };
#define JOBS (sizeof(jobs) / sizeof(*jobs))
#define LONG 4 /* the first of those that last longer */

typedef struct outcome {
    ls_status status;
    char message[400];
    bool met;                      /* the others */
    int64_t steps;                 /* up to the last that was made */
    int64_t made;                  /* by this worker */
    bool disordered;               /* a step was made twice, or left out */
    uint64_t with[MOST_STEPS + 1]; /* by step: the ranks with which it was made */
    ls_peers *peers;               /* the others; NULL: it is alone */
    char hash[65];
    char log[MOST_LOG];
} outcome;

typedef struct member {
    const job *job;
    ls_cluster_options cluster; /* size 1: alone */
    outcome out;
} member;

static void keep_line(void *user, ls_log_level level, const char *line)
{
    outcome *out = user;
    size_t used = strlen(out->log);
    (void)level;
    snprintf(out->log + used, sizeof(out->log) - used, "        %s\n", line);
}

/* With every third step workers are given other lanes: as measured speed would do it, without
 * measuring. */
static ls_status count_step(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    outcome *out = user;
    uint32_t weights[MOST + MORE];
    (void)model, (void)stop;
    out->disordered |= out->made++ ? logs->step != out->steps + 1 : logs->step < 1;
    out->steps = logs->step;
    for (int i = 0; out->peers && logs->step <= MOST_STEPS && i < out->peers->count; i++)
        out->with[logs->step] |= 1ull << out->peers->members[i];
    if (!out->peers || logs->step % 3 != 0)
        return LS_OK;
    for (int i = 0; i < MOST + MORE; i++)
        weights[i] = 1 + (uint32_t)(logs->step * 7 + i * 5) % 11;
    return ls_peers_weigh(out->peers, weights);
}

static ls_status train(ls_context *ctx, const job *j, outcome *out, ls_model **model)
{
    ls_status status =
        j->normed ? ls_sequential(ctx, "normed", model, ls_input(FEATURES), ls_dense(5), ls_batch_normalization(),
                                  ls_relu(), ls_dense(4), ls_batch_normalization(), ls_relu(),
                                  ls_dense(CLASSES, .activation = LS_SOFTMAX))
                  : ls_sequential(ctx, "plain", model, ls_input(FEATURES), ls_dense(CLASSES, .activation = LS_SOFTMAX));
    if (status == LS_OK && ctx->cluster) /* with servers they would not before the strategy is known */
        status = ls_library_hooks.meet_cluster(ctx);
    if (status != LS_OK)
        return status;
    out->met = true;
    out->peers = ctx->peers;
    status = ls_compile(*model, .optimizer = ls_sgd(.momentum = 0.9), .loss = ls_sparse_categorical_crossentropy());
    ls_dataset *set = ls_from_tensor_slices(ls_array_of(LS_U8, LS_SHAPE(SAMPLES, FEATURES), features),
                                            ls_array_of(LS_I32, LS_SHAPE(SAMPLES), labels), .keep = LS_KEEP_BORROWED);
    ls_callback counter = { .user = out, .on_batch_end = count_step };
    if (status == LS_OK)
        status = ls_fit(*model, set, .epochs = j->epochs, .batch_size = j->batch, .lanes = j->lanes, .validation = set,
                        .verbose = LS_VERBOSE_SILENT, .callbacks = ls_callbacks(counter), .audit = j->batch % 3);
    if (status == LS_OK)
        status = ls_cluster_barrier(ctx, "the end");
    if (status == LS_OK)
        status = ls_model_state_sha256(*model, out->hash);
    ls_dataset_destroy(set);
    return status;
}

static void run_member(void *user)
{
    member *m = user;
    ls_context *ctx = NULL;
    ls_model *model = NULL;
    outcome *out = &m->out;
    out->status = ls_context_create(
        &(ls_context_options){ .cpu_devices = 1, .threads = 1, .log_sink = keep_line, .log_user = out }, &ctx);
    if (out->status == LS_OK)
        out->status = ls_cluster_join(ctx, &m->cluster);
    if (out->status == LS_OK)
        out->status = train(ctx, m->job, out, &model);
    if (out->status != LS_OK)
        snprintf(out->message, sizeof(out->message), "%s: %s", ls_status_name(out->status), ls_last_error());
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- Schedules ---- */

typedef enum disturbance {
    NOTHING,
    KILL,
    TWO_KILLS,
    STOP,
    SPLIT,
    VANISH,
    CUT,
    CUT_SPLIT,
    ANYTHING,
    DISTURBANCES
} disturbance;

static const char *const names[] = { "nothing",    "a kill",
                                     "two kills",  "a stop",
                                     "a split",    "a worker that vanishes",
                                     "a cut line", "a split with resets",
                                     "anything" };

typedef struct schedule {
    uint64_t seed;
    int size, event_count;
    const job *job;
    disturbance what;
    ls_sim_event events[3];
    double begins[MOST + MORE];
    int ranks[MOST + MORE];
    int begin, more;   /* workers at the start; workers that join later */
    int servers;       /* the last ones at the start */
    bool local;        /* all on one machine */
    int must_end_well; /* number of workers, the killed ones included; if all have met before */
    ls_philox_key key;
    uint32_t drawn;
} schedule;

static uint32_t draw(schedule *s, uint32_t below)
{
    return ls_random_block(s->key, 0, 0, s->drawn++).word[0] % below;
}

/* The calls of the transport, and the time, that undisturbed workers need. */
static int64_t usual_calls[JOBS][MOST + 1];
static double usual_time[JOBS][MOST + 1];

static ls_sim_event draw_event(schedule *s, ls_sim_fate fate, int worker)
{
    size_t j = (size_t)(s->job - jobs);
    ls_sim_event e = { .fate = fate, .worker = worker, .other = -1 };
    if (draw(s, 4) > 0)
        e.call = 1 + draw(s, (uint32_t)(usual_calls[j][s->size] + 1));
    else
        e.time = usual_time[j][s->size] * draw(s, 1000) / 1000;
    e.seconds = draw(s, 2) ? 0.001 * (1 + draw(s, 500)) : 1.5 + draw(s, 3);
    if (fate == LS_SIM_SPLIT) {
        e.side = 1 + draw(s, (1u << s->size) - 2);
        e.cuts = s->what == CUT_SPLIT || (s->what == ANYTHING && draw(s, 2));
        e.one_way = e.cuts && draw(s, 3) == 0;
        if (e.cuts && draw(s, 3) == 0)
            e.seconds = INFINITY;
    }
    if (fate == LS_SIM_CUT)
        e.other = (worker + 1 + (int)draw(s, (uint32_t)s->size - 1)) % s->size;
    return e;
}

/* How many workers must end well, the killed ones included. One that was silent may have been heard
 * by some and not by others; but at least half of them continue. Two whose connection was cut
 * reconnect. A split may come when the members have just changed: then no side may be sure of a
 * quorum. */
static int count_that_must_end_well(const schedule *s)
{
    bool lone = s->size == 2 && s->events[0].worker == 0; /* worker 1 cannot know that worker 0 does not go on */
    switch (s->what) {
    case STOP:
    case SPLIT:
        return (s->size + 1) / 2;
    case VANISH:
        return lone ? 0 : s->size;
    case CUT:
        return s->size;
    case CUT_SPLIT:
    case ANYTHING:
        return 0;
    default:
        return s->size;
    }
}

/* Some that die, or any others, come back; or one more comes. */
static void draw_joining(schedule *s)
{
    double time = usual_time[s->job - jobs][s->size];
    s->more = 1 + (int)draw(s, MORE);
    if (s->what == CUT)
        s->must_end_well--; /* one of them may be called in the place of the worker that lost its connection */
    for (int i = 0; i < s->more; i++) {
        int w = s->size + i;
        s->begins[w] = 0.3 + time * draw(s, 1000) / 1000;
        s->ranks[w] = i < s->event_count && draw(s, 4) ? s->events[i].worker : (int)draw(s, (uint32_t)s->size);
    }
    if (s->event_count < 3 && draw(s, 2)) { /* one of them also dies */
        ls_sim_event *e = &s->events[s->event_count++];
        *e = draw_event(s, LS_SIM_KILL, s->size + (int)draw(s, (uint32_t)s->more));
    }
}

static void draw_schedule(uint64_t seed, disturbance only, schedule *s)
{
    static const ls_sim_fate fates[] = {
        [KILL] = LS_SIM_KILL,     [TWO_KILLS] = LS_SIM_KILL, [STOP] = LS_SIM_STOP,      [SPLIT] = LS_SIM_SPLIT,
        [VANISH] = LS_SIM_VANISH, [CUT] = LS_SIM_CUT,        [CUT_SPLIT] = LS_SIM_SPLIT
    };
    *s = (schedule){ .seed = seed, .key = ls_random_key(seed, LS_RANDOM_TEST, 15, 0) };
    s->size = 2 + (int)draw(s, MOST - 1);
    bool grows = draw(s, 3) == 0;
    s->job = &jobs[grows ? LONG + draw(s, JOBS - LONG) : draw(s, LONG)];
    s->what = (disturbance)(draw(s, 4) ? draw(s, 3) : draw(s, DISTURBANCES));
    s->what = only ? only : s->what;
    for (int w = 0; w < s->size; w++) {
        s->begins[w] = draw(s, 4) ? 0 : 0.001 * draw(s, 300);
        s->ranks[w] = w;
    }
    s->event_count = s->what == NOTHING ? 0 : s->what == TWO_KILLS ? 2 : s->what == ANYTHING ? 3 : 1;
    if (s->what == CUT_SPLIT)
        s->event_count += (int)draw(s, 3);
    s->local = s->what <= STOP && draw(s, 3) == 0;
    int first = (int)draw(s, (uint32_t)s->size);
    for (int i = 0; i < s->event_count; i++) {
        ls_sim_fate fate = s->what == ANYTHING ? (ls_sim_fate)draw(s, LS_SIM_SPLIT + 1) : fates[s->what];
        s->events[i] = draw_event(s, fate, (first + i) % s->size);
    }
    s->must_end_well = count_that_must_end_well(s);
    s->begin = s->size;
    s->servers = seed % 3 == 2 ? 1 + (int)(seed / 3) % (s->size - 1) : 0;
    if (grows)
        draw_joining(s);
}

static void describe(const schedule *s, char *out, size_t bytes)
{
    static const char *const fates[] = { "kill", "vanish", "stop", "cut", "split" };
    size_t n = (size_t)snprintf(out, bytes, "seed %llu: %s; %d workers, %d of them servers, %d lanes, batch %d%s",
                                (unsigned long long)s->seed, names[s->what], s->size, s->servers, s->job->lanes,
                                s->job->batch, s->job->normed ? ", normed" : "");
    for (int w = s->size; w < s->size + s->more && n < bytes; w++)
        n += (size_t)snprintf(out + n, bytes - n, "; worker %d comes as %d at %g s", w, s->ranks[w], s->begins[w]);
    for (int i = 0; i < s->event_count && n < bytes; i++) {
        const ls_sim_event *e = &s->events[i];
        n += (size_t)snprintf(out + n, bytes - n, "; %s of worker %d", fates[e->fate], e->worker);
        n += e->call ? (size_t)snprintf(out + n, bytes - n, " at its call %lld", (long long)e->call)
                     : (size_t)snprintf(out + n, bytes - n, " at %g s", e->time);
        if (e->fate == LS_SIM_STOP || e->fate == LS_SIM_SPLIT)
            n += (size_t)snprintf(out + n, bytes - n, " for %g s", e->seconds);
        if (e->fate == LS_SIM_SPLIT)
            n += (size_t)snprintf(out + n, bytes - n, ", side %x%s%s", e->side, e->one_way ? ", one way" : "",
                                  e->cuts ? ", with resets" : "");
        if (e->fate == LS_SIM_CUT)
            n += (size_t)snprintf(out + n, bytes - n, " from worker %d", e->other);
    }
}

/* ---- Running one ---- */

typedef struct run {
    schedule s;
    member members[MOST + MORE];
    ls_sim *sim;
    ls_status status;
    char message[2000];
} run;

static outcome alone[JOBS];

static void start(run *r, bool story)
{
    const schedule *s = &r->s;
    ls_sim_settings settings = {
        .seed = s->seed, .limit = 100, .window = s->seed % 3 ? 0 : 300, .local = s->local, .story = story
    };
    assert_int_equal(ls_sim_create(&settings, &r->sim), LS_OK);
    for (int w = 0; w < s->size + s->more; w++) {
        r->members[w] = (member){ .job = s->job, .out.status = LS_ERR_STATE };
        r->members[w].cluster =
            (ls_cluster_options){ s->ranks[w], s->size, "simulated", .join_limit = 10, .silence_limit = 1 };
        r->members[w].cluster.servers = s->servers;
        assert_int_equal(ls_sim_add_worker(r->sim, s->begins[w], run_member, &r->members[w]), LS_OK);
    }
    for (int i = 0; i < s->event_count; i++)
        assert_int_equal(ls_sim_add_event(r->sim, &s->events[i]), LS_OK);
    alarm(REAL_TIME);
    r->status = ls_sim_run(r->sim);
    alarm(0);
    snprintf(r->message, sizeof(r->message), "%s", r->status == LS_OK ? "" : ls_last_error());
}

static bool all_met(const run *r)
{
    for (int w = 0; w < r->s.size; w++)
        if (!r->members[w].out.met)
            return false;
    return true;
}

/* Whether as many went on as must. */
static bool enough_went_on(const run *r)
{
    int good = 0;
    for (int w = 0; w < r->s.size; w++)
        good += r->members[w].out.status == LS_OK || ls_sim_was_killed(r->sim, w);
    return good >= r->s.must_end_well;
}

/* Whether another worker made a step without this one that this one made without it. */
static bool is_split_brain(const run *r, int w)
{
    const outcome *own = &r->members[w].out;
    for (int o = 0; w < r->s.size && o < r->s.size; o++) { /* workers that join later may start another job */
        const outcome *other = &r->members[o].out;
        for (int step = 1; o != w && step <= MOST_STEPS; step++)
            if (own->with[step] && other->with[step] && !(own->with[step] >> r->s.ranks[o] & 1) &&
                !(other->with[step] >> r->s.ranks[w] & 1))
                return true;
    }
    return false;
}

/* The error in a worker's end, or NULL. */
static const char *find_fault(const run *r, int w)
{
    const outcome *out = &r->members[w].out, *right = &alone[r->s.job - jobs];
    if (out->disordered)
        return "a step was made twice, or left out";
    if (is_split_brain(r, w))
        return "another side of the split went on, too";
    bool idle = out->made == 0; /* it joined, or returned, after the last step */
    if (out->status == LS_OK && (strcmp(out->hash, right->hash) != 0 || (out->steps != right->steps && !idle)))
        return "it has other bits than one process, or other steps";
    if (out->status == LS_OK || ls_sim_was_killed(r->sim, w))
        return NULL;
    if (w >= r->s.size) /* it came too late, or too early: its rank was still there */
        return out->status == LS_ERR_PEER || out->status == LS_ERR_STATE ? NULL : "it failed for another reason";
    if (out->status != LS_ERR_PEER)
        return "it failed for another reason than that others are lost";
    return all_met(r) && !enough_went_on(r) ? "it did not go on, or another one should have" : NULL;
}

static bool is_good(const run *r)
{
    bool good = r->status == LS_OK;
    for (int w = 0; w < r->s.size + r->s.more; w++)
        good = good && !find_fault(r, w);
    return good;
}

static void tell(const run *r)
{
    char text[1000];
    describe(&r->s, text, sizeof(text));
    fprintf(stderr, "%s\n    %s\n", text, r->message);
    for (int w = 0; w < r->s.size + r->s.more; w++) {
        const outcome *out = &r->members[w].out;
        const char *fault = find_fault(r, w);
        fprintf(stderr, "    worker %d: %s, %lld calls, %lld steps, %s %s%s\n%s", w, fault ? fault : "good",
                (long long)ls_sim_calls(r->sim, w), (long long)out->steps, out->met ? "met" : "not met", out->message,
                ls_sim_was_killed(r->sim, w) ? " (killed)" : "", out->log);
    }
}

static int joined; /* workers that joined later and trained to the end */

static bool run_one(run *r, bool story)
{
    start(r, story);
    bool good = is_good(r);
    if (story)
        fprintf(stderr, "%s", ls_sim_story(r->sim));
    if (!good || story)
        tell(r);
    return good;
}

/* only: the disturbance; NOTHING: any. */
static bool run_schedule(uint64_t seed, disturbance only, bool story, uint64_t *hash)
{
    static run r;
    draw_schedule(seed, only, &r.s);
    bool good = run_one(&r, story);
    for (int w = r.s.size; w < r.s.size + r.s.more; w++)
        joined += r.members[w].out.status == LS_OK && r.members[w].out.made > 0 &&
                  r.members[w].out.made < r.members[w].out.steps;
    *hash = ls_sim_hash(r.sim);
    ls_sim_destroy(r.sim);
    return good;
}

/* ---- Before all ---- */

static volatile uint64_t current;

static void out_of_time(int signal)
{
    char text[100];
    (void)signal;
    int n = snprintf(text, sizeof(text), "schedule %llu hangs\n", (unsigned long long)current);
    if (write(2, text, (size_t)n) < 0) {
        /* no matter */
    }
    _exit(1);
}

/* Only one simulated worker runs at a time: with the next one on the same core this takes a third
 * less time. */
static void stay_here(void)
{
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    (void)sched_setaffinity(0, sizeof(here), &here);
}

static int prepare(void **state)
{
    (void)state;
    stay_here();
    signal(SIGALRM, out_of_time);
    for (int i = 0; i < SAMPLES * FEATURES; i++)
        features[i] = (uint8_t)((unsigned)i * 2654435761u >> 24);
    for (int i = 0; i < SAMPLES; i++)
        labels[i] = i * 7 % CLASSES;
    for (size_t j = 0; j < JOBS; j++) {
        static member m;
        m = (member){ .job = &jobs[j], .cluster = { .rank = 0, .size = 1 } };
        run_member(&m);
        alone[j] = m.out;
        if (m.out.status != LS_OK || m.out.disordered)
            return -1;
        for (int size = 2; size <= MOST; size++) {
            static run r;
            r.s = (schedule){ .seed = 1, .size = size, .job = &jobs[j], .must_end_well = size };
            for (int w = 0; w < size; w++)
                r.s.ranks[w] = w;
            start(&r, false);
            if (!is_good(&r)) {
                tell(&r);
                return -1;
            }
            usual_calls[j][size] = ls_sim_calls(r.sim, 1);
            usual_time[j][size] = ls_sim_time(r.sim);
            ls_sim_destroy(r.sim);
        }
    }
    return 0;
}

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
    const char *value = getenv(variable);
    return value && *value ? strtoull(value, NULL, 10) : otherwise;
}

static void survivors_have_the_bits_of_one_process(void **state)
{
    (void)state;
    uint64_t first = number_of("LS_SCHEDULE", number_of("LS_FIRST_SCHEDULE", 0)), hash, again;
    bool one = getenv("LS_SCHEDULE") != NULL;
    uint64_t count = one ? 1 : number_of("LS_SCHEDULES", 400);
    int bad = 0;
    for (current = first; current < first + count && bad < 10; current++) {
        bad += !run_schedule(current, NOTHING, one, &hash);
        if (current % 50 == 0 && !one) {
            run_schedule(current, NOTHING, false, &again);
            if (hash != again)
                fail_msg("schedule %llu does not happen again as it did", (unsigned long long)current);
        }
    }
    print_message("%d workers joined a job that ran\n", joined);
    if (!one && joined < (int)(count / 50))
        fail_msg("only %d workers joined a job that ran, of %llu schedules", joined, (unsigned long long)count);
    if (bad)
        fail_msg("%d bad schedules; LS_SCHEDULE=SEED %s tells one's story", bad, "build/tests/test_worker_schedules");
}

/* Connections are reset and routes are gone at any moment: both ways or one way, for a while or for
 * ever. */
static void at_most_one_side_of_a_split_continues(void **state)
{
    (void)state;
    uint64_t first = number_of("LS_SPLIT", number_of("LS_FIRST_SCHEDULE", 0)), hash;
    bool one = getenv("LS_SPLIT") != NULL;
    uint64_t count = one ? 1 : number_of("LS_SCHEDULES", 400) / 4;
    int bad = 0;
    for (current = first; current < first + count && bad < 10; current++)
        bad += !run_schedule(current, current % 4 ? CUT_SPLIT : CUT, one, &hash);
    if (bad)
        fail_msg("%d bad schedules; LS_SPLIT=SEED %s tells one's story", bad, "build/tests/test_worker_schedules");
}

/* On one machine a worker that was stopped finds closed connections, and may have missed the
 * announcement: its peers filled the small window with heartbeats. It must not take them for dead
 * and go on alone. */
static void a_stopped_worker_does_not_continue_alone(void **state)
{
    (void)state;
    uint64_t only = number_of("LS_STOPPED", 0);
    for (uint64_t seed = only ? only : 3; seed <= (only ? only : 3 * STOPPED); seed += 3) { /* a window of 300 bytes */
        static run r;
        draw_schedule(seed, STOP, &r.s);
        size_t j = (size_t)(r.s.job - jobs);
        ls_sim_event *stop = &r.s.events[0];
        *stop =
            (ls_sim_event){ .fate = LS_SIM_STOP, .worker = stop->worker, .other = -1, .seconds = 3, .waiting = true };
        stop->call = usual_calls[j][r.s.size] / 2; /* well after the handshake */
        r.s.local = true;
        r.s.more = 0;
        r.s.event_count = 1;
        current = seed;
        if (!run_one(&r, only > 0))
            fail_msg("LS_STOPPED=%llu %s tells its story", (unsigned long long)seed,
                     "build/tests/test_worker_schedules");
        ls_sim_destroy(r.sim);
    }
}

/* While workers meet one of them dies, and new processes come under its rank and under two others
 * that are still there. They must not begin two jobs that have members in common: those then wait
 * for each other without an end. */
static void two_processes_of_one_rank_begin_no_two_jobs(void **state)
{
    (void)state;
    uint64_t only = number_of("LS_TWINS", 0);
    for (uint64_t seed = only ? only : 1; seed <= (only ? only : TWINS); seed++) {
        static run r;
        r.s = (schedule){ .seed = seed, .size = 4, .job = &jobs[LONG + 1], .more = 3, .event_count = 1, .what = KILL };
        r.s.events[0] = (ls_sim_event){ .fate = LS_SIM_KILL, .worker = 1, .other = -1, .time = 0.01 };
        for (int w = 0; w < 7; w++) {
            r.s.ranks[w] = w < 4 ? w : (int[]){ 2, 3, 1 }[w - 4];
            r.s.begins[w] = w == 1 ? 0.02 : w < 4 ? 0 : (double[]){ 0.8, 0.9, 1.3 }[w - 4];
        }
        current = seed;
        if (!run_one(&r, only > 0))
            fail_msg("LS_TWINS=%llu %s tells its story", (unsigned long long)seed, "build/tests/test_worker_schedules");
        ls_sim_destroy(r.sim);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(survivors_have_the_bits_of_one_process),
                                        cmocka_unit_test(at_most_one_side_of_a_split_continues),
                                        cmocka_unit_test(a_stopped_worker_does_not_continue_alone),
                                        cmocka_unit_test(two_processes_of_one_rank_begin_no_two_jobs) };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
