"""One exception class for each result code."""

import builtins
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import libdsc as dsc
from libdsc import _dtypes, errors

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
    "call, said",
    [
        (lambda: dsc.init_distributed(backend="host", device=0), "but backend host uses no device; expected auto or device with a device"),
        (lambda: dsc.simulate_pipeline("1f1b", 2, 4, forward=[1] * 3), "list of costs has 3 values, expected 1 or 2"),
        (lambda: dsc.simulate_pipeline("1f1b", 2, 4, overlap=7), "overlap is 7, expected more than 0"),
    ],
)
def test_errors_speak_the_words_of_python(call, said):
    with pytest.raises(dsc.DscError, match=said) as caught:
        call()
    text = str(caught.value)
    assert "->" not in text and "NULL" not in text


def test_pytorchs_names_of_backends():
    assert [_dtypes.backend_code(name) for name in ("nccl", "gloo")] == [dsc.Backend.DEVICE, dsc.Backend.INTER_HOST]
    with pytest.raises(ValueError, match='backend is "nccll"; expected one of .*"device", "inter_host"; did you mean "device"'):
        _dtypes.backend_code("nccll")


def test_only_messages_of_wrong_arguments_are_said_anew():
    quoted = "rank 1: ValueError: p->next is NULL"
    assert str(errors.from_code(errors.Result.ERR_CALLBACK, quoted)) == quoted
    of_run = "memory has 3 bytes, expected at least 8, the size that dsc_pipe_run_bytes() returns"
    assert str(errors.from_code(errors.Result.ERR_INVALID_ARG, of_run)).endswith("8, the size that PipeSchedule.run_bytes() returns")


def chooses_its_own_backend(_):
    backend = ["auto", "host", "auto"][int(os.environ["RANK"])]
    try:
        dsc.init_distributed(backend=backend, timeout=5 + int(os.environ["RANK"]), init_timeout=20)
    except dsc.ConfigError as error:
        return str(error)


def test_backends_that_differ_are_named():
    texts = dsc.spawn(chooses_its_own_backend, 3, timeout=50)
    for text in texts:
        assert "settings differ: backend: auto (ranks 0, 2), host (rank 1)" in text
    newer = "settings differ: backend: 3 (rank 0), 99 (rank 1); timeout_ms: 2 (rank 1)"
    said = "settings differ: backend: inter_host (rank 0), 99 (rank 1); timeout: 0.002 s (rank 1)"
    assert str(errors.from_code(errors.Result.ERR_CONFIG, newer)) == said


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
    assert f"DSC_LIBRARY: {missing}: " in done.stderr and "set DSC_LIBRARY" in done.stderr


def test_another_library_is_refused():
    environment = os.environ | {"DSC_LIBRARY": "libm.so.6"}
    done = subprocess.run([sys.executable, "-c", "import libdsc"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "undefined symbol: dsc_" in done.stderr


def test_messages_say_the_names_of_python(world):
    x = np.zeros(10)
    for call, said in (
        (lambda: world.all_reduce(x[:5], out=x[1:6]), "^all_reduce: x and out overlap; expected separate buffers, or in place: out is x$"),
        (lambda: world.all_gather(x[:5], x[1:6]), "or x as this rank's own part of out$"),
    ):
        with pytest.raises(dsc.Error, match=said):
            call()


def test_a_thread_without_memory_is_no_wait_without_end():
    """A thread that cannot start, for example because of RLIMIT_DATA, does nothing.

    A caller that waits for it gets an error.
    """
    script = """
import _thread, threading
import libdsc as dsc
from libdsc import _interrupt
world = dsc.init_distributed(rank=0, world_size=1)
_interrupt.STARTING_S = 0.5
_thread.start_new_thread = threading._start_new_thread = lambda *arguments: 0
for _ in range(2):
    try:
        _interrupt.call(world.abort, lambda: 0)
    except MemoryError as error:
        print(error)
"""
    said = "the thread that handles Ctrl-C did not start within 0.5 s; there may be too little memory for it"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert result.stdout.splitlines() == [said] * 2, result.stderr
