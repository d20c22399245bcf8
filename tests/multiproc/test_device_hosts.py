"""Worlds over several simulated hosts (DSC_HOST_ID) with a device for each rank. Uses the fakes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import launch

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "support"))
import jobs  # noqa: E402

BEGIN = jobs.MEET + """
import os, sys, time, numpy as np, libdsc as dsc
from device_arrays import Interface, driver, work_on
rank = int(os.environ["RANK"])
work_on(rank)
world = dsc.init_distributed(backend="device", device=rank, init_timeout=40, timeout=float(os.environ.get("TIMEOUT", 40)))
n, r = world.size, world.rank
x = Interface(np.arange(1000, dtype=np.float32) + r)
world.all_reduce(x)
assert x.read()[10] == 10 * n + n * (n - 1) / 2
meet("begun", n)
"""


def job(code, hosts, begin=BEGIN, **variables):
    found = jobs.Job(
        len(hosts),
        begin + code,
        DSC_CUDA_LIBRARY=os.environ["FAKE_CUDA"],
        DSC_NCCL_LIBRARY=os.environ["FAKE_NCCL"],
        FAKE_CUDA_DEVICES=str(len(hosts)),
        CUDA_VISIBLE_DEVICES=",".join(str(i) for i in range(len(hosts))),
        PYTHONPATH=f"{os.environ['PYTHONPATH']}:{TESTS / 'bindings'}",
        **variables,
    )
    return found.place(hosts)


def test_operations_and_training():
    code = """
