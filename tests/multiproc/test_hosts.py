"""Worlds over several hosts, with all kinds of failures."""

import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import launch
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import jobs  # noqa: E402
import netns  # noqa: E402
from hosts_job import BEGIN, NO_HOSTS, Job  # noqa: E402


def test_training():
    """Trains on the digits. Buckets of gradients are reduced while other gradients are computed."""
    program = os.environ.get("TRAIN_DIGITS", str(launch.BUILD / "examples" / "train_digits"))
    data = Path(__file__).parents[2] / "examples" / "data" / "digits.csv"
    outputs = Job("", [0, 0, 1, 1], command=[program, "--data", str(data), "--epochs", "6"]).finish()
    assert "at least 95% wanted: reached" in outputs[0] and outputs[1:] == [""] * 3, outputs


def test_one_world_after_another():
    code = "for _ in range(3):\n" + "".join(
        f"    {line}\n" for line in (BEGIN + "x = np.ones(3); world.all_reduce(x); print(x[0]); dsc.finalize()").splitlines()
    )
    assert Job(code, [0, 1, 1]).finish() == ["3.0\n3.0\n3.0"] * 3


def test_what_does_not_go_between_hosts_is_refused():
    code = BEGIN + """
for call in (lambda: world.shrink(), lambda: world.agree(1), lambda: world.all_reduce(np.ones(3), op=dsc.user_op(lambda *_: None, 7))):
    try:
        call()
        print("no error")
    except dsc.UnsupportedError as error:
        print("refused")
world.barrier()
dsc.finalize()
"""
    assert Job(code, [0, 1]).finish() == ["refused\nrefused\nrefused"] * 2


def test_a_host_without_gloos_module_is_everybodys_error():
    code = """
import libdsc as dsc
try:
    dsc.init_distributed(init_timeout=50)
except dsc.DscError as error:
    print(type(error).__name__, error)
"""
    job = jobs.Job(4, code)
    start = time.monotonic()
    for rank in range(4):
        own = {"DSC_GLOO_LIBRARY": "/nowhere/libdsc_gloo.so"} if rank >= 2 else {}
        job.start(rank, DSC_HOST_ID=f"host{rank // 2}", LOCAL_WORLD_SIZE="2", **own)
    for rank, output in enumerate(job.finish()):
        assert output.startswith("NoBackendError") and "/nowhere/libdsc_gloo.so" in output, output
        assert rank >= 2 or "host 1 (rank 2)" in output, output
    assert time.monotonic() - start < 2 * launch.AT_ONCE_S


def test_backend_host_is_for_one_host():
    code = """
import libdsc as dsc
try:
    dsc.init_distributed(backend="host", init_timeout=40)
except dsc.UnsupportedError as error:
    print(error)
"""
    for output in Job(code, [0, 1]).finish():
        assert "backend is host, but the job has 2 hosts" in output


# ---- faults --------------------------------------------------------------------------------------------------------

LOOP = (
    BEGIN
    + """
x = np.ones(1000, np.float32)
before = time.monotonic()
try:
    for i in range(10**9):
        if i == 100 and r == VICTIM:
            FAULT
        world.all_reduce(x, op="max")
        before = time.monotonic()
except dsc.DscError as error:
    print(type(error).__name__, f"{time.monotonic() - before:.3f}", error)
"""
)


def survivors(victim, fault, placement="0011", **variables):
    """Returns [(name of the error, seconds, text)] of all ranks except the victim.

    The victim may wait until they were told.
    """
    code = LOOP.replace("VICTIM", str(victim)).replace("FAULT", fault) + ("meet('told', n)" if "'told'" in fault else "")
    job = Job(code, [int(host) for host in placement], **variables)
    outputs = job.finish()
    found = [output.split(" ", 2) for rank, output in enumerate(outputs) if rank != victim]
    return [(name, float(seconds), text) for name, seconds, text in found]


@pytest.mark.parametrize("victim", [0, 1, 2, 3])
def test_a_killed_rank(victim):
    for name, seconds, text in survivors(victim, "os.kill(os.getpid(), 9)"):
        assert name == "PeerDeadError" and f"rank {victim}" in text and seconds < launch.AT_ONCE_S, (name, seconds, text)


