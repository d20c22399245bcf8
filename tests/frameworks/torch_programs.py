"""Small torch programs as users write them. Each trains or communicates something and returns the result as bits.

They run over "dsc" and over gloo, and must give the same with two ranks.
"""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn


def model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4))


def batch(rank, step, rows=8):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(rows, 16, generator=generator), torch.randn(rows, 4, generator=generator)


def bits(*tensors):
    """Returns what is compared: the bytes of all elements."""
    return [tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for tensor in tensors]


def train(net, rank, steps=4, optimizer=None):
    """Trains for some steps. Returns the bits of the losses and of the parameters."""
    optimizer = optimizer or torch.optim.Adam(net.parameters(), 1e-2)
    losses = []
    for step in range(steps):
        x, y = batch(rank, step)
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss)
    return bits(*losses), [bits(full(parameter)) for parameter in net.parameters()]


def full(parameter):
    return parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter


def ddp(rank):
    return train(nn.parallel.DistributedDataParallel(model(rank), bucket_cap_mb=0.002), rank)


def own_ddp(rank):
    """The same training with libdsc's own class, which needs a process group "dsc"."""
    import libdsc.torch

    return train(libdsc.torch.DistributedDataParallel(model(rank), bucket_cap_mb=0.002), rank)


def ddp_with_buffers(rank):
    net = model(rank)
    net.insert(1, nn.BatchNorm1d(32))
    return train(nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True), rank)


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.unused, self.out = nn.Embedding(20, 8, sparse=True), nn.Linear(3, 3), nn.Linear(8, 4)

    def forward(self, x):
        return self.out(self.table((x[:, :3].abs() * 5).long() % 20).mean(1))


def ddp_sparse_and_unused(rank):
    torch.manual_seed(1)
    net = nn.parallel.DistributedDataParallel(Sparse(), find_unused_parameters=True)
    return train(net, rank, optimizer=torch.optim.SGD(net.parameters(), 0.1))


def ddp_hook(rank):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    net = nn.parallel.DistributedDataParallel(model())
    net.register_comm_hook(None, default_hooks.bf16_compress_hook)
    other = nn.parallel.DistributedDataParallel(model())
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    other.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return train(net, rank), train(other, rank)


def ddp_join(rank):
    net = nn.parallel.DistributedDataParallel(model())
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with net.join():
        for step in range(2 + 2 * rank):
            x, y = batch(rank, step)
            nn.functional.mse_loss(net(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    return bits(*net.parameters())


def fsdp2(rank):
    from torch.distributed.fsdp import fully_shard

    net = model()
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    return train(fully_shard(net), rank)


def fsdp2_mixed(rank):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=True, output_dtype=torch.float32)
    return train(fully_shard(model(), mp_policy=policy), rank)


def zero_optimizer(rank):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = nn.parallel.DistributedDataParallel(model())
    return train(net, rank, optimizer=ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=1e-2))


def dtensor(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(3)
    whole = torch.randn(8, 6)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    product = (rows @ distribute_tensor(torch.randn(6, 6), mesh, [Replicate()])).redistribute(mesh, [Replicate()])
    partial = (columns.sum(1)).redistribute(mesh, [Replicate()])
    assert torch.equal(columns.full_tensor(), whole) and Partial() is not None
    return bits(columns.to_local(), product.to_local(), partial.full_tensor())


def tensor_parallel(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    net = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return train(net, 0)


def functional_collectives(rank):
    group = dist.group.WORLD
    x = torch.arange(6.0) + rank
    made = [
        functional.all_reduce(x, "sum", group),
        functional.all_gather_tensor(x, 0, group),
        functional.reduce_scatter_tensor(x, "avg", 0, group),
        functional.all_to_all_single(x, None, None, group),
        functional.broadcast(x, 1, group),
        *functional.all_reduce_coalesced([x, x[:2].clone()], "max", group),
        *functional.all_gather_into_tensor_coalesced([x, x[:2].clone()], group),
        *functional.reduce_scatter_tensor_coalesced([x, x[:2].clone()], "sum", [0, 0], group),
    ]
    return bits(*[tensor + 0 for tensor in made])


def compiled(rank, backend="aot_eager"):
    net = nn.parallel.DistributedDataParallel(model())
    trained = train(torch.compile(net, backend=backend), rank, steps=2)

    @torch.compile(backend=backend, fullgraph=True)
    def reduced(x):
        return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    return trained, bits(reduced(torch.ones(3) + rank))


def compiled_by_inductor(rank):
    return compiled(rank, "inductor")


def pipelined(rank):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    parts = [model()[:2], model()[2:]]
    stage = PipelineStage(parts[rank], rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    x, y = batch(0, 0)
    losses = []
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=y, losses=losses)
    return bits(*losses), bits(*[parameter.grad for parameter in parts[rank].parameters()])


def checkpointed(rank, folder):
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.fsdp import fully_shard

    net = fully_shard(model())
    train(net, rank, steps=1)
    checkpoint.save({"net": net.state_dict()}, checkpoint_id=folder)
    other = fully_shard(model(7))
    state = {"net": other.state_dict()}
    checkpoint.load(state, checkpoint_id=folder)
    other.load_state_dict(state["net"])
    assert bits(*map(full, other.parameters())) == bits(*map(full, net.parameters()))
    return bits(*map(full, other.parameters()))


def averaged(rank):
    """Local SGD, which averages the parameters from time to time."""
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

    net, averager = model(), PeriodicModelAverager(period=2, warmup_steps=0)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(4):
        x, y = batch(rank, step)
        nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
        averager.average_parameters(net.parameters())
        optimizer.zero_grad()
    return bits(*net.parameters())


def in_folder(body):
    """Makes a program of a body that needs a folder which both ranks see."""

    def run(rank):
        shared = [tempfile.mkdtemp(prefix="dsc-checkpoint-")]
        dist.broadcast_object_list(shared, 0)
        return body(rank, shared[0])

    run.__name__ = body.__name__
    return run


ALL = [
    ddp,
    ddp_with_buffers,
    ddp_sparse_and_unused,
    ddp_hook,
    ddp_join,
    fsdp2,
    fsdp2_mixed,
    zero_optimizer,
    dtensor,
    tensor_parallel,
    functional_collectives,
    compiled,
    pipelined,
    in_folder(checkpointed),
    averaged,
]
