#!/usr/bin/env python3
"""Errors: each kind of error is an exception, whose text says what was expected and what was found.

    dscrun -n 4 -- python3 08_errors.py
"""

import numpy as np

import libdsc as dsc


def show(what, function, *arguments):
    """Calls a function that must fail, and prints the error."""
    try:
        function(*arguments)
    except (dsc.Error, ValueError) as error:
        print(f"rank {world.rank}: {what}: {type(error).__name__}\n  {error}")
        return error
    raise SystemExit(f"rank {world.rank}: {what}: nothing was raised")


world = dsc.init_distributed()

# A wrong argument is refused immediately. Nothing has happened, and the communicator remains usable.
show("wrong argument", world.all_reduce, np.zeros((4, 4))[:, 0])

# The ranks disagree: rank 0 sums three numbers, the others four. All ranks report this, and no array is written. The
# group has failed and cannot be used any more; the world can.
if world.size > 1:
    group = world.split(color=0, key=world.rank)
    x = np.ones(3 if world.rank == 0 else 4)
    error = show("ranks disagree", group.all_reduce, x)
    assert isinstance(error, dsc.MismatchError) and (x == 1.0).all()
    # Later calls report the first cause again.
    assert isinstance(show("afterwards", group.barrier), dsc.RevokedError)

x = np.ones(4)
world.all_reduce(x, op="sum")
assert (x == world.size).all()
print(f"rank {world.rank}: the world still works")
dsc.finalize()
