#!/usr/bin/env python3
"""Generates all files that depend on the public headers: api.json and the raw layer of each language.

    bindings/generate.py            writes the files
    bindings/generate.py --check    exits 1 and shows the difference when a file is stale

Exits 77 (skipped) if libclang or its Python module is missing. The outputs are committed, so only those who change a
header need libclang.
"""

import argparse
import difflib
import json
import pathlib
import sys

from generator import api_json, c_functions, cpp_enums, julia_ffi, python_ctypes, rust_ffi

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER = "capi/include/dsc/dsc.h"

DESCRIPTION = "bindings/api.json"

# For each output, a function that returns the text of the file. It gets what api.json says, and nothing else.
OUTPUTS = {
    "capi/include/dsc/functions.h": c_functions.emit,
    "bindings/python/libdsc/_raw.py": python_ctypes.emit,
    "bindings/rust/dsc-sys/src/ffi.rs": rust_ffi.emit,
    "capi/include/dsc/cpp/enums.hpp": cpp_enums.emit,
    "bindings/julia/LibDSC/src/raw.jl": julia_ffi.emit,
}


def stale(path, text):
    """Returns a unified diff from the current file at path to the new text, as lines."""
    old = (ROOT / path).read_text() if (ROOT / path).exists() else ""
    names = (f"{path} (committed)", f"{path} (generated)")
    return list(difflib.unified_diff(old.splitlines(True), text.splitlines(True), *names))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if a file is stale")
    check = parser.parse_args().check
    try:
        from generator import parse

        api = parse.parse(ROOT, HEADER)
    except (ImportError, OSError) as error:
        print(f"generate: skipped, libclang cannot be used (python3-clang-14): {error}", file=sys.stderr)
        return 77
    except ValueError as error:
        print(f"generate: {error}", file=sys.stderr)
        return 1
    description = api_json.emit(api)
    texts = {DESCRIPTION: description} | {path: emit(json.loads(description)) for path, emit in OUTPUTS.items()}
    difference = []
    for path, text in texts.items():
        difference += stale(path, text)
        if not check:
            (ROOT / path).write_text(text)
    if check and difference:
        sys.stdout.writelines(difference)
        print("generate: stale; run bindings/generate.py and commit the result", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
