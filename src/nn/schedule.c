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

ls_schedule ls_polynomial_decay(double rate, int64_t steps, double end_rate, double power, bool cycle)
{
    return (ls_schedule){
        .kind = LS_SCHEDULE_POLYNOMIAL, .rate = rate, .steps = steps, .end = end_rate, .power = power, .cycle = cycle
    };
}

ls_schedule ls_inverse_time_decay(double rate, int64_t steps, double decay, bool staircase)
{
    return (ls_schedule){
        .kind = LS_SCHEDULE_INVERSE_TIME, .rate = rate, .steps = steps, .decay = decay, .staircase = staircase
    };
}

ls_schedule ls_cosine_decay_restarts(double rate, int64_t first_steps, double t_mul, double m_mul, double alpha)
{
    return (ls_schedule){ .kind = LS_SCHEDULE_COSINE_RESTARTS,
                          .rate = rate,
                          .steps = first_steps,
                          .t_mul = t_mul,
                          .m_mul = m_mul,
                          .alpha = alpha };
}

ls_schedule ls_one_cycle(double max_rate, int64_t steps, double pct_start, double div_factor, double final_div_factor,
                         bool linear, bool three_phase)
{
    return (ls_schedule){ .kind = LS_SCHEDULE_ONE_CYCLE,
                          .rate = max_rate,
                          .steps = steps,
                          .pct_start = pct_start,
                          .div_factor = div_factor,
                          .final_div_factor = final_div_factor,
                          .linear = linear,
                          .three_phase = three_phase };
}

/* ---- The rate of a step ---- */

static ls_status check_steps(const ls_schedule *s, const char *what)
{
    if (s->steps >= 1)
        return LS_OK;
    return ls_fail(LS_ERR_INVALID, "%s over %lld steps; it must have at least 1", what, (long long)s->steps);
}

static ls_status exponential(const ls_schedule *s, double step, double *out)
{
    LS_TRY(check_steps(s, "exponential decay"));
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

static ls_status polynomial(const ls_schedule *s, double step, double *out)
{
    LS_TRY(check_steps(s, "polynomial decay"));
    double steps = (double)s->steps;
    if (s->cycle)
        steps *= step == 0 ? 1 : ceil(step / steps);
    double left = step < steps ? 1 - step / steps : 0;
    if (left == 0 && s->power == 0)
        *out = s->rate;
    else
        *out = (s->rate - s->end) * (left == 0 ? 0 : ls_pow(left, s->power)) + s->end;
    return LS_OK;
}

static ls_status inverse_time(const ls_schedule *s, double step, double *out)
{
    LS_TRY(check_steps(s, "inverse time decay"));
    double done = step / (double)s->steps;
    *out = s->rate / (1 + s->decay * (s->staircase ? floor(done) : done));
    return LS_OK;
}

/* Walks over the periods: a logarithm could end on the wrong side of a restart. */
static ls_status restarts(const ls_schedule *s, double step, double *out)
{
    LS_TRY(check_steps(s, "cosine decay with restarts"));
    if (!(s->t_mul >= 1 && s->t_mul <= 1e6 && s->m_mul >= 0 && s->m_mul <= 1e6))
        return ls_fail(LS_ERR_INVALID,
                       "cosine decay with restarts: t_mul is %g and m_mul %g; they must be at least 1 and 0, and at "
                       "most 1e6",
                       s->t_mul, s->m_mul);
    double period = (double)s->steps, peak = 1;
    if (s->t_mul == 1) {
        double done = floor(step / period);
        peak = ls_pow(s->m_mul, done);
        step -= done * period;
    } else {
        for (; step >= period; period *= s->t_mul, peak *= s->m_mul)
            step -= period;
    }
    *out = s->rate * ((1 - s->alpha) * (0.5 * peak * (1 + ls_cos(PI * (step / period)))) + s->alpha);
    return LS_OK;
}

static double anneal(const ls_schedule *s, double from, double to, double part)
{
    return s->linear ? from + (to - from) * part : to + (from - to) / 2 * (1 + ls_cos(PI * part));
}

static ls_status one_cycle(const ls_schedule *s, double step, double *out)
{
    LS_TRY(check_steps(s, "a one-cycle schedule"));
    double rising = ls_spec_number(s->pct_start, 0.3), div = ls_spec_number(s->div_factor, 25);
    double final_div = ls_spec_number(s->final_div_factor, 1e4), steps = (double)s->steps;
    if (!(rising >= 0 && rising <= (s->three_phase ? 0.5 : 1) && div > 0 && final_div > 0))
        return ls_fail(LS_ERR_INVALID,
                       "a one-cycle schedule: pct_start is %g, div_factor %g and final_div_factor %g; pct_start must "
                       "be from 0 to 1 (three phases: 0.5), the factors above 0",
                       rising, div, final_div);
    double start = s->rate / div, last = start / final_div;
    const double ends[] = { rising * steps - 1, s->three_phase ? 2 * rising * steps - 2 : steps - 1, steps - 1 };
    const double rates[] = { start, s->rate, s->three_phase ? start : last, last };
    double from = 0;
    int phase = 0;
    for (; phase < (s->three_phase ? 2 : 1) && step > ends[phase]; phase++)
        from = ends[phase];
    double length = ends[phase] - from, part = length > 0 && step < ends[phase] ? (step - from) / length : 1;
    *out = anneal(s, rates[phase], rates[phase + 1], part);
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
    case LS_SCHEDULE_POLYNOMIAL:
        LS_TRY(polynomial(schedule, (double)step, &rate));
        break;
    case LS_SCHEDULE_INVERSE_TIME:
        LS_TRY(inverse_time(schedule, (double)step, &rate));
        break;
    case LS_SCHEDULE_COSINE_RESTARTS:
        LS_TRY(restarts(schedule, (double)step, &rate));
        break;
    case LS_SCHEDULE_ONE_CYCLE:
        LS_TRY(one_cycle(schedule, (double)step, &rate));
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
