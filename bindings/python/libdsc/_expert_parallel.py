"""The exchange of tokens for mixture-of-experts layers (expert parallelism)."""

from __future__ import annotations

import ctypes
import math
from ctypes import POINTER, byref, c_float, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, Literal, NoReturn, Optional, Union, overload

from libdsc import _buffers, _dtypes, _raw, errors
from libdsc._arguments import SIZE, boolean, integer
from libdsc._buffers import Buffer, expect
from libdsc._calls import Calls
from libdsc._cross_entropy import Losses
from libdsc._library import OnlyOne, check, lib
from libdsc._memory import numpy_module
from libdsc._raw import Dtype, MoeDrop, MoePayload, Result
from libdsc._streams import place_of
from libdsc._tensor_map import make_like, named
from libdsc._types import Array
from libdsc._work import Work, end_dropped

DropName = Literal["latest", "lightest"]
PayloadName = Literal["plain", "f8e4m3"]
_MOST_EXPERTS = 2**24


class _OnPlan:
    """Calls a library function on a plan. Communicator passes its own handle first, which is ignored here."""

    __slots__ = ("_function", "_plan", "__name__")

    def __init__(self, function: Any, plan: int) -> None:
        self._function, self._plan, self.__name__ = function, plan, function.__name__

    def __call__(self, _: int, *arguments: Any) -> int:
        return int(self._function(self._plan, *arguments))


