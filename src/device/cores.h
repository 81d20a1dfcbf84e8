/* Which cores this process may use, and so how many worker threads: one for each core in its affinity mask (one for all
 * hyper-threads of a core), but no more than the CPU quota of its cgroup gives time for. */
#ifndef LS_DEVICE_CORES_H
#define LS_DEVICE_CORES_H

#include "lockstep/base.h"

typedef struct ls_cores {
    int count;        /* worker threads: at least 1 */
    int total;        /* cores in the mask: `count`, or more where a quota gives time for fewer */
    int *os_index;    /* of each of these, as the system numbers them; cores of one package stand together */
    int quota;        /* workers that the cgroup's quota gives time for; 0: there is no quota */
    bool bind;        /* whether workers should be bound: not when a quota below the cores is shared with other cores */
    char reason[256]; /* "2 cores", "1 of 2 cores: affinity mask", "2 of 64 cores: cgroup quota 2.00 (/sys/...)" */
} ls_cores;

/* The mask is that of the calling thread: one that was bound finds only its own core. Files are looked for under `root`
 * instead of "/" when it is given: /proc/self/cgroup, /proc/self/mountinfo, /sys/fs/cgroup, and /sys/devices/system/cpu
 * (the real one, if `root` has none). Whatever is missing or not understood there counts as no limit. */
ls_status ls_cores_find(const char *root, ls_cores *out);
void ls_cores_free(ls_cores *cores); /* leaves it all zeros; so may it be before */

/* Keeps the calling thread on one core. A wish: on failure the thread runs on as it was, perhaps slower. */
ls_status ls_cores_bind(int os_index);

/* Seconds that threads of this process were ready to run and had no core, since each began: other work took it. -1: not
 * known. `root` as above, "" for none. */
double ls_cores_delay(const char *root);

/* Of the first core that the calling thread may use; 0 when not known. */
size_t ls_cores_l2_bytes(void);

#endif
