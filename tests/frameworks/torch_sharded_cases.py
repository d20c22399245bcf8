"""Cases for ShardedDataParallel. Each function runs on every rank and returns what the test checks."""

import contextlib
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import libdsc as dsc
from libdsc.torch import DistributedDataParallel, ShardedDataParallel
from torch_sharded_modules import MODELS, Gpt, batch_of, loss_of, optimizer_of

STEPS = 6
CLOSE = 2e-5


def made(name, seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    return MODELS[name][0]().to(dtype)


def sharded(name, stage=3, seed=0, dtype=torch.float32, **options):
    return ShardedDataParallel(made(name, seed, dtype), units=MODELS[name][1], stage=stage, **options)


def ddp(name):
    return DistributedDataParallel(made(name), find_unused_parameters=True)


class Way:
    """The options by which a model is trained."""

    def __init__(self, micro=1, syncs=False, zero="before", to_none=True, autocast=False, evaluates=False):
        self.micro, self.syncs, self.zero, self.to_none = micro, syncs, zero, to_none
        self.autocast, self.evaluates = autocast, evaluates


WAYS = {
    "plain": Way(),
    "no_sync": Way(micro=3),
    "each_micro_batch_reduced": Way(micro=3, syncs=True),
    "zero_between": Way(zero="between"),
    "zero_after": Way(zero="after"),
    "zeros_before": Way(to_none=False),
    "zeros_between": Way(zero="between", to_none=False),
    "zeros_after_no_sync": Way(micro=2, zero="after", to_none=False),
    "autocast": Way(autocast=True),
    "evaluates": Way(evaluates=True),
    "never_zeroed": Way(zero="never"),
}


def train(model, optimizer, way, rank, steps=range(STEPS)):
    """Trains and returns the losses of this rank."""
    losses = []
    for iteration in steps:
        if way.zero == "before":
            optimizer.zero_grad(way.to_none)
        for micro in range(way.micro):
            tokens = batch_of(rank, iteration, micro)
            is_local = micro < way.micro - 1 and not way.syncs
            with model.no_sync() if is_local else contextlib.nullcontext():
                with torch.autocast("cpu", torch.bfloat16, enabled=way.autocast):
                    loss = loss_of(model(tokens), tokens)
                if way.zero == "between" and micro == 0:
                    optimizer.zero_grad(way.to_none)
                loss.backward()
            losses.append(loss.item())
        optimizer.step()
        if way.zero == "after":
            optimizer.zero_grad(way.to_none)
        if way.evaluates:
            model.eval()
            with torch.no_grad():
                losses.append(loss_of(model(tokens), tokens).item())
            model.train()
    return losses


def apart(expected, got):
    """Returns the largest difference of two states in units of float32 rounding, and the names of the tensors whose
    bits differ."""
    assert list(expected) == list(got), (list(expected), list(got))
    worst, names = 0.0, []
    for name, a in expected.items():
        b = got[name]
        assert a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride(), name
        if not torch.equal(a, b):
            names.append(name)
            worst = max(worst, (a.double() - b.double()).abs().max().item())
    return worst, names


def beside_ddp(rank, name, way, optimizer, stages):
    """Returns for each stage how far losses and parameters are from those of DistributedDataParallel, and which of them
    differ."""
    reference = ddp(name)
    expected = train(reference, optimizer_of(optimizer, reference.parameters()), WAYS[way], rank)
    # DDP copies rank 0's buffers to the other ranks.
    left_out = {n for n, _ in reference.module.named_buffers()} if rank else ()
    state = {n: value for n, value in reference.module.state_dict().items() if n not in left_out}
    found = {}
    for stage in stages:
        model = sharded(name, stage)
        got = train(model, optimizer_of(optimizer, model.parameters()), WAYS[way], rank)
        worst, names = apart(state, {n: value for n, value in model.state_dict().items() if n not in left_out})
        found[stage] = max(worst, *(abs(a - b) for a, b in zip(expected, got))), names + ["loss"] * (expected != got)
        model.close()
    return found


def plain(name, state=None):
    """Returns the module as one process has it."""
    module = made(name, seed=9)
    if state is not None:
        module.load_state_dict(state)
    return module


def trained(name, optimizer="adamw", stage=3, rank=0, steps=range(3), **options):
    model = sharded(name, stage, **options)
    of = optimizer_of(optimizer, model.parameters())
    train(model, of, WAYS["plain"], rank, steps)
    return model, of


def clipped(rank, stage, size):
    """Returns norms and parameters, with those of an average that torch clips."""
    reference, model = ddp("gpt"), sharded("gpt", stage)
    optimizers = [optimizer_of("momentum", each.parameters()) for each in (reference, model)]
    norms = []
    for iteration in range(3):
        tokens = batch_of(rank, iteration)
        for each in (reference, model):
            each.zero_grad()
            loss_of(each(tokens), tokens).backward()
        norms.append((float(nn.utils.clip_grad_norm_(reference.parameters(), 0.5)), model.clip_grad_norm_(0.5)))
        for optimizer in optimizers:
            optimizer.step()
    own, expected = model.state_dict(), reference.module.state_dict()
    names = [name for name, _ in model.module.named_parameters()]
    return norms, apart({n: expected[n] for n in names}, {n: own[n] for n in names})[0]


def states(rank, name):
    """Compares state_dict() with that of the plain module. Each is loaded into the other model."""
    model, _ = trained(name, rank=rank)
    state = model.state_dict()
    module = plain(name)
    assert list(state) == list(module.state_dict())
    assert all(value.data_ptr() != p.data_ptr() for value in state.values() for p in model.parameters() if p.numel())
    module.load_state_dict(state)
    with model.full_parameters():
        assert apart(module.state_dict(), model.module.state_dict())[1] == []
        assert {n: p.shape for n, p in model.module.named_parameters()} == {n: p.shape for n, p in module.named_parameters()}
    other = sharded(name, stage=2, seed=3)
    assert str(other.load_state_dict(state)) == "<All keys matched successfully>"
    assert apart(state, other.state_dict())[1] == []
    tokens = batch_of(rank, 50)
    for each in (model, other, module):
        each.eval()
    with torch.no_grad():
        assert torch.equal(model(tokens), module(tokens)) and torch.equal(other(tokens), module(tokens))


def wrong_states(rank):
    """Returns the errors of load_state_dict() for missing and unexpected entries, wrong shapes, and a mistake on one
    rank."""
    model = sharded("gpt")
    before = model.state_dict()
    module = plain("gpt")
    wrong = {name: value + 1 for name, value in before.items() if name != "norm.bias"} | {"extra": torch.ones(1), "norm.weight": torch.ones(3)}
    texts = []
    for each in (model, module):
        try:
            each.load_state_dict(wrong)
        except RuntimeError as error:
            texts.append(str(error))
    assert len(texts) == 2 and texts[0] == texts[1] and "norm.bias" in texts[0] and "extra" in texts[0], texts
    told = None
    try:
        model.load_state_dict(wrong if rank == 1 else {name: value + 1 for name, value in before.items()})
    except (RuntimeError, dsc.InvalidArgError) as error:
        told = type(error).__name__, str(error)
    params = [name for name, _ in model.module.named_parameters()]
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in params)
    loose = {name: value for name, value in wrong.items() if name != "norm.weight"}
    result = model.load_state_dict(loose, strict=False)
    assert sorted(result.missing_keys) == ["norm.bias", "norm.weight"] and result.unexpected_keys == ["extra"]
    assert torch.equal(model.state_dict()["tokens.weight"], wrong["tokens.weight"])
    return told


