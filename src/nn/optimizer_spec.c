/* Optimizers by kind: names, rules, slots, options with their defaults, and checks of options. */
#include "nn/optimizer_spec.h"

#include "base/fpmode.h"
#include "nn/parts.h"

enum { MOMENTUM = 1, NESTEROV = 2, BETAS = 4, RHO = 8, EPSILON = 16, START = 32, STRENGTHS = 64, MUON = 128 };

#define FTRL_POWER (-0.5) /* the learning_rate_power of the rule */

/* clang-format off */
static const ls_optimizer_info kinds[] = {
    [LS_OPTIMIZER_SGD] = { "sgd", LS_APPLY_SGD, { "momentum" }, MOMENTUM | NESTEROV,
        { .learning_rate = 0.01 }, LS_BY_RULE },
    [LS_OPTIMIZER_ADAM] = { "adam", LS_APPLY_ADAM, { "momentum", "velocity" }, BETAS | EPSILON,
        { .learning_rate = 0.001, .beta_1 = 0.9, .beta_2 = 0.999, .epsilon = 1e-7 }, LS_BY_RULE },
    [LS_OPTIMIZER_ADAMW] = { "adamw", LS_APPLY_ADAM, { "momentum", "velocity" }, BETAS | EPSILON,
        { .learning_rate = 0.001, .beta_1 = 0.9, .beta_2 = 0.999, .epsilon = 1e-7, .weight_decay = 0.004 }, LS_BY_RULE },
    [LS_OPTIMIZER_RMSPROP] = { "rmsprop", LS_APPLY_RMSPROP, { "velocity", "momentum" }, MOMENTUM | RHO | EPSILON,
        { .learning_rate = 0.001, .rho = 0.9, .epsilon = 1e-7 }, LS_BY_RULE },
    [LS_OPTIMIZER_RMSPROP_TF1] = { "rmsprop_tf1", LS_APPLY_RMSPROP_TF1, { "velocity", "momentum" },
        MOMENTUM | RHO | EPSILON, { .rho = 0.9, .epsilon = 1e-10, .initial_accumulator_value = 1 }, LS_BY_RULE },
    [LS_OPTIMIZER_ADAGRAD] = { "adagrad", LS_APPLY_ADAGRAD, { "accumulator" }, EPSILON | START,
        { .learning_rate = 0.001, .epsilon = 1e-7, .initial_accumulator_value = 0.1 }, LS_BY_RULE },
    [LS_OPTIMIZER_ADADELTA] = { "adadelta", LS_APPLY_ADADELTA, { "accumulated_grad", "accumulated_delta_var" },
        RHO | EPSILON, { .learning_rate = 0.001, .rho = 0.95, .epsilon = 1e-7 }, LS_BY_RULE },
    [LS_OPTIMIZER_ADAMAX] = { "adamax", LS_APPLY_ADAMAX, { "momentum", "norm" }, BETAS | EPSILON,
        { .learning_rate = 0.001, .beta_1 = 0.9, .beta_2 = 0.999, .epsilon = 1e-7 }, LS_BY_RULE },
    [LS_OPTIMIZER_NADAM] = { "nadam", LS_APPLY_NADAM, { "momentum", "velocity" }, BETAS | EPSILON,
        { .learning_rate = 0.001, .beta_1 = 0.9, .beta_2 = 0.999, .epsilon = 1e-7 }, LS_BY_RULE },
    [LS_OPTIMIZER_FTRL] = { "ftrl", LS_APPLY_FTRL, { "accumulator", "linear" }, START | STRENGTHS,
        { .learning_rate = 0.001, .initial_accumulator_value = 0.1 }, LS_BY_RULE },
    [LS_OPTIMIZER_LION] = { "lion", LS_APPLY_LION, { "momentum" }, BETAS,
        { .learning_rate = 0.001, .beta_1 = 0.9, .beta_2 = 0.99 }, LS_BY_RULE },
    [LS_OPTIMIZER_LAMB] = { "lamb", LS_APPLY_SGD, { "momentum", "velocity" }, BETAS | EPSILON,
        { .learning_rate = 0.001, .beta_1 = 0.9, .beta_2 = 0.999, .epsilon = 1e-7 }, LS_BY_LAMB },
    [LS_OPTIMIZER_MUON] = { "muon", LS_APPLY_ADAM, { "momentum", "velocity" },
        MOMENTUM | BETAS | EPSILON | MUON,
        { .learning_rate = 0.001, .momentum = 0.95, .beta_1 = 0.9, .beta_2 = 0.999, .epsilon = 1e-7,
          .weight_decay = 0.004 }, LS_BY_MUON },
};
/* clang-format on */

