#!/usr/bin/env python3
"""Makes ops_*.json: values and gradients of every op, as TensorFlow (with Keras 3) and PyTorch compute them.

    pip install tensorflow-cpu==2.21.0 torch==2.15.0        (Keras 3.15.1 and NumPy 2.4.6 come with them)
    python3 tests/reference/make_ops.py [directory]         (default: the directory of this script)

Running it twice gives identical files: each case draws its inputs from a seed made of its name. Everything is computed
in float64; a float32 case has its inputs rounded to float32 first, so its results are what exact arithmetic would give.
Where both libraries offer an op the two are compared here, and a disagreement stops the script.

A file is a list of cases. tests/backend/test_values.c builds each one and says in its own header how. A case has
    name, op        op is the builder's name without ls_op_
    by              who computed it: "tensorflow", "torch" or "both"
    options         arguments that are no tensors, named as in lockstep/graph.h; enums by their lower-case ends; in shapes
                    and ends -1 is LS_BATCH and -2 LS_REMAINING; "through": the op whose output the scores are
    inputs          name, dtype, shape, data (flat, row-major); batch: axis 0 may be the batch axis
    outputs         dtype, shape, data
    cotangents      one for each output that is differentiated
    gradients       by the name of the input; of the sum of outputs times cotangents
    second          v: a direction for each input; gradients: of the sum of those gradients times v
    whole           false: makes sense with a batch axis only
    tolerance       where the usual one does not do
    steps           of apply only: what the variable and its slots are after each update
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
import torch
import torch.nn.functional as F

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
torch.set_num_threads(1)

FAMILIES = {}
NAMES = set()


# ---- inputs ---------------------------------------------------------------------------------------------------------


class Input:
    """One input. `kind` says how its numbers are drawn; `data` gives them instead."""

    def __init__(self, name, shape, batch=False, kind="normal", dtype="float64", data=None, low=0, high=10):
        self.name, self.shape, self.batch, self.kind, self.dtype = name, tuple(shape), batch, kind, dtype
        self.low, self.high = low, high
        self.data = data

    def draw(self, rng):
        if self.data is not None:
            value = np.array(self.data, dtype=np.float64).reshape(self.shape)
        elif self.kind == "normal":
            value = rng.normal(0.0, 1.5, self.shape)
        elif self.kind == "positive":
            value = rng.uniform(0.1, 3.0, self.shape)
        elif self.kind == "unit":
            value = rng.uniform(0.02, 0.98, self.shape)
        elif self.kind == "distinct":  # no two equal: for extremes, whose gradient depends on ties
            count = int(np.prod(self.shape))
            value = (rng.permutation(count).reshape(self.shape) - count // 2 + 0.25) * 0.37
        elif self.kind == "far":  # deviation 1 around 1000
            value = rng.normal(1000.0, 1.0, self.shape)
        elif self.kind == "integer":
            value = rng.integers(self.low, self.high, self.shape).astype(np.float64)
        elif self.kind == "bool":
            value = rng.integers(0, 2, self.shape).astype(np.float64)
        else:
            raise ValueError(self.kind)
        value = np.round(value, 3) if self.data is None else value
        if self.dtype == "float32":  # what a reader of the file gets from the same decimal
            return value.astype(np.float32)
        return value.astype(self.dtype)


def X(shape, batch=False, name="x", **more):
    return Input(name, shape, batch, **more)


def is_float(array):
    return array.dtype.kind == "f"


# ---- evaluation -----------------------------------------------------------------------------------------------------


def as_list(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def cotangents_for(outputs, rng):
    return [np.round(rng.normal(0.0, 1.0, o.shape), 3) if is_float(o) else None for o in outputs]


def widen(array, native):
    return array.astype(np.float64) if is_float(array) and not native else array


def run_torch(function, arrays, cotangents, directions, native):
    """Outputs, gradients of the float inputs, and their second derivatives along `directions`."""
    tensors = [torch.from_numpy(np.array(widen(a, native))) for a in arrays]
    leaves = [t.requires_grad_() for t in tensors if t.is_floating_point()]
    outputs = as_list(function(*tensors))
    result = [o.detach().numpy() for o in outputs]
    if cotangents is None:
        return result, None, None
    total = sum((o * torch.from_numpy(np.array(c, dtype=np.float64))).sum()
                for o, c in zip(outputs, cotangents) if c is not None and o.requires_grad)
    if not torch.is_tensor(total):
        return result, [None] * len(leaves), None
    gradients = torch.autograd.grad(total, leaves, allow_unused=True, create_graph=directions is not None)
    second = None
    if directions is not None:
        along = sum((g * torch.from_numpy(d)).sum() for g, d in zip(gradients, directions) if g is not None)
        second = [torch.zeros_like(l) for l in leaves]
        if along.requires_grad:
            second = torch.autograd.grad(along, leaves, allow_unused=True, materialize_grads=True)
        second = [s.detach().numpy() for s in second]
    return result, [None if g is None else g.detach().numpy() for g in gradients], second


def run_tensorflow(function, arrays, cotangents, directions, native):
    tensors = [tf.constant(widen(a, native)) for a in arrays]
    leaves = [t for t in tensors if t.dtype.is_floating]
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(leaves)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(leaves)
            outputs = as_list(function(*tensors))
            parts = []
            for o, c in zip(outputs, cotangents or []):
                if c is not None:
                    parts.append(tf.reduce_sum(tf.cast(o, tf.float64) * tf.constant(np.array(c, dtype=np.float64))))
            total = tf.add_n(parts) if parts else None
        gradients = tape.gradient(total, leaves) if total is not None else [None] * len(leaves)
        gradients = [None if g is None else tf.convert_to_tensor(g) for g in gradients]
        if directions is not None:
            along = tf.add_n([tf.reduce_sum(g * d) for g, d in zip(gradients, directions) if g is not None])
    second = None
    if directions is not None:
        second = [s.numpy() for s in outer.gradient(along, leaves, unconnected_gradients="zero")]
    return [o.numpy() for o in outputs], [None if g is None else g.numpy() for g in gradients], second


def agree(name, what, a, b):
    if (a is None) != (b is None):
        raise SystemExit(f"{name}: {what}: only one library has it")
    if a is not None and (a.shape != b.shape or not np.allclose(a, b, rtol=1e-10, atol=1e-12, equal_nan=False)):
        worst = np.argmax(np.abs(a - b)) if a.shape == b.shape else 0
        raise SystemExit(f"{name}: {what} differs at {worst}: tensorflow {a.ravel()[worst]!r}, torch {b.ravel()[worst]!r}")


# ---- writing --------------------------------------------------------------------------------------------------------


def flat(array, dtype):
    array = np.asarray(array)
    if dtype.startswith("float"):
        if not np.all(np.isfinite(array)):
            raise SystemExit(f"not finite: {array}")
        if dtype == "float32":
            return [float("%.9g" % v) for v in array.ravel().tolist()]
        return [float(v) for v in array.ravel().tolist()]
    return [int(v) for v in array.ravel().tolist()]


def tensor_record(array, dtype):
    return {"dtype": dtype, "shape": list(array.shape), "data": flat(array, dtype)}


def input_record(spec, array):
    data = flat(array, spec.dtype)
    if spec.dtype == "float32":  # the shortest decimal of the same float
        data = [float(np.format_float_positional(v, unique=True, trim="0")) for v in array.ravel()]
    return {"name": spec.name, "dtype": spec.dtype, "shape": list(array.shape), "batch": spec.batch, "data": data}


def add(family, record):
    if record["name"] in NAMES:
        raise SystemExit("two cases named " + record["name"])
    NAMES.add(record["name"])
    FAMILIES.setdefault(family, []).append(record)


def case(family, name, op, inputs, options=None, tf=None, torch=None, gradients=True, second=False, forward_check=None,
         whole=True, tolerance=None, out_dtype=None, native=False, only_gradients=None, differentiated=None):
    """Adds one case. `tf` and `torch` are the same op in either library; `forward_check` is one in TensorFlow that has
    no gradient there. `native`: do not widen float32 (casts). `only_gradients`: record those of these inputs.
    `differentiated`: only so many outputs are."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    arrays = [i.draw(rng) for i in inputs]
    floats = [(i, a) for i, a in zip(inputs, arrays) if is_float(a)]
    float_dtype = floats[0][0].dtype if floats else "float64"

    first = tf or torch
    runner = run_tensorflow if tf else run_torch
    outputs, _, _ = runner(first, arrays, None, None, native)
    cotangents = cotangents_for(outputs, rng) if gradients and floats else None
    if cotangents is not None and differentiated is not None:
        cotangents[differentiated:] = [None] * (len(cotangents) - differentiated)
    if cotangents is not None and all(c is None for c in cotangents):
        cotangents = None
    directions = [np.round(rng.normal(0.0, 1.0, a.shape), 3) for _, a in floats] if second else None

    results = []
    if tf:
        results.append(run_tensorflow(tf, arrays, cotangents, directions, native))
    if torch:
        results.append(run_torch(torch, arrays, cotangents, directions, native))
    if len(results) == 2:
        for k, (a, b) in enumerate(zip(results[0][0], results[1][0])):
            agree(name, f"output {k}", a, b)
        for (spec, _), a, b in zip(floats, results[0][1] or [], results[1][1] or []):
            agree(name, f"gradient of {spec.name}", a, b)
        for (spec, _), a, b in zip(floats, results[0][2] or [], results[1][2] or []):
            agree(name, f"second derivative of {spec.name}", a, b)
    if forward_check:
        checked, _, _ = run_tensorflow(forward_check, arrays, None, None, native)
        for k, (a, b) in enumerate(zip(checked, results[0][0])):
            agree(name, f"output {k}", a, b)

    outputs, grads, seconds = results[0]
    record = {"name": name, "op": op, "by": "both" if len(results) == 2 else "tensorflow" if tf else "torch"}
    if options:
        record["options"] = options
    record["inputs"] = [input_record(i, a) for i, a in zip(inputs, arrays)]
    kept = []
    for o in outputs:
        dtype = out_dtype or (float_dtype if is_float(o) else str(o.dtype))
        kept.append(tensor_record(o, dtype))
    record["outputs"] = kept
    if cotangents is not None:
        record["cotangents"] = [None if c is None else flat(c, "float64") for c in cotangents]
        record["gradients"] = {}
        for (spec, a), g in zip(floats, grads):
            if only_gradients is None or spec.name in only_gradients:
                record["gradients"][spec.name] = flat(np.zeros(a.shape) if g is None else g, spec.dtype)
    if second:
        record["second"] = {
            "v": {spec.name: flat(d, "float64") for (spec, _), d in zip(floats, directions)},
            "gradients": {spec.name: flat(s, spec.dtype) for (spec, _), s in zip(floats, seconds)},
        }
    if not whole:
        record["whole"] = False
    if tolerance:
        record["tolerance"] = tolerance
    add(family, record)


