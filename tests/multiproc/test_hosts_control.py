"""Control between hosts: all hosts learn which rank died, was stopped or is late, whatever their ranks wait for."""

import ast
import os
import signal
import sys
import time
from pathlib import Path

import launch
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_hosts import BEGIN, Job

# Rank VICTIM does something. The other ranks only look at the state of their communicators and make no other call.
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
    meet("pair", 2)  # so that the end of one rank is not a failure for the other
"""
)
KILL = "os.kill(os.getpid(), 9)"
KILL_BESIDE_A_CHILD = "\n    if os.fork() == 0:\n        time.sleep(3)\n        os._exit(0)\n    " + KILL

# Code for a rank. show() creates a file, for which other ranks can wait as in meet(), and does not wait itself.
SHOW = """
def show(sign):
    open(f"{os.environ['MEETINGS']}/{sign}.{r}", "w").close()
"""

# Ranks that reduce for SECONDS, or until an operation fails. Meanwhile the test stops one of them for a while.
WORK = (
    BEGIN.replace("(init_timeout", "(stall_timeout=float(os.environ['STALL']), init_timeout")
    + SHOW
    + """
import threading
at_end = threading.Event()
def watch():
    while "nothing has failed" not in str(world.error()):
        if at_end.wait(0.05):
            return
    print("report", world.error(), flush=True)
    show("reported")
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
    meet("failed", n)  # also waits for the stopped rank
"""
)


LATE = (
    BEGIN
    + SHOW
    + """
def log(level, text):
    print(text, flush=True)
    if "has waited" in text: show("waited")
dsc.set_log(log, "warn")
world.barrier()
if r == 3:
    while not any(os.path.exists(f"{os.environ['MEETINGS']}/waited.{rank}") for rank in range(n)): time.sleep(0.01)
    time.sleep(3)  # after this time another host would have reported it, too
x = np.ones(3, np.float32)
world.all_reduce(x)
dsc.finalize()
"""
)


# Each rank calls the same operation after its delay. A rank with the delay None calls after all others have failed.
DELAYED = (
    BEGIN
    + SHOW
    + """
delays = DELAYS
world.barrier()
meet("through", n)
start = time.monotonic()
if delays[r] is None:
    for other in range(n):
        while delays[other] is not None and not os.path.exists(f"{os.environ['MEETINGS']}/failed.{other}"): time.sleep(0.01)
else:
    time.sleep(delays[r])
try:
    world.all_reduce(np.ones(3, np.float32))
    print("went through")
except dsc.DscError as error:
    print([type(error).__name__, list(error.ranks), time.monotonic() - start, str(error)], flush=True)
