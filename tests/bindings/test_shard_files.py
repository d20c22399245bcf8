"""Damaged or forged checkpoints are refused quickly with an error that names the file.

If one rank cannot write, the earlier save stays intact.
"""

import errno
import json
import os
import pathlib
import re
import resource
import signal
import struct
import tempfile

import numpy as np
import pytest

import libdsc as dsc
from reducer_ranks import everywhere

FILE = "shard-00000-of-00001.safetensors"


def parts(path):
    """Returns the header of a file, the layout in it, and its data."""
    found = path.read_bytes()
    (size,) = struct.unpack("<Q", found[:8])
    header = json.loads(found[8 : 8 + size])
    return header, json.loads(header["__metadata__"]["libdsc"]), found[8 + size :]


def put(path, header, layout, data):
    header["__metadata__"]["libdsc"] = json.dumps(layout)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.fixture
def saved(world, tmp_path):
    """Returns shards and the only file of their checkpoint."""
    with dsc.Sharded(world, [np.arange(100, dtype=np.float32), np.ones(7, np.float32)]) as sharded:
        sharded.save(tmp_path, {"m": [np.full(shard.count, 3, np.float32) for shard in sharded.shards]})
        yield sharded, tmp_path / FILE


def refused(sharded, path, message):
    before = [shard.params.copy() for shard in sharded.shards]
    with pytest.raises(ValueError, match=message) as told:
        sharded.load(path.parent)
    assert str(path) in str(told.value) or str(path.parent) in str(told.value)
    assert all((a == b.params).all() for a, b in zip(before, sharded.shards))


def entry(**changes):
    def change(header, layout):
        header["params.0"].update(changes)

    return change


def of_layout(**changes):
    return lambda header, layout: layout.update(changes)


def of_rules(**changes):
    return lambda header, layout: layout["rules"].update(changes)


