/* Compiles a plan, its placement and the executor that runs it. runs.h caches them. */
#ifndef LS_RUN_COMPILE_H
#define LS_RUN_COMPILE_H

#include "run/peers.h"
#include "run/runs.h"

/* A compilation: the request and the plan made from it. */
typedef struct ls_compilation {
    ls_graph *graph;
    ls_tensor *const *fetches;
    size_t count;
    bool (*stop)(const ls_tensor *, void *);
    void *user;
    ls_plan_options options;
    uint32_t weights[LS_MOST_PEERS]; /* Storage for the weights in `options`, if they need it. */
    ls_kernel_source source;
    const ls_run_settings *settings;
    ls_runs *runs;
    ls_thread_pool *thread_pool; /* NULL: the calling thread does all work. */
    /* Most lanes that a device runs together; 0: as many as fit. */
    int together;
    ls_plan *plan;
    ls_placement *placement;
} ls_compilation;

/* In the functions below, settings NULL means the graph's own. */

/* For a single use; the caller destroys it. `stop` as in ls_graph_order. Drops cached plans if
 * memory is short. */
ls_status ls_compile_run(ls_graph *graph, const ls_run_settings *settings, ls_tensor *const *fetches, size_t count,
                         int64_t batch, bool (*stop)(const ls_tensor *, void *), void *user, ls_executor **out);

/* ls_compilation_start begins a compilation, which owns nothing yet. ls_compilation_make makes and
 * places a plan for any batch; drop each before the next. */
ls_status ls_compilation_start(ls_graph *graph, const ls_run_settings *settings, ls_tensor *const *fetches,
                               size_t count, int64_t batch, bool (*stop)(const ls_tensor *, void *), void *user,
                               ls_compilation *m);
ls_status ls_compilation_make(ls_compilation *m, int64_t batch);
void ls_compilation_drop(ls_compilation *m);

#endif
