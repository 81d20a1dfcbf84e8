#!/bin/sh
# lockstep launch: what workers write, one exit status, signals, and nothing left behind.
. "$(dirname "$0")/../support/lib.sh"

LOCKSTEP=$ROOT/$LS_BUILD/lockstep
MARK="launch-test-$$" # in the arguments of every worker, to find leftovers
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
        have_argument "$MARK" >"$TMP/left"
        [ -s "$TMP/left" ] || return 0
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

# ---- Workers that fail: the others go on ----

# Workers that wait for a line of the launcher: `await TEXT`; or for one of another worker: `await TEXT "$OUT"`
export OUT="$TMP/out" ERR="$TMP/err" LOCKSTEP
AWAIT='await() { until grep -q -e "$1" "${2:-$ERR}"; do sleep 0.02; done; };'
workers() {
    count=$1 script=$2
    shift 2
    launch --workers "$count" "$@" -- sh -c "$AWAIT $script" "$MARK" >"$TMP/out" 2>"$TMP/err"
}
# fail_with STATUS COUNT SCRIPT FLAGS...
fail_with() {
    wanted=$1 found=0
    shift
    workers "$@" || found=$?
    [ $found = "$wanted" ] || { echo "status $found, not $wanted"; cat "$TMP/out" "$TMP/err"; return 1; }
}
said() { [ "$(cat "$TMP/err")" = "$1" ] || { cat "$TMP/err"; return 1; }; }
# wrote LINE...: in any order
wrote() {
    printf '%s\n' "$@" | sort >"$TMP/wanted"
    sort "$TMP/out" | cmp - "$TMP/wanted" || { cat "$TMP/out" "$TMP/err"; return 1; }
}

one_fails() {
    workers 3 '[ $LOCKSTEP_RANK != 1 ] || exit 7; await "worker 1"; echo done' || return 1
    said 'lockstep launch: worker 1 ended with status 7; 2 of 3 continue' && wrote done '[2] done'
}
check "a worker that fails does not end the job, and is reported in one line" one_fails

one_is_killed() {
    workers 4 '[ $LOCKSTEP_RANK != 2 ] || { sleep 50 & kill -9 $$; }; await "worker 2"' || return 1
    said 'lockstep launch: worker 2 was killed by signal 9 (Killed); 3 of 4 continue' && nobody_left
}
check "a worker that is killed ends only its own children" one_is_killed

all_fail() {
    fail_with 7 3 '[ $LOCKSTEP_RANK = 1 ] && exit 7; await "worker 1"; exit 1' || return 1
    [ "$(tail -n 1 "$TMP/err")" = 'lockstep launch: the job failed: the first worker to fail was 1, which ended with status 7' ]
}
check "when all fail the first one counts, and is named last" all_fail

# Worker 0 writes without its rank; when it is gone the lowest rank that is left does, and never two at a time.
next_speaks() {
    workers 4 'case $LOCKSTEP_RANK in
        0) echo zero; await early "$OUT"; kill -9 $$ ;;
        1) await "worker 0"; echo one; exit 3 ;;
        2) echo early; await "worker 1"; printf "two" ;;
        3) await "worker 1"; echo three ;;
        esac' && wrote zero '[2] early' one two '[3] three'
}
check "the lowest remaining rank prints without its rank" next_speaks

# The worker that writes the files must succeed; the success of others before is not enough.
speaker_fails_last() {
    fail_with 9 2 'echo here; [ $LOCKSTEP_RANK != 0 ] || { await "\[1\] here" "$OUT"; sleep 0.5; exit 9; }' && grep -q 'worker 0 ended with status 9; no worker is left' "$TMP/err" || return 1
    workers 2 'echo here; [ $LOCKSTEP_RANK != 1 ] || { await "^here" "$OUT"; sleep 0.5; exit 9; }' && said 'lockstep launch: worker 1 ended with status 9 after the job had finished'
}
check "the status is that of the lowest remaining rank" speaker_fails_last

