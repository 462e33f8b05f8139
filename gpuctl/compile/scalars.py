"""Plain YAML scalars by the core schema of YAML 1.2: null, true, false, integers, decimals; all else is text.

So `yes`, `on` and `no` are text, `0755` is 755, `0o755` is octal, `8:30` and `2024-01-01` are text. Numbers are exact:
`int`, or `Decimal` when written with a point or an exponent. Never a float.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

MAX_DIGITS = 25
MAX_EXPONENT = 18
"""Bounds on numbers: at most that many digits, and between 10^-18 and 10^18. Every amount here lies within."""

_CONSTANTS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_MAY_BE_NUMBER = frozenset("0123456789+-.")
_DECIMAL_INT = re.compile(r"[-+]?[0-9]+")
_OTHER_INT = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")

Scalar = str | int | Decimal | bool | None


class NotFinite(ValueError):
    """`.nan` or `.inf`: YAML has them as numbers, but they are no amounts."""


class OutOfRange(ValueError):
    """A number too large, too small or too long to be an amount."""


def number(text: str) -> int | Decimal | None:
    """The exact value of a number in decimal, octal (0o) or hexadecimal (0x) notation; None for any other text.

    Raises OutOfRange. Never computes a power of ten larger than the limits above.
    """
    if _DECIMAL_INT.fullmatch(text):
        if len(text) > MAX_EXPONENT:
            raise OutOfRange
        return int(text)
    if _FLOAT.fullmatch(text):
        return _decimal(text)
    if _OTHER_INT.fullmatch(text):
        if len(text) > MAX_EXPONENT:
            raise OutOfRange
        return int(text, 0)
    return None


def number_or_text(text: str) -> int | Decimal | str:
    """What a person typed for an amount: a number becomes a number, anything else stays text for the compiler to
    check."""
    try:
        value = number(text)
    except OutOfRange:
        return text
    return text if value is None else value


def _decimal(text: str) -> Decimal:
    if len(text) > 2 * MAX_DIGITS:
        raise OutOfRange
    value = Decimal(text)
    _, digits, exponent = value.as_tuple()
    if len(digits) > MAX_DIGITS or not isinstance(exponent, int):
        raise OutOfRange
    if value and not -MAX_EXPONENT <= value.adjusted() < MAX_EXPONENT:
        raise OutOfRange
    return value or Decimal(0)


def plain_scalar(text: str) -> Scalar:
    """The value of an unquoted scalar without a tag. Raises NotFinite, OutOfRange."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in _MAY_BE_NUMBER:
        return text
    if _NOT_FINITE.fullmatch(text):
        raise NotFinite
    value = number(text)
    return text if value is None else value


def kind_of(value: Any) -> str:
    """The kind of a value, in the words of YAML."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return "text"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case int():
            return "a number"
        case Decimal():
            return "a decimal number"
        case _:
            return "a value of another kind"
