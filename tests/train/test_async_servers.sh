#!/bin/bash
# Asynchronous parameter servers: one worker has the bits of one process; with several every batch is applied once by every
# server, with any process killed or stopped, and a replay of the record has the run's bits; what ends a job, and how it is reported.
. "$(dirname "$0")/../support/lib.sh"

LOCKSTEP=$ROOT/$LS_BUILD/lockstep
export LOCKSTEP_SILENCE_LIMIT=${LOCKSTEP_SILENCE_LIMIT:-20} LOCKSTEP_GRACE=10
small_model 4 >"$TMP/model.json"
mkdir "$TMP/run" && cd "$TMP/run"
BATCHES=60 EPOCHS=2
launch() { timeout -k 5 100 "$LOCKSTEP" launch "$@"; }
job() { echo "$TMP/model.json" --data synthetic:12x12x1,classes=4,count=$((BATCHES * 8 - 3)) --batch-size 8 --epochs $EPOCHS --verbose 0; }
SERVERS=(--strategy parameter-server --staleness)
hash_in() { grep -o 'weights sha256: .*' "$1"; }

one_worker() { # ARGUMENTS OF TRAIN...
    timeout 60 "$LOCKSTEP" train $(job) "$@" >one || return 1
    launch --workers 1 --servers 2 -- "$LOCKSTEP" train $(job) "${SERVERS[@]}" 3 "$@" >out || return 1
    [ "$(hash_in one)" = "$(hash_in out)" ] || { cat one out; return 1; }
}
check "one worker and two servers have the bits of one process" one_worker --optimizer sgd --momentum 0.9
check "the same with a limit of steps inside an epoch" one_worker --max-steps 77

# all_once SERVERS: every batch of every epoch is in every record, once; and a replay has the bits of the run.
all_once() {
    local s file
    for e in $(seq 0 $((EPOCHS - 1))); do for b in $(seq 0 $((BATCHES - 1))); do echo "$e,$b"; done; done | sort >wanted
    for s in $(seq 0 $(($1 - 1))); do
        file=rec
        [ $s = 0 ] || file=rec.$s
        sed -n 's/.*"epoch":\([0-9]*\),"batch":\([0-9]*\),.*/\1,\2/p' $file | sort | cmp - wanted || { echo "$file"; return 1; }
    done
    timeout 60 "$LOCKSTEP" replay rec >replayed 2>&1 || { cat replayed; return 1; }
    [ -n "$(hash_in out)" ] && [ "$(hash_in replayed)" = "$(hash_in out)" ] || { cat out replayed; return 1; }
}
recorded() { # WORKERS SERVERS TRANSPORT STALENESS ARGUMENTS OF TRAIN...
    local workers=$1 servers=$2 transport=$3 staleness=$4
    shift 4
    rm -f rec*
    launch --workers $workers --servers $servers --transport $transport -- \
        "$LOCKSTEP" train $(job) "${SERVERS[@]}" $staleness --record rec "$@" >out 2>err || { cat err; return 1; }
    ! grep "is lost" err || return 1 # none was
    all_once $servers
}
check "3 workers, 1 server, over shm" recorded 3 1 shm 4
check "3 workers, 2 servers, over tcp, with a bound that makes them wait" recorded 3 2 tcp 1
check "overlap" recorded 3 2 unix 5 --overlap
check "gradients are accumulated at the servers, rates scaled" recorded 3 2 shm 4 --accumulate 3 --scale-by-staleness

# ---- Failures ----

# A job in the background, its launcher's pid in $job; its processes have their ranks in the environment.
before=() # words before the command
start() { # WORKERS SERVERS LAUNCH ARGUMENTS... -- TRAIN ARGUMENTS...
    local flags=(--workers $1 --servers $2)
    shift 2
    while [ "$1" != -- ]; do flags+=("$1"); shift; done
    shift
    rm -f rec*
    timeout -k 5 100 "$LOCKSTEP" launch "${flags[@]}" -- "${before[@]}" "$LOCKSTEP" train $(job) "${SERVERS[@]}" 6 --record rec "$@" >out 2>err &
    job=$!
}
# Waits until server 0 has recorded this number of gradients.
reached() {
    for i in $(seq 2000); do
        [ ! -e rec ] || [ "$(wc -l <rec)" -le $1 ] || return 0
        kill -0 $job 2>/dev/null || return 1
        sleep 0.01
    done
    return 1
}
pid_of() { worker_of "$(children $job)" $1; } # RANK; timeout started the launcher
killed() { # RANKS...: 3 workers (0 to 2), 2 servers (3 and 4)
    local rank pids=
    start 3 2 --restarts $# --
    reached 1 || return 1
    for rank in "$@"; do pids="$pids $(pid_of $rank)"; done
    reached 50 || return 1
    kill -9 $pids
    wait $job || { cat err; return 1; }
    all_once 2
}
EPOCHS=3 BATCHES=300
check "a worker is killed, and returns" killed 1
check "a server is killed, and returns" killed 3
check "a worker and a server are killed at once" killed 2 4
check "all servers are killed at once" killed 3 4
check "all but the chief are killed at once" killed 1 2 3 4

