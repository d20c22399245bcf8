#!/usr/bin/env python3
"""Measures an all-reduce of f32 in a compiled program of JAX, with libdsc.jax and, if it is installed, with mpi4jax.

    dscrun -n 2 python bench/bench_jax.py                # only libdsc
    mpirun -n 2 python bench/bench_jax.py                # both, in turns in the same processes

`call` is a program with one all-reduce, which Python calls and waits for. `inside` is one of many all-reduces in a
compiled loop. Each number is the median of rounds, in which the libraries take turns; the slowest rank counts.
"""

import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import libdsc as dsc
import libdsc.jax as dj

SIZES = [4, 256, 4 << 10, 64 << 10, 1 << 20, 25 << 20]
ROUNDS = 15
ROUND_S = 0.05  # for one library and one size

try:
    import mpi4jax
    from mpi4py import MPI
except ImportError as error:
    print(f"mpi4jax is not measured: {error}", file=sys.stderr)
    mpi4jax = None


def programs(n):
    """Returns a compiled function for each library. It takes x and a number of repetitions. Its all-reduces are
    averages, so x does not change.
    """

    def by_libdsc(x):
        return dj.all_reduce(x, "avg")

    def by_mpi(x):
        return mpi4jax.allreduce(x, op=MPI.SUM, comm=MPI.COMM_WORLD) / n

    def many(one, turns):
        return lambda x: jax.lax.fori_loop(0, turns, lambda _, x: one(x), x)

    found = {"libdsc": lambda turns: dj.jit(many(by_libdsc, turns) if turns > 1 else by_libdsc)}
    if mpi4jax is not None:
        found["mpi4jax"] = lambda turns: jax.jit(many(by_mpi, turns) if turns > 1 else by_mpi)
    return found


def seconds_of(program, x, calls):
    begin = time.perf_counter()
    for _ in range(calls):
        x = program(x)
        x.block_until_ready()
    return (time.perf_counter() - begin) / calls


def measure(world, size, turns):
    """Returns the median seconds of one all-reduce for each library."""
    x = jnp.ones(size // 4, jnp.float32)
    compiled = {name: make(turns) for name, make in programs(world.size).items()}
    calls = {}
    for name, program in compiled.items():
        assert np.array_equal(program(x), x), name
        found = np.array([max(1, min(1000, ROUND_S / seconds_of(program, x, 3)))])
        world.broadcast(found)
        calls[name] = int(found[0])
    times = {name: [] for name in compiled}
    for _ in range(ROUNDS):
        for name, program in compiled.items():
            world.barrier()
            spent = np.array([seconds_of(program, x, calls[name])])
            world.all_reduce(spent, "max")
            times[name].append(spent[0] / turns)
    return {name: statistics.median(values) for name, values in times.items()}


def main():
    world = dsc.init_distributed()
    names = list(programs(world.size))
    if world.rank == 0:
        print(f"jax {jax.__version__}, {world.size} ranks, microseconds", *(f"{name:>16}" for name in names), sep="  ")
    for size in SIZES:
        for kind, turns in (("call", 1), ("inside", max(2, min(200, (1 << 22) // size)))):
            found = measure(world, size, turns)
            if world.rank == 0:
                print(f"{size:>10} B  {kind:<24}", *(f"{found[name] * 1e6:>16.1f}" for name in names), sep="  ", flush=True)
    dsc.finalize()


if __name__ == "__main__":
    main()
