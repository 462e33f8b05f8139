"""The transitions of a run: the one place that says how a run is after a decision, and after its pods have followed.

A decision is written first, and the pods follow later; so there are two kinds of steps. `decided` gives the run as the
next cycle observes it when the decision is written and no pod has moved. `started` and `stopped` give the run once its
pods run, or are gone. Example: Reclaim makes a running run STOPPING, `stopped` makes it QUEUED, Admit makes it
STARTING, and `started` makes it RUNNING.

`explain`, replays and the world of the property tests all use these steps. tests/properties/test_transition.py compares
them with the result of plan and apply on the embedded cluster, as observe reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gpuctl.model.decision import (
    Admit,
    Decision,
    Displace,
    Finished,
    Keep,
    Move,
    Pending,
    Placement,
    Preempt,
    Reason,
    Reclaim,
    Resize,
    RunRecord,
    Suspended,
    TimeOut,
    WorkerPlacement,
)
from gpuctl.model.ids import NodeName
from gpuctl.model.job import Job
from gpuctl.model.state import ACTIVE, Charge, Run, RunPhase
from gpuctl.model.units import Instant


def decided(job: Job, run: Run | None, decision: Decision, at_ms: Instant, charge: Charge | None = None) -> Run | None:
    """The run of a job once a decision about it is written; the same object if that changes nothing.

    None: there is no run, and none is created. `charge`: what a worker is charged where an Admit puts it; by default
    what the job asks for. Cost: O(workers).
    """
    if run is None:
        return _made(job, decision)
    after = _decided(job, run, decision, at_ms, charge)
    return run if after is run or after == run else after


def _decided(job: Job, run: Run, decision: Decision, at_ms: Instant, charge: Charge | None) -> Run:
    record, reason = decision.record, decision.reason
    match decision:
        case Admit(placement=placement, further=further):
            run = replace(run, reason=reason, made_with=sent_to(placement, further) if job.is_elastic else None)
            since_ms = at_ms if job.has_deadline else None  # only a Job records its start; for others, their pods do
            return admitted(run, record, placement, charge or _asked(job), since_ms)
        case Move() | Reclaim() | Preempt() if run.phase in ACTIVE:
            return paused(replace(run, reason=reason), record, decision.reserved)
        case Displace() | Suspended() if run.phase in ACTIVE:
            return paused(replace(run, reason=reason), record, None)
        case Pending(reserved=reserved) if run.phase is RunPhase.STOPPING:
            return replace(_recorded(run, record), reason=reason, reserved=reserved)
        case Pending(reserved=reserved):
            return _waiting(_recorded(run, record), reserved, reason)
        case Suspended() if run.phase is RunPhase.QUEUED:
            return _waiting(_recorded(run, record), None, run.reason)
        case Resize(placement=placement):
            return resized(_recorded(run, record), placement)
        case Keep(reserved=reserved) if run.phase in ACTIVE:
            return _with(_recorded(run, record), reserved=reserved)
        case TimeOut():
            return replace(run, phase=RunPhase.TIMED_OUT, placement=None)
        case _:
            return run


def _made(job: Job, decision: Decision) -> Run | None:
    """A new run: its object is created suspended, whatever was decided, and released by the next cycle, which sees it.

    It is charged for no GPU before its first release. A place reserved for it is decided anew: the ledger has no entry
    before the object has a uid.
    """
    if isinstance(decision, Finished):
        return None
    record = decision.record
    starts = record.starts - isinstance(decision, Admit)
    run = Run(job=job.id, digest=job.digest, phase=RunPhase.QUEUED, cpu_milli=job.cpu_milli, mem_bytes=job.mem_bytes)
    return _recorded(run, record._replace(starts=starts))


def admitted(run: Run, record: RunRecord, placement: Placement, charge: Charge, since_ms: Instant | None) -> Run:
    """The run once it is released to a placement; its pods are still to be created.

    `record` counts this start. `since_ms`: since when it counts as started; None: the start of its pods will tell.
    """
    return replace(
        _recorded(run, record), phase=RunPhase.STARTING, placement=placement, reserved=None, started_at_ms=since_ms,
        gpu_milli=charge.gpu_milli, cpu_milli=charge.cpu_milli, mem_bytes=charge.mem_bytes, idle_since_ms=None,
        checkpointed_at_ms=None,
        unbound=tuple(Counter(worker.node for worker in placement.workers).elements()), unstarted=True,
    )  # fmt: skip


def sent_to(placement: Placement, further: Iterable[NodeName]) -> Placement:
    """The places that a start's pods may take: those of its workers, and further nodes, without devices."""
    return Placement(workers=(*placement.workers, *(WorkerPlacement(node=node) for node in further)))


def started(run: Run, at_ms: Instant) -> Run:
    """A STARTING run once all its pods run; any other run once the workers that it gave up are gone.

    The same object if nothing was under way.
    """
    if run.phase is RunPhase.STARTING:
        since_ms = at_ms if run.started_at_ms is None else run.started_at_ms
        return replace(run, phase=RunPhase.RUNNING, started_at_ms=since_ms, unbound=(), unstarted=False, leaving=None)
    return run if run.leaving is None else replace(run, leaving=None)


def removed(run: Run) -> Run:
    """The run once its object is being deleted because its job is no longer declared."""
    return replace(run, phase=RunPhase.STOPPING, reserved=None) if run.phase in ACTIVE else run


def paused(run: Run, record: RunRecord, reserved: Placement | None) -> Run:
    """The run while its pods leave. `reserved`: where it goes on afterwards; `record`: the one it then waits with."""
    return replace(
        _recorded(run, record), phase=RunPhase.STOPPING, reserved=reserved, started_at_ms=None, asked_workers=None
    )


def stopped(run: Run) -> Run:
    """A STOPPING run once its pods are gone: it waits, with the place reserved for it if there is one.

    If its outcome is certain, it has ended.
    """
    if run.ends_as is not None:
        return replace(run, phase=run.ends_as, placement=None, leaving=None, made_with=None, ends_as=None)
    return _waiting(run, run.reserved, run.reason)


def _waiting(run: Run, reserved: Placement | None, reason: Reason | None) -> Run:
    """A run that waits. No record keeps why a run waits: a reason stays on it only while a place is reserved for it, or
    after a failed start."""
    keeps_reason = reserved is not None or run.failed_starts > 0
    return _with(
        run, phase=RunPhase.QUEUED, placement=reserved, reserved=None, leaving=None, made_with=None, unbound=(),
        unstarted=False, started_at_ms=None, idle_since_ms=None, checkpointed_at_ms=None,
        reason=reason if keeps_reason else None,
    )  # fmt: skip


def resized(run: Run, placement: Placement) -> Run:
    """The run with fewer or more workers; the pods of workers that it gave up are leaving."""
    gone = Counter(run.placement.workers if run.placement else ()) - Counter(placement.workers)
    leaving = Placement(workers=tuple(gone.elements())) if gone else None
    return replace(run, placement=placement, leaving=leaving, reserved=None)


def _recorded(run: Run, record: RunRecord) -> Run:
    return run if run.record == record else replace(run, **record._asdict())


def _with(run: Run, **values: Any) -> Run:
    """The run with some values; the same object if it has them already: most decisions change nothing of their run."""
    for name, value in values.items():
        if getattr(run, name) != value:
            return replace(run, **values)
    return run


def _asked(job: Job) -> Charge:
    return Charge(gpu_milli=job.gpu_milli, cpu_milli=job.cpu_milli, mem_bytes=job.mem_bytes)
