/* Where the time of a fit went, per device, and whether several devices helped. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "graph/claim.h"
#include "nn/model.h"
#include "train/job/job.h"
#include "train/job/times.h"

/* ---- Recording ---- */

struct ls_fit_seconds {
    int count;
    /* totals per device, and their values when the epoch began */
    ls_device_seconds *all, *epoch;
    double data, wall; /* seconds: waiting for data; total */
    /* per device; -1: no stages, UNNAMED: the strategy does not use it */
    int *stage;
    int named;    /* devices that the strategy uses */
    bool single;  /* each of them has one thread */
    double delay; /* seconds that runnable threads had no core; negative: unknown */
    int64_t steps;
};

#define UNNAMED (-2)

void ls_fit_seconds_free(ls_fit_seconds *s)
{
    if (!s)
        return;
    free(s->all);
    free(s->stage);
    free(s);
}

ls_status ls_fit_seconds_make(const ls_context *ctx, const ls_task_map *map, ls_fit_seconds **out)
{
    size_t count = (size_t)ctx->device_count;
    ls_fit_seconds *s = calloc(1, sizeof(*s));
    if (s) {
        s->all = calloc(2 * count, sizeof(*s->all));
        s->stage = calloc(count, sizeof(*s->stage));
    }
    if (!s || !s->all || !s->stage) {
        ls_fit_seconds_free(s);
        return ls_fail(LS_ERR_MEMORY, "no memory for the times of %zu devices", count);
    }
    s->count = (int)count;
    s->epoch = s->all + count;
    s->single = true;
    for (int d = 0; d < s->count; d++)
        s->stage[d] = UNNAMED;
    for (int i = 0; i < map->count; i++) {
        s->stage[map->devices[i]] = map->stages > 1 ? i % map->stages : -1;
        s->single = s->single && ctx->devices[map->devices[i]].thread_count == 1;
        s->named++;
    }
    *out = s;
    return LS_OK;
}

ls_device_seconds *ls_fit_seconds_list(ls_fit_seconds *s)
{
    return s->all;
}

void ls_fit_seconds_begin_epoch(ls_fit_seconds *s)
{
    memcpy(s->epoch, s->all, (size_t)s->count * sizeof(*s->all));
}

void ls_fit_seconds_note(ls_fit_seconds *s, const ls_times *times, double wall, int64_t steps, double delay)
{
    s->delay = delay;
    s->data = times->data;
    s->wall = wall;
    s->steps = steps;
}

/* ---- As numbers ---- */

/* Devices that the strategy uses, and others that did work. */
static bool is_listed(const ls_fit_seconds *s, int device)
{
    return s->stage[device] != UNNAMED || s->all[device].present > 0;
}

static ls_device_times times_of(const ls_device *device, int stage, const ls_device_seconds *s, double data,
                                double wall)
{
    ls_device_times t = { .stage = stage < 0 ? -1 : stage,
                          .busy = s->busy,
                          .lanes = s->lanes,
                          .data = data,
                          .joins = s->joins,
                          .idle = s->idle,
                          .copies = s->copies };
    snprintf(t.name, sizeof(t.name), "%s", device->name);
    double other = wall - t.busy - t.data - t.joins - t.idle;
    t.other = other > 0 ? other : 0;
    return t;
}

static ls_device_seconds since(const ls_device_seconds *now, const ls_device_seconds *before)
{
    return (ls_device_seconds){ .busy = now->busy - before->busy,
                                .joins = now->joins - before->joins,
                                .copies = now->copies - before->copies,
                                .idle = now->idle - before->idle };
}

void ls_fit_seconds_put(const ls_fit_seconds *s, const ls_context *ctx, bool epoch, const ls_times *times,
                        ls_text *text)
{
    const char *before = ",\"devices\":[";
    for (int d = 0; s && d < s->count; d++) {
        char name[LS_SHORT_NAME];
        ls_device_seconds part = epoch ? since(&s->all[d], &s->epoch[d]) : s->all[d];
        if (!is_listed(s, d))
            continue;
        ls_text_add(text, "%s{\"name\":\"%s\",\"busy\":", before, ls_device_short_name(ctx, d, name));
        ls_text_put_f64(text, part.busy);
        ls_text_put(text, ",\"data\":");
        ls_text_put_f64(text, times->data);
        ls_text_put(text, ",\"joins\":");
        ls_text_put_f64(text, part.joins);
        ls_text_put(text, ",\"idle\":");
        ls_text_put_f64(text, part.idle);
        ls_text_put(text, ",\"other\":");
        ls_text_put_f64(text, fmax(0, times->compute + times->other - part.busy - part.joins - part.idle));
        ls_text_put(text, "}");
        before = ",";
    }
    if (before[1] == '\0')
        ls_text_put(text, "]");
}

