#!/usr/bin/env python3
"""Makes layers/augmentation.npz: layers that change images randomly, in training, where their range is a single value.

    pip install tensorflow-cpu==2.21.0                            (Keras 3.15.1 and NumPy 2.4.6 come with it)
    python3 tests/reference/make_augmentation.py [--all] [folder] (default: layers/ beside this script)

layer_cases.py describes the files. Positions of pixels are float32 in TensorFlow, also for float64 images, so outputs of
moved images have an error of their own; TensorFlow's gradient of them is an approximation and is left out.
"""
from layer_cases import keras, main, np

L = keras.layers


def one(rng, *values):
    return values[rng.integers(len(values))]


def image(rng, low=3, high=9):
    return [(int(rng.integers(1, 4)), int(rng.integers(low, high)), int(rng.integers(low, high)), int(rng.integers(1, 4)))]


def moved(rng, modes=("constant", "nearest", "reflect", "wrap")):
    return {"fill_mode": one(rng, *modes), "interpolation": one(rng, "nearest", "bilinear"),
            "fill_value": one(rng, 0.0, 0.5, -1.25), "seed": one(rng, None, 0, 7), "name": "layer"}


def same(rng, *values):
    value = one(rng, *values)
    return [value, value]


MOVED = (True, {"gradients": False, "error": 4e-6})
EIGHTHS = [k / 8 for k in range(-8, 9)]


def translation(rng):
    return L.RandomTranslation(same(rng, *EIGHTHS), same(rng, *EIGHTHS), **moved(rng)), image(rng), *MOVED


def zoom(rng):
    factors = [k / 8 for k in range(-7, 9)]
    width = one(rng, None, same(rng, *factors))
    return L.RandomZoom(same(rng, *factors), width, **moved(rng, ("constant", "nearest", "reflect"))), image(rng), *MOVED


def rotation(rng):
    """By angles that are no quarter turns positions are not halves, where nearest pixels change."""
    options = moved(rng, ("constant", "nearest", "reflect"))
    factor = same(rng, *[k / 40 + 0.003 for k in range(-40, 39)])
    if options["interpolation"] == "bilinear":
        factor = one(rng, factor, same(rng, -1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0))
    return L.RandomRotation(factor, **options), image(rng), *MOVED


def contrast(rng):
    """The factor is 1, or drawn from 1 - 0 to 1 + 0."""
    limits = one(rng, (0, 255), (-1, 1), (-0.5, 2))
    return L.RandomContrast((0.0, 0.0), value_range=limits, seed=one(rng, None, 3), name="layer"), image(rng), True


def brightness(rng):
    limits = one(rng, (0, 255), (-1, 1), (-0.5, 2), (2, -2))
    return L.RandomBrightness(same(rng, *EIGHTHS), value_range=limits, name="layer"), image(rng), True


def erasing(rng):
    """A box of the whole image, or none."""
    factor, scale = one(rng, ([1.0, 1.0], [1.0, 1.0]), ([0.0, 0.0], [0.25, 0.5]))
    fill = one(rng, 0.5, -3.0, 0.0, [0.25, 9.0, -0.5])
    shape = image(rng)[0][:3] + (3 if isinstance(fill, list) else 2,)
    return L.RandomErasing(factor, scale, fill_value=fill, value_range=(-1, 1), name="layer"), [shape], True


def flip(rng):
    """In inference nothing changes."""
    mode = one(rng, "horizontal", "vertical", "horizontal_and_vertical")
    return L.RandomFlip(mode, seed=one(rng, None, 0, 5), name="layer"), image(rng), False


def crop(rng):
    """An image of that size remains."""
    shape = image(rng)[0]
    return L.RandomCrop(shape[1], shape[2], name="layer"), [shape], True


AUGMENTATION = {
    "RandomFlip": flip,
    "RandomTranslation": translation,
    "RandomCrop": crop,
    "RandomZoom": zoom,
    "RandomRotation": rotation,
    "RandomContrast": contrast,
    "RandomBrightness": brightness,
    "RandomErasing": erasing,
}

if __name__ == "__main__":
    main({"augmentation": AUGMENTATION})
