/* Describes a job as names and values, which must be equal to resume. */
#include <math.h>
#include <string.h>

#include "base/sha256.h"
#include "nn/model.h"
#include "train/checkpoint/checkpoint.h"
#include "train/job/identity.h"
#include "train/checkpoint/state_list.h"
#include "train/job/job.h"
#include "train/job/passes.h"

/* ---- Values ---- */

json_t *ls_json_real(double value)
{
    return isfinite(value) ? json_real(value) : json_string(isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

ls_status ls_json_any_f64(const ls_json_at *at, double *out)
{
    const char *text = json_string_value(at->value);
    if (!text)
        return ls_json_f64(at, out);
    if (strcmp(text, "nan") == 0)
        *out = NAN;
    else if (strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0)
        *out = text[0] == '-' ? -INFINITY : INFINITY;
    else
        return ls_json_fail(at, LS_ERR_DATA, "expected a number, found \"%.40s\"", text);
    return LS_OK;
}

ls_status ls_facts_put(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        return ls_fail(LS_ERR_MEMORY, "no memory for a checkpoint's \"%s\"", key);
    return LS_OK;
}

static ls_status put_text(json_t *object, const char *key, const char *text)
{
    return ls_facts_put(object, key, ls_is_utf8(text) ? json_string(text) : json_string("(not UTF-8)"));
}

/* ---- Nodes ---- */

static ls_status hash_numbers(ls_sha256 *hash, const ls_tensor *node, const ls_attr_field *field)
{
    static const size_t sizes[] = {
        [LS_ATTR_i64] = sizeof(int64_t), [LS_ATTR_f64] = sizeof(double), [LS_ATTR_flag] = sizeof(bool)
    };
    const char *at = (const char *)&node->attr + field->offset;
    if (field->type == LS_ATTR_data) {
        const ls_constant_data *data = (const void *)at;
        return ls_sha256_add(hash, data->bytes, data->count);
    }
    if (field->type == LS_ATTR_custom) {
        const ls_custom_functions *const *functions = (const void *)at;
        return ls_sha256_add(hash, (*functions)->name, strlen((*functions)->name) + 1);
    }
    if (field->type != LS_ATTR_variable)
        return ls_sha256_add(hash, at, (size_t)ls_attr_count(node, field) * sizes[field->type]);
    for (int i = 0; i < field->count; i++) {
        const ls_variable *v = ((ls_variable *const *)(const void *)at)[i];
        if (v)
            LS_TRY(ls_sha256_add(hash, ls_tensor_name(v->node), strlen(ls_tensor_name(v->node)) + 1));
    }
    return LS_OK;
}

/* Without the node's device. */
static ls_status hash_node(ls_sha256 *hash, const ls_tensor *node)
{
    const ls_op_info *info = &ls_ops[node->op];
    const int32_t numbers[] = { node->dtype, node->per_sample, node->input_count, node->shape.rank };
    LS_TRY(ls_sha256_add(hash, info->name, strlen(info->name) + 1));
    LS_TRY(ls_sha256_add(hash, numbers, sizeof(numbers)));
    LS_TRY(ls_sha256_add(hash, node->shape.dims, (size_t)node->shape.rank * sizeof(*node->shape.dims)));
    for (int i = 0; i < node->input_count; i++)
        LS_TRY(ls_sha256_add(hash, &node->in[i]->position, sizeof(node->in[i]->position)));
    for (int i = 0; i < info->field_count; i++)
        LS_TRY(hash_numbers(hash, node, &info->fields[i]));
    return LS_OK;
}

/* Hashes all nodes that compute the loss: layers, activations, dropout rates, regularization. */
static ls_status hash_loss(ls_tensor *loss, char hex[65])
{
    ls_tensor **nodes = NULL;
    size_t count = 0;
    ls_sha256 *hash = NULL;
    LS_TRY(ls_graph_order(loss->graph, &loss, 1, NULL, NULL, &nodes, &count));
    ls_status status = ls_sha256_begin(&hash);
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        nodes[i]->position = (int32_t)i;
        status = hash_node(hash, nodes[i]);
    }
    free(nodes);
    if (status == LS_OK)
        return ls_sha256_end(hash, hex);
    ls_sha256_destroy(hash);
    return status;
}

/* ---- Data ---- */

static ls_status put_hash(json_t *object, const ls_passes *passes)
{
    ls_data_identity is;
    LS_TRY(ls_identify_data(passes->dataset, &is));
    if (is.sha256[0] == '\0')
        return LS_OK;
    LS_TRY(ls_facts_put(object, "samples", json_integer(is.samples)));
    return ls_facts_put(object, "sha256", json_string(is.sha256));
}

static ls_status put_data(json_t *object, const char *key, const ls_passes *passes)
{
    json_t *data, *shapes;
    LS_TRY(ls_facts_put(object, key, data = json_object()));
    LS_TRY(ls_facts_put(data, "components", shapes = json_array()));
    LS_TRY(ls_facts_put(data, "batches", json_integer(passes->steps)));
    for (int i = 0; i < passes->spec.count; i++) {
        char text[LS_SHAPE_TEXT + 16], shape[LS_SHAPE_TEXT];
        snprintf(text, sizeof(text), "%s %s", ls_dtype_name(passes->spec.component[i].dtype),
                 ls_shape_format(&passes->spec.component[i].shape, shape));
        if (json_array_append_new(shapes, json_string(text)) != 0)
            return ls_fail(LS_ERR_MEMORY, "no memory for the shapes of the data");
    }
    return put_hash(data, passes);
}

/* ---- All of them ---- */

static json_t *fixed_value(const ls_state_entry *e, size_t i)
{
    const char *at = e->data;
    switch (e->type) {
    case LS_STATE_I64:
        return json_integer(((const int64_t *)(const void *)at)[i]);
    case LS_STATE_U64: { /* JSON integers are signed */
        char text[24];
        snprintf(text, sizeof(text), "%llu", (unsigned long long)((const uint64_t *)(const void *)at)[i]);
        return json_string(text);
    }
    case LS_STATE_F64:
        return ls_json_real(((const double *)(const void *)at)[i]);
    case LS_STATE_INT:
        return json_integer(((const int *)(const void *)at)[i]);
    case LS_STATE_BOOL:
        return json_boolean(((const bool *)(const void *)at)[i]);
    case LS_STATE_TEXT:
        return json_stringn(at, e->bytes);
    }
    return NULL;
}

size_t ls_state_entry_count(const ls_state_entry *e)
{
    static const size_t sizes[] = { [LS_STATE_I64] = sizeof(int64_t),
                                    [LS_STATE_U64] = sizeof(uint64_t),
                                    [LS_STATE_F64] = sizeof(double),
                                    [LS_STATE_INT] = sizeof(int),
                                    [LS_STATE_BOOL] = sizeof(bool) };
    return e->type == LS_STATE_TEXT ? 1 : e->bytes / sizes[e->type];
}

json_t *ls_state_entry_json(const ls_state_entry *e)
{
    size_t count = ls_state_entry_count(e);
    if (count == 1)
        return fixed_value(e, 0);
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        if (json_array_append_new(array, fixed_value(e, i)) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static ls_status put_fixed(ls_job *job, const ls_facts *facts, bool in_fit)
{
    ls_state_entry *entries = NULL;
    size_t count = 0;
    LS_TRY(ls_job_list(job, &entries, &count));
    ls_status status = LS_OK;
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        const ls_state_entry *e = &entries[i];
        bool is_lanes = strcmp(e->name, "lanes") == 0; /* lanes affect only the bits */
        if (e->kind == LS_STATE_FIXED && (in_fit || !e->of_fit))
            status = ls_facts_put(is_lanes    ? facts->bits
                                  : e->of_fit ? facts->fit
                                              : facts->job,
                                  is_lanes ? "lanes_asked_for" : e->name, ls_state_entry_json(e));
    }
    free(entries);
    return status;
}

/* Only factors other than 1, so that checkpoints without them stay as they are. */
static ls_status put_rates(const ls_model *model, json_t *object)
{
    json_t *rates = NULL;
    for (size_t i = 0; i < ls_model_variable_count(model); i++) {
        double factor = ls_model_variable(model, i)->attr.variable.variable->rate;
        if (factor == 0 || factor == 1 || !ls_model_variable_is_trainable(model, i))
            continue;
        if (!rates)
            LS_TRY(ls_facts_put(object, "layer_rates", rates = json_object()));
        LS_TRY(ls_facts_put(rates, ls_model_variable_name(model, i), json_real(factor)));
    }
    return LS_OK;
}

static ls_status put_job(ls_job *job, json_t *object)
{
    LS_TRY(put_text(object, "model", ls_model_name(job->model)));
    LS_TRY(put_rates(job->model, object));
    json_t *losses, *metrics;
    LS_TRY(ls_facts_put(object, "losses", losses = json_array()));
    LS_TRY(ls_facts_put(object, "results", metrics = json_array()));
    int failed = 0;
    for (size_t i = 0; i < job->target_count; i++)
        failed |= json_array_append_new(losses, json_string(ls_loss_name(&job->targets[i].loss)));
    for (size_t i = 0; i < job->name_count; i++)
        failed |= json_array_append_new(metrics, json_string(ls_is_utf8(job->names[i]) ? job->names[i] : "?"));
    return failed ? ls_fail(LS_ERR_MEMORY, "no memory for the names of losses and metrics") : LS_OK;
}

static ls_status put_fit(const ls_fit_facts *fit, json_t *object)
{
    const ls_fit_options *o = fit->options;
    char hex[65];
    LS_TRY(hash_loss(fit->function->loss, hex));
    LS_TRY(ls_facts_put(object, "layers_and_loss_sha256", json_string(hex)));
    LS_TRY(put_data(object, "data", fit->data));
    LS_TRY(ls_facts_put(object, "shuffle", json_boolean(!o->keep_order)));
    LS_TRY(ls_facts_put(object, "steps_per_epoch", json_integer(o->steps_per_epoch)));
    LS_TRY(ls_facts_put(object, "validation_split", ls_json_real(o->validation_split)));
    if (fit->validation) {
        LS_TRY(put_data(object, "validation", fit->validation));
        LS_TRY(ls_facts_put(object, "validation_batch_size", json_integer(fit->validation->spec.batch)));
    }
    if (o->class_count == 0)
        return LS_OK;
    json_t *weights;
    LS_TRY(ls_facts_put(object, "class_weights", weights = json_array()));
    for (size_t i = 0; i < o->class_count; i++)
        if (json_array_append_new(weights, ls_json_real(o->class_weights[i])) != 0)
            return ls_fail(LS_ERR_MEMORY, "no memory for the weights of %zu classes", o->class_count);
    return LS_OK;
}

static ls_status put_bits(ls_job *job, const ls_fit_facts *fit, json_t *object)
{
    char *bits = NULL;
    ls_graph *graph = ls_model_graph(job->model);
    LS_TRY(ls_bit_class(graph->context, &bits));
    ls_status status = put_text(object, "class", bits);
    free(bits);
    if (status != LS_OK || !fit)
        return status;
    const ls_placement *placement = NULL; /* placement of the plan, which is created here */
    LS_TRY(ls_run_placement(graph, &fit->settings->run, fit->function->fetches, fit->function->fetch_count,
                            fit->data->first, &placement));
    return ls_facts_put(object, "lanes", json_integer(placement->plan->lanes));
}

ls_status ls_facts_make(ls_job *job, ls_facts *out)
{
    const ls_fit_facts *fit = job->fit;
    bool in_fit = fit != NULL;
    ls_facts facts = { .job = json_object(), .fit = in_fit ? json_object() : json_null(), .bits = json_object() };
    ls_status status = put_job(job, facts.job);
    if (status == LS_OK && in_fit)
        status = put_fit(fit, facts.fit);
    if (status == LS_OK)
        status = put_bits(job, fit, facts.bits);
    if (status == LS_OK)
        status = put_fixed(job, &facts, in_fit);
    if (status == LS_OK)
        *out = facts;
    else
        ls_facts_free(&facts);
    return status;
}

void ls_facts_free(ls_facts *facts)
{
    json_decref(facts->job);
    json_decref(facts->fit);
    json_decref(facts->bits);
    *facts = (ls_facts){ .job = NULL };
}
