/* Cores and quota, read from /sys and /proc. Not through hwloc: its start alone opens some 20 libraries (X11, libxml2,
 * OpenCL), so it takes 3 ms when they are in memory and 13 when not; reading these few files takes 0.3. */
#include "device/cores.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"

#define MOST_CPUS 8192 /* the most a kernel for x86-64 or ARM can be built for */
#define CPU_FILES "/sys/devices/system/cpu"

/* ---- Small files ---- */

/* False when the file is not there, cannot be read or does not fit. The last newline is cut off. */
static bool read_line(const char *root, const char *path, char *line, size_t room)
{
    char whole[PATH_MAX];
    if (snprintf(whole, sizeof(whole), "%s%s", root, path) >= (int)sizeof(whole))
        return false;
    int fd = open(whole, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t bytes;
    do
        bytes = read(fd, line, room);
    while (bytes < 0 && errno == EINTR);
    close(fd);
    if (bytes <= 0 || (size_t)bytes == room)
        return false;
    line[bytes] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return true;
}

/* A number that begins at *text, which moves behind it. */
static bool take_number(const char **text, long long *out)
{
    char *end;
    errno = 0;
    *out = strtoll(*text, &end, 10);
    if (end == *text || errno)
        return false;
    *text = end;
    return true;
}

static bool read_number(const char *root, const char *path, long long *out)
{
    char line[64];
    const char *text = line;
    return read_line(root, path, line, sizeof(line)) && take_number(&text, out) && text[strspn(text, " \t")] == '\0';
}

/* ---- Sets of processors (hyper-threads, each with its number in the system) ---- */

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

/* A list as in "0-3,8,10-11". */
static bool read_cpus(const char *root, const char *path, cpu_bits *out)
{
    char line[8192];
    if (!read_line(root, path, line, sizeof(line)))
        return false;
    memset(out, 0, sizeof(*out));
    for (const char *text = line;; text++) {
        long long first, last;
        if (!take_number(&text, &first))
            return false;
        last = first;
        if (*text == '-' && (text++, !take_number(&text, &last)))
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
        return ls_fail(LS_ERR_DEVICE, "cannot ask which cores this process may use: %s", strerror(errno));
    return LS_OK;
}

/* ---- Cores ---- */

typedef struct core {
    int package;
    int os_index; /* of the first hyper-thread that may be used */
} core;

typedef struct core_list {
    core *core; /* those that may be used */
    int count;
    int total; /* of the machine */
} core_list;

static int by_package(const void *a, const void *b)
{
    const core *x = a, *y = b;
    return x->package != y->package ? (x->package > y->package) - (x->package < y->package)
                                    : (x->os_index > y->os_index) - (x->os_index < y->os_index);
}

/* The hyper-threads of the core that `cpu` is one of. */
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
    return read_number(root, path, &package) && package >= 0 && package <= INT_MAX ? (int)package : 0;
}

/* The core that `cpu` belongs to, by its first hyper-thread that is allowed; -1: none is. Marks them all as seen. */
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

/* ---- Quota ---- */

/* A process is in one group of each hierarchy: the unified one (version 2), and of version 1 the one that has the cpu
 * controller. Both may be there; a limit of either holds, and so does that of every group above. */
typedef enum hierarchy {
    UNIFIED,
    CPU_V1,
    HIERARCHIES,
} hierarchy;

typedef struct limit {
    double cpus; /* 0: none */
    char path[PATH_MAX];
} limit;

typedef struct search {
    const char *root;
    char group[HIERARCHIES][PATH_MAX]; /* "" at the root of the hierarchy */
    int mounts[HIERARCHIES];           /* seen so far, with the group below them */
    char other[HIERARCHIES][PATH_MAX]; /* a mount point that does not seem to hold the group */
    limit smallest;
} search;

static void lower(limit *smallest, long long quota, long long period, const char *path)
{
    if (quota <= 0 || period <= 0)
        return;
    double cpus = (double)quota / (double)period;
    if (smallest->cpus > 0 && smallest->cpus <= cpus)
        return;
    smallest->cpus = cpus;
    snprintf(smallest->path, sizeof(smallest->path), "%s", path);
}

/* "200000 100000", or "max 100000". */
static void read_unified(search *s, const char *path)
{
    char line[128];
    const char *text = line;
    long long quota, period = 100000; /* the kernel's own default */
    if (!read_line(s->root, path, line, sizeof(line)) || !take_number(&text, &quota))
        return;
    if (*text == ' ' && !take_number(&text, &period))
        return;
    if (text[strspn(text, " \t")] == '\0')
        lower(&s->smallest, quota, period, path);
}

static void read_limit(search *s, hierarchy h, const char *folder)
{
    char path[PATH_MAX], period_path[PATH_MAX];
    long long quota, period;
    const char *name = h == UNIFIED ? "cpu.max" : "cpu.cfs_quota_us";
    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path) ||
        snprintf(period_path, sizeof(period_path), "%s/cpu.cfs_period_us", folder) >= (int)sizeof(period_path))
        return;
    if (h == UNIFIED)
        read_unified(s, path);
    else if (read_number(s->root, path, &quota) && read_number(s->root, period_path, &period))
        lower(&s->smallest, quota, period, path);
}

