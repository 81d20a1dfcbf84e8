#!/bin/sh
# What is seen of a job of several workers while it runs: who is slow.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/command.sh"

export LOCKSTEP_GRACE=5
DATA=synthetic:28x28x1,classes=10,count=2400

# Worker 2 of 3 is stopped for most of the time: 0.15 s, then it runs for 0.03 s.
held_up='[ $LOCKSTEP_RANK != 2 ] || {
    while kill -STOP $$ 2>/dev/null; do sleep 0.15; kill -CONT $$; sleep 0.03; done; } &
    exec "$0" "$@"'
slow() {
    cd "$TMP" || return 1
    timeout -k 5 100 "$LOCKSTEP" launch --workers 3 --silence-limit 10 -- sh -c "$held_up" "$LOCKSTEP" train mnist-cnn \
        --data $DATA --epochs 4 --batch-size 240 --lanes 6 --log log --verbose 0 >out 2>err || { cat out err; return 1; }
    grep -E 'worker 2: [0-9.]+ times the median of 3 workers in epoch [0-9]+, ' err >named || { cat log err; return 1; }
    ! grep -E 'worker [01]: [0-9.]+ times' err || return 1
    [ "$(wc -l <named)" = "$(sort -u named | wc -l)" ] && [ "$(wc -l <named)" -le 4 ] || { cat err; return 1; }
    sed -n 's/.*"event":"epoch".*"workers":\[{"rank":0,"lanes":2,"seconds":\([0-9.e-]*\)},{"rank":1,"lanes":2,"seconds":\([0-9.e-]*\)},{"rank":2,"lanes":2,"seconds":\([0-9.e-]*\)}\].*/\1 \2 \3/p' log |
        awk '{ a += $1; b += $2; c += $3; n++ } END { exit !(n == 4 && c > 2 * a && c > 2 * b) }' || { cat log; return 1; }
}
check "a slow worker is named, and the log has its seconds" slow

finish
