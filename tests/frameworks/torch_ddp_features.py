"""Features of libdsc.torch.DistributedDataParallel other than its passes: hooks, joins, state. Each rank prints what it
found.

    python3 torch_ddp_features.py [CASE ...]    on each rank; all cases without names
"""

import copy
import gc
import pathlib
import pickle
import re
import warnings
import weakref

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join as TorchJoin
from torch.nn.parallel import DistributedDataParallel as Stock

import libdsc as dsc
from libdsc.torch import DistributedDataParallel as Ours
from torch_ddp_cases import batches, expect_error, expect_same_everywhere, reference_sums, run, small, step_of, wide, wide_loss


def documented_lines(world):
    """Runs the Python code of docs/torch_ddp.md."""
    text = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "torch_ddp.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    names = {}
    for block in blocks:
        exec(block, names)


def state_dicts_are_stock_ones(world):
    ours, stock = Ours(small()), Stock(small())
    for p in ours.parameters():
        p.data += 1
    stock.load_state_dict(ours.state_dict())
    assert list(ours.state_dict()) == list(stock.state_dict()) == ["module." + name for name in ours.module.state_dict()]
    for p in ours.parameters():
        p.data -= 1
    ours.load_state_dict(stock.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), stock.parameters()))
    for copied in (pickle.dumps, copy.deepcopy):
        expect_error(TypeError, "its module, or its state_dict", lambda: copied(ours))
    assert copy.deepcopy(ours.module)(torch.ones(1, 4)) is not None
    ours.close()


def ignored_parameters(world):
    torch.manual_seed(world.rank)
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    Ours._set_params_and_buffers_to_ignore_for_model(module, ["2.weight", "1.running_mean"])
    own = module[2].weight.detach().clone()
    model = Ours(module)
    assert torch.equal(module[2].weight, own) and module[2].weight._ddp_ignored
    module[1].running_mean.fill_(world.rank)
    module[1].running_var.fill_(1 + world.rank)
    model.eval()(torch.full((2, 4), world.rank + 1.0)).square().sum().backward()
    assert (module[1].running_mean == world.rank).all() and (module[1].running_var == 1).all()
    expect_same_everywhere(world, [module[2].bias.grad, module[0].weight.grad])
    found = dsc.all_gather_object(world, module[2].weight.grad.sum().item())
    assert len(set(found)) == world.size, found
    model.close()


def compiled_modules(world):
    """torch.compile inside the wrapper and around it gives the same results as the plain module."""
    for backend in ("eager", "aot_eager"):
        torch._dynamo.reset()
        torch.manual_seed(1)
        plain = small()
        for inside in (True, False):
            module = copy.deepcopy(plain)
            model = Ours(torch.compile(module, backend=backend) if inside else module)
            called = model if inside else torch.compile(model, backend=backend)
            for iteration in range(3):
                model.zero_grad()
                (x,) = batches(world.rank, iteration, 1)
                called(x).square().sum().backward()
                expected = reference_sums(world, plain, iteration, lambda m, x: m(x).square().sum())
                for p, g in zip(module.parameters(), expected):
                    assert torch.allclose(p.grad, g, rtol=1e-5, atol=1e-6), (backend, inside)
            model.close()


def torch_hooks_beside_stock(world):
    """PyTorch's hooks, over its own process group, give the same bits as under its own DDP."""
    def power_state():
        return powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=3, min_compression_rate=1)

    cases = [(lambda: None, default_hooks.allreduce_hook), (lambda: None, default_hooks.fp16_compress_hook), (power_state, powerSGD_hook.powerSGD_hook)]
    for views in (False, True):
        for state, hook in cases:
            modules = [wide() for _ in range(2)]
            stock, ours = Stock(modules[0], bucket_cap_mb=0.01), Ours(modules[1], bucket_cap_mb=0.01, gradient_as_bucket_view=views)
            # from the third iteration on its result depends on the order in a bucket
            low_rank = hook is powerSGD_hook.powerSGD_hook
            for model in (stock, ours):
                model.register_comm_hook(state(), hook)
            for iteration in range(6):
                step_of(world, stock, iteration)
                step_of(world, ours, iteration)
                for a, b in zip(*(m.parameters() for m in modules)):
                    same = torch.equal(a.grad, b.grad)
                    assert same or low_rank and iteration >= 3, (hook.__name__, iteration, (a.grad - b.grad).abs().max())
                expect_same_everywhere(world, [p.grad for p in modules[1].parameters()])
            expect_error(dsc.StateError, "a communication hook is already", lambda: ours.register_comm_hook(None, "bf16"))
            ours.close()


