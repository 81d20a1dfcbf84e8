# Functions of steps.sh and predict.sh, which source it: one of our programs and its peers, in turns.
# Sets PROGRAM, ROWS (from the arguments, or the first word list), PYTHON and WORK, which is removed at the end.

# begin DEFAULT_ROWS PROGRAM [ROW...]
begin() {
    ROWS=$1
    PROGRAM=$2
    shift 2
    [ $# = 0 ] || ROWS=$*
    PYTHON=${PEERS:-}/bin/python
    WORK=$(mktemp -d)
    trap 'rm -rf "$WORK"' EXIT
    [ -x "$PYTHON" ] || echo "No peers in ${PEERS:-PEERS} (make bench-peers installs them): measured alone."
}

# take_turns PEERS_SCRIPT ROW COUNT JSON FRAMEWORK...: ROUNDS times ours, then each framework. JSON: a file for the row's
# model, which the script writes; empty: the program knows the model.
take_turns() {
    script=$1 row=$2 count=$3 json=$4
    shift 4
    [ -z "$json" ] || "$PYTHON" "$script" "$row" json "$json" 2>/dev/null
    for round in $(seq "${ROUNDS:-3}"); do
        "$PROGRAM" "$row" "$count" ${json:+"$json"}
        for framework in "$@"; do
            "$PYTHON" "$script" "$row" "$framework" "$count" 2>/dev/null || echo "$framework $row: failed"
        done
    done
}
