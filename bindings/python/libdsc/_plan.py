"""Planning without communication: which tensor goes into which bucket, and which sample goes to which rank."""

from __future__ import annotations

from ctypes import POINTER, byref, c_int32, c_size_t, c_uint8, cast, sizeof
from typing import Any, Hashable, Optional, Sequence

from libdsc import _dtypes, _raw
from libdsc._arguments import SIZE, integer, integers
from libdsc._library import check, lib, list_of


def plan_buckets(
    numels: Sequence[int],
    dtypes: Sequence[Any],
    limits: Optional[Sequence[int]] = None,
    devices: Optional[Sequence[Hashable]] = None,
    expect_sparse: Optional[Sequence[bool]] = None,
    order: Optional[Sequence[int]] = None,
) -> list[list[int]]:
    """Groups tensors into buckets of about equal bytes, by PyTorch's rules; returns lists of tensor indices.

    Args:
        numels: elements of each tensor.
        dtypes: element type of each tensor, such as "float32".
        limits: for each type and device, the first bucket is closed when it holds limits[0] bytes, the next at
            limits[1], and so on. The last limit applies to all further buckets. None: 1 MiB, then 25 MiB.
        devices: the device of each tensor: any values that can be compared. Only tensors with equal values share a
            bucket.
        expect_sparse: True for tensors that need their own bucket.
        order: the tensor index at each position, if the tensors are not taken in order.
    """
    n = len(numels)
    _same_length(n, dtypes=dtypes, devices=devices, expect_sparse=expect_sparse, order=order)
    numbers: dict[Hashable, int] = {}
    placed = None if devices is None else [numbers.setdefault(device, len(numbers)) for device in devices]
    sparse = None if expect_sparse is None else [int(bool(value)) for value in expect_sparse]
    options = _raw.BucketPlanOptions()
    check(lib.dsc_bucket_plan_options_init(options, sizeof(options)))
    options.devices, options.expect_sparse = _array(c_int32, placed), _array(c_uint8, sparse)
    options.order = _sizes("order", order)
    if limits is not None:
        options.limits, options.n_limits = _sizes("limits", limits), len(limits)
    indices, starts, n_buckets = (c_size_t * max(1, n))(), (c_size_t * (n + 1))(), c_size_t()
    counts, codes = _sizes("numels", numels), _array(c_int32, _dtypes.dtype_codes(dtypes))
    check(lib.dsc_bucket_plan(counts, codes, n, options, indices, starts, None, byref(n_buckets)))
    return bucket_lists(indices, starts, n_buckets.value)


def bucket_lists(indices: Any, starts: Any, n_buckets: int) -> list[list[int]]:
    """Converts the output arrays of dsc_bucket_plan() to a list per bucket."""
    return [list(indices[starts[b] : starts[b + 1]]) for b in range(n_buckets)]


def _sizes(argument: str, values: Optional[Sequence[Any]]) -> Any:
    """Returns a C array of numbers of 0 or more, or None if the caller passed None."""
    return None if values is None else _array(c_size_t, integers(argument, values, *SIZE))


def _array(element: Any, numbers: Optional[list[int]]) -> Any:
    return None if numbers is None else (element * max(1, len(numbers)))(*numbers)


def _same_length(n: int, **lists: Optional[Sequence[Any]]) -> None:
    for name, values in lists.items():
        if values is not None and len(values) != n:
            raise ValueError(f"{name} has {len(values)} entries; expected {n}, one per tensor")


def shard_indices(
    count: int, shards: int, shard: int, shuffle: bool = True, seed: int = 0, drop_last: bool = False
) -> Any:
    """Returns the samples of one shard: a numpy array of int64, or a list if numpy is not installed.

    Position p of the (shuffled) sequence belongs to shard p % shards. So the same positions of all shards together are
    consecutive samples, and a global batch does not depend on the number of shards.

    Args:
        count: the number of samples.
        shards: the number of shards, usually the world's size.
        shard: the index of the shard, usually the rank.
        shuffle: False keeps the order.
        seed: for example the run's seed plus the epoch.
        drop_last: True drops the last samples that do not fill all shards; False repeats samples from the start.
    """
    sizes = [integer(name, value, *SIZE) for name, value in (("count", count), ("shards", shards), ("shard", shard))]
    seed = integer("seed", seed, -(2**63), SIZE[1])
    fixed = (*sizes, int(bool(shuffle)), seed % 2**64, int(bool(drop_last)))
    try:
        import numpy
    except ImportError:
        return list_of(c_size_t, lib.dsc_sampler_indices, *fixed)
    n = c_size_t()
    check(lib.dsc_sampler_indices(*fixed, None, 0, byref(n)))
    samples = numpy.empty(n.value, numpy.int64)
    check(lib.dsc_sampler_indices(*fixed, cast(samples.ctypes.data, POINTER(c_size_t)), n.value, byref(n)))
    return samples
