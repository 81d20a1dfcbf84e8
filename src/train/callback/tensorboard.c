/* Writes event files for TensorBoard, with the tags of Keras's callback.
 *
 * A file is a sequence of TFRecords: length (u64), its masked CRC-32C, the data, its masked
 * CRC-32C. The data is a protocol buffer Event with these fields:
 *     Event       1 wall_time (double), 2 step (int64), 3 file_version (string, first event only),
 *                 5 summary
 *     Summary     1 value
 *     Value       1 tag (string), 2 simple_value (float), 5 histo
 *     Histogram   1 min, 2 max, 3 num, 4 sum, 5 sum_squares (doubles), 6 bucket_limit, 7 bucket (packed
 *                 doubles) */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "nn/model.h"
#include "train/callback/callback.h"
#include "train/job/step.h"

#define NAME       "tensorboard"
#define NAME_BYTES 160 /* length of a file name, which contains the host name */

/* Saved state of a folder: its file, and its size after the last step or complete epoch. */
typedef struct file_position {
    int64_t bytes;
    char file[NAME_BYTES]; /* "": none yet */
} file_position;

typedef struct writer {
    const char *folder; /* folder in log_dir: "train" */
    ls_append file;
    ls_text records; /* to write at once */
    /* if another worker writes: the last two flushes, newest first */
    ls_text last[2];
    bool failed;
} writer;

typedef enum stream { TRAIN, VALIDATION, STREAMS } stream;

typedef struct tensorboard {
    ls_tensorboard_options options;
    ls_callback_facts facts;
    const char *folder;
    bool quiet; /* another worker writes */
    writer writers[STREAMS];
    file_position now[STREAMS];
} tensorboard;

/* ---- Records ---- */

static void put_fixed(ls_text *to, uint64_t value, int bytes)
{
    char raw[8];
    for (int i = 0; i < bytes; i++)
        raw[i] = (char)(value >> (8 * i));
    ls_text_put_bytes(to, raw, (size_t)bytes);
}

static void put_varint(ls_text *to, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        put_fixed(to, (value & 127) | 128, 1);
    put_fixed(to, value, 1);
}

#define VARINT  0
#define FIXED64 1
#define BYTES   2
#define FIXED32 5

static void put_key(ls_text *to, int field, int wire)
{
    put_varint(to, (uint64_t)(field << 3 | wire));
}

static void put_part(ls_text *to, int field, const char *bytes, size_t count)
{
    put_key(to, field, BYTES);
    put_varint(to, count);
    ls_text_put_bytes(to, bytes, count);
}

static void put_double(ls_text *to, int field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    put_key(to, field, FIXED64);
    put_fixed(to, bits, 8);
}

static void put_float(ls_text *to, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    put_key(to, field, FIXED32);
    put_fixed(to, bits, 4);
}

static void put_record(ls_text *to, const ls_text *event)
{
    char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (char)((uint64_t)event->length >> (8 * i));
    ls_text_put_bytes(to, length, 8);
    put_fixed(to, ls_crc32c_masked(length, 8), 4);
    ls_text_put_bytes(to, ls_text_get(event), event->length);
    put_fixed(to, ls_crc32c_masked(ls_text_get(event), event->length), 4);
    to->failed |= event->failed;
}

static double wall_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void put_version(ls_text *to)
{
    static const char version[] = "brain.Event:2";
    ls_text event = { 0 };
    put_double(&event, 1, wall_time());
    put_part(&event, 3, version, strlen(version));
    put_record(to, &event);
    ls_text_free(&event);
}

/* "<prefix><name><suffix>" */
typedef struct tag {
    const char *prefix, *name, *suffix;
} tag;

/* Frees the value, whose tag is still missing. */
static void put_value(ls_text *to, tag named, int64_t step, ls_text *value)
{
    ls_text full = { 0 }, item = { 0 }, summary = { 0 }, event = { 0 };
    ls_text_add(&full, "%s%s%s", named.prefix, named.name, named.suffix);
    put_part(&item, 1, ls_text_get(&full), full.length);
    ls_text_put_bytes(&item, ls_text_get(value), value->length);
    put_part(&summary, 1, ls_text_get(&item), item.length);
    put_double(&event, 1, wall_time());
    put_key(&event, 2, VARINT);
    put_varint(&event, (uint64_t)step);
    put_part(&event, 5, ls_text_get(&summary), summary.length);
    event.failed |= full.failed | item.failed | summary.failed | value->failed;
    put_record(to, &event);
    ls_text_free(value);
    ls_text_free(&full);
    ls_text_free(&item);
    ls_text_free(&summary);
    ls_text_free(&event);
}

static void put_scalar(ls_text *to, tag named, int64_t step, double value)
{
    ls_text item = { 0 };
    put_float(&item, 2, (float)value);
    put_value(to, named, step, &item);
}