static bool is_known(ls_optimizer_kind kind)
{
    return kind > LS_OPTIMIZER_NONE && (size_t)kind < sizeof(kinds) / sizeof(*kinds) && kinds[kind].name;
}

const char *ls_optimizer_name(const ls_optimizer *optimizer)
{
    bool known = optimizer && is_known(optimizer->kind);
    return !known ? "optimizer" : optimizer->options.name ? optimizer->options.name : kinds[optimizer->kind].name;
}

static ls_status check_range(const char *what, const char *option, double value, double low, double high)
{
    if (value >= low && value <= high)
        return LS_OK;
    return ls_fail(LS_ERR_INVALID, "%s: %s is %g; it must be from %g to %g", what, option, value, low, high);
}

static ls_status check_taken(const ls_optimizer *optimizer)
{
    const ls_optimizer_options *o = &optimizer->options;
    const ls_optimizer_info *info = &kinds[optimizer->kind];
    const struct {
        const char *name;
        bool given;
        unsigned flag;
    } options[] = {
        { "momentum", o->momentum != 0, MOMENTUM },
        { "nesterov", o->nesterov, NESTEROV },
        { "beta_1", o->beta_1 != 0, BETAS },
        { "beta_2", o->beta_2 != 0, BETAS },
        { "rho", o->rho != 0, RHO },
        { "epsilon", o->epsilon != 0, EPSILON },
        { "initial_accumulator_value", o->initial_accumulator_value != 0, START },
        { "l1_regularization_strength", o->l1_regularization_strength != 0, STRENGTHS },
        { "l2_regularization_strength", o->l2_regularization_strength != 0, STRENGTHS },
        { "l2_shrinkage_regularization_strength", o->l2_shrinkage_regularization_strength != 0, STRENGTHS },
        { "beta", o->beta != 0, STRENGTHS },
        { "learning_rate_power", o->learning_rate_power != 0, STRENGTHS },
        { "adam_weight_decay", o->adam_weight_decay != 0, MUON },
        { "adam_lr_ratio", o->adam_lr_ratio != 0, MUON },
        { "muon_a", o->muon_a != 0, MUON },
        { "muon_b", o->muon_b != 0, MUON },
        { "muon_c", o->muon_c != 0, MUON },
        { "ns_steps", o->ns_steps != 0, MUON },
        { "no_nesterov", o->no_nesterov, MUON },
        { "rms_rate", o->rms_rate != 0, MUON },
        { "exclude_layers", o->exclude_layers != NULL, MUON },
        { "include_embeddings", o->include_embeddings, MUON },
    };
    for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++)
        if (options[i].given && !(info->takes & options[i].flag))
            return ls_fail(LS_ERR_INVALID, "%s has no option %s", info->name, options[i].name);
    if (!o->use_ema && (o->ema_momentum != 0 || o->ema_overwrite_frequency != 0))
        return ls_fail(LS_ERR_INVALID,
                       "%s: ema_momentum or ema_overwrite_frequency is set without use_ema; set .use_ema", info->name);
    if (o->ema_overwrite_frequency < 0)
        return ls_fail(LS_ERR_INVALID, "%s: ema_overwrite_frequency is %lld; it must be at least 0", info->name,
                       (long long)o->ema_overwrite_frequency);
    if (o->nesterov && o->momentum == 0)
        return ls_fail(LS_ERR_INVALID, "%s: nesterov is set without momentum; set .momentum", info->name);
    return LS_OK;
}