out = Interface(np.zeros(n * 3, np.float32))
world.all_gather(out, Interface(np.full(3, r, np.float32)))
assert out.read().tolist() == [float(i // 3) for i in range(3 * n)]
to, source = (r + 1) % n, (r - 1) % n
mine, theirs = Interface(np.full(5, r, np.float32)), Interface(np.zeros(5, np.float32))
works = [world.send(mine, to, async_op=True), world.recv(theirs, source, async_op=True)]
assert all(work.wait(20) for work in works) and theirs.read()[4] == source
pair = world.split(r % 2)
pair.all_reduce(x := Interface(np.ones(7, np.float32)))
assert x.read()[6] == pair.size
params = [Interface(np.full(count, r, np.float32)) for count in (3, 500)]
reducer = dsc.BucketReducer(world, params)
for step in range(3):
    grads = [Interface(np.full(p.shape, r + step, np.float32)) for p in params]
    reducer.begin()
    for i in (1, 0):
        reducer.mark_ready(i, grads[i])
    reducer.finish()
    assert [g.read()[0] for g in grads] == [step + (n - 1) / 2] * 2
reducer.close()
dsc.finalize()
print("done", params[0].read()[0])
"""
    assert job(code, [0, 0, 1, 1]).finish() == ["done 0.0"] * 4


def test_a_refused_call_on_host_memory_takes_no_number():
    """Only rank 0 makes a call that is not supported between hosts.

    The following calls of all ranks must still match.
    """
    code = """
own = dsc.user_op(lambda *_: None, 7)
def refused(call):
    try:
        call()
        print("no error")
    except dsc.UnsupportedError:
        print("refused")
def batch():
    with world.batch():
        world.all_reduce(np.ones(3, np.float32))
        world.all_reduce(np.ones(3, np.float32), op=own)
if r == 0:
    refused(lambda: world.all_reduce(np.ones(3, np.float32), op=own))
    refused(batch)
world.all_reduce(x := Interface(np.ones(7, np.float32)))
world.all_reduce(y := np.ones(3, np.float32))
print(x.read()[6], y[0])
dsc.finalize()
"""
    assert job(code, [0, 1]).finish() == ["refused\nrefused\n2.0 2.0", "2.0 2.0"]


TIMEOUT_S = "4"  # time-out of operations; enough for a slow rank
FAILS = """
try:
    while True:
        world.all_reduce(x)
        driver().cuStreamSynchronize(None)
except dsc.DscError as error:
    print(type(error).__name__, round(time.monotonic() - begin), error)
"""


def fails_by_then(outputs, kind):
    """Returns the texts of the errors. All ranks must have them soon after TIMEOUT_S, the time-out."""
    texts = []
    for output in outputs:
        name, seconds, text = output.split(maxsplit=2)
        assert name == kind and int(seconds) < int(TIMEOUT_S) + launch.AT_ONCE_S, outputs
        texts.append(text)
    return texts


def test_a_rank_of_another_host_that_does_not_come():
    """Rank 2 is alone on its host.

    It is alive but makes no call. Operations of the other ranks without a work end at the time-out.
    """
    code = "begin = time.monotonic()\nif r == 2:\n    meet('told', n)\n    sys.exit(0)\n" + FAILS + "meet('told', n)"
    for text in fails_by_then(job(code, [0, 0, 1], TIMEOUT=TIMEOUT_S).finish()[:2], "TimeoutError"):
        assert "rank 2 has not called this operation; its latest call is all_reduce(sum, f32, 1000) on its device, number 1" in text


def merged(folder):
    """Returns the findings of dscctl in the traces that the ranks have written."""
    command = [launch.DSCCTL, "trace", "merge", str(folder), "--json"]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60).stdout)
    assert (report["missing_ranks"], report["unused_files"]) == ([], []), report
    return report["findings"]


# A thread of the library writes the trace of this rank shortly after the other ranks were told.
TRACED = "import glob\n    while time.monotonic() < begin + 30 and len(glob.glob(os.environ['DSC_TRACE_DIR'] + '/*.json')) < n: time.sleep(0.1)"


def names_who_did_not_come(folder, hosts):
    """The rank that makes no call has written its trace, too."""
    code = "begin = time.monotonic()\nif r == 2:\n    meet('told', n)\n    TRACED\n    sys.exit(0)\n" + FAILS + "meet('told', n)"
    job(code.replace("TRACED", TRACED), hosts, TIMEOUT=TIMEOUT_S, DSC_TRACE_DIR=str(folder)).finish()
    (late,) = [finding for finding in merged(folder) if finding["kind"] == "LATE"]
    assert (late["ranks"], late["operation"], late["number"], late["device"]) == ([2], "all_reduce", 2, True), late
    assert "rank 2 has not called collective 2 (all_reduce) of group \"world (devices)\"; last called collective 1 (all_reduce)" in late["text"]
    assert "until the time-out" in late["text"]


def test_traces_name_who_did_not_come(tmp_path):
    """On one host the end of an operation on a stream is not observed. Between hosts a watching thread observes it."""
    names_who_did_not_come(tmp_path / "one", [0, 0, 0])
    names_who_did_not_come(tmp_path / "two", [0, 0, 1])


def test_traces_of_several_hosts_match_messages(tmp_path):
    """The second message is never sent."""
    code = """
begin = time.monotonic()
y = Interface(np.zeros(100, np.float32))
world.send(y, 1) if r == 0 else world.recv(y, 0)
try:
    if r == 1:
        world.recv(y, 0)
        driver().cuStreamSynchronize(None)
        world.barrier()
except dsc.DscError as error:
    pass
meet('told', n)
"""
    job(code, [0, 1], TIMEOUT=TIMEOUT_S, DSC_TRACE_DIR=str(tmp_path)).finish()
    (late,) = [finding for finding in merged(tmp_path) if finding["kind"] == "LATE"]
    assert late["ranks"] == [0] and "rank 0 has not called send number 2 to rank 1 of group" in late["text"], late


def test_a_program_that_ends_by_its_error_leaves_its_trace(tmp_path):
    """The failing call may be the first on its rank to see the failure, before the library's thread sees it."""
    code = "begin = time.monotonic()\nx = Interface(np.ones(10 if r else 11, np.float32))" + FAILS
    for attempt in range(4):
        job(code, [0, 0, 0], DSC_TRACE_DIR=str(tmp_path / str(attempt))).finish()
        assert "MISMATCH" in [finding["kind"] for finding in merged(tmp_path / str(attempt))]


def test_a_rank_of_another_host_that_calls_something_else():
    """The other ranks get too few elements and report the mismatch at their time-out."""
    code = """
begin = time.monotonic()
if r == 2:
    world.all_reduce(Interface(np.ones(10, dtype=np.float32)))
    while not world.error(): time.sleep(0.01)
"""
    for text in fails_by_then(job(code + FAILS, [0, 0, 1], TIMEOUT=TIMEOUT_S).finish(), "MismatchError"):
        assert "all_reduce(sum, f32, 1000) on its device; rank 2: all_reduce(sum, f32, 10) on its device" in text


def test_nobody_is_blamed_when_all_have_called_alike():
    """An operation hangs although all ranks called it, after groups were made on each host separately."""
    code = """
groups = [world.split(0 if r < 2 else 1) for _ in range(2)]
begin = time.monotonic()
"""
    outputs = job(code + FAILS, [0, 0, 1], TIMEOUT=TIMEOUT_S, FAKE_NCCL_FAULT="op_hang@0#3").finish()
    for text in fails_by_then(outputs, "TimeoutError"):
        assert "; all ranks that answered have called this operation" in text, text


# Rank 0 waits for a second message on its stream. Rank 1 makes another call.
MESSAGE = """
if r == 0:
    world.recv(x, 1)
else:
    world.send(x, 0)
begin = time.monotonic()
try:
    if r == 0:
        world.recv(Interface(np.zeros(100, np.float32)), 1)
        driver().cuStreamSynchronize(None)
        world.barrier()
    else:
        ELSE
        while not world.error(): time.sleep(0.01)
        world.barrier()
except dsc.DscError as error:
    print(type(error).__name__, round(time.monotonic() - begin), error)
"""


def test_a_message_of_another_host_that_does_not_come():
    """The rank that waits on its stream is released, and its error names the rank that has not sent."""
    outputs = job(MESSAGE.replace("ELSE", "pass"), [0, 1], TIMEOUT=TIMEOUT_S).finish()
    for text in fails_by_then(outputs, "TimeoutError"):
        assert "rank 0 of 2: not finished within 4000 ms; rank 1 has called 1 send to rank 0" in text


def test_a_message_of_another_host_of_another_length():
    code = MESSAGE.replace("ELSE", "world.send(Interface(np.zeros(3, np.float32)), 0)")
    for text in fails_by_then(job(code, [0, 1], TIMEOUT=TIMEOUT_S).finish(), "MismatchError"):
        assert "rank 0: recv(from 1, f32, 100) on its device; rank 1: send(to 0, f32, 3) on its device" in text


def test_a_rank_of_another_host_that_dies():
    code = f"begin = time.monotonic()\nif r == 3:\n    os.kill(os.getpid(), {int(signal.SIGKILL)})\n" + FAILS
    outputs = job(code, [0, 0, 1, 1]).finish()
    for output in outputs[:3]:
        assert output.startswith("PeerDeadError") and "rank 3" in output, outputs


CARDS = """
import os
os.environ["CUDA_VISIBLE_DEVICES"] = CARD
import numpy as np, libdsc as dsc
from device_arrays import Interface, work_on
work_on(0)
try:
    world = dsc.init_distributed(backend="device", init_timeout=40)
    x = Interface(np.ones(10, dtype=np.float32))
    world.all_reduce(x)
    print(world.device, x.read()[9])
    dsc.finalize()
except dsc.DscError as error:
    print(type(error).__name__, error)
"""


def test_each_process_sees_its_own_card_as_device_0():
    code = CARDS.replace("CARD", 'os.environ["RANK"]')
    assert job(code, [0, 0, 0], begin="").finish() == ["0 3.0"] * 3


def test_one_card_behind_different_numbers_is_noticed():
    code = CARDS.replace("CARD", '["0,1", "1,0"][int(os.environ["RANK"])]').replace("work_on(0)", 'work_on(int(os.environ["RANK"]))')
    for output in job(code, [0, 0], begin="").finish():
        assert "ranks 0 and 1 are bound to the same GPU (their devices 0 and 1)" in output, output


if __name__ == "__main__":
    launch.main(__file__)


SHARDED = """
from device_arrays import View
shapes, units = [(3, 5), (7,), (300,)], [0, 2]
size = int(os.environ["SHARD_SIZE"])
def gradient(step, i):
    return (np.arange(np.prod(shapes[i]), dtype=np.float32).reshape(shapes[i]) + 3 * i + 5 * r) % 7 - step
def make(stage, to=lambda x: x):
    params = [np.full(shape, i + r, np.float32) for i, shape in enumerate(shapes)]
    return dsc.Sharded(world, [to(x) for x in params], stage=stage, units=units, shard_size=size, average="none")
def step(number, sharded, to, look):
    sharded.begin()
    grads = [to(gradient(number, i)) for i in range(3)]
    for i in (2, 1, 0):
        sharded.mark_ready(i, grads[i])
    sharded.finish()
    norm = sharded.clip(1e9)
    for shard in sharded.shards:
        look(shard.params, look(shard.params) - look(shard.grads))
    sharded.step_done()
    found = [norm]
    for unit in range(2):
        with sharded.unit(unit) as arrays:
            found += [look(array).tolist() for array in arrays]
    return found
def on_host(array, values=None):
    if values is not None:
        array[:] = values
    return array.copy()
def on_device(array, values=None):
    if values is not None:
        View(array).write(values)
    return View(array).read()
"""


def test_shards_on_devices_have_the_bits_of_host_memory():
    code = """
for stage in (1, 2, 3):
    with make(stage) as here, make(stage, Interface) as there:
        for number in range(3):
            assert step(number, here, lambda x: x, on_host) == step(number, there, Interface, on_device), (stage, number)
dsc.finalize()
print("same bits")
"""
    for hosts, size in (([0, 0, 1, 1], 0), ([0, 0, 1, 1], 2), ([0, 1], 0)):
        assert job(SHARDED + code, hosts, SHARD_SIZE=str(size)).finish() == ["same bits"] * len(hosts)


def test_a_killed_rank_ends_sharded_training_on_devices():
    """Runs on one host and on two. The other ranks get the error in the call that notices the death."""
    code = """
import signal
with make(3, Interface) as sharded:
    try:
        for number in range(10000):
            if number == 3 and r == n - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            step(number, sharded, Interface, on_device)
    except dsc.DscError as error:
        print(type(error).__name__, f"rank {n - 1}" in str(error), error)
"""
    for hosts, size in (([0, 0, 0], 0), ([0, 0, 1], 0), ([0, 0, 1, 1], 2)):
        outputs = job(SHARDED + code, hosts, SHARD_SIZE=str(size), TIMEOUT="15").finish()
        for output in outputs[:-1]:
            assert output.startswith("PeerDeadError True"), outputs
