#!/usr/bin/env python3
"""Checks of train_transformer.py in addition to its layouts: wrong options, equal bits of equal runs, and ranks on two
hosts.

    check_transformer.py refusals|bits|hosts DSCRUN
"""

import os
import pathlib
import random
import re
import socket
import subprocess
import sys

PROGRAM = pathlib.Path(__file__).resolve().parent / "python" / "train_transformer.py"
SMALL = ["--width", "16", "--heads", "4", "--context", "8", "--blocks", "4", "--batch", "16"]

# Wrong options, and a text that the message must contain; 2 ranks.
REFUSED = {
    ("--tp", "3"): "--tp 3 x --pp 1 x --dp 1 is for 3 ranks; this job has 2",
    ("--tp", "2", "--pp", "2", "--dp", "2"): "--tp 2 x --pp 2 x --dp 2 is for 8 ranks; this job has 2",
    ("--tp", "2", "--heads", "1"): "--heads 1 cannot be divided among 2 ranks (--tp)",
    ("--tp", "2", "--context", "7", "--sequence-parallel"): "--context 7 cannot be divided among 2 ranks (--tp) with",
    ("--batch", "12"): "--batch 12 cannot be divided into 8 micro-batches (2 replicas of 4)",
    ("--pp", "2", "--blocks", "3"): "--blocks 3 cannot be divided among 2 stages",
    ("--pp", "2", "--blocks", "2", "--schedule", "interleaved"): "--blocks 2 cannot be divided among 2 stages x 2 chunks",
    ("--width", "20", "--heads", "8"): "--width 20 cannot be divided among 8 heads",
    ("--schedule", "1fb1"): "argument --schedule: invalid choice: '1fb1'",
}


def command(dscrun, ranks, options, launch=()):
    return [dscrun, "-n", str(ranks), "--timeout", "60", *launch, "--", sys.executable, str(PROGRAM), *options]


def check_refusals(dscrun):
    """Every wrong option is explained once, all ranks end with code 2, and nothing is trained."""
    for options, answer in REFUSED.items():
        done = subprocess.run(command(dscrun, 2, options), capture_output=True, text=True, timeout=60, check=False)
        told = [line for line in done.stderr.splitlines() if answer in line]
        assert done.returncode == 2, (options, done.returncode, done.stderr)
        assert len(told) == 1 and "train_transformer" in told[0], (options, done.stderr)
        assert "loss" not in done.stdout, (options, done.stdout)


def digest_of(dscrun, *options):
    """Trains a few steps. Returns the hash of the final parameters."""
    given = [*SMALL, "--tp", "2", "--pp", "2", "--sequence-parallel", "--steps", "4", *options]
    output = subprocess.run(command(dscrun, 4, given), stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
    return re.search(r"final parameters: ([0-9a-f]{64})", output)[1]


def check_bits(dscrun):
    """Two runs of the same layout give the same bits. A run with another seed gives other bits."""
    first = digest_of(dscrun)
    assert digest_of(dscrun) == first
    assert digest_of(dscrun, "--seed", "1") != first


def free_port():
    """Returns a free port below the range from which the kernel chooses ports for connections."""
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def check_hosts(dscrun):
    """Runs two ranks on each of two hosts. With tp 4, each layer is divided between the hosts; with tp 2, the stages
    are.
    """
    for layout in (["--tp", "4", "--sequence-parallel"], ["--tp", "2", "--pp", "2", "--sequence-parallel"]):
        master = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(free_port())]
        options, started = [*SMALL, *layout, "--steps", "10", "--compare"], []
        for host in range(2):
            environment = os.environ | {"DSC_HOST_ID": f"host{host}", "DSC_TOKEN": "ab" * 32}
            job = command(dscrun, 2, options, [*master, "--node-rank", str(host)])
            started.append(subprocess.Popen(job, stdout=subprocess.PIPE, text=True, env=environment))
        outputs = [job.communicate(timeout=90)[0] for job in started]
        assert [job.returncode for job in started] == [0, 0], outputs
        assert "at most 1e-09 wanted: equal" in outputs[0], outputs


CHECKS = {"refusals": check_refusals, "bits": check_bits, "hosts": check_hosts}

if __name__ == "__main__":
    CHECKS[sys.argv[1]](sys.argv[2])
    print(f"{sys.argv[1]}: passed")
