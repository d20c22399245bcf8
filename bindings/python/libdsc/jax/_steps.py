"""Steps: the forward operation and the gradient of each operation. They may be parts of compiled programs.

Programs that contain equal steps are equal. The adjoint of a step is the step for its gradients. All gradient rules are
adjoints of linear maps over all ranks, so they give the gradient of the sum of all ranks' losses.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any, Optional, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from libdsc._raw import Op, TensorMapping
from libdsc._tensor_map import MapDirection
from libdsc._tensor_map import PartSizes
from libdsc.jax._module import PREFIX

Arrays = tuple[Any, ...]

NOBODY = -1
# A token is a float, so that it has a gradient: the token of the backward pass.
TOKEN = jax.ShapeDtypeStruct((), jnp.float32)


def _call(name: str, arrays: Sequence[Any], results: Sequence[Any], token: Any, **numbers: int) -> tuple[Arrays, Any]:
    """Calls a handler. Under vmap all arrays get a new first dimension, and many small calls become one larger call."""
    like = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in results]
    attributes = {key: np.int64(value) for key, value in numbers.items()}
    function = jax.ffi.ffi_call(PREFIX + name, [*like, TOKEN], vmap_method="broadcast_all")
    *found, after = function(*arrays, token, **attributes)
    return tuple(found), after


@dataclass(frozen=True)
class Step:
    """An operation on a communicator, which is given by its handle."""

    comm: int

    @property
    def name(self) -> str:
        """The name of the operation in errors."""
        return re.sub("(?<=.)(?=[A-Z])", "_", type(self).__name__).lower()

    def run(self, arrays: Arrays, token: Any) -> tuple[Arrays, Any]:
        """Applies the step to arrays."""
        raise NotImplementedError

    def adjoint(self) -> Step:
        """Returns the step for the gradients."""
        raise TypeError(f"{self.name} has no gradient{self.instead}")

    @property
    def instead(self) -> str:
        """Advice for errors: what to use if a gradient is needed."""
        return ""


@dataclass(frozen=True)
class AllReduce(Step):
    """Reduces each array over all ranks."""

    op: int

    def run(self, arrays: Arrays, token: Any) -> tuple[Arrays, Any]:
        return _call("all_reduce", arrays, arrays, token, comm=self.comm, op=self.op) if arrays else (arrays, token)

    def adjoint(self) -> Step:
        if self.op not in (Op.SUM, Op.AVG):
            return super().adjoint()
        return self

    @property
    def instead(self) -> str:
        return f' with op "{Op(self.op).name.lower()}"; expected "sum" or "avg", or jax.lax.stop_gradient() of the result'


@dataclass(frozen=True)
class Broadcast(Step):
    """Copies the root's arrays to all ranks."""

    root: int
    rank: int

    def run(self, arrays: Arrays, token: Any) -> tuple[Arrays, Any]:
        return _call("broadcast", arrays, arrays, token, comm=self.comm, root=self.root) if arrays else (arrays, token)

    def adjoint(self) -> Step:
        return ReduceToRoot(self.comm, self.root, self.rank)


@dataclass(frozen=True)
class ReduceToRoot(Step):
    """Sums over all ranks; the root gets the sum, the others get zeros."""

    root: int
    rank: int

    def run(self, arrays: Arrays, token: Any) -> tuple[Arrays, Any]:
        found, after = AllReduce(self.comm, Op.SUM).run(arrays, token)
        return (found if self.rank == self.root else tuple(map(jnp.zeros_like, found))), after

    def adjoint(self) -> Step:
        return Broadcast(self.comm, self.root, self.rank)


