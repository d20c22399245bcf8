#!/usr/bin/env python3
"""Messages around a ring. A send completes only when its receiver has called recv. Therefore both directions are
started before either of them is waited for.

    dscrun -n 4 -- python3 07_send_recv.py
"""

import sys

import numpy as np

import libdsc as dsc

world = dsc.init_distributed()
if world.size < 2:
    sys.exit("a ring needs two ranks or more: dscrun -n 4 -- python3 07_send_recv.py")
following, previous = (world.rank + 1) % world.size, (world.rank - 1) % world.size

outgoing = np.full(1000, world.rank)
incoming = np.empty_like(outgoing)
seen = 0
for hop in range(1, world.size):  # the received values are sent on to the next rank
    receiving = world.irecv(incoming, previous)
    sending = world.isend(outgoing, following)
    receiving.wait()
    sending.wait()
    assert (incoming == (world.rank - hop) % world.size).all()
    seen += incoming[0]
    outgoing[:] = incoming

print(f"rank {world.rank}: {world.size - 1} messages from rank {previous}, values sum to {seen}")
dsc.finalize()
