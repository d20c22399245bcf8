"""How often tests repeat things. The same rule for C and C++ is in repetitions.h."""

from __future__ import annotations

import os


def repetitions(usual: int, least: int) -> int:
    """Scales the usual count by DSC_TEST_REPETITIONS, but returns at least the smallest count with which the test makes
    sense."""
    text = os.environ.get("DSC_TEST_REPETITIONS") or "100"
    if not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        raise ValueError(f"DSC_TEST_REPETITIONS is {text!r}, expected hundredths from 1 to 1000000")
    return max(usual * int(text) // 100, least)
