/* Parses flags that are lists: early stopping, plateaus and schedules. Makes all callbacks of
 * training.
 *
 *     --early-stopping 3                     a single number is the patience
 *     --early-stopping patience=3,restore_best_weights
 *     --schedule cosine:warmup=500,alpha=0.1
 *
 * Each list has its own option table, so that keys, ranges and messages work as for flags. */
#include "tool/tool.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* ---- Lists ---- */

#define MOST_WORDS 32
#define WORD_BYTES 160

/* Turns "min_delta=0.1" into the flag "--min-delta=0.1". A single number is the value of key
 * `alone`. */
static ls_status make_word(const char *text, size_t length, const char *alone, char word[WORD_BYTES])
{
    if (length == 0 || length + 20 > WORD_BYTES)
        return ls_fail(LS_ERR_INVALID, "'%.*s' is not KEY=VALUE", (int)length, text);
    bool number = alone && isdigit((unsigned char)text[text[0] == '-']);
    snprintf(word, WORD_BYTES, "--%s%.*s", number ? alone : "", (int)length, text);
    for (char *c = word; *c != '\0' && *c != '='; c++)
        if (*c == '_')
            *c = '-';
    return LS_OK;
}

/* `options` owns the strings in `values`. */
static ls_status read_list(const char *flag, const char *list, const char *alone, const ls_option_table *table,
                           void *values, ls_options *options)
{
    char words[MOST_WORDS][WORD_BYTES];
    const char *argv[MOST_WORDS];
    int count = 0;
    LS_TRY(ls_options_add(options, table, values));
    for (const char *at = list; *at != '\0';) {
        size_t length = strcspn(at, ",");
        if (count == MOST_WORDS)
            return ls_fail(LS_ERR_INVALID, "%s: more than %d keys", flag, MOST_WORDS);
        LS_TRY(ls_fail_within(make_word(at, length, alone, words[count]), "%s", flag));
        argv[count] = words[count];
        count++;
        at += length + (at[length] == ',');
    }
    return ls_fail_within(ls_options_parse(options, count, argv), "%s %s", flag, list);
}

/* ---- Early stopping and plateaus ---- */

static const char *const mode_names[] = { "auto", "min", "max" }; /* ls_monitor_mode */

/* Keys of --early-stopping and --reduce-on-plateau; each uses some. */
typedef struct watch {
    int64_t patience, start_from_epoch, cooldown;
    double min_delta, baseline, factor, min_lr;
    bool restore_best_weights;
    int mode;
    const char *monitor;
} watch;

#define KEY(name, field, ...) LS_OPTION(name, watch, field, __VA_ARGS__, .help = "as in Keras")
#define SHARED_KEYS                                                                                                    \
    KEY("--monitor", monitor, .metavar = "NAME"), KEY("--mode", mode, .value = "auto", LS_OPTION_CHOICES(mode_names))

static const ls_option stop_rows[] = {
    KEY("--patience", patience, .value = "0", .range = "[0, inf)"),
    KEY("--min-delta", min_delta, .value = "0", .range = "[0, inf)"),
    KEY("--baseline", baseline, .value = "0"),
    KEY("--restore-best-weights", restore_best_weights, .value = "off"),
    KEY("--start-from-epoch", start_from_epoch, .value = "0", .range = "[0, inf)"),
    SHARED_KEYS,
};
static const ls_option_table stop_keys = LS_OPTION_TABLE(NULL, stop_rows);

static const ls_option plateau_rows[] = {
    KEY("--patience", patience, .value = "10", .range = "[0, inf)"),
    KEY("--min-delta", min_delta, .value = "0.0001", .range = "[0, inf)"),
    KEY("--factor", factor, .value = "0.1", .range = "[0, 1)"),
    KEY("--cooldown", cooldown, .value = "0", .range = "[0, inf)"),
    KEY("--min-lr", min_lr, .value = "0", .range = "[0, inf)"),
    SHARED_KEYS,
};
static const ls_option_table plateau_keys = LS_OPTION_TABLE(NULL, plateau_rows);

/* Callback options use 0 for the default and LS_ZERO for zero. */
static double meant(double value)
{
    return value == 0 ? LS_ZERO : value;
}

static ls_status add_early_stopping(const tool_settings *settings, const char *monitor, tool_callbacks *to)
{
    watch w = { 0 };
    if (!settings->early_stopping)
        return LS_OK;
    ls_options *keys = &to->specs[0];
    LS_TRY(read_list("--early-stopping", settings->early_stopping, "patience=", &stop_keys, &w, keys));
    to->restores = w.restore_best_weights;
    to->list[to->count++] = ls_early_stopping(.monitor = w.monitor ? w.monitor : monitor, .patience = w.patience,
                                              .min_delta = w.min_delta, .mode = (ls_monitor_mode)w.mode,
                                              .baseline = tool_given(keys, "--baseline") ? meant(w.baseline) : 0,
                                              .restore_best_weights = w.restore_best_weights,
                                              .start_from_epoch = w.start_from_epoch, .verbose = true);
    return LS_OK;
}

