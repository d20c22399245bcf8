"""dscrun on several hosts: where ranks run, what is sent to the hosts, and that nothing outlives the connection."""

import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

import fake_ssh
import launch
import pytest
from launch import AT_ONCE_S, PYTHON, Started, run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import jobs  # noqa: E402

SHOW = (
    'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE '
    '$MASTER_ADDR:$MASTER_PORT $DSC_JOB_ID ${CUDA_VISIBLE_DEVICES-all}"'
)


@pytest.fixture()
def hosts(tmp_path):
    found = fake_ssh.Hosts(tmp_path)
    yield found
    found.close()


@pytest.fixture()
def job(tmp_path, hosts):
    """Returns arguments for one rank on this host, two on nodeA and one on nodeB."""
    file = tmp_path / "hosts"
    file.write_text("localhost slots=1\nnodeA slots=2 # two\nnodeB slots=1\n")
    return ["--hostfile", str(file), "--master-addr", "127.0.0.1", "--ssh-command", hosts.ssh_command()]


def sh(script):
    return ["--", "sh", "-c", script]


def without_tokens(**more):
    return {**{name: value for name, value in os.environ.items() if not name.startswith("DSC_TOKEN")}, **more}


def test_every_rank_gets_its_place(job, hosts):
    result = run(*job, *sh(SHOW))
    assert (result.returncode, result.stderr) == (0, "")
    lines = [launch.lines_of(result.stdout, rank)[0].split() for rank in range(4)]
    assert [line[:4] for line in lines] == [
        ["0/4", "0/1", "0/3", "127.0.0.1:29500"],
        ["1/4", "0/2", "1/3", "127.0.0.1:29500"],
        ["2/4", "1/2", "1/3", "127.0.0.1:29500"],
        ["3/4", "0/1", "2/3", "127.0.0.1:29500"],
    ]
    assert len({line[4] for line in lines}) == 1 and re.fullmatch("[0-9a-f]{32}", lines[0][4])
    assert {line[5] for line in lines} == {"all"}
    assert sorted(hosts.commands) == [
        ("nodeA", f"exec {launch.DSCRUN} --as-node --node-rank 1"),
        ("nodeB", f"exec {launch.DSCRUN} --as-node --node-rank 2"),
    ]


def test_chosen_slots_are_the_devices_that_ranks_see(job):
    result = run(*job, "--include", "nodeB@nodeA:1", *sh(SHOW))
    lines = [launch.lines_of(result.stdout, rank)[0].split() for rank in range(2)]
    assert [(line[0], line[5]) for line in lines] == [("0/2", "1"), ("1/2", "all")]
    assert run(*job, "-e", "nodeA@nodeB", *sh(SHOW)).stdout.startswith("[0] 0/1 0/1 0/1 127.0.0.1:29500 ")


# Each rank reads its descriptor to the end, starts itself again, reads the descriptor once more, and checks all command
# lines.
READ_TOKEN = """
import os, pathlib, sys
fd = int(os.environ["DSC_TOKEN_FD"])
token = os.pread(fd, 100, 0)
if len(sys.argv) == 1:
    assert os.read(fd, 100) == token and os.lseek(fd, 0, os.SEEK_CUR) == 64
    os.set_inheritable(fd, True)
    os.execv(sys.executable, [sys.executable, "-c", sys.orig_argv[2], "again"])
assert len(token) == 64 and int(token, 16) >= 0
def words(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""
assert not any(token in words(path) for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"))
try:
    os.pwrite(fd, b"0", 0)
except OSError:
    print(token.decode(), "DSC_TOKEN" in os.environ or "DSC_TOKEN_FILE" in os.environ)
"""


def test_all_ranks_share_a_fresh_token_that_no_command_line_shows(job):
    seen = set()
    for _ in range(2):
        result = run(*job, "--", PYTHON, "-c", READ_TOKEN, env=without_tokens())
        assert (result.returncode, result.stderr) == (0, "")
        (line,) = {launch.lines_of(result.stdout, rank)[0] for rank in range(4)}
        assert line.endswith(" False")
        seen.add(line)
    assert len(seen) == 2


