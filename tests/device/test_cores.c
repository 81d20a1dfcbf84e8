/* Cores and memory: quotas and limits found in made-up roots of every kind, masks and
 * hyper-threads, and what this machine itself gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "check.h"
#include "device/cores.h"
#include "device/host_memory.h"
#include "folder.h"

/* ---- A made-up root ---- */

static void fresh_root(void)
{
    assert_int_equal(remove_folder(NULL), 0);
    assert_int_equal(make_folder(NULL), 0);
}

static void put(const char *path, const char *content)
{
    char whole[2048];
    snprintf(whole, sizeof(whole), "%s%s", folder, path);
    for (char *slash = whole + strlen(folder) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(whole, 0777);
        *slash = '/';
    }
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    assert_true(fputs(content, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void put_of_cpu(int cpu, const char *name, const char *content)
{
    char path[128];
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, name);
    put(path, content);
}

/* ---- The mask of this thread ---- */

static int allowed[CPU_SETSIZE], allowed_count;
static cpu_set_t allowed_set;

static int read_allowed(void **state)
{
    (void)state;
    if (sched_getaffinity(0, sizeof(allowed_set), &allowed_set) != 0)
        return -1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed_set))
            allowed[allowed_count++] = cpu;
    return 0;
}

/* The cores that a child process finds if it may run only on `cpu`. */
typedef struct found {
    ls_status status;
    int count, first;
    bool bind;
    char reason[256];
} found;

static found find_masked(const char *where, int cpu)
{
    int ends[2];
    found f = { .status = LS_ERR_INTERNAL };
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        ls_cores cores = { 0 };
        if (sched_setaffinity(0, sizeof(one), &one) == 0)
            f.status = ls_cores_find(where, &cores);
        if (f.status == LS_OK) {
            f.count = cores.count;
            f.first = cores.os_index[0];
            f.bind = cores.bind;
            memcpy(f.reason, cores.reason, sizeof(f.reason));
        }
        ls_cores_free(&cores);
        _exit(write(ends[1], &f, sizeof(f)) != (ssize_t)sizeof(f));
    }
    int status;
    close(ends[1]);
    assert_int_equal(read(ends[0], &f, sizeof(f)), sizeof(f));
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(f.status, LS_OK);
    return f;
}

/* ---- Quotas ---- */

#define V2_MOUNT "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1_MOUNT                                                                                                       \
    "31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"                                                       \
    "33 31 0:30 / /sys/fs/cgroup/cpuset rw shared:9 - cgroup cgroup rw,cpuset\n"                                       \
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:8 master:2 - cgroup cgroup rw,cpu,cpuacct\n"
#define V1 "/sys/fs/cgroup/cpu,cpuacct"

typedef struct quota_case {
    const char *name;
    const char *group, *mounts; /* /proc/self/cgroup and /proc/self/mountinfo; NULL: not there */
    const char *files[8][2];
    int quota;
    double cpus;
    const char *path; /* the file that the reason names */
} quota_case;