ls_status ls_model_device_times(const ls_model *model, ls_device_times **out, size_t *count)
{
    LS_CLAIM(ls_model_claimed(model));
    if (!model || !out || !count)
        return ls_fail(LS_ERR_INVALID, "ls_model_device_times: model, list and count must not be NULL");
    if (!model->job || !model->job->seconds) {
        *out = NULL;
        *count = 0;
        return LS_OK;
    }
    const ls_fit_seconds *s = model->job->seconds;
    const ls_context *ctx = ls_model_graph((ls_model *)model)->context;
    ls_device_times *list = calloc((size_t)s->count, sizeof(*list));
    size_t n = 0;
    if (!list)
        return ls_fail(LS_ERR_MEMORY, "no memory for the times of %d devices", s->count);
    for (int d = 0; d < s->count; d++)
        if (is_listed(s, d))
            list[n++] = times_of(&ctx->devices[d], s->stage[d], &s->all[d], s->data, s->wall);
    *out = list;
    *count = n;
    return LS_OK;
}

/* ---- Whether several devices helped ---- */

#define FEWEST_STEPS 10
#define SLOWER       0.9
#define HARDLY       1.15
/* share of the step time; above it, other processes distorted the measurement */
#define MOST_DELAY 0.05

/* Estimates the time on one device: all the work, without waiting for other devices or copies
 * between them. A device with several threads also waits internally: assume as much as now. */
static double alone(const ls_fit_seconds *s, double waiting)
{
    double work = 0;
    for (int d = 0; d < s->count; d++)
        work += s->all[d].present - s->all[d].waiting - s->all[d].between;
    return s->single ? work : work + waiting;
}

void ls_fit_seconds_advise(const ls_fit_seconds *s, ls_text *text)
{
    double together = 0, joins = 0, idle = 0, waiting = 0;
    if (s->named < 2 || s->steps < FEWEST_STEPS)
        return;
    for (int d = 0; d < s->count; d++) {
        together = s->all[d].present > together ? s->all[d].present : together;
        if (s->stage[d] != UNNAMED) {
            joins += s->all[d].joins / s->named;
            idle += s->all[d].idle / s->named;
            waiting += s->all[d].waiting / s->named;
        }
    }
    if (s->delay > MOST_DELAY * together)
        return;
    double all = s->data + together, gain = (s->data + alone(s, waiting)) / all;
    if (!(gain < HARDLY))
        return;
    const char *reason = "joins";
    double share = joins;
    if (idle > share) {
        share = idle;
        reason = "idle while other lanes are computed";
    }
    if (s->data > share) {
        share = s->data;
        reason = "waiting for data";
    }
    ls_text_add(text, "%d devices are %s than 1 for this model: %s %.0f %%\n", s->named,
                gain < SLOWER ? "slower" : "hardly faster", reason, 100 * share / all);
}

/* ---- As text ---- */

static void put_part(ls_text *text, const char *before, const char *what, double seconds, double wall)
{
    ls_text_add(text, "%s%s %.2f s (%.1f %%)", before, what, seconds, 100 * seconds / wall);
}

static void put_device(ls_text *text, const char *name, const ls_device_times *t, double wall)
{
    if (t->stage >= 0)
        ls_text_add(text, "stage %d on ", t->stage);
    put_part(text, name, ": busy", t->busy, wall);
    put_part(text, ", ", "joins and updates", t->joins, wall);
    put_part(text, ", ", "idle", t->idle, wall);
    put_part(text, ", ", "waiting for data", t->data, wall);
    put_part(text, ", ", "other", t->other, wall);
    double lanes = t->lanes + t->idle;
    if (t->stage >= 0)
        ls_text_add(text, "; the bubble is %.1f %% of its lanes' time", lanes > 0 ? 100 * t->idle / lanes : 0);
    if (t->copies > 0 || t->stage >= 0)
        put_part(text, "; ", "of which copies", t->copies, wall);
    ls_text_put(text, "\n");
}

ls_status ls_explain_times(const ls_model *model, char **out)
{
    LS_CLAIM(ls_model_claimed(model));
    ls_text text = { 0 };
    if (!model || !out)
        return ls_fail(LS_ERR_INVALID, "ls_explain_times: model and out must not be NULL");
    const ls_fit_seconds *s = model->job ? model->job->seconds : NULL;
    const ls_context *ctx = ls_model_graph((ls_model *)model)->context;
    for (int d = 0; s && s->wall > 0 && d < s->count; d++)
        if (is_listed(s, d)) {
            char name[LS_SHORT_NAME];
            ls_device_times times = times_of(&ctx->devices[d], s->stage[d], &s->all[d], s->data, s->wall);
            put_device(&text, ls_device_short_name(ctx, d, name), &times, s->wall);
        }
    if (s && s->wall > 0)
        ls_fit_seconds_advise(s, &text);
    ls_text_put(&text, "");
    return ls_text_take(&text, out);
}

ls_status ls_explain_profile(const ls_model *model, char **out)
{
    LS_CLAIM(ls_model_claimed(model));
    ls_text text = { 0 };
    if (!model || !out)
        return ls_fail(LS_ERR_INVALID, "ls_explain_profile: model and out must not be NULL");
    ls_status status = model->job && model->job->profile ? ls_profile_print(model->job->profile, &text) : LS_OK;
    if (status != LS_OK) {
        ls_text_free(&text);
        return status;
    }
    ls_text_put(&text, "");
    return ls_text_take(&text, out);
}
