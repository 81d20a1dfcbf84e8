#!/bin/bash
# Checkpoints from the command: saved, gone on from, and what signals do in start-up, training, validation and evaluation.
. "$(dirname "$0")/../support/lib.sh"
. "$ROOT/tests/support/command.sh"

cat >"$TMP/model.json" <<'END_OF_JSON'
{"module": "keras", "class_name": "Sequential", "config": {"name": "small", "trainable": true, "layers": [
 {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [null, 2], "dtype": "float32",
  "name": "input_layer"}, "registered_name": null},
 {"module": "keras.layers", "class_name": "Dense", "config": {"name": "dense", "trainable": true, "dtype": "float32",
  "units": 3, "activation": "linear", "use_bias": true}, "registered_name": null},
 {"module": "keras.layers", "class_name": "Dropout", "config": {"name": "drop", "rate": 0.3}, "registered_name": null}
 ]}, "registered_name": "Sequential"}
END_OF_JSON
awk 'BEGIN { for (i = 0; i < 40; i++) printf "%d,%g,%d\n", i % 7, i / 10, i % 3 }' >"$TMP/good.csv"
CK=$TMP/ck LOG=$TMP/log

train() {
    "$LOCKSTEP" train "$TMP/model.json" --data "$TMP/good.csv" --batch-size 8 --verbose 2 "$@"
}
# hash STEP LOG: that the log has for a step.
hash_of() { sed -n "s/.*\"event\":\"step\",\"step\":$1,.*\"hash\":\"\([0-9a-f]*\)\".*/\1/p" "$2" | tail -n 1; }
hashes() { step_hashes "$1" | sort -n -u; }

# ---- saving and going on ----

ends 0 train --epochs 4 --log "$TMP/whole" --log-hash
weights=$(grep '^weights sha256' "$TMP/out")

# 7 steps, then the rest on two devices: each step has the hash of the run that was not interrupted.
in_two_parts() {
    rm -rf "$CK" "$LOG"
    ends 0 train --epochs 4 --max-steps 7 --checkpoint "$CK" --resume --log "$LOG" --log-hash || return 1
    grep -q "^no checkpoint in '$CK' yet: training starts at step 1" "$TMP/out" && grep -q '^checkpoints: ' "$TMP/out" || return 1
    printf '{"event":"step","st' >>"$LOG" # as a kill leaves it
    ends 0 train --epochs 4 --devices 2 --checkpoint "$CK" --resume --log "$LOG" --log-hash || return 1
    cat "$TMP/out"
    ! grep -v -E '^\{.*\}$' "$LOG" || return 1
    grep -q "^continuing from '$CK/step-00000007': epoch 2, 2 of its steps done, step 7 in total" "$TMP/out" &&
        grep -q -F "$weights" "$TMP/out" && [ -z "$(find "$CK" -name '*.tmp')" ] || return 1
    hashes "$TMP/whole" >"$TMP/a"
    hashes "$LOG" >"$TMP/b"
    [ "$(wc -l <"$TMP/a")" = 20 ] && cmp "$TMP/a" "$TMP/b" || return 1
    grep -q '"event":"resume","step":7,"from":' "$LOG" && grep -q '"event":"checkpoint","step":7,.*"waited_seconds":' "$LOG" &&
        [ "$(grep -c '"event":"start"' "$LOG")" = 2 ]
}
check "a run in two parts has every hash of the whole one; the log is continued" in_two_parts

from_one() {
    ends 0 train --epochs 4 --resume "$CK/step-00000007" || ends 0 train --epochs 4 --resume "$CK/last" || return 1
    grep -q -F "$weights" "$TMP/out"
}
check "--resume FROM: one checkpoint, nothing is saved" from_one

