#!/bin/sh
# The command: help, refusals, and each subcommand on small data; how runs end is test_command_ends.sh's. JSON is judged by a program of our own, with jansson.
. "$(dirname "$0")/../support/lib.sh"
. "$ROOT/tests/support/command.sh"

# ---- help ----

VERSION=$(sed -n 's/^#define LS_VERSION "\(.*\)"/\1/p' include/lockstep/base.h)
check "--version" prints "^lockstep $VERSION\$" --version
check "--help lists the commands" prints '^  train ' --help
check "help COMMAND" prints '^usage: lockstep evaluate ' help evaluate
for command in train evaluate predict summary devices doctor key; do
    check "$command --help" prints "^usage: lockstep $command" $command --help
done
every_flag() {
    prints '^usage' train mnist-cnn --help || return 1
    for flag in data epochs batch-size batch-size-per-device optimizer lr momentum nesterov loss from-logits metrics devices \
        strategy lanes seed shuffle validation-split weights save log trace trace-steps log-hash max-steps take verbose memory-limit \
        memory-growth log-placement dry-run input classes place stages replicas all-reduce pipeline work-split norm-statistics \
        monitor early-stopping reduce-on-plateau save-best save-epochs schedule terminate-on-nan csv tensorboard \
        tensorboard-every histograms profile head freeze layer-rate skip-mismatch image-size skip-broken label drop-columns text-columns missing table \
        clipvalue clipnorm global-clipnorm weight-decay exclude-from-weight-decay ema class-weights label-smoothing; do
        grep -q -e "^  --$flag " "$TMP/out" || grep -q -x -e "  --$flag [^ ]*" "$TMP/out" || { echo "no --$flag"; return 1; }
    done
    grep -q LOCKSTEP_BATCH_SIZE "$TMP/out"
}
check "train --help has every flag" every_flag
check "--print-options prints values and their sources" \
    prints '^\* --devices +2 +command line' devices --devices 2 --print-options

# The sum of all rows' shares is 100 %, and the weights are those of a run without a profile.
profiled() {
    "$LOCKSTEP" train mnist-cnn --data $SMALL --max-steps 3 --verbose 0 "$@" >"$TMP/plain" && prints '^profile: .* s of all threads$' \
        train mnist-cnn --data $SMALL --max-steps 3 --verbose 0 --profile "$@" && grep -q 'conv2d_grad_kernel: ' "$TMP/out" || return 1
    [ "$(grep '^weights sha256' "$TMP/out")" = "$(grep '^weights sha256' "$TMP/plain")" ] || { echo "other weights"; return 1; }
    awk '/^ *[0-9.]+ % /{ sum += $1; rows++ } END { exit !(rows > 5 && rows <= 21 && sum > 98 && sum < 102) }' "$TMP/out"
}
check "--profile prints the time of ops" profiled
check "--profile on several devices" profiled --devices 2

# ---- wrong use: status 2 ----

check "no command" refuses 2 'a command is needed'
check "an unknown command without a similar name" refuses 2 'unknown command fly; `lockstep --help` lists the commands$' fly
check "unknown command, the nearest is named" refuses 2 'unknown command trian; did you mean train\?' trian
check "unknown flag, the nearest is named" \
    refuses 2 'unknown option --batchsize; did you mean --batch-size\?' train mnist-cnn --data $SMALL --batchsize 3
check "a flag of another command" refuses 2 'unknown option --epochs' evaluate mnist-cnn --data $SMALL --epochs 3
check "unknown model, the nearest is named" refuses 2 'unknown MODEL mnist-cn; there are .*; did you mean mnist-cnn\?' summary mnist-cn
check "an unknown option without a similar name" \
    refuses 2 'unknown option --warp-factor; --help lists the options$' train mlp --data $SMALL --warp-factor 0.1
check "an unknown metric without a similar name" \
    refuses 2 "unknown metric 'f1'; there are accuracy, .*[a-z]$" train mlp --data $SMALL --metrics f1
check "missing model" refuses 2 'a MODEL is needed: linear, mlp' train --data $SMALL
check "missing model file" refuses 2 'MODEL no/such.json: no such file' summary no/such.json
check "missing --data" refuses 2 '--data is needed' train mnist-cnn
check "one argument too many" refuses 2 "unexpected argument 'mlp'" summary linear mlp
check "a value out of range" refuses 2 '--batch-size 0: expected a whole number' train mlp --data $SMALL --batch-size 0
check "a value that is not a number" refuses 2 '--lr x: expected a finite number' train mlp --data $SMALL --lr x
check "a learning rate that a double would take for 0" \
    refuses 2 '--lr 1e-400: expected a finite number .*4.9e-324 to 1.8e\+308' train mlp --data $SMALL --lr 1e-400
