/* Compiling a model, and tracing its functions. */
#include <stdlib.h>
#include <string.h>

#include "base/fpmode.h"
#include "nn/model.h"
#include "train/training.h"

static void destroy(void *training)
{
    ls_training *t = training;
    if (!t)
        return;
    ls_scope_close(&t->scope);
    free(t);
}

/* A fresh state in a scope of its own; what was traced before ends: its nodes, slots and plans. */
static ls_status begin_training(ls_model *model, const ls_compile_options *options, const char *call)
{
    ls_graph *graph = ls_model_graph(model);
    if (graph->scope != (model->training ? model->training->frame : NULL))
        return ls_fail(LS_ERR_STATE,
                       "%s: a scope is open in the graph of model \"%s\", and what is compiled would end with it: "
                       "close the scope first",
                       call, ls_model_name(model));
    ls_training *training = calloc(1, sizeof(*training));
    if (!training)
        return ls_fail(LS_ERR_MEMORY, "no memory to compile model \"%s\"", ls_model_name(model));
    if (model->training)
        model->drop_training(model->training);
    training->model = model;
    training->options = *options;
    training->scope = ls_scope_open(graph);
    training->frame = graph->scope;
    model->training = training;
    model->drop_training = destroy;
    return LS_OK;
}

/* ---- Calls at work ---- */

/* Whether `call` may begin now: on this model, in this process, and not inside another that it would pull the ground
 * from under. */
static ls_status check_call(const ls_model *model, const char *call, bool alone)
{
    LS_TRY(ls_model_need_ready(model, call));
    LS_TRY(ls_context_check(model->context, call));
    if (alone && model->at_work)
        return ls_fail(LS_ERR_STATE, "%s: %s is at work on model \"%s\"; call it after that has returned", call,
                       model->at_work, ls_model_name(model));
    return LS_OK;
}

static void begin_use(ls_use *use, ls_model *model, const char *call)
{
    *use = (ls_use){ .outer = model->at_work, .training = model->training };
    model->at_work = call;
    ls_context_enter(model->context, call);
}

ls_status ls_use_begin(ls_use *use, ls_model *model, const char *call, bool alone)
{
    LS_TRY(check_call(model, call, alone));
    if (!model->training || model->training->options.loss.kind == LS_LOSS_NONE)
        return ls_fail(LS_ERR_STATE, "%s: model \"%s\" is not compiled: call ls_compile first", call,
                       ls_model_name(model));
    begin_use(use, model, call);
    return LS_OK;
}

ls_status ls_use_for_prediction(ls_use *use, ls_model *model, const char *call)
{
    LS_TRY(check_call(model, call, false));
    if (!model->training)
        LS_TRY(begin_training(model, &(ls_compile_options){ .ls_first = 0 }, call));
    begin_use(use, model, call);
    return LS_OK;
}

void ls_use_end(ls_use *use)
{
    use->training->model->at_work = use->outer;
    ls_context_leave(use->training->model->context, use->outer);
}

ls_status ls_compile_with(ls_model *model, ls_compile_options options)
{
    LS_OWN_FP_MODE;
    LS_TRY(check_call(model, "ls_compile", true));
    if (options.loss.kind == LS_LOSS_NONE)
        return ls_fail(LS_ERR_INVALID, "ls_compile: model \"%s\" needs a loss", ls_model_name(model));
    if (options.loss.options.reduction == LS_REDUCE_NONE)
        return ls_fail(LS_ERR_INVALID, "ls_compile: a loss without a reduction cannot be trained on; use mean or sum");
    if (options.metrics.count > LS_MAX_METRICS)
        return ls_fail(LS_ERR_INVALID, "ls_compile: %zu metrics, at most %d are possible", options.metrics.count,
                       LS_MAX_METRICS);
    if (ls_model_output_count(model) != 1)
        return ls_fail(LS_ERR_UNSUPPORTED, "ls_compile: model \"%s\" has %zu outputs; fit trains models with one",
                       ls_model_name(model), ls_model_output_count(model));
    LS_TRY(ls_graph_fill(ls_model_graph(model))); /* weights without room are told now, not when data is there */
    return begin_training(model, &options, "ls_compile");
}

