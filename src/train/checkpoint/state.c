/* Makes state.json from a job, and restores a job from it. Checks every value: the file may be
 * truncated or modified. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/numbers.h"
#include "base/sha256.h"
#include "base/text.h"
#include "nn/model.h"
#include "train/checkpoint/checkpoint.h"
#include "train/callback/callback.h"
#include "train/checkpoint/state_list.h"
#include "train/job/job.h"
#include "train/job/results.h"
#include "train/job/step.h"

#define FORMAT  "lockstep checkpoint"
#define VERSION 1

/* ---- Writing ---- */

/* jansson copies only as much as memory allows, without an error. */
static ls_status put_copy(json_t *object, const char *key, const json_t *value)
{
    json_t *copy = json_deep_copy(value);
    if (copy && !json_equal(copy, value)) {
        json_decref(copy);
        copy = NULL;
    }
    return ls_facts_put(object, key, copy);
}

/* bytes; larger states of callbacks are tensors in optimizer.safetensors */
#define MOST_IN_JSON 4096

static ls_status put_callback(json_t *state, const ls_state_entry_bytes *kept)
{
    static const char digits[] = "0123456789abcdef";
    if (kept->count > MOST_IN_JSON)
        return ls_facts_put(state, kept->name, json_pack("{s:s}", "in", LS_CHECKPOINT_OPTIMIZER));
    char hex[2 * MOST_IN_JSON + 1];
    const unsigned char *bytes = kept->bytes;
    for (size_t i = 0; i < kept->count; i++) {
        hex[2 * i] = digits[bytes[i] >> 4];
        hex[2 * i + 1] = digits[bytes[i] & 15];
    }
    return ls_facts_put(state, kept->name, json_stringn(hex, 2 * kept->count));
}

static ls_status put_entries(json_t *state, const ls_state_entry *entries, const ls_snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->count; i++) {
        if (entries[i].kind == LS_STATE_NUMBER)
            LS_TRY(ls_facts_put(state, entries[i].name, ls_state_entry_json(&entries[i])));
        else if (entries[i].kind == LS_STATE_CALLBACK)
            LS_TRY(put_callback(state, &snapshot->entry[i]));
    }
    return LS_OK;
}

static ls_status put_history(json_t *root, const ls_history *history)
{
    json_t *both = json_object(), *names, *epochs;
    LS_TRY(ls_facts_put(root, "history", both));
    LS_TRY(ls_facts_put(both, "names", names = json_array()));
    LS_TRY(ls_facts_put(both, "epochs", epochs = json_array()));
    int failed = 0;
    for (size_t i = 0; i < ls_history_count(history); i++)
        failed |= json_array_append_new(names, json_string(ls_history_name(history, i)));
    for (size_t e = 0; e < ls_history_epochs(history); e++) {
        json_t *row = json_array();
        failed |= json_array_append_new(epochs, row);
        for (size_t i = 0; i < ls_history_count(history); i++) {
            double value = NAN;
            LS_TRY(ls_history_value(history, ls_history_name(history, i), e, &value));
            failed |= json_array_append_new(row, ls_json_real(value));
        }
    }
    return failed ? ls_fail(LS_ERR_MEMORY, "no memory for the history in a checkpoint") : LS_OK;
}

static ls_status put_head(json_t *root, const ls_job *job, int64_t step)
{
    LS_TRY(ls_facts_put(root, "format", json_string(FORMAT)));
    LS_TRY(ls_facts_put(root, "version", json_integer(VERSION)));
    LS_TRY(ls_facts_put(root, "lockstep", json_string(LS_VERSION)));
    LS_TRY(ls_facts_put(root, "step", json_integer(step)));
    return ls_facts_put(root, "epoch", json_integer(job->position.epoch));
}

static ls_status put_best(json_t *root, const ls_state_extras *x)
{
    const ls_best *b = x->best;
    if (!b || !b->known)
        return ls_facts_put(root, "best", json_null());
    json_t *best = json_object();
    LS_TRY(ls_facts_put(root, "best", best));
    LS_TRY(ls_facts_put(best, "monitor", json_string(x->monitor)));
    LS_TRY(ls_facts_put(best, "value", ls_json_real(b->value)));
    return ls_facts_put(best, "step", json_integer(b->step));
}

