"""How often tests repeat what they repeat, as repetitions.h says it for C and C++."""

from __future__ import annotations

import os


def repetitions(usual: int, least: int) -> int:
    """The usual count, scaled by DSC_TEST_REPETITIONS, but at least the one with which the test still says what it should."""
    text = os.environ.get("DSC_TEST_REPETITIONS") or "100"
    if not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        raise ValueError(f"DSC_TEST_REPETITIONS is {text!r}, expected hundredths from 1 to 1000000")
    return max(usual * int(text) // 100, least)
