/* Boot id, pid namespace, pid and start time together are unique. */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/hash.h"

/* Returns the length; 0 if the file cannot be read. */
static size_t read_text(const char *path, char *text, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, room - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    return got > 0 ? (size_t)got : 0;
}

/* Reads the state letter and the start time (field 22). The command name, field 2, may contain
 * spaces and parentheses. */
static bool read_stat(uint64_t pid, char *state, uint64_t *start)
{
    char path[64], text[1024];
    unsigned long long ticks;
    snprintf(path, sizeof(path), "/proc/%llu/stat", (unsigned long long)pid);
    read_text(path, text, sizeof(text));
    const char *rest = strrchr(text, ')');
    if (!rest || sscanf(rest + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                        state, &ticks) != 2)
        return false;
    *start = ticks;
    return true;
}

/* Returns 0 if unknown. A kernel without time namespaces has one clock for all processes. */
static uint64_t hash_machine(void)
{
    char boot[64], pids[64], times[64] = "";
    uint64_t sum[2];
    ssize_t length = readlink("/proc/self/ns/pid", pids, sizeof(pids));
    ssize_t more = readlink("/proc/self/ns/time", times, sizeof(times));
    size_t booted = read_text("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
    if (booted == 0 || length <= 0)
        return 0;
    ls_hash hash;
    ls_hash_begin(&hash);
    ls_hash_add(&hash, boot, booted);
    ls_hash_add(&hash, pids, (size_t)length);
    ls_hash_add(&hash, times, more > 0 ? (size_t)more : 0);
    ls_hash_end(&hash, sum);
    return sum[0] ? sum[0] : 1;
}

ls_process_id ls_process_self(void)
{
    char state;
    ls_process_id self = { .machine = hash_machine(), .pid = (uint64_t)getpid() };
    if (!read_stat(self.pid, &state, &self.start))
        self.machine = 0;
    return self;
}

/* kill() also finds processes that a /proc mounted with hidepid hides. */
bool ls_process_has_ended(const ls_process_id *process)
{
    char state;
    uint64_t start;
    if (process->machine == 0 || process->pid == 0 || process->pid > INT32_MAX || process->machine != hash_machine())
        return false;
    if (kill((pid_t)process->pid, 0) < 0 && errno == ESRCH)
        return true;
    if (!read_stat(process->pid, &state, &start))
        return false;
    return start != process->start || state == 'Z' || state == 'X';
}
