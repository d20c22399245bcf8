"""Runs a pipeline schedule: Python computes in callbacks, the library sends and receives between them."""

from __future__ import annotations

import ctypes
import math
import numbers
import sys
from ctypes import byref, c_double, c_int64
from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence, Union

from libdsc import _callbacks, _dtypes, _interrupt, _raw
from libdsc._arguments import extents
from libdsc._library import check, last_message, lib
from libdsc._memory import DeviceArray, array_over
from libdsc._pipe import PipeInstruction, PipeSchedule, instruction_of
from libdsc._streams import handle_of

if TYPE_CHECKING:
    from libdsc._communicator import Communicator

Shape = Union[int, Sequence[int]]
Arrays = Sequence[Any]
Forward = Callable[[PipeInstruction, Arrays, Arrays], Any]
Backward = Callable[[PipeInstruction, Arrays, Arrays, Arrays, Arrays], Any]
Callback = Callable[[PipeInstruction], Any]

Kind = tuple[tuple[int, ...], Any]  # shape, and what numpy.dtype() takes

BACKWARD = ("backward", "backward_input", "backward_weight")
FAILED = 1


class Tensors:
    """What travels at one end of a stage: shapes and types, as C and numpy want them."""

    def __init__(self, argument: str, described: Sequence[tuple[Shape, Any]], device: int) -> None:
        self._device = device  # -1: the host
        self.length = len(described)
        self.array = (_raw.Tensor * max(1, self.length))()
        self.kinds: list[Kind] = []
        self._keep: list[Any] = []
        for index, entry in enumerate(described):
            self._add(self.array[index], f"{argument}[{index}]", entry)

    def _add(self, tensor: _raw.Tensor, argument: str, entry: Any) -> None:
        if not isinstance(entry, tuple) or len(entry) != 2:
            raise TypeError(f'{argument} is {entry!r}; expected (shape, dtype) such as ((8, 64), "float32")')
        shape = extents(f"{argument}'s shape", entry[0])
        code = _dtypes.dtype_code(entry[1], argument)
        sizes = (c_int64 * max(1, len(shape)))(*shape)
        self._keep.append(sizes)
        tensor.struct_size = ctypes.sizeof(_raw.Tensor)
        tensor.count, tensor.dtype, tensor.device = math.prod(shape), int(code), self._device
        tensor.shape, tensor.ndim = sizes, len(shape)
        self.kinds.append((shape, _dtypes.numpy_type(code, entry[1])))


class Buffers:
    """The arrays over each buffer of a schedule, made once and used again by every callback and every run."""

    def __init__(self, inputs: Tensors, outputs: Tensors, owner: Any, device: int) -> None:
        self._inputs, self._outputs, self._owner, self._device = inputs.kinds, outputs.kinds, owner, device
        self._arrays: dict[tuple[int, int], Any] = {}
        self._of_this_run: dict[tuple[Any, ...], tuple[Arrays, Arrays, Arrays, Arrays]] = {}

    def begin(self) -> None:
        """Starts a run; the library may have moved a buffer since the one before."""
        self._of_this_run.clear()

    def of(self, instruction: PipeInstruction, call: Any) -> tuple[Arrays, Arrays, Arrays, Arrays]:
        """Returns inputs, outputs, output_grads and input_grads; a list is empty where the stage has none."""
        # Neighbouring chunks on a stage share memory, so that a buffer alone does not say where the inputs are.
        shared = _place(call.inputs), _place(call.output_grads)
        key = (instruction.chunk, instruction.buffer, *shared)
        found = self._of_this_run.get(key)
        if found is None:
            found = self._of_this_run[key] = (
                self._list(call.inputs, self._inputs, 0),
                self._list(call.outputs, self._outputs, len(self._inputs)),
                self._list(call.output_grads, self._outputs, len(self._inputs)),
                self._list(call.input_grads, self._inputs, 0),
            )
        return found

    def _list(self, addresses: Any, kinds: list[Kind], first: int) -> Arrays:
        """The arrays at some addresses; None where a tensor has no gradient. Kinds are numbered from first."""
        if not addresses:
            return ()
        return tuple(
            None if address is None else self._array(address, kind, first + index)
            for index, (kind, address) in enumerate(zip(kinds, addresses))
        )

    def _array(self, address: int, kind: Kind, number: int) -> Any:
        array = self._arrays.get((address, number))
        if array is None:
            array = self._make(address, *kind)
            self._arrays[address, number] = array
        return array

    def _make(self, address: int, shape: tuple[int, ...], element: Any) -> Any:
        if self._device >= 0:
            return DeviceArray(address, shape, element, self._device, self._owner)
        return array_over(address, shape, element, self._owner)


