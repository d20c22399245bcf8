"""Modules whose parameters are divided among the ranks (tensor parallelism), based on libdsc.torch.functional.

    from libdsc.torch import layers

    mlp = torch.nn.Sequential(
        layers.ColumnParallelLinear(1024, 4096), torch.nn.GELU(), layers.RowParallelLinear(4096, 1024)
    )

If all ranks use the same seed, a layer has the same initial values as torch's own layer, for any number of ranks. Each
rank keeps its part of them.
"""

from __future__ import annotations

from typing import Any, Iterator, Optional

import torch
from torch import nn

from libdsc._arguments import integer, real
from libdsc._autograd import mapping_step
from libdsc._communicator import Communicator
from libdsc._raw import TensorMapping
from libdsc._tensor_map import split_range
from libdsc.torch import functional as dscf
from libdsc.torch._functional.arguments import group_of
from libdsc.torch._functional.layers import expect_one_output, expect_parallel_input

__all__ = [
    "ColumnParallelLinear",
    "RowParallelLinear",
    "VocabParallelEmbedding",
    "clip_grad_norm_",
    "load_whole_state_dict",
    "sum_gradients",
    "whole_state_dict",
]


class _Ranks:
    """The group of a layer. Copies of the layer share it."""

    def __init__(self, group: Any) -> None:
        self.group = group

    def __deepcopy__(self, _: Any) -> _Ranks:
        return self

    def __reduce__(self) -> Any:
        if self.group is not None:
            raise TypeError("a layer with group= cannot be pickled; use whole_state_dict(layer), or a layer without group=")
        return _Ranks, (None,)


class _Divided(nn.Module):  # type: ignore[misc]
    """A layer of torch that is divided among the ranks. Each rank keeps a part.

    Its divided parameters have the attributes of Megatron-LM's, and the rank of the part. Programs use them to
    distinguish parts from replicas.
    """

    # The dimension along which each parameter is divided. Parameters that are not listed are complete on each rank.
    _DIMS: dict[str, int] = {}
    _fused = 1  # the number of layers that are fused in this one, each divided separately

    def _take(self, plain: nn.Module, group: Any) -> None:
        """Turns this module into this rank's part of a complete layer, which must be equal on all ranks."""
        self._ranks, self._rank = _Ranks(group), group_of(group).rank
        for name in ("weight", "bias"):
            whole = getattr(plain, name, None)
            part = None if whole is None else nn.Parameter(self._part(name, whole.detach()).clone(), whole.requires_grad)
            self.register_parameter(name, part)
        self.train(plain.training)

    def register_parameter(self, name: str, param: Optional[nn.Parameter]) -> None:
        """Same as in torch.nn.Module. torch also calls it when a parameter is assigned."""
        super().register_parameter(name, param)
        self._mark()

    def _apply(self, *arguments: Any, **options: Any) -> Any:
        applied = super()._apply(*arguments, **options)
        self._mark()  # marks new parameters, if torch has created any
        return applied

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        self._mark()  # marks the parameters of a copy

    def _mark(self) -> None:
        for name, dim in self._DIMS.items():
            parameter = self._parameters.get(name)
            if parameter is not None:
                parameter.tensor_model_parallel, parameter.partition_dim, parameter.partition_stride = True, dim, self._fused
                parameter.partition_rank = self._rank

    def _part(self, name: str, whole: torch.Tensor) -> torch.Tensor:
        dim = self._DIMS.get(name)
        if dim is None:
            return whole
        comm = self._comm()
        rows = split_range(whole.shape[dim] // self._fused, comm.size, comm.rank)
        parts = [each.narrow(dim, rows.start, len(rows)) for each in whole.chunk(self._fused, dim)]
        return parts[0] if self._fused == 1 else torch.cat(parts, dim)

    def _gathered(self, name: str, parameter: torch.Tensor) -> torch.Tensor:
        """Returns the complete parameter, gathered from all ranks. Collective."""
        comm, dim, whole = self._comm(parameter.device), self._DIMS[name], _whole_size(self, name)
        parts = [len(split_range(whole, comm.size, rank)) for rank in range(comm.size)]
        found = mapping_step(parameter, comm, TensorMapping.GATHER, dim, parts)
        if self._fused == 1:
            return found
        of_ranks = found.unflatten(dim, (comm.size, self._fused, -1))
        return of_ranks.transpose(dim, dim + 1).flatten(dim, dim + 2).contiguous()

    def _comm(self, device: Optional[torch.device] = None) -> Communicator:
        return group_of(self.group, device)

    @property
    def group(self) -> Any:
        """The group, as passed to the constructor."""
        return self._ranks.group

    def _plain(self) -> nn.Module:
        """Returns a new layer of torch with the complete size."""
        raise NotImplementedError

    @torch.no_grad()  # type: ignore[misc]
    def reset_parameters(self) -> None:
        """Draws new values. They are those that torch's layer would get for the same state of the generator."""
        plain = self._plain()
        for name, parameter in self.named_parameters(recurse=False):
            parameter.copy_(self._part(name, getattr(plain, name)))


def _expect_kind(name: str, plain: Any, kind: type) -> None:
    """Raises for a subclass of torch's layer or a layer with hooks, because the divided layer would ignore them."""
    if type(plain) is not kind:
        raise TypeError(f"{name} is a {type(plain).__name__}; expected a torch.nn.{kind.__name__}, not a subclass")
    if any(getattr(plain, f"_{when}_hooks") for when in ("forward_pre", "forward", "backward_pre", "backward")):
        raise ValueError(f"{name} has hooks; register hooks with the divided layer instead")


class _Linear(_Divided):
    _WHAT = ""  # the name of the features that are divided

    def __init__(
        self, in_features: int, out_features: int, bias: bool, device: Any, dtype: Any, group: Any, **options: Any
    ) -> None:
        super().__init__()
        self.in_features, self.out_features, self._options = in_features, out_features, options
        count, size = getattr(self, self._WHAT), group_of(group).size
        if count % (size * self._fused):
            times = f" times {self._fused} fused layers" if self._fused > 1 else ""
            raise ValueError(f"{self._WHAT} is {count}; expected a multiple of {size * self._fused}, the number of ranks{times}")
        self._take(nn.Linear(in_features, out_features, bias, device, dtype), group)

    @classmethod
    def _from(cls, linear: nn.Linear, group: Any, **options: Any) -> Any:
        _expect_kind("linear", linear, nn.Linear)
        layer = cls(linear.in_features, linear.out_features, linear.bias is not None, "meta", group=group, **options)
        layer._take(linear, group)
        return layer

    def _plain(self) -> nn.Module:
        weight = self.weight
        return nn.Linear(self.in_features, self.out_features, self.bias is not None, weight.device, weight.dtype)

    def extra_repr(self) -> str:
        """Returns what print() shows of the layer."""
        options = "".join(f", {name}={value}" for name, value in self._options.items())
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}{options}"


