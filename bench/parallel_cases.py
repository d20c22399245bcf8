"""The cases of bench/parallel.py. Each is made once per size, as a call of libdsc and the equivalent in torch.

Arrays are tensors if torch is available. Otherwise they are numpy arrays, with bf16 stored as bits in uint16.
"""

import math

import libdsc as dsc

HEADS, HEAD_DIM = 16, 64  # of an attention layer
HIDDEN, TOP_K, EXPERTS_OF_A_RANK = 1024, 2, 4  # of a layer with experts
COLUMNS = 4096  # of a matrix


class Arrays:
    """Makes arrays of random whole numbers, which are the same on all ranks."""

    def __init__(self, torch, numpy):
        self.torch, self.numpy = torch, numpy

    def filled(self, shape, kind, seed):
        values = self.numpy.random.default_rng(seed).integers(0, 5, shape)
        if self.torch:
            return self.torch.from_numpy(values).to(getattr(self.torch, kind))
        return values.astype("uint16" if kind == "bfloat16" else kind)

    def empty(self, shape, kind):
        return self.filled(shape, kind, 0)

    def name(self, kind):
        """Returns the dtype argument that libdsc needs for this type."""
        return "bf16" if kind == "bfloat16" and not self.torch else None


class Case:
    """`ours` and `theirs` are calls that return comparable results. `theirs` is None if torch has no equivalent."""

    def __init__(self, name, ours, theirs=None):
        self.name, self.ours, self.theirs = name, ours, theirs


