#!/bin/sh
# gcc and clang builds give the same bits: equal canaries. So do other instruction sets of our own kernels. And the canary
# of each instruction set of oneDNN is written down here: who changes bits must change it (and KERNEL_SET in canary.c).
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
    $1 -std=c11 -Iinclude "$TMP/canary.c" "$2/liblockstep.a" -ldnnl -lgomp -lcrypto -ljansson -lz -lstdc++ -lm -pthread \
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

# oneDNN's version and instruction set, and the canary; with the kernel set and format of the build
pins='2.6.3 sse41; kernels 2; format 1; d61c7931c4906a59
2.6.3 avx; kernels 2; format 1; 82ad2c9b3f05146f
2.6.3 avx2; kernels 2; format 1; 67851bf377a2c5b9
2.6.3 avx512_core; kernels 2; format 1; 8f997bcde9d11abd
2.6.3 avx512_core_vnni; kernels 2; format 1; 8f997bcde9d11abd
2.6.3 avx512_core_bf16; kernels 2; format 1; 8f997bcde9d11abd'
# Processors (vendor, family, model) that were seen to give these. Others may cut sums otherwise, by their caches.
processors='GenuineIntel 6 207'

processor() {
    awk -F': *' '/^vendor_id/{ v = $2 } /^cpu family/{ f = $2 } /^model[ \t]*:/{ print v, f, $2; exit }' /proc/cpuinfo
}

# pinned LIMIT: the canary of oneDNN under this limit (empty: none), for every instruction set of our own
pinned() {
    for isa in base avx2 avx512; do
        found=$(ONEDNN_MAX_CPU_ISA=$1 LOCKSTEP_ISA=$isa "$TMP/canary-$CC" |
            sed -n 's/^oneDNN \([^;]*\); \(kernels [0-9]*\);.*; \(format [0-9]*\); canary \([0-9a-f]*\)$/\1; \2; \3; \4/p')
        echo "limit ${1:-none}, own kernels $isa: ${found:-no canary}"
        [ -n "$found" ] && echo "$pins" | grep -Fqx "$found" || return 1
    done
}

check_pins() {
    for limit in SSE41 AVX AVX2 AVX512_CORE ''; do
        name=canary_of_${limit:-this_processor}_is_the_one_written_down
        if pinned "$limit" >"$TMP/pinned" 2>&1 || echo "$processors" | grep -Fqx "$(processor)"; then
            check "$name" pinned "$limit"
        else
            skip "$name" "$(processor): $(tail -n 1 "$TMP/pinned")"
        fi
    done
}

if [ -n "$SANITIZE" ]; then
    skip canary "sanitized builds are slow, the plain one has shown it"
    finish
fi
if ! canary "$CC" "$LS_BUILD" >"$TMP/here"; then echo failed >"$TMP/here"; fi
check bit_class_is_printed grep -E "canary [0-9a-f]{16}$" "$TMP/here"
check_pins
check own_kernels_same_bits_on_any_instruction_set same_instruction_sets
if [ "$CC" = gcc ] && command -v clang >/dev/null; then
    check gcc_and_clang_same_canary same_compilers
else
    skip gcc_and_clang_same_canary "no second compiler"
fi
finish
