"""Gathers whole tensors from the parts of all ranks, for data with the layout of the shards, such as optimizer state.
"""

from __future__ import annotations

from typing import Any

import torch

from libdsc._communicator import Communicator
from libdsc._shard_plan import ShardLayout, plan_shards
from libdsc.torch._modules import layout
from libdsc.torch._sharded.parts import Parts

_NAMES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64"}


class Wholes:
    """Gathers tensors that have the shapes of parameters, bucket by bucket."""

    def __init__(self, comm: Communicator, parts: Parts) -> None:
        self._comm, self._parts = comm, parts
        sharded = parts.sharded
        dtypes = [_NAMES[each.dtype] for each in parts.data]
        numels = [shape.numel() for shape in parts.shapes]
        self._layout: ShardLayout = plan_shards(numels, dtypes, sharded.n_shards, **sharded._rules._asdict())

    def shard_of(self, bucket: int, of_params: dict[int, Any], dtype: torch.dtype) -> Any:
        """Returns this rank's shard of a bucket. It contains the given parts of parameters, and zeros elsewhere."""
        shard = torch.zeros(self._layout.buckets[bucket].size // self._layout.shards, dtype=dtype)
        for i, part in of_params.items():
            own, start = self._parts.places[i]
            if part.numel() and own == bucket:
                shard[start : start + part.numel()] = part
        return shard

    @property
    def n_buckets(self) -> int:
        """The number of buckets."""
        return len(self._layout.buckets)

    def bucket_of(self, i: int) -> int:
        """Returns the bucket of a parameter."""
        return self._layout.places[i]

    def gather(self, of_params: dict[int, Any]) -> dict[int, Any]:
        """Returns whole tensors from parts. All ranks must pass the same parameters and types. Collective."""
        found: dict[int, Any] = {}
        kinds = sorted({(self._layout.places[i], str(part.dtype)) for i, part in of_params.items()})
        for bucket, kind in kinds:
            chosen = {i: part for i, part in of_params.items() if (self._layout.places[i], str(part.dtype)) == (bucket, kind)}
            flat = self._gather_bucket(bucket, chosen)
            for i in chosen:
                start, shape = self._layout.starts[i], self._parts.shapes[i]
                one = flat[start : start + shape.numel()].clone()
                found[i] = layout.shaped(one, shape, self._parts.orders[i])
        return found

    def _gather_bucket(self, bucket: int, chosen: dict[int, Any]) -> Any:
        dtype = next(iter(chosen.values())).dtype
        shard = self.shard_of(bucket, chosen, dtype)
        ranks = torch.empty(self._comm.size, shard.numel(), dtype=dtype)
        if shard.numel():
            self._comm.all_gather(ranks.view(torch.uint8).view(-1), shard.view(torch.uint8))
        return ranks[: self._layout.shards].reshape(-1)  # with hybrid sharding the shards of one copy are enough
