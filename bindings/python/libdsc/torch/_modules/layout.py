"""Memory layouts of tensors, and the arrays through which the library reads and writes tensors in place."""

from __future__ import annotations

from typing import Any, Optional

import torch

Order = Optional[tuple[int, ...]]  # the order of dimensions in memory; None: unchanged

# Types that both DLPack and the library have. Elements of other types are transferred as bytes.
_SHARED = (
    torch.bool,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)


def order_of(tensor: Any) -> tuple[bool, Order]:
    """Returns whether the elements are consecutive in memory, and the order of dimensions in memory.

    The order is (0, 2, 3, 1) for a tensor in channels_last. A tensor with gaps, or with elements that share memory, is
    not consecutive.
    """
    if tensor.is_contiguous():
        return True, None
    strides = tensor.stride()
    order = tuple(sorted(range(tensor.dim()), key=lambda d: (-strides[d], d)))
    return bool(tensor.permute(order).is_contiguous()), order


def overlaps_itself(tensor: Any) -> bool:
    """Whether elements share memory, as after expand()."""
    return any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride()))


def alias(tensor: Any, order: Order) -> Any:
    """Returns a contiguous real tensor over the same memory; None if there is no such tensor."""
    if order is None and not tensor.requires_grad and not tensor.is_complex() and not tensor.is_neg():  # hot path
        return tensor if tensor.is_contiguous() else None
    seen = tensor.detach() if order is None else tensor.detach().permute(order)
    if seen.is_conj() or seen.is_neg():  # the values in memory differ from those of the tensor
        return None
    if seen.is_complex():
        seen = torch.view_as_real(seen)
    return seen if seen.is_contiguous() else None


def copy_in_order(tensor: Any, order: Order) -> Any:
    """Returns a new contiguous tensor with the values that alias() would have."""
    seen = tensor.detach() if order is None else tensor.detach().permute(order)
    copied = seen.resolve_conj().resolve_neg().contiguous()
    if copied.data_ptr() == tensor.data_ptr():
        copied = copied.clone()
    return torch.view_as_real(copied) if copied.is_complex() else copied


def contiguous(tensor: Any, order: Order) -> Any:
    """Returns alias(), or copy_in_order() if there is no alias."""
    array = alias(tensor, order)
    return copy_in_order(tensor, order) if array is None else array


def write_back(tensor: Any, order: Order, copied: Any) -> None:
    """Writes a result of copy_in_order(), which the library has changed, back to the tensor."""
    target = tensor.detach() if order is None else tensor.detach().permute(order)
    target.copy_(torch.view_as_complex(copied) if tensor.is_complex() else copied)


def as_bytes_if_unknown(array: Any) -> Any:
    """Returns the same elements in a type that the library knows, if necessary as bytes."""
    return array if array.dtype in _SHARED else array.reshape(-1).view(torch.uint8)


def over(array: Any, like: Any, order: Order) -> Any:
    """Returns a tensor over a numpy array of the library, with the type, shape and memory order of another tensor."""
    flat = torch.from_numpy(array.reshape(-1).view("u1")).view(like.dtype)
    return shaped(flat, like.shape, order)


def shaped(flat: Any, shape: Any, order: Order) -> Any:
    """Returns a flat tensor in a given shape, for elements in a given memory order."""
    if order is None:
        return flat.view(shape)
    back = [order.index(d) for d in range(len(order))]
    return flat.view([shape[d] for d in order]).permute(back)
