"""The data and the network of the training examples, in plain numpy without communication.

train_alone() is an ordinary training loop. The programs compare their losses with its losses.
"""

import pathlib

import numpy as np

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "digits.csv"
CLASSES = 10


def load(path=DATA):
    """Returns ((images, labels), (test_images, test_labels)). Every fifth image belongs to the test set."""
    table = np.loadtxt(path, delimiter=",", dtype=np.int64)
    images, labels = table[:, :-1] / 8.0 - 1.0, table[:, -1]
    test = np.arange(len(table)) % 5 == 0
    return (images[~test], labels[~test]), (images[test], labels[test])


def uniform(count, seed):
    """Returns `count` numbers in [0, 1) from SplitMix64. The C example draws exactly the same numbers."""
    z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def cross_entropy(scores, labels):
    """Returns the mean cross entropy of softmax, and its gradient with respect to the scores."""
    scores = scores - scores.max(axis=1, keepdims=True)
    sums = np.exp(scores).sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    grad = np.exp(scores) / sums
    grad[rows, labels] -= 1.0
    return (np.log(sums[:, 0]) - scores[rows, labels]).mean(), grad / len(labels)


class Network:
    """Fully connected layers with tanh between them and softmax cross entropy at the end, in float64."""

    def __init__(self, sizes, seed):
        """Makes the parameters in forward order: weight (inputs, outputs), bias, weight, bias, ..."""
        self.params = []
        for layer, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
            draw = uniform(inputs * outputs, seed * 1000 + layer)
            weight = (2.0 * draw - 1.0) * np.sqrt(3.0 / inputs)
            self.params += [weight.reshape(inputs, outputs), np.zeros(outputs)]

    def forward(self, images):
        """Returns the class scores, and keeps the values that backward() needs."""
        self.inputs = [images]
        for weight, bias in zip(self.params[:-2:2], self.params[1:-2:2]):
            self.inputs.append(np.tanh(self.inputs[-1] @ weight + bias))
        return self.inputs[-1] @ self.params[-2] + self.params[-1]

    def loss(self, scores, labels):
        """Returns the mean cross entropy, and keeps its gradient for backward()."""
        loss, self.delta = cross_entropy(scores, labels)
        return loss

    def backward(self):
        """Yields (parameter index, gradient) from the last parameter to the first, each as soon as it is computed."""
        delta = self.delta
        for index in range(len(self.params) - 1, 0, -2):
            source = self.inputs[index // 2]
            yield index, delta.sum(axis=0)
            yield index - 1, source.T @ delta
            if index > 1:
                delta = (delta @ self.params[index - 1].T) * (1.0 - source * source)

    def correct(self, images, labels):
        """Returns how many of the images are recognized."""
        return int((self.forward(images).argmax(axis=1) == labels).sum())


class Momentum:
    """Stochastic gradient descent with momentum. It changes the parameters in place."""

    def __init__(self, params, rate, momentum=0.9):
        self.params, self.rate, self.momentum = params, rate, momentum
        self.velocities = [np.zeros_like(param) for param in params]

    def step(self, grads):
        """Updates every parameter. `grads` are in forward order."""
        for param, velocity, grad in zip(self.params, self.velocities, grads):
            velocity *= self.momentum
            velocity += grad
            param -= self.rate * velocity


def train_alone(sizes, train, epoch_orders, batch, rate, seed):
    """Trains in this process alone on the batches of epoch_orders. Returns the loss of every step."""
    images, labels = train
    network = Network(sizes, seed)
    optimizer = Momentum(network.params, rate)
    losses = []
    for order in epoch_orders:
        for first in range(0, len(order) - batch + 1, batch):
            picked = order[first : first + batch]
            losses.append(network.loss(network.forward(images[picked]), labels[picked]))
            grads = dict(network.backward())
            optimizer.step([grads[index] for index in range(len(grads))])
    return network, np.array(losses)
