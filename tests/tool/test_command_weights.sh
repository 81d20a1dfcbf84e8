#!/bin/sh
# lockstep export and lockstep diff: formats, layouts, exit statuses.
. "$(dirname "$0")/../support/lib.sh"
. "$ROOT/tests/support/command.sh"

W=$TMP/w.safetensors

check "export --help" prints '^usage: lockstep export MODEL' export --help
check "diff --help" prints '^usage: lockstep diff A B' diff --help
check "export writes safetensors" prints '^.*w.safetensors: 6 arrays of mnist-cnn, 12,810 numbers, in the layout of Keras$' \
    export mnist-cnn --seed 3 --output "$W"
for kind in npz torch.npz torch.safetensors; do
    layout=keras
    case $kind in torch.*) layout=torch ;; esac
    check "export to $kind" prints 'w2?\.' export mnist-cnn --weights "$W" -o "$TMP/w.$kind" --layout $layout
    check "$kind has the same bits" prints '^equal bits: 6 tensors, 12810 elements$' diff "$W" "$TMP/w.$kind" --model mnist-cnn
    check "and back" prints 'w2' export mnist-cnn --weights "$TMP/w.$kind" -o "$TMP/w2.safetensors"
    check "and back: the same bits" prints '^equal bits: 6 tensors' diff "$W" "$TMP/w2.safetensors"
done

different() {
    ends 0 "$LOCKSTEP" export mnist-cnn --seed 4 -o "$TMP/other.npz" || return 1
    ends 1 "$LOCKSTEP" diff "$W" "$TMP/other.npz" || return 1
    [ ! -s "$TMP/err" ] && grep -q '^"dense/kernel": [0-9]* of 8000 elements differ, the most by [0-9.e-]* at (' "$TMP/out" &&
        grep -q '^different: 3 of 6 tensors; the largest difference is .*, in "conv2d/kernel" at (' "$TMP/out" ||
        { cat "$TMP/out" "$TMP/err"; return 1; }
}
check "different weights: status 1, the largest difference is named" different
other_layout() {
    ends 1 "$LOCKSTEP" diff "$W" "$TMP/w.torch.npz" && grep -q -e '--model' "$TMP/out"
}
check "other names: status 1, and a hint" other_layout

K=tests/reference/weights
check "a .keras file is a model" prints 'Total params: 342 ' summary $K/sequential.keras
check "with its weights" prints '^.*p.npz: 14 arrays of sequential' export $K/sequential.keras -o "$TMP/p.npz"
check "and they are those of its .weights.h5" prints '^equal bits: 14 tensors' diff "$TMP/p.npz" $K/sequential.weights.h5 \
    --model $K/sequential.json
check "a .keras file is the model of a diff" prints '^equal bits: 14 tensors' diff $K/sequential.keras "$TMP/p.npz"
trains_keras() {
    prints . train $K/sequential.keras --data synthetic:6x6x2,classes=3,count=20 --seed 3 --save "$TMP/trained.keras" &&
        prints 'train loss' evaluate "$TMP/trained.keras" --data synthetic:6x6x2,classes=3,count=20 --set train &&
        ends 1 "$LOCKSTEP" diff "$TMP/trained.keras" $K/sequential.keras
}
check "a .keras file is trained and saved" trains_keras
cp README.md "$TMP/none.keras"
check "a file that is not a .keras file" refuses 1 'none.keras' summary "$TMP/none.keras"

check "diff of a missing file: status 2" refuses 2 "cannot open 'no.npz'" diff "$W" no.npz
check "diff of a file without weights: status 2" refuses 2 "README.md" diff "$W" README.md
check "diff of one file: wrong use" refuses 2 'diff: 2 files are needed' diff "$W"
check "diff of three files: wrong use" refuses 2 "unexpected argument 'c'" diff a b c
check "diff as weights of another model: status 2" refuses 2 'does not fit model "mlp"' diff "$W" "$W" --model mlp
check "export without a name" refuses 2 '--output is needed' export mnist-cnn
check "export to a format of others" refuses 1 'w.pt.*safetensors' export mnist-cnn -o "$TMP/w.pt"
check "export over its own weights" refuses 2 'would overwrite the file of --weights' export mnist-cnn --weights "$W" -o "$W"
check "an unknown layout" refuses 2 '--layout caffe' export mnist-cnn -o "$TMP/x.npz" --layout caffe
wrong_ending() {
    cp "$W" "$TMP/lie.npz"
    refuses 1 'contradicts its ending' export mnist-cnn --weights "$TMP/lie.npz" -o "$TMP/x.npz" && [ ! -e "$TMP/x.npz" ]
}
check "a name that contradicts its file" wrong_ending
save_npz() {
    prints . train mnist-cnn --data $SMALL --save "$TMP/trained.npz" --seed 3 &&
        prints 'train loss' evaluate mnist-cnn --data $SMALL --weights "$TMP/trained.npz" --set train
}
check "train saves an .npz, evaluate reads it" save_npz
check "train refuses a name before training" refuses 1 '--save: .*w.pt' train mnist-cnn --data $SMALL --save "$TMP/w.pt"
finish
