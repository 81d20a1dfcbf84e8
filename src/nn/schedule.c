/* Schedules: the learning rate at a step. The formulas are Keras's, in double precision. */
#include "base/fpmode.h"
#include "base/math.h"
#include "base/text.h"
#include "nn/parts.h"

#include <math.h>

#define PI 3.14159265358979323846

ls_schedule ls_exponential_decay(double rate, int64_t steps, double decay, bool staircase)
{
    return (ls_schedule){
        .kind = LS_SCHEDULE_EXPONENTIAL, .rate = rate, .steps = steps, .decay = decay, .staircase = staircase
    };
}

ls_schedule ls_cosine_decay(double rate, int64_t steps, double alpha, double warmup_from, int64_t warmup_steps)
{
    return (ls_schedule){ .kind = LS_SCHEDULE_COSINE,
                          .rate = rate,
                          .steps = steps,
                          .alpha = alpha,
                          .from = warmup_from,
                          .warmup = warmup_steps };
}

/* Stores an invalid count unchanged, so that ls_schedule_rate can report it. */
static ls_schedule table(ls_schedule_kind kind, const int64_t *boundaries, int boundary_count, const double *values,
                         int count)
{
    ls_schedule s = { .kind = kind, .count = boundaries && values ? count : 0 };
    for (int i = 0; i < s.count && i < LS_SCHEDULE_POINTS; i++)
        s.values[i] = values[i];
    for (int i = 0; s.count && i < boundary_count && i < LS_SCHEDULE_POINTS; i++)
        s.boundaries[i] = boundaries[i];
    return s;
}

ls_schedule ls_piecewise_decay(const int64_t *boundaries, const double *values, int values_count)
{
    return table(LS_SCHEDULE_PIECEWISE, boundaries, values_count - 1, values, values_count);
}

ls_schedule ls_rates_by_batch_size(const int64_t *batch_sizes, const double *rates, int count)
{
    LS_OWN_FP_MODE;
    return table(LS_SCHEDULE_BY_BATCH, batch_sizes, count, rates, count);
}

/* ---- The rate of a step ---- */

static ls_status exponential(const ls_schedule *s, double step, double *out)
{
    if (s->steps < 1)
        return ls_fail(LS_ERR_INVALID, "exponential decay over %lld steps; it must have at least 1",
                       (long long)s->steps);
    double exponent = step / (double)s->steps;
    *out = s->rate * ls_pow(s->decay, s->staircase ? floor(exponent) : exponent);
    return LS_OK;
}

static ls_status cosine(const ls_schedule *s, double step, double *out)
{
    if (s->steps < 1 || s->warmup < 0)
        return ls_fail(LS_ERR_INVALID,
                       "cosine decay over %lld steps after %lld of warm-up; they must be at least 1 and 0",
                       (long long)s->steps, (long long)s->warmup);
    double warmup = (double)s->warmup, steps = (double)s->steps;
    if (step < warmup) {
        *out = (s->rate - s->from) * (step / warmup) + s->from;
        return LS_OK;
    }
    double done = step - warmup < steps ? (step - warmup) / steps : 1;
    *out = s->rate * ((1 - s->alpha) * (0.5 * (1 + ls_cos(PI * done))) + s->alpha);
    return LS_OK;
}

static ls_status check_table(const ls_schedule *s, const char *what, int least)
{
    if (s->count < least || s->count > LS_SCHEDULE_POINTS)
        return ls_fail(LS_ERR_INVALID, "%s of %d rates; it can have %d to %d", what, s->count, least,
                       LS_SCHEDULE_POINTS);
    return LS_OK;
}

static ls_status piecewise(const ls_schedule *s, int64_t step, double *out)
{
    LS_TRY(check_table(s, "a piecewise schedule", 1));
    for (int i = 0; i + 2 < s->count; i++)
        if (s->boundaries[i] >= s->boundaries[i + 1])
            return ls_fail(LS_ERR_INVALID, "the boundaries of a piecewise schedule must grow: %lld is followed by %lld",
                           (long long)s->boundaries[i], (long long)s->boundaries[i + 1]);
    int i = 0;
    while (i + 1 < s->count && step > s->boundaries[i])
        i++;
    *out = s->values[i];
    return LS_OK;
}

static ls_status by_batch(const ls_schedule *s, int64_t batch_size, double *out)
{
    LS_TRY(check_table(s, "a table by batch size", 1));
    for (int i = 0; i < s->count; i++)
        if (s->boundaries[i] == batch_size) {
            *out = s->values[i];
            return LS_OK;
        }
    ls_text known = { 0 };
    for (int i = 0; i < s->count; i++)
        ls_text_add(&known, "%s%lld", i ? ", " : "", (long long)s->boundaries[i]);
    ls_status status = ls_fail(LS_ERR_NOT_FOUND, "there is no learning rate for batch size %lld; there is one for %s",
                               (long long)batch_size, ls_text_get(&known));
    ls_text_free(&known);
    return status;
}

ls_status ls_schedule_rate(const ls_schedule *schedule, int64_t step, int64_t batch_size, double *out)
{
    LS_OWN_FP_MODE;
    double rate = 0;
    if (!schedule || !out)
        return ls_fail(LS_ERR_INVALID, "ls_schedule_rate: the schedule or the rate pointer (out) is NULL");
    if (step < 0)
        return ls_fail(LS_ERR_INVALID, "ls_schedule_rate: the step is %lld; it must be at least 0", (long long)step);
    switch (schedule->kind) {
    case LS_SCHEDULE_CONSTANT:
        rate = schedule->rate;
        break;
    case LS_SCHEDULE_EXPONENTIAL:
        LS_TRY(exponential(schedule, (double)step, &rate));
        break;
    case LS_SCHEDULE_COSINE:
        LS_TRY(cosine(schedule, (double)step, &rate));
        break;
    case LS_SCHEDULE_PIECEWISE:
        LS_TRY(piecewise(schedule, step, &rate));
        break;
    case LS_SCHEDULE_BY_BATCH:
        LS_TRY(by_batch(schedule, batch_size, &rate));
        break;
    default:
        return ls_fail(LS_ERR_INVALID, "there is no schedule number %d; use a function such as ls_cosine_decay",
                       (int)schedule->kind);
    }
    if (!(rate >= 0 && rate <= 1e30))
        return ls_fail(LS_ERR_INVALID, "the schedule gives the learning rate %g at step %lld", rate, (long long)step);
    *out = rate;
    return LS_OK;
}