earlier() {
    ends 1 train --checkpoint "$CK" && grep -q 'has checkpoints of an earlier run, up to step 20' "$TMP/err"
}
check "a folder with an earlier run's checkpoints is refused without --resume" earlier
differs() {
    ends 1 train --epochs 5 --lr 0.5 --checkpoint "$CK" --resume &&
        grep -q 'optimizer/learning_rate is 0.5 here, but 0' "$TMP/err"
}
check "another option is refused by name" differs
finished() {
    ends 0 train --epochs 4 --checkpoint "$CK" --resume &&
        grep -q "^nothing left to train: '$CK/step-00000020' is the end of a run with 4 epochs, at step 20, and 4 epochs" "$TMP/out" &&
        grep -q -F "$weights" "$TMP/out"
}
check "a finished run has nothing left to train, and reports it" finished
# Rows of all parts of the data are looked at.
other_data() {
    awk 'BEGIN { for (i = 0; i < 120; i++) printf "%d,%g,%d\n", i % 7, i / 10, i % 3 }' >"$TMP/long.csv"
    sed '120s/.*/9,9,1/' "$TMP/long.csv" >"$TMP/longer.csv"
    ends 0 "$LOCKSTEP" train "$TMP/model.json" --data "$TMP/long.csv" --verbose 0 --checkpoint "$TMP/other" &&
        ends 1 "$LOCKSTEP" train "$TMP/model.json" --data "$TMP/longer.csv" --verbose 0 --epochs 2 --checkpoint "$TMP/other" --resume &&
        grep -q 'data/sha256 is' "$TMP/err"
}
check "data whose last row was changed is refused" other_data
lanes() {
    ends 1 train --epochs 5 --lanes 2 --checkpoint "$CK" --resume && grep -q 'lanes_asked_for is 2.*--allow-other-bits' "$TMP/err" &&
        ends 0 train --epochs 5 --lanes 2 --checkpoint "$CK" --resume --allow-other-bits --log "$LOG" &&
        grep -q 'warning: later steps have other bits than in the saved run' "$TMP/err" && grep -q '"event":"resume".*"other_bits":".*lanes' "$LOG" &&
        grep -q 'from step 20 on: lanes' "$CK/last/state.json"
}
check "other lanes are refused, or allowed, reported and saved" lanes

# Begun as a pipeline, gone on by other strategies on other devices.
strategies() {
    local cnn="train mnist-cnn --data synthetic:28x28x1,classes=10,count=200 --epochs 2 --batch-size 50 --verbose 0"
    rm -rf "$CK"
    ends 0 "$LOCKSTEP" $cnn && right=$(grep '^weights' "$TMP/out") || return 1
    ends 0 "$LOCKSTEP" $cnn --devices 2 --strategy pipeline --max-steps 3 --checkpoint "$CK" --resume &&
        ends 0 "$LOCKSTEP" $cnn --devices 3 --strategy mirrored --max-steps 5 --checkpoint "$CK" --resume &&
        ends 0 "$LOCKSTEP" $cnn --devices 2 --strategy model-parallel --checkpoint "$CK" --resume || return 1
    grep -q 'continuing from .*step-00000005' "$TMP/out" && grep -q -F "$right" "$TMP/out"
}
check "a pipeline's checkpoint can be resumed by other strategies" strategies

# Early stopping, a lower rate on a plateau and a CSV file, in five parts.
callbacks() {
    local cnn="train mnist-cnn --data synthetic:28x28x1,classes=10,count=300 --epochs 8 --batch-size 64 --verbose 0
        --early-stopping patience=3,restore_best_weights --reduce-on-plateau 1"
    rm -rf "$CK" "$TMP"/?.csv
    ends 0 "$LOCKSTEP" $cnn --csv "$TMP/a.csv" && right=$(grep '^weights' "$TMP/out") || return 1
    for steps in 3 7 12 15 0; do
        ends 0 "$LOCKSTEP" $cnn --csv "$TMP/b.csv" --max-steps $steps --epochs 8 --checkpoint "$CK" --resume || return 1
    done
    grep -q -F "$right" "$TMP/out" && cmp "$TMP/a.csv" "$TMP/b.csv" && [ "$(wc -l <"$TMP/a.csv")" -lt 9 ]
}
check "the state of callbacks is resumed" callbacks

