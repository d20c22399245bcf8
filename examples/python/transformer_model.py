"""A small transformer of numpy alone; nothing in this file knows of other processes.

Every layer has forward(), which keeps what the backward pass needs, and backward(delta), a generator: it takes the
gradient of its output, yields (parameter index, gradient) from the last parameter to the first, each as soon as it is
known, and returns the gradient of its input.
"""

import math

import numpy as np

import digits

BYTES = 256
NOT_SEEN = -1e9  # the score of a position that comes later


class Parameters:
    """The arrays of a model in forward order, with names, filled from one stream of random numbers."""

    def __init__(self, seed, dtype):
        self.random, self.dtype = np.random.default_rng(seed), dtype
        self.arrays, self.names = [], []

    def add(self, name, array):
        """Takes a parameter and returns its index."""
        self.names.append(name)
        self.arrays.append(array.astype(self.dtype))
        return len(self.arrays) - 1

    def normal(self, name, shape, deviation):
        """The same, for a parameter of random numbers."""
        return self.add(name, deviation * self.random.standard_normal(shape))


class Linear:
    """Multiplies the last axis by a weight, and adds a bias if it has one."""

    def __init__(self, params, name, inputs, outputs, has_bias=True, gain=1.0):
        self.arrays = params.arrays
        self.weight = params.normal(name + ".weight", (inputs, outputs), gain / math.sqrt(inputs))
        self.bias = params.add(name + ".bias", np.zeros(outputs)) if has_bias else None

    def forward(self, x):
        self.x = x
        y = x @ self.arrays[self.weight]
        return y if self.bias is None else y + self.arrays[self.bias]

    def backward(self, delta):
        rows = delta.reshape(-1, delta.shape[-1])
        if self.bias is not None:
            yield self.bias, rows.sum(axis=0)
        yield self.weight, self.x.reshape(-1, self.x.shape[-1]).T @ rows
        return delta @ self.arrays[self.weight].T


class Norm:
    """Layer normalisation: mean 0 and variance 1 over the last axis, times a gain, plus a bias."""

    def __init__(self, params, name, width):
        self.arrays = params.arrays
        self.gain = params.add(name + ".gain", np.ones(width))
        self.bias = params.add(name + ".bias", np.zeros(width))

    def forward(self, x):
        centered = x - x.mean(axis=-1, keepdims=True)
        self.scale = 1.0 / np.sqrt((centered * centered).mean(axis=-1, keepdims=True) + 1e-5)
        self.normal = centered * self.scale
        return self.normal * self.arrays[self.gain] + self.arrays[self.bias]

    def backward(self, delta):
        axes = tuple(range(delta.ndim - 1))
        yield self.bias, delta.sum(axis=axes)
        yield self.gain, (delta * self.normal).sum(axis=axes)
        delta = delta * self.arrays[self.gain]
        along = (delta * self.normal).mean(axis=-1, keepdims=True)
        return self.scale * (delta - delta.mean(axis=-1, keepdims=True) - self.normal * along)


class Gelu:
    """The smooth rectifier x * P(X < x) of a normal X, in its usual form with tanh."""

    FACTOR, CUBE = math.sqrt(2.0 / math.pi), 0.044715

    def forward(self, x):
        self.x = x
        self.tanh = np.tanh(self.FACTOR * x * (1.0 + self.CUBE * x * x))
        return 0.5 * x * (1.0 + self.tanh)

    def backward(self, delta):
        yield from ()
        x, tanh = self.x, self.tanh
        slope = self.FACTOR * (1.0 + 3.0 * self.CUBE * x * x)
        return delta * (0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * slope)


