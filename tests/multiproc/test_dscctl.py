"""dscctl info: text and JSON give the same facts, and the facts are correct."""

import json
import os
import shutil
import subprocess

import launch
import pytest


def own_environment():
    """Returns the environment without the variables of a launcher."""
    known = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "DSC_JOB_ID", "SLURM_", "OMPI_", "PMI", "DSC_PMIX_", "DSC_NCCL_", "DSC_CUDA_")
    return {name: value for name, value in os.environ.items() if not name.startswith(known)}


def dscctl(*args, **variables):
    """Runs dscctl without a launcher's variables except the given ones."""
    command = [launch.DSCCTL, *args]
    return subprocess.run(command, env=own_environment() | variables, capture_output=True, text=True, timeout=30)


def test_json_tells_the_truth():
    result = dscctl("info", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    info = json.loads(result.stdout)
    assert info["libdsc"]["version"] == info["libdsc"]["built_against"]
    assert os.path.samefile(info["libdsc"]["path"], os.environ["DSC_LIBRARY"])
    assert info["features"]["host"] is True
    assert all(isinstance(available, bool) for available in info["features"].values())
    host = info["host"]
    assert host["cores_allowed"] == len(os.sched_getaffinity(0))
    assert host["page_bytes"] == os.sysconf("SC_PAGE_SIZE")
    assert host["kernel"] == "Linux " + os.uname().release
    assert host["memfd"] == host["pidfd"] == {"available": True}
    assert isinstance(host["single_copy"]["available"], bool)
    space = os.statvfs("/dev/shm")
    assert host["dev_shm"]["size_bytes"] == space.f_blocks * space.f_frsize


def test_engines_say_why_not():
    engines = json.loads(dscctl("info", "--json").stdout)["engines"]
    assert list(engines) == ["host", "nccl", "cuda", "pmix", "gloo"]
    for engine in engines.values():
        assert engine["available"] == (engine["reason"] is None)
        assert engine["path"] is None or os.path.exists(engine["path"])
    assert engines["host"]["available"]


GPU = {"DSC_NCCL_LIBRARY": os.environ["FAKE_NCCL"], "DSC_CUDA_LIBRARY": os.environ["FAKE_CUDA"]}


def test_nccl_and_its_driver():
    engines = json.loads(dscctl("info", "--json", **GPU).stdout)["engines"]
    nccl, cuda = engines["nccl"], engines["cuda"]
    assert (nccl["available"], nccl["path"], nccl["version"]) == (True, GPU["DSC_NCCL_LIBRARY"], "2.28.9")
    assert {"config_init", "split", "shrink", "scatter"} < set(nccl["features"]) and nccl["warning"] is None
    assert (cuda["available"], cuda["path"], cuda["version"], cuda["devices"]) == (True, GPU["DSC_CUDA_LIBRARY"], "13.0", 2)
    text = dscctl("info", FAKE_NCCL_VERSION="22804", **GPU).stdout
    assert f"yes: {GPU['DSC_CUDA_LIBRARY']} (13.0; devices: 2)" in text
    assert f"yes: {GPU['DSC_NCCL_LIBRARY']} (2.28.4; config_init split " in text and "; warning: NCCL 2.28.4 has known bugs: it can crash" in text


def test_nccl_without_use_is_shown_with_the_reason():
    old = json.loads(dscctl("info", "--json", FAKE_NCCL_VERSION="21210", **GPU).stdout)["engines"]
    assert "NCCL 2.12.10, expected 2.18 or newer" in old["nccl"]["reason"] and old["cuda"]["available"]
    without = json.loads(dscctl("info", "--json", FAKE_CUDA_INIT="101", **GPU).stdout)["engines"]
    for name in ("nccl", "cuda"):
        assert not without[name]["available"] and "FAKE_CUDA_ERROR" in without[name]["reason"]
    assert (without["nccl"]["path"], without["nccl"]["version"]) == (GPU["DSC_NCCL_LIBRARY"], "2.28.9")
    assert f"; found {GPU['DSC_NCCL_LIBRARY']} (2.28.9;" in dscctl("info", FAKE_CUDA_INIT="101", **GPU).stdout
    nowhere = dscctl("info", "--json", DSC_NCCL_LIBRARY="/nowhere/nccl.so", DSC_CUDA_LIBRARY="/nowhere/cuda.so").stdout
    for name in ("nccl", "cuda"):
        engine = json.loads(nowhere)["engines"][name]
        assert not engine["available"] and engine["path"] is None and f"/nowhere/{name}.so" in engine["reason"]


def test_pmix_is_looked_for_where_it_is_said_to_be():
    for library, reason in (("/nonexistent/libpmix.so", "No such file"), (os.environ["FAKE_OLD_PMIX"], "expected PMIx 3.1")):
        pmix = json.loads(dscctl("info", "--json", DSC_PMIX_LIBRARY=library).stdout)["engines"]["pmix"]
        assert not pmix["available"] and library in pmix["reason"]
        if json.loads(dscctl("info", "--json").stdout)["features"]["pmix"]:
            assert reason in pmix["reason"]
            assert library in dscctl("info", DSC_PMIX_LIBRARY=library).stdout


SLURM = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "node[1-2]"}


