#!/bin/sh
# Compares an OpenCL device with our CPU device on the same cores: bench/opencl.sh COMMAND [DEVICE]
# Both train each row alternately, ROUNDS times; the minimum counts. The time of a step is the difference between a longer and a
# shorter training, in wall-clock time and in CPU time (user and system of all threads, which depends less on other processes).
# The first step is measured with newly compiled kernels (cold) and with those on disk (cached).
#   ROUNDS=3  ROWS="mnist-cnn resnet18"
set -eu

command=$1 device=${2:-opencl:0}
ROUNDS=${ROUNDS:-3}
ROWS=${ROWS:-mnist-cnn resnet18}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export POCL_CACHE_DIR="$work/pocl" LOCKSTEP_CACHE="$work/kernels"
mkdir -p "$POCL_CACHE_DIR"

# train ROW DEVICE STEPS: prints wall-clock seconds and CPU seconds.
train() {
    case $1 in
    mnist-cnn) set -- "$@" --data synthetic:count=8192 --batch-size 256 ;;
    *) set -- "$@" --input 64x64x3 --classes 10 --data synthetic:64x64x3,classes=10,count=512 --batch-size 32 ;;
    esac
    row=$1 on=$2 steps=$3
    shift 3
    /usr/bin/time -f '%e %U %S' -o "$work/time" "$command" train "$row" --seed 1 --max-steps "$steps" --devices "$on" "$@" \
        >"$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
    awk '{ print $1, $2 + $3 }' "$work/time"
}

# least FILE: the minimum of each column.
least() {
    awk 'NR == 1 || $1 < a { a = $1 } NR == 1 || $2 < b { b = $2 } END { print a, b }' "$1"
}

for row in $ROWS; do
    few=1 many=9
    [ "$row" != mnist-cnn ] || many=32 # of the same epoch: as many evaluations
    rm -rf "$POCL_CACHE_DIR" "$LOCKSTEP_CACHE" "$work"/*.few "$work"/*.many
    mkdir -p "$POCL_CACHE_DIR"
    cold=$(train "$row" "$device" 1)
    for round in $(seq "$ROUNDS"); do
        for on in cpu:0 "$device"; do
            train "$row" "$on" $few >>"$work/$on.few"
            train "$row" "$on" $many >>"$work/$on.many"
        done
    done
    for on in cpu:0 "$device"; do
        echo "$on $(least "$work/$on.few") $(least "$work/$on.many")"
    done | awk -v row="$row" -v steps=$((many - few)) -v cold="$cold" '
        { name[NR] = $1; first[NR] = $2; wall[NR] = ($4 - $2) / steps * 1000; used[NR] = ($5 - $3) / steps * 1000 }
        END {
            split(cold, c, " ")
            for (i = 1; i <= 2; i++)
                printf "%-10s %-9s %8.1f ms a step, %8.1f ms of processors\n", row, name[i], wall[i], used[i]
            printf "%-10s %s takes %.2f times the time of %s, %.2f times the CPU time; start and first step: %.1f s cold, %.2f s cached (%s: %.2f s)\n",
                row, name[2], wall[2] / wall[1], name[1], used[2] / used[1], c[1], first[2], name[1], first[1]
        }'
done
