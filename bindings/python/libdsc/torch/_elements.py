"""Presents tensors of torch as arrays that libdsc can transfer and reduce.

Elements of a type that libdsc lacks are transferred as bytes. For a reduction they are converted to a wider type:
16-bit integers to int32, whose low half has the same result, and other 8-bit floats to float32, rounded once at the
end.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch

from libdsc._ops import premul
from libdsc._torch_tensors import read as read
from torch.distributed import ReduceOp

KNOWN = {
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.uint32,
    torch.uint64,
    torch.bool,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
}
WIDER = {
    torch.int16: torch.int32,
    torch.uint16: torch.int32,
    torch.float8_e4m3fnuz: torch.float32,
    torch.float8_e5m2fnuz: torch.float32,
    torch.float8_e8m0fnu: torch.float32,
}
OPS = {
    ReduceOp.SUM: "sum",
    ReduceOp.AVG: "avg",
    ReduceOp.PRODUCT: "prod",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
    ReduceOp.BAND: "band",
    ReduceOp.BOR: "bor",
    ReduceOp.BXOR: "bxor",
}
# The operations that treat the real and the imaginary part in the same way, independently.
ON_COMPLEX = {"sum", "avg"}

Finish = Optional[Callable[[], None]]


def op_of(given: Any) -> Any:
    """Returns libdsc's operation for torch's ReduceOp, or for the result of calling ReduceOp(...)."""
    kind = getattr(given, "op", given)
    if kind == ReduceOp.PREMUL_SUM:
        factor = given.factor
        return premul(factor.item() if isinstance(factor, torch.Tensor) else factor)
    try:
        return OPS[kind]
    except KeyError:
        raise ValueError(f"the reduce operation is {given}; expected one of {', '.join(sorted(OPS.values()))}") from None


def written(tensor: torch.Tensor, argument: str) -> torch.Tensor:
    """Returns the elements of a tensor in memory order, to be written in place. The result is never a copy."""
    if tensor.layout != torch.strided:
        raise ValueError(f"{argument} has the layout {tensor.layout}; expected torch.strided")
    if tensor.is_conj() or tensor.is_neg():
        raise ValueError(f"{argument} is a lazy conjugate or negative; call its resolve_conj() or resolve_neg() first")
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_contiguous():
        return tensor
    if not is_dense(tensor):
        raise ValueError(
            f"Tensors must be contiguous: {argument} has shape {tuple(tensor.shape)} and strides {tensor.stride()},"
            " and the call has to write into it"
        )
    return tensor.as_strided((tensor.numel(),), (1,))


def as_output(tensor: torch.Tensor, argument: str) -> torch.Tensor:
    """Returns a tensor that receives elements of other ranks.

    It must be contiguous: elements are sent in index order.
    """
    if tensor.layout == torch.strided and not tensor.is_contiguous():
        raise ValueError(
            f"Tensors must be contiguous: {argument} has shape {tuple(tensor.shape)} and strides {tensor.stride()}"
        )
    return written(tensor, argument)


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill one piece of memory without gaps, for any order of the dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def movable(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor over the same memory, with an element type that libdsc can transfer."""
    return tensor if tensor.dtype in KNOWN else tensor.reshape(-1).view(torch.uint8)


def reducible(tensor: torch.Tensor, op: Any) -> torch.Tensor:
    """Returns the elements in a type that libdsc can reduce: the same memory, or a copy in a wider type."""
    if tensor.dtype in KNOWN:
        return tensor
    if tensor.is_complex():
        if isinstance(op, str) and op not in ON_COMPLEX:
            raise ValueError(f"{op.upper()} is not supported on complex tensors")
        return torch.view_as_real(tensor)
    wider = WIDER.get(tensor.dtype)
    if wider is None:
        raise TypeError(f"tensors of {tensor.dtype} cannot be reduced; only operations that copy, such as broadcast and send, accept them")
    return tensor.to(wider)


def put_back(tensor: torch.Tensor, reduced: torch.Tensor) -> Finish:
    """Returns a function that writes the result of a wider type back to its tensor. None if no copy was made."""
    if reduced.data_ptr() == tensor.data_ptr():
        return None
    return lambda: narrow(tensor, reduced)


def narrow(tensor: torch.Tensor, wide: torch.Tensor) -> None:
    """Writes elements of a wider type to a tensor. Integers wrap around, as sums in the narrow type would."""
    tensor.copy_(wide.view(tensor.shape))