def write(directory):
    for family, cases in FAMILIES.items():
        path = os.path.join(directory, f"ops_{family}.json")
        with open(path, "w", encoding="ascii") as out:
            out.write("[\n")
            out.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
            out.write("\n]\n")
        print(f"{path}: {len(cases)} cases, {os.path.getsize(path)} bytes")


# ---- elementwise ----------------------------------------------------------------------------------------------------

SPECIAL = [0.0, -0.5, 0.5, -1.0, 1.0, 2.0, -2.0, 3.0, -7.25, 9.5, 1e-3, -1e-3]
EXTREME = [-800.0, -50.0, -37.5, -20.5, -6.0, -1e-9, 1e-9, 6.0, 20.5, 37.5, 50.0, 800.0]


def unary(name, tf_op, torch_op, kind="normal", special=SPECIAL, extreme=None, options=None, second=True, integer=False,
          label=None, float32=True):
    label = label or name
    case("elementwise", label, name, [X((7, 5), True, kind=kind)], options, tf_op, torch_op, second=second)
    if special:
        case("elementwise", label + "_special", name, [X((len(special),), True, data=special)], options, tf_op, torch_op)
    if extreme:
        case("elementwise", label + "_extreme", name, [X((len(extreme),), True, data=extreme)], options, tf_op, torch_op)
    if float32:
        case("elementwise", label + "_float32", name, [X((33,), True, kind=kind, dtype="float32")], options, tf_op,
             torch_op)
    case("elementwise", label + "_scalar", name, [X((), kind=kind)], options, tf_op, torch_op)
    if integer:
        for dtype in ("int32", "int64"):
            case("elementwise", f"{label}_{dtype}", name, [X((7, 3), True, kind="integer", dtype=dtype, low=-9)], options,
                 tf_op, torch_op)


def keras_elu(alpha):
    return lambda x: keras.ops.elu(x, alpha)


def elementwise():
    unary("neg", tf.negative, torch.neg, second=False, integer=True)
    unary("abs", tf.abs, torch.abs, second=False, integer=True)
    unary("square", tf.square, torch.square, integer=True)
    case("elementwise", "sign", "sign", [X((len(SPECIAL),), True, data=SPECIAL)], None, tf.sign, torch.sign)
    for dtype in ("int32", "int64"):
        case("elementwise", f"sign_{dtype}", "sign", [X((9,), True, kind="integer", dtype=dtype, low=-2, high=3)], None,
             tf.sign, torch.sign)
    unary("exp", tf.exp, torch.exp, extreme=[-745.0, -708.0, -100.0, -1e-12, 1e-12, 30.0, 700.0])
    unary("log", tf.math.log, torch.log, kind="positive", special=None, extreme=[1e-300, 1e-9, 0.5, 1.0, 1e9, 1e300])
    unary("sqrt", tf.sqrt, torch.sqrt, kind="positive", special=None, extreme=[1e-30, 1e-9, 0.5, 1.0, 1e9, 1e30])
    unary("rsqrt", tf.math.rsqrt, torch.rsqrt, kind="positive", special=None, extreme=[1e-20, 1e-9, 0.5, 1.0, 1e9, 1e30])
    unary("erf", tf.math.erf, torch.erf, extreme=[-30.0, -6.0, -3.5, -1e-9, 1e-9, 0.84375, 1.25, 2.86, 6.0, 30.0])
    unary("relu", tf.nn.relu, torch.relu)
    unary("sigmoid", tf.sigmoid, torch.sigmoid, extreme=EXTREME)
    unary("tanh", tf.tanh, torch.tanh, extreme=EXTREME)
    # PyTorch's softplus is the identity above 20, which is off by 2e-9 there.
    unary("softplus", tf.math.softplus, None, extreme=EXTREME)
    for limit in (6.0, 0.5):
        unary("capped_relu", lambda x: tf.minimum(tf.nn.relu(x), tf.cast(limit, x.dtype)), None, options={"limit": limit},
              label=f"capped_relu_{limit}", second=False, float32=limit == 6.0)
    unary("silu", None, F.silu, extreme=EXTREME)
    # TensorFlow's gelu and leaky relu round their constants to float32 whatever the type, an error of up to 5e-9.
    for form, label in ((False, "gelu"), (True, "gelu_tanh")):
        unary("gelu", None, lambda x: F.gelu(x, approximate="tanh" if form else "none"), options={"tanh_form": form}, label=label,
              extreme=[-30.0, -8.0, -5.0, -1e-9, 1e-9, 5.0, 8.0, 30.0])
    for slope in (0.2, 0.01):
        unary("leaky_relu", None, lambda x: F.leaky_relu(x, slope),
              options={"slope": slope}, label=f"leaky_relu_{slope}", float32=slope == 0.2)
    for alpha in (1.0, 0.5, 2.0):
        unary("elu", keras_elu(alpha), lambda x: F.elu(x, alpha), options={"alpha": alpha}, label=f"elu_{alpha}",
              extreme=[-800.0, -40.0, -1e-9, 1e-9, 800.0], float32=alpha == 0.5)
    # On a bound TensorFlow's gradient passes and PyTorch's does not.
    for low, high in ((-1.0, 1.0), (0.0, 6.0), (-0.5, 2.0)):
        unary("clip", lambda x: tf.clip_by_value(x, tf.cast(low, x.dtype), tf.cast(high, x.dtype)), None, options={"low": low, "high": high}, label=f"clip_{low}_{high}",
              second=False, float32=low == -1.0)
    for dtype in ("int32", "int64"):
        case("elementwise", f"clip_{dtype}", "clip", [X((9,), True, kind="integer", dtype=dtype, low=-9)],
             {"low": -3.0, "high": 4.0}, None, lambda x: torch.clamp(x, -3, 4))
    unary("scale", lambda x: x * -2.5, lambda x: x * -2.5, options={"factor": -2.5}, second=False, float32=False)
    unary("shift", lambda x: x + 3.25, lambda x: x + 3.25, options={"amount": 3.25}, second=False, float32=False)
    binary_ops()
    relations()
    selections()
    casts()


def pairs(kind_a="normal", kind_b="normal", dtype="float64", low=0):
    """Shapes that broadcast, in every way a per-sample and a whole tensor can meet."""
    def pair(a, b, batch_a=False, batch_b=False):
        return [X(a, batch_a, "a", kind=kind_a, dtype=dtype, low=low), X(b, batch_b, "b", kind=kind_b, dtype=dtype, low=low)]

    return {
        "same": pair((7, 3), (7, 3), True, True),
        "whole": pair((5, 3), (5, 3)),
        "bias": pair((5, 2, 3), (3,), True),
        "left": pair((3,), (5, 2, 3), False, True),
        "column": pair((3, 5, 2), (5, 1), True),
        "both": pair((5, 1, 3), (1, 2, 1), True),
        "one_sample": pair((1, 3), (1, 3), True, True),
        "kept_axes": pair((5, 3, 2), (5, 1, 1), True, True),
        "scalar": pair((7, 3), (), True),
        "scalar_left": pair((), (7, 3), False, True),
        "scalars": pair((), ()),
        "whole_outer": pair((5, 1), (1, 3)),
        "rank": pair((3,), (2, 1, 5, 1)),
    }


def both(function):
    return {"tf": function, "torch": function}


def binary_ops():
    table = {
        "add": (both(lambda a, b: a + b), "normal", "normal", True),
        "sub": (both(lambda a, b: a - b), "normal", "normal", True),
        "mul": (both(lambda a, b: a * b), "normal", "normal", True),
        "div": (both(lambda a, b: a / b), "normal", "positive", False),
        "pow": ({"tf": tf.pow, "torch": torch.pow}, "positive", "normal", False),
        "maximum": ({"tf": tf.maximum, "torch": torch.maximum}, "normal", "normal", True),
        "minimum": ({"tf": tf.minimum, "torch": torch.minimum}, "normal", "normal", True),
    }
    for op, (functions, kind_a, kind_b, integer) in table.items():
        for label, inputs in pairs(kind_a, kind_b).items():
            case("elementwise", f"{op}_{label}", op, inputs, second=label in ("same", "bias"), **functions)
        case("elementwise", f"{op}_float32", op, pairs(kind_a, kind_b, "float32")["bias"], **functions)
        if integer:
            for dtype in ("int32", "int64"):
                for label in ("bias", "scalar_left"):
                    case("elementwise", f"{op}_{label}_{dtype}", op, pairs("integer", "integer", dtype, -9)[label],
                         **functions)
    ties_a, ties_b = [1.0, 2.0, -3.0, 0.0, 5.0], [1.0, 1.0, -3.0, 0.0, 6.0]
    for op, function in (("maximum", tf.maximum), ("minimum", tf.minimum)):
        # Equal: TensorFlow gives the gradient to a, PyTorch half to each.
        case("elementwise", f"{op}_ties", op, [X((5,), True, "a", data=ties_a), X((5,), True, "b", data=ties_b)],
             tf=function)
    case("elementwise", "div_negative", "div", [X((7, 3), True, "a"), X((7, 3), True, "b", data=np.linspace(-3.0, -0.2, 21))],
         **both(lambda a, b: a / b))
    # A negative base: TensorFlow's gradient of the exponent is 0, PyTorch's is not a number.
    case("elementwise", "pow_negative_base", "pow",
         [X((6,), True, "a", data=[-1.5, -2.0, -0.5, -3.0, -1.0, -2.5]), X((6,), True, "b", data=[2, 3, 1, 0, -1, -2])],
         tf=tf.pow)
    # A zero base: PyTorch's gradients are finite, TensorFlow's of 0^0 is not.
    case("elementwise", "pow_zero_base", "pow",
         [X((4,), True, "a", data=[0.0, 0.0, 0.0, 0.0]), X((4,), True, "b", data=[0, 1, 2, 3.5])], torch=torch.pow)
    case("elementwise", "pow_zero_exponent", "pow",
         [X((3,), True, "a", data=[1.5, 1.0, 7.0]), X((), False, "b", data=[0.0])], tf=tf.pow, torch=torch.pow)


