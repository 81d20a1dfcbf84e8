#!/bin/sh
# How runs of the command end: failures, full disks, signals, closed descriptors, files that cannot be written. What was
# trained is not lost, and nothing is overwritten that should not be.
. "$(dirname "$0")/../support/lib.sh"
. "$ROOT/tests/support/command.sh"

cat >"$TMP/model.json" <<'END_OF_JSON'
{"module": "keras", "class_name": "Sequential", "config": {"name": "small", "trainable": true, "layers": [
 {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [null, 2], "dtype": "float32",
  "name": "input_layer"}, "registered_name": null},
 {"module": "keras.layers", "class_name": "Dense", "config": {"name": "dense", "trainable": true, "dtype": "float32",
  "units": 3, "activation": "linear", "use_bias": true}, "registered_name": null}]}, "registered_name": "Sequential"}
END_OF_JSON
awk 'BEGIN { for (i = 0; i < 40; i++) printf "%d,%g,%d\n", i % 7, i / 10, i == 35 ? 9 : i % 3 }' >"$TMP/late.csv"
awk 'BEGIN { for (i = 0; i < 40; i++) printf "%d,%g,%d\n", i % 7, i / 10, i % 3 }' >"$TMP/good.csv"
SAVED=$TMP/w.safetensors LOG=$TMP/log

# Each training here: small, in order, 5 steps an epoch.
train() {
    data=$1
    shift
    "$LOCKSTEP" train "$TMP/model.json" --data "$TMP/$data.csv" --batch-size 8 --shuffle off --verbose 2 "$@"
}
# No line of standard error but those that match.
only_errors() { ! grep -v -E "$1" "$TMP/err"; }
lines() { grep -c -E "$1" "$TMP/err"; }

# ---- failures ----

late_label() {
    ends 0 train good --save "$TMP/four.safetensors" --max-steps 4 || return 1
    ends 1 train late --save "$SAVED" --epochs 3 --log "$LOG" || return 1
    cat "$TMP/err"
    only_errors '^lockstep: .*label 9 of row 35 .*; the weights of step 4, the last good one, are in .*/w.safetensors$' &&
        cmp "$SAVED" "$TMP/four.safetensors" && grep -q '"step":4' "$LOG" && grep -q '"reason":"failed"' "$LOG"
}
check "a bad label in a late batch: the weights of the last good step are saved" late_label

late_validation() {
    rm -f "$SAVED"
    ends 1 train late --validation-split 0.2 --save "$SAVED" && grep -q 'the weights of step 4, the last good one' "$TMP/err" &&
        cmp "$SAVED" "$TMP/four.safetensors"
}
check "a bad label in validation: the same" late_validation

first_label() {
    sed '1s/.*/1,1,9/' "$TMP/good.csv" >"$TMP/first.csv"
    echo old >"$TMP/old.safetensors"
    ends 1 train first --save "$TMP/old.safetensors" && grep -q -x old "$TMP/old.safetensors" && ! grep -q 'last good' "$TMP/err"
}
check "a bad label in the first batch: nothing was trained, the old file stays" first_label

neither() {
    { ulimit -f 0; train late --save "$SAVED" 2>&1; echo "status $?"; } | cat >"$TMP/err"
    cat "$TMP/err"
    grep -q -x 'status 1' "$TMP/err" && grep -q 'label 9 .*; the weights could not be saved either: .*File too large' "$TMP/err" && cmp "$SAVED" "$TMP/four.safetensors"
}
check "a failure whose weights cannot be saved: both are reported, the old file stays" neither

# ---- logs that fail ----

full_log() {
    rm -f "$SAVED"
    ends 0 train good --log "$1" --save "$SAVED" --epochs 2 || return 1
    cat "$TMP/err"
    [ "$(lines '')" = 2 ] && [ "$(lines "^lockstep: warning: cannot write the log '$1': No space left on device; training continues")" = 1 ] &&
        [ "$(lines "^lockstep: warning: the log '$1' is incomplete: No space left on device\$")" = 1 ] && [ -s "$SAVED" ]
}
if [ -w /dev/full ]; then
    check "a full disk under the log does not end training; it is reported at once and at the end" full_log /dev/full
else
    skip "a full disk under the log" "there is no /dev/full"
fi

