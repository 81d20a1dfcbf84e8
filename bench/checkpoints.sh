#!/bin/bash
# Measures the cost of checkpoints: bench/checkpoints.sh COMMAND [STEPS [ROUNDS [BATCH]]]
# Trains ResNet-50 alternately with a checkpoint every 10 steps and without any. Prints a line of JSON: the seconds per step of
# both (mean over a run, median of the runs), the difference in percent, and the seconds of one run in which training waited for
# copies and a thread wrote. The limit is 2 %. Files go to BENCH_DIR (default: here), which should be on a disk.
set -eu
command=$1 steps=${2:-20} rounds=${3:-3} batch=${4:-32}
dir=$(mktemp -d "${BENCH_DIR:-.}/checkpoints-XXXXXX")
trap 'rm -rf "$dir"' EXIT

# run NAME [MORE...]
run() {
    local name=$1
    shift
    rm -rf "$dir/ck"
    "$command" train resnet50 --data "synthetic:224x224x3,classes=1000,count=$((batch * 2))" --batch-size "$batch" \
        --max-steps "$steps" --epochs 1000 --optimizer sgd --momentum 0.9 --lr 0.01 --verbose 0 --log "$dir/log" "$@" >/dev/null
    awk -v steps="$steps" '
        function number(key) { match($0, "\"" key "\":[0-9.e+-]+"); return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 }
        /"event":"epoch"/ { seconds += number("seconds") }
        /"event":"checkpoint"/ { waited = number("waited_seconds"); written += number("seconds"); count++ }
        END { printf "%.4f %.4f %.4f %d\n", seconds / steps, waited, written, count }' "$dir/log" >>"$dir/$name"
}
for ((i = 0; i < rounds; i++)); do
    run without
    run with --checkpoint "$dir/ck" --save-every 10 --keep 1
done
median() { sort -n "$1" | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }
without=$(median "$dir/without") with=$(median "$dir/with")
read -r _ waited written count <"$dir/with"
awk -v a="$without" -v b="$with" -v w="$waited" -v s="$written" -v n="$count" -v batch="$batch" 'BEGIN {
    printf "{\"row\": \"resnet50-%d-checkpoints\", \"step_seconds\": %.4f, \"with_checkpoints\": %.4f, \"slower_percent\": %.2f, \"checkpoints\": %d, \"waited_seconds\": %.3f, \"written_in_seconds\": %.3f}\n",
        batch, a, b, 100 * (b / a - 1), n, w, s }'
