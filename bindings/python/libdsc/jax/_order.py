"""Runs the calls in a JAX program in program order. Each call gets a token from the previous call.

A function is traced once, with all its derivatives and batches. In the resulting equations, each call of a handler has
a token as input and a token as output. The equations are then evaluated again, and each call gets the token of the
previous call, also through loops, branches and inner functions. The order is then a data dependence, which all parts of
JAX and XLA respect.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from libdsc.jax._module import PREFIX

UNORDERED = np.float32(0)  # the token of a call that has no order yet; handlers refuse it
FIRST = np.float32(1)

# Parameters in which equations store the function that they call.
_INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr", "call")
_CALLS = {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "custom_jvp_call", "custom_vjp_call"}
_CALLS |= {"custom_vjp_call_jaxpr", "custom_vmap_call", "custom_lin"}
_REMATS = {"remat", "remat2", "checkpoint"}

_tracing = threading.local()


def is_tracing() -> bool:
    """Whether this thread is tracing a function whose calls will be ordered."""
    return bool(getattr(_tracing, "depth", 0))


@contextlib.contextmanager
def _traced() -> Iterator[None]:
    _tracing.depth = getattr(_tracing, "depth", 0) + 1
    try:
        yield
    finally:
        _tracing.depth -= 1


def run_in_order(function: Callable[..., Any], args: Any, kwargs: Any, token: Any) -> tuple[Any, Any]:
    """Calls a function while JAX traces. Returns its result, and the token after its last call."""
    leaves, tree = jax.tree_util.tree_flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (jax.Array, np.ndarray))]

    def flat(values: list[Any]) -> Any:
        given = dict(zip(places, values))
        own_args, own_kwargs = jax.tree_util.tree_unflatten(tree, [given.get(i, leaf) for i, leaf in enumerate(leaves)])
        with _traced():
            return function(*own_args, **own_kwargs)

    values = [leaves[i] for i in places]
    closed, shapes = jax.make_jaxpr(flat, return_shape=True)(values)
    found, token = _evaluate(closed, values, token)
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(shapes), found), token


def _open(inner: Any) -> tuple[Any, Sequence[Any]]:
    """Returns the equations and the constants of a function."""
    return (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, ())


def _functions_in(params: dict[str, Any]) -> Iterator[Any]:
    for value in params.values():
        for part in value if isinstance(value, (tuple, list)) else (value,):
            if hasattr(part, "eqns") or hasattr(part, "jaxpr"):
                yield part


def _is_call(equation: Any) -> bool:
    return equation.primitive.name == "ffi_call" and str(equation.params["target_name"]).startswith(PREFIX)


def _has_calls(inner: Any) -> bool:
    return any(_is_call(e) or any(map(_has_calls, _functions_in(e.params))) for e in _open(inner)[0].eqns)


def _evaluate(inner: Any, values: Sequence[Any], token: Any) -> tuple[list[Any], Any]:
    """Evaluates a function on values. Returns its results, and the token after its last call."""
    jaxpr, consts = _open(inner)
    known: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *values]))

    def read(atom: Any) -> Any:
        return atom.val if hasattr(atom, "val") else known[atom]

    for equation in jaxpr.eqns:
        inputs = [read(atom) for atom in equation.invars]
        if _is_call(equation):
            outputs, token = _call(equation, inputs, token)
        elif any(map(_has_calls, _functions_in(equation.params))):
            outputs, token = _structure(equation, inputs, token)
        else:
            outputs = _as_before(jaxpr, equation, inputs)
        known.update(zip(equation.outvars, outputs))
    return [read(atom) for atom in jaxpr.outvars], token


def _as_before(jaxpr: Any, equation: Any, inputs: list[Any]) -> Sequence[Any]:
    """Evaluates an equation without calls in the same way as JAX, as a function of its variables."""
    values = {atom: value for atom, value in zip(equation.invars, inputs) if not hasattr(atom, "val")}
    alone = jaxpr.replace(eqns=[equation], constvars=[], invars=list(values), outvars=list(equation.outvars))
    return jax.core.eval_jaxpr(alone, (), *values.values())  # type: ignore[no-any-return]


def _structure(equation: Any, inputs: list[Any], token: Any) -> tuple[Sequence[Any], Any]:
    """Evaluates an equation that contains functions with calls."""
    name = equation.primitive.name
    if name in _CALLS:
        return _inline(equation, inputs, token)
    if name in _STRUCTURES:
        return _STRUCTURES[name](equation.params, inputs, token)
    raise NotImplementedError(
        f"libdsc.jax cannot order calls inside {name}; expected calls inside jit, grad, vmap, scan, while_loop, fori_loop, cond, "
        "switch, checkpoint, custom_jvp or custom_vjp, or calls with token="
    )


def _call(equation: Any, inputs: list[Any], token: Any) -> tuple[Sequence[Any], Any]:
    """Evaluates a call of a handler with the given token.

    vmap may have turned the call's token into an array. The call is marked as having a side effect, which JAX allows
    here.
    """
    shape = np.shape(inputs[-1])
    given = jnp.broadcast_to(token, shape)
    found = equation.primitive.bind(*inputs[:-1], given, **(equation.params | {"has_side_effect": True}))
    return found, jnp.ravel(found[-1])[0] if 0 not in shape else token


def _inline(equation: Any, inputs: list[Any], token: Any) -> tuple[Sequence[Any], Any]:
    """Evaluates a called function inline.

    A checkpoint must really compute its values again, so its inputs go through a barrier that keeps XLA from reusing
    the first values.
    """
    inner = next(equation.params[name] for name in _INNER if name in equation.params)
    if equation.primitive.name in _REMATS and equation.params.get("differentiated"):
        inputs = jax.lax.optimization_barrier(inputs)
    return _evaluate(inner, inputs, token)


def _scan(params: dict[str, Any], inputs: list[Any], token: Any) -> tuple[Sequence[Any], Any]:
    n_consts, n_carry = params["num_consts"], params["num_carry"]
    consts, carry, xs = inputs[:n_consts], inputs[n_consts : n_consts + n_carry], inputs[n_consts + n_carry :]

    def body(state: Any, x: Any) -> Any:
        before, values = state
        found, after = _evaluate(params["jaxpr"], [*consts, *values, *x], before)
        return (after, found[:n_carry]), found[n_carry:]

    options = {name: params[name] for name in ("length", "reverse", "unroll") if name in params}
    (after, carried), ys = jax.lax.scan(body, (jnp.asarray(token), carry), xs, **options)
    return [*carried, *ys], after


def _while(params: dict[str, Any], inputs: list[Any], token: Any) -> tuple[Sequence[Any], Any]:
    """Evaluates a while loop.

    Its condition may contain calls, so the body computes the next condition as loop state.
    """
    n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
    of_cond, of_body, start = inputs[:n_cond], inputs[n_cond : n_cond + n_body], inputs[n_cond + n_body :]

    def judged(values: Sequence[Any], before: Any) -> Any:
        (goes_on,), after = _evaluate(params["cond_jaxpr"], [*of_cond, *values], before)
        return goes_on, after, list(values)

    def body(state: Any) -> Any:
        values, after = _evaluate(params["body_jaxpr"], [*of_body, *state[2]], state[1])
        return judged(values, after)

    _, after, values = jax.lax.while_loop(lambda state: state[0], body, judged(start, jnp.asarray(token)))
    return values, after


def _cond(params: dict[str, Any], inputs: list[Any], token: Any) -> tuple[Sequence[Any], Any]:
    def branch(inner: Any) -> Callable[..., Any]:
        return lambda before, values: _evaluate(inner, values, before)

    index, *values = inputs
    branches = [branch(inner) for inner in params["branches"]]
    found: tuple[Sequence[Any], Any] = jax.lax.switch(jnp.asarray(index, jnp.int32), branches, jnp.asarray(token), values)
    return found


_STRUCTURES = {"scan": _scan, "while": _while, "cond": _cond}
