"""Reduces gradients in buckets during the backward pass."""

from __future__ import annotations

import ctypes
import operator
import sys
import threading
from ctypes import byref, c_size_t, c_void_p
from typing import Any, Iterable, NoReturn, Optional, Sequence

from libdsc import _buffers, _dtypes, _interrupt, _raw, errors
from libdsc._arguments import INT64_MOST, SIZE, Seconds, boolean, expect_communicator, integer, integers, milliseconds
from libdsc._buffers import DeviceMemory
from libdsc._library import OnlyOne, check, last_message, lib
from libdsc._carried import Carried
from libdsc._communicator import Communicator
from libdsc._iteration import Iteration
from libdsc._memory import DeviceArray, array_over, numpy_module
from libdsc._plan import bucket_lists
from libdsc._reducer_features import ReducerFeatures
from libdsc._tensors import Tensors, wait_for_data
from libdsc._tracebacks import shown
from libdsc._trees import Tree, flatten, is_writable, parameters_of, rebuild
from libdsc._streams import of_call, place_of
from libdsc._types import AverageLike, RebuildLike
from libdsc._write_mark import STALE, WriteMark

class _Handle(OnlyOne):
    """Owns a reducer of the library. Views also keep this object alive, so their memory survives close()."""

    __slots__ = ("value", "__weakref__")

    def __init__(self, value: int) -> None:
        self.value = value

    def __del__(self) -> None:
        try:
            lib.dsc_bucket_reducer_destroy(self.value)
        except Exception:  # at interpreter shutdown
            pass


