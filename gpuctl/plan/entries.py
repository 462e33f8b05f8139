"""A run's entry in its ledger, as the plan of this cycle leaves it: what the next cycles need to know of the run.

The facts are those that the wanted object shows to people; the ledger keeps them where tenants can't write. It is
written before the object, so an entry may tell of a start or a pause that has not happened: observing the object shows
whether it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpuctl.k8s import kinds, names
from gpuctl.k8s.annotations import decode_charge, decode_placement, decode_reason, decode_record
from gpuctl.k8s.bounds import whole_number
from gpuctl.k8s.objects import annotations_of
from gpuctl.k8s.suspension import is_let_go
from gpuctl.k8s.workload_table import Rows
from gpuctl.k8s.workloads import named_nodes
from gpuctl.model.decision import Placement, RunRecord
from gpuctl.model.state import ACTIVE, Body, Run, RunEntry, RunPhase
from gpuctl.model.transition import sent_to
from gpuctl.model.units import DurationMs, Instant
from gpuctl.plan.admission import born

ON_RECORD_MS: DurationMs = 60_000
"""A pause that is not carried out within this time is decided anew, because the run ran on meanwhile."""


def next_entry(  # noqa: PLR0913, PLR0917 - an object, what is known and seen of its run, and what both are read by
    wanted: Body, old: RunEntry | None, uid: str, run: Run, at_ms: Instant, rows: Rows
) -> RunEntry:
    """The entry of a run whose object has this uid; `old` itself where nothing has changed. `at_ms`: now.

    `wanted` is the wanted object, `run` the observed run. The entry stays as it is for a run that stops though gpuctl
    did not pause it, and for one that may not be released yet. A run that runs and was never released gets a suspended
    entry.
    """
    goes = is_let_go(wanted, rows)
    if goes and run.phase in ACTIVE and not run.starts:
        wanted, goes = born(wanted, rows), False
    if old is not None and run.phase is RunPhase.STOPPING and (old.is_let_go or goes):
        return old
    notes = annotations_of(wanted)
    # An object for another engine has no record on it; its record is then what is observed.
    record = decode_record(notes, run.queued_at_ms)
    new = _running(wanted, old, uid, at_ms, record) if goes else _waiting(notes, old, uid, record)
    if old is not None and (new == old or (run.phase in ACTIVE and _is_on_record(new, old, at_ms))):
        return old
    return new


def _is_on_record(new: RunEntry, old: RunEntry, at_ms: Instant) -> bool:
    """Whether a pause on record that has not happened is the one decided now. It then keeps its time, so a process that
    is killed again and again between the ledger and the object still gets to the object."""
    then_ms = old.record.queued_at_ms
    if new.is_let_go or old.is_let_go or not 0 <= at_ms - then_ms <= ON_RECORD_MS:
        return False
    same = new.record._replace(queued_at_ms=then_ms, ran_ms=old.record.ran_ms)
    return new.record.starts > 0 and replace(new, record=same) == old


def ended_entry(old: RunEntry | None, uid: str) -> RunEntry:
    """The entry of an ended run: its uid, so that no other object is taken for its own, and its record."""
    new = RunEntry(uid=uid, record=old.record if old is not None else RunRecord(queued_at_ms=0))
    return old if old is not None and new == old else new


def _running(wanted: Body, old: RunEntry | None, uid: str, at_ms: Instant, record: RunRecord) -> RunEntry:
    """The entry of a released run. A run that was released before goes on, even if a person has suspended its
    object."""
    notes = annotations_of(wanted)
    placement = decode_placement(notes.get(names.PLACEMENT_ANNOTATION))
    goes_on = old is not None and old.is_let_go
    return RunEntry(
        uid=uid,
        record=record._replace(ran_ms=old.record.ran_ms) if old is not None and goes_on else record,
        is_let_go=True,
        let_go_at_ms=old.let_go_at_ms if old is not None and goes_on else at_ms,
        placement=placement,
        started_with=old.started_with if old is not None and goes_on else _sent_to(placement, wanted),
        charge=decode_charge(notes.get(names.CHARGE_ANNOTATION)),
        reason=decode_reason(notes.get(names.REASON_ANNOTATION)),
        min_workers=whole_number(notes.get(names.MIN_WORKERS_ANNOTATION)),
        reserved=decode_placement(notes.get(names.RESERVED_ANNOTATION)),
    )


def _sent_to(placement: Placement | None, wanted: Body) -> Placement | None:
    """The nodes that the pods of a start may go to: its places, and the further nodes in a service's template."""
    if placement is None or wanted.get("kind") != kinds.DEPLOYMENT[1]:
        return placement
    return sent_to(placement, [node for node in named_nodes(wanted) if node not in placement.nodes])


def _waiting(notes: Mapping[str, object], old: RunEntry | None, uid: str, record: RunRecord) -> RunEntry:
    """The entry of a waiting run. It keeps what its pods were started with, as some may still be leaving.

    While no place is reserved, it also keeps the reason for which the run was stopped or its last start failed. The
    reason why it waits is not recorded: it changes often, and nothing depends on it.
    """
    placement = decode_placement(notes.get(names.PLACEMENT_ANNOTATION))
    before = old or RunEntry(record=record)
    said = placement is not None or before.is_let_go or record.failed_starts != before.record.failed_starts
    reason = decode_reason(notes.get(names.REASON_ANNOTATION)) if said else before.reason
    return replace(before, uid=uid, record=record, is_let_go=False, placement=placement, reason=reason, reserved=None)