def test_the_users_token_reaches_all_ranks(job, tmp_path):
    token, file = "0123456789abcdef" * 4, tmp_path / "token"
    file.write_text(f" {token}\r\n")
    file.chmod(0o600)
    with open(file, "rb") as opened:
        opened.read()  # leaves the position at the end of the file, as an earlier reader may have done
        number = str(opened.fileno())
        for given in ({"DSC_TOKEN": token}, {"DSC_TOKEN_FILE": str(file)}, {"DSC_TOKEN_FD": number, "DSC_TOKEN": "x"}):
            result = run(
                *job, "--", PYTHON, "-c", READ_TOKEN, env=without_tokens(**given), pass_fds=[opened.fileno()]
            )
            assert {launch.lines_of(result.stdout, rank)[0] for rank in range(4)} == {token + " False"}, result.stderr


@pytest.mark.parametrize(
    "given, text",
    [
        ({"DSC_TOKEN": "abc"}, "DSC_TOKEN has 3 characters, expected 64 hexadecimal digits"),
        ({"DSC_TOKEN": " \r\n"}, "DSC_TOKEN has 0 characters, expected 64 hexadecimal digits"),
        ({"DSC_TOKEN": "a" + "x" * 64}, "DSC_TOKEN has 65 characters, expected 64 hexadecimal digits"),
        ({"DSC_TOKEN": "a" + "x" * 63}, "DSC_TOKEN has a character at position 2 that is not a hexadecimal digit"),
        ({"DSC_TOKEN_FILE": "/nowhere"}, "DSC_TOKEN_FILE: opening /nowhere: No such file"),
        ({"DSC_TOKEN_FILE": "/"}, "DSC_TOKEN_FILE / is not a regular file"),
        ({"DSC_TOKEN_FD": "99"}, "DSC_TOKEN_FD is 99, expected an open descriptor: Bad file descriptor"),
        ({"DSC_TOKEN_FD": "1x"}, "DSC_TOKEN_FD is '1x', expected the number of an open descriptor"),
        ({"DSC_TOKEN_FD": "0"}, "DSC_TOKEN_FD is 0, which is neither a file nor a pipe"),
    ],
)
def test_wrong_tokens(given, text):
    result = run("-n", "1", "--", "true", env=without_tokens(**given))
    assert result.returncode == 125 and text in result.stderr and "x" * 63 not in result.stderr


def test_token_files_that_are_open_to_others(tmp_path):
    file, pipe = tmp_path / "token", tmp_path / "pipe"
    file.write_text("ab" * 32)
    os.mkfifo(pipe, 0o600)
    for mode in (0o640, 0o602):
        file.chmod(mode)
        result = run("-n", "1", "--", "true", env=without_tokens(DSC_TOKEN_FILE=str(file)))
        assert result.returncode == 125 and f"has mode {mode:o}, expected 600: other users may read or write it" in result.stderr
    result = run("-n", "1", "--", "true", env=without_tokens(DSC_TOKEN_FILE=str(pipe)))
    assert result.returncode == 125 and f"DSC_TOKEN_FILE {pipe} is not a regular file" in result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_token_files_of_others(tmp_path):
    file = tmp_path / "token"
    file.write_text("ab" * 32)
    file.chmod(0o600)
    os.chown(file, 12345, -1)
    result = run("-n", "1", "--", "true", env=without_tokens(DSC_TOKEN_FILE=str(file)))
    assert result.returncode == 125 and "belongs to user 12345, expected 0" in result.stderr


def test_a_token_comes_through_a_pipe():
    end, other_end = os.pipe()
    os.write(other_end, b"ab" * 32)
    os.close(other_end)
    result = run("-n", "1", "--", PYTHON, "-c", READ_TOKEN, env=without_tokens(DSC_TOKEN_FD=str(end)), pass_fds=[end])
    os.close(end)
    assert result.stdout == f"[0] {'ab' * 32} False\n", result.stderr


NASTY = "a 'b' \"c\" $HOME `id` \\ *\n;&|"


