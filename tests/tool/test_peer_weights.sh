#!/bin/sh
# Weights from and to the real packages, where `make bench-peers` has installed them: torchvision's networks and those of
# keras.applications predict here what they predict there, and PyTorch, NumPy and Keras read what is written here.
. "$(dirname "$0")/../support/lib.sh"
. "$ROOT/tests/support/command.sh"

PYTHON=${PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/peers}/bin/python3
if ! timeout 120 "$PYTHON" -c 'import torchvision, safetensors, h5py, keras' >/dev/null 2>&1; then
    skip "weights of the real packages" "torchvision, safetensors and Keras are not installed (make bench-peers)"
    finish
fi
[ -z "$SANITIZE" ] || { skip "weights of the real packages" "the build without sanitizers is compared"; finish; }

peer() { timeout 300 "$PYTHON" tests/tool/peer_weights.py "$1" "$TMP" 2>&1; }
FILES=tests/reference/weights
DATA="--data $TMP/images.npz --set train"
networks() { sed -n "s/^$1 = \[\(.*\)\]/\1/p" tests/tool/peer_weights.py | tr -d '",'; }

check "torchvision and Keras make weights" peer make
for name in $(networks NETWORKS); do
    smaller="$name --input 64x64x3 --classes 10 --weights $TMP/$name.safetensors"
    check "torchvision's $name predicts" prints 'got.npy: ' predict $smaller $DATA -o "$TMP/$name.got.npy"
    check "$name is exported as safetensors" prints PyTorch export $smaller -o "$TMP/$name.torch.safetensors" --layout torch
done
check "and as .npz" prints PyTorch export resnet18 --input 64x64x3 --classes 10 --weights "$TMP/resnet18.safetensors" \
    -o "$TMP/numpy.npz" --layout torch
for name in $(networks APPLICATIONS); do
    check "Keras's $name predicts" prints 'got.npy: ' predict "$TMP/$name.app.json" --weights "$TMP/$name.app.weights.h5" $DATA \
        -o "$TMP/$name.app.got.npy"
done
for name in sequential functional embedding; do
    check "$name.keras" prints Keras export $FILES/$name.keras -o "$TMP/$name.keras"
    check "$name.weights.h5" prints Keras export $FILES/$name.json --weights $FILES/$name.weights.h5 -o "$TMP/$name.weights.h5"
done
check "PyTorch, NumPy and Keras agree" peer check
finish
