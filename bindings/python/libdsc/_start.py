"""Start and end of the world, the communicator of all ranks."""

from __future__ import annotations

import ctypes
import json
import os
from ctypes import byref, c_int32, c_void_p
from typing import Any, Mapping, Optional, TypeVar

from libdsc import _dtypes, _interrupt, _log, _nccl, _nonfinite, _raw, _streams
from libdsc._arguments import Seconds, boolean, integer, milliseconds, optional_string, seconds_of
from libdsc._spawn import UNGUARDED, is_importing_script
from libdsc._store import Store
from libdsc._types import BackendLike
from libdsc._library import check, give_settings, last_message, last_ranks, lib, text_of
from libdsc._communicator import Communicator, communicator_of
from libdsc._work import reap_ended
from libdsc.errors import from_code


def init_distributed(
    dist_backend: Optional[BackendLike] = None,
    *,
    backend: Optional[BackendLike] = None,
    rank: Optional[int] = None,
    world_size: Optional[int] = None,
    local_rank: Optional[int] = None,
    init_method: Optional[str] = None,
    job_id: Optional[str] = None,
    device: Optional[int] = None,
    port: Optional[int] = None,
    sources: Optional[int] = None,
    require_existing: bool = False,
    rank_per_thread: bool = False,
    init_timeout: Optional[Seconds] = None,
    timeout: Optional[Seconds] = None,
    stall_timeout: Optional[Seconds] = None,
    progress_thread: bool = True,
    token: Optional[str] = None,
    store: Optional[Store] = None,
    nccl_library: Optional[str] = None,
    cuda_library: Optional[str] = None,
    distributed_port: Optional[int] = None,
    auto_mpi_discovery: bool = True,
    dist_init_required: Optional[bool] = None,
    verbose: bool = False,
    config: Any = None,
) -> Communicator:
    """Joins all ranks of the job into one world and returns it.

    Rank and size come from the arguments, or from RANK and WORLD_SIZE, or from the launcher. Without any of them the
    process is a world of one rank. A second call returns the existing world. Arguments given to it must match that
    world; arguments left out are not compared.

    If two names of the same setting contradict each other, the call raises ValueError before it contacts other ranks.

    Args:
        dist_backend: another name of backend, for programs written for DeepSpeed.
        backend: "auto" (the default), "host", "device" (PyTorch's "nccl") or "inter_host" (PyTorch's "gloo").
        rank: this process's number, 0 to world_size - 1; None or -1: not given.
        world_size: the number of processes; None or -1: not given.
        local_rank: this process's number on its host.
        init_method: "env://", "pmix://", "tcp://HOST:PORT" or "file:///PATH".
        job_id: distinguishes jobs on one host.
        device: the number of the GPU to bind, as CUDA numbers devices in this process. If not given, "device" uses the
            GPU of the current CUDA context, or else the local rank; "auto" binds if all ranks have such a context.
        port: 1 to 65535; if not given, DSC_PORT, MASTER_PORT or 29500.
        sources: bits of ``Source``: where rank and size may come from.
        require_existing: return the existing world, never create one, and ignore all other arguments.
        rank_per_thread: this process holds several ranks; each rank makes the call on its own thread.
        init_timeout: seconds, or a timedelta, until this call gives up (300).
        timeout: seconds, or a timedelta, that every operation may take (300).
        stall_timeout: seconds after which a process that does not run counts as failed (30); 0: never.
        progress_thread: True: a thread of the library advances operations that no call waits for. Without it the
            program must call progress(), or await its works.
        token: the secret of a job on several hosts, 64 hexadecimal digits; if not given, the value of DSC_TOKEN_FD,
            DSC_TOKEN_FILE or DSC_TOKEN.
        store: how rank 0 tells ranks on other hosts where it listens, such as ``Store.from_callbacks()``.
        nccl_library: the path of NCCL's library, the same for all ranks of a process. docs/gpu.md describes the
            default, which includes wheels in the folders of sys.path.
        cuda_library: the path of the CUDA driver's library, likewise; if not given, DSC_CUDA_LIBRARY or the system's.
        distributed_port: another name of port, for programs written for DeepSpeed.
        auto_mpi_discovery: False: do not take rank and size from a PMIx server or the variables of a launcher. The same
            as sources=Source.OPTIONS | Source.ENV | Source.SINGLE.
        dist_init_required: False is the same as require_existing=True; None and True make the world if there is none.
        verbose: True describes the joined world in one record of the logger "libdsc", level INFO. If logging does not
            show that level (the default), rank 0 prints the record.
        config: DeepSpeed's configuration, a dict or a path. It is not read: operations are always counted (summary()).
    """
    return _joined(dict(locals()))


