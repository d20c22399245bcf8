"""Failures of operations. XLA passes on only a code and a text, from which libdsc's exception is created again."""

from __future__ import annotations

import re
from typing import Any, Optional

from libdsc import _raw, errors
from libdsc._work import details_of
from libdsc.jax._module import latest_failure

_RESULT = re.compile(r"\bDSC_(ERR_\w+): (.*)", re.DOTALL)


def failure_of(error: BaseException) -> Optional[errors.DscError]:
    """Returns libdsc's exception for an error of JAX, or None if libdsc did not cause it.

    Calls of libdsc.jax raise libdsc's exceptions directly. But JAX may run a program after the call has returned. Then
    block_until_ready(), or the first use of the result, raises jax.errors.JaxRuntimeError. Convert it like this:

        try:
            loss.block_until_ready()
        except jax.errors.JaxRuntimeError as error:
            raise dj.failure_of(error) or error

    Args:
        error: the exception of JAX.
    """
    if isinstance(error, errors.DscError):
        return error
    found = _RESULT.search(str(error))
    if found is None or not hasattr(_raw.Result, found[1]):
        return None
    code, text = _raw.Result[found[1]], found[2].rstrip()
    return errors.from_code(code, text, **_details(code, text))


def _details(code: int, text: str) -> dict[str, Any]:
    """Returns ranks, group, sequence number and so on, if the text belongs to the latest failure."""
    info = latest_failure()
    said = info.text.decode(errors="replace")
    return details_of(info) if info.code == code and said and said in text else {}
