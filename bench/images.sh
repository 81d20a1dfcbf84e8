#!/bin/sh
# Images a second, decoded and resized, beside torchvision, in turns: PEERS=DIR bench/images.sh PROGRAM
# PROGRAM is bench_images, PEERS the environment of `make bench-peers`. ROUNDS=3
set -eu

HERE=$(dirname "$0")
PROGRAM=$1
PYTHON=$PEERS/bin/python
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
"$PYTHON" "$HERE/peers_images.py" make "$WORK"
for kind in jpeg png; do
    case $kind in jpeg) sizes="224 224" ;; png) sizes="32 32" ;; esac
    for threads in 1 2; do
        for round in $(seq "${ROUNDS:-3}"); do
            printf '%s to %s: ' "$kind" "$sizes"
            "$PROGRAM" "$WORK/$kind" $sizes "$threads"
            for how in pil io; do
                printf '%s to %s: ' "$kind" "$sizes"
                "$PYTHON" "$HERE/peers_images.py" "$how" "$WORK/$kind" $sizes "$threads" 2>/dev/null || echo "$how failed"
            done
        done
    done
done
