"""libdsc.torch.layers: a divided model has the losses and gradients of the plain model, and of torch's own tensor
parallelism."""

import copy
import os
import pickle

import pytest
import torch
import torch.distributed as dist
import torch_ranks as ranks
import torch_transformer as transformer
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.utils.parametrizations import weight_norm

import libdsc as dsc
from libdsc.torch import DistributedDataParallel, ShardedDataParallel, communicator, layers
from libdsc.torch import functional as dscf
from test_torch_functional import on_ranks

# Tolerances of float64 and float32: products are summed in another order, with up to 96 elements and three steps.
TOLERANCES = {torch.float64: 1e-10, torch.float32: 2e-5}


def close(got, expected):
    torch.testing.assert_close(got, expected, rtol=TOLERANCES[expected.dtype], atol=TOLERANCES[expected.dtype])


def trains_alike(rank, dtype, sequence_parallel):
    n = dist.get_world_size()
    plain = transformer.made(transformer.Plain(), dtype)
    model = transformer.made(transformer.Divided(None, n, sequence_parallel), dtype)
    initial, start = plain.state_dict(), layers.whole_state_dict(model)
    assert start.keys() == initial.keys() and all(torch.equal(start[key], initial[key]) for key in initial)
    close(transformer.trained(model), transformer.trained(plain))
    for (name, p), (_, whole) in zip(model.named_parameters(), plain.named_parameters()):
        close(p.grad, transformer.part(whole.grad, p, rank, n))
        assert p.shape != whole.shape or p.dim() == 1, name  # all matrices are divided
    end = layers.whole_state_dict(model)
    for key, expected in plain.state_dict().items():
        close(end[key], expected)
    return True


@on_ranks
@pytest.mark.parametrize("sequence_parallel", [pytest.param(False, marks=pytest.mark.full), True])
def test_transformer(n, hosts, sequence_parallel):
    assert ranks.run(n, trains_alike, torch.float64, sequence_parallel, hosts=hosts) == [True] * n


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_transformer_of_float32(sequence_parallel):
    assert ranks.run(2, trains_alike, torch.float32, sequence_parallel) == [True] * 2


def two_by_two(rank):
    """Tensor parallel inside pairs of ranks, data parallel between the pairs."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    replicas = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    plain = transformer.made(transformer.Plain(), torch.float64)
    model = transformer.made(transformer.Divided(pairs[rank // 2], 2, True), torch.float64)
    sum(plain(*transformer.batch(step)) for step in range(2)).div(2).backward()
    model(*transformer.batch(rank // 2)).backward()
    for p, whole in zip(model.parameters(), plain.parameters()):
        communicator(replicas[rank % 2]).all_reduce(p.grad, "avg")
        close(p.grad, transformer.part(whole.grad, p, rank % 2, 2))
    return True


def test_tensor_and_data_parallel():
    assert ranks.run(4, two_by_two) == [True] * 4


def mlp(up, down):
    torch.manual_seed(4)
    return nn.Sequential(up(12, 24), nn.GELU(), down(24, 12))


def like_dtensor(rank):
    n = dist.get_world_size()
    ours = mlp(layers.ColumnParallelLinear, layers.RowParallelLinear)
    mesh = init_device_mesh("cpu", (n,))
    torchs = parallelize_module(mlp(nn.Linear, nn.Linear), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = torch.randn(5, 12, generator=torch.Generator().manual_seed(1))
    results = []
    for model in (ours, torchs):
        leaf = x.clone().requires_grad_()
        loss = model(leaf).square().mean()
        loss.backward()
        grads = [p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad for p in model.parameters()]
        results.append([loss.detach(), leaf.grad, *grads])
    for got, expected in zip(*results, strict=True):
        close(got, expected)
    return True


@pytest.mark.parametrize("n", [2, 3])
def test_like_torchs_tensor_parallelism(n):
    assert ranks.run(n, like_dtensor) == [True] * n


def values(rank):
    """Values equal those of torch's layers with the same seed: newly drawn, taken from a layer, and of another type."""
    n = dist.get_world_size()
    for plain, divided in (
        (lambda: nn.Linear(5, 6 * n), lambda: layers.ColumnParallelLinear(5, 6 * n)),
        (lambda: nn.Linear(6 * n, 5, False), lambda: layers.RowParallelLinear(6 * n, 5, False)),
        (lambda: nn.Embedding(11, 4, 2, dtype=torch.float64), lambda: layers.VocabParallelEmbedding(11, 4, 2, dtype=torch.float64)),
    ):
        torch.manual_seed(8)
        expected = plain()
        torch.manual_seed(8)
        made = divided()
        again = torch.get_rng_state()
        assert repr(made).startswith(type(made).__name__) and "group" not in repr(made)
        for _ in range(2):
            state = layers.whole_state_dict(made)
            assert state.keys() == expected.state_dict().keys()
            assert all(torch.equal(state[key], value) for key, value in expected.state_dict().items())
            nn.init.zeros_(made.weight)
            torch.manual_seed(8)
            made.reset_parameters()
        assert torch.equal(torch.get_rng_state(), again)
    linear = nn.Linear(4, 2 * n).requires_grad_(False).eval()
    dist.broadcast(linear.weight, 0)
    made = layers.ColumnParallelLinear.from_linear(linear, gather_output=True)
    assert not made.weight.requires_grad and not made.training
    dist.broadcast(linear.bias, 0)
    x = torch.ones(3, 4)
    layers.load_whole_state_dict(made, linear.state_dict())
    torch.testing.assert_close(made(x), linear(x))
    made = layers.RowParallelLinear.from_linear(nn.Linear(2 * n, 3), input_is_parallel=False)
    assert made(torch.ones(3, 2 * n)).shape == (3, 3)
    return True


