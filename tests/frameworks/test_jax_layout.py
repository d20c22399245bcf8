"""The declarations of XLA's interface in capi/jax/xla_ffi.h match the header of the installed jaxlib."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess

import pytest

from conftest import ROOT

COMPILER = shlex.split(os.environ.get("CC", "cc"))
pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed"),
    pytest.mark.skipif(shutil.which(COMPILER[0]) is None, reason=f"there is no {COMPILER[0]}"),
]

OURS = ROOT / "capi" / "jax"
# Each struct of libdsc with XLA's struct, then the fields whose names differ. All other fields have the same names in
# XLA.
STRUCTS = {
    "ffi_extension": ("XLA_FFI_Extension_Base", {}),
    "ffi_version": ("XLA_FFI_Api_Version", {"extension": "extension_start", "major": "major_version", "minor": "minor_version"}),
    "ffi_metadata": ("XLA_FFI_Metadata", {"version": "api_version"}),
    "ffi_metadata_extension": ("XLA_FFI_Metadata_Extension", {"base": "extension_base"}),
    "ffi_error_args": ("XLA_FFI_Error_Create_Args", {"extension": "extension_start", "code": "errc"}),
    "ffi_api": (
        "XLA_FFI_Api",
        {
            "extension": "extension_start",
            "version": "api_version",
            "internal": "internal_api",
            "create_error": "XLA_FFI_Error_Create",
        },
    ),
    "ffi_buffer": ("XLA_FFI_Buffer", {"extension": "extension_start"}),
    "ffi_values": ("XLA_FFI_Args", {"extension": "extension_start", "values": "args"}),
    "ffi_text": ("XLA_FFI_ByteSpan", {"data": "ptr", "length": "len"}),
    "ffi_scalar": ("XLA_FFI_Scalar", {}),
    "ffi_attributes": ("XLA_FFI_Attrs", {"extension": "extension_start", "values": "attrs"}),
    "ffi_call": (
        "XLA_FFI_CallFrame",
        {"extension": "extension_start", "context": "ctx", "results": "rets", "attributes": "attrs"},
    ),
}
NUMBERS = {
    "FFI_EXTENSION_METADATA": "XLA_FFI_Extension_Metadata",
    "FFI_STAGE_EXECUTE": "XLA_FFI_ExecutionStage_EXECUTE",
    "FFI_BUFFER": "XLA_FFI_ArgType_BUFFER",
    "FFI_SCALAR": "XLA_FFI_AttrType_SCALAR",
}
SINCE = {("ffi_metadata", "state_type_id"): 2}  # the first minor version that has the field


def fields_of(header, struct):
    """Returns the field names of a struct of libdsc."""
    (body,) = re.findall(rf"struct {struct} {{(.*?)\n}}", header, re.DOTALL)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
    return re.findall(r"(?:\(\*)?(\w+)(?:\)\([^)]*\))?;", body)


def comparisons():
    header = (OURS / "xla_ffi.h").read_text()
    assert set(re.findall(r"typedef struct (\w+) {", header)) == set(STRUCTS)
    for struct, (theirs, renamed) in STRUCTS.items():
        fields = fields_of(header, struct)
        assert fields, struct
        for field in fields:
            other = renamed.get(field, field)
            same = f"offsetof({struct}_t, {field}) == offsetof({theirs}, {other})"
            sized = f"sizeof((({struct}_t*)0)->{field}) == sizeof((({theirs}*)0)->{other})"
            yield SINCE.get((struct, field), 0), same
            if (struct, field) != ("ffi_api", "version"):
                yield SINCE.get((struct, field), 0), sized
    yield 0, "sizeof(ffi_values_t) == sizeof(XLA_FFI_Rets) && FFI_BUFFER == XLA_FFI_RetType_BUFFER"
    yield 0, "FFI_MAJOR == XLA_FFI_API_MAJOR && FFI_OLDEST_MINOR <= XLA_FFI_API_MINOR"
    (codes,), (types,) = (re.findall(rf"enum {name} {{(.*?)}}", header, re.DOTALL) for name in ("ffi_code", "ffi_type"))
    numbers = NUMBERS | {f"FFI_{name}": f"XLA_FFI_Error_Code_{name}" for name in re.findall(r"FFI_(\w+) =", codes)}
    numbers |= {f"FFI_{name}": f"XLA_FFI_DataType_{name}" for name in re.findall(r"FFI_(\w+) =", types)}
    for ours, theirs in numbers.items():
        yield 0, f"(int){ours} == (int){theirs}"


def compiled(tmp_path, checks):
    import jax

    lines = ["#include <stddef.h>", "#include <xla/ffi/api/c_api.h>", '#include "xla_ffi.h"']
    for since, check in checks:
        lines += [f"#if XLA_FFI_API_MINOR >= {since}", f'_Static_assert({check}, "{check}");', "#endif"]
    source = tmp_path / "layout.c"
    source.write_text("\n".join(lines) + "\n")
    command = [*COMPILER, "-std=c11", "-fsyntax-only", f"-I{OURS}", f"-I{jax.ffi.include_dir()}", str(source)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_offsets_sizes_and_numbers_are_those_of_jaxlib(tmp_path):
    checks = list(comparisons())
    assert len(checks) > 100
    done = compiled(tmp_path, checks)
    assert done.returncode == 0, done.stderr


def test_a_wrong_offset_is_noticed(tmp_path):
    wrong = [(0, "offsetof(ffi_buffer_t, data) == offsetof(XLA_FFI_Buffer, rank)")]
    assert "static assertion failed" in compiled(tmp_path, wrong).stderr