static ls_status fill_root(json_t *root, ls_job *job, const ls_state_extras *x, const ls_content *content)
{
    ls_state_entry *entries = NULL;
    size_t count = 0;
    LS_TRY(put_head(root, job, content->step));
    LS_TRY(put_copy(root, "job", x->facts->job));
    LS_TRY(put_copy(root, "fit", x->facts->fit));
    LS_TRY(put_copy(root, "bits", x->facts->bits));
    LS_TRY(x->other_bits ? put_copy(root, "other_bits", x->other_bits)
                         : ls_facts_put(root, "other_bits", json_array()));
    json_t *state = json_object();
    LS_TRY(ls_facts_put(root, "state", state));
    LS_TRY(ls_job_list(job, &entries, &count));
    ls_status status = put_entries(state, entries, content->snapshot);
    free(entries);
    LS_TRY(status);
    LS_TRY(put_best(root, x));
    return put_history(root, x->history);
}

ls_status ls_content_make(ls_job *job, const ls_state_extras *extras, ls_content **out)
{
    ls_content *content = calloc(1, sizeof(*content));
    if (!content)
        return ls_fail(LS_ERR_MEMORY, "no memory for a checkpoint");
    content->prefix = job->state.name ? strlen(job->state.name) + 1 : 0;
    content->state = json_object();
    ls_status status = ls_job_step(job, &content->step);
    if (status == LS_OK)
        status = ls_job_save(job, &content->snapshot);
    if (status == LS_OK)
        status = fill_root(content->state, job, extras, content);
    if (status == LS_OK)
        *out = content;
    else
        ls_content_destroy(content);
    return status;
}

void ls_content_destroy(ls_content *content)
{
    if (!content)
        return;
    ls_snapshot_destroy(content->snapshot);
    json_decref(content->state);
    free(content);
}

/* ---- The text ends with its own hash ---- */

#define TAIL_BEGIN ",\n  \"sha256\": \""
#define TAIL_END   "\"\n}\n"
#define TAIL       (sizeof(TAIL_BEGIN) - 1 + 64 + sizeof(TAIL_END) - 1)

ls_status ls_state_text(const json_t *state, char **out, size_t *bytes)
{
    char hex[65], *text = json_dumps(state, JSON_INDENT(2));
    ls_text whole = { 0 };
    size_t length = text ? strlen(text) : 0;
    if (length < 4)
        return ls_fail(LS_ERR_MEMORY, "no memory for the text of a checkpoint's state");
    length -= 2; /* remove the closing "\n}" */
    ls_status status = ls_sha256_of(text, length, hex);
    ls_text_put_bytes(&whole, text, length);
    ls_text_add(&whole, TAIL_BEGIN "%s" TAIL_END, hex);
    free(text);
    *bytes = whole.length;
    if (status == LS_OK)
        return ls_text_take(&whole, out);
    ls_text_free(&whole);
    return status;
}

static ls_status check_hash(const char *name, const char *text, size_t bytes)
{
    char hex[65];
    const char *tail = text + bytes - TAIL;
    const size_t begin = sizeof(TAIL_BEGIN) - 1, end = sizeof(TAIL_END) - 1;
    if (bytes < TAIL || memcmp(tail, TAIL_BEGIN, begin) != 0 || memcmp(text + bytes - end, TAIL_END, end) != 0)
        return ls_fail(LS_ERR_DATA,
                       "%s is incomplete or not the state of a checkpoint: it does not end with its SHA-256", name);
    LS_TRY(ls_sha256_of(text, bytes - TAIL, hex));
    if (memcmp(tail + begin, hex, 64) != 0)
        return ls_fail(LS_ERR_DATA, "%s was changed: its SHA-256 is %s, but it ends with %.64s", name, hex,
                       tail + begin);
    return LS_OK;
}

static ls_status check_file(const ls_json_at *files, const char *key)
{
    ls_json_at file;
    const char *hex = "";
    int64_t bytes = 0;
    static const char *const known[] = { "bytes", "sha256" };
    LS_TRY(ls_json_get_object(files, key, &file));
    LS_TRY(ls_json_known_keys(&file, known, 2));
    LS_TRY(ls_json_get_i64(&file, "bytes", &bytes));
    LS_TRY(ls_json_get_string(&file, "sha256", &hex));
    if (bytes < 0 || strlen(hex) != 64)
        return ls_json_fail(&file, LS_ERR_DATA, "invalid size or hash: %" PRId64 " bytes, SHA-256 \"%.80s\"", bytes,
                            hex);
    return LS_OK;
}

