"""Programs under dscrun: Ctrl-C and the death of a rank."""

import os
import signal
import subprocess
import sys
import time

import pytest

DSCRUN = os.environ.get("DSCRUN", "")
pytestmark = pytest.mark.skipif(not os.access(DSCRUN, os.X_OK), reason="DSCRUN does not name the launcher")

HEAD = """
import asyncio, os, signal, sys, threading, time
import numpy as np
import libdsc as dsc

world = dsc.init_distributed()
x = np.zeros(1000)
tell = lambda: print("pid", world.rank, os.getpid(), flush=True)
"""

SECONDS = 60
AT_ONCE = 15  # the limit for "immediately" on a busy machine

# Each program hangs for the five minutes of an operation's time-out.
HANGS = {
    "recv": "world.recv(x, (world.rank + 1) % world.size)",
    "all_reduce": "world.all_reduce(x) if world.rank else time.sleep(300)",
    "barrier_of_a_group": "world.create_group([0, 1, 2]).barrier() if world.rank < 2 else time.sleep(300)",
    "split": "world.split(0) if world.rank else time.sleep(300)",
    "wait": "world.irecv(x, (world.rank + 1) % world.size).wait()",
    "wait_with_time_out": "world.irecv(x, (world.rank + 1) % world.size).wait(300)",
    "reducer": """
r = dsc.BucketReducer(world, [x])
r.begin()
if world.rank == 0:
    time.sleep(300)
r.mark_ready(0, x)
r.finish()
""",
}

INTERRUPTED = """
try:
    tell()
    exec({hang!r})
    print("came back", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(130)
"""


def start(program, n=4, options=()):
    command = [DSCRUN, "-n", str(n), *options, "--", sys.executable, "-c", HEAD + program]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def read_pids(process, n):
    """Reads the first lines of the ranks, after dscrun's prefix. Returns the pids in rank order."""
    pids = {}
    while len(pids) < n:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        words = line.split()
        assert words[-3] == "pid", line
        pids[int(words[-2])] = int(words[-1])
    return [pids[rank] for rank in range(n)]


def assert_gone(pids):
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("hang", HANGS)
def test_interrupt_ends_all_ranks(hang):
    process = start(INTERRUPTED.format(hang=HANGS[hang]))
    try:
        pids = read_pids(process, 4)
        time.sleep(0.5)  # after this time the ranks are in the call
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS)
        assert time.monotonic() - started < AT_ONCE, out + err
    finally:
        process.kill()
    assert out.count("interrupted") == 4 and "came back" not in out, out + err
    assert process.returncode != 0
    assert_gone(pids)


def test_interrupt_of_one_rank_ends_the_others_by_an_error():
    program = """
try:
    tell()
    world.barrier() if world.rank < 2 else time.sleep(10)
except KeyboardInterrupt:
    print("interrupted", isinstance(world.error(), dsc.RevokedError), flush=True)
    sys.exit(1)
except dsc.DscError as error:
    print("failed", type(error).__name__, flush=True)
    sys.exit(1)
"""
    process = start(program, 3)
    try:
        pids = read_pids(process, 3)
        time.sleep(2)
        os.kill(pids[0], signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert out.count("interrupted True") == 1 and "failed RevokedError" in out, out + err
    assert_gone(pids)


def test_a_handler_of_the_program_runs_when_the_call_returns(tmp_path):
    program = f"""
asked, sent = [], {str(tmp_path / "sent")!r}
def ask():
    os.kill(os.getpid(), signal.SIGINT)
    open(sent, "w").close()
signal.signal(signal.SIGINT, lambda *_: asked.append(1))
if world.rank == 0:
    threading.Timer(0.2, ask).start()
else:
    while not os.path.exists(sent):
        time.sleep(0.01)
world.barrier()
print("asked", len(asked), flush=True)
"""
    process = start(program, 2)
    try:
        out, err = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0, out + err
    assert "asked 1" in out and "asked 0" in out


def test_a_signal_reaches_asyncio_too():
    program = """
async def main():
    loop, seen = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, seen.set)
    if world.rank == 0:
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
        world.barrier()
        await asyncio.wait_for(seen.wait(), 30)
    else:
        time.sleep(0.6)
        world.barrier()

asyncio.run(main())
print("done", flush=True)
"""
    process = start(program, 2)
    try:
        out, err = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0 and out.count("done") == 2, out + err


def test_a_dead_rank_is_named_by_the_survivors():
    program = """
world.barrier()  # all ranks have started
if world.rank == 1:
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)
try:
    world.all_reduce(x)
except dsc.PeerDeadError as error:
    print("dead", error.rank, error.group, error.op, flush=True)
"""
    process = start(program, 3)
    try:
        out, err = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert out.count("dead 1 world all_reduce") == 2, out + err
    assert process.returncode != 0


def test_interrupt_while_ranks_are_missing():
    program = f"""
import libdsc as dsc
print("ready", flush=True)
dsc.init_distributed(rank=0, world_size=2, job_id="missing-{os.getpid()}")
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert "KeyboardInterrupt" in err and process.returncode == -signal.SIGINT
