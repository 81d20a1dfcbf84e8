/* lockstep launch: starts the process of a worker, with its cores, environment and outputs. */
#include "tool/launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Cores ---- */

/* Finds the cores that CPU devices of this process would use; if those are not bound, the cores of
 * the affinity mask. */
ls_status launch_find_cores(launch *l)
{
    ls_context *ctx = NULL;
    ls_cpu_info cpu;
    size_t count = 0;
    cpu_set_t mask;
    LS_TRY(ls_context_create(NULL, &ctx));
    ls_status status = ls_list_device_cores(ctx, "cpu:0", &l->cores, &count);
    if (status == LS_OK)
        status = ls_get_cpu_info(ctx, &cpu);
    ls_context_close(ctx);
    LS_TRY(status);
    if (count == 0 && sched_getaffinity(0, sizeof mask, &mask) == 0) {
        free(l->cores);
        l->cores = calloc(CPU_SETSIZE, sizeof *l->cores);
        for (int i = 0; l->cores && i < CPU_SETSIZE; i++)
            if (CPU_ISSET(i, &mask))
                l->cores[count++] = i;
    }
    l->core_count = (int)count;
    l->share = cpu.cores / l->count > 0 ? cpu.cores / l->count : 1;
    return LS_OK;
}

/* With more workers than cores, each gets one core in turn. */
static void take_cores(const launch *l, int rank)
{
    cpu_set_t mask;
    char text[512] = "";
    size_t used = 0;
    CPU_ZERO(&mask);
    for (int i = 0; i < l->share && l->core_count > 0; i++) {
        int core = l->cores[(rank * l->share + i) % l->core_count];
        CPU_SET(core, &mask);
        if (used < sizeof text - 16)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%d", i ? "," : "", core);
    }
    if (l->core_count > 0)
        sched_setaffinity(0, sizeof mask, &mask); /* on failure workers are only slower */
    /* Restricts a user's choice of cores to the worker's share. */
    const char *visible = getenv("LOCKSTEP_VISIBLE_DEVICES");
    const char *open = visible ? strchr(visible, '[') : NULL, *end = open ? strchr(open, ']') : NULL;
    char chosen[2048];
    if (!end)
        return;
    snprintf(chosen, sizeof chosen, "%.*s%s%s", (int)(open + 1 - visible), visible, text, end);
    setenv("LOCKSTEP_VISIBLE_DEVICES", chosen, 1);
}

/* ---- Starting ---- */

static void set_number(const char *name, const char *format, double value)
{
    char text[32];
    snprintf(text, sizeof text, format, value);
    setenv(name, text, 1);
}

static void set_environment(const launch *l, int rank)
{
    set_number("LOCKSTEP_RANK", "%.0f", rank);
    set_number("LOCKSTEP_WORLD_SIZE", "%.0f", l->count);
    unsetenv("LOCKSTEP_SERVERS");
    if (l->settings->servers > 0)
        set_number("LOCKSTEP_SERVERS", "%.0f", (double)l->settings->servers);
    set_number("LOCKSTEP_JOIN_LIMIT", "%.17g", l->settings->join_limit);
    set_number("LOCKSTEP_SILENCE_LIMIT", "%.17g", l->settings->silence_limit);
    setenv("LOCKSTEP_RENDEZVOUS", l->job, 1);
    unsetenv("LOCKSTEP_RESTART");
    if (l->workers[rank].returns > 0)
        set_number("LOCKSTEP_RESTART", "%.0f", l->workers[rank].returns);
    if (l->settings->elastic)
        setenv("LOCKSTEP_ELASTIC", l->settings->elastic, 1);
    if (l->key_file)
        setenv("LOCKSTEP_KEY_FILE", l->key_file, 1);
    launch_set_rendezvous(l);
}

/* Workers do not read from a terminal: they are not foreground processes. */
static void set_descriptors(const int *outputs)
{
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0 && (outputs[0] >= 0 || isatty(0) == 1))
        dup2(null, 0);
    for (int i = 0; i < 2 && outputs[i] >= 0; i++)
        dup2(outputs[i], 1 + i);
    if (null > 2)
        close(null);
}

_Noreturn static void be_worker(const launch *l, int rank, pid_t parent, const int *outputs, int error_pipe)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* workers end with this process */
    if (getppid() != parent)
        _exit(1);
    take_cores(l, rank);
    set_environment(l, rank);
    set_descriptors(outputs);
    signal(SIGXFSZ, SIG_DFL);
    sigprocmask(SIG_SETMASK, &l->old_mask, NULL);
    execvp(l->program[0], (char *const *)l->program);
    int error = errno;
    if (write(error_pipe, &error, sizeof error) < 0) {
        /* The exit status shows the failure, too. */
    }
    _exit(127);
}

static ls_status open_pipe(int ends[2])
{
    return pipe2(ends, O_CLOEXEC) == 0 ? LS_OK
                                       : ls_fail(LS_ERR_IO, "launch: no pipe for a worker: %s", strerror(errno));
}

static void close_all(int *fds, int count)
{
    for (int i = 0; i < count; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

void launch_close_streams(launch_worker *w)
{
    for (int i = 0; i < 2; i++) {
        close_all(&w->out[i].fd, 1);
        w->out[i].fd = -1;
        w->out[i].used = 0;
    }
}

/* The error pipe ends when the program was started, or carries errno if it could not be. */
static ls_status fork_worker(launch *l, int rank, const int *outputs, const int *error_pipe)
{
    int error = 0;
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        be_worker(l, rank, parent, outputs, error_pipe[1]);
    close(error_pipe[1]);
    if (pid < 0)
        return ls_fail(LS_ERR_IO, "launch: worker %d could not be started: %s", rank, strerror(errno));
    setpgid(pid, pid);
    ssize_t got;
    do
        got = read(error_pipe[0], &error, sizeof error);
    while (got < 0 && errno == EINTR);
    if (got == (ssize_t)sizeof error) {
        waitpid(pid, NULL, 0);
        return ls_fail(error == ENOENT ? LS_ERR_NOT_FOUND : LS_ERR_IO, "launch: %s could not be started: %s",
                       l->program[0], strerror(error));
    }
    l->workers[rank].pid = pid;
    l->workers[rank].started_at = ls_clock_now();
    l->running++;
    return LS_OK;
}

ls_status launch_start_worker(launch *l, int rank, bool writes_itself)
{
    /* Read and write end, for standard output and standard error. */
    int error_pipe[2], pipes[4] = { -1, -1, -1, -1 };
    LS_TRY(open_pipe(error_pipe));
    ls_status status = LS_OK;
    for (int i = 0; i < 2 && !writes_itself && status == LS_OK; i++)
        status = open_pipe(pipes + 2 * i);
    if (status == LS_OK)
        status = fork_worker(l, rank, (int[]){ pipes[1], pipes[3] }, error_pipe);
    else
        close(error_pipe[1]);
    close(error_pipe[0]);
    if (status != LS_OK) {
        close_all(pipes, 4);
        return status;
    }
    for (int i = 0; i < 2; i++) {
        l->workers[rank].out[i].fd = pipes[2 * i];
        if (pipes[2 * i] >= 0)
            fcntl(pipes[2 * i], F_SETFL, O_NONBLOCK);
        if (pipes[2 * i + 1] >= 0)
            close(pipes[2 * i + 1]);
    }
    return LS_OK;
}
