/* Traces the functions of a job: train, evaluate and predict. */
#include <stdlib.h>

#include "nn/model.h"
#include "train/job/job.h"

/* Replaces the first axis by the batch axis. */
static ls_shape batched(const ls_shape *shape)
{
    ls_shape with = *shape;
    if (with.rank > 0)
        with.dims[0] = LS_BATCH;
    return with;
}

/* By a Rescaling, or by a Normalization, whose statistics are those of the data as it is. */
static bool begins_with_rescaling(const ls_model *model, size_t input)
{
    for (size_t i = 0; i < model->call_count; i++) {
        const ls_model_call *call = &model->calls[i];
        for (size_t k = 0; k < call->input_count; k++)
            if (model->calls[call->inputs[k]].layer == model->inputs[input] &&
                (call->layer->spec.kind == LS_LAYER_RESCALING || call->layer->spec.kind == LS_LAYER_NORMALIZATION ||
                 (call->layer->inner && begins_with_rescaling(call->layer->inner, k))))
                return true;
    }
    return false;
}

static bool is_traced(const ls_job *job, size_t input, const ls_tensor *x)
{
    for (int i = 0; i < job->function_count; i++) {
        const ls_spec *c = &job->functions[i].spec.component[input];
        ls_shape shape = batched(&c->shape);
        if (c->dtype == x->dtype && ls_shape_equal(&shape, &x->shape))
            return true;
    }
    return false;
}

/* Casts a feature to the model's type. uint8 images ([N,H,W] or more axes) are scaled to 0..1
 * unless the model rescales them itself; other uint8 data keeps its values. */
static ls_tensor *feature(ls_job *job, size_t input, ls_tensor *x)
{
    ls_dtype wanted = ls_model_input_dtype(job->model, input), given = ls_tensor_dtype(x);
    if (wanted == given || ls_tensor_is_error(x))
        return x;
    ls_tensor *y = ls_op_cast(x, wanted);
    if (given != LS_U8 || wanted != LS_F32 || begins_with_rescaling(job->model, input))
        return y;
    char shape[LS_SHAPE_TEXT];
    bool image = x->shape.rank >= 3;
    if (!is_traced(job, input, x))
        ls_log_write(&ls_model_graph(job->model)->context->log, LS_LOG_INFO, "model \"%s\": input %zu, uint8 %s, %s",
                     ls_model_name(job->model), input, ls_shape_format(&x->shape, shape),
                     image ? "is an image: it is divided by 255" : "is not an image: it is not divided by 255");
    return image ? ls_op_div(y, ls_op_scalar(ls_model_graph(job->model), LS_F32, 255)) : y;
}

/* ---- Inputs ---- */

static ls_status check_spec(const ls_job *job, const ls_function *f)
{
    const ls_element_spec *spec = &f->spec;
    size_t inputs = ls_model_input_count(job->model);
    int wanted = f->kind == LS_FUNCTION_PREDICT ? 0 : (int)job->target_count;
    if (spec->features != (int)inputs || spec->labels < wanted)
        return ls_fail(LS_ERR_SHAPE,
                       "model \"%s\" has %zu inputs and %zu targets, but the data has %d features and %d labels",
                       ls_model_name(job->model), inputs, job->target_count, spec->features, spec->labels);
    if (wanted > 1 && f->class_count > 0)
        return ls_fail(LS_ERR_INVALID, "class weights need a model with one target; \"%s\" has %d; use sample weights",
                       ls_model_name(job->model), wanted);
    if (wanted > 0 && spec->weights > 1 && spec->weights != wanted)
        return ls_fail(LS_ERR_SHAPE, "model \"%s\" has %d targets, but the data has sample weights for %d",
                       ls_model_name(job->model), wanted, spec->weights);
    return LS_OK;
}

static void make_inputs(ls_job *job, ls_function *f)
{
    ls_graph *graph = ls_model_graph(job->model);
    int used = f->kind == LS_FUNCTION_PREDICT ? f->spec.features : f->spec.count;
    for (int i = 0; i < used; i++)
        f->inputs[i] = ls_op_input(graph, NULL, f->spec.component[i].dtype, batched(&f->spec.component[i].shape));
}

static ls_tensor *label(const ls_function *f, size_t target)
{
    return f->inputs[(size_t)f->spec.features + target];
}

static ls_tensor *given_weights(const ls_function *f, size_t target)
{
    size_t first = (size_t)(f->spec.features + f->spec.labels);
    return f->spec.weights == 0 ? NULL : ls_op_cast(f->inputs[first + (f->spec.weights > 1 ? target : 0)], LS_F32);
}

