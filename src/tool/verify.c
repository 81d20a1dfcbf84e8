/* lockstep verify: runs with the same number of lanes must end with the same hash. If one does not,
 * repeats it step by step to find the first variable and element that differ. */
#include "tool/tool.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#define MOST_COUNTS  16
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- Variants ---- */

typedef struct variant {
    const char *name;
    ls_strategy_kind kind;
    ls_all_reduce all_reduce;
    ls_pipeline_order order;
    int replicas; /* replicas of the stages; 0: no stages, or one replica */
    bool split;   /* distribute lanes unevenly */
} variant;

static const variant variants[] = {
    { .name = "one-device", .kind = LS_STRATEGY_ONE_DEVICE },
    { .name = "mirrored", .kind = LS_STRATEGY_MIRRORED },
    { .name = "mirrored/hierarchical-copy",
      .kind = LS_STRATEGY_MIRRORED,
      .all_reduce = LS_ALL_REDUCE_HIERARCHICAL_COPY },
    { .name = "mirrored/one-device", .kind = LS_STRATEGY_MIRRORED, .all_reduce = LS_ALL_REDUCE_TO_ONE },
    { .name = "mirrored/work-split", .kind = LS_STRATEGY_MIRRORED, .split = true },
    { .name = "data-parallel", .kind = LS_STRATEGY_DATA_PARALLEL },
    { .name = "model-parallel", .kind = LS_STRATEGY_MODEL_PARALLEL },
    { .name = "pipeline", .kind = LS_STRATEGY_PIPELINE },
    { .name = "pipeline/fill-drain", .kind = LS_STRATEGY_PIPELINE, .order = LS_FILL_DRAIN },
    { .name = "pipeline/2-replicas", .kind = LS_STRATEGY_PIPELINE, .replicas = 2 },
};

typedef struct trial {
    bool chosen[COUNT(variants)];
    int64_t devices[MOST_COUNTS], lanes[MOST_COUNTS], workers[MOST_COUNTS + 1];
    size_t device_counts, lane_counts, worker_counts;
} trial;

/* "mirrored" also selects all of its variants. */
static bool choose(const char *name, size_t length, bool *chosen)
{
    bool found = false;
    for (size_t v = 0; v < COUNT(variants); v++) {
        bool same = strlen(variants[v].name) >= length && memcmp(variants[v].name, name, length) == 0;
        if (same && (variants[v].name[length] == '\0' || variants[v].name[length] == '/'))
            chosen[v] = found = true;
    }
    return found;
}

static ls_status read_strategies(const char *text, bool *chosen)
{
    for (const char *at = text; *at != '\0';) {
        const char *names[COUNT(variants)];
        char name[64];
        size_t length = strcspn(at, ",");
        for (size_t v = 0; v < COUNT(variants); v++)
            names[v] = variants[v].name;
        snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), at);
        if (length == 0 || !choose(name, strlen(name), chosen))
            return ls_fail(LS_ERR_INVALID, "--strategies: unknown strategy '%s'%s", name,
                           ls_advise_name(name, names, COUNT(variants)).text);
        at += length + (at[length] == ',');
    }
    return LS_OK;
}

static ls_status read_counts(const char *flag, const char *text, int most, int64_t *out, size_t *count)
{
    *count = tool_read_numbers(text, ',', 1, most, out, MOST_COUNTS);
    return *count > 0 ? LS_OK
                      : ls_fail(LS_ERR_INVALID, "%s %s: expected up to %d numbers from 1 to %d, as in 1,2,4", flag,
                                text, MOST_COUNTS, most);
}

static ls_status read_trial(const tool_settings *settings, trial *out)
{
    LS_TRY(read_counts("--device-counts", settings->device_counts, LS_MAX_THREADS, out->devices, &out->device_counts));
    LS_TRY(read_counts("--lanes", settings->lane_counts, LS_MAX_THREADS, out->lanes, &out->lane_counts));
    out->worker_counts = 0;
    if (settings->worker_counts)
        LS_TRY(
            read_counts("--workers", settings->worker_counts, LS_MAX_CLUSTER, out->workers + 1, &out->worker_counts));
    out->workers[0] = 1; /* the reference for the others */
    out->worker_counts++;
    for (size_t v = 0; v < COUNT(variants); v++)
        out->chosen[v] = settings->strategies == NULL;
    return settings->strategies ? read_strategies(settings->strategies, out->chosen) : LS_OK;
}

