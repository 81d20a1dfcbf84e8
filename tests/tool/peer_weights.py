#!/usr/bin/env python3
"""What test_peer_weights.sh asks of the real packages: peer_weights.py make|check FOLDER

make   writes resnet18.safetensors, a state dict of torchvision's resnet18 for 10 classes with random weights; images.npz;
       want.npy, the probabilities that it gives for them
check  loads what the command wrote: torch.safetensors must be that state dict, bit for bit; numpy.npz must have its arrays;
       NAME.keras and NAME.weights.h5 must give Keras the predictions of tests/reference/weights/NAME.npz
"""
import os
import sys

os.environ["KERAS_BACKEND"] = "torch"
import numpy as np
import torch
import torchvision
from safetensors.torch import load_file, save_file

REFERENCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reference", "weights")


def network():
    return torchvision.models.resnet18(weights=None, num_classes=10)


def make(folder):
    torch.manual_seed(5)
    model = network()
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if name.endswith("running_var"):
                value.uniform_(0.5, 1.5)
            elif name.endswith("running_mean"):
                value.normal_(0, 0.1)
    save_file(model.state_dict(), f"{folder}/resnet18.safetensors", metadata={"format": "pt"})
    x = torch.rand(4, 3, 32, 32)
    model.eval()
    with torch.no_grad():
        np.save(f"{folder}/want.npy", torch.softmax(model(x), 1).numpy())
    np.savez(f"{folder}/images.npz", x_train=x.permute(0, 2, 3, 1).contiguous().numpy(), y_train=np.zeros(4, np.int32))


def check(folder):
    want, got = np.load(f"{folder}/want.npy"), np.load(f"{folder}/got.npy")
    assert np.max(np.abs(want - got)) <= 1e-4, np.max(np.abs(want - got))
    first, model = load_file(f"{folder}/resnet18.safetensors"), network()
    model.load_state_dict(load_file(f"{folder}/torch.safetensors"), strict=True)
    arrays = np.load(f"{folder}/numpy.npz")
    for name, value in model.state_dict().items():
        assert torch.equal(value, first[name]), name
        if not name.endswith("num_batches_tracked"):
            assert arrays[name].tobytes() == value.numpy().tobytes(), name
    import keras
    for name in "sequential", "functional", "embedding":
        data = np.load(f"{REFERENCE}/{name}.npz")
        xs = [data[key] for key in sorted(data.files) if key in ("x0", "x1")]
        with open(f"{REFERENCE}/{name}.json") as file:
            by_weights = keras.models.model_from_json(file.read())
        by_weights.load_weights(f"{folder}/{name}.weights.h5")
        for model in by_weights, keras.models.load_model(f"{folder}/{name}.keras"):
            y = model.predict(xs if len(xs) > 1 else xs[0], verbose=0)
            assert np.max(np.abs(y - data["y"]) / np.maximum(1, np.abs(data["y"]))) <= 1e-6, name # other processors, other sums


(make if sys.argv[1] == "make" else check)(sys.argv[2])