one_hangs() {
    workers 3 'trap "" TERM; [ $LOCKSTEP_RANK = 0 ] || while :; do sleep 1; done' --grace 0.3 || return 1
    grep -q 'worker 1 has not ended 0.3 s after the others finished: ending it' "$TMP/err" && nobody_left || return 1
    fail_with 143 2 '[ $LOCKSTEP_RANK = 1 ] || sleep 50' --grace 0.3 && nobody_left
}
check "a worker that hangs after the job is ended" one_hangs
zero_is_stopped() {
    launch --workers 2 --grace 0.3 -- sh -c '[ $LOCKSTEP_RANK = 1 ] || kill -STOP $$' >"$TMP/out" 2>"$TMP/err" || { cat "$TMP/err"; return 1; }
    grep -q 'worker 0 has not ended 0.3 s after the others finished: ending it' "$TMP/err" && nobody_left
}
check "worker 0 is stopped, and the others finish the job" zero_is_stopped

# ---- Restarts ----

returns() {
    workers 3 'echo "$LOCKSTEP_RENDEZVOUS ${LOCKSTEP_RESTART:-0}"; [ -z "$LOCKSTEP_RESTART" ] || echo back >&2
        [ $LOCKSTEP_RANK != 1 ] || [ -n "$LOCKSTEP_RESTART" ] || kill -9 $$; await back' --restarts 2 || return 1
    grep -q '2 of 3 continue; restarting it in 0.1 s (restart 1 of 2)' "$TMP/err" || return 1
    [ "$(grep -o 'launch-[^ ]*' "$TMP/out" | sort -u | wc -l)" = 1 ] && sed -i 's/launch-[^ ]*/JOB/' "$TMP/out" && wrote 'JOB 0' '[1] JOB 0' '[1] JOB 1' '[2] JOB 0'
}
check "a worker is started again, with its rank, in the same job" returns

# The first worker returns: another one speaks for all by then.
first_returns() {
    workers 2 'if [ -n "$LOCKSTEP_RESTART" ]; then echo back; echo back >&2; elif [ $LOCKSTEP_RANK = 0 ]; then kill -9 $$; fi
        await back; echo end' --restarts 1 && wrote '[0] back' '[0] end' end
}
check "a first worker that returns prints with its rank" first_returns

fails_each_time() {
    workers 2 '[ $LOCKSTEP_RANK = 0 ] || exit 5; await "status 5; 1 of 2 continue$"' --restarts 3 || return 1
    [ "$(grep -o 'restarting it in 0.[124] s (restart [123] of 3)' "$TMP/err" | tr '\n' ,)" = \
        'restarting it in 0.1 s (restart 1 of 3),restarting it in 0.2 s (restart 2 of 3),restarting it in 0.4 s (restart 3 of 3),' ] || { cat "$TMP/err"; return 1; }
    [ "$(grep -c 'worker 1 ended with status 5' "$TMP/err")" = 4 ]
}
check "a worker that always fails waits longer each time, up to a limit" fails_each_time

called_wrongly() {
    fails_with 2 launch --workers 2 --restarts 3 -- sh -c 'exit 2' && ! grep -q 'again' "$TMP/err"
}
check "a program that was called wrongly is not started again" called_wrongly

# No worker is left: all begin again, as another job. Worker 0 kills both at once, so that none is restarted by itself.
job_restarts() {
    mkdir "$TMP/runs" "$TMP/pids" || return 1
    launch --workers 2 --restarts 5 -- sh -c 'echo $$ >"$1/$LOCKSTEP_RENDEZVOUS.$LOCKSTEP_RANK"
        echo "${LOCKSTEP_RESTART:-none}" >"$0/$LOCKSTEP_RENDEZVOUS.$LOCKSTEP_RANK"
        until [ -e "$0/$LOCKSTEP_RENDEZVOUS.$((1 - LOCKSTEP_RANK))" ]; do sleep 0.02; done
        [ $(ls "$0" | wc -l) -lt 6 ] || exit 0
        until [ $LOCKSTEP_RANK = 0 ]; do sleep 0.02; done
        kill -9 $(cat "$1/$LOCKSTEP_RENDEZVOUS.1") $$' "$TMP/runs" "$TMP/pids" 2>"$TMP/err" || return 1
    [ "$(cat "$TMP/runs"/* | sort | uniq -c | tr -s ' ')" = ' 6 none' ] && grep -q 'no worker is left; restarting the job in 0.2 s (restart 2 of 5)' "$TMP/err"
}
check "when no worker is left the job is started again" job_restarts

