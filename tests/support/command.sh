# What the test scripts of the command share; sourced after lib.sh.

LOCKSTEP=$ROOT/$LS_BUILD/lockstep
SMALL=synthetic:28x28x1,classes=10,count=70

# ends STATUS COMMAND...: it ends with that status; output in $TMP/out, errors in $TMP/err. Other failures print both.
ends() {
    wanted=$1 status=0
    shift
    "$@" >"$TMP/out" 2>"$TMP/err" </dev/null || status=$?
    [ $status = "$wanted" ] || { echo "status $status, not $wanted"; cat "$TMP/out" "$TMP/err"; return 1; }
}

# refuses STATUS PATTERN ARGUMENTS...: nothing on standard output, one line on standard error that matches.
refuses() {
    status=$1 pattern=$2
    shift 2
    ends "$status" "$LOCKSTEP" "$@" || return 1
    [ ! -s "$TMP/out" ] && [ "$(wc -l <"$TMP/err")" = 1 ] && grep -E -q "^lockstep: .*$pattern" "$TMP/err" ||
        { cat "$TMP/out" "$TMP/err"; return 1; }
}

# prints PATTERN ARGUMENTS...: ends well, says nothing on standard error, and a line of the output matches.
prints() {
    pattern=$1
    shift
    ends 0 "$LOCKSTEP" "$@" || return 1
    [ ! -s "$TMP/err" ] && grep -E -q -e "$pattern" "$TMP/out" || { cat "$TMP/out" "$TMP/err"; return 1; }
}

# Waits until the file has a line that matches, for at most 60 seconds.
wait_for() {
    tries=0
    until grep -q "$2" "$1" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || { echo "no '$2' in $1"; return 1; }
        sleep 0.1
    done
}
