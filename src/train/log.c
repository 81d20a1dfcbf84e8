/* The log of a fit: JSON lines, one object an event, flushed as they are written. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "train/training.h"

struct ls_train_log {
    FILE *file;
    char path[512];
};

ls_status ls_train_log_open(const char *path, ls_train_log **out)
{
    ls_train_log *log = calloc(1, sizeof(*log));
    if (!log)
        return ls_fail(LS_ERR_MEMORY, "no memory for a log");
    snprintf(log->path, sizeof(log->path), "%s", path);
    log->file = fopen(path, "w");
    if (!log->file) {
        free(log);
        return ls_fail(LS_ERR_IO, "%s: %s", path, strerror(errno));
    }
    *out = log;
    return LS_OK;
}

static ls_status write_line(ls_train_log *log, ls_text *text)
{
    ls_text_put(text, "}\n");
    bool good = !text->failed && fputs(ls_text_get(text), log->file) >= 0 && fflush(log->file) == 0;
    ls_text_free(text);
    return good ? LS_OK : ls_fail(LS_ERR_IO, "%s: %s", log->path, strerror(errno));
}

/* JSON has no NaN and no infinity: null. */
static void put_number(ls_text *text, const char *key, double value)
{
    ls_text_add(text, ",\"%s\":", key);
    if (isfinite(value))
        ls_text_put_f64(text, value);
    else
        ls_text_put(text, "null");
}

static void put_string(ls_text *text, const char *key, const char *value)
{
    ls_text_add(text, ",\"%s\":", key);
    ls_text_put_json(text, value);
}

ls_status ls_train_log_start(ls_train_log *log, ls_training *t, const ls_fit_options *options, int64_t batch_size,
                             int64_t epochs)
{
    if (!log)
        return LS_OK;
    ls_text text = { 0 };
    char *bits = NULL;
    LS_TRY(ls_bit_class(ls_model_graph(t->model)->context, &bits));
    ls_text_put(&text, "{\"event\":\"start\"");
    put_string(&text, "version", LS_VERSION);
    put_string(&text, "model", ls_model_name(t->model));
    put_number(&text, "parameters", (double)ls_model_parameter_count(t->model));
    put_string(&text, "optimizer", ls_optimizer_name(&t->options.optimizer));
    put_string(&text, "loss", ls_loss_name(&t->options.loss));
    put_number(&text, "batch_size", (double)batch_size);
    put_number(&text, "epochs", (double)epochs);
    put_number(&text, "lanes", options->lanes);
    put_number(&text, "devices", t->device_count);
    ls_text_add(&text, ",\"seed\":%" PRIu64, options->seed);
    put_string(&text, "bit_class", bits);
    free(bits);
    return write_line(log, &text);
}

ls_status ls_train_log_step(ls_train_log *log, int64_t step, double loss, int64_t samples, const char *hash)
{
    if (!log)
        return LS_OK;
    ls_text text = { 0 };
    ls_text_add(&text, "{\"event\":\"step\",\"step\":%" PRId64, step);
    put_number(&text, "loss", loss);
    ls_text_add(&text, ",\"samples\":%" PRId64, samples);
    if (hash)
        put_string(&text, "hash", hash);
    return write_line(log, &text);
}

static void put_all(ls_text *text, const char *prefix, const ls_results *results)
{
    for (size_t i = 0; i < results->count; i++) {
        char key[96];
        snprintf(key, sizeof(key), "%s%s", prefix, results->names[i]);
        put_number(text, key, results->values[i]);
    }
}

ls_status ls_train_log_epoch(ls_train_log *log, int64_t epoch, double seconds, double validation_seconds,
                             const ls_results *results, const ls_results *validation, const ls_times *times)
{
    if (!log)
        return LS_OK;
    ls_text text = { 0 };
    ls_text_add(&text, "{\"event\":\"epoch\",\"epoch\":%" PRId64, epoch);
    put_number(&text, "seconds", seconds);
    ls_text_add(&text, ",\"samples\":%" PRId64, results->samples);
    put_all(&text, "", results);
    if (validation) {
        put_all(&text, "val_", validation);
        put_number(&text, "validation_seconds", validation_seconds);
        ls_text_add(&text, ",\"validation_samples\":%" PRId64, validation->samples);
    }
    put_number(&text, "data_seconds", times->data);
    put_number(&text, "compute_seconds", times->compute);
    put_number(&text, "join_seconds", times->join);
    return write_line(log, &text);
}

ls_status ls_train_log_close(ls_train_log *log, ls_model *model, const char *reason)
{
    if (!log)
        return LS_OK;
    ls_text text = { 0 };
    char hex[65];
    ls_status status = ls_model_weights_sha256(model, hex);
    if (status == LS_OK) {
        ls_text_put(&text, "{\"event\":\"end\"");
        put_string(&text, "reason", reason);
        put_string(&text, "weights_sha256", hex);
        status = write_line(log, &text);
    }
    fclose(log->file);
    free(log);
    return status;
}
