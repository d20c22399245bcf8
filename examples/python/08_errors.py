#!/usr/bin/env python3
"""What a failure looks like: an exception per kind of error, whose text says what was expected and what came.

    dscrun -n 4 -- python3 08_errors.py
"""

import numpy as np

import libdsc as dsc


def show(what, function, *arguments):
    """Calls a function that is expected to fail, and prints how."""
    try:
        function(*arguments)
    except (dsc.Error, ValueError) as error:
        print(f"rank {world.rank}: {what}: {type(error).__name__}\n  {error}")
        return error
    raise SystemExit(f"rank {world.rank}: {what}: nothing was raised")


world = dsc.init_distributed()

# A wrong argument is refused at once; nothing has happened and everything goes on.
show("wrong argument", world.all_reduce, np.zeros((4, 4))[:, 0])

# Ranks that do not agree: rank 0 adds up three numbers, the others four. All ranks see it and nobody's array is
# written. The group is lost with it; the world is not.
if world.size > 1:
    group = world.split(color=0, key=world.rank)
    x = np.ones(3 if world.rank == 0 else 4)
    error = show("ranks disagree", group.all_reduce, x)
    assert isinstance(error, dsc.MismatchError) and (x == 1.0).all()
    # Later calls give the first cause again.
    assert isinstance(show("afterwards", group.barrier), dsc.RevokedError)

x = np.ones(4)
world.all_reduce(x, op="sum")
assert (x == world.size).all()
print(f"rank {world.rank}: the world still works")
dsc.finalize()
