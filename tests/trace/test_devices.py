"""dscctl trace merge with operations on devices, whose ends are not always observed."""

import json

import tool
from dumps import MS, SECOND, Job, file_of
from tool import FINDINGS, FINE, merge, texts

ALL = range(4)


def at(time, ranks=ALL):
    return dict.fromkeys(ranks, time)


def started_job(operations=3, **how):
    job = Job(4)
    for number in range(operations):
        job.on_devices(at((1 + number) * MS), **how)
    return job, (1 + operations) * MS


def test_nobody_is_blamed_for_ends_that_nobody_knows(tmp_path):
    job, time = started_job()
    job.on_devices(at(time), state="captured")
    job.dump_times = at(time + 10 * SECOND)
    code, report = merge(job.write(tmp_path))
    assert (code, report["findings"], report["lateness"]) == (FINE, [], report["lateness"])
    assert all(row["operations"] == 0 for row in report["lateness"])
    page = (tmp_path / "timeline.html").read_text(encoding="utf-8")
    assert '"unknown_end":"launched"' in page and '"unknown_end":"captured"' in page
    slices = [event for event in json.loads((tmp_path / "trace.perfetto.json").read_text())["traceEvents"] if event["ph"] == "X"]
    assert {(event["dur"], event["args"]["state"]) for event in slices} == {
        (0, f"{state}, end unknown") for state in ("launched", "captured")
    }


def test_nor_a_rank_without_a_dump_or_one_that_left(tmp_path):
    job, time = started_job()
    job.dump_times = at(time + 10 * SECOND)
    job.write(tmp_path, without=(2,))
    document = job.document(3)
    document |= {"pg_config": {}, "pg_status": {}, "entries": []}
    file_of(tmp_path, 3).write_text(json.dumps(document))
    code, report = merge(tmp_path)
    assert code == FINDINGS and [finding["kind"] for finding in report["findings"]] == ["NO DUMP"]


def test_nor_a_rank_whose_message_was_overwritten(tmp_path):
    """A receiver is reported as late only if the sender is known to wait."""
    for known in ((), (0,)):
        job = Job(2)
        job.message_on_devices(0, 1, {0: MS}, known)
        job.dump_times = at(100 * SECOND, (0, 1))
        code, report = merge(job.write(tmp_path))
        assert (code, len(texts(report, "LATE"))) == ((FINDINGS, 1) if known else (FINE, 0)), report["findings"]


def test_the_rank_that_has_not_called(tmp_path):
    job, time = started_job()
    for step in range(2):  # the second operation hangs because of the first
        job.on_devices(at(time + step * MS, (0, 1, 3)))
    job.dump_times = at(time + 4200 * MS)
    code, report = merge(job.write(tmp_path))
    assert code == FINDINGS
    assert [finding["text"] for finding in report["findings"]] == [
        'rank 2 has not called collective 4 (all_reduce) of group "world (devices)"; last called collective 3 (all_reduce); '
        "no other operation is in progress; ranks 0, 1, 3 called it 4.20 s earlier"
    ]
    (finding,) = report["findings"]
    assert (finding["ranks"], finding["number"], finding["device"]) == ([2], 4, True)


def test_a_rank_that_waits_on_the_host_instead(tmp_path):
    """Numbers of operations on the host and on devices are not confused."""
    job, time = started_job()
    job.collective({2: time}, name="barrier", count=None)
    job.on_devices(at(time, (0, 1, 3)))
    job.dump_times = at(time + 2 * SECOND)
    _, report = merge(job.write(tmp_path))
    late = texts(report, "LATE")
    assert any("rank 2 has not called collective 4 (all_reduce) of group \"world (devices)\"" in text and
               'now in collective 1 (barrier) of group "world" for 2.00 s' in text for text in late), late
    assert any("ranks 0, 1, 3 have not called collective 1 (barrier) of group" in text for text in late), late
    assert texts(report, "DEADLOCK") == [] and texts(report, "MISMATCH") == []


