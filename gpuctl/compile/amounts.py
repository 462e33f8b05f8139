"""Amounts as people write them, to exact integers: milli-GPU, milli-CPU, bytes, milliseconds. Also checks names.

Each function takes a scalar as YAML gave it (`str`, `int` or `Decimal`) and raises WrongValue for a mistake.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from gpuctl.compile.scalars import OutOfRange, kind_of, number
from gpuctl.model.units import MOST_NODE_GPUS, WHOLE_GPU, CpuMilli, DurationMs, GpuMilli, MemBytes

NAME_LENGTH = 63
SUBDOMAIN_LENGTH = 253
PATH_LENGTH = 4096
MOST_GPUS = 1_000_000
MOST_CPUS = 1_000_000
MOST_MEMORY_PI = 800
MOST_DAYS = 36_500
"""A hundred years: Kubernetes counts nanoseconds in 64 bits. MOST_MEMORY_PI keeps bytes within 64 bits likewise."""
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_DURATION = re.compile(
    r"(?:(?P<d>\d{1,9})d)?(?:(?P<h>\d{1,9})h)?(?:(?P<m>\d{1,9})m(?!s))?(?:(?P<s>\d{1,9})s)?(?:(?P<ms>\d{1,12})ms)?"
)
_DURATION_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_MEMORY = re.compile(r"(?P<number>[-+]?[0-9.]+)(?P<unit>Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)")
_MEMORY_BYTES = {
    "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50,
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
}  # fmt: skip


class WrongValue(ValueError):
    """A value that its field can't take: the code and parameters of its diagnostic, and its fix.

    `at`: the path from the value to the wrong part of it.
    """

    def __init__(self, code: str, *, at: tuple[str | int, ...] = (), fix: str = "", **params: str | int) -> None:
        super().__init__(code)
        self.code = code
        self.at = at
        self.fix = fix
        self.params = params


def excludes(first: str, second: str, *, at: tuple[str, ...], fix: str = "") -> WrongValue:
    """GPU2019: two fields can't be given together."""
    return WrongValue("GPU2019", at=at, fix=fix, said=f"{first} and {second} can't be given together")


def needs(field: str, other: str, *, at: tuple[str, ...] = (), fix: str = "") -> WrongValue:
    """GPU2019: a field lacks another one that it needs."""
    return WrongValue("GPU2019", at=at, fix=fix, said=f"{field} needs {other}")


def gpus(value: Any, most: int = MOST_GPUS) -> GpuMilli:
    """An amount of GPUs in milli: 4, 0.5, "4". Codes GPU2011, GPU2012, GPU2017, GPU2018."""
    amount = _number(value, "GPU2011")
    if amount < 0:
        raise WrongValue("GPU2017", found=str(value))
    milli = _times(amount, WHOLE_GPU)
    if milli is None:
        raise WrongValue("GPU2012", found=str(value))
    if milli > most * WHOLE_GPU:
        raise WrongValue("GPU2018", found=str(value), rule=f"at most {most}")
    return milli


def worker_gpus(value: Any) -> GpuMilli:
    """The GPUs of one worker: whole ones, or less than one. Codes as `gpus`, and GPU2013."""
    milli = gpus(value, MOST_NODE_GPUS)
    if milli > WHOLE_GPU and milli % WHOLE_GPU:
        raise WrongValue("GPU2013", found=str(value))
    return milli


def duration(value: Any) -> DurationMs:
    """A duration in milliseconds: 8h, 7d, 1h30m, 0s, 500ms. Codes GPU2014, GPU2017, GPU2018."""
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise WrongValue("GPU2006", wanted="a duration", found=kind_of(value))
    if not isinstance(value, str):
        fix = f"give it a unit, for example {value}s" if isinstance(value, int) and value >= 0 else ""
        raise WrongValue("GPU2014", fix=fix, found=str(value))
    found = _DURATION.fullmatch(value)
    if found is None or not value:
        if value.startswith("-") and _DURATION.fullmatch(value[1:]):
            raise WrongValue("GPU2017", found=value)
        raise WrongValue("GPU2014", found=value)
    total = sum(int(count) * _DURATION_MS[unit] for unit, count in found.groupdict().items() if count)
    if total > MOST_DAYS * _DURATION_MS["d"]:
        raise WrongValue("GPU2018", found=value, rule=f"at most {MOST_DAYS}d")
    return total


