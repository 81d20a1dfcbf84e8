/* How much memory this process can have: what the machine has, or what a control group leaves of it. */
#ifndef LS_DEVICE_HOST_MEMORY_H
#define LS_DEVICE_HOST_MEMORY_H

#include "base/status.h"

typedef struct ls_host_memory {
    size_t bytes;     /* 0: not known */
    char reason[240]; /* "2.0 of 15.6 GiB: cgroup limit (/sys/...)"; "": all of the machine's */
} ls_host_memory;

/* `root` as in device/cgroup.h. */
ls_status ls_host_memory_find(const char *root, ls_host_memory *out);

#endif
