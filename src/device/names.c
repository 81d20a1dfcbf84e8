/* Parser for names of devices: splits a list at commas, each part at slashes into location (job,
 * replica, task) and device (kind and numbers). A process has one location; a worker of a cluster
 * has two names for it. */
#include "device/names.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

#define BLANKS       " \t"
#define MOST_QUOTED  200  /* characters of quoted user input */
#define HIGHEST_CORE 8191 /* highest number in the largest kernels */
#define WHY_CHARS    160
#define SEE_WHY      " (lockstep devices, or ls_format_drivers, says why)"

/* A substring. */
typedef struct span {
    const char *at;
    size_t length;
} span;

typedef struct numbers {
    span first_digits;
    int first, last;
} numbers;

typedef struct reader {
    const char *text;
    span part; /* being parsed */
    const ls_kind_count *kinds;
    int kind_count;
    int worker;
    ls_named_device *devices; /* so far */
    int count;
} reader;

/* ---- Error messages ---- */

static void put_quoted(ls_text *text, span s)
{
    char clipped[MOST_QUOTED + sizeof("...")];
    bool whole = s.length <= MOST_QUOTED;
    snprintf(clipped, sizeof(clipped), "%.*s%s", whole ? (int)s.length : MOST_QUOTED, s.at, whole ? "" : "...");
    ls_text_put_json(text, clipped);
}

/* "there are CPU:0, GPU:0 to GPU:1" */
static void put_existing(ls_text *text, const reader *r)
{
    int64_t total = 0;
    for (int i = 0; i < r->kind_count; i++)
        total += r->kinds[i].made_as_named ? 1 : r->kinds[i].count;
    ls_text_put(text, total == 0 ? "there are no devices" : total == 1 ? "there is " : "there are ");
    const char *comma = "";
    for (int i = 0; i < r->kind_count; i++) {
        const ls_kind_count *k = &r->kinds[i];
        if (k->count == 0)
            continue;
        ls_text_add(text, "%s%s:0", comma, k->kind);
        if (k->made_as_named)
            ls_text_add(text, " (and up to %s:%d, which share its cores)", k->kind, k->count - 1);
        else if (k->count > 1)
            ls_text_add(text, " to %s:%d", k->kind, k->count - 1);
        comma = ", ";
    }
}

LS_PRINTF(3, 4) static ls_status refuse(const reader *r, ls_status status, const char *format, ...)
{
    ls_text message = { 0 };
    ls_text_put(&message, "device ");
    put_quoted(&message, r->part);
    if (r->part.length < strlen(r->text)) {
        ls_text_put(&message, " in ");
        put_quoted(&message, (span){ r->text, strlen(r->text) });
    }
    ls_text_put(&message, ": ");
    va_list args;
    va_start(args, format);
    ls_text_add_v(&message, format, args);
    va_end(args);
    ls_text_put(&message, "; ");
    put_existing(&message, r);
    ls_fail(status, "%s", ls_text_get(&message));
    ls_text_free(&message);
    return status;
}

/* Arguments for "%.*s"; shortens long text. */
#define QUOTE(s) ((s).length < MOST_QUOTED ? (int)(s).length : MOST_QUOTED), (s).at

/* ---- Substrings ---- */

static span from_to(const char *from, const char *to)
{
    return (span){ from, (size_t)(to - from) };
}

/* Splits at the first `mark` into *head and *rest; false, with all of it in *head, if there is
 * none. */
static bool cut(span s, char mark, span *head, span *rest)
{
    const char *end = s.at + s.length, *found = s.length ? memchr(s.at, mark, s.length) : NULL;
    *head = from_to(s.at, found ? found : end);
    *rest = from_to(found ? found + 1 : end, end);
    return found != NULL;
}

static bool is(span s, const char *word)
{
    return strlen(word) == s.length && memcmp(s.at, word, s.length) == 0;
}

static bool is_in_any_case(span s, const char *word)
{
    return strlen(word) == s.length && strncasecmp(s.at, word, s.length) == 0;
}

