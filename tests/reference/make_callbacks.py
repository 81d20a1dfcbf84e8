#!/usr/bin/env python3
"""Writes callbacks.json: what Keras's callbacks do with given values, for tests/train/test_callbacks.c.

Needs TensorFlow (with Keras 3) and tensorboard: pip install tensorflow-cpu tensorboard. The callbacks are called as
model.fit calls them; the weights of the model are set to the epoch's number before, so that restored ones can be told.
"""
import json
import os
import random
import tempfile

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))


def make_model(rate=0.1):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(optimizer=keras.optimizers.SGD(rate), loss="mse", metrics=["accuracy"])
    model.build((None, 1))
    x = np.zeros((2, 1), "float32")
    model.fit(x, x, verbose=0)  # metrics are known from now on
    return model


def drive(callbacks, epochs, rate=0.1, validates=True):
    """Each epoch's logs in turn; returns (epochs run, the weight at the end, the rate of each epoch)."""
    model = make_model(rate)
    rates = []
    run = keras.callbacks.CallbackList(callbacks, add_history=False, add_progbar=False, model=model)
    model.stop_training = False
    run.on_train_begin()
    done = 0
    for epoch, logs in enumerate(epochs):
        run.on_epoch_begin(epoch)
        model.set_weights([np.full((1, 1), epoch, "float32")])
        rates.append(float(keras.ops.convert_to_numpy(model.optimizer.learning_rate)))
        run.on_epoch_end(epoch, dict(logs))
        done += 1
        if model.stop_training:
            break
    run.on_train_end()
    return done, int(model.get_weights()[0][0, 0]), rates


def walk(rng, count, rises):
    """A curve that improves, stands still and gets worse; multiples of 1/64, which every float has."""
    value, out = (8, [])
    for _ in range(count):
        value += rng.choice([-6, -3, -2, -1, -1, 0, 0, 1, 2, 3]) * (-1 if rises else 1)
        out.append(value / 64)
    return out


def logs_of(name, values):
    base = {"loss": 0.5, "accuracy": 0.25, "val_loss": 0.75, "val_accuracy": 0.125}
    return [dict(base, **{name: v}) for v in values]


def early_stopping(rng):
    cases = []
    for i in range(48):
        name = rng.choice(["val_loss", "loss", "val_accuracy", "accuracy"])
        options = {
            "monitor": name,
            "patience": rng.choice([0, 1, 2, 3]),
            "min_delta": rng.choice([0, 0, 2 / 64]),
            "mode": rng.choice(["auto", "auto", "min", "max"]),
            "baseline": rng.choice([None, None, 4 / 64, -1.5 / 64]),
            "restore_best_weights": rng.choice([True, False]),
            "start_from_epoch": rng.choice([0, 0, 3]),
        }
        values = walk(rng, 14, "accuracy" in name)
        done, weight, _ = drive([keras.callbacks.EarlyStopping(**options)], logs_of(name, values))
        cases.append({"options": options, "values": values, "epochs": done, "weights_of": weight})
    return cases


def plateau(rng):
    cases = []
    for i in range(32):
        name = rng.choice(["val_loss", "loss", "val_accuracy"])
        options = {
            "monitor": name,
            "factor": rng.choice([0.1, 0.5, 0.3]),
            "patience": rng.choice([1, 2, 3]),
            "min_delta": rng.choice([1e-4, 2 / 64]),
            "cooldown": rng.choice([0, 1, 2]),
            "min_lr": rng.choice([0, 0.01]),
        }
        values = walk(rng, 16, "accuracy" in name)
        _, _, rates = drive([keras.callbacks.ReduceLROnPlateau(**options)], logs_of(name, values))
        cases.append({"options": options, "values": values, "rates": rates})
    return cases


def model_checkpoint(rng):
    cases = []
    for i in range(16):
        name = rng.choice(["val_loss", "accuracy"])
        options = {
            "monitor": name,
            "save_best_only": rng.choice([True, True, False]),
            "mode": rng.choice(["auto", "max"]),
            "initial_value_threshold": rng.choice([None, 2 / 64]),
        }
        pattern = rng.choice(["w-{epoch:02d}-{val_loss:.3f}", "{epoch}_{accuracy}", "{epoch:4d}-{loss:8.2e}", "x{{{epoch:d}}}"])
        values = walk(rng, 8, "accuracy" in name)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, pattern + ".weights.h5")
            drive([keras.callbacks.ModelCheckpoint(path, save_weights_only=True, **options)], logs_of(name, values))
            files = sorted(f[: -len(".weights.h5")] for f in os.listdir(folder))
        cases.append({"options": options, "pattern": pattern, "values": values, "files": files})
    return cases


