"""dscrun: arguments that contradict each other, plans, and other launchers."""

import json
import os
import re
import shutil
import subprocess

import launch
import pytest
from launch import run

HAND = ["--nnodes", "2", "--node-rank", "0", "--master-addr", "node0", "-n", "1"]
OPEN_MPI = "Open MPI" in subprocess.run(["sh", "-c", "mpirun --version"], capture_output=True, text=True).stdout
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def environment(**more):
    own = {name: value for name, value in os.environ.items() if not name.startswith(("DSC_TOKEN", "MASTER_", "SLURM"))}
    return {**own, **more}


@pytest.fixture()
def file(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("a slots=4\nb slots=2\n")
    return str(path)


def plan(*args, **variables):
    result = run(*args, "--dry-run", "--", "cmd", env=environment(**variables))
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    "args, text",
    [
        (["--nnodes", "2"], "--nnodes: expected -n too, the number of ranks on each host"),
        (["--nnodes", "2", "-n", "1"], "--nnodes 2: expected --node-rank (0 to 1, a different number on each host), or --hostfile"),
        (["--nnodes", "2", "-n", "1", "--node-rank", "1"], "--nnodes 2: expected --master-addr too"),
        ([*HAND, "--node-rank", "2"], "--node-rank: expected 0 to 1, because there are 2 nodes, got '2'"),
        ([*HAND, "--node-rank", "-1"], "--node-rank: expected a whole number, 0 or more, or 'auto', got '-1'"),
        ([*HAND, "--node-rank", "one"], "--node-rank: expected a whole number, 0 or more, or 'auto', got 'one'"),
        ([*HAND, "--node-rank", "auto"], "expected SLURM_NODEID, OMPI_COMM_WORLD_RANK or PMI_RANK in the environment"),
        ([*HAND, "-n", "1,2,3"], "-n: expected one number, or 2 numbers for --nnodes 2, got 3"),
        ([*HAND, "-n", "1,x"], "-n: expected a whole number from 1 to 4096, got 'x'"),
        ([*HAND, "-n", "1,"], "-n: expected a whole number from 1 to 4096, got ''"),
        ([*HAND, "--restarts", "1"], "--restarts: cannot be given together with --node-rank"),
        ([*HAND, "--allow-failures", "1"], "--allow-failures: expected --hostfile, with which one dscrun sees the ranks of all hosts"),
        ([*HAND, "--start-with", "srun"], "--start-with: cannot be given together with --node-rank"),
        (HAND, "several hosts need the same token. Create a file once: (umask 077; od"),
        (["-n", "1,2"], "-n: expected one number for one host, got 2"),
        (["--node-rank", "0"], "--node-rank: expected --nnodes or --hostfile too"),
        (["--nnodes", "0"], "--nnodes: expected a whole number from 1 to 65536, got '0'"),
        (["--include", "a"], "--include: unknown host 'a', expected one of: localhost (without --hostfile, the only host is localhost)"),
        (["--exclude", "a:0"], "--exclude: unknown host 'a', expected one of: localhost"),
        (["--exclude", "localhost"], "--exclude: excludes all slots of localhost"),
        (["--include", "localhost:4096"], "--include: unknown slot '4096' of host 'localhost', expected 0 to 4095"),
        (["--include", "localhost:0", "-n", "1"], "-n: cannot be given together with --include, which selects the slots"),
        (["--include", "localhost:0", "-e", "localhost:1"], "--include: cannot be given together with --exclude"),
        ([*HAND, "--include", "a"], "--include and --exclude: with --nnodes, expected --hostfile too"),
        (["--start-with", "ssh"], "--start-with ssh: expected --hostfile too"),
        (["--start-with", "srun"], "--start-with srun: expected --hostfile or --nnodes too"),
        (["--start-with", "mpirum"], "--start-with: expected one of ssh, mpirun, srun, got 'mpirum'; did you mean 'mpirun'?"),
        (["--ssh-command", "ssh 'x"], "--ssh-command: the quote ' is not closed in 'ssh 'x'"),
        (["--ssh-command", " "], "--ssh-command: expected a command, got ''"),
        (["--keep-going", "--restarts", "1"], "--restarts: cannot be given together with --keep-going"),
        (["--hostfile", "/nowhere"], "--hostfile: cannot read '/nowhere': No such file or directory"),
        (["--hostfile", "FILE", "-n", "2"], "-n: cannot be given together with --hostfile: the slots in the host file"),
        (["--hostfile", "FILE", "--nnodes", "3"], "--nnodes: expected 2, the number of hosts in the host file, got '3'"),
        (["--hostfile", "FILE", "--include", "c"], "--include: unknown host 'c', expected one of: a, b"),
        (["--hostfile", "FILE", "--exclude", "a:9"], "--exclude: unknown slot '9' of host 'a', expected 0 to 3"),
        (["--hostfile", "FILE", "--exclude", "a@b"], "--exclude: excludes all hosts of"),
        (["--hostfile", "FILE", "-i", "a", "-e", "b"], "--include: cannot be given together with --exclude"),
        (["--hostfile", "FILE", "-i", "a:1", "--start-with", "srun"], "cannot select single slots of a host"),
        (["--hostfile", "FILE", "--keep-going", "--start-with", "mpirun"], "--keep-going: cannot be given together with --start-with mpirun"),
        (["--export", "NOT_SET_ANYWHERE"], "--export: expected NAME=VALUE or the name of a variable that is set"),
        (["--export", "RANK=1"], "RANK cannot be set, because dscrun sets it itself"),
        (["--env", "DSC_TOKEN=1"], "DSC_TOKEN cannot be set, because dscrun sets it itself"),
        (["--restarts", "-1"], "--restarts: expected a whole number from 0"),
    ],
)
def test_wrong_combinations(file, args, text):
    result = run(*[file if word == "FILE" else word for word in args], "--", "true", env=environment())
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("dscrun: ") and text in result.stderr and "Try 'dscrun --help'" in result.stderr


