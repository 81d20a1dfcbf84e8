/* File operations through a table of system calls: whole files and folders. */
#include "base/fileops.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"
#include "base/size.h"
#include "base/status.h"
#include "base/work.h"

/* ---- The system's calls ---- */

static int system_open(void *user, const char *path, int flags, mode_t mode)
{
    (void)user;
    return open(path, flags | O_CLOEXEC, mode);
}

static ssize_t system_write(void *user, int fd, const void *data, size_t bytes)
{
    (void)user;
    return write(fd, data, bytes);
}

static int system_fsync(void *user, int fd)
{
    (void)user;
    return fsync(fd);
}

static int system_close(void *user, int fd)
{
    (void)user;
    return close(fd);
}

static int system_mkdir(void *user, const char *path, mode_t mode)
{
    (void)user;
    return mkdir(path, mode);
}

static int system_rename(void *user, const char *from, const char *to)
{
    (void)user;
    return rename(from, to);
}

static int system_symlink(void *user, const char *target, const char *path)
{
    (void)user;
    return symlink(target, path);
}

static int system_unlink(void *user, const char *path)
{
    (void)user;
    return unlink(path);
}

static int system_rmdir(void *user, const char *path)
{
    (void)user;
    return rmdir(path);
}

const ls_file_ops ls_system_file_ops = {
    .open = system_open,
    .write = system_write,
    .fsync = system_fsync,
    .close = system_close,
    .mkdir = system_mkdir,
    .rename = system_rename,
    .symlink = system_symlink,
    .unlink = system_unlink,
    .rmdir = system_rmdir,
};

/* ---- Whole files ---- */

static _Thread_local int last_error;

int ls_ops_note(int error)
{
    return last_error = error;
}

bool ls_ops_disk_is_full(void)
{
    return last_error == ENOSPC || last_error == EDQUOT;
}

static ls_status fail_errno(const char *what, const char *path, int error)
{
    ls_ops_note(error);
    return ls_fail(error == ENOENT ? LS_ERR_NOT_FOUND : LS_ERR_IO, "cannot %s '%s': %s", what, path, strerror(error));
}

/* Hashed data is still in the cache when it is written. */
#define PIECE ((size_t)1 << 20)

static ls_status write_piece(const ls_file_ops *ops, int fd, const char *path, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t put = ops->write(ops->user, fd, data, bytes);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return fail_errno("write", path, put < 0 ? errno : ENOSPC);
        data += put;
        bytes -= (size_t)put;
    }
    return LS_OK;
}

static ls_status write_parts(const ls_file_ops *ops, int fd, const char *path, const ls_file_part *parts, size_t count,
                             size_t total, ls_sha256 *hash)
{
    int64_t written = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t done = 0, piece; done < parts[i].bytes; done += piece) {
            const char *data = (const char *)parts[i].data + done;
            piece = parts[i].bytes - done < PIECE ? parts[i].bytes - done : PIECE;
            LS_TRY(ls_sha256_add(hash, data, piece));
            LS_TRY(write_piece(ops, fd, path, data, piece));
            written += (int64_t)piece;
            ls_work_report("writing", path, written, (int64_t)total);
        }
    if (ops->fsync(ops->user, fd) != 0)
        return fail_errno("sync", path, errno);
    return LS_OK;
}

ls_status ls_ops_write_file(const ls_file_ops *ops, const char *path, const ls_file_part *parts, size_t count,
                            char hex[65], size_t *bytes)
{
    ls_sha256 *hash = NULL;
    size_t total = 0;
    for (size_t i = 0; i < count; i++)
        if (!ls_size_add(total, parts[i].bytes, &total))
            return ls_fail(LS_ERR_OVERFLOW, "cannot write '%s': more bytes than a file can have", path);
    LS_TRY(ls_sha256_begin(&hash));
    int fd = ops->open(ops->user, path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    ls_status status =
        fd < 0 ? fail_errno("create", path, errno) : write_parts(ops, fd, path, parts, count, total, hash);
    if (fd >= 0 && ops->close(ops->user, fd) != 0 && status == LS_OK)
        status = fail_errno("close", path, errno);
    ls_work_end();
    if (status != LS_OK) {
        ls_sha256_destroy(hash);
        return status;
    }
    LS_TRY(ls_sha256_end(hash, hex));
    *bytes = total;
    return LS_OK;
}

static ls_status hash_open_file(int fd, const char *path, int64_t size, ls_sha256 *hash, size_t *bytes)
{
    char *buffer = malloc(PIECE);
    ls_status status = buffer ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory to read '%s'", path);
    *bytes = 0;
    while (status == LS_OK) {
        ssize_t got = read(fd, buffer, PIECE);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            status = fail_errno("read", path, errno);
        if (got <= 0)
            break;
        status = ls_sha256_add(hash, buffer, (size_t)got);
        *bytes += (size_t)got;
        ls_work_report("checking", path, (int64_t)*bytes, size);
    }
    ls_work_end();
    free(buffer);
    return status;
}

ls_status ls_file_sha256(const char *path, char hex[65], size_t *bytes)
{
    struct stat info;
    ls_sha256 *hash = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not block on a FIFO */
    if (fd < 0)
        return fail_errno("open", path, errno);
    ls_status status = LS_OK;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        status = ls_fail(LS_ERR_DATA, "cannot read '%s': it is not a regular file", path);
    if (status == LS_OK)
        status = ls_sha256_begin(&hash);
    if (status == LS_OK)
        status = hash_open_file(fd, path, (int64_t)info.st_size, hash, bytes);
    close(fd);
    if (status == LS_OK)
        return ls_sha256_end(hash, hex);
    ls_sha256_destroy(hash);
    return status;
}

/* ---- Folders ---- */

ls_status ls_ops_sync_folder(const ls_file_ops *ops, const char *path)
{
    int fd = ops->open(ops->user, path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return fail_errno("open", path, errno);
    int error = ops->fsync(ops->user, fd) != 0 ? errno : 0;
    ops->close(ops->user, fd);
    return error == 0 || error == EINVAL || error == EBADF ? LS_OK : fail_errno("sync", path, error);
}
