"""The engines that can be measured: how each is found, started and awaited."""

import contextlib
import ctypes
import functools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
import netns

TIMEOUT_S = 120  # for one measurement
PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None)
ALL_OPS = (
    "all_reduce",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "reduce",
    "gather",
    "scatter",
    "barrier",
    "send_recv",
)
MAPPINGS = ("gather_columns", "reduce_scatter_columns", "sequence_to_hidden", "hidden_to_sequence")
ANYWHERE = ("one host", "hosts")
WITHOUT_REDUCE_SCATTER = tuple(op for op in ALL_OPS if op != "reduce_scatter")


class Failure(Exception):
    """A measurement that gave no result; the text contains the reason."""


@dataclass(frozen=True)
class Engine:
    name: str
    driver: str  # file in the build's folder bench/
    launcher: str = "environment"  # or the command that starts the ranks
    ops: tuple[str, ...] = ALL_OPS
    packages: str = ""  # Debian packages that it needs
    places: tuple[str, ...] = ("one host",)  # where its ranks can run

    @property
    def is_peer(self) -> bool:
        return bool(self.packages)

    def missing(self, folder: Path) -> str | None:
        """Returns why it cannot run, or None."""
        if not (folder / self.driver).exists():
            return f"{folder / self.driver} is not built"
        if self.launcher not in ("environment", "torch") and not shutil.which(self.launcher):
            return f"{self.launcher} is not in PATH"
        if self.launcher == "torch" and not torch_python():
            return "no python3 has the module torch"
        return None


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("floor", "bench_floor", ops=ALL_OPS + MAPPINGS),
        Engine("tcp", "bench_tcp", ops=("all_reduce", "broadcast"), places=("hosts",)),
        Engine("libdsc", "bench_libdsc", ops=ALL_OPS + MAPPINGS, places=ANYWHERE),
        Engine("libdsc_zero_copy", "bench_libdsc", ops=tuple(op for op in ALL_OPS + MAPPINGS if op != "barrier")),
        Engine("openmpi", "bench_openmpi", "mpirun.openmpi", ALL_OPS + MAPPINGS, packages="openmpi-bin libopenmpi-dev"),
        Engine("mpich", "bench_mpich", "mpirun.mpich", ALL_OPS + MAPPINGS, packages="mpich libmpich-dev"),
        Engine("gloo", "bench_gloo", ops=WITHOUT_REDUCE_SCATTER, packages="libgloo-dev", places=ANYWHERE),
        Engine("wire", "bench_transport", packages="libgloo-dev", places=ANYWHERE),
        Engine("torch", "libbench_loop.so", "torch", (*WITHOUT_REDUCE_SCATTER, *(op for op in MAPPINGS if op != "reduce_scatter_columns")), "python3-torch"),
    )
}
PEERS = [name for name, engine in ENGINES.items() if engine.is_peer]


@functools.cache
def torch_python() -> str | None:
    """Returns a Python that has torch: $DSC_TORCH_PYTHON, the one that runs this script, or the system's."""
    find = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    for python in (os.environ.get("DSC_TORCH_PYTHON", ""), sys.executable, "/usr/bin/python3"):
        if os.access(python, os.X_OK):
            if subprocess.run([python, "-c", find], stderr=subprocess.DEVNULL).returncode == 0:
                return python
    return None


