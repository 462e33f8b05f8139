"""Kubernetes quantities ("500m", "80Gi") as exact integers and back. Different texts of one amount are equal here.

Reading accepts every form that the API server accepts, numbers included, and rounds up to the wanted unit, as the
server does for a pod's requests. An amount is bounded by what the server can hold. Writing uses the shortest exact
form: binary suffixes for bytes, `m` for CPU.
Source: k8s.io/apimachinery/pkg/api/resource, the grammar in Quantity's documentation.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from gpuctl.k8s.bounds import MOST_AMOUNT
from gpuctl.model.units import CpuMilli, MemBytes

_GRAMMAR = re.compile(
    r"([+-]?(?:\d{1,40}\.?\d{0,40}|\.\d{1,40}))(?:([eE][+-]?\d{1,3})|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]))?", re.ASCII
)
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_SCALE: dict[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{suffix: Fraction(10 ** (3 * power)) for power, suffix in enumerate("kMGTPE", start=1)},
    **{suffix: Fraction(1024**power) for power, suffix in enumerate(_BINARY, start=1)},
}

MEBIBYTE: MemBytes = 1024**2
"""The step in which device memory is granted."""


@lru_cache(maxsize=4096)
def exact(text: str) -> Fraction:
    """The exact amount. Raises ValueError for a text that is not a quantity."""
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise ValueError(f"not a quantity: {text!r}")
    digits, exponent, suffix = match.groups()
    scale = Fraction(f"1{exponent}") if exponent else _SCALE[suffix] if suffix else 1
    return Fraction(digits) * scale


def parse_milli(value: object) -> CpuMilli:
    """Thousandths, rounded up: "500m" -> 500, "4" -> 4000. ValueError for a value that is not a quantity."""
    return _ceil(exact(str(value)) * 1000)


def parse_whole(value: object) -> MemBytes:
    """Units (bytes, devices), rounded up: "16255Mi" -> 17044602880. ValueError for a value that is not a quantity."""
    return _ceil(exact(str(value)))


def same_quantity(left: object, right: object) -> bool:
    """Whether both are quantities of the same amount: "1Gi" and "1024Mi", "1" and 1 and "1000m"."""
    try:
        return exact(str(left)) == exact(str(right))
    except ValueError:
        return False


def format_bytes(mem_bytes: MemBytes) -> str:
    """Bytes with the largest binary suffix that stays whole: 17044602880 -> "16255Mi"."""
    amount, suffix = mem_bytes, ""
    for larger in _BINARY:
        if not amount or amount % 1024:
            break
        amount, suffix = amount // 1024, larger
    return f"{amount}{suffix}"


def format_cpu(cpu_milli: CpuMilli) -> str:
    """Milli-CPU: 4000 -> "4", 500 -> "500m"."""
    return f"{cpu_milli}m" if cpu_milli % 1000 else str(cpu_milli // 1000)


def _ceil(amount: Fraction) -> int:
    """The amount rounded up to a whole number, within the server's bounds."""
    return max(-MOST_AMOUNT, min(MOST_AMOUNT, -(-amount.numerator // amount.denominator)))