# A state of a build whose kernels had other bits: its text ends with its own hash.
of_other_kernels() {
    head -c -83 "$1" | sed 's/"class": "definition [0-9]*/"class": "definition 1/' >"$TMP/state" &&
        printf ',\n  "sha256": "%s"\n}\n' "$(sha256sum <"$TMP/state" | cut -c1-64)" | cat "$TMP/state" - >"$1"
}
other_class() {
    rm -rf "$CK"
    ends 0 "$LOCKSTEP" train mlp --data $SMALL --max-steps 1 --epochs 2 --verbose 0 --checkpoint "$CK" &&
        of_other_kernels "$CK/last/state.json" || return 1
    ends 1 "$LOCKSTEP" train mlp --data $SMALL --epochs 2 --verbose 0 --checkpoint "$CK" --resume &&
        grep -q 'class is .* in the checkpoint.*--allow-other-bits' "$TMP/err" &&
        ends 0 "$LOCKSTEP" train mlp --data $SMALL --epochs 2 --verbose 0 --checkpoint "$CK" --resume --allow-other-bits &&
        grep -q 'from step 1 on: class is' "$CK/last/state.json"
}
check "another bit class is refused, or allowed and saved" other_class
# Cut at a step, in the first epoch, after its last step and in the last epoch, and resumed: each file is that of the
# run that was not. (Event files have times in them; there is one in each folder, of the same size.)
with_files() {
    mkdir -p "$TMP/f"
    ends 0 train --epochs 4 --validation-split 0.25 --lr 0.05 --monitor accuracy --csv "$TMP/f/csv" --tensorboard "$TMP/f/tb" \
        --save-best "$TMP/f/best.npz" --save-epochs "$TMP/f/{epoch}-{loss:.4f}.npz" --log "$TMP/f/log" "$@"
}
sizes() { find "$TMP/f/tb" -type f -printf '%s %h\n' | sort; }
same_files() {
    with_files || return 1
    sizes >"$TMP/sizes"
    mv "$TMP/f" "$TMP/f.whole"
    for step in 2 4 9 13 14 15 16; do
        rm -rf "$CK" "$TMP/f"
        with_files --max-steps $step --checkpoint "$CK" && with_files --checkpoint "$CK" --resume || return 1
        sizes | diff "$TMP/sizes" - && diff -r -x log -x tb "$TMP/f.whole" "$TMP/f" || { echo "cut at step $step"; return 1; }
        ! grep '"event":"epoch"' "$TMP/f/log" | grep '"learning_rate":0[,}]' || return 1
    done
    rm -rf "$CK"
}
check "callbacks' files of a run in two parts are those of the whole one" same_files

check "--save-every 5parsecs" refuses 2 '--save-every 5parsecs: expected a number above 0' train mlp --data $SMALL --checkpoint "$CK" \
    --save-every 5parsecs
check "--save-every 0" refuses 2 '--save-every 0: expected' train mlp --data $SMALL --checkpoint "$CK" --save-every 0
check "--keep without --checkpoint" refuses 2 '--keep needs --checkpoint' train mlp --data $SMALL --keep 2
check "--resume without a folder" refuses 2 '--resume needs --checkpoint' train mlp --data $SMALL --resume
check "--allow-other-bits without --resume" refuses 2 '--allow-other-bits needs --resume' train mlp --data $SMALL --allow-other-bits

every() {
    rm -rf "$CK"
    ends 0 train --epochs 4 --checkpoint "$CK" --save-every "$1" --keep 0 && [ -e "$CK/last" ] && [ -e "$CK/best" ]
}
for often in 5 5steps 2epochs 1epoch 10min 90s 1h; do
    check "--save-every $often" every $often
