#!/bin/sh
# Weights from and to the real packages, where `make bench-peers` has installed them: torchvision's resnet18 predicts here
# what it predicts there, and PyTorch, NumPy and Keras read what is written here.
. "$(dirname "$0")/../support/lib.sh"
. "$ROOT/tests/support/command.sh"

PYTHON=${PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/peers}/bin/python3
if ! timeout 120 "$PYTHON" -c 'import torchvision, safetensors, h5py, keras' >/dev/null 2>&1; then
    skip "weights of the real packages" "torchvision, safetensors and Keras are not installed (make bench-peers)"
    finish
fi
[ -z "$SANITIZE" ] || { skip "weights of the real packages" "the build without sanitizers is compared"; finish; }

peer() { timeout 300 "$PYTHON" tests/tool/peer_weights.py "$1" "$TMP" 2>&1; }
SMALLER="resnet18 --input 32x32x3 --classes 10"
FILES=tests/reference/weights

check "torchvision makes a state dict" peer make
check "it predicts" prints 'got.npy: ' predict $SMALLER --data "$TMP/images.npz" --set train --weights "$TMP/resnet18.safetensors" -o "$TMP/got.npy"
check "it is exported as safetensors" prints PyTorch export $SMALLER --weights "$TMP/resnet18.safetensors" -o "$TMP/torch.safetensors" --layout torch
check "and as .npz" prints PyTorch export $SMALLER --weights "$TMP/resnet18.safetensors" -o "$TMP/numpy.npz" --layout torch
for name in sequential functional embedding; do
    check "$name.keras" prints Keras export $FILES/$name.keras -o "$TMP/$name.keras"
    check "$name.weights.h5" prints Keras export $FILES/$name.json --weights $FILES/$name.weights.h5 -o "$TMP/$name.weights.h5"
done
check "PyTorch, NumPy and Keras agree" peer check
finish
