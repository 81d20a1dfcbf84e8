/* Keras's ReduceLROnPlateau and LearningRateScheduler. Rates are floats, as in Keras and in a
 * step. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/numbers.h"
#include "nn/model.h"
#include "nn/parts.h"
#include "train/callback/callback.h"
#include "train/job/job.h"
#include "train/job/step.h"

#define NAME      "reduce_lr_on_plateau"
#define SCHEDULER "learning_rate_scheduler"

static ls_status check_rate_is_free(const char *name, const ls_callback_facts *facts)
{
    const ls_job *job = facts->job;
    if (job->optimizer.options.schedule.kind == LS_SCHEDULE_CONSTANT)
        return LS_OK;
    return ls_fail(
        LS_ERR_INVALID,
        "%s: the optimizer of model \"%s\" has a learning rate schedule; remove the schedule or this callback", name,
        ls_model_name(job->model));
}

/* ---- ReduceLROnPlateau ---- */

/* Saved state; the job saves the rate itself. */
typedef struct numbers {
    double best; /* NAN: none yet */
    int64_t wait, cooldown;
} numbers;

typedef struct plateau {
    ls_reduce_lr_on_plateau_options options;
    ls_callback_facts facts;
    ls_monitor monitor;
    double factor;
    int64_t patience;
    numbers now;
} plateau;

static ls_status reduce(plateau *p, ls_model *model, int64_t epoch)
{
    double old, least = (double)(float)p->options.min_lr;
    LS_TRY(ls_job_rate(p->facts.job, &old));
    old = (double)(float)old;
    if (!(old > least))
        return LS_OK;
    double rate = fmax(old * p->factor, p->options.min_lr);
    LS_TRY(ls_set_learning_rate(model, (double)(float)rate));
    p->now.cooldown = p->options.cooldown;
    p->now.wait = 0;
    if (p->options.verbose && ls_callback_out(&p->facts)) {
        char number[LS_F64_CHARS];
        fprintf(ls_callback_out(&p->facts), "Epoch %" PRId64 ": ReduceLROnPlateau reducing learning rate to %s.\n",
                epoch + 1, ls_format_f64(rate, number));
    }
    return LS_OK;
}

/* Operations in Keras's order. An epoch that was cut may continue later. */
static ls_status on_epoch_end(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    plateau *p = user;
    double current;
    (void)stop;
    if (logs->cut || !ls_monitor_value(&p->monitor, logs, &current))
        return LS_OK;
    if (p->now.cooldown > 0) {
        p->now.cooldown--;
        p->now.wait = 0;
    }
    if (ls_monitor_is_better(&p->monitor, current, p->now.best)) {
        p->now.best = current;
        p->now.wait = 0;
        return LS_OK;
    }
    if (p->now.cooldown > 0 || ++p->now.wait < p->patience)
        return LS_OK;
    return reduce(p, model, logs->epoch);
}

static ls_callback_bytes parts_of(plateau *p)
{
    return (ls_callback_bytes){ .monitor = p->monitor.name, .numbers = &p->now, .number_bytes = sizeof(p->now) };
}

static ls_status save(void *user, void **bytes, size_t *count)
{
    ls_callback_bytes parts = parts_of(user);
    return ls_callback_pack(&parts, bytes, count);
}

static ls_status load(void *user, const void *bytes, size_t count)
{
    ls_callback_bytes parts = parts_of(user);
    return ls_callback_unpack(&parts, NAME, bytes, count);
}

static ls_status check(const plateau *p)
{
    const ls_reduce_lr_on_plateau_options *o = &p->options;
    if (!(p->factor >= 0 && p->factor < 1))
        return ls_fail(LS_ERR_INVALID, NAME ": factor must be at least 0 and below 1, got %g", p->factor);
    if (o->patience < 0 || o->cooldown < 0)
        return ls_fail(LS_ERR_INVALID,
                       NAME ": patience and cooldown must not be negative (got %" PRId64 " and %" PRId64 ")",
                       o->patience, o->cooldown);
    if (!(o->min_lr >= 0 && o->min_lr <= 1e30))
        return ls_fail(LS_ERR_INVALID, NAME ": min_lr must be from 0 to 1e30, got %g", o->min_lr);
    return check_rate_is_free(NAME, &p->facts);
}

static ls_status open_plateau(const ls_callback_spec *spec, const ls_callback_facts *facts, ls_callback *out)
{
    const ls_reduce_lr_on_plateau_options *o = &spec->reduce_lr_on_plateau;
    LS_TRY(ls_builtin_state(NAME, sizeof(plateau), &out->user));
    plateau *p = out->user;
    *p = (plateau){ .options = *o,
                    .facts = *facts,
                    .factor = ls_spec_number(o->factor, 0.1),
                    .patience = o->patience ? o->patience : 10,
                    .now = { .best = NAN } };
    out->on_epoch_end = on_epoch_end;
    out->save = save;
    out->load = load;
    if (!facts->trains)
        return LS_OK;
    LS_TRY(check(p));
    return ls_monitor_open(&p->monitor, NAME, o->monitor, o->mode, ls_spec_number(o->min_delta, 1e-4), facts);
}

const ls_builtin ls_builtin_plateau = { NAME, open_plateau, free, .only_writes = false };

/* ---- LearningRateScheduler ---- */

typedef struct scheduler {
    ls_learning_rate_scheduler_options options;
    ls_callback_facts facts;
} scheduler;

static ls_status set_rate(void *user, ls_model *model, const ls_logs *logs)
{
    const scheduler *s = user;
    double rate;
    LS_TRY(ls_job_rate(s->facts.job, &rate));
    rate = s->options.schedule(s->options.user, logs->epoch, (double)(float)rate);
    LS_TRY(ls_set_learning_rate(model, (double)(float)rate));
    if (s->options.verbose && ls_callback_out(&s->facts)) {
        char number[LS_F64_CHARS];
        fprintf(ls_callback_out(&s->facts), "Epoch %" PRId64 ": LearningRateScheduler setting learning rate to %s.\n",
                logs->epoch + 1, ls_format_f64(rate, number));
    }
    return LS_OK;
}

static ls_status open_scheduler(const ls_callback_spec *spec, const ls_callback_facts *facts, ls_callback *out)
{
    LS_TRY(ls_builtin_state(SCHEDULER, sizeof(scheduler), &out->user));
    *(scheduler *)out->user = (scheduler){ .options = spec->learning_rate_scheduler, .facts = *facts };
    out->on_epoch_begin = set_rate;
    if (!facts->trains)
        return LS_OK;
    if (!spec->learning_rate_scheduler.schedule)
        return ls_fail(LS_ERR_INVALID, SCHEDULER ": needs a function of epoch and rate");
    return check_rate_is_free(SCHEDULER, facts);
}

const ls_builtin ls_builtin_scheduler = { SCHEDULER, open_scheduler, free, .only_writes = false };
