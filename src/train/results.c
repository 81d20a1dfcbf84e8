/* Results of a pass: sums over exactly the samples seen, turned into values; and the history of epochs. */
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "train/training.h"

ls_status ls_tally_begin(ls_tally *t, const ls_compile_options *options)
{
    *t = (ls_tally){ .options = options };
    for (size_t i = 0; i < options->metrics.count; i++) {
        t->sums[i] = calloc(ls_metric_sums_count(&options->metrics.metric[i]) + 1, sizeof(double));
        if (!t->sums[i]) {
            ls_tally_end(t);
            return ls_fail(LS_ERR_MEMORY, "no memory for metrics");
        }
    }
    return LS_OK;
}

ls_status ls_tally_add(ls_tally *t, const ls_function *f, int64_t samples)
{
    double loss;
    LS_TRY(ls_read_scalar(f->loss, &loss));
    t->loss += loss * (t->options->loss.options.reduction == LS_REDUCE_SUM ? 1 : (double)samples);
    t->samples += samples;
    t->steps++;
    for (size_t i = 0; i < t->options->metrics.count; i++) {
        ls_array sums;
        LS_TRY(ls_value(f->sums[i], &sums));
        for (size_t k = 0; k < ls_metric_sums_count(&t->options->metrics.metric[i]); k++)
            t->sums[i][k] += ((const double *)sums.data)[k];
    }
    return LS_OK;
}

void ls_tally_results(const ls_tally *t, ls_results *out)
{
    double weight = t->options->loss.options.reduction == LS_REDUCE_SUM ? (double)t->steps : (double)t->samples;
    *out = (ls_results){ .count = 1, .names = { "loss" }, .samples = t->samples };
    out->values[0] = t->loss / weight;
    for (size_t i = 0; i < t->options->metrics.count; i++) {
        out->names[out->count] = ls_metric_name(&t->options->metrics.metric[i]);
        out->values[out->count++] = ls_metric_result(&t->options->metrics.metric[i], t->sums[i]);
    }
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
    memcpy(row, results->values, results->count * sizeof(*row));
    if (validation)
        memcpy(row + results->count, validation->values, validation->count * sizeof(*row));
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
        return ls_fail(LS_ERR_INVALID, "ls_history_value: a history, a name and a place for the value are needed");
    if (epoch >= history->epochs)
        return ls_fail(LS_ERR_NOT_FOUND, "the history has %zu epochs, there is no epoch %zu", history->epochs, epoch);
    for (size_t i = 0; i < history->count; i++)
        if (strcmp(history->names[i], name) == 0) {
            *out = history->values[epoch * history->count + i];
            return LS_OK;
        }
    return ls_fail(LS_ERR_NOT_FOUND, "the history has no \"%s\"", name);
}

void ls_history_destroy(ls_history *history)
{
    if (!history)
        return;
    free(history->values);
    free(history);
}
