"""Start-up through TCP: rank 0 serves a store, the other ranks find it, and all ranks get the same outcome."""

import os
import pathlib
import re
import socket
import subprocess
import sys
import time

import launch
import pytest
from launch import AT_ONCE_S, LIMIT_S

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import jobs  # noqa: E402

HELLO = os.environ.get("HELLO_RANKS", str(launch.BUILD / "examples" / "02_hello_ranks"))

# Each rank prints its rank and a sum, or the error.
JOIN = """
import os, time, numpy as np, libdsc as dsc
options = eval(os.environ.get("OPTIONS", "{}"))
for _ in range(int(os.environ.get("WORLDS", 1))):
    try:
        world = dsc.init_distributed(init_timeout=float(os.environ["TIMEOUT"]), **options)
    except dsc.DscError as error:
        print(type(error).__name__, error)
        raise SystemExit(1)
    x = np.full(3, world.rank + 1.0, np.float32)
    world.all_reduce(x)
    print("joined", world.rank, world.size, world.local_rank, x[0])
    dsc.finalize()
"""


class Job(jobs.Job):
    """A job whose ranks do not say that they share a host."""

    def __init__(self, size, timeout=40, code=JOIN, command=None, **variables):
        super().__init__(size, code, command, TIMEOUT=str(timeout), **variables)


def assert_joined(outputs, size, local_ranks=None):
    total = size * (size + 1) / 2
    for rank, output in enumerate(outputs):
        local_rank = rank if local_ranks is None else local_ranks[rank]
        assert output == f"joined {rank} {size} {local_rank} {total}", outputs


def assert_all(outputs, error, *words):
    for output in outputs:
        assert output.startswith(error) and all(word in output for word in words), outputs


@pytest.mark.parametrize("size", [2, 5])
def test_ranks_join(size):
    assert_joined(Job(size).start_all().finish(), size)


def test_without_a_token_on_loopback():
    assert_joined(Job(2, DSC_TOKEN="").start_all().finish(), 2)


def test_over_ipv6_and_a_name():
    assert_joined(Job(2, MASTER_ADDR="::1").start_all().finish(), 2)
    assert_joined(Job(2, MASTER_ADDR="localhost").start_all().finish(), 2)


# A container without /etc/hosts whose own name cannot be resolved. It has no name server, or one that never answers.
CONTAINER = """
ip link set lo up
[ ! -e /etc/hosts ] || mount --bind /dev/null /etc/hosts
for file in nsswitch.conf resolv.conf; do [ ! -e /etc/$file ] || mount --bind "$FILES/$file" /etc/$file; done
hostname nobody-knows-this
if [ -s /etc/resolv.conf ]; then
  "$PYTHON" -c "$SILENT_SERVER" & server=$!
  until [ -e "$FILES/listens" ]; do sleep 0.01; done
fi
for rank in 0 1; do (said=$(RANK=$rank "$PYTHON" -c "$JOIN"); echo "$said") & ranks="$ranks $!"; done
wait $ranks
[ -z "$server" ] || kill $server
"""

SILENT_SERVER = f"""
import os, pathlib, socket, time
server = socket.socket(type=socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
pathlib.Path(os.environ["FILES"], "listens").touch()
time.sleep({LIMIT_S})
"""


@pytest.mark.parametrize("name_server", ["", "nameserver 127.0.0.1\noptions timeout:30\n"], ids=["none", "silent"])
@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "nobody-knows-this"])
def test_own_names_need_no_resolver(name, name_server, tmp_path):
    (tmp_path / "nsswitch.conf").write_text("hosts: files dns\n")
    (tmp_path / "resolv.conf").write_text(name_server)
    inside = ["unshare", "--mount", "--uts", "--net", *([] if os.getuid() == 0 else ["--map-root-user"])]
    if subprocess.run([*inside, "sh", "-c", "mount --bind /dev/null /dev/null && ip link set lo up"], capture_output=True).returncode != 0:
        pytest.skip("no namespaces of one's own: unshare fails, or iproute2 is missing")
    job = Job(2, MASTER_ADDR=name)
    variables = job.environment | {"JOIN": JOIN, "PYTHON": sys.executable, "FILES": str(tmp_path), "SILENT_SERVER": SILENT_SERVER}
    ranks = subprocess.run([*inside, "sh", "-c", CONTAINER], env=variables, capture_output=True, text=True, timeout=LIMIT_S)
    assert_joined(sorted(ranks.stdout.splitlines()), 2)


