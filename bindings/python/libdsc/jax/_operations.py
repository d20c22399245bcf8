"""The public operations of libdsc.jax."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from libdsc import _dtypes, _start, errors
from libdsc._arguments import brief, dimension, expect_communicator, member
from libdsc._communicator import Communicator
from libdsc._raw import Op, Result, TensorMapping
from libdsc._tensor_map import MapDirection
from libdsc._tensor_map import named
from libdsc._tracebacks import shown
from libdsc.jax import _jit, _order, _steps

_REDUCED = {"bool", "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64"}
_REDUCED |= {"float8_e4m3fn", "float8_e5m2", "complex64", "complex128"}
_MOVED = _REDUCED | {"int16", "uint16"}


def all_reduce(x: Any, op: Any = "sum", comm: Optional[Communicator] = None, *, token: Any = None) -> Any:
    """Returns x combined over all ranks. Collective.

    The gradient of "sum" and "avg" is the same reduction of the gradients. Other operations have no gradient.

    Args:
        x: an array, or a tree of arrays, which is reduced in one call.
        op: "sum", "prod", "max", "min", "avg", "band", "bor" or "bxor".
        comm: the communicator; None: the world.
        token: orders calls explicitly; with it the result is (y, token).
    """
    try:
        group = _group(comm)
        return _tree(_steps.AllReduce(group._handle, _op(op)), x, token, _REDUCED)
    except Exception as error:
        raise shown(error)


def average_gradients(grads: Any, comm: Optional[Communicator] = None, *, token: Any = None) -> Any:
    """Returns the tree of gradients averaged over all ranks, in one call. Collective.

    Args:
        grads: a floating-point array, or a tree of them; of equal structure on all ranks.
        comm: the communicator; None: the world.
        token: orders calls explicitly; with it the result is (tree, token).
    """
    try:
        group = _group(comm)
        for path, leaf in jax.tree_util.tree_flatten_with_path(grads)[0]:
            if not jnp.issubdtype(jnp.result_type(leaf), jnp.inexact):
                where, kind = jax.tree_util.keystr(path), jnp.result_type(leaf)
                raise TypeError(f"grads{where} has element type {kind}; expected a floating-point type, because the call averages")
        return _tree(_steps.AllReduce(group._handle, Op.AVG), grads, token, _REDUCED)
    except Exception as error:
        raise shown(error)


def broadcast(x: Any, root: int = 0, comm: Optional[Communicator] = None, *, token: Any = None) -> Any:
    """Returns the root's arrays on all ranks. Collective.

    The gradient is the sum over all ranks on the root, and zero on the others.

    Args:
        x: an array, or a tree of arrays, which is sent in one call; of equal shapes on all ranks.
        root: the rank whose arrays are sent.
        comm: the communicator; None: the world.
        token: orders calls explicitly; with it the result is (y, token).
    """
    try:
        group = _group(comm)
        step = _steps.Broadcast(group._handle, member("root", root, group.size), group.rank)
        return _tree(step, x, token, _MOVED)
    except Exception as error:
        raise shown(error)


def all_gather(x: Any, axis: int = 0, comm: Optional[Communicator] = None, *, token: Any = None) -> Any:
    """Returns the arrays of all ranks, concatenated along an axis. Collective.

    For a new axis pass x[None]. The gradient is the sum over all ranks of this rank's part (reduce-scatter). If all
    ranks already have the same gradient, use tensor_map(x, "gather"), whose gradient is this rank's part without a sum.

    Args:
        x: an array, of equal shape on all ranks.
        axis: the axis along which they are concatenated.
        comm: the communicator; None: the world.
        token: orders calls explicitly; with it the result is (y, token).
    """
    return _mapped(x, TensorMapping.GATHER_REDUCE, axis, comm, token)


def reduce_scatter(
    x: Any, op: Any = "sum", axis: int = 0, comm: Optional[Communicator] = None, *, token: Any = None
) -> Any:
    """Returns this rank's part of the sum over all ranks, divided along an axis. Collective.

    The gradient is the all-gather of the parts' gradients.

    Args:
        x: an array, of equal shape on all ranks.
        op: "sum" or "avg".
        axis: the axis that is divided; its size is a multiple of the number of ranks.
        comm: the communicator; None: the world.
        token: orders calls explicitly; with it the result is (y, token).
    """
    try:
        if _op(op) not in (Op.SUM, Op.AVG):
            raise ValueError(f'op is {brief(op)}; expected "sum" or "avg"')
        divisor = _group(comm).size if _op(op) == Op.AVG else 1
    except Exception as error:
        raise shown(error)
    found = _mapped(x, TensorMapping.REDUCE_SCATTER, axis, comm, token)
    if divisor == 1:
        return found
    return found / divisor if token is None else (found[0] / divisor, found[1])


def all_to_all(x: Any, axis: int = 0, comm: Optional[Communicator] = None, *, token: Any = None) -> Any:
    """Sends part r of x along an axis to rank r, and returns the parts that all ranks sent to this one. Collective.

    Args:
        x: an array, of equal shape on all ranks.
        axis: the axis that is divided; its size is a multiple of the number of ranks.
        comm: the communicator; None: the world.
        token: orders calls explicitly; with it the result is (y, token).
    """
    return _mapped(x, TensorMapping.ALL_TO_ALL, axis, comm, token)


def tensor_map(x: Any, mapping: Any, axis: int = -1, comm: Optional[Communicator] = None, *, token: Any = None) -> Any:
    """Applies the forward step of a tensor-parallel mapping; gradients use its backward step. Collective.

    Args:
        x: the whole array or this rank's part, as Communicator.tensor_map() says.
        mapping: "copy", "reduce", "scatter", "gather", "gather_reduce", "reduce_scatter", "all_to_all",
            "sequence_to_hidden" or "hidden_to_sequence".
        axis: the axis that is divided into equal parts, one per rank.
        comm: the communicator; None: the world.
        token: orders calls explicitly; with it the result is (y, token).
    """
    return _mapped(x, mapping, axis, comm, token)


def send_recv(
    x: Any, dest: Optional[int], source: Optional[int], comm: Optional[Communicator] = None, *, token: Any = None
) -> Any:
    """Sends x to one rank and returns the array that another rank sent, of equal shape and type.

    Both transfers run at the same time, so all ranks of a ring may call it. Gradients go in the opposite direction.

    Args:
        x: an array.
        dest: the rank that receives x; None: x is not sent.
        source: the rank whose array is returned; None: nothing is received, and the result is zeros.
        comm: the communicator; None: the world.
        token: orders calls explicitly; with it the result is (y, token).
    """
    try:
        group = _group(comm)
        peers = [_steps.NOBODY if r is None else _peer(name, r, group) for name, r in (("dest", dest), ("source", source))]
        found = _perform(_steps.SendRecv(group._handle, *peers), (_array(x, "x", _MOVED),), token)
        return _first(found, token)
    except Exception as error:
        raise shown(error)


def send(x: Any, dest: int, comm: Optional[Communicator] = None, *, token: Any = None) -> Any:
    """Sends x to one rank, which calls recv(); returns when x has arrived there. It has no gradient: see send_recv().

    Args:
        x: an array.
        dest: the rank that receives x.
        comm: the communicator; None: the world.
        token: orders calls explicitly; with it the result is the next token.
    """
    try:
        group = _group(comm)
        found = _perform(_steps.Send(group._handle, _peer("dest", dest, group)), (_array(x, "x", _MOVED),), token)
        return None if token is None else found[1]
    except Exception as error:
        raise shown(error)


def recv(like: Any, source: int, comm: Optional[Communicator] = None, *, token: Any = None) -> Any:
    """Returns the array that one rank sends by send(). It has no gradient: see send_recv().

    Args:
        like: an array with the shape and type of the message; its elements are not used.
        source: the rank that sends.
        comm: the communicator; None: the world.
        token: orders calls explicitly; with it the result is (y, token).
    """
    try:
        group = _group(comm)
        found = _perform(_steps.Recv(group._handle, _peer("source", source, group)), (_array(like, "like", _MOVED),), token)
        return _first(found, token)
    except Exception as error:
        raise shown(error)


def barrier(comm: Optional[Communicator] = None, *, token: Any = None) -> Any:
    """Waits until all ranks have arrived. Collective.

    Args:
        comm: the communicator; None: the world.
        token: orders calls explicitly; with it the result is the next token.
    """
    try:
        found = _perform(_steps.Barrier(_group(comm)._handle), (), token)
        return None if token is None else found[1]
    except Exception as error:
        raise shown(error)


def create_token() -> Any:
    """Returns a token, for programs that order their calls themselves. Each call takes a token and returns the next.

    Calls that are not connected by tokens have no order. Return the last token from a compiled function; otherwise XLA
    may omit the call that returned it.
    """
    return jnp.asarray(_order.FIRST)


def _group(comm: Optional[Communicator]) -> Communicator:
    if comm is None:
        return _start.world()
    expect_communicator("comm", comm)
    if not comm._handle:
        raise errors.from_code(Result.ERR_BAD_HANDLE, "comm was closed or finalized; expected an open communicator")
    return comm


def _op(op: Any) -> int:
    if not isinstance(op, (str, Op)):
        raise TypeError(f"op is {brief(op)}; expected the name of a built-in operation")
    return int(_dtypes.op_code(op))


def _peer(name: str, rank: Any, group: Communicator) -> int:
    found = member(name, rank, group.size)
    if found == group.rank:
        raise ValueError(f"{name} is {found}, this rank itself; expected another rank")
    return found


def _array(x: Any, name: str, kinds: set[str]) -> Any:
    """Converts x to an array of JAX, and checks that the operation supports its type."""
    if not isinstance(x, (jax.Array, np.ndarray, np.generic, int, float, complex)):
        raise TypeError(f"{name} is a {type(x).__name__}; expected an array")
    array = jnp.asarray(x)
    if array.dtype.name not in kinds:
        raise TypeError(f"{name} has element type {array.dtype}; expected one of {', '.join(sorted(kinds))}")
    return array


def _tree(step: _steps.Step, x: Any, token: Any, kinds: set[str]) -> Any:
    leaves, tree = jax.tree_util.tree_flatten_with_path(x)
    arrays = tuple(_array(leaf, "x" + jax.tree_util.keystr(path), kinds) for path, leaf in leaves)
    found, after = _perform(step, arrays, token)
    result = jax.tree_util.tree_unflatten(tree, found)
    return result if token is None else (result, after)


def _mapped(x: Any, mapping: Any, axis: int, comm: Optional[Communicator], token: Any) -> Any:
    try:
        group, kind = _group(comm), named("mapping", TensorMapping, mapping)
        array = _array(x, "x", _MOVED)
        at = dimension(axis, array.ndim, "x")
        if at == 0 and kind in (TensorMapping.SEQUENCE_TO_HIDDEN, TensorMapping.HIDDEN_TO_SEQUENCE):
            raise ValueError("axis is 0, the sequence dimension; expected another dimension of x")
        step = _steps.Mapping(group._handle, group.size, group.rank, kind, MapDirection.FORWARD, at)
        return _first(_perform(step, (array,), token), token)
    except Exception as error:
        raise shown(error)


def _first(found: tuple[Sequence[Any], Any], token: Any) -> Any:
    (result,), after = found
    return result if token is None else (result, after)


def _perform(step: _steps.Step, arrays: tuple[Any, ...], token: Any) -> tuple[Sequence[Any], Any]:
    """Applies a step: with an explicit token, as a part of the function that is being traced, or immediately."""
    if token is not None:
        return _steps.apply(step, arrays, jnp.asarray(token, jnp.float32))  # type: ignore[no-any-return]
    if _order.is_tracing():
        return _steps.apply(step, arrays, _order.UNORDERED)  # type: ignore[no-any-return]
    if any(isinstance(x, jax.core.Tracer) for x in arrays):
        raise TypeError(
            f"{step.name} is called inside a transformation of JAX that does not keep the order of operations, such as jax.jit; "
            "expected libdsc.jax.jit() as the outermost one, as in libdsc.jax.jit(jax.grad(f)), or token="
        )
    found, after = _at_once.with_token((step, arrays), {})
    if not found:
        try:
            after.block_until_ready()
        except jax.errors.JaxRuntimeError as error:
            _jit.raise_failure(error)
    return found, after


def _apply(step: _steps.Step, arrays: tuple[Any, ...]) -> Sequence[Any]:
    found: Sequence[Any] = _steps.apply(step, arrays, _order.UNORDERED)[0]
    return found


_at_once = _jit.Jitted(_apply, {"static_argnums": 0})
