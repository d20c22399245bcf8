"""Writes dumps of the flight recorder like those of a job.

The tests give the times of the calls, the rest follows from them.
"""

import json
import pathlib
import random

BASE_NS = 1_700_000_000_000_000_000
ELEMENT_BYTES = {"f32": 4, "f64": 8, "bf16": 2, "i64": 8, "u8": 1}
MS = 1_000_000
SECOND = 1_000_000_000


class Job:
    """The records of all ranks. Times are nanoseconds since the start."""

    def __init__(self, world_size, nonce="5eed"):
        self.world_size = world_size
        self.nonce = nonce
        self.groups = {}  # name -> ranks
        self.entries = {rank: [] for rank in range(world_size)}
        self.numbers = {}  # the last number of each group, or of its sender and receiver
        self.called = {}  # (rank, group) -> the last number called, the last number completed
        self.dump_times = {}
        self.ahead = {}  # rank -> how far the clock of its host is ahead, if that is another host
        self.group("world", range(world_size))

    def group(self, name, ranks):
        self.groups[name] = list(ranks)
        for rank in ranks:
            self.called[rank, name] = [0, 0]
        return name

    def devices_of(self, group):
        """Returns the group for operations on devices, which have a separate group."""
        name = f"{group} (devices)"
        return name if name in self.groups else self.group(name, self.groups[group])

    def number(self, group):
        return str(list(self.groups).index(group))

    def _entry(self, rank, group, name, sequence, is_message, **facts):
        entry = {
            "record_id": len(self.entries[rank]),
            "pg_id": self.number(group),
            "process_group": [self.number(group), group],
            "collective_seq_id": 0 if is_message else sequence,
            "p2p_seq_id": sequence if is_message else 0,
            "op_id": len(self.entries[rank]),
            "is_p2p": is_message,
            "profiling_name": f"dsc:{name}",
            "timeout_ms": 300000,
            "frames": [],
        } | facts
        self.entries[rank].append(entry)
        return entry

    @staticmethod
    def _sizes(count, dtype, side=("input", "output")):
        shown = {}
        for which in ("input", "output"):
            has = which in side and count is not None
            shown |= {f"{which}_sizes": [[count]] if has else [], f"{which}_dtypes": [dtype] if has else []}
        return shown | {"bytes": (count or 0) * ELEMENT_BYTES[dtype]}

    @staticmethod
    def _times(created, started, met, completed, result):
        at = lambda time: None if time is None else BASE_NS + int(time)
        failed = None
        if result not in (None, "DSC_OK"):
            completed, failed = None, completed
        state = "completed" if completed is not None else "started" if started is not None else "scheduled"
        duration = None if completed is None or started is None else (completed - started) / 1e6
        return {
            "time_created_ns": at(created),
            "time_discovered_started_ns": at(started),
            "time_met_ns": at(met),
            "time_discovered_completed_ns": at(completed),
            "time_failed_ns": at(failed),
            "duration_ms": duration,
            "state": state,
            "retired": completed is not None or failed is not None,
            "result": result,
        }

    def collective(self, arrivals, group="world", name="all_reduce", count=1024, dtype="f32", move_ns=50_000,
                   ended=None, result="DSC_ERR_TIMEOUT", queued_ns=2_000, per_rank=None, **facts):
        """Adds one collective. `arrivals` has the time of each rank that called it.

        If some ranks did not call it, the other ranks wait, until `ended` if given. per_rank changes fields of single
        ranks. Returns the time at which the collective was complete, or None.
        """
        number = self.numbers[group] = self.numbers.get(group, 0) + 1
        complete = set(arrivals) == set(self.groups[group])
        met = max(arrivals.values()) if complete else None
        facts = {"reduce_op": "sum" if "reduce" in name else None, "root": None, "peer": None, "algorithm": "direct"} | facts
        for rank, arrival in arrivals.items():
            own = {"count": count, "dtype": dtype, "name": name} | (per_rank or {}).get(rank, {})
            done = met + move_ns if complete else ended
            times = self._times(arrival - queued_ns, arrival, met, done, "DSC_OK" if complete else result if ended else None)
            sizes = self._sizes(own.pop("count"), own.pop("dtype"))
            self._entry(rank, group, own.pop("name"), number, False, **sizes, **(facts | times | own))
            self.called[rank, group][0] = number
            if complete:
                self.called[rank, group][1] = number
        return met + move_ns if complete else None

    def on_devices(self, calls, group="world", name="all_reduce", count=1024, ends=None, result="DSC_OK", state="launched",
                   **facts):
        """Adds one collective on devices. `calls` has the time at which each rank called it.

        Ends are observed only for the ranks in `ends`; None there means that the collective still runs. For other ranks
        the end is not observed.
        """
        group = self.devices_of(group)
        number = self.numbers[group] = self.numbers.get(group, 0) + 1
        facts = {"reduce_op": "sum" if "reduce" in name else None, "root": None, "peer": None, "algorithm": None} | facts
        for rank, call in calls.items():
            end = (ends or {}).get(rank)
            times = self._times(call, call + 5_000, None, end, result if end else None) | {"duration_ms": None}
            if rank not in (ends or {}):
                times |= {"state": state, "retired": True}
            self._entry(rank, group, name, number, False, device=True, **self._sizes(count, "f32"), **(facts | times))
            self.called[rank, group][0] = number
            if end and result == "DSC_OK":
                self.called[rank, group][1] = number

    def message_on_devices(self, sender, receiver, called, known, group="world", state="captured"):
        """Adds a message that still runs.

        Its end is observed only on the ranks in `known`. `called` has the time of each end's call.
        """
        group = self.devices_of(group)
        key = (group, sender, receiver)
        number = self.numbers[key] = self.numbers.get(key, 0) + 1
        for rank, call in called.items():
            name, peer, side = ("send", receiver, "input") if rank == sender else ("recv", sender, "output")
            times = self._times(call, call + 5_000, None, None, None)
            if rank not in known:
                times |= {"state": state, "retired": True}
            self._entry(rank, group, name, number, True, device=True, reduce_op=None, root=None, algorithm=None,
                        peer=self.groups[group].index(peer), **self._sizes(256, "f32", (side,)), **times)

    def message(self, sender, receiver, sent, received, group="world", count=256, dtype="f32", move_ns=20_000):
        """Adds a message. A time of None means that this end never called it."""
        key = (group, sender, receiver)
        number = self.numbers[key] = self.numbers.get(key, 0) + 1
        met = None if None in (sent, received) else max(sent, received)
        position = self.groups[group].index
        for rank, peer, name, side, time in (
            (sender, receiver, "send", "input", sent),
            (receiver, sender, "recv", "output", received),
        ):
            if time is None:
                continue
            done = None if met is None else met + move_ns
            times = self._times(time - 1000, time, met, done, "DSC_OK" if done else None)
            self._entry(rank, group, name, number, True, reduce_op=None, root=None, peer=position(peer),
                        algorithm="staged", **self._sizes(count, dtype, side), **times)
        return None if met is None else met + move_ns

    def document(self, rank, reason="request"):
        ends = ("time_discovered_completed_ns", "time_failed_ns", "time_created_ns")
        last = max((next(filter(None, map(entry.get, ends))) for entry in self.entries[rank]), default=BASE_NS)
        time = BASE_NS + self.dump_times[rank] if rank in self.dump_times else last + MS
        mine = {name: ranks for name, ranks in self.groups.items() if rank in ranks}
        numbers = {name: self.number(name) for name in mine}
        status = lambda name: dict(
            zip(("last_enqueued_collective", "last_completed_collective"), self.called[rank, name]),
            last_started_collective=self.called[rank, name][0],
        )
        return {
            "version": "2.4",
            "library": "libdsc 0.1.0",
            "rank": rank,
            "world_size": self.world_size,
            "pid": 4000 + rank,
            "host": "a5",
            "job": self.nonce,
            "reason": reason,
            "clock": {"dump_ns": time, "monotonic_ns": time - BASE_NS},
            "pg_config": {numbers[name]: {"name": numbers[name], "desc": name, "ranks": str(ranks)} for name, ranks in mine.items()},
            "pg_status": {numbers[name]: status(name) for name in mine},
            "entries": self.entries[rank],
        }

    def elsewhere(self, rank):
        """Returns the document as a host with another clock writes it."""
        document, ahead = self.document(rank), self.ahead[rank]
        shifted = lambda facts: {
            name: value + ahead if name.endswith("_ns") and value is not None else value for name, value in facts.items()
        }
        clock = shifted(document["clock"]) | {"monotonic_ns": 7}
        return document | {"host": "b6", "clock": clock, "entries": [*map(shifted, document["entries"])]}

    def write(self, folder, without=()):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for rank in set(range(self.world_size)) - set(without):
            document = self.elsewhere(rank) if rank in self.ahead else self.document(rank)
            file_of(folder, rank).write_text(json.dumps(document), encoding="utf-8")
        return folder


