"""Data-parallel training of a torch module, with the interface of torch.nn.parallel.DistributedDataParallel."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, ContextManager, Iterable, Iterator, NoReturn, Optional, Union

import torch
from torch.distributed.algorithms.join import Join as TorchJoin
from torch.distributed.algorithms.join import Joinable

from libdsc import errors
from libdsc._arguments import boolean
from libdsc._reducer import BucketReducer
from libdsc.torch._ddp import arguments
from libdsc.torch._ddp import hooks
from libdsc.torch._ddp import join as uneven
from libdsc.torch._ddp.buffers import Buffers
from libdsc.torch._ddp.gradients import Gradients
from libdsc.torch._ddp.reduction import Reduction
from libdsc.torch._modules import given
from libdsc.torch._modules import params


class DistributedDataParallel(torch.nn.Module, Joinable):  # type: ignore[misc]
    """Trains a module on all ranks: each computes gradients of its samples, and p.grad gets the average over all ranks.

    All ranks create it together; it copies rank 0's parameters and buffers to the others. Call it in place of the
    module:

        model = DistributedDataParallel(module)
        loss = criterion(model(x), y)
        loss.backward()          # p.grad has the average when this returns
        optimizer.step()

    state_dict() is that of PyTorch's DistributedDataParallel: names begin with "module.", so each can load checkpoints
    of the other. model.module.state_dict() is the state of the module alone, without the prefix.

    A forward pass decides whether the backward pass from its outputs averages gradients. After a forward pass inside
    no_sync(), the backward pass only adds to p.grad on this rank. The next backward pass outside averages the sums,
    even if gradients were zeroed in between.

    Args:
        module: the module, with its parameters in host memory.
        device_ids: None or empty.
        output_device: None.
        dim: as in PyTorch, where it has no effect without several devices.
        broadcast_buffers: True copies rank 0's buffers to all ranks, at construction and at the start of forward
            passes. False leaves each rank's buffers as they are.
        init_sync: False leaves parameters and buffers as they are at construction.
        process_group: a group of the backend "dsc", or a communicator of libdsc. None: the default group, or libdsc's
            world.
        bucket_cap_mb: how many MiB of gradients are sent together; None: 25, and 1 in the bucket that is sent last.
        find_unused_parameters: True allows passes that do not use all parameters. If only other ranks used a parameter,
            p.grad is the average of their gradients and of zeros for this rank. If no rank used it, p.grad is
            unchanged.
        check_reduction: has no effect.
        gradient_as_bucket_view: True makes p.grad a view of the bucket, so averages are not copied. The next backward
            pass overwrites this memory, even if the program has kept p.grad.
        static_graph: True: each iteration uses the same parameters, equally often. A parameter may then be used in
            several checkpoints, or not at all.
        delay_all_reduce_named_params: not supported.
        param_to_hook_all_reduce: not supported.
        mixed_precision: not supported.
        device_mesh: a mesh of one dimension, instead of process_group.
        skip_all_reduce_unused_params: not supported.
        bucket_cap_mb_list: not supported.
        batched_grad_copy: has no effect, because the library copies gradients itself.
        forward_sync_buffers: False copies buffers at construction only.
        lazy_bucket_allocation: not supported.
    """

    find_unused_parameters: bool
    gradient_as_bucket_view: bool
    static_graph: bool
    require_backward_grad_sync: bool
    require_forward_param_sync: bool
    _reduction: Reduction
    _synced_buffers: Buffers

    def __init__(
        self,
        module: Any,
        device_ids: Optional[Any] = None,
        output_device: Optional[Any] = None,
        dim: int = 0,
        broadcast_buffers: Optional[bool] = None,
        init_sync: bool = True,
        process_group: Optional[Any] = None,
        bucket_cap_mb: Optional[float] = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Optional[Any] = None,
        param_to_hook_all_reduce: Optional[Any] = None,
        mixed_precision: Optional[Any] = None,
        device_mesh: Optional[Any] = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: Optional[list[int]] = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: Optional[bool] = None,
        lazy_bucket_allocation: bool = False,
    ) -> None:
        given.expect_module(module)
        arguments.expect_host(device_ids, output_device)
        arguments.refuse(
            mixed_precision=mixed_precision,
            delay_all_reduce_named_params=delay_all_reduce_named_params,
            param_to_hook_all_reduce=param_to_hook_all_reduce,
            skip_all_reduce_unused_params=skip_all_reduce_unused_params,
            bucket_cap_mb_list=bucket_cap_mb_list,
            lazy_bucket_allocation=lazy_bucket_allocation,
        )
        arguments.warn_if_deprecated(check_reduction)
        buckets = arguments.bucket_options(bucket_cap_mb)
        sync_first, sync_later = arguments.buffer_options(broadcast_buffers, forward_sync_buffers)
        switches = {
            "find_unused_parameters": boolean("find_unused_parameters", find_unused_parameters),
            "gradient_as_bucket_view": boolean("gradient_as_bucket_view", gradient_as_bucket_view),
            "batched_grad_copy": boolean("batched_grad_copy", batched_grad_copy),
            "static_graph": boolean("static_graph", static_graph),
        }
        init_sync = boolean("init_sync", init_sync)
        ignored = params.ignored_names(module)
        named = params.named_params(module, ignored)
        params.expect_params(named)
        comm = given.communicator_for(process_group, device_mesh)
        params.expect_replicas(comm, named)

        torch.nn.Module.__init__(self)
        Joinable.__init__(self)
        for name, value in switches.items():
            setattr(self, name, value)
        self.module, self.dim, self.device_ids, self.output_device = module, dim, None, None
        self.device, self.parameters_to_ignore = torch.device("cpu"), ignored
        self.process_group = process_group if device_mesh is None else device_mesh.get_group(mesh_dim=0)
        self.forward_sync_buffers = sync_later
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._comm = comm
        if init_sync:
            self._broadcast_state(0, sync_first, True)
        self._start(named, buckets)

    def _start(self, named: list[params.Named], buckets: dict[str, int]) -> None:
        """Creates the reducer, and the objects that follow forward and backward passes."""
        find_unused = self.find_unused_parameters and not self.static_graph
        gradients = Gradients(
            self._comm,
            [(name, param) for name, param in named if param.requires_grad],
            params.sparse_params(self.module),
            self.gradient_as_bucket_view,
            find_unused=find_unused,
            **buckets,
        )
        self._reduction = Reduction(self._comm, gradients, find_unused, self.static_graph)
        self._synced_buffers = Buffers(self._comm, gradients.reducer, self.module, self.parameters_to_ignore)
        self._has_hook = False
        # torch.compile must not compile these calls in forward().
        self._before = torch.compiler.disable(self._before_forward)
        self._after = torch.compiler.disable(self._after_forward)
        ended = weakref.finalize(self, self._reduction.close)
        ended.atexit = False

    @property
    def reducer(self) -> BucketReducer:
        """The underlying BucketReducer, for its stats(), draw() and clip()."""
        return self._reduction.gradients.reducer

    @property
    def broadcast_buffers(self) -> bool:
        """Whether forward passes make buffers equal on all ranks."""
        return bool(self.forward_sync_buffers)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Calls the module, and prepares the backward pass from its outputs to average gradients."""
        self._before()
        output = self.module(*inputs, **kwargs)
        self._after(output)
        return output

    def _before_forward(self) -> None:
        if torch.is_grad_enabled():
            self._reduction.expect_finished()
        elif self._reduction.is_closed:
            raise errors.StateError("forward: this DistributedDataParallel was closed")
        TorchJoin.notify_join_context(self)
        joins = bool(self._join_config.enable)
        if self._will_sync_buffers():
            if joins:
                self._synced_buffers.broadcast(uneven.agree(self, self._comm.rank))
            else:
                self._synced_buffers.sync()
        if joins:
            uneven.agree(self, int(torch.is_grad_enabled() and self.require_backward_grad_sync))

    def _after_forward(self, output: Any) -> None:
        self.require_forward_param_sync = torch.is_grad_enabled() and self.require_backward_grad_sync
        if self.require_forward_param_sync:
            self._reduction.prepare(output)
        elif torch.is_grad_enabled():
            self._reduction.prepare_nothing()

    def _will_sync_buffers(self) -> bool:
        return self.require_forward_param_sync and self.forward_sync_buffers and self._synced_buffers.any()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """After forward passes in its block, backward passes only add to p.grad on this rank.

        with model.no_sync():
            for x, y in micro_batches[:-1]:
                criterion(model(x), y).backward()
        criterion(model(x), y).backward()  # averages the sums
        """
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def join(
        self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False
    ) -> ContextManager[None]:
        """Lets ranks have different numbers of batches inside a with block.

        Ranks that have run out of batches take part with zeros until all have finished. Then the model of the rank that
        finished last is copied to all ranks. Until then, buffers are copied from the first rank that still has batches.

        Args:
            divide_by_initial_world_size: True averages over all ranks, False over the ranks that still have batches.
            enable: False does nothing.
            throw_on_early_termination: True raises StateError on all ranks as soon as one has no more batches.
        """
        if not boolean("enable", enable):
            return contextlib.nullcontext()
        by_initial = boolean("divide_by_initial_world_size", divide_by_initial_world_size)
        return uneven.joined(self, by_initial, boolean("throw_on_early_termination", throw_on_early_termination))

    def join_hook(self, **kwargs: Any) -> uneven.ShadowHook:
        """Returns the hook for torch.distributed.algorithms.join.Join, which needs a torch process group."""
        if not kwargs.get("divide_by_initial_world_size", True):
            raise ValueError("divide_by_initial_world_size is False; expected True with torch's Join. To use False, call model.join() instead")
        uneven.expect_known_graph(self)
        return uneven.ShadowHook(self)

    @property
    def join_device(self) -> Any:
        """The device for torch's Join."""
        return self.device

    @property
    def join_process_group(self) -> Any:
        """The process group for torch's Join: that of this object, or the default group."""
        is_torch = isinstance(self.process_group, torch.distributed.ProcessGroup)
        return self.process_group if is_torch else torch.distributed.group.WORLD

    def register_comm_hook(self, state: Any, hook: Union[str, hooks.TorchHook]) -> None:
        """Sets a hook that reduces buckets instead of the all-reduce. Collective; may be called once.

        Args:
            state: the first argument of the hook; None if hook is a name.
            hook: a function of (state, bucket) that returns a future of the mean. The functions in
                torch.distributed.algorithms.ddp_comm_hooks are such hooks; their operations run in torch's process
                group. Or the name of a libdsc hook, such as "bf16" or "powersgd(rank=4)"; libdsc.hooks() lists them.
        """
        hooks.once(self._has_hook)
        if isinstance(hook, str):
            hooks.expect_no_state(state)
            self.reducer.set_hook(hooks.name_of(hook))
        else:
            hooks.expect_hook(hook)
            runner = hooks.TorchHooks(state, hook, self._reduction.gradients)
            self.reducer.set_hook(runner)
            self._reduction.gradients.hooks = runner
        self._has_hook = True

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        self.register_comm_hook(None, comm_hook_type.name.lower())

    def _set_static_graph(self) -> None:
        if self.static_graph:
            return
        self._reduction.set_static()
        self.static_graph = True

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: Any, params_and_buffers_to_ignore: Iterable[str]) -> None:
        """Excludes parameters and buffers of a module, by full name, from data parallelism. Call it before wrapping."""
        names = list(params_and_buffers_to_ignore)
        module._ddp_params_and_buffers_to_ignore = names
        for kind in (module.named_parameters, module.named_buffers):
            for name, tensor in kind():
                if name in names:
                    tensor._ddp_ignored = True

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        return self.reducer.stats()

    def _broadcast_state(self, root: int, with_buffers: Optional[bool] = None, verify: bool = False) -> None:
        """Copies one rank's parameters and buffers to all. Collective."""
        named = params.named_params(self.module, self.parameters_to_ignore)
        if self.forward_sync_buffers if with_buffers is None else with_buffers:
            named = named + params.named_buffers(self.module, self.parameters_to_ignore)
        with torch.no_grad():
            params.broadcast(self._comm, named, root, verify)

    def close(self) -> None:
        """Closes this object on this rank. The module and its gradients stay as they are. May be called twice."""
        self._reduction.close()

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            "a DistributedDataParallel of libdsc holds a communicator and cannot be pickled or copied; "
            "use its module, or its state_dict()"
        )