done

# A file in the folder's place.
not_a_folder() {
    echo x >"$TMP/file"
    ends 1 train --checkpoint "$TMP/file" && grep -q "'$TMP/file' is not a folder" "$TMP/err" &&
        ends 1 train --checkpoint "$TMP/file/x" && grep -q "cannot create the folder" "$TMP/err"
}
check "a folder that cannot be made is reported before training" not_a_folder

# No file may have a byte; what is printed goes through a pipe. Training continues to its end, and the status reports that its
# last state is not saved.
full() {
    rm -rf "$CK"
    { ulimit -f 0; train --epochs 4 --checkpoint "$CK" --save-every 3 2>&1; echo "status $?"; } | cat >"$TMP/out"
    cat "$TMP/out"
    grep -q -x 'status 1' "$TMP/out" && grep -q 'lockstep: training has ended, but its last checkpoint could not be saved to .*File too large' "$TMP/out" &&
        grep -q 'warning: NO CHECKPOINT of step 3 could be saved: .*File too large; training continues' "$TMP/out" &&
        grep -q 'warning: [0-9]* checkpoints could not be saved' "$TMP/out" && [ -z "$(ls -A "$CK")" ] && grep -q -F "$weights" "$TMP/out"
}
check "files that cannot be written: training continues with a warning, nothing is left behind" full

# ---- signals ----

# catches PID SIGNAL: waits until the process is the command (at first it is a copy of this shell, which has handlers of its
# own) and has a handler for the signal.
catches() {
    local tries=0 mask
    until [ "$(cat "/proc/$1/comm" 2>/dev/null)" = lockstep ] && mask=$(sed -n 's/^SigCgt:\s*//p' "/proc/$1/status") &&
        [ $((0x${mask:-0} >> ($2 - 1) & 1)) = 1 ]; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || { echo "no handler of signal $2"; return 1; }
        sleep 0.02
    done
}
# left STATUS: the process in $pid ends so.
left() {
    status=0
    wait "$pid" || status=$?
    [ $status = "$1" ] || { echo "status $status, not $1"; tail -n 5 "$TMP/out"; cat "$TMP/err"; return 1; }
}
# background DATA: a run without an end, that saves when it must, and after epochs that were good.
background() {
    rm -rf "$LOG" "$CK"
    env --default-signal=INT,TERM "$LOCKSTEP" train "$TMP/model.json" --data "$1" --batch-size 8 --epochs 100000000 \
        --verbose 2 --log "$LOG" --log-hash --checkpoint "$CK" --save-every 1h >"$TMP/out" 2>"$TMP/err" &
    pid=$!
    wait_for "$LOG" '"step":3,' || { kill -9 $pid; return 1; }
}

# It saves, leaves, and the next run goes on: five more steps have the hashes of a run that was not interrupted.
saved_by() {
    background "$TMP/good.csv" || return 1
    kill -"$1" $pid
    left "$2" || return 1
    step=$(sed -n 's/.*"event":"step","step":\([0-9]*\),.*/\1/p' "$LOG" | tail -n 1)
    [ -d "$CK/step-$(printf %08d "$step")" ] && grep -q -- '--resume continues from here' "$TMP/out" || { ls "$CK"; return 1; }
    [ "$step" -lt 3000 ] || return 0 # a slow machine: comparing would take long
    ends 0 train --epochs 100000000 --max-steps $((step + 5)) --checkpoint "$CK" --resume --log "$LOG" --log-hash &&
        ends 0 train --epochs 100000000 --max-steps $((step + 5)) --log "$TMP/undisturbed" --log-hash || return 1
    a=$(hash_of $((step + 5)) "$LOG") b=$(hash_of $((step + 5)) "$TMP/undisturbed")
    [ -n "$a" ] && [ "$a" = "$b" ]
}
check "SIGTERM saves a checkpoint and leaves with 143; the next run continues with the same bits" saved_by TERM 143
check "SIGINT: the same, with status 130" saved_by INT 130

