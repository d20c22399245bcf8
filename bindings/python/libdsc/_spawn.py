"""Ranks as fresh processes of one Python program, for notebooks and tests."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import time
import traceback
from typing import Any, Callable, Optional, Sequence

from libdsc._arguments import Seconds, integer, seconds_of

END_S = 5.0


class SpawnError(RuntimeError):
    """A process of spawn() failed; ``rank`` says which one."""

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(f"rank {rank} {text}")
        self.rank = rank


def spawn(fn: Callable[..., Any], n: int, args: Sequence[Any] = (), timeout: Optional[Seconds] = None) -> list[Any]:
    """Runs fn(rank, *args) in n fresh processes and returns the list of their results.

    Each process finds RANK, WORLD_SIZE and the like in its environment, so init_distributed() without arguments
    joins them. fn and what it returns must be picklable; a function from a notebook cell needs cloudpickle
    installed. When one process raises, the others are ended and the exception is raised here, with a SpawnError that
    names the rank as its cause.

    Args:
        fn: called as fn(rank, *args).
        n: the number of processes, 1 or more.
        args: further arguments.
        timeout: seconds until all are ended and TimeoutError is raised.
    """
    if integer("n", n) < 1:
        raise ValueError(f"n is the number of processes, 1 or more; got {n}")
    seconds = None if timeout is None else seconds_of(timeout)
    context = multiprocessing.get_context("spawn")
    job_id = f"spawn-{os.getpid()}-{time.monotonic_ns()}"
    call = _pickle((fn, tuple(args)))
    processes: list[Any] = []
    pipes: list[Any] = []
    succeeded = False
    try:
        for rank in range(n):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_run, args=(rank, n, job_id, call, theirs), name=f"rank {rank}")
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        results = _collect(processes, pipes, seconds)
        succeeded = True
        return results
    finally:
        _end(processes, END_S if succeeded else 0.0)


def _pickle(call: Any) -> bytes:
    """By value where cloudpickle is installed, which alone can carry a function out of a notebook."""
    try:
        import cloudpickle  # type: ignore[import]
    except ImportError:
        return pickle.dumps(call)
    return bytes(cloudpickle.dumps(call))


def _run(rank: int, n: int, job_id: str, call: bytes, results: Any) -> None:
    """What each process does."""
    numbers = {"RANK": rank, "WORLD_SIZE": n, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": n}
    os.environ.update({name: str(number) for name, number in numbers.items()}, DSC_JOB_ID=job_id)
    try:
        fn, args = pickle.loads(call)
        message = pickle.dumps((True, fn(rank, *args)))
    except BaseException as error:
        text = "raised\n" + traceback.format_exc()
        try:
            message = pickle.dumps((False, (error, text)))
            pickle.loads(message)
        except Exception:  # this exception cannot travel, its text can
            message = pickle.dumps((False, (None, text)))
    results.send_bytes(message)
    results.close()


def _collect(processes: list[Any], pipes: list[Any], timeout: Optional[float]) -> list[Any]:
    """Takes the results in the order in which they come, so that the first failure is the one reported."""
    results: list[Any] = [None] * len(pipes)
    waiting = {pipe: rank for rank, pipe in enumerate(pipes)}
    end = None if timeout is None else time.monotonic() + timeout
    while waiting:
        left = None if end is None else max(0.0, end - time.monotonic())
        ready = multiprocessing.connection.wait(list(waiting), left)
        if not ready:
            raise TimeoutError(f"ranks {sorted(waiting.values())} did not end within {timeout} s")
        for pipe in ready:
            rank = waiting.pop(pipe)
            results[rank] = _receive(rank, pipe, processes[rank])
    return results


def _receive(rank: int, pipe: Any, process: Any) -> Any:
    try:
        succeeded, value = pickle.loads(pipe.recv_bytes())
    except EOFError:
        process.join(END_S)
        raise SpawnError(rank, _ending(process.exitcode)) from None
    if succeeded:
        return value
    error, text = value
    cause = SpawnError(rank, text)
    if error is None:
        raise cause
    raise error from cause


def _ending(exit_code: Optional[int]) -> str:
    if exit_code is not None and exit_code < 0:
        return f"was ended by {signal.Signals(-exit_code).name}"
    return f"ended with exit code {exit_code} and without a result"


def _end(processes: list[Any], patience: float) -> None:
    """Leaves no process behind: waits for a while, then sends SIGTERM, then SIGKILL."""
    _join(processes, patience)
    for process in processes:
        process.terminate()
    _join(processes, END_S)
    for process in processes:
        if process.exitcode is None:
            process.kill()
            process.join()
        process.close()


def _join(processes: list[Any], seconds: float) -> None:
    end = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
