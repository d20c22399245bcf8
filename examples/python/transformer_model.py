"""A small transformer in plain numpy; nothing in this file communicates.

Every layer has forward(), which keeps the values for the backward pass, and backward(delta), a generator. backward()
takes the gradient of the layer's output, and yields (parameter index, gradient) from the last parameter to the first,
each as soon as it is computed. It returns the gradient of the layer's input.

Layers can be divided among a group of ranks, each of which has a part of the large weights. The methods of Alone
contain the communication of such a group; Alone is a group of one rank. transformer_parallel.py has a class for larger
groups.
"""

import math
import zlib
from collections import namedtuple

import numpy as np

import digits

BYTES = 256
NOT_SEEN = -1e9  # the score of a later position, which must not be seen

TABLE = "symbols"  # the name of the table that the embedding and the output share

Sizes = namedtuple("Sizes", "context width heads blocks symbols")


class Alone:
    """A group of one rank, which has all layers whole."""

    rank, size = 0, 1

    def enter(self):
        """Returns the layers before a weight with divided columns."""
        return []

    def leave(self):
        """Returns the layers after a weight with divided rows, where each rank has a part of a sum."""
        return []

    def positions(self, context):
        """Returns the positions of a sequence that this rank has between leave() and enter()."""
        return slice(0, context)

    def cross_entropy(self, scores, symbols):
        """Returns the mean cross entropy of softmax, and its gradient with respect to the scores, whose last dimension
        is divided.
        """
        loss, delta = digits.cross_entropy(scores.reshape(-1, scores.shape[-1]), symbols.reshape(-1))
        return loss, delta.reshape(scores.shape)


class Parameters:
    """The arrays of a model in forward order, with names.

    A parameter's initial values depend only on its name and the seed, not on other parameters. Layers that request the
    same name share the array.
    """

    def __init__(self, seed, dtype, group=Alone()):
        self.seed, self.dtype, self.group = seed, dtype, group
        self.arrays, self.names, self.is_divided = [], [], []

    def add(self, name, make, axis=None):
        """Makes a parameter with make(random), takes this rank's part of it along an axis, and returns the parameter's
        index.
        """
        if name in self.names:
            return self.names.index(name)
        whole = make(np.random.default_rng([self.seed, zlib.crc32(name.encode())]))
        array = whole if axis is None else np.array_split(whole, self.group.size, axis)[self.group.rank]
        self.names.append(name)
        self.arrays.append(array.astype(self.dtype, order="C"))
        self.is_divided.append(axis is not None)
        return len(self.arrays) - 1

    def normal(self, name, shape, deviation, axis=None):
        """Does the same for a parameter of random numbers."""
        return self.add(name, lambda random: deviation * random.standard_normal(shape), axis)


class Linear:
    """Multiplies the last axis by a weight, whose columns (axis 1) or rows (axis 0) are divided."""

    def __init__(self, params, name, inputs, outputs, axis, gain=1.0):
        self.arrays = params.arrays
        self.weight = params.normal(name + ".weight", (inputs, outputs), gain / math.sqrt(inputs), axis)

    def forward(self, x):
        self.x = x
        return x @ self.arrays[self.weight]

    def backward(self, delta):
        yield self.weight, rows(self.x).T @ rows(delta)
        return delta @ self.arrays[self.weight].T


class Bias:
    """Adds a vector to the last axis."""

    def __init__(self, params, name, width, axis=None):
        self.arrays = params.arrays
        self.bias = params.add(name + ".bias", lambda random: np.zeros(width), axis)

    def forward(self, x):
        return x + self.arrays[self.bias]

    def backward(self, delta):
        yield self.bias, rows(delta).sum(axis=0)
        return delta


class Norm:
    """Layer normalization: mean 0 and variance 1 over the last axis, times a gain, plus a bias."""

    def __init__(self, params, name, width):
        self.arrays = params.arrays
        self.gain = params.add(name + ".gain", lambda random: np.ones(width))
        self.bias = params.add(name + ".bias", lambda random: np.zeros(width))

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
    """The smooth rectifier x * P(X < x) for a normally distributed X, in the usual form with tanh."""

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
    """Causal attention with several heads, which are divided. This object has the heads of one rank.

    Queries, keys and values have no bias. A bias of the keys would change no output. Its gradient would be only
    rounding errors, which Adam would turn into full steps. Queries, keys and values come from one weight. Its columns
    have the order (head, query or key or value), so that neighboring columns belong to whole heads.
    """

    def __init__(self, params, name, sizes, gain):
        self.size = sizes.width // sizes.heads  # of one head
        self.inner = Linear(params, name + ".inner", sizes.width, 3 * sizes.width, axis=1)
        self.outer = Linear(params, name + ".outer", sizes.width, sizes.width, axis=0, gain=gain)

    def split(self, x, count):
        """Converts (batch, context, heads * count * size) to `count` arrays (batch, head, context, size)."""
        return x.reshape(*x.shape[:2], -1, count, self.size).transpose(3, 0, 2, 1, 4)

    @staticmethod
    def merge(*parts):
        """Does the reverse of split()."""
        x = np.stack(parts).transpose(1, 3, 2, 0, 4)
        return x.reshape(*x.shape[:2], -1)

    def forward(self, x):
        self.queries, self.keys, self.values = self.split(self.inner.forward(x), 3)
        scores = self.queries @ self.keys.swapaxes(-1, -2) / math.sqrt(self.size)
        scores[..., ~np.tri(x.shape[1], dtype=bool)] = NOT_SEEN
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        self.shares = shares / shares.sum(axis=-1, keepdims=True)
        return self.outer.forward(self.merge(self.shares @ self.values))

    def backward(self, delta):
        (delta,) = self.split((yield from self.outer.backward(delta)), 1)
        values = self.shares.swapaxes(-1, -2) @ delta
        shares = delta @ self.values.swapaxes(-1, -2)
        scores = self.shares * (shares - (shares * self.shares).sum(axis=-1, keepdims=True)) / math.sqrt(self.size)
        queries, keys = scores @ self.keys, scores.swapaxes(-1, -2) @ self.queries
        return (yield from self.inner.backward(self.merge(queries, keys, values)))