static span trimmed(span s)
{
    while (s.length > 0 && strchr(BLANKS, *s.at))
        s = (span){ s.at + 1, s.length - 1 };
    while (s.length > 0 && strchr(BLANKS, s.at[s.length - 1]))
        s.length--;
    return s;
}

/* Digits only; too large numbers become INT_MAX, which no device has. */
static bool read_number(span s, int *out)
{
    int64_t number = 0;
    for (size_t i = 0; i < s.length; i++) {
        if (s.at[i] < '0' || s.at[i] > '9')
            return false;
        number = number * 10 + (s.at[i] - '0');
        number = number < INT_MAX ? number : INT_MAX;
    }
    *out = (int)number;
    return s.length > 0;
}

/* "3" or "3-5"; `why`: the reason of a failure. */
static bool read_numbers(span s, numbers *out, char why[WHY_CHARS])
{
    span first, last;
    bool range = cut(s, '-', &first, &last);
    if (!read_number(first, &out->first) || !read_number(range ? last : first, &out->last)) {
        snprintf(why, WHY_CHARS, "\"%.*s\" is not a number or a range of numbers", s.length < 64 ? (int)s.length : 64,
                 s.at);
        return false;
    }
    out->first_digits = first;
    if (out->last < out->first)
        snprintf(why, WHY_CHARS, "the range %d-%d is descending", out->first, out->last);
    return out->last >= out->first;
}

/* "2,5-7". list NULL: counts only. */
static bool read_cores(span s, int *list, int *count, char why[WHY_CHARS])
{
    int found = 0, last = -1;
    span one;
    for (bool more = true; more;) {
        numbers n;
        more = cut(s, ',', &one, &s);
        if (!read_numbers(one, &n, why))
            return false;
        if (n.last > HIGHEST_CORE) {
            snprintf(why, WHY_CHARS, "core numbers go up to %d", HIGHEST_CORE);
            return false;
        }
        if (n.first <= last) {
            snprintf(why, WHY_CHARS, "core %d comes after core %d; list cores in ascending order", n.first, last);
            return false;
        }
        for (int core = n.first; list && core <= n.last; core++)
            list[found + core - n.first] = core;
        found += n.last - n.first + 1;
        last = n.last;
    }
    *count = found;
    return true;
}

/* ---- One device, or a range ---- */

static bool is_word(span s)
{
    for (size_t i = 0; i < s.length; i++)
        if (!isalnum((unsigned char)s.at[i]) && s.at[i] != '_')
            return false;
    return s.length > 0 && isalpha((unsigned char)*s.at);
}

static int find_named(const reader *r, const char *kind)
{
    for (int i = 0; i < r->kind_count; i++)
        if (strcasecmp(r->kinds[i].kind, kind) == 0)
            return i;
    return -1;
}

/* -1: no such kind with devices. */
static int find_with_devices(const reader *r, const char *kind)
{
    int found = find_named(r, kind);
    return found >= 0 && r->kinds[found].count > 0 ? found : -1;
}

#define ANY_GPU (-1) /* CUDA devices, then GPUs of other kinds */

/* Number of GPUs of ANY_GPU; *out (may be NULL): number `which` of them. */
static int find_gpu(const reader *r, int which, ls_named_device *out)
{
    int count = 0, cuda = find_named(r, "CUDA");
    for (int i = -1; i < r->kind_count; i++) {
        int kind = i < 0 ? cuda : i == cuda ? -1 : i;
        for (int n = 0; kind >= 0 && n < r->kinds[kind].count && (kind == cuda || n < 64); n++) {
            if (kind != cuda && !(r->kinds[kind].gpus >> n & 1))
                continue;
            if (out && count == which)
                *out = (ls_named_device){ .kind = kind, .number = n };
            count++;
        }
    }
    return count;
}

/* Name and number of devices of a kind or of ANY_GPU. */
static ls_kind_count count_of(const reader *r, int kind)
{
    return kind == ANY_GPU ? (ls_kind_count){ .kind = "GPU", .count = find_gpu(r, 0, NULL) } : r->kinds[kind];
}

