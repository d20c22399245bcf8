#!/usr/bin/env python3
"""Every exported function must consist of one call of the guard that turns exceptions into results. No other code may
catch.
"""

import re
import sys

import source

# These functions look up a name or a text. They cannot throw, and have no result to report an error.
NO_FAIL = {"dsc_result_name", "dsc_last_error_message", "dsc_dtype_name", "dsc_op_name", "dsc_pipe_op_name"}
GUARDED = re.compile(r"^[^{]*\{\s*return (dsc::)?guard(_pure)?\(\s*__func__,")

# Each library catches exceptions in only one file. The module for Gloo is a separate library.
GUARDS = {"impl/base/guard.hpp", "impl/base/guard.cpp", "impl/gloo/guard.hpp"}

# Headers of C++ are part of the program that includes them. This one keeps the exceptions of the program's callbacks.
OF_PROGRAMS = "capi/include/dsc/cpp/callback.hpp"

found = []
for path in source.files("impl/*.cpp", "impl/*.hpp"):
    code = source.code_only(source.read(path))
    for match in re.finditer(r"\b(try|catch)\b", code):
        if path not in GUARDS:
            line = code.count("\n", 0, match.start()) + 1
            found.append(f"{path}:{line}: '{match.group()}': expected exceptions to be caught only in {', '.join(sorted(GUARDS))}")
for path in source.files("capi/*.cpp", "capi/*.hpp"):
    text = source.read(path)
    for match in re.finditer(r"\b(try|catch)\b", source.code_only(text) if path != OF_PROGRAMS else ""):
        line = text.count("\n", 0, match.start()) + 1
        found.append(f"{path}:{line}: '{match.group()}': expected exceptions to be caught only in impl/base/guard.hpp")
    for function in source.functions(text):
        if function.name.startswith("dsc_") and function.name not in NO_FAIL and not GUARDED.match(function.body):
            found.append(f"{path}:{function.first_line}: {function.name} does not begin with 'return dsc::guard(__func__,'")
print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
sys.exit(bool(found))