def test_folder_environment_and_arguments_travel_unchanged(job, tmp_path):
    folder = tmp_path / "it's a $folder"
    folder.mkdir()
    show = "import json, os, sys; print(json.dumps([os.getcwd(), dict(os.environ), sys.argv[1:]]))"
    own = {"NCCL_NASTY": NASTY, "DSC_LOG": "info", "PYTHONPATH": "/p q", "DSC_HOST_ID": "here", "OWN": NASTY, "HOME": "/h"}
    given = ["--export", "OWN", "--export", "MORE=" + NASTY, "--env", "LESS="]
    result = run(*job, *given, "--", PYTHON, "-c", show, NASTY, "", env=without_tokens(**own), cwd=folder)
    assert result.returncode == 0, result.stderr
    for rank in range(4):
        (line,) = launch.lines_of(result.stdout, rank)
        where, environment, words = json.loads(line)
        assert where == str(folder) and words == [NASTY, ""]
        for name in ("NCCL_NASTY", "OWN", "MORE"):
            assert environment[name] == NASTY
        assert (environment["DSC_LOG"], environment["PYTHONPATH"], environment["LESS"]) == ("info", "/p q", "")
        assert environment.get("DSC_HOST_ID") == ("here" if rank == 0 else None)
        assert environment["HOME"] == ("/h" if rank == 0 else "/")


def test_lines_of_other_hosts_stay_whole(job):
    write = "import sys; print('x' * 65537); print('last', end=''); print('error', file=sys.stderr)"
    result = run(*job, "--", PYTHON, "-c", write)
    for rank in range(4):
        assert [len(line) for line in launch.lines_of(result.stdout, rank)] == [65536, 1, 4]
        assert launch.lines_of(result.stderr, rank) == ["error"]
    plain = run(*job, "--no-prefix", *sh("echo $RANK; echo @ended 0 0"))
    assert sorted(plain.stdout.split("\n")) == [""] + ["0", "1", "2", "3"] + ["@ended 0 0"] * 4


FAMILY = "(trap '' TERM; exec sleep 30) & setsid sh -c 'sleep 30 & sleep 30' & sleep 30 & "


def test_first_failure_ends_all_hosts(job):
    start = time.monotonic()
    result = run(*job, "--grace", "0.3", *sh(FAMILY + "echo ready; sleep 0.3; [ $RANK = 2 ] && exit 3; wait"))
    launch.wait_until_nothing_is_left(0)
    assert result.returncode == 3 and time.monotonic() - start < 25
    assert "dscrun: rank 2 exited with code 3; waiting up to 0.3 s for ranks 0, 1, 3 to end" in result.stderr
    last = result.stderr.splitlines()[-1]
    assert re.fullmatch(r"dscrun: rank 2 \(pid \d+ on nodeA\) exited with code 3 after \d+\.\d m?s", last)


def test_allowed_failures_count_over_all_hosts(job):
    script = "[ $RANK = 1 ] && kill -9 $$; [ $RANK = 3 ] && exit 5; sleep {}; echo done"
    two = run(*job, "--grace", "0", "--allow-failures", "2", *sh(script.format(0.5)))
    assert two.returncode == 0 and two.stderr.count("allowed failures") == 2
    assert sorted(two.stdout.splitlines()) == ["[0] done", "[2] done"]
    one = run(*job, "--grace", "0", "--allow-failures", "1", *sh(script.format(30)))
    assert one.returncode in (5, 137) and one.stdout == ""


def test_signals_reach_other_hosts(job):
    running = Started(*job, *sh("trap 'echo got; exit 0' USR1; echo ready; while :; do sleep 0.1; done"))
    running.read_lines(4)
    running.signal(signal.SIGUSR1)
    code, out, _ = running.finish()
    assert code == 0 and sorted(out.splitlines()[4:]) == [f"[{rank}] got" for rank in range(4)]
    stubborn = Started(*job, *sh(FAMILY + "trap '' INT TERM; echo ready; while :; do sleep 0.1; done"))
    stubborn.read_lines(4)
    for _ in range(2):
        stubborn.signal(signal.SIGINT)
        stubborn.process.stderr.readline()
    start = time.monotonic()
    assert stubborn.finish()[0] == 137 and time.monotonic() - start < AT_ONCE_S


@pytest.mark.parametrize("victim", ["front", "keeper", "both"])
def test_killed_dscrun_takes_all_hosts_along(job, victim):
    # When both processes of dscrun are killed, the kernel ends the ranks of this host, but not the processes that they
    # started.
    alone = "[ $RANK = 0 ] && { echo ready; exec sleep 30; }; " if victim == "both" else ""
    running = Started(*job, *sh(alone + FAMILY + "echo ready; wait"))
    running.read_lines(4)
    keeper = running.keeper()
    if victim == "both":
        running.signal(signal.SIGSTOP)
    if victim != "front":
        os.kill(keeper, signal.SIGKILL)
    if victim != "keeper":
        running.signal(signal.SIGKILL)
    start = time.monotonic()
    running.process.stdout.close()
    running.process.stderr.close()
    running.process.wait(AT_ONCE_S)
    launch.wait_until_nothing_is_left()
    assert time.monotonic() - start < AT_ONCE_S


