"""Megatron-LM's names for groups, ranks and exchanges, over this library's communicators.

    import libdsc as dsc
    import libdsc.megatron as mpu

    dsc.init_distributed()
    mpu.initialize_model_parallel(tensor_model_parallel_size=2, pipeline_model_parallel_size=2)
    batch = mpu.broadcast_data(["text"], data, "int64")
    y = mpu.reduce_from_tensor_model_parallel_region(x @ weight)
    mpu.get_data_parallel_group().all_reduce(x)

The names are those of megatron.core.parallel_state and megatron.core.tensor_parallel, at commit d98e8a6. A group is a
Communicator, with .rank and .size. Groups with the same ranks, such as dp and dp-cp without context parallelism, are
the same communicator. get_*_group() is local; only functions whose description says so are collective.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

from libdsc import errors
from libdsc._arguments import integer
from libdsc._broadcast_data import Empty
from libdsc._communicator import Communicator
from libdsc._megatron_mappings import (
    all_gather_last_dim_from_tensor_parallel_region as all_gather_last_dim_from_tensor_parallel_region,
    all_to_all as all_to_all,
    all_to_all_hp2sp as all_to_all_hp2sp,
    all_to_all_sp2hp as all_to_all_sp2hp,
    copy_to_tensor_model_parallel_region as copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region as gather_from_sequence_parallel_region,
    gather_from_tensor_model_parallel_region as gather_from_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region as reduce_from_tensor_model_parallel_region,
    reduce_scatter_last_dim_to_tensor_parallel_region as reduce_scatter_last_dim_to_tensor_parallel_region,
    reduce_scatter_to_sequence_parallel_region as reduce_scatter_to_sequence_parallel_region,
    scatter_to_sequence_parallel_region as scatter_to_sequence_parallel_region,
    scatter_to_tensor_model_parallel_region as scatter_to_tensor_model_parallel_region,
    vocab_parallel_cross_entropy as vocab_parallel_cross_entropy,
)
from libdsc._memory import numpy_module
from libdsc._model_parallel import Layout, ModelParallel
from libdsc._rng import RngTracker, model_parallel_seeds
from libdsc._start import world

_state: Optional[ModelParallel] = None
_tracker = RngTracker()


# ---- start and end -------------------------------------------------------------------------------------------------


def initialize_model_parallel(
    tensor_model_parallel_size: int = 1,
    pipeline_model_parallel_size: int = 1,
    virtual_pipeline_model_parallel_size: Optional[int] = None,
    *,
    context_parallel_size: int = 1,
    hierarchical_context_parallel_sizes: Sequence[int] = (),
    expert_model_parallel_size: int = 1,
    num_distributed_optimizer_instances: int = 1,
    expert_tensor_parallel_size: Optional[int] = None,
    distributed_timeout_minutes: Optional[float] = None,
    order: str = "tp-cp-ep-dp-pp",
    comm: Optional[Communicator] = None,
) -> None:
    """Makes all groups, in Megatron-LM's order. Collective over comm.

    Args:
        tensor_model_parallel_size: ranks that share each layer.
        pipeline_model_parallel_size: stages.
        virtual_pipeline_model_parallel_size: parts of the model on every stage; needs more than one stage.
        context_parallel_size: ranks that share a sequence.
        hierarchical_context_parallel_sizes: sizes of the levels of context-parallel groups, the fastest-varying first.
        expert_model_parallel_size: ranks that share the experts of a layer.
        num_distributed_optimizer_instances: parts of the data-parallel ranks, each with its own optimizer state.
        expert_tensor_parallel_size: ranks that share each expert; None: the same as tensor_model_parallel_size.
        distributed_timeout_minutes: the time-out of every operation on the groups; None: that of comm.
        order: the axes, the fastest-varying first.
        comm: the ranks; None: the world.
    """
    global _state
    if model_parallel_is_initialized():
        raise errors.StateError("model parallelism is already initialized; expected destroy_model_parallel() first")
    parent = world() if comm is None else comm
    layout = Layout(
        parent.size,
        tensor_model_parallel_size,
        pipeline_model_parallel_size,
        context_parallel_size,
        expert_model_parallel_size,
        expert_tensor_parallel_size,
        order,
        virtual_pipeline_model_parallel_size,
        hierarchical_context_parallel_sizes,
        num_distributed_optimizer_instances,
    )
    timeout = None if distributed_timeout_minutes is None else 60 * distributed_timeout_minutes
    _state = ModelParallel(parent, layout, timeout)


def model_parallel_is_initialized() -> bool:
    """Whether the groups exist, and also the world that they belong to."""
    return _state is not None and _state.is_open


def destroy_model_parallel() -> None:
    """Closes all groups. Does nothing if there are no groups."""
    global _state
    if _state is not None:
        _state.close()
    _state = None


def _needed() -> ModelParallel:
    if _state is None or not _state.is_open:
        raise errors.StateError("model parallelism is not initialized; expected initialize_model_parallel() first")
    return _state


def _group(name: str) -> Communicator:
    group = _needed().comm(name)
    if group is None:
        raise errors.StateError(f"rank {_needed().rank} belongs to no group {name!r}; expected a call on a rank that belongs to one")
    return group


def _ranks(name: str) -> list[int]:
    """Returns the ranks of this rank's group, numbered as in the communicator from which the groups were made."""
    _group(name)
    return _needed().layout.ranks(name, _needed().rank) or []


