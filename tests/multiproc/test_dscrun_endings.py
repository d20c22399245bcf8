"""dscrun: failures, signals, time limits. Nothing may outlive a run, however it ends (see conftest.py)."""

import os
import pty
import re
import select
import signal
import time

import launch
import pytest
from launch import AT_ONCE_S, PYTHON, Started, run

# Prints "ready" when its handler is installed, counts the signal for a while, and exits with 0.
COUNTER = """
import os, signal, sys, time
count = 0
def on_signal(number, frame):
    global count
    count += 1
signal.signal(getattr(signal, sys.argv[1]), on_signal)
print("ready", flush=True)
end = time.monotonic() + 20
while count == 0 and time.monotonic() < end:
    time.sleep(0.01)
time.sleep(0.3)
print("count", count)
"""


# Each rank has a child, a grandchild in another session, and a child that ignores SIGTERM.
FAMILY = "(trap '' TERM; exec sleep 30) & setsid sh -c 'sleep 30 & sleep 30' & sleep 30 & "


def sh(script):
    return ("sh", "-c", script)


def only_rank(rank, then, others="sleep 30"):
    return sh(f"if [ $RANK = {rank} ]; then {then}; else {others}; fi")


def elapsed(start):
    return time.monotonic() - start


def test_first_failure_is_named_and_its_code_returned():
    start = time.monotonic()
    result = run("-n", "3", "--grace", "0.3", "--", *only_rank(1, "exit 3"))
    assert result.returncode == 3 and 0.3 < elapsed(start) < 25
    assert "rank 1 exited with code 3; waiting up to 0.3 s for ranks 0, 2 to end" in result.stderr
    assert "SIGTERM to ranks 0, 2" in result.stderr and "SIGKILL" not in result.stderr
    assert re.fullmatch(r"dscrun: rank 1 \(pid \d+\) exited with code 3 after \d+\.\d m?s", result.stderr.splitlines()[-1])


def test_rank_killed_by_a_signal():
    result = run("-n", "2", "--grace", "0.2", "--", *only_rank(1, "kill -9 $$"))
    assert result.returncode == 128 + 9
    assert re.search(r"dscrun: rank 1 \(pid \d+\) died by signal 9 \(Killed\) after .* m?s\n$", result.stderr)


def test_a_signal_11_leads_to_pythons_traceback(monkeypatch):
    monkeypatch.delenv("PYTHONFAULTHANDLER", raising=False)
    result = run("-n", "1", "--", "sh", "-c", "kill -11 $$")
    assert "(Segmentation fault" in result.stderr and "; for a Python program, set PYTHONFAULTHANDLER=1 to print the Python stack)" in result.stderr
    monkeypatch.setenv("PYTHONFAULTHANDLER", "1")
    assert "to print the Python stack" not in run("-n", "1", "--", "sh", "-c", "kill -11 $$").stderr


def test_others_may_end_by_themselves_within_the_grace():
    start = time.monotonic()
    result = run("-n", "2", "--grace", "20", "--", *only_rank(0, "exit 7", "sleep 0.3; echo saved"))
    assert result.returncode == 7 and elapsed(start) < 15
    assert result.stdout == "[1] saved\n" and "SIGTERM" not in result.stderr


def test_success_of_one_rank_ends_nobody():
    result = run("-n", "2", "--grace", "0", "--", *only_rank(0, "exit 0", "sleep 0.3; echo done"))
    assert (result.returncode, result.stdout, result.stderr) == (0, "[1] done\n", "")


def wait_until_ended(pid):
    """Waits until the process has ended, even if its parent has not reaped it yet."""
    deadline = time.monotonic() + AT_ONCE_S
    while open(f"/proc/{pid}/stat", encoding="ascii").read().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.05)


def test_first_is_the_first_even_when_dscrun_looks_late():
    job = Started("-n", "3", "--", *sh("echo $$; exec sleep 30"))
    pids = {int(line[1]): int(line[4:]) for line in job.read_lines(3)}
    keeper = job.keeper()
    launch.stop_process(keeper)
    for rank in (2, 0, 1):
        os.kill(pids[rank], signal.SIGKILL)
        wait_until_ended(pids[rank])
    os.kill(keeper, signal.SIGCONT)
    code, _, err = job.finish()
    assert code == 137 and f"rank 2 (pid {pids[2]}) died by signal 9 (Killed)" in err.splitlines()[-1]


