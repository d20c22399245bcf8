"""Sends pickled Python objects between the ranks of a communicator; their sizes are sent first."""

from __future__ import annotations

import array
import functools
import operator
import pickle
from typing import Any, Callable, Optional, Sequence, Union

from libdsc import errors
from libdsc._arguments import expect_communicator, member
from libdsc._broadcast_data import NamedArrays
from libdsc._raw import Result
from libdsc._types import OpName

PROTOCOL = 5  # of pickle; every supported version of Python can read it
# The count of numbers in a rank's header: whether its object was pickled, and the size of the bytes that follow.
HEADER = 2
# These operations start with the same all-gather of headers, so the library cannot tell which of them a rank has
# called. Each header therefore also contains the index of the operation in this tuple, and its root.
ALIKE = ("all_gather_object", "gather_object", "all_reduce_object", "reduce_object")


class Objects(NamedArrays):
    """Adds the operations on Python objects to Communicator.

    Warning: pickle runs code that the other ranks send. Use these calls only between ranks that trust each other.

    If an object cannot be pickled on one rank, all participating ranks raise InvalidArgError, with .rank, and the
    communicator keeps working. If an object cannot be unpickled, the receiving rank raises. For arrays, the operations
    on arrays are faster.
    """

    __slots__ = ()

    def broadcast_object(self, obj: Any = None, root: int = 0) -> Any:
        """Returns the root's object on all ranks; obj is ignored elsewhere. Collective.

        Runs pickle on what the root sends: see the warning of Objects.
        """
        root = member("root", root, self._size)
        self._require_no_batch("broadcast_object")
        header, data = _pack(obj) if self._rank == root else (_header(True, 0), bytearray())
        self.broadcast(header, root)
        if self._rank != root:
            data = bytearray(header[1])
        self.broadcast(data, root)
        self._require_pickled("broadcast_object", root, header, data)
        return obj if self._rank == root else self._unpack("broadcast_object", root, data)

    def all_gather_object(self, obj: Any) -> list[Any]:
        """Returns the objects of all ranks, in rank order, on all ranks. Collective.

        Runs pickle on what all ranks send: see the warning of Objects.
        """
        return self._all_gather_object("all_gather_object", obj)

    def _all_gather_object(self, name: str, obj: Any) -> list[Any]:
        self._require_no_batch(name)
        header, data = _pack(obj)
        headers = self._headers(name, -1, header)
        sizes = [size for _, size in headers]
        parts = [data if rank == self._rank else bytearray(size) for rank, size in enumerate(sizes)]
        with self.batch():
            for rank, part in enumerate(parts):
                self.broadcast(part, rank)
        for rank, (part_header, part) in enumerate(zip(headers, parts)):
            self._require_pickled(name, rank, part_header, part)
        return [obj if rank == self._rank else self._unpack(name, rank, part) for rank, part in enumerate(parts)]

    def gather_object(self, obj: Any, root: int = 0) -> Optional[list[Any]]:
        """Returns the objects of all ranks, in rank order, on the root, and None elsewhere. Collective.

        Runs pickle on what all ranks send: see the warning of Objects.
        """
        return self._gather_object("gather_object", obj, root)

    def _gather_object(self, name: str, obj: Any, root: int) -> Optional[list[Any]]:
        root = member("root", root, self._size)
        self._require_no_batch(name)
        header, data = _pack(obj)
        headers = self._headers(name, root, header)
        failed = next((rank for rank, (is_pickled, _) in enumerate(headers) if not is_pickled), None)
        if failed is not None:  # all ranks see the failure, and get its text from the failed rank
            text = data if self._rank == failed else bytearray(headers[failed][1])
            self.broadcast(text, failed)
            self._require_pickled(name, failed, headers[failed], text)
        parts = [bytearray(size) if self._rank == root else bytearray() for _, size in headers]
        with self.batch():
            for rank in range(self._size):
                if rank != root and self._rank == root:
                    self.recv(parts[rank], rank)
            if self._rank != root:
                self.send(data, root)
        if self._rank != root:
            return None
        return [obj if rank == root else self._unpack(name, rank, part) for rank, part in enumerate(parts)]

    def scatter_object(self, objs: Optional[Sequence[Any]] = None, root: int = 0) -> Any:
        """Returns object r of the root's list on rank r; objs is ignored elsewhere. Collective.

        Runs pickle on what the root sends: see the warning of Objects.
        """
        name, root = "scatter_object", member("root", root, self._size)
        self._require_no_batch(name)
        is_root = self._rank == root
        packed = self._pack_list(objs) if is_root else []
        header = array.array("q", [number for part_header, _ in packed for number in part_header])
        headers = header if is_root else array.array("q", [0] * HEADER * self._size)
        self.broadcast(headers, root)
        if not headers[0]:  # the first header belongs to the failure, if there is one
            text = packed[0][1] if is_root else bytearray(headers[1])
            self.broadcast(text, root)
            self._require_pickled(name, root, headers, text)
        own = bytearray(0 if is_root else headers[HEADER * self._rank + 1])
        with self.batch():
            for rank, (_, data) in enumerate(packed):
                if rank != root:
                    self.send(data, rank)
            if not is_root:
                self.recv(own, root)
        if is_root:
            assert objs is not None
            return objs[root]
        return self._unpack(name, root, own)

    def send_object(self, obj: Any, peer: int) -> None:
        """Sends a Python object to one rank, which calls recv_object(); returns when that rank has received it.

        An object that cannot be pickled raises InvalidArgError on both ranks.
        """
        name, peer = "send_object", member("peer", peer, self._size)
        self._require_no_batch(name)
        header, data = _pack(obj)
        self.send(header, peer)
        self.send(data, peer)
        self._require_pickled(name, self._rank, header, data)

    def recv_object(self, peer: int) -> Any:
        """Returns the object that one rank sends with send_object().

        Runs pickle on what that rank sends: see the warning of Objects.
        """
        name, peer = "recv_object", member("peer", peer, self._size)
        self._require_no_batch(name)
        header = _header(True, 0)
        self.recv(header, peer)
        data = bytearray(header[1])
        self.recv(data, peer)
        self._require_pickled(name, peer, header, data)
        return self._unpack(name, peer, data)

    def all_reduce_object(self, obj: Any, op: ObjectOp = "sum") -> Any:
        """Returns the objects of all ranks combined, such as numbers, on all ranks. Collective.

            total = comm.all_reduce_object(len(batch))

        Objects are combined in rank order, so all ranks get the same result. For an array, all_reduce() is faster.
        Runs pickle on what all ranks send: see the warning of Objects.

        Args:
            obj: a number, or anything that op takes.
            op: "sum" (by +), "prod", "max", "min", "avg", "band", "bor" or "bxor", or a function of two objects; the
                same on all ranks.
        """
        combine = combining("all_reduce_object", op)
        return combine(self._all_gather_object("all_reduce_object", (_spelled(op), obj)))

    def reduce_object(self, obj: Any, op: ObjectOp = "sum", root: int = 0) -> Any:
        """Returns the objects of all ranks combined on the root, and None elsewhere. Collective.

        Otherwise like all_reduce_object().
        """
        combine = combining("reduce_object", op)
        objs = self._gather_object("reduce_object", (_spelled(op), obj), root)
        return None if objs is None else combine(objs)

    def _pack_list(self, objs: Optional[Sequence[Any]]) -> list[tuple[array.array[int], bytearray]]:
        """Returns header and data for each rank.

        If an object cannot be pickled, only the first entry is a failure text.
        """
        if not isinstance(objs, (list, tuple)) or len(objs) != self._size:
            came = f"{len(objs)} objects" if isinstance(objs, (list, tuple)) else f"a {type(objs).__name__}"
            packed = [_failure(f"objs is {came}; expected a list of {self._size} objects, one per rank")]
        else:
            packed = [_pack(obj) for obj in objs]
        failed = next((part for part in packed if not part[0][0]), None)
        if failed is None:
            return packed
        return [failed] + [(_header(False, 0), bytearray())] * (self._size - 1)

    def _headers(self, name: str, root: int, header: array.array[int]) -> list[array.array[int]]:
        """Gathers the headers of all ranks: whether each pickled its object, and how many bytes follow.

        Raises if the ranks called different operations.
        """
        width = HEADER + 2
        flat = array.array("q", [0] * width * self._size)
        self.all_gather(flat, header + array.array("q", [ALIKE.index(name), root]))
        of_ranks = [flat[width * rank : width * (rank + 1)] for rank in range(self._size)]
        self._require_same(name, [_call_text(number, of_root) for *_, number, of_root in of_ranks])
        return [of_rank[:HEADER] for of_rank in of_ranks]

    def _require_same(self, name: str, calls: Sequence[str]) -> None:
        """Raises MismatchError on all ranks if they called different operations.

        No rank is waiting in an operation then, so the communicator stays usable.
        """
        usual = max(calls, key=calls.count)
        ranks = tuple(rank for rank, call in enumerate(calls) if call != usual)
        if ranks:
            told = "; ".join(f"rank {rank}: {call}" for rank, call in enumerate(calls))
            text = f'{name} of group "{self._name}": ranks called different operations: {told}'
            raise errors.MismatchError(text, rank=ranks[0], ranks=ranks, group=self._name, op=name)

    def _require_no_batch(self, name: str) -> None:
        if self._batch is not None:
            text = f"{name} is called inside batch(); expected a call outside batch(), because ranks exchange sizes before the objects"
            raise errors.from_code(Result.ERR_STATE, text, op=name, group=self._name)

    def _require_pickled(self, name: str, rank: int, header: array.array[int], text: Any) -> None:
        """Raises the failure of a rank; all ranks raise the same error."""
        if not header[0]:
            said = f"{name} of group \"{self._name}\": rank {rank}: {bytes(text).decode(errors='replace')}"
            raise errors.InvalidArgError(said, rank=rank, ranks=(rank,), group=self._name, op=name)

    def _unpack(self, name: str, rank: int, data: Any) -> Any:
        try:
            return pickle.loads(data)
        except Exception as error:
            text = f"{name}: the object of rank {rank} cannot be unpickled here: {type(error).__name__}: {error}"
            kind = errors.InvalidArgError
            raise kind(text, rank=rank, ranks=(rank,), group=self._name, op=name) from error


