"""Excludes functions that torch calls here from torch.compile. They call C code, so nothing can be compiled."""

from __future__ import annotations

import types
from typing import Any, Callable, Iterator, Union


def keep_out(*what: Union[type, Callable[..., Any]]) -> None:
    """Makes torch.compile run these functions, all methods of these classes, and all that they call, uncompiled.

    torch.compiler.disable() would do the same, but makes each call slower, and imports the compiler.
    """
    try:
        from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
    except ImportError:  # this version of torch has the names elsewhere
        return
    skip = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
    for function in _functions_of(what):
        function._torchdynamo_disable = True  # type: ignore[attr-defined]
        set_code_exec_strategy(function.__code__, skip)


def _functions_of(what: tuple[Any, ...]) -> Iterator[types.FunctionType]:
    for each in what:
        for member in vars(each).values() if isinstance(each, type) else [each]:
            function = member.fget if isinstance(member, property) else member
            if isinstance(function, types.FunctionType):
                yield function
