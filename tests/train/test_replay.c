/* Replays of asynchronous training. The training itself is a simulation in this process: workers
 * that read, compute and push at random moments, each server by itself, some of them killed in
 * between; servers that apply what comes. What it recorded is replayed by another context, on other
 * devices, to the same hash at every version. Impossible records are refused before anything is
 * computed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/philox.h"
#include "base/text.h"
#include "folder.h"
#include "lockstep.h"
#include "nn/model.h"
#include "samples.h"
#include "train/checkpoint/checkpoint.h"
#include "train/server/shards.h"
#include "train/server/replay_schedule.h"
#include "train/job/job.h"
#include "train/job/passes.h"
#include "train/job/setup.h"
#include "train/job/step.h"
#include "train/server/record.h"

#define SIDE    6
#define CLASSES 3
#define SAMPLES 23
#define BATCH   5
#define STEPS   5 /* in an epoch */
#define EPOCHS  3
#define MOST    3 /* workers, servers */

static float pixels[SAMPLES * SIDE * SIDE];
static int32_t labels[SAMPLES];
static char file[128];

/* ---- The job ---- */

typedef struct trial {
    uint64_t seed;
    int workers, servers;
    int accumulate;
    bool generated; /* data from a generator, not in memory */
    bool scale_rate;
    int64_t steps_per_epoch; /* 0: those of the data */
} trial;

static ls_status generate(void *user, ls_element *out, bool *end)
{
    (void)user;
    *end = false;
    int64_t at = (out->number * 7 + (int64_t)out->epoch) % SAMPLES;
    memcpy(out->component[0].data, pixels + at * SIDE * SIDE, sizeof(float) * SIDE * SIDE);
    memcpy(out->component[1].data, &labels[at], sizeof(*labels));
    return LS_OK;
}

static ls_dataset *make_data(const trial *t)
{
    if (t->generated)
        return ls_from_generator(generate, NULL,
                                 LS_ELEMENT(LS_SPEC(LS_F32, LS_SHAPE(SIDE, SIDE, 1)), LS_SPEC(LS_I32, LS_SCALAR)));
    return samples_of_floats(SAMPLES, SIDE, CLASSES);
}

static void make_model(const trial *t, int cpus, ls_context **ctx, ls_model **model)
{
    assert_int_equal(ls_context_open(&(ls_context_options){ .cpu_devices = cpus, .threads = cpus }, ctx), LS_OK);
    assert_int_equal(ls_sequential(*ctx, "net", model, ls_input(SIDE, SIDE, 1), ls_conv2d(4, 3),
                                   ls_batch_normalization(), ls_relu(), ls_flatten(), ls_dropout(0.25),
                                   ls_dense(CLASSES, .activation = LS_SOFTMAX)),
                     LS_OK);
    assert_int_equal(ls_compile(*model,
                                .optimizer = ls_adam(.learning_rate = 0.01, .global_clipnorm = 1,
                                                     .gradient_accumulation_steps = t->accumulate),
                                .loss = ls_sparse_categorical_crossentropy(), .metrics = ls_metrics(ls_accuracy())),
                     LS_OK);
}

static ls_fit_options options_of(const trial *t)
{
    return (ls_fit_options){ .batch_size = BATCH,
                             .epochs = EPOCHS,
                             .seed = 5,
                             .lanes = 3,
                             .verbose = LS_VERBOSE_SILENT,
                             .steps_per_epoch = t->generated && !t->steps_per_epoch ? STEPS : t->steps_per_epoch };
}

/* ---- The simulated cluster ---- */

typedef struct worker {
    int64_t ordinal; /* -1: it has no batch */
    int64_t read[MOST];
    char *weights[MOST]; /* NULL: not read yet */
    char *push[MOST];    /* NULL: not computed yet, or pushed */
    bool computed;
    int64_t samples;
} worker;

typedef struct world {
    const trial *t;
    ls_job *job;
    ls_fit_setup setup;
    ls_state_shards *parts;
    ls_state_shard *part[MOST];
    char *newest[MOST]; /* weights of the newest version */
    ls_record_head head[MOST];
    ls_record_push pushes[MOST][EPOCHS * STEPS * 2];
    int64_t reads[MOST][EPOCHS * STEPS * 2][MOST];
    size_t count[MOST];
    bool applied[MOST][EPOCHS * STEPS];
    worker workers[MOST];
    int64_t next, given_back[EPOCHS * STEPS];
    size_t back_count;
    int kills;
    uint32_t drawn;
    char hash[65];
} world;

