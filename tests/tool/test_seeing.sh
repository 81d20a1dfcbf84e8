#!/bin/sh
# What is seen of a job of several workers while it runs: who is slow, what `top` shows, and the rows of `--trace`.
. "$(dirname "$0")/../support/lib.sh"
. "$ROOT/tests/support/command.sh"

export LOCKSTEP_GRACE=5
DATA=synthetic:28x28x1,classes=10,count=2400

# Worker 2 of 3 is stopped for most of the time: 0.3 s, then it runs for 0.02 s.
held_up='[ $LOCKSTEP_RANK != 2 ] || {
    while kill -STOP $$ 2>/dev/null; do sleep 0.3; kill -CONT $$; sleep 0.02; done; } &
    exec "$0" "$@"'
slow() {
    cd "$TMP" || return 1
    timeout -k 5 100 "$LOCKSTEP" launch --workers 3 --silence-limit 10 -- sh -c "$held_up" "$LOCKSTEP" train mnist-cnn \
        --data $DATA --epochs 4 --batch-size 600 --lanes 6 --log log --verbose 0 >out 2>err || { cat out err; return 1; }
    grep -E 'worker 2 holds up the others: it took [0-9.]+ times the median of 3 workers in epoch [0-9]+ ' err >named || { cat log err; return 1; }
    [ "$(wc -l <named)" = "$(sort -u named | wc -l)" ] && [ "$(wc -l <named)" -le 4 ] || { cat err; return 1; }
    sed -n 's/.*"event":"epoch".*"workers":\[{"rank":0,"lanes":2,"seconds":\([0-9.e-]*\)},{"rank":1,"lanes":2,"seconds":\([0-9.e-]*\)},{"rank":2,"lanes":2,"seconds":\([0-9.e-]*\)}\].*/\1 \2 \3/p' log |
        awk '{ a += $1; b += $2; c += $3; n++ } END { exit !(n == 4 && c > 2 * a && c > 2 * b) }' || { cat log; return 1; }
}
# with_time NAME FUNCTION: a worker that computes for a 16th of the time, and slowly, is too slow for a test
with_time() {
    if [ -n "$SANITIZE" ]; then skip "$1" "it takes too long under sanitizers"; else check "$1" "$2"; fi
}
with_time "a slow worker is named, and the log has its seconds" slow

# The same worker, with lanes by speed: after 10 steps it gets fewer than the 4 of an even split, and the bits are those of one process.
split() {
    cd "$TMP" || return 1
    job="train mnist-cnn --data $DATA --epochs 12 --batch-size 1200 --lanes 12 --verbose 0"
    timeout -k 5 100 "$LOCKSTEP" launch --workers 3 --silence-limit 10 -- sh -c "$held_up" "$LOCKSTEP" $job --work-split auto --log split \
        --log-level info >out 2>err || { cat out err; return 1; }
    timeout 60 "$LOCKSTEP" $job >alone || return 1
    grep weights alone >wanted && grep weights out | cmp - wanted || return 1
    grep -q 'new lanes by worker: 0: [0-9]*, 1: [0-9]*, 2: [0-3]$' out err || { cat out err; return 1; }
    sed -n 's/.*"event":"epoch".*"rank":0,"lanes":\([0-9]*\),.*"rank":1,"lanes":\([0-9]*\),.*"rank":2,"lanes":\([0-9]*\),.*/\1 \2 \3/p' split >lanes
    awk '{ n++; wrong += $1 + $2 + $3 != 12; if (n > 5) slow += $3 } END { exit !(n == 12 && wrong == 0 && slow < 7 * 4) }' lanes || { cat lanes; return 1; }
}
with_time "--work-split auto gives a slow worker fewer lanes, and no other bits" split

# Lanes that are computed twice change no bit.
audited() {
    cd "$TMP" || return 1
    job="train mnist-cnn --data $SMALL --epochs 2 --batch-size 16 --lanes 6 --verbose 0"
    timeout 60 "$LOCKSTEP" $job >alone || return 1
    timeout -k 5 60 "$LOCKSTEP" launch --workers 3 -- "$LOCKSTEP" $job --audit 1 >out || return 1
    grep weights alone >wanted && grep weights out | cmp - wanted
}
check "--audit changes no bit" audited

# ---- lockstep top ----

