"""Calls that a type checker must accept, and must refuse on lines that end in "error".

The file is checked but never run.
"""

from datetime import timedelta
from typing import Any

import numpy as np

import libdsc as dsc

world = dsc.init_distributed("inter_host", timeout=timedelta(minutes=1))
x = np.zeros(3)


def good(flag: bool, tree: dict[str, list[Any]]) -> None:
    world.all_reduce(x, "max", async_op=True).wait(timedelta(seconds=1))
    world.broadcast(x, 0, async_op=True).wait()
    world.barrier(async_op=True).wait(1.5)
    world.recv(bytearray(3), 1, async_op=True).test()
    world.all_gather([x, x], x, async_op=True).wait()
    maybe = world.all_reduce(x, async_op=flag)
    if maybe is not None:
        maybe.wait()
    with dsc.premul(0.5) as half:
        world.all_reduce(x, half)
    world.all_reduce(x, dsc.Op.SUM, out=np.empty(3))
    averaged: dict[str, list[Any]] = dsc.average_gradients(world, tree)
    again: dict[str, list[Any]] = dsc.BucketReducer(world, averaged)(averaged)
    del again
    dsc.BucketReducer(world, [x], average="none", rebuild="never")
    dsc.Sharded(world, [x], stage=3, layout="partitioned", average="post")
    world.nonfinite_check = "fail"
    everything: dict[str, list[Any]] = world.broadcast_tree(world.average_gradients(averaged), 1)
    del everything
    world.gather(None, x, counts=[3, 4])
    world.send_object(world.all_reduce_object(2, "max"), 1)
    dsc.TimeoutError("", rank=0)


def bad() -> None:
    world.all_reduce(x, "summ")  # error
    world.all_reduce([1.0, 2.0])  # error
    world.all_reduce(x, 3)  # error
    world.all_reduce(x).wait()  # error
    world.broadcast("text")  # error
    world.send(1.0, 0)  # error
    dsc.init_distributed(backend="mpi")  # error
    dsc.init_distributed("openmpi")  # error
    world.set_timeout("1 s")  # error
    dsc.BucketReducer(world, [x], average="mean")  # error
    dsc.BucketReducer(world, [x], rebuild="always")  # error
    dsc.Sharded(world, [x], stage=4)  # error
    dsc.Sharded(world, [x], layout="fsdp")  # error
    world.nonfinite_check = "warn"  # error
    world.allreduce(x)  # error
    world.broadcast(x, src=0)  # error
    world.all_reduce_object(2, "mean")  # error
