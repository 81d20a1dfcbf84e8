/* Workers of a cluster, each a thread with a context of its own, that exchange through memory:
 * whatever their number, each ends with the bits of one process that had all lanes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/context.h"
#include "lockstep.h"
#include "lockstep/backend.h"
#include "machine.h"
#include "nn/model.h"
#include "run/peers.h"
#include "run/runs.h"
#include "samples.h"

#define SAMPLES 50
#define SIDE    8
#define CLASSES 4
#define MOST    8

/* ---- A cluster in one process ---- */

typedef struct cluster {
    int size;
    pthread_barrier_t barrier;
    uint64_t tag[MOST], hash[MOST][2], requests[MOST];
    const ls_piece *pieces[MOST];
    size_t count[MOST];
    int servers;        /* the last of them */
    bool early;         /* posted collectives move at once, not as late as possible */
    atomic_bool strays; /* a worker that is not a server received partials */
} cluster;

typedef struct member {
    ls_peers peers; /* first: it is found by it */
    cluster *c;
    uint32_t weights[MOST];
    const ls_piece *posted; /* NULL: nothing is */
    uint64_t posted_tag;
    size_t posted_count;
    int posts;
} member;

/* The next piece of a list that goes from one to another; count: there is none. */
static size_t next_piece(const ls_piece *pieces, size_t count, size_t at, int from, int to)
{
    while (at < count && (pieces[at].from != from || (pieces[at].to != LS_ALL_WORKERS && pieces[at].to != to)))
        at++;
    return at;
}

static bool take_from(const cluster *c, int from, int to)
{
    const ls_piece *theirs = c->pieces[from], *own = c->pieces[to];
    size_t i = 0, k = 0;
    for (;; i++, k++) {
        i = next_piece(theirs, c->count[from], i, from, to);
        k = next_piece(own, c->count[to], k, from, to);
        if (i == c->count[from] || k == c->count[to])
            return i == c->count[from] && k == c->count[to];
        if (theirs[i].bytes != own[k].bytes)
            return false;
        memcpy(own[k].data, theirs[i].data, own[k].bytes);
    }
}

static ls_status exchange(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count)
{
    cluster *c = ((member *)peers)->c;
    bool same = true;
    for (size_t i = 0; i < count && c->servers > 0 && strncmp(what, "the joins", 9) == 0; i++)
        if (pieces[i].to < c->size - c->servers)
            c->strays = true;
    c->tag[peers->rank] = tag;
    c->pieces[peers->rank] = pieces;
    c->count[peers->rank] = count;
    pthread_barrier_wait(&c->barrier);
    for (int w = 0; w < c->size; w++)
        same = same && c->tag[w] == tag && (w == peers->rank || take_from(c, w, peers->rank));
    pthread_barrier_wait(&c->barrier);
    return same ? LS_OK : ls_backend_fail(LS_ERR_PEER, "%s", what);
}

/* Posted collectives move as late as possible, so that an early write to their memory is detected;
 * or at once, so that a late read is. */
static ls_status post(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count)
{
    member *m = (member *)peers;
    if (m->posted)
        return ls_backend_fail(LS_ERR_INTERNAL, "%s: posted twice", what);
    m->posted = pieces;
    m->posted_tag = tag;
    m->posted_count = count;
    m->posts++;
    return m->c->early ? exchange(peers, tag, what, pieces, count) : LS_OK;
}

static ls_status settle(ls_peers *peers)
{
    member *m = (member *)peers;
    const ls_piece *pieces = m->posted;
    m->posted = NULL;
    return pieces && !m->c->early ? exchange(peers, m->posted_tag, "what was posted", pieces, m->posted_count) : LS_OK;
}

static void move_on(ls_peers *peers)
{
    (void)peers;
}

static ls_status commit(ls_peers *peers, const uint64_t hash[2], const char *what)
{
    cluster *c = ((member *)peers)->c;
    bool same = true;
    memcpy(c->hash[peers->rank], hash, sizeof(c->hash[0]));
    c->requests[peers->rank] = peers->requests;
    pthread_barrier_wait(&c->barrier);
    for (int w = 0; w < c->size; w++)
        peers->granted |= c->requests[w];
    peers->requests &= ~peers->granted;
    for (int w = 0; w < c->size; w++)
        same = same && memcmp(c->hash[w], hash, sizeof(c->hash[0])) == 0;
    pthread_barrier_wait(&c->barrier);
    return same ? LS_OK : ls_backend_fail(LS_ERR_PEER, "%s: other bits", what);
}

