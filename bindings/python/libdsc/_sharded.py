"""Sharded data parallelism: each rank keeps a shard of gradients, optimizer state and parameters."""

from __future__ import annotations

import ctypes
import math
import operator
from contextlib import contextmanager
from ctypes import byref, c_double, c_size_t, c_void_p
from dataclasses import dataclass, fields
from typing import Any, Iterator, Mapping, NoReturn, Optional, Sequence

from libdsc import _buffers, _dtypes, _interrupt, _raw, _sharded_checkpoint
from libdsc._arguments import INT32, INT64_MOST, SIZE, boolean, expect_communicator, integer, real
from libdsc._buffers import DeviceMemory
from libdsc._communicator import Communicator, OpStats, read_stats
from libdsc._library import OnlyOne, check, last_message, lib, list_of
from libdsc._memory import DeviceArray, array_over
from libdsc._shard_plan import ShardRules
from libdsc._streams import of_call, place_of
from libdsc._tensors import Tensors, wait_for_data
from libdsc._tracebacks import shown
from libdsc._trees import parameters_of
from libdsc._types import LayoutName, ShardAverageLike, Stage


@dataclass
class Shard:
    """This rank's part of a bucket: count elements, beginning at element start of the bucket.

    params and grads are flat numpy arrays over the library's memory. The optimizer reads grads and writes params, as in
    shard.params -= rate * shard.grads. bfloat16 and 8-bit floats have the types of ml_dtypes if the program has
    imported it, and are unsigned integers otherwise. On a GPU params and grads are objects with
    __cuda_array_interface__, for torch.as_tensor() or cupy.asarray().
    """

    params: Any
    grads: Any
    unit: int
    bucket: int
    start: int
    count: int

    def __setattr__(self, name: str, value: Any) -> None:
        """Accepts only the current array.

        Python makes this assignment after shard.params -= x has written the array.
        """
        if "count" in self.__dict__ and self.__dict__.get(name) is not value:
            expected = f"shard.{name}[...] = x, or shard.{name} -= x" if name in ("params", "grads") else "no assignment"
            raise AttributeError(f"{name} of a shard cannot be replaced, because its memory belongs to the library; expected {expected}")
        super().__setattr__(name, value)


@dataclass(frozen=True)
class ShardRange:
    """A part of a parameter that this rank owns: its elements, and their offset in the shard of the bucket."""

    param: int
    param_start: int
    bucket: int
    shard_start: int
    count: int


@dataclass(frozen=True)
class ShardedMemory:
    """Bytes that sharded parameters hold on this rank."""

    param_shard_bytes: int
    grad_shard_bytes: int
    param_bytes: int
    grad_bytes: int
    peak_param_bytes: int
    peak_grad_bytes: int


class _Handle(OnlyOne):
    """Owns a sharded object of the library. Views also keep this object alive, so their memory survives close()."""

    __slots__ = ("value", "__weakref__")

    def __init__(self, value: int) -> None:
        self.value = value

    def __del__(self) -> None:
        try:
            lib.dsc_sharded_destroy(self.value)
        except Exception:  # at interpreter shutdown
            pass


