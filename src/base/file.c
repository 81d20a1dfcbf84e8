/* Whole files. Every error names the path, what was tried and the system's reason. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "base/status.h"

#define FIRST_ROOM       65536
#define MOST_TEMPORARIES 100 /* names tried before giving up */

static ls_status fail_errno(const char *what, const char *path, int error)
{
    ls_status status = error == ENOENT ? LS_ERR_NOT_FOUND : error == ENOMEM ? LS_ERR_MEMORY : LS_ERR_IO;
    return ls_fail(status, "cannot %s '%s': %s", what, path, strerror(error));
}

static int open_retrying(const char *path, int flags, mode_t mode)
{
    int fd;
    do
        fd = open(path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* Room for one byte more than was read so far, never much beyond the limit. */
static ls_status grow(char **buffer, size_t *room, size_t used, const char *path)
{
    if (used + 1 < *room)
        return LS_OK;
    size_t larger;
    char *moved = ls_size_mul(*room, 2, &larger) ? realloc(*buffer, larger) : NULL;
    if (moved == NULL)
        return ls_fail(LS_ERR_MEMORY, "no memory to read '%s' (%zu bytes so far)", path, used);
    *buffer = moved;
    *room = larger;
    return LS_OK;
}

static ls_status fail_limit(const char *path, size_t limit)
{
    return ls_fail(LS_ERR_DATA, "'%s' has more than %zu bytes, the most accepted here", path, limit);
}

/* The size is only a guess for what to allocate: pipes have none, and a file may grow while it is read. */
static ls_status read_all(int fd, const char *path, size_t limit, size_t guess, char **data, size_t *bytes)
{
    size_t room = guess + 2, used = 0;
    char *buffer = malloc(room);
    if (buffer == NULL)
        return ls_fail(LS_ERR_MEMORY, "no memory to read '%s' (%zu bytes)", path, guess);
    ls_status status;
    for (;;) {
        LS_TRY_GOTO(status, grow(&buffer, &room, used, path), free_buffer);
        ssize_t got = read(fd, buffer + used, room - used - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            status = fail_errno("read", path, errno);
            goto free_buffer;
        }
        if (got == 0)
            break;
        used += (size_t)got;
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
    int fd = open_retrying(path, O_RDONLY, 0);
    if (fd < 0)
        return fail_errno("open", path, errno);
    ls_status status;
    struct stat info;
    if (fstat(fd, &info) != 0)
        status = fail_errno("look at", path, errno);
    else if (S_ISDIR(info.st_mode))
        status = fail_errno("read", path, EISDIR);
    else if (S_ISREG(info.st_mode) && (uintmax_t)info.st_size > limit)
        status = fail_limit(path, limit);
    else
        status = read_all(fd, path, limit, S_ISREG(info.st_mode) ? (size_t)info.st_size : FIRST_ROOM, data, bytes);
    close(fd);
    return status;
}

static ls_status write_parts(int fd, const char *path, const ls_file_part *parts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *data = parts[i].data;
        for (size_t left = parts[i].bytes; left > 0;) {
            ssize_t put = write(fd, data, left);
            if (put < 0 && errno == EINTR)
                continue;
            if (put < 0)
                return fail_errno("write", path, errno);
            data += put;
            left -= (size_t)put;
        }
    }
    return LS_OK;
}

/* A device or a pipe cannot be replaced by a rename: it would stop being one. */
static ls_status write_in_place(const char *path, const ls_file_part *parts, size_t count)
{
    int fd = open_retrying(path, O_WRONLY, 0);
    if (fd < 0)
        return fail_errno("open", path, errno);
    ls_status status = write_parts(fd, path, parts, count);
    if (close(fd) != 0 && status == LS_OK)
        status = fail_errno("close", path, errno);
    return status;
}

/* Opens a new file beside `path` and writes its name. Not mkstemp: that ignores the user's umask. */
static ls_status open_temporary(const char *path, char name[PATH_MAX], int *out)
{
    for (int i = 0; i < MOST_TEMPORARIES; i++) {
        int length = snprintf(name, PATH_MAX, "%s.%ld.%d.tmp", path, (long)getpid(), i);
        if (length < 0 || length >= PATH_MAX)
            return fail_errno("write", path, ENAMETOOLONG);
        int fd = open_retrying(name, O_WRONLY | O_CREAT | O_EXCL, 0666);
        if (fd >= 0) {
            *out = fd;
            return LS_OK;
        }
        if (errno != EEXIST)
            return fail_errno("create a file beside", path, errno);
    }
    return fail_errno("create a file beside", path, EEXIST);
}

/* Makes the rename itself last through a power cut. Some file systems cannot sync a directory; that is no failure. */
static void sync_directory_of(const char *path)
{
    char directory[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int length = slash == NULL || slash == path ? 1 : (int)(slash - path);
    snprintf(directory, sizeof directory, "%.*s", length, slash == NULL ? "." : path);
    int fd = open_retrying(directory, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return;
    (void)fsync(fd);
    close(fd);
}

static ls_status replace(const char *path, const struct stat *old, const ls_file_part *parts, size_t count)
{
    char name[PATH_MAX];
    int fd = -1;
    LS_TRY(open_temporary(path, name, &fd));
    ls_status status = write_parts(fd, name, parts, count);
    if (status == LS_OK && old != NULL && fchmod(fd, old->st_mode & 07777) != 0)
        status = fail_errno("set the mode of", name, errno);
    if (status == LS_OK && fsync(fd) != 0)
        status = fail_errno("sync", name, errno);
    if (close(fd) != 0 && status == LS_OK)
        status = fail_errno("close", name, errno);
    if (status == LS_OK && rename(name, path) != 0)
        status = fail_errno("rename a new file to", path, errno);
    if (status != LS_OK)
        unlink(name);
    else
        sync_directory_of(path);
    return status;
}

ls_status ls_file_write_parts(const char *path, const ls_file_part *parts, size_t count)
{
    struct stat info;
    char target[PATH_MAX];
    if (stat(path, &info) != 0) {
        if (errno != ENOENT)
            return fail_errno("write", path, errno);
        return replace(path, NULL, parts, count);
    }
    if (S_ISDIR(info.st_mode))
        return fail_errno("write", path, EISDIR);
    if (!S_ISREG(info.st_mode))
        return write_in_place(path, parts, count);
    if (realpath(path, target) == NULL)
        return fail_errno("follow", path, errno);
    return replace(target, &info, parts, count);
}

ls_status ls_file_write(const char *path, const void *data, size_t bytes)
{
    return ls_file_write_parts(path, &(ls_file_part){ data, bytes }, 1);
}
