"""Operations that are no longer waited for: dropped, interrupted at their start, running when the program ends."""

import gc
import math
import os
import subprocess
import sys
import textwrap
import threading
import time
import warnings
import weakref

import numpy as np
import pytest
from conftest import ROOT

import libdsc as dsc
from libdsc import _work
from test_ranks import ranks

sys.path.insert(0, str(ROOT / "tests" / "support"))
from repetitions import repetitions  # noqa: E402

DSCRUN = os.environ.get("DSCRUN")


def settle():
    """Waits until no dropped operation is left."""
    for _ in range(2000):
        _work.reap()
        if not _work._dropped:
            return
        time.sleep(0.005)


class Array(np.ndarray):
    """An array that can have attributes."""


def ones(n=4):
    return np.ones(n).view(Array)


def of_threads(rank, failures):
    try:
        world = dsc.init_distributed(rank=rank, world_size=2, rank_per_thread=True, job_id="works", timeout=30)
        for _ in range(repetitions(500, least=50)):
            for _ in range(3):
                world.all_reduce(np.ones(3000), async_op=True)
        world.barrier()
        world.close()
    except Exception as error:
        failures.append(error)


def drops_on_threads(_rank):
    """Either of two threads may find the completed operations that the other one dropped."""
    failures, interval = [], sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=of_threads, args=(rank, failures)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    return [repr(failure) for failure in failures]


def test_dropped_by_two_threads():
    assert dsc.spawn(drops_on_threads, 1, timeout=100) == [[]]


def fails_early_in_a_batch(world):
    """In this batch the first operation fails while the second one still moves data."""
    world.nonfinite_check = "fail"
    bad, large = np.full(4, np.nan, np.float32), np.ones(16 << 20, np.float32)
    with world.batch(async_op=True) as batch:
        world.all_reduce(bad)
        world.all_reduce(large)
    try:
        batch.work.wait()
        told = "no error"
    except dsc.NonfiniteError as error:
        told = type(error).__name__
    return told, batch.work.test(), float(large[-1])


def test_a_batch_is_over_when_its_failure_is_told():
    assert ranks(2, fails_early_in_a_batch) == [("NonfiniteError", True, 2.0)] * 2


def drops_within_a_drop(world):
    """A dropped operation keeps an array alive. Deleting that array drops another operation."""
    out = []
    for _ in range(repetitions(20, least=5)):
        if world.rank == 0:
            first = ones()
            first.inner = world.irecv(np.zeros(1), 1)
            holder, other = world.irecv(first, 1), world.irecv(np.zeros(4), 1)
            out.append(weakref.ref(first))
            del first, holder
            del other  # deleted after the holder, so that both are released in this order
        else:
            for size in (1, 4, 4):
                world.send(np.ones(size), 0)
        world.barrier()
    settle()
    gc.collect()
    return sum(ref() is not None for ref in out), len(_work._dropped)


def test_dropped_within_a_drop():
    assert ranks(2, drops_within_a_drop) == [(0, 0)] * 2


class Counting:
    """Wraps the library and counts calls of dsc_work_test()."""

    def __init__(self, lib):
        self.lib, self.tests = lib, 0

    def __getattr__(self, name):
        self.tests += name == "dsc_work_test"
        return getattr(self.lib, name)


def drops_many(world):
    n = 1000
    if world.rank == 1:
        world.barrier()
        for _ in range(n):
            world.recv(np.zeros(1), 0)
        world.barrier()
        return 0
    _work.lib = counting = Counting(_work.lib)
    for _ in range(n):
        world.isend(np.ones(1), 1)
    tests = counting.tests
    world.barrier()
    world.barrier()
    settle()
    return tests / n, len(_work._dropped)


def test_the_cost_of_dropping_does_not_grow():
    (tests, left), _ = ranks(2, drops_many)
    assert tests < 10 and left == 0


def drops_lists(world):
    parts, alone = [np.zeros(2) for _ in range(world.size)], world.split(world.rank)
    world.all_gather(parts, np.full(2, world.rank + 1.0), async_op=True)
    world.barrier()
    for _ in range(2000):
        alone.barrier()  # any blocking call fills the lists of completed works
        if parts[1][1]:
            break
        time.sleep(0.005)
    return [part.tolist() for part in parts]


def test_a_dropped_work_fills_its_list():
    assert ranks(2, drops_lists) == [[[1, 1], [2, 2]]] * 2


class Waits(np.ndarray):
    def __del__(self):
        if hasattr(self, "work"):
            self.work.wait()


def test_waiting_in_a_destructor(world):
    x = np.ones(4).view(Waits)
    x.work = world.all_reduce(np.ones(2), async_op=True)
    work, alive = world.all_reduce(x, async_op=True), weakref.ref(x)
    del x
    assert work.wait() is True and alive() is None


