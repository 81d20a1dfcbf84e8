#!/bin/sh
# Latency of one sample beside PyTorch, onnxruntime and TensorFlow Lite, in turns: PEERS=DIR bench/predict.sh PROGRAM [ROW...]
# PROGRAM is bench_predict, PEERS the environment of `make bench-peers`. ROUNDS=3  RUNS=100  THREADS=1 (of the peers)
set -eu

HERE=$(dirname "$0")
. "$HERE/turns.sh"
begin "mnist-cnn mobilenetv2 resnet50" "$@"
for row in $ROWS; do
    frameworks="pytorch onnxruntime tflite"
    case $row in mobilenetv2) json=$WORK/$row.json ;; *) json= ;; esac
    if [ ! -x "$PYTHON" ]; then
        [ -z "$json" ] || continue # Keras writes it
        frameworks=
    fi
    take_turns "$HERE/peers_predict.py" "$row" "${RUNS:-100}" "$json" $frameworks
done
