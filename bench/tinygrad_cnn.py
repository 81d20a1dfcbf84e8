"""mnist-cnn at batch 256 in tinygrad: tinygrad_cnn.py STEPS. DEV=CL chooses its OpenCL device.

Written as its users do: a step under TinyJit, data on the device, Adam. Prints the seconds of the first step and of the fastest
one behind those that compile.
"""
import sys
import time

import numpy as np
from tinygrad import Context, Device, Tensor, TinyJit, nn

BATCH = 256


class CNN:
    def __init__(self):
        self.c1, self.c2 = nn.Conv2d(1, 16, 3), nn.Conv2d(16, 32, 3)
        self.dense = nn.Linear(32 * 5 * 5, 10)

    def __call__(self, x):
        x = self.c1(x).relu().max_pool2d()
        return self.dense(self.c2(x).relu().max_pool2d().flatten(1))


def main(steps):
    random = np.random.default_rng(1)
    images = Tensor(random.random((BATCH, 1, 28, 28), np.float32)).realize()
    labels = Tensor(random.integers(0, 10, BATCH).astype(np.int32)).realize()
    model = CNN()
    optimizer = nn.optim.Adam(nn.state.get_parameters(model))

    @TinyJit
    def step(x, y):
        optimizer.zero_grad()
        loss = model(x).sparse_categorical_crossentropy(y).backward()
        optimizer.step()
        return loss.realize()

    seconds = []
    with Tensor.train() if hasattr(Tensor, "train") else Context(TRAINING=1):
        for _ in range(steps):
            begin = time.perf_counter()
            step(images, labels).item()
            seconds.append(time.perf_counter() - begin)
    print(f"{Device.DEFAULT} {seconds[0]:.3f} {min(seconds[3:]):.4f}")


main(int(sys.argv[1]))