static ls_status find_kind(const reader *r, span word, int *out)
{
    if (!is_word(word))
        return refuse(r, LS_ERR_INVALID, "\"%.*s\" is not a kind of device", QUOTE(word));
    if (is_in_any_case(word, "GPU") || is_in_any_case(word, "CUDA")) {
        int cuda = is_in_any_case(word, "CUDA") ? find_with_devices(r, "CUDA") : -1, gpu = find_with_devices(r, "GPU");
        if (cuda < 0 && gpu < 0 && (is_in_any_case(word, "CUDA") || find_gpu(r, 0, NULL) == 0))
            return refuse(r, LS_ERR_NOT_FOUND, "there is no GPU" SEE_WHY);
        *out = cuda >= 0 ? cuda : gpu >= 0 ? gpu : ANY_GPU;
        return LS_OK;
    }
    for (int i = 0; i < r->kind_count; i++)
        if (is_in_any_case(word, r->kinds[i].kind)) {
            *out = i;
            return LS_OK;
        }
    return refuse(r, LS_ERR_NOT_FOUND, "there is no kind \"%.*s\"", QUOTE(word));
}

/* "gpu:1", "GPU", "cpu:0-3"; the devices must exist. */
static ls_status read_kind_and_numbers(const reader *r, span s, int *kind, numbers *n)
{
    span word, digits;
    char why[WHY_CHARS];
    bool numbered = cut(s, ':', &word, &digits);
    LS_TRY(find_kind(r, word, kind));
    *n = (numbers){ .first_digits = { "0", 1 } };
    if (numbered && !read_numbers(digits, n, why))
        return refuse(r, LS_ERR_INVALID, "%s", why);
    ls_kind_count k = count_of(r, *kind);
    if (k.count == 0)
        return refuse(r, LS_ERR_NOT_FOUND, "there is no %s" SEE_WHY, k.kind);
    if (n->first >= k.count) /* the digits may be too large for an int */
        return refuse(r, LS_ERR_NOT_FOUND, "there is no %s:%.*s", k.kind, QUOTE(n->first_digits));
    if (n->last >= k.count)
        return refuse(r, LS_ERR_NOT_FOUND, "there is no %s:%d", k.kind, k.count);
    return LS_OK;
}

/* ---- Location ---- */

typedef enum location_key { JOB, REPLICA, TASK, KEYS } location_key;
static const char *const keys[] = { "job", "replica", "task" };

/* KEYS: not a key. */
static ls_status find_key(const reader *r, span key, location_key *out)
{
    int i = 0;
    while (i < KEYS && !is_in_any_case(key, keys[i]))
        i++;
    if (i < KEYS && !is(key, keys[i]))
        return refuse(r, LS_ERR_INVALID, "\"%.*s\" must be written \"%s\"", QUOTE(key), keys[i]);
    *out = (location_key)i;
    return LS_OK;
}

/* `given`: NULL where unset. */
static ls_status keep_key(const reader *r, location_key key, span value, span *given)
{
    int number;
    if (given[key].at)
        return refuse(r, LS_ERR_INVALID, "%s is given twice", keys[key]);
    if (value.length == 0)
        return refuse(r, LS_ERR_INVALID, "%s has no value", keys[key]);
    if (key != JOB && !read_number(value, &number))
        return refuse(r, LS_ERR_INVALID, "%s: \"%.*s\" is not a number", keys[key], QUOTE(value));
    given[key] = value;
    return LS_OK;
}

static ls_status refuse_key(const reader *r, location_key key, span value, const char *only)
{
    return refuse(r, LS_ERR_NOT_FOUND, "there is no %s %.*s in this process, only %s %s", keys[key], QUOTE(value),
                  keys[key], only);
}

/* A worker is "/job:worker/task:N" to all workers and, like every process, "/job:localhost/task:0"
 * to itself. */
