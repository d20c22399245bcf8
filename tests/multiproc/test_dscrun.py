"""dscrun: environment, output, arguments. test_dscrun_endings.py tests how runs end."""

import os
import re
import signal
import subprocess
import time

import launch
import pytest
from launch import PYTHON, run

SHOW = 'echo "$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT $DSC_JOB_ID"'


def without(*names):
    return {name: value for name, value in os.environ.items() if name not in names}


def test_every_rank_gets_its_place():
    result = run("-n", "4", "--", "sh", "-c", SHOW, env=without("MASTER_PORT"))
    assert (result.returncode, result.stderr) == (0, "")
    ids = set()
    for rank in range(4):
        (line,) = launch.lines_of(result.stdout, rank)
        *place, job_id = line.split()
        assert place == [str(rank), "4", str(rank), "4", "127.0.0.1", "29500"]
        ids.add(job_id)
    (job_id,) = ids
    assert re.fullmatch("[0-9a-f]{32}", job_id)


def test_every_run_has_its_own_id_also_inside_another():
    show = ("-n", "1", "--no-prefix", "--", "sh", "-c", "echo $DSC_JOB_ID")
    inner = run("-n", "1", "--no-prefix", "--", launch.DSCRUN, *show).stdout
    outer = run(*show).stdout
    assert len(inner) == len(outer) == 33 and inner != outer


def test_port_and_extra_variables():
    show = ("-n", "1", "--no-prefix", "--", "sh", "-c", "echo $MASTER_PORT $A-$B")
    environment = {**os.environ, "MASTER_PORT": "1234", "B": "old"}
    assert run(*show, env=environment).stdout == "1234 -old\n"
    assert run("--port", "77", "--env", "A=x y", "--env", "B=c=d", *show, env=environment).stdout == "77 x y-c=d\n"


def test_one_rank_per_core_by_default():
    result = run("sh", "-c", "echo $WORLD_SIZE")
    assert len(result.stdout.splitlines()) == len(os.sched_getaffinity(0))


def test_command_keeps_its_arguments():
    show = ("printf", "%s|", "-n", "--", "a b", "")
    assert run("-n", "1", "--", *show).stdout == run("-n", "1", *show).stdout == "[0] -n|--|a b||\n"


def test_rank_0_reads_standard_input_the_others_nothing():
    result = run("-n", "3", "--", "sh", "-c", "cat; readlink /proc/self/fd/0", stdin=None, input="one\ntwo\n")
    assert launch.lines_of(result.stdout, 0)[:2] == ["one", "two"]
    assert launch.lines_of(result.stdout, 1) == launch.lines_of(result.stdout, 2) == ["/dev/null"]


def test_ranks_start_with_clean_signals_and_descriptors():
    def spoil():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1])
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGTTOU, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)

    status = run("-n", "2", "--", "grep", "-E", "Sig(Blk|Ign)", "/proc/self/status", preexec_fn=spoil)
    files = run("-n", "2", "--", "sh", "-c", "ls /proc/$$/fd; echo $DSC_TOKEN_FD")
    for rank in range(2):
        assert launch.lines_of(status.stdout, rank) == ["SigBlk:\t" + "0" * 16, "SigIgn:\t" + "0" * 16]
        *open_files, token = launch.lines_of(files.stdout, rank)
        assert open_files == ["0", "1", "2", token]


# Writes numbered lines of up to argv[2] bytes to both outputs, in pieces that end anywhere.
WRITER = """
import os, random, sys
rank, lines, width = int(os.environ["RANK"]), int(sys.argv[1]), int(sys.argv[2])
choose = random.Random(rank)
def text(fd):
    return b"".join(b"%d %d %d %s\\n" % (fd, rank, i, b"x" * (i * 997 % width)) for i in range(lines))
streams = {1: text(1), 2: text(2)}
while any(streams.values()):
    fd = choose.choice([fd for fd in streams if streams[fd]])
    size = os.write(fd, streams[fd][: choose.randrange(1, 30 * width)])
    streams[fd] = streams[fd][size:]
"""


def expected_lines(fd, rank, lines, width):
    return [f"{fd} {rank} {i} " + "x" * (i * 997 % width) for i in range(lines)]


def test_four_chatty_ranks_stay_whole_ordered_and_apart():
    result = run("-n", "4", "--", PYTHON, "-c", WRITER, "5000", "90")
    assert result.returncode == 0
    for fd, text in ((1, result.stdout), (2, result.stderr)):
        assert text.count("\n") == 4 * 5000
        for rank in range(4):
            assert launch.lines_of(text, rank) == expected_lines(fd, rank, 5000, 90)


@pytest.mark.parametrize("lines, width", [(5000, 90), (200, 30000)])
def test_lines_stay_whole_when_both_outputs_are_one(lines, width):
    command = [launch.DSCRUN, "-n", "4", "--", PYTHON, "-c", WRITER, str(lines), str(width)]
    text = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60).stdout
    assert text.count("\n") == 2 * 4 * lines
    for rank in range(4):
        for fd in (1, 2):
            got = [line for line in launch.lines_of(text, rank) if line.startswith(f"{fd} ")]
            assert got == expected_lines(fd, rank, lines, width)


def test_last_line_without_newline_comes_out_whole():
    result = run("-n", "2", "--", "sh", "-c", "printf 'a\\n\\nb'; printf c >&2")
    for rank in range(2):
        assert launch.lines_of(result.stdout, rank) == ["a", "", "b"]
        assert launch.lines_of(result.stderr, rank) == ["c"]


