#!/bin/bash
# Asynchronous parameter servers that record what they apply, as processes: `lockstep replay` has the weights of each run,
# also of runs in which a worker or a server was killed, on any devices. Missing and changed files are reported.
# LS_REPLAYS=20 makes each of them so often (`make soak-workers`).
. "$(dirname "$0")/../support/lib.sh"

LOCKSTEP=$ROOT/$LS_BUILD/lockstep
launch() { timeout -k 5 100 "$LOCKSTEP" launch "$@"; }
export LOCKSTEP_GRACE=5 LOCKSTEP_SILENCE_LIMIT=20
small_model 4 >"$TMP/model.json"
mkdir "$TMP/run" && cd "$TMP/run"
TRAIN=(train "$TMP/model.json" --data synthetic:12x12x1,classes=4,count=407 --batch-size 20 --verbose 0
    --strategy parameter-server --staleness 6 --record rec)

weights() { sed -n 's/^weights sha256: //p' "$1"; }

# replays OUT ARGUMENTS...: with the weights that OUT tells, on one device, or as said
replays() {
    local out=$1
    shift
    timeout 60 "$LOCKSTEP" replay rec --verbose 0 "$@" >replayed 2>errors || { cat errors; return 1; }
    grep -q 'all hashes match the record' replayed || { cat replayed; return 1; }
    [ -n "$(weights "$out")" ] && [ "$(weights "$out")" = "$(weights replayed)" ] || { cat "$out" replayed; return 1; }
}

# run WORKERS SERVERS ARGUMENTS...: trains under lockstep launch, and replays
run() {
    local workers=$1 servers=$2
    shift 2
    rm -f rec rec.*
    launch --workers $workers --servers $servers -- "$LOCKSTEP" "${TRAIN[@]}" "$@" >out 2>err || { cat err; return 1; }
    replays out --devices $((1 + RANDOM % 2))
}

# struck WORKERS SERVERS RANK: that process is killed while the job runs, and started again by lockstep launch
struck() {
    local workers=$1 servers=$2 rank=$3 pid victim status=0
    rm -f rec rec.*
    launch --workers $workers --servers $servers --restarts 1 -- sh -c "echo \$\$ >pid.\$LOCKSTEP_RANK; exec '$LOCKSTEP' $(printf "'%s' " "${TRAIN[@]}" --epochs 20)" >out 2>err &
    pid=$!
    while kill -0 $pid 2>/dev/null && { [ ! -s rec ] || [ "$(wc -l <rec)" -lt 40 ]; }; do sleep 0.01; done
    victim=$(cat pid.$rank)
    kill -KILL "$victim" || { echo "it was over before"; cat err; return 1; }
    wait $pid || status=$?
    [ $status = 0 ] || { echo "status $status"; cat err out; return 1; }
    grep -q "worker $rank" err || { echo "nobody was killed"; cat err; return 1; }
    replays out
}

# goes_on: from a checkpoint, which is inside of a version
goes_on() {
    rm -rf c
    run 2 2 --epochs 1 --accumulate 2 --checkpoint c || return 1
    rm -f rec rec.*
    launch --workers 2 --servers 2 -- "$LOCKSTEP" "${TRAIN[@]}" --epochs 3 --accumulate 2 --checkpoint c --resume >out 2>err || { cat err; return 1; }
    replays out --from c/step-00000021 || return 1
    refused 'server 0 began with version 10, this model is at version 0' rec
}

# interrupted: SIGTERM while it runs; the replay ends where the training did
interrupted() {
    local pid status=0
    rm -f rec rec.*
    timeout --foreground -k 20 100 "$LOCKSTEP" launch --workers 2 --servers 2 -- "$LOCKSTEP" "${TRAIN[@]}" --epochs 2000 >out 2>err &
    pid=$!
    while kill -0 $pid 2>/dev/null && { [ ! -s rec ] || [ "$(wc -l <rec)" -lt 40 ]; }; do sleep 0.01; done
    kill -TERM $pid # timeout passes it on, once
    wait $pid || status=$?
    [ $status = 143 ] || [ $status = 124 ] || { echo "status $status"; cat err; return 1; }
    replays out
}

refused() { # TEXT ARGUMENTS...
    local text=$1
    shift
    if timeout 60 "$LOCKSTEP" replay "$@" >replayed 2>errors; then return 1; fi
    grep -q -e "$text" errors || { cat errors; return 1; }
}

for i in $(seq ${LS_REPLAYS:-1}); do
    check "1 server, 3 workers ($i)" run 3 1 --epochs 2
    check "2 servers, 3 workers ($i)" run 3 2 --epochs 2
    check "3 servers, 1 worker ($i)" run 1 3 --epochs 1
    check "2 servers that add up, rates by staleness, overlapped ($i)" run 3 2 --epochs 2 --accumulate 3 --scale-by-staleness --overlap
    check "versions that are not whole at the end of an epoch, and of training ($i)" run 3 1 --epochs 3 --accumulate 2 --overlap
    check "a schedule, and another optimizer ($i)" run 2 1 --epochs 2 --optimizer sgd --momentum 0.9 --lr 0.1 --schedule cosine
    check "training that goes on ($i)" goes_on
    check "training that a signal ends ($i)" interrupted
    check "a worker is killed ($i)" struck 3 1 2
    check "a server is killed ($i)" struck 3 1 3
    check "one of two servers is killed ($i)" struck 2 2 3
done

# ---- Errors ----

run 2 2 --epochs 1 >/dev/null || not_ok "a run to spoil" "$(cat err)"
cp rec good && cp rec.1 good.1
restore() { cp good rec && cp good.1 rec.1; }
check "from another folder" sh -c "mkdir -p '$TMP/other' && cd '$TMP/other' && timeout 60 '$LOCKSTEP' replay ../run/rec --verbose 0 | grep 'all hashes match'"
check "a missing file" refused "there is no 'none'\|No such file" none
check "a file that is not a record" refused 'is not a record of parameter servers' "$TMP/model.json"
missing() { rm rec.1 && refused 'the record of server 1 of 2 is missing' rec; }
check "a server's file is missing" missing
restore
torn() { head -c -500 good.1 >rec.1 && refused "of server 1 was read, but 'rec.1' has versions 0 to" rec; }
check "a server's file is torn, and others read what is missing" torn
restore
both_torn() { # the last line of both: no worker has read its version
    head -c -30 good >rec && head -c -30 good.1 >rec.1
    timeout 60 "$LOCKSTEP" replay rec --verbose 0 >replayed 2>errors || { grep -q 'an incomplete record' errors; return; }
    grep -q 'last line of the record is incomplete' replayed
}
check "a last line that was cut short" both_torn
restore
check "another batch size" refused 'batch_size is 20 in the first and 10 in the second' rec --batch-size 10
check "other data" refused 'fit/data' rec --data synthetic:12x12x1,classes=4,count=300
check "another seed" refused 'differ\|is .* in the first\|not have the weights' rec --seed 9
check "a strategy of several processes" refused 'a replay runs in one process' rec --strategy parameter-server
other_id() { sed '1s/"id":"./"id":"x/' good.1 >rec.1 && refused "'rec.1' is not a record" rec; }
check "a changed head" other_id
finish
