/* Where an executor's time went: seconds of devices, and profiles of ops. */
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "run/executor_private.h"

/* While the calling thread brings the state, every device that has state waits. */
void ls_executor_add_seconds(const ls_executor *e, ls_device_seconds *by_device)
{
    for (int w = 0; w < e->threads; w++) {
        const ls_meter *m = &e->meters[w];
        ls_device_seconds *s = &by_device[e->device_of[w]];
        double part = e->thread_pool ? 1.0 / e->placement->ctx->devices[e->device_of[w]].thread_count : 1;
        s->busy += m->busy * part;
        s->lanes += m->lanes * part;
        s->joins += m->joins * part;
        s->copies += m->copies * part;
        s->between += m->between * part;
        s->idle += m->idle * part;
        s->waiting += m->waiting * part;
        s->present += m->present * part;
    }
    for (int d = 0; d < e->devices; d++)
        if (e->drivers[d]) {
            by_device[d].joins += e->begin_seconds;
            by_device[d].copies += e->begin_seconds;
            by_device[d].waiting += e->begin_seconds;
            by_device[d].present += e->begin_seconds;
        }
}

double ls_executor_join_seconds(const ls_executor *e)
{
    double seconds = 0;
    int threads = 0;
    for (int w = 0; w < e->threads; w++) {
        threads += !e->thread_pool || e->wanted[w];
        for (int k = LS_PHASE_HOME; k < LS_PHASE_KINDS; k++)
            seconds += e->phase_seconds[w * LS_PHASE_KINDS + k];
    }
    return seconds / threads;
}

/* ---- Profiles ---- */

#define NAME 64

typedef struct row {
    char op[NAME], kernel[NAME];
    bool slow; /* A reference kernel that the context did not request. */
    ls_op_time time;
} row;

struct ls_profile {
    row *rows;
    size_t count, room;
    double phases[LS_PHASE_KINDS];
};

ls_status ls_profile_make(ls_profile **out)
{
    ls_profile *p = calloc(1, sizeof(*p));
    if (!p)
        return ls_fail(LS_ERR_MEMORY, "no memory for a profile");
    *out = p;
    return LS_OK;
}

void ls_profile_free(ls_profile *p)
{
    if (p)
        free(p->rows);
    free(p);
}

ls_status ls_executor_profile(ls_executor *e)
{
    size_t threads = (size_t)e->threads;
    if (e->segment_times)
        return LS_OK;
    e->group_times = calloc(threads * ((size_t)e->plan->group_count + 1), sizeof(*e->group_times));
    e->segment_times = calloc(threads * ((size_t)e->plan->segment_count + 1), sizeof(*e->segment_times));
    if (!e->group_times || !e->segment_times) {
        free(e->group_times);
        free(e->segment_times);
        e->group_times = e->segment_times = NULL;
        return ls_fail(LS_ERR_MEMORY, "no memory to profile %d ops", e->plan->group_count);
    }
    for (size_t i = 0; i < threads * LS_PHASE_KINDS; i++)
        e->profiled[i % LS_PHASE_KINDS] += e->phase_seconds[i];
    return LS_OK;
}

/* Takes the times of all threads, and sets them to 0. */
static ls_op_time take(const ls_executor *e, int group)
{
    ls_op_time all = { .calls = 0 };
    for (int w = 0; w < e->threads; w++) {
        ls_op_time *t = &e->group_times[w * e->plan->group_count + group];
        all.seconds += t->seconds;
        all.flops += t->flops;
        all.calls += t->calls;
        *t = (ls_op_time){ .calls = 0 };
    }
    return all;
}

static ls_status add_row(ls_profile *p, const row *r)
{
    size_t i = 0;
    while (i < p->count && (strcmp(p->rows[i].op, r->op) != 0 || strcmp(p->rows[i].kernel, r->kernel) != 0))
        i++;
    if (i == p->count) {
        LS_TRY(ls_grow(&p->rows, p->count, &p->room, sizeof(*p->rows)));
        p->rows[p->count++] = *r;
        return LS_OK;
    }
    p->rows[i].time.seconds += r->time.seconds;
    p->rows[i].time.flops += r->time.flops;
    p->rows[i].time.calls += r->time.calls;
    return LS_OK;
}

static const char *group_op(const ls_group *group)
{
    const ls_tensor *largest = group->root;
    for (int i = 0; i < group->node_count; i++)
        if (ls_node_flops(group->nodes[i]) > ls_node_flops(largest))
            largest = group->nodes[i];
    return ls_tensor_op(largest);
}

/* Devices run a segment as one program: it has the name of its largest op. */
static void name_segment(const ls_executor *e, const ls_segment *s, int device, row *out)
{
    char name[LS_SHORT_NAME];
    const ls_group *largest = s->steps[0].group;
    for (int i = 1; i < s->step_count; i++)
        if (ls_node_flops(s->steps[i].group->nodes[0]) > ls_node_flops(largest->nodes[0]))
            largest = s->steps[i].group;
    snprintf(out->op, NAME, "%s and %d more", group_op(largest), s->step_count - 1);
    snprintf(out->kernel, NAME, "%s", ls_device_short_name(e->placement->ctx, device, name));
}

static ls_status add_segments(ls_profile *p, ls_executor *e)
{
    int count = e->plan->segment_count;
    for (int i = 0; i < e->threads * count; i++) {
        row r = { .time = e->segment_times[i] };
        if (r.time.calls == 0)
            continue;
        e->segment_times[i] = (ls_op_time){ .calls = 0 };
        name_segment(e, &e->plan->segments[i % count], e->device_of[i / count], &r);
        LS_TRY(add_row(p, &r));
    }
    return LS_OK;
}

