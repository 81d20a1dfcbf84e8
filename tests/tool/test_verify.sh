#!/bin/sh
# lockstep verify: models of every kind have the same bits under every strategy and number of devices; its report on a
# run that differs, and its exit status. `make test` runs a sample; `make verify` (LS_VERIFY=all) runs it all.
. "$(dirname "$0")/../support/lib.sh"
. "$ROOT/tests/support/command.sh"

KERAS=tests/reference/keras

# ---- wrong use ----

check "unknown strategy, the nearest is named" \
    refuses 2 "unknown strategy 'piplene'; did you mean pipeline" verify mlp --strategies mirrored,piplene
check "no strategy" refuses 2 "unknown strategy ''" verify mlp --strategies ,
check "an invalid count" refuses 2 '--device-counts 1,x: expected up to 16 numbers' verify mlp --device-counts 1,x
check "no devices" refuses 2 '--device-counts 0: expected' verify mlp --device-counts 0
check "no lanes" refuses 2 '--lanes 4,: expected' verify mlp --lanes 4,
check "missing data" ends 1 "$LOCKSTEP" verify mlp --data no/such.npz --device-counts 1

# ---- what it prints ----

a_line_each() {
    prints '^18 passed, 0 failed, 2 skipped$' verify linear --device-counts 1,4 --lanes 3 &&
        [ "$(grep -c -E '^[a-z0-9/-]+ +[14] +3  [0-9a-f]{64} +[0-9.]+  PASS$' "$TMP/out")" = 18 ] &&
        grep -q -E '^pipeline/2-replicas +1 +3  skipped: 2 replicas .* 1 device$' "$TMP/out" &&
        [ "$(grep PASS "$TMP/out" | awk '{ print $4 }' | sort -u | wc -l)" = 1 ]
}
check "a line for each run, skipped ones with their reason" a_line_each

other_lanes() {
    prints '^4 passed' verify mlp --strategies one-device --device-counts 1,2 --lanes 3,4 &&
        [ "$(grep PASS "$TMP/out" | awk '{ print $4 }' | sort -u | wc -l)" = 2 ]
}
check "other lanes are another job" other_lanes

rates_of_layers() {
    prints '^17 passed, 0 failed, 3 skipped$' verify mlp --device-counts 1,2 --lanes 4 --steps 2 --layer-rate 'dense=0.25' &&
        [ "$(grep PASS "$TMP/out" | awk '{ print $4 }' | sort -u | tee "$TMP/rates" | wc -l)" = 1 ] &&
        prints '^1 passed' verify mlp --strategies one-device --device-counts 1 --lanes 4 --steps 2 &&
        ! grep -q -f "$TMP/rates" "$TMP/out"
}
check "rates of layers have one hash, another than without them" rates_of_layers

same_as_train() {
    prints ' 1 ' verify mlp --strategies one-device --device-counts 1 --lanes 4 --steps 2 --data $SMALL --batch-size 20 &&
        grep PASS "$TMP/out" | awk '{ print $4 }' >"$TMP/verified" &&
        prints '' train mlp --data $SMALL --batch-size 20 --max-steps 2 --lanes 4 --devices 3 --log "$TMP/log" --log-hash --verbose 0 &&
        grep -q "$(cat "$TMP/verified")" "$TMP/log"
}
check "the hashes are those of train --log-hash" same_as_train

# A bit of one weight is changed in the second run, after the second step of three.
finds() {
    ends 1 "$LOCKSTEP" verify mnist-cnn --strategies mirrored --device-counts 1,2 --lanes 4 --break-run 2 || return 1
    cat "$TMP/out"
    [ "$(grep -c FAIL "$TMP/out")" = 1 ] &&
        grep -q -x -E '  step 2, conv2d/kernel, element \(1,1,0,8\): -?[0-9.e-]+ \(0x[0-9a-f]{8}\) instead of -?[0-9.e-]+ \(0x[0-9a-f]{8}\)' "$TMP/out" &&
        grep -q -x 'lockstep: 1 of 7 runs differ or failed' "$TMP/err"
}
check "a run that differs: step, weight, element and bits" finds
finds_first() {
    ends 1 "$LOCKSTEP" verify mlp --strategies one-device,pipeline --device-counts 2 --lanes 4 --steps 5 --break-run 1 || return 1
    [ "$(grep -c FAIL "$TMP/out")" = 2 ] && [ "$(grep -c '^  step 3, dense/kernel, element' "$TMP/out")" = 2 ]
}
check "all that differ from the first" finds_first

