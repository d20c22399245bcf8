"""spawn(): results, exceptions, and nothing is left behind."""

import os
import pickle
import signal
import subprocess
import sys
import time

import pytest

import libdsc as dsc

SECONDS = 60
either_way = pytest.mark.parametrize("method", ["spawn", "forkserver"])
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def describes(rank, text):
    return rank, text, [os.environ[name] for name in NAMES], os.environ["DSC_JOB_ID"], os.getpid(), os.environ.get("TEST_METHOD")


@either_way
def test_results_and_environment(method, monkeypatch):
    monkeypatch.setenv("TEST_METHOD", "before")
    dsc.spawn(print, 1, timeout=SECONDS, start_method=method)
    monkeypatch.setenv("TEST_METHOD", method)  # must also work after a server with another value has run
    results = dsc.spawn(describes, 3, ("hello",), timeout=SECONDS, start_method=method)
    assert all(result[5] == method for result in results)
    assert [result[:3] for result in results] == [
        (rank, "hello", [str(rank), "3", str(rank), "3"]) for rank in range(3)
    ]
    assert len({result[3] for result in results}) == 1
    assert len({result[4] for result in results} | {os.getpid()}) == 4
    assert "RANK" not in os.environ


def has_written(path):
    return path.exists() and path.read_text() != ""


def fails(rank, folder):
    (folder / str(rank)).write_text(str(os.getpid()))
    if rank == 1:
        while not all(has_written(folder / str(r)) for r in range(3)):
            time.sleep(0.01)
        raise KeyError("lost")
    time.sleep(60)


@either_way
def test_an_exception_ends_all(tmp_path, method):
    started = time.monotonic()
    with pytest.raises(KeyError, match="lost") as caught:
        dsc.spawn(fails, 3, (tmp_path,), timeout=SECONDS, start_method=method)
    assert time.monotonic() - started < 30
    cause = caught.value.__cause__
    assert isinstance(cause, dsc.SpawnError) and cause.rank == 1
    assert "rank 1 raised" in str(cause) and "in fails" in str(cause)
    for rank in range(3):
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / str(rank)).read_text()), 0)


class Unpicklable(Exception):
    def __reduce__(self):
        raise TypeError("not me")


def raises_unpicklable(rank):
    raise Unpicklable("deep inside")


def test_an_exception_that_cannot_travel_sends_its_text():
    with pytest.raises(dsc.SpawnError, match="deep inside"):
        dsc.spawn(raises_unpicklable, 1, timeout=SECONDS)


def exits(rank, code):
    sys.exit(code)


@pytest.mark.parametrize("code", [0, 3, "no data"])
def test_a_rank_that_exits_does_not_end_the_caller(code):
    with pytest.raises(dsc.SpawnError, match=f"rank [01] raised(.|\n)*SystemExit: {code}"):
        dsc.spawn(exits, 2, (code,), timeout=SECONDS)


def kills_itself(rank):
    os.kill(os.getpid(), signal.SIGKILL)


@either_way
def test_a_killed_process_is_reported(method):
    with pytest.raises(dsc.SpawnError, match="rank 0 was killed by SIGKILL"):
        dsc.spawn(kills_itself, 1, timeout=SECONDS, start_method=method)


def sleeps(rank):
    time.sleep(60)


def test_time_out():
    with pytest.raises(TimeoutError, match=r"ranks \[0, 1\] did not end within 0.5 s"):
        dsc.spawn(sleeps, 2, timeout=0.5)


def test_a_wrong_start_method():
    with pytest.raises(ValueError, match='start_method is \'fork\'; expected one of "spawn", "forkserver"'):
        dsc.spawn(sleeps, 1, start_method="fork")


def returns_a_local_class(rank):
    class Local:
        pass

    return Local()


def touches_nothing(rank):
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)


def test_what_cannot_be_carried_back_and_a_signal_11(monkeypatch):
    with pytest.raises(pickle.PicklingError, match="^the result of fn cannot be sent to the caller: .* package cloudpickle"):
        dsc.spawn(returns_a_local_class, 2, timeout=SECONDS)
    with pytest.raises(dsc.SpawnError, match="rank 0 was killed by SIGSEGV; set PYTHONFAULTHANDLER=1 to print the Python stack"):
        dsc.spawn(touches_nothing, 1, timeout=SECONDS)