def find_children(pid):
    return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def lose_connection(running):
    ssh = [pid for pid in find_children(running.keeper()) if b"nodeA" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(ssh[0], signal.SIGKILL)


def test_lost_connection_ends_the_ranks_behind_it_and_the_job(job):
    running = Started(*job, "--grace", "0.2", *sh(FAMILY + "echo ready; wait"))
    running.read_lines(4)
    lose_connection(running)
    code, _, err = running.finish()
    launch.wait_until_nothing_is_left()
    assert code == 137
    assert "rank 1 was lost: the connection to nodeA died by signal 9 (Killed)" in err


def test_a_silent_dscrun_is_lost(job):
    running = Started(*job, "--lost-after", "4", "--exclude", "localhost", *sh(FAMILY + "echo ready; wait"))
    running.read_lines(3)
    time.sleep(5)  # heartbeats keep the other hosts waiting
    connections = find_children(running.keeper())
    assert len(connections) == 2
    launch.stop_process(running.keeper())
    deadline = time.monotonic() + 4 + AT_ONCE_S  # the connections stay open, but the other ends close them after 4 s
    while any(pathlib.Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z" for pid in connections):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(running.keeper(), signal.SIGCONT)
    code, _, err = running.finish()
    assert code == 137 and err.count("heard nothing for 4 s from the dscrun that started this dscrun") == 2


def test_a_host_that_cannot_be_reached(job, tmp_path):
    refused = ["--ssh-command", "sh -c 'echo no route >&2; exit 255'", "--grace", "10"]
    result = run(*job, *refused, "--exclude", "localhost", *sh("sleep 30"))
    assert result.returncode == 255
    assert "dscrun: nodeA: no route\n" in result.stderr
    first = re.search("was lost: the connection to (node[AB])", result.stderr)[1]
    other = {"nodeA": "nodeB", "nodeB": "nodeA"}[first]
    assert re.search(f"ranks? .* also lost: the connection to {other} exited with code 255", result.stderr)
    missing = run(*job, "--remote-dscrun", "/no/dscrun", "--grace", "0.1", *sh("sleep 30"))
    assert missing.returncode == 127 and re.search("dscrun: node[AB]: sh: .*/no/dscrun", missing.stderr)
    unknown = run(*job, "--exclude", "localhost", "--", "no-such-command")
    assert unknown.returncode == 127 and "dscrun: nodeA: no-such-command: command not found" in unknown.stderr
    hidden = tmp_path / "gone"
    hidden.mkdir()
    script = f"rmdir {shlex.quote(str(hidden))}; exec {launch.DSCRUN} {shlex.join([*job, '--exclude', 'localhost'])} -- true"
    nowhere = subprocess.run(["sh", "-c", script], cwd=hidden, capture_output=True, text=True, timeout=60)
    assert nowhere.returncode == 125 and "cannot enter" in nowhere.stderr


def test_restarts_have_their_own_incarnation(job):
    script = sh('echo "$DSC_RESTART_COUNT $DSC_JOB_ID"; [ $RANK = 3 -a $DSC_RESTART_COUNT != 2 ] && exit 4; sleep 0.2')
    result = run(*job, "--grace", "10", "--restarts", "2", *script)
    assert result.returncode == 0, result.stderr
    assert re.findall(r"restart \d of \d: all ranks start again", result.stderr) == [
        "restart 1 of 2: all ranks start again",
        "restart 2 of 2: all ranks start again",
    ]
    for rank in range(4):
        counts, ids = zip(*(line.split() for line in launch.lines_of(result.stdout, rank)))
        assert counts == ("0", "1", "2") and [name.removeprefix(ids[0]) for name in ids] == ["", ".1", ".2"]


def test_a_restart_waits_for_the_ranks_behind_a_lost_connection(job, hosts, tmp_path):
    hosts.silent = True
    log = tmp_path / "log"
    script = "[ $DSC_RESTART_COUNT = 1 ] && exec echo new >> $LOG; echo ready; while echo old >> $LOG; do sleep 0.02; done"
    options = ["--include", "localhost@nodeA", "--lost-after", "1", "--grace", "0.1", "--restarts", "1"]
    running = Started(*job, *options, "--env", f"LOG={log}", *sh(script))
    running.read_lines(3)
    lose_connection(running)
    code, _, err = running.finish()
    assert code == 0 and "waiting before the restart: ranks on a host whose connection was lost may still run for 1 s" in err
    assert log.read_text().rpartition("old\n")[2] == "new\n" * 3


def test_what_ends_the_wait_for_a_restart(job):
    for limit, text in [([], "waiting before the restart"), (["--timeout", "30"], "and the time limit ends before that")]:
        running = Started(*job, *limit, "--grace", "0.1", "--restarts", "1", *sh("echo ready; exec sleep 30"))
        running.read_lines(4)
        lose_connection(running)
        seen = b""
        while text.encode() not in seen:
            line = running.process.stderr.readline()
            assert line, seen
            seen += line
        if not limit:
            running.signal(signal.SIGTERM)
        start = time.monotonic()
        code, _, err = running.finish()
        assert code == 137 and "start again" not in err and time.monotonic() - start < AT_ONCE_S


def test_restarts_on_one_host_and_when_they_are_used_up():
    script = sh("echo $DSC_RESTART_COUNT; [ $RANK = 1 ] && exit $((DSC_RESTART_COUNT + 3)); exec sleep 30")
    result = run("-n", "2", "--grace", "0", "--restarts", "1", *script)
    assert result.returncode == 4 and launch.lines_of(result.stdout, 1) == ["0", "1"]
    allowed = run("-n", "2", "--grace", "0", "--restarts", "1", "--allow-failures", "1", *sh("exit $((RANK * 3))"))
    assert allowed.returncode == 0 and "restart" not in allowed.stderr
    stopped = Started("-n", "1", "--restarts", "5", *sh("echo ready; exec sleep 30"))
    stopped.read_lines(1)
    stopped.signal(signal.SIGTERM)
    code, _, err = stopped.finish()
    assert code == 128 + signal.SIGTERM and "start again" not in err
    late = run("-n", "1", "--restarts", "1000", "--timeout", "4", "--grace", "0", *sh("sleep 0.5; exit 1"))
    assert late.returncode in (1, 124) and 0 < late.stderr.count("start again") < 10


def by_hand(rank, port, *args, **popen):
    nodes = ["--nnodes", "2", "--node-rank", str(rank), "--master-addr", "127.0.0.1", "--master-port", str(port)]
    return Started(*nodes, *args, env=without_tokens(DSC_TOKEN="ab" * 32), **popen)


def test_nodes_started_by_hand_make_one_world():
    port = jobs.free_port()
    nodes = [by_hand(rank, port, "-n", "2,1", *sh(SHOW)) for rank in range(2)]
    lines = [line for node in nodes for line in sorted(node.finish()[1].splitlines())]
    places = ["0/3 0/2 0/2", "1/3 1/2 0/2", "2/3 0/1 1/2"]
    end = f"127.0.0.1:{port} 127.0.0.1:{port} all"
    assert lines == [f"[{rank}] {place} {end}" for rank, place in enumerate(places)]


WORLD = """
import array, os
os.environ.pop("LOCAL_RANK"), os.environ.pop("LOCAL_WORLD_SIZE")  # one machine stands for several hosts
import libdsc as dsc
world = dsc.init_distributed()
x = array.array("q", [1 << world.rank])
world.all_reduce(x, op="sum")
print("sum", x[0])
dsc.finalize()
"""


@pytest.mark.skipif("DSC_LIBRARY" not in os.environ, reason="DSC_LIBRARY does not name the library")
def test_a_world_forms_however_the_nodes_are_started(job):
    program = ["--timeout", "60", "--", PYTHON, "-c", WORLD]
    port = jobs.free_port()
    nodes = [by_hand(rank, port, "-n", "2", *program) for rank in range(2)]
    results = [node.finish() for node in nodes]
    assert [code for code, _, _ in results] == [0, 0] and sorted(results[1][1].splitlines()) == ["[2] sum 15", "[3] sum 15"], results
    result = run(*job, "--port", str(jobs.free_port()), *program)
    assert result.returncode == 0 and result.stdout.count("sum 15") == 4, result.stderr


if __name__ == "__main__":
    launch.main(__file__)
