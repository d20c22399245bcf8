"""Random torch modules and random ways to train them, each made from one seed. They are used to compare two DDPs."""

import contextlib
import random

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH, BATCH, TOKENS = 24, 3, 10
DENSE = ["linear", "linear", "tied", "reused", "conv", "norm", "batch_norm", "transposed", "gapped", "scalar", "empty", "embedding"]


class Scaled(nn.Module):
    """Multiplies by one parameter, which may have any shape and strides."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x):
        w = self.weight
        return x @ w if w.dim() == 2 else x + w.sum()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


class Reused(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))


class Conv(nn.Module):
    """A convolution whose weight is in channels_last."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)
        self.to(memory_format=torch.channels_last)

    def forward(self, x):
        image = x.view(-1, 2, 3, 4).contiguous(memory_format=torch.channels_last)
        return self.conv(image).reshape(-1, WIDTH)


class Embedded(nn.Module):
    """Adds rows of an embedding. A checkpoint may compute them again."""

    def __init__(self, sparse):
        super().__init__()
        self.rows = nn.Embedding(TOKENS, WIDTH, sparse=sparse)
        self.tokens = None

    def forward(self, x):
        return x + self.rows(self.tokens).mean(1)


def block_of(kind):
    made = {
        "linear": lambda: nn.Linear(WIDTH, WIDTH),
        "tied": Tied,
        "reused": Reused,
        "conv": Conv,
        "norm": lambda: nn.LayerNorm(WIDTH),
        "batch_norm": lambda: nn.BatchNorm1d(WIDTH),
        "transposed": lambda: Scaled(torch.randn(WIDTH, WIDTH).t() / 5),
        "gapped": lambda: Scaled(torch.randn(WIDTH, 2 * WIDTH)[:, ::2] / 5),
        "scalar": lambda: Scaled(torch.randn(())),
        "empty": lambda: Scaled(torch.randn(0)),
        "embedding": lambda: Embedded(False),
        "sparse": lambda: Embedded(True),
    }
    return made[kind]()


class Net(nn.Module):
    """Residual blocks. A pass leaves out some of them, and computes some again in the backward pass."""

    def __init__(self, plan):
        super().__init__()
        self.plan = plan
        self.blocks = nn.ModuleList(block_of(kind) for kind in plan.kinds)
        self.never = nn.Linear(3, 2) if plan.has_unused else None
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.aux = nn.Linear(WIDTH, 2) if plan.has_aux else None
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, x, tokens, mask):
        x = self.frozen(x)
        for block, used, again in zip(self.blocks, mask, self.plan.checkpoints):
            if not used:
                continue
            if isinstance(block, Embedded):
                block.tokens = tokens
            x = x + (checkpoint(block, x, use_reentrant=again == "reentrant") if again else block(x))
        if self.plan.reentrant and not x.requires_grad:
            x = x.requires_grad_()
        main = self.head(torch.tanh(x))
        if self.aux is None:
            return main if self.plan.output == "tensor" else {"main": main, "other": (3, None)}
        return [main, {"aux": self.aux(x)}]


