#!/bin/sh
# Time of a training step beside PyTorch and TensorFlow, in turns: PEERS=DIR bench/steps.sh PROGRAM [ROW...]
# PROGRAM is bench_steps, PEERS the environment of `make bench-peers`. ROUNDS=3  STEPS=10
set -eu

HERE=$(dirname "$0")
. "$HERE/turns.sh"
begin "lstm mobilenetv2 efficientnetb0 gpt-small" "$@"
for row in $ROWS; do
    case $row in
    lstm) frameworks="pytorch tensorflow" json= ;;
    gpt-small) frameworks="pytorch compiled" json= ;;
    *) frameworks="pytorch tensorflow" json=$WORK/$row.json ;;
    esac
    if [ ! -x "$PYTHON" ]; then
        [ -z "$json" ] || continue # Keras writes it
        frameworks=
    fi
    take_turns "$HERE/peers_steps.py" "$row" "${STEPS:-10}" "$json" $frameworks
done
