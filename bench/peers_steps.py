"""Time of a training step of a peer on synthetic data, for bench/steps.sh.

    peers_steps.py ROW FRAMEWORK [STEPS]     FRAMEWORK: pytorch, compiled (torch.compile) or tensorflow
    peers_steps.py ROW json FILE             writes the row's model as Keras's JSON

The rows are those of bench_steps.c. PyTorch uses channels_last for images.
"""
import os
import sys

from timing import sorted_seconds

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
APPLICATIONS = {"mobilenetv2": "MobileNetV2", "efficientnetb0": "EfficientNetB0"}
TORCHVISION = {"mobilenetv2": "mobilenet_v2", "efficientnetb0": "efficientnet_b0"}


def keras_model(row):
    import keras

    if row == "lstm":
        return keras.Sequential([keras.Input((64, 128)), keras.layers.LSTM(128), keras.layers.Dense(10)])
    return getattr(keras.applications, APPLICATIONS[row])(weights=None, input_shape=(96, 96, 3))


def torch_model(row):
    import torch
    import torchvision
    from torch import nn

    class Lstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = nn.LSTM(128, 128, batch_first=True), nn.Linear(128, 10)

        def forward(self, x):
            return self.head(self.lstm(x)[0][:, -1])

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            n, t, c = x.shape
            q, k, v = (y.view(n, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm_1(x)).split(c, 2))
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.projection(y.transpose(1, 2).reshape(n, t, c))
            return x + self.narrow(nn.functional.gelu(self.wide(self.norm_2(x))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(256, 384), nn.Embedding(256, 384)
            self.blocks, self.norm = nn.Sequential(*[Block(384, 6) for _ in range(6)]), nn.LayerNorm(384)

        def forward(self, x):
            x = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
            return self.norm(self.blocks(x)) @ self.tokens.weight.T

    if row == "lstm":
        return Lstm()
    return Gpt() if row == "gpt-small" else getattr(torchvision.models, TORCHVISION[row])(weights=None)


def torch_step(row, compiled):
    import torch

    torch.manual_seed(0)
    model = torch_model(row)
    if row == "gpt-small":
        x, y = torch.randint(256, (16, 256)), torch.randint(256, (16, 256))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    elif row == "lstm":
        x, y = torch.rand(64, 64, 128), torch.randint(10, (64,))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    else:
        model = model.to(memory_format=torch.channels_last)
        x = torch.rand(32, 3, 96, 96).to(memory_format=torch.channels_last)
        y = torch.randint(1000, (32,))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    call = torch.compile(model) if compiled else model

    def step():
        loss = torch.nn.functional.cross_entropy(call(x).flatten(0, -2), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def tensorflow_step(row):
    import keras
    import numpy

    model = keras_model(row)
    logits = row == "lstm"
    model.compile(keras.optimizers.SGD(0.001, momentum=0.9), keras.losses.SparseCategoricalCrossentropy(from_logits=logits))
    shape, classes = ((64, 64, 128), 10) if row == "lstm" else ((32, 96, 96, 3), 1000)
    random = numpy.random.default_rng(0)
    x, y = random.random(shape, "float32"), random.integers(classes, size=shape[0])
    return lambda: model.train_on_batch(x, y)


def main():
    row, framework = sys.argv[1:3]
    if framework == "json":
        with open(sys.argv[3], "w") as file:
            file.write(keras_model(row).to_json())
        return
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 10
    step = tensorflow_step(row) if framework == "tensorflow" else torch_step(row, framework == "compiled")
    seconds = sorted_seconds(step, steps)
    print(f"{framework} {row}: best {1e3 * seconds[0]:.1f} ms, median {1e3 * seconds[steps // 2]:.1f} ms")


main()
