#!/bin/bash
# Fuzzes for a while: tools/fuzz.sh MAKE SECONDS TARGET...
# With libFuzzer where clang and its runtime are installed; otherwise the driver of fuzz/ mutates the corpus by itself. Each
# target has bounds: seconds in all, 20 for an input, 2 GB of memory. New inputs go to a folder of the build, not to the
# corpus. Ends with "N targets, M broken".
set -eu

MAKE=$1 SECONDS_EACH=$2
shift 2
cd "$(dirname "$0")/.."

has_libfuzzer() {
    echo 'int LLVMFuzzerTestOneInput(const char *d, long n) { return d == 0 && n < 0; }' |
        clang -fsanitize=fuzzer,address -x c - -o /dev/null 2>/dev/null
}

if has_libfuzzer; then
    build=build-clang-fuzzer-no-link-address-undefined
    $MAKE CC=clang SANITIZE=fuzzer-no-link,address,undefined FUZZ="$*" fuzz-programs
else
    echo "no libFuzzer here (clang, libclang-rt-14-dev): our own mutations instead"
    build=build-address-undefined
    $MAKE SANITIZE=address,undefined FUZZ="$*" fuzz-programs
fi
found=$PWD/$build/fuzz-found
mkdir -p "$found"

run() {
    if [ $build = build-address-undefined ]; then
        (cd "$found" && timeout -s KILL $((SECONDS_EACH + 120)) "../fuzz/fuzz_$1" -runs=1000000000 "-seconds=$SECONDS_EACH" \
            -timeout=20 -seed=$RANDOM "$OLDPWD/fuzz/corpus/$1")
    else
        mkdir -p "$found/$1"
        timeout -s KILL $((SECONDS_EACH + 120)) "$build/fuzz/fuzz_$1" "-max_total_time=$SECONDS_EACH" -timeout=20 \
            -rss_limit_mb=2048 -malloc_limit_mb=1024 -max_len=4096 "-artifact_prefix=$found/$1-" -print_final_stats=1 \
            "$found/$1" "fuzz/corpus/$1"
    fi
}

broken=0
for target in "$@"; do
    echo "== $target"
    if ! run "$target" >"$found/$target.log" 2>&1; then
        broken=$((broken + 1))
        grep -E '^fuzz:|ERROR|SUMMARY|runtime error|Test unit written|^ALARM' "$found/$target.log" || tail -n 20 "$found/$target.log"
        echo "broken: the whole log is $found/$target.log"
    else
        grep -E 'number_of_executed_units|mutations' "$found/$target.log" || true
    fi
done
echo "$# targets, $broken broken"
[ $broken = 0 ]
