/* The callbacks of one call. */
#include "train/callback/callback.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"
#include "lockstep/cluster.h"
#include "nn/model.h"
#include "run/peers.h"
#include "train/job/step.h"

/* fit checks whether the callback is in the list. */
static ls_status open_nothing(const ls_callback_spec *spec, const ls_callback_facts *facts, ls_callback *out)
{
    (void)spec, (void)facts, (void)out;
    return LS_OK;
}

static const ls_builtin terminate_on_nan = { "terminate_on_nan", open_nothing, free, .only_writes = false };

static const ls_builtin *const builtins[] = {
    [LS_CALLBACK_FUNCTIONS] = NULL,
    [LS_CALLBACK_EARLY_STOPPING] = &ls_builtin_early_stopping,
    [LS_CALLBACK_CSV_LOGGER] = &ls_builtin_csv_logger,
    [LS_CALLBACK_TENSORBOARD] = &ls_builtin_tensorboard,
    [LS_CALLBACK_MODEL_CHECKPOINT] = &ls_builtin_model_checkpoint,
    [LS_CALLBACK_REDUCE_LR_ON_PLATEAU] = &ls_builtin_plateau,
    [LS_CALLBACK_LEARNING_RATE_SCHEDULER] = &ls_builtin_scheduler,
    [LS_CALLBACK_TERMINATE_ON_NAN] = &terminate_on_nan,
};
#define KINDS (sizeof(builtins) / sizeof(*builtins))

/* ---- Opening and closing ---- */

ls_status ls_builtin_state(const char *name, size_t bytes, void **out)
{
    *out = calloc(1, bytes);
    return *out ? LS_OK : ls_fail(LS_ERR_MEMORY, "%s: no memory for %zu bytes", name, bytes);
}

static ls_status open_one(ls_callback_list *list, const ls_callback *spec, ls_callback *out)
{
    *out = *spec;
    if (spec->kind == LS_CALLBACK_FUNCTIONS)
        return LS_OK;
    if ((size_t)spec->kind >= KINDS)
        return ls_fail(LS_ERR_INVALID, "unknown callback kind %d", (int)spec->kind);
    *out = (ls_callback){ .kind = spec->kind, .of = spec->of };
    return builtins[spec->kind]->open(&spec->of, &list->facts, out);
}

ls_status ls_callbacks_open(ls_callback_list *list, const ls_callback *specs, size_t count,
                            const ls_callback_facts *facts)
{
    *list = (ls_callback_list){ .facts = *facts };
    if (count == 0)
        return LS_OK;
    if (!specs)
        return ls_fail(LS_ERR_INVALID, "%s: callbacks is NULL but callback_count is %zu", facts->call, count);
    list->all = calloc(count, sizeof(*list->all));
    if (!list->all)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu callbacks", count);
    for (size_t i = 0; i < count; i++) {
        ls_status status = open_one(list, &specs[i], &list->all[i]);
        list->count++; /* one that failed may have a state to free */
        if (status != LS_OK)
            return ls_fail_within(status, "%s: callback %zu", facts->call, i);
    }
    return LS_OK;
}

ls_status ls_callbacks_close(ls_callback_list *list, ls_status status)
{
    ls_error failure;
    ls_error_keep(&failure, status);
    for (size_t i = 0; i < list->count; i++)
        if (list->all[i].kind != LS_CALLBACK_FUNCTIONS && (size_t)list->all[i].kind < KINDS && list->all[i].user)
            builtins[list->all[i].kind]->close(list->all[i].user);
    free(list->all);
    *list = (ls_callback_list){ .count = 0 };
    return ls_error_give(&failure);
}

void ls_callbacks_take_over(ls_callback_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const ls_callback *c = &list->all[i];
        if (c->kind != LS_CALLBACK_FUNCTIONS && builtins[c->kind]->take_over && c->user)
            builtins[c->kind]->take_over(c->user);
    }
}

static bool wants_gradients(const ls_callback *c, int64_t epoch)
{
    const ls_builtin *builtin = builtins[c->kind];
    return builtin && builtin->wants_gradients && builtin->wants_gradients(c->user, epoch);
}

