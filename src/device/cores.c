/* Cores and quota, read from /sys and /proc (0.3 ms). hwloc would take 3 to 13 ms, because it opens
 * about 20 libraries (X11, libxml2, OpenCL). */
#include "device/cores.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "device/cgroup.h"
#include "device/sysfile.h"

#define MOST_CPUS 8192 /* most that an x86-64 or ARM kernel can have */
#define CPU_FILES "/sys/devices/system/cpu"

/* ---- Sets of CPUs (hyper-threads) ---- */

typedef struct cpu_bits {
    cpu_set_t part[MOST_CPUS / CPU_SETSIZE];
} cpu_bits;

static void bits_add(cpu_bits *bits, int cpu)
{
    CPU_SET_S((size_t)cpu, sizeof(*bits), bits->part);
}

static bool bits_have(const cpu_bits *bits, int cpu)
{
    return CPU_ISSET_S((size_t)cpu, sizeof(*bits), bits->part) != 0;
}

/* "0-3,8,10-11" */
static bool read_cpus(const char *root, const char *path, cpu_bits *out)
{
    char line[8192];
    if (!ls_sysfile_line(root, path, line, sizeof(line)))
        return false;
    memset(out, 0, sizeof(*out));
    for (const char *text = line;; text++) {
        long long first, last;
        if (!ls_take_number(&text, &first))
            return false;
        last = first;
        if (*text == '-' && (text++, !ls_take_number(&text, &last)))
            return false;
        if (first < 0 || last < first || last >= MOST_CPUS)
            return false;
        for (int cpu = (int)first; cpu <= (int)last; cpu++)
            bits_add(out, cpu);
        if (*text != ',')
            return *text == '\0';
    }
}

static ls_status read_mask(cpu_bits *out)
{
    memset(out, 0, sizeof(*out));
    if (sched_getaffinity(0, sizeof(*out), out->part))
        return ls_fail(LS_ERR_DEVICE, "cannot find out which cores this process may use: %s", strerror(errno));
    return LS_OK;
}

/* ---- Cores ---- */

typedef struct core {
    int package;
    int os_index; /* first allowed hyper-thread */
} core;

typedef struct core_list {
    core *core; /* allowed cores */
    int count;
    int total; /* cores of the machine */
} core_list;

static int by_package(const void *a, const void *b)
{
    const core *x = a, *y = b;
    return x->package != y->package ? (x->package > y->package) - (x->package < y->package)
                                    : (x->os_index > y->os_index) - (x->os_index < y->os_index);
}

static void read_siblings(const char *root, int cpu, cpu_bits *out)
{
    char path[128];
    snprintf(path, sizeof(path), CPU_FILES "/cpu%d/topology/thread_siblings_list", cpu);
    if (!read_cpus(root, path, out) || !bits_have(out, cpu)) {
        memset(out, 0, sizeof(*out));
        bits_add(out, cpu);
    }
}

static int read_package(const char *root, int cpu)
{
    char path[128];
    long long package;
    snprintf(path, sizeof(path), CPU_FILES "/cpu%d/topology/physical_package_id", cpu);
    return ls_sysfile_number(root, path, &package) && package >= 0 && package <= INT_MAX ? (int)package : 0;
}

/* Marks the hyper-threads of cpu's core as seen. Returns the first allowed one; -1: none. */
static int take_core(const char *root, int cpu, int end, const cpu_bits *allowed, cpu_bits *seen)
{
    cpu_bits siblings;
    int chosen = -1;
    read_siblings(root, cpu, &siblings);
    for (int i = cpu; i < end; i++) {
        if (!bits_have(&siblings, i) || bits_have(seen, i))
            continue;
        bits_add(seen, i);
        if (chosen < 0 && bits_have(allowed, i))
            chosen = i;
    }
    return chosen;
}

static ls_status find_cores(const char *root, core_list *out)
{
    cpu_bits allowed, present, seen = { 0 };
    LS_TRY(read_mask(&allowed));
    if (!read_cpus(root, CPU_FILES "/online", &present))
        memset(&present, 0, sizeof(present));
    CPU_OR_S(sizeof(present), present.part, present.part, allowed.part);
    int end = MOST_CPUS;
    while (end > 0 && !bits_have(&present, end - 1))
        end--;

    core_list list = { .core = calloc((size_t)end, sizeof(*list.core)) };
    if (!list.core)
        return ls_fail(LS_ERR_MEMORY, "no memory for the list of cores");
    for (int cpu = 0; cpu < end; cpu++) {
        if (!bits_have(&present, cpu) || bits_have(&seen, cpu))
            continue;
        int chosen = take_core(root, cpu, end, &allowed, &seen);
        if (chosen >= 0)
            list.core[list.count++] = (core){ read_package(root, chosen), chosen };
        list.total++;
    }
    qsort(list.core, (size_t)list.count, sizeof(*list.core), by_package);
    *out = list;
    return LS_OK;
}

/* ---- Cores and quota together ---- */