stopped_between() {
    rm -f "$TMP/err" # what an earlier job said is not waited for, here and below
    "$LOCKSTEP" launch --workers 2 --restarts 9 -- sh -c 'echo "$LOCKSTEP_RANK" >>"$0"; [ $LOCKSTEP_RANK = 0 ] || exit 1; trap "exit 0" TERM
        while :; do sleep 0.05; done' "$TMP/starts" "$MARK" 2>"$TMP/err" &
    pid=$!
    for i in $(seq 100); do
        ! grep -q 'in 0.8 s' "$TMP/err" || break
        sleep 0.1
    done
    before=$(wc -l <"$TMP/starts")
    kill -TERM $pid
    found=0
    wait $pid || found=$?
    [ $found = 143 ] && [ "$(wc -l <"$TMP/starts")" = "$before" ] && nobody_left
}
check "a signal between restarts ends all" stopped_between

many() {
    launch --workers 256 -- sh -c 'echo "$LOCKSTEP_RANK"; [ $LOCKSTEP_RANK != 200 ] || exit 1' >"$TMP/out" 2>"$TMP/err" || return 1
    [ "$(sed 's/^\[.*\] //' "$TMP/out" | sort -n | uniq | wc -l)" = 256 ] && [ "$(grep -vc '^\[' "$TMP/out")" = 1 ]
}
check "256 workers" many

# ---- Refused ----

not_there() {
    fails_with 1 launch -- "$TMP/no such program" || return 1
    grep -q 'no such program could not be started: No such file' "$TMP/err"
}
check "a missing program is reported once" not_there

wrong_use() {
    fails_with 2 launch && fails_with 2 launch --workers 0 -- true && fails_with 2 launch --workers 257 -- true || return 1
    fails_with 2 env LOCKSTEP_RANK=0 "$LOCKSTEP" launch -- true && grep -q 'LOCKSTEP_RANK' "$TMP/err" || return 1
    for elastic in 2 :3 2: 0:3 3:2 1:257 a:b 3:8; do
        fails_with 2 launch --workers 2 --elastic $elastic -- true && grep -q -e "--elastic $elastic: " "$TMP/err" || return 1
    done
    fails_with 1 launch --key-file "$TMP/no-key" -- true && grep -q 'no-key cannot be read' "$TMP/err"
}
check "wrong use is refused" wrong_use

handed_on() {
    echo key >"$TMP/key" && cd "$TMP" || return 1
    launch --workers 2 --elastic 1:8 --key-file key -- sh -c 'echo $LOCKSTEP_ELASTIC $LOCKSTEP_KEY_FILE' >out || return 1
    sed 's/^\[1\] //' out | sort -u >one && [ "$(cat one)" = "1:8 $TMP/key" ]
}
check "workers get --elastic and the path of the key" handed_on

# Over tcp workers meet in a folder that has their key; nothing of it is left.
over_tcp() {
    mkdir -p "$TMP/tmp" || return 1
    TMPDIR="$TMP/tmp" launch --workers 3 --transport tcp -- sh -c 'echo "$LOCKSTEP_TRANSPORT"; stat -c "%a %s" "$LOCKSTEP_KEY_FILE"; exec "$0" devices' \
        "$LOCKSTEP" >"$TMP/out" 2>"$TMP/err" || { cat "$TMP/err"; return 1; }
    [ "$(grep -c tcp "$TMP/out")" = 3 ] && [ "$(grep -c '600 32' "$TMP/out")" = 3 ] && [ -z "$(ls "$TMP/tmp")" ] || { cat "$TMP/out"; ls -R "$TMP/tmp"; return 1; }
}
check "over tcp, with a key that is made for the job" over_tcp

