/* Explains why a run failed: searches the batch for a label that is not a class or a value that is
 * not finite, and names its row. Kernels know only the index in the batch. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/status.h"
#include "base/text.h"
#include "data/on_demand.h"
#include "train/job/job.h"
#include "train/job/step.h"

/* A batch with its row numbers, even if the view has none. */
typedef struct searched {
    const ls_batch_view *batch;
    ls_rows *pass; /* owns `rows`; NULL: the view owns them */
    const int64_t *rows;
} searched;

/* Repeats the order of the pass up to this batch. */
static void find_rows(searched *s)
{
    const ls_element *element = s->batch->element;
    int64_t count = 0;
    s->rows = s->batch->rows;
    if (s->rows || !s->batch->dataset || (!s->batch->dataset->origin && !s->batch->dataset->maker) ||
        ls_rows_of_origin(s->batch->dataset, element->epoch, &s->pass) != LS_OK)
        return;
    for (int64_t i = 0; i <= element->number; i++)
        if (ls_rows_next(s->pass, &s->rows, &count) != LS_OK || count == 0)
            s->rows = NULL;
    if (count != s->batch->samples)
        s->rows = NULL;
}

/* "row 17", or "sample 3 of batch 5" */
static void put_sample(ls_text *text, const searched *s, int64_t sample)
{
    if (s->rows)
        ls_text_add(text, "row %" PRId64, s->rows[sample]);
    else
        ls_text_add(text, "sample %" PRId64 " of batch %" PRId64, sample, s->batch->element->number);
}

static bool is_made(const searched *s, int64_t sample)
{
    return !s->batch->on_demand || ls_on_demand_is_made(s->batch->on_demand, sample);
}

static int64_t elements_of_sample(const ls_array *array)
{
    int64_t each = 1;
    for (int i = 1; i < array->shape.rank; i++)
        each *= array->shape.dims[i];
    return each;
}

/* Rows of the view are rows of the array. */
static int64_t first_element(const searched *s, int64_t sample, int64_t each)
{
    return (s->batch->rows ? s->batch->rows[sample] : sample) * each;
}

/* ---- Labels ---- */

static double number_at(const ls_array *array, int64_t i)
{
    switch (array->dtype) {
    case LS_F32:
        return (double)((const float *)array->data)[i];
    case LS_F64:
        return ((const double *)array->data)[i];
    case LS_I32:
        return ((const int32_t *)array->data)[i];
    case LS_I64:
        return (double)((const int64_t *)array->data)[i];
    default:
        return ((const uint8_t *)array->data)[i];
    }
}

/* Returns 0 if the labels are not class numbers. */
static int64_t classes_of(const ls_job *job, const ls_function *f, size_t target)
{
    const ls_target *t = &job->targets[target];
    if (t->loss.kind == LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY) {
        ls_shape shape = ls_model_output_shape(job->model, t->output);
        return shape.rank > 0 ? shape.dims[shape.rank - 1] : 0;
    }
    return f->class_weights ? (int64_t)f->class_count : 0;
}

static bool find_label(const searched *s, const ls_array *labels, int64_t classes, double ignored, ls_text *text)
{
    int64_t each = elements_of_sample(labels);
    for (int64_t i = 0; i < s->batch->samples * each; i++) {
        if (!is_made(s, i / each))
            continue;
        double label = number_at(labels, first_element(s, i / each, each) + i % each);
        if ((label >= 0 && label < (double)classes) || label == ignored)
            continue;
        ls_text_add(text, "label %.17g of ", label);
        put_sample(text, s, i / each);
        ls_text_add(text,
                    " is not a class: there are %" PRId64 " classes, 0 to %" PRId64
                    "; correct the data or the number of classes",
                    classes, classes - 1);
        return true;
    }
    return false;
}

