#!/usr/bin/env python3
"""Expert parallelism: a layer with six experts, which the ranks divide. A router has chosen two weighted experts for
each token. Each token is sent to the ranks of its experts, which compute, and returns as a weighted sum. The
gradients take the same paths.

    dscrun -n 4 -- python3 18_expert_parallel.py
"""

import numpy as np

import libdsc as dsc

TOKENS, WIDTH, EXPERTS, TOP_K = 8, 4, 6, 2

world = dsc.init_distributed()
# Small whole numbers and quarters, whose products and sums are exact in any order.
numbers = world.rank * TOKENS + np.arange(TOKENS)[:, None]
tokens = (2 * numbers + 3 * np.arange(WIDTH)) % 7 - 3.0
experts = ((numbers**2 + 2 * np.arange(TOP_K)) % EXPERTS).astype(np.int32)
weights = np.tile([0.75, 0.25], (TOKENS, 1))

plan = world.moe_plan(experts, EXPERTS)
# An expert multiplies by one number, which is its parameter.
parameters = np.repeat([expert - 2.0 for expert in plan.experts], plan.expert_rows)[:, None]

# Forward.
rows = plan.dispatch(tokens)
returned = np.empty((TOKENS, TOP_K, WIDTH))  # kept for the gradients of the weights
out = plan.combine(parameters * rows, weights, returned=returned)

# Backward: the gradient of the loss sum(out * out) / 2 is out.
grad_results, grad_weights = plan.combine_backward(out, weights, returned)
grad_tokens = np.empty_like(tokens)
work = plan.dispatch_backward(parameters * grad_results, grad_tokens, async_op=True)
sums = np.array([(rows * grad_results).sum(), (out**2).sum() / 2])  # computed while the gradients are sent
work.wait()

# The expected result for this rank's tokens: each output is a multiple of its token, and so is its gradient.
factors = (weights * (experts - 2)).sum(1, keepdims=True)
assert np.array_equal(out, factors * tokens) and np.array_equal(grad_tokens, factors**2 * tokens)
assert np.array_equal(grad_weights, factors * (experts - 2) * (tokens**2).sum(1, keepdims=True))

world.all_reduce(sums)
print(
    f"rank {world.rank}: {plan.rows} rows for {len(plan.experts)} experts from {plan.experts.start} on; loss {sums[1]:.1f}, "
    f"gradients of the parameters sum to {sums[0]:.0f}"
)
plan.close()
dsc.finalize()
