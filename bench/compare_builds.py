#!/usr/bin/env python3
"""Compares the results of two builds of libdsc bit by bit, on inputs from a fixed seed.

    ./dev exec python3 bench/compare_builds.py OLD/libdsc.so NEW/libdsc.so

A refactoring must not change any bit. Every rank prints a checksum of the results of each case: reducers and hooks,
sharded parameters, rings, lists of tensors, and mappings of tensor parallelism, in host memory. The lines of both
builds are compared. The exit status is 1 if they differ.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

AVERAGES = ("pre", "post", "pytorch")
HOOKS = ("allreduce", "fp16", "bf16", "fp8", "int8", "onebit", "topk(ratio=0.1)", "powersgd(rank=2, start_iteration=1)")
TYPES = (np.float16, np.float32, np.float64)


def digest(*arrays) -> str:
    summed = hashlib.sha256()
    for array in arrays:
        summed.update(np.ascontiguousarray(array).tobytes())
    return summed.hexdigest()[:16]


def model(random, dtype) -> list:
    shapes = ((3,), (17, 9), (1,), (64, 33), (5000,), (7, 5, 3), (9001,))
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]


def gradients(params, rank: int, step: int, dtype=None) -> list:
    random = np.random.default_rng(1000 * rank + step)
    return [random.standard_normal(p.shape).astype(dtype or p.dtype) for p in params]


def reduced(world, params, average: str, hook, grad_dtype) -> str:
    import libdsc as dsc

    seen = []
    with dsc.BucketReducer(
        world, params, bucket_bytes=40_000, first_bucket_bytes=2_000, average=average, hook=hook, grad_dtype=grad_dtype
    ) as reducer:
        for step in range(4):
            grads = gradients(params, world.rank, step)
            if step == 2:
                with reducer.no_sync():
                    run_iteration(reducer, gradients(params, world.rank, 9), ())
            run_iteration(reducer, grads, (1, 4) if step == 1 else ())
            seen += grads
            if hook is None:
                norm = reducer.clip(1.5, scale=0.5) if step == 3 else reducer.clip(2.0, norm="max")
                seen += [np.array(norm), *grads]
    return digest(*seen)


def run_iteration(reducer, grads, accumulated) -> None:
    reducer.begin()
    for i in reversed(range(len(grads))):
        if i in accumulated:
            reducer.accumulate(i, grads[i] * 2)
        reducer.mark_ready(i, grads[i])
    reducer.finish()


def sharded(world, params, stage: int, average: str, grad_dtype, shard_size: int) -> str:
    import libdsc as dsc

    seen = []
    with dsc.Sharded(
        world, params, stage=stage, units=[0, 2, 4], average=average, grad_dtype=grad_dtype, shard_size=shard_size
    ) as shards:
        for step in range(3):
            for unit in range(3) if stage == 3 else ():
                shards.unshard(unit)
                shards.wait(unit)
                shards.reshard(unit)
            shards.begin(accumulate=step == 1)
            for i, grad in reversed(list(enumerate(gradients(params, world.rank, step)))):
                if i == 3:
                    shards.accumulate(i, grad)
                if i == 5:
                    shards.mark_unused(i)
                else:
                    shards.mark_ready(i, grad)
            shards.finish()
            if step == 1:
                norm = shards.clip(1.0, scale=0.25)
            for shard in shards.shards:
                seen.append(np.array(shard.grads))
                shard.params[...] -= (0.1 * np.asarray(shard.grads, dtype=np.float32)).astype(shard.params.dtype)
                seen.append(np.array(shard.params))
            if step != 0:
                shards.step_done()
    return f"{digest(*seen)}, norm {norm.hex()}"


def ring_pass(world, dtype) -> str:
    import libdsc as dsc

    random = np.random.default_rng(world.rank)
    block, sums, seen = random.standard_normal((11, 7)).astype(dtype), np.empty((11, 7), dtype), []
    with dsc.Ring(world, block.nbytes, block.nbytes) as ring:
        for _ in range(2):
            for source, held, grads in ring.backward(block, sums):
                grads += (held * (source + 1)).astype(dtype)
                seen.append(held.copy())
            seen.append(sums.copy())
    return digest(*seen)


def lists(world, dtype) -> str:
    arrays = gradients(model(np.random.default_rng(5), dtype), world.rank, 3)
    world.all_reduce_coalesced(arrays, "sum", buffer_bytes=30_000)
    more = gradients(arrays, world.rank, 4)
    world.broadcast_coalesced(more, 1, buffer_bytes=1)
    block = np.random.default_rng(world.rank).standard_normal((4, 500)).astype(dtype)
    parts = [block[0], block[1], block[3]]
    world.all_reduce_coalesced(parts, "max")
    return digest(*arrays, *more, *parts)


def cases(world):
    for dtype in TYPES:
        for average in AVERAGES:
            yield f"reducer {dtype.__name__} {average}", lambda d=dtype, a=average: reduced(
                world, model(np.random.default_rng(1), d), a, None, None
            )
        yield f"ring {dtype.__name__}", lambda d=dtype: ring_pass(world, d)
        yield f"lists {dtype.__name__}", lambda d=dtype: lists(world, d)
    for average in AVERAGES:
        for own, other in ((np.float16, np.float32), (np.float32, np.float16)):
            yield f"reducer {own.__name__} by {other.__name__} {average}", lambda a=average, o=own, n=other: reduced(
                world, model(np.random.default_rng(1), o), a, None, n
            )
    for hook in HOOKS:
        yield f"hook {hook}", lambda h=hook: reduced(world, model(np.random.default_rng(2), np.float32), "pre", h, None)
    for stage in (1, 2, 3):
        for average in ("pre", "post"):
            for dtype, grad_dtype in ((np.float32, None), (np.float64, None), (np.float16, np.float32)):
                for shard_size in (0, world.size // 2):
                    name = f"stage {stage} {average} {dtype.__name__} {shard_size}"
                    yield name, lambda s=stage, a=average, d=dtype, g=grad_dtype, n=shard_size: sharded(
                        world, model(np.random.default_rng(3), d), s, a, g, n
                    )


def record() -> None:
    import libdsc as dsc

    with dsc.init_distributed() as world:
        for name, run in cases(world):
            line = f"{name}, rank {world.rank}: {run()}"
            for rank in range(world.size):
                world.barrier()
                if rank == world.rank:
                    print(line, flush=True)


def lines_of(library: Path, ranks: int, hosts: int) -> list:
    environment = os.environ | {"DSC_LIBRARY": str(library.resolve())}
    environment.pop("LD_LIBRARY_PATH", None)
    launcher = os.environ.get("DSCRUN") or shutil.which("dscrun") or "dscrun"
    wrapped = [sys.executable, __file__, "--record"]
    if hosts > 1:  # simulates this number of hosts with equal numbers of ranks
        each = ranks // hosts
        names = f"DSC_HOST_ID=h$((RANK / {each})) GROUP_RANK=$((RANK / {each})) LOCAL_RANK=$((RANK % {each})) LOCAL_WORLD_SIZE={each}"
        wrapped = ["sh", "-c", f'export {names}; exec "$0" "$@"', *wrapped]
    ran = subprocess.run([launcher, "-n", str(ranks), "--", *wrapped], env=environment, capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"compare_builds: {library} failed on {ranks} ranks:\n{ran.stderr}")
    return sorted(line for line in ran.stdout.splitlines() if ": " in line)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="*", type=Path, metavar="LIBRARY", help="two builds of libdsc.so")
    parser.add_argument("--record", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.record:
        record()
        return 0
    if len(options.libraries) != 2:
        parser.error(f"{len(options.libraries)} libraries, expected 2")
    different = 0
    for ranks, hosts in ((2, 1), (4, 1), (4, 2)):
        old, new = (lines_of(library, ranks, hosts) for library in options.libraries)
        changed = [f"- {a}\n+ {b}" for a, b in zip(old, new) if a != b]
        print("\n".join(changed + [f"{ranks} ranks on {hosts} hosts: {len(old)} results, {len(changed)} differ"]))
        different += len(changed) + abs(len(old) - len(new))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
