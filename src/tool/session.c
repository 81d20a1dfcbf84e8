/* Opens what the flags specify: model, data, loss. */
#include "tool/tool.h"

#include <inttypes.h>
#include <string.h>

static bool is_builtin(const char *name)
{
    const char *known;
    for (size_t i = 0; (known = ls_model_builtin_name(i)) != NULL; i++)
        if (strcmp(known, name) == 0)
            return true;
    return false;
}

ls_status tool_open_model(const tool_settings *settings, tool_session *session)
{
    bool has_weights = false;
    ls_builtin_options sizes = { .classes = settings->classes };
    if (settings->input)
        LS_TRY(tool_input_shape(settings->input, &sizes.input));
    if (is_builtin(settings->model))
        LS_TRY(ls_model_builtin_with(session->ctx, settings->model, sizes, &session->model));
    else if ((has_weights = ls_ends_with(settings->model, ".keras")))
        LS_TRY(ls_model_from_keras(session->ctx, settings->model, &session->model));
    else
        LS_TRY(ls_model_from_keras_json(session->ctx, settings->model, &session->model));
    if (settings->seed != 0) {
        LS_TRY(ls_model_initialize(session->model, settings->seed));
        if (has_weights) /* the seed is only for weights that the file does not have */
            LS_TRY(ls_model_load_weights(session->model, settings->model));
    }
    session->untrained = !settings->weights && !has_weights;
    LS_TRY(settings->head > 0 ? tool_replace_head(settings, session) : tool_load_weights(settings, session->model));
    LS_TRY(tool_train_parts(settings, session->model));
    LS_TRY(tool_place(settings, session->model));
    return settings->norm_statistics > 0
               ? ls_model_set_norm_statistics(session->model, (ls_norm_statistics)(settings->norm_statistics - 1))
               : LS_OK;
}

/* The worker of --data-worker announces which sets exist; all iterate over them together. */
static ls_status share_data(int from, tool_session *session)
{
    ls_dataset **sets[] = { &session->train, &session->test };
    bool there[] = { session->train, session->test };
    LS_TRY(ls_cluster_broadcast(session->ctx, "the data", from, there, sizeof(there)));
    for (int i = 0; i < 2; i++)
        if (there[i])
            *sets[i] = ls_from_worker(session->ctx, from, *sets[i]);
    return LS_OK;
}

ls_status tool_open_data(const tool_settings *settings, tool_session *session, tool_set taken)
{
    int from = (int)settings->data_worker;
    if (from >= ls_cluster_size(session->ctx))
        return ls_fail(LS_ERR_INVALID, "--data-worker %d must be less than %d, the number of workers", from,
                       ls_cluster_size(session->ctx));
    if (from >= 0 && ls_cluster_servers(session->ctx) > 0)
        return ls_fail(LS_ERR_INVALID,
                       "--data-worker %d cannot be used with parameter servers: all workers read the data", from);
    if (from < 0 || from == ls_cluster_rank(session->ctx))
        LS_TRY(tool_load_data(settings, session, taken));
    ls_dataset **set = taken == TOOL_SET_TEST && session->test ? &session->test : &session->train;
    if (settings->take > 0 && *set)
        *set = ls_take(*set, settings->take);
    return from < 0 ? LS_OK : share_data(from, session);
}

ls_status tool_open_set(const tool_settings *settings, tool_session *session, ls_dataset **out, const char **name)
{
    LS_TRY(tool_open_data(settings, session, TOOL_SET_TEST));
    ls_dataset **set = session->test ? &session->test : &session->train;
    if (*set == NULL)
        return ls_fail(LS_ERR_NOT_FOUND, "%s has no test set; use --set train", settings->data);
    *out = *set;
    *name = session->test ? "test" : "train";
    return LS_OK;
}

/* ---- Choosing a loss by model and data ---- */

static int64_t sample_elements(const ls_shape *shape, int first)
{
    int64_t count = 1;
    for (int i = first; i < shape->rank; i++)
        count *= shape->dims[i];
    return count;
}

/* Finds the op of the model's first output: "softmax" and "sigmoid" give probabilities. */
static ls_status last_op(ls_model *model, const char **out)
{
    size_t inputs = ls_model_input_count(model), outputs = ls_model_output_count(model);
    ls_tensor **in = calloc(inputs, sizeof *in), **made = calloc(outputs, sizeof *made);
    ls_status status = in && made ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory to look at the model");
    if (status == LS_OK) {
        LS_SCOPE(ls_model_graph(model))
        {
            for (size_t i = 0; i < inputs; i++)
                in[i] = ls_op_input(ls_model_graph(model), NULL, ls_model_input_dtype(model, i),
                                    ls_model_input_shape(model, i));
            status = ls_model_trace(model, in, false, made, NULL);
            if (status == LS_OK)
                *out = ls_tensor_op(made[0]);
        }
    }
    free(in);
    free(made);
    return status;
}