check "a learning rate that float32 would take for 0" refuses 2 '--lr 1e-50: .*float32' train mlp --data $SMALL --lr 1e-50
check "a learning rate that float32 would take for infinity" refuses 2 '--lr 1e\+60: .*float32' train mlp --data $SMALL --lr 1e60
check "unknown loss, the nearest is named" refuses 2 'did you mean mse\?' train mlp --data $SMALL --loss mes
check "unknown metric, the nearest is named" \
    refuses 2 "unknown metric 'acuracy'; did you mean accuracy\?" train mlp --data $SMALL --metrics acuracy
check "two batch sizes" refuses 2 'contradict each other' train mlp --data $SMALL --batch-size 8 --batch-size-per-device 4
check "momentum of adam" refuses 2 '--momentum cannot be used with --optimizer adam' train mlp --data $SMALL --momentum 0.9
check "nesterov of rmsprop" \
    refuses 2 '--nesterov cannot be used with --optimizer rmsprop' train mlp --data $SMALL --optimizer rmsprop --nesterov
check "two ways to clip" refuses 2 'only one of --clipvalue \(1\), --clipnorm \(2\)' train mlp --data $SMALL --clipvalue 1 --clipnorm 2
check "class weights that are no numbers" refuses 2 "weight 1, 'x', is not a number" \
    train mlp --data $SMALL --class-weights 1,x,3
check "unknown metric" refuses 2 "unknown metric 'hing'" train mlp --data $SMALL --metrics hing
check "schedule without a decay" refuses 2 'inverse-time needs a decay above 0' \
    train mlp --data $SMALL --schedule inverse-time:steps=10
check "nesterov without momentum" refuses 2 '--nesterov needs' train mlp --data $SMALL --optimizer sgd --nesterov
check "rmsprop-tf1 without a learning rate" refuses 2 'rmsprop-tf1 needs --lr' train mlp --data $SMALL --optimizer rmsprop-tf1
check "logits of a squared error" \
    refuses 2 '--from-logits cannot be used with --loss mean_squared_error' train mlp --data $SMALL --loss mse --from-logits
check "one device of two" refuses 2 'one-device cannot be used with the 2 devices' train mlp --data $SMALL --strategy one-device --devices 2
check "hashes without a log" refuses 2 '--log-hash needs --log' train mlp --data $SMALL --log-hash
check "no such kind of device" refuses 2 '--devices: device "/gpu:0": there is no GPU' train mlp --data $SMALL --devices /gpu:0
check "a device twice" refuses 2 'CPU:1 is given twice' train mlp --data $SMALL --devices cpu:0-1,cpu:1
check "no device at all" refuses 2 '--devices 0: expected' devices --devices 0
check "cores are not chosen by --devices" refuses 2 '--devices: .*choose cores by .*LOCKSTEP_VISIBLE_DEVICES' devices --devices 'cpu:0[0]'
check "stages of mirrored" refuses 2 '--stages cannot be used with --strategy mirrored' train mlp --data $SMALL --strategy mirrored --stages 2
check "replicas of data-parallel" \
    refuses 2 '--replicas cannot be used with --strategy data-parallel' train mlp --data $SMALL --strategy data-parallel --replicas 2
check "an all-reduce where the first device joins" \
    refuses 2 '--all-reduce cannot be used with --strategy data-parallel' train mlp --data $SMALL --strategy data-parallel --all-reduce sharded
check "an order of lanes without a pipeline" \
    refuses 2 '--pipeline cannot be used with --strategy model-parallel' train mlp --data $SMALL --strategy model-parallel --pipeline 1f1b
check "a split of one device" \
    refuses 2 '--work-split cannot be used with --strategy one-device' train mlp --data $SMALL --strategy one-device --work-split auto
check "an invalid split" refuses 2 'work split "3:x": expected 2 numbers' train mlp --data $SMALL --devices 2 --work-split 3:x
check "a split of three for two" refuses 2 'work split "3:1:1"' evaluate mlp --data $SMALL --devices 2 --work-split 3:1:1
check "stages that do not divide the devices" \
    refuses 2 '3 devices cannot be divided into replicas of 2 stages' train mlp --data $SMALL --strategy pipeline --stages 2 --devices 3
check "stages and replicas that do not match the devices" \
    refuses 2 '--stages 2 and --replicas 2 need 4 devices; there are 2' train mlp --data $SMALL --strategy pipeline --stages 2 --replicas 2 --devices 2
check "replicas that do not divide the devices" \
    refuses 2 '--replicas 2: 3 devices' train mlp --data $SMALL --strategy pipeline --replicas 2 --devices 3
check "a placement on one device" \
    refuses 2 '--place cannot be used with --strategy one-device' train mlp --data $SMALL --strategy one-device --place dense=cpu:1
