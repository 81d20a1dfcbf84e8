/* ls_model_share: a copy of a model's inference function, with its own plans and buffers, over the
 * weights of the model. */
#include <stdlib.h>

#include "base/fpmode.h"
#include "device/context.h"
#include "graph/claim.h"
#include "graph/copy.h"
#include "graph/shared_weights.h"
#include "nn/model.h"
#include "run/inference.h"
#include "train/job/job.h"

struct ls_predictor {
    ls_graph *graph; /* copy of the formulas; its claim guards the predictor */
    ls_weights_view *weights;
    ls_variable **variables; /* variables of `graph`, in the order of the view */
    size_t variable_count;
    ls_tensor **inputs, **outputs; /* nodes of `graph` */
    size_t input_count, output_count;
    ls_inference *inference;
};

static ls_status no_memory(void)
{
    return ls_fail(LS_ERR_MEMORY, "ls_model_share: no memory for a predictor");
}

/* ---- Sharing ---- */

static void describe_inputs(const ls_model *model, bool uint8, ls_element_spec *spec)
{
    *spec = (ls_element_spec){ .features = (int)ls_model_input_count(model) };
    spec->count = spec->features;
    for (int i = 0; i < spec->count; i++) {
        spec->component[i].dtype = uint8 ? LS_U8 : ls_model_input_dtype(model, (size_t)i);
        spec->component[i].shape = ls_model_input_shape(model, (size_t)i);
    }
}

/* Copies weights that other devices have to host memory. */
static ls_status bring_weights(const ls_graph_copy *copy)
{
    for (size_t i = 0; i < copy->variable_count; i++)
        LS_TRY(ls_variable_sync_to_host(copy->from[i]));
    return LS_OK;
}

static void use_weights(ls_predictor *p)
{
    for (size_t i = 0; i < p->variable_count; i++)
        p->variables[i]->data = (void *)ls_weights_view_data(p->weights, i);
}

/* Takes the list of variables from `copy`. */
static ls_status connect(ls_predictor *p, ls_graph_copy *copy, const ls_function *f, ls_graph *from)
{
    p->inputs = calloc(p->input_count + 1, sizeof(ls_tensor *));
    p->outputs = calloc(p->output_count + 1, sizeof(ls_tensor *));
    if (!p->inputs || !p->outputs)
        return no_memory();
    for (size_t i = 0; i < p->input_count; i++) {
        p->inputs[i] = copy->copies[f->inputs[i]->id];
        if (!p->inputs[i]) /* no output depends on it, but callers give it */
            p->inputs[i] = ls_op_input(p->graph, NULL, f->inputs[i]->dtype, f->inputs[i]->shape);
        LS_TRY(ls_tensor_check(p->inputs[i]));
    }
    for (size_t i = 0; i < p->output_count; i++)
        p->outputs[i] = copy->copies[f->fetches[i]->id];
    LS_TRY(bring_weights(copy));
    LS_TRY(ls_weights_view_open(from, copy->from, copy->variable_count, &p->weights));
    p->variables = copy->to;
    p->variable_count = copy->variable_count;
    copy->to = NULL;
    use_weights(p);
    return ls_inference_create(p->graph, p->inputs, p->input_count, p->outputs, p->output_count, &p->inference);
}

static ls_status make(ls_job *job, const ls_share_options *options, ls_predictor *p)
{
    ls_model *model = job->model;
    ls_graph *from = ls_model_graph(model);
    ls_element_spec spec;
    ls_function *f = NULL;
    ls_graph_copy copy = { .copies = NULL };
    if (ls_model_output_count(model) > LS_MAX_OUTPUTS || ls_model_input_count(model) > LS_MAX_COMPONENTS)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "ls_model_share: model \"%s\" has %zu inputs and %zu outputs; at most %d and %d can be shared",
                       ls_model_name(model), ls_model_input_count(model), ls_model_output_count(model),
                       LS_MAX_COMPONENTS, LS_MAX_OUTPUTS);
    describe_inputs(model, options->uint8, &spec);
    LS_TRY(ls_job_function(job, LS_FUNCTION_PREDICT, &spec, (ls_function_choice){ .output = LS_EVERY_OUTPUT }, &f));
    p->input_count = ls_model_input_count(model);
    p->output_count = f->fetch_count;
    LS_TRY(ls_graph_create(from->context, &p->graph, .seed = from->seed));
    p->graph->reference = from->reference;
    ls_status status = ls_graph_copy_nodes(f->fetches, f->fetch_count, p->graph, &copy);
    if (status == LS_OK)
        status = connect(p, &copy, f, from);
    ls_graph_copy_free(&copy);
    return ls_fail_within(status, "ls_model_share: model \"%s\"", ls_model_name(model));
}