class Sharded(OnlyOne):
    """Shards gradients, optimizer state and, in stage 3, parameters over all ranks (ZeRO 1 to 3, FSDP). Collective.

        sharded = dsc.Sharded(world, params, stage=3, units=[0, 2, 4])
        moments = [np.zeros_like(shard.grads) for shard in sharded.shards]
        for x, y in batches:
            for u in range(len(sharded.units)):            # forward
                with sharded.unit(u):                      # the unit's parameters are ready
                    x = layer(u, x, [sharded.param_view(i) for i in sharded.units[u]])
            sharded.begin()
            ...                                            # backward: unit(u) again, mark_ready(i, grad)
            sharded.finish()
            for shard, moment in zip(sharded.shards, moments):
                optimizer(shard.params, shard.grads, moment)
            sharded.step_done()

    The same loop runs in all stages. In stages 1 and 2 unit(u) only waits for parameters that are still in flight.

    Parameters and gradients may be on the GPU that the world is bound to. Calls then queue their work on streams, as
    operations do, and only clip() waits for the GPU. A failure that occurs later is raised by the next call. If
    `stream` is not given, it is the current stream of torch or CuPy if the parameters are theirs, else CUDA's default
    stream.

    Args:
        world: the communicator.
        params: arrays in forward order, or a tree of them, all on the host or all on the GPU. Only rank 0's values are
            used; with sync=False those of each rank.
        names: names of the parameters for messages; by default the paths in the tree.
        stage: 1 (optimizer state is sharded), 2 (gradients too) or 3 (parameters too).
        units: the index of the first parameter of each unit. A unit, such as a layer, has parameters that are used
            together. If not given, units are planned.
        layout: "unit", "megatron", "deepspeed" or "partitioned"; docs/sharding.md says what each is for.
        bucket_elements: a planned unit ends with the parameter that brings it to this many elements; 0: no limit.
        alignment: in layout "unit" the size of a shard is a multiple of this many elements.
        wide_padding: True pads Megatron's buckets to multiples of 65,536 elements.
        alone: indices of the parameters that each get their own planned unit.
        average: "pre" (times 1/n, then summed), "post" or "none".
        grad_dtype: the type of gradients, such as "f32" for parameters of bfloat16; by default that of the parameters.
        shard_size: hybrid sharding: this many consecutive ranks, such as those of a host, share one copy of the model.
        max_live_bytes: the most bytes of full parameters, and of full gradients, at a time; 0: no limit.
        prefetch: the number of units that are gathered ahead in stage 3, in the order of the previous step.
        sync: False: each rank uses its own parameters instead of rank 0's.
        dtype: the element type of all parameters, such as "bf16".
    """

    __slots__ = ("_world", "_dtype", "_owner", "_handle", "_rules", "_paths", "_counts", "_codes", "_shapes", "_elements",
                 "_memory", "_views", "_shards", "_releases", "units", "shard", "n_shards", "__weakref__")  # fmt: skip

    def __init__(
        self,
        world: Communicator,
        params: Any,
        names: Optional[Sequence[str]] = None,
        stage: Stage = 2,
        units: Optional[Sequence[int]] = None,
        layout: LayoutName = "unit",
        bucket_elements: int = 40_000_000,
        alignment: int = 16,
        wide_padding: bool = False,
        alone: Sequence[int] = (),
        average: ShardAverageLike = "pre",
        grad_dtype: Any = None,
        shard_size: int = 0,
        max_live_bytes: int = 0,
        prefetch: int = 1,
        sync: bool = True,
        dtype: Any = None,
    ) -> None:
        expect_communicator("world", world)
        paths, arrays, names = parameters_of(params, names)
        tensors = Tensors(world, arrays, "params", dtype, False, names, paths)
        self._rules = ShardRules(layout, units, bucket_elements, alignment, wide_padding, alone)
        options, plan = _raw.ShardedOptions(), self._rules.options(tensors.length)
        check(lib.dsc_sharded_options_init(byref(options), ctypes.sizeof(options)))
        options.plan = ctypes.pointer(plan)
        options.max_live_bytes = integer("max_live_bytes", max_live_bytes, *SIZE)
        options.stage, options.average = integer("stage", stage), _dtypes.average_code(average)
        options.grad_dtype = 0 if grad_dtype is None else _dtypes.dtype_code(grad_dtype, "grad_dtype")
        options.shard_size, options.prefetch = integer("shard_size", shard_size), integer("prefetch", prefetch)
        options.sync = int(boolean("sync", sync))
        made = c_void_p()
        wait_for_data(tensors)
        world._call(lib.dsc_sharded_create, tensors.array, tensors.length, byref(options), byref(made))
        assert made.value is not None
        self._world, self._dtype = world, dtype
        self._owner: Optional[_Handle] = _Handle(made.value)
        self._handle = made.value
        self._paths = list(names or paths)
        self._releases = stage == 3  # whether parameters are released between uses
        self._counts = [buffer.count for buffer in tensors.buffers]
        self._codes = [buffer.dtype for buffer in tensors.buffers]
        self._shapes = [buffer.shape for buffer in tensors.buffers]
        self._elements = [getattr(x, "dtype", None) for x in arrays]
        on_device = [buffer for buffer in tensors.buffers if isinstance(buffer.owner, DeviceMemory)]
        # A parameter on a GPU: calls use the current stream of its library (torch or CuPy). None for host memory. It is
        # the smallest parameter, because its memory is kept alive.
        self._memory = min(on_device, key=lambda buffer: buffer.count).owner if on_device else None
        self._views: dict[tuple[str, int], tuple[int, Any]] = {}
        self._read_places()
        self._read_shards()

    def _read_places(self) -> None:
        n = len(self._counts)
        lists = [(c_size_t * n)() for _ in range(3)]
        n_units, shard, shards = c_size_t(), c_size_t(), c_size_t()
        check(lib.dsc_sharded_locations(self._handle, *lists, byref(n_units), byref(shard), byref(shards)))
        #: The parameter indices of each unit.
        self.units: list[list[int]] = [[] for _ in range(n_units.value)]
        for i in range(n):
            self.units[lists[0][i]].append(i)
        #: The index of the shard that this rank owns, and the number of shards.
        self.shard, self.n_shards = shard.value, shards.value

    def _read_shards(self) -> None:
        self._shards = []
        for it in list_of(_raw.ShardedShard, lib.dsc_sharded_shards, self._handle):
            arrays = [
                self._array(address or 0, (it.count,), _dtypes.view_type(code, None))
                for address, code in ((it.params, it.dtype), (it.grads, it.grad_dtype))
            ]
            self._shards.append(Shard(arrays[0], arrays[1], it.unit, it.bucket, it.start, it.count))

    def __repr__(self) -> str:
        place = f"{len(self._counts)} parameters in {len(self.units)} units on {self._world.name!r}"
        return f"<libdsc.Sharded of {place}{'' if self._handle else ', closed'}>"

    @property
    def shards(self) -> list[Shard]:
        """This rank's shards, one per bucket. Their gradients are valid from finish() to the next begin()."""
        return list(self._shards)

    @property
    def ranges(self) -> list[ShardRange]:
        """The parts of parameters in this rank's shards, in the order of the shards."""
        found = list_of(_raw.ShardedRange, lib.dsc_sharded_ranges, self._handle)
        return [ShardRange(*(getattr(one, field.name) for field in fields(ShardRange))) for one in found]

    @property
    def memory(self) -> ShardedMemory:
        """The bytes that sharded parameters hold on this rank."""
        held = _raw.ShardedMemoryInfo()
        held.struct_size = ctypes.sizeof(held)
        self._check(lib.dsc_sharded_memory_info(self._handle, byref(held)), "memory")
        return ShardedMemory(*(getattr(held, field.name) for field in fields(ShardedMemory)))

    def begin(self, accumulate: bool = False, *, stream: Any = None) -> None:
        """Starts an iteration. accumulate=True adds its result to the gradient shards, for micro-batches."""
        try:
            adds = int(boolean("accumulate", accumulate))
            self._check(lib.dsc_sharded_begin(self._handle, adds, self._stream(None, stream)), "begin")
        except Exception as error:
            raise shown(error)

    def accumulate(self, i: int, grad: Any, *, stream: Any = None) -> None:
        """Adds a gradient to the sum that this rank collects for parameter i, without marking it ready."""
        try:
            i = self._index(i)
            address, code, owner = self._gradient(i, grad)
            arguments = (self._handle, i, address, code, self._stream(owner, stream))
            self._check(lib.dsc_sharded_accumulate(*arguments), "accumulate")
        except Exception as error:
            raise shown(error)

    def mark_ready(self, i: int, grad: Any = None, *, stream: Any = None) -> None:
        """Marks the gradient of parameter i as ready. The last one of a unit starts its reduction.

        Args:
            i: index of the parameter.
            grad: an array like the parameter, or a flat one, of the gradients' type or the parameter's; it is copied.
                None: the gradient is already in grad_view(i).
            stream: the stream on which the gradient is computed. Its memory may be reused in the order of this stream.
        """
        try:
            i = self._index(i)
            address, code, owner = (None, 0, None) if grad is None else self._gradient(i, grad)
            arguments = (self._handle, i, address, code, self._stream(owner, stream))
            self._check(_interrupt.call(self._stop, lib.dsc_sharded_mark_ready, *arguments), "mark_ready")
        except Exception as error:
            raise shown(error)

    def mark_unused(self, i: int) -> None:
        """Marks parameter i as having no gradient on this rank; the rank contributes zeros."""
        try:
            self._check(lib.dsc_sharded_mark_unused(self._handle, self._index(i)), "mark_unused")
        except Exception as error:
            raise shown(error)

    def finish(self, *, stream: Any = None) -> None:
        """Waits until the gradient shards hold the averages. On a GPU, only the stream waits. Collective.

        Ctrl-C aborts the world.
        """
        self._blocking("finish", lib.dsc_sharded_finish, stream=stream)

    def clip(self, max_norm: float = math.inf, *, scale: float = 1.0, stream: Any = None) -> float:
        """Scales the gradients, clips their norm as PyTorch does, and returns that norm. Collective.

        All ranks get the same norm. If it is not finite, no gradient was changed: skip the step.

        Args:
            max_norm: gradients are scaled down to this norm; infinite: no limit.
            scale: a factor that is applied first, such as 1 / loss scale.
        """
        options, norm = _raw.ClipOptions(), c_double()
        check(lib.dsc_clip_options_init(byref(options), ctypes.sizeof(options)))
        options.max_norm, options.scale = real("max_norm", max_norm), real("scale", scale)
        self._blocking("clip", lib.dsc_sharded_clip, byref(options), byref(norm), stream=stream)
        return norm.value

    def step_done(self, changed: bool = True, *, stream: Any = None) -> None:
        """Ends a step, after the optimizer has written the parameter shards. Collective.

        Pass changed=False if the step was skipped. If ranks pass different values, the next call that gathers or
        reduces raises MismatchError. The call starts to gather parameters in forward order; wait() or unit() waits for
        a unit.
        """
        self._blocking("step_done", lib.dsc_sharded_step_done, int(boolean("changed", changed)), stream=stream)

    def unshard(self, unit: int) -> None:
        """Starts to gather a unit's parameters (stage 3), and those of the units that followed it in the previous step.
        """
        self._call("unshard", lib.dsc_sharded_unshard, self._unit(unit))

    def wait(self, unit: int, *, stream: Any = None) -> None:
        """Waits until a unit's parameters are ready. On a GPU, only the stream waits."""
        self._blocking("wait", lib.dsc_sharded_wait, self._unit(unit), stream=stream)

    def reshard(self, unit: int, *, stream: Any = None) -> None:
        """Releases a unit's full parameters (stage 3). Later access to arrays over them ends the process by SIGSEGV.

        On a GPU the memory is reused in the order of the stream; the array then shows other data.
        """
        self._blocking("reshard", lib.dsc_sharded_reshard, self._unit(unit), stream=stream)

    @contextmanager
    def unit(self, unit: int, *, stream: Any = None) -> Iterator[list[Any]]:
        """Unshards a unit, waits for it and yields the arrays of its parameters; reshards it at the end of the block.

        Only read the arrays: what you write into them is lost, or makes ranks differ. Write to shards[...].params.
        """
        self.unshard(unit)
        place = self._stream(None, stream)
        try:
            self.wait(unit, stream=place)
            yield [self.param_view(i) for i in self.units[unit]]
        except BaseException:
            # The result is ignored, because the first error says more than an error of this call.
            lib.dsc_sharded_reshard(self._handle, unit, place)
            raise
        self.reshard(unit, stream=place)

    def param_view(self, i: int) -> Any:
        """Returns parameter i as a numpy array in its flat buffer. Raises StateError if its unit is not gathered.

        On a GPU it is an object with __cuda_array_interface__. In stage 3 its address may change with every unshard().
        """
        try:
            i = self._index(i)
            address = c_void_p()
            self._check(lib.dsc_sharded_param_view(self._handle, i, byref(address)), "param_view")
            return self._view("param", i, address.value or 0, self._codes[i])
        except Exception as error:
            raise shown(error)

    def grad_view(self, i: int) -> Any:
        """Returns a view of parameter i's full gradient, as a numpy array of the gradients' type.

        After begin() it holds zeros, to which a framework may add. mark_ready(i) then copies nothing. On a GPU it
        exists only in stage 1, as an object with __cuda_array_interface__; otherwise the call raises UnsupportedError.
        """
        try:
            i = self._index(i)
            address = c_void_p()
            self._check(lib.dsc_sharded_grad_view(self._handle, i, byref(address)), "grad_view")
            return self._view("grad", i, address.value or 0, self._grad_code(i))
        except Exception as error:
            raise shown(error)

    def save(self, folder: Any, state: Optional[Mapping[str, Sequence[Any]]] = None) -> None:
        """Writes this rank's shards into a folder, as safetensors files: a small JSON header and arrays. Collective.

        With hybrid sharding only one of the ranks with the same shard writes it.

        If a rank cannot write its file, for example because its disk is full, no rank saves, and the files of an
        earlier save are kept. All ranks then raise the same SystemError, an OSError with .rank and .errno. Its text has
        the rank, the path and the size of the file. For any other reason that rank raises its own exception, and the
        other ranks raise InvalidArgError with its text.

        Otherwise the new files replace the earlier ones, and are readable when save() returns. If the file system
        refuses this last step on some ranks only, all ranks raise, and load() refuses the mixture. Use a new folder for
        each save to keep the previous one.

        Args:
            folder: the folder of the checkpoint, which all ranks can reach; it is created if it does not exist.
            state: the optimizer's arrays by name, one per bucket, each with as many elements as the shard, on the host
                or on the GPU.
        """
        _sharded_checkpoint.save(self, folder, {} if state is None else state, self._stream(None, None))

    def load(self, folder: Any) -> dict[str, list[Any]]:
        """Reads a checkpoint of any number of ranks and any layout; returns the optimizer's arrays by name. Collective.

        The arrays are numpy arrays, also if the parameters are on a GPU. The parameters must have the names and shapes
        of the saved ones. If a rank cannot use its files, nothing is changed on any rank. That rank raises the reason;
        the other ranks raise InvalidArgError, which names it and has .rank.
        """
        place = self._stream(None, None)
        state = _sharded_checkpoint.load(self, folder, place)
        self.step_done(stream=place)
        return state

    def stats(self) -> list[OpStats]:
        """Returns the running totals of the operations of all groups that this object uses."""
        return read_stats(lib.dsc_sharded_stats, self._handle)

    def close(self) -> None:
        """Closes this object on this rank. Running operations are revoked on all ranks. May be called twice.

        The other ranks get PeerLeftError in the next call that needs this rank. Arrays that the program still has
        remain valid.
        """
        lib.dsc_sharded_close(self._handle)
        self._views.clear()
        self._shards.clear()
        self._handle, self._owner = 0, None

    def __enter__(self) -> Sharded:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()

    def _view(self, kind: str, i: int, address: int, code: int) -> Any:
        known, view = self._views.get((kind, i), (None, None))
        if known != address:
            element = _dtypes.view_type(code, self._elements[i] if code == self._codes[i] else None)
            view = self._array(address, self._shapes[i], element)
            self._views[kind, i] = address, view
        return view

    def _array(self, address: int, shape: tuple[int, ...], element: Any) -> Any:
        """Returns an array over memory of the library."""
        if self._memory is None:
            return array_over(address, shape, element, self._owner)
        return DeviceArray(address, shape, element, self._world._device, self._owner)

    def _stream(self, owner: Any, stream: Any) -> Optional[int]:
        """Returns the stream of a call; None for host memory."""
        return of_call(self._memory, owner, stream)

    def _bucket_codes(self) -> list[tuple[int, int, int]]:
        """Returns the index of each bucket with the types of its parameters and of their gradients."""
        found = list_of(_raw.ShardedShard, lib.dsc_sharded_shards, self._handle)
        return [(one.bucket, one.dtype, one.grad_dtype) for one in found]

    def _grad_code(self, i: int) -> int:
        """Returns the type of a parameter's gradient. It is the same for all parameters of one type."""
        return next(grads for _, params, grads in self._bucket_codes() if params == self._codes[i])

    def _gradient(self, i: int, x: Any) -> tuple[int, int, Any]:
        """Locates a gradient. It must have the shape of its parameter, or be flat with the same count."""
        # These integer types stand for floats that numpy lacks.
        numbers = str(getattr(x, "dtype", "")) in ("uint8", "uint16")
        address, count, code, owner = _buffers.locate(x, "grad", self._dtype if numbers else None, False)
        if isinstance(owner, DeviceMemory) != (self._memory is not None):
            found, place = ("a GPU", "the host") if self._memory is None else ("the host", "a GPU")
            raise ValueError(f"grad is in memory of {found}; expected memory of {place}, like the parameters")
        place_of(self._world, owner, None)
        if count != self._counts[i]:
            raise ValueError(f"grad has {count} elements; parameter {i} has {self._counts[i]}")
        shape, expected = getattr(x, "shape", ()), self._shapes[i]
        # an array of one dimension is accepted for any shape
        if shape != expected and min(len(shape), len(expected)) > 1:
            raise ValueError(f"grad has shape {tuple(shape)}; parameter {i} has {expected}")
        return address, code, owner

    def _index(self, i: int) -> int:
        if not 0 <= integer("i", i, -INT64_MOST, INT64_MOST) < len(self._counts):
            raise IndexError(f"there is no parameter {i}; the number of parameters is {len(self._counts)}")
        return operator.index(i)

    def _unit(self, unit: int) -> int:
        if not 0 <= integer("unit", unit, *INT32) < len(self.units):
            raise IndexError(f"there is no unit {unit}; the number of units is {len(self.units)}")
        return operator.index(unit)

    def _blocking(self, op: str, function: Any, *arguments: Any, stream: Any) -> None:
        self._call(op, function, *arguments, self._stream(None, stream))

    def _call(self, op: str, function: Any, *arguments: Any) -> None:
        try:
            self._check(_interrupt.call(self._stop, function, self._handle, *arguments), op)
        except Exception as error:
            raise shown(error)

    def _stop(self) -> None:
        """Makes a call in progress return on all ranks."""
        self._world._stop()
        lib.dsc_sharded_close(self._handle)

    def _check(self, code: int, op: str) -> None:
        if code < 0:
            self._fail(code, last_message(), op)

    def _fail(self, code: int, text: str, op: str) -> NoReturn:
        if code == _raw.Result.ERR_BAD_HANDLE:
            text = f"{op}: the sharded parameters were closed"
        if code == _raw.Result.ERR_PEER_DEAD and self._releases:
            text += (
                "; if that process was killed by signal 11 (SIGSEGV), it may have used a parameter whose unit was released: "
                "set PYTHONFAULTHANDLER=1 to print the Python stack"
            )
        self._world._fail(code, text, f"sharded_{op}")