static ls_status check(const ls_options *options, tool_settings *settings)
{
    trial t;
    LS_TRY(tool_check_loss(options, settings));
    LS_TRY(tool_check_optimizer(options, settings));
    if (!tool_given(options, "--log-level"))
        settings->log_level = LS_LOG_ERROR; /* avoid the same warning in every run */
    LS_TRY(read_trial(settings, &t));
    return tool_check_devices(options, settings);
}

/* ---- One run ---- */

typedef struct run {
    const variant *variant;
    int64_t devices, lanes;
    int64_t workers; /* 0: without a cluster, in this process */
    int64_t number;  /* from 1, as printed */
    char devices_text[32], split[2 * LS_MAX_THREADS + 2];
    char hash[65];
    double results[LS_MAX_RESULTS]; /* loss and metrics of the epoch so far, after the last step */
    size_t result_count;
    double seconds;
} run;

static ls_status settings_of(const tool_settings *settings, run *r, tool_settings *out)
{
    *out = *settings;
    out->strategy = (int)r->variant->kind;
    out->all_reduce = (int)r->variant->all_reduce;
    out->pipeline = (int)r->variant->order;
    out->lanes = r->lanes;
    out->alone = r->workers == 1;
    out->devices = r->devices_text;
    /* Uses the last device, to test others than the first. */
    bool one = r->variant->kind == LS_STRATEGY_ONE_DEVICE;
    snprintf(r->devices_text, sizeof r->devices_text, one ? "cpu:%" PRId64 : "%" PRId64, r->devices - one);
    if (r->variant->replicas > 0) {
        out->replicas = r->variant->replicas;
        if (r->devices % out->replicas != 0 || r->devices == out->replicas)
            return ls_fail(LS_ERR_UNSUPPORTED,
                           "%" PRId64 " replicas of two or more stages do not fit %" PRId64 " device%s", out->replicas,
                           r->devices, r->devices == 1 ? "" : "s");
    }
    if (r->variant->split) {
        if (r->devices == 1)
            return ls_fail(LS_ERR_UNSUPPORTED, "one device cannot split the batch");
        for (int64_t i = 0; i < r->devices; i++)
            snprintf(r->split + 2 * i, 3, "%c%s", i == 0 ? '3' : '1', i + 1 < r->devices ? ":" : "");
        out->work_split = r->split;
    }
    return LS_OK;
}

static ls_status open_run(const tool_settings *settings, tool_session *session)
{
    LS_TRY(tool_open_context(settings, session));
    LS_TRY(tool_open_model(settings, session));
    LS_TRY(tool_open_data(settings, session, TOOL_SET_TRAIN));
    LS_TRY(tool_choose_loss(settings, session, session->train));
    return ls_compile(session->model, .optimizer = tool_optimizer(settings), .loss = session->loss,
                      .metrics = session->metrics);
}

static ls_status flip_bit(const ls_model *model)
{
    ls_tensor *variable = ls_model_variable(model, 0);
    ls_array value;
    if (variable == NULL)
        return ls_fail(LS_ERR_INVALID, "--break-run: the model has no weights");
    LS_TRY(ls_value(variable, &value));
    size_t count = 1;
    for (int i = 0; i < value.shape.rank; i++)
        count *= (size_t)value.shape.dims[i];
    uint32_t *copy = malloc(count * sizeof *copy);
    if (copy == NULL)
        return ls_fail(LS_ERR_MEMORY, "--break-run: no memory for a copy of a weight");
    memcpy(copy, value.data, count * sizeof *copy);
    copy[count / 2] ^= 1;
    ls_status status = ls_variable_set(variable, copy, count * sizeof *copy);
    free(copy);
    return status;
}

typedef struct watch {
    const tool_settings *settings;
    run *run;
    char (*hashes)[65]; /* by step; NULL: not wanted */
    int64_t done;       /* steps */
} watch;

