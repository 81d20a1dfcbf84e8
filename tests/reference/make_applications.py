#!/usr/bin/env python3
"""Makes applications/: the networks of keras.applications and nested models, and what Keras computes with them.

    pip install tensorflow-cpu==2.21.0                              (Keras 3.15.1 and NumPy 2.4.6 come with it)
    python3 tests/reference/make_applications.py [directory]        (default: applications/ beside this script)
    python3 tests/reference/make_applications.py --compare build/lockstep [NAME ...]

Running the script twice gives identical files, except for times inside the .keras files. manifest.json has

    networks     by name: file (what to_json() gave, gzip), parameters (all, and the trainable ones), size of the square
                 input, range of its values, gain, predictions for two samples
    nested       by name: file (.keras), inputs (their shapes), predictions of each output for two samples, losses of three
                 steps of SGD(0.1) with the mean squared error to zeros, names of all weights

Weights and inputs of the networks are not stored: fixed() makes them from their names, and test_applications.c has the
same formula. A network's gain keeps its logits near 1, so that its predictions depend on all of its layers.

--compare trains each network for three steps from equal weights in Keras, float32 and float64, and with the command. The
command's losses, weights and moving statistics must be as near to those of float64 as Keras's own float32 are, up to
FACTOR; errors of weights are parts of the distance that they move. The trained model is saved as .keras and .weights.h5 and
loaded into Keras again: all three must give the same predictions. Dropout is switched off, since the random numbers
differ. `make applications` runs it for all networks.
"""
import csv
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["KERAS_BACKEND"] = "tensorflow"

import numpy as np
import keras
import tensorflow as tf
from keras import layers as L

CLASSES = 10
SAMPLES = 2
STEPS, BATCH, MOVE = 3, 8, 1e-6  # of the comparison
COMPARED = 96                    # size of its inputs: batch norms of few values are chaotic
FACTOR, LEAST = 4, 2e-6          # errors that are allowed: times Keras's, and what one unit in the last place makes
MEANINGFUL = 0.1                 # Keras's own float32 must know how the weights move: else the comparison says nothing
RAW = ["EfficientNetB0", "EfficientNetV2B0", "ConvNeXtTiny", "MobileNetV3Small", "MobileNetV3Large"]  # take 0..255
SIZES = {"InceptionV3": 75, "Xception": 71, "InceptionResNetV2": 75}
NETWORKS = ["ResNet50", "ResNet50V2", "MobileNet", "MobileNetV2", "VGG16", "DenseNet121", "InceptionV3", "Xception",
            "EfficientNetB0", "ConvNeXtTiny", "NASNetMobile", "MobileNetV3Small", "MobileNetV3Large", "EfficientNetV2B0",
            "InceptionResNetV2"]


def network(name, size=None):
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    size = size or SIZES.get(name, 32)
    return getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=CLASSES)


# ---- Fixed values ----

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


def fixed_weight(name, kind, shape, gain):
    u = fixed(name, int(np.prod(shape))).reshape(shape)
    if "kernel" in kind:
        depthwise = len(shape) == 4 and shape[3] == 1
        fan = int(np.prod(shape[:2] if depthwise else shape[:-1]))
        return u * gain * np.sqrt(3.0 / fan)
    return {"gamma": 1 + u / 4, "moving_variance": 1 + u / 2, "variance": 1 + u / 2}.get(kind, u / 8)


