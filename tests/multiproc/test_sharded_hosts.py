"""Sharded training between simulated hosts (DSC_HOST_ID).

Also a rank that is killed at any point, on one host and on two.
"""

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

SUPPORT = str(Path(__file__).parents[1] / "support")

TRAIN = f"""
import sys; sys.path.insert(0, {SUPPORT!r})
import libdsc as dsc, sharded_model as model
world = dsc.init_distributed(init_timeout=40, timeout=40)
for stage in (1, 2, 3):
    for optimizer, shard_size in (("sgd", 0), ("adam", 0), ("adam", 2)):
        model.compare(world, optimizer, shard_size, stage=stage)
print("same bits")
dsc.finalize()
"""


@pytest.mark.parametrize("hosts", [[0, 0, 1, 1], [0, 1], [0, 0, 1]])
def test_training_between_hosts_has_the_bits_of_replicas(hosts):
    code = TRAIN if len(hosts) % 2 == 0 else TRAIN.replace(', ("adam", 2)', "")
    job = jobs.Job(len(hosts), code).place(hosts)
    assert job.finish() == ["same bits"] * len(hosts)


# One copy per host. Sums are computed first within each host and then between hosts, as in the reducer.
HYBRID = f"""
import sys; sys.path.insert(0, {SUPPORT!r})
import numpy as np, libdsc as dsc, sharded_model as model
world = dsc.init_distributed(init_timeout=40, timeout=40)
expected = model.replicated(world, "adam")
with dsc.Sharded(world, model.initial(), model.NAMES, units=model.UNITS, stage=3, shard_size=2) as sharded:
    assert (sharded.n_shards, sharded.shard) == (2, world.rank % 2)
    model.train_sharded(world, sharded, "adam")
    model.same(model.full_params(sharded), expected)
print("same bits")
dsc.finalize()
"""


def test_a_copy_on_each_host_has_the_bits_of_the_reducer():
    assert jobs.Job(4, HYBRID).place([0, 0, 1, 1]).finish() == ["same bits"] * 4


# Trains until a rank is lost, then prints the error and how long it took.
UNTIL_LOST = f"""
import sys; sys.path.insert(0, {SUPPORT!r})
import os, time, numpy as np, libdsc as dsc, sharded_model as model
world = dsc.init_distributed(init_timeout=40, timeout=20)
rules = {{"stage": int(os.environ["STAGE"]), "shard_size": int(os.environ["SHARD_SIZE"])}}
sharded = dsc.Sharded(world, model.initial(), model.NAMES, units=model.UNITS, **rules)
print("ready", flush=True)
begin = time.monotonic()
try:
    for first in range(0, 100000, 5):
        model.train_sharded(world, sharded, "sgd", first=first, steps=5)
        sharded.begin()
        for i, size in enumerate(model.SIZES):
            sharded.mark_ready(i, np.ones(size, np.float32))
        sharded.finish()
        sharded.clip(1.0)
        sharded.step_done(changed=False)
except dsc.DscError as error:
    print(type(error).__name__, error, flush=True)
    sharded.close()
    try:
        sharded.begin()
    except dsc.BadHandleError:
        print("closed", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("hosts, shard_size", [([0, 0, 0], 0), ([0, 0, 0, 0], 2), ([0, 0, 1, 1], 0), ([0, 0, 1, 1], 2)])
@pytest.mark.parametrize("stage", [2, 3])
def test_a_rank_that_is_killed_is_named_by_all_others(hosts, shard_size, stage):
    victim = len(hosts) - 1
    for attempt in range(4):
        job = jobs.Job(len(hosts), UNTIL_LOST, STAGE=str(stage), SHARD_SIZE=str(shard_size)).place(hosts)
        for rank in job.ranks:
            assert rank.stdout.readline() == "ready\n"
        time.sleep(random.uniform(0, 0.3))
        os.kill(job.ranks[victim].pid, signal.SIGKILL)
        begin = time.monotonic()
        texts = job.finish()
        assert time.monotonic() - begin < 15, texts
        for text in texts[:victim]:
            assert f"rank {victim}" in text and text.endswith("closed"), (attempt, texts)


if __name__ == "__main__":
    launch.main(__file__)
