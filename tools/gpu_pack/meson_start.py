"""meson_start.py ARGS...: Meson, which starts itself and scripts later by PACK_PYTHON, the way this Python was started."""

import os
import pathlib
import runpy
import sys

sys.executable = os.environ["PACK_PYTHON"]
sys.argv[0] = str(pathlib.Path(__file__).resolve().parent / "tools" / "meson" / "meson.py")
runpy.run_path(sys.argv[0], run_name="__main__")