class ColumnParallelLinear(_Linear):
    """A torch.nn.Linear whose output features are divided among the ranks.

    Args:
        in_features, out_features, bias, device, dtype: as in torch.nn.Linear; out_features must be a multiple of the
            number of ranks.
        group: the ranks, see libdsc.torch.functional.
        fused: how many layers of equal size are fused in this one: 3 for q, k and v, 2 for a gate and a value. Each is
            divided separately; a rank has its part of each, one after another. 1: the features are divided as one
            block.
        gather_output: True returns all features on each rank.
        sequence_parallel: True: the input is this rank's part of the sequence; all parts are gathered.
        sequence_dim: the dimension of the sequence.
    """

    _DIMS = {"weight": 0, "bias": 0}
    _WHAT = "out_features"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        group: Any = None,
        fused: int = 1,
        gather_output: bool = False,
        sequence_parallel: bool = False,
        sequence_dim: int = 0,
    ) -> None:
        expect_one_output(gather_output, sequence_parallel)
        if integer("fused", fused, 1) > 1 and gather_output:
            raise ValueError(f"fused is {fused} and gather_output is True; expected only one of them, because gathering would mix the fused layers")
        options = {"gather_output": gather_output, "sequence_parallel": sequence_parallel, "sequence_dim": sequence_dim}
        self._fused = fused
        super().__init__(in_features, out_features, bias, device, dtype, group, **options)

    @classmethod
    def from_linear(
        cls,
        linear: nn.Linear,
        group: Any = None,
        *,
        fused: int = 1,
        gather_output: bool = False,
        sequence_parallel: bool = False,
        sequence_dim: int = 0,
    ) -> ColumnParallelLinear:
        """Returns this rank's part of a layer that has the same values on all ranks."""
        made: ColumnParallelLinear = cls._from(
            linear, group, fused=fused, gather_output=gather_output, sequence_parallel=sequence_parallel, sequence_dim=sequence_dim
        )
        return made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Applies column_parallel_linear()."""
        return dscf.column_parallel_linear(x, self.weight, self.bias, self.group, **self._options)


class RowParallelLinear(_Linear):
    """A torch.nn.Linear whose input features are divided among the ranks. Each rank has the whole bias.

    Args:
        in_features, out_features, bias, device, dtype: as in torch.nn.Linear; in_features must be a multiple of the
            number of ranks.
        group: the ranks, see libdsc.torch.functional.
        input_is_parallel: False: the input has all features.
        sequence_parallel: True returns this rank's part of the sequence.
        sequence_dim: the dimension of the sequence.
    """

    _DIMS = {"weight": 1}
    _WHAT = "in_features"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        group: Any = None,
        input_is_parallel: bool = True,
        sequence_parallel: bool = False,
        sequence_dim: int = 0,
    ) -> None:
        expect_parallel_input(input_is_parallel, sequence_parallel)
        options = {"input_is_parallel": input_is_parallel, "sequence_parallel": sequence_parallel, "sequence_dim": sequence_dim}
        super().__init__(in_features, out_features, bias, device, dtype, group, **options)

    @classmethod
    def from_linear(
        cls,
        linear: nn.Linear,
        group: Any = None,
        *,
        input_is_parallel: bool = True,
        sequence_parallel: bool = False,
        sequence_dim: int = 0,
    ) -> RowParallelLinear:
        """Returns this rank's part of a layer that has the same values on all ranks."""
        made: RowParallelLinear = cls._from(
            linear, group, input_is_parallel=input_is_parallel, sequence_parallel=sequence_parallel, sequence_dim=sequence_dim
        )
        return made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Applies row_parallel_linear()."""
        return dscf.row_parallel_linear(x, self.weight, self.bias, self.group, **self._options)


class VocabParallelEmbedding(_Divided):
    """A torch.nn.Embedding whose rows are divided among the ranks; any number of rows is allowed.

    Args:
        num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, device, dtype: as
            in torch.nn.Embedding.
        group: the ranks, see libdsc.torch.functional.
        sequence_parallel: True returns this rank's part of the sequence.
        sequence_dim: the dimension of the sequence.
    """

    _DIMS = {"weight": 0}
    _OPTIONS = ("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: Optional[int] = None,
        max_norm: Optional[float] = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        group: Any = None,
        sequence_parallel: bool = False,
        sequence_dim: int = 0,
    ) -> None:
        super().__init__()
        # Checks the group before memory for the complete layer is allocated.
        group_of(group)
        plain = nn.Embedding(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, None, False, device, dtype
        )
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self._options = {name: getattr(plain, name) for name in self._OPTIONS}
        self._sequence: dict[str, Any] = {"sequence_parallel": sequence_parallel, "sequence_dim": sequence_dim}
        self._take(plain, group)

    @classmethod
    def from_embedding(
        cls, embedding: nn.Embedding, group: Any = None, *, sequence_parallel: bool = False, sequence_dim: int = 0
    ) -> VocabParallelEmbedding:
        """Returns this rank's part of a layer that has the same values on all ranks."""
        _expect_kind("embedding", embedding, nn.Embedding)
        options: dict[str, Any] = {name: getattr(embedding, name) for name in cls._OPTIONS}
        options.update({"device": "meta", "group": group, "sequence_parallel": sequence_parallel, "sequence_dim": sequence_dim})
        layer = cls(embedding.num_embeddings, embedding.embedding_dim, **options)
        layer._take(embedding, group)
        return layer

    def _plain(self) -> nn.Module:
        options = {**self._options, "device": self.weight.device, "dtype": self.weight.dtype}
        return nn.Embedding(self.num_embeddings, self.embedding_dim, **options)

    def extra_repr(self) -> str:
        """Returns what print() shows of the layer."""
        return f"{self.num_embeddings}, {self.embedding_dim}, padding_idx={self._options['padding_idx']}"

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Applies vocab_parallel_embedding()."""
        options: dict[str, Any] = {**self._options, **self._sequence, "num_embeddings": self.num_embeddings}
        return dscf.vocab_parallel_embedding(tokens, self.weight, self.group, **options)


# ---- whole models --------------------------------------------------------------------------------------------------


def whole_state_dict(module: nn.Module) -> dict[str, torch.Tensor]:
    """Returns a model's state_dict() with whole parameters on all ranks, as if its layers were torch's. Collective.

    Args:
        module: a module with any layers. The layers of libdsc.torch.layers, and parameters shared with them, are
            gathered.
    """
    state: dict[str, torch.Tensor] = dict(module.state_dict())
    for key, (layer, name) in _divided(module).items():
        state[key] = layer._gathered(name, getattr(layer, name).detach())
    return state


def load_whole_state_dict(module: nn.Module, state: dict[str, Any], strict: bool = True, assign: bool = False) -> Any:
    """Loads complete parameters; each rank keeps its part of them. Local.

    Args:
        module: as in whole_state_dict().
        state: the result of whole_state_dict(), on any number of ranks, or the state_dict() of a model of torch's
            layers.
        strict, assign: as in torch.nn.Module.load_state_dict(), whose result is returned. A module on the meta device
            needs assign=True, or a call of its to_empty() before.
    """
    parts = dict(state)
    for key, (layer, name) in _divided(module).items():
        if key not in parts:
            continue
        dim, whole = layer._DIMS[name], _whole_size(layer, name)
        if parts[key].dim() <= dim or parts[key].shape[dim] != whole:
            raise ValueError(f"{key} has shape {tuple(parts[key].shape)}; expected {whole} elements along dimension {dim}")
        part = layer._part(name, parts[key])
        # A copy, because the part is a view that would keep the memory of the complete parameter.
        parts[key] = part.clone() if assign else part
    return module.load_state_dict(parts, strict, assign)


def sum_gradients(module: nn.Module, group: Any = None) -> list[Any]:
    """Sums the gradients of a module's parameters over the ranks in each backward pass.