@pytest.mark.parametrize("victim", [1, 2])
def test_a_rank_that_is_killed_while_blocks_go_directly(victim):
    code = BEGIN + f"""
import threading
blocks = np.ones((n, 400_000), np.float32); got = np.zeros_like(blocks)
world.all_to_all(got, blocks)
if r == {victim}: threading.Timer(0.2, os.kill, (os.getpid(), 9)).start()
start = time.monotonic()
try:
    while time.monotonic() < start + 30: world.all_to_all(got, blocks)
except dsc.DscError as error:
    print(type(error).__name__, error)
"""
    outputs = Job(code, [0, 0, 1, 1]).finish()
    for output in outputs[:victim] + outputs[victim + 1 :]:
        assert output.startswith("PeerDeadError") and f"rank {victim}" in output, outputs


STOPPED = (
    BEGIN
    + """
import threading, signal
def stop():
    print("stops", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
large = np.ones(6_000_000, np.float32); blocks = np.ones((n, 2_000_000), np.float32); got = np.zeros_like(blocks)
if os.environ["KIND"] == "all_to_all": world.all_to_all(got, blocks)
world.barrier()
if r == 3: threading.Timer(0.03, stop).start()
for i in range(8):
    if os.environ["KIND"] == "all_to_all": world.all_to_all(got, blocks)
    else: world.all_reduce(large, op="max")
print("through")
dsc.finalize()
"""
)


@pytest.mark.parametrize("kind", ["all_to_all", "all_reduce"])
def test_a_rank_that_is_stopped_for_a_while_with_data_on_its_way(kind):
    """The rank is stopped for longer than a lost host may be silent.

    This is no failure, because the kernel of its host still answers.
    """
    job = Job(STOPPED, [0, 0, 1, 1], KIND=kind)
    assert job.ranks[3].stdout.readline() == "stops\n"
    time.sleep(5)
    os.kill(job.ranks[3].pid, signal.SIGCONT)
    assert [output.splitlines()[-1] for output in job.finish()] == ["through"] * 4


def test_a_rank_without_descriptors_for_direct_blocks():
    """The group of such a rank sends its blocks through the leaders."""
    code = BEGIN + """
import resource
blocks = np.repeat(np.arange(n, dtype=np.float32) * 10 + r, 100_000)
if r == 3:
    dsc.read_log("warn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 3, 4096))
for i in range(2):
    got = np.zeros_like(blocks); world.all_to_all(got, blocks)
    equal(got, np.repeat(r * 10 + np.arange(n, dtype=np.float32), 100_000), i)
print(*(dsc.read_log("warn") if r == 3 else ["right"]))
dsc.finalize()
"""
    *others, without = Job(code, [0, 0, 1, 1]).finish()
    assert others == ["right"] * 3
    assert "passes large blocks through one rank of each host" in without and "ulimit -n" in without, without


@pytest.mark.parametrize("victim", [0, 3])
def test_a_rank_that_does_not_come(victim):
    for name, seconds, text in survivors(victim, "meet('told', n); sys.exit()", TIMEOUT="6"):
        assert name == "TimeoutError" and f"rank {victim}" in text and 5 < seconds < 6 + launch.AT_ONCE_S, (name, seconds, text)


@pytest.mark.parametrize("victim, placement", [(0, "0011"), (1, "0011"), (3, "0011"), (2, "012")])
def test_another_call(victim, placement):
    for name, seconds, text in survivors(victim, "world.broadcast(x, root=0)", placement):
        assert name == "MismatchError" and seconds < launch.AT_ONCE_S, (name, seconds, text)
        assert f"rank {victim}: broadcast(root 0, f32, 1000)" in text and "all_reduce(max, f32, 1000)" in text


@pytest.mark.parametrize("victim", [1, 2, 3])
def test_an_aborted_group(victim):
    for name, seconds, text in survivors(victim, "world.abort(); meet('told', n); os._exit(0)"):
        assert name == "RevokedError" and f"rank {victim} (pid" in text and "aborted the communicator" in text and seconds < launch.AT_ONCE_S, (name, seconds, text)


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_rank_that_leaves(victim):
    """The process of the rank may end immediately. It must never be reported as dead."""
    for name, seconds, text in survivors(victim, "world.close(); os._exit(0)"):
        assert name == "PeerLeftError" and f"rank {victim}" in text and seconds < launch.AT_ONCE_S, (name, seconds, text)


