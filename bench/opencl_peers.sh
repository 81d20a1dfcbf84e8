#!/bin/sh
# Compares mnist-cnn at batch 256 on OpenCL with tinygrad's OpenCL device: bench/opencl_peers.sh COMMAND PEERS [ROUNDS]
# PEERS: the virtual environment that tools/peers.sh makes. Each round runs ours, then theirs, so that both see the same load of
# the machine; each has its own caches. The first round starts with nothing compiled (cold), the others with kernels on disk
# (cached). The minimum of all rounds counts. The time of our step is the difference between a longer and a shorter training; the
# time of our first step is that of a whole program.
set -eu

command=$1 python=$2/bin/python rounds=${3:-3}
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# with WHO COMMAND...: runs it with the caches of WHO
with() {
    who=$1
    shift
    mkdir -p "$work/$who/pocl"
    POCL_CACHE_DIR="$work/$who/pocl" LOCKSTEP_CACHE="$work/$who/kernels" XDG_CACHE_HOME="$work/$who" "$@" \
        2>"$work/said" || { cat "$work/said" >&2; exit 1; }
}
# ours STEPS: seconds of a training
ours() {
    begin=$(date +%s.%N)
    with ours "$command" train mnist-cnn --data synthetic:count=8192 --batch-size 256 --seed 1 --devices opencl:0 --max-steps "$1" \
        --verbose 0 >"$work/out"
    echo "$begin $(date +%s.%N)" | awk '{ print $2 - $1 }'
}
# theirs: a word, seconds of the first step, and of a later one
theirs() { DEV=CL with theirs "$python" "$here/tinygrad_cnn.py" 12; }

peer=yes
"$python" -c 'import tinygrad' 2>/dev/null || peer=
ours 1 >"$work/ours.cold"
[ -z "$peer" ] || theirs >"$work/theirs.cold"
for round in $(seq "$rounds"); do
    ours 1 >>"$work/ours.one"
    ours 32 >>"$work/ours.many"
    [ -z "$peer" ] || theirs >>"$work/theirs.rounds"
done

# row NAME COLD CACHED STEP: the minimum of each file's numbers, in seconds
row() { printf '%-24s %12.2f s %12.2f s %11.1f ms\n' "$1" "$2" "$3" "$(echo "$4" | awk '{ print $1 * 1000 }')"; }
least() { sort -g "$1" | head -n 1; }
# column N FILE
column() { awk -v n="$1" '{ print $n }' "$2" >"$work/column" && least "$work/column"; }

printf '%-24s %14s %14s %14s\n' "mnist-cnn, batch 256" "first, cold" "first, cached" "a step"
row "lockstep, opencl:0" "$(least "$work/ours.cold")" "$(least "$work/ours.one")" \
    "$(echo "$(least "$work/ours.many") $(least "$work/ours.one")" | awk '{ print ($1 - $2) / 31 }')"
if [ -n "$peer" ]; then
    row "tinygrad, DEV=CL" "$(column 2 "$work/theirs.cold")" "$(column 2 "$work/theirs.rounds")" "$(column 3 "$work/theirs.rounds")"
else
    echo "no tinygrad in $2 (tools/peers.sh installs it): measured alone"
fi