static ls_tensor *sample_weights(ls_job *job, ls_function *f, size_t target, ls_tensor *given)
{
    if (f->class_count == 0)
        return given;
    f->class_weights = ls_op_input(ls_model_graph(job->model), NULL, LS_F32, LS_SHAPE((int64_t)f->class_count));
    ls_tensor *index = ls_op_reshape(ls_op_cast(label(f, target), LS_I32), LS_SHAPE(LS_BATCH));
    ls_tensor *by_class = ls_op_gather(f->class_weights, index, 0);
    return given ? ls_op_mul(given, by_class) : by_class;
}

/* With fewer weights than classes, some labels would have no weight. */
static ls_status check_class_weights(const ls_job *job, const ls_function *f, ls_tensor *const *outputs)
{
    for (size_t i = 0; i < job->target_count && f->class_count > 0; i++) {
        const ls_target *t = &job->targets[i];
        ls_shape shape = ls_tensor_shape(outputs[t->output]);
        int64_t classes = shape.rank > 0 ? shape.dims[shape.rank - 1] : 0;
        if (t->loss.kind == LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY && (int64_t)f->class_count != classes)
            return ls_fail(
                LS_ERR_INVALID,
                "%zu class weights for %lld classes; give one weight for each class of the model's output (1 "
                "for a class that is not weighted)",
                f->class_count, (long long)classes);
    }
    return LS_OK;
}

/* ---- Losses and metrics ---- */

static void fetch(ls_function *f, ls_tensor *tensor)
{
    f->fetches[f->fetch_count++] = tensor;
}

static void trace_losses(ls_job *job, ls_function *f, ls_tensor *const *outputs, const ls_trace *trace)
{
    for (size_t i = 0; i < job->target_count; i++) {
        const ls_target *t = &job->targets[i];
        ls_tensor *weights = sample_weights(job, f, i, given_weights(f, i));
        f->losses[i] = ls_loss_value(t->loss, label(f, i), outputs[t->output], weights);
        ls_tensor *part = t->weight == 1 ? f->losses[i] : ls_op_scale(f->losses[i], t->weight);
        f->loss = i == 0 ? part : ls_op_add(f->loss, part);
    }
    if (trace->regularization)
        f->loss = ls_op_add(f->loss, trace->regularization);
    if (!ls_tensor_is_error(f->loss))
        f->loss->guards = true;
    fetch(f, f->loss);
    for (size_t i = 0; i < job->target_count && job->target_count > 1; i++)
        fetch(f, f->losses[i]);
}

static void trace_metrics(ls_job *job, ls_function *f, ls_tensor *const *outputs)
{
    for (size_t i = 0; i < job->metric_count; i++) {
        size_t target = job->metric_target[i];
        ls_tensor *weights = f->class_count ? NULL : given_weights(f, target);
        f->sums[i] = ls_metric_sums(job->metrics[i], label(f, target), outputs[job->targets[target].output], weights);
        fetch(f, f->sums[i]);
    }
}

/* ---- The step ---- */

/* Takes ownership of the trace's updates. */
static ls_status find_gradients(ls_job *job, ls_function *f, ls_trace *trace)
{
    size_t count = ls_model_variable_count(job->model);
    ls_step_nodes *s = &f->step;
    s->updates = trace->updates;
    s->update_count = trace->update_count;
    trace->updates = NULL;
    s->variables = calloc(count + 1, sizeof(ls_tensor *));
    s->gradients = calloc(count + 1, sizeof(ls_tensor *));
    if (!s->variables || !s->gradients)
        return ls_fail(LS_ERR_MEMORY, "no memory to trace a training step");
    for (size_t i = 0; i < count; i++)
        if (ls_model_variable_is_trainable(job->model, i))
            s->variables[s->count++] = ls_model_variable(job->model, i);
    return ls_gradients(f->loss, s->variables, s->count, s->gradients);
}

static ls_status join_updates(ls_tensor *apply, ls_tensor *const *updates, size_t count, ls_tensor **out)
{
    ls_tensor **parts = calloc(count + 1, sizeof(*parts));
    if (!parts)
        return ls_fail(LS_ERR_MEMORY, "no memory to trace a training step");
    parts[0] = apply;
    for (size_t i = 0; i < count; i++)
        parts[i + 1] = updates[i];
    *out = ls_op_group(parts, count + 1);
    free(parts);
    return *out ? LS_OK : ls_fail(LS_ERR_INVALID, "the model has no trainable variable");
}

