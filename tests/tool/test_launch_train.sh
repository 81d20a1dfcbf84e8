#!/bin/sh
# Several workers of this machine train one job: each step has the bits of one process; only worker 0 prints and writes.
# `make test` runs a sample of workers, transports, batches and models; `make soak-workers` (LS_WORKERS=all) every combination.
. "$(dirname "$0")/../support/lib.sh"

LOCKSTEP=$ROOT/$LS_BUILD/lockstep
launch() { timeout -k 5 $LIMIT "$LOCKSTEP" launch "$@"; }
export LOCKSTEP_GRACE=5
LIMIT=120 # seconds of a job

# same_bits WORKERS MODEL ARGUMENTS...: beside one process, whose log is made once for each MODEL and ARGUMENTS
same_bits() {
    workers=$1
    shift
    alone=$TMP/alone-$(echo "$*" | tr -c 'a-z0-9\n' -)
    if [ ! -e "$alone" ]; then
        timeout -k 5 $LIMIT "$LOCKSTEP" train "$@" --log "$alone" --log-hash --verbose 0 >"$alone.out" || return 1
    fi
    launch --workers "$workers" -- "$LOCKSTEP" train "$@" --log "$TMP/log" --log-hash --verbose 0 >"$TMP/out" || return 1
    step_hashes "$alone" >"$TMP/wanted"
    step_hashes "$TMP/log" >"$TMP/found"
    [ -s "$TMP/wanted" ] && cmp "$TMP/wanted" "$TMP/found" || return 1
    grep sha256 "$alone.out" >"$TMP/wanted" && grep sha256 "$TMP/out" >"$TMP/found" && cmp "$TMP/wanted" "$TMP/found" || return 1
    ! grep '^\[' "$TMP/out" # no other worker prints
}

# model NAME BATCH: the arguments of a job with a whole batch and a smaller one
model() {
    case $1 in
    resnet18) echo resnet18 --input 32x32x3 --classes 10 ;;
    *) echo $1 ;;
    esac
    echo --data synthetic:count=$(($2 + $2 / 3)) --batch-size $2 --epochs ${EPOCHS:-2}
}
# combination WORKERS TRANSPORT BATCH MODEL
combination() { LOCKSTEP_TRANSPORT=$2 same_bits $1 $(model $4 $3); }

# Where UCX is. (It leaves memory behind that a sanitizer would complain of.)
with_ucx() { ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 "$@"; }
UCX=
! with_ucx launch --workers 2 --transport ucx -- "$LOCKSTEP" devices >"$TMP/out" 2>"$TMP/err" || UCX=ucx
# By sockets, as between machines without RDMA.
ucx_over_tcp() { UCX_TLS=tcp,self with_ucx combination 4 ucx 33 mnist-cnn; }

if [ "${LS_WORKERS:-}" = all ]; then
    LIMIT=1200 EPOCHS=1
    for name in mnist-cnn mnist-cnn-wide resnet18; do
        for batch in 32 33 4096; do
            for transport in shm unix tcp $UCX; do
                for workers in 1 2 3 4 5 8; do
                    check "$name, batch $batch, $workers workers, $transport" combination $workers $transport $batch $name
                done
            done
            rm -f "$TMP"/alone-*
        done
    done
    finish
fi

while read -r workers transport batch name; do
    check "$name, batch $batch, $workers workers, $transport" combination $workers $transport $batch $name
done <<'END_OF_SAMPLE'
1 shm 33 mnist-cnn
2 tcp 33 mnist-cnn
3 shm 33 mnist-cnn
4 tcp 32 mnist-cnn
5 unix 32 mnist-cnn
3 tcp 32 mnist-cnn-wide
5 shm 32 mnist-cnn-wide
3 shm 33 resnet18
END_OF_SAMPLE
if [ -n "$UCX" ]; then
    check "mnist-cnn, batch 33, 2 workers, ucx" with_ucx combination 2 ucx 33 mnist-cnn
    check "mnist-cnn, batch 33, 4 workers, ucx over tcp" ucx_over_tcp
else
    skip "workers over ucx" "$(grep -o 'the transport ucx.*' "$TMP/err")"
fi
check "mnist-cnn, batch 4096, 2 workers" same_bits 2 mnist-cnn --data synthetic:count=4100 --batch-size 4096 --epochs 1

