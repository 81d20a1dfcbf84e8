#!/bin/bash
# Data that only one worker can read: it gives batches to all, with the bits of one process; any other worker may be lost;
# when it is lost itself, training ends with a checkpoint, from which a worker with the data continues.
. "$(dirname "$0")/../support/lib.sh"

LOCKSTEP=$ROOT/$LS_BUILD/lockstep
DATA=synthetic:12x12x1,classes=4,count=400
export LOCKSTEP_GRACE=5
small_model 4 >"$TMP/model.json"
arguments=(--batch-size 30 --lanes 6 --epochs 12 --verbose 0)

# apart HAS WORKERS COMMAND ARGUMENTS...: worker HAS alone is given the data
apart() {
    local has=$1 workers=$2 command=$3
    shift 3
    timeout -k 5 60 "$LOCKSTEP" launch --workers $workers -- sh -c 'echo $$ >pid.new.$LOCKSTEP_RANK && mv pid.new.$LOCKSTEP_RANK pid.$LOCKSTEP_RANK
        [ $LOCKSTEP_RANK = $1 ] && data=$2 || data=/nowhere.npz
        program=$3 command=$4 model=$5 && has=$1 && shift 5
        exec "$program" $command "$model" --data $data --data-worker $has "$@"' - \
        $has $DATA "$LOCKSTEP" $command "$TMP/model.json" "$@"
}

mkdir "$TMP/one" && cd "$TMP/one"
timeout 60 "$LOCKSTEP" train "$TMP/model.json" --data $DATA "${arguments[@]}" --log log --log-hash --save w.safetensors >out
timeout 60 "$LOCKSTEP" evaluate "$TMP/model.json" --data $DATA --weights w.safetensors >evaluated
timeout 60 "$LOCKSTEP" predict "$TMP/model.json" --data $DATA --weights w.safetensors --output made.npy >predicted

same_steps() { step_hashes "$TMP/one/log" >wanted && step_hashes $1 >found && [ -s wanted ] && cmp wanted found; }

trained() {
    mkdir "$TMP/by$1" && cd "$TMP/by$1" && apart $1 3 train "${arguments[@]}" --log log --log-hash --save w.safetensors >out 2>err || { cat err; return 1; }
    same_steps log && cmp w.safetensors "$TMP/one/w.safetensors" && diff <(grep ^test out) <(grep ^test "$TMP/one/out")
}
check "worker 0 has the data" trained 0
check "the last worker has the data" trained 2

read_only() {
    cd "$TMP/by2" && apart 1 2 evaluate --weights w.safetensors >evaluated 2>err || { cat err; return 1; }
    diff evaluated "$TMP/one/evaluated" || return 1
    apart 1 2 predict --weights w.safetensors --output made.npy >predicted 2>err || { cat err; return 1; }
    cmp made.npy "$TMP/one/made.npy"
}
check "evaluate and predict" read_only

# strikes HAS LOST: worker LOST is killed in the middle. If that was too late to be noticed, it is tried again.
strikes() {
    local try
    for try in 1 2 3 4 5; do
        mkdir "$TMP/lost$1$2-$try" && cd "$TMP/lost$1$2-$try" || return 1
        apart $1 3 train "${arguments[@]}" --log log --log-hash --checkpoint ck --save w.safetensors >out 2>err &
        launched=$!
        until_text '"step":12,' log $launched
        kill -9 "$(<pid.$2)" 2>/dev/null || true
        status=0 && wait $launched || status=$?
        ! grep -q "worker $2 of 3 is lost" err || return 0
    done
    echo "five times too late"
    return 1
}
other_lost() {
    strikes 1 2 && [ $status = 0 ] || { cat err; return 1; }
    same_steps log && cmp w.safetensors "$TMP/one/w.safetensors"
}
check "another worker is lost" other_lost
it_is_lost() {
    strikes $1 $1 && [ $status != 0 ] && grep -q "worker $1, which has the data, is lost" err || { echo "status $status"; cat err; return 1; }
    [ -e ck/last ] && grep -q '"reason":"failed"' log || { ls -R; cat log; return 1; }
    timeout 60 "$LOCKSTEP" train "$TMP/model.json" --data $DATA "${arguments[@]}" --log log --log-hash --checkpoint ck --resume \
        --save w.safetensors >out 2>err || { cat err; return 1; }
    cmp w.safetensors "$TMP/one/w.safetensors"
}
check "that worker is lost: training ends with a checkpoint, and a worker with the data continues" it_is_lost 1
check "the same, and it was the chief" it_is_lost 0

refused() {
    cd "$TMP" || return 1
    ! timeout 60 "$LOCKSTEP" train model.json --data $DATA --data-worker 1 2>err && grep -q 'data-worker 1 must be less than 1, the number of workers' err || { cat err; return 1; }
    ! apart 1 2 train --data-worker 2 >out 2>err && grep -q 'data-worker 2 must be less than 2, the number of workers' err || { cat err; return 1; }
    ! timeout -k 5 60 "$LOCKSTEP" launch --workers 2 -- "$LOCKSTEP" train model.json --data /nowhere.npz --data-worker 1 2>err &&
        grep -q "\[1\] lockstep: cannot open '/nowhere.npz'" err && grep -q 'worker 1, which has the data, is lost' err || { cat err; return 1; }
    ! timeout -k 5 60 "$LOCKSTEP" launch --workers 2 --servers 1 -- "$LOCKSTEP" train model.json --data $DATA --data-worker 1 2>err &&
        grep -q 'cannot be used with parameter servers: all workers read the data' err || { cat err; return 1; }
}
check "impossible settings are refused" refused
finish
