/* Whole files. Every error names the path, the operation and the system's reason. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/grow.h"
#include "base/size.h"
#include "base/status.h"
#include "base/work.h"

#define FIRST_ROOM       65536
#define MOST_TEMPORARIES 100 /* names to try */
#define MOST_LINKS       40  /* the limit of Linux */

ls_status ls_file_fail(const char *what, const char *path, int error)
{
    ls_status status = error == ENOENT ? LS_ERR_NOT_FOUND : error == ENOMEM ? LS_ERR_MEMORY : LS_ERR_IO;
    return ls_fail(status, "cannot %s '%s': %s", what, path, strerror(error));
}

int ls_file_open(const char *path, int flags, mode_t mode)
{
    int fd;
    do
        fd = open(path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

static ls_status fail_limit(const char *path, size_t limit)
{
    return ls_fail(LS_ERR_DATA, "'%s' is too large: it has more than %zu bytes, the limit here", path, limit);
}

/* `size` is a hint: pipes have no size, and a file may grow while it is read. */
static ls_status read_all(int fd, const char *path, size_t limit, size_t size, char **data, size_t *bytes)
{
    size_t guess = size ? size : FIRST_ROOM, room = guess + 2, used = 0;
    char *buffer = malloc(room);
    if (buffer == NULL)
        return ls_fail(LS_ERR_MEMORY, "no memory to read '%s' (%zu bytes)", path, guess);
    ls_status status;
    for (;;) {
        status = ls_grow(&buffer, used + 1, &room, 1); /* one more for the final zero */
        if (status != LS_OK) {
            status = ls_fail_within(status, "reading '%s'", path);
            goto free_buffer;
        }
        size_t left = room - used - 1;
        ssize_t got = read(fd, buffer + used, left < LS_WORK_CHUNK ? left : LS_WORK_CHUNK);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            status = ls_file_fail("read", path, errno);
            goto free_buffer;
        }
        if (got == 0)
            break;
        used += (size_t)got;
        ls_work_report("reading", path, (int64_t)used, (int64_t)size);
        if (used > limit) {
            status = fail_limit(path, limit);
            goto free_buffer;
        }
    }
    buffer[used] = '\0';
    *data = buffer;
    *bytes = used;
    return LS_OK;
free_buffer:
    free(buffer);
    return status;
}

ls_status ls_file_read(const char *path, size_t limit, char **data, size_t *bytes)
{
    int fd = ls_file_open(path, O_RDONLY, 0);
    if (fd < 0)
        return ls_file_fail("open", path, errno);
    ls_status status;
    struct stat info;
    if (fstat(fd, &info) != 0)
        status = ls_file_fail("get the size of", path, errno);
    else if (S_ISDIR(info.st_mode))
        status = ls_file_fail("read", path, EISDIR);
    else if (S_ISREG(info.st_mode) && (uintmax_t)info.st_size > limit)
        status = fail_limit(path, limit);
    else
        status = read_all(fd, path, limit, S_ISREG(info.st_mode) ? (size_t)info.st_size : 0, data, bytes);
    ls_work_end();
    close(fd);
    return status;
}

/* `wanted` is the name to show to users. */
static ls_status write_parts(int fd, const char *path, const char *wanted, const ls_file_part *parts, size_t count)
{
    int64_t written = 0, total = 0;
    for (size_t i = 0; i < count; i++)
        total += (int64_t)parts[i].bytes;
    for (size_t i = 0; i < count; i++) {
        const char *data = parts[i].data;
        for (size_t left = parts[i].bytes; left > 0;) {
            ssize_t put = write(fd, data, left < LS_WORK_CHUNK ? left : LS_WORK_CHUNK);
            if (put < 0 && errno == EINTR)
                continue;
            if (put < 0)
                return ls_file_fail("write", path, errno);
            data += put;
            left -= (size_t)put;
            written += put;
            ls_work_report("writing", wanted, written, total);
        }
    }
    return LS_OK;
}

/* For devices and pipes, which a rename would replace by a regular file. */
static ls_status write_in_place(const char *path, const ls_file_part *parts, size_t count)
{
    int fd = ls_file_open(path, O_WRONLY, 0);
    if (fd < 0)
        return ls_file_fail("open", path, errno);
    ls_status status = write_parts(fd, path, path, parts, count);
    if (close(fd) != 0 && status == LS_OK)
        status = ls_file_fail("close", path, errno);
    ls_work_end();
    return status;
}

/* ---- Resolving paths ---- */

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* Returns 0 or an errno. */
static int follow_links(char here[PATH_MAX])
{
    for (int i = 0; i < MOST_LINKS; i++) {
        char link[PATH_MAX], next[PATH_MAX];
        ssize_t length = readlink(here, link, sizeof link - 1);
        if (length < 0)
            return 0;
        link[length] = '\0';
        int folder = link[0] == '/' ? 0 : (int)(last_name(here) - here);
        int whole = snprintf(next, sizeof next, "%.*s%s", folder, here, link);
        if (whole < 0 || (size_t)whole >= sizeof next)
            return ENAMETOOLONG;
        memcpy(here, next, (size_t)whole + 1);
    }
    return ELOOP;
}

ls_status ls_file_target(const char *path, char out[PATH_MAX])
{
    char here[PATH_MAX], folder[PATH_MAX], found[PATH_MAX];
    if (path[0] == '\0' || strlen(path) >= sizeof here)
        return ls_file_fail("write", path, path[0] == '\0' ? ENOENT : ENAMETOOLONG);
    if (realpath(path, found) != NULL) {
        memcpy(out, found, strlen(found) + 1);
        return LS_OK;
    }
    if (errno != ENOENT)
        return ls_file_fail("write", path, errno);
    strcpy(here, path);
    int error = follow_links(here);
    const char *name = last_name(here);
    if (error != 0 || name[0] == '\0')
        return ls_file_fail("write", path, error != 0 ? error : ENOENT);
    snprintf(folder, sizeof folder, "%.*s", name == here ? 1 : (int)(name - here), name == here ? "." : here);
    if (realpath(folder, found) == NULL)
        return ls_file_fail("write", path, errno);
    char whole[PATH_MAX + NAME_MAX + 2];
    int length = snprintf(whole, sizeof whole, "%s/%s", strcmp(found, "/") == 0 ? "" : found, name);
    if (length < 0 || length >= PATH_MAX)
        return ls_file_fail("write", path, ENAMETOOLONG);
    memcpy(out, whole, (size_t)length + 1);
    return LS_OK;
}

/* ---- Temporary files. A writer locks its file; an unlocked one belongs to a killed process.
 * ---- */

static bool is_still_named(int fd, const char *name)
{
    struct stat by_fd, by_name;
    return fstat(fd, &by_fd) == 0 && lstat(name, &by_name) == 0 && S_ISREG(by_fd.st_mode) &&
           by_fd.st_dev == by_name.st_dev && by_fd.st_ino == by_name.st_ino;
}

/* Fails if another process's cleanup locked the file first, which will remove it. File systems
 * without locks have no cleanup either. */
static bool lock_temporary(int fd, const char *name)
{
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return false;
    return is_still_named(fd, name);
}

/* Creates a file beside `path`. mkstemp would ignore the user's umask. */
static ls_status open_temporary(const char *path, char name[PATH_MAX], int *out)
{
    for (int i = 0; i < MOST_TEMPORARIES; i++) {
        int length = snprintf(name, PATH_MAX, "%s.%ld.%d.tmp", path, (long)getpid(), i);
        if (length < 0 || length >= PATH_MAX)
            return ls_file_fail("write", path, ENAMETOOLONG);
        int fd = ls_file_open(name, O_WRONLY | O_CREAT | O_EXCL, 0666);
        if (fd >= 0 && lock_temporary(fd, name)) {
            *out = fd;
            return LS_OK;
        }
        if (fd >= 0)
            close(fd);
        else if (errno != EEXIST)
            return ls_file_fail("create a file beside", path, errno);
    }
    return ls_file_fail("create a file beside", path, EEXIST);
}

/* Whether `name` is "BASE.123.0.tmp". */
static bool is_temporary_of(const char *name, const char *base)
{
    size_t length = strlen(base);
    if (strncmp(name, base, length) != 0 || name[length] != '.')
        return false;
    const char *at = name + length;
    for (int i = 0; i < 2; i++) {
        size_t digits = strspn(at + 1, "0123456789");
        if (at[0] != '.' || digits == 0)
            return false;
        at += 1 + digits;
    }
    return strcmp(at, ".tmp") == 0;
}

static void remove_if_left(const char *name)
{
    int fd = ls_file_open(name, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && is_still_named(fd, name))
        unlink(name);
    close(fd);
}

/* Removes files that killed processes left beside `path`. */
static void clean_temporaries(const char *path)
{
    char folder[PATH_MAX], name[PATH_MAX];
    const char *base = last_name(path);
    snprintf(folder, sizeof folder, "%.*s", (int)(base - path), path);
    DIR *list = opendir(folder);
    if (list == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        int length =
            is_temporary_of(entry->d_name, base) ? snprintf(name, sizeof name, "%s%s", folder, entry->d_name) : -1;
        if (length > 0 && (size_t)length < sizeof name)
            remove_if_left(name);
    }
    closedir(list);
}

/* ---- Replacing a file ---- */

/* Ignores errors: some file systems cannot sync a directory. */
static void sync_directory_of(const char *path)
{
    char directory[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int length = slash == NULL || slash == path ? 1 : (int)(slash - path);
    snprintf(directory, sizeof directory, "%.*s", length, slash == NULL ? "." : path);
    int fd = ls_file_open(directory, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return;
    (void)fsync(fd);
    close(fd);
}

/* Closes after the rename, because the lock must last until then; fsync has reported what close
 * could. */
static ls_status replace(const char *path, const struct stat *old, const ls_file_part *parts, size_t count)
{
    char name[PATH_MAX];
    int fd = -1;
    clean_temporaries(path);
    LS_TRY(open_temporary(path, name, &fd));
    ls_status status = write_parts(fd, name, path, parts, count);
    if (status == LS_OK && old != NULL && fchmod(fd, old->st_mode & 07777) != 0)
        status = ls_file_fail("set the mode of", name, errno);
    if (status == LS_OK && fsync(fd) != 0)
        status = ls_file_fail("sync", name, errno);
    if (status == LS_OK && rename(name, path) != 0)
        status = ls_file_fail("rename a new file to", path, errno);
    if (status != LS_OK)
        unlink(name);
    close(fd);
    if (status == LS_OK)
        sync_directory_of(path);
    ls_work_end();
    return status;
}

/* Checks the type before the path: a pipe may have no path of its own (/dev/stdout, /dev/fd/63). */
ls_status ls_file_write_parts(const char *path, const ls_file_part *parts, size_t count)
{
    struct stat info;
    char target[PATH_MAX];
    bool exists = stat(path, &info) == 0;
    if (exists && S_ISDIR(info.st_mode))
        return ls_file_fail("write", path, EISDIR);
    if (exists && !S_ISREG(info.st_mode))
        return write_in_place(path, parts, count);
    LS_TRY(ls_file_target(path, target));
    return replace(target, exists ? &info : NULL, parts, count);
}

ls_status ls_file_try(const char *path)
{
    struct stat info;
    char target[PATH_MAX], name[PATH_MAX];
    int fd = -1;
    bool exists = stat(path, &info) == 0;
    if (exists && !S_ISREG(info.st_mode))
        return ls_fail(LS_ERR_IO, "cannot write '%s': it is %s, not a regular file", path,
                       S_ISDIR(info.st_mode)    ? "a folder"
                       : S_ISFIFO(info.st_mode) ? "a FIFO or a pipe"
                       : S_ISSOCK(info.st_mode) ? "a socket"
                                                : "a device");
    if (exists && access(path, W_OK) != 0)
        return ls_file_fail("write", path, errno);
    LS_TRY(ls_file_target(path, target));
    clean_temporaries(target);
    LS_TRY(open_temporary(target, name, &fd));
    unlink(name);
    close(fd);
    return LS_OK;
}

ls_status ls_file_write(const char *path, const void *data, size_t bytes)
{
    return ls_file_write_parts(path, &(ls_file_part){ data, bytes }, 1);
}
