"""The operations of a process group of torch, under the names that torch's own code calls.

Tensors are moved and reduced in place. They are copied only if libdsc lacks their type (_elements.py), or if they are
in a list, which is sent as one tensor.
"""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from typing import Any, Callable, ContextManager, Optional, Sequence

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from libdsc import errors
from libdsc._communicator import Communicator
from libdsc.torch import _lists, _messages, _profile, _sparse, _watch
from libdsc.torch._elements import Finish, as_output, movable, op_of, put_back, read, reducible, written
from libdsc.torch._errors import Error, translated
from libdsc.torch._group import LEAST, NONE_SET, Coalesced, Group, with_timeout
from libdsc.torch._work import Completed, Work

Tensors = Sequence[Tensor]
Begin = Callable[[Communicator, bool], Any]  # starts an operation; the flag asks for a Work
CPU = torch.device("cpu")
WITHOUT = nullcontext()


class _Defaults:
    """Default values of torch's option structs, for calls without one."""

    reduceOp = ReduceOp.SUM
    rootRank = 0
    timeout = NONE_SET
    asyncOp = True
    device_ids: Sequence[int] = ()


def _options(given: Any, **named: Any) -> Any:
    """Returns torch's struct of options, or a struct of defaults with the arguments that the caller passed separately.
    """
    if given is not None and hasattr(given, "asyncOp"):
        return given
    options = _Defaults()
    for name, value in named.items():
        if value is not None:
            setattr(options, name, value)
    return options


def _list(tensors: Any) -> Any:
    return [tensors] if isinstance(tensors, Tensor) else tensors


