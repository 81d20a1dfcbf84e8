/* Results of a pass, and the history of a fit. */
#ifndef LS_TRAIN_JOB_RESULTS_H
#define LS_TRAIN_JOB_RESULTS_H

#include "train/job/job.h"

ls_status ls_tally_begin(ls_tally *tally, const ls_job *job);
void ls_tally_clear(ls_tally *tally, const ls_job *job);
/* Values of a batch: the loss; with several outputs, the loss of each; the sums of each metric. */
size_t ls_results_count(const ls_job *job);
ls_status ls_results_read(const ls_job *job, const ls_function *function, double *values);
void ls_tally_add_values(ls_tally *tally, const ls_job *job, const double *values, int64_t samples);
ls_status ls_tally_add(ls_tally *tally, const ls_job *job, const ls_function *function, int64_t samples);
void ls_tally_results(const ls_tally *tally, const ls_job *job, ls_results *out);
void ls_tally_end(ls_tally *tally);

/* Appends an epoch; creates the history with the first. */
ls_status ls_history_add(ls_history **history, const ls_results *results, const ls_results *validation);
/* Makes a history to append to. `values` is ordered by epoch, then by name; at most 2 *
 * LS_MAX_RESULTS names. */
ls_status ls_history_make(const char *const *names, size_t count, const double *values, size_t epochs,
                          ls_history **out);

#endif
