#!/usr/bin/env python3
"""Writes layer_rates.json: weights after STEPS steps with PyTorch's parameter groups, for tests/train/test_layer_rates.c.

    pip install torch==2.15.0

Three linear layers with tanh between them, "a", "b" and "c", have the learning rate times FACTORS. Everything is float64.
Inputs, labels and initial weights are not stored: fixed() makes them from names, and the test has the same formula.
Epsilons are small, since Keras and PyTorch add them in different places. By optimizer: weight and bias of each layer,
kernels in Keras's order [in, out].
"""
import json
import os

import numpy as np
import torch

from make_torchvision import fixed

STEPS = 4
SAMPLES = 8
SIZES = [3, 4, 3, 2]
FACTORS = {"a": 0.1, "b": 1.0, "c": 2.5}
OPTIMIZERS = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9),
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=0.05, weight_decay=0.1, eps=1e-12),
    "adagrad": lambda groups: torch.optim.Adagrad(groups, lr=0.1, initial_accumulator_value=0.1, eps=1e-12),
}


def array(name, *shape):
    return torch.from_numpy(fixed(name, int(np.prod(shape))).astype(np.float32).astype(np.float64).reshape(shape))


def train(make):
    layers, groups = {}, []
    for i, name in enumerate(FACTORS):
        layers[name] = torch.nn.Linear(SIZES[i], SIZES[i + 1]).double()
        with torch.no_grad():
            layers[name].weight.copy_(array(name + "/kernel", SIZES[i], SIZES[i + 1]).T)
            layers[name].bias.copy_(array(name + "/bias", SIZES[i + 1]))
        groups.append({"params": layers[name].parameters()})
    optimizer = make(groups)
    for group, factor in zip(optimizer.param_groups, FACTORS.values()):
        group["lr"] *= factor
    x, y = array("x", SAMPLES, SIZES[0]), array("y", SAMPLES, SIZES[-1])
    for _ in range(STEPS):
        optimizer.zero_grad()
        out = layers["c"](torch.tanh(layers["b"](torch.tanh(layers["a"](x)))))
        torch.mean((out - y) ** 2).backward()
        optimizer.step()
    return {f"{name}/{part}": [float(f"{v:.12g}") for v in value.detach().flatten()]
            for name, layer in layers.items() for part, value in (("kernel", layer.weight.T), ("bias", layer.bias))}


path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "layer_rates.json")
with open(path, "w") as file:
    json.dump({name: train(make) for name, make in OPTIMIZERS.items()}, file, indent=1)
    file.write("\n")
