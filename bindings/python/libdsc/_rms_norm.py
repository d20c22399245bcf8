"""An all-reduce, followed by the addition of a residual and by RMSNorm."""

from __future__ import annotations

from typing import Any, Optional

from libdsc import _buffers
from libdsc._arguments import real
from libdsc._buffers import Buffer, expect
from libdsc._cross_entropy import Losses
from libdsc._library import lib
from libdsc._streams import place_of
from libdsc._tensor_map import make_like
from libdsc._types import Array


class Norms(Losses):
    """Adds the operation to Communicator that sums rows over ranks and normalizes them."""

    __slots__ = ()

    def all_reduce_rms_norm(
        self,
        x: Array,
        residual: Optional[Array] = None,
        weight: Optional[Array] = None,
        epsilon: float = 1e-5,
        *,
        out: Any = None,
        residual_out: Any = None,
        dtype: Any = None,
    ) -> tuple[Any, Any]:
        """Sums the inputs of all ranks and a residual, and normalizes each row by its root mean square. Collective.

        These are the steps after a row-parallel linear layer in a transformer. They run on blocks of rows that stay in
        the cache. dsc/rms_norm.h has the formula and the rules of rounding. Only host memory is supported.

            hidden, residual = group.all_reduce_rms_norm(partial, residual, weight, out=partial, residual_out=residual)

        Args:
            x: this rank's summand, [..., hidden], of float32, float64, bfloat16 or float16.
            residual: an array like x, the same on all ranks; None: nothing is added.
            weight: [hidden], the same on all ranks; None: 1.
            epsilon: added to the mean of the squares, above 0.
            out: where the normalized rows go: an array like x, or x itself; None: a new array like x.
            residual_out: where the rows before normalization go: an array like x, or residual or x itself. None: a new
                array like x if there is a residual, otherwise they are not returned.
            dtype: the element type of all arrays, such as "bf16" for arrays of uint16.

        Returns:
            The normalized rows, and the rows before normalization: out and residual_out, or the new arrays.
        """
        try:
            rows = _buffers.describe(x, "x", dtype, False)
            if not rows.shape:
                raise ValueError("x has no dimensions; expected the elements of a row in the last dimension")
            shape, code = rows.shape, rows.dtype
            added = None if residual is None else _described("residual", residual, dtype, shape, code, False)
            factors = None if weight is None else _described("weight", weight, dtype, shape[-1:], code, False)
            number = real("epsilon", epsilon)
            if residual_out is None and residual is not None:
                residual_out = make_like(x, rows, shape, None)
            kept = None if residual_out is None else _described("residual_out", residual_out, dtype, shape, code, True)
            if out is None:
                out = make_like(x, rows, shape, None)
            result = _described("out", out, dtype, shape, code, True)
        except Exception as error:
            raise self._shown(error, "all_reduce_rms_norm")
        arrays = [rows, added, factors, kept, result]
        place_of(self, tuple(array.owner for array in arrays if array is not None), None)
        hidden = shape[-1]
        tokens = rows.count // hidden if hidden else 0
        places = [None if array is None else array.address for array in arrays]
        self._call(lib.dsc_all_reduce_rms_norm, *places[:3], tokens, hidden, code, number, *places[3:])
        return out, residual_out


def _described(argument: str, x: Any, dtype: Any, shape: tuple[int, ...], code: int, writable: bool) -> Buffer:
    """Describes an array that must have this shape and type."""
    found = _buffers.describe(x, argument, dtype, writable)
    expect(argument, found, shape, code)
    return found
