# What the test scripts share; each starts with: . "$(dirname "$0")/../support/lib.sh"
# Sets ROOT, LS_BUILD, CC, SANITIZE and an empty directory TMP, which is removed at the end.
set -eu

cd "$(dirname "$0")/../.."
ROOT=$PWD
# What GPUs this machine has changes no output that is compared.
export LOCKSTEP_OPENCL_PARTS="${LOCKSTEP_OPENCL_PARTS:-0}" CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES-}"
LS_BUILD=${LS_BUILD:-build} CC=${CC:-gcc} SANITIZE=${SANITIZE:-}
[ -z "$SANITIZE" ] || PATH=$ROOT/tests/support/patient:$PATH
TMP=$(mktemp -d)
trap 'end_of_script; rm -rf "$TMP"' EXIT
trap 'exit 143' TERM INT
FAILED=0

ok() { echo "ok $1"; }
not_ok() { echo "not ok $1: $2"; FAILED=1; }
skip() { echo "skip $1: $2"; }
finish() { exit $FAILED; }

# A script that ends inside a check, by an error of its own, reports which.
exec 9>&1 # what a check prints goes elsewhere
check_name= checking=
end_of_script() {
    [ -z "$checking" ] || not_ok "$check_name" "the script ended here: $(head -c 2000 "$TMP/check.out")" >&9
}

# check NAME COMMAND...: one test, passed when the command succeeds; its output is the reason when not.
check() {
    check_name=$1 checking=1
    shift
    if "$@" >"$TMP/check.out" 2>&1; then
        ok "$check_name"
    else
        not_ok "$check_name" "$(head -c 2000 "$TMP/check.out")"
    fi
    checking=
}

# step_hashes LOG: number and hash of each step that it has
step_hashes() { sed -n 's/.*"event":"step","step":\([0-9]*\),.*"hash":"\([0-9a-f]*\)".*/\1 \2/p' "$1"; }

# until_text TEXT FILE PROCESS...: the file has it, or none of the processes is left. No process is started while waiting
# (bash). Not $(<FILE), which ends the script when the file cannot be opened.
until_text() {
    local text= wanted=$1 file=$2 process alive=1
    shift 2
    until [[ $text == *$wanted* || $alive = 0 ]]; do
        [ ! -e "$file" ] || read -r -d '' text <"$file" || true
        alive=0
        for process in "$@"; do ! kill -0 "$process" 2>/dev/null || alive=1; done
    done
}

# children PID: the processes that it started. Reads /proc: pgrep is not on every machine.
children() { sed -n "s/^\([0-9]*\) (.*) [A-Za-z] $1 .*/\1/p" /proc/[0-9]*/stat 2>/dev/null || :; }

# worker_of LAUNCHER RANK: the process of one worker
worker_of() {
    local child
    for child in $(children "$1"); do
        ! tr '\0' '\n' <"/proc/$child/environ" 2>/dev/null | grep -qx "LOCKSTEP_RANK=$2" || echo "$child"
    done
}

# have_argument TEXT: the /proc folders of processes with this text in their arguments. grep reads the text from its input:
# its own arguments do not have it.
have_argument() { printf '%s\n' "$1" | grep -l -a -F -f - /proc/[0-9]*/cmdline 2>/dev/null || :; }

# two_machines NAME ONE TWO NETWORK: two network namespaces with a cable between them, at NETWORK.1 and NETWORK.2. Where that
# is impossible the tests NAME are skipped, and the script ends.
two_machines() {
    command -v ip >/dev/null 2>&1 || { skip "$1" "there is no ip command"; finish; }
    make_machines $2 $3 $4 >"$TMP/why" 2>&1 ||
        { skip "$1" "network namespaces are not permitted here: $(tail -n 1 "$TMP/why")"; finish; }
}
make_machines() {
    ip netns add $1 && ip netns add $2 && ip link add $1 type veth peer name $2 && ip link set $1 netns $1 &&
        ip link set $2 netns $2 && ip -n $1 address add $3.1/24 dev $1 && ip -n $2 address add $3.2/24 dev $2 || return 1
    for each in $1 $2; do
        ip -n $each link set lo up && ip -n $each link set $each up && ip netns exec $each true || return 1
    done
}
remove_machines() { for each in "$@"; do ip netns del $each 2>/dev/null || true; done; }

# small_model FILTERS: a convolution, a batch norm and dropout over 12x12x1, as Keras writes it
small_model() {
    cat <<END_OF_MODEL
{"module": "keras", "class_name": "Sequential", "registered_name": "Sequential", "config": {"name": "m", "layers": [
  {"module": "keras.layers", "class_name": "InputLayer", "registered_name": null,
   "config": {"batch_shape": [null, 12, 12, 1], "dtype": "float32", "name": "x"}},
  {"module": "keras.layers", "class_name": "Conv2D", "registered_name": null,
   "config": {"name": "c", "filters": $1, "kernel_size": [3, 3], "activation": "relu"}},
  {"module": "keras.layers", "class_name": "BatchNormalization", "registered_name": null, "config": {"name": "b"}},
  {"module": "keras.layers", "class_name": "Flatten", "registered_name": null, "config": {"name": "f"}},
  {"module": "keras.layers", "class_name": "Dropout", "registered_name": null, "config": {"name": "o", "rate": 0.5}},
  {"module": "keras.layers", "class_name": "Dense", "registered_name": null,
   "config": {"name": "d", "units": 4, "activation": "softmax"}}]}}
END_OF_MODEL
}

# make with the variables of the outer make (CC, CFLAGS, ...), but not with its jobs, which are not handed to scripts.
MAKEFLAGS=$(printf '%s' "${MAKEFLAGS:-}" | sed -e 's/ -j[0-9]*//' -e 's/ --jobserver-[a-z]*=[^ ]*//' -e 's/ TESTS=.*//')
export MAKEFLAGS
unset MFLAGS MAKELEVEL TESTS
