"""Trees of arrays: order, structure, averages, paths in errors. Also names and time-outs that other libraries use."""

from datetime import timedelta
from typing import NamedTuple

import numpy as np
import pytest

import libdsc as dsc
from libdsc import _trees
from test_ranks import ranks


class Layer(NamedTuple):
    weight: object
    bias: object


def read_only(values):
    x = np.array(values, np.float32)
    x.flags.writeable = False
    return x


def tree(value):
    layer = Layer(np.full((2, 2), value), read_only([value, 2 * value]))
    return {"head": [np.full(1, value, np.float32), None], "body": {"layer1": (layer,)}}


def test_order_is_that_of_jax():
    paths = [path for path, _ in _trees.flatten(tree(1.0), "t")]
    assert paths == ["t['body']['layer1'][0][0]", "t['body']['layer1'][0][1]", "t['head'][0]"]


def averages(world):
    value, found = 2.0 * world.rank, []
    with dsc.BucketReducer(world, tree_of_writable()) as reducer:
        for average in (lambda t: dsc.average_gradients(world, t), reducer):
            given = tree(value)
            got = average(given)
            layer = got["body"]["layer1"][0]
            assert type(layer) is Layer and list(got) == ["head", "body"] and got["head"][1] is None
            assert layer.weight is given["body"]["layer1"][0].weight and got["head"][0] is given["head"][0]
            assert layer.bias is not given["body"]["layer1"][0].bias and layer.bias.flags.writeable
            found.append([layer.weight.tolist(), layer.bias.tolist(), got["head"][0].tolist()])
    return found


def broadcasts(world):
    """Writable arrays are written, other arrays are replaced by new ones. The root gets its own tree back."""
    given = tree(float(world.rank))
    got = world.broadcast_tree(given, 1)
    layer, own = got["body"]["layer1"][0], given["body"]["layer1"][0]
    assert type(layer) is Layer and got["head"][1] is None and layer.weight is own.weight
    assert (layer.bias is own.bias) == (world.rank == 1)
    with pytest.raises(dsc.MismatchError, match=r"tree\['w'\]\[0\]"):
        dsc.broadcast_tree(world, {"w": [np.zeros(3 + (world.rank == 0), np.float32)]})
    with pytest.raises(dsc.InvalidArgError, match="root is 7, expected 0 to 2"):
        world.broadcast_coalesced([np.zeros(1)], 7)
    assert world.error() is None
    return [layer.weight.tolist(), layer.bias.tolist(), got["head"][0].tolist()]


def test_a_tree_is_broadcast():
    assert ranks(3, broadcasts) == [[[[1, 1], [1, 1]], [1, 2], [1]]] * 3


def tree_of_writable():
    layer = Layer(np.zeros((2, 2)), np.zeros(2, np.float32))
    return {"head": [np.zeros(1, np.float32)], "body": {"layer1": [layer]}}


def test_averages():
    mean = 2.0  # the mean of 0, 2 and 4
    expected = [[[mean, mean], [mean, mean]], [mean, 2 * mean], [mean]]
    assert ranks(3, averages) == [[expected, expected]] * 3


def test_errors_name_the_path(world):
    good = {"layer1": [np.ones(2)]}
    for call, kind, text in (
        (lambda: dsc.average_gradients(world, {"layer1": [3.0]}), TypeError, r"^grads\['layer1'\]\[0\] is a float"),
        (lambda: dsc.average_gradients(world, {"a": np.ones(2, int)}), TypeError, r"^grads\['a'\] has element type i64"),
        (lambda: dsc.average_gradients(world, good["layer1"] * 2), ValueError, r"^grads\[1\] has the same memory as grads"),
        (lambda: dsc.average_gradients(world, {1: good, "a": good}), TypeError, "^grads has keys that cannot be sorted"),
        (lambda: dsc.BucketReducer(world, {"layer1": ["x"]}), TypeError, r"^params\['layer1'\]\[0\] is a str"),
    ):
        with pytest.raises(kind, match=text):
            call()
    with dsc.BucketReducer(world, good) as reducer:
        for grads, text in (
            ({}, r"^grads\['layer1'\]\[0\] is missing"),
            (good | {"b": np.ones(1)}, r"^grads\['b'\] has no counterpart in params"),
            ({"layer1": [np.ones(3)]}, r"^grads\['layer1'\]\[0\] has 3 elements of f64; parameter 0 has 2"),
        ):
            with pytest.raises(ValueError, match=text):
                reducer(grads)
        assert reducer(good)["layer1"][0].tolist() == [1, 1]
        reducer.begin()
        with pytest.raises(dsc.StateError, match=r"params\['layer1'\]\[0\]"):
            reducer.finish()


def test_timedelta_is_a_timeout(world):
    second = timedelta(seconds=1)
    assert world.barrier(async_op=True).wait(second)
    world.monitored_barrier(second)
    world.progress(timedelta(0))
    world.split(0, timeout=timedelta(minutes=1)).close()
    world.set_timeout(timedelta(minutes=5))
    with pytest.raises(ValueError, match=r"timeout is -1 day, 23:59:59; expected a number of seconds above 0"):
        world.set_timeout(-second)