# The limit is 2048 bytes or 4096, by the shell: more than the first line, less than all.
cut_log() {
    ends 0 sh -c "ulimit -f 4; exec \"\$@\"" - "$LOCKSTEP" train "$TMP/model.json" --data "$TMP/good.csv" --batch-size 8 \
        --epochs 20 --verbose 0 --log "$LOG" || return 1
    cat "$TMP/err" "$LOG"
    [ "$(lines 'File too large')" = 2 ] && [ "$(lines '')" = 2 ] && [ -s "$LOG" ] && ! grep -v -E '^\{.*\}$' "$LOG" &&
        [ "$(tail -c 2 "$LOG")" = '}' ]
}
check "a log that meets the limit of file sizes holds whole lines" cut_log

# ---- signals ----

# A run to be ended, in the background: reset gives back the signals that a shell's background takes away.
background() {
    rm -f "$LOG" "$SAVED"
    "$@" "$LOCKSTEP" train "$TMP/model.json" --data "$TMP/good.csv" --batch-size 8 --epochs 100000000 --verbose 2 --log "$LOG" \
        --save "$SAVED" >"$TMP/out" 2>"$TMP/err" &
    pid=$!
    wait_for "$LOG" '"step":3,' || { kill -9 $pid; return 1; }
}
# stopped STATUS: it ends so, log complete and weights saved.
stopped() {
    status=0
    wait $pid || status=$?
    [ $status = "$1" ] || { echo "status $status"; tail -5 "$TMP/out"; cat "$TMP/err"; return 1; }
    tail -1 "$LOG" | grep -q '"event":"end","reason":"interrupted"' && grep -q '^stopped by a signal' "$TMP/out" &&
        ends 0 "$LOCKSTEP" evaluate "$TMP/model.json" --data "$TMP/good.csv" --weights "$SAVED"
}
ended_by() {
    background env --default-signal="$1" || return 1
    kill -"$1" $pid
    stopped "$2"
}
check "Ctrl+C ends after the step: log complete, weights saved, status 130" ended_by INT 130
check "SIGTERM: the same, with status 143" ended_by TERM 143
check "SIGHUP: the same, with status 129" ended_by HUP 129

# What was ignored when the command started stays so: it goes on, and a signal that is not ignored ends it.
ignored() {
    background env --ignore-signal="$1" || return 1
    kill -"$1" $pid
    kill -"$1" $pid
    steps=$(wc -l <"$LOG")
    wait_for "$LOG" "\"step\":$((steps + 100))," || { echo "it ended"; return 1; }
    kill -TERM $pid
    stopped 143
}
check "SIGHUP under nohup stays ignored" ignored HUP
check "SIGINT in a script's background stays ignored" ignored INT

killed() {
    rm -f "$SAVED" "$TMP/out"
    env --default-signal=INT "$LOCKSTEP" train resnet18 --data synthetic:224x224x3,classes=1000,count=64 --batch-size 64 \
        --epochs 100 --verbose 2 --save "$SAVED" >"$TMP/out" 2>"$TMP/err" &
    pid=$!
    wait_for "$TMP/out" '^Epoch 1' || { kill -9 $pid; return 1; }
    kill -INT $pid
    sleep 0.3
    kill -INT $pid 2>/dev/null
    status=0
    wait $pid || status=$?
    [ $status = 130 ] && [ ! -e "$SAVED" ] || { echo "status $status"; cat "$TMP/out" "$TMP/err"; return 1; }
}
check "Ctrl+C twice ends at once" killed

broken_pipe() {
    rm -f "$SAVED"
    { train good --epochs 200 --save "$SAVED" 2>"$TMP/err"; echo $? >"$TMP/status"; } | head -n 1 >"$TMP/out"
    cat "$TMP/status" "$TMP/err"
    [ -s "$SAVED" ] && grep -q -x 1 "$TMP/status" && grep -q 'cannot write to standard output' "$TMP/err"
}
check "a reader of the progress that leaves does not end training" broken_pipe

# ---- closed descriptors ----

closed() {
    rm -f "$SAVED" "$LOG"
    "$LOCKSTEP" train "$TMP/model.json" --data "$TMP/late.csv" --batch-size 8 --shuffle off --verbose 2 --log "$LOG" \
        --save "$SAVED" <&- >&- 2>&- && return 1
    cat "$LOG"
    [ "$(wc -l <"$LOG")" = 6 ] && ! grep -v '^{"event":".*}$' "$LOG" && cmp "$SAVED" "$TMP/four.safetensors"
}
check "closed standard descriptors: nothing but events in the log, weights as they are" closed