RELATIONS = {
    "equal": (tf.equal, torch.eq), "not_equal": (tf.not_equal, torch.ne), "less": (tf.less, torch.lt),
    "less_equal": (tf.less_equal, torch.le), "greater": (tf.greater, torch.gt),
    "greater_equal": (tf.greater_equal, torch.ge),
}


def relations():
    for relation, (tf_op, torch_op) in RELATIONS.items():
        for dtype in ("float64", "float32", "int32", "int64"):
            inputs = [X((7, 3), True, "a", kind="integer", dtype=dtype, low=-2, high=3),
                      X((3,), False, "b", kind="integer", dtype=dtype, low=-2, high=3)]
            case("elementwise", f"compare_{relation}_{dtype}", "compare", inputs, {"relation": relation}, tf_op, torch_op)
        case("elementwise", f"compare_{relation}_scalar", "compare",
             [X((5,), True, "a", data=[-1.0, 0.0, 0.5, -0.0, 2.0]), X((), False, "b", data=[0.0])], {"relation": relation},
             tf_op, torch_op)


def selections():
    def condition(shape, batch=False):
        return X(shape, batch, "condition", kind="bool", dtype="bool")

    shapes = {
        "same": ((7, 5), (7, 5), (7, 5), (1, 1, 1)),
        "whole": ((3, 5), (3, 5), (3, 5), (0, 0, 0)),
        "row_condition": ((5,), (7, 5), (7, 5), (0, 1, 1)),
        "sample_condition": ((7, 1), (7, 5), (5,), (1, 1, 0)),
        "scalar_branch": ((7, 5), (), (7, 5), (1, 0, 1)),
        "scalar_condition": ((), (7, 3), (3,), (0, 1, 0)),
        "outer": ((7, 1, 1), (5, 1), (3,), (1, 0, 0)),
    }
    for label, (c, a, b, batch) in shapes.items():
        case("elementwise", f"select_{label}", "select",
             [condition(c, bool(batch[0])), X(a, bool(batch[1]), "a"), X(b, bool(batch[2]), "b")], None, tf.where,
             torch.where)
    for dtype in ("float32", "int32", "int64", "uint8", "bool"):
        kind = {"float32": "normal", "bool": "bool"}.get(dtype, "integer")
        case("elementwise", f"select_{dtype}", "select",
             [condition((7, 3), True), X((7, 3), True, "a", kind=kind, dtype=dtype), X((3,), False, "b", kind=kind, dtype=dtype)],
             None, tf.where, torch.where)


def casts():
    dtypes = ("float32", "float64", "int32", "int64", "uint8", "bool")
    for source in dtypes:
        for target in dtypes:
            if source == target:
                continue
            signed = source != "uint8" and target != "uint8"
            if source == "bool":
                data = [0, 1, 1, 0, 1]
            elif source.startswith("float"):
                data = [0.0, 0.25, 1.0, 2.75, 3.5, 100.0, 255.0] + ([-0.25, -1.0, -2.75, -3.5, -1000.5] if signed else [])
            else:
                data = [0, 1, 2, 100, 255] + ([-1, -2, -1000] if signed else [])
            case("elementwise", f"cast_{source}_{target}", "cast", [X((len(data),), True, dtype=source, data=data)],
                 {"dtype": target}, lambda x: tf.cast(x, target), lambda x: x.to(getattr(torch, target)), native=True,
                 out_dtype=target)


# ---- shapes ---------------------------------------------------------------------------------------------------------


def shape():
    def reshape(label, source, target, batch=False, whole=True):
        numbers = [-1 if s in (-1, -2) else s for s in target]
        case("shape", "reshape_" + label, "reshape", [X(source, batch)], {"shape": list(target)},
             lambda x: tf.reshape(x, numbers), lambda x: torch.reshape(x, numbers), whole=whole)

    reshape("whole", (3, 5, 2), (6, 5))
    reshape("remaining", (3, 5, 2), (2, -2, 3))
    reshape("batch", (7, 3, 5), (-1, 5, 3), True)
    reshape("batch_flat", (7, 3, 5, 1), (-1, 15), True)
    reshape("to_scalar", (1, 1), ())
    reshape("from_scalar", (), (1, 1, 1))
    case("shape", "reshape_batch_remaining", "reshape", [X((7, 3, 4), True)], {"shape": [-1, 2, -2]},
         lambda x: tf.reshape(x, (7, 2, 6)), lambda x: torch.reshape(x, (7, 2, 6)))
    case("shape", "reshape_int32", "reshape", [X((7, 6), True, kind="integer", dtype="int32")], {"shape": [-1, 2, 3]},
         lambda x: tf.reshape(x, (7, 2, 3)))

    case("shape", "flatten_batch", "flatten", [X((7, 5, 3, 1), True)], None, lambda x: tf.reshape(x, (7, 15)),
         lambda x: torch.flatten(x, 1), whole=False)
    case("shape", "flatten_vector", "flatten", [X((7,), True)], None, lambda x: tf.reshape(x, (7, 1)), whole=False)
    case("shape", "flatten_whole", "flatten", [X((3, 5, 2))], None, lambda x: tf.reshape(x, (-1,)), torch.flatten)

    for label, source, order, batch in (
            ("matrix", (3, 5), (1, 0), False), ("batch", (7, 3, 5), (0, 2, 1), True),
            ("three", (3, 5, 7), (2, 0, 1), False), ("image", (7, 3, 5, 2), (0, 3, 1, 2), True),
            ("five", (2, 3, 1, 5, 2), (4, 2, 0, 3, 1), False)):
        case("shape", "transpose_" + label, "transpose", [X(source, batch)], {"permutation": list(order)},
             lambda x: tf.transpose(x, order), lambda x: x.permute(order))
    case("shape", "transpose_negative", "transpose", [X((7, 3, 5), True)], {"permutation": [0, -1, -2]},
         lambda x: tf.transpose(x, (0, 2, 1)))
    case("shape", "transpose_uint8", "transpose", [X((7, 3, 5), True, kind="integer", dtype="uint8", high=256)],
         {"permutation": [0, 2, 1]}, lambda x: tf.transpose(x, (0, 2, 1)))

    for label, source, target, batch in (
            ("scalar", (), (3, 5), False), ("row", (5,), (3, 5), False), ("column", (3, 1), (3, 5), False),
            ("rank", (5, 1), (3, 5, 7), False), ("batch", (7, 1, 3), (-1, 5, 3), True)):
        actual = tuple(7 if t == -1 else t for t in target)
        case("shape", "broadcast_" + label, "broadcast", [X(source, batch)], {"shape": list(target)},
             lambda x: tf.broadcast_to(x, actual), lambda x: torch.broadcast_to(x, actual))

    for label, shapes, axis, batch in (
            ("last", ((7, 3), (7, 5), (7, 1)), 1, True), ("negative", ((7, 3), (7, 5)), -1, True),
            ("middle", ((7, 2, 3), (7, 1, 3)), 1, True), ("first", ((3, 5), (1, 5), (2, 5)), 0, False),
            ("vector", ((3,), (5,)), 0, False), ("single", ((3, 5),), 1, False)):
        names = "abcd"
        case("shape", "concat_" + label, "concat", [X(s, batch, names[k]) for k, s in enumerate(shapes)], {"axis": axis},
             lambda *parts: tf.concat(parts, axis), lambda *parts: torch.cat(parts, axis))
    case("shape", "concat_bool", "concat", [X((7, 3), True, "a", kind="bool", dtype="bool"),
                                           X((7, 1), True, "b", kind="bool", dtype="bool")], {"axis": 1},
         lambda *parts: tf.concat(parts, 1))

    for label, source, begin, size, batch in (
            ("rows", (7, 5), (2, 0), (3, -1), False), ("columns", (7, 5), (0, 1), (-1, 3), True),
            ("corner", (7, 5, 3), (0, 4, 1), (-1, 1, 2), True), ("one", (5,), (3,), (1,), False),
            ("all", (3, 5), (0, 0), (-1, -1), False)):
        case("shape", "slice_" + label, "slice", [X(source, batch)], {"begin": list(begin), "size": list(size)},
             lambda x: tf.slice(x, begin, size), second=label == "corner")
    case("shape", "slice_int64", "slice", [X((7, 5), True, kind="integer", dtype="int64")],
         {"begin": [0, 2], "size": [-1, 2]}, lambda x: tf.slice(x, (0, 2), (-1, 2)))

    for label, source, begin, end, step in (
            ("steps", (7, 5), (0, 0), (7, 5), (2, 3)), ("offset", (7, 5), (1, 2), (6, 5), (3, 1)),
            ("vector", (33,), (4,), (30,), (7,)), ("three", (5, 3, 7), (1, 0, 2), (5, 2, 7), (2, 1, 3))):
        cut = tuple(slice(b, e, s) for b, e, s in zip(begin, end, step))
        case("shape", "strided_slice_" + label, "strided_slice", [X(source)],
             {"begin": list(begin), "end": list(end), "step": list(step)}, lambda x: x[cut], lambda x: x[cut])
    case("shape", "strided_slice_batch", "strided_slice", [X((7, 6, 5), True)],
         {"begin": [0, 1, 0], "end": [-1, 6, 4], "step": [1, 2, 3]}, lambda x: x[:, 1:6:2, 0:4:3])

    for label, source, axis, sizes, batch in (
            ("last", (7, 6), 1, (1, 2, 3), True), ("negative", (7, 5, 3), -1, (1, 2), True),
            ("middle", (7, 5, 3), 1, (2, 3), True), ("first", (7, 3), 0, (3, 4), False), ("whole", (3, 4), 1, (2, 2), False)):
        case("shape", "split_" + label, "split", [X(source, batch)], {"axis": axis, "sizes": list(sizes)},
             lambda x: tf.split(x, sizes, axis), lambda x: torch.split(x, sizes, axis))

    for label, source, before, after, value, batch in (
            ("zeros", (7, 3, 5), (0, 1, 0), (0, 2, 3), 0.0, True), ("value", (7, 3), (0, 2), (0, 1), -1.5, True),
            ("first", (3, 5), (1, 0), (2, 1), 0.0, False), ("nothing", (3, 5), (0, 0), (0, 0), 7.0, False),
            ("vector", (3,), (2,), (0,), 2.0, False), ("image", (2, 3, 5, 2), (0, 1, 2, 0), (0, 3, 0, 0), 0.25, True)):
        case("shape", "pad_" + label, "pad", [X(source, batch)],
             {"before": list(before), "after": list(after), "value": value},
             lambda x: tf.pad(x, list(zip(before, after)), constant_values=value), second=label == "image")
    case("shape", "pad_int32", "pad", [X((7, 3), True, kind="integer", dtype="int32")],
         {"before": [0, 1], "after": [0, 1], "value": -4.0}, lambda x: tf.pad(x, [(0, 0), (1, 1)], constant_values=-4))

    gathers()
    for dtype in ("int32", "int64"):
        case("shape", f"one_hot_{dtype}", "one_hot", [X((7, 3), True, "indices", kind="integer", dtype=dtype, high=5)],
             {"dtype": "float64", "depth": 5}, lambda i: tf.one_hot(i, 5, dtype=tf.float64))
    case("shape", "one_hot_float32", "one_hot", [X((7,), True, "indices", kind="integer", dtype="int64", high=3)],
         {"dtype": "float32", "depth": 3}, lambda i: tf.one_hot(i, 3, dtype=tf.float64), out_dtype="float32")
    case("shape", "one_hot_outside", "one_hot", [X((5,), True, "indices", dtype="int32", data=[0, -1, 2, 3, 7])],
         {"dtype": "float64", "depth": 3}, lambda i: tf.one_hot(i, 3, dtype=tf.float64))
    case("shape", "one_hot_scalar", "one_hot", [X((), False, "indices", dtype="int64", data=[2])],
         {"dtype": "int32", "depth": 4}, lambda i: tf.one_hot(i, 4, dtype=tf.int32))
    batches()


