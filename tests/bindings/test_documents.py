"""The Python that stands in the documents runs."""

import os
import re
import signal
import time

import numpy as np
import pytest

import libdsc as dsc
from conftest import ROOT
from test_ranks import ranks


def python_in(document):
    """The blocks of Python of a document."""
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


def hangs(world, folder):
    """Rank 0 waits in C for rank 1, which asks for its trace by a signal, reads it and comes then."""
    path = os.path.join(folder, "dsc_trace_rank_0.json")
    if world.rank == 0:
        (recipe,) = (block for block in python_in("tracing.md") if "set_wakeup_fd" in block)
        exec(recipe, {})
    pid = np.array([os.getpid()])
    world.broadcast(pid)
    if world.rank == 1:
        time.sleep(0.3)  # rank 0 waits in the barrier by now
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
