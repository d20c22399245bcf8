"""Makes the ranks of a process group of torch a world of libdsc. They meet through the group's own store."""

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
    """Makes a world of the ranks that share this store. Collective among these ranks only.

    Args:
        store: a torch.distributed.Store that only this group uses, such as a PrefixStore.
        rank, size: this process's rank in the group, and the number of ranks.
        timeout: the longest time until the other ranks arrive, and the longest time of each operation.
        name: the name of the group, for errors of start-up.
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

    # A process has a world for each of its groups, but a thread can be a rank of only one world. So each world is made
    # on a new thread. The world continues to exist after the thread has ended.
    thread = threading.Thread(target=run, name="libdsc-join", daemon=True)
    thread.start()
    thread.join()  # Ctrl-C ends this wait
    if failed:
        raise failed[0]
    return made[0]


def _callbacks(store: Any) -> tuple[Any, Any]:
    """Returns functions that put and get values in a store of torch, which may be served by another process."""
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
    """Returns a clone of a store, so that a wait does not block other threads; the store itself if it has no clone."""
    try:
        return store.clone()
    except (AttributeError, RuntimeError, NotImplementedError):
        return store