/* ---- Tracing ---- */

/* One sample's shape with the batch axis in front. */
static ls_shape batched(const ls_shape *shape)
{
    ls_shape with = *shape;
    if (with.rank > 0)
        with.dims[0] = LS_BATCH;
    return with;
}

/* Whether the model scales this input itself. */
static bool begins_with_rescaling(const ls_model *model, size_t input)
{
    for (size_t i = 0; i < model->call_count; i++) {
        const ls_model_call *call = &model->calls[i];
        for (size_t k = 0; k < call->input_count; k++)
            if (call->layer->spec.kind == LS_LAYER_RESCALING &&
                model->calls[call->inputs[k]].layer == model->inputs[input])
                return true;
    }
    return false;
}

/* Features in the model's type: pixels become 0 to 1, unless the model scales them itself. */
static ls_tensor *feature(ls_training *t, size_t input, ls_tensor *x)
{
    ls_dtype wanted = ls_model_input_dtype(t->model, input), given = ls_tensor_dtype(x);
    if (wanted == given)
        return x;
    ls_tensor *y = ls_op_cast(x, wanted);
    bool pixels = given == LS_U8 && wanted == LS_F32 && !begins_with_rescaling(t->model, input);
    return pixels ? ls_op_div(y, ls_op_scalar(ls_model_graph(t->model), LS_F32, 255)) : y;
}

static ls_status check_spec(const ls_training *t, const ls_function *f)
{
    const ls_element_spec *spec = &f->spec;
    size_t inputs = ls_model_input_count(t->model);
    int wanted = f->kind == LS_FUNCTION_PREDICT ? 0 : 1;
    if (spec->features != (int)inputs || spec->labels < wanted)
        return ls_fail(LS_ERR_SHAPE, "model \"%s\" has %zu inputs and 1 target; the data has %d features and %d labels",
                       ls_model_name(t->model), inputs, spec->features, spec->labels);
    return LS_OK;
}

/* Gives every component that the function reads an input to feed. */
static void make_inputs(ls_training *t, ls_function *f)
{
    ls_graph *graph = ls_model_graph(t->model);
    int used = f->kind == LS_FUNCTION_PREDICT ? f->spec.features : f->spec.count;
    for (int i = 0; i < used; i++)
        f->inputs[i] = ls_op_input(graph, NULL, f->spec.component[i].dtype, batched(&f->spec.component[i].shape));
}

/* Weights of the samples: given ones times those of their classes; NULL: none. */
static ls_tensor *sample_weights(ls_training *t, ls_function *f)
{
    ls_tensor *weights = NULL, *labels = f->inputs[f->spec.features];
    if (f->spec.weights > 0)
        weights = ls_op_cast(f->inputs[f->spec.features + f->spec.labels], LS_F32);
    if (f->class_count == 0)
        return weights;
    f->class_weights = ls_op_input(ls_model_graph(t->model), NULL, LS_F32, LS_SHAPE((int64_t)f->class_count));
    ls_tensor *index = ls_op_reshape(ls_op_cast(labels, LS_I32), LS_SHAPE(LS_BATCH));
    ls_tensor *by_class = ls_op_gather(f->class_weights, index, 0);
    return weights ? ls_op_mul(weights, by_class) : by_class;
}

/* The gradients' update with the moving statistics, as one tensor. */
static ls_tensor *make_step(ls_training *t, ls_function *f, const ls_trace *trace)
{
    size_t count = ls_model_variable_count(t->model), trained = 0;
    ls_tensor **variables = calloc(count + 1, sizeof(*variables)), **gradients = calloc(count + 1, sizeof(*gradients));
    ls_tensor **parts = calloc(trace->update_count + 1, sizeof(*parts)), *step = NULL;
    for (size_t i = 0; variables && i < count; i++)
        if (ls_model_variable_is_trainable(t->model, i))
            variables[trained++] = ls_model_variable(t->model, i);
    if (variables && gradients && parts && ls_gradients(f->loss, variables, trained, gradients) == LS_OK) {
        f->learning_rate = ls_op_input(ls_model_graph(t->model), NULL, LS_F32, LS_SCALAR);
        parts[0] = ls_apply_gradients(t->options.optimizer, gradients, variables, trained, f->learning_rate);
        for (size_t i = 0; i < trace->update_count; i++)
            parts[i + 1] = trace->updates[i];
        step = ls_op_group(parts, trace->update_count + 1);
    }
    free(variables);
    free(gradients);
    free(parts);
    return step;
}