check "a placement and stages" refuses 2 '--place cannot be used with --stages or --replicas' train mlp --data $SMALL --place dense=cpu:1 --stages 2
check "unknown strategy, the nearest is named" refuses 2 'did you mean pipeline\?' train mlp --data $SMALL --strategy piplene
check "invalid sizes" refuses 2 '--input 3x: expected 1 to . sizes' summary mlp --input 3x
check "sizes of a file" refuses 2 '--input is for built-in models only' summary tests/reference/keras/mlp/model.json --input 3
check "an invalid placement" refuses 2 "--place: 'conv2d' is not LAYER=DEVICE" train mlp --data $SMALL --place conv2d
check "a layer on two devices" refuses 2 "names 2 devices" train mlp --data $SMALL --place 'dense=cpu:0-1'
check "a layer on no device" refuses 2 '--place: device "gpu:0": there is no GPU' train mlp --data $SMALL --place dense=gpu:0
check "a limit that is not a number" refuses 2 '--memory-limit 3x: expected MiB' devices --memory-limit 3x
check "a limit of nothing" refuses 2 '--memory-limit 3,: expected MiB' devices --devices 2 --memory-limit 3,
check "more limits than devices" refuses 2 '3 limits for 2 CPU devices' devices --devices 2 --memory-limit 1,2,3
check "a limit above what the machine has" refuses 2 '--memory-limit: .*CPU:0 has [0-9]+ MiB' devices --memory-limit 999999999
check "an output of another kind" refuses 2 'ends in .npy, .npz or .csv' predict mlp --data $SMALL --output "$TMP/p.txt"

misspelt_variable() {
    LOCKSTEP_BTACH_SIZE=3 refuses 2 'LOCKSTEP_BTACH_SIZE; did you mean LOCKSTEP_BATCH_SIZE' train mlp --data $SMALL
}
check "a misspelt variable" misspelt_variable
other_isa() {
    for command in 'train mlp --data x' 'summary linear' devices doctor; do
        LOCKSTEP_ISA=nonsense refuses 2 'LOCKSTEP_ISA=nonsense: no such instruction set; there are base, avx2 and avx512' \
            $command || return 1
    done
}
check "an unknown instruction set" other_isa
bad_visible_devices() {
    for command in 'summary linear' devices; do
        LOCKSTEP_VISIBLE_DEVICES=$1 refuses 2 "LOCKSTEP_VISIBLE_DEVICES: $2" $command || return 1
    done
}
check "visible devices: a missing core" bad_visible_devices 'cpu:0[8000]' 'this process may not use core 8000'
check "visible devices: a missing device" bad_visible_devices gpu:0 'device "gpu:0": there is no GPU'
check "visible devices: an invalid name" bad_visible_devices 'cpu:0[x]' 'device "cpu:0\[x\]": "x" is not a number'
command_line_wins() {
    LOCKSTEP_BATCH_SIZE=8 prints 'batches of 35;' train mlp --data $SMALL --batch-size-per-device 35 --verbose 2
}
check "the command line wins over a variable that contradicts it" command_line_wins

# ---- failures: status 1 ----

missing_data() {
    mkdir -p "$TMP/none"
    export LOCKSTEP_DATA="$TMP/none" XDG_CACHE_HOME="$TMP/none" HOME="$TMP/none"
    refuses 1 'mnist.*train-images-idx3-ubyte' train mnist-cnn --data mnist &&
        grep -q "$TMP/none" "$TMP/err"
}
check "missing data: the files, and the folders searched" missing_data
check "data of another shape" refuses 1 '' evaluate mnist-cnn --data synthetic:5x5x1,classes=10,count=4
check "an input too small" refuses 1 'mnist-cnn.* height and width must be at least 10' summary mnist-cnn --input 9x9x1
check "classes for a model that is not a classifier" refuses 1 'linear.* classes is 3, but the model is not a classifier' summary linear --classes 3
check "a missing layer, the nearest is named" \
    refuses 1 '--place: .* no layer "dens_1"; did you mean dense_1\?' train mlp --data synthetic --place dense..dens_1=cpu:1
check "missing weights" refuses 1 'no.safetensors' evaluate mlp --data $SMALL --weights "$TMP/no.safetensors"
check "a missing folder, found before training" \
    refuses 1 '--save: cannot write' train mlp --data $SMALL --save "$TMP/no/w.safetensors"
broken_json() {
    echo '{"class_name": "Sequential", ' >"$TMP/broken.json"
    refuses 1 'broken.json' summary "$TMP/broken.json"
}
check "a broken model file" broken_json

# ---- summary, devices, doctor ----

for model in linear mlp mnist-cnn mnist-cnn-wide resnet18 resnet50 vgg16 mobilenet_v2 densenet121 efficientnet_b0 convnext_tiny; do
    check "summary of $model" prints 'Total params: ' summary $model
done
check "devices: how many CPU devices" prints '^  cpu:1  /job:localhost/replica:0/task:0/device:CPU:1  1 thread' devices --devices 2
check "devices: names open as many as they need" prints '^  cpu:2 ' devices --devices /device:CPU:2
check "devices: what the machine has" prints '^  /physical_device:CPU:0  .*core.* of memory$' devices
check "devices: without a limit" prints '; no memory limit$' devices
check "devices: one limit for all" prints '^  cpu:1 .*; 20 MiB reserved$' devices --devices 2 --memory-limit 20
check "devices: a limit for each" \
    prints '^  cpu:1 .*; 30 MiB at most$' devices --devices 2 --memory-limit 20,30 --memory-growth
