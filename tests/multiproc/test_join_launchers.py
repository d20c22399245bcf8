"""Several hosts of a job, as launchers describe them. Each host is a daemon on this machine.

So the launcher reports fewer local ranks than ranks, and distributes the address of rank 0's store.
"""

import os
import pathlib
import shutil
import stat
import subprocess
import sys

import launch
import pytest
from launch import LIMIT_S, PYTHON

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import jobs  # noqa: E402

MPIRUN = shutil.which("mpirun.openmpi")
TORCH = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True).returncode == 0

# Each rank of each world writes a line to its own file.
JOIN = """
import os, sys, numpy as np, libdsc as dsc
for _ in range(2):
    world = dsc.init_distributed(init_timeout=30)
    x = np.full(3, world.rank + 1.0, np.float32)
    world.all_reduce(x)
    with open(os.path.join(os.environ["OUT"], str(world.rank)), "a") as out:
        print(world.rank, world.size, world.local_rank, x[0], world.start_report.splitlines()[-1], file=out)
    dsc.finalize()
"""


def environment(**variables):
    return jobs.environment(DSC_BIND="127.0.0.1", **variables)


def assert_joined_twice(folder, size, source, problem):
    assert len(list(folder.iterdir())) == size, problem
    for rank in range(size):
        lines = (folder / str(rank)).read_text().splitlines()
        assert len(lines) == 2, (lines, problem)
        for line in lines:
            # Two ranks on each "host" of the launcher, and a sum over all ranks.
            assert line.startswith(f"{rank} {size} {rank % 2} {size * (size + 1) / 2} ") and f"from {source};" in line, line


@pytest.mark.skipif(not MPIRUN, reason="mpirun.openmpi is not installed")
def test_two_daemons_of_open_mpi(tmp_path):
    """PMIx distributes the address of the store and a token, so the user need not set anything."""
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    # Replaces ssh: every host is this machine. Daemons that share a folder for their files sometimes crash.
    agent = tmp_path / "agent"
    agent.write_text(f'#!/bin/sh\nTMPDIR={tmp_path}/$1\nexport TMPDIR\nmkdir -p "$TMPDIR"\nshift\nexec sh -c "$*"\n')
    agent.chmod(agent.stat().st_mode | stat.S_IXUSR)
    variables = {"OUT": str(ranks), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    options = ["--oversubscribe", "-H", "first-node:2,other-node:2", "--mca", "plm_rsh_agent", str(agent)]
    exported = [part for name in ("OUT", "DSC_BIND", "DSC_LIBRARY", "PYTHONPATH") if name in environment(**variables) for part in ("-x", name)]
    command = [MPIRUN, *options, *exported, "-n", "4", PYTHON, "-c", JOIN]
    done = subprocess.run(command, env=environment(**variables), capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    assert_joined_twice(ranks, 4, "PMIx", done.stderr)


@pytest.mark.skipif(not TORCH, reason="no module torch")
def test_two_agents_of_torchrun(tmp_path):
    """MASTER_PORT is the port of the agent's store, which contains the address of libdsc's store.

    That store has no token, so the test sets one.
    """
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    program = tmp_path / "join.py"
    program.write_text(JOIN)
    port = jobs.free_port()
    agents = []
    for node in (0, 1):
        # On Python 3.11 torchrun of PyTorch 1.13 fails unless the ranks print to files.
        options = ["--nnodes=2", "--nproc_per_node=2", f"--node_rank={node}", "--master_addr=127.0.0.1", f"--master_port={port}"]
        files = ["--redirects=1", "--tee=1", f"--log_dir={tmp_path / f'log{node}'}"]
        command = [PYTHON, "-m", "torch.distributed.run", *options, *files, str(program)]
        variables = environment(OUT=str(ranks), DSC_TOKEN="5e" * 32, OMP_NUM_THREADS="1")
        agents.append(subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = "\n".join(agent.communicate(timeout=LIMIT_S)[0] for agent in agents)
    logs = "\n".join(file.read_text() for file in tmp_path.glob("log*/**/std*.log"))
    assert [agent.returncode for agent in agents] == [0, 0], said + logs
    assert_joined_twice(ranks, 4, "torchrun", said + logs)


if __name__ == "__main__":
    launch.main(__file__)
