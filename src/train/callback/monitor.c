/* Values that built-in callbacks monitor, and their saved state. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "train/callback/callback.h"
#include "train/job/job.h"

/* ---- Names ---- */

#define VAL "val_"

static int find_result(const ls_job *job, const char *name)
{
    for (size_t i = 0; i < job->name_count; i++)
        if (strcmp(job->names[i], name) == 0)
            return (int)i;
    return -1;
}

static int find_given(const ls_callback_facts *facts, const char *name)
{
    int found = find_result(facts->job, name);
    if (found < 0 && facts->validates && strncmp(name, VAL, strlen(VAL)) == 0)
        found = find_result(facts->job, name + strlen(VAL));
    return found;
}

bool ls_callback_has_value(const ls_callback_facts *facts, const char *name)
{
    return find_given(facts, name) >= 0;
}

void ls_callback_names(const ls_callback_facts *facts, ls_text *out)
{
    for (int val = 0; val <= (facts->validates ? 1 : 0); val++)
        for (size_t i = 0; i < facts->job->name_count; i++)
            ls_text_add(out, "%s%s%s", out->length ? ", " : "", val ? VAL : "", facts->job->names[i]);
}

static ls_status refuse_name(const char *callback, const char *name, const ls_callback_facts *facts)
{
    ls_text known = { 0 };
    ls_callback_names(facts, &known);
    bool unvalidated =
        !facts->validates && strncmp(name, VAL, strlen(VAL)) == 0 && find_result(facts->job, name + strlen(VAL)) >= 0;
    ls_status status =
        ls_fail(LS_ERR_NOT_FOUND, "%s: cannot monitor \"%s\": training has no such value; the values are %s%s",
                callback, name, ls_text_get(&known), unvalidated ? "; for val_ values give validation data" : "");
    ls_text_free(&known);
    return status;
}

/* Losses come before metrics in the results. */
static bool rises_by_itself(const ls_job *job, size_t result)
{
    size_t first = job->name_count - job->metric_count;
    if (result < first)
        return false;
    ls_metric_kind kind = job->metrics[result - first].kind;
    return kind != LS_METRIC_MEAN_SQUARED_ERROR && kind != LS_METRIC_MEAN_ABSOLUTE_ERROR && kind != LS_METRIC_MEAN &&
           kind != LS_METRIC_ROOT_MEAN_SQUARED_ERROR && kind != LS_METRIC_LOSS;
}

ls_status ls_monitor_open(ls_monitor *monitor, const char *callback, const char *name, ls_monitor_mode mode,
                          double min_delta, const ls_callback_facts *facts)
{
    *monitor = (ls_monitor){ .name = name ? name : "val_loss", .min_delta = fabs(min_delta) };
    int found = find_given(facts, monitor->name);
    if (found < 0)
        return refuse_name(callback, monitor->name, facts);
    if (!(monitor->min_delta < INFINITY))
        return ls_fail(LS_ERR_INVALID, "%s: min_delta must be finite, got %g", callback, min_delta);
    if (mode < LS_MODE_AUTO || mode > LS_MODE_MAX)
        return ls_fail(LS_ERR_INVALID, "%s: unknown mode %d", callback, (int)mode);
    monitor->rises = mode == LS_MODE_AUTO ? rises_by_itself(facts->job, (size_t)found) : mode == LS_MODE_MAX;
    return LS_OK;
}

/* ---- Values ---- */

bool ls_monitor_value(const ls_monitor *monitor, const ls_logs *logs, double *out)
{
    for (size_t i = 0; i < logs->count; i++)
        if (strcmp(logs->names[i], monitor->name) == 0) {
            *out = logs->values[i];
            return true;
        }
    return false;
}

bool ls_monitor_is_better(const ls_monitor *monitor, double value, double than)
{
    if (isnan(than))
        return !isnan(value);
    return monitor->rises ? value - monitor->min_delta > than : value + monitor->min_delta < than;
}

/* ---- Saved state ---- */

/* Layout: the name with its terminating zero, the numbers, the further bytes. */
ls_status ls_callback_pack(const ls_callback_bytes *parts, void **bytes, size_t *count)
{
    size_t name = strlen(parts->monitor) + 1, all = name + parts->number_bytes + parts->more_bytes;
    char *to = malloc(all);
    if (!to)
        return ls_fail(LS_ERR_MEMORY, "no memory for the state of a callback (%zu bytes)", all);
    memcpy(to, parts->monitor, name);
    memcpy(to + name, parts->numbers, parts->number_bytes);
    if (parts->more_bytes)
        memcpy(to + name + parts->number_bytes, parts->more, parts->more_bytes);
    *bytes = to;
    *count = all;
    return LS_OK;
}

ls_status ls_callback_unpack(const ls_callback_bytes *parts, const char *callback, const void *bytes, size_t count)
{
    const char *from = bytes, *end = count ? memchr(from, '\0', count) : NULL;
    if (!end)
        return ls_fail(LS_ERR_DATA, "the saved state of %s is damaged; resume from another checkpoint", callback);
    if (strcmp(from, parts->monitor) != 0)
        return ls_fail(LS_ERR_INVALID,
                       "the saved %s monitored \"%s\" but this one monitors \"%s\"; use the same monitor", callback,
                       from, parts->monitor);
    size_t name = (size_t)(end - from) + 1;
    if (count != name + parts->number_bytes + parts->more_bytes)
        return ls_fail(LS_ERR_INVALID, "the saved state of %s has %zu bytes but this run needs %zu", callback, count,
                       name + parts->number_bytes + parts->more_bytes);
    memcpy(parts->numbers, from + name, parts->number_bytes);
    if (parts->more_bytes)
        memcpy(parts->more, from + name + parts->number_bytes, parts->more_bytes);
    return LS_OK;
}
