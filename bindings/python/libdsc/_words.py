"""Rewrites messages of the C library with the names that this package uses."""

from __future__ import annotations

import re
from typing import Any

from libdsc._raw import (
    Average,
    Backend,
    BufferSync,
    Dtype,
    Norm,
    PipeMessages,
    PipePlacement,
    Rebuild,
    Result,
    ShardLayout,
)

# The results whose messages are rewritten. Other messages may contain a text of the program.
_CHECKED = (
    Result.ERR_INVALID_ARG,
    Result.ERR_STATE,
    Result.ERR_UNSUPPORTED,
    Result.ERR_CONFIG,
    Result.ERR_NO_BACKEND,
)

# The prefix of a message: the function that failed.
_PREFIX = re.compile(r"^dsc_(?:comm_|bucket_reducer_|sharded_)?(\w+)(?=: )")
# Keys: C functions of operations whose name in Python is not the C name without its prefix. Values: the Python names.
OPERATIONS = {
    "dsc_heads_to_sequence": "sequence_to_heads",
    "dsc_tensor_map_backward": "tensor_map",
    "dsc_tensor_map_forward": "tensor_map",
}
# Keys: C functions whose name in Python is not the C name without its prefix. Values: the names that programs call.
_CALLED = OPERATIONS | {
    "dsc_bucket_plan": "plan_buckets",
    "dsc_bucket_reducer_create": "BucketReducer",
    "dsc_join_create": "Join",
    "dsc_mem_alloc": "empty",
    "dsc_mem_register": "register",
    "dsc_mem_unregister": "Registration.close",
    "dsc_mesh_create": "Mesh",
    "dsc_mesh_create_experts": "Mesh.experts",
    "dsc_moe_plan_create": "moe_plan",
    "dsc_op_create_premul": "premul",
    "dsc_op_create_user": "user_op",
    "dsc_pipe_partition": "partition_layers",
    "dsc_pipe_schedule_create": "PipeSchedule",
    "dsc_pipe_schedule_create_custom": "PipeSchedule.custom",
    "dsc_pipe_search": "find_schedule",
    "dsc_pipe_schedule_import": "PipeSchedule.read",
    "dsc_pipe_simulate": "simulate_pipeline",
    "dsc_ring_create": "Ring",
    "dsc_rng_layer_seed": "seed_layer",
    "dsc_rng_region_seed": "seed_region",
    "dsc_sampler_indices": "shard_indices",
    "dsc_sequence_causal_range": "causal_work",
    "dsc_shard_plan": "plan_shards",
    "dsc_sharded_create": "Sharded",
    "dsc_store_open": "Store",
    "dsc_tensor_map_part": "split_range",
    "dsc_tied_layers_create": "TiedLayers",
    "dsc_tied_plan": "tied_stages",
}
_NAMES = {str(int(backend)): backend.name.lower() for backend in Backend}
_NUMBER = re.compile(r"(?<=backend )\d+|(?<=: )\d+(?= \(rank)|(?<=\), )\d+(?= \(rank)")


# Options that take a name in Python and a number in C.
_CHOICES: dict[str, Any] = {
    "average": Average,
    "rebuild": Rebuild,
    "layout": ShardLayout,
    "norm": Norm,
    "how": BufferSync,
    "grad_dtype": Dtype,
    "messages": PipeMessages,
    "placement": PipePlacement,
}
_CHOICE = rf"\b({'|'.join(_CHOICES)}) is "

# Options that are True or False in Python, and 1 or 0 in C.
_FLAGS = (
    "sync|single_first_bucket|find_unused|static_graph|small_bucket_first|wide_padding|divide_by_initial"
    "|throw_on_early_end|hybrid|forward_only|merge_backward|padded|accumulate|alone\\[\\d+\\]"
)
_FLAG = re.compile(rf"\b({_FLAGS})( is | )([01])(?:(, expected |.* on rank 0 and )([01]))?\b")
# Where a rank's own part begins in a buffer of the parts of all ranks.
_OWN_PART = r"(?:rank x count|the sum of the counts of all lower ranks|the start of this rank's part)"
_TRUTH = {"0": "False", "1": "True", None: ""}

# C functions and types in the text of a message, and the words that replace them.
_FUNCTIONS = {
    "dsc_batch_begin()": "batch()",
    "dsc_batch_end()": "the end of batch()",
    "dsc_bucket_reducer_mark_sparse()": "mark_sparse()",
    "dsc_bucket_reducer_set_buffers()": "set_buffers()",
    "dsc_init_options_t": "init_distributed()",
    "dsc_mem_alloc()": "empty()",
    "dsc_mem_register()": "register()",
    "dsc_mesh_create_experts()": "Mesh.experts()",
    "dsc_op_create_premul()": "premul()",
    "dsc_op_create_user()": "user_op()",
    "dsc_pipe_run_bytes()": "PipeSchedule.run_bytes()",
    "dsc_pipe_schedule_at_stage()": "PipeSchedule.at_stage()",
    "dsc_pipe_schedule_create_custom()": "PipeSchedule.custom()",
    "dsc_pipe_schedule_import()": "PipeSchedule.read()",
    "dsc_ring_begin()": "a pass of the ring",
    "dsc_work_wait()": "Work.wait()",
}
_FUNCTION = re.compile("|".join(re.escape(name) for name in _FUNCTIONS) + r"|\bdsc_(?:comm_|bucket_reducer_|sharded_)?(?=\w+\(\))")


