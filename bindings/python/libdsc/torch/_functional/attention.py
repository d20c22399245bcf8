"""Attention over a sequence that is divided among the ranks."""

from __future__ import annotations

from functools import partial
from typing import Any, Iterator, Optional

import torch

from libdsc._autograd import differentiable_once, linear_step
from libdsc._communicator import Communicator
from libdsc._ring import Ring
from libdsc._sequence_order import CausalWork, OrderName, causal_work, sequence_ranges
from libdsc.torch._functional.arguments import group_of, tensor, whole_size, wide, without_autocast
from libdsc.torch._functional.exchanges import Parts


def sequence_to_heads(
    x: torch.Tensor, group: Any = None, *, sequence_parts: Parts = None, head_parts: Parts = None
) -> torch.Tensor:
    """Exchanges this rank's tokens of all heads for all tokens of this rank's heads. Collective.

    The shape changes from [batch, sequence / size, heads, head_dim] to [batch, sequence, heads / size, head_dim]. Use
    it for queries, keys and values before an attention (DeepSpeed-Ulysses). The gradient uses the reverse exchange.

    Args:
        x: a tensor of four dimensions.
        group: the ranks, see libdsc.torch.functional.
        sequence_parts: tokens of each rank, if they differ; equal on all ranks.
        head_parts: heads of each rank, if they differ; 0 for ranks without heads.
    """
    return _turned(x, group, ("forward", "backward"), sequence_parts, head_parts)


def heads_to_sequence(
    x: torch.Tensor, group: Any = None, *, sequence_parts: Parts = None, head_parts: Parts = None
) -> torch.Tensor:
    """Exchanges all tokens of this rank's heads for this rank's tokens of all heads. Collective.

    The reverse of sequence_to_heads(), for the output of an attention.

    Args:
        x: a tensor of four dimensions.
        group: the ranks, see libdsc.torch.functional.
        sequence_parts: tokens of each rank, if they differ; equal on all ranks.
            head_parts: heads of each rank, if they differ; 0 for ranks without heads.
    """
    return _turned(x, group, ("backward", "forward"), sequence_parts, head_parts)


def _turned(x: torch.Tensor, group: Any, directions: tuple[str, str], sequence_parts: Parts, head_parts: Parts) -> torch.Tensor:
    x = tensor(x)
    comm: Any = group_of(group, x.device)
    step = partial(comm.sequence_to_heads, sequence_parts=sequence_parts, head_parts=head_parts)
    there, back = (partial(step, direction=direction) for direction in directions)
    return linear_step(x, there, back)


def ring_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    group: Any = None,
    *,
    is_causal: bool = False,
    order: OrderName = "zigzag",
    tokens: Optional[int] = None,
    scale: Optional[float] = None,
) -> torch.Tensor:
    """Attention of this rank's queries to the keys and values of all ranks, which arrive block by block. Collective.

    In the backward pass, keys and values are passed around again, with their gradients. At any time, only the scores
    between two blocks are in memory. Sums are accumulated in float32, or in float64 for float64. Double backward is not
    supported.

    Args:
        q: this rank's queries, [batch, tokens of this rank, heads, head_dim].
        k, v: this rank's keys and values, shaped likewise. They may have fewer heads than q. Each head then serves an
            equal number of consecutive heads of q.
        group: the ranks, see libdsc.torch.functional.
        is_causal: True: each token sees itself and the tokens before it.
        order: which tokens a rank has, as in libdsc.take_tokens(). It matters only with is_causal. "zigzag" gives all
            ranks equal work.
        tokens: the number of tokens of the whole sequence; None: each rank has as many as this one.
        scale: factor of the scores; None: head_dim ** -0.5.
    """
    q, k, v = tensor(q, "q", is_float=True), tensor(k, "k"), tensor(v, "v")
    comm = group_of(group, q.device)
    _expect_attention(q, k, v)
    count = whole_size(tokens, q.shape[1], comm)
    parts = [sum(map(len, sequence_ranges(count, comm.size, r, order))) for r in range(comm.size)]
    if q.shape[1] != parts[comm.rank]:
        raise ValueError(f"q has {q.shape[1]} tokens; expected {parts[comm.rank]}, the part of rank {comm.rank} when {count} tokens are divided")
    work = _work(comm, count, parts, order if is_causal else None)
    out: torch.Tensor = _RingAttention.apply(q, k, v, comm, work, parts, q.shape[-1] ** -0.5 if scale is None else scale)
    return out


def _expect_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    shapes = f"q, k and v have shapes {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
    if q.dim() != 4 or k.dim() != 4 or k.shape != v.shape:
        raise ValueError(f"{shapes}; expected [batch, tokens, heads, head_dim], with equal shapes of k and v")
    if q.shape[:2] != k.shape[:2] or q.shape[3] != k.shape[3] or not k.shape[2] or q.shape[2] % k.shape[2]:
        raise ValueError(f"{shapes}; expected equal sizes, except that the heads of q may be a multiple of the heads of k and v")
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"q, k and v have element types {q.dtype}, {k.dtype} and {v.dtype}; expected the same type for all")


def _work(comm: Communicator, count: int, parts: list[int], causal_order: Optional[OrderName]) -> list[Optional[CausalWork]]:
    """Returns the part of the attention that this rank computes with the block of each rank; None: no part."""
    if causal_order is None:
        found: list[Optional[CausalWork]] = [CausalWork(slice(0, parts[comm.rank]), slice(0, part), False) for part in parts]
    else:
        found = [causal_work(count, comm.size, comm.rank, source, causal_order) for source in range(comm.size)]
    return [work if work is not None and _length(work.queries) and _length(work.keys) else None for work in found]


