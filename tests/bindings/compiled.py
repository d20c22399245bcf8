"""Measures with the real compiler the sizes, offsets and values of the headers, to compare generated layers with
them."""

import json
import os
import subprocess

from conftest import ROOT

API = json.loads((ROOT / "bindings" / "api.json").read_text())


def constants():
    """Returns every enumerator and constant as (name, value)."""
    listed = [value for enum in API["enums"] for value in enum["values"]] + API["constants"]
    return [(entry["name"], entry["value"]) for entry in listed]


def c_program():
    """Returns a program that prints lines such as "dsc_tensor_t.data 8" (offset) and "dsc_tensor_t.data# 8" (size)."""
    lines = ["#include <dsc/dsc.h>", "#include <stdio.h>", "int main(void) {"]
    for struct in API["structs"]:
        name = struct["name"]
        lines.append(f'  printf("{name} %zu\\n", sizeof({name}));')
        for field in struct["fields"]:
            lines.append(f'  printf("{name}.{field["name"]} %zu\\n", offsetof({name}, {field["name"]}));')
            lines.append(f'  printf("{name}.{field["name"]}# %zu\\n", sizeof((({name}*)0)->{field["name"]}));')
    lines += [f'  printf("{name} %lld\\n", (long long){name});' for name, _ in constants()]
    return "\n".join(lines + ["  return 0;", "}", ""])


def measure(folder):
    """Compiles and runs the program in a folder; returns {name: number}."""
    (folder / "print.c").write_text(c_program())
    program = folder / "print"
    compiler = os.environ.get("CC", "cc").split()
    include = f"-I{ROOT / 'capi' / 'include'}"
    subprocess.run([*compiler, include, str(folder / "print.c"), "-o", str(program)], check=True)
    return numbers(program)


def numbers(program):
    """Returns the numbers that a program prints, one name and number per line."""
    output = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in (line.split() for line in output.splitlines())}