ObjectOp = Union[OpName, Callable[[Any, Any], Any]]
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add,
    "avg": operator.add,
    "prod": operator.mul,
    "max": max,
    "min": min,
    "band": operator.and_,
    "bor": operator.or_,
    "bxor": operator.xor,
}


def _spelled(op: Any) -> str:
    """Returns the text by which ranks compare their reduce operations."""
    return op if isinstance(op, str) else str(getattr(op, "__qualname__", type(op).__name__))


def combining(name: str, op: Any) -> Callable[[Sequence[tuple[str, Any]]], Any]:
    """Returns a function that combines the objects of all ranks.

    Its argument has an entry for each rank, in rank order: the text of the rank's operation, and the rank's object.
    """
    if isinstance(op, str) and op not in _OPERATORS:
        raise ValueError(f"op is {op!r}; expected one of {', '.join(_OPERATORS)}, or a function of two objects")
    if not isinstance(op, str) and not callable(op):
        raise TypeError(f"op is a {type(op).__name__}; expected a name such as \"sum\", or a function of two objects")
    function = _OPERATORS[op] if isinstance(op, str) else op

    def combine(given: Sequence[tuple[str, Any]]) -> Any:
        for rank, (spelled, _) in enumerate(given):
            if spelled != given[0][0]:
                text = f"{name}: ranks gave different values of op: rank 0: {given[0][0]}; rank {rank}: {spelled}"
                raise errors.MismatchError(text, rank=rank, ranks=(rank,), op=name)
        combined = functools.reduce(function, [obj for _, obj in given])
        return combined / len(given) if op == "avg" else combined

    return combine