class Residual:
    """Adds the output of some layers to their input x."""

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


class Tokens:
    """Looks up a vector for each symbol. It returns no gradient of its input. The rows of the table are divided."""

    def __init__(self, params, sizes):
        self.arrays, group = params.arrays, params.group
        self.table = table_of(params, sizes)
        self.first = sum(len(rows) for rows in np.array_split(range(sizes.symbols), group.size)[: group.rank])

    def forward(self, tokens):
        table = self.arrays[self.table]
        here = tokens - self.first
        self.is_here = (here >= 0) & (here < len(table))
        self.tokens = here[self.is_here]
        x = np.zeros((*tokens.shape, table.shape[1]), table.dtype)
        x[self.is_here] = table[self.tokens]
        return x

    def backward(self, delta):
        grad = np.zeros_like(self.arrays[self.table])
        np.add.at(grad, self.tokens, delta[self.is_here])
        yield self.table, grad


class Positions:
    """Adds a vector for each position."""

    def __init__(self, params, sizes):
        self.arrays, self.here = params.arrays, params.group.positions(sizes.context)
        self.table = params.normal("positions", (sizes.context, sizes.width), 0.1)

    def forward(self, x):
        return x + self.arrays[self.table][self.here]

    def backward(self, delta):
        grad = np.zeros_like(self.arrays[self.table])
        grad[self.here] = delta.sum(axis=0)
        yield self.table, grad
        return delta


class Scores:
    """Computes a score for each symbol: the product with the symbol's vector in the table of Tokens. The symbols are
    divided.
    """

    def __init__(self, params, sizes):
        self.arrays, self.table = params.arrays, table_of(params, sizes)

    def forward(self, x):
        self.x = x
        return x @ self.arrays[self.table].T

    def backward(self, delta):
        yield self.table, rows(delta).T @ rows(self.x)
        return delta @ self.arrays[self.table]


def table_of(params, sizes):
    """Returns the table of symbols, which Tokens and Scores share."""
    return params.normal(TABLE, (sizes.symbols, sizes.width), 0.1, axis=0)


def rows(x):
    """Returns all vectors along the last axis as the rows of a matrix."""
    return x.reshape(-1, x.shape[-1])


def block_layers(params, name, sizes):
    """Returns the layers of a block: attention, then a perceptron."""
    group, width = params.group, sizes.width
    gain = 1.0 / math.sqrt(2.0 * sizes.blocks)  # so that the sum over all blocks has the size of a single one
    attention = Attention(params, name + ".attention", sizes, gain)
    up, up_bias = Linear(params, name + ".up", width, 4 * width, axis=1), Bias(params, name + ".up", 4 * width, axis=0)
    down = Linear(params, name + ".down", 4 * width, width, axis=0, gain=gain)
    down_bias = Bias(params, name + ".down", width)
    norms = [Norm(params, f"{name}.norm{number}", width) for number in (1, 2)]
    return [
        Residual(norms[0], *group.enter(), attention, *group.leave()),
        Residual(norms[1], *group.enter(), up, up_bias, Gelu(), down, *group.leave(), down_bias),
    ]


class Part:
    """Some blocks of the model. The first part begins with the embedding, and the last part ends with a norm and
    scores.
    """

    def __init__(self, params, sizes, blocks):
        self.group, self.layers = params.group, []
        self.is_first, self.is_last = blocks.start == 0, blocks.stop == sizes.blocks
        if self.is_first:
            self.layers += [Tokens(params, sizes), *self.group.leave(), Positions(params, sizes)]
        for block in blocks:
            self.layers += block_layers(params, f"block{block}", sizes)
        if self.is_last:
            self.layers += [Norm(params, "norm", sizes.width), *self.group.enter(), Scores(params, sizes)]

    def forward(self, x):
        for layer in self.layers:
            x = layer.forward(x)
        return x

    def backward(self, delta):
        for layer in reversed(self.layers):
            delta = yield from layer.backward(delta)
        return delta


class Transformer(Part):
    """The whole model."""

    def __init__(self, context, width, heads, blocks, seed, dtype=np.float32, symbols=BYTES):
        params = Parameters(seed, dtype)
        self.params, self.names = params.arrays, params.names
        super().__init__(params, Sizes(context, width, heads, blocks, symbols), range(blocks))

    def loss(self, windows):
        """Returns the mean cross entropy of each symbol given the symbols before it, and keeps the values for
        gradients().
        """
        loss, self.delta = self.group.cross_entropy(self.forward(windows[:, :-1]), windows[:, 1:])
        return float(loss)

    def gradients(self):
        """Yields (parameter index, gradient) as backward() does, but combines the two gradients of the tied table."""
        table, of_scores = self.names.index(TABLE), None
        for index, grad in self.backward(self.delta):
            if index != table:
                yield index, grad
            elif of_scores is None:
                of_scores = grad
            else:
                yield index, grad + of_scores
