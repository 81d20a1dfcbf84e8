#!/bin/sh
# The kernels under every limit of oneDNN's instruction set, and special values under all of them; the programs' own runs
# are the ones without a limit. (Our own kernels' instruction sets: test_simd, test_special_values, test_canary.)
. "$(dirname "$0")/lib.sh"

# under LIMIT PROGRAM
under() {
    ONEDNN_MAX_CPU_ISA=$1 timeout 300 "$LS_BUILD/tests/$2" >"$TMP/out" 2>&1 || {
        status=$?
        grep -E 'ERROR|FAILED|LINE|the reference' "$TMP/out" | tail -n 12
        echo "status $status"
        return 1
    }
}

if [ -n "$SANITIZE" ]; then
    skip instruction_sets "sanitized builds are slow, the plain one has shown it"
    finish
fi
for limit in SSE41 AVX AVX2; do
    for program in test_onednn test_special_values; do
        check "${program}_at_$limit" under $limit $program
    done
done
finish
