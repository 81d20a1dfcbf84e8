#!/bin/bash
# A run that saves every few steps is killed (kill -9) at random moments, again and again: each time the next one finds a
# whole checkpoint, or none yet, goes on from it, and ends with the weights of an undisturbed run. `make test` does so
# for LS_KILL_SECONDS; `make kills` 100 times (LS_KILLS).
. "$(dirname "$0")/../support/lib.sh"

LOCKSTEP=$ROOT/$LS_BUILD/lockstep
KILLS=${LS_KILLS:-0} # 0: as many as fit into the time
SECONDS_LEFT=${LS_KILL_SECONDS:-25}
RANDOM=${LS_KILL_SEED:-$$}
seed=$RANDOM
RANDOM=$seed

small_model 4 >"$TMP/model.json"

arguments=(train "$TMP/model.json" --data synthetic:12x12x1,classes=4,count=300 --batch-size 20 --epochs 12 --verbose 2
    --checkpoint "$TMP/ck" --save-every 3 --keep 2)
train() { timeout -s KILL 60 "$LOCKSTEP" "${arguments[@]}" "$@"; }
weights() { sed -n 's/^weights sha256: //p' "$1"; }
now() { date +%s%N; }

start=$(now)
train >"$TMP/whole" 2>&1
took=$((($(now) - start) / 1000000)) # ms
expected=$(weights "$TMP/whole")
rm -rf "$TMP/ck"

# The first checkpoint is there, or the run has ended.
begun() {
    until ls -d "$TMP"/ck/step-???????? >/dev/null 2>&1 || ! kill -0 "$1" 2>/dev/null; do
        sleep 0.01
    done
}

# One run is killed, at any moment of its time or of that after its first checkpoint, by turns; another goes on and ends.
# Prints what is wrong.
kill_once() {
    rm -rf "$TMP/ck"
    local after=$((RANDOM * 32768 + RANDOM))
    after=$((after % took))
    "$LOCKSTEP" "${arguments[@]}" --devices $((1 + RANDOM % 2)) >"$TMP/killed" 2>&1 &
    local pid=$!
    [ $(($1 % 2)) = 0 ] || begun $pid
    sleep "$(printf '%d.%03d' $((after / 1000)) $((after % 1000)))"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    # one that is about to be replaced by another of the same step is called .old for a moment
    newest=$(ls -d "$TMP"/ck/step-???????? "$TMP"/ck/step-????????.old 2>/dev/null | sed 's/\.old$//' | sort | tail -1)
    train --resume --devices $((1 + RANDOM % 3)) >"$TMP/resumed" 2>&1 || { echo "after $after ms: the resumed run failed"; return; }
    [ "$(weights "$TMP/resumed")" = "$expected" ] || echo "after $after ms: other weights"
    if [ -n "$newest" ]; then
        grep -q -e "^continuing from '$newest\(\.old\)\?'" -e "^nothing left to train: '$newest\(\.old\)\?' is the end of a run" "$TMP/resumed" || # or all was done
            echo "after $after ms: it did not go on from $newest"
        gone_on=$((gone_on + 1))
    fi
    grep -q 'skipping the checkpoint' "$TMP/resumed" && echo "after $after ms: a checkpoint was not whole"
    find "$TMP/ck" -name '*.tmp' -o -name '*.old' -o -name '*.damaged' | grep -q . && echo "after $after ms: leftovers"
}

kill_all() {
    local n=0 bad=0 wrong end=$(($(now) / 1000000000 + SECONDS_LEFT))
    gone_on=0
    while [ $n -lt "$KILLS" ] || { [ "$KILLS" = 0 ] && [ $(($(now) / 1000000000)) -lt $end ]; }; do
        n=$((n + 1))
        kill_once $n >"$TMP/wrong"
        [ -s "$TMP/wrong" ] || continue
        bad=$((bad + 1))
        cat "$TMP/wrong"
        tail -n 3 "$TMP/killed" "$TMP/resumed"
    done
    echo "$n kills, $gone_on times there was a checkpoint to go on from, $bad wrong (LS_KILL_SEED=$seed)"
    [ "${LS_KILLS:-0}" = 0 ] || echo "$n kills, $gone_on checkpoints gone on from" >&3
    [ $bad = 0 ] && [ $n -ge 5 ] && [ $gone_on -ge $((n / 4)) ]
}

exec 3>&1
check "the run that is not disturbed ends with weights" test -n "$expected"
check "runs that are killed at random moments continue, and end with the same weights" kill_all
finish