def test_whoever_comes_first_waits_for_rank_0():
    job = Job(2)
    job.start(1)
    time.sleep(0.5)
    job.start(0)
    late, first = job.finish()
    assert_joined([first, late], 2)


def test_one_world_after_another():
    outputs = Job(3, WORLDS="5").start_all().finish()
    for rank, output in enumerate(outputs):
        assert output.splitlines() == [f"joined {rank} 3 {rank} 6.0"] * 5


def test_64_ranks():
    start = time.monotonic()
    outputs = Job(64, command=[HELLO]).start_all().finish()
    print(f"64 ranks joined through TCP, moved data and left in {time.monotonic() - start:.2f} s")
    assert all(output.startswith(f"rank {rank} of 64: rank summed to 2016") for rank, output in enumerate(outputs)), outputs


# ---- how the other ranks learn where rank 0 listens ----------------------------------------------------------------


def test_through_a_file(tmp_path):
    job = Job(3, OPTIONS=repr({"init_method": f"file://{tmp_path}/place"}))
    del job.environment["MASTER_ADDR"], job.environment["MASTER_PORT"]
    assert_joined(job.start_all().finish(), 3)


def test_through_a_file_the_token_travels_as_well(tmp_path):
    job = Job(2, OPTIONS=repr({"init_method": f"file://{tmp_path}/place"}), DSC_TOKEN="", WORLDS="2")
    for output in job.start_all().finish():
        assert output.count("joined") == 2


STORE = """
import os, pathlib, time
folder = pathlib.Path(os.environ["FOLDER"])
def path(key): return folder / key.replace("/", "_")
def put(key, value, seconds):
    path(key).with_suffix(".new").write_bytes(value)
    path(key).with_suffix(".new").rename(path(key))
def get(key, seconds):
    deadline = time.monotonic() + seconds
    while not path(key).exists():
        if time.monotonic() > deadline: raise TimeoutError(key)
        time.sleep(0.01)
    return path(key).read_bytes()
import libdsc
store = libdsc.Store.from_callbacks(put, get)
"""


def test_through_a_store_of_the_programs_own(tmp_path):
    code = STORE + JOIN.replace('eval(os.environ.get("OPTIONS", "{}"))', '{"store": store}')
    job = Job(3, code=code, FOLDER=str(tmp_path), DSC_TOKEN="", WORLDS="2")
    for output in job.start_all().finish():
        assert output.count("joined") == 2


def test_a_place_of_an_earlier_rank_0(tmp_path):
    """A rank that reads the old address first cannot connect, and reads the address again."""
    code = STORE + JOIN.replace('eval(os.environ.get("OPTIONS", "{}"))', '{"store": store}')
    job = Job(2, code=code, FOLDER=str(tmp_path))
    gone = job.start(0)
    limit = time.monotonic() + LIMIT_S
    while not list(tmp_path.glob("*_store")) and time.monotonic() < limit:
        time.sleep(0.01)
    gone.kill()
    gone.communicate(timeout=LIMIT_S)
    job.ranks.remove(gone)
    job.start(1)
    time.sleep(1)
    job.start(0)
    late, first = job.finish()
    assert_joined([first, late], 2)


THREADS = """
import os, threading, libdsc as dsc
def run(ranks):
    for rank in ranks:
        world = dsc.init_distributed(rank=int(rank), world_size=4, rank_per_thread=True, init_method=os.environ["PLACE"], init_timeout=40)
        world.barrier()
        dsc.finalize()
        done.append(rank)
done = []
threads = [threading.Thread(target=run, args=(ranks,)) for ranks in os.environ["RANKS"].split()]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("".join(sorted(done)))
"""