def gathers():
    def gather(label, source, indices, axis, batch_x=False, batch_i=False, dtype="int32", second=False, table="float64"):
        size = source[axis]
        kind = "normal" if table.startswith("float") else "integer"
        case("shape", "gather_" + label, "gather",
             [X(source, batch_x, kind=kind, dtype=table),
              X(indices, batch_i, "indices", kind="integer", dtype=dtype, high=size)], {"axis": axis},
             lambda x, i: tf.gather(x, i, axis=axis), second=second)

    gather("embedding", (5, 3), (7, 5), 0, batch_i=True, second=True)
    gather("embedding_int64", (5, 3), (7,), 0, batch_i=True, dtype="int64")
    gather("embedding_float32", (5, 3), (7, 3), 0, batch_i=True, table="float32")
    gather("vector", (5,), (7, 3), 0, batch_i=True)
    gather("table_int64", (5, 2), (7,), 0, batch_i=True, table="int64")
    gather("axis1", (7, 5, 3), (4,), 1, batch_x=True)
    gather("axis1_matrix", (7, 5, 3), (2, 3), 1, batch_x=True, dtype="int64")
    gather("last", (7, 3, 5), (7,), -1, batch_x=True)
    gather("scalar_index", (5, 3), (), 0)
    gather("whole", (5, 3, 2), (2, 2), 1)


def batches():
    same = lambda x: x * 1.0
    case("shape", "gather_batch", "gather_batch", [X((7, 3), True)], None, same, whole=False)
    case("shape", "scatter_batch", "scatter_batch", [X((7, 5, 3), True)], None, same, whole=False)
    case("shape", "count", "count", [X((7, 3), True)], None, lambda x: x * 7.0, whole=False)
    case("shape", "count_one", "count", [X((1, 3), True)], None, lambda x: x * 1.0, whole=False)
    case("shape", "stop_gradient", "stop_gradient", [X((7, 3), True)], None, lambda x: x * tf.stop_gradient(x),
         lambda x: x * x.detach())
    case("shape", "fill", "fill", [X((7, 3), True)], {"shape": [-1, 3], "value": -2.25},
         lambda x: x * tf.fill((7, 3), tf.constant(-2.25, tf.float64)))
    case("shape", "fill_scalar", "fill", [X((7, 3), True)], {"shape": [], "value": 4.0}, lambda x: x * 4.0)


# ---- reductions -----------------------------------------------------------------------------------------------------

REDUCTIONS = {
    "reduce_sum": (tf.reduce_sum, torch.sum, "normal"), "reduce_mean": (tf.reduce_mean, torch.mean, "normal"),
    "reduce_max": (tf.reduce_max, torch.amax, "distinct"), "reduce_min": (tf.reduce_min, torch.amin, "distinct"),
}


def reduce():
    for op, (tf_op, torch_op, kind) in REDUCTIONS.items():
        def one(label, source, axes, keep, batch=True, dtype="float64", kind=kind, second=False):
            real = tuple(range(len(source))) if axes == "all" else tuple(axes)
            number = dtype.startswith("int")
            case("reduce", f"{op}_{label}", op, [X(source, batch, kind="integer" if number else kind, dtype=dtype, low=-9)],
                 {"axes": axes, "keepdims": keep}, lambda x: tf_op(x, axis=real, keepdims=keep),
                 None if number or not real else lambda x: torch_op(x, dim=real, keepdim=keep), second=second)

        smooth = op in ("reduce_sum", "reduce_mean")
        for keep in (False, True):
            end = "_keep" if keep else ""
            one("0" + end, (7, 5), [0], keep)
            one("1" + end, (7, 5), [1], keep, second=smooth and keep)
            one("middle" + end, (5, 3, 2), [1], keep)
            one("0_2" + end, (5, 3, 2), [0, 2], keep)
            one("1_2" + end, (5, 3, 2), [1, 2], keep)
            one("all" + end, (5, 3, 2), "all", keep, second=smooth and keep)
            one("negative" + end, (5, 1, 3), [-1, -2], keep)
        one("all_vector", (7,), "all", False)
        one("one_sample", (1, 5), [0], False)
        one("whole", (3, 5), [0], True, batch=False)
        one("scalar", (), "all", False, batch=False)
        one("long", (257,), "all", False)
        one("float32", (7, 33), [1], False, dtype="float32")
        one("batch_float32", (33, 3), [0], False, dtype="float32")
        if op != "reduce_mean":
            one("int32", (7, 3), [1], False, dtype="int32")
            one("int64_batch", (7, 3), [0], True, dtype="int64")
    ties = [1.0, 3.0, 3.0, -2.0, -2.0, -2.0, 0.0, 0.0, 5.0, 5.0, 5.0, 5.0]
    for op in ("reduce_max", "reduce_min"):  # equals share the gradient
        tf_op, torch_op, _ = REDUCTIONS[op]
        for axes in ([1], [0], [0, 1]):
            case("reduce", f"{op}_ties_{''.join(map(str, axes))}", op, [X((3, 4), True, data=ties)],
                 {"axes": axes, "keepdims": False}, lambda x: tf_op(x, axis=axes), lambda x: torch_op(x, dim=axes))
    orders()
    for op, tf_op, torch_op in (("softmax", tf.nn.softmax, torch.softmax), ("log_softmax", tf.nn.log_softmax, torch.log_softmax)):
        for label, source, axis, batch in (
                ("last", (7, 5), -1, True), ("middle", (5, 3, 2), 1, True), ("third", (2, 3, 5), 2, True),
                ("first", (5, 3), 0, False), ("one", (7, 1), 1, True), ("vector", (33,), 0, False)):
            case("reduce", f"{op}_{label}", op, [X(source, batch)], {"axis": axis}, lambda x: tf_op(x, axis=axis),
                 lambda x: torch_op(x, axis), second=label in ("last", "middle"))
        case("reduce", f"{op}_extreme", op,
             [X((4, 3), True, data=[1000, 999, -1000, -800, -801, -800, 0, 0, 0, 710, -710, 30])], {"axis": -1},
             lambda x: tf_op(x, axis=-1), lambda x: torch_op(x, -1))
        case("reduce", f"{op}_float32", op, [X((7, 10), True, dtype="float32")], {"axis": -1},
             lambda x: tf_op(x, axis=-1), lambda x: torch_op(x, -1))


def orders():
    def argmax(label, source, axis, batch=True, **more):
        case("reduce", "argmax_" + label, "argmax", [X(source, batch, **more)], {"axis": axis},
             lambda x: tf.argmax(x, axis=axis, output_type=tf.int64))

    argmax("last", (7, 5), -1)
    argmax("middle", (7, 5, 3), 1)
    argmax("first", (5, 3), 0, False)
    argmax("vector", (33,), 0, False)
    argmax("one", (7, 1), 1)
    argmax("ties", (3, 4), 1, data=[1, 3, 3, 2, -1, -1, -1, -1, 0, 0, 5, 5])
    argmax("float32", (7, 5), 1, dtype="float32")
    argmax("int32", (7, 5), 1, kind="integer", dtype="int32", low=-3, high=4)
    argmax("int64", (7, 5), 1, kind="integer", dtype="int64", low=-3, high=4)

    def top(label, source, k, batch=True, **more):
        values = lambda x: tf.math.top_k(x, k).values
        indices = lambda x: tf.cast(tf.math.top_k(x, k).indices, tf.int64)
        case("reduce", "top_k_" + label, "top_k", [X(source, batch, **more)], {"k": k}, values)
        case("reduce", "top_k_indices_" + label, "top_k_indices", [X(source, batch, **more)], {"k": k}, indices)

    top("some", (7, 5), 3, kind="distinct")
    top("one", (7, 5), 1, kind="distinct")
    top("all", (5, 2, 3), 3, kind="distinct")
    top("vector", (33,), 5, False, kind="distinct")
    top("ties", (3, 4), 2, data=[1, 3, 3, 2, -1, -1, -1, -1, 0, 0, 5, 5])
    top("float32", (7, 5), 2, dtype="float32", kind="distinct")
    top("int32", (7, 5), 4, kind="integer", dtype="int32", low=-3, high=4)


