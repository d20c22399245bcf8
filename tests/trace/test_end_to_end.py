"""Real jobs: dscctl reads the dumps of the recorder, and Python prints log_summary()."""

import json
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import tool
from dumps import MS, Job
from tool import FINDINGS, approx, merge, texts

DSCRUN = os.environ.get("DSCRUN", str(tool.BUILD / "tools" / "dscrun"))
VECTORS = pathlib.Path(__file__).resolve().parents[1] / "vectors" / "ds_commslog.jsonl"

# Ranks report their progress by files, without the library. The other ranks wait for it, however busy the machine is.
SIGNS = """
import pathlib, sys, time

def show(sign):
    pathlib.Path(sys.argv[1], f"{sign}.{world.rank}").touch()

def wait_for(sign, ranks):
    while len(list(pathlib.Path(sys.argv[1]).glob(f"{sign}.*"))) < ranks:
        time.sleep(0.005)
"""

LATE_RANK = SIGNS + """
from array import array
import libdsc as dsc

world = dsc.init_distributed()
x = array("f", bytes(4096))
for _ in range(5):
    world.broadcast(x)
world.barrier()
world.set_timeout(5)  # enough time for the other ranks
if world.rank == 2:
    wait_for("failed", 3)
try:
    world.all_reduce(x)
except dsc.DscError as error:
    print(type(error).__name__)
    show("failed")
    wait_for("failed", 3)  # otherwise a rank that leaves might disturb the others
"""

SUMMARY = SIGNS + """
import io, json
from array import array
import libdsc as dsc

world = dsc.init_distributed()
pair = world.split(world.rank // 2, world.rank)
x, out, parts = array("f", bytes(4096)), array("f", bytes(4096)), array("f", bytes(4 * 4096))
for step in range(20):
    world.all_reduce(x)
    world.all_gather(parts, x)
    world.reduce_scatter(out, parts)
    pair.all_reduce(x)
    if world.rank == 3:  # is the last in each barrier, by 200 ms in half of them
        wait_for(f"waits {step}", 3)
        time.sleep(0.2 * (step % 2))
    barrier = world.barrier(async_op=True)
    show(f"waits {step}")
    barrier.wait()
if world.rank < 2:
    world.send(x, 1) if world.rank == 0 else world.recv(x, 0)
twins = [world.split(0, world.rank, name="twin") for _ in range(2)]
for twin, count in zip(twins, (3, 5)):
    for _ in range(count):
        twin.broadcast(x)
plain, text = world.summary(), io.StringIO()
shown = world.summary(show_straggler=True)
world.log_summary(file=text)
assert plain.rows[0].straggler_total_ms is None and "straggler" in str(shown)
assert not {"ready", "bind_device"} & {row.operation for row in shown.rows}
assert ("all_reduce" in text.getvalue()) == (world.rank == 0)
with open(f"{sys.argv[1]}/{world.rank}.json", "w") as file:
    json.dump([vars(row) for row in shown.rows], file)
world.barrier()
"""

ITERATIONS = SIGNS + """
import numpy as np
import libdsc as dsc

gets_stuck = sys.argv[2] == "stuck"
world = dsc.init_distributed(timeout=6 if gets_stuck else 60)
params = [np.zeros(size, np.float32) for size in (70_000, 5, 90_000)]
reducer = dsc.BucketReducer(world, params, bucket_bytes=1 << 18, first_bucket_bytes=1 << 18)
for step in range(3):
    reducer.begin()
    world.barrier()  # all ranks are in this iteration before one of them gets stuck
    for i in (2, 1, 0):
        if gets_stuck and world.rank == 2 and step == 2 and i == 1:
            wait_for("failed", 3)
        reducer.mark_ready(i, params[i])
    try:
        reducer.finish()
    except dsc.DscError:
        show("failed")
        reducer.close()
        end = time.monotonic() + 30
        while world.rank > 0 and world.error() is None and time.monotonic() < end:
            time.sleep(0.005)  # until the trace is written again because rank 0 has left
        raise
world.dump_trace()
dsc.finalize()
"""

