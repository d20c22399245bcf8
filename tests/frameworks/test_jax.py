"""libdsc.jax: values and gradients compared with numpy, order, transformations, errors. Each rank is a process."""

import functools
import importlib.util
import os
import sys

import numpy as np
import pytest

import libdsc as dsc
from conftest import ROOT

pytestmark = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
os.environ["JAX_PLATFORMS"] = "cpu"

sys.path.insert(0, str(ROOT / "tests" / "support"))
import hosts_job  # noqa: E402
from killed_rank import expect_named, others_of  # noqa: E402
from test_ranks import ranks  # noqa: E402


def inputs(n, shape, seed=0, kind=np.float32):
    """Returns the inputs of all ranks: small integers, whose sums are exact in any order."""
    return [np.random.default_rng([seed, rank]).integers(-8, 9, shape).astype(kind) for rank in range(n)]


def given(world, shape, seed=0, kind=np.float32):
    return inputs(world.size, shape, seed, kind)[world.rank]


# ---- values -------------------------------------------------------------------------------------------------------------


def computed(world):
    """Runs every operation with jit and without it. Both must give the same."""
    import libdsc.jax as dj

    n, r = world.size, world.rank
    x = given(world, (4 * n, 2 * n, 3))
    calls = {
        "sum": lambda x: dj.all_reduce(x),
        "max": lambda x: dj.all_reduce(x, "max"),
        "avg": lambda x: dj.all_reduce(x, "avg"),
        "tree": lambda x: dj.all_reduce({"a": x, "b": [x[0], x.astype("int32")]})["b"][0],
        "broadcast": lambda x: dj.broadcast(x, n - 1),
        "gather": lambda x: dj.all_gather(x, 1),
        "scatter": lambda x: dj.reduce_scatter(x, axis=1),
        "scatter avg": lambda x: dj.reduce_scatter(x, "avg"),
        "exchange": lambda x: dj.all_to_all(x, 1),
        "ring": lambda x: dj.send_recv(x, (r + 1) % n, (r - 1) % n),
        "line": lambda x: dj.send_recv(x, r + 1 if r + 1 < n else None, r - 1 if r else None),
        "own part": lambda x: dj.tensor_map(x, "scatter", 0),
        "to hidden": lambda x: dj.tensor_map(x, "sequence_to_hidden", 1),
        "to sequence": lambda x: dj.tensor_map(x, "hidden_to_sequence", 1),
    }
    found = {}
    for name, call in calls.items():
        found[name], at_once = np.asarray(dj.jit(call)(x)), np.asarray(call(x))
        assert np.array_equal(found[name], at_once), name
    dj.barrier()
    return found


def expected_values(n, r, xs):
    total, split = sum(xs), functools.partial(np.split, indices_or_sections=n)
    return {
        "sum": total,
        "max": np.max(xs, 0),
        "avg": total / n,
        "tree": total[0],
        "broadcast": xs[n - 1],
        "gather": np.concatenate(xs, 1),
        "scatter": split(total, axis=1)[r],
        "scatter avg": split(total, axis=0)[r] / n,
        "exchange": np.concatenate([split(x, axis=1)[r] for x in xs], 1),
        "ring": xs[(r - 1) % n],
        "line": xs[r - 1] if r else np.zeros_like(xs[0]),
        "own part": split(xs[r], axis=0)[r],
        "to hidden": split(np.concatenate(xs), axis=1)[r],
        "to sequence": split(np.concatenate(xs, 1), axis=0)[r],
    }


@pytest.mark.parametrize("n", [2, 4])
def test_values(n):
    xs = inputs(n, (4 * n, 2 * n, 3))
    for r, found in enumerate(ranks(n, computed)):
        for name, value in expected_values(n, r, xs).items():
            assert np.array_equal(found[name], value), (name, r)


