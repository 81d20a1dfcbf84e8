#!/usr/bin/env python3
"""Makes layers/recurrent.npz: random configurations of recurrent layers, their wrappers, and masks.

    pip install tensorflow-cpu==2.21.0                                (Keras 3.15.1 and NumPy 2.4.6 come with it)
    python3 tests/reference/make_layers_recurrent.py [--all] [folder] (default: layers/ beside this script)

layer_cases.py describes the files. --all draws 200 configurations of each class, as `make reference` does.
"""
from layer_cases import apart, keras, main, np
from make_layers import number, one, regularizer

L = keras.layers

GATES = ["tanh", "sigmoid", "hard_sigmoid", "linear", "relu", None]


def flag(rng):
    return bool(rng.integers(2))


def options(rng, cell, sequences=None):
    made = {"units": number(rng, 1, 5), "use_bias": flag(rng), "go_backwards": flag(rng), "unroll": False,
            "return_sequences": flag(rng) if sequences is None else sequences,
            "activation": one(rng, "tanh", *GATES), "bias_initializer": one(rng, "zeros", "ones"),
            "kernel_initializer": one(rng, "glorot_uniform", "he_normal"),
            "recurrent_initializer": one(rng, "orthogonal", "zeros"), "dropout": one(rng, 0.0, 0.25)}
    for part in ("kernel", "recurrent", "bias"):
        made[part + "_regularizer"] = regularizer(rng)
    if cell != "SimpleRNN":
        made["recurrent_activation"] = one(rng, "sigmoid", *GATES[:3])
    if cell == "LSTM":
        made["unit_forget_bias"] = flag(rng)
    if cell == "GRU":
        made["reset_after"] = flag(rng)
    return made


def sequences(rng):
    return (number(rng, 1, 3), number(rng, 1, 5), number(rng, 1, 4))


def small(rng, variable):
    """Small enough for states that do not overflow where an activation has no bound."""
    return (rng.integers(-16, 17, variable.shape) / 32).astype(np.float32)


class Small(dict):
    def get(self, path, otherwise):
        return small


def recurrent(cell):
    def draw(rng):
        return getattr(L, cell)(name="layer", **options(rng, cell)), [sequences(rng)], False, Small()

    return draw


def cell_of(rng):
    return one(rng, "SimpleRNN", "LSTM", "GRU")


def bidirectional(rng):
    cell = cell_of(rng)
    first = options(rng, cell)
    forward = getattr(L, cell)(name="inner", **first)
    other = None
    if rng.integers(3) == 0:
        back = cell_of(rng)
        second = {**options(rng, back), "units": first["units"], "return_sequences": first["return_sequences"],
                  "go_backwards": not first["go_backwards"]}
        other = getattr(L, back)(name="other", **second)
    elif first["go_backwards"]:
        first["go_backwards"] = False
        forward = getattr(L, cell)(name="inner", **first)
    layer = L.Bidirectional(forward, merge_mode=one(rng, "concat", "sum", "mul", "ave"), backward_layer=other, name="layer")
    return layer, [sequences(rng)], False, Small()


def masked_input(rng, shape, value):
    """Some steps have only the value, some have it among others; a mask begins, ends or interrupts a sequence."""
    x = apart(rng, shape)
    x[rng.random(shape) < 0.25] = value
    x[rng.random(shape[:2]) < 0.4] = value
    return x


def masking(rng):
    value = float(one(rng, 0.0, 0.5, -1.0))
    cell = cell_of(rng)
    after = getattr(L, cell)(name="layer", zero_output_for_mask=flag(rng), **options(rng, cell))
    between = one(rng, None, lambda x: L.Dense(3, name="between")(x), lambda x: L.Activation("tanh", name="between")(x),
                  lambda x: L.LayerNormalization(name="between")(x), lambda x: L.Dropout(0.5, name="between")(x))

    def build(x):
        y = L.Masking(value, name="masking")(x)
        return after(between(y) if between else y)

    return build, [masked_input(rng, sequences(rng), value)], False, Small()


def masked_wrappers(rng):
    """Masking, or an Embedding with mask_zero, then two recurrent layers that both see the mask."""
    cell, last = cell_of(rng), cell_of(rng)
    inner = L.Bidirectional(getattr(L, cell)(name="inner", **{**options(rng, cell, True), "go_backwards": False}),
                            merge_mode=one(rng, "concat", "sum", "mul", "ave"), name="both")
    step = L.TimeDistributed(L.Dense(number(rng, 1, 3), activation="tanh", name="dense"), name="steps")
    end = getattr(L, last)(name="layer", **options(rng, last))
    shape = sequences(rng)
    if flag(rng):
        words = np.where(rng.random(shape[:2]) < 0.4, 0, rng.integers(1, 6, shape[:2])).astype(np.int32)
        return (lambda x: end(step(inner(L.Embedding(6, 3, mask_zero=True, name="words")(x))))), [words], False, Small()
    return (lambda x: end(step(inner(L.Masking(name="masking")(x))))), [masked_input(rng, shape, 0.0)], False, Small()


def masked_pool(rng):
    """A mean of the steps that count; one of each sample does."""
    x = masked_input(rng, sequences(rng), 0.0)
    x[:, 0, 0] = 1.5
    pool = L.GlobalAveragePooling1D(keepdims=flag(rng), name="layer")
    return (lambda y: pool(L.Masking(name="masking")(y))), [x]


def time_distributed(rng):
    which = number(rng, 0, 6)
    images = (number(rng, 1, 2), number(rng, 1, 3), 4, 5, number(rng, 1, 2))
    if which == 0:
        return L.TimeDistributed(L.Conv2D(number(rng, 1, 3), 2, name="inner"), name="layer"), [images]
    if which == 1:
        return L.TimeDistributed(L.MaxPooling2D(name="inner"), name="layer"), [images]
    if which == 2:
        return L.TimeDistributed(L.Flatten(name="inner"), name="layer"), [images]
    if which == 3:
        return L.TimeDistributed(L.LayerNormalization(name="inner"), name="layer"), [images]
    if which == 4:
        shape = (2, number(rng, 1, 3), number(rng, 1, 3), 2)
        return L.TimeDistributed(L.LSTM(2, return_sequences=flag(rng), name="inner"), name="layer"), [shape], False, Small()
    if which == 5:
        return L.TimeDistributed(L.Activation("softmax", name="inner"), name="layer"), [sequences(rng)]
    return L.TimeDistributed(L.Dense(number(rng, 1, 4), activation=one(rng, None, "tanh"), use_bias=flag(rng),
                                     kernel_regularizer=regularizer(rng), name="inner"), name="layer"), [sequences(rng)]


RECURRENT = {
    "SimpleRNN": recurrent("SimpleRNN"),
    "LSTM": recurrent("LSTM"),
    "GRU": recurrent("GRU"),
    "Bidirectional": bidirectional,
    "TimeDistributed": time_distributed,
    "Masking": masking,
    "Embedding": masked_wrappers,
    "GlobalAveragePooling1D": masked_pool,
}

if __name__ == "__main__":
    main({"recurrent": RECURRENT})