# ---- workers ----

check "no workers" refuses 2 '--workers 0: expected up to 16 numbers from 1 to 256' verify mlp --workers 0
by_workers() {
    prints '^16 passed, 0 failed, 4 skipped$' verify mlp --strategies one-device,mirrored --device-counts 1 --lanes 4 --workers 2,3,5 \
        --batch-size 33 --steps 2 || return 1
    [ "$(grep PASS "$TMP/out" | awk '{ print $5 }' | sort -u | wc -l)" = 1 ]
}
by_workers_finds() {
    ends 1 "$LOCKSTEP" verify mlp --strategies one-device --device-counts 1 --lanes 4 --workers 3 --break-run 2 || return 1
    [ "$(grep -c FAIL "$TMP/out")" = 1 ] && [ "$(grep -c '^  step 2, dense/kernel, element' "$TMP/out")" = 1 ] &&
        grep -q -x 'lockstep: 1 of 2 runs differ or failed' "$TMP/err"
}
check "workers have the bits of one process" by_workers
check "a run of workers that differs: step, weight and element, reported once" by_workers_finds

# ---- models ----

# The last batch has fewer samples than the others.
verifies() {
    limit=$1
    shift
    status=0
    timeout -s KILL "$limit" "$LOCKSTEP" verify "$@" >"$TMP/out" 2>"$TMP/err" </dev/null || status=$?
    [ $status = 0 ] && grep -q -E '^[0-9]+ passed, 0 failed' "$TMP/out" && [ ! -s "$TMP/err" ] ||
        { echo "status $status"; grep -v PASS "$TMP/out"; cat "$TMP/err"; return 1; }
}

if [ "${LS_VERIFY:-}" = all ]; then
    FLAGS=
    LIMIT=3000
elif [ -n "$SANITIZE" ]; then
    FLAGS='--device-counts 3 --lanes 4 --steps 2'
    LIMIT=300
else
    FLAGS='--device-counts 1,2,3 --lanes 4 --steps 2'
    LIMIT=120
fi
for batch in 32 33; do
    for model in mnist-cnn mlp $KERAS/cnn/model.json $KERAS/two_inputs/model.json $KERAS/residual/model.json \
        $KERAS/dropout/model.json $KERAS/shared/model.json; do
        check "$model, batches of $batch" verifies $LIMIT $model --batch-size $batch $FLAGS
    done
    check "$KERAS/residual/model.json by lane, batches of $batch" \
        verifies $LIMIT $KERAS/residual/model.json --batch-size $batch $FLAGS --norm-statistics lane
done
RESNET="resnet18 --input 32x32x3 --classes 10"
if [ "${LS_VERIFY:-}" = all ]; then
    for batch in 32 33; do
        check "mnist-cnn-wide, batches of $batch" verifies $LIMIT mnist-cnn-wide --batch-size $batch
        for statistics in batch lane; do
            check "$RESNET, batches of $batch, statistics of the $statistics" \
                verifies $LIMIT $RESNET --batch-size $batch --norm-statistics $statistics
        done
    done
elif [ -z "$SANITIZE" ]; then
    check "mnist-cnn-wide" verifies $LIMIT mnist-cnn-wide --batch-size 33 --device-counts 3 --lanes 4 --steps 2
    check "$RESNET" verifies $LIMIT $RESNET --batch-size 9 --device-counts 2 --lanes 3 --steps 2 --strategies one-device,data-parallel,pipeline
fi
finish
