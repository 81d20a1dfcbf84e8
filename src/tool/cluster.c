/* The command as one worker of a cluster: who prints and writes files, and what workers agree on. */
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

void tool_only_work(tool_settings *settings)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    settings->verbose = LS_VERBOSE_SILENT;
    settings->print_options = false;
    settings->save = settings->log = settings->trace = NULL;
    settings->log_hash = false;
    fflush(stdout);
    if (null >= 0) {
        dup2(null, STDOUT_FILENO);
        close(null);
    }
}

ls_status tool_agree(ls_context *ctx, const char *what, int *number)
{
    int all[LS_MAX_CLUSTER];
    LS_TRY(ls_cluster_gather(ctx, what, number, sizeof *number, all));
    for (int i = 0; i < ls_cluster_size(ctx); i++)
        *number = all[i] > *number ? all[i] : *number;
    return LS_OK;
}