static ls_status after_step(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    watch *w = user;
    (void)stop;
    w->done++;
    w->run->result_count = logs->count < LS_MAX_RESULTS ? logs->count : LS_MAX_RESULTS;
    memcpy(w->run->results, logs->values, w->run->result_count * sizeof(double));
    if (w->run->number == w->settings->break_run && w->done == (w->settings->steps + 1) / 2)
        LS_TRY(flip_bit(model));
    return w->hashes ? ls_model_state_sha256(model, w->hashes[w->done - 1]) : LS_OK;
}

/* Leaves the session open, so that the caller can read the weights. */
static ls_status train(const tool_settings *settings, run *r, int64_t steps, char (*hashes)[65], tool_session *session)
{
    tool_settings own;
    watch w = { settings, r, hashes, 0 };
    const ls_callback callback = { .user = &w, .on_batch_end = after_step };
    LS_TRY(settings_of(settings, r, &own));
    LS_TRY(open_run(&own, session));
    double start = ls_clock_now();
    LS_TRY(ls_fit(session->model, session->train, .batch_size = own.batch_size, .epochs = steps, .max_steps = steps,
                  .seed = own.seed, .strategy = session->strategy, .lanes = (int)own.lanes, .callbacks = &callback,
                  .callback_count = 1, .verbose = LS_VERBOSE_SILENT));
    r->seconds = ls_clock_now() - start;
    return ls_model_state_sha256(session->model, r->hash);
}

/* ---- Finding a difference ---- */

/* Prints the first element that differs and sets *differs. */
static ls_status compare_variable(const ls_model *good, const ls_model *bad, size_t index, bool *differs)
{
    ls_array a, b;
    LS_TRY(ls_value(ls_model_variable(good, index), &a));
    LS_TRY(ls_value(ls_model_variable(bad, index), &b));
    int64_t count = 1;
    for (int i = 0; i < a.shape.rank; i++)
        count *= a.shape.dims[i];
    for (int64_t e = 0; e < count; e++) {
        const float *x = (const float *)a.data + e, *y = (const float *)b.data + e;
        uint32_t x_bits, y_bits;
        memcpy(&x_bits, x, sizeof x_bits);
        memcpy(&y_bits, y, sizeof y_bits);
        if (x_bits == y_bits)
            continue;
        *differs = true;
        printf("%s, element ", ls_model_variable_name(good, index));
        int64_t rest = e, stride = count;
        for (int i = 0; i < a.shape.rank; i++) {
            stride /= a.shape.dims[i];
            printf("%s%" PRId64, i ? "," : "(", rest / stride);
            rest %= stride;
        }
        printf("%s: %.9g (0x%08" PRIx32 ") instead of %.9g (0x%08" PRIx32 ")\n", a.shape.rank ? ")" : "()", (double)*y,
               y_bits, (double)*x, x_bits);
        return LS_OK;
    }
    return LS_OK;
}

static ls_status compare_models(const ls_model *good, const ls_model *bad)
{
    bool differs = false;
    for (size_t v = 0; v < ls_model_variable_count(good) && !differs; v++)
        LS_TRY(compare_variable(good, bad, v, &differs));
    if (!differs)
        printf("no weight differs, but the optimizer state does\n");
    return LS_OK;
}

static ls_status list_hashes(const tool_settings *settings, run r, char (*hashes)[65])
{
    tool_session session = { 0 };
    ls_status status = train(settings, &r, settings->steps, hashes, &session);
    tool_close(&session);
    return status;
}

/* Repeats both runs with a hash after every step, then once more up to the first step that
 * differs. */
