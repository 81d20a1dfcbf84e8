/* Reads a log (docs/log.md). Counts lines that cannot be read, and uses the rest. */
#include "tool/report/report.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* ---- Curves ---- */

/* Averages pairs of neighbors. */
static void halve(report_curve *c)
{
    for (size_t i = 0; i < c->count / 2; i++) {
        c->x[i] = c->x[2 * i + 1];
        c->y[i] = c->y[2 * i] / 2 + c->y[2 * i + 1] / 2;
    }
    c->count /= 2;
    c->stride *= 2;
}

static void end_point(report_curve *c)
{
    if (c->pending == 0)
        return;
    c->x[c->count] = c->last_x;
    c->y[c->count++] = c->sum / (double)c->pending;
    c->sum = 0;
    c->pending = 0;
    if (c->count == REPORT_POINTS)
        halve(c);
}

static void add_point(report_curve *c, double x, double y)
{
    c->sum += y;
    c->last_x = x;
    if (++c->pending >= c->stride)
        end_point(c);
}

/* Removes points from x on: a resumed run logs steps again. */
static void cut_curve(report_curve *c, double x)
{
    c->sum = 0;
    c->pending = 0;
    while (c->count > 0 && c->x[c->count - 1] >= x)
        c->count--;
}

/* ---- Fields: missing ones and those of another type get the default ---- */

static double number(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Returns -1 if missing or negative. */
static int64_t whole(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);
    return json_is_integer(value) && json_integer_value(value) >= 0 ? json_integer_value(value) : -1;
}

static double seconds(const json_t *line, const char *key)
{
    double value = number(line, key);
    return value >= 0 && value < 1e12 ? value : 0; /* also for NAN */
}

/* Cuts text that is too long between two characters of UTF-8. */
static void keep_text(char *to, size_t room, const char *from)
{
    size_t bytes = strlen(from);
    if (bytes >= room)
        for (bytes = room - 1; bytes > 0 && ((unsigned char)from[bytes] & 0xc0) == 0x80;)
            bytes--;
    memcpy(to, from, bytes);
    to[bytes] = '\0';
}

static void text(const json_t *line, const char *key, char *out, size_t room)
{
    const char *value = json_string_value(json_object_get(line, key));
    if (value)
        keep_text(out, room, value);
}

#define TEXT(line, key, field) text(line, key, field, sizeof(field))

static void add_to_list(char *list, size_t room, const char *item)
{
    char longer[REPORT_TEXT + REPORT_NAME];
    int length = snprintf(longer, sizeof longer, "%s%s%.*s", list, list[0] ? ", " : "", REPORT_NAME - 4, item);
    if (length > 0 && (size_t)length < room)
        memcpy(list, longer, (size_t)length + 1);
    else if (strlen(list) + 5 < room && strcmp(list + strlen(list) - 4, ", \xe2\x80\xa6") != 0)
        strcat(list, ", \xe2\x80\xa6");
}

static void read_class_names(report_run *run, const json_t *names)
{
    size_t count = json_array_size(names) < REPORT_CLASSES ? json_array_size(names) : REPORT_CLASSES;
    free(run->class_names);
    run->class_names = count > 0 ? calloc(count, sizeof *run->class_names) : NULL;
    run->class_name_count = run->class_names ? count : 0;
    for (size_t i = 0; i < run->class_name_count; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        keep_text(run->class_names[i], REPORT_NAME, name ? name : "");
    }
}

/* ---- start ---- */

static void read_losses(report_run *run, const json_t *losses)
{
    size_t i;
    const json_t *one;
    run->losses[0] = '\0';
    json_array_foreach(losses, i, one)
    {
        const char *output = json_string_value(json_object_get(one, "output"));
        const char *loss = json_string_value(json_object_get(one, "loss"));
        double weight = number(one, "weight");
        char item[2 * REPORT_NAME] = "", named[REPORT_NAME];
        if (!loss)
            continue;
        keep_text(named, sizeof named / 2, output ? output : "");
        if (json_array_size(losses) > 1)
            snprintf(item, sizeof item, "%s: ", named);
        keep_text(named, sizeof named / 2, loss);
        strcat(item, named);
        if (weight >= 0 && weight != 1)
            snprintf(item + strlen(item), sizeof item - strlen(item), " \xc3\x97 %g", weight);
        add_to_list(run->losses, sizeof run->losses, item);
    }
}

