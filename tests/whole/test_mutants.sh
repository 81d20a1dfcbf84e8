#!/bin/sh
# Every text that tests/mutants.list wants to change is where it says, once. `make mutants` runs them.
. "$(dirname "$0")/../support/lib.sh"
check "the mutants can be made" tests/mutants.sh --check
finish