static ls_status find_difference(const tool_settings *settings, run good, run bad)
{
    size_t steps = (size_t)settings->steps, first = 0;
    char(*hashes)[65] = calloc(2 * steps, sizeof *hashes);
    tool_session a = { 0 }, b = { 0 };
    ls_status status = hashes ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for the hashes of %zu steps", steps);
    if (status == LS_OK)
        status = list_hashes(settings, good, hashes);
    if (status == LS_OK)
        status = list_hashes(settings, bad, hashes + steps);
    while (status == LS_OK && first < steps && strcmp(hashes[first], hashes[steps + first]) == 0)
        first++;
    if (status == LS_OK && first == steps) {
        printf("  no difference when both runs are repeated: it is not reproducible\n");
    } else if (status == LS_OK) {
        status = train(settings, &good, (int64_t)first + 1, NULL, &a);
        if (status == LS_OK)
            status = train(settings, &bad, (int64_t)first + 1, NULL, &b);
        if (status == LS_OK) {
            printf("  step %zu, ", first + 1);
            status = compare_models(a.model, b.model);
        }
    }
    tool_close(&a);
    tool_close(&b);
    free(hashes);
    return status;
}

/* ---- Workers ---- */

/* Memory shared with the workers of a run. */
typedef struct shared {
    const tool_settings *settings;
    run good, bad; /* bad: the run; good: only when searching for a difference */
} shared;

static ls_status train_as_worker(int rank, int count, void *user)
{
    shared *s = user;
    run own = s->bad;
    tool_session session = { 0 };
    (void)count;
    signal(SIGTERM, SIG_DFL); /* ls_spawn sends it to the others when one fails */
    ls_status status = train(s->settings, &own, s->settings->steps, NULL, &session);
    if (rank == 0)
        s->bad = own;
    tool_close(&session);
    return status;
}

/* Each worker repeats the good run, too, on its own. */
static ls_status compare_as_worker(int rank, int count, void *user)
{
    const shared *s = user;
    (void)count;
    signal(SIGTERM, SIG_DFL);
    if (rank > 0)
        tool_mute();
    return find_difference(s->settings, s->good, s->bad);
}

/* With --workers, new processes make every run: this process must not open a context before it
 * forks. */
static ls_status in_workers(const tool_settings *settings, const run *good, run *bad)
{
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED)
        return ls_fail(LS_ERR_MEMORY, "no memory to share with workers: %s", strerror(errno));
    s->settings = settings;
    s->bad = *bad;
    if (good)
        s->good = *good;
    ls_status status = ls_spawn((int)bad->workers, good ? compare_as_worker : train_as_worker, s);
    *bad = s->bad;
    munmap(s, sizeof *s);
    return status;
}

/* ---- All runs ---- */

static bool same_results(const run *a, const run *b)
{
    return a->result_count == b->result_count && memcmp(a->results, b->results, a->result_count * sizeof(double)) == 0;
}

static void print_results(const run *a, const run *b)
{
    for (size_t i = 0; i < a->result_count && i < b->result_count; i++)
        if (memcmp(&a->results[i], &b->results[i], sizeof(double)) != 0) {
            printf("  %s: %.17g (%a) instead of %.17g (%a)\n", i == 0 ? "loss" : "a metric", b->results[i],
                   b->results[i], a->results[i], a->results[i]);
            return;
        }
}

typedef struct tally {
    int64_t good, bad, skipped;
} tally;

static void print_row(const run *r)
{
    printf("%-27s", r->variant->name);
    if (r->workers > 0)
        printf(" %7" PRId64, r->workers);
    printf(" %7" PRId64 " %6" PRId64 "  ", r->devices, r->lanes);
}

static ls_status run_one(const tool_settings *settings, run *r)
{
    tool_settings own;
    tool_session session = { 0 };
    LS_TRY(settings_of(settings, r, &own)); /* detects unsupported runs without starting workers */
    if (r->workers > 0)
        return in_workers(settings, NULL, r);
    ls_status status = train(settings, r, settings->steps, NULL, &session);
    tool_close(&session);
    return status;
}