# ---- products -------------------------------------------------------------------------------------------------------


def matmul():
    def product(label, a, b, ta=False, tb=False, batch_a=False, batch_b=False, dtype="float64", second=False):
        def in_torch(x, y):
            return torch.matmul(x.transpose(-1, -2) if ta else x, y.transpose(-1, -2) if tb else y)

        options = {"transpose_a": ta, "transpose_b": tb}
        case("matmul", "matmul_" + label, "matmul",
             [X(a, batch_a, "a", dtype=dtype), X(b, batch_b, "b", dtype=dtype)], options,
             lambda x, y: tf.matmul(x, y, transpose_a=ta, transpose_b=tb), in_torch, second=second)

    for ta in (False, True):
        for tb in (False, True):
            end = ("_ta" if ta else "") + ("_tb" if tb else "")
            left = lambda *lead: (*lead, 3, 5) if ta else (*lead, 5, 3)
            right = lambda *lead: (*lead, 7, 3) if tb else (*lead, 3, 7)
            product("whole" + end, left(), right(), ta, tb, second=True)
            product("batched" + end, left(2), right(2), ta, tb, True, True, second=True)
            product("batched_by_whole" + end, left(2), right(), ta, tb, True, second=True)
            product("whole_by_batched" + end, left(), right(2), ta, tb, False, True)
            product("broadcast" + end, left(2, 1), right(3), ta, tb, True)
            product("broadcast_both" + end, left(2, 1), right(2, 3), ta, tb, True, True)
            product("ones" + end, (1, 1), (1, 1), ta, tb)
    product("dense", (7, 5), (5, 3), batch_a=True, second=True)
    product("dense_tb", (7, 5), (3, 5), tb=True, batch_a=True, second=True)
    product("dense_one_sample", (1, 5), (5, 3), batch_a=True)
    product("dense_time", (3, 2, 5), (5, 3), batch_a=True)
    product("batch_contracted", (7, 5), (7, 3), ta=True, batch_a=True, batch_b=True, second=True)
    product("batch_contracted_tb", (7, 5), (3, 7), ta=True, tb=True)
    product("wide", (1, 33), (33, 2))
    product("dense_float32", (7, 33), (33, 3), batch_a=True, dtype="float32")
    product("batched_float32", (2, 5, 7), (2, 3, 7), tb=True, batch_a=True, batch_b=True, dtype="float32")


# ---- images ---------------------------------------------------------------------------------------------------------


