"""Fairness over time: what each project has used of spare GPUs, and how that weighs when they are shared.

Only what was held beyond quota counts, for a quota is a project's own. Quotas are never touched by it. The weight of a
taker becomes 2 W - U: twice its part of the weights, less its part of all use there could have been. So equal use
changes nothing, and use that is long past neither; it is never less than the smallest of weights, so that nobody falls
out of a priority band for having used much.
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
    """Milli-GPU-hours that projects have used beyond their quotas, decayed up to now; nothing without a half-life."""
    if not half_life_ms:
        return {}
    return {
        project: ledger.usage.value(now_ms, half_life_ms)
        for project, ledger in ledgers.items()
        if ledger.usage is not None
    }


def tempered(weights: Sequence[int], used: Sequence[int], full: int) -> list[int]:
    """The weights of takers that have used so much, where `full` is all that could have been used."""
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
    """What is to be remembered: as it was, until a project holds another amount beyond its quotas."""
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