check "doctor finds nothing wrong" prints '^ok +definition [0-9]+' doctor
check "doctor lists every library" sh -c "grep -q '^ok.*OpenSSL' '$TMP/out' && grep -q '^ok.*zlib' '$TMP/out' && grep -q '^ok.*jansson' '$TMP/out'"

# Checks a file of JSON lines, or one JSON value (-v). Prints the number of steps and epochs, and the hash at the end.
cat >"$TMP/judge.c" <<'END_OF_C'
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void need(int holds, const char *what, const char *line)
{
    if (!holds) {
        printf("%s: %s\n", what, line);
        exit(1);
    }
}
static int is(const json_t *line, const char *event)
{
    const char *found = json_string_value(json_object_get(line, "event"));
    return found && strcmp(found, event) == 0;
}
static int has_numbers(const json_t *line, const char *const *keys)
{
    for (; *keys; keys++)
        if (!json_is_number(json_object_get(line, *keys)))
            return 0;
    return 1;
}
static int has_hash(const json_t *line, const char *key)
{
    const char *hash = json_string_value(json_object_get(line, key));
    return hash && strlen(hash) == 64 && strspn(hash, "0123456789abcdef") == 64;
}
int main(int argc, char **argv)
{
    static char line[1 << 16];
    static const char *const step_keys[] = { "step", "loss", "samples", NULL };
    static const char *const epoch_keys[] = { "epoch", "seconds", "samples", "loss", "accuracy", NULL };
    int hashes = argc > 2 && strcmp(argv[2], "hashes") == 0, steps = 0, epochs = 0, ended = 0, lines = 0;
    if (argc > 2 && strcmp(argv[1], "-v") == 0) {
        json_t *value = json_load_file(argv[2], 0, NULL);
        need(value != NULL, "not JSON", argv[2]);
        json_t *physical = json_array_get(json_object_get(value, "physical_devices"), 0);
        json_t *devices = json_object_get(value, "logical_devices"), *second = json_array_get(devices, 1);
        need(json_is_integer(json_object_get(physical, "memory_bytes")) && json_array_size(devices) == 2 &&
                 json_integer_value(json_object_get(second, "memory_limit_bytes")) == 20 << 20 &&
                 json_is_false(json_object_get(second, "memory_growth")) &&
                 json_is_string(json_object_get(second, "full_name")) && json_is_array(json_object_get(second, "bound_to")) &&
                 json_integer_value(json_object_get(value, "cores")) > 0 && json_is_string(json_object_get(value, "reason")) &&
                 json_is_integer(json_object_get(value, "l2_bytes")) && json_is_string(json_object_get(value, "bit_class")),
             "fields are missing", argv[2]);
        json_decref(value);
        return 0;
    }
    FILE *file = fopen(argv[1], "r");
    need(file != NULL, "cannot be read", argv[1]);
    while (fgets(line, sizeof line, file)) {
        json_t *value = json_loads(line, 0, NULL);
        need(json_is_object(value), "not a JSON object", line);
        need(!ended, "a line after the end", line);
        need(is(value, "start") == (lines++ == 0), "the start comes first", line);
        if (is(value, "start")) {
            need(json_is_string(json_object_get(value, "model")) && json_is_string(json_object_get(value, "bit_class")),
                 "identity is missing", line);
        } else if (is(value, "step")) {
            need(has_numbers(value, step_keys), "numbers are missing", line);
            need(json_integer_value(json_object_get(value, "step")) == ++steps, "steps are counted from 1", line);
            need(has_hash(value, "hash") == hashes, "a hash is missing, or too many", line);
        } else if (is(value, "epoch")) {
            need(has_numbers(value, epoch_keys), "numbers are missing", line);
            need(json_integer_value(json_object_get(value, "epoch")) == ++epochs, "epochs are counted from 1", line);
        } else {
            need(is(value, "end") && has_hash(value, "weights_sha256"), "not an end with a hash", line);
            printf("%d steps %d epochs %s\n", steps, epochs, json_string_value(json_object_get(value, "weights_sha256")));
            ended = 1;
        }
        json_decref(value);
    }
    need(ended, "there is no end", argv[1]);
    fclose(file);
    return 0;
}
END_OF_C
"$CC" -std=c11 "$TMP/judge.c" -ljansson -o "$TMP/judge"

devices_json() {
    prints '"cores"' devices --devices 2 --memory-limit 20 --json && "$TMP/judge" -v "$TMP/out"
}
check "devices --json" devices_json

# ---- cores ----

# The cores that workers are bound to, a line each; none where a quota keeps them from being bound.
cores() {
    "$LOCKSTEP" devices --json | awk '/\]/ { on = 0 } on { gsub(/[ ,]/, ""); print } /"bound_to": \[$/ { on = 1 }'
}
FIRST_CORE=$(cores | sed -n 1p) SECOND_CORE=$(cores | sed -n 2p)

