"""Checks of the arguments of libdsc.torch.DistributedDataParallel. They run before anything else happens."""

from __future__ import annotations

import math
import warnings
from typing import Any, Optional

from libdsc._arguments import boolean

MIB = 1 << 20

# Options of PyTorch that this class cannot support, each with the reason.
_REFUSED = {
    "mixed_precision": "parameters keep their element type; use torch.autocast, or the hook 'bf16' to send gradients in 16 bits",
    "delay_all_reduce_named_params": "one reducer handles all gradients; to reduce some yourself, exclude their parameters with "
    "_set_params_and_buffers_to_ignore_for_model()",
    "param_to_hook_all_reduce": "it is for delay_all_reduce_named_params, which is not supported",
    "bucket_cap_mb_list": "all buckets except the first have the same limit; use bucket_cap_mb",
    "skip_all_reduce_unused_params": "the bucket of an unused parameter is reduced with zeros in its place; use static_graph=True",
    "lazy_bucket_allocation": "the memory of buckets is shared by the ranks and is allocated once",
}


def refuse(**given: Any) -> None:
    """Raises ValueError for an option that is not supported."""
    for name, value in given.items():
        if value is not None and value is not False:
            raise ValueError(f"{name} is {value!r}; expected {'False' if value is True else 'None'}: {_REFUSED[name]}")


def expect_host(device_ids: Any, output_device: Any) -> None:
    """Raises ValueError if the arguments ask for a GPU."""
    if device_ids is not None and len(device_ids) > 0:
        raise ValueError(f"device_ids is {device_ids!r}; expected None: gradients are reduced in host memory")
    if output_device is not None:
        raise ValueError(f"output_device is {output_device!r}; expected None: outputs stay on the device where the module computes them")


def bucket_options(bucket_cap_mb: Any) -> dict[str, int]:
    """Returns the size limits of the reducer's buckets. bucket_cap_mb may be a fraction."""
    if bucket_cap_mb is None:
        return {"bucket_bytes": 25 * MIB, "first_bucket_bytes": MIB}
    if isinstance(bucket_cap_mb, bool) or not isinstance(bucket_cap_mb, (int, float)):
        raise TypeError(f"bucket_cap_mb is a {type(bucket_cap_mb).__name__}; expected a number of MiB, or None for 25")
    if not math.isfinite(bucket_cap_mb) or bucket_cap_mb < 0:
        raise ValueError(f"bucket_cap_mb is {bucket_cap_mb}; expected a number of MiB, 0 or more")
    cap = int(bucket_cap_mb * MIB)
    return {"bucket_bytes": cap, "first_bucket_bytes": cap}


def buffer_options(broadcast_buffers: Any, forward_sync_buffers: Any) -> tuple[bool, bool]:
    """Returns two flags: whether buffers are made equal at construction, and in forward passes."""
    if forward_sync_buffers is not None:
        return True, boolean("forward_sync_buffers", forward_sync_buffers)
    both = True if broadcast_buffers is None else boolean("broadcast_buffers", broadcast_buffers)
    return both, both


def warn_if_deprecated(check_reduction: Any) -> None:
    """Warns that check_reduction has no effect, as in PyTorch."""
    if check_reduction:
        warnings.warn("check_reduction has no effect; leave it out", FutureWarning, stacklevel=3)