static void give_up(ls_peers *peers)
{
    (void)peers;
}

static member make_member(cluster *c, int rank, int size)
{
    static const int members[MOST] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    return (member){ .peers = { .rank = rank,
                                .size = size,
                                .members = members,
                                .count = size,
                                .slice = 1000,

                                .first_server = size - c->servers,
                                .servers = c->servers,
                                .generation = 1,
                                .exchange = exchange,
                                .post = post,
                                .settle = settle,
                                .move_on = move_on,
                                .commit = commit,
                                .give_up = give_up },
                     .c = c };
}

/* ---- A job ---- */

/* LARGE: joins are divided among workers; DEEP: some joins are not read for several levels, and are
 * posted; SHORTCUT: one join is read at once where nothing is fused */
typedef enum net { PLAIN, NORMED, NORMED_BY_LANE, GATHERED, LARGE, DEEP, DEEP_LARGE, SHORTCUT, NETS } net;

typedef struct job {
    net net;
    int lanes, cpus;
    int64_t batch;
    ls_strategy strategy;
    bool weighs;   /* lanes are shared out anew with each step */
    bool clips;    /* gradients, by the norm of all */
    int servers;   /* how many of the workers, if there are more workers */
    int audit;     /* see ls_fit_options */
    bool early;    /* see cluster */
    unsigned gpus; /* by bit: workers that train on a device of another kind; 8 bits above, also on the CPU */
    int broken;    /* the worker, counted from 1, whose partials have a wrong bit; 0: none */
} job;

typedef struct outcome {
    ls_status status;
    char message[256], hash[65];
    double loss, validation, accuracy;
    float predicted[SAMPLES * CLASSES];
} outcome;

/* The logits of the whole batch, centred: a use that mixes samples. */
static void centred(ls_call *call, ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    (void)user;
    ls_tensor *x = ls_layer_call(call, ls_flatten(), inputs[0]);
    x = ls_layer_call(call, ls_dense(CLASSES, .name = "dense"), x);
    ls_tensor *mean = ls_op_reduce_mean(ls_op_gather_batch(x), LS_AXES(0), false);
    outputs[0] = ls_op_softmax(ls_op_sub(x, mean), -1);
}

/* A norm whose sum with the end of three others may be fused with it, and is then done when they
 * are. */
static void around(ls_call *call, ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    static const char *const names[][2] = { { "d0", "n0" }, { "d1", "n1" }, { "d2", "n2" }, { "d3", "n3" } };
    (void)user;
    ls_tensor *x = ls_layer_call(call, ls_flatten(), inputs[0]), *first = NULL;
    for (int i = 0; i < 4; i++) {
        ls_tensor *y = ls_layer_call(call, ls_dense(20, .name = names[i][0]), x);
        y = ls_layer_call(call, ls_batch_normalization(.name = names[i][1]), y);
        first = i == 0 ? y : first;
        x = i == 0 ? x : ls_op_relu(y);
    }
    x = ls_op_relu(ls_op_add(first, x));
    outputs[0] = ls_op_softmax(ls_layer_call(call, ls_dense(CLASSES, .name = "end"), x), -1);
}

static ls_status make_model(ls_context *ctx, net kind, bool clips, ls_model **model)
{
    ls_norm_statistics by = kind == NORMED_BY_LANE ? LS_PER_LANE : LS_PER_BATCH;
    ls_status status =
        kind == PLAIN ? samples_plain_model(ctx, SIDE, CLASSES, model)
        : kind == LARGE
            ? ls_sequential(ctx, "large", model, ls_input(SIDE, SIDE, 1), ls_flatten(),
                            ls_dense(300, .activation = LS_RELU), ls_dense(CLASSES, .activation = LS_SOFTMAX))
        : kind == DEEP || kind == DEEP_LARGE
            ? ls_sequential(ctx, "deep", model, ls_input(SIDE, SIDE, 1), ls_flatten(),
                            ls_dense(kind == DEEP ? 20 : 400), ls_batch_normalization(), ls_relu(),
                            ls_dense(kind == DEEP ? 20 : 400), ls_batch_normalization(), ls_relu(),
                            ls_dense(kind == DEEP ? 20 : 400), ls_batch_normalization(), ls_relu(),
                            ls_dense(CLASSES, .activation = LS_SOFTMAX))
        : kind == SHORTCUT ? ls_custom(ctx, "shortcut", &ls_input(SIDE, SIDE, 1), 1, 1, around, NULL, model)
        : kind == GATHERED ? ls_custom(ctx, "gathered", &ls_input(SIDE, SIDE, 1), 1, 1, centred, NULL, model)
                           : samples_normed_model(ctx, SIDE, CLASSES, by, model);
    if (status == LS_OK)
        status = ls_compile(*model, .optimizer = ls_adam(.global_clipnorm = clips ? 0.5 : 0),
                            .loss = ls_sparse_categorical_crossentropy(), .metrics = ls_metrics(ls_accuracy()));
    return status;
}

