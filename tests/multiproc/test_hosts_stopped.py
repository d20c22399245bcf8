"""A rank of several hosts is stopped while few other ranks are in a call. Those ranks get an error after stall_timeout.

This holds for a wait on any host and in any group, and whether or not the two ranks were connected before.
"""

import ast
import sys
from pathlib import Path

import launch
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_hosts import BEGIN, Job

HOSTS = [0, 0, 1, 1]
STALL_S = 3
BOUND_S = STALL_S + launch.AT_ONCE_S  # well below the 40 s time-out of an operation, even on a busy machine

# The ranks in VICTIMS are stopped. The ranks in CALLS run their code and print how it ended. All other ranks stay alive
# and make no call until the ranks in CALLS have printed.
STOPPED = (
    BEGIN.replace("(init_timeout", "(stall_timeout=STALL_S, init_timeout").replace("STALL_S", str(STALL_S))
    + """
import signal
calls = CALLS
all_ranks, all_again = world.split(0, r), world.split(0, r)
first_and_last, without_first = world.create_group([0, 3]), world.create_group([1, 2, 3])
x = np.ones(10)
world.barrier()
meet("through", n)
if r in VICTIMS: os.kill(os.getpid(), signal.SIGSTOP)
if r in calls:
    if 0 in VICTIMS: time.sleep(0.5)  # after this time the store of rank 0 does not answer
    start = time.monotonic()
    try:
        exec(calls[r])
        print("no error")
    except dsc.DscError as error:
        print([type(error).__name__, list(error.ranks), time.monotonic() - start, str(error)], flush=True)
    open(f"{os.environ['MEETINGS']}/told.{r}", "w").close()
while not all(os.path.exists(f"{os.environ['MEETINGS']}/told.{rank}") for rank in calls): time.sleep(0.01)
os._exit(0)
"""
)


def told_of(*cases):
    """Returns for each case (victims, code by rank) what the calling ranks got: {rank: [error, ranks, seconds,
    text]}."""
    jobs = [(calls, Job(STOPPED.replace("CALLS", str(calls)).replace("VICTIMS", str(victims)), HOSTS)) for victims, calls in cases]
    try:
        return [
            {rank: ast.literal_eval(job.ranks[rank].communicate(timeout=launch.LIMIT_S)[0]) for rank in calls} for calls, job in jobs
        ]
    finally:
        for _, job in jobs:
            for rank in job.ranks:
                rank.kill()
                rank.communicate()


def check(told, ranks):
    for name, blamed, seconds, text in told.values():
        assert name == "PeerStalledError" and blamed == ranks and STALL_S - 1 < seconds < BOUND_S, told


def test_who_waits_for_a_stopped_rank_whose_host_calls_nothing():
    """Rank 3 is not the first of its host, and rank 2 makes no call. In the last group rank 2 is not even a member."""
    calls = ["world.recv(x, 3)", "all_ranks.recv(x, 3)", "first_and_last.all_reduce(x)", "first_and_last.recv(x, 1)"]
    *of_all, of_two, message_of_two = told_of(*(([3], {0: call}) for call in calls))
    for told in of_all:
        check(told, [3])
    check(of_two, [1])
    check(message_of_two, [1])


def test_a_host_of_which_no_rank_runs():
    """No rank of that host can report rank 3. Only rank 2 had to send heartbeats."""
    (told,) = told_of(([2, 3], {0: "first_and_last.all_reduce(x)"}))
    check(told, [1])


def test_the_first_message_of_a_group_while_the_store_is_stopped():
    """Rank 0 serves the store.

    A group without rank 0 cannot continue either, because its connections need the store.
    """
    of_all, of_others, new_group = told_of(
        ([0], {1: "all_ranks.send(x, 2)", 2: "all_ranks.recv(x, 1)"}),
        ([0], {1: "without_first.send(x, 1)", 2: "without_first.recv(x, 0)"}),
        ([0], {rank: "without_first.split(0)" for rank in (1, 2, 3)}),
    )
    check(of_all, [0])
    for told in (of_others, new_group):
        check(told, [])
        assert all("rank 0" in text for *_, text in told.values()), told


def test_a_rank_that_stops_while_others_finalize():
    """One rank of the stopped rank's host is alive and does not finalize.

    The ranks of the other host get the error in finalize().
    """
    victims = {0: (1, 2, 3), 2: (0, 1), 3: (0, 1)}
    for victim, told in zip(victims, told_of(*(([v], {rank: "dsc.finalize()" for rank in who}) for v, who in victims.items()))):
        check(told, [victim])


@pytest.mark.parametrize("wait", ["all_again.all_reduce(x)", "all_again.recv(x, 1)"])
def test_who_finalizes_because_of_a_stopped_rank_is_not_blamed(wait):
    """Rank 1 gets the error of rank 3 in one group and finalizes.

    Rank 0 of the same host waits in another group that contains both.
    """
    (told,) = told_of(([3], {0: wait, 1: "try: all_ranks.all_reduce(x)\nfinally: dsc.finalize()", 2: "all_ranks.all_reduce(x)"}))
    check(told, [3])


if __name__ == "__main__":
    launch.main(__file__)