def file_of(folder, rank):
    return pathlib.Path(folder) / f"dsc_trace_rank_{rank}.json"


def training(world_size, iterations, slow_rank=None, seed=1, buckets=4):
    """A job like a training loop: passes of different lengths, and in each iteration gradients in buckets over the
    world, a message to the next rank, and a sum over pairs of ranks."""
    job = Job(world_size, nonce=f"{seed:x}")
    chance = random.Random(seed)
    pairs = [job.group(f"pair {i}", (2 * i, 2 * i + 1)) for i in range(world_size // 2)]
    now = dict.fromkeys(range(world_size), 5 * MS)
    for iteration in range(iterations):
        for rank in now:
            now[rank] += int(chance.gauss(6, 0.4) * MS) + (2 * MS if rank == slow_rank else 0)
        for pair, name in enumerate(pairs):
            ranks = (2 * pair, 2 * pair + 1)
            over = job.message(*ranks, now[ranks[0]], now[ranks[1]], count=4096, move_ns=300_000)
            over = job.collective({rank: over + chance.randint(5_000, 300_000) for rank in ranks}, name, "all_gather", 2048,
                                  "bf16", move_ns=200_000)
            now |= dict.fromkeys(ranks, over)
        for bucket in range(buckets):
            arrivals = {rank: time + int(abs(chance.gauss(1, 0.4)) * MS) for rank, time in now.items()}
            over = job.collective(arrivals, count=1 << (16 + bucket), move_ns=(bucket + 1) * 400_000, queued_ns=200_000)
            now = {rank: over + chance.randint(1_000, 40_000) for rank in now}
        if iteration % 5 == 4:
            over = job.collective(now, name="broadcast", count=16, root=0, move_ns=20_000)
            now = dict.fromkeys(now, over + 10_000)
    job.dump_times = {rank: max(now.values()) + 2 * MS for rank in now}
    return job, now


def repeated(job, world_size, folder):
    """Writes dumps of a larger world in which every pair of ranks does what the job's two ranks do.

    Returns the number of entries too.
    """
    texts = [json.dumps(entries) for entries in (job.entries[0], job.entries[1])]
    pair = str(list(job.groups).index("pair 0"))
    for rank in range(world_size):
        document = job.document(rank % 2) | {"rank": rank, "world_size": world_size, "entries": 0}
        document["pg_config"]["0"]["ranks"] = str(list(range(world_size)))
        own = {"name": pair, "desc": f"pair {rank // 2}", "ranks": str([rank // 2 * 2, rank // 2 * 2 + 1])}
        document["pg_config"][pair] = own
        entries = texts[rank % 2].replace(f'"peer": {1 - rank % 2},', f'"peer": {rank ^ 1},')
        text = json.dumps(document).replace('"entries": 0', f'"entries": {entries}')
        file_of(folder, rank).write_text(text, encoding="utf-8")
    return pathlib.Path(folder), world_size // 2 * sum(map(len, job.entries.values()))
