"""The work of bench_train in other frameworks, as their users write it at best: peers.py ROW FRAMEWORK [options].

FRAMEWORK is tensorflow, tensorflow-mirrored (MirroredStrategy on two logical CPUs) or pytorch; they never meet in one
process. tensorflow-workers (MultiWorkerMirroredStrategy), pytorch-ddp and pytorch-ddp-channels-last (DistributedDataParallel
with gloo) are two processes of one core each. Data is in memory, all cores work, everything is
float32. Where there are several good ways, each is tried first (which warms up, too) and the fastest is timed.
Prints one line of JSON with bench_train's keys, or one word when the framework is not installed.
"""
import argparse
import contextlib
import gzip
import json
import math
import os
import resource
import socket
import subprocess
import sys
import time

DATA = os.environ.get("LOCKSTEP_DATA") or "/usr/share/datasets/fashion-mnist"
ROWS = {  # samples, batch; an epoch of resnet50 is one step
    "cnn-4096": (60000, 4096),
    "cnn-256": (60000, 256),
    "wide": (12800, 128),
    "resnet50": (32, 32),
}


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process_start():
    with open("/proc/self/stat") as file:
        return int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")


def unpack(name, header, count, record):
    import numpy as np

    with gzip.open(os.path.join(DATA, name)) as file:
        file.read(header)
        return np.frombuffer(file.read(count * record), np.uint8)


def load(row, samples):
    """Images [n, h, w, c] as float32 in 0 .. 1, and labels."""
    import numpy as np

    if row == "resnet50":
        random = np.random.default_rng(1)
        return random.random((samples, 224, 224, 3), np.float32), random.integers(0, 256, samples)
    x = unpack("train-images-idx3-ubyte.gz", 16, samples, 784).reshape(-1, 28, 28, 1).astype(np.float32) / 255
    return x, unpack("train-labels-idx1-ubyte.gz", 8, samples, 1).astype(np.int64)


# A peer: prepare() returns the ways to train to try; trial() the samples of one; epochs() trains, and returns the seconds
# of each epoch and the mean loss of the last.

class TensorFlow:
    def __init__(self):
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import tensorflow

        self.tf, self.keras = tensorflow, tensorflow.keras
        self.version = tensorflow.__version__
        self.threads = len(os.sched_getaffinity(0))
        self.scope = contextlib.nullcontext

    def network(self, row):
        layers, optimizers = self.keras.layers, self.keras.optimizers
        if row == "resnet50":  # strides in the 1x1 convolutions: a little less work than the others'
            return self.keras.applications.ResNet50(weights=None), optimizers.SGD(0.1, momentum=0.9)
        model = self.keras.Sequential([layers.Input((28, 28, 1))])
        if row == "wide":
            for channels in (64, 64, 128):
                model.add(layers.Conv2D(channels, 3, padding="same", activation="relu", use_bias=False))
                model.add(layers.MaxPool2D(padding="same"))
                model.add(layers.Dropout(0.2))
            model.add(layers.Flatten())
            model.add(layers.Dense(2400, activation="relu", use_bias=False))
            model.add(layers.Dropout(0.5))
            model.add(layers.Dense(10, activation="softmax", use_bias=False))
            return model, optimizers.RMSprop(1e-3, rho=0.9, epsilon=1e-7)
        for channels in (16, 32):
            model.add(layers.Conv2D(channels, 3, activation="relu"))
            model.add(layers.MaxPool2D())
        model.add(layers.Flatten())
        model.add(layers.Dense(10, activation="softmax"))
        return model, optimizers.Adam(1e-3, epsilon=1e-7)

    def prepare(self, row, x, y, batch):
        self.x, self.y, self.batch = x, y, batch
        with self.scope():
            self.model, optimizer = self.network(row)
            self.model.compile(optimizer, "sparse_categorical_crossentropy")
        if row == "resnet50":
            return ["steps"]
        return ["arrays", "dataset"] if row.startswith("cnn") else ["arrays"]

    def trial(self, samples):
        return samples  # whole epochs, because the ways differ in how they read and shuffle

    def epochs(self, way, samples, count):
        seconds, begun = [], [0.0]

        class Clock(self.keras.callbacks.Callback):
            def begin(self, *_, **__):
                begun[0] = now()

            def end(self, *_, **__):
                seconds.append(now() - begun[0])

        clock = Clock()
        if way == "steps":  # one call for all steps, each timed
            clock.on_train_batch_begin, clock.on_train_batch_end = clock.begin, clock.end
            data = self.tf.data.Dataset.from_tensors((self.x[:samples], self.y[:samples])).repeat(count)
            history = self.model.fit(data, verbose=0, shuffle=False, callbacks=[clock])
            return seconds, history.history["loss"][-1]
        clock.on_epoch_begin, clock.on_epoch_end = clock.begin, clock.end
        x, y = self.x[:samples], self.y[:samples]
        if way == "arrays":
            history = self.model.fit(x, y, self.batch, count, verbose=0, callbacks=[clock])
        else:
            data = self.tf.data.Dataset.from_tensor_slices((x, y)).cache().shuffle(samples).batch(self.batch)
            data = data.prefetch(self.tf.data.AUTOTUNE)
            history = self.model.fit(data, epochs=count, verbose=0, shuffle=False, callbacks=[clock])
        return seconds, history.history["loss"][-1]