show("failed")
meet("told", n)  # the other ranks must not report the end of this process
"""
)


def test_a_leader_that_comes_late_but_in_time_is_not_blamed():
    """Rank 0 is late, but calls before the time-out of rank 1. Only the ranks of the other host never call."""
    outputs = Job(DELAYED.replace("DELAYS", "[4, 0, None, None]"), [0, 0, 1, 1], TIMEOUT="8").finish()
    for rank, (name, ranks, seconds, text) in enumerate(map(ast.literal_eval, outputs)):
        assert name == "TimeoutError" and ranks == [2], outputs
        assert rank > 1 or 8 <= seconds < 4 + 8, outputs  # measured from the call of the rank that was first


def test_the_end_of_the_rank_that_reported_a_failure_is_not_the_cause():
    """Rank 0 reports the time-out for its host and ends immediately, together with the store.

    Rank 1 may notice either first.
    """
    code = DELAYED.replace("DELAYS", "[0, 0, None, None]").replace('meet("told", n)', "os._exit(0)")
    for job in [Job(code, [0, 0, 1, 1], TIMEOUT="2") for _ in range(4)]:
        for output in job.finish()[:2]:
            name, ranks, *_ = ast.literal_eval(output)
            assert name == "TimeoutError" and ranks == [2], output


def test_a_member_that_never_comes_is_blamed_and_not_its_leader():
    """Rank 2 leads the other host and has called before the time-out of rank 0."""
    outputs = Job(DELAYED.replace("DELAYS", "[0, 0, 1.5, None]"), [0, 0, 1, 1], TIMEOUT="6").finish()
    for name, ranks, _, text in map(ast.literal_eval, outputs):
        assert name == "TimeoutError" and ranks == [3], outputs
        assert "rank 2 waits for rank 3 of its host; rank 3: last collective 1 (barrier()), done" in text, outputs


def seen_by_the_others(victim, fault, placement, **variables):
    job = Job(IDLE.replace("VICTIM", str(victim)).replace("FAULT", fault), placement, **variables)
    outputs = job.finish()
    return {rank: output.splitlines() for rank, output in enumerate(outputs) if rank != victim}


@pytest.mark.parametrize("victim,fault", [(1, KILL), (3, KILL_BESIDE_A_CHILD)], ids=["alone", "beside a child"])
def test_a_death_is_known_to_ranks_that_call_nothing(victim, fault):
    """Rank 1 is on the host of rank 0, rank 3 on the other host. Groups without the victim still work."""
    found = seen_by_the_others(victim, fault, [0, 0, 1, 1])
    for rank, lines in found.items():
        name, seconds, text = lines[0].split(" ", 2)
        assert name == "PeerDeadError" and f"rank {victim} (pid " in text and float(seconds) < launch.AT_ONCE_S, lines
        assert lines[1:] == (["the pair goes on None"] if rank in (0, 2) else []), lines


def test_the_death_of_the_rank_that_serves_the_store():
    for lines in seen_by_the_others(0, KILL_BESIDE_A_CHILD, [0, 1, 1, 2]).values():
        name, seconds, text = lines[0].split(" ", 2)
        assert name == "PeerDeadError" and "rank 0" in text and float(seconds) < launch.AT_ONCE_S, lines


def run_with_stopped_ranks(cases, sign, **variables):
    """Runs one job per case at the same time.

    Stops rank `victim` of each until the other ranks show a sign. Returns the output of every rank.
    """
    jobs = [(victim, Job(WORK, placement, **variables)) for victim, placement in cases]
    pids = [[int(rank.stdout.readline()) for rank in job.ranks][victim] for victim, job in jobs]
    for pid in pids:
        launch.stop_process(pid)
    try:
        limit = time.monotonic() + launch.LIMIT_S
        for victim, job in jobs:
            while len(list(Path(job.meetings.name).glob(f"{sign}.*"))) < len(job.ranks) - 1:
                assert time.monotonic() < limit, f"not all of the others have {sign} rank {victim}"
                time.sleep(0.01)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    return [(victim, [output.splitlines() for output in job.finish()]) for victim, job in jobs]


def test_a_stopped_rank_is_reported_and_goes_on():
    """Each rank is alone on its host. Rank 0 serves the store."""
    for victim, outputs in run_with_stopped_ranks([(0, [0, 1, 2]), (2, [0, 1, 2])], "reported", STALL="40", SECONDS="10"):
        for rank, lines in enumerate(outputs):
            assert lines[-1] == "done None", outputs
            if rank != victim:
                assert lines[0].startswith("report ") and f"rank {victim}: nothing was heard" in lines[0], outputs


def test_ranks_that_are_stopped_for_too_long_are_given_up_and_late_ones_reported():
    """A report takes ten seconds, so the jobs run at the same time."""
    late = Job(LATE, [0, 1, 2, 3])
    cases = [(0, [0, 1, 2]), (2, [0, 1, 2]), (3, [0, 0, 1, 1])]
    for victim, outputs in run_with_stopped_ranks(cases, "failed", STALL="3", SECONDS="20"):
        for rank, lines in enumerate(outputs):
            assert lines[-1].startswith("PeerStalledError "), (victim, outputs)
            assert f"rank {victim}" in lines[-1] or rank == victim, (victim, outputs)
    outputs = late.finish()
    reports = [line for output in outputs for line in output.splitlines() if "has waited" in line]
    assert len(reports) == 1, outputs  # one line for the job, not one for every host
    assert "for rank 3; rank 3: last collective 1 (barrier()), done" in reports[0], outputs


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


@pytest.mark.parametrize("end", ["dsc.finalize()", "group.close(); meet('told', 2)"])
def test_a_message_to_a_rank_that_has_left_before_they_were_connected(end):
    code = BEGIN + f"""