stays_away() {
    start 3 1 --
    reached 20 || return 1
    kill -9 $(pid_of 2)
    wait $job || { cat err; return 1; }
    grep -q "worker 2 is lost" err && all_once 1
}
check "a worker is killed, and the others continue" stays_away

stopped() {
    LOCKSTEP_SILENCE_LIMIT=0.5 start 3 2 --silence-limit 0.5 --
    reached 20 || return 1
    local pid=$(pid_of 1)
    kill -STOP $pid
    for i in $(seq 1000); do ! grep -q "no heartbeat" err || break; sleep 0.01; done
    kill -CONT $pid
    wait $job || { cat err; return 1; }
    grep -q "worker 1 is lost (no heartbeat" err && all_once 2
}
check "a worker that was stopped counts as lost, wakes, and continues" stopped

# Workers may be more than there were: rank 2 comes behind worker 0 and server 1.
comes_later() {
    start 1 1 --elastic 1:2 --job later$$ --
    reached 20 || return 1
    LOCKSTEP_RANK=2 LOCKSTEP_WORLD_SIZE=2 LOCKSTEP_SERVERS=1 LOCKSTEP_ELASTIC=1:2 LOCKSTEP_RENDEZVOUS=later$$ \
        timeout 60 "$LOCKSTEP" train $(job) "${SERVERS[@]}" 6 --record rec >later 2>&1 || { cat later; kill $job; return 1; }
    wait $job || { cat err; return 1; }
    grep -q '"worker":2,' rec && all_once 1
}
EPOCHS=5
check "a worker joins a running job" comes_later
EPOCHS=3

# ---- Ends ----

# ends_with MESSAGE: the job has failed with this reason
ends_with() {
    local status=0
    wait $job || status=$?
    [ $status != 0 ] && [ $status != 124 ] && grep -q "$1" err || { echo "status $status"; cat err; return 1; }
}
server_stays_away() {
    before=(env -u LOCKSTEP_LAUNCHER) # which would say at once that it does not come back
    start 2 2 --join-limit 1 -- --checkpoint ck --save-every 40
    before=()
    reached 60 || return 1
    kill -9 $(pid_of 3)
    ends_with "server 1 was lost and did not restart within 1 s" && ls ck | grep -q step- || return 1
    # The checkpoint goes on with any servers.
    launch --workers 2 --servers 1 -- "$LOCKSTEP" train $(job) "${SERVERS[@]}" 6 --checkpoint ck --resume >out &&
        [ -n "$(hash_in out)" ] && ls ck | grep -q step-00000900
}
check "a server that does not return ends the job, which continues from its checkpoint" server_stays_away

server_is_gone() {
    start 2 2 --join-limit 300 --
    reached 20 || return 1
    kill -9 $(pid_of 3)
    ends_with "server 1 was lost, and will not be restarted"
}
check "a server that is not started again ends the job at once" server_is_gone

# never_begins RANK MESSAGE: that process ends before it meets anybody
never_begins() {
    local status=0
    launch --workers 2 --servers 1 --join-limit 300 -- sh -c '[ $LOCKSTEP_RANK != $0 ] || exit 3; exec "$@"' $1 \
        "$LOCKSTEP" train $(job) "${SERVERS[@]}" 6 >out 2>err || status=$?
    [ $status != 0 ] && [ $status != 124 ] && grep -q "$2" err || { echo "status $status"; cat err; return 1; }
}
check "no process waits for a server that never begins" never_begins 2 "server 0 ended before it connected, and will not be restarted"
check "no process waits for a chief that never begins" never_begins 0 "the chief (worker 0) of job .* ended before it connected"

chief_is_killed() {
    start 2 1 --
    reached 20 || return 1
    kill -9 $(pid_of 0)
    ends_with "the chief (worker 0) was lost, which ends the job" && [ "$(grep -c "the chief (worker 0) was lost" err)" = 2 ]
}
check "the chief is killed: the others end, and report it" chief_is_killed

without_journal() {
    start 2 1 --join-limit 2 -- --journal "$TMP/nowhere/journal"
    ends_with "a file has this name\|cannot create folder" || return 1
    start 2 1 --restarts 1 -- --journal ""
    reached 20 || return 1
    kill -9 $(pid_of 2)
    ends_with "restarted without its state"
}
: >"$TMP/nowhere"
check "a server without a folder for its journal" without_journal

