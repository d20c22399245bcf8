"""Starts ranks of a torch process group as children of the test, which do not need to import torch again."""

import faulthandler
import os
import pickle
import tempfile
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

torch.set_num_threads(1)

LIMIT_S = 60  # the time limit of a job on a busy machine


class Failed(AssertionError):
    """A rank raised, ended early, or did not finish in time."""


def run(size, body, *arguments, backend="dsc", hosts=None, timeout_s=60, lost=()):
    """Runs body(rank, *arguments) on `size` ranks that have joined. Returns the results by rank.

    hosts: the simulated host of each rank (DSC_HOST_ID). lost: ranks that are expected to die.
    """
    with tempfile.TemporaryDirectory(prefix="dsc-ranks-") as folder:
        children = [_start(folder, rank, size, body, arguments, backend, hosts, timeout_s) for rank in range(size)]
        try:
            _wait({child: rank for rank, child in enumerate(children)}, lost)
            failures = [_failure(folder, rank) for rank in range(size) if rank not in lost]
            if any(failures):
                raise Failed("\n".join(filter(None, failures)))
            return [None if rank in lost else _result(folder, rank) for rank in range(size)]
        finally:
            for child in children:
                _kill(child)


def _start(folder, rank, size, body, arguments, backend, hosts, timeout_s):
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        faulthandler.dump_traceback_later(0.8 * LIMIT_S)
        if hosts is not None:
            os.environ["DSC_HOST_ID"] = f"host{hosts[rank]}"
        result = _joined(folder, rank, size, body, arguments, backend, timeout_s)
        _keep(folder, rank, (True, result))
        status = 0
    except BaseException:
        _keep(folder, rank, (False, traceback.format_exc()))
    finally:
        os._exit(status)


def _keep(folder, rank, outcome):
    """Writes the result file of a rank. The file appears only when it is complete."""
    with open(f"{folder}/{rank}.part", "wb") as file:
        pickle.dump(outcome, file)
    os.rename(f"{folder}/{rank}.part", f"{folder}/{rank}")


def _joined(folder, rank, size, body, arguments, backend, timeout_s):
    if backend is not None:
        dist.init_process_group(
            backend, init_method=f"file://{folder}/store", rank=rank, world_size=size, timeout=timedelta(seconds=timeout_s)
        )
    result = body(rank, *arguments)
    if dist.is_initialized():
        dist.destroy_process_group()
    return result


def _wait(left, lost):
    """Waits until all ranks have ended, or until a rank has failed unexpectedly, because others may wait for it."""
    end = time.monotonic() + LIMIT_S
    while left:
        for child, rank in list(left.items()):
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                del left[child]
                if status and rank not in lost:
                    return
        if time.monotonic() > end:
            raise Failed(f"ranks {sorted(left.values())} did not end within {LIMIT_S} s")
        time.sleep(0.002)


def _failure(folder, rank):
    """Returns what a rank raised. Returns None also for a rank that was still running."""
    if not os.path.exists(f"{folder}/{rank}"):
        return None
    is_good, result = _result_file(folder, rank)
    return None if is_good else f"rank {rank}: {result}"


def _result(folder, rank):
    if not os.path.exists(f"{folder}/{rank}"):
        raise Failed(f"rank {rank} ended without a result")
    return _result_file(folder, rank)[1]


def _result_file(folder, rank):
    with open(f"{folder}/{rank}", "rb") as file:
        return pickle.load(file)


def _kill(child):
    try:
        if os.waitpid(child, os.WNOHANG) == (0, 0):
            os.kill(child, 9)
            os.waitpid(child, 0)
    except ChildProcessError:
        pass  # the process has ended and was reaped
