"""A rank that is killed between the chunks of a gather: the others name it, and every chunk came whole or failed."""

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

RANKS, VICTIM, CHUNKS, TURNS, LIMIT_S = 3, 1, 8, 4, 60
SHAPE = (64, 300)  # of a part, along whose first dimension the chunks are


def content(rank, turn):
    return np.random.default_rng((rank, turn)).standard_normal(SHAPE).astype(np.float32)


def whole(turn):
    return np.concatenate([content(rank, turn) for rank in range(RANKS)])


def rows_of(chunk):
    """Of the whole: a range of every rank's part."""
    part = dsc.split_range(SHAPE[0], CHUNKS, chunk)
    return [rank * SHAPE[0] + row for rank in range(RANKS) for row in part]


def gather(world, turn, killing_at):
    """Starts all chunks, then takes one after another; returns how many came, and the failure of the first that did not."""
    x, out = content(world.rank, turn), np.full((RANKS * SHAPE[0], SHAPE[1]), np.nan, np.float32)
    works = []
    for chunk in range(CHUNKS):
        if chunk == killing_at:
            os.kill(os.getpid(), signal.SIGKILL)
        works.append(world.tensor_map(x, "gather_reduce", 0, out=out, chunk=(chunk, CHUNKS), async_op=True))
    came, failure = 0, None
    for chunk, work in enumerate(works):
        try:
            work.wait()
        except dsc.DscError as error:
            failure = failure or error
            continue
        assert failure is None, "a chunk came after one that failed"
        assert np.array_equal(out[rows_of(chunk)], whole(turn)[rows_of(chunk)]), "a chunk that came is not whole"
        came += 1
    return came, failure


def child(rank, killing_at):
    world = dsc.init_distributed(init_timeout=30, timeout=20)
    world.barrier()
    for turn in range(TURNS):
        came, failure = gather(world, turn, killing_at if (rank, turn) == (VICTIM, TURNS - 1) else None)
        if failure is not None:
            print(json.dumps([turn, came, type(failure).__name__, str(failure)]), flush=True)
            sys.stdin.read()  # the others are told by the killed rank, and not by this end
            os._exit(0)


def start(rank, hosts, port, killing_at):
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
    command = [sys.executable, pathlib.Path(__file__), str(rank), str(killing_at)]
    return subprocess.Popen(command, env=env, text=True, **pipes)


@pytest.mark.parametrize("killing_at", [0, 3, CHUNKS - 1])
@pytest.mark.parametrize("hosts", [1, 2])
def test_a_killed_rank_is_named_and_chunks_are_whole(hosts, killing_at):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    ranks = [start(rank, hosts, port, killing_at) for rank in range(RANKS)]
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
        turn, came, name, text = json.loads(told[rank])
        assert turn == TURNS - 1 and came <= killing_at, (rank, turn, came, text)
        assert name == "PeerDeadError" and f"rank {VICTIM} " in text, (rank, name, text)


if __name__ == "__main__":
    child(int(sys.argv[1]), int(sys.argv[2]))
