#!/bin/sh
# Data of one's own: tables and a folder of images, from training to prediction by the command; wrong flags and files.
. "$(dirname "$0")/../support/lib.sh"
. "$ROOT/tests/support/command.sh"

# ---- tables ----

awk 'BEGIN {
    print "age,city,income,kind"
    for (i = 0; i < 60; i++)
        printf "%d,%s,%s,%s\n", 20 + i, i % 3 ? "Ulm" : "\"New\nYork\"", i % 7 ? i * 1.5 : "", i < 30 ? "young" : "old"
}' >"$TMP/train.csv"
printf 'city,income,age\nUlm,3,21\nBonn,,70\n' >"$TMP/new.csv"
printf 'age,city,income,kind\n21,Ulm,3,young\n70,Ulm,80,old\n' >"$TMP/test.csv"
MLP="mlp --input 4 --classes 2"
check "a table trains, and its columns are printed" prints '^  city: text, 2 categories: New York, Ulm$' \
    train $MLP --data "$TMP/train.csv" --epochs 30 --save "$TMP/t.safetensors" --log "$TMP/t.log"
check "the columns are beside the weights" grep -q '"name":"city","kind":"text","values":\["New\\nYork","Ulm"\]' \
    "$TMP/t.safetensors.table.json"
check "the log has the classes" grep -q '"event":"start".*"classes":\["old","young"\]' "$TMP/t.log"
check "evaluate reads another file with the columns of training" prints '^train loss: .*accuracy: 1 \(2 samples\)$' \
    evaluate $MLP --data "$TMP/test.csv" --weights "$TMP/t.safetensors"
check "predict reads a file without labels, in another order" prints '\(2, 2\), float32$' \
    predict $MLP --data "$TMP/new.csv" --weights "$TMP/t.safetensors" --output "$TMP/p.csv"
mv "$TMP/t.safetensors.table.json" "$TMP/columns.json"
check "without the columns, the message says what to do" refuses 1 'give the file that train wrote with --table' \
    evaluate $MLP --data "$TMP/test.csv" --weights "$TMP/t.safetensors"
check "--table names them" prints 'accuracy: 1 \(2 samples\)$' \
    evaluate $MLP --data "$TMP/test.csv" --weights "$TMP/t.safetensors" --table "$TMP/columns.json"
checkpoint_has_table() {
    ends 0 "$LOCKSTEP" train $MLP --data "$TMP/train.csv" --checkpoint "$TMP/ck" && cmp "$TMP/columns.json" "$TMP/ck/table.json"
}
check "a checkpoint folder has the columns, too" checkpoint_has_table
plain_removes() {
    printf '1,2,3,4,0\n5,6,7,8,1\n' >"$TMP/plain.csv"
    cp "$TMP/columns.json" "$TMP/t.safetensors.table.json"
    ends 0 "$LOCKSTEP" train $MLP --data "$TMP/plain.csv" --save "$TMP/t.safetensors" && [ ! -e "$TMP/t.safetensors.table.json" ]
}
check "weights of plain numbers replace those of a table" plain_removes

check "a label that the training part does not have" \
    refuses 1 "train.csv', line [0-9]*, column 4 \(kind\): 'old' is not a class" \
    train $MLP --data "$TMP/train.csv" --validation-split 0.5
check "an unknown label" refuses 1 "has no column 'knd'; did you mean kind\?" train $MLP --data "$TMP/train.csv" --label knd
check "missing values as errors" refuses 1 "train.csv', line 2, column 3 \(income\): '' is a missing value" \
    train $MLP --data "$TMP/train.csv" --missing error
check "an unknown rule for missing values" refuses 2 '--missing zero' train $MLP --data "$TMP/train.csv" --missing zero
check "columns that --table has" refuses 2 '--label cannot be used with --table' \
    train $MLP --data "$TMP/train.csv" --table "$TMP/columns.json" --label kind
