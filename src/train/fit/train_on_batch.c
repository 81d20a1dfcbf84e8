/* One training step, for custom loops. */
#include "base/fpmode.h"
#include "graph/claim.h"
#include "nn/model.h"
#include "train/job/job.h"
#include "train/job/passes.h"
#include "train/job/results.h"
#include "train/job/step.h"

typedef struct one_step {
    ls_job *job;
    const ls_batch_options *options;
    ls_settings settings;
    ls_passes passes;
    ls_tally tally;
} one_step;

static ls_status check(const ls_batch_options *o)
{
    if (o->class_count > 0 && !o->class_weights)
        return ls_fail(LS_ERR_INVALID, "ls_train_on_batch: class_weights is NULL but class_count is %zu",
                       o->class_count);
    return LS_OK;
}

/* Treats the arrays as a dataset of one batch. */
static ls_status run(one_step *s, ls_dataset *data, ls_results *out)
{
    const ls_batch_options *o = s->options;
    ls_function *function = NULL;
    ls_batch_view batch;
    bool end = false;
    int64_t samples;
    LS_TRY(ls_dataset_count(data, &samples));
    LS_TRY(ls_settings_make(s->job, &o->strategy, o->lanes, &s->settings));
    LS_TRY(ls_passes_open(&s->passes, ls_model_graph(s->job->model)->context, data,
                          &(ls_batching){ .otherwise = samples > 0 ? samples : 1 }));
    LS_TRY(ls_job_function(s->job, LS_FUNCTION_TRAIN, &s->passes.spec,
                           (ls_function_choice){ .class_count = o->class_count }, &function));
    LS_TRY(ls_passes_begin(&s->passes, 0));
    LS_TRY(ls_passes_next(&s->passes, &batch, &end));
    LS_TRY(ls_tally_begin(&s->tally, s->job));
    s->job->batch_size = samples;
    LS_TRY(ls_function_run(s->job, function, &s->settings, &batch, o->class_weights));
    LS_TRY(ls_tally_add(&s->tally, s->job, function, batch.samples));
    ls_tally_results(&s->tally, s->job, out);
    return LS_OK;
}

ls_status ls_train_on_batch_with(ls_model *model, ls_array x, ls_array y, ls_batch_options options)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    ls_use use;
    ls_results results;
    LS_TRY(check(&options));
    LS_TRY(ls_use_begin(&use, model, "ls_train_on_batch", true));
    ls_dataset *data = ls_from_tensor_slices_with((ls_arrays_options){ .features = x,
                                                                       .labels = y,
                                                                       .weights = options.sample_weights,
                                                                       .inputs = options.inputs,
                                                                       .input_count = options.input_count,
                                                                       .targets = options.targets,
                                                                       .target_count = options.target_count,
                                                                       .keep = LS_KEEP_BORROWED });
    one_step s = { .job = use.job, .options = &options };
    ls_status status = run(&s, data, &results);
    ls_tally_end(&s.tally);
    ls_passes_close(&s.passes);
    ls_settings_free(&s.settings);
    ls_dataset_destroy(data);
    ls_use_end(&use);
    if (status == LS_OK && options.out)
        *options.out = results;
    return status;
}
