/* Compiling a plan for a graph: what is computed, where, and the executor that does it. Plans are kept in runs.h. */
#ifndef LS_RUN_COMPILE_H
#define LS_RUN_COMPILE_H

#include "run/peers.h"
#include "run/runs.h"

/* A compilation: what is asked for, and the plan made from it. */
typedef struct ls_compilation {
    ls_graph *graph;
    ls_tensor *const *fetches;
    size_t count;
    bool (*stop)(const ls_tensor *, void *);
    void *user;
    ls_plan_options options;
    uint32_t weights[LS_MOST_PEERS]; /* of the options, where they need room */
    ls_kernel_source source;
    const ls_run_settings *settings;
    ls_runs *runs;
    ls_thread_pool *crew; /* NULL: the caller does everything */
    int together;         /* lanes that devices run together, at most; 0: all, where there is room */
    ls_plan *plan;
    ls_placement *placement;
} ls_compilation;

/* Settings are NULL for the graph's own. */

/* An executor for a single use; the caller destroys it. `stop` as in ls_graph_order. Plans that are kept give way to it
 * where memory is short. */
ls_status ls_compile_run(ls_graph *graph, const ls_run_settings *settings, ls_tensor *const *fetches, size_t count,
                         int64_t batch, bool (*stop)(const ls_tensor *, void *), void *user, ls_executor **out);

/* Starts a compilation; it owns nothing yet. Then plans for any number of samples can be made and placed, one at a
 * time: each is dropped before the next. */
ls_status ls_compilation_start(ls_graph *graph, const ls_run_settings *settings, ls_tensor *const *fetches,
                               size_t count, int64_t batch, bool (*stop)(const ls_tensor *, void *), void *user,
                               ls_compilation *m);
ls_status ls_compilation_make(ls_compilation *m, int64_t batch);
void ls_compilation_drop(ls_compilation *m);

#endif
