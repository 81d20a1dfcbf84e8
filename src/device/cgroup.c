/* Reads the limits of control groups. */
#include "device/cgroup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/sysfile.h"

/* A process has one group in each hierarchy: the unified one (version 2), and in version 1 those of
 * the cpu and memory controllers. Several may be mounted. Limits of all of them and of all parent
 * groups apply. */
typedef enum hierarchy {
    UNIFIED,
    CPU_V1,
    MEMORY_V1,
    HIERARCHIES,
} hierarchy;

static const char *const controller[HIERARCHIES] = { NULL, "cpu", "memory" };

typedef struct search {
    const char *root;
    char group[HIERARCHIES][PATH_MAX]; /* "": root */
    int mounts[HIERARCHIES];           /* mounts that contain the group */
    char other[HIERARCHIES][PATH_MAX]; /* a mount point that seems not to contain the group */
    ls_cgroup_limits smallest;
} search;

static void lower(ls_cgroup_limit *smallest, double value, const char *path)
{
    if (!(value > 0) || (smallest->value > 0 && smallest->value <= value))
        return;
    smallest->value = value;
    snprintf(smallest->path, sizeof(smallest->path), "%s", path);
}

/* "200000 100000" or "max 100000" */
static void read_cpu_max(search *s, const char *path)
{
    char line[128];
    const char *text = line;
    long long quota, period = 100000; /* the kernel's default */
    if (!ls_sysfile_line(s->root, path, line, sizeof(line)) || !ls_take_number(&text, &quota))
        return;
    if (*text == ' ' && !ls_take_number(&text, &period))
        return;
    if (text[strspn(text, " \t")] == '\0' && period > 0)
        lower(&s->smallest.cpus, (double)quota / (double)period, path);
}

/* Returns false if "folder/name" is too long. */
static bool path_of(const char *folder, const char *name, char path[PATH_MAX])
{
    return snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

/* "max" is not a number and sets no limit. */
static void read_memory(search *s, const char *folder, const char *name)
{
    char path[PATH_MAX];
    long long bytes;
    if (path_of(folder, name, path) && ls_sysfile_number(s->root, path, &bytes))
        lower(&s->smallest.memory, (double)bytes, path);
}

static void read_limit(search *s, hierarchy h, const char *folder)
{
    char path[PATH_MAX], period_path[PATH_MAX];
    long long quota, period;
    if (h == MEMORY_V1)
        read_memory(s, folder, "memory.limit_in_bytes");
    if (h == UNIFIED) {
        read_memory(s, folder, "memory.max");
        read_memory(s, folder, "memory.high");
        if (path_of(folder, "cpu.max", path))
            read_cpu_max(s, path);
    }
    if (h == CPU_V1 && path_of(folder, "cpu.cfs_quota_us", path) && path_of(folder, "cpu.cfs_period_us", period_path) &&
        ls_sysfile_number(s->root, path, &quota) && ls_sysfile_number(s->root, period_path, &period) && period > 0)
        lower(&s->smallest.cpus, (double)quota / (double)period, path);
}

/* `group` below the mount point, and all visible parent groups. */
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

/* The part of `path` below `top`, with its slash; NULL: not below it. */
static const char *below(const char *path, const char *top)
{
    size_t length = strcmp(top, "/") == 0 ? 0 : strlen(top);
    if (strncmp(path, top, length) != 0 || (path[length] != '/' && path[length] != '\0'))
        return NULL;
    return path + length;
}

/* A line of /proc/self/cgroup: "4:cpu,cpuacct:/docker/1234", in version 2 "0::/user.slice". A group
 * outside of this process's namespace begins with "/.." and cannot be found by that name. */
static void take_group(search *s, char *line)
{
    char *number = strtok_r(line, ":", &line), *controllers = line, *colon = line ? strchr(line, ':') : NULL;
    if (!number || !colon)
        return;
    *colon = '\0';
    const char *path = colon + 1;
    bool named = path[0] == '/' && path[1] != '\0' && !strstr(path, "/..");
    for (hierarchy h = 0; h < HIERARCHIES; h++)
        if (h == UNIFIED ? strcmp(number, "0") == 0 && *controllers == '\0' : list_has(controllers, controller[h]))
            snprintf(s->group[h], sizeof(s->group[h]), "%s", named ? path : "");
}

/* Octal escapes, \040 for a space. */
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

static void take_hierarchy(search *s, hierarchy h, const char *group, const char *mount)
{
    const char *rest = below(s->group[h], group);
    if (rest) {
        climb(s, h, mount, rest);
        s->mounts[h]++;
    } else if (s->other[h][0] == '\0') {
        snprintf(s->other[h], sizeof(s->other[h]), "%s", mount);
    }
}

/* A line of /proc/self/mountinfo: "33 24 0:28 /docker/1234 /sys/fs/cgroup rw shared:4 - cgroup
 * cgroup rw,cpu": two numbers and a device, mounted group, mount point, options, words up to a
 * hyphen, type, source, options. */
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
    decode(group);
    decode(mount);
    for (hierarchy h = 0; h < HIERARCHIES; h++)
        if (h == UNIFIED ? strcmp(type, "cgroup2") == 0
                         : strcmp(type, "cgroup") == 0 && list_has(options, controller[h]))
            take_hierarchy(s, h, group, mount);
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

ls_status ls_cgroup_find(const char *root, ls_cgroup_limits *out)
{
    static const char *const usual[HIERARCHIES] = { "/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory" };
    search *s = calloc(1, sizeof(*s));
    if (!s)
        return ls_fail(LS_ERR_MEMORY, "no memory to look for limits of control groups");
    s->root = root && strcmp(root, "/") != 0 ? root : "";
    for_each_line(s, "/proc/self/cgroup", take_group);
    for_each_line(s, "/proc/self/mountinfo", take_mount);
    for (hierarchy h = 0; h < HIERARCHIES; h++) {
        if (s->mounts[h] > 0)
            continue;
        /* In some containers names and mounts do not match; the mounted group is then the process's
         * own. */
        if (s->other[h][0] != '\0')
            climb(s, h, s->other[h], "");
        else
            climb(s, h, usual[h], s->group[h]);
    }
    *out = s->smallest;
    free(s);
    return LS_OK;
}

const char *ls_path_end(const char *path, char text[LS_PATH_TEXT])
{
    size_t length = strlen(path), most = LS_PATH_TEXT - 4;
    if (length <= most)
        snprintf(text, LS_PATH_TEXT, "%s", path);
    else
        snprintf(text, LS_PATH_TEXT, "...%s", path + length - most);
    return text;
}
