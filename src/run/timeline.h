/* A timeline: what each worker did and when, and what its caller did meanwhile, as a file for ui.perfetto.dev and
 * chrome://tracing. Workers write to rooms of their own, without locks; there is a fixed number of rooms, and a step
 * for which there was none left is not in the file, nor is any step behind it. Runs that have no timeline measure
 * nothing for it. */
#ifndef LS_RUN_TIMELINE_H
#define LS_RUN_TIMELINE_H

#include "base/text.h"
#include "graph/node.h"

struct ls_executor;
struct ls_phase;
struct ls_unit;
typedef struct ls_timeline ls_timeline;

/* Of a graph's runs, from step `first` to step `last` (0: to the end). */
ls_status ls_timeline_create(ls_graph *graph, int64_t first, int64_t last, ls_timeline **out);
void ls_timeline_destroy(ls_timeline *timeline);

/* ---- What the caller says; NULL: nothing is kept ---- */

/* What follows belongs to this step. */
void ls_timeline_step(ls_timeline *timeline, int64_t step);

typedef enum ls_call_kind { LS_CALL_STEP, LS_CALL_DATA, LS_CALL_VALIDATION, LS_CALL_PLAN, LS_CALL_STATE } ls_call_kind;
void ls_timeline_call(ls_timeline *timeline, ls_call_kind kind, double start, double end);

/* Why training ended before its time. */
void ls_timeline_failed(ls_timeline *timeline, const char *message);

/* A run of the executor begins: whether the timeline, if there is one, meets it for the first time. */
bool ls_timeline_run(ls_timeline *timeline, struct ls_executor *e);

/* The whole file or none. *kept: the last step in it; less than the last one that was made: there was no more room. */
ls_status ls_timeline_write(ls_timeline *timeline, const char *path, int64_t *kept);

/* ---- Of the workers of a cluster ---- */

/* Called by all of them at the same time, each with its own timeline, or NULL: the events of the others go to the
 * chief, whose ls_timeline_write then has a process for each worker. They are at most 64 MB; steps that do not fit are
 * left out. Clocks are compared: the file says how well. */
struct ls_peers;
ls_status ls_timeline_gather(ls_timeline *timeline, struct ls_peers *peers);

/* Rows and events, at most so many bytes, with times on the chief's clock: `shift` is how far this one is ahead of it,
 * `zero` when the chief's timeline began. */
typedef struct ls_timeline_clock {
    double shift, zero;
} ls_timeline_clock;
ls_status ls_timeline_describe(ls_timeline *timeline, const ls_timeline_clock *clock, size_t most, ls_text *text);
double ls_timeline_zero(const ls_timeline *timeline);
/* What came from the others, which becomes the timeline's; bound: of the worst of their clocks. */
void ls_timeline_take_others(ls_timeline *timeline, char *events, double bound);

/* ---- What workers did; e->timeline is not NULL ---- */

void ls_timeline_task(struct ls_executor *e, int worker, int segment, int lane, double start);
/* Lanes that were run together: each has all of the time. */
void ls_timeline_tasks(struct ls_executor *e, int worker, int segment, const struct ls_unit *const *units, int count,
                       double start);
void ls_timeline_unit(struct ls_executor *e, int worker, const struct ls_phase *phase, const struct ls_unit *unit,
                      double start, double end);
void ls_timeline_siblings(struct ls_executor *e, int worker, int segment, int lane, double start);
void ls_timeline_copy(struct ls_executor *e, int worker, int value, int from, int to, size_t bytes, double start);

#endif
