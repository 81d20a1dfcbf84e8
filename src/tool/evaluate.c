/* The command `lockstep evaluate`. */
#include "tool/tool.h"

static ls_status check(const ls_options *options, tool_settings *settings)
{
    LS_TRY(tool_check_data(settings));
    LS_TRY(tool_check_loss(options, settings));
    return tool_check_devices(options, settings);
}

typedef struct outcome {
    const char *set;
    const tool_session *session;
    ls_results results;
} outcome;

static ls_status print_outcome(void *user)
{
    const outcome *out = user;
    tool_print_untrained(out->session);
    tool_print_results(out->set, &out->results);
    return LS_OK;
}

static ls_status evaluate(const tool_settings *settings, tool_session *session)
{
    ls_dataset *data;
    outcome out = { .session = session };
    LS_TRY(tool_open_context(settings, session));
    LS_TRY(tool_open_model(settings, session));
    LS_TRY(tool_open_set(settings, session, &data, &out.set));
    LS_TRY(tool_choose_loss(settings, session, data));
    LS_TRY(ls_compile(session->model, .loss = session->loss, .metrics = session->metrics));
    LS_TRY(ls_evaluate(session->model, data, &out.results, .batch_size = settings->batch_size,
                       .strategy = session->strategy, .lanes = (int)settings->lanes));
    tool_update_mute(session->ctx);
    return tool_print_once(session->ctx, print_outcome, &out);
}

static ls_status run(const tool_settings *settings, int *stopped_by)
{
    (void)stopped_by;
    tool_session session = { 0 };
    ls_status status = evaluate(settings, &session);
    tool_close(&session);
    return status;
}

const tool_command tool_evaluate = {
    .name = "evaluate",
    .arguments = "MODEL --data DATA --weights FILE",
    .summary = "compute a model's loss and metrics on the test or training set",
    .details =
        "Computes loss and metrics over a set; each sample counts once. Without --weights, the model is untrained.",
    .takes_model = true,
    .tables = { &tool_data_flags, &tool_set_flags, &tool_model_flags, &tool_shape_flags, &tool_loss_flags,
                &tool_batch_flags, &tool_count_flags, &tool_device_flags, &tool_placement_flags },
    .check = check,
    .run = run,
};
