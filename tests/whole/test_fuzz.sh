#!/bin/sh
# Every fuzz target on its corpus, and on some mutations of it: the same ones every time. `make fuzz` continues from here.
. "$(dirname "$0")/../support/lib.sh"

# Files and texts are quick; a graph is run five times, a model trained three times.
for source in fuzz/fuzz_*.c; do
    target=$(basename "${source#fuzz/fuzz_}" .c)
    case $target in
    graph | model) runs=60 ;;
    devices) runs=20 ;;
    keras | report) runs=1500 ;;
    *) runs=5000 ;;
    esac
    [ -z "$SANITIZE" ] || runs=$((runs / 10))
    replay() {
        (cd "$TMP" && timeout -s KILL 120 "$ROOT/$LS_BUILD/fuzz/fuzz_$target" -runs=$runs -timeout=60 "$ROOT/fuzz/corpus/$target")
    }
    check "$target" replay
done
finish
