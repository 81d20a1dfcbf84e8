#!/bin/sh
# Every kernel against the reference under a limit of the instruction set; test_cpu's own run is the one without.
# (test_special_values, test_bits and test_step_bits go through all of them by themselves.)
. "$(dirname "$0")/lib.sh"

# under LIMIT PROGRAM
under() {
    LOCKSTEP_ISA=$1 timeout 300 "$LS_BUILD/tests/$2" >"$TMP/out" 2>&1 || {
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
check test_cpu_at_avx2 under avx2 test_cpu
finish