@pytest.mark.parametrize("n", [1, 2, 3])
def test_values(n):
    assert ranks.run(n, values) == [True] * n


def embeds_alike(rank):
    """Tests every option of torch's layer, with a table that the number of ranks does not divide."""
    tokens = torch.tensor([[0, 4, 4], [6, 2, 4]])
    for options in ({}, {"padding_idx": -3}, {"max_norm": 0.5}, {"scale_grad_by_freq": True}, {"sparse": True}):
        torch.manual_seed(2)
        plain = nn.Embedding(7, 3, dtype=torch.float64, **options)
        made = layers.VocabParallelEmbedding.from_embedding(plain)
        torch.testing.assert_close(made(tokens), plain(tokens))
        assert made(tokens[0, 1]).shape == (3,)
        for layer in (made, plain):
            layer.zero_grad()
            layer(tokens.int()).square().sum().backward()
        grads = [(p.grad.to_dense() if p.grad.is_sparse else p.grad) for p in (made.weight, plain.weight)]
        torch.testing.assert_close(grads[0], made._part("weight", grads[1]))
        torch.testing.assert_close(made.weight, made._part("weight", plain.weight))  # max_norm changes the weight
    return True


@pytest.mark.parametrize("n", [2, 3, 4])
def test_embedding(n):
    assert ranks.run(n, embeds_alike) == [True] * n


def saves(rank, path):
    model = transformer.made(transformer.Divided(None, dist.get_world_size(), False), torch.float64)
    losses = transformer.trained(model)
    state = layers.whole_state_dict(model)
    if rank == 0:
        torch.save(state, path)
    return transformer.trained(model, 1)


def loads(rank, path):
    torch.manual_seed(77 + rank)
    model = transformer.Transformer(transformer.Divided(None, dist.get_world_size(), False), torch.float64)
    assert not layers.load_whole_state_dict(model, torch.load(path)).missing_keys
    return transformer.trained(model, 1)


def test_another_number_of_ranks(tmp_path):
    saved = ranks.run(2, saves, tmp_path / "model")
    for n in (1, 3, 4):
        for losses in ranks.run(n, loads, tmp_path / "model"):
            close(losses, saved[0])


