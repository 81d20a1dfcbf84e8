#!/bin/sh
# Compares two workers of one core each with the peers; rounds alternate, and the best of each counts: bench/workers.sh BUILD
# Rows of bench_train (whole epochs): our two workers, our one process with two cores, PyTorch's DistributedDataParallel with
# gloo, TensorFlow's MultiWorkerMirroredStrategy. Then all-reduce with 2 and 4 processes, compared with gloo and Open MPI.
#   ROUNDS=3  ROWS="cnn-256 cnn-4096 resnet50 allreduce"  PEERS=dir  QUICK=1 (tiny sizes, only a test that it works)
#   WITH="pytorch-ddp pytorch-ddp-channels-last tensorflow-workers" (which peers train)
# Needs two idle cores. The table says which peers are missing.
set -eu

HERE=$(dirname "$0")
BUILD=${1:-build}
ROUNDS=${ROUNDS:-3}
ROWS=${ROWS:-cnn-256 cnn-4096 resnet50 allreduce}
QUICK=${QUICK:-}
WITH=${WITH:-pytorch-ddp pytorch-ddp-channels-last tensorflow-workers}
PEERS=${PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/peers}
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
: >"$WORK/lines"
status=0

# take VARIANT COMMAND...: stores its lines of JSON after the variant's name.
take() {
    variant=$1
    shift
    if "$@" >"$WORK/out" 2>"$WORK/err" && grep '^{' "$WORK/out" >"$WORK/json"; then
        sed "s/^/$variant /" "$WORK/json" >>"$WORK/lines"
        sed -n "s/.*\"seconds\": \([-0-9.e]*\).*/  $round\/$ROUNDS $row $variant: \1 s/p" "$WORK/json"
    else
        tail -n 3 "$WORK/err" >&2
        echo "  $row $variant was not measured: $(head -c 200 "$WORK/out")" >&2
        status=1
    fi
}

peer() {
    [ ! -x "$PEERS/bin/python" ] || take "$1" "$PEERS/bin/python" "$HERE/peers.py" "$row" "$1" --epochs "$peer_epochs" $size
}

training() {
    case $row in
    resnet50) size=${QUICK:+--samples=4} our_epochs=3 peer_epochs=2 ;;
    *) size=${QUICK:+--samples=5000} our_epochs=3 peer_epochs=2 ;;
    esac
    take workers "$BUILD/lockstep" launch --workers 2 -- "$BUILD/bench/bench_train" "$row" --epochs "$our_epochs" $size
    take process "$BUILD/bench/bench_train" "$row" --epochs "$our_epochs" $size
    for name in $WITH; do
        peer $name
    done
}

all_reduce() {
    for workers in 2 4; do
        take ours "$BUILD/bench/bench_allreduce" $workers 5
        [ -x "$PEERS/bin/python" ] || continue
        take gloo "$PEERS/bin/python" "$HERE/peers_allreduce.py" gloo $workers 5
        ! mpirun --version 2>/dev/null | grep -q 'Open MPI' ||
            take openmpi "$PEERS/bin/python" "$HERE/peers_allreduce.py" mpi $workers 5
    done
}

[ -x "$PEERS/bin/python" ] || echo "No peers in $PEERS (make bench-peers installs them): measured alone."
round=1
while [ "$round" -le "$ROUNDS" ]; do
    for row in $ROWS; do
        case $row in
        allreduce) all_reduce ;;
        *) training ;;
        esac
    done
    round=$((round + 1))
done
awk -v rounds="$ROUNDS" -v quick="$QUICK" -f "$HERE/workers.awk" "$WORK/lines"
exit $status