# A launcher that is killed leaves its folder to the next one, which leaves alone that of one that lives.
folders_left() {
    export TMPDIR="$TMP/left.tmp"
    mkdir -p "$TMPDIR" "$TMPDIR/lockstep-launch-other" || return 1 # others may read that one: it is no launcher's
    for name in dead alive; do
        "$LOCKSTEP" launch --workers 2 --transport tcp -- sh -c 'echo "$LOCKSTEP_KEY_FILE"; while :; do sleep 0.05; done' "$MARK" \
            >"$TMP/$name" 2>/dev/null &
        eval "$name=\$!"
        until [ "$(grep -c key "$TMP/$name")" = 2 ]; do sleep 0.05; done
        [ $name = alive ] || { kill -9 $dead; wait $dead || true; }
    done
    launch --workers 2 -- true && [ "$(ls -d "$TMPDIR"/*/key)" = "$(sed -n "1s/^\[[0-9]*\] //p; 1p" "$TMP/alive" | head -n 1)" ] &&
        [ -d "$TMPDIR/lockstep-launch-other" ] && kill $alive || { ls -R "$TMPDIR"; return 1; }
    wait $alive || true
    nobody_left && [ "$(ls "$TMPDIR")" = lockstep-launch-other ]
}
check "the folder of a launcher that was killed goes with the next one" folders_left
unset TMPDIR

# on_this_machine NAME: the workers get the transport, and meet
on_this_machine() {
    launch --workers 3 --transport "$1" -- sh -c 'echo "$LOCKSTEP_TRANSPORT"; exec "$0" devices' "$LOCKSTEP" >"$TMP/out" 2>"$TMP/err" || { cat "$TMP/err"; return 1; }
    [ "$(grep -c "$1\$" "$TMP/out")" = 3 ] || { cat "$TMP/out"; return 1; }
}
check "over shared memory" on_this_machine shm
check "over Unix sockets" on_this_machine unix

# ---- Signals ----

# signalled NAME STATUS: workers that print how they ended
signalled() {
    rm -f "$TMP/out"
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
check "SIGUSR1 is passed on, and does not end the launcher" signalled USR1 0

launcher_dies() {
    rm -f "$TMP/out"
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

# The others would wait for the join limit, which is longer than launch() waits.
dies_while_meeting() {
    fails_with 137 launch --workers 3 --join-limit 1000 "$@" -- sh -c '[ $LOCKSTEP_RANK != 1 ] || kill -9 $$; exec "$0" devices' "$LOCKSTEP" || return 1
    [ "$(grep -c 'workers* .*1.* of 3 ended before all workers had connected' "$TMP/err")" = 2 ] || { cat "$TMP/err"; return 1; }
}
check "one dies while workers meet, and the others end at once" dies_while_meeting
check "one dies while workers meet over tcp" dies_while_meeting --transport tcp

returns_while_meeting() {
    launch --workers 3 --join-limit 1000 --restarts 1 -- sh -c '[ $LOCKSTEP_RANK != 1 ] || [ "${LOCKSTEP_RESTART:-}" ] || kill -9 $$; exec "$0" devices' \
        "$LOCKSTEP" >"$TMP/out" 2>"$TMP/err" || { cat "$TMP/err"; return 1; }
}
check "one dies while workers meet, and they meet when it has returned" returns_while_meeting

# Worker 0 dies before the workers have met: started again, it is the chief like any other.
chief_returns() {
    fail_with 7 2 '[ $LOCKSTEP_RANK != 0 ] || [ "${LOCKSTEP_RESTART:-}" ] || kill -9 $$
        "$LOCKSTEP" devices >/dev/null || exit 1
        [ $LOCKSTEP_RANK = 0 ] || { echo here; exit 0; }
        await "here" "$OUT"; sleep 0.5; echo chief; echo failing >&2; exit 7' --restarts 1 --join-limit 1000 "$@" || return 1
    wrote '[1] here' chief && grep -q '^failing$' "$TMP/err" || { cat "$TMP/err"; return 1; }
    [ "$(tail -n 1 "$TMP/err")" = 'lockstep launch: the job failed: the first worker to fail was 0, which ended with status 7' ]
}
check "a chief that was started again before the workers met decides the status" chief_returns
check "the same over tcp" chief_returns --transport tcp

# A job that may begin with fewer workers does, with any worker lost, and has the bits of one process.
begins_with_fewer() {
    small_model 4 >"$TMP/model.json"
    set -- "$LOCKSTEP" train "$TMP/model.json" --data synthetic:12x12x1,classes=4,count=40 --batch-size 20 --epochs 1 --verbose 2
    timeout 60 "$@" | grep sha256 >"$TMP/one" || return 1
    for dead in 0 2; do
        DEAD=$dead launch --workers 3 --join-limit 1000 --elastic 2:3 -- sh -c '[ $LOCKSTEP_RANK != $DEAD ] || kill -9 $$; exec "$@"' sh "$@" \
            >"$TMP/out" 2>"$TMP/err" || { cat "$TMP/err"; return 1; }
        grep sha256 "$TMP/out" | cmp - "$TMP/one" || return 1
    done
    fails_with 137 launch --workers 3 --join-limit 1000 --elastic 3:3 -- sh -c '[ $LOCKSTEP_RANK != 1 ] || kill -9 $$; exec "$@"' sh "$@"
}
check "one worker dies while they meet, and the others begin if they are enough" begins_with_fewer

meets_nobody() {
    fails_with 1 env LOCKSTEP_RANK=1 LOCKSTEP_WORLD_SIZE=3 LOCKSTEP_RENDEZVOUS="$MARK" LOCKSTEP_JOIN_LIMIT=0.3 \
        timeout 60 "$LOCKSTEP" devices || return 1
    grep -q 'workers 0, 2 of 3 did not connect within 0.3 s' "$TMP/err"
}
check "a worker that is alone names the missing workers" meets_nobody

all_meet() { launch --workers 3 -- "$LOCKSTEP" devices && grep -qv '^\[' "$TMP/check.out"; }
check "contexts of the command meet" all_meet

# Other tests have files and sockets of theirs meanwhile: a folder for this job alone, and its name.
nothing_in_tmp() {
    mkdir -p "$TMP/own" || return 1
    TMPDIR="$TMP/own" XDG_RUNTIME_DIR="$TMP/own" launch --workers 2 -- sh -c 'echo "job $LOCKSTEP_RENDEZVOUS"; exec "$0" devices' "$LOCKSTEP" >"$TMP/out" || return 1
    job=$(sed -n 's/^job //p' "$TMP/out")
    [ -n "$job" ] && [ -z "$(ls -A "$TMP/own")" ] && ! ls -a /tmp /dev/shm | grep -q -F -e "$job" && ! grep -q -F -e "$job" -e "$TMP/own" /proc/net/unix
}
check "nothing is left behind" nothing_in_tmp
# Worker 1 is killed when its socket exists. Its shell waits until it is dead: the launcher knows only the shell, and a
# socket of a process that still ends is not removed.
killed_leave_nothing() {
    mkdir -p "$TMP/own" || return 1
    TMPDIR="$TMP/own" XDG_RUNTIME_DIR="$TMP/own" fail_with 137 2 '[ $LOCKSTEP_RANK = 1 ] || { await "worker 1"; exit 1; }
        "$LOCKSTEP" devices & until [ -e "$XDG_RUNTIME_DIR"/lockstep/*-1 ]; do sleep 0.02; done; kill -9 $!; wait $!; kill -9 $$' || return 1
    [ -z "$(ls -A "$TMP/own")" ] || { ls -lR "$TMP/own"; return 1; }
}
check "workers that are killed leave nothing behind" killed_leave_nothing
finish
