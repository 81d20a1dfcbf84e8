/* Per-graph data kept between runs: settings and compiled plans. */
#ifndef LS_RUN_RUNS_H
#define LS_RUN_RUNS_H

#include "lockstep/run.h"
#include "run/executor.h"
#include "run/runtime.h"

#define LS_CACHED_PLANS 16
#define LS_WARNED       4 /* Number of warnings to remember. */

typedef struct ls_run_settings {
    ls_plan_options plan; /* Lanes, map and test options; each run sets its own batch. */
    ls_mutation mutation;
    /* The calling thread does all work, on the first CPU and outside of any cluster. */
    bool by_caller;
} ls_run_settings;

typedef struct ls_cached {
    ls_executor *executor;
    /* `lists` owns the memory of their map. */
    ls_run_settings settings;
    int *lists;
    ls_tensor **fetches;
    size_t fetch_count;
    int64_t batch;
    uint64_t used; /* Clock value of the last use. */
} ls_cached;

typedef struct ls_runs {
    ls_run_settings settings;
    int *lists; /* Memory of the map in `settings`; NULL: no strategy was set. */
    ls_cached cached[LS_CACHED_PLANS];
    int count;
    uint64_t clock;
    unsigned generation, split; /* Membership generation and split for which the plans were made. */
    uint64_t timelines;         /* Number of timelines created so far. */
    /* By device: variables on devices that are not CPUs; NULL: none yet. */
    ls_state **states;
    uint64_t warned[LS_WARNED]; /* Hashes of warnings about slow plans. */
    unsigned warned_count;
} ls_runs;

ls_status ls_runs_of(ls_graph *graph, ls_runs **out);

void ls_runs_clear(ls_runs *runs);

/* Fetches, batch and settings (NULL: the graph's own) identify a plan. */

/* Returns a compiled executor, cached or new. The cache owns it. */
ls_status ls_runs_get(ls_graph *graph, const ls_run_settings *settings, ls_tensor *const *fetches, size_t count,
                      int64_t batch, ls_executor **out);

bool ls_runs_has(ls_runs *runs, const ls_run_settings *settings, ls_tensor *const *fetches, size_t count,
                 int64_t batch);

/* Drops the least recently used plan; false: there is none. */
bool ls_runs_drop_oldest(ls_runs *runs);

#endif