def csv_logger():
    """Epochs as logs have them; "rate": a callback before adds the learning rate."""
    full = [{"loss": 0.5, "accuracy": 1.0, "val_loss": 1e-07, "val_accuracy": 0.1},
            {"loss": float("nan"), "accuracy": 0.3333333432674408, "val_loss": float("inf"), "val_accuracy": 123456.789},
            {"loss": 2.5e-05, "accuracy": 0.0}]  # without validation
    bare = [{k: v for k, v in row.items() if not k.startswith("val_")} for row in full]
    cases = []
    for logs, rate, options, before in [
        (full, False, {}, None),
        (bare, False, {}, None),
        (full, True, {"separator": ";"}, None),
        (bare, True, {}, None),
        (full, False, {"append": True}, ""),
        (full, False, {"append": True}, "epoch,accuracy,loss,val_accuracy,val_loss\r\n0,1.0,2.0,3.0,4.0\r\n"),
        (full, False, {}, "old\r\n"),
    ]:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "log.csv")
            if before is not None:
                with open(path, "w", newline="") as file:
                    file.write(before)
            callbacks = [keras.callbacks.ReduceLROnPlateau(monitor="loss")] if rate else []
            drive(callbacks + [keras.callbacks.CSVLogger(path, **options)], logs)
            with open(path, newline="") as file:
                text = file.read()
        epochs = [{k: v if np.isfinite(v) else str(v) for k, v in row.items()} for row in logs]
        cases.append({"epochs": epochs, "rate": rate, "options": options, "before": before, "text": text})
    return cases


class Recorder(keras.callbacks.Callback):
    """Every moment with its number."""

    def __init__(self):
        super().__init__()
        self.seen = []


for moment in ("train_begin", "train_end", "test_begin", "test_end", "predict_begin", "predict_end"):
    setattr(Recorder, "on_" + moment, lambda self, logs=None, name=moment: self.seen.append([name, 0]))
for moment in ("epoch_begin", "epoch_end", "train_batch_begin", "train_batch_end", "test_batch_begin", "test_batch_end",
               "predict_batch_begin", "predict_batch_end"):
    setattr(Recorder, "on_" + moment, lambda self, at, logs=None, name=moment: self.seen.append([name, at]))


def moments():
    model, recorder = make_model(), Recorder()
    x = np.ones((10, 1), "float32")
    model.fit(x, x, epochs=2, batch_size=4, validation_data=(x[:6], x[:6]), verbose=0, callbacks=[recorder])
    model.evaluate(x[:6], x[:6], batch_size=4, verbose=0, callbacks=[recorder])
    model.predict(x[:6], batch_size=4, verbose=0, callbacks=[recorder])
    return recorder.seen


def tensorboard():
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    cases = []
    for freq in ("epoch", 1):
        with tempfile.TemporaryDirectory() as folder:
            model = make_model()
            x = np.ones((10, 1), "float32")
            model.compile(optimizer=keras.optimizers.SGD(0.125), loss="mse", metrics=["accuracy"])
            board = keras.callbacks.TensorBoard(folder, update_freq=freq, write_graph=False)
            model.fit(x, x, epochs=2, batch_size=4, validation_data=(x[:6], x[:6]), verbose=0, callbacks=[board])
            found = {}
            for part in ("train", "validation"):
                events = EventAccumulator(os.path.join(folder, part))
                events.Reload()
                found[part] = {tag: [e.step for e in events.Tensors(tag)] for tag in events.Tags()["tensors"]}
            cases.append({"update_freq": 0 if freq == "epoch" else freq, "found": found})
    return cases


def main():
    rng = random.Random(13)
    found = {
        "keras": keras.__version__,
        "early_stopping": early_stopping(rng),
        "reduce_lr_on_plateau": plateau(rng),
        "model_checkpoint": model_checkpoint(rng),
        "csv_logger": csv_logger(),
        "moments": moments(),
        "tensorboard": tensorboard(),
    }
    with open(os.path.join(HERE, "callbacks.json"), "w") as file:
        json.dump(found, file, indent=None, separators=(",", ":"), sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    main()
