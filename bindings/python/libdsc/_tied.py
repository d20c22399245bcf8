"""Tied layers: weights that several stages of a pipeline share."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int32, c_size_t, c_void_p
from typing import Any, Mapping, NoReturn, Optional, Sequence

from libdsc import _interrupt, _raw
from libdsc._arguments import INT32, SIZE, integer, integers, string
from libdsc._communicator import Communicator
from libdsc._library import OnlyOne, check, last_message, lib
from libdsc._tensors import Tensors, wait_for_data
from libdsc._streams import place_of


def tied_stages(boundaries: Sequence[int], layers: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """Returns the stages that hold each key, in the order of the keys. The first stage of a key owns its weights.

    Args:
        boundaries: a partition, as partition_layers() returns it.
        layers: the layers that share weights, by key: {"embed": [0, 25]}.
    """
    entries = [(key, layer) for key, of_key in layers.items() for layer in of_key]
    n, parts = len(entries), max(0, len(boundaries) - 1)
    names = (c_char_p * max(1, n))(*[string("a key of layers", key) for key, _ in entries])
    numbers = (c_size_t * max(1, n))(*[integer(f"layers[{key!r}]", layer, *SIZE) for key, layer in entries])
    limits = (c_size_t * max(1, len(boundaries)))(*integers("boundaries", boundaries, *SIZE))
    firsts, starts, stages, n_keys = (c_size_t * max(1, n))(), (c_size_t * (n + 1))(), (c_int32 * max(1, n))(), c_size_t()
    check(lib.dsc_tied_plan(names, numbers, n, limits, parts, firsts, starts, stages, byref(n_keys)))
    return {entries[firsts[k]][0]: list(stages[starts[k] : starts[k + 1]]) for k in range(n_keys.value)}


class TiedLayers(OnlyOne):
    """Keeps weights of several pipeline stages equal: copies them once, and sums their gradients. Collective.

        tied = dsc.TiedLayers(pipe, dsc.tied_stages(partition, {"embed": [0, 25]}), {"embed": embedding})
        ...
        tied.reduce({"embed": gradient})      # once per batch, before the optimizer's step

    All ranks must pass the same stages. If ranks pass different values, all of them raise MismatchError, which names
    the ranks, and the communicator keeps working.

    Args:
        world: the communicator; rank s is stage s, unless ranks says otherwise.
        stages: the stages that hold each key, for all keys, including those that this stage does not hold.
        weights: this stage's arrays, by key: an array, or a list of arrays.
        ranks: the ranks of the stages of each pipeline: [[0, 1], [2, 3]] for two pipelines of two stages.
        sync: False leaves the weights as they are. Otherwise those of each key's first stage are copied.
        dtype: the element type of all weights and gradients, such as "bf16".
    """

    __slots__ = ("_world", "_dtype", "_handle", "_shape", "__weakref__")

    def __init__(
        self,
        world: Communicator,
        stages: Mapping[str, Sequence[int]],
        weights: Mapping[str, Any],
        ranks: Optional[Sequence[Sequence[int]]] = None,
        sync: bool = True,
        dtype: Any = None,
    ) -> None:
        self._world, self._handle = world, 0
        self._shape: list[tuple[str, int]] = []
        own = {key: _as_list(arrays) for key, arrays in weights.items()}
        flat = [array for arrays in own.values() for array in arrays]
        tensors = Tensors(world, flat, "weights", dtype, bool(sync))
        keys, kept = _keys(stages, own, tensors)
        options, table = _options(ranks, sync)
        made = c_void_p()
        wait_for_data(tensors)
        world._call(lib.dsc_tied_layers_create, keys, len(keys), byref(options), byref(made))
        del kept, table
        assert made.value is not None
        self._dtype, self._handle = dtype, made.value
        # The order is that of the keys passed to the library.
        self._shape = [(key, len(own[key])) for key in [*stages, *(k for k in own if k not in stages)] if key in own]

    def __repr__(self) -> str:
        keys = ", ".join(repr(key) for key, _ in self._shape) or "none here"
        return f"<libdsc.TiedLayers on {self._world.name!r}{f': {keys}' if self._handle else ', closed'}>"

    def reduce(self, grads: Mapping[str, Any], *, stream: Any = None) -> None:
        """Sums the gradients over the stages that hold each key, in place, without dividing. Collective.

        Args:
            grads: this stage's arrays, by key: as many as the weights.
            stream: the stream on which the gradients are computed, for arrays on a GPU.
        """
        given = {key: _as_list(arrays) for key, arrays in grads.items()}
        if {key: len(arrays) for key, arrays in given.items()} != dict(self._shape):
            got = {key: len(arrays) for key, arrays in given.items()}
            raise ValueError(f"grads has {got} arrays per key; expected {dict(self._shape)}, like weights")
        flat = [array for key, _ in self._shape for array in given[key]]
        tensors = Tensors(self._world, flat, "grads", self._dtype, True)
        place = place_of(self._world, [buffer.owner for buffer in tensors.buffers], stream)
        handle = None if place is None else place.stream
        arguments = (self._handle, tensors.array, tensors.length, handle)
        self._check(_interrupt.call(self._stop, lib.dsc_tied_layers_reduce, *arguments), "reduce")

    def owner(self, key: str) -> int:
        """The stage that owns the weights of a key: the first one that holds it."""
        return self._owner(key)[0]

    def counts(self, key: str) -> bool:
        """Whether this rank counts the weights of a key in a norm over all stages. Only the owner does."""
        return self._owner(key)[1]

    def _owner(self, key: str) -> tuple[int, bool]:
        stage, counts = c_int32(), c_int32()
        code = lib.dsc_tied_layers_owner(self._handle, string("key", key), byref(stage), byref(counts))
        self._check(code, "owner")
        return stage.value, bool(counts.value)

    def close(self) -> None:
        """Releases the groups. Other ranks that wait in reduce() get an error. May be called twice."""
        handle, self._handle = self._handle, 0
        lib.dsc_tied_layers_destroy(handle)

    def __enter__(self) -> TiedLayers:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            lib.dsc_tied_layers_destroy(self._handle)
        except Exception:  # at interpreter shutdown
            pass

    def _stop(self) -> None:
        """Makes reduce() return on all ranks."""
        self._world._stop()
        lib.dsc_tied_layers_destroy(self._handle)

    def _check(self, code: int, op: str) -> None:
        if code < 0:
            self._fail(code, last_message(), op)

    def _fail(self, code: int, text: str, op: str) -> NoReturn:
        if code == _raw.Result.ERR_BAD_HANDLE:
            text = f"{op}: the tied layers were closed"
        self._world._fail(code, text, f"tied_layers_{op}")


def _as_list(arrays: Any) -> list[Any]:
    return list(arrays) if isinstance(arrays, (list, tuple)) else [arrays]


def _keys(stages: Mapping[str, Sequence[int]], own: dict[str, list[Any]], tensors: Tensors) -> tuple[Any, Any]:
    """Returns the C array of all keys, and a list of the objects that must stay alive with it."""
    begins, begin = {}, 0
    for key, arrays in own.items():
        begins[key], begin = begin, begin + len(arrays)
    # a key without stages is an error, which the library reports to all ranks
    names = [*stages, *(key for key in own if key not in stages)]
    keys, kept = (_raw.TiedKey * max(1, len(names)))(), []
    for place, name in enumerate(names):
        of_key = integers(f"stages[{name!r}]", stages.get(name, ()), *INT32)
        kept.append((string("a key", name), (c_int32 * max(1, len(of_key)))(*of_key)))
        entry = keys[place]
        entry.struct_size, entry.key = ctypes.sizeof(_raw.TiedKey), kept[-1][0]
        entry.stages, entry.n_stages = kept[-1][1], len(of_key)
        if own.get(name):
            size = ctypes.sizeof(_raw.Tensor)
            first = ctypes.cast(ctypes.addressof(tensors.array) + begins[name] * size, ctypes.POINTER(_raw.Tensor))
            entry.weights, entry.n_weights = first, len(own[name])
    return (keys if names else (_raw.TiedKey * 0)()), kept


def _options(ranks: Optional[Sequence[Sequence[int]]], sync: bool) -> tuple[_raw.TiedLayersOptions, Any]:
    options = _raw.TiedLayersOptions()
    check(lib.dsc_tied_layers_options_init(byref(options), ctypes.sizeof(options)))
    options.sync = int(bool(sync))
    if ranks is None:
        return options, None
    lengths = {len(pipeline) for pipeline in ranks}
    if len(lengths) > 1:
        raise ValueError(f"ranks has pipelines of {sorted(lengths)} stages; expected the same number of stages in all pipelines")
    flat = [rank for p, pipeline in enumerate(ranks) for rank in integers(f"ranks[{p}]", pipeline, *INT32)]
    table = (c_int32 * max(1, len(flat)))(*flat)
    options.ranks, options.n_stages, options.n_pipelines = table, lengths.pop() if lengths else 0, len(ranks)
    return options, table
