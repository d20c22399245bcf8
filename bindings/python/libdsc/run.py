"""``python -m libdsc.run`` is the same as ``dscrun``: for example, ``python -m libdsc.run -n 4 python train.py``.

The commands ``dscrun`` and ``dscctl`` that pip installs also start here. Each replaces the interpreter by a separate
program, whose exit code and signals are the result.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
from typing import NoReturn

PACKAGED = pathlib.Path(__file__).resolve().parent / "bin"


def _become(name: str) -> NoReturn:
    """Replaces this process by a program of the package, or by the program that is installed with the library."""
    packaged = PACKAGED / name
    path = str(packaged) if packaged.exists() else shutil.which(name)
    if path is None or os.path.realpath(path) == os.path.realpath(sys.argv[0]):
        sys.exit(f"{name}: the program is neither in the package ({packaged}) nor in PATH; `pip install .` in libdsc's source tree installs it")
    os.execv(path, [name, *sys.argv[1:]])


def main() -> NoReturn:
    """Runs ``dscrun`` with the arguments of this process."""
    _become("dscrun")


def dscctl() -> NoReturn:
    """Runs ``dscctl`` with the arguments of this process."""
    _become("dscctl")


if __name__ == "__main__":
    main()
