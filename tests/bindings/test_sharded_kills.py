"""A rank that uses a parameter after its unit was released dies by signal 11.

The other ranks are told where to look.
"""

import signal

import numpy as np
from killed_rank import expect_named, others_of, telling

import libdsc as dsc

RANKS, VICTIM = 3, 1


def child():
    world = dsc.init_distributed(init_timeout=30, timeout=20)
    sharded = dsc.Sharded(world, [np.ones(50_000, np.float32), np.ones(60_000, np.float32)], stage=3, units=[0, 1])
    with telling(sharded.n_shards):
        with sharded.unit(0) as (kept,):
            assert kept[0] == 1
        if world.rank == VICTIM:
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            print(kept[0])  # used after the `with` block
        for _ in range(100):
            with sharded.unit(1):
                pass
            sharded.step_done()


def test_a_signal_11_leads_to_released_parameters():
    for shards, name, _, text in others_of(VICTIM, __file__, RANKS, 1, by=signal.SIGSEGV):
        assert shards == RANKS
        expect_named(VICTIM, name, text)
        assert "used a parameter whose unit was released: set PYTHONFAULTHANDLER=1 to print the Python stack" in text, text


if __name__ == "__main__":
    child()