def same_padding(size, window, stride, dilation=1):
    """TensorFlow's rule: (before, after)."""
    out = -(-size // stride)
    total = max((out - 1) * stride + (window - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


def pads(padding, pad, source, window, stride, dilation=(1, 1)):
    """top, bottom, left, right"""
    if padding == "same":
        top, bottom = same_padding(source[1], window[0], stride[0], dilation[0])
        left, right = same_padding(source[2], window[1], stride[1], dilation[1])
        return top, bottom, left, right
    return tuple(pad) if padding == "explicit" else (0, 0, 0, 0)


def conv(label, source, window, out, stride=(1, 1), dilation=(1, 1), groups=1, padding="valid", pad=(0, 0, 0, 0),
         dtype="float64", second=False, batch=True):
    top, bottom, left, right = pads(padding, pad, source, window, stride, dilation)

    def in_torch(x, k):
        x = F.pad(x.permute(0, 3, 1, 2), (left, right, top, bottom))
        return F.conv2d(x, k.permute(3, 2, 0, 1), None, stride, 0, dilation, groups).permute(0, 2, 3, 1)

    def in_tensorflow(x, k):
        where = [(0, 0), (pad[0], pad[1]), (pad[2], pad[3]), (0, 0)] if padding == "explicit" else padding.upper()
        if groups == 1:
            return tf.nn.conv2d(x, k, stride, where, dilations=dilation)
        parts = zip(tf.split(x, groups, -1), tf.split(k, groups, -1))
        return tf.concat([tf.nn.conv2d(p, q, stride, where, dilations=dilation) for p, q in parts], -1)

    plain = dilation == (1, 1)  # TensorFlow has no gradient of dilated convolutions on CPU
    options = {"stride": list(stride), "dilation": list(dilation), "groups": groups, "padding": padding}
    if padding == "explicit":
        options["pad"] = list(pad)
    case("image", "conv2d_" + label, "conv2d",
         [X(source, batch, dtype=dtype), X((*window, source[3] // groups, out), False, "kernel", dtype=dtype)], options,
         in_tensorflow if plain and not second else None, in_torch, forward_check=in_tensorflow, second=second)


def pool(op, label, source, window, stride=None, padding="valid", pad=(0, 0, 0, 0), count_padding=False, batch=True,
         dtype="float64", data=None):
    step = stride or window
    top, bottom, left, right = pads(padding, pad, source, window, step)
    largest = op == "max_pool2d"

    def in_torch(x):
        x = x.permute(0, 3, 1, 2)
        around = (left, right, top, bottom)
        if largest:
            y = F.max_pool2d(F.pad(x, around, value=-float("inf")), window, step)
        else:
            y = F.avg_pool2d(F.pad(x, around), window, step)
            if not count_padding:
                y = y / F.avg_pool2d(F.pad(torch.ones_like(x), around), window, step)
        return y.permute(0, 2, 3, 1)

    def in_tensorflow(x):
        return (tf.nn.max_pool2d if largest else tf.nn.avg_pool2d)(x, window, step, padding.upper())

    options = {"window": list(window), "padding": padding}
    if stride:
        options["stride"] = list(stride)
    if padding == "explicit":
        options["pad"] = list(pad)
    if count_padding:
        options["count_padding"] = True
    tensorflow = padding != "explicit" and not (count_padding and padding == "same")
    case("image", f"{op}_{label}", op, [X(source, batch, kind="distinct" if largest else "normal", dtype=dtype, data=data)],
         options, in_tensorflow if tensorflow else None, in_torch, second=not largest and label == "same_overlap")


def warp(label, interpolation, fill_mode, source, size=None, fill_value=0.0, dtype="float64"):
    """Keras's affine_transform, which has no size. Its positions are float32: numbers are multiples of 1/8, so that both
    are exact. Its gradient is an approximation."""
    rng = np.random.default_rng(zlib.crc32(label.encode()))
    matrices = rng.integers(-16, 17, (source[0], 6)) / 8
    matrices[:, [2, 5]] *= 4
    matrices[0] = [1, 0, -0.5, 0, 1, 0.5]  # halves

    def transform(x, matrix):
        return tf.raw_ops.ImageProjectiveTransformV3(
            images=x, transforms=tf.cast(tf.pad(matrix, [[0, 0], [0, 2]]), tf.float32), output_shape=size or source[1:3],
            fill_value=fill_value, interpolation=interpolation.upper(), fill_mode=fill_mode.upper())

    def in_tensorflow(x, matrix):
        """The same as a product, whose gradient is exact: a column of each pixel."""
        pixels, outputs = source[1] * source[2], []
        units = tf.reshape(tf.eye(pixels + 1, pixels, dtype=tf.float64), (pixels + 1, *source[1:3], 1))
        for image, m in zip(tf.unstack(x), tf.unstack(tf.stop_gradient(matrix))):
            columns = transform(units, tf.repeat(m[None], pixels + 1, 0))
            offset = columns[-1:]
            y = tf.tensordot(columns[:-1] - offset, tf.reshape(image, (pixels, source[3])), [[0], [0]])
            outputs.append(y[:, :, 0] + offset[0])
        return tf.stack(outputs)

    options = {"interpolation": interpolation, "fill_mode": fill_mode, "fill_value": fill_value}
    if size:
        options["size"] = list(size)
    case("image", "warp_" + label, "warp",
         [X(source, True, dtype=dtype, data=rng.integers(-64, 65, source) / 8),
          X(matrices.shape, True, "matrix", dtype=dtype, data=matrices)], options, in_tensorflow, forward_check=transform,
         second=size is None)


def image():
    conv("valid", (2, 5, 7, 3), (3, 3), 2, second=True)
    conv("same", (2, 5, 4, 2), (3, 3), 3, padding="same", second=True)
    conv("one_by_one", (2, 3, 5, 3), (1, 1), 4)
    conv("one_by_one_stride2", (2, 5, 4, 3), (1, 1), 2, stride=(2, 2), padding="same")
    conv("even_window_same", (2, 5, 4, 2), (2, 4), 2, padding="same")
    conv("wide_window", (1, 7, 5, 1), (1, 5), 2, padding="same")
    conv("whole_window", (2, 5, 3, 2), (5, 3), 3)
    conv("same_window_larger", (1, 2, 1, 2), (5, 3), 2, padding="same")
    for stride in ((2, 2), (3, 3), (2, 1), (1, 3)):
        end = f"stride{stride[0]}{stride[1]}"
        conv("valid_" + end, (2, 7, 6, 2), (3, 2), 2, stride=stride, second=stride == (2, 2))
        conv("same_odd_" + end, (1, 7, 5, 2), (3, 3), 2, stride=stride, padding="same")
        conv("same_even_" + end, (1, 6, 8, 2), (3, 3), 2, stride=stride, padding="same")
    conv("stride_skips_edge", (1, 6, 6, 1), (2, 2), 1, stride=(3, 3))
    for padding in ("valid", "same"):
        conv(f"{padding}_dilation22", (1, 7, 6, 2), (3, 3), 2, dilation=(2, 2), padding=padding, second=padding == "same")
        conv(f"{padding}_dilation21", (1, 7, 6, 2), (2, 3), 2, dilation=(2, 1), padding=padding)
        conv(f"{padding}_groups2", (2, 5, 4, 4), (3, 2), 6, groups=2, padding=padding, second=padding == "same")
        conv(f"{padding}_depthwise", (2, 5, 4, 3), (3, 3), 3, groups=3, padding=padding)
        conv(f"{padding}_depthwise_multiplied", (1, 5, 4, 3), (3, 2), 6, groups=3, padding=padding, stride=(2, 1))
    conv("same_stride2_dilation2", (1, 7, 6, 2), (3, 3), 2, stride=(2, 2), dilation=(2, 2), padding="same")
    conv("groups2_dilation2_stride2", (1, 7, 7, 4), (3, 2), 2, stride=(2, 2), dilation=(2, 2), groups=2, padding="explicit",
         pad=(1, 1, 2, 2))
    conv("explicit", (2, 5, 4, 2), (3, 3), 2, padding="explicit", pad=(1, 1, 1, 1))
    conv("explicit_uneven", (1, 5, 4, 2), (3, 3), 2, padding="explicit", pad=(0, 2, 1, 3), second=True)
    conv("explicit_wide", (1, 3, 2, 2), (2, 3), 2, padding="explicit", pad=(3, 0, 2, 4), stride=(2, 3))
    conv("explicit_none", (1, 5, 4, 2), (3, 3), 2, padding="explicit", pad=(0, 0, 0, 0))
    conv("explicit_stride2", (1, 8, 8, 3), (3, 3), 2, padding="explicit", pad=(1, 1, 1, 1), stride=(2, 2))
    conv("float32", (2, 7, 5, 3), (3, 3), 4, padding="same", dtype="float32")
    conv("stride2_float32", (2, 7, 5, 3), (3, 3), 4, stride=(2, 2), padding="same", dtype="float32")

    for op in ("max_pool2d", "average_pool2d"):
        pool(op, "valid", (2, 6, 4, 3), (2, 2))
        pool(op, "valid_edge_left", (2, 7, 5, 2), (2, 3))
        pool(op, "valid_overlap", (2, 7, 5, 2), (3, 3), (2, 2))
        pool(op, "valid_stride1", (1, 5, 5, 2), (3, 2), (1, 1))
        pool(op, "stride_larger", (1, 7, 7, 2), (2, 2), (3, 3))
        pool(op, "same", (2, 5, 7, 2), (2, 2), padding="same")
        pool(op, "same_overlap", (2, 5, 6, 2), (3, 3), (2, 2), padding="same")
        pool(op, "same_stride1", (1, 4, 5, 2), (3, 2), (1, 1), padding="same")
        pool(op, "same_uneven", (1, 7, 5, 3), (3, 4), (3, 2), padding="same")
        pool(op, "same_window_larger", (1, 2, 1, 2), (3, 3), (1, 1), padding="same")
        pool(op, "explicit", (1, 7, 6, 2), (3, 3), (2, 2), "explicit", (1, 1, 1, 1))
        pool(op, "explicit_uneven", (1, 5, 6, 2), (3, 4), (2, 3), "explicit", (0, 1, 2, 1))
        pool(op, "float32", (2, 5, 7, 3), (3, 3), (2, 2), padding="same", dtype="float32")
        pool(op, "window_one", (1, 3, 3, 2), (1, 1), (2, 2))
    for label, padding, pad in (("same", "same", None), ("explicit", "explicit", (1, 1, 1, 1)),
                                ("explicit_uneven", "explicit", (0, 1, 2, 1)), ("valid", "valid", None)):
        pool("average_pool2d", f"counted_{label}", (1, 5, 6, 2), (3, 4), (2, 2), padding, pad or (0, 0, 0, 0), True)
    # The first of equals has the gradient; all negative, so a zero of the padding must not win.
    pool("max_pool2d", "ties", (1, 4, 4, 1), (2, 2), data=[1, 1, 2, 3, 1, 1, 3, 3, -1, -2, 0, 0, -1, -1, 0, 0])
    pool("max_pool2d", "ties_overlap", (1, 3, 3, 1), (2, 2), (1, 1), data=[5, 5, 5, 5, 5, 5, 5, 5, 5])
    pool("max_pool2d", "negative_same", (1, 3, 3, 1), (3, 3), (1, 1), "same", data=[-5, -4, -3, -2.5, -9, -8, -7, -6, -1])

    for interpolation in ("nearest", "bilinear"):
        for fill_mode in ("constant", "nearest", "reflect", "wrap"):
            label = f"{interpolation}_{fill_mode}"
            warp(label, interpolation, fill_mode, (4, 5, 6, 2), fill_value=0.75)
            warp(label + "_size", interpolation, fill_mode, (3, 4, 3, 1), size=(6, 7), fill_value=-2.0)
            warp(label + "_row", interpolation, fill_mode, (2, 1, 7, 3), size=(3, 5), dtype="float32")

    for op, tf_op, kind in (("global_max_pool2d", tf.reduce_max, "distinct"), ("global_average_pool2d", tf.reduce_mean, "normal")):
        for label, source in (("odd", (2, 5, 7, 3)), ("one", (2, 1, 1, 3)), ("row", (1, 1, 7, 2))):
            case("image", f"{op}_{label}", op, [X(source, True, kind=kind)], None, lambda x: tf_op(x, axis=(1, 2)))
    case("image", "global_max_pool2d_ties", "global_max_pool2d", [X((1, 2, 2, 1), True, data=[3, 3, 1, 3])], None,
         lambda x: tf.reduce_max(x, axis=(1, 2)))


# ---- normalisation --------------------------------------------------------------------------------------------------


def keras_batch_norm(epsilon, momentum, affine, training):
    """Keras's layer: y and, in training, the new moving statistics."""
    def run(x, *rest):
        mean, variance = rest[-2:]
        layer = keras.layers.BatchNormalization(epsilon=epsilon, momentum=momentum, center=False, scale=False, dtype="float64")
        layer.build(x.shape)
        layer.moving_mean.assign(mean)
        layer.moving_variance.assign(variance)
        y = layer(x, training=training)
        if affine:
            y = y * rest[0] + rest[1]
        return [y, tf.convert_to_tensor(layer.moving_mean), tf.convert_to_tensor(layer.moving_variance)] if training else y

    return run


def torch_batch_norm(epsilon, momentum, affine, training):
    def run(x, *rest):
        mean, variance = rest[-2].detach().clone(), rest[-1].detach().clone()
        gamma, beta = rest[:2] if affine else (None, None)
        y = F.batch_norm(x.movedim(-1, 1), mean, variance, gamma, beta, training, 1.0 - momentum, epsilon).movedim(1, -1)
        return [y, mean, variance] if training else y

    return run


def norm():
    def batch(label, source, training=True, unbiased=False, affine=True, epsilon=1e-3, momentum=0.99, kind="normal",
              dtype="float64", tolerance=None):
        c = (source[-1],)
        inputs = [X(source, True, kind=kind, dtype=dtype)]
        if affine:
            inputs += [X(c, False, "gamma", dtype=dtype), X(c, False, "beta", dtype=dtype)]
        inputs += [X(c, False, "moving_mean", dtype=dtype),
                   X(c, False, "moving_variance", kind="positive", dtype=dtype)]
        make = torch_batch_norm if unbiased else keras_batch_norm
        function = make(epsilon, momentum, affine, training)
        keywords = {"torch": function} if unbiased else {"tf": function}
        if not training:
            keywords = {"tf": keras_batch_norm(epsilon, momentum, affine, False),
                        "torch": torch_batch_norm(epsilon, momentum, affine, False)}
        case_name = "batch_norm_" + label
        options = {"training": training, "epsilon": epsilon, "momentum": momentum, "unbiased": unbiased}
        case("norm", case_name, "batch_norm", inputs, options, only_gradients=("x", "gamma", "beta"), tolerance=tolerance,
             differentiated=1, **keywords)

    for unbiased in (False, True):
        end = "_unbiased" if unbiased else ""
        batch("training" + end, (7, 3), unbiased=unbiased)
        batch("training_image" + end, (3, 2, 3, 5), unbiased=unbiased)
        batch("training_plain" + end, (7, 3), unbiased=unbiased, affine=False)
        batch("training_far" + end, (33, 3), unbiased=unbiased, kind="far", tolerance=1e-9)
        batch("training_momentum" + end, (5, 3, 2), unbiased=unbiased, momentum=0.9, epsilon=1e-5)
    batch("training_one_sample", (1, 3, 2, 2))
    batch("training_far_float32", (33, 3), kind="far", dtype="float32", tolerance=1e-4)
    batch("training_float32", (33, 3), dtype="float32")
    batch("inference", (7, 3), False)
    batch("inference_image", (3, 2, 3, 5), False)
    batch("inference_plain", (7, 3), False, affine=False)
    batch("inference_float32", (7, 3), False, dtype="float32")

    def layer(label, source, axes=1, affine=True, epsilon=1e-3, kind="normal", dtype="float64", tolerance=None, batch=True,
              second=False):
        last = source[len(source) - axes:]
        inputs = [X(source, batch, kind=kind, dtype=dtype)]
        if affine:
            inputs += [X(last, False, "gamma", dtype=dtype), X(last, False, "beta", dtype=dtype)]

        def in_torch(x, gamma=None, beta=None):
            return F.layer_norm(x, last, gamma, beta, epsilon)

        def in_keras(x, gamma=None, beta=None):  # its second derivative is wrong: tf.nn.moments holds the mean fixed
            over = [-k for k in range(axes, 0, -1)]
            y = keras.layers.LayerNormalization(over, epsilon=epsilon, center=False, scale=False, dtype="float64")(x)
            return y if gamma is None else y * gamma + beta

        case("norm", "layer_norm_" + label, "layer_norm", inputs, {"axes": axes, "epsilon": epsilon},
             None if second else in_keras, in_torch, tolerance=tolerance, second=second)

    layer("one", (7, 5), second=True)
    layer("one_of_three", (5, 2, 3))
    layer("two", (5, 3, 2), axes=2, second=True)
    layer("plain", (7, 5), affine=False)
    layer("two_plain", (5, 3, 2), axes=2, affine=False)
    layer("epsilon", (7, 3), epsilon=1e-6)
    layer("far", (5, 33), kind="far")
    layer("vector", (7,), batch=False)
    layer("one_element", (7, 1))
    layer("float32", (7, 33), dtype="float32")
    layer("far_float32", (7, 33), kind="far", dtype="float32", tolerance=3e-4)

    # The only rate whose numbers another library can have.
    case("norm", "dropout_none", "dropout", [X((7, 3), True)], {"rate": 0.0}, lambda x: tf.nn.dropout(x, 0.0) * 1.0,
         lambda x: F.dropout(x, 0.0, True))


# ---- losses ---------------------------------------------------------------------------------------------------------


def rows(count, classes, batch_shape, seed):
    """Distributions that add up to one exactly: multiples of 1/64."""
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    return (rng.multinomial(64, rng.dirichlet(np.ones(classes), count)) / 64).reshape(batch_shape + (classes,))


def loss():
    sparse = keras.losses.sparse_categorical_crossentropy
    dense = keras.losses.categorical_crossentropy
    binary = keras.losses.binary_crossentropy

    def flip(function, **more):
        return lambda scores, labels: function(labels, scores, **more)

    def labels(shape, high, dtype="int64", batch=True):
        return X(shape, batch, "labels", kind="integer", dtype=dtype, high=high)

    LOGITS, PROBABILITIES = {"kind": "logits"}, {"kind": "probabilities"}
    big = [1000, 999, -1000, -800, -801, 30, 0, 0, 0, 60, -60, 5]
    # Not a distribution: sums away from 1, zeros, ones, more than one, all tiny.
    odd = [0.2, 0.3, 0.9, 0, 0.5, 0.5, 1, 0, 0, 1.5, 0.25, 0.5, 1e-9, 2e-9, 1e-8, 0.999, 0.0005, 0.0005]

    for dtype in ("int32", "int64", "uint8"):
        case("loss", f"sparse_cross_entropy_logits_{dtype}", "sparse_cross_entropy",
             [X((7, 5), True, "scores"), labels((7,), 5, dtype)], LOGITS, flip(sparse, from_logits=True),
             lambda s, l: F.cross_entropy(s, l.long(), reduction="none"), second=dtype == "int64")
    case("loss", "sparse_cross_entropy_logits_time", "sparse_cross_entropy",
         [X((5, 3, 4), True, "scores"), labels((5, 3), 4)], LOGITS, flip(sparse, from_logits=True))
    case("loss", "sparse_cross_entropy_logits_extreme", "sparse_cross_entropy",
         [X((4, 3), True, "scores", data=big), X((4,), True, "labels", dtype="int64", data=[1, 2, 0, 1])], LOGITS,
         flip(sparse, from_logits=True), lambda s, l: F.cross_entropy(s, l, reduction="none"))
    case("loss", "sparse_cross_entropy_logits_whole", "sparse_cross_entropy",
         [X((5,), False, "scores"), labels((), 5, batch=False)], LOGITS,
         lambda s, l: tf.nn.sparse_softmax_cross_entropy_with_logits(l, s))
    case("loss", "sparse_cross_entropy_logits_one_class", "sparse_cross_entropy",
         [X((3, 1), True, "scores"), labels((3,), 1)], LOGITS, flip(sparse, from_logits=True))
    case("loss", "sparse_cross_entropy_logits_float32", "sparse_cross_entropy",
         [X((33, 10), True, "scores", dtype="float32"), labels((33,), 10)], LOGITS, flip(sparse, from_logits=True))
    case("loss", "sparse_cross_entropy_probabilities", "sparse_cross_entropy",
         [X((7, 5), True, "scores", data=rows(7, 5, (7,), "sparse")), labels((7,), 5)], PROBABILITIES,
         flip(sparse, from_logits=False))
    case("loss", "sparse_cross_entropy_probabilities_odd", "sparse_cross_entropy",
         [X((6, 3), True, "scores", data=odd), X((6,), True, "labels", dtype="int64", data=[0, 0, 0, 2, 1, 0])],
         PROBABILITIES, flip(sparse, from_logits=False))
    case("loss", "sparse_cross_entropy_probabilities_time", "sparse_cross_entropy",
         [X((5, 3, 4), True, "scores", kind="unit"), labels((5, 3), 4, "int32")], PROBABILITIES,
         flip(sparse, from_logits=False))
    case("loss", "sparse_cross_entropy_of_softmax", "sparse_cross_entropy",
         [X((4, 3), True, "scores", data=big), X((4,), True, "labels", dtype="int64", data=[1, 2, 0, 1])],
         {"kind": "probabilities", "through": "softmax"},
         lambda s, l: sparse(l, keras.activations.softmax(s), from_logits=False))

    def soft(shape, name="labels", batch=True):
        return X(shape, batch, name, data=rows(int(np.prod(shape[:-1])), shape[-1], shape[:-1], f"labels{shape}"))

    case("loss", "cross_entropy_logits", "cross_entropy", [X((7, 5), True, "scores"), soft((7, 5))], LOGITS,
         flip(dense, from_logits=True), lambda s, l: F.cross_entropy(s, l, reduction="none"))
    # TensorFlow has no second derivative by the labels.
    case("loss", "cross_entropy_logits_second", "cross_entropy", [X((7, 3), True, "scores"), soft((7, 3))], LOGITS, None,
         lambda s, l: F.cross_entropy(s, l, reduction="none"), second=True)
    case("loss", "cross_entropy_logits_one_hot", "cross_entropy",
         [X((4, 3), True, "scores", data=big), X((4, 3), True, "labels", data=[0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0])], LOGITS,
         flip(dense, from_logits=True), lambda s, l: F.cross_entropy(s, l, reduction="none"))
    # Labels that do not add up to one: TensorFlow's gradient, softmax minus labels, is wrong then.
    case("loss", "cross_entropy_logits_unnormalised", "cross_entropy",
         [X((7, 5), True, "scores"), X((7, 5), True, "labels")], LOGITS, None,
         lambda s, l: F.cross_entropy(s, l, reduction="none"))
    case("loss", "cross_entropy_logits_time", "cross_entropy", [X((5, 3, 4), True, "scores"), soft((5, 3, 4))], LOGITS,
         flip(dense, from_logits=True))
    case("loss", "cross_entropy_logits_float32", "cross_entropy",
         [X((33, 5), True, "scores", dtype="float32"), X((33, 5), True, "labels", kind="unit", dtype="float32")], LOGITS,
         None, lambda s, l: F.cross_entropy(s, l, reduction="none"))
    case("loss", "cross_entropy_probabilities", "cross_entropy",
         [X((7, 5), True, "scores", data=rows(7, 5, (7,), "dense")), soft((7, 5))], PROBABILITIES,
         flip(dense, from_logits=False))
    case("loss", "cross_entropy_probabilities_odd", "cross_entropy",
         [X((6, 3), True, "scores", data=odd),
          X((6, 3), True, "labels", data=[1, 0, 0, 1, 0, 0, 0, 1, 0, 0.5, 0.25, 0.25, 0, 1, 0, 1, 0, 0])], PROBABILITIES,
         flip(dense, from_logits=False))
    case("loss", "cross_entropy_of_softmax", "cross_entropy",
         [X((4, 3), True, "scores", data=big), X((4, 3), True, "labels", data=[0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0])],
         {"kind": "probabilities", "through": "softmax"},
         lambda s, l: dense(l, keras.activations.softmax(s), from_logits=False))

    case("loss", "binary_cross_entropy_logits", "binary_cross_entropy",
         [X((7, 5), True, "scores"), X((7, 5), True, "labels", kind="unit")], LOGITS, flip(binary, from_logits=True),
         lambda s, l: F.binary_cross_entropy_with_logits(s, l, reduction="none").mean(-1), second=True)
    case("loss", "binary_cross_entropy_logits_extreme", "binary_cross_entropy",
         [X((4, 3), True, "scores", data=big), X((4, 3), True, "labels", data=[0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0])], LOGITS,
         flip(binary, from_logits=True))
    # Where a model with zero weights starts: a formula made of relu and abs has a kink here, the loss has none.
    case("loss", "binary_cross_entropy_logits_zero", "binary_cross_entropy",
         [X((2, 3), True, "scores", data=[0, 0, 0, -0.0, 0, 1]), X((2, 3), True, "labels", data=[0, 1, 0.25, 1, 0.5, 0])],
         LOGITS, flip(binary, from_logits=True),
         lambda s, l: F.binary_cross_entropy_with_logits(s, l, reduction="none").mean(-1), second=True)
    case("loss", "binary_cross_entropy_logits_one", "binary_cross_entropy",
         [X((7, 1), True, "scores"), X((7, 1), True, "labels", kind="integer", high=2)], LOGITS,
         flip(binary, from_logits=True))
    case("loss", "binary_cross_entropy_logits_float32", "binary_cross_entropy",
         [X((33, 3), True, "scores", dtype="float32"), X((33, 3), True, "labels", kind="unit", dtype="float32")], LOGITS,
         flip(binary, from_logits=True))
    case("loss", "binary_cross_entropy_probabilities", "binary_cross_entropy",
         [X((7, 5), True, "scores", kind="unit"), X((7, 5), True, "labels", kind="unit")], PROBABILITIES,
         flip(binary, from_logits=False), lambda s, l: F.binary_cross_entropy(s, l, reduction="none").mean(-1))
    case("loss", "binary_cross_entropy_probabilities_odd", "binary_cross_entropy",
         [X((3, 4), True, "scores", data=[0, 1, 0.5, 1e-9, 1, 0, 1.5, -0.25, 1e-7, 0.9999999, 0.25, 1 - 1e-9]),
          X((3, 4), True, "labels", data=[1, 0, 1, 1, 1, 0, 0, 1, 1, 0, 0.75, 0])], PROBABILITIES,
         flip(binary, from_logits=False))
    case("loss", "binary_cross_entropy_of_sigmoid", "binary_cross_entropy",
         [X((4, 3), True, "scores", data=big), X((4, 3), True, "labels", data=[0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0])],
         {"kind": "probabilities", "through": "sigmoid"},
         lambda s, l: binary(l, keras.activations.sigmoid(s), from_logits=False))

    errors = {
        "mean_squared_error": (keras.losses.mean_squared_error, lambda p, t: F.mse_loss(p, t, reduction="none").mean(-1), {}),
        "mean_absolute_error": (keras.losses.mean_absolute_error, lambda p, t: F.l1_loss(p, t, reduction="none").mean(-1), {}),
        "huber_1": (keras.losses.huber, lambda p, t: F.huber_loss(p, t, reduction="none").mean(-1), {"delta": 1.0}),
        "huber_0.5": (lambda t, p: keras.losses.huber(t, p, 0.5),
                      lambda p, t: F.huber_loss(p, t, reduction="none", delta=0.5).mean(-1), {"delta": 0.5}),
    }
    for label, (in_keras, in_torch, options) in errors.items():
        op = label.split("_1")[0].split("_0")[0]
        for end, shape, dtype in (("", (7, 5), "float64"), ("_time", (5, 2, 3), "float64"), ("_one", (7, 1), "float64"),
                                  ("_float32", (33, 3), "float32")):
            case("loss", label + end, op,
                 [X(shape, True, "predictions", dtype=dtype), X(shape, True, "targets", dtype=dtype)], options, flip(in_keras),
                 in_torch, second=op == "mean_squared_error" and end == "")
        case("loss", label + "_kinks", op,  # no error; an error of delta
             [X((2, 4), True, "predictions", data=[1, 2, 3, 4, 0, 0.5, -0.5, 1]),
              X((2, 4), True, "targets", data=[1, 1, 4, 4.5, 0, 0, 0, -1])], options, flip(in_keras), in_torch)


# ---- updates --------------------------------------------------------------------------------------------------------

STEPS = 5


def update_inputs(name, shape, dtype):
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    start = np.round(rng.normal(0.0, 1.0, shape), 3).astype(dtype)
    gradients = [np.round(rng.normal(0.0, 1.0, shape), 3).astype(dtype) for _ in range(STEPS)]
    for k, g in enumerate(gradients):  # one element with no gradient at first, one with none at all
        g.ravel()[0] = 0.0
        if k < 2:
            g.ravel()[1] = 0.0
    return start, gradients


def update_record(name, rule, options, dtype, start, slots, steps):
    def record(label, array):
        data = [float(np.format_float_positional(v, unique=True, trim="0")) for v in array.ravel()]
        return {"name": label, "dtype": dtype, "shape": list(array.shape), "batch": False, "data": data}

    inputs = [record("variable", start)] + [record(f"slot{k}", s) for k, s in enumerate(slots)]
    kept = [{"gradient": flat(g, dtype), "variable": flat(v, dtype), "slots": [flat(s, dtype) for s in after]}
            for g, v, after in steps]
    add("update", {"name": name, "op": "apply", "by": "tensorflow", "options": {"rule": rule, **options}, "inputs": inputs,
                   "steps": kept})


def keras_update(label, rule, make, options, slot_names, slot_starts, dtype, shape=(3, 5)):
    name = f"apply_{label}_{dtype}"
    start, gradients = update_inputs(name, shape, dtype)
    optimizer = make()
    variable = keras.Variable(start, dtype=dtype)
    optimizer.build([variable])
    slots = [np.full(shape, s, dtype=dtype) for s in slot_starts]

    def find(slot):
        found = getattr(optimizer, slot)
        return found[0] if isinstance(found, list) else found

    for slot, first in zip(slot_names, slots):
        assert np.array_equal(find(slot).numpy(), first), (name, slot)
    steps = []
    for g in gradients:
        optimizer.apply([tf.constant(g)], [variable])
        steps.append((g, variable.numpy().copy(), [find(s).numpy().copy() for s in slot_names]))
    update_record(name, rule, options, dtype, start, slots, steps)


def tf1_rmsprop(label, options, dtype, shape=(3, 5)):
    name = f"apply_{label}_{dtype}"
    start, gradients = update_inputs(name, shape, dtype)
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable("w", initializer=start, use_resource=True)
        feed = v1.placeholder(dtype, shape)
        optimizer = v1.train.RMSPropOptimizer(options["learning_rate"], options["rho"], options["momentum"], options["epsilon"])
        train = optimizer.apply_gradients([(feed, variable)])
        slots = [optimizer.get_slot(variable, s) for s in ("rms", "momentum")]
        session.run(v1.global_variables_initializer())
        first = session.run(slots)
        steps = []
        for g in gradients:
            session.run(train, {feed: g})
            after = session.run([variable] + slots)
            steps.append((g, after[0], after[1:]))
    update_record(name, "rmsprop_tf1", options, dtype, start, first, steps)


def assignments():
    for dtype in ("float64", "float32", "int32", "int64"):
        kind = "normal" if dtype.startswith("float") else "integer"
        for op in ("assign", "assign_add"):
            def run(variable, value):
                state = tf.Variable(variable)
                return tf.convert_to_tensor(getattr(state, op)(value))

            case("update", f"{op}_{dtype}", op, [X((3, 5), False, "variable", kind=kind, dtype=dtype),
                                               X((3, 5), False, "value", kind=kind, dtype=dtype, low=-9)], None, run,
                 gradients=False)


def update():
    """The usual hyperparameters in float32. In float64 ones that float32 holds exactly, because both libraries round them
    to it whatever the variable's type."""
    K = keras.optimizers
    for dtype in ("float32", "float64"):
        usual = dtype == "float32"
        lr, momentum = (0.01, 0.9) if usual else (0.125, 0.875)
        decay = 0.004 if usual else 0.03125
        sgd = {"learning_rate": lr}
        keras_update("sgd", "sgd", lambda: K.SGD(lr), sgd, [], [], dtype)
        keras_update("sgd_decay", "sgd", lambda: K.SGD(lr, weight_decay=decay), {**sgd, "weight_decay": decay}, [], [], dtype)
        sgd["momentum"] = momentum
        for rule, nesterov in (("momentum", False), ("nesterov", True)):
            keras_update(rule, rule, lambda: K.SGD(lr, momentum, nesterov), sgd, ["momentums"], [0], dtype)
            keras_update(rule + "_decay", rule, lambda: K.SGD(lr, momentum, nesterov, weight_decay=decay),
                         {**sgd, "weight_decay": decay}, ["momentums"], [0], dtype)

        lr, beta1, beta2, epsilon = (0.001, 0.9, 0.999, 1e-7) if usual else (2.0**-7, 0.875, 1 - 2.0**-10, 2.0**-23)
        adam = {"learning_rate": lr, "beta_1": beta1, "beta_2": beta2, "epsilon": epsilon}
        slots = ["_momentums", "_velocities"]
        keras_update("adam", "adam", lambda: K.Adam(lr, beta1, beta2, epsilon), adam, slots, [0, 0], dtype)
        keras_update("adam_scalar", "adam", lambda: K.Adam(lr, beta1, beta2, epsilon), adam, slots, [0, 0], dtype, (2,))
        keras_update("adamw", "adam", lambda: K.AdamW(lr, decay, beta1, beta2, epsilon), {**adam, "weight_decay": decay},
                     slots, [0, 0], dtype)
        keras_update("adam_other", "adam", lambda: K.Adam(0.25, 0.5, 0.75, 0.03125),
                     {"learning_rate": 0.25, "beta_1": 0.5, "beta_2": 0.75, "epsilon": 0.03125}, slots, [0, 0], dtype)

        rho = 0.9 if usual else 0.875
        rmsprop = {"learning_rate": lr, "rho": rho, "epsilon": epsilon}
        keras_update("rmsprop", "rmsprop", lambda: K.RMSprop(lr, rho, epsilon=epsilon), rmsprop, ["_velocities"], [0], dtype)
        keras_update("rmsprop_epsilon", "rmsprop", lambda: K.RMSprop(0.25, 0.5, epsilon=0.125, weight_decay=decay),
                     {"learning_rate": 0.25, "rho": 0.5, "epsilon": 0.125, "weight_decay": decay}, ["_velocities"], [0], dtype)
        # TensorFlow 1's rule is the same; only the first v differs: 0 in Keras, 1 in TensorFlow 1.
        keras_update("rmsprop_momentum", "rmsprop", lambda: K.RMSprop(lr, rho, momentum, epsilon),
                     {**rmsprop, "momentum": momentum}, ["_velocities", "_momentums"], [0, 0], dtype)
        tf1_rmsprop("rmsprop_tf1", {**rmsprop, "momentum": 0.0, "epsilon": 1e-10 if usual else 2.0**-33}, dtype)
        tf1_rmsprop("rmsprop_tf1_momentum", {**rmsprop, "momentum": momentum, "epsilon": 0.001 if usual else 2.0**-10}, dtype)

        keras_update("adagrad", "adagrad", lambda: K.Adagrad(lr, 0.125, epsilon), {"learning_rate": lr, "epsilon": epsilon},
                     ["_accumulators"], [0.125], dtype)
        keras_update("adagrad_epsilon", "adagrad", lambda: K.Adagrad(0.125, 0.0, 0.25),
                     {"learning_rate": 0.125, "epsilon": 0.25}, ["_accumulators"], [0], dtype)
    assignments()


def main():
    directory = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    keras.backend.set_floatx("float64")
    for family in (elementwise, shape, reduce, matmul, image, norm, loss, update):
        family()
    write(directory)


if __name__ == "__main__":
    main()
