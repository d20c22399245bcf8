"""Checks gradients of functions over several ranks against finite differences, as torch's gradcheck does in one
process.

All ranks change their inputs at the same time in random directions d. g are the upstream gradients and dy the changes
of the outputs. The sum of <g, dy> over all outputs must equal the sum of <gradient, d> over all inputs. An input or
output that is equal on all ranks counts once.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

STEP = 1e-5


@dataclass
class Alike:
    """Marks an input or an output that is equal on all ranks."""

    x: object = None


def numbers(x, seed, is_alike):
    """Returns random numbers in the shape of x, equal on all ranks or different on each rank."""
    generator = torch.Generator().manual_seed(seed if is_alike else 1000 * (dist.get_rank() + 1) + seed)
    return torch.randn(x.shape, dtype=x.dtype, generator=generator)


def total(pairs):
    """Returns the sum of products over all ranks.

    Products of tensors that are equal on all ranks count once, and must be equal.
    """
    sums = torch.zeros(1, dtype=torch.float64)
    for left, right, is_alike in pairs:
        product = (left * right).sum()
        if is_alike:
            every = [torch.empty(()).double() for _ in range(dist.get_world_size())]
            dist.all_gather(every, product.detach().clone())
            torch.testing.assert_close(torch.stack(every), every[0].expand(len(every)), rtol=1e-9, atol=1e-9)
        sums += product if not is_alike or dist.get_rank() == 0 else 0
    dist.all_reduce(sums)
    return sums.item()


def check(function, *inputs, out=(False,)):
    """Compares the gradients of a function with finite differences.

    inputs: float64 tensors, or Alike(tensor). out: for each output, whether it is equal on all ranks.
    """
    alike = [isinstance(x, Alike) for x in inputs]
    given = [x.x if isinstance(x, Alike) else x for x in inputs]
    assert all(x.dtype == torch.float64 for x in given)

    def outputs(xs):
        found = function(*xs)
        return found if isinstance(found, tuple) else (found,)

    leaves = [x.clone().requires_grad_() for x in given]
    ys = outputs(leaves)
    assert len(ys) == len(out)
    for seed in range(3):
        ups = [numbers(y, 10 * seed + i, is_alike) for i, (y, is_alike) in enumerate(zip(ys, out))]
        grads = torch.autograd.grad(ys, leaves, ups, retain_graph=True)
        ways = [numbers(x, 500 + 10 * seed + i, is_alike) for i, (x, is_alike) in enumerate(zip(given, alike))]
        with torch.no_grad():
            more, less = (outputs([x + sign * STEP * way for x, way in zip(given, ways)]) for sign in (1, -1))
        change = total((up, (a - b) / (2 * STEP), is_alike) for up, a, b, is_alike in zip(ups, more, less, out))
        promised = total(zip(grads, ways, alike))
        assert abs(change - promised) <= 1e-6 * max(1.0, abs(change)), (change, promised)
