"""The record of a run as it is now: its ledger entry's record, corrected for what has not happened."""

from __future__ import annotations

from gpuctl.k8s.objects import condition, instant
from gpuctl.model.decision import RunRecord
from gpuctl.model.state import ACTIVE, Body, RunEntry, RunPhase
from gpuctl.model.units import Instant
from gpuctl.observe.autoscalers import Asked


def record_of(
    entry: RunEntry, body: Body, phase: RunPhase, started_at_ms: Instant | None, asked: Asked | None
) -> RunRecord:
    """The entry's record, corrected for a start or a pause that has not happened.

    A start that a person undid by suspending the object no longer counts, but the time that the run had does. A service
    at zero counts as queued since it has load again.
    """
    record = entry.record
    if phase is RunPhase.QUEUED and asked is not None and asked.at_zero:
        if not entry.is_let_go:
            return record._replace(queued_at_ms=max(record.queued_at_ms, asked.load_ms)) if asked.workers else record
        if asked.workers is None or asked.taken_ms > (entry.let_go_at_ms or 0):
            return _ran_until(entry, asked.taken_ms)
    if phase is RunPhase.QUEUED and entry.is_let_go:
        suspended_at_ms = instant(condition(body, "Suspended"), "lastTransitionTime") or 0
        ran_ms = record.ran_ms + max(0, suspended_at_ms - (entry.let_go_at_ms or suspended_at_ms))
        return record._replace(starts=max(0, record.starts - 1), ran_ms=ran_ms, starting_ms=0)
    if phase in ACTIVE and not entry.is_let_go and started_at_ms is not None:
        counted_ms = max(0, record.queued_at_ms - started_at_ms)
        return record._replace(ran_ms=max(0, record.ran_ms - counted_ms))
    return record


def _ran_until(entry: RunEntry, taken_ms: Instant) -> RunRecord:
    """The record of a service whose last worker its autoscaler removed at this time: its start still counts, and its
    running time ends then."""
    ran_ms = max(0, taken_ms - (entry.let_go_at_ms or taken_ms))
    return entry.record._replace(ran_ms=entry.record.ran_ms + ran_ms, starting_ms=0)
