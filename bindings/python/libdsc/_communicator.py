"""Communicators: groups of ranks, and the operations on them."""

from __future__ import annotations

import ctypes
import json
import math
import weakref
from ctypes import byref, c_int32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, Sequence, TextIO, Union

from libdsc import _interrupt, _nonfinite, _pipe_run, _raw, _summary, _trace, errors
from libdsc._arguments import INT32, SIZE, Seconds, brief, integer, integers, member, milliseconds
from libdsc._arguments import optional_string, seconds_of
from libdsc._calls import op_name
from libdsc._expert_parallel import Experts
from libdsc._foreign import meant_member
from libdsc._library import check, give_settings, last_message, lib, list_of, text_of
from libdsc._pipe import PipeSchedule
from libdsc._pipe_arrays import Shape
from libdsc._sequence_heads import SequenceHeads
from libdsc._shared_memory import SharedArrays
from libdsc._tracebacks import shown
from libdsc._types import NonfiniteName
from libdsc._work import IN_PROGRESS, error_of

_known: weakref.WeakValueDictionary[int, Communicator] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class OpStats:
    """Running totals of one operation in one size class."""

    operation: str
    bytes_class: int
    count: int
    bytes: int
    waiting_ns: int
    moving_ns: int

    @property
    def op(self) -> str:
        """The operation's name, as exceptions spell it."""
        return self.operation