static ls_status check_location(const reader *r, const span *given)
{
    bool is_worker = r->worker != LS_NO_WORKER, local = !is_worker;
    int replica = 0, task = -1;
    if (given[JOB].at && is(given[JOB], "localhost"))
        local = true;
    else if (given[JOB].at && !(is_worker && is(given[JOB], "worker")))
        return refuse_key(r, JOB, given[JOB], is_worker ? "worker" : "localhost");
    if (given[REPLICA].at && (!read_number(given[REPLICA], &replica) || replica != 0))
        return refuse_key(r, REPLICA, given[REPLICA], "0");
    if (!given[TASK].at || !read_number(given[TASK], &task) || task == (local ? 0 : r->worker))
        return LS_OK;
    if (local)
        return refuse_key(r, TASK, given[TASK], "0");
    return refuse(r, LS_ERR_NOT_FOUND,
                  "task %.*s is another worker, this one is task %d: a worker can use only its own devices; omit job "
                  "and task to name the devices of every worker",
                  QUOTE(given[TASK]), r->worker);
}

/* Everything except brackets. */
static ls_status read_path(const reader *r, span s, int *kind, numbers *n)
{
    span given[KEYS] = { { NULL, 0 } };
    bool found = false;
    if (s.length > 0 && *s.at == '/')
        s = (span){ s.at + 1, s.length - 1 };
    for (bool more = true; more;) {
        span step, key, value;
        location_key at = KEYS;
        more = cut(s, '/', &step, &s);
        cut(step, ':', &key, &value);
        if (step.length == 0)
            return refuse(r, LS_ERR_INVALID, "nothing comes %s a slash", more ? "before" : "after");
        LS_TRY(find_key(r, key, &at));
        if (at < KEYS) {
            LS_TRY(keep_key(r, at, value, given));
            continue;
        }
        if (found)
            return refuse(r, LS_ERR_INVALID, "it names two devices");
        bool prefixed = is(key, "device") || is(key, "physical_device");
        /* First, because another process has other devices. */
        LS_TRY(check_location(r, given));
        LS_TRY(read_kind_and_numbers(r, prefixed ? value : step, kind, n));
        found = true;
    }
    LS_TRY(check_location(r, given));
    return found ? LS_OK : refuse(r, LS_ERR_INVALID, "it names no device");
}

/* ---- Parts of a list ---- */

/* Removes the brackets at the end of *s; *cores is their content. */
static ls_status cut_cores(const reader *r, span *s, span *cores)
{
    span before, behind;
    *cores = (span){ "", 0 };
    if (!cut(*s, '[', &before, &behind))
        return LS_OK;
    span rest;
    if (!cut(behind, ']', cores, &rest))
        return refuse(r, LS_ERR_INVALID, "a bracket is not closed");
    if (rest.length > 0)
        return refuse(r, LS_ERR_INVALID, "\"%.*s\" comes after the brackets", QUOTE(rest));
    if (cores->length == 0)
        return refuse(r, LS_ERR_INVALID, "the brackets are empty");
    if (cores->length >= sizeof(((ls_named_device *)0)->cores))
        return refuse(r, LS_ERR_INVALID, "more than %zu characters in the brackets",
                      sizeof(((ls_named_device *)0)->cores) - 1);
    *s = before;
    return LS_OK;
}

static ls_status check_cores(const reader *r, span cores, int kind, const numbers *n)
{
    char why[WHY_CHARS];
    int count;
    if (cores.length == 0)
        return LS_OK;
    if (strcmp(count_of(r, kind).kind, "CPU") != 0)
        return refuse(r, LS_ERR_INVALID, "cores can be chosen only for a CPU, not for %s", count_of(r, kind).kind);
    if (n->first != n->last)
        return refuse(r, LS_ERR_INVALID, "cores can be chosen for one CPU, not for a range");
    if (!read_cores(cores, NULL, &count, why))
        return refuse(r, LS_ERR_INVALID, "%s", why);
    return LS_OK;
}