static ls_status check_root(const ls_json_at *root)
{
    static const char *const known[] = { "format", "version",    "lockstep", "step", "epoch",   "job",   "fit",
                                         "bits",   "other_bits", "state",    "best", "history", "files", "sha256" };
    static const char *const files_known[] = { LS_CHECKPOINT_MODEL, LS_CHECKPOINT_OPTIMIZER };
    ls_json_at at;
    const char *format = "";
    int64_t version = 0, step = -1;
    LS_TRY(ls_json_get_string(root, "format", &format));
    LS_TRY(ls_json_get_i64(root, "version", &version));
    if (strcmp(format, FORMAT) != 0)
        return ls_json_fail(root, LS_ERR_DATA, "its format is \"%.40s\", not \"" FORMAT "\"", format);
    if (version != VERSION)
        return ls_json_fail(root, LS_ERR_UNSUPPORTED,
                            "the checkpoint has format version %" PRId64 "; this library reads version %d", version,
                            VERSION);
    LS_TRY(ls_json_known_keys(root, known, sizeof(known) / sizeof(*known)));
    LS_TRY(ls_json_get_i64(root, "step", &step));
    if (step < 0)
        return ls_json_fail(root, LS_ERR_DATA, "the step must not be negative, got %" PRId64, step);
    LS_TRY(ls_json_get_object(root, "job", &at));
    LS_TRY(ls_json_get_object(root, "bits", &at));
    LS_TRY(ls_json_get_object(root, "state", &at));
    LS_TRY(ls_json_get_array(root, "other_bits", &at));
    LS_TRY(ls_json_get_object(root, "history", &at));
    LS_TRY(ls_json_get_object(root, "files", &at));
    LS_TRY(ls_json_known_keys(&at, files_known, 2));
    LS_TRY(check_file(&at, LS_CHECKPOINT_MODEL));
    return check_file(&at, LS_CHECKPOINT_OPTIMIZER);
}

ls_status ls_state_parse(const char *name, const char *text, size_t bytes, json_t **out)
{
    json_t *root = NULL;
    LS_TRY(check_hash(name, text, bytes));
    LS_TRY(ls_json_read_buffer(name, text, bytes, &root));
    ls_json_at at = ls_json_root(root, name);
    ls_status status = json_is_object(root) ? check_root(&at) : ls_json_is_object(&at);
    if (status == LS_OK)
        *out = root;
    else
        json_decref(root);
    return status;
}

/* ---- Comparing with a job ---- */

#define NAMED 8 /* differences listed */

typedef struct differences {
    ls_text text;
    size_t count;
} differences;

static void differ(differences *d, const char *format, ...) LS_PRINTF(2, 3);
static void differ(differences *d, const char *format, ...)
{
    va_list args;
    if (d->count++ >= NAMED)
        return;
    if (d->count > 1)
        ls_text_put(&d->text, "; ");
    va_start(args, format);
    ls_text_add_v(&d->text, format, args);
    va_end(args);
}

static void add_difference(void *user, const char *path, const json_t *now, const json_t *then)
{
    differences *d = user;
    char a[LS_JSON_SHORT], b[LS_JSON_SHORT];
    if (!then)
        differ(d, "%s is %s here, but the checkpoint does not have it", path, ls_json_show(now, a));
    else if (!now)
        differ(d, "%s is %s in the checkpoint, but does not exist here", path, ls_json_show(then, b));
    /* bit class: show it in full */
    else if (strcmp(path, "class") == 0 && json_is_string(now) && json_is_string(then))
        differ(d, "class is \"%s\" here, but \"%s\" in the checkpoint", json_string_value(now),
               json_string_value(then));
    else
        differ(d, "%s is %s here, but %s in the checkpoint", path, ls_json_show(now, a), ls_json_show(then, b));
}

static const ls_safetensors_entry *find_tensor(const ls_checkpoint *c, const ls_job *job, const ls_state_entry *e)
{
    size_t prefix = e->kind == LS_STATE_SLOT && job->state.name ? strlen(job->state.name) + 1 : 0;
    return ls_safetensors_find(e->kind == LS_STATE_SLOT ? c->optimizer : c->model, e->name + prefix);
}