def memory(value: Any) -> MemBytes:
    """Memory in bytes: 32Gi, 500M, 1.5Gi, 1024. Codes GPU2015, GPU2017, GPU2018."""
    unit = 1
    amount: Any = value
    if isinstance(value, str) and (found := _MEMORY.fullmatch(value)):
        amount, unit = found["number"], _MEMORY_BYTES[found["unit"]]
    amount = _number(amount, "GPU2015", shown=value)
    if amount < 0:
        raise WrongValue("GPU2017", found=str(value))
    size = _times(amount, unit)
    if size is None:
        raise WrongValue("GPU2015", found=str(value))
    if size > MOST_MEMORY_PI * _MEMORY_BYTES["Pi"]:
        raise WrongValue("GPU2018", found=str(value), rule=f"at most {MOST_MEMORY_PI}Pi")
    return size


def cpu(value: Any) -> CpuMilli:
    """CPU in milli: 4, 0.5, "500m". Codes GPU2016, GPU2017, GPU2018."""
    in_milli = isinstance(value, str) and value.endswith("m")
    amount = _number(value[:-1] if in_milli else value, "GPU2016", shown=value)
    if amount < 0:
        raise WrongValue("GPU2017", found=str(value))
    milli = _times(amount, 1 if in_milli else 1000)
    if milli is None:
        raise WrongValue("GPU2016", fix="write at most three digits after the point", found=str(value))
    if milli > MOST_CPUS * 1000:
        raise WrongValue("GPU2018", found=str(value), rule=f"at most {MOST_CPUS}")
    return milli


def label(value: str) -> str:
    """A DNS label of RFC 1123. Code GPU2010."""
    if len(value) <= NAME_LENGTH and _LABEL.fullmatch(value):
        return value
    raise _not_a_name(value, NAME_LENGTH)


def subdomain(value: str) -> str:
    """A DNS subdomain of RFC 1123: labels joined by dots. Code GPU2010."""
    if len(value) <= SUBDOMAIN_LENGTH and _SUBDOMAIN.fullmatch(value):
        return value
    raise _not_a_name(value, SUBDOMAIN_LENGTH)


def absolute_path(value: str) -> str:
    """A path from the root, without `..`. Codes GPU2018, GPU2020."""
    if not (value.startswith("/") and ":" not in value and ".." not in value.split("/") and value.isprintable()):
        raise WrongValue("GPU2020", found=value)
    if len(value) > PATH_LENGTH:
        raise WrongValue("GPU2018", found=value, rule=f"at most {PATH_LENGTH} characters")
    return value


def _not_a_name(value: str, longest: int) -> WrongValue:
    if len(value) > longest:
        rule = f"it has {len(value)} characters, at most {longest} are allowed"
        return WrongValue("GPU2010", fix="shorten it", found=value, rule=rule)
    if not value:
        return WrongValue("GPU2010", found=value, rule="it is empty")
    near = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")
    fix = f'write for example "{near}"' if near else ""
    return WrongValue(
        "GPU2010", fix=fix, found=value, rule="only lower-case letters, digits and '-' inside are allowed"
    )


def _number(value: Any, code: str, shown: Any = None) -> int | Decimal:
    shown = value if shown is None else shown
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise WrongValue("GPU2006", wanted="a number", found=kind_of(value))
    if not isinstance(value, str):
        return value
    try:
        amount = number(value)
    except OutOfRange:
        amount = None
    if amount is None:
        raise WrongValue(code, found=str(shown))
    return amount


def _times(amount: int | Decimal, unit: int) -> int | None:
    """The exact product; None if it is not a whole number."""
    if isinstance(amount, int):
        return amount * unit
    sign, digits, exponent = amount.as_tuple()
    whole = int("".join(map(str, digits))) * unit * (-1 if sign else 1)
    assert isinstance(exponent, int)  # noqa: S101 - NaN and infinity are refused where YAML is read
    if exponent >= 0:
        return int(whole * 10**exponent)
    product, rest = divmod(whole, 10**-exponent)
    return None if rest else int(product)