@pytest.mark.parametrize("placement", ["00", "01"])
@pytest.mark.parametrize("call", ["reducer.begin()", "reducer.mark_ready(0, np.ones(4, np.float32))"])
def test_the_first_report_of_a_reducer_is_the_death(placement, call):
    code = BEGIN + f"""
reducer = dsc.BucketReducer(world, [np.zeros(4, np.float32)])
if "mark" in {call!r}: reducer.begin()
meet("begun", n)
if r == 1: os.kill(os.getpid(), {int(signal.SIGKILL)})
while world.error() is None: time.sleep(0.01)  # the world notices the death without a call
told = 0
while told < 2:
    try:
        {call}
    except dsc.StateError:
        time.sleep(0.01)  # the previous call succeeded
    except dsc.DscError as error:
        print([type(error).__name__, error.rank, str(error)], flush=True)
        told += 1
"""
    first, second = map(ast.literal_eval, Job(code, [int(host) for host in placement]).finish()[0].splitlines())
    assert first[:2] == ["PeerDeadError", 1] and second[:2] == ["RevokedError", 1], (first, second)


def waited_s(text, what):
    """Returns how long a time-out says that it waited for rank 1.

    On one host this is the whole wait, which a busy machine may prolong.
    """
    found = re.search(rf"rank 1 .*{what} within (\d+\.\d) s; ", text)
    return float(found[1]) if found else 0


@pytest.mark.parametrize("placement", ["00", "01"])
def test_a_time_out_before_the_first_call_names_no_call(placement):
    code = BEGIN + """
if r == 0:
    world.set_timeout(1)
    try:
        world.barrier()
    except dsc.TimeoutError as error:
        print(error)
meet("told", n)
"""
    text = Job(code, [int(host) for host in placement]).finish()[0]
    assert 1 <= waited_s(text, "did not arrive") <= launch.AT_ONCE_S and "no call before" in text and "bind" not in text and "ready" not in text, text


@pytest.mark.parametrize("placement", ["00", "01"])
def test_a_time_out_with_a_message_on_its_way_says_that_the_other_end_came(placement):
    code = BEGIN + """
import signal
large = np.full(40_000_000, 2 + r, np.float64)
meet("ready", n)
if r == 0:
    world.set_timeout(3)
    try:
        while True: world.send(large, 1)
    except dsc.TimeoutError as error:
        print(error, flush=True)
else:
    while True:
        large[0] = large[-1] = r
        work = world.recv(large, 0, async_op=True)
        while large[0] == r: time.sleep(0.001)
        if large[-1] == r: break  # the rest has not arrived yet; on a busy machine it may have
        work.wait()
    print("stops", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""
    job = Job(code, [int(host) for host in placement])
    assert job.ranks[1].stdout.readline() == "stops\n"
    text = job.ranks[0].stdout.readline()
    os.kill(job.ranks[1].pid, signal.SIGCONT)
    job.finish()
    assert 3 <= waited_s(text, "arrived, but did not finish") <= launch.AT_ONCE_S and "did not arrive" not in text, text


@pytest.mark.parametrize("placement", ["000", "001", "012"])
def test_a_callback_that_raises_in_a_pipeline(placement):
    code = BEGIN + """
class Own(Exception): pass
number, schedule = [((1,), "float64")], dsc.PipeSchedule("1f1b", stages=n, stage=r, micro_batches=4)
def forward(instruction, inputs, outputs):
    if r == 1 and instruction.micro_batch == 2: raise Own("broken")
    if outputs: outputs[0][:] = 1
    else: return 1.0
def backward(instruction, inputs, outputs, output_grads, input_grads):
    if input_grads: input_grads[0][:] = 1
try:
    world.pipe_run(schedule, forward=forward, backward=backward, inputs=number if r else [], outputs=number if r < n - 1 else [])
except Own:
    print("own")
except dsc.CallbackError as error:
    print(error.rank, "Own: broken" in str(error))
