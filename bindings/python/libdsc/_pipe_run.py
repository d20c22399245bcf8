"""Runs a pipeline schedule. Python callbacks compute; the library sends and receives between them."""

from __future__ import annotations

import ctypes
import sys
from ctypes import byref, c_double
from typing import TYPE_CHECKING, Any, Callable, Optional

from libdsc import _callbacks, _interrupt, _raw
from libdsc._callback_errors import FAILED, failed
from libdsc._library import last_message, lib
from libdsc._pipe import PipeInstruction, PipeSchedule, instruction_of
from libdsc._pipe_arrays import Arrays, Buffers, Outputs, RunShapes, VariableBuffers
from libdsc._streams import handle_of

if TYPE_CHECKING:
    from libdsc._communicator import Communicator

Forward = Callable[[PipeInstruction, Arrays, Arrays], Any]
Backward = Callable[[PipeInstruction, Arrays, Arrays, Arrays, Arrays], Any]
Callback = Callable[[PipeInstruction], Any]

BACKWARD = ("backward", "backward_input", "backward_weight")


class Callbacks:
    """The callbacks of one run as C functions. The first exception is stored and ends the run."""

    def __init__(self, comm: Communicator, buffers: Buffers, functions: dict[str, Any]) -> None:
        self.raised: Optional[BaseException] = None
        self.table = _raw.PipeCallbacks(struct_size=ctypes.sizeof(_raw.PipeCallbacks))
        self._comm, self._buffers = comm, buffers
        self._trains = any(functions[name] is not None for name in BACKWARD)
        self._entries: list[Any] = []
        self._hook = sys.unraisablehook
        ways = {"forward": self._forward} | dict.fromkeys(BACKWARD, self._backward)
        for name, function in functions.items():
            if callable(function):
                setattr(self.table, name, self._entry(function, ways.get(name, self._plain)))
            elif function is not None:
                raise TypeError(f"{name} is a {type(function).__name__}; expected a function")

    def __enter__(self) -> Callbacks:
        if _interrupt.on_main_thread():
            sys.unraisablehook = self._lost
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if _interrupt.on_main_thread():
            sys.unraisablehook = self._hook
        del self.table, self._entries[:]  # removes a reference cycle

    def _lost(self, unraisable: Any) -> None:
        """Stores an exception that a signal handler raised at the start of a callback, before the try block in it."""
        if not any(unraisable.object is entry for entry in self._entries):
            self._hook(unraisable)
            return
        self.raised = unraisable.exc_value or unraisable.exc_type()
        self._comm._stop()

    def _entry(self, function: Any, way: Any) -> Any:
        """Returns a C function that calls way(function, call)."""

        def called(_context: Any, call: Any) -> int:
            try:
                if self.raised is None:
                    way(function, call.contents)
                    return 0
            except BaseException as error:  # an exception must not propagate through C code
                self.raised = error
                return failed(call.contents, error)
            return FAILED

        self._entries.append(called)
        return _raw.PipeFn(called)

    def _forward(self, function: Forward, call: Any) -> None:
        """Calls forward. On the last part of the model it passes the loss to the library."""
        instruction = instruction_of(call.instruction.contents)
        inputs, outputs, _, _ = self._buffers.of(instruction, call)
        try:
            loss = function(instruction, inputs, outputs)
        finally:
            if isinstance(outputs, Outputs):
                outputs.close()
        if outputs:
            _expect_none("forward", loss, "outputs[0][...] = y")
        elif call.loss and (self._trains or loss is not None):
            call.loss[0] = _loss(loss)

    def _backward(self, function: Backward, call: Any) -> None:
        """Calls backward, backward_input or backward_weight."""
        instruction = instruction_of(call.instruction.contents)
        ends = self._buffers.of(instruction, call)
        returned = function(instruction, *ends)
        if ends[3]:
            _expect_none("backward", returned, "input_grads[0][...] = g")

    def _plain(self, function: Callback, call: Any) -> None:
        """Calls a callback that gets no arrays."""
        function(instruction_of(call.instruction.contents))


def _expect_none(name: str, returned: Any, example: str) -> None:
    """Raises TypeError if a callback returned a value instead of writing its results, because the value would be lost.
    """
    if returned is not None:
        raise TypeError(f"{name} returned a {type(returned).__name__}; expected None on this stage; write the result into the array instead: {example}")


def _loss(returned: Any) -> float:
    """Converts the return value of forward on the last stage to a number."""
    try:
        if isinstance(returned, (str, bytes)):
            raise TypeError
        return float(returned)
    # torch raises RuntimeError for a tensor of several elements.
    except (TypeError, ValueError, RuntimeError):
        found = "None" if returned is None else f"a {type(returned).__name__}"
        raise TypeError(f"forward returned {found}; expected a number, the loss of the micro-batch, on the last stage") from None


def run(
    comm: Communicator,
    schedule: PipeSchedule,
    functions: dict[str, Any],
    inputs: Any,
    outputs: Any,
    stream: Any,
    variable_shapes: bool,
    memory: Any,
) -> float:
    """Implements Communicator.pipe_run(). functions are the callbacks by name."""
    if not isinstance(schedule, PipeSchedule):
        raise TypeError(f"schedule is a {type(schedule).__name__}; expected a PipeSchedule")
    device = -1 if stream is None else comm._device
    if stream is not None and device < 0:
        raise ValueError("stream is given, and this communicator is not bound to a GPU; expected None")
    shapes = RunShapes(inputs, outputs, variable_shapes, memory, device)
    options = shapes.options
    if stream is not None:
        options.stream = handle_of(stream)

    mean_loss = c_double()
    buffers = _buffers_of(comm, schedule, shapes)
    options.keep_replaced = int(buffers.begin())
    with Callbacks(comm, buffers, functions) as callbacks:
        arguments = (schedule._handle, comm._handle, byref(callbacks.table), byref(options), byref(mean_loss))
        code = _callbacks.call(comm._stop, _interrupt.call, comm._stop, lib.dsc_pipe_run, *arguments)
        text = last_message() if code < 0 else ""
    raised, callbacks.raised = callbacks.raised, None
    if raised is not None:
        _interrupt.settle()
        try:
            raise raised
        finally:
            del raised  # its traceback refers to this frame: a reference cycle
    if code == _raw.Result.ERR_CALLBACK:
        _interrupt.let_own_signal_come()
    if code < 0:
        comm._fail(code, text, "pipe_run")
    return mean_loss.value


def _buffers_of(comm: Communicator, schedule: PipeSchedule, shapes: RunShapes) -> Buffers:
    """Returns the arrays of earlier runs if the library uses their memory again, otherwise new ones."""
    key = (comm._handle, shapes.key)
    known = schedule._run_buffers
    if known is None or known[0] != key:
        del known
        schedule._leave_kept_arrays()
        kind = VariableBuffers if shapes.variable else Buffers
        known = schedule._run_buffers = (key, kind(shapes, schedule._owner))
    buffers: Buffers = known[1]
    return buffers
