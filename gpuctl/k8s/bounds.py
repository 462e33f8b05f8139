"""Bounds on numbers, times and texts from outside. A larger value reads as absent.

Python reads integers of thousands of digits and adds them; the result then can't be written down, or takes for ever to
count up to. The API server itself holds no amount above MOST_AMOUNT.
"""

from __future__ import annotations

from typing import TypeGuard

MOST_AMOUNT = 2**63 - 1
"""The largest amount of anything: what a signed integer of 64 bits holds."""
MOST_WORKERS = 100_000
"""The most workers of one run: their indexes are below it."""
LONGEST_TEXT = 4096
"""The most characters of one value that gpuctl wrote: the parameter of a reason, the name of a node."""

_MOST_DIGITS = len(str(MOST_AMOUNT))


def is_amount(value: object, most: int = MOST_AMOUNT) -> TypeGuard[int]:
    """Whether the value is an integer from 0 to `most`; True and False are not."""
    return type(value) is int and 0 <= value <= most


def whole_number(text: object, most: int = MOST_AMOUNT) -> int | None:
    """The number in a text of ASCII digits, up to `most`; None for any other text or value."""
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        return None
    number = int(text)
    return number if number <= most else None


def is_short(value: object) -> TypeGuard[str]:
    """Whether the value is a text that is not too long."""
    return isinstance(value, str) and len(value) <= LONGEST_TEXT