class Attention:
    """Causal attention with several heads.

    Queries, keys and values have no bias: that of the keys would change no output, and its gradient would be nothing
    but rounding, which Adam turns into steps of full size.
    """

    def __init__(self, params, name, width, heads, gain):
        self.heads, self.scale = heads, 1.0 / math.sqrt(width // heads)
        self.inner = Linear(params, name + ".inner", width, 3 * width, has_bias=False)
        self.outer = Linear(params, name + ".outer", width, width, gain=gain)

    def split(self, x):
        """(batch, context, width) becomes (batch, head, context, width of a head)."""
        return x.reshape(*x.shape[:2], self.heads, -1).swapaxes(1, 2)

    @staticmethod
    def merge(x):
        """The reverse."""
        x = x.swapaxes(1, 2)
        return x.reshape(*x.shape[:2], -1)

    def forward(self, x):
        self.queries, self.keys, self.values = map(self.split, np.split(self.inner.forward(x), 3, axis=-1))
        scores = self.scale * (self.queries @ self.keys.swapaxes(-1, -2))
        scores[..., ~np.tri(x.shape[1], dtype=bool)] = NOT_SEEN
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        self.shares = shares / shares.sum(axis=-1, keepdims=True)
        return self.outer.forward(self.merge(self.shares @ self.values))

    def backward(self, delta):
        delta = self.split((yield from self.outer.backward(delta)))
        values = self.shares.swapaxes(-1, -2) @ delta
        shares = delta @ self.values.swapaxes(-1, -2)
        scores = self.scale * self.shares * (shares - (shares * self.shares).sum(axis=-1, keepdims=True))
        queries, keys = scores @ self.keys, scores.swapaxes(-1, -2) @ self.queries
        delta = np.concatenate([self.merge(part) for part in (queries, keys, values)], axis=-1)
        return (yield from self.inner.backward(delta))


class Residual:
    """Adds what some layers make of x to x."""

    def __init__(self, *layers):
        self.layers = layers

    def forward(self, x):
        y = x
        for layer in self.layers:
            y = layer.forward(y)
        return x + y

    def backward(self, delta):
        inner = delta
        for layer in reversed(self.layers):
            inner = yield from layer.backward(inner)
        return delta + inner


class Embedding:
    """A vector for each symbol plus a vector for each position; has no gradient of its input."""

    def __init__(self, params, symbols, context, width):
        self.arrays = params.arrays
        self.token = params.normal("token", (symbols, width), 0.1)
        self.position = params.normal("position", (context, width), 0.1)

    def forward(self, tokens):
        self.tokens = tokens
        return self.arrays[self.token][tokens] + self.arrays[self.position]

    def backward(self, delta):
        yield self.position, delta.sum(axis=0)
        grad = np.zeros_like(self.arrays[self.token])
        np.add.at(grad, self.tokens, delta)
        yield self.token, grad


class Transformer:
    """Embedding, blocks of attention and a perceptron, a last norm, and a head that is not tied to the embedding."""

    def __init__(self, context, width, heads, blocks, seed, dtype=np.float32, symbols=BYTES):
        params = Parameters(seed, dtype)
        self.params, self.names = params.arrays, params.names
        self.layers = [Embedding(params, symbols, context, width)]
        gain = 1.0 / math.sqrt(2.0 * blocks)  # the sum of all blocks then has the size of one
        for block in range(blocks):
            name = f"block{block}"
            norm = Norm(params, name + ".norm1", width)
            self.layers.append(Residual(norm, Attention(params, name + ".attention", width, heads, gain)))
            norm, up = Norm(params, name + ".norm2", width), Linear(params, name + ".up", width, 4 * width)
            self.layers.append(Residual(norm, up, Gelu(), Linear(params, name + ".down", 4 * width, width, gain=gain)))
        self.layers.append(Norm(params, "norm", width))
        self.layers.append(Linear(params, "head", width, symbols, has_bias=False, gain=0.5))

    def loss(self, windows):
        """Returns the mean cross entropy of each symbol after those before it, and keeps its gradient for backward()."""
        x = windows[:, :-1]
        for layer in self.layers:
            x = layer.forward(x)
        loss, delta = digits.cross_entropy(x.reshape(-1, x.shape[-1]), windows[:, 1:].reshape(-1))
        self.delta = delta.reshape(x.shape)
        return float(loss)

    def backward(self):
        """Yields (parameter index, gradient) from the last parameter to the first, each as soon as it is known."""
        delta = self.delta
        for layer in reversed(self.layers):
            delta = yield from layer.backward(delta)