class Operations:
    """All operations of a Group. The two classes that torch uses derive from it."""

    _group: Group
    _inbox: _messages.Inbox

    # ---- running an operation ------------------------------------------------------------------------------------

    def _run(self, name: str, options: Any, tensors: Tensors, begins: Sequence[Begin], result: Any, finish: Finish = None) -> Any:
        """Starts operations and returns torch's Work for them. Waits for them if torch's options say so."""
        if torch.autograd._profiler_enabled():
            with _profile.event(f"{self._group.label}:{name}", tensors):
                return self._start(options, tensors, begins, result, finish)
        return self._start(options, tensors, begins, result, finish)

    def _start(self, options: Any, tensors: Tensors, begins: Sequence[Begin], result: Any, finish: Finish) -> Any:
        group = self._group
        try:
            with group.lock:
                comm = group.communicator(tensors[0].device if tensors else CPU)
                with _timeout_of(options, group, comm):
                    if not (options.asyncOp or group.may_not_block()):
                        for begin in begins:
                            begin(comm, False)
                        if finish is not None:
                            finish()
                        return Completed(result)
                    work = Work([begin(comm, True) for begin in begins], result, group.name, finish)
        except errors.DscError as error:
            raise translated(error, group.name) from error
        if group.coalesced is not None:
            group.coalesced.add(work)
        if not options.asyncOp or finish is not None and tensors[0].is_cuda:
            # On a GPU only the stream waits, not the caller. The finishing function is then queued on the stream.
            work.wait()
        elif finish is not None:
            # Completes the work on another thread, because the program may drop it and look only at the tensor.
            _watch.watch(work, torch.futures.Future())
        return work

    def start_coalescing(self, device: Any = None) -> None:
        """Collects the operations that this thread starts, until end_coalescing().

        Each operation starts immediately and has its own Work, so an exception between the two calls loses nothing.
        """
        self._group.coalesced = Coalesced()

    def end_coalescing(self, device: Any = None) -> Any:
        """Returns one Work for all operations started since start_coalescing()."""
        coalesced, self._group.coalesced = self._group.coalesced, None
        if coalesced is None:
            raise RuntimeError("end_coalescing() was called without start_coalescing()")
        works = coalesced.works
        parts = [part for work in works for part in work.parts()]
        return Work(parts, None, self._group.name, _all_of([_ending(work) for work in works]))

    # ---- operations with the same result on all ranks ------------------------------------------------------------

    def allreduce(self, tensors: Any, opts: Any = None, timeout: Optional[timedelta] = None, op: Any = None) -> Any:
        """Combines the tensors of all ranks. Sparse tensors are summed."""
        tensors = _list(tensors)
        options = _options(opts, reduceOp=opts if op is None else op, timeout=timeout)
        if len(tensors) == 1:
            tensor = tensors[0]
            if tensor.layout != torch.strided:
                return self.allreduce_sparse(tensors, options)
            op = op_of(options.reduceOp)
            whole = written(tensor, "tensor")
            reduced = reducible(whole, op)
            begins = [lambda comm, async_op: comm.all_reduce(reduced, op, async_op=async_op)]
            return self._run("all_reduce", options, tensors, begins, tensors, put_back(whole, reduced))
        return self.allreduce_coalesced(tensors, options)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Any:
        """Like allreduce(), with several tensors of any types."""
        options = _options(opts, reduceOp=opts)
        op = op_of(options.reduceOp)
        wholes = [written(tensor, "tensors") for tensor in tensors]
        arrays = [reducible(whole, op) for whole in wholes]
        finish = _all_of([put_back(whole, array) for whole, array in zip(wholes, arrays)])
        begins = [_all_reduce_of(array, op) for array in arrays]
        return self._run("all_reduce", options, tensors, begins, tensors, finish)

    def allreduce_sparse(self, tensors: Tensors, opts: Any = None) -> Any:
        """Adds up sparse tensors in COO form; each tensor gets the sum, coalesced."""
        options = _options(opts)
        kind = getattr(options.reduceOp, "op", options.reduceOp)
        if kind not in (ReduceOp.SUM, ReduceOp.AVG):
            raise ValueError(f"the reduce operation of sparse tensors is {options.reduceOp}; expected SUM or AVG")
        self._group.expect_no_background("all_reduce of sparse tensors")
        try:
            with self._group.lock:
                for tensor in tensors:
                    _sparse.all_reduce(self._group.communicator(tensor.device), tensor, kind == ReduceOp.AVG)
        except errors.DscError as error:
            raise translated(error, self._group.name) from error
        return Completed(tensors)

    def broadcast(self, tensors: Any, opts: Any = None, timeout: Optional[timedelta] = None, root: Any = None) -> Any:
        """Copies the root's tensors to all ranks."""
        tensors = _list(tensors)
        options = _options(opts, rootRank=opts if root is None else root, timeout=timeout)
        root = options.rootRank
        begins = [_broadcast_of(movable(written(tensor, "tensor")), root) for tensor in tensors]
        return self._run("broadcast", options, tensors, begins, tensors)

    def barrier(self, opts: Any = None, timeout: Optional[timedelta] = None) -> Any:
        """Waits until all ranks have called it. With a GPU, also waits until the work on its current stream is done.

        The GPU is the one in device_ids, or the first GPU that the group has used. If there is neither, it is a barrier
        on the host, even if the machine has GPUs.
        """
        options = _options(opts, timeout=opts if timeout is None else timeout)
        named = list(options.device_ids or self._group.devices)[:1]
        tensors = [torch.empty(0, device=torch.device("cuda", number)) for number in named]
        stream = torch.cuda.current_stream(tensors[0].device) if tensors else None
        begins = [lambda comm, async_op: comm.barrier(async_op, stream=stream)]
        work = self._run("barrier", options, tensors, begins, [])
        if stream is not None and not options.asyncOp:
            stream.synchronize()
        return work

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """Like barrier(). The error always names every rank that did not arrive in time, for any wait_all_ranks."""
        given = getattr(timeout, "timeout", timeout)  # torch's C++ code passes a struct of options
        limit = self._group.timeout if given is None or given == NONE_SET else max(given, LEAST)
        self._group.expect_no_background("monitored_barrier()")
        try:
            with self._group.lock:
                self._group.host.monitored_barrier(limit)
        except errors.TimeoutError as error:
            ranks = f"Rank{'s' if len(error.ranks) > 1 else ''} {', '.join(map(str, error.ranks))}"
            text = f"{ranks} failed to pass monitoredBarrier in {limit.total_seconds() * 1000:.0f} ms: {error}"
            raise Error(text, error) from error
        except errors.DscError as error:
            raise translated(error, self._group.name) from error

    # ---- gather --------------------------------------------------------------------------------------------------

    def allgather(self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: Any = None) -> Any:
        """Gathers the tensors of all ranks into one list per tensor; ranks may have different sizes."""
        if isinstance(input_tensors, Tensor):
            output_tensors, input_tensors = [output_tensors], [input_tensors]
        options = _options(opts, timeout=timeout)
        joined = [_lists.outputs(outs) for outs in output_tensors]
        begins = [_all_gather_of(out.array, x, **out.uneven()) for out, x in zip(joined, input_tensors)]
        return self._run("all_gather", options, input_tensors, begins, output_tensors, _all_of([out.finish for out in joined]))

    def allgather_coalesced(self, output_lists: Any, input_list: Tensors, opts: Any = None) -> Any:
        """Like allgather() of several tensors; here torch passes one list per rank."""
        return self.allgather([list(outs) for outs in zip(*output_lists)], input_list, opts)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None, timeout: Any = None) -> Any:
        """Gathers the tensors of all ranks into one, in rank order."""
        return self.all_gather_single_coalesced([output], [input], _options(opts, timeout=timeout))

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """Like all_gather_single(), with several tensors."""
        begins = [_all_gather_of(movable(as_output(out, "output")), x) for out, x in zip(outputs, inputs)]
        return self._run("all_gather", _options(opts), inputs, begins, outputs)

    def gather(
        self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: Any = None, root: Any = None
    ) -> Any:
        """Gathers the tensors of all ranks into a list on the root."""
        if isinstance(input_tensors, Tensor):
            output_tensors, input_tensors = [output_tensors], [input_tensors]
        options = _options(opts, rootRank=opts if root is None else root, timeout=timeout)
        root = options.rootRank
        joined = [_lists.outputs(outs) for outs in output_tensors] if self._group.rank == root else [_lists.NONE] * len(input_tensors)
        begins = [_gather_of(out.array, x, root) for out, x in zip(joined, input_tensors)]
        return self._run("gather", options, input_tensors, begins, output_tensors, _all_of([out.finish for out in joined]))

    def gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        """Gathers the tensors of all ranks into one on the root."""
        options = _options(opts)
        out = movable(as_output(output, "output")) if self._group.rank == options.rootRank else None
        return self._run("gather", options, [input], [_gather_of(out, input, options.rootRank)], [output])

    # ---- scatter -------------------------------------------------------------------------------------------------

    def scatter(
        self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: Any = None, root: Any = None
    ) -> Any:
        """Sends to each rank its tensor of the root's list."""
        if isinstance(output_tensors, Tensor):
            output_tensors, input_tensors = [output_tensors], [input_tensors]
        options = _options(opts, rootRank=opts if root is None else root, timeout=timeout)
        root = options.rootRank
        is_root = self._group.rank == root
        begins = [
            _scatter_of(out, _lists.inputs(input_tensors[index]).array if is_root else None, root)
            for index, out in enumerate(output_tensors)
        ]
        return self._run("scatter", options, output_tensors, begins, output_tensors)

    def reduce(
        self, tensors: Any, opts: Any = None, op: Any = None, timeout: Any = None, root: Any = None
    ) -> Any:
        """Combines the tensors of all ranks; the root gets the result."""
        tensors = _list(tensors)
        options = _options(opts, rootRank=opts if root is None else root, reduceOp=op, timeout=timeout)
        op, root = op_of(options.reduceOp), options.rootRank
        wholes = [written(tensor, "tensor") for tensor in tensors]
        arrays = [reducible(whole, op) for whole in wholes]
        finish = None
        if self._group.rank == root:
            finish = _all_of([put_back(whole, array) for whole, array in zip(wholes, arrays)])
        return self._run("reduce", options, tensors, [_reduce_of(array, root, op) for array in arrays], tensors, finish)

    def reduce_scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: Any = None, op: Any = None) -> Any:
        """Combines lists of tensors; each rank gets one tensor. Ranks may have different sizes."""
        if isinstance(output_tensors, Tensor):
            output_tensors, input_tensors = [output_tensors], [input_tensors]
        options = _options(opts, reduceOp=opts if op is None else op, timeout=timeout)
        return self._reduce_scatter(output_tensors, input_tensors, options)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None, timeout: Any = None) -> Any:
        """Combines the tensors of all ranks; each rank gets its part."""
        return self._reduce_scatter([output], [input], _options(opts, timeout=timeout))

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """Like reduce_scatter_single(), with several tensors."""
        return self._reduce_scatter(outputs, inputs, _options(opts))

    def _reduce_scatter(self, outputs: Tensors, inputs: Any, options: Any) -> Any:
        op = op_of(options.reduceOp)
        wholes = [as_output(out, "output") for out in outputs]
        arrays = [reducible(whole, op) for whole in wholes]
        finish = _all_of([put_back(whole, array) for whole, array in zip(wholes, arrays)])
        begins = [_reduce_scatter_of(array, x, op) for array, x in zip(arrays, inputs)]
        return self._run("reduce_scatter", options, outputs, begins, outputs, finish)

    # ---- all to all ----------------------------------------------------------------------------------------------

    def alltoall(self, output_tensors: Tensors, input_tensors: Tensors, opts: Any = None, timeout: Any = None) -> Any:
        """Sends tensor r of each rank's list to rank r."""
        out, x = _lists.outputs(output_tensors), _lists.inputs(input_tensors)
        counts = {} if x.counts is None else {"send_counts": x.counts, "recv_counts": out.counts}
        begins = [lambda comm, async_op: comm.all_to_all(out.array, x.array, async_op=async_op, **counts)]
        return self._run("all_to_all", _options(opts, timeout=timeout), output_tensors, begins, output_tensors, out.finish)

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Sequence[int] = (),
        input_split_sizes: Sequence[int] = (),
        opts: Any = None,
        timeout: Any = None,
    ) -> Any:
        """Sends part r of each rank's tensor to rank r. Parts are equal, or the split sizes give their rows."""
        out, x = movable(as_output(output, "output")), movable(read(input, "input"))
        counts: dict[str, Any] = {}
        if output_split_sizes or input_split_sizes:
            counts["send_counts"] = _counts(input, x, input_split_sizes, self._group.size, "input")
            counts["recv_counts"] = _counts(output, out, output_split_sizes, self._group.size, "output")
        begins = [lambda comm, async_op: comm.all_to_all(out, x, async_op=async_op, **counts)]
        return self._run("all_to_all", _options(opts, timeout=timeout), [output], begins, [output])

    # ---- messages ------------------------------------------------------------------------------------------------

    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> Any:
        """Sends a tensor to one rank; asynchronous. _messages.py explains tags."""
        return self._message("send", _messages.send, read(_only(tensors), "tensor"), tensors, dst, tag)

    def recv(self, tensors: Tensors, src: int, tag: int = 0) -> Any:
        """Receives a tensor from one rank; asynchronous."""
        return self._message("recv", self._inbox.recv, as_output(_only(tensors), "tensor"), tensors, src, tag)

    def _message(self, name: str, start: Any, whole: Tensor, tensors: Tensors, peer: int, tag: int) -> Any:
        if torch.autograd._profiler_enabled():
            with _profile.event(f"{self._group.label}:{name}", tensors):
                return self._start_message(start, whole, tensors, peer, tag)
        return self._start_message(start, whole, tensors, peer, tag)

    def _start_message(self, start: Any, whole: Tensor, tensors: Tensors, peer: int, tag: int) -> Any:
        group = self._group
        try:
            with group.lock:
                works, check = start(group.communicator(whole.device), movable(whole), peer, tag)
        except errors.DscError as error:
            raise translated(error, group.name) from error
        work = Work(works, tensors, group.name, check=check)
        if group.coalesced is not None:
            group.coalesced.add(work)
        return work

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Any:
        """Receives a tensor from any source: the rank that sends first. Asynchronous; for host memory."""
        whole = as_output(_only(tensors), "tensor")
        if whole.device.type != "cpu" or self._group.coalesced is not None:
            raise NotImplementedError("receiving from any source on a GPU, or in a batch, is not supported; pass src=")
        try:
            with self._group.lock:
                return self._inbox.recv_any(movable(whole), tensors, tag)
        except errors.DscError as error:
            raise translated(error, self._group.name) from error

    # ---- older names of torch ------------------------------------------------------------------------------------

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    gather_into_tensor = gather_single
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single


