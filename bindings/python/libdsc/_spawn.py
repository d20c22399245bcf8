"""Starts ranks as new processes of a Python program, for notebooks and tests."""

from __future__ import annotations

import collections.abc
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import time
import traceback
from typing import Any, Callable, Optional, Sequence

from libdsc._arguments import Seconds, brief, integer, seconds_of

START_METHODS = ("spawn", "forkserver")
END_S = 5.0
NAME = "libdsc rank"  # the name of a process, followed by its rank
EXIT_UNGUARDED = 113  # exit code of a process that called spawn() while it was importing the script
UNGUARDED = (
    "each new process runs the program's script again, up to the call of spawn(); put the code of the script under "
    '`if __name__ == "__main__":`'
)
BY_VALUE = (
    "a function or class that is defined in a notebook, in the interactive interpreter, with python -c or inside another "
    "function needs the package cloudpickle: `pip install cloudpickle`, or define it in a module"
)

CALL = "fn and args cannot be sent to other processes"
RESULT = "the result of fn cannot be sent to the caller"


class SpawnError(RuntimeError):
    """A process of spawn() failed; ``rank`` is its rank."""

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(f"rank {rank} {text}")
        self.rank = rank


def spawn(
    fn: Callable[..., Any], n: int, args: Sequence[Any] = (), timeout: Optional[Seconds] = None, start_method: str = "spawn"
) -> list[Any]:
    """Runs fn(rank, *args) in n fresh processes and returns the list of their results.

    Each process has RANK, WORLD_SIZE and the other variables in its environment, so init_distributed() without
    arguments joins them. Each process first imports the program's script, so a script must call spawn() under
    ``if __name__ == "__main__":``. fn and its result must be picklable; a function from a notebook cell needs
    cloudpickle.

    If a process raises, the others are ended and the exception is raised here. Its cause is a SpawnError, which names
    the rank.

    Args:
        fn: called as fn(rank, *args).
        n: the number of processes, 1 or more.
        args: further arguments.
        timeout: seconds after which all processes are ended and TimeoutError is raised.
        start_method: "spawn" starts an interpreter for each process. "forkserver" forks them from a server process of
            multiprocessing, which has imported the modules of multiprocessing.set_forkserver_preload(); later calls
            then start in a fraction of the time. fn has the caller's environment. But modules that the server has
            imported saw the environment, limits and output at the start of the server. Random generators that they
            created, such as numpy's global one, have the same state in all processes, so seed them by rank.
    """
    if integer("n", n) < 1:
        raise ValueError(f"n is {n}; expected the number of processes, 1 or more")
    seconds = None if timeout is None else seconds_of(timeout)
    if isinstance(args, (str, bytes)) or not isinstance(args, collections.abc.Iterable):
        raise TypeError(f"args is {brief(args)}; expected a tuple of the arguments of fn, such as (x,)")
    if start_method not in START_METHODS:
        raise ValueError(f"""start_method is {brief(start_method)}; expected one of {', '.join(f'"{name}"' for name in START_METHODS)}""")
    _expect_guarded()
    _expect_script()
    context: Any = multiprocessing.get_context(start_method)
    job_id = f"spawn-{os.getpid()}-{time.monotonic_ns()}"
    call = _pickle((fn, tuple(args)))
    inherited = dict(os.environ) if start_method == "forkserver" else None  # the server's environment may be older
    processes: list[Any] = []
    pipes: list[Any] = []
    succeeded = False
    try:
        for rank in range(n):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_run, args=(rank, n, job_id, call, theirs, inherited), name=f"{NAME} {rank}")
            _start(process, start_method)
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        results = _collect(processes, pipes, seconds)
        succeeded = True
        return results
    finally:
        _end(processes, END_S if succeeded else 0.0)


def _start(process: Any, start_method: str) -> None:
    try:
        process.start()
    except (EOFError, ConnectionError) as error:  # fork servers of newer Python versions import the script themselves
        if start_method == "spawn":
            raise
        ended = "the fork server of multiprocessing ended; this happens if the script calls spawn() when the server imports it: "
        raise RuntimeError(ended + UNGUARDED) from error


