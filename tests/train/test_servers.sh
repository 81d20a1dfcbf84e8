#!/bin/bash
# Parameter servers, with staleness 0: any number of workers and servers has the bits of one process, also when one of them is
# killed; TF_CONFIG's "ps" tasks and lockstep launch --servers; what is refused.
. "$(dirname "$0")/../support/lib.sh"

LOCKSTEP=$ROOT/$LS_BUILD/lockstep
launch() { timeout -k 5 100 "$LOCKSTEP" launch "$@"; }
export LOCKSTEP_GRACE=5 LOCKSTEP_SILENCE_LIMIT=20
small_model 4 >"$TMP/model.json"
SERVERS=(--strategy parameter-server --staleness 0)

# job BATCH: the arguments of a training with whole batches and a smaller one
job() {
    echo "$TMP/model.json" --data synthetic:12x12x1,classes=4,count=$((BATCHES * $1 + 7)) --batch-size $1 --epochs $EPOCHS --verbose 0 \
        --log ${2:-log} --log-hash
}

# same_as_one LOG BATCH OUT: each step, each once, and the weights at the end
same_as_one() {
    local one=$TMP/one-$2-$BATCHES
    [ -e "$one" ] || timeout 60 "$LOCKSTEP" train $(job $2 "$one") >"$one.out" || return 1
    step_hashes "$one" >wanted
    step_hashes "$1" >found
    [ -s wanted ] && cmp wanted found && [ "$(grep sha256 "$3")" = "$(grep sha256 "$one.out")" ] || { cat "$3"; return 1; }
}

mkdir "$TMP/run" && cd "$TMP/run"
BATCHES=2 EPOCHS=2
any_number() { # WORKERS SERVERS BATCH TRANSPORT
    launch --workers $1 --servers $2 --transport $4 -- "$LOCKSTEP" train $(job $3) "${SERVERS[@]}" >out && same_as_one log $3 out
}
for batch in 32 33; do
    for workers in 1 2 3; do
        for servers in 1 2; do
            transport=shm
            [ $((workers + servers + batch)) != 37 ] || transport=tcp
            check "$workers workers, $servers servers, batch $batch, $transport" any_number $workers $servers $batch $transport
        done
    done
done

# Servers come last; the log has workers alone.
roles() {
    launch --workers 2 --servers 1 -- "$LOCKSTEP" train $(job 32) >out || return 1
    grep -q '"workers":\[{"rank":0,"lanes":[0-9]*,"seconds":[^}]*},{"rank":1,"lanes":[0-9]*,"seconds":[^}]*}\]' log && same_as_one log 32 out
}
check "a cluster with servers has them under any strategy, and its log has the workers" roles

# by_tf_config BATCH: a chief, a worker and two ps tasks
by_tf_config() {
    local port=$((20000 + $$ % 20000)) cluster pids=() task i=0
    cluster="{\"chief\":[\"localhost:$port\"],\"worker\":[\"localhost:$((port + 1))\"],\"ps\":[\"localhost:$((port + 2))\",\"localhost:$((port + 3))\"]}"
    for task in chief,0 worker,0 ps,0 ps,1; do
        TF_CONFIG="{\"cluster\":$cluster,\"task\":{\"type\":\"${task%,*}\",\"index\":${task#*,}}}" \
            timeout -s KILL 60 "$LOCKSTEP" train $(job $1) "${SERVERS[@]}" >out.$i 2>err.$i &
        pids+=($!)
        i=$((i + 1))
    done
    for i in 0 1 2 3; do
        wait ${pids[i]} || { cat err.*; return 1; }
    done
    [ ! -s out.1 ] && [ ! -s out.2 ] && [ ! -s out.3 ] && same_as_one log $1 out.0
}
check "TF_CONFIG with ps tasks" by_tf_config 33

