"""One rank of a training loop with libdsc.jax in which one rank kills itself. See killed_rank.py."""

import sys
import time

import numpy as np

import libdsc as dsc
import libdsc.jax as dj
from killed_rank import kill_self, telling

VICTIM = int(sys.argv[1])

world = dsc.init_distributed(init_timeout=40, timeout=40)
step = dj.jit(lambda x: dj.all_reduce(x, "avg"))
x = np.ones(1000, np.float32)
for _ in range(3):
    x = step(x)
x.block_until_ready()
begin = time.monotonic()
if world.rank == VICTIM:
    kill_self()
with telling(lambda: time.monotonic() - begin):
    try:
        step(x).block_until_ready()
    except Exception as error:
        raise dj.failure_of(error) or error
