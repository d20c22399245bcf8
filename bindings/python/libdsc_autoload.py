"""The function that torch calls at the end of its import, in every program for which libdsc is installed.

It is in a separate module, so that programs that do not use it do not load libdsc.
"""

import os

VARIABLE = "DSC_TORCH_REPLACE_GLOO"


def torch_backends() -> None:
    """Replaces torch's backend gloo by libdsc if DSC_TORCH_REPLACE_GLOO is 1."""
    value = os.environ.get(VARIABLE, "0")
    if value not in ("0", "1"):
        raise ValueError(f"{VARIABLE} is {value!r}; expected 0 or 1")
    if value == "1":
        import libdsc.torch  # noqa: F401  # the import replaces gloo
