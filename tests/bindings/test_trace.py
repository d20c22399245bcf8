"""Traces of the flight recorder in Python: as a dict, as a file for other programs, and on request."""

import json
import os
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import libdsc as dsc


def test_as_a_dict(world):
    world.all_reduce(np.arange(4.0))
    trace = world.trace()
    last = trace["entries"][-1]
    assert (trace["version"], trace["rank"], trace["world_size"]) == ("2.4", 0, 1)
    assert (last["profiling_name"], last["reduce_op"], last["algorithm"]) == ("dsc:all_reduce", "sum", "local")
    assert (last["input_sizes"], last["input_dtypes"], last["state"]) == ([[4]], ["f64"], "completed")
    assert abs(trace["clock"]["dump_ns"] - time.time_ns()) < 60e9


def test_as_a_file_that_others_read(world, tmp_path):
    world.barrier()
    path = tmp_path / "below" / "trace.json"
    world.dump_trace(path)
    read = subprocess.run([sys.executable, "-m", "json.tool", str(path)], check=True, capture_output=True)
    assert json.loads(read.stdout)["entries"][-1]["profiling_name"] == "dsc:barrier"
    assert os.listdir(path.parent) == ["trace.json"]
    with pytest.raises(dsc.InvalidArgError, match="DSC_TRACE_DIR was not set"):
        world.dump_trace()
    with pytest.raises(dsc.StateError, match="DSC_TRACE_DIR"):
        dsc.request_trace_dump()


def test_on_request_and_at_the_end_of_the_program(tmp_path):
    program = """
        import libdsc as dsc
        world = dsc.init_distributed()
        world.barrier()
        dsc.request_trace_dump()  # the program ends now, but exit waits for the file
    """
    folder = tmp_path / "traces"
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        check=True,
        timeout=60,
        env={**os.environ, "DSC_TRACE_DIR": str(folder)},
    )
    assert os.listdir(folder) == ["dsc_trace_rank_0.json"]
    trace = json.loads((folder / "dsc_trace_rank_0.json").read_text())
    assert trace["reason"] == "request"
    assert trace["entries"][-1]["profiling_name"] == "dsc:barrier"