static ls_status add_plateau(const tool_settings *settings, const char *monitor, tool_callbacks *to)
{
    watch w = { 0 };
    if (!settings->reduce_on_plateau)
        return LS_OK;
    LS_TRY(
        read_list("--reduce-on-plateau", settings->reduce_on_plateau, "patience=", &plateau_keys, &w, &to->specs[1]));
    to->list[to->count++] =
        ls_reduce_lr_on_plateau(.monitor = w.monitor ? w.monitor : monitor, .factor = meant(w.factor),
                                .patience = w.patience ? w.patience : 1, /* 0 means the same as 1 */
                                .min_delta = meant(w.min_delta), .mode = (ls_monitor_mode)w.mode,
                                .cooldown = w.cooldown, .min_lr = w.min_lr, .verbose = true);
    return LS_OK;
}

ls_status tool_make_callbacks(const tool_settings *settings, bool validates, tool_callbacks *out)
{
    const char *monitor = settings->monitor ? settings->monitor : validates ? "val_loss" : "loss";
    LS_TRY(add_plateau(settings, monitor, out)); /* first: the callbacks after it report the rate */
    LS_TRY(add_early_stopping(settings, monitor, out));
    if (settings->save_best)
        out->list[out->count++] =
            ls_model_checkpoint(settings->save_best, .monitor = monitor, .save_best_only = true, .verbose = true);
    if (settings->save_epochs)
        out->list[out->count++] = ls_model_checkpoint(settings->save_epochs, .verbose = true);
    if (settings->csv)
        out->list[out->count++] = ls_csv_logger(settings->csv);
    if (settings->tensorboard)
        out->list[out->count++] = ls_tensorboard(settings->tensorboard, .update_freq = settings->tensorboard_every,
                                                 .histogram_freq = settings->histograms);
    if (settings->terminate_on_nan)
        out->list[out->count++] = ls_terminate_on_nan();
    return LS_OK;
}

void tool_free_callbacks(tool_callbacks *callbacks)
{
    for (size_t i = 0; i < sizeof callbacks->specs / sizeof *callbacks->specs; i++)
        ls_options_free(&callbacks->specs[i]);
}

/* ---- Schedules ---- */

typedef struct schedule_keys {
    const char *steps, *warmup;
    double alpha, from, decay;
    bool staircase;
    double end, power, t_mul, m_mul, pct_start, div_factor, final_div_factor;
    bool cycle, linear, three_phase;
} schedule_keys;

#define STEPS_KEY(name, field, ...)                                                                                    \
    LS_OPTION(name, schedule_keys, field, .metavar = "STEPS", .help = "a number, or Nepochs", __VA_ARGS__)
#define RATE_KEY(name, field, ...) LS_OPTION(name, schedule_keys, field, .help = "as in Keras", __VA_ARGS__)

static const ls_option cosine_rows[] = {
    STEPS_KEY("--steps", steps, .value = NULL),
    STEPS_KEY("--warmup", warmup, .value = NULL),
    RATE_KEY("--alpha", alpha, .value = "0", .range = "[0, 1]"),
    RATE_KEY("--from", from, .value = "0", .range = "[0, inf)"),
};
static const ls_option exponential_rows[] = {
    STEPS_KEY("--steps", steps, .value = NULL),
    RATE_KEY("--decay", decay, .value = "0", .range = "[0, inf)"),
    RATE_KEY("--staircase", staircase, .value = "off"),
};
static const ls_option warmup_rows[] = {
    STEPS_KEY("--steps", steps, .value = NULL),
    RATE_KEY("--from", from, .value = "0", .range = "[0, inf)"),
};

static const ls_option polynomial_rows[] = {
    STEPS_KEY("--steps", steps, .value = NULL),
    RATE_KEY("--end", end, .value = "0.0001", .range = "[0, inf)"),
    RATE_KEY("--power", power, .value = "1", .range = "[0, inf)"),
    RATE_KEY("--cycle", cycle, .value = "off"),
};
static const ls_option inverse_time_rows[] = {
    STEPS_KEY("--steps", steps, .value = NULL),
    RATE_KEY("--decay", decay, .value = "0", .range = "[0, inf)"),
    RATE_KEY("--staircase", staircase, .value = "off"),
};
static const ls_option restarts_rows[] = {
    STEPS_KEY("--steps", steps, .value = NULL),
    RATE_KEY("--t-mul", t_mul, .value = "2", .range = "[1, 1e6]"),
    RATE_KEY("--m-mul", m_mul, .value = "1", .range = "[0, 1e6]"),
    RATE_KEY("--alpha", alpha, .value = "0", .range = "[0, 1]"),
};
static const ls_option one_cycle_rows[] = {
    STEPS_KEY("--steps", steps, .value = NULL),
    RATE_KEY("--pct-start", pct_start, .value = "0.3", .range = "(0, 1]"),
    RATE_KEY("--div-factor", div_factor, .value = "25", .range = "(0, inf)"),
    RATE_KEY("--final-div-factor", final_div_factor, .value = "10000", .range = "(0, inf)"),
    RATE_KEY("--linear", linear, .value = "off"),
    RATE_KEY("--three-phase", three_phase, .value = "off"),
};