class Runner:
    """Runs one measurement after another with the programs in a build's folder bench/."""

    def __init__(self, folder: Path, quick: bool, hosts: int = 1, bind: bool = False):
        self.folder, self.quick, self.hosts, self.bind = folder, quick, hosts, bind
        self.runs = 0

    def run(self, engine: Engine, op: str, ranks: int, size: int) -> dict:
        """Starts the ranks, waits for them, and returns rank 0's line. Raises Failure."""
        self.runs += 1
        meeting = os.memfd_create("bench")  # for the meeting of the ranks; it disappears with this process
        try:
            with (
                tempfile.TemporaryDirectory(prefix="libdsc-bench-") as store,
                tempfile.TemporaryFile("w+") as errors,
                self._network() as network,
            ):
                words = [engine.name, op, str(size), str(ranks), f"/proc/{os.getpid()}/fd/{meeting}"]
                words.append("quick" if self.quick else "full")
                processes = self._start(engine, ranks, words, store, errors, network)
                output = wait_for(processes, errors)
        finally:
            os.close(meeting)
        try:
            return json.loads(output.strip().splitlines()[-1])
        except (IndexError, ValueError):
            raise Failure(f"expected a line of JSON, got: {output.strip() or 'nothing'}") from None

    def _network(self):
        return netns.Hosts(self.hosts) if self.hosts > 1 else contextlib.nullcontext()

    def _start(self, engine: Engine, ranks: int, words: list[str], store: str, errors, network) -> list[subprocess.Popen]:
        driver = str(self.folder / engine.driver)
        if engine.launcher == "environment":
            command, copies = [driver, *words], ranks
        elif engine.launcher == "torch":
            script = str(Path(__file__).with_name("bench_torch.py"))
            command, copies = [torch_python(), script, driver, *words], ranks
        else:
            options = ["--oversubscribe"] if engine.name == "openmpi" else []
            if engine.name == "openmpi" and os.geteuid() == 0:
                options.append("--allow-run-as-root")
            if engine.name == "openmpi" and self.bind:
                options += ["--bind-to", "core:overload-allowed"]
            if engine.name == "mpich" and self.bind:
                options += ["-bind-to", "core"]
            command, copies = [engine.launcher, *options, "-n", str(ranks), driver, *words], 1
        places = [rank * self.hosts // ranks for rank in range(copies)]
        if network:
            between = [self._between_hosts(network, places, rank) for rank in range(copies)]
            start = [functools.partial(network.run, place) for place in places]
        else:
            between, start = [{}] * copies, [subprocess.Popen] * copies
        return [
            start[rank](
                command,
                env=self._environment(engine, rank, ranks, store) | between[rank],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if rank == 0 else errors,
                stderr=errors,
                text=True,
                preexec_fn=functools.partial(prepare_rank, rank if self.bind and copies > 1 else None),
            )
            for rank in range(copies)
        ]

    def _environment(self, engine: Engine, rank: int, ranks: int, store: str) -> dict[str, str]:
        if engine.launcher not in ("environment", "torch"):
            return dict(os.environ)
        return os.environ | {
            "RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500",
            "DSC_JOB_ID": f"bench-{os.getpid()}-{self.runs}",
            "GLOO_SOCKET_IFNAME": "lo",
            "BENCH_STORE": store,
            "DSC_GLOO_LIBRARY": str(self.folder.parent / "capi" / "libdsc_gloo.so"),
        }


    def _between_hosts(self, network, places: list[int], rank: int) -> dict[str, str]:
        place = places[rank]
        return {
            "MASTER_ADDR": network.address(places[0]),
            "LOCAL_RANK": str(rank - places.index(place)),
            "LOCAL_WORLD_SIZE": str(places.count(place)),
            "BENCH_ADDRESS": network.address(place),
            "DSC_TOKEN": "5e" * 32,
        }


def end_with_parent() -> None:
    """Runs in the child: ends it when the report is killed, so that it does not continue measuring."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def prepare_rank(bound: int | None) -> None:
    """Runs in the child. A bound rank runs on only one processor."""
    end_with_parent()
    if bound is not None:
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {processors[bound % len(processors)]})


def wait_for(processes: list[subprocess.Popen], errors) -> str:
    """Waits until all have ended successfully and returns the first one's output. Raises Failure after ending all of
    them.
    """
    deadline = time.monotonic() + TIMEOUT_S
    descriptors = {os.pidfd_open(process.pid): process for process in processes}
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    problem, pending = None, len(processes)
    try:
        while pending and not problem:
            ended = poll.poll(max(0, deadline - time.monotonic()) * 1000)
            if not ended:
                problem = f"no result after {TIMEOUT_S} s"
            for descriptor, _ in ended:
                poll.unregister(descriptor)
                pending -= 1
                code = descriptors[descriptor].wait()
                if code:
                    problem = problem or f"exit status {code}"
    finally:
        stop(processes)
        for descriptor in descriptors:
            os.close(descriptor)
    output = processes[0].stdout.read()
    processes[0].stdout.close()
    if problem:
        errors.seek(0)
        lines = [line.strip() for line in errors.read().splitlines() if line.strip()]
        raise Failure(": ".join([problem, *lines[:3]]))
    return output


def stop(processes: list[subprocess.Popen]) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
