/* Setup of a call that trains: options, data, settings, train function. */
#include <inttypes.h>

#include "train/job/job.h"
#include "train/job/passes.h"
#include "train/job/setup.h"

static ls_status check_options(const ls_fit_options *o, const char *call)
{
    const struct {
        const char *name;
        int64_t value;
    } counts[] = { { "epochs", o->epochs },
                   { "batch_size", o->batch_size },
                   { "initial_epoch", o->initial_epoch },
                   { "steps_per_epoch", o->steps_per_epoch },
                   { "max_steps", o->max_steps },
                   { "validation_batch_size", o->validation_batch_size },
                   { "lanes", o->lanes },
                   { "audit", o->audit },
                   { "trace.first_step", o->trace.first_step },
                   { "trace.last_step", o->trace.last_step } };
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        if (counts[i].value < 0)
            return ls_fail(LS_ERR_INVALID, "%s: %s must not be negative, got %" PRId64, call, counts[i].name,
                           counts[i].value);
    if (!(o->validation_split >= 0 && o->validation_split < 1))
        return ls_fail(LS_ERR_INVALID, "%s: validation_split must be at least 0 and below 1, got %g", call,
                       o->validation_split);
    if (o->validation && o->validation_split > 0)
        return ls_fail(LS_ERR_INVALID, "%s: validation data and validation_split exclude each other; give one of them",
                       call);
    if (o->trace.last_step > 0 && o->trace.last_step < o->trace.first_step)
        return ls_fail(LS_ERR_INVALID,
                       "%s: the timeline ends before it begins: trace.first_step is %" PRId64
                       ", trace.last_step %" PRId64,
                       call, o->trace.first_step, o->trace.last_step);
    if (o->class_count > 0 && !o->class_weights)
        return ls_fail(LS_ERR_INVALID, "%s: class_weights is NULL but class_count is %zu", call, o->class_count);
    return LS_OK;
}

static ls_status open_data(const ls_context *ctx, const ls_fit_options *o, ls_dataset *data, ls_fit_setup *s)
{
    const ls_batching batching = {
        .option = "batch_size", .asked = o->batch_size, .shuffle = !o->keep_order, .seed = o->seed
    };
    const ls_batching for_validation = { .option = "validation_batch_size",
                                         .asked = o->validation_batch_size,
                                         .otherwise = o->batch_size };
    ls_dataset *train = data, *held_back = NULL;
    ls_status status = LS_OK;
    if (o->validation_split > 0)
        status = ls_dataset_split(data, o->validation_split, &train, &held_back);
    if (status == LS_OK)
        status = ls_passes_open(&s->data, ctx, train, &batching);
    ls_dataset *validation = held_back ? held_back : o->validation;
    if (status == LS_OK && validation) {
        status = ls_passes_open(&s->validation, ctx, validation, &for_validation);
        s->validates = status == LS_OK;
    }
    if (o->validation_split > 0 && train != data) {
        ls_dataset_destroy(train);
        ls_dataset_destroy(held_back);
    }
    return status;
}

static ls_status set_up(ls_job *job, ls_dataset *data, const ls_fit_options *o, const char *call, ls_fit_setup *s)
{
    LS_TRY(check_options(o, call));
    LS_TRY(ls_settings_make(job, &o->strategy, o->lanes, &s->settings));
    s->settings.run.plan.audits = o->audit > 0;
    job->audit = o->audit;
    LS_TRY(open_data(ls_model_graph(job->model)->context, o, data, s));
    job->batch_size = s->data.spec.batch;
    s->epochs = o->epochs ? o->epochs : 1;
    s->steps = o->steps_per_epoch ? o->steps_per_epoch : s->data.steps;
    if (s->steps == LS_INFINITE)
        return ls_fail(LS_ERR_INVALID, "%s: the data has no end; set steps_per_epoch", call);
    return ls_job_function(job, LS_FUNCTION_TRAIN, &s->data.spec, (ls_function_choice){ .class_count = o->class_count },
                           &s->function);
}

ls_status ls_fit_set_up(ls_job *job, ls_dataset *data, const ls_fit_options *options, const char *call,
                        ls_fit_setup *out)
{
    ls_fit_setup s = { .steps = 0 };
    ls_status status = set_up(job, data, options, call, &s);
    if (status == LS_OK)
        *out = s;
    else
        ls_fit_setup_free(&s);
    return status;
}

void ls_fit_setup_free(ls_fit_setup *s)
{
    ls_passes_close(&s->data);
    ls_passes_close(&s->validation);
    ls_settings_free(&s->settings);
}
