#!/bin/sh
# The command with kernels of cuBLAS and cuDNN, of a stand-in (standin_cuda/standin.h): one hash on any number of devices, close to
# that of our own kernels; checkpoints and workers of the other set are refused; an unavailable set is refused before anything else. And a GPU
# that is newer than NVRTC knows.
. "$(dirname "$0")/../support/lib.sh"
LOCKSTEP="$LS_BUILD/lockstep"
unset CUDA_VISIBLE_DEVICES
export LOCKSTEP_CUDA_PATH="$LS_BUILD/tests/standin_cuda" LOCKSTEP_CACHE="$TMP/cache" STANDIN_CUDA_DEVICES=3 STANDIN_CUDA_MEMORY=4294967296 LOCKSTEP

# Training with kernels $1 on devices $2, and more flags.
train() {
    kernels=$1 devices=$2
    shift 2
    timeout 200 "$LOCKSTEP" train mnist-cnn --data synthetic:count=48 --batch-size 24 --epochs 1 --seed 3 --devices "$devices" \
        --kernels "$kernels" "$@"
}

one_hash() {
    train own cuda:0 >"$TMP/own" && train vendor cuda:0 >"$TMP/one" && train vendor cuda:0-1 >"$TMP/two" &&
        LOCKSTEP_KERNELS=vendor timeout 200 "$LOCKSTEP" train mnist-cnn --data synthetic:count=48 --batch-size 24 --epochs 1 \
            --seed 3 --devices cuda:0-2 >"$TMP/three" &&
        for run in own one two three; do sed -n 's/^weights sha256: //p' "$TMP/$run" >"$TMP/$run.hash"; done &&
        cat "$TMP"/*.hash && [ -s "$TMP/one.hash" ] && cmp "$TMP/one.hash" "$TMP/two.hash" &&
        cmp "$TMP/one.hash" "$TMP/three.hash" && ! cmp -s "$TMP/one.hash" "$TMP/own.hash"
}
check one_hash_on_any_number_of_devices one_hash

# The loss on test data, to the fourth digit.
loss_of() {
    sed -n 's/^test loss: \([0-9]*\.[0-9]\{3\}\).*/\1/p' "$TMP/$1"
}
is_close() {
    [ -n "$(loss_of own)" ] && [ "$(loss_of own)" = "$(loss_of one)" ]
}
check the_loss_is_close_to_that_of_our_kernels is_close

# What fails, and each of these words is in the message.
fails_with() {
    command=$1
    shift
    ! $command >"$TMP/out" 2>&1 || { echo "$command did not fail"; return 1; }
    for word; do grep -qF -- "$word" "$TMP/out" || { echo "no '$word' in: $(tail -3 "$TMP/out")"; return 1; }; done
}

begin_own() { train own cuda:0 --checkpoint "$TMP/runs/own" --max-steps 1 >/dev/null; }
begin_vendor() { train vendor cuda:0 --checkpoint "$TMP/runs/vendor" --max-steps 1 >/dev/null; }
go_on_with_vendor() { train vendor cuda:0 --checkpoint "$TMP/runs/own" --resume; }
go_on_with_own() { train own cuda:0 --checkpoint "$TMP/runs/vendor" --resume; }
go_on_elsewhere() { train vendor cuda:1-2 --checkpoint "$TMP/runs/vendor" --resume >"$TMP/on"; }
checkpoints() {
    class='kernels of the vendor: cuBLAS 13.0.2 and cuDNN 9.13.0 on sm_80 with 108 multiprocessors; CUDA canary'
    begin_own && begin_vendor && fails_with go_on_with_vendor "$class" 'definition' 'other bits' &&
        fails_with go_on_with_own "$class" 'other bits'
}
check checkpoints_of_the_other_set_are_refused checkpoints
same_after_resume() {
    go_on_elsewhere && sed -n 's/^weights sha256: //p' "$TMP/on" | cmp - "$TMP/one.hash"
}
check checkpoints_of_the_same_set_go_on_elsewhere same_after_resume

# shellcheck disable=SC2016 # it is the worker's shell that knows its number
workers() {
    timeout 200 "$LOCKSTEP" launch --workers 2 --restarts 0 -- sh -c '[ "$LOCKSTEP_RANK" = 0 ] || shift; exec "$LOCKSTEP" train mnist-cnn \
        --data synthetic:count=48 --batch-size 24 --epochs 1 --seed 3 --devices cuda:0 --kernels "$1"' - "$1" "$2"
}
mixed_workers() { workers own vendor; }
export LOCKSTEP_GRACE=5
check workers_of_different_sets_do_not_meet fails_with mixed_workers 'kernels of the vendor'
equal_workers() {
    workers vendor vendor >"$TMP/workers" && sed -n 's/^weights sha256: //p' "$TMP/workers" | cmp - "$TMP/one.hash"
}
check workers_of_one_set_have_its_hash equal_workers

