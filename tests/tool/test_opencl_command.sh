#!/bin/sh
# The command with OpenCL devices: by their names alone, with the CPU's bits. Skipped where there are none.
LOCKSTEP_OPENCL_PARTS=2
. "$(dirname "$0")/../support/lib.sh"
LOCKSTEP="$LS_BUILD/lockstep"
export POCL_CACHE_DIR="${TMPDIR:-/tmp}/lockstep-kernels-$(id -u)" LOCKSTEP_CACHE="$TMP"

if ! timeout 60 "$LOCKSTEP" devices | grep -q 'device:OPENCL:1'; then
    skip trains_on_opencl "no OpenCL device with two cores (tools/deps.sh install opencl)"
    finish
fi

# The hash of the weights after training on the devices $1.
hash_on() {
    timeout 200 "$LOCKSTEP" train mnist-cnn --data synthetic:count=64 --batch-size 32 --epochs 1 --seed 3 --devices "$1" |
        sed -n 's/^weights sha256: //p'
}

same_hash() {
    cpu=$(hash_on cpu:0) opencl=$(hash_on "$1")
    [ -n "$cpu" ] && [ "$cpu" = "$opencl" ] || { echo "on the CPU: $cpu, on $1: $opencl"; return 1; }
}
check trains_on_opencl_as_on_the_cpu same_hash opencl:0
check trains_on_the_second_alone same_hash opencl:1
check trains_on_two_halves same_hash opencl:0-1
check trains_on_the_cpu_and_opencl same_hash cpu:0,opencl:0

# Two workers, of which $1 is the first's device and $2 the second's.
same_hash_of_workers() {
    cpu=$(hash_on cpu:0)
    # shellcheck disable=SC2016 # it is the worker's shell that knows its number
    both=$(timeout 200 "$LOCKSTEP" launch --workers 2 -- sh -c '[ "$LOCKSTEP_RANK" = 0 ] || shift; exec "$LOCKSTEP" train mnist-cnn \
        --data synthetic:count=64 --batch-size 32 --epochs 1 --seed 3 --devices "$1"' - "$1" "$2" |
        sed -n 's/^weights sha256: //p')
    [ -n "$cpu" ] && [ "$cpu" = "$both" ] || { echo "on the CPU: $cpu, on workers with $1 and $2: $both"; return 1; }
}
export LOCKSTEP LOCKSTEP_GRACE=5
check workers_train_on_opencl same_hash_of_workers opencl:0 opencl:1
check workers_on_devices_of_different_kinds_meet same_hash_of_workers opencl:0 cpu:0
check a_worker_may_have_several_kinds same_hash_of_workers cpu:0 opencl:0,cpu:0

# The programs of the seeds, unchanged: what they print of a training is what they print on the CPU.
same_numbers() {
    timeout 100 "$@" | sed 's/ - [0-9.]*m*s.*step - / - /' >"$TMP/cpu.out"
    LOCKSTEP_VISIBLE_DEVICES=opencl:0 timeout 200 "$@" | sed 's/ - [0-9.]*m*s.*step - / - /' >"$TMP/opencl.out"
    [ -s "$TMP/cpu.out" ] && diff "$TMP/cpu.out" "$TMP/opencl.out"
}
check fit_mirrored_runs_unchanged same_numbers "$LS_BUILD/examples/fit_mirrored" 1 600 1
check custom_loop_runs_unchanged same_numbers "$LS_BUILD/examples/custom_loop" 1 600 300 1
check fashion_loop_runs_unchanged same_numbers "$LS_BUILD/examples/fashion_loop" 1 600
on_the_device() { # PoCL keeps what it has compiled
    POCL_CACHE_DIR="$TMP/pocl" LOCKSTEP_VISIBLE_DEVICES=opencl:0 timeout 200 "$LS_BUILD/examples/fit_mirrored" 1 600 1 &&
        find "$TMP/pocl" -name '*.so' | grep -q conv
}
check and_does_so_on_the_device on_the_device