def hooks_by_name(world):
    for name, close in [("bf16_compress", 2e-2), ("fp16_compress_hook", 2e-3), ("allreduce", 1e-6), ("powersgd(rank=2, start_iteration=2)", None)]:
        model, plain = Ours(wide()), wide()
        model.register_comm_hook(None, name)
        for iteration in range(4):
            step_of(world, model, iteration)
            if close is not None:
                for p, g in zip(model.parameters(), reference_sums(world, plain, iteration, wide_loss)):
                    assert torch.allclose(p.grad, g, rtol=close, atol=close), name
            expect_same_everywhere(world, [p.grad for p in model.parameters()])
        model.close()
    expect_error(TypeError, "is a int; expected a function", lambda: Ours(small()).register_comm_hook(None, 3))
    expect_error(ValueError, "expected None, because a hook that is given by name", lambda: Ours(small()).register_comm_hook(3, "bf16"))
    expect_error(dsc.DscError, "nothing_such", lambda: Ours(small()).register_comm_hook(None, "nothing_such"))


def hooks_that_fail(world):
    """The rank of the hook gets the hook's exception, the other ranks get an error of the library.

    No rank waits for the time-out.
    """

    def raises():
        raise ArithmeticError("in the hook")

    def fails_later():
        future = torch.futures.Future()
        future.set_exception(ArithmeticError("in the future"))
        return future

    cases = [
        (raises, ArithmeticError, "in the hook"),
        (lambda: 3, TypeError, "returned a int; expected a torch.futures.Future"),
        (fails_later, ArithmeticError, "in the future"),
    ]
    for fails, kind, text in cases:

        def hook(state, bucket):
            if world.rank == world.size - 1:
                return fails()
            future = torch.futures.Future()
            future.set_result(bucket.buffer())
            return future

        model = Ours(small())
        model.register_comm_hook(None, hook)
        if world.rank != world.size - 1:
            # A future fails after the reducer's hook has returned, and then the rank leaves.
            last = world.size - 1
            kind, text = dsc.DscError, rf"hook TorchHooks failed on rank {last}|rank {last} \(pid \d+\) has left the group"
        expect_error(kind, text, lambda: model(torch.ones(1, 4)).sum().backward())
        model.close()


def joins(world):
    """Ranks have different numbers of batches.

    The gradients must equal those of stock DDP's join, and all ranks end with the last rank's model.
    """
    for by_initial in (True, False):
        modules = [small(), small()]
        stock, ours = Stock(modules[0]), Ours(modules[1])
        seen = [[], []]
        for which, model in enumerate((stock, ours)):
            optimizer = torch.optim.SGD(model.parameters(), 0.01)
            with model.join(divide_by_initial_world_size=by_initial):
                for iteration in range(2 + world.rank):
                    optimizer.zero_grad()
                    (x,) = batches(world.rank, iteration, 1)
                    model(x).square().sum().backward()
                    seen[which].append([p.grad.clone() for p in model.parameters()])
                    optimizer.step()
        for a, b in zip(*seen):
            assert all(torch.allclose(x, y, rtol=1e-5, atol=1e-7) for x, y in zip(a, b))
        expect_same_everywhere(world, list(ours.parameters()))
        assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-7) for a, b in zip(*(m.parameters() for m in modules)))
        step_of(world, ours, 5, lambda m, x: m(x).square().sum())
        expect_same_everywhere(world, [p.grad for p in ours.parameters()])
        ours.close()
    with Ours(small()).join(enable=False):
        pass
    model = Ours(small())

    def uneven():
        with model.join(throw_on_early_termination=True):
            for iteration in range(2 + world.rank):
                model(batches(world.rank, iteration, 1)[0]).sum().backward()

    expect_error(dsc.StateError, "rank 0 has no more batches", uneven)
    static = Ours(small(), static_graph=True)
    expect_error(dsc.StateError, "expected one iteration on all ranks before join", lambda: static.join().__enter__())


def joins_of_torch(world):
    """Tests torch.distributed.algorithms.join.Join with buffers, no_sync() and unused parameters."""
    modules = [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)) for _ in range(2)]
    modules[1].load_state_dict(modules[0].state_dict())
    models = [Stock(modules[0], find_unused_parameters=True), Ours(modules[1], find_unused_parameters=True)]
    for model in models:
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        with TorchJoin([model]):
            for iteration in range(2 + 2 * world.rank):
                optimizer.zero_grad()
                x = torch.cat(batches(world.rank, iteration, 3))
                if iteration % 2:
                    with model.no_sync():
                        model(x).square().sum().backward()
                model(x).square().sum().backward()
                optimizer.step()
    expect_same_everywhere(world, list(modules[1].parameters()) + list(modules[1].buffers()))
    for a, b in zip(*(m.state_dict().values() for m in modules)):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-7), (a, b)
    expect_error(ValueError, "call model.join", lambda: TorchJoin([models[1]], divide_by_initial_world_size=False))
    models[1].close()


