"""Programs that use torch's features on a process group give the same bits over "dsc" as over gloo, with two ranks."""

import os
import pathlib
import shutil
import subprocess
import sys

import torch_programs as programs
import pytest
import torch_ranks as ranks

import libdsc.torch  # noqa: F401

HERE = pathlib.Path(__file__).resolve().parent


@pytest.mark.parametrize("program", programs.ALL, ids=lambda program: program.__name__)
def test_same_bits_as_gloo(program):
    assert ranks.run(2, program, backend="dsc") == ranks.run(2, program, backend="gloo")


@pytest.mark.full
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs g++")
def test_inductor_gives_the_bits_of_gloo():
    assert ranks.run(2, programs.compiled_by_inductor) == ranks.run(2, programs.compiled_by_inductor, backend="gloo")


@pytest.mark.parametrize("hosts", [None, [0, 1]], ids=["one host", "two hosts"])
def test_own_ddp_gives_the_bits_of_torchs(hosts):
    assert ranks.run(2, programs.own_ddp, hosts=hosts) == ranks.run(2, programs.ddp, backend="gloo")


@pytest.mark.parametrize("program", [programs.ddp, programs.fsdp2, programs.pipelined], ids=lambda program: program.__name__)
def test_on_two_hosts(program):
    assert ranks.run(2, program, hosts=[0, 1]) == ranks.run(2, program, backend="gloo")


def test_torchrun_starts_again(tmp_path):
    """Rank 1 dies in the first attempt. torchrun restarts all ranks, and they join a new world."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "STARTS": str(tmp_path)}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    done = subprocess.run([*command, str(HERE / "torch_restarted.py")], env=environment, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(done.stdout.splitlines()) == ["attempt 1, rank 0: 3.0", "attempt 1, rank 1: 3.0"], done.stdout
