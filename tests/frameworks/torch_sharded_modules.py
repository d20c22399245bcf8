"""Small modules for ShardedDataParallel. Each has properties that make sharding difficult."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, LAYERS, CONTEXT, VOCABULARY, BATCH = 24, 2, 3, 8, 19, 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, WIDTH)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Detached(nn.Module):
    """A unit whose backward pass reads a view of a weight that is no longer a parameter."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.layer(x) + x @ self.layer.weight.detach()


class Gpt(nn.Module):
    """Has a head tied to the embedding, a frozen layer, an unused layer, and buffers."""

    def __init__(self, again=None):
        super().__init__()
        self.again = again  # how blocks are computed again in the backward pass
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.detached, self.unused = Detached(), Block()
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, tokens):
        self.steps += 1
        x = self.tokens(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x) if self.again is None else checkpoint(block, x, use_reentrant=self.again == "reentrant")
        return self.head(self.norm(self.detached(self.frozen(x)))) * self.scale


class Conv(nn.Module):
    """Uses channels_last, and the statistics of batches."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.last = nn.Linear(6, VOCABULARY)
        self.to(memory_format=torch.channels_last)

    def forward(self, tokens):
        images = tokens.repeat_interleave(3 * CONTEXT, 1).view(-1, 3, CONTEXT, CONTEXT) / VOCABULARY
        return self.last(self.second(self.first(images.contiguous(memory_format=torch.channels_last))).mean((2, 3)))


def conv_unit(module):
    return isinstance(module, nn.Sequential)


MODELS = {
    "gpt": (Gpt, (Block, Detached)),
    "checkpoint": (lambda: Gpt("plain"), (Block, Detached)),
    "reentrant": (lambda: Gpt("reentrant"), (Block, Detached)),
    "one_unit": (Gpt, ()),
    "conv": (Conv, conv_unit),
}


def batch_of(rank, iteration, micro=0):
    generator = torch.Generator().manual_seed(1000 * iteration + 10 * micro + rank)
    return torch.randint(0, VOCABULARY, (BATCH, CONTEXT), generator=generator)


def loss_of(output, tokens):
    if output.dim() == 2:
        return F.cross_entropy(output.float(), tokens[:, 0])
    return F.cross_entropy(output.float().flatten(0, 1), tokens.flatten())


def optimizer_of(name, params):
    params = [p for p in params if p.requires_grad]
    return torch.optim.AdamW(params, 0.01) if name == "adamw" else torch.optim.SGD(params, 0.05, momentum=0.9)