def test_rank_that_ignores_sigterm_is_killed_after_the_grace(tmp_path):
    start = time.monotonic()
    ignore = "trap '' TERM; touch $READY/$RANK; sleep 30; sleep 30"
    when_they_ignore_it = "until [ -e $READY/1 -a -e $READY/2 ]; do sleep 0.02; done; exit 1"
    result = run("-n", "3", "--grace", "0.3", "--env", f"READY={tmp_path}", "--", *only_rank(0, when_they_ignore_it, ignore))
    assert result.returncode == 1 and 0.6 < elapsed(start) < 25
    assert "SIGTERM to ranks 1, 2" in result.stderr and "SIGKILL to ranks 1, 2" in result.stderr


def test_stopped_rank_gets_its_sigterm():
    result = run("-n", "2", "--grace", "0.3", "--", *only_rank(0, "sleep 0.2; exit 1", "kill -STOP $$"))
    assert result.returncode == 1 and "SIGKILL" not in result.stderr


def test_keep_going():
    script = only_rank(1, "exit 3", "sleep 0.5; echo done; exit $((RANK * 2))")
    result = run("-n", "3", "--grace", "0", "--keep-going", "--", *script)
    assert result.returncode == 3
    assert sorted(result.stdout.splitlines()) == ["[0] done", "[2] done"]
    assert "rank 1 (pid" in result.stderr and result.stderr.endswith("dscrun: failed later: rank 2\n")


def test_allowed_failures():
    script = only_rank(1, "kill -KILL $$", "sleep 0.5; echo done; exit $((RANK / 2 * 5))")
    one = run("-n", "2", "--grace", "0", "--allow-failures", "1", "--", *script)
    assert one.returncode == 0 and one.stdout == "[0] done\n"
    assert "rank 1 died by signal 9 (Killed); failure 1 of 1 allowed failures" in one.stderr
    two = run("-n", "3", "--allow-failures", "1", "--", *script)  # rank 2 exits with 5, which is one failure too many
    assert two.returncode == 5 and "rank 2 (pid" in two.stderr
    assert run("-n", "3", "--allow-failures", "2", "--", *script).returncode == 0
    long = only_rank(1, "kill -KILL $$", "sleep 30; echo done")
    stopped = run("-n", "2", "--grace", "0", "--allow-failures", "0", "--", *long)
    assert stopped.returncode == 128 + signal.SIGKILL and stopped.stdout == ""
    wrong = run("-n", "2", "--allow-failures", "2", "--", "true")
    assert wrong.returncode == 2 and "expected fewer than the 2 ranks, got '2'" in wrong.stderr


def test_time_limit():
    start = time.monotonic()
    result = run("-n", "3", "--timeout", "3", "--grace", "0.3", "--", *only_rank(1, "exit 0", "trap '' TERM; sleep 30; sleep 30"))
    assert result.returncode == 124 and 3.3 < elapsed(start) < 25
    assert "time limit of 3 s reached; still running: ranks 0, 2" in result.stderr
    assert run("-n", "2", "--timeout", "20", "--", "true").returncode == 0


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"])
def test_signal_reaches_every_rank_once(name):
    job = Started("-n", "3", "--", PYTHON, "-c", COUNTER, name)
    job.read_lines(3)
    job.signal(getattr(signal, name))
    code, out, _ = job.finish()
    assert code == 0
    assert sorted(out.splitlines()[3:]) == [f"[{rank}] count 1" for rank in range(3)]


def test_signal_reaches_the_command_below_a_shell():
    job = Started("-n", "2", "--", *sh(f"trap : INT; {PYTHON} -c '{COUNTER}' SIGINT; true"))
    job.read_lines(2)
    job.signal(signal.SIGINT)
    assert sorted(job.finish()[1].splitlines()[2:]) == ["[0] count 1", "[1] count 1"]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_second_signal_kills_at_once(name):
    job = Started("-n", "2", "--grace", "60", "--", *sh(FAMILY + "trap '' INT TERM; echo ready; while :; do sleep 0.1; done"))
    job.read_lines(2)
    number = getattr(signal, name)
    for text in (f"{name} passed on to ranks 0, 1; send it again to kill them", "SIGKILL to ranks 0, 1"):
        assert job.process.poll() is None
        job.signal(number)
        assert text in job.process.stderr.readline().decode()
    start = time.monotonic()
    assert job.finish()[0] == 137
    launch.wait_until_nothing_is_left(0)
    assert elapsed(start) < AT_ONCE_S