# What fails, and each of these words is in the message. $1: devices, or layers and their devices
fails_with() {
    case $1 in
    *=*) where=--place ;;
    *) where=--devices ;;
    esac
    devices=$1
    shift
    ! timeout 100 "$LOCKSTEP" train mnist-cnn --data synthetic:count=64 --batch-size 32 --epochs 1 --seed 3 $where "$devices" $FLAGS \
        >"$TMP/out" 2>&1 || { echo "it did not fail"; return 1; }
    for word; do grep -qF -- "$word" "$TMP/out" || { echo "no '$word' in: $(tail -3 "$TMP/out")"; return 1; }; done
}
FLAGS=
check a_device_that_is_not_there_is_told fails_with opencl:7 'there is no OPENCL:7' 'OPENCL:0 to OPENCL:1'
wrong_parts() {
    LOCKSTEP_OPENCL_PARTS=2x fails_with opencl:0 'there is no OPENCL (lockstep devices' &&
        LOCKSTEP_OPENCL_PARTS=2x timeout 60 "$LOCKSTEP" devices >"$TMP/list" &&
        grep -q 'OpenCL: none (not used: LOCKSTEP_OPENCL_PARTS is 2x; expected a number' "$TMP/list"
}
check parts_that_are_no_number_are_told wrong_parts

# Memory limits that suffice change no bit, on any device.
limited() {
    FLAGS="--memory-limit $2 --memory-growth"
    timeout 200 "$LOCKSTEP" train mnist-cnn --data synthetic:count=64 --batch-size 32 --epochs 1 --seed 3 --devices "$1" $FLAGS >"$TMP/out" &&
        [ "$(sed -n 's/^weights sha256: //p' "$TMP/out")" = "$(hash_on cpu:0)" ]
}
check a_limit_that_suffices_changes_nothing limited opencl:0 24
check a_limit_is_for_both_kinds limited cpu:0,opencl:0 24
FLAGS='--memory-limit 4 --memory-growth'
check a_limit_that_does_not_is_told fails_with opencl:0 'OPENCL:0: this run needs' 'the limit is 4.0 MiB'
check a_limit_is_for_devices_of_layers fails_with ..=opencl:0 'OPENCL:0: this run needs' 'the limit is 4.0 MiB'
FLAGS='--memory-limit 20,30'
check a_list_of_limits_is_of_cpus fails_with cpu:0,opencl:0 'with OPENCL:0 give one limit'

is_listed() {
    timeout 60 "$LOCKSTEP" devices >"$TMP/list" &&
        grep -q 'physical_device:OPENCL:0 .*(not visible)' "$TMP/list" && grep -q '^  OpenCL: [1-9]' "$TMP/list" &&
        ! grep -q 'device:OPENCL:0 .*at most' "$TMP/list"
}
check is_listed_and_not_used_by_itself is_listed

is_named() {
    LOCKSTEP_VISIBLE_DEVICES=opencl:0 timeout 60 "$LOCKSTEP" devices >"$TMP/list" &&
        grep -q '^  opencl:0 .*at most' "$TMP/list" && grep -q 'definition [0-9]*; canary [0-9a-f]*$' "$TMP/list"
}
check is_used_where_it_is_named is_named

doctor_is_well() {
    timeout 200 "$LOCKSTEP" doctor >"$TMP/doctor" && grep -q "^ok *OpenCL: 2 devices .*the same bits as the CPU" "$TMP/doctor"
}
check doctor_asks_every_device doctor_is_well

# In containers that show nothing of the machine. Without /sys PoCL ends the process that loads it.
hidden() { unshare -m sh -c 'mount -t tmpfs none /sys && mount -t tmpfs none /proc && "$@"' - "$@"; }
trains_without_sys() {
    hidden timeout 200 "$LOCKSTEP" train linear --data synthetic:1,count=8 --batch-size 4 --epochs 1 >"$TMP/out" &&
        hidden timeout 60 "$LOCKSTEP" devices >"$TMP/list" && grep -q 'OpenCL: none (not used: there is no /sys' "$TMP/list"
}
if [ -n "$SANITIZE" ]; then
    skip trains_without_sys_and_proc "sanitizers need /proc"
elif hidden true 2>/dev/null; then
    check trains_without_sys_and_proc trains_without_sys
else
    skip trains_without_sys_and_proc "no permission to mount (unshare -m)"
fi
finish