# ---- functions that start one operation --------------------------------------------------------------------------


def _all_reduce_of(array: Tensor, op: Any) -> Begin:
    return lambda comm, async_op: comm.all_reduce(array, op, async_op=async_op)


def _broadcast_of(array: Tensor, root: int) -> Begin:
    return lambda comm, async_op: comm.broadcast(array, root, async_op=async_op)


def _reduce_of(array: Tensor, root: int, op: Any) -> Begin:
    return lambda comm, async_op: comm.reduce(array, root, op, async_op=async_op)


def _all_gather_of(out: Any, x: Tensor, **counts: Any) -> Begin:
    given = movable(read(x, "input"))
    return lambda comm, async_op: comm.all_gather(out, given, async_op=async_op, **counts)


def _gather_of(out: Any, x: Tensor, root: int) -> Begin:
    given = movable(read(x, "input"))
    return lambda comm, async_op: comm.gather(out, given, root, async_op=async_op)


def _scatter_of(out: Tensor, given: Any, root: int) -> Begin:
    array = movable(as_output(out, "output"))
    return lambda comm, async_op: comm.scatter(array, given, root, async_op=async_op)


def _reduce_scatter_of(out: Tensor, x: Any, op: Any) -> Begin:
    if isinstance(x, Tensor):
        given = reducible(read(x, "input"), op)
        return lambda comm, async_op: comm.reduce_scatter(out, given, op, async_op=async_op)
    joined = _lists.join([reducible(read(part, "input"), op) for part in x])
    return lambda comm, async_op: comm.reduce_scatter(out, joined.array, op, async_op=async_op, **joined.uneven())


