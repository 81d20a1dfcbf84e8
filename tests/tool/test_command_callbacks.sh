#!/bin/sh
# What `lockstep train` does while training: early stopping, plateaus, schedules, saved weights, CSV, TensorBoard; and
# what of it is refused.
. "$(dirname "$0")/../support/lib.sh"
. "$ROOT/tests/support/command.sh"

train() { "$LOCKSTEP" train mlp --data $SMALL --verbose 2 "$@"; }
hash_of() { train "$@" 2>&1 | sed -n 's/^weights sha256: //p'; }
# same HASH ARGUMENTS...: training with them ends with those weights.
same() {
    expected=$1 && shift
    found=$(hash_of "$@")
    [ -n "$found" ] && [ "$found" = "$expected" ] || { echo "$* gives '$found', not $expected"; return 1; }
}
other() { ! same "$@" >/dev/null; }
bad() {
    pattern=$1 && shift
    refuses 2 "$pattern" train mlp --data $SMALL "$@"
}

# ---- refused ----

check "an unknown key, the nearest is named" bad 'unknown option --patiense; did you mean --patience' --early-stopping patiense=3
check "a patience below 0" bad '--patience -1: expected a whole number' --early-stopping -1
check "a factor of 1" bad '--factor 1: expected .* within \[0, 1\)' --reduce-on-plateau 3,factor=1
check "an empty key" bad "'' is not KEY=VALUE" --early-stopping 3,,mode=max
check "an unknown mode" bad 'did you mean max' --early-stopping 3,mode=mex
check "an unknown schedule, the nearest is named" bad "unknown schedule 'cosin'; did you mean cosine" --schedule cosin
check "a schedule without its steps" bad 'exponential needs steps' --schedule exponential:decay=0.9
check "a decay that is not there" bad 'needs a decay above 0' --schedule exponential:steps=9
check "steps that are none" bad "steps is '9days'" --schedule warmup:steps=9days
check "steps beyond all bounds" bad 'expected a number of steps' --schedule warmup:steps=99999999999999999999epochs
check "a piece that is none" bad "'9' is not STEP=RATE" --schedule piecewise:9
check "too many pieces" bad 'more than 15 steps' --schedule "piecewise:$(seq -s, 1 16 | sed 's/\([0-9]*\)/\1=1/g')"
check "two that set the rate" bad 'contradict each other' --schedule cosine --reduce-on-plateau 3
check "nothing that watches" bad '--monitor needs' --monitor loss
check "histograms without TensorBoard" bad '--histograms needs --tensorboard' --histograms 1
check "steps without TensorBoard" bad '--tensorboard-every needs --tensorboard' --tensorboard-every 3
check "two files in one" bad 'name the same file' --csv "$TMP/a" --save "$TMP/a"

silently() { refuses 1 "$1" train mlp --data $SMALL --verbose 0 $2 "$3"; }
check "a value that there is not" silently 'cannot monitor "val_acc": training has no such value; the values are loss, accuracy, val_loss, val_accuracy' \
    --early-stopping 3,monitor=val_acc ''
check "a key of a pattern that there is not" \
    silently 'unknown name \{los\}; the names are epoch, loss, accuracy, val_loss' --save-epochs "$TMP/{los}.safetensors"
check "boundaries that fall" silently 'must grow: 10 is followed by 3' --schedule piecewise:10=0.1,1epoch=0.2
check "a CSV file that cannot be made" silently 'csv_logger: cannot open' --csv "$TMP/no/log.csv"

# ---- schedules: three steps an epoch ----