static ls_status trace_loss(ls_training *t, ls_function *f, ls_tensor *output, const ls_trace *trace)
{
    ls_tensor *targets = f->inputs[f->spec.features], *weights = sample_weights(t, f);
    f->loss = ls_loss_value(t->options.loss, targets, output, weights);
    if (trace->regularization)
        f->loss = ls_op_add(f->loss, trace->regularization);
    if (!ls_tensor_is_error(f->loss))
        f->loss->guards = true;
    f->fetches[f->fetch_count++] = f->loss;
    ls_tensor *given = f->spec.weights > 0 ? weights : NULL;
    for (size_t i = 0; i < t->options.metrics.count; i++) {
        f->sums[i] = ls_metric_sums(t->options.metrics.metric[i], targets, output, f->class_count ? NULL : given);
        f->fetches[f->fetch_count++] = f->sums[i];
    }
    if (f->kind == LS_FUNCTION_TRAIN) {
        ls_tensor *step = make_step(t, f, trace);
        if (!step)
            return ls_last_error()[0] ? LS_ERR_INVALID : ls_fail(LS_ERR_MEMORY, "no memory to trace a training step");
        f->fetches[f->fetch_count++] = step;
    }
    return LS_OK;
}

static ls_status trace_function(ls_training *t, ls_function *f)
{
    ls_tensor *features[LS_MAX_COMPONENTS];
    ls_trace trace = { .updates = NULL };
    LS_TRY(check_spec(t, f));
    make_inputs(t, f);
    for (int i = 0; i < f->spec.features; i++)
        features[i] = feature(t, (size_t)i, f->inputs[i]);
    ls_tensor **outputs = calloc(ls_model_output_count(t->model) + 1, sizeof(*outputs));
    if (!outputs)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu outputs", ls_model_output_count(t->model));
    ls_status status = ls_model_trace(t->model, features, f->kind == LS_FUNCTION_TRAIN, outputs, &trace);
    if (status == LS_OK && f->kind == LS_FUNCTION_PREDICT)
        f->fetches[f->fetch_count++] = outputs[f->output];
    else if (status == LS_OK)
        status = trace_loss(t, f, outputs[0], &trace);
    free(outputs);
    free(trace.updates);
    for (size_t i = 0; i < f->fetch_count && status == LS_OK; i++)
        if (ls_tensor_is_error(f->fetches[i]))
            status = f->fetches[i] ? ls_fail(f->fetches[i]->status, "%s", f->fetches[i]->message)
                                   : ls_fail(LS_ERR_INTERNAL, "tracing gave nothing");
    return status;
}

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

ls_status ls_training_function(ls_training *t, ls_function_kind kind, const ls_element_spec *spec,
                               ls_function_choice choice, ls_function **out)
{
    for (int i = 0; i < t->function_count; i++) {
        ls_function *f = &t->functions[i];
        if (f->kind == kind && f->class_count == choice.class_count && f->output == choice.output &&
            same_spec(&f->spec, spec)) {
            *out = f;
            return LS_OK;
        }
        if (f->kind == kind && kind == LS_FUNCTION_TRAIN)
            return ls_fail(
                LS_ERR_STATE,
                "model \"%s\" was trained on data of other types, sizes or weights; call ls_compile again first",
                ls_model_name(t->model));
    }
    if (kind == LS_FUNCTION_TRAIN && t->options.optimizer.kind == LS_OPTIMIZER_NONE)
        return ls_fail(LS_ERR_STATE, "model \"%s\" is compiled without an optimizer: it can be evaluated, not trained",
                       ls_model_name(t->model));
    if (t->function_count == LS_MAX_FUNCTIONS)
        return ls_fail(LS_ERR_UNSUPPORTED, "model \"%s\" has met more than %d kinds of data; call ls_compile again",
                       ls_model_name(t->model), LS_MAX_FUNCTIONS);
    if (ls_model_graph(t->model)->scope != t->frame)
        return ls_fail(LS_ERR_STATE,
                       "%s: a scope is open in the graph of model \"%s\", and what is traced for this data would end "
                       "with it: close the scope first",
                       t->model->at_work, ls_model_name(t->model));
    ls_function *f = &t->functions[t->function_count];
    *f = (ls_function){ .kind = kind, .spec = *spec, .class_count = choice.class_count, .output = choice.output };
    LS_TRY(trace_function(t, f));
    t->function_count++;
    *out = f;
    return LS_OK;
}

