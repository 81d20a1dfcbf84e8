/* Metrics with sums for each class or output: R2, F scores, IoU and the confusion matrix. */
#ifndef LS_NN_METRIC_CLASSES_H
#define LS_NN_METRIC_CLASSES_H

#include "graph/node.h"
#include "lockstep/nn.h"

/* Binary IoU: 2; else num_classes. */
int64_t ls_class_count(const ls_metric *metric);

/* As ls_metric_sums_count, ls_metric_sums and ls_metric_result, for metrics with num_classes set.
 * weights: [N] or a scalar, f64, or NULL. */
size_t ls_class_sums_count(const ls_metric *metric);
ls_tensor *ls_class_sums(const ls_metric *metric, const char *name, ls_tensor *targets, ls_tensor *predictions,
                         ls_tensor *weights);
double ls_class_result(const ls_metric *metric, const double *sums);
/* Sets out[ls_class_count] to the value of each class. */
void ls_class_values(const ls_metric *metric, const double *sums, double *out);

#endif