class MoePlan(OnlyOne):
    """The routing of tokens to the ranks of their experts, for one layer and step. Made by Communicator.moe_plan().

        plan = comm.moe_plan(expert_ids, experts=64)
        rows = plan.dispatch(tokens)                  # grouped by this rank's experts: see expert_rows
        out = plan.combine(apply_experts(rows, plan.expert_rows), weights)

    All calls that exchange rows are collective. Their arrays are of numpy, torch and others, and are not copied. All
    are on the host, or all on the GPU that the communicator is bound to. On the host a plan has at most one call in
    progress: with async_op, wait for the Work before the next call. stream is for arrays on a GPU, as in Collectives.

    Attributes:
        tokens: the number of tokens of this rank.
        top_k: slots of each token.
        experts: the experts that this rank holds, as a range of expert numbers.
        rows: the number of rows that this rank's experts receive, including padding.
        sent: the number of slots of this rank that are sent, to itself or to others.
        dropped: the number of slots of this rank that were dropped for lack of capacity.
        expert_rows: how many rows each expert of this rank receives, without padding, in the order of the rows.
    """

    __slots__ = (
        "_comm", "_handle", "_latest", "_shape", "tokens", "top_k", "experts", "rows", "sent", "dropped", "expert_rows",
        "__weakref__",
    )

    def __init__(self, comm: Calls, handle: int, shape: tuple[int, ...]) -> None:
        self._comm, self._handle, self._shape = comm, handle, shape
        self._latest = 0  # the work of the previous call
        info = _raw.MoePlanInfo(struct_size=ctypes.sizeof(_raw.MoePlanInfo))
        check(lib.dsc_moe_plan_info(handle, byref(info)))
        self.tokens, self.top_k, self.rows = int(info.tokens), int(info.top_k), int(info.rows)
        self.experts = range(info.first_expert, info.first_expert + info.local_experts)
        self.sent, self.dropped = int(info.sent), int(info.dropped)
        self.expert_rows = self._list(lib.dsc_moe_plan_expert_rows, c_size_t, len(self.experts))

    def __repr__(self) -> str:
        state = f"{self.tokens} tokens, {self.rows} rows for {len(self.experts)} experts" if self._handle else "closed"
        return f"<libdsc.MoePlan on {self._comm.name!r}: {state}>"

    @property
    def source_rows(self) -> list[list[int]]:
        """expert_rows by source rank: source_rows[expert][rank] rows came from that rank."""
        flat = self._list(lib.dsc_moe_plan_source_rows, c_size_t, len(self.experts) * self._comm._size)
        return [flat[at : at + self._comm._size] for at in range(0, len(flat), self._comm._size)]

    @property
    def positions(self) -> Any:
        """The position of each slot's row among the rows that this rank sends, or -1: a numpy array of int64,
        [tokens, top_k]."""
        numbers = self._list(lib.dsc_moe_plan_positions, c_int64, self.tokens * self.top_k)
        return numpy_module().array(numbers, "int64").reshape(*self._shape, self.top_k)

    @overload
    def dispatch(
        self, tokens: Array, out: Any = ..., *, payload: Union[PayloadName, MoePayload] = ...,
        async_op: Literal[False] = ..., dtype: Any = ..., stream: Any = ...
    ) -> Any: ...

    @overload
    def dispatch(
        self, tokens: Array, out: Any, *, payload: Union[PayloadName, MoePayload] = ..., async_op: bool, dtype: Any = ...,
        stream: Any = ...
    ) -> Any: ...

    def dispatch(
        self,
        tokens: Any,
        out: Any = None,
        *,
        payload: Any = "plain",
        async_op: bool = False,
        dtype: Any = None,
        stream: Any = None,
    ) -> Any:
        """Sends each token to its experts; returns the rows for this rank's experts, or a Work with async_op.

        Args:
            tokens: [..., hidden] of float32, float64, bfloat16 or float16; the dimensions before hidden are those of
                expert_ids without top_k.
            out: [rows, hidden], where the rows go; None: a new array like tokens. Required with async_op.
            payload: "plain", or "f8e4m3" to send 8-bit floats with a scale for each 128 elements; not on a GPU.
            dtype: the element type, such as "bf16" for an array of uint16.
        """
        try:
            given = self._given(tokens, "tokens", self._shape, dtype)
            kind = named("payload", MoePayload, payload)
            rows, place = self._result(out, "out", (self.rows, given.shape[-1]), tokens, given, dtype, async_op)
            arguments = (given.address, given.shape[-1], given.dtype, kind, place.address)
            return self._exchange(lib.dsc_moe_dispatch, arguments, (given, place), rows, async_op, stream)
        except Exception as error:
            raise self._comm._shown(error, "moe_dispatch")

    def dispatch_backward(
        self, grad_rows: Any, out: Any = None, *, async_op: bool = False, dtype: Any = None, stream: Any = None
    ) -> Any:
        """Returns the gradients of dispatch()'s tokens: for each token, the sum of the gradients of its rows.

        Args:
            grad_rows: [rows, hidden], the gradients of the rows that dispatch() returned.
            out: shaped as the tokens; None: a new array like grad_rows. Required with async_op, which returns a Work.
            dtype: as in dispatch().
        """
        try:
            given = self._given(grad_rows, "grad_rows", (self.rows,), dtype)
            shape = (*self._shape, given.shape[-1])
            result, place = self._result(out, "out", shape, grad_rows, given, dtype, async_op)
            arguments = (given.address, given.shape[-1], given.dtype, place.address)
            return self._exchange(lib.dsc_moe_dispatch_backward, arguments, (given, place), result, async_op, stream)
        except Exception as error:
            raise self._comm._shown(error, "moe_dispatch_backward")

    def combine(
        self,
        rows: Any,
        weights: Any = None,
        out: Any = None,
        *,
        returned: Any = None,
        async_op: bool = False,
        dtype: Any = None,
        stream: Any = None,
    ) -> Any:
        """Sends the experts' rows back; returns the weighted sum for each token, or a Work with async_op.

        Args:
            rows: [rows, hidden], in the order of the rows from dispatch().
            weights: [..., top_k] of float32 (float64 for rows of float64); None: 1.
            out: [..., hidden]; None: a new array like rows. Required with async_op.
            returned: [..., top_k, hidden]: an array that gets the unweighted rows, and zeros for slots without a row.
                combine_backward() needs it for the gradients of the weights. None: not needed.
            dtype: as in dispatch().
        """
        try:
            given = self._given(rows, "rows", (self.rows,), dtype)
            factors = self._weights(weights, "weights", given, False)
            shape, hidden = self._shape, given.shape[-1]
            kept = None
            if returned is not None:
                kept = self._expected(returned, "returned", (*shape, self.top_k, hidden), given, dtype, True)
            result, place = self._result(out, "out", (*shape, hidden), rows, given, dtype, async_op)
            owners = (given, factors, kept, place)
            arguments = (given.address, _address(factors), hidden, given.dtype, place.address, _address(kept))
            return self._exchange(lib.dsc_moe_combine, arguments, owners, result, async_op, stream)
        except Exception as error:
            raise self._comm._shown(error, "moe_combine")

    def combine_backward(
        self,
        grad_out: Any,
        weights: Any = None,
        returned: Any = None,
        out: Any = None,
        *,
        grad_weights: Any = None,
        async_op: bool = False,
        dtype: Any = None,
        stream: Any = None,
    ) -> Any:
        """Returns the gradients of combine(): of the rows, on the ranks of their experts, and of the weights.

        The gradients of the weights are None without returned. With async_op a Work is returned instead.

        Args:
            grad_out: [..., hidden], the gradients of combine()'s result.
            weights: as passed to combine().
            returned: the array that combine() filled; None: no gradients of the weights.
            out: [rows, hidden]; None: a new array like grad_out. Required with async_op.
            grad_weights: [..., top_k], where the gradients of the weights go; None: a new array, a tensor if weights is
                one. If returned is given, it is required with async_op, and on a GPU without weights.
            dtype: as in dispatch().
        """
        try:
            given = self._given(grad_out, "grad_out", self._shape, dtype)
            factors = self._weights(weights, "weights", given, False)
            shape, hidden = (*self._shape, self.top_k), given.shape[-1]
            kept = None
            if returned is not None:
                kept = self._expected(returned, "returned", (*shape, hidden), given, dtype, False)
                if grad_weights is None and async_op:
                    raise ValueError("grad_weights is None; expected an array, because returned is given and async_op is True")
                if grad_weights is None:
                    grad_weights = _make_weights(weights, shape, given)
            elif grad_weights is not None:
                raise ValueError("returned is None; expected the array that combine() wrote, because grad_weights is given")
            written = self._weights(grad_weights, "grad_weights", given, True)
            result, place = self._result(out, "out", (self.rows, hidden), grad_out, given, dtype, async_op)
            owners = (given, factors, kept, place, written)
            arguments = (
                given.address, _address(factors), _address(kept), hidden, given.dtype, place.address, _address(written),
            )
            both = (result, grad_weights)
            return self._exchange(lib.dsc_moe_combine_backward, arguments, owners, both, async_op, stream)
        except Exception as error:
            raise self._comm._shown(error, "moe_combine_backward")

    def close(self) -> None:
        """Frees the plan; a call in progress continues. May be called twice."""
        handle, self._handle = self._handle, 0
        lib.dsc_moe_plan_destroy(handle)

    def __enter__(self) -> MoePlan:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            lib.dsc_moe_plan_destroy(self._handle)
        except Exception:  # at interpreter shutdown
            pass

    def _list(self, function: Any, kind: Any, count: int) -> list[int]:
        values, needed = (kind * max(1, count))(), c_size_t()
        check(function(self._handle, values, count, byref(needed)))
        return list(values[:count])

    def _exchange(
        self, function: Any, arguments: tuple[Any, ...], owners: Any, result: Any, async_op: bool, stream: Any
    ) -> Any:
        op = function.__name__.removeprefix("dsc_")
        if not self._handle:
            self._refuse("the plan was closed", op)
        if self._comm._batch is not None:
            self._refuse("called inside batch(); expected a call outside batch()", op)
        end_dropped(self._latest, self._comm)
        kept = [part.owner for part in owners if part is not None]
        work: Optional[Work] = self._comm._run(_OnPlan(function, self._handle), arguments, kept, async_op, stream)
        self._latest = 0 if work is None else work._handle
        return result if work is None else work

    def _refuse(self, text: str, op: str) -> NoReturn:
        raise errors.from_code(Result.ERR_STATE, f"{op}: {text}", op=op, group=self._comm.name)

    def _given(self, x: Any, argument: str, shape: tuple[int, ...], dtype: Any) -> Buffer:
        """Describes an input array whose shape must be the given dimensions and a last one of any size."""
        found = _buffers.describe(x, argument, dtype, False)
        if found.shape[:-1] != shape or len(found.shape) != len(shape) + 1:
            wanted = ", ".join([*(str(extent) for extent in shape), "hidden"])
            raise ValueError(f"{argument} has shape {found.shape}; expected ({wanted})")
        return found

    def _expected(self, x: Any, argument: str, shape: tuple[int, ...], like: Buffer, dtype: Any, writable: bool) -> Buffer:
        """Describes an array that must have this shape and the element type of like."""
        found = _buffers.describe(x, argument, dtype, writable)
        expect(argument, found, shape, like.dtype)
        return found

    def _result(
        self, out: Any, argument: str, shape: tuple[int, ...], x: Any, given: Buffer, dtype: Any, async_op: bool
    ) -> tuple[Any, Buffer]:
        if out is None and async_op:
            raise ValueError(f"{argument} is None; expected an array, because with async_op the call returns a Work and no array")
        if out is None:
            out = make_like(x, given, shape, None)
        return out, self._expected(out, argument, shape, given, dtype, True)

    def _weights(self, x: Any, argument: str, rows: Buffer, writable: bool) -> Optional[Buffer]:
        if x is None:
            return None
        found = _buffers.describe(x, argument, None, writable)
        expect(argument, found, (*self._shape, self.top_k), _weight_type(rows))
        return found