import threading
group, x = world.split(0, r), np.ones(3)
world.barrier()
if r == 0:
    ending = threading.Thread(target=lambda: {end.split(";")[0]})
    ending.start()
    {end.partition(";")[2].strip() or "pass"}
else:
    time.sleep(1)
    start = time.monotonic()
    try:
        group.recv(x, 0)
    except dsc.DscError as error:
        print([type(error).__name__, error.rank, time.monotonic() - start, str(error)], flush=True)
    {end.partition(";")[2].strip() or "dsc.finalize()"}
"""
    _, output = Job(code, [0, 1], TIMEOUT="20").finish()
    name, rank, seconds, text = ast.literal_eval(output)
    assert name == "PeerLeftError" and rank == 0 and seconds < launch.AT_ONCE_S, output
    assert ("finalizes the world" if "finalize" in end else "rank 0 has left") in text, output


def test_a_message_on_one_host_that_differs_names_ranks_of_the_group():
    code = BEGIN + """
world.barrier()
meet("through", n)
try:
    if r == 2: world.send(np.ones(4, np.float32), 3)
    elif r == 3: world.recv(np.ones(8, np.float32), 2)
    else: world.barrier()
except dsc.DscError as error:
    print([type(error).__name__, list(error.ranks), str(error)], flush=True)
meet("told", n)
"""
    for name, ranks, text in map(ast.literal_eval, Job(code, [0, 0, 1, 1]).finish()):
        assert name == "MismatchError" and ranks == [2, 3], (name, ranks, text)
        assert "rank 2: send(to 3, f32, 4)" in text and "rank 3: recv(from 2, f32, 8)" in text, text


# Rank 0 finalizes the world while another thread of it creates a group, which rank 1 then uses.
FINALIZES_AND_MAKES = (
    BEGIN
    + """
import threading
parent = world.split(0, r)
world.barrier()
def make_and_wait():
    group = parent.split(0, r)
    start = time.monotonic()
    if r == 1:
        try:
            group.all_reduce(np.ones(3))
        except dsc.DscError as error:
            print([type(error).__name__, error.rank, time.monotonic() - start, str(error)], flush=True)
    meet("told", n)
thread = threading.Thread(target=make_and_wait)
if r == 1:
    meet("finalizing", n)
    time.sleep(0.5)
thread.start()
if r == 0:
    time.sleep(0.5)
    finalizing = threading.Thread(target=dsc.finalize)
    finalizing.start()
    meet("finalizing", n)
thread.join()
if r == 0: finalizing.join()
else: dsc.finalize()
"""
)


@pytest.mark.parametrize("placement", ["00", "01"])
def test_a_group_that_is_made_while_its_rank_finalizes(placement):
    """The communicator exists only after finalize() has notified the groups."""
    _, output = Job(FINALIZES_AND_MAKES, [int(host) for host in placement], TIMEOUT="20").finish()
    name, rank, seconds, text = ast.literal_eval(output)
    assert name == "PeerLeftError" and rank == 0 and seconds < launch.AT_ONCE_S and "finalizes the world" in text, output


def test_a_collective_that_runs_is_not_called_done_because_a_message_ended():
    """Rank 1 starts a message and then a collective, and the message completes.

    Rank 0 asks for the last call of rank 1.
    """
    code = BEGIN + """
world.barrier()
meet("through", n)
x, y = np.ones(3), np.ones(3)
try:
    if r == 0:
        world.recv(x, 1)
    elif r == 1:
        sent = world.send(x, 2, async_op=True)
        time.sleep(0.7)
        collective = world.all_reduce(y, async_op=True)
        time.sleep(0.3)
        meet("begun", 2)
        sent.wait()
        collective.wait()
    else:
        meet("begun", 2)
        world.recv(x, 1)
except dsc.DscError as error:
    print(error)
meet("told", n)
"""
    assert "rank 1: last collective 2 (all_reduce(sum, f64, 3)), running" in Job(code, [0, 1, 2], TIMEOUT="3").finish()[0]


def test_progress_knows_of_operations_in_all_groups_of_the_world():
    """Asks for the progress of an operation between hosts in one group: through the world, in a part on one host, and
    without an operation."""
    code = BEGIN + """
