/* ls_spawn: runs the workers of a cluster as children of this process. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/start/environment.h"
#include "fabric/start/launcher.h"
#include "base/socket_folder.h"

#define GRACE 10.0 /* seconds for the others to end after SIGTERM when one has failed */
#define LOOK  20   /* milliseconds between looks at the children */

typedef struct child {
    pid_t pid; /* 0: it has ended, or was not started */
    int fd;    /* pipe for its error, an ls_error */
} child;

/* ---- Checks ---- */

static int count_threads(void)
{
    DIR *folder = opendir("/proc/self/task");
    int count = 0;
    if (!folder)
        return 1; /* unknown: assume one */
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

static ls_status check_moment(void)
{
    int opened = ls_contexts_opened(), threads = count_threads();
    if (opened > 0)
        return ls_fail(LS_ERR_STATE,
                       "ls_spawn: this process has opened %d context%s already; call ls_spawn before opening one",
                       opened, opened == 1 ? "" : "s");
    if (threads > 1)
        return ls_fail(LS_ERR_STATE,
                       "ls_spawn: this process has %d threads, and a worker would have only one of them; call ls_spawn "
                       "before starting threads",
                       threads);
    return LS_OK;
}

/* ---- In the child ---- */

static void set_variables(int rank, int count, const char *job)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", rank);
    setenv(LS_RANK_VARIABLE, text, 1);
    snprintf(text, sizeof(text), "%d", count);
    setenv(LS_WORLD_SIZE_VARIABLE, text, 1);
    setenv(LS_RENDEZVOUS_VARIABLE, job, 1);
    unsetenv(LS_LAUNCHER_VARIABLE); /* its file is for another cluster */
}

/* Runs the function. An ls_error fits into a pipe, so writing it never blocks. */
_Noreturn static void be_worker(int fd, int rank, int count, const char *job, ls_worker_function function, void *user)
{
    ls_error last = { .status = LS_OK };
    set_variables(rank, count, job);
    ls_clear_error();
    ls_status status = function(rank, count, user);
    if (status != LS_OK) {
        ls_error_keep(&last, status);
        if (write(fd, &last, sizeof(last)) != (ssize_t)sizeof(last)) {
            /* the exit status shows the failure */
        }
    }
    fflush(NULL);
    _exit(status == LS_OK ? 0 : 1);
}

static ls_status start(child *c, pid_t parent, int rank, int count, const char *job, ls_worker_function function,
                       void *user)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return ls_fail(LS_ERR_PEER, "ls_spawn: no pipe for worker %d: %s", rank, strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* ends together with the parent */
        if (getppid() != parent)
            _exit(1);
        be_worker(ends[1], rank, count, job, function, user);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return ls_fail(LS_ERR_PEER, "ls_spawn: worker %d could not be started: %s", rank, strerror(errno));
    }
    *c = (child){ pid, ends[0] };
    return LS_OK;
}

/* ---- In the parent ---- */

static ls_status report_failure(const child *c, int rank, int how)
{
    ls_error last;
    if (WIFSIGNALED(how))
        return ls_fail(LS_ERR_PEER, "ls_spawn: worker %d was ended by signal %d (%s)", rank, WTERMSIG(how),
                       strsignal(WTERMSIG(how)));
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0)
        return LS_OK;
    if (read(c->fd, &last, sizeof(last)) == (ssize_t)sizeof(last) && last.status != LS_OK &&
        memchr(last.message, '\0', sizeof(last.message))) {
        ls_error_give(&last);
        return ls_fail_within(last.status, "ls_spawn: worker %d", rank);
    }
    return ls_fail(LS_ERR_PEER, "ls_spawn: worker %d ended with status %d", rank, WEXITSTATUS(how));
}

static void signal_all(const child *list, int count, int number)
{
    for (int i = 0; i < count; i++)
        if (list[i].pid > 0)
            kill(list[i].pid, number);
}

/* Waits for each worker by its pid, as the program may have other children. */
static ls_status wait_for_all(child *list, int count, ls_status status)
{
    ls_error first = { .status = LS_OK };
    double kill_at = 0;
    int left = 0;
    if (status != LS_OK) {
        ls_error_keep(&first, status);
        signal_all(list, count, SIGTERM);
        kill_at = ls_clock_now() + GRACE;
    }
    do {
        left = 0;
        for (int i = 0; i < count; i++) {
            int how = 0;
            pid_t ended = list[i].pid > 0 ? waitpid(list[i].pid, &how, WNOHANG) : 0;
            left += list[i].pid > 0 && ended == 0;
            if (ended == 0 || (ended < 0 && errno == EINTR))
                continue;
            list[i].pid = 0;
            status = ended < 0 ? ls_fail(LS_ERR_PEER, "ls_spawn: another part of the program waited for worker %d", i)
                               : report_failure(&list[i], i, how);
            if (status != LS_OK && first.status == LS_OK) {
                ls_error_keep(&first, status);
                signal_all(list, count, SIGTERM);
                kill_at = ls_clock_now() + GRACE;
            }
        }
        if (kill_at > 0 && ls_clock_now() > kill_at)
            signal_all(list, count, SIGKILL);
        if (left > 0)
            poll(NULL, 0, LOOK);
    } while (left > 0);
    return first.status == LS_OK ? LS_OK : ls_error_give(&first);
}

ls_status ls_spawn(int count, ls_worker_function function, void *user)
{
    static atomic_int spawns;
    child list[LS_MAX_CLUSTER] = { { 0, 0 } };
    uint64_t random = 0;
    char job[64];
    if (!function)
        return ls_fail(LS_ERR_INVALID, "ls_spawn: the function for the workers is NULL");
    if (count < 1 || count > LS_MAX_CLUSTER)
        return ls_fail(LS_ERR_INVALID, "ls_spawn: %d workers; must be 1 to %d", count, LS_MAX_CLUSTER);
    LS_TRY(check_moment());
    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != (ssize_t)sizeof(random))
        random = (uint64_t)(1e9 * ls_clock_now());
    snprintf(job, sizeof(job), "spawn-%ld-%d-%016llx", (long)getpid(), atomic_fetch_add(&spawns, 1),
             (unsigned long long)random);
    fflush(NULL); /* else each worker would print the same buffered text */
    pid_t parent = getpid();
    ls_status status = LS_OK;
    int started = 0;
    for (; started < count && status == LS_OK; started++)
        status = start(&list[started], parent, started, count, job, function, user);
    started -= status != LS_OK;
    status = wait_for_all(list, started, status);
    for (int i = 0; i < started; i++)
        close(list[i].fd);
    ls_socket_folders_clean(); /* sockets of workers that were killed */
    return status;
}
