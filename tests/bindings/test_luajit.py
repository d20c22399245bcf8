"""A binding for LuaJIT that is generated from api.json alone, which examples/luajit keeps as an example."""

import os
import shutil
import subprocess

import pytest
from conftest import ROOT

LUAJIT = shutil.which("luajit")
HAS_JSON = LUAJIT and subprocess.run([LUAJIT, "-e", "require('dkjson')"], capture_output=True).returncode == 0
EXAMPLE = ROOT / "examples" / "luajit"

pytestmark = pytest.mark.skipif(not HAS_JSON, reason="luajit with the module dkjson is missing (Debian: luajit, lua-dkjson)")


def luajit(script, *arguments):
    return [LUAJIT, str(script), str(ROOT / "bindings" / "api.json"), os.environ["DSC_LIBRARY"], *arguments]


@pytest.mark.parametrize("ranks, hosts", [(1, 1), (2, 1), (4, 1), (2, 2), (4, 2)])
def test_functions_of_every_kind(ranks, hosts):
    """Calls more than 30 functions: numbers, texts, lists, structs, handles, buffers, callbacks, failures."""
    on_hosts = ["sh", "-c", f'DSC_HOST_ID=$((DSC_RANK % {hosts})) exec "$@"', "sh"] if hosts > 1 else []
    command = [os.environ["DSCRUN"], "-n", str(ranks), "--", *on_hosts, *luajit(EXAMPLE / "tour.lua")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every kind of function was called" in done.stdout


def test_all_functions_are_declared_and_found():
    program = """
        package.path = arg[1] .. "/?.lua;" .. package.path
        local ffi, json, declare = require("ffi"), require("dkjson"), require("declare")
        local api = json.decode(io.open(arg[2]):read("*a"))
        ffi.cdef(declare.text(api))
        declare.verify(api, ffi)
        local library, found = ffi.load(arg[3]), 0
        for _, entry in ipairs(api.functions) do found = found + (library[entry.name] ~= nil and 1 or 0) end
        print(found == #api.functions and found > 200)
    """
    command = [LUAJIT, "-", str(EXAMPLE), *luajit("")[2:]]
    done = subprocess.run(command, input=program, capture_output=True, text=True, timeout=60)
    assert done.stdout == "true\n", done.stdout + done.stderr