def shares_a_table(rank):
    """Another module uses the parameter too, under a second name."""
    words, head = layers.VocabParallelEmbedding(7, 3), nn.Module()
    head.weight = words.weight
    model = nn.ModuleDict({"words": words, "head": head})
    state = layers.whole_state_dict(model)
    assert [tuple(value.shape) for value in state.values()] == [(7, 3)] * 2
    layers.load_whole_state_dict(model, {key: torch.full((7, 3), 5.0) for key in state})
    return (head.weight == 5).all().item() and head.weight is words.weight


def test_shared_parameters():
    assert ranks.run(2, shares_a_table) == [True] * 2


def wrong_states(rank):
    if rank:
        return True
    linear, hooked = layers.ColumnParallelLinear(3, 4), nn.Linear(4, 4)
    hooked.register_forward_hook(print)
    with pytest.raises(ValueError, match=r"weight has shape \(2, 3\); expected 4 elements along dimension 0"):
        layers.load_whole_state_dict(linear, {"weight": torch.ones(2, 3), "bias": torch.ones(4)})
    with pytest.raises(RuntimeError, match="Missing key.*bias"):
        layers.load_whole_state_dict(linear, {"weight": torch.ones(4, 3)})
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        layers.load_whole_state_dict(linear, {"weight": torch.ones(4, 9), "bias": torch.ones(4)})
    for text, make in (
        ("out_features is 5; expected a multiple of 2", lambda: layers.ColumnParallelLinear(3, 5)),
        ("in_features is 3; expected a multiple of 2", lambda: layers.RowParallelLinear.from_linear(nn.Linear(3, 4))),
        ("linear has hooks; register hooks with the divided layer", lambda: layers.ColumnParallelLinear.from_linear(hooked)),
        ("linear is a ParametrizedLinear; expected", lambda: layers.RowParallelLinear.from_linear(weight_norm(nn.Linear(4, 4)))),
        ("weight of a Parametrized.* is not a parameter", lambda: layers.whole_state_dict(weight_norm(layers.ColumnParallelLinear(3, 4)))),
        ("linear is a Embedding; expected a torch.nn.Linear", lambda: layers.ColumnParallelLinear.from_linear(nn.Embedding(2, 2))),
        ("embedding is a Linear; expected", lambda: layers.VocabParallelEmbedding.from_embedding(nn.Linear(2, 2))),
        ("group is a int", lambda: layers.VocabParallelEmbedding(4, 2, group=3)),
        ("gather_output and sequence_parallel", lambda: layers.ColumnParallelLinear(2, 4, gather_output=True, sequence_parallel=True)),
        ("input_is_parallel is False", lambda: layers.RowParallelLinear(4, 2, input_is_parallel=False, sequence_parallel=True)),
    ):
        with pytest.raises((TypeError, ValueError), match=text):
            make()
    return True


def test_wrong_arguments():
    assert ranks.run(2, wrong_states) == [True] * 2


def sums_what_is_whole(rank):
    """sum_gradients() of a whole block.

    Divided parameters and the bias of the row-parallel layer must have their gradients.
    """
    n, how = dist.get_world_size(), {"sequence_parallel": True}
    x, blocks = torch.randn(4, 12, generator=torch.Generator().manual_seed(1)).double(), []
    for up, down in (
        (nn.Linear, nn.Linear),
        (lambda *sizes: layers.ColumnParallelLinear(*sizes, **how), lambda *sizes: layers.RowParallelLinear(*sizes, **how)),
    ):
        blocks.append(nn.Sequential(nn.LayerNorm(12), mlp(up, down)).double())
    plain, model = blocks
    layers.sum_gradients(model)
    plain(x).square().sum().backward()
    dscf.tensor_map(model(dscf.tensor_map(x, "scatter", 0)), "gather", 0).square().sum().backward()
    for p, whole in zip(model.parameters(), plain.parameters()):
        close(p.grad, transformer.part(whole.grad, p, rank, n))
    table = nn.Embedding(4, 2, sparse=True)
    layers.sum_gradients(table)
    table(torch.tensor([rank, 3])).sum().backward()
    assert table.weight.grad.is_sparse
    assert torch.equal(table.weight.grad.to_dense()[:, 0], torch.tensor([1.0, 1.0, 0.0, 2.0]))
    return True