usr1() {
    background synthetic:2,classes=3,count=2000000 || return 1 # an epoch of 250,000 steps
    [ -z "$(ls "$CK" | grep '^step')" ] || { echo "there is one already"; kill -9 $pid; return 1; }
    kill -USR1 $pid
    wait_for "$LOG" '"event":"checkpoint"' || { kill -9 $pid; return 1; }
    steps=$(wc -l <"$LOG")
    wait_for "$LOG" "\"step\":$((steps + 50))," || { kill -9 $pid; return 1; }
    kill -TERM $pid
    left 143 && [ "$(ls "$CK" | grep -c '^step')" = 2 ]
}
check "SIGUSR1 saves a checkpoint and continues" usr1

# Few steps, a long validation.
in_validation() {
    rm -rf "$LOG" "$CK"
    env --default-signal=TERM "$LOCKSTEP" train "$TMP/model.json" --data synthetic:2,classes=3,count=40000 --validation-split 0.999 --batch-size 8 \
        --epochs 2 --verbose 2 --log "$LOG" --checkpoint "$CK" >"$TMP/out" 2>"$TMP/err" &
    pid=$!
    wait_for "$LOG" '"step":5,' || { kill -9 $pid; return 1; }
    kill -TERM $pid
    left 143 && [ -e "$CK/step-00000005" ] && tail -n 1 "$LOG" | grep -q '"reason":"interrupted"' || { cat "$LOG"; return 1; }
    ends 0 "$LOCKSTEP" train "$TMP/model.json" --data synthetic:2,classes=3,count=40000 --validation-split 0.999 --batch-size 8 --epochs 2 \
        --verbose 2 --checkpoint "$CK" --resume && grep '^weights' "$TMP/out" >"$TMP/resumed" || return 1
    ends 0 "$LOCKSTEP" train "$TMP/model.json" --data synthetic:2,classes=3,count=40000 --validation-split 0.999 --batch-size 8 --epochs 2 \
        --verbose 2 && grep '^weights' "$TMP/out" | cmp - "$TMP/resumed"
}
check "SIGTERM in validation saves and leaves; the next run validates" in_validation

# Data that takes long to make.
starting() {
    env --default-signal=TERM "$LOCKSTEP" train resnet50 --data synthetic:224x224x3,classes=1000,count=3000 --checkpoint "$TMP/none" \
        --verbose 2 >"$TMP/out" 2>"$TMP/err" &
    pid=$!
    catches $pid 15 || return 1
    kill -USR1 $pid # there is nothing to save yet, and nothing ends
    sleep 0.1
    kill -TERM $pid
    left 143 && grep -q -x 'lockstep: stopped by a signal' "$TMP/err"
}
check "in start-up SIGUSR1 is ignored, SIGTERM ends at once with 143" starting

evaluating() {
    env --default-signal=INT "$LOCKSTEP" evaluate resnet50 --data synthetic:224x224x3,classes=1000,count=3000 >"$TMP/out" 2>"$TMP/err" &
    pid=$!
    catches $pid 15 || return 1
    kill -USR1 $pid
    sleep 0.1
    kill -INT $pid
    left 130
}
check "evaluate: SIGUSR1 is ignored, SIGINT ends at once with 130" evaluating

failing() {
    rm -rf "$CK"
    sed '36s/.*/1,1,9/' "$TMP/good.csv" >"$TMP/bad.csv"
    ends 1 "$LOCKSTEP" train "$TMP/model.json" --data "$TMP/bad.csv" --shuffle off --batch-size 8 --verbose 0 --checkpoint "$CK" --save-every 1h &&
        [ -e "$CK/step-00000004" ]
}
check "a run that fails saves its last good step" failing
finish