/* clang-format off */
static const quota_case quota_cases[] = {
    { "v2", "0::/user.slice\n", V2_MOUNT, { { "/sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n" } }, 1, 1.5,
      "/sys/fs/cgroup/user.slice/cpu.max" },
    { "v2, several", "0::/a\n", V2_MOUNT, { { "/sys/fs/cgroup/a/cpu.max", "700000 200000\n" } }, 3, 3.5,
      "/sys/fs/cgroup/a/cpu.max" },
    { "v2, less than one", "0::/a\n", V2_MOUNT, { { "/sys/fs/cgroup/a/cpu.max", "25000 100000\n" } }, 1, 0.25,
      "/sys/fs/cgroup/a/cpu.max" },
    { "v2, just below a whole number", "0::/a\n", V2_MOUNT, { { "/sys/fs/cgroup/a/cpu.max", "199500 100000" } }, 2,
      1.995, "/sys/fs/cgroup/a/cpu.max" },
    { "v2, more below", "0::/a\n", V2_MOUNT, { { "/sys/fs/cgroup/a/cpu.max", "198000 100000" } }, 1, 1.98,
      "/sys/fs/cgroup/a/cpu.max" },
    { "v2, more than any machine", "0::/a\n", V2_MOUNT, { { "/sys/fs/cgroup/a/cpu.max", "9000000000000000000 1\n" } },
      8192, 9e18, "" },
    { "v2, no period", "0::/a\n", V2_MOUNT, { { "/sys/fs/cgroup/a/cpu.max", "100000\n" } }, 1, 1,
      "/sys/fs/cgroup/a/cpu.max" },
    { "v2, max", "0::/a\n", V2_MOUNT, { { "/sys/fs/cgroup/a/cpu.max", "max 100000\n" } }, 0, 0, NULL },
    { "v2, the parent is smaller", "0::/a/b/c\n", V2_MOUNT, { { "/sys/fs/cgroup/a/b/c/cpu.max", "300000 100000\n" },
      { "/sys/fs/cgroup/a/b/cpu.max", "max 100000\n" }, { "/sys/fs/cgroup/a/cpu.max", "50000 100000\n" } }, 1, 0.5,
      "/sys/fs/cgroup/a/cpu.max" },
    { "v2, the child is smaller", "0::/a/b\n", V2_MOUNT,
      { { "/sys/fs/cgroup/a/b/cpu.max", "50000 100000\n" }, { "/sys/fs/cgroup/a/cpu.max", "300000 100000\n" } }, 1, 0.5,
      "/sys/fs/cgroup/a/b/cpu.max" },
    { "v2, a sister and a child do not matter", "0::/a\n", V2_MOUNT, { { "/sys/fs/cgroup/b/cpu.max", "10000 100000\n" },
      { "/sys/fs/cgroup/a/b/cpu.max", "10000 100000\n" }, { "/sys/fs/cgroup/a/cpu.max", "500000 100000\n" } }, 5, 5,
      "/sys/fs/cgroup/a/cpu.max" },
    { "v2, the mount point itself (a container with its own namespace)", "0::/\n", V2_MOUNT,
      { { "/sys/fs/cgroup/cpu.max", "75000 100000\n" } }, 1, 0.75, "/sys/fs/cgroup/cpu.max" },
    { "v2, the group has no folder here", "0::/kubepods/pod1 (deleted)\n", V2_MOUNT,
      { { "/sys/fs/cgroup/cpu.max", "75000 100000\n" } }, 1, 0.75, "/sys/fs/cgroup/cpu.max" },
    { "v2, outside of the namespace", "0::/../../outside\n", V2_MOUNT,
      { { "/sys/fs/cgroup/cpu.max", "75000 100000\n" }, { "/sys/outside/cpu.max", "10000 100000\n" } }, 1, 0.75,
      "/sys/fs/cgroup/cpu.max" },
    { "v2, mounted from above the namespace", "0::/\n", "30 23 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
      { { "/sys/fs/cgroup/cpu.max", "75000 100000" } }, 1, 0.75, "/sys/fs/cgroup/cpu.max" },
    { "v2, a part of the tree is mounted", "0::/docker/12/inner\n",
      "30 23 0:26 /docker/12 /mnt/my\\040groups rw - cgroup2 none rw\n",
      { { "/mnt/my groups/inner/cpu.max", "max 100000" }, { "/mnt/my groups/cpu.max", "75000 100000" },
      { "/mnt/my groups/docker/12/inner/cpu.max", "1 100000" } }, 1, 0.75, "/mnt/my groups/cpu.max" },
    { "v2, a mount of another group does not matter", "0::/docker/12\n",
      "30 23 0:26 /docker/1 /mnt rw - cgroup2 none rw\n" V2_MOUNT,
      { { "/mnt/cpu.max", "1000 100000" }, { "/mnt2/cpu.max", "1000 100000" },
      { "/sys/fs/cgroup/docker/12/cpu.max", "75000 100000" } }, 1, 0.75,
      "/sys/fs/cgroup/docker/12/cpu.max" },
    { "v2, nothing but the folder", NULL, NULL, { { "/sys/fs/cgroup/cpu.max", "75000 100000\n" } }, 1, 0.75,
      "/sys/fs/cgroup/cpu.max" },
    { "v1", "5:cpuset:/other\n4:cpu,cpuacct:/docker/12\n1:name=systemd:/x\n", V1_MOUNT,
      { { V1 "/docker/12/cpu.cfs_quota_us", "150000\n" }, { V1 "/docker/12/cpu.cfs_period_us", "100000\n" } }, 1, 1.5,
      V1 "/docker/12/cpu.cfs_quota_us" },
    { "v1, no limit", "4:cpu,cpuacct:/docker/12\n", V1_MOUNT,
      { { V1 "/docker/12/cpu.cfs_quota_us", "-1\n" }, { V1 "/docker/12/cpu.cfs_period_us", "100000\n" } }, 0, 0, NULL },
    { "v1, the parent is smaller", "4:cpuacct,cpu:/a/b\n", V1_MOUNT, { { V1 "/a/b/cpu.cfs_quota_us", "-1\n" },
      { V1 "/a/b/cpu.cfs_period_us", "100000\n" }, { V1 "/a/cpu.cfs_quota_us", "20000\n" },
      { V1 "/a/cpu.cfs_period_us", "50000\n" }, { V1 "/cpu.cfs_quota_us", "100000\n" },
      { V1 "/cpu.cfs_period_us", "100000\n" } }, 1, 0.4, V1 "/a/cpu.cfs_quota_us" },
    { "v1, the parent has no limit", "4:cpuacct,cpu:/a\n", V1_MOUNT, { { V1 "/a/cpu.cfs_quota_us", "20000\n" },
      { V1 "/a/cpu.cfs_period_us", "50000\n" }, { V1 "/cpu.cfs_quota_us", "-1\n" },
      { V1 "/cpu.cfs_period_us", "100000\n" } }, 1, 0.4, V1 "/a/cpu.cfs_quota_us" },
    { "v1, mounted by the container's own root", "4:cpu,cpuacct:/docker/12\n",
      "33 24 0:28 /docker/12 /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n",
      { { V1 "/cpu.cfs_quota_us", "50000\n" }, { V1 "/cpu.cfs_period_us", "100000\n" } }, 1, 0.5,
      V1 "/cpu.cfs_quota_us" },
    { "v1, no period", "4:cpu:/\n", V1_MOUNT, { { V1 "/cpu.cfs_quota_us", "50000\n" } }, 0, 0, NULL },
    { "v1, period 0", "4:cpu:/\n", V1_MOUNT,
      { { V1 "/cpu.cfs_quota_us", "50000\n" }, { V1 "/cpu.cfs_period_us", "0\n" } }, 0, 0, NULL },
    { "v1, a mount without cpu does not matter", "4:cpuacct:/\n3:cpuset:/\n",
      "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset,cpuacct\n",
      { { "/sys/fs/cgroup/cpuset/cpu.cfs_quota_us", "50000\n" },
      { "/sys/fs/cgroup/cpuset/cpu.cfs_period_us", "100000\n" } }, 0, 0, NULL },
    { "hybrid, the limit in v1", "4:cpu,cpuacct:/a\n0::/b\n",
      V1_MOUNT "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
      { { V1 "/a/cpu.cfs_quota_us", "50000\n" }, { V1 "/a/cpu.cfs_period_us", "100000\n" },
      { "/sys/fs/cgroup/unified/b/cgroup.procs", "1\n" } }, 1, 0.5, V1 "/a/cpu.cfs_quota_us" },
    { "hybrid, the limit in v2", "4:cpu,cpuacct:/a\n0::/b\n",
      V1_MOUNT "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n", { { V1 "/a/cpu.cfs_quota_us", "-1\n" },
      { V1 "/a/cpu.cfs_period_us", "100000\n" }, { "/sys/fs/cgroup/unified/b/cpu.max", "50000 100000\n" } }, 1, 0.5,
      "/sys/fs/cgroup/unified/b/cpu.max" },
    { "nothing at all", NULL, NULL, { { NULL } }, 0, 0, NULL },
    { "garbage, v2: a word", "0::/a\n", V2_MOUNT, { { "/sys/fs/cgroup/a/cpu.max", "lots 100000\n" } }, 0, 0, NULL },
    { "garbage, v2: empty", "0::/a\n", V2_MOUNT, { { "/sys/fs/cgroup/a/cpu.max", "" } }, 0, 0, NULL },
    { "garbage, v2: a word after", "0::/a\n", V2_MOUNT, { { "/sys/fs/cgroup/a/cpu.max", "50000 100000x" } }, 0, 0,
      NULL },
    { "garbage, v2: period 0", "0::/a\n", V2_MOUNT, { { "/sys/fs/cgroup/a/cpu.max", "50000 0" } }, 0, 0, NULL },
    { "garbage, v2: below 0", "0::/a\n", V2_MOUNT, { { "/sys/fs/cgroup/a/cpu.max", "-50000 100000" } }, 0, 0, NULL },
    { "garbage, v2: too large", "0::/a\n", V2_MOUNT,
      { { "/sys/fs/cgroup/a/cpu.max", "99999999999999999999999 100000" } }, 0, 0, NULL },
    { "garbage in the child, a limit in the parent", "0::/a/b\n", V2_MOUNT,
      { { "/sys/fs/cgroup/a/b/cpu.max", "?" }, { "/sys/fs/cgroup/a/cpu.max", "50000 100000" } }, 1, 0.5,
      "/sys/fs/cgroup/a/cpu.max" },
    { "garbage lines", "\n:\n::\n0\n0:\nx:y\n0::nothing\n:::::\n",
      "\n \n- - -\n1 2 3\n1 2 3 / /m rw -\n1 2 3 / /m rw - cgroup2\n\\0 \\ \\04 \\0 \\9 x - "
      "cgroup2 y z\n1 2 3 4 5 6 7 8 9\n", { { "/m/cpu.max", "50000 100000" } }, 0, 0, NULL },
};
/* clang-format on */