static uint32_t draw(world *w, uint32_t below)
{
    return ls_random_block(ls_random_key(w->t->seed, LS_RANDOM_TEST, 17, 0), 0, 0, w->drawn++).word[0] % below;
}

static void must(ls_status status)
{
    if (status != LS_OK)
        fail_msg("%s", ls_last_error());
}

static void publish(world *w, int s)
{
    must(ls_state_shard_get_weights(w->part[s], w->newest[s]));
}

static int64_t steps_of(const trial *t)
{
    return t->steps_per_epoch ? t->steps_per_epoch : STEPS;
}

/* Batches by their number; the data is read from the beginning each time. */
static void find_batch(world *w, int64_t ordinal, ls_batch_view *batch)
{
    bool end = false;
    int64_t pass = w->t->generated ? 0 : ordinal / STEPS, index = w->t->generated ? ordinal : ordinal % STEPS;
    must(ls_passes_begin(&w->setup.data, (uint64_t)pass));
    for (int64_t i = 0; i <= index; i++)
        must(ls_passes_next(&w->setup.data, batch, &end));
    assert_false(end);
}

static void compute(world *w, worker *k)
{
    ls_batch_view batch;
    double results[16];
    void *pushes[MOST];
    find_batch(w, k->ordinal, &batch);
    for (int s = 0; s < w->t->servers; s++) {
        must(ls_state_shards_put_weights(w->parts, s, k->weights[s]));
        pushes[s] = k->push[s] = malloc(ls_state_shards_push_bytes(w->parts, s) + 1);
    }
    const ls_state_shards_step step = { .settings = &w->setup.settings,
                                        .batch = &batch,
                                        .run = (uint64_t)k->ordinal + 100 };
    must(ls_state_shards_gradients(w->parts, &step, pushes, results));
    k->samples = batch.samples;
    k->computed = true;
}

static void apply(world *w, int rank, int s)
{
    worker *k = &w->workers[rank];
    if (!w->applied[s][k->ordinal]) {
        double rate;
        const int64_t version = ls_state_shard_version(w->part[s]) + 1;
        size_t n = w->count[s]++;
        must(ls_state_shard_rate(w->part[s], k->ordinal % 4 == 3 ? 0.02 : NAN, &rate)); /* it is set now and then */
        const ls_push push = { .read = k->read[s], .samples = k->samples, .bytes = k->push[s] };
        must(ls_state_shard_apply(w->part[s], &push, rate));
        memcpy(w->reads[s][n], k->read, sizeof(k->read));
        w->pushes[s][n] = (ls_record_push){ .version = version,
                                            .worker = rank,
                                            .epoch = k->ordinal / steps_of(w->t),
                                            .batch = k->ordinal % steps_of(w->t),
                                            .run = k->ordinal + 100,
                                            .read = w->reads[s][n],
                                            .rate = rate };
        if (ls_state_shard_version(w->part[s]) == version) {
            must(ls_state_shard_sha256(w->part[s], w->pushes[s][n].sha256));
            publish(w, s);
        }
        int64_t behind = version - 1 - k->read[s];
        for (int i = 0; i < w->t->servers; i++)
            w->head[i].staleness = behind > w->head[i].staleness ? behind : w->head[i].staleness;
        w->applied[s][k->ordinal] = true;
    }
    free(k->push[s]);
    k->push[s] = NULL;
}

static void leave(world *w, worker *k)
{
    for (int s = 0; s < w->t->servers; s++) {
        free(k->weights[s]);
        free(k->push[s]);
    }
    *k = (worker){ .ordinal = -1 };
}

