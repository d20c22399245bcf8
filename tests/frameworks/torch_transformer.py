"""A small transformer of torch's layers, and the same transformer with layers that are divided over the ranks."""

import torch
import torch.nn.functional as F
from torch import nn

import libdsc as dsc
from libdsc.torch import functional as dscf
from libdsc.torch import layers

VOCAB, WIDTH, HEADS, BLOCKS, CONTEXT, BATCH = 53, 24, 12, 2, 12, 2  # the number of ranks does not divide the vocabulary


class Plain:
    """The layers of a model in one process."""

    embedding, up, down = nn.Embedding, nn.Linear, nn.Linear

    def enter(self, x):
        return x

    def shared(self, module):
        return module

    def head(self, x, table):
        return F.linear(x, table)

    def loss(self, scores, targets):
        return F.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=-100, label_smoothing=0.1)

    size = 1


class Divided(Plain):
    """The layers of a model that a group of ranks divides.

    With sequence parallelism each rank has a part of the context between them.
    """

    def __init__(self, group, size, sequence_parallel):
        self.group, self.size, self.sequence_parallel = group, size, sequence_parallel

    @property
    def how(self):
        return {"group": self.group, "sequence_parallel": self.sequence_parallel, "sequence_dim": 1}

    def embedding(self, *sizes, **options):
        return layers.VocabParallelEmbedding(*sizes, **options, **self.how)

    def up(self, *sizes, **options):
        return layers.ColumnParallelLinear(*sizes, **options, **self.how)

    def down(self, *sizes, **options):
        return layers.RowParallelLinear(*sizes, **options, **self.how)

    def shared(self, module):
        if self.sequence_parallel:
            layers.sum_gradients(module, self.group)
        return module

    def head(self, x, table):
        return dscf.column_parallel_linear(x, table, **self.how)

    def loss(self, scores, targets):
        return dscf.vocab_parallel_cross_entropy(scores, targets, self.group, vocab_size=VOCAB, label_smoothing=0.1)


class Block(nn.Module):
    def __init__(self, kind, dtype):
        super().__init__()
        self.kind = kind
        self.first, self.second = (kind.shared(nn.LayerNorm(WIDTH, dtype=dtype)) for _ in range(2))
        self.q, self.k, self.v = (kind.up(WIDTH, WIDTH, dtype=dtype) for _ in range(3))
        self.out = kind.down(WIDTH, WIDTH, dtype=dtype)
        self.mlp = nn.Sequential(kind.up(WIDTH, 4 * WIDTH, dtype=dtype), nn.GELU(), kind.down(4 * WIDTH, WIDTH, dtype=dtype))

    def forward(self, x):
        rows = self.first(x)
        q, k, v = (f(rows).unflatten(-1, (HEADS // self.kind.size, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


class Transformer(nn.Module):
    """The table of words is also used for the scores."""

    def __init__(self, kind, dtype):
        super().__init__()
        self.kind = kind
        self.words = kind.embedding(VOCAB, WIDTH, dtype=dtype)
        self.blocks = nn.Sequential(*(Block(kind, dtype) for _ in range(BLOCKS)))
        self.norm = kind.shared(nn.LayerNorm(WIDTH, dtype=dtype))

    def forward(self, tokens, targets):
        scores = self.kind.head(self.norm(self.blocks(self.words(tokens))), self.words.weight)
        return self.kind.loss(scores, targets)


def made(kind, dtype):
    torch.manual_seed(11)
    return Transformer(kind, dtype)


def batch(step):
    tokens = torch.randint(0, VOCAB, (BATCH, CONTEXT + 1), generator=torch.Generator().manual_seed(step))
    targets = tokens[:, 1:].clone()
    targets[0, :3] = -100
    return tokens[:, :-1], targets


def trained(model, steps=3):
    """Trains for some steps and returns the losses. The model keeps the gradients of the last step."""
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.5), []
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(*batch(step))
        loss.backward()
        losses.append(loss.detach())
        optimizer.step()
    return torch.stack(losses)


def part(whole, like, rank, size):
    """Returns a rank's part of a whole tensor."""
    for dim, (extent, own) in enumerate(zip(whole.shape, like.shape)):
        if extent != own:
            rows = dsc.split_range(extent, size, rank)
            whole = whole[(slice(None),) * dim + (slice(rows.start, rows.stop),)]
    return whole
