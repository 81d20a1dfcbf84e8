/* Runs of a job's functions over one batch. */
#ifndef LS_TRAIN_JOB_STEP_H
#define LS_TRAIN_JOB_STEP_H

#include "train/job/job.h"

/* One element: rows of arrays in memory, or the arrays themselves (rows NULL), whose samples may have to be made yet.
 */
typedef struct ls_batch_view {
    const ls_element *element;
    const int64_t *rows;
    int64_t samples;
    struct ls_on_demand *on_demand; /* makes samples; NULL: they are there */
    struct ls_dataset *dataset;     /* that the element is of; NULL: not known */
} ls_batch_view;
ls_status ls_function_run(ls_job *job, ls_function *function, const ls_settings *settings, const ls_batch_view *batch,
                          const double *class_weights);

/* What GRADIENTS gave: views that last until it is run again. */
typedef struct ls_step_gradients {
    ls_array *values; /* as ls_halves.passed; free() the array */
    int64_t samples;
} ls_step_gradients;
ls_status ls_job_gradients(ls_job *job, ls_function *function, const ls_settings *settings, const ls_batch_view *batch,
                           const double *class_weights, ls_step_gradients *out);
/* A run that is a part of the next training step, and writes nothing: these tensors hold what came out. */
ls_status ls_job_fetch(ls_job *job, ls_function *function, const ls_settings *settings, const ls_batch_view *batch,
                       const double *class_weights, ls_tensor *const *fetches, size_t count);
ls_status ls_job_apply(ls_job *job, ls_function *function, const ls_settings *settings, const ls_step_gradients *given);

/* Training steps since the model was compiled: batches. */
ls_status ls_job_step(const ls_job *job, int64_t *out);

/* The learning rate of the next step. */
ls_status ls_job_rate(const ls_job *job, double *out);

/* Labels of a batch that are class numbers: reals among them must be whole (labels.c). rows as in ls_batch_view. */
ls_status ls_check_class_labels(const ls_array *labels, const int64_t *rows, int64_t first, int64_t end);

/* Extends the message of a run over the batch that failed with `status`, which is returned: which row of the data has a
 * bad label or a value that is not finite; otherwise advises a smaller learning rate (explain.c). */
ls_status ls_explain_failure(const ls_job *job, const ls_function *function, const ls_batch_view *batch,
                             ls_status status);

/* Whether a signal came, here or to another worker of the cluster: the same on all of them after each run. */
bool ls_job_interrupted(const ls_job *job, const volatile int *stop);

/* All workers begin a fit together; whether a signal came to one of them before. */
ls_status ls_job_begins(const ls_job *job, const volatile int *stop, bool *interrupted);

#endif