# ---- groups --------------------------------------------------------------------------------------------------------


def get_model_parallel_group() -> Communicator:
    """The ranks that share one copy of the model: tensor and pipeline."""
    return _group("mp")


def get_tensor_model_parallel_group() -> Communicator:
    """The ranks that share each layer."""
    return _group("tp")


def get_pipeline_model_parallel_group() -> Communicator:
    """The stages of this rank's pipeline."""
    return _group("pp")


def get_data_parallel_group(
    with_context_parallel: bool = False, partial_data_parallel: bool = False
) -> Communicator:
    """Returns the ranks that hold the same parameters.

    with_context_parallel adds the ranks that share their sequences. partial_data_parallel keeps only the ranks of this
    rank's instance of the distributed optimizer.
    """
    if partial_data_parallel:
        if not with_context_parallel:
            raise ValueError("partial_data_parallel is True and with_context_parallel is False; expected with_context_parallel=True too")
        return _group("intra_dp_cp" if "intra_dp_cp" in _needed().layout.groups else "dp_cp")
    return _group("dp_cp" if with_context_parallel else "dp")


def get_context_parallel_group() -> Communicator:
    """The ranks that share each sequence."""
    return _group("cp")


def get_hierarchical_context_parallel_groups() -> list[Communicator]:
    """This rank's group on each level of hierarchical_context_parallel_sizes."""
    return [_group(name) for name in _needed().layout.groups if name.startswith("hcp_")]


def get_embedding_group() -> Communicator:
    """The first and the last stage, which share the word embeddings; StateError on the others."""
    return _group("embd")


def get_position_embedding_group() -> Communicator:
    """The stage that has the position embeddings; StateError on the others."""
    return _group("pos_embd")


def get_tensor_and_data_parallel_group(with_context_parallel: bool = False) -> Communicator:
    """The tensor and data-parallel ranks of this rank's stage."""
    return _group("tp_dp_cp" if with_context_parallel else "tp_dp")


def get_amax_reduction_group(with_context_parallel: bool = False) -> Communicator:
    """The ranks over which the maxima of 8-bit training are computed: get_tensor_and_data_parallel_group()."""
    return get_tensor_and_data_parallel_group(with_context_parallel)


def get_tensor_and_context_parallel_group() -> Communicator:
    """The tensor and context-parallel ranks of this rank's stage."""
    return _group("tp_cp")


def get_expert_model_parallel_group() -> Communicator:
    """The ranks that share the experts of a layer."""
    return _group("ep")


def get_expert_tensor_parallel_group() -> Communicator:
    """The ranks that share each expert."""
    return _group("ep_tp")


def get_expert_tensor_and_model_parallel_group() -> Communicator:
    """The ranks that hold all experts of a layer."""
    return _group("tp_ep_mp")


