"""A rank of several hosts is stopped while few others are in a call: those that are hear of it after stall_timeout, whoever
of the hosts waits, in whichever group, and whether or not they were connected before."""

import ast
import sys
from pathlib import Path

import launch
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_hosts import BEGIN, Job

HOSTS = [0, 0, 1, 1]
STALL_S = 3
BOUND_S = STALL_S + launch.AT_ONCE_S  # far from the 40 s of an operation, also on a busy machine

# The ranks in VICTIMS are stopped. Ranks in CALLS run that code and tell how it ended; the others live and call nothing until those have told.
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
    if 0 in VICTIMS: time.sleep(0.5)  # its store does not answer any more
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
    """What the ranks that call were told in each case, (victims, code by rank): one list for each, of [error, ranks, seconds, text]."""
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
    """Rank 3 is not the first of its host, and rank 2 is in no call; in the last group it is not even a member."""
    calls = ["world.recv(x, 3)", "all_ranks.recv(x, 3)", "first_and_last.all_reduce(x)", "first_and_last.recv(x, 1)"]
    *of_all, of_two, message_of_two = told_of(*(([3], {0: call}) for call in calls))
    for told in of_all:
        check(told, [3])
    check(of_two, [1])
    check(message_of_two, [1])


def test_a_host_of_which_no_rank_runs():
    """Nobody there tells of rank 3; only rank 2 had to give signs of life."""
    (told,) = told_of(([2, 3], {0: "first_and_last.all_reduce(x)"}))
    check(told, [1])


def test_the_first_message_of_a_group_while_the_store_is_stopped():
    """Rank 0 serves it. Who is in a group without rank 0 cannot go on either: its connection needs the store."""
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
    """One rank of its host lives and does not finalize; the other host is in finalize() and hears of it there."""
    victims = {0: (1, 2, 3), 2: (0, 1), 3: (0, 1)}
    for victim, told in zip(victims, told_of(*(([v], {rank: "dsc.finalize()" for rank in who}) for v, who in victims.items()))):
        check(told, [victim])


@pytest.mark.parametrize("wait", ["all_again.all_reduce(x)", "all_again.recv(x, 1)"])
def test_who_finalizes_because_of_a_stopped_rank_is_not_blamed(wait):
    """Rank 1 hears of rank 3 in one group, and ends; rank 0 of the same host waits in another group that has both."""
    (told,) = told_of(([3], {0: wait, 1: "try: all_ranks.all_reduce(x)\nfinally: dsc.finalize()", 2: "all_ranks.all_reduce(x)"}))
    check(told, [3])


if __name__ == "__main__":
    launch.main(__file__)
