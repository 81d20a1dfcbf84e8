#!/bin/sh
# The seed CNN at batch 256 on OpenCL beside tinygrad's OpenCL device, in turns: bench/opencl_peers.sh COMMAND PEERS [ROUNDS]
# PEERS: the virtual environment that tools/peers.sh makes. First steps are measured with nothing compiled (cold) and with what the
# run before left on disk (cached); a step's time is the least of all rounds. Ours is the difference of a longer and a shorter
# training, and its first steps are whole programs.
set -eu

command=$1 python=$2/bin/python rounds=${3:-3}
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export POCL_CACHE_DIR="$work/pocl" LOCKSTEP_CACHE="$work/kernels" XDG_CACHE_HOME="$work/cache"

# ours STEPS: seconds of a training
ours() {
    begin=$(date +%s.%N)
    "$command" train mnist-cnn --data synthetic:count=8192 --batch-size 256 --seed 1 --devices opencl:0 --max-steps "$1" \
        --verbose 0 >"$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
    echo "$begin $(date +%s.%N)" | awk '{ print $2 - $1 }'
}
theirs() { DEV=CL "$python" "$here/tinygrad_cnn.py" 12 2>"$work/err" || { cat "$work/err" >&2; exit 1; }; }
least() { sort -g | head -n 1; }
empty() { rm -rf "$POCL_CACHE_DIR" "$LOCKSTEP_CACHE" "$XDG_CACHE_HOME"; mkdir -p "$POCL_CACHE_DIR" "$XDG_CACHE_HOME"; }

empty
cold=$(ours 1)
for round in $(seq "$rounds"); do
    ours 1 >>"$work/one"
    ours 32 >>"$work/many"
done
cached=$(least <"$work/one")
step=$(echo "$(least <"$work/many") $cached" | awk '{ print ($1 - $2) / 31 }')

printf '%-24s %14s %14s %14s\n' "seed CNN, batch 256" "first, cold" "first, cached" "a step"
printf '%-24s %12.2f s %12.2f s %11.1f ms\n' "lockstep, opencl:0" "$cold" "$cached" "$(echo "$step" | awk '{ print $1 * 1000 }')"
if ! "$python" -c 'import tinygrad' 2>/dev/null; then
    echo "no tinygrad in $2 (tools/peers.sh installs it): measured alone"
    exit 0
fi
empty
theirs >"$work/first"
for round in $(seq "$rounds"); do theirs >>"$work/peer"; done
awk 'NR == FNR { cold = $2; next } FNR == 1 || $2 < c { c = $2 } FNR == 1 || $3 < s { s = $3 }
    END { printf "%-24s %12.2f s %12.2f s %11.1f ms\n", "tinygrad, DEV=CL", cold, c, s * 1000 }' "$work/first" "$work/peer"