static void write_reason(ls_cores *cores, const core_list *list, const ls_cgroup_limit *quota)
{
    char mask[64] = "", path[LS_PATH_TEXT];
    if (list->count < list->total)
        snprintf(mask, sizeof(mask), "affinity mask of %d, ", list->count);
    if (!cores->bind)
        snprintf(cores->reason, sizeof(cores->reason), "%d of %d cores: %scgroup quota %.2f (%s)", cores->count,
                 list->total, mask, quota->value, ls_path_end(quota->path, path));
    else if (list->count < list->total)
        snprintf(cores->reason, sizeof(cores->reason), "%d of %d cores: affinity mask", cores->count, list->total);
    else
        snprintf(cores->reason, sizeof(cores->reason), "%d core%s", cores->count, cores->count == 1 ? "" : "s");
}

ls_status ls_cores_find(const char *root, ls_cores *out)
{
    const char *files = root && strcmp(root, "/") != 0 ? root : "";
    char folder[PATH_MAX];
    bool own =
        snprintf(folder, sizeof(folder), "%s" CPU_FILES, files) < (int)sizeof(folder) && access(folder, F_OK) == 0;
    ls_cgroup_limits limits;
    core_list list = { 0 };
    LS_TRY(ls_cgroup_find(root, &limits));
    LS_TRY(find_cores(own ? files : "", &list));

    ls_cores cores = { .count = list.count, .total = list.count, .bind = true };
    if (limits.cpus.value > 0) { /* rounds up what is just below a whole number */
        double whole = limits.cpus.value + 0.01;
        cores.quota = whole < 1 ? 1 : whole < MOST_CPUS ? (int)whole : MOST_CPUS;
        cores.bind = whole >= list.count;
        if (cores.quota < cores.count)
            cores.count = cores.quota;
    }
    cores.os_index = calloc((size_t)cores.total, sizeof(*cores.os_index));
    for (int i = 0; cores.os_index && i < cores.total; i++)
        cores.os_index[i] = list.core[i].os_index;
    free(list.core);
    if (!cores.os_index)
        return ls_fail(LS_ERR_MEMORY, "no memory for the numbers of %d cores", cores.total);
    write_reason(&cores, &list, &limits.cpus);
    *out = cores;
    return LS_OK;
}

void ls_cores_free(ls_cores *cores)
{
    free(cores->os_index);
    memset(cores, 0, sizeof(*cores));
}

ls_status ls_cores_bind(int os_index)
{
    if (os_index < 0 || os_index >= MOST_CPUS)
        return ls_fail(LS_ERR_INVALID, "there is no core %d to bind a thread to", os_index);
    cpu_bits one = { 0 };
    bits_add(&one, os_index);
    if (sched_setaffinity(0, sizeof(one), one.part))
        return ls_fail(errno == EINVAL ? LS_ERR_INVALID : LS_ERR_UNSUPPORTED, "cannot bind a thread to core %d: %s",
                       os_index, strerror(errno));
    return LS_OK;
}

/* ---- Time without a core ---- */

/* Sums the second number of each thread's schedstat: "nanoseconds on a core, nanoseconds ready
 * without one, time slices". */
double ls_cores_delay(const char *root)
{
    char path[PATH_MAX], line[128];
    double delay = -1;
    if (snprintf(path, sizeof(path), "%s/proc/self/task", root) >= (int)sizeof(path))
        return -1;
    DIR *threads = opendir(path);
    for (struct dirent *entry; threads && (entry = readdir(threads)) != NULL;) {
        long long ran, waited;
        const char *text = line;
        snprintf(path, sizeof(path), "/proc/self/task/%.20s/schedstat", entry->d_name);
        if (ls_sysfile_line(root, path, line, sizeof(line)) && ls_take_number(&text, &ran) &&
            ls_take_number(&text, &waited) && waited >= 0)
            delay = (delay < 0 ? 0 : delay) + 1e-9 * (double)waited;
    }
    if (threads)
        closedir(threads);
    return delay;
}

/* ---- Caches ---- */

/* "1024K" */
static size_t read_size(const char *path)
{
    char line[64];
    const char *text = line;
    long long size;
    if (!ls_sysfile_line("", path, line, sizeof(line)) || !ls_take_number(&text, &size) || size < 0)
        return 0;
    int shift = *text == 'K' ? 10 : *text == 'M' ? 20 : 0;
    return (size_t)size << shift;
}

size_t ls_cores_l2_bytes(void)
{
    cpu_bits allowed = { 0 };
    if (sched_getaffinity(0, sizeof(allowed), allowed.part))
        return 0;
    int cpu = 0;
    while (cpu < MOST_CPUS - 1 && !bits_have(&allowed, cpu))
        cpu++;
    char path[128];
    long long level;
    for (int i = 0;; i++) {
        snprintf(path, sizeof(path), CPU_FILES "/cpu%d/cache/index%d/level", cpu, i);
        if (!ls_sysfile_number("", path, &level))
            break;
        snprintf(path, sizeof(path), CPU_FILES "/cpu%d/cache/index%d/size", cpu, i);
        if (level == 2)
            return read_size(path);
    }
    long size = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return size > 0 ? (size_t)size : 0;
}