static void read_seed(report_run *run, const json_t *seed)
{
    if (json_is_integer(seed))
        snprintf(run->seed, sizeof run->seed, "%lld", (long long)json_integer_value(seed));
    else if (json_is_string(seed))
        keep_text(run->seed, sizeof run->seed, json_string_value(seed));
}

static void read_results(report_run *run, const json_t *results)
{
    size_t i;
    const json_t *name;
    run->listed_count = 0;
    json_array_foreach(results, i, name) if (json_is_string(name) && run->listed_count < REPORT_VALUES)
        keep_text(run->listed[run->listed_count++], REPORT_NAME, json_string_value(name));
}

static void read_start(report_run *run, const json_t *line)
{
    size_t i;
    const json_t *device;
    run->starts++;
    run->waited_before += run->waited;
    run->waited = 0;
    run->reason[0] = run->error[0] = run->end_time[0] = run->last_weights[0] = '\0';
    read_results(run, json_object_get(line, "results"));
    TEXT(line, "version", run->version);
    if (run->starts == 1) {
        TEXT(line, "time", run->time);
        TEXT(line, "weights_sha256", run->first_weights);
    }
    TEXT(line, "model", run->model);
    TEXT(line, "optimizer", run->optimizer);
    TEXT(line, "bit_class", run->bit_class);
    if (json_object_get(line, "classes"))
        read_class_names(run, json_object_get(line, "classes"));
    read_losses(run, json_object_get(line, "losses"));
    read_seed(run, json_object_get(line, "seed"));
    run->parameters = whole(line, "parameters");
    run->batch_size = whole(line, "batch_size");
    run->epochs_wanted = whole(line, "epochs");
    run->lanes = whole(line, "lanes");
    run->used_devices[0] = '\0';
    json_array_foreach(json_object_get(line, "devices"), i, device) if (json_is_string(device))
        add_to_list(run->used_devices, sizeof run->used_devices, json_string_value(device));
}

/* ---- step and epoch ---- */

static void read_step(report_run *run, const json_t *line)
{
    int64_t step = whole(line, "step");
    if (step < 0)
        return;
    if (step <= run->step) {
        cut_curve(&run->loss, (double)step);
        cut_curve(&run->rate, (double)step);
    }
    run->step = step;
    add_point(&run->loss, (double)step, number(line, "loss"));
    add_point(&run->rate, (double)step, number(line, "learning_rate"));
}

/* A field is a loss or metric if the start event lists it, or, if that lists none, if it is
 * unknown. */
static bool is_value(const report_run *run, const char *key)
{
    static const char *const others[] = {
        "epoch", "steps", "samples", "learning_rate", "seconds", "validation_samples"
    };
    static const char *const endings[] = { "_seconds", "_bytes" };
    const char *name = strncmp(key, "val_", 4) == 0 ? key + 4 : key;
    for (size_t i = 0; i < run->listed_count; i++)
        if (strncmp(run->listed[i], name, REPORT_NAME - 8) == 0)
            return true;
    if (run->listed_count > 0)
        return strcmp(key, "loss") == 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i], key) == 0)
            return false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ls_ends_with(key, endings[i]))
            return false;
    return true;
}

/* Adds the name if needed. Returns REPORT_VALUES if there are too many. */
static size_t value_index(report_run *run, const char *key)
{
    char name[REPORT_NAME];
    keep_text(name, sizeof name, key);
    for (size_t i = 0; i < run->value_count; i++)
        if (strcmp(run->value_names[i], name) == 0)
            return i;
    if (run->value_count == REPORT_VALUES) {
        run->left_out = true;
        return REPORT_VALUES;
    }
    for (size_t i = 0; i < REPORT_EPOCHS; i++)
        run->epochs[i].values[run->value_count] = NAN;
    memcpy(run->value_names[run->value_count], name, sizeof name);
    return run->value_count++;
}

