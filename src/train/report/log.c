/* Formats the training log; log_file.c writes it. docs/log.md documents the fields: change both
 * together. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "data/dataset.h"
#include "device/context.h"
#include "train/report/log_file.h"
#include "train/job/job.h"
#include "train/job/step.h"
#include "train/job/times.h"
#include "train/report/log.h"
#include "train/report/worker_times.h"

/* Users name metrics. */
static void put_key(ls_text *text, const char *key)
{
    ls_text_put(text, ",");
    ls_text_put_json(text, key);
    ls_text_put(text, ":");
}

/* JSON has no NaN and no infinity; they become null. */
static void put_number(ls_text *text, const char *key, double value)
{
    put_key(text, key);
    if (isfinite(value))
        ls_text_put_f64(text, value);
    else
        ls_text_put(text, "null");
}

static void put_count(ls_text *text, const char *key, int64_t value)
{
    put_key(text, key);
    ls_text_add(text, "%" PRId64, value);
}

static void put_flag(ls_text *text, const char *key, bool value)
{
    put_key(text, key);
    ls_text_put(text, value ? "true" : "false");
}

static void put_string(ls_text *text, const char *key, const char *value)
{
    put_key(text, key);
    ls_text_put_json(text, value);
}

/* ---- Start ---- */

/* Many JSON readers are exact only up to 2^53; larger seeds are strings. */
static void put_seed(ls_text *text, uint64_t seed)
{
    const char *quote = seed > (UINT64_C(1) << 53) ? "\"" : "";
    put_key(text, "seed");
    ls_text_add(text, "%s%" PRIu64 "%s", quote, seed, quote);
}

/* "2026-05-31T12:00:00Z" */
static void put_time(ls_text *text, const char *key)
{
    char shown[32];
    time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts) && strftime(shown, sizeof(shown), "%Y-%m-%dT%H:%M:%SZ", &parts) > 0)
        put_string(text, key, shown);
}

static void put_losses(ls_text *text, const ls_job *job)
{
    put_key(text, "losses");
    for (size_t i = 0; i < job->target_count; i++) {
        const ls_target *target = &job->targets[i];
        ls_text_put(text, i ? ",{\"output\":" : "[{\"output\":");
        ls_text_put_json(text, ls_model_output_name(job->model, target->output));
        put_string(text, "loss", ls_loss_name(&target->loss));
        put_number(text, "weight", target->weight);
        ls_text_put(text, "}");
    }
    ls_text_put(text, "]");
}

static void put_results(ls_text *text, const ls_job *job)
{
    put_key(text, "results");
    for (size_t i = 0; i < job->name_count; i++) {
        ls_text_put(text, i ? "," : "[");
        ls_text_put_json(text, job->names[i]);
    }
    ls_text_put(text, "]");
}

static void put_devices(ls_text *text, const ls_context *ctx, const ls_start_facts *facts)
{
    put_key(text, "devices");
    ls_text_put(text, "[");
    for (int i = 0; i < facts->device_count; i++) {
        char name[LS_SHORT_NAME];
        ls_text_put(text, i ? "," : "");
        ls_text_put_json(text, ls_device_short_name(ctx, facts->devices[i], name));
    }
    ls_text_put(text, "]");
}

static void put_data(ls_text *text, const ls_dataset *data)
{
    if (!data)
        return;
    if (data->left_out > 0)
        put_count(text, "left_out", data->left_out);
    for (int64_t i = 0; i < data->class_count; i++) {
        if (i == 0)
            put_key(text, "classes");
        ls_text_put(text, i ? "," : "[");
        ls_text_put_json(text, data->classes[i]);
    }
    if (data->class_count > 0)
        ls_text_put(text, "]");
}

ls_status ls_train_log_start(ls_train_log *log, ls_job *job, const ls_start_facts *facts)
{
    if (!log)
        return LS_OK;
    ls_text text = { 0 };
    ls_context *ctx = ls_model_graph(job->model)->context;
    char *bits = NULL, hex[65];
    int64_t step;
    LS_TRY(ls_job_step(job, &step));
    LS_TRY(ls_model_weights_sha256(job->model, hex));
    LS_TRY(ls_bit_class(ctx, &bits));
    ls_text_put(&text, "{\"event\":\"start\"");
    put_string(&text, "version", LS_VERSION);
    put_time(&text, "time");
    put_string(&text, "model", ls_model_name(job->model));
    put_count(&text, "parameters", ls_model_parameter_count(job->model));
    put_string(&text, "optimizer", ls_optimizer_name(&job->optimizer));
    put_losses(&text, job);
    put_results(&text, job);
    put_count(&text, "batch_size", facts->batch_size);
    put_count(&text, "epochs", facts->epochs);
    put_count(&text, "epochs_done", job->position.epoch);
    put_count(&text, "steps_done", step);
    put_count(&text, "lanes", facts->lanes);
    size_t by_lane = ls_model_norm_count(job->model, LS_PER_LANE),
           by_batch = ls_model_norm_count(job->model, LS_PER_BATCH);
    if (by_lane + by_batch > 0)
        put_string(&text, "norm_statistics", by_batch == 0 ? "lane" : by_lane == 0 ? "batch" : "mixed");
    put_devices(&text, ctx, facts);
    put_data(&text, facts->data);
    put_seed(&text, facts->seed);
    put_string(&text, "bit_class", bits);
    put_string(&text, "weights_sha256", hex);
    free(bits);
    ls_train_log_put(log, &text);
    return LS_OK;
}