/* ---- Histograms ---- */

#define BUCKETS 30 /* buckets of equal width, as TensorFlow's default */

typedef struct histogram {
    double min, max, sum, squares;
    double counts[BUCKETS];
    int64_t count; /* finite numbers */
} histogram;

static double number_at(const ls_array *array, int64_t i)
{
    return array->dtype == LS_F32 ? (double)((const float *)array->data)[i] : ((const double *)array->data)[i];
}

static void count_numbers(const ls_array *array, int64_t size, histogram *h)
{
    *h = (histogram){ .min = INFINITY, .max = -INFINITY };
    for (int64_t i = 0; i < size; i++) {
        double x = number_at(array, i);
        if (!isfinite(x))
            continue;
        h->min = fmin(h->min, x);
        h->max = fmax(h->max, x);
        h->sum += x;
        h->squares += x * x;
        h->count++;
    }
    double width = (h->max - h->min) / BUCKETS;
    for (int64_t i = 0; i < size; i++) {
        double x = number_at(array, i), at = width > 0 ? (x - h->min) / width : 0;
        if (isfinite(x))
            h->counts[at < BUCKETS ? (int)at : BUCKETS - 1]++;
    }
}

/* All numbers equal: one bucket. */
static void put_buckets(ls_text *to, const histogram *h)
{
    int count = h->max > h->min ? BUCKETS : 1;
    for (int field = 6; field <= 7; field++) {
        put_key(to, field, BYTES);
        put_varint(to, (uint64_t)count * 8);
        for (int i = 0; i < count; i++) {
            double limit = i == count - 1 ? h->max : h->min + (h->max - h->min) * (i + 1) / count;
            double value = field == 6 ? limit : h->counts[i];
            uint64_t bits;
            memcpy(&bits, &value, sizeof(bits));
            put_fixed(to, bits, 8);
        }
    }
}

/* Writes nothing if no number is finite, or the tensor has integers. */
static ls_status put_histogram(ls_text *to, tag named, int64_t step, ls_tensor *tensor)
{
    ls_array array;
    ls_text body = { 0 }, item = { 0 };
    histogram h;
    int64_t size = 1;
    if (ls_tensor_dtype(tensor) != LS_F32 && ls_tensor_dtype(tensor) != LS_F64)
        return LS_OK;
    LS_TRY(ls_value(tensor, &array));
    for (int i = 0; i < array.shape.rank; i++)
        size *= array.shape.dims[i];
    count_numbers(&array, size, &h);
    if (h.count == 0)
        return LS_OK;
    const double numbers[] = { h.min, h.max, (double)h.count, h.sum, h.squares };
    for (int i = 0; i < 5; i++)
        put_double(&body, i + 1, numbers[i]);
    put_buckets(&body, &h);
    put_part(&item, 5, ls_text_get(&body), body.length);
    item.failed |= body.failed;
    ls_text_free(&body);
    put_value(to, named, step, &item);
    return LS_OK;
}

/* ---- Files ---- */

static ls_status path_of(const tensorboard *t, stream p, char path[PATH_MAX])
{
    const char *file = t->now[p].file;
    int length = snprintf(path, PATH_MAX, "%s/%s%s%s", t->folder, t->writers[p].folder, file[0] ? "/" : "", file);
    return length < PATH_MAX ? LS_OK : ls_fail(LS_ERR_IO, "the folder name '%.100s...' is too long", t->folder);
}

/* Two runs of one process may begin in the same second. */
static ls_status make_file(tensorboard *t, stream p, char path[PATH_MAX])
{
    char host[64] = "localhost";
    gethostname(host, sizeof(host) - 1);
    for (int i = 0; i < 1000; i++) {
        snprintf(t->now[p].file, NAME_BYTES, "events.out.tfevents.%010lld.%s.%ld.%d", (long long)time(NULL), host,
                 (long)getpid(), i);
        LS_TRY(path_of(t, p, path));
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) {
            close(fd);
            return LS_OK;
        }
        if (errno != EEXIST)
            return ls_fail(LS_ERR_IO, "cannot create '%s': %s", path, strerror(errno));
    }
    return ls_fail(LS_ERR_IO, "cannot create '%s': this file and 999 with other numbers exist; remove old event files",
                   path);
}

/* Not when training begins, because a saved state may be loaded after that. */
static ls_status open_file(tensorboard *t, stream p)
{
    char path[PATH_MAX];
    writer *w = &t->writers[p];
    LS_TRY(path_of(t, p, path));
    if (t->now[p].file[0] != '\0' && access(path, W_OK) == 0) {
        LS_TRY(ls_append_open(&w->file, path));
        ls_append_truncate(&w->file, t->now[p].bytes);
        return LS_OK;
    }
    t->now[p] = (file_position){ .bytes = 0 };
    LS_TRY(make_file(t, p, path));
    LS_TRY(ls_append_open(&w->file, path));
    ls_text first = { 0 };
    put_version(&first);
    ls_status status = first.failed ? ls_fail(LS_ERR_MEMORY, "no memory for an event")
                                    : ls_append_write(&w->file, first.data, first.length);
    ls_text_free(&first);
    return status;
}

