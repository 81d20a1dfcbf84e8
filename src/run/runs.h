/* What is kept for a graph between runs: its settings and its compiled plans. */
#ifndef LS_RUN_RUNS_H
#define LS_RUN_RUNS_H

#include "run/executor.h"
#include "run/runtime.h"

#define LS_CACHED_PLANS 16

typedef struct ls_run_settings {
    ls_plan_options plan; /* lanes, the map, and what tests change; batch is each run's */
    ls_mutation mutation;
} ls_run_settings;

typedef struct ls_cached {
    ls_executor *executor;
    ls_tensor **fetches;
    size_t fetch_count;
    int64_t batch;
    uint64_t used; /* the least recently used goes first */
} ls_cached;

typedef struct ls_runs {
    ls_run_settings settings;
    ls_cached cached[LS_CACHED_PLANS];
    int count;
    uint64_t clock;
    ls_state **states; /* by device: variables on devices that are not CPUs; NULL: none yet */
} ls_runs;

ls_status ls_runs_of(ls_graph *graph, ls_runs **out);

/* Changing settings ends the plans made with the old ones. */
void ls_runs_clear(ls_runs *runs);

/* A compiled executor for these fetches and this batch, from the cache or new; it stays the cache's. */
ls_status ls_runs_get(ls_graph *graph, ls_tensor *const *fetches, size_t count, int64_t batch, ls_executor **out);

bool ls_runs_has(ls_runs *runs, ls_tensor *const *fetches, size_t count, int64_t batch);

/* Drops the plan that was used longest ago, for one that is needed now; false: there is none. */
bool ls_runs_give_way(ls_runs *runs);

#endif
