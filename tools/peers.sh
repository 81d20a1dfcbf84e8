#!/bin/sh
# Installs the frameworks that benchmarks are measured beside, and TensorBoard, which a test reads event files with, into a
# virtual environment: tools/peers.sh DIR
# DIR lies outside the tree, so that cleaning the tree does not cost the download again.
set -eu

[ $# = 1 ] || { echo "usage: tools/peers.sh DIR" >&2; exit 2; }
DIR=$1
"$(dirname "$0")/deps.sh" install peers
if [ ! -x "$DIR/bin/pip" ]; then
    echo "Making a Python environment in $DIR"
    python3 -m venv "$DIR"
fi
echo "Installing into $DIR: tensorflow-cpu tensorboard torch torchvision safetensors tinygrad"
"$DIR/bin/pip" install --quiet --disable-pip-version-check tensorflow-cpu tensorboard torch torchvision safetensors tinygrad
# Its own list of needs has another build of TensorFlow.
"$DIR/bin/pip" install --quiet --disable-pip-version-check --no-deps tf_keras
"$DIR/bin/pip" list --disable-pip-version-check 2>/dev/null | grep -iE '^(tensor|torch|tinygrad)' || true