MANY_GROUPS = SIGNS + """
from array import array
import libdsc as dsc

world = dsc.init_distributed()
first = world.split(0, world.rank, name="first")
others = [world.split(0, world.rank) for _ in range(20)]
first.set_timeout(0.2)
try:
    if world.rank > 0:
        first.recv(array("f", bytes(4)), 0)
except dsc.DscError:
    pass
first.close()
show("closed")
wait_for("closed", 3)
if world.rank > 0:
    for group in others:  # these groups fail because rank 0 has left
        try:
            group.barrier()
        except dsc.DscError:
            pass
    world.dump_trace(f"{sys.argv[1]}/late_{world.rank}.json")
"""


def dscrun(script, folder, *args, options=(), **environment):
    (folder / "job.py").write_text(script)
    command = [DSCRUN, "-n", "4", *options, "--", sys.executable, str(folder / "job.py"), str(folder), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | environment)


def test_a_rank_that_does_not_come_is_named(tmp_path):
    dumps = tmp_path / "dumps"
    result = dscrun(LATE_RANK, tmp_path, DSC_TRACE_DIR=str(dumps))
    assert result.returncode == 0, result.stderr
    code, report = merge(dumps)
    assert (code, report["missing_ranks"], report["unused_files"]) == (FINDINGS, [], [])
    late = [finding for finding in report["findings"] if finding["kind"] == "LATE"]
    assert [finding["ranks"] for finding in late] == [[2]]
    assert late[0]["operation"] == "all_reduce"
    assert late[0]["text"].startswith("rank 2 has called, but ") and " late, collective 7 (all_reduce)" in late[0]["text"]
    assert "last completed collective 6 (barrier)" in late[0]["text"]
    assert "ranks 0, 1, 3 waited" in late[0]["text"] and "until the time-out" in late[0]["text"]
    assert "DSC_ERR_TIMEOUT" in texts(report, "FAILED")[0]


def shapes(svg, name, key=None):
    found = ElementTree.parse(svg).getroot().findall(f".//{{http://www.w3.org/2000/svg}}{name}")
    return [shape for shape in found if key is None or key in "".join(shape.itertext())]


def test_iterations_of_reducers_are_drawn(tmp_path):
    result = dscrun(ITERATIONS, tmp_path, "fine", DSC_TRACE_DIR=str(tmp_path))
    assert result.returncode == 0, result.stderr
    drawn = tool.trace("iteration", tmp_path)
    svg = tmp_path / "iteration.svg"
    assert (drawn.returncode, drawn.stdout) == (0, f"Wrote {svg} (open it in a browser)\n"), drawn.stderr
    assert [text.text for text in shapes(svg, "text", "iteration")] == [f"rank {rank}, iteration 3" for rank in range(4)]
    assert len(shapes(svg, "line", "parameter 2 ready at")) == 4 and len(shapes(svg, "rect", "reduced at")) == 4 * 2
    dump = json.loads((tmp_path / "dsc_trace_rank_1.json").read_text())
    (iteration,) = dump["iterations"]
    times = [bucket["time_reduced_ns"] - bucket["time_launched_ns"] for bucket in iteration["buckets"]]
    assert min(times) > 0 and iteration["time_begun_ns"] < iteration["time_finishing_ns"] < iteration["time_finished_ns"]
    merge(tmp_path)
    events = json.loads((tmp_path / "trace.perfetto.json").read_text())["traceEvents"]
    kinds = [(event["pid"], event["cat"]) for event in events if event.get("cat") in ("reducer", "gradient")]
    assert all((kinds.count((rank, "reducer")), kinds.count((rank, "gradient"))) == (3, 3) for rank in range(4))


def test_an_iteration_that_is_stuck_is_drawn(tmp_path):
    # With --keep-going the first rank that ends does not end the other ranks before they have written their traces.
    result = dscrun(ITERATIONS, tmp_path, "stuck", options=["--keep-going"], DSC_TRACE_DIR=str(tmp_path))
    assert tool.trace("iteration", tmp_path).returncode == 0, result.stderr
    titles = [text.text for text in shapes(tmp_path / "iteration.svg", "text", "iteration")]
    # rank 2 writes its trace if it is still running
    stuck = {f"rank {rank}, iteration 3: not finished" for rank in (0, 1, 3)}
    assert stuck <= set(titles), (titles, result.stderr)
    unknown = ["".join(bar.itertext()) for bar in shapes(tmp_path / "iteration.svg", "rect", "end not known")]
    assert sum("bucket 1" in text for text in unknown) == 3, (unknown, result.stderr)