# Workers beyond the lanes are idle, and are named in one line.
idle() {
    same_bits 8 mnist-cnn --data synthetic --take 70 --batch-size 32 --epochs 1 2>"$TMP/err" || { cat "$TMP/err"; return 1; }
    grep -q 'a batch of 32 samples has 4 lanes for 8 workers: 4 of them (0, 2, 4, 6) compute nothing' "$TMP/err" &&
        [ "$(grep -c 'compute nothing' "$TMP/err")" = 1 ] || { cat "$TMP/err"; return 1; }
}
check "more workers than lanes" idle
check "two devices in each of two workers" same_bits 2 mnist-cnn --data synthetic --take 70 --batch-size 33 --epochs 1 --devices 2
# Over tcp, with TLS and a key that launch makes: the same, and nothing is left of the place where they met.
over_tcp() {
    mkdir "$TMP/meeting" || return 1
    TMPDIR=$TMP/meeting LOCKSTEP_TRANSPORT=tcp same_bits 3 mnist-cnn --data synthetic --take 100 --batch-size 33 --epochs 1 &&
        [ -z "$(ls "$TMP/meeting")" ]
}
check "mnist-cnn, 3 workers over tcp" over_tcp
over_tcp_with_key() {
    "$LOCKSTEP" key "$TMP/key" >"$TMP/out" && grep -q LOCKSTEP_KEY_FILE "$TMP/out" || return 1
    LOCKSTEP_KEY_FILE=$TMP/key LOCKSTEP_TRANSPORT=tcp same_bits 2 mnist-cnn --data synthetic --take 100 --batch-size 33 --epochs 1 &&
        [ "$(stat -c %a:%s "$TMP/key")" = 600:32 ] || return 1
    if "$LOCKSTEP" key "$TMP/key" 2>"$TMP/err"; then return 1; fi
    grep -q 'exists already' "$TMP/err" || return 1
    chmod 644 "$TMP/key"
    if LOCKSTEP_KEY_FILE=$TMP/key launch --transport tcp -- "$LOCKSTEP" train mnist-cnn --data synthetic --take 32 >"$TMP/err" 2>&1; then return 1; fi
    grep -q 'has mode 0644' "$TMP/err" || { cat "$TMP/err"; return 1; }
}
check "the same with a key of the user's; one that others can read is refused" over_tcp_with_key

# ---- Worker 0 alone writes ----

files_of_one() {
    mkdir -p "$TMP/files" && cd "$TMP/files" || return 1
    launch --workers 3 -- "$LOCKSTEP" train mnist-cnn --data synthetic --take 100 --epochs 2 --save w.safetensors --log l \
        --checkpoint c --trace t.json >out 2>err || { cat err; return 1; }
    [ -s w.safetensors ] && [ -s l ] && [ -s t.json ] && [ -e c/last ] || { ls -R; return 1; }
    [ "$(grep -c '"event":"start"' l)" = 1 ] && ! grep '^\[' out err && [ "$(grep -c 'weights sha256' out)" = 1 ]
}
check "files are written and lines printed once" files_of_one

# Going on from a checkpoint with another number of workers: the bits of a run that was never stopped.
goes_on() {
    cd "$TMP" || return 1
    timeout 60 "$LOCKSTEP" train mnist-cnn --data synthetic --take 100 --epochs 3 --verbose 0 >whole || return 1
    launch --workers 3 -- "$LOCKSTEP" train mnist-cnn --data synthetic --take 100 --epochs 3 --max-steps 5 --checkpoint d \
        --verbose 0 >part || return 1
    launch --workers 2 -- "$LOCKSTEP" train mnist-cnn --data synthetic --take 100 --epochs 3 --checkpoint d --resume \
        --verbose 0 >rest || return 1
    grep sha256 whole >a && grep sha256 rest >b && cmp a b && [ "$(grep -c 'continuing from' rest)" = 1 ]
}
check "a checkpoint of three workers is resumed by two" goes_on

predicts() {
    cd "$TMP" || return 1
    timeout 60 "$LOCKSTEP" predict mnist-cnn --data synthetic --take 50 --output one.npy >/dev/null || return 1
    launch --workers 3 -- "$LOCKSTEP" predict mnist-cnn --data synthetic --take 50 --output three.npy >out || return 1
    cmp one.npy three.npy && ! grep '^\[' out
}
check "predictions of three workers are those of one" predicts

evaluates() {
    cd "$TMP" || return 1
    timeout 60 "$LOCKSTEP" evaluate mnist-cnn --data synthetic --take 70 >one || return 1
    launch --workers 2 -- "$LOCKSTEP" evaluate mnist-cnn --data synthetic --take 70 >two || return 1
    grep -o 'loss: .*' one >a && grep -o 'loss: .*' two >b && cmp a b
}
check "an evaluation of two workers is that of one" evaluates

# What others send is counted with what a job needs.
counted() {
    launch --workers 2 -- "$LOCKSTEP" train mlp --data synthetic --take 64 --dry-run >"$TMP/out" || return 1
    grep -q 'needs .*, sent by other workers [0-9.]*[1-9],' "$TMP/out" || { cat "$TMP/out"; return 1; }
}
check "bytes of other workers are counted" counted

simulated() {
    if LOCKSTEP_RANK=0 LOCKSTEP_WORLD_SIZE=2 LOCKSTEP_RENDEZVOUS=x LOCKSTEP_TRANSPORT=sim "$LOCKSTEP" train mlp --data synthetic --take 32 2>"$TMP/err"; then return 1; fi
    grep -q 'the transport "sim" is unknown: expected auto, shm' "$TMP/err" || { cat "$TMP/err"; return 1; }
}
check "the simulated network of the tests is not a transport of jobs" simulated