# nowhere COMMAND...: what it would print cannot be written, which is a failure and is said.
nowhere() {
    status=0
    "$LOCKSTEP" "$@" >&- 2>"$TMP/err" || status=$?
    echo "status $status"
    cat "$TMP/err"
    [ $status = 1 ] && [ "$(cat "$TMP/err")" = "lockstep: cannot write to standard output" ]
}
check "evaluate with standard output closed fails" nowhere evaluate "$TMP/model.json" --data "$TMP/good.csv"
check "devices with standard output closed fails" nowhere devices
check "help with standard output closed fails" nowhere --help

saved_anyway() {
    rm -f "$SAVED"
    nowhere train "$TMP/model.json" --data "$TMP/good.csv" --save "$SAVED" && [ -s "$SAVED" ]
}
check "train with standard output closed saves its weights, and fails" saved_anyway

# ---- files that cannot be written ----

LONG=$(printf '%0250d' 1)
mkdir "$TMP/folder"
mkfifo "$TMP/fifo" "$TMP/fifo.csv"
# cannot PATTERN ARGUMENTS...: refused before anything is trained.
cannot() {
    pattern=$1
    shift
    timeout -k 5 60 "$LOCKSTEP" train "$TMP/model.json" --data "$TMP/good.csv" "$@" >"$TMP/out" 2>"$TMP/err" && return 1
    cat "$TMP/out" "$TMP/err"
    ! grep -q Epoch "$TMP/out" && grep -q -E -e "$pattern" "$TMP/err"
}
check "--save: a name too long for a file" cannot '--save: cannot .*File name too long' --save "$TMP/$LONG"
check "--save: a missing folder" cannot '--save: cannot write .*No such file' --save "$TMP/none/w"
check "--save: a folder" cannot '--save: .* is a folder, not a regular file' --save "$TMP/folder"
check "--save: a FIFO" cannot '--save: .* is a FIFO or a pipe, not a regular file' --save "$TMP/fifo"
check "--save: a device" cannot '--save: .* is a device, not a regular file' --save /dev/null
check "--log: a folder" cannot '--log: .* is a folder' --log "$TMP/folder"
check "--log: a missing folder" cannot '--log: cannot write .*No such file' --log "$TMP/none/log"
check "--log: a FIFO without a reader" cannot 'fifo.: it is a FIFO that no process reads' --log "$TMP/fifo"
check "--output: a FIFO" refuses 1 '--output: .* is a FIFO' predict "$TMP/model.json" --data "$TMP/good.csv" --output "$TMP/fifo.csv"
# Root may write anywhere: run as the user nobody, if it can run the command.
[ "$(id -u)" != 0 ] && NOBODY= || NOBODY="setpriv --reuid 65534 --regid 65534 --clear-groups"
chmod 755 "$TMP"
chmod 555 "$TMP/folder"
may_not() {
    timeout -k 5 60 $NOBODY "$LOCKSTEP" train "$TMP/model.json" --data "$TMP/good.csv" "$@" >"$TMP/out" 2>"$TMP/err" && return 1
    cat "$TMP/out" "$TMP/err"
    ! grep -q Epoch "$TMP/out" && grep -q -E -e "^lockstep: $1: cannot .*Permission denied" "$TMP/err"
}
if $NOBODY "$LOCKSTEP" --version >"$TMP/out" 2>&1; then
    check "--save: a folder that may not be written to" may_not --save "$TMP/folder/w"
    check "--log: a folder that may not be written to" may_not --log "$TMP/folder/log"
else
    skip "folders that may not be written to" "root may write to any, and the user nobody cannot run the command"
fi
chmod 755 "$TMP/folder"
nothing_left() { [ -z "$(ls "$TMP/folder")" ] && [ ! -e "$TMP/none" ] && ! ls "$TMP" | grep '\.tmp$'; }
check "nothing is left behind by these" nothing_left

read_fifo() {
    cat "$TMP/fifo" >"$TMP/read" &
    reader=$!
    until grep -q cat "/proc/$reader/comm"; do sleep 0.05; done # it is no shell any more,
    sleep 0.5                                                   # and waits for a writer
    ends 0 train good --log "$TMP/fifo" && wait $reader && [ "$(wc -l <"$TMP/read")" = 8 ]
}
check "--log: a FIFO with a reader" read_fifo

piped_log() {
    train good --verbose 0 --log /dev/stdout | grep '^{' >"$TMP/read"
    cat "$TMP/read"
    [ "$(wc -l <"$TMP/read")" = 8 ]
}
check "--log: /dev/stdout, a pipe without a name" piped_log

# ---- outputs that are inputs ----

