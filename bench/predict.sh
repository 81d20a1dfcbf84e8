#!/bin/sh
# Latency of one sample beside PyTorch, onnxruntime and TensorFlow Lite, in turns: PEERS=DIR bench/predict.sh PROGRAM [ROW...]
# PROGRAM is bench_predict, PEERS the environment of `make bench-peers`. ROUNDS=3  RUNS=100  THREADS=1 (of the peers)
set -eu

HERE=$(dirname "$0")
PROGRAM=$1
shift
ROWS=${*:-mnist-cnn mobilenetv2 resnet50}
PYTHON=${PEERS:-}/bin/python
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
frameworks="pytorch onnxruntime tflite"
[ -x "$PYTHON" ] || { echo "No peers in ${PEERS:-PEERS} (make bench-peers installs them): measured alone."; frameworks=; }
for row in $ROWS; do
    json=
    if [ "$row" = mobilenetv2 ]; then
        [ -n "$frameworks" ] || continue # its JSON comes from Keras
        json=$WORK/$row.json
        "$PYTHON" "$HERE/peers_predict.py" "$row" json "$json" 2>/dev/null
    fi
    round=0
    while [ "$round" -lt "${ROUNDS:-3}" ]; do
        round=$((round + 1))
        "$PROGRAM" "$row" "${RUNS:-100}" ${json:+"$json"}
        for framework in $frameworks; do
            "$PYTHON" "$HERE/peers_predict.py" "$row" "$framework" "${RUNS:-100}" 2>/dev/null || echo "$framework $row: failed"
        done
    done
done