@pytest.mark.parametrize("size, pieces", [(65536, [65536]), (65537, [65536, 1]), (200000, [65536] * 3 + [3392])])
def test_long_lines_come_in_pieces(size, pieces):
    result = run("-n", "2", "--", PYTHON, "-c", f"print('x' * {size}); print('end')")
    for rank in range(2):
        assert [len(line) for line in launch.lines_of(result.stdout, rank)] == pieces + [3]


def test_without_prefix():
    assert sorted(run("-n", "2", "--no-prefix", "--", "sh", "-c", "echo $RANK").stdout) == ["\n", "\n", "0", "1"]
    copy = [launch.DSCRUN, "-n", "1", "--no-prefix", "--", "cat"]
    data = os.urandom(300_000)
    assert subprocess.run(copy, input=data, capture_output=True, timeout=60).stdout == data


def test_reader_that_goes_away_ends_the_writers():
    job = launch.Started("-n", "2", "--grace", "0.2", "--", "yes")
    job.read_lines(2)
    job.process.stdout.close()
    job.process.wait(timeout=launch.LIMIT_S)
    assert job.process.returncode == 128 + signal.SIGPIPE
    assert b"died by signal 13 (Broken pipe)" in job.process.stderr.read()


def test_reader_that_does_not_read_costs_little_and_stops_nothing():
    job = launch.Started("-n", "2", "--timeout", "5", "--grace", "0.2", "--", "yes", "x" * 1000)
    time.sleep(0.7)
    status = open(f"/proc/{job.keeper()}/status", encoding="ascii").read()
    assert int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) < 64 << 10
    assert job.process.wait(timeout=launch.LIMIT_S) == 124
    assert b"time limit of 5 s reached; still running: ranks 0, 1" in job.process.communicate()[1]


@pytest.mark.parametrize(
    "args, text",
    [
        (["-n", "0", "--", "true"], "-n: expected a whole number from 1 to 4096, got '0'"),
        (["-n", "-1", "--", "true"], "-n: expected a whole number from 1 to 4096, got '-1'"),
        (["-n", "two", "--", "true"], "-n: expected a whole number from 1 to 4096, got 'two'"),
        (["-n", "3x", "--", "true"], "-n: expected a whole number from 1 to 4096, got '3x'"),
        (["-n"], "-n"),
        (["-n", "2"], "no command given"),
        (["-n", "2", "--"], "no command given"),
        (["-n", "2", "--", ""], "no command given"),
        (["--graze", "2", "--", "true"], "unknown option '--graze'; did you mean '--grace'?"),
        (["--host-file=x", "--", "true"], "unknown option '--host-file=x'; did you mean '--hostfile'?"),
        (["-np", "2", "true"], "unknown option '-np'; did you mean '-n'?"),
        (["-np2", "true"], "unknown option '-np2'; did you mean '-n'?"),
        (["--nproc-per-node", "2", "true"], "unknown option '--nproc-per-node'; did you mean '-n'?"),
        (["--nproc_per_node=2", "true"], "unknown option '--nproc_per_node=2'; did you mean '-n'?"),
        (["--master_addr", "a", "true"], "unknown option '--master_addr'; did you mean '--master-addr'?"),
        (["--timeout", "0", "true"], "--timeout: expected seconds, more than 0, got '0'"),
        (["--timeout", "nan", "true"], "--timeout: expected seconds"),
        (["--grace", "-1", "true"], "--grace: expected seconds, 0 or more, got '-1'"),
        (["--port", "65536", "true"], "--port: expected a whole number from 1 to 65535, got '65536'"),
        (["--env", "A", "true"], "--env: expected NAME=VALUE, got 'A'"),
        (["--env", "RANK=3", "true"], "RANK cannot be set, because dscrun sets it itself"),
    ],
)
def test_wrong_usage(args, text):
    result = run(*args)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("dscrun: ") and text in result.stderr


def test_wrong_port_in_the_environment():
    result = run("true", env={**os.environ, "MASTER_PORT": "http"})
    assert result.returncode == 2 and "MASTER_PORT in the environment: expected a whole number" in result.stderr


def test_commands_that_cannot_run(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("text")
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    for command, code, text in [
        ("no-such-command", 127, "no-such-command: command not found"),
        (str(tmp_path / "none"), 127, "No such file or directory"),
        (str(script), 127, "its interpreter was not found"),
        (str(plain), 126, "Permission denied"),
        (str(tmp_path), 126, "Permission denied"),
    ]:
        result = run("-n", "3", "--", command)
        assert (result.returncode, result.stdout) == (code, "")
        assert text in result.stderr and command in result.stderr and result.stderr.count("\n") == 1


def test_a_forgotten_interpreter(tmp_path):
    (tmp_path / "hello.py").write_text("print('hello')")
    (tmp_path / "run").write_text("#!/bin/sh\n")
    (tmp_path / "run").chmod(0o755)
    for command, code, text in [
        ("hello.py", 127, "hello.py: command not found; did you mean 'python3 hello.py'?"),
        ("./hello.py", 126, "cannot run ./hello.py: Permission denied; did you mean 'python3 ./hello.py'?"),
        ("run", 127, "run: command not found; did you mean './run'?"),
        ("other.py", 127, "other.py: command not found\n"),
    ]:
        result = run("-n", "2", command, cwd=tmp_path)
        assert (result.returncode, result.stdout) == (code, "") and text in result.stderr


def test_help_and_version():
    result = run("--help")
    assert result.returncode == 0 and result.stdout.startswith("Usage: dscrun ") and "--keep-going" in result.stdout
    assert re.fullmatch(r"dscrun \d+\.\d+\.\d+\n", run("--version").stdout)


if __name__ == "__main__":
    launch.main(__file__)
