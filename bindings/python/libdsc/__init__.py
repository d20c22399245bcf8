"""Communication for distributed training: start-up, collectives, gradient buckets, pipelines.

    import libdsc as dsc

    world = dsc.init_distributed()
    world.all_reduce(x)
    dsc.finalize()

Contents. help(libdsc.Communicator) and similar calls say more; the complete documentation is in docs/ of the project:

    start and end     init_distributed, finalize, world, is_initialized, launch_report, spawn, Store, Source, SpawnError
    operations        methods of Communicator: all_reduce, broadcast, gather, send and so on; Work, Batch, Registration
    kinds of them     Op, ReduceOp, premul, user_op, Dtype, Backend
    objects           broadcast_object, all_gather_object, gather_object, scatter_object
    lists and trees   all_reduce_coalesced, broadcast_coalesced, verify_params, average_gradients, broadcast_tree
    data parallel     BucketReducer, Bucket, hooks, Join, plan_buckets, shard_indices, NonfiniteInputs
    sharding          Sharded, Shard, ShardRange, ShardedMemory, ShardRules, ShardLayout, ShardBucket, ShardCopy,
                      plan_shards, shard_copies
    meshes            Mesh, MeshGroup, split_range
    pipelines         PipeSchedule, PipeInstruction, PipeCompute, PipeStep, find_schedule, FoundSchedule, TiedLayers,
                      tied_stages, simulate_pipeline, PipeSimulation, PipeSpan, finalize_grads, Partition,
                      partition_layers, type_weights
    random numbers    RngTracker, ModelParallelSeeds, model_parallel_seeds, seed_layer, seed_region, RngError
    long sequences    Ring, CausalWork, causal_work, sequence_ranges, take_tokens, put_tokens, CrossEntropy
    experts           MoePlan
    what happened     OpStats, set_log, read_log, log_to_logging, request_trace_dump, version, feature
    errors            DscError or Error, whose .code is a Result; below it
      of ranks        PeerError: PeerDeadError, PeerStalledError, PeerLeftError; TimeoutError, MismatchError,
                      RevokedError
      of calls        InvalidArgError, StateError, BadHandleError, BusyError, ReentrantError, ForkedError,
                      UnsupportedError, OverflowError, CallbackError, NonfiniteError
      of the system   ConfigError, AddrInUseError, AuthError, ProtocolError, VersionError, NoBackendError, BackendError,
                      BackendStuckError, NomemError, NospaceError, SystemError, InternalError

Each function here that takes a communicator is also a method of it: world.verify_params(arrays) is the same as
verify_params(world, arrays). The package is pure Python over the shared library libdsc.so. It searches for the library
at the path in DSC_LIBRARY, then in this process, then in the package, then in the system. If none is found, the import
fails and lists the places that were tried.
"""

from typing import TYPE_CHECKING, Any

from libdsc import _tracebacks
from libdsc._library import feature, version
# This import comes first, so that its exit handler runs last.
from libdsc._log import log_to_logging, read_log, set_log
from libdsc._batch import Batch
from libdsc._raw import Backend, Dtype, Op, Result, Source
from libdsc._communicator import Communicator, OpStats
from libdsc._shared_memory import Registration
from libdsc._cross_entropy import CrossEntropy
from libdsc.errors import (
    AddrInUseError,
    AuthError,
    BackendError,
    BackendStuckError,
    BadHandleError,
    BusyError,
    CallbackError,
    ConfigError,
    DscError,
    ForkedError,
    InternalError,
    InvalidArgError,
    MismatchError,
    NoBackendError,
    NomemError,
    NonfiniteError,
    NospaceError,
    OverflowError as OverflowError,
    PeerDeadError,
    PeerError,
    PeerLeftError,
    PeerStalledError,
    ProtocolError,
    ReentrantError,
    RevokedError,
    StateError,
    SystemError as SystemError,
    TimeoutError as TimeoutError,
    UnsupportedError,
    VersionError,
)
from libdsc._expert_parallel import MoePlan
from libdsc._mesh import Mesh, MeshGroup
from libdsc._nonfinite import NonfiniteInputs
from libdsc._lists import all_reduce_coalesced, broadcast_coalesced, verify_params
from libdsc._objects import all_gather_object, broadcast_object, gather_object, scatter_object
from libdsc._ops import ReduceOp, premul, user_op
from libdsc._partition import Partition, partition_layers, seed_layer, seed_region, type_weights
from libdsc._pipe import PipeCompute, PipeInstruction, PipeSchedule, PipeStep
from libdsc._pipe_arrays import Outputs as _Outputs
from libdsc._pipe_find import FoundSchedule, find_schedule
from libdsc._pipe_simulate import PipeSimulation, PipeSpan, simulate_pipeline
from libdsc._plan import plan_buckets, shard_indices
from libdsc._finalize_grads import finalize_grads
from libdsc._foreign import meant_function
from libdsc._hooks import Bucket, hooks
from libdsc._join import Join
from libdsc._reducer import BucketReducer
from libdsc._ring import Ring
from libdsc._rng import ModelParallelSeeds, RngError, RngTracker, model_parallel_seeds
from libdsc._sequence_order import CausalWork, causal_work, put_tokens, sequence_ranges, take_tokens
from libdsc._shard_plan import ShardBucket, ShardCopy, ShardLayout, ShardRules, plan_shards, shard_copies
from libdsc._sharded import Shard, Sharded, ShardedMemory, ShardRange
from libdsc._spawn import SpawnError, spawn
from libdsc._start import finalize, init_distributed, is_initialized, launch_report, world
from libdsc._store import Store
from libdsc._tensor_map import split_range
from libdsc._tied import TiedLayers, tied_stages
from libdsc._trace import request_trace_dump
from libdsc._trees import average_gradients, broadcast_tree
from libdsc._work import Work