/* Writes all at once, so that a full disk leaves complete events. `keeps`: a resumed run keeps
 * them. */
static void flush(tensorboard *t, stream p, bool keeps)
{
    writer *w = &t->writers[p];
    ls_status status = LS_OK;
    if (t->quiet && w->records.length > 0) {
        ls_text_free(&w->last[1]);
        w->last[1] = w->last[0];
        w->last[0] = w->records;
        w->records = (ls_text){ 0 };
    }
    if (t->quiet)
        return;
    if (w->records.length > 0 && !w->failed) {
        if (w->records.failed)
            status = ls_fail(LS_ERR_MEMORY, "no memory for an event");
        if (status == LS_OK && w->file.fd < 0)
            status = open_file(t, p);
        if (status == LS_OK)
            status = ls_append_write(&w->file, w->records.data, w->records.length);
        if (status == LS_OK && keeps)
            t->now[p].bytes = w->file.bytes;
    }
    if (status != LS_OK) {
        w->failed = true;
        ls_callback_warn(&t->facts, NAME, t->folder);
    }
    ls_text_free(&w->records);
}

/* ---- Events ---- */

static void open_early(tensorboard *t, stream p)
{
    writer *w = &t->writers[p];
    if (w->file.fd >= 0 || w->failed || t->quiet)
        return;
    if (open_file(t, p) == LS_OK) {
        t->now[p].bytes = w->file.bytes;
    } else {
        w->failed = true;
        ls_callback_warn(&t->facts, NAME, t->folder);
    }
}

/* Opens the files before the first step, so that every checkpoint has their names, and a resumed
 * run replaces what a cut epoch wrote. */
static ls_status on_batch_begin(void *user, ls_model *model, const ls_logs *logs)
{
    tensorboard *t = user;
    (void)model, (void)logs;
    open_early(t, TRAIN);
    if (t->facts.validates)
        open_early(t, VALIDATION);
    return LS_OK;
}

static ls_status on_batch_end(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    tensorboard *t = user;
    (void)model, (void)stop;
    if (t->options.update_freq == 0 || logs->step % t->options.update_freq != 0)
        return LS_OK;
    for (size_t i = 0; i < logs->count; i++)
        put_scalar(&t->writers[TRAIN].records, (tag){ "batch_", logs->names[i], "" }, logs->step, logs->values[i]);
    flush(t, TRAIN, true);
    return LS_OK;
}

static bool has_histograms(const void *user, int64_t epoch)
{
    const tensorboard *t = user;
    return t->options.histogram_freq > 0 && epoch % t->options.histogram_freq == 0;
}

static ls_status put_gradients(void *user, int64_t epoch, const ls_step_nodes *step)
{
    tensorboard *t = user;
    for (size_t i = 0; i < step->count; i++)
        if (step->gradients[i])
            LS_TRY(put_histogram(&t->writers[TRAIN].records,
                                 (tag){ "", ls_tensor_name(step->variables[i]), "/gradient/histogram" }, epoch,
                                 step->gradients[i]));
    flush(t, TRAIN, true);
    return LS_OK;
}

static ls_status put_weights(tensorboard *t, const ls_model *model, int64_t epoch)
{
    for (size_t i = 0; i < ls_model_variable_count(model); i++)
        LS_TRY(put_histogram(&t->writers[TRAIN].records, (tag){ "", ls_model_variable_name(model, i), "/histogram" },
                             epoch, ls_model_variable(model, i)));
    return LS_OK;
}

static ls_status on_epoch_end(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    tensorboard *t = user;
    double rate;
    (void)stop;
    if (has_histograms(t, logs->epoch))
        LS_TRY(put_weights(t, model, logs->epoch));
    for (size_t i = 0; i < logs->count; i++) {
        bool val = strncmp(logs->names[i], "val_", 4) == 0;
        const char *name = logs->names[i] + (val ? 4 : 0);
        if (strcmp(name, "learning_rate") != 0)
            put_scalar(&t->writers[val ? VALIDATION : TRAIN].records, (tag){ "epoch_", name, "" }, logs->epoch,
                       logs->values[i]);
    }
    LS_TRY(ls_job_rate(t->facts.job, &rate));
    put_scalar(&t->writers[TRAIN].records, (tag){ "epoch_", "learning_rate", "" }, logs->epoch, rate);
    flush(t, TRAIN, !logs->cut);
    flush(t, VALIDATION, !logs->cut);
    return LS_OK;
}

