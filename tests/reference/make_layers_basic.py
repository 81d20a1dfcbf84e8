#!/usr/bin/env python3
"""Makes layers/basic.npz and layers/augment.npz: random configurations of the classes of ordinary image networks, and of
augmentation in inference.

    pip install tensorflow-cpu==2.21.0                            (Keras 3.15.1 and NumPy 2.4.6 come with it)
    python3 tests/reference/make_layers_basic.py [--all] [folder] (default: layers/ beside this script)

layer_cases.py describes the files. --all draws 200 configurations of each class, as `make reference` does.
"""
from layer_cases import keras, main, np, tf
from make_layers import kernel_options, number, numbers, one, regularizer, samples, sides, window_options
from make_layers_norm import affine, axes_of, flag, positive, sizes

L = keras.layers

plain_conv = keras.src.backend.nn.conv


def conv(inputs, kernel, *args, **more):
    """Keras compiles a convolution of groups anew for every shape. Here each group is a convolution of its own."""
    groups = inputs.shape[-1] // kernel.shape[-2]
    if groups == 1:
        return plain_conv(inputs, kernel, *args, **more)
    parts = zip(tf.split(inputs, groups, axis=-1), tf.split(tf.convert_to_tensor(kernel), groups, axis=-1))
    return tf.concat([plain_conv(x, k, *args, **more) for x, k in parts], axis=-1)


keras.src.backend.nn.conv = conv


def conv2d(rng):
    groups = number(rng, 1, 3)
    layer = L.Conv2D(groups * number(rng, 1, 3), groups=groups, name="layer", **window_options(rng, 2, "valid", "same"),
                     **kernel_options(rng, "kernel"))
    return layer, samples(rng, 2, groups * number(rng, 1, 3), 3, 7)


def depthwise_conv2d(rng):
    options = window_options(rng, 2, "valid", "same")
    for name in ("strides", "dilation_rate"):  # TensorFlow: equal in both directions
        options[name] = np.min(options.get(name, 1)).item()
    layer = L.DepthwiseConv2D(depth_multiplier=number(rng, 1, 3), name="layer", **options, **kernel_options(rng, "depthwise"))
    return layer, samples(rng, 2, number(rng, 1, 4), 3, 7)


def pool2d(make):
    def draw(rng):
        layer = make(pool_size=numbers(rng, 2, 1, 4), strides=one(rng, None, numbers(rng, 2, 1, 3)),
                     padding=one(rng, "valid", "same"), data_format="channels_last", name="layer")
        return layer, samples(rng, 2, number(rng, 1, 4), 3, 7)

    return draw


def global_pool2d(make):
    return lambda rng: (make(keepdims=flag(rng), name="layer"), samples(rng, 2, number(rng, 1, 4), 1, 6))


def batch_normalization(training):
    def draw(rng):
        shape = (number(rng, 3, 6), *sizes(rng)[1:])
        layer = L.BatchNormalization(axis=one(rng, -1, len(shape) - 1), momentum=one(rng, 0.99, 0.5),
                                     moving_mean_initializer=one(rng, "zeros", "ones"),
                                     moving_variance_initializer=one(rng, "ones", "zeros"), name="layer", **affine(rng))
        return layer, [shape], training, {"layer/moving_variance": positive}

    return draw


def dropout(rng):
    return L.Dropout(one(rng, 0.0, 0.25, 0.5), name="layer"), [sizes(rng)]


def flatten(rng):
    return L.Flatten(data_format="channels_last", name="layer"), [sizes(rng, 0, 4)]