def test_ranks_of_one_process_count_their_worlds_together(tmp_path):
    """Three worlds. A thread may be a different rank in each world, even a rank that was not in this process before."""
    job = Job(4, code=THREADS, PLACE=f"file://{tmp_path}/place")
    del job.environment["LOCAL_WORLD_SIZE"]
    job.start(0, RANKS="001 112")
    job.start(2, RANKS="220")
    job.start(3, RANKS="333")
    assert job.finish() == ["001112", "022", "333"]


SLOW = """
import os, socket, threading, time
def pass_on(source, target):
    try:
        while data := source.recv(4096): target.sendall(data)
    except OSError: pass
    target.close()
def slow(listener, port):
    while True:
        near, _ = listener.accept()
        time.sleep(0.7)
        far = socket.create_connection(("127.0.0.1", port))
        for ends in ((near, far), (far, near)): threading.Thread(target=pass_on, args=ends, daemon=True).start()
def get(key, seconds, get=get):
    place = get(key, seconds)  # the port follows a number of 8 bytes
    listener = socket.create_server(("127.0.0.1", 0))
    port = int.from_bytes(place[8:10], "little")
    threading.Thread(target=slow, args=(listener, port), daemon=True).start()
    return place[:8] + listener.getsockname()[1].to_bytes(2, "little") + place[10:]
if os.environ["RANK"] == "1": store = libdsc.Store.from_callbacks(put, get)
"""


def test_a_slow_rank_0_behind_a_carrier(tmp_path):
    """Giving up each attempt after half a second would never succeed."""
    code = STORE + SLOW + JOIN.replace('eval(os.environ.get("OPTIONS", "{}"))', '{"store": store}')
    assert_joined(Job(2, code=code, FOLDER=str(tmp_path)).start_all().finish(), 2)


def with_descriptors(limit):
    """Runs four hosts with one rank each. Rank 0 may open `limit` descriptors."""
    command = ["sh", "-c", f"[ $RANK != 0 ] || ulimit -n {limit}; exec {HELLO} 2>&1"]
    job = Job(4, command=command)
    for rank in range(4):
        job.start(rank, DSC_HOST_ID=f"host{rank}")
    return job.finish()


def test_too_few_descriptors_are_an_error_of_all():
    """The world forms with the number of descriptors that the error asks for, but not with one less."""
    start = time.monotonic()
    few = with_descriptors(50)
    enough = int(re.search(r"run ulimit -n (\d+) before", few[0])[1])
    for outputs in few, with_descriptors(enough - 1):
        assert_all(outputs, "", "DSC_ERR_CONFIG", "rank 0 serves 4 ranks", f"run ulimit -n {enough} before you start the process")
    assert time.monotonic() - start < 2 * AT_ONCE_S  # no rank waits until the time-out
    for rank, output in enumerate(with_descriptors(enough)):
        assert output.startswith(f"rank {rank} of 4: rank summed to 6"), output


def test_a_store_that_brings_nothing(tmp_path):
    code = STORE + JOIN.replace('eval(os.environ.get("OPTIONS", "{}"))', '{"store": store}')
    job = Job(2, timeout=1, code=code, FOLDER=str(tmp_path))
    job.start(1)
    assert_all(job.finish(), "TimeoutError", "rank 0 did not arrive", "the given store")


# ---- failures are reported on all ranks ----------------------------------------------------------------------------


def test_a_rank_that_never_comes_is_named():
    outputs = Job(3, timeout=6).start_all([0, 2]).finish()
    assert_all(outputs, "TimeoutError", "missing: rank 1", "arrived: rank 0 (pid", "rank 2 (pid", " on ")


def test_rank_0_that_never_comes_is_named():
    job = Job(2, timeout=1)
    job.start(1)
    assert_all(job.finish(), "TimeoutError", "rank 0 did not arrive", f"127.0.0.1:{job.port}", "refused")


def test_a_rank_that_died_is_no_claim():
    job = Job(2)
    job.start(0)
    dead = job.start(1)
    time.sleep(0.05)
    dead.kill()
    dead.communicate()
    job.ranks.remove(dead)
    job.start(1)
    outputs = job.finish()
    # If the rank was killed after the world had formed, the sum fails instead.
    assert outputs[0].startswith("joined") or "PeerDeadError" in outputs[0], outputs


