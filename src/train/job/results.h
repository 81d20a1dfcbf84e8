/* Results of a pass, and the history of a fit. */
#ifndef LS_TRAIN_JOB_RESULTS_H
#define LS_TRAIN_JOB_RESULTS_H

#include "train/job/job.h"

ls_status ls_tally_begin(ls_tally *tally, const ls_job *job);
void ls_tally_clear(ls_tally *tally, const ls_job *job);
/* What a batch gave: the loss, those of several outputs, then the sums of each metric; and adding that up. */
size_t ls_results_count(const ls_job *job);
ls_status ls_results_read(const ls_job *job, const ls_function *function, double *values);
void ls_tally_add_values(ls_tally *tally, const ls_job *job, const double *values, int64_t samples);
ls_status ls_tally_add(ls_tally *tally, const ls_job *job, const ls_function *function, int64_t samples);
void ls_tally_results(const ls_tally *tally, const ls_job *job, ls_results *out);
void ls_tally_end(ls_tally *tally);

/* One more epoch; the history is made with the first. */
ls_status ls_history_add(ls_history **history, const ls_results *results, const ls_results *validation);
/* One that goes on; values by epoch, then by name, at most 2 * LS_MAX_RESULTS of these. */
ls_status ls_history_make(const char *const *names, size_t count, const double *values, size_t epochs,
                          ls_history **out);

#endif
