/* A timeline: what each thread and its caller did, as a file for ui.perfetto.dev and
 * chrome://tracing. Each thread writes to its own buffers without locks. A step that found no
 * buffer left is not in the file, nor is any later step. Runs without a timeline measure nothing
 * for it. */
#ifndef LS_RUN_TIMELINE_H
#define LS_RUN_TIMELINE_H

#include "base/text.h"
#include "graph/node.h"

struct ls_executor;
struct ls_phase;
struct ls_unit;
typedef struct ls_timeline ls_timeline;

/* Records a graph's runs from step `first` to step `last` (0: no end). */
ls_status ls_timeline_create(ls_graph *graph, int64_t first, int64_t last, ls_timeline **out);
void ls_timeline_destroy(ls_timeline *timeline);

/* ---- Calls of the caller; timeline NULL: they do nothing ---- */

/* Assigns everything that follows to this step. */
void ls_timeline_step(ls_timeline *timeline, int64_t step);

typedef enum ls_call_kind { LS_CALL_STEP, LS_CALL_DATA, LS_CALL_VALIDATION, LS_CALL_PLAN, LS_CALL_STATE } ls_call_kind;
void ls_timeline_call(ls_timeline *timeline, ls_call_kind kind, double start, double end);

/* Records why training ended early. */
void ls_timeline_failed(ls_timeline *timeline, const char *message);

/* Begins a run. Returns whether the timeline meets this executor for the first time. */
bool ls_timeline_run(ls_timeline *timeline, struct ls_executor *e);

/* Writes the whole file or none. *kept: the last step in it; less than the last recorded one if the
 * buffers were full. / */
ls_status ls_timeline_write(ls_timeline *timeline, const char *path, int64_t *kept);

/* ---- Workers of a cluster ---- */

/* Called by all workers at once, each with its timeline or NULL. Compares clocks and sends the
 * events to the chief, whose file then has a process for each worker. At most 64 MB; steps that do
 * not fit are left out. */
struct ls_peers;
ls_status ls_timeline_gather(ls_timeline *timeline, struct ls_peers *peers);

/* ls_timeline_describe writes at most `most` bytes, with times on the chief's clock. `shift`: how
 * far this clock is ahead of it. `zero`: when the chief's timeline began. */
typedef struct ls_timeline_clock {
    double shift, zero;
} ls_timeline_clock;
ls_status ls_timeline_describe(ls_timeline *timeline, const ls_timeline_clock *clock, size_t most, ls_text *text);
double ls_timeline_zero(const ls_timeline *timeline);
/* Takes ownership of the others' events. `bound`: the largest error of their clocks. */
void ls_timeline_take_others(ls_timeline *timeline, char *events, double bound);

/* ---- Events of threads; e->timeline is not NULL ---- */

void ls_timeline_task(struct ls_executor *e, int thread, int segment, int lane, double start);
/* Lanes that ran together: each gets the whole time. */
void ls_timeline_tasks(struct ls_executor *e, int thread, int segment, const struct ls_unit *const *units, int count,
                       double start);
void ls_timeline_unit(struct ls_executor *e, int thread, const struct ls_phase *phase, const struct ls_unit *unit,
                      double start, double end);
void ls_timeline_siblings(struct ls_executor *e, int thread, int segment, int lane, double start);
void ls_timeline_copy(struct ls_executor *e, int thread, int value, int from, int to, size_t bytes, double start);

#endif
