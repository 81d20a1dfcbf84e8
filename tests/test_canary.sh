#!/bin/sh
# gcc and clang builds give the same bits: equal canaries. So do all instruction sets. And the canary is written down here,
# one for all processors: who changes bits must change it.
. "$(dirname "$0")/lib.sh"

cat >"$TMP/canary.c" <<'END'
#include <lockstep.h>
int main(void)
{
    ls_context *ctx;
    char *text;
    LS_CHECK(ls_context_open(NULL, &ctx));
    LS_CHECK(ls_bit_class(ctx, &text));
    puts(text);
    free(text);
    ls_context_close(ctx);
    return 0;
}
END

# canary COMPILER DIRECTORY: prints the bit class of that build
canary() {
    $1 -std=c11 -Iinclude "$TMP/canary.c" "$2/liblockstep.a" -lssl -lcrypto -ljansson -lz -lm -pthread \
        -o "$TMP/canary-$1" && "$TMP/canary-$1"
}

same_compilers() {
    make --no-print-directory CC=clang SANITIZE= build-clang/liblockstep.a >"$TMP/make.out" 2>&1 &&
        canary clang build-clang >"$TMP/clang" && cat "$TMP/clang" && diff "$TMP/here" "$TMP/clang"
}

same_instruction_sets() {
    for isa in base avx2 avx512; do
        LOCKSTEP_ISA=$isa "$TMP/canary-$CC" >"$TMP/isa" && diff "$TMP/here" "$TMP/isa" || return 1
    done
}

# Who changes bits must change this, and DEFINITION in canary.c and the number in docs/bits.md with it.
pin='definition 4; canary b1b5e6239edc1a25'

pinned() {
    echo "here: $(cat "$TMP/here"); written down: $pin"
    [ "$(cat "$TMP/here")" = "$pin" ] && grep -q "This is ${pin%%;*}\." docs/bits.md
}

if [ -n "$SANITIZE" ]; then
    skip canary "sanitized builds are slow, the plain one has shown it"
    finish
fi
if ! canary "$CC" "$LS_BUILD" >"$TMP/here"; then echo failed >"$TMP/here"; fi
check bit_class_is_printed grep -E "canary [0-9a-f]{16}$" "$TMP/here"
check canary_is_the_one_written_down pinned
check same_bits_on_any_instruction_set same_instruction_sets
if [ "$CC" = gcc ] && command -v clang >/dev/null; then
    check gcc_and_clang_same_canary same_compilers
else
    skip gcc_and_clang_same_canary "no second compiler"
fi
finish
