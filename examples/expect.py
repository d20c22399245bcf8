#!/usr/bin/env python3
"""Runs an example and checks what it prints: expect.py [TIMES TEXT]... -- COMMAND...

Fails when the command fails or when TEXT does not stand on exactly TIMES lines of its output. A command that
ends with code 77 is skipped, and says why.
"""

import subprocess
import sys

SKIPPED = 77  # by which a program tells that something is missing that it needs


def main():
    split = sys.argv.index("--")
    promised, command = sys.argv[1:split], sys.argv[split + 1 :]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="", flush=True)
    if done.returncode == SKIPPED:
        return SKIPPED
    if done.returncode:
        print(f"expect.py: the command ended with code {done.returncode}", file=sys.stderr)
        return 1
    failures = 0
    for times, text in zip(promised[::2], promised[1::2]):
        found = sum(text in line for line in done.stdout.splitlines())
        if found != int(times):
            print(f"expect.py: expected {times} lines with {text!r}, found {found}", file=sys.stderr)
            failures += 1
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