@pytest.mark.parametrize("twice", [0, 1])
def test_two_processes_with_one_number(twice):
    job = Job(3, code=jobs.MEET.replace("os.environ['RANK']", "os.getpid()") + "meet('start', 3)\n" + JOIN)
    outputs = job.start_all([0, twice, 1]).finish()
    assert_all(outputs, "ConfigError", f"two processes claim rank {twice}", " on ", "MASTER_PORT")


def test_world_sizes_that_differ():
    job = Job(2)
    job.start(0)
    job.start(1, WORLD_SIZE="3")
    assert_all(job.finish(), "ConfigError", "world sizes differ: 2 (rank 0), 3 (rank 1)")


def test_settings_that_differ():
    job = Job(2)
    job.start(0, OPTIONS=repr({"timeout": 5}))
    job.start(1, OPTIONS=repr({"timeout": 6}))
    assert_all(job.finish(), "ConfigError", "timeout: 5 s (rank 0), 6 s (rank 1)")


def test_a_wrong_token_hears_no_more_than_that():
    job = Job(2)
    job.start(0)
    start = time.monotonic()
    wrong = job.start(1, DSC_TOKEN="00" * 32)
    assert wrong.communicate(timeout=LIMIT_S)[0].startswith("AuthError")
    assert time.monotonic() - start < 2 * AT_ONCE_S
    job.ranks.remove(wrong)
    job.start(1)  # the job starts nevertheless
    assert_joined(job.finish(), 2)


def test_one_without_the_token():
    job = Job(2, timeout=6)
    job.start(0)
    job.start(1, DSC_TOKEN="", TIMEOUT="40")
    alone, without = job.finish()
    assert without.startswith("AuthError") and "requires a token" in without
    assert alone.startswith("TimeoutError") and "missing: rank 1" in alone


def own_address():
    """Returns an address of this host that others may reach. Perhaps no resolver knows the host's own name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends no packet
        except OSError:
            pytest.skip("this host has no other address than loopback")
        return probe.getsockname()[0]


@pytest.mark.parametrize("rank", [0, 1])
def test_other_hosts_need_a_token(rank):
    address = own_address() if rank == 0 else "192.0.2.1"  # an address that no host has
    job = Job(2, DSC_TOKEN="", MASTER_ADDR=address)
    job.start(rank)
    assert_all(job.finish(), "AuthError", "set DSC_TOKEN to it", "DSC_ALLOW_UNAUTHENTICATED=1")


def test_a_port_that_is_taken():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        job = Job(2, MASTER_PORT=str(other.getsockname()[1]))
        start = time.monotonic()
        job.start(0)
        assert_all(job.finish(), "AddrInUseError", f"port {job.port}", "is taken")
        assert time.monotonic() - start < 2 * AT_ONCE_S


def test_somebody_else_at_the_port():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        job = Job(2, MASTER_PORT=str(other.getsockname()[1]))
        job.start(1)
        connection, _ = other.accept()
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        assert_all(job.finish(), "ProtocolError", "is not libdsc", "48 54 54 50")
        connection.close()


def test_nowhere_to_meet():
    job = Job(2)
    del job.environment["MASTER_ADDR"]
    job.start(1)
    assert_all(job.finish(), "ConfigError", "set MASTER_ADDR", "LOCAL_WORLD_SIZE is 1")
    job = Job(2, MASTER_ADDR="no-such-host.invalid")
    job.start(1)
    (output,) = job.finish()
    assert "no-such-host.invalid" in output


STAYS = jobs.MEET + JOIN.replace("    dsc.finalize()", "    os.sys.stdout.flush()\n    meet('end', 3)\n    dsc.finalize()")


def test_a_job_that_formed_is_not_joined():
    job = Job(2, code=STAYS)
    job.start_all()
    assert_joined([rank.stdout.readline().strip() for rank in job.ranks], 2)
    late = job.start(1)
    assert "a job of 2 ranks has already started at this address" in late.communicate(timeout=LIMIT_S)[0]
    pathlib.Path(job.meetings.name, "end.test").touch()
    job.ranks.remove(late)
    assert job.finish() == ["", ""]


if __name__ == "__main__":
    launch.main(__file__)
