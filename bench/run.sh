#!/bin/sh
# Runs the benchmarks one after another, never two at once: bench/run.sh PROGRAM...
# Programs print their own tables. bench_train comes last: each row alternates with the peers in $PEERS ("rounds"), and the
# best of each counts; a table of all rows follows. A benchmark that fails or is missing does not stop the rest.
#   ROUNDS=3  ROWS="cnn-4096 ..."  QUICK=1 (tiny sizes, only a test that it works)  BENCH_JSON=build/bench.json
set -eu

HERE=$(dirname "$0")
ROUNDS=${ROUNDS:-3}
ROWS=${ROWS:-cnn-4096 cnn-256 wide resnet50}
QUICK=${QUICK:-}
BENCH_JSON=${BENCH_JSON:-build/bench.json}
PEERS=${PEERS:-}
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

status=0
train=
[ $# -gt 0 ] || echo "no benchmarks: bench/ has no bench_*.c"
for program in "$@"; do
    [ "${program##*/}" != bench_train ] || { train=$program; continue; }
    name=$(basename "$program")
    script=$HERE/${name#bench_}.sh # runs the program in turns with peers
    echo "== $name"
    case $name in
    bench_steps | bench_predict) PEERS=$PEERS ROUNDS=$ROUNDS "$script" "$program" ;;
    *) "$program" ;;
    esac || { echo "$(basename "$program") failed with status $?" >&2; status=1; }
done
[ -n "$train" ] || exit $status

# take VARIANT COMMAND...: runs it and stores its line of JSON after the variant's name.
take() {
    variant=$1
    shift
    if ! "$@" >"$WORK/out" 2>"$WORK/err"; then
        cat "$WORK/err" >&2
        echo "  $row $variant failed" >&2
        status=1
    elif line=$(grep '^{' "$WORK/out"); then
        echo "$variant $line" >>"$WORK/lines"
        echo "$line" | awk -v what="$round/$ROUNDS $row $variant" '{
            match($0, /"seconds": [0-9.]+/)
            printf "  %-36s %9.3f s\n", what, substr($0, RSTART + 11, RLENGTH - 11) }'
    else
        echo "  $row $variant: $(cat "$WORK/out")"
    fi
}

ours() {
    take "$1" "$train" "$row" --epochs "$our_epochs" $size $2
}

echo "== $(basename "$train")"
if [ -x "$PEERS/bin/python" ]; then
    frameworks="tensorflow pytorch"
else
    frameworks=
    echo "No peers in ${PEERS:-PEERS} (make bench-peers installs them): measured alone."
fi
: >"$WORK/lines"
for row in $ROWS; do
    our_epochs=4
    case $row in
    resnet50) peer_epochs=3 size=${QUICK:+--samples=4} ;;
    wide) peer_epochs=2 size=${QUICK:+--samples=300} ;;
    *) peer_epochs=2 size=${QUICK:+--samples=5000} ;;
    esac
    round=1
    while [ "$round" -le "$ROUNDS" ]; do
        ours ours ""
        case $row in cnn-4096 | resnet50) ours one-core --threads=1 ;; esac
        case $row in cnn-4096) ours two-devices --devices=2 ;; esac
        case $row in cnn-*) [ -n "$QUICK" ] || take through-command "$HERE/command.sh" "${train%/bench/*}/lockstep" "${row#cnn-}" 3 ;; esac
        case $row in cnn-4096) more=${frameworks:+tensorflow-mirrored} ;; *) more= ;; esac
        for framework in $frameworks $more; do
            take "$framework" "$PEERS/bin/python" "$HERE/peers.py" "$row" "$framework" --epochs "$peer_epochs" $size
        done
        round=$((round + 1))
    done
done

mkdir -p "$(dirname "$BENCH_JSON")"
awk -v json="$BENCH_JSON" -v rounds="$ROUNDS" -v quick="${QUICK:+1}" -v date="$(date -u +%Y-%m-%dT%H:%M:%SZ)" \
    -v cpu="$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" -f "$HERE/table.awk" "$WORK/lines"
exit $status
