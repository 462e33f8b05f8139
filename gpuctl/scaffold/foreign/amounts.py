"""Amounts of other systems in the form of declarations. None for a text that is not such an amount."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from gpuctl.compile import amounts
from gpuctl.k8s.quantity import format_bytes, format_cpu, parse_milli, parse_whole
from gpuctl.model.units import WHOLE_GPU, GpuMilli

_KIBIBYTE = 1024
_DIGITS = 12
"""More digits than any number of GPUs or seconds has; bounds what is computed."""
_MOST_SECONDS = 86_400 * amounts.MOST_DAYS


def gpu_milli(value: Any) -> GpuMilli | None:
    """Milli-GPU of 4, 0.5 or "0.5"."""
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        return None
    if isinstance(value, Decimal) and not (value.is_finite() and -_DIGITS < value.adjusted() < _DIGITS):
        return None
    try:
        return amounts.gpus(value)
    except ValueError:
        return None


def gpus(milli: GpuMilli) -> int | Decimal:
    """GPUs as declarations have them: 4000 -> 4, 500 -> 0.5."""
    whole, part = divmod(milli, WHOLE_GPU)
    return whole if not part else Decimal(milli).scaleb(-3).normalize()


def memory(value: Any) -> str | None:
    """A quantity of bytes, rounded up to KiB: "100M" -> "97657Ki"."""
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        return None
    try:
        size = parse_whole(value)
    except ValueError:
        return None
    return format_bytes(-(-size // _KIBIBYTE) * _KIBIBYTE) if size > 0 else None


def cpu(value: Any) -> str | int | None:
    """A quantity of CPU: "4" -> 4, "500m"."""
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        return None
    try:
        milli = parse_milli(value)
    except ValueError:
        return None
    text = format_cpu(milli)
    return None if milli <= 0 else int(text) if text.isdecimal() else text


def seconds(value: Any) -> str | None:
    """A number of seconds as a duration: 43200 -> "12h"."""
    number = whole(value)
    if number is None or not 0 < number <= _MOST_SECONDS:
        return None
    for unit, length in (("h", 3600), ("m", 60)):
        if not number % length:
            return f"{number // length}{unit}"
    return f"{number}s"


def whole(value: Any) -> int | None:
    """A whole number that is not negative, also where it is a text or has a point with zeros."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        return int(value)
    if isinstance(value, Decimal) and value.is_finite() and 0 <= value.adjusted() < _DIGITS and value % 1 == 0:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
