"""Control between hosts: who died, stopped or is late is known on all hosts, whoever waits for what."""

import os
import signal
import sys
import time
from pathlib import Path

import launch
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_hosts import BEGIN, Job

# Rank VICTIM does something; the others look at what is known about their communicators without calling anything.
IDLE = (
    BEGIN
    + """
pair = world.create_group([0, n - 2])
world.barrier()
meet("through", n)
start = time.monotonic()
if r == VICTIM:
    FAULT
while not world.error() and time.monotonic() < start + 40:
    time.sleep(0.001)
error = world.error()
print(type(error).__name__, f"{time.monotonic() - start:.3f}", error)
if pair is not None:
    x = np.ones(3)
    pair.all_reduce(x)
    print("the pair goes on" if x[0] == 2 else x, pair.error())
    sys.stdout.flush()
    meet("pair", 2)  # neither's end is the other's failure
"""
)
KILL = "os.kill(os.getpid(), 9)"
KILL_BESIDE_A_CHILD = "\n    if os.fork() == 0:\n        time.sleep(3)\n        os._exit(0)\n    " + KILL

# Ranks that work until one of them fails, and one that is stopped meanwhile.
WORK = (
    BEGIN.replace("(init_timeout", "(stall_timeout=float(os.environ['STALL']), init_timeout")
    + """
import threading
at_end = threading.Event()
def watch():
    while "nothing has failed" not in str(world.error()):
        if at_end.wait(0.05):
            return
    print("report", world.error(), flush=True)
watcher = threading.Thread(target=watch)
watcher.start()
x = np.ones(1000, np.float32)
print(os.getpid(), flush=True)
end = time.monotonic() + float(os.environ["SECONDS"])
try:
    while True:
        x[:] = time.monotonic() > end
        world.all_reduce(x, op="max")
        if x[0]:
            break
    while world.error() and time.monotonic() < end + 20:
        time.sleep(0.05)
    print("done", world.error(), flush=True)
    at_end.set()
    watcher.join()
    dsc.finalize()
except dsc.DscError as error:
    print(type(error).__name__, error, flush=True)
    at_end.set()
    time.sleep(15)  # for the one that is stopped
"""
)


LATE = (
    BEGIN
    + """
dsc.set_log(lambda level, text: print(text, flush=True), "warn")
world.barrier()
if r == 3:
    time.sleep(17)
x = np.ones(3, np.float32)
world.all_reduce(x)
dsc.finalize()
"""
)


def seen_by_the_others(victim, fault, placement, **variables):
    job = Job(IDLE.replace("VICTIM", str(victim)).replace("FAULT", fault), placement, **variables)
    outputs = job.finish()
    return {rank: output.splitlines() for rank, output in enumerate(outputs) if rank != victim}


@pytest.mark.parametrize("victim,fault", [(1, KILL), (3, KILL_BESIDE_A_CHILD)], ids=["alone", "beside a child"])
def test_a_death_is_known_to_ranks_that_call_nothing(victim, fault):
    """With rank 1 a rank of rank 0's host dies, with rank 3 one of the other host. Who is no member goes on."""
    found = seen_by_the_others(victim, fault, [0, 0, 1, 1])
    for rank, lines in found.items():
        name, seconds, text = lines[0].split(" ", 2)
        assert name == "PeerDeadError" and f"rank {victim} (pid " in text and float(seconds) < launch.AT_ONCE_S, lines
        assert lines[1:] == (["the pair goes on None"] if rank in (0, 2) else []), lines


def test_the_death_of_the_rank_that_serves_the_store():
    for lines in seen_by_the_others(0, KILL_BESIDE_A_CHILD, [0, 1, 1, 2]).values():
        name, seconds, text = lines[0].split(" ", 2)
        assert name == "PeerDeadError" and "rank 0" in text and float(seconds) < launch.AT_ONCE_S, lines


def run_with_stopped_ranks(cases, stopped_s, **variables):
    """What every rank of each case printed: a job whose rank `victim` is stopped for a while, all at a time."""
    jobs = [(victim, Job(WORK, placement, **variables)) for victim, placement in cases]
    pids = [[int(rank.stdout.readline()) for rank in job.ranks][victim] for victim, job in jobs]
    for pid in pids:
        launch.stop_process(pid)
    try:
        time.sleep(stopped_s)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    return [(victim, [output.splitlines() for output in job.finish()]) for victim, job in jobs]


