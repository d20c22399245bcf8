"""Runs torch's own tests and test harness over "dsc", and its tests of gloo with libdsc in place of gloo."""

import json
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent

# Tests that fail with libdsc in place of gloo, and the reason. Over "dsc" no test fails.
IN_GLOOS_PLACE = {
    "test_ddp_logging_data_cpu": "wants gloo's name from C++, where torch takes an object of that name for gloo's own",
    "test_monitored_barrier_gloo": "wants gloo's text on the ranks that did come",
    "test_monitored_barrier_failure_order": "wants gloo's text on the ranks that did come",
    "test_monitored_barrier_gloo_rank_0_timeout": "wants gloo's text for a time-out of 0",
}
LEAST_PASSED = {"dsc": 66, "replaced": 88}


ALL = [pytest.param(backend, ranks, marks=[] if (backend, ranks) == ("dsc", 2) else pytest.mark.full) for backend in LEAST_PASSED for ranks in (2, 3, 4)]


@pytest.mark.parametrize(("backend", "ranks"), ALL)
def test_torch_upstream(backend, ranks, tmp_path):
    file = tmp_path / "results.json"
    command = [sys.executable, str(HERE / "torch_upstream.py"), "--backend", backend, "--ranks", str(ranks), "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert file.exists(), done.stderr[-3000:]
    results = json.loads(file.read_text())
    failed = {name: entry["text"] for name, entry in results.items() if entry["outcome"] == "failed"}
    unexpected = failed.keys() - (IN_GLOOS_PLACE.keys() if backend == "replaced" else set())
    assert not unexpected, "\n".join(f"{name}: {failed[name][-2000:]}" for name in unexpected)
    assert sum(entry["outcome"] == "passed" for entry in results.values()) >= LEAST_PASSED[backend]
    print(done.stdout.splitlines()[-1])


def test_one_group_for_all_tests():
    """Uses torch's harness for its newer tests, over "dsc"."""
    done = subprocess.run([sys.executable, str(HERE / "torch_continuous.py")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr.rstrip().endswith("OK") and "Ran 4 tests" in done.stderr, done.stderr[-3000:]
