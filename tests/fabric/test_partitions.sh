#!/bin/bash
# Connections between machines are reset, with and without a partition of the network: at most one side goes on, and it has
# the bits of one process. Machines are network namespaces, each worker with a pid namespace of its own, so that nothing but the
# network tells one worker of another one's end.
. "$(dirname "$0")/../support/lib.sh"

LOCKSTEP=$ROOT/$LS_BUILD/lockstep
ONE=lp$$a TWO=lp$$b
cd "$TMP"
for command in ss unshare; do
    command -v $command >/dev/null 2>&1 || { skip "partitions" "there is no command $command"; finish; }
done
trap 'end_of_script; remove_machines $ONE $TWO; rm -rf "$TMP"' EXIT
two_machines "partitions" $ONE $TWO 10.77.8
ip netns exec $ONE unshare --pid --fork --mount-proc true 2>why ||
    { skip "partitions" "pid namespaces are not permitted here: $(tail -n 1 why)"; finish; }

# ss lists the connections that it has reset.
reset() {
    ip netns exec $ONE ss -K dst 10.77.8.2 >>resets 2>&1
    ip netns exec $TWO ss -K dst 10.77.8.1 >>resets 2>&1
}
black_hole() { ip -n $ONE route add blackhole 10.77.8.2/32 && ip -n $TWO route add blackhole 10.77.8.1/32; }
mend() {
    ip -n $ONE route del blackhole 10.77.8.2/32 2>/dev/null || true
    ip -n $TWO route del blackhole 10.77.8.1/32 2>/dev/null || true
}

LONG="train mnist-cnn --data synthetic --take 800 --epochs 3 --verbose 0 --log-hash"
"$LOCKSTEP" key key >/dev/null || { not_ok "a key is made" "$(ls -l)"; finish; }
timeout -k 5 120 "$LOCKSTEP" $LONG --log log >alone 2>&1 && grep sha256 alone >wanted && step_hashes log >steps.wanted ||
    { not_ok "one process trains" "$(cat alone)"; finish; }

# job PORT MACHINES...: a worker on each; waits until a few steps are made
job() {
    common="LOCKSTEP_KEY_FILE=$TMP/key LOCKSTEP_WORLD_SIZE=$(($# - 1)) LOCKSTEP_RENDEZVOUS=tcp://10.77.8.1:$1 LOCKSTEP_JOIN_LIMIT=60
        LOCKSTEP_SILENCE_LIMIT=3 ${servers:-}"
    shift
    rm -rf log* saved* csv checkpoints out? err?
    pids=() rank=0
    for machine in "$@"; do
        ip netns exec $machine env $common LOCKSTEP_RANK=$rank timeout -k 5 100 unshare --pid --fork --kill-child --mount-proc \
            "$LOCKSTEP" $LONG --log log --save saved --csv csv --checkpoint checkpoints --save-every 10 >out$rank 2>err$rank &
        pids+=($!) rank=$((rank + 1))
    done
    for i in $(seq 600); do
        [ ! -e log ] || [ "$(grep -c '"event":"step"' log)" -lt 5 ] || return 0
        sleep 0.05
    done
    cat out? err?
    return 1
}
# ended: statuses of the workers
ended() {
    statuses=
    for pid in "${pids[@]}"; do
        status=0
        wait $pid || status=$?
        statuses="$statuses $status"
    done
    mend
}
# went_on STATUSES CHIEF: these, and CHIEF alone has saved; the log has every step once, with the bits of one process
went_on() {
    [ "$statuses" = "$1" ] || { echo "statuses$statuses"; cat out? err?; return 1; }
    [ "$(grep -l '^saved:' out?)" = out$2 ] && grep sha256 out$2 | cmp - wanted || { tail -n 20 out? err?; return 1; }
    step_hashes log | cmp - steps.wanted || { cat err?; return 1; }
    [ "$(wc -l <csv)" = 4 ] || { cat csv; return 1; }
    ! ls -a . checkpoints | grep lease || return 1
}

