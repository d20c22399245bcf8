"""Every operation between hosts, compared with its defined result, and the path that its data takes."""

import ast
import sys
from pathlib import Path

import launch
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import jobs  # noqa: E402
import netns  # noqa: E402
from hosts_job import BEGIN, NO_HOSTS, Job  # noqa: E402

# Every operation, compared with its defined result. Sums are small whole numbers, which are exact in every type.
OPERATIONS = (
    BEGIN
    + """
for dtype in (np.float32, np.float64, np.int32, np.uint8, np.float16):
    several_pieces = {np.float32: [1_100_003], np.float16: [600_011]}.get(dtype, []) if n == 4 else []
    for count in (0, 1, 7, 1000, 70_001, *several_pieces):
        base = np.arange(count) % 5
        mine = (base + r).astype(dtype)
        each = [(base + i).astype(dtype) for i in range(n)]
        x = mine.copy(); world.all_reduce(x); equal(x, (base * n + sum(range(n))).astype(dtype), "all_reduce", dtype, count)
        x = mine.copy(); world.all_reduce(x, op="max"); equal(x, each[-1], "max", dtype, count)
        for root in (0, n - 1):
            x = mine.copy(); world.reduce(x, root=root)
            if r == root: equal(x, (base * n + sum(range(n))).astype(dtype), "reduce", dtype, count, root)
            x = mine.copy(); world.broadcast(x, root=root); equal(x, each[root], "broadcast", dtype, count, root)
            all_of = np.zeros(n * count, dtype); world.gather(all_of if r == root else None, mine, root=root)
            if r == root: equal(all_of, np.concatenate(each), "gather", dtype, count, root)
            part = np.zeros(count, dtype); world.scatter(part, np.concatenate(each) if r == root else None, root=root)
            equal(part, mine, "scatter", dtype, count, root)
        all_of = np.zeros(n * count, dtype); world.all_gather(all_of, mine); equal(all_of, np.concatenate(each), "all_gather", dtype, count)
        part = np.zeros(count, dtype); world.reduce_scatter(part, np.concatenate(each)); equal(part, (mine * n).astype(dtype), "reduce_scatter", dtype, count)
        to_each = np.concatenate([np.full(count, (10 * r + i) % 100, dtype) for i in range(n)])
        from_each = np.zeros(n * count, dtype); world.all_to_all(from_each, to_each)
        equal(from_each, np.concatenate([np.full(count, (10 * i + r) % 100, dtype) for i in range(n)]), "all_to_all", dtype, count)
        world.all_to_all(to_each, to_each); equal(to_each, from_each, "all_to_all in place", dtype, count)
        all_of = np.concatenate(each); world.reduce_scatter(part := all_of[r * count : (r + 1) * count], all_of)
        equal(part, (mine * n).astype(dtype), "reduce_scatter in place", dtype, count)
        all_of = np.zeros(n * count, dtype); own = all_of[r * count : (r + 1) * count]; own[:] = mine
        world.all_gather(all_of, own); equal(all_of, np.concatenate(each), "all_gather in place", dtype, count)
for unit in (1, 40, 3_000, 70_001):  # the lengths of blocks differ, even between ranks of one host
    counts = [unit * (i % 3 + 1) for i in range(n)]; each = [np.arange(c, dtype=np.float32) % 7 + i for i, c in enumerate(counts)]
    all_of = np.zeros(sum(counts), np.float32); world.all_gather(all_of, each[r], counts=counts); equal(all_of, np.concatenate(each), unit)
    part = np.zeros(counts[r], np.float32); world.reduce_scatter(part, np.concatenate(each) + r, counts=counts)
    equal(part, each[r] * n + sum(range(n)), "reduce_scatter of lengths", unit)
for unit in (0, 1, 40, 3_000, 70_001):  # a length for each pair of ranks, some of them 0
    lengths = np.array([[unit * ((2 * i + 3 * j) % 4) for j in range(n)] for i in range(n)])
    block = lambda i, j: (np.arange(lengths[i, j]) % 11 + 10 * i + j).astype(np.float32)
    got = np.full(lengths[:, r].sum(), -1, np.float32)
    world.all_to_all(got, np.concatenate([block(r, j) for j in range(n)]), send_counts=lengths[r], recv_counts=lengths[:, r])
    equal(got, np.concatenate([block(i, r) for i in range(n)]), "all_to_all of lengths", unit)
x = np.full(9, r + 1, np.float16); world.all_reduce(x, op="avg"); equal(x, np.full(9, (n + 1) / 2, np.float16), "avg")
# Sums of 16-bit floats are rounded once, not once per host.
x = np.full(3, 2048 if r == 0 else 1, np.float16); world.all_reduce(x)
equal(x, np.full(3, np.float16(2048 + n - 1)), "rounded once")
x = np.full(4, r + 0.1, np.float32); world.all_reduce(x)
bits = np.zeros(4 * n, np.float32); world.all_gather(bits, x); equal(bits, np.tile(bits[:4], n), "bits")
y = world.broadcast_array(np.arange(6.0).reshape(2, 3) if r == n - 1 else None, n - 1)
equal(y, np.arange(6.0).reshape(2, 3), "broadcast_array")
world.barrier()
right, left = (r + 1) % n, (r - 1) % n
works = [world.recv(got := np.zeros(5, np.float32), left, async_op=True), world.send(np.full(5, r, np.float32), right, async_op=True)]
for work in works: work.wait()
equal(got, np.full(5, left, np.float32), "ring")
buffers = [np.full(10 + i, r, np.float32) for i in range(20)]
works = [world.all_reduce(b, async_op=True) for b in buffers]
for work in works: work.wait()
for b in buffers: equal(b, np.full(len(b), sum(range(n)), np.float32), "asynchronous")
for parts in (2, n):
    sub = world.split(r % parts, -r)
    x = np.array([r], np.int64); world_ranks = [i for i in reversed(range(n)) if i % parts == r % parts]
    equal(sub.size, len(world_ranks), "split's size")
    all_of = np.zeros(sub.size, np.int64); sub.all_gather(all_of, x); equal(all_of, world_ranks, "split's order")
chosen = world.create_group([n - 1, 0])
if chosen is not None:
    x = np.ones(3, np.int32); chosen.all_reduce(x); equal(x, np.full(3, 2), "group")
equal(chosen is not None, r in (0, n - 1), "member")
shared = world.empty((2, 100_000), "float32")
shared[:] = r + 1
world.all_reduce(shared, op="max"); equal(shared, np.full((2, 100_000), n, np.float32), "shared memory")
print("right", world.backend)
dsc.finalize()
"""
)


