/* The command `lockstep key`. */
#include "tool/tool.h"

static ls_status run(const tool_settings *settings, int *stopped_by)
{
    (void)stopped_by;
    LS_TRY(ls_cluster_make_key(settings->files[0]));
    printf("wrote %s: for every worker, set LOCKSTEP_KEY_FILE to it or to a copy that only you can read\n",
           settings->files[0]);
    return LS_OK;
}

const tool_command tool_key = {
    .name = "key",
    .arguments = "FILE",
    .summary = "make the shared key that workers on other machines need",
    .details = "Writes a key of 32 random bytes to FILE, which only this user can read. Workers of one job on several "
               "machines need\n"
               "the same key: on each machine, set LOCKSTEP_KEY_FILE to FILE or a copy of it (docs/clusters.md). Fails "
               "if FILE exists.",
    .takes_files = 1,
    .run = run,
};