CONSTANT=$(hash_of --epochs 2)
check "a cosine that does not fall is the constant rate" same "$CONSTANT" --epochs 2 --schedule cosine:alpha=1
check "a decay by 1 is, too" same "$CONSTANT" --epochs 2 --schedule exponential:steps=1,decay=1
check "a rate that comes too late is" same "$CONSTANT" --epochs 2 --schedule piecewise:6=0.5
check "a rate that comes in time is not" other "$CONSTANT" --epochs 2 --schedule piecewise:4=0.5
COSINE=$(hash_of --epochs 2 --schedule cosine)
check "a cosine changes the weights" other "$CONSTANT" --epochs 2 --schedule cosine
check "a cosine ends with training" same "$COSINE" --epochs 2 --schedule cosine:steps=6
check "with --max-steps, too" same "$COSINE" --max-steps 6 --schedule cosine
WARMUP=$(hash_of --epochs 2 --schedule warmup:steps=1epoch)
check "steps can be epochs" same "$WARMUP" --epochs 2 --schedule warmup:steps=3steps
check "a warm-up is that of a cosine" same "$WARMUP" --epochs 2 --schedule cosine:warmup=3,alpha=1
check "a schedule begins with --lr" other "$WARMUP" --epochs 2 --schedule warmup:steps=3 --lr 0.01

# ---- early stopping ----

stops() {
    train --epochs 30 --lr 0.02 --early-stopping "$1" --monitor val_loss --save "$TMP/last.safetensors" \
        --save-best "$TMP/best.safetensors" --csv "$TMP/stop.csv" >"$TMP/out" || return 1
    grep -q ': early stopping$' "$TMP/out" && [ "$(wc -l <"$TMP/stop.csv")" -lt 31 ] || { cat "$TMP/out"; return 1; }
}
restores() {
    stops 2,restore_best_weights || return 1
    grep -q '^Restoring model weights from the end of the best epoch: ' "$TMP/out" || return 1
    best=$(tail -n +2 "$TMP/stop.csv" | tr -d '\r' | cut -d, -f5 | sort -g | head -1)
    printf '%s' "$(sed -n 's/^test loss: \([0-9.e-]*\) .*/\1/p' "$TMP/out")" >"$TMP/told"
    awk -v best="$best" -v told="$(cat "$TMP/told")" 'BEGIN { exit !(sprintf("%.6g", best) == told) }' ||
        { echo "best $best, told $(cat "$TMP/told")"; return 1; }
    cmp -s "$TMP/last.safetensors" "$TMP/best.safetensors" && { echo "steps are counted on"; return 1; }
    weights() { "$LOCKSTEP" evaluate mlp --data $SMALL --weights "$1" | grep loss; }
    [ "$(weights "$TMP/last.safetensors")" = "$(weights "$TMP/best.safetensors")" ]
}
check "training stops early" stops 2
check "the best weights are restored, saved and told" restores
plateau() {
    train --epochs 12 --lr 0.02 --reduce-on-plateau 1,factor=0.5 --csv "$TMP/rate.csv" >"$TMP/out" || return 1
    grep -q 'ReduceLROnPlateau reducing learning rate to 0.00999999977648258' "$TMP/out" || { cat "$TMP/out"; return 1; }
    head -1 "$TMP/rate.csv" | grep -q '^epoch,accuracy,learning_rate,loss,val_accuracy,val_loss'
}
check "the rate falls on a plateau" plateau
named() {
    train --epochs 2 --save-epochs "$TMP/by/{epoch:03d}-{loss:.1e}.safetensors" >/dev/null || return 1
    ls "$TMP/by" | grep -q '^001-.*e[+-].*\.safetensors$' && [ "$(ls "$TMP/by" | wc -l)" = 2 ]
}
check "weights of every epoch, by name" named

# ---- not finite ----

diverges() { "$LOCKSTEP" train mlp --data $SMALL --verbose 2 --epochs 9 --optimizer sgd --lr 1e30 "$@"; }
check "a step that is not finite fails" ends 1 diverges
check "with --terminate-on-nan it ends training" ends 0 diverges --terminate-on-nan
told() { grep -q 'training ends with the weights of step' "$TMP/err" && grep -q '^weights sha256' "$TMP/out"; }
check "this is reported" told

