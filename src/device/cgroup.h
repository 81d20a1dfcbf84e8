/* CPU and memory limits of control groups (versions 1 and 2) on this process: the smallest of its
 * group and all groups above it. */
#ifndef LS_DEVICE_CGROUP_H
#define LS_DEVICE_CGROUP_H

#include <limits.h>

#include "base/status.h"

typedef struct ls_cgroup_limit {
    double value;        /* cores or bytes; 0: no limit */
    char path[PATH_MAX]; /* file that sets the limit */
} ls_cgroup_limit;

typedef struct ls_cgroup_limits {
    ls_cgroup_limit cpus;
    ls_cgroup_limit memory; /* memory.max or memory.high; in version 1 memory.limit_in_bytes */
} ls_cgroup_limits;

/* With `root`, reads /proc/self/cgroup, /proc/self/mountinfo and /sys/fs/cgroup below it instead of
 * "/". Missing or unreadable files count as no limit. */
ls_status ls_cgroup_find(const char *root, ls_cgroup_limits *out);

/* Keeps the end of a path, at most LS_PATH_TEXT - 1 characters, for messages. Returns `text`. */
#define LS_PATH_TEXT 72
const char *ls_path_end(const char *path, char text[LS_PATH_TEXT]);

#endif
