/* Writes, reads and checks record files (record.h). */
#include "train/server/record.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/grow.h"
#include "base/text.h"
#include "lockstep/cluster.h"

#define FORMAT     1
#define FILE_LIMIT ((size_t)16 << 30)
#define HEAD_LIMIT ((size_t)16 << 20) /* bytes of the first line */
#define LINE_LIMIT ((size_t)8 << 10)  /* bytes of each other line */
#define CRC_KEY    ",\"crc\":\""
#define CRC_BYTES  (sizeof(CRC_KEY) - 1 + 8 + 2) /* ,"crc":"01234567"} */

ls_status ls_record_path(const char *file, int server, char out[PATH_MAX])
{
    int length = server == 0 ? snprintf(out, PATH_MAX, "%s", file) : snprintf(out, PATH_MAX, "%s.%d", file, server);
    if (length < 0 || length >= PATH_MAX)
        return ls_fail(LS_ERR_IO, "the name of the record '%.100s...' is too long", file);
    return LS_OK;
}

/* ---- Comparing heads ---- */

#define NAMED 5 /* most differences listed in a message */

typedef struct differences {
    ls_text text;
    size_t count;
} differences;

static void add_difference(void *user, const char *path, const json_t *a, const json_t *b)
{
    differences *d = user;
    char one[LS_JSON_SHORT], two[LS_JSON_SHORT];
    if (d->count++ < NAMED)
        ls_text_add(&d->text, "%s%s is %s in the first and %s in the second", d->text.length ? "; " : "", path,
                    ls_json_show(a, one), ls_json_show(b, two));
}

static void add_number(differences *d, const char *name, int64_t a, int64_t b)
{
    if (a != b && d->count++ < NAMED)
        ls_text_add(&d->text, "%s%s is %lld in the first and %lld in the second", d->text.length ? "; " : "", name,
                    (long long)a, (long long)b);
}

ls_status ls_record_compare(const ls_record_head *a, const char *what, const ls_record_head *b, const char *other,
                            bool same_run)
{
    differences d = { .count = 0 };
    add_number(&d, "servers", a->servers, b->servers);
    add_number(&d, "staleness", a->staleness, b->staleness);
    add_number(&d, "accumulate", a->accumulate, b->accumulate);
    add_number(&d, "scale_rate", a->scale_rate, b->scale_rate);
    ls_json_compare(a->job, b->job, add_difference, &d);
    ls_status status = LS_OK;
    if (d.count > 0)
        status = ls_fail(LS_ERR_STATE, "%s and %s belong to different jobs: %s%s", what, other, ls_text_get(&d.text),
                         d.count > NAMED ? "; and more" : "");
    else if (same_run && strcmp(a->id, b->id) != 0)
        status = ls_fail(LS_ERR_STATE, "%s and %s belong to two runs of one job: %.8s... and %.8s...", what, other,
                         a->id, b->id);
    ls_text_free(&d.text);
    return status;
}

/* ---- Lines ---- */

static void put_crc(ls_text *line)
{
    char crc[CRC_BYTES + 2];
    snprintf(crc, sizeof(crc), CRC_KEY "%08x\"}\n", (unsigned)ls_crc32c(ls_text_get(line), line->length));
    ls_text_put(line, crc);
}

/* Writes the line and frees it. */
static ls_status put_line(ls_record_writer *writer, ls_text *line)
{
    char *text = NULL;
    size_t bytes = line->length;
    LS_TRY(ls_text_take(line, &text));
    bool failed = writer->file.error != 0;
    ls_status status = ls_append_write(&writer->file, text, bytes);
    free(text);
    if (failed)
        return ls_fail(LS_ERR_IO, "record '%s': an earlier write failed (%s), and nothing was written since",
                       writer->path, strerror(writer->file.error));
    return ls_fail_within(status, "record '%s', after version %lld", writer->path, (long long)writer->version);
}

static json_t *head_json(const ls_record_head *head)
{
    return json_pack("{s:i,s:s,s:i,s:i,s:I,s:I,s:b,s:I,s:s,s:O,s:O*}", "lockstep_record", FORMAT, "id", head->id,
                     "server", head->server, "servers", head->servers, "staleness", (json_int_t)head->staleness,
                     "accumulate", (json_int_t)head->accumulate, "scale_rate", head->scale_rate, "version",
                     (json_int_t)head->version, "sha256", head->sha256, "job", head->job, "own", head->own);
}

static ls_status put_head(ls_record_writer *writer, const ls_record_head *head)
{
    json_t *json = head_json(head);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    ls_text line = { 0 };
    json_decref(json);
    if (!text)
        return ls_fail(LS_ERR_MEMORY, "no memory for the head of record '%s'", writer->path);
    ls_text_put_bytes(&line, text, strlen(text) - 1); /* without the closing brace */
    free(text);
    put_crc(&line);
    return put_line(writer, &line);
}