static ls_status add_groups(ls_profile *p, ls_executor *e)
{
    for (int g = 0; g < e->plan->group_count; g++) {
        const ls_group *group = &e->plan->groups[g];
        row r = { .time = take(e, g) };
        if (r.time.calls == 0)
            continue;
        snprintf(r.op, NAME, "%s", group_op(group));
        snprintf(r.kernel, NAME, "%s", group->kernel->name);
        r.slow = group->kernel->falls_back;
        LS_TRY(add_row(p, &r));
    }
    return LS_OK;
}

ls_status ls_profile_add(ls_profile *p, ls_executor *e)
{
    double now[LS_PHASE_KINDS] = { 0 };
    if (!e->segment_times)
        return LS_OK;
    LS_TRY(add_groups(p, e));
    LS_TRY(add_segments(p, e));
    for (int i = 0; i < e->threads * LS_PHASE_KINDS; i++)
        now[i % LS_PHASE_KINDS] += e->phase_seconds[i];
    for (int k = 0; k < LS_PHASE_KINDS; k++) {
        p->phases[k] += now[k] - e->profiled[k];
        e->profiled[k] = now[k];
    }
    return LS_OK;
}

/* ---- As text ---- */

static int by_seconds(const void *a, const void *b)
{
    const row *x = a, *y = b;
    return (x->time.seconds < y->time.seconds) - (x->time.seconds > y->time.seconds);
}

static void put_row(ls_text *text, const row *r, double all)
{
    double gflops = r->time.seconds > 0 ? r->time.flops / r->time.seconds * 1e-9 : 0;
    ls_text_add(text, "%5.1f %% %9.3f s ", 100 * r->time.seconds / all, r->time.seconds);
    if (r->time.calls > 0)
        ls_text_add(text, "%9lld ", (long long)r->time.calls);
    else
        ls_text_add(text, "%9s ", "");
    if (gflops >= 0.05)
        ls_text_add(text, "%7.1f", gflops);
    else
        ls_text_add(text, "%7s", "");
    ls_text_add(text, "  %s%s%s%s\n", r->op, r->kernel[0] ? ": " : "", r->kernel,
                r->slow && strcmp(r->kernel, "reference") != 0 ? " (reference)" : "");
}

/* Work that is not the kernel of an op; the rest of the phases that run kernels. */
static ls_status add_other(ls_profile *all, const ls_profile *p)
{
    static const struct {
        const char *name;
        ls_phase_kind first, last;
    } parts[] = {
        { "preparing weights", LS_PHASE_PREPARE, LS_PHASE_PREPARE },
        { "joins, and exchange with other workers", LS_PHASE_HOME, LS_PHASE_COMMIT },
        { "checks for finite numbers", LS_PHASE_GUARD, LS_PHASE_CHECK },
    };
    double rest = 0;
    for (int k = 0; k < LS_PHASE_KINDS; k++)
        rest += p->phases[k];
    for (size_t i = 0; i < p->count; i++) {
        rest -= p->rows[i].time.seconds;
        LS_TRY(add_row(all, &p->rows[i]));
    }
    for (size_t i = 0; i <= sizeof(parts) / sizeof(*parts); i++) {
        bool last = i == sizeof(parts) / sizeof(*parts);
        row r = { .time.seconds = last ? rest : 0 };
        snprintf(r.op, NAME, "%s", last ? "choosing samples, copies and calls" : parts[i].name);
        for (int k = last ? 1 : (int)parts[i].first; k <= (last ? 0 : (int)parts[i].last); k++)
            r.time.seconds += p->phases[k];
        rest -= r.time.seconds;
        if (r.time.seconds > 0)
            LS_TRY(add_row(all, &r));
    }
    return LS_OK;
}

#define SHOWN 20

static void put_table(const ls_profile *p, ls_text *text)
{
    double all = 0, left = 0;
    int slow = 0;
    for (size_t i = 0; i < p->count; i++)
        all += p->rows[i].time.seconds;
    ls_text_add(text, "profile: %.3f s of all threads\n  share      time     calls  GFLOPS  op: kernel\n", all);
    for (size_t i = 0; i < p->count; i++) {
        if (i < SHOWN)
            put_row(text, &p->rows[i], all);
        else
            left += p->rows[i].time.seconds;
    }
    if (p->count > SHOWN)
        ls_text_add(text, "%5.1f %% %9.3f s  %zu more\n", 100 * left / all, left, p->count - SHOWN);
    for (size_t i = 0; i < p->count; i++)
        if (p->rows[i].slow)
            ls_text_add(text, "%s%s", slow++ ? ", " : "slow reference kernels: ", p->rows[i].op);
    ls_text_put(text, slow ? "\n" : "");
}

ls_status ls_profile_print(const ls_profile *p, ls_text *text)
{
    ls_profile all = { .count = 0 };
    ls_status status = p->count > 0 ? add_other(&all, p) : LS_OK;
    if (status == LS_OK && all.count > 0) {
        qsort(all.rows, all.count, sizeof(*all.rows), by_seconds);
        put_table(&all, text);
    }
    free(all.rows);
    LS_TRY(status);
    return text->failed ? ls_fail(LS_ERR_MEMORY, "no memory to print a profile") : LS_OK;
}