def optimizer_states(rank, name, optimizer, size):
    """Converts the optimizer state from sharded to plain and back.

    It must equal the unsharded state and train in the same way.
    """
    reference = ddp(name)
    reference_optimizer = optimizer_of(optimizer, reference.parameters())
    train(reference, reference_optimizer, WAYS["plain"], rank, range(3))
    model, own = trained(name, optimizer, rank=rank)
    state = model.optimizer_state_dict(own)
    order = [reference_optimizer.state_dict(), state]
    by_name = []
    for each, of in zip(order, (reference.module, model.module)):
        names = [n for n, p in of.named_parameters() if p.requires_grad]
        by_name.append({f"{names[i]}.{key}": value for i, values in each["state"].items() for key, value in values.items()})
    if size == 2:
        assert apart(*by_name)[1] == []
    else:
        assert apart(*by_name)[0] < CLOSE
    assert state["param_groups"] == order[0]["param_groups"]

    module = plain(name, model.state_dict())
    alone = optimizer_of(optimizer, module.parameters())
    alone.load_state_dict(state)
    other = sharded(name, stage=1, seed=4)
    fresh = optimizer_of(optimizer, other.parameters())
    other.load_state_dict(module.state_dict())
    other.load_optimizer_state_dict(fresh, alone.state_dict())
    expected, got = (train(each, of, WAYS["plain"], rank, range(3, 6)) for each, of in ((model, own), (other, fresh)))
    assert expected == got
    params = [n for n, _ in model.module.named_parameters()]
    a, b = model.state_dict(), other.state_dict()
    assert apart({n: a[n] for n in params}, {n: b[n] for n in params})[1] == []


