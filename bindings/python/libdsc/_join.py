"""Data-parallel training in which ranks have different numbers of batches."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int32, c_void_p
from typing import Any, Optional, Sequence, Union

from libdsc import _interrupt, _raw, errors
from libdsc._arguments import boolean, brief
from libdsc._library import OnlyOne, check, last_message, lib
from libdsc._reducer import BucketReducer
from libdsc._tensors import Tensors
from libdsc._tracebacks import shown
from libdsc._trees import flatten


class Join(OnlyOne):
    """Lets ranks run different numbers of iterations: ranks without batches take part with zeros until all are done.

        with dsc.Join(reducer, params=params):
            for batch in batches:  # the number of batches may differ between ranks
                reducer.begin()
                ...
                reducer.finish()

    Inside the block, begin() and sync_buffers() are collective. At the end of the block the rank has run out of
    batches. It then takes part in the operations of the other ranks. At last the parameters of the rank that finished
    last are copied to all ranks. After an exception in the block none of this happens.

    Args:
        reducers: one reducer, or several that run in each iteration.
        params: arrays, or a tree of them, usually the parameters. At the end they are copied from the rank that
            finished last to the others. None: nothing is copied.
        divide_by_initial_world_size: True: means are over all ranks, including those without batches. False: over the
            ranks that still have batches.
        throw_on_early_termination: True raises StateError on all ranks as soon as one has no more batches.
        dtype: the element type of params, such as "bf16".
    """

    __slots__ = ("_reducers", "_world", "_params", "_dtype", "_handle", "last_rank", "__weakref__")

    def __init__(
        self,
        reducers: Union[BucketReducer, Sequence[BucketReducer]],
        params: Any = None,
        *,
        divide_by_initial_world_size: bool = True,
        throw_on_early_termination: bool = False,
        dtype: Any = None,
    ) -> None:
        self._reducers = [reducers] if isinstance(reducers, BucketReducer) else list(reducers)
        if not self._reducers or not all(isinstance(r, BucketReducer) for r in self._reducers):
            raise TypeError(f"reducers is {brief(reducers)}; expected a BucketReducer, or a list of one or more BucketReducers")
        self._world, self._params, self._dtype = self._reducers[0]._world, params, dtype
        self.last_rank: Optional[int] = None
        self._tensors()  # checks params now, instead of at the end of training
        options = _raw.JoinOptions()
        check(lib.dsc_join_options_init(byref(options), ctypes.sizeof(options)))
        options.divide_by_initial = int(boolean("divide_by_initial_world_size", divide_by_initial_world_size))
        options.throw_on_early_end = int(boolean("throw_on_early_termination", throw_on_early_termination))
        handles = (c_void_p * len(self._reducers))(*(r._handle for r in self._reducers))
        join = c_void_p()
        self._world._call(lib.dsc_join_create, handles, len(self._reducers), byref(options), byref(join))
        self._handle = join.value or 0
        self._note(True)

    def finish(self) -> int:
        """Takes part in the other ranks' operations until all ranks have called it.

        Returns the rank that called it last.

        The end of a with block calls it.
        """
        try:
            last = c_int32()
            described = self._tensors()
            # Other ranks may still make the buffers equal, which writes to those of this rank.
            held = [reducer._hold_buffers("join_finish") for reducer in self._reducers]
            tensors, count = (None, 0) if described is None else (described.array, described.length)
            code = _interrupt.call(self._stop, lib.dsc_join_finish, self._handle, tensors, count, byref(last))
            del held
            if code < 0:
                self._fail(code, last_message())
            for reducer in self._reducers:
                reducer._carries = False
            self.last_rank = last.value
            return last.value
        except Exception as error:
            raise shown(error)

    def _tensors(self) -> Optional[Tensors]:
        if self._params is None:
            return None
        leaves = flatten(self._params, "params")
        return Tensors(self._world, [x for _, x in leaves], "params", self._dtype, True, None, [path for path, _ in leaves])

    def close(self) -> None:
        """Removes the reducers from the join. May be called twice."""
        handle, self._handle = self._handle, 0
        if handle:
            self._note(False)
            lib.dsc_join_destroy(handle)

    def _note(self, joined: bool) -> None:
        """Sets in each reducer whether ranks may run out of batches."""
        for reducer in self._reducers:
            reducer._joined = joined

    def __enter__(self) -> Join:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # at interpreter shutdown
            pass

    def __repr__(self) -> str:
        state = "" if self._handle else ", closed"
        return f"<libdsc.Join of {len(self._reducers)} reducers on {self._world.name!r}{state}>"

    def _stop(self) -> None:
        """Makes finish() return on all ranks, even while it takes part in operations of other ranks."""
        for reducer in self._reducers:
            reducer._stop()

    def _fail(self, code: int, text: str) -> None:
        for reducer in self._reducers:
            reducer._raise_hook_error()
        if code == _raw.Result.ERR_BAD_HANDLE:
            raise errors.StateError("finish: the join was closed", op="join_finish")
        self._world._fail(code, text, "join_finish")