def get_expert_tensor_model_pipeline_parallel_group() -> Communicator:
    """The ranks that hold all experts of all layers."""
    return _group("tp_ep_pp")


def get_expert_data_parallel_group(partial_expert_data_parallel: bool = False) -> Communicator:
    """The ranks that hold the same experts.

    partial_expert_data_parallel keeps only those of this rank's instance of the distributed optimizer.
    """
    is_partial = partial_expert_data_parallel and "intra_ep_dp" in _needed().layout.groups
    return _group("intra_ep_dp" if is_partial else "ep_dp")


def get_inter_distributed_optimizer_instance_group() -> Communicator:
    """The ranks that hold the same part of the optimizer state in each instance; StateError with one instance."""
    return _group("inter_ep_dp")


def get_intra_distributed_optimizer_instance_group() -> Communicator:
    """All ranks of this rank's instance of the distributed optimizer."""
    return _group("intra_dist_opt")


# ---- sizes and ranks -----------------------------------------------------------------------------------------------


def get_tensor_model_parallel_world_size() -> int:
    """The size of get_tensor_model_parallel_group()."""
    return _group("tp").size


def get_tensor_model_parallel_rank() -> int:
    """This rank in get_tensor_model_parallel_group()."""
    return _group("tp").rank


def get_tensor_model_parallel_src_rank() -> int:
    """The first rank of get_tensor_model_parallel_group(), numbered as in the world."""
    return _ranks("tp")[0]


def get_model_parallel_src_rank() -> int:
    """The first rank of get_model_parallel_group(), numbered as in the world."""
    return _ranks("mp")[0]


def get_pipeline_model_parallel_world_size() -> int:
    """The number of stages."""
    return _group("pp").size


def get_pipeline_model_parallel_rank() -> int:
    """This rank's stage."""
    return _group("pp").rank


def get_pipeline_model_parallel_first_rank() -> int:
    """The rank of the first stage in the world."""
    return _ranks("pp")[0]


def get_pipeline_model_parallel_last_rank() -> int:
    """The rank of the last stage in the world."""
    return _ranks("pp")[-1]


def get_pipeline_model_parallel_next_rank() -> int:
    """The rank of the next stage in the world; after the last stage, that of the first."""
    return _ranks("pp")[(_group("pp").rank + 1) % _group("pp").size]


def get_pipeline_model_parallel_prev_rank() -> int:
    """The rank of the previous stage in the world; before the first stage, that of the last."""
    return _ranks("pp")[_group("pp").rank - 1]


def get_data_parallel_world_size(with_context_parallel: bool = False, partial_data_parallel: bool = False) -> int:
    """The size of get_data_parallel_group()."""
    return get_data_parallel_group(with_context_parallel, partial_data_parallel).size


def get_data_parallel_rank(with_context_parallel: bool = False, partial_data_parallel: bool = False) -> int:
    """This rank in get_data_parallel_group()."""
    return get_data_parallel_group(with_context_parallel, partial_data_parallel).rank


def get_data_parallel_src_rank(with_context_parallel: bool = False) -> int:
    """The first rank of get_data_parallel_group(), numbered as in the world."""
    return _ranks("dp_cp" if with_context_parallel else "dp")[0]


def get_context_parallel_world_size() -> int:
    """The size of get_context_parallel_group()."""
    return _group("cp").size


def get_context_parallel_rank() -> int:
    """This rank in get_context_parallel_group()."""
    return _group("cp").rank


def get_context_parallel_global_ranks() -> list[int]:
    """The ranks of get_context_parallel_group(), numbered as in the world."""
    return _ranks("cp")


def get_tensor_and_context_parallel_world_size() -> int:
    """The size of get_tensor_and_context_parallel_group()."""
    return _group("tp_cp").size


def get_tensor_and_context_parallel_rank() -> int:
    """This rank in get_tensor_and_context_parallel_group()."""
    return _group("tp_cp").rank


def get_expert_model_parallel_world_size() -> int:
    """The size of get_expert_model_parallel_group()."""
    return _group("ep").size


def get_expert_model_parallel_rank() -> int:
    """This rank in get_expert_model_parallel_group()."""
    return _group("ep").rank