def test_host_files_that_are_wrong(tmp_path):
    for text, error in [
        ("a slots=2\nb", "line 2: expected NAME slots=NUMBER, got 'b'"),
        ("", "contains no host, expected lines of the form NAME slots=NUMBER"),
        ("localhost slots=1\nb slots=1", "the first host is 'localhost', which means a different machine on every host"),
    ]:
        path = tmp_path / "hosts"
        path.write_text(text)
        result = run("--hostfile", str(path), "--", "true")
        assert result.returncode == 2 and error in result.stderr


def test_plans(file):
    ssh = plan("--hostfile", file, "--include", "b@a:1,3", "--export", "X=secret", DSC_LOG="info")
    assert (ssh["way"], ssh["world_size"], ssh["master_addr"], ssh["master_port"]) == ("ssh", 4, "a", 29500)
    assert [(n["host"], n["first_rank"], n["ranks"]) for n in ssh["nodes"]] == [("a", 0, 2), ("b", 2, 2)]
    assert ssh["nodes"][0]["CUDA_VISIBLE_DEVICES"] == "1,3" and "CUDA_VISIBLE_DEVICES" not in ssh["nodes"][1]
    assert ssh["nodes"][1]["start"].startswith("ssh -x -T -o BatchMode=yes")
    assert ssh["nodes"][1]["start"].endswith(f"b 'exec {launch.DSCRUN} --as-node --node-rank 1'")
    assert {"DSC_LOG", "X"} <= set(ssh["environment"]) and "secret" not in json.dumps(ssh)
    hand = plan("--hostfile", file, "--node-rank", "1", "--port", "77")
    assert (hand["way"], hand["own_node"], hand["job_id"]) == ("by hand", 1, "a:77")
    assert plan(*HAND)["job_id"] == "node0:29500" and plan(*HAND, "--job-id", "x")["job_id"] == "x"
    here = plan("-n", "3")
    assert (here["way"], here["nodes"]) == ("here", [{"node_rank": 0, "first_rank": 0, "ranks": 3}])
    assert plan("--nnodes", "1", "--node-rank", "0", "-n", "2")["way"] == "here"


