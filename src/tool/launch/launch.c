/* lockstep launch: supervises the workers of a job on this machine. A failed worker does not end
 * the job: the others continue without it, or fail themselves. The job is finished when its chief
 * (launch.h) has ended with 0. */
#include "tool/launch/launch.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_DELAY 0.1  /* seconds before a restart; doubles after each early failure */
#define LAST_DELAY  10.0 /* seconds */
#define SOON        10.0 /* seconds; a worker that ran longer starts with FIRST_DELAY again */

static int exit_status(int how)
{
    return WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
}

/* Returns "was killed by signal 9 (Killed)" or "ended with status 1". */
static const char *describe_end(int how, char text[96])
{
    if (WIFSIGNALED(how))
        snprintf(text, 96, "was killed by signal %d (%s)", WTERMSIG(how), strsignal(WTERMSIG(how)));
    else
        snprintf(text, 96, "ended with status %d", WEXITSTATUS(how));
    return text;
}

/* ---- Signals ---- */

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
    l->kill_at = ls_clock_now() + l->settings->grace;
}

static void plan_no_restart(launch *l)
{
    for (int r = 0; r < l->count; r++) {
        l->restarts -= l->workers[r].restart_at > 0;
        l->workers[r].restart_at = 0;
    }
}

/* Forwards a signal. The first SIGINT, SIGTERM or SIGHUP gives workers the grace period; the second
 * kills them at once. */
static void pass_on(launch *l, int number)
{
    if (number == SIGCHLD)
        return;
    if (number == SIGINT || number == SIGTERM || number == SIGHUP) {
        l->kill_at = l->kill_at > 0 ? ls_clock_now() : ls_clock_now() + l->settings->grace;
        l->signal = number;
        plan_no_restart(l);
    }
    signal_workers(l, number);
}

static void read_signals(launch *l)
{
    struct signalfd_siginfo info;
    while (read(l->signals, &info, sizeof info) == (ssize_t)sizeof info)
        pass_on(l, (int)info.ssi_signo);
}

/* Signals that were ignored stay ignored. */
static ls_status catch_signals(launch *l)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD };
    sigemptyset(&l->mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction old;
        if (sigaction(numbers[i], NULL, &old) == 0 && (old.sa_handler != SIG_IGN || numbers[i] == SIGCHLD))
            sigaddset(&l->mask, numbers[i]);
    }
    signal(SIGCHLD, SIG_DFL); /* if ignored, workers' exit statuses would be lost */
    sigprocmask(SIG_BLOCK, &l->mask, &l->old_mask);
    l->signals = signalfd(-1, &l->mask, SFD_CLOEXEC | SFD_NONBLOCK);
    return l->signals >= 0 ? LS_OK : ls_fail(LS_ERR_IO, "launch: no descriptor for signals: %s", strerror(errno));
}

/* ---- Restarts ---- */

static double next_delay(double last, double ran)
{
    if (last <= 0 || ran > SOON)
        return FIRST_DELAY;
    return 2 * last < LAST_DELAY ? 2 * last : LAST_DELAY;
}

/* A restart cannot help if the program was used wrongly (2) or could not be run (126, 127). */
static bool may_restart(const launch *l, int how)
{
    int status = exit_status(how);
    return l->restarts < l->settings->restarts && l->signal == 0 && l->kill_at <= 0 && l->over_at <= 0 && status != 2 &&
           status != 126 && status != 127;
}

static void plan_restart(launch *l, int rank)
{
    launch_worker *w = &l->workers[rank];
    w->delay = next_delay(w->delay, ls_clock_now() - w->started_at);
    w->restart_at = ls_clock_now() + w->delay;
    l->restarts++;
    fprintf(stderr, "; restarting it in %.3g s (restart %d of %d)", w->delay, l->restarts, (int)l->settings->restarts);
}

static ls_status name_job(launch *l)
{
    uint64_t random = 0;
    if (l->settings->job) {
        snprintf(l->job, sizeof l->job, "%s", l->settings->job);
        return LS_OK;
    }
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return ls_fail(LS_ERR_IO, "launch: no random number for the job's name: %s", strerror(errno));
    snprintf(l->job, sizeof l->job, "launch-%ld-%016llx", (long)getpid(), (unsigned long long)random);
    return LS_OK;
}

