#!/usr/bin/env python3
"""Trains on GPUs, with arrays of CuPy or torch in device memory. If there is no GPU for every rank, it does the same on
the host.

    dscrun -n 2 -- python3 13_device.py
"""

import importlib

import numpy as np

import libdsc as dsc

ROWS, WEIGHTS, STEPS, RATE = 256, 8, 60, 0.5


def find_library():
    """Returns CuPy or torch if it is installed and finds a GPU. Otherwise returns None and the reason."""
    seen = []
    for name, count in ("cupy", lambda m: m.cuda.runtime.getDeviceCount()), ("torch", lambda m: m.cuda.device_count()):
        try:
            module = importlib.import_module(name)
            if count(module) > 0:
                return module, ""
            seen.append(f"{name}: no GPU")
        except Exception as error:  # not installed, or no driver
            seen.append(f"{name}: {error}")
    return None, "; ".join(seen)


def start_world():
    """Returns the world, and a function that makes arrays in the world's memory."""
    module, reason = find_library()
    try:
        # The ranks cannot count the GPUs themselves, because each may see its own GPU as device 0.
        world = dsc.init_distributed(backend="device")
    except dsc.DscError as error:  # on all ranks
        reason = reason or str(error)
    else:
        have_arrays = np.array([module is not None], np.uint8)
        world.all_reduce(have_arrays, op="min")
        if have_arrays[0]:
            if module.__name__ == "cupy":
                module.cuda.Device(world.device).use()
                return world, module.asarray
            return world, lambda values: module.as_tensor(values, device=f"cuda:{world.device}")
        reason = reason or "another rank has neither CuPy nor torch that sees a GPU"
        dsc.finalize()
    world = dsc.init_distributed(backend="host")
    if world.rank == 0:
        print("falls back to the host engine:", " ".join(reason.split()))  # in one line
    return world, np.asarray


world, array = start_world()

# Every rank has its own rows of one linear problem, and all ranks search the same weights.
wanted = np.arange(WEIGHTS) / WEIGHTS
rows = np.random.default_rng(world.rank).standard_normal((ROWS, WEIGHTS))
x, y, weights = array(rows), array(rows @ wanted), array(np.zeros(WEIGHTS))

for step in range(STEPS):
    error = x @ weights - y
    gradient = x.T @ error / ROWS
    # On a GPU, the all-reduce is ordered after the product on the current stream, and the program does not wait for
    # the device.
    work = world.all_reduce(gradient, op="avg", async_op=True)
    squares = (error * error).sum()  # computed meanwhile
    work.wait()  # on a GPU, only the current stream waits
    weights = weights - RATE * gradient

off = max(abs(float(weight) - right) for weight, right in zip(weights, wanted))  # float() waits for the device
assert off < 1e-3, off
where = "host memory" if world.device is None else f"device {world.device}"
print(f"rank {world.rank}: weights found in {where}, by the {world.backend} backend; sum of squares {float(squares):.1e}")
dsc.finalize()