class Communicator(SequenceHeads, Experts, SharedArrays):
    """A group of ranks. Made by init_distributed(), split() and create_group(), never directly.

    All ranks must call its collective operations in the same order. An array is any object with the buffer protocol,
    ``__array_interface__``, ``__cuda_array_interface__`` or DLPack; it is used in place, never copied. Pass 16- and
    8-bit floats that numpy lacks as uint16 or uint8 arrays with ``dtype="bf16"`` and similar, or as ml_dtypes arrays.

    With ``async_op=True`` an operation returns a Work at once. The Work keeps the arrays alive; do not touch them until
    it has completed. Otherwise the call blocks until the result is ready, and returns None. Ctrl-C during the call
    aborts the communicator on all ranks.

    An op is "sum", "prod", "max", "min", "avg", "band", "bor" or "bxor", or comes from premul() or user_op().

    If the communicator is bound to a GPU, NCCL moves the arrays on that GPU. The call then returns as soon as the
    operation is queued on the stream. The argument stream is for such arrays: a number, or a stream of torch, CuPy or
    any object with __cuda_stream__. If it is not given, the operation uses the current stream of the first array's
    library, or the stream that the array names, or CUDA's default stream. Host memory has no streams.

    As a context manager it ends with finalize() and close(), or with abort() and close() after an exception.
    """

    __slots__ = ("_is_world", "__weakref__")

    def __init__(self, handle: int, is_world: bool = False) -> None:
        self._handle = handle
        self._batch, self._refused = None, None
        self._failure_told = self._failure_warned = False
        self._is_world, self._attached = is_world, {}
        self._rank = self._query(lib.dsc_comm_rank)
        self._size = self._query(lib.dsc_comm_size)
        self._device = self._query(lib.dsc_comm_device)
        self._name = text_of(lib.dsc_comm_name, handle)
        self._progress_thread = bool(self._query(lib.dsc_comm_progress_thread))
        _known[handle] = self

    if not TYPE_CHECKING:  # not for type checkers, which would accept any attribute

        def __getattr__(self, name: str) -> Any:
            """Raises AttributeError, with this package's name for a name of another library."""
            text = f"a Communicator has no attribute {name!r}"
            raise AttributeError(text + meant_member(name, dir(type(self))))

    def __repr__(self) -> str:
        state = "" if self._handle else ", closed"
        return f"<libdsc.Communicator {self.name!r}, rank {self._rank} of {self._size}{state}>"

    # ---- queries -----------------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """This process's number in the group, 0 to size - 1."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks in the group."""
        return self._size

    @property
    def local_rank(self) -> int:
        """This process's number among the ranks of the world that are on the same host."""
        return self._query(lib.dsc_comm_local_rank)

    @property
    def local_size(self) -> int:
        """The number of ranks of the world on this host."""
        return self._query(lib.dsc_comm_local_size)

    @property
    def backend(self) -> str:
        """"device" if bound to a GPU; otherwise "host" if all ranks are on one host, or "inter_host"."""
        return _raw.Backend(self._query(lib.dsc_comm_backend)).name.lower()

    @property
    def device(self) -> int | None:
        """The number of the GPU it is bound to, as CUDA numbers devices in this process; None if it has no GPU."""
        number = self._query(lib.dsc_comm_device)
        return None if number < 0 else number

    @property
    def id(self) -> int:
        """The number of this communicator: the same on all its ranks, and unique in the job. The world has number 0."""
        number = c_uint64()
        check(lib.dsc_comm_id(self._handle, byref(number)))
        return number.value

    @property
    def world_size(self) -> int:
        """The number of ranks of the world that this group belongs to."""
        return self._query(lib.dsc_comm_world_size)

    @property
    def master_addr(self) -> str:
        """The host where the ranks of a job on several hosts met at start-up; "127.0.0.1" in a job on one host."""
        return text_of(lib.dsc_comm_master_addr, self._handle)

    @property
    def master_port(self) -> int:
        """The port where the ranks met at start-up."""
        return self._query(lib.dsc_comm_master_port)

    @property
    def source(self) -> str:
        """Where start-up found rank and size of the world, such as "env" for the environment."""
        return text_of(lib.dsc_comm_source, self._handle)

    @property
    def start_report(self) -> str:
        """A text that says what start-up found and what was missing."""
        return text_of(lib.dsc_comm_start_summary, self._handle)

    @property
    def tuning(self) -> str:
        """The message sizes in bytes at which this communicator changes its algorithm, in the format of DSC_TUNING."""
        return text_of(lib.dsc_comm_tuning, self._handle)

    def environ(self) -> dict[str, str]:
        """Returns the environment variables of this communicator that other libraries read.

        They are RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT. The environment itself is
        not changed. Pass them to a process by ``subprocess.run(command, env=os.environ | world.environ())``.
        """
        found = {
            "RANK": self.rank,
            "WORLD_SIZE": self.size,
            "LOCAL_RANK": self.local_rank,
            "LOCAL_WORLD_SIZE": self.local_size,
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": self.master_port,
        }
        return {name: str(value) for name, value in found.items()}

    def global_rank(self, group_rank: int) -> int:
        """Translates a rank of this group into a rank of the world."""
        return self._query(lib.dsc_comm_global_rank, member("group_rank", group_rank, self._size))

    def group_rank(self, global_rank: int) -> Optional[int]:
        """Translates a rank of the world into a rank of this group; None if it is not a member."""
        rank = self._query(lib.dsc_comm_group_rank, integer("global_rank", global_rank))
        return None if rank < 0 else rank

    def error(self) -> Optional[errors.DscError]:
        """Returns the first failure; without one, a PeerStalledError for a rank it waits for; otherwise None."""
        info = self._error_info()
        return error_of(info, self) if info.code < 0 else None

    def stats(self) -> list[OpStats]:
        """Returns the running totals per operation and size class."""
        return read_stats(lib.dsc_comm_stats, self._handle)

    def _completed(self) -> int:
        return sum(row.count for row in self.stats()) if self._handle else 0

    def log_summary(self, show_straggler: bool = False, file: Optional[TextIO] = None) -> None:
        """Prints summary() on rank 0.

        Args:
            show_straggler: as in summary(). With True the call is collective.
            file: where rank 0 prints; standard output by default.
        """
        summary = self.summary(show_straggler)
        if self._rank == 0:
            print(summary, file=file)

    def summary(self, show_straggler: bool = False) -> _summary.Summary:
        """Returns a table of completed operations: count, latency and bandwidth by operation and size.

        It covers all open groups of this communicator's world. For each group it counts the completed operations in the
        flight recorder: the last 2,000, unless DSC_TRACE_BUFFER_SIZE says otherwise. A closed group has no record.

        Latency is the time from this rank's arrival to the end of the operation. Averages leave out the lowest and the
        highest tenth of the values. Units are those of DeepSpeed's communication logger: a KB is 1,024 bytes, and
        bandwidths are in 10**9 bits per second, computed with the group's size.

        Args:
            show_straggler: True adds the straggler time: how much longer each operation took on this rank than on the
                fastest rank of this communicator. With True the call is collective.

        Returns:
            A table as text, with its rows in ``.rows``.
        """
        return _summary.summary_of(self, show_straggler)

    # ---- flight recorder -----------------------------------------------------------------------------------------

    def trace(self) -> dict[str, Any]:
        """Returns the last operations of all groups of this world on this rank, with the field names of PyTorch's c10d.

        May be called from any thread, while another thread is in a call, and after a failure.
        """
        found: dict[str, Any] = json.loads(text_of(lib.dsc_trace_json, self._handle))
        return found

    def dump_trace(self, path: Optional[_trace.Path] = None) -> None:
        """Writes the trace to a file, by default DSC_TRACE_DIR/dsc_trace_rank_R.json (R: this rank in the world).

        It creates the folder of the file if it is missing.
        """
        _trace.dump_trace(self._handle, path)

    # ---- NaN and infinity --------------------------------------------------------------------------------------

    @property
    def nonfinite_check(self) -> NonfiniteName:
        """What happens if an input of a reduction is NaN or infinite. The default is "off".

        "off": nothing. "count": nonfinite() reports it. "fail": the reduction also raises NonfiniteError on all ranks;
        its result is available nevertheless. A new value applies to reductions that start afterwards, those of reducers
        included, and to groups made afterwards. Set the same value on all ranks.
        """
        return _nonfinite.get_check(self._handle)

    @nonfinite_check.setter
    def nonfinite_check(self, check: NonfiniteName) -> None:
        _nonfinite.set_check(self._handle, check)

    def nonfinite(self, clear: bool = False) -> _nonfinite.NonfiniteInputs:
        """Returns which inputs of reductions were NaN or infinite; clear=True resets the count."""
        return _nonfinite.read(self._handle, clear)

    # ---- pipeline ----------------------------------------------------------------------------------------------

    def pipe_run(
        self,
        schedule: PipeSchedule,
        *,
        forward: _pipe_run.Forward,
        backward: Optional[_pipe_run.Backward] = None,
        load_micro_batch: Optional[_pipe_run.Callback] = None,
        reduce_tied_grads: Optional[_pipe_run.Callback] = None,
        reduce_grads: Optional[_pipe_run.Callback] = None,
        optimizer_step: Optional[_pipe_run.Callback] = None,
        backward_input: Optional[_pipe_run.Backward] = None,
        backward_weight: Optional[_pipe_run.Backward] = None,
        inputs: Sequence[tuple[Shape, Any]] = (),
        outputs: Sequence[tuple[Shape, Any]] = (),
        stream: Any = None,
        variable_shapes: bool = False,
        memory: Any = None,
    ) -> float:
        """Runs a pipeline schedule once; rank s of this communicator is stage s. Collective.

        The callbacks compute; between them the library sends and receives. Each gets the instruction, as iterating over
        the schedule returns it. Arrays are passed as tuples of numpy arrays over the library's memory, one per tensor;
        a tuple may be empty. Their contents are valid from a micro-batch's forward pass to the end of its backward
        pass. Copy what you need longer. The memory of an array that you keep stays allocated, even after the schedule
        is gone, or after any rank runs with other shapes, on another communicator or with memory=.

        An exception in a callback ends the run on all ranks. It is raised here; the other ranks get CallbackError, and
        the communicator is revoked. Ctrl-C has the same effect.

        Args:
            schedule: the schedule of this stage.
            forward: forward(instruction, inputs, outputs) writes outputs and returns None. For the last part of the
                model there are no outputs, and it returns the loss of the micro-batch. In an inference schedule it may
                return None, which counts as 0.
            backward: backward(instruction, inputs, outputs, output_grads, input_grads) reads output_grads and
                writes input_grads. If there are any input_grads it returns None. A gradient of integers is None.
            load_micro_batch: f(instruction) loads inputs on the first stage and labels on the last. None: nothing.
            reduce_tied_grads: f(instruction) sums gradients of weights that stages share.
            reduce_grads: f(instruction) reduces gradients over data-parallel ranks.
            optimizer_step: f(instruction) updates the weights.
            backward_input: as backward; the half that writes input_grads.
            backward_weight: as backward; the half that computes gradients of weights.
            inputs: (shape, dtype) of each tensor that flows from one part of the model to the next; none on a stage
                that has only the first part. With chunks the first stage has other parts as well.
            outputs: likewise; none on a stage that has only the last part.
            stream: a stream of the GPU that this communicator is bound to. Callbacks then get arrays on the GPU,
                objects with __cuda_array_interface__, and queue their work on this stream. Work queued on it after this
                call runs after the pipeline. None: the arrays are numpy arrays.
            variable_shapes: inputs and outputs are the largest shapes. Forward sets the shape of an output by
                outputs[i] = array, which copies, or by y = outputs.resize(i, shape). All callbacks get arrays with the
                shapes of their micro-batch, which may have no elements. The number of dimensions is fixed. An output
                that forward neither assigns nor resizes keeps the largest shape and its contents.
            memory: a writable array of at least schedule.run_bytes() bytes, which holds all activations and gradients.
                Give it on all ranks or on none. None: the library allocates the memory.

        Returns:
            The mean loss of all micro-batches, on all ranks.
        """
        functions = {
            "load_micro_batch": load_micro_batch,
            "forward": forward,
            "backward": backward,
            "backward_input": backward_input,
            "backward_weight": backward_weight,
            "reduce_tied_grads": reduce_tied_grads,
            "reduce_grads": reduce_grads,
            "optimizer_step": optimizer_step,
        }
        return _pipe_run.run(self, schedule, functions, inputs, outputs, stream, variable_shapes, memory)

    # ---- groups and memory -------------------------------------------------------------------------------------

    def split(
        self,
        color: Optional[int],
        key: int = 0,
        name: Optional[str] = None,
        timeout: Optional[Seconds] = None,
        *,
        nccl_net_name: Optional[str] = None,
        nccl_min_ctas: int = 0,
        nccl_max_ctas: int = 0,
        stream_priority: int = 0,
    ) -> Optional[Communicator]:
        """Divides the communicator: ranks of one color form a group, ordered by key, then by rank.

        Collective. With color None this rank joins no group and gets None.

        Args:
            color, key: color is 0 to 2**31 - 1, or None; key is -2**31 to 2**31 - 1.
            name, timeout: name is shown in errors; timeout is the seconds that every operation may take, by default the
                parent's.
            nccl_net_name: the network plugin that NCCL uses for the group; by default NCCL chooses.
            nccl_min_ctas, nccl_max_ctas: bounds of the thread blocks of NCCL's operations; 0: NCCL chooses.
            stream_priority: of streams of operations with async_op: lower is more urgent, 0 the least urgent.
        """
        options = group_options(name, timeout, nccl_net_name, nccl_min_ctas, nccl_max_ctas, stream_priority)
        number = -1 if color is None else integer("color", color, 0, INT32[1], "0 to 2**31 - 1, or None")
        return self._make_group(lib.dsc_comm_split, (number, integer("key", key)), options)

    def adopt_nccl(self, nccl_comm: int, name: Optional[str] = None, timeout: Optional[Seconds] = None) -> Communicator:
        """Makes a group of the same ranks that uses your own NCCL communicator. Collective.

        Args:
            nccl_comm: the address in an ncclComm_t. It must have the same ranks, and be on the device that this
                communicator is bound to. The group takes its order of ranks. The program keeps ownership of it, and
                must keep it until the group is closed.
            name, timeout: as in split().
        """
        address = integer("nccl_comm", nccl_comm, 1, SIZE[1])
        made = self._make_group(lib.dsc_comm_adopt, (b"nccl", c_void_p(address)), group_options(name, timeout))
        assert made is not None
        return made

    def create_group(
        self,
        ranks: Sequence[int],
        name: Optional[str] = None,
        timeout: Optional[Seconds] = None,
        *,
        nccl_net_name: Optional[str] = None,
        nccl_min_ctas: int = 0,
        nccl_max_ctas: int = 0,
        stream_priority: int = 0,
    ) -> Optional[Communicator]:
        """Makes a group of the listed ranks, in that order. Collective: every rank passes the same list.

        A rank that is not listed gets None. The other arguments are as in split().
        """
        options = group_options(name, timeout, nccl_net_name, nccl_min_ctas, nccl_max_ctas, stream_priority)
        try:
            numbers = list(ranks)
        except TypeError:
            raise TypeError(f"ranks is {brief(ranks)}; expected a list of integers") from None
        listed = (c_int32 * len(numbers))(*integers("ranks", numbers, *INT32))
        return self._make_group(lib.dsc_comm_create_group, (listed, len(numbers)), options)

    def _make_group(
        self, function: Any, arguments: tuple[Any, ...], options: _raw.CommOptions
    ) -> Optional[Communicator]:
        group = c_void_p()
        self._call(function, *arguments, byref(options), byref(group))
        if group.value is None:
            return None
        _nonfinite.inherit(self._handle, group.value)
        return Communicator(group.value)

    # ---- after a failure ---------------------------------------------------------------------------------------

    def agree(self, flags: Union[bool, int]) -> Any:
        """Combines flags of all surviving ranks by bitwise AND; works after a failure too.

        Collective among the surviving ranks. All ranks that get a value get the same one, even if ranks die during the
        call. With a bool the result is a bool: whether all of them passed True. Ctrl-C ends the call; the other ranks
        then get RevokedError.

        If a surviving rank does not call it in time, all ranks get TimeoutError, with the missing ranks in .ranks. The
        call may be repeated.
        """
        is_bool = type(flags).__name__.startswith("bool")  # Python's or numpy's
        agreed = c_int32()
        self._recover(lib.dsc_comm_agree, integer("flags", int(flags) if is_bool else flags), byref(agreed))
        return bool(agreed.value & 1) if is_bool else agreed.value

    def shrink(self, name: Optional[str] = None, timeout: Optional[Seconds] = None) -> Communicator:
        """Returns a working communicator of the surviving ranks, in their old order.

        Collective among the surviving ranks. It works with or without an earlier failure, and also on a communicator
        that shrink() returned. The missing ranks are in .missing of this communicator, not of the new one, and are
        numbered as in this communicator. Arrays from empty() also move without copying on the new communicator. Close
        the old one when you no longer need it. finalize() of the world then waits for the ranks of the new one.
        """
        options = group_options(name, timeout)
        shrunk = c_void_p()
        self._recover(lib.dsc_comm_shrink, byref(options), byref(shrunk))
        assert shrunk.value is not None
        _nonfinite.inherit(self._handle, shrunk.value)
        return Communicator(shrunk.value)

    @property
    def missing(self) -> list[int]:
        """The ranks that were missing in the latest agree() or shrink(); the same on all ranks."""
        ranks: list[int] = list_of(c_int32, lib.dsc_comm_missing, self._handle)
        return ranks

    def _recover(self, function: Any, *arguments: Any) -> None:
        """Makes a call of agree() or shrink(). Its failure is not stored as that of the communicator."""
        code = _interrupt.call(self._stop, function, self._handle, *arguments)
        if code >= 0:
            return
        text = last_message()
        details = self._details(code, text) | {"op": op_name(function)}
        _interrupt.let_own_signal_come_after(text)
        raise errors.from_code(code, text, **details)

    # ---- life and failure --------------------------------------------------------------------------------------

    def set_timeout(self, seconds: Seconds) -> None:
        """Sets the time-out of operations started from now on. Set the same value on all ranks."""
        check(lib.dsc_comm_set_timeout(self._handle, milliseconds(seconds)))

    @property
    def timeout(self) -> float:
        """The time-out of operations started from now on, in seconds. Assigning to it calls set_timeout()."""
        return self._query(lib.dsc_comm_timeout) / 1000

    @timeout.setter
    def timeout(self, seconds: Seconds) -> None:
        self.set_timeout(seconds)

    def progress(self, timeout: Seconds = 0) -> bool:
        """Advances this rank's queued operations in all groups of the world, as the library's progress thread would.

        It is for programs with their own event loop and without that thread. Any thread may call it.

        Args:
            timeout: seconds to wait until an operation completes; the call may return earlier. 0: one round, no wait.

        Returns:
            True when no operation is left.
        """
        try:
            if not self._handle:
                self._fail(_raw.Result.ERR_BAD_HANDLE, "", "progress")
            slice_ms = _interrupt.SLICE_MS if _interrupt.on_main_thread() else 2**31 - 1  # lets signal handlers run
            timeout_ms = math.ceil(max(0, min(slice_ms, seconds_of(timeout) * 1000)))
            code = lib.dsc_comm_progress(self._handle, timeout_ms)
            check(code)
            return bool(code != IN_PROGRESS)
        except Exception as error:
            raise shown(error)

    def finalize(self) -> None:
        """Waits until all ranks have called it and all operations are done. Collective."""
        self._call(lib.dsc_comm_finalize)

    def close(self) -> None:
        """Releases the communicator; ranks that wait for this one get PeerLeftError. May be called twice."""
        handle, self._handle = self._handle, 0
        if handle:
            self._failure_told = True  # failures of operations that this call ends are not reported
            self._attached.clear()
            _nonfinite.forget(handle)
            lib.dsc_comm_destroy(handle)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if self._handle and kind is not None:
                self.abort()
            elif self._handle and not self._failure_told:  # a failure that the program has caught is not raised again
                self.finalize()
        finally:
            self.close()

    def __del__(self) -> None:
        try:
            if not self._is_world:  # only finalize() ends the world
                self.close()
        except Exception:  # at interpreter shutdown, or after a failed __init__
            pass