def test_sums_of_gradients():
    assert ranks.run(2, sums_what_is_whole) == [True] * 2


def beside_replicas(rank):
    """DistributedDataParallel refuses parameters that are divided over its ranks, and accepts parts that are equal on
    all ranks."""
    model = mlp(layers.ColumnParallelLinear, layers.RowParallelLinear)
    kept = model[0].weight.detach().clone()
    with pytest.raises(ValueError, match=r"parameter 0.weight is divided among ranks, and the ranks of this group have parts \[0, 1\]"):
        DistributedDataParallel(model)
    assert torch.equal(model[0].weight, kept)
    alone = layers.ColumnParallelLinear(4, 4, group=communicator().split(rank))
    whole = layers.whole_state_dict(alone)["weight"]
    DistributedDataParallel(alone).close()  # all ranks have part 0 of their own groups
    nn.init.zeros_(alone.weight)
    return whole.any().item()  # not zero, because the whole state is a copy of the parameter


def test_data_parallelism_of_parts():
    assert ranks.run(2, beside_replicas) == [True] * 2


def copies(rank):
    x = torch.ones(2, 12)
    for group in (None, dist.group.WORLD, communicator()):
        torch.manual_seed(4)
        model = nn.Sequential(layers.ColumnParallelLinear(12, 24, group=group), nn.GELU(), layers.RowParallelLinear(24, 12, group=group))
        for other in (copy.deepcopy(model), torch.compile(model, backend="aot_eager")):
            assert torch.equal(other(x), model(x))
        if group is not None:
            with pytest.raises(TypeError, match="a layer with group= cannot be pickled; use whole_state_dict"):
                pickle.dumps(model)
    assert torch.equal(model(x), other(x))  # the group still exists after its copies were deleted
    model = mlp(layers.ColumnParallelLinear, layers.RowParallelLinear)
    assert torch.equal(pickle.loads(pickle.dumps(model))(x), model(x))
    return True


def test_copies():
    assert ranks.run(2, copies) == [True] * 2


def on_meta(rank):
    """The values are loaded later, and no rank ever has the whole layer."""
    made = layers.ColumnParallelLinear(4, 6, device="meta")
    assert made.weight.is_meta and made.weight.shape == (3, 4)
    made = made.to_empty(device="cpu")
    layers.load_whole_state_dict(made, nn.Linear(4, 6).state_dict())
    assigned = layers.ColumnParallelLinear(4, 6, device="meta")
    layers.load_whole_state_dict(assigned, layers.whole_state_dict(made), assign=True)
    assert torch.equal(assigned.weight, made.weight) and assigned.weight.untyped_storage().nbytes() == 3 * 4 * 4
    for layer in (made, assigned, copy.deepcopy(made), copy.deepcopy(made).double()):
        weight = layer.weight
        assert (weight.tensor_model_parallel, weight.partition_dim, weight.partition_rank) == (True, 0, rank)
    return made(torch.ones(2, 4)).shape == (2, 3)


def test_meta_device():
    assert ranks.run(2, on_meta) == [True] * 2


def trained_beside(rank, n, job):
    world = dsc.init_distributed(rank=rank, world_size=n, job_id=job, timeout=60)
    model = mlp(layers.ColumnParallelLinear, layers.RowParallelLinear)
    y = model(torch.ones(2, 12))
    torch.testing.assert_close(y, mlp(nn.Linear, nn.Linear)(torch.ones(2, 12)))
    assert world.size == n
    dsc.finalize()
    return True


def test_world_of_libdsc():
    assert ranks.run(2, trained_beside, 2, f"layers-{os.getpid()}", backend=None) == [True] * 2