# killed WORKERS SERVERS RANK...: these ranks, while the job runs
BATCHES=30 EPOCHS=4
killed() {
    local workers=$1 servers=$2 size rank pids=()
    size=$((workers + servers))
    shift 2
    rm -f log
    for ((rank = 0; rank < size; rank++)); do
        LOCKSTEP_RANK=$rank LOCKSTEP_WORLD_SIZE=$size LOCKSTEP_SERVERS=$servers LOCKSTEP_RENDEZVOUS=servers-$$-$size-$1 \
            timeout -s KILL 60 "$LOCKSTEP" train $(job 33) "${SERVERS[@]}" >out.$rank 2>err.$rank &
        pids[rank]=$!
    done
    while kill -0 ${pids[0]} 2>/dev/null && ! grep -q '"step":20,' log 2>/dev/null; do sleep 0.01; done
    for rank in "$@"; do
        kill -KILL $(children ${pids[rank]})
    done
    for ((rank = 0; rank < size; rank++)); do
        wait ${pids[rank]} && status=0 || status=$?
        case " $* " in
        *" $rank "*) [ $status = 137 ] || { echo "worker $rank was not killed: $status"; return 1; } ;;
        *) [ $status = 0 ] || { echo "worker $rank: $status"; cat err.$rank; return 1; } ;;
        esac
    done
    cat out.[0-9] >out
    same_as_one log 33 out
}
check "3 workers and a server, a worker is killed" killed 3 1 1
check "3 workers and a server, the chief is killed" killed 3 1 0
check "3 workers and a server, the server is killed" killed 3 1 3
check "2 workers and 2 servers, a server is killed" killed 2 2 2
check "2 workers and 2 servers, both servers are killed" killed 2 2 2 3
check "2 workers and a server, both workers are killed" killed 2 1 0 1

refused() { # TEXT COMMAND...
    local text=$1
    shift
    if "$@" >out 2>err; then return 1; fi
    grep -q -e "$text" err || { cat err; return 1; }
}
check "a cluster without servers" refused 'none of the 2 workers is one' \
    launch --workers 2 -- "$LOCKSTEP" train $(job 32) "${SERVERS[@]}"
check "a staleness without servers" refused 'staleness cannot be used with --strategy mirrored' \
    timeout 60 "$LOCKSTEP" train $(job 32) --strategy mirrored --staleness 3
check "a staleness beyond all bounds" refused "within \[0, 1000000000\]" \
    timeout 60 "$LOCKSTEP" train $(job 32) --strategy parameter-server --staleness 9223372036854775807
check "too many servers" refused 'servers' launch --workers 2 --servers 65 -- true
check "a process with another number of servers" refused 'parameter servers: 1' \
    launch --workers 2 --servers 1 --join-limit 2 -- sh -c "[ \$LOCKSTEP_RANK != 1 ] || unset LOCKSTEP_SERVERS; exec '$LOCKSTEP' train $(job 32)"

# A loop by hand has no strategy option: its first run still meets the others, and does not train alone.
by_hand() {
    if LOCKSTEP_RANK=0 LOCKSTEP_WORLD_SIZE=2 LOCKSTEP_SERVERS=1 LOCKSTEP_RENDEZVOUS=by-hand-$$ LOCKSTEP_JOIN_LIMIT=1 \
        timeout 60 "$ROOT/$LS_BUILD/examples/line" >out 2>&1; then return 1; fi
    grep -q 'worker 1 of 2 did not connect' out || { cat out; return 1; }
    timeout 60 "$ROOT/$LS_BUILD/examples/line" >one && launch --workers 2 --servers 1 -- "$ROOT/$LS_BUILD/examples/line" >out || return 1
    [ "$(grep -c -F -x "$(tail -n 1 one)" out)" = 1 ] || { cat one out; return 1; }
}
check "loops by hand" by_hand

# Without a cluster it is mirrored.
alone() { timeout 60 "$LOCKSTEP" train $(job 33) "${SERVERS[@]}" >out && same_as_one log 33 out; }
check "a process that is alone" alone
finish
