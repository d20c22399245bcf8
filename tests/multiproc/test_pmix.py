"""Start-up through PMIx. Open MPI's mpirun is the server. Nothing is simulated except a libpmix that is too old."""

import os
import shutil
import socket
import subprocess

import launch
import pytest
from launch import LIMIT_S, PYTHON

MPIRUN = shutil.which("mpirun.openmpi")
FAKE_OLD_PMIX = os.environ.get("FAKE_OLD_PMIX", "")
# Variables of an outer launcher, or set by the user who runs the tests.
FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "DSC_PMIX_LIBRARY")

pytestmark = pytest.mark.skipif(not MPIRUN, reason="mpirun.openmpi is not installed")

# Each rank writes its own file, because mpirun splits the output of several ranks into pieces.
JOIN = """
import os, numpy as np, libdsc as dsc
world = dsc.init_distributed(init_method="METHOD", init_timeout=30)
x = np.full(3, world.rank + 1.0, np.float32)
world.all_reduce(x)
with open(os.path.join(os.environ["OUT"], str(world.rank)), "w") as out:
    print(world.rank, world.size, world.local_rank, world.local_size, x[0], world.start_report, file=out)
dsc.finalize()
"""


def mpirun(ranks, code, *options, **variables):
    environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **variables}
    exported = [part for name in variables for part in ("-x", name)]
    command = [MPIRUN, "--oversubscribe", *exported, *options, "-n", str(ranks), PYTHON, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_the_server_says_who_everybody_is(ranks, tmp_path):
    result = mpirun(ranks, JOIN.replace("METHOD", "pmix://"), OUT=str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert len(list(tmp_path.iterdir())) == ranks
    for rank in range(ranks):
        *place, report = (tmp_path / str(rank)).read_text().split(" ", 5)
        assert place == [str(rank), str(ranks), str(rank), str(ranks), str(ranks * (ranks + 1) / 2)]
        assert f"chosen: rank {rank} of {ranks} from PMIx" in report


def test_it_comes_before_the_launchers_own_variables(tmp_path):
    mpirun(1, JOIN.replace("METHOD", "env://"), OUT=str(tmp_path))
    report = (tmp_path / "0").read_text()
    assert "the server was asked through OpenPMIx" in report and "from PMIx" in report


@pytest.mark.parametrize("library", ["/nonexistent/libpmix.so", FAKE_OLD_PMIX])
def test_without_a_usable_libpmix_the_variables_do(library, tmp_path):
    result = mpirun(2, JOIN.replace("METHOD", "env://"), OUT=str(tmp_path), DSC_PMIX_LIBRARY=library)
    assert result.returncode == 0, result.stderr
    for rank in range(2):
        report = (tmp_path / str(rank)).read_text()
        assert "from Open MPI" in report and library in report


@pytest.mark.parametrize(
    "library, reason",
    [("/nonexistent/libpmix.so", "No such file"), (FAKE_OLD_PMIX, "is \"fake PMIx 2.2.5\", expected PMIx 3.1 or newer")],
)
def test_asked_for_by_name_it_does_not_fall_back(library, reason, tmp_path):
    code = JOIN.replace("METHOD", "pmix://")
    result = mpirun(1, code, OUT=str(tmp_path), DSC_PMIX_LIBRARY=library)
    assert "NoBackendError" in result.stderr and reason in result.stderr
    assert not list(tmp_path.iterdir())


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
    with open(os.path.join(os.environ["OUT"], str(world.rank)), "w") as out:
        print(error.rank, time.monotonic() - start, file=out)
"""


def test_a_killed_rank_is_named_by_the_survivors(tmp_path):
    """Open MPI does not notify the other ranks of the death. The pidfd shows it, within milliseconds."""
    result = mpirun(3, DIE, "--enable-recovery", OUT=str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "2"], result.stderr
    for path in tmp_path.iterdir():
        died, after_s = path.read_text().split()
        assert died == "1" and float(after_s) < launch.AT_ONCE_S


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
    assert (result.returncode, result.stdout.count("both")) == (0, 2), result.stderr


if __name__ == "__main__":
    launch.main(__file__)
