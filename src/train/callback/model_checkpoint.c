/* Keras's ModelCheckpoint. The file name is a pattern: {epoch:02d} (from 1), {batch}, and each
 * value by name, {val_loss:.3f}, formatted as in Python; {{ and }} are braces. Invalid patterns are
 * reported before training. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/numbers.h"
#include "nn/model.h"
#include "nn/parts.h"
#include "run/peers.h"
#include "train/callback/callback.h"

#define NAME "model_checkpoint"

/* Saved state. */
typedef struct numbers {
    double best; /* NAN: none yet */
    int64_t batches;
} numbers;

typedef struct model_checkpoint {
    ls_model_checkpoint_options options;
    ls_callback_facts facts;
    ls_monitor monitor;
    numbers now;
} model_checkpoint;

/* ---- Patterns ---- */

/* {name:08.3f}. */
typedef struct field {
    char name[80];
    bool zeros;
    int width, precision; /* precision: -1 if not given */
    char type;            /* 0: not given */
} field;

static int read_digits(const char **at)
{
    int value = 0;
    for (; **at >= '0' && **at <= '9'; ++*at)
        if (value < 1000)
            value = value * 10 + (**at - '0');
    return value;
}

/* `*at` is after the '{', then after the '}'. */
static ls_status read_field(const char *pattern, const char **at, field *out)
{
    size_t length = strcspn(*at, ":}");
    *out = (field){ .precision = -1 };
    if (length == 0 || length >= sizeof(out->name))
        return ls_fail(LS_ERR_INVALID,
                       NAME ": '%s': '{' must be followed by a name, as in {epoch:02d}; write {{ for a brace", pattern);
    memcpy(out->name, *at, length);
    *at += length;
    if (**at == ':') {
        ++*at;
        out->zeros = **at == '0';
        out->width = read_digits(at);
        if (**at == '.') {
            ++*at;
            out->precision = read_digits(at);
        }
        if (**at != '\0' && strchr("dfFeEgG", **at))
            out->type = *(*at)++;
    }
    if (**at != '}' || out->width > 64 || out->precision > 32)
        return ls_fail(LS_ERR_INVALID, NAME ": '%s': {%s} has an unknown format; use one like :02d, :.3f, :.2e or :g",
                       pattern, out->name);
    ++*at;
    return LS_OK;
}

static void put_whole(ls_text *to, const field *f, int64_t value)
{
    ls_text_add(to, f->zeros ? "%0*" PRId64 : "%*" PRId64, f->width, value);
}

static void put_real(ls_text *to, const field *f, double value)
{
    char number[512];
    if (f->type == '\0') {
        ls_put_python_f64(to, value);
        return;
    }
    ls_format_number(value, f->type, f->zeros, f->width, f->precision, number, sizeof(number));
    ls_text_put(to, number);
}

/* *whole: it is a count. Without `logs`, only checks that the name exists. */
static bool find_value(const model_checkpoint *c, const char *name, const ls_logs *logs, bool *whole, double *out)
{
    *whole = strcmp(name, "epoch") == 0 || (c->options.save_freq > 0 && strcmp(name, "batch") == 0);
    if (*whole) {
        if (logs)
            *out = (double)(strcmp(name, "epoch") == 0 ? logs->epoch : logs->batch) + 1;
        return true;
    }
    if (!logs)
        return ls_callback_has_value(&c->facts, name);
    ls_monitor any = { .name = name };
    if (!ls_monitor_value(&any, logs, out))
        *out = NAN; /* an epoch that was cut has no validation */
    return true;
}

/* Counts allow {epoch:02d}, values {val_loss:.3f}; both allow {epoch}. */
static bool is_writable(const field *f, bool whole)
{
    if (f->type == '\0' && f->precision < 0)
        return whole || f->width == 0;
    return whole ? f->type == 'd' && f->precision < 0 : f->type != '\0' && f->type != 'd';
}

