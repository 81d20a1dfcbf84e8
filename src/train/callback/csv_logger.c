/* Keras's CSVLogger, byte for byte. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "train/callback/callback.h"
#include "train/job/job.h"

#define NAME "csv_logger"
#define VAL  "val_"
#define KEYS (4 * LS_MAX_RESULTS + 4)

/* Size of the file after the last complete epoch. A resumed run removes what follows. */
typedef struct numbers {
    int64_t bytes, started;
} numbers;

typedef struct csv_logger {
    ls_csv_logger_options options;
    ls_callback_facts facts;
    char separator;
    ls_append file; /* closed if another worker writes; `rows` then holds the text */
    ls_text rows;
    int64_t first; /* offset in the file at which `rows` begin */
    bool ready;    /* truncated to where this run starts or resumes */
    char keys[KEYS][80];
    size_t key_count; /* 0: unknown yet */
    numbers now;
} csv_logger;

/* ---- Columns ---- */

static bool has_key(const csv_logger *c, const char *key)
{
    for (size_t i = 0; i < c->key_count; i++)
        if (strcmp(c->keys[i], key) == 0)
            return true;
    return false;
}

static void add_key(csv_logger *c, const char *prefix, const char *name)
{
    char key[80];
    snprintf(key, sizeof(key), "%s%s", prefix, name);
    if (c->key_count < KEYS && !has_key(c, key))
        memcpy(c->keys[c->key_count++], key, sizeof(key));
}