def is_importing_script() -> bool:
    """Whether this process was started by multiprocessing and is still importing the program's script."""
    return bool(getattr(multiprocessing.current_process(), "_inheriting", False))


def _expect_script() -> None:
    """Raises RuntimeError if new processes could not import the script."""
    path = getattr(sys.modules["__main__"], "__file__", None)  # None: there is no script to import
    if path is not None and not os.path.exists(path):
        raise RuntimeError(f"spawn() is called in a program without a file ({path}), so other processes cannot run this program")


def _expect_guarded() -> None:
    """Ends this process if its script calls spawn() without a guard. The parent process reports the error."""
    if not is_importing_script():
        return
    if multiprocessing.current_process().name.startswith(NAME):
        if sys.stdout:
            sys.stdout.flush()
        # Every other way to exit would get another exit code in a child of a fork server.
        os._exit(EXIT_UNGUARDED)
    raise RuntimeError("spawn() is called while a process of multiprocessing imports the script: " + UNGUARDED)


def _cloudpickle() -> Any:
    """Returns the package cloudpickle, or None if it is not installed."""
    try:
        import cloudpickle  # type: ignore[import]
    except ImportError:
        return None
    return cloudpickle


def _pickle(value: Any, what: str = CALL) -> bytes:
    """Pickles a value, with cloudpickle if it is installed. Only cloudpickle can pickle functions of a notebook."""
    by_value = _cloudpickle()
    try:
        return bytes(by_value.dumps(value)) if by_value else pickle.dumps(value)
    except Exception as error:
        raise _not_carried(error, by_value is not None, what) from error


def _not_carried(error: Exception, by_value: bool, what: str = CALL) -> pickle.PicklingError:
    """Returns the error for a value that cannot be sent to another process, with advice."""
    advice = "" if by_value else "; " + BY_VALUE
    return pickle.PicklingError(f"{what}: {error}{advice}")


def _run(rank: int, n: int, job_id: str, call: bytes, results: Any, inherited: Optional[dict[str, str]]) -> None:
    """The main function of each process."""
    if inherited is not None:
        os.environ.clear()
        os.environ.update(inherited)
    numbers = {"RANK": rank, "WORLD_SIZE": n, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": n}
    os.environ.update({name: str(number) for name, number in numbers.items()}, DSC_JOB_ID=job_id)
    try:
        fn, args = _unpickle(call)
        message = _pickle((True, fn(rank, *args)), RESULT)
    except BaseException as error:
        of_fn = error.__traceback__ and error.__traceback__.tb_next  # the traceback without this function's frame
        text = "raised\n" + "".join(traceback.format_exception(type(error), error, of_fn))
        message = pickle.dumps((False, (None, text)))
        # If the exception cannot be pickled, or would end a process, only its text is sent.
        with contextlib.suppress(Exception):
            if isinstance(error, Exception):
                with_error = pickle.dumps((False, (error, text)))
                pickle.loads(with_error)
                message = with_error
    results.send_bytes(message)
    results.close()


def _unpickle(call: bytes) -> Any:
    try:
        return pickle.loads(call)
    except Exception as error:
        raise _not_carried(error, _cloudpickle() is not None) from error


def _collect(processes: list[Any], pipes: list[Any], timeout: Optional[float]) -> list[Any]:
    """Receives the results in the order of their arrival, so that the first failure is the one reported."""
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
    if exit_code == EXIT_UNGUARDED:
        return "called spawn() itself: " + UNGUARDED
    if exit_code is not None and exit_code < 0:
        hint = "; set PYTHONFAULTHANDLER=1 to print the Python stack" if exit_code == -signal.SIGSEGV else ""
        return f"was killed by {signal.Signals(-exit_code).name}{hint}"
    return f"ended with exit code {exit_code} and without a result"


def _end(processes: list[Any], patience: float) -> None:
    """Ends all processes: waits for a while, then sends SIGTERM, then SIGKILL."""
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
