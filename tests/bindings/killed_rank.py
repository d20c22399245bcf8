"""Runs a program in which one rank kills itself. Each rank is a process, on one host or on simulated hosts."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading

import libdsc as dsc

LIMIT_S = 60


def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


@contextlib.contextmanager
def telling(*facts):
    """Reports to others_of() the failure with which the block ends, and `facts` (a callable is called for its value).

    Then ends the process.
    """
    try:
        yield
    except dsc.DscError as error:
        told = [fact() if callable(fact) else fact for fact in facts]
        ranks = sorted(set(error.ranks) | ({error.rank} if error.rank is not None else set()))
        print(json.dumps([*told, type(error).__name__, ranks, str(error)]), flush=True)
        sys.stdin.read()  # wait, because the other ranks must learn of the killed rank and not of the end of this one
        os._exit(0)


def _start(python, program, rank, ranks, hosts, port, arguments):
    host = rank * hosts // ranks
    local = [other for other in range(ranks) if other * hosts // ranks == host]
    env = os.environ | {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(local.index(rank)),
        "LOCAL_WORLD_SIZE": str(len(local)),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    if hosts > 1:
        env |= {"DSC_HOST_ID": f"host-{host}", "DSC_TOKEN": "cd" * 32}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([python, program, *map(str, arguments)], env=env, text=True, **pipes)


def others_of(victim, program, ranks, hosts, *arguments, by=signal.SIGKILL, python=sys.executable):
    """Runs a program on `ranks` ranks.

    Returns the reports of all ranks except the victim, which must have ended by a signal.
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    processes = [_start(python, program, rank, ranks, hosts, port, arguments) for rank in range(ranks)]
    limit = threading.Timer(LIMIT_S, lambda: [process.kill() for process in processes])
    limit.start()
    try:
        told = [process.stdout.readline() for process in processes]
        outputs = [process.communicate() for process in processes]
    finally:
        limit.cancel()
        for process in processes:
            process.kill()
    assert processes[victim].returncode == -by, outputs[victim]
    others = [rank for rank in range(ranks) if rank != victim]
    for rank in others:
        assert processes[rank].returncode == 0 and told[rank], (rank, outputs[rank])
    return [json.loads(told[rank]) for rank in others]


def expect_named(victim, name, text):
    assert name == "PeerDeadError" and f"rank {victim} " in text, (name, text)
