/* The command as a worker of a cluster: which worker prints and writes files. */
#include "tool/tool.h"

#include <fcntl.h>
#include <unistd.h>

ls_status tool_is_chief(const tool_settings *settings, bool *out)
{
    ls_cluster_options found = { .rank = 0 };
    if (settings->multi_worker || getenv("LOCKSTEP_RANK"))
        LS_TRY(ls_cluster_environment(&found));
    *out = found.rank == 0;
    return LS_OK;
}

/* The original standard output; -1: not muted. */
static int muted = -1;

void tool_mute(void)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    fflush(stdout);
    if (null < 0)
        return;
    muted = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    dup2(null, STDOUT_FILENO);
    close(null);
}

bool tool_is_muted(void)
{
    return muted >= 0;
}

void tool_update_mute(const ls_context *ctx)
{
    if (muted < 0 && ctx && !ls_is_chief(ctx))
        tool_mute(); /* worker 0 rejoined a job that continued with another chief */
    if (muted < 0 || !ctx || !ls_is_chief(ctx))
        return;
    fflush(stdout);
    dup2(muted, STDOUT_FILENO);
    close(muted);
    muted = -1;
}

ls_status tool_print_once(ls_context *ctx, ls_status (*function)(void *user), void *user)
{
    tool_update_mute(ctx);
    bool muted = tool_is_muted();
    LS_TRY(function(user));
    fflush(stdout);
    LS_TRY(ls_cluster_barrier(ctx, "the results"));
    tool_update_mute(ctx);
    return muted && !tool_is_muted() ? function(user) : LS_OK;
}

ls_status tool_largest_of_workers(ls_context *ctx, const char *what, int *number)
{
    int all[LS_MAX_CLUSTER] = { 0 }; /* stays 0 for lost workers */
    LS_TRY(ls_cluster_gather(ctx, what, number, sizeof *number, all));
    for (int i = 0; i < ls_cluster_size(ctx); i++)
        *number = all[i] > *number ? all[i] : *number;
    tool_update_mute(ctx);
    return LS_OK;
}
