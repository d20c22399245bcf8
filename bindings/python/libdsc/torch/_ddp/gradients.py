"""Moves gradients of parameters into the buckets of a reducer, and averages back into p.grad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Optional

import torch

from libdsc import errors
from libdsc._communicator import Communicator
from libdsc._reducer import BucketReducer
from libdsc.torch._modules import layout
from libdsc.torch._modules.params import Named

if TYPE_CHECKING:
    from libdsc.torch._ddp.hooks import TorchHooks

EXACT = (torch.float32, torch.float64, torch.complex64, torch.complex128)


class _Reducer(BucketReducer):
    """A reducer without the check that views were written.

    The check is not needed here: every gradient is passed explicitly, and views hold sums of micro-batches.
    """

    __slots__ = ()

    def _mark_view(self, i: int, view: Any, address: int) -> None:
        pass


class Gradients:
    """Marks gradients as ready, and stores the averages in p.grad.

    Attributes:
        reducer: the underlying reducer.
        absent: the parameters that this rank has marked as unused in the current iteration.
    """

    def __init__(self, comm: Communicator, named: list[Named], sparse: set[Any], zero_copy: bool, **options: Any) -> None:
        self.params = [param for _, param in named]
        self.names = [name for name, _ in named]
        self.sparse = {i for i, param in enumerate(self.params) if param in sparse}
        self.absent: set[int] = set()
        self.marked = bytearray(len(named))
        self._orders: list[layout.Order] = []
        arrays = []
        for i, param in enumerate(self.params):
            is_dense, order = layout.order_of(param)
            is_dense = is_dense and i not in self.sparse
            self._orders.append(order if is_dense else None)
            array = layout.alias(param, order) if is_dense else None
            arrays.append(layout.copy_in_order(param, None) if array is None else array)
        # For types of 32 and more bits both rules give the same result. For 16 bits, only "pytorch" rounds as PyTorch
        # does.
        average: Literal["pre", "pytorch"] = "pre" if all(param.dtype in EXACT for param in self.params) else "pytorch"
        self.reducer = _Reducer(
            comm, arrays, self.names, sync=False, average=average, sparse=sorted(self.sparse), **options
        )
        self._zero_copy = zero_copy
        self._views: list[Optional[Any]] = []  # empty as long as buckets may be rebuilt
        self._copies: list[tuple[Any, layout.Order, Any]] = []  # copies to write back to gradients
        self.hooks: Optional[TorchHooks] = None

    def begin(self) -> None:
        """Starts an iteration of the reducer."""
        if self.hooks is not None:
            self.hooks.begin()
        self.reducer.begin()
        self.marked = bytearray(len(self.params))
        self.absent = set()
        self._copies = []

    def mark(self, i: int) -> None:
        """Marks the gradient in p.grad as ready."""
        param = self.params[i]
        grad = param.grad
        if grad is None:
            raise errors.StateError(f"{self.names[i]}: p.grad is None although its gradient is ready; expected hooks that do not remove p.grad")
        self.marked[i] = 1
        if i in self.sparse:
            return self._mark_sparse(i, grad)
        if grad.layout != torch.strided:
            raise TypeError(
                f"{self.names[i]} has a gradient of layout {grad.layout}; expected a dense one: only weights of "
                "torch.nn.Embedding and EmbeddingBag with sparse=True have sparse gradients"
            )
        view = self._views[i] if self._views else None
        if view is None:
            self.reducer.mark_ready(i, self._array(i, grad, True))
        elif grad is view or grad.data_ptr() == view.data_ptr() and grad.stride() == view.stride():
            self.reducer.mark_ready(i)
        else:
            self.reducer.accumulate(i, self._array(i, grad, False))
            param.grad = view
            self.reducer.mark_ready(i)

    def _mark_sparse(self, i: int, grad: Any) -> None:
        if grad.layout != torch.sparse_coo:
            raise TypeError(
                f"{self.names[i]} has a gradient of layout {grad.layout}; expected a sparse one, because its module has sparse=True. "
                "Use sparse=False for a weight that is shared with a dense layer"
            )
        rows = grad.detach().coalesce()  # coalesced first, so that sums are rounded as in PyTorch
        if rows.sparse_dim() != 1:
            raise TypeError(f"{self.names[i]} has a gradient with {rows.sparse_dim()} sparse dimensions; expected 1, the rows")
        values = rows.values()
        values = torch.view_as_real(values) if values.is_complex() else values
        self.reducer.mark_sparse(i, rows.indices()[0].numpy(), values.contiguous())

    def _array(self, i: int, grad: Any, writes: bool) -> Any:
        """Returns the gradient in the layout of the parameter.

        If the layouts differ it is a copy, to be written back later.
        """
        order = self._orders[i]
        array = layout.alias(grad, order)
        if array is None:
            array = layout.copy_in_order(grad, order)
            if writes:
                self._copies.append((grad, order, array))
        return array

    def mark_rest(self, i: int) -> None:
        """Marks a parameter that this backward pass did not reach.

        A p.grad from earlier passes is used as its gradient.
        """
        if self.params[i].grad is not None:
            self.mark(i)
        else:
            self.mark_absent(i)

    def mark_absent(self, i: int) -> None:
        """Marks a parameter as having no gradient on this rank, even if p.grad holds one."""
        self.marked[i] = 1
        self.absent.add(i)
        self.reducer.mark_unused(i)

    def finish(self) -> None:
        """Waits for the averages. Afterwards every p.grad holds its average, except for absent parameters."""
        try:
            if self.hooks is not None:
                self._end_hooks(self.hooks)
            self.reducer.finish()
            for grad, order, array in self._copies:
                layout.write_back(grad, order, array)
            # Tells the reducer that these averages are handled: the caller stores them, or a join ignores them.
            self.reducer.used_elsewhere()
        finally:
            self._copies = []

    def _end_hooks(self, hooks: TorchHooks) -> None:
        """Ends the hooks. If one of them fails, the reducer is closed, so that no other rank waits for this one."""
        try:
            hooks.end()
        except BaseException:
            self.reducer.close()
            raise

    def shaped(self, i: int, flat: Any) -> Any:
        """Returns a flat tensor from a bucket in the shape of its parameter."""
        param, order = self.params[i], self._orders[i]
        return layout.shaped(torch.view_as_complex(flat.view(-1, 2)) if param.is_complex() else flat, param.shape, order)

    def fill(self, indices: set[int]) -> None:
        """Sets p.grad of absent parameters to the averages of the other ranks."""
        for i in indices:
            param = self.params[i]
            if i in self.sparse:
                continue  # handled by take_sparse()
            if self._views:
                param.grad = self._views[i]
            else:
                param.grad = layout.over(self.reducer.grad_view(i, copy=True), param, self._orders[i])

    def take_sparse(self, unused: set[int]) -> None:
        """Sets p.grad of parameters with sparse gradients to the reduced rows."""
        for i in self.sparse - unused:
            param = self.params[i]
            rows, values = self.reducer.sparse(i)
            flat = torch.from_numpy(values.reshape(-1).view("u1")).view(param.dtype)
            shape = (len(rows), *param.shape[1:])
            param.grad = torch.sparse_coo_tensor(
                torch.from_numpy(rows).unsqueeze(0), flat.view(shape), param.shape, is_coalesced=True
            )

    def use_views(self) -> None:
        """Makes p.grad a view of the bucket, if that was requested. Buckets must not be rebuilt afterwards."""
        if not self._zero_copy or self._views:
            return
        for i, param in enumerate(self.params):
            view = None
            if i not in self.sparse:
                view = layout.over(self.reducer.grad_view(i), param, self._orders[i])
                if param.grad is not None and self.marked[i]:
                    view.copy_(param.grad.detach())
                    param.grad = view
            self._views.append(view)