def test_a_time_out(tmp_path):
    job, time = started_job(ends=at(4 * MS))
    job.on_devices(at(time, (0, 1, 3)), ends=at(time + 500 * MS, (0, 1, 3)), result="DSC_ERR_TIMEOUT")
    job.dump_times = at(time + 501 * MS)
    _, report = merge(job.write(tmp_path))
    (late,) = texts(report, "LATE")
    assert late.startswith('rank 2 has not called collective 4 (all_reduce) of group "world (devices)"')
    assert late.endswith("ranks 0, 1, 3 waited 500 ms until the time-out")
    title = 'collective 4 (all_reduce) of group "world (devices)"'
    assert texts(report, "FAILED") == [f"{title} failed: DSC_ERR_TIMEOUT on ranks 0, 1, 3"]


def test_who_comes_after_a_time_out(tmp_path):
    """On one host the rank is reported as late. The clock of another host cannot be compared."""
    for hosts in (1, 2):
        job, time = started_job(ends=at(4 * MS))
        calls = at(time, (0, 1)) | at(time + 2 * SECOND, (2, 3))
        job.on_devices(calls, ends={rank: call + SECOND for rank, call in calls.items()}, result="DSC_ERR_TIMEOUT")
        job.dump_times = at(time + 4 * SECOND)
        job.ahead = {} if hosts == 1 else at(0, (2, 3))
        _, report = merge(job.write(tmp_path))
        late = texts(report, "LATE")
        assert len(late) == (hosts == 1) and all("called, but 1.00 s late" in text for text in late), late
        assert len(texts(report, "FAILED")) == 1


def test_clocks_of_other_hosts_are_not_compared(tmp_path):
    """Whatever the clock of another host shows, a rank there that has not called is named, with what it did
    meanwhile."""
    told = set()
    for ahead in (-100 * SECOND, 0, 100 * SECOND):
        job, time = started_job(ends=at(4 * MS))
        job.collective({3: time}, job.group("own", (2, 3)), name="barrier", count=None)
        job.on_devices(at(time, (0, 1, 2)), ends=at(time + SECOND, (0, 1, 2)), result="DSC_ERR_TIMEOUT")
        job.dump_times = at(time + SECOND)
        job.ahead = at(ahead, (2, 3))
        _, report = merge(job.write(tmp_path))
        told.update(text for text in texts(report, "LATE") if text.startswith("rank 3 "))
    (late,) = told
    assert late.startswith('rank 3 has not called collective 4 (all_reduce) of group "world (devices)"')
    assert late.endswith('now in collective 1 (barrier) of group "own" for 1.00 s; '
                         "ranks 0-2 waited 1.00 s until the time-out")


def test_only_known_waits_make_a_deadlock(tmp_path):
    for known in (False, True):
        job = Job(2)
        for group in ("left", "right"):
            job.group(group, (0, 1))
        job.on_devices({0: MS}, "left", ends={0: None} if known else None)
        job.on_devices({1: MS}, "right", ends={1: None} if known else None)
        job.dump_times = at(3 * SECOND, (0, 1))
        _, report = merge(job.write(tmp_path))
        assert len(texts(report, "LATE")) == 2 and len(texts(report, "DEADLOCK")) == int(known)


def test_a_mismatch(tmp_path):
    job, time = started_job()
    job.on_devices({0: time, 1: time, 3: time})
    job.numbers[job.devices_of("world")] -= 1
    job.on_devices({2: time}, count=512, ends={2: time + 1000}, result="DSC_ERR_MISMATCH")
    _, report = merge(job.write(tmp_path))
    title = 'collective 4 (all_reduce) of group "world (devices)"'
    assert texts(report, "MISMATCH") == [f"{title} does not match: 512 elements on rank 2; 1,024 elements on ranks 0, 1, 3"]


def test_what_a_device_took_is_in_no_summary(tmp_path):
    job, _ = started_job(ends=at(4 * MS))
    result = tool.trace("summary", job.write(tmp_path), "--rank", "0", "--json")
    assert json.loads(result.stdout)["rows"] == []


if __name__ == "__main__":
    tool.main(__file__)
