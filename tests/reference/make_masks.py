#!/usr/bin/env python3
"""Makes masks.json: losses of masked sequences, trained by Keras with SGD.

    pip install tensorflow-cpu==2.21.0                      (Keras 3.15.1 and NumPy 2.4.6 come with it)
    python3 tests/reference/make_masks.py [file]            (default: masks.json beside this script)

A list of cases, each with
    model        what model.to_json() gave
    weights      by variable.path: the initial numbers
    x, y         the batch, and the shape of each
    loss         sparse_categorical_crossentropy or mean_squared_error
    losses       of each step on the batch, before its update, in float64
"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np

L = keras.layers
STEPS, BATCH, LENGTH = 6, 5, 4


def words(rng, units):
    x = np.where(rng.random((BATCH, LENGTH)) < 0.4, 0, rng.integers(1, 8, (BATCH, LENGTH)))
    inputs = keras.Input((LENGTH,), dtype="int32")
    y = L.Embedding(8, 3, mask_zero=True)(inputs)
    y = L.Bidirectional(L.LSTM(2, return_sequences=True))(y)
    y = L.GRU(3, return_sequences=True)(y)
    return keras.Model(inputs, L.Dense(units, activation="softmax" if units > 1 else None)(y)), x.astype(np.int32)


def numbers(rng, units):
    x = np.round(rng.normal(size=(BATCH, LENGTH, 2)), 2).astype(np.float32)
    x[rng.random((BATCH, LENGTH)) < 0.4] = -1.0
    layers = [keras.Input((LENGTH, 2)), L.Masking(-1.0), L.SimpleRNN(3, return_sequences=True), L.Dropout(0.0),
              L.TimeDistributed(L.Dense(units, activation="softmax" if units > 1 else None))]
    return keras.Sequential(layers), x


def make(seed, build, sparse):
    rng = np.random.default_rng(seed)
    units = 3 if sparse else 1
    model, x = build(rng, units)
    y = rng.integers(0, 3, (BATCH, LENGTH)).astype(np.int32) if sparse else \
        np.round(rng.normal(size=(BATCH, LENGTH, 1)), 2).astype(np.float32)
    weights = [(rng.integers(-16, 17, v.shape) / 16).astype(np.float32) for v in model.weights]
    names = [v.path.removeprefix(model.name + "/") for v in model.weights]
    text = model.to_json()
    exact = keras.models.model_from_json(text.replace('"float32"', '"float64"'))
    for variable, value in zip(exact.weights, weights):
        variable.assign(value)
    kind = keras.losses.SparseCategoricalCrossentropy if sparse else keras.losses.MeanSquaredError
    exact.compile(keras.optimizers.SGD(0.1), kind(dtype="float64"))
    losses = [float(exact.train_on_batch(x, y)) for _ in range(STEPS)]
    return {"model": json.loads(text), "weights": {n: w.ravel().tolist() for n, w in zip(names, weights)},
            "x": x.ravel().tolist(), "x_shape": list(x.shape), "y": y.ravel().tolist(), "y_shape": list(y.shape),
            "loss": "sparse_categorical_crossentropy" if sparse else "mean_squared_error", "losses": losses}


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "masks.json")
    cases = []
    for build in (words, numbers):
        for sparse in (True, False):
            for _ in range(2):
                keras.backend.clear_session()
                cases.append(make(len(cases), build, sparse))
    with open(path, "w") as file:
        json.dump(cases, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
