/* What cannot be meant: missing and unknown arguments, flags that contradict each other. All of it is found before
 * anything is done, and ends the command with exit status 2. */
#include "tool/tool.h"

#include <float.h>
#include <string.h>
#include <unistd.h>

#define MOST_MODELS 64

ls_status tool_check_model(const tool_settings *settings)
{
    const char *names[MOST_MODELS], *name;
    size_t count = 0;
    ls_text list = { 0 };
    for (; count < MOST_MODELS && (name = ls_model_builtin_name(count)) != NULL; count++) {
        names[count] = name;
        ls_text_add(&list, "%s%s", count ? ", " : "", name);
        if (settings->model && strcmp(settings->model, name) == 0) {
            ls_text_free(&list);
            return LS_OK;
        }
    }
    ls_status status = LS_OK;
    if (settings->model == NULL)
        status = ls_fail(LS_ERR_INVALID, "a MODEL is needed: %s, or a Keras JSON file", ls_text_get(&list));
    else if (access(settings->model, F_OK) != 0 && strpbrk(settings->model, "./"))
        status = ls_fail(LS_ERR_INVALID, "MODEL %s: no such file", settings->model);
    else if (access(settings->model, F_OK) != 0)
        status = ls_fail(LS_ERR_INVALID, "unknown MODEL %s; did you mean %s? There are %s, and Keras JSON files",
                         settings->model, ls_nearest_name(settings->model, names, count), ls_text_get(&list));
    ls_text_free(&list);
    return status;
}

ls_status tool_check_data(const tool_settings *settings)
{
    if (settings->data == NULL || settings->data[0] == '\0')
        return ls_fail(LS_ERR_INVALID,
                       "--data is needed: fashion-mnist, mnist, a folder of IDX files, FILE.npz, FILE.csv or "
                       "synthetic:28x28x1,classes=10,count=1000");
    return LS_OK;
}

ls_status tool_check_loss(const ls_options *options, tool_settings *settings)
{
    ls_metrics_list metrics;
    ls_loss_kind kind = tool_loss_kind(settings);
    bool is_entropy = kind == LS_LOSS_NONE || kind == LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY ||
                      kind == LS_LOSS_CATEGORICAL_CROSSENTROPY || kind == LS_LOSS_BINARY_CROSSENTROPY;
    settings->from_logits_given = tool_given(options, "--from-logits");
    if (settings->from_logits && !is_entropy && tool_yields(options, "--from-logits", "--loss"))
        settings->from_logits = false;
    if (settings->from_logits && !is_entropy)
        return ls_fail(LS_ERR_INVALID, "--from-logits does not go with --loss %s: only cross-entropies have logits",
                       tool_loss_name(kind));
    return settings->metrics ? tool_metrics(settings->metrics, &metrics) : LS_OK;
}

ls_status tool_check_optimizer(const ls_options *options, tool_settings *settings)
{
    ls_optimizer_kind kind = tool_optimizer(settings).kind;
    const char *name = tool_optimizer_name(settings);
    bool takes_momentum = kind == LS_OPTIMIZER_SGD || kind == LS_OPTIMIZER_RMSPROP || kind == LS_OPTIMIZER_RMSPROP_TF1;
    if (!takes_momentum && tool_yields(options, "--momentum", "--optimizer"))
        settings->momentum = 0;
    if (kind != LS_OPTIMIZER_SGD && tool_yields(options, "--nesterov", "--optimizer"))
        settings->nesterov = false;
    if (settings->momentum > 0 && !takes_momentum)
        return ls_fail(LS_ERR_INVALID,
                       "--momentum does not go with --optimizer %s: sgd, rmsprop and rmsprop-tf1 take it", name);
    if (settings->nesterov && kind != LS_OPTIMIZER_SGD)
        return ls_fail(LS_ERR_INVALID, "--nesterov does not go with --optimizer %s: sgd takes it", name);
    if (kind == LS_OPTIMIZER_RMSPROP_TF1 && !(settings->lr > 0))
        return ls_fail(LS_ERR_INVALID, "--optimizer rmsprop-tf1 needs --lr: it has no learning rate of its own");
    if (settings->nesterov && !(settings->momentum > 0))
        return ls_fail(LS_ERR_INVALID, "--nesterov needs a --momentum above 0");
    if (settings->lr > 0 && !((float)settings->lr >= FLT_MIN && (float)settings->lr <= FLT_MAX))
        return ls_fail(LS_ERR_INVALID, "--lr %g: updates are computed in float32, whose numbers go from %g to %g",
                       settings->lr, (double)FLT_MIN, (double)FLT_MAX);
    return LS_OK;
}