enum { COSINE, EXPONENTIAL, PIECEWISE, WARMUP, POLYNOMIAL, INVERSE_TIME, COSINE_RESTARTS, ONE_CYCLE, SCHEDULES };
static const char *const schedule_names[SCHEDULES] = { "cosine",     "exponential",  "piecewise",       "warmup",
                                                       "polynomial", "inverse-time", "cosine-restarts", "one-cycle" };
static const ls_option_table schedule_tables[SCHEDULES] = {
    [COSINE] = LS_OPTION_TABLE(NULL, cosine_rows),
    [EXPONENTIAL] = LS_OPTION_TABLE(NULL, exponential_rows),
    [WARMUP] = LS_OPTION_TABLE(NULL, warmup_rows),
    [POLYNOMIAL] = LS_OPTION_TABLE(NULL, polynomial_rows),
    [INVERSE_TIME] = LS_OPTION_TABLE(NULL, inverse_time_rows),
    [COSINE_RESTARTS] = LS_OPTION_TABLE(NULL, restarts_rows),
    [ONE_CYCLE] = LS_OPTION_TABLE(NULL, one_cycle_rows),
};

/* "500", "500steps", "2epochs" */
static ls_status read_steps(const char *key, const char *text, int64_t epoch, int64_t *out)
{
    ls_period period;
    if (!ls_parse_period(text, &period) || period.unit == LS_EVERY_SECONDS || !(period.count <= 1e9))
        return ls_fail(LS_ERR_INVALID,
                       "--schedule: %s is '%s'; expected a number of steps from 1 to 1000000000, or Nepochs", key,
                       text);
    *out = (int64_t)period.count * (period.unit == LS_EVERY_EPOCHS ? epoch : 1);
    return LS_OK;
}

/* Parses "1000=0.01,5epochs=0.001": the learning rate from each step on; `rate` before the
 * first. */
static ls_status read_pieces(const char *list, double rate, int64_t epoch, ls_schedule *out)
{
    int64_t boundaries[LS_SCHEDULE_POINTS];
    double values[LS_SCHEDULE_POINTS] = { rate };
    int count = 1;
    for (const char *at = list; *at != '\0';) {
        char piece[80], *equals;
        size_t length = strcspn(at, ",");
        snprintf(piece, sizeof piece, "%.*s", length < sizeof piece ? (int)length : 0, at);
        at += length + (at[length] == ',');
        if (count == LS_SCHEDULE_POINTS)
            return ls_fail(LS_ERR_INVALID, "--schedule piecewise: more than %d steps", LS_SCHEDULE_POINTS - 1);
        equals = strchr(piece, '=');
        if (equals)
            *equals = '\0';
        if (!equals || !ls_parse_f64(equals + 1, &values[count]) || !(values[count] >= 0 && values[count] <= 1e30))
            return ls_fail(LS_ERR_INVALID, "--schedule piecewise: '%s%s%s' is not STEP=RATE, as in 1000=0.01", piece,
                           equals ? "=" : "", equals ? equals + 1 : "");
        LS_TRY(read_steps("a step", piece, epoch, &boundaries[count - 1]));
        count++;
    }
    if (count == 1)
        return ls_fail(LS_ERR_INVALID, "--schedule piecewise needs steps and rates: piecewise:1000=0.01,2000=0.001");
    *out = ls_piecewise_decay(boundaries, values, count);
    return LS_OK;
}