def test_the_group_that_failed_first_stays_in_the_trace(tmp_path):
    result = dscrun(MANY_GROUPS, tmp_path, options=["--keep-going"], DSC_TRACE_DIR=str(tmp_path))
    for rank in (1, 2):
        trace = json.loads((tmp_path / f"late_{rank}.json").read_text())
        names = [group["desc"] for group in trace["pg_config"].values()]
        assert names.count("first") == 1 and len(names) >= 22, (names, result.stderr)
        received = [entry for entry in trace["entries"] if entry["profiling_name"] == "dsc:recv"]
        assert [entry["process_group"][1] for entry in received] == ["first"], result.stderr


def test_no_iteration(tmp_path):
    Job(2).write(tmp_path)
    drawn = tool.trace("iteration", tmp_path)
    assert drawn.returncode == tool.USAGE and "no iteration of a gradient reducer" in drawn.stderr, drawn.stderr
    assert not (tmp_path / "iteration.svg").exists()


def test_a_killed_rank_leaves_no_dump(tmp_path):
    kill = 'if world.rank == 2:\n    import os; os.kill(os.getpid(), 9)'
    script = LATE_RANK.replace('if world.rank == 2:\n    wait_for("failed", 3)', kill)
    result = dscrun(script, tmp_path, DSC_TRACE_DIR=str(tmp_path / "dumps"))
    assert result.returncode != 0
    code, report = merge(tmp_path / "dumps")
    assert (code, report["missing_ranks"]) == (FINDINGS, [2])
    assert "DSC_ERR_PEER_DEAD" in " ".join(texts(report, "FAILED"))


def test_summary_in_python(tmp_path):
    result = dscrun(SUMMARY, tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(4)]
    for rank, rows in enumerate(ranks):
        kinds = {(row["operation"], row["bytes"], row["group_size"]): row for row in rows}
        for kind in (("all_reduce", 4096, 4), ("all_reduce", 4096, 2), ("all_gather", 4096, 4), ("reduce_scatter", 4096, 4)):
            assert kinds[kind]["count"] == 20 and kinds[kind]["bus_gbps"] > 0, (rank, kind)
            assert kinds[kind]["total_ms"] >= kinds[kind]["straggler_total_ms"] >= 0
        assert (("send", 4096, 4) in kinds) == (rank == 0) and (("recv", 4096, 4) in kinds) == (rank == 1)
    for rows in ranks:  # two groups with the same name and members
        assert sorted(row["count"] for row in rows if row["operation"] == "broadcast") == [3, 5]
    waited = [next(row for row in rows if row["operation"] == "barrier")["straggler_total_ms"] for rows in ranks]
    assert min(waited[:3]) > 1000 > waited[3]  # rank 3 was late 10 times by 200 ms


# ---- arithmetic --------------------------------------------------------------------------------------------------


def vectors(function):
    rows = [json.loads(line) for line in VECTORS.read_text().splitlines()]
    chosen = [row for row in rows if row.get("fn") == function]
    assert len(chosen) > 10
    return chosen


def test_vectors():
    from libdsc import _summary

    for row in vectors("bw"):
        found = _summary.bandwidth(row["op"], row["size"], row["ms"], row["n"])
        assert found == (approx(row["algbw_gbps"], 1e-14), approx(row["busbw_gbps"], 1e-14)), row
    for row in vectors("convert_size"):
        assert _summary.size_text(row["bytes"]) == row["str"]
    for row in vectors("trim_mean"):
        assert _summary.trimmed_mean(row["data"]) == approx(row["mean"], 1e-14)
    values = [3, 1, 2]
    assert _summary.trimmed_mean(values) == 2 and values == [3, 1, 2]
    assert _summary.bandwidth("all_reduce", 8, 0, 2) == (0, 0)


def test_summary_of_a_trace_from_before_devices():
    from libdsc import _summary

    job = Job(2)
    job.collective({0: MS, 1: MS})
    trace = job.document(0)
    assert all("device" not in entry for entry in trace["entries"])
    assert [record.operation for record in _summary.completed_operations(trace)] == ["all_reduce"]


if __name__ == "__main__":
    tool.main(__file__)
