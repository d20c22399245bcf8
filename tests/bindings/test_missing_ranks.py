"""Operations of parallel models in which another rank is killed, never joins, or is awaited until Ctrl-C."""

import json
import os
import pathlib
import signal
import sys
import threading
import time

import numpy as np
import pytest
from killed_rank import kill_self, others_of

import libdsc as dsc

VICTIM = 1
TIMEOUT_S = 1  # time-out of groups in which one rank never joins an operation
AT_ONCE_S = 15  # long enough, even on a busy machine, for a call that waits for no rank
DATA = {"tokens": np.ones(4, np.int64), "mask": np.ones((2, 3), np.int64)}
OPERATIONS = {
    "all_reduce_coalesced": lambda group: dsc.all_reduce_coalesced(group, [np.ones(1000, np.float32), np.ones(70_000, np.float32)]),
    "tensor_map": lambda group: group.tensor_map(np.ones((8, 8), np.float32), "gather"),
    "vocab_cross_entropy": lambda group: group.vocab_cross_entropy(np.ones((4, 8), np.float32), np.zeros(4, np.int64)),
    "broadcast_shapes": lambda group: group.broadcast_data(list(DATA), DATA, "int64"),
}


def ended(operation, group, fate):
    """Returns what an operation raises and how long it took."""
    if fate == "interrupted":
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    begin = time.monotonic()
    try:
        operation(group)
    except (dsc.DscError, KeyboardInterrupt) as error:
        return [type(error).__name__, str(error), time.monotonic() - begin]
    return ["nothing", "", 0]


def child(fate, told):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs without this handler
    world = dsc.init_distributed(init_timeout=30, timeout=30)
    groups = [world.split(0, timeout=TIMEOUT_S if fate == "absent" else None) for _ in OPERATIONS]
    if world.rank == VICTIM:
        while fate != "killed" and not told.exists():
            time.sleep(0.01)
        kill_self()
    print(json.dumps([ended(operation, group, fate) for operation, group in zip(OPERATIONS.values(), groups)]), flush=True)
    told.touch()
    os._exit(0)


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("fate, raised", [("killed", "PeerDeadError"), ("absent", "TimeoutError"), ("interrupted", "KeyboardInterrupt")])
def test_a_missing_rank_ends_the_operation(hosts, fate, raised, tmp_path):
    (told,) = others_of(VICTIM, __file__, 2, hosts, fate, tmp_path / "told")
    for name, (found, text, seconds) in zip(OPERATIONS, told):
        assert found == raised and seconds < TIMEOUT_S + AT_ONCE_S, (name, found, text, seconds)
        assert fate == "interrupted" or name in text and f"rank {VICTIM}" in text, (name, text)


if __name__ == "__main__":
    child(sys.argv[1], pathlib.Path(sys.argv[2]))
