#!/usr/bin/env python3
"""Makes layers/norm.npz and layers/merge.npz: random configurations of normalizations, activations, merging layers and
layers that are random in training.

    pip install tensorflow-cpu==2.21.0                           (Keras 3.15.1 and NumPy 2.4.6 come with it)
    python3 tests/reference/make_layers_norm.py [--all] [folder] (default: layers/ beside this script)

layer_cases.py describes the files. Layers that are random in training are called in inference.
"""
import itertools

from layer_cases import keras, main, np

from keras.src.applications.convnext import LayerScale, StochasticDepth
from keras.src.applications.inception_resnet_v2 import CustomScaleLayer

L = keras.layers

INITIALIZERS = ["zeros", "ones", "random_normal", "he_uniform"]
ACTIVATIONS = sorted(set(keras.src.activations.ALL_OBJECTS_DICT) - {"threshold"})  # takes arguments


def one(rng, *values):
    return values[rng.integers(len(values))]


def number(rng, low, high):
    """low <= number <= high"""
    return int(rng.integers(low, high + 1))


def flag(rng):
    return bool(rng.integers(2))


def regularizer(rng):
    return one(rng, None, None, keras.regularizers.L1(0.25), keras.regularizers.L2(0.125), keras.regularizers.L1L2(0.5, 0.25))


def sizes(rng, least=1, most=3, low=2, high=5):
    """A shape with the batch axis."""
    return (number(rng, 2, 4), *(number(rng, low, high) for _ in range(number(rng, least, most))))


def axes_of(rng, shape):
    """One axis, or a list, from the front or the end; never the batch axis."""
    rank = len(shape)
    count = number(rng, 1, rank - 1)
    chosen = [int(a) + 1 for a in rng.permutation(rank - 1)[:count]]
    chosen = [a - rank if flag(rng) else a for a in chosen]
    return chosen[0] if count == 1 and flag(rng) else chosen


def affine(rng):
    return {"center": flag(rng), "scale": flag(rng), "epsilon": one(rng, 1e-3, 1e-5, 0.5),
            "beta_initializer": one(rng, *INITIALIZERS), "gamma_initializer": one(rng, *INITIALIZERS),
            "beta_regularizer": regularizer(rng), "gamma_regularizer": regularizer(rng)}


# ---- Normalizations ---------------------------------------------------------------------------------------------------


# The layer keeps tensors of its weights, which the script assigns later.
plain_call = L.Normalization.call


def call(self, inputs):
    self.finalize_state()
    return plain_call(self, inputs)


L.Normalization.call = call


def positive(rng, variable):
    return (rng.integers(1, 65, variable.shape) / 16).astype(np.float32)


def zero(rng, variable):
    return np.zeros(variable.shape, np.float32)


def normalization(rng):
    shape = sizes(rng)
    axis = one(rng, None, -1, axes_of(rng, shape))
    options = {}
    if flag(rng):  # for each element of the axes, for the last of them, or one for all
        kept = [] if axis is None else sorted(a % len(shape) for a in np.atleast_1d(axis))
        of = [shape[a] for a in kept]
        of = of[number(rng, 0, len(of)):]
        options = {"mean": (rng.integers(-32, 33, of) / 16).tolist(), "variance": (rng.integers(0, 65, of) / 16).tolist()}
    layer = L.Normalization(axis=axis, invert=flag(rng), name="layer", **options)
    return layer, [shape], False, {"layer/variance": positive, "layer/count": zero}


def group_normalization(rng):
    groups = number(rng, 1, 4)
    shape = list(sizes(rng, 1, 3))
    axis = number(rng, 1, len(shape) - 1)
    shape[axis] = groups * number(rng, 1, 3)
    axis = one(rng, axis, axis - len(shape))
    layer = L.GroupNormalization(groups=one(rng, groups, groups, -1), axis=axis, name="layer", **affine(rng))
    return layer, [tuple(shape)]


def rms_normalization(rng):
    shape = sizes(rng)
    last = list(range(-number(rng, 1, len(shape) - 1), 0))
    return L.RMSNormalization(axis=one(rng, -1, last), epsilon=one(rng, 1e-6, 1e-3, 0.5), name="layer"), [shape]


def unit_normalization(rng):
    shape = sizes(rng)
    return L.UnitNormalization(axis=axes_of(rng, shape), name="layer"), [shape]


def layer_normalization(rng):
    shape = sizes(rng)
    return L.LayerNormalization(axis=axes_of(rng, shape), rms_scaling=number(rng, 0, 2) == 0, name="layer", **affine(rng)), [shape]


# ---- Activations ------------------------------------------------------------------------------------------------------