def _place(addresses: Any) -> int:
    return ctypes.addressof(addresses.contents) if addresses else 0


class Callbacks:
    """The functions of one run as C calls them; the first exception ends the run and is kept."""

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
        del self.table, self._entries[:]  # they lead back here

    def _lost(self, unraisable: Any) -> None:
        """Takes what a signal handler raised where a callback begins, before anything there could catch it."""
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
            except BaseException as error:  # nothing may leave through C
                self.raised = error
            return FAILED

        self._entries.append(called)
        return _raw.PipeCallback(called)

    def _forward(self, function: Forward, call: Any) -> None:
        """Calls forward, and passes on the loss where there is a place for it."""
        instruction = instruction_of(call.instruction.contents)
        inputs, outputs, _, _ = self._buffers.of(instruction, call)
        loss = function(instruction, inputs, outputs)
        if outputs and loss is not None and not isinstance(loss, numbers.Number):
            raise TypeError(f"forward returned a {type(loss).__name__}; on this stage it writes: outputs[0][...] = y")
        if call.loss and (self._trains or loss is not None):
            if loss is None:
                raise TypeError("forward returned None; on the last stage it returns the micro-batch's loss")
            call.loss[0] = float(loss)

    def _backward(self, function: Backward, call: Any) -> None:
        """Calls backward or one of its halves."""
        instruction = instruction_of(call.instruction.contents)
        function(instruction, *self._buffers.of(instruction, call))

    def _plain(self, function: Callback, call: Any) -> None:
        """Calls a function that gets no arrays."""
        function(instruction_of(call.instruction.contents))


def run(
    comm: Communicator, schedule: PipeSchedule, functions: dict[str, Any], inputs: Any, outputs: Any, stream: Any
) -> float:
    """Does what Communicator.pipe_run() says; functions are the callbacks by name."""
    if not isinstance(schedule, PipeSchedule):
        raise TypeError(f"schedule is a {type(schedule).__name__}; expected a PipeSchedule")
    options = _raw.PipeRunOptions()
    check(lib.dsc_pipe_run_options_init(byref(options), ctypes.sizeof(options)))
    device = -1
    if stream is not None:
        options.stream, device = handle_of(stream), comm._device
        if device < 0:
            raise ValueError("stream is given, and this communicator is bound to no GPU; expected None")
    taken, given = Tensors("inputs", inputs, device), Tensors("outputs", outputs, device)
    options.inputs, options.n_inputs = taken.array, taken.length
    options.outputs, options.n_outputs = given.array, given.length

    mean_loss = c_double()
    with Callbacks(comm, _buffers_of(comm, schedule, taken, given, device), functions) as callbacks:
        arguments = (schedule._handle, comm._handle, byref(callbacks.table), byref(options), byref(mean_loss))
        code = _callbacks.call(comm._stop, _interrupt.call, comm._stop, lib.dsc_pipe_run, *arguments)
        text = last_message() if code < 0 else ""
    raised, callbacks.raised = callbacks.raised, None
    if raised is not None:
        _interrupt.settle()
        try:
            raise raised
        finally:
            del raised  # whose traceback leads here
    if code == _raw.Result.ERR_CALLBACK:
        _interrupt.let_own_signal_come()
    if code < 0:
        comm._fail(code, text, "pipe_run")
    return mean_loss.value


def _buffers_of(
    comm: Communicator, schedule: PipeSchedule, inputs: Tensors, outputs: Tensors, device: int
) -> Buffers:
    """Returns the arrays of earlier runs of the schedule, if the library uses their memory again."""
    key = (comm._handle, inputs.kinds, outputs.kinds, device)
    known = schedule._run_buffers
    if known is None or known[0] != key:
        known = schedule._run_buffers = (key, Buffers(inputs, outputs, schedule._owner, device))
    buffers: Buffers = known[1]
    buffers.begin()
    return buffers
