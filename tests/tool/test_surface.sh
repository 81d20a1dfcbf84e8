#!/bin/sh
# Every command ends, and with the same answer, at any batch size, number of lanes, devices and cores: each run has a time
# limit, so that a hang is a failure with a name. `make test` runs a sample; `make surface` (LS_SURFACE=all) runs it all.
. "$(dirname "$0")/../support/lib.sh"

LOCKSTEP=$ROOT/$LS_BUILD/lockstep
DATA=synthetic:28x28x1,classes=10,count=1100
LIMIT=${LS_SURFACE_LIMIT:-$([ -n "$SANITIZE" ] && echo 120 || echo 30)}

# The first two cores that this process may use; the same one twice where there is no other.
allowed=$(taskset -cp $$ | sed -e 's/.*: //' -e 's/,/ /g')
cores=
for range in $allowed; do
    cores="$cores $(seq "${range%-*}" "${range#*-}" | head -n 2)"
done
set -- $cores
ONE=$1 TWO=$1${2:+,$2}

if [ "${LS_SURFACE:-}" = all ]; then
    MODELS='linear mlp mnist-cnn mnist-cnn-wide' BATCHES='1 2 3 7 31 32 33 64 127 128 129 255 256 257 511 512 513 1000'
    LANES='1 2 3 4 5 8 16 31 32 33 64 65 127 128' DEVICES='1 2 3 8'
    TRAIN_BATCHES='1 7 100 256 1000'
elif [ -n "$SANITIZE" ]; then
    MODELS='mlp mnist-cnn' BATCHES='7 512' LANES='1 33' DEVICES='1 3' TRAIN_BATCHES=256
else
    MODELS='mlp mnist-cnn' BATCHES='1 7 33 128 256 512 1000' LANES='1 2 3 32 64 128' DEVICES='1 2 3 8' TRAIN_BATCHES='100 256'
fi

# ends CORES ARGUMENTS...: the command ends well within the limit. Its output is in $TMP/out.
ends() {
    on=$1 status=0
    shift
    timeout -s KILL "$LIMIT" taskset -c "$on" "$LOCKSTEP" "$@" >"$TMP/out" 2>"$TMP/err" </dev/null || status=$?
    [ $status = 0 ] && return
    [ $status != 137 ] || echo "timed out after $LIMIT seconds:"
    echo "status $status: taskset -c $on lockstep $*"
    tail -n 3 "$TMP/err"
    return 1
}

# same FILE RUN: the answers of all runs with one batch size and number of lanes are one.
same() {
    if [ ! -e "$TMP/first" ]; then
        mv "$1" "$TMP/first"
    elif ! cmp -s "$1" "$TMP/first"; then
        echo "$2: another answer than the first run's"
        return 1
    fi
}

predicts() {
    rm -f "$TMP/first"
    for on in $ONE $TWO; do
        for devices in $DEVICES; do
            ends "$on" predict "$1" --data $DATA --batch-size "$2" --devices "$devices" --output "$TMP/p.npy" || return 1
            same "$TMP/p.npy" "cores $on, $devices devices" || return 1
        done
    done
}

evaluates() {
    rm -f "$TMP/first"
    for on in $ONE $TWO; do
        for devices in $DEVICES; do
            ends "$on" evaluate "$1" --data $DATA --batch-size "$2" --devices "$devices" || return 1
            same "$TMP/out" "cores $on, $devices devices" || return 1
        done
    done
}

trains() {
    rm -f "$TMP/first"
    for on in $ONE $TWO; do
        for devices in $DEVICES; do
            ends "$on" train "$1" --data $DATA --batch-size "$2" --lanes "$3" --devices "$devices" --max-steps 3 \
                --verbose 0 --save "$TMP/w.safetensors" || return 1
            same "$TMP/w.safetensors" "cores $on, $devices devices" || return 1
        done
    done
}

for model in $MODELS; do
    for batch in $BATCHES; do
        check "predict $model, batches of $batch" predicts "$model" "$batch"
        check "evaluate $model, batches of $batch" evaluates "$model" "$batch"
    done
    for batch in $TRAIN_BATCHES; do
        for lanes in $LANES; do
            check "train $model, batches of $batch in $lanes lanes" trains "$model" "$batch" "$lanes"
        done
    done
done
finish
