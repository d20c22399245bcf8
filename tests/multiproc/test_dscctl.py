"""dscctl info: the same facts as text and as JSON, and they are true."""

import json
import os
import subprocess

import launch


def dscctl(*args):
    return subprocess.run([launch.DSCCTL, *args], capture_output=True, text=True, timeout=30)


def test_json_tells_the_truth():
    result = dscctl("info", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    info = json.loads(result.stdout)
    assert info["libdsc"]["version"] == info["libdsc"]["built_against"]
    assert os.path.samefile(info["libdsc"]["path"], os.environ["DSC_LIBRARY"])
    assert info["features"]["host"] is True
    assert all(isinstance(available, bool) for available in info["features"].values())
    for library in info["libraries"].values():
        assert os.path.exists(library["path"]) if library["path"] else library["soname"] in library["reason"]
    host = info["host"]
    assert host["cores_allowed"] == len(os.sched_getaffinity(0))
    assert host["page_bytes"] == os.sysconf("SC_PAGE_SIZE")
    assert host["kernel"] == "Linux " + os.uname().release
    assert host["memfd"] == host["pidfd"] == {"available": True}
    space = os.statvfs("/dev/shm")
    assert host["dev_shm"]["size_bytes"] == space.f_blocks * space.f_frsize


def test_text_has_every_section():
    result = dscctl("info")
    assert result.returncode == 0
    assert [line for line in result.stdout.splitlines() if line[0] != " "] == ["libdsc", "features", "libraries", "host"]


def test_wrong_usage():
    for args in ((), ("infos",), ("info", "--jason")):
        result = dscctl(*args)
        assert (result.returncode, result.stdout) == (2, "") and result.stderr.startswith("dscctl: ")


if __name__ == "__main__":
    launch.main(__file__)