static ls_dataset *data(void)
{
    return samples_of_bytes(SAMPLES, SIDE, CLASSES);
}

static ls_status weigh(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    ls_peers *peers = user;
    uint32_t weights[MOST];
    (void)model, (void)stop;
    for (int i = 0; i < MOST; i++) /* some get no lane, or all */
        weights[i] = 1 + (uint32_t)(logs->step * 5 + i * 3) % 7 * (logs->step % 2 ? 1 : 100);
    return ls_peers_weigh(peers, weights);
}

static ls_status train(ls_model *model, const job *j, ls_strategy strategy, outcome *out, ls_peers *peers)
{
    ls_results results;
    ls_history *history = NULL;
    ls_array predicted = { .data = NULL };
    ls_dataset *set = data();
    const ls_callback weighs = { .user = peers, .on_batch_end = weigh };
    ls_status status =
        ls_fit(model, set, .epochs = 2, .batch_size = j->batch ? j->batch : 16, .lanes = j->lanes ? j->lanes : 5,
               .verbose = LS_VERBOSE_SILENT, .strategy = strategy, .validation = set, .history = &history,
               .callbacks = &weighs, .callback_count = peers && j->weighs, .audit = j->audit);
    if (status == LS_OK)
        status = ls_evaluate(model, set, &results, .batch_size = 20, .strategy = strategy);
    if (status == LS_OK)
        status = ls_predict(model, set, &predicted, .batch_size = 20, .strategy = strategy);
    if (status == LS_OK)
        status = ls_model_state_sha256(model, out->hash);
    if (status == LS_OK)
        status = ls_history_value(history, "loss", 1, &out->loss);
    if (status == LS_OK)
        status = ls_history_value(history, "val_loss", 1, &out->validation);
    out->accuracy = status == LS_OK ? results.values[1] : 0;
    if (status == LS_OK)
        memcpy(out->predicted, predicted.data, sizeof(out->predicted));
    free(predicted.data);
    ls_history_destroy(history);
    ls_dataset_destroy(set);
    return status;
}

typedef struct work {
    member m;
    const job *job;
    outcome out;
} work;

/* The context of a worker, with a GPU of the tests' where the job has one for it. */
static ls_status open_member(const work *w, gpu **g, ls_context **ctx)
{
    int cpus = w->job->cpus ? w->job->cpus : 1;
    ls_context_options options = { .cpu_devices = cpus, .threads = cpus };
    if (!w->m.c || !(w->job->gpus >> w->m.peers.rank & 1))
        return ls_context_open(&options, ctx);
    *g = gpu_create((gpu_settings){ .devices = 1, .delay = -1, .copies = w->m.peers.rank % 2 });
    ls_status status = ls_context_create(&options, ctx);
    if (status == LS_OK)
        status = ls_add_backend(*ctx, gpu_backend(*g));
    ls_device_info *list = NULL;
    size_t count;
    if (status == LS_OK) /* which opens it */
        status = ls_list_logical_devices(*ctx, "GPU", &list, &count);
    free(list);
    return status;
}

static ls_strategy strategy_of(const work *w)
{
    ls_strategy s = w->job->strategy;
    if (w->m.c && w->job->gpus >> w->m.peers.rank & 1)
        s.devices = w->job->gpus >> (w->m.peers.rank + MOST) & 1 ? "cpu:0,gpu:0" : "gpu:0";
    return s;
}

