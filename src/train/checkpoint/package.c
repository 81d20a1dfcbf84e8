/* A checkpoint as bytes: another worker receives exactly the files of a folder and verifies them in
 * the same way. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/size.h"
#include "train/checkpoint/checkpoint.h"

/* ---- Writing ---- */

typedef struct collection {
    ls_package *package;
    size_t used, room;
} collection;

static const char *const names[LS_CHECKPOINT_FILES] = { LS_CHECKPOINT_MODEL, LS_CHECKPOINT_OPTIMIZER,
                                                        LS_CHECKPOINT_STATE };

static int find_file(const char *path)
{
    for (int i = 0; i < LS_CHECKPOINT_FILES; i++)
        if (strcmp(path + strlen(path) - strlen(names[i]), names[i]) == 0)
            return i;
    return LS_CHECKPOINT_FILES; /* the folder itself */
}

static int collect_open(void *user, const char *path, int flags, mode_t mode)
{
    (void)user, (void)mode;
    return flags & O_DIRECTORY ? LS_CHECKPOINT_FILES : find_file(path);
}

static ssize_t collect_write(void *user, int fd, const void *data, size_t bytes)
{
    collection *c = user;
    size_t wanted = c->used + bytes;
    if (wanted > c->room) {
        size_t room = wanted < c->room + c->room / 2 ? c->room + c->room / 2 : wanted;
        char *grown = realloc(c->package->bytes, room);
        if (!grown) {
            errno = ENOMEM;
            return -1;
        }
        c->package->bytes = grown;
        c->room = room;
    }
    memcpy(c->package->bytes + c->used, data, bytes);
    c->used = wanted;
    c->package->size[fd] += bytes;
    return (ssize_t)bytes;
}

static int collect_nothing(void *user, int fd)
{
    (void)user, (void)fd;
    return 0;
}

ls_status ls_checkpoint_pack(const ls_content *content, ls_package *out)
{
    ls_package package = { .bytes = NULL };
    collection all = { .package = &package };
    const ls_file_ops ops = {
        .user = &all, .open = collect_open, .write = collect_write, .fsync = collect_nothing, .close = collect_nothing
    };
    size_t bytes = 0;
    ls_status status = ls_checkpoint_write_files(&ops, "the state of the job", content, &bytes);
    if (status == LS_OK)
        *out = package;
    else
        ls_package_free(&package);
    return status;
}

/* ---- Reading ---- */

static ls_status open_in_memory(const char *bytes, size_t size, char path[PATH_MAX], int *out)
{
    int fd = memfd_create("lockstep-state", MFD_CLOEXEC);
    ls_status status = fd >= 0 ? LS_OK : ls_fail(LS_ERR_IO, "cannot create a file in memory: %s", strerror(errno));
    for (size_t done = 0; status == LS_OK && done < size;) {
        ssize_t put = write(fd, bytes + done, size - done);
        if (put < 0 && errno != EINTR)
            status = ls_fail(LS_ERR_IO, "cannot write to a file in memory: %s", strerror(errno));
        done += put > 0 ? (size_t)put : 0;
    }
    if (status == LS_OK) {
        snprintf(path, PATH_MAX, "/proc/self/fd/%d", fd);
        *out = fd;
    } else if (fd >= 0) {
        close(fd);
    }
    return status;
}

ls_status ls_checkpoint_unpack(const ls_package *package, ls_checkpoint **out)
{
    ls_checkpoint_paths paths;
    char *path[LS_CHECKPOINT_FILES] = { paths.model, paths.optimizer, paths.state };
    int fds[LS_CHECKPOINT_FILES], count = 0;
    const char *at = package->bytes;
    ls_status status = LS_OK;
    for (; count < LS_CHECKPOINT_FILES && status == LS_OK; count++) {
        fds[count] = -1;
        status = open_in_memory(at, (size_t)package->size[count], path[count], &fds[count]);
        at += package->size[count];
    }
    if (status == LS_OK)
        status = ls_checkpoint_open_files("the state of the running job", &paths, out);
    for (int i = 0; i < count; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return status;
}

/* ---- Bytes ---- */

size_t ls_package_bytes(const ls_package *package)
{
    size_t bytes = 0;
    for (int i = 0; i < LS_CHECKPOINT_FILES; i++)
        bytes += (size_t)package->size[i];
    return bytes;
}

ls_status ls_package_allocate(ls_package *package, const uint64_t size[LS_CHECKPOINT_FILES])
{
    size_t bytes = 0;
    for (int i = 0; i < LS_CHECKPOINT_FILES; i++)
        if (!ls_size_add(bytes, (size_t)size[i], &bytes))
            return ls_fail(LS_ERR_OVERFLOW, "the state of a job has more bytes than memory can have");
    char *room = malloc(bytes + 1);
    if (!room)
        return ls_fail(LS_ERR_MEMORY, "no memory for the state of the job, %zu bytes", bytes);
    package->bytes = room;
    memcpy(package->size, size, sizeof(package->size));
    return LS_OK;
}

void ls_package_free(ls_package *package)
{
    free(package->bytes);
    *package = (ls_package){ .bytes = NULL };
}