/* ---- Writing ---- */

static void set_up(ls_record_writer *writer, const char *path, const ls_record_head *head)
{
    *writer = (ls_record_writer){ .file = LS_APPEND_CLOSED, .servers = head->servers, .version = head->version };
    snprintf(writer->path, sizeof(writer->path), "%s", path);
}

ls_status ls_record_create(ls_record_writer *writer, const char *path, const ls_record_head *head)
{
    ls_record_writer w;
    set_up(&w, path, head);
    LS_TRY(ls_append_open(&w.file, path));
    ls_append_truncate(&w.file, 0);
    ls_status status = w.file.bytes == 0 ? put_head(&w, head) : ls_fail(LS_ERR_IO, "cannot empty '%s'", path);
    if (status == LS_OK)
        *writer = w;
    else
        ls_append_close(&w.file);
    return status;
}

static ls_status end_of_version(const ls_record *record, const char *path, int64_t version, int64_t *out)
{
    if (version > record->version || version < record->head.version)
        return ls_fail(LS_ERR_STATE,
                       "cannot continue record '%s': it has versions %lld to %lld, but the server is at version %lld",
                       path, (long long)record->head.version, (long long)record->version, (long long)version);
    *out = record->bytes;
    for (size_t i = record->count; i > 0 && record->pushes[i - 1].version > version; i--)
        *out = record->offsets[i - 1];
    return LS_OK;
}

ls_status ls_record_continue(ls_record_writer *writer, const char *path, const ls_record_head *head, int64_t upto)
{
    ls_record record;
    ls_record_writer w;
    int64_t bytes = 0;
    LS_TRY(ls_record_read(path, &record));
    ls_status status = ls_record_compare(&record.head, path, head, "this run", head->id[0] != '\0');
    if (status == LS_OK && record.head.server != head->server)
        status = ls_fail(LS_ERR_STATE, "record '%s' belongs to server %d, not to server %d", path, record.head.server,
                         head->server);
    int64_t version = upto < 0 ? record.version : upto;
    if (status == LS_OK)
        status = end_of_version(&record, path, version, &bytes);
    ls_record_free(&record);
    LS_TRY(status);
    set_up(&w, path, head);
    w.version = version;
    LS_TRY(ls_append_open(&w.file, path));
    ls_append_truncate(&w.file, bytes);
    if (w.file.bytes == bytes) {
        *writer = w;
        return LS_OK;
    }
    ls_append_close(&w.file);
    return ls_fail(LS_ERR_IO, "cannot cut record '%s' to the %lld bytes of its complete records", path,
                   (long long)bytes);
}

ls_status ls_record_add(ls_record_writer *writer, const ls_record_push *push)
{
    ls_text line = { 0 };
    if (push->version != writer->version + 1)
        return ls_fail(LS_ERR_STATE, "record '%s' ends with version %lld, so version %lld cannot follow", writer->path,
                       (long long)writer->version, (long long)push->version);
    ls_text_add(&line, "{\"version\":%lld,\"worker\":%d,\"epoch\":%lld,\"batch\":%lld,\"run\":%lld,\"read\":[",
                (long long)push->version, push->worker, (long long)push->epoch, (long long)push->batch,
                (long long)push->run);
    for (int s = 0; s < writer->servers; s++)
        ls_text_add(&line, "%s%lld", s ? "," : "", (long long)push->read[s]);
    ls_text_put(&line, "],\"rate\":");
    ls_text_put_f64(&line, push->rate);
    if (push->sha256[0])
        ls_text_add(&line, ",\"sha256\":\"%s\"", push->sha256);
    put_crc(&line);
    LS_TRY(put_line(writer, &line));
    if (push->sha256[0])
        writer->version = push->version;
    return LS_OK;
}

ls_status ls_record_sync(ls_record_writer *writer)
{
    /* Pipes and devices cannot be synced: EINVAL, EROFS. */
    if (writer->file.fd < 0 || fsync(writer->file.fd) == 0 || errno == EINVAL || errno == EROFS)
        return LS_OK;
    return ls_file_fail("sync", writer->path, errno);
}

ls_status ls_record_close(ls_record_writer *writer)
{
    ls_status status = ls_record_sync(writer), closed = ls_append_close(&writer->file);
    return status != LS_OK ? status : ls_fail_within(closed, "record '%s'", writer->path);
}

/* ---- Reading ---- */

typedef struct reading {
    const char *path, *text;
    size_t bytes, at; /* at: start of the current line */
    size_t line;      /* length of the current line without the newline */
    size_t group;     /* pushes of the current version so far */
    char name[PATH_MAX + 64];
    size_t push_room, offset_room, read_room;
} reading;

