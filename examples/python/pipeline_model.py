"""The network of digits.py, cut into parts, in plain numpy without communication."""

import itertools

import numpy as np

import digits


def cut(sizes, parts):
    """Divides the layers into parts so that the largest part has as little work as possible. Returns [(first, end),
    ...].
    """
    work = [inputs * outputs for inputs, outputs in zip(sizes, sizes[1:])]
    ways = itertools.combinations(range(1, len(work)), parts - 1)
    bounds = ([*zip((0, *cuts), (*cuts, len(work)))] for cuts in ways)
    return min(bounds, key=lambda pieces: max(sum(work[first:end]) for first, end in pieces))


class Part:
    """The layers from `first` to `end` - 1 of digits.Network, with the same initial values."""

    def __init__(self, sizes, seed, first, end):
        self.params = digits.Network(sizes, seed).params[2 * first : 2 * end]
        self.is_first, self.is_last = first == 0, end == len(sizes) - 1

    def forward(self, x):
        """Returns the outputs, and the values that backward() needs: the inputs of every layer."""
        sources = []
        for index in range(0, len(self.params), 2):
            sources.append(x)
            x = x @ self.params[index] + self.params[index + 1]
            if not self.is_last or index + 2 < len(self.params):
                x = np.tanh(x)
        return x, sources

    def backward(self, sources, outputs, grad, take):
        """Calls take(index, gradient) for every parameter, the last one first. Returns the gradient of the inputs.

        `grad` is the gradient of the outputs. The first part returns None, because its inputs need no gradient.
        """
        return self.backward_input(sources, outputs, grad, lambda *delta: self.backward_weight(sources, [delta], take))

    def backward_input(self, sources, outputs, grad, note):
        """The half for which other stages wait. Returns the same, and calls note(layer, delta) with the remaining work.
        """
        if not self.is_last:
            grad = grad * (1.0 - outputs * outputs)
        for layer in reversed(range(len(sources))):
            note(layer, grad)
            if layer == 0 and self.is_first:
                return None
            grad = grad @ self.params[2 * layer].T
            if layer > 0:
                grad *= 1.0 - sources[layer] * sources[layer]
        return grad

    def backward_weight(self, sources, deltas, take):
        """The other half, for each (layer, delta) of the first half. Calls take(index, gradient) for every parameter.
        """
        for layer, delta in deltas:
            take(2 * layer + 1, delta.sum(axis=0))
            take(2 * layer, sources[layer].T @ delta)
