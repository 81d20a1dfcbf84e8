/* Compiles a model: makes its job and the optimizer's slots. */
#include <math.h>
#include <stdlib.h>

#include "base/fpmode.h"
#include "base/text.h"
#include "graph/claim.h"
#include "nn/model.h"
#include "nn/parts.h"
#include "train/job/job.h"
#include "train/job/results.h"
#include "train/job/step.h"
#include "train/job/times.h"

static void destroy(void *user)
{
    ls_job *job = user;
    for (int i = 0; i < job->function_count; i++)
        ls_function_free(&job->functions[i]);
    ls_scope_close(&job->scope);
    ls_optimizer_state_free(&job->state);
    ls_tally_end(&job->tally);
    ls_fit_seconds_free(job->seconds);
    ls_profile_free(job->profile);
    ls_arena_free(&job->arena);
    free(job);
}

/* Ends the job of another model of the graph if it only predicted: that model can predict again. */
static void end_prediction(const ls_model *model)
{
    for (ls_model *other = model->beside; other && other != model; other = other->beside)
        if (other->job && other->job->target_count == 0 && !other->at_work &&
            other->job->scope_entry == model->graph->scope) {
            other->drop_job(other->job);
            other->job = NULL;
        }
}

/* Creates a job in its own scope. Ends the previous one with its nodes, slots and plans. */
static ls_status begin_job(ls_model *model, const char *call, ls_job **out)
{
    ls_graph *graph = ls_model_graph(model);
    if (!model->job)
        end_prediction(model);
    if (graph->scope != (model->job ? model->job->scope_entry : NULL))
        return ls_fail(LS_ERR_STATE,
                       "%s: a scope is open in the graph of model \"%s\" and would end what is compiled now; %s", call,
                       ls_model_name(model),
                       model->beside ? "it is another's scope, or another model of the graph is compiled: predict with "
                                       "a copy, made by ls_nested"
                                     : "close the scope first");
    ls_job *job = calloc(1, sizeof(*job));
    if (!job)
        return ls_fail(LS_ERR_MEMORY, "no memory to compile model \"%s\"", ls_model_name(model));
    if (model->job)
        model->drop_job(model->job);
    job->model = model;
    job->rate = NAN;
    job->scope = ls_scope_open(graph);
    job->scope_entry = graph->scope;
    model->job = *out = job;
    model->drop_job = destroy;
    return LS_OK;
}

/* ---- Running calls ---- */

static ls_status check_call(const ls_model *model, const char *call, bool alone)
{
    LS_TRY(ls_model_need_ready(model, call));
    LS_TRY(ls_context_check(model->context, call));
    if (alone && model->at_work)
        return ls_fail(LS_ERR_STATE, "%s: %s is running on model \"%s\"; call it after that has returned", call,
                       model->at_work, ls_model_name(model));
    return LS_OK;
}

static void begin_use(ls_use *use, ls_model *model, const char *call)
{
    *use = (ls_use){ .outer = model->at_work, .job = model->job };
    model->at_work = call;
    ls_context_enter(model->context, call);
}

ls_status ls_use_begin(ls_use *use, ls_model *model, const char *call, bool alone)
{
    LS_TRY(check_call(model, call, alone));
    if (!model->job || model->job->target_count == 0)
        return ls_fail(LS_ERR_STATE, "%s: model \"%s\" is not compiled; call ls_compile first", call,
                       ls_model_name(model));
    begin_use(use, model, call);
    return LS_OK;
}

ls_status ls_use_for_prediction(ls_use *use, ls_model *model, const char *call)
{
    ls_job *job;
    LS_TRY(check_call(model, call, false));
    if (!model->job)
        LS_TRY(begin_job(model, call, &job));
    begin_use(use, model, call);
    return LS_OK;
}

void ls_use_end(ls_use *use)
{
    use->job->model->at_work = use->outer;
    ls_context_leave(use->job->model->context, use->outer);
}

/* ---- Compiling ---- */

static ls_output output_of(const ls_compile_options *o, size_t i)
{
    return o->outputs ? o->outputs[i] : (ls_output){ .loss = o->loss, .metrics = o->metrics };
}