names = itertools.cycle(ACTIVATIONS)  # each comes up before one does again


def activation(rng):
    return L.Activation(next(names), name="layer"), [sizes(rng, high=3)[:-1] + (2 * number(rng, 1, 3),)]


def dense(rng):
    name = one(rng, *ACTIVATIONS)
    layer = L.Dense(2 * number(rng, 1, 3), activation=one(rng, name, L.ReLU(), L.ReLU(6.0), L.ELU(), L.LeakyReLU(0.2)),
                    activity_regularizer=regularizer(rng), name="layer")
    return layer, [sizes(rng, 1, 2)]


def elu(rng):
    return L.ELU(alpha=one(rng, 1.0, 0.5, 2.0, 0.0), name="layer"), [sizes(rng)]


def prelu(rng):
    shape = sizes(rng)
    shared = one(rng, None, [int(a) + 1 for a in rng.permutation(len(shape) - 1)[:number(rng, 1, len(shape) - 1)]])
    layer = L.PReLU(shared_axes=shared, alpha_initializer=one(rng, *INITIALIZERS), alpha_regularizer=regularizer(rng),
                    name="layer")
    return layer, [shape]


# ---- Layers that are random in training -------------------------------------------------------------------------------


def random(make, axes=None):
    def draw(rng):
        shape = sizes(rng) if axes is None else sizes(rng, axes, axes)
        return make(one(rng, 0.0, 0.25, 0.5), name="layer"), [shape]
    return draw


def activity_regularization(rng):
    return L.ActivityRegularization(l1=one(rng, 0.0, 0.5), l2=one(rng, 0.125, 0.25), name="layer"), [sizes(rng)]


# Keras numbers a weight without a name over all layers; the first is "variable".
def build(self, _):
    self.gamma = self.add_weight(shape=(self.projection_dim,), name="variable",
                                 initializer=keras.initializers.Constant(self.init_values))


LayerScale.build = build


def layer_scale(rng):
    shape = sizes(rng)
    return LayerScale(one(rng, 1e-6, 0.5, 0.0), shape[-1], name="layer"), [shape]


NORM = {
    "Normalization": normalization,
    "GroupNormalization": group_normalization,
    "RMSNormalization": rms_normalization,
    "UnitNormalization": unit_normalization,
    "LayerNormalization": layer_normalization,
    "Activation": activation,
    "Activation, other names": activation,
    "Dense": dense,
    "ELU": elu,
    "PReLU": prelu,
    "SpatialDropout1D": random(L.SpatialDropout1D, 2),
    "SpatialDropout2D": random(L.SpatialDropout2D, 3),
    "GaussianNoise": random(L.GaussianNoise),
    "GaussianDropout": random(L.GaussianDropout),
    "AlphaDropout": random(L.AlphaDropout),
    "StochasticDepth": random(StochasticDepth),
    "ActivityRegularization": activity_regularization,
    "LayerScale": layer_scale,
}


# ---- Merging layers ---------------------------------------------------------------------------------------------------


def inputs(rng, count):
    """Shapes that fit each other: some axes of size 1, some missing."""
    shape, all_ = sizes(rng), []
    for _ in range(count):
        own = [1 if number(rng, 0, 5) == 0 else size for size in shape[1:]]
        all_.append((shape[0], *own[number(rng, 0, 1) if len(own) > 1 and number(rng, 0, 3) == 0 else 0:]))
    return all_


def merge(make, low=2, high=4):
    return lambda rng: (make(name="layer"), inputs(rng, number(rng, low, high)))


def dot(rng):
    a, b = list(sizes(rng, high=4)), list(sizes(rng, high=4))
    b[0] = a[0]
    axes = number(rng, 1, len(a) - 1), number(rng, 1, len(b) - 1)
    b[axes[1]] = a[axes[0]]
    single = axes[0] if axes[0] == axes[1] else -1 if axes == (len(a) - 1, len(b) - 1) else axes
    return L.Dot(axes=one(rng, axes, single), normalize=flag(rng), name="layer"), [tuple(a), tuple(b)]


def custom_scale(rng):
    shape = sizes(rng)
    return CustomScaleLayer(one(rng, 0.25, 1.0, -2.0, 0.0), name="layer"), [shape, shape]


MERGE = {
    "Add": merge(L.Add),
    "Subtract": merge(L.Subtract, 2, 2),
    "Multiply": merge(L.Multiply),
    "Average": merge(L.Average),
    "Maximum": merge(L.Maximum),
    "Minimum": merge(L.Minimum),
    "Dot": dot,
    "CustomScaleLayer": custom_scale,
}

if __name__ == "__main__":
    main({"norm": NORM, "merge": MERGE})
