"""Attention in numpy, for the tests of context parallelism: dense, and with the exchanges of ranks.

Arrays are [batch, sequence, heads, head_dim].
"""

import numpy as np

import libdsc as dsc


def scores(q, k, seen):
    """Scaled dot products, or -inf where a query must not see a key. `seen` is [queries, keys] or None."""
    s = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1], dtype=q.dtype)
    return s if seen is None else np.where(seen, s, -np.inf)


def dense(q, k, v, causal):
    seen = np.tril(np.ones((q.shape[1], k.shape[1]), bool)) if causal else None
    s = scores(q, k, seen)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return np.einsum("bhqk,bkhd->bqhd", p, v), p


def dense_grads(q, k, v, causal, upstream):
    out, p = dense(q, k, v, causal)
    dp = np.einsum("bqhd,bkhd->bhqk", upstream, v)
    ds = p * (dp - (dp * p).sum(-1, keepdims=True)) / np.sqrt(q.shape[-1])
    gradients = (np.einsum("bhqk,bkhd->bqhd", ds, k), np.einsum("bhqk,bqhd->bkhd", ds, q))
    return out, *gradients, np.einsum("bhqk,bqhd->bkhd", p, upstream)


def seen_by(work):
    return np.tril(np.ones((work.queries.stop, work.keys.stop), bool)) if work.is_diagonal else None


def works(world, count, order):
    """Returns what this rank computes with the keys of each rank. Without an order every query sees every key."""
    if order is None:
        return [dsc.CausalWork(slice(None), slice(None), False)] * world.size
    return [dsc.causal_work(count, world.size, world.rank, source, order) for source in range(world.size)]


def ring_forward(world, ring, q, kv, works, parts=None, **types):
    """Combines the steps by the running maximum and sum of each row.

    Returns the output and the logarithm of the sums.
    """
    b, s, h, d = q.shape
    top, total = np.full((b, h, s), -np.inf, q.dtype), np.zeros((b, h, s), q.dtype)
    out = np.zeros((b, h, s, d), q.dtype)
    for source, (k, v) in ring(kv, parts, 2, **types):
        work = works[source]
        if work is None or 0 in (s, k.shape[1]):
            continue
        rows, seen = work.queries, seen_by(work)
        if types:
            k, v = widened(k), widened(v)
        x = scores(q[:, rows], k[:, work.keys], seen)
        higher = np.maximum(top[..., rows], x.max(-1))
        scale, p = np.exp(top[..., rows] - higher), np.exp(x - higher[..., None])
        total[..., rows] = total[..., rows] * scale + p.sum(-1)
        out[:, :, rows] = out[:, :, rows] * scale[..., None] + np.einsum("bhqk,bkhd->bhqd", p, v[:, work.keys])
        top[..., rows] = higher
    return (out / total[..., None]).transpose(0, 2, 1, 3), top + np.log(total)


def ring_backward(world, ring, q, kv, out, lse, upstream, works, grad, parts=None, **types):
    """Returns the gradient of q. The gradients of this rank's keys and values arrive in `grad`."""
    dq, scale = np.zeros_like(q), 1 / np.sqrt(q.shape[-1], dtype=q.dtype)
    delta = np.einsum("bqhd,bqhd->bhq", upstream, out)
    for source, (k, v), (dk, dv) in ring.backward(kv, grad, parts, 2, **types):
        work = works[source]
        if work is None or 0 in (q.shape[1], k.shape[1]):
            continue
        rows, keys, seen = work.queries, work.keys, seen_by(work)
        if types:
            k, v = widened(k), widened(v)
        p = np.exp(scores(q[:, rows], k[:, keys], seen) - lse[..., rows, None])
        dv[:, keys] += np.einsum("bhqk,bqhd->bkhd", p, upstream[:, rows])
        dp = np.einsum("bqhd,bkhd->bhqk", upstream[:, rows], v[:, keys])
        ds = p * (dp - delta[..., rows, None]) * scale
        dq[:, rows] += np.einsum("bhqk,bkhd->bqhd", ds, k[:, keys])
        dk[:, keys] += np.einsum("bhqk,bqhd->bkhd", ds, q[:, rows])
    return dq


def narrowed(x):
    """Converts f32 to bf16, stored as uint16, by cutting off the lower half of each element."""
    return np.ascontiguousarray(x.astype(np.float32).view(np.uint16)[..., 1::2])


def widened(x):
    return (x.astype(np.uint32) << 16).view(np.float32)
