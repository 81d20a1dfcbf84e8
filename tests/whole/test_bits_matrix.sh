#!/bin/sh
# Whole training steps have the same bits in builds of every compiler and optimization, and under valgrind: those written down in
# test_step_bits.c, which itself goes through instruction sets and modes. `make test` runs a sample: gcc's build under
# valgrind, where that is installed; in clang's place gcc's build without optimization, which is as far from it as can be;
# `make bits` (LS_BITS=all) all of it.
. "$(dirname "$0")/../support/lib.sh"

ALL=${LS_BITS:-}
SLOW="canary seed-cnn-4" # what builds without optimization and valgrind run

# builds COMPILER FLAGS FOLDER: test_step_bits there
builds() {
    make --no-print-directory CC="$1" CFLAGS="$2" SANITIZE= B="$3" bits-program >"$TMP/make.out" 2>&1 ||
        { tail -n 20 "$TMP/make.out"; return 1; }
}

# right_in FOLDER ROWS COMMAND...: with every instruction set that the processor (as the command shows it) has
right_in() {
    folder=$1 rows=$2
    shift 2
    for isa in base avx2 avx512; do
        LOCKSTEP_ISA=$isa timeout -s KILL 1200 "$@" "$folder/tests/test_step_bits" --check $rows >"$TMP/rows" 2>&1 && continue
        cat "$TMP/rows"
        grep -q 'this CPU cannot run it' "$TMP/rows" && [ $isa != base ] || { echo "LOCKSTEP_ISA=$isa"; return 1; }
    done
}

# The definition has the number of the bits.
defined() {
    number=$(sed -n 's/^#define DEFINITION \([0-9]*\).*/\1/p' src/run/canary.c)
    echo "no line of docs/bits.md says: This is definition $number."
    grep -q "This is definition ${number:-that is not found}\." docs/bits.md
}

if [ -n "$SANITIZE" ]; then
    skip bits_matrix "the plain build goes through all compilers"
    finish
fi
check "docs/bits.md is the definition of these bits" defined

if ! command -v valgrind >/dev/null; then
    skip "under valgrind" "valgrind is not installed"
elif [ "$CC" != clang ]; then # whose names of lines valgrind cannot read
    check "under valgrind" right_in "$LS_BUILD" "$SLOW" valgrind -q --error-exitcode=9
fi

# same_bits COMPILER FLAGS ROWS: in a build of its own
same_bits() {
    folder=build-bits-$1$(echo "$2" | tr -d ' =')
    if command -v "$1" >/dev/null; then
        check "$1 $2 builds it" builds "$1" "$2" "$folder"
        check "$1 $2" right_in "$folder" "$3"
    else
        skip "$1 $2" "$1 is not installed"
    fi
}

if [ "$ALL" = all ]; then
    for compiler in gcc clang; do
        same_bits $compiler -O0 "$SLOW"
        for flags in -O2 -O3 '-O3 -march=native'; do
            same_bits $compiler "$flags" ""
        done
    done
elif [ "$CC" = clang ]; then
    same_bits gcc -O0 "$SLOW"
fi
finish
