/* Draws and runs random jobs; see random_job.h. */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/sha256.h"
#include "random_job_parts.h"

/* ---- Random numbers ---- */

draws draws_from(uint64_t seed, uint64_t stream)
{
    return (draws){ (seed + 1) * 0x9e3779b97f4a7c15u ^ (stream + 1) * 0xd1b54a32d192ed03u };
}

/* SplitMix64. */
static uint64_t next(draws *d)
{
    uint64_t z = d->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint32_t draw(draws *d, uint32_t count)
{
    return (uint32_t)((next(d) >> 32) * count >> 32);
}

bool chance(draws *d, uint32_t percent)
{
    return draw(d, 100) < percent;
}

/* ---- Drawing a job ---- */

static ls_optimizer draw_optimizer(draws *d)
{
    const ls_optimizer kinds[] = { ls_sgd(),
                                   ls_sgd(.momentum = 0.9),
                                   ls_sgd(.momentum = 0.9, .nesterov = true),
                                   ls_adam(),
                                   ls_adamw(),
                                   ls_rmsprop(),
                                   ls_rmsprop(.momentum = 0.5),
                                   ls_adagrad(),
                                   ls_adadelta(),
                                   ls_adamax(),
                                   ls_nadam(),
                                   ls_ftrl(),
                                   ls_lion(),
                                   ls_lamb(),
                                   ls_muon(),
                                   ls_adam(.use_ema = true) };
    ls_optimizer o = kinds[draw(d, (int)(sizeof(kinds) / sizeof(*kinds)))];
    switch (draw(d, 4)) {
    case 0:
        o.options.clipvalue = 0.05;
        break;
    case 1:
        o.options.clipnorm = 0.1;
        break;
    case 2:
        o.options.global_clipnorm = 0.2;
        break;
    }
    if (chance(d, 30))
        o.options.gradient_accumulation_steps = 2 + draw(d, 2);
    if (chance(d, 25))
        o.options.weight_decay = 0.01;
    switch (draw(d, 4)) {
    case 0:
        o.options.schedule = ls_exponential_decay(0.02, 2, 0.7, chance(d, 50));
        break;
    case 1:
        o.options.schedule = ls_cosine_decay(0.02, 6, 0.1, 0.001, 2);
        break;
    default:
        o.options.learning_rate = 0.01;
    }
    return o;
}

/* Sizes that leave a last batch of one sample are common: they are where lanes are empty. */
static void draw_sizes(draws *d, random_job *j)
{
    j->batch = 1 + draw(d, chance(d, 20) ? 40 : 16);
    int64_t batches = 1 + draw(d, 3);
    int64_t rest = chance(d, 40) ? 1 : (int64_t)draw(d, (uint32_t)j->batch);
    j->samples = j->batch * batches + rest;
    if (j->samples > MOST)
        j->samples = MOST;
    j->epochs = 1 + draw(d, 3);
    j->lanes = chance(d, 30) ? 0 : 1 + (int)draw(d, chance(d, 30) ? 64 : 9);
    if (chance(d, 20))
        j->steps_per_epoch = 1 + draw(d, 4);
    if (chance(d, 20))
        j->max_steps = 2 + draw(d, 4);
}

static void draw_pipeline(draws *d, random_job *j)
{
    random_pipeline *p = &j->pipeline;
    if (chance(d, 15))
        p->source = SOURCE_GENERATOR;
    if (chance(d, 40)) {
        p->map = chance(d, 50);
        p->map_threads = chance(d, 50);
        p->skip = j->samples > 2 && chance(d, 20);
        p->shard = chance(d, 20);
        p->shuffle = chance(d, 50);
        p->repeat = chance(d, 20);
        p->batch = chance(d, 60);
        p->drop_remainder = chance(d, 20);
        p->prefetch = chance(d, 40);
    }
}

void random_job_draw(uint64_t seed, random_job *out)
{
    draws d = draws_from(seed, STREAM_JOB);
    random_job j = { .seed = seed, .inputs = 1 + (int)draw(&d, RANDOM_JOB_INPUTS) };
    j.outputs = 1 + (int)draw(&d, RANDOM_JOB_OUTPUTS);
    for (int i = 0; i < j.inputs; i++)
        j.input[i] = (input_kind)draw(&d, INPUT_KINDS);
    for (int i = 0; i < j.outputs; i++)
        j.target[i] = (target_kind)draw(&d, TARGET_KINDS);
    j.statistics = chance(&d, 50) ? LS_PER_BATCH : LS_PER_LANE;
    j.optimizer = draw_optimizer(&d);
    draw_sizes(&d, &j);
    draw_pipeline(&d, &j);
    j.sample_weights = chance(&d, 30);
    j.class_weights = j.outputs == 1 && j.target[0] == TARGET_SPARSE && chance(&d, 50);
    j.validation_data = chance(&d, 30);
    j.own_callback = chance(&d, 40);
    j.scheduler = j.optimizer.options.schedule.kind == LS_SCHEDULE_CONSTANT && chance(&d, 30);
    j.plateau = j.optimizer.options.schedule.kind == LS_SCHEDULE_CONSTANT && !j.scheduler && chance(&d, 30);
    j.early_stopping = chance(&d, 20);
    j.csv = chance(&d, 20);
    const random_pipeline none = { .source = SOURCE_ARRAYS };
    if (!j.validation_data && memcmp(&j.pipeline, &none, sizeof(none)) == 0 && j.samples > 4)
        j.validation_split = chance(&d, 30);
    *out = j;
}

typedef struct words {
    char *text;
    size_t bytes, used;
} words;

__attribute__((format(printf, 2, 3))) static void put(words *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(w->text + w->used, w->bytes - w->used, format, arguments);
    va_end(arguments);
    if (written > 0)
        w->used = w->used + (size_t)written < w->bytes ? w->used + (size_t)written : w->bytes - 1;
}

void random_job_describe(const random_job *j, char *out, size_t bytes)
{
    static const char *const inputs[] = { "uint8 image", "image", "vector", "ids" };
    static const char *const targets[] = { "sparse", "one-hot", "binary", "numbers" };
    const ls_optimizer_options *o = &j->optimizer.options;
    const random_pipeline *p = &j->pipeline;
    words w = { .text = out, .bytes = bytes };
    put(&w, "inputs:");
    for (int i = 0; i < j->inputs; i++)
        put(&w, " %s", inputs[j->input[i]]);
    put(&w, "; targets:");
    for (int i = 0; i < j->outputs; i++)
        put(&w, " %s", targets[j->target[i]]);
    put(&w, "; norms by %s; %s, accumulation %" PRId64 ", clip %g %g %g",
        j->statistics == LS_PER_LANE ? "lane" : "batch", ls_optimizer_name(&j->optimizer),
        o->gradient_accumulation_steps, o->clipvalue, o->clipnorm, o->global_clipnorm);
    put(&w,
        "; %" PRId64 " samples, batch %" PRId64 ", %" PRId64 " epochs, %" PRId64 " steps each, at most %" PRId64
        ", %d lanes",
        j->samples, j->batch, j->epochs, j->steps_per_epoch, j->max_steps, j->lanes);
    const struct {
        bool on;
        const char *name;
    } parts[] = { { p->source == SOURCE_GENERATOR, "generator" },
                  { p->map, p->map_threads ? "map by threads" : "map" },
                  { p->skip, "skip" },
                  { p->shard, "shard" },
                  { p->shuffle, "shuffle" },
                  { p->repeat, "repeat" },
                  { p->batch, p->drop_remainder ? "whole batches" : "batch" },
                  { p->prefetch, "prefetch" },
                  { j->sample_weights, "sample weights" },
                  { j->class_weights, "class weights" },
                  { j->validation_data, "validation data" },
                  { j->validation_split, "validation split" },
                  { j->own_callback, "own callback" },
                  { j->scheduler, "scheduler" },
                  { j->plateau, "plateau" },
                  { j->early_stopping, "early stopping" },
                  { j->csv, "csv" } };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (parts[i].on)
            put(&w, ", %s", parts[i].name);
}

/* ---- Callbacks ---- */

/* Lowers the learning rate every third batch and remembers how many there were: it must be saved
 * with the job. */
typedef struct own {
    const random_job *job;
    int64_t batches;
} own;

static ls_status own_batch_end(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    own *o = user;
    double rate;
    (void)logs;
    (void)stop;
    o->batches++;
    if (o->batches % 3 || o->job->optimizer.options.schedule.kind != LS_SCHEDULE_CONSTANT)
        return LS_OK;
    ls_status status = ls_learning_rate(model, &rate);
    return status == LS_OK ? ls_set_learning_rate(model, rate * 0.75) : status;
}

static ls_status own_epoch_end(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    own *o = user;
    (void)model;
    *stop = !logs->cut && o->batches > 20;
    return LS_OK;
}

static ls_status own_save(void *user, void **bytes, size_t *count)
{
    own *o = user;
    int64_t *copy = malloc(sizeof(*copy));
    if (!copy)
        return LS_ERR_MEMORY;
    *copy = o->batches;
    *bytes = copy;
    *count = sizeof(*copy);
    return LS_OK;
}

static ls_status own_load(void *user, const void *bytes, size_t count)
{
    own *o = user;
    if (count != sizeof(o->batches))
        return LS_ERR_DATA;
    memcpy(&o->batches, bytes, count);
    return LS_OK;
}

static double lower_rate(void *user, int64_t epoch, double rate)
{
    (void)user;
    return epoch == 0 ? rate : rate * 0.7;
}

static size_t make_callbacks(const random_job *j, own *o, const char *csv, ls_callback out[5])
{
    size_t count = 0;
    if (j->own_callback)
        out[count++] = (ls_callback){
            .user = o, .on_batch_end = own_batch_end, .on_epoch_end = own_epoch_end, .save = own_save, .load = own_load
        };
    if (j->scheduler)
        out[count++] = ls_learning_rate_scheduler(lower_rate);
    if (j->plateau)
        out[count++] = ls_reduce_lr_on_plateau(.monitor = "loss", .factor = 0.5, .patience = 1, .min_delta = 0.01);
    if (j->early_stopping)
        out[count++] = ls_early_stopping("loss", .patience = 1, .restore_best_weights = true);
    if (j->csv)
        out[count++] = ls_csv_logger(csv);
    return count;
}

/* ---- Running ---- */

typedef struct report {
    char *text;
    size_t bytes;
    FILE *out;
} report;

static void put_failure(report *r, const char *what, ls_status status)
{
    fprintf(r->out, "%s: %s: %s\n", what, ls_status_name(status), status == LS_ERR_NOT_FINITE ? "" : ls_last_error());
}

/* A line for each step of the log: its number and the hash of the state after it. */
static void put_steps(report *r, const char *log)
{
    FILE *file = fopen(log, "r");
    char *line = NULL;
    size_t room = 0;
    while (file && getline(&line, &room, file) > 0) {
        const char *step = strstr(line, "\"event\":\"step\",\"step\":"), *hash = strstr(line, "\"hash\":\"");
        if (step && hash)
            fprintf(r->out, "step %" PRId64 ": %.64s\n", (int64_t)strtoll(step + 22, NULL, 10), hash + 8);
    }
    free(line);
    if (file)
        fclose(file);
}

static void put_history(report *r, const ls_history *history)
{
    for (size_t e = 0; history && e < ls_history_epochs(history); e++) {
        fprintf(r->out, "epoch %zu:", e);
        for (size_t i = 0; i < ls_history_count(history); i++) {
            double value = 0;
            if (ls_history_value(history, ls_history_name(history, i), e, &value) == LS_OK)
                fprintf(r->out, " %s %a", ls_history_name(history, i), value);
        }
        fprintf(r->out, "\n");
    }
}

static ls_status put_state(report *r, ls_model *model)
{
    char weights[65], state[65];
    ls_status status = ls_model_weights_sha256(model, weights);
    if (status == LS_OK)
        status = ls_model_state_sha256(model, state);
    if (status == LS_OK)
        fprintf(r->out, "weights %s\nstate %s\n", weights, state);
    return status;
}

static ls_status fit(const random_job *j, const random_run *run, ls_model *model, ls_dataset *data,
                     ls_dataset *validation, report *r)
{
    static const double class_weights[CLASSES] = { 1, 0.5, 2 };
    char log[512], csv[512], checkpoint[512];
    snprintf(log, sizeof(log), "%s/log", run->folder);
    snprintf(csv, sizeof(csv), "%s/csv", run->folder);
    snprintf(checkpoint, sizeof(checkpoint), "%s/../checkpoints", run->folder);
    bool saves = run->cut > 0 || run->resume;
    own mine = { .job = j };
    ls_callback callbacks[5];
    ls_history *history = NULL;
    ls_status status =
        ls_fit(model, data, .epochs = j->epochs, .batch_size = j->pipeline.batch ? 0 : j->batch,
               .steps_per_epoch = j->steps_per_epoch, .max_steps = run->cut ? run->cut : j->max_steps,
               .validation = validation, .validation_split = j->validation_split ? 0.25 : 0, .seed = j->seed,
               .class_weights = j->class_weights ? class_weights : NULL, .class_count = j->class_weights ? CLASSES : 0,
               .callbacks = callbacks, .callback_count = make_callbacks(j, &mine, csv, callbacks),
               .verbose = LS_VERBOSE_SILENT, .strategy = run->strategy, .lanes = j->lanes, .log = log, .log_hash = true,
               .history = run->resume ? NULL : &history, .checkpoint = saves ? checkpoint : NULL,
               .resume = run->resume ? "auto" : NULL, .audit = run->audit);
    put_steps(r, log);
    put_history(r, history);
    ls_history_destroy(history);
    return status;
}

static ls_status put_evaluation(const random_job *j, const random_run *run, ls_model *model, ls_dataset *data,
                                report *r)
{
    ls_results results;
    ls_status status = ls_evaluate(model, data, &results, .batch_size = j->batch, .verbose = LS_VERBOSE_SILENT,
                                   .strategy = run->strategy, .lanes = j->lanes);
    if (status != LS_OK)
        return status;
    fprintf(r->out, "evaluation of %" PRId64 ":", results.samples);
    for (size_t i = 0; i < results.count; i++)
        fprintf(r->out, " %s %a", results.names[i], results.values[i]);
    fprintf(r->out, "\n");
    return LS_OK;
}

static ls_status put_predictions(const random_job *j, const random_run *run, ls_model *model, ls_dataset *data,
                                 report *r)
{
    for (int output = 0; output < j->outputs; output++) {
        char hex[65];
        ls_array values = { 0 };
        ls_status status = ls_predict(model, data, &values, .batch_size = j->batch, .verbose = LS_VERBOSE_SILENT,
                                      .strategy = run->strategy, .lanes = j->lanes, .index = output);
        if (status == LS_OK)
            status = ls_sha256_of(values.data, (size_t)values.shape.dims[0] * random_row_bytes(values, 4), hex);
        free(values.data);
        if (status != LS_OK)
            return status;
        fprintf(r->out, "predictions %d: %s\n", output, hex);
    }
    return LS_OK;
}

static void train(const random_job *j, const random_run *run, ls_model *model, samples *s, report *r)
{
    ls_dataset *data = random_data_make(s), *all = random_samples_all(s, false), *validation = NULL;
    if (j->validation_data)
        validation = ls_take(random_samples_all(s, false), 1 + j->samples / 2);
    ls_status status = fit(j, run, model, data, validation, r);
    if (status != LS_OK)
        put_failure(r, "fit", status);
    status = put_state(r, model);
    if (status == LS_OK && !run->cut)
        status = put_evaluation(j, run, model, all, r);
    if (status == LS_OK && !run->cut)
        status = put_predictions(j, run, model, all, r);
    if (status != LS_OK)
        put_failure(r, "after fit", status);
    ls_dataset_destroy(data);
    ls_dataset_destroy(all);
    ls_dataset_destroy(validation);
}

char *random_job_run(const random_job *j, ls_context *ctx, const random_run *run)
{
    report r = { .text = NULL };
    ls_model *model = NULL;
    samples *s = random_samples_make(j);
    r.out = s ? open_memstream(&r.text, &r.bytes) : NULL;
    if (r.out) {
        ls_status status = random_model_make(j, ctx, &model);
        if (status == LS_OK)
            status = random_model_compile(j, model);
        if (status == LS_OK)
            train(j, run, model, s, &r);
        else
            put_failure(&r, "model", status);
        ls_model_destroy(model);
        fclose(r.out);
    }
    free(s);
    return r.text;
}
