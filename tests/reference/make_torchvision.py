#!/usr/bin/env python3
"""Makes torchvision.json.gz: names, shapes and predictions of torchvision's networks.

    pip install torch==2.15.0 torchvision                         (CPU builds)
    python3 tests/reference/make_torchvision.py [file]            (default: torchvision.json.gz beside this script)

By name of the network: state (names and shapes of its state dict, without num_batches_tracked) and, for one network of
each family that is small enough, gain and predictions: the probabilities of two images of SIZE, computed in float64.
Weights and images are not stored: fixed() makes them from their names, and test_torchvision.c has the same formula.
A network's gain keeps its logits near 1, so that its predictions depend on all of its layers. Running the script twice
gives identical files.
"""
import gzip
import json
import os
import sys

import numpy as np
import torch
import torchvision

CLASSES = 10
SAMPLES = 2
SIZE = 64
NETWORKS = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "vgg11", "vgg13", "vgg16", "vgg19", "mobilenet_v2",
            "densenet121", "densenet169", "densenet201", "efficientnet_b0", "efficientnet_b1", "efficientnet_b2",
            "efficientnet_b3", "efficientnet_b4", "convnext_tiny", "convnext_small", "convnext_base"]
PREDICTED = ["resnet18", "mobilenet_v2", "densenet121", "efficientnet_b0", "convnext_tiny"]


def fixed(name, count):
    """Numbers in [-1, 1), multiples of 2^-23: splitmix64 from the FNV-1a hash of the name."""
    key = 0xcbf29ce484222325
    for byte in name.encode():
        key = (key ^ byte) * 0x100000001b3 % 2**64
    z = np.uint64(key) + (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9e3779b97f4a7c15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
    z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float64) / 2**23 - 1


def fixed_weight(name, shape, gain):
    u = fixed(name, int(np.prod(shape))).reshape(shape)
    if len(shape) == 2 or len(shape) == 4:
        u = u * gain * np.sqrt(3.0 / np.prod(shape[1:]))
    elif name.endswith(".weight") or name.endswith("layer_scale"):
        u = 1 + u / 4
    else:
        u = 1 + u / 2 if name.endswith("running_var") else u / 8
    return u.astype(np.float32)


def state_of(network):
    return {k: v for k, v in network.state_dict().items() if not k.endswith("num_batches_tracked")}


def logits(network, gain):
    with torch.no_grad():
        for name, value in state_of(network).items():
            value.copy_(torch.from_numpy(fixed_weight(name, tuple(value.shape), gain)))
        x = (fixed("images", SAMPLES * SIZE * SIZE * 3) + 1) / 2
        return network(torch.from_numpy(x.reshape(SAMPLES, SIZE, SIZE, 3)).permute(0, 3, 1, 2).contiguous())


def predictions(name):
    network = getattr(torchvision.models, name)(weights=None, num_classes=CLASSES).double().eval()
    low, high = 0.25, 4.0
    for _ in range(12):
        gain = round((low * high) ** 0.5, 4)
        y = logits(network, gain)
        std = float(y.std())
        low, high = (gain, high) if std < 0.5 else (low, gain)
        if 0.3 < std < 2:
            break
    assert 0.3 < std < 2, (name, std)
    return {"gain": gain, "predictions": [float(f"{p:.9g}") for p in torch.softmax(y, 1).flatten()]}


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "torchvision.json.gz")
    networks = {}
    for name in NETWORKS:
        with torch.device("meta"):
            state = state_of(getattr(torchvision.models, name)(weights=None))
        networks[name] = {"state": {k: list(v.shape) for k, v in state.items()}}
        if name in PREDICTED:
            networks[name].update(predictions(name))
        print(name, len(state), networks[name].get("gain", ""), flush=True)
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(json.dumps(networks, separators=(",", ":")).encode())


if __name__ == "__main__":
    main()
