"""The SyncBatchNorm in docs/coming_from.md gives what torch's BatchNorm gives for the batches of all ranks together."""

import pathlib
import re

import pytest
import torch_ranks as ranks
import torch
import torch.distributed as dist

import libdsc.torch  # noqa: F401

ROOT = pathlib.Path(__file__).resolve().parents[2]
FEATURES = 6


def recipe():
    """Returns the class, read from the document."""
    text = (ROOT / "docs" / "coming_from.md").read_text()
    (block,) = re.findall(r"^```python\n([^`]*class SyncBatchNorm.*?)^```$", text, re.MULTILINE | re.DOTALL)
    namespace = {}
    exec(block, namespace)
    return namespace["SyncBatchNorm"]


def close(got, wanted):
    torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9)


def trains_alike(rank, plain, shape, momentum):
    """Trains three steps and compares them with the whole batch in one process.

    Rank 0 has two rows, rank 1 has three, and so on.
    """
    torch.manual_seed(1)
    sizes = [2 + r for r in range(dist.get_world_size())]
    part = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
    whole = torch.randn(sum(sizes), FEATURES, *shape, dtype=torch.float64) * 3 + 100
    target = torch.randn_like(whole)
    alone, ours = plain(FEATURES, momentum=momentum).double(), recipe()(FEATURES, momentum=momentum).double()
    with torch.no_grad():
        alone.weight.uniform_(0.5, 1.5)
        alone.bias.uniform_()
    ours.load_state_dict(alone.state_dict())
    for _ in range(3):
        x, y = whole.clone().requires_grad_(), whole[part].clone().requires_grad_()
        ((alone(x) - target) ** 2).sum().backward()
        ((ours(y) - target[part]) ** 2).sum().backward()
        close(y.grad, x.grad[part])
        for parameter, wanted in zip(ours.parameters(), alone.parameters()):
            total = parameter.grad.clone()
            dist.all_reduce(total)
            close(total, wanted.grad)
        for buffer, wanted in zip(ours.buffers(), alone.buffers()):
            close(buffer, wanted)
    close(ours.eval()(whole[part]), alone.eval()(whole)[part])
    return True


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize(("plain", "shape"), [(torch.nn.BatchNorm1d, ()), (torch.nn.BatchNorm2d, (3, 4))])
def test_whole_batch(plain, shape, momentum):
    assert ranks.run(2, trains_alike, plain, shape, momentum) == [True, True]


def one_value(rank):
    layer = recipe()(FEATURES)
    with pytest.raises(ValueError, match="one value per channel"):
        layer(torch.ones(1 - rank, FEATURES))
    return True


def test_one_value_per_channel():
    assert ranks.run(2, one_value) == [True, True]
