#!/bin/sh
# The test runner counts what happened, above all when tests fail: it is what everyone believes.
. "$(dirname "$0")/../support/lib.sh"

export LS_BUILD=$TMP/build
mkdir -p "$LS_BUILD" "$TMP/t"

cat >"$TMP/t/cmocka.c" <<'END'
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
#include "skip.h"
static void good(void **state) { (void)state; }
static void bad(void **state) { (void)state; assert_int_equal(6, 7); }
static void killed(void **state) { (void)state; kill(getpid(), SIGTERM); pause(); }
static void skipped(void **state) { (void)state; SKIP("it rains"); }
#define QUOTED(name) QUOTED_AGAIN(name)
#define QUOTED_AGAIN(name) #name
int main(void)
{
    const struct CMUnitTest first[] = { cmocka_unit_test(good), { QUOTED(FIRST), FIRST, NULL, NULL, NULL } };
    const struct CMUnitTest second[] = { cmocka_unit_test(good), { QUOTED(SECOND), SECOND, NULL, NULL, NULL } };
    (void)bad, (void)killed, (void)skipped;
    cmocka_run_group_tests(first, NULL, NULL);
    cmocka_run_group_tests(second, NULL, NULL);
    return 0; /* on purpose: the counts must not depend on it */
}
END
program() {
    $CC -Itests/support -DFIRST="$2" -DSECOND="$3" "$TMP/t/cmocka.c" $(pkg-config --cflags --libs cmocka) -o "$TMP/t/$1"
}
script() {
    printf '#!/bin/sh\n%s\n' "$2" >"$TMP/t/$1.sh"
    chmod +x "$TMP/t/$1.sh"
}
program test_good good good
program test_bad bad good
program test_killed good killed
program test_skipped skipped good
script test_ok 'echo ok one; echo ok two; echo skip three: no such thing'
script test_not_ok 'echo ok one; echo "not ok two: because"; exit 1'
script test_liar 'echo ok one; exit 3'
script test_empty 'exit 0'
script test_slow 'echo ok one; sleep 60'
script test_deaf "echo ok one; trap '' TERM; sleep 61.$$; sleep 61.$$"
script test_segv 'echo ok one; kill -SEGV $$'

# gives EXPECTED_LAST_LINE PATTERN TEST...: exit status and last line agree, and the output has the pattern.
gives() {
    last=$1 pattern=$2
    shift 2
    tests=
    for t in "$@"; do
        tests="$tests $TMP/t/$t"
    done
    status=0
    LS_TEST_TIMEOUT=2 "$ROOT/tests/run.sh" $tests >"$TMP/out" 2>&1 || status=$?
    cat "$TMP/out"
    [ "$(tail -n 1 "$TMP/out")" = "$last" ] || return 1
    grep -q -e "$pattern" "$TMP/out" || { echo "no '$pattern'"; return 1; }
    case $last in
    "0 passed, 0 failed"* | *" passed, "[1-9]*) [ $status != 0 ] ;;
    *) [ $status = 0 ] ;;
    esac
}

check "groups of one program are added up" gives "4 passed, 0 failed, 0 skipped" "test_good  *4 passed" test_good
check "a failure is counted and shown" gives "3 passed, 1 failed, 0 skipped" "6 != 0x7" test_bad
check "a program that dies is named" gives "3 passed, 1 failed, 0 skipped" "test_killed crashed (signal 15)" test_killed
check "a skipped test is neither" gives "3 passed, 0 failed, 1 skipped" "^skipped: test_skipped: skipped: it rains" test_skipped
check "a script's lines are counted" gives "2 passed, 0 failed, 1 skipped" "^skipped: test_ok: three: no such thing" test_ok.sh
check "a script's failure has its reason" gives "1 passed, 1 failed, 0 skipped" "not ok two: because" test_not_ok.sh
check "a bad exit status is a failure" gives "1 passed, 1 failed, 0 skipped" "test_liar ended with status 3" test_liar.sh
check "no test is a failure" gives "0 passed, 1 failed, 0 skipped" "test_empty ran no test" test_empty.sh
check "running out of time is a failure" gives "1 passed, 1 failed, 0 skipped" "test_slow timed out after 2 seconds" test_slow.sh
check "a test that does not end when asked is killed" gives "1 passed, 1 failed, 0 skipped" "test_deaf timed out after 2 seconds" test_deaf.sh
no_process_left() {
    [ -z "$(have_argument "61.$$")" ]
}
check "and so are its children" no_process_left
check "a crash is a failure" gives "1 passed, 1 failed, 0 skipped" "test_segv crashed (signal 11)" test_segv.sh
check "a missing program is a failure" gives "0 passed, 1 failed, 0 skipped" "test_none" test_none
check "nothing at all is a failure" gives "0 passed, 0 failed, 0 skipped" "0 passed"
check "a failure does not stop the others" gives "11 passed, 3 failed, 0 skipped" "test_good  *4 passed" \
    test_killed test_bad test_segv.sh test_good

# ---- all passes ----

# Passes are runs of make: here one that prints and does what the test sets.
mkdir -p "$TMP/ci/.ci" "$TMP/ci/build/ci-logs" "$TMP/bin"
cp "$ROOT/.ci/run" "$TMP/ci/.ci/run"
printf '#!/bin/sh\nprintf "$SAID"\nexit $STATUS\n' >"$TMP/bin/make"
chmod +x "$TMP/bin/make"
# ends_with LAST_LINE SAID STATUS PASSES: it is the last line, and failures or not the exit status.
ends_with() {
    echo 'skipped: test_old: of an earlier run' >"$TMP/ci/build/ci-logs/plain.log"
    status=0
    SAID=$2 STATUS=$3 LS_CI_PASSES=$4 PATH="$TMP/bin:$PATH" "$TMP/ci/.ci/run" >"$TMP/out" 2>&1 || status=$?
    cat "$TMP/out"
    [ "$(tail -n 1 "$TMP/out")" = "$1" ] && ! grep -q test_old "$TMP/out" || return 1
    case $1 in *" 0 failed"*) [ $status = 0 ] ;; *) [ $status = 1 ] ;; esac
}
check "passes: the last line is the plain one's" ends_with "5 passed, 0 failed, 1 skipped" '5 passed, 0 failed, 1 skipped\n' 0 "plain avx2"
check "passes: failures are added up" ends_with "5 passed, 4 failed, 0 skipped" '5 passed, 2 failed, 0 skipped\n' 2 "plain avx2"
check "passes: one that does not build" ends_with "0 passed, 2 failed, 0 skipped" 'error\n' 2 "plain clang"
check "passes: one that runs no test" ends_with "0 passed, 2 failed, 0 skipped" '0 passed, 0 failed, 0 skipped\n' 0 "plain avx2"
check "passes: one without output" ends_with "0 passed, 1 failed, 0 skipped" '' 0 avx2
check "passes: an unknown one" ends_with "0 passed, 1 failed, 0 skipped" '' 0 none
finish
