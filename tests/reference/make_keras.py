#!/usr/bin/env python3
"""Makes keras/: small models as Keras 3 writes them, and what Keras computes with them.

    pip install tensorflow-cpu==2.21.0                      (Keras 3.15.1 and NumPy 2.4.6 come with it)
    python3 tests/reference/make_keras.py [directory]       (default: keras/ beside this script)

The images come from LOCKSTEP_DATA, or from Debian's package dataset-fashion-mnist. Running the script twice gives
identical files. Everything is float32 on one thread, as a user would run it, with Keras's own initial weights. Only
gradients of embeddings are not what Keras uses with TensorFlow (see apply).

Each training is done a second time in float64: how far the two drift apart is written down as "drift" and must stay well
within the tolerance of the case, or the script stops, since nothing else could be compared with it. That is not a matter
of course: where a relu's input is almost zero, or two inputs of a max pool are almost equal, rounding chooses the way of
the gradient. On images with a plain background, where a whole region has one value, a single such choice can move weights
by 1e-3 within 50 steps. So where needed the initial weights are drawn again ("draw") until no choice is that close.

manifest.json has
    versions, tolerances
    models       by name: what the folder of that name holds
        files        model (what model.to_json() gave), weights (initial, safetensors: layer/variable), data (.npz),
                     predictions (safetensors: what model.predict gives for the test inputs, with the initial weights
                     under "initial/OUTPUT LAYER", with the trained ones under "OPTIMIZER/OUTPUT LAYER")
        inputs       in the order of the model's: its name, the keys of its training and test data, divide: what the data
                     is divided by, as float32, before it is fed
        labels, sample_weights        keys of the data; absent where there are none
        class_weights                 by class
        loss         as Keras serializes it; absent: the model is not trained
        batch_size
        steps        of training. Step k takes the k-th batch of the data in its order; after the last batch, which may be
                     smaller, comes the first again: fit without shuffle
        parameters   trainable and not
        outputs      the output layers, in the order of the model's outputs
    cases        model, optimizer (a label), config (Keras's), tolerance (a class), losses (of each step's batch, before
                 its update, regularisers included), weights (file, after the last step), drift
    fits         model, optimizer, epochs: what model.fit without shuffle reports (running means over the samples of the
                 epoch; loss with regularisers), and for the test data after each epoch
    readable     models of which only the JSON is here; they must be read
    refused      models that use what is not supported; names: words that the error must have; rewritten: made by changing
                 a value of a good model, as no Keras of today would write it
    keys         by class name, everything found in all these files: keys of the object itself, and those of its config
                 with their values (of simple values at most 8; objects by their class name)
"""
import gzip
import json
import os
import shutil
import struct
import sys
import zlib

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["KERAS_BACKEND"] = "tensorflow"

import numpy as np
import tensorflow as tf
import keras
from keras import layers as L

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.experimental.enable_op_determinism()

plain_apply = keras.optimizers.Optimizer.apply


def apply(self, grads, trainable_variables=None):
    """With TensorFlow, Keras gives its optimizers the gradient of an Embedding as a list of rows, one for each use, and those
    with second moments then add up the squares of the rows instead of squaring their sum. Here the rows are added first,
    which is the gradient, and what Keras does with PyTorch."""
    return plain_apply(self, [tf.convert_to_tensor(g) for g in grads], trainable_variables)


keras.optimizers.Optimizer.apply = apply

STEPS = 50
TESTS = 16  # samples of x_test
IMAGES = os.environ.get("LOCKSTEP_DATA") or "/usr/share/datasets/fashion-mnist"

# loss: relative. weights: absolute, or relative where they are larger than 1.
TOLERANCES = {
    "sgd": {"loss": 1e-4, "weights": 1e-4},
    "adaptive": {"loss": 1e-3, "weights": 1e-3},
    "predict": {"predictions": 1e-5},
}

# Trainings with one choice so close that the order of a sum decides it: other numbers of lanes go either way, 5e-4 apart.
CLOSE_CHOICES = {("cnn", "nesterov")}

OPTIMIZERS = {
    "sgd": (lambda: keras.optimizers.SGD(0.01), "sgd"),
    "nesterov": (lambda: keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True), "sgd"),
    "adam": (lambda: keras.optimizers.Adam(), "adaptive"),
    "rmsprop": (lambda: keras.optimizers.RMSprop(), "adaptive"),
    "adamw": (lambda: keras.optimizers.AdamW(), "adaptive"),
}


