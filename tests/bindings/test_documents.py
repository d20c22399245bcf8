"""Runs the Python code of the documents."""

import ast
import importlib
import importlib.util
import inspect
import operator
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

import libdsc as dsc
from conftest import ROOT
from test_ranks import ranks


def python_in(document):
    """Returns the blocks of Python code of a document."""
    text = (ROOT / "docs" / document).read_text()
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def _runs(rank, document):
    namespace = {}
    for block in python_in(document):
        exec(block, namespace)
    dsc.finalize()
    return len(python_in(document))


@pytest.mark.parametrize("n", [2, 3])
def test_operations(n):
    assert min(dsc.spawn(_runs, n, ("operations.md",), timeout=60)) > 8


def test_tensor_parallelism():
    assert min(dsc.spawn(_runs, 4, ("tensor_parallel.md",), timeout=60)) == 9


def runs_recipe(world, framework):
    (recipe,) = (block for block in python_in("frameworks.md") if re.search(rf"^(import|from) {framework}\b", block, re.MULTILINE))
    exec(recipe, {"np": np, "dsc": dsc, "world": world})
    return True


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("framework", ["torch", "autograd", "tinygrad"])
def test_recipes_for_frameworks(framework, n, monkeypatch):
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    if framework == "torch":
        pytest.importorskip("torch", minversion="2.14")
    monkeypatch.setenv("DEV", "CPU")  # tinygrad then uses only the CPU
    assert ranks(n, runs_recipe, framework) == [True] * n


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_jax(n, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert dsc.spawn(_runs, n, ("jax.md",), timeout=60) == [8] * n


@pytest.mark.parametrize("n", [1, 2])
def test_cross_entropy(n):
    assert dsc.spawn(_runs, n, ("cross_entropy.md",), timeout=60) == [1] * n


@pytest.mark.parametrize("n", [1, 2, 4])
def test_context_parallelism(n):
    assert dsc.spawn(_runs, n, ("context_parallel.md",), timeout=60) == [6] * n


@pytest.mark.parametrize("n", [1, 2])
def test_expert_parallel(n):
    assert dsc.spawn(_runs, n, ("expert_parallel.md",), timeout=60) == [1] * n


@pytest.mark.skipif("DSCRUN" not in os.environ, reason="DSCRUN does not name the launcher")
def test_two_hosts_on_one_machine(tmp_path):
    text = (ROOT / "docs" / "hosts.md").read_text()
    (script,) = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    folders = [os.path.dirname(program) for program in (os.environ["DSCRUN"], sys.executable)]
    env = os.environ | {"PATH": os.pathsep.join([*folders, os.environ["PATH"]]), "MASTER_PORT": port}
    done = subprocess.run(["bash", "-ec", script], env=env, cwd=tmp_path, stdout=subprocess.PIPE, text=True, timeout=50)
    lines = [f"[{rank}] rank {rank} of 4, 2 on its host: 4 by inter_host" for rank in range(4)]
    assert sorted(done.stdout.splitlines()) == lines and lines[0] in text


def hangs(world, folder):
    """Rank 0 waits in C for rank 1. Rank 1 requests the trace of rank 0 by a signal, reads it and then joins."""
    path = os.path.join(folder, "dsc_trace_rank_0.json")
    if world.rank == 0:
        (recipe,) = (block for block in python_in("tracing.md") if "set_wakeup_fd" in block)
        exec(recipe, {})
    pid = np.array([os.getpid()])
    world.broadcast(pid)
    if world.rank == 1:
        time.sleep(0.3)  # after this time rank 0 waits in the barrier
        os.kill(pid[0], signal.SIGUSR1)
        end = time.monotonic() + 50
        while not os.path.exists(path) and time.monotonic() < end:
            time.sleep(0.01)
    found = os.path.exists(path)
    world.barrier()
    return found


def test_a_signal_asks_a_rank_that_hangs_for_its_trace(tmp_path, monkeypatch):
    monkeypatch.setenv("DSC_TRACE_DIR", str(tmp_path))
    assert ranks(2, hangs, str(tmp_path))[1]
    assert '"reason":"request"' in (tmp_path / "dsc_trace_rank_0.json").read_text().replace(" ", "")


def trains_by_the_document(world):
    """Trains with seven samples on two or three ranks by the loop in buckets.md.

    Then rank 0 runs one iteration less than the others.
    """
    (loop,) = (block for block in python_in("buckets.md") if "def epoch" in block)
    (whole,) = (block for block in python_in("buckets.md") if "dsc.finalize()" in block)
    averages, uneven = [], []

    def gradient(samples):
        averages.append(np.full(2, float(samples.sum())))
        return averages[-1]

    def train(world, reducer):
        namespace["epoch"](world, reducer, np.arange(7.0), 1, 3)
        try:
            for _ in range(2 if world.rank else 1):
                reducer.begin()
                reducer.mark_ready(0, np.ones(2))
                reducer.finish()
        # RevokedError if begin() is called after the other rank's close()
        except (dsc.PeerLeftError, dsc.RevokedError) as error:
            uneven.append("has left the group" in str(error) and (type(error) is dsc.RevokedError or error.rank in range(3)))

    namespace = {"dsc": dsc, "np": np, "gradient": gradient, "train": train, "world": world, "params": [np.zeros(2)]}
    exec(loop, namespace)
    exec(whole.replace("dsc.finalize()", ""), namespace)  # the test finalizes by itself
    return len(averages), sum(float(average[0]) for average in averages), uneven


@pytest.mark.parametrize("n", [2, 3])
def test_uneven_data(n):
    found = ranks(n, trains_by_the_document)
    per_rank = 7 // n
    assert [entry[0] for entry in found] == [per_rank] * n
    assert len({entry[1] for entry in found}) == 1
    left = [entry[2] for entry in found]
    assert left[0] == [] and left[1:] == [[True]] * (n - 1)


OWNERS = {
    "comm": dsc.Communicator,
    "megatron": importlib.import_module("libdsc.megatron"),
    "mesh": dsc.Mesh,
    "reducer": dsc.BucketReducer,
    "sharded": dsc.Sharded,
    "store": dsc.Store,
    "work": dsc.Work,
}
TAKES_OPTIONS = [
    dsc.BucketReducer,
    dsc.Communicator.pipe_run,
    dsc.PipeSchedule,
    dsc.Sharded,
    dsc.init_distributed,
]
# their source is read instead of importing them, because the framework may be missing
WITH_A_FRAMEWORK = ("libdsc.jax.", "libdsc.torch.")
TOOLS = ("dscctl bench", "dscctl info", "dscrun", "dscrun --export")


def names_here():
    """Returns the names in the "here" columns of the tables of coming_from.md, with their lines."""
    found, is_table = [], False
    for number, line in enumerate((ROOT / "docs" / "coming_from.md").read_text().splitlines(), 1):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            is_table = False
        elif cells == ["there", "here", "note"]:
            is_table = True
        elif is_table:
            assert len(cells) == 3, f"line {number} has {len(cells)} cells"
            assert cells[2] or cells[1] not in ("", "out"), f"line {number} does not say why"
            names = re.findall(r"`([^`]+)`", cells[1])
            assert names or cells[1] in ("", "out", "---"), f"line {number} names nothing here"
            found += [(number, name) for name in names]
    return found


def exported(*place):
    """Returns the names that a package or its module exports, read from its source."""
    path = pathlib.Path(dsc.__file__).parent.joinpath(*place)
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    (names,) = [
        ast.literal_eval(node.value)
        for node in ast.parse(source.read_text()).body
        if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == ["__all__"]
    ]
    return names


def is_there(name):
    if name.startswith("dsc_"):
        headers = (ROOT / "capi" / "include" / "dsc").glob("*.h")
        return any(re.search(rf"\b{name}\(", header.read_text()) for header in headers)
    if name.startswith(WITH_A_FRAMEWORK):
        _, *place, member = name.split(".")
        return member in exported(*place)
    if name.endswith("="):
        return any(name[:-1] in inspect.signature(taker).parameters for taker in TAKES_OPTIONS)
    owner, _, rest = name.partition(".")
    try:
        operator.attrgetter(rest)(dsc if owner == "libdsc" else OWNERS[owner])
    except (AttributeError, KeyError):
        return name in TOOLS
    return True


def test_names_for_newcomers():
    names = names_here()
    assert len(names) > 300
    assert [(line, name) for line, name in names if not is_there(name)] == []
    assert is_there("libdsc.torch.layers.sum_gradients") and not is_there("libdsc.torch.layers.all_reduce")
    assert not is_there("comm.allreduce") and not is_there("dsc_allreduce") and not is_there("bucket_cap_mb=")
