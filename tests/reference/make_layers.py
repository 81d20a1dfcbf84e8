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


def depthwise_conv1d(rng):
    layer = L.DepthwiseConv1D(depth_multiplier=number(rng, 1, 3), name="layer", **window_options(rng, 1, "valid", "same"),
                              **kernel_options(rng, "depthwise"))
    return layer, samples(rng, 1, number(rng, 1, 4), 3, 12)


def separable_conv(rng, axes):
    options = window_options(rng, axes, "valid", "same")
    for name in ("strides", "dilation_rate"):  # TensorFlow: equal in both directions
        options[name] = np.min(options.get(name, 1)).item()
    layer = (L.SeparableConv1D, L.SeparableConv2D)[axes - 1](
        number(rng, 1, 4), depth_multiplier=number(rng, 1, 3), name="layer", **options,
        **kernel_options(rng, "depthwise", "pointwise"))
    return layer, samples(rng, axes, number(rng, 1, 4), 3, 12 if axes == 1 else 7)


def conv_transpose(rng, axes):
    options = window_options(rng, axes, "valid", "same")
    stride = options.get("strides", 1)
    if rng.integers(2):
        least = np.min(stride).item()
        options["output_padding"] = number(rng, 0, least - 1) if rng.integers(2) else tuple(
            number(rng, 0, s - 1) for s in (stride if isinstance(stride, tuple) else [stride] * axes))
    layer = (L.Conv1DTranspose, L.Conv2DTranspose)[axes - 1](number(rng, 1, 4), name="layer", **options,
                                                             **kernel_options(rng, "kernel"))
    return layer, samples(rng, axes, number(rng, 1, 4), 1, 9 if axes == 1 else 5)


def pool1d(rng, make):
    layer = make(pool_size=number(rng, 1, 4), strides=one(rng, None, 1, 2, 3), padding=one(rng, "valid", "same"),
                 data_format="channels_last", name="layer")
    return layer, samples(rng, 1, number(rng, 1, 4), 3, 12)


def global_pool1d(rng, make):
    return make(keepdims=bool(rng.integers(2)), name="layer"), samples(rng, 1, number(rng, 1, 4), 1, 12)


CONV = {
    "Conv1D": conv1d,
    "DepthwiseConv1D": depthwise_conv1d,
    "SeparableConv1D": lambda rng: separable_conv(rng, 1),
    "SeparableConv2D": lambda rng: separable_conv(rng, 2),
    "Conv1DTranspose": lambda rng: conv_transpose(rng, 1),
    "Conv2DTranspose": lambda rng: conv_transpose(rng, 2),
    "MaxPooling1D": lambda rng: pool1d(rng, L.MaxPooling1D),
    "AveragePooling1D": lambda rng: pool1d(rng, L.AveragePooling1D),
    "GlobalMaxPooling1D": lambda rng: global_pool1d(rng, L.GlobalMaxPooling1D),
    "GlobalAveragePooling1D": lambda rng: global_pool1d(rng, L.GlobalAveragePooling1D),
}


# ---- Layers that move or resize ---------------------------------------------------------------------------------------


def sides(rng, axes, most):
    """A number, one for each axis, or one for each side."""
    kind = rng.integers(3)
    if axes == 1 or kind == 0:
        return number(rng, 0, most) if kind == 0 else (number(rng, 0, most), number(rng, 0, most))
    pair = lambda: (number(rng, 0, most), number(rng, 0, most))
    return pair() if kind == 1 else (pair(), pair())


def cropping(rng, axes):
    layer = (L.Cropping1D, L.Cropping2D)[axes - 1](cropping=sides(rng, axes, 3), name="layer")
    return layer, samples(rng, axes, number(rng, 1, 3), 5, 9)


def zero_padding1d(rng):
    return L.ZeroPadding1D(padding=sides(rng, 1, 3), name="layer"), samples(rng, 1, number(rng, 1, 3))


def permute(rng):
    axes = number(rng, 1, 4)
    layer = L.Permute(tuple(int(i) + 1 for i in rng.permutation(axes)), name="layer")
    return layer, [(number(rng, 1, 3), *(number(rng, 1, 5) for _ in range(axes)))]


def repeat_vector(rng):
    return L.RepeatVector(number(rng, 1, 5), name="layer"), samples(rng, 0, number(rng, 1, 6))


def up_sampling1d(rng):
    return L.UpSampling1D(size=number(rng, 1, 4), name="layer"), samples(rng, 1, number(rng, 1, 4), 1)


def up_sampling2d(rng):
    layer = L.UpSampling2D(size=numbers(rng, 2, 1, 4), data_format="channels_last",
                           interpolation=one(rng, "nearest", "bilinear"), name="layer")
    return layer, samples(rng, 2, number(rng, 1, 3), 1, 5)


def resizing(rng):
    ratio = rng.integers(4)
    layer = L.Resizing(number(rng, 1, 12), number(rng, 1, 12), interpolation=one(rng, "nearest", "bilinear"),
                       crop_to_aspect_ratio=bool(ratio == 0), pad_to_aspect_ratio=bool(ratio == 1),
                       fill_mode="constant", fill_value=one(rng, 0.0, 0.5, -2.0), antialias=False,
                       data_format="channels_last", name="layer")
    return layer, samples(rng, 2, number(rng, 1, 3), 1, 9)


def center_crop(rng):
    return L.CenterCrop(number(rng, 1, 9), number(rng, 1, 9), name="layer"), samples(rng, 2, number(rng, 1, 3), 1, 9)


RESIZE = {
    "Cropping1D": lambda rng: cropping(rng, 1),
    "Cropping2D": lambda rng: cropping(rng, 2),
    "ZeroPadding1D": zero_padding1d,
    "Permute": permute,
    "RepeatVector": repeat_vector,
    "UpSampling1D": up_sampling1d,
    "UpSampling2D": up_sampling2d,
    "Resizing": resizing,
    "CenterCrop": center_crop,
}

if __name__ == "__main__":
    main({"conv": CONV, "resize": RESIZE})
