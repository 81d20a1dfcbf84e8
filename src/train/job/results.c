/* Results of a pass, from sums over exactly the samples seen, and the history of epochs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "train/job/job.h"
#include "train/job/results.h"

ls_status ls_tally_begin(ls_tally *t, const ls_job *job)
{
    *t = (ls_tally){ .samples = 0 };
    for (size_t i = 0; i < job->metric_count; i++) {
        t->sums[i] = calloc(ls_metric_sums_count(&job->metrics[i]) + 1, sizeof(double));
        if (!t->sums[i]) {
            ls_tally_end(t);
            return ls_fail(LS_ERR_MEMORY, "no memory for metrics");
        }
    }
    return LS_OK;
}

void ls_tally_clear(ls_tally *t, const ls_job *job)
{
    t->loss = 0;
    memset(t->losses, 0, sizeof(t->losses));
    t->samples = t->steps = 0;
    for (size_t i = 0; i < job->metric_count; i++)
        memset(t->sums[i], 0, ls_metric_sums_count(&job->metrics[i]) * sizeof(double));
}

/* Losses reduced by sum are averaged over steps, others over samples. */
static bool is_sum(const ls_job *job, size_t target)
{
    return job->targets[target].loss.options.reduction == LS_REDUCE_SUM;
}

static bool is_sum_of_sums(const ls_job *job)
{
    bool all = true;
    for (size_t i = 0; i < job->target_count; i++)
        all = all && is_sum(job, i);
    return all;
}

void ls_tally_add_values(ls_tally *t, const ls_job *job, const double *values, int64_t samples)
{
    t->loss += *values++ * (is_sum_of_sums(job) ? 1 : (double)samples);
    for (size_t i = 0; i < job->target_count && job->target_count > 1; i++)
        t->losses[i] += *values++ * (is_sum(job, i) ? 1 : (double)samples);
    t->samples += samples;
    t->steps++;
    for (size_t i = 0; i < job->metric_count; i++)
        for (size_t k = 0; k < ls_metric_sums_count(&job->metrics[i]); k++)
            t->sums[i][k] += *values++;
}

size_t ls_results_count(const ls_job *job)
{
    size_t count = 1 + (job->target_count > 1 ? job->target_count : 0);
    for (size_t i = 0; i < job->metric_count; i++)
        count += ls_metric_sums_count(&job->metrics[i]);
    return count;
}

ls_status ls_results_read(const ls_job *job, const ls_function *f, double *values)
{
    LS_TRY(ls_read_scalar(f->loss, values++));
    for (size_t i = 0; i < job->target_count && job->target_count > 1; i++)
        LS_TRY(ls_read_scalar(f->losses[i], values++));
    for (size_t i = 0; i < job->metric_count; i++) {
        size_t count = ls_metric_sums_count(&job->metrics[i]);
        ls_array sums;
        LS_TRY(ls_value(f->sums[i], &sums));
        memcpy(values, sums.data, count * sizeof(*values));
        values += count;
    }
    return LS_OK;
}

ls_status ls_tally_add(ls_tally *t, const ls_job *job, const ls_function *f, int64_t samples)
{
    double *values = malloc(ls_results_count(job) * sizeof(*values));
    ls_status status = values ? ls_results_read(job, f, values) : ls_fail(LS_ERR_MEMORY, "no memory for results");
    if (status == LS_OK)
        ls_tally_add_values(t, job, values, samples);
    free(values);
    return status;
}

void ls_tally_results(const ls_tally *t, const ls_job *job, ls_results *out)
{
    *out = (ls_results){ .samples = t->samples };
    for (size_t i = 0; i < job->name_count; i++)
        out->names[i] = job->names[i];
    out->values[out->count++] = t->loss / (double)(is_sum_of_sums(job) ? t->steps : t->samples);
    for (size_t i = 0; i < job->target_count && job->target_count > 1; i++)
        out->values[out->count++] = t->losses[i] / (double)(is_sum(job, i) ? t->steps : t->samples);
    for (size_t i = 0; i < job->metric_count; i++)
        out->values[out->count++] = ls_metric_result(&job->metrics[i], t->sums[i]);
}

void ls_tally_end(ls_tally *t)
{
    for (size_t i = 0; i < LS_MAX_METRICS; i++)
        free(t->sums[i]);
}

/* ---- History ---- */

struct ls_history {
    size_t count, epochs, room;
    char names[2 * LS_MAX_RESULTS][80];
    double *values; /* [epochs][count] */
};

ls_status ls_history_add(ls_history **history, const ls_results *results, const ls_results *validation)
{
    ls_history *h = *history;
    size_t count = results->count + (validation ? validation->count : 0);
    if (!h) {
        h = *history = calloc(1, sizeof(*h));
        if (!h)
            return ls_fail(LS_ERR_MEMORY, "no memory for a history");
        h->count = count;
        for (size_t i = 0; i < results->count; i++)
            snprintf(h->names[i], sizeof(h->names[i]), "%s", results->names[i]);
        for (size_t i = results->count; i < count; i++)
            snprintf(h->names[i], sizeof(h->names[i]), "val_%s", validation->names[i - results->count]);
    }
    LS_TRY(ls_grow(&h->values, h->epochs, &h->room, h->count * sizeof(*h->values)));
    double *row = h->values + h->epochs++ * h->count;
    for (size_t i = 0; i < h->count; i++) /* NAN for values that this epoch does not have */
        row[i] = i < results->count ? results->values[i] : NAN;
    for (size_t i = results->count; i < count && i < h->count; i++)
        row[i] = validation->values[i - results->count];
    return LS_OK;
}

ls_status ls_history_make(const char *const *names, size_t count, const double *values, size_t epochs, ls_history **out)
{
    ls_history *h = calloc(1, sizeof(*h));
    if (h)
        h->values = calloc(epochs * count + 1, sizeof(*values));
    if (!h || !h->values || count > 2 * LS_MAX_RESULTS) {
        ls_history_destroy(h);
        return ls_fail(LS_ERR_MEMORY, "no memory for a history of %zu epochs", epochs);
    }
    h->count = count;
    h->epochs = h->room = epochs;
    for (size_t i = 0; i < count; i++)
        snprintf(h->names[i], sizeof(h->names[i]), "%s", names[i]);
    if (epochs)
        memcpy(h->values, values, epochs * count * sizeof(*values));
    *out = h;
    return LS_OK;
}

size_t ls_history_epochs(const ls_history *history)
{
    return history ? history->epochs : 0;
}

size_t ls_history_count(const ls_history *history)
{
    return history ? history->count : 0;
}

const char *ls_history_name(const ls_history *history, size_t index)
{
    return history && index < history->count ? history->names[index] : "";
}

ls_status ls_history_value(const ls_history *history, const char *name, size_t epoch, double *out)
{
    if (!history || !name || !out)
        return ls_fail(LS_ERR_INVALID, "ls_history_value: history, name and out must not be NULL");
    if (epoch >= history->epochs)
        return ls_fail(LS_ERR_NOT_FOUND, "the history has %zu epochs (from 0); it has no epoch %zu", history->epochs,
                       epoch);
    for (size_t i = 0; i < history->count; i++)
        if (strcmp(history->names[i], name) == 0) {
            *out = history->values[epoch * history->count + i];
            return LS_OK;
        }
    return ls_fail(LS_ERR_NOT_FOUND, "the history has no value \"%s\"; ls_history_name lists its values", name);
}

void ls_history_destroy(ls_history *history)
{
    if (!history)
        return;
    free(history->values);
    free(history);
}