def communicator_of(handle: int, is_world: bool) -> Communicator:
    """Returns the only Communicator object of a handle."""
    return _known.get(handle) or Communicator(handle, is_world)


def read_stats(function: Any, handle: int) -> list[OpStats]:
    """Returns the totals that a function of the library reports."""
    return [
        OpStats(s.operation.decode(), s.bytes_class, s.count, s.bytes, s.waiting_ns, s.moving_ns)
        for s in list_of(_raw.OpStats, function, handle)
    ]


def group_options(
    name: Optional[str],
    timeout: Optional[Seconds],
    net_name: Optional[str] = None,
    min_ctas: int = 0,
    max_ctas: int = 0,
    priority: int = 0,
) -> _raw.CommOptions:
    options = _raw.CommOptions()
    check(lib.dsc_comm_options_init(byref(options), ctypes.sizeof(options)))
    options.name = optional_string("name", name)
    if timeout is not None:
        options.timeout_ms = milliseconds(timeout)
    bounds = {"nccl_min_ctas": min_ctas, "nccl_max_ctas": max_ctas}
    texts = {name: b"%d" % integer(name, number, 0) for name, number in bounds.items()}
    give_settings(options, {"nccl_net_name": optional_string("nccl_net_name", net_name), **texts})
    options.stream_priority = integer("stream_priority", priority)
    return options