static ls_status check_clipping(const char *what, const ls_recipe *r)
{
    const double highest = 1e300;
    LS_TRY(check_range(what, "clipvalue", r->clipvalue, 0, highest));
    LS_TRY(check_range(what, "clipnorm", r->clipnorm, 0, highest));
    LS_TRY(check_range(what, "global_clipnorm", r->global_clipnorm, 0, highest));
    if ((r->clipvalue > 0) + (r->clipnorm > 0) + (r->global_clipnorm > 0) > 1)
        return ls_fail(LS_ERR_INVALID,
                       "%s: only one of clipnorm (%g), clipvalue (%g) and global_clipnorm (%g) can be set", what,
                       r->clipnorm, r->clipvalue, r->global_clipnorm);
    return LS_OK;
}

static ls_status check_muon(const char *what, const ls_recipe *r)
{
    const double highest = 1e30;
    LS_TRY(check_range(what, "muon_a", r->muon.a, -highest, highest));
    LS_TRY(check_range(what, "muon_b", r->muon.b, -highest, highest));
    LS_TRY(check_range(what, "muon_c", r->muon.c, -highest, highest));
    LS_TRY(check_range(what, "rms_rate", r->muon.rms_rate, 0, highest));
    LS_TRY(check_range(what, "adam_weight_decay", r->muon.adam_weight_decay, 0, highest));
    LS_TRY(check_range(what, "adam_lr_ratio", r->muon.adam_lr_ratio, 1e-30, highest));
    return check_range(what, "ns_steps", (double)r->muon.steps, 1, 100);
}

static ls_status check_recipe(const char *what, const ls_recipe *r)
{
    const double highest = 1e30;
    LS_TRY(check_range(what, "learning_rate", r->rate, 0, highest));
    LS_TRY(check_range(what, "momentum", r->apply.momentum, 0, 1));
    LS_TRY(check_range(what, "beta_1", r->apply.beta_1, 0, 0x1.fffffep-1));
    LS_TRY(check_range(what, "beta_2", r->apply.beta_2, 0, 0x1.fffffep-1));
    LS_TRY(check_range(what, "rho", r->apply.rho, 0, 1));
    LS_TRY(check_range(what, "epsilon", r->apply.epsilon, 0, highest));
    LS_TRY(check_range(what, "weight_decay", r->apply.weight_decay, 0, highest));
    LS_TRY(check_range(what, "l1_regularization_strength", r->apply.l1, 0, highest));
    LS_TRY(check_range(what, "l2_regularization_strength", r->apply.l2, 0, highest));
    LS_TRY(check_range(what, "l2_shrinkage_regularization_strength", r->apply.shrinkage, 0, highest));
    LS_TRY(check_range(what, "beta", r->apply.beta, 0, highest));
    LS_TRY(check_range(what, "initial_accumulator_value", r->start, 0, highest));
    LS_TRY(check_range(what, "learning_rate_power", r->ftrl_power, -10, 0));
    if (r->ema_momentum != -1)
        LS_TRY(check_range(what, "ema_momentum", r->ema_momentum, 0, 1));
    if (r->every < 1)
        return ls_fail(LS_ERR_INVALID, "%s: gradient_accumulation_steps is %lld; it must be at least 1", what,
                       (long long)r->every);
    LS_TRY(check_muon(what, r));
    return check_clipping(what, r);
}

static void choose_rule(bool nesterov, ls_recipe *r)
{
    bool has_momentum = r->apply.momentum != 0;
    r->apply.rule = r->info->rule;
    if (r->info->rule == LS_APPLY_SGD && has_momentum)
        r->apply.rule = nesterov ? LS_APPLY_NESTEROV : LS_APPLY_MOMENTUM;
    r->way = r->info->rule == LS_APPLY_FTRL && r->ftrl_power != FTRL_POWER ? LS_BY_FTRL : r->info->way;
    r->slot_count = r->way == LS_BY_RULE ? ls_apply_slots(r->apply.rule, has_momentum) : 2;
}

