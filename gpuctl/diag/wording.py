"""Messages of the catalogue with their parameters filled in.

A message is a `str.format` template with plain names and, for a parameter that is an amount, its unit after a colon:
`{quota:gpus}` milli-GPU as GPUs, `{limit:duration}` milliseconds, `{from:instant}` milliseconds since 1970,
`{size:memory}` bytes, `{cores:cpu}` milli-CPU.
Values are made printable here, so that no file can send control sequences to a terminal.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from gpuctl.diag.catalogue import CodeEntry
from gpuctl.diag.codes import CODES
from gpuctl.diag.escapes import printable

_DURATION_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms"))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_LIST = 8
_LONGEST_VALUE = 200
"""The most that a message shows of a list, in words, and of a value, in characters."""
_SHOWN_END = 60
"""How many of these characters are the end of a longer value."""
_MEMORY_UNITS = ((1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))


class ReasonLike(Protocol):
    """A code with the parameters of its message, in the form of `model.decision.Reason`."""

    @property
    def code(self) -> str:
        """The catalogue code."""
        ...

    @property
    def params(self) -> tuple[tuple[str, str | int], ...]:
        """Named parameters."""
        ...


def thousandths(milli: int) -> str:
    """Thousandths as a decimal number: 4000 -> "4", 500 -> "0.5"."""
    whole, rest = divmod(abs(milli), 1000)
    sign = "-" if milli < 0 else ""
    return f"{sign}{whole}" if not rest else f"{sign}{whole}.{rest:03d}".rstrip("0")


def duration(milliseconds: int) -> str:
    """A duration as people write it: 5_400_000 -> "1h30m"."""
    parts = []
    for unit, name in _DURATION_UNITS:
        count, milliseconds = divmod(milliseconds, unit)
        if count:
            parts.append(f"{count}{name}")
    return "".join(parts) or "0s"


def memory(size: int) -> str:
    """Bytes in the largest binary unit that is exact: 17_179_869_184 -> "16Gi"."""
    for unit, name in _MEMORY_UNITS:
        if size >= unit and size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


def instant(at_ms: int) -> str:
    """An instant as Kubernetes writes it, to the second: 1_596_000_000_000 -> "2020-07-29T05:20:00Z"."""
    return f"{_EPOCH + timedelta(milliseconds=at_ms):%Y-%m-%dT%H:%M:%SZ}"


_ONE = re.compile(r"(?<![\w.,-])1 (GPU|CPU)s\b")
_UNITS = {"gpus": thousandths, "cpu": thousandths, "duration": duration, "instant": instant, "memory": memory}


class _Words(string.Formatter):
    """`str.format` with the units of this module."""

    def format_field(self, value: Any, format_spec: str) -> str:
        unit = _UNITS.get(format_spec)
        shown = unit(value) if unit is not None and isinstance(value, int) else str(value)
        return printable(_shortened(shown))


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - _SHOWN_END]} [...] {text[-_SHOWN_END:]}"


_WORDS = _Words()


def message(code: str, params: Mapping[str, str | int]) -> str:
    """The code's message with its parameters; KeyError for an unknown code or a missing parameter."""
    return _ONE.sub(r"1 \1", _WORDS.vformat(CODES[code].message, (), params))


def reason_text(reason: ReasonLike) -> str:
    """A reason in words. A code or a parameter that this version does not know is shown unchanged."""
    try:
        return message(reason.code, dict(reason.params))
    except KeyError:
        return " ".join([reason.code, *(f"{name}={printable(str(value))}" for name, value in reason.params)])


def explain_code(code: str) -> str:
    """The meaning of a code, why it is checked and how to fix it; KeyError for an unknown one."""
    entry: CodeEntry = CODES[code]
    return f"{entry.code}: {entry.title}\n\n{entry.why}\n\nFix: {entry.fix}\n\nSince {entry.since}.\n"


def one_of(words: Iterable[str]) -> str:
    """A choice in words: `a`, `a or b`, `a, b or c`."""
    return _joined(list(words), "or")


def all_of(words: Iterable[str]) -> str:
    """A list in words: `a`, `a and b`, `a, b and c`; a long one is cut."""
    return _joined(list(words), "and")


def _joined(words: list[str], last: str) -> str:
    if len(words) < 2:
        return "".join(words)
    if len(words) > _LONGEST_LIST + 1:  # "1 more" takes as much room as the one does
        return f"{', '.join(words[:_LONGEST_LIST])} {last} {len(words) - _LONGEST_LIST} more"
    return f"{', '.join(words[:-1])} {last} {words[-1]}"
