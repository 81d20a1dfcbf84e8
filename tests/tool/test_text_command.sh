#!/bin/sh
# Text: lockstep tokenize with every tokenizer, there and back; training on its tokens, with one hash after a resume and on
# several devices; wrong arguments and files.
. "$(dirname "$0")/../support/lib.sh"
. "$ROOT/tests/support/command.sh"

GPT2=$ROOT/tests/reference/tokenizers/gpt2.json
LLAMA3=$ROOT/tests/reference/tokenizers/llama3.json
awk 'BEGIN { for (i = 0; i < 40; i++) printf "Line %d: it'"'"'s Grüße,  to %d licensees.\n", i, i * i }' >"$TMP/text.txt"

# ---- tokenize ----

# back TOKENIZER [FLAGS]: the tokens of the text decode to the text
back() {
    tokenizer=$1
    shift
    ends 0 "$LOCKSTEP" tokenize "$TMP/text.txt" --tokenizer "$tokenizer" -o "$TMP/t.bin" "$@" || return 1
    [ "$tokenizer" != chars ] || tokenizer=$TMP/chars.json
    [ "${1:-}" != --save-tokenizer ] || shift 2
    ends 0 "$LOCKSTEP" tokenize "$TMP/t.bin" --tokenizer "$tokenizer" --decode "$@" || return 1
    cmp "$TMP/out" "$TMP/text.txt"
}
check "bytes there and back" back bytes
check "characters there and back" back chars --save-tokenizer "$TMP/chars.json"
check "GPT-2's rule there and back" back "$GPT2"
check "Llama 3's rule there and back, without a header" back "$LLAMA3" --format u16
check "vocab.json and merges.txt there and back, u32" back "$ROOT/tests/reference/tokenizers/pair" --format u32
check "counts are printed" prints 't.bin: [0-9,]+ tokens \(u16, with llm.c.s header\) of a vocabulary of 2,263, from [0-9,]+ bytes; [0-9,]+ tokens per second$' \
    tokenize "$TMP/text.txt" --tokenizer "$GPT2" -o "$TMP/t.bin"
from_stdin() {
    "$LOCKSTEP" tokenize --tokenizer "$GPT2" -o "$TMP/s.bin" <"$TMP/text.txt" >"$TMP/out" && cmp "$TMP/s.bin" "$TMP/t.bin" &&
        "$LOCKSTEP" tokenize - --tokenizer "$GPT2" -o "$TMP/s.bin" <"$TMP/text.txt" >"$TMP/out" && cmp "$TMP/s.bin" "$TMP/t.bin"
}
check "text from standard input" from_stdin
decoded_file() {
    ends 0 "$LOCKSTEP" tokenize "$TMP/t.bin" --tokenizer "$GPT2" --decode -o "$TMP/again.txt" && cmp "$TMP/again.txt" "$TMP/text.txt"
}
check "text into a file" decoded_file
check "no tokenizer" refuses 2 '--tokenizer is needed' tokenize "$TMP/text.txt" -o "$TMP/x.bin"
check "no output" refuses 2 '--output is needed' tokenize "$TMP/text.txt" --tokenizer bytes
check "two files" refuses 2 'one FILE, not 2' tokenize a b --tokenizer bytes -o "$TMP/x.bin"
check "the text is not overwritten" refuses 2 'would overwrite' tokenize "$TMP/text.txt" --tokenizer bytes -o "$TMP/text.txt"
check "no such file" refuses 1 'none.txt' tokenize "$TMP/none.txt" --tokenizer bytes -o "$TMP/x.bin"
check "no such tokenizer" refuses 1 '--tokenizer: .*none.json' tokenize "$TMP/text.txt" --tokenizer "$TMP/none.json" -o "$TMP/x.bin"
check "a saved tokenizer that is not learned" refuses 2 '--save-tokenizer is for --tokenizer chars' \
    tokenize "$TMP/text.txt" --tokenizer bytes -o "$TMP/x.bin" --save-tokenizer "$TMP/y.json"
check "decoding by characters of no text" refuses 2 'is learned from a text' tokenize "$TMP/t.bin" --tokenizer chars --decode
check "decoding by a smaller vocabulary" refuses 1 't.bin: token [0-9]* of [0-9]* has the id [0-9]*; the vocabulary has 256' \
    tokenize "$TMP/t.bin" --tokenizer bytes --decode
check "a vocabulary beyond 16 bits is not asked for u16" refuses 2 'format u8' tokenize "$TMP/text.txt" --tokenizer bytes -o "$TMP/x.bin" --format u8

# ---- training ----