static ls_status trace_step(ls_job *job, ls_function *f, ls_trace *trace)
{
    ls_tensor *step = NULL;
    LS_TRY(find_gradients(job, f, trace));
    f->learning_rate = ls_op_input(ls_model_graph(job->model), NULL, LS_F32, LS_SCALAR);
    ls_tensor *apply =
        ls_apply_gradients(job->optimizer, f->step.gradients, f->step.variables, f->step.count, f->learning_rate);
    LS_TRY(join_updates(apply, f->step.updates, f->step.update_count, &step));
    fetch(f, step);
    return LS_OK;
}

static ls_status check_fetches(ls_tensor *const *fetches, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ls_tensor_is_error(fetches[i]))
            return fetches[i] ? ls_fail(fetches[i]->status, "%s", fetches[i]->message)
                              : ls_fail(LS_ERR_INTERNAL, "the model's trace has no output");
    return LS_OK;
}

static ls_status trace_outputs(ls_job *job, ls_function *f, ls_tensor **outputs, ls_trace *trace)
{
    ls_tensor *features[LS_MAX_COMPONENTS];
    for (int i = 0; i < f->spec.features; i++)
        features[i] = feature(job, (size_t)i, f->inputs[i]);
    LS_TRY(ls_model_trace(job->model, features, f->kind == LS_FUNCTION_TRAIN, outputs, trace));
    if (f->kind == LS_FUNCTION_PREDICT) {
        for (size_t i = 0; i < ls_model_output_count(job->model); i++)
            if (f->output == i || f->output == LS_EVERY_OUTPUT)
                fetch(f, outputs[i]);
        return LS_OK;
    }
    LS_TRY(check_class_weights(job, f, outputs));
    trace_losses(job, f, outputs, trace);
    trace_metrics(job, f, outputs);
    return f->kind == LS_FUNCTION_TRAIN ? trace_step(job, f, trace) : LS_OK;
}

static ls_status trace_function(ls_job *job, ls_function *f)
{
    ls_trace trace = { .updates = NULL };
    LS_TRY(check_spec(job, f));
    make_inputs(job, f);
    ls_tensor **outputs = calloc(ls_model_output_count(job->model) + 1, sizeof(*outputs));
    if (!outputs)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu outputs", ls_model_output_count(job->model));
    ls_status status = trace_outputs(job, f, outputs, &trace);
    free(outputs);
    free(trace.updates);
    if (status == LS_OK)
        status = check_fetches(f->fetches, f->fetch_count);
    if (status != LS_OK)
        ls_function_free(f);
    return status;
}

void ls_function_free(ls_function *f)
{
    free(f->step.variables);
    free(f->step.gradients);
    free(f->step.updates);
    f->step = (ls_step_nodes){ .count = 0 };
}

/* ---- Lookup ---- */

static bool same_spec(const ls_element_spec *a, const ls_element_spec *b)
{
    if (a->count != b->count || a->features != b->features || a->labels != b->labels || a->weights != b->weights)
        return false;
    for (int i = 0; i < a->count; i++) {
        ls_shape x = batched(&a->component[i].shape), y = batched(&b->component[i].shape);
        if (a->component[i].dtype != b->component[i].dtype || !ls_shape_equal(&x, &y))
            return false;
    }
    return true;
}

ls_status ls_job_function(ls_job *job, ls_function_kind kind, const ls_element_spec *spec, ls_function_choice choice,
                          ls_function **out)
{
    for (int i = 0; i < job->function_count; i++) {
        ls_function *f = &job->functions[i];
        if (f->kind == kind && f->class_count == choice.class_count && f->output == choice.output &&
            same_spec(&f->spec, spec)) {
            *out = f;
            return LS_OK;
        }
    }
    if (kind == LS_FUNCTION_TRAIN && job->optimizer.kind == LS_OPTIMIZER_NONE)
        return ls_fail(LS_ERR_STATE,
                       "model \"%s\" is compiled without an optimizer and cannot be trained; compile it with one",
                       ls_model_name(job->model));
    if (job->function_count == LS_MAX_FUNCTIONS)
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "model \"%s\" was used with more than %d kinds of data (shapes, types, weights); call ls_compile again",
            ls_model_name(job->model), LS_MAX_FUNCTIONS);
    if (ls_model_graph(job->model)->scope != job->scope_entry)
        return ls_fail(
            LS_ERR_STATE,
            "%s: a scope is open in the graph of model \"%s\" and would end what is traced for this data; close "
            "the scope first",
            job->model->at_work, ls_model_name(job->model));
    ls_function *f = &job->functions[job->function_count];
    *f = (ls_function){ .kind = kind, .spec = *spec, .class_count = choice.class_count, .output = choice.output };
    LS_TRY(trace_function(job, f));
    job->function_count++;
    *out = f;
    return LS_OK;
}