/* The devices exist, so a range cannot be too large. */
static ls_status add_devices(reader *r, int kind, const numbers *n, span cores)
{
    int added = n->last - n->first + 1, before = r->count;
    ls_named_device *devices = realloc(r->devices, ((size_t)r->count + (size_t)added) * sizeof(*devices));
    if (!devices)
        return ls_fail(LS_ERR_MEMORY, "no memory for the names of %d devices", added);
    r->devices = devices;
    for (int i = 0; i < added; i++) {
        ls_named_device d = { .kind = kind, .number = n->first + i };
        if (kind == ANY_GPU)
            find_gpu(r, n->first + i, &d);
        for (int k = 0; k < before; k++)
            if (devices[k].kind == d.kind && devices[k].number == d.number)
                return refuse(r, LS_ERR_INVALID, "%s:%d is given twice", r->kinds[d.kind].kind, d.number);
        memcpy(d.cores, cores.at, cores.length);
        devices[r->count++] = d;
    }
    return LS_OK;
}

static ls_status read_part(reader *r)
{
    span path = r->part, cores;
    int kind = 0;
    numbers n = { 0 };
    if (path.length == 0)
        return refuse(r, LS_ERR_INVALID, "the name is empty");
    LS_TRY(cut_cores(r, &path, &cores));
    LS_TRY(read_path(r, path, &kind, &n));
    LS_TRY(check_cores(r, cores, kind, &n));
    return add_devices(r, kind, &n, cores);
}

/* The next comma outside of brackets, or the end. */
static const char *part_end(const char *at)
{
    for (bool inside = false; *at != '\0' && (inside || *at != ','); at++)
        inside = *at == '[' || (inside && *at != ']');
    return at;
}

/* ---- The interface ---- */

static ls_status read_list(reader *r)
{
    if (!r->text) {
        r->text = "";
        r->part = (span){ "", 0 };
        return refuse(r, LS_ERR_INVALID, "the name is NULL");
    }
    for (const char *at = r->text, *end;; at = end + 1) {
        end = part_end(at);
        r->part = trimmed(from_to(at, end));
        LS_TRY(read_part(r));
        if (*end == '\0')
            return LS_OK;
    }
}

/* wanted 0: any number. */
static ls_status read_names(const char *text, const ls_kind_count *kinds, int kind_count, int worker, int wanted,
                            ls_named_device **out, int *count)
{
    reader r = { .text = text, .kinds = kinds, .kind_count = kind_count, .worker = worker };
    ls_status status = read_list(&r);
    if (status == LS_OK && wanted > 0 && r.count != wanted) {
        r.part = (span){ text, strlen(text) };
        status = refuse(&r, LS_ERR_INVALID, "it names %d devices; expected %d", r.count, wanted);
    }
    if (status != LS_OK) {
        free(r.devices);
        return status;
    }
    *out = r.devices;
    *count = r.count;
    return LS_OK;
}

ls_status ls_names_read(const char *text, const ls_kind_count *kinds, int kind_count, int worker, ls_named_device **out,
                        int *count)
{
    return read_names(text, kinds, kind_count, worker, 0, out, count);
}

ls_status ls_names_read_one(const char *text, const ls_kind_count *kinds, int kind_count, int worker,
                            ls_named_device *out)
{
    ls_named_device *one;
    int count;
    LS_TRY(read_names(text, kinds, kind_count, worker, 1, &one, &count));
    *out = *one;
    free(one);
    return LS_OK;
}

ls_status ls_names_read_cores(const char *text, int **out, int *count)
{
    char why[WHY_CHARS];
    int found;
    span s = { text ? text : "", text ? strlen(text) : 0 };
    if (!read_cores(s, NULL, &found, why))
        return ls_fail(LS_ERR_INVALID, "cores \"%.*s\": %s", QUOTE(s), why);
    int *list = malloc((size_t)found * sizeof(*list));
    if (!list)
        return ls_fail(LS_ERR_MEMORY, "no memory for the numbers of %d cores", found);
    read_cores(s, list, &found, why);
    *out = list;
    *count = found;
    return LS_OK;
}

ls_status ls_names_refuse_cores(const char *text, const ls_named_device *found)
{
    if (!found->cores[0])
        return LS_OK;
    return ls_fail(LS_ERR_INVALID,
                   "device \"%s\": choose cores by ls_set_visible_devices or LOCKSTEP_VISIBLE_DEVICES before the "
                   "context is opened",
                   text);
}
