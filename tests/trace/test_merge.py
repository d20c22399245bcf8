"""dscctl trace merge: reports which ranks are late, which calls differ and what failed, and reads incomplete dumps."""

import json
import os
import pty
import re
import subprocess

import pytest
import tool
from dumps import BASE_NS, MS, SECOND, Job, file_of, training
from tool import FINDINGS, FINE, USAGE, merge, texts

ALL = range(4)


def at(time, ranks=ALL, step=0):
    return {rank: time + rank * step for rank in ranks}


def started_job(operations=3):
    """Four ranks that have done some broadcasts. Returns the job and its time."""
    job = Job(4)
    time = MS
    for _ in range(operations):
        time = job.collective(at(time, step=1000), name="broadcast", root=0) + MS
    return job, time


def test_nothing_to_find(tmp_path):
    job, _ = training(4, 6)
    code, report = merge(job.write(tmp_path))
    assert (code, report["findings"], report["unused_files"], report["missing_ranks"]) == (FINE, [], [], [])
    assert sorted(os.listdir(tmp_path))[-2:] == ["timeline.html", "trace.perfetto.json"]


def test_late_rank(tmp_path):
    job, time = started_job()
    job.collective(at(time, (0, 1, 3)))
    job.dump_times = dict.fromkeys(ALL, time + 4200 * MS)
    code, report = merge(job.write(tmp_path))
    assert code == FINDINGS
    assert texts(report, "LATE") == [
        'rank 2 has not called collective 4 (all_reduce) of group "world"; last completed collective 3 (broadcast); '
        "no other operation is in progress; ranks 0, 1, 3 have waited 4.20 s"
    ]
    (finding,) = report["findings"]
    assert (finding["ranks"], finding["operation"], finding["number"]) == ([2], "all_reduce", 4)


def test_a_short_wait_is_not_late(tmp_path):
    job, time = started_job()
    job.collective(at(time, (0, 1, 3)))
    job.dump_times = dict.fromkeys(ALL, time + 300 * MS)
    assert merge(job.write(tmp_path))[0] == FINE
    code, report = merge(tmp_path, "--late-after", "0.2")
    assert code == FINDINGS and "have waited 300 ms" in texts(report, "LATE")[0]


