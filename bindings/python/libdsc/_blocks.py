"""Blocks of elements, one per rank: consecutive parts of one array, or a list of arrays that is sent as one buffer."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any, Optional, Sequence, Union

from libdsc import _buffers, _dtypes, _raw
from libdsc._arguments import SIZE, integers, ranks_text

Arrays = Union[Any, Sequence[Any]]


class Blocks:
    """The address of consecutive blocks, one per rank, and the number of elements of each."""

    __slots__ = ("address", "counts", "dtype", "owner", "_parts")

    def __init__(
        self,
        x: Arrays,
        argument: str,
        dtype: Any,
        writable: bool,
        size: int,
        counts: Optional[list[int]],
        counts_argument: str = "",
    ) -> None:
        """Locates the elements of x: one array, or a list of one array per rank.

        One array needs counts. For a list, counts is optional: the lengths of the arrays are used without it.
        counts_argument is the name of the caller's argument for counts, for error messages. It is empty if the caller
        did not pass the counts.
        """
        self._parts: list[tuple[int, int, int, Any]] = []
        if isinstance(x, (list, tuple)):
            self._pack(x, argument, dtype, writable, size, counts, counts_argument)
            return
        if counts is None:
            raise ValueError(f"{counts_argument} is None; expected one count per rank, because {argument} is one array and not a list of arrays")
        self.address, found, self.dtype, self.owner = _buffers.locate(x, argument, dtype, writable)
        self.counts = counts
        if found != sum(counts):
            of_counts = f", the sum of {counts_argument}" if counts_argument else ""
            raise ValueError(f"{argument} has {found} elements; expected {sum(counts)}{of_counts} ({ranks_text(size)})")

    def _pack(
        self,
        arrays: Sequence[Any],
        argument: str,
        dtype: Any,
        writable: bool,
        size: int,
        counts: Optional[list[int]],
        counts_argument: str,
    ) -> None:
        """Allocates one buffer for all arrays of a list. Arrays that are only read are copied into it now."""
        if len(arrays) != size:
            raise ValueError(f"{argument} has {len(arrays)} arrays; expected {size}, one per rank")
        for index, array in enumerate(arrays):
            part = _buffers.locate(array, f"{argument}[{index}]", dtype, writable)
            if isinstance(part[3], _buffers.DeviceMemory):
                advice = "expected one array with the parts of all ranks, and counts if their sizes differ"
                raise ValueError(f"{argument}[{index}] is on a GPU, where a list of arrays is not supported; {advice}")
            if counts is not None and part[1] != counts[index]:
                of_counts = f", the value of {counts_argument}[{index}]" if counts_argument else ""
                raise ValueError(f"{argument}[{index}] has {part[1]} elements; expected {counts[index]}{of_counts}")
            expect_dtype(f"{argument}[{index}]", part[2], self._parts[0][2] if self._parts else part[2])
            self._parts.append(part)
        self.counts = [count for _, count, _, _ in self._parts]
        self.dtype = self._parts[0][2]
        self.owner = ctypes.create_string_buffer(max(1, sum(self.counts) * self._element_bytes()))
        self.address = ctypes.addressof(self.owner)
        if writable:
            self._expect_no_overlap(argument)
        else:
            for packed, part_address, size_bytes in self._places():
                ctypes.memmove(packed, part_address, size_bytes)

    def _expect_no_overlap(self, argument: str) -> None:
        """Raises ValueError if two arrays of a list share memory. The later block would overwrite the earlier one."""
        each = self._element_bytes()
        filled = sorted((part[0], part[0] + part[1] * each, index) for index, part in enumerate(self._parts) if part[1])
        for (_, end, index), (begin, _, other) in zip(filled, filled[1:]):
            if begin < end:
                text = f"{argument}[{index}] and {argument}[{other}] overlap"
                raise ValueError(f"{text}; expected separate memory for each")

    def unpack(self) -> None:
        """Copies the received blocks from the buffer into the arrays of the list."""
        for packed, part_address, size_bytes in self._places():
            ctypes.memmove(part_address, packed, size_bytes)

    def _places(self) -> list[tuple[int, int, int]]:
        """Returns (address in the buffer, address of the caller's array, size in bytes) of each array of a list."""
        each = self._element_bytes()
        starts = itertools.accumulate(self.counts, initial=0)
        return [
            (self.address + start * each, address, count * each)
            for start, (address, count, _, _) in zip(starts, self._parts)
        ]

    def _element_bytes(self) -> int:
        return _dtypes.BYTES[_raw.Dtype(self.dtype)]

    @property
    def are_equal(self) -> bool:
        """Whether the blocks of all ranks have the same number of elements."""
        return len(set(self.counts)) == 1

    @property
    def c_counts(self) -> Any:
        """The counts as a C array."""
        return (ctypes.c_size_t * len(self.counts))(*self.counts)


def expect_dtype(argument: str, found: int, expected: int) -> None:
    """Raises unless two arrays of one operation have the same element type."""
    if found != expected:
        names = (_raw.Dtype(found).name.lower(), _raw.Dtype(expected).name.lower())
        raise ValueError(f"{argument} has element type {names[0]}; expected {names[1]}, like the other array")


def checked_counts(counts: Optional[Sequence[int]], argument: str, size: int) -> Optional[list[int]]:
    """Checks and returns the numbers of elements per rank; None if the caller did not pass them."""
    if counts is None:
        return None
    numbers = integers(argument, counts, *SIZE)
    if len(numbers) != size:
        raise ValueError(f"{argument} has {len(numbers)} numbers; expected {size}, one per rank")
    return numbers