static void *run_member(void *user)
{
    work *w = user;
    gpu *g = NULL;
    ls_context *ctx = NULL;
    ls_model *model = NULL;
    ls_status status = open_member(w, &g, &ctx);
    w->m.peers.weights = w->m.weights;
    char *bit_class = NULL;
    if (status == LS_OK) /* while it is alone; the context keeps it */
        status = ls_bit_class(ctx, &bit_class);
    free(bit_class);
    if (status == LS_OK && w->m.c)
        ctx->peers = &w->m.peers;
    if (status == LS_OK)
        status = make_model(ctx, w->job->net, w->job->clips, &model);
    ls_runs *runs = NULL;
    if (status == LS_OK && w->m.c && w->job->broken == w->m.peers.rank + 1)
        status = ls_runs_of(ls_model_graph(model), &runs);
    if (runs)
        runs->settings.mutation = LS_MUTATE_BIT;
    if (status == LS_OK)
        status = train(model, w->job, strategy_of(w), &w->out, w->m.c ? &w->m.peers : NULL);
    w->out.status = status;
    if (status != LS_OK)
        strncpy(w->out.message, ls_last_error(), sizeof(w->out.message) - 1);
    ls_model_destroy(model);
    ls_context_close(ctx);
    if (g && status == LS_OK && (gpu_counted(g).misuses || gpu_counted(g).buffers || !gpu_counted(g).calls[GPU_RUN]))
        w->out = (outcome){ .status = LS_ERR_INTERNAL, .message = "the GPU was misused, kept busy or not used" };
    gpu_destroy(g);
    return NULL;
}

static void must_be_good(const outcome *found, const outcome *expected, const job *j, int rank, int size)
{
    if (found->status != LS_OK)
        fail_msg("net %d, %d lanes, worker %d of %d: %s", (int)j->net, j->lanes, rank, size, found->message);
    if (strcmp(found->hash, expected->hash) != 0 || !(found->loss == expected->loss) ||
        !(found->validation == expected->validation) || !(found->accuracy == expected->accuracy) ||
        memcmp(found->predicted, expected->predicted, sizeof(found->predicted)) != 0)
        fail_msg("net %d, %d lanes, batch %lld, worker %d of %d, %d CPUs: %s instead of %s, loss %.17g instead of "
                 "%.17g",
                 (int)j->net, j->lanes, (long long)j->batch, rank, size, j->cpus, found->hash, expected->hash,
                 found->loss, expected->loss);
}

static void has_the_bits_of_one(const job *j, const outcome *expected, int size)
{
    cluster c = { .size = size, .servers = j->servers < size ? j->servers : 0, .early = j->early };
    static work works[MOST];
    pthread_t threads[MOST];
    pthread_barrier_init(&c.barrier, NULL, (unsigned)size);
    for (int w = 0; w < size; w++) {
        works[w] = (work){ .m = make_member(&c, w, size), .job = j };
        assert_int_equal(pthread_create(&threads[w], NULL, run_member, &works[w]), 0);
    }
    for (int w = 0; w < size; w++)
        pthread_join(threads[w], NULL);
    pthread_barrier_destroy(&c.barrier);
    for (int w = 0; w < size; w++)
        must_be_good(&works[w].out, expected, j, w, size);
    if (j->net == DEEP || j->net == DEEP_LARGE)
        assert_int_equal(works[0].m.posts > 0, size > 1);
}

static void any_number_of_workers_has_the_bits_of_one(void **state)
{
    (void)state;
    static const job jobs[] = {
        { PLAIN, .lanes = 8 },
        { PLAIN, .lanes = 5, .batch = 33 },
        { PLAIN, .lanes = 3, .batch = 7, .cpus = 2 }, /* workers beyond lanes are idle */
        { NORMED, .lanes = 8, .cpus = 2 },
        { NORMED, .lanes = 7 },
        { NORMED_BY_LANE, .lanes = 16, .batch = 10 }, /* lanes without samples */
        { GATHERED, .lanes = 6 },
        { PLAIN, .lanes = 7, .weighs = true },
        { NORMED, .lanes = 6, .weighs = true },
        { GATHERED, .lanes = 9, .weighs = true },
        { DEEP, .lanes = 8, .cpus = 2 },
        { DEEP, .lanes = 5, .batch = 33, .clips = true },
        { DEEP_LARGE, .lanes = 7, .weighs = true },
        { LARGE, .lanes = 8, .weighs = true, .strategy = { .kind = LS_STRATEGY_MIRRORED, .work_split = "auto" } },
        { NORMED_BY_LANE, .lanes = 8, .cpus = 2, .strategy = { .kind = LS_STRATEGY_PIPELINE } },
        { NORMED, .lanes = 8, .cpus = 4,
          .strategy = { .kind = LS_STRATEGY_MIRRORED, .all_reduce = LS_ALL_REDUCE_HIERARCHICAL_COPY } },
        { PLAIN, .lanes = 8, .servers = 1 },
        { PLAIN, .lanes = 3, .batch = 7, .cpus = 2, .servers = 2 },
        { NORMED, .lanes = 7, .servers = 2, .audit = 1 },
        { NORMED_BY_LANE, .lanes = 16, .batch = 10, .servers = 1 },
        { GATHERED, .lanes = 6, .servers = 2, .weighs = true },
        { LARGE, .lanes = 8, .servers = 3, .weighs = true },
        { DEEP, .lanes = 6, .servers = 2, .clips = true },
        { DEEP_LARGE, .lanes = 8, .servers = 1 },
        { DEEP, .lanes = 8, .cpus = 2, .early = true },
        { LARGE, .lanes = 8, .early = true },
        { DEEP_LARGE, .lanes = 7, .early = true },
    };
    for (size_t i = 0; i < LENGTH(jobs); i++) {
        static work alone;
        alone = (work){ .job = &jobs[i] };
        run_member(&alone);
        assert_int_equal(alone.out.status, LS_OK);
        for (int size = 1; size <= MOST; size += size < 3 ? 1 : size < 5 ? 2 : 3)
            has_the_bits_of_one(&jobs[i], &alone.out, size);
    }
}