check "a label of images" refuses 2 '--label is for tables' train mnist-cnn --data $SMALL --label kind
check "no such table" refuses 1 '--table: .*none.json' train $MLP --data "$TMP/train.csv" --table "$TMP/none.json"
check "the output is not the table" refuses 2 'would overwrite the file of --table' \
    train $MLP --data "$TMP/train.csv" --table "$TMP/columns.json" --save "$TMP/columns.json"
check "a size of a table" refuses 2 '--image-size is for a folder of images' train $MLP --data "$TMP/train.csv" --image-size 9x9
check "a size that is none" refuses 2 '--image-size 9: expected height and width' train mnist-cnn --data "$TMP" --image-size 9
check "an unknown kind of file" refuses 1 'no data named .*x.xls.: it is not a folder, .npz, .npy, .csv, .tsv or .tar file' \
    train mnist-cnn --data "$TMP/x.xls"

# ---- a folder of images: the first of Fashion-MNIST ----

if ! command -v python3 >/dev/null || [ ! -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ]; then
    skip "a folder of images" "no python3, or no Fashion-MNIST"
    finish
fi
python3 tests/tool/make_photos.py "$TMP/photos" "$TMP/shards-%d.tar" 300 60
"$LOCKSTEP" train mnist-cnn --data "$TMP/photos" --max-steps 1 --verbose 0 >"$TMP/out" 2>"$TMP/err" || :
if grep -q 'this build has no libpng' "$TMP/err"; then
    skip "a folder of images" "this build has no libpng"
    finish
fi

# hash_of COMMAND...: trains, and prints the hash of the weights
hash_of() { "$@" --epochs 2 --verbose 0 --seed 1 | sed -n 's/^weights sha256: //p'; }
MEMORY=$(hash_of "$LOCKSTEP" train mnist-cnn --data "$TMP/photos.npz")
same() {
    found=$(hash_of "$@")
    [ -n "$MEMORY" ] && [ "$found" = "$MEMORY" ] || { echo "weights $found, not $MEMORY"; return 1; }
}
check "a folder of images trains, and its classes are printed" prints '^10 classes: c0, c1, ' \
    train mnist-cnn --data "$TMP/photos" --epochs 1 --save "$TMP/w.safetensors"
check "its test set is evaluated" prints '^test loss: .* \(60 samples\)$' \
    evaluate mnist-cnn --data "$TMP/photos" --weights "$TMP/w.safetensors"
check "the weights are those of the same samples in memory" same "$LOCKSTEP" train mnist-cnn --data "$TMP/photos"
check "also with two devices" same "$LOCKSTEP" train mnist-cnn --data "$TMP/photos" --devices 2
check "also with two workers" same "$LOCKSTEP" launch --workers 2 -- "$LOCKSTEP" train mnist-cnn --data "$TMP/photos"
check "also with one worker that reads the files" \
    same "$LOCKSTEP" launch --workers 2 -- "$LOCKSTEP" train mnist-cnn --data "$TMP/photos" --data-worker 1
check "also from tar shards" same "$LOCKSTEP" train mnist-cnn --data "$TMP/shards-{0..2}.tar"
resumes() {
    ends 0 "$LOCKSTEP" train mnist-cnn --data "$TMP/photos" --max-steps 13 --epochs 2 --verbose 0 --seed 1 --checkpoint "$TMP/c" ||
        return 1
    same "$LOCKSTEP" train mnist-cnn --data "$TMP/photos" --checkpoint "$TMP/c" --resume auto
}
check "also resumed in the middle of an epoch" resumes
check "another size" prints '\(60 samples\)$' train mnist-cnn --input 20x20x1 --data "$TMP/photos" --image-size 20x20
head -c 100 "$TMP/photos/train/c1/$(ls "$TMP/photos/train/c1" | head -n 1)" >"$TMP/photos/train/c1/cut.png"
check "a broken image is named" refuses 1 "train/c1/cut.png' is a broken PNG image: the file ends too early" \
    train mnist-cnn --data "$TMP/photos" --verbose 0
check "or left out and counted" prints '^left out 1 broken file:$' train mnist-cnn --data "$TMP/photos" --skip-broken
check "without it, the weights are the same" same "$LOCKSTEP" train mnist-cnn --data "$TMP/photos" --skip-broken
finish
