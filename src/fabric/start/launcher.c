#include "fabric/start/launcher.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/numbers.h"
#include "base/bitset.h"
#include "fabric/start/environment.h"

/* Returns -1 for other clusters of the program: their ranks differ from the launcher's. */
static int open_file(const ls_cluster_options *options, int flags)
{
    ls_cluster_options own;
    const char *path = getenv(LS_LAUNCHER_VARIABLE);
    if (!path || !path[0] || ls_cluster_own_environment(&own) != LS_OK || own.rank != options->rank ||
        own.size != options->size || strcmp(own.job, options->job) != 0)
        return -1;
    return open(path, flags | O_CLOEXEC | O_NOCTTY);
}

int ls_launcher_open(const ls_cluster_options *options)
{
    return open_file(options, O_RDONLY);
}

void ls_launcher_report_chief(const ls_cluster_options *options)
{
    const char *text = getenv("LOCKSTEP_RESTART");
    int64_t restart = 0;
    int fd = open_file(options, O_WRONLY);
    if (fd < 0)
        return;
    if (text && !ls_parse_i64(text, &restart))
        restart = 0;
    uint16_t said[2] = { (uint16_t)(options->rank + 1), (uint16_t)restart };
    if (pwrite(fd, said, sizeof(said), LS_MAX_CLUSTER) < 0) {
        /* the launcher then uses the ranks */
    }
    close(fd);
}

void ls_launcher_read(int fd, uint64_t gone[LS_MAX_CLUSTER / 64])
{
    char bytes[LS_MAX_CLUSTER];
    ssize_t count = fd >= 0 ? pread(fd, bytes, sizeof(bytes), 0) : 0;
    memset(gone, 0, LS_MAX_CLUSTER / 8);
    for (int r = 0; r < (int)count; r++)
        if (bytes[r] == 1)
            ls_set_bit(gone, r);
}

bool ls_launcher_has_seen_end(const ls_cluster_options *options, int rank)
{
    uint64_t gone[LS_MAX_CLUSTER / 64];
    int fd = ls_launcher_open(options);
    ls_launcher_read(fd, gone);
    if (fd >= 0)
        close(fd);
    return ls_has_bit(gone, rank);
}
