"""Runs random configurations of Keras's layers and writes what Keras computes, for make_layers.py and scripts like it.

A family of classes is a file FAMILY.npz with three arrays:
    cases   JSON text as bytes: {"versions": ..., "cases": [case, ...]}
    drawn   float32: the numbers of all drawn tensors, one after the other
    exact   float64: the numbers of all computed tensors, one after the other, rounded to 40 bits
A case has
    class     the class that it is for
    model     what model.to_json() gave for a model of one layer, "layer"
    training  whether the model was called with training=True
    tensors   in the order of their numbers; each has role, name, shape and, if computed, error
        input       drawn; with its dtype
        weight      drawn; name as in variable.path: "layer/kernel"
        cotangent   drawn; like the output of that name ("0", "1", ...)
        output      computed: model(inputs)
        gradient    computed: of the sum of outputs times cotangents, for each input and trainable weight
        loss        computed, a scalar: the model's regularization
    error     largest difference of Keras's own float32 from its float64
Running a script twice gives identical files.
"""
import json
import os
import sys
import zipfile
import zlib

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)

ALL, SAMPLE = 200, 24  # configurations of a class: with --all, and by default


# ---- Numbers ----------------------------------------------------------------------------------------------------------


def apart(rng, shape):
    """Multiples of a power of two between about -2 and 2, no two alike and none 0: safe for kinks and ties."""
    n = int(np.prod(shape))
    step = 2.0 ** -max(3, int(np.ceil(np.log2(max(n, 1)))) - 2)
    return ((rng.permutation(n) - n // 2 + 0.5) * step).astype(np.float32).reshape(shape)


def weight(rng, variable):
    return (rng.integers(-32, 33, variable.shape) / 32).astype(np.float32)


def short(values):
    """Rounded to 40 bits of mantissa, which compresses better."""
    mantissa, exponent = np.frexp(np.asarray(values, np.float64))
    return np.ldexp(np.round(mantissa * 2.0**40) / 2.0**40, exponent)


plain_resize = tf.image.resize


def resize(images, size, method="bilinear", antialias=False, **more):
    """TensorFlow interpolates in float32, whatever the images are. For float64 this is the same in float64."""
    if images.dtype != tf.float64 or method != "bilinear" or antialias or more:
        return plain_resize(images, size, method=method, antialias=antialias, **more)
    for axis in (2, 1):
        place = (np.arange(size[axis - 1]) + 0.5) * images.shape[axis] / size[axis - 1] - 0.5
        low, part = np.floor(place), place - np.floor(place)
        ends = [np.clip(p, 0, images.shape[axis] - 1).astype(int) for p in (low, low + 1)]
        part = part.reshape([-1 if i == axis else 1 for i in range(4)])
        images = tf.gather(images, ends[0], axis=axis) * (1 - part) + tf.gather(images, ends[1], axis=axis) * part
    return images


plain_conv_transpose = tf.nn.conv_transpose


def conv_transpose(input, filters, output_shape, strides, dilations=1, **more):
    """TensorFlow has no dilated ones on CPUs: here zeros are put between the numbers of the kernel."""
    axes = len(filters.shape) - 2
    for axis, rate in enumerate([dilations] * axes if isinstance(dilations, int) else dilations):
        shape = list(filters.shape)
        spread = tf.pad(tf.expand_dims(filters, axis + 1), [[0, rate - 1] if i == axis + 1 else [0, 0] for i in range(axes + 3)])
        shape[axis] *= rate
        filters = tf.gather(tf.reshape(spread, shape), range(shape[axis] - rate + 1), axis=axis)
    return plain_conv_transpose(input, filters, output_shape, strides, **more)


tf.image.resize = resize
tf.nn.conv_transpose = conv_transpose


# ---- One case ---------------------------------------------------------------------------------------------------------


def compute(text, inputs, weights, cotangents, training):
    """Outputs, then gradients of inputs and trainable weights, then the regularization if there is one."""
    model = keras.models.model_from_json(text)
    for variable, value in zip(model.weights, weights):
        variable.assign(value)
    dtype = "float64" if '"float64"' in text else "float32"
    real = [tf.constant(x, dtype) if x.dtype == np.float32 else tf.constant(x) for x in inputs]
    moved = [x for x in real if x.dtype.is_floating] + [v.value for v in model.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(moved)
        outputs = model(real if len(real) > 1 else real[0], training=training)
        outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        loss = sum(tf.reduce_sum(y * tf.cast(c, y.dtype)) for y, c in zip(outputs, cotangents)) if cotangents else None
    results = [y.numpy() for y in outputs]
    if cotangents:
        for x, g in zip(moved, tape.gradient(loss, moved, unconnected_gradients="zero")):
            results.append(tf.convert_to_tensor(g).numpy())
    if model.losses:
        results.append(tf.add_n(model.losses).numpy())
    return [np.asarray(r, np.float64) for r in results], model


def make_case(rng, draw):
    """draw(rng) returns a layer, its inputs (arrays, or shapes with the batch axis) and, if needed, training and a dict of
    functions that draw weights by name; in it, gradients=False leaves them out, and error is the least error of Keras."""
    drawn = draw(rng)
    layer, inputs, training, special = (*drawn, False, {})[:4] if len(drawn) == 2 else (*drawn, {})[:4]
    inputs = [x if isinstance(x, np.ndarray) else apart(rng, x) for x in inputs]
    symbols = [keras.Input(x.shape[1:], dtype=str(x.dtype), name=f"input_{i}") for i, x in enumerate(inputs)]
    model = keras.Model(symbols, layer(symbols if len(symbols) > 1 else symbols[0]), name="case")
    text = model.to_json()
    weights = [special.get(v.path, weight)(rng, v) for v in model.weights]
    shapes = [(x.shape[0], *y.shape[1:]) for x, y in zip(inputs[:1] * len(model.outputs), model.outputs)]
    cotangents = [(rng.integers(-16, 17, s) / 8).astype(np.float32) for s in shapes] if special.get("gradients", True) else []
    exact, _ = compute(text.replace('"float32"', '"float64"'), inputs, weights, cotangents, training)
    single, made = compute(text, inputs, weights, cotangents, training)
    tensors, numbers = [], {"drawn": [], "exact": []}

    def add(role, name, value, error=None, **more):
        record = {"role": role, "name": name, "shape": list(value.shape), **more}
        if error is not None:
            record["error"] = float(f"{error:.3g}")
        tensors.append(record)
        numbers["drawn" if error is None else "exact"].append(value.ravel())

    for i, x in enumerate(inputs):
        add("input", f"input_{i}", x, dtype=str(x.dtype))
    for variable, value in zip(made.weights, weights):
        add("weight", variable.path, value)
    for i, value in enumerate(cotangents):
        add("cotangent", str(i), value)
    names = [("output", str(i)) for i in range(len(shapes))]
    if cotangents:
        names += [("gradient", f"input_{i}") for i, x in enumerate(inputs) if x.dtype == np.float32]
        names += [("gradient", v.path) for v in model.trainable_variables]
    names += [("loss", "loss")] if made.losses else []
    assert len(names) == len(exact)
    for (role, name), a, b in zip(names, exact, single):
        assert a.shape == b.shape and np.isfinite(a).all(), (layer.get_config(), name)
        add(role, name, a, max(np.abs(a - b).max(initial=0), special.get("error", 0)))
    case = {"class": type(layer).__name__, "model": json.loads(text), "training": training, "tensors": tensors}
    return case, numbers


# ---- Files ------------------------------------------------------------------------------------------------------------


def write_npz(path, arrays):
    """Compressed, without dates: equal arrays give equal files."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, array in arrays.items():
            info = zipfile.ZipInfo(name + ".npy", (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(info, "w") as file:
                np.lib.format.write_array(file, array)


def write_family(path, draws, count):
    """draws: functions by class name. Configurations that Keras refuses are drawn again."""
    cases, numbers = [], {"drawn": [], "exact": []}
    for name, draw in draws.items():
        made = refused = 0
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        while made < count:
            try:
                case, more = make_case(rng, draw)
            except (ValueError, TypeError, tf.errors.InvalidArgumentError, tf.errors.UnimplementedError) as error:
                refused += 1
                if refused > 20 + 4 * count:
                    raise SystemExit(f"{name}: Keras refused {refused} configurations; the last one: {error}")
                continue
            keras.backend.clear_session(free_memory=False)
            cases.append(case)
            made += 1
            for kind, values in more.items():
                numbers[kind] += values
        print(f"{path}: {name}: {made} cases, {refused} refused by Keras", flush=True)
    text = json.dumps({"versions": {"keras": keras.__version__, "tensorflow": tf.__version__}, "cases": cases},
                      separators=(",", ":"))
    write_npz(path, {"cases": np.frombuffer(text.encode(), np.uint8),
                     "drawn": np.concatenate([np.zeros(0, np.float32), *numbers["drawn"]]).astype(np.float32),
                     "exact": short(np.concatenate([np.zeros(0), *numbers["exact"]]))})


def main(families, sample=SAMPLE):
    """SCRIPT [--all] [FOLDER]: writes FOLDER/FAMILY.npz for each family. sample: configurations of a class without --all"""
    arguments = [a for a in sys.argv[1:] if a != "--all"]
    count = ALL if "--all" in sys.argv else sample
    folder = arguments[0] if arguments else os.path.join(os.path.dirname(os.path.abspath(__file__)), "layers")
    os.makedirs(folder, exist_ok=True)
    for family, draws in families.items():
        write_family(os.path.join(folder, family + ".npz"), draws, count)
