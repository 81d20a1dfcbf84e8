"""Writes gan.json: a GAN of two small networks, trained by PyTorch in float64 for a few steps, with
each model's own optimizer. tests/train/test_gan.c trains the same networks from the same numbers.

    pip install torch==2.15.0
    python3 tests/reference/make_gan.py [folder]            (default: beside this script)
"""
import json
import pathlib
import sys

import torch

STEPS, BATCH, NOISE, HIDDEN, DATA = 4, 6, 2, 3, 2


def numbers(count, step):
    """Numbers between -1 and 1 that every program can make."""
    return [(i * step % 41) / 20.5 - 1 for i in range(count)]


def dense(inputs, outputs, step):
    layer = torch.nn.Linear(inputs, outputs, dtype=torch.float64)
    with torch.no_grad():
        kernel = torch.tensor(numbers(inputs * outputs, step), dtype=torch.float64).reshape(inputs, outputs)
        layer.weight.copy_(kernel.T)
        layer.bias.copy_(torch.tensor(numbers(outputs, step + 2), dtype=torch.float64))
    return layer


def weights(model):
    """In Keras's order and layout."""
    return [w for layer in (model[0], model[2]) for w in
            (layer.weight.detach().T.flatten().tolist(), layer.bias.detach().flatten().tolist())]


def train(one_step):
    generator = torch.nn.Sequential(dense(NOISE, HIDDEN, 7), torch.nn.Tanh(), dense(HIDDEN, DATA, 11))
    discriminator = torch.nn.Sequential(dense(DATA, HIDDEN, 13), torch.nn.Tanh(), dense(HIDDEN, 1, 17))
    of_generator = torch.optim.SGD(generator.parameters(), lr=0.05, momentum=0.9)
    of_discriminator = torch.optim.SGD(discriminator.parameters(), lr=0.1)
    entropy = torch.nn.functional.binary_cross_entropy_with_logits
    losses = []
    for step in range(STEPS):
        real = torch.tensor(numbers(BATCH * DATA, 5 + step), dtype=torch.float64).reshape(BATCH, DATA)
        noise = torch.tensor(numbers(BATCH * NOISE, 19 + step), dtype=torch.float64).reshape(BATCH, NOISE)
        ones, zeros = torch.ones(BATCH, 1, dtype=torch.float64), torch.zeros(BATCH, 1, dtype=torch.float64)
        fake = generator(noise)
        d_loss = entropy(discriminator(real), ones) + entropy(discriminator(fake.detach()), zeros)
        if not one_step:  # the generator's step sees the new discriminator
            of_discriminator.zero_grad()
            d_loss.backward()
            of_discriminator.step()
        g_loss = entropy(discriminator(fake), ones)
        if one_step:  # both gradients are those of the weights before the step
            d_gradients = torch.autograd.grad(d_loss, list(discriminator.parameters()))
        of_generator.zero_grad()
        g_loss.backward()
        of_generator.step()
        if one_step:
            for parameter, gradient in zip(discriminator.parameters(), d_gradients):
                parameter.grad = gradient
            of_discriminator.step()
        losses.append([d_loss.item(), g_loss.item()])
    return {"losses": losses, "generator": weights(generator), "discriminator": weights(discriminator)}


folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
result = {"torch": torch.__version__.split("+")[0], "one_step": train(True), "two_steps": train(False)}
(folder / "gan.json").write_text(json.dumps(result, indent=1) + "\n")