# one_core WHY COMMAND...: lockstep run by that command has one worker, on the second core, and prints the reason.
one_core() {
    why=$1
    shift
    ends 0 "$@" "$LOCKSTEP" devices && cat "$TMP/out" && grep -q "^  cpu:0 .*  1 thread on core $SECOND_CORE;" "$TMP/out" &&
        grep -q "^  /physical_device:CPU:0  $why" "$TMP/out"
}

# Threads of a process that are bound to one core: their cores.
bound_to() {
    cat /proc/"$1"/task/*/status 2>/dev/null | sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9]*\)$/\1/p' | sort -u
}

# Two jobs side by side, each on a core of its own.
two_jobs() {
    for core in "$FIRST_CORE" "$SECOND_CORE"; do
        LOCKSTEP_VISIBLE_DEVICES="cpu:0[$core]" "$LOCKSTEP" train mnist-cnn --data $SMALL --epochs 1000000 --verbose 2 \
            --log "$TMP/job$core.log" >"$TMP/job$core" 2>&1 &
        eval "job$core=\$!"
    done
    found=0
    for core in "$FIRST_CORE" "$SECOND_CORE"; do
        eval "pid=\$job$core"
        wait_for "$TMP/job$core.log" '"step":3,' && [ "$(bound_to "$pid")" = "$core" ] &&
            grep -q "^1 device on core $core chosen by LOCKSTEP_VISIBLE_DEVICES, of " "$TMP/job$core" || found=1
        kill -TERM "$pid"
        status=0
        wait "$pid" || status=$?
        [ $status = 143 ] || found=1
        [ $found = 0 ] || { cat "$TMP/job$core"; echo "bound to: $(bound_to "$pid")"; }
    done
    return $found
}

if [ -n "$SECOND_CORE" ]; then
    check "an affinity mask of one core: one worker, and why" one_core '1 of [0-9]* cores: affinity mask' taskset -c "$SECOND_CORE"
    check "LOCKSTEP_VISIBLE_DEVICES chooses a core" \
        one_core "core $SECOND_CORE chosen by LOCKSTEP_VISIBLE_DEVICES, of " env LOCKSTEP_VISIBLE_DEVICES="cpu:0[$SECOND_CORE]"
    check "two jobs at once, a core for each" two_jobs
else
    skip "affinity masks and chosen cores" "there is one core here, or workers are not bound"
fi

# ---- training ----

logged() {
    prints '^weights sha256: [0-9a-f]{64}$' train mnist-cnn --data $SMALL --batch-size 16 --epochs 2 --log "$TMP/log" --log-hash \
        --save "$TMP/w.safetensors" --verbose 2 && "$TMP/judge" "$TMP/log" hashes >"$TMP/judged" && cat "$TMP/judged" &&
        grep -q "^10 steps 2 epochs $(sed -n 's/^weights sha256: //p' "$TMP/out")\$" "$TMP/judged"
}
check "train: the log has every step, epoch, hash and the end" logged
check "train: one line an epoch" grep -E -q '^5/5 - .*accuracy: [0-9.]+ - loss: [0-9.]+ - val_accuracy' "$TMP/out"
check "train: the time is divided into parts" grep -E -q '^time: .* data [0-9.]+ %, compute [0-9.]+ %' "$TMP/out"
grep '^test loss' "$TMP/out" >"$TMP/trained" || true

same_results() {
    prints '^test loss: [0-9.]+ - test accuracy: [0-9.]+ \(70 samples\)$' evaluate mnist-cnn --data $SMALL --batch-size 16 \
        --weights "$TMP/w.safetensors" && diff "$TMP/out" "$TMP/trained"
}
check "evaluate: saved weights give the results of the end of training" same_results

same_weights() {
    for devices in 1 2 3 cpu:0,cpu:1 /device:CPU:0,/job:localhost/replica:0/task:0/device:CPU:1; do
        ends 0 "$LOCKSTEP" train mnist-cnn --data $SMALL --batch-size 16 --epochs 2 --verbose 0 --devices $devices || return 1
        grep '^weights' "$TMP/out" >>"$TMP/hashes"
    done
    cat "$TMP/hashes"
    [ "$(wc -l <"$TMP/hashes")" = 5 ] && [ "$(sort -u "$TMP/hashes" | wc -l)" = 1 ] &&
        grep -q "$(cut -d ' ' -f 5 "$TMP/judged")" "$TMP/hashes"
}
check "the same weights on 1, 2 and 3 devices, by number and by name" same_weights

other_seed() {
    prints '^weights' train mlp --data $SMALL --verbose 0 && grep '^weights' "$TMP/out" >"$TMP/seed0" &&
        prints '^weights' train mlp --data $SMALL --verbose 0 --seed 7 && ! diff "$TMP/seed0" "$TMP/out"
}
check "another seed, other weights" other_seed

# train NAME PATTERN ARGUMENTS...
train() {
    name=$1 pattern=$2
    shift 2
    check "train: $name" prints "$pattern" train "$@" --verbose 2
}
train "as many epochs as --max-steps takes" '^Epoch 3/3$' mlp --data $SMALL --batch-size 35 --max-steps 5
train "--take" ': 40 samples;' mlp --data $SMALL --take 40
train "a batch for each device" 'batches of 12;' mlp --data $SMALL --batch-size-per-device 4 --devices 3
train "--validation-split" 'val_loss: ' mlp --data $SMALL --validation-split 0.25 --batch-size 10
train "synthetic data with the model's sizes" 'synthetic:count=9: 9 samples;' mlp --input 5x7 --classes 3 --data synthetic:count=9
train "a residual network of small images" '11,191,242 parameters' resnet18 --input 32x32x3 --classes 10 --data synthetic:count=3
train "synthetic data for two inputs" '^two_inputs: 159 parameters' tests/reference/keras/two_inputs/model.json --data synthetic:count=40,seed=3
train "regression: mean squared error, no accuracy" 'mean_squared_error$' linear --data synthetic:1,classes=3,count=20
train "every optimizer's options" 'sgd; ' mlp --data $SMALL --optimizer sgd --momentum 0.9 --nesterov --lr 0.01
train "metrics by name" 'top_k_categorical_accuracy: ' mlp --data $SMALL --metrics accuracy,top_k_categorical_accuracy
train "one device" '^1 device ' mlp --data $SMALL --strategy one-device --lanes 8 --shuffle off
for optimizer in adam adamw sgd rmsprop rmsprop-tf1 adagrad adadelta adamax nadam ftrl lion lamb muon; do
    train "$optimizer" "; $optimizer; " mlp --data $SMALL --optimizer $optimizer --lr 0.001 --max-steps 1
done

placed_bits() {
    CNN="train mnist-cnn --data synthetic:count=40 --verbose 0 --lanes 4"
    prints '^weights' $CNN && grep '^weights' "$TMP/out" >"$TMP/one" &&
        prints 'Executing op Conv2D in device .*CPU:2$' $CNN --place ..max_pooling2d=cpu:1,conv2d_1..=cpu:2 --log-placement &&
        grep '^weights' "$TMP/out" | diff - "$TMP/one"
}
check "train: layers on devices, the bits of one" placed_bits

# Every strategy, in train, evaluate and predict: the bits, results and predictions of one device.
strategies() {
    prints '^weights' train mnist-cnn --data synthetic:count=40 --verbose 0 --lanes 4 --save "$TMP/w" &&
        grep -E '^(weights|test)' "$TMP/out" >"$TMP/one" &&
        prints '^test loss' evaluate mnist-cnn --data synthetic:count=41 --lanes 4 --weights "$TMP/w" && cp "$TMP/out" "$TMP/two" &&
        prints '' predict mnist-cnn --data synthetic:count=41 --lanes 4 --weights "$TMP/w" --output "$TMP/one.npy" || return 1
    while read -r flags; do
        echo "$flags"
        prints '^weights' train mnist-cnn --data synthetic:count=40 --verbose 0 --lanes 4 $flags &&
            grep -E '^(weights|test)' "$TMP/out" | diff - "$TMP/one" &&
            prints '^test loss' evaluate mnist-cnn --data synthetic:count=41 --lanes 4 --weights "$TMP/w" $flags &&
            diff "$TMP/out" "$TMP/two" &&
            prints '' predict mnist-cnn --data synthetic:count=41 --lanes 4 --weights "$TMP/w" --output "$TMP/p.npy" $flags &&
            cmp "$TMP/p.npy" "$TMP/one.npy" || return 1
    done <<END
--strategy one-device --devices cpu:1
--strategy mirrored --devices 3
--strategy mirrored --devices 3 --all-reduce hierarchical-copy --work-split 3:1:1
--strategy mirrored --devices 3 --all-reduce one-device --work-split auto
--strategy data-parallel --devices 2
--strategy model-parallel --devices 3
--strategy model-parallel --place ..max_pooling2d=cpu:1,conv2d_1..=cpu:0
--strategy pipeline --stages 2
--strategy pipeline --stages 2 --replicas 2 --pipeline fill-drain
--strategy pipeline --replicas 2 --devices 6
END
}
check "every strategy, in train, evaluate and predict" strategies
introduces() {
    prints '^6 devices on .*; pipeline, 2 replicas of 3 stages$' train mlp --data $SMALL --strategy pipeline --stages 3 --replicas 2 --lanes 8 &&
        prints 'batches of 8;' train mlp --data $SMALL --strategy pipeline --stages 3 --replicas 2 --lanes 8 --batch-size-per-device 4
}
check "train tells strategy, stages and replicas" introduces
norms() {
    NORMS="train tests/reference/keras/residual/model.json --data synthetic:count=40 --lanes 4 --log $TMP/norms"
    ends 0 "$LOCKSTEP" $NORMS --strategy pipeline --stages 2 &&
        grep -q 'all lanes wait for each other .* times .*--norm-statistics lane' "$TMP/err" &&
        grep '^weights' "$TMP/out" >"$TMP/batch" && grep -q '"norm_statistics":"batch"' "$TMP/norms" &&
        prints '^weights' $NORMS --strategy pipeline --stages 2 --norm-statistics lane &&
        grep '^weights' "$TMP/out" >"$TMP/lane" && grep -q '"norm_statistics":"lane"' "$TMP/norms" &&
        ! diff "$TMP/batch" "$TMP/lane" &&
        prints '^weights' $NORMS --norm-statistics lane && grep '^weights' "$TMP/out" | diff - "$TMP/lane"
}
check "train: statistics of batch norms by lane" norms

# The locale determines the characters of the terminal.
progress_bar() {
    LC_ALL=C.UTF-8 prints '5/5 ━━━━━━━━━━━━━━━━━━━━ ' train mlp --data $SMALL --batch-size 14 --verbose 1 &&
        LC_ALL=C prints '5/5 ==================== ' train mlp --data $SMALL --batch-size 14 --verbose 1
}
check "train: the progress bar" progress_bar

keras_file() {
    cat >"$TMP/model.json" <<'END_OF_JSON'
{"module": "keras", "class_name": "Sequential", "config": {"name": "small", "trainable": true, "layers": [
 {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [null, 28, 28, 1], "dtype": "float32",
  "name": "input_layer"}, "registered_name": null},
 {"module": "keras.layers", "class_name": "Flatten", "config": {"name": "flatten", "trainable": true, "dtype": "float32",
  "data_format": "channels_last"}, "registered_name": null},
 {"module": "keras.layers", "class_name": "Dense", "config": {"name": "dense", "trainable": true, "dtype": "float32",
  "units": 10, "activation": "linear", "use_bias": true}, "registered_name": null}]}, "registered_name": "Sequential"}
END_OF_JSON
    prints 'sparse_categorical_crossentropy from logits$' train "$TMP/model.json" --data $SMALL --verbose 2
}
check "train: a Keras JSON file that ends in logits" keras_file

# ---- memory ----

# Of a ResNet-18 the batch decides; limits in MiB.
RESNET="train resnet18 --data synthetic:224x224x3,classes=1000,count=64"

fits() {
    prints '^/job:localhost/replica:0/task:0/device:CPU:1: needs [0-9.]+ MiB: .*; limit 9000.0 MiB: fits$' \
        $RESNET --devices 2 --memory-limit 9000 --memory-growth --dry-run --log "$TMP/dry.log" --save "$TMP/dry.safetensors" &&
        ! grep -q '^Epoch' "$TMP/out" && [ ! -e "$TMP/dry.log" ] && [ ! -e "$TMP/dry.safetensors" ]
}
check "train --dry-run: what each device needs; nothing is trained or written" fits
check "train --dry-run: without a limit" prints 'CPU:0: needs [0-9.]+ MiB: [^;]*$' $RESNET --dry-run

# dry_run STATUS BATCH: with a limit that cannot hold a batch of 64.
dry_run() {
    ends "$1" "$LOCKSTEP" $RESNET --batch-size "$2" --memory-limit 600 --dry-run --verbose 0
}
largest_batch() {
    dry_run 1 64 && grep -q 'limit 600.0 MiB: does not fit$' "$TMP/out" &&
        grep -q '^lockstep: training does not fit into the memory' "$TMP/err" &&
        batch=$(sed -n 's/^a batch of \([0-9]*\) would fit, .*/\1/p' "$TMP/out") && [ "$batch" -gt 0 ] &&
        dry_run 0 "$batch" && dry_run 1 $((batch + 1))
}
check "train --dry-run: fails if it does not fit, and tells the largest batch that does" largest_batch

