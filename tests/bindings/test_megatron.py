"""Megatron-LM's names: libdsc's groups must equal those of Megatron-LM, in lists for all ranks and in one real job."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import libdsc as dsc
import libdsc.megatron as mpu
from libdsc._model_parallel import Layout
from test_ranks import ranks

VECTORS = pathlib.Path(__file__).parent.parent / "vectors" / "mg_parallel_state.jsonl"
CASES = [json.loads(line) for line in VECTORS.read_text().splitlines()[1:]]
ARGUMENTS = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "virtual_pipeline_model_parallel_size": "virtual_stages",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
    "expert_tensor_parallel_size": "etp",
    "num_distributed_optimizer_instances": "instances",
    "order": "order",
}
NAMES = {
    "_TENSOR_MODEL_PARALLEL_GROUP": "tp",
    "_PIPELINE_MODEL_PARALLEL_GROUP": "pp",
    "_MODEL_PARALLEL_GROUP": "mp",
    "_EMBEDDING_GROUP": "embd",
    "_POSITION_EMBEDDING_GROUP": "pos_embd",
    "_DATA_PARALLEL_GROUP": "dp",
    "_DATA_PARALLEL_GROUP_WITH_CP": "dp_cp",
    "_CONTEXT_PARALLEL_GROUP": "cp",
    "_TENSOR_AND_DATA_PARALLEL_GROUP": "tp_dp",
    "_TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP": "tp_dp_cp",
    "_TENSOR_AND_CONTEXT_PARALLEL_GROUP": "tp_cp",
    "_EXPERT_MODEL_PARALLEL_GROUP": "ep",
    "_EXPERT_TENSOR_PARALLEL_GROUP": "ep_tp",
    "_EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP": "tp_ep_mp",
    "_EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP": "tp_ep_pp",
    "_EXPERT_DATA_PARALLEL_GROUP": "ep_dp",
    "_INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP": "intra_dist_opt",
}


def test_the_names_are_only_there_when_they_are_imported():
    code = "import sys, libdsc; sys.exit('libdsc.megatron' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def layout_of(case):
    return Layout(case["world"], **{ARGUMENTS[name]: value for name, value in case["kwargs"].items()})


@pytest.mark.parametrize("case", [case for case in CASES if "error" not in case], ids=lambda case: str(case["kwargs"]))
def test_groups_are_megatrons(case):
    layout = layout_of(case)
    for rank, known in enumerate(case["per_rank"]):
        for theirs, ours in NAMES.items():
            assert layout.ranks(ours, rank) == known.get(theirs), (theirs, rank)


@pytest.mark.parametrize("case", [case for case in CASES if "error" in case], ids=lambda case: str(case["kwargs"]))
def test_sizes_that_megatron_refuses(case):
    with pytest.raises(dsc.InvalidArgError):
        layout_of(case)


def test_levels_of_context_parallelism():
    layout = Layout(8, cp=4, cp_levels=(2, 2))
    assert layout.groups["hcp_0"][:2] == [[0, 1], [2, 3]] and layout.groups["hcp_1"][:2] == [[0, 2], [1, 3]]


GROUPS = {
    "tp": mpu.get_tensor_model_parallel_group,
    "dp": mpu.get_data_parallel_group,
    "pp": mpu.get_pipeline_model_parallel_group,
    "mp": mpu.get_model_parallel_group,
    "cp": mpu.get_context_parallel_group,
    "embd": mpu.get_embedding_group,
    "tp_dp": mpu.get_tensor_and_data_parallel_group,
    "ep": mpu.get_expert_model_parallel_group,
    "ep_tp": mpu.get_expert_tensor_parallel_group,
    "ep_dp": mpu.get_expert_data_parallel_group,
    "tp_ep_pp": mpu.get_expert_tensor_model_pipeline_parallel_group,
    "dist_opt": mpu.get_intra_distributed_optimizer_instance_group,
}


def members(world, group):
    """Returns the ranks of a group, asked from the group itself."""
    gathered = np.empty(group.size, np.int64)
    group.all_gather(gathered, np.array([world.rank]))
    return gathered.tolist()


def has_groups(world):
    assert not mpu.model_parallel_is_initialized()
    with pytest.raises(dsc.StateError, match="not initialized; expected initialize_model_parallel"):
        mpu.get_tensor_model_parallel_group()
    mpu.initialize_model_parallel(2, 2)
    with pytest.raises(dsc.StateError, match="already initialized; expected destroy_model_parallel"):
        mpu.initialize_model_parallel()
    groups = {name: members(world, get()) for name, get in GROUPS.items()}
    known = {
        "tp src": mpu.get_tensor_model_parallel_src_rank(),
        "mp src": mpu.get_model_parallel_src_rank(),
        "dp src": mpu.get_data_parallel_src_rank(),
        "stages": [
            mpu.get_pipeline_model_parallel_first_rank(),
            mpu.get_pipeline_model_parallel_prev_rank(),
            mpu.get_pipeline_model_parallel_next_rank(),
            mpu.get_pipeline_model_parallel_last_rank(),
        ],
        "ranks": [
            mpu.get_tensor_model_parallel_rank(),
            mpu.get_data_parallel_rank(),
            mpu.get_pipeline_model_parallel_rank(),
            mpu.get_context_parallel_rank(),
            mpu.get_expert_model_parallel_rank(),
            mpu.get_expert_tensor_parallel_rank(),
            mpu.get_expert_data_parallel_rank(),
            mpu.get_tensor_and_context_parallel_rank(),
            mpu.get_expert_tensor_and_model_parallel_rank(),
        ],
        "sizes": [
            mpu.get_tensor_model_parallel_world_size(),
            mpu.get_data_parallel_world_size(),
            mpu.get_pipeline_model_parallel_world_size(),
            mpu.get_context_parallel_world_size(),
            mpu.get_expert_model_parallel_world_size(),
            mpu.get_expert_tensor_parallel_world_size(),
            mpu.get_expert_data_parallel_world_size(),
            mpu.get_tensor_and_context_parallel_world_size(),
            mpu.get_expert_tensor_and_model_parallel_world_size(),
        ],
        "ends": [mpu.is_pipeline_first_stage(), mpu.is_pipeline_last_stage()],
        "position": mpu.is_rank_in_position_embedding_group(),
    }
    assert mpu.get_data_parallel_group() is mpu.get_data_parallel_group(with_context_parallel=True)
    assert mpu.get_data_parallel_group(True, True) is mpu.get_data_parallel_group(True)
    assert mpu.get_context_parallel_global_ranks() == [world.rank]
    batch = {"text": np.arange(6).reshape(2, 3) + 10 * world.rank} if mpu.get_tensor_model_parallel_rank() == 0 else None
    text = mpu.broadcast_data(["text"], batch, np.int64)["text"]
    assert text.tolist() == (np.arange(6).reshape(2, 3) + 10 * groups["tp"][0]).tolist()
    part = mpu.split_tensor_into_1d_equal_chunks(text)
    whole = mpu.gather_split_1d_tensor(part)
    assert part.base is not None and whole.tolist() == text.reshape(-1).tolist()
    assert mpu.split_tensor_into_1d_equal_chunks(text, new_buffer=True).base is None
    mpu.model_parallel_cuda_manual_seed(100)
    with mpu.get_rng_tracker().fork() as mine, mpu.get_cuda_rng_tracker().fork("data-parallel-rng") as ours:
        numbers = mine.integers(1 << 60), ours.integers(1 << 60)
    mpu.destroy_model_parallel()
    mpu.destroy_model_parallel()
    world.barrier()
    return groups, known, numbers


def test_a_job_of_eight_ranks():
    """Two tensor-parallel ranks and two stages: the example of the articles about Megatron-LM."""
    found = ranks(8, has_groups)
    for rank, (groups, known, _) in enumerate(found):
        tp, dp, pp = rank % 2, rank // 2 % 2, rank // 4
        assert groups["tp"] == groups["ep_tp"] == [rank - tp, rank - tp + 1]
        assert groups["dp"] == groups["ep_dp"] == [rank - 2 * dp, rank - 2 * dp + 2]
        assert groups["pp"] == groups["embd"] == [rank - 4 * pp, rank - 4 * pp + 4]
        assert groups["cp"] == groups["ep"] == [rank]
        assert groups["tp_dp"] == [4 * pp, 4 * pp + 1, 4 * pp + 2, 4 * pp + 3]
        assert groups["mp"] == groups["tp_ep_pp"] == [2 * dp, 2 * dp + 1, 2 * dp + 4, 2 * dp + 5]
        assert groups["dist_opt"] == [0, 1, 4, 5, 2, 3, 6, 7]
        assert (known["tp src"], known["mp src"], known["dp src"]) == (rank - tp, 2 * dp, rank - 2 * dp)
        assert known["stages"] == [rank % 4, (rank + 4) % 8, (rank + 4) % 8, rank % 4 + 4]
        assert known["ranks"] == [tp, dp, pp, 0, 0, tp, dp, tp, tp]
        assert known["sizes"] == [2, 2, 2, 1, 1, 2, 2, 2, 2]
        assert known["ends"] == [pp == 0, pp == 1] and known["position"] == (pp == 0)
    assert [groups["tp"] for groups, _, _ in found[::2]] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    tensor, data = zip(*(numbers for _, _, numbers in found))
    assert len(set(data)) == 1 and len(set(tensor)) == 2 and tensor[::2] == (tensor[0],) * 4


def has_experts(world):
    mpu.initialize_model_parallel(
        context_parallel_size=4,
        hierarchical_context_parallel_sizes=(2, 2),
        distributed_timeout_minutes=0.5,
    )
    levels = [members(world, group) for group in mpu.get_hierarchical_context_parallel_groups()]
    mpu.destroy_model_parallel()
    mpu.initialize_model_parallel(expert_model_parallel_size=2, num_distributed_optimizer_instances=2, comm=world)
    found = [
        members(world, mpu.get_expert_model_parallel_group()),
        members(world, mpu.get_data_parallel_group(True, True)),
        members(world, mpu.get_expert_data_parallel_group(partial_expert_data_parallel=True)),
        members(world, mpu.get_inter_distributed_optimizer_instance_group()),
    ]
    with pytest.raises(dsc.StateError, match="rank . belongs to no group 'hcp'"):
        mpu._group("hcp")
    return levels, found  # finalizing the world also ends the groups


def test_levels_experts_and_instances():
    levels, found = zip(*ranks(4, has_experts))
    assert levels[0] == [[0, 1], [0, 2]] and levels[3] == [[2, 3], [1, 3]]
    assert found[0] == [[0, 1], [0, 1], [0], [0, 2]] and found[3] == [[2, 3], [2, 3], [3], [1, 3]]


def has_stages(world):
    mpu.initialize_model_parallel(1, 4, 2, comm=world)
    told = []
    for part in (0, 1):
        mpu.set_virtual_pipeline_model_parallel_rank(part)
        assert mpu.get_virtual_pipeline_model_parallel_rank() == part
        told.append((mpu.is_pipeline_first_stage(False, part), mpu.is_pipeline_last_stage(False, part)))
        told[-1] += (mpu.is_rank_in_embedding_group(False, part),)
    assert mpu.get_virtual_pipeline_model_parallel_world_size() == 2
    with pytest.raises(ValueError, match="vp_stage is None; expected 0 to 1"):
        mpu.is_pipeline_first_stage(ignore_virtual=False)
    with pytest.raises(ValueError, match="rank is 2; expected 0 to 1"):
        mpu.set_virtual_pipeline_model_parallel_rank(2)
    if world.rank in (1, 2):
        with pytest.raises(dsc.StateError, match=f"rank {world.rank} belongs to no group 'embd'"):
            mpu.get_embedding_group()
    has = mpu.is_rank_in_embedding_group(), mpu.is_rank_in_position_embedding_group()
    mpu.destroy_model_parallel()
    return told, has


def test_virtual_stages():
    nothing, both = (False, False, False), [(False, False, False)] * 2
    assert ranks(4, has_stages) == [
        ([(True, False, True), nothing], (True, True)),
        (both, (False, False)),
        (both, (False, False)),
        ([nothing, (False, True, True)], (True, False)),
    ]


def test_numbers():
    ranges = [mpu.VocabUtility.vocab_range_from_global_vocab_size(96, rank, 3) for rank in range(3)]
    assert ranges == [(0, 32), (32, 64), (64, 96)]
    assert mpu.VocabUtility.vocab_range_from_per_partition_vocab_size(5, 2, 4) == (10, 15)
    with pytest.raises(ValueError, match="^97 is not divisible by 3$"):
        mpu.VocabUtility.vocab_range_from_global_vocab_size(97, 0, 3)
    with pytest.raises(ValueError, match="rank is 3; expected 0 to 2"):
        mpu.VocabUtility.vocab_range_from_global_vocab_size(96, 3, 3)
    assert mpu.divide(12, 4) == 3
    with pytest.raises(ValueError, match="denominator is 0; expected 1 to"):
        mpu.ensure_divisibility(1, 0)


def test_a_tracker_of_another_library_is_seeded():
    seeds = []
    mpu.initialize_rng_tracker(dsc.RngTracker(lambda: list(seeds), lambda state: None, seeds.append))
    mpu.model_parallel_cuda_manual_seed(10, tp_rank=1, ep_rank=2, etp_rank=3)
    assert seeds == [10, 10, 10 + 2718 + 1, 10 + 1024 + 203]
    mpu.initialize_rng_tracker()
    assert mpu.get_rng_tracker().names == []
