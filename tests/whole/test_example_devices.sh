#!/bin/sh
# examples/devices.c prints what TensorFlow prints in the tutorial: on this machine's CPU, and compiled for the test GPUs.
. "$(dirname "$0")/../support/lib.sh"

PLACE='/job:localhost/replica:0/task:0/device'

# expected KIND PHYSICAL GPUS EXISTING: standard output. Each physical device is a logical one, unless it is split.
expected() {
    cat <<END
Num GPUs Available:  $3
tf.Tensor(
[[22. 28.]
 [49. 64.]], shape=(2, 2), dtype=float32)
tf.Tensor(
[[22. 28.]
 [49. 64.]], shape=(2, 2), dtype=float32)
tf.Tensor(
[[22 28]
 [49 64]], shape=(2, 2), dtype=int32)
LS_ERR_NOT_FOUND: LS_WITH_DEVICE: device "/TPU:0": there is no kind "TPU"; $4
$2 Physical $1s, 1 Logical $1s
ls_set_visible_devices: the context was opened by ls_list_logical_devices, which fixed its devices: configure a context before it is opened, or create another
with growth 0 bytes are reserved
$2 Physical $1s, $2 Logical $1s
16 of 16 MiB are reserved
$2 Physical $1s, $(($2 + 1)) Logical $1s
16 of 16 MiB are reserved
mirrored over $(($2 + 1)) Logical $1s: mean squared error below 0.001: yes
END
}

# The first ten lines of the log; $1 is the fastest device, constants in a scope and casts are on the CPU.
expected_log() {
    for device in $1 $1 ; do echo "lockstep: Executing op _EagerConst in device $PLACE:$device"; done
    echo "lockstep: Executing op MatMul in device $PLACE:$1"
    for last in MatMul Cast; do
        for i in 1 2; do echo "lockstep: Executing op _EagerConst in device $PLACE:CPU:0"; done
        echo "lockstep: Executing op MatMul in device $PLACE:$1"
    done
    echo "lockstep: Executing op Cast in device $PLACE:CPU:0"
}

same() { diff "$1" "$2"; }

run_example() {
    "$1" >"$TMP/out" 2>"$TMP/log" || { cat "$TMP/log"; return 1; }
    head -n 10 "$TMP/log" >"$TMP/log10"
}

check "on the CPU it runs" run_example "$LS_BUILD/examples/devices"
expected CPU 1 0 'there is CPU:0' >"$TMP/expected"
expected_log CPU:0 >"$TMP/expected_log"
check "on the CPU it prints the expected text" same "$TMP/expected" "$TMP/out"
check "on the CPU its log has every op" same "$TMP/expected_log" "$TMP/log10"

build_for_gpus() {
    libs=$(pkg-config --libs jansson zlib libssl libcrypto)
    # shellcheck disable=SC2086
    $CC -std=c11 -D_GNU_SOURCE ${SANITIZE:+-fsanitize=$SANITIZE} -Iinclude -Itests/support -Isrc \
        -Dls_context_create=example_context_create -Dls_context_open=example_context_open -c examples/devices.c \
        -o "$TMP/devices.o" &&
        $CC -std=c11 -D_GNU_SOURCE ${SANITIZE:+-fsanitize=$SANITIZE} -Iinclude -Itests/support -Isrc "$TMP/devices.o" \
            tests/support/example_gpu.c tests/support/gpu*.c "$LS_BUILD/liblockstep.a" $libs -lm -lpthread -o "$TMP/devices"
}
check "it is compiled for the test GPUs" build_for_gpus
check "on GPUs it runs" run_example "$TMP/devices"
expected GPU 2 2 'there are CPU:0, GPU:0 to GPU:1' >"$TMP/expected"
expected_log GPU:0 >"$TMP/expected_log"
check "on GPUs it prints the expected text" same "$TMP/expected" "$TMP/out"
check "on GPUs its log has every op" same "$TMP/expected_log" "$TMP/log10"
finish