@pytest.mark.parametrize("name", ["INT", "TERM"])
def test_a_rank_may_write_a_checkpoint_after_the_end_of_another(name):
    writes = f"trap 'sleep 1.5; echo written; exit 0' {name}; echo ready; while :; do sleep 0.1; done"
    job = Started("-n", "2", "--grace", "0.3", "--", *only_rank(0, writes, "echo ready; exec sleep 30"))
    job.read_lines(2)
    job.signal(getattr(signal, "SIG" + name))
    code, out, err = job.finish()
    assert "[0] written" in out and code == 128 + getattr(signal, "SIG" + name), out + err
    assert "waiting up to" not in err and "SIGKILL" not in err, err


def test_ignored_hangup_stays_ignored():
    ignore = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}
    job = Started("-n", "1", "--", *sh("echo ready; kill -HUP $$; read line; echo $line"), stdin=-1, **ignore)
    job.read_lines(1)
    job.signal(signal.SIGHUP)
    job.process.stdin.write(b"alive\n")
    code, out, _ = job.finish()
    assert code == 0 and out.splitlines()[1] == "[0] alive"


def read_terminal(terminal, text, limit_s=20):
    seen, deadline = b"", time.monotonic() + limit_s
    while text not in seen:
        assert select.select([terminal], [], [], deadline - time.monotonic())[0], f"no {text!r} in {seen!r}"
        seen += os.read(terminal, 4096)
    return seen


def test_terminal_interrupt_reaches_every_rank_once_and_rank_0_can_read():
    counter = COUNTER.replace('print("ready"', 'print("got", os.environ["RANK"] == "0" and input() or "ready"')
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm", NO_COLOR="")
        os.execv(launch.DSCRUN, [launch.DSCRUN, "-n", "3", "--", PYTHON, "-c", counter, "SIGINT"])
    os.write(terminal, b"typed\n")
    seen = b""
    while seen.count(b"got") < 3:
        seen += read_terminal(terminal, b"\n")
    assert b"\x1b[36m[0]\x1b[0m got typed" in seen
    os.write(terminal, b"\x03")
    seen = b""
    while seen.count(b"count") < 3:
        seen += read_terminal(terminal, b"\n")
    assert seen.count(b"count 1\r\n") == 3, seen
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)


def test_grandchildren_end_with_the_ranks():
    start = time.monotonic()
    result = run("-n", "2", "--grace", "0.3", "--", *sh(FAMILY + "echo ready; exit 0"))
    launch.wait_until_nothing_is_left(0)
    assert result.returncode == 0 and elapsed(start) < 25


@pytest.mark.parametrize("victim", ["front", "keeper"])
def test_killed_dscrun_takes_everything_along(victim):
    job = Started("-n", "4", "--", *sh(FAMILY + "echo ready; wait"))
    job.read_lines(4)
    os.kill(job.pid if victim == "front" else job.keeper(), signal.SIGKILL)
    start = time.monotonic()
    code, _, err = job.finish()  # the pipes close only when the last process of the job has ended
    launch.wait_until_nothing_is_left()
    assert elapsed(start) < AT_ONCE_S
    assert code == (-signal.SIGKILL if victim == "front" else 137)
    assert ("SIGKILL to ranks 0, 1, 2, 3" if victim == "front" else "supervising process died by signal 9") in err


def test_ranks_end_even_when_nobody_is_there_to_end_them():
    job = Started("-n", "2", "--", *sh("echo ready; exec sleep 30"))
    job.read_lines(2)
    launch.stop_process(job.pid)
    os.kill(job.keeper(), signal.SIGKILL)
    os.kill(job.pid, signal.SIGKILL)
    start = time.monotonic()
    job.finish()
    launch.wait_until_nothing_is_left()
    assert elapsed(start) < AT_ONCE_S


if __name__ == "__main__":
    launch.main(__file__)