static ls_status check_field(const model_checkpoint *c, const field *f)
{
    bool whole;
    double value;
    if (find_value(c, f->name, NULL, &whole, &value)) {
        if (is_writable(f, whole))
            return LS_OK;
        return ls_fail(LS_ERR_INVALID, NAME ": '%s': {%s} is %s", c->options.path, f->name,
                       whole ? "a whole number; use a format like :02d" : "not a whole number; use a format like :.3f");
    }
    ls_text known = { 0 };
    ls_callback_names(&c->facts, &known);
    ls_status status =
        ls_fail(LS_ERR_NOT_FOUND, NAME ": '%s': unknown name {%s}; the names are epoch, %s%s", c->options.path, f->name,
                c->options.save_freq > 0 ? "batch, " : "", ls_text_get(&known));
    ls_text_free(&known);
    return status;
}

/* Without `logs`, checks the pattern and formats every field as 0. */
static ls_status put_path(const model_checkpoint *c, const ls_logs *logs, ls_text *out)
{
    const char *pattern = c->options.path;
    for (const char *at = pattern; *at != '\0';) {
        field f;
        bool whole;
        double value = 0;
        if (*at != '{' && *at != '}') {
            ls_text_put_bytes(out, at++, 1);
            continue;
        }
        if (at[0] == at[1]) {
            ls_text_put_bytes(out, at, 1);
            at += 2;
            continue;
        }
        if (*at++ == '}')
            return ls_fail(LS_ERR_INVALID, NAME ": '%s': '}' without '{'; write }} for a brace", pattern);
        LS_TRY(read_field(pattern, &at, &f));
        if (!logs)
            LS_TRY(check_field(c, &f));
        find_value(c, f.name, logs, &whole, &value);
        if (whole)
            put_whole(out, &f, (int64_t)value);
        else
            put_real(out, &f, value);
    }
    return out->failed ? ls_fail(LS_ERR_MEMORY, "no memory for the name of a file") : LS_OK;
}

/* ---- Saving ---- */

static void print_decision(const model_checkpoint *c, const ls_logs *logs, const char *path, double value)
{
    FILE *out = c->options.verbose ? ls_callback_out(&c->facts) : NULL;
    if (!out)
        return;
    /* a bar may be drawn inside an epoch */
    fprintf(out, "%sEpoch %" PRId64 ": ", c->options.save_freq > 0 ? "\n" : "", logs->epoch + 1);
    if (!c->options.save_best_only)
        fprintf(out, "saving model to %s\n", path);
    else if (!path)
        fprintf(out, "%s did not improve from %.5f\n", c->monitor.name, c->now.best);
    else if (isnan(c->now.best))
        fprintf(out, "%s is %.5f, saving model to %s\n", c->monitor.name, value, path);
    else
        fprintf(out, "%s improved from %.5f to %.5f, saving model to %s\n", c->monitor.name, c->now.best, value, path);
}

static ls_status make_folder_of(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return LS_OK;
    int length = snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
    if (length < 0 || (size_t)length >= sizeof(folder))
        return ls_fail(LS_ERR_IO, "the folder name '%.100s...' is too long", path);
    return ls_make_folders(folder);
}

static ls_status write_weights(const ls_model *model, const char *path)
{
    LS_TRY(make_folder_of(path));
    return ls_model_save_weights(model, path);
}

static bool write_or_warn(const model_checkpoint *c, const ls_model *model, const char *path)
{
    if (write_weights(model, path) == LS_OK)
        return true;
    ls_callback_warn(&c->facts, NAME, path);
    return false;
}

/* One worker writes and all wait: if it is lost meanwhile, its successor still has these weights.
 * In the first exchange a worker that was stopped learns that it was replaced. */
static ls_status write_by_one(const model_checkpoint *c, const ls_model *model, const char *path, bool *written)
{
    ls_peers *peers = ls_model_graph(c->facts.job->model)->context->peers;
    bool failed = false;
    LS_TRY(ls_peers_any(peers, "whether weights can be written", &failed));
    bool quiet = ls_callback_is_quiet(&c->facts);
    failed = !quiet && !write_or_warn(c, model, path);
    LS_TRY(ls_peers_any(peers, "whether weights were written", &failed));
    if (quiet && !ls_callback_is_quiet(&c->facts))
        write_or_warn(c, model, path);
    *written = !failed;
    return LS_OK;
}

