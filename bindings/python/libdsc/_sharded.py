"""Sharded data parallelism: each rank keeps one part of gradients, optimizer state and parameters."""

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
    """This rank's part of a bucket: elements start to start + count - 1 of it.

    params and grads are flat numpy arrays over the library's memory; the optimizer reads grads and writes params, as
    in shard.params -= rate * shard.grads. ml_dtypes' types where the program has imported that, unsigned integers for
    bfloat16 and 8-bit floats otherwise. On a GPU they are objects with __cuda_array_interface__, for
    torch.as_tensor() or cupy.asarray().
    """

    params: Any
    grads: Any
    unit: int
    bucket: int
    start: int
    count: int

    def __setattr__(self, name: str, value: Any) -> None:
        """Takes only what is already there, because Python assigns the array that shard.params -= x has written to."""
        if "count" in self.__dict__ and self.__dict__.get(name) is not value:
            expected = f"shard.{name}[...] = x, or shard.{name} -= x" if name in ("params", "grads") else "no assignment"
            raise AttributeError(f"{name} of a shard is memory of the library; expected {expected}")
        super().__setattr__(name, value)


@dataclass(frozen=True)
class ShardRange:
    """A part of a parameter that this rank owns: elements of the parameter, and where they are in its shard of the bucket."""

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
    """Owns the library's object; the views hold it too, so their memory outlives close()."""

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

    The same loop runs in all stages: in 1 and 2 unit(u) only waits for parameters that are on their way.

    Parameters and gradients may be on the GPU that the world is bound to. Then calls go on streams, as operations do, and
    only clip() waits for the GPU; a failure that comes later is raised by the next call. `stream` is the current stream of
    torch or CuPy, if the parameters are theirs, or else CUDA's default stream, where it is not given.

    Args:
        world: the communicator.
        params: arrays in forward order, or a tree of them, all on the host or all on the GPU; read on rank 0, or with
            sync=False on all ranks.
        names: for messages; of a tree the paths, if not given.
        stage: 1 (optimizer state is sharded), 2 (gradients too) or 3 (parameters too).
        units: the first parameters of the units, such as layers, that are used together; planned if not given.
        layout: "unit", "megatron", "deepspeed" or "partitioned"; docs/sharding.md says what each is for.
        bucket_elements: a planned unit is closed by the parameter with which it has so many elements; 0: never.
        alignment: shards of layout "unit" have a multiple of so many elements.
        wide_padding: True pads Megatron's buckets to multiples of 65,536 too.
        alone: indices of the parameters that each get their own planned unit.
        average: "pre" (times 1/n, then summed), "post" or "none".
        grad_dtype: the type of gradients, such as "f32" for parameters of bfloat16; the parameters' if not given.
        shard_size: hybrid sharding: so many consecutive ranks, such as those of a host, share one copy.
        max_live_bytes: most bytes of full parameters, and of full gradients, at a time; 0: no limit.
        prefetch: units that are gathered ahead in stage 3, in the order of the step before.
        sync: False: each rank takes its own parameters instead of rank 0's.
        dtype: what the elements of all parameters are, such as "bf16".
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
        self._releases = stage == 3  # parameters, between uses
        self._counts = [buffer.count for buffer in tensors.buffers]
        self._codes = [buffer.dtype for buffer in tensors.buffers]
        self._shapes = [buffer.shape for buffer in tensors.buffers]
        self._elements = [getattr(x, "dtype", None) for x in arrays]
        on_device = [buffer for buffer in tensors.buffers if isinstance(buffer.owner, DeviceMemory)]
        # Its library knows a current stream; None: the host's. The smallest one, because it stays alive.
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
        #: Which shard this rank owns, of how many.
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
        """This rank's shards, one per bucket; gradients are valid from finish() to the next begin()."""
        return list(self._shards)

    @property
    def ranges(self) -> list[ShardRange]:
        """Which parts of which parameters the shards hold, in the order of the shards."""
        found = list_of(_raw.ShardedRange, lib.dsc_sharded_ranges, self._handle)
        return [ShardRange(*(getattr(one, field.name) for field in fields(ShardRange))) for one in found]

    @property
    def memory(self) -> ShardedMemory:
        """The bytes that this rank holds."""
        held = _raw.ShardedMemoryInfo()
        held.struct_size = ctypes.sizeof(held)
        self._check(lib.dsc_sharded_memory_info(self._handle, byref(held)), "memory")
        return ShardedMemory(*(getattr(held, field.name) for field in fields(ShardedMemory)))

    def begin(self, accumulate: bool = False, *, stream: Any = None) -> None:
        """Starts an iteration; with accumulate=True what it reduces is added to the gradient shards, for micro-batches."""
        try:
            adds = int(boolean("accumulate", accumulate))
            self._check(lib.dsc_sharded_begin(self._handle, adds, self._stream(None, stream)), "begin")
        except Exception as error:
            raise shown(error)

    def accumulate(self, i: int, grad: Any, *, stream: Any = None) -> None:
        """Adds a gradient to what this rank has collected for parameter i, without marking it ready."""
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
            grad: an array like the parameter, or a flat one, of the gradients' type or the parameter's; copied. None: it
                stands in grad_view(i).
            stream: on which the gradient will be there, and in whose order its memory may be used again.
        """
        try:
            i = self._index(i)
            address, code, owner = (None, 0, None) if grad is None else self._gradient(i, grad)
            arguments = (self._handle, i, address, code, self._stream(owner, stream))
            self._check(_interrupt.call(self._stop, lib.dsc_sharded_mark_ready, *arguments), "mark_ready")
        except Exception as error:
            raise shown(error)

    def mark_unused(self, i: int) -> None:
        """Says that this rank has no gradient for parameter i; it contributes zeros."""
        try:
            self._check(lib.dsc_sharded_mark_unused(self._handle, self._index(i)), "mark_unused")
        except Exception as error:
            raise shown(error)

    def finish(self, *, stream: Any = None) -> None:
        """Waits until the gradient shards hold the averages, on a GPU by the stream. Collective. Ctrl-C aborts the world."""
        self._blocking("finish", lib.dsc_sharded_finish, stream=stream)

    def clip(self, max_norm: float = math.inf, *, scale: float = 1.0, stream: Any = None) -> float:
        """Scales the gradients, limits their norm as PyTorch does, and returns that norm. Collective.

        All ranks get the same number. If it is not finite, no gradient was changed: skip the step then.

        Args:
            max_norm: gradients are scaled down to it; infinite: they are not limited.
            scale: factor that comes first, such as 1 / loss scale.
        """
        options, norm = _raw.ClipOptions(), c_double()
        check(lib.dsc_clip_options_init(byref(options), ctypes.sizeof(options)))
        options.max_norm, options.scale = real("max_norm", max_norm), real("scale", scale)
        self._blocking("clip", lib.dsc_sharded_clip, byref(options), byref(norm), stream=stream)
        return norm.value

    def step_done(self, changed: bool = True, *, stream: Any = None) -> None:
        """Ends a step: the optimizer has written the parameter shards, or with changed=False has skipped them. Collective.

        Ranks that say different things get MismatchError in the next call that gathers or reduces. Starts to gather parameters, in forward order; wait() or unit() waits for one unit.
        """
        self._blocking("step_done", lib.dsc_sharded_step_done, int(boolean("changed", changed)), stream=stream)

    def unshard(self, unit: int) -> None:
        """Starts to make a unit's parameters available (stage 3), and those that followed it in the step before."""
        self._call("unshard", lib.dsc_sharded_unshard, self._unit(unit))

    def wait(self, unit: int, *, stream: Any = None) -> None:
        """Waits until a unit's parameters are ready, on a GPU by the stream."""
        self._blocking("wait", lib.dsc_sharded_wait, self._unit(unit), stream=stream)

    def reshard(self, unit: int, *, stream: Any = None) -> None:
        """Gives back a unit's parameters (stage 3); touching an array over them afterwards ends the process by SIGSEGV.

        On a GPU the memory is used again in the order of the stream, and the array shows something else then.
        """
        self._blocking("reshard", lib.dsc_sharded_reshard, self._unit(unit), stream=stream)

    @contextmanager
    def unit(self, unit: int, *, stream: Any = None) -> Iterator[list[Any]]:
        """Unshards a unit and waits for it, gives the arrays of its parameters, and reshards it at the end.

        The arrays are only to be read: what is written into them is lost, or makes ranks differ. Write to
        shards[...].params.
        """
        self.unshard(unit)
        place = self._stream(None, stream)
        try:
            self.wait(unit, stream=place)
            yield [self.param_view(i) for i in self.units[unit]]
        except BaseException:
            lib.dsc_sharded_reshard(self._handle, unit, place)  # the first error says more than one of this call
            raise
        self.reshard(unit, stream=place)

    def param_view(self, i: int) -> Any:
        """Returns parameter i as a numpy array in its flat buffer; StateError when its unit is not there.

        On a GPU it is an object with __cuda_array_interface__, which in stage 3 may be elsewhere after every unshard().
        """
        try:
            i = self._index(i)
            address = c_void_p()
            self._check(lib.dsc_sharded_param_view(self._handle, i, byref(address)), "param_view")
            return self._view("param", i, address.value or 0, self._codes[i])
        except Exception as error:
            raise shown(error)

    def grad_view(self, i: int) -> Any:
        """Returns the place of parameter i's full gradient, as a numpy array of the gradients' type.

        It holds zeros from begin(), to which a framework may add; mark_ready(i) then copies nothing. On a GPU there is one in
        stage 1 only, an object with __cuda_array_interface__, and UnsupportedError otherwise.
        """
        try:
            i = self._index(i)
            address = c_void_p()
            self._check(lib.dsc_sharded_grad_view(self._handle, i, byref(address)), "grad_view")
            return self._view("grad", i, address.value or 0, self._grad_code(i))
        except Exception as error:
            raise shown(error)

    def save(self, folder: Any, state: Optional[Mapping[str, Sequence[Any]]] = None) -> None:
        """Writes this rank's shards into a folder: a small JSON header and the arrays, in the form of safetensors. Collective.

        Ranks that hold the same shard as others (hybrid sharding) write nothing. If a rank cannot write its file, as where
        its disk is full, no rank saves, and files of an earlier save stay: all ranks raise the same SystemError, an
        OSError, whose text has the rank, the path and the size of the file, with .rank and .errno. For any other reason
        that rank raises its own exception, and the others an InvalidArgError with it.
        Otherwise the files replace them, and can be read when save() returns. If the file system refuses that last step on
        some ranks only, all ranks raise, and load() refuses the mixture. A folder for each save keeps the one before.

        Args:
            folder: of the checkpoint, which all ranks reach; made if it is not there.
            state: the optimizer's arrays by name, one per bucket, each with the elements of the shard, on the host or on
                the GPU.
        """
        _sharded_checkpoint.save(self, folder, {} if state is None else state, self._stream(None, None))

    def load(self, folder: Any) -> dict[str, list[Any]]:
        """Reads a checkpoint of any number of ranks and any layout; returns the optimizer's arrays by name. Collective.

        They are numpy arrays, for parameters on a GPU as well. The parameters must have the names and shapes of those
        that were saved. If a rank cannot use its files, nothing is changed on any rank: it raises why, and the others
        an InvalidArgError that names it, with .rank.
        """
        place = self._stream(None, None)
        state = _sharded_checkpoint.load(self, folder, place)
        self.step_done(stream=place)
        return state

    def stats(self) -> list[OpStats]:
        """Returns the running totals of the operations of all groups that it uses."""
        return read_stats(lib.dsc_sharded_stats, self._handle)

    def close(self) -> None:
        """Ends this rank's part; operations that run are revoked on all ranks. Closing twice is fine.

        The others get PeerLeftError in the next call that needs this rank. Arrays that the program still has stay as they are.
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
        """An array over the library's memory."""
        if self._memory is None:
            return array_over(address, shape, element, self._owner)
        return DeviceArray(address, shape, element, self._world._device, self._owner)

    def _stream(self, owner: Any, stream: Any) -> Optional[int]:
        """The stream of a call; None for host memory."""
        return of_call(self._memory, owner, stream)

    def _bucket_codes(self) -> list[tuple[int, int, int]]:
        """Each bucket with the types of its parameters and of their gradients."""
        found = list_of(_raw.ShardedShard, lib.dsc_sharded_shards, self._handle)
        return [(one.bucket, one.dtype, one.grad_dtype) for one in found]

    def _grad_code(self, i: int) -> int:
        """Of one type of parameters all gradients have one type."""
        return next(grads for _, params, grads in self._bucket_codes() if params == self._codes[i])

    def _gradient(self, i: int, x: Any) -> tuple[int, int, Any]:
        """Locates a gradient, which must have the shape, or be flat with the count, of its parameter."""
        numbers = str(getattr(x, "dtype", "")) in ("uint8", "uint16")  # which stand for floats that numpy lacks
        address, count, code, owner = _buffers.locate(x, "grad", self._dtype if numbers else None, False)
        if isinstance(owner, DeviceMemory) != (self._memory is not None):
            found, place = ("a GPU", "the host") if self._memory is None else ("the host", "a GPU")
            raise ValueError(f"grad is in memory of {found}; expected memory of {place} as for the parameters")
        place_of(self._world, owner, None)
        if count != self._counts[i]:
            raise ValueError(f"grad has {count} elements; parameter {i} has {self._counts[i]}")
        shape, expected = getattr(x, "shape", ()), self._shapes[i]
        if shape != expected and min(len(shape), len(expected)) > 1:  # a flat one is taken as it is
            raise ValueError(f"grad has shape {tuple(shape)}; parameter {i} has {expected}")
        return address, code, owner

    def _index(self, i: int) -> int:
        if not 0 <= integer("i", i, -INT64_MOST, INT64_MOST) < len(self._counts):
            raise IndexError(f"there is no parameter {i}; there are {len(self._counts)}")
        return operator.index(i)

    def _unit(self, unit: int) -> int:
        if not 0 <= integer("unit", unit, *INT32) < len(self.units):
            raise IndexError(f"there is no unit {unit}; there are {len(self.units)}")
        return operator.index(unit)

    def _blocking(self, op: str, function: Any, *arguments: Any, stream: Any) -> None:
        self._call(op, function, *arguments, self._stream(None, stream))

    def _call(self, op: str, function: Any, *arguments: Any) -> None:
        try:
            self._check(_interrupt.call(self._stop, function, self._handle, *arguments), op)
        except Exception as error:
            raise shown(error)

    def _stop(self) -> None:
        """Makes a call return on all ranks."""
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
                "; if it died by signal 11 (SIGSEGV), it may have used a parameter whose unit was released: "
                "PYTHONFAULTHANDLER=1 shows the line"
            )
        self._world._fail(code, text, f"sharded_{op}")
