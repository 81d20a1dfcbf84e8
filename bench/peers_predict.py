"""Latency of one sample with a peer, for bench/predict.sh.

    peers_predict.py ROW FRAMEWORK [RUNS]    FRAMEWORK: pytorch, onnxruntime or tflite
    peers_predict.py ROW json FILE           writes the row's model as Keras's JSON

The rows are those of bench_predict.c. THREADS=1 (default) or 2 threads of the framework.
"""
import os
import sys
import tempfile

from timing import sorted_seconds

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
THREADS = int(os.environ.get("THREADS", "1"))
SHAPES = {"mnist-cnn": (1, 1, 28, 28), "resnet50": (1, 3, 224, 224), "mobilenetv2": (1, 3, 224, 224)}


def torch_model(row):
    import torch
    import torchvision
    from torch import nn

    torch.set_num_threads(THREADS)
    if row == "mnist-cnn":
        layers = [nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(800, 10), nn.Softmax(1)).eval()
    name = {"resnet50": "resnet50", "mobilenetv2": "mobilenet_v2"}[row]
    return getattr(torchvision.models, name)(weights=None).eval()


def keras_model(row):
    import keras
    from keras import layers

    if row == "mnist-cnn":
        stack = [layers.Conv2D(16, 3, activation="relu"), layers.MaxPooling2D(2), layers.Conv2D(32, 3, activation="relu")]
        stack += [layers.MaxPooling2D(2), layers.Flatten(), layers.Dense(10, activation="softmax")]
        return keras.Sequential([keras.Input((28, 28, 1))] + stack)
    name = {"resnet50": "ResNet50", "mobilenetv2": "MobileNetV2"}[row]
    return getattr(keras.applications, name)(weights=None)


def pytorch(row):
    import torch

    model, x = torch_model(row), torch.rand(SHAPES[row])
    if row != "mnist-cnn":
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)

    def run():
        with torch.inference_mode():
            model(x)

    return run


def onnxruntime(row):
    import numpy
    import onnxruntime as ort
    import torch

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        torch.onnx.export(torch_model(row), (torch.rand(SHAPES[row]),), path, input_names=["x"], dynamo=False)
        options = ort.SessionOptions()
        options.intra_op_num_threads = THREADS
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    x = numpy.random.default_rng(0).random(SHAPES[row], dtype="float32")
    return lambda: session.run(None, {"x": x})


def tflite(row):
    import numpy
    import tensorflow

    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        Interpreter = tensorflow.lite.Interpreter
    content = tensorflow.lite.TFLiteConverter.from_keras_model(keras_model(row)).convert()
    interpreter = Interpreter(model_content=content, num_threads=THREADS)
    interpreter.allocate_tensors()
    given = interpreter.get_input_details()[0]
    x = numpy.random.default_rng(0).random(given["shape"], dtype="float32")

    def run():
        interpreter.set_tensor(given["index"], x)
        interpreter.invoke()

    return run


def main():
    row, framework = sys.argv[1:3]
    if framework == "json":
        with open(sys.argv[3], "w") as file:
            file.write(keras_model(row).to_json())
        return
    runs = int(sys.argv[3]) if len(sys.argv) > 3 else 100
    run = {"pytorch": pytorch, "onnxruntime": onnxruntime, "tflite": tflite}[framework](row)
    seconds = sorted_seconds(run, runs)
    best, median, late = (1e6 * seconds[i] for i in (0, runs // 2, runs * 99 // 100))
    print(f"{framework} {row}: best {best:.0f} us, median {median:.0f} us, 99 % {late:.0f} us ({THREADS} threads)")


main()
