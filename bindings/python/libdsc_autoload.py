"""What torch calls at the end of its import, in every program where libdsc is installed.

A module of its own, so that a program that asks for nothing here does not load libdsc.
"""

import os

VARIABLE = "DSC_TORCH_REPLACE_GLOO"


def torch_backends() -> None:
    """Puts libdsc in gloo's place if DSC_TORCH_REPLACE_GLOO is 1."""
    value = os.environ.get(VARIABLE, "0")
    if value not in ("0", "1"):
        raise ValueError(f"{VARIABLE} is {value!r}; expected 0 or 1")
    if value == "1":
        import libdsc.torch  # noqa: F401  # which does so
