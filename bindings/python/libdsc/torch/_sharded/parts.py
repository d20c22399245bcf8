"""Switches the parameters of a module between whole parameters and this rank's parts, in the library's memory."""

from __future__ import annotations

from typing import Any, Optional

import torch

from libdsc import errors
from libdsc._communicator import Communicator
from libdsc._sharded import Sharded
from libdsc.torch._modules import layout
from libdsc.torch._sharded.units import UnitPlan


class Parts:
    """Sets p.data and p.grad.

    Between passes, p.data is this rank's part, in one dimension, and p.grad that of the average.

    Attributes:
        sharded: the object that gathers parameters and reduces gradients.
        params, names, units: the parameters, their names and their units.
        orders: the memory order of each parameter, which its part also has.
        trained: the indices of the parameters that get gradients.
        data, grads: the parts of parameters and gradients, which may be empty.
        starts: the offset of each part in the elements of its parameter.
        places: the bucket of each part, and the offset in that bucket's shard.
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
        # torch's count of in-place writes to each parameter at the time when it became whole; None: not checked
        self._versions: list[Optional[int]] = [None] * len(self.params)
        self._written: list[str] = []
        # The values of p.grad between passes, while p.grad is None in a pass.
        self._hidden: dict[int, Optional[Any]] = {}
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
        """Makes p.data this rank's part, if it is whole, and restores p.grad."""
        if self._is_whole[i]:
            if self._versions[i] not in (None, self.params[i]._version):
                self._written.append(self.names[i])
            self.params[i].data = self.data[i]
            self._is_whole[i] = False
        if not self.hides_grads:
            self._show_grad(i)

    @property
    def are_shown(self) -> bool:
        """Whether any parameter currently shows its part."""
        return not all(self._is_whole)

    def show_parts(self) -> None:
        """Makes p.data of all parameters this rank's parts."""
        for i, is_whole in enumerate(self._is_whole):
            if is_whole:
                self.show_part(i)

    def show_whole(self, i: int, whole: Optional[Any] = None) -> None:
        """Makes p.data the whole parameter of a gathered unit, or another tensor of its shape. p.grad becomes None."""
        self._hide_grad(i)
        if not self._is_whole[i]:
            # Another tensor may be written by the program, so its version is not checked.
            self._versions[i] = self.params[i]._version if whole is None else None
        self._is_whole[i] = True
        self.params[i].data = self.whole(i) if whole is None else whole

    def expect_unwritten(self, op: str) -> None:
        """Raises StateError if the program has written to whole parameters, because these changes are lost."""
        written, self._written = self._written, []
        if written:
            raise errors.StateError(
                f"{op}: {written[0]} was written in place during a pass, when it was the whole parameter, and this change is lost; "
                "expected changes of this rank's part only, between passes"
            )

    def whole(self, i: int) -> Any:
        """Returns the whole parameter in the library's buffer. At the first call its unit must be gathered.

        The address never changes.
        """
        found = self._wholes[i]
        if found is None:
            array = self.sharded.param_view(i)
            with torch.inference_mode(False):  # because a later pass may need gradients
                flat = torch.from_numpy(array.reshape(-1).view("u1")).view(self.data[i].dtype)
                found = self._wholes[i] = layout.shaped(flat, self.shapes[i], self.orders[i])
        return found

    def storage(self, i: int) -> int:
        """Returns the address of the whole parameter's memory."""
        return int(self.whole(i).untyped_storage().data_ptr())

    def in_order(self, i: int, tensor: Any) -> Any:
        """Returns a tensor of the parameter's shape as a contiguous tensor in the parameter's memory order."""
        return layout.contiguous(tensor, self.orders[i])

    def part_of(self, i: int, tensor: Any) -> Any:
        """Returns a copy of this rank's part of a tensor of the parameter's shape."""
        start = self.starts[i]
        return self.in_order(i, tensor).reshape(-1)[start : start + self.data[i].numel()].clone()

    def take_data(self) -> None:
        """Copies tensors that the program has assigned to p.data into the parts. Raises for another type or shape."""
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
        """Raises ValueError for parameters of libdsc.torch.layers: a norm would leave out the parts of other ranks."""
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
        """Makes every p.grad None, so that a backward pass can store gradients of whole parameters there."""
        self.hides_grads = True
        for i in self.trained:
            self._hide_grad(i)

    def show_grads(self) -> None:
        """Restores p.grad of all parameters that do not show the whole parameter."""
        self.hides_grads = False
        for i in list(self._hidden):
            if not self._is_whole[i]:
                self._show_grad(i)

    def kept_grad(self, i: int) -> Optional[Any]:
        """Returns the value of p.grad between passes."""
        return self._hidden[i] if i in self._hidden else self.params[i].grad

    def keep_grad(self, i: int) -> None:
        """Makes the part of the average the value of p.grad between passes."""
        if i in self._hidden:
            self._hidden[i] = self.grads[i]
        else:
            self.params[i].grad = self.grads[i]

    def has_grads(self) -> bool:
        """Whether any p.grad has a value between passes."""
        return any(self.kept_grad(i) is not None for i in self.trained)

    def write_grads(self) -> None:
        """Copies the values of p.grad between passes, which the program may have set, to the averages; zeros for None.
        """
        with torch.no_grad():
            for i in self.trained:
                grad, own = self.kept_grad(i), self.grads[i]
                if grad is None:
                    own.zero_()
                elif grad.data_ptr() != own.data_ptr() and own.numel():
                    own.copy_(grad)
                    self.keep_grad(i)
