/* Workers of this machine that meet over tcp, as those of several machines do: a folder of their own, in which each has
 * a file with its address, and the job's key; and the folder of parameter servers' journals. Nothing of it is left. */
#include <dirent.h>
#include <string.h>
#include <unistd.h>

#include "tool/launch.h"

static ls_status make_folder(char out[256], const char *what)
{
    const char *place = getenv("TMPDIR");
    char path[256];
    int length = snprintf(path, sizeof path, "%s/lockstep-XXXXXX", place && place[0] == '/' ? place : "/tmp");
    if (length >= (int)sizeof path - 8 || !mkdtemp(path))
        return ls_fail(LS_ERR_IO, "launch: no folder %s for the workers to %s", path, what);
    memcpy(out, path, sizeof path);
    return LS_OK;
}

ls_status launch_make_meeting(launch *l)
{
    if (l->settings->servers > 0 && !getenv("LOCKSTEP_JOURNAL"))
        LS_TRY(make_folder(l->journal, "come back with"));
    if (l->settings->transport != TOOL_TRANSPORT_TCP)
        return LS_OK;
    LS_TRY(make_folder(l->folder, "meet in"));
    if (l->key_file)
        return LS_OK;
    snprintf(l->made_key, sizeof l->made_key, "%s/key", l->folder);
    return ls_cluster_make_key(l->made_key);
}

void launch_set_meeting(const launch *l)
{
    char text[sizeof l->folder + 16];
    if (l->journal[0])
        setenv("LOCKSTEP_JOURNAL", l->journal, 1);
    if (l->settings->transport != TOOL_TRANSPORT_AUTO)
        setenv("LOCKSTEP_TRANSPORT", tool_transport_names[l->settings->transport], 1);
    if (!l->folder[0])
        return;
    snprintf(text, sizeof text, "file://%s", l->folder);
    setenv("LOCKSTEP_RENDEZVOUS", text, 1);
    setenv("LOCKSTEP_LISTEN", "127.0.0.1:0", 0);
    if (l->made_key[0])
        setenv("LOCKSTEP_KEY_FILE", l->made_key, 1);
}

static void remove_folder(const char *path)
{
    DIR *folder = path[0] ? opendir(path) : NULL;
    if (!folder)
        return;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
    rmdir(path);
}

void launch_remove_meeting(launch *l)
{
    remove_folder(l->folder);
    remove_folder(l->journal);
}
