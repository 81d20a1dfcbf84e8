/* Memory of the machine, or less if a control group limits it. */
#ifndef LS_DEVICE_HOST_MEMORY_H
#define LS_DEVICE_HOST_MEMORY_H

#include "base/status.h"

typedef struct ls_host_memory {
    size_t bytes; /* 0: unknown */
    /* "2.0 of 15.6 GiB: cgroup limit (/sys/...)"; "": no limit below the machine's */
    char reason[240];
} ls_host_memory;

/* `root` as in device/cgroup.h. */
ls_status ls_host_memory_find(const char *root, ls_host_memory *out);

#endif
