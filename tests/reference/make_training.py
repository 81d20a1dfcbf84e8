#!/usr/bin/env python3
"""Makes training_*.json: schedules, optimizers, losses and metrics, as Keras 3 (and TensorFlow 1's RMSProp) computes them.

    pip install tensorflow-cpu==2.21.0 torch                (Keras 3.15.1 and NumPy 2.4.6 come with TensorFlow)
    python3 tests/reference/make_training.py [directory] [random cases a class]
                                                            (default: the directory of this script, and 3)

Running it twice gives identical files: each case draws its numbers from a seed made of its name. Losses and optimizers are
computed in float64 from float32 numbers, schedules and metrics in float32, as Keras computes them. Random cases draw shapes
and every argument of their class; the files here have few of them, `make_training.py /tmp/full 200` makes many, which
LS_REFERENCE=/tmp/full gives to the tests.

    training_schedules.json    [{name, kind, ... as in ls_schedule, steps, rates}]
    training_optimizers.json   {variables: [{name, shape, data}], gradients: [step][variable],
                                cases: [{name, kind, options, schedule (or null), steps: [step][variable],
                                         slots: {slot: [variable]} after the last step, iterations,
                                         errors: {steps, slot}: of Keras's own float32, relative to numbers above 1}]}
    training_losses.json       [{name, kind, options, targets, predictions, weights (or null), per_sample, mean, sum,
                                 gradient (of the mean by the predictions)}]
    training_metrics.json      [{name, kind, k, threshold, batches: [{targets, predictions, weights}], results}]

Arrays are {dtype, shape, data}. A loss over further axes (one value for each pixel) is averaged over them in per_sample; sum is
Keras's sum over all values.
"""
import json
import os
import sys
import zlib

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf
import keras

RANDOM = int(sys.argv[2]) if len(sys.argv) > 2 else 3  # cases a class

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)


