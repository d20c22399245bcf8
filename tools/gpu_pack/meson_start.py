"""meson_start.py ARGS...: runs Meson with PACK_PYTHON, so that it starts itself and scripts in the same way as this
Python.
"""

import os
import pathlib
import runpy
import sys

sys.executable = os.environ["PACK_PYTHON"]
sys.argv[0] = str(pathlib.Path(__file__).resolve().parent / "tools" / "meson" / "meson.py")
runpy.run_path(sys.argv[0], run_name="__main__")