/* The limits of `group` below the mount point, and of all groups above it that can be seen. */
static void climb(search *s, hierarchy h, const char *mount, const char *group)
{
    char folder[PATH_MAX];
    size_t stem = strlen(mount);
    if (snprintf(folder, sizeof(folder), "%s%s", mount, group) >= (int)sizeof(folder))
        return;
    for (;;) {
        read_limit(s, h, folder);
        char *slash = strrchr(folder, '/');
        if (!slash || slash < folder + stem)
            return;
        *slash = '\0';
    }
}

static bool list_has(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (; list; list = strchr(list, ',')) {
        list += *list == ',';
        if (strncmp(list, word, length) == 0 && (list[length] == ',' || list[length] == '\0'))
            return true;
    }
    return false;
}

/* What lies below `top`, with its slash; NULL when `path` does not. */
static const char *below(const char *path, const char *top)
{
    size_t length = strcmp(top, "/") == 0 ? 0 : strlen(top);
    if (strncmp(path, top, length) != 0 || (path[length] != '/' && path[length] != '\0'))
        return NULL;
    return path + length;
}

/* A line of /proc/self/cgroup: "4:cpu,cpuacct:/docker/1234", for version 2 "0::/user.slice". A group outside of our
 * namespace begins with "/..": nothing can be found by that name. */
static void take_group(search *s, char *line)
{
    char *number = strtok_r(line, ":", &line), *controllers = line, *colon = line ? strchr(line, ':') : NULL;
    if (!number || !colon)
        return;
    *colon = '\0';
    hierarchy h = list_has(controllers, "cpu") ? CPU_V1 : UNIFIED;
    const char *path = colon + 1;
    bool named = path[0] == '/' && path[1] != '\0' && !strstr(path, "/..");
    if (h == CPU_V1 || (strcmp(number, "0") == 0 && *controllers == '\0'))
        snprintf(s->group[h], sizeof(s->group[h]), "%s", named ? path : "");
}