/* ---- Running ---- */

static ls_status feed_classes(const ls_function *f, const double *class_weights, float **out, ls_feed *feed)
{
    float *classes = malloc((f->class_count + 1) * sizeof(*classes));
    if (!classes)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu class weights", f->class_count);
    for (size_t i = 0; i < f->class_count; i++)
        classes[i] = (float)class_weights[i];
    *feed = (ls_feed){ f->class_weights, ls_array_of(LS_F32, LS_SHAPE((int64_t)f->class_count), classes) };
    *out = classes;
    return LS_OK;
}

ls_status ls_function_run(ls_training *t, ls_function *f, const ls_settings *settings, const ls_batch_view *batch,
                          const double *class_weights)
{
    ls_feed feeds[LS_MAX_COMPONENTS + 2];
    size_t count = 0;
    float rate, *classes = NULL;
    bool by_class = t->options.loss.kind == LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY || f->class_weights;
    if (f->kind != LS_FUNCTION_PREDICT && by_class)
        LS_TRY(ls_check_class_labels(&batch->element->component[f->spec.features], batch->rows, batch->samples));
    for (int i = 0; i < LS_MAX_COMPONENTS && f->inputs[i]; i++)
        feeds[count++] = (ls_feed){ f->inputs[i], batch->element->component[i] };
    if (f->learning_rate) {
        double exact;
        LS_TRY(ls_optimizer_rate(&t->options.optimizer, t->step, f->spec.batch, &exact));
        rate = (float)exact;
        feeds[count++] = (ls_feed){ f->learning_rate, ls_array_of(LS_F32, LS_SCALAR, &rate) };
    }
    if (f->class_weights)
        LS_TRY(feed_classes(f, class_weights, &classes, &feeds[count++]));
    const ls_run_request request = { .graph = ls_model_graph(t->model),
                                     .settings = &settings->run,
                                     .feeds = feeds,
                                     .feed_count = count,
                                     .rows = batch->rows,
                                     .row_count = batch->samples,
                                     .fetches = f->fetches,
                                     .fetch_count = f->fetch_count };
    ls_run_report report;
    ls_status status = ls_run(&request, &report);
    free(classes);
    if (status == LS_OK && f->kind == LS_FUNCTION_TRAIN) {
        t->times.join += report.join_seconds;
        t->step++;
    }
    return status;
}

/* ---- Settings ---- */

ls_status ls_settings_make(const ls_training *t, const ls_strategy *strategy, int lanes, ls_settings *out)
{
    ls_graph *graph = ls_model_graph(t->model);
    ls_runs *runs = NULL;
    int count = 0;
    if (lanes < 0 || lanes > LS_MAX_LANES)
        return ls_fail(LS_ERR_INVALID, "%d lanes: 0 to %d are possible", lanes, LS_MAX_LANES);
    LS_TRY(ls_runs_of(graph, &runs));
    LS_TRY(ls_device_list(strategy, graph->context, &out->devices, &count));
    out->run = runs->settings;
    if (lanes > 0)
        out->run.plan.lanes = lanes;
    out->run.plan.map = (ls_map){ .devices = out->devices, .count = count };
    return LS_OK;
}

void ls_settings_free(ls_settings *settings)
{
    free(settings->devices);
    settings->devices = NULL;
}
