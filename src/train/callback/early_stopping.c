/* Keras's EarlyStopping. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/shared_weights.h"
#include "nn/model.h"
#include "nn/parts.h"
#include "train/callback/callback.h"

#define NAME "early_stopping"

/* Saved state; epochs count from 0. */
typedef struct numbers {
    double best;
    int64_t wait, best_epoch, stopped_epoch, has_weights;
} numbers;

typedef struct early_stopping {
    ls_early_stopping_options options;
    ls_callback_facts facts;
    ls_monitor monitor;
    double baseline; /* NAN: none */
    numbers now;
    char *weights; /* weights of the best epoch; NULL: not kept */
    size_t weight_bytes;
} early_stopping;

/* ---- The best weights ---- */

static ls_variable *variable_of(const ls_model *model, size_t i)
{
    return ls_model_variable(model, i)->attr.variable.variable;
}

static ls_status keep_weights(early_stopping *e, int64_t epoch)
{
    ls_model *model = e->facts.job->model;
    if (!e->weights)
        return LS_OK;
    for (size_t i = 0; i < ls_model_variable_count(model); i++)
        LS_TRY(ls_variable_sync_to_host(variable_of(model, i)));
    for (size_t i = 0, at = 0; i < ls_model_variable_count(model); at += variable_of(model, i++)->bytes)
        memcpy(e->weights + at, variable_of(model, i)->data, variable_of(model, i)->bytes);
    e->now.has_weights = 1;
    e->now.best_epoch = epoch;
    return LS_OK;
}

static ls_status restore_weights(const early_stopping *e)
{
    ls_model *model = e->facts.job->model;
    ls_graph *graph = ls_model_graph(model);
    LS_TRY(ls_writes_begin(graph, graph->variables, graph->variable_count));
    for (size_t i = 0, at = 0; i < ls_model_variable_count(model); at += variable_of(model, i++)->bytes) {
        memcpy(variable_of(model, i)->data, e->weights + at, variable_of(model, i)->bytes);
        ls_variable_written(variable_of(model, i), true);
    }
    ls_writes_end(graph);
    return LS_OK;
}

/* ---- Events ---- */

/* Operations in Keras's order. An epoch that was cut may continue later. */
static ls_status on_epoch_end(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    early_stopping *e = user;
    double current;
    (void)model;
    if (logs->cut || !ls_monitor_value(&e->monitor, logs, &current) || logs->epoch < e->options.start_from_epoch)
        return LS_OK;
    if (!e->now.has_weights) /* the first weights are the best so far */
        LS_TRY(keep_weights(e, logs->epoch));
    e->now.wait++;
    if (ls_monitor_is_better(&e->monitor, current, e->now.best)) {
        e->now.best = current;
        e->now.best_epoch = logs->epoch;
        LS_TRY(keep_weights(e, logs->epoch));
        if (isnan(e->baseline) || ls_monitor_is_better(&e->monitor, current, e->baseline))
            e->now.wait = 0;
        return LS_OK;
    }
    if (e->now.wait >= e->options.patience && logs->epoch > 0) {
        e->now.stopped_epoch = logs->epoch;
        *stop = true;
    }
    return LS_OK;
}

static ls_status on_train_end(void *user, ls_model *model, const ls_logs *logs)
{
    const early_stopping *e = user;
    FILE *out = e->options.verbose ? ls_callback_out(&e->facts) : NULL;
    (void)model;
    if (logs->interrupted)
        return LS_OK;
    if (e->now.stopped_epoch > 0 && out)
        fprintf(out, "Epoch %" PRId64 ": early stopping\n", e->now.stopped_epoch + 1);
    if (!e->weights || !e->now.has_weights)
        return LS_OK;
    if (out)
        fprintf(out, "Restoring model weights from the end of the best epoch: %" PRId64 ".\n", e->now.best_epoch + 1);
    return restore_weights(e);
}

/* ---- State ---- */

static ls_callback_bytes parts_of(const early_stopping *e, numbers *n, char *weights)
{
    return (ls_callback_bytes){ .monitor = e->monitor.name,
                                .numbers = n,
                                .number_bytes = sizeof(*n),
                                .more = weights,
                                .more_bytes = weights ? e->weight_bytes : 0 };
}

static ls_status save(void *user, void **bytes, size_t *count)
{
    early_stopping *e = user;
    ls_callback_bytes parts = parts_of(e, &e->now, e->weights);
    return ls_callback_pack(&parts, bytes, count);
}

static ls_status load(void *user, const void *bytes, size_t count)
{
    early_stopping *e = user;
    ls_callback_bytes parts = parts_of(e, &e->now, e->weights);
    LS_TRY(ls_fail_within(ls_callback_unpack(&parts, NAME, bytes, count), NAME " with restore_best_weights %s",
                          e->weights ? "on" : "off"));
    if (e->now.stopped_epoch > 0 && e->now.wait >= e->options.patience && e->facts.ends)
        *e->facts.ends = true; /* unless patience was increased since */
    return LS_OK;
}

static ls_status check(const ls_early_stopping_options *o)
{
    if (o->patience < 0 || o->start_from_epoch < 0)
        return ls_fail(LS_ERR_INVALID,
                       NAME ": patience and start_from_epoch must not be negative (got %" PRId64 " and %" PRId64 ")",
                       o->patience, o->start_from_epoch);
    if (!isfinite(o->baseline))
        return ls_fail(LS_ERR_INVALID, NAME ": baseline must be finite, got %g", o->baseline);
    return LS_OK;
}

static ls_status open_weights(early_stopping *e)
{
    const ls_model *model = e->facts.job->model;
    for (size_t i = 0; i < ls_model_variable_count(model); i++)
        e->weight_bytes += variable_of(model, i)->bytes;
    e->weights = calloc(1, e->weight_bytes + 1);
    return e->weights
               ? LS_OK
               : ls_fail(LS_ERR_MEMORY,
                         NAME ": no memory to keep the best weights (%zu bytes); set restore_best_weights to false",
                         e->weight_bytes);
}

static ls_status open_state(const ls_callback_spec *spec, const ls_callback_facts *facts, ls_callback *out)
{
    const ls_early_stopping_options *o = &spec->early_stopping;
    LS_TRY(ls_builtin_state(NAME, sizeof(early_stopping), &out->user));
    early_stopping *e = out->user;
    *e = (early_stopping){ .options = *o,
                           .facts = *facts,
                           .baseline = o->baseline == 0 ? (double)NAN : ls_spec_number(o->baseline, 0),
                           .now = { .best = NAN } };
    out->on_epoch_end = on_epoch_end;
    out->on_train_end = on_train_end;
    out->save = save;
    out->load = load;
    if (!facts->trains)
        return LS_OK;
    LS_TRY(check(o));
    LS_TRY(ls_monitor_open(&e->monitor, NAME, o->monitor, o->mode, o->min_delta, facts));
    return o->restore_best_weights ? open_weights(e) : LS_OK;
}

static void close_state(void *user)
{
    free(((early_stopping *)user)->weights);
    free(user);
}

const ls_builtin ls_builtin_early_stopping = { NAME, open_state, close_state, .only_writes = false };