def _timeout_of(options: Any, group: Group, comm: Communicator) -> ContextManager[None]:
    """Sets the time-out of the options for operations in its block, if the caller has set one for this call."""
    return WITHOUT if options.timeout == NONE_SET else with_timeout(group, comm, options.timeout)


def _only(tensors: Tensors) -> Tensor:
    if len(tensors) != 1:
        raise ValueError(f"{len(tensors)} tensors are given; expected one tensor")
    return tensors[0]


def _all_of(finishes: Sequence[Finish]) -> Finish:
    """Returns a function that calls all these functions; None if there is nothing to call."""
    given = [finish for finish in finishes if finish is not None]
    if not given:
        return None

    def finish_all() -> None:
        for finish in given:
            finish()

    return finish_all


def _ending(work: Work) -> Finish:
    """Returns a function that completes a work, and raises its failure."""

    def end() -> None:
        work.wait()

    return end


def _counts(tensor: Tensor, array: Tensor, sizes: Sequence[int], ranks: int, argument: str) -> list[int]:
    """Returns the number of elements for each rank: the rows given by the split sizes, or equal parts."""
    rows = tensor.shape[0] if tensor.dim() else 0
    if not sizes:
        if rows % ranks:
            raise ValueError(f"{argument} has {rows} rows; expected a multiple of {ranks}, or split sizes")
        sizes = [rows // ranks] * ranks
    if len(sizes) != ranks:
        raise ValueError(f"{argument} has {len(sizes)} split sizes; expected {ranks}, one per rank")
    if sum(sizes) != rows:
        raise ValueError(f"the split sizes of {argument} add up to {sum(sizes)}; expected {rows}, the number of its rows")
    row = array.numel() // rows if rows else 0
    return [size * row for size in sizes]