static void check_quota(const quota_case *c)
{
    ls_cores cores = { 0 };
    fresh_root();
    if (c->group)
        put("/proc/self/cgroup", c->group);
    if (c->mounts)
        put("/proc/self/mountinfo", c->mounts);
    for (size_t i = 0; i < LENGTH(c->files) && c->files[i][0]; i++)
        put(c->files[i][0], c->files[i][1]);
    put("/sys/devices/system/cpu/online", "0"); /* nothing about hyper-threads: each allowed processor is a core */

    ls_fail(LS_ERR_DATA, "untouched");
    assert_int_equal(ls_cores_find(folder, &cores), LS_OK);
    assert_string_equal(ls_last_error(), "untouched"); /* tolerated contents are not errors */
    assert_int_equal(cores.quota, c->quota);
    bool limited = c->quota > 0 && c->cpus + 0.01 < allowed_count;
    assert_int_equal(cores.bind, !limited);
    assert_int_equal(cores.count, limited ? c->quota : allowed_count);
    for (int i = 0; i < cores.count; i++)
        assert_int_equal(cores.os_index[i], allowed[i]);
    if (limited) {
        char want[256];
        snprintf(want, sizeof(want), "cores: cgroup quota %.2f (%s)", c->cpus, c->path);
        const char *rest = strstr(cores.reason, "cores: ");
        assert_non_null(rest);
        if (allowed[0] == 0) /* else processor 0 is one core more */
            assert_string_equal(rest, want);
    } else {
        assert_null(strstr(cores.reason, "quota"));
    }
    ls_cores_free(&cores);
    assert_null(cores.os_index);
    assert_int_equal(cores.count, 0);
}