ls_status ls_model_share_with(ls_model *model, ls_share_options options, ls_predictor **out)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    ls_use use;
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_model_share: out is NULL");
    LS_TRY(ls_use_for_prediction(&use, model, "ls_model_share"));
    ls_predictor *p = calloc(1, sizeof(*p));
    ls_status status = p ? make(use.job, &options, p) : no_memory();
    ls_use_end(&use);
    if (status != LS_OK) {
        ls_predictor_destroy(p);
        return status;
    }
    *out = p;
    return LS_OK;
}

void ls_predictor_destroy(ls_predictor *p)
{
    if (!p)
        return;
    if (p->graph && ls_context_is_inherited(p->graph->context))
        return;
    if (p->graph && !ls_claim_to_destroy(p->graph, __func__))
        return;
    ls_inference_destroy(p->inference);
    ls_weights_view_close(p->weights);
    ls_graph_destroy(p->graph); /* may free the context */
    free(p->variables);
    free(p->inputs);
    free(p->outputs);
    free(p);
}

/* ---- Predicting ---- */

/* Learns the batch size from the first array. */
static ls_status check_array(const ls_tensor *node, const ls_array *array, const char *what, size_t number,
                             int64_t *batch)
{
    char wanted[LS_SHAPE_TEXT], given[LS_SHAPE_TEXT];
    bool fits = array->shape.rank == node->shape.rank && array->shape.rank > 0;
    if (array->dtype != node->dtype)
        return ls_fail(LS_ERR_DTYPE, "ls_predictor_run: %s %zu is %s, expected %s%s", what, number,
                       ls_dtype_name(array->dtype), ls_dtype_name(node->dtype),
                       array->dtype == LS_U8 ? "; share the model with .uint8 = true to give uint8 images" : "");
    if (fits && *batch < 0)
        *batch = array->shape.dims[0];
    for (int i = 0; fits && i < node->shape.rank; i++)
        fits = array->shape.dims[i] == (node->shape.dims[i] == LS_BATCH ? *batch : node->shape.dims[i]);
    if (!fits)
        return ls_fail(LS_ERR_SHAPE, "ls_predictor_run: %s %zu has shape %s, expected %s%s", what, number,
                       ls_shape_format(&array->shape, given), ls_shape_format(&node->shape, wanted),
                       *batch >= 0 ? " with the batch size of the first input" : "");
    if (!array->data)
        return ls_fail(LS_ERR_INVALID, "ls_predictor_run: the data of %s %zu is NULL", what, number);
    return LS_OK;
}

static ls_status check_arrays(const ls_predictor *p, const ls_array *inputs, size_t input_count,
                              const ls_array *outputs, size_t output_count, int64_t *batch)
{
    if (!inputs || !outputs)
        return ls_fail(LS_ERR_INVALID, "ls_predictor_run: %s is NULL", inputs ? "outputs" : "inputs");
    if (input_count != p->input_count || output_count != p->output_count)
        return ls_fail(LS_ERR_INVALID, "ls_predictor_run: the model has %zu inputs and %zu outputs, got %zu and %zu",
                       p->input_count, p->output_count, input_count, output_count);
    for (size_t i = 0; i < input_count; i++)
        LS_TRY(check_array(p->inputs[i], &inputs[i], "input", i, batch));
    for (size_t i = 0; i < output_count; i++)
        LS_TRY(check_array(p->outputs[i], &outputs[i], "output", i, batch));
    if (*batch < 1)
        return ls_fail(LS_ERR_SHAPE, "ls_predictor_run: the batch has no samples");
    return LS_OK;
}

ls_status ls_predictor_run(ls_predictor *p, const ls_array *inputs, size_t input_count, const ls_array *outputs,
                           size_t output_count)
{
    LS_CLAIM(p ? p->graph : NULL);
    LS_OWN_FP_MODE;
    int64_t batch = -1;
    bool changed = false;
    if (!p)
        return ls_fail(LS_ERR_INVALID, "ls_predictor_run: the predictor is NULL");
    LS_TRY(check_arrays(p, inputs, input_count, outputs, output_count, &batch));
    LS_TRY(ls_weights_view_refresh(p->weights, &changed));
    if (changed) {
        use_weights(p);
        ls_inference_forget_weights(p->inference);
    }
    return ls_inference_run(p->inference, inputs, outputs, batch);
}
