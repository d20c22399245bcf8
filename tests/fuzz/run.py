#!/usr/bin/env python3
"""Runs a fuzz target, first on the committed corpus, then on inputs that libFuzzer derives from it."""

import argparse
import base64
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from repetitions import repetitions  # noqa: E402

SKIPPED = 77
# An input may take long on a busy machine, but not forever. No input may need much memory.
LIMITS = ["-timeout=60", "-rss_limit_mb=1024", "-malloc_limit_mb=64", "-len_control=0", "-error_exitcode=1"]


def has_libfuzzer(clang: str) -> bool:
    """Returns whether this clang can link a program with libFuzzer and the sanitizers."""
    source = '#include <stddef.h>\n#include <stdint.h>\nextern "C" int LLVMFuzzerTestOneInput(const uint8_t*, size_t) { return 0; }\n'
    with tempfile.TemporaryDirectory() as folder:
        command = [clang, "-fsanitize=fuzzer,address,undefined", "-x", "c++", "-", "-o", f"{folder}/probe"]
        return subprocess.run(command, input=source, text=True, capture_output=True).returncode == 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--probe", metavar="CLANG", help="only say whether this clang has libFuzzer")
    parser.add_argument("--program", nargs="?", help="dsc_fuzz")
    parser.add_argument("--work", type=pathlib.Path, help="folder for inputs that were found")
    parser.add_argument("--seconds", type=int, default=0, help="scaled by DSC_TEST_REPETITIONS; 0: until the runs are made")
    parser.add_argument("--runs", type=int, default=-1)
    parser.add_argument("--keep", action="store_true", help="add what was found to the committed corpus, minimised")
    parser.add_argument("--max-len", type=int, default=1024, help="bytes of an input; short ones make more runs")
    targets = sorted(re.findall(r"^void fuzz_(\w+)\(", (HERE / "fuzz.hpp").read_text(), re.MULTILINE))
    parser.add_argument("target", nargs="?", choices=targets)
    options = parser.parse_args()
    if not options.probe and not options.target:
        parser.error(f"expected a target, one of {', '.join(targets)}")
    return options


class Corpus:
    """The inputs of one target: one per line, in base64."""

    def __init__(self, path: pathlib.Path):
        self.path = path

    def unpack(self, folder: pathlib.Path) -> None:
        lines = self.path.read_text().split("\n") if self.path.exists() else []
        for number, line in enumerate(filter(None, lines)):
            (folder / str(number)).write_bytes(base64.b64decode(line))

    def pack(self, folder: pathlib.Path) -> None:
        lines = sorted(base64.b64encode(path.read_bytes()).decode() for path in folder.iterdir())
        self.path.write_text("".join(line + "\n" for line in lines))


def fuzz(options: argparse.Namespace, command: list[str], found: pathlib.Path, corpus: Corpus) -> int:
    dictionary = HERE / "corpus" / f"{options.target}.dict"
    extra = [f"-dict={dictionary}"] if dictionary.exists() else []
    seconds = repetitions(options.seconds, least=min(options.seconds, 1))
    extra += [f"-max_total_time={seconds}", f"-runs={options.runs}", "-print_final_stats=1"]
    with tempfile.TemporaryDirectory() as folder:
        corpus.unpack(pathlib.Path(folder))
        return subprocess.run([*command, *extra, found, folder]).returncode


def keep(command: list[str], found: pathlib.Path, corpus: Corpus) -> int:
    """Keeps the smallest number of inputs that reach all code that any input reaches."""
    with tempfile.TemporaryDirectory() as committed, tempfile.TemporaryDirectory() as merged:
        corpus.unpack(pathlib.Path(committed))
        result = subprocess.run([*command, "-merge=1", "-use_counters=0", merged, committed, found]).returncode
        if result == 0:
            corpus.pack(pathlib.Path(merged))
    return result


def main() -> int:
    options = arguments()
    if options.probe:
        return 0 if has_libfuzzer(options.probe) else 1
    if not options.program:
        print("skipped: no clang with libFuzzer (Debian: clang-14, libclang-rt-14-dev)")
        return SKIPPED
    environment = {
        "DSC_FUZZ_TARGET": options.target,
        "ASAN_OPTIONS": "strict_string_checks=1:malloc_context_size=4:quarantine_size_mb=16",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    os.environ.update(environment)
    found = options.work / "corpus" / options.target
    found.mkdir(parents=True, exist_ok=True)
    command = [options.program, *LIMITS, f"-max_len={options.max_len}", f"-artifact_prefix={options.work}/{options.target}-"]
    # both targets of the server use the same requests
    corpus = Corpus(HERE / "corpus" / f"{options.target.removesuffix('_tcp')}.txt")
    return keep(command, found, corpus) if options.keep else fuzz(options, command, found, corpus)


sys.exit(main())
