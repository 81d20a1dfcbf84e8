/* Signals and standard descriptors: what keeps a run from dying with nothing saved. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "tool/tool.h"

/* A log must not get descriptor 1 or 2 because the caller had closed it: what is printed would land in the log. Nothing
 * can be written to what stands there instead: results that nobody gets are a failure, as on a full disk. */
void tool_open_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDONLY) != fd)
            _exit(1); /* there is nowhere to say why */
}

/* ---- Stopping ---- */

static volatile int stop, saves; /* the signal that came; requests to save */
static volatile sig_atomic_t at_once = 1;

/* There is nothing to save yet, nothing any more, or somebody insists. */
static void leave(int number)
{
    static const char line[] = "lockstep: stopped by a signal\n";
    if (write(2, line, sizeof line - 1) < 0) {
        /* there is nobody to tell */
    }
    _exit(128 + number);
}

static void on_stop(int number)
{
    if (at_once || stop)
        leave(number);
    stop = number;
}

static void on_save(int number)
{
    (void)number;
    saves = saves + 1;
}

/* A signal that was ignored when the command started stays ignored: nohup, and jobs in the background of a script. */
static void set_unless_ignored(int number, void (*handler)(int))
{
    struct sigaction old, action = { .sa_handler = handler, .sa_flags = SA_RESTART };
    sigemptyset(&action.sa_mask);
    if (sigaction(number, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(number, &action, NULL);
}

void tool_begin_signals(void)
{
    static const int stopping[] = { SIGINT, SIGTERM, SIGHUP };
    set_unless_ignored(SIGUSR1, on_save); /* first: whoever sees the others sees it, too */
    for (size_t i = 0; i < sizeof stopping / sizeof *stopping; i++)
        set_unless_ignored(stopping[i], on_stop);
}

const volatile int *tool_catch_signals(void)
{
    at_once = 0;
    return &stop;
}

int tool_release_signals(void)
{
    at_once = 1;
    return stop;
}

const volatile int *tool_save_requests(void)
{
    return &saves;
}

void tool_ignore_signal(int number)
{
    struct sigaction action = { .sa_handler = SIG_IGN };
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}
