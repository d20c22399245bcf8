"""Planning without communication: which layers are on which stage, and seeds that do not depend on the stages."""

from __future__ import annotations

import ctypes
import re
from ctypes import byref, c_double, c_size_t, c_uint64
from typing import Any, Optional, Sequence

from libdsc import _raw
from libdsc._arguments import INT32, SIZE, brief, integer, integers, real, string
from libdsc._library import check, lib

TYPE_PREFIX = "type:"


class Partition(list[int]):
    """The boundaries of consecutive parts: part p holds the layers self[p] to self[p + 1] - 1.

    It is a list, and compares equal to one. str() lists the layers of every stage, and the loss, in DeepSpeed's format.
    """

    def __init__(
        self,
        boundaries: Sequence[int],
        names: Optional[Sequence[Any]] = None,
        loss: Any = None,
        weights: Optional[Sequence[float]] = None,
    ) -> None:
        super().__init__(boundaries)
        self.names = None if names is None else [_name(layer) for layer in names]
        self.loss = None if loss is None else _name(loss)
        self._layer_weights = weights

    @property
    def parts(self) -> int:
        """The number of parts."""
        return len(self) - 1

    @property
    def weights(self) -> list[float]:
        """The weight of each part."""
        if self._layer_weights is None:
            raise ValueError("this partition has no weights, because it was created without weights")
        return [sum(self._layer_weights[i] for i in self.layers(part)) for part in range(self.parts)]

    def layers(self, part: int) -> range:
        """The layers of one part."""
        if not 0 <= integer("part", part) < self.parts:
            raise ValueError(f"part is {part}; expected 0 to {self.parts - 1}")
        return range(self[part], self[part + 1])

    def part_of(self, layer: int) -> int:
        """The part that holds a layer."""
        if not 0 <= integer("layer", layer) < self[-1]:
            raise ValueError(f"layer is {layer}; expected 0 to {self[-1] - 1}")
        return next(part for part in range(self.parts) if layer < self[part + 1])

    def __str__(self) -> str:
        lines = []
        for part in range(self.parts):
            layers = self.layers(part)
            lines.append(f"stage={part} layers={len(layers)}")
            if self.names is not None:
                lines += [f"    {i:2d}: {self.names[i]}" for i in layers]
        if self.loss is not None:
            lines.append(f"  loss: {self.loss}")
        return "\n".join(lines)


def partition_layers(
    weights: Optional[Sequence[float]],
    parts: int,
    method: str = "bottleneck",
    *,
    layer_bytes: Optional[Sequence[int]] = None,
    part_limits: Any = None,
    names: Optional[Sequence[Any]] = None,
    loss: Any = None,
) -> Partition:
    """Divides a list of layers into consecutive parts, one per stage; returns the boundaries.

    Args:
        weights: the weight of each layer, 0 or more, in any unit, such as its parameters or its time. May be None only
            with names and a method that needs no weights.
        parts: the number of stages.
        method: one of these:

            - "bottleneck": makes the heaviest part as light as possible, then the next-heaviest, and so on. No part is
              empty.
            - "uniform" and "deepspeed_balanced": as DeepSpeed does it. "uniform_v0" is DeepSpeed's method up to
              v0.10.0, "deepspeed_balanced_v0" that up to v0.12.4.
            - "type:REGEX": counts the layers whose name contains REGEX, ignoring case, and divides by
              "deepspeed_balanced", as DeepSpeed does.
            - "parameters": divides by weights with "deepspeed_balanced". If names has torch modules, weights may be
              None; then their trained parameters are counted.
        layer_bytes: the memory that each layer takes, for "bottleneck".
        part_limits: the memory of a part in bytes: one number for all parts, or one for each.
        names: the names of the layers, or the layers themselves, whose class or function gives the name.
        loss: name of the loss function, or the function.
    """
    if names is not None and weights is not None and len(names) != len(weights):
        raise ValueError(f"names has {len(names)} entries; expected {len(weights)}, one per layer")
    if method[: len(TYPE_PREFIX)].lower() == TYPE_PREFIX:
        weights, method = type_weights(_needed(names, method), method[len(TYPE_PREFIX) :]), "deepspeed_balanced"
    if method.lower() == "parameters":
        weights = _parameter_counts(names) if weights is None else weights
        method = "deepspeed_balanced"
    if weights is None and "uniform" not in method:
        raise ValueError(f"weights is None; expected one number per layer for method {method!r}")
    n_layers = len(_needed(names, method)) if weights is None else len(weights)
    numbers = None if weights is None else [real(f"weights[{i}]", weight) for i, weight in enumerate(weights)]
    options, kept = _options(method, n_layers, layer_bytes, part_limits)
    boundaries = (c_size_t * (integer("parts", parts, 0) + 1))()
    given = None if numbers is None else (c_double * max(1, n_layers))(*numbers)
    check(lib.dsc_pipe_partition(given, n_layers, parts, byref(options), boundaries))
    del kept
    return Partition(list(boundaries), names, loss, numbers)


