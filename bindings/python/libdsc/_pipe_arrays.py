"""The arrays that callbacks of pipe_run() get. They are views of the memory of a run."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Iterable, Sequence
from ctypes import byref, c_int64, c_size_t
from typing import TYPE_CHECKING, Any, Union

from libdsc import _buffers, _dtypes, _raw
from libdsc._arguments import brief, extents, integer
from libdsc._library import check, lib
from libdsc._memory import DeviceArray, array_over, numpy_module

if TYPE_CHECKING:
    from libdsc._pipe import PipeInstruction

Shape = Union[int, "Sequence[int]"]
Arrays = Sequence[Any]
Ends = tuple[Arrays, Arrays, Arrays, Arrays]  # inputs, outputs, output_grads and input_grads

Kind = tuple[tuple[int, ...], Any]  # shape, and an argument for numpy.dtype()


class Tensors:
    """Shapes and types of the tensors that enter or leave a stage, in the form that C and numpy need."""

    def __init__(self, argument: str, described: Sequence[tuple[Shape, Any]], device: int) -> None:
        self._device = device  # the GPU; -1: host memory
        self.length = len(described)
        self.array = (_raw.Tensor * max(1, self.length))()
        self.kinds: list[Kind] = []
        self._keep: list[Any] = []
        if isinstance(described, tuple) and self.length == 2 and not isinstance(described[1], tuple):
            raise TypeError(f"{argument} is {brief(described)}; expected a list of pairs (shape, dtype)")
        for index, entry in enumerate(described):
            self._add(self.array[index], f"{argument}[{index}]", entry)

    def _add(self, tensor: _raw.Tensor, argument: str, entry: Any) -> None:
        if not isinstance(entry, tuple) or len(entry) != 2:
            raise TypeError(f'{argument} is {brief(entry)}; expected a pair (shape, dtype), such as ((8, 64), "float32")')
        shape = extents(f"{argument}'s shape", entry[0])
        code = _dtypes.dtype_code(entry[1], f"the dtype of {argument}")
        sizes = (c_int64 * max(1, len(shape)))(*shape)
        self._keep.append(sizes)
        tensor.struct_size = ctypes.sizeof(_raw.Tensor)
        tensor.count, tensor.dtype, tensor.device = math.prod(shape), int(code), self._device
        tensor.shape, tensor.ndim = sizes, len(shape)
        self.kinds.append((shape, _dtypes.numpy_type(code, entry[1])))


class RunShapes:
    """The options of a run: shapes, types, memory and device."""

    def __init__(self, inputs: Any, outputs: Any, variable: bool, memory: Any = None, device: int = -1) -> None:
        self.inputs, self.outputs = Tensors("inputs", inputs, device), Tensors("outputs", outputs, device)
        self.variable, self.memory, self.device = bool(variable), memory, device
        self.options = options = _raw.PipeRunOptions()
        check(lib.dsc_pipe_run_options_init(byref(options), ctypes.sizeof(options)))
        options.inputs, options.n_inputs = self.inputs.array, self.inputs.length
        options.outputs, options.n_outputs = self.outputs.array, self.outputs.length
        options.variable_shapes = int(self.variable)
        if memory is not None:
            found = _buffers.describe(memory, "memory", writable=True)
            if isinstance(found.owner, _buffers.DeviceMemory) != (device >= 0):
                wrong = "memory is on the host; expected memory on a GPU, because stream is given"
                raise ValueError(wrong if device >= 0 else "memory is on a GPU; expected memory on the host, because no stream is given")
            self.memory, item_bytes = found.owner, c_size_t()
            check(lib.dsc_dtype_bytes(found.dtype, byref(item_bytes)))
            options.memory, options.memory_bytes = found.address, found.count * item_bytes.value

    @property
    def key(self) -> tuple[Any, ...]:
        """Two runs with equal keys can use the same arrays."""
        return self.inputs.kinds, self.outputs.kinds, self.device, self.variable, self.options.memory


class Written(tuple[Any, ...]):
    """A tuple of arrays that a callback must write in place. Assigning to an index raises TypeError."""

    __slots__ = ()

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(f"the array at index {index} cannot be replaced; write into it with [{index}][...] = value")


class Owner:
    """Keeps the memory of the arrays in one table alive."""

    __slots__ = ("_schedule", "_memory")

    def __init__(self, schedule: Any, memory: Any) -> None:
        self._schedule, self._memory = schedule, memory


def most_references(values: Iterable[Any]) -> int:
    """Returns the largest reference count among some values."""
    return max((sys.getrefcount(value) for value in values), default=0)


# The reference count of a value to which only its table refers.
ALONE = most_references({0: object()}.values())


class Buffers:
    """The arrays over each buffer of a schedule. They are made once, and used by every callback and every run."""

    def __init__(self, shapes: RunShapes, owner: Any) -> None:
        self._inputs, self._outputs, self._device = shapes.inputs.kinds, shapes.outputs.kinds, shapes.device
        self._arrays: dict[tuple[int, int], Any] = {}
        self._owner = Owner(owner, shapes.memory)
        self._owner_alone = self._owner_references()
        self._of_this_run: dict[tuple[Any, ...], Ends] = {}

    def begin(self) -> bool:
        """Prepares for a new run, in which the library may use other buffers than before.

        Returns whether the program still holds arrays of earlier runs. If this run uses new memory, the old memory must
        then not be freed.
        """
        self._of_this_run.clear()
        return most_references(self._arrays.values()) > ALONE or self._owner_references() > self._owner_alone

    def _owner_references(self) -> int:
        """Returns the number of references to the owner, without those from arrays in the table."""
        return sys.getrefcount(self._owner) - len(self._arrays)

    def of(self, instruction: PipeInstruction, call: Any) -> Ends:
        """Returns the four lists of arrays for a call. A list is empty if the stage has no such tensors."""
        # Adjacent chunks on a stage share memory, so the index of a buffer is not enough to find the inputs.
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
        """Returns the arrays at some addresses. None stands for a tensor without a gradient.

        The numbers of the arrays in the table start at first.
        """
        if not addresses:
            return ()
        return Written(
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


class VariableBuffers(Buffers):
    """Arrays of a run with variable shapes. Every call makes new arrays."""

    def of(self, instruction: PipeInstruction, call: Any) -> Ends:
        """Returns the four lists of arrays for a call. In a forward pass the outputs are an object of Outputs."""
        inputs, outputs = call.input_tensors, call.output_tensors
        if call.output_shapes:
            given: Arrays = Outputs(self, call, self._outputs)
        else:
            given = self._shaped(call.outputs, outputs, self._outputs)
        return (
            self._shaped(call.inputs, inputs, self._inputs),
            given,
            self._shaped(call.output_grads, outputs, self._outputs),
            self._shaped(call.input_grads, inputs, self._inputs),
        )

    def _shaped(self, addresses: Any, tensors: Any, kinds: list[Kind]) -> Arrays:
        if not addresses:
            return ()
        return Written(
            None if address is None else self._make(address, shape_of(tensors[index]), kind[1])
            for index, (kind, address) in enumerate(zip(kinds, addresses))
        )


def shape_of(tensor: Any) -> tuple[int, ...]:
    """Returns the shape of a C tensor."""
    return tuple(tensor.shape[: tensor.ndim])


class Outputs(Sequence[Any]):
    """The outputs of a forward pass with variable shapes: outputs[i] = array, or y = outputs.resize(i, shape).

    An output that is neither assigned nor resized keeps the shape passed to pipe_run(), the largest one. After the
    callback only len() works.
    """

    def __init__(self, buffers: VariableBuffers, call: Any, kinds: list[Kind]) -> None:
        self._make, self._device, self._kinds = buffers._make, buffers._device, kinds
        self._addresses, self._sizes = call.outputs, call.output_shapes

    def __repr__(self) -> str:
        if self._sizes is None:
            return "<libdsc outputs of a callback that has returned>"
        shapes = [tuple(self._sizes[place][: len(kind[0])]) for place, kind in enumerate(self._kinds)]
        return f"<libdsc outputs of shapes {shapes}>"

    def close(self) -> None:
        """Ends the access after the callback has returned. From then on the shapes belong to the library."""
        self._addresses = self._sizes = None

    def __len__(self) -> int:
        return len(self._kinds)

    def __getitem__(self, index: Any) -> Any:
        """Returns an array over the output in its current shape."""
        place = self._place(index)
        return self._array(place, tuple(self._sizes[place][: len(self._kinds[place][0])]))

    def __setitem__(self, index: Any, value: Any) -> None:
        """Copies an array into the output, which takes the shape of the array."""
        if self._device >= 0:
            raise TypeError("an output on a GPU cannot be assigned; write into the array that outputs.resize(index, shape) returns")
        numpy = numpy_module()
        value = numpy.asarray(value)
        numpy.copyto(self.resize(index, value.shape), value, casting="same_kind")

    def resize(self, index: int, shape: Shape) -> Any:
        """Sets the shape of an output, and returns the array to write to."""
        place = self._place(index)
        largest, wanted = self._kinds[place][0], extents("shape", shape)
        if len(wanted) != len(largest):
            raise ValueError(f"shape is {wanted}; expected {len(largest)} dimensions, as outputs[{place}] has")
        if math.prod(wanted) > math.prod(largest):
            raise ValueError(f"shape is {wanted}; expected at most {math.prod(largest)} elements, those of {largest}")
        for axis, size in enumerate(wanted):
            self._sizes[place][axis] = size
        return self._array(place, wanted)

    def _place(self, index: Any) -> int:
        place = integer("index", index)
        if self._sizes is None:
            raise RuntimeError("these outputs belong to a callback that has returned; they can be used only inside that callback")
        if not -len(self) <= place < len(self):
            raise IndexError(f"outputs[{place}] does not exist; the number of outputs is {len(self)}")
        return place % len(self)

    def _array(self, place: int, shape: tuple[int, ...]) -> Any:
        return self._make(self._addresses[place], shape, self._kinds[place][1])


def _place(addresses: Any) -> int:
    return ctypes.addressof(addresses.contents) if addresses else 0
