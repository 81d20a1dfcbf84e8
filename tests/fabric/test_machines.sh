#!/bin/sh
# Workers on two machines: network namespaces with a cable between them, hence addresses that are not loopback's, and TLS.
# Each time the weights are those of one process.
. "$(dirname "$0")/../support/lib.sh"

LOCKSTEP=$ROOT/$LS_BUILD/lockstep
ONE=ls$$a TWO=ls$$b
cd "$TMP"
trap 'remove_machines $ONE $TWO; rm -rf "$TMP"' EXIT
two_machines "two machines" $ONE $TWO 10.77.7
ip -n $ONE address add fd77::1/64 dev $ONE nodad && ip -n $TWO address add fd77::2/64 dev $TWO nodad

TRAIN="timeout -k 5 60 $LOCKSTEP train mnist-cnn --data synthetic --take 64 --verbose 0"
$TRAIN >alone 2>&1 && grep sha256 alone >wanted || { not_ok "one process trains" "$(cat alone)"; finish; }
"$LOCKSTEP" key key >/dev/null || { not_ok "a key is made" "$(ls -l)"; finish; }
KEY=LOCKSTEP_KEY_FILE=$TMP/key
mkdir folder

# on MACHINE "A=1 B=2": a worker with these variables
on() { ip netns exec $1 env LOCKSTEP_JOIN_LIMIT=20 $2 $TRAIN --strategy multi-worker; }
# both VARIABLES_OF_0 VARIABLES_OF_1
both() {
    on $TWO "$2" >one 2>&1 &
    on $ONE "$1" >zero 2>&1 || { cat zero one; wait $!; return 1; }
    wait $! || { cat one; return 1; }
    grep sha256 zero | cmp - wanted || { cat zero one; return 1; }
}
# meet COMMON: of both
meet() { both "$KEY LOCKSTEP_WORLD_SIZE=2 LOCKSTEP_RANK=0 $1" "$KEY LOCKSTEP_WORLD_SIZE=2 LOCKSTEP_RANK=1 $1"; }

check "at an address of worker 0" meet LOCKSTEP_RENDEZVOUS=tcp://10.77.7.1:20000
check "the same, IPv6" meet "LOCKSTEP_RENDEZVOUS=tcp://[fd77::1]:20000"
check "in a folder that both have" meet "LOCKSTEP_RENDEZVOUS=file://$TMP/folder"
empty() { [ -z "$(ls folder)" ] || { ls folder; return 1; }; }
check "nothing is left in it" empty

torch() {
    common="$KEY WORLD_SIZE=2 MASTER_ADDR=10.77.7.1 MASTER_PORT=20100"
    both "$common RANK=0" "$common RANK=1"
}
check "torchrun's variables" torch

tf() { echo "$KEY TF_CONFIG={\"cluster\":{\"worker\":[\"10.77.7.1:20200\",\"10.77.7.2:20201\"]},\"task\":{\"type\":\"worker\",\"index\":$1}}"; }
tf_config() { both "$(tf 0)" "$(tf 1)"; }
check "TF_CONFIG" tf_config

# Three workers, two of them on one machine: the third finds the second by worker 0.
three() {
    common="$KEY LOCKSTEP_WORLD_SIZE=3 LOCKSTEP_RENDEZVOUS=tcp://10.77.7.1:20300"
    on $TWO "$common LOCKSTEP_RANK=2" >two 2>&1 &
    third=$!
    both "$common LOCKSTEP_RANK=0" "$common LOCKSTEP_RANK=1" || { cat two; wait $third; return 1; }
    wait $third || { cat two; return 1; }
}
check "three workers" three

without_key() {
    common="WORLD_SIZE=2 MASTER_ADDR=10.77.7.1 MASTER_PORT=20100"
    if on $TWO "$common RANK=1" >out 2>&1; then cat out; return 1; fi
    grep -q '10.77.7.1 is not this machine' out && grep -q 'lockstep key FILE' out || { cat out; return 1; }
}
check "without a key they are refused, and the error explains how to make one" without_key

# A machine with another key is refused, and both sides report it.
other_key() {
    "$LOCKSTEP" key other >/dev/null
    common="LOCKSTEP_WORLD_SIZE=2 LOCKSTEP_RENDEZVOUS=tcp://10.77.7.1:20400"
    on $TWO "$common LOCKSTEP_RANK=1 LOCKSTEP_KEY_FILE=$TMP/other LOCKSTEP_JOIN_LIMIT=2" >one 2>&1 &
    if on $ONE "$common LOCKSTEP_RANK=0 $KEY LOCKSTEP_JOIN_LIMIT=5" >zero 2>&1; then cat zero one; return 1; fi
    if wait $!; then cat zero one; return 1; fi
    grep -q 'another key' zero && grep -q 'another key' one || { cat zero one; return 1; }
}
check "another key" other_key

# ---- Machines that vanish: no packet comes through any more, and no connection ends ----

long="train mnist-cnn --data synthetic --take 800 --epochs 3 --verbose 0 --log-hash"
steps() { sed -n 's/.*"step":\([0-9]*\),.*"hash":"\([0-9a-f]*\)".*/\1 \2/p' "$1"; }
cut() { for name in $ONE $TWO; do ip netns exec $name tc qdisc replace dev $name root blackhole || return 1; done; }
mend() { for name in $ONE $TWO; do ip netns exec $name tc qdisc del dev $name root || return 1; done; }

# vanishes PORT MACHINES...: those of workers 0, 1 and 2. Those on one machine go on; the other worker ends, and writes nothing.
vanishes() {
    common="$KEY LOCKSTEP_WORLD_SIZE=3 LOCKSTEP_RENDEZVOUS=tcp://$1 LOCKSTEP_JOIN_LIMIT=20 LOCKSTEP_SILENCE_LIMIT=2"
    shift
    rm -f log log.lease
    pids="" rank=0
    for machine in "$@"; do
        ip netns exec $machine env $common LOCKSTEP_RANK=$rank timeout -k 5 60 $LOCKSTEP $long --log log >out$rank 2>err$rank &
        pids="$pids $!" rank=$((rank + 1))
    done
    for i in $(seq 300); do
        [ ! -e log ] || [ "$(grep -c '"event":"step"' log)" -lt 5 ] || break
        sleep 0.05
    done
    cut || return 1
    rank=0 statuses=
    for pid in $pids; do
        status=0
        wait $pid || status=$?
        statuses="$statuses $status"
    done
    mend || return 1
    steps log | cmp - steps.wanted || { cat err?; return 1; }
}
survivors() { # STATUSES CHIEF ALONE
    [ "$statuses" = "$1" ] && grep sha256 out$2 | cmp - long.wanted || { echo "statuses$statuses"; cat out? err?; return 1; }
    grep -q 'is lost: it was silent for [0-9.]* s; 2 of 3 go on' err? && grep -q 'only 1 of 3 workers are on this side' err$3 ||
        { cat err?; return 1; }
}
last_vanishes() { vanishes 10.77.7.1:20500 $ONE $ONE $TWO && survivors " 0 0 1" 0 2; }
chief_vanishes() { vanishes 10.77.7.1:20600 $ONE $TWO $TWO && survivors " 1 0 0" 1 0; }
if cut 2>why && mend; then
    "$LOCKSTEP" $long --log log >alone && grep sha256 alone >long.wanted && steps log >steps.wanted
    check "a machine vanishes: found by silence, the others continue with the same bits" last_vanishes
    check "the chief's machine vanishes: the others continue, and it writes nothing more" chief_vanishes
else
    skip "a machine vanishes" "no packets can be dropped here: $(tail -n 1 why)"
fi
finish