def _joined(said: dict[str, Any]) -> Communicator:
    """Returns the world for the arguments of init_distributed(). With require_existing, other arguments are ignored."""
    for name in ("require_existing", "rank_per_thread", "progress_thread", "auto_mpi_discovery", "verbose"):
        said[name] = boolean(name, said[name])
    if said["config"] is not None and not isinstance(said["config"], (Mapping, str, os.PathLike)):
        raise TypeError(f"config is a {type(said['config']).__name__}; expected a configuration of DeepSpeed (a dict or the path of a file), or None")
    if said["require_existing"] and said["dist_init_required"]:
        raise ValueError("require_existing and dist_init_required are both True; expected at most one of them to be True")
    if said["require_existing"] or said["dist_init_required"] is False:
        joined = _join(_options({"require_existing": 1}), True)
    else:
        of_this_thread = said["rank_per_thread"] or not _interrupt.on_main_thread()
        joined = _init(_given(said), of_this_thread)
    if said["verbose"]:
        told = f"joined {joined!r}, backend {joined.backend}, rank and size from {joined.source}"
        if not _log.tell(told, joined.rank) and joined.rank == 0:
            print(f"libdsc: {told}", flush=True)
    return joined


def _given(said: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of init_distributed() that were given, under the names of the library's options."""
    backend = _one_of("backend", said["backend"], "dist_backend", said["dist_backend"])
    port = _one_of("port", said["port"], "distributed_port", said["distributed_port"])
    sources = said["sources"] if said["auto_mpi_discovery"] else _without_mpi(said["sources"])
    rank, world_size = (None if said[name] == -1 else said[name] for name in ("rank", "world_size"))
    numbers = {"rank": rank, "world_size": world_size, "port": port, "local_rank": said["local_rank"]}
    numbers["device"] = said["device"]
    given: dict[str, Any] = {
        **{name: None if value is None else integer(name, value) for name, value in numbers.items()},
        **_texts(init_method=said["init_method"], job_id=said["job_id"], token=said["token"]),
        **_texts(nccl_library=said["nccl_library"], cuda_library=_streams.of_driver(said["cuda_library"])),
        "store": None if said["store"] is None else c_void_p(said["store"]._live()),
        "sources": None if sources is None else integer("sources", sources, 0, 2**32 - 1),
        "backend": (0 if backend is None else _dtypes.backend_code(backend)) or None,
        "rank_per_thread": int(said["rank_per_thread"]) or None,
        "init_timeout_ms": None if said["init_timeout"] is None else milliseconds(said["init_timeout"], "init_timeout"),
        "timeout_ms": None if said["timeout"] is None else milliseconds(said["timeout"]),
        "stall_timeout_ms": None if said["stall_timeout"] is None else _stall_ms(said["stall_timeout"]),
        "progress_thread": None if said["progress_thread"] else 0,
    }
    return {name: value for name, value in given.items() if value is not None}


Given = TypeVar("Given")
_SETTINGS = {"nccl_library", "cuda_library"}


def _one_of(name: str, value: Optional[Given], other_name: str, other: Optional[Given]) -> Optional[Given]:
    """Returns a setting that has two names. Raises ValueError if both are given and differ."""
    if value is not None and other is not None and value != other:
        raise ValueError(f"{name} is {value!r} and {other_name} is {other!r}; expected only one of them, or the same value for both")
    return other if value is None else value


def _without_mpi(sources: Optional[int]) -> int:
    """Returns the sources of rank and size that remain with auto_mpi_discovery=False."""
    discovery = int(_raw.Source.PMIX | _raw.Source.LAUNCHER)
    if sources is not None and integer("sources", sources, 0, 2**32 - 1) & discovery:
        raise ValueError("auto_mpi_discovery is False, but sources contains PMIX or LAUNCHER; expected sources without them")
    return int(_raw.Source.OPTIONS | _raw.Source.ENV | _raw.Source.SINGLE) if sources is None else sources


def _init(given: dict[str, Any], here: bool) -> Communicator:
    """Creates or joins the world with the given options, and with the path of NCCL if this package has to find it.

    If here is true the call runs on this thread: with rank_per_thread the world belongs to the calling thread.
    """
    wheel = None if "nccl_library" in given else _wheel_for(given)
    if wheel is not None:
        given["nccl_library"] = wheel.encode(errors="surrogateescape")
    joined = _join(_options(given), here)
    _given_wheels.setdefault(joined._handle, wheel)
    return joined


# The path of NCCL with which each world was made. Later calls for a world must pass equal options.
_given_wheels: dict[int, Optional[str]] = {}


def _wheel_for(given: dict[str, Any]) -> Optional[str]:
    """Returns the path of NCCL that this package finds. None if the library may not need it, or if a world has none."""
    if is_initialized():
        return _given_wheels.get(world()._handle) if given else None
    backend = given.get("backend", int(_raw.Backend.AUTO))
    if backend not in (_raw.Backend.AUTO, _raw.Backend.DEVICE):
        return None
    return _nccl.wheel_for(backend == _raw.Backend.DEVICE or given.get("device", -1) >= 0)


def _join(options: Optional[_raw.InitOptions], here: bool) -> Communicator:
    handle = c_void_p()
    if here:
        code = lib.dsc_init_distributed(options, byref(handle))
        text, ranks = last_message(), last_ranks()
    else:
        function = _streams.in_own_context(lib.dsc_init_distributed)
        code, text, ranks = _interrupt.call_on_other_thread(function, options, byref(handle))
    if code < 0:
        if is_importing_script():
            text += "; init_distributed() is called in a new process of multiprocessing that is importing the program's script: " + UNGUARDED
        raise from_code(code, text, op="init_distributed", rank=ranks[0] if ranks else None, ranks=ranks)
    assert handle.value is not None
    return communicator_of(handle.value, is_world=True)


def launch_report() -> dict[str, Any]:
    """Reports what init_distributed() would do here, without joining other ranks.

    The dict has three entries:

        "sources"   every source of rank and size, with its variables and why it is used or not
        "start"     rank, sizes, address, port and job id, where each came from, how the ranks would meet, and what
                    else to set ("advice"); or None
        "error"     code and text of the error that init_distributed() would raise before it contacts other ranks;
                    or None
    """
    return dict(json.loads(text_of(lib.dsc_launch_json, None)))


def _texts(**given: Optional[str]) -> dict[str, Any]:
    return {name: optional_string(name, value) for name, value in given.items()}


def _stall_ms(seconds: Seconds) -> int:
    """Returns a stall time-out in milliseconds; 0 means never."""
    return 0 if seconds_of(seconds, "stall_timeout") == 0 else milliseconds(seconds, "stall_timeout")


def _options(given: dict[str, Any]) -> Optional[_raw.InitOptions]:
    """Returns the C options, or None if no argument was given: then any existing world is accepted."""
    if not given:
        return None
    options = _raw.InitOptions()
    check(lib.dsc_init_options_init(byref(options), ctypes.sizeof(options)))
    give_settings(options, {name: given.get(name) for name in _SETTINGS})
    for name in given.keys() - _SETTINGS:
        setattr(options, name, given[name])
    return options


def world() -> Communicator:
    """Returns the world. Raises StateError before init_distributed() and after finalize()."""
    handle = c_void_p()
    check(lib.dsc_world(byref(handle)))
    assert handle.value is not None
    return communicator_of(handle.value, is_world=True)


def is_initialized() -> bool:
    """Returns whether the world exists."""
    initialized = c_int32()
    check(lib.dsc_is_initialized(byref(initialized)))
    return bool(initialized.value)


def finalize() -> None:
    """Waits for all ranks and ends the world. Collective. Later operations on its groups raise StateError."""
    if not is_initialized():
        check(lib.dsc_finalize())  # raises the library's error
    current = world()
    code = _interrupt.call(current._stop, lib.dsc_finalize)
    text, ranks = (last_message(), last_ranks()) if code < 0 else ("", ())
    if code == 0 or not is_initialized():  # a refused call leaves the world unchanged
        _nonfinite.forget(current._handle)
        _given_wheels.pop(current._handle, None)
        current._attached.clear()
        current._handle = 0
        # Releases dropped operations now, because later calls must not access the communicator.
        reap_ended(current)
    if code < 0:
        raise from_code(code, text, op="finalize", rank=ranks[0] if ranks else None, ranks=ranks)