def generator(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def flat(array):
    array = np.asarray(array)
    if array.dtype.kind == "f":
        return [float(f"{x:.9g}") for x in array.astype(np.float64).reshape(-1)]
    return [int(x) for x in array.reshape(-1)]


def described(array):
    if array is None:
        return None
    return {"dtype": str(array.dtype), "shape": list(array.shape), "data": flat(array)}


def rounded(array):
    return np.round(array, 3).astype(np.float32)


# ---- schedules ------------------------------------------------------------------------------------------------------


def one_cycle(max_lr, total, pct_start=0.3, div_factor=25.0, final_div_factor=1e4, linear=False, three_phase=False):
    """torch.optim.lr_scheduler.OneCycleLR of PyTorch 2.8, which raises after the last step; here it stays."""
    start = max_lr / div_factor
    low = start / final_div_factor
    if three_phase:
        phases = [(pct_start * total - 1, start, max_lr), (2 * pct_start * total - 2, max_lr, start), (total - 1, start, low)]
    else:
        phases = [(pct_start * total - 1, start, max_lr), (total - 1, max_lr, low)]

    def rate(step):
        step, begin = min(step, total - 1), 0.0
        for i, (end, first, last) in enumerate(phases):
            if step <= end or i == len(phases) - 1:
                part = (step - begin) / (end - begin)
                return (last - first) * part + first if linear else last + (first - last) / 2 * (1 + np.cos(np.pi * part))
            begin = end

    return rate


def schedules():
    S = keras.optimizers.schedules
    cases = []
    steps = [0, 1, 2, 3, 4, 5, 7, 9, 10, 11, 14, 15, 16, 19, 20, 21, 25, 29, 30, 31, 49, 50, 51, 99, 100, 1000]

    def add(name, schedule, **fields):
        rates = [float(schedule(s)) for s in steps]
        cases.append({"name": name, **fields, "steps": steps, "rates": [float(f"{r:.9g}") for r in rates]})

    for staircase in (False, True):
        for rate, count, decay in ((0.1, 10, 0.96), (0.05, 3, 0.5), (0.2, 100, 1.01)):
            add(f"exponential_{count}_{'stairs' if staircase else 'smooth'}", S.ExponentialDecay(rate, count, decay, staircase),
                kind="exponential", rate=rate, count=count, decay=decay, staircase=staircase)
    add("cosine", S.CosineDecay(0.1, 50), kind="cosine", rate=0.1, count=50)
    add("cosine_alpha", S.CosineDecay(0.3, 20, 0.1), kind="cosine", rate=0.3, count=20, alpha=0.1)
    add("cosine_warmup", S.CosineDecay(0.0, 30, 0.0, warmup_target=0.1, warmup_steps=20), kind="cosine", rate=0.1, count=30,
        warmup=20)
    add("cosine_warmup_from", S.CosineDecay(0.02, 40, 0.25, warmup_target=0.4, warmup_steps=10), kind="cosine", rate=0.4,
        count=40, alpha=0.25, warmup=10, **{"from": 0.02})
    add("piecewise", S.PiecewiseConstantDecay([10, 20, 50], [1.0, 0.5, 0.1, 0.025]), kind="piecewise",
        boundaries=[10, 20, 50], values=[1.0, 0.5, 0.1, 0.025])
    for i in range(RANDOM):
        rng = generator(f"schedules_{i}")
        between = lambda low, high: round(float(rng.uniform(low, high)), 4)
        rate, count, flag = between(0.01, 1), int(rng.integers(1, 40)), bool(rng.integers(0, 2))
        end, power = between(0, 0.02), between(0.5, 3)
        add(f"polynomial_{i}", S.PolynomialDecay(rate, count, end, power, flag), kind="polynomial", rate=rate, count=count,
            end=end, power=power, cycle=flag)
        decay = between(0.1, 2)
        add(f"inverse_time_{i}", S.InverseTimeDecay(rate, count, decay, flag), kind="inverse_time", rate=rate, count=count,
            decay=decay, staircase=flag)
        # powers of 2 divide exactly: Keras's float32 is on the right side of each restart
        first, t_mul, m_mul, alpha = 2 ** int(rng.integers(1, 5)), float(rng.integers(1, 4)), between(0.5, 1), between(0, 0.3)
        add(f"restarts_{i}", S.CosineDecayRestarts(rate, first, t_mul, m_mul, alpha), kind="restarts", rate=rate, count=first,
            t_mul=t_mul, m_mul=m_mul, alpha=alpha)
        cycle = {"pct_start": between(0.1, 0.45), "div_factor": between(2, 50), "final_div_factor": between(10, 1e4),
                 "linear": bool(rng.integers(0, 2)), "three_phase": flag}
        total = int(rng.integers(30, 120))
        add(f"one_cycle_{i}", one_cycle(rate, total, **cycle), kind="one_cycle", rate=rate, count=total, **cycle)
    add("one_cycle", one_cycle(0.1, 100), kind="one_cycle", rate=0.1, count=100)
    add("piecewise_two", S.PiecewiseConstantDecay([15], [0.1, 0.01]), kind="piecewise", boundaries=[15], values=[0.1, 0.01])
    return cases


# ---- optimizers -----------------------------------------------------------------------------------------------------

STEPS = 24
KEPT = (0, 1, 2, 5, 11, 23)  # steps whose variables are in the file
SHAPES = {"dense/kernel": (3, 4), "dense/bias": (4,)}


def draw_training():
    rng = generator("optimizers")
    variables = [rounded(rng.normal(0, 1, shape)) for shape in SHAPES.values()]
    gradients = []
    for step in range(STEPS):
        scale = 0.05 if step in (3, 7, 15) else 1.5  # small ones are below every norm that clips
        gradients.append([rounded(rng.normal(0, scale, shape)) for shape in SHAPES.values()])
    gradients[5][1][:] = 0
    return variables, gradients


VARIABLES, GRADIENTS = draw_training()
KINDS = {
    "sgd": (keras.optimizers.SGD, {"momentum": "momentums"}),
    "adam": (keras.optimizers.Adam, {"momentum": "_momentums", "velocity": "_velocities"}),
    "adamw": (keras.optimizers.AdamW, {"momentum": "_momentums", "velocity": "_velocities"}),
    "rmsprop": (keras.optimizers.RMSprop, {"velocity": "_velocities", "momentum": "_momentums"}),
    "adagrad": (keras.optimizers.Adagrad, {"accumulator": "_accumulators"}),
    "adadelta": (keras.optimizers.Adadelta, {"accumulated_grad": "_accumulated_grads",
                                             "accumulated_delta_var": "_accumulated_delta_vars"}),
    "adamax": (keras.optimizers.Adamax, {"momentum": "_m", "norm": "_u"}),
    "nadam": (keras.optimizers.Nadam, {"momentum": "_momentums", "velocity": "_velocities"}),
    "ftrl": (keras.optimizers.Ftrl, {"accumulator": "_accumulators", "linear": "_linears"}),
    "lion": (keras.optimizers.Lion, {"momentum": "_momentums"}),
    "lamb": (keras.optimizers.Lamb, {"momentum": "_momentums", "velocity": "_velocities"}),
    "muon": (keras.optimizers.Muon, {"momentum": "momentums"}),
}


def kept(steps):
    return [values if i in KEPT else None for i, values in enumerate(steps)]


def slots_of(optimizer, names):
    found = {}
    for slot, attribute in names.items():
        held = getattr(optimizer, attribute, None) if slot != "average" or optimizer.use_ema else None
        if held and held[0] is not None:
            found[slot] = [v.numpy() for v in held]
    return found


def keras_run(dtype, kind, rate, constraint, options):
    """With floatx as the type, since Muon multiplies by a number of that type."""
    make, slots = KINDS[kind]
    keras.config.set_floatx(dtype)
    optimizer = make(**options, **rate)
    variables = [keras.Variable(v, name=n.replace("/", "_"), dtype=dtype) for n, v in zip(SHAPES, VARIABLES)]
    for variable in variables if constraint else ():
        variable.constraint = getattr(keras.constraints, constraint["class"])(
            **{k: v for k, v in constraint.items() if k != "class"})
    optimizer.build(variables)
    steps = []
    for gradients in GRADIENTS:
        optimizer.apply([tf.constant(g, dtype) for g in gradients], variables)
        steps.append([v.numpy() for v in variables])
    keras.config.set_floatx("float32")
    return kept(steps), slots_of(optimizer, {**slots, "average": "_model_variables_moving_average"}), int(optimizer.iterations)


def largest_error(exact, single):
    """Of arrays in lists, as the tests measure it."""
    return max(float(np.max(np.abs(a - b) / np.maximum(1, np.abs(a)))) for a, b in zip(exact, single))


def keras_case(label, kind, schedule=None, constraint=None, **options):
    rate = {"learning_rate": schedule[0]} if schedule else {}
    steps, slots, iterations = keras_run("float64", kind, rate, constraint, options)
    single, single_slots, _ = keras_run("float32", kind, rate, constraint, options)
    errors = {slot: largest_error(slots[slot], single_slots[slot]) for slot in slots}
    errors["steps"] = max(largest_error(a, b) for a, b in zip(steps, single) if a is not None)
    return {"name": label, "kind": kind, "options": options, "schedule": schedule[1] if schedule else None,
            **({"constraint": constraint} if constraint else {}),
            "steps": [s and [flat(v) for v in s] for s in steps], "slots": {n: [flat(v) for v in s] for n, s in slots.items()},
            "errors": {n: float(f"{e:.3g}") for n, e in errors.items()}, "iterations": iterations}


def tf1_case(label, learning_rate, rho=0.9, momentum=0.0, epsilon=1e-10, **given):
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        variables = [v1.get_variable(n.replace("/", "_"), initializer=v, use_resource=True)
                     for n, v in zip(SHAPES, VARIABLES)]
        feeds = [v1.placeholder(tf.float32, shape) for shape in SHAPES.values()]
        optimizer = v1.train.RMSPropOptimizer(learning_rate, rho, momentum, epsilon)
        train = optimizer.apply_gradients(list(zip(feeds, variables)))
        session.run(v1.global_variables_initializer())
        steps = []
        for gradients in GRADIENTS:
            session.run(train, dict(zip(feeds, gradients)))
            steps.append([flat(v) for v in session.run(variables)])
        slots = {ours: [flat(session.run(optimizer.get_slot(v, theirs))) for v in variables]
                 for ours, theirs in (("velocity", "rms"), ("momentum", "momentum"))}
    options = {"learning_rate": learning_rate, **{k: v for k, v in (("rho", rho), ("momentum", momentum)) if k in given.get("say", ())}}
    if epsilon != 1e-10:
        options["epsilon"] = epsilon
    return {"name": label, "kind": "rmsprop_tf1", "options": options, "schedule": None, "steps": kept(steps),
            "slots": slots, "iterations": STEPS}


def random_options(kind, number):
    """All arguments of the class, drawn; each is there or not."""
    rng = generator(f"{kind}_options_{number}")
    chance = lambda: bool(rng.integers(0, 2))
    between = lambda low, high: round(float(rng.uniform(low, high)), 4)
    options = {"learning_rate": between(0.002, 0.05) * (100 if kind == "adadelta" else 1)}
    draws = {"weight_decay": (0.001, 0.05)}
    if kind == "sgd":
        draws["momentum"] = (0.3, 0.95)
    if kind == "rmsprop":
        draws |= {"momentum": (0.3, 0.95), "rho": (0.5, 0.95)}
    if kind == "adadelta":
        draws["rho"] = (0.5, 0.95)
    if kind == "muon":
        draws |= {"adam_beta_1": (0.5, 0.95), "adam_beta_2": (0.7, 0.999), "momentum": (0.5, 0.97), "rms_rate": (0.1, 0.5),
                  "adam_weight_decay": (0.001, 0.05), "adam_lr_ratio": (0.2, 2), "muon_a": (3.4, 3.48), "muon_b": (-4.82, -4.73),
                  "muon_c": (2.0, 2.06)}
    if kind in ("adam", "adamw", "adamax", "nadam", "lion", "lamb"):
        draws |= {"beta_1": (0.5, 0.95), "beta_2": (0.7, 0.999)}
    if kind not in ("sgd", "ftrl", "lion"):
        draws["epsilon"] = (1e-3, 0.1)
    if kind in ("adagrad", "ftrl"):
        draws["initial_accumulator_value"] = (0.01, 0.5)
    if kind == "ftrl":
        draws |= {"l1_regularization_strength": (0.01, 0.5), "l2_regularization_strength": (0.01, 0.5),
                  "l2_shrinkage_regularization_strength": (0.01, 0.2), "beta": (0.05, 0.5),
                  "learning_rate_power": (-1, -0.1)}
    for key, (low, high) in draws.items():
        if chance():
            options[key] = between(low, high)
    if kind == "muon":
        options |= {"nesterov": False} if chance() else {}
        options |= {"ns_steps": int(rng.integers(2, 7))} if chance() else {}
        options |= {"exclude_layers": ["kernel"]} if rng.integers(0, 4) == 0 else {}
    options |= {"use_ema": True, "ema_momentum": between(0.5, 0.99)} if chance() else {}
    if "use_ema" in options and chance():
        options["ema_overwrite_frequency"] = int(rng.integers(2, 6))
    if options.get("momentum") and kind == "sgd" and chance():
        options["nesterov"] = True
    clip = rng.integers(0, 4)
    if clip:
        options[("clipvalue", "clipnorm", "global_clipnorm")[clip - 1]] = between(0.3, 1.5)
    if "use_ema" not in options and chance():  # Keras averages in every batch, Lockstep after updates
        options["gradient_accumulation_steps"] = int(rng.integers(2, 5))
    return options


def optimizers():
    cases = []
    common = {
        "default": {},
        "rate": {"learning_rate": 0.1},
        "decay": {"weight_decay": 0.05, "learning_rate": 0.02},
        "clipvalue": {"clipvalue": 0.5},
        "clipnorm": {"clipnorm": 1.0},
        "global_clipnorm": {"global_clipnorm": 1.5},
        "accumulate": {"gradient_accumulation_steps": 3},
        "all": {"gradient_accumulation_steps": 2, "global_clipnorm": 0.75, "weight_decay": 0.01, "learning_rate": 0.05},
    }
    special = {
        "sgd": {"momentum": {"momentum": 0.9}, "nesterov": {"momentum": 0.9, "nesterov": True},
                "momentum_all": {"momentum": 0.8, "clipnorm": 2.0, "weight_decay": 0.01, "gradient_accumulation_steps": 4},
                "nesterov_all": {"momentum": 0.8, "nesterov": True, "clipvalue": 0.5, "weight_decay": 0.01,
                                 "gradient_accumulation_steps": 2}},
        "adam": {"betas": {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-3, "learning_rate": 0.01}},
        "adamw": {"no_decay": {"weight_decay": 0.0}},
        "rmsprop": {"rho": {"rho": 0.7, "epsilon": 1e-3, "learning_rate": 0.01}, "momentum": {"momentum": 0.9},
                    "momentum_all": {"momentum": 0.5, "clipnorm": 2.0, "weight_decay": 0.01, "gradient_accumulation_steps": 2}},
        "adagrad": {"start": {"initial_accumulator_value": 0.0, "epsilon": 1e-3, "learning_rate": 0.05}},
        "ftrl": {"strengths": {"l1_regularization_strength": 0.3, "l2_regularization_strength": 0.2, "beta": 0.4,
                               "l2_shrinkage_regularization_strength": 0.1, "learning_rate": 0.05},
                 "power": {"learning_rate_power": -0.8, "learning_rate": 0.05},
                 "power_all": {"learning_rate_power": -0.3, "learning_rate": 0.05, "weight_decay": 0.2, "l1_regularization_strength": 0.1,
                               "clipnorm": 1.0, "gradient_accumulation_steps": 2}},
        "lion": {"betas": {"beta_1": 0.5, "beta_2": 0.8, "learning_rate": 0.01}},
        "lamb": {"ema": {"use_ema": True, "ema_momentum": 0.8}},
        "muon": {"adam": {"exclude_layers": ["kernel"], "adam_lr_ratio": 0.5, "adam_weight_decay": 0.02},
                 "plain": {"nesterov": False, "ns_steps": 3, "rms_rate": 0.4, "momentum": 0.8}},
    }
    for kind in KINDS:
        special.setdefault(kind, {})
        special[kind] |= {f"random_{i}": random_options(kind, i) for i in range(RANDOM)}
        for label, options in {**common, **special[kind]}.items():
            if kind == "adadelta" and label != "default":  # its steps are small
                options = {"learning_rate": 2.0, **options}
            cases.append(keras_case(f"{kind}_{label}", kind, **options))
    S = keras.optimizers.schedules
    exponential = {"kind": "exponential", "rate": 0.1, "count": 4, "decay": 0.5, "staircase": True}
    cosine = {"kind": "cosine", "rate": 0.05, "count": 6, "alpha": 0.1, "from": 0.01, "warmup": 3}
    cases.append(keras_case("sgd_exponential", "sgd", (S.ExponentialDecay(0.1, 4, 0.5, True), exponential), momentum=0.9))
    cases.append(keras_case("adam_cosine", "adam", (S.CosineDecay(0.01, 6, 0.1, warmup_target=0.05, warmup_steps=3), cosine)))
    ema = {"use_ema": True, "ema_momentum": 0.7, "ema_overwrite_frequency": 3}
    for i, (constraint, kind, options) in enumerate((
            ({"class": "MaxNorm", "max_value": 1.5}, "sgd", {"learning_rate": 0.1}),
            ({"class": "MaxNorm", "axis": [0]}, "adam", {"learning_rate": 0.1, "weight_decay": 0.01}),
            ({"class": "NonNeg"}, "sgd", {"learning_rate": 0.1, "momentum": 0.9}),
            ({"class": "UnitNorm"}, "adagrad", {"learning_rate": 0.1}),
            ({"class": "UnitNorm", "axis": -1}, "lamb", {"learning_rate": 0.1}),
            ({"class": "MinMaxNorm", "min_value": 0.5, "max_value": 1.2}, "sgd", {"learning_rate": 0.05, **ema}),
            ({"class": "MinMaxNorm", "min_value": 0.1, "max_value": 0.8, "rate": 0.3}, "lion", {"learning_rate": 0.05}))):
        cases.append(keras_case(f"{kind}_constraint_{i}", kind, None, constraint, **options))
    cases.append(tf1_case("rmsprop_tf1_default", 0.001))
    cases.append(tf1_case("rmsprop_tf1_momentum", 0.01, 0.8, 0.9, 1e-3, say=("rho", "momentum")))
    variables = [{"name": n, "shape": list(v.shape), "data": flat(v)} for n, v in zip(SHAPES, VARIABLES)]
    return {"variables": variables, "gradients": [[flat(g) for g in step] for step in GRADIENTS], "cases": cases}


# ---- losses ---------------------------------------------------------------------------------------------------------

LOSSES = {
    "sparse_categorical_crossentropy": keras.losses.SparseCategoricalCrossentropy,
    "categorical_crossentropy": keras.losses.CategoricalCrossentropy,
    "binary_crossentropy": keras.losses.BinaryCrossentropy,
    "mean_squared_error": keras.losses.MeanSquaredError,
    "mean_absolute_error": keras.losses.MeanAbsoluteError,
    "huber": keras.losses.Huber,
    "mean_absolute_percentage_error": keras.losses.MeanAbsolutePercentageError,
    "mean_squared_logarithmic_error": keras.losses.MeanSquaredLogarithmicError,
    "log_cosh": keras.losses.LogCosh,
    "cosine_similarity": keras.losses.CosineSimilarity,
    "kl_divergence": keras.losses.KLDivergence,
    "poisson": keras.losses.Poisson,
    "hinge": keras.losses.Hinge,
    "squared_hinge": keras.losses.SquaredHinge,
    "categorical_hinge": keras.losses.CategoricalHinge,
    "binary_focal_crossentropy": keras.losses.BinaryFocalCrossentropy,
    "categorical_focal_crossentropy": keras.losses.CategoricalFocalCrossentropy,
    "dice": keras.losses.Dice,
    "tversky": keras.losses.Tversky,
    "ctc": keras.losses.CTC,
}


def ctc_float64(labels, logits):
    """keras.ops.ctc_loss of TensorFlow computes in float32 only. This is its formula (tensorflow/python/ops/ctc_ops.py) in
    float64: values, and gradients of each. A path may begin and end in any state, but elsewhere with 1e-307."""
    log_0 = float(np.float32(np.log(1e-307)))
    losses, gradients = [], []
    for y, x in zip(labels.astype(int), logits.astype(np.float64)):
        length, count = int(np.sum(y != 0)), len(y)
        states = np.array([0 if s % 2 == 0 else y[s // 2] for s in range(2 * count + 1)])
        log_p = x - np.logaddexp.reduce(x, axis=1, keepdims=True)
        moves = np.full((len(states), len(states)), -np.inf)  # [to, from]
        for s in range(len(states)):
            moves[s, max(s - 1, 0):s + 1] = 0
            if s % 2 and s > 1 and y[s // 2] != y[s // 2 - 1]:
                moves[s, s - 2] = 0
        first = np.where(np.arange(len(states)) < 2, 0.0, -np.inf)
        end = np.where(np.isin(np.arange(len(states)), (2 * length, 2 * length - 1)), 0.0, log_0)

        def forward(start):
            rows = [start + log_p[0, states]]
            for t in range(1, len(x)):
                rows.append(np.logaddexp.reduce(moves + rows[-1], axis=1) + log_p[t, states])
            return rows

        losses.append(-np.logaddexp.reduce(forward(first)[-1] + end))
        alpha = forward(np.logaddexp(first, np.logaddexp.reduce(moves + log_0, axis=1)))
        beta = [end]
        for t in range(len(x) - 1, 0, -1):
            beta.insert(0, np.logaddexp.reduce(moves.T + beta[0] + log_p[t, states], axis=1))
        gradient = np.exp(log_p)
        for t in range(len(x)):
            each = alpha[t] + beta[t]
            each = np.exp(each - np.logaddexp.reduce(each))
            for s, c in enumerate(states):
                if s % 2 == 0 or s < 2 * length:  # TensorFlow leaves out labels 0
                    gradient[t, c] -= each[s]
        gradients.append(gradient)
    return np.array(losses), np.array(gradients)


def ctc_torch(labels, logits):
    """Values and gradients of each, from PyTorch in float64."""
    import torch

    x = torch.tensor(logits.astype(np.float64), requires_grad=True)
    lengths = torch.tensor(np.sum(labels != 0, axis=1))
    values = torch.nn.functional.ctc_loss(torch.log_softmax(x, -1).transpose(0, 1), torch.tensor(labels.astype(np.int64)),
                                          torch.full((len(logits),), logits.shape[1]), lengths, reduction="none")
    values.sum().backward()
    return values.detach().numpy(), x.grad.numpy()


def ctc_case(name, labels, logits, weights=None):
    """Keras's float32, and where the labels fit PyTorch's float64, agree with ctc_float64."""
    values, gradients = ctc_float64(labels, logits)
    tensor = tf.constant(logits, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        found = keras.losses.ctc(labels.astype(np.int32), tensor)
        total = tf.reduce_sum(found)
    single = found.numpy(), tape.gradient(total, tensor).numpy()
    for exact, near in zip((values, gradients), single):
        assert np.allclose(exact, near, rtol=2e-5, atol=2e-4 if values.max() > 700 else 2e-5), (name, exact, near)
    double = ctc_torch(labels, logits)
    fits = np.isfinite(double[0])
    for exact, near in zip((values, gradients), double):
        assert np.allclose(exact[fits], near[fits], rtol=1e-9, atol=1e-9), (name, exact, near)
    scale = np.ones(len(logits)) if weights is None else weights.astype(np.float64)
    values = values * scale
    gradients = gradients * scale[:, None, None] / len(logits)
    return {"name": name, "kind": "ctc", "options": {}, "targets": described(labels), "predictions": described(logits),
            "weights": described(weights), "per_sample": flat(values), "mean": flat(values.mean())[0],
            "sum": flat(values.sum())[0], "gradient": flat(gradients)}


def random_ctc(name, rng):
    n, frames, classes = int(rng.integers(1, 5)), int(rng.integers(1, 13)), int(rng.integers(2, 7))
    most = int(rng.integers(1, min(frames, 6) + 2))
    labels = np.zeros((n, most), (np.int64, np.int32, np.uint8, np.float32)[rng.integers(0, 4)])
    for row in labels:
        length = rng.integers(0, most + 1)
        row[:length] = rng.integers(1, classes, length)
    weights = rounded(rng.uniform(0.1, 2, n)) if rng.integers(0, 2) else None
    return ctc_case(name, labels, rounded(rng.normal(0, 1.5, (n, frames, classes))), weights)


def ctc_cases():
    """Repeated labels, none, one frame, as many frames as needed, fewer."""
    def logits(name, *shape):
        return rounded(generator(name).normal(0, 2, shape))

    return [ctc_case("ctc_plain", np.array([[1, 2, 3], [3, 1, 0]]), logits("ctc_plain", 2, 6, 5)),
            ctc_case("ctc_repeated", np.array([[1, 1, 0], [2, 2, 2], [1, 1, 2]]), logits("ctc_repeated", 3, 5, 4)),
            ctc_case("ctc_empty", np.array([[0, 0], [1, 0]]), logits("ctc_empty", 2, 4, 3)),
            ctc_case("ctc_one_frame", np.array([[1], [0], [2]]), logits("ctc_one_frame", 3, 1, 3)),
            ctc_case("ctc_exact", np.array([[1, 2, 2, 1]]), logits("ctc_exact", 1, 5, 3)),
            ctc_case("ctc_too_long", np.array([[1, 2, 1, 0], [2, 2, 0, 0], [1, 2, 0, 0]]), logits("ctc_too_long", 3, 2, 3)),
            ctc_case("ctc_long", generator("ctc_labels").integers(1, 6, (2, 10)), logits("ctc_long", 2, 40, 6))]


def loss_case(name, kind, targets, predictions, weights=None, **options):
    make, given = LOSSES[kind], targets
    if kind == "sparse_categorical_crossentropy" and "label_smoothing" in options:  # Keras has none: as of one-hot rows
        make = keras.losses.CategoricalCrossentropy
        given = np.eye(predictions.shape[-1])[targets.astype(np.int64).reshape(predictions.shape[:-1])]
    tensor = tf.constant(predictions, tf.float64)

    def value(reduction):
        return make(reduction=reduction, dtype="float64", **options)(given, tensor, weights)

    with tf.GradientTape() as tape:
        tape.watch(tensor)
        mean = value("sum_over_batch_size")
    each, total = value("none").numpy(), value("sum").numpy()
    if each.ndim == 0:  # Dice and Tversky over the whole batch
        each = np.full(predictions.shape[0], each)
    per_sample = each.reshape(each.shape[0], -1).mean(axis=1)
    return {"name": name, "kind": kind, "options": options, "targets": described(targets),
            "predictions": described(predictions), "weights": described(weights), "per_sample": flat(per_sample),
            "mean": flat(mean.numpy())[0], "sum": flat(total)[0], "gradient": flat(tape.gradient(mean, tensor).numpy())}


def random_loss(kind, number):
    """A case with shapes, targets and all arguments of the class drawn."""
    name = f"{kind}_random_{number}"
    rng = generator(name)
    if kind == "ctc":
        return random_ctc(name, rng)
    chance = lambda: bool(rng.integers(0, 2))
    n, classes = int(rng.integers(1, 7)), int(rng.integers(2, 7))
    whole = kind in ("dice", "tversky")
    weights = rounded(rng.uniform(0.1, 2, n)) if chance() else None
    more = () if weights is not None else tuple(int(k) for k in rng.integers(1, 4, rng.integers(0, 3)))
    shape = (n, *more, classes)
    options = {}
    number_of = lambda low, high: round(float(rng.uniform(low, high)), 3)
    reals, units = rounded(rng.normal(0, 1.2, shape)), rounded(rng.uniform(0.03, 0.97, shape))
    positive = rounded(rng.uniform(0.1, 3, shape))
    bits = rng.integers(0, 2, shape).astype(np.float32)
    labels = rng.integers(0, classes, shape[:-1])
    one_hot = np.eye(classes, dtype=np.float32)[labels]
    if kind.endswith("crossentropy"):
        if chance():
            options["from_logits"] = True
        if chance():
            options["label_smoothing"] = number_of(0.01, 0.6)
        binary = kind.startswith("binary")
        scores = reals if "from_logits" in options else units if binary else probabilities(rng, shape)
        pair = (bits if binary else labels if kind.startswith("sparse") else one_hot), scores
        if "focal" in kind:
            if chance():
                options["gamma"] = number_of(0.5, 4)
            if chance():
                options["alpha"] = number_of(0.05, 0.95)
            if binary and chance():
                options["apply_class_balancing"] = True
    elif kind == "kl_divergence":
        pair = probabilities(rng, shape), probabilities(rng, shape)
    elif kind in ("poisson", "mean_squared_logarithmic_error"):
        pair = rounded(rng.uniform(0, 4, shape)), positive
    elif kind == "mean_absolute_percentage_error":
        pair = positive * np.where(bits, 1, -1).astype(np.float32), reals
    elif kind in ("hinge", "squared_hinge"):
        pair = (bits if chance() else 2 * bits - 1), rounded(rng.uniform(-0.9, 0.9, shape))
    elif kind == "categorical_hinge":
        pair = one_hot, rounded(rng.uniform(-0.4, 0.4, shape))
    elif whole:
        pair = bits, units
        if kind == "tversky" and chance():
            options |= {"alpha": number_of(0.1, 0.9), "beta": number_of(0.1, 0.9)}
        if chance():
            options["axis"] = list(range(1, len(shape)))
    else:
        pair = rounded(rng.normal(0, 1.2, shape)), reals
        if kind == "huber" and chance():
            options["delta"] = number_of(0.2, 2)
        if kind == "cosine_similarity" and chance():
            options["axis"] = int(rng.integers(1, len(shape)))
            if options["axis"] < len(shape) - 1:
                weights = None
    if kind.startswith("sparse") and "label_smoothing" not in options and generator(name + "_ignore").integers(0, 2):
        options["ignore_class"] = int(generator(name + "_class").integers(-1, classes))
        pair = np.where(generator(name + "_where").random(labels.shape) < 0.3, options["ignore_class"], labels), pair[1]
    return loss_case(name, kind, *pair, weights, **options)


def probabilities(rng, shape):
    raw = rng.uniform(0.05, 1, shape)
    return rounded(raw / raw.sum(axis=-1, keepdims=True))


def losses():
    cases = []
    N, C = 7, 5
    for weighted in (False, True):
        end = "_weighted" if weighted else ""

        def add(name, kind, draw_targets, draw_predictions, **options):
            rng = generator(name)
            targets, predictions = draw_targets(rng), draw_predictions(rng)
            weights = rounded(rng.uniform(0, 2, N)) if weighted else None
            cases.append(loss_case(name + end, kind, targets, predictions, weights, **options))

        def labels(shape=(N,), dtype=np.int64):
            return lambda rng: rng.integers(0, C, shape).astype(dtype)

        def one_hot(dtype=np.float32):
            return lambda rng: np.eye(C, dtype=dtype)[rng.integers(0, C, N)]

        def bits(shape, dtype=np.float32):
            return lambda rng: rng.integers(0, 2, shape).astype(dtype)

        def reals(shape):
            return lambda rng: rounded(rng.normal(0, 1.5, shape))

        def units(shape):
            return lambda rng: rounded(rng.uniform(0.02, 0.98, shape))

        def shares(shape):
            return lambda rng: probabilities(rng, shape)

        def soft(rng):  # sums to 1 exactly: the gradient that TensorFlow takes is right for such labels alone
            return (rng.multinomial(64, np.full(C, 1 / C), N) / 64).astype(np.float32)

        sparse, dense, binary = "sparse_categorical_crossentropy", "categorical_crossentropy", "binary_crossentropy"
        add("sparse", sparse, labels(), shares((N, C)))

        def holes(shape, ignored, dtype=np.int64):
            return lambda rng: np.where(rng.random(shape) < 0.4, ignored, rng.integers(0, C, shape)).astype(dtype)

        add("sparse_ignore", sparse, holes((N,), -1), shares((N, C)), ignore_class=-1)
        add("sparse_ignore_logits", sparse, holes((N, 1), 2, np.float32), reals((N, C)), ignore_class=2, from_logits=True)
        add("sparse_ignore_zero", sparse, holes((N,), 0, np.uint8), reals((N, C)), ignore_class=0, from_logits=True)
        if not weighted:
            add("sparse_ignore_pixels", sparse, holes((N, 2, 3), 255, np.uint8), reals((N, 2, 3, C)), ignore_class=255,
                from_logits=True)
        add("sparse_logits", sparse, labels(), reals((N, C)), from_logits=True)
        add("sparse_column", sparse, labels((N, 1), np.int32), reals((N, C)), from_logits=True)
        add("sparse_bytes", sparse, labels((N,), np.uint8), shares((N, C)))
        add("sparse_floats", sparse, labels((N,), np.float32), shares((N, C)))
        add("dense", dense, one_hot(), shares((N, C)))
        add("dense_logits", dense, one_hot(), reals((N, C)), from_logits=True)
        add("dense_bytes", dense, one_hot(np.uint8), reals((N, C)), from_logits=True)
        add("dense_soft", dense, soft, reals((N, C)), from_logits=True)
        add("binary", binary, bits((N, 3)), units((N, 3)))
        add("binary_logits", binary, bits((N, 3)), reals((N, 3)), from_logits=True)
        add("binary_integers", binary, bits((N, 1), np.int64), units((N, 1)))
        add("binary_flat", binary, bits((N,), np.int32), units((N, 1)))
        for kind in ("mean_squared_error", "mean_absolute_error", "huber"):
            add(kind, kind, reals((N, 3)), reals((N, 3)))
            add(kind + "_flat", kind, reals((N,)), reals((N, 1)))
            add(kind + "_column", kind, reals((N, 1)), reals((N,)))
            add(kind + "_integers", kind, labels((N, 1), np.int32), reals((N, 1)))
        add("huber_delta", "huber", reals((N, 3)), reals((N, 3)), delta=0.4)
        if not weighted:  # Keras wants weights of every pixel there
            add("sparse_pixels", sparse, labels((N, 2, 3)), reals((N, 2, 3, C)), from_logits=True)
            add("squared_pixels", "mean_squared_error", reals((N, 2, 3)), reals((N, 2, 3)))
            add("binary_pixels", binary, bits((N, 4)), units((N, 4, 1)))
    return cases + ctc_cases() + [random_loss(kind, i) for kind in LOSSES for i in range(RANDOM)]


# ---- metrics --------------------------------------------------------------------------------------------------------


def metric_case(name, kind, metric, draw, weighted, batches=(5, 1, 8, 3), k=0, threshold=0.0, each=None, **fields):
    rng = generator(name)
    held, results = [], []
    for n in batches:
        targets, predictions = draw(rng, n)
        weights = rounded(rng.uniform(0, 2, n)) if weighted else None
        if kind == "mean":
            metric.update_state(predictions, sample_weight=weights)
        else:
            metric.update_state(targets, predictions, sample_weight=weights)
        results.append(float(metric.result()))
        if each is not None:  # the same metric with average=None
            each.update_state(targets, predictions, sample_weight=weights)
        held.append({"targets": described(targets), "predictions": described(predictions), "weights": described(weights)})
    if each is not None:
        fields["class_values"] = flat(np.asarray(each.result()))
    return {"name": name, "kind": kind, "k": k, "threshold": threshold, **fields, "batches": held,
            "results": [float(f"{r:.9g}") for r in results]}


class Accuracy(keras.metrics.MeanMetricWrapper):
    """The share of the diagonal of the confusion matrix."""

    def __init__(self):
        super().__init__(lambda t, p: tf.cast(tf.equal(tf.cast(t, tf.int64), tf.argmax(p, -1)), tf.float32))


def random_metrics():
    """Shapes, weights and all arguments of the metrics with classes, drawn."""
    M = keras.metrics
    cases = []
    for kind in ("r2_score", "f1_score", "fbeta_score", "mean_io_u", "binary_io_u", "confusion"):
        for number in range(RANDOM):
            rng = generator(f"{kind}_options_{number}")
            classes, weighted = int(rng.integers(2, 6)), bool(rng.integers(0, 2))
            fields, more = {"num_classes": classes}, {}
            average = ("macro", "micro", "weighted")[rng.integers(0, 3)]
            threshold = round(float(rng.uniform(0.2, 0.8)), 3) if rng.integers(0, 2) else None
            beta = round(float(rng.uniform(0.3, 3)), 3)
            pixels = () if kind in ("r2_score", "f1_score", "fbeta_score") or weighted else (int(rng.integers(1, 4)), 2)

            def draw(rng, n, kind=kind, classes=classes, pixels=pixels):
                scores = rounded(rng.uniform(0, 1, (n, *pixels, classes)))
                if kind == "r2_score":
                    return rounded(rng.normal(0, 1, (n, classes))), rounded(rng.normal(0, 1, (n, classes)))
                if kind in ("f1_score", "fbeta_score"):
                    return rng.integers(0, 2, (n, classes)).astype(np.float32), scores
                if kind == "binary_io_u":
                    return rng.integers(0, 2, (n, *pixels, 1)).astype(np.float32), scores[..., :1]
                return rng.integers(0, classes, (n, *pixels)), scores

            each = None
            if kind == "r2_score":
                average = "macro" if average == "micro" else average
                regressors = int(rng.integers(0, 4))
                fields["num_regressors"] = regressors
                how = {"macro": "uniform_average", "weighted": "variance_weighted_average"}[average]
                metric, each = M.R2Score(how, regressors), M.R2Score(None) if not regressors else None
            elif kind in ("f1_score", "fbeta_score"):
                options = {} if kind == "f1_score" else {"beta": beta}
                fields |= options
                make = M.F1Score if kind == "f1_score" else M.FBetaScore
                metric, each = make(average=average, threshold=threshold, **options), make(threshold=threshold, **options)
                if threshold:
                    fields["threshold"] = threshold
            elif kind == "mean_io_u":
                if generator(f"mean_io_u_ignore_{number}").integers(0, 2) or number == 0:
                    fields["ignore_class"] = int(generator(f"mean_io_u_class_{number}").integers(0, classes))
                metric = M.MeanIoU(classes, sparse_y_pred=False, dtype="float32", ignore_class=fields.get("ignore_class"))
            elif kind == "binary_io_u":
                fields = {}
                metric = M.BinaryIoU(threshold=threshold or 0.5, dtype="float32")
                if threshold:
                    fields["threshold"] = threshold
            else:
                metric = Accuracy()
            if kind in ("r2_score", "f1_score", "fbeta_score"):
                fields["average"] = ("macro", "micro", "weighted").index(average)
            cases.append(metric_case(f"{kind}_random_{number}", kind, metric, draw, weighted, each=each, **fields))
    return cases


def metrics():
    cases = []
    C = 7
    M = keras.metrics

    def scores(rng, shape):
        return rounded(rng.normal(0, 1, shape))

    def labelled(shape=lambda n: (n,), dtype=np.int64, more=()):
        return lambda rng, n: (rng.integers(0, C, shape(n)).astype(dtype), scores(rng, (n, *more, C)))

    def one_hot(dtype=np.float32):
        return lambda rng, n: (np.eye(C, dtype=dtype)[rng.integers(0, C, n)], scores(rng, (n, C)))

    def tied(rng, n):  # few values, so that scores tie at place k
        return rng.integers(0, C, n), rng.integers(0, 3, (n, C)).astype(np.float32)

    def binary(t, p, dtype=np.float32):
        return lambda rng, n: (rng.integers(0, 2, t(n)).astype(dtype), rounded(rng.uniform(0, 1, p(n))))

    def on_thresholds(rng, n):  # multiples of 1/199, some of which are thresholds exactly
        return rng.integers(0, 2, (n, 1)).astype(np.float32), (rng.integers(0, 200, (n, 1)) / 199).astype(np.float32)

    def reals(t, p):
        return lambda rng, n: (scores(rng, t(n)), scores(rng, p(n)))

    flat_, column, three = (lambda n: (n,)), (lambda n: (n, 1)), (lambda n: (n, 3))
    for weighted in (False, True):
        end = "_weighted" if weighted else ""

        def add(name, kind, make, draw, **more):
            cases.append(metric_case(name + end, kind, make, draw, weighted, **more))

        add("accuracy_binary", "accuracy", M.BinaryAccuracy(), binary(column, column))
        add("accuracy_binary_flat", "accuracy", M.BinaryAccuracy(), binary(flat_, column, np.int32))
        add("accuracy_sparse", "accuracy", M.SparseCategoricalAccuracy(), labelled())
        add("accuracy_sparse_column", "accuracy", M.SparseCategoricalAccuracy(), labelled(column, np.uint8))
        add("accuracy_categorical", "accuracy", M.CategoricalAccuracy(), one_hot())
        add("binary_accuracy", "binary_accuracy", M.BinaryAccuracy(), binary(three, three))
        add("binary_accuracy_threshold", "binary_accuracy", M.BinaryAccuracy(threshold=0.3), binary(column, column, np.int64),
            threshold=0.3)
        add("categorical_accuracy", "categorical_accuracy", M.CategoricalAccuracy(), one_hot(np.uint8))
        add("sparse_categorical_accuracy", "sparse_categorical_accuracy", M.SparseCategoricalAccuracy(),
            labelled(dtype=np.float32))
        add("top_k_sparse", "top_k", M.SparseTopKCategoricalAccuracy(), labelled())
        add("top_k_sparse_2", "top_k", M.SparseTopKCategoricalAccuracy(k=2), labelled(dtype=np.int32), k=2)
        add("top_k_categorical_3", "top_k", M.TopKCategoricalAccuracy(k=3), one_hot(), k=3)
        add("top_k_tied", "top_k", M.SparseTopKCategoricalAccuracy(k=2), tied, k=2)
        add("mean", "mean", M.Mean(), reals(flat_, flat_))
        add("mean_rows", "mean", M.Mean(), reals(three, three))
        add("mean_squared_error", "mean_squared_error", M.MeanSquaredError(), reals(three, three))
        add("mean_squared_error_flat", "mean_squared_error", M.MeanSquaredError(), reals(flat_, column))
        add("mean_absolute_error", "mean_absolute_error", M.MeanAbsoluteError(), reals(three, three))
        add("precision", "precision", M.Precision(), binary(column, column))
        add("precision_flat", "precision", M.Precision(), binary(flat_, column, np.int64))
        add("precision_rows", "precision", M.Precision(thresholds=0.7), binary(three, three), threshold=0.7)
        add("recall", "recall", M.Recall(), binary(column, column, np.int32))
        add("recall_rows", "recall", M.Recall(thresholds=0.2), binary(three, three), threshold=0.2)
        add("auc", "auc", M.AUC(), binary(column, column))
        add("auc_rows", "auc", M.AUC(), binary(three, three, np.int32))
        add("auc_on_thresholds", "auc", M.AUC(), on_thresholds, batches=(40, 60))
        add("root_mean_squared_error", "root_mean_squared_error", M.RootMeanSquaredError(), reals(three, three))
        add("cosine_similarity", "cosine_similarity", M.CosineSimilarity(), reals(three, three))
        add("hinge", "hinge", M.Hinge(), binary(three, three))
        add("kl_divergence", "kl_divergence", M.KLDivergence(), lambda rng, n: (probabilities(rng, (n, 4)), probabilities(rng, (n, 4))))
        add("binary_crossentropy", "binary_crossentropy", M.BinaryCrossentropy(), binary(three, three))
    add = cases.append
    add(metric_case("sparse_sequence", "sparse_categorical_accuracy", M.SparseCategoricalAccuracy(),
                    labelled(lambda n: (n, 4), more=(4,)), False))
    return cases + random_metrics()


def main():
    directory = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    for name, make in (("schedules", schedules), ("optimizers", optimizers), ("losses", losses), ("metrics", metrics)):
        content = make()
        with open(os.path.join(directory, f"training_{name}.json"), "w") as file:
            if isinstance(content, list):
                file.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in content) + "\n]\n")
            else:
                head = ",\n".join(f"{json.dumps(k)}:{json.dumps(content[k], separators=(',', ':'))}"
                                  for k in content if k != "cases")
                rows = ",\n".join(json.dumps(c, separators=(",", ":")) for c in content["cases"])
                file.write("{" + head + ',\n"cases":[\n' + rows + "\n]}\n")


if __name__ == "__main__":
    main()