/* ---- Steps and epochs ---- */

/* Contains nothing that depends on time or devices, so that runs can be compared line by line. */
void ls_train_log_step(ls_train_log *log, const ls_step_facts *facts)
{
    if (!log)
        return;
    ls_text text = { 0 };
    ls_text_add(&text, "{\"event\":\"step\",\"step\":%" PRId64, facts->step);
    put_number(&text, "loss", facts->loss);
    put_count(&text, "samples", facts->samples);
    put_count(&text, "lanes", facts->lanes);
    put_number(&text, "learning_rate", facts->learning_rate);
    if (facts->hash)
        put_string(&text, "hash", facts->hash);
    ls_train_log_put(log, &text);
}

static void put_all(ls_text *text, const char *prefix, const ls_results *results)
{
    for (size_t i = 0; i < results->count; i++) {
        char key[96];
        snprintf(key, sizeof(key), "%s%s", prefix, results->names[i]);
        put_number(text, key, results->values[i]);
    }
}

static void put_times(ls_text *text, double seconds, const ls_times *times)
{
    put_number(text, "seconds", seconds);
    put_number(text, "data_seconds", times->data);
    put_number(text, "compute_seconds", times->compute);
    put_number(text, "join_seconds", times->join);
    put_number(text, "other_seconds", times->other);
    put_number(text, "moved_bytes", times->moved_bytes);
}

void ls_train_log_epoch(ls_train_log *log, const ls_epoch_facts *facts)
{
    if (!log)
        return;
    ls_text text = { 0 };
    ls_text_add(&text, "{\"event\":\"epoch\",\"epoch\":%" PRId64, facts->epoch + 1);
    put_flag(&text, "complete", facts->whole);
    put_count(&text, "steps", facts->steps);
    put_count(&text, "samples", facts->results->samples);
    put_number(&text, "learning_rate", facts->learning_rate);
    put_all(&text, "", facts->results);
    if (facts->validation) {
        put_all(&text, "val_", facts->validation);
        put_count(&text, "validation_samples", facts->validation->samples);
        put_number(&text, "validation_seconds", facts->validation_seconds);
    }
    put_times(&text, facts->seconds, facts->times);
    ls_fit_seconds_put(facts->job->seconds, ls_model_graph(facts->job->model)->context, true, facts->times, &text);
    ls_worker_times_put(facts->workers, &text);
    ls_train_log_put(log, &text);
}

void ls_train_log_evaluation(ls_train_log *log, int64_t step, double seconds, const ls_results *results)
{
    if (!log)
        return;
    ls_text text = { 0 };
    ls_text_add(&text, "{\"event\":\"evaluation\",\"step\":%" PRId64, step);
    put_all(&text, "val_", results);
    put_count(&text, "validation_samples", results->samples);
    put_number(&text, "validation_seconds", seconds);
    ls_train_log_put(log, &text);
}

/* ---- Checkpoints ---- */

void ls_train_log_checkpoint(ls_train_log *log, const ls_checkpoint_event *event)
{
    if (!log)
        return;
    ls_text text = { 0 };
    ls_text_add(&text, "{\"event\":\"checkpoint\",\"step\":%" PRId64, event->step);
    put_number(&text, "seconds", event->seconds);
    put_number(&text, "waited_seconds", event->waited);
    if (event->error)
        put_string(&text, "error", event->error);
    else
        put_number(&text, "bytes", (double)event->bytes);
    ls_train_log_put(log, &text);
}

void ls_train_log_resume(ls_train_log *log, const char *from, int64_t step, const char *other_bits)
{
    if (!log)
        return;
    ls_text text = { 0 };
    ls_text_add(&text, "{\"event\":\"resume\",\"step\":%" PRId64, step);
    put_string(&text, "from", from);
    if (other_bits)
        put_string(&text, "other_bits", other_bits);
    ls_train_log_put(log, &text);
}

/* ---- End ---- */

void ls_train_log_close(ls_train_log *log, ls_job *job, const ls_end_facts *facts)
{
    if (!log)
        return;
    ls_text text = { 0 };
    char hex[65];
    int64_t step;
    ls_text_put(&text, "{\"event\":\"end\"");
    put_string(&text, "reason", facts->reason);
    if (facts->error)
        put_string(&text, "error", facts->error);
    put_time(&text, "time");
    put_count(&text, "epochs_done", job->position.epoch);
    if (ls_job_step(job, &step) == LS_OK)
        put_count(&text, "steps_done", step);
    put_times(&text, facts->seconds, facts->times);
    ls_fit_seconds_put(job->seconds, ls_model_graph(job->model)->context, false, facts->times, &text);
    if (ls_model_weights_sha256(job->model, hex) == LS_OK)
        put_string(&text, "weights_sha256", hex);
    ls_train_log_put(log, &text);
    ls_train_log_end(log);
}
