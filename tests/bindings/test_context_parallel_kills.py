"""A rank that is killed in the middle of a ring pass: the others get its name, on one host and on two."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest

import libdsc as dsc

RANKS, VICTIM, TURNS, LIMIT_S = 4, 1, 3, 60


def go_around(world, ring, has_gradients, killing_at):
    """One pass, in which this rank is killed after a step; returns the failure. A rank that needs nothing more of the
    killed one gets to the end, and is told by the barrier."""
    block = np.full(50_000, world.rank, np.float32)
    grad = np.zeros_like(block)
    steps = ring.backward(block, grad) if has_gradients else ring(block)
    try:
        for step, (source, shown, *place) in enumerate(steps):
            assert (shown == source).all(), "another block"
            if place:
                place[0][:] = 1
            if step == killing_at:
                os.kill(os.getpid(), signal.SIGKILL)
        world.barrier()
    except dsc.DscError as error:
        return error
    assert not has_gradients or (grad == RANKS).all()
    return None


def child(rank, has_gradients, killing_at):
    world = dsc.init_distributed(init_timeout=30, timeout=20)
    ring = dsc.Ring(world, 200_000, 200_000)
    for turn in range(TURNS):
        at = killing_at if (rank, turn) == (VICTIM, TURNS - 1) else None
        failure = go_around(world, ring, has_gradients, at)
        if failure is not None:
            print(json.dumps([turn, type(failure).__name__, str(failure)]), flush=True)
            sys.stdin.read()  # the others are told by the killed rank, and not by this end
            os._exit(0)


def start(rank, hosts, port, *arguments):
    host = rank * hosts // RANKS
    local = [other for other in range(RANKS) if other * hosts // RANKS == host]
    env = os.environ | {
        "RANK": str(rank),
        "WORLD_SIZE": str(RANKS),
        "LOCAL_RANK": str(local.index(rank)),
        "LOCAL_WORLD_SIZE": str(len(local)),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    if hosts > 1:
        env |= {"DSC_HOST_ID": f"host-{host}", "DSC_TOKEN": "cd" * 32}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, pathlib.Path(__file__), str(rank), *map(str, arguments)]
    return subprocess.Popen(command, env=env, text=True, **pipes)


@pytest.mark.parametrize("has_gradients", [0, 1])
@pytest.mark.parametrize("hosts, killing_at", [(1, 0), (1, 2), (2, 1)])
def test_a_killed_rank_is_named(hosts, has_gradients, killing_at):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    ranks = [start(rank, hosts, port, has_gradients, killing_at) for rank in range(RANKS)]
    limit = threading.Timer(LIMIT_S, lambda: [process.kill() for process in ranks])
    limit.start()
    try:
        told = [process.stdout.readline() for process in ranks]
        outputs = [process.communicate() for process in ranks]
    finally:
        limit.cancel()
        for process in ranks:
            process.kill()
    assert ranks[VICTIM].returncode == -signal.SIGKILL, outputs[VICTIM]
    for rank in set(range(RANKS)) - {VICTIM}:
        assert ranks[rank].returncode == 0 and told[rank], (rank, outputs[rank])
        turn, name, text = json.loads(told[rank])
        assert turn == TURNS - 1, (rank, turn, text)
        assert name == "PeerDeadError" and f"rank {VICTIM} " in text, (rank, name, text)


if __name__ == "__main__":
    child(*map(int, sys.argv[1:]))