static void compare_tensors(differences *d, const ls_checkpoint *c, const ls_job *job, const ls_state_entry *entries,
                            size_t count)
{
    size_t variables = 0;
    char a[LS_SHAPE_TEXT], b[LS_SHAPE_TEXT];
    for (size_t i = 0; i < count; i++) {
        if (entries[i].kind != LS_STATE_VARIABLE && entries[i].kind != LS_STATE_SLOT)
            continue;
        const ls_tensor *node = entries[i].variable->node;
        const ls_safetensors_entry *found = find_tensor(c, job, &entries[i]);
        variables += entries[i].kind == LS_STATE_VARIABLE;
        if (!found)
            differ(d, "the checkpoint has no \"%s\"", entries[i].name);
        else if (!ls_shape_equal(&node->shape, &found->shape) || node->dtype != found->dtype)
            differ(d, "\"%s\" is %s %s here, but %s %s in the checkpoint", entries[i].name, ls_dtype_name(node->dtype),
                   ls_shape_format(&node->shape, a), ls_dtype_name(found->dtype), ls_shape_format(&found->shape, b));
    }
    if (variables != ls_safetensors_count(c->model))
        differ(d, "the checkpoint has %zu variables, but the model has %zu", ls_safetensors_count(c->model), variables);
}

/* Callbacks that only write files may differ. */
static void compare_callbacks(differences *d, const json_t *state, const ls_state_entry *entries, size_t count)
{
    const char *key;
    json_t *value;
    const size_t prefix = strlen(LS_STATE_CALLBACKS);
    for (size_t i = 0; i < count; i++)
        if (entries[i].kind == LS_STATE_CALLBACK && !json_object_get(state, entries[i].name) &&
            !ls_callback_may_differ(entries[i].name + prefix))
            differ(d, "%s is used here, but not in the checkpoint", entries[i].name);
    json_object_foreach((json_t *)state, key, value)
    {
        bool here = strncmp(key, LS_STATE_CALLBACKS, prefix) != 0 || ls_callback_may_differ(key + prefix);
        for (size_t i = 0; i < count && !here; i++)
            here = strcmp(entries[i].name, key) == 0;
        if (!here)
            differ(d, "%s is in the checkpoint, but not used here", key);
    }
}

static ls_status refuse(const ls_checkpoint *c, differences *d, const char *hint)
{
    if (d->count > NAMED)
        ls_text_add(&d->text, "; and %zu more", d->count - NAMED);
    return ls_fail(LS_ERR_INVALID, "cannot continue from '%s': %s%s", c->path, ls_text_get(&d->text), hint);
}

static ls_status compare_all(const ls_checkpoint *c, ls_job *job, const ls_facts *facts, bool in_fit, differences *d)
{
    ls_state_entry *entries = NULL;
    size_t count = 0;
    const json_t *fit = json_object_get(c->state, "fit");
    LS_TRY(ls_job_list(job, &entries, &count));
    compare_tensors(d, c, job, entries, count);
    ls_json_compare(facts->job, json_object_get(c->state, "job"), add_difference, d);
    if (in_fit && json_is_object(fit)) {
        ls_json_compare(facts->fit, fit, add_difference, d);
        compare_callbacks(d, json_object_get(c->state, "state"), entries, count);
    }
    free(entries);
    return d->count ? refuse(c, d, "") : LS_OK;
}

static ls_status compare_bits(const ls_checkpoint *c, const ls_facts *facts, ls_fits how, char **difference)
{
    differences d = { .count = 0 };
    const json_t *then = json_object_get(c->state, "bits");
    if (how.in_fit && json_is_object(json_object_get(c->state, "fit")))
        ls_json_compare(facts->bits, then, add_difference, &d);
    else if (!json_equal(json_object_get(facts->bits, "class"), json_object_get(then, "class")))
        differ(&d, "the bit class is %s here, but %s in the checkpoint",
               json_string_value(json_object_get(facts->bits, "class")),
               json_is_string(json_object_get(then, "class")) ? json_string_value(json_object_get(then, "class"))
                                                              : "?");
    ls_status status = LS_OK;
    if (d.count && !how.allow_other_bits)
        status = refuse(c, &d,
                        "; later steps would have other bits than without the interruption; to continue anyway, set "
                        "allow_other_bits (--allow-other-bits)");
    else if (d.count && difference)
        return ls_text_take(&d.text, difference);
    ls_text_free(&d.text);
    return status;
}

ls_status ls_checkpoint_fits(const ls_checkpoint *c, ls_job *job, ls_fits how, char **difference)
{
    differences d = { .count = 0 };
    ls_facts facts;
    LS_TRY(ls_facts_make(job, &facts));
    ls_status status = compare_all(c, job, &facts, how.in_fit, &d);
    ls_text_free(&d.text);
    if (status == LS_OK)
        status = compare_bits(c, &facts, how, difference);
    ls_facts_free(&facts);
    return status;
}

