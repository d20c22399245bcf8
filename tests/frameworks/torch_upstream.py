#!/usr/bin/env python3
"""Runs torch's own tests of process groups (torch.testing._internal.distributed.distributed_test) over a backend.

    torch_upstream.py [--backend dsc|gloo|replaced] [--ranks N] [--json FILE] [NAME ...]

NAME is a test or a pattern such as "test_all_reduce*"; without NAME all tests run. "replaced" is the backend "gloo"
after libdsc.torch.replace_gloo(): tests that are only for gloo then run over libdsc. Prints a line per test, and exits
with 1 if one failed. torch's wheel contains the tests but not the program that starts them, so this program does.
"""

import argparse
import fnmatch
import json
import os
import sys
import tempfile
import time
import unittest

TEST_TIMEOUT_S = 120


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--backend", choices=["dsc", "gloo", "replaced"], default="dsc")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--json", metavar="FILE", help="where results are written, by test")
    parser.add_argument("names", nargs="*", metavar="NAME")
    return parser.parse_args()


def prepare(options):
    """Sets the environment that the module reads when it is imported."""
    os.environ["BACKEND"] = "gloo" if options.backend == "replaced" else options.backend
    os.environ["WORLD_SIZE"] = str(options.ranks)
    os.environ["TEMP_DIR"] = tempfile.mkdtemp(prefix="dsc-torch-")
    os.environ["INIT_METHOD"] = "file://" + os.path.join(os.environ["TEMP_DIR"], "rendezvous")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")


def test_class(options):
    import torch
    from torch.testing._internal import common_distributed

    import libdsc.torch

    torch.set_num_threads(1)
    if options.backend == "replaced":
        libdsc.torch.replace_gloo()
    for feature in ("ddp", "subgroup"):
        common_distributed.DistTestCases.backend_feature[feature].add("dsc")
    common_distributed.TIMEOUT_DEFAULT = TEST_TIMEOUT_S
    from torch.testing._internal.distributed import distributed_test

    if options.backend == "replaced":
        # These tests expect profiler events of gloo's threads, but libdsc's events are on the caller's thread.
        for name in ("PROFILING_SUPPORTED_BACKENDS", "SEND_RECV_PROFILING_SUPPORTED_BACKENDS"):
            getattr(distributed_test, name).clear()

    class TestUpstream(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._fork_processes()

        def _fork_processes(self):
            """Forks the ranks, so that they need not import torch again. This process has not used torch yet."""
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return TestUpstream


class Result(unittest.TestResult):
    """Prints a line per test as it ends."""

    def __init__(self):
        super().__init__()
        self.found = {}

    def startTest(self, test):
        super().startTest(test)
        self._began_s = time.monotonic()

    def _note(self, test, outcome, text=""):
        name = test.id().rpartition(".")[2]
        self.found[name] = {"outcome": outcome, "text": text}
        last = next((line for line in reversed(text.splitlines()) if "Error: " in line), text.strip())
        print(f"{outcome:8} {name} {time.monotonic() - self._began_s:.1f} s {last[:300]}".rstrip(), flush=True)

    def addSuccess(self, test):
        self._note(test, "passed")

    def addSkip(self, test, reason):
        self._note(test, "skipped", reason)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self._note(test, "failed", self.failures[-1][1])

    def addError(self, test, error):
        super().addError(test, error)
        self._note(test, "failed", self.errors[-1][1])


def main():
    options = arguments()
    prepare(options)
    kind = test_class(options)
    names = [name for name in dir(kind) if name.startswith("test_")]
    if options.names:
        names = [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in options.names)]
    result = Result()
    unittest.TestSuite(kind(name) for name in names).run(result)
    outcomes = [entry["outcome"] for entry in result.found.values()]
    counts = {outcome: outcomes.count(outcome) for outcome in ("passed", "skipped", "failed")}
    print(f"{options.backend}, {options.ranks} ranks: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(result.found, file, indent=1)
    sys.exit(1 if counts["failed"] or not names else 0)


if __name__ == "__main__":
    main()