static ls_status on_test_end(void *user, ls_model *model, const ls_logs *logs)
{
    tensorboard *t = user;
    (void)model;
    for (size_t i = 0; i < logs->count; i++)
        put_scalar(&t->writers[VALIDATION].records, (tag){ "evaluation_", logs->names[i], "_vs_iterations" },
                   logs->step, logs->values[i]);
    flush(t, VALIDATION, true);
    return LS_OK;
}

/* Starts new files: only the lost worker knew the names of its own. TensorBoard merges them. */
static void take_over(void *user)
{
    tensorboard *t = user;
    if (!t->quiet)
        return;
    t->quiet = false;
    for (int p = 0; p < STREAMS; p++) {
        writer *w = &t->writers[p];
        t->now[p] = (file_position){ .bytes = 0 };
        ls_text_free(&w->records);
        w->records = w->last[1];
        w->last[1] = (ls_text){ 0 };
        ls_text_put_bytes(&w->records, ls_text_get(&w->last[0]), w->last[0].length);
        flush(t, p, true);
    }
}

/* ---- State ---- */

static ls_status save(void *user, void **bytes, size_t *count)
{
    tensorboard *t = user;
    const ls_callback_bytes parts = { .monitor = "", .numbers = t->now, .number_bytes = sizeof(t->now) };
    return ls_callback_pack(&parts, bytes, count);
}

static ls_status load(void *user, const void *bytes, size_t count)
{
    tensorboard *t = user;
    file_position loaded[STREAMS];
    const ls_callback_bytes parts = { .monitor = "", .numbers = loaded, .number_bytes = sizeof(loaded) };
    LS_TRY(ls_callback_unpack(&parts, NAME, bytes, count));
    for (int p = 0; p < STREAMS; p++)
        if (loaded[p].bytes < 0 || !memchr(loaded[p].file, '\0', NAME_BYTES) || strchr(loaded[p].file, '/'))
            return ls_fail(LS_ERR_DATA, "the saved state of " NAME " is damaged; resume from another checkpoint");
    memcpy(t->now, loaded, sizeof(loaded));
    return LS_OK;
}

static ls_status try_folder(const tensorboard *t, stream p)
{
    char path[PATH_MAX];
    LS_TRY(path_of(t, p, path));
    LS_TRY(ls_make_folders(path));
    return access(path, W_OK | X_OK) == 0
               ? LS_OK
               : ls_fail(LS_ERR_IO, "cannot write to the folder '%s': %s", path, strerror(errno));
}

static ls_status open_state(const ls_callback_spec *spec, const ls_callback_facts *facts, ls_callback *out)
{
    const ls_tensorboard_options *o = &spec->tensorboard;
    LS_TRY(ls_builtin_state(NAME, sizeof(tensorboard), &out->user));
    tensorboard *t = out->user;
    t->options = *o;
    t->facts = *facts;
    t->quiet = ls_callback_is_quiet(facts);
    t->folder = o->log_dir ? o->log_dir : "logs";
    t->writers[TRAIN] = (writer){ .folder = "train", .file = LS_APPEND_CLOSED };
    t->writers[VALIDATION] = (writer){ .folder = "validation", .file = LS_APPEND_CLOSED };
    out->on_batch_begin = on_batch_begin;
    out->on_batch_end = on_batch_end;
    out->on_epoch_end = on_epoch_end;
    out->on_test_end = on_test_end;
    out->save = save;
    out->load = load;
    if (o->update_freq < 0)
        return ls_fail(LS_ERR_INVALID, NAME ": update_freq must not be negative, got %" PRId64, o->update_freq);
    if (o->histogram_freq < 0)
        return ls_fail(LS_ERR_INVALID, NAME ": histogram_freq must not be negative, got %" PRId64, o->histogram_freq);
    if (t->quiet)
        return LS_OK;
    if (facts->trains)
        LS_TRY(ls_fail_within(try_folder(t, TRAIN), NAME));
    return facts->validates || !facts->trains ? ls_fail_within(try_folder(t, VALIDATION), NAME) : LS_OK;
}

static void close_state(void *user)
{
    tensorboard *t = user;
    for (int p = 0; p < STREAMS; p++) {
        ls_text_free(&t->writers[p].records);
        ls_text_free(&t->writers[p].last[0]);
        ls_text_free(&t->writers[p].last[1]);
        if (ls_append_close(&t->writers[p].file) != LS_OK)
            ls_callback_warn(&t->facts, NAME, t->folder);
    }
    free(t);
}

const ls_builtin ls_builtin_tensorboard = { NAME,
                                            open_state,
                                            close_state,
                                            .only_writes = true,
                                            .take_over = take_over,
                                            .wants_gradients = has_histograms,
                                            .on_gradients = put_gradients };
