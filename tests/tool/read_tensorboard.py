"""Reads the event files of `lockstep train --tensorboard DIR` with the tensorboard package: read_tensorboard.py DIR LOG

LOG is the run's --log, of a run with --histograms 2. Every loss of an epoch and of a step, in both folders, must be what the log says, as a float.
Ends with status 77 where the package is not installed.
"""
import json
import os
import struct
import sys

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
except ImportError:
    sys.exit(77)


def single(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def scalars(folder, tag):
    events = EventAccumulator(folder)
    events.Reload()
    return {e.step: e.value for e in events.Scalars(tag)}


def expect(what, found, expected):
    if found != {step: single(value) for step, value in expected.items()}:
        sys.exit(f"{what}: TensorBoard reads {found}, the log has {expected}")


def main():
    folder, log = sys.argv[1:]
    with open(log) as file:
        lines = [json.loads(line) for line in file]
    epochs = {e["epoch"] - 1: e for e in lines if e["event"] == "epoch"}
    train, validation = os.path.join(folder, "train"), os.path.join(folder, "validation")
    for name in ("loss", "accuracy"):
        expect(name, scalars(train, "epoch_" + name), {i: e[name] for i, e in epochs.items()})
        expect("val_" + name, scalars(validation, "epoch_" + name), {i: e["val_" + name] for i, e in epochs.items()})
    steps = [e["step"] for e in lines if e["event"] == "step"]
    if sorted(scalars(train, "batch_loss")) != steps:
        sys.exit("batch_loss has other steps than the log")
    events = EventAccumulator(train, size_guidance={"histograms": 0})
    events.Reload()
    tags = events.Tags()["histograms"]
    gradients = [tag for tag in tags if tag.endswith("/gradient/histogram")]
    if not gradients or len(tags) != 2 * len(gradients):
        sys.exit(f"histograms are {tags}")
    for tag in tags:
        found = events.Histograms(tag)
        if [h.step for h in found] != [i for i in epochs if i % 2 == 0]:
            sys.exit(f"{tag} has the epochs {[h.step for h in found]}")
        if any(sum(h.histogram_value.bucket) != h.histogram_value.num for h in found):
            sys.exit(f"{tag}: the buckets do not have all numbers")
    runs = EventMultiplexer().AddRunsFromDirectory(folder).Reload().Runs()
    if sorted(runs) != ["train", "validation"]:
        sys.exit(f"runs are {sorted(runs)}")
    print(f"{len(epochs)} epochs, {len(steps)} steps")


if __name__ == "__main__":
    main()