bool ls_callbacks_want_gradients(const ls_callback_list *list, int64_t epoch)
{
    for (size_t i = 0; i < list->count; i++)
        if (wants_gradients(&list->all[i], epoch))
            return true;
    return false;
}

ls_status ls_callbacks_gradients(ls_callback_list *list, int64_t epoch, const ls_step_nodes *step)
{
    for (size_t i = 0; i < list->count; i++)
        if (wants_gradients(&list->all[i], epoch))
            LS_TRY(builtins[list->all[i].kind]->on_gradients(list->all[i].user, epoch, step));
    return LS_OK;
}

const char *ls_callback_name(const ls_callback *callback)
{
    return builtins[callback->kind] ? builtins[callback->kind]->name : "functions";
}

bool ls_callback_may_differ(const char *name)
{
    for (size_t i = 0; i < KINDS; i++) {
        size_t length = builtins[i] ? strlen(builtins[i]->name) : 0;
        if (length && strncmp(name, builtins[i]->name, length) == 0 && name[length] == '/')
            return builtins[i]->only_writes;
    }
    return false;
}

bool ls_callbacks_have(const ls_callback_list *list, ls_callback_kind kind)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->all[i].kind == kind)
            return true;
    return false;
}

ls_logger *ls_callback_log(const ls_callback_facts *facts)
{
    return &ls_model_graph(facts->job->model)->context->log;
}

bool ls_callback_is_quiet(const ls_callback_facts *facts)
{
    return !ls_is_chief(ls_model_graph(facts->job->model)->context);
}

FILE *ls_callback_out(const ls_callback_facts *facts)
{
    return ls_callback_is_quiet(facts) ? NULL : facts->out;
}

void ls_callback_warn(const ls_callback_facts *facts, const char *name, const char *path)
{
    ls_log_write(ls_callback_log(facts), LS_LOG_WARNING,
                 "%s: cannot write '%s': %s; training continues without this file", name, path, ls_last_error());
}

void ls_put_python_f64(ls_text *text, double value)
{
    char number[LS_F64_CHARS];
    ls_format_f64(value, number);
    ls_text_put(text, number);
    if (number[strspn(number, "-0123456789")] == '\0')
        ls_text_put(text, ".0");
}

/* ---- Event content ---- */

typedef struct named_logs {
    ls_logs logs;
    const char *names[2 * LS_MAX_RESULTS + 1];
    double values[2 * LS_MAX_RESULTS + 1];
    char val_names[LS_MAX_RESULTS][80];
} named_logs;

static void add_value(named_logs *l, const char *name, double value)
{
    l->names[l->logs.count] = name;
    l->values[l->logs.count++] = value;
}

static void fill_logs(named_logs *l, const ls_callback_event *t)
{
    l->logs = (ls_logs){ .names = l->names,
                         .values = l->values,
                         .epoch = t->epoch,
                         .step = t->step,
                         .batch = t->batch,
                         .samples = t->results ? t->results->samples : 0,
                         .cut = t->cut,
                         .interrupted = t->interrupted };
    for (size_t i = 0; t->results && i < t->results->count; i++)
        add_value(l, t->results->names[i], t->results->values[i]);
    for (size_t i = 0; t->validation && i < t->validation->count; i++) {
        snprintf(l->val_names[i], sizeof(l->val_names[i]), "val_%s", t->validation->names[i]);
        add_value(l, l->val_names[i], t->validation->values[i]);
    }
}

/* As in Keras, a callback that sets the rate adds it to the logs at the end of an epoch, for itself
 * and for those after it. */
static ls_status add_rate(const ls_callback_list *list, const ls_callback *c, named_logs *l)
{
    double rate;
    bool sets = c->kind == LS_CALLBACK_REDUCE_LR_ON_PLATEAU || c->kind == LS_CALLBACK_LEARNING_RATE_SCHEDULER;
    if (!sets || (l->logs.count > 0 && strcmp(l->names[l->logs.count - 1], "learning_rate") == 0))
        return LS_OK;
    LS_TRY(ls_job_rate(list->facts.job, &rate));
    add_value(l, "learning_rate", (double)(float)rate);
    return LS_OK;
}