def _length(part: slice) -> int:
    return int(part.stop - part.start)


class _RingAttention(torch.autograd.Function):  # type: ignore[misc]
    """Combines the results of the blocks by the running maximum and sum of each row."""

    @staticmethod
    @without_autocast
    def forward(ctx: Any, q: Any, k: Any, v: Any, comm: Any, work: Any, parts: Any, scale: float) -> Any:
        kv = torch.stack([k.detach(), v.detach()])
        ctx.comm, ctx.work, ctx.parts, ctx.scale = comm, work, parts, scale
        queries = _grouped(wide(q.detach()), k.shape[2]) * scale
        top = queries.new_full(queries.shape[:-1], -torch.inf)
        total, out = torch.zeros_like(top), torch.zeros_like(queries)
        for source, block in _blocks(comm, kv, None, parts):
            if work[source] is not None:
                keys, values = map(_heads_first, wide(block))
                _attend(queries, keys, values, work[source], top, total, out)
        out /= total.unsqueeze(-1)
        result = _flat(out).to(q.dtype)
        ctx.save_for_backward(q, kv, result, top + total.log())
        return result

    @staticmethod
    @differentiable_once("ring_attention")
    @without_autocast
    def backward(ctx: Any, gradient: Any) -> Any:
        q, kv, result, row = ctx.saved_tensors
        heads, sums = kv.shape[3], torch.empty(kv.shape, dtype=row.dtype, device=kv.device)
        queries, upstream = _grouped(wide(q), heads) * ctx.scale, _grouped(wide(gradient), heads)
        inner = (upstream * _grouped(wide(result), heads)).sum(-1)
        grad_q = torch.zeros_like(queries)
        for source, block, (grad_k, grad_v) in _blocks(ctx.comm, kv, sums, ctx.parts):
            work = ctx.work[source]
            if work is not None:
                keys, values = map(_heads_first, wide(block))
                at = work.queries
                p = (_scores(queries, keys, work) - row[..., at].unsqueeze(-1)).exp()
                slope = p * (_times(upstream[..., at, :], values[..., work.keys, :].mT) - inner[..., at].unsqueeze(-1))
                grad_q[..., at, :] += _times(slope, keys[..., work.keys, :]) * ctx.scale
                _heads_first(grad_k)[..., work.keys, :] += _over_groups(slope, queries[..., at, :])
                _heads_first(grad_v)[..., work.keys, :] += _over_groups(p, upstream[..., at, :])
        grad_k, grad_v = sums.to(kv.dtype)
        return _flat(grad_q).to(q.dtype), grad_k, grad_v, None, None, None, None


def _blocks(comm: Any, kv: torch.Tensor, grad: Optional[torch.Tensor], parts: Any) -> Iterator[Any]:
    """Yields the blocks of a pass.

    The communicator keeps one ring, which is replaced if blocks are longer than before.
    """
    longest = max(1, kv.shape[0] * kv.shape[1] * max(parts) * kv.shape[3] * kv.shape[4])
    needed = (longest * kv.element_size(), longest * (8 if kv.dtype == torch.float64 else 4))
    ring: Optional[Ring] = comm._attached.get("ring_attention")
    if ring is None or any(has < needs for has, needs in zip(ring._sizes, needed)):
        needed = needed if ring is None else (max(needed[0], ring._sizes[0]), max(needed[1], ring._sizes[1]))
        ring = comm._attached["ring_attention"] = Ring(comm, *needed)
    try:
        yield from ring(kv, parts, 2) if grad is None else ring.backward(kv, grad, parts, 2)
    except BaseException:
        comm._attached.pop("ring_attention", None)  # the ring may have been ended by a failure
        raise


def _attend(queries: Any, keys: Any, values: Any, work: CausalWork, top: Any, total: Any, out: Any) -> None:
    """Adds the contribution of one block. The sums are sums of exp(score - top), where top is the maximum so far."""
    at = work.queries
    scores = _scores(queries, keys, work)
    highest = torch.maximum(top[..., at], scores.amax(-1))
    p, old = (scores - highest.unsqueeze(-1)).exp(), (top[..., at] - highest).exp()
    total[..., at] = total[..., at] * old + p.sum(-1)
    out[..., at, :] = out[..., at, :] * old.unsqueeze(-1) + _times(p, values[..., work.keys, :])
    top[..., at] = highest


def _scores(queries: Any, keys: Any, work: CausalWork) -> Any:
    scores = _times(queries[..., work.queries, :], keys[..., work.keys, :].mT)
    if not work.is_diagonal:
        return scores
    return scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1), -torch.inf)


def _heads_first(x: torch.Tensor) -> torch.Tensor:
    """Returns [batch, tokens, heads, head_dim] as [batch, heads, tokens, head_dim], over the same memory."""
    return x.transpose(1, 2)


def _grouped(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Groups queries by the head of keys that serves them: [batch, key heads, queries per key head, tokens, head_dim].
    """
    return _heads_first(x).unflatten(1, (heads, -1))


def _flat(x: torch.Tensor) -> torch.Tensor:
    return _heads_first(x.flatten(1, 2)).contiguous()


def _times(per_query: torch.Tensor, per_key: torch.Tensor) -> torch.Tensor:
    """Multiplies tensors of queries and of keys. Only queries have the dimension of queries per key head."""
    return per_query @ per_key.unsqueeze(2)


def _over_groups(per_score: torch.Tensor, per_query: torch.Tensor) -> torch.Tensor:
    """Sums the contributions of all queries of a key head."""
    return (per_score.mT @ per_query).sum(2)