def interrupted(*_):
    raise KeyboardInterrupt


def start_interrupted(world, monkeypatch):
    """A signal handler raises after the library has started the operation."""
    x = np.zeros(4)
    with monkeypatch.context() as patch:
        patch.setattr(_work, "Work", interrupted)
        try:
            world.all_reduce(x, async_op=True)
        except KeyboardInterrupt:
            return weakref.ref(x)


def test_an_exception_at_the_start_frees_no_arrays(world, monkeypatch):
    alive = start_interrupted(world, monkeypatch)
    gc.collect()
    assert alive() is not None


def polls(rank):
    with dsc.init_distributed(progress_thread=False, timeout=30) as world:
        if world.rank == 1:
            world.barrier()
            world.send(np.ones(1), 0)
            return []
        work, took = world.irecv(np.zeros(1), 1), []
        for timeout in (-1e-9, -0.0015, -5, -math.inf, 0, 1e-9):
            begin = time.monotonic()
            assert world.progress(timeout) is False
            took.append(time.monotonic() - begin)
        world.barrier()
        while not world.progress(math.inf):
            pass
        work.wait()
        return took


@pytest.mark.parametrize("timeout, kind", [(-1, ValueError), (float("nan"), ValueError), ("1", TypeError)])
def test_a_wait_takes_no_time_that_is_none(world, timeout, kind):
    work = world.all_reduce(np.ones(2), async_op=True)
    for wait in (work.wait, work.synchronize):
        with pytest.raises(kind, match="timeout is"):
            wait(timeout)
    assert work.wait() and work.wait(0)
    with pytest.raises(kind, match="timeout is"):
        work.wait(timeout)


def test_progress_for_any_time():
    took, _ = dsc.spawn(polls, 2, timeout=60)
    assert len(took) == 6 and max(took) < 15


AT_EXIT = """
    import os, pathlib, sys, time
    import numpy as np
    import libdsc as dsc

    going, back = (pathlib.Path(sys.argv[0]).with_suffix(name) for name in (".going", ".back"))

    class Slow:  # delays the interpreter's shutdown until the other rank's call has returned
        def __del__(self, mkdir=os.mkdir, going=str(going), access=os.access, back=str(back), sleep=time.sleep):
            mkdir(going)
            for _ in range(2000):
                if access(back, 0):
                    return
                sleep(0.01)

    world = dsc.init_distributed(timeout=30)
    op = dsc.user_op(lambda a, b: a + b, 7)
    x = np.ones(1 << 16)
    if world.rank == 0:
        sys.slow = Slow()
        work = world.all_reduce(x, op, async_op=True)
    else:
        while not going.exists():
            time.sleep(0.01)
        try:
            world.all_reduce(x, op)
        except dsc.RevokedError:
            print("revoked")
        back.touch()
"""


AT_EXIT_OF_A_DAEMON = """
    import sys, threading, time
    import numpy as np
    import libdsc as dsc

    class Slow:
        def __del__(self, sleep=time.sleep):
            sleep(0.5)

    def add(a, b):
        inside.set()
        time.sleep(0.02)
        return a + b

    def work():
        while True:
            try:
                world.all_reduce(x, op)
            except dsc.DscError as error:  # calls again, as a daemon thread may
                last.append(error)

    inside, last, x = threading.Event(), [], np.ones(1 << 12)
    world = dsc.init_distributed(timeout=30)
    op = dsc.user_op(add, 7)
    if world.rank == 0:
        sys.slow = Slow()
        threading.Thread(target=work, daemon=True).start()
        assert inside.wait(20)
        time.sleep(float(sys.argv[1]))
    else:
        try:
            while True:
                world.all_reduce(x, op)
        except (dsc.RevokedError, dsc.PeerLeftError) as error:
            print("ended", type(error).__name__)
"""


@pytest.mark.skipif(DSCRUN is None, reason="needs dscrun")
@pytest.mark.parametrize("delay", ["0", "0.01", "0.035"])
def test_a_daemon_thread_in_a_function_at_the_end_of_the_program(tmp_path, delay):
    (tmp_path / "job.py").write_text(textwrap.dedent(AT_EXIT_OF_A_DAEMON))
    job = [DSCRUN, "-n", "2", "--", sys.executable, str(tmp_path / "job.py"), delay]
    start = time.monotonic()
    result = subprocess.run(job, capture_output=True, text=True, timeout=60)
    assert (result.returncode, "ended" in result.stdout) == (0, True), result.stdout + result.stderr
    assert time.monotonic() - start < 40 and result.stderr == ""


