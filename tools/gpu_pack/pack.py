#!/usr/bin/env python3
"""Packs everything that a machine with a GPU lacks to build libdsc and to run its GPU tests.

pack.py FOLDER: makes FOLDER and FOLDER.tar.gz from scratch. The folder contains run.sh, which needs a C++ compiler and,
for the kernels, nvcc. It needs no network, root, Python or packages. Files are copied from this tree and from Debian's
packages on this machine. NCCL is not packed because it is too large; the other machine's NCCL is used.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

LIMIT_BYTES = 64 << 20
ROOT = pathlib.Path(__file__).resolve().parents[2]

HEADERS = ["libhwy-dev", "libasio-dev", "libsodium-dev", "libcli11-dev", "nlohmann-json3-dev", "libcmocka-dev"]
PYTHON = pathlib.Path("/usr/bin/python3").resolve()  # .../python3.11
TOOLS = {"ninja": "ninja-build", "pkgconf": "pkgconf-bin"}
# The packed tools use these, whatever versions the machine has.
TOOL_LIBRARIES = ["ld-linux-x86-64.so.2", "libc.so.6"]
PYTHON_UNUSED = ("/ensurepip/", "/idlelib/", "/lib2to3/", "/pydoc_data/", "/test/", "/tkinter/", "/turtledemo/")
OF_EVERY_MACHINE = re.compile(r"lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so")  # exists on every machine, for linking
UNUSED_LIBRARIES = ("libhwy_contrib.so", "libhwy_test.so", "libcmockery.so")


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def files_of(package: str) -> list[pathlib.Path]:
    try:
        names = output("dpkg", "-L", package).splitlines()
    except (OSError, subprocess.CalledProcessError):
        sys.exit(f"pack.py: needs Debian's package {package}: ./dev setup")
    return [path for name in names if (path := pathlib.Path(name)).is_file()]


def copy(path: pathlib.Path, target: pathlib.Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target)  # follows links, so the folder contains none


def copy_sources(target: pathlib.Path) -> None:
    listed = output("git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            copy(ROOT / name, target / name)


def libraries_of(path: pathlib.Path) -> dict[str, pathlib.Path]:
    """Returns the libraries that the loader finds for a program or library."""
    found = re.findall(r"^\s*(\S+) => (/\S+)", output("ldd", str(path)), re.MULTILINE)
    return {name: pathlib.Path(where) for name, where in found}


def copy_libraries(target: pathlib.Path) -> None:
    """Copies headers, the libraries to link with, and libraries that those need. The .pc files get the new paths."""
    for package in HEADERS:
        for path in files_of(package):
            if path.suffix == ".pc":
                text = path.read_text(encoding="utf-8")
                text = re.sub(r"^prefix=.*$", "prefix=${pcfiledir}/../..", text, flags=re.MULTILINE)
                text = re.sub("/usr(?=/lib|/include)", "${pcfiledir}/../..", text.replace("lib/x86_64-linux-gnu", "lib"))
                place = target / "lib" / "pkgconfig" / path.name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, encoding="utf-8")
            elif "/include/" in str(path):
                copy(path, target / "include" / str(path).split("/include/")[1])
            elif path.suffix == ".so" and path.name not in UNUSED_LIBRARIES:
                copy(path, target / "lib" / path.name)
                real = re.search(r"SONAME.*\[(.*)\]", output("readelf", "-d", str(path)))
                if real:
                    copy(path, target / "lib" / real[1])
                for name, where in libraries_of(path).items():
                    if not OF_EVERY_MACHINE.match(name):
                        copy(where, target / "lib" / name)


def copy_programs(target: pathlib.Path) -> None:
    """Copies programs that are run with the packed loader and C library."""
    programs = {name: next(path for path in files_of(package) if path.parts[-2:] == ("bin", name))
                for name, package in TOOLS.items()}
    programs["python3"] = PYTHON
    for name, program in programs.items():
        copy(program, target / "programs" / name)
        for library, where in libraries_of(program).items():
            copy(where, target / "lib" / library)
    libc = libraries_of(programs["ninja"])["libc.so.6"].resolve()
    for name in TOOL_LIBRARIES:
        copy(libc.with_name(name), target / "lib" / name)


def copy_tools(target: pathlib.Path) -> None:
    copy_programs(target)
    for path in files_of("meson"):
        if "/mesonbuild/" in str(path) and path.suffix != ".pyc":
            copy(path, target / "meson" / "mesonbuild" / str(path).split("/mesonbuild/")[1])
    copy(pathlib.Path("/usr/bin/meson"), target / "meson" / "meson.py")
    for package in f"lib{PYTHON.name}-minimal", f"lib{PYTHON.name}-stdlib":
        for path in files_of(package):
            if str(path).startswith(f"/usr/lib/{PYTHON.name}/") and not any(word in str(path) for word in PYTHON_UNUSED):
                if path.suffix != ".pyc":
                    copy(path, target / "python" / "lib" / str(path).removeprefix("/usr/lib/"))


def is_compiled(path: pathlib.Path) -> bool:
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def glibc_needed(folder: pathlib.Path) -> str:
    """Returns the newest version of the C library that compiled files in the folder require."""
    newest = (0, 0)
    for path in filter(is_compiled, folder.rglob("*")):
        versions = re.findall(r"GLIBC_(\d+)\.(\d+)", output("readelf", "--version-info", "--wide", str(path)))
        newest = max([newest, *((int(major), int(minor)) for major, minor in versions)])
    return ".".join(map(str, newest))


def say(what: str, found: int) -> None:
    print(f"gpu-pack: {what}: {found / 2**20:.1f} MiB of at most {LIMIT_BYTES >> 20}")
    if found >= LIMIT_BYTES:
        sys.exit(f"gpu-pack: {what} is too large")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1]).absolute()
    if folder.exists() and not (folder / "run.sh").is_file():
        sys.exit(f"pack.py: {folder} already exists and is not a pack")
    shutil.rmtree(folder, ignore_errors=True)
    copy_sources(folder / "source")
    copy_libraries(folder / "libraries")
    copy_tools(folder / "tools")
    for name in "run.sh", "run.py", "steps.py", "meson_start.py":
        copy(ROOT / "tools" / "gpu_pack" / name, folder / name)
    facts = {"glibc": glibc_needed(folder / "libraries"), "commit": output("git", "-C", str(ROOT), "describe", "--always", "--dirty").strip()}
    (folder / "pack.json").write_text(json.dumps(facts) + "\n", encoding="utf-8")
    say(str(folder), sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))
    archive = folder.with_name(folder.name + ".tar.gz")
    with tarfile.open(archive, "w:gz", compresslevel=6) as tar:
        tar.add(folder, folder.name)
    say(str(archive), archive.stat().st_size)


main()