def test_slots_of_this_host_without_a_host_file():
    cores = len(os.sched_getaffinity(0))
    here = plan("--include", "localhost:14,13", CUDA_VISIBLE_DEVICES="0")
    assert (here["way"], here["world_size"], here["master_addr"]) == ("here", 2, "127.0.0.1")
    assert here["nodes"] == [{"node_rank": 0, "first_rank": 0, "ranks": 2, "CUDA_VISIBLE_DEVICES": "13,14"}]
    for whole in ("localhost", "localhost:1@localhost"):
        assert plan("--include", whole)["nodes"] == [{"node_rank": 0, "first_rank": 0, "ranks": cores}]
    if cores > 1:
        assert plan("--exclude", "localhost:0")["nodes"][0]["ranks"] == cores - 1
    each = run("--include", "localhost:13,14", "--", "sh", "-c", 'echo "$LOCAL_RANK $LOCAL_WORLD_SIZE $CUDA_VISIBLE_DEVICES"')
    assert sorted(each.stdout.splitlines()) == ["[0] 0 2 13,14", "[1] 1 2 13,14"], each.stderr


def test_node_rank_comes_from_the_launcher():
    auto = [*HAND, "--node-rank", "auto"]
    assert plan(*auto, SLURM_NODEID="1")["own_node"] == 1
    assert plan(*auto, OMPI_COMM_WORLD_RANK="1")["own_node"] == 1
    names = [*auto, "--node-list", "x1,x10"]
    assert plan(*names, SLURM_NODEID="0", SLURMD_NODENAME="x10")["own_node"] == 1
    for variables, text in [
        ({"SLURM_NODEID": "2"}, "SLURM_NODEID: expected 0 to 1, because there are 2 nodes, got '2'"),
        ({"SLURMD_NODENAME": "x"}, "SLURMD_NODENAME is 'x', expected one of the names in --node-list: x1,x10"),
    ]:
        wrong = run(*names, "--dry-run", "--", "true", env=environment(**variables))
        assert wrong.returncode == 2 and text in wrong.stderr


def explained(*args):
    result = run(*args, "--explain", "--", "echo", "a  b")
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_explanation_of_one_host():
    text = explained("-n", "2", "--env", "X=1 2", "--env", "KEY=secret")
    assert text.startswith("# First set and export the variables of --env and --export: KEY X\n# Open MPI\n")
    assert "secret" not in text and "1 2" not in text
    assert "mpirun -np 2 --tag-output -x MASTER_ADDR=127.0.0.1 -x MASTER_PORT=29500 -x KEY -x X echo 'a  b'\n" in text
    assert "srun --nodes=1 --ntasks=2 --ntasks-per-node=2 --label --kill-on-bad-exit=1 --export=ALL echo 'a  b'\n" in text
    assert "\ntorchrun --nnodes=1 --nproc_per_node=2 --node_rank=0 " in text and "--no_python echo 'a  b'" in text
    assert "no equivalent" not in text
    python = run("--explain", "--restarts", "3", "-n", "2", "--", "/usr/bin/python3", "x.py", "-v").stdout
    assert re.search("^torchrun .* --max_restarts=3 x.py -v$", python, re.MULTILINE)
    assert python.count("no equivalent for --restarts: never restarts a job") == 2


def test_explanation_of_several_hosts(file):
    text = explained("--hostfile", file, "--allow-failures", "1", "--timeout", "90", "--no-prefix")
    assert "mpirun -np 6 --host a:4,b:2 --timeout 90 --enable-recovery " in text
    assert "srun --nodes=2 --ntasks=6 --nodelist=a,b --time=1:30 --kill-on-bad-exit=0" in text
    assert "different numbers of ranks need --distribution=arbitrary" in text
    assert "--nproc_per_node=4 --node_rank=0 --master_addr=a " in text and text.count("# on ") == 2
    assert "no equivalent for --allow-failures: ends all ranks at the first failure" in text
    assert text.count("no equivalent for token") == 3


@pytest.mark.skipif(not OPEN_MPI, reason="mpirun is not Open MPI's")
def test_explained_command_of_mpirun_does_the_same(tmp_path):
    words = ["-n", "2", "--env", "X=1 2", "--explain", "--", "sh", "-c", 'echo "got $X"']
    (command,) = [line for line in run(*words).stdout.splitlines() if line.startswith("mpirun")]
    own = environment(X="1 2", **AS_ROOT)
    output = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, env=own)
    assert output.returncode == 0 and output.stdout.count("got 1 2\n") == 2, output.stderr


SHOW = 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK $GROUP_RANK/$GROUP_WORLD_SIZE $MASTER_ADDR $X ${PMIX_RANK-none}"; wc -c < /dev/fd/$DSC_TOKEN_FD'