# ---- files ----------------------------------------------------------------------------------------------------------


def write_safetensors(path, tensors):
    names = {"float32": "F32"}
    header, place = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": names[str(array.dtype)], "shape": list(array.shape),
                        "data_offsets": [place, place + array.nbytes]}
        place += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def write_text(path, text):
    with open(path, "w") as file:
        file.write(text)


def pretty(value, indent=0):
    """JSON, indented; lists and small objects of plain values stay on one line."""
    flat = json.dumps(value)
    plain = not isinstance(value, (dict, list)) or not any(
        isinstance(v, (dict, list)) and v for v in (value.values() if isinstance(value, dict) else value))
    if plain and (len(flat) < 110 or not isinstance(value, dict)):
        return flat
    pad, inner = " " * indent, " " * (indent + 1)
    if isinstance(value, dict):
        rows = [f"{inner}{json.dumps(k)}: {pretty(v, indent + 1)}" for k, v in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{pad}}}"
    return "[\n" + ",\n".join(inner + pretty(v, indent + 1) for v in value) + f"\n{pad}]"


def short(number):
    """The double whose decimal form is the shortest that gives this float32."""
    return float(str(np.float32(number)))


# ---- data -----------------------------------------------------------------------------------------------------------


def random_of(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def normal(rng, *shape):
    return np.round(rng.normal(0.0, 1.0, shape), 3).astype(np.float32)


def classes_of(rng, x, count):
    """Labels that can be learnt: the largest of some random directions."""
    flat = x.reshape(len(x), -1).astype(np.float64)
    return np.argmax(flat @ rng.normal(0.0, 1.0, (flat.shape[1], count)), axis=1)


def split(arrays):
    """name -> array becomes name_train, name_test: the last samples are for tests."""
    result = {}
    for name, array in arrays.items():
        result[f"{name}_train"], result[f"{name}_test"] = array[:-TESTS], array[-TESTS:]
    return result


def fashion(count):
    def read(name, header, size):
        with gzip.open(os.path.join(IMAGES, name)) as file:
            file.read(header)
            return np.frombuffer(file.read(count * size), np.uint8)

    x = read("train-images-idx3-ubyte.gz", 16, 784).reshape(-1, 28, 28, 1)
    return split({"x": x, "y": read("train-labels-idx1-ubyte.gz", 8, 1)})


# ---- models ---------------------------------------------------------------------------------------------------------
# Each function returns a new model under Keras's current float type. `data` returns the arrays of its .npz.


class Model:
    def __init__(self, build, data, loss=None, batch=32, inputs=("x",), divide=None, class_weights=None,
                 sample_weights=False, compress=True, draw=0):
        self.name, self.build, self.data, self.loss, self.batch = build.__name__, build, data, loss, batch
        self.inputs, self.divide, self.class_weights, self.sample_weights = inputs, divide, class_weights, sample_weights
        self.optimizers, self.compress, self.draw = tuple(OPTIMIZERS) if loss else (), compress, draw


def mlp():
    return keras.Sequential([keras.Input((20,)), L.Dense(32, activation="relu"), L.Dense(16, activation="tanh"),
                             L.Dense(5, activation="softmax")])


def mlp_data(rng):
    x = normal(rng, 100 + TESTS, 20)
    return split({"x": x, "y": classes_of(rng, x, 5).astype(np.int64)})


def cnn():
    model = keras.Sequential(name="cnn")
    model.add(keras.Input((28, 28, 1)))
    model.add(L.Conv2D(16, 3, activation="relu"))
    model.add(L.MaxPool2D())
    model.add(L.Conv2D(32, 3, activation="relu"))
    model.add(L.MaxPool2D())
    model.add(L.Flatten())
    model.add(L.Dense(10, activation="softmax"))
    return model


def dropout():
    return keras.Sequential([keras.Input((12,)), L.Dropout(0.2), L.Dense(24, activation="elu", bias_initializer="random_normal"),
                             L.Dropout(0.5), L.Dense(12, activation="softplus", bias_initializer="random_normal"), L.Dense(4),
                             L.Softmax()])


def dropout_data(rng):
    x = normal(rng, 8 + TESTS, 12)
    return split({"x": x, "y": classes_of(rng, x, 4).astype(np.int32)})


def residual():
    def norm(x, name):
        return L.BatchNormalization(name=name)(x)

    x = image = keras.Input((8, 8, 3), name="image")
    x = L.Conv2D(6, 3, padding="same", use_bias=False, name="stem")(x)
    x = L.ReLU(name="stem_relu")(norm(x, "stem_norm"))
    for block, (channels, strides) in enumerate(((6, 1), (8, 2))):
        name = f"block{block}"
        shortcut = x
        if strides != 1:
            shortcut = L.Conv2D(channels, 1, strides, use_bias=False, name=f"{name}_shortcut")(x)
            shortcut = norm(shortcut, f"{name}_shortcut_norm")
        x = L.Conv2D(channels, 3, strides, padding="same", use_bias=False, kernel_initializer="he_normal",
                     name=f"{name}_conv1")(x)
        x = L.Activation("relu", name=f"{name}_relu1")(norm(x, f"{name}_norm1"))
        x = L.Conv2D(channels, 3, padding="same", use_bias=False, kernel_initializer="he_uniform", name=f"{name}_conv2")(x)
        x = L.Add(name=f"{name}_add")([shortcut, norm(x, f"{name}_norm2")])
        x = L.Activation("relu", name=f"{name}_relu2")(x)
    x = L.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(image, L.Dense(4, activation="softmax", name="classes")(x), name="residual")


def residual_data(rng):
    x = rng.integers(0, 200, (80 + TESTS, 8, 8, 3)).astype(np.uint8)
    labels = rng.integers(0, 4, len(x))
    for image, label in zip(x, labels):  # a lighter quarter
        image[4 * (label // 2):, 4 * (label % 2):][:4, :4] += 50
    return split({"x": x, "y": labels.astype(np.int64)})


def shared():
    """A layer used twice in a row, and once more on another way to the same end."""
    x = keras.Input((6,))
    twice = L.Dense(8, activation="tanh", name="shared")
    first = L.Dense(8)(x)
    a = twice(first)
    b = twice(a)
    c = twice(L.ReLU()(first))
    return keras.Model(x, L.Dense(3, name="scores")(L.Add()([a, b, c])))


def shared_data(rng):
    x = normal(rng, 96 + TESTS, 6)
    return split({"x": x, "y": classes_of(rng, x, 3).astype(np.int64)})


def two_inputs():
    left, right = keras.Input((6,), name="left"), keras.Input((4,), name="right")
    a = L.Dense(8, activation="relu", name="a")(left)
    b = L.Dense(8, activation="sigmoid", name="b")(right)
    joined = L.Concatenate(name="join")([L.Add(name="sum")([a, b]), L.Multiply(name="product")([a, b]), right])
    return keras.Model([left, right], L.Dense(3, activation="softmax", name="classes")(joined), name="two_inputs")


def two_inputs_data(rng):
    left, right = normal(rng, 90 + TESTS, 6), normal(rng, 90 + TESTS, 4)
    labels = classes_of(rng, np.concatenate([left, right], axis=1), 3)
    return split({"left": left, "right": right, "y": labels.astype(np.int64)})


def two_outputs():
    x = keras.Input((5,), name="x")
    h = L.Dense(7, activation="silu", bias_initializer="random_normal", name="h")(x)
    return keras.Model(x, [L.Dense(3, activation="softmax", name="kind")(h), L.Dense(1, name="amount")(h)],
                       name="two_outputs")


def two_outputs_data(rng):
    return split({"x": normal(rng, 4 + TESTS, 5)})


def layer_norm():
    return keras.Sequential([keras.Input((4, 6)), L.Dense(8), L.LayerNormalization(), L.Activation("gelu"), L.Reshape((2, 16)),
                             L.LayerNormalization(axis=[1, 2], epsilon=1e-5), L.Flatten(), L.Dense(10, activation="gelu"),
                             L.Dense(1)])


def layer_norm_data(rng):
    x = normal(rng, 96 + TESTS, 4, 6)
    y = np.tanh(x.reshape(len(x), -1).astype(np.float64) @ rng.normal(0.0, 0.3, (24, 1)))
    return split({"x": x, "y": np.round(y, 4).astype(np.float32)})


def depthwise():
    return keras.Sequential([
        keras.Input((11, 10, 3)), L.Rescaling(1 / 127.5, offset=-1), L.ZeroPadding2D(((1, 0), (2, 1))),
        L.DepthwiseConv2D(3, depth_multiplier=2), L.LeakyReLU(negative_slope=0.2), L.AveragePooling2D(2, padding="same"),
        L.DepthwiseConv2D(3, strides=2, padding="same", use_bias=False), L.ReLU(max_value=6),
        L.Conv2D(8, (2, 3), dilation_rate=(1, 1), padding="same", activation="leaky_relu"), L.MaxPooling2D((2, 1), (1, 1)),
        L.AveragePooling2D((1, 2), strides=1), L.GlobalMaxPooling2D(), L.Dense(3, activation="softmax")])


def depthwise_data(rng):
    x = rng.integers(0, 256, (64 + TESTS, 11, 10, 3)).astype(np.uint8)
    labels = rng.integers(0, 3, len(x))
    x[np.arange(len(x)), ..., labels] //= 3
    return split({"x": x, "y": np.eye(3, dtype=np.float32)[labels]})


def embedding():
    words = keras.Input((4, 3), dtype="int32", name="words")
    x = L.Embedding(20, 6)(words)
    return keras.Model(words, L.Dense(3, activation="softmax")(L.GlobalAveragePooling2D()(x)))


def embedding_data(rng):
    x = rng.integers(0, 20, (96 + TESTS, 4, 3)).astype(np.int32)
    return split({"x": x, "y": (x.sum(axis=(1, 2)) % 3).astype(np.int64)})


def embedding_flat():
    return keras.Sequential([keras.Input((5,), dtype="int64"), L.Embedding(12, 4), L.Flatten(), L.Dense(2, activation="softmax")])


def embedding_flat_data(rng):
    x = rng.integers(0, 12, (96 + TESTS, 5)).astype(np.int64)
    return split({"x": x, "y": (x.sum(axis=1) > 27).astype(np.uint8)})


def binary():
    return keras.Sequential([keras.Input((8,)), L.Dense(16, activation="relu", bias_initializer="ones"),
                             L.Dense(1, activation="sigmoid")])


def binary_data(rng):
    x = normal(rng, 96 + TESTS, 8)
    return split({"x": x, "y": (x[:, :1] + x[:, 1:2] * x[:, 2:3] > 0).astype(np.float32)})


def regression():
    l2 = keras.regularizers.L2(0.01)
    return keras.Sequential([keras.Input((7,)), L.Dense(12, activation="relu", kernel_regularizer=l2),
                             L.Dense(6, kernel_regularizer=keras.regularizers.L1L2(0.001, 0.02), bias_regularizer="l2"),
                             L.Dense(2)])


def regression_data(rng):
    x = normal(rng, 96 + TESTS, 7)
    y = x.astype(np.float64) @ rng.normal(0.0, 0.5, (7, 2)) + 0.3 * x[:, :1] ** 2
    return split({"x": x, "y": np.round(y, 3).astype(np.float32)})


def class_weights():
    return keras.Sequential([keras.Input((6,)), L.Dense(10, activation="relu"), L.Dense(3, activation="softmax")])


def sample_weights():
    return keras.Sequential([keras.Input((6,)), L.Dense(10, activation="relu"), L.Dense(3, activation="softmax")])


def weighted_data(rng):
    x = normal(rng, 90 + TESTS, 6)
    return split({"x": x, "y": classes_of(rng, x, 3).astype(np.int64)})


def sample_weights_data(rng):
    data = weighted_data(rng)
    weights = np.round(rng.uniform(0.0, 2.0, 90), 2).astype(np.float32)
    weights[5:9] = 0
    return {**data, "w_train": weights}


SPARSE = lambda: keras.losses.SparseCategoricalCrossentropy()
MODELS = [
    Model(mlp, mlp_data, SPARSE),  # 100 samples: the last batch has 4
    Model(cnn, lambda rng: fashion(304 + TESTS), SPARSE, divide=255, draw=5),  # the last batch has 16
    Model(dropout, dropout_data),
    Model(residual, residual_data, SPARSE, batch=20, divide=255, draw=1),
    Model(shared, shared_data, lambda: keras.losses.SparseCategoricalCrossentropy(from_logits=True)),
    Model(two_inputs, two_inputs_data, SPARSE, inputs=("left", "right"), compress=False),
    Model(two_outputs, two_outputs_data, compress=False),
    Model(layer_norm, layer_norm_data, lambda: keras.losses.MeanSquaredError()),
    Model(depthwise, depthwise_data, lambda: keras.losses.CategoricalCrossentropy(), batch=24),
    Model(embedding, embedding_data, SPARSE),
    Model(embedding_flat, embedding_flat_data, SPARSE),
    Model(binary, binary_data, lambda: keras.losses.BinaryCrossentropy(), compress=False),
    Model(regression, regression_data, lambda: keras.losses.MeanSquaredError()),
    Model(class_weights, weighted_data, SPARSE, class_weights={0: 0.5, 1: 2.0, 2: 1.0}),
    Model(sample_weights, sample_weights_data, SPARSE, sample_weights=True),
]


# ---- models of which only the JSON is kept --------------------------------------------------------------------------


def small(*inner, shape=(8, 8, 3)):
    return keras.Sequential([keras.Input(shape), *inner])


def compiled():
    model = mlp()
    model.compile(keras.optimizers.Adam(0.002), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def input_shape():
    return keras.Sequential([L.Dense(4, input_shape=(3,), activation="relu"), L.Dense(2)])


def fixed_batch():
    return keras.Sequential([keras.Input(batch_shape=(4, 3)), L.Dense(2)])


def keyword_input():
    """Inputs by keyword, and a layer whose input is listed twice."""
    x = keras.Input((3,))
    y = L.Dense(3)(inputs=x)
    return keras.Model(x, L.Add()([y, y]))


def initializers():
    I = keras.initializers
    return small(L.Conv2D(2, 1, kernel_initializer=I.HeNormal(seed=1), bias_initializer=I.Constant(0.1)),
                 L.Conv2D(2, 1, kernel_initializer=I.TruncatedNormal(0.0, 0.02)),
                 L.Conv2D(2, 1, kernel_initializer=I.RandomNormal(0.0, 0.02)),
                 L.Conv2D(2, 1, kernel_initializer=I.RandomUniform(-0.1, 0.1)),
                 L.Conv2D(2, 1, kernel_initializer=I.GlorotNormal()), L.Conv2D(2, 1, kernel_initializer=I.LecunNormal()),
                 L.Conv2D(2, 1, kernel_initializer=I.VarianceScaling(2.0, "fan_out", "uniform")),
                 L.Flatten(), L.Dense(2, kernel_initializer=I.Orthogonal(gain=1.5)))


def frozen():
    model = small(L.Conv2D(2, 3, use_bias=False), L.BatchNormalization(scale=False), L.Flatten(), L.Dense(2))
    model.layers[0].trainable = False
    model.layers[1].trainable = False
    return model


def resnet50():
    return keras.applications.ResNet50(weights=None)


def nested_model():
    inside = mlp()
    x = keras.Input((20,))
    return keras.Model(x, L.Dense(2)(inside(x)))


def constraints():
    """Constraints, and orthogonal regularizers."""
    C, R = keras.constraints, keras.regularizers
    return keras.Sequential([
        keras.Input((6, 6, 2)),
        L.Conv2D(4, 3, kernel_constraint=C.MaxNorm(3, axis=[0, 1, 2]), bias_constraint="max_norm"),
        L.BatchNormalization(gamma_constraint="non_neg", beta_constraint=C.UnitNorm()),
        L.Flatten(),
        L.Dense(5, kernel_constraint=C.MinMaxNorm(0.5, 1.5, 0.25, axis=1),
                kernel_regularizer=R.OrthogonalRegularizer(0.02, "columns")),
        L.Dense(2, kernel_constraint=C.MinMaxNorm(0.0), kernel_regularizer=R.OrthogonalRegularizer()),
    ])


READABLE = [constraints, compiled, input_shape, keyword_input, initializers, frozen, resnet50, nested_model]


def in_policy(policy, *inner):
    keras.config.set_dtype_policy(policy)
    model = small(*[layer() for layer in inner])
    keras.config.set_dtype_policy("float32")
    return model


def dictionaries():
    """Inputs and outputs as dictionaries."""
    x = keras.Input((3,), name="x")
    return keras.Model({"x": x}, {"y": L.Dense(3, name="y")(x)})


def operation():
    """What x -> keras.ops.tanh(x) between layers becomes."""
    x = keras.Input((3,))
    return keras.Model(x, L.Dense(2)(keras.ops.tanh(L.Dense(3)(x))))


REFUSED = {
    "lstm": (lambda: small(L.LSTM(4, recurrent_dropout=0.25), L.Dense(2), shape=(5, 3)), ["LSTM", "recurrent_dropout"]),
    "conv2d_transpose": (lambda: small(L.Conv2DTranspose(4, 3, data_format="channels_first"), L.Flatten(), L.Dense(2)),
                         ["conv2d_transpose", "channels_first"]),
    "mixed_float16": (lambda: in_policy("mixed_float16", lambda: L.Flatten(), lambda: L.Dense(2)), ["mixed_float16"]),
    "channels_first": (lambda: small(L.Conv2D(4, 3, data_format="channels_first"), L.Flatten(), L.Dense(2)),
                       ["channels_first"]),
    "mask_zero": (lambda: small(L.Embedding(9, 4, mask_zero=True), L.BatchNormalization(), L.Flatten(), L.Dense(2),
                                shape=(5,)), ["BatchNormalization", "mask"]),
    "dictionaries": (dictionaries, ["input_layers"]),
    "upsampling": (lambda: small(L.UpSampling2D(2, interpolation="bicubic"), L.Flatten(), L.Dense(2)),
                   ["UpSampling2D", "bicubic"]),
    "fixed_batch": (fixed_batch, ["batch_shape"]),
    "not_built": (lambda: keras.Sequential([L.Dense(4), L.Dense(2)]), ["InputLayer"]),
    "operation": (operation, ["Tanh"]),
}


def change(text, path, value):
    """The same model with one value set: no file of Keras's has it."""
    model = json.loads(text)
    at = model
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return json.dumps(model)


REWRITTEN = {  # from mlp, of which layer 1 is the first Dense
    "unknown_layer": (["config", "layers", 1, "class_name"], "Dence", ["Dence"]),
    "unknown_key": (["config", "layers", 1, "config", "units_per_head"], 3, ["units_per_head"]),
    "registered": (["config", "layers", 1, "registered_name"], "my_package>Dense", ["my_package>Dense"]),
    "units_text": (["config", "layers", 1, "config", "units"], "32", ["units"]),
    "units_zero": (["config", "layers", 1, "config", "units"], 0, ["units"]),
    "same_name": (["config", "layers", 2, "config", "name"], "dense", ["dense"]),
}


# ---- keys -----------------------------------------------------------------------------------------------------------

KEYS = {}


def describe(value):
    if isinstance(value, dict):
        return value.get("class_name", "an object")
    if isinstance(value, list) and any(isinstance(v, (dict, list)) for v in value):
        return "a list of lists or objects"
    return value


def collect(value):
    """Remembers the keys of all objects that name a class."""
    if isinstance(value, list):
        for element in value:
            collect(element)
    if not isinstance(value, dict):
        return
    if "class_name" in value:
        seen = KEYS.setdefault(value["class_name"], {"keys": [], "config": {}})
        seen["keys"] += [key for key in value if key not in seen["keys"]]
        for key, item in (value["config"] if isinstance(value.get("config"), dict) else {}).items():
            values = seen["config"].setdefault(key, [])
            text = describe(item)
            if text not in [v for v in values if type(v) is type(text)] and len(values) < 8 and (
                    key != "name" or value["class_name"] == "DTypePolicy"):
                values.append(text)
    for item in value.values():
        collect(item)


# ---- running --------------------------------------------------------------------------------------------------------


def named_weights(model):
    """layer/variable, in the order of the layers. Keras's own paths have the name of a Sequential model in front."""
    result = {}
    for layer in model.layers:
        for variable in layer.weights:
            name = f"{layer.name}/{variable.name}"
            assert name not in result and variable.path.endswith(name), variable.path
            result[name] = variable.numpy()
    assert len(result) == len(model.weights)
    return result


def build(spec):
    """A fresh model in Keras's current float type, named as in a fresh process, its initial weights from its name."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(zlib.crc32(f"{spec.name}{spec.draw}".encode()) % 2**31)
    return spec.build()


def feed(spec, data, part):
    def one(name):
        x = data[f"{name}_{part}"]
        if x.dtype == np.uint8 or x.dtype.kind == "f":
            x = x.astype(keras.config.floatx())
        return x / np.array(spec.divide, dtype=x.dtype) if spec.divide else x

    xs = [one(name) for name in spec.inputs]
    return xs[0] if len(xs) == 1 else xs


def batches(spec, count, steps):
    """The first sample and the end of each step's batch."""
    starts = range(0, count, spec.batch)
    for k in range(steps):
        first = starts[k % len(starts)]
        yield first, min(first + spec.batch, count)


def train(spec, data, optimizer, start, steps=STEPS):
    """Losses, and the weights afterwards."""
    model = build(spec)
    model.set_weights(list(start.values()))
    model.compile(optimizer=OPTIMIZERS[optimizer][0](), loss=spec.loss(), jit_compile=False)
    x, y = feed(spec, data, "train"), data["y_train"]
    weights = data.get("w_train")
    losses = []
    for first, end in batches(spec, len(y), steps):
        part = [v[first:end] for v in x] if isinstance(x, list) else x[first:end]
        model.reset_metrics()  # or the result would be the mean of all steps so far
        loss = model.train_on_batch(part, y[first:end], sample_weight=None if weights is None else weights[first:end],
                                    class_weight=spec.class_weights)
        losses.append(float(loss))
    return losses, named_weights(model), model


def initial(spec):
    """The model and its weights, in the order of model.weights."""
    model = build(spec)
    weights = named_weights(model)
    assert [v.shape for v in weights.values()] == [v.shape for v in model.weights], "set_weights wants their order"
    return model, weights


def in_float64(action):
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    try:
        return action()
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")


def drift(spec, data, optimizer, start, losses, weights):
    """How far float32 went from float64: of losses relatively, of weights as the tolerance counts."""
    exact, far, _ = in_float64(lambda: train(spec, data, optimizer, start))
    by_loss = max(abs(a - b) / abs(b) for a, b in zip(losses, exact))
    by_weight = max(float(np.max(np.abs(weights[n] - far[n]) / np.maximum(1, np.abs(far[n])))) for n in far)
    allowed = TOLERANCES[OPTIMIZERS[optimizer][1]]
    result = {"loss": float(f"{by_loss:.1e}"), "weights": float(f"{by_weight:.1e}")}
    assert by_loss <= allowed["loss"] / 4 and by_weight <= allowed["weights"] / 4, (spec.name, optimizer, result)
    return result


def predict(spec, model, data, label):
    outputs = model.predict(feed(spec, data, "test"), batch_size=TESTS, verbose=0)
    outputs = outputs if isinstance(outputs, list) else [outputs]
    names = [tensor._keras_history.operation.name for tensor in model.outputs]
    return {f"{label}/{name}": output for name, output in zip(names, outputs)}


def write_model(spec, directory, manifest):
    folder = os.path.join(directory, spec.name)
    os.makedirs(folder)
    data = spec.data(random_of(spec.name))
    model, start = initial(spec)
    text = model.to_json()
    collect(json.loads(text))
    write_text(os.path.join(folder, "model.json"), text)
    write_safetensors(os.path.join(folder, "initial.safetensors"), start)
    predictions = predict(spec, model, data, "initial")
    (np.savez_compressed if spec.compress else np.savez)(os.path.join(folder, "data.npz"), **data)

    record = {
        "files": {"model": f"{spec.name}/model.json", "weights": f"{spec.name}/initial.safetensors",
                  "data": f"{spec.name}/data.npz", "predictions": f"{spec.name}/predictions.safetensors"},
        "inputs": [{"name": t.name, "train": f"{n}_train", "test": f"{n}_test", "divide": spec.divide or 1}
                   for t, n in zip(model.inputs, spec.inputs)],
        "outputs": [name.partition("/")[2] for name in predictions],
        "parameters": [int(sum(np.prod(w.shape) for w in group))
                       for group in (model.trainable_weights, model.non_trainable_weights)],
    }
    if "y_train" in data:
        record["labels"] = {"train": "y_train", "test": "y_test"}
    if spec.sample_weights:
        record["sample_weights"] = {"train": "w_train"}
    if spec.class_weights:
        record["class_weights"] = {str(k): v for k, v in spec.class_weights.items()}
    if spec.loss:
        record.update(loss=keras.saving.serialize_keras_object(spec.loss()), batch_size=spec.batch, steps=STEPS)
    manifest["models"][spec.name] = record

    for optimizer in spec.optimizers:
        losses, weights, trained = train(spec, data, optimizer, start)
        file = f"{spec.name}/{optimizer}.safetensors"
        write_safetensors(os.path.join(directory, file), weights)
        predictions.update(predict(spec, trained, data, optimizer))
        manifest["cases"].append({
            "model": spec.name, "optimizer": optimizer, "config": trained.optimizer.get_config(),
            "tolerance": "adaptive" if (spec.name, optimizer) in CLOSE_CHOICES else OPTIMIZERS[optimizer][1], "losses": [short(v) for v in losses], "weights": file,
            "drift": drift(spec, data, optimizer, start, losses, weights)})
        print(f"{spec.name:16} {optimizer:10} {losses[0]:.4f} -> {losses[-1]:.4f}", manifest["cases"][-1]["drift"], flush=True)
    write_safetensors(os.path.join(folder, "predictions.safetensors"), predictions)


def write_fit(spec, optimizer, epochs, manifest):
    """What fit reports; also that it takes the steps that train() takes."""
    data = spec.data(random_of(spec.name))
    model, start = initial(spec)
    model.compile(optimizer=OPTIMIZERS[optimizer][0](), loss=spec.loss(), metrics=["accuracy"], jit_compile=False)
    history = model.fit(feed(spec, data, "train"), data["y_train"], batch_size=spec.batch, epochs=epochs, shuffle=False,
                        validation_data=(feed(spec, data, "test"), data["y_test"]), verbose=0).history
    steps = epochs * -(-len(data["y_train"]) // spec.batch)
    losses, weights, _ = train(spec, data, optimizer, start, steps)
    for name, value in named_weights(model).items():
        assert np.array_equal(value, weights[name]), name
    manifest["fits"].append({"model": spec.name, "optimizer": optimizer, "epochs": epochs,
                             "history": {k: [short(v) for v in row] for k, row in history.items()}})


def write_texts(directory, manifest):
    os.makedirs(os.path.join(directory, "readable"))
    os.makedirs(os.path.join(directory, "refused"))
    for function in READABLE:
        keras.backend.clear_session()
        text = function().to_json()
        collect(json.loads(text))
        file = f"readable/{function.__name__}.json"
        write_text(os.path.join(directory, file), text)
        manifest["readable"].append({"file": file, "what": (function.__doc__ or function.__name__).rstrip(".")})
    for name, (function, words) in REFUSED.items():
        keras.backend.clear_session()
        text = function().to_json()
        collect(json.loads(text))
        write_text(os.path.join(directory, f"refused/{name}.json"), text)
        manifest["refused"].append({"file": f"refused/{name}.json", "names": words, "rewritten": False})
    keras.backend.clear_session()
    text = mlp().to_json()
    for name, (path, value, words) in REWRITTEN.items():
        write_text(os.path.join(directory, f"refused/{name}.json"), change(text, path, value))
        manifest["refused"].append({"file": f"refused/{name}.json", "names": words, "rewritten": True})


def main():
    directory = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "keras")
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    manifest = {"versions": {"keras": keras.__version__, "tensorflow": tf.__version__, "numpy": np.__version__},
                "tolerances": TOLERANCES, "models": {}, "cases": [], "fits": [], "readable": [], "refused": [], "keys": KEYS}
    for spec in MODELS:
        write_model(spec, directory, manifest)
    by_name = {spec.name: spec for spec in MODELS}
    write_fit(by_name["mlp"], "sgd", 3, manifest)
    write_fit(by_name["cnn"], "adam", 3, manifest)
    write_texts(directory, manifest)
    write_text(os.path.join(directory, "manifest.json"), pretty(manifest) + "\n")


if __name__ == "__main__":
    main()
