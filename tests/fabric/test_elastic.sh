#!/bin/bash
# Workers come to a job that runs, and come back: real processes, killed with kill -9 and started again. Each step has the
# hash of one process, and none is missing or there twice. A job with too few workers waits, and ends with a checkpoint.
. "$(dirname "$0")/../support/lib.sh"

LOCKSTEP=$ROOT/$LS_BUILD/lockstep
EPOCHS=60
small_model 4 >"$TMP/model.json"
small_model 5 >"$TMP/other.json"
data=(--data synthetic:12x12x1,classes=4,count=400 --batch-size 20 --verbose 2)
arguments=("$TMP/model.json" "${data[@]}" --log log --log-hash)

mkdir "$TMP/one" && cd "$TMP/one"
timeout 60 "$LOCKSTEP" train "${arguments[@]}" --epochs $EPOCHS >out 2>err

# worker RANK ARGUMENTS...: one more of the job, in the background; what it says is in out.RANK and err.RANK
worker() {
    local rank=$1
    shift
    LOCKSTEP_RANK=$rank LOCKSTEP_WORLD_SIZE=$begin LOCKSTEP_ELASTIC=$elastic LOCKSTEP_RENDEZVOUS=elastic-$name-$$ \
        LOCKSTEP_JOIN_LIMIT=${limit:-30} timeout -s KILL 100 "$LOCKSTEP" train "$@" >out.$rank 2>err.$rank &
    pids[rank]=$!
}

# begin NAME WORKERS MIN:MAX ARGUMENTS...: a job in a folder of its own
begin() {
    name=$1 begin=$2 elastic=$3 pids=()
    shift 3
    mkdir "$TMP/$name" && cd "$TMP/$name" || return 1
    for ((rank = 0; rank < begin; rank++)); do
        worker $rank "${arguments[@]}" --epochs $EPOCHS "$@"
    done
}

until_says() { # FILE TEXT: or no worker is left
    local pid alive=1
    until grep -q -e "$2" "$1" 2>/dev/null || [ $alive = 0 ]; do
        alive=0
        for pid in "${pids[@]}"; do kill -0 "$pid" 2>/dev/null && alive=1; done
        sleep 0.02
    done
    grep -q -e "$2" "$1" || { echo "'$2' is not in $1"; tail -n 5 out.* err.*; return 1; }
}

strike() { # RANK: killed, and waited for
    kill -KILL $(children "${pids[$1]}")
    wait "${pids[$1]}" 2>/dev/null
}

ends() {
    local rank
    for rank in "$@"; do
        wait "${pids[rank]}" || { echo "worker $rank ended with $?"; tail -n 5 out.$rank err.$rank; return 1; }
    done
}

same_steps() {
    step_hashes "$TMP/one/log" >wanted
    step_hashes log >found
    [ -s wanted ] && cmp wanted found
}

comes() {
    begin comes 2 1:4
    until_says log '"step":40,' || return 1
    worker 3 "${arguments[@]}" --epochs $EPOCHS
    until_says out.0 'worker 3 joins' || return 1
    ends 0 1 3 && same_steps
}
returns() { # RANK
    begin returns-$1 3 1:3
    until_says log '"step":40,' || return 1
    strike $1
    worker $1 "${arguments[@]}" --epochs $EPOCHS
    until_says out.$((1 - ($1 > 0))) "worker $1 joins" || return 1
    ends 0 1 2 && same_steps && one_tells $((1 - ($1 > 0)))
}
one_tells() { # RANK: only this worker prints the end of training
    [ "$(grep -l 'weights sha256' out.?)" = out.$1 ] || { tail out.?; return 1; }
}
# A worker that returned does not take over the log while its new owner runs; when all others are gone it does.
returns_alone() {
    begin alone 2 1:2
    until_says log '"step":40,' || return 1
    strike 0
    worker 0 "${arguments[@]}" --epochs $EPOCHS
    until_says out.1 'worker 0 joins' || return 1
    strike 1
    ends 0 && same_steps && one_tells 0
}
other_model() {
    begin other 2 1:4
    until_says log '"step":40,' || return 1
    worker 2 "$TMP/other.json" "${data[@]}" --epochs $EPOCHS
    ends 0 1 && same_steps || return 1
    ! wait "${pids[2]}" || { echo "it was let in"; return 1; }
    grep -q 'cannot continue from' err.2 || { cat err.2; return 1; }
}
too_few() {
    limit=1 begin few 2 2:2 --checkpoint ck --save-every 1000000
    until_says log '"step":40,' || return 1
    strike 1
    ! wait "${pids[0]}" || { echo "it went on"; return 1; }
    grep -q '1 worker is left, at least 2 are needed' err.0 && [ -e ck/last/state.json ] || { cat err.0; ls ck; return 1; }
    timeout 60 "$LOCKSTEP" train "${arguments[@]}" --epochs $EPOCHS --checkpoint ck --resume >out 2>err || { cat err; return 1; }
    same_steps
}
waits() {
    begin waits 2 2:2
    until_says log '"step":40,' || return 1
    strike 1
    until_says err.0 'worker 1 of 2 is lost' || return 1
    sleep 0.3
    worker 1 "${arguments[@]}" --epochs $EPOCHS
    ends 0 1 && same_steps
}
launched() {
    mkdir "$TMP/launched" && cd "$TMP/launched"
    timeout -s KILL 100 "$LOCKSTEP" launch --workers 3 --restarts 3 -- "$LOCKSTEP" train "${arguments[@]}" --epochs $EPOCHS \
        >out 2>err &
    pids=($!)
    until_says log '"step":40,' || return 1
    kill -KILL $(worker_of "$(children "${pids[0]}")" 2) || return 1
    until_says out 'joins; 3 of 3' || return 1
    wait "${pids[0]}" || { cat err; return 1; }
    same_steps
}

check "the run of one process ends well" test -s "$TMP/one/log"
check "a worker that joins later" comes
check "a worker that returns" returns 1
check "the chief returns" returns 0
check "the chief returns, and is the last member" returns_alone
check "a worker with another model is refused, and the job continues" other_model
check "a job with too few workers ends with a checkpoint" too_few
check "a job with too few workers waits for one" waits
check "launch starts a killed worker again, and it joins" launched
finish
