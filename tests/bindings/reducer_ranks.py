"""Runs functions on ranks of one host and of two, for the tests of reducers."""

import importlib
import os
import socket

import numpy as np
import pytest

import libdsc as dsc

SECONDS = 120
SIZES = [30, 5, 70, 12, 1]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def on_rank(rank, n, port, module, name):
    """Runs a function of a test file on one rank. With a port, half of the ranks are on another host."""
    if port:
        per_host = n // 2
        local = {"LOCAL_RANK": rank % per_host, "LOCAL_WORLD_SIZE": per_host, "MASTER_PORT": port}
        os.environ.update({key: str(number) for key, number in local.items()})
        os.environ.update(DSC_HOST_ID=f"host-{rank // per_host}", DSC_TOKEN="ab" * 32, MASTER_ADDR="127.0.0.1")
    world = dsc.init_distributed(init_timeout=60, timeout=60)
    found = getattr(importlib.import_module(module), name)(world)
    dsc.finalize()
    return found


def everywhere(function):
    """Makes a test that runs the function on one rank, on three ranks of one host, and on four ranks of two hosts."""

    @pytest.mark.parametrize("n, hosts", [(1, 1), (3, 1), (4, 2)])
    def test(n, hosts):
        port = free_port() if hosts > 1 else 0
        for found in dsc.spawn(on_rank, n, args=(n, port, function.__module__, function.__name__), timeout=SECONDS):
            assert found is None or found, found

    test.__doc__ = function.__doc__
    return test


def gradients(rank, step, sizes=None, dtype=np.float32):
    random = np.random.default_rng(1000 * step + rank)
    return [random.standard_normal(size).astype(dtype) for size in sizes or SIZES]


def means(n, step, sizes=None):
    """Returns the sums of all gradients times 1 / n, added in rank order in f32."""
    total = None
    for rank in range(n):
        scaled = [np.float32(1 / n) * g for g in gradients(rank, step, sizes)]
        total = scaled if total is None else [a + b for a, b in zip(total, scaled)]
    return total


def same(got, expected):
    assert all(np.array_equal(a, b) for a, b in zip(got, expected)), (got, expected)


def close(got, expected, rtol=1e-6):
    assert all(np.allclose(a, b, rtol=rtol, atol=rtol) for a, b in zip(got, expected)), (got, expected)


def reducer_of(world, sizes=None, **options):
    options.setdefault("bucket_bytes", 200)
    options.setdefault("first_bucket_bytes", 40)
    return dsc.BucketReducer(world, [np.zeros(size, np.float32) for size in sizes or SIZES], **options)


def iterate(reducer, grads, order=None):
    reducer.begin()
    for i in order or reversed(range(len(grads))):
        reducer.mark_ready(i, grads[i])
    reducer.finish()


# Between hosts the sum of each host is made first, so only on one host are the bits those of the reference.
def compare(world, got, expected):
    (same if world.local_size == world.size else close)(got, expected)


def bfloat16(values):
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def wide(values):
    return (values.astype(np.uint32) << 16).view(np.float32)