def get_expert_tensor_parallel_world_size() -> int:
    """The size of get_expert_tensor_parallel_group()."""
    return _group("ep_tp").size


def get_expert_tensor_parallel_rank() -> int:
    """This rank in get_expert_tensor_parallel_group()."""
    return _group("ep_tp").rank


def get_expert_tensor_and_model_parallel_world_size() -> int:
    """The size of get_expert_tensor_and_model_parallel_group()."""
    return _group("tp_ep_mp").size


def get_expert_tensor_and_model_parallel_rank() -> int:
    """This rank in get_expert_tensor_and_model_parallel_group()."""
    return _group("tp_ep_mp").rank


def get_expert_data_parallel_world_size(partial_expert_data_parallel: bool = False) -> int:
    """The size of get_expert_data_parallel_group()."""
    return get_expert_data_parallel_group(partial_expert_data_parallel).size


def get_expert_data_parallel_rank(partial_expert_data_parallel: bool = False) -> int:
    """This rank in get_expert_data_parallel_group()."""
    return get_expert_data_parallel_group(partial_expert_data_parallel).rank


# ---- stages --------------------------------------------------------------------------------------------------------


def get_virtual_pipeline_model_parallel_world_size() -> Optional[int]:
    """The parts of the model on every stage, or None."""
    return _needed().layout.virtual_stages


def get_virtual_pipeline_model_parallel_rank() -> Optional[int]:
    """The part of the model that this rank works on, as set by set_virtual_pipeline_model_parallel_rank().

    It is 0 at first, and None without virtual stages.
    """
    return _needed().virtual_rank


def set_virtual_pipeline_model_parallel_rank(rank: int) -> None:
    """Sets the part of the model that this rank works on."""
    parts = _needed().layout.virtual_stages or 1
    _needed().virtual_rank = integer("rank", rank, 0, parts - 1)


def is_pipeline_first_stage(ignore_virtual: bool = True, vp_stage: Optional[int] = None) -> bool:
    """Whether this rank has the first stage; with ignore_virtual=False, whether part vp_stage is the model's first."""
    return _is_virtual_stage(0, ignore_virtual, vp_stage) and _group("pp").rank == 0


def is_pipeline_last_stage(ignore_virtual: bool = True, vp_stage: Optional[int] = None) -> bool:
    """Whether this rank has the last stage; with ignore_virtual=False, whether part vp_stage is the model's last."""
    parts = _needed().layout.virtual_stages or 1
    return _is_virtual_stage(parts - 1, ignore_virtual, vp_stage) and _group("pp").rank == _group("pp").size - 1


def _is_virtual_stage(wanted: int, ignore_virtual: bool, vp_stage: Optional[int]) -> bool:
    parts = _needed().layout.virtual_stages
    if ignore_virtual or parts is None:
        return True
    if vp_stage is None:
        raise ValueError(f"vp_stage is None; expected 0 to {parts - 1}, the virtual stage of the model on this pipeline stage")
    return integer("vp_stage", vp_stage, 0, parts - 1) == wanted


def is_rank_in_embedding_group(ignore_virtual: bool = True, vp_stage: Optional[int] = None) -> bool:
    """Whether this rank has word embeddings; with ignore_virtual False, whether its part vp_stage has them."""
    if _needed().comm("embd") is None:
        return False
    return ignore_virtual or (
        is_pipeline_first_stage(False, vp_stage) or is_pipeline_last_stage(False, vp_stage)
    )


def is_rank_in_position_embedding_group() -> bool:
    """Whether this rank has position embeddings."""
    return _needed().comm("pos_embd") is not None


# ---- numbers and parts ---------------------------------------------------------------------------------------------


def ensure_divisibility(numerator: int, denominator: int) -> None:
    """Raises ValueError unless the second number divides the first."""
    if integer("numerator", numerator) % integer("denominator", denominator, 1) != 0:
        raise ValueError(f"{numerator} is not divisible by {denominator}")


def divide(numerator: int, denominator: int) -> int:
    """The quotient; ValueError if there is a remainder."""
    ensure_divisibility(numerator, denominator)
    return numerator // denominator