def save_some(rank, folder, name, optimizer, dtype):
    """Trains and saves. Returns what a run that loads the files must find."""
    model, of = trained(name, optimizer, rank=rank, dtype=dtype)
    model.save(folder, of)
    return model.state_dict(), model.optimizer_state_dict(of)


def load_some(rank, folder, name, optimizer, dtype, stage, state, optimizer_state):
    """Loads with another number of ranks and another stage.

    Trains on and compares with a model that loads the whole state.
    """
    model = sharded(name, stage, seed=7, dtype=dtype)
    of = optimizer_of(optimizer, model.parameters())
    model.load(folder, of)
    assert apart(state, model.state_dict())[1] == []
    found = model.optimizer_state_dict(of)
    assert found["param_groups"] == optimizer_state["param_groups"]
    for i, values in optimizer_state["state"].items():
        assert apart(values, found["state"][i])[1] == []
    other = sharded(name, stage, seed=8, dtype=dtype)
    fresh = optimizer_of(optimizer, other.parameters())
    other.load_state_dict(state)
    other.load_optimizer_state_dict(fresh, optimizer_state)
    assert train(model, of, WAYS["plain"], rank, range(3, 6)) == train(other, fresh, WAYS["plain"], rank, range(3, 6))


def memory(rank, size):
    """Returns the memory held between passes and the peak in them, with the bytes of the whole model.

    The last result is how many units can have waited 20 ms for the memory of another one. Such a unit gets more memory.
    """
    torch.manual_seed(0)
    module = nn.Sequential(*(nn.Linear(256, 256) for _ in range(12)))
    whole = sum(p.numel() * p.element_size() for p in module.parameters())
    model = ShardedDataParallel(module, units=[nn.Linear])
    times, late = [], 0
    for layer in module:
        layer.register_full_backward_pre_hook(lambda *_: times.append(time.monotonic()))
    for _ in range(3):
        times.clear()
        model(torch.ones(2, 256)).sum().backward()
        times.append(time.monotonic())
        late = max(late, sum(int((end - begin) / 0.020) for begin, end in zip(times, times[1:])))
    held = model.sharded.memory
    parts = sum(p.numel() * p.element_size() for p in model.parameters())
    return whole, parts, held, late


def writes(rank, stage):
    """What the program writes to parts, through the parameter or p.data, is used in the next pass on all ranks."""
    model = sharded("gpt", stage)
    tokens = batch_of(0, 0)
    model.eval()
    outputs = []
    with torch.no_grad():
        for write in (lambda p: p.mul_(2), lambda p: p.data.mul_(0.25), lambda p: setattr(p, "data", p.data * 3)):
            outputs.append(model(tokens))
            for p in model.parameters():
                write(p)
        outputs.append(model(tokens))
    module = plain("gpt", made("gpt").state_dict())
    expected = []
    with torch.no_grad():
        for factor in (1, 2, 0.25, 3):
            for p in module.parameters():
                p.mul_(factor)
            expected.append(module(tokens))
    assert all(torch.equal(a, b) for a, b in zip(outputs, expected))
    return [each.sum().item() for each in outputs]


