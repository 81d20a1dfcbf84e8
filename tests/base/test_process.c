/* Whether another process has ended, by its identity. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"

/* A child that tells its identity and waits to be killed. */
static pid_t start_child(ls_process_id *id)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        *id = ls_process_self();
        _exit(write(ends[1], id, sizeof(*id)) == sizeof(*id) ? pause() : 1);
    }
    assert_int_equal(read(ends[0], id, sizeof(*id)), sizeof(*id));
    close(ends[0]);
    close(ends[1]);
    return pid;
}

static void a_killed_process_has_ended(void **state)
{
    (void)state;
    ls_process_id id;
    pid_t pid = start_child(&id);
    assert_int_not_equal(id.machine, 0);
    assert_false(ls_process_has_ended(&id));
    kill(pid, SIGSTOP);
    assert_false(ls_process_has_ended(&id));
    kill(pid, SIGKILL);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_true(ls_process_has_ended(&id)); /* a zombie */
    waitpid(pid, NULL, 0);
    assert_true(ls_process_has_ended(&id));
}

static void this_process_runs(void **state)
{
    (void)state;
    ls_process_id self = ls_process_self();
    assert_int_equal(self.pid, getpid());
    assert_false(ls_process_has_ended(&self));
    self.start--; /* its pid was another one's before */
    assert_true(ls_process_has_ended(&self));
}

static void nothing_is_known_of_other_machines(void **state)
{
    (void)state;
    ls_process_id other = ls_process_self();
    other.machine ^= 1;
    other.start--;
    assert_false(ls_process_has_ended(&other));
    other.machine = 0;
    assert_false(ls_process_has_ended(&other));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_killed_process_has_ended),
                                        cmocka_unit_test(this_process_runs),
                                        cmocka_unit_test(nothing_is_known_of_other_machines) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
