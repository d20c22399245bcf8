"""Cross entropy of logits whose vocabulary is split over ranks."""

from __future__ import annotations

import ctypes
import numbers
from ctypes import POINTER, byref, c_double, c_int64
from typing import TYPE_CHECKING, Any, Optional

from libdsc import _buffers, _dtypes, _raw
from libdsc._arguments import INT64_MOST, integer, real
from libdsc._buffers import Buffer
from libdsc._library import check, last_message, lib
from libdsc._memory import numpy_module
from libdsc._raw import Dtype
from libdsc._streams import place_of

if TYPE_CHECKING:
    from libdsc._communicator import Communicator


class CrossEntropy:
    """What backward() needs of a cross entropy: the logits, the targets, and two numbers per token.

    Made by Communicator.vocab_cross_entropy(). Logits and targets must stay as they are until backward().
    """

    __slots__ = ("_world", "_logits", "_targets", "_arguments", "_options", "_state", "_loss_type", "__weakref__")

    def __init__(
        self, world: Communicator, logits: Buffer, targets: Buffer, vocab: int, options: _raw.VocabCrossEntropyOptions
    ) -> None:
        tokens = targets.count
        self._world, self._logits, self._targets = world, logits, targets
        self._options = options
        places = ctypes.cast(targets.address, POINTER(c_int64))
        self._arguments = (logits.address, places, tokens, vocab, logits.dtype, byref(options))
        self._state = (c_double * max(1, 2 * tokens))()
        self._loss_type = Dtype.F64 if logits.dtype == Dtype.F64 else Dtype.F32

    def __repr__(self) -> str:
        names = ", ".join(f"{extent}" for extent in self._logits.shape)
        return f"<libdsc.CrossEntropy on {self._world.name!r}: logits [{names}], {_dtypes.long_name(self._logits.dtype)}>"

    def _forward(self) -> Any:
        numpy = numpy_module()
        loss = numpy.empty(self._targets.shape, _dtypes.numpy_type(self._loss_type))
        self._world._call(lib.dsc_vocab_cross_entropy_forward, *self._arguments, loss.ctypes.data, self._state)
        return loss

    def backward(self, grad_loss: Any = None, out: Any = None) -> Any:
        """Returns the gradients of this rank's logits. Not collective; may be called several times.

        Args:
            grad_loss: the gradients of the losses, an array of their shape and type, or one number for all, such as
                1 / tokens for a mean; None: 1.
            out: where the gradients go, an array as the logits, or the logits themselves, which are lost then and
                with them further calls; None: a new array of numpy, of uint16 for bf16.
        """
        weights = self._weights(grad_loss)
        result, place = self._result(out)
        place_of(self._world, place.owner, None)
        arguments = (*self._arguments, self._state, None if weights is None else weights.address, place.address)
        code = lib.dsc_vocab_cross_entropy_backward(self._world._handle, *arguments)
        if code < 0:
            self._world._fail(code, last_message(), "vocab_cross_entropy_backward")
        return result

    def _weights(self, grad_loss: Any) -> Optional[Buffer]:
        if grad_loss is None:
            return None
        if isinstance(grad_loss, numbers.Real):
            numpy = numpy_module()
            kind = _dtypes.numpy_type(self._loss_type)
            grad_loss = numpy.full(self._targets.shape, real("grad_loss", grad_loss), kind)
        found = _buffers.describe(grad_loss, "grad_loss", None, False)
        _expect("grad_loss", found, self._targets.shape, self._loss_type)
        place_of(self._world, found.owner, None)
        return found

    def _result(self, out: Any) -> tuple[Any, Buffer]:
        logits = self._logits
        code = Dtype(logits.dtype)
        if out is None:
            result = numpy_module().empty(logits.shape, _dtypes.view_type(code))
            return result, _buffers.describe(result, "out", code, True)
        same_size = Dtype.BF16 if code == Dtype.BF16 else None
        found = _buffers.describe(out, "out", same_size, True)
        _expect("out", found, logits.shape, code)
        return out, found


def cross_entropy(
    world: Communicator,
    logits: Any,
    targets: Any,
    vocab_size: Optional[int],
    label_smoothing: float,
    ignore_index: Optional[int],
    z_loss: float,
    dtype: Any,
) -> tuple[Any, CrossEntropy]:
    """Communicator.vocab_cross_entropy()."""
    scores = _buffers.describe(logits, "logits", dtype, False)
    words = _buffers.describe(targets, "targets", None, False)
    place_of(world, (scores.owner, words.owner), None)
    if not scores.shape:
        raise ValueError("logits has no dimension; expected this rank's part of the vocabulary as the last one")
    _expect("targets", words, scores.shape[:-1], Dtype.I64)
    columns = scores.shape[-1]
    vocab = columns * world.size if vocab_size is None else integer("vocab_size", vocab_size, 1, INT64_MOST)
    _expect_columns(world, columns, vocab)
    options = _raw.VocabCrossEntropyOptions()
    check(lib.dsc_vocab_cross_entropy_options_init(byref(options), ctypes.sizeof(options)))
    options.label_smoothing, options.z_loss = real("label_smoothing", label_smoothing), real("z_loss", z_loss)
    if ignore_index is not None:
        options.ignore_index = integer("ignore_index", ignore_index, -INT64_MOST, INT64_MOST)
    made = CrossEntropy(world, scores, words, vocab, options)
    return made._forward(), made


def _expect(argument: str, found: Buffer, shape: tuple[int, ...], dtype: int) -> None:
    if found.shape != tuple(shape):
        raise ValueError(f"{argument} has shape {found.shape}; expected {tuple(shape)}")
    if found.dtype != dtype:
        names = [_dtypes.long_name(code) for code in (found.dtype, dtype)]
        raise TypeError(f"{argument} has element type {names[0]}; expected {names[1]}")


def _expect_columns(world: Communicator, columns: int, vocab: int) -> None:
    """Ranks hold equal parts; the first ones are one longer where the vocabulary does not divide."""
    least, longer = divmod(vocab, world.size)
    expected = least + (world.rank < longer)
    if columns != expected:
        begin = least * world.rank + min(world.rank, longer)
        part = f"{begin} to {begin + expected - 1} of {vocab}" if expected else f"none of {vocab}"
        words = f"rank {world.rank} of {world.size} holds {part}"
        raise ValueError(f"logits has {columns} columns; expected {expected}, because {words}")