def gradients_set_by_the_program(rank, stage):
    """A tensor that the program stores in p.grad is added, before the first pass and later.

    Returns the sums over all ranks and those of DDP.
    """
    reference, model = ddp("gpt"), sharded("gpt", stage)
    tokens, sums = batch_of(rank, 0), []
    for _ in range(2):
        for each in (reference, model):
            for p in each.parameters():
                if p.requires_grad:
                    p.grad = torch.full_like(p, 0.5)
            loss_of(each(tokens), tokens).backward()
        total = sum(p.grad.double().sum() for p in model.parameters() if p.grad is not None).reshape(1)
        dist.all_reduce(total)
        sums.append((total.item(), sum(p.grad.double().sum().item() for p in reference.parameters() if p.grad is not None)))
    return sums


def compiled(rank, which):
    """Returns losses of a compiled model, or of one with compiled blocks, and those without torch.compile."""
    model, other = sharded("gpt"), sharded("gpt")
    if which == "blocks":
        for block in other.module.blocks:
            block.compile(backend="aot_eager")
    compiled = torch.compile(other, backend="aot_eager") if which == "model" else other
    optimizers = [optimizer_of("momentum", each.parameters()) for each in (model, other)]
    return [train_with(each, of, rank) for each, of in zip((model, compiled), optimizers)]


def train_with(model, optimizer, rank):
    losses = []
    for iteration in range(4):
        tokens = batch_of(rank, iteration)
        optimizer.zero_grad()
        loss = loss_of(model(tokens), tokens)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def beside_fsdp(rank):
    """Returns the losses of torch's FSDP2 over the default group, and of libdsc."""
    torch.manual_seed(0)
    theirs, model = Gpt(), sharded("gpt")
    theirs.scale = nn.Parameter(torch.ones(1))  # FSDP2 does not accept scalar parameters
    for block in (*theirs.blocks, theirs.detached, theirs):
        fully_shard(block)
    optimizers = [torch.optim.SGD([p for p in each.parameters() if p.requires_grad], 0.05, momentum=0.9) for each in (theirs, model)]
    return [train_with(each, of, rank) for each, of in zip((theirs, model), optimizers)]


def on_gloo(rank, size, folder):
    """Runs FSDP2 over gloo, and libdsc in its own world."""
    dsc.init_distributed(rank=rank, world_size=size, job_id=f"sharded-{os.path.basename(folder)}")
    losses = beside_fsdp(rank)
    dsc.finalize()
    return losses


def hybrid(rank):
    """Compares shards over two ranks of four with shards over all ranks, with a state dict saved and loaded."""
    losses = []
    for options in ({}, {"shard_size": 2}):
        model, of = trained("gpt", "adamw", rank=rank, steps=range(0), **options)
        losses.append(train(model, of, WAYS["plain"], rank))
        state, optimizer_state = model.state_dict(), model.optimizer_state_dict(of)
        assert all(value.shape == p.shape for value, p in zip(state.values(), plain("gpt").state_dict().values()))
        model.load_state_dict(state)
        model.load_optimizer_state_dict(of, optimizer_state)
        losses.append(train(model, of, WAYS["plain"], rank, range(STEPS, STEPS + 2)))
    return losses


class Two(nn.Module):
    """A unit in a unit, one module used twice, one parameter in two units, a unit of another dtype, and two outputs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.outer = nn.Sequential(nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.Tanh()))
        self.left, self.right = nn.Linear(6, 6), nn.Linear(6, 6)
        self.right.weight = self.left.weight
        self.precise = nn.Linear(6, 6, dtype=torch.float64)

    def forward(self, x):
        x = self.outer(torch.tanh(self.outer(x)))
        return self.left(x) + self.right(x), self.precise(x.double())


class Second(nn.Module):
    """Keeps a second loss, which is computed after its output."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.gate, self.layer, self.extra = nn.Linear(6, 6), nn.Linear(6, 6), []

    def forward(self, x):
        output = torch.tanh(self.layer(x))
        self.loss = self.gate(x).square().mean()
        self.extra[:] = [self.gate(x).mean()]
        return output


