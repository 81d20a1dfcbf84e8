#!/bin/sh
# Runs benchmark programs one after another, never two at once: bench/run.sh PROGRAM...
# Each prints its own table. A program that fails does not keep the others from running.
set -eu

status=0
[ $# -gt 0 ] || echo "no benchmarks: bench/ has no bench_*.c"
for program in "$@"; do
    echo "== $(basename "$program")"
    "$program" || { echo "$(basename "$program") failed with status $?" >&2; status=1; }
done
exit $status
