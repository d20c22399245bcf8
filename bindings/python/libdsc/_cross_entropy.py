"""Cross entropy of logits whose vocabulary is split over ranks."""

from __future__ import annotations

import ctypes
import numbers
from ctypes import POINTER, byref, c_double, c_int64
from typing import Any, Callable, Optional

from libdsc import _buffers, _dtypes, _raw
from libdsc._arguments import INT64_MOST, integer, real
from libdsc._buffers import Buffer, expect
from libdsc._calls import Calls
from libdsc._library import check, last_message, lib
from libdsc._memory import numpy_module
from libdsc._raw import Dtype
from libdsc._streams import place_of
from libdsc._tensor_map import TensorMaps
from libdsc._types import Array


class CrossEntropy:
    """The data that the backward pass of a cross entropy needs: logits, targets, and two numbers per token.

    Made by Communicator.vocab_cross_entropy(). Do not change logits and targets before backward().
    """

    __slots__ = ("_world", "_logits", "_targets", "_arguments", "_options", "_state", "_loss_type", "__weakref__")

    def __init__(
        self,
        world: Calls,
        logits: Buffer,
        targets: Buffer,
        vocab: int,
        options: _raw.VocabCrossEntropyOptions,
        state: Any = None,
    ) -> None:
        tokens = targets.count
        self._world, self._logits, self._targets = world, logits, targets
        self._options = options
        places = ctypes.cast(targets.address, POINTER(c_int64))
        self._arguments = (logits.address, places, tokens, vocab, logits.dtype, byref(options))
        self._state = (c_double * max(1, 2 * tokens))() if state is None else state
        self._loss_type = Dtype.F64 if logits.dtype == Dtype.F64 else Dtype.F32

    def __repr__(self) -> str:
        names = ", ".join(f"{extent}" for extent in self._logits.shape)
        return f"<libdsc.CrossEntropy on {self._world.name!r}: logits [{names}], {_dtypes.long_name(self._logits.dtype)}>"

    def _forward(self) -> Any:
        numpy = numpy_module()
        loss = numpy.empty(self._targets.shape, _dtypes.numpy_type(self._loss_type))
        self._world._call(lib.dsc_vocab_cross_entropy_forward, *self._arguments, loss.ctypes.data, self._state)
        return loss

    def _without_arrays(self) -> Callable[[Any, Any], CrossEntropy]:
        """Returns a function that makes an equal object from the same logits and targets.

        The function itself does not keep the memory of these arrays alive.
        """
        world, vocab, options, state = self._world, self._arguments[3], self._options, self._state

        def again(logits: Any, targets: Any) -> CrossEntropy:
            scores = _buffers.describe(logits, "logits", None, False)
            return CrossEntropy(world, scores, _buffers.describe(targets, "targets", None, False), vocab, options, state)

        return again

    def backward(self, grad_loss: Any = None, out: Any = None) -> Any:
        """Returns the gradients of this rank's logits. Not collective; may be called several times.

        Args:
            grad_loss: the gradients of the losses: an array of their shape and type, or one number for all, such as
                1 / tokens for a mean; None: 1.
            out: where the gradients go: an array like the logits, or the logits themselves. The logits are then
                overwritten, and backward() cannot be called again. None: a new numpy array, of uint16 for bf16.
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
        expect("grad_loss", found, self._targets.shape, self._loss_type)
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
        expect("out", found, logits.shape, code)
        return out, found


class Losses(TensorMaps):
    """Adds the losses to Communicator. The vocabulary of their logits is split over the ranks."""

    __slots__ = ()

    def vocab_cross_entropy(
        self,
        logits: Array,
        targets: Array,
        vocab_size: Optional[int] = None,
        label_smoothing: float = 0.0,
        ignore_index: Optional[int] = None,
        z_loss: float = 0.0,
        *,
        dtype: Any = None,
    ) -> tuple[Any, CrossEntropy]:
        """Returns the loss of each token, and an object whose backward() gives the gradients of the logits. Collective.

        Each rank holds consecutive columns of the logits, in the order of the ranks. dsc/cross_entropy.h has the
        formula and the treatment of infinite logits. Only host memory is supported.

            loss, entropy = tensor_parallel.vocab_cross_entropy(logits, targets)
            gradient = entropy.backward(1 / targets.size, out=logits)

        Args:
            logits: this rank's columns, [..., columns], of float32, float64, bfloat16 or float16; they are not written,
                and needed until backward().
            targets: the index in the whole vocabulary of each token's word, [...], of int64, the same on all ranks.
            vocab_size: columns of all ranks together; None: each rank has as many as this one. If it is not a multiple
                of the number of ranks, the first vocab_size % size ranks hold one more.
            label_smoothing: probability given to the other words, 0 to below 1, over the whole vocabulary.
            ignore_index: the target of tokens that have loss 0 and gradient 0, such as -100.
            z_loss: this factor times the square of log(sum(exp(logits))) is added to the loss.
            dtype: the element type of logits, such as "bf16" for an array of uint16.

        Returns:
            The losses as a numpy array in the shape of targets (float64 for logits of float64, otherwise float32), and
            the CrossEntropy.
        """
        try:
            scores = _buffers.describe(logits, "logits", dtype, False)
            words = _buffers.describe(targets, "targets", None, False)
            options = _options(label_smoothing, ignore_index, z_loss)
            entropy = CrossEntropy(self, scores, words, _vocabulary(self, scores, words, vocab_size), options)
            return entropy._forward(), entropy
        except Exception as error:
            raise self._shown(error, "vocab_cross_entropy")


def _options(label_smoothing: float, ignore_index: Optional[int], z_loss: float) -> _raw.VocabCrossEntropyOptions:
    options = _raw.VocabCrossEntropyOptions()
    check(lib.dsc_vocab_cross_entropy_options_init(byref(options), ctypes.sizeof(options)))
    options.label_smoothing, options.z_loss = real("label_smoothing", label_smoothing), real("z_loss", z_loss)
    if ignore_index is not None:
        options.ignore_index = integer("ignore_index", ignore_index, -INT64_MOST, INT64_MOST)
    return options


def _vocabulary(world: Calls, logits: Buffer, targets: Buffer, vocab_size: Optional[int]) -> int:
    """Returns the number of columns of all ranks, after checks that the arrays fit together."""
    place_of(world, (logits.owner, targets.owner), None)
    if not logits.shape:
        raise ValueError("logits has no dimensions; expected this rank's part of the vocabulary in the last dimension")
    expect("targets", targets, logits.shape[:-1], Dtype.I64)
    columns = logits.shape[-1]
    vocab = columns * world._size if vocab_size is None else integer("vocab_size", vocab_size, 1, INT64_MOST)
    _expect_columns(world, columns, vocab)
    return vocab


def _expect_columns(world: Calls, columns: int, vocab: int) -> None:
    """Raises ValueError unless this rank has its part of the vocabulary.

    If the number of ranks does not divide the vocabulary, the first ranks have one column more.
    """
    least, longer = divmod(vocab, world._size)
    expected = least + (world._rank < longer)
    if columns != expected:
        begin = least * world._rank + min(world._rank, longer)
        part = f"entries {begin} to {begin + expected - 1}" if expected else "no entry"
        words = f"rank {world._rank} of {world._size} holds {part} of a vocabulary of {vocab}"
        raise ValueError(f"logits has {columns} columns; expected {expected}, because {words}")
