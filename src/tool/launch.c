/* lockstep launch: starts the workers of a job on this machine, shares the cores out, prints what they say, passes
 * signals on, and ends all of them when one fails. */
#include "tool/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LINE 4096 /* a longer line is printed in pieces */

/* What a worker writes to one of its two outputs; whole lines are passed on. */
typedef struct stream {
    int fd; /* -1: at its end, or the worker writes by itself */
    size_t used;
    char line[LINE];
} stream;

typedef struct worker {
    pid_t pid; /* 0: it has ended; its process group has the same number */
    stream out[2];
} worker;

typedef struct launch {
    const tool_settings *settings;
    const char **program; /* with its arguments; NULL behind the last */
    char job[64];
    int count, running;
    worker *workers;
    int *cores, core_count, share; /* the cores, and how many of them a worker gets */
    int signals;                   /* a descriptor */
    sigset_t mask, old_mask;
    int status, signal; /* the first worker's that failed; the signal that came */
    double kill_at;     /* when patience is over; 0: nobody was asked to end */
} launch;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- Cores ---- */

/* Those that CPU devices of this process would use; where they are not bound to cores, those of the affinity mask. */
static ls_status find_cores(launch *l)
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

/* The cores of a worker: shares of equal size, one behind the other; with more workers than cores, one core each in
 * turn. */
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
        sched_setaffinity(0, sizeof mask, &mask); /* without it workers are slower, nothing else */
    /* Cores that were chosen for the CPU are chosen again: the worker's share of them. */
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
    set_number("LOCKSTEP_JOIN_LIMIT", "%.17g", l->settings->join_limit);
    set_number("LOCKSTEP_SILENCE_LIMIT", "%.17g", l->settings->silence_limit);
    setenv("LOCKSTEP_RENDEZVOUS", l->job, 1);
}

/* Worker 0 writes where this process writes; a pipe takes what the others write. A terminal is nobody's to read from:
 * workers are no foreground processes. */
static void set_descriptors(int rank, const int *outputs)
{
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0 && (rank > 0 || isatty(0) == 1))
        dup2(null, 0);
    for (int i = 0; i < 2 && rank > 0; i++)
        dup2(outputs[i], 1 + i);
    if (null > 2)
        close(null);
}