static ls_status label_elements(ls_dataset *data, int64_t *out)
{
    ls_element_spec spec;
    LS_TRY(ls_dataset_spec(data, &spec));
    int features = spec.features ? spec.features : 1;
    if (spec.count <= features)
        return ls_fail(LS_ERR_DATA, "the data has no labels");
    *out = sample_elements(&spec.component[features].shape, spec.batch > 0);
    return LS_OK;
}

static ls_status suggest_loss(tool_session *session, ls_dataset *data, const char *op, ls_loss_kind *out)
{
    ls_shape shape = ls_model_output_shape(session->model, 0);
    int64_t labels = 0, outputs = sample_elements(&shape, 1), classes = shape.rank > 1 ? shape.dims[shape.rank - 1] : 1;
    LS_TRY(label_elements(data, &labels));
    if (classes > 1 && labels == outputs / classes)
        *out = LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY;
    else if (classes > 1 && labels == outputs && strcmp(op, "softmax") == 0)
        *out = LS_LOSS_CATEGORICAL_CROSSENTROPY;
    else if (strcmp(op, "sigmoid") == 0)
        *out = LS_LOSS_BINARY_CROSSENTROPY;
    else
        *out = LS_LOSS_MEAN_SQUARED_ERROR;
    return LS_OK;
}

ls_status tool_choose_loss(const tool_settings *settings, tool_session *session, ls_dataset *data)
{
    const char *op = "";
    ls_loss_kind kind = tool_loss_kind(settings);
    LS_TRY(last_op(session->model, &op));
    if (kind == LS_LOSS_NONE)
        LS_TRY(suggest_loss(session, data, op, &kind));
    if (kind == LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY)
        LS_TRY(tool_check_classes(session, data));
    bool is_entropy = tool_has_logits(kind);
    bool is_probability = strcmp(op, "softmax") == 0 || strcmp(op, "sigmoid") == 0;
    session->loss = (ls_loss){ .kind = kind };
    bool from_logits = settings->from_logits_given ? settings->from_logits : !is_probability;
    session->loss.options.from_logits = is_entropy && from_logits;
    session->loss.options.label_smoothing = settings->label_smoothing;
    if (settings->label_smoothing > 0 && !is_entropy)
        return ls_fail(LS_ERR_INVALID,
                       "--label-smoothing cannot be used with the loss %s: only cross-entropies have it",
                       tool_loss_name(kind));
    if (settings->metrics) {
        LS_TRY(tool_metrics(settings->metrics, &session->metrics));
        for (size_t i = 0; i < session->metrics.count; i++)
            session->metrics.metric[i].loss.options.from_logits =
                tool_has_logits(session->metrics.metric[i].loss.kind) && from_logits;
        return LS_OK;
    }
    session->metrics = is_entropy ? ls_metrics(ls_accuracy()) : (ls_metrics_list){ .count = 0 };
    return LS_OK;
}

void tool_close(tool_session *session)
{
    free(session->class_weights);
    ls_dataset_destroy(session->train);
    ls_dataset_destroy(session->test);
    ls_table_destroy(session->table);
    ls_model_destroy(session->model);
    ls_context_close(session->ctx);
    ls_text_free(&session->names);
}

/* ---- Printing ---- */

int64_t tool_batch_size(const tool_settings *settings, const tool_session *session)
{
    return settings->batch_size_per_device ? settings->batch_size_per_device * session->replicas : settings->batch_size;
}

char *tool_number(int64_t value, char buffer[32])
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRId64, value), to = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0 && digits[i - 1] != '-')
            buffer[to++] = ',';
        buffer[to++] = digits[i];
    }
    buffer[to] = '\0';
    return buffer;
}

void tool_print_lines(char *text)
{
    for (char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        ls_make_printable(line, length);
        line += length + (line[length] == '\n');
    }
    printf("%s", text);
}

void tool_print_untrained(const tool_session *session)
{
    if (session->untrained)
        printf("the model is untrained: give its weights with --weights FILE\n");
}

void tool_print_results(const char *what, const ls_results *results)
{
    char number[32];
    for (size_t i = 0; i < results->count; i++)
        printf("%s%s %s: %.6g", i ? " - " : "", what, results->names[i], results->values[i]);
    printf(" (%s samples)\n", tool_number(results->samples, number));
}