def fused(rank):
    """Three layers in one, such as q, k and v. Each is divided, and the whole state equals that of torch."""
    n = dist.get_world_size()
    torch.manual_seed(11)
    plain = nn.Linear(6, 3 * 4 * n)
    torch.manual_seed(11)
    made = layers.ColumnParallelLinear(6, 3 * 4 * n, fused=3)
    x = torch.randn(5, 6)
    for layer in (made, layers.ColumnParallelLinear.from_linear(plain, fused=3)):
        for got, whole in zip(layer(x).chunk(3, -1), plain(x).chunk(3, -1)):
            torch.testing.assert_close(got, whole[:, 4 * rank : 4 * rank + 4])
        state = layers.whole_state_dict(layer)
        assert all(torch.equal(state[key], value) for key, value in plain.state_dict().items())
    with torch.no_grad():
        made.weight.zero_()
    layers.load_whole_state_dict(made, plain.state_dict())
    assert torch.equal(layers.whole_state_dict(made)["weight"], plain.weight)
    assert made.weight.partition_stride == 3
    with pytest.raises(ValueError, match=f"out_features is {4 * n}; expected a multiple of {3 * n}, the number of ranks times 3 fused"):
        layers.ColumnParallelLinear(6, 4 * n, fused=3)
    with pytest.raises(ValueError, match="fused is 2 and gather_output is True"):
        layers.ColumnParallelLinear(6, 4 * n, fused=2, gather_output=True)
    return True


@pytest.mark.parametrize("n", [2, 4])
def test_fused_layers(n):
    assert ranks.run(n, fused) == [True] * n


def clipped(rank):
    """All ranks get the norm and the gradients of the plain model."""
    n = dist.get_world_size()
    torch.manual_seed(12)
    plain = nn.Sequential(nn.Linear(6, 4 * n), nn.Tanh(), nn.Linear(4 * n, 6), nn.LayerNorm(6))
    model = nn.Sequential(
        layers.ColumnParallelLinear.from_linear(plain[0]), nn.Tanh(), layers.RowParallelLinear.from_linear(plain[2]), copy.deepcopy(plain[3])
    )
    x = torch.randn(5, 6)
    for each in (model, plain):
        each(x).square().sum().backward()
    for limit in (1e9, 0.25):
        norm, expected = layers.clip_grad_norm_(model, limit), nn.utils.clip_grad_norm_(plain.parameters(), limit)
        torch.testing.assert_close(norm.float(), expected)
    torch.testing.assert_close(model[3].weight.grad, plain[3].weight.grad)
    torch.testing.assert_close(model[0].weight.grad, plain[0].weight.grad[4 * rank : 4 * rank + 4])
    for each in model.parameters():
        each.grad.fill_(float("inf") if rank == 1 else 1.0)
    before = model[0].weight.grad.clone()
    assert not layers.clip_grad_norm_(model, 1.0).isfinite() and torch.equal(model[0].weight.grad, before)
    model.zero_grad()
    # a group of this rank only
    sharded = ShardedDataParallel(model, [dist.new_group([each]) for each in range(n)][rank])
    sharded(x).sum().backward()
    with pytest.raises(ValueError, match="clip_grad_norm_: 0.weight is also divided by libdsc.torch.layers"):
        sharded.clip_grad_norm_(1.0)
    return norm.item()


def test_norms_of_divided_models():
    first, second = ranks.run(2, clipped)
    assert first == second


def on_a_mesh(rank):
    """A mesh of one dimension is accepted like its process group."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"), backend_override={"dp": "dsc", "tp": "dsc"})
    x = torch.full((2, 4), 1.0 + mesh["dp"].get_local_rank())
    results = []
    for wrap in (DistributedDataParallel, ShardedDataParallel):
        torch.manual_seed(13)
        model = wrap(nn.Linear(4, 1), process_group=mesh["dp"])
        model(x).sum().backward()
        results.append(sum(p.grad.sum().item() for p in model.parameters()))
    return results[0]


def test_meshes():
    assert ranks.run(4, on_a_mesh) == [4 * 3.0 + 2.0] * 4