def wrappers_end(world):
    """Closing or deleting a wrapper removes its hooks. The module can be trained without it."""
    module = small()
    model = Ours(module)
    model(torch.ones(1, 4)).sum().backward()
    reduction = weakref.ref(model._reduction)
    del model
    gc.collect()
    assert reduction() is None
    assert not any(p._post_accumulate_grad_hooks for p in module.parameters())
    module(torch.ones(1, 4)).sum().backward()
    model = Ours(module)
    output = model(torch.ones(1, 4))
    model.close()
    model.close()
    output.sum().backward()
    expect_error(dsc.StateError, "was closed", lambda: model(torch.ones(1, 4)))
    with torch.no_grad():
        expect_error(dsc.StateError, "was closed", lambda: model(torch.ones(1, 4)))


def wrong_arguments(world):
    """Each error says on all ranks what was expected and what was passed, and leaves nothing behind."""

    def lazy():
        return nn.LazyLinear(3)

    cases = [
        (TypeError, "module is a int; expected a torch.nn.Module", dict(module=3)),
        (ValueError, r"device_ids is \[0\]; expected None", dict(device_ids=[0])),
        (ValueError, "output_device is 0; expected None", dict(output_device=0)),
        (ValueError, "mixed_precision is .*: parameters keep", dict(mixed_precision=object())),
        (ValueError, "delay_all_reduce_named_params is .*expected None", dict(delay_all_reduce_named_params=[])),
        (ValueError, "param_to_hook_all_reduce is", dict(param_to_hook_all_reduce=nn.Parameter(torch.ones(1)))),
        (ValueError, "skip_all_reduce_unused_params is True; expected False", dict(skip_all_reduce_unused_params=True)),
        (ValueError, r"bucket_cap_mb_list is \[1\]; expected None", dict(bucket_cap_mb_list=[1])),
        (ValueError, "lazy_bucket_allocation is True; expected False", dict(lazy_bucket_allocation=True)),
        (TypeError, "bucket_cap_mb is a str", dict(bucket_cap_mb="25")),
        (ValueError, "bucket_cap_mb is -1; expected", dict(bucket_cap_mb=-1)),
        (ValueError, "bucket_cap_mb is nan; expected", dict(bucket_cap_mb=float("nan"))),
        (TypeError, "find_unused_parameters is", dict(find_unused_parameters="yes")),
        (ValueError, "process_group and device_mesh are both given", dict(process_group=world, device_mesh=3)),
        (TypeError, "process_group is a int without the backend dsc", dict(process_group=3)),
        (TypeError, "process_group is a ProcessGroup(Gloo)? without the backend dsc", dict(process_group=dist.group.WORLD)),
        (RuntimeError, "no parameter of the module requires a gradient", dict(module=nn.Linear(2, 2).requires_grad_(False))),
        (RuntimeError, "no parameter of the module requires a gradient", dict(module=nn.ReLU())),
        (RuntimeError, "parameter weight is uninitialized", dict(module=lazy())),
        (RuntimeError, "parameter weight is on the meta device", dict(module=nn.Linear(2, 2, device="meta"))),
        (ValueError, "elements that share memory", dict(module=nn.ParameterList([torch.ones(1, 3).expand(2, 3)]))),
    ]
    for kind, text, options in cases:
        expect_error(kind, text, lambda: Ours(options.pop("module", None) or small(), **options))
    expect_error(dsc.MismatchError, "expected the same model", lambda: Ours(nn.Linear(2 + world.rank, 2)))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        Ours(small(), check_reduction=True, batched_grad_copy=True, device_ids=[], init_sync=False).close()
    assert "check_reduction has no effect" in str(told[0].message)
    bag = nn.EmbeddingBag(5, 3, sparse=True)
    dense = Ours(nn.Embedding(5, 3))
    dense.module.sparse = True
    expect_error(TypeError, "weight has a gradient of layout torch.sparse_coo; expected a dense one", lambda: dense(torch.tensor([1])).sum().backward())
    model = Ours(bag)
    bag.sparse = False
    expect_error(TypeError, "weight has a gradient of layout torch.strided; expected a sparse one", lambda: model(torch.tensor([[1]])).sum().backward())


if __name__ == "__main__":
    run(globals())
