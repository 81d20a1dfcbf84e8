#!/bin/sh
# Workers that other programs start: TF_CONFIG, torchrun's variables and torchrun itself, mpirun, and the variables of
# Kubernetes. Each time the weights are those of one process. (Slurm: test_slurm.sh.)
. "$(dirname "$0")/../support/lib.sh"

LOCKSTEP=$ROOT/$LS_BUILD/lockstep
PORT=$((20000 + $$ % 20000))
cd "$TMP"
train() { timeout -k 5 100 "$LOCKSTEP" train mnist-cnn --data synthetic --take 64 --verbose 0 "$@"; }
train >alone
grep sha256 alone >wanted || { not_ok "one process trains" "$(cat alone)"; finish; }
# right FILE: it has one line with a hash, that of one process
right() { grep sha256 "$1" | cmp - wanted || { cat "$1"; return 1; }; }

# both VARIABLES_OF_0 VARIABLES_OF_1: two workers; the second writes nothing
both() {
    env $2 "$LOCKSTEP" train mnist-cnn --data synthetic --take 64 --verbose 0 --strategy multi-worker >one 2>&1 &
    env $1 timeout -k 5 60 "$LOCKSTEP" train mnist-cnn --data synthetic --take 64 --verbose 0 --strategy multi-worker >zero || return 1
    wait $! || { cat one; return 1; }
    right zero && ! grep -v 'has waited' one # which a crowded machine makes it say
}

# ---- Variables alone ----

torch_variables() {
    common="WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$PORT"
    both "$common RANK=0" "$common RANK=1" || return 1
    env $common RANK=1 timeout 60 "$LOCKSTEP" train mnist-cnn --data synthetic --take 64 --verbose 0 >zero && right zero
}
check "torchrun's variables; and they are ignored unless asked for" torch_variables

kubernetes() {
    common="WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$PORT"
    both "$common JOB_COMPLETION_INDEX=0" "$common JOB_COMPLETION_INDEX=1"
}
check "the index of a Kubernetes Job" kubernetes

tf_config() {
    config() { echo "TF_CONFIG={\"cluster\":{\"worker\":[\"localhost:$PORT\",\"localhost:2\"]},\"task\":{\"type\":\"worker\",\"index\":$1}}"; }
    both "$(config 0)" "$(config 1)"
}
check "TF_CONFIG" tf_config

# refused CONFIG TEXT: what is wrong is named
refused() {
    found=0
    TF_CONFIG=$1 timeout 60 "$LOCKSTEP" train mnist-cnn --data synthetic --take 64 --strategy multi-worker >out 2>err || found=$?
    [ $found = 2 ] && grep -q -F "$2" err || { echo "status $found"; cat out err; return 1; }
}
check "a TF_CONFIG without a task" refused '{"cluster":{"worker":["localhost:1"]}}' 'TF_CONFIG.task: missing'
check "a TF_CONFIG with a misspelt key" refused '{"cluster":{"wroker":["localhost:1"]},"task":{"type":"worker","index":0}}' 'TF_CONFIG.cluster.wroker: unknown key'
check "a TF_CONFIG with a wrong index" refused '{"cluster":{"worker":["localhost:1"]},"task":{"type":"worker","index":1}}' 'TF_CONFIG.task.index'
check "a TF_CONFIG that is cut off" refused '{"cluster":' 'TF_CONFIG'

check "a TF_CONFIG with two chiefs" refused '{"cluster":{"chief":["localhost:1","localhost:2"]},"task":{"type":"chief","index":0}}' 'TF_CONFIG.cluster: 2 tasks of type "chief": a cluster has one'
check "a TF_CONFIG with a chief and a master" refused '{"cluster":{"chief":["localhost:1"],"master":["localhost:2"]},"task":{"type":"chief","index":0}}' '2 tasks of type "chief" or "master"'

# unused TEXT VARIABLES...: a process that trains alone says once that it could be one of several; "": it does not
unused() {
    text=$1
    shift
    env "$@" timeout 60 "$LOCKSTEP" train mnist-cnn --data synthetic --take 64 --verbose 0 --epochs 2 >out 2>err || { cat err; return 1; }
    if [ -z "$text" ]; then
        [ ! -s err ] || { cat err; return 1; }
    else
        grep -q -F "$text, but this process trains alone; to use the cluster, give --strategy multi-worker" err && [ "$(wc -l <err)" = 1 ] || { cat err; return 1; }
    fi
}
FIVE='"a.invalid:1","b.invalid:1","c.invalid:1","d.invalid:1","e.invalid:1"' # these names are not resolved
check "TF_CONFIG without a strategy" unused 'TF_CONFIG describes a cluster in which this is worker 3 of 5' "TF_CONFIG={\"cluster\":{\"worker\":[$FIVE]},\"task\":{\"type\":\"worker\",\"index\":3}}"
check "an evaluator without a strategy" unused 'TF_CONFIG describes a cluster in which this is evaluator' "TF_CONFIG={\"cluster\":{\"worker\":[$FIVE]},\"task\":{\"type\":\"evaluator\",\"index\":0}}"
check "torchrun without a strategy" unused 'WORLD_SIZE describes a cluster in which this is worker 1 of 2' WORLD_SIZE=2 RANK=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$PORT
check "srun without a strategy" unused 'SLURM_PROCID describes a cluster in which this is worker 3 of 4' SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_JOB_ID=12 SLURM_STEP_ID=1 SLURM_NNODES=2
check "one task of srun is alone" unused '' SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_JOB_ID=12 SLURM_STEP_ID=1 SLURM_NNODES=1
check "a batch script of Slurm is alone" unused '' SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=12 SLURM_NNODES=1

