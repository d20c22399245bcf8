"""Planning without communication: layouts of sharded parameters, and the copies from one layout to another."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int32, c_size_t, c_uint8
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Optional, Sequence

from libdsc import _dtypes, _raw
from libdsc._arguments import SIZE, boolean, integer, integers
from libdsc._library import check, lib, list_of
from libdsc._types import LayoutName


class ShardBucket(NamedTuple):
    """A flat buffer of one element type. size and used are numbers of elements."""

    unit: int
    used: int
    size: int
    dtype: str


class ShardLayout(NamedTuple):
    """The positions of parameters: parameter i begins at element starts[i] of buckets[places[i]]."""

    buckets: list[ShardBucket]
    places: list[int]
    starts: list[int]
    shards: int


@dataclass(frozen=True)
class ShardCopy:
    """Elements that a shard copies from a shard of another layout.

    from_start and to_start are offsets in these shards.
    """

    param: int
    from_shard: int
    from_bucket: int
    from_start: int
    to_bucket: int
    to_start: int
    count: int


class ShardRules(NamedTuple):
    """Rules for the layout of parameters.

    layout is "unit", "megatron", "deepspeed" or "partitioned". units are the indices of the first parameter of each
    unit; None: units are planned. alone are the indices of parameters that each get their own planned unit.
    """

    layout: LayoutName = "unit"
    units: Optional[Sequence[int]] = None
    bucket_elements: int = 40_000_000
    alignment: int = 16
    wide_padding: bool = False
    alone: Sequence[int] = ()

    def options(self, n: int) -> _raw.ShardPlanOptions:
        """Returns the C options for n parameters."""
        options = _raw.ShardPlanOptions()
        check(lib.dsc_shard_plan_options_init(byref(options), ctypes.sizeof(options)))
        options.layout = _dtypes.shard_layout_code(self.layout)
        options.bucket_elements = integer("bucket_elements", self.bucket_elements, *SIZE)
        options.alignment = integer("alignment", self.alignment, *SIZE)
        options.wide_padding = int(boolean("wide_padding", self.wide_padding))
        if self.units is not None:
            units = integers("units", self.units, *SIZE)
            options.unit_starts, options.n_units = (c_size_t * max(1, len(units)))(*units), len(units)
        if len(self.alone) > 0:
            flags = [0] * n
            for index in integers("alone", self.alone, 0, n - 1):
                flags[index] = 1
            options.alone = (c_uint8 * n)(*flags)
        return options


def plan_shards(numels: Sequence[int], dtypes: Sequence[Any], shards: int, **rules: Any) -> ShardLayout:
    """Plans the layout of parameters in buckets that are divided equally among shards. No memory is read or written.

    Args:
        numels: elements of each parameter, in forward order.
        dtypes: element type of each parameter, such as "float32".
        shards: the number of shards.
        rules: layout, units, bucket_elements, alignment, wide_padding and alone, as Sharded takes them.
    """
    n = len(numels)
    counts, codes = _tensors(numels, dtypes)
    places, starts = (c_size_t * max(1, n))(), (c_size_t * max(1, n))()
    fixed = (counts, codes, n, integer("shards", shards, *SIZE), byref(ShardRules(**rules).options(n)), places, starts)
    found = list_of(_raw.ShardBucket, lib.dsc_shard_plan, *fixed)
    buckets = [ShardBucket(b.unit, b.used, b.size, _raw.Dtype(b.dtype).name.lower()) for b in found]
    return ShardLayout(buckets, list(places[:n]), list(starts[:n]), shards)


def shard_copies(
    numels: Sequence[int],
    dtypes: Sequence[Any],
    from_shards: int,
    from_rules: Any,
    to_shards: int,
    to_rules: Any,
    shard: int,
) -> list[ShardCopy]:
    """Lists the elements that one shard of a layout takes from the shards of another layout of the same parameters.

    Args:
        numels: elements of each parameter.
        dtypes: element type of each parameter.
        from_shards, from_rules: the old layout; the rules are a dict or a ShardRules.
        to_shards, to_rules: the new layout.
        shard: the index of the shard of the new layout.
    """
    n = len(numels)
    counts, codes = _tensors(numels, dtypes)
    old, new = (_rules(rules).options(n) for rules in (from_rules, to_rules))
    sizes = [integer(name, value, *SIZE) for name, value in (("from_shards", from_shards), ("to_shards", to_shards))]
    fixed = (counts, codes, n, sizes[0], byref(old), sizes[1], byref(new), integer("shard", shard, *SIZE))
    found = list_of(_raw.ShardCopy, lib.dsc_shard_copies, *fixed)
    return [ShardCopy(*(getattr(copy, field.name) for field in fields(ShardCopy))) for copy in found]


def _rules(rules: Any) -> ShardRules:
    return rules if isinstance(rules, ShardRules) else ShardRules(**rules)


def _tensors(numels: Sequence[int], dtypes: Sequence[Any]) -> tuple[Any, Any]:
    n = len(numels)
    if len(dtypes) != n:
        raise ValueError(f"dtypes has {len(dtypes)} entries; expected {n}, one per parameter")
    counts = (c_size_t * max(1, n))(*integers("numels", numels, *SIZE))
    return counts, (c_int32 * max(1, n))(*_dtypes.dtype_codes(dtypes))