/* Spaces and such are written as \040. */
static void decode(char *text)
{
    char *to = text;
    for (const char *from = text; *from; to++) {
        if (from[0] == '\\' && strspn(from + 1, "01234567") >= 3) {
            *to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

/* A line of /proc/self/mountinfo: "33 24 0:28 /docker/1234 /sys/fs/cgroup rw shared:4 - cgroup cgroup rw,cpu": two
 * numbers and a device, which group is mounted, where, options, words up to a hyphen, type, source, options. */
static void take_mount(search *s, char *line)
{
    char *group = NULL, *mount = NULL, *word;
    for (int i = 0; (word = strtok_r(line, " ", &line)) != NULL && (i < 6 || strcmp(word, "-") != 0); i++) {
        group = i == 3 ? word : group;
        mount = i == 4 ? word : mount;
    }
    char *type = strtok_r(NULL, " ", &line), *source = strtok_r(NULL, " ", &line), *options = line;
    if (!mount || !type || !source || !options)
        return;
    bool unified = strcmp(type, "cgroup2") == 0;
    if (!unified && (strcmp(type, "cgroup") != 0 || !list_has(options, "cpu")))
        return;
    decode(group);
    decode(mount);
    hierarchy h = unified ? UNIFIED : CPU_V1;
    const char *rest = below(s->group[h], group);
    if (rest) {
        climb(s, h, mount, rest);
        s->mounts[h]++;
    } else if (s->other[h][0] == '\0') {
        snprintf(s->other[h], sizeof(s->other[h]), "%s", mount);
    }
}

static void for_each_line(search *s, const char *path, void (*take)(search *s, char *line))
{
    char whole[PATH_MAX];
    if (snprintf(whole, sizeof(whole), "%s%s", s->root, path) >= (int)sizeof(whole))
        return;
    FILE *file = fopen(whole, "re");
    if (!file)
        return;
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, file) > 0) {
        line[strcspn(line, "\n")] = '\0';
        take(s, line);
    }
    free(line);
    fclose(file);
}

static ls_status find_quota(const char *root, limit *out)
{
    static const char *const usual[HIERARCHIES] = { "/sys/fs/cgroup", "/sys/fs/cgroup/cpu" };
    search *s = calloc(1, sizeof(*s));
    if (!s)
        return ls_fail(LS_ERR_MEMORY, "no memory to look for a CPU quota");
    s->root = root;
    for_each_line(s, "/proc/self/cgroup", take_group);
    for_each_line(s, "/proc/self/mountinfo", take_mount);
    for (hierarchy h = 0; h < HIERARCHIES; h++) {
        if (s->mounts[h] > 0)
            continue;
        /* In some containers names and mounts do not fit together; what is mounted is then our own group. */
        if (s->other[h][0] != '\0')
            climb(s, h, s->other[h], "");
        else
            climb(s, h, usual[h], s->group[h]);
    }
    *out = s->smallest;
    free(s);
    return LS_OK;
}

/* ---- Both together ---- */

static void write_reason(ls_cores *cores, const core_list *list, const limit *quota)
{
    char mask[64] = "";
    const char *path = quota->path, *cut = "";
    int most = 150; /* characters of the path: its end says most */
    if (list->count < list->total)
        snprintf(mask, sizeof(mask), "affinity mask of %d, ", list->count);
    if (strlen(path) > (size_t)most) {
        path += strlen(path) - (size_t)most;
        cut = "...";
    }
    if (!cores->bind)
        snprintf(cores->reason, sizeof(cores->reason), "%d of %d cores: %scgroup quota %.2f (%s%.*s)", cores->count,
                 list->total, mask, quota->cpus, cut, most, path);
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
    limit quota = { 0 };
    core_list list = { 0 };
    LS_TRY(find_quota(files, &quota));
    LS_TRY(find_cores(own ? files : "", &list));

    ls_cores cores = { .count = list.count, .total = list.count, .bind = true };
    if (quota.cpus > 0) { /* a little below a whole number is that number */
        double whole = quota.cpus + 0.01;
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
    write_reason(&cores, &list, &quota);
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

/* ---- Caches ---- */

/* "1024K" */
static size_t read_size(const char *path)
{
    char line[64];
    const char *text = line;
    long long size;
    if (!read_line("", path, line, sizeof(line)) || !take_number(&text, &size) || size < 0)
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
        if (!read_number("", path, &level))
            break;
        snprintf(path, sizeof(path), CPU_FILES "/cpu%d/cache/index%d/size", cpu, i);
        if (level == 2)
            return read_size(path);
    }
    long size = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return size > 0 ? (size_t)size : 0;
}