# ---- What cannot be had ----

on_cpu() { train vendor cpu:0; }
check a_cpu_has_none fails_with on_cpu "the vendor's kernels run only on CUDA, not on cpu:0"
on_both() { train vendor cpu:0,cuda:0; }
check a_cpu_beside_cuda_is_refused fails_with on_both 'not on cpu:0'
without_cuda() { CUDA_VISIBLE_DEVICES='' train vendor 1; }
check without_cuda_devices_it_is_an_error fails_with without_cuda 'CUDA devices' 'CUDA_ERROR_NO_DEVICE'
odd_gpus() { STANDIN_CUDA_ODD=1 train vendor cuda:0-1; }
check gpus_of_different_models_are_refused fails_with odd_gpus 'sm_80, 108 multiprocessors' 'CUDA:1 (sm_80, 107)'
no_cublas() { STANDIN_CUDA_DRIVER=99000 train vendor cuda:0; }
check a_missing_cublas_is_told fails_with no_cublas 'there is no cuBLAS: looked for libcublas.so.99, libcublas.so.98' \
    LOCKSTEP_CUDA_PATH

mkdir "$TMP/old"
for file in libcuda.so.1 libnvrtc.so libnccl.so.2 libcublas.so.13; do
    ln -s "$(readlink -f "$LS_BUILD/tests/standin_cuda/$file")" "$TMP/old/$file"
done
echo 'int cudnnCreate(void **h) { return h != 0; }' >"$TMP/old.c"
${CC:-cc} -shared -fPIC "$TMP/old.c" -o "$TMP/old/libcudnn.so.9"
old_cudnn() { LOCKSTEP_CUDA_PATH="$TMP/old" train vendor cuda:0; }
check a_cudnn_without_our_calls_is_told fails_with old_cudnn 'old/libcudnn.so.9 has no cudnn' 'a newer cuDNN is needed'
own_is_well() {
    LOCKSTEP_CUDA_PATH="$TMP/old" timeout 60 "$LOCKSTEP" devices >"$TMP/list" && grep -q '^  cuBLAS, cuDNN: not loaded' "$TMP/list" &&
        grep -q 'definition [0-9]*; canary [0-9a-f]*$' "$TMP/list"
}
check our_kernels_do_not_need_them own_is_well
wrong_name() { train theirs cuda:0; }
check a_wrong_name_is_told fails_with wrong_name '--kernels' own vendor

# ---- What was loaded ----

devices_say() {
    timeout 60 "$LOCKSTEP" devices --kernels vendor >"$TMP/list" && grep -q '^  cuBLAS: 13.0.2 (.*libcublas.so.13)' "$TMP/list" &&
        grep -q '^  cuDNN: 9.13.0 (.*libcudnn.so.9)' "$TMP/list" && grep -q '; kernels of the vendor: cuBLAS' "$TMP/list"
}
check devices_names_the_libraries devices_say
doctor_says() {
    timeout 200 "$LOCKSTEP" doctor >"$TMP/doctor" && grep -q '^ok *cuBLAS and cuDNN: CUDA:0 ' "$TMP/doctor" &&
        grep -q '^  cuDNN: 9.13.0' "$TMP/doctor" &&
        LOCKSTEP_CUDA_PATH="$TMP/old" LOCKSTEP_KERNELS=vendor timeout 200 "$LOCKSTEP" doctor >"$TMP/doctor" &&
        grep -q '^ok *cuBLAS and cuDNN: not used' "$TMP/doctor" && grep -q '^  cuBLAS, cuDNN: not used (.*libcudnn.so.9 has no' "$TMP/doctor"
}
check doctor_tries_them doctor_says

# ---- A newer GPU ----

newer() {
    STANDIN_CUDA_ARCH=120 train own cuda:0 >"$TMP/newer" && sed -n 's/^weights sha256: //p' "$TMP/newer" | cmp - "$TMP/own.hash" &&
        STANDIN_CUDA_ARCH=120 train own cuda:0 >"$TMP/newer" && sed -n 's/^weights sha256: //p' "$TMP/newer" | cmp - "$TMP/own.hash"
}
check a_gpu_that_nvrtc_does_not_know_gets_ptx newer
finish