# Weights of before stay; the log has a start and an end, and no step.
beyond_limit() {
    echo old >"$TMP/old.safetensors"
    ends 1 "$LOCKSTEP" $RESNET --batch-size 64 --memory-limit 600 --log "$TMP/limit.log" --save "$TMP/old.safetensors" || return 1
    cat "$TMP/err" "$TMP/limit.log"
    grep -E -q '^lockstep: .*CPU:0: this run needs [0-9.]+ MiB .* limit is 600.0 MiB; .*a batch of [0-9]+ would fit, 64 does not$' \
        "$TMP/err" && "$TMP/judge" "$TMP/limit.log" | grep -q '^0 steps 0 epochs' && grep -q '"reason":"failed"' "$TMP/limit.log" &&
        grep -q -x old "$TMP/old.safetensors"
}
check "train: beyond a limit it fails before the first step, and leaves nothing behind" beyond_limit
variables_beyond_limit() {
    ends 1 "$LOCKSTEP" $RESNET --memory-limit 20 --log "$TMP/none.log" --save "$TMP/none.safetensors" &&
        grep -q 'device:CPU:0 has no memory for .*, limit 20.00 MiB' "$TMP/err" && [ ! -e "$TMP/none.log" ] &&
        [ ! -e "$TMP/none.safetensors" ]
}
check "train: variables beyond a limit: no log, no weights" variables_beyond_limit

