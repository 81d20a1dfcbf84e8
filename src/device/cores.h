/* Cores that this process may use, and threads to start: one per core of the affinity mask
 * (hyper-threads count once), limited by the CPU quota of the cgroup. */
#ifndef LS_DEVICE_CORES_H
#define LS_DEVICE_CORES_H

#include "lockstep/base.h"

typedef struct ls_cores {
    int count; /* threads, at least 1 */
    int total; /* cores in the mask; more than `count` if a quota is smaller */
    /* The system's numbers of `total` cores; cores of a package are adjacent. */
    int *os_index;
    int quota; /* threads; 0: no quota */
    /* Bind each thread to a core; not if the quota is smaller than the number of cores. */
    bool bind;
    /* "2 cores", "1 of 2 cores: affinity mask", or "2 of 64 cores: cgroup quota 2.00
     * (/sys/...)". */
    char reason[256];
} ls_cores;

/* Finds the cores in the calling thread's mask; a bound thread finds only its own. With `root`,
 * reads files of /proc and /sys below it instead of "/" (/sys/devices/system/cpu only if it is
 * there). Missing or unreadable files count as no limit. */
ls_status ls_cores_find(const char *root, ls_cores *out);
void ls_cores_free(ls_cores *cores); /* accepts and leaves zeros */

/* Optional: an unbound thread is only slower. */
ls_status ls_cores_bind(int os_index);

/* Seconds that this process's threads were ready to run but had no core; -1: unknown. root "":
 * none. */
double ls_cores_delay(const char *root);

/* L2 cache of the first core that the calling thread may use; 0: unknown. */
size_t ls_cores_l2_bytes(void);

#endif
