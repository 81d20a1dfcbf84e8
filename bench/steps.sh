#!/bin/sh
# Time of a training step beside PyTorch and TensorFlow, in turns: PEERS=DIR bench/steps.sh PROGRAM [ROW...]
# PROGRAM is bench_steps, PEERS the environment of `make bench-peers`. ROUNDS=3  STEPS=10
set -eu

HERE=$(dirname "$0")
PROGRAM=$1
shift
ROWS=${*:-lstm mobilenetv2 efficientnetb0 gpt-small}
PYTHON=${PEERS:-}/bin/python
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
[ -x "$PYTHON" ] || echo "No peers in ${PEERS:-PEERS} (make bench-peers installs them): measured alone."
for row in $ROWS; do
    json=
    if [ ! -x "$PYTHON" ]; then
        case $row in lstm | gpt-small) "$PROGRAM" "$row" "${STEPS:-10}" ;; esac # the others are Keras's JSON
        continue
    fi
    case $row in
    lstm) frameworks="pytorch tensorflow" ;;
    gpt-small) frameworks="pytorch compiled" ;;
    *)
        frameworks="pytorch tensorflow"
        json=$WORK/$row.json
        "$PYTHON" "$HERE/peers_steps.py" "$row" json "$json" 2>/dev/null
        ;;
    esac
    for round in $(seq "${ROUNDS:-3}"); do
        "$PROGRAM" "$row" "${STEPS:-10}" ${json:+"$json"}
        for framework in $frameworks; do
            "$PYTHON" "$HERE/peers_steps.py" "$row" "$framework" "${STEPS:-10}" 2>/dev/null || echo "$framework $row: failed"
        done
    done
done