class TensorFlowMirrored(TensorFlow):
    def __init__(self):
        super().__init__()
        config = self.tf.config
        config.set_logical_device_configuration(config.list_physical_devices("CPU")[0],
                                                [config.LogicalDeviceConfiguration()] * 2)
        self.scope = self.tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope


class PyTorch:
    def __init__(self):
        import torch

        self.torch = torch
        self.version = torch.__version__
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        self.threads = torch.get_num_threads()

    def network(self, row):
        nn, optim = self.torch.nn, self.torch.optim
        if row == "resnet50":
            import torchvision

            model = torchvision.models.resnet50()
            return model, optim.SGD(model.parameters(), 0.1, momentum=0.9, fused=True)
        if row == "wide":
            parts, channels = [], 1
            for out in (64, 64, 128):
                parts += [nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.ReLU()]
                parts += [nn.MaxPool2d(2, ceil_mode=True), nn.Dropout(0.2)]
                channels = out
            parts += [nn.Flatten(), nn.Linear(2048, 2400, bias=False), nn.ReLU(), nn.Dropout(0.5)]
            model = nn.Sequential(*parts, nn.Linear(2400, 10, bias=False))
            return model, optim.RMSprop(model.parameters(), 1e-3, alpha=0.9, eps=1e-7)
        model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(),
                              nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 10))
        return model, optim.Adam(model.parameters(), 1e-3, eps=1e-7, fused=True)

    def prepare(self, row, x, y, batch):
        torch = self.torch
        self.batch, self.y = batch, torch.from_numpy(y)
        self.x = torch.from_numpy(x).permute(0, 3, 1, 2)  # channels last in memory, as it is
        self.model, self.optimizer = self.network(row)
        self.model.train()
        self.loss = torch.nn.CrossEntropyLoss()
        return ["channels_last", "contiguous"]

    def trial(self, samples):
        return min(samples, 2 * self.batch)

    def share(self, chosen):
        return chosen

    def epochs(self, way, samples, count):
        torch, seconds = self.torch, []
        form = torch.channels_last if way == "channels_last" else torch.contiguous_format
        self.model.to(memory_format=form)
        self.x = self.x.contiguous(memory_format=form)
        for _ in range(count):
            begun, total = now(), torch.zeros(())
            order = torch.randperm(samples)
            for chosen in order.split(self.batch):
                chosen = self.share(chosen)
                self.optimizer.zero_grad()
                loss = self.loss(self.model(self.x[chosen]), self.y[chosen])
                loss.backward()
                self.optimizer.step()
                total += loss.detach() * len(chosen)
            seconds.append(now() - begun)
        return seconds, total.item() / samples