class BucketReducer(ReducerFeatures):
    """Averages gradients over all ranks, in buckets, while later gradients are still being computed.

    All ranks make it together, with parameters of the same types and shapes. It checks them, plans the buckets and
    copies rank 0's parameters to the other ranks. An iteration consists of begin(), of mark_ready() for every parameter
    as soon as its gradient is ready, and of finish(). After finish() the gradients hold the average. close() is local.
    The memory of a view stays allocated until the last view is gone.

    Parameters and gradients may be on the GPU that the world is bound to. Calls then queue their work on streams, as
    operations do, and do not wait for the GPU. Work queued afterwards on the stream of finish() sees the averages. A
    failure that occurs later is raised by the next call. Do not change a gradient between mark_ready() and finish().

    Args:
        world: the communicator.
        params: arrays in forward order, or a tree of dicts, lists and tuples of arrays. A tree is flattened as in JAX,
            dicts by sorted key; the reducer can then be called with a tree of gradients.
        names: names of the parameters for messages; by default the paths in the tree.
        bucket_bytes: a bucket is closed when it holds this many bytes.
        first_bucket_bytes: the same for the bucket of the first parameters, which is launched last.
        average: "pre" (times 1/n, then summed), "post", "none", or "pytorch".
        sync: False leaves the parameters as they are.
        buckets: explicit lists of parameter indices in launch order, instead of the plan.
        single_first_bucket: True makes one bucket per type, as PyTorch does for its first iteration.
        find_unused: True: a parameter that is not marked before finish() has no gradient on this rank. unused() then
            returns the parameters without a gradient on any rank.
        static_graph: True: every iteration uses the same parameters, equally often. The first iteration counts the
            marks of each parameter and reduces at its end. Later ones treat a parameter as ready after that many marks.
        rebuild: when buckets are rebuilt in the order in which gradients become ready: "once" (after the first
            iteration), "repeated" (also when the order changes), or "never".
        small_bucket_first: True uses first_bucket_bytes in a rebuilt plan for the bucket that is launched first, as
            PyTorch does.
        grad_dtype: the element type of buckets and views, such as "f32" for parameters of bfloat16. The result is
            rounded once to the type of the gradients.
        sparse: indices of parameters with sparse gradients. Mark these with mark_sparse(); sparse() returns the
            results.
        coalesce_sparse: True: each index occurs once in a sparse result, with the sum of its rows. False: the result
            has the rows of all ranks one after another.
        buffers: arrays that are not parameters, for sync_buffers(); a tree of them is flattened.
        hook: replaces the all-reduce of buckets; see set_hook().
        dtype: the element type of all parameters and gradients, such as "bf16".
    """

    __slots__ = (
        "_world",
        "_dtype",
        "_owner",
        "_handle",
        "_expected",
        "_shapes",
        "_paths",
        "_elements",
        "_views",
        "_marks",
        "_finishing",
        "_names",
        "_memory",
        "_device",
        "_carries",
        "_carried",
        "_grad_dtype",
        "__weakref__",
    )

    def __init__(
        self,
        world: Communicator,
        params: Any,
        names: Optional[Sequence[str]] = None,
        bucket_bytes: int = 25 << 20,
        first_bucket_bytes: int = 1 << 20,
        average: AverageLike = "pre",
        sync: bool = True,
        buckets: Optional[Sequence[Sequence[int]]] = None,
        single_first_bucket: bool = False,
        dtype: Any = None,
        *,
        find_unused: bool = False,
        static_graph: bool = False,
        rebuild: RebuildLike = "once",
        small_bucket_first: bool = False,
        grad_dtype: Any = None,
        sparse: Sequence[int] = (),
        coalesce_sparse: bool = True,
        buffers: Any = None,
        hook: Any = None,
    ) -> None:
        expect_communicator("world", world)
        paths, arrays, names = parameters_of(params, names)
        tensors = Tensors(world, arrays, "params", dtype, boolean("sync", sync), names, paths)
        self._grad_dtype = 0 if grad_dtype is None else _dtypes.dtype_code(grad_dtype, "grad_dtype")
        options = _options(
            bucket_bytes=integer("bucket_bytes", bucket_bytes, *SIZE),
            first_bucket_bytes=integer("first_bucket_bytes", first_bucket_bytes, *SIZE),
            average=_dtypes.average_code(average),
            sync=boolean("sync", sync),
            single_first_bucket=boolean("single_first_bucket", single_first_bucket),
            find_unused=boolean("find_unused", find_unused),
            static_graph=boolean("static_graph", static_graph),
            rebuild=_dtypes.rebuild_code(rebuild),
            small_bucket_first=boolean("small_bucket_first", small_bucket_first),
            grad_dtype=self._grad_dtype,
            keep_sparse_rows=not boolean("coalesce_sparse", coalesce_sparse),
        )
        for i in integers("sparse", sparse, 0, max(0, tensors.length - 1)):
            tensors.array[i].expect_sparse = 1
        if buckets is not None:
            _set_buckets(options, buckets)
        reducer = c_void_p()
        if sync:
            wait_for_data(tensors)
        world._call(
            lib.dsc_bucket_reducer_create, tensors.array, tensors.length, byref(options), byref(reducer)
        )
        assert reducer.value is not None
        self._finds_unused, self._joined = bool(find_unused or static_graph), False
        self._keep(world, reducer.value, tensors, arrays, [path[len("params") :] for path in paths], names, dtype)
        if buffers is not None:
            self.set_buffers(buffers)
        if hook is not None:
            self.set_hook(hook)

    def _keep(
        self,
        world: Communicator,
        handle: int,
        tensors: Tensors,
        arrays: list[Any],
        paths: list[str],
        names: Optional[Sequence[str]],
        dtype: Any,
    ) -> None:
        """Stores what is known of the parameters, and sets the state before the first iteration."""
        self._world = world
        self._dtype = dtype
        self._owner: Optional[_Handle] = _Handle(handle)
        self._handle = handle
        self._expected = [(buffer.count, buffer.dtype) for buffer in tensors.buffers]
        self._shapes = [buffer.shape for buffer in tensors.buffers]
        self._elements = [getattr(x, "dtype", None) for x in arrays]
        self._paths = paths
        # A parameter on a GPU: calls use the current stream of its library (torch or CuPy). None for host memory.
        self._memory = tensors.memory
        self._device = world._device
        self._views: dict[int, Any] = {}
        self._marks: dict[int, WriteMark] = {}  # for the views that the program has got
        self._iteration = Iteration(0)
        self._finishing = threading.RLock()  # held inside finish()
        self._names = None if names is None else list(names)
        self._synced, self._carries, self._rebuilds = True, False, 0
        self._carried = Carried()
        self._elsewhere: list[int] = []
        self._untaken: set[int] = set()
        self._hook_entry: Any = None
        self._buffers: list[tuple[str, Any, _buffers.Buffer]] = []

    def __repr__(self) -> str:
        place = f"{len(self._expected)} parameters on {self._world.name!r}"
        return f"<libdsc.BucketReducer of {place}{'' if self._handle else ', closed'}>"

    def __call__(self, grads: Tree) -> Tree:
        """Averages a tree of gradients with the structure of params, in one iteration. Collective.

        Writable arrays get the average in place and are returned. For read-only arrays, such as JAX's, it returns new
        numpy arrays.
        """
        leaves = flatten(grads, "grads")
        self._expect_paths([path[len("grads") :] for path, _ in leaves])
        writable = []
        for i, (path, x) in enumerate(leaves):
            self._gradient(i, x, path, False)
            writable.append(is_writable(x, path, self._dtype))
            if not writable[i] and self._memory is not None:
                raise ValueError(f"{path} is read-only and on a GPU; expected a writable array")
        self.begin()
        for i in reversed(range(len(leaves))):  # in the order of the buckets
            if not writable[i]:
                self.accumulate(i, leaves[i][1])
            self.mark_ready(i, leaves[i][1] if writable[i] else None)
        self.finish()
        results = [x if writable[i] else self.grad_view(i, copy=True) for i, (_, x) in enumerate(leaves)]
        averaged: Tree = rebuild(grads, iter(results))
        return averaged

    def _expect_paths(self, paths: list[str]) -> None:
        """Raises ValueError unless a tree of gradients has the structure of the parameters."""
        for path in self._paths:
            if path not in paths:
                raise ValueError(f"grads{path} is missing; expected the same structure as params")
        if paths != self._paths:
            path = next(path for path in paths if path not in self._paths)
            raise ValueError(f"grads{path} has no counterpart in params; expected the same structure as params")

    def begin(self, *, stream: Any = None) -> None:
        """Starts an iteration.

        If the previous one is not finished, StateError names the parameters that were not marked.

        This invalidates the contents of gradient views. Zeros are kept, because a framework may add gradients to them.
        """
        try:
            self._require_world("begin")
            self._require_taken()
            self._require_sums()
            place = self._stream(None, stream)
            self._check(_interrupt.call(self._stop, lib.dsc_bucket_reducer_begin, self._handle, place), "begin")
            self._forget_moved_views()
            if self._iteration.open:  # the previous iteration ended without a result
                self._carries = False
            self._iteration = Iteration(len(self._expected))
            # Under no_sync() the views hold sums, to which this iteration may add.
            if self._carries:
                return
            self._carried = Carried()
            for mark in self._marks.values():
                mark.put()
        except Exception as error:
            raise shown(error)

    def accumulate(self, i: int, grad: Any, *, stream: Any = None) -> None:
        """Adds a gradient to the sum that this rank collects for parameter i, without marking it ready."""
        try:
            i, iteration = self._index(i), self._iteration
            self._require_world("accumulate")
            address, owner = self._gradient(i, grad, "grad", False)
            place = self._stream(owner, stream)
            self._check(lib.dsc_bucket_reducer_accumulate(self._handle, i, address, place), "accumulate")
            iteration.collect(i)
        except Exception as error:
            raise shown(error)

    def mark_ready(self, i: int, grad: Any = None, *, stream: Any = None) -> None:
        """Marks the gradient of parameter i as ready; the last one of a bucket starts its reduction.

        Args:
            i: index of the parameter.
            grad: an array like the parameter, or a flat one; finish() writes the average into it. None, or the
                parameter's grad_view(): the gradient is already in the view, and nothing is copied. With None, if
                nothing was written into the view since begin(), StateError says so (not on a GPU, where that is
                unknown).
            stream: the stream on which the gradient is computed.
        """
        try:
            # this reference to the iteration keeps its arrays alive during the call
            i, iteration = self._index(i), self._iteration
            self._require_world("mark_ready")
            if grad is None:
                self._require_written(i)
            address, owner = (None, None) if grad is None else self._gradient(i, grad, "grad", True)
            mark = self._marks.get(i)
            if mark is not None and mark.address == address and not self._carries and mark.voids():
                raise errors.StateError(
                    f"mark_ready: nothing was written into the gradient view of {self._name(i)} after begin(), which invalidates its "
                    "earlier contents; expected the gradient to be computed after begin()"
                )
            if self._carries and self._carried.adds_up(i, grad):
                raise errors.StateError(_twice(self._name(i), i))
            code = lib.dsc_bucket_reducer_mark_ready(self._handle, i, address, self._stream(owner, stream))
            if code < 0:
                self._fail(code, last_message(), "mark_ready")
            iteration.pending.discard(i)
            iteration.collected.discard(i)
            if address is not None:
                iteration.marked.append((grad, address, self._expected[i][0], owner))
                if not self._synced and (mark is None or mark.address != address):
                    self._carried.note(i, grad)
        except Exception as error:
            raise shown(error)

    def mark_unused(self, i: int) -> None:
        """Marks parameter i as having no gradient on this rank; the rank contributes zeros."""
        try:
            i, iteration = self._index(i), self._iteration
            self._require_world("mark_unused")
            self._check(lib.dsc_bucket_reducer_mark_unused(self._handle, i), "mark_unused")
            iteration.collected.discard(i)
        except Exception as error:
            raise shown(error)

    def grad_view(self, i: int, *, copy: bool = False) -> Any:
        """Returns a view of parameter i's gradient in its bucket, as a numpy array of the parameter's shape.

        A gradient that is computed in the view is never copied. After finish() the view holds the average, until the
        next begin(). Do not touch it between mark_ready() and finish().

        On a GPU it is an object with __cuda_array_interface__, for cupy.asarray() or torch.as_tensor(). bfloat16 and
        8-bit floats have the types of ml_dtypes if the program has imported it (jax does), and are unsigned integers
        otherwise.

        With copy=True the result is a new numpy array that the library does not write later. Give a copy to
        jax.device_put() and jax.numpy.asarray(): they may keep the given memory in an array that JAX treats as
        immutable.
        """
        try:
            i = self._index(i)
            self._require_world("grad_view")
            self._untaken.discard(i)
            if copy:
                return self._copy_of(i)
            view = self._views.get(i)
            if view is None:
                address = c_void_p()
                self._check(lib.dsc_bucket_reducer_grad_view(self._handle, i, byref(address)), "grad_view")
                place = (address.value or 0, self._shapes[i], self._view_type(i))
                on_host = self._memory is None
                view = array_over(*place, self._owner) if on_host else DeviceArray(*place, self._device, self._owner)
                self._views[i] = view
                if on_host:
                    self._mark_view(i, view, place[0])
            return view
        except Exception as error:
            raise shown(error)

    def _view_type(self, i: int) -> Any:
        """Returns numpy's element type of a view."""
        own = None if self._grad_dtype else self._elements[i]
        return _dtypes.view_type(self._grad_dtype or self._expected[i][1], own)

    def _copy_of(self, i: int) -> Any:
        """Returns a new array with the current gradient in the bucket."""
        if self._memory is not None:
            raise ValueError("copy is True; expected False for gradients on a GPU: copy the view with cupy.array()")
        numpy = numpy_module()
        copied = numpy.empty(self._shapes[i], self._view_type(i))
        place = copied.__array_interface__["data"][0]
        self._check(lib.dsc_bucket_reducer_read_grad(self._handle, i, place), "grad_view")
        return copied

    def finish(self, *, stream: Any = None) -> None:
        """Waits for all buckets and writes the averages into the gradients that were marked ready. Collective.

        If parameters were not marked, StateError names them. Ctrl-C aborts the world and closes the reducer.
        """
        try:
            self._require_world("finish")
            place = self._stream(None, stream)
            if not self._finishing.acquire(blocking=False):
                text = "finish: another thread is running finish()"
                raise errors.StateError(text, op="bucket_reducer_finish", group=self._world.name)
            try:
                self._finish(place)
            finally:
                self._finishing.release()
        except Exception as error:
            raise shown(error)

    def _finish(self, place: Optional[int]) -> None:
        """Ends the iteration if finish succeeds.

        After a failure, later calls may still write its arrays until begin().
        """
        # Keeps the arrays of the iteration alive during the call, even if another thread closes the reducer.
        iteration = self._iteration
        code = _interrupt.call(self._stop, lib.dsc_bucket_reducer_finish, self._handle, place)
        if code < 0:
            self._fail(code, last_message() + _collected_only(code, map(self._name, sorted(iteration.collected))), "finish")
        self._note_elsewhere(iteration.pending if self._synced else ())
        iteration.end()
        self._carries = not self._synced
        if self._carries:
            self._carried.note_sums(self._marks)

    def synchronize(self, timeout: Optional[Seconds] = None) -> bool:
        """Waits until the GPU has completed all finished iterations, and raises any failure.

        Returns False on a time-out.

        Call it before you rely on the results of the last iteration. With host memory there is nothing to wait for.
        """
        timeout_ms = -1 if timeout is None else milliseconds(timeout)
        code = _interrupt.call(self._stop, lib.dsc_bucket_reducer_synchronize, self._handle, timeout_ms)
        self._check(code, "synchronize")
        return bool(code != _raw.Result.IN_PROGRESS)

    @property
    def buckets(self) -> list[list[int]]:
        """The parameter indices of each bucket, in launch order."""
        n = len(self._expected)
        indices, starts, n_buckets = (c_size_t * n)(), (c_size_t * (n + 1))(), c_size_t()
        code = lib.dsc_bucket_reducer_buckets(self._handle, indices, starts, byref(n_buckets))
        self._check(code, "buckets")
        return bucket_lists(indices, starts, n_buckets.value)

    def close(self) -> None:
        """Closes the reducer on this rank. A running reduction is revoked on all ranks. May be called twice.

        The other ranks get PeerLeftError in the next call that needs this rank. Views that the program still has remain
        valid. A hook cannot close its own reducer: that raises ReentrantError.
        """
        code = lib.dsc_bucket_reducer_close(self._handle)
        if code == _raw.Result.ERR_REENTRANT:
            self._check(code, "close")
        self._views.clear()
        self._marks.clear()
        self._iteration = Iteration(0)
        self._handle, self._owner = 0, None

    def __enter__(self) -> BucketReducer:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()

    def _require_world(self, op: str) -> None:
        """Raises StateError if the world was finalized, because that also ended the reducer's group."""
        if self._world._is_world and not self._world._handle and self._handle:
            raise errors.StateError(f"{op}: the world was finalized, and this reducer with it", op=f"bucket_reducer_{op}")

    def _name(self, i: int) -> str:
        return f"parameter {i}" if self._names is None else f"{self._names[i]} (index {i})"

    def _mark_view(self, i: int, view: Any, address: int) -> None:
        """Marks a view, to detect later whether it was written. Starts now if parameter i has no gradient yet."""
        dtype = self._grad_dtype or self._expected[i][1]
        if view.size == 0 or dtype not in STALE:
            return
        mark = self._marks[i] = WriteMark(view, dtype, address)
        if i in self._iteration.pending and not self._carries:
            mark.put()

    def _require_written(self, i: int) -> None:
        """Raises StateError if mark_ready(i) would reduce a view to which no gradient was written."""
        if i not in self._iteration.pending or self._expected[i][0] == 0 or self._carries:
            return
        name = self._name(i)
        if i not in self._views:
            raise errors.StateError(
                f"mark_ready: {name} has no gradient; pass the gradient to mark_ready({i}, grad), or write it into grad_view({i})"
            )
        mark = self._marks.get(i)
        if mark is not None and mark.is_there():
            of_torch = (
                ". In PyTorch, zero_grad(set_to_none=True), the default, detaches p.grad from the view: call "
                f"mark_ready({i}, p.grad)"
            )
            raise errors.StateError(
                f"mark_ready: nothing was written into the gradient view of {name} since begin(). Call "
                f"mark_ready({i}, grad) if the gradient is in another array, or mark_unused({i}) if there is none"
                + (of_torch if "torch" in sys.modules else "")
            )

    def _gradient(self, i: int, x: Any, argument: str, writable: bool) -> tuple[int, Any]:
        """Locates a gradient.

        It must have the type of its parameter, and the parameter's shape or, if flat, its count.
        """
        address, count, code, owner = _buffers.locate(x, argument, self._dtype, writable)
        if isinstance(owner, DeviceMemory) != (self._memory is not None):
            found, place = ("a GPU", "the host") if self._memory is None else ("the host", "a GPU")
            raise ValueError(f"{argument} is in memory of {found}; expected memory of {place}, like the parameters")
        place_of(self._world, owner, None)
        if (count, code) != self._expected[i]:
            wanted, dtype = self._expected[i]
            got = f"{count} elements of {_raw.Dtype(code).name.lower()}"
            raise ValueError(f"{argument} has {got}; parameter {i} has {wanted} of {_raw.Dtype(dtype).name.lower()}")
        shape, expected = getattr(x, "shape", ()), self._shapes[i]
        # an array of one dimension is accepted for any shape
        if shape != expected and min(len(shape), len(expected)) > 1:
            raise ValueError(f"{argument} has shape {tuple(shape)}; parameter {i} has {expected}")
        return address, owner

    def _stream(self, owner: Any, stream: Any) -> Optional[int]:
        """Returns the stream of a call; None for host memory."""
        return of_call(self._memory, owner, stream)

    def _index(self, i: int) -> int:
        """Checks and returns the index of a parameter."""
        if not 0 <= integer("i", i, -INT64_MOST, INT64_MOST) < len(self._expected):
            raise IndexError(f"there is no parameter {i}; the number of parameters is {len(self._expected)}")
        return operator.index(i)

    def _stop(self) -> None:
        """Makes finish() return on all ranks."""
        self._world._stop()
        lib.dsc_bucket_reducer_close(self._handle)

    def _check(self, code: int, op: str) -> None:
        if code < 0:
            self._fail(code, last_message(), op)

    def _require_sums(self) -> None:
        """Raises StateError if a view was zeroed although it held the sum of iterations under no_sync()."""
        lost = self._carried.zeroed(self._marks) if self._carries else None
        if lost is not None:
            raise errors.StateError(
                f"begin: the gradient view of {self._name(lost)} was set to zero, which deleted the sum of the iterations under "
                "no_sync(). Views may be set to zero only after an iteration that was reduced. To continue without that "
                "sum, call begin() again"
            )

    def _fail(self, code: int, text: str, op: str) -> NoReturn:
        self._raise_hook_error()
        if code == _raw.Result.ERR_BAD_HANDLE:
            text = f"{op}: the reducer was closed"
        if code in (_raw.Result.ERR_PEER_LEFT, _raw.Result.ERR_TIMEOUT) and not self._joined:
            text += "; ranks that run out of batches early need `with libdsc.Join(reducer, params):` around the loop"
        self._world._fail(code, text, f"bucket_reducer_{op}")


