"""Training of a torch module whose parameters, gradients and optimizer state are sharded over all ranks."""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from typing import Any, Callable, Iterator, Mapping, NoReturn, Optional

import torch

from libdsc import errors
from libdsc._arguments import boolean
from libdsc._sharded import Sharded
from libdsc._types import ShardAverageLike, Stage
from libdsc.torch._modules import given
from libdsc.torch._modules import params
from libdsc.torch._sharded import arguments
from libdsc.torch._sharded import checkpoint
from libdsc.torch._sharded import module_state
from libdsc.torch._sharded import optimizer_state
from libdsc.torch._sharded.agreement import collective
from libdsc.torch._sharded.gathered import Gathered
from libdsc.torch._sharded.gradients import Gradients
from libdsc.torch._sharded.parts import Parts
from libdsc.torch._sharded.passes import Passes
from libdsc.torch._sharded.units import Selection, plan


class ShardedDataParallel(torch.nn.Module):  # type: ignore[misc]
    """Trains a module whose parameters, gradients and optimizer state are sharded over all ranks (ZeRO, FSDP).

    All ranks create it together; it uses rank 0's parameters and buffers. Call it in place of the module:

        model = ShardedDataParallel(module, units=[Block])
        optimizer = torch.optim.AdamW(model.parameters())
        loss = criterion(model(x), y)
        loss.backward()              # p.grad has this rank's part of the average when this returns
        model.clip_grad_norm_(1.0)
        optimizer.step()

    Between passes p.data is this rank's part of a parameter, in one dimension, and p.grad is the same part of its
    gradient. A part may be empty. This has three consequences:

    - Optimizers must be elementwise, such as SGD and AdamW.
    - Make optimizer groups by p.ndim before the module is wrapped.
    - Use clip_grad_norm_() of the wrapper. torch.nn.utils.clip_grad_norm_ would use the norm of this rank's parts.

    Args:
        module: the module, with its parameters in host memory.
        process_group: a group of the backend "dsc", or a communicator of libdsc. None: the default group, or libdsc's
            world.
        units: the submodules that are gathered separately, such as layers: classes, or a function of a module that
            returns a bool. The parameters of each, without those of nested units, are a unit. All other parameters, and
            those that several units share, form the root unit. It is gathered from the start of the forward pass to the
            end of the backward pass.
        stage: 1 shards optimizer state, 2 gradients too, 3 parameters too.
        shard_size: hybrid sharding: this many consecutive ranks, such as those of a host, share one copy of the model.
        prefetch: the number of units that are gathered ahead in stage 3, in the order of the previous step.
        max_live_bytes: the most bytes of whole parameters, and of whole gradients, at a time; 0: no limit.
        average: "pre" (times 1/n, then summed), "post" or "none".
        init_sync: False: each rank uses its own parameters and buffers instead of rank 0's.
        mixed_precision: not supported.
    """

    def __init__(
        self,
        module: Any,
        process_group: Optional[Any] = None,
        *,
        units: Selection = (),
        stage: Stage = 3,
        shard_size: int = 0,
        prefetch: int = 1,
        max_live_bytes: int = 0,
        average: ShardAverageLike = "pre",
        init_sync: bool = True,
        mixed_precision: Optional[Any] = None,
    ) -> None:
        given.expect_module(module)
        if any(isinstance(each, ShardedDataParallel) for each in module.modules()):
            raise ValueError("module contains a ShardedDataParallel; expected one ShardedDataParallel around the whole module, with units=")
        arguments.refuse_mixed_precision(mixed_precision)
        init_sync = boolean("init_sync", init_sync)
        named = params.named_params(module, set())
        arguments.expect_params(module, named)
        unit_plan = plan(module, named, units)
        comm = given.communicator_for(process_group, None)
        params.expect_replicas(comm, named)
        arguments.expect_alike(comm, named)
        super().__init__()
        options = {"shard_size": shard_size, "prefetch": prefetch, "max_live_bytes": max_live_bytes, "average": average}
        parts = Parts(comm, unit_plan, stage, sync=init_sync, **options)
        if init_sync:
            with torch.no_grad():
                params.broadcast(comm, params.named_buffers(module, set()), 0, False)
        self.module, self.process_group, self.stage = module, process_group, int(stage)
        self._comm, self._parts = comm, parts
        gathered = Gathered(parts, unit_plan, self.stage)
        self._passes = Passes(comm, gathered, Gradients(comm, parts))
        hooks = _register(weakref.ref(self._passes), module, unit_plan.modules, unit_plan.root, parts)
        ended = weakref.finalize(self, _end, self._passes, hooks)
        ended.atexit = False
        self._end = ended

    @property
    def sharded(self) -> Sharded:
        """The underlying Sharded, for its memory, units and stats()."""
        return self._parts.sharded

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Calls the module."""
        self._passes.expect_open("forward")
        try:
            return self.module(*inputs, **kwargs)
        except BaseException as error:
            if not isinstance(error, Exception):
                self._passes.interrupted()
            raise

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """After forward passes in its block, backward passes only sum gradients on this rank, outside of p.grad.

        with model.no_sync():
            for x, y in micro_batches[:-1]:
                criterion(model(x), y).backward()
        criterion(model(x), y).backward()  # averages the sums
        """
        before = self._passes.syncs
        self._passes.syncs = False
        try:
            yield
        finally:
            self._passes.syncs = before

    @contextlib.contextmanager
    def full_parameters(self) -> Iterator[None]:
        """Makes all parameters whole in its block, for reading only, as by generate() or an export. Collective.

        Passes inside compute no gradients. If the block writes to parameters, an error is raised at its end, because
        the values would be lost.
        """
        passes = self._passes
        try:
            with collective("full_parameters"):
                passes.refresh("full_parameters")
                passes.gathered.make_all_whole()
            passes.reads = True
            yield
        finally:
            passes.reads = False
            passes.gathered.release_all()
        passes.gathered.parts.expect_unwritten("full_parameters")

    @collective("clip_grad_norm_")
    def clip_grad_norm_(self, max_norm: float) -> float:
        """Clips the 2-norm of the gradients of all ranks together, and returns the norm. Collective.

        If the norm is not finite, no gradient is changed on any rank: skip the step.
        """
        self._passes.rest("clip_grad_norm_")
        self._passes.gradients.expect_sums("clip_grad_norm_")
        self._parts.expect_undivided("clip_grad_norm_")
        self._parts.write_grads()
        return self.sharded.clip(max_norm)

    @collective("state_dict")
    def state_dict(self, *_: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> dict[str, Any]:
        """Returns the state_dict() of the wrapped module, with copies of whole parameters. Collective."""
        if keep_vars:
            raise ValueError("keep_vars is True; expected False, because state_dict() returns copies of the whole parameters")
        found = module_state.of(self._passes, self.module, prefix)
        if destination is None:
            return found
        destination.update(found)
        return destination  # type: ignore[no-any-return]

    @collective("load_state_dict")
    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Loads a state_dict() of the unwrapped module; each rank takes its parts from the given tensors. Collective.

        All ranks must pass the same state. If one cannot load it, no parameter is changed on any rank.
        """
        if assign:
            raise ValueError("assign is True; expected False, because parameters must stay in the memory of the library")
        return module_state.load(self._comm, self._passes, self.module, state_dict, strict)

    @collective("optimizer_state_dict")
    def optimizer_state_dict(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Returns optimizer.state_dict() as it would be without sharding, with whole tensors. Collective."""
        self._passes.rest("optimizer_state_dict")
        return optimizer_state.whole(self._comm, self._parts, optimizer)

    @collective("load_optimizer_state_dict")
    def load_optimizer_state_dict(self, optimizer: torch.optim.Optimizer, state_dict: Mapping[str, Any]) -> None:
        """Loads an optimizer.state_dict() without sharding; each rank takes its parts of it. Collective."""
        self._passes.rest("load_optimizer_state_dict")
        optimizer_state.load(self._comm, self._parts, optimizer, state_dict)

    @collective("save")
    def save(self, folder: Any, optimizer: Optional[torch.optim.Optimizer] = None) -> None:
        """Writes a checkpoint; each rank writes its shards. Collective.

        Use a new folder for each save: an interrupted save leaves a mixture of old and new files.
        """
        checkpoint.save(self._comm, self._passes, self.module, folder, optimizer)

    @collective("load")
    def load(self, folder: Any, optimizer: Optional[torch.optim.Optimizer] = None) -> None:
        """Reads a checkpoint of save(), which any number of ranks in any stage may have written. Collective.

        Each rank reads only what it needs.
        """
        checkpoint.load(self._comm, self._passes, self.module, folder, optimizer)

    def close(self) -> None:
        """Closes this object on this rank, and removes its hooks from the module. May be called twice.

        The module keeps this rank's parts as its parameters.
        """
        self._end()

    def join(self, *_: Any, **__: Any) -> NoReturn:
        """Not supported."""
        raise NotImplementedError(arguments.NO_JOIN)

    def register_comm_hook(self, *_: Any, **__: Any) -> NoReturn:
        """Not supported."""
        raise NotImplementedError(arguments.NO_HOOK)

    def extra_repr(self) -> str:
        """Returns what print() shows of the module."""
        return f"stage={self.stage}, {len(self._parts.params)} parameters in {len(self._passes.gathered.members)} units"

    def _load_from_state_dict(
        self, state: Any, prefix: str, metadata: Any, strict: bool, missing: Any, unexpected: Any, why: list[str]
    ) -> None:
        why.append(f"{prefix[:-1]} is a ShardedDataParallel; call its own load_state_dict() on all ranks, with its entries only")

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            "a ShardedDataParallel holds a communicator and parts of parameters, and cannot be pickled or copied; "
            "use its state_dict()"
        )


def _end(passes: Passes, hooks: list[Any]) -> None:
    for hook in hooks:
        hook.remove()
    hooks.clear()
    passes.close()


def _register(own: Callable[[], Optional[Passes]], module: Any, modules: list[Any], root: Optional[int], parts: Parts) -> list[Any]:
    """Registers hooks that hold only weak references to the Passes."""
    hooks = _around(own, module, Passes.forward_begins, Passes.forward_ends)
    for unit, each in enumerate(modules):
        if unit != root:
            begins = functools.partial(_unit_begins, unit)
            hooks += _around(own, each, begins, functools.partial(_unit_ends, unit))
    for each in module.modules():
        hooks.append(each.register_state_dict_pre_hook(functools.partial(_expect_whole, own, weakref.ref(each))))
        hooks.append(each.register_state_dict_post_hook(functools.partial(_copy_whole, own, weakref.ref(each))))
    for i in parts.trained:
        hooks.append(parts.params[i].register_post_accumulate_grad_hook(_gradient_hook(own, i)))
    return hooks


def _expect_whole(
    own: Callable[[], Optional[Passes]], of: Callable[[], Any], module: Any, _prefix: str, keep_vars: bool
) -> None:
    """Raises StateError if state_dict() of the unwrapped module is called while it shows parts.

    With keep_vars the caller gets the parameters themselves, so parts are allowed. Copies of the module, which also have
    this hook, are ignored.
    """
    passes = own()
    if passes is None or keep_vars or module is not of():
        return
    if passes.gathered.parts.are_shown:
        raise errors.StateError("state_dict: the parameters of this module are this rank's parts; call state_dict() of its ShardedDataParallel")


def _copy_whole(own: Callable[[], Optional[Passes]], of: Callable[[], Any], module: Any, state: Any, prefix: str, _: Any) -> None:
    """In a full_parameters() block, copies the parameters in the state, because their memory is released later."""
    passes = own()
    if passes is not None and passes.reads and module is of():
        for name in module._parameters:
            if prefix + name in state:
                state[prefix + name] = state[prefix + name].clone()


def _unit_begins(unit: int, passes: Passes) -> None:
    passes.unit_begins(unit)


def _unit_ends(unit: int, passes: Passes, output: Any) -> None:
    passes.unit_ends(unit, output)


def _around(own: Callable[[], Optional[Passes]], module: Any, begins: Any, ends: Any) -> list[Any]:
    of = weakref.ref(module)  # to ignore copies of the module, which have copies of the hooks

    def before(called: Any, _inputs: Any) -> None:
        passes = own()
        if passes is not None and called is of():
            begins(passes)

    def after(called: Any, _inputs: Any, output: Any) -> None:
        passes, why = own(), sys.exc_info()[1]
        if passes is None or called is not of():
            return
        try:
            ends(passes, output)
        except Exception:
            if why is None or output is not None:
                raise  # otherwise the exception of the module itself is reported

    return [
        module.register_forward_pre_hook(torch.compiler.disable(before), prepend=True),
        module.register_forward_hook(torch.compiler.disable(after), always_call=True),
    ]


def _gradient_hook(own: Callable[[], Optional[Passes]], i: int) -> Callable[[Any], None]:
    def gradient_ready(_param: Any) -> None:
        passes = own()
        if passes is not None:
            passes.gradient_ready(i)

    return gradient_ready