# ---- Jobs that are not the same ----

# differ WHAT SCRIPT: workers that run this do not have the same job; each reports the difference.
differ() {
    if launch --workers 2 -- sh -c "$2" "$LOCKSTEP" >"$TMP/out" 2>"$TMP/err"; then return 1; fi
    [ "$(grep -c "the workers have different jobs or data: $1" "$TMP/err")" = 2 ] || { cat "$TMP/err"; return 1; }
}
check "another model is named by both" differ 'model is "mnist-cnn" on worker 0 and "mlp" on worker 1' \
    '[ $LOCKSTEP_RANK = 0 ] && model=mnist-cnn || model=mlp; exec "$0" train $model --data synthetic --take 64'
check "another learning rate" differ 'optimizer/learning_rate is 0.01 on worker 0 and 0.02 on worker 1' \
    'exec "$0" train mlp --data synthetic --take 64 --lr 0.0$((LOCKSTEP_RANK + 1))'
check "more data" differ 'data/batches is 2 on worker 0 and 3 on worker 1' \
    'exec "$0" train mlp --data synthetic --take $((64 + 32 * LOCKSTEP_RANK))'
check "data with other bytes" differ 'data/sha256 is "[0-9a-f]*... on worker 0 and "[0-9a-f]*... on worker 1' \
    'exec "$0" train mlp --data synthetic:seed=$LOCKSTEP_RANK --take 64'

# ---- Ends ----

# A signal to the launcher stops all workers at the same step, with a checkpoint.
stops() {
    cd "$TMP" || return 1
    timeout -k 5 60 "$LOCKSTEP" launch --workers 2 -- "$LOCKSTEP" train mnist-cnn --data synthetic --take 1000 --epochs 1000 \
        --log s --checkpoint e --verbose 0 >out 2>err &
    pid=$!
    for i in $(seq 200); do
        [ ! -e s ] || [ "$(grep -c '"event":"step"' s)" -lt 3 ] || break
        sleep 0.1
    done
    kill -TERM "$(children $pid)"
    found=0
    wait $pid || found=$?
    [ $found = 143 ] && [ -e e/last ] && grep -q 'stopped by a signal' out || { echo "status $found"; cat out err; return 1; }
}
check "a signal stops all at the same step" stops

# Worker 1 is killed when a few steps are in the log.
one_dies() {
    cd "$TMP" || return 1
    rm -f steps out err
    job="train mnist-cnn --data synthetic --take 1000 --batch-size 32 --epochs 4 --verbose 0"
    "$LOCKSTEP" $job >alone || return 1
    timeout -k 5 120 "$LOCKSTEP" launch --workers 3 -- sh -c '[ $LOCKSTEP_RANK != 1 ] ||
        { until [ "$(grep -sc \"step\" steps)" -gt 5 ]; do sleep 0.02; done; kill -9 $$; } & exec "$0" "$@"' "$LOCKSTEP" $job --log steps \
        >out 2>err || { cat out err; return 1; }
    grep -q 'worker 1 was killed by signal 9' err && grep -q 'worker 1 of 3 is lost' err &&
        grep weights alone >wanted && grep weights out | cmp - wanted || { cat out err; return 1; }
}
check "a worker is killed, and the others continue to the same weights" one_dies

# The chief prints the cluster, once, where progress is shown.
introduced() {
    launch "$@" -- "$LOCKSTEP" train mnist-cnn --data synthetic --take 64 --epochs 2 --verbose ${VERBOSE:-2} >"$TMP/out" 2>"$TMP/err" || { cat "$TMP/err"; return 1; }
    grep 'cluster:' "$TMP/out" >"$TMP/found" || true
}
introduces() {
    introduced --workers 3 --job who || return 1
    [ "$(cat "$TMP/found")" = 'cluster: 3 processes, over shm; this is worker 0 of job "who"' ] || { cat "$TMP/out"; return 1; }
    introduced --workers 2 --elastic 1:4 --servers 1 --transport unix --job who || return 1
    [ "$(cat "$TMP/found")" = 'cluster: 3 processes, 1 of them a parameter server, up to 5, over unix; this is worker 0 of job "who"' ] || { cat "$TMP/out"; return 1; }
    introduced --workers 2 --transport tcp || return 1
    [ "$(grep -c '^cluster: 2 processes, over tcp at file:///.*; this is worker 0 of job' "$TMP/found")" = 1 ] || { cat "$TMP/out"; return 1; }
    VERBOSE=0 introduced --workers 2 || return 1
    [ ! -s "$TMP/found" ] || { cat "$TMP/out"; return 1; }
}
check "the chief prints its cluster in one line" introduces
finish