def test_one_rank(world):
    import libdsc.jax as dj

    x = given(world, (4, 2))
    for call in (dj.all_reduce, dj.broadcast, dj.all_gather, dj.reduce_scatter, dj.all_to_all, dj.average_gradients):
        assert np.array_equal(dj.jit(call)(x), x) and np.array_equal(call(x), x), call
    dj.barrier()


KINDS = ["bool", "int8", "uint8", "int16", "int32", "float16", "bfloat16", "float32", "complex64", "float8_e4m3fn"]


def moves_every_kind(world):
    import jax.numpy as jnp
    import libdsc.jax as dj

    for kind in KINDS:
        x = jnp.asarray(given(world, (2, world.size, 2), kind=np.int32) > 0).astype(kind)
        whole = np.asarray(dj.all_gather(x, 1))
        parts = [np.asarray(jnp.asarray(part > 0).astype(kind)) for part in inputs(world.size, (2, world.size, 2), kind=np.int32)]
        assert whole.dtype == x.dtype and np.array_equal(whole, np.concatenate(parts, 1)), kind
        if kind in ("int16", "bool"):
            continue
        total = np.asarray(dj.all_reduce(x)).astype(complex)
        assert np.array_equal(total, sum(part.astype(complex) for part in parts)), kind
    return True


def test_element_types():
    assert ranks(2, moves_every_kind) == [True] * 2


# ---- gradients ----------------------------------------------------------------------------------------------------------


def adjoint_products(world):
    """Returns <A x, y> and <x, A' y> for each linear operation A, both summed over all ranks. x and y are arrays of all
    ranks."""
    import jax
    import libdsc.jax as dj

    n, r = world.size, world.rank
    x = given(world, (2 * n, 3 * n))
    calls = {
        "sum": lambda x: dj.all_reduce(x),
        "avg": lambda x: dj.all_reduce(x, "avg"),
        "gather": lambda x: dj.all_gather(x, 1),
        "scatter": lambda x: dj.reduce_scatter(x, axis=0),
        "exchange": lambda x: dj.all_to_all(x, 1),
        "broadcast": lambda x: dj.broadcast(x, 1),
        "line": lambda x: dj.send_recv(x, r + 1 if r + 1 < n else None, r - 1 if r else None),
        "to hidden": lambda x: dj.tensor_map(x, "sequence_to_hidden", 1),
    }
    found = {}
    for name, call in calls.items():
        made = np.asarray(dj.jit(call)(x))
        y = given(world, made.shape, seed=1)

        def product(x):
            return (call(x) * y).sum()

        back = np.asarray(dj.jit(jax.grad(product))(x))
        twice = dj.jit(jax.grad(lambda y, x=x, call=call: (jax.vjp(call, x)[1](y)[0] * x).sum()))(y)
        found[name] = float((made * y).sum()), float((x * back).sum()), np.array_equal(twice, made)
    return found


@pytest.mark.parametrize("n", [2, 4])
def test_gradients_are_adjoints_and_have_gradients(n):
    found = ranks(n, adjoint_products)
    for name in found[0]:
        there, back = (sum(part[name][i] for part in found) for i in (0, 1))
        assert there == back and there != 0, (name, there, back)
        assert all(part[name][2] for part in found), f"{name}: the gradient of the gradient is not the operation"


def layers(world):
    """One linear layer divided by columns and one by rows, as in Megatron-LM.

    Returns the loss and the gradients of this rank's parts.
    """
    import jax
    import jax.numpy as jnp
    import libdsc.jax as dj

    n, r = world.size, world.rank
    first, second, x = model(n)
    own = np.split(first, n, 1)[r], np.split(second, n, 0)[r]

    def loss(weights, x):
        hidden = jnp.tanh(dj.tensor_map(x, "copy") @ weights[0])
        y = dj.tensor_map(hidden @ weights[1], "reduce")
        return (y**2).sum()

    value, (of_weights, of_x) = dj.jit(jax.value_and_grad(loss, argnums=(0, 1)))(own, x)
    return float(value), [np.asarray(g) for g in of_weights], np.asarray(of_x)


