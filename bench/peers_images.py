#!/usr/bin/env python3
"""Images a second of torchvision's ImageFolder and a DataLoader, beside bench_images (bench/images.sh).

    peers_images.py make FOLDER          writes FOLDER/jpeg (500x375) and FOLDER/png (32x32), two classes each
    peers_images.py pil|io FOLDER HEIGHT WIDTH WORKERS

pil: the default loader and Resize of PIL, which smooths; io: torchvision.io.decode_image and Resize without smoothing, the
same work as bench_images.
"""
import os
import sys
import time

import numpy as np
import torch

BATCH = 32
COUNTS = {"jpeg": 400, "png": 4000}


def make(folder):
    from PIL import Image
    random = np.random.default_rng(1)
    for kind, (width, height) in (("jpeg", (500, 375)), ("png", (32, 32))):
        for i in range(COUNTS[kind]):
            path = f"{folder}/{kind}/{'ab'[i % 2]}"
            os.makedirs(path, exist_ok=True)
            small = random.integers(0, 256, (height // 16 + 1, width // 16 + 1, 3), dtype=np.uint8)
            image = Image.fromarray(small).resize((width, height), Image.BICUBIC)  # smooth, as photos are
            noisy = np.asarray(image).astype(int) + random.integers(-6, 7, (height, width, 3))
            image = Image.fromarray(noisy.clip(0, 255).astype(np.uint8))
            image.save(f"{path}/{i:05}.{'jpg' if kind == 'jpeg' else 'png'}", **({"quality": 90} if kind == "jpeg" else {}))


def load(path):
    return torchvision.io.decode_image(path, torchvision.io.ImageReadMode.RGB)


def run(how, folder, height, width, workers):
    from torchvision.transforms import v2
    resize = v2.Resize((height, width), antialias=how == "pil")
    if how == "pil":
        data = torchvision.datasets.ImageFolder(folder, v2.Compose([resize, v2.PILToTensor()]))
    else:
        data = torchvision.datasets.ImageFolder(folder, resize, loader=load)
    loader = torch.utils.data.DataLoader(data, BATCH, shuffle=True, num_workers=workers, persistent_workers=True)
    for epoch in range(2):  # the first brings the files into the cache and starts the workers
        begin = time.perf_counter()
        images = sum(len(x) for x, _ in loader)
        seconds = time.perf_counter() - begin
    print(f"torchvision ({how}) {workers} workers: {images / seconds:.0f} images/s")


if sys.argv[1] == "make":
    make(sys.argv[2])
else:
    import torchvision
    torch.set_num_threads(1)
    run(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
