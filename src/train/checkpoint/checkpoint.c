/* Public functions: ls_checkpoint_save and ls_checkpoint_restore. */
#include <unistd.h>

#include "base/fpmode.h"
#include "graph/claim.h"
#include "nn/model.h"
#include "train/checkpoint/checkpoint.h"
#include "train/job/job.h"

/* A running fit that saves there holds the lock. */
static ls_status write_content(ls_job *job, const char *dir, const ls_content *content)
{
    const ls_file_ops *ops = job->file_ops ? job->file_ops : &ls_system_file_ops;
    int lock = -1;
    size_t bytes = 0;
    if (!ls_checkpoint_writer_wait_idle(job->writer, dir))
        LS_TRY(ls_checkpoint_lock(ops, dir, &lock));
    ls_status status = ls_checkpoint_write(ops, dir, content, (ls_permission){ .ask = NULL }, &bytes);
    if (status == LS_OK)
        ls_checkpoint_link(ops, dir, "last", content->step);
    if (lock >= 0)
        close(lock);
    return status;
}

static ls_status save(ls_job *job, const char *dir)
{
    ls_content *content = NULL;
    LS_TRY(ls_job_content(job, &content));
    ls_status status = write_content(job, dir, content);
    ls_content_destroy(content);
    return status;
}

ls_status ls_checkpoint_save(ls_model *model, const char *dir)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    ls_use use;
    if (!dir)
        return ls_fail(LS_ERR_INVALID, "ls_checkpoint_save: needs a folder (dir is NULL)");
    LS_TRY(ls_use_begin(&use, model, "ls_checkpoint_save", false));
    bool swapped = use.job->state.swapped; /* in a callback that sees averages */
    ls_status status = ls_graph_fill(ls_model_graph(model));
    if (status == LS_OK)
        status = ls_optimizer_state_swap(&use.job->state, false);
    if (status == LS_OK)
        status = save(use.job, dir);
    if (status == LS_OK)
        status = ls_optimizer_state_swap(&use.job->state, swapped);
    ls_use_end(&use);
    return ls_fail_within(status, "ls_checkpoint_save");
}

static ls_status restore(ls_job *job, const char *from, const ls_restore_options *options)
{
    ls_logger *log = &ls_model_graph(job->model)->context->log;
    ls_checkpoint *found = NULL;
    char *difference = NULL;
    LS_TRY(ls_checkpoint_find(from, log, &found));
    if (!found)
        return ls_fail(LS_ERR_NOT_FOUND, "no checkpoint found in '%s'", from);
    ls_status status =
        ls_checkpoint_fits(found, job, (ls_fits){ job->fit != NULL, options->allow_other_bits }, &difference);
    if (status == LS_OK)
        status = ls_checkpoint_put(found, job);
    if (status == LS_OK && difference)
        ls_log_write(log, LS_LOG_WARNING, "'%s' was saved by a run with other bits: %s", found->path, difference);
    free(difference);
    ls_checkpoint_close(found);
    return status;
}

ls_status ls_checkpoint_restore_with(ls_model *model, const char *from, ls_restore_options options)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    ls_use use;
    if (!from)
        return ls_fail(LS_ERR_INVALID,
                       "ls_checkpoint_restore: needs a checkpoint or a folder of checkpoints (from is NULL)");
    LS_TRY(ls_use_begin(&use, model, "ls_checkpoint_restore", false));
    ls_status status = ls_graph_fill(ls_model_graph(model));
    if (status == LS_OK)
        status = restore(use.job, from, &options);
    ls_use_end(&use);
    return ls_fail_within(status, "ls_checkpoint_restore");
}
