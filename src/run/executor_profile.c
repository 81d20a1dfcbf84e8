/* Prints where an executor's time went. */
#include <stdlib.h>

#include "run/executor_private.h"

void ls_executor_profile(ls_executor *e, bool on)
{
    free(e->group_seconds);
    size_t threads = (size_t)e->threads;
    e->group_seconds = on ? calloc(threads * ((size_t)e->plan->group_count + 1), sizeof(double)) : NULL;
    for (size_t i = 0; i < threads * LS_PHASE_KINDS; i++)
        e->phase_seconds[i] = 0;
}

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

typedef struct share {
    const ls_group *group;
    double seconds;
} share;

static int by_seconds(const void *a, const void *b)
{
    const share *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

#define SHOWN_GROUPS 24

ls_status ls_executor_print_profile(const ls_executor *e, ls_text *text)
{
    static const char *const names[] = { "whole",    "tiles",  "prepare", "lanes",  "home",  "pair",  "gather",
                                         "exchange", "join",   "reduce",  "settle", "post",  "share", "finish",
                                         "collect",  "commit", "guard",   "check",  "update" };
    int groups = e->plan->group_count;
    share *shares = calloc((size_t)groups + 1, sizeof(*shares));
    if (!e->group_seconds || !shares) {
        free(shares);
        return ls_fail(LS_ERR_STATE, "the executor was not profiled");
    }
    double all = 0;
    for (int k = 0; k < LS_PHASE_KINDS; k++) {
        double seconds = 0;
        for (int w = 0; w < e->threads; w++)
            seconds += e->phase_seconds[w * LS_PHASE_KINDS + k];
        ls_text_add(text, "%s %.4f s  ", names[k], seconds);
        all += seconds;
    }
    ls_text_put(text, "\n");
    for (int g = 0; g < groups; g++) {
        shares[g].group = &e->plan->groups[g];
        for (int w = 0; w < e->threads; w++)
            shares[g].seconds += e->group_seconds[(size_t)w * (size_t)groups + (size_t)g];
    }
    qsort(shares, (size_t)groups, sizeof(*shares), by_seconds);
    for (int g = 0; g < groups && g < SHOWN_GROUPS && shares[g].seconds > 0; g++) {
        char label[LS_NODE_TEXT];
        const ls_group *group = shares[g].group;
        double flops = ls_node_flops(group->nodes[0]) * (double)e->plan->batch;
        ls_text_add(text, "  %5.1f %%  %.4f s  %6.1f GFLOP a run  %s %s\n", 100 * shares[g].seconds / all,
                    shares[g].seconds, flops * 1e-9, ls_node_label(group->root, label),
                    group->kernel ? group->kernel->name : "");
    }
    free(shares);
    return text->failed ? ls_fail(LS_ERR_MEMORY, "no memory to print a profile") : LS_OK;
}