def type_weights(names: Sequence[Any], regex: str) -> list[float]:
    """Returns 1 for each layer whose name contains the regular expression, ignoring case, and 0 for the others."""
    pattern = re.compile(regex, re.IGNORECASE)
    weights = [1.0 if pattern.search(_name(layer)) else 0.0 for layer in names]
    if not any(weights):
        raise ValueError(f"no layer has {regex!r} in its name; the names are {sorted({_name(n) for n in names})}")
    return weights


def _parameter_counts(layers: Optional[Sequence[Any]]) -> list[float]:
    """Returns the number of trained parameter elements of each layer. It is 0 for layers without parameters."""
    if layers is None or any(isinstance(layer, str) for layer in layers):
        raise ValueError(
            "weights is None; expected the number of parameters of each layer for method 'parameters', or the layers "
            "themselves in names"
        )
    counts = []
    for layer in layers:
        parameters = getattr(layer, "parameters", None)
        own = parameters() if callable(parameters) and not isinstance(layer, type) else ()
        counts.append(float(sum(p.numel() for p in own if p.requires_grad)))
    return counts


def _name(layer: Any) -> str:
    """Returns DeepSpeed's name of a layer: that of a function or class, otherwise that of the object's class."""
    if isinstance(layer, str):
        return layer
    return str(getattr(layer, "__name__", type(layer).__name__))


def _needed(names: Optional[Sequence[Any]], method: str) -> Sequence[Any]:
    if names is None:
        raise ValueError(f"names is None; expected the names of the layers for method {method!r}")
    return names


def _options(method: str, n_layers: int, layer_bytes: Any, part_limits: Any) -> tuple[_raw.PipePartitionOptions, Any]:
    """Returns the options, and a list of the objects that must stay alive with them."""
    options = _raw.PipePartitionOptions()
    check(lib.dsc_pipe_partition_options_init(byref(options), ctypes.sizeof(options)))
    kept = [string("method", method)]
    options.method = kept[0]
    if layer_bytes is not None:
        if len(layer_bytes) != n_layers:
            raise ValueError(f"layer_bytes has {len(layer_bytes)} entries; expected {n_layers}, one per layer")
        options.layer_bytes = (c_uint64 * max(1, n_layers))(*integers("layer_bytes", layer_bytes, *SIZE))
    if part_limits is not None:
        limits = list(part_limits) if hasattr(part_limits, "__len__") else [part_limits]
        options.part_limits = (c_uint64 * max(1, len(limits)))(*integers("part_limits", limits, *SIZE))
        options.n_part_limits = len(limits)
    return options, kept


def seed_layer(seed: int, layer: int, method: str = "split_mix") -> int:
    """Returns the 64-bit seed of a layer. It depends only on seed and layer, never on stages or ranks.

    Args:
        seed: the seed of the run.
        layer: index of the layer in the whole model.
        method: "split_mix": neighboring seeds share no numbers. "deepspeed": seed + layer, as DeepSpeed does with
            seed_layers and base_seed (1234 by default).
    """
    found, numbers = c_uint64(), (integer("seed", seed, *SIZE), integer("layer", layer, *SIZE))
    check(lib.dsc_rng_layer_seed(*numbers, string("method", method), byref(found)))
    return found.value


def seed_region(seed: int, region: str, tensor_rank: int = 0, expert_rank: int = 0, expert_tensor_rank: int = 0) -> int:
    """Returns the seed of a region on one rank, with Megatron's numbers.

    Args:
        seed: the seed of the run, or of the stage.
        region: "data": seed; "tensor": seed + 2718 + tensor_rank; "expert": seed + 1024 + 100 * expert_rank +
            expert_tensor_rank.
        tensor_rank: rank in the tensor-parallel group.
        expert_rank: rank in the expert-parallel group.
        expert_tensor_rank: rank in the tensor-parallel group of the experts.
    """
    known = {member.name.lower(): int(member) for member in _raw.RngRegion}
    if region not in known:
        raise ValueError(f"region is {brief(region)}; expected one of {', '.join(known)}")
    ranks = (("tensor_rank", tensor_rank), ("expert_rank", expert_rank), ("expert_tensor_rank", expert_tensor_rank))
    numbers = [integer(name, rank, *INT32) for name, rank in ranks]
    found = c_uint64()
    check(lib.dsc_rng_region_seed(integer("seed", seed, *SIZE), known[region], *numbers, byref(found)))
    return found.value
