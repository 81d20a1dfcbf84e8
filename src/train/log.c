/* The log of a fit: JSON lines, one object an event, each written at once. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "train/job.h"

struct ls_train_log {
    int fd;
    char path[512]; /* for messages */
    ls_logger *logger;
    off_t bytes; /* of whole lines */
    int error;   /* errno of the write that failed: nothing is written after it */
};

/* Not fopen: a FIFO that nobody reads must not block for ever. */
ls_status ls_train_log_open(const char *path, ls_logger *logger, ls_train_log **out)
{
    ls_train_log *log = calloc(1, sizeof(*log));
    if (!log)
        return ls_fail(LS_ERR_MEMORY, "no memory for a log");
    snprintf(log->path, sizeof(log->path), "%s", path);
    log->logger = logger;
    log->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0666);
    if (log->fd < 0) {
        free(log);
        return ls_fail(LS_ERR_IO, "cannot open the log '%s': %s", path,
                       errno == ENXIO ? "it is a FIFO that nobody reads" : strerror(errno));
    }
    fcntl(log->fd, F_SETFL, fcntl(log->fd, F_GETFL) & ~O_NONBLOCK);
    *out = log;
    return LS_OK;
}

static bool write_all(int fd, const char *data, size_t left)
{
    while (left > 0) {
        ssize_t put = write(fd, data, left);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return false;
        data += put;
        left -= (size_t)put;
    }
    return true;
}

/* A full disk must not cost hours of training: the first failure is told and ends the log, which then holds whole lines
 * only. */
static void write_line(ls_train_log *log, ls_text *text)
{
    ls_text_put(text, "}\n");
    if (log->error == 0) {
        if (text->failed)
            log->error = ENOMEM;
        else if (!write_all(log->fd, ls_text_get(text), text->length))
            log->error = errno;
        else
            log->bytes += (off_t)text->length;
        if (log->error != 0) {
            ls_log_write(log->logger, LS_LOG_WARNING, "cannot write the log '%s': %s; training goes on without it",
                         log->path, strerror(log->error));
            if (ftruncate(log->fd, log->bytes) != 0 && errno != EINVAL) /* EINVAL: a pipe or a device */
                ls_log_write(log->logger, LS_LOG_WARNING, "the last line of '%s' may be cut short", log->path);
        }
    }
    ls_text_free(text);
}

/* Keys are also the names that users give to metrics. */
static void put_key(ls_text *text, const char *key)
{
    ls_text_put(text, ",");
    ls_text_put_json(text, key);
    ls_text_put(text, ":");
}

/* JSON has no NaN and no infinity: null. */
static void put_number(ls_text *text, const char *key, double value)
{
    put_key(text, key);
    if (isfinite(value))
        ls_text_put_f64(text, value);
    else
        ls_text_put(text, "null");
}

static void put_string(ls_text *text, const char *key, const char *value)
{
    put_key(text, key);
    ls_text_put_json(text, value);
}

ls_status ls_train_log_start(ls_train_log *log, ls_job *job, const ls_start_facts *facts)
{
    if (!log)
        return LS_OK;
    ls_text text = { 0 };
    char *bits = NULL;
    LS_TRY(ls_bit_class(ls_model_graph(job->model)->context, &bits));
    ls_text_put(&text, "{\"event\":\"start\"");
    put_string(&text, "version", LS_VERSION);
    put_string(&text, "model", ls_model_name(job->model));
    put_number(&text, "parameters", (double)ls_model_parameter_count(job->model));
    put_string(&text, "optimizer", ls_optimizer_name(&job->optimizer));
    put_string(&text, "loss", ls_loss_name(&job->targets[0].loss));
    put_number(&text, "batch_size", (double)facts->batch_size);
    put_number(&text, "epochs", (double)facts->epochs);
    put_number(&text, "lanes", facts->lanes);
    size_t by_lane = ls_model_norm_count(job->model, LS_PER_LANE),
           by_batch = ls_model_norm_count(job->model, LS_PER_BATCH);
    if (by_lane + by_batch > 0)
        put_string(&text, "norm_statistics", by_batch == 0 ? "lane" : by_lane == 0 ? "batch" : "mixed");
    put_number(&text, "devices", facts->devices);
    ls_text_add(&text, ",\"seed\":%" PRIu64, facts->seed);
    put_string(&text, "bit_class", bits);
    free(bits);
    write_line(log, &text);
    return LS_OK;
}

void ls_train_log_step(ls_train_log *log, int64_t step, double loss, int64_t samples, const char *hash)
{
    if (!log)
        return;
    ls_text text = { 0 };
    ls_text_add(&text, "{\"event\":\"step\",\"step\":%" PRId64, step);
    put_number(&text, "loss", loss);
    ls_text_add(&text, ",\"samples\":%" PRId64, samples);
    if (hash)
        put_string(&text, "hash", hash);
    write_line(log, &text);
}

static void put_all(ls_text *text, const char *prefix, const ls_results *results)
{
    for (size_t i = 0; i < results->count; i++) {
        char key[96];
        snprintf(key, sizeof(key), "%s%s", prefix, results->names[i]);
        put_number(text, key, results->values[i]);
    }
}

void ls_train_log_epoch(ls_train_log *log, int64_t epoch, double seconds, double validation_seconds,
                        const ls_results *results, const ls_results *validation, const ls_times *times)
{
    if (!log)
        return;
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
    write_line(log, &text);
}

void ls_train_log_close(ls_train_log *log, ls_model *model, const char *reason)
{
    if (!log)
        return;
    ls_text text = { 0 };
    char hex[65];
    ls_text_put(&text, "{\"event\":\"end\"");
    put_string(&text, "reason", reason);
    if (ls_model_weights_sha256(model, hex) == LS_OK)
        put_string(&text, "weights_sha256", hex);
    write_line(log, &text);
    if (close(log->fd) != 0 && log->error == 0)
        log->error = errno;
    if (log->error != 0)
        ls_log_write(log->logger, LS_LOG_WARNING, "the log '%s' is not complete: %s", log->path, strerror(log->error));
    free(log);
}
