#!/bin/sh
# Every fuzz target on its corpus, and on some mutations of it: the same ones every time. `make fuzz` goes on from here.
. "$(dirname "$0")/../support/lib.sh"

# Files and texts are quick; a graph is run five times, a model trained three times.
for program in $LS_BUILD/fuzz/fuzz_*; do
    target=${program##*/fuzz_}
    case $target in
    graph | model) runs=60 ;;
    devices) runs=20 ;;
    keras | report) runs=1500 ;;
    *) runs=5000 ;;
    esac
    [ -z "$SANITIZE" ] || runs=$((runs / 10))
    replay() {
        (cd "$TMP" && timeout -s KILL 120 "$ROOT/$program" -runs=$runs -timeout=60 "$ROOT/fuzz/corpus/$target")
    }
    check "$target" replay
done
finish