static void read_values(report_run *run, report_epoch *epoch, const json_t *line)
{
    const char *key;
    json_t *value;
    for (size_t i = 0; i < REPORT_VALUES; i++)
        epoch->values[i] = NAN;
    json_object_foreach((json_t *)line, key, value)
    {
        if (!is_value(run, key) || (!json_is_number(value) && !json_is_null(value)))
            continue;
        size_t index = value_index(run, key);
        if (index < REPORT_VALUES && json_is_number(value))
            epoch->values[index] = json_number_value(value);
    }
}

static void add_devices(report_run *run, const json_t *devices)
{
    size_t i;
    const json_t *one;
    json_array_foreach(devices, i, one)
    {
        const char *given = json_string_value(json_object_get(one, "name"));
        char name[REPORT_NAME];
        size_t k = 0;
        if (!given)
            continue;
        const char *brief = strstr(given, "/device:"); /* "/job:localhost/replica:0/task:0/device:CPU:0" */
        keep_text(name, sizeof name, brief ? brief + strlen("/device:") : given);
        while (k < run->device_count && strcmp(run->devices[k].name, name) != 0)
            k++;
        if (k == REPORT_DEVICES) {
            run->left_out = true;
            continue;
        }
        report_device *d = &run->devices[k];
        if (k == run->device_count) {
            *d = (report_device){ .busy = 0 };
            memcpy(d->name, name, sizeof name);
            run->device_count++;
        }
        d->busy += seconds(one, "busy");
        d->data += seconds(one, "data");
        d->joins += seconds(one, "joins");
        d->idle += seconds(one, "idle");
        d->other += seconds(one, "other");
    }
}

static void add_times(report_times *to, const report_times *t)
{
    to->seconds += t->seconds;
    to->data += t->data;
    to->compute += t->compute;
    to->join += t->join;
    to->other += t->other;
    to->validation += t->validation;
}

/* If full, drops every second epoch. One entry stays free for the last epoch. */
static report_epoch *next_epoch(report_run *run)
{
    if (run->epoch_count == REPORT_EPOCHS - 1) {
        for (size_t i = 0; 2 * i + 1 < run->epoch_count; i++)
            run->epochs[i] = run->epochs[2 * i + 1];
        run->epoch_count /= 2;
        run->epoch_stride *= 2;
    }
    return &run->epochs[run->epoch_count];
}

/* A resumed run may log an epoch again: it replaces the earlier one and those after it. */
static void read_epoch(report_run *run, const json_t *line)
{
    report_epoch made = { .epoch = whole(line, "epoch"), .steps = whole(line, "steps"), .rate = NAN };
    if (made.epoch < 0)
        return;
    while (run->epoch_count > 0 && run->epochs[run->epoch_count - 1].epoch >= made.epoch)
        run->epoch_count--;
    report_epoch *e = next_epoch(run);
    made.samples = whole(line, "samples");
    made.complete = !json_is_false(json_object_get(line, "complete"));
    made.at = run->step > 0 ? (double)run->step : (double)made.epoch;
    made.rate = number(line, "learning_rate");
    made.times = (report_times){ .seconds = seconds(line, "seconds"),
                                 .data = seconds(line, "data_seconds"),
                                 .compute = seconds(line, "compute_seconds"),
                                 .join = seconds(line, "join_seconds"),
                                 .other = seconds(line, "other_seconds"),
                                 .validation = seconds(line, "validation_seconds") };
    read_values(run, &made, line);
    *e = made;
    add_times(&run->times, &made.times);
    run->samples += made.samples > 0 && made.samples < INT64_MAX - run->samples ? made.samples : 0;
    add_devices(run, json_object_get(line, "devices"));
    if (run->epochs_seen == 0 || made.epoch < run->first_epoch)
        run->first_epoch = made.epoch;
    /* Epochs count from 1. */
    run->epochs_made = made.epoch - (run->first_epoch > 0 ? run->first_epoch - 1 : 0);
    run->last_is_kept = ++run->epochs_seen % run->epoch_stride == 0;
    run->epoch_count += run->last_is_kept;
}