def reshape(rng):
    shape = sizes(rng, 1, 4)
    size = [int(np.prod(shape[1:]))]
    while len(size) < 5 and flag(rng):  # splits an axis in two
        axis = number(rng, 0, len(size) - 1)
        factors = [k for k in range(1, size[axis] + 1) if size[axis] % k == 0]
        factor = one(rng, *factors)
        size[axis:axis + 1] = [factor, size[axis] // factor]
    if flag(rng):
        size[number(rng, 0, len(size) - 1)] = -1
    return L.Reshape(tuple(size), name="layer"), [shape]


def rescaling(rng):
    return L.Rescaling(one(rng, 1 / 255, 2.0, -0.5), offset=one(rng, 0.0, -1.0, 0.25), name="layer"), [sizes(rng)]


def zero_padding2d(rng):
    return L.ZeroPadding2D(padding=sides(rng, 2, 3), data_format="channels_last", name="layer"), samples(rng, 2, 2)


def relu(rng):
    layer = L.ReLU(max_value=one(rng, None, 6.0, 0.75), negative_slope=one(rng, 0.0, 0.2), threshold=one(rng, 0.0, 0.3),
                   name="layer")
    return layer, [sizes(rng)]


def leaky_relu(rng):
    return L.LeakyReLU(negative_slope=one(rng, 0.3, 0.01, 0.0, 1.5), name="layer"), [sizes(rng)]


def softmax(rng):
    shape = sizes(rng)
    axis = axes_of(rng, shape)
    return L.Softmax(axis=one(rng, -1, axis if isinstance(axis, int) else axis[0]), name="layer"), [shape]


def embedding(rng):
    words = number(rng, 1, 9)
    layer = L.Embedding(words, number(rng, 1, 5), embeddings_initializer=one(rng, "uniform", "zeros", "he_normal"),
                        embeddings_regularizer=regularizer(rng), name="layer")
    return layer, [rng.integers(0, words, sizes(rng, 0, 2)).astype(np.int32)]


def concatenate(rng):
    shape = sizes(rng)
    axis = number(rng, 1, len(shape) - 1)
    parts = [tuple(number(rng, 1, 4) if i == axis else s for i, s in enumerate(shape)) for _ in range(number(rng, 2, 4))]
    return L.Concatenate(axis=one(rng, axis, axis - len(shape)), name="layer"), parts


BASIC = {
    "Conv2D": conv2d,
    "DepthwiseConv2D": depthwise_conv2d,
    "MaxPooling2D": pool2d(L.MaxPooling2D),
    "AveragePooling2D": pool2d(L.AveragePooling2D),
    "GlobalMaxPooling2D": global_pool2d(L.GlobalMaxPooling2D),
    "GlobalAveragePooling2D": global_pool2d(L.GlobalAveragePooling2D),
    "BatchNormalization": batch_normalization(False),
    "BatchNormalization, training": batch_normalization(True),
    "Dropout": dropout,
    "Flatten": flatten,
    "Reshape": reshape,
    "Rescaling": rescaling,
    "ZeroPadding2D": zero_padding2d,
    "ReLU": relu,
    "LeakyReLU": leaky_relu,
    "Softmax": softmax,
    "Embedding": embedding,
    "Concatenate": concatenate,
}


# ---- Augmentation in inference ------------------------------------------------------------------------------------------
# Not RandomCrop: Keras leaves its images as they are, against the layer's own compute_output_shape.


def factor(rng):
    return one(rng, 0.25, (-0.5, 0.25), (0.0, 0.5))


def images(rng):
    return samples(rng, 2, number(rng, 1, 3), 2, 6)


def moved(rng):
    return {"fill_mode": one(rng, "constant", "nearest", "reflect", "wrap"), "fill_value": one(rng, 0.0, 0.5),
            "interpolation": one(rng, "nearest", "bilinear"), "seed": one(rng, None, 5), "name": "layer"}


AUGMENT = {
    "RandomFlip": lambda rng: (L.RandomFlip(one(rng, "horizontal", "vertical", "horizontal_and_vertical"), seed=3, name="layer"),
                               images(rng)),
    "RandomRotation": lambda rng: (L.RandomRotation(factor(rng), **moved(rng)), images(rng)),
    "RandomTranslation": lambda rng: (L.RandomTranslation(factor(rng), factor(rng), **moved(rng)), images(rng)),
    "RandomZoom": lambda rng: (L.RandomZoom(factor(rng), one(rng, None, factor(rng)), **moved(rng)), images(rng)),
    "RandomContrast": lambda rng: (L.RandomContrast(one(rng, 0.25, (0.1, 0.5)), value_range=one(rng, (0, 255), (0, 1)), seed=3,
                                                    name="layer"), images(rng)),
    "RandomBrightness": lambda rng: (L.RandomBrightness(one(rng, 0.25, (-0.5, 0.25)), value_range=one(rng, (0, 255), (0, 1)),
                                                        seed=3, name="layer"), images(rng)),
    "RandomErasing": lambda rng: (L.RandomErasing(factor=one(rng, 1.0, 0.5), scale=one(rng, (0.02, 0.33), 0.25),
                                                  fill_value=one(rng, None, 0.5), value_range=(0, 1), seed=3, name="layer"),
                                  images(rng)),
}

if __name__ == "__main__":
    main({"basic": BASIC, "augment": AUGMENT}, sample=8)