from libdsc._library import lib
group, on_host, x = world.split(0, r), world.split(r // 2, r), np.ones(3)
world.barrier()
meet("through", n)
if r == 3: meet("asked", n)
work = group.all_reduce(x, async_op=True)
if r < 3:
    print([asked.progress(0.2) for asked in (world, on_host, group)], lib.dsc_comm_progress(None, 200), work.test())
    meet("asked", n)
work.wait()
while not world.progress(1): pass
print(work.test(), on_host.progress(), lib.dsc_comm_progress(None, 0))
dsc.finalize()
"""
    *outputs, last = [output.splitlines() for output in Job(code, [0, 0, 1, 1]).finish()]
    assert last == ["True True 0"], last
    in_progress = outputs[0][0].split()[3]
    assert in_progress != "0" and outputs == [[f"[False, False, False] {in_progress} False", "True True 0"]] * 3, outputs


# Rank 2 sees that rank 3 of its host was stopped for too long, and leaves. Only this host watches rank 3.
LEAVES_AFTER_A_STOP = (
    BEGIN.replace("(init_timeout", "(stall_timeout=2, init_timeout")
    + """
import signal
world.all_reduce(np.ones(3))
meet("through", n)
if r == 3: os.kill(os.getpid(), signal.SIGSTOP)
try:
    if r == 2:
        while not any(text in str(world.error()) for text in ("it is stopped", "does not run")): time.sleep(0.01)
        world.close()
    else:
        world.barrier()
except dsc.DscError as error:
    print([type(error).__name__, list(error.ranks), str(error)], flush=True)
meet("told", n - 1)
os._exit(0)
"""
)


def test_who_leaves_after_a_failure_of_its_host_is_not_the_cause():
    """Rank 2 has made no call that would have told the other hosts of the failure."""
    job = Job(LEAVES_AFTER_A_STOP, [0, 0, 1, 1])
    try:
        outputs = [rank.communicate(timeout=launch.LIMIT_S)[0] for rank in job.ranks[:3]]
    finally:
        job.ranks[3].kill()
        job.ranks[3].wait()
    for name, ranks, text in map(ast.literal_eval, outputs[:2]):
        assert name == "PeerStalledError" and ranks == [3], outputs


def test_a_host_that_cannot_make_its_part_of_a_group_says_why():
    """The other host gets the error immediately and does not wait for its time-out."""
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
meet("told", n)
os._exit(0)
"""
    for output in Job(code, [0, 1]).finish():
        seconds, text = output.split(" ", 1)
        assert float(seconds) < launch.AT_ONCE_S and "Too many open files" in text, output


def test_groups_that_fail_do_not_fill_the_store():
    """What failed groups leave in the store is bounded for any number of groups."""
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
    """Rank 1 has left its group and ends normally."""
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


@pytest.mark.parametrize("left", ["world.split(0)", "dsc.BucketReducer(world, [np.zeros(3)])"])
def test_another_world_while_a_group_of_the_first_exists(left):
    code = BEGIN + f"""
left = {left}
dsc.finalize()
for _ in range(2):
    world = dsc.init_distributed(init_timeout=20)
    x = np.ones(3); world.all_reduce(x); print(x[0])
    dsc.finalize()
"""
    assert Job(code, [0, 1, 1]).finish() == ["3.0\n3.0"] * 3


def test_a_batch_with_what_does_not_go_between_hosts_is_refused_as_a_whole():
    code = BEGIN + """
x = np.ones(3); function = dsc.user_op(lambda *_: None, 7)
for asynchronous in (True, False):
    try:
        with world.batch(async_op=asynchronous) as batch:
            world.all_reduce(x); world.all_reduce(np.ones(3), op=function)
        print("no error")
    except dsc.UnsupportedError as error:
        print("refused", x[0])
world.all_reduce(x); print(x[0])
dsc.finalize()
"""
    assert Job(code, [0, 0, 1, 1]).finish() == ["refused 1.0\nrefused 1.0\n4.0"] * 4


if __name__ == "__main__":
    launch.main(__file__)
