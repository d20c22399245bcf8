"""A rank that is killed in an exchange of tokens: the others name it, and what came before it came whole."""

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

RANKS, VICTIM, LAYERS, LIMIT_S = 3, 1, 4, 60
TOKENS, HIDDEN, CAPACITY = 400, 200, 400  # several pieces of what travels at a time


def tokens_of(rank, layer):
    return np.random.default_rng((rank, layer)).standard_normal((TOKENS, HIDDEN)).astype(np.float32)


def run(world, plan, layer, killing_at):
    """One layer; the victim dies before its dispatch, in one of many, or in its combine."""
    tokens, rows = tokens_of(world.rank, layer), np.empty((plan.rows, HIDDEN), np.float32)
    dies = world.rank == VICTIM
    if killing_at == "before" and dies:
        os.kill(os.getpid(), signal.SIGKILL)
    if killing_at == "dispatch":
        if dies:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()
        while True:
            plan.dispatch(tokens, rows)
    plan.dispatch(tokens, rows)
    if killing_at == "combine" and dies:
        plan.combine(rows, out=tokens, async_op=True)
        os.kill(os.getpid(), signal.SIGKILL)
    work = plan.combine(rows, out=tokens, async_op=True)
    work.wait()
    assert np.array_equal(tokens, 2 * tokens_of(world.rank, layer)), "what came is not whole"


def child(rank, killing_at):
    world = dsc.init_distributed(init_timeout=30, timeout=20)
    ids = np.random.default_rng(rank).permuted(np.tile(np.arange(RANKS, dtype=np.int32), (TOKENS, 1)), axis=1)[:, :2]
    plan = world.moe_plan(np.ascontiguousarray(ids), RANKS, capacity=CAPACITY, padded=True)
    layer = -1
    try:
        for layer in range(LAYERS):
            run(world, plan, layer, killing_at if layer == LAYERS - 1 else None)
        plan.dispatch(tokens_of(rank, layer))  # a combine that was whole before the victim died is no failure
    except dsc.DscError as error:
        print(json.dumps([layer, type(error).__name__, str(error)]), flush=True)
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
    command = [sys.executable, pathlib.Path(__file__), str(rank), killing_at]
    return subprocess.Popen(command, env=env, text=True, **pipes)


@pytest.mark.parametrize("killing_at", ["before", "dispatch", "combine"])
@pytest.mark.parametrize("hosts", [1, 2])
def test_a_killed_rank_is_named(hosts, killing_at):
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
        layer, name, text = json.loads(told[rank])
        assert layer == LAYERS - 1, (rank, layer, text)
        assert name == "PeerDeadError" and f"rank {VICTIM} " in text, (rank, name, text)
        assert "moe_dispatch" in text or "moe_combine" in text or "all_to_all" in text, (rank, text)


if __name__ == "__main__":
    child(int(sys.argv[1]), sys.argv[2])