def _twice(name: str, i: int) -> str:
    """Returns the error for an array that was marked under no_sync(), and was added to without being zeroed."""
    return (
        f"mark_ready: the array of {name} still contains the gradient that was marked under no_sync(). The reducer already "
        "has that gradient, and would add it a second time. Set the array to zero before each iteration. If it was "
        f"overwritten and contains only the new gradient, call accumulate({i}, grad)"
    )


def _collected_only(code: int, names: Iterable[str]) -> str:
    """Returns text for an error of finish(), if gradients were accumulated but never marked ready."""
    listed = ", ".join(names)
    if code != _raw.Result.ERR_STATE or not listed:
        return ""
    return f"\n  accumulated, but not marked ready: {listed}; call mark_ready() after the last accumulate() of a parameter"


def _options(**values: int) -> _raw.BucketReducerOptions:
    """Returns the default options of C, changed by the given values."""
    options = _raw.BucketReducerOptions()
    check(lib.dsc_bucket_reducer_options_init(byref(options), ctypes.sizeof(options)))
    for name, value in values.items():
        setattr(options, name, int(value))
    return options


def _set_buckets(options: _raw.BucketReducerOptions, buckets: Sequence[Sequence[int]]) -> None:
    flat = [n for b, bucket in enumerate(buckets) for n in integers(f"buckets[{b}]", bucket, *SIZE)]
    starts = [0]
    for bucket in buckets:
        starts.append(starts[-1] + len(bucket))
    options.bucket_indices = (c_size_t * max(1, len(flat)))(*flat)
    options.bucket_starts = (c_size_t * len(starts))(*starts)
    options.n_buckets = len(buckets)