def second_losses(rank, size, stage, alone):
    """Compares gradients when modules keep losses in addition to the output. If `alone`, the output is not used."""
    inputs = [torch.randn(3, 6, generator=torch.Generator().manual_seed(r)) for r in range(size)]

    def backward(model, blocks, x):
        output = model(x)
        loss = sum(block.loss + block.extra[0] for block in blocks)
        (loss if alone else loss + output.sum()).backward()

    modules = [nn.Sequential(Second(), Second(), nn.Linear(6, 2)) for _ in range(2)]
    modules[1].load_state_dict(modules[0].state_dict())
    model = ShardedDataParallel(modules[0], units=[Second], stage=stage)
    backward(model, list(modules[0])[:2], inputs[rank])
    for x in inputs:
        backward(modules[1], list(modules[1])[:2], x)
    optimizer = torch.optim.SGD(model.parameters(), 0.0, momentum=1.0)
    optimizer.step()
    expected = {i: p.grad / size for i, p in enumerate(modules[1].parameters()) if p.grad is not None}
    state = model.optimizer_state_dict(optimizer)["state"]
    found = {i: values["momentum_buffer"] for i, values in state.items() if values["momentum_buffer"] is not None}
    assert found.keys() == expected.keys()
    return max((found[i] - grad).abs().max().item() for i, grad in expected.items())


def two_units(module):
    return isinstance(module, (nn.Sequential, nn.Linear))


def calls_of(rank, size, stage):
    """Compares the gradients of several ways to call forward and backward with the mean over ranks, which each rank
    computes."""
    inputs = [[torch.randn(3, 6, generator=torch.Generator().manual_seed(10 * r + k)) for k in range(2)] for r in range(size)]

    def together(model, a, b):
        """Two forward passes, one backward pass."""
        ((model(a)[0].sum() + model(b)[0].square().sum())).backward()

    def in_turn(model, a, b):
        """Two forward passes, then two backward passes."""
        first, second = model(a)[0].sum(), model(b)[1].square().sum()
        second.backward()
        first.backward()

    def twice(model, a, b):
        """One graph, two backward passes."""
        loss = model(a)[0].square().sum()
        loss.backward(retain_graph=True)
        loss.backward()

    def forgets(model, a, b):
        """The gradients of the first backward pass are zeroed."""
        loss = model(a)[0].square().sum()
        loss.backward(retain_graph=True)
        model.zero_grad()
        loss.backward()

    def by_output(model, a, b):
        """One backward pass for each output."""
        first, second = model(a)
        first.square().sum().backward(retain_graph=True)
        second.square().sum().backward()

    def with_input(model, a, b):
        """First a gradient of the inputs, then a pass without gradients in between."""
        a = a.clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(a)[0].sum(), a)
        output = model(a.detach() + slope)[0]
        with torch.no_grad():
            model(b)
        output.square().sum().backward()

    worst = {}
    for way in (together, in_turn, twice, forgets, by_output, with_input):
        model, reference = ShardedDataParallel(Two(), units=two_units, stage=stage), Two()
        for _ in range(2):  # the second call adds to the gradients of the first one
            way(model, *inputs[rank])
        for r in range(size):
            alone = Two()
            for _ in range(2):
                way(alone, *inputs[r])
            for p, q in zip(reference.parameters(), alone.parameters()):
                if q.grad is not None:
                    p.grad = q.grad if p.grad is None else p.grad + q.grad
        params = {name: p for name, p in reference.named_parameters() if p.grad is not None}
        # The momentum after one step is the average, and the state dict contains it as a whole.
        optimizer = torch.optim.SGD(model.parameters(), 0.0, momentum=1.0)
        optimizer.step()
        state = model.optimizer_state_dict(optimizer)["state"]
        names = [name for name, _ in reference.named_parameters()]
        found = {names[i]: values["momentum_buffer"] for i, values in state.items() if values["momentum_buffer"] is not None}
        assert found.keys() == params.keys(), (found.keys(), params.keys())
        worst[way.__name__] = max((found[name] - p.grad / size).abs().max().item() for name, p in params.items())
        model.close()
    return worst