@pytest.mark.parametrize("placement", ["01", "0011", "0101", "0122", "011122"])
def test_all_operations(placement):
    outputs = Job(OPERATIONS, [int(host) for host in placement]).finish()
    assert outputs == ["right inter_host"] * len(placement)


# Up to 32 ranks connect directly for large blocks. With more ranks the leaders carry the blocks in steps of 2 MiB. Here
# each process is a host and its ranks are threads.
CARRIED = """
import os, threading, numpy as np, libdsc as dsc
n, host = 33, int(os.environ["RANK"])
def rank_body(r):
    world = dsc.init_distributed(rank=r, world_size=n, rank_per_thread=True, init_method=os.environ["PLACE"], init_timeout=30, timeout=50)
    def expect(equal, *what):
        found.append(what if equal else (r, "wrong", *what))
    for count in (20_001, 2_200_003):
        part = np.zeros(count, np.uint8)
        world.scatter(part, np.repeat(np.arange(n, dtype=np.uint8), count) if r == n - 1 else None, root=n - 1)
        expect((part == r).all(), "scatter", count)
    all_of = np.zeros((n, 20_001), np.uint8) if r == 1 else None
    world.gather(all_of, np.full(20_001, r, np.uint8), root=1)
    expect(r != 1 or (all_of == np.arange(n)[:, None]).all(), "gather")
    to_each = np.repeat((np.arange(n) * 7 + r).astype(np.uint8), 20_001)
    from_each = np.zeros((n, 20_001), np.uint8)
    world.all_to_all(from_each, to_each)
    expect((from_each == ((np.arange(n) + r * 7).astype(np.uint8))[:, None]).all(), "all_to_all")
    lengths = np.array([[20_001 * ((2 * i + 3 * j) % 4) for j in range(n)] for i in range(n)])  # some blocks have 2.2 MB
    lengths[2, 5] = lengths[5, 2] = 2_200_003
    block = lambda i, j: np.full(lengths[i, j], 7 * i + j, np.uint8)
    got = np.full(lengths[:, r].sum(), 255, np.uint8)
    world.all_to_all(got, np.concatenate([block(r, j) for j in range(n)]), send_counts=lengths[r], recv_counts=lengths[:, r])
    expect((got == np.concatenate([block(i, r) for i in range(n)])).all(), "all_to_all of lengths")
    dsc.finalize()
found = []
threads = [threading.Thread(target=rank_body, args=(r,)) for r in range(n) if r % 3 % 2 == host]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sorted(found))
"""


def test_blocks_that_leaders_carry(tmp_path):
    job = jobs.Job(2, CARRIED, PLACE=f"file://{tmp_path}/meeting")
    for host in (0, 1):
        job.start(host, DSC_HOST_ID=f"host{host}")
    every_rank_found = sorted([("scatter", 20_001), ("scatter", 2_200_003), ("gather",), ("all_to_all",), ("all_to_all of lengths",)] * 33)
    assert sorted(sum(map(ast.literal_eval, job.finish()), [])) == every_rank_found


def test_messages_are_the_callers_alone():
    """If the root of a collective does not lead its host, the data is passed on without using the user's messages."""
    code = BEGIN + """
x = np.arange(4, dtype=np.float32)
if r == 0: work = world.send(np.full(4, 7, np.float32), 1, async_op=True)
world.reduce(x, root=1)
if r == 0: work.wait()
if r == 1:
    world.recv(got := np.zeros(4, np.float32), 0)
    equal(got, np.full(4, 7, np.float32), "message")
    equal(x, np.arange(4) * n, "reduce")
print("right")
dsc.finalize()
"""
    assert Job(code, [0, 0, 1]).finish() == ["right"] * 3


needs_hosts = pytest.mark.skipif(bool(NO_HOSTS), reason=f"no network namespaces: {NO_HOSTS}")


@needs_hosts
@pytest.mark.parametrize("placement, family", [("01", "address"), ("0123", "address"), ("00112233", "address"), ("0011", "address6")])
def test_all_operations_over_networks(placement, family):
    with netns.Hosts(len(set(placement))) as hosts:
        outputs = Job(OPERATIONS, [int(host) for host in placement], hosts, MASTER_ADDR=getattr(hosts, family)(0)).finish()
    assert outputs == ["right inter_host"] * len(placement)


if __name__ == "__main__":
    launch.main(__file__)
