/* Runs the test program again: see run_self.h. */
#include "run_self.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void run_child(const char *argument, const char *isa, bool quiet, const int ends[2])
{
    dup2(ends[1], 1);
    close(ends[0]);
    close(ends[1]);
    if (quiet && !freopen("/dev/null", "w", stderr))
        _exit(126);
    if (isa)
        setenv("LOCKSTEP_ISA", isa, 1);
    else
        unsetenv("LOCKSTEP_ISA");
    execl("/proc/self/exe", "test", argument, (char *)NULL);
    _exit(127);
}

char *run_self(const char *argument, const char *isa, bool quiet)
{
    int ends[2], status = 0;
    size_t length = 0, room = 4096;
    char *text = malloc(room);
    assert_non_null(text);
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        run_child(argument, isa, quiet, ends);
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], text + length, room - 1 - length)) > 0;) {
        length += (size_t)got;
        if (length == room - 1)
            assert_non_null(text = realloc(text, room *= 2));
    }
    text[length] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s with LOCKSTEP_ISA=%s: status %d: %s", argument, isa ? isa : "(unset)", status, text);
    return text;
}
