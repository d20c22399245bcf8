"""One exception class per code."""

import builtins
import os
import pickle
import subprocess
import sys

import pytest

import libdsc as dsc
from libdsc import errors

CODES = [code for code in dsc.Result if code < 0]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_every_code_has_its_class(code):
    error = errors.from_code(int(code), "text", rank=3, ranks=(3, 4), group="world", op="recv", sequence=7, index=2)
    assert type(error) is not dsc.DscError and isinstance(error, dsc.DscError)
    assert type(error).__name__ == "".join(w.capitalize() for w in code.name[4:].split("_")) + "Error"
    assert getattr(dsc, type(error).__name__) is type(error)
    assert (error.code, str(error), error.message) == (code, "text", "text")
    assert (error.rank, error.ranks, error.group, error.op, error.sequence) == (3, (3, 4), "world", "recv", 7)
    assert error.index == 2


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_errors_travel_between_processes(code):
    error = errors.from_code(int(code), "text", rank=3, op="recv", index=2)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and vars(copy) == vars(error) and str(copy) == "text"


def test_an_unknown_code_is_a_plain_error():
    error = errors.from_code(-999, "from a newer library")
    assert type(error) is dsc.DscError and error.code == -999


@pytest.mark.parametrize(
    "kind, base",
    [
        (dsc.TimeoutError, builtins.TimeoutError),
        (dsc.InvalidArgError, ValueError),
        (dsc.NomemError, MemoryError),
        (dsc.OverflowError, builtins.OverflowError),
        (dsc.UnsupportedError, NotImplementedError),
        (dsc.PeerDeadError, dsc.PeerError),
        (dsc.PeerLeftError, ConnectionError),
        (dsc.StateError, RuntimeError),
        (dsc.SystemError, OSError),
    ],
)
def test_classes_of_python_catch_them_too(kind, base):
    with pytest.raises(base):
        raise kind("text")


def test_the_library_is_named_when_it_is_missing(tmp_path):
    missing = str(tmp_path / "libdsc.so")
    environment = os.environ | {"DSC_LIBRARY": missing}
    done = subprocess.run([sys.executable, "-c", "import libdsc"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError: libdsc.so could not be loaded; tried" in done.stderr
    assert f"DSC_LIBRARY: {missing}: " in done.stderr and "Set DSC_LIBRARY" in done.stderr


def test_another_library_is_refused():
    environment = os.environ | {"DSC_LIBRARY": "libm.so.6"}
    done = subprocess.run([sys.executable, "-c", "import libdsc"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "undefined symbol: dsc_" in done.stderr