static void quotas_are_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(quota_cases); i++) {
        print_message("  %s\n", quota_cases[i].name);
        check_quota(&quota_cases[i]);
    }
}

/* ---- Memory ---- */

#define V1_MEMORY "/sys/fs/cgroup/memory"
#define V1_MEMORY_MOUNT                                                                                                \
    "34 31 0:31 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory\n"                                      \
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:8 - cgroup cgroup rw,cpu,cpuacct\n"

typedef struct memory_case {
    const char *name;
    const char *group, *mounts;
    const char *files[4][2];
    size_t bytes;     /* 0: no limit */
    const char *path; /* the file that the reason names */
} memory_case;

/* clang-format off */
static const memory_case memory_cases[] = {
    { "v2", "0::/a\n", V2_MOUNT, { { "/sys/fs/cgroup/a/memory.max", "104857600\n" } }, 104857600,
      "/sys/fs/cgroup/a/memory.max" },
    { "v2, high is smaller", "0::/a\n", V2_MOUNT, { { "/sys/fs/cgroup/a/memory.max", "104857600\n" },
      { "/sys/fs/cgroup/a/memory.high", "52428800\n" } }, 52428800, "/sys/fs/cgroup/a/memory.high" },
    { "v2, max is smaller", "0::/a\n", V2_MOUNT, { { "/sys/fs/cgroup/a/memory.max", "52428800\n" },
      { "/sys/fs/cgroup/a/memory.high", "104857600\n" } }, 52428800, "/sys/fs/cgroup/a/memory.max" },
    { "v2, the parent is smaller", "0::/a/b\n", V2_MOUNT, { { "/sys/fs/cgroup/a/b/memory.max", "max\n" },
      { "/sys/fs/cgroup/a/memory.max", "52428800\n" }, { "/sys/fs/cgroup/memory.max", "104857600\n" } }, 52428800,
      "/sys/fs/cgroup/a/memory.max" },
    { "v2, a sister does not matter", "0::/a\n", V2_MOUNT, { { "/sys/fs/cgroup/b/memory.max", "1048576\n" } }, 0, NULL },
    { "v2, max", "0::/a\n", V2_MOUNT, { { "/sys/fs/cgroup/a/memory.max", "max\n" },
      { "/sys/fs/cgroup/a/memory.high", "max\n" } }, 0, NULL },
    { "v2, more than the machine has", "0::/a\n", V2_MOUNT,
      { { "/sys/fs/cgroup/a/memory.max", "4611686018427387904\n" } }, 0, NULL },
    { "v2, nothing but the folder", NULL, NULL, { { "/sys/fs/cgroup/memory.max", "104857600\n" } }, 104857600,
      "/sys/fs/cgroup/memory.max" },
    { "v1", "6:memory:/docker/12\n4:cpu,cpuacct:/other\n", V1_MEMORY_MOUNT,
      { { V1_MEMORY "/docker/12/memory.limit_in_bytes", "104857600\n" },
      { V1_MEMORY "/other/memory.limit_in_bytes", "1048576\n" } }, 104857600,
      V1_MEMORY "/docker/12/memory.limit_in_bytes" },
    { "v1, the parent is smaller", "6:memory:/a/b\n", V1_MEMORY_MOUNT,
      { { V1_MEMORY "/a/b/memory.limit_in_bytes", "9223372036854771712\n" },
      { V1_MEMORY "/a/memory.limit_in_bytes", "52428800\n" } }, 52428800, V1_MEMORY "/a/memory.limit_in_bytes" },
    { "v1, no limit", "6:memory:/a\n", V1_MEMORY_MOUNT,
      { { V1_MEMORY "/a/memory.limit_in_bytes", "9223372036854771712\n" } }, 0, NULL },
    { "v1, the group of another controller does not matter", "4:cpu,cpuacct:/a\n", V1_MEMORY_MOUNT,
      { { V1_MEMORY "/a/memory.limit_in_bytes", "1048576\n" } }, 0, NULL },
    { "hybrid", "6:memory:/a\n0::/b\n", V1_MEMORY_MOUNT "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
      { { V1_MEMORY "/a/memory.limit_in_bytes", "104857600\n" },
      { "/sys/fs/cgroup/unified/b/memory.max", "52428800\n" } }, 52428800, "/sys/fs/cgroup/unified/b/memory.max" },
    { "v1, nothing but the folder", NULL, NULL, { { V1_MEMORY "/memory.limit_in_bytes", "104857600\n" } }, 104857600,
      V1_MEMORY "/memory.limit_in_bytes" },
    { "v2, an odd place, of a group that is not ours by name", "0::/elsewhere\n",
      "31 24 0:27 /docker/12 /mnt/groups rw - cgroup2 cgroup2 rw\n",
      { { "/mnt/groups/memory.max", "104857600\n" }, { "/sys/fs/cgroup/memory.max", "52428800\n" } }, 104857600,
      "/mnt/groups/memory.max" },
    { "garbage", "0::/a\n", V2_MOUNT, { { "/sys/fs/cgroup/a/memory.max", "lots\n" },
      { "/sys/fs/cgroup/a/memory.high", "-5\n" } }, 0, NULL },
    { "nothing at all", NULL, NULL, { { NULL } }, 0, NULL },
};
/* clang-format on */

