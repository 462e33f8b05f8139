"""GPU-hours, shares and waits of a period, as a table and as CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass

from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.history import ALL, Tally, Trends
from gpuctl.model.ids import ProjectName
from gpuctl.views.history import harmless

_HOUR_S = 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A line of the table: averages over the observed time, in thousandths of GPUs.

    `busy_milli_s` of `measured_milli_s`: the part of the held GPUs that worked, as far as that was measured.
    """

    project: ProjectName
    gpu_hours_milli: int
    held_milli: int
    share_milli: int
    quota_milli: int
    idle_milli: int
    idle_hours_milli: int
    measured_milli_s: int
    busy_milli_s: int
    tally: Tally


def uses(trends: Trends) -> tuple[Use, ...]:
    """Each project's use, by name; the total comes last, under the name ALL."""
    observed_ms = max(1, sum(row.observed_ms for row in trends.totals if row.project == ALL))
    tallies = {tally.project: tally for tally in trends.tallies}
    found = [
        Use(
            project=row.project,
            gpu_hours_milli=row.held_milli_s // _HOUR_S,
            held_milli=row.held_milli_s * 1000 // observed_ms,
            share_milli=row.share_milli_s * 1000 // observed_ms,
            quota_milli=row.quota_milli_s * 1000 // observed_ms,
            idle_milli=row.idle_milli_s * 1000 // observed_ms,
            idle_hours_milli=row.idle_milli_s // _HOUR_S,
            measured_milli_s=row.measured_milli_s,
            busy_milli_s=row.busy_milli_s,
            tally=tallies.get(row.project, Tally(row.project)),
        )
        for row in trends.totals
    ]
    return tuple(sorted(found, key=lambda use: (use.project == ALL, use.project)))


def uses_csv(trends: Trends) -> str:
    """The table as CSV: whole numbers, and names that can't be formulas."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow((
        "since", "until", "project", "gpu_hours_milli", "held_milli", "share_milli", "quota_milli", "idle_milli",
        "starts", "pauses", "median_wait_ms", "wait_90_percent_ms", "longest_wait_ms",
        "idle_hours_milli", "measured_milli_s", "busy_milli_s",
    ))  # fmt: skip
    since, until = format_timestamp(trends.since_ms), format_timestamp(trends.until_ms)
    for use in uses(trends):
        rows.writerow((
            since, until, harmless(use.project or "(all)"), use.gpu_hours_milli, use.held_milli, use.share_milli,
            use.quota_milli, use.idle_milli, *use.tally[1:], use.idle_hours_milli, use.measured_milli_s,
            use.busy_milli_s,
        ))  # fmt: skip
    return text.getvalue()
