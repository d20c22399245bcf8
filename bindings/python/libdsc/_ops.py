"""Reduce operations beyond the built-in ones: sums of scaled inputs, and user-defined functions."""

from __future__ import annotations

from ctypes import byref, c_int32
from typing import Any, Callable, Iterator, Optional, TypeVar

from libdsc import _dtypes, _raw
from libdsc._arguments import SIZE, integer, real
from libdsc._callback_errors import failed
from libdsc._library import OnlyOne, check, lib
from libdsc._memory import array_over, numpy_module

Self = TypeVar("Self", bound="ReduceOp")
Combine = Callable[[Any, Any], Any]

# Until the program makes a user-defined operation, calls do not need to search their arguments for one.
user_ops_made = False

BUILT_IN = {op.name.lower(): int(op) for op in _raw.Op}


class ReduceOp(OnlyOne):
    """An operation made by premul() or user_op(), for the op argument of reductions.

    The built-in operations are attributes under PyTorch's names: ``ReduceOp.SUM`` is ``Op.SUM``, which is "sum".

    The operation belongs to this process. close(), the end of a with block, or the end of the last reference releases
    it. Operations already running with it continue.
    """

    __slots__ = ("_number", "_text", "__weakref__")

    SUM = _raw.Op.SUM
    PROD = PRODUCT = _raw.Op.PROD
    MAX = _raw.Op.MAX
    MIN = _raw.Op.MIN
    AVG = _raw.Op.AVG
    BAND = _raw.Op.BAND
    BOR = _raw.Op.BOR
    BXOR = _raw.Op.BXOR

    def __init__(self, number: int, text: str) -> None:
        self._number = number
        self._text = text

    def __repr__(self) -> str:
        return f"<libdsc.{self._text}{'' if self._number else ', closed'}>"

    def close(self) -> None:
        """Releases the operation. May be called twice."""
        number, self._number = self._number, 0
        if number:
            lib.dsc_op_destroy(number)

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # at interpreter shutdown, where modules may already be gone
            pass


class UserOp(ReduceOp):
    """A user-defined function as a reduce operation; made by user_op()."""

    __slots__ = ("_entry", "_failure")

    def __init__(self, number: int, text: str, entry: Any, failure: _Failure) -> None:
        super().__init__(number, text)
        self._entry = entry  # kept alive here, because the library calls it
        self._failure = failure


class _Failure:
    """The first exception of a user-defined function.

    The operation that failed because of it takes it and raises it.
    """

    raised: Optional[BaseException] = None

    def take(self) -> Optional[BaseException]:
        raised, self.raised = self.raised, None
        return raised


def premul(scale: float) -> ReduceOp:
    """Makes an operation that multiplies every input by a number as it is read, and sums the products.

    It is for floating-point types. A product is not rounded to 16 or 8 bits before it is added.

    Args:
        scale: a finite number, the same on all ranks.
    """
    number = c_int32()
    check(lib.dsc_op_create_premul(real("scale", scale), byref(number)))
    return ReduceOp(number.value, f"premul({scale!r})")


def user_op(function: Combine, id: int, commutative: bool = True) -> UserOp:
    """Makes an operation from a function, for arrays of any type that operations accept.

    function(earlier, later) gets two numpy arrays of one dimension: the result of the previous ranks, and the elements
    of the next rank. It returns the combination of both, or writes it into earlier and returns None.

    It is called for pieces of the arrays, on any rank and on any thread, and must return the same bits for the same
    inputs everywhere. The arrays are copies, which it may keep; bfloat16 is passed as uint16, 8-bit floats as uint8. It
    must not call libdsc.

    The operation fails with CallbackError on all ranks if the function raises, or returns another shape, or a type that
    numpy does not cast as "same_kind". On the rank where this happened, the function's exception is the error's cause.

    Args:
        function: combines two arrays, such as numpy.hypot.
        id: a number that you choose for this function, 0 to 2**64 - 1; if ids differ, ranks get MismatchError.
        commutative: True if the order of inputs does not matter; the order is kept nevertheless.
    """
    global user_ops_made
    if not callable(function):
        raise TypeError(f"function is a {type(function).__name__}; expected a function of two arrays")
    number_of_caller = integer("id", id, *SIZE)
    # numpy must be imported here, because its first import on a thread of the library is not safe.
    numpy_module()
    user_ops_made = True
    failure = _Failure()
    entry, number = _entry(function, failure), c_int32()
    check(lib.dsc_op_create_user(entry, None, number_of_caller, int(bool(commutative)), byref(number)))
    return UserOp(number.value, f"user_op({function!r}, {id})", entry, failure)


def _entry(function: Combine, failure: _Failure) -> Any:
    """Returns the C function that calls function. It must not refer to the UserOp: a reference cycle would result."""

    def called(_context: Any, pointer: Any) -> int:
        call = pointer.contents
        try:
            kind = _dtypes.NUMPY[_raw.Dtype(call.dtype)]
            target = array_over(call.result, (call.count,), kind, None)
            # A copy: the function may keep it, and changes must not reach memory of another rank.
            own = target.copy()
            result = function(own, array_over(call.input, (call.count,), kind, None).copy())
            _store(own if result is None else result, target)
            return 0
        except BaseException as error:  # an exception must not propagate through C code
            failure.raised = failure.raised or error
            return failed(call, error)

    return _raw.OpFn(called)


def _store(result: Any, target: Any) -> None:
    """Stores the result of a function. It must have the shape of target, and a type that numpy casts as "same_kind"."""
    numpy = numpy_module()
    came = numpy.asarray(result)
    if came.shape != target.shape:
        raise ValueError(f"the function returned an array of shape {came.shape}; expected {target.shape}, like its inputs")
    if not numpy.can_cast(came.dtype, target.dtype, "same_kind"):
        raise TypeError(f"the function returned elements of {came.dtype}; expected {target.dtype}, like its inputs")
    target[...] = came


def number_of(op: Any) -> int:
    """Returns the number of a reduce operation. Hot path: names of built-in operations are looked up first."""
    if type(op) is str and op in BUILT_IN:
        return BUILT_IN[op]
    if not isinstance(op, ReduceOp):
        return _dtypes.op_code(op)
    if not op._number:
        raise ValueError(f"op is {op!r}; expected an operation that is not closed")
    return op._number


def user_ops_in(owner: Any) -> Iterator[UserOp]:
    """Yields the operations of user_op() among the objects that an operation keeps alive."""
    if isinstance(owner, UserOp):
        yield owner
    elif isinstance(owner, (tuple, list)):
        for part in owner:
            yield from user_ops_in(part)


def raised_in(owner: Any) -> Optional[BaseException]:
    """Returns the exception that a user-defined function raised in this operation, or None."""
    return next((raised for op in user_ops_in(owner) if (raised := op._failure.take()) is not None), None)