/* ---- end ---- */

static void read_end(report_run *run, const json_t *line)
{
    const json_t *devices = json_object_get(line, "devices");
    TEXT(line, "reason", run->reason);
    TEXT(line, "error", run->error);
    TEXT(line, "time", run->end_time);
    TEXT(line, "weights_sha256", run->last_weights);
    if (json_array_size(devices) > 0) { /* totals of the run replace the sums of epochs */
        if (!run->devices_from_end)
            run->device_count = 0;
        run->devices_from_end = true;
        add_devices(run, devices);
    }
}

static void read_checkpoint(report_run *run, const json_t *line)
{
    bool failed = json_is_string(json_object_get(line, "error"));
    run->checkpoints += !failed;
    run->lost_checkpoints += failed;
    run->waited = seconds(line, "waited_seconds"); /* total so far */
}

/* ---- confusion ---- */

/* Returns NULL if it is not a square of numbers that are not negative, or too large. */
static double *read_matrix(const json_t *rows, size_t classes)
{
    double *matrix = classes > 0 && classes <= REPORT_CLASSES ? calloc(classes * classes, sizeof *matrix) : NULL;
    bool good = matrix != NULL;
    for (size_t i = 0; good && i < classes * classes; i++) {
        const json_t *row = json_array_get(rows, i / classes), *value = json_array_get(row, i % classes);
        good = json_array_size(row) == classes && json_is_number(value);
        matrix[i] = good ? json_number_value(value) : 0;
        good = good && matrix[i] >= 0 && matrix[i] < 1e15;
    }
    if (!good) {
        free(matrix);
        matrix = NULL;
    }
    return matrix;
}

/* The last matrix of the log counts. */
static void read_confusion(report_run *run, const json_t *line)
{
    const json_t *rows = json_object_get(line, "matrix"), *names = json_object_get(line, "classes");
    double *matrix = read_matrix(rows, json_array_size(rows));
    if (!matrix) {
        run->left_out = true;
        return;
    }
    free(run->confusion);
    run->confusion = matrix;
    run->classes = json_array_size(rows);
    if (names)
        read_class_names(run, names);
    run->confusion_set[0] = '\0';
    TEXT(line, "set", run->confusion_set);
    if (run->model[0] == '\0')
        TEXT(line, "model", run->model);
}

/* ---- Lines ---- */

static void count_bad(report_run *run, const char *why)
{
    if (run->bad_lines++ == 0)
        keep_text(run->first_bad, sizeof run->first_bad, why);
}

static ls_status read_line(report_run *run, const char *line, size_t bytes, bool ended)
{
    json_t *event = NULL;
    char name[64];
    snprintf(name, sizeof name, "line %lld", (long long)++run->lines);
    if (bytes == 0)
        return LS_OK;
    ls_status status = ls_json_read_buffer(name, line, bytes, &event);
    if (status == LS_ERR_MEMORY)
        return status;
    if (status != LS_OK && !ended) {
        run->torn = true;
        return LS_OK;
    }
    const char *kind = status == LS_OK ? json_string_value(json_object_get(event, "event")) : NULL;
    if (status != LS_OK)
        count_bad(run, ls_last_error());
    else if (kind && strcmp(kind, "start") == 0)
        read_start(run, event);
    else if (kind && strcmp(kind, "step") == 0)
        read_step(run, event);
    else if (kind && strcmp(kind, "epoch") == 0)
        read_epoch(run, event);
    else if (kind && strcmp(kind, "end") == 0)
        read_end(run, event);
    else if (kind && strcmp(kind, "checkpoint") == 0)
        read_checkpoint(run, event);
    else if (kind && strcmp(kind, "confusion") == 0)
        read_confusion(run, event);
    else if (!kind) /* later versions may add event kinds */
        count_bad(run, "a line without an event");
    json_decref(event);
    return LS_OK;
}

