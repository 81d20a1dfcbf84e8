#!/usr/bin/env python3
"""Makes weights/: small files of weights as safetensors, PyTorch, NumPy and Keras write them, and what those
compute with them.

    pip install keras torch safetensors h5py
    python3 tests/reference/make_weights.py [directory]       (default: weights/ beside this script)

torch_cnn.safetensors      model.state_dict() of the network below, saved by safetensors.torch.save_file with metadata;
                           torch_cnn_f16 and torch_cnn_bf16 the same in half precision
torch_cnn.npz              x [N,H,W,C] and what the network gives for it: y; y_f16 and y_bf16 from the rounded weights
numpy.npz, numpy_packed.npz  arrays by numpy.savez and numpy.savez_compressed
NAME.keras, NAME.weights.h5  small Keras models with random weights, by model.save and model.save_weights
NAME.json, NAME.npz        the model's to_json(), its weights by their names, x and what model.predict gives: y
types.h5                   an array of each type, and a group of 270
hostile_*.h5               HDF5 files that are whole, but ask for what must not be done
"""
import os
import shutil
import sys

os.environ["KERAS_BACKEND"] = "torch"
import h5py
import keras
import numpy as np
import torch
from keras import layers as L
from safetensors.torch import save_file


class Network(torch.nn.Module):
    """Its layers' names are those of the model in tests/nn/test_weights.c."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.bn = torch.nn.BatchNorm2d(4)
        self.dw = torch.nn.Conv2d(4, 8, 3, groups=4)
        self.flat_bn = torch.nn.BatchNorm1d(8 * 3 * 2)
        self.flat_ln = torch.nn.LayerNorm(8 * 3 * 2)
        self.fc = torch.nn.Linear(8 * 3 * 2, 6)
        self.out = torch.nn.Linear(6, 5, bias=False)

    def forward(self, x):
        x = torch.relu(self.bn(self.conv(x)))
        x = torch.flatten(self.dw(x), 1)
        x = torch.relu(self.flat_ln(self.flat_bn(x)))
        return self.out(torch.tanh(self.fc(x)))


def predict(network, state, x):
    network.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in state.items()})
    network.eval()
    with torch.no_grad():
        return network(torch.from_numpy(x).permute(0, 3, 1, 2)).numpy()


def torch_files(directory):
    torch.manual_seed(7)
    network = Network()
    with torch.no_grad():
        for name, value in network.state_dict().items():
            if value.is_floating_point():
                value.copy_(torch.rand_like(value) + 0.5 if name.endswith("running_var") else torch.randn_like(value) * 0.5)
    state = {k: v.clone() for k, v in network.state_dict().items()}
    x = np.random.default_rng(7).random((3, 5, 4, 3), dtype=np.float32)
    results = {"x": x}
    for suffix, dtype in ("", torch.float32), ("_f16", torch.float16), ("_bf16", torch.bfloat16):
        narrow = {k: v.to(dtype) if v.is_floating_point() else v for k, v in state.items()}
        save_file(narrow, os.path.join(directory, f"torch_cnn{suffix}.safetensors"), metadata={"format": "pt"})
        results["y" + suffix] = predict(network, narrow, x)
    np.savez(os.path.join(directory, "torch_cnn.npz"), **results)


def numpy_files(directory):
    arrays = {"dense/kernel": np.arange(6, dtype=np.float32).reshape(2, 3), "dense/bias": np.array([0.5, -0.5, np.inf], np.float32)}
    np.savez(os.path.join(directory, "numpy.npz"), **arrays)
    np.savez_compressed(os.path.join(directory, "numpy_packed.npz"), **arrays)


def sequential():
    return keras.Sequential([keras.Input((6, 6, 2)), L.Conv2D(3, 3, activation="relu", name="first"), L.BatchNormalization(),
                             L.DepthwiseConv2D(2, depth_multiplier=2), L.Dropout(0.5), L.Flatten(), L.Dense(4, activation="relu"),
                             L.LayerNormalization(), L.Dense(3, activation="softmax", name="last")])


def functional():
    """A shared layer, branches whose layers Keras orders otherwise than they were made, and two inputs."""
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    shared = L.Dense(4, activation="tanh", name="shared")
    late = L.Dense(4, name="made_first")(b)
    x = L.Dense(4, name="made_second")(shared(a))
    x = L.Dense(4, name="made_third")(L.Dense(4, name="made_fourth")(x))
    return keras.Model([a, b], L.Dense(2)(L.Add()([x, late, shared(b)])))


def embedding():
    return keras.Sequential([keras.Input((5,), dtype="int32"), L.Embedding(11, 3), L.Flatten(), L.Dense(2, use_bias=False)])


def keras_files(directory):
    for build in sequential, functional, embedding:
        name = build.__name__
        keras.backend.clear_session()
        keras.utils.set_random_seed(3)
        model = build()
        random = np.random.default_rng(len(name))
        model.set_weights([(random.random(w.shape, dtype=np.float32) + 0.25).astype(np.float32) for w in model.get_weights()])
        xs = [random.integers(0, 11, (3, 5), dtype=np.int32) if name == "embedding" else
              random.random((3,) + tuple(t.shape[1:]), dtype=np.float32) for t in model.inputs]
        if name == "sequential":
            model.compile("adam", "sparse_categorical_crossentropy")
            model.fit(xs[0], np.zeros(3, np.int32), verbose=0)
        y = model.predict(xs if len(xs) > 1 else xs[0], verbose=0)
        model.save(os.path.join(directory, f"{name}.keras"))
        model.save_weights(os.path.join(directory, f"{name}.weights.h5"))
        with open(os.path.join(directory, f"{name}.json"), "w") as file:
            file.write(model.to_json() + "\n")
        arrays = {f"x{i}": x for i, x in enumerate(xs)}
        for layer in model.layers:
            for variable in layer.weights:
                if layer.name != "dropout":
                    arrays[f"{layer.name}/{variable.name}"] = variable.numpy()
        np.savez(os.path.join(directory, f"{name}.npz"), y=y, **arrays)


def hostile_files(directory):
    def make(name):
        return h5py.File(os.path.join(directory, f"hostile_{name}.h5"), "w")

    with make("external_link") as file:
        file["layers/dense/vars/0"] = h5py.ExternalLink("sequential.weights.h5", "/layers/dense/vars/0")
    with make("soft_link") as file:
        file["layers/dense/vars/0"] = h5py.SoftLink("/elsewhere")
    with make("external_storage") as file:
        file.create_dataset("a", (4,), "f4", external=[("/etc/hostname", 0, 16)])
    with make("virtual") as file:
        layout = h5py.VirtualLayout((4,), "f4")
        layout[:] = h5py.VirtualSource("sequential.weights.h5", "layers/dense/vars/1", (4,))
        file.create_virtual_dataset("a", layout)
    with make("packed") as file:
        file.create_dataset("a", data=np.zeros(1000, np.float32), compression="gzip")
    with make("huge") as file:  # nothing is stored, and all of it would be zeros
        file.create_dataset("a", (1 << 36,), "f4", chunks=(1024,))
    with make("huge_shape") as file:
        file.create_dataset("a", (1 << 31, 1 << 31, 1 << 31), "f4", chunks=(16, 16, 16))
    with make("text") as file:
        file["a"] = "text"
    with make("many_axes") as file:
        file.create_dataset("a", data=np.zeros((1,) * 9, np.float32))
    with make("loop") as file:
        group = file.create_group("a")
        group["a"] = group
    with make("deep") as file:
        file["a/" * 40 + "b"] = np.zeros(2, np.float32)
    with make("same_bytes_twice") as file:
        file["a"] = np.zeros(1000, np.float32)
        for i in range(50):
            file[f"b{i}"] = file["a"]
    with h5py.File(os.path.join(directory, "hostile_latest.h5"), "w", libver="latest") as file:
        file["a"] = np.zeros(2, np.float32)
    with make("big_endian") as file:
        file["a"] = np.zeros(2, ">f4")
    with make("unsigned") as file:
        file["a"] = np.zeros(2, np.uint64)


def types_file(directory):
    with h5py.File(os.path.join(directory, "types.h5"), "w") as file:
        for name in "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16":
            file[name] = np.array([3 if name[0] == "u" else -3, 0, 100]).astype(name)
        file["none"] = np.zeros((0, 3), np.float32)
        file["one"] = np.float64(2.5)
        for i in range(270):
            file[f"many/{i}"] = np.int32([i])


def main():
    directory = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "weights")
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    torch_files(directory)
    numpy_files(directory)
    keras_files(directory)
    hostile_files(directory)
    types_file(directory)


if __name__ == "__main__":
    main()
