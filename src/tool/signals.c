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

static volatile int stop; /* the signal that came */

static void on_signal(int number)
{
    stop = number;
}

/* A signal that was ignored when the command started stays ignored: nohup, and jobs in the background of a script. */
static void set_unless_ignored(int number, const struct sigaction *action)
{
    struct sigaction old;
    if (sigaction(number, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(number, action, NULL);
}

static const int stopping[] = { SIGINT, SIGTERM, SIGHUP };

const volatile int *tool_catch_signals(void)
{
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND | SA_RESTART };
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof stopping / sizeof *stopping; i++)
        set_unless_ignored(stopping[i], &action);
    return &stop;
}

int tool_release_signals(void)
{
    struct sigaction action = { .sa_handler = SIG_DFL };
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof stopping / sizeof *stopping; i++)
        set_unless_ignored(stopping[i], &action);
    return stop;
}

void tool_ignore_signal(int number)
{
    struct sigaction action = { .sa_handler = SIG_IGN };
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}