static void memory_limits_are_found(void **state)
{
    (void)state;
    size_t machine = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < LENGTH(memory_cases); i++) {
        const memory_case *c = &memory_cases[i];
        ls_host_memory memory;
        print_message("  %s\n", c->name);
        fresh_root();
        if (c->group)
            put("/proc/self/cgroup", c->group);
        if (c->mounts)
            put("/proc/self/mountinfo", c->mounts);
        for (size_t k = 0; k < LENGTH(c->files) && c->files[k][0]; k++)
            put(c->files[k][0], c->files[k][1]);
        assert_int_equal(ls_host_memory_find(folder, &memory), LS_OK);
        assert_int_equal(memory.bytes, c->bytes ? c->bytes : machine);
        if (c->bytes)
            assert_non_null(strstr(memory.reason, c->path));
        else
            assert_string_equal(memory.reason, "");
    }
}

static void a_long_path_is_shown_by_its_end(void **state)
{
    (void)state;
    char group[1300] = "0::", file[1400] = "/sys/fs/cgroup";
    for (int i = 0; i < 50; i++)
        strcat(group, "/kubepods-burstable.slice");
    strcat(file, group + 3);
    strcat(file, "/cpu.max");
    put("/proc/self/cgroup", group);
    put("/proc/self/mountinfo", V2_MOUNT);
    put(file, "50000 100000");
    ls_cores cores = { 0 };
    assert_int_equal(ls_cores_find(folder, &cores), LS_OK);
    assert_int_equal(cores.count, 1);
    assert_false(cores.bind);
    assert_non_null(strstr(cores.reason, "cgroup quota 0.50 (..."));
    assert_non_null(strstr(cores.reason, "/kubepods-burstable.slice/cpu.max)"));
    ls_cores_free(&cores);
}

