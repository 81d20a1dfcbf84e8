/* What the control groups of this process allow it: CPU time and memory, each the smallest limit from its own group up,
 * of version 2 and of version 1. */
#ifndef LS_DEVICE_CGROUP_H
#define LS_DEVICE_CGROUP_H

#include <limits.h>

#include "base/status.h"

typedef struct ls_cgroup_limit {
    double value;        /* cores' time, or bytes; 0: there is no limit */
    char path[PATH_MAX]; /* the file that sets it */
} ls_cgroup_limit;

typedef struct ls_cgroup_limits {
    ls_cgroup_limit cpus;
    ls_cgroup_limit memory; /* memory.max or memory.high, of version 1 memory.limit_in_bytes */
} ls_cgroup_limits;

/* Files are looked for under `root` instead of "/" when it is given: /proc/self/cgroup, /proc/self/mountinfo and
 * /sys/fs/cgroup. Whatever is missing or not understood there counts as no limit. */
ls_status ls_cgroup_find(const char *root, ls_cgroup_limits *out);

/* The end of a path, which says most, in at most LS_PATH_TEXT - 1 characters: for messages. Returns text. */
#define LS_PATH_TEXT 72
const char *ls_path_end(const char *path, char text[LS_PATH_TEXT]);

#endif