/* Skips lines that are longer than any that Lockstep writes. */
typedef struct reader {
    FILE *file;
    char *line;
    size_t bytes;
    bool too_long;
} reader;

static ls_status end_line(reader *r, report_run *run, bool ended)
{
    ls_status status = LS_OK;
    if (r->too_long) {
        char why[80];
        snprintf(why, sizeof why, "line %lld has more than %d bytes", (long long)++run->lines, REPORT_LINE);
        count_bad(run, why);
    } else {
        status = read_line(run, r->line, r->bytes, ended);
    }
    r->bytes = 0;
    r->too_long = false;
    return status;
}

static ls_status read_lines(reader *r, report_run *run)
{
    char buffer[65536];
    for (size_t got; (got = fread(buffer, 1, sizeof buffer, r->file)) > 0;) {
        for (const char *at = buffer, *end = buffer + got; at < end;) {
            const char *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline ? newline : end;
            size_t bytes = (size_t)(stop - at);
            r->too_long = r->too_long || bytes > REPORT_LINE - r->bytes;
            if (!r->too_long) {
                memcpy(r->line + r->bytes, at, bytes);
                r->bytes += bytes;
            }
            if (newline)
                LS_TRY(end_line(r, run, true));
            at = newline ? newline + 1 : end;
        }
    }
    if (ferror(r->file))
        return ls_fail(LS_ERR_IO, "cannot read '%s': %s", run->path, strerror(errno));
    return r->bytes > 0 || r->too_long ? end_line(r, run, false) : LS_OK;
}

static ls_status read_file(report_run *run)
{
    reader r = { .file = fopen(run->path, "re"), .line = malloc(REPORT_LINE) };
    ls_status status = LS_OK;
    if (!r.line)
        status = ls_fail(LS_ERR_MEMORY, "no memory to read '%s'", run->path);
    else if (!r.file)
        status =
            ls_fail(errno == ENOENT ? LS_ERR_NOT_FOUND : LS_ERR_IO, "cannot open '%s': %s", run->path, strerror(errno));
    else
        status = read_lines(&r, run);
    if (r.file)
        fclose(r.file);
    free(r.line);
    return status;
}

static ls_status check(const report_run *run)
{
    if (run->lines == 0)
        return ls_fail(LS_ERR_DATA, "'%s' is empty: the log has no lines yet", run->path);
    if (run->starts == 0 && run->epochs_seen == 0 && run->step == 0 && run->reason[0] == '\0' && !run->confusion)
        return ls_fail(LS_ERR_DATA, "'%s' is not a log of a training run (lockstep train --log): %s", run->path,
                       run->bad_lines > 0 ? run->first_bad : "its only line is incomplete");
    return LS_OK;
}

ls_status report_read(const char *path, report_run **out)
{
    report_run *run = calloc(1, sizeof *run);
    report_epoch *epochs = calloc(REPORT_EPOCHS, sizeof *epochs);
    if (!run || !epochs) {
        free(run);
        free(epochs);
        return ls_fail(LS_ERR_MEMORY, "no memory to read '%s'", path);
    }
    run->path = path;
    run->epochs = epochs;
    run->parameters = run->batch_size = run->epochs_wanted = run->lanes = -1;
    run->loss.stride = run->rate.stride = run->epoch_stride = 1;
    run->last_is_kept = true;
    ls_status status = read_file(run);
    if (status == LS_OK)
        status = check(run);
    if (status != LS_OK) {
        report_free(run);
        return status;
    }
    end_point(&run->loss);
    end_point(&run->rate);
    if (!run->last_is_kept) /* keep the last epoch in any case */
        run->epoch_count++;
    *out = run;
    return LS_OK;
}

void report_free(report_run *run)
{
    if (!run)
        return;
    free(run->epochs);
    free(run->confusion);
    free(run->class_names);
    free(run);
}