within_limit() {
    prints '^weights' train mlp --data $SMALL --verbose 0 && cp "$TMP/out" "$TMP/free" &&
        prints '^weights' train mlp --data $SMALL --verbose 0 --devices 2 --memory-limit 40,30 && diff "$TMP/out" "$TMP/free"
}
check "train: within a limit, the same weights" within_limit

# ---- placement ----

placed() {
    rm -f "$TMP/p.csv"
    for command in train evaluate "predict --output $TMP/p.csv"; do
        prints '^Executing op MatMul in device /job:localhost/replica:0/task:0/device:CPU:1$' \
            $command mlp --data $SMALL --devices cpu:1 --log-placement || return 1
        ! grep 'op MatMul .*CPU:0' "$TMP/out" || return 1
    done
    prints '^test loss' evaluate mlp --data $SMALL && ! grep '^Executing' "$TMP/out"
}
check "--log-placement: each op's device, for what was named" placed
check "train: some of the devices" prints '^1 of 2 devices on ' train mlp --data $SMALL --devices cpu:1 --verbose 2

# ---- predict ----

predictions() {
    prints '\(70, 10\), float32$' predict mnist-cnn --data $SMALL --weights "$TMP/w.safetensors" --output "$TMP/p.npy" &&
        [ "$(wc -c <"$TMP/p.npy")" = $((128 + 70 * 10 * 4)) ] && [ "$(head -c 6 "$TMP/p.npy" | tail -c 5)" = NUMPY ]
}
check "predict: .npy" predictions
predictions_csv() {
    prints '\(7, 10\)' predict mnist-cnn --data $SMALL --weights "$TMP/w.safetensors" --take 7 --set train --output "$TMP/p.csv" &&
        awk -F, '{ s = 0; for (i = 1; i <= NF; i++) s += $i; if (NF != 10 || s < 0.999 || s > 1.001) bad = 1 }
                 END { exit bad || NR != 7 }' "$TMP/p.csv"
}
check "predict: .csv, of rows whose numbers add up to 1" predictions_csv
check "predict: the output of a layer" prints 'max_pooling2d_1 of the train set: \(70, 5, 5, 32\), float32$' \
    predict mnist-cnn --data $SMALL --weights "$TMP/w.safetensors" --set train --layer max_pooling2d_1 --output "$TMP/p.npz"
