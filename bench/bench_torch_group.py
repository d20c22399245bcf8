"""Compares operations of torch.distributed over "dsc" and over gloo, in turn in the same processes.

dscrun -n 2 -- python3 bench/bench_torch_group.py [ROUNDS]

Prints microseconds per call, as medians of the rounds on rank 0.
"""

import os
import pathlib
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist

import libdsc as dsc
import libdsc.torch  # noqa: F401

SIZES = [4, 256, 16 << 10, 1 << 20, 25 << 20]
BYTES_PER_ROUND = 8 << 20
MOST_CALLS = 200


def all_gather(x, group, ranks):
    own = x.view(ranks, -1)[dist.get_rank()]
    dist.all_gather_into_tensor(x, own, group=group)


def reduce_scatter(x, group, ranks):
    dist.reduce_scatter_tensor(exchange.into[: x.numel() // ranks], x, group=group)


def exchange(x, group, ranks):
    rank = dist.get_rank()
    ops = [dist.P2POp(dist.isend, x, (rank + 1) % ranks, group), dist.P2POp(dist.irecv, exchange.into[: x.numel()], (rank - 1) % ranks, group)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


OPERATIONS = {
    "all_reduce": lambda x, group, ranks: dist.all_reduce(x, group=group),
    "broadcast": lambda x, group, ranks: dist.broadcast(x, 0, group=group),
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
    "send and receive": exchange,
    "barrier": lambda x, group, ranks: dist.barrier(group),
}


def measure(world, groups, call, x, rounds):
    """Returns median microseconds per call for each group."""
    calls = max(2, min(MOST_CALLS, BYTES_PER_ROUND // max(1, 4 * x.numel())))
    times = {name: [] for name in groups}
    for number in range(rounds + 1):
        for name, group in groups.items():
            x.fill_(1)
            world.barrier()
            start = time.perf_counter()
            for _ in range(calls):
                call(x, group, world.size)
            if number:
                times[name].append((time.perf_counter() - start) / calls * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    torch.set_num_threads(1)
    world = dsc.init_distributed()
    file = pathlib.Path(tempfile.gettempdir(), f"gloo-{os.getppid()}")
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=world.rank, world_size=world.size)
    groups = {"dsc": dist.new_group(backend="dsc"), "gloo": dist.group.WORLD}
    exchange.into = torch.empty(SIZES[-1] // 4)
    for operation, call in OPERATIONS.items():
        for size in SIZES if operation != "barrier" else SIZES[:1]:
            if size < 4 * world.size and operation in ("all_gather", "reduce_scatter"):
                continue
            found = measure(world, groups, call, torch.ones(size // 4), rounds)
            if world.rank == 0:
                line = f"{operation:17} {size:>9} B   dsc {found['dsc']:9.1f} us   gloo {found['gloo']:9.1f} us"
                print(f"{line}   {found['gloo'] / found['dsc']:5.1f} times", flush=True)
    dist.destroy_process_group()
    file.unlink(missing_ok=True)
    dsc.finalize()


if __name__ == "__main__":
    main()
