"""Measures how long the other ranks of a PyTorch job wait when one is killed or stopped, with "dsc" and with gloo.

    python torch_failures.py [--timeout SECONDS]

Three ranks sum a tensor repeatedly. Then rank 1 is killed, or it is stopped, as a debugger or a full disk might stop
it. Each line says after what time the others got an error, and which error. The time-out is that of the group: by
default 30 minutes in torch, and 20 seconds in this script.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

import libdsc.torch  # noqa: F401  # not needed if libdsc is installed, with torch 2.14 or newer

RANKS = 3


def train(rank, backend, store, timeout_s, started, results):
    dist.init_process_group(
        backend, init_method=f"file://{store}", rank=rank, world_size=RANKS, timeout=timedelta(seconds=timeout_s)
    )
    gradient = torch.ones(100_000)
    try:
        while True:
            dist.all_reduce(gradient)
            started.set()
    except RuntimeError as error:  # torch's DistBackendError is a RuntimeError
        results.put((time.time(), rank, str(error).splitlines()[0]))
    os._exit(0)  # like a trainer that is started again from its checkpoint


def run(backend, name, number, timeout_s):
    context = multiprocessing.get_context("spawn")
    started, results = context.Event(), context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (backend, f"{folder}/store", timeout_s, started, results)
        ranks = [context.Process(target=train, args=(rank, *arguments)) for rank in range(RANKS)]
        for process in ranks:
            process.start()
        started.wait()
        time.sleep(0.5)
        begin = time.time()
        os.kill(ranks[1].pid, number)
        for _ in range(RANKS - 1):
            at, rank, text = results.get()
            print(f"{backend:4} rank 1 {name}: rank {rank} after {at - begin:7.3f} s: {text[:170]}", flush=True)
        for process in ranks:
            process.kill()
            process.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--timeout", type=float, default=20.0, help="of the group, in seconds")
    timeout_s = parser.parse_args().timeout
    for name, number in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP)):
        for backend in ("dsc", "gloo"):
            run(backend, name, number, timeout_s)


if __name__ == "__main__":
    sys.exit(main())