Error = DscError
__version__ = "{}.{}.{}".format(*version())

# The names that `from libdsc import *` imports. libdsc.OverflowError, libdsc.SystemError and libdsc.TimeoutError are
# left out because they would hide Python's own exceptions.
__all__ = [
    "AddrInUseError",
    "AuthError",
    "Backend",
    "BackendError",
    "BackendStuckError",
    "BadHandleError",
    "Batch",
    "Bucket",
    "BucketReducer",
    "BusyError",
    "CallbackError",
    "CausalWork",
    "Communicator",
    "ConfigError",
    "CrossEntropy",
    "DscError",
    "Dtype",
    "Error",
    "ForkedError",
    "InternalError",
    "InvalidArgError",
    "FoundSchedule",
    "Join",
    "Mesh",
    "MeshGroup",
    "MismatchError",
    "ModelParallelSeeds",
    "MoePlan",
    "NoBackendError",
    "NomemError",
    "NonfiniteError",
    "NonfiniteInputs",
    "NospaceError",
    "Op",
    "OpStats",
    "Partition",
    "PeerDeadError",
    "PeerError",
    "PeerLeftError",
    "PeerStalledError",
    "PipeCompute",
    "PipeInstruction",
    "PipeSchedule",
    "PipeSimulation",
    "PipeSpan",
    "PipeStep",
    "ProtocolError",
    "ReduceOp",
    "Registration",
    "ReentrantError",
    "Result",
    "RevokedError",
    "Ring",
    "RngError",
    "RngTracker",
    "Shard",
    "ShardBucket",
    "ShardCopy",
    "ShardLayout",
    "ShardRange",
    "ShardRules",
    "Sharded",
    "ShardedMemory",
    "Source",
    "SpawnError",
    "StateError",
    "Store",
    "TiedLayers",
    "UnsupportedError",
    "VersionError",
    "Work",
    "all_gather_object",
    "all_reduce_coalesced",
    "average_gradients",
    "broadcast_coalesced",
    "broadcast_object",
    "broadcast_tree",
    "causal_work",
    "feature",
    "finalize",
    "finalize_grads",
    "find_schedule",
    "gather_object",
    "hooks",
    "init_distributed",
    "is_initialized",
    "launch_report",
    "log_to_logging",
    "model_parallel_seeds",
    "partition_layers",
    "plan_buckets",
    "plan_shards",
    "premul",
    "put_tokens",
    "read_log",
    "request_trace_dump",
    "scatter_object",
    "seed_layer",
    "seed_region",
    "sequence_ranges",
    "set_log",
    "shard_copies",
    "shard_indices",
    "simulate_pipeline",
    "spawn",
    "split_range",
    "take_tokens",
    "tied_stages",
    "type_weights",
    "user_op",
    "verify_params",
    "version",
    "world",
]

_tracebacks.bind(globals(), (BucketReducer, Join, Mesh, MoePlan, PipeSchedule, Ring, RngTracker, Store, TiedLayers), (_Outputs,))

# Type checkers must not see this function: they would then accept any name as an attribute of this package.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Raises AttributeError with this package's name for a name of another library.

        Python calls this function only for missing names.
        """
        hint = "" if name.startswith("_") else meant_function(name, __all__, dir(Communicator))
        raise AttributeError(f"module 'libdsc' has no attribute {name!r}{hint}")