/* The checksum covers everything before it. */
static bool crc_fits(const char *line, size_t bytes)
{
    char crc[CRC_BYTES + 1];
    if (bytes < CRC_BYTES)
        return false;
    snprintf(crc, sizeof(crc), CRC_KEY "%08x\"}", (unsigned)ls_crc32c(line, bytes - CRC_BYTES));
    return memcmp(crc, line + bytes - CRC_BYTES, CRC_BYTES) == 0;
}

typedef enum line_kind { LINE_GOOD, LINE_BAD, LINE_TORN, LINE_NONE } line_kind;

/* A bad last line counts as incomplete, not as damaged. */
static line_kind next_line(reading *r)
{
    if (r->at == r->bytes)
        return LINE_NONE;
    const char *line = r->text + r->at, *end = memchr(line, '\n', r->bytes - r->at);
    if (!end)
        return LINE_TORN;
    r->line = (size_t)(end - line);
    if (crc_fits(line, r->line))
        return LINE_GOOD;
    return r->at + r->line + 1 == r->bytes ? LINE_TORN : LINE_BAD;
}

static ls_status parse_line(const reading *r, size_t limit, json_t **out)
{
    if (r->line > limit)
        return ls_fail(LS_ERR_DATA, "%s: the line has %zu bytes; the limit is %zu", r->name, r->line, limit);
    return ls_json_read_buffer(r->name, r->text + r->at, r->line, out);
}

static ls_status get_i64(const ls_json_at *object, const char *key, int64_t least, int64_t most, int64_t *out)
{
    ls_json_at at;
    int64_t value;
    LS_TRY(ls_json_get(object, key, &at));
    LS_TRY(ls_json_i64(&at, &value));
    if (value < least || value > most)
        return ls_json_fail(&at, LS_ERR_DATA, "%lld is not between %lld and %lld", (long long)value, (long long)least,
                            (long long)most);
    *out = value;
    return LS_OK;
}

static ls_status get_hex(const ls_json_at *object, const char *key, size_t digits, char *out)
{
    ls_json_at at;
    const char *text;
    LS_TRY(ls_json_get(object, key, &at));
    LS_TRY(ls_json_string(&at, &text));
    if (strlen(text) != digits || strspn(text, "0123456789abcdef") != digits)
        return ls_json_fail(&at, LS_ERR_DATA, "expected %zu hex digits, found \"%.80s\"", digits, text);
    memcpy(out, text, digits + 1);
    return LS_OK;
}

static ls_status take_head(const ls_json_at *at, ls_record_head *head)
{
    int64_t format, server, servers;
    ls_json_at job, own;
    LS_TRY(get_i64(at, "lockstep_record", FORMAT, FORMAT, &format));
    LS_TRY(get_hex(at, "id", sizeof(head->id) - 1, head->id));
    LS_TRY(get_i64(at, "servers", 1, LS_MAX_SERVERS, &servers));
    LS_TRY(get_i64(at, "server", 0, servers - 1, &server));
    LS_TRY(get_i64(at, "staleness", 0, INT64_MAX, &head->staleness));
    LS_TRY(get_i64(at, "accumulate", 1, INT64_MAX, &head->accumulate));
    LS_TRY(ls_json_get_bool(at, "scale_rate", &head->scale_rate));
    LS_TRY(get_i64(at, "version", 0, INT64_MAX / 2, &head->version));
    LS_TRY(get_hex(at, "sha256", 64, head->sha256));
    LS_TRY(ls_json_get_object(at, "job", &job));
    head->server = (int)server;
    head->servers = (int)servers;
    head->job = json_incref((json_t *)job.value);
    if (ls_json_find(at, "own", &own))
        head->own = json_incref((json_t *)own.value);
    return LS_OK;
}

static ls_status read_head(reading *r, ls_record *record)
{
    json_t *root = NULL;
    snprintf(r->name, sizeof(r->name), "record '%s': its head", r->path);
    if (next_line(r) != LINE_GOOD)
        return ls_fail(LS_ERR_DATA, "'%s' is not a record of parameter servers, or its first line is incomplete",
                       r->path);
    LS_TRY(parse_line(r, HEAD_LIMIT, &root));
    ls_json_at at = ls_json_root(root, r->name);
    ls_status status = take_head(&at, &record->head);
    json_decref(root);
    r->at += r->line + 1;
    record->bytes = (int64_t)r->at;
    record->version = record->head.version;
    return status;
}

