#include "device/host_memory.h"

#include <stdio.h>
#include <unistd.h>

#include "device/cgroup.h"

#define GIB(bytes) ((double)(bytes) / 1073741824)

ls_status ls_host_memory_find(const char *root, ls_host_memory *out)
{
    ls_cgroup_limits limits;
    char path[LS_PATH_TEXT];
    LS_TRY(ls_cgroup_find(root, &limits));
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    *out = (ls_host_memory){ .bytes = pages > 0 && size > 0 ? (size_t)pages * (size_t)size : 0 };
    double limit = limits.memory.value;
    /* Cgroup version 1 reports a huge number if there is no limit. */
    if (limit > 0 && (out->bytes == 0 || limit < (double)out->bytes)) {
        snprintf(out->reason, sizeof(out->reason), "%.1f of %.1f GiB of memory: cgroup limit (%s)", GIB(limit),
                 GIB(out->bytes), ls_path_end(limits.memory.path, path));
        out->bytes = (size_t)limit;
    }
    return LS_OK;
}