@dataclass(frozen=True)
class Mapping(Step):
    """One direction of a mapping between a whole tensor and the parts of it on the ranks."""

    size: int
    rank: int
    mapping: TensorMapping
    direction: MapDirection
    axis: int

    @property
    def name(self) -> str:
        """The name of the mapping in errors."""
        return f"tensor_map {self.mapping.name.lower()}"

    def adjoint(self) -> Step:
        forward = self.direction == MapDirection.FORWARD
        return replace(self, direction=MapDirection.BACKWARD if forward else MapDirection.FORWARD)

    def run(self, arrays: Arrays, token: Any) -> tuple[Arrays, Any]:
        (x,) = arrays
        if self._is((TensorMapping.COPY, TensorMapping.REDUCE)):
            return arrays, token
        if self._is((TensorMapping.SCATTER, TensorMapping.GATHER)):
            return (self._slice(x),), token
        if self.mapping in (TensorMapping.COPY, TensorMapping.REDUCE):
            return AllReduce(self.comm, Op.SUM).run(arrays, token)
        if self.mapping in (TensorMapping.SEQUENCE_TO_HIDDEN, TensorMapping.HIDDEN_TO_SEQUENCE):
            return self._exchange_sequence(x, token)
        return self._call(x, token)

    def _is(self, pair: tuple[TensorMapping, TensorMapping]) -> bool:
        """Whether this is the first mapping of a pair going forward, or the second one going backward."""
        return self.mapping == pair[self.direction == MapDirection.BACKWARD]

    def _slice(self, x: Any) -> Any:
        part = PartSizes(None, self.rank, self.size).part_of(x.shape[self.axis], self.axis)
        return jax.lax.slice_in_dim(x, self.rank * part, (self.rank + 1) * part, axis=self.axis)

    def _sums(self) -> bool:
        return self._is((TensorMapping.REDUCE_SCATTER, TensorMapping.GATHER_REDUCE))

    def _call(self, x: Any, token: Any) -> tuple[Arrays, Any]:
        shape = list(x.shape)
        if self._sums():
            shape[self.axis] = PartSizes(None, self.rank, self.size).part_of(shape[self.axis], self.axis)
        elif self.mapping == TensorMapping.ALL_TO_ALL:
            PartSizes(None, self.rank, self.size).part_of(shape[self.axis], self.axis)
        else:
            shape[self.axis] *= self.size
        whole = max(shape[self.axis], x.shape[self.axis])
        numbers = {
            "comm": self.comm,
            "mapping": self.mapping,
            "direction": self.direction,
            "count": math.prod(x.shape),
            "outer": math.prod(x.shape[: self.axis]),
            "dim": whole,
            "inner": math.prod(x.shape[self.axis + 1 :]),
            "sums": self._sums(),
        }
        return _call("tensor_map", (x,), (jax.ShapeDtypeStruct(shape, x.dtype),), token, **numbers)

    def _exchange_sequence(self, x: Any, token: Any) -> tuple[Arrays, Any]:
        """Runs an all-to-all along one dimension, and joins the received blocks along another.

        It also works under vmap.
        """
        to_hidden = self._is((TensorMapping.SEQUENCE_TO_HIDDEN, TensorMapping.HIDDEN_TO_SEQUENCE))
        split, joined = (self.axis, 0) if to_hidden else (0, self.axis)
        part = PartSizes(None, self.rank, self.size).part_of(x.shape[split], split)
        shape = [*x.shape[:split], self.size, part, *x.shape[split + 1 :]]
        blocks = jnp.moveaxis(x.reshape(shape), split, 0)
        exchange = replace(self, mapping=TensorMapping.ALL_TO_ALL, axis=0)
        (received,), after = exchange._call(blocks, token)
        whole = [*received.shape[1:]]
        whole[joined] *= self.size
        return (jnp.moveaxis(received, 0, joined).reshape(whole),), after


@dataclass(frozen=True)
class SendRecv(Step):
    """Sends a message to one rank, and receives one of equal shape from another. NOBODY: no message, and zeros."""

    dest: int
    source: int

    def run(self, arrays: Arrays, token: Any) -> tuple[Arrays, Any]:
        return _call("send_recv", arrays, arrays, token, comm=self.comm, dest=self.dest, source=self.source)

    def adjoint(self) -> Step:
        return SendRecv(self.comm, self.source, self.dest)


@dataclass(frozen=True)
class OneWay(Step):
    """A message in one direction.

    It has no gradient: the peer's program would not expect the message of the gradient.
    """

    peer: int

    @property
    def instead(self) -> str:
        return "; expected send_recv(), which has a gradient, or jax.lax.stop_gradient() of the argument"


class Send(OneWay):
    """Sends a message to one rank."""

    def run(self, arrays: Arrays, token: Any) -> tuple[Arrays, Any]:
        return _call("send", arrays, (), token, comm=self.comm, peer=self.peer)


class Recv(OneWay):
    """Receives a message from one rank, in the shape of the argument."""

    def run(self, arrays: Arrays, token: Any) -> tuple[Arrays, Any]:
        return _call("recv", arrays, arrays, token, comm=self.comm, peer=self.peer)


@dataclass(frozen=True)
class Nothing(Step):
    """Does nothing. It is the backward step of a step without data."""

    def run(self, arrays: Arrays, token: Any) -> tuple[Arrays, Any]:
        return arrays, token

    def adjoint(self) -> Step:
        return self


class Barrier(Nothing):
    """Waits until all ranks have arrived."""

    def run(self, arrays: Arrays, token: Any) -> tuple[Arrays, Any]:
        return _call("barrier", (), (), token, comm=self.comm)

    def adjoint(self) -> Step:
        return Nothing(self.comm)


def _run(step: Step, arrays: Arrays, token: Any) -> tuple[Arrays, Any]:
    return step.run(arrays, token)


def _forward(step: Step, arrays: Arrays, token: Any) -> tuple[tuple[Arrays, Any], Any]:
    """Applies a step that has a gradient. One-way messages are refused here already.

    If the program does not use the result of a message, JAX drops the call of the gradient, which could then not report
    the error.
    """
    if isinstance(step, OneWay):
        step.adjoint()
    found, after = apply(step, arrays, token)
    return (found, after), after


def _backward(step: Step, after: Any, gradients: tuple[Arrays, Any]) -> tuple[tuple[Optional[Any], ...], Any]:
    """Applies the adjoint.

    Its token is the gradient of the token, ordered after the step. Integers have no gradient.
    """
    given, token = gradients
    has_gradient = [x.dtype != jax.dtypes.float0 for x in given]
    found, token = apply(step.adjoint(), tuple(x for x, has in zip(given, has_gradient) if has), token + after)
    rest = iter(found)
    return tuple(next(rest) if has else None for has in has_gradient), token


apply = jax.custom_vjp(_run, nondiff_argnums=(0,))
apply.defvjp(_forward, _backward)