def _weight_type(rows: Buffer) -> Dtype:
    return Dtype.F64 if rows.dtype == Dtype.F64 else Dtype.F32


def _make_weights(like: Any, shape: tuple[int, ...], rows: Buffer) -> Any:
    """Allocates an array for the gradients of the weights."""
    if hasattr(like, "new_empty"):
        return like.new_empty(shape)
    if rows.device != -1:
        advice = "expected an array on the GPU, because weights has no new_empty()"
        raise ValueError(f"grad_weights is None; {advice}")
    return numpy_module().empty(shape, _dtypes.numpy_type(_weight_type(rows)))


def _address(found: Optional[Buffer]) -> Optional[int]:
    return None if found is None else found.address


class Experts(Losses):
    """Adds the exchange of tokens to Communicator. The experts of a layer are divided among its ranks."""

    __slots__ = ()

    def moe_plan(
        self,
        expert_ids: Array,
        experts: int,
        *,
        capacity: Optional[int] = None,
        drop: Union[DropName, MoeDrop] = "latest",
        padded: bool = False,
        weights: Any = None,
    ) -> MoePlan:
        """Returns a plan for the exchange of tokens, from the experts that the router chose for them. Collective.

        Rank r holds the experts of split_range(experts, size, r).

        Args:
            expert_ids: [..., top_k] of int32 on the host, numbers from 0 to experts - 1; -1 for a slot without an
                expert. The dimensions before top_k, one or more, are those of the tokens. They may differ between
                ranks.
            experts: the number of experts on all ranks, up to 2**24.
            capacity: the most rows for each pair of expert and source rank; None: no row is dropped.
            drop: which rows are dropped beyond the capacity: "latest" (those of the last tokens) or "lightest" (those
                with the lowest weights; needs a capacity).
            padded: True: each pair of expert and source rank has exactly capacity rows, filled up with zeros.
            weights: router weights, [..., top_k] of float32 on the host; needed to drop the lightest rows.
        """
        try:
            ids = _buffers.describe(expert_ids, "expert_ids", None, False)
            if len(ids.shape) < 2:
                hint = " (use expert_ids[:, None] for one expert per token)" if ids.shape else ""
                raise ValueError(f"expert_ids has shape {ids.shape}; expected [..., top_k]{hint}")
            expect("expert_ids", ids, ids.shape, Dtype.I32)
            options = _options(ids.shape[-1], experts, capacity, drop, padded)
            heavy = None if weights is None else _buffers.describe(weights, "weights", None, False)
            if heavy is not None:
                expect("weights", heavy, ids.shape, Dtype.F32)
            place_of(self, (ids.owner, None if heavy is None else heavy.owner), None)
            places = ctypes.cast(ids.address, POINTER(c_int32))
            factors = None if heavy is None else ctypes.cast(heavy.address, POINTER(c_float))
            made = c_void_p()
            count = math.prod(ids.shape[:-1])
            self._call(lib.dsc_moe_plan_create, byref(options), places, count, factors, byref(made))
            assert made.value is not None
            return MoePlan(self, made.value, ids.shape[:-1])
        except Exception as error:
            raise self._shown(error, "moe_plan")


def _options(top_k: int, experts: int, capacity: Optional[int], drop: Any, padded: bool) -> _raw.MoePlanOptions:
    options = _raw.MoePlanOptions()
    check(lib.dsc_moe_plan_options_init(byref(options), ctypes.sizeof(options)))
    options.experts, options.top_k = integer("experts", experts, 1, _MOST_EXPERTS), top_k
    options.capacity = 0 if capacity is None else integer("capacity", capacity, 1, SIZE[1])
    options.drop, options.padded = named("drop", MoeDrop, drop), boolean("padded", padded)
    return options