static int by_letters(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Sorted. Without validation, Keras appends a column "val_..." for each; they stay NA. */
static void find_keys(csv_logger *c, const ls_logs *logs)
{
    const ls_job *job = c->facts.job;
    for (size_t i = 0; i < logs->count; i++)
        add_key(c, "", logs->names[i]);
    for (size_t i = 0; c->facts.validates && i < job->name_count; i++)
        add_key(c, VAL, job->names[i]); /* a cut epoch does not have them */
    qsort(c->keys, c->key_count, sizeof(*c->keys), by_letters);
    for (size_t i = 0, count = c->key_count; !c->facts.validates && i < count; i++)
        add_key(c, VAL, c->keys[i]);
}

/* Like Python's csv module. */
static void put_field(const csv_logger *c, ls_text *line, const char *field)
{
    const char special[] = { c->separator, '"', '\r', '\n', '\0' };
    if (!strpbrk(field, special)) {
        ls_text_put(line, field);
        return;
    }
    ls_text_put(line, "\"");
    for (; *field; field++)
        ls_text_add(line, *field == '"' ? "\"%c" : "%c", *field);
    ls_text_put(line, "\"");
}

static void put_header(const csv_logger *c, ls_text *line)
{
    ls_text_put(line, "epoch");
    for (size_t i = 0; i < c->key_count; i++) {
        ls_text_add(line, "%c", c->separator);
        put_field(c, line, c->keys[i]);
    }
    ls_text_put(line, "\r\n");
}

static void put_value(ls_text *line, const char *key, const ls_logs *logs)
{
    for (size_t i = 0; i < logs->count; i++)
        if (strcmp(logs->names[i], key) == 0) {
            ls_put_python_f64(line, logs->values[i]);
            return;
        }
    ls_text_put(line, "NA");
}

/* ---- The file ---- */

static void cut(csv_logger *c, int64_t bytes)
{
    if (c->file.fd >= 0)
        ls_append_truncate(&c->file, bytes);
    else if (bytes < c->file.bytes)
        c->file.bytes = c->first = bytes;
}

static ls_status write_row(csv_logger *c, const ls_text *line)
{
    if (line->failed)
        return ls_fail(LS_ERR_MEMORY, "no memory for a row");
    if (c->file.fd >= 0)
        return ls_append_write(&c->file, line->data, line->length);
    c->file.bytes += (int64_t)line->length;
    ls_text_put_bytes(&c->rows, line->data, line->length);
    return LS_OK;
}

/* Truncates the file to where training began, then writes all rows, whatever the lost worker
 * wrote. */
static ls_status write_rows(csv_logger *c)
{
    LS_TRY(ls_append_open(&c->file, c->options.path));
    ls_append_truncate(&c->file, c->first);
    if (c->rows.failed)
        return ls_fail(LS_ERR_MEMORY, "no memory for the rows");
    return c->rows.length ? ls_append_write(&c->file, c->rows.data, c->rows.length) : LS_OK;
}

static void take_over(void *user)
{
    csv_logger *c = user;
    if (c->file.fd < 0 && write_rows(c) != LS_OK)
        ls_callback_warn(&c->facts, NAME, c->options.path);
    ls_text_free(&c->rows);
}

/* Before the other worker writes. */
static void look_at_file(csv_logger *c)
{
    struct stat about;
    if (stat(c->options.path, &about) == 0 && S_ISREG(about.st_mode))
        c->file.bytes = c->first = about.st_size;
}

/* ---- Events ---- */

/* Not when training begins, because a saved state may be loaded after that. */
static void make_ready(csv_logger *c)
{
    if (!c->ready && (c->now.started || !c->options.append))
        cut(c, c->now.bytes);
    /* append to the existing rows */
    else if (!c->ready)
        c->now = (numbers){ .bytes = c->file.bytes, .started = 1 };
    c->ready = true;
}

static ls_status on_epoch_begin(void *user, ls_model *model, const ls_logs *logs)
{
    (void)model, (void)logs;
    make_ready(user);
    return LS_OK;
}

static ls_status on_epoch_end(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    csv_logger *c = user;
    ls_text line = { 0 };
    (void)model, (void)stop;
    make_ready(c);
    if (c->key_count == 0)
        find_keys(c, logs);
    if (c->file.bytes == 0)
        put_header(c, &line);
    ls_text_add(&line, "%" PRId64, logs->epoch);
    for (size_t i = 0; i < c->key_count; i++) {
        ls_text_add(&line, "%c", c->separator);
        put_value(&line, c->keys[i], logs);
    }
    ls_text_put(&line, "\r\n");
    if (write_row(c, &line) != LS_OK)
        ls_callback_warn(&c->facts, NAME, c->options.path);
    ls_text_free(&line);
    if (!logs->cut)
        c->now = (numbers){ .bytes = c->file.bytes, .started = 1 };
    return LS_OK;
}

/* ---- State ---- */

static ls_callback_bytes parts_of(csv_logger *c)
{
    return (ls_callback_bytes){ .monitor = "", .numbers = &c->now, .number_bytes = sizeof(c->now) };
}

static ls_status save(void *user, void **bytes, size_t *count)
{
    ls_callback_bytes parts = parts_of(user);
    return ls_callback_pack(&parts, bytes, count);
}

static ls_status load(void *user, const void *bytes, size_t count)
{
    csv_logger *c = user;
    ls_callback_bytes parts = parts_of(c);
    LS_TRY(ls_callback_unpack(&parts, NAME, bytes, count));
    c->ready = false;
    return LS_OK;
}

static ls_status check(const ls_csv_logger_options *o)
{
    if (!o->path || !o->path[0])
        return ls_fail(LS_ERR_INVALID, NAME ": needs a file name");
    if (o->separator && strlen(o->separator) != 1)
        return ls_fail(LS_ERR_INVALID, NAME ": the separator must be one character, got \"%s\"", o->separator);
    return LS_OK;
}

static ls_status open_state(const ls_callback_spec *spec, const ls_callback_facts *facts, ls_callback *out)
{
    const ls_csv_logger_options *o = &spec->csv_logger;
    LS_TRY(ls_builtin_state(NAME, sizeof(csv_logger), &out->user));
    csv_logger *c = out->user;
    *c = (csv_logger){ .options = *o, .facts = *facts, .separator = ',', .file = LS_APPEND_CLOSED };
    out->on_epoch_begin = on_epoch_begin;
    out->on_epoch_end = on_epoch_end;
    out->save = save;
    out->load = load;
    if (!facts->trains)
        return LS_OK;
    LS_TRY(check(o));
    if (o->separator)
        c->separator = o->separator[0];
    if (!ls_callback_is_quiet(facts))
        return ls_fail_within(ls_append_open(&c->file, o->path), NAME);
    look_at_file(c);
    return LS_OK;
}

static void close_state(void *user)
{
    csv_logger *c = user;
    if (ls_append_close(&c->file) != LS_OK)
        ls_callback_warn(&c->facts, NAME, c->options.path);
    ls_text_free(&c->rows);
    free(c);
}

const ls_builtin ls_builtin_csv_logger = { NAME, open_state, close_state, .only_writes = true, .take_over = take_over };
