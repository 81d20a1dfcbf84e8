#!/bin/sh
# Every example runs, with small settings, and prints the expected text. (test: all examples are built before.)
. "$(dirname "$0")/../support/lib.sh"

# says NAME PATTERN ARGUMENTS...: the example ends well, and a line of its output matches.
says() {
    name=$1 pattern=$2
    shift 2
    tried="$tried $name"
    if "$LS_BUILD/examples/$name" "$@" >"$TMP/$name.out" 2>&1 && grep -E -q "$pattern" "$TMP/$name.out"; then
        ok "$name $*"
    else
        not_ok "$name $*" "$(head -c 2000 "$TMP/$name.out")"
    fi
}

# Under sanitizers a step takes many times as long.
if [ -n "$SANITIZE" ]; then
    some=600
else
    some=4000
fi

tried=
says line 'found +y = 2\.000 x \+ 1\.000'
says line_fit 'at the end: 0\.[0-9]+' 2
check "line_fit: learning rate of batches of 10" grep -x 'batches of 10: learning rate 0.15' "$TMP/line_fit.out"
check "line_fit: evaluates each sample once" grep -q 'of 100 samples' "$TMP/line_fit.out"
says line_fit 'batches of 20: learning rate 0.175' 4
says fit_single 'val_accuracy: 0\.[0-9]+ - val_loss: [0-9.]+' 1 $some
says fit_mirrored '^weights [0-9a-f]{64}$' 1 $some 2
epoch='^에포크 1, 손실: [0-9.]+, 정확도: [0-9.]+, 테스트 손실: [0-9.]+, 테스트 정확도: [0-9.]+$'
says custom_loop "$epoch" 1 $some 1000 1
mv "$TMP/custom_loop.out" "$TMP/custom_loop.one"
says custom_loop "$epoch" 1 $some 500 2
check "custom_loop: the same numbers on one device and on two" diff "$TMP/custom_loop.one" "$TMP/custom_loop.out"
says fashion_loop "^epoch 1: loss [0-9.]+ over $some samples\$" 1 $some
shows_replicas() { grep -q '^losses of the first step: PerReplica:{' "$1" && grep -q '^  1: tf.Tensor(' "$1"; }
check "fashion_loop: shows what each device has" shows_replicas "$TMP/fashion_loop.out"
says rows_loop "^epoch 1: loss [0-9.]+ over $some samples\$" 1 $some
says two_models '^0 g2: cross-entropy [0-9.]+, test accuracy 0\.[0-9]+$' 1 256 64
says devices '^mirrored over 2 Logical CPUs: mean squared error below 0.001: yes$' # test_example_devices.sh has all of it
says two_jobs '^job B on .*CPU:0 \(core [0-9]+ chosen by LOCKSTEP_VISIBLE_DEVICES'
check "two_jobs: the other one as well" grep -E -q '^job A on .*CPU:0 \(core [0-9]+ chosen by LOCKSTEP_VISIBLE_DEVICES' "$TMP/two_jobs.out"
says big_model '^over two devices [0-9a-f]{64}$' 5
same_weights() { test "$(sed -n 's/^over two devices //p' "$1")" = "$(sed -n 's/^on one device  *//p' "$1")"; }
check "big_model: the same weights on two devices and on one" same_weights "$TMP/big_model.out"
says distributed_data_parallel '^worker 2 of 3: weights [0-9a-f]{64}$' 1 $some 3
same_everywhere() {
    "$LS_BUILD/examples/distributed_data_parallel" 1 $some 1 >>"$TMP/distributed_data_parallel.out" || return 1
    grep -c '^worker' "$TMP/distributed_data_parallel.out" | grep -x 4 && [ "$(sed -n 's/^worker .* weights //p' "$TMP/distributed_data_parallel.out" | sort -u | wc -l)" = 1 ]
}
check "distributed_data_parallel: the same weights on every worker, and on one" same_everywhere
says multi_worker '^worker 0 of 1: loss [0-9.e-]+, weights [0-9a-f]{64}$'
mv "$TMP/multi_worker.out" "$TMP/multi_worker.one"
three_workers() {
    pids=
    for i in 0 1 2; do
        timeout 60 "$LS_BUILD/examples/multi_worker" $i $((20000 + $$ % 20000)) >"$TMP/multi_worker.$i" 2>&1 &
        pids="$pids $!"
    done
    for pid in $pids; do
        wait $pid || { cat "$TMP"/multi_worker.[012]; return 1; }
    done
    grep -h '^worker' "$TMP"/multi_worker.one "$TMP"/multi_worker.[012] | sed 's/.*of [13]: //' | sort | uniq -c | grep ' 4 loss'
}
check "multi_worker: three processes that TF_CONFIG brings together have the numbers of one" three_workers
says own_op '^on 2: loss [0-9.]+, weights [0-9a-f]{64}$' 20
same_on_two() { [ "$(sed 's/^on [12]: //' "$1" | sort -u | wc -l)" = 1 ]; }
check "own_op: the same weights on one device and on two" same_on_two "$TMP/own_op.out"
says gan '^epoch 1: discriminator [0-9.]+, generator [0-9.]+$' 1 $some 1
mv "$TMP/gan.out" "$TMP/gan.one"
says gan '^generator     [0-9a-f]{64}$' 1 $some 3 "$TMP/generator.safetensors"
check "gan: the same weights on one device and on three" diff "$TMP/gan.one" "$TMP/gan.out"
check "gan: saves the generator" test -s "$TMP/generator.safetensors"
says demo '^The same bits\.$' 1 $some
check "demo: prints the test accuracy" grep -E -q '^Test accuracy: [0-9.]+ % of 10000 images' "$TMP/demo.out"

every_example_is_tried() {
    for source in examples/*.c; do
        case "$tried " in
        *" $(basename "$source" .c) "*) ;;
        *)
            echo "$source is not run here"
            return 1
            ;;
        esac
    done
}
check "every example is run here" every_example_is_tried

# those in C++ only where there is a compiler
all_are_built() {
    make examples CC="$CC" SANITIZE="$SANITIZE" || return 1
    for source in examples/*.c examples/*.cc; do
        name=$(basename "${source%.*}")
        case $source in *.cc) command -v g++ >/dev/null || continue; name=${name}_cc ;; esac
        [ -x "$LS_BUILD/examples/$name" ] || { echo "no $LS_BUILD/examples/$name"; return 1; }
    done
}
check "make examples builds them" all_are_built
finish
