/* Runs of a graph, with settings of their own where the caller has some. */
#ifndef LS_RUN_EVAL_H
#define LS_RUN_EVAL_H

#include "run/runs.h"

typedef struct ls_run_request {
    ls_graph *graph;
    const ls_run_settings *settings; /* NULL: the graph's own. */
    const ls_feed *feeds;
    size_t feed_count;
    const int64_t *rows; /* As in ls_eval_rows; NULL: all fed samples. */
    int64_t row_count;
    ls_tensor *const *fetches;
    size_t fetch_count;
    /* Part of the next training step: draws its random numbers; only a run that writes trainable
     * variables counts the step. If false, other runs have a counter of their own. */
    bool of_step;
    /* Produces samples first .. end - 1 of the fed data before the run reads them: in a cluster,
     * those of this worker's lanes. Called again when the run is repeated. NULL: they exist
     * already. */
    ls_status (*make)(void *user, int64_t first, int64_t end);
    void *make_user;
    /* In a cluster: two workers compute one lane and compare it (audit.h). */
    bool audit;
    ls_timeline *timeline; /* Records what threads do; NULL: not recorded. */
    /* By device: adds the run's seconds, also on failure; may be NULL. */
    ls_device_seconds *seconds;
    ls_profile *profile; /* Adds the times of ops; may be NULL. */
} ls_run_request;

typedef struct ls_run_report {
    int lanes;
    double join_seconds; /* Time of joins, checks and updates, averaged over threads. */
    double moved_bytes;  /* Bytes that joins moved between devices. */
} ls_run_report;

/* Makes one run; `report` may be NULL. */
ls_status ls_run(const ls_run_request *request, ls_run_report *report);

/* Compiles a run and returns its placement, which the cache owns; valid until the next run. */
ls_status ls_run_placement(ls_graph *graph, const ls_run_settings *settings, ls_tensor *const *fetches, size_t count,
                           int64_t batch, const ls_placement **out);

/* ls_explain_memory with the given settings. */
ls_status ls_run_explain_memory(ls_graph *graph, const ls_run_settings *settings, ls_tensor *const *fetches,
                                size_t count, int64_t batch, bool *fits, char **out);

/* Computes a value if the tensor holds none. Not for variables. */
ls_status ls_run_eagerly(ls_tensor *tensor);

#endif