/* ---- Masks and hyper-threads ---- */

static void put_64_cores(void)
{
    put("/sys/devices/system/cpu/online", "0-63\n");
}

static void a_mask_of_one_gives_one_worker(void **state)
{
    (void)state;
    int machine = 0; /* cores of this one */
    ls_cores cores = { 0 };
    assert_int_equal(ls_cores_find(NULL, &cores), LS_OK);
    if (sscanf(cores.reason, "%*d of %d cores", &machine) != 1)
        machine = cores.count;
    ls_cores_free(&cores);

    for (int i = 0; i < allowed_count; i++) {
        found f = find_masked(NULL, allowed[i]);
        assert_int_equal(f.count, 1);
        assert_int_equal(f.first, allowed[i]);
        char want[256];
        snprintf(want, sizeof(want), "1 of %d cores: affinity mask", machine);
        if (f.bind) /* else this machine has a quota below 1 */
            assert_string_equal(f.reason, machine == 1 ? "1 core" : want);

        put_64_cores();
        f = find_masked(folder, allowed[i]);
        assert_int_equal(f.count, 1);
        assert_int_equal(f.first, allowed[i]);
        assert_true(f.bind);
        if (allowed[i] < 64)
            assert_string_equal(f.reason, "1 of 64 cores: affinity mask");
    }
}

static void mask_and_quota_are_both_named(void **state)
{
    (void)state;
    put_64_cores();
    put("/proc/self/cgroup", "0::/a\n");
    put("/proc/self/mountinfo", V2_MOUNT);
    put("/sys/fs/cgroup/a/cpu.max", "50000 100000");
    found f = find_masked(folder, allowed[0]);
    assert_int_equal(f.count, 1);
    assert_false(f.bind);
    if (allowed[0] < 64)
        assert_string_equal(f.reason,
                            "1 of 64 cores: affinity mask of 1, cgroup quota 0.50 (/sys/fs/cgroup/a/cpu.max)");

    put("/sys/fs/cgroup/a/cpu.max", "200000 100000"); /* more than the mask: it does not matter */
    f = find_masked(folder, allowed[0]);
    assert_int_equal(f.count, 1);
    assert_true(f.bind);
    if (allowed[0] < 64)
        assert_string_equal(f.reason, "1 of 64 cores: affinity mask");
}