/* Workers on CPUs, on devices of another kind, and on both at once. */
static void workers_of_several_kinds_have_the_bits_of_one(void **state)
{
    (void)state;
    static const job jobs[] = {
        { PLAIN, .lanes = 8, .gpus = 0x2 },
        { NORMED, .lanes = 7, .batch = 33, .gpus = 0x5 },
        { NORMED, .lanes = 8, .gpus = 0x101, .audit = 1 },
        { NORMED_BY_LANE, .lanes = 16, .batch = 10, .gpus = 0xff },
        { GATHERED, .lanes = 6, .gpus = 0x1, .weighs = true },
        { LARGE, .lanes = 8, .gpus = 0x203, .weighs = true, .audit = 1 },
        { DEEP, .lanes = 8, .gpus = 0x102 },
        { SHORTCUT, .lanes = 8, .gpus = 0x2 },
        { DEEP_LARGE, .lanes = 6, .gpus = 0x1, .audit = 1 },
    };
    for (size_t i = 0; i < LENGTH(jobs); i++) {
        static work alone;
        alone = (work){ .job = &jobs[i] };
        run_member(&alone);
        assert_int_equal(alone.out.status, LS_OK);
        for (int size = 1; size <= 3; size++)
            if (jobs[i].gpus & ((1u << size) - 1))
                has_the_bits_of_one(&jobs[i], &alone.out, size);
    }
}

/* ---- Audits ---- */

/* A lane that another worker computes beside its own changes nothing: with every number of workers,
 * several devices, joins in mid-step, lanes without samples, and shares that change. */
static void audits_change_no_bit(void **state)
{
    (void)state;
    static const job jobs[] = {
        { PLAIN, .lanes = 8, .audit = 1 },
        { PLAIN, .lanes = 3, .batch = 7, .cpus = 2, .audit = 1 },
        { NORMED, .lanes = 8, .cpus = 2, .audit = 1 },
        { NORMED, .lanes = 7, .audit = 2, .weighs = true },
        { NORMED_BY_LANE, .lanes = 16, .batch = 10, .audit = 1 },
        { NORMED_BY_LANE, .lanes = 8, .cpus = 2, .strategy = { .kind = LS_STRATEGY_PIPELINE }, .audit = 1 },
        { GATHERED, .lanes = 6, .audit = 1 },
        { LARGE, .lanes = 16, .audit = 1 },
    };
    for (size_t i = 0; i < LENGTH(jobs); i++) {
        static work alone;
        alone = (work){ .job = &jobs[i] };
        run_member(&alone);
        assert_int_equal(alone.out.status, LS_OK);
        for (int size = 2; size <= MOST; size += size < 3 ? 1 : 5)
            has_the_bits_of_one(&jobs[i], &alone.out, size);
    }
}

/* One worker computes something wrong. All agree on the joined value, so it is not noticed without
 * audits. With them an audit names that worker and another one, on all of them. */
