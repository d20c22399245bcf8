"""The parameters of a module, shown as this rank's parts of them or whole, over the memory of the library."""

from __future__ import annotations

from typing import Any, Optional

import torch

from libdsc import errors
from libdsc._communicator import Communicator
from libdsc._sharded import Sharded
from libdsc.torch._modules import layout
from libdsc.torch._sharded.units import UnitPlan


class Parts:
    """Sets p.data and p.grad. At rest p.data is this rank's part, in one dimension, and p.grad that of the average.

    Attributes:
        sharded: what gathers parameters and reduces gradients.
        params, names, units: of each parameter, and its unit.
        orders: in which the elements of each lie in memory, parts too.
        trained: the indices of the parameters that get gradients.
        data, grads: the parts, which may be empty.
        starts: where the part begins in the elements of the parameter.
        places: where it begins in which bucket's shard.
    """

    def __init__(self, comm: Communicator, plan: UnitPlan, stage: int, **options: Any) -> None:
        self.names = [name for name, _ in plan.named]
        self.params = [param for _, param in plan.named]
        self.units = plan.unit_of()
        self.trained = [i for i, param in enumerate(self.params) if param.requires_grad]
        self.shapes = [param.shape for param in self.params]
        self.orders: list[layout.Order] = []
        arrays = []
        for param in self.params:
            is_dense, order = layout.order_of(param)
            self.orders.append(order if is_dense else None)
            arrays.append(layout.contiguous(param, self.orders[-1]))
        self.sharded = Sharded(comm, arrays, self.names, stage=stage, units=plan.starts, **options)  # type: ignore[arg-type]
        self._wholes: list[Optional[Any]] = [None] * len(arrays)
        self._is_whole = [False] * len(self.params)
        self._versions: list[Optional[int]] = [None] * len(self.params)  # when they became whole
        self._written: list[str] = []
        self._hidden: dict[int, Optional[Any]] = {}  # what p.grad is at rest, where it is hidden
        self.hides_grads = False
        self._read_parts()
        for param, data in zip(self.params, self.data):
            param.data = data

    def _read_parts(self) -> None:
        empty = [torch.empty(0, dtype=param.dtype) for param in self.params]
        self.data, self.grads = list(empty), [each.clone() for each in empty]
        self.starts = [0] * len(self.params)
        self.places = [(0, 0)] * len(self.params)
        shards = [
            [torch.from_numpy(array.reshape(-1).view("u1")) for array in (shard.params, shard.grads)]
            for shard in self.sharded.shards
        ]
        for each in self.sharded.ranges:
            dtype = self.params[each.param].dtype
            end = each.shard_start + each.count
            data, grad = (flat.view(dtype)[each.shard_start : end] for flat in shards[each.bucket])
            self.data[each.param], self.grads[each.param] = data, grad
            self.starts[each.param], self.places[each.param] = each.param_start, (each.bucket, each.shard_start)

    def show_part(self, i: int) -> None:
        """Makes p.data this rank's part, and restores p.grad. A parameter that shows a part is left as it is."""
        if self._is_whole[i]:
            if self._versions[i] not in (None, self.params[i]._version):
                self._written.append(self.names[i])
            self.params[i].data = self.data[i]
            self._is_whole[i] = False
        if not self.hides_grads:
            self._show_grad(i)

    @property
    def are_shown(self) -> bool:
        """Whether parts are shown, of any parameter."""
        return not all(self._is_whole)

    def show_parts(self) -> None:
        """Does so with all that are shown whole."""
        for i, is_whole in enumerate(self._is_whole):
            if is_whole:
                self.show_part(i)

    def show_whole(self, i: int, whole: Optional[Any] = None) -> None:
        """Makes p.data the whole parameter of a gathered unit, or another tensor of its shape; p.grad is None then."""
        self._hide_grad(i)
        if not self._is_whole[i]:
            self._versions[i] = self.params[i]._version if whole is None else None  # another tensor is there to be written
        self._is_whole[i] = True
        self.params[i].data = self.whole(i) if whole is None else whole

    def expect_unwritten(self, op: str) -> None:
        """Raises if the program has written to parameters while they were whole, which would be lost."""
        written, self._written = self._written, []
        if written:
            raise errors.StateError(
                f"{op}: {written[0]} was written in place during a pass, when it was the whole parameter, and this change is lost; "
                "expected changes of this rank's part only, between passes"
            )

    def whole(self, i: int) -> Any:
        """The parameter in the library's buffer, at an address that it keeps. Its unit must be there the first time."""
        found = self._wholes[i]
        if found is None:
            array = self.sharded.param_view(i)
            with torch.inference_mode(False):  # a later pass may need gradients
                flat = torch.from_numpy(array.reshape(-1).view("u1")).view(self.data[i].dtype)
                found = self._wholes[i] = layout.shaped(flat, self.shapes[i], self.orders[i])
        return found

    def storage(self, i: int) -> int:
        """The address of the whole parameter's memory."""
        return int(self.whole(i).untyped_storage().data_ptr())

    def in_order(self, i: int, tensor: Any) -> Any:
        """A tensor of the parameter's shape as a contiguous one in the order of the parameter's memory."""
        return layout.contiguous(tensor, self.orders[i])

    def part_of(self, i: int, tensor: Any) -> Any:
        """This rank's part of a tensor of the parameter's shape, in separate memory."""
        start = self.starts[i]
        return self.in_order(i, tensor).reshape(-1)[start : start + self.data[i].numel()].clone()

    def take_data(self) -> None:
        """Copies tensors that the program has put in the place of parts. Raises for those of another type or shape."""
        for name, param, own in zip(self.names, self.params, self.data):
            if param.data_ptr() == own.data_ptr() and param.dtype == own.dtype:
                continue
            if param.dtype != own.dtype or param.shape != own.shape:
                raise ValueError(
                    f"{name} was replaced by {param.dtype} of shape {tuple(param.shape)}; expected {own.dtype} of shape {tuple(own.shape)}, this "
                    "rank's part. Convert a module before wrapping it, and load whole tensors with load_state_dict() of the wrapper"
                )
            own.copy_(param.detach())
            param.data = own

    def expect_undivided(self, op: str) -> None:
        """Raises for parameters of libdsc.torch.layers, of which other ranks have other parts than the shards'."""
        for name, param in zip(self.names, self.params):
            if hasattr(param, "partition_rank"):
                raise ValueError(f"{op}: {name} is also divided by libdsc.torch.layers; expected no such parameter, because the norm would lack its other parts")

    def _hide_grad(self, i: int) -> None:
        if i not in self._hidden:
            self._hidden[i] = self.params[i].grad
            self.params[i].grad = None

    def _show_grad(self, i: int) -> None:
        if i in self._hidden:
            self.params[i].grad = self._hidden.pop(i)

    def hide_grads(self) -> None:
        """Makes every p.grad None, for a backward pass to put gradients of whole parameters there."""
        self.hides_grads = True
        for i in self.trained:
            self._hide_grad(i)

    def show_grads(self) -> None:
        """Makes every p.grad what it is at rest, of parameters that are not shown whole."""
        self.hides_grads = False
        for i in list(self._hidden):
            if not self._is_whole[i]:
                self._show_grad(i)

    def kept_grad(self, i: int) -> Optional[Any]:
        """What p.grad is at rest."""
        return self._hidden[i] if i in self._hidden else self.params[i].grad

    def keep_grad(self, i: int) -> None:
        """Makes p.grad the part of the average, at rest."""
        if i in self._hidden:
            self._hidden[i] = self.grads[i]
        else:
            self.params[i].grad = self.grads[i]

    def has_grads(self) -> bool:
        """Whether any p.grad is something at rest."""
        return any(self.kept_grad(i) is not None for i in self.trained)

    def write_grads(self) -> None:
        """Copies p.grad at rest, which the program may have set, to the memory of the averages; zeros for None."""
        with torch.no_grad():
            for i in self.trained:
                grad, own = self.kept_grad(i), self.grads[i]
                if grad is None:
                    own.zero_()
                elif grad.data_ptr() != own.data_ptr() and own.numel():
                    own.copy_(grad)
                    self.keep_grad(i)