Use it for parameters that all ranks have, in modules that each rank applies to its own part of a sequence. An example
is a LayerNorm between layers with sequence_parallel.

Parameters of divided layers are excluded: each rank has its own part of them, and RowParallelLinear itself sums the
gradient of its bias. The call affects only the current parameters of the module, not those of later copies.

    Args:
        module: the module.
        group: the ranks, see libdsc.torch.functional.

    Returns:
        Handles; their remove() ends the summation.
    """

    def total(gradient: torch.Tensor) -> torch.Tensor:
        summed = dscf.all_reduce(gradient.to_dense(), "sum", group)
        return summed.to_sparse(gradient.sparse_dim()) if gradient.is_sparse else summed

    group_of(group)
    own = {id(parameter) for layer in module.modules() if isinstance(layer, _Divided) for parameter in layer.parameters()}
    return [each.register_hook(total) for each in module.parameters() if each.requires_grad and id(each) not in own]


@torch.no_grad()  # type: ignore[misc]
def clip_grad_norm_(module: nn.Module, max_norm: float, group: Any = None) -> torch.Tensor:
    """Clips the 2-norm of the gradients of a model with divided layers, and returns it. Collective.

    torch.nn.utils.clip_grad_norm_ uses only the parts of this rank, so it scales differently on each rank. Here the
    norm is that of the undivided model, the same on all ranks. If it is not finite, nothing is changed: skip the step.

    Args:
        module: the module. Gradients of parameters that are not divided must be the same on all ranks.
        max_norm: gradients are scaled down to this norm; infinite: no limit.
        group: the ranks that divide the layers, see libdsc.torch.functional.
    """
    limit, comm = real("max_norm", max_norm), group_of(group)
    known = [parameter for parameter in module.parameters() if parameter.grad is not None]
    # parameters that all ranks have are counted only on rank 0
    mine = [each for each in known if comm.rank == 0 or hasattr(each, "partition_rank")]
    norms = [torch.linalg.vector_norm(_values(each.grad), dtype=torch.float64) for each in mine]
    squares = sum((norm.cpu().square() for norm in norms), torch.zeros((), dtype=torch.float64)).view(1)
    comm.all_reduce(squares)
    total = squares.sqrt()[0]
    if total.isfinite() and total > limit:
        for each in known:
            _values(each.grad).mul_(limit / (total.item() + 1e-6))
    return total


def _values(gradient: torch.Tensor) -> torch.Tensor:
    return gradient._values() if gradient.is_sparse else gradient


def _divided(module: nn.Module) -> dict[str, tuple[_Divided, str]]:
    """Returns the divided parameters by their names in state_dict(), each with its layer and its name there."""
    how: dict[int, tuple[_Divided, str]] = {}
    for layer in module.modules():
        for name, parameter in _divided_parameters(layer):
            how[id(parameter)] = (layer, name)
    every = module.named_parameters(remove_duplicate=False)
    return {key: how[id(parameter)] for key, parameter in every if id(parameter) in how}


def _divided_parameters(layer: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yields the divided parameters of one layer, without those of submodules."""
    for name in layer._DIMS if isinstance(layer, _Divided) else ():
        if name not in layer._parameters:
            raise ValueError(f"{name} of a {type(layer).__name__} is not a parameter; expected a layer without torch.nn.utils.parametrizations")
        if layer._parameters[name] is not None:
            yield name, layer._parameters[name]


def _whole_size(layer: Any, name: str) -> int:
    """Returns the size of the complete parameter along the dimension that is divided."""
    if isinstance(layer, VocabParallelEmbedding):
        return integer("num_embeddings", layer.num_embeddings)
    return integer("features", layer.out_features if layer._DIMS[name] == 0 else layer.in_features)
