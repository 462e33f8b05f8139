"""Decodes JSON of the API server, whatever tenants have put where any JSON is allowed: the parameters of a device
claim.

Two valid things are refused by Python's decoder: values nested a thousand deep, and integers of thousands of digits.
One such object must not make a list unreadable. Values deeper than MOST_LEVELS, and integers that are no amount
(`gpuctl/k8s/bounds.py`), read as null; no field that gpuctl reads is either.
"""

from __future__ import annotations

import json
import re
from typing import Any

from gpuctl.k8s.bounds import MOST_AMOUNT

MOST_LEVELS = 64
"""The fields of a pod are 12 deep, and its managed fields 16."""
_MOST_DIGITS = len(str(MOST_AMOUNT))
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[][{}]', re.DOTALL)


def _amount(digits: str) -> int | None:
    return int(digits) if len(digits.lstrip("-")) <= _MOST_DIGITS else None


_raw_decode = json.JSONDecoder(parse_int=_amount).raw_decode


def decode(data: bytes | str) -> Any:
    """The value of a whole text. Raises ValueError for anything but JSON."""
    text = data if isinstance(data, str) else data.decode()
    value, end = decode_at(text, len(text) - len(text.lstrip()))
    if text[end:].strip():
        raise ValueError("more than one value")
    return value


def decode_at(text: str, begin: int) -> tuple[Any, int]:
    """The value that begins at `begin`, and where it ends. Raises ValueError for no value, or half of one.

    Cost: as json's; if the value is nested too deep, once more, and linear.
    """
    try:
        return _raw_decode(text, begin)
    except RecursionError:
        shallow, end = _without_depths(text, begin)
    return _raw_decode(shallow)[0], end


def _without_depths(text: str, begin: int) -> tuple[str, int]:
    """The text of the value with null for its parts that are too deep, and where it ended."""
    parts, depth, kept_from = list[str](), 0, begin
    for token in _TOKEN.finditer(text, begin):
        if token[0] in "[{":
            depth += 1
            if depth == MOST_LEVELS + 1:
                parts.append(f"{text[kept_from : token.start()]}null")
        elif token[0] in "]}":
            if depth == MOST_LEVELS + 1:
                kept_from = token.end()
            depth -= 1
            if depth == 0:
                return "".join([*parts, text[kept_from : token.end()]]), token.end()
    raise ValueError("half a value")