class Plan:
    """What a seed selects: a module, the options of its DDP, and how it is trained."""

    def __init__(self, seed):
        r = self.random = random.Random(seed)
        self.seed = seed
        self.mode = r.choice(["plain", "plain", "find_unused", "find_unused", "static"])
        unused = self.mode != "plain"
        self.kinds = [r.choice(DENSE) for _ in range(r.randint(1, 6))]
        self.has_sparse = r.random() < 0.3
        if self.has_sparse:
            self.kinds.insert(r.randint(0, len(self.kinds)), "sparse")
        self.checkpoints = [self._checkpoint() for _ in self.kinds]
        self.reentrant = "reentrant" in self.checkpoints
        self.has_unused = unused and r.random() < 0.4
        self.has_aux = r.random() < 0.4
        self.uses_aux = self.has_aux and not (self.mode == "find_unused" and r.random() < 0.4)
        self.output = r.choice(["tensor", "dict"])
        self.dtype = r.choice([torch.float32] * 4 + [torch.float64, torch.bfloat16])
        self.autocast = self.dtype == torch.float32 and r.random() < 0.2
        self.micro_batches = r.choice([1, 1, 2, 3])
        self.zero = r.choice(["none", "none", "zeros", "never", "sometimes"])
        self.cap_mb = r.choice([None, 0, 0.001, 0.003])
        self.views = [r.random() < 0.5, r.random() < 0.5]  # gradient views: in stock DDP, in libdsc's DDP
        self.optimizer = "sgd" if self.has_sparse else r.choice(["sgd", "momentum", "adam"])
        self.iterations = r.randint(3, 6)

    def _checkpoint(self):
        if self.random.random() > 0.3:
            return None
        return "plain" if self.mode == "find_unused" else self.random.choice(["plain", "reentrant"])

    def __str__(self):
        told = {key: value for key, value in vars(self).items() if key not in ("random", "checkpoints")}
        return ", ".join(f"{key} {value}" for key, value in told.items())

    def options(self, which):
        """Returns the options of one of the two DDPs."""
        return {
            "bucket_cap_mb": self.cap_mb,
            "find_unused_parameters": self.mode == "find_unused",
            "static_graph": self.mode == "static",
            "gradient_as_bucket_view": self.views[which],
        }

    def module(self, rank):
        torch.manual_seed(100 * self.seed + rank)
        return Net(self).to(self.dtype)

    def optimizer_of(self, params):
        params = [p for p in params if p.requires_grad]
        if self.optimizer == "adam":
            return torch.optim.Adam(params, 0.01, foreach=False)
        return torch.optim.SGD(params, 0.05, momentum=0.9 * (self.optimizer == "momentum"), foreach=False)

    def masks(self, iteration, micro, rank):
        """Returns which blocks a pass uses.

        With a static graph these are the same in every pass, but differ by rank.
        """
        if self.mode == "plain":
            return [1] * len(self.kinds)
        key = (self.seed, rank) if self.mode == "static" else (self.seed, rank, iteration, micro)
        chosen = random.Random(str(key))
        # stock DDP needs every sparse block to be used
        return [kind == "sparse" or chosen.random() < 0.7 for kind in self.kinds]

    def batch(self, iteration, micro, rank):
        generator = torch.Generator().manual_seed(10000 * self.seed + 100 * iteration + 10 * micro + rank)
        x = torch.randn(BATCH, WIDTH, generator=generator).to(self.dtype)
        tokens = torch.randint(0, TOKENS, (BATCH, 4), generator=generator)
        return x.requires_grad_(self.reentrant), tokens, self.masks(iteration, micro, rank)

    def loss(self, output):
        if isinstance(output, dict):
            output = output["main"]
        if isinstance(output, torch.Tensor):
            return output.float().square().mean()
        loss = output[0].float().square().mean()
        return loss + output[1]["aux"].float().mean() if self.uses_aux else loss

    def zeroes(self, iteration):
        return self.zero in ("none", "zeros") or self.zero == "sometimes" and iteration % 2 == 1


def train(plan, rank, model, module, iteration, optimizer):
    """Runs one iteration of one DDP. All its micro-batches except the last one are inside no_sync()."""
    if plan.zeroes(iteration):
        optimizer.zero_grad(set_to_none=plan.zero != "zeros")
    # Stock DDP counts the gradients of a static graph in its first pass, so that pass must be reduced.
    micro_batches = 1 if plan.mode == "static" and iteration == 0 else plan.micro_batches
    for micro in range(micro_batches):
        batch = plan.batch(iteration, micro, rank)
        with model.no_sync() if micro < micro_batches - 1 else contextlib.nullcontext():
            with torch.autocast("cpu", torch.bfloat16, enabled=plan.autocast):
                output = model(*batch)
            plan.loss(output).backward()
    grads = {name: None if p.grad is None else copy_of(p.grad) for name, p in module.named_parameters()}
    optimizer.step()
    return grads


def copy_of(grad):
    return grad.detach().coalesce().to_dense() if grad.is_sparse else grad.detach().clone()


def bits(tensor):
    """Returns the bytes of the elements in logical order."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def differences(expected, got):
    """Returns the names of the tensors whose bits differ."""
    assert expected.keys() == got.keys()
    found = []
    for name, a in expected.items():
        b = got[name]
        if a is None or b is None:
            same = a is None and b is None
        else:
            same = a.shape == b.shape and a.dtype == b.dtype and torch.equal(bits(a), bits(b))
        if not same:
            found.append(f"{name} ({describe(a)}; {describe(b)})")
    return found


def describe(tensor):
    return "None" if tensor is None else f"sum {tensor.detach().double().sum().item():.17g}"
