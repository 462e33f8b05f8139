"""Fairness over time: how much each project used of spare GPUs, and how that lowers its weight.

Only what a project held beyond its quota counts, and quotas are never touched. A weight becomes 2 W - U: twice the
owner's part of all weights, minus its part of the most use that was possible. So equal use changes nothing, old use
fades, and the weight stays above 0, so that an owner with much use stays in its priority band.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpuctl.model.decision import FairShare
from gpuctl.model.ids import ProjectName
from gpuctl.model.state import Ledger
from gpuctl.model.units import DurationMs, GpuMilli, Instant
from gpuctl.model.usage import Usage


def used_by(
    ledgers: Mapping[ProjectName, Ledger], half_life_ms: DurationMs | None, now_ms: Instant
) -> dict[ProjectName, int]:
    """Milli-GPU-hours that projects used beyond their quotas, decayed to now; empty without a half-life."""
    if not half_life_ms:
        return {}
    return {
        project: ledger.usage.value(now_ms, half_life_ms)
        for project, ledger in ledgers.items()
        if ledger.usage is not None
    }


def tempered(weights: Sequence[int], used: Sequence[int], full: int) -> list[int]:
    """The weights of takers, lowered by their past use. `full`: the most use that was possible."""
    if full <= 0 or not any(used):
        return list(weights)
    together = sum(weights)
    return [max(1, 2 * weight * full - use * together) for weight, use in zip(weights, used, strict=True)]


def next_usage(
    ledgers: Mapping[ProjectName, Ledger],
    shares: Iterable[FairShare],
    half_life_ms: DurationMs | None,
    now_ms: Instant,
) -> dict[ProjectName, Usage]:
    """The use to record. A record is written again only when a project holds another amount beyond its quotas."""
    if not half_life_ms:
        return {}
    rates: dict[ProjectName, GpuMilli] = {}
    for row in shares:
        rates[row.project] = rates.get(row.project, 0) + max(0, row.allocated_milli - row.quota_milli)
    known = {project: ledger.usage for project, ledger in ledgers.items() if ledger.usage is not None}
    remembered = dict(known)
    for project in known.keys() | rates.keys():
        before = known.get(project, Usage(at_ms=now_ms))
        rate = rates.get(project, 0)
        if rate != before.rate_milli:
            value = before.value(now_ms, half_life_ms)
            remembered[project] = Usage(at_ms=now_ms, milli_hours=value, rate_milli=rate)
    return remembered