/* After a failed save, the best value stays as it was. */
static ls_status save_now(model_checkpoint *c, const ls_model *model, const ls_logs *logs)
{
    double current = NAN;
    bool written = false;
    ls_text path = { 0 };
    if (c->options.save_best_only && !ls_monitor_value(&c->monitor, logs, &current))
        return LS_OK;
    if (c->options.save_best_only && !ls_monitor_is_better(&c->monitor, current, c->now.best)) {
        print_decision(c, logs, NULL, current);
        return LS_OK;
    }
    ls_status status = put_path(c, logs, &path);
    if (status == LS_OK) {
        print_decision(c, logs, ls_text_get(&path), current);
        status = write_by_one(c, model, ls_text_get(&path), &written);
    }
    if (written)
        c->now.best = current;
    ls_text_free(&path);
    return status;
}

/* An epoch that was cut may continue later, and must not count as the best. */
static ls_status on_epoch_end(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    model_checkpoint *c = user;
    (void)stop;
    return c->options.save_freq > 0 || logs->cut ? LS_OK : save_now(c, model, logs);
}

static ls_status on_batch_end(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    model_checkpoint *c = user;
    (void)stop;
    if (c->options.save_freq == 0 || ++c->now.batches < c->options.save_freq)
        return LS_OK;
    c->now.batches = 0;
    return save_now(c, model, logs);
}

/* ---- State ---- */

static ls_callback_bytes parts_of(model_checkpoint *c)
{
    return (ls_callback_bytes){ .monitor = c->options.save_best_only ? c->monitor.name : "",
                                .numbers = &c->now,
                                .number_bytes = sizeof(c->now) };
}

static ls_status save(void *user, void **bytes, size_t *count)
{
    ls_callback_bytes parts = parts_of(user);
    return ls_callback_pack(&parts, bytes, count);
}

static ls_status load(void *user, const void *bytes, size_t count)
{
    ls_callback_bytes parts = parts_of(user);
    return ls_callback_unpack(&parts, NAME, bytes, count);
}

static ls_status check(model_checkpoint *c)
{
    const ls_model_checkpoint_options *o = &c->options;
    ls_text path = { 0 };
    if (!o->path || !o->path[0])
        return ls_fail(LS_ERR_INVALID, NAME ": needs a file name");
    if (o->save_freq < 0)
        return ls_fail(LS_ERR_INVALID, NAME ": save_freq must not be negative, got %" PRId64, o->save_freq);
    if (!isfinite(o->initial_value_threshold))
        return ls_fail(LS_ERR_INVALID, NAME ": initial_value_threshold must be finite, got %g",
                       o->initial_value_threshold);
    ls_status status = put_path(c, NULL, &path);
    bool here = !ls_callback_is_quiet(&c->facts); /* false if another worker writes */
    /* also checks that the format can hold this model */
    if (status == LS_OK)
        status = ls_fail_within(ls_model_save_weights(c->facts.job->model, ls_text_get(&path), .dry_run = true), NAME);
    if (status == LS_OK && here)
        status = ls_fail_within(make_folder_of(ls_text_get(&path)), NAME);
    if (status == LS_OK && here)
        status = ls_fail_within(ls_file_try(ls_text_get(&path)), NAME);
    ls_text_free(&path);
    return status;
}

static ls_status open_state(const ls_callback_spec *spec, const ls_callback_facts *facts, ls_callback *out)
{
    const ls_model_checkpoint_options *o = &spec->model_checkpoint;
    double threshold = o->initial_value_threshold;
    LS_TRY(ls_builtin_state(NAME, sizeof(model_checkpoint), &out->user));
    model_checkpoint *c = out->user;
    *c = (model_checkpoint){ .options = *o,
                             .facts = *facts,
                             .now = { .best = threshold == 0 ? (double)NAN : ls_spec_number(threshold, 0) } };
    if (o->save_freq > 0)
        c->facts.validates = false; /* batches have no validation results */
    out->on_batch_end = on_batch_end;
    out->on_epoch_end = on_epoch_end;
    out->save = save;
    out->load = load;
    if (!facts->trains)
        return LS_OK;
    LS_TRY(check(c));
    return o->save_best_only ? ls_monitor_open(&c->monitor, NAME, o->monitor, o->mode, 0, &c->facts) : LS_OK;
}

const ls_builtin ls_builtin_model_checkpoint = { NAME, open_state, free, .only_writes = true };
