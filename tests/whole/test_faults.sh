#!/bin/bash
# One call fails: the n-th allocation, mapping, thread, open, write, sync or rename of train, evaluate and predict.
# Then the command gives the right answer, or one line of error; it does not crash, hang or leak; an old
# file is there as it was, or a whole new one in its place. fuzz/faults.c makes the calls fail. `make test` runs a sample of
# the points, `make faults` (LS_FAULTS=all) every one.
. "$(dirname "$0")/../support/lib.sh"

LOCKSTEP=$ROOT/$LS_BUILD/lockstep
SHIM=$ROOT/$LS_BUILD/fuzz/libfaults.so
DATA=synthetic:12x12x1,classes=4,count=70
POINTS=${LS_FAULTS:-14} # of each kind and command
MOST=1500               # of all, evenly spread
LIMIT=20
if [ -n "$SANITIZE" ]; then
    skip "faults" "sanitizers have an allocator of their own"
    finish
fi

small_model 4 >"$TMP/model.json"

echo old >"$TMP/old"
train() {
    "$@" train "$TMP/model.json" --data $DATA --devices 2 --max-steps 2 --verbose 0 --save "$TMP/w/out" --log "$TMP/w/log" \
        --csv "$TMP/w/csv" --tensorboard "$TMP/w/board" --save-epochs "$TMP/w/{epoch}" \
        --early-stopping 2,restore_best_weights --reduce-on-plateau 2 \
        --checkpoint "$TMP/w/ck" --save-every 1 --keep 1
}
evaluate() {
    "$@" evaluate "$TMP/model.json" --data $DATA --weights "$TMP/right.train"
}
predict() {
    "$@" predict "$TMP/model.json" --data $DATA --weights "$TMP/right.train" --output "$TMP/w/out.npy"
}

# run FAULT COMMAND: in a fresh folder with an old output file; status in $status, the shim's report in $TMP/report.
run() {
    rm -rf "$TMP/w" "$TMP/report"
    mkdir "$TMP/w"
    for old in out out.npy; do
        cp "$TMP/old" "$TMP/w/$old"
    done
    status=0
    LS_FAULT=$1 LS_FAULT_REPORT=$TMP/report $2 timeout -s KILL $LIMIT env LD_PRELOAD="$SHIM" "$LOCKSTEP" \
        >"$TMP/out" 2>"$TMP/err" </dev/null || status=$?
}

# What the report says of a word.
told() {
    sed -n "s/.*\b$1 \(-\?[0-9]*\).*/\1/p" "$TMP/report"
}

# The output of a command: the file it writes, or what it prints.
output_of() {
    case $1 in
    train) echo "$TMP/w/out" ;;
    predict) echo "$TMP/w/out.npy" ;;
    *) echo "$TMP/out" ;;
    esac
}

# Weights of an interrupted training: not the whole, but good ones.
loads() {
    "$LOCKSTEP" evaluate "$TMP/model.json" --data $DATA --weights "$1" >/dev/null 2>&1
}

# judge FAULT COMMAND: prints what is wrong.
judge() {
    local output
    output=$(output_of "$2")
    [ $status != 137 ] || { echo "timed out after $LIMIT seconds"; return; }
    [ $status -lt 128 ] || { echo "crashed (signal $((status - 128)))"; return; }
    [ -s "$TMP/report" ] || { echo "ended without coming back from main, status $status"; return; }
    if [ $status = 0 ]; then
        cmp -s "$output" "$TMP/right.$2" || echo "a wrong answer and status 0"
    else
        [ "$2" = evaluate ] || cmp -s "$output" "$TMP/old" || cmp -s "$output" "$TMP/right.$2" ||
            { [ "$2" = train ] && loads "$output"; } || echo "the old file is gone, and there is no good new one"
        case $1 in
        write*) ;; # the message itself may be what was not written
        *) grep -q '^lockstep: ' "$TMP/err" || echo "status $status without a message" ;;
        esac
    fi
    find "$TMP/w" -name '*.tmp' | grep -q . && echo "a temporary file is left: $(find "$TMP/w" -name '*.tmp')"
    [ "$(told blocks)" = 0 ] || echo "$(told blocks) blocks of memory are not given back"
    [ "$(told descriptors)" = 0 ] || echo "$(told descriptors) descriptors are not closed"
}

# points COMMAND KIND COUNT STAYS: fails each of them, or POINTS of them evenly spread.
points() {
    local n step wrong bad=0 most=$POINTS
    [ "$POINTS" != all ] || most=$MOST
    step=$((($3 + most - 1) / most))
    for ((n = 1; n <= $3; n += step)); do
        run "$2:$n$4" "$1"
        wrong=$(judge "$2" "$1")
        [ -z "$wrong" ] && continue
        bad=$((bad + 1))
        [ $bad -gt 10 ] || echo "$2:$n$4 (status $status): $wrong: $(head -c 200 "$TMP/err")"
    done
    [ $bad = 0 ] || { echo "$bad points in all"; return 1; }
}

for command in train evaluate predict; do
    run none $command
    if [ $status != 0 ] || [ "$(told blocks)" != 0 ]; then
        not_ok "$command without a fault" "status $status, $(told blocks) blocks left: $(cat "$TMP/err")"
        continue
    fi
    cp "$(output_of $command)" "$TMP/right.$command"
    read -r _ malloc _ mmap _ thread _ open _ write _ fsync _ rename _ <"$TMP/report"
    # A file is synced before it takes the old one's place, and then its folder.
    [ $command = evaluate ] || check "$command: the file and its folder are synced" test "$fsync" -ge 2
    for kind in malloc mmap thread open write fsync rename; do
        [ "${!kind}" -gt 0 ] || continue
        check "$command: one $kind of ${!kind} fails" points $command $kind "${!kind}" ""
        check "$command: every $kind from one of ${!kind} on fails" points $command $kind "${!kind}" +
    done
done
finish