ls_status tool_check_batch(const ls_options *options, tool_settings *settings)
{
    settings->epochs_given = tool_given(options, "--epochs");
    if (!tool_given(options, "--batch-size") || settings->batch_size_per_device == 0)
        return LS_OK;
    if (tool_yields(options, "--batch-size-per-device", "--batch-size"))
        settings->batch_size_per_device = 0;
    else if (!tool_yields(options, "--batch-size", "--batch-size-per-device"))
        return ls_fail(LS_ERR_INVALID,
                       "--batch-size %lld and --batch-size-per-device %lld contradict each other: give one",
                       (long long)settings->batch_size, (long long)settings->batch_size_per_device);
    return LS_OK;
}

ls_status tool_check_devices(const ls_options *options, tool_settings *settings)
{
    tool_session session = { 0 };
    ls_status status = tool_open_context(settings, &session);
    int used = session.devices;
    tool_close(&session);
    if (status != LS_OK || settings->strategy != TOOL_ONE_DEVICE || used == 1)
        return status;
    if (tool_yields(options, "--devices", "--strategy"))
        settings->devices = "1";
    else if (tool_yields(options, "--strategy", "--devices"))
        settings->strategy = TOOL_MIRRORED;
    else
        return ls_fail(LS_ERR_INVALID, "--strategy one-device does not go with the %d devices of --devices %s", used,
                       settings->devices);
    return LS_OK;
}

/* "20", "20-40", "20-" */
ls_status tool_check_trace(const ls_options *options, tool_settings *settings)
{
    long long first = 0, last = 0;
    int used = 0;
    const char *text = settings->trace_steps;
    settings->trace_first = settings->trace_last = 0;
    if (text == NULL)
        return LS_OK;
    if (settings->trace == NULL) {
        if (ls_options_source(options, "--trace-steps") == LS_OPTION_FROM_COMMAND_LINE)
            return ls_fail(LS_ERR_INVALID, "--trace-steps needs --trace FILE: the timeline goes there");
        return LS_OK;
    }
    bool range = sscanf(text, "%9lld-%9lld%n", &first, &last, &used) == 2 && text[used] == '\0';
    if (!range && sscanf(text, "%9lld-%n", &first, &used) == 1 && used > 0 && text[used] == '\0')
        range = true;
    if (!range && sscanf(text, "%9lld%n", &first, &used) == 1 && text[used] == '\0') {
        last = first;
        range = true;
    }
    if (!range || first < 1 || (last != 0 && last < first))
        return ls_fail(LS_ERR_INVALID, "--trace-steps %s: give a step, 20, or a first and a last one, 20-40 or 20-",
                       text);
    settings->trace_first = first;
    settings->trace_last = last;
    return LS_OK;
}

ls_status tool_check_log(const ls_options *options, tool_settings *settings)
{
    if (settings->log_hash && settings->log == NULL) {
        if (ls_options_source(options, "--log-hash") == LS_OPTION_FROM_COMMAND_LINE)
            return ls_fail(LS_ERR_INVALID, "--log-hash needs --log FILE: the hashes go there");
        settings->log_hash = false;
    }
    return LS_OK;
}
