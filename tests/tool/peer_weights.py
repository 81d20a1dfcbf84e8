#!/usr/bin/env python3
"""What test_peer_weights.sh asks of the real packages: peer_weights.py make|check FOLDER

make   writes for each of NETWORKS: NAME.safetensors, a state dict of torchvision's network for 10 classes with random
       weights; NAME.want.npy, the probabilities that it gives for the images of images.npz. For each of APPLICATIONS, of
       keras.applications: NAME.app.json, NAME.app.weights.h5 and NAME.app.want.npy
check  loads what the command wrote: NAME.torch.safetensors must be that state dict, bit for bit; numpy.npz must have
       resnet18's arrays; NAME.got.npy and NAME.app.got.npy must be the wanted probabilities; NAME.keras and
       NAME.weights.h5 must give Keras the predictions of tests/reference/weights/NAME.npz
"""
import os
import sys

os.environ["KERAS_BACKEND"] = "torch"
import numpy as np
import torch
import torchvision
from safetensors.torch import load_file, save_file

REFERENCE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "reference", "weights")


NETWORKS = ["resnet18", "vgg11", "mobilenet_v2", "densenet121", "efficientnet_b0", "convnext_tiny"]
APPLICATIONS = ["ResNet50", "MobileNetV2", "EfficientNetB0", "DenseNet121", "ConvNeXtTiny"]
SIZE = 64


def network(name):
    return getattr(torchvision.models, name)(weights=None, num_classes=10)


def make_network(folder, name, x):
    model = network(name)
    with torch.no_grad():
        for key, value in model.state_dict().items():
            if key.endswith(("running_var", "layer_scale")):
                value.uniform_(0.5, 1.5)
            elif key.endswith(("running_mean", "bias")):
                value.normal_(0, 0.1)
    save_file(model.state_dict(), f"{folder}/{name}.safetensors", metadata={"format": "pt"})
    model.eval()
    with torch.no_grad():
        np.save(f"{folder}/{name}.want.npy", torch.softmax(model(x), 1).numpy())


def make_application(folder, name, x):
    import keras
    keras.utils.set_random_seed(5)
    model = getattr(keras.applications, name)(weights=None, input_shape=(SIZE, SIZE, 3), classes=10)
    random = np.random.default_rng(5)
    for v in model.weights:
        if v.name in ("moving_mean", "bias", "beta"):
            v.assign(random.normal(0, 0.1, v.shape))
        elif v.name in ("moving_variance", "gamma"):
            v.assign(random.uniform(0.5, 1.5, v.shape))
    with open(f"{folder}/{name}.app.json", "w") as file:
        file.write(model.to_json())
    model.save_weights(f"{folder}/{name}.app.weights.h5")
    np.save(f"{folder}/{name}.app.want.npy", model.predict(x, verbose=0))


def make(folder):
    torch.manual_seed(5)
    x = torch.rand(4, 3, SIZE, SIZE)
    images = x.permute(0, 2, 3, 1).contiguous().numpy()
    np.savez(f"{folder}/images.npz", x_train=images, y_train=np.zeros(4, np.int32))
    for name in NETWORKS:
        make_network(folder, name, x)
    for name in APPLICATIONS:
        make_application(folder, name, images)


def check_near(folder, name):
    want, got = np.load(f"{folder}/{name}.want.npy"), np.load(f"{folder}/{name}.got.npy")
    assert np.max(np.abs(want - got)) <= 1e-4, (name, np.max(np.abs(want - got)))


def check(folder):
    for name in APPLICATIONS:
        check_near(folder, f"{name}.app")
    for name in NETWORKS:
        check_near(folder, name)
        first, model = load_file(f"{folder}/{name}.safetensors"), network(name)
        model.load_state_dict(load_file(f"{folder}/{name}.torch.safetensors"), strict=True)
        for key, value in model.state_dict().items():
            assert torch.equal(value, first[key]) or key.endswith("num_batches_tracked"), (name, key)
    first, arrays = load_file(f"{folder}/resnet18.safetensors"), np.load(f"{folder}/numpy.npz")
    for key, value in first.items():
        if not key.endswith("num_batches_tracked"):
            assert arrays[key].tobytes() == value.numpy().tobytes(), key
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