def weights_of(model, prefix=""):
    """Yields name and variable, layer by layer: "conv1/0" is the first variable of conv1."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from weights_of(layer, prefix + layer.name + "/")
            continue
        numeric = [v for v in layer.weights if "seed" not in v.path]
        for i, v in enumerate(numeric):
            yield f"{prefix}{layer.name}/{i}", v


def fill(model, gain):
    for name, v in weights_of(model):
        if v.dtype.startswith("float"):
            v.assign(fixed_weight(name, v.name, tuple(v.shape), gain).astype(np.float32))
    for layer in model.layers:
        if isinstance(layer, L.Normalization) and layer.input_mean is None:
            layer.finalize_state()  # it computes with a copy of its weights


def inputs_of(name, size):
    u = fixed("inputs", SAMPLES * size * size * 3).reshape(SAMPLES, size, size, 3)
    return ((u + 1) * 127.5 if name in RAW else u).astype(np.float32)


def logits_std(model, x):
    p = np.log(np.maximum(model.predict(x, verbose=0).astype(np.float64), 1e-300))
    return float(np.std(p - p.mean(axis=1, keepdims=True)))


def find_gain(model, x):
    low, high = 0.25, 4.0
    for _ in range(12):
        gain = round((low * high) ** 0.5, 4)
        fill(model, gain)
        std = logits_std(model, x)
        low, high = (gain, high) if std < 0.5 else (low, gain)
        if 0.3 < std < 2:
            break
    return gain


def write_networks(directory, manifest):
    for name in NETWORKS:
        model = network(name)
        size = model.input_shape[1]
        x = inputs_of(name, size)
        gain = find_gain(model, x)
        fill(model, gain)
        predictions = model.predict(x, verbose=0)
        trained = sum(int(np.prod(v.shape)) for v in model.trainable_weights)
        file = name + ".json.gz"
        with open(os.path.join(directory, file), "wb") as out:
            out.write(gzip.compress(model.to_json().encode(), 9, mtime=0))
        manifest["networks"][name] = {
            "file": file, "parameters": [model.count_params(), trained], "size": size, "raw": name in RAW, "gain": gain,
            "predictions": [float(f"{p:.9g}") for p in predictions.ravel()]}
        print(f"{name}: gain {gain}, predictions {predictions.min():.3g} to {predictions.max():.3g}", flush=True)


# ---- Nested models ----

def shared():
    """A Sequential called twice, and a frozen Functional with two outputs called twice."""
    encoder = keras.Sequential([keras.Input((4,)), L.Dense(3, name="d1", activation="tanh"), L.Dense(3, name="d2")],
                               name="encoder")
    a = keras.Input((3,), name="a")
    pair = keras.Model(a, [L.Dense(2, name="d1")(a), L.Dense(2, name="q")(a)], name="pair")
    x, y = keras.Input((4,), name="x"), keras.Input((4,), name="y")
    p, q = pair(encoder(x))
    r, s = pair(encoder(y))
    pair.trainable = False
    return keras.Model([x, y], [L.Add(name="sum")([p, s]), L.Concatenate(name="both")([q, r])], name="shared")


def deep():
    """Sequential in Sequential in Functional; a batch norm inside; layers of equal names at several depths."""
    image = keras.Input((8, 8, 2), name="image")
    c = L.BatchNormalization(name="bn")(L.Conv2D(3, 3, name="conv")(image))
    features = keras.Model(image, [c, L.GlobalAveragePooling2D(name="mean")(c)], name="features")
    leaf = keras.Sequential([keras.Input((6, 6, 3)), L.Flatten(name="flat"), L.Dense(4, name="conv")], name="leaf")
    middle = keras.Sequential([keras.Input((6, 6, 3)), L.ReLU(name="relu"), leaf, L.Dense(2, name="out")], name="middle")
    x, y = keras.Input((8, 8, 2), name="x"), keras.Input((8, 8, 2), name="y")
    a, b = features(x)
    c, d = features(y)
    head = L.Dense(3, name="conv")(L.Concatenate(name="joined")([middle(a), middle(c), b, d]))
    return keras.Model([x, y], [head, b], name="deep")


def stack():
    """Functional in Sequential, which begins with it; two nested models of one class."""
    image = keras.Input((6, 6, 2), name="image")
    body = keras.Model(image, L.Conv2D(3, 3, name="conv", activation="relu")(image), name="body")
    tail = [keras.Sequential([keras.Input((n,)), L.Dense(5, name="d")], name=f"tail{n}") for n in (48, 5)]
    return keras.Sequential([body, L.Flatten(name="flat"), *tail], name="stack")


def write_deterministic(model, path):
    """model.save() with the date of the archive removed."""
    model.save(path)
    with zipfile.ZipFile(path) as archive:
        members = [(i.filename, archive.read(i)) for i in archive.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members:
            if name == "metadata.json":
                data = json.dumps({**json.loads(data), "date_saved": "1980-01-01@00:00:00"}).encode()
            archive.writestr(zipfile.ZipInfo(name), data)


def numbers(array):
    return [float(f"{v:.9g}") for v in np.asarray(array).ravel()]


def write_nested(directory, manifest):
    for make in (shared, deep, stack):
        keras.backend.clear_session()
        keras.utils.set_random_seed(2)
        model = make()
        fill(model, 1.0)
        file = f"{model.name}.keras"
        write_deterministic(model, os.path.join(directory, file))
        x = [fixed(f"input{i}", SAMPLES * int(np.prod(t.shape[1:]))).reshape(SAMPLES, *t.shape[1:]).astype(np.float32)
             for i, t in enumerate(model.inputs)]
        x = x if len(x) > 1 else x[0]
        outputs = model.predict(x, verbose=0)
        outputs = outputs if isinstance(outputs, list) else [outputs]
        names = [re.sub("[0-9]+$", v.name, name) for name, v in weights_of(model)]
        zeros = [np.zeros_like(o) for o in outputs]
        model.compile(keras.optimizers.SGD(0.1), loss=["mse"] * len(outputs))
        losses = [float(np.ravel(model.train_on_batch(x, zeros if len(zeros) > 1 else zeros[0]))[0]) for _ in range(3)]
        manifest["nested"][model.name] = {"file": file, "inputs": [list(t.shape[1:]) for t in model.inputs],
                                          "predictions": [numbers(o) for o in outputs], "losses": numbers(losses),
                                          "parameters": model.count_params(), "weights": names}
        print(f"{model.name}: losses {losses}", flush=True)


# ---- Comparison ----

def without_dropout(text):
    """The random numbers of dropout and stochastic depth differ."""
    return re.sub(r'"(rate|drop_path_rate)": [0-9.]+', r'"\1": 0.0', text)


def pictures(random, size):
    """Smooth ones, each with colours of its own: samples of noise are alike, and batch norms would amplify rounding."""
    at = np.linspace(0, 4, size)
    low = np.minimum(at.astype(int), 3)
    part = (at - low).reshape(-1, 1, 1)
    x = random.uniform(0, 1, (BATCH, 5, 5, 3))
    for axis in (1, 2):
        x = np.moveaxis(x, axis, 1)
        x = np.moveaxis(x[:, low] * (1 - part) + x[:, low + 1] * part, 1, axis)
    return 0.9 * x + 0.1 * random.uniform(0, 1, x.shape)


def rate_of(text, weights, x, y):
    """A rate with which a step moves the weights by about MOVE of their norm: gradients of untrained networks differ by powers
    of ten, and a long step is chaotic."""
    model = keras.models.model_from_json(text)
    for v, value in zip(model.weights, weights):
        v.assign(value)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, model(x, training=True)))
    norm = lambda arrays: float(np.sqrt(sum(np.sum(np.square(np.asarray(a, np.float64))) for a in arrays)))
    variables = [v.value for v in model.trainable_weights]
    gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
    return float(f"{MOVE * norm(variables) / norm(gradients):.1g}")


def train(text, weights, x, y, rate):
    """Losses of the steps, then trainable weights and moving statistics."""
    model = keras.models.model_from_json(text)
    for v, value in zip(model.weights, weights):
        v.assign(value)
    model.compile(keras.optimizers.SGD(rate), loss="sparse_categorical_crossentropy")
    losses = []
    for _ in range(STEPS):
        model.reset_metrics()
        losses.append(float(model.train_on_batch(x, y)))
    return losses, *parts_of(model)


def parts_of(model):
    return [[np.asarray(v, np.float64) for v in part] for part in (model.trainable_weights, model.non_trainable_weights)]


def distance(a, b):
    return float(np.sqrt(sum(np.sum((p - q) ** 2) for p, q in zip(a, b))))


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}:\n{done.stderr}")


def errors_of(result, exact, start):
    """Of a run against the one in float64: of the losses; of the weights, as a part of how far they moved; of the moving
    statistics in the same way."""
    loss = max(abs(a - b) / abs(b) for a, b in zip(result[0], exact[0]))
    return [loss] + [distance(a, b) / (distance(b, c) or 1) for a, b, c in zip(result[1:], exact[1:], start)]


def compare(name, lockstep, folder):
    model = network(name, COMPARED)
    size = model.input_shape[1]
    text = without_dropout(model.to_json())
    model = keras.models.model_from_json(text)
    weights, start = [v.numpy() for v in model.weights], parts_of(model)
    path = lambda file: os.path.join(folder, name + file)
    open(path(".json"), "w").write(text)
    model.save_weights(path(".weights.h5"))
    random = np.random.default_rng(3)
    x = (pictures(random, size) * (255 if name in RAW else 1)).astype(np.float32)
    y = random.integers(0, CLASSES, BATCH).astype(np.int32)
    rate = rate_of(text, weights, x, y)
    np.savez(path(".npz"), x_train=x, y_train=y, x_test=x, y_test=y)
    single = train(text, weights, x, y, rate)
    double = train(text.replace('"float32"', '"float64"'), weights, x, y, rate)
    run([lockstep, "train", path(".json"), "--weights", path(".weights.h5"), "--data", path(".npz"), "--optimizer", "sgd",
         "--lr", str(rate), "--batch-size", str(BATCH), "--shuffle", "off", "--epochs", str(STEPS), "--verbose", "0",
         "--csv", path(".csv"), "--save", path("_out.keras")])
    with open(path(".csv")) as file:
        losses = [float(row["loss"]) for row in csv.DictReader(file)]
    run([lockstep, "predict", path("_out.keras"), "--data", path(".npz"), "--set", "train", "--output", path("_out.npy")])
    run([lockstep, "export", path("_out.keras"), "--output", path("_out.weights.h5")])
    loaded = keras.models.load_model(path("_out.keras"))
    predictions = loaded.predict(x, verbose=0)
    model.load_weights(path("_out.weights.h5"))
    back = float(np.abs(np.load(path("_out.npy")) - predictions).max())
    again = float(np.abs(model.predict(x, verbose=0) - predictions).max())
    own, other = (errors_of(r, double, start) for r in ((losses, *parts_of(loaded)), single))
    says = other[1] < MEANINGFUL
    good = says and all(a <= FACTOR * b + LEAST for a, b in zip(own, other)) and back < 1e-5 and again == 0
    print(f"{name}: rate {rate:g}, losses {own[0]:.2g} (Keras's float32 {other[0]:.2g}), weights {own[1]:.2g} ({other[1]:.2g}), moving "
          f"statistics {own[2]:.2g} ({other[2]:.2g}), predictions in Keras {back:.2g}: {'good' if good else 'BAD'}", flush=True)
    return good


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--compare"]:
        with tempfile.TemporaryDirectory() as folder:
            results = [compare(name, arguments[1], folder) for name in arguments[2:] or NETWORKS]
        sys.exit(0 if all(results) else 1)
    directory = arguments[0] if arguments else os.path.join(os.path.dirname(os.path.abspath(__file__)), "applications")
    os.makedirs(directory, exist_ok=True)
    manifest = {"versions": {"keras": keras.__version__, "numpy": np.__version__}, "networks": {}, "nested": {}}
    write_nested(directory, manifest)
    write_networks(directory, manifest)
    text = json.dumps(manifest, indent=1)
    text = re.sub(r"\[\s+([^\[\]{}]+?)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m.group(1)) + "]", text)
    with open(os.path.join(directory, "manifest.json"), "w") as out:
        out.write(text + "\n")


main()
