"""Operations on lists of arrays, such as the parameters of a model."""

from __future__ import annotations

import array
import ctypes
import hashlib
from typing import Any, Optional, Sequence

from libdsc import _dtypes, errors
from libdsc._arguments import SIZE, boolean, expect_communicator, integer, member
from libdsc._collectives import Collectives
from libdsc._library import lib
from libdsc._ops import number_of
from libdsc._raw import Dtype
from libdsc._tensors import Tensors, wait_for_data
from libdsc._types import OpLike

CHECKSUM_BYTES = 8


class Lists(Collectives):
    """Adds the operations on lists of arrays to Communicator."""

    __slots__ = ()

    def verify_params(
        self,
        arrays: Sequence[Any],
        names: Optional[Sequence[str]] = None,
        dtype: Any = None,
        *,
        values: bool = False,
    ) -> None:
        """Checks that all ranks have the same parameters in number, type and shape. Collective.

        If they differ, all ranks raise MismatchError, which names the ranks, the parameter and both descriptions. The
        communicator keeps working.

        Args:
            arrays: the parameters.
            names: names of the parameters, for messages.
            dtype: the element type of all arrays, such as "bf16".
            values: True also compares the contents, by a checksum of the bytes of each array. It detects replicas that
                have drifted apart. It reads all arrays once; they must be on the host.
        """
        values = boolean("values", values)
        tensors = Tensors(self, arrays, "arrays", dtype, False, names)
        if values and tensors.memory is not None:
            raise ValueError("values is True and arrays are on a GPU; expected arrays on the host, such as copies of them")
        self._call(lib.dsc_comm_verify_params, tensors.array, tensors.length)
        if values:
            self._verify_values(tensors, names)

    def _verify_values(self, tensors: Tensors, names: Optional[Sequence[str]]) -> None:
        own = array.array("Q", [_checksum(tensor) for tensor in tensors.array[: tensors.length]])
        everybody = array.array("Q", bytes(8 * len(own) * self._size))
        self.all_gather(everybody, own)
        of_ranks = [everybody[rank * len(own) : (rank + 1) * len(own)] for rank in range(self._size)]
        differing = [i for i in range(len(own)) if any(sums[i] != of_ranks[0][i] for sums in of_ranks)]
        if not differing:
            return
        first = differing[0]
        ranks = tuple(rank for rank, sums in enumerate(of_ranks) if sums[first] != of_ranks[0][first])
        name = f"parameter {first}" if names is None else f"{names[first]} (index {first})"
        listed = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
        more = f"; {len(differing)} of {len(own)} parameters differ" if len(differing) > 1 else ""
        text = f"verify_params: expected the same values on all ranks, but {name} on {listed} differs from that of rank 0{more}"
        raise errors.MismatchError(text, rank=ranks[0], ranks=ranks, group=self._name, op="verify_params")

    def broadcast_coalesced(
        self, arrays: Sequence[Any], root: int = 0, buffer_bytes: int = 0, dtype: Any = None
    ) -> None:
        """Copies the root's arrays to all ranks, packed into buffers per type. Collective.

        Args:
            arrays: the same number, with the same types, on all ranks; on the host or on a GPU. They are written on all
                ranks except root. On a GPU the call waits for the current stream.
            root: the rank whose arrays are copied.
            buffer_bytes: a buffer is sent when it holds this many bytes; 0: 250 MiB.
            dtype: the element type of all arrays, such as "bf16".
        """
        root, buffer_bytes = member("root", root, self._size), integer("buffer_bytes", buffer_bytes, *SIZE)
        tensors = Tensors(self, arrays, "arrays", dtype, self._rank != root)
        wait_for_data(tensors)
        self._call(lib.dsc_broadcast_coalesced, tensors.array, tensors.length, root, buffer_bytes)

    def all_reduce_coalesced(
        self, arrays: Sequence[Any], op: OpLike = "sum", buffer_bytes: int = 0, dtype: Any = None
    ) -> None:
        """Combines the elements of all ranks' arrays, packed into buffers per type. Collective.

        The result is that of all_reduce() for each array, with fewer operations. If the lists differ between ranks,
        nothing is written and MismatchError is raised. Its message lists how many arrays each rank passed, with index
        and count of the first arrays, as in "2 tensors, [0]: 3, [1]: 4". If these numbers are equal on all ranks,
        verify_params() finds the array that differs.

        Args:
            arrays: the same number, with the same counts and types, on all ranks; on the host or on a GPU. They are
                written, and must not overlap. On a GPU the call waits for the current stream.
            op: as in all_reduce().
            buffer_bytes: a buffer is reduced when it holds this many bytes; 0: 250 MiB.
            dtype: the element type of all arrays, such as "bf16".
        """
        buffer_bytes, number = integer("buffer_bytes", buffer_bytes, *SIZE), number_of(op)
        tensors = Tensors(self, arrays, "arrays", dtype, True)
        wait_for_data(tensors)
        self._call(lib.dsc_all_reduce_coalesced, tensors.array, tensors.length, number, buffer_bytes, owner=op)


def _checksum(tensor: Any) -> int:
    """Returns 64 bits of the BLAKE2 hash of an array on the host."""
    size_bytes = tensor.count * _dtypes.BYTES[Dtype(tensor.dtype)]
    content = (ctypes.c_char * size_bytes).from_address(tensor.data) if size_bytes else b""
    return int.from_bytes(hashlib.blake2b(content, digest_size=CHECKSUM_BYTES).digest(), "little")


def verify_params(
    comm: Lists,
    arrays: Sequence[Any],
    names: Optional[Sequence[str]] = None,
    dtype: Any = None,
    *,
    values: bool = False,
) -> None:
    """Same as comm.verify_params()."""
    expect_communicator("comm", comm)
    comm.verify_params(arrays, names, dtype, values=values)


def broadcast_coalesced(
    comm: Lists, arrays: Sequence[Any], root: int = 0, buffer_bytes: int = 0, dtype: Any = None
) -> None:
    """Same as comm.broadcast_coalesced()."""
    expect_communicator("comm", comm)
    comm.broadcast_coalesced(arrays, root, buffer_bytes, dtype)


def all_reduce_coalesced(
    comm: Lists, arrays: Sequence[Any], op: OpLike = "sum", buffer_bytes: int = 0, dtype: Any = None
) -> None:
    """Same as comm.all_reduce_coalesced()."""
    expect_communicator("comm", comm)
    comm.all_reduce_coalesced(arrays, op, buffer_bytes, dtype)
