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
} ls_run_settings;

typedef struct ls_cached {
    ls_executor *executor;
    /* Settings it was compiled with. `lists` owns the memory of their map. */
    ls_run_settings settings;
    int *lists;
    ls_tensor **fetches;
    size_t fetch_count;
    int64_t batch;
    uint64_t used; /* Clock value of the last use; the least recently used plan is dropped first. */
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
    uint64_t warned[LS_WARNED]; /* Hashes of the last warnings about slow plans. */
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

/* Drops the least recently used plan to make room; false: there is none. */
bool ls_runs_give_way(ls_runs *runs);

/* ---- Runs with their own settings (eval.c) ---- */

typedef struct ls_run_request {
    ls_graph *graph;
    const ls_run_settings *settings; /* NULL: the graph's own. */
    const ls_feed *feeds;
    size_t feed_count;
    const int64_t *rows; /* As in ls_eval_rows; NULL: all fed samples. */
    int64_t row_count;
    ls_tensor *const *fetches;
    size_t fetch_count;
    /* The run is part of the next training step and draws that step's random numbers. The run that
     * writes trainable variables counts the step. If false, runs that write no trainable variables
     * use a separate counter. */
    bool of_step;
    /* Produces samples `first` to `end` - 1 of the fed data before the run reads them; in a
     * cluster, those of this worker's lanes. Called again, perhaps with another range, when the run
     * is repeated. NULL: all samples exist already. */
    ls_status (*make)(void *user, int64_t first, int64_t end);
    void *make_user;
    /* In a cluster: two workers compute one lane and compare it (audit.h). */
    bool audit;
    ls_timeline *timeline; /* Records what threads do; NULL: not recorded. */
    /* By device: the run's seconds are added, also on failure; NULL: not wanted. */
    ls_device_seconds *seconds;
} ls_run_request;

/* Facts about a successful run. */
typedef struct ls_run_report {
    int lanes;
    double join_seconds; /* Time of joins, checks and updates, averaged over threads. */
    double moved_bytes;  /* Bytes that joins moved between devices. */
} ls_run_report;

/* Makes one run; `report` may be NULL. */
ls_status ls_run(const ls_run_request *request, ls_run_report *report);

/* Compiles a run with `batch` samples and returns its placement. The cache owns it; valid until the
 * next run. */
ls_status ls_run_placement(ls_graph *graph, const ls_run_settings *settings, ls_tensor *const *fetches, size_t count,
                           int64_t batch, const ls_placement **out);

/* ls_explain_memory with the given settings. */
ls_status ls_run_explain_memory(ls_graph *graph, const ls_run_settings *settings, ls_tensor *const *fetches,
                                size_t count, int64_t batch, bool *fits, char **out);

#endif
