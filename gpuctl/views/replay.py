"""The figures of a replay as a table, one row for each mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuctl.model.units import DurationMs
from gpuctl.views.tables import age, table


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeRow:
    """The figures of one mode. `*_ppm`: of all work or GPU time, except `young_ppm`, which is of its reclaims.
    `of_floor_milli`: its mean wait divided by the floor's."""

    mode: str
    mean_wait_ms: DurationMs
    p95_wait_ms: DurationMs
    of_floor_milli: int | None
    unfair_ppm: int
    below_quota_ppm: int
    violations: int
    longest_ms: DurationMs
    pauses: int
    young_ppm: int | None
    most_starts: int
    displaced_ppm: int
    wasted_ppm: int
    used_ppm: int
    unfinished: int


HEADER = (
    "MODE", "MEAN WAIT", "P95", "OF FLOOR", "UNFAIR", "BELOW QUOTA", "VIOLATIONS", "LONGEST", "PAUSES", "YOUNG",
    "STARTS", "DISPLACED", "WASTED", "USED", "NEVER RAN",
)  # fmt: skip


def mode_table(rows: Sequence[ModeRow]) -> str:
    """The modes as a table."""
    return table(HEADER, [_cells(row) for row in rows])


def _cells(row: ModeRow) -> tuple[str, ...]:
    ratio = "-" if row.of_floor_milli is None else _hundredths((row.of_floor_milli + 5) // 10)
    return (
        row.mode, age(row.mean_wait_ms), age(row.p95_wait_ms), ratio, percent(row.unfair_ppm),
        percent(row.below_quota_ppm), str(row.violations), age(row.longest_ms), str(row.pauses),
        "-" if row.young_ppm is None else percent(row.young_ppm), str(row.most_starts), percent(row.displaced_ppm),
        percent(row.wasted_ppm), percent(row.used_ppm), str(row.unfinished),
    )  # fmt: skip


def percent(ppm: int) -> str:
    """12345 -> 1.23%."""
    return f"{_hundredths((ppm + 50) // 100)}%"


def _hundredths(count: int) -> str:
    return f"{count // 100}.{count % 100:02d}"
