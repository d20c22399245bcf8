"""The flight recorder between hosts records the calls of the program by name, and nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import launch
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import jobs  # noqa: E402

CALLS = jobs.MEET + """
import os, numpy as np, libdsc as dsc
world = dsc.init_distributed(init_timeout=40, timeout=40)
n, r = world.size, world.rank
world.all_reduce(np.ones(1, np.float32))
world.all_reduce(np.ones(300_000, np.float32))
half = world.split(r % 2, r, name="half")
half.broadcast(np.ones(5, np.float64), root=0)
world.all_gather(np.zeros(n, np.int32), np.full(1, r, np.int32))
works = [world.all_reduce(np.ones(2, np.float32), async_op=True) for _ in range(3)]
for work in works: work.wait()
far, near = (r + 2) % n, r ^ 1
for peer in (far, near):
    if r < peer:
        world.send(np.ones(7, np.float32), peer)
    else:
        world.recv(np.ones(7, np.float32), peer)
world.barrier()
world.dump_trace(os.path.join(os.environ["FOLDER"], f"dsc_trace_rank_{r}.json"))
print("right")
dsc.finalize()
"""

WORLD = ["all_reduce"] * 2 + ["split", "all_gather"] + ["all_reduce"] * 3 + ["barrier"]


def calls_of(document, group):
    return [
        (entry["profiling_name"].removeprefix("dsc:"), entry["collective_seq_id"], entry["state"])
        for entry in document["entries"]
        if entry["process_group"][1] == group and not entry["is_p2p"] and entry["collective_seq_id"] > 0
    ]


@pytest.mark.parametrize("placement", ["0011", "0101", "0111", "0123"])
def test_a_trace_holds_what_was_called(tmp_path, placement):
    job = jobs.Job(len(placement), CALLS, FOLDER=str(tmp_path))
    job.place([int(host) for host in placement])
    assert job.finish() == ["right"] * len(placement)
    for rank in range(len(placement)):
        document = json.loads((tmp_path / f"dsc_trace_rank_{rank}.json").read_text())
        named = {group["desc"]: group["ranks"] for group in document["pg_config"].values()}
        assert named == {"world": "[0, 1, 2, 3]", "half": f"[{rank % 2}, {rank % 2 + 2}]"}
        assert calls_of(document, "world") == [(name, i, "completed") for i, name in enumerate(WORLD, 1)]
        assert calls_of(document, "half") == [("broadcast", 1, "completed")]
        messages = [
            (entry["profiling_name"], entry["peer"], entry["p2p_seq_id"], entry["bytes"])
            for entry in document["entries"]
            if entry["is_p2p"]
        ]
        assert messages == [("dsc:send" if rank < peer else "dsc:recv", peer, 1, 28) for peer in ((rank + 2) % 4, rank ^ 1)]


def test_traces_of_several_hosts_match(tmp_path):
    job = jobs.Job(4, CALLS, FOLDER=str(tmp_path))
    job.place([0, 0, 1, 1])
    assert job.finish() == ["right"] * 4
    merged = subprocess.run(
        [launch.DSCCTL, "trace", "merge", tmp_path, "--json"], capture_output=True, text=True, timeout=launch.LIMIT_S
    )
    assert merged.returncode == 0, merged.stdout + merged.stderr
    assert json.loads(merged.stdout)["findings"] == []


if __name__ == "__main__":
    launch.main(__file__)