cp "$TMP/four.safetensors" "$TMP/start.safetensors"
ln -s start.safetensors "$TMP/soft.safetensors"
ln "$TMP/good.csv" "$TMP/hard.csv"
# wrong PATTERN ARGUMENTS...: status 2, and the inputs are as they were.
wrong() {
    pattern=$1
    shift
    refuses 2 "$pattern" train "$TMP/model.json" --data "$TMP/good.csv" --weights "$TMP/start.safetensors" "$@" &&
        cmp "$TMP/start.safetensors" "$TMP/four.safetensors"
}
check "--save over the weights, through a link" wrong '--save .* would overwrite the file of --weights' --save "$TMP/soft.safetensors"
check "--log over the weights" wrong '--log .* would overwrite the file of --weights' --log "$TMP/folder/../start.safetensors"
check "--save over the data, by a hard link" wrong '--save .* would overwrite a file of --data' --save "$TMP/hard.csv"
check "--log over the model" wrong '--log .* would overwrite the file of MODEL' --log "$TMP/model.json"
check "--log and --save, spelt differently" wrong '--log and --save name the same file' --log "$TMP/new" --save "$TMP/folder/../new"
check "predict over its data" refuses 2 '--output .* would overwrite a file of --data' predict "$TMP/model.json" --data "$TMP/good.csv" \
    --output "$TMP/hard.csv"

# ---- links and temporaries ----

dangling() {
    ln -s folder/target.safetensors "$TMP/link.safetensors"
    ends 0 train good --max-steps 4 --save "$TMP/link.safetensors" && [ -L "$TMP/link.safetensors" ] &&
        cmp "$TMP/folder/target.safetensors" "$TMP/four.safetensors"
}
check "--save through a link to nothing makes its target" dangling

temporaries() {
    echo half >"$SAVED.4194300.0.tmp"
    echo other >"$SAVED.notes.tmp"
    ends 0 train good --save "$SAVED" && [ ! -e "$SAVED.4194300.0.tmp" ] && [ -e "$SAVED.notes.tmp" ]
}
check "--save removes what a killed run left" temporaries

# ---- names that command a terminal ----

odd_names() {
    sed 's/"name": "small"/"name": "x\\u001b[31m\\u009b"/' "$TMP/model.json" >"$TMP/odd.json"
    for command in "summary $TMP/odd.json" "train $TMP/odd.json --data $TMP/good.csv --log $LOG"; do
        ends 0 "$LOCKSTEP" $command || return 1
        grep -q -F 'x?[31m??' "$TMP/out" || { cat -v "$TMP/out"; return 1; }
        ! grep -q "$(printf '\033')" "$TMP/out" "$LOG" || { cat -v "$TMP/out" "$LOG"; return 1; }
    done
}
check "a model's name is printed without what would command a terminal" odd_names

# ---- digits of predictions ----

cat >"$TMP/digits.c" <<'END_OF_C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* digits NPY CSV COUNT: the numbers of both, bit for bit; how many needed all 9 digits. */
int main(int argc, char **argv)
{
    FILE *npy = fopen(argv[1], "rb"), *csv = fopen(argv[2], "r");
    int count = argc > 3 ? atoi(argv[3]) : 0, nine = 0;
    if (!npy || !csv || fseek(npy, 128, SEEK_SET) != 0)
        return 1;
    for (int i = 0; i < count; i++) {
        float wanted, shorter;
        char text[64], eight[64];
        if (fread(&wanted, 4, 1, npy) != 1 || fscanf(csv, "%63[^,\n]%*[,\n]", text) != 1)
            return printf("number %d is missing\n", i), 1;
        float found = strtof(text, NULL);
        if (memcmp(&found, &wanted, 4) != 0)
            return printf("number %d: %s is %a, not %a\n", i, text, found, wanted), 1;
        snprintf(eight, sizeof eight, "%.8g", wanted);
        shorter = strtof(eight, NULL);
        nine += memcmp(&shorter, &wanted, 4) != 0;
    }
    return fgetc(csv) != EOF || printf("%d needed 9 digits\n", nine) < 0 || nine == 0;
}
END_OF_C
"$CC" -std=c11 "$TMP/digits.c" -o "$TMP/digits"
digits() {
    for end in npy csv; do
        ends 0 "$LOCKSTEP" predict mnist-cnn --data $SMALL --output "$TMP/p.$end" || return 1
    done
    "$TMP/digits" "$TMP/p.npy" "$TMP/p.csv" 700
}
check "predict: every number of a .csv reads back as the same float" digits
finish
