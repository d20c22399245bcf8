#!/usr/bin/env python3
"""Shell and Python files must have correct syntax, and a file that starts with #! must be executable."""

import os
import subprocess
import sys

import source

found = []
for path in source.files():
    text = source.read(path)
    if text.startswith("#!") and not os.access(path, os.X_OK):
        found.append(f"{path}: starts with #! but is not executable")
    if path.endswith(".sh") or text.startswith(("#!/usr/bin/env bash", "#!/bin/bash", "#!/bin/sh")):
        bash = subprocess.run(["bash", "-n", path], capture_output=True, text=True)
        found += [bash.stderr.strip()] if bash.returncode else []
    elif path.endswith(".py"):
        try:
            compile(text, path, "exec")
        except SyntaxError as error:
            found.append(f"{path}:{error.lineno}: {error.msg}")
print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
sys.exit(bool(found))
