"""JSON of the API server, decoded whatever tenants have put where any JSON may stand: the parameters of a device claim.

Two things are valid there that Python's decoder refuses: values nested a thousand deep, and integers of thousands of
digits. One such object must not make a list unreadable. What is deeper than MOST_LEVELS, and an integer that is no
amount (`gpuctl/k8s/bounds.py`), reads as null; no field that gpuctl reads is either.
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
    """The value of a whole text. ValueError for what is no JSON."""
    text = data if isinstance(data, str) else data.decode()
    value, end = decode_at(text, len(text) - len(text.lstrip()))
    if text[end:].strip():
        raise ValueError("more than one value")
    return value


def decode_at(text: str, begin: int) -> tuple[Any, int]:
    """The value that begins there, and where it ends. ValueError for what is none, or half of one.

    Cost: as json's; where the value is nested too deep once more, and linear.
    """
    try:
        return _raw_decode(text, begin)
    except RecursionError:
        shallow, end = _without_depths(text, begin)
    return _raw_decode(shallow)[0], end


def _without_depths(text: str, begin: int) -> tuple[str, int]:
    """The value with null for what is too deep in it, and where it ended."""
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
