#!/bin/sh
# lockstep train --trace: the file, the lines about devices, and what is refused.
. "$(dirname "$0")/../support/lib.sh"
. "$ROOT/tests/support/command.sh"

TRAIN="train mlp --data $SMALL --batch-size 10 --epochs 2 --devices 2"

check "a timeline is written" prints '^weights sha256: ' $TRAIN --trace "$TMP/trace.json"
check "it has the fields that a viewer needs" grep -q '^"traceEvents":\[$' "$TMP/trace.json"
check "steps are on it" grep -q '"name":"step 14","cat":"step","ph":"X"' "$TMP/trace.json"
check "tasks are on it" grep -E -q '"name":"dense[^"]*, lane [0-9]+","cat":"task"' "$TMP/trace.json"
check "each device has a row" grep -q '"name":"thread_name","args":{"name":"cpu:1 thread 0"}' "$TMP/trace.json"
check "a line a device" prints '^cpu:1: busy [0-9.]+ s \([0-9.]+ %\), joins and updates ' $TRAIN
check "silent mode prints nothing" sh -c "\"$LOCKSTEP\" $TRAIN --verbose 0 | grep -c busy | grep -q '^0$'"

some_steps() {
    prints '^weights sha256: ' $TRAIN --trace "$TMP/some.json" --trace-steps "$1" || return 1
    grep -o '"name":"step [0-9]*"' "$TMP/some.json" | tr -dc '0-9\n' | sort -n | tr '\n' ' ' >"$TMP/steps"
    [ "$(cat "$TMP/steps")" = "$2" ] || { cat "$TMP/steps"; return 1; }
}
check "--trace-steps A-B" some_steps 3-5 "3 4 5 "
check "--trace-steps A" some_steps 9 "9 "
check "--trace-steps A-" some_steps 12- "12 13 14 "

for steps in x 0 5-3 3-4x 1-2-3 -3 ' '; do
    check "--trace-steps '$steps' is refused" refuses 2 '--trace-steps .*: expected a step' train mlp --data $SMALL --trace t --trace-steps "$steps"
done
check "--trace-steps alone" refuses 2 '--trace-steps needs --trace' train mlp --data $SMALL --trace-steps 3
check "a missing folder" refuses 1 '--trace: cannot write' $TRAIN --trace "$TMP/none/trace.json"
check "the file of --save" refuses 2 'name the same file' $TRAIN --trace "$TMP/a" --save "$TMP/a"

finish
