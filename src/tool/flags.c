/* Every flag of the command, a row each, and what the names that flags take stand for. */
#include "tool/tool.h"

#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- Names ---- */

static const char *const loss_names[] = { "auto",
                                          "sparse_categorical_crossentropy",
                                          "categorical_crossentropy",
                                          "binary_crossentropy",
                                          "mean_squared_error",
                                          "mse",
                                          "mean_absolute_error",
                                          "mae",
                                          "huber" };
static const ls_loss_kind loss_kinds[] = { LS_LOSS_NONE,
                                           LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY,
                                           LS_LOSS_CATEGORICAL_CROSSENTROPY,
                                           LS_LOSS_BINARY_CROSSENTROPY,
                                           LS_LOSS_MEAN_SQUARED_ERROR,
                                           LS_LOSS_MEAN_SQUARED_ERROR,
                                           LS_LOSS_MEAN_ABSOLUTE_ERROR,
                                           LS_LOSS_MEAN_ABSOLUTE_ERROR,
                                           LS_LOSS_HUBER };

static const char *const optimizer_names[] = { "adam", "adamw", "sgd", "rmsprop", "rmsprop-tf1", "adagrad" };
static const ls_optimizer_kind optimizer_kinds[] = { LS_OPTIMIZER_ADAM,        LS_OPTIMIZER_ADAMW,
                                                     LS_OPTIMIZER_SGD,         LS_OPTIMIZER_RMSPROP,
                                                     LS_OPTIMIZER_RMSPROP_TF1, LS_OPTIMIZER_ADAGRAD };

static const char *const metric_names[] = { "accuracy",
                                            "acc",
                                            "binary_accuracy",
                                            "categorical_accuracy",
                                            "sparse_categorical_accuracy",
                                            "top_k_categorical_accuracy",
                                            "mean_squared_error",
                                            "mse",
                                            "mean_absolute_error",
                                            "mae",
                                            "precision",
                                            "recall",
                                            "auc" };
static const ls_metric_kind metric_kinds[] = { LS_METRIC_ACCURACY,
                                               LS_METRIC_ACCURACY,
                                               LS_METRIC_BINARY_ACCURACY,
                                               LS_METRIC_CATEGORICAL_ACCURACY,
                                               LS_METRIC_SPARSE_CATEGORICAL_ACCURACY,
                                               LS_METRIC_TOP_K,
                                               LS_METRIC_MEAN_SQUARED_ERROR,
                                               LS_METRIC_MEAN_SQUARED_ERROR,
                                               LS_METRIC_MEAN_ABSOLUTE_ERROR,
                                               LS_METRIC_MEAN_ABSOLUTE_ERROR,
                                               LS_METRIC_PRECISION,
                                               LS_METRIC_RECALL,
                                               LS_METRIC_AUC };

static const char *const strategy_names[] = { "mirrored", "one-device" };                   /* tool_strategy */
static const char *const set_names[] = { "auto", "train", "test" };                         /* tool_set */
static const char *const level_names[] = { "silent", "error", "warning", "info", "debug" }; /* ls_log_level */
static const char *const verbose_names[] = { "auto", "0", "1", "2" };                       /* ls_verbose */

_Static_assert(COUNT(loss_names) == COUNT(loss_kinds), "a kind for each name");
_Static_assert(COUNT(optimizer_names) == COUNT(optimizer_kinds), "a kind for each name");
_Static_assert(COUNT(metric_names) == COUNT(metric_kinds), "a kind for each name");
_Static_assert(COUNT(strategy_names) == TOOL_STRATEGIES, "a name for each strategy");
_Static_assert(LS_VERBOSE_SILENT == 1 && LS_VERBOSE_BAR == 2 && LS_VERBOSE_LINES == 3, "in the order of the names");

/* ---- Rows ---- */

#define ROW(name, field, ...) LS_OPTION(name, tool_settings, field, __VA_ARGS__)

static const ls_option data_rows[] = {
    ROW("--data", data, .metavar = "DATA",
        .help = "fashion-mnist, mnist, a folder of IDX files, FILE.npz, FILE.csv or "
                "synthetic:28x28x1,classes=10,count=1000; names are looked for in the variable's folder, too"),
    ROW("--take", take, .value = "0", .range = "[0, inf)", .help = "use the first N samples; 0: all"),
};
const ls_option_table tool_data_flags = LS_OPTION_TABLE("Data", data_rows);