def heads(world, arrays, dist, size):
    """Ulysses: [1, sequence / n, heads, head_dim] to [1, sequence, heads / n, head_dim] and back. `size` is the size of
    either.
    """
    n, torch = world.size, arrays.torch
    sequence = max(1, size // (4 * HEADS * HEAD_DIM)) * n
    part, whole = (1, sequence // n, HEADS, HEAD_DIM), (1, sequence, HEADS // n, HEAD_DIM)
    x, out = arrays.filled(part, "float32", world.rank), arrays.empty(whole, "float32")
    y, back = arrays.filled(whole, "float32", world.rank), arrays.empty(part, "float32")
    blocks = (n, sequence // n, HEADS // n, HEAD_DIM)

    def to_heads():
        packed = x.view(sequence // n, n, HEADS // n, HEAD_DIM).transpose(0, 1).contiguous()
        received = torch.empty(blocks)
        dist.all_to_all_single(received, packed)
        return received.view(whole)

    def to_sequence():
        received = torch.empty(blocks)
        dist.all_to_all_single(received, y.view(blocks))
        return received.transpose(0, 1).reshape(part)

    yield Case("sequence to heads", lambda: world.sequence_to_heads(x, out=out), to_heads)
    yield Case("heads to sequence", lambda: world.sequence_to_heads(y, direction="backward", out=back), to_sequence)


def ring(world, arrays, dist, size):
    """A pass in which every rank receives the blocks of all ranks, without computation. `size` is the size of a block.
    """
    n, rank, torch = world.size, world.rank, arrays.torch
    block = arrays.filled((size // 4,), "float32", rank)
    passes = dsc.Ring(world, size)

    def ours():
        return [(source, shown[:1] * 1) for source, shown in passes(block)]

    def theirs():
        seen, shown = [(rank, block[:1] * 1)], block
        for step in range(1, n):
            received = torch.empty_like(block)
            operations = [dist.P2POp(dist.isend, shown, (rank + 1) % n), dist.P2POp(dist.irecv, received, (rank - 1) % n)]
            for work in dist.batch_isend_irecv(operations):
                work.wait()
            shown = received
            seen.append(((rank - step) % n, shown[:1] * 1))
        return seen

    yield Case("ring pass", ours, theirs)


def context_parallel(world, arrays, dist, size):
    yield from heads(world, arrays, dist, size)
    yield from ring(world, arrays, dist, size)


class TorchExperts:
    """The exchange of a layer with experts in torch alone: sort, all-to-all with sizes, regroup, and back."""

    def __init__(self, torch, dist, ranks, ids):
        self.torch, self.dist, flat = torch, dist, ids.flatten().long()
        counts = torch.bincount(flat, minlength=ranks * EXPERTS_OF_A_RANK)
        received = torch.empty_like(counts)
        dist.all_to_all_single(received, counts)
        self.order = torch.argsort(flat, stable=True)
        self.tokens = self.order // TOP_K
        self.sent = counts.view(ranks, -1).sum(1).tolist()
        self.came = received.view(ranks, -1).sum(1).tolist()
        self.by_source = received.view(ranks, -1)
        self.by_expert = self.by_source.t()

    def dispatch(self, tokens):
        rows = self.torch.empty(sum(self.came), HIDDEN)
        self.dist.all_to_all_single(rows, tokens.index_select(0, self.tokens), self.came, self.sent)
        return self._turned(rows, self.by_source)

    def combine(self, rows, weights):
        back = self.torch.empty(sum(self.sent), HIDDEN)
        self.dist.all_to_all_single(back, self._turned(rows, self.by_expert), self.sent, self.came)
        out = self.torch.zeros(len(weights), HIDDEN)
        return out.index_add_(0, self.tokens, back * weights.flatten()[self.order, None])

    def _turned(self, rows, counts):
        """Reorders rows from the order of the first dimension of `counts` to that of the second one."""
        parts, (outer, inner) = rows.split(counts.flatten().tolist()), counts.shape
        return self.torch.cat([parts[i * inner + j] for j in range(inner) for i in range(outer)])


def expert_parallel(world, arrays, dist, size):
    """Sends tokens to two of four experts per rank and back. The experts do nothing. `size` is that of a rank's tokens.
    """
    n, torch, count = world.size, arrays.torch, max(1, size // (4 * HIDDEN))
    experts = n * EXPERTS_OF_A_RANK
    tokens = arrays.filled((count, HIDDEN), "float32", world.rank)
    ids = arrays.numpy.random.default_rng(world.rank).integers(0, experts, (count, TOP_K)).astype("int32")
    ids = torch.from_numpy(ids) if torch else ids
    weights = arrays.filled((count, TOP_K), "float32", world.rank + 1)
    plan = world.moe_plan(ids, experts)
    rows, out = arrays.empty((plan.rows, HIDDEN), "float32"), arrays.empty((count, HIDDEN), "float32")
    other = TorchExperts(torch, dist, n, ids) if torch else None

    def with_plan():
        with world.moe_plan(ids, experts) as made:
            return made.combine(made.dispatch(tokens), weights)

    def their_plan():
        made = TorchExperts(torch, dist, n, ids)
        return made.combine(made.dispatch(tokens), weights)

    yield Case("dispatch, combine", lambda: plan.combine(plan.dispatch(tokens, rows), weights, out), lambda: other.combine(other.dispatch(tokens), weights))
    yield Case("the same with plan", with_plan, their_plan)


def mapped(world, arrays, dist, size, kind):
    """Mappings of the first and the last dimension of a matrix of this type. `size` is the size of the whole matrix."""
    n, torch, dtype = world.size, arrays.torch, arrays.name(kind)
    bytes_of_one = 2 if kind == "bfloat16" else 4
    columns = min(COLUMNS, size // bytes_of_one // n // n * n)
    rows = math.ceil(size / bytes_of_one / columns / n) * n
    short = {"bfloat16": "bf16", "float32": "f32"}[kind]
    for dim, part in ((0, (rows // n, columns)), (1, (rows, columns // n))):
        x, y = arrays.filled(part, kind, world.rank), arrays.filled((rows, columns), kind, world.rank)
        whole, summed = arrays.empty((rows, columns), kind), arrays.empty(part, kind)
        parts = [arrays.empty(part, kind) for _ in range(n)]

        def gather(x=x, parts=parts, dim=dim):
            dist.all_gather(parts, x)
            return torch.cat(parts, dim)

        def ours(x=x, dim=dim, whole=whole):
            return world.tensor_map(x, "gather", dim, out=whole, dtype=dtype)

        def reduced(y=y, dim=dim, summed=summed):
            return world.tensor_map(y, "reduce_scatter", dim, out=summed, dtype=dtype)

        yield Case(f"gather {short}, dim {dim}", ours, gather)
        yield Case(f"reduce_scatter {short}, dim {dim}", reduced)


def tensor_map(world, arrays, dist, size):
    for kind in ("float32", "bfloat16"):
        yield from mapped(world, arrays, dist, size, kind)


OPS = {"context_parallel": context_parallel, "expert_parallel": expert_parallel, "tensor_map_types": tensor_map}