static ls_status start_all(launch *l)
{
    LS_TRY(name_job(l));
    l->chief = 0;
    l->begun = false;
    l->failed = -1;
    launch_share_ends(l, true);
    for (int r = 0; r < l->count; r++) {
        launch_worker *w = &l->workers[r];
        launch_close_streams(w);
        w->returns = 0;
        w->restart_at = w->delay = 0;
        LS_TRY(launch_start_worker(l, r, r == 0));
    }
    return LS_OK;
}

/* No worker is left to hold the state: starts all again, as a new job. Handles signals while it
 * waits. */
static ls_status restart_job(launch *l)
{
    double started_at = l->workers[l->failed].started_at;
    l->job_delay = next_delay(l->job_delay, ls_clock_now() - started_at);
    l->restarts++;
    fprintf(stderr, "lockstep launch: no worker is left; restarting the job in %.3g s (restart %d of %d)\n",
            l->job_delay, l->restarts, (int)l->settings->restarts);
    double at = ls_clock_now() + l->job_delay, left;
    while (l->signal == 0 && (left = at - ls_clock_now()) > 0) {
        struct pollfd wait = { .fd = l->signals, .events = POLLIN };
        poll(&wait, 1, (int)(1000 * left) + 1);
        read_signals(l);
    }
    return l->signal == 0 ? start_all(l) : LS_OK;
}

/* A restarted worker writes to pipes, because another worker is the chief now. */
static void restart_worker(launch *l, int rank)
{
    launch_worker *w = &l->workers[rank];
    w->restart_at = 0;
    w->returns++;
    launch_close_streams(w);
    if (launch_start_worker(l, rank, false) != LS_OK)
        fprintf(stderr, "lockstep %s; %d of %d continue\n", ls_last_error(), l->running, l->count);
}

/* ---- Exits ---- */

/* Returns the lowest running rank; prefers workers that were never restarted. */
static int find_next_chief(const launch *l)
{
    for (int returned = 0; returned < 2; returned++)
        for (int r = 0; r < l->count; r++)
            if (l->workers[r].pid > 0 && (l->workers[r].returns > 0) == returned)
                return r;
    return -1;
}

/* Forgets failures from before the job began. */
static void update_chief(launch *l)
{
    int chief = launch_find_chief(l);
    if (chief < 0 || l->finished)
        return;
    l->chief = chief;
    if (!l->begun)
        l->failed = -1;
    l->begun = true;
}

static void note_failure(launch *l, int rank, int how)
{
    char text[96];
    bool hung = l->workers[rank].overdue && rank != l->chief;
    if (l->finished || hung) {
        if (!l->workers[rank].overdue)
            fprintf(stderr, "lockstep launch: worker %d %s after the job had finished\n", rank,
                    describe_end(how, text));
        return;
    }
    if (l->failed < 0) {
        l->failed = rank;
        l->how = how;
    }
    if (rank == l->chief)
        l->chief = find_next_chief(l);
    if (l->kill_at > 0)
        return;
    fprintf(stderr, "lockstep launch: worker %d %s; ", rank, describe_end(how, text));
    if (l->running > 0)
        fprintf(stderr, "%d of %d continue", l->running, l->count);
    else
        fprintf(stderr, "no worker is left");
    if (l->running > 0 && may_restart(l, how))
        plan_restart(l, rank);
    fputc('\n', stderr);
}

/* Once one worker has finished, all should: those that still run after the grace period hang. */
static void note_success(launch *l, int rank)
{
    plan_no_restart(l);
    l->finished |= rank == l->chief;
    l->over_at = ls_clock_now() + l->settings->grace;
}

/* Also kills processes that a worker left in its group. Its pid cannot be reused before waitpid. */
static void reap(launch *l)
{
    for (int r = 0; r < l->count; r++) {
        int how;
        siginfo_t info = { .si_pid = 0 };
        pid_t pid = l->workers[r].pid;
        if (pid <= 0 || waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != pid)
            continue;
        update_chief(l);
        kill(-pid, SIGKILL);
        waitpid(pid, &how, 0);
        launch_read_worker(l, r, true);
        l->workers[r].pid = 0;
        l->running--;
        if (exit_status(how) == 0)
            note_success(l, r);
        else
            note_failure(l, r, how);
    }
}