/* A push cannot have read a version of its own server that did not exist yet. */
static ls_status take_reads(const ls_json_at *at, const ls_record_head *head, int64_t version, int64_t *out)
{
    ls_json_at list, element;
    LS_TRY(ls_json_get_array(at, "read", &list));
    if (ls_json_count(&list) != (size_t)head->servers)
        return ls_json_fail(&list, LS_ERR_DATA, "%zu versions, but there are %d servers", ls_json_count(&list),
                            head->servers);
    for (int s = 0; s < head->servers; s++) {
        LS_TRY(ls_json_element(&list, (size_t)s, &element));
        LS_TRY(ls_json_i64(&element, &out[s]));
        if (out[s] < 0 || (s == head->server && (out[s] >= version || out[s] < head->version)))
            return ls_json_fail(
                &element, LS_ERR_DATA,
                "read version %lld of server %d to make version %lld; the record begins with version %lld",
                (long long)out[s], s, (long long)version, (long long)head->version);
    }
    return LS_OK;
}

static ls_status take_push(const ls_json_at *at, const ls_record *record, reading *r, ls_record_push *push,
                           int64_t *reads)
{
    const ls_record_head *head = &record->head;
    const int64_t next = record->version + 1; /* the same for all pushes of a version */
    int64_t worker;
    ls_json_at hash;
    LS_TRY(get_i64(at, "version", next, next, &push->version));
    LS_TRY(get_i64(at, "worker", 0, LS_MAX_CLUSTER - 1, &worker));
    LS_TRY(get_i64(at, "epoch", 0, INT64_MAX, &push->epoch));
    LS_TRY(get_i64(at, "batch", 0, INT64_MAX, &push->batch));
    LS_TRY(get_i64(at, "run", 0, INT64_MAX, &push->run));
    LS_TRY(take_reads(at, head, next, reads));
    LS_TRY(ls_json_get_f64(at, "rate", &push->rate));
    push->worker = (int)worker;
    bool whole = ls_json_find(at, "sha256", &hash);
    r->group++;
    if (whole)
        LS_TRY(get_hex(at, "sha256", 64, push->sha256));
    else if (r->group >= (size_t)head->accumulate)
        return ls_json_fail(at, LS_ERR_DATA, "this is gradient %zu of a version and completes it, but it has no sha256",
                            r->group);
    return LS_OK;
}

static ls_status add_push(reading *r, ls_record *record)
{
    json_t *root = NULL;
    const size_t servers = (size_t)record->head.servers, count = record->count;
    ls_record_push push = { .read = NULL };
    int64_t reads[LS_MAX_SERVERS];
    LS_TRY(parse_line(r, LINE_LIMIT, &root));
    ls_json_at at = ls_json_root(root, r->name);
    ls_status status = take_push(&at, record, r, &push, reads);
    json_decref(root);
    LS_TRY(status);
    LS_TRY(ls_grow(&record->pushes, count, &r->push_room, sizeof(*record->pushes)));
    LS_TRY(ls_grow(&record->offsets, count, &r->offset_room, sizeof(*record->offsets)));
    LS_TRY(ls_grow(&record->reads, count, &r->read_room, servers * sizeof(*record->reads)));
    record->pushes[count] = push;
    record->offsets[count] = (int64_t)r->at;
    memcpy(record->reads + count * servers, reads, servers * sizeof(*reads));
    return LS_OK;
}

static ls_status read_pushes(reading *r, ls_record *record)
{
    for (line_kind kind; (kind = next_line(r)) != LINE_NONE && kind != LINE_TORN;) {
        snprintf(r->name, sizeof(r->name), "record '%s': line %zu, at byte %zu", r->path, record->count + 2, r->at);
        if (kind == LINE_BAD)
            return ls_fail(LS_ERR_DATA, "%s: its checksum does not match: the file was changed or damaged", r->name);
        LS_TRY(add_push(r, record));
        r->at += r->line + 1;
        record->bytes = (int64_t)r->at;
        if (!record->pushes[record->count++].sha256[0])
            continue;
        record->version++;
        r->group = 0;
    }
    record->torn = (int64_t)r->bytes - record->bytes;
    for (size_t i = 0; i < record->count; i++)
        record->pushes[i].read = record->reads + i * (size_t)record->head.servers;
    return LS_OK;
}

ls_status ls_record_read(const char *path, ls_record *out)
{
    ls_record record = { .count = 0 };
    char *text = NULL;
    size_t bytes = 0;
    LS_TRY(ls_file_read(path, FILE_LIMIT, &text, &bytes));
    reading r = { .path = path, .text = text, .bytes = bytes };
    ls_status status = read_head(&r, &record);
    if (status == LS_OK)
        status = read_pushes(&r, &record);
    free(text);
    if (status == LS_OK)
        *out = record;
    else
        ls_record_free(&record);
    return status;
}

void ls_record_free(ls_record *record)
{
    json_decref(record->head.job);
    json_decref(record->head.own);
    free(record->pushes);
    free(record->offsets);
    free(record->reads);
    *record = (ls_record){ .count = 0 };
}
