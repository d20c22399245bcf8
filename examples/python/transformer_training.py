"""The text, the optimizer and the plain training of transformer.py; nothing in this file communicates."""

import math
import pathlib

import numpy as np

from transformer_model import Transformer

TEXT = pathlib.Path(__file__).resolve().parent.parent / "data" / "declaration.txt"
CHECKED = {"context": 5, "width": 6, "heads": 2, "blocks": 2, "symbols": 16}  # the model in check_gradients()
ALLOWED_GRADIENT_DIFFERENCE = 1e-7


def load(path=TEXT):
    """Returns the bytes of the text as numbers."""
    return np.frombuffer(path.read_bytes(), dtype=np.uint8).astype(np.int64)


def windows_at(text, starts, context):
    """Returns a row for each start: `context` bytes, and one more to be predicted."""
    return text[np.asarray(starts)[:, None] + np.arange(context + 1)]


def batch_of(text, step, options):
    """Returns the windows of one step for all ranks together. They do not depend on the number of ranks."""
    random = np.random.default_rng([options.seed, step])
    return windows_at(text, random.integers(len(text) - options.context, size=options.batch), options.context)


def text_windows(text, context):
    """Returns the whole text in consecutive windows, without the rest at its end."""
    return windows_at(text, range(0, len(text) - context, context), context)


def model_of(options, seed):
    """Returns the model for the options of the command line."""
    return Transformer(options.context, options.width, options.heads, options.blocks, seed, options.dtype)


class Adam:
    """The optimizer of Kingma and Ba (2015). It changes the parameters in place.

    epsilon is larger than usual. Otherwise gradients that are mostly rounding errors would become full steps, in which
    runs on one rank and on several ranks would differ.
    """

    def __init__(self, params, rate, betas=(0.9, 0.99), epsilon=1e-5):
        self.params, self.rate, self.betas, self.epsilon = params, rate, betas, epsilon
        self.means = [np.zeros_like(param) for param in params]
        self.squares = [np.zeros_like(param) for param in params]
        self.steps = 0

    def step(self, grads):
        """Updates every parameter. `grads` are in forward order."""
        self.steps += 1
        first, second = self.betas
        rate = self.rate / (1.0 - first**self.steps)
        correction = 1.0 / math.sqrt(1.0 - second**self.steps)
        for param, mean, square, grad in zip(self.params, self.means, self.squares, grads):
            mean += (1.0 - first) * (grad - mean)
            square += (1.0 - second) * (grad * grad - square)
            param -= rate * mean / (correction * np.sqrt(square) + self.epsilon)


def squares_of(grads):
    """Returns the sum of the squares of all elements."""
    return sum(float(np.square(grad, dtype=np.float64).sum()) for grad in grads)


def clip(grads, max_norm, squares=None):
    """Scales gradients down to a norm, as BucketReducer.clip() does, and returns their original norm.

    If `grads` are only a part of all gradients, `squares` is the sum of squares of all of them.
    """
    norm = math.sqrt(squares_of(grads) if squares is None else squares)
    factor = min(1.0, max_norm / (norm + 1e-6))
    for grad in grads:
        grad *= factor
    return norm


def train_alone(text, options):
    """Trains in this process alone on whole batches. Returns the model and the loss of every step."""
    model = model_of(options, options.seed)
    optimizer = Adam(model.params, options.lr)
    losses = []
    for step in range(options.steps):
        losses.append(model.loss(batch_of(text, step, options)))
        grads = dict(model.gradients())
        grads = [grads[index] for index in range(len(grads))]
        clip(grads, options.clip)
        optimizer.step(grads)
    return model, np.array(losses)


def by_differences(model, array, windows, distance=1e-5):
    """Returns the gradient of one parameter, element by element, from the loss with slightly larger and smaller values.
    """
    grad = np.empty_like(array)
    for place in np.ndindex(array.shape):
        middle = array[place]
        array[place] = middle + distance
        above = model.loss(windows)
        array[place] = middle - distance
        below = model.loss(windows)
        array[place] = middle
        grad[place] = (above - below) / (2.0 * distance)
    return grad


def check_gradients(text, seed):
    """Compares backward() with finite differences, in float64 and for all elements. Returns the largest difference."""
    model = Transformer(**CHECKED, seed=seed, dtype=np.float64)
    random = np.random.default_rng(seed)
    for array in model.params:  # gains of one and biases of zero could hide a mistake
        array += 0.3 * random.standard_normal(array.shape)
    windows = windows_at(text, [0, 50], CHECKED["context"]) % CHECKED["symbols"]
    model.loss(windows)
    grads = dict(model.gradients())
    return max(
        np.abs(grads[index] - by_differences(model, array, windows)).max() for index, array in enumerate(model.params)
    )
