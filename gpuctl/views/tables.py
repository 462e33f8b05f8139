"""Aligned columns, the way kubectl prints them, and durations as people write them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gpuctl.diag.escapes import printable
from gpuctl.model.units import DurationMs

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


NARROW = 120
"""The most characters in a line of a table, if its command has a wide form that leaves nothing out."""


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    gap: int = 2,
    most: int | None = None,
    whole: Collection[str] = (),
) -> str:
    """Left-aligned columns without trailing spaces; ends with a newline. Without rows it is only the header.

    Line breaks in cells are escaped. `most`: the longest line; to fit it, the longest cells lose their middles, except
    in the columns in `whole`: a cut amount would read as another amount.
    """
    lines = [tuple(map(printable, line)) for line in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    if most is not None:
        least = [width if name in whole else len(name) for name, width in zip(header, widths, strict=True)]
        _narrow(widths, least, most - gap * (len(widths) - 1))
        lines = [tuple(map(_cut, line, widths)) for line in lines]
    return "".join(
        (" " * gap).join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n"
        for line in lines
    )


def _narrow(widths: list[int], least: Sequence[int], most: int) -> None:
    """Take from the widest columns, the last of equals first, until they are `most` in all; headers stay whole."""
    while sum(widths) > most:
        wide = [column for column, width in enumerate(widths) if width > least[column]]
        if not wide:
            return
        widths[max(wide, key=lambda column: (widths[column], column))] -= 1


def _cut(text: str, width: int) -> str:
    """A text, without its middle if it is too long: names and images differ at both ends."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}\N{HORIZONTAL ELLIPSIS}{text[len(text) - end :]}"


def age(duration_ms: DurationMs) -> str:
    """A duration in at most two units, as kubectl shows ages: 45s, 3m20s, 25m, 5h3m, 30h, 3d4h, 200d."""
    ms = max(0, duration_ms)
    if ms < 2 * MINUTE_MS:
        return f"{ms // SECOND_MS}s"
    if ms < 10 * MINUTE_MS:
        return _two(ms, MINUTE_MS, "m", SECOND_MS, "s")
    if ms < 3 * HOUR_MS:
        return f"{ms // MINUTE_MS}m"
    if ms < 8 * HOUR_MS:
        return _two(ms, HOUR_MS, "h", MINUTE_MS, "m")
    if ms < 2 * DAY_MS:
        return f"{ms // HOUR_MS}h"
    if ms < 8 * DAY_MS:
        return _two(ms, DAY_MS, "d", HOUR_MS, "h")
    return f"{ms // DAY_MS}d"


def _two(ms: int, large_ms: int, large: str, small_ms: int, small: str) -> str:
    first, rest = divmod(ms, large_ms)
    second = rest // small_ms
    return f"{first}{large}{second}{small}" if second else f"{first}{large}"