/* One thing that a worker does next; false: there is nothing left for it. */
static bool act(world *w, int rank)
{
    worker *k = &w->workers[rank];
    int left = 0, s = (int)draw(w, (uint32_t)w->t->servers);
    if (k->ordinal < 0) {
        if (w->back_count > 0)
            k->ordinal = w->given_back[--w->back_count];
        else if (w->next < EPOCHS * steps_of(w->t))
            k->ordinal = w->next++;
        return k->ordinal >= 0;
    }
    if (w->kills > 0 && draw(w, 20) == 0) { /* its pushes stay */
        w->kills--;
        w->given_back[w->back_count++] = k->ordinal;
        leave(w, k);
        return true;
    }
    for (int i = 0; i < w->t->servers; i++)
        left += k->computed ? k->push[i] != NULL : k->weights[i] == NULL;
    if (left == 0 && k->computed)
        leave(w, k);
    else if (left == 0)
        compute(w, k);
    else if (k->computed && k->push[s])
        apply(w, rank, s);
    else if (!k->computed && !k->weights[s]) {
        size_t bytes = ls_state_shards_weight_bytes(w->parts, s);
        k->weights[s] = malloc(bytes + 1);
        memcpy(k->weights[s], w->newest[s], bytes);
        k->read[s] = ls_state_shard_version(w->part[s]);
    }
    return true;
}

static void make_head(world *w, const ls_fit_options *o, int s)
{
    ls_facts facts;
    ls_history *history = NULL;
    const ls_fit_facts fit = { &w->setup.data, NULL, o, w->setup.function, &w->setup.settings, &history };
    ls_record_head *head = &w->head[s];
    w->job->data_seed = o->seed;
    w->job->fitted = BATCH;
    w->job->lanes = o->lanes;
    w->job->fit = &fit;
    must(ls_facts_make(w->job, &facts));
    w->job->fit = NULL;
    *head = (ls_record_head){ .id = "00112233445566778899aabbccddeeff", .server = s, .servers = w->t->servers };
    head->accumulate = ls_state_shard_every(w->part[s]);
    head->scale_rate = w->t->scale_rate;
    must(ls_state_shard_sha256(w->part[s], head->sha256));
    head->job = json_pack("{s:O,s:O,s:O}", "job", facts.job, "fit", facts.fit, "bits", facts.bits);
    ls_facts_free(&facts);
}

static void write_record(world *w, int s)
{
    char path[PATH_MAX];
    ls_record_writer writer = LS_RECORD_CLOSED;
    must(ls_record_path(file, s, path));
    must(ls_record_create(&writer, path, &w->head[s]));
    for (size_t i = 0; i < w->count[s]; i++)
        must(ls_record_add(&writer, &w->pushes[s][i]));
    must(ls_record_close(&writer));
    json_decref(w->head[s].job);
}

