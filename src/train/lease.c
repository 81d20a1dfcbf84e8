/* Leases: who writes. Asked before each write, so this is one open and one read. */
#include "train/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "run/peers.h"

ls_status ls_lease_take(ls_lease *lease, const ls_context *ctx, const char *path)
{
    const ls_peers *peers = ctx->peers;
    struct timespec now;
    *lease = (ls_lease){ .path = "" };
    if (!peers)
        return LS_OK;
    if (strlen(path) >= sizeof(lease->path))
        return ls_fail(LS_ERR_IO, "the name of the file '%.100s...' is too long", path);
    clock_gettime(CLOCK_REALTIME, &now);
    int length =
        snprintf(lease->text, sizeof(lease->text), "epoch %u: worker %d of %d, process %ld, since %lld.%09ld\n",
                 peers->epoch, peers->rank, peers->size, (long)getpid(), (long long)now.tv_sec, now.tv_nsec);
    LS_TRY(ls_file_write(path, lease->text, (size_t)length));
    snprintf(lease->path, sizeof(lease->path), "%s", path);
    return LS_OK;
}

/* A file that is gone was removed by a worker that went on and is done. One that cannot be read says nothing. */
bool ls_lease_holds(const ls_lease *lease)
{
    char text[sizeof(lease->text)] = "";
    if (!lease->path[0])
        return true;
    int fd = ls_file_open(lease->path, O_RDONLY, 0);
    if (fd < 0)
        return errno != ENOENT;
    ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    return got < 0 || strcmp(text, lease->text) == 0;
}

void ls_lease_end(ls_lease *lease)
{
    if (lease->path[0] && ls_lease_holds(lease))
        unlink(lease->path);
    lease->path[0] = '\0';
}
