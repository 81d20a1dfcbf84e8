/* Finds, locks and cleans the folders for sockets. */
#include "base/socket_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

#define LOCK_LIMIT 2.0 /* seconds; then a stopped process that holds a lock is ignored */
#define ATTEMPTS   10  /* other processes may remove the folder at the same time */

/* ---- Candidates ---- */

static int add_folder(char paths[LS_SOCKET_FOLDERS][LS_SOCKET_FOLDER_CHARS], int count, const char *parent,
                      const char *name)
{
    if (!parent || parent[0] != '/')
        return count;
    int length = snprintf(paths[count], LS_SOCKET_FOLDER_CHARS, "%s/%s", parent, name);
    return length < LS_SOCKET_FOLDER_CHARS ? count + 1 : count;
}

int ls_socket_folders(char paths[LS_SOCKET_FOLDERS][LS_SOCKET_FOLDER_CHARS])
{
    char name[32];
    int count = 0;
    snprintf(name, sizeof(name), "lockstep-%lu", (unsigned long)geteuid());
    count = add_folder(paths, count, getenv("XDG_RUNTIME_DIR"), "lockstep");
    count = add_folder(paths, count, "/tmp", name);
    return add_folder(paths, count, getenv("HOME"), ".lockstep-sockets");
}

bool ls_socket_folder_is_own(const char *path)
{
    struct stat about;
    return lstat(path, &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == geteuid() &&
           (about.st_mode & 022) == 0;
}

/* Returns whether nothing exists at the path, and this process can create something there. */
static bool is_free(const char *path)
{
    char parent[LS_SOCKET_FOLDER_CHARS];
    snprintf(parent, sizeof(parent), "%.*s", (int)(strrchr(path, '/') - path), path);
    return access(path, F_OK) != 0 && access(parent, W_OK) == 0;
}

bool ls_socket_folder_find(char path[LS_SOCKET_FOLDER_CHARS])
{
    char paths[LS_SOCKET_FOLDERS][LS_SOCKET_FOLDER_CHARS];
    int count = ls_socket_folders(paths);
    for (int i = 0; i < count; i++)
        if (ls_socket_folder_is_own(paths[i]) || is_free(paths[i])) {
            memcpy(path, paths[i], LS_SOCKET_FOLDER_CHARS);
            return true;
        }
    return false;
}

/* ---- The lock ---- */

/* Removes other users' access. *foreign: something else exists at the path. */
static int open_own(const char *path, bool *foreign, char *why, size_t bytes)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), error = errno;
    *foreign = fd < 0 ? error != ENOENT : fstat(fd, &about) != 0 || about.st_uid != geteuid();
    if (fd >= 0 && !*foreign && ((about.st_mode & 077) == 0 || fchmod(fd, 0700) == 0))
        return fd;
    if (fd >= 0 && *foreign)
        snprintf(why, bytes, "the folder %s belongs to user %lu", path, (unsigned long)about.st_uid);
    else
        snprintf(why, bytes, "%s is not a folder of user %lu: %s", path, (unsigned long)geteuid(),
                 strerror(fd < 0 ? error : errno));
    if (fd >= 0)
        close(fd);
    return -1;
}

static void wait_for_lock(int fd)
{
    double end = ls_clock_now() + LOCK_LIMIT;
    while (flock(fd, LOCK_EX | LOCK_NB) < 0 && (errno == EWOULDBLOCK || errno == EINTR) && ls_clock_now() < end)
        poll(NULL, 0, 1);
}

/* Whether no other process removed the folder before this one locked it. */
static bool is_at(int fd, const char *path)
{
    struct stat here, there;
    return fstat(fd, &here) == 0 && lstat(path, &there) == 0 && here.st_ino == there.st_ino &&
           here.st_dev == there.st_dev;
}

bool ls_socket_folder_lock(const char *path, int *lock, bool *foreign, char *why, size_t bytes)
{
    *foreign = false;
    for (int i = 0; i < ATTEMPTS; i++) {
        if (mkdir(path, 0700) < 0 && errno != EEXIST) {
            snprintf(why, bytes, "cannot create the folder %s: %s", path, strerror(errno));
            return false;
        }
        int fd = open_own(path, foreign, why, bytes);
        if (fd < 0 && *foreign)
            return false;
        if (fd < 0)
            continue;
        wait_for_lock(fd);
        if (is_at(fd, path)) {
            *lock = fd;
            return true;
        }
        close(fd);
    }
    return false;
}

/* ---- Cleaning ---- */

/* A datagram socket cannot connect to a stream socket, so the error shows whether one listens,
 * without disturbing it. */
bool ls_socket_is_live(const char *path)
{
    struct stat about;
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (lstat(path, &about) < 0 || !S_ISSOCK(about.st_mode) || about.st_uid != geteuid() ||
        strlen(path) >= sizeof(address.sun_path))
        return false;
    memcpy(address.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool refused = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 && errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return !refused;
}

static void remove_left(const char *path, int lock)
{
    char file[LS_SOCKET_FOLDER_CHARS + 256];
    struct stat about;
    int fd = openat(lock, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (!folder && fd >= 0)
        close(fd);
    for (const struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
        snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
        if (fstatat(lock, entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(about.st_mode) &&
            !ls_socket_is_live(file))
            unlinkat(lock, entry->d_name, 0);
    }
    if (folder)
        closedir(folder);
}

void ls_socket_folder_clean_and_unlock(const char *path, int lock)
{
    remove_left(path, lock);
    rmdir(path); /* fails while the folder has files */
    close(lock);
}

void ls_socket_folders_clean(void)
{
    char paths[LS_SOCKET_FOLDERS][LS_SOCKET_FOLDER_CHARS], why[200];
    int count = ls_socket_folders(paths), lock;
    for (int i = 0; i < count; i++) {
        bool foreign;
        if (ls_socket_folder_is_own(paths[i]) && ls_socket_folder_lock(paths[i], &lock, &foreign, why, sizeof(why)))
            ls_socket_folder_clean_and_unlock(paths[i], lock);
    }
}