_Noreturn static void be_worker(const launch *l, int rank, pid_t parent, const int *outputs, int tell)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* workers do not outlive this process */
    if (getppid() != parent)
        _exit(1);
    take_cores(l, rank);
    set_environment(l, rank);
    set_descriptors(rank, outputs);
    signal(SIGXFSZ, SIG_DFL);
    sigprocmask(SIG_SETMASK, &l->old_mask, NULL);
    execvp(l->program[0], (char *const *)l->program);
    int error = errno;
    if (write(tell, &error, sizeof error) < 0) {
        /* the exit status says it, too */
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

/* Whether the program could be started is known when the pipe `tell` ends. */
static ls_status fork_worker(launch *l, int rank, const int *outputs, const int *tell)
{
    int error = 0;
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        be_worker(l, rank, parent, outputs, tell[1]);
    close(tell[1]);
    if (pid < 0)
        return ls_fail(LS_ERR_IO, "launch: worker %d could not be started: %s", rank, strerror(errno));
    setpgid(pid, pid);
    ssize_t got;
    do
        got = read(tell[0], &error, sizeof error);
    while (got < 0 && errno == EINTR);
    if (got == (ssize_t)sizeof error) {
        waitpid(pid, NULL, 0);
        return ls_fail(error == ENOENT ? LS_ERR_NOT_FOUND : LS_ERR_IO, "launch: %s could not be started: %s",
                       l->program[0], strerror(error));
    }
    l->workers[rank].pid = pid;
    l->running++;
    return LS_OK;
}

static ls_status start_worker(launch *l, int rank)
{
    int tell[2], pipes[4] = { -1, -1, -1, -1 }; /* of standard output: read, write; of standard error the same */
    LS_TRY(open_pipe(tell));
    ls_status status = LS_OK;
    for (int i = 0; i < 2 && rank > 0 && status == LS_OK; i++)
        status = open_pipe(pipes + 2 * i);
    if (status == LS_OK)
        status = fork_worker(l, rank, (int[]){ pipes[1], pipes[3] }, tell);
    else
        close(tell[1]);
    close(tell[0]);
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

/* ---- What they write ---- */

static void print_line(int rank, int which, const char *line, size_t length)
{
    FILE *file = which == 0 ? stdout : stderr;
    fprintf(file, "[%d] ", rank);
    fwrite(line, 1, length, file);
    fputc('\n', file);
    fflush(file);
}

static void print_lines(stream *s, int rank, int which, bool end)
{
    char *from = s->line, *newline;
    while ((newline = memchr(from, '\n', s->used - (size_t)(from - s->line))) != NULL) {
        print_line(rank, which, from, (size_t)(newline - from));
        from = newline + 1;
    }
    s->used -= (size_t)(from - s->line);
    memmove(s->line, from, s->used);
    if (s->used == LINE || (end && s->used > 0)) {
        print_line(rank, which, s->line, s->used);
        s->used = 0;
    }
}

static void read_stream(stream *s, int rank, int which)
{
    for (;;) {
        ssize_t got = read(s->fd, s->line + s->used, LINE - s->used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return;
        s->used += got > 0 ? (size_t)got : 0;
        print_lines(s, rank, which, got <= 0);
        if (got <= 0) {
            close(s->fd);
            s->fd = -1;
            return;
        }
    }
}

/* ---- Ending ---- */

static void signal_workers(const launch *l, int number)
{
    for (int r = 0; r < l->count; r++)
        if (l->workers[r].pid > 0)
            kill(-l->workers[r].pid, number);
}

static void ask_to_end(launch *l)
{
    if (l->kill_at > 0)
        return;
    signal_workers(l, SIGTERM);
    l->kill_at = now() + l->settings->grace;
}

/* The first failure counts: others follow from it, or from the signal that they are sent. */
static void note_end(launch *l, int rank, int how)
{
    int status = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
    if (status == 0 || l->status != 0)
        return;
    l->status = status;
    if (l->kill_at > 0)
        return;
    if (WIFSIGNALED(how))
        fprintf(stderr, "lockstep launch: worker %d was ended by signal %d (%s)", rank, WTERMSIG(how),
                strsignal(WTERMSIG(how)));
    else
        fprintf(stderr, "lockstep launch: worker %d ended with status %d", rank, status);
    fprintf(stderr, "%s\n", l->running > 0 ? "; the others are asked to end" : "");
    ask_to_end(l);
}

/* What a worker left running in its group goes with it. */
static void reap(launch *l)
{
    for (int r = 0; r < l->count; r++) {
        int how;
        pid_t pid = l->workers[r].pid;
        if (pid <= 0 || waitpid(pid, &how, WNOHANG) != pid)
            continue;
        kill(-pid, SIGKILL);
        l->workers[r].pid = 0;
        l->running--;
        note_end(l, r, how);
    }
}

/* The first signal that ends is passed on as it is, for a worker to end well; the next one is obeyed at once. */
static void pass_on(launch *l, int number)
{
    if (number == SIGCHLD)
        return;
    if (number == SIGINT || number == SIGTERM || number == SIGHUP) {
        l->kill_at = l->kill_at > 0 ? now() : now() + l->settings->grace;
        l->signal = number;
    }
    signal_workers(l, number);
}

static void read_signals(launch *l)
{
    struct signalfd_siginfo info;
    while (read(l->signals, &info, sizeof info) == (ssize_t)sizeof info)
        pass_on(l, (int)info.ssi_signo);
}

/* ---- The loop ---- */

static bool is_any_open(const launch *l)
{
    for (int r = 0; r < l->count; r++)
        for (int i = 0; i < 2; i++)
            if (l->workers[r].out[i].fd >= 0)
                return true;
    return false;
}

static int milliseconds_left(const launch *l)
{
    double left = l->kill_at > 0 && l->running > 0 ? l->kill_at - now() : 1;
    return left <= 0 ? 20 : left > 1 ? 1000 : (int)(left * 1000) + 1;
}

/* Until all have ended and what they wrote is printed. (A process that a worker left behind, outside its group, may
 * hold a pipe open: it is not waited for.) */
static void watch(launch *l, struct pollfd *polls)
{
    while (l->running > 0) {
        int n = 0;
        polls[n++] = (struct pollfd){ .fd = l->signals, .events = POLLIN };
        for (int r = 0; r < l->count; r++)
            for (int i = 0; i < 2; i++)
                polls[n++] = (struct pollfd){ .fd = l->workers[r].out[i].fd, .events = POLLIN };
        poll(polls, (nfds_t)n, milliseconds_left(l));
        read_signals(l);
        for (int r = 0; r < l->count; r++)
            for (int i = 0; i < 2; i++)
                if (l->workers[r].out[i].fd >= 0)
                    read_stream(&l->workers[r].out[i], r, i);
        reap(l);
        if (l->kill_at > 0 && now() >= l->kill_at)
            signal_workers(l, SIGKILL);
    }
    for (int r = 0; r < l->count && is_any_open(l); r++)
        for (int i = 0; i < 2; i++)
            if (l->workers[r].out[i].fd >= 0) {
                read_stream(&l->workers[r].out[i], r, i);
                print_lines(&l->workers[r].out[i], r, i, true);
            }
}

/* Signals come by a descriptor; those that were ignored stay so. */
static ls_status catch_signals(launch *l)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD };
    sigemptyset(&l->mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction old;
        if (sigaction(numbers[i], NULL, &old) == 0 && (old.sa_handler != SIG_IGN || numbers[i] == SIGCHLD))
            sigaddset(&l->mask, numbers[i]);
    }
    signal(SIGCHLD, SIG_DFL); /* ignored, it would take the workers' statuses away */
    sigprocmask(SIG_BLOCK, &l->mask, &l->old_mask);
    l->signals = signalfd(-1, &l->mask, SFD_CLOEXEC | SFD_NONBLOCK);
    return l->signals >= 0 ? LS_OK : ls_fail(LS_ERR_IO, "launch: no descriptor for signals: %s", strerror(errno));
}

static ls_status run_workers(launch *l)
{
    struct pollfd *polls = calloc((size_t)(2 * l->count + 1), sizeof *polls);
    if (!polls)
        return ls_fail(LS_ERR_MEMORY, "launch: no memory for %d workers", l->count);
    ls_status status = LS_OK;
    for (int r = 0; r < l->count && status == LS_OK; r++)
        status = start_worker(l, r);
    char message[512];
    snprintf(message, sizeof message, "%s", ls_last_error());
    if (status != LS_OK)
        ask_to_end(l);
    watch(l, polls);
    free(polls);
    return status == LS_OK ? LS_OK : ls_fail(status, "%s", message);
}

static ls_status prepare(launch *l)
{
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return ls_fail(LS_ERR_IO, "launch: no random number for the job's name: %s", strerror(errno));
    snprintf(l->job, sizeof l->job, "launch-%ld-%016llx", (long)getpid(), (unsigned long long)random);
    l->workers = calloc((size_t)l->count, sizeof *l->workers);
    l->program = calloc(l->settings->file_count + 1, sizeof *l->program);
    if (!l->workers || !l->program)
        return ls_fail(LS_ERR_MEMORY, "launch: no memory for %d workers", l->count);
    memcpy(l->program, l->settings->files, l->settings->file_count * sizeof *l->program);
    for (int r = 0; r < l->count; r++)
        l->workers[r].out[0].fd = l->workers[r].out[1].fd = -1;
    LS_TRY(find_cores(l));
    return catch_signals(l);
}

static ls_status run(const tool_settings *settings, int *stopped_by)
{
    launch l = { .settings = settings, .count = (int)settings->workers, .signals = -1 };
    tool_ignore_signal(SIGPIPE);
    ls_status status = prepare(&l);
    if (status == LS_OK)
        status = run_workers(&l);
    if (l.signals >= 0) {
        close(l.signals);
        sigprocmask(SIG_SETMASK, &l.old_mask, NULL);
    }
    for (int r = 0; l.workers && r < l.count; r++)
        close_all((int[]){ l.workers[r].out[0].fd, l.workers[r].out[1].fd }, 2);
    free(l.workers);
    free(l.program);
    free(l.cores);
    if (l.status != 0 || l.signal != 0)
        *stopped_by = l.signal ? l.signal : TOOL_STATUS(l.status);
    return status;
}

static ls_status check(const ls_options *options, tool_settings *settings)
{
    (void)options;
    if (settings->file_count == 0)
        return ls_fail(
            LS_ERR_INVALID,
            "launch: a program is needed: lockstep launch --workers 2 -- lockstep train mnist-cnn --data mnist");
    if (getenv("LOCKSTEP_RANK") || getenv("LOCKSTEP_WORLD_SIZE"))
        return ls_fail(LS_ERR_STATE, "launch: LOCKSTEP_RANK or LOCKSTEP_WORLD_SIZE is set: this is a worker of a job "
                                     "already, and starts no others");
    return LS_OK;
}

const tool_command tool_launch = {
    .name = "launch",
    .arguments = "--workers N -- PROGRAM ARGUMENTS...",
    .summary = "start a program as several workers that train one job, on this machine",
    .details =
        "Starts N processes of PROGRAM, each with its share of the cores; contexts that they open join one cluster,\n"
        "with the bits of one process. Worker 0 writes as if it were alone; lines of the others begin with \"[1] \".\n"
        "When a worker fails or dies the others get SIGTERM, and SIGKILL after --grace seconds. Exit status: 0 when\n"
        "all ended with 0; that of the first that did not (128 + N: ended by signal N).",
    .takes_files = TOOL_ANY_FILES,
    .tables = { &tool_launch_flags },
    .check = check,
    .run = run,
};
