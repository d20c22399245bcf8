"""Groups of "dsc" with tensors on GPUs, by the fake CUDA driver and the fake NCCL.

No GPU and no real NCCL is needed.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch

from conftest import ROOT

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = HERE / "torch_device.py"
FAKES = pathlib.Path(os.environ.get("DSC_LIBRARY") or ROOT / "build/capi/libdsc.so").parents[1] / "tests/support/fake_gpu"
NCCL = FAKES / "libfake_nccl_whole.so"
TORCHS = pathlib.Path(torch.__file__).parent / "lib/libtorch_cuda.so"
CASES = [line[4:-3] for line in PROGRAM.read_text().splitlines() if line.startswith("def test_")]

if not NCCL.exists():
    pytest.skip(f"{FAKES} has no fake GPU, which ./dev test torch builds", allow_module_level=True)
if not shutil.which("gcc") or not shutil.which("nm"):
    pytest.skip("gcc and nm are needed to put the fake NCCL in the place of torch's", allow_module_level=True)


def symbols(library, which):
    listed = subprocess.run(["nm", "-D", which, library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].partition("@")[0] for line in listed.splitlines() if "nccl" in line}


@pytest.fixture(scope="module")
def nccl(tmp_path_factory):
    """Names the fake NCCL like the library that torch is linked with, because a process can have only one NCCL. torch
    never calls it."""
    library = tmp_path_factory.mktemp("fake") / "libnccl.so.2"
    wanted = symbols(TORCHS, "--undefined-only") if TORCHS.exists() else set()
    missing = sorted(wanted - symbols(NCCL, "--defined-only"))
    code = "".join(f"void {name}(void) {{ __builtin_trap(); }}\n" for name in missing)
    link = ["-Wl,-soname,libnccl.so.2", "-Wl,--no-as-needed", f"-L{FAKES}", f"-l:{NCCL.name}", f"-Wl,-rpath,{FAKES}"]
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", library, *link], input=code, text=True, check=True)
    return library


@pytest.mark.parametrize("case", CASES)
def test_on_gpus(case, nccl):
    fakes = {"LD_PRELOAD": str(nccl), "DSC_CUDA_LIBRARY": str(FAKES / "libfake_cuda.so"), "CUDA_VISIBLE_DEVICES": "0,1"}
    paths = os.pathsep.join([str(HERE), os.environ["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, PROGRAM, case], env=os.environ | fakes | {"PYTHONPATH": paths}, capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stderr[-4000:]
