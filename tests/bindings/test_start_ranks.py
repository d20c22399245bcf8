"""The exceptions of a failed start-up name the ranks at fault, on every rank that arrived, on one host and on two."""

import os

import pytest

import libdsc as dsc
from reducer_ranks import free_port

RANKS = 4


def start(rank, port, how):
    if port:
        os.environ.update(LOCAL_RANK=str(rank % 2), LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        os.environ.update(DSC_HOST_ID=f"host-{rank // 2}", DSC_TOKEN="ab" * 32)
    if rank in how["absent"]:
        return None
    timeout = 5 + (rank == how["other"])
    with pytest.raises(dsc.DscError) as told:
        dsc.init_distributed(init_timeout=how["seconds"], timeout=timeout)
    return type(told.value).__name__, told.value.rank, told.value.ranks


def failed(hosts, absent=(), other=None, seconds=30):
    how = {"absent": absent, "other": other, "seconds": seconds}
    found = dsc.spawn(start, RANKS, (free_port() if hosts > 1 else 0, how), timeout=120)
    return {one for one in found if one is not None}


@pytest.mark.parametrize("hosts", [1, 2])
def test_ranks_that_are_missing(hosts):
    assert failed(hosts, absent=(1, 3), seconds=3) == {("TimeoutError", 1, (1, 3))}


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_rank_with_other_settings(hosts):
    assert failed(hosts, other=2) == {("ConfigError", 2, (2,))}


def test_rank_0_that_is_missing():
    assert failed(2, absent=(0,), seconds=3) == {("TimeoutError", 0, (0,))}