def test_what_came_after_a_dump_is_not_late(tmp_path):
    """Rank 2 wrote its dump before the other ranks began to wait."""
    job, time = started_job()
    job.collective(at(time, (0, 1, 3)))
    job.dump_times = dict.fromkeys(ALL, time + 5 * SECOND) | {2: time - MS // 2}
    assert merge(job.write(tmp_path))[0] == FINE


def test_time_out(tmp_path):
    job, time = started_job()
    job.collective(at(time, (0, 3)), ended=time + 500 * MS, result="DSC_ERR_TIMEOUT")
    code, report = merge(job.write(tmp_path, without=(1,)))
    assert code == FINDINGS
    assert len(texts(report, "LATE")) == 1 and texts(report, "LATE")[0].startswith(
        'rank 2 has not called collective 4 (all_reduce) of group "world"; last completed collective 3 (broadcast); '
    )
    assert texts(report, "LATE")[0].endswith("ranks 0, 3 waited 500 ms until the time-out")
    assert texts(report, "FAILED") == ['collective 4 (all_reduce) of group "world" failed: DSC_ERR_TIMEOUT on ranks 0, 3']
    assert texts(report, "NO DUMP") == ["rank 1 has no usable dump"] and report["missing_ranks"] == [1]


def test_only_the_absent_one_can_be_late(tmp_path):
    job, time = started_job()
    job.collective(at(time, (0, 1, 3)), ended=time + 2 * SECOND)
    _, report = merge(job.write(tmp_path, without=(2,)))
    assert texts(report, "LATE") == [
        'rank 2, which wrote no dump, has not arrived at collective 4 (all_reduce) of group "world"; '
        "ranks 0, 1, 3 waited 2.00 s until the time-out"
    ]


def test_where_the_late_rank_is_instead(tmp_path):
    """Ranks 0 and 1 wait for each other in two groups that they called in different orders."""
    job, time = started_job()
    job.group("left", ALL)
    job.group("right", ALL)
    job.collective(at(time, (0, 2, 3)), "left")
    job.collective(at(time + MS, (1,)), "right", "all_gather")
    job.dump_times = dict.fromkeys(ALL, time + 3 * SECOND)
    _, report = merge(job.write(tmp_path))
    late = texts(report, "LATE")
    assert 'completed no collective of this group; now in collective 1 (all_gather) of group "right" for 3.00 s' in late[0]
    assert texts(report, "DEADLOCK") == [
        'ranks 0, 1 wait for each other: rank 0 waits for rank 1 in collective 1 (all_reduce) of group "left"; '
        'rank 1 waits for rank 0 in collective 1 (all_gather) of group "right"'
    ]


def test_a_rank_that_left_the_group(tmp_path):
    """A group that a rank has destroyed is not in the rank's dump."""
    job, time = started_job()
    job.group("left", ALL)
    time = job.collective(at(time), "left", "barrier", count=None) + MS
    job.collective(at(time, (0, 1, 3)), "left", "barrier", count=None)
    job.message(0, 2, time, None, group="left")
    job.dump_times = dict.fromkeys(ALL, time + 2 * SECOND)
    job.write(tmp_path)
    document = job.document(2)
    left = job.number("left")
    del document["pg_config"][left], document["pg_status"][left]
    document["entries"] = [entry for entry in document["entries"] if entry["pg_id"] != left]
    file_of(tmp_path, 2).write_text(json.dumps(document))
    code, report = merge(tmp_path)
    assert code == FINDINGS
    assert texts(report, "LATE") == [
        'rank 2 has left the group before collective 2 (barrier) of group "left"; no other operation is in progress; '
        "ranks 0, 1, 3 have waited 2.00 s",
        'rank 2 has left the group before recv number 1 from rank 0 of group "left"; no other operation is in progress; '
        "rank 0 has waited 2.00 s",
    ]


def test_deadlock_of_ranks_that_wait_for_several(tmp_path):
    """Rank 0 waits for ranks 1 and 2, and rank 2 waits for ranks 4 and 0. Only ranks 0 and 2 wait for each other."""
    job = Job(5)
    job.group("three", (0, 1, 2))
    job.group("others", (2, 4, 0))
    job.collective({0: MS}, "three")
    job.collective({2: MS}, "others")
    job.dump_times = dict.fromkeys(range(5), 3 * SECOND)
    _, report = merge(job.write(tmp_path))
    assert texts(report, "DEADLOCK") == [
        'ranks 0, 2 wait for each other: rank 0 waits for rank 2 in collective 1 (all_reduce) of group "three"; '
        'rank 2 waits for rank 0 in collective 1 (all_reduce) of group "others"'
    ]


def test_waits_that_meet_again_are_no_deadlock(tmp_path):
    job = Job(4)
    job.group("first", (0, 1, 2))
    job.group("second", (1, 3))
    job.group("third", (2, 3))
    job.collective({0: MS}, "first")
    job.collective({1: MS}, "second")
    job.collective({2: MS}, "third")
    job.dump_times = dict.fromkeys(ALL, 3 * SECOND)
    _, report = merge(job.write(tmp_path))
    assert len(texts(report, "LATE")) == 4 and texts(report, "DEADLOCK") == []


def test_one_clock_per_host(tmp_path):
    """The wall clock of the host was set back by 5 s between the dumps of ranks 0 and 1. Rank 2 ran on another host."""
    job = Job(3)
    job.collective({0: 100 * MS, 1: 101 * MS, 2: 102 * MS})
    job.write(tmp_path)
    back = -5 * SECOND
    for rank, host in ((1, "a5"), (2, "b6")):
        document = job.document(rank) | {"host": host}
        document["clock"]["dump_ns"] += back
        for entry in document["entries"]:
            entry |= {name: entry[name] + back for name in entry if name.endswith("_ns") and entry[name]}
        file_of(tmp_path, rank).write_text(json.dumps(document))
    merge(tmp_path)
    events = json.loads((tmp_path / "trace.perfetto.json").read_text())["traceEvents"]
    begins = {e["pid"]: e["ts"] for e in events if e.get("cat") == "operation"}
    assert abs(begins[1] - begins[0] - 1000) < 1 and abs(begins[0] - begins[2] - (5e6 - 2000)) < 1


def test_messages(tmp_path):
    job = Job(4)
    time = job.message(0, 1, MS, 2 * MS)
    job.message(0, 1, time + MS, None)
    job.message(3, 2, None, time + MS)
    job.dump_times = dict.fromkeys(ALL, time + MS + 2 * SECOND)
    _, report = merge(job.write(tmp_path))
    assert texts(report, "LATE") == [
        'rank 1 has not called recv number 2 from rank 0 of group "world"; no other operation is in progress; '
        "rank 0 has waited 2.00 s",
        'rank 3 has not called send number 1 to rank 2 of group "world"; no other operation is in progress; '
        "rank 2 has waited 2.00 s",
    ]


def test_peers_of_a_group_are_its_own_ranks(tmp_path):
    job = Job(4)
    job.group("odd", (3, 1))
    job.message(3, 1, MS, None, group="odd")
    job.dump_times = dict.fromkeys(ALL, 3 * SECOND)
    _, report = merge(job.write(tmp_path))
    assert texts(report, "LATE")[0].startswith('rank 1 has not called recv number 1 from rank 3 of group "odd"')


def test_queued_but_not_started(tmp_path):
    job, time = started_job()
    job.collective(at(time))
    job.entries[2][-1] |= Job._times(time, None, None, None, None)
    for rank in (0, 1, 3):
        job.entries[rank][-1] |= Job._times(time - 1000, time, None, None, None)
    job.dump_times = dict.fromkeys(ALL, time + 2 * SECOND)
    _, report = merge(job.write(tmp_path))
    assert texts(report, "LATE")[0].startswith('rank 2 has called, but not started, collective 4 (all_reduce)')


def test_too_late(tmp_path):
    """Rank 2 called the operation after the other ranks had given up, and got the error immediately."""
    job, time = started_job()
    job.collective(at(time, (0, 1, 3)) | {2: time + 2 * SECOND}, ended=time)
    for rank, begin, end in ((0, 0, 700), (1, 0, 700), (3, 0, 700), (2, 2000, 2001)):
        times = Job._times(time + begin * MS, time + begin * MS, None, time + end * MS, "DSC_ERR_TIMEOUT")
        job.entries[rank][-1] |= times
        job.called[rank, "world"][1] = 3
    _, report = merge(job.write(tmp_path))
    assert texts(report, "LATE") == [
        'rank 2 has called, but 1.30 s late, collective 4 (all_reduce) of group "world"; last completed '
        "collective 3 (broadcast); no other operation is in progress; ranks 0, 1, 3 waited 700 ms until the time-out"
    ]


def test_overwritten_records_are_not_missed(tmp_path):
    """A rank that kept fewer operations than the other ranks is not late."""
    job, time = started_job(10)
    job.entries[2] = job.entries[2][6:]
    assert merge(job.write(tmp_path))[0] == FINE


def test_stuck_while_moving(tmp_path):
    job, time = started_job()
    job.collective(at(time))
    job.entries[1][-1] |= Job._times(time - 1000, time, time, None, None)
    job.dump_times = dict.fromkeys(ALL, time + 3 * SECOND)
    _, report = merge(job.write(tmp_path))
    assert texts(report, "STUCK") == [
        'rank 1 is still moving data in collective 4 (all_reduce) of group "world", for 3.00 s; ranks 0, 2, 3 completed it'
    ]


def test_mismatches(tmp_path):
    job, time = started_job()
    kinds = [
        ({3: {"name": "broadcast"}}, "collective 4 of group \"world\" does not match: broadcast on rank 3; all_reduce on ranks 0-2"),
        ({0: {"dtype": "f64"}}, 'collective 5 (all_reduce) of group "world" does not match: f64 on rank 0; f32 on ranks 1-3'),
        ({1: {"count": 8}, 2: {"count": 8}}, "1,024 elements on ranks 0, 3; 8 elements on ranks 1, 2"),
        ({2: {"reduce_op": "max"}}, "reduction max on rank 2; reduction sum on ranks 0, 1, 3"),
        ({2: {"root": 1}, 0: {"root": 0}}, "root rank 0 on rank 0; root rank 1 on rank 2"),
    ]
    for changes, _ in kinds:
        time = job.collective(at(time), per_rank=changes) + MS
    _, report = merge(job.write(tmp_path))
    found = texts(report, "MISMATCH")
    assert len(found) == len(kinds)
    for text, (_, expected) in zip(found, kinds):
        assert expected in text
    assert report["findings"][1]["ranks"] == [0]


def test_revoked_operations_are_one_line(tmp_path):
    job, time = started_job()
    job.collective(at(time, (0, 1, 3)), ended=time + SECOND)
    for _ in range(12):
        job.collective(at(time, (0, 1, 3)), ended=time + SECOND, result="DSC_ERR_REVOKED")
    _, report = merge(job.write(tmp_path))
    assert texts(report, "FAILED") == [
        'collective 4 (all_reduce) of group "world" failed: DSC_ERR_TIMEOUT on ranks 0, 1, 3',
        '12 operations of group "world" ended with DSC_ERR_REVOKED on ranks 0, 1, 3',
    ]


def test_lateness(tmp_path):
    job = Job(3)
    time = MS
    for late in (2, 2, 0, 2):
        arrivals = {rank: time + (3 * MS if rank == late else rank * 1000) for rank in range(3)}
        time = job.collective(arrivals) + MS
    _, report = merge(job.write(tmp_path))
    rows = {row["rank"]: row for row in report["lateness"]}
    assert [rows[rank]["last"] for rank in range(3)] == [1, 0, 3]
    assert all(row["operations"] == 4 for row in rows.values())
    assert rows[2]["others_waited_ns"] == 3 * (3 * MS + 3 * MS - 1000)
    assert rows[0]["others_waited_ns"] == (3 * MS - 1000) + (3 * MS - 2000)
    assert rows[1]["mean_delay_ns"] == (3 * 1000 + 0) // 4
    assert rows[2]["worst_delay_ns"] == 3 * MS and rows[2]["worst"] == 'collective 1 (all_reduce) of group "world"'


def held_up(job, rounds, straggler, late_ns):
    """Adds collectives that take 0.1 ms each. In one of them rank 1 is the last, in all others `straggler`."""
    time = MS
    for number in range(rounds):
        last = 1 if number == 3 else straggler
        arrivals = {rank: time + (late_ns if rank == last else 1000) for rank in range(job.world_size)}
        time = job.collective(arrivals) + MS // 10
    return job


def test_a_straggler_is_a_finding(tmp_path):
    code, report = merge(held_up(Job(3), 21, 2, 3 * MS).write(tmp_path))
    assert code == FINDINGS and [finding["kind"] for finding in report["findings"]] == ["STRAGGLER"]
    (finding,) = report["findings"]
    each_ms = 20 * (3 * MS - 1000) / MS
    assert finding["ranks"] == [2] and finding["text"].startswith("rank 2 arrived last at 20 of 21 collectives; each other rank waited for it ")
    assert f"waited for it {each_ms:.1f} ms on average, 9" in finding["text"] and " % of the 6" in finding["text"]
    text = tool.trace("merge", tmp_path).stdout
    assert f"STRAGGLER  {finding['text']}" in text and "nobody" not in text


@pytest.mark.parametrize(
    "rounds, late_ns, why",
    [(4, 3 * MS, "of so few somebody is always the last"), (21, 2000, "it costs the others little"), (0, MS, "nobody is")],
)
def test_no_straggler(tmp_path, rounds, late_ns, why):
    code, report = merge(held_up(Job(3), rounds, 2, late_ns).write(tmp_path))
    assert (code, report["findings"]) == (FINE, []), why


def test_clocks_of_hosts_make_no_straggler(tmp_path):
    job = held_up(Job(3), 21, 2, 3 * MS)
    job.ahead = {2: SECOND}
    assert texts(merge(job.write(tmp_path))[1], "STRAGGLER") == []


# ---- files -------------------------------------------------------------------------------------------------------


def test_bad_files_are_named_and_the_others_used(tmp_path):
    job = Job(8)
    job.collective(at(MS, range(8)))
    job.write(tmp_path)
    text = file_of(tmp_path, 1).read_text()
    file_of(tmp_path, 1).write_text(text[:200])
    file_of(tmp_path, 2).write_text(text.replace('"world_size"', '"world_size" oops'))
    file_of(tmp_path, 3).write_text("")
    document = job.document(4)
    document["entries"][0]["time_created_ns"] = "soon"
    file_of(tmp_path, 4).write_text(json.dumps(document))
    file_of(tmp_path, 5).write_text(json.dumps(job.document(6)))
    file_of(tmp_path, 6).write_text(json.dumps([1, 2]))
    del (document := job.document(7))["clock"]["dump_ns"]
    file_of(tmp_path, 7).write_text(json.dumps(document))
    code, report = merge(tmp_path)
    assert code == FINDINGS and report["missing_ranks"] == [1, 2, 3, 4, 5, 6, 7]
    problems = {item["file"]: item["text"] for item in report["unused_files"]}
    column = 2 + text.index('"world_size"') + len('"world_size"')
    expected = {
        1: "line 1, column 201: the JSON text ends too early; the file may be truncated",
        2: f"line 1, column {column}: not valid JSON",
        3: "the file is empty",
        4: 'entries[0].time_created_ns: expected a whole number, found "soon"',
        5: "rank: expected 5 as in the file's name, found 6",
        6: "the document: expected an object, found a list",
        7: "clock.dump_ns: expected a whole number, but it is missing",
    }
    assert problems == {file_of("", rank).name: text for rank, text in expected.items()}


def test_files_and_folders(tmp_path):
    """Dumps that were copied together under other names, beside a folder of dumps."""
    job, _ = started_job()
    job.write(tmp_path / "node0")
    job.write(tmp_path / "node1")
    ranks = range(job.world_size)
    named = [file_of(tmp_path / "node0", rank).rename(tmp_path / f"trace.{rank}.json") for rank in ranks]
    for sources in (named, [tmp_path / "node1", *named[:1]], [named[0], tmp_path / "node1", tmp_path / "node1"]):
        code, report = merge(*sources, "-o", tmp_path / "out")
        assert report["missing_ranks"] == [] and report["world_size"] == job.world_size, sources
        unused = [problem["text"] for problem in report["unused_files"]]
        assert unused == ([] if sources == named else ["rank: a later dump of rank 0 is used instead"])
    assert tool.trace("merge", *named).returncode == FINE and (tmp_path / "timeline.html").exists()
    whole, part = (tool.trace("summary", *some, "--rank", "0").stdout for some in ([tmp_path / "node1"], named))
    assert whole == part and "broadcast" in whole
    result = tool.trace("merge", named[0], tmp_path / "nowhere.json")
    assert result.returncode == USAGE and "nowhere.json: No such file or directory" in result.stderr
    (tmp_path / "notes.txt").write_text("?")
    _, report = merge(*named, tmp_path / "notes.txt")
    assert report["unused_files"] == [{"file": "notes.txt", "text": "line 1, column 1: not valid JSON"}]


def test_the_older_of_two_dumps_of_one_rank_is_left_out(tmp_path):
    job, _ = started_job()
    job.write(tmp_path / "first")
    job.dump_times = {rank: 60 * SECOND for rank in range(job.world_size)}
    job.write(tmp_path / "second")
    for order in (("first", "second"), ("second", "first")):
        _, report = merge(*(tmp_path / name for name in order), "-o", tmp_path)
        assert len(report["unused_files"]) == job.world_size and report["missing_ranks"] == []


def test_wrong_values_are_cut_between_characters(tmp_path):
    job = Job(5)
    job.collective(at(MS, range(5)))
    job.write(tmp_path)
    for rank, value in enumerate(("ä" * 40, "a" + "ä" * 40, "€" * 40, "a" + "€" * 40, "aa" + "€" * 40)):
        file_of(tmp_path, rank).write_text(json.dumps(job.document(rank) | {"pid": value}, ensure_ascii=False))
    result = tool.trace("merge", tmp_path, "--json")
    assert result.returncode == USAGE
    assert result.stderr.count(': pid: expected a whole number, found "') == 5
    file_of(tmp_path, 0).write_text(json.dumps(job.document(0)))
    code, report = merge(tmp_path)
    assert code == FINDINGS and len(report["unused_files"]) == 4
    assert all("\ufffd" not in item["text"] for item in report["unused_files"])


def test_dumps_of_an_older_run_are_left_out(tmp_path):
    """Groups of the older run have the same ids but other ranks."""
    old = Job(4, nonce="01d")
    old.group("pair", (1, 3))
    old.collective(at(MS, (1, 3)), "pair")
    old.write(tmp_path, without=(0, 1, 2))
    new = Job(4)
    new.group("pair", (0, 1))
    new.collective(at(5 * MS, (0, 1)), "pair")
    new.write(tmp_path, without=(3,))
    code, report = merge(tmp_path)
    assert report["unused_files"] == [
        {"file": "dsc_trace_rank_3.json", "text": "job: this dump is of an older job 01d of 4 ranks; the latest dump is of job 5eed of 4 ranks"}
    ]
    assert (code, report["missing_ranks"], len(report["findings"])) == (FINDINGS, [3], 1)


def test_other_files_are_ignored(tmp_path):
    job, _ = started_job()
    job.write(tmp_path)
    for name in ("dsc_trace_rank_.json", "dsc_trace_rank_1x.json", "dsc_trace_rank_9.json.tmp", "notes.txt"):
        (tmp_path / name).write_text("?")
    code, report = merge(tmp_path)
    assert (code, report["unused_files"]) == (FINE, [])


def test_wrong_usage(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    file_of(tmp_path / "bad", 0).write_text("{")
    for args, said in (
        ((), "expected a subcommand: merge, summary, iteration\nTry 'dscctl trace --help'.\n"),
        (("marge", tmp_path), "unknown command or option 'marge'; did you mean 'merge'?\nTry 'dscctl trace --help'.\n"),
        (("merge", tmp_path, "--jsen"), "unknown command or option '--jsen'; did you mean '--json'?\nTry 'dscctl trace merge --help'.\n"),
        (("merge", tmp_path, "elsewhere"), "elsewhere: No such file or directory\n"),
        (("merge",), "PATH is required\nTry 'dscctl trace merge --help'.\n"),
        (("summary",), "PATH is required\nTry 'dscctl trace summary --help'.\n"),
        (("merge", tmp_path / "nowhere"), "No such file or directory"),
        (("merge", tmp_path / "empty"), "no usable dsc_trace_rank_<rank>.json in this directory"),
        (("merge", tmp_path / "bad"), "dsc_trace_rank_0.json: line 1, column 2: the JSON text ends too early"),
        (("merge", tmp_path, "--late-after", "-1"), "--late-after: expected seconds from 0 to 1000000000, such as 0.5, got '-1'\n"),
        (("merge", tmp_path, "--late-after", "soon"), "such as 0.5, got 'soon'\n"),
        (("merge", tmp_path, "--late-after", "nan"), "such as 0.5, got 'nan'\n"),
        (("merge", tmp_path, "--late-after", "1e10"), "such as 0.5, got '1e10'\n"),
        (("summary", tmp_path, "--rank", "-1"), "--rank: expected a rank number, 0 or more, got '-1'\n"),
        (("summary", tmp_path, "--rank", "x"), "--rank: expected a rank number, 0 or more, got 'x'\n"),
    ):
        result = tool.trace(*args)
        assert (result.returncode, result.stdout) == (USAGE, ""), args
        assert result.stderr.startswith("dscctl: ") and said in result.stderr


def test_out_folder(tmp_path):
    job, _ = started_job()
    job.write(tmp_path / "dumps")
    result = tool.trace("merge", tmp_path / "dumps", "-o", tmp_path / "a" / "b")
    assert result.returncode == FINE and "no rank delays other ranks" in result.stdout
    assert sorted(os.listdir(tmp_path / "a" / "b")) == ["timeline.html", "trace.perfetto.json"]
    odd = tmp_path / os.fsdecode(b"odd \xff")
    assert tool.trace("merge", tmp_path / "dumps", "-o", odd, "--json", errors="replace").returncode == FINE
    (tmp_path / "file").write_text("")
    result = tool.trace("merge", tmp_path / "dumps", "-o", tmp_path / "file" / "below")
    assert result.returncode == USAGE and result.stderr.startswith("dscctl: ")


# ---- the report as text ------------------------------------------------------------------------------------------


def on_terminal(*args, **environment):
    """Returns what dscctl writes if its output is a terminal."""
    above, below = pty.openpty()
    child = subprocess.Popen([tool.DSCCTL, "trace", *args], stdout=below, env=os.environ | {"TERM": "xterm"} | environment)
    os.close(below)
    seen = b""
    try:
        while data := os.read(above, 65536):
            seen += data
    except OSError:  # the other end is closed
        pass
    os.close(above)
    child.wait(timeout=60)
    return seen.decode()


def test_colors_on_terminals_only(tmp_path):
    job, time = started_job()
    job.collective(at(time, (0, 1, 3)), ended=time + SECOND)
    folder = str(job.write(tmp_path))
    assert "\033[" not in tool.trace("merge", folder).stdout
    assert "\033[1;31mLATE" in on_terminal("merge", folder)
    assert "\033[" not in on_terminal("merge", folder, NO_COLOR="1")
    assert "\033[" not in on_terminal("merge", folder, TERM="dumb")


def test_long_lists_are_cut(tmp_path):
    job, time = started_job(0)
    for _ in range(25):
        time = job.collective(at(time), per_rank={1: {"dtype": "f64"}}) + MS
    job.write(tmp_path)
    short = tool.trace("merge", tmp_path).stdout
    assert short.count("does not match") == 10 and "and 15 more MISMATCH" in short
    assert tool.trace("merge", tmp_path, "--all").stdout.count("does not match") == 25


def test_names_cannot_break_the_page(tmp_path):
    job = Job(2)
    job.group("</script><b>", (0, 1))
    job.collective({0: MS, 1: MS}, "</script><b>")
    folder = job.write(tmp_path)
    assert merge(folder)[0] == FINE
    page = (folder / "timeline.html").read_text()
    assert page.count("</script>") == 2 and "<b>" not in page.split("<script")[1]


# ---- Perfetto ----------------------------------------------------------------------------------------------------


def test_perfetto(tmp_path):
    job, _ = training(4, 5)
    merge(job.write(tmp_path))
    events = json.loads((tmp_path / "trace.perfetto.json").read_text())["traceEvents"]
    names = {(e["name"], e["pid"], e.get("tid")): e["args"] for e in events if e["ph"] == "M"}
    assert [names["process_name", rank, None]["name"] for rank in ALL] == [f"rank {rank}" for rank in ALL]
    tracks = {(pid, tid): args["name"] for (name, pid, tid), args in names.items() if name == "thread_name"}
    assert {name for (pid, _), name in tracks.items() if pid == 3} == {"world", "pair 1", "messages"}

    slices = [e for e in events if e["ph"] == "X"]
    operations = [e for e in slices if e["cat"] == "operation"]
    assert len(operations) == sum(map(len, job.entries.values()))
    first = next(e for e in operations if e["pid"] == 2 and e["name"] == "all_reduce")
    source = next(e for e in job.entries[2] if e["profiling_name"] == "dsc:all_reduce")
    duration = source["time_discovered_completed_ns"] - source["time_discovered_started_ns"]
    assert abs(first["dur"] * 1000 - duration) < 1
    assert first["args"] | {"number": 1, "group": "world", "dtype": "f32", "reduce_op": "sum", "result": "DSC_OK"} == first["args"]
    for track in tracks:
        assert_nested([e for e in slices if (e["pid"], e["tid"]) == track])

    arrows = [e for e in events if e["ph"] in "sf"]
    assert len(arrows) == 2 * 2 * 5 and all(e["bp"] == "e" for e in arrows if e["ph"] == "f")
    for arrow in arrows:
        assert any(covers(e, arrow) for e in operations)
    begins = [e["id"] for e in events if e["ph"] == "b"]
    assert len(begins) == len(set(begins)) and begins == [e["id"] for e in events if e["ph"] == "e"]


def covers(event, arrow):
    same = (event["pid"], event["tid"]) == (arrow["pid"], arrow["tid"])
    return same and event["ts"] - 1e-3 <= arrow["ts"] <= event["ts"] + event["dur"] + 1e-3


def assert_nested(slices):
    """Slices of one track contain each other or do not overlap."""
    open_until = []
    for event in sorted(slices, key=lambda e: (e["ts"], -e["dur"])):
        while open_until and open_until[-1] <= event["ts"] + 1e-3:
            open_until.pop()
        end = event["ts"] + event["dur"]
        assert not open_until or end <= open_until[-1] + 1e-3
        open_until.append(end)


def test_messages_that_overlap_get_tracks_of_their_own(tmp_path):
    job = Job(3)
    for peer in (1, 2):
        job.message(0, peer, MS, 2 * MS, move_ns=5 * MS)
    merge(job.write(tmp_path))
    events = json.loads((tmp_path / "trace.perfetto.json").read_text())["traceEvents"]
    names = [e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 0]
    assert names == ["world", "messages", "messages 2"]


def test_failed_operations_are_shown_as_failed(tmp_path):
    job, time = started_job(1)
    job.collective(at(time, (0, 1, 3)), ended=time + MS)
    merge(job.write(tmp_path))
    events = json.loads((tmp_path / "trace.perfetto.json").read_text())["traceEvents"]
    states = [(e["name"], e["args"]["state"]) for e in events if e.get("cat") == "operation" and e["pid"] == 0]
    assert states == [("broadcast", "completed"), ("all_reduce", "failed")]


def test_times_are_those_of_the_dumps(tmp_path):
    job, _ = started_job()
    merge(job.write(tmp_path))
    text = (tmp_path / "trace.perfetto.json").read_text()
    base = json.loads(text)["otherData"]["base_unix_ns"]
    assert base == min(e["time_created_ns"] for e in job.entries[0]) and base > BASE_NS
    assert re.search(r'"ts":\d+\.\d+', text)


if __name__ == "__main__":
    tool.main(__file__)
