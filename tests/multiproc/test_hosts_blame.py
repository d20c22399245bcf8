"""One rank of several hosts is killed or stopped while all ranks reduce. The other ranks end normally as soon as they
know.

Each of them must blame that rank, and none may blame a rank that left because of the failure. DSC_TEST_REPETITIONS
scales the number of trials of each kind. DSC_TEST_SEED repeats them.
"""

import concurrent.futures
import os
import random
import signal
import sys
import time
from pathlib import Path

import launch
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import jobs  # noqa: E402
from repetitions import repetitions  # noqa: E402

ROUNDS = repetitions(8, least=2)
SEED = int(os.environ.get("DSC_TEST_SEED", time.time_ns() % 1_000_000))
AT_ONCE = 4  # the number of jobs that run at the same time; most of the time they wait
EXPECTED = {signal.SIGKILL: "DSC_ERR_PEER_DEAD", signal.SIGSTOP: "DSC_ERR_PEER_STALLED"}


def strike(number, seed, struck_by, hosts):
    """Runs one trial. Returns a text for each survivor that blames the wrong rank."""
    chance = random.Random(seed)
    victim = chance.randrange(len(hosts))
    job = jobs.Job(len(hosts), command=[os.environ["STRUCK_RANK"]]).place(hosts)
    try:
        for rank in job.ranks:
            assert rank.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0, 0.02))
        job.ranks[victim].send_signal(struck_by)
        wrong = []
        for rank, process in enumerate(job.ranks):
            if rank == victim:
                continue
            said = process.communicate(timeout=launch.LIMIT_S)[0].strip()
            if not said.startswith(f"{EXPECTED[struck_by]} {victim}:"):
                wrong.append(f"trial {number}, seed {seed}, rank {victim} struck: rank {rank} says {said!r}")
        return wrong
    finally:
        for process in job.ranks:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("hosts", [[0, 0, 1, 1], [0, 1, 1, 1]], ids=["2+2", "1+3"])
@pytest.mark.parametrize("struck_by", EXPECTED, ids=["killed", "stopped"])
def test_everybody_blames_the_rank_that_was_struck(struck_by, hosts):
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        trials = [pool.submit(strike, i, SEED + i, struck_by, hosts) for i in range(ROUNDS)]
        wrong = [text for trial in trials for text in trial.result()]
    print(f"{3 * ROUNDS} reports, {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)


if __name__ == "__main__":
    launch.main(__file__)