two() { job 21000 $ONE $TWO && reset && ended && went_on " 0 0" 0 && grep -q 'connected again' err?; }
check "two workers whose connections are reset reconnect" two >first
grep -q 10.77.8 resets || { skip "partitions" "connections cannot be reset here: $(tail -n 1 resets)"; finish; }
cat first

halves() { job 21100 $ONE $ONE $TWO $TWO && black_hole && reset && ended && went_on " 0 0 1 1" 0 && grep -q 'only 2 of 4 workers' err2 err3; }
check "two halves: that of the first worker continues, the other ends and writes nothing" halves

chief_alone() { job 21200 $ONE $TWO $TWO && black_hole && reset && ended && went_on " 1 0 0" 1; }
check "the chief alone: the others continue, it ends and writes nothing more" chief_alone

one_way() { job 21300 $ONE $ONE $TWO && ip -n $ONE route add blackhole 10.77.8.2/32 && reset && ended && went_on " 0 0 1" 0; }
check "one way only: the larger side continues" one_way

reconnects() {
    job 21400 $ONE $TWO $TWO && reset && sleep 0.2 && reset && ended && went_on " 0 0 0" 0 || return 1
    grep -q 'connected again' err0 || { cat err?; return 1; }
}
check "without a partition all workers reconnect, and none is dropped" reconnects

# The process that `unshare` started, which is no child of this shell.
worker() { tr -d ' ' </proc/$1/task/$1/children | grep . || return 1; }
kill_worker() { # the timeout's child is unshare, whose child is the worker
    local at=${pids[$1]} next
    while next=$(worker $at); do at=$next; done
    kill -9 $at
}
# The kernel of a killed process resets the connection instead if bytes of the other wait unread there: no proof.
killed() {
    for try in 0 1 2; do
        job 215${try}0 $ONE $TWO && kill_worker 0 && ended || return 1
        ! went_on " 1 0" 1 || return 0 # 1 is the status of unshare
        grep -q 'Connection reset by peer; only 1 of 2 workers' err1 || return 1
    done
    return 1
}
check "one of two workers is killed: its kernel reports it, and the other continues" killed

# The two remaining workers lose their connection for a moment, when no other worker has their addresses.
without_the_first() {
    job 21550 $ONE $ONE $TWO && kill_worker 0 && sleep 0.4 && black_hole && reset && sleep 0.3 && mend && ended && went_on " 1 0 0" 1
}
check "workers reconnect without worker 0, which gave them their addresses" without_the_first

# Asynchronous parameter servers: a process whose connections are reset calls again, and no batch is lost or counted twice. Those
# that are cut off from the chief end with a status, and write nothing.
asynchronous() {
    LONG="train mnist-cnn --data synthetic --take 800 --epochs 12 --verbose 0 --strategy parameter-server --staleness 4"
    servers="LOCKSTEP_SERVERS=1" job "$@"
}
resets_of_servers() {
    asynchronous 21600 $ONE $TWO $TWO && reset && sleep 0.3 && reset && ended || return 1
    [ "$statuses" = " 0 0 0" ] && [ "$(grep -l '^saved:' out?)" = out0 ] || { echo "statuses$statuses"; tail -n 20 out? err?; return 1; }
    [ "$(grep -c '"event":"step"' log)" = 300 ] || { tail -n 3 log; return 1; }
}
check "asynchronous processes whose connections are reset call again, and every batch counts once" resets_of_servers
cut_off() {
    asynchronous 21700 $ONE $TWO $ONE && black_hole && reset && ended || return 1
    [ "$statuses" = " 0 1 0" ] && [ "$(grep -l '^saved:' out?)" = out0 ] || { echo "statuses$statuses"; tail -n 20 out? err?; return 1; }
    [ "$(grep -c '"event":"step"' log)" = 300 ] || { tail -n 3 log; return 1; }
}
check "an asynchronous worker that is cut off ends, and the others continue" cut_off
finish