def model(n):
    random = np.random.default_rng(3)
    return random.standard_normal((5, 4 * n)), random.standard_normal((4 * n, 5)), random.standard_normal((6, 5))


@pytest.mark.parametrize("n", [2, 4])
def test_tensor_parallel_layers(n):
    first, second, x = model(n)
    hidden = np.tanh(x @ first)
    y = hidden @ second
    of_hidden = 2 * y @ second.T * (1 - hidden**2)
    for r, (value, (one, two), of_x) in enumerate(ranks(n, layers)):
        np.testing.assert_allclose(value, (y**2).sum(), rtol=1e-5)
        np.testing.assert_allclose(one, np.split(x.T @ of_hidden, n, 1)[r], rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(two, np.split(hidden.T @ (2 * y), n, 0)[r], rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(of_x, of_hidden @ first.T, rtol=1e-4, atol=1e-3)


def trains(world, steps):
    """Each rank trains with its own samples. The parameters must equal those of one process that has all samples."""
    import jax
    import libdsc.jax as dj

    x, y = samples(world.size)
    own = slice(world.rank * 8, (world.rank + 1) * 8)
    params = {"w": np.zeros((3, 2), np.float32), "b": np.full(2, float(world.rank), np.float32)}
    params = dj.jit(dj.broadcast)(params)

    def loss(params, x, y):
        return ((x @ params["w"] + params["b"] - y) ** 2).mean()

    @dj.jit
    def step(params, x, y):
        value, grads = jax.value_and_grad(loss)(params, x, y)
        grads = dj.average_gradients(grads)
        return jax.tree_util.tree_map(lambda p, g: p - 0.1 * g, params, grads), dj.all_reduce(value, "avg")

    losses = []
    for _ in range(steps):
        params, value = step(params, x[own], y[own])
        losses.append(float(value))
    return losses, {name: np.asarray(value) for name, value in params.items()}


def samples(n):
    random = np.random.default_rng(5)
    return random.standard_normal((8 * n, 3)).astype(np.float32), random.standard_normal((8 * n, 2)).astype(np.float32)


@pytest.mark.parametrize("n", [2, 4])
def test_training_is_that_of_one_process(n):
    x, y = (part.astype(np.float64) for part in samples(n))
    w, b, losses = np.zeros((3, 2)), np.zeros(2), []
    for _ in range(5):
        off = x @ w + b - y
        losses.append((off**2).mean())
        w, b = w - 0.1 * 2 * x.T @ off / off.size, b - 0.1 * 2 * off.sum(0) / off.size
    found = ranks(n, trains, 5)
    for own, params in found:
        np.testing.assert_allclose(own, losses, rtol=1e-5)
        np.testing.assert_allclose(params["w"], w, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(params["b"], b, rtol=1e-4, atol=1e-6)
        assert all(np.array_equal(params[name], found[0][1][name]) for name in params)


# ---- order --------------------------------------------------------------------------------------------------------------


def sequence_of(world):
    """Returns the operations of this rank, oldest first."""
    return [(entry["profiling_name"], entry["input_sizes"]) for entry in world.trace()["entries"]]


def independent(world, size):
    """Makes many independent calls, mixed with computations whose length differs by rank."""
    import jax
    import jax.numpy as jnp
    import libdsc.jax as dj

    def busy(x, times):
        return jax.lax.fori_loop(0, times, lambda _, x: jnp.tanh(x @ x.T @ x), x)

    def branches(x):
        total = 0.0
        for i in range(12):
            work = busy(x, 1 + (i * 7 + world.rank * 5) % 11)  # the computations end in a different order on each rank
            total += dj.all_reduce(work.sum() * 0 + 2.0**i)
        return total

    before = len(sequence_of(world))
    value = float(dj.jit(branches)(jnp.ones((size, size)) / size))
    return value, sequence_of(world)[before:]


@pytest.mark.parametrize("n", [2, 4])
def test_independent_calls_meet_in_order(n):
    """All calls have the same shape, so the library would not notice a wrong order, and the sums would be wrong."""
    found = ranks(n, independent, 96)
    assert [value for value, _ in found] == [n * (2.0**12 - 1)] * n


def orders(world):
    """Makes calls at many places, each with a different shape.

    Returns the shapes in the order in which the calls ran.
    """
    import jax
    import jax.numpy as jnp
    import libdsc.jax as dj

    def call(i, x):
        return dj.all_reduce(jnp.full(i, 1.0) * x.sum() * 0 + i).sum()

    inner = dj.jit(lambda x: call(3, x) + call(4, x))
    also_inner = jax.jit(lambda x: call(5, x))

    def repeated(state, i):
        return state + call(6, state), call(7, i)

    @jax.checkpoint
    def kept(x):
        return jnp.sin(dj.all_gather(x[None])).sum()

    def program(x):
        call(1, x)  # the result is not used
        call(2, x)
        inner(x)
        also_inner(x)
        also_inner(x)
        jax.lax.scan(repeated, x.sum(), jnp.arange(2.0))
        jax.lax.while_loop(lambda i: i + call(8, i) * 0 < 2, lambda i: i + 1 + call(9, i) * 0, 0.0)
        jax.lax.cond(x.sum() > 0, lambda x: call(10, x), lambda x: call(11, x), x)
        jax.vmap(lambda x: call(12, x))(jnp.ones((2, 1)))
        jax.grad(kept)(x)
        return call(13, x)

    before = len(sequence_of(world))
    dj.jit(program)(jnp.ones(2)).block_until_ready()
    return [(name, sizes[0]) for name, sizes in sequence_of(world)[before:]]


def test_calls_run_in_the_order_of_the_program():
    first, second = ranks(2, orders)
    assert first == second
    sizes = [size for _, size in first]
    counts = [size[0] for size in sizes]
    assert counts[:6] == [1, 2, 3, 4, 5, 5], first
    assert counts[6:10] == [6, 7, 6, 7] and counts[10:15] == [8, 9, 8, 9, 8], first
    assert counts[15:17] == [10, 24] and counts[-1] == 13 and len(counts) > 18, first


def in_a_row(world):
    """Calls independent programs one after another without waiting for them."""
    import jax.numpy as jnp
    import libdsc.jax as dj

    long = dj.jit(lambda x: dj.all_reduce(jnp.linalg.matrix_power(x, 9).sum() * 0 + 1.0))
    short = dj.jit(lambda: dj.all_reduce(jnp.float32(100.0)))
    x, found = jnp.eye(300), []
    for _ in range(10):
        found += [long(x), short(), dj.all_reduce(jnp.float32(10000.0))]
    return [float(value) for value in found]


def test_programs_run_in_the_order_of_their_calls():
    assert ranks(2, in_a_row) == [[2.0, 200.0, 20000.0] * 10] * 2


def by_hand(world):
    """Tokens order the calls under jax.jit(), and also the calls of the backward pass."""
    import jax
    import jax.numpy as jnp
    import libdsc.jax as dj

    def loss(x, token):
        one, token = dj.all_reduce(x[:1].sum(), token=token)
        token = dj.barrier(token=token)
        two, token = dj.all_reduce(x[:2] * 2, token=token)
        return one + two.sum(), token

    before = len(sequence_of(world))
    (value, token), grad = jax.jit(jax.value_and_grad(loss, has_aux=True))(jnp.ones(3), dj.create_token())
    token.block_until_ready()
    grad.block_until_ready()
    made = sequence_of(world)[before:]
    return float(value), grad.tolist(), [name.split(":")[-1] + str(sizes) for name, sizes in made]


def test_tokens_by_hand():
    n = 2
    for value, grad, made in ranks(n, by_hand):
        assert value == n + 4 * n and grad == [n + 2 * n, 2 * n, 0], (value, grad)
        assert len(made) == 5 and "barrier" in made[1] and made[0] == made[4] and made[2] == made[3], made


def refused(world):
    import jax
    import jax.numpy as jnp
    import libdsc.jax as dj

    x, texts = jnp.ones(2), []
    inner = jax.jit(dj.all_reduce)
    dj.jit(inner)(x)  # JAX caches this trace, in which the call has no order
    for call in (
        lambda: jax.jit(dj.average_gradients)(x),
        lambda: jax.grad(lambda x: dj.all_reduce(x).sum())(x),
        lambda: inner(x),
        lambda: jax.jit(lambda x: dj.jit(dj.all_reduce)(x))(x),
        lambda: jax.grad(dj.jit(lambda x: dj.all_reduce(x).sum()))(x),
    ):
        try:
            jax.block_until_ready(call())
        except Exception as error:
            texts.append(f"{type(error).__name__}: {error}")
        else:
            texts.append("nothing was raised")
    assert float(dj.all_reduce(x)[0]) == world.size  # the communicator still works
    return texts


def test_what_has_no_order_is_refused():
    for texts in ranks(2, refused):
        for text in texts:
            assert "libdsc.jax.jit()" in text and ("order" in text), texts


def without_gradient(world):
    import jax
    import jax.numpy as jnp
    import libdsc.jax as dj

    other, x, texts = 1 - world.rank, jnp.ones(2), []

    def sends(x):
        dj.send(x, other) if world.rank == 0 else dj.recv(x, other)
        return x.sum()

    for function in (sends, lambda x: dj.all_reduce(x, "max").sum()):
        try:
            dj.jit(jax.grad(function))(x)
        except TypeError as error:
            texts.append(str(error))
    stopped = dj.jit(jax.grad(lambda x: x.sum() + jax.lax.stop_gradient(dj.all_reduce(x, "max")).sum()))(x)
    message = dj.jit(lambda x: dj.send(x, other) if world.rank == 0 else dj.recv(x, other))(x * 5)
    return texts, stopped.tolist(), message is None or message.tolist()


def test_what_has_no_gradient_says_so():
    for rank, (texts, stopped, message) in enumerate(ranks(2, without_gradient)):
        assert ("recv" if rank else "send") + " has no gradient; expected send_recv()" in texts[0], texts
        assert 'all_reduce has no gradient with op "max"; expected "sum"' in texts[1], texts
        assert stopped == [1, 1] and message == ([5, 5] if rank else True)


# ---- errors -------------------------------------------------------------------------------------------------------------


def test_wrong_arguments(world):
    import jax.numpy as jnp
    import libdsc.jax as dj

    x = np.ones((3, 2), np.float32)
    for call, kind, text in (
        (lambda: dj.all_reduce(x, "averge"), ValueError, 'op is "averge"; expected one of .*did you mean "avg"'),
        (lambda: dj.all_reduce(x, 1), TypeError, "op is 1; expected the name of a built-in operation"),
        (lambda: dj.all_reduce({"a": ["x"]}), TypeError, r"x\['a'\]\[0\] is a str; expected an array"),
        (lambda: dj.all_reduce(jnp.ones(2, jnp.int16)), TypeError, "x has element type int16; expected one of"),
        (lambda: dj.average_gradients({"a": np.ones(2, np.int32)}), TypeError, r"grads\['a'\] has element type int32"),
        (lambda: dj.reduce_scatter(x, "max"), ValueError, "op is 'max'; expected"),
        (lambda: dj.broadcast(x, 1), ValueError, "root is 1, expected 0"),
        (lambda: dj.all_gather(x, 2), ValueError, "dim"),
        (lambda: dj.tensor_map(x, "gahter"), ValueError, "did you mean 'gather'"),
        (lambda: dj.tensor_map(x, "sequence_to_hidden", 0), ValueError, "axis is 0, the sequence dimension"),
        (lambda: dj.send(x, 0), ValueError, "dest is 0, this rank itself"),
        (lambda: dj.all_reduce(x, comm=3), TypeError, "comm is .*expected a"),
    ):
        with pytest.raises(kind, match=text):
            call()


def test_a_program_outlives_its_communicator(world):
    """The program contains a handle. It is checked with jit and without it."""
    import libdsc.jax as dj

    group = world.split(0)
    program = dj.jit(lambda x: dj.all_reduce(x, comm=group))
    assert program(np.ones(1)).tolist() == [1]
    group.close()
    for call in (program, lambda x: dj.all_reduce(x, comm=group)):
        with pytest.raises(dsc.BadHandleError, match="closed|handle"):
            call(np.ones(1))
    assert dj.all_reduce(np.ones(1)).tolist() == [1]


def mismatches(world):
    import jax
    import libdsc.jax as dj

    try:
        dj.jit(dj.all_reduce)(np.ones(2 + world.rank, np.float32)).block_until_ready()
    except (dsc.DscError, jax.errors.JaxRuntimeError) as error:
        failure = dj.failure_of(error)
        kept = world.error()
        return type(failure).__name__, str(failure), type(kept).__name__, failure.group
    return "nothing"


def test_failures_are_exceptions_of_libdsc():
    for name, text, kept, group in ranks(2, mismatches):
        assert name == kept == "MismatchError" and "all_reduce" in text and group == "world", (name, text, kept, group)


KILLED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "jax_killed.py")


@pytest.mark.parametrize("n,hosts", [(2, 1), (4, 1), (4, 2)])
def test_a_killed_rank_ends_the_step_of_all_others(n, hosts):
    victim = n - 1
    for seconds, name, named, text in others_of(victim, KILLED, n, hosts, victim):
        expect_named(victim, name, text)
        assert seconds < 20, f"{seconds} s until the failure"


# ---- several hosts, and other ways to start --------------------------------------------------------------------------


HOSTS = """
import libdsc.jax as dj
x = np.full((2, n), r + 1.0, np.float32)
equal(dj.jit(dj.all_reduce)(x), np.full((2, n), n * (n + 1) / 2), "sum")
equal(dj.jit(dj.all_gather)(x), np.concatenate([np.full((2, n), i + 1.0) for i in range(n)]), "gather")
equal(dj.jit(lambda x: dj.reduce_scatter(x, axis=1))(x), np.full((2, 1), n * (n + 1) / 2), "scatter")
equal(dj.jit(lambda x: dj.send_recv(x, (r + 1) % n, (r - 1) % n))(x), np.full((2, n), (r - 1) % n + 1.0), "ring")
print("right")
dsc.finalize()
"""


@pytest.mark.skipif(not dsc.feature("gloo"), reason="built without Gloo")
@pytest.mark.parametrize("placement", [(0, 1), (0, 0, 1, 1)])
def test_two_hosts(placement, monkeypatch):


    assert hosts_job.Job(hosts_job.BEGIN + HOSTS, placement).finish() == ["right"] * len(placement)


def joins_jax(world):
    """jax.distributed.initialize() takes its arguments from the world, and JAX sees the devices of all ranks."""
    import jax
    import libdsc.jax  # noqa: F401

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize()
    return jax.process_index(), jax.process_count(), jax.device_count()


def test_jax_finds_the_job_by_itself():
    from libdsc.jax import _cluster

    if not _cluster.has_base():
        pytest.skip("this JAX has no ClusterEnv")
    assert ranks(2, joins_jax) == [(0, 2, 2), (1, 2, 2)]


def test_nothing_else_imports_jax():
    import subprocess
    import sys

    code = "import sys, libdsc; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