static ls_status check_outputs(const ls_model *model, const ls_compile_options *o)
{
    size_t count = ls_model_output_count(model);
    const char *name = ls_model_name(model);
    if (o->outputs && o->output_count != count)
        return ls_fail(LS_ERR_INVALID, "ls_compile: model \"%s\" has %zu outputs, but output_count is %zu", name, count,
                       o->output_count);
    if (o->outputs && (o->loss.kind != LS_LOSS_NONE || o->metrics.count > 0))
        return ls_fail(LS_ERR_INVALID,
                       "ls_compile: .outputs excludes .loss and .metrics; put losses and metrics into .outputs");
    if (!o->outputs && count > 1 && o->metrics.count > 0)
        return ls_fail(LS_ERR_INVALID, "ls_compile: model \"%s\" has %zu outputs; use .outputs to give metrics to each",
                       name, count);
    if (count > LS_MAX_OUTPUTS)
        return ls_fail(LS_ERR_UNSUPPORTED, "ls_compile: model \"%s\" has %zu outputs; at most %d are supported", name,
                       count, LS_MAX_OUTPUTS);
    return LS_OK;
}

static ls_status check_options(const ls_model *model, const ls_compile_options *o)
{
    size_t losses = 0, metrics = 0;
    LS_TRY(check_outputs(model, o));
    for (size_t i = 0; i < ls_model_output_count(model); i++) {
        ls_output output = output_of(o, i);
        double weight = ls_spec_number(output.weight, 1);
        if (output.loss.options.reduction == LS_REDUCE_NONE)
            return ls_fail(LS_ERR_INVALID, "ls_compile: a loss without a reduction cannot be trained; use mean or sum");
        if (!(weight >= 0 && weight <= 1e30))
            return ls_fail(LS_ERR_INVALID, "ls_compile: the weight of output %zu must be from 0 to 1e30, got %g", i,
                           weight);
        if (output.loss.kind == LS_LOSS_NONE && output.metrics.count > 0)
            return ls_fail(LS_ERR_INVALID, "ls_compile: output %zu has metrics but no loss; give it a loss", i);
        losses += output.loss.kind != LS_LOSS_NONE;
        metrics += output.metrics.count;
    }
    if (losses == 0)
        return ls_fail(LS_ERR_INVALID, "ls_compile: model \"%s\" needs a loss; set .loss or .outputs",
                       ls_model_name(model));
    if (metrics > LS_MAX_METRICS)
        return ls_fail(LS_ERR_INVALID, "ls_compile: %zu metrics; at most %d are supported", metrics, LS_MAX_METRICS);
    return LS_OK;
}

/* Adds a name as Keras does: "part", or "output_part" with several outputs. */
static ls_status add_name(ls_job *job, const ls_target *target, const char *part)
{
    ls_text text = { 0 };
    if (target && job->target_count > 1)
        ls_text_add(&text, "%s_", ls_model_output_name(job->model, target->output));
    ls_text_put(&text, part);
    char *name = text.failed ? NULL : ls_arena_strdup(&job->arena, ls_text_get(&text));
    ls_text_free(&text);
    job->names[job->name_count++] = name;
    return name ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for the names of results");
}

static ls_status copy_name(ls_job *job, const char **name)
{
    if (!*name)
        return LS_OK;
    *name = ls_arena_strdup(&job->arena, *name);
    return *name ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for the names of results");
}

/* Takes the number of classes from the model's output, if the metric needs one and has none. */
static ls_metric with_classes(const ls_model *model, size_t output, ls_metric metric)
{
    ls_shape shape = ls_model_output_shape(model, output);
    int64_t last = shape.rank > 0 ? shape.dims[shape.rank - 1] : 1;
    bool matrix = metric.kind == LS_METRIC_MEAN_IOU || metric.kind == LS_METRIC_CONFUSION;
    if (ls_metric_has_classes(&metric) && metric.num_classes == 0)
        metric.num_classes = matrix && last == 1 ? 2 : last; /* one score: two classes */
    return metric;
}

