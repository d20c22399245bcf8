"""How the ranks of a process group of torch become a world of libdsc: through the group's own store."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any, Optional

import torch.distributed as dist

from libdsc._communicator import Communicator
from libdsc._raw import Source
from libdsc._start import init_distributed
from libdsc._store import Store


def join(
    store: Any, rank: int, size: int, timeout: timedelta, name: str, device: Optional[int] = None
) -> Communicator:
    """Makes a world of all ranks that have this store. Collective among them, and nobody else takes part.

    Args:
        store: a torch.distributed.Store of the group's own, such as a PrefixStore.
        rank, size: of this process in the group.
        timeout: until the others have arrived, and then of each operation.
        name: of the group, which start-up names in its errors.
        device: the number of the GPU to bind; None: only memory of the host.
    """
    exchange = Store.from_callbacks(*_callbacks(store))
    made: list[Communicator] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            made.append(
                init_distributed(
                    rank=rank,
                    world_size=size,
                    backend="auto" if device is None else "device",
                    device=device,
                    sources=int(Source.OPTIONS),
                    job_id=name,
                    store=exchange,
                    init_timeout=timeout,
                    timeout=timeout,
                    rank_per_thread=True,
                )
            )
        except BaseException as error:
            failed.append(error)

    # A thread may be a rank of one world, and a process has one world for each of its groups. This thread ends, its
    # world stays.
    thread = threading.Thread(target=run, name="libdsc-join", daemon=True)
    thread.start()
    thread.join()  # which Ctrl-C ends
    if failed:
        raise failed[0]
    return made[0]


def _callbacks(store: Any) -> tuple[Any, Any]:
    """Puts and gets values in a store of torch, which may be another process's."""
    own = _own_connection(store)

    def put(key: str, value: bytes, timeout_s: float) -> None:
        own.set(key, bytes(value))

    def get(key: str, timeout_s: float) -> bytes:
        try:
            own.wait([key], timedelta(seconds=max(timeout_s, 0.001)))
        except dist.DistStoreError as error:
            raise TimeoutError(str(error)) from error
        return bytes(own.get(key))

    return put, get


def _own_connection(store: Any) -> Any:
    """A store that a wait may hold while other threads use the given one; the given one where it cannot be cloned."""
    try:
        return store.clone()
    except (AttributeError, RuntimeError, NotImplementedError):
        return store
