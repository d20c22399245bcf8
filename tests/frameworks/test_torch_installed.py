"""What an installed libdsc does in a program that never imports it: the entry points of its package."""

import importlib.metadata
import os
import pathlib
import subprocess
import sys

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "bindings/python"

ONE_RANK = """
import torch.distributed as dist
dist.init_process_group("{backend}", store=dist.HashStore(), rank=0, world_size=1)
print(dist.get_backend(), type(dist.group.WORLD).__module__)
"""


def metadata(folder):
    """Returns an installed package as importlib sees it, with the entry points of pyproject.toml."""
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    info = folder / "libdsc-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: libdsc\nVersion: 0\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def run(code, folder, **variables):
    if not importlib.metadata.entry_points(group="torch.distributed.backends", name="dsc"):
        metadata(folder)  # the tests use the source tree and no installed package
        variables["PYTHONPATH"] = os.pathsep.join([str(folder), str(PACKAGE), os.environ.get("PYTHONPATH", "")])
    return subprocess.run([sys.executable, "-c", code], env=os.environ | variables, capture_output=True, text=True, timeout=120)


def test_torch_finds_the_backend_by_name(tmp_path):
    done = run(ONE_RANK.format(backend="dsc"), tmp_path)
    assert done.stdout.split() == ["dsc", "libdsc.torch._backend"], done.stderr[-2000:]


def test_torch_replaces_gloo_where_the_environment_says_so(tmp_path):
    done = run(ONE_RANK.format(backend="gloo"), tmp_path, DSC_TORCH_REPLACE_GLOO="1")
    assert done.stdout.split() == ["gloo", "libdsc.torch._backend"], done.stderr[-2000:]


def test_torch_loads_nothing_of_libdsc_otherwise(tmp_path):
    done = run("import sys, torch; print('libdsc' in sys.modules)", tmp_path, DSC_TORCH_REPLACE_GLOO="0")
    assert done.stdout.strip() == "False", done.stderr[-2000:]


def test_torch_says_what_the_variable_may_be(tmp_path):
    done = run("import torch", tmp_path, DSC_TORCH_REPLACE_GLOO="yes")
    assert "DSC_TORCH_REPLACE_GLOO is 'yes'; expected 0 or 1" in done.stderr
