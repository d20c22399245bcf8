"""libdsc.torch.DistributedDataParallel on ranks of one host and of two, compared with PyTorch's own.

The interpreter of the tests does not need PyTorch: DSC_TORCH_PYTHON names an interpreter that has it.
"""

import functools
import importlib.util
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

import pytest

import killed_rank

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = os.environ.get("DSC_TORCH_PYTHON") or sys.executable
RUN_S = 240
DSCRUN = os.environ.get("DSCRUN") or shutil.which("dscrun")

if PYTHON == sys.executable and importlib.util.find_spec("torch") is None:
    pytest.skip(f"{PYTHON} has no torch, and DSC_TORCH_PYTHON names no other interpreter", allow_module_level=True)
if not DSCRUN:
    pytest.skip("there is no dscrun, and DSCRUN does not say where it is", allow_module_level=True)


def environment(**variables):
    paths = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    fixed = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return os.environ | fixed | {"MEETING": f"{os.getpid()}-{random.randrange(10**9)}"} | variables


def dscrun(ranks, program, *arguments):
    command = [DSCRUN, "-n", str(ranks), "--timeout", str(RUN_S), "--", PYTHON, str(HERE / program), *map(str, arguments)]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=RUN_S + 30)


def on_two_hosts(program):
    """Runs the program with each rank on a separate simulated host."""
    from reducer_ranks import free_port

    shared = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "DSC_TOKEN": "ab" * 32}
    env = environment(MASTER_PORT=str(free_port()), **shared)
    command = [PYTHON, str(HERE / program)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    ranks = [subprocess.Popen(command, env=env | {"RANK": str(r), "DSC_HOST_ID": f"host-{r}"}, **pipes) for r in range(2)]
    try:
        return "\n".join(rank.communicate(timeout=RUN_S)[0] for rank in ranks)
    finally:
        for rank in ranks:
            rank.kill()


@functools.cache
def found_by(program, hosts):
    """Returns what the ranks found in each case. If the case failed on a rank, returns the failure."""
    if hosts == 1:
        done = dscrun(2, program)
        output = done.stdout + done.stderr
    else:
        output = on_two_hosts(program)
    told = [json.loads(line[line.index("{") :]) for line in output.splitlines() if '{"' in line and line.rstrip().endswith("}")]
    assert told, output
    merged = {}
    for each in told:
        for case, outcome in each.items():
            if merged.get(case, "good") == "good":
                merged[case] = outcome
    return merged, output


def cases_of(program):
    lines = (HERE / program).read_text().splitlines()
    return [line[len("def ") : line.index("(")] for line in lines if line.startswith("def ") and line.endswith("(world):")]


PASSES, FEATURES = "torch_ddp_passes.py", "torch_ddp_features.py"
RUNS = [(program, case, hosts) for program, hosts in ((PASSES, 1), (PASSES, 2), (FEATURES, 1)) for case in cases_of(program)]


@pytest.mark.parametrize("program, case, hosts", RUNS, ids=[f"{case}-{hosts}" for _, case, hosts in RUNS])
def test_on_two_ranks(program, case, hosts):
    found, output = found_by(program, hosts)
    assert found.get(case) == "good", found.get(case) or f"not run, because a case before it failed\n{output}"


@pytest.mark.parametrize("first, modules", [(0, 20), pytest.param(20, 180, marks=pytest.mark.full)])
def test_random_modules_train_the_same_bits_as_under_stock_ddp(first, modules):
    """If the bits differ, the seeds are printed. Repeat a seed with: python3 torch_ddp_random.py SEED 1."""
    done = dscrun(2, "torch_ddp_random.py", first, modules)
    assert done.returncode == 0 and f"{modules} of {modules} modules train the same bits" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("ranks, hosts, victim", [(2, 1, 1), (3, 1, 0), (2, 2, 1)])
def test_a_killed_rank_is_named(ranks, hosts, victim, monkeypatch):
    """backward() or forward() raises the library's exception, and no rank waits for the time-out."""
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    program = str(HERE / "torch_ddp_killed.py")
    for name, blamed, text in killed_rank.others_of(victim, program, ranks, hosts, victim, python=PYTHON):
        assert (name, blamed) == ("PeerDeadError", [victim]) and f"rank {victim}" in text, (name, blamed, text)


def test_importing_libdsc_imports_no_torch():
    code = "import sys, libdsc; sys.exit('torch' in sys.modules)"
    assert subprocess.run([PYTHON, "-c", code], env=environment()).returncode == 0