export XDG_RUNTIME_DIR=$TMP/run
mkdir -m 700 "$TMP/run"
top() { timeout 20 "$LOCKSTEP" top "$@" </dev/null | cat; }

# until_shown PATTERN FILE...: what top prints matches, within 60 seconds; it is in $TMP/top
until_shown() {
    pattern=$1
    shift
    for i in $(seq 600); do
        top "$@" >"$TMP/top" 2>&1
        ! grep -Eq "$pattern" "$TMP/top" || return 0
        sleep 0.1
    done
    echo "no '$pattern' in" && cat "$TMP/top" && return 1
}
# begin ARGUMENTS...: a job of 3 workers that does not end by itself, worker R has the process id in pid.R
begin() {
    cd "$TMP" || return 1
    timeout -k 5 100 "$LOCKSTEP" launch --workers 3 --silence-limit 60 -- sh -c 'echo $$ >pid.$LOCKSTEP_RANK; exec "$0" "$@"' \
        "$LOCKSTEP" train mnist-cnn --data $DATA --epochs 100000 --batch-size 240 --lanes 6 --verbose 0 "$@" >out 2>err &
    launched=$!
}

# with_job FUNCTION ARGUMENTS...: while such a job runs, which ends with it
with_job() {
    function=$1 result=0
    shift
    begin "$@" || return 1
    $function || result=$?
    kill -9 $(cat pid.[012]) 2>/dev/null
    wait $launched
    return $result
}

# The same by the folder of this user and by a file: workers, lanes, and after a stop the worker that holds up the others.
shows() {
    until_shown '^mnist-cnn: process [0-9]+ on .*, training, epoch [0-9]+/100000, step [0-9]+/10, [0-9.]+ m?s per step, loss' || return 1
    grep -q "process $(cat pid.0) on" top && until_shown '^  3 of 3 workers' && [ "$(grep -Ec '^ +[012] +2 +[0-9.]+ ms +[0-9.]+' top)" = 3 ] ||
        { cat top; return 1; }
    kill -STOP "$(cat pid.2)"
    until_shown '^  3 of 3 workers, waiting for 2; no step for [0-9]+ s' && grep -Eq '^ +2 .*<$' top || return 1
    kill -CONT "$(cat pid.2)"
    until_shown '^  3 of 3 workers(, waiting for [0-9])?$' || return 1
    kill -TERM "$(cat pid.0)"
    wait $launched
    [ "$(top)" = "no training job of this user is running on this machine" ] && [ -z "$(ls run)" ] || { ls run; return 1; }
}
check "top shows workers, step, and which worker holds up the others" with_job shows

by_file() {
    until_shown '^  log .*/steps$' here.json || return 1
    [ "$(top)" = "no training job of this user is running on this machine" ] || return 1
    kill -9 "$(cat pid.0)" # the successor writes the same file
    until_shown "process $(cat pid.1) on" here.json && until_shown '^  2 of 3 workers' here.json || return 1
    kill -TERM "$(cat pid.1)"
    wait $launched
    [ ! -e here.json ] || { ls; return 1; }
}
check "a file of its own, which the chief's successor continues with" with_job by_file --status here.json --log steps

# Leftovers of a killed job are not shown, and are removed; other files are ignored.
killed() {
    cd "$TMP" || return 1
    timeout -k 5 60 "$LOCKSTEP" train mnist-cnn --data $DATA --epochs 100000 --verbose 0 >out 2>err &
    wait_for_job=$!
    until_shown '^mnist-cnn: process .* training' || return 1
    ! grep -q workers top || return 1
    kill -9 $(children $wait_for_job)
    wait $wait_for_job
    [ "$(ls run/lockstep | wc -l)" = 1 ] && [ "$(top)" = "no training job of this user is running on this machine" ] && [ ! -e run/lockstep ] || return 1
    mkdir -m 700 run/lockstep && echo '{"pid":1,' >run/lockstep/$$.json && [ "$(top)" = "no training job of this user is running on this machine" ] || return 1
    rm -r run/lockstep
    refuses 1 "nowhere.json" top nowhere.json && echo '{"pid":"x"}' >odd.json && refuses 1 "odd.json.pid: expected an integer" top odd.json
}
check "leftovers of a killed job are removed" killed