HEADERS = {
    "bytes before the data": (entry(data_offsets=[-400, 0]), "expected an array named NAME.BUCKET"),
    "offsets that are no integers": (entry(data_offsets=[0.5, 448.5]), "expected an array named NAME.BUCKET"),
    "one offset": (entry(data_offsets=[0]), "expected an array named NAME.BUCKET"),
    "an end before the begin": (entry(data_offsets=[448, 0]), "expected as many bytes as its elements have"),
    "an unknown type": (entry(dtype="F4"), "expected an array named NAME.BUCKET"),
    "another type of as many bytes": (entry(dtype="I32"), "has params.0 of I32; expected F32"),
    "no object": (lambda header, layout: header.update({"params.0": []}), "expected an array named NAME.BUCKET"),
    "a name without a bucket": (
        lambda header, layout: header.update(zz={"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}),
        "expected an array named NAME.BUCKET",
    ),
    "a bucket that is not there": (
        lambda header, layout: header.update({"m.9": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}),
        "has an unexpected array 'm.9'; expected arrays for 1 buckets only",
    ),
    "the array before missing": (lambda header, layout: header.pop("params.0"), "has m.0 at byte .*; expected byte 0"),
    "the last array missing": (lambda header, layout: header.pop("m.0"), "has .* bytes of data; expected"),
    "one array in the bytes of another": (
        lambda header, layout: header["m.0"].update(data_offsets=header["params.0"]["data_offsets"]),
        "has m.0 at byte 0 of its data",
    ),
    "very many shards": (of_layout(shards=3_000_000_000), "contains shard 0 of 3000000000; expected the file name"),
    "less than one shard": (of_layout(shards=-1), "has shard 0 of -1; expected two integers"),
    "another format": (of_layout(format=99), "has format 99; expected"),
    "no list of shapes": (of_layout(shapes="x"), "its layout needs 'names', 'shapes' and 'dtypes' .lists."),
    "no rules": (of_layout(rules=None), "its layout needs 'names', 'shapes' and 'dtypes' .lists."),
    "an unknown layout": (of_rules(layout="x"), "has wrong rules"),
    "an unknown rule": (of_rules(colour=1), "has wrong rules"),
    "units that are not there": (of_rules(units=[0, 10**18]), "has wrong rules"),
    "a huge alignment": (of_rules(alignment=2**62), "params.0 with .* elements; expected|has wrong rules"),
    "other buckets": (of_rules(bucket_elements=1), "has no array .*; expected one for each of 2 buckets"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_that_were_made_up(saved, name):
    change, message = HEADERS[name]
    header, layout, data = parts(saved[1])
    change(header, layout)
    put(saved[1], header, layout, data)
    refused(*saved, message)


def without(name):
    def change(header, layout, data):
        begin, end = header.pop(name)["data_offsets"]
        for one in header.values():
            if "data_offsets" in one and one["data_offsets"][0] >= end:
                one["data_offsets"] = [at - (end - begin) for at in one["data_offsets"]]
        return data[:begin] + data[end:]

    return change


def test_a_header_without_the_parameters_loads_nothing(saved):
    header, layout, data = parts(saved[1])
    data = without("params.0")(header, layout, data)
    put(saved[1], header, layout, data)
    refused(*saved, "has no array params.0; expected one for each of 1 buckets")


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, 0])
def test_the_size_of_the_header_is_not_trusted(saved, size):
    found = saved[1].read_bytes()
    saved[1].write_bytes(struct.pack("<Q", size) + found[8:])
    refused(*saved, "is not a shard of libdsc")


def test_a_header_without_end(saved):
    text = b"[" * 200_000
    saved[1].write_bytes(struct.pack("<Q", len(text)) + text)
    refused(*saved, "is not a shard of libdsc: RecursionError")


def test_a_file_that_never_answers(saved):
    os.unlink(saved[1])
    os.mkfifo(saved[1])
    refused(*saved, "is not a regular file")
    os.unlink(saved[1])
    saved[1].write_bytes(b"")
    refused(*saved, "has fewer than 8 bytes")


def test_names_without_a_number(saved):
    other = saved[1].with_name("shard-x-of-00001.safetensors")
    saved[1].rename(other)
    refused(saved[0], other, "contains shard 0 of 1; expected the file name " + FILE)


def save_in_another_order(world):
    """A file contains its shard's number, so a renamed file is noticed."""
    with tempfile.TemporaryDirectory() as own, dsc.Sharded(world, [np.ones(100, np.float32)]) as sharded:
        folder = pathlib.Path(world.broadcast_object(own))
        sharded.save(folder)
        files = sorted(folder.iterdir())
        assert [file.name for file in files] == [f"shard-{r:05}-of-{world.size:05}.safetensors" for r in range(world.size)]
        world.barrier()
        if world.rank == 0 and world.size > 1:
            files[0].rename(folder / "first")
            files[1].rename(files[0])
            (folder / "first").rename(files[1])
        world.barrier()
        if world.size > 1:
            with pytest.raises(ValueError, match="contains shard 1 of .*; expected the file name shard-00001-of-"):
                sharded.load(folder)
        world.barrier()


def limit_files(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def save_without_room(world):
    """If one rank cannot write its file, all ranks raise and the earlier save stays intact."""
    last = world.size - 1
    with tempfile.TemporaryDirectory() as own, dsc.Sharded(world, [np.zeros(50_000, np.float32)]) as sharded:
        folder = world.broadcast_object(own)
        sharded.save(folder)
        before = sorted(os.listdir(folder))
        for shard in sharded.shards:
            shard.params[...] = 1
        if world.rank == last:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            limit_files(10_000)
        with pytest.raises(dsc.SystemError) as told:
            sharded.save(folder)
        limit_files(resource.RLIM_INFINITY)
        path = f"{folder}/shard-{last:05}-of-{world.size:05}.part"
        assert re.fullmatch(
            rf"save: rank {last} cannot write the checkpoint, so all ranks stop: "
            rf"\[Errno {errno.EFBIG}\] File too large; the file needs \d+ bytes: '{path}'",
            str(told.value),
        )
        assert (told.value.ranks, told.value.errno) == ((last,), errno.EFBIG)
        world.barrier()
        assert sorted(os.listdir(folder)) == before
        sharded.load(folder)
        with sharded.unit(0):
            assert not sharded.param_view(0).any()
        with pytest.raises((TypeError, dsc.InvalidArgError), match="PathLike"):
            sharded.save(5 if world.rank == last else folder)
        if world.size > 1:  # names that differ by rank, as if they contained the time
            with pytest.raises(dsc.InvalidArgError, match="has folder .*expected .* as on rank 0"):
                sharded.save(f"{folder}-{world.rank}")
        assert sorted(os.listdir(folder)) == before
        world.barrier()


def rename_in_vain(world):
    """A file that cannot be renamed is an error on all ranks."""
    last = world.size - 1
    with tempfile.TemporaryDirectory() as own, dsc.Sharded(world, [np.zeros(100, np.float32)]) as sharded:
        folder = pathlib.Path(world.broadcast_object(own))
        if world.rank == last:
            (folder / f"shard-{last:05}-of-{world.size:05}.safetensors").mkdir()
        with pytest.raises(dsc.SystemError, match=f"rank {last} .*irectory") as told:
            sharded.save(folder)
        assert told.value.errno == errno.EISDIR
        world.barrier()
        assert not list(folder.glob("*.part"))
        world.barrier()


test_save_in_another_order = everywhere(save_in_another_order)
test_save_without_room = everywhere(save_without_room)
test_rename_in_vain = everywhere(rename_in_vain)