@pytest.mark.skipif(DSCRUN is None, reason="needs dscrun")
def test_a_function_of_the_callers_at_the_end_of_the_program(tmp_path):
    (tmp_path / "job.py").write_text(textwrap.dedent(AT_EXIT))
    job = [DSCRUN, "-n", "2", "--", sys.executable, str(tmp_path / "job.py")]
    result = subprocess.run(job, capture_output=True, text=True, timeout=60)
    assert (result.returncode, "revoked" in result.stdout) == (0, True), result.stdout + result.stderr

def fails_unnoticed(world, way):
    """Starts an operation that fails because the counts differ. Returns repr() and the warnings."""
    group = world.split(0, name="pair")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work = group.all_reduce(np.ones(3 + world.rank), async_op=True)
        if way == "dropped":
            del work
            said = ""
            for _ in range(2000):
                if caught:
                    break
                _work.reap()
                time.sleep(0.005)
        else:
            while not work.test():
                time.sleep(0.005)
            said = repr(work)
            if way == "waited":
                with pytest.raises(dsc.MismatchError):
                    work.wait()
            elif way == "read":
                assert isinstance(work.error(), dsc.MismatchError)
            del work
    return said, [(each.category, os.path.basename(each.filename), str(each.message)) for each in caught]


@pytest.mark.parametrize("way", ["dropped", "tested", "waited", "read"])
def test_a_failure_that_nobody_was_told_is_a_warning(way):
    for said, caught in ranks(2, fails_unnoticed, way):
        assert said == ("" if way == "dropped" else "<libdsc.Work all_reduce on 'pair', failed>")
        assert len(caught) == (way in ("dropped", "tested"))
        for category, file, text in caught:
            assert (category, file) == (RuntimeWarning, "test_works.py")
            assert text.startswith("an operation failed, and no call waited for it: collective 1 (all_reduce) of group")


def aborts(world):
    """No warning appears for an operation that the program itself has ended, or for one that failed because of a
    failure known to the program."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        group = world.split(0)
        if world.rank == 0:
            group.irecv(np.zeros(1), 1)
            group.abort()
            settle()
        known = world.split(0)
        with pytest.raises(dsc.MismatchError):
            known.all_reduce(np.ones(3 + world.rank))
        known.irecv(np.zeros(1), 1 - world.rank)
        settle()
    return [str(each.message) for each in caught]


def test_known_failures_of_dropped_operations_are_no_warnings():
    assert ranks(2, aborts) == [[], []]


def waits_in_order(world):
    """Later operations fail together with the first one. A program that waits in order gets the failure once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        group = world.split(0)
        works = [group.all_reduce(np.ones(3 + world.rank * (number == 0)), async_op=True) for number in range(5)]
        with pytest.raises(dsc.MismatchError):
            works[0].wait()
        del works
        settle()
        unheard = world.split(0)
        for number in range(5):
            unheard.all_reduce(np.ones(3 + world.rank * (number == 0)), async_op=True)
        settle()
    return [str(each.message).split(" of group")[0] for each in caught]


def test_one_end_of_a_communicator_is_one_warning():
    first = "an operation failed, and no call waited for it: collective "
    for texts in ranks(2, waits_in_order):
        assert len(texts) == 1 and texts[0].startswith(first)


FORKS = """
    import os
    import sys
    import numpy as np
    import libdsc as dsc

    world = dsc.init_distributed(timeout=30)
    if world.rank == 0:
        world.irecv(np.zeros(1), 1)
        if os.fork() == 0:
            sys.exit(0)
        os.wait()
    world.barrier()
    if world.rank == 1:
        world.send(np.zeros(1), 0)
    dsc.finalize()
"""


@pytest.mark.skipif(DSCRUN is None, reason="needs DSCRUN")
def test_a_forked_child_asks_nothing_at_its_end(tmp_path):
    program = tmp_path / "forks.py"
    program.write_text(textwrap.dedent(FORKS))
    done = subprocess.run([DSCRUN, "-n", "2", sys.executable, str(program)], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


FINALIZES = """
    import time
    import numpy as np
    import libdsc as dsc

    world = dsc.init_distributed(timeout=30)
    world.all_reduce(np.ones(3 + world.rank), async_op=True)
    while world.error() is None or not world.trace()["entries"][-1]["retired"]:  # the library's thread ends the operation later
        time.sleep(0.01)
    dsc.finalize()
"""


@pytest.mark.parametrize("filter", ["default", "error"])
@pytest.mark.skipif(DSCRUN is None, reason="needs DSCRUN")
def test_finalize_tells_of_dropped_operations(tmp_path, filter):
    program = tmp_path / "drops.py"
    program.write_text(textwrap.dedent(FINALIZES))
    command = [DSCRUN, "-n", "2", sys.executable, "-W", filter, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        lines = [line for line in done.stderr.splitlines() if line.startswith(f"[{rank}]") and "RuntimeWarning: an op" in line]
        assert len(lines) == 1 and f"on rank {rank} of 2: ranks called different operations" in lines[0]