/* ---- Calling ---- */

static const char *const moments[] = {
    [LS_TRAIN_BEGIN] = "on_train_begin",
    [LS_EPOCH_BEGIN] = "on_epoch_begin",
    [LS_BATCH_BEGIN] = "on_batch_begin",
    [LS_BATCH_END] = "on_batch_end",
    [LS_EPOCH_END] = "on_epoch_end",
    [LS_TRAIN_END] = "on_train_end",
    [LS_TEST_BEGIN] = "on_test_begin",
    [LS_TEST_BATCH_BEGIN] = "on_test_batch_begin",
    [LS_TEST_BATCH_END] = "on_test_batch_end",
    [LS_TEST_END] = "on_test_end",
    [LS_PREDICT_BEGIN] = "on_predict_begin",
    [LS_PREDICT_BATCH_BEGIN] = "on_predict_batch_begin",
    [LS_PREDICT_BATCH_END] = "on_predict_batch_end",
    [LS_PREDICT_END] = "on_predict_end",
};

typedef ls_status (*plain_function)(void *user, ls_model *model, const ls_logs *logs);
typedef ls_status (*stopping_function)(void *user, ls_model *model, const ls_logs *logs, bool *stop);

/* For events that cannot stop training. */
static plain_function function_of(const ls_callback *c, ls_moment when)
{
    const plain_function functions[] = {
        [LS_EPOCH_BEGIN] = c->on_epoch_begin,
        [LS_BATCH_BEGIN] = c->on_batch_begin,
        [LS_TRAIN_END] = c->on_train_end,
        [LS_TEST_BEGIN] = c->on_test_begin,
        [LS_TEST_BATCH_BEGIN] = c->on_test_batch_begin,
        [LS_TEST_BATCH_END] = c->on_test_batch_end,
        [LS_TEST_END] = c->on_test_end,
        [LS_PREDICT_BEGIN] = c->on_predict_begin,
        [LS_PREDICT_BATCH_BEGIN] = c->on_predict_batch_begin,
        [LS_PREDICT_BATCH_END] = c->on_predict_batch_end,
        [LS_PREDICT_END] = c->on_predict_end,
    };
    return functions[when];
}

static ls_status call_one(const ls_callback *c, ls_model *model, ls_moment when, const ls_logs *logs, bool *stop)
{
    if (when == LS_TRAIN_BEGIN)
        return c->on_train_begin ? c->on_train_begin(c->user, model) : LS_OK;
    if (when == LS_BATCH_END || when == LS_EPOCH_END) {
        stopping_function function = when == LS_BATCH_END ? c->on_batch_end : c->on_epoch_end;
        return function ? function(c->user, model, logs, stop) : LS_OK;
    }
    plain_function function = function_of(c, when);
    return function ? function(c->user, model, logs) : LS_OK;
}

ls_status ls_callbacks_call(ls_callback_list *list, ls_moment when, const ls_callback_event *event, bool *stop)
{
    named_logs l;
    if (!list || list->count == 0)
        return LS_OK;
    fill_logs(&l, event);
    bool deposed = ls_peers_is_deposed(ls_model_graph(list->facts.job->model)->context->peers);
    for (size_t i = 0; i < list->count; i++) {
        const ls_builtin *builtin = builtins[list->all[i].kind];
        bool stops = false;
        if (deposed && builtin && builtin->only_writes)
            continue;
        if (when == LS_EPOCH_END)
            LS_TRY(add_rate(list, &list->all[i], &l));
        ls_clear_error(); /* a message left here is the callback's */
        ls_status status = call_one(&list->all[i], list->facts.job->model, when, &l.logs, &stops);
        if (status != LS_OK) /* keeps the callback's status and message */
            return ls_fail_within(status, "callback %zu, %s in epoch %" PRId64 ", step %" PRId64, i, moments[when],
                                  event->epoch + 1, event->step);
        if (stops && stop)
            *stop = true;
    }
    return LS_OK;
}