def test_wrong_number():
    with pytest.raises(ValueError, match="n is 0; expected the number of processes, 1 or more"):
        dsc.spawn(sleeps, 0)


def run(*command, given=None):
    """Returns what a program without cloudpickle prints on stderr, and its exit code."""
    clean = {name: value for name, value in os.environ.items() if name not in NAMES}
    done = subprocess.run([sys.executable, *command], input=given, env=clean, capture_output=True, text=True, timeout=SECONDS)
    return done.stderr, done.returncode


UNGUARDED = """
import sys, libdsc as dsc
print("script", flush=True)
def main(rank):
    pass
dsc.spawn(main, 3)
"""


@either_way
def test_a_script_without_a_guard_is_told_so(tmp_path, method):
    """Without a guard each process would start more processes."""
    script = tmp_path / "unguarded.py"
    script.write_text(UNGUARDED.replace("main, 3", f"main, 3, start_method={method!r}"))
    said, code = run(str(script))
    assert code == 1 and 'under `if __name__ == "__main__":`' in said, said
    assert said.count("Traceback") == 1 and "SpawnError: rank " in said or "RuntimeError: the fork server of multiprocessing ended; " in said
    assert "bootstrapping" not in said


def test_processes_of_multiprocessing_are_told_so_too(tmp_path):
    script = tmp_path / "unguarded.py"
    start = "import multiprocessing as m\nif __name__ == '__main__':\n    p = m.get_context('spawn').Process(target=print)\n"
    script.write_text(start + "    p.start(); p.join(); sys.exit(p.exitcode)\n" + UNGUARDED)
    script.write_text("import sys\n" + script.read_text())
    said, code = run(str(script))
    assert code == 1 and "RuntimeError: spawn() is called while a process of multiprocessing imports the script" in said
    script.write_text(script.read_text().replace("dsc.spawn(main, 3)", "dsc.init_distributed(rank=1, world_size=2, init_timeout=0.1)"))
    said, code = run(str(script))
    assert code == 1 and 'put the code of the script under `if __name__ == "__main__":`' in said


NOTEBOOK = """
import sys
sys.modules["cloudpickle"] = None  # as if it were not installed
import libdsc as dsc
def of_notebook(rank):
    return rank
class OfNotebook:
    pass
def local():
    return lambda rank: rank
"""


@pytest.mark.parametrize("call", ["of_notebook, 2", "local(), 2", "print, 2, (OfNotebook(),)"])
def test_cloudpickle_is_named_where_a_function_cannot_be_carried(call):
    said, code = run("-c", f"{NOTEBOOK}dsc.spawn({call})\n")
    assert code == 1 and "PicklingError: fn and args cannot be sent to other processes: " in said, said
    assert "needs the package cloudpickle: `pip install cloudpickle`, or define it in a module" in said


def test_a_program_from_standard_input_is_told_so():
    said, code = run(given=f"{NOTEBOOK}dsc.spawn(print, 2)\n")
    assert code == 1 and said.count("Traceback") == 1
    assert "RuntimeError: spawn() is called in a program without a file (<stdin>), so other processes cannot run this program" in said


def test_cloudpickle_is_not_named_where_it_is_installed(tmp_path):
    """A replacement that pickles as pickle does."""
    (tmp_path / "cloudpickle.py").write_text("from pickle import dumps")
    program = NOTEBOOK.replace("sys.modules", "{}").replace("import sys", f"import sys; sys.path.insert(0, {str(tmp_path)!r})")
    said, code = run("-c", f"{program}dsc.spawn(local(), 2)\n")
    assert code == 1 and "PicklingError: fn and args cannot be sent" in said and "pip install" not in said


def test_the_traceback_of_a_rank_begins_in_the_program():
    with pytest.raises(dsc.SpawnError) as caught:
        dsc.spawn(raises_unpicklable, 1, timeout=SECONDS)
    assert "libdsc/_spawn.py" not in str(caught.value) and "in raises_unpicklable" in str(caught.value)
