#!/bin/sh
# The command with CUDA devices, of a stand-in for the driver (standin_cuda/standin.h): by their names alone, with the CPU's
# bits; numbers follow CUDA_VISIBLE_DEVICES; what cannot be loaded is said, and why, and is no error.
. "$(dirname "$0")/../support/lib.sh"
LOCKSTEP="$LS_BUILD/lockstep"
unset CUDA_VISIBLE_DEVICES
export LOCKSTEP_CUDA_PATH="$LS_BUILD/tests/standin_cuda" LOCKSTEP_CACHE="$TMP/cache"

# The hash of the weights after training on the devices $1.
hash_on() {
    timeout 200 "$LOCKSTEP" train mnist-cnn --data synthetic:count=64 --batch-size 32 --epochs 1 --seed 3 --devices "$1" |
        sed -n 's/^weights sha256: //p'
}
cpu=$(hash_on cpu:0)

same_hash() {
    cuda=$(hash_on "$1")
    [ -n "$cpu" ] && [ "$cpu" = "$cuda" ] || { echo "on the CPU: $cpu, on $1: $cuda"; return 1; }
}
check trains_on_cuda_as_on_the_cpu same_hash cuda:0
check trains_on_two_called_gpu same_hash gpu:0-1

# A second process loads what the first has compiled; what is broken on disk is compiled again.
keeps_kernels() {
    ls "$TMP"/cache/cuda/*.bin >"$TMP/kept" && [ "$(wc -l <"$TMP/kept")" -ge 1 ] &&
        for file in $(cat "$TMP/kept"); do echo broken >"$file" || return 1; done &&
        same_hash cuda:1 && ! grep -lx broken "$TMP"/cache/cuda/*.bin
}
check keeps_compiled_kernels keeps_kernels

is_listed() {
    timeout 60 "$LOCKSTEP" devices >"$TMP/list" && grep -q '^  CUDA: 2 devices, driver 13.0 (.*), NVRTC 13.0 (.*)' "$TMP/list" &&
        grep -q '^  cuda:1 .*at most' "$TMP/list" && grep -q 'definition [0-9]*; canary [0-9a-f]*$' "$TMP/list"
}
check is_listed_and_used_by_itself is_listed

numbers_follow() {
    CUDA_VISIBLE_DEVICES=1,0 timeout 60 "$LOCKSTEP" devices >"$TMP/list" &&
        grep -q 'physical_device:CUDA:0  Stand-in 1;' "$TMP/list" && grep -q 'physical_device:CUDA:1  Stand-in 0;' "$TMP/list" &&
        CUDA_VISIBLE_DEVICES=1 timeout 60 "$LOCKSTEP" devices >"$TMP/list" && grep -q 'CUDA:0  Stand-in 1;' "$TMP/list" &&
        ! grep -q 'CUDA:1' "$TMP/list"
}
check numbers_follow_cuda_visible_devices numbers_follow

# $1: text of the line with the reason that there is none.
has_none() {
    timeout 60 "$LOCKSTEP" devices >"$TMP/list" && ! grep -q 'device:CUDA' "$TMP/list" && grep "^  CUDA: none" "$TMP/list" &&
        grep -q "^  CUDA: none (.*$1.*)" "$TMP/list"
}
hides_all() {
    CUDA_VISIBLE_DEVICES='' has_none 'CUDA_ERROR_NO_DEVICE (100); CUDA_VISIBLE_DEVICES is set'
}
check none_visible_is_no_error hides_all

mkdir "$TMP/empty" "$TMP/old"
if [ -e /usr/local/cuda/lib64/libcuda.so.1 ] || ldconfig -p 2>/dev/null | grep -q 'libcuda.so.1'; then
    skip no_driver_is_no_error "this machine has a driver"
else
    no_driver() {
        LOCKSTEP_CUDA_PATH="$TMP/empty" has_none 'libcuda.so.1: cannot open'
    }
    check no_driver_is_no_error no_driver
fi

# A library that is none of CUDA's has not its functions.
old_driver() {
    echo 'int cuInit(unsigned f) { return (int)f; }' >"$TMP/old.c" &&
        ${CC:-cc} -shared -fPIC "$TMP/old.c" -o "$TMP/old/libcuda.so.1" && LOCKSTEP_CUDA_PATH="$TMP/old" has_none 'has no cu'
}
check an_older_driver_is_said old_driver

doctor_is_well() {
    timeout 200 "$LOCKSTEP" doctor >"$TMP/doctor" && grep -q "^ok *CUDA: 2 devices .*the same bits as the CPU" "$TMP/doctor"
}
check doctor_asks_every_device doctor_is_well

# Devices with the fault $1 are refused, with the name of the check that differs, $2.
doctor_refuses() {
    ! STANDIN_CUDA_BROKEN=$1 timeout 200 "$LOCKSTEP" doctor >"$TMP/doctor" 2>"$TMP/doctor.err" &&
        grep -q "^NOT OK  CUDA: 2 devices .*CUDA:0: .*other bits than the CPU: .*CUDA self-check [0-9a-f]* ($2)" "$TMP/doctor" &&
        grep -q "^  definition [0-9]*; canary .*; CUDA self-check [0-9a-f]* ($2)" "$TMP/doctor" &&
        grep -q "warning: cuda:1: .* self-checks differ .* first is $2" "$TMP/doctor.err"
}
if [ "$(uname -m)" = x86_64 ]; then
    check doctor_refuses_flushed_subnormals doctor_refuses subnormals product
else
    skip doctor_refuses_flushed_subnormals "the stand-in flushes subnormals on x86-64 alone"
fi
check doctor_refuses_products_that_round_twice doctor_refuses fma 'matrix product'
finish
