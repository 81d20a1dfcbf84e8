/* Turns names of losses, optimizers and metrics into the library's specs. */
#include "tool/names.h"

#include <stdlib.h>
#include <string.h>

#include "tool/tool.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

#define NAME(name, KIND)      name,
#define LOSS(name, KIND)      LS_LOSS_##KIND,
#define OPTIMIZER(name, KIND) LS_OPTIMIZER_##KIND,
#define METRIC(name, KIND)    LS_METRIC_##KIND,

static const char *const loss_names[] = { TOOL_LOSSES(NAME) };
static const ls_loss_kind loss_kinds[] = { TOOL_LOSSES(LOSS) };
static const char *const optimizer_names[] = { TOOL_OPTIMIZERS(NAME) };
static const ls_optimizer_kind optimizer_kinds[] = { TOOL_OPTIMIZERS(OPTIMIZER) };
static const char *const metric_names[] = { TOOL_METRICS(NAME) };
static const ls_metric_kind metric_kinds[] = { TOOL_METRICS(METRIC) };

/* ---- Optimizers ---- */

ls_optimizer tool_optimizer(const tool_settings *settings)
{
    return (ls_optimizer){ .kind = optimizer_kinds[settings->optimizer],
                           .options = { .learning_rate = settings->lr,
                                        .momentum = settings->momentum,
                                        .nesterov = settings->nesterov,
                                        .weight_decay = settings->weight_decay,
                                        .exclude_from_weight_decay = settings->exclude_from_weight_decay,
                                        .use_ema = settings->ema > 0,
                                        .ema_momentum = settings->ema,
                                        .clipvalue = settings->clipvalue,
                                        .clipnorm = settings->clipnorm,
                                        .global_clipnorm = settings->global_clipnorm,
                                        .gradient_accumulation_steps = settings->accumulate } };
}

const char *tool_optimizer_name(const tool_settings *settings)
{
    return optimizer_names[settings->optimizer];
}

/* ---- Losses ---- */

ls_loss_kind tool_loss_kind(const tool_settings *settings)
{
    return loss_kinds[settings->loss];
}

const char *tool_loss_name(ls_loss_kind kind)
{
    for (size_t i = 1; i < COUNT(loss_kinds); i++)
        if (loss_kinds[i] == kind)
            return loss_names[i];
    return "no loss";
}

bool tool_has_logits(ls_loss_kind kind)
{
    return kind == LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY || kind == LS_LOSS_CATEGORICAL_CROSSENTROPY ||
           kind == LS_LOSS_BINARY_CROSSENTROPY || kind == LS_LOSS_BINARY_FOCAL_CROSSENTROPY ||
           kind == LS_LOSS_CATEGORICAL_FOCAL_CROSSENTROPY;
}

ls_status tool_class_weights(const char *list, double **out, size_t *count)
{
    size_t room = 1;
    for (const char *at = list; *at; at++)
        room += *at == ',';
    double *weights = calloc(room, sizeof *weights);
    if (!weights)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu class weights", room);
    *out = weights;
    *count = 0;
    for (const char *at = list;; at++) {
        char number[40];
        size_t length = strcspn(at, ",");
        snprintf(number, sizeof number, "%.*s", length < sizeof number ? (int)length : 0, at);
        if (!ls_parse_f64(number, &weights[*count]) || !(weights[*count] >= 0 && weights[*count] <= 1e30))
            return ls_fail(LS_ERR_INVALID, "--class-weights: weight %zu, '%s', is not a number from 0 to 1e30", *count,
                           number);
        ++*count;
        at += length;
        if (*at == '\0')
            return LS_OK;
    }
}

/* ---- Metrics ---- */

/* Losses that are no metrics of their own are metrics by their values. */
static bool find_metric(const char *name, ls_metric *out)
{
    for (size_t i = 0; i < COUNT(metric_names); i++)
        if (strcmp(name, metric_names[i]) == 0) {
            *out = (ls_metric){ .kind = metric_kinds[i] };
            return true;
        }
    for (size_t i = 1; i < COUNT(loss_names); i++)
        if (strcmp(name, loss_names[i]) == 0) {
            *out = (ls_metric){ .kind = LS_METRIC_LOSS, .loss = { .kind = loss_kinds[i] } };
            return true;
        }
    return false;
}

static ls_status unknown_metric(const char *name)
{
    const char *all[COUNT(metric_names) + COUNT(loss_names)];
    size_t count = 0;
    for (size_t i = 0; i < COUNT(metric_names); i++)
        all[count++] = metric_names[i];
    for (size_t i = 1; i < COUNT(loss_names); i++)
        all[count++] = loss_names[i];
    if (ls_suggest_name(name, all, count).text[0] != '\0')
        return ls_fail(LS_ERR_INVALID, "--metrics: unknown metric '%s'%s", name,
                       ls_suggest_name(name, all, count).text);
    return ls_fail(LS_ERR_INVALID, "--metrics: unknown metric '%s'%s, and losses", name,
                   ls_advise_name(name, metric_names, COUNT(metric_names)).text);
}

static ls_status add_metric(const char *name, ls_metrics_list *list)
{
    ls_metric metric;
    if (!find_metric(name, &metric))
        return unknown_metric(name);
    if (list->count == LS_MAX_METRICS)
        return ls_fail(LS_ERR_INVALID, "--metrics: more than %d metrics", LS_MAX_METRICS);
    for (size_t k = 0; k < list->count; k++)
        if (list->metric[k].kind == metric.kind && list->metric[k].loss.kind == metric.loss.kind)
            return ls_fail(LS_ERR_INVALID, "--metrics: %s is given twice", name);
    list->metric[list->count++] = metric;
    return LS_OK;
}

ls_status tool_metrics(const char *names, ls_metrics_list *out)
{
    ls_metrics_list list = { .count = 0 };
    for (const char *at = names; *at != '\0';) {
        char name[64];
        size_t length = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), at);
        LS_TRY(add_metric(name, &list));
        at += length + (at[length] == ',');
    }
    *out = list;
    return LS_OK;
}