cat >"$TMP/lm.json" <<'JSON'
{"module": "keras", "class_name": "Sequential", "config": {"name": "lm", "layers": [
 {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [null, 16], "dtype": "int32", "name": "tokens"}},
 {"module": "keras.layers", "class_name": "Embedding", "config": {"name": "embedding", "input_dim": 2263, "output_dim": 8}},
 {"module": "keras.layers", "class_name": "Dense", "config": {"name": "dense", "units": 2263, "activation": "linear"}}]}}
JSON
TRAIN="train $TMP/lm.json --data text:$TMP/t.bin,context=16,vocab=2263,split=0.8 --batch-size 4 --seed 1 --lanes 4"
# hash_of ARGUMENTS...: trains, and prints the hash of the weights
hash_of() { "$LOCKSTEP" $TRAIN "$@" --verbose 0 2>"$TMP/err" | sed -n 's/^weights sha256: //p'; }
check "tokens train, with a test set and accuracy over positions" prints 'accuracy' $TRAIN --epochs 2
ONE=$(hash_of --epochs 3)
same() {
    found=$(hash_of "$@")
    [ -n "$ONE" ] && [ "$found" = "$ONE" ] || { echo "weights $found, not $ONE"; cat "$TMP/err"; return 1; }
}
check "the same bits on two devices" same --epochs 3 --devices 2
check "the same bits on three devices" same --epochs 3 --devices 3
resumed() {
    hash_of --epochs 3 --max-steps 17 --checkpoint "$TMP/ck" --save-every 5 >/dev/null && same --epochs 3 --checkpoint "$TMP/ck" --resume
}
check "the same bits after a resume inside an epoch" resumed
workers() {
    found=$("$LOCKSTEP" launch --workers 2 -- "$LOCKSTEP" $TRAIN --epochs 3 --verbose 0 2>"$TMP/err" | sed -n 's/^.*weights sha256: //p' | head -n 1)
    [ -n "$ONE" ] && [ "$found" = "$ONE" ] || { echo "weights $found, not $ONE"; cat "$TMP/err"; return 1; }
}
check "the same bits with two workers" workers

# ---- characters that training learned ----

cat >"$TMP/chars-model.json" <<'JSON'
{"module": "keras", "class_name": "Sequential", "config": {"name": "lm", "layers": [
 {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [null, 8], "dtype": "int32", "name": "tokens"}},
 {"module": "keras.layers", "class_name": "Embedding", "config": {"name": "embedding", "input_dim": 64, "output_dim": 4}},
 {"module": "keras.layers", "class_name": "Dense", "config": {"name": "dense", "units": 64, "activation": "linear"}}]}}
JSON
learned_characters() {
    ends 0 "$LOCKSTEP" train "$TMP/chars-model.json" --data "text:$TMP/text.txt,context=8,tokenizer=chars" --verbose 0 \
        --save "$TMP/c.safetensors" --checkpoint "$TMP/cc" || return 1
    cmp "$TMP/c.safetensors.tokenizer.json" "$TMP/chars.json" && cmp "$TMP/cc/tokenizer.json" "$TMP/chars.json"
}
check "train writes the characters beside the weights" learned_characters
printf 'Grüße to it' >"$TMP/other.txt"
check "evaluate reads them for another text" prints 'samples\)$' evaluate "$TMP/chars-model.json" \
    --data "text:$TMP/other.txt,tokenizer=chars,context=8" --weights "$TMP/c.safetensors"
printf 'Grüße to Q and Z' >"$TMP/other.txt"
check "a character that training did not have" refuses 1 "other.txt': the character at byte 11, U\+0051, is not in the vocabulary" \
    evaluate "$TMP/chars-model.json" --data "text:$TMP/other.txt,tokenizer=chars,context=8" --weights "$TMP/c.safetensors"

check "an id beyond the vocabulary" refuses 1 "t.bin': token [0-9]* is [0-9]*; the vocabulary has 100" \
    train "$TMP/lm.json" --data "text:$TMP/t.bin,context=16,vocab=100" --verbose 0
check "a context longer than the file" refuses 1 'tokens; a sample of context 100000 needs 100001' \
    train "$TMP/lm.json" --data "text:$TMP/t.bin,context=100000"
check "an unknown option of text" refuses 1 'unknown option contxt; did you mean context\?' \
    train "$TMP/lm.json" --data "text:$TMP/t.bin,contxt=16"
check "the tokens are not overwritten" refuses 2 'would overwrite a file of --data' \
    train "$TMP/lm.json" --data "text:$TMP/t.bin,context=16" --save "$TMP/t.bin"
finish
