"""The repr() of every public class says what the object is."""

import enum

import numpy as np
import pytest

import libdsc as dsc

PUBLIC = {
    name: kind
    for name in dsc.__all__
    if isinstance(kind := getattr(dsc, name), type) and not issubclass(kind, (Exception, enum.Enum))
}


def schedule():
    return dsc.PipeSchedule("1f1b", stages=2, stage=0, micro_batches=2)


def in_batch(world):
    with world.batch() as batch:
        pass
    return batch


def stats(world):
    world.barrier()
    return world.stats()[0]


def bucket(world):
    seen = []
    with dsc.BucketReducer(world, [np.zeros(3)], hook=lambda bucket: seen.append(bucket)) as reducer:
        reducer([np.ones(3)])
    return seen[0]


def sharded(world):
    return dsc.Sharded(world, [np.zeros(3)])


MAKE = {
    "Bucket": bucket,
    "BucketReducer": lambda w: dsc.BucketReducer(w, [np.zeros(3)]),
    "CausalWork": lambda w: dsc.causal_work(4, 2, 0, 1),
    "Communicator": lambda w: w,
    "FoundSchedule": lambda w: dsc.find_schedule(2, 2),
    "CrossEntropy": lambda w: w.vocab_cross_entropy(np.zeros((1, 2)), np.array([0]))[1],
    "Join": lambda w: dsc.Join(dsc.BucketReducer(w, [np.zeros(3)])),
    "Mesh": lambda w: dsc.Mesh({"dp": 1}),
    "MeshGroup": lambda w: dsc.Mesh({"dp": 2}, "dp").plan()[0],
    "MoePlan": lambda w: w.moe_plan(np.zeros((1, 1), np.int32), 1),
    "ModelParallelSeeds": lambda w: dsc.model_parallel_seeds(1),
    "NonfiniteInputs": lambda w: w.nonfinite(),
    "OpStats": stats,
    "Batch": in_batch,
    "Partition": lambda w: dsc.partition_layers([1, 2], 2),
    "PipeCompute": lambda w: schedule().order(0)[0],
    "Registration": lambda w: w.register(np.zeros(3)),
    "PipeInstruction": lambda w: next(iter(schedule())),
    "PipeSchedule": lambda w: schedule(),
    "PipeSimulation": lambda w: dsc.simulate_pipeline("1f1b", 2, 4),
    "PipeSpan": lambda w: dsc.simulate_pipeline("1f1b", 2, 4, timeline=True).timeline[0],
    "PipeStep": lambda w: schedule().step(0),
    "ReduceOp": lambda w: dsc.premul(0.5),
    "Ring": lambda w: dsc.Ring(w, 8),
    "RngTracker": lambda w: dsc.RngTracker(),
    "Shard": lambda w: sharded(w).shards[0],
    "ShardBucket": lambda w: dsc.plan_shards([3], ["f32"], 2).buckets[0],
    "ShardCopy": lambda w: dsc.shard_copies([3], ["f32"], 2, {}, 1, {}, 0)[0],
    "ShardLayout": lambda w: dsc.plan_shards([3], ["f32"], 2),
    "ShardRange": lambda w: sharded(w).ranges[0],
    "ShardRules": lambda w: dsc.ShardRules(layout="megatron"),
    "Sharded": lambda w: sharded(w),
    "ShardedMemory": lambda w: sharded(w).memory,
    "Store": lambda w: dsc.Store("memory://"),
    "TiedLayers": lambda w: dsc.TiedLayers(w, {"embed": [0]}, {"embed": np.zeros(3)}),
    "Work": lambda w: w.barrier(async_op=True),
}


def test_no_class_is_left_out():
    assert MAKE.keys() == PUBLIC.keys()
    assert [name for name, kind in PUBLIC.items() if kind.__repr__ is object.__repr__] == []


@pytest.mark.parametrize("name", MAKE)
def test_it_names_the_class(world, name):
    made = MAKE[name](world)
    assert type(made).__name__ == name or isinstance(made, PUBLIC[name])
    said = repr(made)
    # a Partition prints as a list, a ReduceOp as the call that creates it
    assert {"Partition": "[0, 1, 2]", "ReduceOp": "libdsc.premul(0.5)"}.get(name, name) in said
    assert " object at 0x" not in said
    if hasattr(made, "close") and made is not world:
        made.close()
        assert "closed" in repr(made)


def test_tied_layers_name_their_keys(world):
    arrays = {"embed": np.zeros(3), "head": [np.zeros(2)]}
    tied = dsc.TiedLayers(world, {"embed": [0], "head": [0]}, arrays)
    assert repr(tied) == "<libdsc.TiedLayers on 'world': 'embed', 'head'>"
    tied.close()
    assert repr(tied) == "<libdsc.TiedLayers on 'world', closed>"