static bool is_stopped(pid_t pid)
{
    siginfo_t info = { .si_pid = 0 };
    return waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

/* Ends workers that still run after the grace period. If the chief is stopped (SIGSTOP), the others
 * finished the job without it; if it runs, it has failed. */
static void end_hanging(launch *l)
{
    if (l->over_at <= 0 || l->kill_at > 0 || ls_clock_now() < l->over_at)
        return;
    for (int r = 0; r < l->count; r++) {
        if (l->workers[r].pid <= 0)
            continue;
        fprintf(stderr, "lockstep launch: worker %d has not ended %g s after the others finished: ending it\n", r,
                l->settings->grace);
        l->workers[r].overdue = true;
        l->finished |= r == l->chief && is_stopped(l->workers[r].pid);
    }
    ask_to_end(l);
}

/* ---- The loop ---- */

static int time_left(const launch *l)
{
    double now = ls_clock_now(), next = now + 1;
    if (l->kill_at > 0 || l->over_at > 0) {
        double end = l->kill_at > 0 ? l->kill_at : l->over_at;
        next = end < now + 0.02 ? now + 0.02 : end < next ? end : next;
    }
    for (int r = 0; r < l->count; r++)
        if (l->workers[r].restart_at > 0 && l->workers[r].restart_at < next)
            next = l->workers[r].restart_at;
    return next > now ? (int)(1000 * (next - now)) + 1 : 0;
}

static void poll_once(launch *l, struct pollfd *polls)
{
    int n = 0;
    polls[n++] = (struct pollfd){ .fd = l->signals, .events = POLLIN };
    for (int r = 0; r < l->count; r++)
        for (int i = 0; i < 2; i++)
            polls[n++] = (struct pollfd){ .fd = l->workers[r].out[i].fd, .events = POLLIN };
    poll(polls, (nfds_t)n, time_left(l));
    read_signals(l);
    update_chief(l);
    for (int r = 0; r < l->count; r++)
        launch_read_worker(l, r, false);
    reap(l);
    for (int r = 0; r < l->count; r++)
        if (l->workers[r].restart_at > 0 && l->running > 0 && ls_clock_now() >= l->workers[r].restart_at)
            restart_worker(l, r);
    launch_share_ends(l, false);
    end_hanging(l);
    if (l->kill_at > 0 && ls_clock_now() >= l->kill_at)
        signal_workers(l, SIGKILL);
}

/* Does not wait for processes that left a worker's group and may keep a pipe open. */
static ls_status watch(launch *l, struct pollfd *polls)
{
    for (;;) {
        while (l->running > 0)
            poll_once(l, polls);
        plan_no_restart(l);
        if (l->failed < 0 || !may_restart(l, l->how))
            return LS_OK;
        ls_status status = restart_job(l);
        if (status != LS_OK)
            return status;
    }
}

static ls_status run_workers(launch *l)
{
    struct pollfd *polls = calloc((size_t)(2 * l->count + 1), sizeof *polls);
    if (!polls)
        return ls_fail(LS_ERR_MEMORY, "launch: no memory for %d workers", l->count);
    ls_status status = start_all(l);
    if (status == LS_OK)
        status = watch(l, polls);
    if (status != LS_OK) {
        char message[512];
        snprintf(message, sizeof message, "%s", ls_last_error());
        ask_to_end(l);
        while (l->running > 0)
            poll_once(l, polls);
        ls_fail(status, "%s", message);
    }
    free(polls);
    return status;
}

/* ---- Setup and result ---- */

/* Workers may have another working directory. */
static ls_status find_key(launch *l)
{
    const char *path = l->settings->key_file;
    if (!path)
        return LS_OK;
    l->key_file = realpath(path, NULL);
    return l->key_file && access(l->key_file, R_OK) == 0
               ? LS_OK
               : ls_fail(LS_ERR_IO, "launch: --key-file %s cannot be read: %s", path, strerror(errno));
}

static ls_status prepare(launch *l)
{
    l->workers = calloc((size_t)l->count, sizeof *l->workers);
    l->program = calloc(l->settings->file_count + 1, sizeof *l->program);
    if (!l->workers || !l->program)
        return ls_fail(LS_ERR_MEMORY, "launch: no memory for %d workers", l->count);
    memcpy(l->program, l->settings->files, l->settings->file_count * sizeof *l->program);
    for (int r = 0; r < l->count; r++)
        l->workers[r].out[0].fd = l->workers[r].out[1].fd = -1;
    LS_TRY(find_key(l));
    LS_TRY(launch_make_rendezvous(l));
    launch_make_shared(l);
    LS_TRY(launch_find_cores(l));
    return catch_signals(l);
}

static int end_of_job(const launch *l)
{
    char text[96];
    if (l->signal)
        return l->signal;
    if (l->finished || l->failed < 0)
        return 0;
    if (l->count > 1)
        fprintf(stderr, "lockstep launch: the job failed: the first worker to fail was %d, which %s\n", l->failed,
                describe_end(l->how, text));
    return TOOL_STATUS(exit_status(l->how));
}

static ls_status run(const tool_settings *settings, int *stopped_by)
{
    launch l = { .settings = settings,
                 .count = (int)(settings->workers + settings->servers),
                 .signals = -1,
                 .shared_fd = -1,
                 .locks = { -1, -1 },
                 .failed = -1 };
    tool_ignore_signal(SIGPIPE);
    ls_status status = prepare(&l);
    if (status == LS_OK)
        status = run_workers(&l);
    if (l.signals >= 0) {
        close(l.signals);
        sigprocmask(SIG_SETMASK, &l.old_mask, NULL);
    }
    for (int r = 0; l.workers && r < l.count; r++)
        launch_close_streams(&l.workers[r]);
    launch_remove_rendezvous(&l);
    launch_remove_shared(&l);
    ls_socket_folders_clean();
    free(l.workers);
    free(l.program);
    free(l.cores);
    free(l.key_file);
    if (status == LS_OK)
        *stopped_by = end_of_job(&l);
    return status;
}

/* Checks "2:8". */
static ls_status check_elastic(const tool_settings *settings)
{
    int64_t least, most;
    if (!ls_parse_pair(settings->elastic, &least, &most) || least < 1 || most < least || most > LS_MAX_CLUSTER)
        return ls_fail(LS_ERR_INVALID,
                       "--elastic %s: expected the smallest and the largest number of workers, as in 2:8, at most %d",
                       settings->elastic, LS_MAX_CLUSTER);
    if (settings->workers < least || settings->workers > most)
        return ls_fail(LS_ERR_INVALID, "--elastic %s: --workers %d is outside this range", settings->elastic,
                       (int)settings->workers);
    return LS_OK;
}

static ls_status check(const ls_options *options, tool_settings *settings)
{
    (void)options;
    if (settings->file_count == 0)
        return ls_fail(
            LS_ERR_INVALID,
            "launch: a program is needed: lockstep launch --workers 2 -- lockstep train mnist-cnn --data mnist");
    if (getenv("LOCKSTEP_RANK") || getenv("LOCKSTEP_WORLD_SIZE"))
        return ls_fail(LS_ERR_STATE, "launch: LOCKSTEP_RANK or LOCKSTEP_WORLD_SIZE is set: this process is a worker "
                                     "of a job already, and cannot start others");
    if (settings->job && (!settings->job[0] || strlen(settings->job) > 60 || strstr(settings->job, "://")))
        return ls_fail(LS_ERR_INVALID, "--job '%.40s': expected a name of 1 to 60 characters without ://",
                       settings->job);
    if (settings->workers + settings->servers > LS_MAX_CLUSTER)
        return ls_fail(LS_ERR_INVALID, "--workers %d and --servers %d: there can be at most %d processes in total",
                       (int)settings->workers, (int)settings->servers, LS_MAX_CLUSTER);
    return settings->elastic ? check_elastic(settings) : LS_OK;
}

const tool_command tool_launch = {
    .name = "launch",
    .arguments = "--workers N -- PROGRAM ARGUMENTS...",
    .summary = "start a program as several workers that train one job, on this machine",
    .details = "Starts N processes of PROGRAM, each with its share of the cores. The contexts that they open join one "
               "cluster, which\n"
               "computes the same bits as one process. The chief, worker 0 at first, prints as if it were alone; lines "
               "of the other\n"
               "workers begin with their rank: \"[1] \". If a worker fails, launch reports it in one line, and the "
               "others continue;\n"
               "if it was the chief, another worker becomes chief. With --restarts, launch starts it again, with "
               "LOCKSTEP_RESTART=1,\n"
               "2, ...; when no worker is left, it starts the whole job again. Exit status: 0 if the job finished, "
               "even if workers\n"
               "failed; otherwise that of the worker that failed first (128 + N: killed by signal N).",
    .takes_files = TOOL_ANY_FILES,
    .starts_program = true,
    .tables = { &tool_launch_flags },
    .check = check,
    .run = run,
};