static void resolve_muon(const ls_optimizer_options *o, ls_recipe *r)
{
    r->muon.a = ls_spec_number(o->muon_a, 3.4445);
    r->muon.b = ls_spec_number(o->muon_b, -4.775);
    r->muon.c = ls_spec_number(o->muon_c, 2.0315);
    r->muon.rms_rate = ls_spec_number(o->rms_rate, 0.2);
    r->muon.adam_weight_decay = ls_spec_number(o->adam_weight_decay, 0.004);
    r->muon.adam_lr_ratio = ls_spec_number(o->adam_lr_ratio, 1);
    r->muon.steps = o->ns_steps ? o->ns_steps : 5;
    r->muon.nesterov = !o->no_nesterov;
    r->muon.embeddings = o->include_embeddings;
    r->muon.excluded = o->exclude_layers;
}

ls_status ls_optimizer_resolve(const ls_optimizer *optimizer, ls_recipe *r)
{
    if (!is_known(optimizer->kind))
        return ls_fail(LS_ERR_INVALID, "there is no optimizer number %d; use a constructor such as ls_adam",
                       (int)optimizer->kind);
    const ls_optimizer_info *info = &kinds[optimizer->kind];
    const ls_optimizer_options *o = &optimizer->options, *d = &info->defaults;
    LS_TRY(check_taken(optimizer));
    *r = (ls_recipe){ .info = info,
                      .rate = ls_spec_number(o->learning_rate, d->learning_rate),
                      .start = ls_spec_number(o->initial_accumulator_value, d->initial_accumulator_value),
                      .clipvalue = ls_spec_number(o->clipvalue, 0),
                      .clipnorm = ls_spec_number(o->clipnorm, 0),
                      .global_clipnorm = ls_spec_number(o->global_clipnorm, 0),
                      .every = o->gradient_accumulation_steps ? o->gradient_accumulation_steps : 1,
                      .ema_momentum = o->use_ema ? ls_spec_number(o->ema_momentum, 0.99) : -1,
                      .ema_every = o->ema_overwrite_frequency,
                      .ftrl_power = ls_spec_number(o->learning_rate_power, FTRL_POWER),
                      .undecayed = o->exclude_from_weight_decay,
                      .scheduled = o->schedule.kind != LS_SCHEDULE_CONSTANT };
    r->apply = (ls_apply_op){ .momentum = ls_spec_number(o->momentum, d->momentum),
                              .beta_1 = ls_spec_number(o->beta_1, d->beta_1),
                              .beta_2 = ls_spec_number(o->beta_2, d->beta_2),
                              .rho = ls_spec_number(o->rho, d->rho),
                              .epsilon = ls_spec_number(o->epsilon, d->epsilon),
                              .weight_decay = ls_spec_number(o->weight_decay, d->weight_decay),
                              .l1 = ls_spec_number(o->l1_regularization_strength, 0),
                              .l2 = ls_spec_number(o->l2_regularization_strength, 0),
                              .shrinkage = ls_spec_number(o->l2_shrinkage_regularization_strength, 0),
                              .beta = ls_spec_number(o->beta, 0) };
    resolve_muon(o, r);
    choose_rule(o->nesterov, r);
    if (r->scheduled && o->learning_rate != 0)
        return ls_fail(LS_ERR_INVALID, "%s: a learning rate (%g) and a schedule are both set; set only one", info->name,
                       r->rate);
    if (!r->scheduled && o->schedule.rate != 0)
        return ls_fail(LS_ERR_INVALID, "%s: the schedule is constant; set .learning_rate = %g instead", info->name,
                       o->schedule.rate);
    if (!r->scheduled && o->learning_rate == 0 && d->learning_rate == 0)
        return ls_fail(LS_ERR_INVALID, "%s: the learning rate is not set; set .learning_rate", info->name);
    return check_recipe(info->name, r);
}

ls_status ls_optimizer_rate(const ls_optimizer *optimizer, int64_t step, int64_t batch_size, double *out)
{
    LS_OWN_FP_MODE;
    ls_recipe r;
    if (!optimizer || !out)
        return ls_fail(LS_ERR_INVALID, "ls_optimizer_rate: the optimizer or the rate pointer (out) is NULL");
    LS_TRY(ls_optimizer_resolve(optimizer, &r));
    if (r.scheduled)
        return ls_schedule_rate(&optimizer->options.schedule, step, batch_size, out);
    *out = r.rate;
    return LS_OK;
}
