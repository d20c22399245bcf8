"""Start-up through PMIx: Open MPI's mpirun is the server. Nothing here is imitated but a libpmix that is too old."""

import os
import shutil
import socket
import subprocess

import launch
import pytest
from launch import LIMIT_S, PYTHON

MPIRUN = shutil.which("mpirun.openmpi")
FAKE_OLD_PMIX = os.environ.get("FAKE_OLD_PMIX", "")
# Of an outer launcher, or chosen by whoever runs the tests.
FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "DSC_PMIX_LIBRARY")

pytestmark = pytest.mark.skipif(not MPIRUN, reason="mpirun.openmpi is not installed")

JOIN = """
import numpy as np, libdsc as dsc
world = dsc.init_distributed(init_method="METHOD", init_timeout=30)
x = np.full(3, world.rank + 1.0, np.float32)
world.all_reduce(x)
print(world.rank, world.size, world.local_rank, world.env("LOCAL_WORLD_SIZE"), x[0], world.env("DSC_REPORT").replace("\\n", " | "))
dsc.finalize()
"""


def mpirun(ranks, code, *options, **variables):
    environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **variables}
    command = [MPIRUN, "--oversubscribe", *options, "-n", str(ranks), PYTHON, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_the_server_says_who_everybody_is(ranks):
    result = mpirun(ranks, JOIN.replace("METHOD", "pmix://"))
    assert result.returncode == 0, result.stderr
    lines = sorted(result.stdout.splitlines(), key=lambda line: int(line.split()[0]))
    assert len(lines) == ranks
    for rank, line in enumerate(lines):
        place, report = line.split(" ", 5)[:5], line.split(" ", 5)[5]
        assert place == [str(rank), str(ranks), str(rank), str(ranks), str(ranks * (ranks + 1) / 2)]
        assert f"chosen: rank {rank} of {ranks} from PMIx" in report


def test_it_comes_before_the_launchers_own_variables():
    result = mpirun(1, JOIN.replace("METHOD", "env://"))
    assert "the server was asked through OpenPMIx" in result.stdout and "from PMIx" in result.stdout


@pytest.mark.parametrize("library", ["/nonexistent/libpmix.so", FAKE_OLD_PMIX])
def test_without_a_usable_libpmix_the_variables_do(library):
    result = mpirun(2, JOIN.replace("METHOD", "env://"), "-x", "DSC_PMIX_LIBRARY", DSC_PMIX_LIBRARY=library)
    assert result.returncode == 0, result.stderr
    for line in result.stdout.splitlines():
        assert "from Open MPI" in line and library in line


@pytest.mark.parametrize(
    "library, reason",
    [("/nonexistent/libpmix.so", "No such file"), (FAKE_OLD_PMIX, "is \"fake PMIx 2.2.5\", expected PMIx 3.1 or newer")],
)
def test_asked_for_by_name_it_does_not_fall_back(library, reason):
    code = JOIN.replace("METHOD", "pmix://")
    result = mpirun(1, code, "-x", "DSC_PMIX_LIBRARY", DSC_PMIX_LIBRARY=library)
    assert "NoBackendError" in result.stderr and reason in result.stderr
    assert "from" not in result.stdout


def test_nobody_started_it():
    environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    command = [PYTHON, "-c", JOIN.replace("METHOD", "pmix://")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert "ConfigError" in result.stderr and "PMIX_NAMESPACE is not set" in result.stderr


def test_a_server_that_is_gone():
    environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    environment |= {"PMIX_NAMESPACE": "gone", "PMIX_RANK": "0", "PMIX_SERVER_URI2": "gone.0;tcp4://127.0.0.1:1"}
    command = [PYTHON, "-c", JOIN.replace("METHOD", "pmix://")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert "SystemError" in result.stderr and "the PMIx server cannot be reached" in result.stderr


def test_a_server_that_does_not_answer():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"silent.0;tcp4://127.0.0.1:{silent.getsockname()[1]}"
        environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        environment |= {"PMIX_NAMESPACE": "silent", "PMIX_RANK": "0"}
        environment |= {f"PMIX_SERVER_URI{version}": uri for version in ("2", "21", "3", "4", "41")}
        code = JOIN.replace("METHOD", "pmix://").replace("30)", "1)")
        result = subprocess.run([PYTHON, "-c", code], env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert "TimeoutError" in result.stderr and "the PMIx server did not answer in time" in result.stderr


DIE = """
import os, signal, time, numpy as np, libdsc as dsc
world = dsc.init_distributed(init_method="pmix://")
x = np.ones(3, np.float32)
world.barrier()
if world.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
start = time.monotonic()
try:
    world.all_reduce(x)
except dsc.PeerDeadError as error:
    print(f"rank {world.rank}: {error.rank} died, after {time.monotonic() - start:.3f} s", flush=True)
"""


def test_a_killed_rank_is_named_by_the_survivors():
    """Open MPI tells nobody of the death: the pidfd is the proof, and there 2 s are many times what it takes."""
    result = mpirun(3, DIE, "--enable-recovery")
    told = sorted(result.stdout.splitlines())
    assert [line.split(",")[0] for line in told] == ["rank 0: 1 died", "rank 2: 1 died"], result.stderr
    assert all(float(line.split()[-2]) < 2 for line in told)


MPI_TOO = """
import ctypes, libdsc as dsc
dsc.init_distributed(init_method="pmix://").barrier()
dsc.finalize()
mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
assert mpi.MPI_Init(None, None) == 0 and mpi.MPI_Finalize() == 0
print("both")
"""


def test_mpi_may_be_started_afterwards():
    result = mpirun(2, MPI_TOO)
    assert (result.returncode, result.stdout.split()) == (0, ["both", "both"]), result.stderr


if __name__ == "__main__":
    launch.main(__file__)