@pytest.mark.parametrize("kind", ["openmpi", "mpich"])
def test_started_with_mpirun(tmp_path, kind):
    if shutil.which(f"mpirun.{kind}") is None:
        pytest.skip(f"mpirun.{kind} is not installed")
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(f'#!/bin/sh\nexec mpirun.{kind} "$@"\n')
    mpirun.chmod(0o755)
    own = environment(PATH=f"{tmp_path}:{os.environ['PATH']}", **AS_ROOT)
    path = tmp_path / "hosts"
    path.write_text("localhost slots=2\n127.0.0.1 slots=1\n")  # for dscrun these are two hosts
    job = ["--hostfile", str(path), "--start-with", "mpirun", "--env", "X=1 2", "--master-addr", "127.0.0.1"]
    result = run(*job, "--", "sh", "-c", SHOW, env=own)
    assert result.returncode == 0, result.stderr
    places = ["0/3 0 0/2", "1/3 1 0/2", "2/3 0 1/2"]
    for rank, place in enumerate(places):
        assert launch.lines_of(result.stdout, rank) == [f"{place} 127.0.0.1 1 2 none", "64"]
    failing = ["--restarts", "1", "--grace", "0.2", "--", "sh", "-c", "echo $DSC_RESTART_COUNT; exit $((RANK * 2))"]
    failed = run(*job, *failing, env=own)
    assert failed.returncode in (2, 4, 6) and "dscrun: restart 1 of 1" in failed.stderr
    assert {line.split()[1] for line in failed.stdout.splitlines() if line.startswith("[")} == {"0", "1"}


FAKE_SRUN = """#!/bin/sh
# Two hosts in the order of Slurm, which differs from that of the host file.
echo "$*" > "$SRUN_LOG"
tr '\\0' '\\n' < /proc/$$/environ | grep '^X=' >> "$SRUN_LOG"
while [ "${1#--}" != "$1" ]; do shift; done
SLURM_NODEID=0 SLURMD_NODENAME=a "$@" &
SLURM_NODEID=1 SLURMD_NODENAME=b "$@" &
wait
"""


def test_started_with_srun(tmp_path):
    srun = tmp_path / "srun"
    srun.write_text(FAKE_SRUN)
    srun.chmod(0o755)
    path = tmp_path / "hosts"
    path.write_text("b slots=2\na slots=1\n")
    log = tmp_path / "log"
    own = environment(PATH=f"{tmp_path}:{os.environ['PATH']}", SRUN_LOG=str(log), X="old")
    result = run("--hostfile", str(path), "--start-with", "srun", "--env", "X=y", "--", "sh", "-c", SHOW, env=own)
    assert result.returncode == 0, result.stderr
    for rank, place in enumerate(["0/3 0 0/2", "1/3 1 0/2", "2/3 0 1/2"]):
        assert launch.lines_of(result.stdout, rank) == [f"{place} b y none", "64"]
    words, *variables = log.read_text().splitlines()
    assert variables == ["X=y"]
    assert "--nodes=2 --ntasks=2 --ntasks-per-node=1 --nodelist=b,a --cpu-bind=none" in words
    assert "TOKEN" not in words.replace("DSC_TOKEN_FD", "") and not re.search("[0-9a-f]{64}", words)


def test_as_node_takes_no_strangers(tmp_path):
    for given, text in [
        ("", "standard input ended before the job was complete"),
        ("hello\n", "expected a job on standard input"),
        ("x" * 200, "expected a job on standard input"),
        ("dscrun-job 99.0.0 3\nabc", "but the dscrun that starts it is version 99.0.0"),
        ("dscrun-job VERSION 3\nabc", "the job on standard input is damaged"),
        ("dscrun-job VERSION 4\n9:ab", "the job on standard input is damaged"),
        ("dscrun-job VERSION 99999999999\n", "the job on standard input is damaged"),
        ("dscrun-job VERSION 9\nabc", "standard input ended before"),
    ]:
        version = run("--version").stdout.split()[1]
        result = run("--as-node", stdin=None, input=given.replace("VERSION", version))
        assert (result.returncode, result.stdout) == (125, "") and text in result.stderr, given


if __name__ == "__main__":
    launch.main(__file__)
