"""Trends as charts draw them. Amounts become floats here: pixels need no more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from gpuctl.model.history import ALL, Period, Trends


def chart(trends: Trends, name: str) -> Mapping[str, object] | None:
    """The data of a chart: instants in seconds, and a value or None for each line. None for an unknown chart."""
    lines = _CHARTS.get(name)
    if lines is None:
        return None
    times = range(trends.since_ms, trends.until_ms, trends.step_ms)
    observed = {row.at_ms: row.observed_ms for row in trends.periods if row.project == ALL}
    drawn = [{"name": line, "values": list(values)} for line, values in lines(trends, times, observed)]
    return {"at": [at_ms / 1000 for at_ms in times], "lines": drawn}


Lines: TypeAlias = Iterator[tuple[str, Iterable[float | None]]]


def _allocation(trends: Trends, times: Sequence[int], observed: Mapping[int, int]) -> Lines:
    """A line for each project, and one for the projects that have none."""
    names = sorted({row.project for row in trends.periods} - {ALL})
    held = {(row.project, row.at_ms): row.held_milli_s for row in trends.periods}
    for name in names:
        yield name, _averages(times, observed, {at: held.get((name, at), 0) for at in times})
    if len(names) < len(trends.totals) - 1:
        rest = {at: held.get((ALL, at), 0) - sum(held.get((name, at), 0) for name in names) for at in times}
        yield "(others)", _averages(times, observed, rest)


def _share(trends: Trends, times: Sequence[int], observed: Mapping[int, int]) -> Lines:
    """The GPUs of one project, or of all together, against what it is entitled to."""
    rows = [row for row in trends.periods if row.project == (trends.project or ALL)]
    yield "allocated", _averages(times, observed, {row.at_ms: row.held_milli_s for row in rows})
    yield "fair share", _averages(times, observed, {row.at_ms: row.share_milli_s for row in rows})
    yield "quota", _averages(times, observed, {row.at_ms: row.quota_milli_s for row in rows})
    yield "waiting for", _averages(times, observed, {row.at_ms: row.waiting_milli_s for row in rows})


def _gpus(trends: Trends, times: Sequence[int], observed: Mapping[int, int]) -> Lines:
    """All GPUs, the allocated ones, and those of them that are idle, where that is known. The table shows the same."""
    rows = [row for row in trends.periods if row.project == ALL]
    yield "all", _averages(times, observed, {row.at_ms: row.gpus_milli_s for row in rows})
    yield "allocated", _averages(times, observed, {row.at_ms: row.held_milli_s for row in rows})
    yield "idle, not allocated", _averages(times, observed, {row.at_ms: _free(row) for row in rows})
    known = {row.at_ms: row.idle_milli_s for row in rows if row.measured_milli_s or row.idle_milli_s}
    yield "idle, allocated", _averages(times, {at: observed[at] for at in known}, known)


def _utilisation(trends: Trends, times: Sequence[int], observed: Mapping[int, int]) -> Lines:
    """The percentage of held GPUs that worked, for each project that was measured, and for all together."""
    del observed
    for name in sorted(
        {row.project for row in trends.periods if row.measured_milli_s}, key=lambda name: (not name, name)
    ):
        rows = {row.at_ms: row for row in trends.periods if row.project == name and row.measured_milli_s}
        yield (
            name or "(all)",
            [round(100 * rows[at].busy_milli_s / rows[at].measured_milli_s, 1) if at in rows else None for at in times],
        )


def _free(row: Period) -> int:
    return max(0, row.gpus_milli_s - row.held_milli_s)


def _waits(trends: Trends, times: Sequence[int], observed: Mapping[int, int]) -> Lines:
    """Minutes that the runs let go in a step had waited on average, and the number of pauses in the step."""
    steps = {step.at_ms: step for step in trends.steps}
    means = {at: step.waited_ms / step.starts / 60_000 for at, step in steps.items() if step.starts}
    yield "mean wait of runs let go, minutes", [means.get(at) for at in times]
    yield (
        "runs paused for others",
        [(float(steps[at].pauses) if at in steps else 0.0) if observed.get(at) else None for at in times],
    )


def _averages(times: Sequence[int], observed: Mapping[int, int], sums: Mapping[int, int]) -> list[float | None]:
    """The average GPUs over the observed time of each step; None where nothing was observed."""
    return [round(sums.get(at, 0) / observed[at], 3) if observed.get(at) else None for at in times]


_CHARTS = {"allocation": _allocation, "share": _share, "gpus": _gpus, "utilisation": _utilisation, "waits": _waits}