# The disk of the server is full: it, the chief and the worker report it, and its weights are saved.
without_room() {
    local status=0
    rm -f weights.safetensors
    launch --workers 2 --servers 1 --transport unix -- sh -c '[ $LOCKSTEP_RANK != 2 ] || ulimit -f 200; exec "$@"' train \
        "$LOCKSTEP" train $(job) "${SERVERS[@]}" 6 --save weights.safetensors >out 2>err || status=$?
    [ $status = 1 ] && [ -s weights.safetensors ] && [ "$(grep -c "server 0: cannot write the journal in " err)" = 3 ] ||
        { echo "status $status"; cat err; return 1; }
}
check "a server without room" without_room
no_shared_memory() {
    ! launch --workers 1 --servers 1 --join-limit 1 -- sh -c '[ $LOCKSTEP_RANK != 1 ] || ulimit -f 0; exec "$@"' train \
        "$LOCKSTEP" train $(job) "${SERVERS[@]}" 6 >out 2>err || return 1
    grep -q "the chief (worker 0) of job .* did not connect within 1 s (LOCKSTEP_JOIN_LIMIT); .* File too large" err || { cat err; return 1; }
}
check "a server that cannot make shared memory reports it" no_shared_memory

# alone RANK WHO: the chief (0) or the server (1) of a job whose other process never comes
alone() {
    ! LOCKSTEP_RANK=$1 LOCKSTEP_WORLD_SIZE=2 LOCKSTEP_SERVERS=1 LOCKSTEP_RENDEZVOUS=alone$1$$ LOCKSTEP_JOIN_LIMIT=4 \
        timeout 60 "$LOCKSTEP" train $(job) "${SERVERS[@]}" 6 >out 2>err || return 1
    grep -q "process $1 of job .* has waited 3 of 4 s for $2 (LOCKSTEP_JOIN_LIMIT)" err || { cat err; return 1; }
}
check "a chief that waits names the server" alone 0 "server 0"
check "a server that waits for the chief reports it" alone 1 "the chief (worker 0)"

other_job() {
    start 1 1 --elastic 1:2 --job other$$ --
    reached 10 || return 1
    ! LOCKSTEP_RANK=2 LOCKSTEP_WORLD_SIZE=2 LOCKSTEP_SERVERS=1 LOCKSTEP_ELASTIC=1:2 LOCKSTEP_RENDEZVOUS=other$$ \
        timeout 60 "$LOCKSTEP" train $(job) --seed 9 "${SERVERS[@]}" 7 >later 2>&1 || return 1
    grep -q "belong to different jobs" later || { cat later; return 1; }
    wait $job && all_once 1
}
check "a worker of another job is refused, and the job continues" other_job

wrong_key() {
    local port=$((20000 + $$ % 20000)) cluster task key limit pids=()
    "$LOCKSTEP" key right >/dev/null && "$LOCKSTEP" key wrong >/dev/null || return 1
    cluster="{\"chief\":[\"localhost:$port\"],\"ps\":[\"localhost:$((port + 1))\"]}"
    for task in chief ps; do
        key=right limit=3
        [ $task = chief ] || key=wrong limit=1
        TF_CONFIG="{\"cluster\":$cluster,\"task\":{\"type\":\"$task\",\"index\":0}}" LOCKSTEP_KEY_FILE=$PWD/$key LOCKSTEP_TRANSPORT=tcp \
            LOCKSTEP_JOIN_LIMIT=$limit timeout 60 "$LOCKSTEP" train $(job) "${SERVERS[@]}" 3 >out.$task 2>err.$task &
        pids+=($!)
    done
    ! wait ${pids[0]} && ! wait ${pids[1]} && grep -q "server 0 did not connect within 3 s.*another key" err.chief &&
        grep -q "did not connect within 1 s.*another key" err.ps || { cat err.chief err.ps; return 1; }
}
check "a server with another key" wrong_key

interrupted() {
    rm -rf ck
    start 2 1 -- --checkpoint ck
    reached 30 || return 1
    kill -TERM $(children $job)
    local status=0
    wait $job || status=$?
    [ $status = 143 ] && ls ck | grep -q step- || { echo "status $status"; cat err; return 1; }
    start 2 1 -- --checkpoint ck --resume
    wait $job || { cat err; return 1; }
    ls ck | grep -q step-00000900
}
check "a signal ends it with a checkpoint, from which it continues" interrupted

evaluator() {
    rm -rf ck
    TF_CONFIG='{"cluster":{"chief":["localhost:1"],"ps":["localhost:2"]},"task":{"type":"evaluator","index":0}}' \
        timeout 60 "$LOCKSTEP" train $(job) "${SERVERS[@]}" 6 --checkpoint ck --verbose 2 --log log >evaluated 2>&1 &
    local pid=$!
    start 2 1 -- --checkpoint ck --log log
    wait $job || { cat err; return 1; }
    wait $pid || { cat evaluated; return 1; }
    grep -q "^step 900 - val_loss: " evaluated && grep -q '"event":"evaluation","step":900,"val_loss":' log.evaluator &&
        [ "$(hash_in evaluated)" = "$(hash_in out)" ] || { cat evaluated out; return 1; }
}
check "an evaluator follows checkpoints up to the last" evaluator

finish
