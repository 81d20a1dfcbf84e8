#!/bin/sh
# Trains one row with the command, with progress and metrics: bench/command.sh COMMAND BATCH EPOCHS [MORE...]
# Prints a line of JSON like that of bench_train; the seconds of an epoch come from the log, without validation.
set -eu
log=$(mktemp)
trap 'rm -f "$log"' EXIT
command=$1 batch=$2 epochs=$3
shift 3
"$command" train mnist-cnn --data fashion-mnist --batch-size "$batch" --epochs "$epochs" --log "$log" "$@" >/dev/null
awk -v row="cnn-$batch" '/"event":"epoch"/ {
    match($0, /"seconds":[0-9.e+-]+/)
    seconds = substr($0, RSTART + 10, RLENGTH - 10) + 0
    best = !best || seconds < best ? seconds : best
}
END { printf "{\"row\": \"%s\", \"framework\": \"command\", \"seconds\": %.4f, \"img_per_s\": %.2f}\n", row, best, 60000 / best }' "$log"