"""
    assert Job(code, [int(host) for host in placement]).finish() == ["1 True", "own", "1 True"]


@pytest.mark.parametrize("early", [0, 1])
@pytest.mark.parametrize("placement", ["00", "01"])
def test_a_new_world_after_a_failed_one(placement, early):
    """One rank asks for the new world before the other rank has ended the old world."""
    code = BEGIN + f"""
meet("begun", n)
if r == {early}: world.abort()
try:
    world.barrier()
except dsc.RevokedError:
    meet("failed", n)
if r != {early}: time.sleep(0.3)
dsc.finalize()
world = dsc.init_distributed(init_timeout=40)
x = np.ones(4); world.all_reduce(x); equal(x, np.full(4, 2.0), "all_reduce")
print("right")
dsc.finalize()
"""
    assert Job(code, [int(host) for host in placement]).finish() == ["right"] * 2


# The last rank has one batch more than the others, as with data that cannot be divided evenly. It ends like a script
# with an uncaught exception.
ONE_BATCH_MORE = (
    BEGIN
    + """
group, x = world.split(0, r), np.ones(4, np.float32)
for batch in range(3): group.all_reduce(x)
start = time.monotonic()
try:
    if r == n - 1: group.all_reduce(x)
    dsc.finalize()
except dsc.PeerError as error:
    print([type(error).__name__, time.monotonic() - start, str(error)], flush=True)
    if r == n - 1: os._exit(1)
"""
)


@pytest.mark.parametrize("placement", ["00", "01", "000", "001", "011", "0011"])
def test_finalize_while_another_waits_in_a_group(placement):
    *finalizing, waiting = map(ast.literal_eval, Job(ONE_BATCH_MORE, [int(host) for host in placement]).finish())
    assert waiting[0] == "PeerLeftError" and waiting[1] < launch.AT_ONCE_S and "finalizes the world" in waiting[2], waiting
    for name, seconds, text in finalizing:
        assert name in ("PeerLeftError", "PeerDeadError") and seconds < launch.AT_ONCE_S, (name, seconds, text)


# Rank 0 has another thread, which uses the group after rank 1 was told that rank 0 left it.
FINALIZES_AND_GOES_ON = (
    BEGIN
    + """
import threading
group, x = world.split(0, r), np.ones(4, np.float32)
finalizing = threading.Thread(target=dsc.finalize)
if r == 0:
    finalizing.start()
    meet("told", n)
try:
    group.all_reduce(x)
except dsc.DscError as error:
    print([type(error).__name__, str(error)], flush=True)
if r == 1:
    meet("told", n)
meet("refused", n)
if r == 1:
    finalizing.start()
finalizing.join()
"""
)


@pytest.mark.parametrize("placement", ["00", "01"])
def test_a_rank_that_finalizes_is_refused_in_its_groups(placement):
    mine, other = map(ast.literal_eval, Job(FINALIZES_AND_GOES_ON, [int(host) for host in placement]).finish())
    assert mine[0] == "StateError" and "this rank finalizes the world" in mine[1], mine
    assert other[0] == "PeerLeftError" and "rank 0" in other[1] and "finalizes the world" in other[1], other


@pytest.mark.parametrize("placement", ["00", "01", "001", "0011"])
def test_operations_that_run_outlast_the_call_of_finalize(placement):
    code = BEGIN + """
import threading
group, x = world.split(0, r), np.full(300_000, r, np.float32)
finalizing = threading.Thread(target=dsc.finalize)
if r < n - 1:
    work = group.all_reduce(x, async_op=True)
    finalizing.start()
else:
    time.sleep(0.5)  # the other ranks are in finalize() now
    work = group.all_reduce(x, async_op=True)
work.wait()
equal(x, np.full(300_000, sum(range(n)), np.float32), "all_reduce")
meet("summed", n)
if r == n - 1:
    finalizing.start()
finalizing.join()
print("right")
"""
    assert Job(code, [int(host) for host in placement]).finish() == ["right"] * len(placement)


@pytest.mark.parametrize("placement", ["00", "01", "011", "0011"])
def test_ranks_of_groups_and_of_the_world(placement):
    code = BEGIN + """