/* Results are in this order: the loss; with several outputs, the loss of each; metrics. */
static ls_status fill_job(ls_job *job, const ls_compile_options *o)
{
    for (size_t i = 0; i < ls_model_output_count(job->model); i++) {
        ls_output output = output_of(o, i);
        for (size_t k = 0; k < output.metrics.count; k++) {
            job->metric_target[job->metric_count] = job->target_count;
            job->metrics[job->metric_count] = with_classes(job->model, i, output.metrics.metric[k]);
            LS_TRY(copy_name(job, &job->metrics[job->metric_count++].name));
        }
        if (output.loss.kind == LS_LOSS_NONE)
            continue;
        LS_TRY(copy_name(job, &output.loss.options.name));
        job->targets[job->target_count++] =
            (ls_target){ .output = i, .loss = output.loss, .weight = ls_spec_number(output.weight, 1) };
    }
    LS_TRY(add_name(job, NULL, "loss"));
    for (size_t i = 0; i < job->target_count && job->target_count > 1; i++)
        LS_TRY(add_name(job, &job->targets[i], "loss"));
    for (size_t i = 0; i < job->metric_count; i++)
        LS_TRY(add_name(job, &job->targets[job->metric_target[i]], ls_metric_name(&job->metrics[i])));
    return ls_tally_begin(&job->tally, job);
}

/* The list of the job's state must not depend on when slots are made. */
static ls_status make_state(ls_job *job, const ls_optimizer *optimizer)
{
    size_t count = ls_model_variable_count(job->model), trained = 0;
    job->optimizer = *optimizer;
    LS_TRY(copy_name(job, &job->optimizer.options.exclude_from_weight_decay));
    LS_TRY(copy_name(job, &job->optimizer.options.exclude_layers));
    job->lane_norms = (int64_t)ls_model_norm_count(job->model, LS_PER_LANE);
    if (optimizer->kind == LS_OPTIMIZER_NONE)
        return LS_OK;
    ls_tensor **variables = calloc(count + 1, sizeof(*variables));
    if (!variables)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu variables", count);
    for (size_t i = 0; i < count; i++)
        if (ls_model_variable_is_trainable(job->model, i))
            variables[trained++] = ls_model_variable(job->model, i);
    ls_status status = trained ? ls_optimizer_state_make(optimizer, variables, trained, &job->state) : LS_OK;
    free(variables);
    job->optimizer.options.name = job->state.name;
    return status;
}

ls_status ls_compile_with(ls_model *model, ls_compile_options options)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    ls_job *job = NULL;
    LS_TRY(check_call(model, "ls_compile", true));
    LS_TRY(check_options(model, &options));
    if (options.optimizer.kind != LS_OPTIMIZER_NONE)
        LS_TRY(ls_optimizer_check(&options.optimizer));
    /* report missing memory now, not after data was read */
    LS_TRY(ls_graph_fill(ls_model_graph(model)));
    LS_TRY(begin_job(model, "ls_compile", &job));
    ls_status status = fill_job(job, &options);
    if (status == LS_OK)
        status = make_state(job, &options.optimizer);
    if (status != LS_OK) {
        destroy(job);
        model->job = NULL;
    }
    return status;
}

/* ---- The learning rate ---- */

ls_status ls_learning_rate(ls_model *model, double *out)
{
    LS_CLAIM(ls_model_claimed(model));
    ls_use use;
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_learning_rate: out is NULL");
    LS_TRY(ls_use_begin(&use, model, "ls_learning_rate", false));
    ls_status status = use.job->optimizer.kind == LS_OPTIMIZER_NONE
                           ? ls_fail(LS_ERR_STATE, "ls_learning_rate: model \"%s\" is compiled without an optimizer",
                                     ls_model_name(model))
                           : ls_job_rate(use.job, out);
    ls_use_end(&use);
    return status;
}

ls_status ls_set_learning_rate(ls_model *model, double rate)
{
    LS_CLAIM(ls_model_claimed(model));
    ls_use use;
    if (!(rate >= 0 && rate <= 1e30))
        return ls_fail(LS_ERR_INVALID, "ls_set_learning_rate: the rate must be from 0 to 1e30, got %g", rate);
    LS_TRY(ls_use_begin(&use, model, "ls_set_learning_rate", false));
    ls_status status = LS_OK;
    if (use.job->optimizer.kind == LS_OPTIMIZER_NONE)
        status = ls_fail(LS_ERR_STATE, "ls_set_learning_rate: model \"%s\" is compiled without an optimizer",
                         ls_model_name(model));
    else if (use.job->optimizer.options.schedule.kind != LS_SCHEDULE_CONSTANT)
        status = ls_fail(LS_ERR_STATE,
                         "ls_set_learning_rate: the optimizer of model \"%s\" has a learning rate schedule; compile it "
                         "without one to set the rate",
                         ls_model_name(model));
    else
        use.job->rate = rate;
    ls_use_end(&use);
    return status;
}