/* ---- Restoring ---- */

static ls_status read_u64(const ls_json_at *at, uint64_t *out)
{
    const char *text = "";
    LS_TRY(ls_json_string(at, &text));
    return ls_parse_u64(text, out) ? LS_OK : ls_json_fail(at, LS_ERR_DATA, "\"%.40s\" is not a whole number", text);
}

static ls_status read_number(const ls_json_at *at, ls_state_entry_type type, size_t i, void *out)
{
    int64_t integer = 0;
    if (type == LS_STATE_F64)
        return ls_json_any_f64(at, (double *)out + i);
    if (type == LS_STATE_U64)
        return read_u64(at, (uint64_t *)out + i);
    if (type != LS_STATE_I64)
        return ls_json_fail(at, LS_ERR_INTERNAL, "unknown type of number");
    LS_TRY(ls_json_i64(at, &integer));
    if (integer < 0) /* these are all positions and counts */
        return ls_json_fail(at, LS_ERR_DATA, "must not be negative, got %" PRId64, integer);
    ((int64_t *)out)[i] = integer;
    return LS_OK;
}

static ls_status read_numbers(const ls_json_at *state, const ls_state_entry *e, void *out)
{
    size_t count = ls_state_entry_count(e);
    ls_json_at at, element;
    LS_TRY(ls_json_get(state, e->name, &at));
    if (count == 1)
        return read_number(&at, e->type, 0, out);
    LS_TRY(ls_json_is_array(&at));
    if (ls_json_count(&at) != count)
        return ls_json_fail(&at, LS_ERR_DATA, "expected %zu numbers, found %zu", count, ls_json_count(&at));
    for (size_t i = 0; i < count; i++) {
        LS_TRY(ls_json_element(&at, i, &element));
        LS_TRY(read_number(&element, e->type, i, out));
    }
    return LS_OK;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static ls_status read_callback(const ls_checkpoint *c, const ls_json_at *state, const char *name, ls_arena *arena,
                               ls_state_entry_bytes *to)
{
    ls_json_at at;
    const char *hex = "";
    LS_TRY(ls_json_get(state, name, &at));
    if (json_is_object(at.value)) {
        const ls_safetensors_entry *kept = ls_safetensors_find(c->optimizer, name);
        if (!kept)
            return ls_json_fail(&at, LS_ERR_DATA, LS_CHECKPOINT_OPTIMIZER " does not contain this tensor");
        to->bytes = (void *)kept->data;
        to->count = kept->bytes;
        return LS_OK;
    }
    LS_TRY(ls_json_string(&at, &hex));
    to->count = strlen(hex) / 2;
    unsigned char *bytes = to->bytes = ls_arena_alloc(arena, to->count + 1);
    if (!bytes)
        return ls_fail(LS_ERR_MEMORY, "no memory for the state of a callback");
    for (size_t i = 0; i < to->count; i++) {
        int high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return ls_json_fail(&at, LS_ERR_DATA, "expected bytes in hexadecimal");
        bytes[i] = (unsigned char)(high * 16 + low);
    }
    return hex[2 * to->count] ? ls_json_fail(&at, LS_ERR_DATA, "expected an even number of hexadecimal digits") : LS_OK;
}

/* Ignored if saved outside a fit. */
static bool is_of_fit(const char *name)
{
    return strncmp(name, "position/", 9) == 0 || strncmp(name, "tally/", 6) == 0;
}

static ls_status read_entry(const ls_checkpoint *c, const ls_json_at *state, const ls_job *job, const ls_state_entry *e,
                            ls_arena *arena, ls_state_entry_bytes *to)
{
    bool of_fit = json_is_object(json_object_get(c->state, "fit"));
    *to = (ls_state_entry_bytes){ .name = (char *)e->name, .kind = e->kind, .bytes = e->data, .count = e->bytes };
    if (e->kind == LS_STATE_VARIABLE || e->kind == LS_STATE_SLOT) {
        const ls_safetensors_entry *found = find_tensor(c, job, e);
        if (!found || found->bytes != e->bytes) /* ls_checkpoint_fits checked this */
            return ls_fail(LS_ERR_INTERNAL, "the optimizer's tensors in '%s' do not match the model", c->path);
        to->bytes = (void *)found->data;
        return LS_OK;
    }
    if (e->kind == LS_STATE_FIXED || (!of_fit && is_of_fit(e->name)))
        return LS_OK; /* keep the job's value */
    if (e->kind == LS_STATE_CALLBACK && !json_object_get(state->value, e->name)) {
        to->bytes = NULL; /* new; ls_checkpoint_fits allowed it */
        return LS_OK;
    }
    if (e->kind == LS_STATE_CALLBACK)
        return read_callback(c, state, e->name, arena, to);
    to->bytes = ls_arena_alloc(arena, e->bytes + 1);
    if (!to->bytes)
        return ls_fail(LS_ERR_MEMORY, "no memory for \"%s\"", e->name);
    return read_numbers(state, e, to->bytes);
}

ls_status ls_checkpoint_put(const ls_checkpoint *c, ls_job *job)
{
    ls_state_entry *entries = NULL;
    size_t count = 0;
    ls_arena arena = { 0 };
    ls_json_at root = ls_json_root(c->state, c->path), state;
    LS_TRY(ls_json_get_object(&root, "state", &state));
    LS_TRY(ls_job_list(job, &entries, &count));
    ls_snapshot snapshot = { .count = count, .entry = calloc(count, sizeof(ls_state_entry_bytes)) };
    ls_status status = snapshot.entry ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for %zu entries", count);
    for (size_t i = 0; i < count && status == LS_OK; i++)
        status = read_entry(c, &state, job, &entries[i], &arena, &snapshot.entry[i]);
    if (status == LS_OK)
        status = ls_job_load(job, &snapshot);
    free(snapshot.entry);
    free(entries);
    ls_arena_free(&arena);
    return status;
}

/* ---- History and best result ---- */

static ls_status read_rows(const ls_json_at *history, size_t count, double *values, size_t epochs)
{
    ls_json_at list, row, value;
    LS_TRY(ls_json_get_array(history, "epochs", &list));
    for (size_t e = 0; e < epochs; e++) {
        LS_TRY(ls_json_element(&list, e, &row));
        LS_TRY(ls_json_is_array(&row));
        if (ls_json_count(&row) != count)
            return ls_json_fail(&row, LS_ERR_DATA, "expected %zu values, one for each name, found %zu", count,
                                ls_json_count(&row));
        for (size_t i = 0; i < count; i++) {
            LS_TRY(ls_json_element(&row, i, &value));
            LS_TRY(ls_json_any_f64(&value, &values[e * count + i]));
        }
    }
    return LS_OK;
}

ls_status ls_checkpoint_history(const ls_checkpoint *c, ls_history **out)
{
    ls_json_at root = ls_json_root(c->state, c->path), history, names, list;
    const char *name[2 * LS_MAX_RESULTS];
    LS_TRY(ls_json_get_object(&root, "history", &history));
    LS_TRY(ls_json_get_array(&history, "names", &names));
    LS_TRY(ls_json_get_array(&history, "epochs", &list));
    size_t count = ls_json_count(&names), epochs = ls_json_count(&list);
    if (epochs == 0)
        return LS_OK;
    if (count > sizeof(name) / sizeof(*name))
        return ls_json_fail(&names, LS_ERR_DATA, "too many names: %zu", count);
    for (size_t i = 0; i < count; i++) {
        ls_json_at at;
        LS_TRY(ls_json_element(&names, i, &at));
        LS_TRY(ls_json_string(&at, &name[i]));
    }
    /* cannot overflow: bounded by the size of the file */
    double *values = calloc(epochs * (count + 1), sizeof(*values));
    if (!values)
        return ls_fail(LS_ERR_MEMORY, "no memory for the history of %zu epochs", epochs);
    ls_status status = read_rows(&history, count, values, epochs);
    if (status == LS_OK)
        status = ls_history_make(name, count, values, epochs, out);
    free(values);
    return status;
}

ls_status ls_checkpoint_best(const ls_checkpoint *c, const char *monitor, ls_best *out)
{
    ls_json_at root = ls_json_root(c->state, c->path), best, value;
    const char *by = "";
    ls_best found = { .known = true };
    if (!ls_json_find(&root, "best", &best) || json_is_null(best.value))
        return LS_OK;
    LS_TRY(ls_json_get_string(&best, "monitor", &by));
    LS_TRY(ls_json_get(&best, "value", &value));
    LS_TRY(ls_json_any_f64(&value, &found.value));
    LS_TRY(ls_json_get_i64(&best, "step", &found.step));
    if (strcmp(by, monitor) == 0) /* ignore the best value of another monitor */
        *out = found;
    return LS_OK;
}
