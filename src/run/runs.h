/* What is kept for a graph between runs: its settings and its compiled plans. */
#ifndef LS_RUN_RUNS_H
#define LS_RUN_RUNS_H

#include "lockstep/run.h"
#include "run/executor.h"
#include "run/runtime.h"

#define LS_CACHED_PLANS 16
#define LS_WARNED       4 /* warnings that are remembered */

typedef struct ls_run_settings {
    ls_plan_options plan; /* lanes, the map, and what tests change; batch is each run's */
    ls_mutation mutation;
} ls_run_settings;

typedef struct ls_cached {
    ls_executor *executor;
    ls_run_settings settings; /* that it was made with; the map's lists are its own: */
    int *lists;
    ls_tensor **fetches;
    size_t fetch_count;
    int64_t batch;
    uint64_t used; /* the least recently used goes first */
} ls_cached;

typedef struct ls_runs {
    ls_run_settings settings;
    int *lists; /* of their map; NULL: no strategy was set */
    ls_cached cached[LS_CACHED_PLANS];
    int count;
    uint64_t clock;
    unsigned epoch, split;      /* of the cluster the plans are for */
    uint64_t timelines;         /* made so far */
    ls_state **states;          /* by device: variables on devices that are not CPUs; NULL: none yet */
    uint64_t warned[LS_WARNED]; /* hashes of the last warnings about slow plans */
    unsigned warned_count;
} ls_runs;

ls_status ls_runs_of(ls_graph *graph, ls_runs **out);

/* Drops all plans. */
void ls_runs_clear(ls_runs *runs);

/* Plans are made, kept and found by their fetches, their batch and their settings (NULL: the graph's own). */

/* A compiled executor, from the cache or new; it stays the cache's. */
ls_status ls_runs_get(ls_graph *graph, const ls_run_settings *settings, ls_tensor *const *fetches, size_t count,
                      int64_t batch, ls_executor **out);

bool ls_runs_has(ls_runs *runs, const ls_run_settings *settings, ls_tensor *const *fetches, size_t count,
                 int64_t batch);

/* Drops the plan that was used longest ago, for one that is needed now; false: there is none. */
bool ls_runs_give_way(ls_runs *runs);

/* ---- Runs with settings of their own (eval.c) ---- */

typedef struct ls_run_request {
    ls_graph *graph;
    const ls_run_settings *settings; /* NULL: the graph's own */
    const ls_feed *feeds;
    size_t feed_count;
    const int64_t *rows; /* as in ls_eval_rows; NULL: all that is fed */
    int64_t row_count;
    ls_tensor *const *fetches;
    size_t fetch_count;
    /* The run is a part of the next training step, and draws that step's random numbers. The step is counted by the
     * run that writes trainable variables; without this, runs that write none have a counter of their own. */
    bool of_step;
    /* Makes samples `first` to `end` - 1 of what is fed, before the run reads them: in a cluster those of this worker's
     * lanes; again, and maybe others, when the run is begun again. NULL: all are there. */
    ls_status (*make)(void *user, int64_t first, int64_t end);
    void *make_user;
    bool audit;                 /* of a cluster: a lane is computed twice, and compared (audit.h) */
    ls_timeline *timeline;      /* what workers do is kept there; NULL: nowhere */
    ls_device_seconds *seconds; /* by device: the run's are added, also when it fails; NULL: nobody asks */
} ls_run_request;

/* What is known of a run that succeeded. */
typedef struct ls_run_report {
    int lanes;
    double join_seconds; /* for joins, checks and updates: of the average worker */
    double moved_bytes;  /* between devices, for joins */
} ls_run_report;

/* One run; `report` may be NULL. */
ls_status ls_run(const ls_run_request *request, ls_run_report *report);

/* Makes the plan of a run with that many samples; where its work goes stays the cache's, valid until the next run. */
ls_status ls_run_placement(ls_graph *graph, const ls_run_settings *settings, ls_tensor *const *fetches, size_t count,
                           int64_t batch, const ls_placement **out);

/* ls_explain_memory with settings. */
ls_status ls_run_explain_memory(ls_graph *graph, const ls_run_settings *settings, ls_tensor *const *fetches,
                                size_t count, int64_t batch, bool *fits, char **out);

#endif