class VocabUtility:
    """The range of a vocabulary on each rank: the first entry, and the last one plus 1."""

    @staticmethod
    def vocab_range_from_per_partition_vocab_size(
        per_partition_vocab_size: int, rank: int, world_size: int
    ) -> tuple[int, int]:
        """Returns the range of a rank, from the size of every rank's part."""
        first = integer("rank", rank, 0, world_size - 1) * per_partition_vocab_size
        return first, first + per_partition_vocab_size

    @staticmethod
    def vocab_range_from_global_vocab_size(global_vocab_size: int, rank: int, world_size: int) -> tuple[int, int]:
        """Returns the range of a rank, from the size of the whole vocabulary, a multiple of the number of ranks."""
        part = divide(global_vocab_size, world_size)
        return VocabUtility.vocab_range_from_per_partition_vocab_size(part, rank, world_size)


def split_tensor_into_1d_equal_chunks(
    tensor: Any, new_buffer: bool = False, tp_group: Optional[Communicator] = None
) -> Any:
    """Returns this rank's part of the elements, in one dimension. It is a view unless new_buffer is True.

    If the number of ranks does not divide the number of elements, the last elements are in no part.
    """
    group = get_tensor_model_parallel_group() if tp_group is None else tp_group
    flat = tensor.reshape(-1)
    part = len(flat) // group.size
    mine = flat[group.rank * part : (group.rank + 1) * part]
    if not new_buffer:
        return mine
    return mine.clone() if hasattr(mine, "clone") else mine.copy()


def gather_split_1d_tensor(tensor: Any, tp_group: Optional[Communicator] = None) -> Any:
    """Returns the parts of all ranks one after another.

    All parts have the size of tensor. Collective over the group.
    """
    group = get_tensor_model_parallel_group() if tp_group is None else tp_group
    count = len(tensor.reshape(-1)) * group.size
    make = getattr(tensor, "new_empty", None)  # tensors of torch have it
    gathered = make(count) if make is not None else numpy_module().empty(count, tensor.dtype)
    group.all_gather(gathered, tensor)
    return gathered


def broadcast_data(
    keys: Sequence[str],
    data: Optional[Mapping[str, Any]],
    datatype: Any,
    tp_group: Optional[Communicator] = None,
    *,
    empty: Empty = None,
) -> dict[str, Any]:
    """Calls Communicator.broadcast_data() with the first rank of a group as root. Collective.

    The default group is the tensor-parallel group.
    """
    group = get_tensor_model_parallel_group() if tp_group is None else tp_group
    return group.broadcast_data(keys, data, datatype, 0, empty=empty)


# ---- random numbers ------------------------------------------------------------------------------------------------


def initialize_rng_tracker(tracker: Optional[RngTracker] = None) -> None:
    """Sets the tracker of get_rng_tracker(), for example one with torch's functions. None: a new tracker with numpy."""
    global _tracker
    _tracker = RngTracker() if tracker is None else tracker


def get_rng_tracker() -> RngTracker:
    """The tracker of this process."""
    return _tracker


get_cuda_rng_tracker = get_rng_tracker


def model_parallel_cuda_manual_seed(
    seed: int,
    tp_rank: Optional[int] = None,
    ep_rank: Optional[int] = None,
    etp_rank: Optional[int] = None,
) -> None:
    """Removes all states of the tracker, and adds the states of this rank's regions.

    A tracker with another library's functions also seeds that library's generator with the seed of the data-parallel
    region.

    Args:
        seed: the seed of the run, or of the stage.
        tp_rank, ep_rank, etp_rank: ranks in the groups of tensor and expert parallelism; None: those of the groups made
            by initialize_model_parallel().
    """
    tp = get_tensor_model_parallel_rank() if tp_rank is None else tp_rank
    ep = get_expert_model_parallel_rank() if ep_rank is None else ep_rank
    etp = get_expert_tensor_parallel_rank() if etp_rank is None else etp_rank
    _tracker.reset()
    _tracker.seed_library(model_parallel_seeds(seed, tp, ep, etp).data)
    _tracker.add_regions(seed, tp, ep, etp)
