#!/usr/bin/env python3
"""Tensor parallelism: two layers, y = relu(x W1) W2, whose weights the ranks divide. Each rank has some columns of W1
and the same rows of W2, so it computes a part of the hidden layer and a part of each sum in y.

The ranks exchange data in two mappings: one where activations enter the layers, and one where they leave.

    copy, reduce                   all ranks have all tokens in x and y
    gather_reduce, reduce_scatter  each rank has a part of them (sequence parallelism), which takes less memory

    dscrun -n 4 -- python3 17_tensor_parallel.py
"""

import sys

import numpy as np

import libdsc as dsc

TOKENS, WIDTH, HIDDEN = 8, 4, 16


def pattern(rows, columns, step):
    """Returns small whole numbers, whose products and sums are exact in any order."""
    return np.array([[(step * i + 3 * j) % 7 - 3.0 for j in range(columns)] for i in range(rows)])


def train_step(group, x, w1, w2, enter, leave):
    """Runs both passes of two layers with this rank's parts of the weights. Returns y, and the gradients of x, w1 and
    w2 for the loss sum(y * y) / 2. The mappings divide the tokens, dimension 0, except copy and reduce, which divide
    nothing.
    """
    whole = group.tensor_map(x, enter, 0)
    hidden = np.maximum(whole @ w1, 0)
    y = group.tensor_map(hidden @ w2, leave, 0)

    grad_y = group.tensor_map(y, leave, 0, direction="backward")  # the gradient of the loss is y
    grad_hidden = (grad_y @ w2.T) * (hidden > 0)
    grad_x = np.empty_like(x)
    work = group.tensor_map(grad_hidden @ w1.T, enter, 0, direction="backward", out=grad_x, async_op=True)
    grad_w1, grad_w2 = whole.T @ grad_hidden, hidden.T @ grad_y  # meanwhile the ranks sum the gradient of x
    work.wait()
    return y, grad_x, grad_w1, grad_w2


world = dsc.init_distributed()
rank, n = world.rank, world.size
if TOKENS % n:
    sys.exit(f"a number of ranks that divides {TOKENS}, please: dscrun -n 4 -- python3 17_tensor_parallel.py")
x, w1, w2 = pattern(TOKENS, WIDTH, 2), pattern(WIDTH, HIDDEN, 5), pattern(HIDDEN, WIDTH, 4)

# With one rank a mapping does not exchange anything, so this is the whole computation.
alone = world.split(color=rank)
y, grad_x, grad_w1, grad_w2 = train_step(alone, x, w1, w2, "copy", "reduce")

mine = slice(rank * HIDDEN // n, (rank + 1) * HIDDEN // n)
parts = train_step(world, x, w1[:, mine], w2[mine], "copy", "reduce")
for got, expected in zip(parts, (y, grad_x, grad_w1[:, mine], grad_w2[mine])):
    assert np.array_equal(got, expected)

tokens = slice(rank * TOKENS // n, (rank + 1) * TOKENS // n)
sequence_parts = train_step(world, x[tokens], w1[:, mine], w2[mine], "gather_reduce", "reduce_scatter")
for got, expected in zip(sequence_parts, (y[tokens], grad_x[tokens], grad_w1[:, mine], grad_w2[mine])):
    assert np.array_equal(got, expected)

weights = np.array([parts[2].sum() + parts[3].sum()])
world.all_reduce(weights)
loss, gradients = (parts[0] ** 2).sum() / 2, parts[1].sum() + weights[0]
print(f"rank {rank}: loss {loss:.0f}, gradients sum to {gradients:.0f}, also with {len(sequence_parts[0])} tokens per rank")
dsc.finalize()
