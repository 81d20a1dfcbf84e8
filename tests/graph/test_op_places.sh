#!/bin/sh
# docs/adding-an-op.md says truly which files beside ops.def name ops, and how many ops or fusions each lists.
. "$(dirname "$0")/../support/lib.sh"

DOC=docs/adding-an-op.md
LEAVES='input|variable|constant|count'

# $1: the file's name in the table; $2: the number that its row must have, with its word.
row_says() {
    grep "^| .*\`$1\`" $DOC | grep -qF "($2)" || { echo "no row of $DOC for $1 has ($2)"; return 1; }
}

ops_named() {
    grep -o 'LS_OP_[a-z0-9_]*' "$1" | sort -u | wc -l
}

in_words() {
    set -- "$1" zero one two three four five six seven eight nine ten eleven twelve
    shift "$1"
    echo "$2"
}

elementwise() { row_says src/backend/cpu/kernels_elementwise.c "$(ops_named src/backend/cpu/kernels_elementwise.c) ops"; }
gpu() { row_says src/backend/gpu/lower.c "$(grep -c '^    \[LS_OP_' src/backend/gpu/lower.c) ops"; }
fusions() {
    count=$(awk '/^typedef enum ls_fusion/ { on = 1 } /^} ls_fusion/ { on = 0 } on' src/plan/plan.h | grep -c '^    LS_FUSE_')
    row_says src/plan/fusion.c "$(in_words $((count - 1))) fusions" # LS_FUSE_NONE is none
}
names() { row_says src/plan/placement_print.c "$(ops_named src/plan/placement_print.c) ops"; }

# Ops other than leaves are named in src/graph, in the files of the table, and where their meaning matters.
other_files() {
    found=0
    for file in $(grep -rlE 'LS_OP_[a-z]' src --include='*.c' --include='*.inc' | grep -v '^src/graph/' | sort); do
        grep -oE 'LS_OP_[a-z0-9_]+' "$file" | grep -qvxE "LS_OP_($LEAVES)" || continue
        case $file in
        src/backend/cpu/kernels_*.c | src/run/* | src/nn/* | src/train/*) continue ;;
        src/backend/gpu/lower_*.c | src/backend/gpu/programs.c | src/backend/ref/*_real.c) continue ;; # kernels of several ops
        esac
        grep -qF "\`$file\`" $DOC || { echo "$file names ops, and $DOC does not say so"; found=1; }
    done
    return $found
}

check "elementwise ops with a vector kernel" elementwise
check "ops with a GPU kernel" gpu
check "fusions" fusions
check "names of TensorFlow" names
check "no other file names ops" other_files
finish