def starts_again(rank):
    """Joins again, as programs do in several places. Arguments that are not given are not compared."""
    given = {"timeout": timedelta(seconds=40), "stall_timeout": 20, "rank": rank, "world_size": 2, "progress_thread": False}
    world = dsc.init_distributed("host", **given)
    again = [{}, {"timeout": 40}, {"backend": "host", "world_size": 2}, {"dist_backend": "auto"}, {"progress_thread": False}]
    assert all(dsc.init_distributed(**given) is world for given in again)
    for given, name in (({"timeout": 41}, "timeout"), ({"world_size": 3}, "world_size"), ({"job_id": "x"}, "job_id")):
        with pytest.raises(dsc.StateError, match=f"the world exists already, with another {name}; finalize it first"):
            dsc.init_distributed(**given)
    group = world.split(0, key=-rank)
    with pytest.raises(dsc.InvalidArgError, match=r"root is 2, expected 0 to 1$"):
        group.broadcast(np.zeros(1), 2)
    alone = world.split(rank)
    said = []
    for root in (1, 0):
        try:
            alone.broadcast(np.zeros(1), root)
        except dsc.InvalidArgError as error:
            said.append(str(error).partition("; ")[2])
    dsc.finalize()
    return said


def test_a_second_start_and_ranks_of_the_world_in_a_group():
    translates = "group_rank() translates ranks of the world: rank 1 is "
    assert dsc.spawn(starts_again, 2, timeout=60) == [[translates + "not in this group"], [translates + "rank 0 here"]]


def test_deepspeeds_config_and_verbose(world, capfd):
    for config in (None, {"comms_logger": {"enabled": True}}, "ds_config.json"):
        assert dsc.init_distributed(config=config, verbose=True) is world
    said = capfd.readouterr()
    assert said.out.count("libdsc: joined <libdsc.Communicator 'world', rank 0 of 1>, backend host") == 3 and said.err == ""
    with pytest.raises(TypeError, match="config is a int; expected a configuration of DeepSpeed"):
        dsc.init_distributed(config=3)


def test_names_of_deepspeed(world, caplog):
    same = {"dist_backend": "auto", "auto_mpi_discovery": True, "dist_init_required": True}
    with caplog.at_level("INFO", logger="libdsc"):
        assert dsc.init_distributed(**same, verbose=True) is world
    assert "rank 0 of 1" in caplog.text
    for names, text in (
        ({"dist_backend": "nccl", "backend": "gloo"}, "backend is 'gloo' and dist_backend is 'nccl'"),
        ({"distributed_port": 1, "port": 2}, "port is 2 and distributed_port is 1"),
        ({"dist_init_required": True, "require_existing": True}, "require_existing and dist_init_required"),
        ({"auto_mpi_discovery": False, "sources": dsc.Source.PMIX}, "auto_mpi_discovery is False, but sources"),
        ({"dist_backend": "nccll"}, 'did you mean "device"'),
    ):
        with pytest.raises(ValueError, match=text):
            dsc.init_distributed(**names)


def launched(rank, names):
    """Runs under the variables of Slurm, which auto_mpi_discovery=False ignores."""
    import os

    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        del os.environ[name]
    os.environ.update(SLURM_PROCID="0", SLURM_NTASKS="1", SLURM_LOCALID="0", SLURM_JOB_ID="7", SLURM_STEP_ID="0")
    os.environ.update(SLURM_STEP_NUM_TASKS="1")
    world = dsc.init_distributed(**names)
    source = world.source
    dsc.finalize()
    return source


def test_discovery_can_be_turned_off():
    found = [dsc.spawn(launched, 1, ({"auto_mpi_discovery": on},), timeout=60)[0] for on in (True, False)]
    assert found == ["Slurm", "one process"]


def test_operations_are_nearly_guessed(world):
    for op, meant in (("averge", "avg"), ("mean", "avg"), ("average", "avg"), ("summ", "sum"), ("maximum", "max")):
        with pytest.raises(ValueError, match=f'^op is "{op}"; expected one of .*; did you mean "{meant}"'):
            world.all_reduce(np.ones(1), op)
    for op in (3, [1], np.add):
        with pytest.raises(TypeError, match="^op is .*expected the name of an operation"):
            world.all_reduce(np.ones(1), op)


def test_everything_says_what_it_is(world):
    assert dsc.__version__ == "{}.{}.{}".format(*dsc.version())
    with dsc.BucketReducer(world, [np.zeros(3)]) as reducer:
        assert repr(reducer) == "<libdsc.BucketReducer of 1 parameters on 'world'>"
    assert repr(reducer).endswith(", closed>")
    with world.batch(async_op=True) as batch:
        assert repr(batch) == "<libdsc.Batch on 'world', open>"
    assert "<libdsc.Work batch_end" in repr(batch)
    batch.work.wait()


def test_a_schedule_of_the_whole_pipeline():
    whole = dsc.PipeSchedule("1f1b", 2, micro_batches=4)
    assert not hasattr(whole, "steps") and not hasattr(whole, "buffers") and whole.at_stage(0).steps > 0
    with pytest.raises(dsc.StateError, match=r"covers the whole pipeline; call at_stage\(i\) first"):
        whole.steps
    with pytest.raises(TypeError, match=r"the whole pipeline, call PipeSchedule\('1f1b', 2, micro_batches=4\)"):
        dsc.PipeSchedule("1f1b", 2, 4)
