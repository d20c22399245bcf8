"""The package installs without a network and without a compiler, and includes its type hints."""

import importlib.util
import os
import re
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
    """A copy of the source, because building leaves files in the folder."""
    copy = tmp_path / "python"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__", ".mypy_cache"))
    return copy


@pytest.fixture
def empty(tmp_path):
    """The interpreter of a new environment that has the system's setuptools but nothing of this build."""
    needs("venv", "ensurepip", "setuptools", "wheel")
    run(sys.executable, "-m", "venv", "--system-site-packages", tmp_path / "venv")
    return tmp_path / "venv" / "bin" / "python3"


def clean_environment():
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONPYCACHEPREFIX")}


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


def version_in(path, line):
    """Returns the version in a metadata file."""
    return re.search(rf"^\s*{line}", path.read_text(), re.MULTILINE).group(1)


def test_every_version_is_that_of_the_library():
    import libdsc

    version = ".".join(str(part) for part in libdsc.version())
    assert version_in(ROOT / "meson.build", r"version: '(.+)',") == version
    assert version_in(SOURCE / "pyproject.toml", 'version = "(.+)"') == version
    whole = (ROOT / "pyproject.toml").read_text()
    assert 'dynamic = ["version"]' in whole  # meson-python reads the version from meson.build


def test_both_ways_to_install_describe_one_package():
    project = [(folder / "pyproject.toml").read_text() for folder in (ROOT, SOURCE)]
    for line in ("name = .+", "description = .+", "requires-python = .+", "arrays = .+"):
        first, second = (re.search(f"^{line}", text, re.MULTILINE).group(0) for text in project)
        assert first == second


def test_import_error_says_how_to_get_the_library(tmp_path):
    shutil.copytree(SOURCE / "libdsc", tmp_path / "libdsc", ignore=shutil.ignore_patterns("*.so*", "bin", "__pycache__"))
    environment = {name: value for name, value in clean_environment().items() if not name.startswith(("DSC_", "LD_LIBRARY_"))}
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + IMPORT
    raw = tmp_path / "libdsc" / "_raw.py"  # makes the package look for a function that no installed library has
    raw.write_text(re.sub(r"^SOVERSION = .+", "SOVERSION = 'none'", raw.read_text(), flags=re.MULTILINE))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 1
    for part in ("ImportError", "in the package: ", "in the system: ", "pip install .", "./dev wheel", "set DSC_LIBRARY"):
        assert part in done.stderr, done.stderr


def test_uses_the_copy_that_a_framework_has_loaded(tmp_path):
    for folder in ("system", "package"):
        shutil.copytree(SOURCE / "libdsc", tmp_path / folder / "libdsc", ignore=shutil.ignore_patterns("*.so*", "bin", "__pycache__"))
        shutil.copy(os.environ["DSC_LIBRARY"], tmp_path / folder / "libdsc" / "libdsc.so.0")
    program = f"""
import ctypes, sys
sys.path.insert(0, {str(tmp_path / "package")!r})
framework = ctypes.CDLL({str(tmp_path / "system/libdsc/libdsc.so.0")!r}) if "loaded" in sys.argv else None
import libdsc as dsc
dsc.init_distributed(rank=0, world_size=1)
if framework:
    found = ctypes.c_int32()
    assert framework.dsc_is_initialized(ctypes.byref(found)) == 0 and found.value == 1
dsc.finalize()
print(*sorted({{line.split()[-1] for line in open("/proc/self/maps") if "libdsc.so" in line}}))
"""
    environment = {name: value for name, value in clean_environment().items() if name != "DSC_LIBRARY"}
    for words, used in {("loaded",): "system", (): "package"}.items():
        output = run(sys.executable, "-c", program, *words, env=environment)
        assert output.strip() == str(tmp_path / used / "libdsc/libdsc.so.0")


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
    assert "needs numpy" in str(error)
else:
    raise AssertionError
dsc.finalize()
"""
    run(sys.executable, "-c", program)
