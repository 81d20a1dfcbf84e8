/* Files that grow by whole records. */
#include "base/append.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

/* O_NONBLOCK: a FIFO without a reader must not block training forever. */
ls_status ls_append_open(ls_append *file, const char *path)
{
    struct stat about;
    int fd = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666);
    if (fd < 0)
        return ls_fail(LS_ERR_IO, "cannot open '%s': %s", path,
                       errno == ENXIO ? "it is a FIFO that no process reads" : strerror(errno));
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    *file = (ls_append){ .fd = fd };
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode))
        file->bytes = about.st_size;
    lseek(fd, 0, SEEK_END);
    return LS_OK;
}

void ls_append_truncate(ls_append *file, int64_t bytes)
{
    struct stat about;
    if (fstat(file->fd, &about) != 0 || !S_ISREG(about.st_mode) || bytes > about.st_size)
        return;
    if (ftruncate(file->fd, bytes) != 0)
        return;
    file->bytes = bytes;
    lseek(file->fd, bytes, SEEK_SET);
}

static bool write_all(int fd, const char *data, size_t left)
{
    while (left > 0) {
        ssize_t put = write(fd, data, left);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return false;
        data += put;
        left -= (size_t)put;
    }
    return true;
}

ls_status ls_append_write(ls_append *file, const void *data, size_t bytes)
{
    if (file->error != 0 || file->fd < 0)
        return LS_OK;
    if (write_all(file->fd, data, bytes)) {
        file->bytes += (int64_t)bytes;
        return LS_OK;
    }
    file->error = errno;
    /* EINVAL: a pipe or a device. */
    bool cut = ftruncate(file->fd, file->bytes) == 0 || errno == EINVAL;
    return ls_fail(LS_ERR_IO, "%s%s", strerror(file->error), cut ? "" : "; the last record may be incomplete");
}

ls_status ls_append_close(ls_append *file)
{
    int fd = file->fd;
    file->fd = -1;
    if (fd < 0 || close(fd) == 0 || file->error != 0)
        return LS_OK;
    file->error = errno;
    return ls_fail(LS_ERR_IO, "%s", strerror(file->error));
}

ls_status ls_make_folders(const char *path)
{
    char part[PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof(part))
        return ls_fail(LS_ERR_IO, "cannot create folder '%.100s...': the name has %zu bytes; %d are possible", path,
                       length, PATH_MAX - 1);
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        struct stat about;
        int reason = mkdir(part, 0777) == 0 ? 0 : errno;
        if (reason != 0 && (stat(part, &about) != 0 || !S_ISDIR(about.st_mode)))
            return ls_fail(LS_ERR_IO, "cannot create folder '%s': %s", part,
                           reason == EEXIST ? "a file has this name" : strerror(reason));
    }
    return LS_OK;
}
