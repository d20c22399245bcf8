"""The package installs without a network, without a compiler and with its types."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from conftest import ROOT

SOURCE = ROOT / "bindings" / "python"
IMPORT = "import libdsc; print(libdsc.version()[0], libdsc.__file__)"


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needs(*modules):
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{sys.executable} has no {module}")


@pytest.fixture
def source(tmp_path):
    """A copy, since building leaves files in the folder."""
    copy = tmp_path / "python"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__", ".mypy_cache"))
    return copy


@pytest.fixture
def empty(tmp_path):
    """The interpreter of a fresh environment that sees the system's setuptools and nothing of this build."""
    needs("venv", "ensurepip", "setuptools", "wheel")
    run(sys.executable, "-m", "venv", "--system-site-packages", tmp_path / "venv")
    return tmp_path / "venv" / "bin" / "python3"


def clean_environment():
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_install(source, empty, tmp_path):
    offline = ("--no-index", "--no-build-isolation", "--no-deps", "--quiet", "--disable-pip-version-check")
    run(empty, "-m", "pip", "install", *offline, ".", cwd=source, env=clean_environment())
    out = run(empty, "-c", IMPORT, cwd=tmp_path, env=clean_environment())
    assert out.startswith("0 ") and str(tmp_path / "venv") in out
    listed = run(empty, "-m", "pip", "show", "-f", "libdsc", env=clean_environment())
    assert "libdsc/py.typed" in listed and "libdsc/_raw.py" in listed and "Apache-2.0" in listed


def test_source_distribution(source, tmp_path):
    needs("setuptools", "wheel")
    build = "from setuptools import build_meta as b; print(b.build_sdist('out')); print(b.build_wheel('out'))"
    run(sys.executable, "-c", build, cwd=source, env=clean_environment())
    archives = sorted((source / "out").iterdir())
    assert [archive.suffix for archive in archives] == [".whl", ".gz"]
    with tarfile.open(archives[1]) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(archives[0]) as archive:
        wheel = set(archive.namelist())
    modules = {f"libdsc/{path.name}" for path in (SOURCE / "libdsc").glob("*.py")} | {"libdsc/py.typed"}
    assert modules <= packed and modules <= wheel
    assert {"pyproject.toml", "README.md"} <= packed
    assert "py3-none-any" in archives[0].name


def test_types():
    needs("mypy")
    run(sys.executable, "-m", "mypy", "--cache-dir", os.devnull, cwd=SOURCE)


def test_everything_public_is_documented():
    import libdsc

    for name in libdsc.__all__:
        thing = getattr(libdsc, name)
        assert thing.__doc__, name
        for attribute, value in vars(thing).items() if isinstance(thing, type) else ():
            if not attribute.startswith("_") and (callable(value) or isinstance(value, property)):
                assert value.__doc__, f"{name}.{attribute}"


def test_numpy_is_not_imported():
    run(sys.executable, "-c", "import sys, libdsc; assert 'numpy' not in sys.modules")


def test_works_without_numpy():
    program = """
import sys
sys.modules["numpy"] = None
import array, libdsc as dsc
world = dsc.init_distributed(rank=0, world_size=1)
x = array.array("d", [1, 2, 3])
world.all_reduce(x)
assert x.tolist() == [1, 2, 3]
try:
    world.empty(3)
except ImportError as error:
    assert "numpy is needed" in str(error)
else:
    raise AssertionError
dsc.finalize()
"""
    run(sys.executable, "-c", program)
