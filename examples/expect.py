#!/usr/bin/env python3
"""Runs an example and checks its output: expect.py [TIMES TEXT]... -- COMMAND...

Fails if the command fails, or unless exactly TIMES lines of its output contain TEXT.
"""

import subprocess
import sys


def main():
    split = sys.argv.index("--")
    promised, command = sys.argv[1:split], sys.argv[split + 1 :]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="", flush=True)
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
