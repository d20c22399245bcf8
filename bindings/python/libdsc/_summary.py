"""A table of the operations in the flight recorder: counts, latencies and bandwidths by operation, size and group."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterable, NamedTuple, Optional, Sequence

from libdsc import _dtypes, _raw

if TYPE_CHECKING:
    from libdsc._communicator import Communicator

NS_PER_MS = 1e6
SIZE_UNITS = ("B", "KB", "MB", "GB", "TB", "PB", "EB")
RECEIVES_PART = {"reduce_scatter", "reduce_scatter_v", "scatter", "recv"}
GATHERING = {"all_gather", "all_gather_v", "all_gather_into_tensor"}
GATHERING |= {"reduce_scatter", "reduce_scatter_v", "reduce_scatter_tensor"}
EXCHANGING = {"all_to_all", "all_to_all_v", "all_to_all_single"}
REDUCING = {"all_reduce", "all_reduce_coalesced", "inference_all_reduce"}
HEAD = ("operation", "size", "group", "ranks", "count", "total ms", "avg ms", "algbw Gbit/s", "busbw Gbit/s")
STRAGGLER_HEAD = ("straggler ms", "straggler avg ms")
STARTING_UP = {"bind_device", "ready"}  # operations that the library itself runs in every world
UNITS = "1 KB is 1,024 B; averages leave out the highest and the lowest tenth"


# ---- formulas of DeepSpeed's communication logger; tools/dscctl/trace/measures.cpp has the same ones --------------


def bandwidth(operation: str, size_bytes: int, duration_ms: float, group_size: int) -> tuple[float, float]:
    """Returns algorithm and bus bandwidth in Gbit/s; both are 0 if the duration is 0."""
    if not duration_ms > 0:
        return 0.0, 0.0
    n = group_size
    algorithm = bus = size_bytes / duration_ms
    if operation in EXCHANGING:
        bus *= (n - 1) / n
    elif operation in GATHERING:
        algorithm *= n
        bus = algorithm * ((n - 1) / n)
    elif operation in REDUCING:
        bus *= 2 * (n - 1) / n
        algorithm *= 2
    return algorithm * 8 / 1e6, bus * 8 / 1e6


def size_text(size_bytes: int) -> str:
    """Returns a size as text, such as "1.5 KB", where a KB has 1,024 bytes."""
    if size_bytes <= 0:
        return "0B"
    unit = min((size_bytes.bit_length() - 1) // 10, len(SIZE_UNITS) - 1)
    return f"{round(size_bytes / 1024**unit, 2)} {SIZE_UNITS[unit]}"


def trimmed_mean(values: Iterable[float]) -> float:
    """Returns the mean without the lowest and the highest tenth of the values; 0 if there are no values."""
    ordered = sorted(values)
    cut = round(0.1 * len(ordered))
    kept = ordered[cut : len(ordered) - cut]
    return sum(kept) / len(kept) if kept else 0.0


# ---- records -----------------------------------------------------------------------------------------------------


class Record(NamedTuple):
    """A completed operation."""

    operation: str
    bytes: int  # the size of one rank's part
    group: str
    group_size: int
    group_number: int  # equal on all ranks
    sequence: Optional[int]  # the number of a collective operation; None for messages
    latency_ns: int

    @property
    def key(self) -> Optional[tuple[int, int]]:
        """Identifies a collective operation on all ranks."""
        return None if self.sequence is None else (self.group_number, self.sequence)


@dataclass(frozen=True)
class SummaryRow:
    """The completed operations of one kind, size and group. Averages leave out the lowest and the highest tenth."""

    operation: str
    bytes: int
    group: str
    group_size: int
    count: int
    total_ms: float
    average_ms: float
    algorithm_gbps: float
    bus_gbps: float
    straggler_total_ms: Optional[float] = None
    straggler_average_ms: Optional[float] = None


@dataclass(frozen=True)
class Summary:
    """The rows of one rank. str() gives them as a table."""

    rank: int
    size: int
    rows: tuple[SummaryRow, ...]

    def __str__(self) -> str:
        stragglers = any(row.straggler_total_ms is not None for row in self.rows)
        table = [HEAD + STRAGGLER_HEAD if stragglers else HEAD, *map(_cells, self.rows)]
        widths = [max(map(len, column)) for column in zip(*table)]
        lines = [f"rank {self.rank} of {self.size}; {UNITS}"]
        for cells in table:
            padded = (cell.ljust(w) if i in (0, 2) else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, widths)))
            lines.append("  " + "   ".join(padded).rstrip())
        return "\n".join(lines)


def _cells(row: SummaryRow) -> tuple[str, ...]:
    cells: tuple[str, ...] = (row.operation, size_text(row.bytes), row.group, str(row.group_size))
    cells += (str(row.count), f"{row.total_ms:.3f}")
    cells += (f"{row.average_ms:.4f}", f"{row.algorithm_gbps:.2f}", f"{row.bus_gbps:.2f}")
    if row.straggler_total_ms is not None:
        cells += (f"{row.straggler_total_ms:.3f}", f"{row.straggler_average_ms:.4f}")
    return cells


def _elements(sizes: Sequence[Sequence[int]]) -> int:
    return sum(shape[0] for shape in sizes)


# Returns the size of one rank's part, because bandwidth() multiplies by the group's size for all_gather and
# reduce_scatter.
def _part_bytes(entry: dict[str, Any], operation: str) -> int:
    sides = ("input", "output")
    for side in reversed(sides) if operation in RECEIVES_PART else sides:
        if entry[f"{side}_sizes"]:
            dtype = _dtypes.dtype_code(entry[f"{side}_dtypes"][0])
            return _elements(entry[f"{side}_sizes"]) * _dtypes.BYTES[_raw.Dtype(dtype)]
    return int(entry["bytes"])


def _group_number(identity: str, ranks: str) -> int:
    """Returns a number for a group.

    Groups of one split may have the same id, so the number also depends on the ranks.
    """
    digest = hashlib.blake2b(f"{identity} {ranks}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def completed_operations(trace: dict[str, Any]) -> list[Record]:
    """Returns the successful operations on host memory in a trace, oldest first.

    Operations on a GPU are left out, because the host does not know how long they took.
    """
    records = []
    groups = {}
    for identity, config in trace["pg_config"].items():
        groups[identity] = (config["desc"], config["ranks"], _group_number(identity, config["ranks"]))
    for entry in trace["entries"]:
        begin, end = entry["time_discovered_started_ns"], entry["time_discovered_completed_ns"]
        if begin is None or end is None or entry["result"] != "DSC_OK" or entry.get("device"):
            continue
        name, ranks, number = groups[entry["pg_id"]]
        operation = entry["profiling_name"].removeprefix("dsc:")
        if operation in STARTING_UP:
            continue
        sequence = None if entry["is_p2p"] else entry["collective_seq_id"]
        size = len(json.loads(ranks))
        records.append(Record(operation, _part_bytes(entry, operation), name, size, number, sequence, end - begin))
    return records


# ---- the table ---------------------------------------------------------------------------------------------------


def least_latencies(comm: Communicator, records: list[Record]) -> dict[tuple[int, int], int]:
    """Returns the smallest latency of each collective operation, over the ranks that recorded it. Collective."""
    own = array("q", [number for r in records if r.key for number in (*r.key, r.latency_ns)])
    lengths = array("q", bytes(8 * comm.size))
    comm.all_gather(lengths, array("q", [len(own)]))
    most = max(lengths)
    if most == 0:
        return {}
    own.extend([0] * (most - len(own)))
    everyones = array("q", bytes(8 * most * comm.size))
    comm.all_gather(everyones, own)
    least: dict[tuple[int, int], int] = {}
    for rank, length in enumerate(lengths):
        for at in range(rank * most, rank * most + length, 3):
            group, sequence, latency_ns = everyones[at : at + 3]
            known = least.get((group, sequence), latency_ns)
            least[group, sequence] = min(known, latency_ns)
    return least


def _row(records: list[Record], least: Optional[dict[tuple[int, int], int]]) -> SummaryRow:
    operation, size_bytes, group, group_size = records[0][:4]
    own_ms = [record.latency_ns / NS_PER_MS for record in records]
    both = [bandwidth(operation, size_bytes, ms, group_size) for ms in own_ms]
    averages = (trimmed_mean(own_ms), trimmed_mean(a for a, _ in both), trimmed_mean(b for _, b in both))
    row = SummaryRow(operation, size_bytes, group, group_size, len(records), sum(own_ms), *averages)
    if least is None:
        return row
    stragglers_ms = [(r.latency_ns - least[r.key]) / NS_PER_MS if r.key else 0.0 for r in records]
    return dataclasses.replace(
        row, straggler_total_ms=sum(stragglers_ms), straggler_average_ms=trimmed_mean(stragglers_ms)
    )


def summarize(records: list[Record], least: Optional[dict[tuple[int, int], int]] = None) -> tuple[SummaryRow, ...]:
    """Returns rows ordered by operation, bytes and group. If least is given, they contain straggler times."""
    by_kind: dict[tuple[str, int, str, int, int], list[Record]] = {}
    for record in records:
        by_kind.setdefault(record[:5], []).append(record)
    return tuple(_row(by_kind[kind], least) for kind in sorted(by_kind))


def summary_of(comm: Communicator, show_straggler: bool) -> Summary:
    records = completed_operations(comm.trace())
    least = least_latencies(comm, records) if show_straggler else None
    return Summary(comm.rank, comm.size, summarize(records, least))
