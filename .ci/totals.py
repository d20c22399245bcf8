#!/usr/bin/env python3
"""Adds up Meson's test logs: totals.py STAGES_FAILED BUILD_FOLDER... Fails if a test failed or was skipped
unexpectedly.
"""

import json
import os
import sys

# Tests that may be skipped, and why. The name is the test's own, without project and suite.
ALLOWED_SKIPS: dict[str, str] = {
    "store_hosts": "needs network namespaces, which some machines forbid",
}
# The same for all tests whose names contain a word.
ALLOWED_WORDS: dict[str, str] = {
    "julia": "Debian 12 has no Julia, and not every mirror still has the one of Debian 11",
}

GOOD = {"OK", "EXPECTEDFAIL"}


def results(folder: str) -> list[tuple[str, str]]:
    """Returns (name, result) of every test of one build folder."""
    path = os.path.join(folder, "meson-logs", "testlog.json")
    if not os.path.exists(path):
        return [(f"no test has run in {folder}", "FAIL")]
    with open(path, encoding="utf-8") as file:
        return [(test["name"], test["result"]) for test in map(json.loads, file)]


def main(stages_failed: int, folders: list[str]) -> int:
    passed = skipped = 0
    failed = test_failures = 0
    for folder in folders:
        for full_name, result in results(folder):
            name = full_name.split(" / ")[-1]
            if result in GOOD:
                passed += 1
            elif result == "SKIP":
                skipped += 1
                if name not in ALLOWED_SKIPS and not any(word in name for word in ALLOWED_WORDS):
                    print(f"{folder}: {name} was skipped and is not in .ci/totals.py")
                    failed += 1
            else:
                print(f"{folder}: {name}: {result}")
                test_failures += 1
    if passed == 0:
        print("no test passed")
        failed += 1
    # A failing test has also made its stage fail, so the larger of the two numbers counts.
    failed += max(test_failures, stages_failed)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
