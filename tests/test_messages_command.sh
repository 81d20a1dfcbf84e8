#!/bin/bash
# What the command answers to mistakes: what failed, where, and what to do.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/command.sh"

check "launch without -- before the program" \
    refuses 2 "launch: -- is missing before the program 'lockstep': write lockstep launch --workers N -- PROGRAM .*unknown option --data" \
    launch lockstep train mlp --data $SMALL
check "launch: a misspelt option of its own" refuses 2 'unknown option --worker; did you mean --workers\?' launch --worker 2 -- true
check "a device that is not there" \
    refuses 2 'device "gpu:0": there is no GPU .*CPU:0 \(and up to CPU:1023, which share its cores\)' \
    train mlp --data $SMALL --devices gpu:0

finish
