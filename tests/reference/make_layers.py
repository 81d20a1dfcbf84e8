#!/usr/bin/env python3
"""Makes layers/conv.npz and layers/resize.npz: random configurations of convolutions, pools and layers that move or resize.

    pip install tensorflow-cpu==2.21.0                      (Keras 3.15.1 and NumPy 2.4.6 come with it)
    python3 tests/reference/make_layers.py [--all] [folder] (default: layers/ beside this script)

layer_cases.py describes the files. --all draws 200 configurations of each class, as `make reference` does.
"""
from layer_cases import keras, main, np

L = keras.layers

ACTIVATIONS = ["linear", "relu", "sigmoid", "tanh", "softplus", None]
INITIALIZERS = ["glorot_uniform", "he_normal", "lecun_uniform", "zeros", "ones", "orthogonal", "random_normal"]


def one(rng, *values):
    return values[rng.integers(len(values))]


def number(rng, low, high):
    """low <= number <= high"""
    return int(rng.integers(low, high + 1))


def regularizer(rng):
    return one(rng, None, None, keras.regularizers.L1(0.25), keras.regularizers.L2(0.125), keras.regularizers.L1L2(0.5, 0.25))


def kernel_options(rng, *prefixes):
    options = {"activation": one(rng, *ACTIVATIONS), "use_bias": bool(rng.integers(2)),
               "bias_initializer": one(rng, "zeros", "ones"), "bias_regularizer": regularizer(rng)}
    for prefix in prefixes:
        options[prefix + "_initializer"] = one(rng, *INITIALIZERS)
        options[prefix + "_regularizer"] = regularizer(rng)
    return options


def numbers(rng, axes, low, high):
    """A number for all axes, or one for each."""
    return number(rng, low, high) if rng.integers(2) else tuple(number(rng, low, high) for _ in range(axes))


def window_options(rng, axes, *paddings):
    options = {"kernel_size": numbers(rng, axes, 1, 4), "padding": one(rng, *paddings), "data_format": "channels_last"}
    which = rng.integers(3)
    if which == 0:
        options["strides"] = numbers(rng, axes, 1, 3)
    elif which == 1:
        options["dilation_rate"] = numbers(rng, axes, 1, 3)
    return options


def samples(rng, axes, channels, low=3, high=9):
    return [(number(rng, 1, 3), *(number(rng, low, high) for _ in range(axes)), channels)]


def conv1d(rng):
    groups = number(rng, 1, 3)
    layer = L.Conv1D(groups * number(rng, 1, 3), groups=groups, name="layer", **window_options(rng, 1, "valid", "same", "causal"),
                     **kernel_options(rng, "kernel"))
    return layer, samples(rng, 1, groups * number(rng, 1, 3), 3, 12)


CONV = {
    "Conv1D": conv1d,
}

if __name__ == "__main__":
    main({"conv": CONV})