# ---- torchrun ----

TORCHRUN=${PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/peers}/bin/torchrun
[ -x "$TORCHRUN" ] || TORCHRUN=$(command -v torchrun || true)
torchrun() { timeout -k 5 120 "$TORCHRUN" --standalone --no-python "$@" >out 2>err || { cat out err; return 1; }; }

real_torchrun() {
    torchrun --nproc-per-node 3 "$LOCKSTEP" train mnist-cnn --data synthetic --take 64 --verbose 0 --strategy multi-worker && right out
}
# The second worker of the first attempt is killed; torchrun ends the others and starts all again, which go on.
torchrun_restarts() {
    cat >fails_once <<'END'
#!/bin/sh
[ "$RANK:$TORCHELASTIC_RESTART_COUNT" != 1:0 ] || { (until [ -e checkpoints/last ]; do sleep 0.02; done; kill -9 $$) & }
exec "$@"
END
    chmod +x fails_once
    train --epochs 60 >longer && grep sha256 longer >wanted || return 1
    torchrun --nproc-per-node 2 --max-restarts 1 ./fails_once "$LOCKSTEP" train mnist-cnn --data synthetic --take 64 --epochs 60 \
        --verbose 0 --strategy multi-worker --checkpoint checkpoints --save-every 10 --resume && grep -q 'continuing from' out &&
        grep sha256 out | tail -n 1 >last && right last # the first attempt may have told its own
}
if [ -x "$TORCHRUN" ]; then
    check "torchrun" real_torchrun
    check "torchrun's restarts continue from a checkpoint" torchrun_restarts
    grep sha256 alone >wanted
else
    skip "torchrun" "torchrun is not installed (make bench-peers, or pip install torch)"
fi

# ---- mpirun ----

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
real_mpirun() {
    timeout -k 5 100 "$@" "$LOCKSTEP" train mnist-cnn --data synthetic --take 64 --verbose 0 \
        --strategy multi-worker >out 2>err || { cat err; return 1; }
    right out
}
# A worker that is killed when the job has begun; the second one is.
cat >dies <<'END'
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" != 1 ] || { (until [ -s log ]; do sleep 0.02; done; kill -9 $$) & }
exec "$@"
END
chmod +x dies
# lose_second EPOCHS ARGUMENTS_OF_MPIRUN...
lose_second() {
    epochs=$1
    shift
    rm -f log
    timeout -k 5 100 mpirun --oversubscribe "$@" -n 3 ./dies "$LOCKSTEP" train mnist-cnn --data synthetic --take 64 --epochs "$epochs" \
        --verbose 0 --strategy multi-worker --log log >out 2>err
}
others_go_on() {
    train --epochs 150 >longer && grep sha256 longer >wanted || return 1
    lose_second 150 --enable-recovery -x LOCKSTEP_TRANSPORT=shm
    grep -q 'worker 1 of 3 is lost' err && right out || { cat err; return 1; }
}
# Without mpirun's own end of all, they notice it themselves.
tells_loss() {
    ! lose_second 100000 || return 1
    ! grep -q sha256 out || return 1
    lose_second 100000 --enable-recovery # mpirun's status says nothing then
    grep -q 'worker 1 of 3 is lost.*over mpi the others cannot go on' err && ! grep -q sha256 out || { cat out err; return 1; }
}
without_mpirun() {
    if LOCKSTEP_TRANSPORT=mpi RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$PORT timeout 60 "$LOCKSTEP" train mnist-cnn \
        --data synthetic --take 64 --strategy multi-worker >out 2>err; then return 1; fi
    grep -q 'start the workers with mpirun' err || { cat err; return 1; }
}
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # MPI's
if mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
    check "mpirun -n 4, over mpi" real_mpirun mpirun --oversubscribe -n 4
    check "mpirun -n 2, over mpi" real_mpirun mpirun --oversubscribe -x LOCKSTEP_TRANSPORT=mpi -n 2
    check "mpirun -n 3, over shared memory" real_mpirun mpirun --oversubscribe -x LOCKSTEP_TRANSPORT=shm -n 3
    check "over mpi a lost worker ends the job, and is reported" tells_loss
    check "over shared memory the others also continue under mpirun" others_go_on
    grep sha256 alone >wanted
    check "mpi without mpirun is refused" without_mpirun
else
    skip "mpirun -n 4, over mpi" "Open MPI is not installed (tools/deps.sh install starters)"
fi
MPICH=$(command -v mpirun.mpich || command -v mpiexec.hydra || true)
if [ -n "$MPICH" ]; then
    check "MPICH's mpirun -n 3" real_mpirun "$MPICH" -n 3
else
    skip "MPICH's mpirun -n 3" "MPICH is not installed"
fi
finish
