#!/usr/bin/env python3
"""Configures the project as packagers do: without options, with all options disabled or required, and without any
optional dependency. From ten times the usual repetitions on, as in ./dev test all, also each option and each dependency
alone. The project is only configured here, because each of these cases once failed in configuring."""

from __future__ import annotations

import concurrent.futures
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(SOURCE / "tests/support"))
from repetitions import repetitions  # noqa: E402

EACH_BY_ITSELF = repetitions(1, least=1) >= 10
CHECKS = ("tests", "bench")  # these use what other options have disabled

# The files by which each dependency is found; for programs, their names. The test hides the files in a mount namespace,
# so that Meson sees a machine without them.
FILES = {
    "CMocka": ["/usr/lib/*/pkgconfig/cmocka.pc", "/usr/lib/*/cmake/cmocka/*", "/usr/include/cmocka.h"],
    "PMIx": ["/usr/lib/*/pkgconfig/pmix.pc"],
    "Gloo": ["/usr/lib/libgloo.*", "/usr/lib/*/libgloo.*"],
}
PROGRAMS = {"CMake": ["cmake"], "Doxygen": ["doxygen"], "nvcc": ["nvcc"], "Python": ["python3"], "Rust": ["cargo", "rustc"]}
SEARCHED = [*os.environ["PATH"].split(":"), "/usr/local/cuda/bin"]

# Mounts in this namespace are not visible to other processes.
UNSHARE = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount"]
# Meson is a Python program, so it runs with a copy of the interpreter where python3 is hidden.
HIDE = 'for file in $hidden; do mount --bind /dev/null "$file" || exit 1; done; exec "$@"'


def options() -> list[str]:
    """Returns the options of the project that can be disabled."""
    command = ["meson", "introspect", "--buildoptions", str(SOURCE / "meson.build")]
    known = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return [option["name"] for option in known if option["section"] == "user" and option["type"] == "combo"]


def files_of(name: str) -> list[str]:
    """Returns every file of a dependency on this machine."""
    patterns = FILES.get(name) or [f"{folder}/{program}" for folder in SEARCHED for program in PROGRAMS[name]]
    return sorted({os.path.realpath(path) for pattern in patterns for path in glob.glob(pattern) if os.path.isfile(path)})


def machines() -> dict[str, tuple[list[str], list[str]]]:
    """Returns for each simulated machine: its name -> arguments for meson, and the files that it lacks."""
    disabled = [f"-D{name}=disabled" for name in options()]
    automatic = [f"-D{name}=auto" for name in options()]
    tried: dict[str, tuple[list[str], list[str]]] = {"no option": ([], []), "all options disabled": (disabled, [])}
    tried["all but tests and benchmarks disabled"] = [*disabled, *(f"-D{name}=auto" for name in CHECKS)], []
    tried["--auto-features=enabled"] = ["--auto-features=enabled", *([] if newest_nvcc() else ["-Dcuda=disabled"])], []
    hidden = {name: files_of(name) for name in [*FILES, *PROGRAMS]}
    tried["without any dependency"] = automatic, sorted({file for files in hidden.values() for file in files})
    if EACH_BY_ITSELF:
        tried["all options auto"] = automatic, []
        tried |= {word: ([*automatic, word], []) for word in disabled}
        tried |= {f"without {name}": (automatic, files) for name, files in hidden.items()}
    return tried


def newest_nvcc() -> bool:
    """Returns whether this machine has an nvcc that the project's kernels accept."""
    nvcc = shutil.which("nvcc", path=os.environ["PATH"] + ":/usr/local/cuda/bin")
    if not nvcc:
        return False
    release = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout.split("release ")[1].split(",")[0]
    return tuple(map(int, release.split("."))) >= (12, 8)


def configure(words: list[str], hidden: list[str], folder: pathlib.Path, python: pathlib.Path) -> str:
    """Returns an error, or "": the end of Meson's output if it fails, or what a plain build compiles unnecessarily."""
    command = [str(python), str(shutil.which("meson")), "setup", str(folder), str(SOURCE), *words]
    if hidden:
        command = [*UNSHARE, "sh", "-c", HIDE, "sh", *command]
    result = subprocess.run(
        command,
        env={**os.environ, "hidden": " ".join(hidden)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    problem = "" if result.returncode == 0 else "\n".join(result.stdout.splitlines()[-12:])
    if not problem and not words:
        problem = needless(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return problem


def needless(folder: pathlib.Path) -> str:
    """Returns programs and libraries that `meson install` would build but not install, which wastes packagers' time."""
    command = ["meson", "introspect", "--targets", str(folder)]
    targets = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    kinds = ("executable", "shared library", "shared module")
    made = [t["name"] for t in targets if t["type"] in kinds and t["build_by_default"] and not t["installed"]]
    return f"meson install builds and does not install: {' '.join(made)}" if made else ""


def why_nothing_can_be_hidden() -> str:
    """Returns why private mounts are not possible here, or "". In a chroot whose root is not a mount point they are
    not.

    There mounts cannot be kept from the surrounding machine: `--propagation unchanged` would hide the files there, too.
    """
    try:
        tried = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True)
    except OSError as error:
        return str(error)
    return "" if tried.returncode == 0 else tried.stderr.strip() or f"unshare exited with {tried.returncode}"


def main() -> int:
    failed = 0
    tried, problem = machines(), why_nothing_can_be_hidden()
    if problem:
        print(f"skipped, because no file can be hidden here ({problem}):", ", ".join(name for name, (_, files) in tried.items() if files))
        tried = {name: machine for name, machine in tried.items() if not machine[1]}
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(2) as pool:
        python = pathlib.Path(shutil.copy("/usr/bin/python3", scratch))
        started = {
            name: pool.submit(configure, words, hidden, pathlib.Path(scratch) / f"build{number}", python)
            for number, (name, (words, hidden)) in enumerate(tried.items())
        }
        for name, result in started.items():
            problem = result.result()
            print(f"{'FAILED' if problem else 'ok'}: {name}\n{problem}".rstrip(), flush=True)
            failed += bool(problem)
    return 1 if failed else 0


sys.exit(main())