# The next training does it, too; the folder goes with its own file.
killed_before() {
    cd "$TMP" && mkdir -m 700 run/lockstep || return 1
    sh -c 'echo $$' >dead && echo '{}' >"run/lockstep/$(cat dead).json" && echo '{}' >run/lockstep/$$.json || return 1
    timeout -k 5 60 "$LOCKSTEP" train mnist-cnn --data $DATA --epochs 1 --verbose 0 >out 2>err || return 1
    [ "$(ls run/lockstep)" = $$.json ] || { ls run/lockstep; return 1; }
    rm -r run/lockstep
}
check "the next training removes leftovers of a killed job" killed_before

nowhere() {
    cd "$TMP" && ends 0 "$LOCKSTEP" train mnist-cnn --data $SMALL --status none --verbose 0 || return 1
    ends 0 "$LOCKSTEP" train mnist-cnn --data $SMALL --status "$TMP/no/folder" --verbose 0 && grep -q 'cannot write the status file' "$TMP/err" &&
        [ -z "$(ls run)" ]
}
check "a job without a status file, or that cannot write it, still trains" nowhere

# On a terminal: drawn on a screen of its own until q is typed; the bar of a cluster has the number of workers.
on_terminal() {
    cd "$TMP" || return 1
    { sleep 1; printf q; } | TERM=xterm timeout 20 script -qec "$LOCKSTEP top" /dev/null >drawn || return 1
    grep -q 'no training job of this user' drawn && grep -q '\[?1049h' drawn && grep -q '\[?1049l' drawn || { cat drawn; return 1; }
    TERM=xterm timeout 60 script -qec "stty cols 150; $LOCKSTEP launch --workers 3 -- $LOCKSTEP train mnist-cnn --data $DATA \
        --epochs 2 --batch-size 24" /dev/null >drawn </dev/null || { cat drawn; return 1; }
    tr '\r' '\n' <drawn | grep -Eq 'step - accuracy: [0-9.]+ - loss: [0-9.]+ - 3 workers(, waiting for [012])?' || { cat drawn; return 1; }
}
if command -v script >/dev/null; then
    check "on a terminal" on_terminal
else
    skip "on a terminal" "there is no script(1)"
fi

# ---- --trace ----

# traced: the file has a process for each worker, steps 2 to 7 of each; all workers are in a step when it is committed, so
# the spans of one step meet, as well as clocks are known
cat >"$TMP/traced.py" <<'END'
import json, sys
file = json.load(open(sys.argv[1]))
names = {e["pid"]: e["args"]["name"] for e in file["traceEvents"] if e["ph"] == "M" and e["name"] == "process_name"}
assert sorted(names.values()) == ["worker 0", "worker 1", "worker 2"], names
steps = {}
for e in file["traceEvents"]:
    if e.get("cat") == "step":
        steps.setdefault(e["args"]["step"], {})[names[e["pid"]]] = (e["ts"], e["ts"] + e["dur"])
assert sorted(steps) == [2, 3, 4, 5, 6, 7], sorted(steps)
bound = float(file["otherData"]["clocks"].split("within ")[1].split(" us")[0])
for step, spans in steps.items():
    assert len(spans) == 3, (step, spans)
    assert max(s for s, _ in spans.values()) <= min(e for _, e in spans.values()) + 2 * bound, (step, spans, bound)
for name in names.values():
    pid = [p for p in names if names[p] == name][0]
    assert any(e.get("cat") == "task" and e["pid"] == pid for e in file["traceEvents"]), name
END
# traced WRAPPER...: of worker 1, the others run as they are
traced() {
    cd "$TMP" || return 1
    timeout -k 5 60 "$LOCKSTEP" launch --workers 3 -- sh -c "[ \$LOCKSTEP_RANK != 1 ] && exec \"\$@\" || exec $* \"\$@\"" sh "$LOCKSTEP" train mnist-cnn \
        --data $SMALL --batch-size 10 --epochs 1 --lanes 6 --trace t.json --trace-steps 2-7 --verbose 0 >out 2>err || { cat out err; return 1; }
    python3 traced.py t.json || { cat err; return 1; }
}
if command -v python3 >/dev/null; then
    check "a timeline has a process for each worker" traced env
    if unshare --time --monotonic 1000 --fork true 2>/dev/null; then
        check "a worker whose clock is 1,000 s ahead is on the same timeline" traced unshare --time --monotonic 1000 --fork --kill-child
    else
        skip "a worker with another clock" "time namespaces are not possible here"
    fi
else
    skip "timelines of workers" "there is no python3"
fi

finish