static ls_status make_schedule(int kind, const schedule_keys *k, double rate, tool_length length, ls_schedule *out)
{
    int64_t steps = 0, warmup = 0;
    if (k->warmup)
        LS_TRY(read_steps("warmup", k->warmup, length.epoch, &warmup));
    if (k->steps)
        LS_TRY(read_steps("steps", k->steps, length.epoch, &steps));
    else if (kind != COSINE && kind != POLYNOMIAL && kind != ONE_CYCLE)
        return ls_fail(LS_ERR_INVALID, "--schedule %s needs steps: %s:steps=1000", schedule_names[kind],
                       schedule_names[kind]);
    else
        steps = length.all > warmup ? length.all - warmup : 1;
    if ((kind == EXPONENTIAL || kind == INVERSE_TIME) && !(k->decay > 0))
        return ls_fail(LS_ERR_INVALID, "--schedule %s needs a decay above 0: %s:steps=1000,decay=0.96",
                       schedule_names[kind], schedule_names[kind]);
    switch (kind) {
    case COSINE:
        *out = ls_cosine_decay(rate, steps, k->alpha, k->from, warmup);
        break;
    case WARMUP: /* a cosine that stays constant after the warmup */
        *out = ls_cosine_decay(rate, 1, 1, k->from, steps);
        break;
    case EXPONENTIAL:
        *out = ls_exponential_decay(rate, steps, k->decay, k->staircase);
        break;
    case POLYNOMIAL:
        *out = ls_polynomial_decay(rate, steps, k->end, k->power, k->cycle);
        break;
    case INVERSE_TIME:
        *out = ls_inverse_time_decay(rate, steps, k->decay, k->staircase);
        break;
    case COSINE_RESTARTS:
        *out = ls_cosine_decay_restarts(rate, steps, k->t_mul, k->m_mul, k->alpha);
        break;
    default:
        *out = ls_one_cycle(rate, steps, k->pct_start, k->div_factor, k->final_div_factor, k->linear, k->three_phase);
    }
    return LS_OK;
}

static ls_status find_schedule(const char *text, int *out)
{
    char name[32];
    size_t length = strcspn(text, ":");
    snprintf(name, sizeof name, "%.*s", length < sizeof name ? (int)length : (int)sizeof name - 1, text);
    for (int i = 0; i < SCHEDULES; i++)
        if (strcmp(name, schedule_names[i]) == 0) {
            *out = i;
            return LS_OK;
        }
    return ls_fail(LS_ERR_INVALID, "--schedule %s: unknown schedule '%s'%s", text, name,
                   ls_advise_name(name, schedule_names, SCHEDULES).text);
}

/* Rates start at the optimizer's. A length of 0 means unknown. */
ls_status tool_schedule(const tool_settings *settings, tool_length length, ls_schedule *out)
{
    int kind;
    double rate, unused;
    ls_options options = { 0 };
    schedule_keys keys = { 0 };
    ls_optimizer optimizer = tool_optimizer(settings);
    *out = (ls_schedule){ .kind = LS_SCHEDULE_CONSTANT };
    if (!settings->schedule)
        return LS_OK;
    LS_TRY(find_schedule(settings->schedule, &kind));
    LS_TRY(ls_optimizer_rate(&optimizer, 0, settings->batch_size, &rate));
    const char *list = settings->schedule + strlen(schedule_names[kind]);
    list += *list == ':';
    char flag[32];
    snprintf(flag, sizeof flag, "--schedule %s", schedule_names[kind]);
    ls_status status = kind == PIECEWISE ? read_pieces(list, rate, length.epoch, out)
                                         : read_list(flag, list, NULL, &schedule_tables[kind], &keys, &options);
    if (status == LS_OK && kind != PIECEWISE)
        status = make_schedule(kind, &keys, rate, length, out);
    ls_options_free(&options);
    if (status == LS_OK && length.all > 0)
        status = ls_fail_within(ls_schedule_rate(out, 0, settings->batch_size, &unused), "--schedule");
    return status;
}

/* ---- Checks ---- */

/* Finds errors in the lists before anything runs. */
ls_status tool_check_callbacks(const ls_options *options, tool_settings *settings)
{
    tool_callbacks callbacks = { .count = 0 };
    ls_schedule schedule;
    ls_status status = tool_make_callbacks(settings, true, &callbacks);
    tool_free_callbacks(&callbacks);
    LS_TRY(status);
    LS_TRY(tool_schedule(settings, (tool_length){ 0, 0 }, &schedule));
    if (settings->schedule && settings->reduce_on_plateau)
        return ls_fail(LS_ERR_INVALID, "--schedule and --reduce-on-plateau contradict each other: both set the rate");
    bool watches = settings->early_stopping || settings->reduce_on_plateau || settings->save_best;
    if (!watches && ls_options_source(options, "--monitor") == LS_OPTION_FROM_COMMAND_LINE)
        return ls_fail(LS_ERR_INVALID,
                       "--monitor needs an option that uses it: --early-stopping, --reduce-on-plateau or --save-best");
    if (!settings->tensorboard && ls_options_source(options, "--histograms") == LS_OPTION_FROM_COMMAND_LINE)
        return ls_fail(LS_ERR_INVALID, "--histograms needs --tensorboard DIR: the histograms go there");
    if (!settings->tensorboard && ls_options_source(options, "--tensorboard-every") == LS_OPTION_FROM_COMMAND_LINE)
        return ls_fail(LS_ERR_INVALID, "--tensorboard-every needs --tensorboard DIR: the scalars go there");
    return LS_OK;
}