static void a_wrong_bit_is_found_by_audits(void **state)
{
    (void)state;
    for (int audit = 0; audit < 2; audit++) {
        const job j = { PLAIN, .lanes = 6, .audit = audit, .broken = 2 };
        cluster c = { .size = 3 };
        static work works[3];
        pthread_t threads[3];
        pthread_barrier_init(&c.barrier, NULL, 3);
        for (int w = 0; w < 3; w++) {
            works[w] = (work){ .m = make_member(&c, w, 3), .job = &j };
            assert_int_equal(pthread_create(&threads[w], NULL, run_member, &works[w]), 0);
        }
        for (int w = 0; w < 3; w++) {
            pthread_join(threads[w], NULL);
            assert_int_equal(works[w].out.status, audit ? LS_ERR_PEER : LS_OK);
            assert_string_equal(works[w].out.message, works[0].out.message);
        }
        if (audit && (!strstr(works[0].out.message, "audit: worker ") || !strstr(works[0].out.message, "worker 1 ")))
            fail_msg("%s", works[0].out.message);
        pthread_barrier_destroy(&c.barrier);
    }
}

/* ---- Signals ---- */

typedef struct stopping {
    member m;
    volatile int stop;
    int64_t steps;
    ls_status status;
} stopping;

/* A signal comes to worker 1 while it is in its third step. */
static ls_status on_batch_end(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    stopping *s = user;
    (void)model, (void)stop;
    if (s->m.peers.rank == 1 && logs->step == 3)
        s->stop = 15;
    return LS_OK;
}

static void *run_until_stopped(void *user)
{
    stopping *s = user;
    ls_context *ctx = NULL;
    ls_model *model = NULL;
    ls_dataset *set = data();
    ls_callback callback = { .user = s, .on_batch_end = on_batch_end };
    ls_status status = ls_context_open(&(ls_context_options){ .threads = 1 }, &ctx);
    if (status == LS_OK) {
        ctx->peers = &s->m.peers;
        status = make_model(ctx, PLAIN, false, &model);
    }
    if (status == LS_OK)
        status = ls_fit(model, set, .epochs = 5, .batch_size = 10, .verbose = LS_VERBOSE_SILENT, .stop = &s->stop,
                        .callbacks = &callback, .callback_count = 1, .validation = set);
    if (status == LS_OK)
        status = ls_model_steps(model, &s->steps);
    s->status = status;
    ls_dataset_destroy(set);
    ls_model_destroy(model);
    ls_context_close(ctx);
    return NULL;
}

static void a_signal_to_one_ends_all_at_one_step(void **state)
{
    (void)state;
    cluster c = { .size = 3 };
    static stopping workers[3];
    pthread_t threads[3];
    pthread_barrier_init(&c.barrier, NULL, 3);
    for (int w = 0; w < 3; w++) {
        workers[w] = (stopping){ .m = make_member(&c, w, 3) };
        assert_int_equal(pthread_create(&threads[w], NULL, run_until_stopped, &workers[w]), 0);
    }
    for (int w = 0; w < 3; w++)
        pthread_join(threads[w], NULL);
    pthread_barrier_destroy(&c.barrier);
    for (int w = 0; w < 3; w++) {
        assert_int_equal(workers[w].status, LS_OK);
        assert_int_equal(workers[w].steps, 4); /* the request of step 3 goes along with step 4 */
    }
}

/* Two workers that are asked for different things: both get an error, none waits. */
static void different_jobs_are_reported(void **state)
{
    (void)state;
    static const job jobs[] = { { PLAIN, .lanes = 8 }, { PLAIN, .lanes = 4 } };
    cluster c = { .size = 2 };
    static work works[2];
    pthread_t threads[2];
    pthread_barrier_init(&c.barrier, NULL, 2);
    for (int w = 0; w < 2; w++) {
        works[w] = (work){ .m = make_member(&c, w, 2), .job = &jobs[w] };
        assert_int_equal(pthread_create(&threads[w], NULL, run_member, &works[w]), 0);
    }
    for (int w = 0; w < 2; w++) {
        pthread_join(threads[w], NULL);
        assert_int_equal(works[w].out.status, LS_ERR_PEER);
        assert_non_null(strstr(works[w].out.message, "16 samples"));
    }
    pthread_barrier_destroy(&c.barrier);
}

int main(void)
{
    alarm(300); /* a worker that failed alone would leave the others waiting */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_workers_has_the_bits_of_one),
        cmocka_unit_test(workers_of_several_kinds_have_the_bits_of_one),
        cmocka_unit_test(audits_change_no_bit),
        cmocka_unit_test(a_wrong_bit_is_found_by_audits),
        cmocka_unit_test(a_signal_to_one_ends_all_at_one_step),
        cmocka_unit_test(different_jobs_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