static bool find_labels(const searched *s, const ls_job *job, const ls_function *f, ls_text *text)
{
    for (size_t i = 0; i < job->target_count; i++) {
        int64_t classes = classes_of(job, f, i);
        const ls_array *labels = &s->batch->element->component[(size_t)f->spec.features + i];
        if (classes > 0 && find_label(s, labels, classes, ls_job_ignored(job, i), text))
            return true;
    }
    return false;
}

/* ---- Values that are not finite ---- */

/* "features", "features 1", "labels", "sample weights" */
static void put_component(ls_text *text, const ls_element_spec *spec, int component)
{
    int count = spec->features, at = component;
    const char *name = "features";
    if (at >= count) {
        at -= count;
        count = spec->labels;
        name = "labels";
    }
    if (at >= count) {
        at -= count;
        count = spec->weights;
        name = "sample weights";
    }
    ls_text_put(text, name);
    if (count > 1)
        ls_text_add(text, " %d", at);
}

/* ", column 3", or ", element [3, 0, 1]" in a sample */
static void put_column(ls_text *text, const ls_shape *shape, int64_t i)
{
    int64_t index[LS_MAX_RANK] = { 0 };
    for (int axis = shape->rank - 1; axis > 0; axis--) {
        index[axis] = i % shape->dims[axis];
        i /= shape->dims[axis];
    }
    if (shape->rank == 2)
        ls_text_add(text, ", column %" PRId64, index[1]);
    for (int axis = 1; axis < shape->rank && shape->rank > 2; axis++)
        ls_text_add(text, "%s%" PRId64 "%s", axis == 1 ? ", element [" : ", ", index[axis],
                    axis == shape->rank - 1 ? "]" : "");
}

static bool find_in(const searched *s, const ls_function *f, int component, ls_text *text)
{
    const ls_array *array = &s->batch->element->component[component];
    int64_t each = elements_of_sample(array);
    if (array->dtype != LS_F32 && array->dtype != LS_F64)
        return false;
    for (int64_t i = 0; i < s->batch->samples * each; i++) {
        if (!is_made(s, i / each))
            continue;
        double value = number_at(array, first_element(s, i / each, each) + i % each);
        if (isfinite(value))
            continue;
        ls_text_put(text, "the data contains ");
        ls_text_put(text, isnan(value) ? "NaN" : value > 0 ? "inf" : "-inf");
        ls_text_put(text, ": ");
        put_component(text, &f->spec, component);
        ls_text_put(text, ", ");
        put_sample(text, s, i / each);
        put_column(text, &array->shape, i % each);
        ls_text_put(text, "; remove or replace such values");
        return true;
    }
    return false;
}

static bool find_not_finite(const searched *s, const ls_function *f, ls_text *text)
{
    for (int i = 0; i < s->batch->element->count && f->inputs[i]; i++)
        if (find_in(s, f, i, text))
            return true;
    return false;
}

/* ---- Public function ---- */

ls_status ls_explain_failure(const ls_job *job, const ls_function *f, const ls_batch_view *batch, ls_status status)
{
    if (status != LS_ERR_DATA && status != LS_ERR_NOT_FINITE)
        return status;
    char before[LS_ERROR_BYTES];
    ls_text text = { 0 };
    double rate = 0;
    searched s = { .batch = batch };
    snprintf(before, sizeof before, "%s", ls_last_error());
    find_rows(&s);
    if (status == LS_ERR_DATA && f->kind != LS_FUNCTION_PREDICT && find_labels(&s, job, f, &text))
        ls_fail(status, "%s", ls_text_get(&text));
    else if (status == LS_ERR_NOT_FINITE && find_not_finite(&s, f, &text))
        ls_fail(status, "%s; %s", before, ls_text_get(&text));
    else if (status == LS_ERR_NOT_FINITE && f->kind == LS_FUNCTION_TRAIN && ls_job_rate(job, &rate) == LS_OK)
        ls_fail(status, "%s; the data of this step is finite: try a smaller learning rate than %g", before, rate);
    else
        ls_fail(status, "%s", before);
    ls_rows_destroy(s.pass);
    ls_text_free(&text);
    return status;
}
