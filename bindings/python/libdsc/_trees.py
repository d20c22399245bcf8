"""Trees (nested dicts, lists and tuples) of arrays: flattening in the order of JAX, averages and broadcasts."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Optional, Sequence, TypeVar

from libdsc import _buffers, _dtypes
from libdsc._arguments import expect_communicator, member
from libdsc._lists import Lists
from libdsc._memory import numpy_module
from libdsc._raw import Dtype

Tree = TypeVar("Tree")

FLOATS = {Dtype.F16, Dtype.F32, Dtype.F64, Dtype.BF16, Dtype.F8E4M3, Dtype.F8E5M2}


def flatten(tree: Any, path: str) -> list[tuple[str, Any]]:
    """Returns the arrays of a tree with their paths, such as "grads['layer1'][0]".

    Dicts are visited by sorted key. None is skipped.
    """
    return list(_leaves(tree, path))


def parameters_of(params: Any, names: Optional[Sequence[str]]) -> tuple[list[str], list[Any], Optional[Sequence[str]]]:
    """Returns paths, arrays and names of a model's parameters. The names of a tree's arrays are their paths."""
    given = params if isinstance(params, Mapping) else _buffers.list_of_arrays("params", params)
    for index, x in enumerate(() if isinstance(given, Mapping) else given):
        if x is None:
            raise TypeError(f"params[{index}] is None; expected an array")
    leaves = flatten(given, "params")
    paths = [path for path, _ in leaves]
    if names is None and paths != [f"params[{index}]" for index in range(len(paths))]:
        names = paths
    return paths, [x for _, x in leaves], names


def _leaves(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        for key in _sorted_keys(tree, path):
            yield from _leaves(tree[key], f"{path}[{key!r}]")
    elif isinstance(tree, (list, tuple)):
        for index, part in enumerate(tree):
            yield from _leaves(part, f"{path}[{index}]")
    elif tree is not None:
        yield path, tree


def _sorted_keys(tree: Mapping[Any, Any], path: str) -> list[Any]:
    try:
        return sorted(tree)
    except TypeError as error:
        raise TypeError(f"{path} has keys that cannot be sorted; expected keys of one type ({error})") from None


def rebuild(tree: Any, leaves: Iterator[Any]) -> Any:
    """Returns a tree of the same structure with other leaves, given in the order of flatten()."""
    if isinstance(tree, Mapping):
        made = {key: rebuild(tree[key], leaves) for key in sorted(tree)}
        return {key: made[key] for key in tree}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*[rebuild(part, leaves) for part in tree])
    if isinstance(tree, (list, tuple)):
        parts = [rebuild(part, leaves) for part in tree]
        return parts if isinstance(tree, list) else tuple(parts)
    return None if tree is None else next(leaves)


def is_writable(x: Any, path: str, dtype: Any) -> bool:
    """Whether an array can be written. Raises an exception if operations do not accept it at all."""
    _buffers.describe(x, path, dtype, False)
    try:
        _buffers.describe(x, path, dtype, True)
    except ValueError:
        return False
    return True


class TreeOperations(Lists):
    """Adds the operations on trees of arrays to Communicator."""

    __slots__ = ()

    def average_gradients(self, grads: Tree, dtype: Any = None) -> Tree:
        """Returns the tree of gradients averaged over all ranks. Collective.

        Writable arrays get the average in place and are returned. For read-only arrays, such as JAX's, it returns new
        numpy arrays. A BucketReducer is faster if gradients become ready one after another.

        Args:
            grads: an array, or nested dicts, lists and tuples of arrays; of equal structure on all ranks.
            dtype: the element type of all arrays, such as "bf16".
        """
        pairs = [(x, *_result_of(x, path, dtype)) for path, x in flatten(grads, "grads")]
        _require_distinct(grads, dtype)
        with self.batch():
            for x, out, code in pairs:
                self.all_reduce(x, "avg", None if out is x else out, dtype=code)
        result: Tree = rebuild(grads, iter([out for _, out, _ in pairs]))
        return result

    def broadcast_tree(self, tree: Tree, root: int = 0, dtype: Any = None) -> Tree:
        """Returns the root's tree of arrays on all ranks, such as the parameters of a model in JAX. Collective.

            params = comm.broadcast_tree(params)

        All ranks must pass a tree of the same structure, types and shapes. This is checked first; if an array differs,
        all ranks raise MismatchError, which names it. Writable arrays get the root's values in place and are returned.
        For read-only arrays, such as JAX's, it returns new numpy arrays. The root gets its own tree back.

        Args:
            tree: an array, or nested dicts, lists and tuples of arrays.
            root: the rank whose arrays are copied.
            dtype: the element type of all arrays, such as "bf16".
        """
        root = member("root", root, self._size)
        leaves = flatten(tree, "tree")
        outs = [x if self._rank == root else _writable(x, path, dtype) for path, x in leaves]
        self.verify_params([x for _, x in leaves], [path for path, _ in leaves], dtype)
        codes = [_buffers.describe(x, path, dtype, False).dtype for path, x in leaves]
        with self.batch():
            for out, code in zip(outs, codes):
                self.broadcast(out, root, dtype=Dtype(code))
        result: Tree = rebuild(tree, iter(outs))
        return result


def average_gradients(comm: TreeOperations, grads: Tree, dtype: Any = None) -> Tree:
    """Same as comm.average_gradients()."""
    expect_communicator("comm", comm)
    return comm.average_gradients(grads, dtype)


def broadcast_tree(comm: TreeOperations, tree: Tree, root: int = 0, dtype: Any = None) -> Tree:
    """Same as comm.broadcast_tree()."""
    expect_communicator("comm", comm)
    return comm.broadcast_tree(tree, root, dtype)


def _writable(x: Any, path: str, dtype: Any) -> Any:
    """Returns the array itself if it can be written, otherwise a new array of the same type and shape."""
    if is_writable(x, path, dtype):
        return x
    found = _buffers.describe(x, path, dtype, False)
    if found.device >= 0:
        raise ValueError(f"{path} is read-only and on a GPU; expected a writable array")
    return numpy_module().empty(found.shape, _dtypes.view_type(found.dtype, getattr(x, "dtype", None)))


def _result_of(x: Any, path: str, dtype: Any) -> tuple[Any, Dtype]:
    """Returns the array that gets an average, and its element type."""
    code = Dtype(_buffers.describe(x, path, dtype, False).dtype)
    if code not in FLOATS:
        raise TypeError(f"{path} has element type {code.name.lower()}; expected a floating-point type, because the call averages")
    return _writable(x, path, dtype), code


def _require_distinct(grads: Any, dtype: Any) -> None:
    """Raises ValueError if an array occurs twice in the tree, because two averages would write to the same memory."""
    places: dict[int, str] = {}
    for path, x in flatten(grads, "grads"):
        found = _buffers.describe(x, path, dtype, False)
        other = places.setdefault(found.address, path) if found.count else path
        if other != path:
            raise ValueError(f"{path} has the same memory as {other}; expected each array once")