static void put_list(const char *path, const int *cpus, int count)
{
    char list[8192];
    int length = 0;
    for (int i = 0; i < count; i++)
        length += snprintf(list + length, sizeof(list) - (size_t)length, i ? ",%d" : "%d", cpus[i]);
    put(path, list);
}

static void one_hyper_thread_of_a_core_is_used(void **state)
{
    (void)state;
    put_list("/sys/devices/system/cpu/online", allowed, allowed_count);
    for (int i = 0; i < allowed_count; i++) { /* all are one core */
        char path[128];
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", allowed[i]);
        put_list(path, allowed, allowed_count);
    }
    ls_cores cores = { 0 };
    assert_int_equal(ls_cores_find(folder, &cores), LS_OK);
    assert_int_equal(cores.count, 1);
    assert_int_equal(cores.os_index[0], allowed[0]);
    assert_string_equal(cores.reason, "1 core");
    ls_cores_free(&cores);

    /* The allowed hyper-thread represents its core, whether it is the first or not. */
    found f = find_masked(folder, allowed[allowed_count - 1]);
    assert_int_equal(f.count, 1);
    assert_int_equal(f.first, allowed[allowed_count - 1]);
    assert_string_equal(f.reason, "1 core");
}

static void cores_of_a_package_stand_together(void **state)
{
    (void)state;
    put_list("/sys/devices/system/cpu/online", allowed, allowed_count);
    for (int i = 0; i < allowed_count; i++) /* 1 0 1 0 ... */
        put_of_cpu(allowed[i], "physical_package_id", i % 2 ? "0\n" : "1\n");
    ls_cores cores = { 0 };
    assert_int_equal(ls_cores_find(folder, &cores), LS_OK);
    assert_int_equal(cores.count, allowed_count);
    int n = 0;
    for (int i = 1; i < allowed_count; i += 2)
        assert_int_equal(cores.os_index[n++], allowed[i]);
    for (int i = 0; i < allowed_count; i += 2)
        assert_int_equal(cores.os_index[n++], allowed[i]);
    ls_cores_free(&cores);
}

static void bad_lists_are_no_harm(void **state)
{
    (void)state;
    static const char *const bad[] = { "",
                                       "\n",
                                       "x",
                                       "0-",
                                       "-1",
                                       "5-2",
                                       "0,,1",
                                       "0-99999999",
                                       "0-3 4",
                                       "8192",
                                       "0-9x",
                                       "0x10",
                                       "99999999999999999999999" };
    for (size_t i = 0; i < LENGTH(bad); i++) {
        ls_cores cores = { 0 };
        put("/sys/devices/system/cpu/online", bad[i]);
        for (int k = 0; k < allowed_count; k++) {
            put_of_cpu(allowed[k], "thread_siblings_list", bad[i]);
            put_of_cpu(allowed[k], "physical_package_id", bad[i]);
        }
        assert_int_equal(ls_cores_find(folder, &cores), LS_OK);
        assert_int_equal(cores.count, allowed_count);
        for (int k = 0; k < allowed_count; k++)
            assert_int_equal(cores.os_index[k], allowed[k]);
        ls_cores_free(&cores);
    }

    /* Several cores that all claim the one processor that is allowed. */
    fresh_root();
    put("/sys/devices/system/cpu/online", "0-8000");
    for (int cpu = 0; cpu < 500; cpu++) {
        char list[64];
        snprintf(list, sizeof(list), "%d,%d", cpu, allowed[allowed_count - 1]);
        put_of_cpu(cpu, "thread_siblings_list", list);
    }
    found f = find_masked(folder, allowed[allowed_count - 1]);
    assert_int_equal(f.count, 1);
    assert_int_equal(f.first, allowed[allowed_count - 1]);
}

/* ---- This machine ---- */