def small_things(rank):
    """A wrapper inside another module, a group of some ranks, parameters that differ by rank, and a unit that is the
    whole model."""
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = sharded("conv")

    outer = Outer()
    state = outer.state_dict()
    assert list(state) == [f"inner.{name}" for name in plain("conv").state_dict()]

    own = [dist.new_group([each], backend="dsc") for each in range(2)][rank]
    torch.manual_seed(rank)
    alone = ShardedDataParallel(nn.Linear(3, 2), own)
    assert repr(alone).startswith("ShardedDataParallel(") and "stage=3, 2 parameters in 1 units" in repr(alone)
    alone(torch.ones(1, 3)).sum().backward()
    assert alone.module.weight.grad.tolist() == [1.0] * 6

    torch.manual_seed(rank)
    module = nn.Linear(8, 8)
    kept = module.weight.detach().clone().reshape(-1)
    different = ShardedDataParallel(module, init_sync=False)
    found = different.state_dict()["weight"].reshape(-1)
    halves = [torch.empty_like(kept) for _ in range(2)]
    dist.all_gather(halves, kept)
    mine = found == halves[rank]
    assert mine.any() and not mine.all()
    return found.tolist()


def gradients_that_the_program_forgets(rank, stage):
    """The program sets some p.grad to None. The old values must count neither in the next average nor in the norm."""
    found = {}
    for name, model in (("expected", ddp("gpt")), ("got", sharded("gpt", stage))):
        sums = found[name] = []
        for iteration in range(3):
            tokens = batch_of(rank, iteration)
            loss_of(model(tokens), tokens).backward()
            for layer in (model.module.norm, model.module.blocks[1]):
                for p in layer.parameters():
                    p.grad = None
            if name == "got":
                sums.append(model.clip_grad_norm_(1e9))
            else:
                sums.append(float(nn.utils.clip_grad_norm_(model.parameters(), 1e9)))
    return found


def documented(rank, blocks, folder):
    """Runs the Python code of a page, one block after another."""
    world = dsc.init_distributed(rank=rank, world_size=2, job_id=f"page-{os.path.basename(folder)}-{os.getppid()}")
    os.chdir(folder)
    names = {"init_distributed": None}
    dsc.init_distributed = lambda: world
    for block in blocks:
        exec(block, names)
    dsc.finalize()


OPTIMIZERS = {
    "fused AdamW": lambda params: torch.optim.AdamW(params, 0.01, fused=True),
    "foreach Adam": lambda params: torch.optim.Adam(params, 0.01, foreach=True, amsgrad=True),
    "Adam in a loop": lambda params: torch.optim.Adam(params, 0.01, foreach=False),
    "fused SGD": lambda params: torch.optim.SGD(params, 0.05, momentum=0.9, fused=True),
    "RMSprop": lambda params: torch.optim.RMSprop(params, 0.01, momentum=0.9),
    "Adagrad": lambda params: torch.optim.Adagrad(params, 0.01),
    "NAdam": lambda params: torch.optim.NAdam(params, 0.01),
    "RAdam": lambda params: torch.optim.RAdam(params, 0.01),
}


def optimizers(rank):
    """Returns which elementwise optimizers do not give the bits of DDP, or cannot load each other's state."""
    found = []
    for name, make in OPTIMIZERS.items():
        reference, model = ddp("gpt"), sharded("gpt")
        first, second = (make([p for p in each.parameters() if p.requires_grad]) for each in (reference, model))
        expected, got = (train(each, of, WAYS["plain"], rank) for each, of in ((reference, first), (model, second)))
        params = [n for n, _ in reference.module.named_parameters()]
        a, b = reference.module.state_dict(), model.state_dict()
        if expected != got or apart({n: a[n] for n in params}, {n: b[n] for n in params})[1]:
            found.append(name)
        first.load_state_dict(model.optimizer_state_dict(second))
        model.load_optimizer_state_dict(second, first.state_dict())
        model.close()
    return found