def test_environment_as_json():
    report = json.loads(dscctl("info", "--env", "--json", **SLURM, SLURM_STEP_NUM_NODES="2").stdout)
    (slurm,) = [source for source in report["sources"] if source["name"] == "Slurm"]
    assert slurm["state"] == "chosen" and slurm["variables"]["SLURM_PROCID"] == "1"
    assert report["start"]["master_addr"] == "node1"
    assert report["start"]["master_addr_from"] == "SLURM_STEP_NODELIST"
    assert report["error"] is None
    assert report["start"]["meeting"] == "TCP"
    assert "SLURM_STEP_NUM_NODES is 2" in report["start"]["meeting_from"]


def test_environment_as_text():
    def lines(code=0, **variables):
        result = dscctl("info", "--env", **variables)
        assert (result.returncode, result.stderr) == (code, "")
        return [" ".join(line.split()) for line in result.stdout.splitlines()]

    alone = lines()
    assert "* one process chosen" in alone and "init would join" in alone
    both = lines(RANK="0", WORLD_SIZE="2", DSC_JOB_ID="mine", **SLURM)
    assert "* environment chosen" in both and "WORLD_SIZE = 2" in both
    assert "Slurm beaten environment has priority" in both and "SLURM_STEP_NODELIST = node[1-2]" in both
    assert "rank 0 of 2 (from environment)" in both and "job id mine (from DSC_JOB_ID)" in both
    outside = lines(1, RANK="5", WORLD_SIZE="2")
    assert "init would fail" in outside
    assert "DSC_ERR_CONFIG: rank 5 is outside its world: expected 0 to 1" in outside
    half = lines(1, RANK="0")
    assert "init would fail" in half and "DSC_ERR_CONFIG: RANK is set, but WORLD_SIZE is not" in half
    assert "environment incomplete RANK is set, but WORLD_SIZE is not" in half and half.count("RANK = 0") == 1
    lost = lines(1, RANK="0", WORLD_SIZE="8", MASTER_ADDR="nobody.invalid")
    assert "rank 0 of 8 (from environment)" in lost and "meeting unknown" in lost
    slurm = lines(1, SLURM_PROCID="1", SLURM_STEP_ID="0")
    assert "Slurm incomplete SLURM_PROCID is set, but SLURM_STEP_NUM_TASKS (or SLURM_NTASKS) is not" in slurm


@pytest.mark.parametrize(
    "launcher, source",
    [
        ([launch.DSCRUN, "--no-prefix", "-n", "1", "--"], "dscrun"),
        (["mpirun.openmpi", "-n", "1"], "Open MPI"),
        (["mpiexec.hydra", "-n", "1"], "MPICH (Hydra)"),
    ],
)
def test_real_launchers(launcher, source):
    if not shutil.which(launcher[0]):
        pytest.skip(f"{launcher[0]} is not installed")
    variables = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "DSC_PMIX_LIBRARY": "none"}
    command = [*launcher, launch.DSCCTL, "info", "--env", "--json"]
    result = subprocess.run(command, env=own_environment() | variables, capture_output=True, text=True, timeout=30)
    start = json.loads(result.stdout)["start"]
    assert (start["source"], start["rank"], start["world_size"]) == (source, 0, 1)
    assert (start["local_rank"], start["local_world_size"]) == (0, 1)


def test_text_has_every_section():
    result = dscctl("info")
    assert result.returncode == 0
    assert [line for line in result.stdout.splitlines() if line[0] != " "] == ["libdsc", "features", "engines", "host"]


def test_wrong_usage():
    for args in ((), ("infos",), ("info", "--jason")):
        result = dscctl(*args)
        assert (result.returncode, result.stdout) == (2, "") and result.stderr.startswith("dscctl: ")


if __name__ == "__main__":
    launch.main(__file__)
