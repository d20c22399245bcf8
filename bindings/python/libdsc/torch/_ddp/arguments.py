"""Checks of the arguments of libdsc.torch.DistributedDataParallel. They run before anything else happens."""

from __future__ import annotations

import math
import warnings
from typing import Any, Optional

from libdsc._arguments import boolean

MIB = 1 << 20

# Options of PyTorch that this class cannot support, each with the reason.
_REFUSED = {
    "mixed_precision": "parameters stay in their own type here; use torch.autocast, or hook 'bf16' to send gradients in 16 bits",
    "delay_all_reduce_named_params": "all gradients go through one reducer; leave parameters out with "
    "_set_params_and_buffers_to_ignore_for_model() and reduce them yourself",
    "param_to_hook_all_reduce": "it belongs to delay_all_reduce_named_params, which is not supported",
    "bucket_cap_mb_list": "all buckets but the first have one limit here; use bucket_cap_mb",
    "skip_all_reduce_unused_params": "an unused parameter is sent as zeros in its bucket; use static_graph=True",
    "lazy_bucket_allocation": "buckets are memory that the ranks share, which is allocated once",
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
        raise ValueError(f"output_device is {output_device!r}; expected None: outputs stay where the module makes them")


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