static void this_machine_gives_no_more_than_its_mask(void **state)
{
    (void)state;
    static const char *const roots[] = { NULL, "/" };
    for (size_t r = 0; r < LENGTH(roots); r++) {
        ls_cores cores = { 0 };
        assert_int_equal(ls_cores_find(roots[r], &cores), LS_OK);
        print_message("  %s; L2: %zu bytes\n", cores.reason, ls_cores_l2_bytes());
        assert_in_range(cores.count, 1, allowed_count);
        cpu_set_t seen;
        CPU_ZERO(&seen);
        for (int i = 0; i < cores.count; i++) {
            assert_true(CPU_ISSET(cores.os_index[i], &allowed_set));
            assert_false(CPU_ISSET(cores.os_index[i], &seen));
            CPU_SET(cores.os_index[i], &seen);
        }
        char want[32];
        int length = snprintf(want, sizeof(want), "%d ", cores.count);
        assert_int_equal(strncmp(cores.reason, want, (size_t)length), 0);
        ls_cores_free(&cores);
    }
}

static void *bind_and_look(void *user)
{
    const int *cpu = user;
    cpu_set_t set;
    if (ls_cores_bind(-1) == LS_OK || ls_cores_bind(8192) == LS_OK || ls_cores_bind(8191) == LS_OK)
        return "bound to a core that is not there";
    if (!strstr(ls_last_error(), "8191"))
        return "the message does not name the core";
    if (sched_getaffinity(0, sizeof(set), &set) != 0 || !CPU_EQUAL(&set, &allowed_set))
        return "a failed bind changed the mask";
    if (ls_cores_bind(*cpu) != LS_OK)
        return "not bound";
    if (sched_getaffinity(0, sizeof(set), &set) != 0 || CPU_COUNT(&set) != 1 || !CPU_ISSET(*cpu, &set))
        return "the mask is not that core";
    if (sched_getcpu() != *cpu)
        return "runs elsewhere";
    return NULL;
}

static void binding_keeps_one_thread_on_its_core(void **state)
{
    (void)state;
    for (int i = 0; i < allowed_count; i++) {
        pthread_t thread;
        void *trouble;
        assert_int_equal(pthread_create(&thread, NULL, bind_and_look, &allowed[i]), 0);
        assert_int_equal(pthread_join(thread, &trouble), 0);
        if (trouble)
            fail_msg("core %d: %s", allowed[i], (const char *)trouble);
    }
    cpu_set_t set; /* the mask of this thread, as it was */
    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    assert_true(CPU_EQUAL(&set, &allowed_set));
}

static void the_second_cache_is_in_bytes(void **state)
{
    (void)state;
    char path[128];
    int level = 0, kib = 0;
    char unit = '?';
    for (int index = 0; index < 8 && level != 2; index++) {
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index%d/level", allowed[0], index);
        FILE *file = fopen(path, "r");
        if (!file)
            break;
        assert_int_equal(fscanf(file, "%d", &level), 1);
        fclose(file);
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index%d/size", allowed[0], index);
        file = fopen(path, "r");
        assert_non_null(file);
        assert_int_equal(fscanf(file, "%d%c", &kib, &unit), 2);
        fclose(file);
    }
    size_t bytes = ls_cores_l2_bytes();
    if (level == 2 && unit == 'K')
        assert_int_equal(bytes, (size_t)kib * 1024);
    else if (bytes != 0)
        assert_in_range(bytes, 32 << 10, 1 << 30);
}

static void waiting_for_a_core_is_added_up(void **state)
{
    (void)state;
    assert_true(ls_cores_delay(folder) == -1);
    put("/proc/self/task/1/schedstat", "123456789 1500000000 77\n");
    put("/proc/self/task/20/schedstat", "5 500000000 1\n");
    put("/proc/self/task/21/schedstat", "nothing\n");
    double seconds = ls_cores_delay(folder);
    assert_true(seconds > 1.999999 && seconds < 2.000001);
    assert_true(ls_cores_delay("") >= -1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(quotas_are_found),
        TEST(memory_limits_are_found),
        TEST(a_long_path_is_shown_by_its_end),
        TEST(a_mask_of_one_gives_one_worker),
        TEST(mask_and_quota_are_both_named),
        TEST(one_hyper_thread_of_a_core_is_used),
        TEST(cores_of_a_package_stand_together),
        TEST(bad_lists_are_no_harm),
        TEST(this_machine_gives_no_more_than_its_mask),
        TEST(binding_keeps_one_thread_on_its_core),
        TEST(the_second_cache_is_in_bytes),
        TEST(waiting_for_a_core_is_added_up),
    };
    return cmocka_run_group_tests(tests, read_allowed, NULL);
}