/* Trains, records, and leaves the hash of the weights. */
static void train(const trial *t, char hash[65])
{
    static world w;
    ls_context *ctx;
    ls_model *model;
    ls_use use;
    ls_fit_options options = options_of(t);
    make_model(t, 1, &ctx, &model);
    ls_dataset *data = make_data(t);
    must(ls_use_begin(&use, model, "simulated", true));
    w = (world){ .t = t, .job = use.job, .kills = t->workers > 1 ? 2 : 0 };
    must(ls_fit_set_up(use.job, data, &options, "simulated", &w.setup));
    must(ls_state_shards_make(use.job, w.setup.function, t->servers, &w.parts));
    for (int s = 0; s < t->servers; s++) {
        must(ls_state_shard_create(w.parts, s, t->scale_rate, &w.part[s]));
        w.newest[s] = malloc(ls_state_shards_weight_bytes(w.parts, s) + 1);
        publish(&w, s);
        make_head(&w, &options, s);
    }
    for (int r = 0; r < MOST; r++)
        w.workers[r].ordinal = -1;
    for (int idle = 0; idle < 200; idle++)
        if (act(&w, (int)draw(&w, (uint32_t)t->workers)))
            idle = 0;
    for (int s = 0; s < t->servers; s++) {
        char *state = malloc(ls_state_shards_state_bytes(w.parts, s) + 1);
        assert_int_equal(w.count[s], EPOCHS * steps_of(t));
        must(ls_state_shard_get_state(w.part[s], state));
        must(ls_state_shards_put_state(w.parts, s, state));
        free(state);
        free(w.newest[s]);
        ls_state_shard_destroy(w.part[s]);
        write_record(&w, s);
    }
    must(ls_model_weights_sha256(model, hash));
    ls_state_shards_free(w.parts);
    ls_fit_setup_free(&w.setup);
    ls_use_end(&use);
    ls_dataset_destroy(data);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- Replaying ---- */

typedef struct outcome {
    ls_status status;
    char message[1024], hash[65], before[65];
    ls_replayed replayed;
} outcome;

static outcome replay(const trial *t, int cpus, const ls_fit_options *options)
{
    outcome out = { .replayed = { .servers = -1 } };
    ls_context *ctx;
    ls_model *model;
    make_model(t, cpus, &ctx, &model);
    ls_dataset *data = make_data(t);
    must(ls_model_weights_sha256(model, out.before));
    out.status = ls_replay_with(model, data, file, *options, &out.replayed);
    snprintf(out.message, sizeof(out.message), "%s", out.status == LS_OK ? "" : ls_last_error());
    must(ls_model_weights_sha256(model, out.hash));
    ls_dataset_destroy(data);
    ls_model_destroy(model);
    ls_context_close(ctx);
    return out;
}

static void any_schedule_can_be_replayed(void **state)
{
    (void)state;
    static const trial trials[] = {
        { .seed = 1, .workers = 1, .servers = 1 },
        { .seed = 2, .workers = 3, .servers = 1 },
        { .seed = 3, .workers = 3, .servers = 2 },
        { .seed = 4, .workers = 3, .servers = 3, .scale_rate = true },
        { .seed = 5, .workers = 3, .servers = 2, .accumulate = 3 },
        { .seed = 6, .workers = 2, .servers = 2, .generated = true },
        { .seed = 7, .workers = 3, .servers = 1, .steps_per_epoch = 3 },
        { .seed = 8, .workers = 3, .servers = 3 },
        { .seed = 9, .workers = 3, .servers = 2, .accumulate = 4 }, /* the last version is not whole */
    };
    for (size_t i = 0; i < sizeof(trials) / sizeof(*trials); i++) {
        const trial *t = &trials[i];
        char hash[65];
        train(t, hash);
        for (int cpus = 1; cpus <= 2; cpus++) {
            ls_fit_options options = options_of(t);
            options.strategy = cpus == 1 ? ls_one_device() : ls_mirrored(.devices = "cpu:0-1");
            outcome out = replay(t, cpus, &options);
            if (out.status != LS_OK)
                fail_msg("trial %zu, %d devices: %s", i, cpus, out.message);
            if (strcmp(out.hash, hash) != 0)
                fail_msg("trial %zu, %d devices: %s, trained %s", i, cpus, out.hash, hash);
            assert_int_equal(out.replayed.servers, t->servers);
            int64_t versions = EPOCHS * steps_of(t) / (t->accumulate ? t->accumulate : 1);
            assert_int_equal(out.replayed.versions, versions * t->servers);
            assert_true(out.replayed.gradients >= EPOCHS * steps_of(t) && !out.replayed.torn);
            /* a version of each part that workers compute with, and not all of them */
            assert_true(out.replayed.most_kept < versions * t->servers);
        }
    }
}

/* ---- What is refused ---- */

static const trial two = { .seed = 3, .workers = 3, .servers = 2 };

static void refused_with(const ls_fit_options *options, ls_status status, const char *part)
{
    outcome out = replay(&two, 1, options);
    if (out.status != status || !strstr(out.message, part))
        fail_msg("%s: '%s'; expected '%s'", ls_status_name(out.status), out.message, part);
    assert_string_equal(out.hash, out.before); /* the model is as it was */
    assert_int_equal(out.replayed.servers, -1);
}

static void refused(ls_status status, const char *part)
{
    ls_fit_options options = options_of(&two);
    refused_with(&options, status, part);
}

/* Puts another text in the place of one in a file, and the checksum of that line right. */
static void change(int server, const char *from, const char *to, const char *behind)
{
    char path[PATH_MAX], *text = NULL;
    size_t bytes;
    ls_text out = { 0 };
    must(ls_record_path(file, server, path));
    must(ls_file_read(path, 1 << 20, &text, &bytes));
    char *from_where = behind ? strstr(text, behind) : text;
    char *at = from_where ? strstr(from_where, from) : NULL;
    assert_non_null(at);
    ls_text_put_bytes(&out, text, (size_t)(at - text));
    ls_text_put(&out, to);
    ls_text_put(&out, at + strlen(from));
    char *whole = NULL;
    must(ls_text_take(&out, &whole));
    char *line = whole + (at - text), *end = strchr(line, '\n');
    while (line > whole && line[-1] != '\n')
        line--;
    size_t body = (size_t)(end - line) - strlen(",\"crc\":\"01234567\"}");
    char digits[9];
    snprintf(digits, sizeof(digits), "%08x", (unsigned)ls_crc32c(line, body));
    memcpy(end - 10, digits, 8);
    must(ls_file_write(path, whole, strlen(whole)));
    free(whole);
    free(text);
}

static void impossible_settings_are_reported(void **state)
{
    (void)state;
    char hash[65], path[PATH_MAX], *text = NULL;
    size_t bytes;
    ls_record record;
    train(&two, hash);
    must(ls_record_path(file, 1, path));
    must(ls_record_read(path, &record));
    must(ls_file_read(path, 1 << 20, &text, &bytes));

    /* another job */
    ls_fit_options options = options_of(&two);
    options.batch_size = 4;
    refused_with(&options, LS_ERR_STATE, "fit/data/batch_size is 5 in the first and 4");
    options = options_of(&two);
    options.seed = 6;
    refused_with(&options, LS_ERR_STATE, "seed");
    options = options_of(&two);
    options.lanes = 2;
    refused_with(&options, LS_ERR_STATE, "bits/lanes is 3 in");
    options = options_of(&two);
    options.epochs = 2;
    refused_with(&options, LS_ERR_DATA, "of epoch 2; this training has epochs 0 to 1");

    /* a hash that is another one: the first of that version */
    char other[65];
    snprintf(other, sizeof(other), "%s", record.pushes[6].sha256);
    other[10] = other[10] == 'f' ? '0' : 'f';
    change(1, record.pushes[6].sha256, other, NULL);
    refused(LS_ERR_DATA, "version 7 of server 1 differs");
    must(ls_file_write(path, text, bytes));
    change(1, record.head.sha256, other, NULL);
    refused(LS_ERR_STATE, "the model does not have the weights that training began with");
    must(ls_file_write(path, text, bytes));
    change(1, "\"rate\":0.01", "\"rate\":0.0125", "\"version\":3,");
    refused(LS_ERR_DATA, "version 3 of server 1 differs");

    /* files */
    must(ls_file_write(path, text, (size_t)record.offsets[4] + 20)); /* cut short: what others read of it is missing */
    refused(LS_ERR_DATA, "an incomplete record after them");
    unlink(path);
    refused(LS_ERR_NOT_FOUND, "the record of server 1 of 2 is missing");
    must(ls_file_write(path, "{}\n", 3));
    refused(LS_ERR_DATA, "is not a record of parameter servers");
    must(ls_file_write(path, text, bytes));
    change(1, "00112233", "10112233", NULL);
    refused(LS_ERR_STATE, "two runs of one job");
    must(ls_file_write(path, text, bytes));
    char *first = NULL;
    size_t first_bytes;
    must(ls_file_read(file, 1 << 20, &first, &first_bytes));
    must(ls_file_write(file, text, bytes));
    refused(LS_ERR_DATA, "is the record of server 1, not of server 0");
    must(ls_file_write(file, first, first_bytes));
    free(first);
    ls_record_free(&record);
    free(text);
}

/* Records written by hand: what they say is looked at before there is a job. */
typedef struct line {
    int64_t version, batch, run, read[2];
} line;

static ls_status read_by_hand(const line *a, size_t a_count, const line *b, size_t b_count, int64_t staleness)
{
    ls_record_head head = { .id = "00112233445566778899aabbccddeeff",
                            .servers = 2,
                            .staleness = staleness,
                            .accumulate = 1,
                            .job = json_object() };
    ls_replay_schedule schedule;
    memset(head.sha256, 'a', 64);
    for (int s = 0; s < 2; s++) {
        char path[PATH_MAX];
        ls_record_writer writer = LS_RECORD_CLOSED;
        head.server = s;
        must(ls_record_path(file, s, path));
        must(ls_record_create(&writer, path, &head));
        for (size_t i = 0; i < (s ? b_count : a_count); i++) {
            const line *l = s ? &b[i] : &a[i];
            ls_record_push push = { .version = l->version, .batch = l->batch, .run = l->run, .read = l->read };
            memset(push.sha256, 'a', 64);
            must(ls_record_add(&writer, &push));
        }
        must(ls_record_close(&writer));
    }
    json_decref(head.job);
    ls_status status = ls_replay_schedule_read(file, &schedule);
    if (status == LS_OK)
        ls_replay_schedule_free(&schedule);
    return status;
}

#define LINES(...) (const line[]){ __VA_ARGS__ }, sizeof((const line[]){ __VA_ARGS__ }) / sizeof(line)

static void fails_with(ls_status status, const char *part)
{
    if (status != LS_ERR_DATA || !strstr(ls_last_error(), part))
        fail_msg("%s: '%s'; expected '%s'", ls_status_name(status), ls_last_error(), part);
}

static void bad_schedules_are_reported(void **state)
{
    (void)state;
    /* clang-format off */
    must(read_by_hand(LINES({ 1, 0, 0, { 0, 0 } }, { 2, 1, 1, { 0, 0 } }),
                      LINES({ 1, 1, 1, { 0, 0 } }, { 2, 0, 0, { 0, 0 } }), 1));
    fails_with(read_by_hand(LINES({ 1, 0, 0, { 0, 2 } }), LINES({ 1, 0, 0, { 0, 0 } }), 1),
         "version 2 of server 1 was read, but");
    fails_with(read_by_hand(LINES({ 1, 0, 0, { 0, 0 } }, { 2, 0, 0, { 1, 0 } }), LINES({ 1, 0, 0, { 0, 0 } }), 1),
         "server 0 applied batch 0 of epoch 0 twice");
    fails_with(read_by_hand(LINES({ 1, 0, 0, { 0, 0 } }), LINES({ 1, 0, 1, { 0, 0 } }), 1), "has run counter 0 in record");
    fails_with(read_by_hand(LINES({ 1, 0, 0, { 0, 1 } }, { 2, 1, 1, { 0, 0 } }),
                      LINES({ 1, 1, 1, { 1, 0 } }, { 2, 0, 0, { 0, 0 } }), 4), "pushes wait for each other");
    fails_with(read_by_hand(LINES({ 1, 0, 0, { 0, 0 } }, { 2, 1, 1, { 0, 0 } }, { 3, 2, 2, { 0, 0 } }),
                      LINES({ 1, 0, 0, { 0, 0 } }), 1), "exceeds the staleness bound of 1");
    /* clang-format on */
}

static void calls_are_checked(void **state)
{
    (void)state;
    ls_context *ctx;
    ls_model *model;
    char *own = NULL;
    make_model(&two, 1, &ctx, &model);
    ls_dataset *data = make_data(&two);
    assert_int_equal(ls_replay(model, data, NULL, NULL), LS_ERR_INVALID);
    assert_int_equal(ls_replay(model, data, "/nowhere/record", NULL), LS_ERR_NOT_FOUND);
    assert_int_equal(ls_record_own("/nowhere/record", &own), LS_ERR_NOT_FOUND);
    ls_dataset_destroy(data);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

static int prepare(void **state)
{
    (void)state;
    samples_fill_floats(pixels, labels, SAMPLES, SIDE * SIDE, CLASSES);
    if (make_folder(state) != 0)
        return -1;
    snprintf(file, sizeof(file), "%s/run.record", folder);
    return 0;
}

static int clean_up(void **state)
{
    (void)state;
    char path[PATH_MAX];
    for (int s = 0; s < MOST; s++)
        if (ls_record_path(file, s, path) == LS_OK)
            unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_schedule_can_be_replayed),
        cmocka_unit_test(impossible_settings_are_reported),
        cmocka_unit_test(bad_schedules_are_reported),
        cmocka_unit_test(calls_are_checked),
    };
    return cmocka_run_group_tests_name("replay", tests, prepare, clean_up);
}
