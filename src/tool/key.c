/* lockstep key: makes the key for a job whose workers are on several machines. */
#include "tool/tool.h"

static ls_status run(const tool_settings *settings, int *stopped_by)
{
    (void)stopped_by;
    LS_TRY(ls_cluster_make_key(settings->files[0]));
    printf("made %s: give it, or a copy that only you can read, to every worker by LOCKSTEP_KEY_FILE\n",
           settings->files[0]);
    return LS_OK;
}

const tool_command tool_key = {
    .name = "key",
    .arguments = "FILE",
    .summary = "makes a key, without which workers on other machines are not let in",
    .details =
        "Makes FILE with 32 random bytes, readable by this user alone: the key of a job whose workers are on several\n"
        "machines. Each of them gets it, or a copy, by LOCKSTEP_KEY_FILE (docs/clusters.md). A file that is there is\n"
        "left alone.",
    .takes_files = 1,
    .run = run,
};