class TensorFlowWorkers(TensorFlow):
    """MultiWorkerMirroredStrategy; each worker reads its half of the data, in halves of batches."""

    def __init__(self, rank, ports):
        os.environ["TF_USE_LEGACY_KERAS"] = "1"  # Keras 3 cannot fit under this strategy
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": [f"localhost:{port}" for port in ports]},
                                              "task": {"type": "worker", "index": rank}})
        super().__init__()
        import tf_keras

        self.keras, self.rank = tf_keras, rank
        self.strategy = self.tf.distribute.MultiWorkerMirroredStrategy()
        self.scope = self.strategy.scope

    def prepare(self, row, x, y, batch):
        super().prepare(row, x, y, batch)
        return ["steps" if row == "resnet50" else "dataset"]

    def epochs(self, way, samples, count):
        steps = math.ceil(samples / self.batch)

        def read(_):
            data = self.tf.data.Dataset.from_tensor_slices((self.x[:samples], self.y[:samples])).shard(2, self.rank)
            if way == "dataset":
                data = data.cache().shuffle(samples)
            return data.repeat().batch(self.batch // 2).prefetch(2)

        data = self.strategy.distribute_datasets_from_function(read)
        seconds = []
        for _ in range(count):  # of resnet50 an epoch is one step
            begun = now()
            history = self.model.fit(data, steps_per_epoch=steps, verbose=0)
            seconds.append(now() - begun)
        return seconds, history.history["loss"][-1]


class PyTorchDDP(PyTorch):
    ways = ["contiguous"]

    def __init__(self, rank, ports):
        super().__init__()
        self.rank = rank
        self.torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{ports[0]}", rank=rank, world_size=2)

    def prepare(self, row, x, y, batch):
        super().prepare(row, x, y, batch)
        form = self.torch.channels_last if self.ways[0] == "channels_last" else self.torch.contiguous_format
        self.model.to(memory_format=form)
        self.model = self.torch.nn.parallel.DistributedDataParallel(self.model)
        return self.ways

    def epochs(self, way, samples, count):
        self.torch.manual_seed(samples + count)  # the same order of samples on both
        return super().epochs(way, samples, count)

    def share(self, chosen):
        return chosen[self.rank::2]


class PyTorchDDPChannelsLast(PyTorchDDP):
    ways = ["channels_last"]


PEERS = {"tensorflow": TensorFlow, "tensorflow-mirrored": TensorFlowMirrored, "pytorch": PyTorch}
WORKERS = {"tensorflow-workers": TensorFlowWorkers, "pytorch-ddp": PyTorchDDP,
           "pytorch-ddp-channels-last": PyTorchDDPChannelsLast}


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def run_workers():
    """Runs this program twice, on one core each; the first one prints."""
    ports = ",".join(str(port) for port in free_ports(2))
    cores = sorted(os.sched_getaffinity(0))
    workers = []
    for rank in range(2):
        core = cores[rank % len(cores)]
        workers.append(subprocess.Popen([sys.executable] + sys.argv + ["--worker", f"{rank}:{ports}"],
                                        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
                                        stdout=None if rank == 0 else subprocess.DEVNULL))
    statuses = [worker.wait() for worker in workers]
    sys.exit(max(map(abs, statuses)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("row", choices=ROWS)
    parser.add_argument("framework", choices=[*PEERS, *WORKERS])
    parser.add_argument("--epochs", "--steps", type=int, default=2, help="how many are timed")
    parser.add_argument("--samples", type=int, help="in an epoch")
    parser.add_argument("--worker", help="of those that are two: which one, and where they meet")
    args = parser.parse_args()
    if args.framework in WORKERS and not args.worker:
        run_workers()
    samples, batch = args.samples or ROWS[args.row][0], ROWS[args.row][1]

    started, begun = process_start(), now()
    try:
        if args.worker:
            rank, _, ports = args.worker.partition(":")
            peer = WORKERS[args.framework](int(rank), ports.split(","))
        else:
            peer = PEERS[args.framework]()
    except ImportError:
        print("missing")
        return
    importing, begun = now() - begun, now()
    x, y = load(args.row, samples)
    unpacking = now() - begun
    ways = peer.prepare(args.row, x, y, batch)
    peer.epochs(ways[0], min(samples, batch), 1)
    first_step = now() - started
    best = ways[0]
    if len(ways) > 1:
        best = min(ways, key=lambda way: min(peer.epochs(way, peer.trial(samples), 2)[0]))
    seconds, loss = peer.epochs(best, samples, args.epochs)
    print(json.dumps({
        "row": args.row, "framework": args.framework, "version": peer.version, "threads": peer.threads, "way": best,
        "samples": samples, "seconds": round(min(seconds), 4), "img_per_s": round(samples / min(seconds), 2),
        "epochs": [round(s, 4) for s in seconds], "first_step": round(first_step, 3), "unpacking": round(unpacking, 3),
        "importing": round(importing, 3), "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "loss": round(loss, 6) if math.isfinite(loss) else None}))


if __name__ == "__main__":
    main()
