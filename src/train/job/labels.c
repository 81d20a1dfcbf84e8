/* Checks class labels of a floating-point type before a step: it casts them to integers, and NaN
 * would become class 0. */
#include <inttypes.h>
#include <math.h>

#include "base/status.h"
#include "nn/parts.h"
#include "train/job/job.h"
#include "train/job/step.h"

static double value_at(const ls_array *array, int64_t i)
{
    return array->dtype == LS_F32 ? (double)((const float *)array->data)[i] : ((const double *)array->data)[i];
}

double ls_job_ignored(const ls_job *job, size_t target)
{
    double ignored = job->targets[target].loss.options.ignore_class;
    return ignored == 0 ? NAN : ls_spec_number(ignored, 0);
}

ls_status ls_check_class_labels(const ls_array *labels, double ignored, const int64_t *rows, int64_t first, int64_t end)
{
    int64_t each = 1;
    if (labels->dtype != LS_F32 && labels->dtype != LS_F64)
        return LS_OK;
    for (int i = 1; i < labels->shape.rank; i++)
        each *= labels->shape.dims[i];
    for (int64_t i = first * each; i < end * each; i++) {
        int64_t row = rows ? rows[i / each] : i / each;
        double value = value_at(labels, row * each + i % each);
        if (value != ignored && !(value >= 0 && isfinite(value) && value == floor(value)))
            return ls_fail(LS_ERR_DATA,
                           "label %g of %s %" PRId64 " is not a class; labels must be whole numbers from 0", value,
                           rows ? "row" : "sample", row);
    }
    return LS_OK;
}
