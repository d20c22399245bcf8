"""dscctl trace summary: counts, latencies and bandwidths of one rank."""

import json

import tool
from dumps import MS, Job, file_of
from tool import FINE, USAGE, approx


def summary(folder, *args):
    result = tool.trace("summary", folder, "--json", *args)
    assert (result.returncode, result.stderr) == (FINE, "")
    return json.loads(result.stdout)


def row_of(rows, operation, size=None):
    (row,) = [row for row in rows if row["operation"] == operation and size in (None, row["bytes"])]
    return row


def test_numbers(tmp_path):
    """Nine operations of 1 ms and one of 11 ms.

    The average leaves out the shortest and the longest operation. Rank 0 waits for half of each operation.
    """
    job = Job(4)
    time = MS
    for move_ms in (1, 1, 1, 1, 11, 1, 1, 1, 1, 1):
        arrivals = {0: time, 1: time + MS // 2, 2: time + MS // 2, 3: time + MS // 2}
        time = job.collective(arrivals, count=250_000, move_ns=move_ms * MS - MS // 2) + MS
    job.write(tmp_path)
    shown = summary(tmp_path)
    assert (shown["rank"], shown["world_size"], len(shown["rows"])) == (0, 4, 1)
    row = row_of(shown["rows"], "all_reduce")
    assert (row["bytes"], row["group"], row["group_size"], row["count"]) == (1_000_000, "world", 4, 10)
    assert row["total_ms"] == approx(20)
    assert row["average_ms"] == approx(1)
    assert row["algorithm_gbps"] == approx(16)  # 2 x 8 Mbit in 1 ms
    assert row["bus_gbps"] == approx(12)
    assert row["straggler_total_ms"] == approx(5)
    assert row["straggler_average_ms"] == approx(0.5)
    assert row_of(summary(tmp_path, "--rank", 3)["rows"], "all_reduce")["straggler_total_ms"] == 0


def test_the_groups_own_size_counts(tmp_path):
    job = Job(4)
    job.group("pair", (2, 3))
    for group, ranks in (("world", range(4)), ("pair", (2, 3))):
        job.collective(dict.fromkeys(ranks, MS), group, count=250_000, move_ns=MS)
    rows = summary(job.write(tmp_path), "--rank", 2)["rows"]
    assert [(row["group"], row["group_size"]) for row in rows] == [("world", 4), ("pair", 2)]
    assert [row["bus_gbps"] for row in rows] == [approx(12), approx(8)]


def test_what_the_library_does_at_the_start_does_not_count(tmp_path):
    job = Job(2)
    for name in ("ready", "bind_device"):
        job.collective({0: MS, 1: MS}, name=name, count=None)
    job.collective({0: 3 * MS, 1: 3 * MS})
    assert [row["operation"] for row in summary(job.write(tmp_path))["rows"]] == ["all_reduce"]


def test_parts_and_messages(tmp_path):
    """all_gather and reduce_scatter count the part of one rank.

    A message counts its own size. Failures do not count.
    """
    job = Job(2)
    sizes = {"input_sizes": [[2000]], "output_sizes": [[1000]]}
    job.collective({0: MS, 1: MS}, name="reduce_scatter", dtype="f64", move_ns=MS)
    for rank in (0, 1):
        job.entries[rank][-1] |= sizes
    job.message(0, 1, 3 * MS, 3 * MS, count=500, move_ns=MS)
    job.collective({0: 5 * MS}, name="barrier", count=None, ended=6 * MS)
    rows = summary(job.write(tmp_path), "--rank", 1)["rows"]
    assert row_of(rows, "reduce_scatter") | {"bytes": 8000, "algorithm_gbps": 0.128} == row_of(rows, "reduce_scatter")
    assert row_of(rows, "recv")["bytes"] == 2000 and len(rows) == 2
    assert len(summary(tmp_path)["rows"]) == 2


def test_text(tmp_path):
    job = Job(2)
    job.collective({0: MS, 1: MS}, count=384, move_ns=MS)
    result = tool.trace("summary", job.write(tmp_path))
    title, head, row = result.stdout.splitlines()
    assert title == "rank 0 of 2; 1 KB is 1,024 B; averages leave out the highest and the lowest tenth"
    assert head.split() == "operation size group ranks count total ms avg ms algbw Gbit/s busbw Gbit/s straggler ms straggler avg ms".split()
    assert row.split() == "all_reduce 1.5 KB world 2 1 1.000 1.0000 0.02 0.01 0.000 0.0000".split()


def test_ranks_without_a_dump(tmp_path):
    job = Job(3)
    job.collective({rank: MS for rank in range(3)})
    job.write(tmp_path, without=(0,))
    assert summary(tmp_path)["rank"] == 1
    file_of(tmp_path, 2).write_text("{")
    result = tool.trace("summary", tmp_path, "--rank", "2")
    assert result.returncode == USAGE
    assert result.stderr == "dscctl: --rank 2: expected a rank with a usable dump: rank 1\n"


if __name__ == "__main__":
    tool.main(__file__)