def _call_text(number: int, root: int) -> str:
    """Returns a call in the form that errors show."""
    return f"{ALIKE[number]}({f'root {root}' if root >= 0 else ''})"


def _header(is_pickled: bool, size: int) -> array.array[int]:
    return array.array("q", [int(is_pickled), size])


def _pack(obj: Any) -> tuple[array.array[int], bytearray]:
    """Returns header and data: the pickled object, or the text of the failure."""
    try:
        data = bytearray(pickle.dumps(obj, PROTOCOL))
    except Exception as error:
        return _failure(f"a {type(obj).__name__} cannot be pickled: {type(error).__name__}: {error}")
    return _header(True, len(data)), data


def _failure(text: str) -> tuple[array.array[int], bytearray]:
    data = bytearray(text.encode(errors="replace"))
    return _header(False, len(data)), data


def broadcast_object(comm: Objects, obj: Any = None, root: int = 0) -> Any:
    """Same as comm.broadcast_object()."""
    expect_communicator("comm", comm)
    return comm.broadcast_object(obj, root)


def all_gather_object(comm: Objects, obj: Any) -> list[Any]:
    """Same as comm.all_gather_object()."""
    expect_communicator("comm", comm)
    return comm.all_gather_object(obj)


def gather_object(comm: Objects, obj: Any, root: int = 0) -> Optional[list[Any]]:
    """Same as comm.gather_object()."""
    expect_communicator("comm", comm)
    return comm.gather_object(obj, root)


def scatter_object(comm: Objects, objs: Optional[Sequence[Any]] = None, root: int = 0) -> Any:
    """Same as comm.scatter_object()."""
    expect_communicator("comm", comm)
    return comm.scatter_object(objs, root)
