/* Runs the functions of a job on one batch. */
#ifndef LS_TRAIN_JOB_STEP_H
#define LS_TRAIN_JOB_STEP_H

#include "train/job/job.h"

/* Rows of arrays in memory, or the arrays themselves (`rows` is NULL). */
typedef struct ls_batch_view {
    const ls_element *element;
    const int64_t *rows;
    int64_t samples;
    struct ls_on_demand *on_demand; /* creates samples when they are needed; NULL: they exist */
    struct ls_dataset *dataset;     /* dataset of the element; NULL: unknown */
} ls_batch_view;
ls_status ls_function_run(ls_job *job, ls_function *function, const ls_settings *settings, const ls_batch_view *batch,
                          const double *class_weights);

/* Runs part of the next training step without writing anything; the fetched tensors hold the
 * results. */
ls_status ls_job_fetch(ls_job *job, ls_function *function, const ls_settings *settings, const ls_batch_view *batch,
                       const double *class_weights, ls_tensor *const *fetches, size_t count);

/* Training steps since the model was compiled. */
ls_status ls_job_step(const ls_job *job, int64_t *out);

/* Learning rate of the next step. */
ls_status ls_job_rate(const ls_job *job, double *out);

/* Checks that floating-point labels are class numbers: whole and not negative (labels.c).
 * `ignored`: another number that is allowed; NAN: none. */
ls_status ls_check_class_labels(const ls_array *labels, double ignored, const int64_t *rows, int64_t first,
                                int64_t end);

/* The class that the loss of a target ignores; NAN: none. */
double ls_job_ignored(const ls_job *job, size_t target);

/* Adds to the error message of a failed run: names the row of the data with a bad label or a value
 * that is not finite, else suggests a smaller learning rate (explain.c). Returns `status`. */
ls_status ls_explain_failure(const ls_job *job, const ls_function *function, const ls_batch_view *batch,
                             ls_status status);

/* Whether any worker received a signal. After a run, all workers get the same answer. */
bool ls_job_interrupted(const ls_job *job, const volatile int *stop);

/* Synchronizes all workers. *interrupted: one of them received a signal before. */
ls_status ls_job_begins(const ls_job *job, const volatile int *stop, bool *interrupted);

#endif