def test_a_stopped_rank_is_reported_and_goes_on():
    """Each alone on its host; rank 0 serves the store."""
    for victim, outputs in run_with_stopped_ranks([(0, [0, 1, 2]), (2, [0, 1, 2])], 7, STALL="40", SECONDS="10"):
        for rank, lines in enumerate(outputs):
            assert lines[-1] == "done None", outputs
            if rank != victim:
                assert lines[0].startswith("report ") and f"rank {victim}: nothing was heard" in lines[0], outputs


def test_ranks_that_are_stopped_for_too_long_are_given_up_and_late_ones_reported():
    """A report takes ten seconds, so the jobs run beside each other."""
    late = Job(LATE, [0, 1, 2, 3])
    cases = [(0, [0, 1, 2]), (2, [0, 1, 2]), (3, [0, 0, 1, 1])]
    for victim, outputs in run_with_stopped_ranks(cases, 9, STALL="3", SECONDS="20"):
        for rank, lines in enumerate(outputs):
            assert lines[-1].startswith("PeerStalledError "), (victim, outputs)
            assert f"rank {victim}" in lines[-1] or rank == victim, (victim, outputs)
    outputs = late.finish()
    reports = [line for output in outputs for line in output.splitlines() if "has waited" in line]
    assert len(reports) == 1, outputs  # one line for the job, not one for every host
    assert "for rank 3; rank 3: barrier() number 1, done" in reports[0], outputs


def test_a_message_that_connects_late_is_no_late_operation():
    code = BEGIN + """
dsc.set_log(lambda level, text: print(text, flush=True), "warn")
x = np.ones(3)
if r == 0:
    world.send(x, 1)
else:
    time.sleep(0.7)
    world.recv(x, 0)
world.barrier()
dsc.finalize()
"""
    assert Job(code, [0, 1]).finish() == ["", ""]


def test_a_host_that_cannot_make_its_part_of_a_group_says_why():
    """The other host does not wait for its time-out."""
    code = BEGIN + """
import resource
world.barrier()
if r == 1:
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
start = time.monotonic()
try:
    world.create_group([0, 1])
    print("made")
except dsc.DscError as error:
    print(f"{time.monotonic() - start:.3f}", error, flush=True)
time.sleep(5)
os._exit(0)
"""
    for output in Job(code, [0, 1]).finish():
        seconds, text = output.split(" ", 1)
        assert float(seconds) < launch.AT_ONCE_S and "Too many open files" in text, output


def test_groups_that_fail_do_not_fill_the_store():
    """What they left there for each other is bounded, however many there are."""
    code = BEGIN + """
import resource, threading
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
store = dsc.Store(f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}")
def keys_after(groups):
    if r == 1: resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    failed = 0
    for _ in range(groups):
        try: world.create_group([0, 1])
        except dsc.DscError: failed += 1
    if r == 1: resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    world.barrier()
    return failed, store.count()
def run():
    first, second = keys_after(20), keys_after(20)
    print(first[0] + second[0], second[1] - first[1])
    store.close()
    world.barrier()
thread = threading.Thread(target=run)  # Python needs a descriptor for each call of its main thread
thread.start()
thread.join()
dsc.finalize()
"""
    assert Job(code, [0, 1]).finish() == ["40 0", "40 0"]


def test_who_finalizes_after_a_failure_is_not_dead():
    """Rank 1 has left its group, and ends in order."""
    code = BEGIN + """
pair = world.create_group([1, 2])
world.barrier()
meet("through", n)
if r == 0:
    world.abort()
while not world.error():
    time.sleep(0.01)
if r == 1:
    pair.close()
    try:
        dsc.finalize()
    except dsc.DscError:
        pass
time.sleep(1)
if r == 2:
    print(pair.error())
sys.stdout.flush()
os._exit(0)
"""
    assert Job(code, [0, 1, 2]).finish()[2] == "None"


if __name__ == "__main__":
    launch.main(__file__)