static const ls_option set_rows[] = {
    ROW("--set", set, .value = "auto", .help = "which set; auto: the test set where there is one",
        LS_OPTION_CHOICES(set_names)),
};
const ls_option_table tool_set_flags = LS_OPTION_TABLE(NULL, set_rows);

static const ls_option model_rows[] = {
    ROW("--weights", weights, .metavar = "FILE", .help = "begin with these weights (safetensors, Keras's names)"),
    ROW("--seed", seed, .value = "0", .help = "of initial weights, order of data and dropout"),
};
const ls_option_table tool_model_flags = LS_OPTION_TABLE("Model", model_rows);

static const ls_option loss_rows[] = {
    ROW("--loss", loss, .value = "auto", .help = "what is made small; auto: by the model's output and the labels",
        LS_OPTION_CHOICES(loss_names)),
    ROW("--from-logits", from_logits, .value = "off",
        .help = "outputs are logits, not probabilities; not given: the model's last activation tells"),
    ROW("--metrics", metrics, .metavar = "LIST",
        .help =
            "names with commas between: accuracy, top_k_categorical_accuracy, mse, mae, precision, recall, auc, ...; "
            "not given: accuracy where the loss is a cross-entropy"),
};
const ls_option_table tool_loss_flags = LS_OPTION_TABLE("Loss and metrics", loss_rows);

static const ls_option optimizer_rows[] = {
    ROW("--optimizer", optimizer, .value = "adam", .help = "rule of the update", LS_OPTION_CHOICES(optimizer_names)),
    ROW("--lr", lr, .value = "0", .range = "[0, inf)",
        .help = "learning rate; 0: the optimizer's own, as in Keras (rmsprop-tf1 has none)"),
    ROW("--momentum", momentum, .value = "0", .range = "[0, 1)", .help = "of sgd, rmsprop and rmsprop-tf1"),
    ROW("--nesterov", nesterov, .value = "off", .help = "Nesterov's momentum, of sgd"),
};
const ls_option_table tool_optimizer_flags = LS_OPTION_TABLE("Optimizer", optimizer_rows);

static const ls_option batch_rows[] = {
    ROW("--batch-size", batch_size, .value = "32", .range = "[1, 1000000000]",
        .help = "samples in a batch, of all devices together"),
};
const ls_option_table tool_batch_flags = LS_OPTION_TABLE("Batches", batch_rows);

static const ls_option training_rows[] = {
    ROW("--epochs", epochs, .value = "1", .range = "[1, inf)", .help = "times to go over the data"),
    ROW("--max-steps", max_steps, .value = "0", .range = "[0, inf)",
        .help = "end after that many steps; 0: no limit. Without --epochs, as many epochs as they take"),
    ROW("--batch-size-per-device", batch_size_per_device, .value = "0", .range = "[0, 1000000]",
        .help = "in place of --batch-size: times the number of devices; 0: not so"),
    ROW("--shuffle", shuffle, .value = "on", .help = "a new order of the samples every epoch"),
    ROW("--validation-split", validation_split, .value = "0", .range = "[0, 1)", .metavar = "PART",
        .help = "hold back the last part of the training data for validation, in place of the test set"),
    ROW("--verbose", verbose, .value = "auto", .metavar = "N",
        .help = "0: no progress, 1: a bar, 2: a line an epoch; auto: a bar on a terminal, lines elsewhere",
        LS_OPTION_CHOICES(verbose_names)),
    ROW("--dry-run", dry_run, .value = "off",
        .help = "train nothing: print what training needs of each device's memory; exit status 1 if it does not fit"),
};
const ls_option_table tool_training_flags = LS_OPTION_TABLE("Training", training_rows);

static const ls_option count_rows[] = {
    ROW("--devices", devices, .value = "1", .metavar = "LIST",
        .help = "a number of CPU devices that share the cores out, or names, short or TensorFlow's: cpu:0,cpu:1 or "
                "cpu:0-3 or /device:CPU:0. Results do not depend on it"),
    ROW("--memory-limit", memory_limit, .metavar = "MIB",
        .help =
            "memory that each CPU device may use, in MiB, or a list with one for each; 0: no limit, as when not given"),
    ROW("--memory-growth", memory_growth, .value = "off",
        .help = "take memory as it is needed; off: a limit is reserved at the start"),
};
const ls_option_table tool_count_flags = LS_OPTION_TABLE("Devices", count_rows);

