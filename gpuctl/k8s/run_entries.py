"""A run's entry in a ledger as a JSON value, and back; and the facts that a run's object tells people.

An entry leaves out values that every waiting run has. Decoding raises ValueError or TypeError for any other value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.k8s import names
from gpuctl.k8s.annotations import (
    charge_of,
    charge_value,
    decode_charge,
    decode_instant,
    decode_job,
    decode_placement,
    decode_reason,
    decode_record,
    placement_of,
    placement_value,
    reason_of,
    reason_value,
)
from gpuctl.k8s.bounds import MOST_AMOUNT, MOST_WORKERS, is_amount, is_short, whole_number
from gpuctl.k8s.objects import annotations_of, instant, mapping
from gpuctl.k8s.suspension import is_let_go
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.k8s.workload_table import Rows
from gpuctl.model.decision import NOT_YET, RunRecord
from gpuctl.model.state import Body, RunEntry


def entry_value(entry: RunEntry) -> dict[str, object]:
    """An entry as a JSON value. Nearly all have `queuedAt` and `uid`; the rest appears once a run was released."""
    record, at_start = entry.record, entry.started_with == entry.placement
    parts: dict[str, object] = {
        "uid": entry.uid,
        "queuedAt": format_timestamp(record.queued_at_ms) if record.queued_at_ms else None,
        "starts": record.starts,
        "ranMs": record.ran_ms,
        "pausedFor": record.paused_for and str(record.paused_for),
        "failedStarts": record.failed_starts,
        "startingMs": record.starting_ms,
        "letGo": entry.is_let_go,
        "letGoAt": None if entry.let_go_at_ms is None else format_timestamp(entry.let_go_at_ms),
        "placement": entry.placement and placement_value(entry.placement),
        "startedWith": entry.started_with and (at_start or placement_value(entry.started_with)),
        "charge": entry.charge and charge_value(entry.charge),
        "reason": entry.reason and reason_value(entry.reason),
        "minWorkers": entry.min_workers,
        "reserved": entry.reserved and placement_value(entry.reserved),
    }
    return {name: part for name, part in parts.items() if part}


def entry_of(value: object) -> RunEntry:
    """An entry from its JSON value. Raises ValueError, TypeError."""
    if not isinstance(value, dict):
        raise TypeError("not an entry")
    uid, let_go, least = value.get("uid", ""), value.get("letGo", False), value.get("minWorkers")
    placement = _part(value, "placement", placement_of)
    at_start = value.get("startedWith") is True
    if not is_short(uid) or type(let_go) is not bool or not (least is None or is_amount(least, MOST_WORKERS)):
        raise ValueError("not an entry")
    return RunEntry(
        uid=uid,
        record=RunRecord(
            queued_at_ms=_part(value, "queuedAt", decode_instant) or 0,
            starts=_amount(value, "starts"),
            ran_ms=_amount(value, "ranMs"),
            paused_for=_part(value, "pausedFor", decode_job),
            failed_starts=_amount(value, "failedStarts"),
            starting_ms=NOT_YET if value.get("startingMs") == NOT_YET else _amount(value, "startingMs"),
        ),
        is_let_go=let_go,
        let_go_at_ms=_part(value, "letGoAt", decode_instant),
        placement=placement,
        started_with=placement if at_start else _part(value, "startedWith", placement_of),
        charge=_part(value, "charge", charge_of),
        reason=_part(value, "reason", reason_of),
        min_workers=least,
        reserved=_part(value, "reserved", placement_of),
    )


def _amount(value: Mapping[str, Any], key: str) -> int:
    amount = value.get(key, 0)
    if not is_amount(amount, MOST_AMOUNT):
        raise ValueError(key)
    return amount


def _part(value: Mapping[str, Any], key: str, read: Any) -> Any:
    """A part that may be absent; if it is there, it must be readable."""
    if key not in value:
        return None
    found = read(value[key])
    if found is None:
        raise ValueError(key)
    return found


def told_entry(body: Body, rows: Rows) -> RunEntry:
    """The facts of a run on its Job or Deployment, for people. They are used if the run's ledger can't be read."""
    notes = annotations_of(body)
    template = annotations_of(mapping(body, "spec", "template"))
    return RunEntry(
        record=decode_record(notes, instant(body, "metadata", "creationTimestamp") or 0),
        is_let_go=is_let_go(body, rows),
        placement=decode_placement(notes.get(names.PLACEMENT_ANNOTATION)),
        started_with=decode_placement(template.get(names.PLACEMENT_ANNOTATION)),
        charge=decode_charge(notes.get(names.CHARGE_ANNOTATION)),
        reason=decode_reason(notes.get(names.REASON_ANNOTATION)),
        min_workers=whole_number(notes.get(names.MIN_WORKERS_ANNOTATION), MOST_WORKERS),
    )
