#!/bin/bash
# What the command answers to mistakes: what failed, where, and what to do.
. "$(dirname "$0")/../support/lib.sh"
. "$ROOT/tests/support/command.sh"

check "launch without -- before the program" \
    refuses 2 "launch: -- is missing before the program 'lockstep': write lockstep launch --workers N -- PROGRAM .*unknown option --data" \
    launch lockstep train mlp --data $SMALL
check "launch: a misspelt option of its own" refuses 2 'unknown option --worker; did you mean --workers\?' launch --worker 2 -- true
check "a missing device" \
    refuses 2 'device "gpu:0": there is no GPU .*CPU:0 \(and up to CPU:1023, which share its cores\)' \
    train mlp --data $SMALL --devices gpu:0
check "--save with the name of a format that cannot be written" \
    refuses 1 "m.bin': weights cannot be written as .bin: choose a name that ends in .safetensors" train mlp --data $SMALL --save "$TMP/m.bin"

check "evaluate without weights reports that the model is untrained" \
    prints '^the model is untrained: give its weights with --weights FILE$' evaluate mlp --data $SMALL
check "so does predict" \
    prints '^the model is untrained: give its weights with --weights FILE$' predict mlp --data $SMALL --output "$TMP/p.npy"
trained() {
    prints '' train mlp --data $SMALL --epochs 1 --save "$TMP/w.safetensors" &&
        prints '^test loss' evaluate mlp --data $SMALL --weights "$TMP/w.safetensors" && ! grep untrained "$TMP/out"
}
check "evaluate with weights does not" trained

# Two layouts of one model have no name in common: one line, not a list of all names.
layouts() {
    prints '' export mlp --weights "$TMP/w.safetensors" --output "$TMP/torch.safetensors" --layout torch || return 1
    ends 1 "$LOCKSTEP" diff "$TMP/w.safetensors" "$TMP/torch.safetensors" || return 1
    cat "$TMP/out"
    [ "$(wc -l <"$TMP/out")" = 1 ] && grep -Eq '^different: no name is in both: .* has [0-9]+ tensors \(".*--model MODEL' "$TMP/out" &&
        prints '^equal bits' diff "$TMP/w.safetensors" "$TMP/torch.safetensors" --model mlp
}
check "diff of two layouts" layouts

before_the_first_epoch() {
    echo '{"pid":1,"started":1,"updated":1,"epoch":0,"epochs":0,"step":0,"model":"m","host":"h","doing":"starting","workers":[]}' \
        >"$TMP/status.json"
    prints '^m: process 1 on h, starting$' top "$TMP/status.json"
}
check "top before the first epoch" before_the_first_epoch

finish