def _choice(option: str, number: str) -> str:
    """Returns the name of an option's number. A number without a name is returned unchanged."""
    if option == "grad_dtype" and number == "0":
        return "None"
    try:
        return f'"{_CHOICES[option](int(number)).name.lower()}"'
    except ValueError:
        return number


def _wrong_choice(found: re.Match[str]) -> str:
    """Rewrites text such as "average is 4, expected 1 (pre) or 2 (post)"."""
    return f"{found[1]} is {_choice(found[1], found[2])}, expected " + re.sub(r"\d+ \((\w+)\)", r'"\1"', found[3])


def _other_choice(found: re.Match[str]) -> str:
    """Rewrites text such as "average is 1 on rank 0 and 2 on rank 1", or "messages is 1, expected 0"."""
    return f"{found[1]} is {_choice(found[1], found[2])}{found[3]}{_choice(found[1], found[4])}"


def _flag(found: re.Match[str]) -> str:
    """Rewrites text such as "sync is 1 on rank 0 and 0 on rank 1", or "forward_only is 1, expected 0"."""
    return f"{found[1]}{found[2]}{_TRUTH[found[3]]}{found[4] or ''}{_TRUTH[found[5]]}"


def _seconds(found: re.Match[str]) -> str:
    """Rewrites text such as "timeout_ms: 5000 (rank 0), 6000 (rank 1)". Python programs use seconds."""
    return f"{found[1]}: " + re.sub(r"\d+(?= \(rank)", lambda number: f"{int(number[0]) / 1000:g} s", found[2])


def _backends(found: re.Match[str]) -> str:
    """Replaces the numbers of backends by names. Unknown numbers, of a newer library, remain."""
    return _NUMBER.sub(lambda number: _NAMES.get(number[0], number[0]), found[0])


_WORDS: list[tuple[re.Pattern[str], Any]] = [
    (re.compile(r"\bcosts->n is (\d+)"), r"the longest list of costs has \1 values"),
    (re.compile(r"\b(?:\w+->)+(\w+)"), r"\1"),
    (_FUNCTION, lambda found: _FUNCTIONS.get(found[0], "")),
    (re.compile(r"\bNULL\b"), "None"),
    (re.compile(r"\bn_ranks is (\d+), expected 1 to 1\b"), r"ranks has \1 entries, expected 1"),
    (re.compile(r"\bn_(\w+) is (\d+)"), r"\1 has \2 entries"),
    (re.compile(r"(?<=with another )(\w+)_ms\b"), r"\1"),
    (re.compile(r"\b(\w*timeout)_ms: ([^;]*)"), _seconds),
    (re.compile(r"\bsend and recv overlap\b"), "x and out overlap"),
    (re.compile(r"\b(send == recv|recv == send)$"), "out is x"),
    (re.compile(rf"\bin place: send == recv \+ {_OWN_PART}$"), "x as this rank's own part of out"),
    (re.compile(rf"\bin place: recv == send \+ {_OWN_PART}$"), "out as this rank's own part of x"),
    (re.compile(r"\bexpected 0 to 0\b"), "expected 0, the only one"),
    (re.compile(r"\bbackend \d+\b|\bbackend: \d+ \(rank[^;]*"), _backends),
    (re.compile(r"\b0 \(auto\) or 2 \(device\) with a device"), "auto or device with a device"),
    (re.compile(_CHOICE + r"(-?\d+), expected ((?:\d+ \(\w+\)(?:, | or )?)+)"), _wrong_choice),
    (re.compile(_CHOICE + r"(\d+)( on rank 0 and |, expected )(\d+)\b"), _other_choice),
    (re.compile(r"\b(drop|payload|mapping) is \d \((\w+)\)"), r'\1 is "\2"'),
    (re.compile(r"\band capacity is 0\b"), "and capacity is None"),
    (re.compile(r"\bunit_starts is none\b"), "units is None"),
    (re.compile(r"\bunit_starts\b"), "units"),
    (re.compile(r"\bkeep_sparse_rows is 0 on rank 0 and 1 on\b"), "coalesce_sparse is True on rank 0 and False on"),
    (re.compile(r"\bkeep_sparse_rows is 1 on rank 0 and 0 on\b"), "coalesce_sparse is False on rank 0 and True on"),
    (_FLAG, _flag),
    (re.compile(r"\bdivide_by_initial\b"), "divide_by_initial_world_size"),
    (re.compile(r"\bthrow_on_early_end\b"), "throw_on_early_termination"),
    (re.compile(r"\b(?:setting )?(nccl|cuda)\.(library|net_name|min_ctas|max_ctas)\b"), r"\1_\2"),
]


def in_python(code: int, message: str) -> str:
    """Returns a message of the library with the names of this package."""
    message = _PREFIX.sub(lambda found: _CALLED.get(found[0], found[1]), message)
    if code == Result.ERR_BAD_HANDLE:
        return message.replace("the handle is NULL", "the object was closed, or its world was finalized")
    if code in _CHECKED:
        for pattern, said in _WORDS:
            message = pattern.sub(said, message)
    return message
