"""The features of a reducer that are not part of an iteration: hooks, buffers, clipping and statistics."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
from ctypes import POINTER, byref, c_double, c_int64, c_size_t, c_uint8, c_uint64, c_void_p, cast
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Optional, Sequence, Union

from libdsc import _buffers, _dtypes, _interrupt, _raw, errors
from libdsc._arguments import expect_communicator, real, string
from libdsc._communicator import Communicator, OpStats, read_stats
from libdsc._hooks import Hook, HookEntry, save
from libdsc._iteration import Iteration, in_place
from libdsc._library import OnlyOne, check, lib, list_of, text_of
from libdsc._memory import array_over, numpy_module
from libdsc._tensors import Tensors
from libdsc._tracebacks import shown
from libdsc._trees import flatten

if TYPE_CHECKING:
    from libdsc._write_mark import WriteMark


class ReducerFeatures(OnlyOne):
    """The methods of BucketReducer that are not part of an iteration."""

    __slots__ = (
        "_synced",
        "_rebuilds",
        "_hook_entry",
        "_buffers",
        "_iteration",
        "_elsewhere",
        "_untaken",
        "_finds_unused",
        "_joined",
    )

    _world: Communicator
    _dtype: Any
    _handle: int
    _expected: list[tuple[int, int]]
    _shapes: list[tuple[int, ...]]
    _iteration: Iteration
    _names: Optional[list[str]]
    _views: dict[int, Any]
    _marks: dict[int, WriteMark]
    _synced: bool
    _rebuilds: int
    # The parameters whose latest average is only in their views, because this rank did not mark them.
    _elsewhere: list[int]
    _untaken: set[int]  # those of them that the program has not read yet
    _finds_unused: bool
    _joined: bool
    _hook_entry: Optional[HookEntry]
    _buffers: list[tuple[str, Any, _buffers.Buffer]]

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Iterations in its block do not communicate. Gradients add up; the next iteration outside reduces the sums.

        with reducer.no_sync():
            for x, y in micro_batches[:-1]:
                reducer.begin()
                ...
                reducer.finish()
        """
        before = self._synced
        self._set_sync(False)
        try:
            yield
        except BaseException:
            # The error about an open iteration would hide the exception that was raised in the block.
            with contextlib.suppress(errors.DscError):
                self._leave_no_sync(before)
            raise
        self._leave_no_sync(before)

    def _leave_no_sync(self, before: bool) -> None:
        if self._handle:
            self._set_sync(before)

    def _set_sync(self, sync: bool) -> None:
        self._check(lib.dsc_bucket_reducer_set_sync(self._handle, int(sync)), "set_sync")
        self._synced = sync

    def unused(self) -> list[tuple[int, str]]:
        """Returns the parameters, by index and name, that had no gradient on any rank. Nothing was written for them.

        With find_unused the result is for the latest iteration, with static_graph for all iterations.
        """
        indices = list_of(c_size_t, lib.dsc_bucket_reducer_unused, self._handle)
        names = self._names
        return [(int(i), f"parameter {i}" if names is None else names[int(i)]) for i in indices]

    def used_elsewhere(self) -> list[tuple[int, str]]:
        """Returns the parameters, by index and name, that had a gradient in the latest iteration on other ranks only.

        Their averages are in grad_view(i), and in no array of this rank. In PyTorch their p.grad stays None. The
        optimizer would not update these parameters on this rank, while other ranks update them. So set p.grad:

            for i, name in reducer.used_elsewhere():
                params[i].grad = torch.as_tensor(reducer.grad_view(i))

        The list needs find_unused or static_graph. If a program reads neither these views nor this list, the next
        begin() raises StateError.
        """
        names, self._untaken = self._names, set()
        return [(i, f"parameter {i}" if names is None else names[i]) for i in self._elsewhere]

    def _note_elsewhere(self, unmarked: Iterable[int]) -> None:
        """Notes the reduced parameters that this rank has not marked in the iteration."""
        self._elsewhere = []
        if self._finds_unused and unmarked:
            nowhere = {i for i, _ in self.unused()}
            self._elsewhere = sorted(i for i in unmarked if i not in nowhere)
        self._untaken = set(self._elsewhere) - self._views.keys()

    def _require_taken(self) -> None:
        """Raises StateError, only once, if the program did not read averages that are only in views."""
        untaken, self._untaken = self._untaken, set()
        if untaken:
            first = min(untaken)
            raise errors.StateError(
                f"begin: {self._name(first)} had a gradient on other ranks only, and this rank did not read the average from "
                f"grad_view({first}). If this rank does not update the parameter, the ranks' parameters differ. After "
                "finish(), update all parameters that used_elsewhere() lists"
            )

    @property
    def rebuilds(self) -> int:
        """The number of times that the buckets were rebuilt.

        grad_view() returns new arrays from the following begin() on.
        """
        count = c_uint64()
        self._check(lib.dsc_bucket_reducer_rebuilds(self._handle, byref(count)), "rebuilds")
        return count.value

    def _forget_moved_views(self) -> None:
        rebuilds = self.rebuilds
        if rebuilds != self._rebuilds:
            self._rebuilds = rebuilds
            self._views.clear()
            self._marks.clear()

    def mark_sparse(self, i: int, indices: Any, values: Any) -> None:
        """Marks a sparse gradient, which consists of some rows of parameter i. i must be listed in sparse=.

        Args:
            i: index of the parameter.
            indices: the indices of the rows; they may repeat.
            values: an array with one row for each index, of the parameter's type. Indices and values are copied.
        """
        try:
            numpy = numpy_module()
            rows = numpy.asarray(indices)
            if rows.size and rows.dtype.kind not in "iu":
                raise TypeError(f"indices has elements of type {rows.dtype}; expected integers")
            rows = numpy.ascontiguousarray(rows, numpy.int64).reshape(-1)
            place, count, code, owner = _buffers.locate(values, "values", self._dtype, False)
            i, iteration = self._index(i), self._iteration
            row = math.prod(self._shapes[i][1:])
            expected = (len(rows) * row, self._expected[i][1])
            if (count, code) != expected:
                got = f"{count} elements of {_raw.Dtype(code).name.lower()}"
                wanted = f"{expected[0]} of {_raw.Dtype(expected[1]).name.lower()}: {len(rows)} rows of {row}"
                raise ValueError(f"values has {got}; expected {wanted}")
            address = rows.ctypes.data_as(POINTER(c_int64))
            code = lib.dsc_bucket_reducer_mark_sparse(self._handle, i, address, place, len(rows))
            self._check(code, "mark_sparse")
            iteration.pending.discard(i)
            del owner
        except Exception as error:
            raise shown(error)

    def sparse(self, i: int) -> tuple[Any, Any]:
        """Returns the result for the sparse gradient of parameter i: new arrays of indices, and of the rows for them.
        """
        try:
            i = self._index(i)
            indices, values, count = POINTER(c_int64)(), c_void_p(), c_size_t()
            code = lib.dsc_bucket_reducer_sparse(self._handle, i, byref(indices), byref(values), byref(count))
            self._check(code, "sparse")
            n, shape = count.value, (count.value, *self._shapes[i][1:])
            numpy, element = numpy_module(), self._view_type(i)
            if n == 0:
                return numpy.empty(0, numpy.int64), numpy.empty(shape, element)
            rows = array_over(cast(indices, c_void_p).value or 0, (n,), numpy.int64, None)
            return rows.copy(), array_over(values.value or 0, shape, element, None).copy()
        except Exception as error:
            raise shown(error)

    def set_buffers(self, buffers: Any) -> None:
        """Registers the arrays for sync_buffers(), on the host, on the GPU, or some on each. Collective.

        They must keep their memory as long as the reducer is used. If one has moved, sync_buffers() raises StateError.
        """
        leaves = flatten(buffers, "buffers")
        arrays, paths = [x for _, x in leaves], [path for path, _ in leaves]
        tensors = Tensors(self._world, arrays, "buffers", self._dtype, True, paths, paths)
        self._call(lib.dsc_bucket_reducer_set_buffers, "set_buffers", tensors.array, tensors.length)
        self._buffers = list(zip(paths, arrays, tensors.buffers))

    def sync_buffers(self, how: Any = "broadcast") -> None:
        """Makes the buffers equal on all ranks, before a forward pass. Collective.

        Args:
            how: "broadcast" copies rank 0's buffers. "mean" averages floating-point buffers, and copies rank 0's
                integer buffers, such as counters. Under a Join, only ranks that still have batches take part in the
                mean.
        """
        held = self._hold_buffers("sync_buffers")  # keeps the arrays alive during the call
        self._call(lib.dsc_bucket_reducer_sync_buffers, "sync_buffers", _dtypes.buffer_sync_code(how))
        del held

    def _hold_buffers(self, op: str) -> list[Any]:
        """Returns objects that keep the arrays of set_buffers() alive.

        StateError names an array whose memory has moved.
        """
        held = []
        for path, array, found in self._buffers:
            held.append(in_place(array, found.address, found.count, self._dtype))
            if held[-1] is None:
                raise errors.StateError(
                    f"{op}: the memory of {path} has changed since set_buffers(); call set_buffers() with the new array",
                    op=f"bucket_reducer_{op}",
                )
        return held

    def clip(
        self,
        max_norm: Any = math.inf,
        *,
        scale: Any = 1.0,
        norm: Any = "two",
        shards: Optional[Communicator] = None,
        counted: Optional[Sequence[bool]] = None,
    ) -> float:
        """Scales the gradients of the last iteration, clips their norm, and returns that norm. Collective.

        All ranks get the same norm. If it is not finite, no gradient was changed: skip the step. The arrays that were
        marked ready must still exist.

        Args:
            max_norm: gradients are scaled down to this norm; infinite: no limit.
            scale: a factor that is applied first, such as 1 / loss scale.
            norm: "two" or 2, or "max" or infinity for the largest magnitude.
            shards: communicator of the ranks that hold the other parts of the model.
            counted: for each parameter, False if another rank of shards counts it, as for tied parameters.
        """
        options = _raw.ClipOptions()
        check(lib.dsc_clip_options_init(byref(options), ctypes.sizeof(options)))
        held = self._iteration.hold(self._dtype)  # keeps the arrays alive during the call
        options.max_norm, options.scale = real("max_norm", max_norm), real("scale", scale)
        options.norm = _dtypes.norm_code(norm)
        if shards is not None:
            expect_communicator("shards", shards)
            options.shards = shards._handle
        if counted is not None:
            if len(counted) != len(self._expected):
                raise ValueError(f"counted has {len(counted)} entries; expected {len(self._expected)}, one per parameter")
            options.counted = (c_uint8 * len(counted))(*(int(bool(each)) for each in counted))
        found = c_double()
        self._call(lib.dsc_bucket_reducer_clip, "clip", byref(options), byref(found))
        del held
        return found.value

    def set_hook(self, hook: Union[str, Hook, None]) -> None:
        """Sets a hook, which reduces buckets instead of the reducer's own all-reduce. Collective.

        Args:
            hook: one of these, or None for no hook:

                - The name of a built-in hook with its options, such as "bf16(powersgd(rank=4))". hooks() lists them.
                - A function of a Bucket. It is called with each bucket in launch order, and leaves the mean over all
                  ranks in bucket.buffer. It may return a Work; the mean is then valid when that has completed.
                - A generator function of a Bucket. It continues after each yielded Work has completed.
        """
        try:
            if hook is None or isinstance(hook, str):
                spec = None if hook is None else string("hook", hook)
                self._call(lib.dsc_bucket_reducer_use_hook, "use_hook", spec)
                self._hook_entry = None
                return
            if not callable(hook):
                raise TypeError(f"hook is a {type(hook).__name__}; expected a name, a function of a Bucket, or None")
            entry = HookEntry(hook)
            name = getattr(hook, "__qualname__", type(hook).__name__).encode()
            code = lib.dsc_bucket_reducer_set_hook(self._handle, entry.function, None, name)
            self._check(code, "set_hook")
            self._hook_entry = entry
        except Exception as error:
            raise shown(error)

    def _raise_hook_error(self) -> None:
        """Raises the exception of a hook, if that was the reason why a call of the library failed."""
        entry = self._hook_entry
        if entry is not None and entry.raised is not None and not entry.told:
            entry.told = True
            raise entry.raised

    def save_hook(self) -> bytes:
        """Returns the state of the built-in hook on this rank, for a checkpoint."""
        return save(self._handle)

    def load_hook(self, state: bytes) -> None:
        """Restores the state that save_hook() returned on the same rank, with the same parameters and buckets.

        Sizes are compared.
        """
        if not isinstance(state, (bytes, bytearray, memoryview)):
            raise TypeError(f"state is a {type(state).__name__}; expected the bytes of save_hook()")
        self._check(lib.dsc_bucket_reducer_load_hook(self._handle, bytes(state), len(state)), "load_hook")

    def stats(self) -> dict[str, Any]:
        """Returns statistics of the reducer and its latest iterations, with the names of PyTorch's DDP logging data.

        Times are in nanoseconds. docs/buckets.md explains each field.
        """
        try:
            found: dict[str, Any] = json.loads(text_of(lib.dsc_bucket_reducer_stats_json, self._handle))
            return found
        except errors.DscError as error:
            raise shown(error)

    def op_stats(self) -> list[OpStats]:
        """Returns the running totals of the reducer's operations."""
        return read_stats(lib.dsc_bucket_reducer_stats, self._handle)

    def draw(self) -> str:
        """Draws the last iteration as SVG.

        The picture shows when gradients were ready, when buckets were reduced, and which communication was not
        overlapped.
        """
        return text_of(lib.dsc_bucket_reducer_draw, self._handle)

    def _repr_html_(self) -> Optional[str]:
        """The picture of the last iteration, for notebooks."""
        try:
            return self.draw()
        except errors.DscError:  # there is none yet
            return None

    def _call(self, function: Any, op: str, *arguments: Any) -> None:
        """Calls a collective function of the library, which Ctrl-C ends."""
        self._check(_interrupt.call(self._stop, function, self._handle, *arguments), op)

    # Methods that BucketReducer overrides.

    def _check(self, code: int, op: str) -> None:
        raise NotImplementedError

    def _stop(self) -> None:
        raise NotImplementedError

    def _name(self, i: int) -> str:
        raise NotImplementedError

    def _index(self, i: int) -> int:
        raise NotImplementedError

    def _view_type(self, i: int) -> Any:
        raise NotImplementedError
