#!/bin/bash
# Compares asynchronous parameter servers with synchronous training: bench/servers.sh COMMAND [throughput] [accuracy]
# throughput: three workers, one of which is stopped two thirds of the time (0.2 s of 0.3, below the silence limit), alternately
#   with staleness 0 and with STALENESS: samples per second, the median of ROUNDS runs. The goal is 1.5 times as many.
#   Lanes are divided evenly (no --work-split). Each worker should be a machine of its own: on shared cores, a stopped worker
#   leaves its time to the others, and the step that waits for it is faster than it should be. So each worker gets a fixed
#   share of the cores, by a cgroup with a quota (SHARE, in percent of a core; needs root). "shares" in the row says whether
#   that was possible; if it is false, the result is too low.
# accuracy: three workers and one server, EPOCHS epochs, seeds 1, 2 and 3, both ways: test accuracy. The goal is within 1 point.
#   Batches have 32 samples, the command's default, or BATCH: with larger ones there are fewer updates in EPOCHS epochs, and a
#   stale gradient costs more.
#   DATA=fashion-mnist  ROUNDS=3  EPOCHS=5  STALENESS=16  BATCH=(256; accuracy: 32)  TAKE=0 (samples; 0: all)  SHARE=(90 % of the cores / workers)
# Prints lines of JSON. Needs idle cores.
set -eu
command=$1
shift
data=${DATA:-fashion-mnist} rounds=${ROUNDS:-3} epochs=${EPOCHS:-5} staleness=${STALENESS:-16} batch=${BATCH:-} take=${TAKE:-0}
dir=$(mktemp -d)
groups= # folder of the workers' cgroups; empty: none
trap 'remove_groups; rm -rf "$dir"' EXIT

# A cgroup for each worker, with a quota of SHARE percent of a core.
make_groups() {
    local share=${SHARE:-$(($(nproc) * 90 / 3))} base group
    for base in /sys/fs/cgroup/cpu /sys/fs/cgroup; do
        [ -e "$base/cgroup.procs" ] && mkdir "$base/lockstep-bench.$$" 2>/dev/null || continue
        groups=$base/lockstep-bench.$$
        [ $base = /sys/fs/cgroup/cpu ] || echo +cpu >"$groups/cgroup.subtree_control" 2>/dev/null || true
        for group in 0 1 2; do
            mkdir "$groups/$group" &&
                { echo $((share * 1000)) >"$groups/$group/cpu.cfs_quota_us" || echo "$((share * 1000)) 100000" >"$groups/$group/cpu.max"; } 2>/dev/null &&
                continue
            remove_groups
            break
        done
        [ -z "$groups" ] || return 0
    done
}
remove_groups() {
    [ -z "$groups" ] || rmdir "$groups"/[0-9] "$groups" 2>/dev/null || true
    groups=
}

pid_of() { # LAUNCHER RANK
    local pid
    for pid in $(sed -n "s/^\([0-9]*\) (.*) [A-Za-z] $1 .*/\1/p" /proc/[0-9]*/stat 2>/dev/null); do
        ! tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "LOCKSTEP_RANK=$2" || echo "$pid"
    done
}

# Stops worker 2 for two thirds of the time while the launcher runs.
slow_down() { # LAUNCHER
    local pid=
    while kill -0 "$1" 2>/dev/null; do
        [ -n "$pid" ] || pid=$(pid_of "$1" 2)
        [ -n "$pid" ] || { sleep 0.05; continue; }
        kill -STOP "$pid" 2>/dev/null || break
        sleep 0.2
        kill -CONT "$pid" 2>/dev/null || break
        sleep 0.1
    done
}

# train STALENESS SEED SLOW EPOCHS: samples per second, and the test accuracy
train() {
    rm -f "$dir/log"
    "$command" launch --workers 3 --servers 1 --silence-limit 2 -- \
        sh -c '[ ! -d "$0/$LOCKSTEP_RANK" ] || echo $$ >"$0/$LOCKSTEP_RANK/cgroup.procs"; exec "$@"' "$groups" \
        "$command" train mnist-cnn --data "$data" --take "$take" --batch-size "$batch" \
        --epochs "$4" --seed "$2" --verbose 0 --strategy parameter-server --staleness "$1" --log "$dir/log" >"$dir/out" 2>"$dir/err" &
    local launcher=$! slower=
    if [ "$3" = slow ]; then
        slow_down $launcher &
        slower=$!
    fi
    wait $launcher || { cat "$dir/err" >&2; exit 1; }
    [ -z "$slower" ] || wait $slower || true
    awk '
        function number(key) { match($0, "\"" key "\":[0-9.e+-]+"); return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 }
        /"event":"epoch"/ { seconds += number("seconds"); samples += number("samples") }
        END { printf "%.1f ", samples / seconds }' "$dir/log"
    sed -n 's/^test loss: .*test accuracy: \([0-9.]*\).*/\1/p' "$dir/out"
}
median() { sort -n "$1" | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }

throughput() {
    batch=${BATCH:-256}
    make_groups
    for ((i = 0; i < rounds; i++)); do
        train 0 1 slow 2 >>"$dir/synchronous"
        train "$staleness" 1 slow 2 >>"$dir/asynchronous"
    done
    awk -v a="$(median "$dir/synchronous")" -v b="$(median "$dir/asynchronous")" -v n="$batch" -v s="$staleness" -v shares="${groups:+true}" 'BEGIN {
        printf "{\"row\": \"servers-slow-worker-%d\", \"staleness\": %d, \"shares\": %s, \"synchronous\": %.0f, \"asynchronous\": %.0f, \"times\": %.2f}\n",
            n, s, shares ? shares : "false", a, b, b / a }'
    remove_groups
}

accuracy() {
    local seed a b
    batch=${BATCH:-32}
    for seed in 1 2 3; do
        a=$(train 0 $seed even "$epochs" | cut -d' ' -f2) b=$(train "$staleness" $seed even "$epochs" | cut -d' ' -f2)
        awk -v seed=$seed -v a="$a" -v b="$b" -v e="$epochs" -v n="$batch" 'BEGIN {
            printf "{\"row\": \"servers-accuracy-%d\", \"epochs\": %d, \"seed\": %d, \"synchronous\": %.4f, \"asynchronous\": %.4f, \"points\": %.2f}\n",
                n, e, seed, a, b, 100 * (b - a) }'
    done
}

for what in "${@:-throughput}"; do
    case $what in
    throughput | accuracy) $what ;;
    *) echo "bench/servers.sh: throughput or accuracy, not '$what'" >&2; exit 2 ;;
    esac
done