static const ls_option device_rows[] = {
    ROW("--strategy", strategy, .value = "mirrored",
        .help = "which device does what; results do not depend on it either", LS_OPTION_CHOICES(strategy_names)),
    ROW("--lanes", lanes, .value = "0", .range = "[0, 1024]",
        .help = "parts the batch is cut into; 0: by the size of the work. Results do depend on it, in their last bits"),
};
const ls_option_table tool_device_flags = LS_OPTION_TABLE(NULL, device_rows);

static const ls_option placement_rows[] = {
    ROW("--log-placement", log_placement, .value = "off", .help = "print which device each op runs on"),
};
const ls_option_table tool_placement_flags = LS_OPTION_TABLE(NULL, placement_rows);

static const ls_option save_rows[] = {
    ROW("--save", save, .metavar = "FILE", .help = "write the weights when training ends (safetensors, Keras's names)"),
    ROW("--log", log, .metavar = "FILE", .help = "write an event a line: start, each step, each epoch, end (JSON)"),
    ROW("--trace", trace, .metavar = "FILE",
        .help = "write a timeline of what each worker of each device does, for ui.perfetto.dev or chrome://tracing"),
    ROW("--trace-steps", trace_steps, .metavar = "A-B",
        .help = "of these steps alone, counted from 1: 20, 20-40, 20-; not given: as many as there is room for"),
    ROW("--log-hash", log_hash, .value = "off", .help = "with each step the SHA-256 of weights and optimizer state"),
};
const ls_option_table tool_save_flags = LS_OPTION_TABLE("Files", save_rows);

static const ls_option output_rows[] = {
    ROW("--output", output, .metavar = "FILE", .help = "where the predictions go: FILE.npy or FILE.csv"),
};
const ls_option_table tool_output_flags = LS_OPTION_TABLE("Files", output_rows);

static const ls_option report_rows[] = {
    ROW("--output", output, .brief = 'o', .metavar = "FILE", .help = "where the page goes: FILE.html"),
};
const ls_option_table tool_report_flags = LS_OPTION_TABLE("Files", report_rows);

static const ls_option json_rows[] = {
    ROW("--json", json, .value = "off", .help = "print JSON"),
};
const ls_option_table tool_json_flags = LS_OPTION_TABLE("Form", json_rows);

static const ls_option common_rows[] = {
    ROW("--log-level", log_level, .value = "warning",
        .help = "what the library tells: warnings on standard error, "
                "the rest on standard output",
        LS_OPTION_CHOICES(level_names)),
    ROW("--print-options", print_options, .value = "off",
        .help = "first print each option, its value, and where that came from"),
};
const ls_option_table tool_common_flags = LS_OPTION_TABLE("Others", common_rows);

/* ---- What they mean ---- */

ls_optimizer tool_optimizer(const tool_settings *settings)
{
    return (ls_optimizer){
        .kind = optimizer_kinds[settings->optimizer],
        .options = { .learning_rate = settings->lr, .momentum = settings->momentum, .nesterov = settings->nesterov }
    };
}

const char *tool_optimizer_name(const tool_settings *settings)
{
    return optimizer_names[settings->optimizer];
}

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

static ls_status add_metric(const char *name, ls_metrics_list *list)
{
    for (size_t i = 0; i < COUNT(metric_names); i++) {
        if (strcmp(name, metric_names[i]) != 0)
            continue;
        if (list->count == LS_MAX_METRICS)
            return ls_fail(LS_ERR_INVALID, "--metrics: more than %d metrics", LS_MAX_METRICS);
        for (size_t k = 0; k < list->count; k++)
            if (list->metric[k].kind == metric_kinds[i])
                return ls_fail(LS_ERR_INVALID, "--metrics: %s is there twice", name);
        list->metric[list->count++] = (ls_metric){ .kind = metric_kinds[i] };
        return LS_OK;
    }
    return ls_fail(LS_ERR_INVALID, "--metrics: unknown metric '%s'; did you mean %s?", name,
                   ls_nearest_name(name, metric_names, COUNT(metric_names)));
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

bool tool_given(const ls_options *options, const char *flag)
{
    return ls_options_source(options, flag) != LS_OPTION_FROM_DEFAULT;
}

bool tool_yields(const ls_options *options, const char *flag, const char *other)
{
    return ls_options_source(options, flag) == LS_OPTION_FROM_ENVIRONMENT &&
           ls_options_source(options, other) == LS_OPTION_FROM_COMMAND_LINE;
}
