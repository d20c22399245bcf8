#!/usr/bin/env python3
"""Context parallelism: a causal attention, forward and backward, over a sequence that the ranks divide.

Ring: each rank keeps its queries, and receives the keys and values of all ranks, one block per step. The sequence is in
zig-zag order, so that each rank has the same work at each step. Gradients of keys and values follow their blocks.

Ulysses: an all-to-all turns a part of the tokens with all heads into all tokens with a part of the heads, and back.

    dscrun -n 4 -- python3 19_context_parallel.py
"""

import sys

import numpy as np

import libdsc as dsc

BATCH, TOKENS, HEADS, DIM = 2, 16, 4, 2
SHAPE = (BATCH, TOKENS, HEADS, DIM)
SCALE = DIM**-0.5


def pattern(step):
    return (np.arange(np.prod(SHAPE)) * step % 23 / 11 - 1).reshape(SHAPE)


def exponentials(q, k, work, row):
    """Returns exp(scores - row) for the queries and keys of one step, as [batch, heads, queries, keys]."""
    scores = np.einsum("bqhd,bkhd->bhqk", q[:, work.queries], k[:, work.keys]) * SCALE
    if work.is_diagonal:
        scores = np.where(np.tril(np.ones(scores.shape[2:], bool)), scores, -np.inf)
    return scores, np.exp(scores - (scores.max(-1) if row is None else row[..., work.queries])[..., None])


def attend(q, blocks):
    """Combines (work, k, v) of all steps. Returns the output, and the logarithm of each row's sum of exponentials."""
    rows = (q.shape[0], q.shape[2], q.shape[1])
    top, total, out = np.full(rows, -np.inf), np.zeros(rows), np.zeros(rows + (DIM,))
    for work, k, v in blocks:
        at = work.queries
        scores, p = exponentials(q, k, work, None)
        highest = np.maximum(top[..., at], scores.max(-1))
        old, new = np.exp(top[..., at] - highest), np.exp(scores.max(-1) - highest)
        total[..., at] = total[..., at] * old + p.sum(-1) * new
        out[:, :, at] = out[:, :, at] * old[..., None] + np.einsum("bhqk,bkhd->bhqd", p, v[:, work.keys]) * new[..., None]
        top[..., at] = highest
    return np.ascontiguousarray((out / total[..., None]).transpose(0, 2, 1, 3)), top + np.log(total)


def gradients(q, out, row, upstream, blocks):
    """Adds the gradients of all steps to (dk, dv) in (work, k, v, dk, dv). Returns the gradient of q."""
    dq, inner = np.zeros_like(q), np.einsum("bqhd,bqhd->bhq", upstream, out)
    for work, k, v, dk, dv in blocks:
        at, keys = work.queries, work.keys
        _, p = exponentials(q, k, work, row)
        dv[:, keys] += np.einsum("bhqk,bqhd->bkhd", p, upstream[:, at])
        slope = np.einsum("bqhd,bkhd->bhqk", upstream[:, at], v[:, keys]) - inner[..., at, None]
        dk[:, keys] += np.einsum("bhqk,bqhd->bkhd", p * slope * SCALE, q[:, at])
        dq[:, at] += np.einsum("bhqk,bkhd->bqhd", p * slope * SCALE, k[:, keys])
    return dq


def attention(q, k, v, upstream):
    """Computes the whole attention in one process."""
    everything = dsc.CausalWork(slice(0, TOKENS), slice(0, TOKENS), True)
    out, row = attend(q, [(everything, k, v)])
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    dq = gradients(q, out, row, upstream, [(everything, k, v, dk, dv)])
    return out, dq, dk, dv


def ring_attention(world, q, k, v, upstream):
    """q, k, v and upstream contain this rank's tokens in zig-zag order."""
    work = [dsc.causal_work(TOKENS, world.size, world.rank, source) for source in range(world.size)]
    kv = np.stack([k, v])
    grad = np.empty_like(kv)
    with dsc.Ring(world, kv.nbytes, grad.nbytes) as ring:
        out, row = attend(q, ((work[source], *block) for source, block in ring(kv)))
        dq = gradients(q, out, row, upstream, ((work[source], *block, *place) for source, block, place in ring.backward(kv, grad)))
    return out, dq, *grad


def ulysses_attention(world, q, k, v, upstream):
    """q, k, v and upstream contain this rank's tokens in contiguous order."""
    results = attention(*(world.sequence_to_heads(x) for x in (q, k, v, upstream)))
    return [world.sequence_to_heads(x, direction="backward") for x in results]


world = dsc.init_distributed()
n, rank = world.size, world.rank
if HEADS % n:
    sys.exit(f"a number of ranks that divides {HEADS}, please: dscrun -n 4 -- python3 19_context_parallel.py")
whole = [pattern(step) for step in (3, 5, 7, 4)]  # q, k, v, and the gradient of the output
dense = attention(*whole)

for attend_in_parts, order in ((ring_attention, "zigzag"), (ulysses_attention, "contiguous")):
    found = attend_in_parts(world, *(dsc.take_tokens(x, n, rank, 1, order) for x in whole))
    for part, expected in zip(found, dense):
        assert np.allclose(part, dsc.take_tokens(expected, n, rank, 1, order), 1e-12, 1e-12)

loss, norm = (dense[0] * whole[3]).sum(), np.sqrt(sum((g**2).sum() for g in dense[1:]))
print(f"rank {rank}: loss {loss:.6f}, norm of the gradients {norm:.6f}; ring and Ulysses agree with {TOKENS // n} tokens per rank")
dsc.finalize()
