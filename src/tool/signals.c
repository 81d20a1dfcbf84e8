/* Signals and standard descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "tool/tool.h"

/* A log must not get the number of a closed descriptor 1 or 2: output would go into the log. The
 * replacement is read-only, so that lost output is a failure. */
void tool_open_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDONLY) != fd)
            _exit(1); /* no place to report why */
}

/* ---- Stopping ---- */

static volatile int stop, saves; /* signal received; number of requests to save */
static volatile sig_atomic_t at_once = 1;

/* Called when there is nothing to save, or on a second signal. */
static void leave(int number)
{
    static const char line[] = "lockstep: stopped by a signal\n";
    if (write(2, line, sizeof line - 1) < 0) {
        /* Ignore: nothing else to do. */
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

/* A signal that was ignored at the start stays ignored, for nohup. */
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
    /* first: once the others are handled, it is, too */
    set_unless_ignored(SIGUSR1, on_save);
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