# ---- interrupted: the rest of the table is there, and NA ----

interrupted() {
    timeout 60 "$LOCKSTEP" train mlp --data $SMALL --epochs 1000000 --verbose 2 --csv "$TMP/int.csv" --early-stopping 900000 >"$TMP/out" 2>&1 &
    job=$!
    wait_for "$TMP/int.csv" '^2,' || return 1
    kill -TERM $job
    status=0
    wait $job || status=$?
    [ $status = 143 ] || { echo "status $status"; cat "$TMP/out"; return 1; }
    tail -1 "$TMP/int.csv" | tr -d '\r' | grep -E -q '^[0-9]+,[0-9.]+,[0-9.e-]+,(NA,NA|[0-9.e-]+,[0-9.e-]+)$' ||
        { tail -2 "$TMP/int.csv"; return 1; }
}
check "a signal leaves whole lines" interrupted

# ---- gone on with: from a checkpoint inside an epoch ----

job() { # NAME ARGUMENTS...
    name=$1 && shift
    train --epochs 30 --lr 0.02 --reduce-on-plateau 2,factor=0.5 --checkpoint "$TMP/$name.saved" --save-every 2 \
        --csv "$TMP/$name.csv" "$@" >"$TMP/out" 2>&1 || { cat "$TMP/out"; return 1; }
}
told_hash() { sed -n 's/^weights sha256: //p' "$TMP/out"; }
goes_on() {
    job whole --early-stopping 6,restore_best_weights --tensorboard "$TMP/whole" && whole=$(told_hash) || return 1
    job part --early-stopping 6,restore_best_weights --tensorboard "$TMP/part" --max-steps 11 || return 1
    job part --early-stopping 6,restore_best_weights --tensorboard "$TMP/part" --resume || return 1
    grep -q '^continuing from' "$TMP/out" && [ "$(told_hash)" = "$whole" ] && cmp "$TMP/whole.csv" "$TMP/part.csv" || return 1
    [ "$(ls "$TMP/part/train" | wc -l)" = 1 ] && [ "$(cat "$TMP/part/train/"* | wc -c)" = "$(cat "$TMP/whole/train/"* | wc -c)" ]
}
ended_stays() {
    job part --early-stopping 6,restore_best_weights --resume || return 1
    [ "$(told_hash)" = "$whole" ] && ! grep -q '^Epoch [0-9]*/' "$TMP/out" && cmp "$TMP/whole.csv" "$TMP/part.csv"
}
more_patience() {
    job part --early-stopping 8,restore_best_weights --save-best "$TMP/late.safetensors" --resume || return 1
    grep -q '^Epoch [0-9]*/' "$TMP/out" && [ -s "$TMP/late.safetensors" ]
}
check "a run that continues ends as the other, with its files" goes_on
check "one that was stopped early is done" ended_stays
check "unless there is more patience; what only writes may be new" more_patience
check "what decides may not be gone" refuses 1 'callback/early_stopping/0 is in the checkpoint, but not used here' train mlp --data $SMALL \
    --verbose 0 --epochs 30 --lr 0.02 --reduce-on-plateau 2,factor=0.5 --checkpoint "$TMP/part.saved" --resume

# ---- the real TensorBoard ----

PYTHON=
for python in "${PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/peers}/bin/python" python3; do
    if command -v "$python" >/dev/null && "$python" -c 'import tensorboard' 2>/dev/null; then
        PYTHON=$python
        break
    fi
done
board() {
    train --epochs 3 --tensorboard "$TMP/board" --histograms 2 --log "$TMP/board.log" >/dev/null || return 1
    timeout 120 "$PYTHON" tests/tool/read_tensorboard.py "$TMP/board" "$TMP/board.log"
}
if [ -n "$PYTHON" ]; then
    check "the tensorboard package reads what is written" board
else
    skip "the tensorboard package reads what is written" "tensorboard is not installed (make bench-peers, or pip install tensorboard)"
fi
finish