check "predict: no such layer" refuses 1 'no layer "conv".*conv2d' predict mnist-cnn --data $SMALL --layer conv --output "$TMP/p.npy"

# ---- transfer learning ----

transfer() {
    prints 'saved' train mnist-cnn --weights "$TMP/w.safetensors" --head 12 --freeze 'conv*,max*' --data $SMALL --max-steps 2 \
        --save "$TMP/head.safetensors" || return 1
    "$LOCKSTEP" diff "$TMP/w.safetensors" "$TMP/head.safetensors" >"$TMP/differs"
    grep -q 'dense/kernel' "$TMP/differs" && ! grep -q 'conv2d' "$TMP/differs" || { cat "$TMP/differs"; return 1; }
    prints 'accuracy' evaluate mnist-cnn --head 12 --weights "$TMP/head.safetensors" --data $SMALL
}
check "train --head --freeze: only the new last layer is trained" transfer
check "--skip-mismatch names what is not loaded" prints 'dense/bias: .*has shape \(12,\); the model needs \(10,\)' \
    evaluate mnist-cnn --weights "$TMP/head.safetensors" --skip-mismatch --data $SMALL
layer_rate() {
    prints 'weights sha256' train mnist-cnn --weights "$TMP/w.safetensors" --layer-rate "$1" --lr "$2" --data $SMALL --max-steps 2 &&
        grep 'weights sha256' "$TMP/out" >"$TMP/$3"
}
layer_rates() {
    layer_rate '*=0.25' 0.04 quarter && layer_rate '*=1' 0.01 whole && layer_rate 'conv*=0.25,dense=1' 0.04 parts || return 1
    cmp "$TMP/quarter" "$TMP/whole" && ! cmp -s "$TMP/quarter" "$TMP/parts"
}
check "--layer-rate multiplies the rate of layers" layer_rates
check "--layer-rate without a factor" refuses 1 '"conv\*" is not a pattern and a factor; write PATTERN=FACTOR' \
    train mnist-cnn --layer-rate 'conv*' --data $SMALL
check "--layer-rate 0" refuses 1 'the factor of "dense" is 0; .*--freeze' train mnist-cnn --layer-rate dense=0 --data $SMALL
check "--layer-rate without such a layer" refuses 1 'no layer matches "block' train mnist-cnn --layer-rate 'block*=2' --data $SMALL
check "--freeze without such a layer" refuses 1 'no layer matches "block' train mnist-cnn --freeze 'block*' --data $SMALL
check "--head of a model that ends otherwise" refuses 1 'must have one output and end with a Dense' \
    train tests/reference/keras/two_outputs/model.json --head 3 --data $SMALL

finish
