#!/bin/sh
# lockstep launch: what workers write, one exit status, signals, and nothing left behind.
. "$(dirname "$0")/lib.sh"

LOCKSTEP=$ROOT/$LS_BUILD/lockstep
MARK="launch-test-$$" # in the arguments of every worker, to find those that are left
launch() { timeout -k 5 60 "$LOCKSTEP" launch "$@"; }

# fails_with STATUS COMMAND...
fails_with() {
    wanted=$1 found=0
    shift
    "$@" >"$TMP/out" 2>"$TMP/err" || found=$?
    [ $found = "$wanted" ] || { echo "status $found, not $wanted"; cat "$TMP/out" "$TMP/err"; return 1; }
}

nobody_left() {
    for i in 1 2 3 4 5 6 7 8 9 10; do
        pgrep -f "$MARK" >"$TMP/left" || return 0
        sleep 0.1
    done
    echo "left: $(cat "$TMP/left")"
    return 1
}

all_run() {
    launch --workers 3 -- sh -c 'echo "I am $LOCKSTEP_RANK of $LOCKSTEP_WORLD_SIZE"; echo "problem $LOCKSTEP_RANK" >&2' "$MARK" \
        >"$TMP/out" 2>"$TMP/err" || return 1
    sort "$TMP/out" >"$TMP/sorted"
    printf 'I am 0 of 3\n[1] I am 1 of 3\n[2] I am 2 of 3\n' | sort | cmp - "$TMP/sorted" || return 1
    sort "$TMP/err" >"$TMP/sorted"
    printf 'problem 0\n[1] problem 1\n[2] problem 2\n' | sort | cmp - "$TMP/sorted"
}
check "workers run, and lines of all but the first have their rank" all_run

last_line() {
    launch -- sh -c 'printf "no newline"; [ $LOCKSTEP_RANK = 0 ] || head -c 10000 /dev/zero | tr "\0" x' >"$TMP/out" || return 1
    grep -q '\[1\] no newlinexxx' "$TMP/out" && [ "$(tr -cd x <"$TMP/out" | wc -c)" = 10000 ]
}
check "long lines and a last one without an end are printed" last_line

same_job() {
    launch --workers 2 -- sh -c 'echo $LOCKSTEP_RENDEZVOUS' | sed 's/^\[1\] //' | sort -u >"$TMP/one"
    launch --workers 2 -- sh -c 'echo $LOCKSTEP_RENDEZVOUS' | sed 's/^\[1\] //' | sort -u >"$TMP/two"
    [ "$(wc -l <"$TMP/one")" = 1 ] && [ "$(wc -l <"$TMP/two")" = 1 ] && ! cmp -s "$TMP/one" "$TMP/two"
}
check "workers share the name of the job, and jobs do not" same_job

cores_are_shared() {
    count=$(nproc)
    launch --workers "$count" -- sh -c 'grep Cpus_allowed_list /proc/self/status' | sed 's/.*://' | sort -u >"$TMP/cores"
    [ "$count" = 1 ] || [ "$(wc -l <"$TMP/cores")" -gt 1 ] || { cat "$TMP/cores"; return 1; }
}
check "each worker has cores of its own" cores_are_shared

one_fails() {
    fails_with 7 launch --workers 3 --grace 5 -- sh -c '[ $LOCKSTEP_RANK != 1 ] || exit 7; exec sleep 50' "$MARK" || return 1
    grep -q 'worker 1 ended with status 7; the others are asked to end' "$TMP/err"
}
check "one that fails ends all, with its status" one_fails

one_is_killed() {
    fails_with 137 launch --workers 3 -- sh -c '[ $LOCKSTEP_RANK != 2 ] || kill -9 $$; sleep 50; true' "$MARK" || return 1
    grep -q 'worker 2 was ended by signal 9' "$TMP/err" && nobody_left
}
check "one that is killed ends all, and what they started" one_is_killed

one_is_stubborn() {
    fails_with 3 launch --workers 2 --grace 0.3 -- sh -c 'trap "" TERM; [ $LOCKSTEP_RANK != 1 ] || { sleep 0.2; exit 3; }; while :; do sleep 1; done' "$MARK" || return 1
    nobody_left
}
check "one that does not end is killed after the grace" one_is_stubborn

not_there() {
    fails_with 1 launch -- "$TMP/no such program" || return 1
    grep -q 'no such program could not be started: No such file' "$TMP/err"
}
check "a program that is not there is told once" not_there

wrong_use() {
    fails_with 2 launch && fails_with 2 launch --workers 0 -- true && fails_with 2 launch --workers 257 -- true || return 1
    fails_with 2 env LOCKSTEP_RANK=0 "$LOCKSTEP" launch -- true && grep -q 'LOCKSTEP_RANK' "$TMP/err"
}
check "wrong use is refused" wrong_use

# signalled NAME STATUS: workers that say how they ended
signalled() {
    "$LOCKSTEP" launch --workers 2 -- sh -c 'trap "echo got it; exit 0" '"$1"'; echo ready; while :; do sleep 0.05; done' "$MARK" >"$TMP/out" 2>"$TMP/err" &
    pid=$!
    for i in $(seq 100); do
        [ "$(grep -c ready "$TMP/out")" != 2 ] || break
        sleep 0.1
    done
    kill -"$1" $pid
    found=0
    wait $pid || found=$?
    [ $found = "$2" ] && [ "$(grep -c 'got it' "$TMP/out")" = 2 ] || { echo "status $found"; cat "$TMP/out" "$TMP/err"; return 1; }
    nobody_left
}
check "SIGTERM is passed on" signalled TERM 143
check "SIGUSR1 is passed on, and ends nothing here" signalled USR1 0

launcher_dies() {
    "$LOCKSTEP" launch --workers 2 -- sh -c 'echo ready; while :; do sleep 0.05; done' "$MARK" >"$TMP/out" 2>"$TMP/err" &
    pid=$!
    for i in $(seq 100); do
        [ "$(grep -c ready "$TMP/out")" != 2 ] || break
        sleep 0.1
    done
    kill -9 $pid
    wait $pid 2>/dev/null || true
    nobody_left
}
check "workers do not outlive the launcher" launcher_dies

meets_nobody() {
    fails_with 1 env LOCKSTEP_RANK=1 LOCKSTEP_WORLD_SIZE=3 LOCKSTEP_RENDEZVOUS="$MARK" LOCKSTEP_JOIN_LIMIT=0.3 \
        timeout 60 "$LOCKSTEP" devices || return 1
    grep -q 'workers 0, 2 of 3 did not come within 0.3 s' "$TMP/err"
}
check "a worker that is alone says who is missing" meets_nobody

all_meet() { launch --workers 3 -- "$LOCKSTEP" devices && grep -qv '^\[' "$TMP/check.out"; }
check "contexts of the command meet" all_meet

nothing_in_tmp() {
    before=$(ls -a /tmp /dev/shm | grep -c -i lockstep || true)
    launch --workers 2 -- "$LOCKSTEP" devices >"$TMP/out" || return 1
    [ "$(ls -a /tmp /dev/shm | grep -c -i lockstep || true)" -le "$before" ] && ! grep -q "@lockstep.*launch" /proc/net/unix
}
check "nothing is left behind" nothing_in_tmp
finish
