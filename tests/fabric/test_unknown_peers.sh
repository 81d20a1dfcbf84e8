#!/bin/bash
# Unknown peers that connect to a job that runs over tcp: garbage, half of a preamble, connections that send nothing, thousands
# of them, workers without a key and with another one. All are refused, both sides report it, and each step has the hash of
# one process. (test_transport.c tries the same before a job begins, with other versions, too; test_elastic.sh another model.)
. "$(dirname "$0")/../support/lib.sh"

LOCKSTEP=$ROOT/$LS_BUILD/lockstep
cd "$TMP"
arguments=(train mlp --data synthetic:28x28x1,classes=4,count=400 --batch-size 20 --epochs 1000000 --verbose 0 --log-hash)
until_says() { # FILE TEXT
    for i in $(seq 600); do
        ! grep -q -e "$2" "$1" 2>/dev/null || return 0
        sleep 0.05
    done
    echo "'$2' is not in $1"
    tail -n 5 out.* err.*
    return 1
}

"$LOCKSTEP" key key >/dev/null && "$LOCKSTEP" key other >/dev/null

# A free port: those after it are for further contexts.
PORT=$((20000 + $$ % 8000 * 5))
while (exec 3<>/dev/tcp/127.0.0.1/$PORT) 2>/dev/null; do PORT=$((PORT + 50)); done

# worker RANK KEY_FILE
worker() {
    local rank=$1 key=$2
    LOCKSTEP_RANK=$rank LOCKSTEP_WORLD_SIZE=2 LOCKSTEP_ELASTIC=1:4 LOCKSTEP_RENDEZVOUS=tcp://127.0.0.1:$PORT LOCKSTEP_KEY_FILE=$key \
        LOCKSTEP_JOIN_LIMIT=${limit:-30} timeout -k 5 200 "$LOCKSTEP" "${arguments[@]}" --log ${log:-log} >out.$rank 2>err.$rank
}
worker 0 key &
chief=$!
worker 1 key &
second=$!
check "a job begins" until_says log '"step":20,'

call() { exec {connection}<>/dev/tcp/127.0.0.1/$PORT; } # opens $connection
garbage() {
    for i in 1 2 3 4 5; do
        call && { head -c 100000 /dev/urandom >&$connection; exec {connection}>&-; } 2>/dev/null
    done
    call && printf 'GET / HTTP/1.1\r\n\r\n' >&$connection && exec {connection}>&-
}
check "garbage" garbage
held=()
half_open() {
    for i in $(seq 100); do
        call || return 1
        held+=($connection)
        [ $((i % 2)) = 0 ] || printf 'half of it' >&$connection 2>/dev/null || true # it may have been dropped for others
    done
}
check "100 connections that send half of a preamble, or nothing" half_open
many() {
    for i in $(seq 1000); do
        call 2>/dev/null || { echo "connection $i was refused"; return 1; }
        exec {connection}>&-
    done
}
check "1,000 connections, one after the other" many # test_transport.c has 10,000
another_key() {
    if log=log.2 limit=2 worker 2 other; then echo "it was accepted"; return 1; fi
    grep -q 'another key' err.2 || { cat err.2; return 1; }
}
check "a worker with another key gets an error" another_key
no_key() {
    if log=log.3 limit=2 worker 3 ""; then echo "it was accepted"; return 1; fi
    grep -q 'lockstep key FILE' err.3 || { cat err.3; return 1; }
}
check "a worker without a key: the error explains how to make one" no_key
for connection in "${held[@]}"; do exec {connection}>&-; done

# It goes on for 20 steps more, and is then stopped; one process that makes as many steps has the same hashes.
goes_on() {
    last=$(step_hashes log | tail -n 1 | cut -d' ' -f1)
    until_says log "\"step\":$((last + 20))," || return 1
    kill -TERM "$(children "$(children $chief)")" # what timeout waits for: it would pass a signal on twice
    wait $chief || [ $? = 143 ] || { cat err.0; return 1; }
    wait $second || [ $? = 143 ] || { cat err.1; return 1; }
    step_hashes log >found
    "$LOCKSTEP" "${arguments[@]}" --max-steps $(wc -l <found) --log one >out 2>&1 || { cat out; return 1; }
    step_hashes one | cmp - found
}
check "the job goes on, with the same bits" goes_on
check "and logs the refused connections" grep -q 'refused connections to worker 0: .*callers* ' err.0
finish