half = world.split(r % 2, -r)  # in reverse order
members = [g for g in range(n) if g % 2 == r % 2][::-1]
for group, globals in ((world, list(range(n))), (half, members)):
    equal([group.global_rank(i) for i in range(group.size)], globals, "global_rank")
    equal([group.group_rank(g) for g in range(n)], [globals.index(g) if g in globals else None for g in range(n)], "group_rank")
print("right")
dsc.finalize()
"""
    assert Job(code, [int(host) for host in placement]).finish() == ["right"] * len(placement)


# ---- hosts with separate networks ----------------------------------------------------------------------------------

needs_hosts = pytest.mark.skipif(bool(NO_HOSTS), reason=f"no network namespaces: {NO_HOSTS}")


@needs_hosts
def test_a_host_without_the_family_of_rank_0():
    code = """
import libdsc as dsc
try:
    dsc.init_distributed(init_timeout=1)
except dsc.DscError as error:
    print(type(error).__name__, error)
"""
    with netns.Hosts(2) as hosts:
        hosts.take_ipv6(1)
        alone, cut_off = Job(code, [0, 1], hosts, MASTER_ADDR=hosts.address6(0)).finish()
    assert alone.startswith("TimeoutError") and "missing: rank 1" in alone, alone
    assert cut_off.startswith("TimeoutError") and "no route to this IPv6 address" in cut_off, cut_off


@needs_hosts
def test_localhost_without_ipv4():
    code = """
import os
os.environ.update(DSC_HOST_ID="host-" + os.environ["RANK"], LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
import libdsc as dsc
world = dsc.init_distributed(init_timeout=20)
print(world.master_addr, world.all_reduce_object(1))
dsc.finalize()
"""
    with netns.Hosts(1) as hosts:
        hosts.take_ipv4_loopback(0)
        assert Job(code, [0, 0], hosts, MASTER_ADDR="localhost").finish() == ["::1 2", "::1 2"]


@needs_hosts
def test_the_report_recommends_an_interface_for_nccl():
    """The report recommends the interface that leads to rank 0, on a host with two interfaces."""
    with netns.Hosts(2) as hosts:
        variables = dict(RANK="1", WORLD_SIZE="2", LOCAL_WORLD_SIZE="1", MASTER_ADDR=hosts.address(0))
        own = {name: value for name, value in os.environ.items() if name != "NCCL_SOCKET_IFNAME"}

        def advice(**more):
            options = dict(env=own | variables | more, stdout=subprocess.PIPE, text=True)
            asked = hosts.run(1, [launch.DSCCTL, "info", "--env", "--json"], **options)
            return json.loads(asked.communicate(timeout=launch.LIMIT_S)[0])["start"]["advice"]

        assert advice() is None
        add = "ip link add second type veth peer name unused && ip address add 10.99.0.1/24 dev second && ip link set second up"
        assert hosts.run(1, ["sh", "-c", add]).wait(timeout=launch.LIMIT_S) == 0
        text = advice()
        if text is None:
            features = json.loads(subprocess.run([launch.DSCCTL, "info", "--json"], capture_output=True).stdout)["features"]
            assert not features["nccl"]
            pytest.skip("this library was built without NCCL")
        assert "(eth0, second)" in text and f"NCCL_SOCKET_IFNAME=eth0, which leads to {hosts.address(0)}" in text
        assert advice(NCCL_SOCKET_IFNAME="second") is None
        shown = hosts.run(1, [launch.DSCCTL, "info", "--env"], env=own | variables, stdout=subprocess.PIPE, text=True)
        assert f"  advice            {text}\n" in shown.communicate(timeout=launch.LIMIT_S)[0]


@needs_hosts
def test_a_cable_that_is_pulled():
    code = LOOP.replace("VICTIM", "-1").replace("x = np.ones", "print('going', flush=True)\nx = np.ones")
    with netns.Hosts(2) as hosts:
        job = Job(code, [0, 1], hosts)
        for rank in job.ranks:
            assert rank.stdout.readline() == "going\n"
        hosts.cut(1)
        start = time.monotonic()
        for output in job.finish():
            name, seconds, text = output.split(" ", 2)
            assert name == "PeerDeadError" and float(seconds) < launch.AT_ONCE_S, output
        print(f"both ends knew after {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    launch.main(__file__)
