/* Folders of a job on this machine: one for the rendezvous over TCP, with addresses and the key of
 * the job, and one for the journals of parameter servers. They are removed at the end, or, if the
 * launcher was killed, by the next launcher of this user. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool/launch/launch.h"

#define NAME "lockstep-launch-"

static const char *temporary_folder(void)
{
    const char *place = getenv("TMPDIR");
    return place && place[0] == '/' ? place : "/tmp";
}

/* ---- Folders ---- */

static void remove_files(int fd)
{
    DIR *folder = fdopendir(fd);
    if (!folder) {
        close(fd);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
}

/* Opens a folder that belongs to this user alone; -1 otherwise. */
static int open_own(const char *path)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &about) == 0 && about.st_uid == geteuid() && (about.st_mode & 077) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Removes folders of killed launchers: those that are not locked. Keeps the lock until the folder
 * is gone, so that no launcher can start to use it. */
static void remove_stale(void)
{
    char path[PATH_MAX];
    const char *place = temporary_folder();
    DIR *all = opendir(place);
    for (const struct dirent *entry; all && (entry = readdir(all)) != NULL;) {
        if (strncmp(entry->d_name, NAME, strlen(NAME)) != 0 ||
            snprintf(path, sizeof path, "%s/%s", place, entry->d_name) >= (int)sizeof path)
            continue;
        int fd = open_own(path), files = -1;
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && (files = dup(fd)) >= 0) {
            remove_files(files);
            rmdir(path);
        }
        if (fd >= 0)
            close(fd);
    }
    if (all)
        closedir(all);
}

/* Another launcher may have removed the folder before it was locked. */
static bool lock_folder(const char *path, int *lock)
{
    *lock = open_own(path);
    if (*lock >= 0)
        /* If locks do not work, no other launcher can lock the folder and remove it. */
        flock(*lock, LOCK_EX);
    return *lock >= 0 && access(path, F_OK) == 0;
}

static ls_status make_folder(char out[256], int *lock, const char *what)
{
    char path[256];
    for (int i = 0; i < 10; i++) {
        int length = snprintf(path, sizeof path, "%s/" NAME "XXXXXX", temporary_folder());
        if (length >= (int)sizeof path - 8 || !mkdtemp(path))
            break;
        if (lock_folder(path, lock)) {
            memcpy(out, path, sizeof path);
            return LS_OK;
        }
        if (*lock >= 0)
            close(*lock);
        *lock = -1;
    }
    return ls_fail(LS_ERR_IO, "launch: cannot create the folder %s for %s: %s", path, what, strerror(errno));
}

/* ---- The meeting ---- */

ls_status launch_make_rendezvous(launch *l)
{
    remove_stale();
    if (l->settings->servers > 0 && !getenv("LOCKSTEP_JOURNAL"))
        LS_TRY(make_folder(l->journal, &l->locks[0], "the journals of servers"));
    if (l->settings->transport != TOOL_TRANSPORT_TCP)
        return LS_OK;
    LS_TRY(make_folder(l->folder, &l->locks[1], "the addresses of workers"));
    if (l->key_file)
        return LS_OK;
    snprintf(l->made_key, sizeof l->made_key, "%s/key", l->folder);
    return ls_cluster_make_key(l->made_key);
}

void launch_set_rendezvous(const launch *l)
{
    char text[sizeof l->folder + 16];
    unsetenv("LOCKSTEP_LAUNCHER");
    if (l->shared_fd >= 0) {
        snprintf(text, sizeof text, "/proc/%ld/fd/%d", (long)getppid(), l->shared_fd);
        setenv("LOCKSTEP_LAUNCHER", text, 1);
    }
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

static void remove_folder(const char *path, int lock)
{
    int files = path[0] ? dup(lock) : -1;
    if (files >= 0) {
        remove_files(files);
        rmdir(path);
    }
    if (lock >= 0)
        close(lock);
}

void launch_remove_rendezvous(launch *l)
{
    remove_folder(l->journal, l->locks[0]);
    remove_folder(l->folder, l->locks[1]);
}

/* ---- Sharing which workers have ended ---- */

void launch_make_shared(launch *l)
{
    l->ended = calloc((size_t)l->count, 1);
    l->shared_fd = l->ended ? memfd_create("lockstep-launch", MFD_CLOEXEC) : -1;
}

/* none: all workers are restarted. */
void launch_share_ends(launch *l, bool none)
{
    bool changed = false;
    const uint16_t no_chief[2] = { 0 };
    if (none && l->shared_fd >= 0 && pwrite(l->shared_fd, no_chief, sizeof no_chief, LS_MAX_CLUSTER) < 0) {
        /* Harmless: the old value names a process that does not run. */
    }
    for (int r = 0; l->shared_fd >= 0 && r < l->count; r++) {
        char gone = !none && l->workers[r].pid <= 0 && l->workers[r].restart_at <= 0;
        changed |= gone != l->ended[r];
        l->ended[r] = gone;
    }
    if (changed && pwrite(l->shared_fd, l->ended, (size_t)l->count, 0) < 0) {
        /* Workers then wait for the join limit. */
    }
}

/* A lost chief that was restarted is another process, which may not be the chief any more. */
int launch_find_chief(const launch *l)
{
    uint16_t said[2] = { 0 };
    if (l->shared_fd < 0 || pread(l->shared_fd, said, sizeof said, LS_MAX_CLUSTER) != (ssize_t)sizeof said ||
        said[0] == 0 || said[0] > l->count)
        return -1;
    const launch_worker *w = &l->workers[said[0] - 1];
    return w->pid > 0 && w->returns == said[1] ? said[0] - 1 : -1;
}

void launch_remove_shared(launch *l)
{
    if (l->shared_fd >= 0)
        close(l->shared_fd);
    free(l->ended);
}
