"""Compiles functions whose operations run in program order, and also keeps the order of successive calls."""

from __future__ import annotations

import functools
import threading
from ctypes import byref, c_void_p
from typing import Any, Callable, NoReturn, Optional, TypeVar, cast

import jax

from libdsc._library import lib
from libdsc._tracebacks import shown
from libdsc.jax import _order
from libdsc.jax._failures import failure_of
from libdsc.jax._module import PREFIX

F = TypeVar("F", bound=Callable[..., Any])

TOKEN = "_libdsc_token"
MISPLACED = (
    "is called inside another transformation of JAX, such as jax.jit or jax.grad, which would not keep the order of its "
    "operations; expected libdsc.jax.jit() as the outermost one, as in libdsc.jax.jit(jax.grad(f))"
)


class _Chain(threading.local):
    """The token of this thread's latest program. The next program takes it as an argument, and so runs after it."""

    token: Any = _order.FIRST

    def take(self) -> Any:
        """Returns the token, or a new one after a failure. The results of the failed program report the failure."""
        token, self.token = self.token, _order.FIRST
        try:
            if hasattr(token, "is_ready") and token.is_ready():
                token.block_until_ready()
        except jax.errors.JaxRuntimeError:
            return _order.FIRST
        return token


_chain = _Chain()


class Jitted:
    """A compiled function. When another compiled function calls it, it is compiled as a part of that function."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._options = function, options
        self._part = jax.jit(function, **options)
        # The key is the world, because the function may have used it as its communicator.
        self._compiled: dict[Optional[int], Any] = {}

    def __repr__(self) -> str:
        return f"<libdsc.jax.jit of {getattr(self._function, '__name__', self._function)!r}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _order.is_tracing():
            return self._part(*args, **kwargs)
        result, token = self.with_token(args, kwargs)
        return result

    def with_token(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Returns the result, and a token that becomes ready when the program has ended."""
        try:
            result, token = self._for_world()(*args, **kwargs, **{TOKEN: _chain.take()})
        except jax.errors.JaxRuntimeError as error:
            raise_failure(error)
        except ValueError as error:
            if PREFIX in str(error) and "differentiated" in str(error):
                raise shown(TypeError(f"{self!r} {MISPLACED}")) from None
            raise
        if isinstance(token, jax.core.Tracer):
            raise shown(TypeError(f"{self!r} {MISPLACED}"))
        _chain.token = token
        return result, token

    def _for_world(self) -> Any:
        world = c_void_p()
        key = world.value if lib.dsc_world(byref(world)) == 0 else None
        if key not in self._compiled:
            self._compiled[key] = self._compile()
        return self._compiled[key]

    def _compile(self) -> Any:
        function = self._function

        def run(*args: Any, **kwargs: Any) -> Any:
            token = kwargs.pop(TOKEN)
            return _order.run_in_order(function, args, kwargs, token)

        return jax.jit(functools.update_wrapper(run, function), **self._options)


def raise_failure(error: Exception) -> NoReturn:
    """Raises libdsc's exception for an error of JAX; if libdsc did not cause the error, raises the error itself."""
    failure = failure_of(error)
    if failure is None:
        raise error
    raise shown(failure) from error


def jit(function: Optional[F] = None, **options: Any) -> Any:
    """Compiles a function as jax.jit() does, and keeps its libdsc operations in the order of the program.

    Apply JAX's transformations inside: ``libdsc.jax.jit(jax.value_and_grad(loss))``. If a thread calls several such
    functions, their operations run in the order of the calls.

    Args:
        function: the function; without it jit() returns a decorator.
        options: the options of jax.jit(), such as static_argnums and donate_argnums.
    """
    if function is None:
        return lambda given: jit(given, **options)
    return cast(Any, Jitted(function, options))
