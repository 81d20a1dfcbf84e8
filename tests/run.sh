#!/bin/bash
# Runs tests and counts them: tests/run.sh PROGRAM_OR_SCRIPT...
# A program is a cmocka program, counted by the summaries that cmocka prints; a script (*.sh) prints a line "ok NAME",
# "not ok NAME: reason" or "skip NAME: reason" for each test. One that crashes, runs out of time or runs no test is one
# more failure, and does not keep the others from running. The last line is "N passed, M failed, K skipped"; the skipped
# ones stand above it, each with its reason where one was given.
# build/test-logs/times has the seconds that each took, and the seconds of processors.
# Tests run in the repository's root, several at once (LS_TEST_JOBS), each for at most LS_TEST_TIMEOUT seconds (300; 900
# under sanitizers): then it is asked to end, and killed 5 seconds later with all it started.
set -eu

cd "$(dirname "$0")/.."
export LS_BUILD=${LS_BUILD:-build} CC=${CC:-gcc} SANITIZE=${SANITIZE:-}
TIMEOUT=${LS_TEST_TIMEOUT:-$([ -n "$SANITIZE" ] && echo 900 || echo 300)}
JOBS=${LS_TEST_JOBS:-$(($(nproc 2>/dev/null || echo 2) * 3))} # more than cores: many wait more than they compute
LOGS=$LS_BUILD/test-logs
export LOCKSTEP_SILENCE_LIMIT=${LOCKSTEP_SILENCE_LIMIT:-20} # workers on a crowded machine are slow, not dead
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1}
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$PWD/tests/support/leaks:print_suppressions=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-second_deadlock_stack=1}

COUNT=$# # tests
rm -rf "$LOGS"
mkdir -p "$LOGS"

# Prints "passed failed skipped" of a cmocka program. A group that was cut short has no summary, only a line for each
# test that ended. (Summaries and failures go to standard error, in order; "OK" lines to standard output.)
count_program() {
    awk '
        /^\[  PASSED  \] [0-9]+ test\(s\)\./ { passed += $4 }
        /^\[  FAILED  \] [0-9]+ test\(s\)/ { failed += $4; bad = 0; listing = 1; next }
        /^\[  SKIPPED \] [0-9]+ test\(s\)/ { skipped += $4; listing = 1; next }
        /^\[==========\] Running/ { listing = 0 }
        /^\[       OK \]/ { ok++ }
        /^\[  FAILED  \] / && !listing { bad++ }
        END { print (ok > passed ? ok : passed + 0), failed + bad, skipped + 0 }' "$@"
}

count_script() {
    awk '/^ok /{ p++ } /^not ok /{ f++ } /^skip /{ s++ } END { print p + 0, f + 0, s + 0 }' "$1"
}

# Runs one test; leaves NAME.out, NAME.err and NAME.count ("passed failed skipped") in the logs, and prints the result.
run_one() {
    local test=$1 name log status=0 pid passed failed skipped trouble=
    name=$(basename "$test" .sh)
    log=$LOGS/$name
    local begin=$SECONDS
    timeout -k 5 "$TIMEOUT" "$test" >"$log.out" 2>"$log.err" </dev/null &
    pid=$!
    trap 'kill "$pid"' TERM
    { wait "$pid"; } 2>/dev/null || status=$? # quiet: the shell would announce a crash in its own words

    case $test in
    *.sh) read -r passed failed skipped < <(count_script "$log.out") ;;
    *) read -r passed failed skipped < <(count_program "$log.out" "$log.err") ;;
    esac

    if [ $status = 124 ] || [ $status = 137 ]; then
        trouble="timed out after $TIMEOUT seconds"
    elif [ $status -gt 128 ] && [ $status -lt 160 ]; then
        trouble="crashed (signal $((status - 128)))"
    elif [ $status != 0 ] && [ "$failed" = 0 ]; then
        trouble="ended with status $status"
    elif [ $((passed + failed + skipped)) = 0 ]; then
        trouble="ran no test"
    fi
    [ -z "$trouble" ] || failed=$((failed + 1))
    echo "$passed $failed $skipped" >"$log.count"
    times >"$log.seconds" # the second line is of what was started here
    local computed
    computed=$(awk -F'[ms ]' 'NR == 2 { print int($1 * 60 + $2 + $4 * 60 + $5) }' "$log.seconds")
    echo "$((SECONDS - begin)) $computed $name" >"$log.seconds"
    skips >"$log.skips"
    report >"$log.report"
    flock "$LOGS" cat "$log.report" # whole reports, even when two tests end together
}

# One line for each skipped test: "NAME: which: why". Uses run_one's variables, as does report.
skips() {
    [ "$skipped" = 0 ] || awk -v name="$name" '
        /^skip / { print name ": " substr($0, 6) }
        /^\[   WHY    \] / { split(substr($0, 14), part, ": "); why[part[1]] = substr($0, 14) }
        /^\[  SKIPPED \] [^0-9]/ { test = substr($0, 14); if (!seen[test]++) print name ": " (test in why ? why[test] : test) }
    ' "$log.out" "$log.err"
}

report() {
    local line
    line=$(printf '%-28s %4d passed' "$name" "$passed")
    [ "$skipped" = 0 ] || line="$line, $skipped skipped"
    [ "$failed" = 0 ] || line="$line, $failed FAILED"
    printf '%-64s %3d of %d, %d s\n' "$line" "$(find "$LOGS" -name '*.count' | wc -l)" "$COUNT" "$SECONDS"
    [ "$failed" = 0 ] && return
    case $test in
    *.sh) grep -v -E '^(ok|skip) ' "$log.out" || true ;;
    *) grep -v -E '^\[( RUN      |       OK |==========)\]' "$log.out" || true ;;
    esac | sed 's/^/    /'
    sed 's/^/    /' "$log.err"
    [ -z "$trouble" ] || echo "    $name $trouble"
}

# The longest tests begin first, so that none runs alone at the end. Scripts mostly wait, programs compute: side by side
# they take less time than one kind after the other.
LONGEST=" test_elastic test_worker_kills test_started test_gpu_kernels test_async_servers test_worker_schedules test_strategies "
programs=() scripts=() order=()
for test in "$@"; do
    name=${test##*/}
    case "$LONGEST:$test" in
    *" ${name%.sh} "*) order+=("$test") ;;
    *.sh) scripts+=("$test") ;;
    *) programs+=("$test") ;;
    esac
done
for ((i = 0; i < $#; i++)); do
    order+=("${scripts[@]:i:1}" "${programs[@]:i:1}")
done

trap 'trap - TERM; kill $(jobs -p) 2>/dev/null; exit 130' INT TERM
for test in "${order[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do
        wait -n || true
    done
    run_one "$test" &
done
wait

read -r passed failed skipped < <(cat /dev/null "$LOGS"/*.count 2>/dev/null |
    awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }')
# A test whose own count is missing was lost with its runner.
for test in "$@"; do
    [ -e "$LOGS/$(basename "$test" .sh).count" ] || { echo "$test left no result"; failed=$((failed + 1)); }
done
cat /dev/null "$LOGS"/*.seconds | sort -rn >"$LOGS/times" # the slowest first
[ "$skipped" = 0 ] || cat "$LOGS"/*.skips | sed 's/^/skipped: /'
echo "$passed passed, $failed failed, $skipped skipped" | tee "$LOGS/summary"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