/* first: the reference run for these lanes. */
static ls_status try_one(const tool_settings *settings, run *r, run *first, tally *sums)
{
    ls_status status = run_one(settings, r);
    print_row(r);
    if (status == LS_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", ls_last_error());
        sums->skipped++;
        return LS_OK;
    }
    if (status != LS_OK && sums->good == 0) { /* not the strategy's fault */
        printf("FAILED\n");
        return status;
    }
    if (status != LS_OK) {
        printf("FAILED: %s\n", ls_last_error());
        sums->bad++;
        return LS_OK;
    }
    if (first->hash[0] == '\0')
        *first = *r;
    bool same_state = strcmp(first->hash, r->hash) == 0, same = same_state && same_results(first, r);
    printf("%s %7.2f  %s\n", r->hash, r->seconds, same ? "PASS" : "FAIL");
    sums->good += same;
    sums->bad += !same;
    if (same_state && !same)
        print_results(first, r);
    if (same_state)
        return LS_OK;
    return r->workers > 0 ? in_workers(settings, first, r) : find_difference(settings, *first, *r);
}

static ls_status try_counts(const tool_settings *settings, const trial *t, run *r, run *first, tally *sums)
{
    for (size_t d = 0; d < t->device_counts; d++)
        for (size_t w = 0; w < t->worker_counts; w++) {
            if (w > 0 && t->workers[w] == 1)
                continue; /* tried before */
            r->devices = t->devices[d];
            r->workers = t->worker_counts > 1 ? t->workers[w] : 0;
            r->number++;
            run own = *r;
            LS_TRY(try_one(settings, &own, first, sums));
        }
    return LS_OK;
}

static ls_status try_all(const tool_settings *settings, const trial *t, tally *sums)
{
    run r = { .number = 0 };
    printf("%-27s%s %7s %6s  %-64s %7s\n", "strategy", t->worker_counts > 1 ? " workers" : "", "devices", "lanes",
           "sha256", "seconds");
    for (size_t l = 0; l < t->lane_counts; l++) {
        run first = { .hash = "" };
        r.lanes = t->lanes[l];
        for (size_t v = 0; v < COUNT(variants); v++) {
            r.variant = &variants[v];
            if (t->chosen[v])
                LS_TRY(try_counts(settings, t, &r, &first, sums));
        }
    }
    return LS_OK;
}

/* Without --data: random samples, with an incomplete last batch. */
static void choose_data(tool_settings *settings, char buffer[64])
{
    if (settings->data != NULL && settings->data[0] != '\0')
        return;
    int64_t batch = settings->batch_size;
    snprintf(buffer, 64, "synthetic:count=%" PRId64, (settings->steps - 1) * batch + batch / 3 + 1);
    settings->data = buffer;
}

static ls_status verify(const tool_settings *settings, int *stopped_by)
{
    (void)stopped_by;
    trial t;
    tally sums = { 0 };
    char data[64];
    tool_settings own = *settings;
    choose_data(&own, data);
    LS_TRY(read_trial(&own, &t));
    printf("%s, %s: %" PRId64 " steps of %" PRId64 " samples, %s\n", own.model, own.data, own.steps, own.batch_size,
           tool_optimizer_name(&own));
    LS_TRY(try_all(&own, &t, &sums));
    printf("%" PRId64 " passed, %" PRId64 " failed, %" PRId64 " skipped\n", sums.good, sums.bad, sums.skipped);
    if (sums.bad > 0)
        return ls_fail(LS_ERR_INTERNAL, "%" PRId64 " of %" PRId64 " runs differ or failed", sums.bad,
                       sums.good + sums.bad);
    return sums.good > 0 ? LS_OK : ls_fail(LS_ERR_UNSUPPORTED, "every run was skipped");
}

const tool_command tool_verify = {
    .name = "verify",
    .arguments = "MODEL",
    .summary = "train with every strategy and number of devices and workers, and compare all bits",
    .details = "Trains a few steps with every strategy, on 1, 2, 3, 4 and 8 CPU devices, and prints the SHA-256 of "
               "weights and\n"
               "optimizer state after each run. Runs with the same number of lanes must agree. If one does not, prints "
               "the first\n"
               "step, weight and element that differ, and exits with status 1. Runs with another number of lanes are "
               "another job,\n"
               "with bits of its own. With --workers, repeats each run with these numbers of processes.",
    .takes_model = true,
    .tables = { &tool_verify_flags, &tool_data_flags, &tool_model_flags, &tool_shape_flags, &tool_loss_flags,
                &tool_optimizer_flags, &tool_batch_flags },
    .check = check,
    .run = verify,
};
